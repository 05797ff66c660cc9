//! The node: its shutdowns, from the announcement to the last evidence, and what the next boot adds.
//!
//! A shutdown opens with the first sign of it and stays open until the machine continues (cancelled, spoofed), or until another boot
//! begins. It is judged when nothing can change the verdict any more: an agent that ends before that leaves it to the next boot.
//!
//! *Architecture invariant*: a sign of logind counts only from the owner of its name; another sender's opens a shutdown of its own.
//! Evidence that was lost before or during a shutdown is a gap in its facts, never the absence of a sign.

mod bus;
mod closing;
mod hidden;
mod kernel;
mod next_boot;
mod open;
mod parts;
mod pods;
mod previous;
mod sweep;

use std::time::Duration;

use crate::ids::CgroupId;
use crate::input::{ESSENTIAL, Observation, ProbeState};
use crate::node::{Inhibitor, NodeEvent, OwnLock, ShutdownKind, SignalSender};
use crate::report::Termination;
use crate::shutdown::{
    EndedByShutdown, Ending, KubeletFacts, Lock, LogindFacts, NodeShutdownFacts, ShutdownGaps, ShutdownKey, Signs, UnlistedPods,
};
use crate::termination::TerminationFacts;
use crate::time::{Boot, WallOffset};
use crate::tolerances::{JOBS_DONE, STILL_UP};
use crate::verdict::{Cause, TrafficAxis};

use hidden::Hidden;
pub(super) use kernel::may_be_sign;
use open::InProgress;
pub(super) use parts::FromNode;
use parts::{Bus, Left, Plan, TEXT, report};
use pods::Runs;
pub(super) use pods::{FOLLOWED, RunningPod};
use previous::Previous;
use sweep::Sweep;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NodeMachine {
    boot_id: String,
    host: String,
    clock: WallOffset,
    /// Any message about the node has arrived: without a source there is nothing to report.
    active: bool,
    bus: Bus,
    /// Without what is of one shutdown.
    kubelet: KubeletFacts,
    /// What may have hidden the only pods, and the kubelet with them.
    hidden: Hidden,
    /// The last cgroup of a pod's container that was seen.
    pods_cgroup: Option<CgroupId>,
    /// The watch of this node's pods is interrupted.
    api_is_away: bool,
    /// Of [`ESSENTIAL`], those that are not active.
    blind: Vec<&'static str>,
    /// Shutdowns of this boot so far.
    count: u32,
    open: Option<Box<InProgress>>,
    /// The last one that is over, with its end: what it stopped may exit later.
    last: Option<(EndedByShutdown, Boot)>,
    /// Reported by an agent that ended within it.
    left: Option<Left>,
    /// The agent ended in order, and nothing began since.
    agent_ended: bool,
    previous: Option<Box<Previous>>,
    sweep: Sweep,
}

impl NodeMachine {
    /// A run begins. `gap`: after another one of the same boot.
    pub fn start(&mut self, observation: &Observation, gap: bool) {
        self.boot_id.clone_from(&observation.boot_id);
        self.host.clone_from(&observation.host);
        self.clock(observation.wall_offset);
        let agent_ended = std::mem::take(&mut self.agent_ended);
        self.blind.clear();
        self.hidden.starts(observation);
        self.bus.begin(observation.since);
        if let Some(left) = self.left.as_mut().filter(|_| gap) {
            left.back.get_or_insert(observation.since);
        }
        if let Some(open) = self.open.as_mut().filter(|_| gap) {
            open.resumed = Some(observation.since);
            open.agent_ended |= agent_ended;
            open.facts.gaps.observation = true;
            open.runs.statuses_end(observation.since);
        }
    }

    /// A shutdown in progress keeps the clock of its begin: so do the traces of the pods that have ended by then.
    pub fn clock(&mut self, offset: WallOffset) {
        self.clock = offset;
        self.clock_of_previous(offset);
    }

    pub fn probe(&mut self, name: &str, state: &ProbeState) {
        self.hidden.probe(name, state);
        let Some(name) = ESSENTIAL.into_iter().find(|essential| *essential == name) else {
            return;
        };
        self.blind.retain(|known| *known != name);
        if !state.is_observed() {
            self.blind.push(name);
        }
        if let Some(open) = &mut self.open {
            open.facts.gaps.exits |= !self.blind.is_empty();
        }
    }

    /// Whether a shutdown is in progress that ends the machine, as far as known: not a spoofed one.
    pub fn is_shutting_down(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.facts.signs.is_real())
    }

    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The begin of the shutdown in progress.
    pub fn begun(&self) -> Option<Boot> {
        self.open.as_ref().map(|open| open.facts.begin)
    }

    pub fn ordinal(&self) -> Option<u32> {
        self.open.as_ref().map(|open| open.facts.key.ordinal)
    }

    /// The agent ended in order, and nothing began since.
    pub fn agent_ended(&self) -> bool {
        self.agent_ended
    }

    /// Of a pod's container: it shows that a kubelet works here.
    pub fn pods_cgroup(&self) -> Option<CgroupId> {
        self.pods_cgroup
    }

    pub fn is_active(&self) -> bool {
        self.active
    }

    /// The period of the kubelet's last phase; None if it has none, or is not known.
    pub fn last_phase(&self) -> Option<Duration> {
        self.kubelet.configured()?.phases().last().map(|phase| phase.period)
    }

    /// Whether time changes anything.
    pub fn is_waiting(&self) -> bool {
        self.open.is_some() || self.previous.is_some() || self.bus.plan.is_some()
    }

    pub fn bytes(&self) -> usize {
        let locks = self.bus.locks.iter().flatten().count() * (size_of::<Inhibitor>() + 3 * TEXT);
        let open = self.open.as_ref().map_or(0, |open| open.bytes());
        let previous = self.previous.as_ref().map_or(0, |previous| previous.bytes());
        locks + open + previous
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        let open = self
            .open
            .as_ref()
            .map_or(0, |open| open.runs.len() + open.facts.logind.locks.len());
        let previous = self.previous.as_ref().map_or(0, |previous| previous.kept());
        self.bus.locks.iter().flatten().count() + open + previous
    }

    pub fn event(&mut self, now: Boot, event: NodeEvent, out: &mut FromNode) {
        // A loss is not a message: without a source it means nothing.
        self.active |= !matches!(event, NodeEvent::Lost { .. });
        match event {
            NodeEvent::Bus { state } => self.bus_state(now, state, out),
            NodeEvent::Prepare { start, kind, sender } => match (sender, start) {
                (SignalSender::Logind, true) => {
                    let open = self.real(now, out);
                    let first = open.facts.signs.prepared.get_or_insert(now);
                    *first = now.min(*first);
                    open.facts.kind = open.facts.kind.or(kind);
                }
                (SignalSender::Logind, false) => self.cancelled(now, out),
                (sender, start) => self.spoofed(now, sender, start),
            },
            NodeEvent::Scheduled { shutdown } => self.scheduled(now, shutdown),
            NodeEvent::Inhibitors { locks } => self.listed(now, locks),
            NodeEvent::DelayLimit { limit } => {
                self.bus.limit = Some(limit);
                // The limit at the begin counts: logind has read it by then.
                if let Some(open) = &mut self.open {
                    open.limit.get_or_insert(limit);
                }
            }
            NodeEvent::OwnLock { state } => {
                if let Some(open) = &mut self.open {
                    open.own_lock(now, &state);
                }
                self.bus.own_lock = Some(state);
            }
            NodeEvent::Job { unit, removed } => self.job(now, &unit, removed, out),
            NodeEvent::SystemState { state } => self.system_state(now, &state, out),
            NodeEvent::OomKilled { cgroup, reason } => self.bus.oom_killed(now, cgroup, reason),
            NodeEvent::Kubelet { config } => {
                self.kubelet.is_there = true;
                self.kubelet.config = Some(config);
            }
            NodeEvent::KubeletState { state } => {
                self.state_of_previous(state.ok());
                self.previous_due(now, out);
            }
            NodeEvent::AgentEnds { pod } => self.agent_ends(now, pod.as_ref(), out),
            NodeEvent::Lost { reason, .. } => self.bus_gap(now, &reason),
        }
    }

    /// Time passed.
    pub fn run_timers(&mut self, now: Boot, out: &mut FromNode) {
        self.previous_due(now, out);
        self.plan_due(now, out);
        if let Some(open) = &self.open {
            let signs = &open.facts.signs;
            let is_cancelled = |gone: Boot| gone.plus(STILL_UP) <= now && signs.prepared.is_none() && !open.is_stopping();
            if !signs.is_real() && open.acts_until.is_some_and(|until| until <= now) {
                self.close(now, Ending::Continued, out);
            } else if let Some(gone) = open.jobs_gone.filter(|gone| is_cancelled(*gone)) {
                self.continued(gone, out);
            } else if let Some(at) = signs.only_signals() {
                let is_observed = self.bus.doubt(now, None).is_none();
                let bound = if is_observed { STILL_UP } else { JOBS_DONE };
                if at.plus(bound) <= now {
                    self.close(at, Ending::Continued, out);
                }
            }
        }
    }

    /// No more input of this boot, and no more boot follows here.
    pub fn end(&mut self, now: Boot, out: &mut FromNode) {
        if let Some(previous) = self.previous.take() {
            previous.report(out);
        }
        self.close(now, Ending::ObservationEnded, out);
    }

    /// Notes the termination, and by which shutdown it was, if by one.
    pub fn ended(&mut self, facts: &mut TerminationFacts) {
        facts.oomd_reason = self.bus.oomd_reason(facts);
        if let Some(open) = &mut self.open {
            facts.shutdown = open.ended_by(facts);
            open.runs.ended(facts, open.facts.begin, facts.shutdown.is_some());
        }
        if facts.shutdown.is_none()
            && let Some((by, until)) = &self.last
        {
            let is_by_it = open::stopped_at(facts).is_some_and(|at| by.begin <= at && at <= *until);
            facts.shutdown = is_by_it.then(|| by.clone());
        }
    }

    /// The runtime sent the main process a stop signal.
    pub fn stop_sent(&mut self, at: Boot, own: CgroupId) {
        if let Some(open) = &mut self.open {
            open.runs.stop_sent(at, own);
        }
    }

    /// Whether the pods that run are to be shown to it, once for a shutdown.
    pub fn wants_pods(&mut self) -> bool {
        self.open.as_mut().is_some_and(|open| std::mem::take(&mut open.wants_pods))
    }

    /// A journal shows the pods, or the kubelet, once more at the begin of a shutdown: also those that a missing part before had shown.
    pub fn pods_are_listed(&mut self) {
        if let Some(begun) = self.begun() {
            self.hidden.listed(begun);
        }
    }

    /// The pods that run; None if they are not known. `all`: no other pod has a container that runs.
    pub fn pods(&mut self, running: Option<Vec<RunningPod>>, all: bool) {
        self.kubelet.is_there |= running.is_some();
        if let Some(open) = &mut self.open {
            open.facts.gaps.pods |= running.is_none() || !all;
            open.runs.show(running.unwrap_or_default());
            if self.api_is_away {
                open.runs.statuses_end(open.facts.begin);
            }
            self.sweep.show(open);
        }
    }

    /// A pod within a shutdown, perhaps one that has just started: also of one that ends before the shutdown does.
    pub fn saw_pod(&mut self, running: RunningPod) {
        if let Some(open) = &mut self.open
            && !running.is_unseen
        {
            open.runs.show(vec![running]);
        }
    }

    /// Terminations wait for the status of their pods: why they were stopped is not known yet.
    pub fn unsettled(&mut self, is_unsettled: bool) {
        if let Some(open) = &mut self.open {
            open.is_unsettled = is_unsettled;
        }
    }

    /// A termination of a pod's container within a shutdown was judged.
    pub fn judged(&mut self, termination: &Termination) {
        let reason = termination
            .kubernetes
            .as_ref()
            .filter(|_| termination.facts.shutdown.is_some());
        if let Some(open) = &mut self.open
            && let Some(context) = reason
            && let Some(reason) = &context.stop_reason
        {
            let (uid, own) = (&context.pod.uid, termination.facts.key.cgroup);
            if termination.verdict.traffic == TrafficAxis::Unknown {
                open.runs.saw_not_all(uid, own);
            }
            match (reason.cause, termination.verdict.cause) {
                // What an outage hid may be why, also where the shutdown is the reason as far as the API has shown.
                (_, Cause::Unknown) | (Cause::Unknown, _) => open.runs.unexplained(uid, own),
                (Cause::NodeShutdown, _) => {}
                _ => open.runs.explained(uid, own, context.grace),
            }
        }
    }

    /// A sign of a shutdown that ends the machine. A spoofed one is over then.
    fn real(&mut self, now: Boot, out: &mut FromNode) -> &mut InProgress {
        if self.open.as_ref().is_some_and(|open| !open.facts.signs.is_real()) {
            self.close(now, Ending::Continued, out);
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let mut open = self.begin(now);
                open.facts.signs.scheduled = self.bus.plan.take().map(Plan::into_parts);
                if let Some((plan, _)) = &open.facts.signs.scheduled {
                    open.facts.kind = ShutdownKind::parse(&plan.kind);
                }
                open
            }
        };
        self.open.insert(open)
    }

    fn begin(&mut self, at: Boot) -> Box<InProgress> {
        self.count += 1;
        self.left = None;
        let key = ShutdownKey {
            boot_id: self.boot_id.clone(),
            ordinal: self.count,
        };
        // A list from before its release.
        let is_let_go = |lock: &Inhibitor| lock.is_own() && self.bus.own_lock == Some(OwnLock::Released);
        let locks = self
            .bus
            .locks
            .iter()
            .flatten()
            .filter(|lock| !is_let_go(lock))
            .map(|lock| Lock {
                lock: lock.clone(),
                taken: None,
                released: None,
                outlasted: false,
            });
        Box::new(InProgress {
            facts: NodeShutdownFacts {
                key,
                host: self.host.clone(),
                clock: self.clock,
                kind: None,
                begin: at,
                end: at,
                ending: Ending::ObservationEnded,
                signs: Signs::default(),
                logind: LogindFacts {
                    delay: None,
                    locks: locks.collect(),
                    own_lock: self.bus.own_lock.clone(),
                },
                kubelet: KubeletFacts {
                    held: self.bus.kubelet_holds(),
                    ..self.kubelet.clone()
                },
                phases: Vec::new(),
                pods: Vec::new(),
                unlisted: UnlistedPods::default(),
                pods_ready: None,
                gaps: ShutdownGaps {
                    exits: !self.blind.is_empty(),
                    ..ShutdownGaps::default()
                },
            },
            limit: self.bus.limit,
            runs: Runs::default(),
            wants_pods: true,
            acts_until: None,
            jobs_gone: None,
            begun_before: false,
            resumed: None,
            agent_ended: false,
            doubt: self.bus.doubt(at, self.bus.limit),
            is_unsettled: false,
            went_down: false,
        })
    }

    fn close(&mut self, now: Boot, ending: Ending, out: &mut FromNode) -> Option<ShutdownKey> {
        let open = self.open.take()?;
        // Nothing shows what a sweep was for after which the machine continued.
        let is_one = open.may_end_pods() && !(ending == Ending::Continued && open.facts.signs.only_swept());
        self.last = is_one.then(|| (open.link(), now));
        let facts = open.complete(ending, now, self);
        let is_spoofed = facts.signs.spoofed.is_some() && !facts.signs.is_real();
        let had_lock = facts.logind.kubelet_lock().is_some();
        self.kubelet.dropped |= is_spoofed && had_lock && self.bus.kubelet_holds() == Some(false);
        let key = facts.key.clone();
        out.reports.push(report(facts));
        Some(key)
    }
}
