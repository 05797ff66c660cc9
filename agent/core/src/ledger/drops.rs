//! Evidence of one subject that reached the core and was dropped here.

use super::{Hole, Why};
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

/// One hole for each kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drops(Vec<Hole>);

impl Drops {
    pub const NONE: Drops = Drops(Vec::new());

    pub fn add(&mut self, hole: Hole) {
        match self.0.iter_mut().find(|known| known.kind == hole.kind) {
            Some(known) => known.extend(&hole),
            None => self.0.push(hole),
        }
    }

    /// Of each of these kinds.
    pub fn add_each(&mut self, kinds: &[Kind], time: Span, most: u64) {
        for kind in kinds {
            self.add(Hole::of(Why::Dropped, *kind, time.first, time.last, most));
        }
    }

    pub(super) fn holes(&self) -> impl Iterator<Item = &Hole> {
        self.0.iter()
    }

    /// What concerns the life that ended then is over.
    pub fn expire(&mut self, end: Boot) {
        self.0.retain(|hole| hole.to.is_none_or(|to| to > end));
    }

    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Hole>()
    }
}
