//! The order in which timelines are evicted at the cap: the least missed first.
//!
//! Nearly every record of a subject can change the subject's place, and the order is needed at the cap only. A changed subject is
//! therefore noted, and gets its place at the next eviction. An eviction costs no more than the records since the last eviction,
//! whatever the number of timelines.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::attribute::Map;
use crate::ids::CgroupId;
use crate::time::Boot;

use super::subject::{Place, Rank, State};

/// Of each subject with a timeline: in one of the two lists.
pub(super) const PLACED: usize = 3 * size_of::<(Rank, Boot, CgroupId)>() / 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Missed {
    /// The least missed first; within a rank the longest idle, within [`Rank::Settling`] the earliest exit.
    order: BTreeSet<(Rank, Boot, CgroupId)>,
    /// Not in the order: changed since the last eviction.
    changed: BTreeSet<CgroupId>,
    /// How many subjects were looked at.
    #[cfg(test)]
    looks: usize,
}

impl Missed {
    /// Something may have changed the subject's place.
    #[inline]
    pub fn displace(&mut self, own: CgroupId, state: &mut State) {
        if matches!(state.listed.place, Place::Changed) || state.listed.touched.is_none() {
            return;
        }
        self.remove(own, state);
        state.listed.place = Place::Changed;
        self.changed.insert(own);
    }

    /// The subject no longer has a timeline.
    pub fn remove(&mut self, own: CgroupId, state: &mut State) {
        match std::mem::take(&mut state.listed.place) {
            Place::Nowhere => {}
            Place::Changed => {
                self.changed.remove(&own);
            }
            Place::At(rank, at) => {
                self.order.remove(&(rank, at, own));
            }
        }
    }

    fn place(&mut self, own: CgroupId, state: &mut State, rank: impl Fn(&State) -> Rank) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let Some(touched) = state.listed.touched else { return };
        let rank = rank(state);
        let at = match rank {
            Rank::Settling => state.main().and_then(|main| main.exit_at()).unwrap_or(touched),
            Rank::Quiet | Rank::Ended | Rank::Stopping => touched,
        };
        state.listed.place = Place::At(rank, at);
        self.order.insert((rank, at, own));
    }

    /// The subject whose timeline is evicted next. None: all subjects settle.
    pub fn least(&mut self, subjects: &mut Map<CgroupId, State>, now: Boot, reorder: Duration) -> Option<CgroupId> {
        let has_settled = |exit: Boot| exit.plus(reorder) <= now;
        let first = (Rank::Settling, Boot(0), CgroupId::v2(0));
        let settling = self.order.range(first..);
        let settled: Vec<CgroupId> = settling
            .take_while(|(_, exit, _)| has_settled(*exit))
            .map(|(.., own)| *own)
            .collect();
        for own in settled {
            if let Some(state) = subjects.get_mut(&own) {
                self.displace(own, state);
            }
        }
        let rank = |state: &State| match state.main().and_then(|main| main.exit_at()) {
            _ if !state.wants_watch() => Rank::Quiet,
            None => Rank::Stopping,
            Some(exit) if has_settled(exit) => Rank::Ended,
            Some(_) => Rank::Settling,
        };
        while let Some(own) = self.changed.pop_first() {
            if let Some(state) = subjects.get_mut(&own) {
                self.place(own, state, rank);
            }
        }
        let (rank, _, own) = self.order.first()?;
        (*rank != Rank::Settling).then_some(*own)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.order.len() + self.changed.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;
    use std::time::Duration;

    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::correlate::subjects::Subjects;
    use crate::correlate::tests::properties::any_input;
    use crate::correlate::{Correlator, Limits};
    use crate::fixtures::script::{self, ZERO};
    use crate::fixtures::terminations::observation;
    use crate::input::{Input, Observation};
    use crate::termination::Open;

    /// The expected result, by a look at all timelines.
    fn by_full_look(subjects: &Subjects) -> (Option<CgroupId>, BTreeSet<Rank>) {
        let mut of_rank = [Rank::Quiet, Rank::Ended, Rank::Stopping, Rank::Settling].map(|rank| (rank, None));
        for (_, own) in &subjects.touched {
            let state = &subjects.subjects[own];
            let exit = state.main().and_then(|main| main.exit_at());
            let rank = match exit {
                _ if !state.wants_watch() => Rank::Quiet,
                Some(exit) if exit.plus(subjects.limits.reorder) <= subjects.now => Rank::Ended,
                Some(_) => Rank::Settling,
                None => Rank::Stopping,
            };
            for (of, first) in &mut of_rank {
                if *of == rank {
                    first.get_or_insert(*own);
                }
            }
        }
        let ranks = of_rank
            .iter()
            .filter(|(_, first)| first.is_some())
            .map(|(rank, _)| *rank)
            .collect();
        (of_rank[..3].iter().find_map(|(_, first)| *first), ranks)
    }

    #[test]
    fn after_any_history_the_order_is_that_of_a_look_at_all() {
        let mut seen = BTreeSet::new();
        let mut runner = TestRunner::deterministic();
        let histories = prop::collection::vec(any::<[u8; 12]>(), 0..600);
        // Also without room for all facts: the subject with the most gives some up.
        for memory in [Limits::default().memory, 128 << 10] {
            for _ in 0..100 {
                let history = histories.new_tree(&mut runner).expect("no filter").current();
                seen.extend(compare(memory, &history));
            }
        }
        let all = [Rank::Quiet, Rank::Ended, Rank::Stopping, Rank::Settling];
        assert_eq!(seen, BTreeSet::from(all));
    }

    /// The ranks that were first in the order, and `Settling` if a subject settled meanwhile.
    fn compare(memory: usize, history: &[[u8; 12]]) -> BTreeSet<Rank> {
        let mut core = Correlator::new(Limits {
            memory,
            ..Limits::default()
        });
        let (mut now, mut seen) = (ZERO, BTreeSet::new());
        for bytes in history {
            now = now.plus(Duration::from_millis(u64::from(bytes[0]) * u64::from(bytes[1]) / 1_024));
            match bytes[0] {
                0 => {
                    let since = now;
                    core.handle(now, Input::Start(Observation { since, ..observation() }));
                    core.handle(now, Input::Scanned);
                }
                1..=15 => drop(
                    core.subjects
                        .deletion_requested(now, CgroupId::v2(100 + u64::from(bytes[3] % 24))),
                ),
                _ => drop(core.handle(now, any_input(now, bytes))),
            }
            // Not after each input: a place may change several times in between.
            if bytes[1] % 4 != 0 {
                continue;
            }
            let (expected, ranks) = by_full_look(&core.subjects);
            let of = &mut core.subjects;
            let least = of.missed.least(&mut of.subjects, of.now, of.limits.reorder);
            assert_eq!(least, expected, "of {ranks:?}");
            assert_eq!(core.subjects.missed.len(), core.subjects.touched.len());
            seen.extend(ranks.iter().take(1).chain(ranks.get(&Rank::Settling)));
            if let Some(own) = least.filter(|_| bytes[1] % 8 == 0) {
                let mut out = Vec::new();
                core.subjects.finish(own, Open::TimelineCap, &core.attribution, &mut out);
            }
        }
        seen
    }

    /// Neighbours can begin any number of stops that never finish.
    #[test]
    fn a_new_timeline_at_the_cap_costs_no_look_at_all_of_them() {
        const CAP: usize = 256;
        let limits = Limits {
            timelines: CAP,
            ..Limits::default()
        };
        let mut script = String::new();
        for i in 0..2 * CAP {
            let at = 1_000 + i;
            writeln!(
                script,
                "+1.{at} mkdir n{i}
                proc m{i} in=n{i} pid={} ns=1 start=+1.{at} parent=shim comm=app
                +1.{at}1 exec m{i}
                +1.{at}2 TERM runc -> m{i} handler",
                300 + i
            )
            .expect("a string");
        }
        let mut core = Correlator::new(limits);
        for (at, input) in script::parse(&script).inputs {
            core.handle(at, input);
        }
        assert_eq!(core.sizes(), (2 * CAP, CAP));
        let looks = core.subjects.missed.looks;
        assert!(looks <= 3 * CAP, "{looks} looks for {CAP} evictions");
    }
}
