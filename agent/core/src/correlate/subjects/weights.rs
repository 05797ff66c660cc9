//! How much memory each subject has, and who can give most.

use std::collections::BTreeSet;

use crate::ids::CgroupId;

use super::subject::{NOT_LISTED, State, Weight};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Weights {
    /// Bytes that each subject can give up, and all of its bytes, the most last.
    order: BTreeSet<(usize, usize, CgroupId)>,
    /// Bytes of all subjects together beyond their slots.
    pub total: usize,
    /// Of these, bytes that all subjects together give up at least.
    pub freed: usize,
    /// A subject has more bytes than when it was last made sure that all fit.
    grew: bool,
}

impl Weights {
    /// Of a subject in the order.
    pub const LISTED: usize = size_of::<(usize, usize, CgroupId)>();

    /// Counts a subject's bytes again.
    pub fn weigh(&mut self, own: CgroupId, state: &mut State) {
        let Weight { bytes, spare, freed } = state.weigh();
        let weighed = std::mem::replace(&mut state.listed.weighed, bytes);
        self.total = self.total - weighed + bytes;
        self.freed = self.freed - std::mem::replace(&mut state.listed.freed, freed) + freed;
        self.grew |= bytes > weighed;
        let before = std::mem::replace(&mut state.listed.spare, spare);
        if (spare, bytes) != (before, weighed) {
            self.order.remove(&(before, weighed, own));
            self.order.insert((spare, bytes, own));
        }
    }

    /// A subject is taken out: its bytes count again when it is put back and weighed.
    pub fn remove(&mut self, own: CgroupId, state: &mut State) {
        let listed = &mut state.listed;
        self.order.remove(&(listed.spare, listed.weighed, own));
        self.total -= listed.weighed;
        self.freed -= listed.freed;
        (listed.weighed, listed.spare, listed.freed) = (0, NOT_LISTED, 0);
    }

    /// Who can give most, and how many bytes.
    pub fn most(&self) -> Option<(usize, CgroupId)> {
        self.order.last().map(|&(spare, _, own)| (spare, own))
    }

    pub fn take_grew(&mut self) -> bool {
        std::mem::take(&mut self.grew)
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
                    let of = |(own, state): (&CgroupId, &State)| (state.listed.spare, state.listed.weighed, *own);
                    let mut all: Vec<_> = subjects.subjects.iter().map(of).collect();
                    all.sort_unstable();
                    prop_assert!(subjects.weights.order.iter().eq(&all));
                    prop_assert_eq!(subjects.weights.total, all.iter().map(|(_, weighed, _)| weighed).sum::<usize>());
                    let freed = subjects.subjects.values().map(|state| state.listed.freed).sum::<usize>();
                    prop_assert_eq!(subjects.weights.freed, freed);
                }
            }
        }
    }
}
