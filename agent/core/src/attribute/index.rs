//! The index: cgroup id → subject, for the living and for a while the dead.
//!
//! *Architecture invariant*: pure and bounded. What it does not know it asks for ([`Index::questions`]); what it has been
//! told once it does not ask again; what it cannot know is `Unknown(reason)`, never the parent, never the root.
//!
//! On a hybrid machine (cgroup v1 alongside v2) the v2 id that the kernel gives for a process may be the root, or the unit of
//! the runtime that started it. There the record's second id decides, of v1, and where neither is a container's
//! `/proc/PID/cgroup`: see [`Index::attribute`]. So that does on a machine with v1 alone, where the kernel gives the id in one
//! of its hierarchies: what that does not tell apart another one may.

use super::cgroups::{Cgroup, Cgroups};
use super::path::{self, Place};
use super::processes::Processes;
use super::{Attribution, Subject, UnknownCgroup};
use crate::event::{Event, ProcessExec, Task};
use crate::ids::{CgroupId, Pid};
use crate::input::{CgroupFact, CgroupMode, ProcessFact};
use crate::time::Boot;

/// What `/proc` or the cgroup file system must say before an event can be attributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The path of a cgroup.
    Cgroup(CgroupId),
    /// The cgroups of a process.
    Process(Pid),
}

/// The kernel gives the root of a hierarchy inode 1; a scan that sees another one says so.
const ROOT: u64 = 1;

/// See the module.
pub struct Index {
    machine: CgroupMode,
    /// Of the hierarchy that kernel records name.
    root: CgroupId,
    /// Proven: some containers' processes are known by another hierarchy only, so that a unit may be their runtime's.
    split: bool,
    cgroups: Cgroups,
    processes: Processes,
}

impl Index {
    /// `max_live` bounds the living cgroups and the known processes (each), `max_dead` the dead ones and the ids that turned
    /// out to be gone.
    pub fn new(max_live: usize, max_dead: usize) -> Index {
        let (cgroups, processes) = (Cgroups::new(max_live, max_dead), Processes::new(max_live));
        Index {
            machine: CgroupMode::V2,
            root: CgroupId::v2(ROOT),
            split: false,
            cgroups,
            processes,
        }
    }

    /// Begins (or, after a gap, begins again): what was known stays true, cgroup ids are not reused within a boot.
    pub fn start(&mut self, machine: CgroupMode) {
        if machine.hierarchy() != self.root.hierarchy {
            self.root = CgroupId {
                hierarchy: machine.hierarchy(),
                id: ROOT,
            };
        }
        self.machine = machine;
    }

    /// Which hierarchies there are.
    pub fn machine(&self) -> CgroupMode {
        self.machine
    }

    /// Whose process it is.
    ///
    /// By the ids in the record. Where there is v1 they are enough only where one names a container: else the process's own facts
    /// decide, and without them the unit that an id names, unless containers have been seen that no id of v2 knows and the
    /// record has no other.
    pub fn attribute(&self, task: &Task) -> Attribution {
        let by_ids = self.by_ids(task.cgroup, task.v1_cgroup, task.container);
        if self.is_final(task.cgroup, &by_ids) {
            return by_ids;
        }
        self.refine(by_ids, task.v1_cgroup, self.processes.of(task))
    }

    /// Whose parent it was that executed (`task.ppid`): differs from the task's where the process came in from outside.
    pub fn attribute_parent(&self, exec: &ProcessExec) -> Attribution {
        let by_ids = self.by_ids(exec.parent_cgroup, exec.parent_v1_cgroup, exec.parent_container);
        if self.is_final(exec.parent_cgroup, &by_ids) {
            return by_ids;
        }
        self.refine(by_ids, exec.parent_v1_cgroup, self.processes.latest(exec.task.ppid))
    }

    /// Whose process it is, where the kernel gave nothing but a process id: its latest holder's.
    pub fn attribute_process(&self, tgid: Pid) -> Attribution {
        self.processes
            .latest(tgid)
            .cloned()
            .unwrap_or(Attribution::Unknown(UnknownCgroup::ProcessGone))
    }

    /// As [`Index::attribute`]. A process that was gone before it was read, on a machine with v1, is in its
    /// parent's container, but only where they share a depth of pid namespaces: the first process of a container in a container
    /// is its runtime's child.
    pub fn attribute_descendant(&self, task: &Task) -> Attribution {
        match (self.attribute(task), self.processes.parent(task)) {
            (Attribution::Unknown(UnknownCgroup::ProcessGone), Some(parent)) if is_container(parent) => parent.clone(),
            (place, _) => place,
        }
    }

    /// Whose cgroup it is. Where there is v1 the root says nothing.
    pub fn attribute_cgroup(&self, cgroup: CgroupId) -> Attribution {
        if !cgroup.is_known() || (self.machine.has_v1() && cgroup == self.root) {
            return Attribution::Unknown(UnknownCgroup::NoId);
        }
        match self.cgroups.get(cgroup) {
            Some(entry) => entry.place.clone(),
            None if cgroup == self.root => Attribution::Host,
            None => Attribution::Unknown(UnknownCgroup::NeverSeen),
        }
    }

    /// Whose cgroup it is, and where that is not known, whose container it counts for by the kernel's word. That comes second: of
    /// containers in a container, the path names the inner one.
    pub fn attribute_within(&self, cgroup: CgroupId, container: Option<CgroupId>) -> Attribution {
        self.by_ids(cgroup, None, container)
    }

    /// The cgroup of the outermost container around a cgroup, which may be itself: what the kernel is told for
    /// [`epitaph_ebpf::Task::container`]. None where there is none, or where it is not known.
    pub fn outermost_container(&self, cgroup: CgroupId) -> Option<CgroupId> {
        self.cgroups.outermost_container(cgroup)
    }

    /// The path from the hierarchy's root, bounded and safe to print.
    pub fn path(&self, cgroup: CgroupId) -> Option<&str> {
        self.cgroups
            .get(cgroup)
            .map(|entry| &*entry.shown)
            .filter(|path| !path.is_empty())
    }

    /// What must be asked before `event` is handled. Empty for nearly all events: nothing is asked twice but what may have
    /// changed (where there is v1 a process that executes, for a runtime moves it before, and a parent).
    pub fn questions(&self, event: &Event) -> Vec<Question> {
        let mut questions = Vec::new();
        match event {
            Event::SignalGenerate(signal) => {
                self.ask_task(&signal.target, false, &mut questions);
                self.ask_task(&signal.sender, false, &mut questions);
            }
            Event::SignalDiscarded(discarded) => self.ask_task(&discarded.task, false, &mut questions),
            Event::PeerAnnouncement(announcement) => self.ask_task(&announcement.task, false, &mut questions),
            Event::SignalDeliver(deliver) => self.ask_task(&deliver.task, false, &mut questions),
            Event::ProcessExit(exit) => self.ask_task(&exit.task, false, &mut questions),
            Event::ProcessExec(exec) => {
                self.ask_task(&exec.task, true, &mut questions);
                self.ask_cgroups(exec.parent_cgroup, exec.parent_v1_cgroup, &mut questions);
                let by_ids = self.by_ids(exec.parent_cgroup, exec.parent_v1_cgroup, exec.parent_container);
                // Its start is not in the record, so what is known of that id may be of another process.
                if exec.task.ppid.0 != 0 && !self.is_final(exec.parent_cgroup, &by_ids) {
                    ask(Question::Process(exec.task.ppid), &mut questions);
                }
            }
            Event::OomVictim(oom) => match &oom.task {
                Some(task) => self.ask_task(task, false, &mut questions),
                None => ask(Question::Process(oom.victim), &mut questions),
            },
            Event::CgroupMkdir(made) if made.path.is_none() => self.ask_cgroup(made.cgroup, &mut questions),
            Event::Tcp(tcp) => {
                // Whose a client is decides nothing.
                if let Some(cgroup) = tcp.cgroup.filter(|_| tcp.client.is_none()) {
                    self.ask_cgroup(cgroup, &mut questions);
                }
            }
            Event::CgroupMkdir(_) | Event::CgroupRmdir(_) => {}
        }
        questions
    }

    /// A cgroup that exists, or the answer that it does not.
    pub fn insert(&mut self, now: Boot, fact: &CgroupFact) {
        if !fact.cgroup.is_known() {
            return;
        }
        match &fact.path {
            Ok(path) => self.insert_path(now, fact.cgroup, path),
            // Not remembered as unknown: what happens in it later would be unknown for as long as the dead are kept.
            Err(reason) if reason == CgroupFact::BUSY => {}
            Err(reason) => self.cgroups.insert_unknown(now, fact.cgroup, reason),
        }
    }

    /// A process's facts, or the answer that it is gone; whose it is by them.
    pub fn process(&mut self, now: Boot, fact: &ProcessFact) -> Attribution {
        if fact.is_gone() {
            self.processes.insert_gone(now, fact.tgid);
            return Attribution::Unknown(UnknownCgroup::ProcessGone);
        }
        let recorded = fact
            .cgroups
            .iter()
            .find(|(cgroup, _)| cgroup.hierarchy == self.root.hierarchy);
        if let Some((cgroup, path)) = recorded {
            self.insert_found(now, *cgroup, path);
        }
        // The first of those that say most: one key per subject, whichever of its processes was asked for.
        let mut best: Option<(u8, &(CgroupId, String))> = None;
        for found in &fact.cgroups {
            let worth = self.worth(found.0, &found.1);
            if worth > best.map_or(0, |(worth, _)| worth) {
                best = Some((worth, found));
            }
        }
        let place = match best {
            Some((_, (cgroup, path))) => {
                self.insert_found(now, *cgroup, path);
                match (self.cgroups.get(*cgroup), path::parse(path)) {
                    (Some(entry), _) => entry.place.clone(),
                    (None, Ok(Place::Host)) => Attribution::Host,
                    // Its directory was not found: the path names a subject, but not which of its lives.
                    (None, _) => Attribution::Unknown(UnknownCgroup::PathUnreadable),
                }
            }
            None => Attribution::Unknown(UnknownCgroup::PathUnreadable),
        };
        if self.machine.has_v1() && is_container(&place) {
            self.split |= recorded.is_some_and(|(cgroup, _)| !is_container(&self.attribute_cgroup(*cgroup)));
        }
        self.processes.insert(now, fact, place.clone());
        place
    }

    /// A cgroup that was removed: it answers for a while.
    pub fn remove(&mut self, now: Boot, cgroup: CgroupId) {
        self.cgroups.remove(now, cgroup);
    }

    /// Entries given up because the index was full, since the last call.
    pub fn drops(&mut self) -> u64 {
        self.cgroups.drops() + self.processes.drops()
    }

    /// By what a kernel record says: v2, unless v1 alongside it names a subject and says more. That v1 knows of none is no answer:
    /// it need not know the units. Where neither is known, the container that the kernel has it count for.
    fn by_ids(&self, cgroup: CgroupId, v1_cgroup: Option<CgroupId>, container: Option<CgroupId>) -> Attribution {
        let by_id = self.attribute_cgroup(cgroup);
        let by_ids = match v1_cgroup.map(|v1_cgroup| self.attribute_cgroup(v1_cgroup)) {
            Some(by_v1 @ Attribution::Subject(..)) if rank(&by_v1) > rank(&by_id) => by_v1,
            _ => by_id,
        };
        match (&by_ids, container.map(|container| self.attribute_cgroup(container))) {
            (Attribution::Unknown(_), Some(by_container)) if is_container(&by_container) => by_container,
            _ => by_ids,
        }
    }

    fn refine(&self, by_ids: Attribution, v1_cgroup: Option<CgroupId>, by_process: Option<&Attribution>) -> Attribution {
        // Every runtime gives a container a cgroup there: what that does not call one is none, unless it is not known itself.
        let is_doubtful = v1_cgroup.map_or(self.split, |v1_cgroup| rank(&self.attribute_cgroup(v1_cgroup)) == 0);
        match (by_ids, by_process) {
            (Attribution::Unknown(_), Some(place)) => place.clone(),
            (by_ids, Some(place)) if rank(place) > rank(&by_ids) => place.clone(),
            (by_ids, Some(_)) => by_ids,
            (Attribution::Unknown(UnknownCgroup::NoId), None) if self.machine.has_v1() => {
                Attribution::Unknown(UnknownCgroup::ProcessGone)
            }
            (Attribution::Subject(..) | Attribution::Host, None) if is_doubtful => {
                Attribution::Unknown(UnknownCgroup::ProcessGone)
            }
            (by_ids, None) => by_ids,
        }
    }

    fn ask_task(&self, task: &Task, moved: bool, questions: &mut Vec<Question>) {
        self.ask_cgroups(task.cgroup, task.v1_cgroup, questions);
        // Where v2 is all there is, its id is enough, whatever it says: not even the entry is touched.
        let is_enough = !self.machine.has_v1() && task.cgroup.is_known();
        if task.tgid.0 == 0
            || is_enough
            || self.is_final(task.cgroup, &self.by_ids(task.cgroup, task.v1_cgroup, task.container))
        {
            return;
        }
        if (moved || self.processes.of(task).is_none()) && !self.processes.is_over(task) {
            ask(Question::Process(task.tgid), questions);
        }
    }

    fn ask_cgroups(&self, cgroup: CgroupId, v1_cgroup: Option<CgroupId>, questions: &mut Vec<Question>) {
        self.ask_cgroup(cgroup, questions);
        // Not where v2 has said it all.
        if let Some(v1_cgroup) = v1_cgroup
            && !is_container(&self.attribute_cgroup(cgroup))
        {
            self.ask_cgroup(v1_cgroup, questions);
        }
    }

    fn ask_cgroup(&self, cgroup: CgroupId, questions: &mut Vec<Question>) {
        if cgroup.is_known() && cgroup != self.root && self.cgroups.get(cgroup).is_none() {
            ask(Question::Cgroup(cgroup), questions);
        }
    }

    /// The record's ids alone say all there is to say.
    fn is_final(&self, cgroup: CgroupId, by_ids: &Attribution) -> bool {
        is_container(by_ids) || (cgroup.is_known() && !self.machine.has_v1())
    }

    /// How much a process's cgroup says of it, 0 nothing; more where its id is known too.
    fn worth(&self, cgroup: CgroupId, path: &str) -> u8 {
        if let Some(entry) = self.cgroups.get(cgroup) {
            return 2 * rank(&entry.place);
        }
        let worth = match path::parse(path) {
            Ok(Place::Subject(Subject::Container { .. }, _)) => 6,
            Ok(Place::Subject(Subject::Unit { .. }, _)) => 4,
            Ok(Place::Host) => 2,
            Err(_) => return 0,
        };
        if cgroup.is_known() { worth } else { worth - 1 }
    }

    fn insert_found(&mut self, now: Boot, cgroup: CgroupId, path: &str) {
        if cgroup.is_known() && !self.cgroups.get(cgroup).is_some_and(Cgroup::is_live) {
            self.insert_path(now, cgroup, path);
        }
    }

    fn insert_path(&mut self, now: Boot, cgroup: CgroupId, path: &str) {
        if cgroup.hierarchy == self.root.hierarchy && path == "/" {
            self.root = cgroup;
        }
        self.cgroups.insert(now, cgroup, path);
    }
}

fn ask(question: Question, questions: &mut Vec<Question>) {
    if !questions.contains(&question) {
        questions.push(question);
    }
}

fn is_container(place: &Attribution) -> bool {
    matches!(place, Attribution::Subject(Subject::Container { .. }, _))
}

/// How much a hierarchy says of a process: a container more than a unit, any subject more than the host.
fn rank(place: &Attribution) -> u8 {
    match place {
        Attribution::Subject(Subject::Container { .. }, _) => 3,
        Attribution::Subject(Subject::Unit { .. }, _) => 2,
        Attribution::Host => 1,
        Attribution::Unknown(_) => 0,
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
