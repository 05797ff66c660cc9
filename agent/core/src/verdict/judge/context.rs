//! What Kubernetes, or the shutdown of the node, asked of a container, and when.

use std::time::Duration;

use crate::event::Kind;
use crate::ids::Pid;
use crate::kubernetes::{PodContext, Request, StopReason, Unshown};
use crate::ledger::{self, Claim, Hole};
use crate::termination::Kill;
use crate::time::Boot;
use crate::verdict::Cause;
use crate::verdict::case::Case;
use crate::verdict::cut::{has_ended_by, may_have_ended_by};
use crate::verdict::spent::Spent;

pub(in crate::verdict) fn by_systemd_shutdown(kill: &Kill) -> bool {
    kill.sender.tgid == Pid::INIT && kill.sender.comm.is_systemd_shutdown()
}

/// How long the process had in the shutdown until its SIGKILL, and its own grace period; None if either is not known.
pub(in crate::verdict) fn own_grace(case: &Case<'_>) -> Option<(Duration, Duration)> {
    let context = case.kubernetes?;
    let is_other = |reason: &StopReason| matches!(reason.cause, Cause::EvictedNodePressure | Cause::RestartInPlace);
    let kill = case.kill()?;
    let is_other = context.stop_reason.as_ref().is_some_and(is_other) || is_ended_by_deletion(context, kill);
    let own = context.own_grace.filter(|_| !is_other)?;
    let begin = match (Spent::of(case), &context.pre_stop) {
        // When a hook began is part of what the process had.
        (_, Some(hook)) if hook.begin.is_none() => return None,
        (Some(spent), _) => spent.begin,
        // Without a stop signal it had nothing.
        (None, _) => kill.at,
    };
    Some((kill.at.since(begin), own))
}

/// The deletion gave less than the pod's own grace period, and is why SIGKILL came: not if it came later, or gave more than that.
fn is_ended_by_deletion(context: &PodContext, kill: &Kill) -> bool {
    let is_why = |request: &Request| has_ended_by(request, kill.at);
    context.overridden().is_some() && context.request.as_ref().is_none_or(is_why)
}

/// The deletion may be why SIGKILL came: its time is not known well enough.
pub(super) fn may_be_ended_by_deletion(context: &PodContext, kill: &Kill) -> bool {
    let may_be_why = |request: &Request| may_have_ended_by(request, kill.at) && !has_ended_by(request, kill.at);
    context.overridden().is_some() && context.request.as_ref().is_some_and(may_be_why)
}

/// Why the runtime stopped the container.
pub(super) fn stopped(case: &Case<'_>) -> Cause {
    match case.kubernetes {
        None if case.missing.has_any(Claim::Pod) => Cause::Unknown,
        None if case.shutdown.is_some() => Cause::NodeShutdown,
        None => Cause::Stopped,
        Some(context) if may_be_evicted(case, context) => Cause::Unknown,
        Some(PodContext {
            request: Some(request), ..
        }) if may_be_before(case, request) => Cause::Unknown,
        Some(PodContext {
            stop_reason: Some(stop_reason),
            ..
        }) => stop_reason.cause,
        Some(PodContext { incomplete: Some(_), .. }) => Cause::Unknown,
        Some(_) => Cause::Restart,
    }
}

/// In a shutdown that only its announcement shows, the SIGKILL came before a known grace period had ended, and the API may not have shown why.
fn may_be_evicted(case: &Case<'_>, context: &PodContext) -> bool {
    let announced = case.shutdown.as_ref().zip(context.stop_reason.as_ref());
    let is_announced = announced.is_some_and(|(shutdown, reason)| reason.evidence == shutdown.evidence);
    // A SIGKILL of which the record is missing may be the runtime's.
    let may_be_killed = || case.was_killed() || case.exit.is_none() && case.missing.lacks(Claim::Main, Kind::ProcessExit);
    let is_killed = case.stop().is_some() && case.kill().map_or_else(may_be_killed, |kill| !by_systemd_shutdown(kill));
    is_announced && may_be_asked(case, context) && is_killed && !is_explained(case, context)
}

/// The API may not have shown that somebody asked for the pod's end. In a shutdown nobody asks for that of a static pod: it has no deletion
/// request, and the kubelet evicts none.
pub(super) fn may_be_asked(case: &Case<'_>, context: &PodContext) -> bool {
    context.may_miss(Unshown::Request) && !(context.pod.is_static && case.shutdown.is_some())
}

/// Why Kubernetes stopped the container, if the request was not after `at`.
pub(super) fn cause_before(case: &Case<'_>, at: Boot) -> Option<Cause> {
    if case.missing.has_any(Claim::Pod) {
        return Some(Cause::Unknown);
    }
    let context = case.kubernetes?;
    let request = context.request.as_ref();
    let before = request.is_none_or(|request| request.earliest <= at);
    let reason = context.stop_reason.as_ref().filter(|_| before)?;
    Some(match request.is_some_and(|request| may_be_before(case, request)) {
        true => Cause::Unknown,
        false => reason.cause,
    })
}

/// The container may have been stopped before the request: whether it was is not observed.
fn may_be_before(case: &Case<'_>, request: &Request) -> bool {
    let is_unseen = |hole: &Hole| match hole.why {
        ledger::Origin::Gap => hole.from < request.earliest,
        why => why == ledger::Origin::Inactive,
    };
    case.hidden_stops().any(is_unseen)
}

/// Kubernetes did not ask the container to stop before `since`: its pod was not being deleted, and no Event `Killing` names it. In
/// doubt false, and where the runtime's SIGKILL shows that somebody else asked.
pub(super) fn was_not_asked_before(case: &Case<'_>, since: Boot) -> bool {
    let killed = case.runtime_kill().is_some();
    let Some(context) = case.kubernetes.filter(|context| context.incomplete.is_none()) else {
        return false;
    };
    match (&context.stop_reason, &context.request) {
        (None, None) => context.killing == Some(false) && !killed,
        // These stop a container only after the deletion request; the kubelet's own evictions and restarts do not wait for one.
        (Some(reason), Some(request)) => {
            let by_request = matches!(reason.cause, Cause::Deleted | Cause::EvictedApi | Cause::EvictedTaint);
            // A grace period of 0 is why the runtime sent SIGKILL without a stop signal.
            let is_by_it = || is_forced(context) || case.runtime_stop().is_some() && is_explained(case, context);
            by_request && request.earliest >= since && (!killed || is_by_it())
        }
        _ => false,
    }
}

/// `kubectl delete --force`, or a later delete with a grace period of 0.
pub(super) fn is_forced(context: &PodContext) -> bool {
    let request = context.request.as_ref().filter(|_| !context.may_miss(Unshown::FirstGrace));
    context.grace.is_some_and(|grace| grace.is_zero())
        || request.is_some_and(|request| request.grace.is_zero() || request.shortened.iter().any(|(_, grace)| grace.is_zero()))
}

/// The known requests explain the time of the SIGKILL: the grace period had expired, or a request with a grace period of 0 came before.
/// The kubelet's own last request, after the exit, has 0 too.
pub(super) fn is_explained(case: &Case<'_>, context: &PodContext) -> bool {
    let Some(request) = &context.request else { return false };
    let stop = case.stop().map(|stop| stop.at);
    case.kill().is_some_and(|kill| match is_forced(context) {
        true => request.skew.is_some() && request.latest <= kill.at,
        false => context.grace_end(stop).is_some_and(|end| end <= kill.at),
    })
}

/// The stop may have begun with a signal before the one that was observed, in a gap or with a lost record: what is measured from that one on
/// is only the least.
pub(in crate::verdict) fn may_have_begun_before(case: &Case<'_>) -> bool {
    !earlier_stops(case).is_empty()
}

/// Where the first stop signal may be hidden.
pub(super) fn earlier_stops(case: &Case<'_>) -> Vec<Hole> {
    let is_excused = |until: Boot| was_not_asked_before(case, until);
    let hides = |hole: &&Hole| hole.why != ledger::Origin::Gap || !hole.to.is_some_and(is_excused);
    case.missing.of(Claim::FirstStop).filter(hides).copied().collect()
}

/// The observation began after the process, so recently that a stop signal may have come before, and nothing rules that out. Not
/// proven by a handler that did not run: a signal that was handled leaves no trace.
pub(in crate::verdict) fn may_have_been_stopped_before(case: &Case<'_>) -> bool {
    case.missing
        .late_start()
        .is_some_and(|since| !was_not_asked_before(case, since))
}
