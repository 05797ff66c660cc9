//! A timeline → the facts of one termination. Pure: sorts and selects.

use std::time::Duration;

use crate::attribute::Index;
use crate::event::{Armed, Disposition, ExitStatus, Kind, ProcessExit, SignalResult, TargetState};
use crate::ids::{CgroupId, Pid, Signal};
use crate::input::SeenClients;
use crate::termination::{
    FailedChild, Fatal, Gaps, Inside, Kill, LATE_REACH, MainExit, OomKill, Open, RaisedAgain, Role, Stop, TerminationFacts,
    TerminationKey,
};
use crate::time::Boot;
use crate::verdict;
use crate::verdict::judge::{OOM_CHILD_REACH, is_at_once};

use super::clients::Clients;
use super::coverage::{Coverage, Hole, Home};
use super::holes::{is_later, is_not_kept, is_unseen, lost_inside, main_unsure, signal_lost_since};
use super::inside::{Unseen, Way, acted, is_same, killed, killed_by_end_of, process, unseen};
use super::own_exits;
use super::subject::{Candidate, INIT, Others, State};
use super::timeline::{RUN_GAP, SignalFact, Timeline};
use super::traffic::Window;

/// A stop signal this long before the exit did not cause the exit, unless the runtime's SIGKILL followed.
const STOP_REACH: Duration = Duration::from_secs(3600);
/// The same with that SIGKILL: the longest plausible grace period.
const GRACE_REACH: Duration = Duration::from_secs(24 * 3600);
/// The same of a signal that mostly means something else, as "reload".
const HANDLED_REACH: Duration = Duration::from_secs(10);
/// `mark_victim` comes just after the SIGKILL and possibly just after the exit.
const OOM_SLACK: Duration = Duration::from_secs(1);
/// abort(3) goes on at once after a signal in vain.
const ABORT_REACH: Duration = Duration::from_millis(100);
/// An init passes the status of its child on at once.
const CHILD_REACH: Duration = Duration::from_secs(1);
/// The state of the whole observation.
pub(super) struct Context<'a> {
    pub boot_id: &'a str,
    pub index: &'a Index,
    pub coverage: &'a Coverage,
    pub clients: &'a Clients,
    pub kubelet_known: bool,
    /// Records arrive in another order within this time.
    pub reorder: Duration,
    /// Evidence after the exit counts for this long.
    pub linger: Duration,
}

/// The facts of the termination of the subject's main process, as far as known. None without any event.
pub(super) fn facts(context: &Context<'_>, own: CgroupId, state: &State, open: Open, now: Boot) -> Option<TerminationFacts> {
    let main = state.main();
    let exit = main.as_ref().and_then(|main| main.exit);
    let unseen = match open {
        // The scan that did not show the process came later.
        Open::InGap { until, .. } => now.min(until),
        _ => now,
    };
    let end = exit.map(|exit| exit.at).or(state.removed).unwrap_or(unseen);
    let empty = Timeline::default();
    let timeline = state.timeline.as_deref().unwrap_or(&empty);
    let signals = to_main(timeline, main.as_ref(), end);
    if main.is_none() && signals.is_empty() && !is_unseen(context, own, state, open, end) {
        return None;
    }
    let status = exit.map(|exit| exit.status);
    let kill_fact = kill(&signals).filter(|_| {
        matches!(
            status,
            None | Some(ExitStatus::Signaled {
                signal: Signal::KILL,
                ..
            })
        )
    });
    let by_runtime = kill_fact.is_some_and(|fact| fact.sender.role == Role::Runtime);
    let deadline = kill_fact.map_or(end, |fact| fact.at);
    // By its own decision, or by the signal that it handled and raised again.
    let may_follow = |fact: &SignalFact| match status {
        Some(ExitStatus::Exited(_)) => true,
        Some(ExitStatus::Signaled { signal, .. }) => signal == fact.signal.signal,
        None => false,
    };
    let asked = stop_signal(&signals, deadline, by_runtime);
    // Before one that only was handled last, or another party's, the one that asked may be missing.
    let is_runtimes = |fact: &SignalFact| fact.sender.role == Role::Runtime || state.requested.is_some();
    let is_asked_for = asked.is_some_and(is_runtimes);
    let stop_signal = asked.or_else(|| handled_last(&signals, end).filter(|fact| may_follow(fact)));
    let stop = stop_signal.map(|fact| Stop {
        still_pending: kill_fact
            .and_then(|kill| kill.signal.pending)
            .map(|set| set.contains(fact.signal.signal)),
        ..stop(fact, (state, timeline), &signals, main.as_ref(), deadline, end)
    });
    let way = stop_signal.zip(main.as_ref()).map(|(stop, main)| Way {
        state,
        timeline,
        main: main.id,
        stop,
        deadline,
        end,
    });
    let inside = way.map_or(Inside::default(), |way| way.inside());
    // What a stop signal from inside leads to there is not recorded: nobody arms that by signalling itself.
    let is_seen_inside = stop.as_ref().is_some_and(|stop: &Stop| stop.sender.role != Role::Inside);
    let failed_child = exit.filter(|_| !is_seen_inside).and_then(|exit| failed_child(state, exit));
    // Without a stop request, a termination needs an observed exit.
    let unended = exit.is_none() && !matches!(open, Open::CgroupRemoved | Open::InGap { .. });
    if unended && stop.is_none() && kill_fact.is_none() {
        return None;
    }
    let kill = kill_fact.map(|fact| Kill {
        at: fact.at,
        sender: fact.sender.clone(),
        cgroup_kill: is_cgroup_kill(fact),
    });
    let fatal = fatal(&signals, kill_fact, status, main.as_ref());
    let begin = stop
        .as_ref()
        .map(|stop| stop.at)
        .or(kill.as_ref().map(|kill| kill.at))
        .or(fatal.as_ref().map(|fatal| fatal.at))
        .unwrap_or(end);
    let oom = ooms(state, timeline, main.as_ref(), (begin, end));
    let born = main.as_ref().map_or(Boot(0), |main| main.id.start);
    let until = if exit.is_some() {
        state.counted_until(end, context.linger)
    } else {
        end.plus(context.linger)
    };
    let home = Home::of(own, context.index);
    let stop_reach = unseen_stop_reach(kill_fact);
    let mut missing = context.coverage.missing(home, born, (begin, end), is_asked_for, stop_reach);
    // Records of other CPUs may arrive that much later than the exit's.
    missing.gap |= context.coverage.has_gap(begin, end.plus(context.reorder));
    missing.over_cap = timeline.over_cap_matters;
    // A process without an exit may be one whose exit was dropped.
    let lacks_exit = stop.is_none() || inside.forwards.iter().any(|forward| forward.exit.is_none());
    let exits_matter = state.rare().exits_dropped > 0 && lacks_exit;
    missing.over_cap_inside = timeline.over_cap_matters || timeline.inside.over_cap > 0 || exits_matter;
    missing.earlier_stop = stop_signal.is_some_and(|stop| is_later(context, home, timeline, main.as_ref(), stop));
    let since = if stop.is_none() {
        begin.minus(own_exits::REACH)
    } else {
        begin
    };
    // The others of a unit end later.
    let inside_until = match state.others() {
        Others::None => until,
        Others::Exited(last) => until.max(last.plus(context.reorder)),
        Others::Run => until.max(now),
    };
    missing.lost_inside = lost_inside(context, home, state, since, inside_until);
    let by_runtime = stop.as_ref().is_some_and(|stop| stop.sender.role == Role::Runtime);
    missing.main_unsure = main_unsure(context, (own, state), main.as_ref(), by_runtime, now);
    let reach = context.coverage.reach(born, begin, is_asked_for);
    // An OOM kill of another process counts from before the stop signal on.
    let ooms_from = begin.min(end.minus(OOM_CHILD_REACH)).max(born);
    // Whether a victim came in from outside, its exec shows, or that of the process which started it.
    let others = oom.iter().filter(|oom| !oom.is_main() && !oom.of_main);
    let execs_from = others
        .map(|oom| oom.start.minus(LATE_REACH).max(born))
        .min()
        .filter(|from| *from < end);
    missing.gap_of_ooms = context.coverage.has_gap(execs_from.unwrap_or(end).min(ooms_from), end);
    for (kind, from) in [(Kind::ProcessExec, execs_from), (Kind::OomVictim, Some(ooms_from))] {
        if from.is_some_and(|from| context.coverage.lost_since(kind, home, from, end).is_some()) {
            missing.lose(kind);
        }
    }
    if stop_signal.is_none() {
        missing.stop_lost_since = signal_lost_since(context, home, state, (reach, end));
    }
    let around = (reach.min(born.minus(LATE_REACH)), now.max(until));
    let not_kept = |why: &[Hole]| is_not_kept(context, why, home, state, around);
    missing.not_recorded = not_kept(&[Hole::NotRecorded]);
    missing.damaged = !missing.not_recorded && not_kept(&[Hole::NotRecorded, Hole::Damaged]);
    let late_reach = (end.minus(LATE_REACH).max(born), end);
    missing.begins_late = !context
        .coverage
        .losses_by(&[Hole::NotRecorded], home, late_reach.0, late_reach.1)
        .is_empty();
    // Clients count from the deletion request on; of a termination without a stop, from the exit of the program below the main process.
    let is_unasked = stop_signal.is_none() && state.requested.is_none();
    let before = begin.minus(own_exits::REACH).max(born);
    let own_exits = is_unasked.then(|| &state.rare().own_exits);
    let own_since = own_exits.and_then(|own| own.since(before, begin));
    let clients_since = state.requested.or(own_since).map_or(begin, |at| at.min(begin));
    // What a process had open is in the record of its exit, and of the handler that may close it before.
    let exits_since = if is_unasked { before } else { clients_since };
    let lost_inside = context.coverage.losses_inside(home, exits_since, until);
    let is_any_lost = |of: Kind| lost_inside.iter().any(|(kind, _)| *kind == of);
    let is_recorded = own_exits.is_none_or(|own| {
        let is_watched = own_since.is_none_or(|at| state.is_watched_since(at));
        is_watched && !own.has_unrecorded(before, end)
    });
    let is_recorded = is_recorded && !is_any_lost(Kind::ProcessExit);
    let of_each_kind = |of: &dyn Fn(Boot) -> Vec<(Kind, u64)>| -> Vec<(Kind, u64)> {
        let others = of(reach).into_iter().filter(|(kind, _)| *kind != Kind::Tcp);
        let sockets = of(reach.min(clients_since))
            .into_iter()
            .filter(|(kind, _)| *kind == Kind::Tcp);
        others.chain(sockets).collect()
    };
    let is_asked = stop_signal.is_some() || state.requested.is_some();
    let observed_from = if is_asked { clients_since } else { end };
    // A signal of longer ago would be another request.
    let first_stop = observed_from.minus(RUN_GAP).max(born).min(reach);
    let mut losses = of_each_kind(&|from| context.coverage.losses_inside(home, from, until));
    let not_recorded = context.coverage.losses_by(&[Hole::NotRecorded], home, reach, until);
    let damaged = context.coverage.losses_by(&[Hole::Damaged], home, reach, until);
    let doubts = &state.rare().doubts;
    for (kind, count) in of_each_kind(&|from| doubts.within(from, until).collect()) {
        // A socket's event matters until clients' errors no longer count, any other until the exit.
        let reach = if kind == Kind::OomVictim {
            reach.min(ooms_from)
        } else {
            reach
        };
        let matters = doubts.within(reach, end).any(|(known, _)| known == kind);
        if matters && kind != Kind::Tcp {
            missing.lose(kind);
        }
        match losses.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => losses.push((kind, count)),
        }
    }
    // What no kernel lost. Lost events of sockets are stated whatever the reason: the severity depends on them.
    let not_kept = |kind: Kind| -> u64 {
        let damaged = damaged.iter().filter(|_| kind != Kind::Tcp);
        let of_kind = not_recorded.iter().chain(damaged).filter(|(known, _)| *known == kind);
        of_kind.map(|(_, count)| *count).sum()
    };
    let lost = losses
        .iter()
        .map(|(kind, count)| (*kind, count.saturating_sub(not_kept(*kind))));
    let lost = lost.filter(|(_, count)| *count > 0);
    let sockets_lost = losses.iter().any(|(kind, _)| *kind == Kind::Tcp);
    let cgroup_v1 = own.hierarchy != 0 || state.shares_cgroup;
    let unclosed = exit.is_some() && until <= now && !state.is_removed_by(until);
    let seen = context.coverage.sees_sockets() && !sockets_lost && !missing.gap && !cgroup_v1 && !state.cgroups_over;
    let seen_to_their_end = seen
        // The observation ended before all of the clients' time.
        && until <= now
        && !unclosed
        // Its record shows whether the sockets were recorded by then, and which connections it dropped.
        && exit.is_some();
    let exits_lost_inside = missing.lost_inside.contains(&Kind::ProcessExit);
    let inside = with_killed(
        inside,
        (state, timeline),
        main.as_ref(),
        stop_signal,
        (seen_to_their_end, exits_lost_inside),
    );
    let inside = Inside {
        program_unsure: is_program_unsure(context, home, (state, timeline), stop_signal, seen),
        ..inside
    };
    let observed = seen_to_their_end
        && !context.coverage.has_gap(clients_since, until)
        && timeline.sockets.over_cap() == 0
        // Which process's end it is decides from when on clients count.
        && missing.main_unsure.is_none()
        // A lost stop signal would be the start of what counts, and of what the kernel recorded.
        && context.coverage.is_observed("signal_generate")
        && signal_lost_since(context, home, state, (first_stop, observed_from)).is_none()
        && (stop_signal.is_none() || state.requested.is_some() || !context.coverage.has_gap(first_stop, observed_from))
        && is_recorded
        && watched(state, stop_signal, fatal.as_ref(), main.as_ref());
    let mut traffic = timeline.sockets.within(&Window {
        since: clients_since,
        until,
        refusing_from: state.refusing_from(end, context.linger),
        end,
        observed,
        sees_all: context.coverage.refused_clients() == SeenClients::All,
        clients: context.clients,
        kubelet_known: context.kubelet_known,
    });
    traffic.cgroup_v1 = cgroup_v1;
    traffic.unclosed = unclosed;
    let own_exits = &state.rare().own_exits;
    // Beside a TCP listener one on a Unix socket is mostly for the administrator, and no kernel keeps whom it has accepted.
    let serves_tcp = !traffic.listeners.is_empty() || traffic.accepted.count > 0;
    let is_unix_server = !serves_tcp && own_exits.has_unix(exits_since, until);
    let sees_handlers = context.coverage.is_observed("signal_deliver");
    // A lost signal may be one that was read without a handler.
    let mut before_end = context
        .coverage
        .losses_inside(home, exits_since, end.plus(context.reorder))
        .into_iter();
    let sees_signals = !is_any_lost(Kind::SignalDeliver) && !before_end.any(|(kind, _)| kind == Kind::SignalGenerate);
    traffic.observed &= serves_tcp || sees_handlers && sees_signals;
    traffic.other_sockets = is_unix_server || own_exits.has_unobserved(exits_since, until);
    traffic.unlooked = !serves_tcp && reads_unlooked(stop.as_ref(), kill_fact.is_some(), &inside);
    let main_id = main.as_ref().map(|main| main.id.tgid);
    let in_time = |at: Boot, tgid: Pid| begin <= at && at <= end && Some(tgid) != main_id;
    let others = state.exits.iter().filter(|(at, exit)| in_time(*at, exit.task.tgid)).count() as u64
        + state
            .candidates
            .iter()
            .filter(|c| c.exit_at().is_some_and(|at| in_time(at, c.id.tgid)))
            .count() as u64;
    let process = main.as_ref().map(Candidate::process);
    Some(TerminationFacts {
        key: TerminationKey {
            boot_id: context.boot_id.to_owned(),
            cgroup: own,
            main_start: born,
        },
        subject: state.subject.clone(),
        container: None,
        cgroup_path: context.index.path(own).map(str::to_owned),
        main: process,
        begin,
        end,
        stop,
        kill,
        fatal,
        exit,
        inside,
        failed_child,
        oom,
        oomd_reason: None,
        other_exits: others + state.rare().exits_dropped,
        traffic,
        gaps: Gaps {
            lost: lost.map(|(kind, count)| (kind.name(), count)).collect(),
            over_cap: timeline.over_cap + timeline.sockets.over_cap(),
            late_start: missing.late_start.is_some()
                && !missing.begins_late
                && context.coverage.is_late_start(born, end, stop_reach),
            unobserved: {
                let time = (begin, end, until.max(end.plus(context.reorder)));
                let late = missing.late_start.map(|_| stop_reach);
                context.coverage.unobserved(born, time, late)
            },
            inactive_probes: context.coverage.inactive_probes(),
            clock_step: context.coverage.clock.step_after(begin),
        },
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
    let fact = stop_signal(&signals, now, true).filter(|fact| fact.sender.role == Role::Runtime && fact.is_stop())?;
    let stop = stop(fact, (state, timeline), &signals, Some(&main), now, now);
    let way = Way {
        state,
        timeline,
        main: main.id,
        stop: fact,
        deadline: now,
        end: now,
    };
    let process = main.process();
    let (at, sentence) = match stop.raised_again {
        Some(raised) if raised.discarded => {
            let is_shutdown =
                |entered| !is_at_once(entered, raised) || timeline.sockets.has_closed_listener(entered, raised.at);
            if stop.handler_entered.is_some_and(is_shutdown) {
                return None;
            }
            (raised.at, verdict::raised_in_vain(&process, stop.signal))
        }
        _ => verdict::discarded_inside(&process, &way.inside())?,
    };
    Some((main, at, fact.clone(), sentence))
}

/// Whether the kernel watched the sockets, and did not let them go since: from the deletion request or the stop signal on, without
/// both from the exit. Records up to version 3 do not have this for an exit; then from the exit of a process that looks like a main
/// process.
fn watched(state: &State, stop: Option<&SignalFact>, fatal: Option<&Fatal>, main: Option<&Candidate>) -> bool {
    if state.requested.is_some_and(|at| state.is_watched_since(at)) {
        return true;
    }
    let by_exit = main.and_then(|main| main.exit_armed).map(Armed::is_armed);
    let (is_armed, at) = match (stop, fatal) {
        (Some(stop), _) => (stop.armed_sockets(), Some(stop.at)),
        (None, _) if by_exit.is_some() => (by_exit == Some(true), main.and_then(Candidate::exit_at)),
        (None, Some(fatal)) => (true, Some(fatal.at)),
        (None, None) => {
            let exit = main.and_then(|main| main.exit);
            let failed = exit.is_some_and(|exit| exit.status != ExitStatus::Exited(0));
            let looks_main = main.is_some_and(|main| main.is_ns_init() || main.ns_level == 0 || failed);
            (looks_main && exit.is_some(), exit.map(|exit| exit.at))
        }
    };
    is_armed && at.is_some_and(|at| state.is_watched_since(at))
}

/// With the processes that were killed, and whether it is known what they had open. `seen`: what closed was recorded, once the sockets were
/// watched.
fn with_killed(
    inside: Inside,
    (state, timeline): (&State, &Timeline),
    main: Option<&Candidate>,
    stop: Option<&SignalFact>,
    (seen, exits_lost): (bool, bool),
) -> Inside {
    let Some((main, exit)) = main.and_then(|main| Some((main, main.exit?))) else {
        return inside;
    };
    let since = stop.map_or(exit.at, |stop| stop.at);
    let (mut killed, others_killed) = killed(state, timeline, &main.id, since);
    // The party that stopped the main process, or started it: of a process with another parent its relation is not seen.
    let stopper = stop.filter(|stop| stop.sender.role == Role::Runtime);
    let stopper = stopper.map(|stop| [stop.signal.sender.tgid, stop.signal.target.ppid]);
    let starter = Some(main.parent).filter(|_| main.outside && !main.is_ns_init() && main.parent != INIT);
    for killed in killed.iter_mut().filter(|killed| killed.kill.role == Role::Other) {
        let by = killed.kill.sender.tgid;
        if starter == Some(by) || stopper.is_some_and(|stopper| stopper.contains(&by)) {
            killed.kill.role = Role::Runtime;
        }
    }
    // What a stop from inside leads to is not recorded: then it is not known whether they were asked to stop.
    let by_end =
        |of: &Unseen| stop.is_none() && main.is_ns_init() && of.at >= exit.at && of.is_own && of.signal == Signal::KILL;
    let unseen = unseen(state, timeline, &main.id, (since, exit.at, &inside.forwards));
    let (by_end, unseen): (Vec<_>, Vec<_>) = unseen.into_iter().partition(by_end);
    let room = Inside::KILLED.saturating_sub(killed.len());
    killed.extend(by_end.iter().take(room).map(|of| killed_by_end_of(main, exit.at, state, of)));
    let first = killed
        .iter()
        .map(|killed| killed.kill.at)
        .filter(|at| *at >= since)
        .min()
        .unwrap_or(exit.at);
    // A process that was killed after that exit closed its sockets later.
    let by_exit = first >= exit.at && main.exit_armed.is_some_and(Armed::is_armed) && state.is_watched_since(exit.at);
    let is_watched = by_exit || watched(state, stop, None, Some(main));
    // What each of them had open by other sockets is in the record of its exit.
    let are_shown = !exits_lost
        || killed
            .iter()
            .all(|killed| super::inside::exit(state, &super::inside::id(&killed.process)).is_some());
    Inside {
        sockets_known: seen && is_watched && are_shown && timeline.sockets.knows_holders(first),
        killed,
        others_killed,
        // Where no init takes the orphans, one may have a parent outside.
        ended_unseen: unseen
            .iter()
            .find(|of| of.is_own || !main.is_ns_init())
            .map(|of| (of.process, of.signal)),
        ..inside
    }
}

/// See [`Inside::program_unsure`].
fn is_program_unsure(
    context: &Context<'_>,
    home: Home<'_>,
    (state, timeline): (&State, &Timeline),
    stop: Option<&SignalFact>,
    seen: bool,
) -> bool {
    if !state.may_be_wrapped() {
        return false;
    }
    // systemd's signal to one of the others is a fact that does not matter otherwise.
    if timeline.over_cap > 0 || timeline.inside.over_cap > 0 || state.rare().exits_dropped > 0 {
        return true;
    }
    let last = match state.others() {
        Others::None => return false,
        Others::Exited(last) => last.plus(context.linger),
        Others::Run => Boot(u64::MAX),
    };
    let from = stop.map_or(last, |stop| stop.at);
    let mut lost = context.coverage.losses_inside(home, from, last).into_iter();
    let is_watched = stop.is_some_and(|stop| stop.armed_sockets() && state.is_watched_since(stop.at));
    let dropped = state.rare().doubts.within(from, last).any(|(kind, _)| kind == Kind::Tcp);
    let is_lost = lost.any(|(kind, _)| kind == Kind::Tcp) || dropped;
    !seen || is_lost || !is_watched || !timeline.sockets.knows_holders(from)
}

/// The signals to the main process until its exit, in the order of their own times.
fn to_main<'a>(timeline: &'a Timeline, main: Option<&Candidate>, end: Boot) -> Vec<&'a SignalFact> {
    let is_main = |fact: &&SignalFact| main.is_some_and(|main| main.id.is(&fact.signal.target));
    let mut signals: Vec<&SignalFact> = timeline
        .signals
        .iter()
        .filter(is_main)
        .filter(|fact| fact.at <= end)
        .collect();
    signals.sort_by_key(|fact| fact.key());
    signals
}

/// How long before the end a stop signal may have come that nobody saw: as long as one that was seen would count. Of a pod the grace
/// periods are known: see [`TerminationFacts::with_grace`].
fn unseen_stop_reach(kill: Option<&SignalFact>) -> Duration {
    match kill.is_some_and(|fact| fact.sender.role == Role::Runtime) {
        true => GRACE_REACH,
        false => STOP_REACH,
    }
}

/// The first SIGKILL that took effect: the kernel discards a SIGKILL to a namespace's init from inside.
fn kill<'a>(signals: &[&'a SignalFact]) -> Option<&'a SignalFact> {
    let mut kills = signals.iter().filter(|fact| fact.signal.signal == Signal::KILL);
    kills.find(|fact| fact.signal.result != SignalResult::Ignored).copied()
}

/// The fatal signal: of several with its number the last before the exit (earlier ones were handled).
fn fatal(
    signals: &[&SignalFact],
    kill: Option<&SignalFact>,
    status: Option<ExitStatus>,
    main: Option<&Candidate>,
) -> Option<Fatal> {
    let fact = match status {
        Some(ExitStatus::Signaled { signal, .. }) if signal != Signal::KILL => {
            let alike = |fact: &&&SignalFact| fact.signal.signal == signal && fact.signal.result != SignalResult::Ignored;
            let fatal = signals.iter().rev().find(alike).copied();
            fatal.or_else(|| aborted(signals, signal, main))?
        }
        _ => kill?,
    };
    let sender = &fact.signal.sender;
    let same_space = sender.pidns == fact.signal.target.pidns || sender.ns_level < fact.signal.target.ns_level;
    let is_main = main.is_some_and(|main| main.id.tgid == sender.tgid);
    Some(Fatal {
        at: fact.at,
        signal: fact.signal.signal,
        code: fact.signal.code,
        call: fact.signal.call,
        namespace_ended: fact.sender.role == Role::Kernel && sender.is_ns_init() && same_space && !is_main,
        sender: fact.sender.clone(),
    })
}

/// PID 1 has no default action, so abort(3) sends SIGABRT in vain, and then executes an instruction that is a fault.
fn aborted<'a>(signals: &[&'a SignalFact], fault: Signal, main: Option<&Candidate>) -> Option<&'a SignalFact> {
    let exit = main.filter(|main| main.is_ns_init())?.exit?;
    let is_last_act = |fact: &&SignalFact| {
        let signal = &fact.signal;
        let is_abort = signal.signal == Signal::ABRT && signal.disposition == Disposition::Default;
        is_abort && fact.sender.role == Role::Itself && exit.at.since(fact.last) <= ABORT_REACH
    };
    let last = signals.iter().rev().copied().find(is_last_act);
    last.filter(|_| fault.is_fault() && fault != Signal::ABRT)
}

/// Group 0 with code 0: nothing else sends that to another process.
fn is_cgroup_kill(fact: &SignalFact) -> bool {
    !fact.signal.group && fact.signal.code == crate::event::si_code::USER && fact.sender.role != Role::Itself
}

/// The stop signal: the runtime's before other senders', a conventional stop signal before one that mostly means "reload", and
/// the first of the last series.
fn stop_signal<'a>(signals: &[&'a SignalFact], deadline: Boot, killed_by_runtime: bool) -> Option<&'a SignalFact> {
    let stops: Vec<&SignalFact> = possible_stops(signals, deadline).collect();
    let reach = |fact: &SignalFact| match fact.sender.role {
        Role::Runtime if killed_by_runtime => GRACE_REACH,
        Role::Runtime if fact.is_conventional_stop() => STOP_REACH,
        Role::Runtime => RUN_GAP,
        // A reload, mostly.
        _ if !fact.is_conventional_stop() && fact.is_handled() => HANDLED_REACH,
        _ => RUN_GAP,
    };
    let run = |ok: &dyn Fn(&SignalFact) -> bool| -> Option<&'a SignalFact> {
        let mut first: Option<&SignalFact> = None;
        for fact in stops.iter().rev().filter(|fact| ok(fact)) {
            let near = match first {
                None => deadline.since(fact.last) <= reach(fact),
                Some(first) => first.at.since(fact.last) <= RUN_GAP,
            };
            if !near {
                break;
            }
            first = Some(fact);
        }
        first
    };
    let by = |role: Role| move |fact: &SignalFact| fact.sender.role == role;
    run(&|fact| by(Role::Runtime)(fact) && fact.is_conventional_stop())
        .or_else(|| run(&by(Role::Runtime)))
        .or_else(|| run(&by(Role::Other)))
        .or_else(|| run(&by(Role::Unknown)))
        .or_else(|| run(&by(Role::Kernel)))
        .or_else(|| run(&by(Role::Inside)))
}

/// Without a stop signal: one from another process or a terminal that the process handled shortly before it exited. The exit may follow
/// from it, whatever its number: the process did not exit by itself.
fn handled_last<'a>(signals: &[&'a SignalFact], end: Boot) -> Option<&'a SignalFact> {
    let is_handled = |fact: &&&SignalFact| {
        let by_other = matches!(fact.sender.role, Role::Other | Role::Inside | Role::Kernel);
        by_other && !fact.signal.signal.is_job_control() && fact.is_handled() && end.since(fact.last) <= HANDLED_REACH
    };
    signals
        .iter()
        .filter(is_handled)
        .max_by_key(|fact| (fact.last, fact.key()))
        .copied()
}

/// Signals that may be stop signals.
fn possible_stops<'a>(signals: &[&'a SignalFact], deadline: Boot) -> impl Iterator<Item = &'a SignalFact> {
    signals
        .iter()
        .filter(move |fact| fact.is_stop() && fact.at <= deadline)
        .copied()
}

/// The stop signal `fact`, with the kernel's result.
fn stop(
    fact: &SignalFact,
    (state, timeline): (&State, &Timeline),
    signals: &[&SignalFact],
    main: Option<&Candidate>,
    deadline: Boot,
    end: Boot,
) -> Stop {
    let entered = timeline.delivers.iter().filter(|(at, deliver)| {
        deliver.signal == fact.signal.signal
            && *at >= fact.at
            && *at <= end
            && main.is_some_and(|main| main.id.is(&deliver.task))
    });
    let handler_entered = entered.map(|(at, _)| *at).min();
    let raised_again = handler_entered.zip(main).and_then(|(entered, main)| {
        let is_raised = |other: &&&SignalFact| {
            let (of, role) = (&other.signal, other.sender.role);
            role == Role::Itself && of.signal == fact.signal.signal && of.disposition == Disposition::Default
        };
        let raised = signals
            .iter()
            .filter(is_raised)
            .flat_map(|raised| [(raised.at, raised), (raised.last, raised)]);
        let (at, raised) = raised.filter(|(at, _)| *at >= entered).min_by_key(|(at, _)| *at)?;
        let read_in_vain = timeline.inside.discarded(&main.id, fact.signal.signal, at);
        let discarded = raised.signal.result == SignalResult::Ignored || read_in_vain;
        let acted = acted(state, timeline, &main.id, (entered, at));
        Some(RaisedAgain { at, discarded, acted })
    });
    let later: u32 = possible_stops(signals, deadline)
        .filter(|other| other.last >= fact.at)
        .map(|other| other.count)
        .sum();
    Stop {
        at: fact.at,
        signal: fact.signal.signal,
        sender: fact.sender.clone(),
        result: fact.signal.result,
        disposition: fact.signal.disposition,
        state: fact.signal.state,
        handler_entered,
        raised_again,
        still_pending: None,
        repeated: later.saturating_sub(1),
    }
}

/// See [`Traffic::unlooked`]. A process that sends the signal on is an init. One that was killed may not have read it.
fn reads_unlooked(stop: Option<&Stop>, is_killed: bool, inside: &Inside) -> bool {
    let reads = |state: TargetState, entered: Option<Boot>, still_pending: Option<bool>, is_killed: bool| {
        (state.blocked || state.sigwait) && entered.is_none() && (still_pending == Some(false) || !is_killed)
    };
    let of_main = stop.is_some_and(|stop| reads(stop.state, stop.handler_entered, stop.still_pending, is_killed));
    let mut others = inside.forwards.iter();
    of_main && inside.forwards.is_empty()
        || others.any(|of| {
            let sent_on = inside.forwards.iter().any(|other| is_same(&other.sender, &of.target));
            !sent_on && reads(of.state, of.handler_entered, of.still_pending, of.kill.is_some())
        })
}

/// See [`FailedChild`].
fn failed_child(state: &State, exit: MainExit) -> Option<FailedChild> {
    let ExitStatus::Exited(code) = exit.status else { return None };
    let is_passed_on = |(at, of): &&(Boot, ProcessExit)| {
        let before = exit.at.since(*at);
        let signal = match of.status {
            ExitStatus::Signaled { signal, .. } => signal,
            // A wrapper that passes the code on is judged by it.
            ExitStatus::Exited(failed) => {
                // 128 + n follows a signal: of a helper that the wrapper itself stopped, nothing shows that.
                let fails = (1..=128).contains(&failed) && code == 0;
                let serves = of.held.is_some_and(|held| held.listener) && (of.is_own || of.task.ns_level == 0);
                return fails && serves && *at <= exit.at && before <= own_exits::REACH;
            }
        };
        let passes_on = signal.is_fault() && of.status.reported_code() == i32::from(code) && before <= CHILD_REACH;
        let hides = (code == 0 || of.status.reported_code() == i32::from(code)) && of.served() && before <= own_exits::REACH;
        *at <= exit.at && (passes_on || hides)
    };
    let (at, of) = state.exits.iter().filter(is_passed_on).max_by_key(|(at, _)| *at)?;
    Some(FailedChild {
        process: process(&of.task),
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
