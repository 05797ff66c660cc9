//! What the Kubernetes API says of this node's pods: its own by field selector, and nothing of the cluster's size.
//!
//! An API server that is away, slow or says no never stops the agent: the state is an input like any other, and what was missed
//! is asked for again.

mod asking;
pub(in crate::source) mod cache;
pub(in crate::source) mod clock;
pub(in crate::source) mod convert;
pub(in crate::source) mod error;
mod hints;
mod known;
mod namespaces;
pub(in crate::source) mod options;
pub(in crate::source) mod owners;
mod service;
mod stats;
mod teller;
mod watch;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::chain;

use crate::input::Input;

pub use error::PodsError;
pub use stats::{DropReason, Stats};

use hints::Hints;
use known::Known;
use namespaces::Namespaces;
use owners::Owners;
use teller::Teller;
use watch::Watch;

/// Inputs that wait for the loop; a full queue makes the watch wait.
const QUEUE: usize = 256;

const CONNECT: Duration = Duration::from_secs(5);

/// Where every pod finds its ServiceAccount's token.
pub const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// How the API server is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// By the ServiceAccount's files and the environment that the kubelet gives a pod.
    InCluster,
    Kubeconfig(PathBuf),
    /// By `KUBECONFIG`, else `~/.kube/config`, as kubectl does it.
    Kubectl,
}

/// This node's pods, as inputs. Dropping it ends the conversation.
pub struct Pods {
    pub inputs: mpsc::Receiver<Input>,
    pub stats: Arc<Stats>,
    /// This node, as the API names it.
    pub node: String,
    client: Client,
    _tasks: JoinSet<()>,
}

impl Pods {
    /// Starts asking, on the current Tokio runtime; an API server that does not answer is no error.
    ///
    /// # Errors
    /// Settings with which nobody could be asked: no or a bad node name, a kubeconfig or a ServiceAccount's files that cannot
    /// be used.
    pub async fn start(node: Option<&str>, access: &Access) -> Result<Pods, PodsError> {
        let node = node_name(node)?;
        let client = connect(access).await?;
        let stats = Arc::new(Stats::default());
        let (inputs, receiver) = mpsc::channel(QUEUE);
        let (hints, to_explain) = mpsc::channel(hints::QUEUE);
        let teller = Teller {
            inputs: inputs.clone(),
            hints,
            owners: Owners::new(client.clone(), stats.clone()),
            namespaces: Namespaces::new(client.clone(), stats.clone()),
            node: node.clone(),
            stats: stats.clone(),
            known: Known::default(),
            state: None,
            said: HashSet::new(),
        };
        let watch = Watch {
            api: Api::all(client.clone()),
            node: node.clone(),
            teller,
            stats: stats.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(watch.run());
        tasks.spawn(Hints::new(client.clone(), stats.clone(), inputs.clone()).run(to_explain));
        tasks.spawn(clock::run(client.clone(), stats.clone(), inputs, Input::ApiClock));
        Ok(Pods {
            inputs: receiver,
            stats,
            node,
            client,
            _tasks: tasks,
        })
    }

    /// The same connection, for what is written.
    pub fn client(&self) -> Client {
        self.client.clone()
    }
}

/// It becomes part of a field selector.
fn node_name(node: Option<&str>) -> Result<String, PodsError> {
    let node = node.filter(|node| !node.is_empty()).ok_or(PodsError::NoNodeName)?;
    let is_name = node.len() <= 253
        && node
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.');
    if !is_name {
        return Err(PodsError::NodeName(convert::bounded(node, 253)));
    }
    Ok(node.to_owned())
}

/// A client of the API server, which need not answer yet.
///
/// # Errors
/// A kubeconfig or a ServiceAccount's files that cannot be used.
pub async fn connect(access: &Access) -> Result<Client, PodsError> {
    let options = KubeConfigOptions::default();
    let mut config = match access {
        Access::InCluster => kube::Config::incluster().map_err(|e| PodsError::NoCluster(chain(&e)))?,
        Access::Kubeconfig(file) => {
            let wrong = |error: kube::config::KubeconfigError| PodsError::Kubeconfig {
                file: file.clone(),
                problem: chain(&error),
            };
            let kubeconfig = Kubeconfig::read_from(file).map_err(wrong)?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(wrong)?
        }
        Access::Kubectl => kube::Config::from_kubeconfig(&options)
            .await
            .map_err(|e| PodsError::NoCluster(chain(&e)))?,
    };
    config.connect_timeout = Some(CONNECT);
    // Every question here has its own limit and its own way to try again.
    config.default_retry = false;
    Client::try_from(config).map_err(|e| PodsError::Client(chain(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_name_is_nothing_but_a_name() {
        assert_eq!(
            node_name(Some("ip-10-0-0-1.ec2.internal")).unwrap(),
            "ip-10-0-0-1.ec2.internal"
        );
        assert!(matches!(node_name(None), Err(PodsError::NoNodeName)));
        assert!(matches!(node_name(Some("")), Err(PodsError::NoNodeName)));
        for name in ["a,metadata.name=x", "Node", "a b", "a=b"] {
            assert!(matches!(node_name(Some(name)), Err(PodsError::NodeName(_))), "{name}");
        }
    }
}
