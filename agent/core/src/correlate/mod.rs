//! The core: a pure state machine per termination.
//!
//! Facts are collected per subject in whatever order they come; each carries the kernel's own time. A death is judged once,
//! a while after the main process's end, by a pure function of the facts in the order of their times: any order of arrival
//! within that while gives the verdict of the true order.
//!
//! *Architecture invariant*: no clock, no I/O, bounded memory. An event costs a few hash look-ups, however many subjects live.

mod clients;
mod facts;
mod finish;
mod limits;
mod listeners;
mod lives;
mod pods;
mod requests;
mod role;
mod sight;
mod subject;
mod timeline;
mod traffic;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::attribute::{Attribution, Index, Map, Question, Subject};
use crate::event::{Boot, CgroupFact, CgroupId, Event, Input, Observation, Task};
use crate::termination::{DropReason, Output};

use clients::Clients;
pub use clients::KUBELET_UNITS;
pub use limits::Limits;
use pods::Pods;
use sight::Sight;
use subject::State;

/// A timeline's place in the order of idleness is renewed at most this often.
const TOUCH: Duration = Duration::from_secs(1);
/// Sockets that the kernel watches because of a signal or an end of which nothing came are let go after this long.
const WATCH: Duration = Duration::from_secs(60);
/// SIGKILLs of the kernel's remembered for OOM victims of which only the pid is told.
const KERNEL_KILLS: usize = 64;
/// Subjects that are over, remembered for this long: a little longer than the index answers for their cgroups.
const KEEP_GONE: Duration = Duration::from_secs(150);
const GONE: usize = 1_024;
/// Cgroups of the kubelet's told apart: one, or a few below a unit that holds more.
const KUBELETS: usize = 64;

/// See the module.
pub struct Correlator {
    limits: Limits,
    index: Index,
    sight: Sight,
    now: Boot,
    boot_id: String,
    subjects: Map<CgroupId, State>,
    /// When which subject must be looked at.
    due: BTreeSet<(Boot, CgroupId)>,
    /// Subjects with a timeline, the longest idle first.
    touched: BTreeSet<(Boot, CgroupId)>,
    /// Subjects whose sockets the kernel has begun to watch by itself, the longest ago first.
    armed: BTreeSet<(Boot, CgroupId)>,
    pending: VecDeque<(Boot, Boot, Event)>,
    kernel_kills: VecDeque<Task>,
    clients: Clients,
    /// Units whose sockets are the kubelet's, and their cgroups that exist.
    kubelet_units: Vec<String>,
    kubelets: BTreeSet<CgroupId>,
    /// Subjects that are over: their late events (a client that goes on trying) begin nothing new.
    gone: VecDeque<(Boot, CgroupId)>,
    swept: Boot,
    /// The second layer: what Kubernetes wanted.
    pods: Pods,
    /// What the second layer has said in between.
    said: Vec<Output>,
    drops: Drops,
}

#[derive(Debug, Default)]
struct Drops {
    timelines: u64,
    facts: u64,
    unattributed: u64,
}

impl Correlator {
    pub fn new(limits: Limits) -> Correlator {
        Correlator {
            limits,
            index: Index::new(limits.index_live, limits.index_dead),
            sight: Sight::default(),
            now: Boot(0),
            boot_id: String::new(),
            subjects: Map::default(),
            due: BTreeSet::new(),
            touched: BTreeSet::new(),
            armed: BTreeSet::new(),
            pending: VecDeque::new(),
            kernel_kills: VecDeque::new(),
            clients: Clients::default(),
            kubelet_units: KUBELET_UNITS.iter().map(|&unit| unit.to_owned()).collect(),
            kubelets: BTreeSet::new(),
            gone: VecDeque::new(),
            swept: Boot(0),
            pods: Pods::new(limits),
            said: Vec::new(),
            drops: Drops::default(),
        }
    }

    /// Other units than [`KUBELET_UNITS`].
    #[must_use]
    pub fn with_kubelet_units(self, kubelet_units: Vec<String>) -> Correlator {
        Correlator { kubelet_units, ..self }
    }

    /// Whether what this cgroup's processes connect to is the kubelet's doing: its probes and hooks.
    pub fn is_kubelet(&self, cgroup: CgroupId) -> bool {
        match self.index.attribute_cgroup(cgroup) {
            Attribution::Subject(Subject::Unit { name }, _) => self.kubelet_units.iter().any(|unit| **unit == *name),
            _ => false,
        }
    }

    /// What `/proc` or the cgroup file system must say before `input` is handled.
    pub fn questions(&self, input: &Input) -> Vec<Question> {
        match input {
            Input::Kernel { event, .. } => self.index.questions(event),
            _ => Vec::new(),
        }
    }

    /// Takes one input. `now` is the caller's clock; it never runs backwards here.
    pub fn handle(&mut self, now: Boot, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.now = self.now.max(now);
        // By a record's own time, before it and after: where the caller was held up, the records that wait may belong to a
        // death that is due by the clock, and the losses are not told yet. What answers a question is as late as its record.
        let until = match &input {
            Input::Kernel { at, .. } => self.now.min(*at),
            Input::Cgroup(_) | Input::Process(_) => Boot(0),
            _ => self.now,
        };
        if matches!(input, Input::Kernel { .. }) {
            self.run_timers(until, &mut out);
        }
        match input {
            Input::Kernel { at, event } => self.event(at, event, &mut out),
            Input::Start(observation) => self.start(observation, &mut out),
            Input::Probe { name, state } => self.sight.probe(name, state),
            Input::Cgroup(fact) => self.cgroup(&fact, &mut out),
            Input::Process(fact) => self.process(&fact, &mut out),
            Input::Lost { kind, since, count } => self.sight.lost(kind, since, self.now, count),
            Input::Clock(offset) => self.pods.clock(offset),
            Input::Pods(state) => self.pods_state(state),
            Input::Pod(fact) => self.pod(fact),
            Input::PodGone(gone) => self.pod_gone(gone),
            Input::PodEvent(event) => self.pods.event(self.now, event),
            Input::PodEvents(events) => self.pods.events(self.now, events),
            Input::ApiClock(clock) => self.pods.api_clock(clock),
            Input::Tick => self.report_drops(&mut out),
            Input::End => {
                self.end(&mut out);
                out = self.second_layer(self.now, out);
                self.pods.end(self.now, &self.boot_id, &mut out);
                self.report_drops(&mut out);
                return out;
            }
        }
        self.run_timers(until, &mut out);
        self.second_layer(until, out)
    }

    /// Whose is what, as far as it was told.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Live subjects, and those of them with a timeline.
    pub fn sizes(&self) -> (usize, usize) {
        (self.subjects.len(), self.touched.len())
    }

    /// All that is kept, in pieces of bounded size.
    #[cfg(test)]
    fn kept(&self) -> usize {
        let of = |state: &State| {
            let timeline = state.timeline.as_deref().map_or(0, timeline::Timeline::kept);
            state.candidates.len() + state.exits.len() + state.cgroups.len() + timeline
        };
        let lists = self.due.len()
            + self.touched.len()
            + self.armed.len()
            + self.pending.len()
            + self.kernel_kills.len()
            + self.clients.kept()
            + self.kubelets.len()
            + self.gone.len()
            + self.pods.kept();
        self.subjects.values().map(of).sum::<usize>() + lists
    }

    fn start(&mut self, observation: Observation, out: &mut Vec<Output>) {
        if !self.boot_id.is_empty() && self.boot_id != observation.boot_id {
            // Another boot: its clock begins again, and nothing of the old one lives.
            self.end(out);
            *out = self.second_layer(self.now, std::mem::take(out));
            self.pods.end(self.now, &self.boot_id, out);
            let drops = std::mem::take(&mut self.drops);
            let kubelet_units = std::mem::take(&mut self.kubelet_units);
            *self = Correlator {
                drops,
                kubelet_units,
                ..Correlator::new(self.limits)
            };
        }
        self.index.start(observation.cgroups);
        self.sight.start(self.now, observation.since);
        self.now = self.now.max(observation.since);
        self.pods.clock(observation.wall_offset);
        self.pods.observed_since(observation.since);
        self.boot_id = observation.boot_id;
    }

    fn event(&mut self, at: Boot, event: Event, out: &mut Vec<Output>) {
        match &event {
            Event::CgroupMkdir(made) => {
                if let Some(path) = &made.path {
                    let fact = CgroupFact {
                        cgroup: made.cgroup,
                        path: Ok(path.clone()),
                    };
                    self.cgroup(&fact, out);
                }
            }
            Event::CgroupRmdir(removed) => {
                // Even where nothing is known of it: its other events may come later.
                // In one hierarchy: a container of v1 has a cgroup in each.
                if let Attribution::Subject(subject, own) = self.index.attribute_cgroup(removed.cgroup)
                    && own == removed.cgroup
                    && own.hierarchy == self.index.machine().hierarchy()
                {
                    self.know(own, subject);
                }
                self.index.remove(self.now, removed.cgroup);
                self.kubelets.remove(&removed.cgroup);
                if let Some(state) = self.subjects.get_mut(&removed.cgroup) {
                    state.removed = Some(at);
                    self.reschedule(removed.cgroup);
                }
                self.pods.removed(at, removed.cgroup, self.now);
            }
            _ => {
                if !self.fact(at, &event, out) {
                    self.wait(at, event);
                }
            }
        }
    }

    fn cgroup(&mut self, fact: &CgroupFact, out: &mut Vec<Output>) {
        self.index.insert(self.now, fact);
        let cgroup = fact.cgroup;
        if self.kubelets.len() < KUBELETS && self.is_kubelet(cgroup) {
            self.kubelets.insert(cgroup);
        }
        self.retry(|event| is_of(event, cgroup), out);
    }

    fn wait(&mut self, at: Boot, event: Event) {
        if self.limits.pending == 0 {
            self.drops.unattributed += 1;
            return;
        }
        if self.pending.len() >= self.limits.pending {
            self.pending.pop_front();
            self.drops.unattributed += 1;
        }
        self.pending.push_back((self.now.plus(self.limits.reorder), at, event));
    }

    /// Tries again what waited for a name.
    fn retry(&mut self, is_it: impl Fn(&Event) -> bool, out: &mut Vec<Output>) {
        if !self.pending.iter().any(|(_, _, event)| is_it(event)) {
            return;
        }
        let (again, rest): (VecDeque<_>, VecDeque<_>) = self.pending.drain(..).partition(|(_, _, event)| is_it(event));
        self.pending = rest;
        for (deadline, at, event) in again {
            if !self.fact(at, &event, out) {
                self.pending.push_back((deadline, at, event));
            }
        }
    }

    fn report_drops(&mut self, out: &mut Vec<Output>) {
        let drops = std::mem::take(&mut self.drops);
        let counts = [
            (DropReason::TimelineCap, drops.timelines),
            (DropReason::FactCap, drops.facts),
            (DropReason::IndexCap, self.index.drops()),
            (DropReason::Unattributed, drops.unattributed),
        ];
        let dropped = counts.into_iter().filter(|(_, count)| *count > 0);
        out.extend(dropped.map(|(reason, count)| Output::Dropped { reason, count }));
        self.pods.drops(out);
    }
}

fn task_of(event: &Event) -> Option<&Task> {
    match event {
        Event::SignalGenerate(signal) => Some(&signal.target),
        Event::SignalDeliver(deliver) => Some(&deliver.task),
        Event::ProcessExit(exit) => Some(&exit.task),
        Event::ProcessExec(exec) => Some(&exec.task),
        Event::OomVictim(oom) => oom.task.as_ref(),
        Event::SignalDiscarded(discarded) => Some(&discarded.task),
        Event::CgroupMkdir(_) | Event::CgroupRmdir(_) | Event::Tcp(_) | Event::PeerAnnouncement(_) => None,
    }
}

fn is_of(event: &Event, cgroup: CgroupId) -> bool {
    match event {
        Event::Tcp(tcp) => tcp.cgroup == Some(cgroup),
        event => task_of(event).is_some_and(|task| task.cgroup == cgroup || task.v1_cgroup == Some(cgroup)),
    }
}
