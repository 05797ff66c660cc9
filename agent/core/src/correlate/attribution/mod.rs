//! Attribution: kernel events → evidence about a subject. Events of an unknown cgroup wait here, for a while.
//!
//! Attribution does not know how the evidence is used: the subjects follow.

mod about;
mod evidence;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::attribute::path::Nodes;
use crate::attribute::{Attribution, Index, Question, Subject, UnknownCgroup};
use crate::event::{Event, OomVictim, Task, Tcp};
use crate::ids::{CgroupId, Pid, Signal};
use crate::input::{CgroupFact, CgroupMode, ProcessFact};
use crate::time::Boot;

use super::Limits;
use about::{is_of, party};
pub(super) use about::{kind, task_of};
pub(super) use evidence::{Attributed, Concerned, Evidence, Sender, Taker, What};

/// Units that are, or hold, a kubelet: kubeadm and most distributions, k3s, RKE2, k0s, MicroK8s, and snaps.
pub const KUBELET_UNITS: &[&str] = &[
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0scontroller.service",
    "k0sworker.service",
    "snap.microk8s.daemon-kubelite.service",
    "snap.kubelet-eks.daemon.service",
];

/// The kernel's SIGKILLs that are remembered, for OOM victims with only a pid. The SIGKILL comes just after the OOM event; if it is
/// not among these any more, the OOM event counts as lost: see [`Attributed::Dropped`].
const KERNEL_KILLS: usize = 64;
/// Of the events that wait, the cgroups of one party have at most this part.
const PARTIES: usize = 8;
/// Waiting events for which memory is kept.
const KEPT: usize = 64;
/// Most cgroups of the kubelet that are kept: one, or a few below a larger unit.
const KUBELETS: usize = 64;

/// The result for an event.
enum Placed {
    /// Evidence about the subject with that own cgroup, or irrelevant for every subject.
    Done(Option<CgroupId>),
    /// The event's cgroup is not known (yet).
    Unknown,
}

/// See the module.
pub(super) struct Attributor {
    index: Index,
    /// Units of the kubelet, and their existing cgroups.
    kubelet_units: Vec<String>,
    kubelets: BTreeSet<CgroupId>,
    /// Events that wait for their cgroup's path: until when, and their own time.
    pending: VecDeque<(Boot, Boot, Event)>,
    /// How many of them each party has: see [`party`].
    waiting: HashMap<CgroupId, usize>,
    kernel_kills: VecDeque<Task>,
    limits: Limits,
    unattributed: u64,
}

impl Attributor {
    pub fn new(limits: Limits, kubelet_units: Vec<String>) -> Attributor {
        Attributor {
            index: Index::new(limits.index_live, limits.index_dead, limits.index_bytes()),
            kubelet_units,
            kubelets: BTreeSet::new(),
            pending: VecDeque::new(),
            waiting: HashMap::new(),
            kernel_kills: VecDeque::new(),
            limits,
            unattributed: 0,
        }
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    pub fn kubelet_units(&self) -> &[String] {
        &self.kubelet_units
    }

    /// Whether connections from this cgroup are the kubelet's: its probes and hooks.
    pub fn is_kubelet(&self, cgroup: CgroupId) -> bool {
        match self.index.attribute_cgroup(cgroup) {
            Attribution::Subject(Subject::Unit { name }, _) => self.kubelet_units.iter().any(|unit| **unit == *name),
            _ => false,
        }
    }

    /// The kubelet's cgroup is known, so its connections do not count as clients'.
    pub fn knows_kubelet(&self) -> bool {
        !self.kubelets.is_empty()
    }

    pub fn questions(&self, event: &Event) -> Vec<Question> {
        self.index.questions(event)
    }

    pub fn start(&mut self, machine: CgroupMode, nodes: Nodes) {
        self.index.start(machine, nodes);
    }

    /// A kernel event. Waiting events may depend on it. Returns the own cgroup of the subject that it may be evidence of; None for the
    /// connects of clients.
    pub fn event(&mut self, now: Boot, at: Boot, event: &Event, out: &mut Taker<'_>) -> Option<CgroupId> {
        match event {
            Event::CgroupMkdir(made) => match &made.path {
                Some(path) => {
                    let fact = CgroupFact {
                        created: Some(at),
                        ..CgroupFact::of(made.cgroup, Ok(path.clone()))
                    };
                    self.cgroup(now, &fact, out);
                }
                // The answer of the file system came before.
                None => self.index.created(made.cgroup, at),
            },
            Event::CgroupRmdir(removed) => return self.removed(now, at, removed.cgroup, out),
            _ => match self.place(at, event, out) {
                Placed::Done(own) => return own,
                Placed::Unknown => self.wait(now, at, event.clone(), out),
            },
        }
        None
    }

    /// A cgroup's path: events that waited for it are attributed.
    pub fn cgroup(&mut self, now: Boot, fact: &CgroupFact, out: &mut Taker<'_>) {
        self.index.insert(now, fact);
        let cgroup = fact.cgroup;
        if self.kubelets.len() < KUBELETS && self.is_kubelet(cgroup) {
            self.kubelets.insert(cgroup);
        }
        self.retry(|event| is_of(event, cgroup), out);
    }

    /// A process as `/proc` shows it: events of it that waited are attributed.
    pub fn process(&mut self, now: Boot, fact: ProcessFact, out: &mut Taker<'_>) {
        let tgid = fact.tgid;
        if let Attribution::Subject(subject, own) = self.index.process(now, &fact) {
            let parent = self.index.attribute_process(fact.ppid);
            let outside = !matches!(parent, Attribution::Subject(_, theirs) if theirs == own);
            let of_v2 = fact.cgroups.iter().filter(|(cgroup, _)| cgroup.hierarchy == 0);
            let sockets_of = of_v2.filter_map(|(cgroup, _)| self.sockets_of(own, *cgroup)).collect();
            out(Attributed::Evidence(Evidence {
                at: fact.start,
                own,
                subject: &subject,
                sockets_of: None,
                what: What::Process {
                    fact: &fact,
                    outside,
                    sockets_of,
                },
            }));
        }
        self.retry(|event| task_of(event).is_some_and(|task| task.tgid == tgid), out);
    }

    /// Drops events that waited too long.
    pub fn expire(&mut self, now: Boot, out: &mut Taker<'_>) {
        while self.pending.front().is_some_and(|(deadline, ..)| *deadline <= now) {
            self.drop_oldest(out);
        }
        self.index.expire(now);
        // This runs for every kernel record.
        if self.pending.is_empty() && self.pending.capacity().max(self.waiting.capacity()) > 2 * KEPT {
            self.pending.shrink_to(KEPT);
            self.waiting.shrink_to(KEPT);
        }
    }

    /// No more input: nothing waits any longer.
    pub fn end(&mut self, out: &mut Taker<'_>) {
        while !self.pending.is_empty() {
            self.drop_oldest(out);
        }
    }

    /// Events that were not attributed since the last call.
    pub fn take_unattributed(&mut self) -> u64 {
        std::mem::take(&mut self.unattributed)
    }

    /// Drops the waiting events of an earlier boot.
    pub fn add_unattributed(&mut self, count: u64) {
        self.unattributed += count;
    }

    /// Cgroups and processes that the index dropped since the last call.
    pub fn take_index_drops(&mut self) -> u64 {
        self.index.drops()
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        let pending = self.pending.capacity() * size_of::<(Boot, Boot, Event)>();
        let kills = self.kernel_kills.capacity() * size_of::<Task>();
        self.index.bytes() + pending + kills
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.pending.len() + self.kernel_kills.len() + self.kubelets.len()
    }

    fn place(&mut self, at: Boot, event: &Event, out: &mut Taker<'_>) -> Placed {
        let task = task_of(event);
        let by_path = task.and_then(|task| self.index.by_path(task.cgroup, task.v1_cgroup));
        let place = match by_path {
            Some(place) => Cow::Borrowed(place),
            None => match self.place_further(at, event, out) {
                Some(place) => Cow::Owned(place),
                None => return Placed::Done(None),
            },
        };
        match event {
            Event::SignalGenerate(signal) if signal.signal == Signal::KILL && signal.from_kernel => {
                let place = place.into_owned();
                if let Attribution::Subject(..) = place {
                    self.kernel_killed(signal.target, out);
                }
                self.show(at, event, &place, out)
            }
            event => self.show(at, event, &place, out),
        }
    }

    /// The place of an event that the path of its cgroup does not show. None: the event is not evidence about a subject.
    fn place_further(&mut self, at: Boot, event: &Event, out: &mut Taker<'_>) -> Option<Attribution> {
        let task = task_of(event);
        if let Some(task) = task
            && self.index.learn(task)
        {
            let cgroup = task.cgroup;
            self.retry(|event| matches!(event, Event::Tcp(tcp) if tcp.cgroup == Some(cgroup)), out);
        }
        match event {
            Event::OomVictim(oom) => Some(self.oom_place(oom)),
            Event::Tcp(tcp) => match (tcp.client, tcp.cgroup) {
                (Some(by), _) => {
                    let of = self.client(tcp);
                    out(Attributed::Client { at, tcp, by, of });
                    None
                }
                (None, Some(cgroup)) => Some(self.index.attribute_within(cgroup)),
                (None, None) => Some(Attribution::Unknown(UnknownCgroup::NoId)),
            },
            // Announcements of agents are not evidence about a subject.
            _ => task.map(|task| self.index.attribute(task).into_owned()),
        }
    }

    /// Shows an event at this place as evidence.
    fn show(&self, at: Boot, event: &Event, place: &Attribution, out: &mut Taker<'_>) -> Placed {
        let (subject, own) = match place {
            Attribution::Subject(subject, own) => (subject, *own),
            Attribution::Host => return Placed::Done(None),
            Attribution::Unknown(_) => return Placed::Unknown,
        };
        let sockets_of = task_of(event).and_then(|task| self.sockets_of(own, task.cgroup));
        let what = match event {
            Event::SignalGenerate(signal) => What::Signal {
                signal,
                sender: Sender::of(&self.index, (own, subject), signal),
            },
            Event::SignalDeliver(deliver) => What::Deliver(deliver),
            Event::ProcessExit(exit) => What::Exit(exit),
            Event::ProcessExec(exec) => What::Exec {
                exec,
                outside: !self.index.is_parent_within(exec, own),
            },
            Event::OomVictim(oom) => What::Oom {
                victim: oom.task.or_else(|| self.kernel_kill(oom.victim)),
                armed: oom.armed,
            },
            Event::Tcp(tcp) => What::Tcp(tcp),
            Event::SignalDiscarded(discarded) => What::Discarded(discarded),
            Event::CgroupMkdir(_) | Event::CgroupRmdir(_) | Event::PeerAnnouncement(_) => return Placed::Done(None),
        };
        out(Attributed::Evidence(Evidence {
            at,
            own,
            subject,
            sockets_of,
            what,
        }));
        Placed::Done(Some(own))
    }

    /// Even where nothing is known of it: its other events may come later. In one hierarchy: a container of v1 has a cgroup in each.
    pub fn removed(&mut self, now: Boot, at: Boot, cgroup: CgroupId, out: &mut Taker<'_>) -> Option<CgroupId> {
        let place = self.index.attribute_cgroup(cgroup);
        let own = place.own();
        let subject = match place {
            Attribution::Subject(subject, own) if own == cgroup && own.hierarchy == self.index.machine().hierarchy() => {
                Some(subject)
            }
            _ => None,
        };
        self.index.remove(now, cgroup);
        self.kubelets.remove(&cgroup);
        out(Attributed::Removed { at, cgroup, subject });
        own
    }

    fn wait(&mut self, now: Boot, at: Boot, event: Event, out: &mut Taker<'_>) {
        let waiting = self.waiting.entry(party(&event)).or_default();
        if *waiting >= self.limits.pending.div_ceil(PARTIES) {
            return self.dropped(at, &event, out);
        }
        *waiting += 1;
        if self.pending.len() >= self.limits.pending {
            self.drop_oldest(out);
        }
        self.pending.push_back((now.plus(self.limits.reorder), at, event));
    }

    fn drop_oldest(&mut self, out: &mut Taker<'_>) {
        if let Some((_, at, event)) = self.pending.pop_front() {
            self.waits_no_more(&event);
            self.dropped(at, &event, out);
        }
    }

    fn waits_no_more(&mut self, event: &Event) {
        let party = party(event);
        if let Some(waiting) = self.waiting.get_mut(&party) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&party);
            }
        }
    }

    /// The subjects that the event may concern are in doubt.
    fn dropped(&mut self, at: Boot, event: &Event, out: &mut Taker<'_>) {
        self.unattributed += 1;
        let Some(kind) = kind(event) else { return };
        let (ids, container) = match event {
            Event::Tcp(tcp) => ([tcp.cgroup, None], tcp.container),
            Event::OomVictim(OomVictim { task: None, .. }) => {
                let of = Concerned::Anybody;
                return out(Attributed::Dropped { at, kind, of });
            }
            event => match task_of(event) {
                Some(task) => ([Some(task.cgroup), task.v1_cgroup], task.container),
                None => return,
            },
        };
        // What happens in a container concerns nobody outside, whatever it nests.
        let known = container.and_then(|container| Some((container.hierarchy, self.index.exact_path(container)?)));
        if let Some((hierarchy, path)) = known {
            let path = Arc::clone(path);
            let of = Concerned::Around { hierarchy, path };
            return out(Attributed::Dropped { at, kind, of });
        }
        for of in ids.into_iter().flatten().chain(container) {
            let of = Concerned::Cgroup(of);
            out(Attributed::Dropped { at, kind, of });
        }
    }

    /// Tries the waiting events again.
    fn retry(&mut self, is_it: impl Fn(&Event) -> bool, out: &mut Taker<'_>) {
        if !self.pending.iter().any(|(_, _, event)| is_it(event)) {
            return;
        }
        let (again, rest): (VecDeque<_>, VecDeque<_>) = self.pending.drain(..).partition(|(_, _, event)| is_it(event));
        self.pending = rest;
        for (deadline, at, event) in again {
            match self.place(at, &event, out) {
                Placed::Done(_) => self.waits_no_more(&event),
                Placed::Unknown => self.pending.push_back((deadline, at, event)),
            }
        }
    }

    /// An OOM victim with only a pid may be this process.
    fn kernel_killed(&mut self, target: Task, out: &mut Taker<'_>) {
        self.kernel_kills.push_back(target);
        if self.kernel_kills.len() > KERNEL_KILLS {
            self.kernel_kills.pop_front();
        }
        let is_victim = |event: &Event| matches!(event, Event::OomVictim(oom) if oom.victim == target.tgid);
        self.retry(is_victim, out);
    }

    fn kernel_kill(&self, victim: Pid) -> Option<Task> {
        self.kernel_kills.iter().rev().find(|task| task.tgid == victim).copied()
    }

    fn oom_place(&self, oom: &OomVictim) -> Attribution {
        match oom.task.or_else(|| self.kernel_kill(oom.victim)) {
            Some(task) => self.index.attribute_descendant(&task),
            None => self.index.attribute_process(oom.victim),
        }
    }

    /// The party that a client's connects count for: a pod's container, another container with all that is nested in it, or a unit.
    fn client(&self, tcp: &Tcp) -> CgroupId {
        let cgroup = tcp.cgroup.unwrap_or_default();
        let place = self.index.attribute_within(cgroup);
        if let Attribution::Subject(Subject::Container { pod: Some(_), .. }, own) = place {
            return own;
        }
        let unit = || match place {
            Attribution::Subject(_, own) => own,
            _ => cgroup,
        };
        let container = self.index.outermost_container(cgroup).or(tcp.container);
        container.unwrap_or_else(unit)
    }

    /// For a container that only v1 knows: the subject of the process's v2 cgroup.
    fn sockets_of(&self, own: CgroupId, cgroup: CgroupId) -> Option<(CgroupId, Subject)> {
        if own.hierarchy == cgroup.hierarchy {
            return None;
        }
        match self.index.attribute_cgroup(cgroup) {
            Attribution::Subject(subject, own) => Some((own, subject)),
            _ => None,
        }
    }
}
