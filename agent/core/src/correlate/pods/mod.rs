//! The second layer: ends of pods' containers, as the kernel showed them, wait here for the API's side, and are told with it.
//!
//! A container of a pod that goes on is told by itself; one of a pod that is over together with the others, once all of it has
//! ended and the API has said the rest. Until the API is first heard of nothing waits.
//!
//! *Architecture invariant*: the kernel says what happened, the API why. Whose container it is the API says, too, for a cgroup's
//! name is not proof.

mod asked;
mod context;
mod pod;
mod prestop;
mod sandbox;
mod senders;
mod settle;
mod store;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::attribute::{ContainerId, Map, PodUid, Subject};
use crate::event::{Boot, CgroupId, ProcessExec, ProcessExit, WallOffset};
use crate::pod::{ApiClock, PodEvent, PodEventsUpdate, PodFact, PodGone, PodsState, Workload};
use crate::termination::{DropReason, Output, StopSignalIgnored, Termination};

use super::Limits;
use crate::verdict::{Exit, judge};
use context::{Api, Death};
use pod::{CONTAINERS, Container, Held, Pod};
use settle::Step;

/// How long an end waits for the API's word on it. Statuses come within 2 to 4 s of an end, deletions of a whole pod too; a busy
/// API server or kubelet needs longer.
pub(super) const HOLD: Duration = Duration::from_secs(30);
/// Ids of one pod whose end was told.
const TOLD_IDS: usize = 64;

/// See the module.
pub(super) struct Pods {
    limits: Limits,
    active: bool,
    api: Api,
    /// By what their cgroups are named after.
    pods: HashMap<PodUid, Pod>,
    /// By the API's UID.
    uids: HashMap<PodUid, PodUid>,
    /// By the ids in their statuses.
    ids: HashMap<ContainerId, PodUid>,
    /// Containers that the kernel shows.
    homes: Map<CgroupId, PodUid>,
    workloads: HashSet<Workload>,
    due: BTreeSet<(Boot, PodUid)>,
    /// See [`Pods::take_overdue`].
    overdue: Vec<CgroupId>,
    /// Ends that wait.
    held: usize,
    dropped: u64,
    forged: u64,
    opted_out: u64,
}

impl Pods {
    pub fn new(limits: Limits) -> Pods {
        Pods {
            limits,
            active: false,
            api: Api::default(),
            pods: HashMap::new(),
            uids: HashMap::new(),
            ids: HashMap::new(),
            homes: Map::default(),
            workloads: HashSet::new(),
            due: BTreeSet::new(),
            overdue: Vec::new(),
            held: 0,
            dropped: 0,
            forged: 0,
            opted_out: 0,
        }
    }

    /// Pods are to be expected.
    pub fn is_active(&self) -> bool {
        self.active
    }

    pub fn state(&mut self, now: Boot, state: PodsState) {
        self.active = true;
        match state {
            PodsState::Away { reason } => self.api.away(now, reason),
            PodsState::Synced => self.api.synced(now),
        }
        // All waits are others now.
        let keys: Vec<PodUid> = self
            .pods
            .values()
            .filter(|pod| !pod.held.is_empty())
            .map(|pod| pod.key.clone())
            .collect();
        for key in keys {
            self.schedule(&key, now);
        }
    }

    pub fn api_clock(&mut self, clock: ApiClock) {
        self.api.clock = Some(clock);
    }

    pub fn clock(&mut self, offset: WallOffset) {
        self.api.offset = offset;
    }

    /// The probes see everything from there on.
    pub fn observed_since(&mut self, since: Boot) {
        self.api.since = since;
    }

    /// A version of a pod. Answers the cgroups whose pod is being deleted from now on.
    pub fn pod(&mut self, now: Boot, fact: Arc<PodFact>, out: &mut Vec<Output>) -> Vec<CgroupId> {
        let key = fact.pod.cgroup_uid.clone();
        self.make_room(&key, now, out);
        // Of one that pods have: no more than there are pods.
        if !fact.spec.options.ignore && !self.workloads.contains(&fact.pod.workload) {
            self.workloads.insert(fact.pod.workload.clone());
            out.push(Output::Workload(fact.pod.workload.clone()));
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
        pod.learn(fact);
        let is_requested = pod.is_requested() && !was_requested;
        for id in before {
            if !pod.names.contains_key(&id) {
                self.ids.remove(&id);
            }
        }
        let named: Vec<ContainerId> = pod.names.keys().cloned().collect();
        // An owner that the API did not name in time has another name by now.
        if let Some(known) = known {
            self.let_go(&known.pod.workload, out);
        }
        for id in named {
            if self.ids.insert(id.clone(), key.clone()).as_ref() != Some(&key) {
                self.bring_home(&id, &key, now);
            }
        }
        self.schedule(&key, now);
        if is_requested { self.living(&key) } else { Vec::new() }
    }

    /// A pod that the API does not show any more. Answers as [`Pods::pod`].
    pub fn gone(&mut self, now: Boot, gone: PodGone) -> Vec<CgroupId> {
        let Some(key) = self.uids.get(&gone.uid).cloned() else {
            return Vec::new();
        };
        let Some(pod) = self.pods.get_mut(&key) else {
            return Vec::new();
        };
        let was_requested = pod.is_requested();
        pod.touched = now;
        pod.gone = Some(gone);
        self.schedule(&key, now);
        if was_requested { Vec::new() } else { self.living(&key) }
    }

    pub fn event(&mut self, now: Boot, event: PodEvent) {
        // The kubelet names a static pod by its hash.
        let key = self.uids.get(&event.uid).unwrap_or(&event.uid).clone();
        if let Some(pod) = self.pods.get_mut(&key) {
            pod.touched = now;
            let at = event.at.map_or(event.seen, |at| self.api.offset.boot(at).min(event.seen));
            pod.event(at, event);
            self.schedule(&key, now);
        }
    }

    /// How far the Events of a pod are known.
    pub fn events(&mut self, now: Boot, events: PodEventsUpdate) {
        let key = self.uids.get(&events.uid).unwrap_or(&events.uid).clone();
        let Some(pod) = self.pods.get_mut(&key) else { return };
        // An answer that a newer question overtook says nothing of what that one is about.
        if pod.events_state.as_ref().is_some_and(|(seen, _)| *seen > events.seen) {
            return;
        }
        pod.touched = now;
        pod.events_state = Some((events.seen, events.state));
        self.schedule(&key, now);
    }

    /// A container that the kernel shows. True where its pod is being deleted already.
    pub fn container(&mut self, now: Boot, own: CgroupId, subject: &Subject, start: Boot, out: &mut Vec<Output>) -> bool {
        let Subject::Container { id, pod: path_uid, .. } = subject else {
            return false;
        };
        if let Some(key) = self.homes.get(&own) {
            if let Some(known) = self.pods.get_mut(key).and_then(|pod| pod.container(own)) {
                known.start = known.start.min(start);
            }
            return false;
        }
        let Some(key) = self.ids.get(id).or(path_uid.as_ref()).cloned() else {
            return false;
        };
        self.make_room(&key, now, out);
        let pod = self.pods.entry(key.clone()).or_insert_with(|| Pod::new(key.clone(), now));
        pod.touched = now;
        if pod.containers.len() >= CONTAINERS {
            // Ends that nobody waits for any more placed others; one that still runs is not given up for them.
            let is_idle = |of: &Container| of.ended.is_some() || of.removed.is_some();
            let Some(i) = pod.containers.iter().position(is_idle) else {
                self.dropped += 1;
                return false;
            };
            let old = pod.containers.swap_remove(i);
            self.homes.remove(&old.cgroup);
        }
        pod.containers.push(Container {
            id: id.clone(),
            cgroup: own,
            path_uid: path_uid.clone(),
            start,
            ended: None,
            removed: None,
            counted_until: None,
            stopped: None,
            was_overdue: false,
            is_sandbox: false,
            runs: prestop::Runs::default(),
        });
        let is_requested = pod.is_requested();
        self.homes.insert(own, key.clone());
        self.schedule(&key, now);
        is_requested
    }

    /// A process came into a container from outside.
    pub fn exec(&mut self, at: Boot, own: CgroupId, exec: &ProcessExec) {
        let Some(pod) = self.homes.get(&own).and_then(|key| self.pods.get_mut(key)) else {
            return;
        };
        let is_hook = pod.may_be_hook(&exec.task.comm);
        if let Some(container) = pod.container(own) {
            container.runs.exec(at, exec, |_| is_hook);
        }
    }

    pub fn exit(&mut self, at: Boot, own: CgroupId, exit: &ProcessExit) {
        if let Some(container) = self.of_home(own) {
            container.runs.exit(at, exit);
        }
    }

    /// The runtime asked its main process to stop.
    pub fn stopped(&mut self, at: Boot, own: CgroupId, now: Boot) {
        let Some(key) = self.homes.get(&own).cloned() else { return };
        if let Some(container) = self.of_home(own) {
            container.stopped = Some(container.stopped.map_or(at, |known| known.min(at)));
        }
        self.schedule(&key, now);
    }

    /// Its cgroup is gone: nothing runs in it.
    pub fn removed(&mut self, at: Boot, own: CgroupId, now: Boot) {
        let Some(key) = self.homes.get(&own).cloned() else { return };
        if let Some(container) = self.of_home(own) {
            container.removed = Some(at);
        }
        self.schedule(&key, now);
    }

    /// It has ended, but clients are still refused: its end is told later.
    pub fn counts_on(&mut self, own: CgroupId, until: Boot, now: Boot) {
        let Some(key) = self.homes.get(&own).cloned() else { return };
        if let Some(container) = self.of_home(own) {
            container.counted_until = Some(until);
        }
        self.schedule(&key, now);
    }

    /// Takes what the first layer says: the ends of pods' containers wait, the rest goes on.
    pub fn take(&mut self, now: Boot, outputs: Vec<Output>) -> Vec<Output> {
        let mut out = Vec::with_capacity(outputs.len());
        for output in outputs {
            match output {
                Output::Terminated(termination) => self.hold(now, termination, &mut out),
                Output::Early(early) => {
                    if let Some(early) = self.early(now, early) {
                        out.push(Output::Early(early));
                    }
                }
                Output::ChildOomKilled { subject, oom } => {
                    if self.is_ignored(&subject) {
                        self.opted_out += 1;
                    } else {
                        out.push(Output::ChildOomKilled { subject, oom });
                    }
                }
                other => out.push(other),
            }
        }
        out
    }

    fn hold(&mut self, now: Boot, termination: Box<Termination>, out: &mut Vec<Output>) {
        let own = termination.key.cgroup;
        let Subject::Container { id, .. } = termination.subject.clone() else {
            return out.push(self.at_once(termination));
        };
        let start = termination.main.as_ref().map_or(termination.begin, |main| main.start);
        self.container(now, own, &termination.subject, start, out);
        let key = self.homes.get(&own).cloned();
        let Some((key, pod)) = key.and_then(|key| Some((key.clone(), self.pods.get_mut(&key)?))) else {
            return out.push(self.at_once(termination));
        };
        pod.touched = now;
        if let Some(container) = pod.container(own) {
            container.ended = Some(container.ended.map_or(termination.end, |end| end.min(termination.end)));
        }
        // A cgroup of the container's own making can bear its id: no runtime makes two.
        if pod.is_forged(own) {
            self.forged += 1;
            self.schedule(&key, now);
            return;
        }
        // A container dies once. What is left of it after that is no death of its own.
        if let Some(first) = pod
            .held
            .iter_mut()
            .find(|held| held.id == id && held.termination.key.cgroup == own)
        {
            first.termination.other_exits += 1;
            return;
        }
        if pod.told_ids.contains(&(id.clone(), own)) {
            return;
        }
        pod.held.push(Held {
            // Not `now`: a replay is not told the time when nothing came of it.
            since: termination.end.plus(self.limits.linger),
            termination: *termination,
            id,
        });
        self.held += 1;
        while self.held > self.limits.held {
            let oldest = self
                .pods
                .values()
                .filter_map(|pod| Some((pod.held.first()?.since, pod.key.clone())))
                .min();
            let Some((_, oldest)) = oldest else { break };
            self.dropped += 1;
            self.release(
                &oldest,
                0,
                Some("too many terminations waited for the Kubernetes API at the same time".to_owned()),
                now,
                out,
            );
            self.schedule(&oldest, now);
        }
        self.schedule(&key, now);
    }

    /// An early warning, with what is known so far; None where the pod's owners want none.
    fn early(&mut self, now: Boot, mut early: Box<StopSignalIgnored>) -> Option<Box<StopSignalIgnored>> {
        let own = early.key.cgroup;
        early.sender.pod = self.container_at(&early.sender.place);
        let Subject::Container { id, .. } = &early.subject else {
            return Some(early);
        };
        let Some(pod) = self.homes.get(&own).and_then(|key| self.pods.get(key)) else {
            return Some(early);
        };
        if pod.is_ignored() {
            self.opted_out += 1;
            return None;
        }
        let by_runtime = early.sender.role == crate::termination::Role::Runtime;
        let death = Death {
            id: id.clone(),
            cgroup: own,
            start: early.main.as_ref().map_or(Boot(0), |main| main.start),
            stop: by_runtime.then_some(early.at),
            asked: by_runtime,
            end: None,
        };
        early.kubernetes = pod.context(&self.api, &death, None, now);
        if let Some(context) = early.kubernetes.as_deref().filter(|_| by_runtime) {
            early.grace_left = context.grace_end(Some(early.at)).map(|end| end.since(early.at));
        }
        Some(early)
    }

    /// Does what is due.
    pub fn run_timers(&mut self, now: Boot, boot_id: &str, out: &mut Vec<Output>) {
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
                    self.overdue.push(own);
                }
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

    /// Containers that have run long over their graces since this was last asked.
    pub fn take_overdue(&mut self) -> Vec<CgroupId> {
        std::mem::take(&mut self.overdue)
    }

    /// What is known of one of them, with the API's side; None where that does not make it stuck.
    pub fn stuck(&mut self, now: Boot, mut termination: Termination) -> Option<Output> {
        self.name_senders(&mut termination);
        let Subject::Container { id, .. } = &termination.subject else {
            return None;
        };
        let pod = self.pods.get(self.homes.get(&termination.key.cgroup)?)?;
        termination.kubernetes = pod.context(&self.api, &Death::of(&termination, id), None, now);
        termination.verdict = judge(&termination.case());
        if termination.verdict.exit != Exit::Stuck {
            return None;
        }
        if pod.is_ignored() {
            self.opted_out += 1;
            return None;
        }
        Some(Output::Stuck(Box::new(termination)))
    }

    /// No more input: what is over is told; of what is not, the ends that were seen.
    pub fn end(&mut self, now: Boot, boot_id: &str, out: &mut Vec<Output>) {
        let mut keys: Vec<PodUid> = self.pods.keys().cloned().collect();
        keys.sort();
        for key in keys {
            if let Some(pod) = self.pods.get_mut(&key) {
                pod.place();
            }
            self.drop_sandboxes(&key);
            let Some(pod) = self.pods.get(&key) else { continue };
            let runs = |of: &Container| !of.is_sandbox && of.is_alive(&self.limits, now);
            let open = |held: &Held| held.termination.is_still_ending();
            // Where its end is still to be seen, the pod's own trace is left to whoever sees it.
            let is_over = pod.gone.is_some() || pod.is_terminal() && pod.all_reported();
            let is_over = is_over && pod.is_ending() && pod.told.is_none();
            if is_over && !pod.containers.iter().any(runs) && !pod.held.iter().any(open) {
                self.finish(&key, boot_id, now, out);
                continue;
            }
            // One that the API does not show any more nobody else can tell of.
            let is_left = pod.is_ending() && pod.told.is_none() && pod.gone.is_none();
            if let Some(pod) = self.pods.get_mut(&key).filter(|_| is_left) {
                let earlier: Vec<bool> = pod.held.iter().map(|held| pod.was_succeeded(&held.id)).collect();
                for (held, earlier) in pod.held.iter_mut().zip(earlier) {
                    held.termination.of_ending_pod = !earlier;
                }
            }
            while self.pods.get(&key).is_some_and(|pod| !pod.held.is_empty()) {
                let missing = "epitaph stopped before the state of the pod was known".to_owned();
                self.release(&key, 0, Some(missing), now, out);
            }
        }
    }

    pub fn drops(&mut self, out: &mut Vec<Output>) {
        let counts = [
            (DropReason::PodCap, &mut self.dropped),
            (DropReason::Unattributed, &mut self.forged),
        ];
        for (reason, count) in counts {
            let count = std::mem::take(count);
            if count > 0 {
                out.push(Output::Dropped { reason, count });
            }
        }
        let count = std::mem::take(&mut self.opted_out);
        if count > 0 {
            out.push(Output::OptedOut { count });
        }
    }

    fn release(&mut self, key: &PodUid, i: usize, missing: Option<String>, now: Boot, out: &mut Vec<Output>) {
        self.name_senders_of(key);
        let Some(pod) = self.pods.get_mut(key) else { return };
        let ignored = pod.is_ignored();
        let termination = pod.release(i, &self.api, missing, now);
        self.held = self.held.saturating_sub(1);
        self.homes.remove(&termination.key.cgroup);
        if ignored {
            self.opted_out += 1;
        } else {
            out.push(Output::Terminated(Box::new(termination)));
        }
    }

    fn finish(&mut self, key: &PodUid, boot_id: &str, now: Boot, out: &mut Vec<Output>) {
        self.name_senders_of(key);
        let Some(pod) = self.pods.get_mut(key) else { return };
        self.held = self.held.saturating_sub(pod.held.len());
        for container in pod.containers.iter().filter(|of| of.ended.is_some()) {
            self.homes.remove(&container.cgroup);
        }
        let (ignored, told) = (pod.is_ignored(), pod.finish(&self.api, boot_id, now));
        match told {
            Some(_) if ignored => self.opted_out += 1,
            Some(output) => out.push(output),
            None => {}
        }
    }

    fn is_ignored(&self, subject: &Subject) -> bool {
        let Subject::Container { id, pod, .. } = subject else {
            return false;
        };
        let key = self.ids.get(id).or(pod.as_ref());
        key.and_then(|key| self.pods.get(key)).is_some_and(Pod::is_ignored)
    }

    /// Pods, and ends that wait.
    #[cfg(test)]
    pub fn sizes(&self) -> (usize, usize) {
        (self.pods.len(), self.held)
    }

    /// All that is kept, in pieces of bounded size.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        let of = |pod: &Pod| pod.names.len() + pod.containers.len() + pod.held.len() + pod.events.len() + pod.told_ids.len();
        let lists = self.uids.len() + self.ids.len() + self.homes.len() + self.workloads.len() + self.due.len();
        self.pods.values().map(of).sum::<usize>() + lists
    }
}
