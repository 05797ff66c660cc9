//! Evidence that reached the core and was dropped here: what it could have shown is unknown afterwards, for the subjects that it could
//! have concerned, and for no other.

use crate::event::Kind;
use crate::ids::CgroupId;
use crate::ledger::{Hole, LossPlace, Origin, Span};
use crate::time::Boot;

use super::Subjects;
use super::subject::State;

/// Most doubts about cgroups that are not known yet.
const EARLY: usize = 1_024;
/// Evidence of a termination, but for the exit: without its record there is no verdict that rests on it.
pub(super) const EVIDENCE: [Kind; 4] = [Kind::SignalGenerate, Kind::SignalDeliver, Kind::OomVictim, Kind::Tcp];

/// A doubt about a cgroup that is no subject's yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyDoubt {
    came: Boot,
    own: CgroupId,
    hole: Hole,
}

impl Subjects {
    /// Records of a subject, or of something below its cgroup, were dropped: what they could have shown is unknown.
    pub(super) fn doubt(&mut self, own: CgroupId, hole: Hole) {
        if let Some(state) = self.subjects.get_mut(&own) {
            return state.rare_mut().drops.add(hole);
        }
        if !own.is_known() {
            return;
        }
        // The record of the cgroup's creation may be late, and a look-up was answered at once: later the cgroup cannot become known.
        let keep = 2 * self.limits.reorder;
        while self.early.front().is_some_and(|early| early.came.plus(keep) < self.now) {
            self.early.pop_front();
        }
        let (came, reorder) = (self.now, self.limits.reorder);
        let is_same =
            |early: &&mut EarlyDoubt| early.own == own && early.hole.is_like(&hole) && came.since(early.came) < reorder;
        if let Some(known) = self.early.iter_mut().rev().find(is_same) {
            return known.hole.extend(&hole);
        }
        if self.early.len() >= EARLY
            && let Some(oldest) = self.early.pop_front()
        {
            let (to, why) = (Some(self.now), Origin::Lost);
            self.coverage.lost(Hole { to, why, ..oldest.hole }, LossPlace::Anywhere);
        }
        self.early.push_back(EarlyDoubt { came, own, hole });
    }

    /// There was no room for a subject.
    pub(super) fn refuse(&mut self) {
        self.refused = Some(Span::around(self.refused, self.now));
    }

    /// The doubts about a subject that becomes known.
    pub(super) fn doubt_new(&mut self, own: CgroupId, state: &mut State) {
        for early in self.early.iter().filter(|early| early.own == own) {
            state.rare_mut().drops.add(early.hole);
        }
        if let Some(refused) = self.refused {
            state.rare_mut().drops.add_each(&EVIDENCE, refused, 1);
        }
    }
}
