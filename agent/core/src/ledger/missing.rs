//! What may be missing of one termination: the view of the holes that the judgement reads.

use std::time::Duration;

use super::{Hole, Why};
use crate::event::Kind;
use crate::time::Boot;

/// Evidence that may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingEvidence {
    /// Records that were lost during the termination, or may have been.
    pub lost: Vec<Hole>,
    /// Records of signals, of longer ago than these, one of which may have been the stop signal: as long ago as one that was seen would count.
    pub stops: Vec<Hole>,
    /// How many of its own processes' records were lost, and in which time; None if some were, or may have been, of others.
    pub own_lost: Option<(u64, Duration)>,
    /// The same as `lost` of what matters only to processes other than the main process: until the last of them was gone.
    pub lost_inside: Vec<Hole>,
    /// Facts about these processes were dropped.
    pub over_cap_inside: bool,
    /// Probes that were not active.
    pub inactive: Vec<Kind>,
    /// A time without observation overlaps this termination.
    pub gap: bool,
    /// The same of the time in which the end of another process counts, and of the life of a victim of the OOM killer.
    pub gap_below: bool,
    /// The process ran before the observation began at this time, so recently that an earlier stop signal is possible.
    pub late_start: Option<Boot>,
    /// More facts than one timeline keeps.
    pub over_cap: bool,
    /// The main process got a stop signal before the first one that was observed: with the holes that may hide the signal.
    pub earlier_stop: Option<Vec<Hole>>,
    /// The same, in a gap of the observation that ended then.
    pub gap_before_stop: Option<Boot>,
    /// Another process may have been the main process.
    pub main_unsure: Option<MainUnsure>,
    /// The recording begins so shortly before the end that a stop signal may have come before.
    pub begins_late: bool,
}

/// Why another process may have been the main process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MainUnsure {
    /// These records may be lost, as that of its exec.
    Lost(Vec<Hole>),
    /// The probe that makes such records was not active.
    Inactive(Kind),
    /// A process of a unit that began unobserved, and not long before its end: systemd also runs commands before and after the main
    /// process (`ExecStartPre=`, `ExecStopPost=`).
    MayBeCommand,
}

impl MissingEvidence {
    /// A record of that kind, of the main process, may be lost.
    pub fn may_lack(&self, kind: Kind) -> bool {
        self.lost.iter().any(|hole| hole.is_of(kind))
    }

    /// When the first stop signal may have come whose record is lost.
    pub fn stop_lost_since(&self) -> Option<Boot> {
        let lost = self.lost.iter().filter(|hole| hole.is_of(Kind::SignalGenerate));
        lost.chain(&self.stops).map(|hole| hole.from).min()
    }

    /// Bytes beyond its own size.
    pub fn bytes(&self) -> usize {
        let unsure = match &self.main_unsure {
            Some(MainUnsure::Lost(lost)) => lost.capacity(),
            _ => 0,
        };
        let earlier = self.earlier_stop.as_ref().map_or(0, Vec::capacity);
        let holes = self.lost.capacity() + self.stops.capacity() + self.lost_inside.capacity() + unsure + earlier;
        holes * size_of::<Hole>() + self.inactive.capacity()
    }
}

/// Holes of the same records as one: of many losses a few remain.
pub(crate) fn merged(holes: impl Iterator<Item = Hole>) -> Vec<Hole> {
    let mut merged: Vec<Hole> = Vec::new();
    for hole in holes {
        let key = |of: &Hole| (of.why, of.kind, of.whose);
        match merged.iter_mut().find(|known| key(known) == key(&hole)) {
            Some(known) => known.extend(&hole),
            None => merged.push(hole),
        }
    }
    merged
}

/// The kernel lost none of these: the recording begins later, or a part of it is damaged or missing. Which of the two, by all of them.
pub fn not_kept(holes: &[Hole]) -> Option<Why> {
    let is = |whys: &[Why]| !holes.is_empty() && holes.iter().all(|hole| whys.contains(&hole.why));
    if is(&[Why::NotRecorded]) {
        return Some(Why::NotRecorded);
    }
    is(&[Why::NotRecorded, Why::Damaged]).then_some(Why::Damaged)
}
