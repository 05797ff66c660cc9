//! Subjects after a gap of the observation: who is still there, and whose termination is in progress.

use std::collections::{HashMap, HashSet};

use crate::attribute::Index;
use crate::event::{Armed, Event, Kind, Task};
use crate::ids::{CgroupId, Pid};
use crate::input::{CgroupFact, Input, LossScope, ProcessFact};
use crate::termination::Open;
use crate::time::Boot;

use super::Subjects;
use super::event::SubjectEvent;
use super::process::{Candidate, ProcessId};
use super::subject::State;
use crate::correlate::attribution::Attributor;

/// What a scan after a gap has shown.
#[derive(Debug, Default)]
pub(in crate::correlate) struct Scan {
    /// When the observation ended, and when it began again.
    pub gap: (Boot, Boot),
    cgroups: HashSet<CgroupId>,
    processes: HashMap<Pid, Boot>,
}

impl Scan {
    pub fn of(ended: Boot, since: Boot) -> Scan {
        Scan {
            gap: (ended.min(since), since),
            ..Scan::default()
        }
    }

    pub fn take(&mut self, input: &Input) {
        match input {
            Input::Cgroup(CgroupFact { cgroup, path: Ok(_), .. }) => {
                self.cgroups.insert(*cgroup);
            }
            Input::Process(fact) if !fact.is_gone() => {
                self.processes.insert(fact.tgid, fact.start);
                self.cgroups.extend(fact.cgroups.iter().map(|(cgroup, _)| *cgroup));
            }
            _ => {}
        }
    }

    pub fn has(&self, own: CgroupId) -> bool {
        self.cgroups.contains(&own)
    }

    fn shows(&self, process: &Candidate) -> bool {
        self.processes.get(&process.id.tgid).is_some_and(|start| {
            let shown = ProcessId {
                tgid: process.id.tgid,
                start: *start,
                exact: false,
            };
            process.id.same(&shown)
        })
    }
}

impl Subjects {
    /// Processes that the scan did not show exited in the gap. Returns the subjects whose cgroup was removed in the gap.
    pub fn scanned(&mut self, scan: &Scan, around: &Attributor, out: &mut Vec<SubjectEvent>) -> Vec<CgroupId> {
        let mut all: Vec<CgroupId> = self.subjects.keys().copied().collect();
        all.sort_unstable();
        for own in &all {
            let Some(state) = self.subjects.get_mut(own) else { continue };
            let main = state.main().map(|main| main.id);
            let is_main = |of: &Candidate| main.is_some_and(|main| main.same(&of.id));
            state
                .candidates
                .retain(|of| of.exit.is_some() || is_main(of) || scan.shows(of));
            self.missed.displace(*own, state);
            let has_ended = state.main().is_some_and(|main| main.exit.is_none() && !scan.shows(&main));
            if has_ended {
                let (since, until) = scan.gap;
                self.finish(*own, Open::InGap { since, until }, around, out);
            }
        }
        all.retain(|own| !scan.cgroups.contains(own) && self.subjects.contains_key(own));
        all
    }

    pub fn known(&self) -> Vec<CgroupId> {
        let mut known: Vec<CgroupId> = self.subjects.keys().copied().collect();
        known.sort_unstable();
        known
    }

    /// Whether a termination of the subject is requested, in progress, or not reported yet.
    pub fn is_ending(&self, own: CgroupId) -> bool {
        let of = |state: &State| state.requested.is_some() || state.removed.is_some() || state.wants_watch();
        self.subjects.get(&own).is_some_and(of)
    }

    #[cfg(test)]
    pub fn is_stopped(&self, own: CgroupId) -> bool {
        let of = |state: &State| state.is_stopping() || state.has_ended();
        self.subjects.get(&own).is_some_and(of)
    }

    /// Whether facts are kept that a termination may need.
    pub fn has_facts(&self, own: CgroupId) -> bool {
        let of = |state: &State| {
            let timeline = state.timeline.as_deref();
            timeline.is_some_and(|timeline| !timeline.signals.is_empty() || !timeline.ooms.is_empty())
        };
        self.subjects.get(&own).is_some_and(of) || self.is_ending(own)
    }

    /// Whether the process is among those of which one is the main process.
    pub fn may_be_main(&self, own: CgroupId, task: &Task) -> bool {
        let of = |state: &State| state.candidates.iter().any(|candidate| candidate.id.is(task));
        task.is_ns_init() || self.subjects.get(&own).is_some_and(of)
    }

    /// Inputs that make the subject known to another core: its cgroup, and the processes that may be its main one.
    /// `exited`: as of before this process's exit.
    pub fn introduce(&self, own: CgroupId, exited: Option<Pid>, index: &Index) -> Vec<Input> {
        let Some(state) = self.subjects.get(&own) else {
            return Vec::new();
        };
        let path = |cgroup: CgroupId| index.exact_path(cgroup).map(|path| path.to_string());
        let mut inputs = Vec::new();
        for cgroup in state.cgroups(own) {
            inputs.extend(path(cgroup).map(|path| {
                Input::Cgroup(CgroupFact {
                    created: index.created_at(cgroup),
                    ..CgroupFact::of(cgroup, Ok(path))
                })
            }));
        }
        let Some(home) = path(own) else { return inputs };
        let is_living = |of: &&Candidate| of.exit.is_none() || exited == Some(of.id.tgid);
        let living = state.candidates.iter().filter(is_living);
        inputs.extend(living.map(|candidate| {
            Input::Process(ProcessFact {
                tgid: candidate.id.tgid,
                // A process came in from outside if its parent is not in the subject; PID 1 never is.
                ppid: if candidate.outside { Pid::INIT } else { candidate.id.tgid },
                start: candidate.id.start,
                ns_level: candidate.ns_level,
                ns_pid: candidate.ns_pid,
                comm: candidate.comm.to_string(),
                cgroups: vec![(own, home.clone())],
            })
        }));
        inputs
    }

    /// Facts of the subject from before this event, which is the first one that is kept: exits and the main process's handler entries as they
    /// were recorded, and as losses those that are not kept as records.
    pub fn earlier(&self, own: CgroupId, (now, event): (Boot, &Event)) -> Vec<Input> {
        let Some(state) = self.subjects.get(&own) else {
            return Vec::new();
        };
        let timeline = state.timeline.as_deref();
        let delivers = timeline.into_iter().flat_map(|timeline| &timeline.delivers);
        let exits = state.exits.iter().map(|(at, exit)| (*at, Event::ProcessExit(*exit)));
        let delivers = delivers.map(|(at, deliver)| (*at, Event::SignalDeliver(*deliver)));
        let mut events: Vec<(Boot, Event)> = exits.chain(delivers).collect();
        events.retain(|(at, of)| *at != now || of != event);
        events.sort_by_key(|(at, _)| *at);
        let others = LossScope::Others(own);
        let mut lost: Vec<(Kind, LossScope, Boot)> = Vec::new();
        for facts in timeline.map(|timeline| &timeline.inside).into_iter().chain([&state.early]) {
            lost.extend(facts.signals.iter().map(|fact| (Kind::SignalGenerate, others, fact.at)));
            lost.extend(facts.entries.iter().map(|entry| (Kind::SignalDeliver, others, entry.at)));
        }
        // The kernel recorded the sockets from such an exit on: another core cannot know that no record came.
        let armed = state.exits.iter().filter(|(_, exit)| exit.armed.is_some_and(Armed::is_armed));
        let sockets = timeline.and_then(|timeline| timeline.sockets.since());
        let sockets = armed.map(|(at, _)| *at).chain(sockets);
        lost.extend(sockets.map(|at| (Kind::Tcp, LossScope::Within(own), at)));
        lost.retain(|(.., at)| *at != now);
        // Of each kind the first: a loss reaches to the time at which it is kept.
        lost.sort_by_key(|(kind, _, at)| (*kind as u16, *at));
        lost.dedup_by_key(|(kind, ..)| *kind);
        let lost = lost.into_iter().map(|(kind, scope, since)| Input::Lost {
            kind,
            scope,
            since,
            count: 1,
        });
        let events = events.into_iter().map(|(at, event)| Input::Kernel { at, event });
        events.chain(lost).collect()
    }
}
