//! One loss of one node, and the pods that were on it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::report::{Advice, AgentAnswer, Holder, LossKey, NAMED, Returned, Step, Stuck};
use super::sentence::{self, Known};
use crate::ids::PodUid;
use crate::observe::pods::Record;
use crate::observe::{ApiTime, ClusterVersion, DeletionSight, Moment, NodeFact, NodeIdentity, Ready};
use crate::pod::PodIdentity;
use crate::time::{Boot, Wall};

/// Unanswered requests until an agent counts as silent.
const ASKS: u8 = 3;
/// Pause between these.
const BETWEEN: Duration = Duration::from_secs(5);
/// Pause between later ones: an agent may answer again, or no longer.
const LATER: Duration = Duration::from_secs(60);

/// Without an answer by then, a question was dropped.
const DROPPED: Duration = Duration::from_secs(300);
/// Without enough answers by then, nothing is known of the agent.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// How much longer than its grace period a deleted pod may take on a healthy node, before it counts as held.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// A controller that evicts has begun that long after the kubelet's silence.
const HELD_BACK: Duration = Duration::from_secs(60);

/// A pod that is not deleted that long after the evictions began tolerates the loss for longer than by default (300 s).
const TOLERATED: Duration = Duration::from_secs(600);

/// Most changes of what holds a pod.
const MOST_HELD: usize = 8;

/// How the kubelet announces a graceful node shutdown in the condition's message.
const SHUTTING_DOWN: &str = "shutting down";
/// How long after that the node's agent is asked again for the shutdown's number.
const NUMBERED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Story {
    pub key: LossKey,
    pub begin: Moment,
    pub ready: Ready,
    pub reason: Box<str>,
    pub message: Box<str>,
    /// Each step once.
    pub steps: Vec<(Step, Moment)>,
    pub renewed: Option<ApiTime>,
    renewal: Question,
    pub agent: AgentCheck,
    /// The taint `out-of-service` is there, or was when the loss ended.
    pub fenced: bool,
    pub was_fenced: bool,
    /// The provider reported it at some time.
    pub powered_off: bool,
    /// Its last word.
    pub is_off: bool,
    pub evicting: bool,
    /// The kubelet announced a shutdown.
    pub announced: Option<Announced>,
    pub back: Option<Moment>,
    /// The Node object was deleted.
    pub removed: Option<Moment>,
    pub members: BTreeMap<PodUid, Member>,
    /// The members of before the loss are known.
    pub is_scanned: bool,
    /// The root is exported, or was by an earlier observer.
    pub is_reported: bool,
    /// The time until the controller evicted is exported.
    pub is_not_ready_reported: bool,
    /// As the last alarm about the node had it.
    pub advised: Option<Advice>,
    /// The machine has booted since.
    pub is_rebooted: bool,
    /// It is said that the controller holds the evictions back.
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
}

#[derive(Debug, Default)]
pub(super) struct AgentCheck {
    pub address: Option<SocketAddr>,
    has_answered: bool,
    /// In a row.
    silent: u8,
    next: Option<Boot>,
    question: Question,
    /// Since when its answers are missed.
    missed: Option<Boot>,
    /// It did not answer, and did not fail to: too many questions.
    is_given_up: bool,
}

/// One question at a time: thousands of lost nodes are asked at once.
#[derive(Debug, Default)]
pub(super) struct Question {
    asked: Option<Boot>,
    is_answered: bool,
}

impl Question {
    /// Asked, and neither answered nor dropped.
    fn is_pending(&self, now: Boot) -> bool {
        !self.is_answered && self.asked.is_some_and(|asked| now.since(asked) < DROPPED)
    }

    fn ask(&mut self, now: Boot) {
        *self = Question {
            asked: Some(now),
            is_answered: false,
        };
    }
}

/// A pod of a lost node.
#[derive(Debug)]
pub(super) struct Member {
    pub pod: Arc<PodIdentity>,
    pub is_stateful: bool,
    /// No eviction ends it.
    pub stays: bool,
    /// Of a DaemonSet: not missed elsewhere.
    pub is_of_node: bool,
    /// Succeeded or failed before it was deleted: nothing of it can be lost.
    pub is_finished: bool,
    pub claims: Vec<Box<str>>,
    pub requested: Option<(Moment, DeletionSight)>,
    pub held: Vec<Stuck>,
    current: Option<(Holder, Vec<Box<str>>, Moment)>,
    pub gone: Option<Moment>,
    /// Its object was removed while the kubelet was silent.
    pub vanished: bool,
    /// Since when nobody on the node counts the grace period: kubelet and agent are silent.
    unheard: Option<Boot>,
    /// It ran at that time.
    pub replaced: Option<(Arc<PodIdentity>, Moment)>,
    pub is_alarmed: bool,
    /// Its volumes are followed.
    pub is_owner: bool,
    /// An agent reports the pod, too.
    pub has_trace: bool,
    /// It is said that nothing evicts the pod.
    pub is_stay_alarmed: bool,
}

impl Story {
    pub fn new(fact: &NodeFact, key: LossKey, begin: Moment, unwatched: Option<Duration>) -> Story {
        let mut story = Story {
            key,
            begin,
            ready: fact.ready,
            reason: Box::default(),
            message: Box::default(),
            steps: vec![(Step::NotReady, begin)],
            renewed: None,
            renewal: Question::default(),
            agent: AgentCheck::default(),
            fenced: false,
            was_fenced: false,
            powered_off: false,
            is_off: false,
            evicting: false,
            announced: None,
            back: None,
            removed: None,
            members: BTreeMap::new(),
            is_scanned: false,
            is_reported: false,
            is_not_ready_reported: false,
            advised: None,
            is_rebooted: false,
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
        self.is_rebooted |= self.returned(fact) == Returned::Rebooted;
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
            });
        }
        if fact.ready == Ready::Unknown {
            self.step(Step::Unknown, at);
        }
        // As of now: the machine may be switched off, or on, and the taint set and removed, by whoever repairs the node.
        self.powered_off |= fact.powered_off;
        self.is_off = fact.powered_off && fact.ready == Ready::Unknown;
        self.evicting |= fact.evicting;
        self.fenced = fact.out_of_service;
        self.was_fenced |= fact.out_of_service;
    }

    /// How the machine of this version compares with the one that was lost.
    pub fn returned(&self, fact: &NodeFact) -> Returned {
        sentence::returned(&self.key.node.boot_id, &fact.identity.boot_id)
    }

    /// The taint was there before the node was lost.
    pub fn fenced_before(&mut self, set: Moment) {
        if !self.steps.iter().any(|(known, _)| *known == Step::OutOfService) {
            self.steps.insert(0, (Step::OutOfService, set));
        }
    }

    /// A step is in the story once.
    pub fn step(&mut self, step: Step, at: Moment) {
        if !self.steps.iter().any(|(known, _)| *known == step) {
            self.steps.push((step, at));
        }
    }

    /// The kubelet was silent, at some time of the loss.
    pub fn was_silent(&self) -> bool {
        self.steps.iter().any(|(step, _)| *step == Step::Unknown)
    }

    pub fn silent_since(&self) -> Option<Boot> {
        let mut steps = self.steps.iter();
        steps.find(|(step, _)| *step == Step::Unknown).map(|(_, at)| at.at)
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

    /// As answered; a renewal after the silence began is of the node's return, and says nothing about its loss.
    pub fn renewed(&mut self, renewed: Option<ApiTime>) {
        self.renewal.is_answered = true;
        self.renewed = renewed.filter(|renewed| renewed.at <= self.silent_from()).or(self.renewed);
    }

    /// The controller has not begun to evict the pods, for longer than it takes.
    pub fn is_held_back(&self, now: Boot) -> bool {
        let waits = |member: &Member| member.requested.is_none() && member.is_to_end();
        self.is_long_silent(now) && !self.evicting && !self.fenced && self.members.values().any(waits)
    }

    /// Kubelet and agent are silent: no process on the node is known to count a grace period.
    pub fn notice_silence(&mut self, now: Boot) {
        self.agent.notice(now);
        let since = self
            .steps
            .iter()
            .find(|(step, _)| *step == Step::Unknown)
            .map(|(_, at)| at.at);
        if self.ready != Ready::Unknown || !self.agent.is_known() || self.agent.answer() == AgentAnswer::Answered {
            return;
        }
        for member in self.members.values_mut().filter(|member| member.gone.is_none()) {
            member.unheard = member.unheard.or(since);
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
        self.removed.is_some() && self.back.is_none() && self.members.values().any(|member| member.gone.is_none())
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

    /// The agent has not said which shutdown it is.
    pub fn wants_number(&self, now: Boot) -> bool {
        let announced = self.announced.as_ref().filter(|announced| !announced.is_over);
        announced.is_some_and(|announced| announced.shutdown.is_none() && now.since(announced.at.at) < NUMBERED_WITHIN)
    }

    /// Every pod that a loss ends is gone: nothing waits for the node any more. A pod that tolerates the loss, for ever or for long,
    /// waits as long as no other pod was ended.
    pub fn is_settled(&self, now: Boot) -> bool {
        let evicting = self.steps.iter().find(|(step, _)| *step == Step::Evicting);
        let since = evicting.map_or(self.begin, |(_, at)| *at);
        let is_long = self.evicting && now.since(since.at) >= TOLERATED;
        let is_felt = self.members.values().any(|member| member.gone.is_some());
        let waits = |member: &Member| {
            let is_tolerant = member.requested.is_none() && is_long;
            (member.is_to_end() && !(is_tolerant && is_felt)) || (member.is_left_alone() && !is_felt)
        };
        self.is_scanned && !self.members.values().any(waits)
    }

    /// For longer than a controller needs to begin with evictions.
    pub fn is_long_silent(&self, now: Boot) -> bool {
        let is_long = self.silent_since().is_some_and(|since| now.since(since) >= HELD_BACK);
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
        Known {
            node: &self.key.node,
            ready: self.ready,
            reason: &self.reason,
            lasted: until.since(self.begin.at),
            renewed: self.renewed.map(|renewed| self.silent_from().since(renewed.at)),
            was_heard: self.silent_from() > self.begin.at,
            agent: self.agent.answer(),
            fenced: self.fenced,
            powered_off: self.is_off,
            was_silent: self.was_silent(),
            held_back: self.is_held_back(until),
            at_once: self.at_once,
            is_over: self.is_over(),
            is_rebooted: self.is_rebooted,
            is_left: self.is_left(),
            stuck: self.stuck(),
            gone: self.gone(),
            version,
        }
    }
}

impl AgentCheck {
    pub fn answer(&self) -> AgentAnswer {
        match (self.has_answered, self.silent >= ASKS) {
            (true, _) => AgentAnswer::Answered,
            (false, true) => AgentAnswer::Silent,
            (false, false) => AgentAnswer::Unknown,
        }
    }

    /// Known, or not to be had.
    pub fn is_known(&self) -> bool {
        self.address.is_none() || self.answer() != AgentAnswer::Unknown || self.is_given_up
    }

    /// Time has passed: an alarm does not wait for ever.
    pub fn notice(&mut self, now: Boot) {
        let missed = *self.missed.get_or_insert(now);
        self.is_given_up |= now.since(missed) >= ANSWERED_WITHIN;
    }

    /// An answer, or none within its time.
    pub fn heard(&mut self, answered: bool) {
        self.question.is_answered = true;
        if answered {
            self.has_answered = true;
            self.silent = 0;
        } else {
            self.silent = self.silent.saturating_add(1);
            self.has_answered &= self.silent < ASKS;
        }
    }

    /// The address, if it is time to ask. `is_pressing`: soon again, whatever the last answers were.
    pub fn ask(&mut self, now: Boot, is_pressing: bool) -> Option<SocketAddr> {
        let address = self.address?;
        if self.next.is_some_and(|next| now < next) || self.question.is_pending(now) {
            return None;
        }
        self.question.ask(now);
        let is_known = !matches!(self.answer(), AgentAnswer::Unknown) && (self.silent == 0 || self.silent >= ASKS);
        self.next = Some(now.plus(if is_known && !is_pressing { LATER } else { BETWEEN }));
        Some(address)
    }
}

impl Member {
    pub fn new(record: &Record) -> Member {
        Member {
            pod: record.identity.clone(),
            is_stateful: record.owner.as_ref().is_some_and(|owner| &*owner.kind == "StatefulSet"),
            stays: record.outlasts,
            is_of_node: record.owner.as_ref().is_some_and(|owner| &*owner.kind == "DaemonSet"),
            is_finished: record.finished,
            claims: record.details().claims.clone(),
            requested: None,
            held: Vec::new(),
            current: None,
            gone: None,
            vanished: false,
            unheard: None,
            replaced: None,
            is_alarmed: false,
            is_owner: false,
            has_trace: false,
            is_stay_alarmed: false,
        }
    }

    /// The loss ends the pod, and has not yet.
    pub fn is_to_end(&self) -> bool {
        let is_spared = self.requested.is_none() && (self.stays || self.is_finished);
        self.gone.is_none() && !is_spared
    }

    /// No loss ends the pod, and nothing replaces it meanwhile.
    pub fn is_left_alone(&self) -> bool {
        self.stays && !self.is_of_node && !self.is_finished && self.requested.is_none() && self.gone.is_none()
    }

    /// A version of the pod, seen at that time.
    pub fn follow(&mut self, record: &Record, is_away: bool, at: Moment) {
        let details = record.details();
        self.stays = record.outlasts;
        self.is_finished |= record.finished && self.requested.is_none();
        if self.requested.is_none()
            && let Some(deletion) = details.deletion
        {
            self.requested = Some((request(&deletion, at), deletion));
        }
        let now = holder(record, is_away);
        let names: Vec<Box<str>> = match now {
            Some(Holder::Finalizer) => details.finalizers.iter().take(NAMED).cloned().collect(),
            _ => Vec::new(),
        };
        let is_same = self.current.as_ref().map(|(by, names, _)| (*by, names)) == now.map(|by| (by, &names));
        if is_same {
            return;
        }
        self.release(at);
        let requested = self.requested.map(|(requested, _)| requested);
        // The first holder holds from the request on.
        let since = if self.held.is_empty() { requested.unwrap_or(at) } else { at };
        self.current = now.map(|by| (by, names, since));
    }

    /// Before the loss its kubelet held the pod, and not the node.
    pub fn held_from(&mut self, begin: Moment) {
        if let Some((Holder::Node, _, since)) = &mut self.current
            && since.at < begin.at
        {
            *since = begin;
        }
    }

    /// Nothing holds the pod any more, or another thing.
    pub fn release(&mut self, at: Moment) {
        if let Some((by, names, begin)) = self.current.take()
            && self.held.len() < MOST_HELD
        {
            let end = at;
            // Every pod of a Job has a finalizer, which its controller removes at once.
            let is_passing = by == Holder::Finalizer && end.at < begin.at.plus(SLACK);
            if !is_passing {
                self.held.push(Stuck { by, names, begin, end });
            }
        }
    }

    /// The node is back: its kubelet holds the pod now.
    pub fn returned(&mut self, at: Moment) {
        if self.current.as_ref().is_some_and(|(by, ..)| *by == Holder::Node) {
            self.release(at);
            self.current = Some((Holder::Runtime, Vec::new(), at));
        }
    }

    /// The node is lost again before its kubelet finished.
    pub fn lost_again(&mut self, at: Moment) {
        self.unheard = None;
        self.is_alarmed = false;
        if self.current.as_ref().is_some_and(|(by, ..)| *by == Holder::Runtime) {
            self.release(at);
            self.current = Some((Holder::Node, Vec::new(), at));
        }
    }

    /// What holds the pod, or held it last.
    pub fn holder(&self) -> (Holder, &[Box<str>]) {
        let current = self.current.as_ref().map(|(by, names, _)| (*by, &names[..]));
        let last = self.held.last().map(|stuck| (stuck.by, &stuck.names[..]));
        current.or(last).unwrap_or((Holder::Node, &[]))
    }

    /// The node holds the pod for longer than a healthy node would need.
    pub fn hangs(&self, now: Boot) -> bool {
        let held = self.current.as_ref().filter(|(by, ..)| *by == Holder::Node);
        held.zip(self.expected())
            .is_some_and(|((_, _, since), expected)| now >= expected.max(since.at).plus(SLACK))
    }

    /// When a healthy node would have terminated the pod; nobody waits for a grace period that nobody counts.
    pub fn expected(&self) -> Option<Boot> {
        let (requested, deletion) = self.requested?;
        let ends = requested.at.plus(deletion.grace);
        Some(self.unheard.map_or(ends, |unheard| ends.min(unheard.max(requested.at))))
    }

    /// The node held the pod for that long.
    pub fn was_held(&self) -> bool {
        let Some(expected) = self.expected() else {
            return false;
        };
        let is_long = |stuck: &Stuck| stuck.end.earliest() >= expected.max(stuck.begin.at).plus(SLACK);
        let ended = self.held.iter().any(|stuck| stuck.by == Holder::Node && is_long(stuck));
        ended || self.is_alarmed
    }
}

/// When the deletion was requested: as watched, else as the API has it.
pub(super) fn request(deletion: &DeletionSight, at: Moment) -> Moment {
    match at.gap {
        None => at,
        Some(gap) => Moment {
            at: deletion.requested.at.max(at.at.minus(gap)).min(at.at),
            gap: None,
        },
    }
}

/// What holds a pod that is being deleted.
pub(super) fn holder(record: &Record, is_away: bool) -> Option<Holder> {
    let details = record.details();
    let deletion = details.deletion?;
    let is_terminated = deletion.grace.is_zero() || record.finished;
    Some(match (is_terminated && !details.finalizers.is_empty(), is_away) {
        (true, _) => Holder::Finalizer,
        (false, true) => Holder::Node,
        (false, false) => Holder::Runtime,
    })
}

impl LossKey {
    pub(super) fn of(node: &Arc<NodeIdentity>, transition: ApiTime) -> LossKey {
        LossKey {
            node: node.clone(),
            transition: transition.wall,
        }
    }
}
