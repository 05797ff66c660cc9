//! Signals among the processes of a subject after the main process got its stop signal: kept in any order, bounded, and put together
//! as the way of the stop signal inside.

mod killed;
mod pool;

use crate::event::{Disposition, SignalDeliver, SignalGenerate, SignalResult, SignalSet, TargetState, Task};
use crate::ids::{Pid, Signal};
use crate::termination::{Forward, InnerKill, InnerProcess, Inside, MainExit, RaisedAgain, Role};
use crate::time::Boot;

use super::subject::{ProcessId, State};
use super::timeline::{SignalFact, Timeline};

pub(super) use killed::{killed, killed_by_end_of, unseen};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct InnerFacts {
    signals: Vec<InnerSignal>,
    entries: Vec<InnerEntry>,
    /// No fact is newer.
    newest: Boot,
    /// Facts that were dropped.
    pub over_cap: u64,
}

/// Equal signals from one process to another, and the first time's state.
#[derive(Clone, Copy, Debug)]
struct InnerSignal {
    at: Boot,
    last: Boot,
    sender: InnerProcess,
    role: Role,
    by_oom_daemon: bool,
    target: InnerProcess,
    parent: Pid,
    signal: Signal,
    result: SignalResult,
    disposition: Disposition,
    state: TargetState,
    pending: Option<SignalSet>,
}

/// What is kept of a signal's sender, but for the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct InnerSender {
    pub role: Role,
    pub is_oom_daemon: bool,
}

/// A process entered its handler, or read a signal without one and the kernel discarded it.
#[derive(Clone, Copy, Debug)]
pub(super) struct InnerEntry {
    at: Boot,
    last: Boot,
    process: ProcessId,
    signal: Signal,
    discarded: bool,
}

impl InnerFacts {
    /// False: not kept.
    pub fn signal(&mut self, at: Boot, signal: &SignalGenerate, by: InnerSender, cap: usize) -> bool {
        let new = InnerSignal::new(at, at, signal, by);
        if !new.is_relevant() {
            return true;
        }
        self.newest = self.newest.max(new.last);
        if let Some(known) = self.signals.iter_mut().find(|known| known.is_like(&new)) {
            let last = known.last.max(new.last);
            if new.at < known.at {
                *known = new;
            }
            known.last = last;
            return true;
        }
        let fits = self.signals.len() < cap;
        match fits {
            true => self.signals.push(new),
            false => self.over_cap += 1,
        }
        fits
    }

    /// False: not kept.
    pub fn entry(&mut self, at: Boot, task: &Task, signal: Signal, discarded: bool, cap: usize) -> bool {
        let new = InnerEntry::new(at, task, signal, discarded);
        self.newest = self.newest.max(at);
        if let Some(known) = self.entries.iter_mut().find(|known| known.is_like(&new)) {
            (known.at, known.last) = (known.at.min(at), known.last.max(at));
            return true;
        }
        let fits = self.entries.len() < cap;
        match fits {
            true => self.entries.push(new),
            false => self.over_cap += 1,
        }
        fits
    }

    pub fn len(&self) -> usize {
        self.signals.len() + self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn since(&self) -> Option<Boot> {
        let signals = self.signals.iter().map(|fact| fact.at);
        signals.chain(self.entries.iter().map(|entry| entry.at)).min()
    }

    pub fn bytes(&self) -> usize {
        self.signals.capacity() * size_of::<InnerSignal>() + self.entries.capacity() * size_of::<InnerEntry>()
    }

    /// Returns the number of dropped facts.
    pub fn squeeze(&mut self) -> u64 {
        let dropped = self.len() as u64;
        let over_cap = self.over_cap + dropped;
        *self = InnerFacts {
            over_cap,
            ..InnerFacts::default()
        };
        dropped
    }

    pub fn expire(&mut self, before: Boot) {
        if self.newest < before {
            // Without a look at them: of ten thousand subjects none is in the processor's cache.
            self.signals.clear();
            self.entries.clear();
        }
        self.signals.retain(|fact| fact.last >= before);
        self.entries.retain(|entry| entry.last >= before);
    }

    /// Keeps the facts of these processes.
    pub fn retain(&mut self, is_kept: impl Fn(&ProcessId) -> bool) {
        self.signals.retain(|fact| is_kept(&id(&fact.target)));
        self.entries.retain(|entry| is_kept(&entry.process));
        self.over_cap = 0;
    }
}

impl InnerSignal {
    fn new(at: Boot, last: Boot, signal: &SignalGenerate, by: InnerSender) -> InnerSignal {
        InnerSignal {
            at,
            last,
            sender: process(&signal.sender),
            role: by.role,
            by_oom_daemon: by.is_oom_daemon,
            target: process(&signal.target),
            parent: signal.target.ppid,
            signal: signal.signal,
            result: signal.result,
            disposition: signal.disposition,
            state: signal.state,
            pending: signal.pending,
        }
    }

    fn of(fact: &SignalFact) -> InnerSignal {
        let by = InnerSender {
            role: fact.sender.role,
            is_oom_daemon: fact.sender.is_oom_daemon(),
        };
        InnerSignal::new(fact.at, fact.last, &fact.signal, by)
    }

    /// A possible stop signal, or the end of the process: a fault's signal only from another process.
    fn is_relevant(&self) -> bool {
        let signal = self.signal;
        // An init sends its stop signal on, whatever the process does with it.
        let unnoticed = signal.is_ignored_by_default() && self.disposition != Disposition::Handler && self.role != Role::Inside;
        let own_fault = signal.is_fault() && !self.is_fault_by_another();
        !signal.is_job_control() && !own_fault && !signal.is_self_inflicted() && !unnoticed
    }

    fn is_fault_by_another(&self) -> bool {
        self.signal.is_fault() && matches!(self.role, Role::Runtime | Role::Inside | Role::Other)
    }

    fn is_like(&self, other: &InnerSignal) -> bool {
        let key = |of: &InnerSignal| {
            (
                of.sender.tgid,
                of.sender.start,
                of.target.tgid,
                of.target.start,
                of.signal,
                of.role,
            )
        };
        key(self) == key(other) && (self.result, self.disposition) == (other.result, other.disposition)
    }

    fn order(&self) -> impl Ord + use<> {
        (self.at, self.target.tgid, self.sender.tgid, self.signal.number())
    }

    /// The first time from then on; of equal ones between the first and the last only these two are known.
    fn at_or_after(&self, since: Boot) -> Option<Boot> {
        [self.at, self.last].into_iter().find(|at| *at >= since)
    }

    fn to(&self, process: &InnerProcess) -> bool {
        self.target.is(process)
    }

    fn is_raised(&self) -> bool {
        self.role == Role::Itself && self.disposition == Disposition::Default
    }

    /// What sends a stop on: the same signal, or a conventional one (an init can be set to send another).
    fn sends_on(&self, stop: Signal) -> bool {
        let signal = self.signal;
        self.role == Role::Inside
            && !(signal == Signal::KILL || signal.is_fault())
            && (signal == stop || signal.is_request() && signal.is_conventional_stop())
    }
}

impl InnerEntry {
    fn new(at: Boot, task: &Task, signal: Signal, discarded: bool) -> InnerEntry {
        InnerEntry {
            at,
            last: at,
            process: ProcessId::of(task),
            signal,
            discarded,
        }
    }

    fn of(&(at, deliver): &(Boot, SignalDeliver)) -> InnerEntry {
        InnerEntry::new(at, &deliver.task, deliver.signal, false)
    }

    fn is_like(&self, other: &InnerEntry) -> bool {
        self.process.same(&other.process) && (self.signal, self.discarded) == (other.signal, other.discarded)
    }

    fn at_or_after(&self, since: Boot) -> Option<Boot> {
        [self.at, self.last].into_iter().find(|at| *at >= since)
    }
}

/// The stop whose way is followed.
pub(super) struct Way<'a> {
    pub state: &'a State,
    pub timeline: &'a Timeline,
    pub main: ProcessId,
    pub stop: &'a SignalFact,
    /// Of the SIGKILL to the main process, otherwise its exit.
    pub deadline: Boot,
    pub end: Boot,
}

impl Way<'_> {
    pub fn inside(&self) -> Inside {
        let (signals, entries) = (self.signals(), entries(self.timeline));
        let since = self.stop.at;
        let mut forwards: Vec<Forward> = Vec::new();
        for fact in signals.iter().filter(|fact| fact.sends_on(self.stop.signal.signal)) {
            let Some(at) = fact.at_or_after(since).filter(|at| *at <= self.end) else {
                continue;
            };
            match forwards.iter_mut().find(|known| fact.to(&known.target)) {
                None => forwards.push(self.forward(at, fact, &signals, &entries)),
                // A shell ignores SIGINT and SIGQUIT for what it starts in the background, and its trap then sends SIGTERM.
                Some(known) if known.result == SignalResult::Ignored && fact.result != SignalResult::Ignored => {
                    *known = self.forward(at, fact, &signals, &entries);
                }
                Some(_) => {}
            }
        }
        forwards.sort_by_key(|forward| (forward.at, forward.target.tgid));
        let more = keep(&mut forwards);
        let is_main = |process: &InnerProcess| self.main.same(&id(process));
        let by_main = |fact: &InnerSignal| fact.role == Role::Inside && is_main(&fact.sender) && fact.last >= since;
        Inside {
            unsignalled: self.unsignalled(&signals, &forwards),
            pool: self.pool(&signals, &entries),
            forwards,
            more,
            killed: Vec::new(),
            others_killed: false,
            ended_unseen: None,
            sockets_known: false,
            program_unsure: false,
            main_sent_nothing: !signals.iter().any(by_main),
            observed: self.stop.armed_sockets(),
        }
    }

    /// To other processes than the main one, in the order of their times.
    fn signals(&self) -> Vec<InnerSignal> {
        let mut all: Vec<InnerSignal> = signals(self.timeline).collect();
        all.retain(|fact| !self.main.same(&id(&fact.target)));
        all.sort_by_key(InnerSignal::order);
        all
    }

    fn forward(&self, at: Boot, fact: &InnerSignal, signals: &[InnerSignal], entries: &[InnerEntry]) -> Forward {
        let target = fact.target;
        let handled = handled((self.state, self.timeline), (at, fact), signals, entries);
        let (handler_entered, raised_again) = handled.unzip();
        let exit = exit(self.state, &id(&target));
        let effective = |kill: &&InnerSignal| kill.result != SignalResult::Ignored && kill.at >= at && kill.to(&target);
        let mut kills = signals.iter().filter(effective);
        let kill = kills.clone().find(|kill| kill.signal == Signal::KILL);
        let ended_by = |fault: &&InnerSignal| {
            fault.is_fault_by_another() && exit.is_some_and(|exit| exit.status.signal() == Some(fault.signal))
        };
        let ending = kill.or_else(|| kills.find(ended_by));
        Forward {
            at,
            signal: fact.signal,
            sender: fact.sender,
            target,
            parent: fact.parent,
            result: fact.result,
            disposition: fact.disposition,
            state: fact.state,
            handler_entered,
            raised_again: raised_again.flatten(),
            still_pending: kill
                .and_then(|kill| kill.pending)
                .map(|pending| pending.contains(fact.signal)),
            kill: ending.map(|kill| InnerKill {
                at: kill.at,
                signal: kill.signal,
                sender: kill.sender,
                role: kill.role,
                by_oom_daemon: kill.by_oom_daemon,
            }),
            exit,
            served: served(self.state, &id(&target)),
        }
    }
}

/// The same of a signal that the timeline has.
pub(super) fn handled_by(of: (&State, &Timeline), fact: &SignalFact) -> Option<(Boot, Option<RaisedAgain>)> {
    let signals: Vec<InnerSignal> = of.1.signals.iter().map(InnerSignal::of).collect();
    handled(of, (fact.at, &InnerSignal::of(fact)), &signals, &entries(of.1))
}

/// When the target of a signal of that time entered its handler, and how it raised the signal again.
fn handled(
    (state, timeline): (&State, &Timeline),
    (at, fact): (Boot, &InnerSignal),
    signals: &[InnerSignal],
    entries: &[InnerEntry],
) -> Option<(Boot, Option<RaisedAgain>)> {
    let target = id(&fact.target);
    let of_target = |entry: &&InnerEntry| entry.signal == fact.signal && entry.process.same(&target);
    let entered = entries.iter().filter(of_target).filter(|entry| !entry.discarded);
    let entered = entered.filter_map(|entry| entry.at_or_after(at)).min()?;
    let again = signals
        .iter()
        .filter(|again| again.to(&fact.target) && again.is_raised() && again.signal == fact.signal);
    let again = again
        .filter_map(|again| Some((again.at_or_after(entered)?, again)))
        .min_by_key(|(at, _)| *at);
    let raised = again.map(|(at, again)| {
        let mut read = entries.iter().filter(of_target).filter(|entry| entry.discarded);
        let discarded = again.result == SignalResult::Ignored || read.any(|entry| entry.last >= at);
        let acted = acted(state, timeline, &target, (entered, at));
        RaisedAgain { at, discarded, acted }
    });
    Some((entered, raised))
}

/// See [`RaisedAgain::acted`].
fn acted(state: &State, timeline: &Timeline, process: &ProcessId, (from, to): (Boot, Boot)) -> bool {
    let is_between = |at: Boot| from <= at && at < to;
    let is_its = |sender: &InnerProcess| process.same(&id(sender));
    let sent = signals(timeline)
        .filter(|fact| is_its(&fact.sender) && !is_its(&fact.target))
        .any(|fact| is_between(fact.at) || is_between(fact.last));
    let signalled = |child: &ProcessId| {
        let by_others =
            |fact: &InnerSignal| child.same(&id(&fact.target)) && !is_its(&fact.sender) && fact.role != Role::Itself;
        signals(timeline).any(|fact| by_others(&fact))
    };
    let mut children = state.exits.iter().filter(|(at, exit)| {
        let is_child = exit.task.ppid == process.tgid && exit.task.tgid != process.tgid;
        is_child && is_between(*at)
    });
    sent || children.any(|(_, exit)| !signalled(&ProcessId::of(&exit.task)))
}

fn entries(timeline: &Timeline) -> Vec<InnerEntry> {
    let of_timeline = timeline.delivers.iter().map(InnerEntry::of);
    timeline.inside.entries.iter().copied().chain(of_timeline).collect()
}

/// Of the processes of the subject among themselves, and to them. Where no init of a pid namespace is known, the timeline has them.
fn signals(timeline: &Timeline) -> impl Iterator<Item = InnerSignal> {
    let of_timeline = timeline.signals.iter().map(InnerSignal::of);
    let inner = timeline.inside.signals.iter().copied();
    inner.chain(of_timeline.filter(InnerSignal::is_relevant))
}

pub(super) fn exit(state: &State, of: &ProcessId) -> Option<MainExit> {
    let exits = state.exits.iter().filter(|(_, exit)| of.is(&exit.task));
    let exits = exits.map(|(at, exit)| MainExit {
        at: *at,
        status: exit.status,
    });
    let candidates = state.candidates.iter().filter(|candidate| candidate.id.same(of));
    exits
        .chain(candidates.filter_map(|candidate| Some(candidate.exit?.main())))
        .min_by_key(|exit| exit.at)
}

/// The process had clients when it ended, as far as the kernel looked.
fn served(state: &State, of: &ProcessId) -> bool {
    state.exits.iter().any(|(_, exit)| of.is(&exit.task) && exit.served())
}

/// Keeps the most important ones: those that were killed, or whose exit is not known, then those that a signal terminated. Returns the
/// number of the others.
fn keep(forwards: &mut Vec<Forward>) -> u64 {
    let more = forwards.len().saturating_sub(Inside::MOST);
    if more > 0 {
        forwards.sort_by_key(|forward| {
            let status = forward.exit.map(|exit| exit.status.reported_code());
            let rank = match status {
                None | Some(137) => 0,
                Some(129..) => 1,
                Some(_) => 2,
            };
            (rank, forward.at, forward.target.tgid)
        });
        forwards.truncate(Inside::MOST);
        forwards.sort_by_key(|forward| (forward.at, forward.target.tgid));
    }
    more as u64
}

pub(super) fn process(task: &Task) -> InnerProcess {
    InnerProcess {
        tgid: task.tgid,
        comm: task.comm,
        start: task.start,
    }
}

pub(super) fn id(process: &InnerProcess) -> ProcessId {
    ProcessId {
        tgid: process.tgid,
        start: process.start,
        exact: true,
    }
}
