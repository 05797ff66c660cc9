//! The pods of this node as last sent, so that each version is sent once and pods missing from a list are recognised. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use epitaph_core::ids::PodUid;
use epitaph_core::pod::{PodFact, PodGone, PodIdentity};
use epitaph_core::time::Boot;

/// Many times more than a kubelet runs.
const CAPACITY: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Known {
    pods: HashMap<PodUid, Entry>,
    /// During a list: the pods known before the list that the list has not shown so far.
    unlisted: HashSet<PodUid>,
}

#[derive(Debug)]
struct Entry {
    version: Option<String>,
    fact: Arc<PodFact>,
    /// The workload is known for certain.
    is_resolved: bool,
}

/// No room for another pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Known {
    /// A list begins.
    pub fn begin(&mut self) {
        self.unlisted = self.pods.keys().cloned().collect();
    }

    pub fn listed(&mut self, uid: &PodUid) {
        self.unlisted.remove(uid);
    }

    /// The list is complete: a pod that is missing from the list was deleted at an unknown time.
    pub fn end(&mut self, seen: Boot) -> Vec<PodGone> {
        let mut gone: Vec<PodUid> = std::mem::take(&mut self.unlisted).into_iter().collect();
        gone.retain(|uid| self.pods.remove(uid).is_some());
        gone.sort_by(|a, b| a.0.cmp(&b.0));
        let gone = gone.into_iter().map(|uid| PodGone {
            uid,
            seen,
            watched: false,
        });
        gone.collect()
    }

    /// True if exactly this version was already sent.
    pub fn has(&self, uid: &PodUid, version: Option<&str>) -> bool {
        version.is_some() && self.pods.get(uid).is_some_and(|known| known.version.as_deref() == version)
    }

    /// The pod's identity, if the workload is known for certain.
    pub fn identity(&self, uid: &PodUid) -> Option<Arc<PodIdentity>> {
        let known = self.pods.get(uid).filter(|known| known.is_resolved)?;
        Some(known.fact.pod.clone())
    }

    /// The other pod that already has the cgroups of a static pod. The kubelet creates a deleted mirror pod again under its name.
    pub fn holder(&self, pod: &PodIdentity) -> Option<Arc<PodIdentity>> {
        let is_claim = |of: &PodIdentity| of.cgroup_uid != of.uid;
        let is_other = |known: &&Arc<PodIdentity>| {
            let is_same = known.namespace == pod.namespace && known.name == pod.name;
            known.cgroup_uid == pod.cgroup_uid && known.uid != pod.uid && !is_same
        };
        let mut known = self.pods.values().filter(|entry| entry.proves()).map(|entry| &entry.fact.pod);
        is_claim(pod).then(|| known.find(is_other).cloned()).flatten()
    }

    pub fn keep(&mut self, fact: Arc<PodFact>, version: Option<String>, is_resolved: bool) -> Result<(), Full> {
        let uid = fact.pod.uid.clone();
        if !self.pods.contains_key(&uid) && self.pods.len() >= CAPACITY {
            return Err(Full);
        }
        let entry = Entry {
            version,
            fact,
            is_resolved,
        };
        self.pods.insert(uid, entry);
        Ok(())
    }

    /// False if the pod was not known.
    pub fn forget(&mut self, uid: &PodUid) -> bool {
        self.pods.remove(uid).is_some()
    }
}

impl Entry {
    /// Only the kubelet writes a status: until it names a container, a mirror pod's annotation is a claim.
    fn proves(&self) -> bool {
        let pod = &self.fact.pod;
        pod.cgroup_uid == pod.uid || self.fact.containers.iter().any(|status| status.id.is_some())
    }
}

#[cfg(test)]
#[path = "known_tests.rs"]
mod tests;
