//! What may be missing of one termination: the view of the holes that the judgement reads.

use super::{Hole, Origin};
use crate::event::Kind;
use crate::time::Boot;
use crate::tolerances::LATE_REACH;

/// What a hole may hide. Somebody must have looked for each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No other records of the termination: lost ones, facts that were dropped, and what inactive probes would have shown.
    Main,
    /// The same of what matters only to processes other than the main process, until the last of them was gone. A gap also in the life of a
    /// victim of the OOM killer.
    Others,
    /// No stop signal longer ago than [`Claim::Main`] reaches: as long ago as one that was seen would count. A gap ended so recently that the
    /// stop signal may have come in it.
    NoStop,
    /// The main process got no stop signal before the first one that was observed.
    FirstStop,
    /// No other process is the main process: one that began in a gap, or of such records, as that of its exec.
    WhichMain,
    /// No other program was executed in the last minutes.
    Executed,
    /// What Kubernetes knows of the pod: no version was shown, and a part of the evidence is missing.
    Pod,
}

/// Evidence that may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingEvidence {
    holes: Vec<(Claim, Hole)>,
}

impl MissingEvidence {
    pub fn add(&mut self, claim: Claim, holes: impl IntoIterator<Item = Hole>) {
        self.holes.extend(holes.into_iter().map(|hole| (claim, hole)));
    }

    pub fn retain(&mut self, claim: Claim, keep: impl Fn(&Hole) -> bool) {
        self.holes.retain(|(of, hole)| *of != claim || keep(hole));
    }

    pub fn of(&self, claim: Claim) -> impl Iterator<Item = &Hole> {
        self.holes.iter().filter(move |(of, _)| *of == claim).map(|(_, hole)| hole)
    }

    /// But for gaps of the observation.
    pub fn lost(&self, claim: Claim) -> impl Iterator<Item = &Hole> {
        self.of(claim).filter(|hole| hole.why != Origin::Gap)
    }

    pub fn has_any(&self, claim: Claim) -> bool {
        self.of(claim).next().is_some()
    }

    pub fn has_gap(&self, claim: Claim) -> bool {
        self.of(claim).any(|hole| hole.why == Origin::Gap)
    }

    /// A record of that kind may be missing.
    pub fn lacks(&self, claim: Claim, kind: Kind) -> bool {
        self.of(claim).any(|hole| hole.is_of(kind))
    }

    /// Where a first stop signal that was not observed may be.
    pub fn hidden_stops(&self) -> impl Iterator<Item = &Hole> {
        let lost = self.lost(Claim::Main).filter(|hole| hole.is_of(Kind::SignalGenerate));
        lost.chain(self.of(Claim::NoStop))
    }

    /// The process ran before the observation began at this time, so recently that an earlier stop signal is possible.
    pub fn late_start(&self) -> Option<Boot> {
        let gaps = self.of(Claim::NoStop).filter(|hole| hole.why == Origin::Gap);
        gaps.filter_map(|gap| gap.to).max()
    }

    /// The recording begins so shortly before that end that a stop signal may have come before.
    pub fn begins_late(&self, end: Boot) -> bool {
        let mut unrecorded = self.lost(Claim::Main).filter(|hole| hole.why == Origin::NotRecorded);
        unrecorded.any(|hole| hole.overlaps(end.minus(LATE_REACH), end))
    }

    /// Bytes beyond its own size.
    pub fn bytes(&self) -> usize {
        self.holes.capacity() * size_of::<(Claim, Hole)>()
    }
}

/// The kernel lost none of these: the recording begins later, or a part of it is damaged or missing. Which of the two, by all of them.
pub fn not_kept(holes: &[Hole]) -> Option<Origin> {
    let is = |whys: &[Origin]| !holes.is_empty() && holes.iter().all(|hole| whys.contains(&hole.why));
    if is(&[Origin::NotRecorded]) {
        return Some(Origin::NotRecorded);
    }
    is(&[Origin::NotRecorded, Origin::Damaged]).then_some(Origin::Damaged)
}
