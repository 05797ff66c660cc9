//! The pods' part of the core's memory. What does not fit is reported early, with the reason that the Kubernetes context is
//! incomplete; then the pods that are known least are dropped.

use crate::attribute::{growth, table};
use crate::ids::{ContainerId, PodUid};
use crate::kubernetes::Request;
use crate::termination::{ListenerClosed, OomKill, PortRefused, TerminationFacts};
use crate::time::Boot;

use super::parts::{Container, Held, Named, TEXT, Trigger};
use super::pod::Pod;
use super::{FromPods, Pods};

/// Of an id or a key in the maps of all pods: twice the larger entry, and its text.
const LISTED: usize = 2 * size_of::<(ContainerId, PodUid)>() + 64;
/// Of the texts of a pod and its owners.
const TEXTS: usize = 512;

impl Pods {
    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        let maps = self.uids.len() + self.ids.len() + self.homes.len() + self.workloads.len() + self.due.len();
        table::<PodUid, Pod>(self.pods.capacity()) + self.weight + maps * LISTED
    }

    /// Counts a pod's bytes again after a change.
    pub(super) fn weigh(&mut self, key: &PodUid) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let bytes = pod.bytes();
        self.weight = self.weight - pod.weighed + bytes;
        pod.weighed = bytes;
    }

    pub(super) fn is_over(&self, more: usize) -> bool {
        let grows = if more > 0 { growth(&self.pods) } else { 0 };
        self.bytes() + more + grows > self.limits.pods_bytes()
    }

    /// Reports and drops until all fits.
    pub(super) fn fit(&mut self, now: Boot, out: &mut FromPods) {
        while self.is_over(0) && self.held > 0 {
            self.release_oldest(
                "too many terminations waited for the Kubernetes API at the same time",
                now,
                out,
            );
        }
        while self.is_over(0) && self.drop_least(now, out) {}
    }
}

impl Pod {
    /// Bytes beyond its own size.
    pub(super) fn bytes(&self) -> usize {
        let held = self.held.iter().map(|held| bytes(&held.facts)).sum::<usize>();
        let runs = self.containers.iter().map(|of| of.runs.bytes()).sum::<usize>();
        table::<ContainerId, Named>(self.names.capacity())
            + self.names.len() * 2 * TEXT
            + self.containers.capacity() * (size_of::<Container>() + TEXT)
            + runs
            + self.held.capacity() * size_of::<Held>()
            + held
            + self.events.bytes()
            + self.triggers.capacity() * (size_of::<Trigger>() + TEXT)
            + (self.over_before.capacity() + self.reported_ids.capacity()) * 2 * TEXT
            + self.object.earlier.capacity() * TEXT
            + self.fact.as_ref().map_or(0, |fact| size_of::<Request>() + fact.bytes())
    }
}

fn bytes(facts: &TerminationFacts) -> usize {
    let traffic = &facts.traffic;
    let texts = facts.cgroup_path.as_ref().map_or(0, String::len) + facts.key.boot_id.len() + TEXTS;
    let lists = traffic.listeners.capacity() * size_of::<ListenerClosed>()
        + traffic.refused.by_port.len() * size_of::<(u16, PortRefused)>()
        + facts.oom.capacity() * size_of::<OomKill>();
    texts + lists + facts.missing.bytes()
}
