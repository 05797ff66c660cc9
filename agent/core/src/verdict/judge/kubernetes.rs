//! The Kubernetes context, joined to the kernel's evidence. The kernel's facts stand; the context decides what caused them.
//!
//! The main process's own fault goes first: a process that ignores the stop signal would be killed with any grace period. Only if
//! the process reacted to the stop signal can the hook, the main containers (for a sidecar) or the deletion request be the cause.

use std::time::Duration;

use super::ask::{Ask, CLEAN_INSIDE, COMPLETED, NO_EXIT, PROVEN};
use super::below;
use super::cause::unknown;
use super::context::{cause_before, is_explained, is_forced, may_be_asked};
use super::finding::{Finding, InnerEnd, Missing, Why, finding};
use super::hook::{Hook, HookEnd};
use super::traffic::traffic;
use crate::kubernetes::{Mains, PodContext, Request, Unshown};
use crate::ledger::Claim;
use crate::pod::{ContainerKind, PreStop};
use crate::termination::Open;
use crate::time::Boot;
use crate::tolerances::{KUBELET_MINIMUM, MINIMUM_AT_MOST, RESOLUTION, STUCK_AFTER};
use crate::verdict::case::Case;
use crate::verdict::spent::Spent;
use crate::verdict::{Cause, Exit, TrafficAxis};

/// The runtime knows whether the program was started; an OOM kill of the runtime's own init is the better reason.
pub(super) fn never_started(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let is_reported = case.kubernetes?.reported.as_ref()?.never_started();
    let cause = cause_before(case, case.end).unwrap_or(Cause::Unknown);
    (is_reported && !matches!(found.exit, Exit::OomKilled | Exit::OomChild))
        .then(|| finding(Exit::RuntimeFailed, cause, Why::NeverStarted, PROVEN))
}

pub(super) fn expected(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let is_code = matches!(
        found.why,
        Why::Nonzero | Why::DefaultAction | Why::RaisedAgain | Why::Inside(InnerEnd::DefaultAction | InnerEnd::Nonzero, _)
    );
    (is_code && is_expected(case, case.kubernetes?)).then(|| foreseen(case, found, Why::Expected, CLEAN_INSIDE))
}

/// The manifest has foreseen the code: what it asks for follows.
pub(super) fn listed(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let is_listed = found.why == Why::Nonzero && case.stop().is_none() && case.kubernetes?.is_listed;
    is_listed.then(|| foreseen(case, found, Why::Listed, COMPLETED))
}

fn foreseen(case: &Case<'_>, found: &Finding, why: Why, rests: &'static [Ask]) -> Finding {
    let cause = match found.cause {
        Cause::Crash => Cause::Completed,
        cause => cause,
    };
    below::unless_worse_below(case, finding(Exit::Clean, cause, why, rests))
}

pub(super) fn stuck(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let runs_on = matches!(
        found.why,
        Why::Unknown(Missing::NoExit(Open::ObservationEnded | Open::TimelineCap))
    );
    (runs_on && is_stuck(case, case.kubernetes?)).then(|| finding(Exit::Stuck, found.cause, Why::Stuck, NO_EXIT))
}

/// The manifest, a hook or a request may change what the kernel shows, but for a fault, an OOM kill, and a stop signal that had no effect.
pub(super) fn pod_unseen(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let stands = matches!(
        found.exit,
        Exit::Crashed | Exit::OomKilled | Exit::OomChild | Exit::IgnoredStopSignal | Exit::BlockedStopSignal
    );
    let is_known = stands || found.exit == Exit::Unknown;
    (case.missing.has_any(Claim::Pod) && !is_known).then(|| unknown(case, Missing::Damaged))
}

/// Runtimes send a container a stop signal before SIGKILL, a sandbox only SIGKILL.
pub(super) fn unnamed(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let context = case.kubernetes?;
    let may_be_sandbox = found.why == Why::Forced && context.container.is_none();
    let may_have_hook = found.exit == Exit::Clean && context.may_miss(Unshown::Hook);
    (may_be_sandbox || may_have_hook).then(|| unknown(case, Missing::Name))
}

/// Exit codes as Kubernetes reports them; SIGKILL is never a declared exit.
fn is_expected(case: &Case<'_>, context: &PodContext) -> bool {
    let exit = case.exit.filter(|_| !case.was_killed());
    let code = exit.and_then(|exit| u8::try_from(exit.status.reported_code()).ok());
    code.is_some_and(|code| context.options.expected_exit_codes.contains(&code))
}

fn is_stuck(case: &Case<'_>, context: &PodContext) -> bool {
    let Some(grace) = context.grace else { return false };
    let begin = match (&context.request, Spent::of(case)) {
        (Some(request), _) => request.latest,
        (None, Some(spent)) => spent.begin,
        (None, None) => return false,
    };
    case.end.since(begin) > grace + KUBELET_MINIMUM + STUCK_AFTER
}

/// The process was shutting down at the SIGKILL: what used up the grace period?
fn was_stopping(case: &Case<'_>, found: &Finding) -> bool {
    matches!(found.why, Why::AfterGrace | Why::Inside(InnerEnd::AfterGrace, _)) && case.kill().is_some()
}

pub(super) fn request_unseen(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let context = case.kubernetes.filter(|_| was_stopping(case, found))?;
    (may_be_asked(case, context) && !is_explained(case, context)).then(|| unknown(case, Missing::Request))
}

pub(super) fn force_deleted(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let is_it = was_stopping(case, found) && is_forced(case.kubernetes?);
    is_it.then(|| finding(Exit::ForceKilled, found.cause, Why::ForceDeleted, found.rests))
}

/// Without a hook and without a sidecar's wait the process has the whole grace period. A busy runtime kills late; a kubelet before 1.28 gives
/// the whole grace period again.
fn had_only_the_minimum<'a>(case: &Case<'a>, found: &Finding) -> Option<(&'a PodContext, Spent, Duration)> {
    let context = case.kubernetes.filter(|_| was_stopping(case, found))?;
    let (spent, grace) = Spent::of(case).zip(context.grace)?;
    let left = spent.left?;
    (left <= MINIMUM_AT_MOST.max(grace / 2) && left + RESOLUTION / 2 < grace).then_some((context, spent, grace))
}

pub(super) fn starved(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let (context, spent, grace) = had_only_the_minimum(case, found)?;
    Some(match is_starved(context, &spent, grace) {
        Some(false) => return None,
        Some(true) => finding(Exit::SidecarStarved, found.cause, Why::Starved, found.rests),
        None => unknown(case, Missing::LateStop),
    })
}

pub(super) fn hook_took_grace(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let (context, spent, grace) = had_only_the_minimum(case, found)?;
    if is_held_up_unseen(context, &spent, grace) {
        return Some(unknown(case, Missing::LateStop));
    }
    // A hook that was slow to start took more of the grace period than the hook's process shows.
    let was_cut = Hook::of(case).is_some_and(|hook| hook.end == HookEnd::Cut);
    (was_cut || spent.hook.is_some_and(|hook| hook + KUBELET_MINIMUM > grace))
        .then(|| finding(Exit::PrestopOverran, found.cause, Why::HookTookGrace, found.rests))
}

/// A sidecar gets the stop signal when the main containers have exited, or when the grace period has expired. None if not known.
fn is_starved(context: &PodContext, spent: &Spent, grace: Duration) -> Option<bool> {
    let is_sidecar = context.kind == Some(ContainerKind::Sidecar);
    let Some((mains, stop)) = context.mains.zip(spent.stop).filter(|_| is_sidecar) else {
        return Some(false);
    };
    let ran_till_then = mains.ran_at(stop.minus(RESOLUTION));
    match &context.request {
        Some(request) if !is_late(request, stop, grace) => Some(false),
        // A restart of the sidecar alone.
        None if mains == Mains::Run => Some(false),
        _ => ran_till_then,
    }
}

/// Of a sidecar only the process of its hook shows how long the hook took: the record of its exec may be lost.
fn is_held_up_unseen(context: &PodContext, spent: &Spent, grace: Duration) -> bool {
    let run = context
        .pre_stop
        .as_ref()
        .filter(|_| context.kind == Some(ContainerKind::Sidecar));
    let is_unseen = run.is_some_and(|run| !run.seen && matches!(run.hook, PreStop::Exec { .. }));
    let late = context.request.as_ref().zip(spent.stop);
    is_unseen && late.is_some_and(|(request, stop)| is_late(request, stop, grace))
}

/// The kubelet left no more than its minimum.
fn is_late(request: &Request, stop: Boot, grace: Duration) -> bool {
    stop.since(request.latest) + KUBELET_MINIMUM >= grace
}

pub(super) fn hook_failed(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let hook = Hook::of(case).filter(|_| found.exit == Exit::Clean)?;
    let exit = match hook.end {
        HookEnd::Cut => Exit::PrestopOverran,
        HookEnd::Failed => Exit::PrestopFailed,
        // Known errors of clients go before an unknown hook.
        HookEnd::Unknown(_) if !is_quiet(traffic(case.traffic())) => return None,
        HookEnd::Unknown(_) if hook.run.status.is_some() => return Some(unknown(case, Missing::Request)),
        HookEnd::Unknown(_) => Exit::Unknown,
        HookEnd::Done | HookEnd::Late | HookEnd::WithMain => return None,
    };
    Some(Finding { exit, ..found.clone() })
}

fn is_quiet(traffic: TrafficAxis) -> bool {
    matches!(traffic, TrafficAxis::Quiet | TrafficAxis::Undecided | TrafficAxis::Unknown)
}
