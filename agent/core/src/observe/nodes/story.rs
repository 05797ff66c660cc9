//! One loss of one node, and the pods that were on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::agent::{AgentCheck, Question};
use super::member::Member;
use super::report::{Advice, AgentAnswer, LossKey, Returned, Step};
use super::sentence::{self, Known};
use super::still_ready::StillReady;
use crate::ids::PodUid;
use crate::observe::{ApiTime, ClusterVersion, Moment, NodeFact, NodeIdentity, Ready};
use crate::pod::PodIdentity;
use crate::time::{Boot, Wall};
use crate::tolerances::{EVICTIONS_HELD_BACK, NUMBERED_WITHIN, PLAUSIBLE_SILENCE, TOLERATED_LOSS};

/// Most reads of a Lease that fail: one that does not exist is no reason to ask for ever.
const RENEWAL_ASKS: u8 = 3;

/// How the kubelet announces a graceful node shutdown in the condition's message.
const SHUTTING_DOWN: &str = "shutting down";
#[derive(Debug)]
pub(super) struct Story {
    pub key: LossKey,
    /// When the transition of the key was.
    pub keyed: Moment,
    pub begin: Moment,
    pub ready: Ready,
    pub reason: Box<str>,
    pub message: Box<str>,
    /// Each step once.
    pub steps: Vec<(Step, Moment)>,
    pub renewed: Option<ApiTime>,
    renewal: Question,
    renewal_failures: u8,
    pub agent: AgentCheck,
    /// The taint `out-of-service` is there, or was when the loss ended.
    pub fenced: bool,
    pub was_fenced: bool,
    /// The provider reported it at some time.
    pub powered_off: bool,
    /// Its last word.
    pub is_off: bool,
    /// The controller evicts, now.
    pub evicting: bool,
    /// Since when it does not, after it did.
    not_evicting: Option<Boot>,
    /// The kubelet announced a shutdown.
    pub announced: Option<Announced>,
    pub back: Option<Moment>,
    /// The node as it came back.
    pub returned_as: Option<Arc<NodeIdentity>>,
    /// The Node object was deleted.
    pub removed: Option<Moment>,
    pub members: BTreeMap<PodUid, Member>,
    /// The members of before the loss are known.
    pub is_scanned: bool,
    /// The root is exported, or was by an earlier observer.
    pub is_reported: bool,
    /// The time until the controller evicted is exported.
    pub is_not_ready_reported: bool,
    /// The time of its taint is exported.
    pub is_taint_reported: bool,
    /// There was no room for some of its pods that a kubelet has run.
    is_partial: bool,
    /// There was no room for some of its pods. By its last status such a pod may not have run, and run all the same.
    pub has_dropped: bool,
    /// Pods run there that opted out.
    pub has_ignored: bool,
    /// As the last alarm about the node or a pod of it had it.
    pub advised: Option<Advice>,
    /// How often that changed, and when last.
    pub changes: u8,
    pub changed: Option<Boot>,
    /// The last alarm that the machine runs and must not.
    pub endangered: Option<(Advice, Boot)>,
    /// Since when the machine is known to have booted again.
    pub rebooted: Option<Boot>,
    /// Another machine has the node's object.
    pub is_other: bool,
    /// There was an alarm about the node with pods that hang.
    pub is_hang_alarmed: bool,
    /// There was an alarm that the controller holds the evictions back.
    pub is_held_back_alarmed: bool,
    /// Nodes that fell silent at about the same time, this node included, and all nodes.
    pub at_once: (usize, usize),
    pub unwatched: Option<Duration>,
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
            begin,
            ready: fact.ready,
            reason: Box::default(),
            message: Box::default(),
            steps: vec![(Step::NotReady, begin)],
            renewed: None,
            renewal: Question::default(),
            renewal_failures: 0,
            agent: AgentCheck::default(),
            fenced: false,
            was_fenced: false,
            powered_off: false,
            is_off: false,
            evicting: false,
            not_evicting: None,
            announced: None,
            back: None,
            returned_as: None,
            removed: None,
            members: BTreeMap::new(),
            is_scanned: false,
            is_reported: false,
            is_not_ready_reported: false,
            is_taint_reported: false,
            is_partial: false,
            has_dropped: false,
            has_ignored: false,
            advised: None,
            endangered: None,
            changes: 0,
            changed: None,
            rebooted: None,
            is_other: false,
            is_hang_alarmed: false,
            is_held_back_alarmed: false,
            at_once: (1, 1),
            unwatched,
        };
        story.follow(fact, begin);
        story
    }

    /// A version of the node that is not ready.
    pub fn follow(&mut self, fact: &NodeFact, at: Moment) {
        self.ready = fact.ready;
        self.reason = fact.reason.clone();
        self.message = fact.message.clone();
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
            self.members.values_mut().for_each(|member| member.is_overdue = false);
        } else {
            // The kubelet counts the grace periods of deletions from now on.
            let not_asked = self.members.values_mut().filter(|member| member.requested.is_none());
            not_asked.for_each(|member| member.unheard = None);
        }
        // As of now: the machine may be switched off, or on, and the taint set and removed, by whoever repairs the node.
        self.powered_off |= fact.powered_off;
        self.is_off = fact.powered_off && fact.ready == Ready::Unknown;
        if self.evicting && !fact.evicting {
            self.not_evicting = Some(at.at);
        }
        self.evicting = fact.evicting;
        self.fenced = fact.out_of_service;
        self.was_fenced |= fact.out_of_service;
    }

    /// A version of the node.
    pub fn saw_boot(&mut self, node: &NodeIdentity, at: Moment) {
        match self.returned(node) {
            Returned::Rebooted if self.rebooted.is_none() => self.rebooted = Some(at.at),
            Returned::OtherMachine => self.is_other = true,
            _ => {}
        }
    }

    /// How the machine compares with the one that was lost.
    pub fn returned(&self, node: &NodeIdentity) -> Returned {
        sentence::returned(&self.key.node, node)
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
        self.silent_since().unwrap_or(self.begin.at)
    }

    /// Whether it is time to ask for the Lease: while the kubelet reports its own trouble, it renews the Lease.
    pub fn ask_renewal(&mut self, now: Boot) -> bool {
        let is_due = self.silent_since().is_some() && !self.renewal.is_answered && !self.renewal.is_pending(now);
        if is_due {
            self.renewal.ask(now);
        }
        is_due
    }

    /// As answered, None if the read failed; a renewal after the silence began is of the node's return, and says nothing about its loss.
    pub fn renewed(&mut self, renewed: Option<ApiTime>) {
        self.renewal_failures = self.renewal_failures.saturating_add(u8::from(renewed.is_none()));
        let is_answered = self.renewal.is_answered || renewed.is_some() || self.renewal_failures >= RENEWAL_ASKS;
        self.renewal = Question::default();
        self.renewal.is_answered = is_answered;
        self.renewed = renewed.filter(|renewed| renewed.at <= self.silent_from()).or(self.renewed);
    }

    /// The controller has not begun to evict the pods, or has stopped it, for longer than it takes.
    pub fn is_held_back(&self, now: Boot) -> bool {
        if self.not_evicting.is_some_and(|since| now.since(since) < EVICTIONS_HELD_BACK) {
            return false;
        }
        let waits = |member: &Member| member.requested.is_none() && member.is_to_end();
        self.is_long_silent(now) && !self.evicting && !self.fenced && self.members.values().any(waits)
    }

    /// Kubelet and agent are silent: no process on the node is known to count a grace period.
    pub fn notice_silence(&mut self, now: Boot) {
        self.agent.notice(now);
        let is_heard = self.ready != Ready::Unknown || !self.agent.is_known() || self.agent.answer() == AgentAnswer::Answered;
        let silent = self.silent_since().filter(|_| !is_heard);
        for member in self.members.values_mut().filter(|member| member.gone.is_none()) {
            member.unheard = member.unheard.or(silent);
        }
    }

    /// Nobody on the node confirms terminations.
    pub fn is_away(&self) -> bool {
        self.back.is_none()
    }

    pub fn is_over(&self) -> bool {
        self.back.is_some() || self.removed.is_some()
    }

    /// The Node object was deleted, and pods that this ends are still there.
    pub fn is_left(&self) -> bool {
        let is_held = |member: &Member| member.gone.is_none() && !member.is_held_by_finalizer();
        self.removed.is_some() && self.back.is_none() && self.members.values().any(is_held)
    }

    /// For a pod of the node. One that anybody can make up does not keep the loss open.
    pub fn no_room_for(&mut self, is_of_kubelet: bool) {
        self.is_partial |= is_of_kubelet;
        self.has_dropped = true;
    }

    /// No container of before can run: a kubelet starts the pods again that were not being deleted when it booted.
    fn ended_by_boot(&self, boot: Boot) -> bool {
        let is_known = !self.has_ignored && !self.has_dropped;
        is_known
            && self.members.values().all(|member| {
                let is_deleted = member.requested.is_some_and(|(requested, _)| requested.at <= boot);
                let is_gone = member.gone.is_some_and(|gone| gone.at <= boot);
                member.is_of_node || member.is_finished || is_deleted || is_gone
            })
    }

    /// It harmed a pod, or could have: more than a moment of a busy kubelet, a shutdown that went well, or an empty node that was
    /// removed.
    pub fn is_serious(&self) -> bool {
        let is_silent = self.ready == Ready::Unknown;
        let is_planned = self.announced.is_some() || self.key.node.unschedulable || self.removed.is_some();
        let has_pods = self.members.values().any(|member| member.is_to_end());
        let is_felt = (is_silent || self.removed.is_some()) && has_pods;
        let has_vanished = self.members.values().any(|member| member.vanished);
        self.was_fenced || self.stuck() > 0 || has_vanished || is_felt || (is_silent && !is_planned)
    }

    /// Pods that the node could not terminate.
    pub fn stuck(&self) -> usize {
        self.members.values().filter(|member| member.was_held()).count()
    }

    pub fn gone(&self) -> usize {
        self.members
            .values()
            .filter(|member| member.was_held() && member.gone.is_some())
            .count()
    }

    /// Pods that were deleted without the kubelet, and that may be replaced elsewhere.
    fn vanished(&self) -> impl Iterator<Item = &Member> {
        let is_its = |member: &&Member| member.vanished && !member.is_of_node && !member.is_finished;
        self.members.values().filter(is_its)
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
        let is_its = |member: &&Member| member.is_to_end() && !member.is_of_node;
        self.members.values().filter(is_its)
    }

    /// The endpoints of a shutdown that is in progress, as the kubelet announced it.
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
        let since = self.time_of(Step::Evicting).unwrap_or(self.begin);
        let is_long = self.evicting && now.since(since.at) >= TOLERATED_LOSS;
        let is_felt = self.members.values().any(|member| member.gone.is_some());
        let waits = |member: &Member| {
            let is_tolerant = (member.requested.is_none() && is_long) || member.is_held_by_finalizer();
            (member.is_to_end() && !(is_tolerant && is_felt)) || (member.is_left_alone() && !is_felt)
        };
        self.is_scanned && !self.is_partial && !self.members.values().any(waits)
    }

    /// For longer than a controller needs to begin with evictions.
    pub fn is_long_silent(&self, now: Boot) -> bool {
        let is_long = self
            .silent_since()
            .is_some_and(|since| now.since(since) >= EVICTIONS_HELD_BACK);
        self.ready == Ready::Unknown && !self.is_over() && is_long
    }

    /// When the last pod was gone.
    pub fn last_gone(&self) -> Option<Moment> {
        self.members
            .values()
            .filter_map(|member| member.gone)
            .max_by_key(|gone| gone.at)
    }

    pub fn known(&self, until: Boot, version: Option<ClusterVersion>) -> Known<'_> {
        let not_ready_until = self.back.map_or(until, |back| until.min(back.at));
        Known {
            node: &self.key.node,
            ready: self.ready,
            reason: &self.reason,
            lasted: not_ready_until.since(self.begin.at),
            // By the node's clock: what cannot be is not said.
            renewed: (self.renewed.map(|renewed| self.silent_from().since(renewed.at)))
                .filter(|before| *before <= PLAUSIBLE_SILENCE),
            was_heard: self.silent_from() > self.begin.at,
            agent: self.agent.answer(),
            fenced: self.fenced,
            powered_off: self.is_off,
            was_silent: self.was_silent(),
            held_back: self.is_held_back(until),
            at_once: self.at_once,
            is_over: self.is_over(),
            shuts_down: self.announced.is_some(),
            has_booted: self.rebooted.is_some(),
            is_other: self.is_other,
            is_rebooted: self.rebooted.is_some_and(|boot| self.ended_by_boot(boot)),
            is_deleted: self.removed.is_some() && self.back.is_none(),
            stuck: self.stuck(),
            gone: self.gone(),
            vanished: self.vanished().count(),
            doubled: self.doubled(),
            to_release: self.to_release().count(),
            to_double: self.to_release().any(Member::does_harm_twice),
            has_dropped: self.has_dropped,
            version,
        }
    }
}

impl LossKey {
    pub(super) fn of(node: &Arc<NodeIdentity>, transition: ApiTime) -> LossKey {
        LossKey {
            node: node.clone(),
            transition: transition.wall,
        }
    }
}
