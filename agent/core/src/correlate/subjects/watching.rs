//! Whose sockets the kernel watches, since when, and until when.

use std::iter;

use crate::attribute::Subject;
use crate::event::{Armed, Task};
use crate::ids::{CgroupId, PodUid, Signal};
use crate::time::Boot;

use super::Subjects;
use super::event::SubjectEvent;
use super::process::ProcessId;
use super::subject::State;
use crate::correlate::attribution::What;
use crate::tolerances::{OWN_EXITS_JOINED, PASSED_ON};

/// Most cgroups below a subject's own with observed sockets.
const BELOW: usize = 15;

impl Subjects {
    /// After a termination. The kernel has no watch for each life: the next one's must not end with this one's. If one has begun, the
    /// timer lets the sockets go, so that a stop signal that arrives late still finds them watched.
    pub(super) fn release(&self, own: CgroupId, state: &mut State, out: &mut Vec<SubjectEvent>) {
        if state.wants_watch() || !state.candidates.is_empty() {
            // Back in the order of timers with the subject.
            state.listed.armed.get_or_insert(self.now);
        } else {
            state.let_go(own, self.now, out);
        }
    }

    /// A record says that the kernel watched the sockets, but they were let go since: they are watched again. What happened in
    /// between was not observed, see [`State::is_watched_since`].
    pub(super) fn watch_again(&self, own: CgroupId, at: Boot, armed: Option<Armed>, out: &mut Vec<SubjectEvent>) {
        if !armed.is_some_and(Armed::is_armed) {
            return;
        }
        let Some(state) = self.subjects.get(&own) else { return };
        // At the same time, too: the command follows the record.
        let is_undone = state.rare().unwatched_at.is_some_and(|unwatched| at <= unwatched);
        if is_undone && state.wants_watch() {
            out.extend(state.cgroups(own).map(SubjectEvent::Watched));
        }
    }

    /// Whether a container of another pod than this one has exited, and what its clients meet still counts.
    pub fn has_ending_pod(&self, own: Option<&PodUid>) -> bool {
        let of_other = |subject: &Subject| matches!(subject, Subject::Container { pod: Some(pod), .. } if Some(pod) != own);
        let mut states = self.subjects.values();
        states.any(|state| of_other(&state.subject) && state.has_ended())
    }
}

/// Whether the kernel watched the sockets at this record.
pub(super) fn armed_by(what: &What<'_>) -> Option<Armed> {
    match what {
        What::Signal { signal, .. } => signal.armed,
        What::Exit(exit) => exit.armed,
        What::Oom { armed, .. } => *armed,
        _ => None,
    }
}

impl State {
    pub fn let_go(&mut self, own: CgroupId, now: Boot, out: &mut Vec<SubjectEvent>) {
        out.extend(self.cgroups(own).map(SubjectEvent::Unwatched));
        self.below.cgroups.clear();
        self.below.over = false;
        self.rare_mut().unwatched_at = Some(now);
    }

    /// The subject goes on: no termination reaches back so far.
    pub fn forget_sockets(&mut self, now: Boot) {
        if !self.wants_watch()
            && let Some(timeline) = &mut self.timeline
        {
            timeline.sockets.forget(now.minus(2 * PASSED_ON));
        }
    }

    /// False if the sockets were let go after that time: an event at that time armed sockets that were disarmed afterwards.
    pub fn is_watched_since(&self, at: Boot) -> bool {
        self.rare().unwatched_at.is_none_or(|unwatched| at >= unwatched)
    }

    /// A wrapper may still follow a program that has closed its listener: from that close on clients count. Sockets on which nothing happens
    /// make no records.
    pub fn may_be_followed(&self, at: Boot) -> bool {
        let is_recent = |last: Boot| last.plus(PASSED_ON) > at;
        let sockets = self.timeline.as_deref().map(|timeline| &timeline.sockets);
        self.rare().own_exits.recorded.last().is_some_and(is_recent)
            && sockets.is_some_and(|sockets| {
                let has_closed = !sockets.listeners().closed(|_| true).is_empty();
                has_closed && sockets.is_idle_since(at.minus(OWN_EXITS_JOINED))
            })
    }

    /// A termination is requested, in progress, or not assembled yet.
    pub fn wants_watch(&self) -> bool {
        let is_requested = self.requested.is_some() && !self.candidates.is_empty();
        self.has_ended() || is_requested || self.is_stopping()
    }

    /// The main process has exited.
    pub fn has_ended(&self) -> bool {
        self.main().is_some_and(|main| main.exit.is_some())
    }

    /// The main process got a stop signal or SIGKILL and has not exited: the sockets must be watched until the exit. If the main
    /// process is not known, any process may be the main process.
    pub fn is_stopping(&self) -> bool {
        let main = self.main();
        let has_ended = |task: &Task| self.exits.iter().any(|(_, exit)| ProcessId::of(&exit.task).is(task));
        self.signals().iter().any(|fact| {
            let target = &fact.signal.target;
            let is_fatal = fact.is_stop() || fact.signal.signal == Signal::KILL;
            is_fatal && main.map_or_else(|| !has_ended(target), |main| main.id.is(target))
        })
    }

    /// The subject's own cgroup, and those with sockets below it.
    pub fn cgroups(&self, own: CgroupId) -> impl Iterator<Item = CgroupId> {
        iter::once(own).chain(self.below.cgroups.iter().copied())
    }

    /// False: the subject has too many cgroups with sockets, and this one is not kept.
    pub fn arm(&mut self, own: CgroupId, cgroup: CgroupId) -> bool {
        // A cgroup of another hierarchy may belong to another container: its watch must not end with this subject.
        let is_below = cgroup != own && cgroup.hierarchy == own.hierarchy && cgroup.is_known();
        if !is_below || self.below.cgroups.contains(&cgroup) {
            return true;
        }
        let is_over = self.below.cgroups.len() >= BELOW;
        self.below.over |= is_over;
        if !is_over {
            self.below.cgroups.push(cgroup);
        }
        !is_over
    }
}
