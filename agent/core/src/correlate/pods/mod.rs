//! Pods: terminations of their containers wait here for the Kubernetes context, and are judged and reported with it.
//!
//! A container of a pod that continues is reported separately. Containers of a terminated pod are reported together, when the whole
//! pod has terminated and the API has shown the rest. Before the first answer of the API nothing waits.
//!
//! *Architecture invariant*: the kernel's evidence shows what happened, the API why. The pod's status also proves which pod a
//! container belongs to: a cgroup's name is not proof.

mod api;
mod budget;
mod containers;
mod context;
mod event;
mod in_place;
mod learn;
mod life;
mod lingering;
mod next_boot;
mod open;
mod parts;
mod pod;
mod prestop;
mod runs;
mod sandbox;
mod senders;
mod settle;
mod stop_reason;
mod store;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::Api;
use life::Life;
use parts::{Container, Held};
use pod::Pod;
use settle::Step;

use super::Limits;
use super::node::RunningPod;
use super::subjects::SubjectEvent;
use crate::attribute::{Map, Subject};
use crate::ids::{CgroupId, ContainerId, PodUid, Signal};
use crate::pod::{PodFact, PodGone, PodIdentity, Workload};
use crate::report::{DropReason, Report, Stuck};
use crate::termination::TerminationFacts;
use crate::time::Boot;
use crate::verdict::{Case, Exit, judge, tell};

pub(super) use next_boot::PreviousPods;

/// The effects of an input outside the pods.
#[derive(Debug, Default)]
pub(super) struct FromPods {
    pub reports: Vec<Report>,
    /// Containers with a deletion request of their pod: clients' errors count from now on.
    pub requested: Vec<CgroupId>,
    /// Containers with their own stop signal, by the pod's status.
    pub own_stops: Vec<(CgroupId, Signal)>,
    /// Containers that still run long after their grace period: see [`Pods::stuck`].
    pub overdue: Vec<CgroupId>,
    /// Pods whose Kubernetes Events can change a held termination.
    pub events: Vec<Arc<PodIdentity>>,
}

impl FromPods {
    pub fn is_empty(&self) -> bool {
        let is_quiet = self.requested.is_empty() && self.own_stops.is_empty() && self.overdue.is_empty();
        self.reports.is_empty() && is_quiet && self.events.is_empty()
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Pods {
    limits: Limits,
    active: bool,
    api: Api,
    /// By the UID in the cgroups' names.
    pods: HashMap<PodUid, Pod>,
    /// By the API's UID.
    uids: HashMap<PodUid, PodUid>,
    /// By the ids in their statuses.
    ids: HashMap<ContainerId, PodUid>,
    /// Containers that the kernel shows.
    homes: Map<CgroupId, PodUid>,
    workloads: HashSet<Workload>,
    /// After a gap: pods that were known before, and that no list has shown since.
    unlisted: HashSet<PodUid>,
    due: BTreeSet<(Boot, PodUid)>,
    /// Number of held terminations.
    held: usize,
    /// Bytes of all pods beyond their slots.
    weight: usize,
    dropped: u64,
    forged: u64,
    opted_out: u64,
}

impl Pods {
    pub fn new(limits: Limits) -> Pods {
        Pods {
            limits,
            ..Pods::default()
        }
    }

    /// Runs the timers that are due.
    /// Whether [`Pods::run_timers`] has something to do.
    pub fn is_due(&self, now: Boot) -> bool {
        self.active && self.due.first().is_some_and(|(due, _)| *due <= now)
    }

    pub fn run_timers(&mut self, now: Boot, boot_id: &str, out: &mut FromPods) {
        while let Some((due, key)) = self.due.first().cloned() {
            if due > now {
                break;
            }
            self.due.pop_first();
            let Some(pod) = self.pods.get_mut(&key) else { continue };
            pod.due = None;
            pod.place();
            self.drop_sandboxes(&key);
            let Some(pod) = self.pods.get(&key) else { continue };
            match pod.step(&self.api, &self.limits, now) {
                Step::Wait(_) => {}
                Step::Overdue(own) => {
                    if let Some(container) = self.pods.get_mut(&key).and_then(|pod| pod.container(own)) {
                        container.was_overdue = true;
                    }
                    out.overdue.push(own);
                }
                Step::AskHeld => {
                    if let Some(pod) = self.pods.get_mut(&key) {
                        pod.held_asked(now);
                        let fact = pod.fact.as_ref().filter(|_| !pod.is_ignored());
                        out.events.extend(fact.map(|fact| fact.pod.clone()));
                    }
                }
                Step::Held => self.lingers(&key, now, out),
                Step::Release(i, missing) => self.release(&key, i, missing, now, out),
                Step::Finish => self.finish(&key, boot_id, now, out),
                Step::Forget => {
                    self.forget(&key, out);
                    continue;
                }
            }
            self.schedule(&key, now);
        }
    }

    /// The facts so far of an overdue container, with its Kubernetes context; None if the container is not stuck.
    pub fn stuck(&mut self, now: Boot, facts: TerminationFacts) -> Option<Stuck> {
        let facts = self.with_sender_pods(facts);
        let Subject::Container { id, .. } = &facts.subject else {
            return None;
        };
        let pod = self.pods.get(self.homes.get(&facts.key.cgroup)?)?;
        // Without the Kubernetes context nothing is stuck: no grace period is known.
        let kubernetes = pod.context(&self.api, &Life::of(&facts, id), None, now)?;
        let case = Case::new(&facts, Some(&kubernetes));
        let judgement = judge(&case);
        if judgement.exit() != Exit::Stuck {
            return None;
        }
        if pod.is_ignored() {
            self.opted_out += 1;
            return None;
        }
        let verdict = tell(&case, &judgement);
        Some(Stuck {
            facts,
            kubernetes,
            verdict,
        })
    }

    /// A pod is still there although nothing of it runs. Without the API its state is not known.
    fn lingers(&mut self, key: &PodUid, now: Boot, out: &mut FromPods) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let held = pod.held_now(now, &self.api);
        if pod.is_ignored() {
            self.opted_out += u64::from(held.is_some());
        } else {
            out.reports.extend(held.map(|held| Report::PodHeld(Box::new(held))));
        }
    }

    /// No more input: terminated pods are reported; of other pods, the observed terminations.
    pub fn end(&mut self, now: Boot, boot_id: &str, out: &mut FromPods) {
        self.end_all(|_| true, now, boot_id, out);
    }

    /// The same for a boot that is over, but for the pods that only the next one shows: [`PreviousPods`].
    pub fn end_of_boot(&mut self, now: Boot, boot_id: &str, out: &mut FromPods) {
        self.end_all(|pod| !pod.waits_for_next_boot(), now, boot_id, out);
    }

    fn end_all(&mut self, which: impl Fn(&Pod) -> bool, now: Boot, boot_id: &str, out: &mut FromPods) {
        let mut keys: Vec<PodUid> = self.pods.keys().cloned().collect();
        keys.sort();
        for key in keys {
            if let Some(pod) = self.pods.get_mut(&key) {
                pod.place();
            }
            self.drop_sandboxes(&key);
            let Some(pod) = self.pods.get(&key).filter(|pod| which(pod)) else {
                continue;
            };
            let runs = |of: &Container| !of.is_sandbox && of.is_alive(&self.limits, now);
            let open = |held: &Held| held.facts.is_still_ending();
            // If the pod's termination is not complete, a later observation reports the pod's own trace.
            let is_over = pod.object.gone.is_some() || pod.is_terminal() && pod.all_reported();
            let is_over = is_over && pod.awaits_report();
            if is_over && !pod.containers.iter().any(runs) && !pod.held.iter().any(open) {
                self.finish(&key, boot_id, now, out);
                continue;
            }
            // A pod that is gone from the API cannot be reported by a later observation.
            let is_left = pod.awaits_report() && pod.object.gone.is_none();
            if let Some(pod) = self.pods.get_mut(&key).filter(|_| is_left) {
                let earlier: Vec<bool> = pod.held.iter().map(|held| pod.was_succeeded(&held.id)).collect();
                for (held, earlier) in pod.held.iter_mut().zip(earlier) {
                    held.of_ending_pod = !earlier;
                }
            }
            while self.pods.get(&key).is_some_and(|pod| !pod.held.is_empty()) {
                let missing = "epitaph stopped before the state of the pod was known".to_owned();
                self.release(&key, 0, Some(missing), now, out);
            }
        }
    }

    /// A report that a setting leaves out; terminations are counted.
    pub fn opt_out(&mut self, event: &SubjectEvent) {
        self.opted_out += u64::from(matches!(event, SubjectEvent::Ended(_)));
    }

    pub fn drops(&mut self, out: &mut Vec<Report>) {
        let counts = [
            (DropReason::PodCap, &mut self.dropped),
            (DropReason::Unattributed, &mut self.forged),
        ];
        for (reason, count) in counts {
            let count = std::mem::take(count);
            if count > 0 {
                out.push(Report::Dropped { reason, count });
            }
        }
        let count = std::mem::take(&mut self.opted_out);
        if count > 0 {
            out.push(Report::OptedOut { count });
        }
    }

    fn release(&mut self, key: &PodUid, i: usize, missing: Option<String>, now: Boot, out: &mut FromPods) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let held = pod.held.remove(i);
        let held = self.with_senders_of(held);
        self.held = self.held.saturating_sub(1);
        self.homes.remove(&held.facts.key.cgroup);
        let Some(pod) = self.pods.get_mut(key) else { return };
        let ignored = pod.is_ignored();
        let termination = pod.release(held, &self.api, missing, now);
        if ignored {
            self.opted_out += 1;
        } else {
            out.reports.push(Report::Terminated(Box::new(termination)));
        }
    }

    fn finish(&mut self, key: &PodUid, boot_id: &str, now: Boot, out: &mut FromPods) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let held = std::mem::take(&mut pod.held);
        self.held = self.held.saturating_sub(held.len());
        let held: Vec<Held> = held.into_iter().map(|held| self.with_senders_of(held)).collect();
        let Some(pod) = self.pods.get_mut(key) else { return };
        for container in pod.containers.iter().filter(|of| of.ended.is_some()) {
            self.homes.remove(&container.cgroup);
        }
        let (ignored, ended) = (pod.is_ignored(), pod.finish(held, &self.api, boot_id, now));
        match ended {
            Some(_) if ignored => self.opted_out += 1,
            Some(termination) => out.reports.push(Report::PodTerminated(Box::new(termination))),
            None => {}
        }
    }

    /// Of the container with that cgroup.
    fn at(&self, own: CgroupId) -> Option<&Pod> {
        self.pods.get(self.homes.get(&own)?)
    }

    fn is_ignored(&self, subject: &Subject) -> bool {
        let Subject::Container { id, pod, .. } = subject else {
            return false;
        };
        let key = self.ids.get(id).or(pod.as_ref());
        key.and_then(|key| self.pods.get(key)).is_some_and(Pod::is_ignored)
    }

    /// The addresses of a container's pod.
    pub fn addresses(&self, own: CgroupId) -> Vec<IpAddr> {
        let fact = self.at(own).and_then(|pod| pod.fact.as_ref());
        fact.map(|fact| fact.spec.ips.clone()).unwrap_or_default()
    }

    /// The pods with containers that run; None without Kubernetes.
    pub fn running(&self) -> Option<Vec<RunningPod>> {
        self.active.then(|| self.pods.values().filter_map(Pod::running).collect())
    }

    /// The same of one pod.
    pub fn running_pod(&self, uid: &PodUid) -> Option<RunningPod> {
        self.pods.get(self.uids.get(uid).unwrap_or(uid))?.running()
    }

    /// Containers that run, of pods that the API has not shown.
    pub fn unknown(&self) -> impl Iterator<Item = CgroupId> {
        let pods = self.pods.values().filter(|pod| pod.fact.is_none());
        pods.flat_map(|pod| &pod.containers)
            .filter(|of| of.runs() && !of.is_sandbox)
            .map(|of| of.cgroup)
    }

    /// A pod may exist that nothing has shown.
    pub fn may_lack_pods(&self) -> bool {
        self.api.may_lack_pods()
    }

    /// The end of the last missing part that may have shown that a pod exists.
    pub fn hidden_until(&self) -> Boot {
        self.api.hidden_until
    }

    /// Whether a termination waits for its pod's status.
    pub fn has_held(&self) -> bool {
        self.held > 0
    }

    /// The terminations that wait, with the UID of their pod in the API.
    pub fn held_facts(&mut self) -> impl Iterator<Item = (&PodUid, &mut TerminationFacts)> {
        self.pods.values_mut().flat_map(|pod| {
            let uid = pod.fact.as_ref().map(|fact| &fact.pod.uid);
            pod.held.iter_mut().filter_map(move |held| Some((uid?, &mut held.facts)))
        })
    }

    /// Numbers of pods and of held terminations.
    #[cfg(test)]
    pub fn sizes(&self) -> (usize, usize) {
        (self.pods.len(), self.held)
    }

    /// All that is kept, in pieces of bounded size.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        let of = |pod: &Pod| {
            pod.names.len() + pod.containers.len() + pod.held.len() + pod.events.list.len() + pod.reported_ids.len()
        };
        let lists = self.uids.len() + self.ids.len() + self.homes.len() + self.workloads.len() + self.due.len();
        self.pods.values().map(of).sum::<usize>() + lists
    }
}

impl Pods {
    /// The observation begins again: the next list shows which pods still exist.
    pub fn resume(&mut self) {
        let known = self.pods.values().filter(|pod| pod.object.gone.is_none());
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
        let waits = |pod: &Pod| pod.held.iter().any(|held| held.facts.key.cgroup == own) || pod.awaits_report();
        self.at(own).is_some_and(waits)
    }

    /// `ends`: whether a container of that cgroup is ending.
    pub fn is_pod_ending(&self, uid: &PodUid, ends: impl Fn(CgroupId) -> bool) -> bool {
        let pod = self.uids.get(uid).and_then(|key| self.pods.get(key));
        pod.is_some_and(|pod| pod.awaits_report() || !pod.held.is_empty() || pod.containers.iter().any(|of| ends(of.cgroup)))
    }

    /// The last version of the pod.
    pub fn fact(&self, uid: &PodUid) -> Option<Arc<PodFact>> {
        self.pods.get(self.uids.get(uid).unwrap_or(uid))?.fact.clone()
    }

    /// The last version of the container's pod.
    pub fn fact_of(&self, own: CgroupId) -> Option<Arc<PodFact>> {
        self.at(own)?.fact.clone()
    }
}
