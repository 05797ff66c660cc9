//! Pods after a gap of the observation, and pods whose termination is in progress.

use std::sync::Arc;

use crate::ids::{CgroupId, PodUid};
use crate::pod::{PodFact, PodGone};
use crate::time::Boot;

use super::{FromPods, Pods};

impl Pods {
    /// The observation begins again: the next list shows which pods still exist.
    pub fn resume(&mut self) {
        let known = self.pods.values().filter(|pod| pod.gone.is_none());
        self.unlisted = known.filter_map(|pod| Some(pod.fact.as_ref()?.pod.uid.clone())).collect();
    }

    /// The list is complete: pods that it did not show were deleted in the gap.
    pub fn relisted(&mut self, now: Boot, out: &mut FromPods) {
        let mut gone: Vec<PodUid> = std::mem::take(&mut self.unlisted).into_iter().collect();
        gone.sort();
        for uid in gone {
            let gone = PodGone {
                uid,
                seen: now,
                watched: false,
            };
            self.gone(now, gone, out);
        }
    }

    /// Whether the container's termination waits here, or its pod is ending.
    pub fn is_ending(&self, own: CgroupId) -> bool {
        let Some(pod) = self.homes.get(&own).and_then(|key| self.pods.get(key)) else {
            return false;
        };
        pod.held.iter().any(|held| held.facts.key.cgroup == own) || pod.is_ending() && pod.reported.is_none()
    }

    /// `ends`: whether a container of that cgroup is ending.
    pub fn is_pod_ending(&self, uid: &PodUid, ends: impl Fn(CgroupId) -> bool) -> bool {
        let Some(pod) = self.uids.get(uid).and_then(|key| self.pods.get(key)) else {
            return false;
        };
        let is_open = pod.is_ending() && pod.reported.is_none();
        is_open || !pod.held.is_empty() || pod.containers.iter().any(|of| ends(of.cgroup))
    }

    /// The last version of the container's pod.
    pub fn fact_of(&self, own: CgroupId) -> Option<Arc<PodFact>> {
        let pod = self.homes.get(&own).and_then(|key| self.pods.get(key))?;
        pod.fact.clone()
    }
}
