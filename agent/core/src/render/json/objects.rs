//! The objects: order of fields is the order in the line. `docs/json.md` describes each.

use std::net::SocketAddr;

use serde::Serialize;

use super::context::ContextObject;
use super::node::ByShutdownObject;
use super::parts::{AdviceObject, EvidenceObject};
use crate::text::escape;
use crate::time::Boot;
use crate::verdict::{Cause, Disagreement, Exit, Severity, TrafficAxis};

#[derive(Clone, Debug, Serialize)]
pub struct TerminationObject {
    pub(super) r#type: &'static str,
    pub(super) time: String,
    pub(super) end: String,
    pub(super) end_boot_ns: Boot,
    pub(super) begin: String,
    pub(super) begin_boot_ns: Boot,
    pub(super) subject: SubjectObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<ContainerObject>,
    pub(super) cgroup: Option<String>,
    pub(super) cgroup_id: u64,
    pub(super) boot_id: String,
    pub(super) trace_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kubernetes: Option<ContextObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_shutdown: Option<ByShutdownObject>,
    pub(super) verdict: &'static str,
    pub(super) cause: Cause,
    pub(super) exit: Exit,
    pub(super) traffic: TrafficAxis,
    pub(super) unclean: bool,
    pub(super) severity: Severity,
    pub(super) sentence: String,
    pub(super) remedy: Option<String>,
    pub(super) main: Option<MainObject>,
    pub(super) stop: Option<StopObject>,
    pub(super) kill: Option<KillObject>,
    pub(super) status: Option<StatusObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disagreement: Option<DisagreementObject>,
    pub(super) oom: Vec<OomObject>,
    pub(super) other_exits: u64,
    pub(super) connections: ConnectionsObject,
    pub(super) gaps: GapsObject,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) advice: Vec<AdviceObject>,
    pub(super) evidence: Vec<EvidenceObject>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct DisagreementObject {
    said: &'static str,
    was: &'static str,
    status: String,
    kernel: String,
}

impl DisagreementObject {
    pub(super) fn of(of: &Disagreement) -> DisagreementObject {
        DisagreementObject {
            said: of.said.name(),
            was: of.was.name(),
            status: escape(&of.status),
            kernel: escape(&of.kernel),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct EarlyObject {
    pub(super) r#type: &'static str,
    pub(super) time: String,
    pub(super) boot_ns: Boot,
    pub(super) subject: SubjectObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<ContainerObject>,
    pub(super) cgroup_id: u64,
    pub(super) trace_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kubernetes: Option<ContextObject>,
    pub(super) signal: String,
    pub(super) sender: ActorObject,
    pub(super) disposition: &'static str,
    pub(super) main: Option<MainObject>,
    pub(super) grace_left_ms: Option<f64>,
    pub(super) sentence: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ChildOomObject {
    pub(super) r#type: &'static str,
    pub(super) time: String,
    pub(super) boot_ns: Boot,
    pub(super) subject: SubjectObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<ContainerObject>,
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) role: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct LostObject {
    pub(super) r#type: &'static str,
    pub(super) kind: &'static str,
    pub(super) count: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct ObservingObject {
    pub(super) r#type: &'static str,
    pub(super) since: String,
    pub(super) since_boot_ns: Boot,
    pub(super) boot_id: String,
    pub(super) host: String,
    pub(super) kernel: String,
    pub(super) cgroups: &'static str,
    pub(super) probes: Vec<ProbeObject>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ProbeObject {
    pub(super) name: String,
    pub(super) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum SubjectObject {
    Container {
        id: String,
        runtime: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        pod_uid: Option<String>,
    },
    Unit {
        name: String,
    },
}

/// A container as the files of its runtime describe it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ContainerObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stop_signal: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) sandbox: bool,
}

/// Where a process runs.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum PlaceObject {
    Subject(SubjectObject),
    Other {
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'static str>,
    },
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ActorObject {
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) parent_pid: u32,
    pub(super) parent_comm: String,
    pub(super) role: &'static str,
    pub(super) place: PlaceObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<ActorPodObject>,
}

/// By the name of the place's container.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ActorPodObject {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) container: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct MainObject {
    pub(super) pid: u32,
    pub(super) ns_pid: u32,
    pub(super) is_ns_init: bool,
    pub(super) comm: String,
    pub(super) start: String,
    pub(super) start_boot_ns: Boot,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct StopObject {
    pub(super) time: String,
    pub(super) boot_ns: Boot,
    pub(super) signal: String,
    pub(super) sender: ActorObject,
    pub(super) result: &'static str,
    pub(super) disposition: &'static str,
    pub(super) state: Vec<&'static str>,
    pub(super) handler_entered: Option<String>,
    pub(super) handler_entered_boot_ns: Option<Boot>,
    pub(super) repeated: u32,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct KillObject {
    pub(super) time: String,
    pub(super) boot_ns: Boot,
    pub(super) sender: ActorObject,
    pub(super) cgroup_kill: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct StatusObject {
    pub(super) time: String,
    pub(super) boot_ns: Boot,
    pub(super) code: Option<u8>,
    pub(super) signal: Option<String>,
    pub(super) core_dumped: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct OomObject {
    pub(super) time: String,
    pub(super) boot_ns: Boot,
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) is_main: bool,
    pub(super) role: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ConnectionsObject {
    pub(super) observed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) other_sockets: bool,
    pub(super) since: Option<String>,
    pub(super) accepted: u64,
    pub(super) accepted_first: Option<String>,
    pub(super) accepted_last: Option<String>,
    pub(super) refused: u64,
    pub(super) refused_first: Option<String>,
    pub(super) refused_last: Option<String>,
    pub(super) refused_known_by: Option<&'static str>,
    pub(super) refused_new_peers: u64,
    pub(super) reset: u64,
    pub(super) reset_first: Option<String>,
    pub(super) reset_last: Option<String>,
    pub(super) reset_queued: u64,
    pub(super) cut: u64,
    pub(super) cut_first: Option<String>,
    pub(super) cut_last: Option<String>,
    pub(super) cut_unanswered: u64,
    pub(super) idle_closed: u64,
    pub(super) undecided: u64,
    pub(super) rejected: u64,
    pub(super) rejected_first: Option<String>,
    pub(super) rejected_last: Option<String>,
    pub(super) kubelet: Option<KubeletObject>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) peers: Vec<PeerObject>,
    pub(super) peers_more: u64,
    pub(super) listeners_closed: Vec<ListenerObject>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct PeerObject {
    pub(super) address: std::net::IpAddr,
    pub(super) place: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<String>,
    pub(super) had_connected: bool,
    pub(super) refused: u64,
    pub(super) reset: u64,
    pub(super) cut: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct KubeletObject {
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) broken: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ListenerObject {
    pub(super) time: String,
    pub(super) boot_ns: Boot,
    pub(super) local: SocketAddr,
    pub(super) by_exit: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct GapsObject {
    pub(super) lost: serde_json::Map<String, serde_json::Value>,
    pub(super) over_cap: u64,
    pub(super) late_start: bool,
    pub(super) unobserved: Vec<UnobservedObject>,
    pub(super) inactive_probes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clock_step_ms: Option<i64>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct UnobservedObject {
    pub(super) begin: String,
    pub(super) begin_boot_ns: Boot,
    pub(super) end: String,
    pub(super) end_boot_ns: Boot,
}
