//! Why a container had to end, by what the API says, and which grace counted.

use std::time::Duration;

use crate::kubernetes::{Asked, Detail, Request};
use crate::pod::{ContainerKind, Disruption, Phase, PodEvent, PodGone, RestartPolicy};
use crate::verdict::Cause;

use crate::time::Boot;

use super::context::Life;
use super::pod::Pod;

/// The kubelet's pod worker makes a shorter grace this long.
const LEAST_GRACE: Duration = Duration::from_secs(1);
/// A watch shows within this that a pod is gone.
const WATCHED: Duration = Duration::from_secs(1);

impl Pod {
    /// Why the pod had to end.
    pub fn asked(&self) -> Option<Asked> {
        if !self.is_ending() {
            return None;
        }
        self.asked_by_api().or_else(|| self.asked_by_absence())
    }

    fn asked_by_api(&self) -> Option<Asked> {
        let by_disruption = self.disruption.as_ref().and_then(|disruption| {
            let cause = match disruption.reason.as_str() {
                "EvictionByEvictionAPI" => Cause::EvictedApi,
                "DeletionByTaintManager" | "DeletionByDeviceTaintManager" => Cause::EvictedTaint,
                "PreemptionByScheduler" => Cause::EvictedPreempted,
                "DeletionByPodGC" => Cause::Deleted,
                "TerminationByKubelet" => by_reason(self.reason.as_deref()?)?,
                _ => return None,
            };
            Some(Asked {
                detail: detail(cause, disruption),
                ..asked(cause, format!("DisruptionTarget={}", disruption.reason))
            })
        });
        let by_reason = || {
            let reason = self.reason.as_deref()?;
            Some(asked(by_reason(reason)?, format!("status.reason={reason}")))
        };
        by_disruption
            .or_else(by_reason)
            .or_else(|| {
                self.events
                    .iter()
                    .filter(|(at, _)| !self.was_called_off(*at))
                    .find_map(|(_, event)| by_event(event))
            })
            .or_else(|| self.deletion.map(|_| asked(Cause::Deleted, "deletionTimestamp".to_owned())))
    }

    fn asked_by_absence(&self) -> Option<Asked> {
        let gone = self.gone.as_ref().filter(|_| !self.over_by_itself)?;
        let evidence = match (self.is_static(), gone.watched) {
            // Deleting a mirror pod stops nothing: that it went after its containers means that the manifest did.
            (true, _) => "the mirror pod was deleted and not created again",
            (false, true) => "deleted with a grace period of 0",
            (false, false) => "missing from a new list of the pods",
        };
        Some(asked(Cause::Deleted, evidence.to_owned()))
    }

    /// Why one container had to end.
    pub fn asked_of(&self, name: Option<&str>, request: Option<&Request>, life: &Life) -> Option<Asked> {
        let event = self.events.iter().rev().find(|(at, event)| {
            let is_its = name.is_some() && event.container.as_deref() == name;
            let before_request = request.is_none_or(|request| *at <= request.latest);
            is_its && life.can_be_why(*at, event) && before_request && killing(event).is_some()
        });
        if let Some((event, (cause, detail))) = event.and_then(|(_, event)| Some((event, killing(event)?))) {
            return Some(Asked {
                detail,
                ..asked(cause, format!("Event Killing: {}", event.message))
            });
        }
        if self.was_succeeded(&life.id) {
            return None;
        }
        // It was stopped before anybody can have asked for the pod's deletion, by clocks that were compared.
        let stopped_before = |request: &Request| request.skew.is_some() && life.stop.is_some_and(|at| at < request.earliest);
        if request.is_some_and(stopped_before) {
            return None;
        }
        // That the pod went says nothing about a container that ended before without a stop signal.
        let ended_before = |gone: &PodGone| life.end.is_some_and(|end| end.plus(WATCHED) < gone.seen || !gone.watched);
        if self.deletion.is_none() && !life.asked && self.gone.as_ref().is_some_and(ended_before) {
            return self.asked_by_api();
        }
        self.asked().or_else(|| self.asked_by_completion(name, life))
    }

    /// A sidecar is stopped when the main containers are done.
    fn asked_by_completion(&self, name: Option<&str>, life: &Life) -> Option<Asked> {
        let is_sidecar = name.and_then(|name| self.spec(name))?.kind == ContainerKind::Sidecar;
        let is_done = self.over_by_itself && self.fact.as_ref()?.phase == Phase::Succeeded;
        (is_sidecar && is_done && life.stop.is_some()).then(|| asked(Cause::Completed, "phase=Succeeded".to_owned()))
    }

    /// The grace that counted for this end; None where it is not known.
    pub fn grace(&self, name: Option<&str>, asked: Option<&Asked>, request: Option<&Request>, life: &Life) -> Option<Duration> {
        let spec = self.fact.as_ref().and_then(|fact| fact.spec.grace);
        let probes = name.and_then(|name| self.spec(name));
        let of = |probe: Option<&crate::pod::KubeletProbe>| probe.and_then(|probe| probe.grace);
        match asked.map(|asked| asked.cause) {
            Some(Cause::Liveness) => of(probes.and_then(|spec| spec.liveness.as_ref())).or(spec),
            Some(Cause::Startup) => of(probes.and_then(|spec| spec.startup.as_ref())).or(spec),
            Some(Cause::Deadline) if self.deletion.is_none() => spec,
            Some(Cause::Completed) => spec,
            // The kubelet's own evictions and a node's shutdown have graces of their own.
            Some(Cause::NodeShutdown | Cause::EvictedNodePressure) => None,
            None | Some(Cause::Restart) => life.stop.and(spec),
            Some(_) => match self.deletion {
                Some((deletion, seen)) => {
                    let last = request.and_then(|request| match life.end {
                        Some(end) => request.shortened_for(end),
                        None => request.shortened.last().copied(),
                    });
                    let grace = last.map_or(deletion.grace, |(_, grace)| grace).max(LEAST_GRACE);
                    let is_used_up = life.end.is_none_or(|end| end >= seen.plus(grace));
                    Some(if self.was_forced(life) && !is_used_up {
                        Duration::ZERO
                    } else {
                        grace
                    })
                }
                // Not `LEAST_GRACE`: it was asked for nothing, and that is why it was killed.
                None => self.was_forced(life).then_some(Duration::ZERO),
            },
        }
    }

    /// The taint went before the pod had to.
    fn was_called_off(&self, marked: Boot) -> bool {
        self.events.iter().any(|(at, event)| is_calling_off(event) && *at >= marked)
    }

    /// The API forgot it while this still ran: only a delete with grace 0 does that.
    fn was_forced(&self, life: &Life) -> bool {
        let before = |gone: &PodGone| gone.watched && life.end.is_none_or(|end| gone.seen < end);
        self.gone.as_ref().is_some_and(before) && !self.over_by_itself && !self.is_static()
    }

    /// Whether the kubelet starts a container again that ended so; None unknown.
    pub fn restarts_after(&self, exit_code: i32) -> Option<bool> {
        Some(match self.fact.as_ref()?.spec.restart_policy {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Never => false,
        })
    }
}

fn by_reason(reason: &str) -> Option<Cause> {
    Some(match reason {
        "Evicted" => Cause::EvictedNodePressure,
        "Preempting" => Cause::EvictedPreempted,
        "Terminated" | "NodeShutdown" | "Shutdown" => Cause::NodeShutdown,
        "DeadlineExceeded" => Cause::Deadline,
        _ => return None,
    })
}

/// Events that name why the pod as a whole has to go.
fn by_event(event: &PodEvent) -> Option<Asked> {
    let cause = match event.reason.as_str() {
        "Evicted" => Cause::EvictedNodePressure,
        "Preempting" | "Preempted" => Cause::EvictedPreempted,
        "TaintManagerEviction" if event.message.starts_with("Marking") => Cause::EvictedTaint,
        _ => return None,
    };
    Some(asked(cause, format!("Event {}: {}", event.reason, event.message)))
}

/// What is worth keeping of a pod's Events.
pub(super) fn explains(event: &PodEvent) -> bool {
    event.reason == "FailedPreStopHook" || killing(event).is_some() || by_event(event).is_some() || is_calling_off(event)
}

fn is_calling_off(event: &PodEvent) -> bool {
    event.reason == "TaintManagerEviction" && event.message.starts_with("Cancelling")
}

/// Events of the kubelet's that name why one container has to. By words that no container's name can hold: it is in the message, too.
pub(super) fn killing(event: &PodEvent) -> Option<(Cause, Option<Detail>)> {
    if event.reason != "Killing" {
        return None;
    }
    let says = |text: &str| event.message.contains(text);
    if says("failed liveness probe") {
        Some((Cause::Liveness, None))
    } else if says("failed startup probe") {
        Some((Cause::Startup, None))
    } else if says("definition changed") {
        Some((Cause::Restart, Some(Detail::DefinitionChanged)))
    } else if says("resize requires restart") {
        Some((Cause::Restart, Some(Detail::ResizeRequiresRestart)))
    } else {
        None
    }
}

fn detail(cause: Cause, disruption: &Disruption) -> Option<Detail> {
    let message = || disruption.message.clone();
    match (disruption.reason.as_str(), cause) {
        ("DeletionByPodGC", _) => Some(Detail::PodGc { message: message() }),
        ("TerminationByKubelet", Cause::EvictedNodePressure) => Some(Detail::OutOfResource { message: message() }),
        _ => None,
    }
}

fn asked(cause: Cause, evidence: String) -> Asked {
    Asked {
        cause,
        evidence,
        detail: None,
    }
}
