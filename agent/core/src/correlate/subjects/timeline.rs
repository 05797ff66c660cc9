//! The facts of a possible termination: collected in any order, bounded, used in the order of their own times.

use std::collections::VecDeque;

use crate::event::{Armed, Disposition, ProcessExit, SignalDeliver, SignalGenerate, SignalResult, si_code};
use crate::ids::{Comm, Pid, Signal};
use crate::termination::{Actor, OomKill, OomRole, Role};
use crate::time::Boot;
use crate::tolerances::{BETWEEN_AGENTS, FOLD};

use super::inner::InnerFacts;
use super::lists::push_one;
use super::process::{Candidate, ProcessId};
use super::traffic::Sockets;

/// Of a signal's sender: mostly shared with the index.
const TEXTS: usize = 64;
/// Most equal handler entries that are kept.
const ENTRIES: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub signals: Vec<SignalFact>,
    pub delivers: Vec<(Boot, SignalDeliver)>,
    pub ooms: Vec<OomFact>,
    /// Of the other processes.
    pub inside: InnerFacts,
    pub sockets: Sockets,
    /// Number of dropped facts.
    pub over_cap: u64,
    /// A dropped fact was a signal or a handler entry.
    pub over_cap_matters: bool,
}

#[derive(Clone, Debug)]
pub(super) struct SignalFact {
    pub at: Boot,
    /// The last of `count` equal signals.
    pub last: Boot,
    pub count: u32,
    pub sender: Actor,
    pub signal: SignalGenerate,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OomFact {
    pub at: Boot,
    pub victim: ProcessId,
    pub parent: Pid,
    pub ns_level: u32,
    pub comm: Comm,
    /// Reported already as a child that was killed.
    pub reported: bool,
}

impl OomFact {
    pub fn kill(&self, main: Option<&Candidate>, exits: &VecDeque<(Boot, ProcessExit)>) -> OomKill {
        let role = match main {
            Some(main) if main.id.same(&self.victim) => OomRole::Main,
            Some(main) if self.is_of_runtime(main) => OomRole::Runtime,
            _ => self.role(exits),
        };
        OomKill {
            at: self.at,
            tgid: self.victim.tgid,
            start: self.victim.start,
            parent: self.parent,
            of_main: main.is_some_and(|main| main.id.tgid == self.parent),
            comm: self.comm,
            role,
        }
    }

    /// Of a process that is not the main one, as far as the kernel shows it here: which of the others came from outside only its pod's
    /// execs show.
    fn role(&self, exits: &VecDeque<(Boot, ProcessExit)>) -> OomRole {
        let exit = exits
            .iter()
            .find(|(_, exit)| self.victim.is(&exit.task))
            .map(|(_, exit)| exit);
        match exit {
            Some(exit) if exit.served() => OomRole::Worker,
            Some(exit) if exit.held.is_some_and(|held| !held.more) => OomRole::Helper,
            _ => OomRole::Inside,
        }
    }

    /// runc, in the container's pid namespace, before it executes the program: containers that the program runs itself have a namespace of
    /// their own.
    fn is_of_runtime(&self, main: &Candidate) -> bool {
        self.comm.as_bytes() == b"runc:[2:INIT]" && self.ns_level == main.ns_level && self.parent != main.id.tgid
    }
}

impl Timeline {
    /// Keeps a signal; an `essential` signal (to a possible main process) replaces others. False: not kept.
    pub fn signal(&mut self, fact: SignalFact, essential: bool, cap: usize) -> bool {
        if let Some(known) = self.signals.iter_mut().rev().find(|known| known.is_like(&fact)) {
            known.at = known.at.min(fact.at);
            known.last = known.last.max(fact.last);
            known.count = known.count.saturating_add(fact.count);
            return true;
        }
        if self.signals.len() < cap {
            push_one(&mut self.signals, fact);
            return true;
        }
        self.over_cap += 1;
        self.over_cap_matters |= essential;
        // Without an init of a pid namespace the signals inside are here, and so are those of systemd to each process of a unit: one that ends
        // a process of the program's pool matters.
        let is_by_manager = fact.sender.role == Role::Runtime && fact.signal.signal != Signal::KILL;
        let is_harmless = is_by_manager && (fact.signal.disposition != Disposition::Default || self.is_to_helper(&fact));
        self.inside.over_cap += u64::from(!essential && !is_harmless);
        false
    }

    /// The parent of the process got the same signal from the same sender, and has another name: what a program forks has its name.
    fn is_to_helper(&self, fact: &SignalFact) -> bool {
        let target = &fact.signal.target;
        let is_to_parent = |known: &&SignalFact| {
            let is_same = (known.sender.tgid, known.signal.signal) == (fact.sender.tgid, fact.signal.signal);
            is_same && known.signal.target.tgid == target.ppid
        };
        let mut to_parent = self.signals.iter().filter(is_to_parent).peekable();
        to_parent.peek().is_some() && to_parent.all(|known| known.signal.target.comm != target.comm)
    }

    pub fn deliver(&mut self, at: Boot, deliver: SignalDeliver, cap: usize) -> bool {
        let is_alike = |(known_at, known): &(Boot, SignalDeliver)| {
            known.signal == deliver.signal
                && known.task.tgid == deliver.task.tgid
                && known.task.start == deliver.task.start
                && known_at.apart(at) <= FOLD
        };
        // The earliest entry after a stop signal decides: of a flood a few and the last are enough.
        if self.delivers.iter().filter(|known| is_alike(known)).count() >= ENTRIES {
            let alike = self.delivers.iter_mut().filter(|known| is_alike(known));
            if let Some(latest) = alike.max_by_key(|(at, _)| *at) {
                latest.0 = latest.0.max(at);
            }
            return true;
        }
        if self.delivers.len() < cap {
            push_one(&mut self.delivers, (at, deliver));
            return true;
        }
        self.over_cap += 1;
        self.over_cap_matters = true;
        false
    }

    /// False: one was dropped.
    pub fn oom(&mut self, fact: OomFact, is_main: impl Fn(&ProcessId) -> bool, cap: usize) -> bool {
        if self.ooms.iter().any(|known| known.victim.same(&fact.victim)) {
            return true;
        }
        // Only that the main process was a victim counts, and the latest of the others.
        if self.ooms.len() >= cap {
            let others = self.ooms.iter_mut().filter(|known| !is_main(&known.victim));
            let oldest = others.min_by_key(|known| (known.at, known.victim.tgid));
            if let Some(oldest) = oldest
                && (is_main(&fact.victim) || oldest.at < fact.at)
            {
                *oldest = fact;
            }
            self.over_cap += 1;
            return false;
        }
        push_one(&mut self.ooms, fact);
        true
    }

    /// The runtime's first stop signal.
    pub fn first_stop_signal(&self) -> Option<&SignalFact> {
        let stops = self
            .signals
            .iter()
            .filter(|fact| fact.sender.role == Role::Runtime && fact.is_stop());
        stops.min_by_key(|fact| fact.key())
    }

    pub fn is_empty(&self) -> bool {
        self.signals.is_empty()
            && self.delivers.is_empty()
            && self.ooms.is_empty()
            && self.inside.is_empty()
            && self.sockets.is_empty()
    }

    /// Time of the earliest fact.
    pub fn since(&self) -> Option<Boot> {
        let signals = self.signals.iter().map(|fact| fact.at);
        let delivers = self.delivers.iter().map(|(at, _)| *at);
        let ooms = self.ooms.iter().map(|fact| fact.at);
        let inside = self.inside.since();
        signals
            .chain(delivers)
            .chain(ooms)
            .chain(inside)
            .chain(self.sockets.since())
            .min()
    }

    /// Bytes, with its own size.
    pub fn bytes(&self) -> usize {
        size_of::<Timeline>() + self.facts_bytes() + self.sockets.bytes()
    }

    fn facts_bytes(&self) -> usize {
        self.signals.capacity() * (size_of::<SignalFact>() + TEXTS)
            + self.delivers.capacity() * size_of::<(Boot, SignalDeliver)>()
            + self.ooms.capacity() * size_of::<OomFact>()
            + self.inside.bytes()
    }

    /// Whether [`Timeline::squeeze`] frees anything.
    pub fn is_squeezable(&self) -> bool {
        let has_facts =
            self.signals.capacity() > 1 || self.delivers.capacity() > 0 || self.ooms.capacity() > 0 || self.inside.bytes() > 0;
        has_facts || self.sockets.is_squeezable()
    }

    /// Bytes that [`Timeline::squeeze`] frees at last: the runtime's stop signal stays.
    pub fn freed(&self) -> usize {
        let facts = self.facts_bytes().saturating_sub(size_of::<SignalFact>() + TEXTS);
        facts + self.sockets.freed()
    }

    /// Frees memory, of what takes most. Returns the number of dropped facts, which count as over the cap.
    pub fn squeeze(&mut self) -> u64 {
        if self.sockets.is_squeezable() && self.sockets.bytes() >= self.facts_bytes() {
            return self.sockets.squeeze();
        }
        // Without a known main process, the target of the runtime's stop signal is the main process.
        let first = self.first_stop_signal().cloned();
        let dropped = (self.signals.len() + self.delivers.len() + self.ooms.len()) as u64;
        let dropped = dropped - u64::from(first.is_some());
        self.signals = Vec::from_iter(first);
        self.signals.shrink_to_fit();
        self.delivers = Vec::new();
        self.ooms = Vec::new();
        let dropped = dropped + self.inside.squeeze();
        self.over_cap += dropped;
        self.over_cap_matters |= dropped > 0;
        dropped
    }

    /// Number of facts.
    pub fn len(&self) -> usize {
        self.signals.len() + self.delivers.len() + self.ooms.len() + self.inside.len() + self.sockets.len()
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.signals.len() + self.delivers.len() + self.ooms.len() + self.inside.len() + self.sockets.kept()
    }

    /// Drops old facts, which are too long ago to be the reason of an exit (`finish::STOP_REACH`). The runtime's stop signal stays, for
    /// any grace period: of many the last four, so that a later one may be taken for the first.
    pub fn expire(&mut self, before: Boot) {
        self.signals
            .retain(|fact| fact.last >= before || fact.sender.role == Role::Runtime && fact.is_conventional_stop());
        let over = self.signals.len().saturating_sub(4);
        if over > 0 && self.signals.iter().all(|fact| fact.last < before) {
            self.signals.sort_by_key(|fact| fact.key());
            self.signals.drain(..over);
        }
        let oldest = self.signals.iter().map(|fact| fact.at).min().unwrap_or(before).min(before);
        self.delivers.retain(|(at, _)| *at >= oldest);
        self.ooms.retain(|fact| fact.at >= before);
        self.inside.expire(oldest);
        self.sockets.forget(before);
    }
}

impl SignalFact {
    /// Order of facts: by their own time, then by content, so that the order of arrival never decides.
    pub fn key(&self) -> (Boot, u8, Pid) {
        (self.at, self.signal.signal.number(), self.sender.tgid)
    }

    /// A possible stop signal, by number and sender; the rest of the facts decide.
    pub fn is_stop(&self) -> bool {
        let signal = &self.signal;
        let never = signal.signal == Signal::KILL || signal.signal.is_job_control();
        let unnoticed = signal.signal.is_ignored_by_default() && signal.disposition != Disposition::Handler;
        match self.sender.role {
            Role::Runtime => !never && !unnoticed,
            Role::Other | Role::Unknown => signal.signal.is_request(),
            Role::Inside => signal.signal.is_request() && signal.result != SignalResult::Ignored,
            Role::Kernel => signal.signal.is_from_terminal() && signal.result != SignalResult::Ignored,
            Role::Itself => false,
        }
    }

    pub fn is_conventional_stop(&self) -> bool {
        self.is_stop() && self.signal.signal.is_conventional_stop()
    }

    /// The process has a handler, or reads the signal without one.
    pub fn is_handled(&self) -> bool {
        let SignalGenerate {
            result,
            disposition,
            state,
            ..
        } = &self.signal;
        let is_read = *disposition == Disposition::Handler || state.blocked || state.sigwait;
        self.signal.signal != Signal::KILL && *result != SignalResult::Ignored && is_read
    }

    /// By the kernel, so that nothing follows from it.
    pub fn is_discarded(&self) -> bool {
        self.signal.result == SignalResult::Ignored
    }

    /// Whether the kernel recorded the sockets from this signal on.
    pub fn armed_sockets(&self) -> bool {
        let is_inside = matches!(self.sender.role, Role::Inside | Role::Itself);
        let armed = self.signal.armed.map(Armed::is_armed);
        armed.unwrap_or_else(|| !is_inside && armed_before_version_4(&self.signal))
    }

    /// The record of another agent of the same event.
    pub fn is_same(&self, other: &SignalFact) -> bool {
        let (a, b) = (&self.signal, &other.signal);
        let near = |at: Boot| at.apart(other.at) <= BETWEEN_AGENTS;
        (self.sender.tgid, a.signal, a.code) == (other.sender.tgid, b.signal, b.code)
            && (a.target.tgid, a.target.start) == (b.target.tgid, b.target.start)
            && (near(self.at) || near(self.last))
    }

    fn is_like(&self, other: &SignalFact) -> bool {
        let (a, b) = (&self.signal, &other.signal);
        self.sender.tgid == other.sender.tgid
            && a.signal == b.signal
            && a.target.tgid == b.target.tgid
            && a.target.start == b.target.start
            && a.result == b.result
            && a.disposition == b.disposition
            && a.state == b.state
            && a.armed == b.armed
            && (a.code, a.group) == (b.code, b.group)
            && self.sender.role == other.sender.role
            && other.last.since(self.last) <= FOLD
            && self.at.since(other.at) <= FOLD
    }
}

/// The rule of older probes: their records (up to version 3) do not have whether the target's sockets were armed.
pub(super) fn armed_before_version_4(signal: &SignalGenerate) -> bool {
    let from_outside = signal.sender.cgroup != signal.target.cgroup || signal.code == si_code::KERNEL;
    let is_queued = !matches!(signal.result, SignalResult::OverflowFail | SignalResult::LoseInfo);
    from_outside && is_queued && signal.signal != Signal::CONT
}
