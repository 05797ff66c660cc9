//! Evidence that reached the core and was dropped here: what it could have shown is unknown afterwards, for the subjects that it could
//! have concerned, and for no other.

use crate::event::Kind;
use crate::time::Boot;

/// First and last time of dropped evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
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

/// Dropped evidence of one subject, by kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts(Vec<(Kind, Span, u64)>);

impl Doubts {
    pub fn add(&mut self, kind: Kind, span: Span, count: u64) {
        match self.0.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, known, sum)) => (*known, *sum) = (known.and(span), sum.saturating_add(count)),
            None => self.0.push((kind, span, count)),
        }
    }

    /// The kinds of which records between the two were dropped, with the number.
    pub fn within(&self, from: Boot, to: Boot) -> impl Iterator<Item = (Kind, u64)> {
        let overlaps = move |(_, span, _): &&(Kind, Span, u64)| span.overlaps(from, to);
        self.0.iter().filter(overlaps).map(|&(kind, _, count)| (kind, count))
    }

    pub fn expire(&mut self, before: Boot) {
        self.0.retain(|(_, span, _)| span.last > before);
    }

    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(Kind, Span, u64)>()
    }
}
