//! A timeline → the facts of one termination. Pure: sorts and selects.

mod missing;
mod signals;
mod sockets;

use crate::attribute::Index;
use crate::event::{ExitStatus, Kind, ProcessExit};
use crate::ids::{CgroupId, Pid, Signal};
use crate::ledger::{Claim, Home, Ledger};
use crate::termination::{
    FailedChild, Fatal, InnerProcess, Inside, Kill, MainExit, OomKill, Open, Role, Stop, TerminationFacts, TerminationKey,
};
use crate::time::Boot;
use crate::tolerances::{CHILD_REACH, OOM_CHILD_REACH, OOM_SLACK, PASSED_ON};
use crate::verdict;
use std::time::Duration;

use super::clients::Clients;
use super::inside::{Way, is_reflex};
use super::observing::Observing;
use super::process::Candidate;
use super::subject::State;
use super::timeline::{SignalFact, Timeline};
use signals::{fatal, handled_last, is_cgroup_kill, stop_signal, to_main};

pub(super) use missing::may_have_been_stopped;

/// The state of the whole observation.
pub(super) struct Context<'a> {
    pub observing: &'a Observing,
    pub index: &'a Index,
    pub clients: &'a Clients,
    pub kubelet_known: bool,
    /// Records arrive in another order within this time.
    pub reorder: Duration,
    /// Evidence after the exit counts for this long.
    pub linger: Duration,
}

impl<'a> Context<'a> {
    pub fn ledger(&self, own: CgroupId, state: &'a State) -> Ledger<'a> {
        Ledger::new(&self.observing.coverage, Home::of(own, self.index), &state.rare().drops)
    }
}

/// The life of a subject's main process up to its end, and which signals ended it.
struct Life<'a> {
    context: &'a Context<'a>,
    own: CgroupId,
    state: &'a State,
    timeline: &'a Timeline,
    ledger: Ledger<'a>,
    main: Option<Candidate>,
    /// See [`to_main`].
    signals: Vec<&'a SignalFact>,
    /// The stop signal.
    stop: Option<&'a SignalFact>,
    /// By which the first party asked, before the stop or by it.
    first_asked: Option<&'a SignalFact>,
    /// The stop is the runtime's. Before another party's, and one that was only handled last, the runtime's may be missing.
    is_asked_for: bool,
    kill: Option<&'a SignalFact>,
    fatal: Option<Fatal>,
    begin: Boot,
    end: Boot,
    /// Until when clients count.
    until: Boot,
    now: Boot,
}

impl<'a> Life<'a> {
    fn new(
        context: &'a Context<'a>,
        (own, state): (CgroupId, &'a State),
        timeline: &'a Timeline,
        open: Open,
        now: Boot,
    ) -> Life<'a> {
        let main = state.main();
        let exit = main.as_ref().and_then(|main| main.exit);
        let unseen = match open {
            // The scan that did not show the process came later.
            Open::InGap { until, .. } => now.min(until),
            _ => now,
        };
        let end = exit.map(|exit| exit.at).or(state.removed).unwrap_or(unseen);
        let signals = to_main(timeline, main.as_ref(), end);
        let status = exit.map(|exit| exit.status);
        let by_kill = status.is_none_or(|status| status.signal() == Some(Signal::KILL));
        let kill = signals::kill(&signals).filter(|_| by_kill);
        // By its own decision, or by the signal that it handled and raised again.
        let may_follow =
            |fact: &SignalFact| status.is_some_and(|status| status.signal().is_none_or(|signal| signal == fact.signal.signal));
        let by_runtime = |fact: &SignalFact| fact.sender.role == Role::Runtime;
        let deadline = kill.map_or(end, |kill| kill.at);
        let asked = stop_signal(
            &signals,
            (state.own_stop, state.requested),
            deadline,
            kill.is_some_and(by_runtime),
        );
        let stop = asked.or_else(|| handled_last(&signals, end).filter(|fact| may_follow(fact)));
        let first_asked = stop.map(|stop| signals::first_asked(stop, &signals));
        let fatal = fatal(&signals, kill, status, main.as_ref());
        let first = stop.or(kill).map(|fact| fact.at);
        let until = if exit.is_some() {
            state.counted_until(end, context.linger)
        } else {
            end.plus(context.linger)
        };
        Life {
            context,
            own,
            state,
            timeline,
            ledger: context.ledger(own, state),
            main,
            signals,
            stop,
            first_asked,
            is_asked_for: asked.is_some_and(by_runtime),
            kill,
            begin: first.or(fatal.as_ref().map(|fatal| fatal.at)).unwrap_or(end),
            fatal,
            end,
            until,
            now,
        }
    }

    /// None if no main process is known.
    fn born(&self) -> Option<Boot> {
        Some(self.main?.id.start)
    }

    /// Not before the main process began.
    fn in_life(&self, at: Boot) -> Boot {
        self.born().map_or(at, |born| born.max(at))
    }

    fn exit(&self) -> Option<MainExit> {
        Some(self.main?.exit?.main())
    }

    /// Of the SIGKILL, otherwise the end.
    fn deadline(&self) -> Boot {
        self.kill.map_or(self.end, |kill| kill.at)
    }

    /// The stop, with the kernel's result.
    fn stop(&self) -> Option<Stop> {
        let fact = self.stop?;
        let pending = self.kill.and_then(|kill| kill.signal.pending);
        let of = (self.state, self.timeline);
        Some(Stop {
            still_pending: pending.map(|set| set.contains(fact.signal.signal)),
            ..signals::stop(fact, of, &self.signals, self.deadline())
        })
    }

    /// The way of the stop signal inside.
    fn inside(&self) -> Inside {
        let way = self.stop.zip(self.main.as_ref()).map(|(stop, main)| Way {
            state: self.state,
            timeline: self.timeline,
            main: main.id,
            stop,
            first: self.first_asked.unwrap_or(stop),
            deadline: self.deadline(),
            end: self.end,
        });
        way.map_or(Inside::default(), |way| way.inside())
    }

    /// Number of other processes that exited since the begin.
    fn other_exits(&self) -> u64 {
        let state = self.state;
        let main = self.main.map(|main| main.id.tgid);
        let in_time = |(at, tgid): &(Boot, Pid)| self.begin <= *at && *at <= self.end && Some(*tgid) != main;
        let exits = state.exits.iter().map(|(at, exit)| (*at, exit.task.tgid));
        let candidates = state.candidates.iter().filter_map(|of| Some((of.exit_at()?, of.id.tgid)));
        exits.chain(candidates).filter(in_time).count() as u64
            + self.ledger.dropped_exits().and_then(|hole| hole.most).unwrap_or(0)
    }
}

/// The facts of the termination of the subject's main process, as far as known. None without any event.
pub(super) fn facts(context: &Context<'_>, own: CgroupId, state: &State, open: Open, now: Boot) -> Option<TerminationFacts> {
    let empty = Timeline::default();
    let timeline = state.timeline.as_deref().unwrap_or(&empty);
    let life = Life::new(context, (own, state), timeline, open, now);
    let exit = life.exit();
    if life.main.is_none() && life.signals.is_empty() && !life.is_unseen(open) {
        return None;
    }
    // Without a stop request, a termination needs an observed exit.
    let unended = exit.is_none() && !matches!(open, Open::CgroupRemoved | Open::InGap { .. });
    if unended && life.stop.is_none() && life.kill.is_none() {
        return None;
    }
    let stop = life.stop();
    let inside = life.inside();
    // What a stop signal from inside leads to there is not recorded: nobody arms that by signalling itself. One that the kernel discarded
    // leads to nothing.
    let leads_on = |stop: &Stop| stop.sender.role != Role::Inside && !stop.is_discarded();
    let is_armed = life.first_asked.is_none_or(SignalFact::armed_sockets);
    let is_seen_inside = stop
        .as_ref()
        .is_some_and(|stop| leads_on(stop) && (is_armed || stop.sender.role != Role::Runtime));
    let oom = ooms(state, timeline, life.main.as_ref(), (life.begin, life.end));
    let missing = life.missing(&inside, &oom);
    let observed = life.observed(missing.has_gap(Claim::Main));
    let inside = life.with_killed(inside, observed, missing.lacks(Claim::Others, Kind::ProcessExit));
    // Which process's end it is decides from when on clients count.
    let is_main_sure = !missing.has_any(Claim::WhichMain);
    Some(TerminationFacts {
        key: TerminationKey {
            boot_id: context.observing.boot_id.clone(),
            cgroup: own,
            main_start: life.born(),
        },
        subject: state.subject.clone(),
        container: None,
        cgroup_path: context.index.path(own).map(str::to_owned),
        main: life.main.as_ref().map(Candidate::process),
        begin: life.begin,
        end: life.end,
        kill: life.kill.map(|fact| Kill {
            at: fact.at,
            sender: fact.sender.clone(),
            cgroup_kill: is_cgroup_kill(fact),
        }),
        exit,
        failed_child: exit.filter(|_| !is_seen_inside).and_then(|exit| failed_child(state, exit)),
        oom,
        oomd_reason: None,
        other_exits: life.other_exits(),
        traffic: life.traffic(observed, is_main_sure, stop.as_ref(), &inside),
        gaps: life.gaps(&missing),
        stop,
        inside,
        fatal: life.fatal,
        missing,
        open,
        shutdown: None,
    })
}

/// The runtime's stop signal that the kernel has discarded on its way, while the main process still runs: the main process, the time, the
/// signal to the main process, and the sentence.
pub(super) fn discarded(state: &State, now: Boot) -> Option<(Candidate, Boot, SignalFact, String)> {
    let main = state.main().filter(|main| main.exit.is_none() && state.removed.is_none())?;
    let timeline = state.timeline.as_deref()?;
    let signals = to_main(timeline, Some(&main), now);
    let fact = stop_signal(&signals, (state.own_stop, state.requested), now, true)
        .filter(|fact| fact.sender.role == Role::Runtime && fact.is_stop())?;
    let stop = signals::stop(fact, (state, timeline), &signals, now);
    let way = Way {
        state,
        timeline,
        main: main.id,
        stop: fact,
        first: signals::first_asked(fact, &signals),
        deadline: now,
        end: now,
    };
    let process = main.process();
    let (at, sentence) = match stop.raised_again {
        Some(raised) if raised.discarded => {
            if stop.began().is_some_and(|entered| !is_reflex(entered, raised, timeline)) {
                return None;
            }
            (raised.at, verdict::raised_in_vain(&process, stop.signal))
        }
        _ => verdict::discarded_inside(&process, &way.inside())?,
    };
    Some((main, at, fact.clone(), sentence))
}

/// See [`FailedChild`].
fn failed_child(state: &State, exit: MainExit) -> Option<FailedChild> {
    let code = exit.status.code()?;
    let is_passed_on = |(at, of): &&(Boot, ProcessExit)| {
        let before = exit.at.since(*at);
        let signal = match of.status {
            ExitStatus::Signaled { signal, .. } => signal,
            // A wrapper that passes the code on is judged by it.
            ExitStatus::Exited(failed) => {
                // 128 + n follows a signal: of a helper that the wrapper itself stopped, nothing shows that.
                let fails = (1..=128).contains(&failed) && code == 0;
                let serves = of.held.is_some_and(|held| held.listener) && (of.is_own || of.task.ns_level == 0);
                return fails && serves && *at <= exit.at && before <= PASSED_ON;
            }
        };
        let passes_on = signal.is_fault() && of.status.reported_code() == i32::from(code) && before <= CHILD_REACH;
        let hides = (code == 0 || of.status.reported_code() == i32::from(code)) && of.served() && before <= PASSED_ON;
        *at <= exit.at && (passes_on || hides)
    };
    let (at, of) = state.exits.iter().filter(is_passed_on).max_by_key(|(at, _)| *at)?;
    Some(FailedChild {
        process: InnerProcess::of(&of.task),
        exit: MainExit {
            at: *at,
            status: of.status,
        },
    })
}

fn ooms(state: &State, timeline: &Timeline, main: Option<&Candidate>, (begin, end): (Boot, Boot)) -> Vec<OomKill> {
    let near = |at: Boot| at.plus(OOM_CHILD_REACH) >= begin && at <= end.plus(OOM_SLACK);
    let mut ooms: Vec<OomKill> = timeline
        .ooms
        .iter()
        .filter(|fact| near(fact.at))
        .map(|fact| fact.kill(main, &state.exits))
        .collect();
    ooms.sort_by_key(|oom| (oom.at, oom.tgid));
    ooms
}
