//! The part of a pod's termination that one node cannot observe: when the endpoints left their Services, which pod replaced it, and
//! what a lost node cannot report any more.
//!
//! A pure state machine, separate from `correlate`: watched objects in, finished facts out.
//!
//! *Architecture invariant*: reads no clock, does no I/O, keeps a bounded number of objects and counts dropped ones.
//! Only changes that were watched from their beginning are reported: an observer that starts during a removal does not report it.

mod contact;
pub mod election;
mod endpoints;
mod fact;
pub mod kept;
mod nodes;
mod pods;
mod replacements;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::pod::{ApiClock, PodIdentity};
use crate::time::Boot;

pub use crate::tolerances::BACK_WITHIN;
pub use fact::{
    ApiTime, Ask, AttachmentFact, ClaimKey, ClusterVersion, Conditions, DeletionSight, EndpointFact, Input, NodeFact,
    NodeIdentity, Owner, PodSight, Ready, SliceFact, SliceKey, Watch,
};
pub use nodes::verdict as loss_verdict;
pub use nodes::{
    Advice, AgentAnswer, DuplicateRun, Holder, LINKS, LossAlarm, LossEnd, LossKey, LossState, LostNodeState, NodeLost,
    NodePhase, PhaseKind, PodLost, ReadyService, Return, Returned, ShuttingDown, Step, Stuck, VolumeDetach,
};

use contact::{Contact, Seen};
use endpoints::Endpoints;
use nodes::Nodes;
use pods::ClusterPods;
use replacements::Replacements;

/// Bounds of memory, where dropped objects are counted; and of patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserverLimits {
    /// Known pods, including those that are gone but still needed.
    pub pods: usize,
    /// Known endpoints, one per Service and pod.
    pub endpoints: usize,
    /// Terminated pods that wait for a replacement.
    pub vacancies: usize,
    /// Known nodes.
    pub nodes: usize,
    /// Pods of lost nodes, and pods that are being deleted.
    pub lost_pods: usize,
    /// After how long a held pod is reported as stuck.
    pub stuck_after: Duration,
}

impl Default for ObserverLimits {
    fn default() -> Self {
        // Kubernetes' own largest cluster has 150 000 pods.
        ObserverLimits {
            pods: 150_000,
            endpoints: 300_000,
            vacancies: 10_000,
            nodes: 15_000,
            // A zone of a third of the largest cluster.
            lost_pods: 50_000,
            stuck_after: Duration::from_secs(120),
        }
    }
}

/// When a change was observed, on this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub at: Boot,
    /// The watch was interrupted before: the change may be earlier by up to this.
    pub gap: Option<Duration>,
}

impl Moment {
    const fn exact(at: Boot) -> Moment {
        Moment { at, gap: None }
    }

    fn earliest(self) -> Boot {
        self.at.minus(self.gap.unwrap_or_default())
    }
}

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

impl Rule {
    pub const fn name(self) -> &'static str {
        match self {
            Rule::NextOfReplicaSet => "next-of-replica-set",
            Rule::NameInStatefulSet => "name-in-stateful-set",
            Rule::NodeOfDaemonSet => "node-of-daemon-set",
            Rule::IndexInJob => "index-in-job",
            Rule::NextOfJob => "next-of-job",
        }
    }
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

/// Why a change is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObserverDropReason {
    /// More pods than [`ObserverLimits::pods`].
    PodCap,
    /// More endpoints than [`ObserverLimits::endpoints`].
    EndpointCap,
    /// More open vacancies than [`ObserverLimits::vacancies`].
    VacancyCap,
    /// More nodes than [`ObserverLimits::nodes`].
    NodeCap,
    /// More pods of lost nodes than [`ObserverLimits::lost_pods`].
    LostPodCap,
    /// Too many VolumeAttachments, or volumes of lost nodes.
    AttachmentCap,
    /// The change had begun before the observation.
    BeginUnseen,
    /// An endpoint was removed, and the pods' watch never showed its pod.
    PodUnknown,
    /// An endpoint was removed, and its pod continues according to the pods' watch.
    PodGoesOn,
}

impl ObserverDropReason {
    pub const ALL: [ObserverDropReason; 9] = [
        ObserverDropReason::PodCap,
        ObserverDropReason::EndpointCap,
        ObserverDropReason::VacancyCap,
        ObserverDropReason::NodeCap,
        ObserverDropReason::LostPodCap,
        ObserverDropReason::AttachmentCap,
        ObserverDropReason::BeginUnseen,
        ObserverDropReason::PodUnknown,
        ObserverDropReason::PodGoesOn,
    ];

    /// Name on metrics.
    pub const fn name(self) -> &'static str {
        match self {
            ObserverDropReason::PodCap => "pod_cap",
            ObserverDropReason::EndpointCap => "endpoint_cap",
            ObserverDropReason::VacancyCap => "vacancy_cap",
            ObserverDropReason::NodeCap => "node_cap",
            ObserverDropReason::LostPodCap => "lost_pod_cap",
            ObserverDropReason::AttachmentCap => "attachment_cap",
            ObserverDropReason::BeginUnseen => "begin_unseen",
            ObserverDropReason::PodUnknown => "pod_unknown",
            ObserverDropReason::PodGoesOn => "pod_goes_on",
        }
    }
}

/// The state of one leader session: created when the Lease is acquired, dropped when the Lease is lost.
#[derive(Debug)]
pub struct Observer {
    contact: [Contact; Watch::ALL.len()],
    /// Time of the last input.
    last_input: Option<Boot>,
    /// Namespaces with `epitaph.dev/ignore`, of the list in progress.
    ignored_so_far: Option<HashSet<String>>,
    pods: ClusterPods,
    endpoints: Endpoints,
    replacements: Replacements,
    nodes: Nodes,
    api_clock: Option<ApiClock>,
}

impl Observer {
    pub fn new(limits: ObserverLimits) -> Observer {
        Observer {
            contact: Default::default(),
            last_input: None,
            ignored_so_far: None,
            pods: ClusterPods::new(limits.pods),
            endpoints: Endpoints::new(limits.endpoints),
            replacements: Replacements::new(limits.vacancies),
            nodes: Nodes::new(limits.nodes, limits.lost_pods, limits.stuck_after),
            api_clock: None,
        }
    }

    /// `now` does not go back.
    pub fn handle(&mut self, now: Boot, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        let before = self.last_input.replace(now).unwrap_or(now);
        let seen = input.watch().map(|watch| self.contact[watch as usize].observed(now));
        match (input, seen) {
            (Input::Broken { watch, since }, _) => self.contact[watch as usize].broken(since, now),
            (Input::ListBegin(watch), _) => self.list_begin(watch, now),
            (Input::ListEnd(watch), _) => self.list_end(watch, now, &mut out),
            (Input::Slice(slice), Some(seen)) => self.endpoints.slice(slice, seen, &mut out),
            (Input::SliceGone(key), Some(seen)) => self.endpoints.slice_gone(&key, seen),
            (Input::Pod(sight), Some(seen)) => {
                let seen = self.unless_unsynced(seen);
                if let Some(step) = self.pods.apply(sight, seen, &mut out) {
                    self.step(&step, &mut out);
                }
            }
            (Input::PodGone(uid), Some(seen)) => {
                let seen = self.unless_unsynced(seen);
                if let Some(step) = self.pods.gone(&uid, seen) {
                    self.step(&step, &mut out);
                }
            }
            (Input::Node(fact), Some(seen)) => {
                self.nodes.node(&fact, seen, &mut out);
                self.show_endpoints(&fact.identity.name);
            }
            (Input::NodeGone(name), Some(seen)) => self.nodes.node_gone(&name, seen, &mut out),
            (Input::Attachment(fact), Some(seen)) => self.nodes.attachment(fact, seen, &mut out),
            (Input::AttachmentGone(name), Some(seen)) => self.nodes.attachment_gone(&name, seen, &mut out),
            (Input::Renewal { node, renewed }, _) => self.nodes.renewal(&node, renewed),
            (
                Input::Agent {
                    node,
                    answered,
                    shutdown,
                },
                _,
            ) => self.nodes.agent(&node, answered, shutdown),
            (Input::Claim { volume, claim }, _) => self.nodes.claim(&volume, claim),
            (Input::Version(version), _) => self.nodes.version(version),
            (Input::Stalled, _) => self.contact.iter_mut().for_each(|contact| contact.stalled(before, now)),
            (Input::Paused(step), _) => {
                // Also this observer may have stood still since its last input.
                let since = before.minus(step);
                self.contact.iter_mut().for_each(|contact| contact.paused(since, now));
            }
            (Input::Tick, _) => self.contact.iter_mut().for_each(|contact| contact.tick(now)),
            (Input::Namespace { name, ignored }, _) => self.namespace(name, ignored),
            (Input::NamespaceGone(name), _) => self.namespace(name, false),
            (Input::ApiClock(clock), _) => self.api_clock = Some(clock),
            _ => {}
        }
        self.follow_endpoints();
        // Before that, the annotations of the namespaces are not known.
        if self.is_synced() {
            let pods_in_gap = self.is_in_gap(Watch::Pods);
            self.endpoints.finish(now, &self.pods, pods_in_gap, &mut out);
            let is_lost = |pod: &PodIdentity| self.nodes.takes_root(&pod.node, &pod.uid);
            self.replacements.finish(now, &self.pods, is_lost, &mut out);
            if self.contact[Watch::Nodes as usize].is_synced() {
                let nodes_in_gap = self.is_in_gap(Watch::Nodes);
                let in_gap = (pods_in_gap || nodes_in_gap, self.is_in_gap(Watch::VolumeAttachments));
                self.nodes.finish(now, &self.pods, in_gap, &mut out);
            }
        }
        self.pods.forget(now);
        for output in &mut out {
            match output {
                Output::Removal(removal) => {
                    removal.api_clock = self.api_clock;
                    removal.is_of_lost_node = self.nodes.takes_root(&removal.pod.node, &removal.pod.uid);
                }
                Output::Replacement(replacement) => {
                    replacement.api_clock = self.api_clock;
                    if let Some(by) = self.pods.get(&replacement.by.uid) {
                        replacement.attached = self.nodes.attached(by).filter(|since| since.at >= replacement.created.at);
                    }
                }
                _ => {}
            }
        }
        out
    }

    /// The observer stops in order: what no successor would report. No input follows.
    pub fn stop(&mut self, now: Boot) -> Vec<Output> {
        let mut out = Vec::new();
        if self.is_synced() {
            self.nodes.stop(now, &self.pods, &mut out);
        }
        out
    }

    /// Every essential watch has completed its first list.
    pub fn is_synced(&self) -> bool {
        Watch::ESSENTIAL.iter().all(|watch| self.contact[*watch as usize].is_synced())
    }

    fn is_in_gap(&self, watch: Watch) -> bool {
        self.contact[watch as usize].is_in_gap()
    }

    /// Numbers of known pods, endpoints and nodes.
    pub fn known(&self) -> [usize; 3] {
        [self.pods.len(), self.endpoints.len(), self.nodes.len()]
    }

    /// Lost nodes and held pods at this time.
    pub fn losses(&self, now: Boot) -> LossState {
        self.nodes.state(now, &self.pods)
    }

    /// As last measured.
    pub fn api_clock(&self) -> Option<ApiClock> {
        self.api_clock
    }

    /// Our wall clock stepped, forward or back: the distance to it is not known until it is measured again.
    pub fn forget_api_clock(&mut self) {
        self.api_clock = None;
    }

    /// What a change of a pod means.
    fn step(&mut self, step: &pods::Step, out: &mut Vec<Output>) {
        self.replacements.step(step, &self.pods, out);
        if let Some((pod, by, at)) = self.replacements.started(step, &self.pods) {
            self.nodes.replaced(&pod, &by, at);
        }
        let is_lost = |pod: &PodIdentity| self.nodes.takes_root(&pod.node, &pod.uid);
        self.replacements.settle(step, &self.pods, is_lost, out);
        let nodes_in_gap = self.is_in_gap(Watch::Nodes);
        self.nodes.pod(step, &self.pods, nodes_in_gap, out);
    }

    /// Which endpoints are ready when the kubelet of a node announces its shutdown.
    fn show_endpoints(&mut self, node: &str) {
        if !self.nodes.begin_endpoints(node) {
            return;
        }
        for (service, uid) in self.endpoints.ready() {
            if is_on(&self.pods, uid, node) {
                self.nodes.ready_endpoint(node, service, uid);
            }
        }
    }

    fn follow_endpoints(&mut self) {
        let changes = self.endpoints.take_changes();
        if changes.is_empty() || !self.nodes.is_shutting_down() {
            return;
        }
        for change in changes {
            let record = self.pods.get(&change.pod).filter(|record| self.pods.may_be_lost(record));
            if let Some(node) = record.map(|record| record.identity.node.clone()) {
                self.nodes.endpoint(&node, change);
            }
        }
    }

    /// A pod that terminates before the namespaces are known may be ignored by annotation: it counts as terminated before our start.
    fn unless_unsynced(&self, seen: Seen) -> Seen {
        if self.is_synced() {
            seen
        } else {
            Seen::AtStart(seen.moment().at)
        }
    }

    fn list_begin(&mut self, watch: Watch, now: Boot) {
        self.contact[watch as usize].list_begin(now);
        match watch {
            Watch::EndpointSlices => self.endpoints.list_begin(),
            Watch::Pods => self.pods.list_begin(),
            Watch::Namespaces => self.ignored_so_far = Some(HashSet::new()),
            Watch::Nodes => self.nodes.list_begin(),
            Watch::VolumeAttachments => self.nodes.attachments_begin(),
        }
    }

    fn list_end(&mut self, watch: Watch, now: Boot, out: &mut Vec<Output>) {
        let seen = self.contact[watch as usize].observed(now);
        match watch {
            Watch::EndpointSlices => self.endpoints.list_end(seen),
            Watch::Pods => {
                for step in self.pods.list_end(seen) {
                    self.step(&step, out);
                }
            }
            Watch::Namespaces => self.pods.ignored = self.ignored_so_far.take().unwrap_or_default(),
            Watch::Nodes => self.nodes.list_end(seen, out),
            Watch::VolumeAttachments => self.nodes.attachments_end(seen, &self.pods, out),
        }
        self.contact[watch as usize].list_end();
    }

    fn namespace(&mut self, name: String, ignored: bool) {
        let names = self.ignored_so_far.as_mut().unwrap_or(&mut self.pods.ignored);
        if ignored {
            names.insert(name);
        } else {
            names.remove(&name);
        }
    }
}

/// Whether a pod that has not opted out is on the node.
fn is_on(pods: &ClusterPods, uid: &crate::ids::PodUid, node: &str) -> bool {
    let record = pods.get(uid).filter(|record| pods.may_be_lost(record));
    record.is_some_and(|record| record.identity.node == node)
}
