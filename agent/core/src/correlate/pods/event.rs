//! What an Event of a pod says.

use crate::kubernetes::{Asker, Detail, StopReason};
use crate::pod::PodEvent;
use crate::verdict::Cause;

/// All that the kubelet's Event says of a container that it ends to restart the pod in place (1.36).
const RESTARTS_IN_PLACE: &str = "killing";
/// The kubelet could not stop a container or the sandbox, and will try again.
pub(super) const FAILED: &str = "FailedKillPod";

/// The reason in an Event about the pod as a whole.
pub(super) fn by_event(event: &PodEvent) -> Option<StopReason> {
    let cause = match event.reason.as_str() {
        "Evicted" => Cause::EvictedNodePressure,
        "Preempting" | "Preempted" => Cause::EvictedPreempted,
        "TaintManagerEviction" if event.message.starts_with("Marking") => Cause::EvictedTaint,
        _ => return None,
    };
    Some(reason(cause, format!("Event {}: {}", event.reason, event.message)))
}

/// Whether an Event of a pod explains a termination and is kept.
pub(super) fn explains(event: &PodEvent) -> bool {
    event.reason == "FailedPreStopHook"
        || event.reason == FAILED
        || killing(event).is_some()
        || by_event(event).is_some()
        || is_cancellation(event)
        || asker(event).is_some()
}

/// A controller that deletes pods with a grace period of its own announces that. Others, such as `kubectl drain` and handlers of a
/// cloud's notices, write no Event on the pod.
pub(super) fn asker(event: &PodEvent) -> Option<Asker> {
    let has = |text: &str| event.message.contains(text);
    match event.reason.as_str() {
        "ScaleDown" if has("for node scale down") => Some(Asker::ClusterAutoscaler),
        "Disrupted" if has("terminationTime") && has("grace-period") => Some(Asker::Karpenter),
        _ => None,
    }
}

/// The kubelet stops a container, for any reason.
pub(super) fn announces(event: &PodEvent) -> bool {
    event.reason == "Killing"
}

pub(super) fn is_cancellation(event: &PodEvent) -> bool {
    event.reason == "TaintManagerEviction" && event.message.starts_with("Cancelling")
}

/// The reason in the kubelet's Event about one container. By words that no container name can contain: the message has the name, too.
pub(super) fn killing(event: &PodEvent) -> Option<(Cause, Option<Detail>)> {
    if !announces(event) {
        return None;
    }
    let has = |text: &str| event.message.contains(text);
    if has("failed liveness probe") {
        Some((Cause::Liveness, None))
    } else if has("failed startup probe") {
        Some((Cause::Startup, None))
    } else if has("definition changed") {
        Some((Cause::Restart, Some(Detail::DefinitionChanged)))
    } else if event.message == RESTARTS_IN_PLACE {
        Some((Cause::RestartInPlace, None))
    } else if has("resize requires restart") {
        Some((Cause::Restart, Some(Detail::ResizeRequiresRestart)))
    } else {
        None
    }
}

pub(super) fn reason(cause: Cause, evidence: String) -> StopReason {
    StopReason {
        cause,
        evidence,
        detail: None,
    }
}
