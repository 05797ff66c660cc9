//! What may be missing of one termination: the view of the holes that the judgement reads.

use std::time::Duration;

use super::{Hole, Origin};
use crate::event::Kind;
use crate::time::Boot;

/// Evidence that may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingEvidence {
    /// Records of the termination that were lost, or may have been; facts that were dropped, and what inactive probes would have shown.
    pub lost: Vec<Hole>,
    /// Records of signals, of longer ago than these, one of which may have been the stop signal: as long ago as one that was seen would count.
    /// Also a time without observation, which ended so recently that the stop signal may have come in it.
    pub stops: Vec<Hole>,
    /// How many of its own processes' records were lost, and in which time; None if some were, or may have been, of others.
    pub own_lost: Option<(u64, Duration)>,
    /// The same as `lost` of what matters only to processes other than the main process: until the last of them was gone.
    pub lost_inside: Vec<Hole>,
    /// A time without observation overlaps this termination.
    pub gap: bool,
    /// The same of the time in which the end of another process counts, and of the life of a victim of the OOM killer.
    pub gap_below: bool,
    /// The main process may have got a stop signal before the first one that was observed.
    pub earlier_stops: Vec<Hole>,
    /// Another process may have been the main process: in a gap, or of these records, as that of its exec.
    pub main_unsure: Vec<Hole>,
    /// The recording begins so shortly before the end that a stop signal may have come before.
    pub begins_late: bool,
}

impl MissingEvidence {
    /// A record of that kind, of the main process, may be missing.
    pub fn may_lack(&self, kind: Kind) -> bool {
        self.lost.iter().any(|hole| hole.is_of(kind))
    }

    /// Where a first stop signal that was not observed may be.
    pub fn hidden_stops(&self) -> impl Iterator<Item = &Hole> {
        let lost = self.lost.iter().filter(|hole| hole.is_of(Kind::SignalGenerate));
        lost.chain(&self.stops)
    }

    /// The process ran before the observation began at this time, so recently that an earlier stop signal is possible.
    pub fn late_start(&self) -> Option<Boot> {
        let gaps = self.stops.iter().filter(|hole| hole.why == Origin::Gap);
        gaps.filter_map(|gap| gap.to).max()
    }

    /// The same without gaps of the observation.
    pub fn lost_stops(&self) -> Vec<Hole> {
        self.stops.iter().filter(|hole| hole.why != Origin::Gap).copied().collect()
    }

    /// Bytes beyond its own size.
    pub fn bytes(&self) -> usize {
        let lists = [
            &self.lost,
            &self.stops,
            &self.lost_inside,
            &self.earlier_stops,
            &self.main_unsure,
        ];
        lists.map(Vec::capacity).iter().sum::<usize>() * size_of::<Hole>()
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
