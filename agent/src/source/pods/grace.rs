//! The pods of this node with their grace periods, once: what a node's shutdown has to wait for.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;
use tokio::time::timeout;

use super::error::Action;
use super::{Access, PodsError, connect, node_name};
use crate::error::{HasRemedy, Remedy};
use crate::source::api_error::ApiError;
use crate::source::bounded;
use crate::source::watch::LeanPod;

/// A kubelet runs 110 pods by default.
const MOST: u32 = 1_000;
const TIMEOUT: Duration = Duration::from_secs(10);

/// A pod of this node that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGrace {
    /// `NAMESPACE/NAME`.
    pub name: String,
    pub priority: i32,
    /// `terminationGracePeriodSeconds`.
    pub grace: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum GraceError {
    #[error(transparent)]
    Settings(#[from] PodsError),
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl HasRemedy for GraceError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            GraceError::Settings(error) => error.remedy(),
            GraceError::Api(error) => error.remedy(),
        }
    }
}

#[derive(Deserialize)]
struct Listed {
    items: Option<Vec<LeanPod>>,
}

/// At most [`MOST`] pods.
///
/// # Errors
/// No access to the API server, or no answer.
pub async fn graces(node: Option<&str>, access: &Access) -> Result<Vec<PodGrace>, GraceError> {
    let node = node_name(node)?;
    let client = connect(access).await?;
    let fields = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
    let params = ListParams::default().fields(&fields).limit(MOST);
    let purpose = Action::Pods.purpose();
    let request = Request::new(Pod::url_path(&(), None)).list(&params);
    let request = request.map_err(|error| ApiError::of(&purpose, &kube::Error::BuildRequest(error)))?;
    let list = timeout(TIMEOUT, client.request::<Listed>(request)).await;
    let list = list
        .map_err(|_| ApiError::timeout(&purpose, TIMEOUT))?
        .map_err(|error| ApiError::of(&purpose, &error))?;
    Ok(list.items.iter().flatten().map(|pod| of_pod(&pod.0)).collect())
}

fn of_pod(pod: &Pod) -> PodGrace {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let spec = pod.spec.as_ref();
    // The API server fills in 30 s.
    let grace = spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
    PodGrace {
        name: bounded(&format!("{namespace}/{name}"), 512),
        priority: spec.and_then(|spec| spec.priority).unwrap_or(0),
        grace: Duration::from_secs(u64::try_from(grace).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kubelet_counts_with() {
        let LeanPod(pod) = serde_json::from_str(
            r#"{"metadata":{"namespace":"kube-system","name":"dns-1"},"spec":{"containers":[],"priority":2000001000,"terminationGracePeriodSeconds":45}}"#,
        )
        .unwrap();
        let dns = PodGrace {
            name: "kube-system/dns-1".to_owned(),
            priority: 2_000_001_000,
            grace: Duration::from_secs(45),
        };
        assert_eq!(of_pod(&pod), dns);
        let plain = of_pod(&Pod::default());
        assert_eq!((plain.priority, plain.grace), (0, Duration::from_secs(30)));
    }
}
