//! The Kubernetes API on this node's pods: selected by node name, so that the cost does not grow with the cluster.
//!
//! An API server that is away, slow or refuses never stops the agent: its state is an input like any other, and missed changes are
//! requested again.

pub(in crate::source) mod clock;
pub(in crate::source) mod convert;
mod counters;
pub(in crate::source) mod error;
mod events;
#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod fuzz;
mod grace;
mod known;
mod lookup;
mod namespaces;
pub(in crate::source) mod options;
pub(in crate::source) mod owners;
mod publisher;
pub(in crate::source) mod service;
mod watch;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::input::Input;
use epitaph_core::pod::PodIdentity;
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::chain;
use crate::source::in_cluster;

pub use counters::{PodsCounters, PodsDropReason};
pub use error::{NEEDS_ACCESS, NO_ACCESS, PodsError};
pub use grace::{GraceError, PodGrace, graces};
pub use options::Allowed;

use events::{EventLookups, EventQueue};
use known::Known;
use namespaces::Namespaces;
use owners::Owners;
use publisher::Publisher;

/// Most inputs that wait for the loop: whoever creates pods can make each a quarter of a MiB. A full queue makes the watch wait.
const QUEUE: usize = 64;

const CONNECT: Duration = Duration::from_secs(5);

/// The ServiceAccount's token in every pod.
pub const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// How the API server is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// By the ServiceAccount's files and the environment of a pod.
    InCluster,
    Kubeconfig(PathBuf),
    /// By `KUBECONFIG`, else `~/.kube/config`, as kubectl.
    Kubectl,
}

/// This node's pods, as inputs. A drop ends the requests.
pub struct PodSource {
    pub inputs: mpsc::Receiver<Input>,
    pub counters: Arc<PodsCounters>,
    /// This node's name in the API.
    pub node: String,
    client: Client,
    events: EventQueue,
    _tasks: JoinSet<()>,
}

impl PodSource {
    /// Starts the requests on the current Tokio runtime. An API server that does not answer is not an error.
    ///
    /// # Errors
    /// Settings that allow no request: no or a bad node name, a kubeconfig or a ServiceAccount's files that cannot be used.
    pub async fn start(node: Option<&str>, access: &Access, allowed: Allowed) -> Result<PodSource, PodsError> {
        let node = node_name(node)?;
        let client = connect(access).await?;
        let counters = Arc::new(PodsCounters::default());
        let (inputs, receiver) = mpsc::channel(QUEUE);
        let (events, queue) = EventQueue::new(counters.clone());
        let publisher = Publisher {
            inputs: inputs.clone(),
            owners: Owners::new(client.clone(), counters.clone()),
            namespaces: Namespaces::new(client.clone(), counters.clone()),
            allowed,
            node: node.clone(),
            counters: counters.clone(),
            known: Known::default(),
            state: None,
            logged: HashSet::new(),
            refused: HashSet::new(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(watch::run(client.clone(), publisher));
        tasks.spawn(EventLookups::new(client.clone(), counters.clone(), inputs.clone()).run(queue));
        tasks.spawn(clock::run(client.clone(), counters.clone(), inputs, Input::ApiClock));
        Ok(PodSource {
            inputs: receiver,
            counters,
            node,
            client,
            events,
            _tasks: tasks,
        })
    }

    /// Requests the Events of a pod. The returned inputs come before any other: a termination that follows waits for the answer.
    pub fn list_events(&self, pod: Arc<PodIdentity>) -> Vec<Input> {
        self.events.push(pod)
    }

    /// The same connection, for writes.
    pub fn client(&self) -> Client {
        self.client.clone()
    }
}

/// The name becomes part of a field selector.
fn node_name(node: Option<&str>) -> Result<String, PodsError> {
    let node = node.filter(|node| !node.is_empty()).ok_or(PodsError::NoNodeName)?;
    let is_name = node.len() <= 253
        && node
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.');
    if !is_name {
        return Err(PodsError::NodeName(crate::source::bounded(node, 253)));
    }
    Ok(node.to_owned())
}

/// A client of the API server, which need not answer yet.
///
/// # Errors
/// A kubeconfig or a ServiceAccount's files that cannot be used.
pub async fn connect(access: &Access) -> Result<Client, PodsError> {
    match access {
        Access::InCluster => {
            let mut config = kube::Config::incluster().map_err(|e| PodsError::NoCluster(chain(&e)))?;
            config.connect_timeout = Some(CONNECT);
            in_cluster::client(&config).map_err(|e| PodsError::Client(chain(&e)))
        }
        Access::Kubeconfig(file) => by_kubeconfig(Some(file)).await,
        Access::Kubectl => by_kubeconfig(None).await,
    }
}

/// None: as kubectl finds it.
#[cfg(feature = "kubeconfig")]
async fn by_kubeconfig(file: Option<&Path>) -> Result<Client, PodsError> {
    use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

    let options = KubeConfigOptions::default();
    let mut config = match file {
        Some(file) => {
            let wrong = |error: KubeconfigError| PodsError::Kubeconfig {
                file: file.to_owned(),
                problem: chain(&error),
            };
            let kubeconfig = Kubeconfig::read_from(file).map_err(wrong)?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(wrong)?
        }
        None => kube::Config::from_kubeconfig(&options)
            .await
            .map_err(|e| PodsError::NoCluster(chain(&e)))?,
    };
    config.connect_timeout = Some(CONNECT);
    // Every request here has its own timeout and its own retries.
    config.default_retry = false;
    Client::try_from(config).map_err(|e| PodsError::Client(chain(&e)))
}

#[cfg(not(feature = "kubeconfig"))]
async fn by_kubeconfig(_: Option<&Path>) -> Result<Client, PodsError> {
    Err(PodsError::WithoutKubeconfig)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program for pods; the one of the package reads the file.
    #[tokio::test]
    async fn a_kubeconfig_is_for_the_program_of_the_package() {
        let error = connect(&Access::Kubeconfig("/dev/null".into())).await.err().unwrap();
        let shown = crate::error::lines(&error);
        let expected = match cfg!(feature = "kubeconfig") {
            true => "cannot read kubeconfig /dev/null: ",
            false => "this program cannot use a kubeconfig: ",
        };
        assert!(shown.starts_with(expected) && shown.contains("\nremedy: "), "{shown}");
    }

    #[test]
    fn bad_node_names_are_refused() {
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
