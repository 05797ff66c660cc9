//! Pods that a node's shutdown stopped, and whose end only the API of the next boot shows: the agent ends before the pods of the last phase,
//! and the kubelet reports their status after that.
//!
//! The pods keep the clock of the boot in which they ran: what the next boot's API shows is converted to it.

use std::sync::Arc;

use crate::ids::{ContainerId, PodUid};
use crate::input::Observation;
use crate::pod::{ContainerState, PodFact, PodGone, PodsState};
use crate::report::Report;
use crate::time::{Boot, WallOffset};
use crate::tolerances::NEXT_BOOT_PODS;

use super::pod::Pod;
use super::{FromPods, Pods};

/// See the module.
pub(in crate::correlate) struct PreviousPods {
    pods: Pods,
    boot_id: String,
    /// The last evidence of that boot.
    last: Boot,
    /// The clock of the boot that observes.
    clock: WallOffset,
    until: Boot,
}

impl PreviousPods {
    /// The pods that [`Pods::end_of_boot`] left; None if there are none. `last`: the last evidence of `boot_id`.
    pub fn of(
        mut pods: Pods,
        boot_id: String,
        last: Boot,
        next: &Observation,
        reports: &mut Vec<Report>,
    ) -> Option<Box<PreviousPods>> {
        let over: Vec<PodUid> = pods
            .pods
            .values()
            .filter(|pod| pod.held.is_empty())
            .map(|pod| pod.key.clone())
            .collect();
        for key in over {
            // A list of the new boot shows the workloads again.
            pods.forget(&key, &mut FromPods::default());
        }
        pods.limits = pods.limits.of_previous_pods();
        let mut out = FromPods::default();
        pods.fit(last, &mut out);
        take(out, reports);
        pods.resume();
        (pods.held > 0).then(|| {
            Box::new(PreviousPods {
                pods,
                boot_id,
                last,
                clock: next.wall_offset,
                until: next.since.plus(NEXT_BOOT_PODS),
            })
        })
    }

    pub fn clock(&mut self, offset: WallOffset) {
        self.clock = offset;
    }

    /// A version of a pod: of one that has terminated, the terminations are reported with it; of one with a new container, separately. The
    /// status of any other is from before the boot.
    pub fn pod(&mut self, now: Boot, fact: &PodFact, reports: &mut Vec<Report>) {
        let Some(key) = self.pods.uids.get(&fact.pod.uid).cloned() else {
            return;
        };
        self.pods.unlisted.remove(&fact.pod.uid);
        let (then, mut out) = (self.then(now), FromPods::default());
        let continues = self.pods.pods.get(&key).is_some_and(|pod| pod.has_new_container(fact));
        if fact.phase.is_terminal() {
            let fact = PodFact {
                seen: then,
                ..fact.clone()
            };
            self.pods.pod(then, Arc::new(fact), &mut out);
        } else if !continues {
            return;
        } else if let Some(pod) = self.pods.pods.get_mut(&key) {
            pod.report_ended(fact, then);
        }
        self.settle(&key, then, &mut out);
        take(out, reports);
    }

    /// A pod was deleted.
    pub fn gone(&mut self, now: Boot, gone: &PodGone, reports: &mut Vec<Report>) {
        let Some(key) = self.pods.uids.get(&gone.uid).cloned() else {
            return;
        };
        let (then, mut out) = (self.then(now), FromPods::default());
        let gone = PodGone {
            seen: then,
            ..gone.clone()
        };
        self.pods.gone(then, gone, &mut out);
        self.settle(&key, then, &mut out);
        take(out, reports);
    }

    /// The list of the new boot is complete: pods that it did not show were deleted meanwhile.
    pub fn state(&mut self, now: Boot, state: &PodsState, reports: &mut Vec<Report>) {
        if *state != PodsState::Synced {
            return;
        }
        let (then, mut out) = (self.then(now), FromPods::default());
        self.pods.relisted(then, &mut out);
        let gone = self.pods.pods.values().filter(|pod| pod.object.gone.is_some());
        let mut keys: Vec<PodUid> = gone.map(|pod| pod.key.clone()).collect();
        keys.sort();
        for key in keys {
            self.settle(&key, then, &mut out);
        }
        take(out, reports);
    }

    /// Whether nothing more is awaited.
    pub fn is_over(&self, now: Boot) -> bool {
        self.pods.held == 0 || self.until <= now
    }

    /// What still waits is reported without its pod.
    pub fn end(mut self, now: Boot, reports: &mut Vec<Report>) {
        let (then, mut out) = (self.then(now), FromPods::default());
        self.pods.end(then, &self.boot_id, &mut out);
        take(out, reports);
    }

    pub fn bytes(&self) -> usize {
        self.pods.bytes()
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.pods.kept()
    }

    /// With its pod, if the API shows that the pod has terminated.
    fn settle(&mut self, key: &PodUid, then: Boot, out: &mut FromPods) {
        let missing = "epitaph stopped before the state of the pod was known";
        if self.pods.pods.get(key).is_some_and(Pod::is_ending) {
            self.pods.finish(key, &self.boot_id, then, out);
        }
        while self.pods.pods.get(key).is_some_and(|pod| !pod.held.is_empty()) {
            self.pods.release(key, 0, Some(missing.to_owned()), then, out);
        }
        self.pods.forget(key, &mut FromPods::default());
    }

    fn then(&self, now: Boot) -> Boot {
        self.pods.api.wall.offset().boot(self.clock.wall(now)).max(self.last)
    }
}

impl Pod {
    /// Its containers were stopped by a node's shutdown, and its end was not shown. A static pod is never over.
    pub(super) fn waits_for_next_boot(&self) -> bool {
        let is_by_it = self.held.iter().all(|held| held.facts.shutdown.is_some());
        let is_shown = self.fact.is_some() && !self.is_static();
        is_shown && !self.held.is_empty() && is_by_it && !self.is_ending() && self.object.reported.is_none()
    }

    /// The status of a pod that goes on has the exits of the containers that ran in the boot before: what kubectl shows of them.
    fn report_ended(&mut self, fact: &PodFact, seen: Boot) {
        for status in &fact.containers {
            let current = match &status.state {
                ContainerState::Terminated(ended) => Some((status.id.as_ref(), ended)),
                ContainerState::Running | ContainerState::Waiting { .. } => None,
            };
            let last = status.last.as_ref().map(|ended| (ended.id.as_ref(), ended));
            for (id, ended) in current.into_iter().chain(last) {
                if let Some(named) = id.and_then(|id| self.names.get_mut(id)) {
                    named.report(ended, seen);
                }
            }
        }
    }

    /// The status has a container that did not run in the boot before: the pod was not over.
    fn has_new_container(&self, fact: &PodFact) -> bool {
        let is_known = |id: &ContainerId| self.names.contains_key(id) || self.containers.iter().any(|of| of.id == *id);
        let ids = fact.containers.iter().filter_map(|status| status.id.as_ref());
        ids.into_iter().any(|id| !is_known(id))
    }
}

/// Workloads, requests for Events and sockets are those of the pods that run now.
fn take(out: FromPods, reports: &mut Vec<Report>) {
    let is_termination = |report: &Report| matches!(report, Report::Terminated(_) | Report::PodTerminated(_));
    reports.extend(out.reports.into_iter().filter(is_termination));
}
