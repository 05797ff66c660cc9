//! An exit that is a step before or after the main process, and not a termination of the subject.

use std::time::Duration;

use super::State;
use crate::attribute::Subject;
use crate::correlate::subjects::process::{Candidate, Ended, ProcessId};
use crate::correlate::subjects::timeline::SignalFact;
use crate::event::ExitStatus;
use crate::termination::Role;
use crate::time::Boot;

impl State {
    /// Not a main process: an exit with 0 and without a stop was a step before the main process (systemd's `ExecStartPre=`, a
    /// runtime's own first stage, the launcher of a daemon, whose process lives on) or after it (`ExecStopPost=`), and not a termination of
    /// the subject. systemd removes the cgroup of a
    /// finished unit, so a unit that continues in the same cgroup is not finished.
    pub fn is_step(&self, linger: Duration) -> bool {
        let Some(main) = self.main() else { return false };
        let Some(exit) = self.unasked_exit(&main) else { return false };
        let mut others = self
            .candidates
            .iter()
            .filter(|other| other.outside && !other.id.same(&main.id))
            // What begins later is the subject's next life.
            .filter(|other| other.id.start.since(exit.at) <= linger);
        match self.subject {
            // The exit of a pid namespace's init terminates every process in it.
            Subject::Container { .. } if self.removed.is_none() => {
                others.any(|other| other.exit.is_none() && (!main.is_ns_init() || other.ns_level < main.ns_level))
            }
            Subject::Container { .. } => false,
            Subject::Unit { .. } if self.removed.is_none() => {
                others.any(|other| other.is_after(exit.at)) || exit.left_others && !self.are_others_stopped(&main, exit.at)
            }
            Subject::Unit { .. } => self.follows_at_once(&main, linger),
        }
    }

    /// systemd ends what is left of a unit as soon as its main process has exited.
    fn are_others_stopped(&self, main: &Candidate, since: Boot) -> bool {
        let is_by_manager = |fact: &SignalFact| {
            let is_later = fact.last >= since && !main.id.is(&fact.signal.target);
            fact.sender.role == Role::Runtime && is_later
        };
        self.signals().iter().any(is_by_manager)
    }

    /// Whether the exit of a unit's process would be a step after the main process if the cgroup was removed.
    pub fn is_last_step(&self, linger: Duration) -> bool {
        let is_step = |main: &Candidate| self.unasked_exit(main).is_some() && self.follows_at_once(main, linger);
        matches!(self.subject, Subject::Unit { .. }) && self.main().as_ref().is_some_and(is_step)
    }

    fn follows_at_once(&self, main: &Candidate, linger: Duration) -> bool {
        let follows = |(_, end): (ProcessId, Boot)| main.is_after(end) && main.id.start.since(end) <= linger;
        self.finished.is_some_and(follows)
    }

    /// A runtime's own process that exited with 0 before the init it created: not a main process.
    pub(super) fn is_stage(&self, ended: &Candidate, next: &Candidate) -> bool {
        let is_container = matches!(self.subject, Subject::Container { .. });
        is_container && self.unasked_exit(ended).is_some() && !ended.is_ns_init() && next.is_ns_init()
    }

    /// The exit may be of a runtime's own process, and the following init is not known yet.
    pub fn may_be_stage(&self) -> bool {
        let Some(main) = self.main() else { return false };
        let is_container = matches!(self.subject, Subject::Container { .. });
        let alone = self.candidates.iter().all(|other| other.id.same(&main.id));
        is_container && self.unasked_exit(&main).is_some() && !main.is_ns_init() && alone
    }

    /// By its name, the main process is runc's own. Whoever takes that name is reported once the cgroup is removed.
    pub fn is_named_as_stage(&self) -> bool {
        self.main().is_some_and(|main| main.comm.is_stage_of_runc())
    }

    /// Its exit, if that was with 0 and without a stop signal.
    fn unasked_exit(&self, of: &Candidate) -> Option<Ended> {
        let exit = of.exit.filter(|exit| exit.status == ExitStatus::Exited(0));
        exit.filter(|_| !self.got_stop_signal(&of.id))
    }

    fn got_stop_signal(&self, id: &ProcessId) -> bool {
        self.signals().iter().any(|fact| id.is(&fact.signal.target) && fact.is_stop())
    }
}
