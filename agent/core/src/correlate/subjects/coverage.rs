//! Coverage of the observation: times without observation, inactive probes, lost records.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::event::Kind;
use crate::input::ProbeState;
use crate::termination::MissingEvidence;
use crate::time::Boot;

/// A process that was running when the observation began and ends this soon may have been asked to stop before.
pub(super) const LATE_REACH: Duration = Duration::from_secs(600);
/// Most separate losses and gaps; older ones are merged.
const KEPT: usize = 256;
/// The probes without which sockets are not observed.
const TCP_PROBES: [&str; 2] = ["inet_sock_set_state", "tcp_send_reset"];

#[derive(Debug, Default)]
pub(super) struct Coverage {
    probes: BTreeMap<String, ProbeState>,
    lost: VecDeque<Loss>,
    /// Times without observation; the first is from boot to the first start.
    gaps: VecDeque<(Boot, Boot)>,
}

#[derive(Clone, Copy, Debug)]
struct Loss {
    kind: Kind,
    from: Boot,
    to: Boot,
    count: u64,
}

impl Coverage {
    /// The observation starts (again) at `since`; the previous one ended at `ended`.
    pub fn start(&mut self, ended: Boot, since: Boot) {
        self.probes.clear();
        self.gaps.push_back((ended.min(since), since));
        if self.gaps.len() > KEPT
            && let (Some(first), Some(second)) = (self.gaps.pop_front(), self.gaps.front_mut())
        {
            second.0 = first.0;
        }
    }

    pub fn probe(&mut self, name: String, state: ProbeState) {
        // The agent has a dozen names; a recording can contain any number.
        if self.probes.len() < KEPT || self.probes.contains_key(&name) {
            self.probes.insert(name, state);
        }
    }

    pub fn lost(&mut self, kind: Kind, from: Boot, to: Boot, count: u64) {
        if count == 0 {
            return;
        }
        self.lost.push_back(Loss { kind, from, to, count });
        if self.lost.len() > KEPT
            && let Some(old) = self.lost.pop_front()
            && let Some(next) = self.lost.iter_mut().find(|loss| loss.kind == old.kind)
        {
            next.from = next.from.min(old.from);
            next.to = next.to.max(old.to);
            next.count = next.count.saturating_add(old.count);
        }
    }

    /// Records lost between the two, by kind.
    pub fn losses(&self, from: Boot, to: Boot) -> Vec<(Kind, u64)> {
        let mut sums: BTreeMap<Kind, u64> = BTreeMap::new();
        for loss in self.lost.iter().filter(|loss| loss.from <= to && loss.to >= from) {
            let sum = sums.entry(loss.kind).or_default();
            *sum = sum.saturating_add(loss.count);
        }
        sums.into_iter().collect()
    }

    /// Names of the probes that are not active and not substituted.
    pub fn inactive_probes(&self) -> Vec<String> {
        let inactive = self.probes.iter().filter(|(_, state)| !state.is_observed());
        inactive.map(|(name, _)| name.clone()).collect()
    }

    pub fn sees_sockets(&self) -> bool {
        TCP_PROBES.iter().all(|name| self.is_observed(name))
    }

    /// Missing evidence of a termination from `begin` to `end`, of a process that started at `born`. `stop_requested`: a stop signal
    /// was observed at `begin`, so earlier losses do not matter.
    pub fn missing(&self, born: Boot, begin: Boot, end: Boot, stop_requested: bool) -> MissingEvidence {
        let from = self.reach(born, begin, stop_requested);
        let kinds = [Kind::SignalGenerate, Kind::SignalDeliver, Kind::ProcessExit, Kind::OomVictim];
        let late = |&(_, to): &(Boot, Boot)| born < to && to.plus(LATE_REACH) > end && to <= end;
        MissingEvidence {
            lost: self.losses(from, end).into_iter().map(|(kind, _)| kind).collect(),
            inactive: kinds.into_iter().filter(|kind| !self.is_observed(kind.name())).collect(),
            gap: self.gaps.iter().any(|&(from, to)| from < end && to > begin),
            late_start: !stop_requested && self.gaps.iter().any(late),
            over_cap: false,
            main_unsure: false,
        }
    }

    /// The earliest time at which missing evidence could matter.
    pub fn reach(&self, born: Boot, begin: Boot, stop_requested: bool) -> Boot {
        if stop_requested {
            begin
        } else {
            begin.minus(LATE_REACH).max(born)
        }
    }

    fn is_observed(&self, name: &str) -> bool {
        self.probes.get(name).is_some_and(ProbeState::is_observed)
    }
}
