//! Events → facts of the subject that they concern.

use crate::attribute::{Attribution, Subject};
use crate::event::{
    Armed, Boot, CgroupId, Event, ExitStatus, OomVictim, Pid, ProcessExec, ProcessFact, Signal, SignalGenerate, SignalResult,
    Task, Tcp, si_code,
};
use crate::termination::{Output, Role, StopSignalIgnored, TerminationKey};
use crate::verdict;

use super::subject::{Candidate, ProcessId, State};
use super::timeline::{OomFact, RUN_GAP, SignalFact, armed_before_version_4};
use super::{Correlator, KERNEL_KILLS, TOUCH, role, task_of};

impl Correlator {
    /// False where the event's cgroup is not known (yet).
    pub(super) fn fact(&mut self, at: Boot, event: &Event, out: &mut Vec<Output>) -> bool {
        let place = match event {
            Event::SignalGenerate(signal) => self.index.attribute(&signal.target),
            Event::SignalDeliver(deliver) => self.index.attribute(&deliver.task),
            Event::ProcessExit(exit) => self.index.attribute(&exit.task),
            Event::ProcessExec(exec) => self.index.attribute(&exec.task),
            Event::OomVictim(oom) => self.oom_place(oom),
            Event::Tcp(tcp) => match (tcp.client, tcp.cgroup) {
                (Some(by), _) => {
                    self.drops.facts += u64::from(!self.clients.add(at, tcp, by, self.limits.connections));
                    return true;
                }
                (None, Some(cgroup)) => self.index.attribute_within(cgroup, tcp.container),
                (None, None) => return false,
            },
            // What agents announce to each other is no fact about a subject. A signal that the kernel discards when its target
            // reads it decides nothing yet.
            Event::CgroupMkdir(_) | Event::CgroupRmdir(_) | Event::PeerAnnouncement(_) | Event::SignalDiscarded(_) => {
                return true;
            }
        };
        let (subject, own) = match place {
            Attribution::Subject(subject, own) => (subject, own),
            Attribution::Host => return true,
            Attribution::Unknown(_) => return false,
        };
        if !self.know(own, subject) {
            return true;
        }
        let home = task_of(event).map_or(own, |task| self.home(own, task.cgroup));
        self.armed(own, home, event);
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
                let (cap, late) = (self.limits.facts, self.limits.linger);
                self.pods.exit(at, own, exit);
                if let Some(state) = self.subjects.get_mut(&own) {
                    state.ended(at, exit, cap, late);
                }
                self.reschedule(own);
            }
            Event::ProcessExec(exec) => self.exec(at, own, exec),
            Event::OomVictim(oom) => self.oom(at, own, oom),
            Event::Tcp(tcp) => self.tcp(at, own, tcp),
            Event::CgroupMkdir(_) | Event::CgroupRmdir(_) | Event::PeerAnnouncement(_) | Event::SignalDiscarded(_) => {}
        }
        true
    }

    /// Takes note where the kernel had a reason to watch sockets by itself.
    fn armed(&mut self, own: CgroupId, home: CgroupId, event: &Event) {
        let Some(state) = self.subjects.get(&own) else { return };
        let cgroup = match event {
            Event::SignalGenerate(signal) => {
                let arms = match signal.armed {
                    Some(armed) => armed == Armed::ByThis,
                    None => armed_before_version_4(signal),
                };
                arms.then_some(signal.target.cgroup)
            }
            Event::ProcessExit(exit) => {
                let task = &exit.task;
                let arms = exit.armed.map(|armed| armed == Armed::ByThis).unwrap_or_else(|| {
                    let may_be = task.ns_level == 0 || task.is_ns_init() || exit.status != ExitStatus::Exited(0);
                    // The parent's cgroup is not in the record; the commonest parent inside is known.
                    may_be && !state.candidates.iter().any(|parent| parent.id.tgid == task.ppid)
                });
                arms.then_some(task.cgroup)
            }
            _ => None,
        };
        let Some(cgroup) = cgroup else { return };
        let Some(state) = self.subjects.get_mut(&home) else { return };
        state.arm(cgroup);
        let now = self.now;
        if state.armed.is_none_or(|armed| now.since(armed) >= TOUCH) {
            if let Some(armed) = state.armed.replace(now) {
                self.armed.remove(&(armed, home));
            }
            self.armed.insert((now, home));
        }
    }

    /// The subject whose sockets a process's are: `own`, or of a container that only v1 knows whoever has `cgroup` of v2.
    fn home(&mut self, own: CgroupId, cgroup: CgroupId) -> CgroupId {
        if own.hierarchy == cgroup.hierarchy {
            return own;
        }
        let Attribution::Subject(subject, home) = self.index.attribute_cgroup(cgroup) else {
            return own;
        };
        if self.know(home, subject)
            && let Some(state) = self.subjects.get_mut(&home)
        {
            state.shares_cgroup = true;
        }
        home
    }

    /// Makes room for a subject. False where it is over, or where there is no room.
    pub(super) fn know(&mut self, own: CgroupId, subject: Subject) -> bool {
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
        state.seen(target);
        if state.is_over(target) || matches!(signal.signal, Signal::CONT | Signal::STOP) {
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
        let main = state.main();
        let fact = SignalFact {
            at,
            last: at,
            count: 1,
            sender: role::sender(&self.index, own, signal),
            signal: *signal,
        };
        self.seen_in(own, target.start);
        let is_mains = main.is_none_or(|main| main.id.is(target));
        if fact.sender.role == Role::Runtime && fact.is_stop() && is_mains {
            self.pods.stopped(at, own, self.now);
        }
        self.warn(own, &fact, out);
        let cap = self.limits.facts;
        self.keep(own, |state| state.timeline().signal(fact, essential, cap));
    }

    /// Says at once that the kernel dropped a stop signal: once for each time that somebody asks.
    fn warn(&mut self, own: CgroupId, fact: &SignalFact, out: &mut Vec<Output>) {
        let signal = &fact.signal;
        let asked = match fact.sender.role {
            Role::Runtime => fact.is_stop() && signal.signal.is_deadly(),
            Role::Other => signal.signal.is_request(),
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
            kubernetes: None,
            sentence,
        })));
    }

    fn exec(&mut self, at: Boot, own: CgroupId, exec: &ProcessExec) {
        let parent = self.index.attribute_parent(exec);
        let outside = !matches!(parent, Attribution::Subject(_, theirs) if theirs == own);
        let Some(state) = self.subjects.get_mut(&own) else { return };
        // A child of PID 1 may be an orphan of the last life: its start tells, for systemd forks a unit's process when it is due.
        let is_unit = matches!(state.subject, Subject::Unit { .. });
        let came = Some(at).filter(|_| is_unit && outside && exec.task.ppid > role::INIT);
        let known = state.candidates.iter_mut().find(|candidate| candidate.id.is(&exec.task));
        if let Some(known) = known {
            // `/proc` alone does not tell where it came from.
            known.outside = outside || known.id.exact && known.outside;
            known.came_in(came);
            known.named(exec.task.comm, at);
            state.seen(&exec.task);
            if !outside && !exec.task.is_ns_init() {
                state.candidates.retain(|known| known.outside || !known.id.is(&exec.task));
            }
        } else if outside || exec.task.is_ns_init() {
            let mut candidate = Candidate::of(&exec.task, at, outside);
            candidate.came_in(came);
            state.arm(exec.task.cgroup);
            state.learn(candidate);
        }
        self.seen_in(own, exec.task.start);
        if outside {
            self.pods.exec(at, own, exec);
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
        let clients = std::mem::take(&mut self.clients);
        self.keep_socket(own, |state| {
            if let Some(cgroup) = tcp.cgroup {
                state.arm(cgroup);
            }
            let over = state.finished.is_some() && state.candidates.is_empty();
            over || state.timeline().sockets.add(at, tcp, &clients, cap)
        });
        self.clients = clients;
    }

    fn oom_place(&self, oom: &OomVictim) -> Attribution {
        match oom.task.or_else(|| self.kernel_kill(oom.victim)) {
            Some(task) => self.index.attribute_descendant(&task),
            None => self.index.attribute_process(oom.victim),
        }
    }

    fn kernel_kill(&self, victim: Pid) -> Option<Task> {
        self.kernel_kills.iter().rev().find(|task| task.tgid == victim).copied()
    }

    pub(super) fn process(&mut self, fact: &ProcessFact, out: &mut Vec<Output>) {
        let place = self.index.process(self.now, fact);
        if let Attribution::Subject(subject, own) = place
            && self.know(own, subject)
        {
            let parent = self.index.attribute_process(fact.ppid);
            let outside = !matches!(parent, Attribution::Subject(_, theirs) if theirs == own);
            let candidate = Candidate::of_fact(fact, outside);
            for (cgroup, _) in fact.cgroups.iter().filter(|(cgroup, _)| cgroup.hierarchy == 0) {
                self.home(own, *cgroup);
            }
            if let Some(state) = self.subjects.get_mut(&own)
                && (outside || candidate.is_ns_init())
            {
                fact.cgroups.iter().for_each(|(cgroup, _)| state.arm(*cgroup));
                state.learn(candidate);
            }
            self.seen_in(own, fact.start);
            self.reschedule(own);
        }
        let tgid = fact.tgid;
        self.retry(|event| task_of(event).is_some_and(|task| task.tgid == tgid), out);
    }

    /// Adds a fact about its sockets: a busy server's do not keep a timeline from being idle.
    fn keep_socket(&mut self, own: CgroupId, add: impl FnOnce(&mut State) -> bool) {
        let touched = self.subjects.get(&own).is_some_and(|state| state.touched.is_some());
        if !touched {
            return self.keep(own, add);
        }
        let Some(state) = self.subjects.get_mut(&own) else { return };
        self.drops.facts += u64::from(!add(state));
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
}
