//! What a subject takes of the memory, and what it gives up first.

use super::{EVIDENCE, Rare, State};
use crate::correlate::subjects::process::Candidate;
use crate::correlate::subjects::timeline::Timeline;
use crate::event::ProcessExit;
use crate::ids::CgroupId;
use crate::ledger::{Hole, Span};
use crate::time::Boot;

/// Bytes of a subject beyond its own size.
pub(in crate::correlate::subjects) struct Weight {
    pub bytes: usize,
    /// Of these, what [`State::squeeze`] may free.
    pub spare: usize,
    /// Of these, what it frees in any case, however often it has to be called.
    pub freed: usize,
}

/// Bytes that know of dropped facts, at most.
const KNOWS: usize = size_of::<Timeline>() + size_of::<Rare>() + 4 * size_of::<Hole>();

impl State {
    pub fn weigh(&mut self) -> Weight {
        let rare = self.rare.weigh();
        let early = self.early.bytes();
        let exits = self.exits.capacity() * size_of::<(Boot, ProcessExit)>();
        let timeline = self.timeline.as_deref().map_or((0, 0, 0), |timeline| {
            let bytes = timeline.bytes();
            (bytes, if timeline.is_squeezable() { bytes } else { 0 }, timeline.freed())
        });
        let candidates = match self.candidates.spilled() {
            true => self.candidates.capacity() * size_of::<Candidate>(),
            false => 0,
        };
        let fixed = candidates + self.below.cgroups.capacity() * size_of::<CgroupId>() + rare;
        Weight {
            bytes: fixed + exits + early + timeline.0,
            spare: exits + early + timeline.1,
            freed: (exits + early + timeline.2).saturating_sub(KNOWS),
        }
    }

    /// Frees memory. Returns the number of dropped facts: the verdict knows that they are missing.
    pub fn squeeze(&mut self) -> u64 {
        let exits = std::mem::take(&mut self.exits);
        let dropped = exits.len() as u64;
        self.drop_exits(exits, true);
        // Only a timeline knows what it lost.
        self.join_early();
        // Without a fact it may have room all the same.
        self.early.squeeze();
        self.timeline.as_deref_mut().map_or(0, Timeline::squeeze) + dropped
    }

    /// Gives up the facts for others' sake: what they showed is unknown.
    pub fn drop_timeline(&mut self, now: Boot) -> u64 {
        let Some(timeline) = self.timeline.take() else { return 0 };
        let (since, count) = (timeline.since().unwrap_or(now), timeline.len() as u64);
        let time = Span { first: since, last: now };
        self.rare_mut().drops.add_each(&EVIDENCE, time, count);
        count
    }
}
