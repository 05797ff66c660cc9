//! Processes that the program had forked, as far as their name shows, and that the sender of the stop ended beside it.

use super::{Way, exit, handled};
use crate::correlate::subjects::inner::{InnerEntry, InnerSignal, id};
use crate::event::{Disposition, SignalResult};
use crate::ids::{Comm, Pid};
use crate::termination::{InnerProcess, Role};
use crate::tolerances::TOGETHER;
use crate::verdict::judge::is_at_once;

impl Way<'_> {
    /// See [`crate::termination::Inside::pool`].
    pub(super) fn pool(&self, signals: &[InnerSignal], entries: &[InnerEntry]) -> Option<InnerProcess> {
        let stop = &self.stop.signal;
        let sender = InnerProcess::of(&stop.sender);
        // What a process of the subject sends on is a `Forward`.
        if self.stop.sender.role == Role::Inside {
            return None;
        }
        let is_by_stop = |fact: &&InnerSignal| {
            // Of the processes of a unit systemd signals some before the program that a shell waits for.
            let at = fact.at_or_after(self.stop.at.minus(TOGETHER));
            fact.signal == stop.signal && fact.sender.is(&sender) && at.is_some_and(|at| at <= self.end)
        };
        let ended = |fact: &&InnerSignal| self.is_ended_by_default(fact, (signals, entries));
        let has_same_program = |fact: &&InnerSignal| {
            let parent = self.comm_of(fact.parent, signals);
            parent == Some(fact.target.comm)
        };
        let parent_goes_on = |fact: &&InnerSignal| {
            let mut to_parent = signals.iter().filter(|other| other.target.tgid == fact.parent);
            !to_parent.any(|other| self.is_ended_by_default(other, (signals, entries)))
        };
        let mut all = signals.iter().filter(is_by_stop);
        let of = all.find(|fact| ended(fact) && has_same_program(fact) && parent_goes_on(fact));
        of.map(|fact| fact.target)
    }

    fn is_ended_by_default(&self, fact: &InnerSignal, (signals, entries): (&[InnerSignal], &[InnerEntry])) -> bool {
        let is_ended = match exit(self.state, &id(&fact.target)) {
            Some(exit) => exit.status.signal() == Some(fact.signal),
            None => fact.state.exiting && fact.disposition == Disposition::Default,
        };
        if !is_ended || fact.result == SignalResult::Ignored {
            return false;
        }
        match handled((self.state, self.timeline), (fact.at, fact), signals, entries) {
            // The record of a handler that only raised the signal again may be lost.
            None => true,
            Some((entered, raised)) => raised.is_some_and(|raised| {
                is_at_once(entered, raised) && !self.timeline.sockets.has_closed_listener(entered, raised.at)
            }),
        }
    }

    /// The name of a process whose child got a signal.
    fn comm_of(&self, of: Pid, signals: &[InnerSignal]) -> Option<Comm> {
        let mains = [&self.stop.signal.target].into_iter().map(InnerProcess::of);
        let signalled = signals.iter().flat_map(|fact| [fact.target, fact.sender]);
        let exited = self.state.exits.iter().map(|(_, exit)| InnerProcess::of(&exit.task));
        let mut known = mains.chain(signalled).chain(exited);
        known.find(|known| known.tgid == of).map(|known| known.comm)
    }
}
