//! The core: a pure state machine per termination.
//!
//! Facts are collected per subject in whatever order they come; each carries the kernel's own time. A death is judged once,
//! a while after the main process's end, by a pure function of the facts in the order of their times: any order of arrival
//! within that while gives the verdict of the true order.
//!
//! *Architecture invariant*: no clock, no I/O, bounded memory. An event costs a few hash look-ups, however many subjects live.

mod finish;
mod role;
mod sight;
mod subject;
mod timeline;
mod traffic;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::attribute::{Attribution, Index, Question, Subject};
use crate::event::{
    Boot, CgroupFact, CgroupId, Event, Input, Observation, OomVictim, Pid, ProcessExec, ProcessFact, Signal, SignalGenerate,
    SignalResult, Task, Tcp, si_code,
};
use crate::termination::{DropReason, OomKill, Output, Role, StopSignalIgnored, TerminationKey};
use crate::verdict;
use crate::verdict::judge::Open;

use finish::Context;
use sight::Sight;
use subject::{Candidate, ProcessId, State};
use timeline::{OomFact, RUN_GAP, SignalFact, is_request};

/// Bounds of memory and of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Subjects known at once.
    pub subjects: usize,
    /// Subjects with facts of a coming death at once.
    pub timelines: usize,
    /// Facts of each sort (signals, handler entries, OOM victims, exits) per timeline.
    pub facts: usize,
    /// Connections per timeline.
    pub connections: usize,
    /// Events that wait for their cgroup's name.
    pub pending: usize,
    /// Living cgroups and processes in the index (each), and dead ones.
    pub index_live: usize,
    pub index_dead: usize,
    /// How late an event may arrive behind a later one.
    pub reorder: Duration,
    /// How long after its end a death still gathers evidence. Not shorter than `reorder`.
    pub linger: Duration,
    /// Facts this old that came to nothing are forgotten.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            subjects: 65_536,
            timelines: 4_096,
            facts: 256,
            connections: 4_096,
            pending: 1_024,
            index_live: 65_536,
            index_dead: 8_192,
            reorder: Duration::from_millis(200),
            linger: Duration::from_secs(2),
            idle: Duration::from_secs(3_600),
        }
    }
}

/// A timeline's place in the order of idleness is renewed at most this often.
const TOUCH: Duration = Duration::from_secs(1);
/// SIGKILLs of the kernel's remembered for OOM victims of which only the pid is told.
const KERNEL_KILLS: usize = 64;
/// Subjects that are over, remembered for this long: a little longer than the index answers for their cgroups.
const KEEP_GONE: Duration = Duration::from_secs(150);
const GONE: usize = 1_024;

/// See the module.
pub struct Correlator {
    limits: Limits,
    index: Index,
    sight: Sight,
    now: Boot,
    boot_id: String,
    subjects: HashMap<CgroupId, State>,
    /// When which subject must be looked at.
    due: BTreeSet<(Boot, CgroupId)>,
    /// Subjects with a timeline, the longest idle first.
    touched: BTreeSet<(Boot, CgroupId)>,
    pending: VecDeque<(Boot, Boot, Event)>,
    kernel_kills: VecDeque<Task>,
    /// Subjects that are over: their late events (a client that goes on trying) begin nothing new.
    gone: VecDeque<(Boot, CgroupId)>,
    swept: Boot,
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
            subjects: HashMap::new(),
            due: BTreeSet::new(),
            touched: BTreeSet::new(),
            pending: VecDeque::new(),
            kernel_kills: VecDeque::new(),
            gone: VecDeque::new(),
            swept: Boot(0),
            drops: Drops::default(),
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
        match input {
            Input::Kernel { at, event } => self.event(at, event, &mut out),
            Input::Start(observation) => self.start(observation, &mut out),
            Input::Probe { name, state } => self.sight.probe(name, state),
            Input::Cgroup(fact) => self.cgroup(&fact, &mut out),
            Input::Process(fact) => self.process(&fact, &mut out),
            Input::Lost { kind, since, count } => self.sight.lost(kind, since, self.now, count),
            Input::Clock(_) => {}
            Input::Tick => self.report_drops(&mut out),
            Input::End => {
                self.end(&mut out);
                self.report_drops(&mut out);
            }
        }
        self.run_timers(&mut out);
        out
    }

    /// Whose is what, as far as it was told.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Live subjects, and those of them with a timeline.
    pub fn sizes(&self) -> (usize, usize) {
        (self.subjects.len(), self.touched.len())
    }

    fn start(&mut self, observation: Observation, out: &mut Vec<Output>) {
        if !self.boot_id.is_empty() && self.boot_id != observation.boot_id {
            // Another boot: its clock begins again, and nothing of the old one lives.
            self.end(out);
            let drops = std::mem::take(&mut self.drops);
            *self = Correlator {
                drops,
                ..Correlator::new(self.limits)
            };
        }
        self.index.start(observation.hybrid);
        self.sight.start(self.now, observation.since);
        self.now = self.now.max(observation.since);
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
                if let Attribution::Subject(subject, own) = self.index.attribute_cgroup(removed.cgroup)
                    && own == removed.cgroup
                {
                    self.know(own, subject);
                }
                self.index.remove(self.now, removed.cgroup);
                if let Some(state) = self.subjects.get_mut(&removed.cgroup) {
                    state.removed = Some(at);
                    self.reschedule(removed.cgroup);
                }
            }
            _ => {
                if !self.fact(at, &event, out) {
                    self.wait(at, event);
                }
            }
        }
    }

    /// False where the event's cgroup is not known (yet).
    fn fact(&mut self, at: Boot, event: &Event, out: &mut Vec<Output>) -> bool {
        let place = match event {
            Event::SignalGenerate(signal) => self.index.attribute(&signal.target),
            Event::SignalDeliver(deliver) => self.index.attribute(&deliver.task),
            Event::ProcessExit(exit) => self.index.attribute(&exit.task),
            Event::ProcessExec(exec) => self.index.attribute(&exec.task),
            Event::OomVictim(oom) => self.oom_place(oom),
            Event::Tcp(tcp) => match tcp.cgroup {
                Some(cgroup) => self.index.attribute_cgroup(cgroup),
                None => return false,
            },
            Event::CgroupMkdir(_) | Event::CgroupRmdir(_) => return true,
        };
        let (subject, own) = match place {
            Attribution::Subject(subject, own) => (subject, own),
            Attribution::Host => return true,
            Attribution::Unknown(_) => return false,
        };
        if !self.know(own, subject) {
            return true;
        }
        match event {
            Event::SignalGenerate(signal) => self.signal(at, own, signal, out),
            Event::SignalDeliver(deliver) => {
                let cap = self.limits.facts;
                self.keep(own, |state| {
                    let over = state.is_over(&deliver.task) || !state.concerns(&deliver.task);
                    over || state.timeline().deliver(at, *deliver, cap)
                });
            }
            Event::ProcessExit(exit) => {
                let cap = self.limits.facts;
                if let Some(state) = self.subjects.get_mut(&own) {
                    state.ended(at, exit, cap);
                }
                self.reschedule(own);
            }
            Event::ProcessExec(exec) => self.exec(at, own, exec),
            Event::OomVictim(oom) => self.oom(at, own, oom),
            Event::Tcp(tcp) => self.tcp(at, own, tcp),
            Event::CgroupMkdir(_) | Event::CgroupRmdir(_) => {}
        }
        true
    }

    /// Makes room for a subject. False where it is over, or where there is no room.
    fn know(&mut self, own: CgroupId, subject: Subject) -> bool {
        if self.subjects.contains_key(&own) {
            return true;
        }
        if self.gone.iter().any(|(_, gone)| *gone == own) {
            return false;
        }
        if self.subjects.len() >= self.limits.subjects {
            // A removal that was lost leaves a subject behind of which nothing is known.
            if self.now.since(self.swept) >= TOUCH {
                self.swept = self.now;
                self.subjects
                    .retain(|_, state| state.timeline.is_some() || state.due.is_some() || !state.candidates.is_empty());
            }
            if self.subjects.len() >= self.limits.subjects {
                self.drops.timelines += 1;
                return false;
            }
        }
        self.subjects.insert(own, State::new(subject, own));
        true
    }

    fn signal(&mut self, at: Boot, own: CgroupId, signal: &SignalGenerate, out: &mut Vec<Output>) {
        if signal.signal == Signal::KILL && signal.code == si_code::KERNEL {
            self.kernel_kills.push_back(signal.target);
            if self.kernel_kills.len() > KERNEL_KILLS {
                self.kernel_kills.pop_front();
            }
            self.retry(
                |event| matches!(event, Event::OomVictim(oom) if oom.victim == signal.target.tgid),
                out,
            );
        }
        let Some(state) = self.subjects.get_mut(&own) else { return };
        let target = &signal.target;
        if state.is_over(target) || matches!(signal.signal.number(), 18 | 19) {
            return;
        }
        if target.is_ns_init() {
            state.learn(Candidate::of(target, at, false));
        }
        if !state.concerns(target) {
            return;
        }
        let candidate = state.candidates.iter_mut().find(|candidate| candidate.id.is(target));
        let essential = candidate.is_some();
        if let Some(candidate) = candidate {
            candidate.named(target.comm, at);
        }
        let essential = essential || state.candidates.is_empty();
        state.arm(target.cgroup);
        let fact = SignalFact {
            at,
            last: at,
            count: 1,
            sender: role::sender(&self.index, own, signal),
            signal: *signal,
        };
        self.warn(own, &fact, out);
        let cap = self.limits.facts;
        self.keep(own, |state| state.timeline().signal(fact, essential, cap));
    }

    /// Says at once that the kernel dropped a stop signal: once for each time that somebody asks.
    fn warn(&mut self, own: CgroupId, fact: &SignalFact, out: &mut Vec<Output>) {
        let signal = &fact.signal;
        let asked = match fact.sender.role {
            Role::Runtime => fact.is_stop() && is_deadly(signal.signal),
            Role::Other => is_request(signal.signal),
            Role::Itself | Role::Inside | Role::Kernel => false,
        };
        if signal.result != SignalResult::Ignored || !asked {
            return;
        }
        let Some(state) = self.subjects.get_mut(&own) else { return };
        let main = state.main();
        if main.is_some_and(|main| !main.id.is(&signal.target)) || main.is_none() && fact.sender.role != Role::Runtime {
            return;
        }
        let id = ProcessId::of(&signal.target);
        if let Some((warned, when)) = state.warned
            && warned.same(&id)
            && fact.at.0.abs_diff(when.0) <= RUN_GAP.as_nanos() as u64
        {
            return;
        }
        state.warned = Some((id, fact.at));
        let process = main.map_or_else(
            || Candidate::of(&signal.target, fact.at, false).process(),
            |main| main.process(),
        );
        let sentence = verdict::ignored(Some(&process), signal.signal, signal.disposition);
        out.push(Output::Early(Box::new(StopSignalIgnored {
            key: TerminationKey {
                boot_id: self.boot_id.clone(),
                cgroup: own,
                main_start: process.start,
            },
            subject: state.subject.clone(),
            main: Some(process),
            at: fact.at,
            signal: signal.signal,
            sender: fact.sender.clone(),
            disposition: signal.disposition,
            grace_left: None,
            sentence,
        })));
    }

    fn exec(&mut self, at: Boot, own: CgroupId, exec: &ProcessExec) {
        let parent = self.index.attribute_parent(exec);
        let outside = !matches!(parent, Attribution::Subject(_, theirs) if theirs == own);
        let Some(state) = self.subjects.get_mut(&own) else { return };
        let known = state.candidates.iter_mut().find(|candidate| candidate.id.is(&exec.task));
        if let Some(known) = known {
            known.outside |= outside;
            known.named(exec.task.comm, at);
        } else if outside || exec.task.is_ns_init() {
            state.learn(Candidate::of(&exec.task, at, outside));
        }
        self.reschedule(own);
    }

    fn oom(&mut self, at: Boot, own: CgroupId, oom: &OomVictim) {
        let task = oom.task.or_else(|| self.kernel_kill(oom.victim));
        let Some(task) = task else { return };
        let cap = self.limits.facts;
        let fact = OomFact {
            at,
            victim: ProcessId::of(&task),
            comm: task.comm,
            told: false,
        };
        self.keep(own, |state| state.is_over(&task) || state.timeline().oom(fact, cap));
    }

    fn tcp(&mut self, at: Boot, own: CgroupId, tcp: &Tcp) {
        let cap = self.limits.connections;
        self.keep(own, |state| {
            if let Some(cgroup) = tcp.cgroup {
                state.arm(cgroup);
            }
            let over = state.finished.is_some() && state.candidates.is_empty();
            over || state.timeline().sockets.add(at, tcp, cap)
        });
    }

    fn oom_place(&self, oom: &OomVictim) -> Attribution {
        match oom.task.or_else(|| self.kernel_kill(oom.victim)) {
            Some(task) => self.index.attribute(&task),
            None => self.index.attribute_process(oom.victim),
        }
    }

    fn kernel_kill(&self, victim: Pid) -> Option<Task> {
        self.kernel_kills.iter().rev().find(|task| task.tgid == victim).copied()
    }

    fn cgroup(&mut self, fact: &CgroupFact, out: &mut Vec<Output>) {
        self.index.insert(self.now, fact);
        let cgroup = fact.cgroup;
        self.retry(|event| cgroup_of(event) == Some(cgroup), out);
    }

    fn process(&mut self, fact: &ProcessFact, out: &mut Vec<Output>) {
        self.index.process(self.now, fact);
        let places = fact.cgroups.iter().map(|(cgroup, _)| self.index.attribute_cgroup(*cgroup));
        let subject = places.filter_map(|place| match place {
            Attribution::Subject(subject, own) => Some((subject, own)),
            Attribution::Host | Attribution::Unknown(_) => None,
        });
        let is_container = |subject: &Subject| matches!(subject, Subject::Container { .. });
        let found = subject.max_by_key(|(subject, own)| (is_container(subject), std::cmp::Reverse(own.hierarchy)));
        if let Some((subject, own)) = found
            && self.know(own, subject)
        {
            if let Some(state) = self.subjects.get_mut(&own) {
                state.learn(Candidate::of_fact(fact));
            }
            self.reschedule(own);
        }
        let tgid = fact.tgid;
        self.retry(|event| task_of(event).is_some_and(|task| task.tgid == tgid), out);
    }

    /// Adds a fact to a subject's timeline, and puts the subject where it now belongs among the timers.
    fn keep(&mut self, own: CgroupId, add: impl FnOnce(&mut State) -> bool) {
        let Some(state) = self.subjects.get_mut(&own) else { return };
        self.drops.facts += u64::from(!add(state));
        let now = self.now;
        if state.timeline.is_some() && state.touched.is_none_or(|touched| now.since(touched) >= TOUCH) {
            if let Some(touched) = state.touched.replace(now) {
                self.touched.remove(&(touched, own));
            }
            self.touched.insert((now, own));
        }
        self.reschedule(own);
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

    fn reschedule(&mut self, own: CgroupId) {
        let Some(state) = self.subjects.get_mut(&own) else { return };
        let due = next_due(state, &self.limits);
        if state.due == due {
            return;
        }
        if let Some(old) = state.due {
            self.due.remove(&(old, own));
        }
        if let Some(due) = due {
            self.due.insert((due, own));
        }
        state.due = due;
    }

    fn run_timers(&mut self, out: &mut Vec<Output>) {
        while let Some(&(due, own)) = self.due.first() {
            if due > self.now {
                break;
            }
            self.fire(own, out);
        }
        while let Some(&(touched, own)) = self.touched.first() {
            if touched.plus(self.limits.idle) > self.now {
                break;
            }
            self.expire(touched, own);
        }
        while self.touched.len() > self.limits.timelines {
            let Some(&(_, own)) = self.touched.first() else { break };
            self.drops.timelines += 1;
            self.finish(own, Open::TimelineCap, out);
        }
        while self.pending.front().is_some_and(|(deadline, ..)| *deadline <= self.now) {
            self.pending.pop_front();
            self.drops.unattributed += 1;
        }
    }

    /// A subject's time has come: a child's OOM kill to be told, or its end to be judged.
    fn fire(&mut self, own: CgroupId, out: &mut Vec<Output>) {
        let Some(state) = self.subjects.get_mut(&own) else {
            self.due.retain(|(_, known)| *known != own);
            return;
        };
        tell_ooms(state, self.now, &self.limits, out);
        if end_due(state, &self.limits).is_some_and(|due| due <= self.now) {
            self.finish(own, Open::CgroupRemoved, out);
        } else {
            self.reschedule(own);
        }
    }

    /// Judges a subject's death and begins its next life, if it has one.
    fn finish(&mut self, own: CgroupId, open: Open, out: &mut Vec<Output>) {
        let Some(mut state) = self.subjects.remove(&own) else { return };
        self.unlist(own, &mut state);
        let context = Context {
            boot_id: &self.boot_id,
            index: &self.index,
            sight: &self.sight,
            linger: self.limits.linger,
        };
        if let Some(termination) = finish::termination(&context, own, &state, open, self.now) {
            out.push(Output::Terminated(Box::new(termination)));
            out.extend(state.cgroups.iter().copied().map(Output::Forget));
        }
        let end = state.main().and_then(|main| main.exit_at());
        match (open, end) {
            (Open::ObservationEnded, _) => {}
            (_, Some(end)) => {
                self.begin_again(own, state, end);
            }
            // Removed without an end of its own: nothing can come of it any more.
            (Open::CgroupRemoved, None) => self.forget(own),
            (Open::TimelineCap, None) => {
                state.timeline = None;
                self.subjects.insert(own, state);
                self.reschedule(own);
            }
        }
    }

    /// Keeps what belongs to the next life of the subject: what happened to processes that began after the end.
    fn begin_again(&mut self, own: CgroupId, mut state: State, end: Boot) {
        let main = state.main().map(|main| main.id);
        state.candidates.retain(|candidate| candidate.id.start > end);
        state.exits.retain(|(_, exit)| exit.task.start > end);
        state.exits_dropped = 0;
        state.finished = main.map(|id| (id, end));
        state.cgroups = vec![own];
        let next = state.candidates.iter().map(|candidate| candidate.id.start).min();
        if let Some(mut timeline) = state.timeline.take() {
            timeline.signals.retain(|fact| fact.signal.target.start > end);
            timeline.delivers.retain(|(_, deliver)| deliver.task.start > end);
            timeline.ooms.retain(|fact| fact.victim.start > end);
            match next {
                Some(next) => timeline.sockets.expire(next),
                None => timeline.sockets = traffic::Sockets::default(),
            }
            (timeline.over_cap, timeline.over_cap_matters) = (0, false);
            if !timeline.is_empty() {
                state.timeline = Some(timeline);
            }
        }
        // A removed cgroup stays for its late events, until the index forgets it: then nothing can be attributed to it.
        let over = state
            .removed
            .is_some_and(|removed| removed.plus(self.limits.linger) <= self.now);
        if over && state.candidates.is_empty() && state.timeline.is_none() {
            return self.forget(own);
        }
        if state.timeline.is_some() {
            state.touched = Some(self.now);
            self.touched.insert((self.now, own));
        }
        self.subjects.insert(own, state);
        self.reschedule(own);
    }

    fn forget(&mut self, own: CgroupId) {
        self.gone.push_back((self.now, own));
        while self.gone.len() > GONE || self.gone.front().is_some_and(|(at, _)| at.plus(KEEP_GONE) <= self.now) {
            self.gone.pop_front();
        }
    }

    fn unlist(&mut self, own: CgroupId, state: &mut State) {
        if let Some(due) = state.due.take() {
            self.due.remove(&(due, own));
        }
        if let Some(touched) = state.touched.take() {
            self.touched.remove(&(touched, own));
        }
    }

    /// Nothing happened for long: the facts came to nothing.
    fn expire(&mut self, touched: Boot, own: CgroupId) {
        self.touched.remove(&(touched, own));
        let before = self.now.minus(self.limits.idle);
        let Some(state) = self.subjects.get_mut(&own) else { return };
        state.touched = None;
        if let Some(timeline) = &mut state.timeline {
            timeline.expire(before);
            if timeline.is_empty() {
                state.timeline = None;
            }
        }
        self.reschedule(own);
    }

    /// No more input: what has ended is judged, what was being stopped is told as unknown.
    fn end(&mut self, out: &mut Vec<Output>) {
        let mut all: Vec<(Boot, CgroupId)> = self
            .subjects
            .iter()
            .map(|(own, state)| (state.due.unwrap_or(Boot(u64::MAX)), *own))
            .collect();
        all.sort_unstable();
        for (_, own) in all {
            // Several lives may have ended.
            while self
                .subjects
                .get(&own)
                .is_some_and(|state| end_due(state, &self.limits).is_some())
            {
                self.finish(own, Open::CgroupRemoved, out);
            }
            self.finish(own, Open::ObservationEnded, out);
        }
        self.drops.unattributed += self.pending.len() as u64;
        self.pending.clear();
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
    }
}

fn next_due(state: &State, limits: &Limits) -> Option<Boot> {
    let oom = state.timeline.as_deref().and_then(|timeline| {
        let untold = timeline.ooms.iter().filter(|fact| !fact.told);
        untold.map(|fact| fact.at.plus(limits.reorder)).min()
    });
    match (end_due(state, limits), oom) {
        (Some(end), Some(oom)) => Some(end.min(oom)),
        (end, oom) => end.or(oom),
    }
}

fn end_due(state: &State, limits: &Limits) -> Option<Boot> {
    let exit = state.main().and_then(|main| main.exit_at()).map(|at| at.plus(limits.linger));
    exit.or_else(|| state.removed.map(|at| at.plus(limits.reorder.max(limits.linger))))
}

/// A child's OOM kill is news of its own where the main process lives on.
fn tell_ooms(state: &mut State, now: Boot, limits: &Limits, out: &mut Vec<Output>) {
    let main = state.main();
    let lives = main.is_some_and(|main| main.exit.is_none()) && state.removed.is_none();
    let Some(timeline) = &mut state.timeline else { return };
    let is_main = |victim: &ProcessId| main.is_some_and(|main| main.id.same(victim));
    let main_dies = timeline.ooms.iter().any(|fact| is_main(&fact.victim));
    for fact in timeline
        .ooms
        .iter_mut()
        .filter(|fact| !fact.told && fact.at.plus(limits.reorder) <= now)
    {
        fact.told = true;
        if lives && !main_dies {
            out.push(Output::ChildOomKilled {
                subject: state.subject.clone(),
                oom: OomKill {
                    at: fact.at,
                    tgid: fact.victim.tgid,
                    comm: fact.comm,
                    is_main: false,
                },
            });
        }
    }
}

fn task_of(event: &Event) -> Option<&Task> {
    match event {
        Event::SignalGenerate(signal) => Some(&signal.target),
        Event::SignalDeliver(deliver) => Some(&deliver.task),
        Event::ProcessExit(exit) => Some(&exit.task),
        Event::ProcessExec(exec) => Some(&exec.task),
        Event::OomVictim(oom) => oom.task.as_ref(),
        Event::CgroupMkdir(_) | Event::CgroupRmdir(_) | Event::Tcp(_) => None,
    }
}

fn cgroup_of(event: &Event) -> Option<CgroupId> {
    match event {
        Event::Tcp(tcp) => tcp.cgroup,
        event => task_of(event).map(|task| task.cgroup),
    }
}

/// Ends a process that has no handler; what is ignored by default is no loss.
fn is_deadly(signal: Signal) -> bool {
    !matches!(signal.number(), 17 | 18 | 19 | 20 | 21 | 22 | 23 | 28)
}
