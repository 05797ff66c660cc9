//! The index: cgroup id → subject, for the living and for a while the dead.
//!
//! *Architecture invariant*: pure and bounded. What it does not know it asks for ([`Index::questions`]); what it has been
//! told once it does not ask again; what it cannot know is `Unknown(reason)`, never the parent, never the root.
//!
//! On a hybrid machine (cgroup v1 beside v2) the v2 id that the kernel gives for a process may be the root, or the unit of
//! the runtime that started it. There `/proc/PID/cgroup` decides: see [`Index::attribute`].

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::path::{self, Place};
use super::{Attribution, Subject, UnknownCgroup};
use crate::event::{Boot, CgroupFact, CgroupId, Event, Pid, ProcessExec, ProcessFact, Task};

/// What `/proc` or the cgroup file system must say before an event can be attributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The path of a cgroup.
    Cgroup(CgroupId),
    /// The cgroups of a process.
    Process(Pid),
}

/// How long a removed cgroup answers: longer than any reorder window and any lag of the reader.
const KEEP_DEAD: Duration = Duration::from_secs(120);

/// `/proc/PID/stat` counts in clock ticks of USER_HZ, 100 per second on every architecture that has the probes.
const TICK: u64 = 10_000_000;

/// The kernel gives the root of the v2 hierarchy inode 1; a scan that sees another one says so.
const V2_ROOT: CgroupId = CgroupId::v2(1);

/// See the module.
pub struct Index {
    max_live: usize,
    max_dead: usize,
    hybrid: bool,
    v2_root: CgroupId,
    /// Proven: a container's processes are known by v1 only, so that a unit from v2 may be its runtime's.
    split: bool,
    cgroups: Map<CgroupId, Cgroup>,
    live: usize,
    live_order: VecDeque<(u64, CgroupId)>,
    dead: usize,
    dead_order: VecDeque<(Boot, u64, CgroupId)>,
    /// Own cgroups of live subjects.
    owners: HashMap<(u32, Arc<str>), CgroupId>,
    /// Live cgroups below a subject whose own cgroup has not been seen yet.
    orphans: HashMap<(u32, Arc<str>), Vec<CgroupId>>,
    processes: Map<ProcessKey, Process>,
    process_order: VecDeque<(u64, ProcessKey)>,
    /// Latest known start, in ticks, of a process id's holder.
    latest: Map<u32, u64>,
    sequence: u64,
    drops: u64,
}

struct Cgroup {
    /// Tells this entry from an earlier one of the same id, in the queues.
    sequence: u64,
    died: Option<Boot>,
    /// As the file system has it: the key of the parent's paths.
    path: Arc<str>,
    /// As it may be shown; the same text but for odd names.
    shown: Arc<str>,
    place: Attribution,
}

/// Process id and start in ticks; `GONE` for "was gone when asked for".
type ProcessKey = (u32, u64);
const GONE: u64 = u64::MAX;

struct Process {
    sequence: u64,
    told: Boot,
    place: Attribution,
}

impl Index {
    /// `max_live` bounds the living cgroups and the known processes (each), `max_dead` the dead ones and the ids that turned
    /// out to be gone.
    pub fn new(max_live: usize, max_dead: usize) -> Index {
        Index {
            max_live: max_live.max(1),
            max_dead: max_dead.max(1),
            hybrid: false,
            v2_root: V2_ROOT,
            split: false,
            cgroups: Map::default(),
            live: 0,
            live_order: VecDeque::new(),
            dead: 0,
            dead_order: VecDeque::new(),
            owners: HashMap::new(),
            orphans: HashMap::new(),
            processes: Map::default(),
            process_order: VecDeque::new(),
            latest: Map::default(),
            sequence: 0,
            drops: 0,
        }
    }

    /// Begins (or, after a gap, begins again): what was known stays true, ids are not reused within a boot.
    pub fn start(&mut self, hybrid: bool) {
        self.hybrid = hybrid;
    }

    /// Whose process it is.
    ///
    /// By the v2 id. On a hybrid machine that is enough only where it names a container: else the process's own facts
    /// decide, and without them the unit that v2 names, unless containers have been seen that v2 does not know.
    pub fn attribute(&self, task: &Task) -> Attribution {
        let by_id = self.attribute_cgroup(task.cgroup);
        if task.cgroup.is_known() && (!self.hybrid || is_container(&by_id)) {
            return by_id;
        }
        self.refine(by_id, self.processes.get(&key(task)).map(|p| &p.place))
    }

    /// Whose parent it was that executed (`task.ppid`): differs from the task's where the process came in from outside.
    pub fn attribute_parent(&self, exec: &ProcessExec) -> Attribution {
        let by_id = self.attribute_cgroup(exec.parent_cgroup);
        if exec.parent_cgroup.is_known() && (!self.hybrid || is_container(&by_id)) {
            return by_id;
        }
        self.refine(by_id, self.latest_process(exec.task.ppid))
    }

    /// Whose process it is, where the kernel gave nothing but a process id: its latest holder's.
    pub fn attribute_process(&self, tgid: Pid) -> Attribution {
        self.latest_process(tgid)
            .cloned()
            .unwrap_or(Attribution::Unknown(UnknownCgroup::ProcessGone))
    }

    /// Whose cgroup it is. A hybrid machine's v2 root says nothing.
    pub fn attribute_cgroup(&self, cgroup: CgroupId) -> Attribution {
        if !cgroup.is_known() || (self.hybrid && cgroup == self.v2_root) {
            return Attribution::Unknown(UnknownCgroup::NoId);
        }
        match self.cgroups.get(&cgroup) {
            Some(entry) => entry.place.clone(),
            None if cgroup == self.v2_root => Attribution::Host,
            None => Attribution::Unknown(UnknownCgroup::NeverSeen),
        }
    }

    /// The path from the hierarchy's root, bounded and safe to print.
    pub fn path(&self, cgroup: CgroupId) -> Option<&str> {
        self.cgroups
            .get(&cgroup)
            .map(|entry| &*entry.shown)
            .filter(|path| !path.is_empty())
    }

    /// What must be asked before `event` is handled. Empty for nearly all events: nothing is asked twice, but that a process
    /// on a hybrid machine is looked at again when it executes (a runtime moves it before).
    pub fn questions(&self, event: &Event) -> Vec<Question> {
        let mut questions = Vec::new();
        match event {
            Event::SignalGenerate(signal) => {
                self.ask_task(&signal.target, false, &mut questions);
                self.ask_task(&signal.sender, false, &mut questions);
            }
            Event::SignalDeliver(deliver) => self.ask_task(&deliver.task, false, &mut questions),
            Event::ProcessExit(exit) => self.ask_task(&exit.task, false, &mut questions),
            Event::ProcessExec(exec) => {
                self.ask_task(&exec.task, true, &mut questions);
                self.ask_cgroup(exec.parent_cgroup, &mut questions);
                let by_id = self.attribute_cgroup(exec.parent_cgroup);
                if exec.task.ppid.0 != 0
                    && (!exec.parent_cgroup.is_known() || (self.hybrid && !is_container(&by_id)))
                    && self.latest_process(exec.task.ppid).is_none()
                {
                    ask(Question::Process(exec.task.ppid), &mut questions);
                }
            }
            Event::OomVictim(oom) => match &oom.task {
                Some(task) => self.ask_task(task, false, &mut questions),
                None if self.latest_process(oom.victim).is_none() => {
                    ask(Question::Process(oom.victim), &mut questions);
                }
                None => {}
            },
            Event::CgroupMkdir(made) if made.path.is_none() => self.ask_cgroup(made.cgroup, &mut questions),
            Event::Tcp(tcp) => {
                if let Some(cgroup) = tcp.cgroup {
                    self.ask_cgroup(cgroup, &mut questions);
                }
            }
            Event::CgroupMkdir(_) | Event::CgroupRmdir(_) => {}
        }
        questions
    }

    /// A cgroup that exists, or the answer that it does not.
    pub fn insert(&mut self, now: Boot, fact: &CgroupFact) {
        self.expire(now);
        if !fact.cgroup.is_known() {
            return;
        }
        match &fact.path {
            Ok(path) => self.insert_path(now, fact.cgroup, path),
            Err(reason) => self.insert_unknown(now, fact.cgroup, reason),
        }
    }

    /// A process's facts, or the answer that it is gone.
    pub fn process(&mut self, now: Boot, fact: &ProcessFact) {
        self.expire(now);
        if fact.is_gone() {
            self.insert_process((fact.tgid.0, GONE), now, Attribution::Unknown(UnknownCgroup::ProcessGone));
            return;
        }
        for (cgroup, path) in &fact.cgroups {
            if cgroup.is_known() && !self.cgroups.get(cgroup).is_some_and(|known| known.died.is_none()) {
                self.insert_path(now, *cgroup, path);
            }
        }
        let mut best: Option<Attribution> = None;
        for (cgroup, path) in &fact.cgroups {
            if *cgroup == self.v2_root && self.hybrid {
                continue;
            }
            let place = match self.cgroups.get(cgroup) {
                Some(entry) => entry.place.clone(),
                // Its directory was not found: the path may name a subject, but not which of its lives.
                None => match path::parse(path) {
                    Ok(Place::Host) => Attribution::Host,
                    _ => Attribution::Unknown(UnknownCgroup::PathUnreadable),
                },
            };
            if best.as_ref().is_none_or(|best| rank(&place) > rank(best)) {
                best = Some(place);
            }
        }
        let place = best.unwrap_or(Attribution::Host);
        if self.hybrid && is_container(&place) {
            let by_v2 = fact.cgroups.iter().find(|(cgroup, _)| cgroup.hierarchy == 0);
            self.split |= by_v2.is_some_and(|(cgroup, _)| !is_container(&self.attribute_cgroup(*cgroup)));
        }
        let tick = fact.start.0 / TICK;
        self.insert_process((fact.tgid.0, tick), now, place);
        let latest = self.latest.entry(fact.tgid.0).or_insert(tick);
        *latest = (*latest).max(tick);
    }

    /// A cgroup that was removed: it answers for a while.
    pub fn remove(&mut self, now: Boot, cgroup: CgroupId) {
        self.expire(now);
        let Some(entry) = self.cgroups.get_mut(&cgroup) else { return };
        if entry.died.is_some() {
            return;
        }
        entry.died = Some(now);
        let owner = (cgroup.hierarchy, Arc::clone(&entry.path));
        self.dead_order.push_back((now, entry.sequence, cgroup));
        self.live -= 1;
        self.dead += 1;
        if self.owners.get(&owner) == Some(&cgroup) {
            self.owners.remove(&owner);
        }
        self.bound_dead();
    }

    /// Entries given up because the index was full, since the last call.
    pub fn drops(&mut self) -> u64 {
        std::mem::take(&mut self.drops)
    }

    fn refine(&self, by_id: Attribution, by_process: Option<&Attribution>) -> Attribution {
        match (by_id, by_process) {
            (by_id, Some(place)) if rank(place) > rank(&by_id) => place.clone(),
            (by_id, Some(_)) => by_id,
            (Attribution::Unknown(UnknownCgroup::NoId), None) if self.hybrid => {
                Attribution::Unknown(UnknownCgroup::ProcessGone)
            }
            (Attribution::Subject(..) | Attribution::Host, None) if self.split => {
                Attribution::Unknown(UnknownCgroup::ProcessGone)
            }
            (by_id, None) => by_id,
        }
    }

    fn latest_process(&self, tgid: Pid) -> Option<&Attribution> {
        let tick = self.latest.get(&tgid.0).copied().unwrap_or(GONE);
        self.processes.get(&(tgid.0, tick)).map(|p| &p.place)
    }

    fn ask_task(&self, task: &Task, moved: bool, questions: &mut Vec<Question>) {
        self.ask_cgroup(task.cgroup, questions);
        if task.tgid.0 == 0 || (task.cgroup.is_known() && (!self.hybrid || is_container(&self.attribute_cgroup(task.cgroup)))) {
            return;
        }
        let known = self.processes.contains_key(&key(task));
        // Asked for already and gone, or its id is another process's by now: /proc has nothing more to say.
        let over = self
            .processes
            .get(&(task.tgid.0, GONE))
            .is_some_and(|gone| task.start <= gone.told)
            || self
                .latest
                .get(&task.tgid.0)
                .is_some_and(|&latest| latest > task.start.0 / TICK);
        if (moved || !known) && !over {
            ask(Question::Process(task.tgid), questions);
        }
    }

    fn ask_cgroup(&self, cgroup: CgroupId, questions: &mut Vec<Question>) {
        if cgroup.is_known() && cgroup != self.v2_root && !self.cgroups.contains_key(&cgroup) {
            ask(Question::Cgroup(cgroup), questions);
        }
    }

    fn insert_path(&mut self, now: Boot, cgroup: CgroupId, path: &str) {
        if cgroup.hierarchy == 0 && path == "/" {
            self.v2_root = cgroup;
        }
        if self
            .cgroups
            .get(&cgroup)
            .is_some_and(|known| known.died.is_none() && &*known.path == path)
        {
            return;
        }
        let path: Arc<str> = Arc::from(path);
        let shown = match path::shown(&path) {
            std::borrow::Cow::Borrowed(_) => Arc::clone(&path),
            std::borrow::Cow::Owned(shown) => Arc::from(shown),
        };
        let place = match path::parse(&path) {
            Ok(Place::Host) => Attribution::Host,
            Ok(Place::Subject(subject, own)) => {
                let owner = (cgroup.hierarchy, Arc::from(own));
                let own = self.own(cgroup, &path, owner);
                // Several cgroups of one subject share its texts.
                match self.cgroups.get(&own).map(|entry| &entry.place) {
                    Some(Attribution::Subject(known, _)) if *known == subject => Attribution::Subject(known.clone(), own),
                    _ => Attribution::Subject(subject, own),
                }
            }
            Err(_) => Attribution::Unknown(UnknownCgroup::PathUnreadable),
        };
        self.forget(cgroup);
        self.sequence += 1;
        self.cgroups.insert(
            cgroup,
            Cgroup {
                sequence: self.sequence,
                died: None,
                path,
                shown,
                place,
            },
        );
        self.live += 1;
        self.live_order.push_back((self.sequence, cgroup));
        self.bound_live(now);
    }

    /// The subject's own cgroup, as far as it is known; else the cgroup itself stands in until it is.
    fn own(&mut self, cgroup: CgroupId, path: &str, owner: (u32, Arc<str>)) -> CgroupId {
        if *owner.1 != *path {
            if let Some(own) = self.owners.get(&owner) {
                return *own;
            }
            let orphans = self.orphans.entry(owner).or_default();
            // One orphan stands for all: its siblings belong to the same subject and must have one key.
            let first = orphans.first().copied().unwrap_or(cgroup);
            orphans.push(cgroup);
            return first;
        }
        for orphan in self.orphans.remove(&owner).unwrap_or_default() {
            if let Some(Cgroup {
                place: Attribution::Subject(_, own),
                ..
            }) = self.cgroups.get_mut(&orphan)
            {
                *own = cgroup;
            }
        }
        self.owners.insert(owner, cgroup);
        cgroup
    }

    fn insert_unknown(&mut self, now: Boot, cgroup: CgroupId, reason: &str) {
        // What an event or a scan said of it is better than a file system that has it no more.
        if self.cgroups.contains_key(&cgroup) {
            return;
        }
        let why = if reason == CgroupFact::GONE {
            UnknownCgroup::NeverSeen
        } else {
            UnknownCgroup::PathUnreadable
        };
        let none: Arc<str> = Arc::from("");
        self.sequence += 1;
        let place = Attribution::Unknown(why);
        self.cgroups.insert(
            cgroup,
            Cgroup {
                sequence: self.sequence,
                died: Some(now),
                path: Arc::clone(&none),
                shown: none,
                place,
            },
        );
        self.dead += 1;
        self.dead_order.push_back((now, self.sequence, cgroup));
        self.bound_dead();
    }

    fn insert_process(&mut self, key: ProcessKey, now: Boot, place: Attribution) {
        self.sequence += 1;
        self.processes.insert(
            key,
            Process {
                sequence: self.sequence,
                told: now,
                place,
            },
        );
        self.process_order.push_back((self.sequence, key));
        while self.processes.len() > self.max_live || self.process_order.len() > 2 * self.max_live {
            let Some((sequence, key)) = self.process_order.pop_front() else {
                break;
            };
            if self.processes.get(&key).is_none_or(|p| p.sequence != sequence) {
                continue;
            }
            // An old fact is a dead process's, or one that is asked for again: only a fresh one can be missed.
            let fresh = self.processes.remove(&key).is_some_and(|p| now.since(p.told) < KEEP_DEAD);
            self.drops += u64::from(fresh);
            if self.latest.get(&key.0) == Some(&key.1) {
                self.latest.remove(&key.0);
            }
        }
    }

    fn bound_live(&mut self, now: Boot) {
        while self.live > self.max_live {
            let Some((sequence, cgroup)) = self.live_order.pop_front() else {
                break;
            };
            if self.is_entry(cgroup, sequence, true) {
                self.forget(cgroup);
                self.drops += 1;
            }
        }
        if self.live_order.len() > 2 * self.live + 64 {
            let cgroups = &self.cgroups;
            self.live_order.retain(|(sequence, cgroup)| {
                cgroups
                    .get(cgroup)
                    .is_some_and(|entry| entry.sequence == *sequence && entry.died.is_none())
            });
        }
        self.expire(now);
    }

    fn bound_dead(&mut self) {
        while self.dead > self.max_dead || self.dead_order.len() > 2 * self.max_dead + 64 {
            let Some((_, sequence, cgroup)) = self.dead_order.pop_front() else {
                break;
            };
            if self.is_entry(cgroup, sequence, false) {
                self.forget(cgroup);
                self.drops += 1;
            }
        }
    }

    fn expire(&mut self, now: Boot) {
        while let Some(&(died, sequence, cgroup)) = self.dead_order.front() {
            if now.since(died) < KEEP_DEAD {
                break;
            }
            self.dead_order.pop_front();
            if self.is_entry(cgroup, sequence, false) {
                self.forget(cgroup);
            }
        }
    }

    fn is_entry(&self, cgroup: CgroupId, sequence: u64, live: bool) -> bool {
        self.cgroups
            .get(&cgroup)
            .is_some_and(|entry| entry.sequence == sequence && entry.died.is_none() == live)
    }

    fn forget(&mut self, cgroup: CgroupId) {
        let Some(entry) = self.cgroups.remove(&cgroup) else { return };
        if entry.died.is_some() {
            self.dead -= 1;
            return;
        }
        self.live -= 1;
        let owner = (cgroup.hierarchy, entry.path);
        if self.owners.get(&owner) == Some(&cgroup) && !matches!(&entry.place, Attribution::Subject(_, own) if *own != cgroup) {
            self.owners.remove(&owner);
        }
    }
}

fn ask(question: Question, questions: &mut Vec<Question>) {
    if !questions.contains(&question) {
        questions.push(question);
    }
}

fn key(task: &Task) -> ProcessKey {
    (task.tgid.0, task.start.0 / TICK)
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

type Map<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// The keys are inode numbers and process ids that the kernel gives out one after the other: one multiplication spreads
/// them, and nobody can choose them to collide.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(self.0 ^ n) * 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
