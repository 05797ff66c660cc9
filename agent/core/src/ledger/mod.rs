//! What is known of the evidence of one subject, and what may be missing.
//!
//! [`Coverage`] is of the whole observation, [`Drops`] are one subject's. A [`Ledger`] joins both for one subject, and is their only reader.
//! What a timeline itself dropped, it counts.

mod coverage;
mod drops;
mod hole;
mod missing;
mod place;

use std::time::Duration;

use crate::event::Kind;
use crate::input::SeenClients;
use crate::time::Boot;
use coverage::Loss;

pub use hole::{Hole, Origin, Whose};
pub use missing::{Claim, MissingEvidence, not_kept};

pub(crate) use coverage::Coverage;
pub(crate) use drops::{Drops, Span};
pub(crate) use hole::merged;
pub(crate) use place::{Home, LossPlace};

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct Ledger<'a> {
    coverage: &'a Coverage,
    home: Home<'a>,
    drops: &'a Drops,
}

impl<'a> Ledger<'a> {
    pub fn new(coverage: &'a Coverage, home: Home<'a>, drops: &'a Drops) -> Ledger<'a> {
        Ledger { coverage, home, drops }
    }

    /// Records between the two that may be lost or dropped, of any of the subject's processes.
    pub fn of_all(self, from: Boot, to: Boot) -> impl Iterator<Item = &'a Hole> {
        let losses = self.losses(from, to).map(|loss| &loss.hole);
        losses.chain(self.drops.holes().filter(move |hole| hole.overlaps(from, to)))
    }

    fn losses(self, from: Boot, to: Boot) -> impl Iterator<Item = &'a Loss> {
        let in_time = self.coverage.losses().filter(move |loss| loss.hole.overlaps(from, to));
        in_time.filter(move |loss| loss.place.concerns(self.home))
    }

    /// Those of them that can be the main process's.
    pub fn of_main(self, from: Boot, to: Boot) -> impl Iterator<Item = &'a Hole> {
        self.of_all(from, to).filter(|hole| hole.whose == Whose::Any)
    }

    /// Why records of that kind between the two may be missing, of any of the subject's processes: one that was lost or dropped, a gap, or a
    /// probe that is not active.
    pub fn holes(self, kind: Kind, from: Boot, to: Boot) -> impl Iterator<Item = Hole> {
        let gaps = self.gaps_between(from, to).copied();
        let lost = self.of_all(from, to).copied().filter(move |hole| hole.is_of(kind));
        gaps.chain(lost).chain(self.unseen(kind, from))
    }

    pub fn may_lack(self, kind: Kind, from: Boot, to: Boot) -> bool {
        self.holes(kind, from, to).next().is_some()
    }

    /// When the first record of that kind, of the main process, may have been lost or dropped between the two.
    pub fn lost_since(self, kind: Kind, from: Boot, to: Boot) -> Option<Boot> {
        let of_kind = self.of_main(from, to).filter(|hole| hole.is_of(kind));
        of_kind.map(|hole| hole.from.max(from)).min()
    }

    /// The last begin of the observation.
    pub fn last_start(self) -> Option<Boot> {
        self.coverage.gaps().filter_map(|gap| gap.to).max()
    }

    /// Exits of other processes that were dropped, on which nothing rests but the way of a stop signal inside.
    pub fn dropped_exits(self) -> Option<&'a Hole> {
        self.drops.exits()
    }

    /// The number of [`Ledger::of_main`], and the time in which they were lost, if all are of the subject's own processes.
    pub fn own_lost(self, from: Boot, to: Boot) -> Option<(u64, Duration)> {
        let mut sum: Option<Hole> = None;
        for loss in self.losses(from, to).filter(|loss| loss.hole.whose == Whose::Any) {
            if loss.hole.why != Origin::Lost || !loss.place.is_in(self.home) {
                return None;
            }
            match &mut sum {
                Some(sum) => sum.extend(&loss.hole),
                None => sum = Some(loss.hole),
            }
        }
        sum.and_then(|sum| Some((sum.most?, sum.to?.since(sum.from))))
    }

    /// A part of that time that was not observed.
    pub fn gap(self, from: Boot, to: Boot) -> Option<Hole> {
        self.gaps_between(from, to).next().copied()
    }

    /// The gaps in the life of a process that started at `born`, which ended no longer before that end than `reach`: so shortly that a stop
    /// signal of then may be the reason for it.
    pub fn late_gaps(self, born: Boot, end: Boot, reach: Duration) -> impl Iterator<Item = &'a Hole> {
        let is_late = move |to: Boot| born < to && to.plus(reach) > end && to <= end;
        self.coverage.gaps().filter(move |gap| gap.to.is_some_and(is_late))
    }

    /// The gaps between the two.
    pub fn gaps_between(self, from: Boot, to: Boot) -> impl Iterator<Item = &'a Hole> {
        self.coverage.gaps().filter(move |gap| gap.overlaps(from, to))
    }

    /// The gap in which a process began that started then, the one before the first observation included.
    pub fn began_in(self, start: Boot) -> Option<&'a Hole> {
        let is_in = |gap: &&Hole| gap.from <= start && gap.to.is_none_or(|to| start < to);
        self.coverage.gaps().find(is_in)
    }

    /// The probe that makes such records is active, or another stands in.
    pub fn sees(self, kind: Kind) -> bool {
        self.coverage.sees(kind)
    }

    /// What the probe of such records would have shown from then on, if it is not active.
    pub fn unseen(self, kind: Kind, from: Boot) -> Option<Hole> {
        (!self.sees(kind)).then(|| Hole {
            why: Origin::Inactive,
            kind: Some(kind),
            ..Hole::gap(from, None)
        })
    }

    pub fn sees_sockets(self) -> bool {
        self.coverage.sees_sockets()
    }

    /// A refused connection of any client is recorded.
    pub fn sees_all_clients(self) -> bool {
        self.coverage.refused_clients() == SeenClients::All
    }

    pub fn inactive_probes(self) -> Vec<String> {
        self.coverage.inactive_probes()
    }
}

#[cfg(test)]
mod tests;
