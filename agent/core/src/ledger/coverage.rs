//! Coverage of the observation: times without observation, inactive probes, lost records.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::{Hole, LossPlace, Origin, Whose};
use crate::event::Kind;
use crate::input::{ProbeState, SeenClients};
use crate::time::Boot;
use crate::tolerances::BETWEEN_AGENTS;

/// Most separate gaps; older ones are merged.
const KEPT: usize = 256;
/// The same of losses: all containers of a node can be noisy at once.
pub(super) const KEPT_LOSSES: usize = 1024;
/// The probes without which sockets are not observed.
const TCP_PROBES: [&str; 2] = ["inet_sock_set_state", ProbeState::REFUSALS];

#[derive(Debug, Default)]
pub(crate) struct Coverage {
    probes: BTreeMap<String, ProbeState>,
    lost: VecDeque<Loss>,
    /// Losses of more subjects than are kept, merged: they concern all subjects. One for each kind and [`Whose`].
    lost_of_all: Vec<Loss>,
    /// The first is from boot to the first start.
    gaps: VecDeque<Hole>,
    /// When both this run and the one before observed, as an agent that waited for its predecessor's journal.
    twice: Option<(Boot, Boot)>,
}

#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub hole: Hole,
    pub place: LossPlace,
}

impl Coverage {
    /// The observation starts (again) at `since`; the previous one ended at `ended`.
    pub fn start(&mut self, ended: Boot, since: Boot) {
        self.twice = (since < ended).then_some((since, ended));
        self.gaps.push_back(Hole::gap(ended.min(since), Some(since)));
        if self.gaps.len() > KEPT
            && let (Some(first), Some(second)) = (self.gaps.pop_front(), self.gaps.front_mut())
        {
            second.from = first.from;
        }
    }

    /// The record may be the second one of the same event: the run before may have had it, too.
    pub fn was_observed_twice(&self, at: Boot) -> bool {
        let is_in = |(since, ended): (Boot, Boot)| since.minus(BETWEEN_AGENTS) <= at && at <= ended.plus(BETWEEN_AGENTS);
        self.twice.is_some_and(is_in)
    }

    pub fn forget_probes(&mut self) {
        self.probes.clear();
    }

    /// Nothing is known from now on.
    pub fn cut(&mut self, now: Boot) {
        self.gaps.push_back(Hole::gap(now, None));
    }

    pub fn probe(&mut self, name: String, state: ProbeState) {
        // The agent has a dozen names; a recording can contain any number.
        if self.probes.len() < KEPT || self.probes.contains_key(&name) {
            self.probes.insert(name, state);
        }
    }

    pub fn lost(&mut self, hole: Hole, place: LossPlace) {
        if hole.most == Some(0) {
            return;
        }
        let loss = Loss { hole, place };
        // One that goes on, report after report, is one loss.
        if let Some(last) = self.lost.iter_mut().rev().find(|last| last.is_like(&loss))
            && last.hole.to.is_none_or(|to| to >= loss.hole.from)
        {
            return last.hole.extend(&loss.hole);
        }
        self.lost.push_back(loss);
        if self.lost.len() > KEPT_LOSSES {
            self.merge_one();
        }
    }

    /// Merges the oldest loss that the same subjects had again into the next of these losses: a subject with many losses pushes no loss
    /// of another subject out. If no subjects had a loss again, the oldest loss concerns all subjects.
    fn merge_one(&mut self) {
        let mut later = HashSet::new();
        let losses = self.lost.iter().enumerate().rev();
        let oldest = losses.filter(|(_, loss)| !later.insert(loss.key())).map(|(at, _)| at).last();
        let Some(old) = self.lost.remove(oldest.unwrap_or(0)) else {
            return;
        };
        let next = match oldest {
            Some(at) => self.lost.iter_mut().skip(at).find(|next| next.is_like(&old)),
            None => {
                let of = |hole: &Hole| (hole.kind, hole.whose);
                self.lost_of_all.iter_mut().find(|known| of(&known.hole) == of(&old.hole))
            }
        };
        match next {
            Some(next) => next.hole.extend(&old.hole),
            None => self.lost_of_all.push(Loss {
                place: LossPlace::Anywhere,
                hole: Hole {
                    why: Origin::Lost,
                    ..old.hole
                },
            }),
        }
    }

    pub(super) fn losses(&self) -> impl Iterator<Item = &Loss> {
        self.lost_of_all.iter().chain(&self.lost)
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.lost.len()
    }

    pub(super) fn gaps(&self) -> impl Iterator<Item = &Hole> {
        self.gaps.iter()
    }

    /// Names of the probes that are not active and not substituted.
    pub fn inactive_probes(&self) -> Vec<String> {
        let inactive = self.probes.iter().filter(|(_, state)| !state.is_observed());
        inactive.map(|(name, _)| name.clone()).collect()
    }

    pub fn sees_sockets(&self) -> bool {
        TCP_PROBES.iter().all(|name| self.is_observed(name))
    }

    /// Of which clients a refused connection is recorded.
    pub fn refused_clients(&self) -> SeenClients {
        let state = self.probes.get(ProbeState::REFUSALS);
        state.map_or(SeenClients::None, ProbeState::clients)
    }

    pub fn sees(&self, kind: Kind) -> bool {
        match kind {
            // Of several probes: what becomes of a socket is this one's.
            Kind::Tcp => self.is_observed(TCP_PROBES[0]),
            _ => self.is_observed(kind.name()),
        }
    }

    fn is_observed(&self, name: &str) -> bool {
        self.probes.get(name).is_some_and(ProbeState::is_observed)
    }
}

impl Loss {
    /// Of the same records.
    fn is_like(&self, other: &Loss) -> bool {
        self.key() == other.key()
    }

    fn key(&self) -> (Option<Kind>, Whose, Origin, &LossPlace) {
        (self.hole.kind, self.hole.whose, self.hole.why, &self.place)
    }
}
