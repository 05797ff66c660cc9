//! `Epitaph`, the custom resource: what a pod's termination was, as anybody who may read the pod's namespace reads it with kubectl.
//!
//! The resource has one writer, the agent of the node, and is written at most once when the pod has terminated, and at most once a
//! minute while the pod lives on and its containers restart. Every field of [`EpitaphReport`] is plain text or a number, and
//! none is an enumeration: an API server with an older schema drops a field that it does not know, and never refuses a value.
//!
//! `deploy/helm/epitaph/files/crds/epitaphs.yaml` is the schema, written from these types.

mod fit;
mod label;
mod make;
mod node;
mod observed;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use fit::MOST_BYTES;
pub use label::value as label_value;
pub use make::of;
pub use node::{LOSS, NODE_KIND, NODE_PLURAL, NodeEpitaph, NodeEpitaphReport, SHUTDOWN};
pub use observed::{EpitaphEndpoint, EpitaphLoss, EpitaphObserved, EpitaphReplacement, Observed};

pub const GROUP: &str = "epitaph.dev";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "epitaph.dev/v1alpha1";
pub const KIND: &str = "Epitaph";
pub const PLURAL: &str = "epitaphs";

/// Most container terminations in [`EpitaphReport::containers`].
pub const TERMINATIONS: usize = 10;

pub const LABEL_NODE: &str = "epitaph.dev/node";
pub const LABEL_UNCLEAN: &str = "epitaph.dev/unclean";
pub const LABEL_VERDICT: &str = "epitaph.dev/verdict";
pub const LABEL_WORKLOAD: &str = "epitaph.dev/workload";
pub const LABEL_WORKLOAD_KIND: &str = "epitaph.dev/workload-kind";
pub const LABEL_REVISION: &str = "epitaph.dev/revision";

/// One object, with its place in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epitaph {
    pub namespace: String,
    pub report: EpitaphReport,
}

/// What terminated.
pub const POD: &str = "Pod";
/// What terminated, of a pod that lives on.
pub const CONTAINER: &str = "Container";

/// How the pod, or the last of its containers that terminated, ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphReport {
    /// What terminated: `Pod`, or `Container` of a pod that lives on.
    pub terminated: String,
    /// The pod.
    pub pod: EpitaphPod,
    /// The pod's controller at the top of its owners.
    pub owner: Option<EpitaphOwner>,
    /// The node of the pod, whose agent wrote this.
    pub node: String,
    /// The container that the verdict is about.
    pub container: Option<String>,
    /// The verdict in one word, such as `clean` or `ignored-stop-signal`: `epitaph explain` and docs/verdicts.md have each.
    pub verdict: String,
    /// Whether the termination was unclean.
    pub unclean: bool,
    /// Why it terminated, such as `deleted` or `oom`.
    pub cause: String,
    /// How the main process exited, such as `clean` or `killed-after-grace`.
    pub exit: String,
    /// What clients observed, such as `quiet`, `refused` or `unknown`.
    pub traffic: String,
    /// What happened, in one sentence with the measured times.
    pub sentence: String,
    /// What to change.
    pub remedy: Option<String>,
    /// From the deletion request, else the first evidence, to the exit of the last container.
    pub took: String,
    /// When each step happened, by the node's clock.
    pub times: EpitaphTimes,
    /// The stop signal, such as `SIGTERM`.
    pub stop_signal: Option<String>,
    /// The grace period in whole seconds. Of a pod: that of its first deletion request. Of one container: the one that applied to this stop, such as that
    /// of its liveness probe.
    pub grace_seconds: Option<u64>,
    /// `terminationGracePeriodSeconds` of the pod, where it is known: a deletion may ask for another grace period.
    pub spec_grace_seconds: Option<u64>,
    /// The exit code of the main process.
    pub exit_code: Option<i32>,
    /// The signal that terminated the main process, such as `SIGKILL`.
    pub exit_signal: Option<String>,
    /// What kubectl shows of a container's exit, such as `OOMKilled`, where the kernel recorded something else: the sentence has both.
    pub kubectl_shows: Option<String>,
    /// Connections of clients, from the deletion request or the stop signal on; absent where sockets were not observed.
    pub connections: Option<EpitaphConnections>,
    /// The trace of the termination.
    pub trace_id: String,
    /// Evidence that is missing or was lost.
    pub gaps: Vec<String>,
    /// Settings that were measured to be wrong or tight.
    pub advice: Vec<EpitaphAdvice>,
    /// The pod's last ten container terminations, the latest last; fewer where the whole would be larger than 4 KiB.
    pub containers: Vec<EpitaphContainer>,
}

/// A pod by its name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphPod {
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
}

/// A workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphOwner {
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Name of the workload.
    pub name: String,
    /// UID of the workload, where known.
    pub uid: Option<String>,
    /// The pod's label `pod-template-hash` or `controller-revision-hash`.
    pub revision: Option<String>,
}

/// Times, in RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphTimes {
    /// The earliest time of the deletion request.
    pub requested: Option<String>,
    /// The first stop signal to a main process.
    pub stop_signal: Option<String>,
    /// The first SIGKILL to a main process.
    pub killed: Option<String>,
    /// The exit of the last container.
    pub exited: String,
}

/// Numbers of connections of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphConnections {
    /// Connections that were refused, reset or cut; absent where none was observed and some may have been missed.
    pub lost: Option<u64>,
    /// True: further ones may have been missed, because the sockets of a container were not observed, or only some of them, or clients were still refused when
    /// counting stopped. The numbers are the least.
    pub at_least: Option<bool>,
    /// Refused: no socket was listening any more.
    pub refused: u64,
    /// Refused, by peers that had not connected before: new clients, or a scan. Not in `lost`.
    pub refused_new_peers: u64,
    /// Reset by the server's side.
    pub reset: u64,
    /// Closed while a request or an answer was under way.
    pub cut: u64,
    /// Closed with the exit; whether a request or an answer was under way is not known.
    pub undecided: u64,
    /// Rejected on the client's node, before they reached the pod.
    pub rejected: u64,
    /// Accepted.
    pub accepted: u64,
}

/// A setting that was measured to be wrong or tight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphAdvice {
    /// Which setting, and in which direction, such as `pre-stop-sleep-longer` or `grace-longer`.
    pub kind: String,
    /// Name of the container; absent for a setting of the pod.
    pub container: Option<String>,
    /// The advised value, seconds; absent where the measurement gives no number.
    pub seconds: Option<u64>,
}

/// One container's termination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphContainer {
    /// Name of the container.
    pub name: String,
    /// The first characters of the container's id.
    pub id: String,
    /// Kind of the container: `main`, `init`, `sidecar` or `ephemeral`.
    pub kind: Option<String>,
    /// The preStop hook, such as `sleep 5`, `httpGet` or `exec /bin/sleep`.
    pub pre_stop: Option<String>,
    /// The verdict in one word.
    pub verdict: String,
    /// Why it terminated.
    pub cause: String,
    /// The first stop signal to the main process.
    pub stop_signal: Option<String>,
    /// The first SIGKILL to the main process.
    pub killed: Option<String>,
    /// When the main process exited.
    pub exited: String,
    /// The exit code of the main process.
    pub exit_code: Option<i32>,
    /// The signal that terminated the main process.
    pub exit_signal: Option<String>,
    /// Lost connections, as `lost` of the connections above.
    pub lost: Option<u64>,
}
