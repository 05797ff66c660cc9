//! Subjects: containers and units, each with the facts of a possible termination, and their timers.
//!
//! Facts are collected per subject in any order; each has the kernel's own time. A termination's facts are assembled once, some
//! time after the main process's exit, in the order of their times: any order of arrival within that time gives the same facts.

mod budget;
mod clients;
mod connection;
mod dropped;
mod evidence;
mod fact;
mod finish;
mod inside;
mod listeners;
mod missed;
mod own_exits;
mod peers;
mod resumed;
mod subject;
mod timeline;
mod timers;
mod traffic;
mod warning;
mod watching;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use crate::attribute::{Map, Subject};
use crate::container::ContainerFact;
use crate::event::ExitStatus;
use crate::ids::{CgroupId, Comm};
use crate::input::{Observation, ProbeState};
use crate::ledger::{Coverage, Hole, LossPlace, Span};
use crate::report::StopSignalIgnored;
use crate::termination::{OomKill, Open, TerminationFacts};
use crate::time::{Boot, TickRate, WallClock, WallOffset};

use super::Limits;
use super::attribution::Attributor;
use super::limits::STEPS;
use clients::Clients;
use dropped::EarlyDoubt;
use finish::Context;
use missed::Missed;
use subject::State;
use timers::Due;

pub(super) use resumed::Scan;
pub(super) use subject::ProcessId;

/// An event of a subject.
#[derive(Debug)]
pub(super) enum SubjectEvent {
    /// A process that started then was observed in the subject.
    Seen {
        own: CgroupId,
        subject: Subject,
        start: Boot,
    },
    /// A process came in from outside.
    CameIn {
        at: Boot,
        own: CgroupId,
        process: ProcessId,
        comm: Comm,
    },
    Exited {
        at: Boot,
        own: CgroupId,
        process: ProcessId,
        status: ExitStatus,
    },
    /// The runtime sent the main process a stop signal.
    StopSent {
        at: Boot,
        own: CgroupId,
        /// The subject, if PID 1 of the machine sent it.
        by_init: Option<Subject>,
    },
    /// A cgroup was removed: the subject's own or another.
    Removed {
        at: Boot,
        cgroup: CgroupId,
    },
    /// The exit is known, and clients' errors count until then.
    CountsUntil {
        own: CgroupId,
        until: Boot,
    },
    StopIgnored(Box<StopSignalIgnored>),
    /// The subject continues.
    ChildOomKilled {
        subject: Subject,
        container: Option<Arc<ContainerFact>>,
        oom: OomKill,
    },
    Ended(Box<TerminationFacts>),
    /// The kernel must watch the sockets in this cgroup again.
    Watched(CgroupId),
    /// The kernel can stop watching the sockets in this cgroup.
    Unwatched(CgroupId),
}

impl SubjectEvent {
    /// The unit that a report would be about.
    pub fn reported_unit(&self) -> Option<&str> {
        let subject = match self {
            SubjectEvent::StopIgnored(early) => &early.subject,
            SubjectEvent::ChildOomKilled { subject, .. } => subject,
            SubjectEvent::Ended(facts) => &facts.subject,
            _ => return None,
        };
        match subject {
            Subject::Unit { name } => Some(name),
            Subject::Container { .. } => None,
        }
    }
}

/// See the module.
pub(super) struct Subjects {
    limits: Limits,
    coverage: Coverage,
    clock: WallClock<STEPS>,
    /// Time of the last call.
    now: Boot,
    boot_id: String,
    tick_rate: TickRate,
    /// See [`Observation::observes_followed`].
    observes_followed: bool,
    subjects: Map<CgroupId, State>,
    /// Bytes that each subject can give up, and all of its bytes, the most last: see `budget`.
    weights: BTreeSet<(usize, usize, CgroupId)>,
    /// Bytes of all subjects together beyond their slots.
    weight: usize,
    /// A subject has more bytes than when it was last made sure that all fit.
    grew: bool,
    due: Due,
    /// Subjects with a timeline, the longest idle first.
    touched: BTreeSet<(Boot, CgroupId)>,
    missed: Missed,
    /// Subjects with sockets that the kernel watches on its own, the oldest first.
    armed: BTreeSet<(Boot, CgroupId)>,
    clients: Clients,
    clients_swept: Boot,
    /// Subjects with closed listeners, by network namespace: see `listeners`.
    closers: HashMap<u32, Vec<CgroupId>>,
    closers_swept: Boot,
    /// Finished subjects: their late events (a client that keeps trying) start no new timeline.
    gone: VecDeque<(Boot, CgroupId)>,
    /// The oldest first.
    early: VecDeque<EarlyDoubt>,
    /// When there was no room for a subject: a subject that is known only since then may have had events before.
    refused: Option<Span>,
    swept: Boot,
    drops: Drops,
}

/// Dropped facts.
#[derive(Debug, Default)]
pub(super) struct Drops {
    pub timelines: u64,
    pub facts: u64,
    pub memory: u64,
}

impl Subjects {
    pub fn new(limits: Limits) -> Subjects {
        Subjects {
            limits,
            coverage: Coverage::default(),
            clock: WallClock::default(),
            now: Boot(0),
            boot_id: String::new(),
            tick_rate: TickRate::USUAL,
            observes_followed: false,
            subjects: Map::default(),
            weights: BTreeSet::new(),
            weight: 0,
            grew: false,
            due: Due::default(),
            touched: BTreeSet::new(),
            missed: Missed::default(),
            armed: BTreeSet::new(),
            clients: Clients::default(),
            clients_swept: Boot(0),
            closers: HashMap::new(),
            closers_swept: Boot(0),
            gone: VecDeque::new(),
            early: VecDeque::new(),
            refused: None,
            swept: Boot(0),
            drops: Drops::default(),
        }
    }

    /// The observation begins (again); the previous one ended at `ended`.
    pub fn start(&mut self, ended: Boot, observation: &Observation) {
        self.coverage.start(ended, observation.since);
        if self.boot_id != observation.boot_id {
            self.clock = WallClock::default();
        }
        self.clock.set(observation.since, observation.wall_offset);
        self.boot_id.clone_from(&observation.boot_id);
        self.tick_rate = observation.tick_rate();
        self.observes_followed = observation.observes_followed;
    }

    pub fn clock(&mut self, now: Boot, offset: WallOffset) {
        self.clock.set(now, offset);
    }

    /// The states of the probes follow.
    pub fn forget_probes(&mut self) {
        self.coverage.forget_probes();
    }

    /// What was observed last may be missing.
    pub fn cut(&mut self, now: Boot) {
        self.coverage.cut(now);
    }

    pub fn probe(&mut self, name: String, state: ProbeState) {
        self.coverage.probe(name, state);
    }

    /// Records of the subjects there are missing.
    pub fn lost(&mut self, hole: Hole, place: LossPlace) {
        self.coverage.lost(hole, place);
    }

    /// Records of clients' connects to the servers of that hash were lost.
    pub fn lost_connects(&mut self, now: Boot, hash: u32, since: Boot) {
        self.clients.lost(hash, Span::at(since).and(Span::at(now)));
    }

    /// The pod of a container is being deleted: clients' errors count from now on. Returns the cgroups with sockets to watch.
    pub fn deletion_requested(&mut self, now: Boot, own: CgroupId) -> Vec<CgroupId> {
        match self.subjects.get_mut(&own) {
            Some(state) if state.requested.is_none() => {
                state.requested = Some(now);
                self.missed.displace(own, state);
                state.cgroups(own).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A container that is being stopped has these addresses.
    pub fn serves(&mut self, now: Boot, addresses: &[IpAddr]) {
        addresses.iter().for_each(|address| self.clients.serves(now, *address));
    }

    /// The containers that are known, as [`SubjectEvent::Seen`], the oldest first.
    pub fn containers(&self, now: Boot) -> Vec<SubjectEvent> {
        let mut known: Vec<(Boot, CgroupId, &Subject)> = self
            .subjects
            .iter()
            .filter(|(_, state)| matches!(state.subject, Subject::Container { .. }))
            .map(|(own, state)| (state.first_start().unwrap_or(now), *own, &state.subject))
            .collect();
        known.sort_unstable_by_key(|(start, own, _)| (*start, *own));
        let seen = |(start, own, subject): (Boot, CgroupId, &Subject)| SubjectEvent::Seen {
            own,
            subject: subject.clone(),
            start,
        };
        known.into_iter().map(seen).collect()
    }

    /// The facts so far of a subject that still runs; None if no stop was requested.
    pub fn facts_so_far(&self, now: Boot, own: CgroupId, around: &Attributor) -> Option<TerminationFacts> {
        let state = self.subjects.get(&own)?;
        finish::facts(&self.context(around), own, state, Open::ObservationEnded, now)
    }

    /// Dropped facts since the last call.
    pub fn take_drops(&mut self) -> Drops {
        std::mem::take(&mut self.drops)
    }

    /// Drops the subjects of an earlier boot.
    pub fn add_drops(&mut self, drops: Drops) {
        self.drops.timelines += drops.timelines;
        self.drops.facts += drops.facts;
        self.drops.memory += drops.memory;
    }

    /// Live subjects, and those of them with a timeline.
    pub fn sizes(&self) -> (usize, usize) {
        (self.subjects.len(), self.touched.len())
    }

    /// All that is kept, in pieces of bounded size.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        let of = |state: &State| {
            let timeline = state.timeline.as_deref().map_or(0, timeline::Timeline::kept);
            state.candidates.len() + state.exits.len() + state.early.len() + state.below.len() + timeline
        };
        let timelines = self.touched.len() + self.missed.len();
        let lists = self.due.len() + timelines + self.armed.len() + self.clients.kept() + self.gone.len();
        self.subjects.values().map(of).sum::<usize>() + lists
    }

    fn context<'a>(&'a self, around: &'a Attributor) -> Context<'a> {
        Context {
            boot_id: &self.boot_id,
            index: around.index(),
            coverage: &self.coverage,
            clock: &self.clock,
            clients: &self.clients,
            kubelet_known: around.knows_kubelet(),
            reorder: self.limits.reorder,
            linger: self.limits.linger,
        }
    }
}
