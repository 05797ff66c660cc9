//! Whether the API server knows the custom resources that the agent writes.

use std::path::Path;
use std::time::Duration;

use epitaph_core::render::resource::{API_VERSION, KIND, NODE_KIND, NODE_PLURAL, PLURAL};

use crate::cli::DoctorArgs;
use crate::config::{Config, Env};
use crate::doctor::ServedKinds;
use crate::error::chain;
use crate::runtime::{RuntimeError, block_on_value, past};
use crate::source::pods::{self, Access};

/// For an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// None: the agent here writes none, or no access to the API was given. `config`: as the person's flags have it.
pub fn served(args: &DoctorArgs, config: &Config, env: &dyn Env) -> Result<Option<ServedKinds>, RuntimeError> {
    let agents = past::installed(args.config.as_deref(), env)?;
    let in_pod = Path::new(pods::TOKEN).exists();
    let access = config.kubernetes.access(false).or_else(|| match in_pod {
        true => agents.kubernetes.access(true),
        false => None,
    });
    let Some(access) = access.filter(|_| agents.kubernetes.epitaphs) else {
        return Ok(None);
    };
    let asked = block_on_value(async move { tokio::time::timeout(PATIENCE, ask(&access)).await });
    Ok(Some(match asked {
        Ok(Ok(kinds)) => kinds,
        Ok(Err(_)) => ServedKinds::Unknown(format!("no answer within {} s", PATIENCE.as_secs())),
        Err(error) => ServedKinds::Unknown(chain(&error)),
    }))
}

async fn ask(access: &Access) -> ServedKinds {
    let client = match pods::connect(access).await {
        Ok(client) => client,
        Err(error) => return ServedKinds::Unknown(chain(&error)),
    };
    let known = match client.list_api_group_resources(API_VERSION).await {
        Ok(list) => list.resources,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return ServedKinds::Unknown(chain(&error)),
    };
    let is_missing = |(plural, _): &(&str, &str)| known.iter().all(|resource| resource.name != *plural);
    let missing = [(PLURAL, KIND), (NODE_PLURAL, NODE_KIND)].into_iter().filter(is_missing);
    match missing.map(|(_, kind)| kind).collect::<Vec<_>>() {
        missing if missing.is_empty() => ServedKinds::All,
        missing => ServedKinds::Without(missing),
    }
}
