//! When a rollout has settled, and what it cost then: by the ReplicaSets of a workload.
//!
//! A rollout has settled when the pods of the newest ReplicaSet are available and no pod of another one has existed for a while. Whether
//! pods exist is asked: a ReplicaSet does not count those that terminate.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::{KnownRevision, RevisionCost, costs};
use crate::render::resource::EpitaphReport;
use crate::time::{Boot, Wall};
use crate::tolerances::{ROLLOUT_LOOK, ROLLOUT_RECENT};

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
    /// None: no pod that it replaced has a report.
    pub cost: Option<RevisionCost>,
}

/// The workloads of a cluster.
#[derive(Debug)]
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
    sets: BTreeMap<String, ReplicaSetSight>,
    stage: Stage,
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
            workloads: HashMap::new(),
            owners: HashMap::new(),
            of_namespace: HashMap::new(),
            most,
            settle,
            is_synced: false,
            listed: None,
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
                    of.stage = Stage::BEGUN;
                }
            }
        }
        gone
    }

    /// False: not kept, because too many are known.
    pub fn sight(&mut self, sight: ReplicaSetSight) -> bool {
        if let Some(listed) = &mut self.listed {
            listed.insert(sight.uid.clone());
        }
        let key = sight.workload.key();
        if !self.owners.contains_key(&sight.uid) {
            let in_namespace = self.of_namespace.entry(key.0.clone()).or_default();
            if self.owners.len() >= self.most || *in_namespace >= self.most.div_ceil(4) {
                return false;
            }
            *in_namespace += 1;
        }
        self.owners.insert(sight.uid.clone(), key.clone());
        let of = self.workloads.entry(key).or_insert_with(|| Followed {
            workload: sight.workload.clone(),
            sets: BTreeMap::new(),
            stage: Stage::Still,
        });
        let before = of.newest().map(|newest| newest.number);
        of.sets.insert(sight.uid.clone(), sight);
        let is_newer = of.newest().map(|newest| newest.number) > before;
        // Until the first list is complete, the newest of those that are known need not be the newest.
        if self.is_synced && ((is_newer && of.sets.len() > 1) || (matches!(of.stage, Stage::Still) && of.is_rolling())) {
            of.stage = Stage::BEGUN;
        }
        true
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
        let quiet_since = *of.answered(now)?;
        let reports = reports.filter(|_| quiet_since.is_some_and(|since| now.since(since) >= self.settle))?;
        of.stage = Stage::Still;
        let revision = of.newest()?.number;
        let known: Vec<KnownRevision> = of.sets.values().map(known).collect();
        Some(SettledRollout {
            workload: of.workload.clone(),
            revision,
            cost: costs(reports, &known)
                .into_iter()
                .find(|cost| cost.replaced_by == Some(revision)),
        })
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
    fn newest(&self) -> Option<&ReplicaSetSight> {
        self.sets.values().max_by_key(|set| set.number)
    }

    fn others(&self) -> impl Iterator<Item = &ReplicaSetSight> {
        let newest = self.newest().map(|newest| newest.uid.as_str());
        self.sets.values().filter(move |set| Some(set.uid.as_str()) != newest)
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

fn known(set: &ReplicaSetSight) -> KnownRevision {
    KnownRevision {
        number: set.number,
        hash: set.hash.clone(),
        created: set.created,
        ..KnownRevision::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{lossy, pod};
    use super::*;
    use crate::tolerances::SETTLE;

    const fn at(seconds: u64) -> Boot {
        Boot(seconds * 1_000_000_000)
    }

    const NOW: Wall = Wall(100_000 * 1_000_000_000);

    fn web() -> RolledWorkload {
        RolledWorkload {
            uid: "web".to_owned(),
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
            ..RolledWorkload::default()
        }
    }

    fn set(number: u64, wanted: u64, pods: u64, available: u64) -> ReplicaSetSight {
        ReplicaSetSight {
            uid: format!("set-{number}"),
            workload: web(),
            number,
            hash_label: "pod-template-hash",
            hash: format!("hash{number}"),
            created: Some(Wall(number * 1_000_000_000)),
            wanted,
            pods,
            available,
            is_current: true,
        }
    }

    fn listed(sets: impl IntoIterator<Item = ReplicaSetSight>) -> Rollouts {
        let mut rollouts = Rollouts::new(100, SETTLE);
        rollouts.list_begins();
        for set in sets {
            assert!(rollouts.sight(set));
        }
        assert!(rollouts.list_ends(NOW).is_empty());
        rollouts
    }

    /// One word for the questions.
    fn asked(rollouts: &mut Rollouts, now: Boot) -> &'static str {
        match rollouts.questions(now).as_slice() {
            [] => "nothing",
            [RolloutQuestion::OldPods { hashes, .. }] if hashes == &["hash1"] => "old pods",
            [RolloutQuestion::Reports(_)] => "reports",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_rollout_has_settled_when_no_old_pod_was_there_for_30_seconds() {
        let mut rollouts = listed([set(1, 2, 2, 2)]);
        assert_eq!(asked(&mut rollouts, at(1)), "nothing", "nothing is rolled out");
        rollouts.sight(set(2, 1, 1, 0));
        assert_eq!(asked(&mut rollouts, at(2)), "nothing", "the new pod is not available");
        rollouts.sight(set(2, 2, 2, 2));
        assert_eq!(asked(&mut rollouts, at(3)), "nothing", "old ones are wanted");
        rollouts.sight(set(1, 0, 0, 0));
        assert_eq!(asked(&mut rollouts, at(4)), "old pods");
        assert_eq!(asked(&mut rollouts, at(20)), "nothing", "the question is not answered");
        rollouts.old_pods(at(20), &web(), Some(1));
        assert_eq!(asked(&mut rollouts, at(21)), "nothing");
        assert_eq!(asked(&mut rollouts, at(25)), "old pods", "one still terminates");
        rollouts.old_pods(at(25), &web(), None);
        assert_eq!(asked(&mut rollouts, at(30)), "old pods", "no answer");
        rollouts.old_pods(at(30), &web(), Some(0));
        assert_eq!(asked(&mut rollouts, at(55)), "old pods");
        rollouts.old_pods(at(55), &web(), Some(0));
        assert_eq!(asked(&mut rollouts, at(60)), "reports");
        assert_eq!(rollouts.reports(at(60), &web(), None), None);
        assert_eq!(asked(&mut rollouts, at(65)), "reports");
        let reports = [lossy(pod("a", "hash1", 150, 1), 3), pod("b", "hash1", 151, 1)];
        let reports: Vec<&EpitaphReport> = reports.iter().collect();
        let settled = rollouts.reports(at(65), &web(), Some(&reports)).expect("settled");
        let cost = settled.cost.expect("two pods");
        assert_eq!((settled.revision, cost.pods, cost.lost()), (2, 2, 3));
        assert_eq!(asked(&mut rollouts, at(1_000)), "nothing", "once");
    }

    #[test]
    fn a_rollback_and_a_rollout_in_the_middle_of_another_are_rollouts() {
        let mut rollouts = listed([set(1, 0, 0, 0), set(2, 2, 2, 2)]);
        assert_eq!(asked(&mut rollouts, at(1)), "nothing");
        // The old ReplicaSet gets the next number.
        let mut back = set(3, 2, 2, 2);
        (back.uid, back.hash) = ("set-1".to_owned(), "hash3".to_owned());
        rollouts.sight(back);
        let mut old = set(2, 0, 0, 0);
        old.hash = "hash1".to_owned();
        rollouts.sight(old);
        assert_eq!(asked(&mut rollouts, at(2)), "old pods");
        rollouts.old_pods(at(2), &web(), Some(0));
        // Another rollout begins: the thirty seconds begin anew.
        rollouts.sight(set(4, 1, 1, 0));
        assert_eq!(asked(&mut rollouts, at(40)), "nothing");
        assert_eq!(rollouts.reports(at(41), &web(), Some(&[])), None);
    }

    /// An observer that takes over, or starts again.
    #[test]
    fn a_rollout_from_before_the_observation_is_looked_at_if_it_is_recent() {
        let mut young = set(2, 2, 2, 2);
        young.created = Some(Wall(NOW.0 - 600 * 1_000_000_000));
        let mut rollouts = listed([young, set(1, 0, 0, 0)]);
        assert_eq!(asked(&mut rollouts, at(1)), "old pods");
        // The first revision of a workload replaced nothing.
        let mut first = set(1, 2, 2, 2);
        first.created = Some(NOW);
        assert_eq!(asked(&mut listed([first]), at(1)), "nothing");
    }

    #[test]
    fn what_a_list_does_not_have_is_gone_and_the_number_is_bounded() {
        let mut rollouts = listed([set(1, 0, 0, 0), set(2, 2, 2, 2)]);
        rollouts.list_begins();
        rollouts.sight(set(2, 2, 2, 2));
        assert!(rollouts.list_ends(NOW).is_empty(), "the workload has a ReplicaSet");
        assert_eq!(rollouts.len(), 1);
        assert_eq!(rollouts.gone("set-2").map(|of| of.uid), Some("web".to_owned()));
        assert!(rollouts.is_empty());
        let mut small = Rollouts::new(4, SETTLE);
        assert!(small.sight(set(1, 1, 1, 1)) && small.sight(set(1, 2, 2, 2)));
        assert!(!small.sight(set(2, 1, 1, 1)), "the share of a namespace");
        let mut elsewhere = set(2, 1, 1, 1);
        elsewhere.workload.namespace = "bank".to_owned();
        assert!(small.sight(elsewhere));
    }

    /// Whoever creates a ReplicaSet chooses the UID of its owner.
    #[test]
    fn a_replica_set_of_another_namespace_is_not_the_workloads() {
        let mut forged = set(9, 1, 1, 0);
        forged.uid = "forged".to_owned();
        forged.workload.namespace = "mallory".to_owned();
        let mut rollouts = listed([set(1, 2, 2, 2), forged]);
        rollouts.sight(set(2, 2, 2, 2));
        rollouts.sight(set(1, 0, 0, 0));
        assert_eq!(asked(&mut rollouts, at(4)), "old pods");
    }
}
