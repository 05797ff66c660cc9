//! Evidence that reached the core and was dropped here: what it could have shown is unknown afterwards, for the subjects that it could
//! have concerned, and for no other.

use crate::event::Kind;
use crate::ids::CgroupId;
use crate::time::Boot;

use super::Subjects;
use super::coverage::{LossPlace, Whose};
use super::subject::State;

/// Most doubts about cgroups that are not known yet.
const EARLY: usize = 1_024;
/// Evidence of a termination, but for the exit: without its record there is no verdict that rests on it.
pub(super) const EVIDENCE: [Kind; 4] = [Kind::SignalGenerate, Kind::SignalDeliver, Kind::OomVictim, Kind::Tcp];

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

    /// From then on, without an end.
    pub fn from(at: Boot) -> Span {
        Span {
            first: at,
            last: Boot(u64::MAX),
        }
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
    pub const NONE: Doubts = Doubts(Vec::new());

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

    /// When the first of the dropped records of that kind between the two may have been written.
    pub fn since(&self, kind: Kind, from: Boot, to: Boot) -> Option<Boot> {
        let mut of_kind = self.0.iter().filter(|(known, ..)| *known == kind);
        let (_, span, _) = of_kind.find(|(_, span, _)| span.overlaps(from, to))?;
        Some(span.first.max(from))
    }

    pub fn expire(&mut self, before: Boot) {
        self.0.retain(|(_, span, _)| span.last > before);
    }

    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(Kind, Span, u64)>()
    }
}

/// A doubt about a cgroup that is no subject's yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyDoubt {
    came: Boot,
    own: CgroupId,
    kind: Kind,
    span: Span,
}

impl Subjects {
    /// Records of a subject, or of something below its cgroup, were dropped: what they could have shown is unknown.
    pub(super) fn doubt(&mut self, own: CgroupId, kind: Kind, span: Span, count: u64) {
        if let Some(state) = self.subjects.get_mut(&own) {
            return state.rare_mut().doubts.add(kind, span, count);
        }
        if !own.is_known() {
            return;
        }
        // The record of the cgroup's creation may be late, and a look-up was answered at once: later the cgroup cannot become known.
        let keep = 2 * self.limits.reorder;
        while self.early.front().is_some_and(|early| early.came.plus(keep) < self.now) {
            self.early.pop_front();
        }
        let (now, reorder) = (self.now, self.limits.reorder);
        let is_same = |early: &&mut EarlyDoubt| (early.own, early.kind) == (own, kind) && now.since(early.came) < reorder;
        if let Some(known) = self.early.iter_mut().rev().find(is_same) {
            known.span = known.span.and(span);
            return;
        }
        if self.early.len() >= EARLY
            && let Some(oldest) = self.early.pop_front()
        {
            let since = oldest.span.first;
            self.coverage
                .lost(oldest.kind, Whose::Any, LossPlace::Anywhere, since, self.now, 1);
        }
        let came = self.now;
        self.early.push_back(EarlyDoubt { came, own, kind, span });
    }

    /// There was no room for a subject.
    pub(super) fn refuse(&mut self) {
        self.refused = Some(Span::around(self.refused, self.now));
    }

    /// The doubts about a subject that becomes known.
    pub(super) fn doubt_new(&mut self, own: CgroupId, state: &mut State) {
        for early in self.early.iter().filter(|early| early.own == own) {
            state.rare_mut().doubts.add(early.kind, early.span, 1);
        }
        if let Some(refused) = self.refused {
            let doubts = &mut state.rare_mut().doubts;
            EVIDENCE.into_iter().for_each(|kind| doubts.add(kind, refused, 1));
        }
    }
}
