//! Evidence of one subject that reached the core and was dropped here.

use super::hole::join;
use super::{Hole, Origin};
use crate::event::Kind;
use crate::time::Boot;

/// A time from its first to its last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub first: Boot,
    pub last: Boot,
}

impl Span {
    pub fn at(at: Boot) -> Span {
        Span { first: at, last: at }
    }

    pub fn around(known: Option<Span>, at: Boot) -> Span {
        known.map_or(Span::at(at), |known| known.and(Span::at(at)))
    }

    pub fn and(self, other: Span) -> Span {
        Span {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }

    pub fn overlaps(self, from: Boot, to: Boot) -> bool {
        self.first <= to && self.last >= from
    }
}

/// One hole for the same records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drops {
    holes: Vec<Hole>,
    /// All exits that were dropped since the timeline began.
    exits: Option<Hole>,
}

impl Drops {
    pub const NONE: Drops = Drops {
        holes: Vec::new(),
        exits: None,
    };

    pub fn add(&mut self, hole: Hole) {
        join(&mut self.holes, hole);
    }

    /// Of another process than the main one. `matters`: also without a stop signal that it got.
    pub fn exit(&mut self, at: Boot, matters: bool) {
        let hole = Hole::of(Origin::Dropped, Kind::ProcessExit, at, at, 1);
        match &mut self.exits {
            Some(known) => known.extend(&hole),
            None => self.exits = Some(hole),
        }
        if matters {
            self.add(hole);
        }
    }

    pub fn exits(&self) -> Option<&Hole> {
        self.exits.as_ref()
    }

    /// Of each of these kinds.
    pub fn add_each(&mut self, kinds: &[Kind], time: Span, most: u64) {
        for kind in kinds {
            self.add(Hole::of(Origin::Dropped, *kind, time.first, time.last, most));
        }
    }

    pub(super) fn holes(&self) -> impl Iterator<Item = &Hole> {
        self.holes.iter()
    }

    /// What concerns the life that ended then is over.
    pub fn expire(&mut self, end: Boot) {
        self.holes.retain(|hole| hole.to.is_none_or(|to| to > end));
        self.exits = None;
    }

    pub fn bytes(&self) -> usize {
        self.holes.capacity() * size_of::<Hole>()
    }
}
