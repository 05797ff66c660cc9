//! The state of one subject: its main process, and the facts of a possible termination.

mod closing;
mod listed;
mod memory;
mod rare;
mod step;
mod wrapped;

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;

use crate::attribute::Subject;
use crate::event::{ProcessExit, Task};
use crate::ids::{CgroupId, Pid, Signal};
use crate::time::Boot;
use crate::tolerances::ANNOUNCE;

use super::inner::InnerFacts;
use super::process::{Candidate, ProcessId, Served};
use super::timeline::{SignalFact, Timeline};

use listed::Listed;
pub(super) use listed::{NOT_LISTED, Place, Rank};
pub(super) use memory::Weight;
pub(super) use rare::EVIDENCE;
use rare::{Apart, Rare};
pub(super) use wrapped::Others;

/// Most candidates for the main process per subject.
const CANDIDATES: usize = 16;
/// Most exits of other processes that are kept without a timeline.
const EXITS: usize = 32;

#[derive(Debug)]
pub(super) struct State {
    pub subject: Subject,
    /// Nearly always one: beside the rest of the state, for each record looks at it.
    pub candidates: SmallVec<[Candidate; 1]>,
    pub timeline: Option<Box<Timeline>>,
    /// Exits of processes that are not candidates, newest last.
    pub exits: VecDeque<(Boot, ProcessExit)>,
    /// No exit of these is newer.
    newest_exit: Boot,
    /// Without a timeline: handler entries of other processes than the main one, for a stop signal that arrives after them, and signals to
    /// them from outside, for an end that follows.
    pub early: InnerFacts,
    /// When the cgroup was removed.
    pub removed: Option<Boot>,
    /// The last reported main process, and its exit.
    pub finished: Option<(ProcessId, Boot)>,
    /// When to look whether a stop signal was discarded on its way: the process may exit all the same.
    pub suspect: Option<Boot>,
    pub below: Below,
    /// Containers that only v1 knows share the v2 cgroup: their sockets cannot be separated from the subject's.
    pub shares_cgroup: bool,
    /// When the pod's deletion request became known: the sockets are watched from then on.
    pub requested: Option<Boot>,
    /// The container's own stop signal, by its pod's status or the files of its runtime.
    pub own_stop: Option<Signal>,
    pub listed: Listed,
    /// When it was last announced as seen, and the earliest start of a process so far.
    announced: Option<(Boot, Boot)>,
    rare: Apart,
}

/// Cgroups with sockets below the subject's own.
#[derive(Debug, Default)]
pub(super) struct Below {
    pub cgroups: Vec<CgroupId>,
    /// More have sockets than are watched.
    pub over: bool,
}

impl State {
    pub fn new(subject: Subject) -> State {
        State {
            subject,
            candidates: SmallVec::new(),
            timeline: None,
            exits: VecDeque::new(),
            newest_exit: Boot(0),
            early: InnerFacts::default(),
            removed: None,
            finished: None,
            suspect: None,
            below: Below::default(),
            shares_cgroup: false,
            requested: None,
            own_stop: None,
            listed: Listed::default(),
            announced: None,
            rare: Apart::default(),
        }
    }

    pub fn rare(&self) -> &Rare {
        self.rare.get()
    }

    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_mut()
    }

    /// What concerns the life that ended then is over.
    pub fn begin_again(&mut self, end: Boot, is_next: impl Fn(&ProcessId) -> bool) {
        self.early.retain(is_next);
        self.rare.expire(end);
    }

    /// Whether to announce a process that started then: what one announcement shows, the next ones repeat.
    pub fn announces(&mut self, now: Boot, start: Boot) -> bool {
        match &mut self.announced {
            Some((last, earliest)) if now.since(*last) < ANNOUNCE && *earliest <= start => false,
            announced => {
                let earliest = announced.map_or(start, |(_, earliest)| earliest.min(start));
                *announced = Some((now, earliest));
                true
            }
        }
    }

    /// The main process. For a container: the init of the pid namespace (the outermost observed one), otherwise the first process
    /// from outside. For a unit: the first process from outside, because a namespace inside a unit is mostly a sandbox.
    ///
    /// A process that came from outside after the exit of a main process is the next main process, whatever its rank.
    ///
    /// Of a unit it may be a wrapper: see [`State::wrapped`].
    pub fn main(&self) -> Option<Candidate> {
        let first = self.first_process()?;
        self.wrapped(&first).or(Some(first))
    }

    /// The same without a look at wrappers.
    pub fn first_process(&self) -> Option<Candidate> {
        // Nearly always, and for each record: there is nothing to choose.
        if let [only] = &self.candidates[..] {
            return Some(*only);
        }
        let best = |before: Option<Boot>| {
            let in_time = |candidate: &&Candidate| before.is_none_or(|end| !candidate.is_after(end));
            self.candidates
                .iter()
                .filter(in_time)
                .min_by_key(|candidate| self.rank(candidate))
        };
        let Some(mut main) = best(None) else {
            return self.stopped_process();
        };
        // Each iteration looks at an earlier exit: the remaining candidates did not come after the last one.
        while let Some(end) = self.end_before(main) {
            let Some(earlier) = best(Some(end)) else { break };
            main = earlier;
        }
        Some(*main)
    }

    /// In the order of arrival, the possible main processes last.
    pub fn served(&self) -> impl Iterator<Item = Served> {
        let exits = self.exits.iter().filter(|(_, exit)| exit.served()).map(|(at, exit)| Served {
            id: ProcessId::of(&exit.task),
            comm: exit.task.comm,
            came: None,
            at: *at,
            status: exit.status,
            held: exit.held.unwrap_or_default(),
            unobserved: exit.unobserved,
            is_own: exit.is_own,
        });
        let candidates = self.candidates.iter().filter_map(|of| {
            let exit = of.exit?;
            let (held, unobserved) = exit.sockets?;
            Some(Served {
                id: of.id,
                comm: of.comm,
                came: of.came,
                at: exit.at,
                status: exit.status,
                held,
                unobserved,
                is_own: false,
            })
        });
        exits.chain(candidates)
    }

    /// The earliest exit of another candidate before `next` came in.
    fn end_before(&self, next: &Candidate) -> Option<Boot> {
        let others = self.candidates.iter().filter(|other| other.outside || other.is_ns_init());
        let ends = others
            .filter(|other| !self.is_stage(other, next))
            .filter_map(Candidate::exit_at);
        ends.filter(|end| next.is_after(*end)).min()
    }

    /// Start of the earliest known process.
    pub fn first_start(&self) -> Option<Boot> {
        self.candidates.iter().map(|of| of.id.start).min()
    }

    /// If no main process is known: the target of the runtime's first stop signal.
    fn stopped_process(&self) -> Option<Candidate> {
        let signal = self.timeline.as_deref()?.first_stop_signal()?;
        let target = &signal.signal.target;
        let mut candidate = Candidate::of(target, signal.at, false);
        let exit = self.exits.iter().find(|(_, exit)| candidate.id.is(&exit.task));
        if let Some((at, exit)) = exit {
            candidate.ended(*at, exit);
        }
        Some(candidate)
    }

    fn rank(&self, candidate: &Candidate) -> impl Ord + use<> {
        let is_init = candidate.is_ns_init() && !self.is_sandbox(candidate);
        let (init, outside) = (!is_init, !candidate.outside);
        let level = if is_init { candidate.ns_level } else { 0 };
        let by_start = (candidate.id.start, candidate.id.tgid);
        match self.subject {
            Subject::Container { .. } => (init, level, by_start),
            Subject::Unit { .. } => (outside, 0, by_start),
        }
    }

    /// The init of a namespace created inside a container that has no pid namespace of its own (host's, or shared by the pod).
    fn is_sandbox(&self, init: &Candidate) -> bool {
        let is_around = |other: &Candidate| {
            other.outside && other.ns_level < init.ns_level && other.id.start < init.id.start && !other.is_stage_before(init)
        };
        !init.outside && self.candidates.iter().any(is_around)
    }

    /// A process of an earlier life: the reported main process, or a process that a container left behind.
    pub fn is_past(&self, task: &Task) -> bool {
        self.finished.is_some_and(|(id, end)| {
            let leftover = task.start <= end && matches!(self.subject, Subject::Container { .. });
            id.is(task) || leftover
        })
    }

    /// Whether events of this process may decide: if a container's init is known, only the init's.
    pub fn concerns(&self, task: &Task) -> bool {
        self.concerns_process(&ProcessId::of(task))
    }

    fn concerns_process(&self, id: &ProcessId) -> bool {
        let is_init_known = matches!(self.subject, Subject::Container { .. }) && self.candidates.iter().any(|c| c.is_ns_init());
        !is_init_known || self.candidates.iter().any(|candidate| candidate.id.same(id))
    }

    /// Adds a process that may be the main process.
    pub fn learn(&mut self, mut candidate: Candidate) {
        if self.is_left_over(&candidate) || !self.may_be_main(&candidate) {
            return;
        }
        // The exit may have arrived first.
        if let Some(i) = self.exits.iter().position(|(_, exit)| candidate.id.is(&exit.task))
            && let Some((at, exit)) = self.exits.remove(i)
        {
            candidate.ended(at, &exit);
        }
        if let Some(known) = self.candidates.iter_mut().find(|known| known.id.same(&candidate.id)) {
            known.merge(&candidate);
            return;
        }
        self.candidates.push(candidate);
        // The order is the one by which the main process is chosen: a dropped candidate would be the main process only after all others.
        if self.candidates.len() > CANDIDATES {
            let worst = (0..self.candidates.len()).max_by_key(|&i| self.rank(&self.candidates[i]));
            if let Some(worst) = worst {
                self.candidates.swap_remove(worst);
            }
        }
    }

    /// The daemon of a unit whose launcher was a step. What systemd started later (`ExecStop=`, `ExecReload=`) is not the main process.
    pub fn learn_daemon(&mut self, task: &Task, at: Boot) {
        let is_unit = matches!(self.subject, Subject::Unit { .. });
        if is_unit && task.ppid == Pid::INIT && self.candidates.iter().all(|other| task.start < other.id.start) {
            self.learn(Candidate::of(task, at, true));
        }
    }

    /// A process of an earlier life.
    fn is_left_over(&self, candidate: &Candidate) -> bool {
        self.finished
            .is_some_and(|(main, end)| main.same(&candidate.id) || !candidate.is_after(end))
    }

    /// A kernel record of a process has the exact start, `/proc` only a tick. A process that proves to be of the last life is removed.
    pub fn seen(&mut self, task: &Task) {
        let Some(i) = self.candidates.iter().position(|known| known.id.is(task)) else {
            return;
        };
        if self.candidates[i].id.exact {
            return;
        }
        self.candidates[i].id = ProcessId::of(task);
        if self.is_left_over(&self.candidates[i]) {
            self.candidates.swap_remove(i);
        }
    }

    /// If a container's init is known, a process from outside (health checks, by the thousand) is not a main process and is not kept,
    /// so the state stays small.
    fn may_be_main(&self, candidate: &Candidate) -> bool {
        candidate.is_ns_init() || self.concerns_process(&candidate.id)
    }

    /// Records an exit. Two threads that exit at the same time are one exit: the first record counts.
    /// Without a timeline, exits are kept for `late`, as long as earlier events may still arrive.
    pub fn ended(&mut self, at: Boot, exit: &ProcessExit, cap: usize, late: Duration) {
        if self.is_past(&exit.task) {
            return;
        }
        self.seen(&exit.task);
        if exit.task.is_ns_init() {
            self.learn(Candidate::of(&exit.task, at, false));
        }
        // Or nothing but its own children was found.
        if self.candidates.iter().all(|of| of.parent == exit.task.tgid) {
            self.learn_daemon(&exit.task, at);
        }
        if let Some(known) = self.candidates.iter_mut().find(|known| known.id.is(&exit.task)) {
            known.ended(at, exit);
            return;
        }
        if self.timeline.is_none() {
            if self.newest_exit.plus(late) < at {
                // Of ten thousand subjects none is in the processor's cache: no look at an exit, and the same slot for each health check.
                self.exits.clear();
            }
            while self.exits.front().is_some_and(|(old, _)| old.plus(late) < at) {
                self.exits.pop_front();
            }
        }
        if self
            .exits
            .iter()
            .any(|(_, known)| known.task.tgid == exit.task.tgid && known.task.start == exit.task.start)
        {
            return;
        }
        if self.exits.capacity() == 0 {
            self.exits.reserve_exact(1);
        }
        // A main process that is known only after so many later exits never seems to exit: its verdict is `unknown`.
        self.exits.push_back((at, *exit));
        self.newest_exit = self.newest_exit.max(at);
        let cap = if self.timeline.is_some() { cap } else { EXITS };
        while self.exits.len() > cap {
            let plain = self.exits.iter().position(|(_, exit)| is_plain(exit));
            let dropped = self.exits.remove(plain.unwrap_or(0));
            self.drop_exits(dropped, self.timeline.is_some());
        }
    }

    /// Without a timeline nothing rests on most exits.
    fn drop_exits(&mut self, dropped: impl IntoIterator<Item = (Boot, ProcessExit)>, counts: bool) {
        for (at, exit) in dropped {
            let matters = !is_plain(&exit);
            if counts || matters {
                self.rare_mut().drops.exit(at, counts, matters);
            }
        }
    }

    /// Where the facts of processes are kept that are no candidates. Workers of a healthy subject reload: without a timeline these facts are
    /// kept for `late`, as an exit is, and begin none, unless there are many.
    pub fn inside(&mut self, at: Boot, cap: usize, late: Duration) -> &mut InnerFacts {
        self.early.expire(at.minus(late));
        match self.timeline.is_some() || self.early.len() >= cap {
            true => &mut self.timeline().inside,
            false => &mut self.early,
        }
    }

    /// A termination, and what is dropped, need a timeline for these facts.
    pub fn join_early(&mut self) {
        if !self.early.is_empty() {
            self.timeline();
        }
    }

    pub fn suspect(&mut self, look_at: Boot) {
        self.suspect = Some(self.suspect.map_or(look_at, |known| known.max(look_at)));
    }

    /// To processes that may be the main one.
    pub fn signals(&self) -> &[SignalFact] {
        self.timeline.as_deref().map_or(&[], |timeline| &timeline.signals)
    }

    pub fn timeline(&mut self) -> &mut Timeline {
        let early = &mut self.early;
        self.timeline.get_or_insert_with(|| {
            Box::new(Timeline {
                inside: std::mem::take(early),
                ..Timeline::default()
            })
        })
    }
}

/// Helpers come and go, by the hundred: little rests on the exit of one.
fn is_plain(exit: &ProcessExit) -> bool {
    !exit.served() && !exit.status.signal().is_some_and(Signal::is_fault)
}
