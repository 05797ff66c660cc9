//! The pods of this node as last sent, so that each version is sent once and pods missing from a list are recognised. Pure.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use epitaph_core::ids::PodUid;
use epitaph_core::pod::{PodFact, PodGone, PodIdentity};
use epitaph_core::time::Boot;

/// Many times more than a kubelet runs.
const CAPACITY: usize = 4096;
/// Of all versions: a pod has some KiB, and a pod that is made large a quarter of a MiB.
const BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
pub(super) struct Known {
    pods: HashMap<PodUid, Entry>,
    bytes: usize,
    /// During a list: the pods known before the list that the list has not shown so far.
    unlisted: HashSet<PodUid>,
}

#[derive(Debug)]
struct Entry {
    bytes: usize,
    version: Option<String>,
    fact: Arc<PodFact>,
    /// The workload is known for certain.
    is_resolved: bool,
}

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
        gone.retain(|uid| self.forget(uid));
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

    /// Keeps a version of a pod. Returns how many pods were forgotten for it, see [`Known::forget_least`].
    pub fn keep(&mut self, fact: Arc<PodFact>, version: Option<String>, is_resolved: bool) -> u64 {
        let (uid, bytes) = (fact.pod.uid.clone(), fact.bytes());
        self.forget(&uid);
        let mut forgotten = 0;
        while (self.pods.len() >= CAPACITY || self.bytes + bytes > BYTES) && self.forget_least() {
            forgotten += 1;
        }
        let entry = Entry {
            bytes,
            version,
            fact,
            is_resolved,
        };
        self.bytes += bytes;
        self.pods.insert(uid, entry);
        forgotten
    }

    /// Whoever creates pods can bind any number of them to this node: the kubelet refuses them, and their objects stay. First of these,
    /// then of all, a pod of the namespace with the most bytes is forgotten: its next version is sent again. False: there is none.
    fn forget_least(&mut self) -> bool {
        let mut of_namespaces: HashMap<&str, usize> = HashMap::new();
        for entry in self.pods.values() {
            *of_namespaces.entry(&entry.fact.pod.namespace).or_default() += entry.bytes;
        }
        let worth = |(uid, entry): &(&PodUid, &Entry)| {
            let less = of_namespaces.get(&*entry.fact.pod.namespace).copied().map(Reverse);
            (entry.has_run(), less, PodUid::clone(uid))
        };
        let least = self.pods.iter().min_by_key(worth).map(|(uid, _)| uid.clone());
        least.is_some_and(|uid| self.forget(&uid))
    }

    /// False if the pod was not known.
    pub fn forget(&mut self, uid: &PodUid) -> bool {
        let forgotten = self.pods.remove(uid);
        self.bytes -= forgotten.as_ref().map_or(0, |entry| entry.bytes);
        forgotten.is_some()
    }
}

impl Entry {
    /// Only the kubelet writes a status: until it names a container, a mirror pod's annotation is a claim.
    fn proves(&self) -> bool {
        let pod = &self.fact.pod;
        pod.cgroup_uid == pod.uid || self.has_run()
    }

    /// Its status names a container: the kubelet has run one.
    fn has_run(&self) -> bool {
        self.fact.containers.iter().any(|status| status.id.is_some())
    }
}

#[cfg(test)]
#[path = "known_tests.rs"]
mod tests;
