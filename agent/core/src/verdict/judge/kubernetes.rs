//! What Kubernetes wanted, joined to what the kernel saw. The kernel's facts stand; this decides whose fault they were.
//!
//! The main process's own fault goes first: one that never heard the stop signal would have been killed with any grace. Only
//! where it did what it should do the hook, the main containers of a sidecar or the deleter answer for its end.

use std::time::Duration;

use super::kernel::finding;
use super::{Case, Finding, Hook, HookEnd, Missing, Open, Why, traffic};
use crate::event::{ExitStatus, Kind};
use crate::ids::Signal;
use crate::kubernetes::PodContext;
use crate::pod::ContainerKind;
use crate::time::Boot;
use crate::verdict::spent::{KUBELET_MINIMUM, Spent};
use crate::verdict::{Cause, Exit, TrafficAxis};

/// The kubelet's minimum, with what a slow runtime adds to it.
const MINIMUM_AT_MOST: Duration = Duration::from_secs(3);
const WHOLE_SECOND: Duration = Duration::from_secs(1);
/// So long over its grace, nothing that a busy node does explains it.
pub const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Why the runtime stopped it.
pub(super) fn stopped(case: &Case<'_>) -> Cause {
    match case.kubernetes {
        None => Cause::Stopped,
        Some(PodContext {
            stop_reason: Some(stop_reason),
            ..
        }) => stop_reason.cause,
        Some(PodContext { incomplete: Some(_), .. }) => Cause::Unknown,
        Some(_) => Cause::Restart,
    }
}

/// Why Kubernetes wanted it to end, where that was before.
pub(super) fn asked_by(case: &Case<'_>, at: Boot) -> Option<Cause> {
    let context = case.kubernetes?;
    let before = context.request.as_ref().is_none_or(|request| request.earliest <= at);
    context
        .stop_reason
        .as_ref()
        .filter(|_| before)
        .map(|stop_reason| stop_reason.cause)
}

pub(super) fn refine(case: &Case<'_>, found: Finding) -> Finding {
    let Some(context) = case.kubernetes else { return found };
    if never_started(context, &found) {
        return finding(
            Exit::RuntimeFailed,
            asked_by(case, case.end).unwrap_or(Cause::Unknown),
            Why::NeverStarted,
            &[],
        );
    }
    match &found.why {
        Why::Nonzero | Why::DefaultAction if is_expected(case, context) => Finding {
            cause: match found.cause {
                Cause::Crash => Cause::Completed,
                cause => cause,
            },
            ..finding(Exit::Clean, found.cause, Why::Expected, &[])
        },
        Why::Unknown(Missing::NoExit(Open::ObservationEnded | Open::TimelineCap)) if is_stuck(case, context) => {
            finding(Exit::Stuck, found.cause, Why::Stuck, &[Kind::ProcessExit])
        }
        Why::AfterGrace => killed_while_stopping(case, context, found),
        _ if found.exit == Exit::Clean => clean_but_for_its_hook(case, found),
        _ => found,
    }
}

/// The runtime knows whether it ran the program; an OOM kill of its own init is the better reason.
fn never_started(context: &PodContext, found: &Finding) -> bool {
    let reported = context.reported.as_ref().is_some_and(|reported| reported.never_started());
    reported && !matches!(found.exit, Exit::OomKilled | Exit::OomChild)
}

/// As Kubernetes numbers them; SIGKILL is never a process's own way to end.
fn is_expected(case: &Case<'_>, context: &PodContext) -> bool {
    let code = match case.exit.map(|exit| exit.status) {
        Some(ExitStatus::Exited(code)) => Some(code),
        Some(ExitStatus::Signaled { signal, .. }) if signal != Signal::KILL => signal.number().checked_add(128),
        _ => None,
    };
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

/// It was on its way when the kill came: who had taken its time?
fn killed_while_stopping(case: &Case<'_>, context: &PodContext, found: Finding) -> Finding {
    if is_forced(context) {
        return finding(Exit::ForceKilled, found.cause, Why::ForceDeleted, &[]);
    }
    let Some(spent) = Spent::of(case) else { return found };
    let Some((grace, left)) = context.grace.zip(spent.left) else {
        return found;
    };
    // With no hook and no sidecar's wait it would have had the whole grace, which this is not. A busy runtime kills late; a kubelet
    // before 1.28 gives the whole grace again.
    let only_the_minimum = left <= MINIMUM_AT_MOST.max(grace / 2) && left + WHOLE_SECOND / 2 < grace;
    if !only_the_minimum {
        return found;
    }
    if is_starved(context, &spent, grace) {
        return finding(Exit::SidecarStarved, found.cause, Why::Starved, &[]);
    }
    // A hook whose own start was slow shows less of its time than it took.
    let was_cut = Hook::of(case).is_some_and(|hook| hook.end == HookEnd::Cut);
    if was_cut || spent.hook.is_some_and(|hook| hook + KUBELET_MINIMUM > grace) {
        return finding(Exit::PrestopOverran, found.cause, Why::HookTookGrace, &[]);
    }
    found
}

/// `kubectl delete --force`, or a later delete with a grace of 0.
fn is_forced(context: &PodContext) -> bool {
    let request = context.request.as_ref();
    context.grace.is_some_and(|grace| grace.is_zero())
        || request.is_some_and(|request| request.grace.is_zero() || request.shortened.iter().any(|(_, grace)| grace.is_zero()))
}

/// A sidecar is asked when the main containers have ended, or when their grace is over.
fn is_starved(context: &PodContext, spent: &Spent, grace: Duration) -> bool {
    if context.kind != Some(ContainerKind::Sidecar) {
        return false;
    }
    let Some(stop) = spent.stop else { return false };
    let mains_till_then = context
        .mains_ended
        .map(|ended| Boot(ended.0.saturating_add(nanos(WHOLE_SECOND))) >= stop);
    match &context.request {
        Some(request) => stop.since(request.latest) + KUBELET_MINIMUM >= grace && mains_till_then.unwrap_or(true),
        None => mains_till_then.unwrap_or(false),
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn clean_but_for_its_hook(case: &Case<'_>, found: Finding) -> Finding {
    let exit = match Hook::of(case).map(|hook| hook.end) {
        Some(HookEnd::Cut) => Exit::PrestopOverran,
        Some(HookEnd::Failed(_)) => Exit::PrestopFailed,
        // What clients are known to have met goes before what is not known.
        Some(HookEnd::Unknown(_)) if matches!(traffic(case.traffic()), TrafficAxis::Quiet | TrafficAxis::Unknown) => {
            Exit::Unknown
        }
        Some(HookEnd::Done | HookEnd::Late | HookEnd::WithMain | HookEnd::Unknown(_)) | None => return found,
    };
    Finding { exit, ..found }
}
