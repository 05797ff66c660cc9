//! One pod: what the API has shown of it so far, which containers of it the kernel knows, and their ends that wait for it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::CgroupId;
use crate::ids::{ContainerId, PodUid};
use crate::kubernetes::Reported;
use crate::pod::{
    ContainerKind, ContainerSpec, ContainerState, ContainerStatus, Deletion, Disruption, Ended, PodEvent, PodEventsState,
    PodFact, PodGone,
};
use crate::termination::TerminationFacts;
use crate::time::Boot;

use super::super::Limits;
use super::prestop::Runs;
use super::stop_reason;

/// Container ids and names remembered of one pod: a restart gives a new one, and the last one or two are asked for.
const NAMES: usize = 64;
/// Containers of one pod that the kernel shows, the dead ones that place the others included.
pub(super) const CONTAINERS: usize = 64;
/// Events and shortenings kept: the newest and the first say most.
const EVENTS: usize = 16;
const SHORTENED: usize = 8;

#[derive(Debug)]
pub(super) struct Pod {
    /// What its cgroups are named after.
    pub key: PodUid,
    pub fact: Option<Arc<PodFact>>,
    /// The first request, and when it was seen.
    pub deletion: Option<(Deletion, Boot)>,
    pub shortened: Vec<(Boot, Duration)>,
    /// Once shown they stand, for a later version may have lost them (a force delete, a status written over).
    pub disruption: Option<Disruption>,
    pub reason: Option<String>,
    /// Those that explain an end, with when it happened at the latest by what they say of it.
    pub events: VecDeque<(Boot, PodEvent)>,
    /// How far all of them are known, and for ends before when that holds.
    pub events_state: Option<(Boot, PodEventsState)>,
    pub gone: Option<PodGone>,
    pub names: HashMap<ContainerId, Named>,
    pub containers: Vec<Container>,
    pub held: Vec<Held>,
    /// Containers that had ended when the pod was first seen, and not as a part of this end.
    pub over_before: Vec<(String, Option<ContainerId>)>,
    /// Containers whose end was reported: what is left of them is not another end. By their cgroups, too, for a cgroup can name any id.
    pub reported_ids: VecDeque<(ContainerId, CgroupId)>,
    /// It had ended before its deletion was requested, which then only removes it.
    pub over_by_itself: bool,
    /// When its end was reported, or was found to need no report.
    pub reported: Option<Boot>,
    /// When anything of it was last heard.
    pub touched: Boot,
    pub due: Option<Boot>,
}

/// A container id that a status named.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub name: String,
    pub restarts: u32,
    pub reported: Option<Reported>,
    /// When a status first showed that it ended.
    pub reported_at: Option<Boot>,
    /// When a status first showed its successor, or that one is to come.
    pub succeeded_at: Option<Boot>,
    seen: Boot,
}

/// A container as the kernel shows it.
#[derive(Debug)]
pub(super) struct Container {
    pub id: ContainerId,
    pub cgroup: CgroupId,
    /// What its cgroup's path says of its pod.
    pub path_uid: Option<PodUid>,
    /// Start of its earliest process seen.
    pub start: Boot,
    pub ended: Option<Boot>,
    /// Its cgroup was removed.
    pub removed: Option<Boot>,
    /// It has ended, and its clients' failures are counted until then.
    pub counted_until: Option<Boot>,
    /// The runtime's first stop signal to it.
    pub stopped: Option<Boot>,
    /// It was reported that it still runs long after its grace.
    pub was_overdue: bool,
    /// Decided once: it is the pod's sandbox.
    pub is_sandbox: bool,
    pub runs: Runs,
}

#[derive(Debug)]
pub(super) struct Held {
    pub facts: TerminationFacts,
    pub id: ContainerId,
    /// From when on it waits.
    pub since: Boot,
    /// It ended with its pod, whose own end this observation does not see.
    pub of_ending_pod: bool,
}

impl Pod {
    pub fn new(key: PodUid, now: Boot) -> Pod {
        Pod {
            key,
            fact: None,
            deletion: None,
            shortened: Vec::new(),
            disruption: None,
            reason: None,
            events: VecDeque::new(),
            events_state: None,
            gone: None,
            names: HashMap::new(),
            containers: Vec::new(),
            held: Vec::new(),
            over_before: Vec::new(),
            reported_ids: VecDeque::new(),
            over_by_itself: false,
            reported: None,
            touched: now,
            due: None,
        }
    }

    /// Takes a version of the pod; they come in the order in which they were made.
    pub fn learn(&mut self, fact: Arc<PodFact>) {
        // A mirror pod that is back: the static pod itself was never gone, or its manifest was put back.
        let is_back = self.gone.as_ref().is_some_and(|gone| gone.uid != fact.pod.uid);
        if is_back {
            self.gone = None;
            self.deletion = None;
            self.shortened.clear();
            // What was shown of the pod as a whole was shown of the life before.
            self.events.retain(|(_, event)| event.container.is_some());
            self.disruption = None;
            self.reason = None;
            self.over_by_itself = false;
            self.reported = None;
        }
        let (is_first, seen) = (is_back || self.fact.is_none(), fact.seen);
        self.over_by_itself |= fact.phase.is_terminal() && fact.deletion.is_none() && self.deletion.is_none();
        // Deleting a mirror pod is not a request to stop.
        let is_request = !self.over_by_itself && !fact.pod.is_static;
        if let Some(deletion) = fact.deletion.filter(|_| is_request) {
            match self.deletion {
                None => self.deletion = Some((deletion, seen)),
                Some((first, _)) => {
                    let last = self.shortened.last().map_or(first.grace, |(_, grace)| *grace);
                    if deletion.grace < last && self.shortened.len() < SHORTENED {
                        self.shortened.push((seen, deletion.grace));
                    }
                }
            }
        }
        // The Eviction API marks before it deletes: what did not come to a deletion is taken back.
        let may_be_lost = fact.deletion.is_some() || self.deletion.is_some() || fact.phase.is_terminal();
        if fact.disruption.is_some() || !may_be_lost {
            self.disruption.clone_from(&fact.disruption);
        }
        if fact.reason.is_some() {
            self.reason.clone_from(&fact.reason);
        }
        for status in &fact.containers {
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
                self.reported = Some(seen);
            }
        }
        self.fact = Some(fact);
    }

    /// Keeps what explains an end: probes that fail each second would push it out.
    pub fn event(&mut self, at: Boot, event: PodEvent) {
        if !stop_reason::explains(&event) {
            return;
        }
        if self.events.len() >= EVENTS {
            self.events.pop_front();
        }
        self.events.push_back((at, event));
    }

    fn status(&mut self, status: &ContainerStatus, seen: Boot) {
        if let Some(id) = &status.id {
            let named = self.name(id, status, status.restarts, seen);
            match &status.state {
                ContainerState::Terminated(ended) if ended.id.as_ref().is_none_or(|of| of == id) => named.report(ended, seen),
                // `CrashLoopBackOff` keeps the id of the one that ended, too.
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
        // Whoever has the name now has succeeded all that had it before.
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
            reported_at: None,
            succeeded_at: None,
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

    pub fn kind(&self, id: &ContainerId) -> Option<ContainerKind> {
        Some(self.spec(&self.names.get(id)?.name)?.kind)
    }

    pub fn container(&mut self, cgroup: CgroupId) -> Option<&mut Container> {
        self.containers.iter_mut().find(|container| container.cgroup == cgroup)
    }

    /// Another cgroup bore its id before it did.
    pub fn is_forged(&self, cgroup: CgroupId) -> bool {
        let Some(of) = self.containers.iter().find(|of| of.cgroup == cgroup) else {
            return false;
        };
        let came_before = |other: &Container| other.id == of.id && other.order() < of.order();
        self.containers.iter().any(came_before) || self.reported_ids.iter().any(|(id, own)| *id == of.id && *own != cgroup)
    }

    /// It was followed by a restart, or one was to come: the pod went on.
    pub fn was_succeeded(&self, id: &ContainerId) -> bool {
        self.names.get(id).is_some_and(|named| named.succeeded_at.is_some())
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

    /// Its end as a whole was requested, or came. What becomes of a mirror pod says nothing of the containers until they have ended, too.
    pub fn is_ending(&self) -> bool {
        if self.fact.is_none() {
            return false;
        }
        if self.is_static() {
            return self.is_terminal()
                || self.gone.is_some() && !self.containers.iter().any(|of| of.ended.is_none() && !of.is_sandbox);
        }
        self.deletion.is_some() || self.gone.is_some() || self.is_terminal()
    }

    /// Its deletion was requested: its containers are being stopped.
    pub fn is_requested(&self) -> bool {
        !self.is_static() && (self.deletion.is_some() || self.gone.is_some())
    }

    /// By its status none of its containers runs.
    pub fn all_reported(&self) -> bool {
        let runs = |status: &ContainerStatus| matches!(status.state, ContainerState::Running);
        self.fact.as_ref().is_some_and(|fact| !fact.containers.iter().any(runs))
    }
}

impl Named {
    fn report(&mut self, ended: &Ended, seen: Boot) {
        self.reported_at.get_or_insert(seen);
        self.reported = Some(Reported {
            exit_code: ended.exit_code,
            reason: ended.reason.clone(),
        });
    }
}

impl Container {
    /// Order of place: the sandbox is made first.
    pub fn order(&self) -> (Boot, CgroupId) {
        (self.start, self.cgroup)
    }

    /// Nothing more of it is reported from then on, although its end was not.
    pub fn over_at(&self, limits: &Limits) -> Option<Boot> {
        let removed = self.removed?.plus(limits.linger);
        Some(
            self.counted_until
                .map_or(removed, |until| until.max(removed))
                .plus(limits.reorder),
        )
    }

    pub fn is_alive(&self, limits: &Limits, now: Boot) -> bool {
        self.ended.is_none() && self.over_at(limits).is_none_or(|at| at > now)
    }
}

pub(super) fn kind(fact: &PodFact, name: &str) -> Option<ContainerKind> {
    Some(fact.spec.containers.iter().find(|of| of.name == name)?.kind)
}
