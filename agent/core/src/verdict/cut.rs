//! Whether a termination got less than the pod's own grace period.

use std::time::Duration;

use super::case::Case;
use super::spent::Spent;
use super::{Cause, Judged};
use crate::kubernetes::{PodContext, Request, Unshown};
use crate::pod::ContainerKind;
use crate::time::Boot;
use crate::tolerances::RESOLUTION;

/// The deletion asked for less; or SIGKILL followed a later request that did, or an eviction of the kubelet, before the pod's own grace
/// period had ended.
pub fn is_grace_cut(request: Option<&Request>, containers: &[Judged<'_>]) -> bool {
    let short = request.filter(|request| request.cut_short().is_some());
    let is_gone = |of: &Judged<'_>| of.case.kubernetes.is_some_and(is_deleted_at_once);
    let had_less = |of: &Judged<'_>| short.is_some_and(|request| was_asked(&of.case, request));
    let is_cut = |of: &Judged<'_>| had_less(of) || was_killed_early(&of.case) || is_gone(of);
    // Of containers whose ends only a status shows, the request alone.
    containers.iter().any(is_cut) || containers.is_empty() && short.is_some()
}

/// The request came before the end of the container, and its grace period was shown. It need not have come first where nothing stopped the
/// container.
fn was_asked(case: &Case<'_>, request: &Request) -> bool {
    let context = case.kubernetes.filter(|context| context.request.is_some());
    let is_shown = context.is_some_and(|context| !context.may_miss(Unshown::FirstGrace));
    let was_stopped = case.runtime_stop().is_some() || case.runtime_kill().is_some();
    let from = if was_stopped { request.earliest } else { request.latest };
    is_shown && from <= case.end
}

/// A delete with a grace period of 0, which removes the object at once: no version shows the request.
fn is_deleted_at_once(context: &PodContext) -> bool {
    context.request.is_none() && context.overridden().is_some()
}

fn was_killed_early(case: &Case<'_>) -> bool {
    by_eviction(case).is_some() || is_by_later_request(case)
}

/// The pod's own grace period, where the kubelet's eviction did not wait for its end.
pub(super) fn by_eviction(case: &Case<'_>) -> Option<Duration> {
    let context = case.kubernetes.filter(|context| is_evicted(context))?;
    let own = context.own_grace?;
    let kill = case.runtime_kill()?;
    if context
        .request
        .as_ref()
        .is_some_and(|request| may_have_ended_by(request, kill.at))
    {
        return None;
    }
    let spent = Spent::of(case).filter(|spent| spent.stop.is_some())?;
    // The grace period begins with the hook, and for a sidecar with the wait for the main containers.
    let is_begin_known = context.pre_stop.as_ref().is_none_or(|run| run.begin.is_some());
    if !is_begin_known || context.kind == Some(ContainerKind::Sidecar) {
        return None;
    }
    (kill.at.since(spent.begin) + RESOLUTION < own).then_some(own)
}

/// Somebody deleted the pod with a grace period that had ended by then, or may have.
pub(super) fn may_have_ended_by(request: &Request, at: Boot) -> bool {
    ended_by(request, request.earliest, at)
}

/// The same, and it had ended at the latest.
pub(super) fn has_ended_by(request: &Request, at: Boot) -> bool {
    ended_by(request, request.latest, at)
}

fn ended_by(request: &Request, asked_at: Boot, at: Boot) -> bool {
    let later = request.shortened.iter().map(|(seen, grace)| seen.plus(*grace));
    later.chain([asked_at.plus(request.grace)]).any(|end| end <= at)
}

fn is_by_later_request(case: &Case<'_>) -> bool {
    let request = case.kubernetes.and_then(|context| context.request.as_ref());
    let kill = case.runtime_kill();
    let Some((request, kill)) = request.zip(kill) else {
        return false;
    };
    let followed = request.shortened_for(kill.at);
    followed.zip(request.spec_grace).is_some_and(|((_, grace), own)| grace < own)
}

pub(super) fn is_evicted(context: &PodContext) -> bool {
    context
        .stop_reason
        .as_ref()
        .is_some_and(|reason| reason.cause == Cause::EvictedNodePressure)
}
