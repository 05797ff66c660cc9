//! Facts of the Kubernetes API: versions of pods, removed pods, Events, and the state of the API itself.

use std::sync::Arc;

use crate::ids::{ContainerId, PodUid};
use crate::pod::{ApiClock, PodEvent, PodEventsUpdate, PodFact, PodGone, PodIdentity, PodsState};
use crate::report::Report;
use crate::time::{Boot, WallOffset};

use super::pod::Pod;
use super::{FromPods, Pods};

/// See [`Pods::claim`].
enum Claim {
    Proven,
    /// No status so far: a later version may prove the claim.
    Unproven,
    /// Another object has the cgroups.
    Taken,
    /// Another object has the cgroups by its annotation, and this one by its own UID.
    Prior,
}

impl Pods {
    /// Returns true if pods are expected from now on.
    pub fn state(&mut self, now: Boot, state: PodsState) -> bool {
        let is_first = self.begins();
        match state {
            PodsState::Away { reason } => {
                self.api.away(now, reason);
                self.shows_no_return();
            }
            PodsState::Synced => {
                self.api.synced(now);
                if std::mem::take(&mut self.api.is_list_due) {
                    self.api.listed.get_or_insert(now);
                }
            }
        }
        // All waits change.
        let keys: Vec<PodUid> = self
            .pods
            .values()
            .filter(|pod| !pod.held.is_empty() || pod.object.lingering.requested.is_some())
            .map(|pod| pod.key.clone())
            .collect();
        for key in keys {
            self.schedule(&key, now);
        }
        is_first
    }

    /// Returns true the first time that anything shows that there are pods: what came before may be missing.
    pub fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.active, true)
    }

    /// Of the recording or the journal, a part of that time is missing. `is_within`: not before its begin, which lists the pods.
    pub fn part_missing(&mut self, since: Boot, now: Boot, is_within: bool) {
        self.api.part_missing(since, now);
        if is_within {
            self.api.may_hide_pods.get_or_insert((since, now));
            self.api.hidden_until = now;
            self.api.is_list_due = false;
            self.api.listed = None;
        }
        self.shows_no_return();
        for pod in self.pods.values_mut() {
            pod.events.missing_until = Some(now);
        }
    }

    /// Of a mirror pod that is gone, the API does not show whether the kubelet creates it again.
    fn shows_no_return(&mut self) {
        for pod in self.pods.values_mut() {
            pod.object.may_be_back |= pod.awaits_return();
        }
    }

    pub fn api_clock(&mut self, clock: ApiClock) {
        self.api.clock = Some(clock);
    }

    pub fn clock(&mut self, now: Boot, offset: WallOffset) {
        self.api.wall.set(now, offset);
    }

    /// The probes record everything from there on.
    pub fn observed_since(&mut self, since: Boot) {
        self.api.since = since;
        match self.active {
            true => self.api.is_list_due = true,
            // As for an agent without Kubernetes: no list is awaited.
            false => _ = self.api.listed.get_or_insert(since),
        }
    }

    /// A version of a pod.
    pub fn pod(&mut self, now: Boot, fact: Arc<PodFact>, out: &mut FromPods) {
        self.unlisted.remove(&fact.pod.uid);
        let key = fact.pod.cgroup_uid.clone();
        match self.claim(&fact) {
            Claim::Proven => {}
            Claim::Unproven => return,
            Claim::Taken => {
                self.forged += 1;
                return;
            }
            Claim::Prior => self.forget_object(&key, now, out),
        }
        self.make_room(&key, now, out);
        // Only workloads of known pods: never more than there are pods.
        if !fact.spec.options.ignore && !self.workloads.contains(&fact.pod.workload) {
            self.workloads.insert(fact.pod.workload.clone());
            out.reports.push(Report::Workload(fact.pod.workload.clone()));
        }
        let pod = self.pods.entry(key.clone()).or_insert_with(|| Pod::new(key.clone(), now));
        pod.touched = now;
        if let Some(known) = &pod.fact
            && known.pod.uid != fact.pod.uid
        {
            self.uids.remove(&known.pod.uid);
        }
        self.uids.insert(fact.pod.uid.clone(), key.clone());
        let was_requested = pod.is_requested();
        let before: Vec<ContainerId> = pod.names.keys().cloned().collect();
        let other_workload = |known: &Arc<PodFact>| known.pod.workload != fact.pod.workload;
        let known = pod.fact.clone().filter(other_workload);
        // No container starts in a pod that is being stopped.
        let first = pod.containers.iter().map(|of| of.start).min();
        let last = pod.fact.as_ref().map(|last| last.seen).or(first).unwrap_or_default();
        let is_first_request = fact.deletion.is_some() && pod.object.deletion.is_none();
        let lacks_versions = is_first_request && self.api.is_part_missing(last, fact.seen);
        pod.learn(fact);
        pod.object.lacks_versions |= lacks_versions;
        let is_requested = pod.is_requested() && !was_requested;
        for id in before {
            if !pod.names.contains_key(&id) {
                self.ids.remove(&id);
            }
        }
        let named: Vec<ContainerId> = pod.names.keys().cloned().collect();
        // An owner that the API named late has a new name.
        if let Some(known) = known {
            self.let_go(&known.pod.workload, out);
        }
        for id in named {
            if self.ids.insert(id.clone(), key.clone()).as_ref() != Some(&key) {
                self.bring_home(&id, &key, now);
            }
        }
        self.name_stops(&key, out);
        self.request_events(&key, now, out);
        self.schedule(&key, now);
        if is_requested {
            out.requested.extend(self.living(&key));
        }
        self.fit(now, out);
    }

    /// Whether the object is that of the cgroups it names. Anyone who creates pods chooses a pod's annotations, and only the
    /// API server an object's own UID. A mirror pod has its static pod's cgroups, which an annotation names: only the kubelet
    /// writes a status, so a status that names a container is the proof.
    fn claim(&self, fact: &PodFact) -> Claim {
        let is_own = |pod: &PodIdentity| pod.uid == pod.cgroup_uid;
        if !is_own(&fact.pod) && !fact.containers.iter().any(|status| status.id.is_some()) {
            return Claim::Unproven;
        }
        let holder = self.pods.get(&fact.pod.cgroup_uid).filter(|pod| pod.object.gone.is_none());
        let Some(known) = holder.and_then(|pod| pod.fact.as_ref()) else {
            return Claim::Proven;
        };
        // The kubelet creates a deleted mirror pod again under its name.
        let is_same = known.pod.namespace == fact.pod.namespace && known.pod.name == fact.pod.name;
        match () {
            () if known.pod.uid == fact.pod.uid || is_same => Claim::Proven,
            () if is_own(&fact.pod) && !is_own(&known.pod) => Claim::Prior,
            () => Claim::Taken,
        }
    }

    /// A pod that is gone from the API.
    pub fn gone(&mut self, now: Boot, gone: PodGone, out: &mut FromPods) {
        let Some(key) = self.uids.get(&gone.uid).cloned() else {
            return;
        };
        let Some(pod) = self.pods.get_mut(&key) else { return };
        let was_requested = pod.is_requested();
        pod.touched = now;
        let last = pod.fact.as_ref().filter(|_| pod.object.deletion.is_none());
        pod.object.lacks_versions |= last.is_some_and(|last| self.api.is_part_missing(last.seen, gone.seen));
        pod.object.gone = Some(gone);
        self.schedule(&key, now);
        if !was_requested {
            out.requested.extend(self.living(&key));
        }
    }

    pub fn event(&mut self, now: Boot, event: PodEvent) {
        // The kubelet names a static pod by its hash.
        let key = self.uids.get(&event.uid).unwrap_or(&event.uid).clone();
        if let Some(pod) = self.pods.get_mut(&key) {
            pod.touched = now;
            let at = event
                .at
                .map_or(event.seen, |at| self.api.wall.offset().boot(at).min(event.seen));
            pod.events.add(at, event);
            self.schedule(&key, now);
        }
    }

    /// How far the Events of a pod are known.
    pub fn events(&mut self, now: Boot, events: PodEventsUpdate) {
        let key = self.uids.get(&events.uid).unwrap_or(&events.uid).clone();
        let Some(pod) = self.pods.get_mut(&key) else { return };
        // An answer to an older request does not cover what the newer request is about.
        if pod.events.state.as_ref().is_some_and(|(seen, _)| *seen > events.seen) {
            return;
        }
        pod.touched = now;
        pod.events.state = Some((events.seen, events.state));
        self.schedule(&key, now);
    }
}
