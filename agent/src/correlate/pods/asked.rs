//! Why a container had to end, by what the API says, and which grace counted.

use std::time::Duration;

use crate::kubernetes::{Asked, Request};
use crate::pod::{PodHint, RestartPolicy};
use crate::verdict::Cause;

use super::context::Death;
use super::pod::Pod;

/// The kubelet's pod worker makes a shorter grace this long.
const LEAST_GRACE: Duration = Duration::from_secs(1);

impl Pod {
    /// Why the pod had to end.
    pub fn asked(&self) -> Option<Asked> {
        if !self.is_ending() {
            return None;
        }
        let by_disruption = self.disruption.as_ref().and_then(|disruption| {
            let cause = match disruption.reason.as_str() {
                "EvictionByEvictionAPI" => Cause::EvictedApi,
                "DeletionByTaintManager" | "DeletionByDeviceTaintManager" => Cause::EvictedTaint,
                "PreemptionByScheduler" => Cause::EvictedPreempted,
                "DeletionByPodGC" => Cause::Deleted,
                "TerminationByKubelet" => by_reason(self.reason.as_deref()?)?,
                _ => return None,
            };
            Some(asked(cause, format!("DisruptionTarget={}", disruption.reason)))
        });
        let by_reason = || {
            let reason = self.reason.as_deref()?;
            Some(asked(by_reason(reason)?, format!("status.reason={reason}")))
        };
        by_disruption
            .or_else(by_reason)
            .or_else(|| self.hints.iter().find_map(by_event))
            .or_else(|| self.deletion.map(|_| asked(Cause::Deleted, "deletionTimestamp".to_owned())))
            .or_else(|| self.asked_by_absence())
    }

    fn asked_by_absence(&self) -> Option<Asked> {
        let gone = self.gone.as_ref().filter(|_| !self.over_by_itself)?;
        let evidence = match (self.is_static(), gone.watched) {
            // Deleting a mirror pod stops nothing: that it went after its containers means that the manifest did.
            (true, _) => "the mirror pod is gone and did not come back",
            (false, true) => "deleted at once, with grace 0",
            (false, false) => "gone at a relist",
        };
        Some(asked(Cause::Deleted, evidence.to_owned()))
    }

    /// Why one container had to end.
    pub fn asked_of(&self, name: Option<&str>, request: Option<&Request>, death: &Death) -> Option<Asked> {
        let hint = self.hints.iter().find(|hint| {
            let is_its = name.is_some() && hint.container.as_deref() == name;
            let in_time = hint.seen >= death.start && death.end.is_none_or(|end| hint.seen <= end.plus(super::HOLD));
            let before_request = request.is_none_or(|request| hint.seen <= request.latest);
            is_its && in_time && before_request && killing(hint).is_some()
        });
        if let Some((hint, cause)) = hint.and_then(|hint| Some((hint, killing(hint)?))) {
            return Some(asked(cause, format!("Event Killing: {}", hint.message)));
        }
        // It was stopped before anybody can have asked for the pod's deletion, by clocks that were compared.
        let stopped_before = |request: &Request| request.skew.is_some() && death.stop.is_some_and(|at| at < request.earliest);
        if request.is_some_and(stopped_before) {
            return None;
        }
        self.asked()
    }

    /// The grace that counted for this death; None where nobody says.
    pub fn grace(&self, name: Option<&str>, asked: Option<&Asked>, death: &Death) -> Option<Duration> {
        let spec = self.fact.as_ref().and_then(|fact| fact.spec.grace);
        let probes = name.and_then(|name| self.spec(name));
        let of = |probe: Option<&crate::pod::Probe>| probe.and_then(|probe| probe.grace);
        match asked.map(|asked| asked.cause) {
            Some(Cause::Liveness) => of(probes.and_then(|spec| spec.liveness.as_ref())).or(spec),
            Some(Cause::Startup) => of(probes.and_then(|spec| spec.startup.as_ref())).or(spec),
            Some(Cause::Deadline) if self.deletion.is_none() => spec,
            // The kubelet's own evictions and a node's shutdown have graces of their own.
            Some(Cause::NodeShutdown | Cause::EvictedNodePressure) => None,
            None | Some(Cause::Restart) => death.stop.and(spec),
            Some(_) => match self.deletion {
                Some((deletion, _)) => {
                    let in_time = |(seen, _): &&(crate::event::Boot, Duration)| death.end.is_none_or(|end| *seen <= end);
                    let last = self.shortened.iter().rev().find(in_time);
                    Some(last.map_or(deletion.grace, |(_, grace)| *grace).max(LEAST_GRACE))
                }
                None if self.gone.as_ref().is_some_and(|gone| gone.watched) && !self.is_static() => Some(LEAST_GRACE),
                None => None,
            },
        }
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
fn by_event(hint: &PodHint) -> Option<Asked> {
    let cause = match hint.reason.as_str() {
        "Evicted" => Cause::EvictedNodePressure,
        "Preempting" | "Preempted" => Cause::EvictedPreempted,
        "TaintManagerEviction" if hint.message.starts_with("Marking") => Cause::EvictedTaint,
        _ => return None,
    };
    Some(asked(cause, format!("Event {}: {}", hint.reason, hint.message)))
}

/// Events of the kubelet's that name why one container has to.
pub(super) fn killing(hint: &PodHint) -> Option<Cause> {
    if hint.reason != "Killing" {
        return None;
    }
    let says = |text: &str| hint.message.contains(text);
    if says("failed liveness probe") {
        Some(Cause::Liveness)
    } else if says("failed startup probe") {
        Some(Cause::Startup)
    } else if says("definition changed") || says("resize") {
        Some(Cause::Restart)
    } else {
        None
    }
}

fn asked(cause: Cause, evidence: String) -> Asked {
    Asked { cause, evidence }
}
