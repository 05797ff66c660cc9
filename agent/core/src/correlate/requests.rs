//! Between the two layers: which containers the first one shows to the second, and which the second one wants watched.

use std::sync::Arc;

use crate::attribute::Subject;
use crate::event::{Boot, CgroupId};
use crate::pod::{PodFact, PodGone, PodsState};
use crate::termination::Output;
use crate::verdict::judge::Open;

use super::{Correlator, finish};

impl Correlator {
    /// What the first layer said, with what the second one makes of it; `until` as for the timers.
    pub(super) fn second_layer(&mut self, until: Boot, outputs: Vec<Output>) -> Vec<Output> {
        let mut out = std::mem::take(&mut self.said);
        if !self.pods.is_active() {
            out.extend(outputs);
            return out;
        }
        out.extend(self.pods.take(self.now, outputs));
        self.pods.run_timers(until, &self.boot_id, &mut out);
        for own in self.pods.take_overdue() {
            out.extend(self.overdue(own));
        }
        out
    }

    /// Its grace is long over: judged as if nothing were seen of it any more, and told again when it ends.
    fn overdue(&mut self, own: CgroupId) -> Option<Output> {
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
        for own in self.pods.pod(self.now, fact, &mut self.said) {
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
        if self.pods.container(self.now, own, &state.subject, start, &mut self.said) {
            self.request(own);
        }
    }

    /// Its pod is being deleted: what clients see counts from now on.
    fn request(&mut self, own: CgroupId) {
        let Some(state) = self.subjects.get_mut(&own) else { return };
        if state.requested.is_none() {
            state.requested = Some(self.now);
            self.said.extend(state.cgroups.iter().copied().map(Output::Watch));
        }
    }
}
