//! Evidence of one termination that may be missing.

use crate::attribute::Subject;
use crate::event::{Disposition, Kind, SignalResult};
use crate::ids::CgroupId;
use crate::termination::{LATE_REACH, MainUnsure, Open};
use crate::time::Boot;

use super::coverage::{Hole, Home};
use super::finish::Context;
use super::subject::{Candidate, State};
use super::timeline::{RUN_GAP, SignalFact, Timeline};

/// Why another process may be the main process.
pub(super) fn main_unsure(
    context: &Context<'_>,
    (own, state): (CgroupId, &State),
    main: Option<&Candidate>,
    stopped_by_runtime: bool,
    now: Boot,
) -> Option<MainUnsure> {
    let home = Home::of(own, context.index);
    if main.is_some_and(|main| may_be_command(context, state, main, now)) {
        return Some(MainUnsure::MayBeCommand);
    }
    let lost = |kind: Kind, from: Boot| {
        let is_seen = context.coverage.is_observed(kind.name());
        !is_seen || context.coverage.lost_since(kind, home, from, now).is_some()
    };
    let born = main.map_or(Boot(0), |main| main.id.start);
    // Also one that comes later, as an init's after the runtime's own first stage.
    if !is_sure(state, main, stopped_by_runtime) && lost(Kind::ProcessExec, since(context, (own, state), born)) {
        return Some(MainUnsure::Lost(Kind::ProcessExec));
    }
    let end = main.and_then(Candidate::exit_at).or(state.removed).unwrap_or(now);
    (state.is_last_step(context.linger) && lost(Kind::CgroupRmdir, end)).then_some(MainUnsure::Lost(Kind::CgroupRmdir))
}

/// A process of a unit that began unobserved, and has ended or is as young as such commands are: systemd gives them 90 s by default. One
/// after whose begin a listener was closed is a server.
fn may_be_command(context: &Context<'_>, state: &State, main: &Candidate, now: Boot) -> bool {
    let end = main.exit_at().unwrap_or(now);
    let is_unit = matches!(state.subject, Subject::Unit { .. });
    let sockets = state.timeline.as_deref().map(|timeline| &timeline.sockets);
    let is_server = || sockets.is_some_and(|sockets| !sockets.listeners().closed(|at| at >= main.id.start).is_empty());
    is_unit && end.since(main.id.start) < LATE_REACH && context.coverage.began_unobserved(main.id.start) && !is_server()
}

/// The main process is proven: the init that came from outside, or that the runtime stopped. Any other process is the main process
/// only because no other is known.
fn is_sure(state: &State, main: Option<&Candidate>, stopped_by_runtime: bool) -> bool {
    let is_container = matches!(state.subject, Subject::Container { .. });
    is_container && main.is_none_or(|main| main.is_ns_init() && (main.outside || stopped_by_runtime))
}

/// The cgroup was removed without an observed event, and records that could show one were lost.
pub(super) fn is_unseen(context: &Context<'_>, own: CgroupId, state: &State, open: Open, end: Boot) -> bool {
    let untouched = state.exits.is_empty() && state.finished.is_none() && state.removed.is_some();
    let home = Home::of(own, context.index);
    let losses = context.coverage.losses(home, since(context, (own, state), end), end);
    let shows = |kind: &Kind| matches!(kind, Kind::ProcessExec | Kind::ProcessExit);
    open == Open::CgroupRemoved && untouched && losses.iter().any(|(kind, _)| shows(kind))
}

/// Since when a record of the subject's processes that matters at that time may have been lost: of a unit not before its cgroup was
/// created. A container can make a cgroup that bears its own id: which of them has the main process, older records show.
fn since(context: &Context<'_>, (own, state): (CgroupId, &State), at: Boot) -> Boot {
    let reach = at.minus(LATE_REACH);
    let created = match state.subject {
        Subject::Unit { .. } => context.index.empty_until(own),
        Subject::Container { .. } => None,
    };
    created.map_or(reach, |created| reach.max(created))
}

/// All missing records are missing for one of these reasons: the kernel lost none.
pub(super) fn is_not_kept(
    context: &Context<'_>,
    why: &[Hole],
    home: Home<'_>,
    state: &State,
    (from, to): (Boot, Boot),
) -> bool {
    let is_other = |kind: Kind| kind != Kind::Tcp;
    let lost = context.coverage.losses_inside(home, from, to);
    let not_kept = context.coverage.losses_by(why, home, from, to);
    let dropped = state.rare().doubts.within(from, to).any(|(kind, _)| is_other(kind));
    let all = lost.into_iter().filter(|(kind, _)| is_other(*kind));
    !dropped && !not_kept.is_empty() && all.eq(not_kept.into_iter().filter(|(kind, _)| is_other(*kind)))
}

/// The record of a stop signal to a unit's process that has exited may be lost: then the exit was not a step of the unit.
pub(super) fn may_have_been_stopped(context: &Context<'_>, own: CgroupId, state: &State) -> bool {
    let Some((main, end)) = state.main().and_then(|main| Some((main, main.exit_at()?))) else {
        return false;
    };
    let (home, from) = (Home::of(own, context.index), end.minus(LATE_REACH).max(main.id.start));
    matches!(state.subject, Subject::Unit { .. }) && signal_lost_since(context, home, state, (from, end)).is_some()
}

/// When the first signal between the two may have been sent of which the record was lost by the kernel, or dropped here.
pub(super) fn signal_lost_since(
    context: &Context<'_>,
    home: Home<'_>,
    state: &State,
    (from, to): (Boot, Boot),
) -> Option<Boot> {
    let of_kernel = context.coverage.lost_since(Kind::SignalGenerate, home, from, to);
    let dropped = state.rare().doubts.since(Kind::SignalGenerate, from, to);
    [of_kernel, dropped].into_iter().flatten().min()
}

/// The stop signal may not be the first: a handler for the signal entered before, or records that could show one were lost. A process
/// that resets its handler has the later signal discarded, one that is still in its handler does not enter it again.
pub(super) fn is_later(
    context: &Context<'_>,
    home: Home<'_>,
    timeline: &Timeline,
    main: Option<&Candidate>,
    stop: &SignalFact,
) -> bool {
    let is_discarded = stop.signal.result == SignalResult::Ignored;
    if is_discarded && stop.signal.disposition != Disposition::Default {
        return false;
    }
    let since = stop.at.minus(RUN_GAP);
    let entered = timeline.delivers.iter().any(|(at, deliver)| {
        let in_time = since <= *at && *at < stop.at;
        in_time && deliver.signal == stop.signal.signal && main.is_some_and(|main| main.id.is(&deliver.task))
    });
    let losses = context.coverage.losses(home, since, stop.at);
    let lost = |kind: Kind| losses.iter().any(|(lost, _)| *lost == kind);
    // Of an entry without a loss, the signal is observed: another party's.
    let is_unexplained = entered && (is_discarded || lost(Kind::SignalGenerate));
    is_unexplained || lost(Kind::SignalGenerate) && lost(Kind::SignalDeliver)
}

/// Kinds of lost records that can have been about the way of a stop signal inside, which does not end before the last process does.
pub(super) fn lost_inside(context: &Context<'_>, home: Home<'_>, state: &State, from: Boot, until: Boot) -> Vec<Kind> {
    let lost = context.coverage.losses_inside(home, from, until);
    let lost = lost.into_iter().map(|(kind, _)| kind);
    let dropped = state.rare().doubts.within(from, until).map(|(kind, _)| kind);
    let matters = [Kind::SignalGenerate, Kind::SignalDeliver, Kind::ProcessExit];
    let lost: Vec<Kind> = lost.chain(dropped).collect();
    matters.into_iter().filter(|kind| lost.contains(kind)).collect()
}
