//! Subjects: containers and units, each with the facts of a possible termination, and their timers.
//!
//! Facts are collected per subject in any order; each has the kernel's own time. A termination's facts are assembled once, some
//! time after the main process's exit, in the order of their times: any order of arrival within that time gives the same facts.
//!
//! What is kept of one subject: `process`, `inner`, `timeline`, `subject`. What is made of it: `inside`, `finish`. [`Subjects`] has all of
//! them and their lists; the files that add methods to it are its ways in (`evidence`, `resumed`) and out (`timers`, `warning`).

mod budget;
mod clients;
mod closers;
mod connection;
mod dropped;
mod due;
mod event;
mod evidence;
mod fact;
mod finish;
mod inner;
mod inside;
mod listeners;
mod lists;
mod missed;
mod observing;
mod own_exits;
mod peers;
mod process;
mod resumed;
mod subject;
mod timeline;
mod timers;
mod traffic;
mod warning;
mod watching;
mod weights;

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

use crate::attribute::{Map, Subject};
use crate::event::Kind;
use crate::ids::{CgroupId, ContainerId, Signal};
use crate::input::{Observation, ProbeState};
use crate::ledger::{Hole, LossPlace, Span};
use crate::termination::{Open, TerminationFacts};
use crate::time::{Boot, WallOffset};

use super::Limits;
use super::attribution::Attributor;
use clients::Clients;
use closers::Closers;
use dropped::EarlyDoubts;
use due::Due;
use finish::Context;
use missed::Missed;
use observing::Observing;
use subject::State;
use weights::Weights;

pub(super) use event::SubjectEvent;
pub(super) use process::ProcessId;
pub(super) use resumed::Scan;

/// See the module.
#[derive(Default)]
pub(super) struct Subjects {
    limits: Limits,
    observing: Observing,
    /// Time of the last call.
    now: Boot,
    subjects: Map<CgroupId, State>,
    weights: Weights,
    due: Due,
    /// Subjects with a timeline, the longest idle first.
    touched: BTreeSet<(Boot, CgroupId)>,
    missed: Missed,
    /// Subjects with sockets that the kernel watches on its own, the oldest first.
    armed: BTreeSet<(Boot, CgroupId)>,
    clients: Clients,
    closers: Closers,
    /// Finished subjects: their late events (a client that keeps trying) start no new timeline.
    gone: VecDeque<(Boot, CgroupId)>,
    early: EarlyDoubts,
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
            ..Subjects::default()
        }
    }

    /// The observation begins (again); the previous one ended at `ended`.
    pub fn start(&mut self, ended: Boot, observation: &Observation) {
        self.observing.start(ended, observation);
    }

    pub fn clock(&mut self, now: Boot, offset: WallOffset) {
        self.observing.clock.set(now, offset);
    }

    /// The states of the probes follow.
    pub fn forget_probes(&mut self) {
        self.observing.coverage.forget_probes();
    }

    /// What was observed last may be missing.
    pub fn cut(&mut self, now: Boot) {
        self.observing.coverage.cut(now);
    }

    pub fn probe(&mut self, name: String, state: ProbeState) {
        self.observing.coverage.probe(name, state);
    }

    /// Records of the subjects there are missing.
    pub fn lost(&mut self, hole: Hole, place: LossPlace) {
        self.observing.coverage.lost(hole, place);
    }

    /// Records of a subject, or of something below its cgroup, were dropped: what they could have shown is unknown.
    fn doubt(&mut self, own: CgroupId, hole: Hole) {
        if let Some(state) = self.subjects.get_mut(&own) {
            return state.rare_mut().drops.add(hole);
        }
        if let Some(over) = self.early.add((self.now, own), hole, self.limits.reorder) {
            self.lost(over, LossPlace::Anywhere);
        }
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

    /// The container's own stop signal, by its pod's status.
    pub fn has_own_stop(&mut self, own: CgroupId, signal: Signal) {
        if let Some(state) = self.subjects.get_mut(&own) {
            state.own_stop = Some(signal);
        }
    }

    /// The same, by the files of its runtime. Its pod's status is better evidence: Docker's files do not have the signal of the container.
    pub fn has_described_stop(&mut self, own: CgroupId, signal: Signal) {
        if let Some(state) = self.subjects.get_mut(&own) {
            state.own_stop.get_or_insert(signal);
        }
    }

    /// See [`Subjects::has_described_stop`]; of a container that may not have been seen yet.
    pub fn is_described(&mut self, container: &ContainerId, signal: Signal) {
        let is_it = |subject: &Subject| matches!(subject, Subject::Container { id, .. } if id == container);
        let described = self.subjects.values_mut().filter(|state| is_it(&state.subject));
        described.for_each(|state| _ = state.own_stop.get_or_insert(signal));
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

    /// A subject that seems to run may have ended: records that would have shown its exit, and then the removal of its cgroup, were lost. Not
    /// before the observation began last: what was not found then does not seem to run.
    pub fn may_be_over(&self, own: CgroupId, around: &Attributor) -> bool {
        let Some(state) = self.subjects.get(&own) else { return false };
        let context = self.context(around);
        let ledger = context.ledger(own, state);
        let lost_since = |kind: Kind, from: Option<Boot>| ledger.lost_since(kind, from.unwrap_or_default(), Boot(u64::MAX));
        let exit = lost_since(Kind::ProcessExit, state.first_start().max(ledger.last_start()));
        exit.is_some_and(|exit| lost_since(Kind::CgroupRmdir, Some(exit)).is_some())
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
            state.candidates.len() + state.exits.len() + state.early.len() + state.below.cgroups.len() + timeline
        };
        let timelines = self.touched.len() + self.missed.len();
        let lists = self.due.len() + timelines + self.armed.len() + self.clients.kept() + self.gone.len();
        self.subjects.values().map(of).sum::<usize>() + lists
    }

    fn context<'a>(&'a self, around: &'a Attributor) -> Context<'a> {
        Context {
            observing: &self.observing,
            index: around.index(),
            clients: &self.clients,
            kubelet_known: around.knows_kubelet(),
            reorder: self.limits.reorder,
            linger: self.limits.linger,
        }
    }
}
