//! When something of a subject is due.

use std::collections::BTreeSet;

use crate::correlate::Limits;
use crate::ids::CgroupId;
use crate::time::Boot;
use crate::tolerances::{STAGE_WAIT, UNITS_OTHERS};

use super::event::SubjectEvent;
use super::subject::{Others, State};

/// The timers of the subjects.
#[derive(Debug, Default)]
pub(super) struct Due {
    order: BTreeSet<(Boot, CgroupId)>,
    /// Before this no timer is due, and nothing expires.
    next: Boot,
}

impl Due {
    /// Sets the subject's timer anew after a change.
    pub fn set(&mut self, own: CgroupId, state: &mut State, limits: &Limits, out: &mut Vec<SubjectEvent>) {
        let due = next_due(state, limits);
        if state.listed.due == due {
            return;
        }
        if let Some(old) = state.listed.due {
            self.order.remove(&(old, own));
        }
        if let Some(due) = due {
            self.order.insert((due, own));
            self.next = self.next.min(due);
        }
        state.listed.due = due;
        // A timer that moves before it fires emits no event, but the pod must not be reported without the container meanwhile.
        if let Some(until) = state.counted_on(limits.linger) {
            out.push(SubjectEvent::CountsUntil { own, until });
        }
    }

    pub fn remove(&mut self, own: CgroupId, state: &mut State) {
        if let Some(due) = state.listed.due.take() {
            self.order.remove(&(due, own));
        }
    }

    /// The same of a subject that is gone.
    pub fn forget(&mut self, own: CgroupId) {
        self.order.retain(|(_, known)| *known != own);
    }

    pub fn first(&self) -> Option<(Boot, CgroupId)> {
        self.order.first().copied()
    }

    /// A timer, or something else, may be due.
    pub fn is_any(&self, now: Boot) -> bool {
        now >= self.next
    }

    /// Apart from the subjects' timers nothing is due before that.
    pub fn not_before(&mut self, others: Boot) {
        self.next = self.first().map_or(others, |(first, _)| first.min(others));
    }

    /// Something is due then, apart from the subjects' timers.
    pub fn soon(&mut self, at: Boot) {
        self.next = self.next.min(at);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.order.len()
    }
}

fn next_due(state: &State, limits: &Limits) -> Option<Boot> {
    let oom = state.timeline.as_deref().and_then(|timeline| {
        let open = timeline.ooms.iter().filter(|fact| !fact.reported);
        open.map(|fact| fact.at.plus(limits.reorder)).min()
    });
    [end_due(state, limits), oom, state.suspect].into_iter().flatten().min()
}

pub(super) fn end_due(state: &State, limits: &Limits) -> Option<Boot> {
    let removed = state.removed.map(|at| at.plus(limits.reorder.max(limits.linger)));
    let exit = state.main().and_then(|main| main.exit_at());
    let due = exit.map(|at| state.counted_until(at, limits.linger));
    match (exit, due) {
        (Some(_), Some(_)) if removed.is_none() && state.may_be_stage() && state.is_named_as_stage() => None,
        (Some(at), Some(due)) if state.may_be_stage() => Some(removed.unwrap_or(at.plus(STAGE_WAIT)).max(due)),
        (Some(at), Some(due)) => Some(match state.others() {
            Others::None => due,
            Others::Exited(last) => due.max(last.plus(limits.linger)),
            // They may still be killed, or one of them is the program; the removal shows that they are gone.
            Others::Run => due.max(removed.unwrap_or(at.plus(UNITS_OTHERS))),
        }),
        _ => due.or(removed),
    }
}
