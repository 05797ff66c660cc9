//! Processes of the subject's own, other than the main one, that were killed, or ended by the default action of a signal.

use super::descent::Descent;
use super::{Way, entries, exit, handled, is_forked, signals};
use crate::correlate::subjects::inner::{InnerEntry, InnerSignal, id};
use crate::correlate::subjects::process::{Candidate, ProcessId, Served};
use crate::correlate::subjects::subject::State;
use crate::correlate::subjects::timeline::{SignalFact, Timeline};
use crate::event::{Disposition, SignalResult};
use crate::ids::Signal;
use crate::termination::{Forward, Held, InnerKill, Inside, Killed, Role, Unsignalled};
use crate::time::Boot;
use crate::tolerances::PASSED_ON;

impl Way<'_> {
    pub(super) fn unsignalled(&self, signals: &[InnerSignal], forwards: &[Forward], descent: &Descent) -> Vec<Unsignalled> {
        let at_the_end = |fact: &&InnerSignal| {
            let by_others = matches!(fact.role, Role::Kernel | Role::Runtime);
            fact.signal == Signal::KILL && by_others && fact.last >= self.deadline
        };
        // What begins after the stop signal is a step of the shutdown itself, such as the `sleep` of a trap.
        let is_before = |kill: &&InnerSignal| kill.target.start <= self.first.at;
        let mut killed: Vec<&InnerSignal> = signals
            .iter()
            .filter(at_the_end)
            .filter(|kill| !was_signalled(signals, kill, self.first.at))
            .filter(is_before)
            .filter(|kill| descent.is_own(kill.target.tgid))
            .collect();
        // First the children of a process that got the signal, and that may wait for them.
        killed.sort_by_key(|kill| !forwards.iter().any(|forward| forward.target.tgid == kill.parent));
        let mut unsignalled: Vec<Unsignalled> = Vec::new();
        for kill in killed {
            let is_new = unsignalled.iter().all(|of| of.process != kill.target);
            if is_new && unsignalled.len() < Inside::UNSIGNALLED {
                unsignalled.push(Unsignalled {
                    process: kill.target,
                    parent: kill.parent,
                });
            }
        }
        unsignalled
    }
}

/// See [`Inside::killed`], from then on; and what had clients, by its exit's record, up to [`PASSED_ON`] before. Whether there were others, which
/// came in from outside as far as their sockets show.
///
/// A program that the default action of another signal ended counts where that signal is none of the stop's way to that exit, which has
/// rules of its own ([`Forward`]): a shell sends it on after the exit, systemd sends it to each process, and it can be of any number or of
/// any sender.
pub(in crate::correlate::subjects) fn killed(
    state: &State,
    timeline: &Timeline,
    main: &Candidate,
    (stop, since, end): (Option<&SignalFact>, Boot, Boot),
) -> (Vec<Killed>, bool) {
    // Above the main process of a unit is its wrapper.
    let above = state.first_process().map(|first| first.id);
    let is_below = |of: &ProcessId| !main.id.same(of) && above.is_none_or(|above| !above.same(of));
    let mut all: Vec<InnerSignal> = signals(timeline).filter(|fact| is_below(&id(&fact.target))).collect();
    all.sort_by_key(InnerSignal::order);
    let descent = Descent::new(state, &main.id, &all);
    let defaults = Defaults {
        state,
        main: main.id,
        timeline,
        stop,
        since,
        end,
        signals: &all,
        entries: &entries(timeline),
    };
    // While nobody stops the subject, what is sent inside is not recorded: an earlier signal that waits, or a later one after a thread waited for
    // this one, or a debugger took it. Nor is what ended a process that is only a zombie when this one comes.
    let is_unsure = |fact: &InnerSignal, at: Boot, exited: Option<Boot>| {
        let may_be_read = stop.is_none() && (fact.state.blocked || fact.state.sigwait || fact.state.traced);
        fact.result == SignalResult::AlreadyPending
            || fact.signal != Signal::KILL && may_be_read
            || exited.is_some_and(|exited| exited < at)
    };
    let kills = all.iter().filter_map(|fact| {
        let is_anothers = fact.result != SignalResult::Ignored && fact.role != Role::Itself;
        let exit = exit(state, &id(&fact.target));
        let at = match fact.signal {
            Signal::KILL => {
                let is_killed = exit.is_none_or(|exit| exit.status.signal() == Some(Signal::KILL));
                fact.at_or_after(since.minus(PASSED_ON)).filter(|_| is_killed)
            }
            signal => exit
                .filter(|exit| exit.status.signal() == Some(signal))
                .and_then(|_| defaults.has_ended(fact)),
        };
        at.filter(|_| is_anothers).map(|at| (at, fact, exit.map(|exit| exit.at)))
    });
    let (mut killed, mut others): (Vec<Killed>, bool) = (Vec::new(), false);
    for (at, fact, exited) in kills {
        let held = with_exit(
            timeline.sockets.holders.held(fact.target.tgid, at),
            served(state, &id(&fact.target)),
        );
        let had_none = held.listener.or(held.connection).or(held.other).is_none();
        // Where no init takes the orphans, a daemon has a parent outside, as an exec probe has: what it serves, or has served until its
        // shutdown, shows what it is.
        let serves = held.listener.or(held.other).is_some()
            || timeline
                .sockets
                .holders
                .has_closed_listener(fact.target.tgid, since.minus(PASSED_ON));
        let is_own = descent.is_own(fact.target.tgid) || !descent.has_init() && serves;
        others |= !is_own && !descent.has_init() && at >= since;
        if !is_own || killed.iter().any(|known| fact.to(&known.process)) || at < since && had_none {
            continue;
        }
        let is_unsure = is_unsure(fact, at, exited);
        killed.push(Killed {
            process: fact.target,
            kill: InnerKill {
                at,
                signal: fact.signal,
                sender: fact.sender,
                role: if is_unsure { Role::Unknown } else { fact.role },
                by_oom_daemon: fact.by_oom_daemon && !is_unsure,
            },
            is_unsure,
            was_signalled: was_signalled(&all, fact, since),
            runtime_signalled: signalled(&all, fact, since).any(|fact| fact.role == Role::Runtime),
            held,
        });
    }
    killed.sort_by_key(|killed| (!killed.is_program(), killed.kill.at, killed.process.tgid));
    killed.truncate(Inside::KILLED);
    (killed, others)
}

/// Which signals other than SIGKILL ended a program by their default action.
struct Defaults<'a> {
    state: &'a State,
    main: ProcessId,
    timeline: &'a Timeline,
    stop: Option<&'a SignalFact>,
    /// When somebody asked the subject to stop, otherwise its end.
    since: Boot,
    end: Boot,
    signals: &'a [InnerSignal],
    entries: &'a [InnerEntry],
}

impl Defaults<'_> {
    /// When it was sent, if it did.
    fn has_ended(&self, fact: &InnerSignal) -> Option<Boot> {
        // A worker that got it before the stop is not of the stop; and without one, what the subject's own processes end before their exit
        // is their own decision.
        let by_main = self.main.same(&id(&fact.sender));
        let from = match self.stop {
            // Of a stop that the kernel discarded the main process knows nothing.
            Some(stop) if !(by_main && stop.is_discarded()) => self.since,
            _ if fact.role == Role::Inside => self.end,
            _ => self.end.minus(PASSED_ON),
        };
        let at = fact.at_or_after(from)?;
        let counts = !self.is_on_the_way(fact) && !self.is_handled(at, fact) && self.is_to_program(fact);
        counts.then_some(at)
    }

    /// The stop signal, or a fault that another process sent instead, as [`Forward`] has it.
    fn is_on_the_way(&self, fact: &InnerSignal) -> bool {
        // Of a stop that the kernel discarded, nothing is sent on.
        let Some(stop) = self.stop.filter(|stop| !stop.is_discarded()) else {
            return false;
        };
        let in_time = |of: &InnerSignal| of.at_or_after(self.since).is_some_and(|at| at <= self.end);
        let is_forward = |of: &InnerSignal| of.sends_on(stop.signal.signal) && in_time(of) && of.to(&fact.target);
        let is_it = |of: &InnerSignal| is_forward(of) && (of.signal == fact.signal || fact.is_fault_by_another());
        self.signals.iter().any(is_it)
    }

    /// A handler that did its work raises the signal again, too. Of a process that nobody stops, the handler's entry is not recorded.
    fn is_handled(&self, at: Boot, fact: &InnerSignal) -> bool {
        let of = (self.state, self.timeline);
        match handled(of, (at, fact), self.signals, self.entries) {
            Some(begun) => !begun.is_reflex(self.timeline),
            None => fact.disposition == Disposition::Handler,
        }
    }

    /// By its exit's record. What its parent has forked has the parent's listener, and without a connection waits for work. Of a stop in which
    /// a listener was closed, who has only another one may be a helper: see `terminated` of the judgement.
    fn is_to_program(&self, fact: &InnerSignal) -> bool {
        let is_forked = is_forked(fact, (self.state, self.timeline));
        let is_helper = || fact.role != Role::Other && self.timeline.sockets.has_closed_listener(self.since, self.end);
        match served(self.state, &id(&fact.target)) {
            Some(of) => of.held.connection || of.unobserved || !is_forked && !is_helper(),
            // Of connections to a server that record has none.
            None => {
                let held = self.timeline.sockets.holders.held(fact.target.tgid, fact.last);
                held.connection.is_some() && !is_forked && !is_helper()
            }
        }
    }
}

/// See [`Inside::ended_by_default`].
pub(in crate::correlate::subjects) fn ended_by_default(
    state: &State,
    timeline: &Timeline,
    main: &ProcessId,
    since: Boot,
) -> bool {
    let is_ended = |fact: &InnerSignal| {
        let by = exit(state, &id(&fact.target)).and_then(|exit| exit.status.signal());
        fact.signal != Signal::KILL && by == Some(fact.signal) && fact.disposition == Disposition::Default
    };
    let mut others = signals(timeline).filter(|fact| !main.same(&id(&fact.target)) && fact.at_or_after(since).is_some());
    others.any(|fact| is_ended(&fact))
}

/// Processes other than the main one that served clients and were ended by a signal without a record, from then on, none of `forwards`: unless
/// something arms it, what is sent to processes inside is not recorded, nor what is sent on once the main process has exited.
pub(in crate::correlate::subjects) fn unseen(
    state: &State,
    timeline: &Timeline,
    main: &ProcessId,
    (since, end, forwards): (Boot, Boot, &[Forward]),
) -> Vec<(Served, Signal)> {
    // Not the next life's.
    let others = state.served().filter(|of| !of.id.same(main) && !of.is_after(end));
    let ended = others.filter_map(|of| Some((of, of.status.signal()?)));
    let is_forward = |of: &Served| forwards.iter().any(|forward| forward.target.is(&of.process()));
    let is_seen = |of: &Served, by: Signal| signals(timeline).any(|fact| fact.signal == by && fact.to(&of.process()));
    ended
        .filter(|(of, signal)| of.at >= since && !is_forward(of) && !is_seen(of, *signal))
        .collect()
}

/// As PID 1 exits, the kernel kills the others of its namespace.
pub(in crate::correlate::subjects) fn killed_by_end_of(main: &Candidate, end: Boot, of: Served) -> Killed {
    Killed {
        process: of.process(),
        kill: InnerKill {
            at: end,
            signal: Signal::KILL,
            sender: main.as_inner(),
            role: Role::Kernel,
            by_oom_daemon: false,
        },
        was_signalled: false,
        runtime_signalled: false,
        is_unsure: false,
        held: with_exit(Held::default(), Some(of)),
    }
}

/// With what the exit's own record shows.
fn with_exit(held: Held, exit: Option<Served>) -> Held {
    let Some(of) = exit else { return held };
    Held {
        listener: held.listener.or(of.held.listener.then_some(of.at)),
        connection: held.connection.or(of.held.connection.then_some(of.at)),
        other: (of.unobserved || of.held.unix_listener).then_some(of.at),
    }
}

fn served(state: &State, process: &ProcessId) -> Option<Served> {
    state.served().find(|of| of.id.same(process))
}

fn was_signalled(signals: &[InnerSignal], end: &InnerSignal, since: Boot) -> bool {
    signalled(signals, end, since).next().is_some()
}

/// The signals that did not end it.
fn signalled<'a>(signals: &'a [InnerSignal], end: &'a InnerSignal, since: Boot) -> impl Iterator<Item = &'a InnerSignal> {
    let is_other = |fact: &InnerSignal| ![Signal::KILL, end.signal].contains(&fact.signal);
    let before = move |fact: &&InnerSignal| is_other(fact) && fact.to(&end.target) && fact.role != Role::Itself;
    signals.iter().filter(before).filter(move |fact| fact.last >= since)
}
