//! A process of a subject, and one that may be the main process.

use std::time::Duration;

use crate::event::{Armed, ExitStatus, HeldSockets, ProcessExit, Task};
use crate::ids::{Comm, Pid};
use crate::input::ProcessFact;
use crate::termination::{InnerProcess, MainExit, MainProcess};
use crate::time::Boot;
use crate::tolerances::START_SLACK;

/// A process, identified beyond the reuse of process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::correlate) struct ProcessId {
    pub tgid: Pid,
    pub start: Boot,
    /// False if `start` is from `/proc`.
    pub exact: bool,
}

/// A process that may be the main one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub id: ProcessId,
    pub ns_level: u32,
    pub ns_pid: u32,
    /// Came in from outside the subject, or was there at the start.
    pub outside: bool,
    pub comm: Comm,
    /// When the process had that name: an exec changes the name.
    pub comm_at: Boot,
    /// When the process from outside executed, if its start does not show this: the fork may be long before.
    pub came: Option<Boot>,
    pub exit: Option<Ended>,
    /// Who started it, by the first record.
    pub parent: Pid,
    /// It executed a program, or was there when the observation began.
    pub executed: bool,
}

/// The exit of such a process, by its record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub at: Boot,
    pub status: ExitStatus,
    /// Whether the kernel recorded the sockets from then on.
    pub armed: Option<Armed>,
    /// Other tasks of its cgroups remained.
    pub left_others: bool,
    /// What it served clients with, and whether with a socket that no probe observes: see [`ProcessExit::served`].
    pub sockets: Option<(HeldSockets, bool)>,
}

/// A process that served clients until its exit, by the exit's record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub id: ProcessId,
    pub comm: Comm,
    /// See [`Candidate::came`].
    pub came: Option<Boot>,
    pub at: Boot,
    pub status: ExitStatus,
    pub held: HeldSockets,
    /// With a socket that no probe observes.
    pub unobserved: bool,
    pub is_own: bool,
}

impl Served {
    pub fn process(&self) -> InnerProcess {
        self.id.named(self.comm)
    }

    /// Of a later life than the one that terminated at `end`.
    pub fn is_after(&self, end: Boot) -> bool {
        self.id.is_of_later_life(self.came, end)
    }
}

impl ProcessId {
    pub fn of(task: &Task) -> ProcessId {
        ProcessId {
            tgid: task.tgid,
            start: task.start,
            exact: true,
        }
    }

    pub fn is(&self, task: &Task) -> bool {
        self.same(&ProcessId::of(task))
    }

    /// Started after `end`; a start from `/proc` is rounded down.
    pub fn is_after(&self, end: Boot) -> bool {
        let slack = if self.exact { Duration::ZERO } else { START_SLACK };
        self.start.plus(slack) > end
    }

    /// The same of a process that executed then: see [`Candidate::came`].
    fn is_of_later_life(&self, came: Option<Boot>, end: Boot) -> bool {
        self.is_after(end) || came.is_some_and(|came| came > end)
    }

    fn named(&self, comm: Comm) -> InnerProcess {
        InnerProcess {
            tgid: self.tgid,
            comm,
            start: self.start,
        }
    }

    pub fn same(&self, other: &ProcessId) -> bool {
        let apart = self.start.apart(other.start);
        let exact = self.exact && other.exact;
        self.tgid == other.tgid && (apart.is_zero() || !exact && apart <= START_SLACK)
    }
}

impl Candidate {
    pub fn of(task: &Task, at: Boot, outside: bool) -> Candidate {
        Candidate {
            id: ProcessId::of(task),
            ns_level: task.ns_level,
            ns_pid: task.ns_pid,
            outside,
            comm: task.comm,
            comm_at: at,
            came: None,
            exit: None,
            parent: task.ppid,
            executed: false,
        }
    }

    pub fn of_fact(fact: &ProcessFact, outside: bool) -> Candidate {
        Candidate {
            id: ProcessId {
                tgid: fact.tgid,
                start: fact.start,
                exact: false,
            },
            ns_level: fact.ns_level,
            ns_pid: fact.ns_pid,
            outside,
            comm: Comm::new(&fact.comm),
            comm_at: fact.start,
            came: None,
            exit: None,
            parent: fact.ppid,
            executed: true,
        }
    }

    pub fn is_ns_init(&self) -> bool {
        self.ns_level > 0 && self.ns_pid == 1
    }

    /// runc's own first process, which had `init` made as a child of runc's, and not of its own. The init comes in from outside like any other,
    /// but may be killed before it executes, so that no record shows this.
    pub fn is_stage_before(&self, init: &Candidate) -> bool {
        self.comm.is_stage_of_runc() && init.parent != self.id.tgid
    }

    pub fn process(&self) -> MainProcess {
        MainProcess {
            tgid: self.id.tgid,
            ns_pid: self.ns_pid,
            is_ns_init: self.is_ns_init(),
            comm: self.comm,
            start: self.id.start,
            executed: self.executed,
        }
    }

    pub fn as_inner(&self) -> InnerProcess {
        self.id.named(self.comm)
    }

    /// Of a later life than the one that terminated at `end`.
    pub fn is_after(&self, end: Boot) -> bool {
        self.id.is_of_later_life(self.came, end)
    }

    /// A candidate may execute again: the first time counts.
    pub fn came_in(&mut self, at: Option<Boot>) {
        self.came = [self.came, at].into_iter().flatten().min();
    }

    pub fn exit_at(&self) -> Option<Boot> {
        self.exit.map(|exit| exit.at)
    }

    pub fn ended(&mut self, at: Boot, exit: &ProcessExit) {
        self.ended_by(Ended {
            at,
            status: exit.status,
            armed: exit.armed,
            left_others: exit.leaves_others,
            sockets: exit.served().then(|| (exit.held.unwrap_or_default(), exit.unobserved)),
        });
        self.named(exit.task.comm, at);
    }

    /// The first exit counts.
    fn ended_by(&mut self, exit: Ended) {
        if self.exit.is_none_or(|known| known.at > exit.at) {
            self.exit = Some(exit);
        }
    }

    /// The latest name.
    pub fn named(&mut self, comm: Comm, at: Boot) {
        if at >= self.comm_at {
            (self.comm, self.comm_at) = (comm, at);
        }
    }

    /// The facts of both, in either order.
    pub fn merge(&mut self, other: &Candidate) {
        if other.id.exact && !self.id.exact {
            self.id = other.id;
            (self.ns_level, self.ns_pid) = (other.ns_level, other.ns_pid);
        }
        self.outside |= other.outside;
        self.executed |= other.executed;
        self.came_in(other.came);
        self.named(other.comm, other.comm_at);
        if let Some(exit) = other.exit {
            self.ended_by(exit);
        }
    }
}

impl Ended {
    pub fn main(&self) -> MainExit {
        MainExit {
            at: self.at,
            status: self.status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit's record came under another start, as `/proc` rounds it.
    #[test]
    fn the_exit_that_another_record_of_a_process_has_is_whole() {
        let found = ProcessFact {
            tgid: Pid(200),
            ppid: Pid(1),
            start: Boot(0),
            ns_level: 0,
            ns_pid: 200,
            comm: "web".to_owned(),
            cgroups: Vec::new(),
        };
        let exit = Ended {
            at: Boot(1),
            status: ExitStatus::Exited(0),
            armed: None,
            left_others: true,
            sockets: Some((HeldSockets::default(), true)),
        };
        let mut known = Candidate::of_fact(&found, true);
        let mut other = known;
        other.exit = Some(exit);
        known.merge(&other);
        let known = known.exit.expect("an exit");
        assert_eq!((known.left_others, known.sockets), (true, exit.sockets));
    }
}
