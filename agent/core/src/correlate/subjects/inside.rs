//! Signals among the processes of a subject after the main process got its stop signal, put together as the way of the stop signal inside.

mod descent;
mod killed;

use super::inner::{InnerEntry, InnerSender, InnerSignal, id};
use super::process::ProcessId;
use super::subject::State;
use super::timeline::{SignalFact, Timeline};
use crate::event::{Disposition, ProcessExit, SignalResult};
use crate::ids::Signal;
use crate::termination::{Forward, InnerKill, InnerProcess, Inside, MainExit, RaisedAgain, Role};
use crate::time::Boot;
use crate::tolerances::TOGETHER;
use crate::verdict::judge::is_at_once;

use descent::Descent;
pub(super) use killed::{ended_by_default, killed, killed_by_end_of, unseen};

/// The stop whose way is followed.
pub(super) struct Way<'a> {
    pub state: &'a State,
    pub timeline: &'a Timeline,
    pub main: ProcessId,
    pub stop: &'a SignalFact,
    /// By which the first party asked.
    pub first: &'a SignalFact,
    /// Of the SIGKILL to the main process, otherwise its exit.
    pub deadline: Boot,
    pub end: Boot,
}

impl Way<'_> {
    pub fn inside(&self) -> Inside {
        let (signals, entries) = (self.signals(), entries(self.timeline));
        let descent = Descent::new(self.state, &self.main, &signals);
        let since = self.first.at;
        let mut forwards: Vec<Forward> = Vec::new();
        for fact in signals.iter().filter(|fact| fact.sends_on(self.stop.signal.signal)) {
            let Some(at) = fact.at_or_after(since).filter(|at| *at <= self.end) else {
                continue;
            };
            match forwards.iter_mut().find(|known| fact.to(&known.target)) {
                None => forwards.push(self.forward(at, fact, (&signals, &entries, &descent))),
                // A shell ignores SIGINT and SIGQUIT for what it starts in the background, and its trap then sends SIGTERM.
                Some(known) if known.result == SignalResult::Ignored && fact.result != SignalResult::Ignored => {
                    *known = self.forward(at, fact, (&signals, &entries, &descent));
                }
                Some(_) => {}
            }
        }
        forwards.sort_by_key(|forward| (forward.at, forward.target.tgid));
        let more = keep(&mut forwards);
        let is_main = |process: &InnerProcess| self.main.same(&id(process));
        let by_main = |fact: &InnerSignal| fact.role == Role::Inside && is_main(&fact.sender) && fact.last >= since;
        Inside {
            unsignalled: self.unsignalled(&signals, &forwards, &descent),
            pool: self.pool((&signals, &entries, &descent)),
            forwards,
            more,
            killed: Vec::new(),
            others_killed: false,
            ended_unseen: None,
            sockets_known: false,
            program_unsure: false,
            ended_by_default: false,
            main_sent_nothing: !signals.iter().any(by_main),
            observed: self.stop.armed_sockets() && self.first.armed_sockets(),
        }
    }

    /// Sent inside to a process without a handler, which is no worker of the sender's own.
    fn is_second(&self, fact: &InnerSignal) -> bool {
        fact.disposition == Disposition::Default
            && fact.sends_on(self.stop.signal.signal)
            && fact.sender.comm != fact.target.comm
    }

    /// To other processes than the main one, in the order of their times.
    fn signals(&self) -> Vec<InnerSignal> {
        let mut all: Vec<InnerSignal> = signals(self.timeline).collect();
        all.retain(|fact| !self.main.same(&id(&fact.target)));
        all.sort_by_key(InnerSignal::order);
        all
    }

    fn forward(
        &self,
        at: Boot,
        fact: &InnerSignal,
        (signals, entries, descent): (&[InnerSignal], &[InnerEntry], &Descent),
    ) -> Forward {
        let target = fact.target;
        let handled = handled((self.state, self.timeline), (at, fact), signals, entries);
        let exit = exit(self.state, &id(&target));
        let effective = |kill: &&InnerSignal| kill.result != SignalResult::Ignored && kill.at >= at && kill.to(&target);
        let mut kills = signals.iter().filter(effective);
        let kill = kills.clone().find(|kill| kill.signal == Signal::KILL);
        // After it read the first: a fault that another process sent, or a signal for which it had no handler, or none any more.
        let ended_by = |other: &&InnerSignal| {
            let is_later = other.at > at && fact.disposition != Disposition::Default && self.is_second(other);
            let is_it = other.is_fault_by_another() || is_later;
            is_it && exit.is_some_and(|exit| exit.status.signal() == Some(other.signal))
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
            handler_entered: handled.and_then(Begun::entered),
            raised_again: handled.and_then(|begun| begun.raised),
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
            served: served(self.state, &id(&target))
                || self.timeline.sockets.holders.held(target.tgid, at).connection.is_some(),
            has_cut: self.timeline.sockets.holders.has_cut(target.tgid, at),
            killed_by_own: ending.is_some_and(|kill| descent.is_own(kill.sender.tgid)),
        }
    }
}

/// The same of a signal that the timeline has.
pub(super) fn handled_by(of: (&State, &Timeline), fact: &SignalFact) -> Option<Begun> {
    let signals: Vec<InnerSignal> = of.1.signals.iter().map(InnerSignal::of).collect();
    handled(of, (fact.at, &InnerSignal::of(fact)), &signals, &entries(of.1))
}

/// A shutdown at a signal.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    /// The handler's entry; or the signal, of a process that reads it without a handler and raised it again, which proves that it read it.
    at: Boot,
    by_handler: bool,
    pub raised: Option<RaisedAgain>,
}

impl Begun {
    pub fn entered(self) -> Option<Boot> {
        self.by_handler.then_some(self.at)
    }

    fn is_reflex(self, timeline: &Timeline) -> bool {
        self.raised.is_some_and(|raised| is_reflex(self.at, raised, timeline))
    }
}

/// Nothing but the second signal came of what began then.
pub(super) fn is_reflex(began: Boot, raised: RaisedAgain, timeline: &Timeline) -> bool {
    is_at_once(began, raised) && !timeline.sockets.has_closed_listener(began, raised.at)
}

/// What the target of a signal of that time began at it, and how it raised the signal again.
fn handled(
    (state, timeline): (&State, &Timeline),
    (at, fact): (Boot, &InnerSignal),
    signals: &[InnerSignal],
    entries: &[InnerEntry],
) -> Option<Begun> {
    let target = id(&fact.target);
    let of_target = |entry: &&InnerEntry| entry.signal == fact.signal && entry.process.same(&target);
    let entered = entries.iter().filter(of_target).filter(|entry| !entry.discarded);
    let entered = entered.filter_map(|entry| entry.at_or_after(at)).min();
    let reads = (fact.state.blocked || fact.state.sigwait) && fact.result != SignalResult::Ignored;
    let began = entered.or(reads.then_some(at))?;
    let again = signals
        .iter()
        .filter(|again| again.to(&fact.target) && again.is_raised() && again.signal == fact.signal);
    // While the first one waits unread, a second one is no signal of its own.
    let again = again
        .filter(|again| entered.is_some() || again.result != SignalResult::AlreadyPending)
        .filter_map(|again| Some((again.at_or_after(began)?, again)))
        .min_by_key(|(at, _)| *at);
    let raised = again.map(|(at, again)| {
        let mut read = entries.iter().filter(of_target).filter(|entry| entry.discarded);
        let discarded = again.result == SignalResult::Ignored || read.any(|entry| entry.last >= at);
        let acted = acted(state, timeline, &target, (began, at));
        RaisedAgain { at, discarded, acted }
    });
    (entered.is_some() || raised.is_some()).then_some(Begun {
        at: began,
        by_handler: entered.is_some(),
        raised,
    })
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

impl InnerSignal {
    fn of(fact: &SignalFact) -> InnerSignal {
        let by = InnerSender {
            role: fact.sender.role,
            is_oom_daemon: fact.sender.is_oom_daemon(),
        };
        InnerSignal::new(fact.at, fact.last, &fact.signal, by)
    }
}

pub(super) fn entries(timeline: &Timeline) -> Vec<InnerEntry> {
    let of_timeline = timeline.delivers.iter().map(InnerEntry::of);
    timeline.inside.entries.iter().copied().chain(of_timeline).collect()
}

/// Of the processes of the subject among themselves, and to them. Where no init of a pid namespace is known, the timeline has them.
pub(super) fn signals(timeline: &Timeline) -> impl Iterator<Item = InnerSignal> {
    let of_timeline = timeline.signals.iter().map(InnerSignal::of);
    let inner = timeline.inside.signals.iter().copied();
    inner.chain(of_timeline.filter(InnerSignal::is_relevant))
}

/// It had the name of its parent when it got the signal, as what a program has forked. Who renames itself has the name of that time: by the
/// nearest signal to it or of it, otherwise by its exit.
fn is_forked(fact: &InnerSignal, (state, timeline): (&State, &Timeline)) -> bool {
    let signalled = signals(timeline).flat_map(|of| [of.target, of.sender].map(|process| (of.at, process)));
    let of_parent = signalled.filter(|(_, process)| process.tgid == fact.parent);
    let nearest = of_parent
        .min_by_key(|(at, _)| at.apart(fact.at))
        .map(|(_, process)| process.comm);
    let exited = || state.exits.iter().find(|(_, exit)| exit.task.tgid == fact.parent);
    let known = || state.candidates.iter().find(|known| known.id.tgid == fact.parent);
    let comm = nearest.or_else(|| exited().map(|(_, exit)| exit.task.comm));
    comm.or_else(|| known().map(|known| known.comm)) == Some(fact.target.comm)
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
pub(super) fn served(state: &State, of: &ProcessId) -> bool {
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

impl Way<'_> {
    /// See [`crate::termination::Inside::pool`].
    fn pool(&self, (signals, entries, descent): (&[InnerSignal], &[InnerEntry], &Descent)) -> Option<InnerProcess> {
        let stop = &self.stop.signal;
        let sender = InnerProcess::of(&stop.sender);
        if self.stop.sender.role == Role::Inside {
            return self.pool_by_exits(descent);
        }
        let is_by_stop = |fact: &&InnerSignal| {
            // Of the processes of a unit systemd signals some before the program that a shell waits for.
            let at = fact.at_or_after(self.stop.at.minus(TOGETHER));
            fact.signal == stop.signal && fact.sender.is(&sender) && at.is_some_and(|at| at <= self.end)
        };
        let ended = |fact: &&InnerSignal| self.is_ended_by_default(fact, (signals, entries));
        let parent_goes_on = |fact: &&InnerSignal| {
            let mut to_parent = signals.iter().filter(|other| other.target.tgid == fact.parent);
            !to_parent.any(|other| self.is_ended_by_default(other, (signals, entries)))
        };
        let mut all = signals.iter().filter(is_by_stop);
        let is_forked = |fact: &InnerSignal| is_forked(fact, (self.state, self.timeline));
        let of = all.find(|fact| ended(fact) && is_forked(fact) && parent_goes_on(fact));
        of.map(|fact| fact.target)
    }

    /// What a stop from inside leads to there is not recorded: by the exits alone, whoever signalled. What the main process ends is its own
    /// decision, but for the signal that it got itself: the sender may have signalled all of that name (`pkill`).
    fn pool_by_exits(&self, descent: &Descent) -> Option<InnerProcess> {
        let ended = |exit: &ProcessExit| exit.status.signal().filter(|signal| !signal.is_fault());
        let in_time = |at: Boot| self.stop.at <= at && at <= self.end;
        let exits = &self.state.exits;
        let is_forked = |exit: &ProcessExit| {
            let may_be_senders = ended(exit) == Some(self.stop.signal.signal);
            let of_parent = |id: &ProcessId| id.tgid == exit.task.ppid && (may_be_senders || !self.main.same(id));
            let mut ended_parents = exits.iter().filter(|(_, other)| of_parent(&ProcessId::of(&other.task)));
            let mut running = self.state.candidates.iter().filter(|other| of_parent(&other.id));
            let goes_on = |other: &ProcessExit| other.task.comm == exit.task.comm && ended(other).is_none();
            ended_parents.any(|(_, other)| goes_on(other)) || running.any(|other| other.comm == exit.task.comm)
        };
        let is_of_pool = |exit: &ProcessExit| ended(exit).is_some() && is_forked(exit) && descent.is_own(exit.task.tgid);
        let (_, exit) = exits.iter().find(|(at, exit)| in_time(*at) && is_of_pool(exit))?;
        Some(InnerProcess::of(&exit.task))
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
            Some(begun) => begun.is_reflex(self.timeline),
        }
    }
}
