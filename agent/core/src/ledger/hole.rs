//! A hole: a time in which evidence may be missing, and which.

use crate::event::Kind;
use crate::time::Boot;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hole {
    pub why: Origin,
    /// None: records of any kind.
    pub kind: Option<Kind>,
    pub whose: Whose,
    pub from: Boot,
    /// None: the end is not known.
    pub to: Option<Boot>,
    /// Most records that are missing. None: any number.
    pub most: Option<u64>,
}

/// Where a hole comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Nobody observed.
    Gap,
    /// The kernel could not write the record, or the record was lost on its way.
    Lost,
    /// The record reached the core, which had no room for it.
    Dropped,
    /// The recording begins later.
    NotRecorded,
    /// A part of the recording or of the journal is damaged or missing.
    Damaged,
    /// The probe was not active.
    Inactive,
}

/// The processes that a hole concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    Any,
    /// Others than the first ones: what became of a stop signal inside.
    Others,
}

impl Hole {
    pub fn gap(from: Boot, to: Option<Boot>) -> Hole {
        Hole {
            why: Origin::Gap,
            kind: None,
            whose: Whose::Any,
            from,
            to,
            most: None,
        }
    }

    /// Facts of any kind that one timeline had no room for.
    pub fn over_cap(from: Boot, to: Boot) -> Hole {
        Hole {
            why: Origin::Dropped,
            ..Hole::gap(from, Some(to))
        }
    }

    pub fn of(why: Origin, kind: Kind, from: Boot, to: Boot, most: u64) -> Hole {
        Hole {
            kind: Some(kind),
            most: Some(most),
            why,
            ..Hole::gap(from, Some(to))
        }
    }

    pub fn is_of(&self, kind: Kind) -> bool {
        self.kind.is_none_or(|of| of == kind)
    }

    /// Whether a record between the two may be missing.
    pub fn overlaps(&self, from: Boot, to: Boot) -> bool {
        match self.why {
            // At both ends somebody observed.
            Origin::Gap => self.from < to && self.to.is_none_or(|end| end > from),
            _ => self.from <= to && self.to.is_none_or(|end| end >= from),
        }
    }

    /// May hide what came after that time. What a gap was over by is left to what was observed since.
    pub fn reaches(&self, at: Boot) -> bool {
        self.why != Origin::Gap || self.to.is_none_or(|to| to > at)
    }

    /// May hide that something came before that time.
    pub fn hides_before(&self, at: Boot) -> bool {
        self.from < at && self.reaches(at)
    }

    pub fn is_like(&self, other: &Hole) -> bool {
        (self.why, self.kind, self.whose) == (other.why, other.kind, other.whose)
    }

    /// With another hole of the same records.
    pub fn extend(&mut self, other: &Hole) {
        self.from = self.from.min(other.from);
        self.to = self.to.zip(other.to).map(|(own, other)| own.max(other));
        self.most = self.most.zip(other.most).map(|(own, other)| own.saturating_add(other));
    }
}

/// Adds a hole: those of the same records are one, so of many losses a few remain. Between two gaps somebody observed.
pub(super) fn join(holes: &mut Vec<Hole>, hole: Hole) {
    let is_loss = hole.why != Origin::Gap;
    match holes.iter_mut().find(|known| is_loss && known.is_like(&hole)) {
        Some(known) => known.extend(&hole),
        None => holes.push(hole),
    }
}

pub(crate) fn merged(holes: impl Iterator<Item = Hole>) -> Vec<Hole> {
    let mut merged = Vec::new();
    holes.for_each(|hole| join(&mut merged, hole));
    merged
}
