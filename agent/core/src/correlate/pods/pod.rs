//! One pod: the API's facts so far, the containers that the kernel shows, and their held terminations.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{CgroupId, ContainerId, PodUid, Signal};
use crate::pod::{ContainerKind, ContainerSpec, ContainerState, ContainerStatus, Deletion, Disruption, PodFact, PodGone};
use crate::time::Boot;
use crate::tolerances::{LATE_REACH, SLOW_KILL};

use super::event::Events;
use super::parts::{Container, Held, Lingering, Named, Trigger};
use crate::correlate::node::RunningPod;
use crate::correlate::readiness::Readiness;

/// Most container ids and names per pod: a restart gives a new id, and only the last one or two matter.
const NAMES: usize = 64;
/// Most containers per pod that the kernel shows, including terminated ones that place the others.
pub(super) const CONTAINERS: usize = 64;
/// Most ends before a restart during the termination that are kept.
pub(super) const EARLIER: usize = 8;
/// Most shortenings that are kept: the first matter most.
const SHORTENED: usize = 8;

#[derive(Debug)]
pub(super) struct Pod {
    /// The UID in the cgroups' names.
    pub key: PodUid,
    pub fact: Option<Arc<PodFact>>,
    pub object: Object,
    pub events: Events,
    pub names: HashMap<ContainerId, Named>,
    pub containers: Vec<Container>,
    pub held: Vec<Held>,
    /// Containers that had exited when the pod was first observed, and not as part of this termination.
    pub over_before: Vec<(String, Option<ContainerId>)>,
    /// Reported containers: processes left behind are not another termination. With the cgroup, because a cgroup's name can have any id.
    pub reported_ids: VecDeque<(ContainerId, CgroupId)>,
    /// Containers whose exit code began a restart of the pod in place, the latest last.
    pub triggers: VecDeque<Trigger>,
    /// Time of the last fact about the pod.
    pub touched: Boot,
    pub due: Option<Boot>,
    /// Its bytes, as the budget counts them.
    pub weighed: usize,
}

/// One life of the pod's object: a static pod's mirror can be deleted, and come back.
#[derive(Debug, Default)]
pub(super) struct Object {
    /// The first deletion request, and when it was observed.
    pub deletion: Option<(Deletion, Boot)>,
    pub shortened: Vec<(Boot, Duration)>,
    /// Kept once shown, because a later version may lack them (a force delete, an overwritten status).
    pub disruption: Option<Disruption>,
    pub reason: Option<String>,
    pub gone: Option<PodGone>,
    /// The versions before that may be missing.
    pub lacks_versions: bool,
    /// A mirror pod that is gone: the kubelet may have created it again, which the API did not show.
    pub may_be_back: bool,
    pub ready: Readiness,
    /// The pod had terminated before its deletion request, which then only removes the object.
    pub over_by_itself: bool,
    /// When the termination was reported, or found to need no report.
    pub reported: Option<Boot>,
    pub lingering: Lingering,
    /// See [`PodTerminationFacts::earlier`](crate::kubernetes::PodTerminationFacts::earlier).
    pub earlier: Vec<(String, &'static str)>,
}

impl Pod {
    pub fn new(key: PodUid, now: Boot) -> Pod {
        Pod {
            key,
            fact: None,
            object: Object::default(),
            events: Events::default(),
            names: HashMap::new(),
            containers: Vec::new(),
            held: Vec::new(),
            over_before: Vec::new(),
            reported_ids: VecDeque::new(),
            triggers: VecDeque::new(),
            touched: now,
            due: None,
            weighed: 0,
        }
    }

    /// Only what the kernel showed stays. Returns the rest.
    pub fn forget_object(&mut self, now: Boot) -> Pod {
        let mut forgotten = std::mem::replace(self, Pod::new(self.key.clone(), now));
        self.containers = std::mem::take(&mut forgotten.containers);
        self.held = std::mem::take(&mut forgotten.held);
        self.reported_ids = std::mem::take(&mut forgotten.reported_ids);
        self.due = forgotten.due.take();
        forgotten
    }

    /// Takes a version of the pod; versions arrive in order.
    pub fn learn(&mut self, fact: Arc<PodFact>) {
        // A mirror pod that is back: the static pod itself was never gone, or its manifest is back.
        // A list may show the new object, and nothing of the old one's end.
        let is_gone = self.object.gone.as_ref().is_some_and(|gone| gone.uid != fact.pod.uid);
        let is_back = is_gone || self.fact.as_ref().is_some_and(|known| known.pod.uid != fact.pod.uid);
        if is_back {
            // Facts of the pod as a whole belong to the previous life.
            self.object = Object::default();
            self.events.list.retain(|(_, event)| event.container.is_some());
        }
        self.object.ready.status(fact.takes_clients() == Some(true), fact.seen);
        if fact.deletion.is_some() {
            self.object.lingering.requested.get_or_insert(fact.seen);
        }
        let (is_first, seen) = (is_back || self.fact.is_none(), fact.seen);
        self.object.over_by_itself |= fact.phase.is_terminal() && fact.deletion.is_none() && self.object.deletion.is_none();
        // Deleting a mirror pod is not a request to stop.
        let is_request = !self.object.over_by_itself && !fact.pod.is_static;
        if let Some(deletion) = fact.deletion.filter(|_| is_request) {
            match self.object.deletion {
                None => self.object.deletion = Some((deletion, seen)),
                Some((first, _)) => {
                    let last = self.object.shortened.last().map_or(first.grace, |(_, grace)| *grace);
                    if deletion.grace < last && self.object.shortened.len() < SHORTENED {
                        self.object.shortened.push((seen, deletion.grace));
                    }
                }
            }
        }
        // The Eviction API marks before it deletes: a mark without a deletion is dropped.
        let may_be_lost = fact.deletion.is_some() || self.object.deletion.is_some() || fact.phase.is_terminal();
        if fact.disruption.is_some() || !may_be_lost {
            self.object.disruption.clone_from(&fact.disruption);
        }
        if fact.reason.is_some() {
            self.object.reason.clone_from(&fact.reason);
        }
        for status in &fact.containers {
            self.restarted_in_place(status, &fact);
            self.status(status, seen);
        }
        self.forget_names();
        if is_first {
            let was_over = |status: &&ContainerStatus| matches!(status.state, ContainerState::Terminated(_));
            let is_ending = fact.deletion.is_some();
            let is_earlier = |status: &&ContainerStatus| {
                !is_ending || fact.phase.is_terminal() || kind(&fact, &status.name) == Some(ContainerKind::Init)
            };
            let over = fact.containers.iter().filter(was_over).filter(is_earlier);
            self.over_before = over.map(|status| (status.name.clone(), status.id.clone())).collect();
            if fact.phase.is_terminal() && self.containers.is_empty() {
                self.object.reported = Some(seen);
            }
        }
        self.fact = Some(fact);
    }

    fn status(&mut self, status: &ContainerStatus, seen: Boot) {
        if let Some(id) = &status.id {
            let named = self.name(id, status, status.restarts, seen);
            if let Some(signal) = status.stop_signal.as_deref().and_then(Signal::named) {
                named.stop_signal = Some(signal);
            }
            match &status.state {
                ContainerState::Terminated(ended) if ended.id.as_ref().is_none_or(|of| of == id) => {
                    if ended.is_placeholder() {
                        named.in_place = true;
                        named.succeeded_at.get_or_insert(seen);
                    }
                    named.report(ended, seen);
                    let (name, code) = (status.name.clone(), ended.exit_code);
                    if !ended.is_placeholder() {
                        self.note_trigger(id, &name, code, seen);
                    }
                }
                // `CrashLoopBackOff` also keeps the id of the exited container.
                ContainerState::Waiting { .. } if status.last.as_ref().is_some_and(|last| last.id.as_ref() == Some(id)) => {
                    named.succeeded_at.get_or_insert(seen);
                }
                _ => {}
            }
        }
        if let Some((last, id)) = status.last.as_ref().and_then(|last| Some((last, last.id.as_ref()?))) {
            let restarts = status.restarts.saturating_sub(1);
            let named = self.name(id, status, restarts, seen);
            named.report(last, seen);
            named.succeeded_at.get_or_insert(seen);
        }
        // The current container of that name succeeds all earlier ones.
        if let Some(id) = &status.id {
            for (other, named) in &mut self.names {
                if named.name == status.name && other != id && named.seen < seen {
                    named.succeeded_at.get_or_insert(seen);
                }
            }
        }
    }

    fn name(&mut self, id: &ContainerId, status: &ContainerStatus, restarts: u32, seen: Boot) -> &mut Named {
        self.names.entry(id.clone()).or_insert_with(|| Named {
            name: status.name.clone(),
            restarts,
            reported: None,
            stop_signal: None,
            reported_at: None,
            succeeded_at: None,
            in_place: false,
            seen,
        })
    }

    fn forget_names(&mut self) {
        while self.names.len() > NAMES {
            let oldest = self.names.iter().min_by_key(|(id, named)| (named.seen, (*id).clone()));
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else {
                return;
            };
            self.names.remove(&oldest);
        }
    }

    pub fn spec(&self, name: &str) -> Option<&ContainerSpec> {
        let containers = &self.fact.as_ref()?.spec.containers;
        containers.iter().find(|container| container.name == name)
    }

    /// The longest time that a stop of one of the containers can take, by all that the API has shown; None without the spec.
    pub fn longest_stop(&self) -> Option<Duration> {
        let spec = &self.fact.as_ref()?.spec;
        let probes = spec.containers.iter().flat_map(|of| [&of.liveness, &of.startup]).flatten();
        let deletion = self.object.deletion.map(|(deletion, _)| deletion.grace);
        let others = probes.filter_map(|probe| probe.grace).chain(deletion);
        Some(others.fold(spec.grace?, Duration::max) + SLOW_KILL)
    }

    /// A stop signal from before `since` is not why the container terminated at `end`.
    pub fn is_long_before(&self, since: Boot, end: Boot) -> bool {
        self.longest_stop()
            .is_some_and(|longest| since.plus(longest.max(LATE_REACH)) <= end)
    }

    pub fn kind(&self, id: &ContainerId) -> Option<ContainerKind> {
        Some(self.spec(&self.names.get(id)?.name)?.kind)
    }

    pub fn name_of(&self, id: &ContainerId) -> Option<&str> {
        self.names.get(id).map(|named| named.name.as_str())
    }

    pub fn container(&mut self, cgroup: CgroupId) -> Option<&mut Container> {
        self.containers.iter_mut().find(|container| container.cgroup == cgroup)
    }

    /// Another cgroup had the container's id before.
    pub fn is_forged(&self, cgroup: CgroupId) -> bool {
        let Some(of) = self.containers.iter().find(|of| of.cgroup == cgroup) else {
            return false;
        };
        let existed_before = |other: &Container| other.id == of.id && other.order() < of.order();
        self.containers.iter().any(existed_before) || self.reported_ids.iter().any(|(id, own)| *id == of.id && *own != cgroup)
    }

    /// The pod as a node's shutdown finds it; None if no container of it runs.
    pub fn running(&self) -> Option<RunningPod> {
        let fact = self.fact.as_ref()?;
        // Its exit and the removal of its cgroup may be lost: a status that shows the exit is enough.
        let runs = |of: &&Container| of.runs() && self.names.get(&of.id).is_some_and(|named| named.reported.is_none());
        let cgroups: Vec<CgroupId> = self.containers.iter().filter(runs).map(|of| of.cgroup).collect();
        let is_unseen = self.runs_unseen();
        (!cgroups.is_empty() || is_unseen).then(|| RunningPod {
            pod: fact.pod.clone(),
            priority: fact.spec.priority,
            // In force: a deletion may have shortened it.
            grace: self.object.deletion.map(|(deletion, _)| deletion.grace).or(fact.spec.grace),
            cgroups,
            perhaps_over: Vec::new(),
            has_hook: fact.spec.containers.iter().any(|of| of.pre_stop.is_some()),
            is_unseen,
            is_ignored: self.is_ignored(),
            since: self.containers.iter().map(|of| of.start).min(),
            is_ready: fact.takes_clients(),
        })
    }

    /// A restart followed or was due: the pod continued.
    pub fn was_succeeded(&self, id: &ContainerId) -> bool {
        self.names.get(id).is_some_and(|named| named.succeeded_at.is_some()) || self.has_unnamed_successor(id)
    }

    /// The versions that named the next container are missing. No container starts once the pod's deletion is requested: one that
    /// started after the exit shows that the pod went on.
    fn has_unnamed_successor(&self, id: &ContainerId) -> bool {
        let is_hidden = self.object.gone.as_ref().is_some_and(|gone| !gone.watched)
            && self.restarts_after(self.name_of(id), 1) == Some(true);
        let ended = self.containers.iter().find(|of| of.id == *id).and_then(|of| of.ended);
        let is_main = self.kind(id) != Some(ContainerKind::Init);
        let is_next =
            |other: &Container, end: Boot| other.start > end && !other.is_sandbox && !self.names.contains_key(&other.id);
        is_hidden && is_main && ended.is_some_and(|end| self.containers.iter().any(|other| is_next(other, end)))
    }

    pub fn is_static(&self) -> bool {
        self.fact.as_ref().is_some_and(|fact| fact.pod.is_static)
    }

    pub fn is_ignored(&self) -> bool {
        self.fact.as_ref().is_some_and(|fact| fact.spec.options.ignore)
    }

    pub fn is_terminal(&self) -> bool {
        self.fact.as_ref().is_some_and(|fact| fact.phase.is_terminal())
    }

    /// The pod's termination was requested, or happened. A mirror pod's state shows nothing about the containers until they have exited, too.
    pub fn is_ending(&self) -> bool {
        if self.fact.is_none() {
            return false;
        }
        if self.is_static() {
            let is_gone = self.object.gone.is_some() && !self.object.may_be_back;
            return self.is_terminal() || is_gone && !self.containers.iter().any(|of| of.ended.is_none() && !of.is_sandbox);
        }
        self.object.deletion.is_some() || self.object.gone.is_some() || self.is_terminal()
    }

    /// The kubelet creates a mirror pod again whose containers run.
    pub fn awaits_return(&self) -> bool {
        self.is_static() && self.object.gone.is_some() && self.object.reported.is_none() && !self.is_ending()
    }

    /// Its termination is not reported yet.
    pub fn awaits_report(&self) -> bool {
        self.is_ending() && self.object.reported.is_none()
    }

    /// A status has shown the container's exit.
    pub fn is_reported(&self, id: &ContainerId) -> bool {
        self.names.get(id).is_some_and(|named| named.reported.is_some())
    }

    /// The pod's deletion was requested: its containers are being stopped.
    pub fn is_requested(&self) -> bool {
        !self.is_static() && (self.object.deletion.is_some() || self.object.gone.is_some())
    }

    /// The status shows no running container.
    pub fn all_reported(&self) -> bool {
        let runs = |status: &ContainerStatus| matches!(status.state, ContainerState::Running);
        self.fact.as_ref().is_some_and(|fact| !fact.containers.iter().any(runs))
    }
}

pub(super) fn kind(fact: &PodFact, name: &str) -> Option<ContainerKind> {
    Some(fact.spec.containers.iter().find(|of| of.name == name)?.kind)
}
