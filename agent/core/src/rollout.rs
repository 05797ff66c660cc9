//! What a rollout cost: the pods of a revision that it replaced, by their Epitaphs, against those of the revision before.
//!
//! Unknown stays unknown: a pod without a report is named, and connections that were not observed are counted apart from none.

mod forecast;
mod settling;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::render::resource::{EpitaphReport, POD};
use crate::time::Wall;

pub use crate::tolerances::SETTLE;
pub use forecast::{Forecast, Outlook};
pub use settling::{ReplicaSetSight, RolledWorkload, RolloutQuestion, Rollouts, SettledRollout, WorkloadKey};

/// A revision of a workload, as the API knows it: a ReplicaSet of a Deployment, a ControllerRevision of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownRevision {
    /// `deployment.kubernetes.io/revision`, or the field `revision`. It grows with each rollout.
    pub number: u64,
    /// The pods' label `pod-template-hash` or `controller-revision-hash`.
    pub hash: String,
    pub created: Option<Wall>,
    /// Names of its pods that exist.
    pub pods: BTreeSet<String>,
    /// Names of its pods that its controller deleted, as far as Events still show it (an hour by default).
    pub deleted: BTreeSet<String>,
}

/// What the end of one revision's pods cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionCost {
    /// Absent where the API no longer has the revision.
    pub revision: Option<u64>,
    pub hash: String,
    /// The revision that replaced it; absent for the newest.
    pub replaced_by: Option<u64>,
    /// Pods with a report.
    pub pods: u64,
    pub unclean: u64,
    /// Reports without a verdict on evidence.
    pub unknown: u64,
    /// Pods by verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// From the deletion request to the last exit, seconds; absent where no request is known.
    pub took: Option<TookSeconds>,
    pub refused: u64,
    pub reset: u64,
    pub cut: u64,
    pub undecided: u64,
    /// Pods whose lost connections are not known.
    pub unobserved: u64,
    /// Pods that the controller deleted and that have no report.
    pub missing: Vec<String>,
    /// Pods of this revision that terminated before its replacement was created: not a cost of the rollout.
    pub before: u64,
    /// Pods that lost connections or terminated uncleanly, the worst first.
    pub worst: Vec<PodCost>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TookSeconds {
    pub median: f64,
    pub worst: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PodCost {
    pub pod: String,
    pub node: String,
    pub verdict: String,
    /// Absent where it is not known.
    pub lost: Option<u64>,
    pub sentence: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Most pods with a line of their own.
const WORST: usize = 10;

impl RevisionCost {
    /// Refused, reset and cut connections that are known.
    pub fn lost(&self) -> u64 {
        self.refused + self.reset + self.cut
    }

    /// Nothing is known: no report, and no pod that should have one.
    fn is_empty(&self) -> bool {
        self.pods == 0 && self.missing.is_empty()
    }
}

/// One for each revision with pods that terminated, the newest first; then revisions that the API no longer has, the latest exit first.
pub fn costs(reports: &[&EpitaphReport], known: &[KnownRevision]) -> Vec<RevisionCost> {
    let mut known: Vec<&KnownRevision> = known.iter().collect();
    known.sort_by_key(|revision| revision.number);
    let mut costs: Vec<RevisionCost> = known
        .iter()
        .enumerate()
        .map(|(at, revision)| of_known(reports, revision, known.get(at + 1).copied()))
        .filter(|cost| !cost.is_empty())
        .collect();
    costs.reverse();
    let names: BTreeSet<&str> = known.iter().map(|revision| revision.hash.as_str()).collect();
    let mut forgotten: Vec<(&str, &str)> = Vec::new();
    for report in pods(reports) {
        let hash = hash(report);
        if names.contains(hash) {
            continue;
        }
        let last = report.times.exited.as_str();
        match forgotten.iter_mut().find(|(of, _)| *of == hash) {
            Some((_, latest)) => *latest = (*latest).max(last),
            None => forgotten.push((hash, last)),
        }
    }
    forgotten.sort_by_key(|(_, last)| std::cmp::Reverse(*last));
    costs.extend(forgotten.into_iter().map(|(of, _)| RevisionCost {
        hash: of.to_owned(),
        ..counted(pods(reports).filter(|report| hash(report) == of))
    }));
    costs
}

fn pods<'a>(reports: &[&'a EpitaphReport]) -> impl Iterator<Item = &'a EpitaphReport> {
    // A container's restart is no part of a rollout.
    reports.iter().copied().filter(|report| report.terminated == POD)
}

fn hash(report: &EpitaphReport) -> &str {
    let owner = report.owner.as_ref();
    owner.and_then(|owner| owner.revision.as_deref()).unwrap_or_default()
}

/// The reports that the cost of that revision counts, if the API has the revision.
pub fn replaced<'a>(reports: &[&'a EpitaphReport], known: &[KnownRevision], number: u64) -> Vec<&'a EpitaphReport> {
    let Some(revision) = known.iter().find(|revision| revision.number == number) else {
        return Vec::new();
    };
    let later = known.iter().filter(|other| other.number > number);
    let begin = begin(revision, later.min_by_key(|other| other.number));
    let own = pods(reports).filter(|report| hash(report) == revision.hash);
    own.filter(|report| !is_before(report, begin)).collect()
}

/// When the replacement of a revision began, if that is known.
fn begin(revision: &KnownRevision, next: Option<&KnownRevision>) -> Option<Wall> {
    // A rollback continues a revision that was made long before: its creation does not mark the begin of the rollout.
    next.and_then(|next| next.created)
        .filter(|begin| revision.created.is_none_or(|created| *begin > created))
}

fn is_before(report: &EpitaphReport, begin: Option<Wall>) -> bool {
    let exited = Wall::parse_rfc3339(&report.times.exited);
    begin.zip(exited).is_some_and(|(begin, exited)| exited < begin)
}

fn of_known(reports: &[&EpitaphReport], revision: &KnownRevision, next: Option<&KnownRevision>) -> RevisionCost {
    let begin = begin(revision, next);
    let is_before = |report: &&EpitaphReport| is_before(report, begin);
    let own = || pods(reports).filter(|report| hash(report) == revision.hash);
    let reported: BTreeSet<&str> = own().map(|report| report.pod.name.as_str()).collect();
    let missing = revision
        .deleted
        .iter()
        .filter(|name| !reported.contains(name.as_str()) && !revision.pods.contains(*name));
    RevisionCost {
        revision: Some(revision.number),
        hash: revision.hash.clone(),
        replaced_by: next.map(|next| next.number),
        missing: missing.cloned().collect(),
        before: own().filter(is_before).count() as u64,
        ..counted(own().filter(|report| !is_before(report)))
    }
}

fn counted<'a>(reports: impl Iterator<Item = &'a EpitaphReport>) -> RevisionCost {
    let mut cost = RevisionCost::default();
    let mut took = Vec::new();
    for report in reports {
        cost.pods += 1;
        cost.unclean += u64::from(report.unclean);
        cost.unknown += u64::from(report.verdict == "unknown");
        *cost.verdicts.entry(report.verdict.clone()).or_default() += 1;
        took.extend(seconds(report));
        let lost = report.connections.as_ref().and_then(|of| of.lost);
        cost.unobserved += u64::from(lost.is_none());
        if let Some(of) = &report.connections {
            cost.refused += of.refused;
            cost.reset += of.reset;
            cost.cut += of.cut;
            cost.undecided += of.undecided;
        }
        if report.unclean || lost.is_some_and(|lost| lost > 0) {
            cost.worst.push(PodCost {
                pod: report.pod.name.clone(),
                node: report.node.clone(),
                verdict: report.verdict.clone(),
                lost,
                sentence: report.sentence.clone(),
                remedy: report.remedy.clone(),
            });
        }
    }
    cost.worst.sort_by(|a, b| b.lost.cmp(&a.lost).then_with(|| a.pod.cmp(&b.pod)));
    cost.worst.truncate(WORST);
    took.sort_by(f64::total_cmp);
    cost.took = took.last().map(|worst| TookSeconds {
        median: median(&took),
        worst: *worst,
    });
    cost
}

/// From the deletion request to the last exit.
fn seconds(report: &EpitaphReport) -> Option<f64> {
    let requested = Wall::parse_rfc3339(report.times.requested.as_deref()?)?;
    let exited = Wall::parse_rfc3339(&report.times.exited)?;
    Some(exited.0.saturating_sub(requested.0) as f64 / 1e9)
}

/// Of a sorted list that is not empty.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::resource::{EpitaphConnections, EpitaphOwner, EpitaphPod, EpitaphTimes};

    /// A pod of a revision; its exit is `second` s after midnight, and its deletion was requested `took` s before.
    pub(super) fn pod(name: &str, hash: &str, second: u64, took: u64) -> EpitaphReport {
        let at = |second: u64| Wall(second * 1_000_000_000).rfc3339_millis();
        EpitaphReport {
            terminated: POD.to_owned(),
            pod: EpitaphPod {
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
            },
            owner: Some(EpitaphOwner {
                revision: Some(hash.to_owned()),
                ..EpitaphOwner::default()
            }),
            verdict: "clean".to_owned(),
            connections: Some(EpitaphConnections {
                lost: Some(0),
                ..EpitaphConnections::default()
            }),
            times: EpitaphTimes {
                requested: Some(at(second - took)),
                exited: at(second),
                ..EpitaphTimes::default()
            },
            ..EpitaphReport::default()
        }
    }

    pub(super) fn lossy(mut pod: EpitaphReport, refused: u64) -> EpitaphReport {
        pod.verdict = "refused-connections".to_owned();
        pod.unclean = true;
        pod.connections = Some(EpitaphConnections {
            lost: Some(refused),
            refused,
            undecided: 1,
            ..EpitaphConnections::default()
        });
        pod
    }

    fn revision(number: u64, hash: &str, created: u64) -> KnownRevision {
        KnownRevision {
            number,
            hash: hash.to_owned(),
            created: Some(Wall(created * 1_000_000_000)),
            ..KnownRevision::default()
        }
    }

    fn of(reports: &[EpitaphReport], known: &[KnownRevision]) -> Vec<RevisionCost> {
        costs(&reports.iter().collect::<Vec<_>>(), known)
    }

    #[test]
    fn the_pods_of_each_revision_are_counted_the_newest_first() {
        let reports = [
            pod("a", "one", 110, 1),
            lossy(pod("b", "one", 120, 31), 3),
            pod("c", "two", 210, 2),
            lossy(pod("d", "two", 211, 4), 0),
        ];
        let costs = of(
            &reports,
            &[revision(3, "three", 200), revision(1, "one", 10), revision(2, "two", 100)],
        );
        let shown: Vec<_> = costs
            .iter()
            .map(|cost| (cost.revision, cost.replaced_by, cost.pods, cost.unclean, cost.lost()))
            .collect();
        assert_eq!(shown, [(Some(2), Some(3), 2, 1, 0), (Some(1), Some(2), 2, 1, 3)]);
        let took = costs[1].took.expect("requests");
        assert_eq!((took.median, took.worst), (16.0, 31.0));
        assert_eq!(costs[1].undecided, 1);
        assert_eq!(costs[1].verdicts["refused-connections"], 1);
        assert_eq!(costs[1].worst.iter().map(|of| of.pod.as_str()).collect::<Vec<_>>(), ["b"]);
    }

    /// A drain of the day before, and a scale-down.
    #[test]
    fn what_terminated_before_the_rollout_is_no_cost_of_the_rollout() {
        let reports = [lossy(pod("a", "one", 50, 1), 9), pod("b", "one", 150, 1)];
        let costs = of(&reports, &[revision(1, "one", 10), revision(2, "two", 100)]);
        assert_eq!((costs[0].pods, costs[0].lost(), costs[0].before), (1, 0, 1));
        // A rollback continues an old ReplicaSet, of which the creation says nothing.
        let costs = of(&reports, &[revision(3, "two", 5), revision(2, "one", 10)]);
        assert_eq!((costs[0].pods, costs[0].lost(), costs[0].before), (2, 9, 0));
    }

    #[test]
    fn a_pod_without_a_report_is_named_and_unobserved_connections_are_not_none() {
        let mut one = revision(1, "one", 10);
        one.deleted = ["a", "b", "c"].map(str::to_owned).into();
        one.pods = ["c".to_owned()].into();
        let mut unobserved = pod("a", "one", 150, 1);
        unobserved.connections = None;
        unobserved.times.requested = None;
        let costs = of(&[unobserved], &[one.clone(), revision(2, "two", 100)]);
        assert_eq!((costs[0].missing.as_slice(), costs[0].unobserved), (&["b".to_owned()][..], 1));
        assert_eq!(costs[0].took, None);
        // Not one report: still named.
        assert_eq!(of(&[], &[one])[0].missing, ["a", "b"]);
    }

    #[test]
    fn revisions_that_the_api_no_longer_has_come_last_and_restarts_do_not_count() {
        let mut restart = pod("w", "two", 300, 1);
        restart.terminated = "Container".to_owned();
        let reports = [
            pod("a", "older", 50, 1),
            pod("b", "old", 60, 1),
            pod("c", "two", 210, 2),
            restart,
        ];
        let costs = of(&reports, &[revision(2, "two", 100), revision(3, "three", 200)]);
        let shown: Vec<_> = costs
            .iter()
            .map(|cost| (cost.hash.as_str(), cost.revision, cost.pods))
            .collect();
        assert_eq!(shown, [("two", Some(2), 1), ("old", None, 1), ("older", None, 1)]);
    }
}
