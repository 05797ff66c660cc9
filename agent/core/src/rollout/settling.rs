//! When a rollout has settled, and what it cost then: by the ReplicaSets of a workload.
//!
//! A rollout has settled when the pods of the newest ReplicaSet are available and no pod of another one has existed for a while. Whether
//! pods exist is asked: a ReplicaSet does not count those that terminate.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::{KnownRevision, ReplacedPods, RevisionCost, costs};
use crate::render::resource::EpitaphReport;
use crate::time::{Boot, Wall};
use crate::tolerances::{AT_ZERO, ROLLOUT_LATE, ROLLOUT_LOOK, ROLLOUT_LOOK_AGAIN, ROLLOUT_RECENT};

/// A controller of ReplicaSets: a Deployment, or the Rollout of Argo Rollouts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolledWorkload {
    pub kind: String,
    pub api_version: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// Namespace and UID: whoever creates a ReplicaSet chooses its owner's UID, and an owner is in the same namespace.
pub type WorkloadKey = (String, String);

impl RolledWorkload {
    pub fn key(&self) -> WorkloadKey {
        (self.namespace.clone(), self.uid.clone())
    }
}

/// A ReplicaSet of such a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSetSight {
    pub uid: String,
    pub workload: RolledWorkload,
    /// The annotation that its controller raises with each rollout.
    pub number: u64,
    /// The label of its pods that names the revision, and the label's value.
    pub hash_label: &'static str,
    pub hash: String,
    pub created: Option<Wall>,
    /// A rollback took it up again.
    pub is_resumed: bool,
    pub wanted: u64,
    /// Pods that do not terminate.
    pub pods: u64,
    pub available: u64,
    /// The status is about the current spec.
    pub is_current: bool,
}

/// What the machine has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutQuestion {
    /// How many pods of these revisions exist, also terminating ones.
    OldPods {
        workload: RolledWorkload,
        hash_label: &'static str,
        hashes: Vec<String>,
    },
    /// The Epitaphs of the workload.
    Reports(RolledWorkload),
}

impl RolloutQuestion {
    pub fn workload(&self) -> &RolledWorkload {
        match self {
            RolloutQuestion::OldPods { workload, .. } | RolloutQuestion::Reports(workload) => workload,
        }
    }
}

/// A rollout that has settled.
#[derive(Clone, Debug, PartialEq)]
pub struct SettledRollout {
    pub workload: RolledWorkload,
    /// The revision that was rolled out.
    pub revision: u64,
    /// None: nothing is known of the pods that it replaced.
    pub cost: Option<RevisionCost>,
}

/// What became of a ReplicaSet that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighted {
    /// False: too many are known.
    pub is_kept: bool,
    /// The workload whose last ReplicaSet it was until now.
    pub gone: Option<RolledWorkload>,
}

/// The workloads of a cluster.
#[derive(Debug, Default)]
pub struct Rollouts {
    workloads: HashMap<WorkloadKey, Followed>,
    /// ReplicaSet, by UID → workload.
    owners: HashMap<String, WorkloadKey>,
    /// ReplicaSets of each namespace.
    of_namespace: HashMap<String, usize>,
    /// Most ReplicaSets; of a namespace a quarter of them.
    most: usize,
    settle: Duration,
    /// The first list is complete.
    is_synced: bool,
    /// ReplicaSets of the list in progress.
    listed: Option<HashSet<String>>,
}

#[derive(Debug)]
struct Followed {
    workload: RolledWorkload,
    /// By UID.
    sets: BTreeMap<String, FollowedSet>,
    stage: Stage,
}

#[derive(Debug)]
struct FollowedSet {
    seen: ReplicaSetSight,
    /// Pods that were wanted before it was scaled to zero, or when its replacement began; 0 if the rollout does not replace any. None if nobody
    /// looked then.
    whole: Option<u64>,
    /// Since when no pod is wanted; None if some are, or were when nobody looked.
    zero_since: Option<Boot>,
    /// It had no pods any longer when the next one was created.
    is_recreated: bool,
}

#[derive(Debug, Default)]
enum Stage {
    /// Nothing is being rolled out, as far as is known.
    #[default]
    Still,
    /// A rollout has not settled yet.
    Rolling {
        /// Since when no old pod is known to exist.
        quiet_since: Option<Boot>,
        next_look: Boot,
        is_asked: bool,
    },
    /// Settled, and pods without a report are left: an agent may be behind.
    Late {
        until: Boot,
        next_look: Boot,
        is_asked: bool,
        reported: Box<SettledRollout>,
    },
}

impl Stage {
    const BEGUN: Stage = Stage::Rolling {
        quiet_since: None,
        next_look: Boot(0),
        is_asked: false,
    };
}

impl Rollouts {
    /// `most`: ReplicaSets that are known at the same time. `settle`: how long no old pod exists before a rollout has settled, by default
    /// [`SETTLE`].
    pub fn new(most: usize, settle: Duration) -> Rollouts {
        Rollouts {
            most,
            settle,
            ..Rollouts::default()
        }
    }

    /// A list begins: what it does not have is gone.
    pub fn list_begins(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// Returns the workloads that are gone.
    pub fn list_ends(&mut self, wall: Wall) -> Vec<RolledWorkload> {
        let listed = self.listed.take().unwrap_or_default();
        let gone: Vec<String> = self.owners.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
        let gone = gone.iter().filter_map(|uid| self.gone(uid)).collect();
        if !std::mem::replace(&mut self.is_synced, true) {
            for of in self.workloads.values_mut() {
                if of.is_recent(wall) || of.is_rolling() {
                    of.has_begun();
                }
            }
        }
        gone
    }

    pub fn sight(&mut self, now: Boot, sight: ReplicaSetSight) -> Sighted {
        if let Some(listed) = &mut self.listed {
            listed.insert(sight.uid.clone());
        }
        let key = sight.workload.key();
        // Whoever may change a ReplicaSet can name another owner, as often as they like.
        let is_another = self.owners.get(&sight.uid).is_some_and(|known| *known != key);
        let gone = is_another.then(|| self.gone(&sight.uid)).flatten();
        if !self.owners.contains_key(&sight.uid) {
            let in_namespace = self.of_namespace.get(&key.0).copied().unwrap_or(0);
            if self.owners.len() >= self.most || in_namespace >= self.most.div_ceil(4) {
                return Sighted { is_kept: false, gone };
            }
            self.of_namespace.insert(key.0.clone(), in_namespace + 1);
        }
        self.owners.insert(sight.uid.clone(), key.clone());
        let of = self.workloads.entry(key).or_insert_with(|| Followed {
            workload: sight.workload.clone(),
            sets: BTreeMap::new(),
            stage: Stage::Still,
        });
        let before = of.newest().map(|newest| newest.number);
        of.see(now, sight);
        let is_newer = of.newest().map(|newest| newest.number) > before;
        // Until the first list is complete, the newest of those that are known need not be the newest.
        if self.is_synced
            && ((is_newer && of.sets.len() > 1) || (!matches!(of.stage, Stage::Rolling { .. }) && of.is_rolling()))
        {
            of.begins(now);
        }
        Sighted { is_kept: true, gone }
    }

    /// A ReplicaSet was deleted. Returns its workload if that was the last one.
    pub fn gone(&mut self, uid: &str) -> Option<RolledWorkload> {
        let workload = self.owners.remove(uid)?;
        if let Some(count) = self.of_namespace.get_mut(&workload.0) {
            *count -= 1;
            if *count == 0 {
                self.of_namespace.remove(&workload.0);
            }
        }
        let of = self.workloads.get_mut(&workload)?;
        of.sets.remove(uid);
        if !of.sets.is_empty() {
            return None;
        }
        self.workloads.remove(&workload).map(|of| of.workload)
    }

    /// What has to be known now: at most one question about a workload at a time, until it is answered.
    pub fn questions(&mut self, now: Boot) -> Vec<RolloutQuestion> {
        if !self.is_synced {
            return Vec::new();
        }
        let settle = self.settle;
        self.workloads
            .values_mut()
            .filter_map(|of| of.question(now, settle))
            .collect()
    }

    /// `pods`: how many pods of other revisions exist; None: there was no answer.
    pub fn old_pods(&mut self, now: Boot, workload: &RolledWorkload, pods: Option<usize>) {
        let of = self.workloads.get_mut(&workload.key());
        let Some(quiet_since) = of.and_then(|of| of.answered(now)) else {
            return;
        };
        match pods {
            Some(0) => _ = quiet_since.get_or_insert(now),
            Some(_) => *quiet_since = None,
            None => {}
        }
    }

    /// What the rollout cost; None: a later question is about the same, because there was no answer, or another rollout began meanwhile.
    pub fn reports(
        &mut self,
        now: Boot,
        workload: &RolledWorkload,
        reports: Option<&[&EpitaphReport]>,
    ) -> Option<SettledRollout> {
        let of = self.workloads.get_mut(&workload.key())?;
        let until = match &mut of.stage {
            Stage::Late {
                until,
                next_look,
                is_asked,
                ..
            } => {
                (*is_asked, *next_look) = (false, now.plus(ROLLOUT_LOOK_AGAIN));
                *until
            }
            _ => {
                let quiet_since = *of.answered(now)?;
                quiet_since.filter(|since| now.since(*since) >= self.settle)?;
                now.plus(ROLLOUT_LATE)
            }
        };
        let settled = of.settled(reports?)?;
        let is_short = |cost: &RevisionCost| match cost.unreported {
            Some(unreported) => unreported > 0,
            None => cost.replaced_at_most.is_some(),
        };
        let is_short = settled.cost.as_ref().is_some_and(is_short);
        let is_news = !matches!(&of.stage, Stage::Late { reported, .. } if **reported == settled);
        of.stage = match is_short && now < until {
            true => Stage::Late {
                until,
                next_look: now.plus(ROLLOUT_LOOK_AGAIN),
                is_asked: false,
                reported: Box::new(settled.clone()),
            },
            false => Stage::Still,
        };
        is_news.then_some(settled)
    }

    /// ReplicaSets that are known.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

impl Followed {
    fn see(&mut self, now: Boot, seen: ReplicaSetSight) {
        let is_rolling = matches!(self.stage, Stage::Rolling { .. });
        let before = self.sets.get(&seen.uid);
        let whole = match before {
            // Its pods come and go.
            Some(before) if is_rolling => before.whole.map(|whole| whole.max(seen.wanted)),
            Some(before) if seen.wanted == 0 => before.whole,
            _ => (seen.wanted > 0).then_some(seen.wanted),
        };
        let zero_since = before.and_then(|before| match before.seen.wanted {
            0 => before.zero_since,
            _ => Some(now),
        });
        let set = FollowedSet {
            zero_since: zero_since.filter(|_| seen.wanted == 0),
            is_recreated: before.is_some_and(|before| before.is_recreated),
            whole,
            seen,
        };
        // No pods before and after: they were scaled to zero, and are not replaced.
        if set.seen.wanted == 0 && before.is_none() && self.sets.values().all(|set| set.seen.wanted == 0) {
            self.sets.values_mut().for_each(|set| set.whole = set.whole.map(|_| 0));
        }
        self.sets.insert(set.seen.uid.clone(), set);
    }

    /// A rollout begins. The strategy `Recreate` scales the revision before to zero first, and creates the new one when the pods are gone.
    fn begins(&mut self, now: Boot) {
        self.stage = Stage::BEGUN;
        let Some(newest) = self.newest() else { return };
        let (newest, has_pods) = (newest.uid.clone(), newest.wanted > 0);
        let before = self.others().max_by_key(|set| set.number).map(|set| set.uid.clone());
        for (uid, set) in &mut self.sets {
            let is_before = Some(uid) == before.as_ref();
            set.is_recreated = is_before && set.seen.wanted == 0 && has_pods;
            let is_recent = || set.zero_since.is_some_and(|since| now.since(since) <= AT_ZERO);
            set.whole = match set.seen.wanted {
                wanted @ 1.. => Some(wanted),
                // The rollout of before replaced its pods.
                0 if !is_before && *uid != newest => Some(0),
                // Scaled to zero long ago, or its pods had a long grace period.
                0 if is_before && set.whole != Some(0) && !is_recent() => None,
                0 => set.whole,
            };
        }
    }

    /// It began while nobody looked: some pods may be gone.
    fn has_begun(&mut self) {
        self.stage = Stage::BEGUN;
        for set in self.sets.values_mut() {
            (set.whole, set.is_recreated) = (None, false);
        }
    }

    /// None: no ReplicaSet is known.
    fn settled(&self, reports: &[&EpitaphReport]) -> Option<SettledRollout> {
        let revision = self.newest()?.number;
        let known: Vec<KnownRevision> = self.sets.values().map(known).collect();
        Some(SettledRollout {
            workload: self.workload.clone(),
            revision,
            cost: costs(reports, &known)
                .into_iter()
                .find(|cost| cost.replaced_by == Some(revision)),
        })
    }

    fn newest(&self) -> Option<&ReplicaSetSight> {
        self.sets.values().map(|set| &set.seen).max_by_key(|set| set.number)
    }

    fn others(&self) -> impl Iterator<Item = &ReplicaSetSight> {
        let newest = self.newest().map(|newest| newest.uid.as_str());
        let all = self.sets.values().map(|set| &set.seen);
        all.filter(move |set| Some(set.uid.as_str()) != newest)
    }

    /// Pods of an older revision are wanted, or there.
    fn is_rolling(&self) -> bool {
        self.others().any(|set| set.wanted > 0 || set.pods > 0)
    }

    fn is_recent(&self, wall: Wall) -> bool {
        let created = self.newest().and_then(|newest| newest.created);
        self.sets.len() > 1
            && created.is_some_and(|created| u128::from(wall.0.saturating_sub(created.0)) < ROLLOUT_RECENT.as_nanos())
    }

    fn is_available(&self) -> bool {
        let is_there = |set: &ReplicaSetSight| set.is_current && set.available >= set.wanted;
        self.newest().is_some_and(is_there) && self.others().all(|set| set.is_current && set.wanted == 0 && set.pods == 0)
    }

    /// The question was answered, or there was no answer. Returns since when no old pod is known to exist; None: nothing is being rolled out.
    fn answered(&mut self, now: Boot) -> Option<&mut Option<Boot>> {
        let Stage::Rolling {
            quiet_since,
            next_look,
            is_asked,
        } = &mut self.stage
        else {
            return None;
        };
        (*is_asked, *next_look) = (false, now.plus(ROLLOUT_LOOK));
        Some(quiet_since)
    }

    fn question(&mut self, now: Boot, settle: Duration) -> Option<RolloutQuestion> {
        let is_available = self.is_available();
        if let Stage::Late {
            next_look,
            is_asked: is_asked @ false,
            ..
        } = &mut self.stage
            && now >= *next_look
        {
            *is_asked = true;
            return Some(RolloutQuestion::Reports(self.workload.clone()));
        }
        let Stage::Rolling {
            quiet_since,
            next_look,
            is_asked,
        } = &mut self.stage
        else {
            return None;
        };
        if !is_available {
            *quiet_since = None;
            return None;
        }
        if *is_asked || now < *next_look {
            return None;
        }
        *is_asked = true;
        let has_settled = quiet_since.is_some_and(|since| now.since(since) >= settle);
        if has_settled {
            return Some(RolloutQuestion::Reports(self.workload.clone()));
        }
        Some(RolloutQuestion::OldPods {
            workload: self.workload.clone(),
            hash_label: self.newest()?.hash_label,
            hashes: self.others().map(|set| set.hash.clone()).collect(),
        })
    }
}

fn known(set: &FollowedSet) -> KnownRevision {
    let FollowedSet {
        seen,
        whole,
        is_recreated,
        ..
    } = set;
    KnownRevision {
        number: seen.number,
        hash: seen.hash.clone(),
        begun: seen.created,
        is_resumed: seen.is_resumed,
        replaced: whole.map_or(ReplacedPods::Unknown, ReplacedPods::Exactly),
        is_recreated: *is_recreated,
        ..KnownRevision::default()
    }
}

#[cfg(test)]
mod tests;
