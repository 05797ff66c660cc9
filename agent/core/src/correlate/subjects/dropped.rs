//! Evidence that reached the core and was dropped here: what it could have shown is unknown afterwards, for the subjects that it could
//! have concerned, and for no other.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::CgroupId;
use crate::ledger::{Hole, Origin, Span};
use crate::time::Boot;

use super::subject::{EVIDENCE, State};

/// Most doubts about cgroups that are not known yet.
const EARLY: usize = 1_024;

/// Doubts about subjects that are not known yet.
#[derive(Debug, Default)]
pub(super) struct EarlyDoubts {
    /// The oldest first.
    of_cgroups: VecDeque<EarlyDoubt>,
    /// When there was no room for a subject: a subject that is known only since then may have had events before.
    refused: Option<Span>,
}

/// A doubt about a cgroup that is no subject's yet.
#[derive(Clone, Copy, Debug)]
struct EarlyDoubt {
    came: Boot,
    own: CgroupId,
    hole: Hole,
}

impl EarlyDoubts {
    /// Returns what there is no more room for: it may concern any subject.
    pub fn add(&mut self, (came, own): (Boot, CgroupId), hole: Hole, reorder: Duration) -> Option<Hole> {
        if !own.is_known() {
            return None;
        }
        // The record of the cgroup's creation may be late, and a look-up was answered at once: later the cgroup cannot become known.
        let keep = 2 * reorder;
        while self.of_cgroups.front().is_some_and(|early| early.came.plus(keep) < came) {
            self.of_cgroups.pop_front();
        }
        let is_same =
            |early: &&mut EarlyDoubt| early.own == own && early.hole.is_like(&hole) && came.since(early.came) < reorder;
        if let Some(known) = self.of_cgroups.iter_mut().rev().find(is_same) {
            known.hole.extend(&hole);
            return None;
        }
        let oldest = (self.of_cgroups.len() >= EARLY)
            .then(|| self.of_cgroups.pop_front())
            .flatten();
        self.of_cgroups.push_back(EarlyDoubt { came, own, hole });
        oldest.map(|oldest| Hole {
            to: Some(came),
            why: Origin::Lost,
            ..oldest.hole
        })
    }

    /// There was no room for a subject.
    pub fn refuse(&mut self, now: Boot) {
        self.refused = Some(Span::around(self.refused, now));
    }

    /// The doubts about a subject that becomes known.
    pub fn doubt_new(&self, own: CgroupId, state: &mut State) {
        for early in self.of_cgroups.iter().filter(|early| early.own == own) {
            state.rare_mut().drops.add(early.hole);
        }
        if let Some(refused) = self.refused {
            state.rare_mut().drops.add_each(&EVIDENCE, refused, 1);
        }
    }
}
