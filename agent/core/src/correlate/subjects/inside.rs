//! Signals among the processes of a subject after the main process got its stop signal, put together as the way of the stop signal inside.

mod killed;
mod pool;

use crate::event::SignalResult;
use crate::ids::Signal;
use crate::termination::{Forward, InnerKill, InnerProcess, Inside, MainExit, RaisedAgain, Role};
use crate::time::Boot;

use super::inner::{InnerEntry, InnerSender, InnerSignal, id};
use super::process::ProcessId;
use super::subject::State;
use super::timeline::{SignalFact, Timeline};

pub(super) use killed::{killed, killed_by_end_of, unseen};

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

impl InnerSignal {
    fn of(fact: &SignalFact) -> InnerSignal {
        let by = InnerSender {
            role: fact.sender.role,
            is_oom_daemon: fact.sender.is_oom_daemon(),
        };
        InnerSignal::new(fact.at, fact.last, &fact.signal, by)
    }
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
