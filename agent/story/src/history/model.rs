//! The objects `termination`, `pod-termination`, `node-shutdown` and `node-down`, as far as people are shown them. docs/json.md describes each field.
//!
//! Every field may be absent: an older epitaph did not have it, or a newer one has another.

use serde::Deserialize;

use super::{At, Delay, Lock, Phase, PodInShutdown, Signs, Text, lists};

/// A `termination`, a `pod-termination` with its `containers`, or what happened to the node: a `node-shutdown` or `node-down`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Report {
    pub r#type: Text,
    pub begin: Option<At>,
    pub end: Option<At>,
    pub subject: Option<Subject>,
    pub container: Option<Container>,
    pub cgroup: Option<Text>,
    pub trace_id: Text,
    pub kubernetes: Option<Kubernetes>,
    pub verdict: Text,
    pub cause: Text,
    pub exit: Text,
    pub traffic: Text,
    pub unclean: bool,
    pub severity: Text,
    pub sentence: Text,
    pub remedy: Option<Text>,
    pub main: Option<Main>,
    pub stop: Option<Stop>,
    pub kill: Option<Kill>,
    pub status: Option<Status>,
    pub disagreement: Option<Disagreement>,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub oom: Vec<Oom>,
    pub connections: Connections,
    pub gaps: Gaps,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub advice: Vec<Advice>,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub evidence: Vec<Evidence>,

    // Only of a pod.
    pub pod: Option<Pod>,
    pub asked: Option<Asked>,
    pub request: Option<Request>,
    pub gone: Option<Gone>,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub unseen: Vec<Unseen>,
    #[serde(deserialize_with = "lists::containers")]
    pub containers: Vec<Report>,

    // Only of the node.
    pub node: Text,
    pub kind: Text,
    pub ordinal: u64,
    pub signs: Signs,
    pub delay: Option<Delay>,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub locks: Vec<Lock>,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub phases: Vec<Phase>,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub pods: Vec<PodInShutdown>,
    pub down_ms: f64,

    /// Entries of lists that are too long to be kept.
    #[serde(skip)]
    pub left_out: u64,

    /// Only of `observing`: the begin of the observation.
    pub(super) since: Option<At>,
}

impl Report {
    pub const TERMINATION: &str = "termination";
    pub const POD_TERMINATION: &str = "pod-termination";
    pub const NODE_SHUTDOWN: &str = "node-shutdown";
    pub const NODE_DOWN: &str = "node-down";
    pub const TYPES: [&str; 4] = [
        Report::TERMINATION,
        Report::POD_TERMINATION,
        Report::NODE_SHUTDOWN,
        Report::NODE_DOWN,
    ];

    /// About the node itself.
    pub fn is_of_node(&self) -> bool {
        [Report::NODE_SHUTDOWN, Report::NODE_DOWN].contains(&&*self.r#type)
    }

    /// The time from a shutdown to the next boot.
    pub fn is_down(&self) -> bool {
        *self.r#type == *Report::NODE_DOWN
    }

    /// The evidence was not sufficient for a verdict: not unclean, and not to be missed.
    pub fn is_unknown(&self) -> bool {
        *self.verdict == *"unknown"
    }

    /// The pod, of a pod or of a container in one.
    pub fn pod(&self) -> Option<&Pod> {
        self.pod
            .as_ref()
            .or_else(|| self.kubernetes.as_ref().map(|context| &context.pod))
    }

    /// What kubectl shows of the exit, where the kernel recorded something else; of a pod the first of its containers.
    pub fn disagreement(&self) -> Option<&Disagreement> {
        let of_containers = || self.containers.iter().find_map(|of| of.disagreement.as_ref());
        self.disagreement.as_ref().or_else(of_containers)
    }

    /// The deletion request, of a pod or of a container in one.
    pub fn request(&self) -> Option<&Request> {
        self.request
            .as_ref()
            .or_else(|| self.kubernetes.as_ref().and_then(|context| context.request.as_ref()))
    }

    /// The name that people gave a container outside of Kubernetes. None for a container of a known pod: there the pod's spec names it.
    pub fn container_name(&self) -> Option<&Text> {
        self.bare_container()?.name.as_ref().filter(|name| !name.is_empty())
    }

    /// In a pod the spec's names, such as `app`, are those of many workloads.
    pub fn is_in_pod(&self) -> bool {
        matches!(&self.subject, Some(Subject::Container { pod_uid: Some(_), .. }))
    }

    /// The image of a container outside of Kubernetes.
    pub fn container_image(&self) -> Option<&Text> {
        self.bare_container()?.image.as_ref().filter(|image| !image.is_empty())
    }

    fn bare_container(&self) -> Option<&Container> {
        let is_bare = matches!(self.subject, Some(Subject::Container { .. })) && self.pod().is_none();
        self.container.as_ref().filter(|_| is_bare)
    }
}

/// A container as the files of its runtime describe it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    pub name: Option<Text>,
    pub image: Option<Text>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Subject {
    Container {
        #[serde(default)]
        id: Text,
        #[serde(default)]
        runtime: Text,
        #[serde(default)]
        pod_uid: Option<Text>,
    },
    Unit {
        #[serde(default)]
        name: Text,
    },
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Kubernetes {
    pub pod: Pod,
    pub container: Option<Text>,
    pub kind: Option<Text>,
    pub image: Option<Text>,
    pub restarts: u64,
    pub asked: Option<Asked>,
    pub request: Option<Request>,
    pub grace_ms: Option<f64>,
    pub pre_stop: Option<PreStop>,
    pub mains_ended: Option<At>,
    pub reported: Option<Reported>,
    pub incomplete: Option<Text>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub namespace: Text,
    pub name: Text,
    pub uid: Text,
    pub node: Text,
    pub workload: Workload,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub struct Workload {
    pub kind: Text,
    pub name: Text,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    pub cause: Text,
    pub evidence: Text,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Request {
    pub earliest: Option<At>,
    pub latest: Option<At>,
    pub grace_ms: Option<f64>,
    /// Absent in lines of older agents.
    pub spec_grace_ms: Option<f64>,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub shortened: Vec<Shortened>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Shortened {
    pub time: Option<At>,
    pub grace_ms: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PreStop {
    pub hook: Text,
    pub program: Option<Text>,
    pub port: Option<u16>,
    pub sleep_s: Option<u64>,
    pub begin: Option<At>,
    pub end: Option<At>,
    pub code: Option<i64>,
    pub signal: Option<Text>,
    pub failed: Option<Text>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Disagreement {
    pub status: Text,
    pub kernel: Text,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Reported {
    pub exit_code: i64,
    pub reason: Option<Text>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Gone {
    pub time: Option<At>,
    pub watched: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Unseen {
    pub container: Text,
    pub reported: Option<Reported>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Main {
    pub pid: u32,
    pub is_ns_init: bool,
    pub comm: Text,
    pub start: Option<At>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stop {
    pub time: Option<At>,
    pub signal: Text,
    pub sender: Sender,
    pub result: Text,
    pub disposition: Text,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub state: Vec<Text>,
    pub handler_entered: Option<At>,
    pub repeated: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Kill {
    pub time: Option<At>,
    pub sender: Sender,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Sender {
    pub pid: u32,
    pub comm: Text,
    pub role: Text,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub time: Option<At>,
    pub code: Option<i64>,
    pub signal: Option<Text>,
    pub core_dumped: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Oom {
    pub time: Option<At>,
    pub pid: u32,
    pub comm: Text,
    pub is_main: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Connections {
    pub observed: bool,
    pub accepted: u64,
    pub accepted_first: Option<At>,
    pub accepted_last: Option<At>,
    pub refused: u64,
    pub refused_first: Option<At>,
    pub refused_last: Option<At>,
    pub reset: u64,
    pub reset_first: Option<At>,
    pub reset_last: Option<At>,
    pub cut: u64,
    pub cut_first: Option<At>,
    pub cut_last: Option<At>,
    pub cut_unanswered: u64,
    pub rejected: u64,
    pub rejected_first: Option<At>,
    pub rejected_last: Option<At>,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub listeners_closed: Vec<Listener>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Listener {
    pub time: Option<At>,
    pub local: Text,
    pub by_exit: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Unobserved {
    pub begin: Option<At>,
    pub end: Option<At>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Gaps {
    #[serde(deserialize_with = "lists::numbers")]
    pub lost: std::collections::BTreeMap<Text, u64>,
    pub over_cap: u64,
    pub late_start: bool,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub unobserved: Vec<Unobserved>,
    #[serde(deserialize_with = "lists::list::<_, _, 1024>")]
    pub inactive_probes: Vec<Text>,
    pub clock_step_ms: Option<i64>,
    // Only of the node.
    pub bus: Option<Text>,
    pub exits: bool,
    pub observation: bool,
    pub pods: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Advice {
    pub kind: Text,
    pub seconds: Option<u64>,
    pub text: Text,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Evidence {
    pub source: Text,
    pub time: Option<At>,
    pub text: Text,
}
