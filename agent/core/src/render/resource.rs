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

/// How the pod terminated; if the pod lives on, how the container that terminated last did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphReport {
    /// What terminated: `Pod`, or `Container` if one container terminated and its pod lives on.
    pub terminated: String,
    /// The pod that terminated, or whose container terminated.
    pub pod: EpitaphPod,
    /// The pod's topmost controller, such as its Deployment.
    pub owner: Option<EpitaphOwner>,
    /// The node of the pod. The agent of this node wrote the report.
    pub node: String,
    /// The container that the verdict is about.
    pub container: Option<String>,
    /// The verdict in one word, such as `clean` or `ignored-stop-signal`. `epitaph explain VERDICT` explains it.
    pub verdict: String,
    /// Whether the termination was unclean.
    pub unclean: bool,
    /// Why the pod or container terminated, such as `deleted` or `oom`.
    pub cause: String,
    /// How the main process exited, such as `clean` or `killed-after-grace`.
    pub exit: String,
    /// What clients observed, such as `quiet`, `refused` or `unknown`.
    pub traffic: String,
    /// What happened, in one sentence with the measured times.
    pub sentence: String,
    /// What to change so that it does not happen again.
    pub remedy: Option<String>,
    /// Duration from the deletion request to the exit of the last container; without a deletion request, from the first evidence.
    pub took: String,
    /// When each step happened, by the node's clock.
    pub times: EpitaphTimes,
    /// The stop signal that was sent, such as `SIGTERM`.
    pub stop_signal: Option<String>,
    /// The grace period in whole seconds. For a pod: the grace period of its first deletion request. For one container: the grace period
    /// that applied to this stop, such as the one of its liveness probe.
    pub grace_seconds: Option<u64>,
    /// `terminationGracePeriodSeconds` of the pod, if known. A deletion can ask for another grace period.
    pub spec_grace_seconds: Option<u64>,
    /// The exit code of the main process.
    pub exit_code: Option<i32>,
    /// The signal that terminated the main process, such as `SIGKILL`.
    pub exit_signal: Option<String>,
    /// What kubectl shows of a container's exit, such as `OOMKilled`. Present only if the kernel recorded another exit: see `sentence`.
    pub kubectl_shows: Option<String>,
    /// Client connections since the deletion request or the stop signal. Absent if the sockets were not observed.
    pub connections: Option<EpitaphConnections>,
    /// The id of the termination's trace.
    pub trace_id: String,
    /// Which evidence is missing or was lost.
    pub gaps: Vec<String>,
    /// Settings that are wrong or hardly sufficient, as measurements show.
    pub advice: Vec<EpitaphAdvice>,
    /// The last ten terminations of the pod's containers, the latest last. Fewer if the report would be larger than 4 KiB.
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
    /// UID of the workload, if known.
    pub uid: Option<String>,
    /// The pod's label `pod-template-hash` or `controller-revision-hash`.
    pub revision: Option<String>,
}

/// Times, in RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphTimes {
    /// The earliest possible time of the deletion request.
    pub requested: Option<String>,
    /// When the first stop signal to a main process was sent.
    pub stop_signal: Option<String>,
    /// When the first SIGKILL to a main process was sent.
    pub killed: Option<String>,
    /// When the last container exited.
    pub exited: String,
}

/// Numbers of client connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphConnections {
    /// Connections that were refused, reset or cut. Absent if no such connection was observed but some may have been missed.
    pub lost: Option<u64>,
    /// True: the real numbers may be higher. Some sockets of a container were not observed, or clients were still refused when counting
    /// stopped.
    pub at_least: Option<bool>,
    /// Connections that were refused, because no socket was listening any more.
    pub refused: u64,
    /// Refused connections of peers that had not connected before: new clients, or a port scan. Not counted in `lost`.
    pub refused_new_peers: u64,
    /// Connections that the server's side reset.
    pub reset: u64,
    /// Connections that were closed at the exit while a request had no answer yet.
    pub cut: u64,
    /// Connections that were closed at the exit; it is not known whether a request or an answer was under way.
    pub undecided: u64,
    /// Connections from this node that the network rejected before they reached the pod.
    pub rejected: u64,
    /// Connections that were accepted.
    pub accepted: u64,
}

/// A setting that is wrong or hardly sufficient, as measurements show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphAdvice {
    /// Which setting, and whether it should be longer or shorter, such as `pre-stop-sleep-longer` or `grace-longer`.
    pub kind: String,
    /// Name of the container; absent if the setting belongs to the pod.
    pub container: Option<String>,
    /// The advised value in seconds; absent if the measurement gives no number.
    pub seconds: Option<u64>,
}

/// The termination of one container.
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
    /// Why the container terminated.
    pub cause: String,
    /// When the first stop signal to the main process was sent.
    pub stop_signal: Option<String>,
    /// When the first SIGKILL to the main process was sent.
    pub killed: Option<String>,
    /// When the main process exited.
    pub exited: String,
    /// The exit code of the main process.
    pub exit_code: Option<i32>,
    /// The signal that terminated the main process.
    pub exit_signal: Option<String>,
    /// Client connections of this container that were refused, reset or cut.
    pub lost: Option<u64>,
}
