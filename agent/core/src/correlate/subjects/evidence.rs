//! Evidence → facts of its subject.

use crate::attribute::Subject;
use crate::event::{Armed, ExitStatus, ProcessExec, SignalGenerate, SignalResult, Task, Tcp, UnseenSockets};
use crate::ids::{CgroupId, Pid, Signal};
use crate::input::ProcessFact;
use crate::ledger::{Hole, LossPlace, Origin};
use crate::termination::Role;
use crate::time::Boot;
use crate::tolerances::{OWN_WATCH, TOUCH};

use super::Subjects;
use super::clients::Clients;
use super::closers::from_then_on;
use super::event::SubjectEvent;
use super::inner::InnerSender;
use super::process::{Candidate, ProcessId};
use super::subject::State;
use super::timeline::{OomFact, SignalFact, Timeline, armed_before_version_4};
use super::watching::armed_by;
use crate::correlate::attribution::{Attributed, Concerned, Evidence, Sender, What};

impl Subjects {
    pub fn take(&mut self, now: Boot, found: Attributed<'_>, out: &mut Vec<SubjectEvent>) {
        self.now = now;
        match found {
            Attributed::Evidence(evidence) => self.evidence(&evidence, out),
            Attributed::Removed { at, cgroup, subject } => self.removed(at, cgroup, subject.as_ref(), out),
            Attributed::Dropped { at, kind, of } => match of {
                Concerned::Cgroup(of) => self.doubt(of, Hole::of(Origin::Dropped, kind, at, at, 1)),
                Concerned::Around { hierarchy, path } => {
                    self.lost(
                        Hole::of(Origin::Lost, kind, at, now, 1),
                        LossPlace::Cgroup { hierarchy, path },
                    );
                }
                Concerned::Anybody => self.lost(Hole::of(Origin::Lost, kind, at, now, 1), LossPlace::Anywhere),
            },
            Attributed::Client { at, tcp, by, of } => {
                let cap = self.limits.connections.min(Clients::most(self.limits.subjects_bytes() / 4));
                self.drops.facts += u64::from(!self.clients.add(at, tcp, by, of, cap));
                self.fit(0);
            }
        }
    }

    fn evidence(&mut self, evidence: &Evidence<'_>, out: &mut Vec<SubjectEvent>) {
        let &Evidence {
            at,
            own,
            subject,
            ref sockets_of,
            ref what,
        } = evidence;
        if !self.know(own, subject) {
            return;
        }
        let sockets_of = sockets_of.as_ref();
        let home = sockets_of.map_or(own, |(home, subject)| self.shared(*home, subject));
        self.armed(own, home, what, out);
        self.own_exit(at, (own, home), what, out);
        let armed = armed_by(what);
        match what {
            What::Signal { signal, sender } => self.signal(at, own, signal, sender, out),
            What::Deliver(deliver) => {
                let (cap, late) = (self.limits.facts, self.limits.linger);
                self.keep(own, out, |state| match state.concerns(&deliver.task) {
                    _ if state.is_past(&deliver.task) => true,
                    true => state.timeline().deliver(at, **deliver, cap),
                    false => state
                        .inside(at, cap, late)
                        .entry(at, &deliver.task, deliver.signal, false, cap),
                });
            }
            What::Discarded(discarded) => self.discarded(at, own, discarded, out),
            What::Exit(exit) => {
                let (cap, late) = (self.limits.facts, self.limits.linger);
                out.push(SubjectEvent::Exited {
                    at,
                    own,
                    process: ProcessId::of(&exit.task),
                    status: exit.status,
                });
                if let Some(state) = self.subjects.get_mut(&own) {
                    state.ended(at, exit, cap, late);
                    self.due.set(own, state, &self.limits, out);
                }
            }
            What::Exec { exec, outside } => self.exec(at, own, exec, *outside, out),
            What::Oom { victim, .. } => self.oom(at, own, *victim, out),
            What::Tcp(tcp) => self.tcp(at, own, tcp, out),
            What::Process {
                fact,
                outside,
                sockets_of,
            } => self.process(own, fact, *outside, sockets_of, out),
        }
        self.watch_again(own, at, armed, out);
        self.weigh(own);
        if home != own {
            self.weigh(home);
        }
        self.fit_grown();
    }

    fn removed(&mut self, at: Boot, cgroup: CgroupId, subject: Option<&Subject>, out: &mut Vec<SubjectEvent>) {
        if let Some(subject) = subject {
            self.know(cgroup, subject);
        }
        if let Some(state) = self.subjects.get_mut(&cgroup) {
            // A scan after a gap does not show it again.
            state.removed.get_or_insert(at);
            self.reschedule(cgroup, out);
        }
        out.push(SubjectEvent::Removed { at, cgroup });
    }

    /// An exit or a close by which clients may have lost a connection while nobody stops the subject.
    fn own_exit(&mut self, at: Boot, (own, home): (CgroupId, CgroupId), what: &What<'_>, out: &mut Vec<SubjectEvent>) {
        // A handler may close what is open at its start long before the exit.
        let UnseenSockets {
            udp: unobserved,
            unix_listener,
            last_unix_listener: is_last,
            more,
        } = match what {
            // A probe may have as many files as it likes.
            What::Exit(exit) => UnseenSockets {
                more: exit.unseen().more
                    && (exit.is_own || self.subjects.get(&own).is_none_or(|state| state.concerns(&exit.task))),
                ..exit.unseen()
            },
            What::Deliver(deliver) => deliver.open,
            _ => UnseenSockets::default(),
        };
        if (unobserved || unix_listener || more)
            && let Some(state) = self.subjects.get_mut(&home)
        {
            // All processes of a container can end at once, each the holder of what the others still have. systemd holds the listener of a
            // socket unit on.
            let is_container = matches!(state.subject, Subject::Container { .. });
            if unobserved {
                state.rare_mut().own_exits.unobserved.add(at);
            }
            if unix_listener && (is_container || is_last) {
                state.rare_mut().own_exits.unix.add(at);
            }
            if more {
                state.rare_mut().own_exits.more.add(at);
            }
        }
        let (is_recorded, is_reason, cgroup) = match what {
            What::Exit(exit) if exit.held.is_some_and(|held| held.is_of_clients(exit.is_own)) => {
                let is_armed = exit.armed.is_some_and(Armed::is_armed);
                (is_armed, is_armed, exit.task.cgroup)
            }
            // Also where the sockets were recorded already: a signal that asks for no stop may have armed them, and have been the reason.
            What::Tcp(tcp) if tcp.closes_listener() => match tcp.cgroup {
                Some(cgroup) => (true, tcp.close.by_own, cgroup),
                None => return,
            },
            _ => return,
        };
        let Some(state) = self.subjects.get_mut(&home) else { return };
        let own_exits = &mut state.rare_mut().own_exits;
        if is_recorded {
            own_exits.recorded.add(at);
        } else {
            own_exits.unrecorded.add(at);
        }
        if !is_reason {
            return;
        }
        if !state.arm(home, cgroup) {
            out.push(SubjectEvent::Unwatched(cgroup));
        }
        if self.watch_for(OWN_WATCH, home)
            && let Some(state) = self.subjects.get_mut(&home)
        {
            state.forget_sockets(self.now);
        }
    }

    /// Records that the kernel watches the sockets on its own.
    fn armed(&mut self, own: CgroupId, home: CgroupId, what: &What<'_>, out: &mut Vec<SubjectEvent>) {
        let cgroup = match what {
            What::Signal { signal, .. } => {
                let arms = match signal.armed {
                    Some(armed) => armed == Armed::ByThis,
                    None => armed_before_version_4(signal),
                };
                arms.then_some(signal.target.cgroup)
            }
            What::Exit(exit) => {
                let task = &exit.task;
                let arms = exit.armed.map(|armed| armed == Armed::ByThis).unwrap_or_else(|| {
                    let may_be = task.ns_level == 0 || task.is_ns_init() || exit.status != ExitStatus::Exited(0);
                    // The parent's cgroup is not in the record; the most common parent inside is known.
                    let is_parent = |parent: &Candidate| parent.id.tgid == task.ppid;
                    let state = self.subjects.get(&own);
                    may_be && !state.is_some_and(|state| state.candidates.iter().any(is_parent))
                });
                arms.then_some(task.cgroup)
            }
            What::Oom {
                victim: Some(victim),
                armed: Some(Armed::ByThis),
            } => Some(victim.cgroup),
            _ => None,
        };
        let Some(cgroup) = cgroup else { return };
        let Some(state) = self.subjects.get_mut(&home) else { return };
        if !state.arm(home, cgroup) {
            // The subject's traffic is unknown in any case, and all subjects share the kernel's table.
            out.push(SubjectEvent::Unwatched(cgroup));
        }
        self.watch_for(self.watch(), home);
    }

    /// A container that only v1 knows is in that v2 cgroup: their sockets cannot be separated.
    fn shared(&mut self, home: CgroupId, subject: &Subject) -> CgroupId {
        if self.know(home, subject)
            && let Some(state) = self.subjects.get_mut(&home)
        {
            state.shares_cgroup = true;
        }
        home
    }

    /// Makes room for a subject. False if the subject is finished, or if there is no room.
    #[inline]
    fn know(&mut self, own: CgroupId, subject: &Subject) -> bool {
        self.subjects.contains_key(&own) || self.enter(own, subject)
    }

    fn enter(&mut self, own: CgroupId, subject: &Subject) -> bool {
        if self.gone.iter().any(|(_, gone)| *gone == own) {
            return false;
        }
        if self.subjects.len() >= self.limits.subjects || !self.fits_another() {
            // A lost removal leaves a subject without any facts behind.
            if self.now.since(self.swept) >= TOUCH {
                self.swept = self.now;
                let idle =
                    |state: &State| state.timeline.is_none() && state.listed.due.is_none() && state.candidates.is_empty();
                let idle: Vec<CgroupId> = self
                    .subjects
                    .iter()
                    .filter(|(_, state)| idle(state))
                    .map(|(own, _)| *own)
                    .collect();
                for own in idle {
                    if let Some(mut state) = self.subjects.remove(&own) {
                        self.weights.remove(own, &mut state);
                    }
                }
                self.slim();
            }
            if self.subjects.len() >= self.limits.subjects {
                self.drops.timelines += 1;
                self.early.refuse(self.now);
                return false;
            }
            if !self.fits_another() {
                self.drops.memory += 1;
                self.early.refuse(self.now);
                return false;
            }
        }
        let mut state = State::new(subject.clone());
        self.early.doubt_new(own, &mut state);
        self.subjects.insert(own, state);
        self.weigh(own);
        true
    }

    fn signal(&mut self, at: Boot, own: CgroupId, signal: &SignalGenerate, sender: &Sender<'_>, out: &mut Vec<SubjectEvent>) {
        let now = self.now;
        let Some(state) = self.subjects.get_mut(&own) else { return };
        let target = &signal.target;
        state.seen(target);
        if state.is_past(target) || matches!(signal.signal, Signal::CONT | Signal::STOP) {
            return;
        }
        if target.is_ns_init() {
            state.learn(Candidate::of(target, at, false));
        }
        state.learn_daemon(target, at);
        if !state.concerns(target) {
            return self.inside(at, own, signal, sender, out);
        }
        let candidate = state.candidates.iter_mut().find(|candidate| candidate.id.is(target));
        let essential = candidate.is_some();
        if let Some(candidate) = candidate {
            candidate.named(target.comm, at);
        }
        let essential = essential || state.candidates.is_empty();
        state.arm(own, target.cgroup);
        let main = state.main();
        let fact = SignalFact {
            at,
            last: at,
            count: 1,
            sender: sender.actor(),
            signal: *signal,
        };
        let known = |timeline: &Timeline| timeline.signals.iter().any(|known| known.is_same(&fact));
        if self.observing.coverage.was_observed_twice(at) && state.timeline.as_deref().is_some_and(known) {
            return;
        }
        if state.announces(now, target.start) {
            out.push(SubjectEvent::Seen {
                own,
                subject: state.subject.clone(),
                start: target.start,
            });
        }
        let is_mains = main.is_none_or(|main| main.id.is(target));
        if fact.sender.role == Role::Runtime && fact.is_stop() && is_mains {
            let by_init = (fact.sender.tgid == Pid::INIT).then(|| state.subject.clone());
            out.push(SubjectEvent::StopSent { at, own, by_init });
        }
        self.warn(own, &fact, out);
        let is_discarded = signal.result == SignalResult::Ignored && matches!(fact.sender.role, Role::Itself | Role::Inside);
        let (cap, reorder) = (self.limits.facts, self.limits.reorder);
        self.keep(own, out, |state| {
            if is_discarded {
                state.suspect(at.plus(reorder));
            }
            state.timeline().signal(fact, essential, cap)
        });
    }

    /// A signal to another process than the main one counts once a stop has begun; what a process from outside sends can end a program below a
    /// wrapper without a stop.
    fn inside(&mut self, at: Boot, own: CgroupId, signal: &SignalGenerate, sender: &Sender<'_>, out: &mut Vec<SubjectEvent>) {
        let role = sender.role;
        let by = InnerSender {
            role,
            is_oom_daemon: sender.is_oom_daemon(),
        };
        let (cap, reorder, late) = (self.limits.facts, self.limits.reorder, self.limits.linger);
        // Workers of a healthy subject come and go.
        let is_stopping = signal.armed.is_none_or(Armed::is_armed);
        let has_timeline = self.subjects.get(&own).is_some_and(|state| state.timeline.is_some());
        if !is_stopping && !has_timeline && role != Role::Other {
            return;
        }
        self.keep(own, out, |state| {
            if signal.result == SignalResult::Ignored && role == Role::Inside {
                state.suspect(at.plus(reorder));
            }
            let facts = match is_stopping {
                true => &mut state.timeline().inside,
                false => state.inside(at, cap, late),
            };
            facts.signal(at, signal, by, cap)
        });
    }

    fn exec(&mut self, at: Boot, own: CgroupId, exec: &ProcessExec, outside: bool, out: &mut Vec<SubjectEvent>) {
        let now = self.now;
        let Some(state) = self.subjects.get_mut(&own) else { return };
        // A child of PID 1 may be an orphan of the last life: its start decides, for systemd forks a unit's process when it is due.
        let is_unit = matches!(state.subject, Subject::Unit { .. });
        let came = Some(at).filter(|_| is_unit && outside && exec.task.ppid > Pid::INIT);
        let known = state.candidates.iter_mut().find(|candidate| candidate.id.is(&exec.task));
        if let Some(known) = known {
            // `/proc` alone does not show the origin of the process.
            known.outside = outside || known.id.exact && known.outside;
            known.came_in(came);
            known.executed = true;
            known.named(exec.task.comm, at);
            state.seen(&exec.task);
            if !outside && !exec.task.is_ns_init() {
                state.candidates.retain(|known| known.outside || !known.id.is(&exec.task));
            }
        } else if outside || exec.task.is_ns_init() {
            let mut candidate = Candidate::of(&exec.task, at, outside);
            candidate.came_in(came);
            candidate.executed = true;
            state.arm(own, exec.task.cgroup);
            state.learn(candidate);
        }
        if state.announces(now, exec.task.start) {
            out.push(SubjectEvent::Seen {
                own,
                subject: state.subject.clone(),
                start: exec.task.start,
            });
        }
        if outside {
            out.push(SubjectEvent::CameIn {
                at,
                own,
                process: ProcessId::of(&exec.task),
                comm: exec.task.comm,
            });
        }
        self.due.set(own, state, &self.limits, out);
    }

    fn oom(&mut self, at: Boot, own: CgroupId, victim: Option<Task>, out: &mut Vec<SubjectEvent>) {
        let Some(task) = victim else { return };
        let cap = self.limits.facts;
        let fact = OomFact {
            at,
            victim: ProcessId::of(&task),
            parent: task.ppid,
            ns_level: task.ns_level,
            comm: task.comm,
            reported: false,
        };
        self.keep(own, out, |state| {
            let main = state.main().map(|main| main.id);
            let is_main = |victim: &ProcessId| main.is_some_and(|main| main.same(victim));
            state.is_past(&task) || state.timeline().oom(fact, is_main, cap)
        });
    }

    fn tcp(&mut self, at: Boot, own: CgroupId, tcp: &Tcp, out: &mut Vec<SubjectEvent>) {
        let cap = self.limits.connections;
        let (now, rate) = (self.now, self.observing.tick_rate);
        let mut clients = std::mem::take(&mut self.clients);
        self.keep_socket(own, out, |state| {
            if let Some(cgroup) = tcp.cgroup {
                state.arm(own, cgroup);
            }
            let over = state.finished.is_some() && state.candidates.is_empty();
            over || state.timeline().sockets.add(now, (at, tcp), rate, &mut clients, cap)
        });
        self.clients = clients;
        if tcp.closes_listener() {
            for of in self.closers.closed(now, &self.subjects, (at, own), tcp) {
                // The later one keeps the port.
                self.doubt(of, from_then_on(at));
                self.weigh(of);
            }
        }
    }

    fn process(
        &mut self,
        own: CgroupId,
        fact: &ProcessFact,
        outside: bool,
        sockets_of: &[(CgroupId, Subject)],
        out: &mut Vec<SubjectEvent>,
    ) {
        let candidate = Candidate::of_fact(fact, outside);
        for (home, subject) in sockets_of {
            self.shared(*home, subject);
        }
        let now = self.now;
        let Some(state) = self.subjects.get_mut(&own) else { return };
        if outside || candidate.is_ns_init() {
            fact.cgroups.iter().for_each(|(cgroup, _)| _ = state.arm(own, *cgroup));
            state.learn(candidate);
        }
        if state.announces(now, fact.start) {
            out.push(SubjectEvent::Seen {
                own,
                subject: state.subject.clone(),
                start: fact.start,
            });
        }
        self.reschedule(own, out);
    }

    /// Adds a fact about sockets: a busy server's connections do not keep a timeline from being idle.
    fn keep_socket(&mut self, own: CgroupId, out: &mut Vec<SubjectEvent>, add: impl FnOnce(&mut State) -> bool) {
        let touched = self.subjects.get(&own).is_some_and(|state| state.listed.touched.is_some());
        if !touched {
            return self.keep(own, out, add);
        }
        let Some(state) = self.subjects.get_mut(&own) else { return };
        self.drops.facts += u64::from(!add(state));
    }

    /// Adds a fact to a subject's timeline, and updates the subject's timer.
    pub(super) fn keep(&mut self, own: CgroupId, out: &mut Vec<SubjectEvent>, add: impl FnOnce(&mut State) -> bool) {
        let Some(state) = self.subjects.get_mut(&own) else { return };
        self.drops.facts += u64::from(!add(state));
        let now = self.now;
        if state.timeline.is_some() && state.listed.touched.is_none_or(|touched| now.since(touched) >= TOUCH) {
            if let Some(touched) = state.listed.touched.replace(now) {
                self.touched.remove(&(touched, own));
            }
            self.touched.insert((now, own));
        }
        self.due.set(own, state, &self.limits, out);
    }
}
