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
mod limits;
mod moment;
mod nodes;
mod output;
mod pods;
mod replacements;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use crate::pod::{ApiClock, PodIdentity};
use crate::time::Boot;

pub use crate::tolerances::BACK_WITHIN;
pub use fact::{
    ApiTime, Ask, AttachmentFact, ClaimKey, ClusterVersion, Conditions, DeletionSight, EndpointFact, Input, NodeFact,
    NodeIdentity, Owner, PodDetails, PodRun, PodSight, Ready, SliceFact, SliceKey, Watch,
};
pub use limits::{ObserverDropReason, ObserverLimits};
pub use moment::Moment;
pub use nodes::verdict as loss_verdict;
pub use nodes::{
    Advice, AgentAnswer, DuplicateRun, Holder, LINKS, LossAlarm, LossEnd, LossKey, LossState, LostNodeState, LostPods,
    NodeLost, NodePhase, PhaseKind, PodLost, ReadyService, Return, Returned, ShuttingDown, Step, Stuck, VolumeDetach,
};
pub use output::{EndpointRemoval, Output, Replacement, Rule};

use contact::{Contact, Seen};
use endpoints::Endpoints;
use nodes::Nodes;
use pods::ClusterPods;
use replacements::Replacements;

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
        out.iter_mut().for_each(|output| self.complete(output));
        out
    }

    /// With what only the other machines know.
    fn complete(&mut self, output: &mut Output) {
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
