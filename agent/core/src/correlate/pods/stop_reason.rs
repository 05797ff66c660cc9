//! Why Kubernetes stopped a container, by evidence of the API, and which grace period counted.

use std::sync::Arc;
use std::time::Duration;

use crate::kubernetes::{Asker, Detail, Request, StopReason};
use crate::pod::{ContainerKind, Deletion, Disruption, Phase, PodEvent, PodFact, PodGone};
use crate::shutdown::EndedByShutdown;
use crate::tolerances::{LEAST_GRACE, RESOLUTION, RETRIES_EVICTION, WATCH_DELAY};
use crate::verdict::Cause;

use crate::time::Boot;

use super::api::{Api, PART_MISSING};
use super::event;
use super::life::Life;
use super::pod::Pod;

/// The kubelet's own reason of a DisruptionTarget condition.
const BY_KUBELET: &str = "TerminationByKubelet";
/// The reason that the Eviction API sets.
const BY_EVICTION: &str = "EvictionByEvictionAPI";
/// Evidence of an unknown reason.
pub(super) const INTERRUPTED: &str = "the watch of the pods was interrupted";
const UNOBSERVED: &str = "the stop signal was not observed";

impl Pod {
    /// Why Kubernetes stopped the pod.
    pub fn stop_reason(&self) -> Option<StopReason> {
        if !self.is_ending() {
            return None;
        }
        self.stop_reason_by_api().or_else(|| self.stop_reason_by_absence())
    }

    /// The status names the reason, without a deletion request: an eviction by the kubelet, a node's shutdown, a deadline.
    pub fn has_reason(&self) -> bool {
        self.object.deletion.is_none() && self.stop_reason_by_api().is_some()
    }

    fn stop_reason_by_api(&self) -> Option<StopReason> {
        // A mark without a deletion may have been taken back, in a version that was not shown; not the kubelet's own.
        let is_whole = |gone: &PodGone| gone.watched && !self.object.lacks_versions;
        let is_settled = self.object.deletion.is_some() || self.object.gone.as_ref().is_none_or(is_whole);
        let marked = self.object.disruption.as_ref();
        let marked = marked.filter(|disruption| is_settled || disruption.reason == BY_KUBELET);
        let by_disruption = marked.and_then(|disruption| {
            let cause = match disruption.reason.as_str() {
                BY_EVICTION => Cause::EvictedApi,
                "DeletionByTaintManager" | "DeletionByDeviceTaintManager" => Cause::EvictedTaint,
                "PreemptionByScheduler" => Cause::EvictedPreempted,
                "DeletionByPodGC" => Cause::Deleted,
                BY_KUBELET => by_reason(self.object.reason.as_deref()?)?,
                _ => return None,
            };
            Some(StopReason {
                detail: detail(cause, disruption),
                ..event::reason(cause, format!("DisruptionTarget={}", disruption.reason))
            })
        });
        let by_reason = || {
            let reason = self.object.reason.as_deref()?;
            Some(event::reason(by_reason(reason)?, format!("status.reason={reason}")))
        };
        by_disruption
            .or_else(by_reason)
            .or_else(|| {
                self.events
                    .list
                    .iter()
                    .filter(|(at, _)| !self.was_cancelled(*at))
                    .find_map(|(at, event)| self.stop_reason_by_event(*at, event))
            })
            .or_else(|| {
                self.object
                    .deletion
                    .map(|_| event::reason(Cause::Deleted, "deletionTimestamp".to_owned()))
            })
    }

    fn stop_reason_by_absence(&self) -> Option<StopReason> {
        let gone = self.object.gone.as_ref().filter(|_| !self.object.over_by_itself)?;
        let (cause, evidence) = match (self.is_static(), gone.watched) {
            // The versions before would have named an eviction, a deadline, or that the pod had completed.
            (_, false) => (Cause::Unknown, "missing from a new list of the pods"),
            (_, true) if self.object.lacks_versions => (Cause::Unknown, PART_MISSING),
            // Deleting a mirror pod stops nothing: a mirror pod that is gone after its containers means that the manifest is gone.
            (true, true) => (Cause::Deleted, "the mirror pod was deleted and not created again"),
            (false, true) => (Cause::Deleted, "deleted with a grace period of 0"),
        };
        Some(event::reason(cause, evidence.to_owned()))
    }

    /// Why Kubernetes stopped one container.
    pub fn stop_reason_of(
        &self,
        name: Option<&str>,
        request: Option<&Request>,
        life: &Life,
        is_request_unshown: bool,
        api: &Api,
    ) -> Option<StopReason> {
        let event = self.events.list.iter().rev().find(|(at, event)| {
            let is_own = name.is_some() && event.container.as_deref() == name;
            let before_request = request.is_none_or(|request| *at <= request.latest);
            is_own && life.can_be_why(*at, event) && before_request && event::killing(event).is_some()
        });
        if let Some((at, event, (cause, detail))) = event.and_then(|(at, event)| Some((at, event, event::killing(event)?))) {
            // What the kubelet did then need not be the first.
            if life.hidden_stops.iter().any(|hole| hole.from < *at) {
                return Some(event::reason(Cause::Unknown, UNOBSERVED.to_owned()));
            }
            let trigger = || self.trigger(life).filter(|_| cause == Cause::RestartInPlace);
            return Some(StopReason {
                detail: detail.or_else(trigger),
                ..event::reason(cause, format!("Event Killing: {}", event.message))
            });
        }
        if let Some(reason) = self.stop_reason_in_place(life, api) {
            return Some(reason);
        }
        if let Some(reason) = self.stop_reason_by_shutdown(request, life, api) {
            return Some(reason);
        }
        if self.was_succeeded(&life.id) {
            return None;
        }
        // A request that was not shown may have come first, unless a status showed the exit and no request.
        let is_reported = self.is_reported(&life.id);
        let is_hidden = is_request_unshown && !is_reported;
        let hidden = || is_hidden.then(|| event::reason(Cause::Unknown, INTERRUPTED.to_owned()));
        // By clocks that were compared, the stop was before the earliest possible deletion request, or may have been.
        let stopped_before = |request: &Request| request.skew.is_some() && life.may_be_stopped_before(request.earliest);
        if request.is_some_and(stopped_before) || self.may_have_stopped_before_deletion(life) {
            return None;
        }
        if self.may_be_over_before_deletion(request, life, api) {
            return Some(self.hidden_stop_reason(INTERRUPTED));
        }
        // No container starts in a pod that has terminated: what the status shows is not of this life, as of a mirror pod before the present one.
        let is_of_other = |fact: &Arc<PodFact>| life.start.is_some_and(|start| fact.seen < start);
        if self.is_terminal() && self.fact.as_ref().is_some_and(is_of_other) {
            return Some(event::reason(Cause::Unknown, INTERRUPTED.to_owned()));
        }
        // The pod's removal does not explain a container that exited earlier and without a stop signal.
        let ended_before = |gone: &PodGone| life.end.is_some_and(|end| end.plus(WATCH_DELAY) < gone.seen || !gone.watched);
        if self.object.deletion.is_none() && !life.stop_requested && self.object.gone.as_ref().is_some_and(ended_before) {
            return self.stop_reason_by_api().or_else(hidden);
        }
        let known = self.stop_reason().or_else(|| self.stop_reason_by_completion(name, life));
        // Where versions before the deletion are missing, only compared clocks, or a stop signal after the watch showed the deletion, show
        // that the deletion came first.
        let is_compared = request.is_some_and(|request| request.skew.is_some());
        let is_first = || {
            self.object
                .deletion
                .is_some_and(|(_, seen)| life.stop.is_some_and(|stop| seen <= stop))
        };
        // The watch showed the deletion after the stop, and did not show all that came: perhaps the kubelet's own reason.
        let is_later = || {
            let seen = self.object.deletion.map(|(_, seen)| seen);
            let mut times = life.stop.zip(seen).into_iter();
            is_hidden && times.any(|(stop, seen)| stop.plus(WATCH_DELAY) < seen)
        };
        let is_unsure = |reason: &StopReason| {
            let is_open = self.object.lacks_versions && !is_first() || is_later();
            reason.cause == Cause::Deleted && !is_compared && is_open
        };
        known
            .map(|reason| {
                if is_unsure(&reason) {
                    event::reason(Cause::Unknown, PART_MISSING.to_owned())
                } else {
                    reason
                }
            })
            .or_else(hidden)
    }

    /// By the watch: what stopped a container may have come before the deletion was seen, and be hidden.
    fn may_have_stopped_before_deletion(&self, life: &Life) -> bool {
        let may_be_before = |(_, seen): (_, Boot)| life.may_be_stopped_before(seen.minus(WATCH_DELAY));
        life.stop.is_none() && self.object.deletion.is_some_and(may_be_before)
    }

    /// The pod has terminated, and an outage of the watch hides whether it had before its deletion was requested, as a Job's pod that is
    /// cleaned up.
    pub fn may_be_over_before_deletion(&self, request: Option<&Request>, life: &Life, api: &Api) -> bool {
        let Some(((_, seen), end)) = self.object.deletion.zip(life.end_earliest) else {
            return false;
        };
        let is_before = |request: &Request| request.skew.is_some() && request.latest <= end;
        let is_hidden = end < seen && api.was_away(end, seen).is_some();
        self.is_terminal() && is_hidden && !life.stop_requested && !request.is_some_and(is_before)
    }

    /// Why Kubernetes stopped the pod, if that may be its deletion. `why` that is not known.
    pub fn hidden_stop_reason(&self, why: &str) -> StopReason {
        let by_api = self.stop_reason_by_api().filter(|reason| reason.cause != Cause::Deleted);
        by_api.unwrap_or_else(|| event::reason(Cause::Unknown, why.to_owned()))
    }

    /// The node was shutting down at the stop signal, and the pod's deletion was not requested before: a later one only removes the object.
    fn stop_reason_by_shutdown(&self, request: Option<&Request>, life: &Life, api: &Api) -> Option<StopReason> {
        let shutdown = life.shutdown.as_ref()?;
        let latest = life.stop.or(life.end)?;
        // A stop signal that was not observed.
        let hidden = life.hidden_stops.iter().map(|hole| hole.from).min();
        let hidden = hidden.filter(|_| life.stop.is_none());
        let earliest = life.stop.or(hidden).unwrap_or(latest);
        // In an outage, also one that ended with a later version or with a list without the pod, the watch does not show which came first.
        let gone = self.object.gone.as_ref().filter(|gone| !gone.watched).map(|gone| gone.seen);
        let shown = self.object.deletion.map(|(_, seen)| seen).or(gone);
        let shown = shown.map_or(latest, |seen| seen.max(latest)).max(latest.plus(WATCH_DELAY));
        let is_missing = || api.is_part_missing(self.asked_from(earliest, life), earliest);
        let was_hidden = api.was_away(earliest, shown).is_some() || is_missing();
        let (is_later, is_earlier) = match request.filter(|request| request.skew.is_some()) {
            Some(request) if request.earliest > latest => (true, false),
            Some(request) if request.latest <= earliest => (false, true),
            // By the watch, unless the API server's clock says otherwise.
            _ => {
                let later = |(deletion, seen)| seen > latest.plus(WATCH_DELAY) && api.requested(deletion).1 > latest;
                let earlier = |(_, seen): (Deletion, Boot)| seen <= earliest.plus(WATCH_DELAY);
                (
                    !was_hidden && self.object.deletion.is_none_or(later),
                    self.object.deletion.is_some_and(earlier),
                )
            }
        };
        let by_api = || self.stop_reason_by_api().filter(|reason| reason.cause != Cause::Deleted);
        let is_observed = hidden.is_none();
        match (is_later && is_observed, is_earlier) {
            (true, _) => by_api().or_else(|| Some(event::reason(Cause::NodeShutdown, shutdown.evidence.to_owned()))),
            (false, true) => None,
            // The pod's own reason is not that of a container which a restart followed.
            (false, false) => by_api().filter(|_| !self.was_succeeded(&life.id)).or_else(|| {
                let why = match (was_hidden, is_observed) {
                    (true, _) => INTERRUPTED,
                    (false, true) => "by the API server's clock the deletion was requested before the stop signal",
                    (false, false) => UNOBSERVED,
                };
                Some(event::reason(Cause::Unknown, why.to_owned()))
            }),
        }
    }

    /// A sidecar is stopped when the main containers are done.
    fn stop_reason_by_completion(&self, name: Option<&str>, life: &Life) -> Option<StopReason> {
        let is_sidecar = name.and_then(|name| self.spec(name))?.kind == ContainerKind::Sidecar;
        let is_done = self.object.over_by_itself && self.fact.as_ref()?.phase == Phase::Succeeded;
        (is_sidecar && is_done && life.stop.is_some()).then(|| event::reason(Cause::Completed, "phase=Succeeded".to_owned()))
    }

    /// The grace period that counted for this termination; None if not known.
    pub fn grace(
        &self,
        name: Option<&str>,
        stop_reason: Option<&StopReason>,
        request: Option<&Request>,
        life: &Life,
    ) -> Option<Duration> {
        let spec = self.fact.as_ref().and_then(|fact| fact.spec.grace);
        let probes = name.and_then(|name| self.spec(name));
        let of = |probe: Option<&crate::pod::KubeletProbe>| probe.and_then(|probe| probe.grace);
        match stop_reason.map(|stop_reason| stop_reason.cause) {
            Some(Cause::Liveness) => of(probes.and_then(|spec| spec.liveness.as_ref())).or(spec),
            Some(Cause::Startup) => of(probes.and_then(|spec| spec.startup.as_ref())).or(spec),
            Some(Cause::Deadline) if self.object.deletion.is_none() => spec,
            Some(Cause::Completed) => spec,
            // The kubelet's own evictions, its restarts in place and a node's shutdown have their own grace periods.
            Some(Cause::NodeShutdown | Cause::EvictedNodePressure | Cause::RestartInPlace) => None,
            None | Some(Cause::Restart) => life.stop.and(spec),
            // A deletion that is not a request of this life asked for nothing of it.
            Some(_) => match self.object.deletion.filter(|_| request.is_some()) {
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
                // Not `LEAST_GRACE`: a request with grace period 0 is why the container was killed.
                None => self.was_forced(life).then_some(Duration::ZERO),
            },
        }
    }

    /// Who asked for the deletion, where an Event on the pod is about this very request: an announced eviction may have failed, and
    /// somebody else's deletion come later.
    pub fn asker(&self, grace: Duration, earliest: Boot, latest: Boot) -> Option<Asker> {
        let is_eviction = self.object.disruption.as_ref().is_some_and(|of| of.reason == BY_EVICTION);
        self.events.list.iter().rev().find_map(|(at, event)| {
            let asker = event::asker(event)?;
            let is_about_it = match asker {
                Asker::ClusterAutoscaler => {
                    is_eviction && *at <= latest.plus(RESOLUTION) && at.plus(RETRIES_EVICTION).plus(RESOLUTION) >= earliest
                }
                // Its deletion is no eviction, and the message has the grace period.
                Asker::Karpenter => !is_eviction && event.message.contains(&format!("granted {} seconds", grace.as_secs())),
            };
            is_about_it.then_some(asker)
        })
    }

    fn stop_reason_by_event(&self, at: Boot, event: &PodEvent) -> Option<StopReason> {
        let reason = event::by_event(event)?;
        let may_be_cancelled =
            reason.cause == Cause::EvictedTaint && self.events.missing_until.is_some_and(|until| at <= until);
        Some(match may_be_cancelled {
            true => event::reason(Cause::Unknown, PART_MISSING.to_owned()),
            false => reason,
        })
    }

    /// The taint was removed before the eviction.
    fn was_cancelled(&self, marked: Boot) -> bool {
        self.events
            .list
            .iter()
            .any(|(at, event)| event::is_cancellation(event) && *at >= marked)
    }

    /// The pod was gone from the API while the container still ran: only a delete with grace period 0 does that.
    fn was_forced(&self, life: &Life) -> bool {
        let before = |gone: &PodGone| gone.watched && life.end.is_none_or(|end| gone.seen < end);
        self.object.gone.as_ref().is_some_and(before) && !self.object.over_by_itself && !self.is_static()
    }

    /// Whether the kubelet restarts the container after this exit; None unknown.
    pub fn restarts_after(&self, name: Option<&str>, exit_code: i32) -> Option<bool> {
        let by_pod = self.fact.as_ref()?.spec.restart_policy.restarts_after(exit_code);
        let own = name
            .and_then(|name| self.spec(name))
            .and_then(|spec| spec.restarts_after(exit_code));
        Some(own.unwrap_or(by_pod))
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

/// A node's shutdown stopped the container or, within one, may have.
pub(super) fn may_be_by_shutdown(reason: &StopReason, shutdown: Option<&EndedByShutdown>) -> bool {
    reason.cause == Cause::NodeShutdown || reason.cause == Cause::Unknown && shutdown.is_some()
}

fn detail(cause: Cause, disruption: &Disruption) -> Option<Detail> {
    let message = || disruption.message.clone();
    match (disruption.reason.as_str(), cause) {
        ("DeletionByPodGC", _) => Some(Detail::PodGc { message: message() }),
        (BY_KUBELET, Cause::EvictedNodePressure) => Some(Detail::OutOfResource { message: message() }),
        _ => None,
    }
}
