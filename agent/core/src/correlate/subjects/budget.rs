//! The subjects' part of the core's memory: who has most gives first.
//!
//! Bytes are counted by the sizes and numbers of what is kept. What is dropped is known to the verdict of the subject that it was
//! about, and of no other. So the share of each shrinks as more terminations are in progress, and a small termination loses nothing
//! to a large one.

use crate::attribute::{slim, table};
use crate::ids::CgroupId;
use crate::time::Boot;

use super::Subjects;
use super::missed::PLACED;
use super::subject::State;

/// Of a subject in the ordered lists (timers, idleness, armed sockets; weight), at most.
const LISTED: usize = 3 * (3 * size_of::<(Boot, CgroupId)>() + size_of::<(usize, usize, CgroupId)>()) / 2;
/// [`State::spare`] of a subject that was not weighed yet.
pub(super) const NOT_LISTED: usize = usize::MAX;
/// Of a new subject: its first processes.
const NEW: usize = 512;

impl Subjects {
    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        let listed =
            self.subjects.len() * LISTED + self.touched.len() * PLACED + self.gone.capacity() * size_of::<(Boot, CgroupId)>();
        // A network namespace has one closer, or a few.
        let closers = 2 * self.closers.len() * (size_of::<(u32, Vec<CgroupId>)>() + 4 * size_of::<CgroupId>());
        self.weight + table::<CgroupId, State>(self.subjects.capacity()) + listed + self.clients.bytes() + closers
    }

    /// After a change: counts a subject's bytes again, and marks its place among the timelines as changed.
    pub(super) fn weigh(&mut self, own: CgroupId) {
        let Some(state) = self.subjects.get_mut(&own) else { return };
        self.missed.displace(own, state);
        let (bytes, spare) = state.weigh();
        let weighed = std::mem::replace(&mut state.weighed, bytes);
        self.weight = self.weight - weighed + bytes;
        self.grew |= bytes > weighed;
        let before = std::mem::replace(&mut state.spare, spare);
        if (spare, bytes) != (before, weighed) {
            self.weights.remove(&(before, weighed, own));
            self.weights.insert((spare, bytes, own));
        }
    }

    /// As [`Subjects::fit`], after a change that made no room for itself.
    pub(super) fn fit_grown(&mut self) {
        if std::mem::take(&mut self.grew) {
            self.fit(0);
        }
    }

    /// A subject is taken out: its bytes count again when it is put back and weighed.
    pub(super) fn unweigh(&mut self, own: CgroupId, state: &mut State) {
        self.weights.remove(&(state.spare, state.weighed, own));
        self.weight -= state.weighed;
        (state.weighed, state.spare) = (0, NOT_LISTED);
    }

    /// Frees memory until `more` bytes fit: of the facts of who has most, and if no facts are left, of whole subjects, which then have
    /// no verdict. False: nothing more can be freed.
    pub(super) fn fit(&mut self, more: usize) -> bool {
        let most = self.limits.subjects_bytes();
        while self.bytes() + more > most {
            let Some(&(spare, _, own)) = self.weights.last() else {
                return false;
            };
            if spare > 0 {
                let dropped = self.subjects.get_mut(&own).map_or(0, State::squeeze);
                self.drops.memory += dropped;
                self.weigh(own);
                continue;
            }
            // A new subject is not worth another.
            if more > 0 {
                return false;
            }
            if let Some(mut state) = self.subjects.remove(&own) {
                self.unlist(own, &mut state);
                self.unweigh(own, &mut state);
                self.drops.memory += 1;
                self.refuse();
            }
            self.slim();
        }
        true
    }

    /// Whether another subject fits.
    pub(super) fn fits_another(&mut self) -> bool {
        let (len, capacity) = (self.subjects.len(), self.subjects.capacity());
        let grows = if len < capacity {
            0
        } else {
            table::<CgroupId, State>(2 * capacity + 1) - table::<CgroupId, State>(capacity)
        };
        self.fit(grows + NEW)
    }

    /// Memory of subjects that are gone.
    pub(super) fn slim(&mut self) {
        slim(&mut self.subjects);
        if self.gone.len() < self.gone.capacity() / 4 {
            self.gone.shrink_to(2 * self.gone.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::correlate::tests::properties::any_input;
    use crate::correlate::{Correlator, Limits};
    use crate::fixtures::script::ZERO;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The subject that gives memory up first is found without a look at all subjects: each subject is in the list, with its bytes.
        #[test]
        fn the_list_has_the_bytes_of_each_subject(events in prop::collection::vec(any::<[u8; 12]>(), 0..300)) {
            // Room for some facts, or for none.
            for memory in [256 << 10, 8 << 10] {
                let mut core = Correlator::new(Limits { memory, ..Limits::default() });
                let mut now = ZERO;
                for bytes in &events {
                    now = now.plus(Duration::from_millis(u64::from(bytes[0]) * u64::from(bytes[1]) / 256));
                    core.handle(now, any_input(now, bytes));
                    let subjects = &core.subjects;
                    let of = |(own, state): (&CgroupId, &State)| (state.spare, state.weighed, *own);
                    let mut all: Vec<_> = subjects.subjects.iter().map(of).collect();
                    all.sort_unstable();
                    prop_assert!(subjects.weights.iter().eq(&all));
                    prop_assert_eq!(subjects.weight, all.iter().map(|(_, weighed, _)| weighed).sum::<usize>());
                }
            }
        }
    }
}
