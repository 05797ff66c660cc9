//! The core: attribution, subjects and pods, three small machines, wired here in the order of the data, and beside them the node's:
//!
//! input → `attribution` → evidence → `subjects` → subject events → `pods` → reports; and commands for the kernel and the API.
//! `node` takes what logind, systemd and the kubelet's files show, and subject events; its own reports are the node's shutdowns, and a
//! termination that one of these caused gets it as a fact.
//!
//! Each machine returns values, and none knows the machines after it. This module carries data back: a deletion request has a
//! subject's sockets watched, and a container that runs long after its grace period is asked for its facts so far.
//!
//! *Architecture invariant*: no clock, no I/O, bounded memory. An event costs a few hash look-ups, however many subjects live.

mod attribution;
mod begin_end;
mod containers;
mod keeper;
mod limits;
mod node;
mod pods;
mod progress;
mod readiness;
mod subjects;
mod units;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::attribute::{Attribution, Index, Question, Subject};
use crate::event::{Event, Kind};
use crate::ids::{CgroupId, ContainerId};
use crate::input::{Input, LossScope};
use crate::ledger::{Hole, LossPlace, Origin, Whose};
use crate::node::NodeEvent;
use crate::pod::{PodFact, PodsState};
use crate::report::{Answers, Command, Report};
use crate::termination::Open;
use crate::time::{Boot, WallOffset};
use crate::tolerances::BEHIND;

pub use attribution::KUBELET_UNITS;
use attribution::{Attributor, Taker};
use containers::Containers;
pub use keeper::{Concern, Keeper, Kept};
pub use limits::Limits;
use node::{FromNode, NodeMachine};
use pods::{FromPods, Pods, PreviousPods};
use subjects::{Scan, SubjectEvent, Subjects};
pub use units::ReportedUnits;

/// See the module.
pub struct Correlator {
    limits: Limits,
    now: Boot,
    /// The kernel's records until then were taken. A busy caller takes them late, and may be ended with later ones still in their buffer.
    observed: Boot,
    boot_id: String,
    attribution: Attributor,
    subjects: Subjects,
    pods: Pods,
    containers: Containers,
    units: ReportedUnits,
    node: NodeMachine,
    /// Pods of the boot before, of which only the API shows the end.
    previous: Option<Box<PreviousPods>>,
    /// After a gap, until all that exists was shown.
    scan: Option<Scan>,
    /// See [`Correlator::reads_journal`].
    reads_journal: bool,
    /// Between subjects and pods. Empty between two inputs: kept for the allocated memory, because kernel records arrive by the thousand.
    events: Vec<SubjectEvent>,
}

/// Subject events for which memory is kept.
const KEPT: usize = 16;

impl Correlator {
    pub fn new(limits: Limits) -> Correlator {
        let units = KUBELET_UNITS.iter().map(|&unit| unit.to_owned()).collect();
        Correlator {
            limits,
            now: Boot(0),
            observed: Boot(0),
            boot_id: String::new(),
            attribution: Attributor::new(limits, units),
            subjects: Subjects::new(limits),
            pods: Pods::new(limits),
            containers: Containers::new(limits.containers_bytes()),
            units: ReportedUnits::default(),
            node: NodeMachine::default(),
            previous: None,
            scan: None,
            reads_journal: false,
            events: Vec::new(),
        }
    }

    /// Whether the inputs are those that a [`Keeper`] kept: at the begin of a shutdown it shows all pods that run once more, also those that a
    /// missing part before had shown.
    pub fn reads_journal(&mut self, reads: bool) {
        self.reads_journal = reads;
    }

    /// Other units than [`KUBELET_UNITS`].
    #[must_use]
    pub fn with_kubelet_units(self, kubelet_units: Vec<String>) -> Correlator {
        Correlator {
            attribution: Attributor::new(self.limits, kubelet_units),
            ..self
        }
    }

    /// Other units than [`ReportedUnits::default`].
    #[must_use]
    pub fn with_reported_units(self, units: ReportedUnits) -> Correlator {
        Correlator { units, ..self }
    }

    /// Whether connections from this cgroup are the kubelet's: its probes and hooks.
    pub fn is_kubelet(&self, cgroup: CgroupId) -> bool {
        self.attribution.is_kubelet(cgroup)
    }

    /// Look-ups in `/proc` or the cgroup file system that are needed before `input` is handled.
    pub fn questions(&self, input: &Input) -> Vec<Question> {
        match input {
            Input::Kernel { event, .. } => self.attribution.questions(event),
            _ => Vec::new(),
        }
    }

    /// Containers that were seen since the last call, and that the files of their runtimes may describe: [`Input::Container`]. The core
    /// does not wait for the answers.
    pub fn take_undescribed(&mut self) -> impl Iterator<Item = ContainerId> + use<> {
        self.containers.take_wanted()
    }

    /// The subject of each known cgroup and process.
    pub fn index(&self) -> &Index {
        self.attribution.index()
    }

    /// Live subjects, and those of them with a timeline.
    pub fn sizes(&self) -> (usize, usize) {
        self.subjects.sizes()
    }

    /// Bytes that are kept: never more than [`Limits::memory`].
    pub fn memory(&self) -> usize {
        self.attribution.bytes()
            + self.subjects.bytes()
            + self.pods.bytes()
            + self.containers.bytes()
            + self.node.bytes()
            + self.previous.as_ref().map_or(0, |previous| previous.bytes())
            + self.events.capacity() * size_of::<SubjectEvent>()
    }

    /// Takes one input. `now` is the caller's clock; it never runs backwards here.
    pub fn handle(&mut self, now: Boot, input: Input) -> Answers {
        let mut answers = Answers::default();
        let before = self.now;
        self.now = self.now.max(now);
        match input {
            // Not moved: a record is large, and only a few are kept.
            Input::Kernel { at, ref event } => self.record(at, event, &mut answers),
            input => self.other(before, input, &mut answers),
        }
        answers
    }

    /// Takes a kernel record: by the thousand, and nearly always nothing else is due.
    ///
    /// What is due is due by the record's own time, before and after: if the caller was late, waiting records may belong to a termination
    /// that is due by the clock, and losses are not known yet.
    fn record(&mut self, at: Boot, event: &Event, answers: &mut Answers) {
        let (now, until) = (self.now, self.now.min(at));
        self.observed = self.observed.max(at);
        self.subjects_due(until, answers);
        self.expire(answers);
        if node::may_be_sign(event) {
            self.of_node(answers, |node, out| node.kernel(at, event, out));
        }
        answers.about = self.attribute(answers, |attribution, take| attribution.event(now, at, event, take));
        if let Event::CgroupMkdir(made) = event {
            self.cgroup_seen(made.cgroup);
        }
        self.subjects_due(until, answers);
        self.others_due(until, answers);
    }

    /// Takes an input that is not a kernel record. `before`: time of the last input.
    fn other(&mut self, before: Boot, input: Input, answers: &mut Answers) {
        let now = self.now;
        let until = match &input {
            // The answer to a look-up is as late as its record, and of several losses each may concern a termination that is due.
            Input::Cgroup(_) | Input::Process(_) | Input::Container(_) | Input::Lost { .. } => Boot(0),
            _ => now,
        };
        // All that waited was taken before.
        if let Input::Tick | Input::Scanned | Input::End | Input::Cut = &input {
            self.observed = now;
        }
        // Before other inputs a busy caller may have left records.
        let assembled = until.min(self.observed);
        let input_is_cut = matches!(input, Input::Cut);
        let mut from_pods = FromPods::default();
        if let Some(scan) = &mut self.scan {
            scan.take(&input);
        }
        match input {
            Input::Kernel { at, event } => return self.record(at, &event, answers),
            Input::Cgroup(fact) => {
                self.attribute(answers, |attribution, take| attribution.cgroup(now, &fact, take));
                self.cgroup_seen(fact.cgroup);
            }
            Input::Process(fact) => {
                self.attribute(answers, |attribution, take| attribution.process(now, fact, take));
            }
            Input::Container(fact) => {
                if let Some(signal) = fact.stop_signal {
                    self.subjects.is_described(&fact.id, signal);
                }
                self.containers.learn(fact);
            }
            Input::Start(observation) => self.start(before, &observation, answers),
            Input::Scanned => self.scanned(answers),
            Input::Probe { name, state } => {
                self.node.probe(&name, &state);
                self.subjects.probe(name, state);
            }
            Input::Lost {
                kind,
                scope,
                since,
                count,
            } => self.lost(kind, scope, since, count),
            Input::Clock(offset) => self.clock(offset),
            Input::ApiClock(clock) => {
                self.node.api_clock(clock);
                self.pods.api_clock(clock);
            }
            Input::Pods(state) => self.pods_state(state, &mut from_pods, answers),
            Input::Pod(fact) => self.pod(fact, &mut from_pods, answers),
            Input::PodGone(gone) => {
                if let Some(previous) = &mut self.previous {
                    previous.gone(now, &gone, &mut answers.reports);
                }
                self.pods.gone(now, gone, &mut from_pods);
            }
            Input::PodEvent(event) => self.pods.event(now, event),
            Input::PodEvents(events) => self.pods.events(now, events),
            Input::Node(event) => {
                if matches!(event, NodeEvent::AgentEnds { .. }) && self.node.is_open() {
                    self.show_pods();
                    self.node.unsettled(self.pods.has_held());
                }
                self.of_node(answers, |node, out| node.event(now, event, out));
            }
            Input::Tick => self.report_drops(&mut answers.reports),
            Input::End | Input::Cut => {
                if input_is_cut {
                    self.subjects.cut(now);
                }
                self.end(Open::ObservationEnded, answers);
                self.of_node(answers, |node, out| node.end(now, out));
                self.report_drops(&mut answers.reports);
                return;
            }
        }
        self.follow(from_pods, answers);
        self.subjects_due(assembled, answers);
        self.expire(answers);
        self.others_due(until.min(self.observed.plus(BEHIND)), answers);
    }

    fn lost(&mut self, kind: Kind, scope: LossScope, since: Boot, count: u64) {
        let now = self.now;
        if let LossScope::ConnectsTo(hash) = scope {
            return self.subjects.lost_connects(now, hash, since);
        }
        let Some(place) = LossPlace::of(scope, self.attribution.index()) else {
            return;
        };
        let (why, most) = match scope {
            LossScope::Damaged => (Origin::Damaged, 1),
            LossScope::NotRecorded => (Origin::NotRecorded, 1),
            _ => (Origin::Lost, count),
        };
        if why != Origin::Lost {
            self.pods.part_missing(since, now, why == Origin::Damaged);
            self.node.part_missing(now);
        }
        let whose = match scope {
            LossScope::Others(_) => Whose::Others,
            _ => Whose::Any,
        };
        let within = match scope {
            LossScope::Within(cgroup) | LossScope::Others(cgroup) => Some(self.attribution.index().attribute_within(cgroup)),
            _ => None,
        };
        if why == Origin::Lost {
            self.node.lost_begins(kind, within.as_ref());
        }
        self.node.lost_records(kind, whose, within.as_ref());
        let since = match scope {
            // Of the records in the missing part one may be older than the last one before it.
            LossScope::Damaged => since.minus(self.limits.reorder),
            _ => since,
        };
        let hole = Hole::of(why, kind, since, now, most);
        self.subjects.lost(Hole { whose, ..hole }, place);
    }

    fn clock(&mut self, offset: WallOffset) {
        self.node.clock(offset);
        if let Some(previous) = &mut self.previous {
            previous.clock(offset);
        }
        self.pods.clock(self.now, offset);
        self.subjects.clock(self.now, offset);
    }

    fn pods_state(&mut self, state: PodsState, from_pods: &mut FromPods, answers: &mut Answers) {
        let now = self.now;
        self.node.pods_state(now, &state);
        if let Some(previous) = &mut self.previous {
            previous.state(now, &state, &mut answers.reports);
        }
        if state == PodsState::Synced {
            self.pods.relisted(now, from_pods);
        }
        if self.pods.state(now, state) {
            self.events = self.subjects.containers(now);
            self.became(answers);
        }
    }

    fn pod(&mut self, fact: Arc<PodFact>, from_pods: &mut FromPods, answers: &mut Answers) {
        let now = self.now;
        self.node.pod(now, &fact);
        let uid = fact.pod.uid.clone();
        if let Some(previous) = &mut self.previous {
            previous.pod(now, &fact, &mut answers.reports);
        }
        self.pods.pod(now, fact, from_pods);
        // Without the part that is missing, a state comes first.
        if self.pods.may_lack_pods() && self.pods.begins() {
            self.events = self.subjects.containers(now);
            self.became(answers);
        }
        if self.node.is_open()
            && self.scan.is_none()
            && let Some(running) = self.pods.running_pod(&uid)
        {
            self.node.saw_pod(running);
        }
    }

    /// Lets the node's machine take something. Of a shutdown that begins, the pods that run are a fact.
    fn of_node(&mut self, answers: &mut Answers, take: impl FnOnce(&mut NodeMachine, &mut FromNode)) {
        let mut out = FromNode::default();
        take(&mut self.node, &mut out);
        if self.node.wants_pods() {
            self.show_pods();
        }
        answers.reports.extend(out.reports);
    }

    fn show_pods(&mut self) {
        let begun = self.node.begun().filter(|_| self.reads_journal);
        let are_shown = begun.is_some_and(|begun| self.pods.hidden_until() < begun);
        let all = self.unknown_pods().next().is_none() && (are_shown || !self.pods.may_lack_pods());
        let running = self.running_pods();
        if self.reads_journal {
            self.node.pods_are_listed();
        }
        self.node.pods(running, all);
    }

    /// Attributed evidence → subjects.
    fn attribute<T>(&mut self, answers: &mut Answers, attribute: impl FnOnce(&mut Attributor, &mut Taker<'_>) -> T) -> T {
        let (now, subjects, events) = (self.now, &mut self.subjects, &mut self.events);
        let of = attribute(&mut self.attribution, &mut |found| subjects.take(now, found, events));
        self.became(answers);
        of
    }

    /// Only a kubelet makes the cgroups of pods.
    fn cgroup_seen(&mut self, cgroup: CgroupId) {
        let place = self.attribution.index().attribute_cgroup(cgroup);
        if let Attribution::Subject(Subject::Container { pod: Some(_), .. }, _) = place {
            self.node.pods_cgroup_seen(cgroup);
        }
    }

    fn subjects_due(&mut self, until: Boot, answers: &mut Answers) {
        let events = &mut self.events;
        self.subjects.run_timers(self.now, until, &self.attribution, events);
        self.became(answers);
    }

    /// What waits, or is kept, no longer.
    fn expire(&mut self, answers: &mut Answers) {
        self.containers.expire(self.now);
        let now = self.now;
        self.attribute(answers, |attribution, take| attribution.expire(now, take));
    }

    /// Subject events → pods.
    #[inline]
    fn became(&mut self, answers: &mut Answers) {
        if !self.events.is_empty() {
            self.take_events(answers);
        }
    }

    fn take_events(&mut self, answers: &mut Answers) {
        let mut from_pods = FromPods::default();
        let mut swept = None;
        for mut event in self.events.drain(..) {
            // Nearly all: only the pods take them.
            if let SubjectEvent::CameIn { .. } | SubjectEvent::Exited { .. } = event {
                self.pods.take(self.now, event, &mut from_pods);
                continue;
            }
            self.containers.describe(self.now, &mut event);
            if event.reported_unit().is_some_and(|name| !self.units.has(name)) {
                self.pods.opt_out(&event);
                continue;
            }
            if let SubjectEvent::Seen {
                own,
                subject: Subject::Container { id, .. },
                ..
            } = &event
                && let Some(signal) = self.containers.get(id).and_then(|of| of.stop_signal)
            {
                self.subjects.has_described_stop(*own, signal);
            }
            match &mut event {
                SubjectEvent::Seen {
                    subject: Subject::Container { pod: Some(_), id, .. },
                    ..
                } => self.node.pod_seen(id),
                SubjectEvent::StopSent { at, own, by_init } => {
                    self.node.stop_sent(*at, *own);
                    swept = by_init
                        .take()
                        .and_then(|subject| self.node.stopped_by_init(*at, *own, &subject))
                        .or(swept);
                }
                SubjectEvent::Ended(facts) => self.node.ended(facts),
                _ => {}
            }
            match event {
                SubjectEvent::Watched(cgroup) => answers.commands.push(Command::Watch(cgroup)),
                SubjectEvent::Unwatched(cgroup) => answers.commands.push(Command::Forget(cgroup)),
                event => self.pods.take(self.now, event, &mut from_pods),
            }
        }
        self.events.shrink_to(KEPT);
        if let Some(since) = swept {
            self.of_node(answers, |node, out| node.swept(since, out));
        }
        self.follow(from_pods, answers);
    }

    #[inline]
    fn others_due(&mut self, until: Boot, answers: &mut Answers) {
        self.pods_due(until, answers);
        if self.node.is_waiting() {
            self.of_node(answers, |node, out| node.run_timers(until, out));
        }
        if let Some(previous) = self.previous.take_if(|previous| previous.is_over(until)) {
            previous.end(until, &mut answers.reports);
        }
    }

    #[inline]
    fn pods_due(&mut self, until: Boot, answers: &mut Answers) {
        if self.pods.is_due(until) {
            self.run_pods(until, answers);
        }
    }

    fn run_pods(&mut self, until: Boot, answers: &mut Answers) {
        let mut from_pods = FromPods::default();
        self.pods.run_timers(until, &self.boot_id, &mut from_pods);
        self.follow(from_pods, answers);
    }

    /// Effects of the pods → reports and commands.
    fn follow(&mut self, from_pods: FromPods, answers: &mut Answers) {
        // Nearly always, and several times for each kernel record.
        if from_pods.is_empty() {
            return;
        }
        let FromPods {
            reports,
            requested,
            own_stops,
            overdue,
            events,
        } = from_pods;
        for (own, signal) in own_stops {
            self.subjects.has_own_stop(own, signal);
        }
        if self.node.is_open() {
            for report in &reports {
                match report {
                    Report::Terminated(of) => self.node.judged(of),
                    Report::PodTerminated(of) => of.containers.iter().for_each(|of| self.node.judged(of)),
                    _ => {}
                }
            }
        }
        answers.reports.extend(reports);
        answers.commands.extend(events.into_iter().map(Command::ListEvents));
        for own in requested {
            let sockets = self.subjects.deletion_requested(self.now, own);
            self.subjects.serves(self.now, &self.pods.addresses(own));
            answers.commands.extend(sockets.into_iter().map(Command::Watch));
        }
        // At a node's shutdown they end with the node.
        let overdue = overdue.into_iter().filter(|_| !self.node.is_shutting_down());
        for own in overdue {
            let mut facts = self.subjects.facts_so_far(self.now, own, &self.attribution);
            if let Some(facts) = &mut facts {
                facts.container = self.containers.description(&facts.subject);
            }
            let stuck = facts.and_then(|facts| self.pods.stuck(self.now, facts));
            answers.reports.extend(stuck.map(|stuck| Report::Stuck(Box::new(stuck))));
        }
    }

    /// All that is kept, in pieces of bounded size.
    #[cfg(test)]
    fn kept(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |previous| previous.kept());
        self.attribution.kept() + self.subjects.kept() + self.pods.kept() + self.containers.kept() + self.node.kept() + previous
    }
}
