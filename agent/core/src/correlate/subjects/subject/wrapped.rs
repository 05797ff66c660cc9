//! A unit's first process may be the wrapper of its program.

use super::State;
use crate::attribute::Subject;
use crate::correlate::subjects::process::Candidate;
use crate::correlate::subjects::timeline::SignalFact;
use crate::event::{Disposition, ExitStatus};
use crate::termination::Role;
use crate::time::Boot;
use crate::tolerances::TOGETHER;

/// See [`State::others`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::correlate::subjects) enum Others {
    None,
    /// All; the last one then.
    Exited(Boot),
    Run,
}

/// The default action of that signal terminated it.
fn is_by_default(process: &Candidate, stop: &SignalFact) -> bool {
    let by = process.exit.and_then(|exit| exit.status.signal());
    by == Some(stop.signal.signal) && stop.signal.disposition == Disposition::Default
}

impl State {
    /// systemd sends the stop signal to each process of a unit, and the default action ends a shell that only waited for its program. The
    /// program is the main process then: it closed sockets after the signal, the shell none. Of several the one that ended worst. None until
    /// all have exited.
    pub(super) fn wrapped(&self, first: &Candidate) -> Option<Candidate> {
        let stop = self.ended_by_systemd(first)?;
        let sockets = &self.timeline.as_deref()?.sockets;
        let is_awaited = self.others_of(first) == Others::Run && self.removed.is_none();
        if is_awaited || sockets.holders.has_closed(first.id.tgid, stop.at) || !sockets.knows_holders(stop.at) {
            return None;
        }
        let by_tcp = |fact: &SignalFact| sockets.holders.has_closed(fact.signal.target.tgid, stop.at);
        // Beside TCP a Unix socket is mostly for the administrator. Of sockets that no probe observes the exit's record tells.
        let serves_tcp = self.stopped_with(first, stop).any(by_tcp);
        let by_others = |fact: &SignalFact| {
            let mut served = self.served().filter(|of| of.id.is(&fact.signal.target));
            !serves_tcp && served.any(|of| of.unobserved || of.held.unix_listener)
        };
        let is_program = |fact: &&SignalFact| by_tcp(fact) || by_others(fact);
        let programs = self
            .stopped_with(first, stop)
            .filter(is_program)
            .map(|fact| self.stopped_candidate(fact));
        programs.min_by_key(|program| {
            let rank = match program.exit.map(|exit| exit.status) {
                None => 0,
                Some(ExitStatus::Signaled { .. }) => 1,
                Some(ExitStatus::Exited(1..)) => 2,
                Some(ExitStatus::Exited(0)) => 3,
            };
            (rank, program.id.start, program.id.tgid)
        })
    }

    /// The stop signal of the unit's first process, which has exited.
    fn stopped_by_systemd(&self, first: &Candidate) -> Option<&SignalFact> {
        let is_unit = matches!(self.subject, Subject::Unit { .. });
        let exit = first.exit.filter(|_| is_unit)?;
        let is_it = |fact: &&SignalFact| {
            let is_to_it = fact.at <= exit.at && first.id.is(&fact.signal.target);
            fact.sender.role == Role::Runtime && fact.is_conventional_stop() && is_to_it
        };
        self.signals().iter().filter(is_it).max_by_key(|fact| fact.key())
    }

    /// systemd's signals with that one to other processes.
    fn stopped_with(&self, first: &Candidate, stop: &SignalFact) -> impl Iterator<Item = &SignalFact> {
        let (first, at) = (first.id, stop.at);
        let is_with = move |fact: &&SignalFact| {
            let apart = fact.at.max(at).since(fact.at.min(at));
            let is_other = !first.is(&fact.signal.target) && apart <= TOGETHER;
            fact.sender.role == Role::Runtime && fact.is_stop() && is_other
        };
        self.signals().iter().filter(is_with)
    }

    /// The default action of systemd's stop signal ended the unit's first process: it may be a wrapper of the program.
    pub fn may_be_wrapped(&self) -> bool {
        self.first_process()
            .is_some_and(|first| self.ended_by_systemd(&first).is_some())
    }

    /// The stop signal of the unit's first process, which the signal's default action ended.
    fn ended_by_systemd(&self, first: &Candidate) -> Option<&SignalFact> {
        self.stopped_by_systemd(first).filter(|stop| is_by_default(first, stop))
    }

    /// What became of the other processes to which systemd sent the stop signal of the unit's first process, once that has exited.
    pub fn others(&self) -> Others {
        self.first_process().map_or(Others::None, |first| self.others_of(&first))
    }

    fn others_of(&self, first: &Candidate) -> Others {
        let Some(stop) = self.stopped_by_systemd(first) else {
            return Others::None;
        };
        let exits = self
            .stopped_with(first, stop)
            .map(|fact| self.stopped_candidate(fact).exit_at());
        let exit = |exit: Option<Boot>| exit.map_or(Others::Run, Others::Exited);
        exits.map(exit).max().unwrap_or(Others::None)
    }

    /// The target of a signal, which systemd may have started itself.
    fn stopped_candidate(&self, fact: &SignalFact) -> Candidate {
        let mut of = Candidate::of(&fact.signal.target, fact.at, true);
        let exit = self.exits.iter().find(|(_, exit)| of.id.is(&exit.task));
        if let Some((at, exit)) = exit {
            of.ended(*at, exit);
        }
        let known = self.candidates.iter().find(|known| known.id.same(&of.id));
        of.exit = of.exit.or(known.and_then(|known| known.exit));
        of
    }
}
