//! Between the two layers: which containers the first one shows to the second, and which the second one wants watched.

use std::sync::Arc;

use crate::attribute::Subject;
use crate::ids::CgroupId;
use crate::pod::{PodFact, PodGone, PodsState};
use crate::report::{Answers, Command, Report};
use crate::termination::Open;
use crate::time::Boot;

use super::{Correlator, SubjectEvent, finish};

impl Correlator {
    /// What the first layer said, with what the second one makes of it; `until` as for the timers.
    pub(super) fn second_layer(&mut self, until: Boot, events: Vec<SubjectEvent>) -> Answers {
        let mut answers = std::mem::take(&mut self.said);
        for event in events {
            if let SubjectEvent::Finished(cgroup) = event {
                answers.commands.push(Command::Forget(cgroup));
            } else {
                self.pods.take(self.now, event, &mut answers.reports);
            }
        }
        if !self.pods.is_active() {
            return answers;
        }
        self.pods.run_timers(until, &self.boot_id, &mut answers.reports);
        for own in self.pods.take_overdue() {
            answers.reports.extend(self.overdue(own));
        }
        answers
    }

    /// Its grace is long over: judged as if nothing were seen of it any more, and told again when it ends.
    fn overdue(&mut self, own: CgroupId) -> Option<Report> {
        let state = self.subjects.get(&own)?;
        let known = finish::termination(&self.context(), own, state, Open::ObservationEnded, self.now)?;
        self.pods.stuck(self.now, known)
    }

    pub(super) fn pods_state(&mut self, state: PodsState) {
        let was_active = self.pods.is_active();
        self.pods.state(self.now, state);
        if was_active {
            return;
        }
        let mut known: Vec<(Boot, CgroupId)> = self
            .subjects
            .iter()
            .filter(|(_, state)| matches!(state.subject, Subject::Container { .. }))
            .map(|(own, state)| (state.candidates.iter().map(|of| of.id.start).min().unwrap_or(self.now), *own))
            .collect();
        known.sort_unstable();
        for (start, own) in known {
            self.seen_in(own, start);
        }
    }

    pub(super) fn pod(&mut self, fact: Arc<PodFact>) {
        for own in self.pods.pod(self.now, fact, &mut self.said.reports) {
            self.request(own);
        }
    }

    pub(super) fn pod_gone(&mut self, gone: PodGone) {
        for own in self.pods.gone(self.now, gone) {
            self.request(own);
        }
    }

    /// A process that began then was seen in a subject.
    pub(super) fn seen_in(&mut self, own: CgroupId, start: Boot) {
        if !self.pods.is_active() {
            return;
        }
        let Some(state) = self.subjects.get(&own) else { return };
        if self
            .pods
            .container(self.now, own, &state.subject, start, &mut self.said.reports)
        {
            self.request(own);
        }
    }

    /// Its pod is being deleted: what clients see counts from now on.
    fn request(&mut self, own: CgroupId) {
        let Some(state) = self.subjects.get_mut(&own) else { return };
        if state.requested.is_none() {
            state.requested = Some(self.now);
            self.said.commands.extend(state.cgroups.iter().copied().map(Command::Watch));
        }
    }
}
