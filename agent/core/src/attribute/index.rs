//! The index: cgroup id → subject, for live cgroups and, for a while, removed ones.
//!
//! *Architecture invariant*: pure and bounded. The index asks for missing facts ([`Index::questions`]) and never twice for the
//! same fact; a cgroup without facts is `Unknown(reason)`, never attributed to the parent or the root. The only
//! exception is a container that encloses nothing but its own cgroups: see [`Index::learn`].
//!
//! On a hybrid machine (cgroup v1 alongside v2) the v2 id that the kernel gives for a process may be the root, or the unit of
//! the runtime that started it. There the record's second id, of v1, decides; if neither id is a container's,
//! `/proc/PID/cgroup` decides: see [`Index::attribute`]. `/proc/PID/cgroup` also decides on a machine with v1 alone: the kernel
//! gives the id in one hierarchy, and another hierarchy may separate what that one does not.

use std::borrow::Cow;
use std::sync::Arc;

use super::cgroups::{Cgroup, Cgroups};
use super::path::{self, Nodes, Place};
use super::processes::Processes;
use super::{Attribution, Subject, UnknownCgroup};
use crate::event::{Event, ProcessExec, Task};
use crate::ids::{CgroupId, Pid};
use crate::input::{CgroupFact, CgroupMode, ProcessFact};
use crate::time::Boot;

/// A look-up in `/proc` or the cgroup file system that is needed before an event can be attributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The path of a cgroup.
    Cgroup(CgroupId),
    /// The cgroups of a process.
    Process(Pid),
}

/// The kernel gives the root of a hierarchy inode 1; a scan reports a different one.
const ROOT: u64 = 1;

/// Depth of the pid namespace of the outermost container's own processes, at most: one below the host's. A container inside it
/// has its own below that.
const CONTAINER_LEVEL: u32 = 1;

/// See the module.
pub struct Index {
    machine: CgroupMode,
    nodes: Nodes,
    /// The root of the hierarchy that kernel records name.
    root: CgroupId,
    /// True once proven: only another hierarchy knows some containers' processes, so a unit may be the unit of their runtime.
    split: bool,
    cgroups: Cgroups,
    processes: Processes,
}

impl Index {
    /// `max_live` bounds the live cgroups and the known processes (each); `max_removed` bounds the removed cgroups and the ids
    /// that were not found.
    /// All together keep at most `max_bytes`.
    pub fn new(max_live: usize, max_removed: usize, max_bytes: usize) -> Index {
        let cgroups = Cgroups::new(max_live, max_removed, max_bytes / 2);
        let processes = Processes::new(max_live.min(max_bytes / 2 / Processes::BYTES));
        Index {
            machine: CgroupMode::V2,
            nodes: Nodes::default(),
            root: CgroupId::v2(ROOT),
            split: false,
            cgroups,
            processes,
        }
    }

    /// Starts, or starts again after a gap. Known cgroups stay valid: cgroup ids are not reused within a boot.
    pub fn start(&mut self, machine: CgroupMode, nodes: Nodes) {
        if machine.hierarchy() != self.root.hierarchy {
            self.root = CgroupId {
                hierarchy: machine.hierarchy(),
                id: ROOT,
            };
        }
        self.machine = machine;
        self.nodes = nodes;
        self.cgroups.nodes_are(nodes);
    }

    /// Which hierarchies there are.
    pub fn machine(&self) -> CgroupMode {
        self.machine
    }

    /// The subject of a process.
    ///
    /// The ids in the record decide. On a machine with v1 they are enough only if one of them names a container. Otherwise the
    /// process's own facts decide, and without these the unit that an id names; unless some containers are not known by any v2
    /// id and the record has only a v2 id. If all this shows nothing, the container around the process's cgroup may: see
    /// [`Index::learn`].
    pub fn attribute(&self, task: &Task) -> Cow<'_, Attribution> {
        if let Some(place) = self.by_path(task.cgroup, task.v1_cgroup) {
            return Cow::Borrowed(place);
        }
        Cow::Owned(self.attribute_further(task))
    }

    fn attribute_further(&self, task: &Task) -> Attribution {
        let by_ids = self.by_ids(task.cgroup, task.v1_cgroup);
        let container = task.container.filter(|_| task.ns_level <= CONTAINER_LEVEL);
        if self.is_final(task.cgroup, &by_ids) {
            return self.or_container(by_ids, task.cgroup, container);
        }
        let place = self.refine(by_ids, task.v1_cgroup, self.processes.of(task));
        // As long as `/proc` may still have the process, the answer is still to come.
        let container = container.filter(|_| self.processes.has_exited(task));
        self.or_container(place, task.v1_cgroup.unwrap_or(task.cgroup), container)
    }

    /// The answer of [`Index::attribute`] for nearly every process of a machine with v2 alone: its cgroup's path is known, so nothing
    /// else decides, and there is nothing to [learn](Index::learn).
    pub fn by_path(&self, cgroup: CgroupId, v1_cgroup: Option<CgroupId>) -> Option<&Attribution> {
        let decides = self.is_enough(cgroup) && v1_cgroup.is_none();
        let place = &self.cgroups.get(cgroup).filter(|_| decides)?.place;
        (!matches!(place, Attribution::Unknown(_))).then_some(place)
    }

    /// Learns from a task which container a cgroup counts for, if the cgroup was gone before its path was known. The kernel side
    /// knows only the outermost container around it, so a task in a deeper pid namespace, as a container inside that container
    /// has, makes it doubtful. True if the container is known only now.
    pub fn learn(&mut self, task: &Task) -> bool {
        let mut is_new = false;
        for cgroup in [Some(task.cgroup), task.v1_cgroup].into_iter().flatten() {
            match task.container {
                _ if task.ns_level > CONTAINER_LEVEL => self.cgroups.doubt(cgroup),
                Some(container) => is_new |= self.cgroups.count_for(cgroup, container),
                None => {}
            }
        }
        is_new
    }

    /// The subject of the parent of the executing process (`task.ppid`): not the task's own if the process came from outside.
    pub fn attribute_parent(&self, exec: &ProcessExec) -> Attribution {
        let by_ids = self.by_ids(exec.parent_cgroup, exec.parent_v1_cgroup);
        if self.is_final(exec.parent_cgroup, &by_ids) {
            return self.or_container(by_ids, exec.parent_cgroup, self.cgroups.counts_for(exec.parent_cgroup));
        }
        self.refine(by_ids, exec.parent_v1_cgroup, self.processes.latest(exec.task.ppid))
    }

    /// Whether the parent of the executing process is in the subject with that cgroup, in which the process is.
    pub fn is_parent_within(&self, exec: &ProcessExec, own: CgroupId) -> bool {
        let is_same = self.is_enough(exec.task.cgroup) && exec.parent_cgroup == exec.task.cgroup;
        if let Some(place) = self.by_path(exec.parent_cgroup, exec.parent_v1_cgroup).filter(|_| !is_same) {
            return place.own() == Some(own);
        }
        is_same || matches!(self.attribute_parent(exec), Attribution::Subject(_, theirs) if theirs == own)
    }

    /// The subject of a process known only by its id: that of the id's latest holder.
    pub fn attribute_process(&self, tgid: Pid) -> Attribution {
        self.processes
            .latest(tgid)
            .cloned()
            .unwrap_or(Attribution::Unknown(UnknownCgroup::ProcessGone))
    }

    /// As [`Index::attribute`]. On a machine with v1, a process that exited before `/proc` was read counts for its parent's
    /// container, but only if both have the same depth of pid namespaces: the first process of a container inside a container
    /// is a child of the runtime.
    pub fn attribute_descendant(&self, task: &Task) -> Attribution {
        match (self.attribute(task).into_owned(), self.processes.parent(task)) {
            (Attribution::Unknown(UnknownCgroup::ProcessGone), Some(parent)) if is_container(parent) => parent.clone(),
            (place, _) => place,
        }
    }

    /// The subject of a cgroup. On a machine with v1 the root shows nothing.
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

    /// The subject of a cgroup; if its path was not found, the container that its tasks count for: see [`Index::learn`].
    pub fn attribute_within(&self, cgroup: CgroupId) -> Attribution {
        self.or_container(self.attribute_cgroup(cgroup), cgroup, self.cgroups.counts_for(cgroup))
    }

    /// The cgroup of the outermost container around a cgroup, possibly the cgroup itself: the value that the kernel side gets
    /// for [`epitaph_ebpf::Task::container`]. None if there is no container, or if the cgroup is not known.
    pub fn outermost_container(&self, cgroup: CgroupId) -> Option<CgroupId> {
        self.cgroups.outermost_container(cgroup)
    }

    /// The own cgroup of the container or unit that a nested cgroup was made in, also where the nested one's path is not kept.
    pub fn party(&self, cgroup: CgroupId) -> Option<CgroupId> {
        self.cgroups.party_of(cgroup)
    }

    /// The path from the hierarchy's root, bounded and safe to print.
    pub fn path(&self, cgroup: CgroupId) -> Option<&str> {
        self.cgroups
            .get(cgroup)
            .map(|entry| &*entry.shown)
            .filter(|path| !path.is_empty())
    }

    /// The path from the hierarchy's root as the kernel has it, for comparisons.
    pub fn exact_path(&self, cgroup: CgroupId) -> Option<&Arc<str>> {
        let path = self.cgroups.get(cgroup).map(Cgroup::path);
        path.filter(|path| !path.is_empty())
    }

    /// The look-ups that are needed before `event` is handled. Empty for nearly all events: a look-up is repeated only if the
    /// answer may have changed (on a machine with v1: a process that executes, because a runtime moves it first, and a parent).
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
                let is_final = || {
                    let by_ids = self.by_ids(exec.parent_cgroup, exec.parent_v1_cgroup);
                    self.is_final(exec.parent_cgroup, &by_ids)
                };
                // The parent's start is not in the record, so a known fact with that id may be of another process.
                if exec.task.ppid.0 != 0 && !self.is_enough(exec.parent_cgroup) && !is_final() {
                    ask(Question::Process(exec.task.ppid), &mut questions);
                }
            }
            Event::OomVictim(oom) => match &oom.task {
                Some(task) => self.ask_task(task, false, &mut questions),
                None => ask(Question::Process(oom.victim), &mut questions),
            },
            Event::CgroupMkdir(made) if made.path.is_none() => self.ask_cgroup(made.cgroup, &mut questions),
            Event::Tcp(tcp) => {
                // The subject of a client decides nothing.
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
        self.insert_answer(now, fact);
        if let Some(at) = fact.created {
            self.created(fact.cgroup, at);
        }
    }

    /// The kernel's record of a cgroup's creation.
    pub fn created(&mut self, cgroup: CgroupId, at: Boot) {
        self.cgroups.created(cgroup, at);
    }

    /// When the cgroup was created, if that was seen.
    pub fn created_at(&self, cgroup: CgroupId) -> Option<Boot> {
        self.cgroups.get(cgroup)?.created()
    }

    /// No record of a process in the cgroup is older. On a machine with v1 `/proc` decides, which shows a process that was moved there
    /// after the record.
    pub fn empty_until(&self, cgroup: CgroupId) -> Option<Boot> {
        self.created_at(cgroup).filter(|_| !self.machine.has_v1())
    }

    fn insert_answer(&mut self, now: Boot, fact: &CgroupFact) {
        match &fact.path {
            Ok(path) => self.insert_path(now, fact.cgroup, path),
            // Not remembered as unknown: later events in it would be unknown for as long as removed cgroups are kept.
            Err(reason) if reason == CgroupFact::BUSY => {}
            Err(reason) => self.cgroups.insert_unknown(now, fact.cgroup, reason),
        }
    }

    /// A process's facts, or the answer that the process is gone. Returns the subject that the facts show.
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
        // The first of those that show most: one key per subject, for every process of the subject.
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
                match (self.cgroups.get(*cgroup), path::parse(path, self.nodes)) {
                    (Some(entry), _) => entry.place.clone(),
                    (None, Ok(Place::Host)) => Attribution::Host,
                    // The directory was not found: the path names a subject, but not which of its lives.
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

    /// A cgroup that was removed: its entry answers for a while.
    pub fn remove(&mut self, now: Boot, cgroup: CgroupId) {
        self.cgroups.remove(now, cgroup);
    }

    /// Forgets cgroups that were removed long ago.
    pub fn expire(&mut self, now: Boot) {
        self.cgroups.expire(now);
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.cgroups.bytes() + self.processes.bytes()
    }

    /// Entries given up because the index was full, since the last call.
    pub fn drops(&mut self) -> u64 {
        self.cgroups.drops() + self.processes.drops()
    }

    /// Attribution by the ids in a kernel record: v2, unless v1 alongside it names a subject and shows more. A v1 hierarchy without
    /// a subject is not an answer: it need not have the units.
    fn by_ids(&self, cgroup: CgroupId, v1_cgroup: Option<CgroupId>) -> Attribution {
        let by_id = self.attribute_cgroup(cgroup);
        match v1_cgroup.map(|v1_cgroup| self.attribute_cgroup(v1_cgroup)) {
            Some(by_v1 @ Attribution::Subject(..)) if rank(&by_v1) > rank(&by_id) => by_v1,
            _ => by_id,
        }
    }

    /// The container around a cgroup whose path was looked up and not found (not: whose look-up is still to come). Not if the
    /// container encloses others (Docker in Docker, the node of a cluster on one machine): the cgroup may be one of theirs.
    fn or_container(&self, place: Attribution, cgroup: CgroupId, container: Option<CgroupId>) -> Attribution {
        if !matches!(place, Attribution::Unknown(_)) {
            return place;
        }
        let may = self.cgroups.get(cgroup).is_some_and(Cgroup::may_count_for_container);
        let container = container.filter(|container| may && !self.cgroups.encloses_others(*container));
        match container.map(|container| self.attribute_cgroup(container)) {
            Some(by_container) if is_container(&by_container) => by_container,
            _ => place,
        }
    }

    fn refine(&self, by_ids: Attribution, v1_cgroup: Option<CgroupId>, by_process: Option<&Attribution>) -> Attribution {
        // Every runtime gives a container a cgroup in v1: a known v1 cgroup that is not a container's rules a container out.
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

    #[inline]
    fn ask_task(&self, task: &Task, moved: bool, questions: &mut Vec<Question>) {
        self.ask_cgroups(task.cgroup, task.v1_cgroup, questions);
        if task.tgid.0 == 0
            || self.is_enough(task.cgroup)
            || self.is_final(task.cgroup, &self.by_ids(task.cgroup, task.v1_cgroup))
        {
            return;
        }
        if (moved || self.processes.of(task).is_none()) && !self.processes.has_exited(task) {
            ask(Question::Process(task.tgid), questions);
        }
    }

    #[inline]
    fn ask_cgroups(&self, cgroup: CgroupId, v1_cgroup: Option<CgroupId>, questions: &mut Vec<Question>) {
        self.ask_cgroup(cgroup, questions);
        // Not if v2 alone decides.
        if let Some(v1_cgroup) = v1_cgroup
            && !is_container(&self.attribute_cgroup(cgroup))
        {
            self.ask_cgroup(v1_cgroup, questions);
        }
    }

    #[inline]
    fn ask_cgroup(&self, cgroup: CgroupId, questions: &mut Vec<Question>) {
        if cgroup.is_known() && cgroup != self.root && self.cgroups.get(cgroup).is_none() {
            ask(Question::Cgroup(cgroup), questions);
        }
    }

    /// The record's ids alone decide.
    fn is_final(&self, cgroup: CgroupId, by_ids: &Attribution) -> bool {
        is_container(by_ids) || self.is_enough(cgroup)
    }

    /// With v2 alone the v2 id is always enough: not even the entry is touched.
    fn is_enough(&self, cgroup: CgroupId) -> bool {
        !self.machine.has_v1() && cgroup.is_known()
    }

    /// How much a process's cgroup shows of the process, 0 nothing; more if the id is known too.
    fn worth(&self, cgroup: CgroupId, path: &str) -> u8 {
        if let Some(entry) = self.cgroups.get(cgroup) {
            return 2 * rank(&entry.place);
        }
        let worth = match path::parse(path, self.nodes) {
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

/// How much a hierarchy shows of a process: a container more than a unit, any subject more than the host.
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
