//! Whether a termination got less than the pod's own grace period.

use std::time::Duration;

use super::case::Case;
use super::spent::Spent;
use super::{Cause, Judged};
use crate::kubernetes::{PodContext, Request};
use crate::pod::ContainerKind;
use crate::termination::Role;
use crate::tolerances::RESOLUTION;

/// The deletion asked for less; or SIGKILL followed a later request that did, or an eviction of the kubelet, before the pod's own grace
/// period had ended.
pub fn is_grace_cut(request: Option<&Request>, containers: &[Judged<'_>]) -> bool {
    request.is_some_and(|request| request.cut_short().is_some()) || containers.iter().any(|of| was_killed_early(&of.case))
}

fn was_killed_early(case: &Case<'_>) -> bool {
    by_eviction(case).is_some() || is_by_later_request(case)
}

/// The pod's own grace period, where the kubelet's eviction did not wait for its end.
pub(super) fn by_eviction(case: &Case<'_>) -> Option<Duration> {
    let context = case.kubernetes.filter(|context| is_evicted(context))?;
    let own = context.own_grace?;
    let kill = case.kill().filter(|kill| kill.sender.role == Role::Runtime)?;
    let spent = Spent::of(case).filter(|spent| spent.stop.is_some())?;
    // The grace period begins with the hook, and for a sidecar with the wait for the main containers.
    let is_begin_known = context.pre_stop.as_ref().is_none_or(|run| run.begin.is_some());
    if !is_begin_known || context.kind == Some(ContainerKind::Sidecar) {
        return None;
    }
    (kill.at.since(spent.begin) + RESOLUTION < own).then_some(own)
}

fn is_by_later_request(case: &Case<'_>) -> bool {
    let request = case.kubernetes.and_then(|context| context.request.as_ref());
    let kill = case.kill().filter(|kill| kill.sender.role == Role::Runtime);
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
