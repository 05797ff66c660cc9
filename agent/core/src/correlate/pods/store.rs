//! The known pods: their containers, their timers, and which pods are dropped if there are too many.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::attribute::slim;
use crate::ids::CgroupId;
use crate::ids::{ContainerId, PodUid};
use crate::pod::Workload;
use crate::report::Report;
use crate::time::Boot;

use super::parts::{Container, Held};
use super::pod::Pod;
use super::settle::Step;
use super::{FromPods, Pods};

impl Pods {
    pub(super) fn drop_sandboxes(&mut self, key: &PodUid) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let before = pod.held.len();
        let sandboxes: Vec<CgroupId> = pod.containers.iter().filter(|of| of.is_sandbox).map(|of| of.cgroup).collect();
        pod.held.retain(|held| !sandboxes.contains(&held.facts.key.cgroup));
        self.held = self.held.saturating_sub(before - pod.held.len());
    }

    /// Moves a container from the pod of its cgroup's name to the pod whose status names it.
    pub(super) fn bring_home(&mut self, id: &ContainerId, key: &PodUid, now: Boot) {
        let elsewhere = |pod: &&mut Pod| pod.key != *key && pod.containers.iter().any(|of| of.id == *id);
        let Some(other) = self.pods.values_mut().find(elsewhere) else {
            return;
        };
        let (moved, rest): (Vec<Container>, Vec<Container>) = other.containers.drain(..).partition(|of| of.id == *id);
        other.containers = rest;
        let (ends, rest): (Vec<Held>, Vec<Held>) = other.held.drain(..).partition(|held| held.id == *id);
        other.held = rest;
        let other = other.key.clone();
        let Some(pod) = self.pods.get_mut(key) else { return };
        for container in &moved {
            self.homes.insert(container.cgroup, key.clone());
        }
        pod.containers.extend(moved);
        pod.held.extend(ends);
        self.schedule(&other, now);
    }

    pub(super) fn living(&self, key: &PodUid) -> Vec<CgroupId> {
        let containers = self.pods.get(key).map_or(&[][..], |pod| &pod.containers);
        let lives = |of: &&Container| of.ended.is_none() && !of.is_sandbox;
        containers.iter().filter(lives).map(|of| of.cgroup).collect()
    }

    pub(super) fn schedule(&mut self, key: &PodUid, now: Boot) {
        self.weigh(key);
        let Some(pod) = self.pods.get_mut(key) else { return };
        pod.place();
        let due = match pod.step(&self.api, &self.limits, now) {
            Step::Wait(at) => at,
            Step::Release(..) | Step::Overdue(_) | Step::AskHeld | Step::Held | Step::Finish | Step::Forget => Some(now),
        };
        if pod.due == due {
            return;
        }
        if let Some(old) = std::mem::replace(&mut pod.due, due) {
            self.due.remove(&(old, key.clone()));
        }
        if let Some(due) = due {
            self.due.insert((due, key.clone()));
        }
    }

    /// Drops pods over the limit: terminated ones first, then pods of which the kernel shows no container, of the namespace with most bytes.
    /// Whoever creates pods can bind any number of them to this node, and the kubelet runs few of these.
    pub(super) fn make_room(&mut self, key: &PodUid, now: Boot, out: &mut FromPods) {
        if self.pods.contains_key(key) {
            return;
        }
        while (self.pods.len() >= self.limits.pods || self.is_over(size_of::<Pod>())) && self.drop_least(now, out) {}
    }

    /// False: there is no pod.
    pub(super) fn drop_least(&mut self, now: Boot, out: &mut FromPods) -> bool {
        let mut of_namespaces: HashMap<&str, usize> = HashMap::new();
        for pod in self.pods.values() {
            *of_namespaces.entry(namespace(pod)).or_default() += size_of::<Pod>() + pod.weighed;
        }
        let worth = |pod: &Pod| {
            let proven = (pod.object.reported.is_none(), !pod.containers.is_empty(), pod.fact.is_some());
            let less = of_namespaces.get(namespace(pod)).copied().map(Reverse);
            (proven, less, pod.touched, pod.key.clone())
        };
        let Some(least) = self.pods.values().min_by_key(|pod| worth(pod)).map(|pod| pod.key.clone()) else {
            return false;
        };
        while self.pods.get(&least).is_some_and(|pod| !pod.held.is_empty()) {
            self.release(
                &least,
                0,
                Some("the node has more pods than epitaph keeps".to_owned()),
                now,
                out,
            );
        }
        self.dropped += u64::from(self.pods.get(&least).is_some_and(|pod| pod.object.reported.is_none()));
        self.forget(&least, out);
        true
    }

    /// Reports the termination that waits longest.
    pub(super) fn release_oldest(&mut self, why: &str, now: Boot, out: &mut FromPods) {
        let oldest = |pod: &Pod| Some((pod.held.first()?.since, pod.key.clone()));
        let Some((_, oldest)) = self.pods.values().filter_map(oldest).min() else {
            self.held = 0;
            return;
        };
        self.dropped += 1;
        self.release(&oldest, 0, Some(why.to_owned()), now, out);
        self.schedule(&oldest, now);
    }

    pub(super) fn forget(&mut self, key: &PodUid, out: &mut FromPods) {
        let Some(pod) = self.pods.remove(key) else { return };
        self.weight -= pod.weighed;
        if let Some(due) = pod.due {
            self.due.remove(&(due, key.clone()));
        }
        self.held = self.held.saturating_sub(pod.held.len());
        for container in &pod.containers {
            self.homes.remove(&container.cgroup);
        }
        for id in pod.names.keys() {
            if self.ids.get(id) == Some(key) {
                self.ids.remove(id);
            }
        }
        if let Some(fact) = &pod.fact {
            self.uids.remove(&fact.pod.uid);
            self.let_go(&fact.pod.workload, out);
        }
        slim(&mut self.pods);
        slim(&mut self.uids);
        slim(&mut self.ids);
        slim(&mut self.homes);
    }

    /// The object so far was another pod's: the next version is the first of the pod itself.
    pub(super) fn forget_object(&mut self, key: &PodUid, now: Boot, out: &mut FromPods) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let forgotten = pod.forget_object(now);
        for id in forgotten.names.keys() {
            if self.ids.get(id) == Some(key) {
                self.ids.remove(id);
            }
        }
        if let Some(fact) = &forgotten.fact {
            self.uids.remove(&fact.pod.uid);
            self.let_go(&fact.pod.workload, out);
        }
    }

    /// A pod no longer has that workload: whether another pod has it.
    pub(super) fn let_go(&mut self, workload: &Workload, out: &mut FromPods) {
        let mut used = self.pods.values().filter_map(|pod| pod.fact.as_ref());
        if !used.any(|other| other.pod.workload == *workload) {
            let last = self.workloads.take(workload);
            out.reports.extend(last.map(Report::WorkloadGone));
        }
    }

    pub(super) fn of_home(&mut self, own: CgroupId) -> Option<&mut Container> {
        self.pods.get_mut(self.homes.get(&own)?)?.container(own)
    }
}

/// Pods that the API has not shown are in one of their own.
fn namespace(pod: &Pod) -> &str {
    pod.fact.as_ref().map_or("", |fact| &fact.pod.namespace)
}
