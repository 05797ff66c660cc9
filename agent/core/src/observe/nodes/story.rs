//! One loss of one node, and the pods that were on it.

use std::sync::Arc;
use std::time::Duration;

use super::agent::{AgentCheck, Lease};
use super::handling::{Fence, Handling, Power};
use super::known::{self, Known, Kubelet, PodCounts};
use super::member::{Lacking, Member, Pods};
use super::report::{AgentAnswer, LossKey, Returned, Step};
use super::reported::{Alarms, Reported};
use super::still_ready::StillReady;
use crate::observe::{ApiTime, ClusterVersion, Moment, NodeFact, NodeIdentity, Ready};
use crate::pod::PodIdentity;
use crate::time::{Boot, Wall};
use crate::tolerances::{EVICTIONS_HELD_BACK, NUMBERED_WITHIN, PLAUSIBLE_SILENCE, TOLERATED_LOSS};

/// How the kubelet announces a graceful node shutdown in the condition's message.
const SHUTTING_DOWN: &str = "shutting down";

#[derive(Debug)]
pub(super) struct Story {
    pub key: LossKey,
    /// When the transition of the key was.
    pub keyed: Moment,
    pub condition: Condition,
    /// Each step once.
    steps: Vec<(Step, Moment)>,
    pub lease: Lease,
    pub agent: AgentCheck,
    pub handling: Handling,
    /// The kubelet announced a shutdown.
    pub announced: Option<Announced>,
    pub phase: Phase,
    machine: Machine,
    pub pods: Pods,
    pub reported: Reported,
    pub alarms: Alarms,
    /// Nodes that fell silent at about the same time, this node included, and all nodes.
    pub at_once: (usize, usize),
    pub unwatched: Option<Duration>,
}

/// The condition `Ready`.
#[derive(Debug)]
pub(super) struct Condition {
    pub ready: Ready,
    pub reason: Box<str>,
    pub message: Box<str>,
}

/// How far the loss is.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Away,
    /// The Node object was deleted.
    Deleted(Moment),
    Back {
        at: Moment,
        /// The node as it came back; None: another machine with the name of a deleted node.
        node: Option<Arc<NodeIdentity>>,
        /// The Node object had been deleted before.
        deleted: Option<Moment>,
    },
}

/// How the machine compares with the one that was lost.
#[derive(Clone, Copy, Debug)]
enum Machine {
    Same,
    /// Since when it is known to have booted again.
    Rebooted(Boot),
    /// Another machine has the node's object; and the boot before.
    Other(Option<Boot>),
}

/// A shutdown, as the condition `Ready` has it.
#[derive(Debug)]
pub(super) struct Announced {
    pub at: Moment,
    pub transition: Wall,
    pub reason: Box<str>,
    pub message: Box<str>,
    /// Its number within the boot, by the node's agent.
    pub shutdown: Option<u32>,
    /// The kubelet is silent, or the node ready again.
    pub is_over: bool,
    pub ready: StillReady,
}

impl Story {
    pub fn new(fact: &NodeFact, key: LossKey, begin: Moment, unwatched: Option<Duration>) -> Story {
        let mut story = Story {
            key,
            keyed: begin,
            condition: Condition::of(fact),
            steps: vec![(Step::NotReady, begin)],
            lease: Lease::default(),
            agent: AgentCheck::default(),
            handling: Handling::default(),
            announced: None,
            phase: Phase::Away,
            machine: Machine::Same,
            pods: Pods::default(),
            reported: Reported::default(),
            alarms: Alarms::default(),
            at_once: (1, 1),
            unwatched,
        };
        story.follow(fact, begin);
        story
    }

    /// A version of the node that is not ready.
    pub fn follow(&mut self, fact: &NodeFact, at: Moment) {
        self.condition = Condition::of(fact);
        self.saw_boot(&fact.identity, at);
        if let Some(transition) = fact.transition
            && self.announced.is_none()
            && fact.ready == Ready::False
            && fact.message.contains(SHUTTING_DOWN)
        {
            self.announced = Some(Announced {
                at,
                transition: transition.wall,
                reason: fact.reason.clone(),
                message: fact.message.clone(),
                shutdown: None,
                is_over: false,
                ready: StillReady::default(),
            });
        }
        if fact.ready == Ready::Unknown {
            self.step(Step::Unknown, at);
            self.pods.members.values_mut().for_each(|member| member.is_overdue = false);
        } else {
            // The kubelet counts the grace periods of deletions from now on.
            let not_asked = self.pods.members.values_mut().filter(|member| member.requested.is_none());
            not_asked.for_each(|member| member.unheard = None);
        }
        self.handling.follow(fact, at.at);
    }

    /// A version of the node.
    pub fn saw_boot(&mut self, node: &NodeIdentity, at: Moment) {
        self.machine = match (self.machine, self.returned(node)) {
            (Machine::Same, Returned::Rebooted) => Machine::Rebooted(at.at),
            (Machine::Other(None), Returned::Rebooted) => Machine::Other(Some(at.at)),
            (Machine::Same | Machine::Rebooted(_), Returned::OtherMachine) => Machine::Other(self.booted()),
            (before, _) => before,
        };
    }

    fn booted(&self) -> Option<Boot> {
        match self.machine {
            Machine::Same => None,
            Machine::Rebooted(at) => Some(at),
            Machine::Other(boot) => boot,
        }
    }

    /// How the machine compares with the one that was lost.
    pub fn returned(&self, node: &NodeIdentity) -> Returned {
        Returned::of(&self.key.node, node)
    }

    /// The taint was there before the node was lost.
    pub fn fenced_before(&mut self, set: Moment) {
        if self.time_of(Step::OutOfService).is_none() {
            self.steps.insert(0, (Step::OutOfService, set));
        }
    }

    /// A step is in the story once.
    pub fn step(&mut self, step: Step, at: Moment) {
        if self.time_of(step).is_none() {
            self.steps.push((step, at));
        }
    }

    pub fn time_of(&self, step: Step) -> Option<Moment> {
        self.steps.iter().find(|(known, _)| *known == step).map(|(_, at)| *at)
    }

    /// The kubelet was silent, at some time of the loss.
    pub fn was_silent(&self) -> bool {
        self.silent_since().is_some()
    }

    pub fn silent_since(&self) -> Option<Boot> {
        self.time_of(Step::Unknown).map(|at| at.at)
    }

    /// No Lease is renewed from then on.
    pub fn silent_from(&self) -> Boot {
        self.silent_since().unwrap_or(self.begin().at)
    }

    /// Whether it is time to ask for the Lease: while the kubelet reports its own trouble, it renews the Lease.
    pub fn ask_renewal(&mut self, now: Boot) -> bool {
        self.was_silent() && self.lease.ask(now)
    }

    /// A renewal after the silence began is of the node's return, and says nothing about its loss.
    pub fn renewed(&mut self, renewed: Option<ApiTime>) {
        self.lease.answered(renewed, self.silent_from());
    }

    /// The controller has not begun to evict the pods, or has stopped it, for longer than it takes.
    pub fn is_held_back(&self, now: Boot) -> bool {
        let is_held = self.handling.holds_evictions_back(now) && !self.handling.is_fenced();
        let waits = |member: &Member| member.requested.is_none() && member.is_to_end();
        is_held && self.is_long_silent(now) && self.pods.members.values().any(waits)
    }

    /// Kubelet and agent are silent: no process on the node is known to count a grace period.
    pub fn notice_silence(&mut self, now: Boot) {
        self.agent.notice(now);
        let is_heard = !self.is_silent() || !self.agent.is_known() || self.agent.answer() == AgentAnswer::Answered;
        let silent = self.silent_since().filter(|_| !is_heard);
        for member in self.pods.members.values_mut().filter(|member| member.gone.is_none()) {
            member.unheard = member.unheard.or(silent);
        }
    }

    /// The Node object is deleted, and the taint went with it.
    pub fn deleted(&mut self, at: Moment) {
        self.phase = Phase::Deleted(at);
        self.handling.unfence();
        self.step(Step::NodeDeleted, at);
    }

    /// The node is ready. A deleted node that registers again with another machine: its story was over with the deletion.
    pub fn came_back(&mut self, node: &Arc<NodeIdentity>, at: Moment) {
        self.saw_boot(node, at);
        let deleted = self.removed();
        let is_it = deleted.is_none() || self.returned(node) == Returned::SameBoot;
        if is_it {
            self.step(Step::Back, at);
        }
        let node = is_it.then(|| node.clone());
        self.phase = Phase::Back { at, node, deleted };
    }

    /// Nobody on the node confirms terminations.
    pub fn is_away(&self) -> bool {
        self.back().is_none()
    }

    pub fn is_over(&self) -> bool {
        !matches!(self.phase, Phase::Away)
    }

    pub fn back(&self) -> Option<Moment> {
        match self.phase {
            Phase::Back { at, .. } => Some(at),
            Phase::Away | Phase::Deleted(_) => None,
        }
    }

    /// When the Node object was deleted, also of a node that is back.
    pub fn removed(&self) -> Option<Moment> {
        match self.phase {
            Phase::Away => None,
            Phase::Deleted(at) => Some(at),
            Phase::Back { deleted, .. } => deleted,
        }
    }

    /// The Node object is deleted, and nobody has registered it again.
    pub fn is_deleted(&self) -> bool {
        matches!(self.phase, Phase::Deleted(_))
    }

    pub fn is_silent(&self) -> bool {
        self.condition.ready == Ready::Unknown
    }

    pub fn begin(&self) -> Moment {
        self.time_of(Step::NotReady).unwrap_or(self.keyed)
    }

    pub fn steps(&self) -> &[(Step, Moment)] {
        &self.steps
    }

    /// The Node object was deleted, and pods that this ends are still there.
    pub fn is_left(&self) -> bool {
        let is_held = |member: &Member| member.gone.is_none() && !member.is_held_by_finalizer();
        self.is_deleted() && self.pods.members.values().any(is_held)
    }

    /// No container of before can run: a kubelet starts the pods again that were not being deleted when it booted.
    fn ended_by_boot(&self, boot: Boot) -> bool {
        let is_known = !self.pods.has_ignored && !self.pods.has_dropped();
        is_known
            && self.pods.members.values().all(|member| {
                let is_deleted = member.requested.is_some_and(|(requested, _)| requested.at <= boot);
                let is_gone = member.gone.is_some_and(|gone| gone.at.at <= boot);
                member.is_of_node() || member.ran.is_finished || is_deleted || is_gone
            })
    }

    /// It harmed a pod, or could have: more than a moment of a busy kubelet, a shutdown that went well, or an empty node that was
    /// removed.
    pub fn is_serious(&self) -> bool {
        let is_silent = self.is_silent();
        let is_planned = self.announced.is_some() || self.key.node.unschedulable || self.removed().is_some();
        let has_pods = self.pods.members.values().any(|member| member.is_to_end());
        let is_felt = (is_silent || self.removed().is_some()) && has_pods;
        let has_vanished = self.pods.members.values().any(Member::vanished);
        self.handling.fence != Fence::Never || self.stuck() > 0 || has_vanished || is_felt || (is_silent && !is_planned)
    }

    /// Pods that the node could not terminate.
    pub fn stuck(&self) -> usize {
        self.pods.members.values().filter(|member| member.was_held()).count()
    }

    pub fn gone(&self) -> usize {
        self.pods
            .members
            .values()
            .filter(|member| member.was_held() && member.gone.is_some())
            .count()
    }

    /// Pods that were deleted without the kubelet, and that may be replaced elsewhere.
    fn vanished(&self) -> impl Iterator<Item = &Member> {
        let is_its = |member: &&Member| member.vanished() && !member.is_of_node() && !member.ran.is_finished;
        self.pods.members.values().filter(is_its)
    }

    /// Those of a StatefulSet, or with volumes: of others a second one does no harm that would justify the end of the whole machine.
    fn doubled(&self) -> (usize, Option<&PodIdentity>) {
        let mut doubled = self.vanished().filter(|member| member.does_harm_twice());
        let first = doubled.next();
        (
            usize::from(first.is_some()) + doubled.count(),
            first.map(|member| &*member.pod),
        )
    }

    /// Pods that the taint ends, or that hang.
    fn to_release(&self) -> impl Iterator<Item = &Member> {
        let is_its = |member: &&Member| member.is_to_end() && !member.is_of_node();
        self.pods.members.values().filter(is_its)
    }

    /// As the kubelet announced it.
    pub fn is_shutting_down(&self) -> bool {
        self.announced.as_ref().is_some_and(|announced| !announced.is_over)
    }

    /// The endpoints of a shutdown that is in progress.
    pub fn still_ready(&mut self) -> Option<&mut StillReady> {
        let announced = self.announced.as_mut().filter(|announced| !announced.is_over);
        announced.map(|announced| &mut announced.ready)
    }

    /// The agent has not said which shutdown it is.
    pub fn wants_number(&self, now: Boot) -> bool {
        let announced = self.announced.as_ref().filter(|announced| !announced.is_over);
        announced.is_some_and(|announced| announced.shutdown.is_none() && now.since(announced.at.at) < NUMBERED_WITHIN)
    }

    /// Every pod that a loss ends is gone: nothing waits for the node any more. A pod that tolerates the loss, for ever or for long,
    /// waits as long as no other pod was ended.
    pub fn is_settled(&self, now: Boot) -> bool {
        let since = self.time_of(Step::Evicting).unwrap_or(self.begin());
        let is_long = self.handling.is_evicting() && now.since(since.at) >= TOLERATED_LOSS;
        let is_felt = self.pods.members.values().any(|member| member.gone.is_some());
        let waits = |member: &Member| {
            let is_tolerant = (member.requested.is_none() && is_long) || member.is_held_by_finalizer();
            (member.is_to_end() && !(is_tolerant && is_felt)) || (member.is_left_alone() && !is_felt)
        };
        self.pods.is_scanned && self.pods.lacking != Lacking::OfKubelet && !self.pods.members.values().any(waits)
    }

    /// For longer than a controller needs to begin with evictions.
    pub fn is_long_silent(&self, now: Boot) -> bool {
        let is_long = self
            .silent_since()
            .is_some_and(|since| now.since(since) >= EVICTIONS_HELD_BACK);
        self.is_silent() && !self.is_over() && is_long
    }

    /// When the last pod was gone.
    pub fn last_gone(&self) -> Option<Moment> {
        self.pods
            .members
            .values()
            .filter_map(|member| Some(member.gone?.at))
            .max_by_key(|gone| gone.at)
    }

    pub fn known(&self, until: Boot, version: Option<ClusterVersion>) -> Known<'_> {
        let not_ready_until = self.back().map_or(until, |back| until.min(back.at));
        Known {
            node: &self.key.node,
            lasted: not_ready_until.since(self.begin().at),
            kubelet: Kubelet {
                ready: self.condition.ready,
                reason: &self.condition.reason,
                // By the node's clock: what cannot be is not said.
                renewed: (self.lease.renewed.map(|renewed| self.silent_from().since(renewed.at)))
                    .filter(|before| *before <= PLAUSIBLE_SILENCE),
                was_heard: self.silent_from() > self.begin().at,
                was_silent: self.was_silent(),
            },
            machine: known::Machine {
                agent: self.agent.answer(),
                powered_off: self.handling.power == Power::Off,
                shuts_down: self.announced.is_some(),
                has_booted: self.booted().is_some(),
                is_other: matches!(self.machine, Machine::Other(_)),
                is_rebooted: self.booted().is_some_and(|boot| self.ended_by_boot(boot)),
            },
            pods: PodCounts {
                stuck: self.stuck(),
                gone: self.gone(),
                vanished: self.vanished().count(),
                doubled: self.doubled(),
                to_release: self.to_release().count(),
                to_double: self.to_release().any(Member::does_harm_twice),
                has_dropped: self.pods.has_dropped(),
            },
            fenced: self.handling.is_fenced(),
            held_back: self.is_held_back(until),
            at_once: self.at_once,
            is_over: self.is_over(),
            is_deleted: self.is_deleted(),
            version,
        }
    }
}

impl Condition {
    fn of(fact: &NodeFact) -> Condition {
        Condition {
            ready: fact.ready,
            reason: fact.reason.clone(),
            message: fact.message.clone(),
        }
    }
}
