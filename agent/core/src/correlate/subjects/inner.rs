//! Signals among the processes of a subject, and what their handlers did: kept in any order, bounded.

use crate::event::{Disposition, SignalDeliver, SignalGenerate, SignalResult, SignalSet, TargetState, Task};
use crate::ids::{Pid, Signal};
use crate::termination::{InnerProcess, Role};
use crate::time::Boot;

use super::lists::push_one;
use super::process::ProcessId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct InnerFacts {
    pub signals: Vec<InnerSignal>,
    pub entries: Vec<InnerEntry>,
    /// No fact is newer.
    newest: Boot,
    /// Facts that were dropped.
    pub over_cap: u64,
}

/// Equal signals from one process to another, and the first time's state.
#[derive(Clone, Copy, Debug)]
pub(super) struct InnerSignal {
    pub at: Boot,
    pub last: Boot,
    pub sender: InnerProcess,
    pub role: Role,
    pub by_oom_daemon: bool,
    pub target: InnerProcess,
    pub parent: Pid,
    pub signal: Signal,
    pub result: SignalResult,
    pub disposition: Disposition,
    pub state: TargetState,
    pub pending: Option<SignalSet>,
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
    pub at: Boot,
    pub last: Boot,
    pub process: ProcessId,
    pub signal: Signal,
    pub discarded: bool,
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
            true => push_one(&mut self.signals, new),
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
            true => push_one(&mut self.entries, new),
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
    pub fn new(at: Boot, last: Boot, signal: &SignalGenerate, by: InnerSender) -> InnerSignal {
        InnerSignal {
            at,
            last,
            sender: InnerProcess::of(&signal.sender),
            role: by.role,
            by_oom_daemon: by.is_oom_daemon,
            target: InnerProcess::of(&signal.target),
            parent: signal.target.ppid,
            signal: signal.signal,
            result: signal.result,
            disposition: signal.disposition,
            state: signal.state,
            pending: signal.pending,
        }
    }

    /// A possible stop signal, or the end of the process: a fault's signal only from another process.
    pub fn is_relevant(&self) -> bool {
        let signal = self.signal;
        // An init sends its stop signal on, whatever the process does with it.
        let unnoticed = signal.is_ignored_by_default() && self.disposition != Disposition::Handler && self.role != Role::Inside;
        let own_fault = signal.is_fault() && !self.is_fault_by_another();
        !signal.is_job_control() && !own_fault && !signal.is_self_inflicted() && !unnoticed
    }

    pub fn is_fault_by_another(&self) -> bool {
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

    pub fn order(&self) -> impl Ord + use<> {
        (self.at, self.target.tgid, self.sender.tgid, self.signal.number())
    }

    /// The first time from then on; of equal ones between the first and the last only these two are known.
    pub fn at_or_after(&self, since: Boot) -> Option<Boot> {
        [self.at, self.last].into_iter().find(|at| *at >= since)
    }

    pub fn to(&self, process: &InnerProcess) -> bool {
        self.target.is(process)
    }

    pub fn is_raised(&self) -> bool {
        self.role == Role::Itself && self.disposition == Disposition::Default
    }

    /// What sends a stop on: the same signal, or a conventional one (an init can be set to send another).
    pub fn sends_on(&self, stop: Signal) -> bool {
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

    pub fn of(&(at, deliver): &(Boot, SignalDeliver)) -> InnerEntry {
        InnerEntry::new(at, &deliver.task, deliver.signal, false)
    }

    fn is_like(&self, other: &InnerEntry) -> bool {
        self.process.same(&other.process) && (self.signal, self.discarded) == (other.signal, other.discarded)
    }

    pub fn at_or_after(&self, since: Boot) -> Option<Boot> {
        [self.at, self.last].into_iter().find(|at| *at >= since)
    }
}

pub(super) fn id(process: &InnerProcess) -> ProcessId {
    ProcessId {
        tgid: process.tgid,
        start: process.start,
        exact: true,
    }
}
