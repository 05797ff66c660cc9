//! What an Event of a pod says.

use std::collections::{HashMap, VecDeque};

use crate::kubernetes::{Asker, Detail, StopReason};
use crate::pod::{PodEvent, PodEventsState};
use crate::time::Boot;
use crate::verdict::Cause;

use super::parts::TEXT;

/// Most Events that are kept: the newest matter most.
const EVENTS: usize = 64;

/// All that the kubelet's Event says of a container that it ends to restart the pod in place (1.36).
const RESTARTS_IN_PLACE: &str = "killing";
/// The kubelet could not stop a container or the sandbox, and will try again.
pub(super) const FAILED: &str = "FailedKillPod";

/// The Events of a pod.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Those that explain a termination, with the latest possible time of their subject.
    pub list: VecDeque<(Boot, PodEvent)>,
    /// Containers of which some were dropped, with the last one's time; None if any container.
    pub dropped: HashMap<Option<String>, Boot>,
    /// Containers that the kubelet announced to stop, for any reason, with the time of the latest Event.
    pub killings: HashMap<String, Boot>,
    /// How far they are known, and the time up to which this holds.
    pub state: Option<(Boot, PodEventsState)>,
    /// A part of the recording or the journal is missing until then.
    pub missing_until: Option<Boot>,
}

impl Events {
    /// Keeps only Events that explain a termination: probes that fail each second would replace these.
    pub fn add(&mut self, at: Boot, event: PodEvent) {
        self.announced(at, &event);
        if !explains(&event) {
            return;
        }
        if self.list.len() >= EVENTS {
            // The container with the most, so that one in a crash loop drops no other's.
            let of = |name: Option<&str>| {
                self.list
                    .iter()
                    .filter(|(_, event)| event.container.as_deref() == name)
                    .count()
            };
            let most = (0..self.list.len())
                .rev()
                .max_by_key(|&i| of(self.list[i].1.container.as_deref()));
            if let Some((at, old)) = most.and_then(|i| self.list.remove(i)) {
                // None: the doubt is about every container.
                let of = old.container.filter(|_| self.dropped.len() < EVENTS);
                let dropped = self.dropped.entry(of).or_insert(at);
                *dropped = (*dropped).max(at);
            }
        }
        self.list.push_back((at, event));
    }

    fn announced(&mut self, at: Boot, event: &PodEvent) {
        let Some(name) = event.container.as_ref().filter(|_| announces(event)) else {
            return;
        };
        if let Some(known) = self.killings.get_mut(name) {
            *known = at.max(*known);
        } else if self.killings.len() < EVENTS {
            self.killings.insert(name.clone(), at);
        } else {
            self.dropped.insert(None, at);
        }
    }

    pub fn bytes(&self) -> usize {
        let messages = self.list.iter().map(|(_, event)| event.message.len() + TEXT).sum::<usize>();
        let names = (self.dropped.len() + self.killings.len()) * 2 * TEXT;
        self.list.capacity() * size_of::<(Boot, PodEvent)>() + messages + names
    }
}

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
