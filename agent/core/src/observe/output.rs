//! What the observer reports.

use std::sync::Arc;
use std::time::Duration;

use crate::pod::{ApiClock, PodIdentity};

use super::fact::Ask;
use super::limits::ObserverDropReason;
use super::moment::Moment;
use super::nodes::{DuplicateRun, LossAlarm, NodeLost, NodePhase, PodLost, ShuttingDown, VolumeDetach};

/// The removal of one pod from one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRemoval {
    pub pod: Arc<PodIdentity>,
    /// Name of the Service, in the pod's namespace.
    pub service: Arc<str>,
    /// `http/TCP:8080`, or without a name `TCP:8080`.
    pub ports: Arc<[String]>,
    /// `IPv4`, `IPv6`: of the slices with the pod.
    pub address_types: Vec<Arc<str>>,
    /// The pod was first seen being deleted, finished or gone.
    pub ended: Moment,
    /// First terminating; if never terminating, first not ready, if close to the pod's termination; otherwise gone.
    pub begin: Moment,
    /// In no slice of the Service any more.
    pub end: Moment,
    pub terminating: Option<Moment>,
    /// First not ready.
    pub not_ready: Option<Moment>,
    /// First not serving.
    pub not_serving: Option<Moment>,
    /// Since when, between begin and end, no endpoint of the Service was ready and kube-proxy used serving, terminating endpoints.
    pub all_terminating: Option<Moment>,
    /// The endpoint was ready and terminating at the same time, which only `publishNotReadyAddresses` causes.
    pub publish_not_ready: bool,
    /// As known at the time of the report.
    pub api_clock: Option<ApiClock>,
    /// The pod's node was lost: the root is the observer's own.
    pub is_of_lost_node: bool,
}

impl EndpointRemoval {
    /// When the endpoint stopped being ready, or was gone.
    pub fn ready_until(&self) -> Moment {
        self.not_ready.unwrap_or(self.end)
    }

    /// For how long the Service sent clients to a pod that was already being deleted, at least.
    pub fn ready_after_end(&self) -> Duration {
        match self.publish_not_ready {
            // The Service wants that.
            true => Duration::ZERO,
            false => self.ready_until().earliest().since(self.ended.at),
        }
    }
}

/// The pod that replaced a terminated pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The terminated pod.
    pub pod: Arc<PodIdentity>,
    /// The replacement, as it was when it became ready.
    pub by: Arc<PodIdentity>,
    pub rule: Rule,
    pub created: Moment,
    pub scheduled: Option<Moment>,
    /// The last of its volumes that were attached to the lost node is attached to its own.
    pub attached: Option<Moment>,
    pub ready: Option<Moment>,
    /// Ready; without that, the termination of the replacement or the end of our wait.
    pub end: Moment,
    /// As in [`EndpointRemoval::api_clock`].
    pub api_clock: Option<ApiClock>,
    /// The pod's node was lost: the root is the observer's own.
    pub is_of_lost_node: bool,
}

/// The rule that identified a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The next pod of the same ReplicaSet (or ReplicationController), first terminated, first replaced.
    NextOfReplicaSet,
    /// Same StatefulSet, same name.
    NameInStatefulSet,
    /// Same DaemonSet, same node.
    NodeOfDaemonSet,
    /// Same Job, same completion index.
    IndexInJob,
    /// The next pod of a Job that has one pod at a time.
    NextOfJob,
}

names! {
    Rule:
    NextOfReplicaSet => "next-of-replica-set",
    NameInStatefulSet => "name-in-stateful-set",
    NodeOfDaemonSet => "node-of-daemon-set",
    IndexInJob => "index-in-job",
    NextOfJob => "next-of-job",
}

/// The results of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Removal(Box<EndpointRemoval>),
    Replacement(Box<Replacement>),
    NodeLost(Box<NodeLost>),
    NodePhase(Box<NodePhase>),
    ShuttingDown(Box<ShuttingDown>),
    PodLost(Box<PodLost>),
    VolumeDetach(Box<VolumeDetach>),
    DuplicateRun(Box<DuplicateRun>),
    LossAlarm(Box<LossAlarm>),
    Ask(Ask),
    Dropped { reason: ObserverDropReason, count: u64 },
}

impl Output {
    /// One change.
    pub(super) const fn dropped(reason: ObserverDropReason) -> Output {
        Output::Dropped { reason, count: 1 }
    }

    /// The pod of the trace.
    pub fn pod_mut(&mut self) -> Option<&mut Arc<PodIdentity>> {
        match self {
            Output::Removal(removal) => Some(&mut removal.pod),
            Output::Replacement(replacement) => Some(&mut replacement.pod),
            Output::PodLost(lost) => Some(&mut lost.pod),
            Output::VolumeDetach(detach) => Some(&mut detach.pod),
            Output::DuplicateRun(duplicate) => Some(&mut duplicate.pod),
            Output::LossAlarm(alarm) => alarm.pod.as_mut(),
            Output::NodeLost(_) | Output::NodePhase(_) | Output::ShuttingDown(_) | Output::Ask(_) | Output::Dropped { .. } => {
                None
            }
        }
    }
}
