//! Timers of a subject: its facts are assembled, its next life begins, or its facts expire.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::CgroupId;
use crate::termination::Open;
use crate::time::Boot;

use super::due::end_due;
use super::event::SubjectEvent;
use super::process::{Candidate, ProcessId};
use super::subject::State;
use super::{Subjects, finish, traffic};
use crate::correlate::Limits;
use crate::correlate::attribution::Attributor;
use crate::tolerances::{CLIENTS_SWEEP, KEEP_FINISHED, OWN_WATCH, TOUCH, WATCH};

/// Most finished subjects that are remembered. Without it a late event makes a subject again: without a main process and a stop signal
/// there is no termination, and both come before the removal of the cgroup.
const GONE: usize = 1_024;

impl Subjects {
    pub(super) fn reschedule(&mut self, own: CgroupId, out: &mut Vec<SubjectEvent>) {
        if let Some(state) = self.subjects.get_mut(&own) {
            self.due.set(own, state, &self.limits, out);
        }
    }

    /// Runs the timers that are due. `until`: terminations that are due by then are assembled.
    #[inline]
    pub fn run_timers(&mut self, now: Boot, until: Boot, around: &Attributor, out: &mut Vec<SubjectEvent>) {
        self.now = now;
        // Twice for each kernel record: nearly always nothing is due.
        if self.due.is_any(now) || self.touched.len() > self.limits.timelines {
            self.run_due(until, around, out);
        }
    }

    #[inline(never)]
    fn run_due(&mut self, until: Boot, around: &Attributor, out: &mut Vec<SubjectEvent>) {
        while let Some((due, own)) = self.due.first() {
            if due > until {
                break;
            }
            self.fire(own, until, around, out);
        }
        while let Some(&(touched, own)) = self.touched.first() {
            if touched.plus(self.limits.idle) > self.now {
                break;
            }
            self.expire(touched, own, out);
        }
        while let Some(&(armed, own)) = self.armed.first() {
            // A subject that stays armed is listed anew, at this time: at the end of time that is due, too.
            if armed >= self.now || armed.plus(self.watch()) > self.now {
                break;
            }
            self.armed.remove(&(armed, own));
            self.let_go(own, armed.plus(self.watch()), out);
        }
        if self.now.since(self.clients.swept) >= CLIENTS_SWEEP {
            self.sweep_clients();
        }
        while self.touched.len() > self.limits.timelines {
            let least = self.missed.least(&mut self.subjects, self.now, self.limits.reorder);
            let Some(least) = least else { break };
            self.drops.timelines += 1;
            self.finish(least, Open::TimelineCap, around, out);
        }
        let first = |set: &BTreeSet<(Boot, CgroupId)>, after: Duration| set.first().map(|(at, _)| at.plus(after));
        let timers = [first(&self.touched, self.limits.idle), first(&self.armed, self.watch())];
        // What is touched or armed from now on is not due earlier than this.
        let later = self.now.plus(self.watch()).min(self.clients.swept.plus(CLIENTS_SWEEP));
        self.due.not_before(timers.into_iter().flatten().fold(later, Boot::min));
    }

    /// The kernel watches the subject's sockets for so long, unless it does for longer. False: nothing changed.
    pub(super) fn watch_for(&mut self, time: Duration, own: CgroupId) -> bool {
        // As if armed earlier, where that is shorter than usual.
        let as_of = self.now.minus(self.watch().saturating_sub(time));
        let due = as_of.plus(self.watch());
        let Some(state) = self.subjects.get_mut(&own) else {
            return false;
        };
        let is_longer = state.listed.armed.is_none_or(|armed| as_of.since(armed) >= TOUCH);
        if is_longer {
            if let Some(armed) = state.listed.armed.replace(as_of) {
                self.armed.remove(&(armed, own));
            }
            self.armed.insert((as_of, own));
            self.due.soon(due);
        }
        is_longer
    }

    /// How long the kernel watches sockets for nothing.
    pub(super) fn watch(&self) -> Duration {
        WATCH.min(self.limits.idle)
    }

    /// Without a termination in progress nothing that a client met concerns one: no termination begins earlier than it is known to
    /// begin, except for the reorder window.
    fn sweep_clients(&mut self) {
        self.clients.swept = self.now;
        let concerns = |state: &State| state.timeline.is_some() || state.requested.is_some() || state.listed.due.is_some();
        let concerns = self.subjects.values().any(concerns);
        let age = if concerns {
            self.limits.idle
        } else {
            CLIENTS_SWEEP.max(2 * self.limits.reorder)
        };
        self.clients.expire(self.now.minus(age), concerns);
    }

    /// A subject's timer fired: a child's OOM kill is reported, or a termination is assembled.
    fn fire(&mut self, own: CgroupId, until: Boot, around: &Attributor, out: &mut Vec<SubjectEvent>) {
        let Some(state) = self.subjects.get_mut(&own) else {
            self.due.forget(own);
            return;
        };
        report_ooms(state, until, &self.limits, out);
        if state.suspect.is_some_and(|at| at <= until) {
            state.suspect = None;
            self.warn_late(own, out);
        }
        let Some(state) = self.subjects.get(&own) else { return };
        match end_due(state, &self.limits) {
            Some(due) if due <= until => self.finish(own, Open::CgroupRemoved, around, out),
            due => {
                self.reschedule(own, out);
                if let Some(until) = due {
                    out.push(SubjectEvent::CountsUntil { own, until });
                }
            }
        }
    }

    /// Reports that a stop signal was discarded on its way inside, or when the main process raised it again.
    fn warn_late(&mut self, own: CgroupId, out: &mut Vec<SubjectEvent>) {
        let discarded = self.subjects.get(&own).and_then(|state| finish::discarded(state, self.now));
        if let Some((main, at, stop, sentence)) = discarded {
            self.warn_once(own, &main, at, &stop, sentence, out);
        }
    }

    /// Assembles the facts of a termination and begins the subject's next life, if it has one.
    pub(super) fn finish(&mut self, own: CgroupId, open: Open, around: &Attributor, out: &mut Vec<SubjectEvent>) {
        let Some(mut state) = self.subjects.remove(&own) else { return };
        self.unlist(own, &mut state);
        self.weights.remove(own, &mut state);
        let context = self.context(around);
        if state.is_step(self.limits.linger) && !finish::may_have_been_stopped(context.ledger(own, &state), &state) {
            return self.step(own, state, out);
        }
        state.join_early();
        let facts = finish::facts(&context, own, &state, open, self.now);
        let is_told = facts.is_some();
        out.extend(facts.map(|facts| SubjectEvent::Ended(Box::new(facts))));
        let end = state.main().and_then(|main| main.exit_at());
        match (open, end) {
            (Open::ObservationEnded | Open::NodeDown { .. }, _) => {
                if is_told {
                    state.let_go(own, self.now, out);
                }
            }
            (_, Some(end)) => {
                self.begin_again(own, state, end, out);
            }
            // Removed without an exit: no termination can follow.
            (Open::CgroupRemoved, None) => {
                if is_told {
                    state.let_go(own, self.now, out);
                }
                self.forget(own);
            }
            (Open::InGap { until, .. }, None) => {
                state.finished = state.main().map(|main| (main.id, self.now));
                // What ended before has been reported, or was a nested container.
                state
                    .candidates
                    .retain(|candidate| candidate.exit_at().is_some_and(|at| at >= until));
                state.timeline = None;
                self.release(own, &mut state, out);
                self.relist(own, state, out);
            }
            (Open::TimelineCap, None) => {
                // The exit is still to come, and is judged without these facts.
                state.drop_timeline(self.now);
                if is_told {
                    self.release(own, &mut state, out);
                }
                self.relist(own, state, out);
            }
        }
    }

    /// Forgets a process that was only a step of the subject, and looks at the next process.
    fn step(&mut self, own: CgroupId, mut state: State, out: &mut Vec<SubjectEvent>) {
        let Some((main, end)) = state.main().and_then(|main| Some((main.id, main.exit_at()?))) else {
            return;
        };
        if state.removed.is_some() {
            return self.begin_again(own, state, end, out);
        }
        let goes_on = |other: &mut Candidate| !other.id.same(&main) && (other.exit.is_none() || other.is_after(end));
        state.candidates.retain(goes_on);
        self.release(own, &mut state, out);
        self.relist(own, state, out);
    }

    /// Keeps the facts of the subject's next life: those of processes that began after the exit.
    fn begin_again(&mut self, own: CgroupId, mut state: State, end: Boot, out: &mut Vec<SubjectEvent>) {
        let main = state.main().map(|main| main.id);
        // Contradictory times (a recording can contain any) must not keep a removed subject among the live ones.
        state.suspect = None;
        let is_main = |id: &ProcessId| main.is_some_and(|main| main.same(id));
        state
            .candidates
            .retain(|candidate| candidate.is_after(end) && !is_main(&candidate.id));
        let known: Vec<ProcessId> = state.candidates.iter().map(|candidate| candidate.id).collect();
        let is_next = |id: &ProcessId| id.is_after(end) && !is_main(id) || known.iter().any(|next| next.same(id));
        state.exits.retain(|(_, exit)| is_next(&ProcessId::of(&exit.task)));
        state.begin_again(end, is_next);
        state.finished = main.map(|id| (id, end));
        let next = state.candidates.iter().map(|candidate| candidate.id.start.max(end)).min();
        if let Some(mut timeline) = state.timeline.take() {
            timeline.signals.retain(|fact| is_next(&ProcessId::of(&fact.signal.target)));
            timeline
                .delivers
                .retain(|(_, deliver)| is_next(&ProcessId::of(&deliver.task)));
            timeline.ooms.retain(|fact| is_next(&fact.victim));
            timeline.inside.retain(is_next);
            match next {
                Some(next) => timeline.sockets.expire(next),
                None => timeline.sockets = traffic::Sockets::default(),
            }
            (timeline.over_cap, timeline.over_cap_matters) = (0, false);
            if !timeline.is_empty() {
                state.timeline = Some(timeline);
            }
        }
        self.release(own, &mut state, out);
        // A removed cgroup stays for late events until the index forgets the cgroup: then no event can be attributed to it.
        let over = state
            .removed
            .is_some_and(|removed| removed.plus(self.limits.linger) <= self.now);
        if over && state.candidates.is_empty() && state.timeline.is_none() {
            return self.forget(own);
        }
        self.relist(own, state, out);
    }

    fn forget(&mut self, own: CgroupId) {
        self.slim();
        self.gone.push_back((self.now, own));
        while self.gone.len() > GONE || self.gone.front().is_some_and(|(at, _)| at.plus(KEEP_FINISHED) <= self.now) {
            self.gone.pop_front();
        }
    }

    pub(super) fn unlist(&mut self, own: CgroupId, state: &mut State) {
        self.due.remove(own, state);
        if let Some(touched) = state.listed.touched.take() {
            self.touched.remove(&(touched, own));
        }
        self.missed.remove(own, state);
        if let Some(armed) = state.listed.armed {
            self.armed.remove(&(armed, own));
        }
    }

    /// Puts a subject back after its facts were assembled.
    fn relist(&mut self, own: CgroupId, mut state: State, out: &mut Vec<SubjectEvent>) {
        if state.timeline.is_some() {
            state.listed.touched = Some(self.now);
            self.touched.insert((self.now, own));
        }
        if let Some(armed) = state.listed.armed {
            self.armed.insert((armed, own));
            self.due.soon(armed.plus(self.watch()));
        }
        self.subjects.insert(own, state);
        self.reschedule(own, out);
        self.weigh(own);
    }

    /// The reason to watch the sockets (a failed or killed health check or worker) is long ago: the facts stay, and the kernel stops
    /// watching the sockets of a healthy subject, but not of one that is being stopped.
    fn let_go(&mut self, own: CgroupId, due: Boot, out: &mut Vec<SubjectEvent>) {
        let Some(state) = self.subjects.get_mut(&own) else { return };
        state.listed.armed = None;
        if end_due(state, &self.limits).is_some() {
            // The termination releases the sockets; if the exit was only a step, this timer does.
            self.watch_for(self.watch(), own);
        } else if state.is_stopping() || state.requested.is_some() {
            // The termination releases the sockets.
        } else if self.observing.observes_followed && state.may_be_followed(due) {
            self.watch_for(OWN_WATCH, own);
        } else {
            state.forget_sockets(self.now);
            state.let_go(own, self.now, out);
        }
    }

    /// No event for a long time: the facts expire.
    fn expire(&mut self, touched: Boot, own: CgroupId, out: &mut Vec<SubjectEvent>) {
        self.touched.remove(&(touched, own));
        let before = self.now.minus(self.limits.idle);
        let Some(state) = self.subjects.get_mut(&own) else { return };
        state.listed.touched = None;
        self.missed.remove(own, state);
        if let Some(timeline) = &mut state.timeline {
            timeline.expire(before);
            if timeline.is_empty() && state.requested.is_none() {
                state.timeline = None;
                state.let_go(own, self.now, out);
            }
        }
        self.reschedule(own, out);
        self.weigh(own);
    }

    /// No more input: exits are assembled, and stops in progress as far as they were observed. `open`: why there is no more.
    pub fn end(&mut self, now: Boot, open: Open, around: &Attributor, out: &mut Vec<SubjectEvent>) {
        self.now = now;
        let mut all: Vec<(Boot, CgroupId)> = self
            .subjects
            .iter()
            .map(|(own, state)| (state.listed.due.unwrap_or(Boot(u64::MAX)), *own))
            .collect();
        all.sort_unstable();
        for (_, own) in all {
            // Several lives may have terminated.
            while self
                .subjects
                .get(&own)
                .is_some_and(|state| end_due(state, &self.limits).is_some())
            {
                self.finish(own, Open::CgroupRemoved, around, out);
            }
            self.finish(own, open, around, out);
        }
    }
}

/// A child's OOM kill is reported separately if the main process continues.
fn report_ooms(state: &mut State, now: Boot, limits: &Limits, out: &mut Vec<SubjectEvent>) {
    let main = state.main();
    let lives = main.is_some_and(|main| main.exit.is_none()) && state.removed.is_none();
    let Some(timeline) = &mut state.timeline else { return };
    let is_main = |victim: &ProcessId| main.is_some_and(|main| main.id.same(victim));
    let main_dies = timeline.ooms.iter().any(|fact| is_main(&fact.victim));
    for fact in timeline
        .ooms
        .iter_mut()
        .filter(|fact| !fact.reported && fact.at.plus(limits.reorder) <= now)
    {
        fact.reported = true;
        if lives && !main_dies {
            out.push(SubjectEvent::ChildOomKilled {
                subject: state.subject.clone(),
                container: None,
                main: main.map(|main| main.id),
                oom: fact.kill(main.as_ref(), &state.exits),
            });
        }
    }
}
