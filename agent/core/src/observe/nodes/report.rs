//! What is reported about lost nodes, and about the pods and volumes on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::verdict::LossVerdict;
use crate::ids::PodUid;
use crate::observe::{ApiTime, ClaimKey, Moment, NodeIdentity};
use crate::pod::PodIdentity;
use crate::shutdown::ShutdownKey;
use crate::time::Wall;

/// Which loss of which node: the trace's id is made of the node's UID and the time of the transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossKey {
    pub node: Arc<NodeIdentity>,
    /// `lastTransitionTime` of the condition `Ready`.
    pub transition: Wall,
}

impl LossKey {
    pub(super) fn of(node: &Arc<NodeIdentity>, transition: ApiTime) -> LossKey {
        LossKey {
            node: node.clone(),
            transition: transition.wall,
        }
    }
}

/// The root of a lost node's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLost {
    pub key: LossKey,
    pub begin: Moment,
    /// Every pod that the loss evicts is gone, or there is none, or the node is back, or its Node object is deleted: the first of
    /// these.
    pub end: Moment,
    pub ended_by: LossEnd,
    pub verdict: LossVerdict,
    /// Steps of the story within the span.
    pub steps: Vec<(Step, Moment)>,
    /// Reason and message of the condition `Ready`.
    pub reason: Box<str>,
    pub message: Box<str>,
    /// When the kubelet last renewed its Lease, on its own clock.
    pub renewed: Option<Wall>,
    pub agent: AgentAnswer,
    /// The provider confirmed that the machine was off.
    pub powered_off: bool,
    pub pods: LostPods,
    /// Of a loss that had begun before the observation: how long before. Its earlier steps are missing, or have times of the API.
    pub unwatched: Option<Duration>,
}

/// The pods of a lost node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPods {
    /// Those that were being deleted and whose termination the node could not complete.
    pub stuck: usize,
    /// Of these, pods that are gone.
    pub gone: usize,
    /// There was no room for further pods of the node: numbers and links lack them.
    pub has_dropped: bool,
    /// Their traces, at most [`LINKS`].
    pub links: Vec<Arc<PodIdentity>>,
}

/// Most pods that a node's root links to.
pub const LINKS: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossEnd {
    PodsGone,
    /// The loss evicts no pod.
    NoPods,
    Back,
    NodeDeleted,
}

names! {
    LossEnd:
    PodsGone => "pods-gone",
    NoPods => "no-pods",
    Back => "back",
    NodeDeleted => "node-deleted",
}

/// A step of a lost node's story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    NotReady,
    Unknown,
    /// The controller evicts.
    Evicting,
    FirstPodStuck,
    OutOfService,
    LastPodGone,
    NodeDeleted,
    Back,
}

names! {
    Step:
    NotReady => "node.not_ready",
    Unknown => "node.unknown",
    Evicting => "node.evicting",
    FirstPodStuck => "pods.first_stuck",
    OutOfService => "taint.out_of_service",
    LastPodGone => "pods.last_gone",
    NodeDeleted => "node.deleted",
    Back => "node.ready",
}

/// Whether the agent on the node answered `/healthz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentAnswer {
    /// No agent is known there, or it was not asked often enough yet.
    Unknown,
    Silent,
    Answered,
}

names! {
    AgentAnswer:
    Unknown => "unknown",
    Silent => "silent",
    Answered => "answered",
}

/// The API's part of a node's shutdown, in the shutdown's own trace: the kubelet reports that the node is not ready and why, until it is
/// silent, or the node is ready again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShuttingDown {
    /// Numbered by the node's agent.
    pub key: ShutdownKey,
    pub node: Arc<NodeIdentity>,
    /// `lastTransitionTime` of the condition `Ready`.
    pub transition: Wall,
    pub begin: Moment,
    pub end: Moment,
    /// Reason and message of that condition.
    pub reason: Box<str>,
    pub message: Box<str>,
    /// Services with endpoints on the node that were ready when, or after, the kubelet announced the shutdown.
    pub services: Vec<ReadyService>,
    /// There was no room for further endpoints.
    pub has_dropped: bool,
    /// This observer began so long after the announcement: endpoints that had stopped being ready by then are not in `services`.
    pub unwatched: Option<Duration>,
}

/// The endpoints of one Service on a node that shuts down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyService {
    pub namespace: Arc<str>,
    pub service: Arc<str>,
    /// The pods of the endpoints.
    pub pods: Vec<PodUid>,
    /// Of these, those that were ready at the end.
    pub still_ready: u64,
    /// When the last of the others stopped being ready.
    pub until: Option<Moment>,
}

/// `shop/web (2 endpoints)`, `shop/web (2 endpoints, 1 still ready)`.
impl std::fmt::Display for ReadyService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.pods.len();
        let s = if count == 1 { "" } else { "s" };
        write!(f, "{}/{} ({count} endpoint{s}", self.namespace, self.service)?;
        match self.still_ready {
            0 => write!(f, ")"),
            count => write!(f, ", {count} still ready)"),
        }
    }
}

/// A child of a lost node's root, exported when it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePhase {
    pub key: LossKey,
    pub kind: PhaseKind,
    pub begin: Moment,
    pub end: Moment,
    /// Of [`PhaseKind::Down`]: how the node came back.
    pub boot: Option<Return>,
    /// As in [`NodeLost::unwatched`]: pods that were gone before that are not in the story, and neither are their duplicate runs.
    pub unwatched: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseKind {
    /// Not ready, until the controller evicts.
    NotReady,
    /// The taint `out-of-service`, until it is removed.
    OutOfService,
    /// Not ready, until ready again.
    Down,
}

names! {
    /// Name of the span.
    PhaseKind:
    NotReady => "node.not_ready",
    OutOfService => "node.out_of_service",
    Down => "node.down",
}

/// How a node came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return {
    pub boot_id: Box<str>,
    pub how: Returned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The same boot: the machine was paused, or cut off.
    SameBoot,
    Rebooted,
    /// Another machine has the node's name and object: what the lost one does is not known.
    OtherMachine,
    /// A boot id is missing.
    Unknown,
}

names! {
    Returned:
    SameBoot => "same-boot",
    Rebooted => "rebooted",
    OtherMachine => "other-machine",
    Unknown => "unknown",
}

impl Returned {
    /// How the machine compares with the one before.
    pub(super) fn of(before: &NodeIdentity, now: &NodeIdentity) -> Returned {
        let is_known = |before: &str, now: &str| !before.is_empty() && !now.is_empty();
        let is_other =
            is_known(&before.system_uuid, &now.system_uuid) && !before.system_uuid.eq_ignore_ascii_case(&now.system_uuid);
        match (is_known(&before.boot_id, &now.boot_id), before.boot_id == now.boot_id) {
            (false, _) => Returned::Unknown,
            (true, true) => Returned::SameBoot,
            (true, false) if is_other => Returned::OtherMachine,
            (true, false) => Returned::Rebooted,
        }
    }
}

/// The observer's root of a pod whose node was lost, and the times in which something held the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLost {
    pub pod: Arc<PodIdentity>,
    pub loss: LossKey,
    /// The node was lost, or the deletion was requested: the first of these.
    pub begin: Moment,
    /// The pod's object is gone, or the observer stops.
    pub end: Moment,
    pub is_gone: bool,
    pub verdict: LossVerdict,
    pub requested: Option<Moment>,
    pub by_taint: bool,
    pub stuck: Vec<Stuck>,
    /// As in [`NodeLost::unwatched`]: of a pod that was being deleted before that, neither replacement nor duplicate run is reported.
    pub unwatched: Option<Duration>,
}

/// Something held a pod that was being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    pub by: Holder,
    /// Finalizers or claims, at most [`NAMED`].
    pub names: Vec<Box<str>>,
    pub begin: Moment,
    pub end: Moment,
}

/// Most finalizers, or claims, that are named.
pub const NAMED: usize = 8;

/// What holds a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// No kubelet confirms the termination.
    Node,
    /// The pod is terminated, and finalizers keep its object.
    Finalizer,
    /// The node is there, the pod's containers have terminated, and its kubelet does not finish unmounting its volumes; or a volume is
    /// still attached to a lost node, and the replacement cannot start.
    Volume,
    /// The node is there: the kubelet or the container runtime does not finish.
    Runtime,
}

names! {
    /// Name on spans and metrics.
    all Holder:
    Node => "node",
    Finalizer => "finalizer",
    Volume => "volume",
    Runtime => "runtime",
}

/// The time from a lost pod's end to the end of its volume's attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeDetach {
    pub pod: Arc<PodIdentity>,
    pub claim: ClaimKey,
    pub volume: Arc<str>,
    pub attachment: Arc<str>,
    pub attacher: Box<str>,
    pub begin: Moment,
    pub end: Moment,
    /// The detach was requested.
    pub requested: Option<Moment>,
    /// The driver's last error.
    pub error: Option<Box<str>>,
    /// If a replacement waited for it for long.
    pub verdict: Option<LossVerdict>,
}

/// A pod and its replacement ran at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateRun {
    pub pod: Arc<PodIdentity>,
    pub by: Arc<PodIdentity>,
    pub loss: LossKey,
    /// The replacement ran.
    pub begin: Moment,
    /// The node was ready again, and from then on its kubelet stops the old pod; or, before that, its kubelet reported that the pod's
    /// containers had terminated.
    pub end: Moment,
    pub verdict: LossVerdict,
}

/// The class of a remedy. A change of it is an alarm of its own: what was right before may do harm now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// The machine may run: make sure that it is off, then release its pods.
    MakeSure,
    /// The same of a machine that fell silent with many others: look for a common cause first.
    MakeSureOfMany,
    /// The machine runs.
    Repair,
    /// The provider reported the machine off: ask whether it still is, then release its pods.
    Release,
    /// The machine runs although its pods are being released: power it off, or withdraw the release.
    PowerOffOrUnfence,
    /// The machine runs although its pods were released: only its end ends them.
    PowerOff,
    /// The taint's removal, or nothing.
    Unfence,
}

impl Advice {
    /// Two pods may write the same volume, or are about to.
    pub(super) fn is_urgent(self) -> bool {
        matches!(self, Advice::PowerOffOrUnfence | Advice::PowerOff)
    }
}

/// What people should know at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossAlarm {
    pub node: Arc<NodeIdentity>,
    /// Of a StatefulSet; None: the alarm is about the node.
    pub pod: Option<Arc<PodIdentity>>,
    pub at: Moment,
    pub advice: Advice,
    pub verdict: LossVerdict,
}

/// The state for `/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossState {
    /// Nodes that are lost, or have the taint `out-of-service`.
    pub nodes: Vec<LostNodeState>,
    /// Pods held for longer than the limit, by [`Holder`] in the order of [`Holder::ALL`].
    pub stuck: [usize; Holder::ALL.len()],
    /// The same by namespace, without those held by a node.
    pub held: BTreeMap<(Holder, Box<str>), usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostNodeState {
    pub name: Arc<str>,
    pub is_ready: bool,
    /// Headline of the present verdict.
    pub verdict: &'static str,
    /// Pods held by the node for longer than the limit.
    pub stuck: usize,
    pub out_of_service: bool,
    /// The machine runs, and so many of its pods of a StatefulSet or with a volume were deleted without the kubelet: their containers may run at the
    /// same time as their replacements.
    pub run_twice: usize,
    /// Volumes attached to a lost node, of which the pod is gone or held.
    pub volumes: usize,
    /// The controller does not evict the pods of the silent node.
    pub evictions_held: bool,
}
