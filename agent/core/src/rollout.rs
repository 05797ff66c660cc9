//! What a rollout cost: the pods that it replaced, by their Epitaphs, against those of the rollout before.
//!
//! A pod was replaced by the last rollout to a later revision that had begun when the pod's deletion was requested: the pods of two revisions may
//! exist side by side when the next rollout begins. Unknown stays unknown: a pod without a report is named, and connections that were not
//! observed are counted apart from none.

mod forecast;
mod settling;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use crate::render::resource::{EpitaphReport, POD};
use crate::time::Wall;
use crate::tolerances::{DELETED_TOGETHER, RECREATED, REQUEST_EARLY};

pub use crate::tolerances::SETTLE;
pub use forecast::{Forecast, Outlook};
pub use settling::{ReplicaSetSight, RolledWorkload, RolloutQuestion, Rollouts, SettledRollout, Sighted, WorkloadKey};

/// A revision of a workload, as the API knows it: a ReplicaSet of a Deployment, a ControllerRevision of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownRevision {
    /// `deployment.kubernetes.io/revision`, or the field `revision`. It grows with each rollout.
    pub number: u64,
    /// The pods' label `pod-template-hash` or `controller-revision-hash`.
    pub hash: String,
    /// Since when its pods are made, by the object: the creation of a ReplicaSet, the last write of a ControllerRevision.
    pub begun: Option<Wall>,
    /// A rollback took up a ReplicaSet of before: `begun` is about the first time.
    pub is_resumed: bool,
    /// Names of its pods that exist and have not terminated.
    pub pods: BTreeSet<String>,
    /// Names of its pods that its controller deleted, as far as Events show it: not all deletions have one.
    pub deleted: BTreeSet<String>,
    pub replaced: ReplacedPods,
    /// The strategy `Recreate` ended its pods before the next ReplicaSet was created.
    pub is_recreated: bool,
}

/// How many pods of a revision the rollout replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplacedPods {
    #[default]
    Unknown,
    Exactly(u64),
    /// By a number of pods that were wanted: not all of them need have existed.
    AtMost(u64),
}

/// What the end of one revision's pods cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionCost {
    /// Absent where the API no longer has the revision.
    pub revision: Option<u64>,
    /// Revisions before, pods of which the rollout replaced as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_of: Vec<u64>,
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
    /// Absent, as the three below, where the connections of no pod are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undecided: Option<u64>,
    /// Pods whose lost connections are not known, or only in part.
    pub unobserved: u64,
    /// Of the sums, what the other pods lost.
    pub lost_of_observed: u64,
    /// Pods that the controller deleted and that have no report.
    pub missing: Vec<String>,
    /// Pods that were replaced and have no report, named or not; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreported: Option<u64>,
    /// Where `unreported` is not known: most pods that can have been replaced; absent where that is not known either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced_at_most: Option<u64>,
    /// Pods of this revision that terminated before its replacement began: not a cost of the rollout.
    pub before: u64,
    /// Pods that lost connections or terminated uncleanly, the worst first: ten at most.
    pub worst: Vec<PodCost>,
    /// How many further ones there are.
    pub worst_left_out: u64,
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
    /// Further ones may have been missed.
    #[serde(rename = "atLeast", skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    pub sentence: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Most pods with a line of their own.
const WORST: usize = 10;

impl RevisionCost {
    /// Refused, reset and cut connections that are known; None where those of no pod are.
    pub fn lost(&self) -> Option<u64> {
        Some(self.refused?.saturating_add(self.reset?).saturating_add(self.cut?))
    }

    /// Pods whose lost connections are known.
    pub fn observed(&self) -> u64 {
        self.pods.saturating_sub(self.unobserved)
    }

    /// Lost connections of a pod, by those whose lost connections are known.
    pub fn mean_lost(&self) -> Option<f64> {
        (self.observed() > 0).then(|| self.lost_of_observed as f64 / self.observed() as f64)
    }

    /// What pods lost of which more may have been missed.
    pub fn lost_at_least(&self) -> u64 {
        self.lost().unwrap_or(0).saturating_sub(self.lost_of_observed)
    }

    /// How many replaced pods the connections of which are not known, if these are half of the pods or more: what the others lost is no
    /// measure of the rollout.
    pub fn unknown_of_half(&self) -> Option<u64> {
        let unreported = match (self.unreported, self.replaced_at_most) {
            (Some(unreported), _) => unreported,
            (None, most) => most.unwrap_or(0).saturating_sub(self.pods),
        };
        let unknown = self.unobserved + unreported.max(self.missing.len() as u64);
        (unknown > 0 && unknown >= self.observed()).then_some(unknown)
    }

    /// Nothing is known: no report, and no pod that should have one.
    fn is_empty(&self) -> bool {
        self.pods == 0 && self.before == 0 && self.missing.is_empty() && self.unreported.unwrap_or(0) == 0
    }
}

/// One for each revision with pods that terminated, the newest first; then revisions that the API no longer has, the latest exit first.
pub fn costs(reports: &[&EpitaphReport], known: &[KnownRevision]) -> Vec<RevisionCost> {
    let history = History::of(reports, known);
    let of_known = (0..history.known.len()).map(|at| history.cost(at));
    let mut costs: Vec<RevisionCost> = of_known.filter(|cost| !cost.is_empty()).collect();
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
    let history = History::of(reports, known);
    let at = history.known.iter().position(|revision| revision.number == number);
    at.map_or_else(Vec::new, |at| history.terminated(at).replaced)
}

/// The revisions of a workload, the oldest first, and the reports of their pods.
struct History<'r, 'k> {
    reports: Vec<&'r EpitaphReport>,
    known: Vec<&'k KnownRevision>,
    /// Of each revision: when its rollout began, if that is known.
    begins: Vec<Option<Wall>>,
}

/// The reports of pods of one revision and of those before.
struct Terminated<'a> {
    /// By the rollout.
    replaced: Vec<&'a EpitaphReport>,
    /// Of the one revision: before the rollout.
    before: Vec<&'a EpitaphReport>,
}

impl<'r, 'k> History<'r, 'k> {
    fn of(reports: &[&'r EpitaphReport], known: &'k [KnownRevision]) -> History<'r, 'k> {
        let reports: Vec<&EpitaphReport> = pods(reports).collect();
        let mut known: Vec<&KnownRevision> = known.iter().collect();
        known.sort_by_key(|revision| revision.number);
        let mut begins = vec![None; known.len().min(1)];
        let mut latest = None;
        for pair in known.windows(2) {
            // A rollout begins after the one before.
            let begin = begin(&reports, pair[0], pair[1]).map(|begin| latest.map_or(begin, |latest| begin.max(latest)));
            latest = begin.or(latest);
            begins.push(begin);
        }
        History { reports, known, begins }
    }

    fn reports_of(&self, at: usize) -> impl Iterator<Item = &'r EpitaphReport> {
        let of = self.known[at].hash.as_str();
        self.reports.iter().copied().filter(move |report| hash(report) == of)
    }

    /// The revision to which the pod of revision `at` made way; None: its deletion was requested before any of these rollouts.
    fn made_way(&self, at: usize, report: &EpitaphReport) -> Option<usize> {
        let next = at + 1;
        let asked = asked(report);
        let is_after = |(begin, asked): (Wall, Wall)| Duration::from_nanos(begin.0.saturating_sub(asked.0)) <= REQUEST_EARLY;
        let has_begun = |of: &usize| self.begins[*of].zip(asked).is_some_and(is_after);
        let last = (next..self.known.len()).rev().find(has_begun);
        let is_unknown = asked.is_none() || self.begins.get(next).is_none_or(Option::is_none);
        last.or(is_unknown.then_some(next))
    }

    fn terminated(&self, at: usize) -> Terminated<'r> {
        let of =
            |of: usize, rollout: Option<usize>| self.reports_of(of).filter(move |report| self.made_way(of, report) == rollout);
        let mut before: Vec<&EpitaphReport> = of(at, None).collect();
        let mut replaced: Vec<&EpitaphReport> = of(at, Some(at + 1)).collect();
        // Nothing replaces the newest: what the older ones lost is the cost of its own rollout.
        if at + 1 < self.known.len() {
            replaced.extend((0..at).flat_map(|older| of(older, Some(at + 1))));
        }
        if let Some(begin) = self.begins.get(at + 1).copied().flatten()
            && self.known[at].is_recreated
            && replaced.is_empty()
        {
            replaced = last_deleted(&mut before, begin);
        }
        Terminated { replaced, before }
    }

    /// Of the rollout to the revision after `at`.
    fn cost(&self, at: usize) -> RevisionCost {
        let Terminated { replaced, before } = self.terminated(at);
        let is_replaced = |of: &usize| {
            let revision = self.known[*of];
            let has_pods = !revision.pods.is_empty() || matches!(revision.replaced, ReplacedPods::Exactly(1..));
            has_pods || replaced.iter().any(|report| hash(report) == revision.hash)
        };
        let older: Vec<usize> = match at + 1 < self.known.len() {
            true => (0..at).filter(is_replaced).collect(),
            false => Vec::new(),
        };
        let parts: Vec<usize> = older.iter().copied().chain([at]).collect();
        let revisions = || parts.iter().map(|of| self.known[*of]);
        let existing: BTreeSet<&str> = revisions().flat_map(|of| of.pods.iter().map(String::as_str)).collect();
        let reported = parts.iter().flat_map(|of| self.reports_of(*of));
        let reported: BTreeSet<&str> = reported.map(|report| report.pod.name.as_str()).collect();
        let deleted = revisions().flat_map(|of| of.deleted.iter().map(String::as_str));
        let missing: BTreeSet<&str> = deleted
            .filter(|name| !reported.contains(name) && !existing.contains(name))
            .collect();
        let (evicted, by_controller): (Vec<_>, Vec<_>) = replaced.iter().copied().partition(|report| is_evicted(report));
        // A pod of a StatefulSet can terminate twice within a rollout.
        let mut known: BTreeSet<&str> = by_controller.iter().map(|report| report.pod.name.as_str()).collect();
        known.extend(&existing);
        known.extend(&missing);
        let bound = revisions()
            .map(|of| of.replaced)
            .reduce(ReplacedPods::and)
            .unwrap_or_default();
        let (unreported, replaced_at_most) = bound.unreported(known.len() as u64, missing.len() as u64, evicted.len() as u64);
        RevisionCost {
            revision: Some(self.known[at].number),
            also_of: older.iter().map(|of| self.known[*of].number).collect(),
            hash: self.known[at].hash.clone(),
            replaced_by: self.known.get(at + 1).map(|next| next.number),
            missing: missing.into_iter().map(str::to_owned).collect(),
            unreported,
            replaced_at_most,
            before: before.len() as u64,
            ..counted(replaced.into_iter())
        }
    }
}

impl ReplacedPods {
    /// Of two revisions.
    fn and(self, other: ReplacedPods) -> ReplacedPods {
        use ReplacedPods::{AtMost, Exactly, Unknown};
        match (self, other) {
            (Unknown, _) | (_, Unknown) => Unknown,
            (Exactly(one), Exactly(two)) => Exactly(one + two),
            (Exactly(one) | AtMost(one), Exactly(two) | AtMost(two)) => AtMost(one + two),
        }
    }

    /// Pods without a report, and where that is not known, most pods that were replaced. `known`: pods that their controller deleted, with a
    /// report or only by name (`missing`), or that still exist. `evicted`: pods with a report that somebody else ended meanwhile; each may have
    /// had a replacement, or be one of those that were wanted.
    fn unreported(self, known: u64, missing: u64, evicted: u64) -> (Option<u64>, Option<u64>) {
        match self {
            ReplacedPods::Unknown => (None, None),
            // A surplus: some of these are pods that the number does not count, and can hide others that have no report.
            ReplacedPods::Exactly(wanted) | ReplacedPods::AtMost(wanted) if known > wanted => (None, None),
            ReplacedPods::Exactly(wanted) | ReplacedPods::AtMost(wanted) if known == wanted => (Some(missing), None),
            ReplacedPods::Exactly(wanted) if evicted == 0 => (Some(wanted - known + missing), None),
            ReplacedPods::Exactly(wanted) | ReplacedPods::AtMost(wanted) => (None, Some(wanted + evicted)),
        }
    }
}

/// Somebody else than the controller ended the pod: in a rollout, the controller makes another one.
fn is_evicted(report: &EpitaphReport) -> bool {
    report.cause.starts_with("evicted-") || matches!(report.cause.as_str(), "deadline" | "node-shutdown")
}

/// When the replacement of a revision began, if that is known.
fn begin(reports: &[&EpitaphReport], of: &KnownRevision, next: &KnownRevision) -> Option<Wall> {
    // A rollback continues a revision that was made long before: its creation does not mark the begin of the rollout.
    let begun = next.begun.filter(|begun| of.begun.is_none_or(|own| *begun > own));
    if !next.is_resumed {
        return begun;
    }
    // Its pods of the first time were replaced by this revision, which lasted until now. Exits do not compare: pods drain for different times.
    let requests = |hash_of: &str| {
        let of_hash = pods(reports).filter(|report| hash(report) == hash_of);
        of_hash.filter_map(asked).collect::<Vec<_>>()
    };
    let last = requests(&of.hash).into_iter().max();
    let earlier = requests(&next.hash).into_iter().filter(|asked| Some(*asked) < last).max();
    earlier.max(begun)
}

/// Takes out the pods that were deleted together as the last ones, if they were gone shortly before.
fn last_deleted<'a>(before: &mut Vec<&'a EpitaphReport>, begin: Wall) -> Vec<&'a EpitaphReport> {
    let within = |from: Option<Wall>, to: Option<Wall>, limit: Duration| {
        let between = from
            .zip(to)
            .map(|(from, to)| Duration::from_nanos(to.0.saturating_sub(from.0)));
        between.is_some_and(|between| between <= limit)
    };
    if !within(
        before.iter().filter_map(|report| exited(report)).max(),
        Some(begin),
        RECREATED,
    ) {
        return Vec::new();
    }
    before.sort_by_key(|report| asked(report));
    let gap = before
        .windows(2)
        .rposition(|pair| !within(asked(pair[0]), asked(pair[1]), DELETED_TOGETHER));
    before.split_off(gap.map_or(0, |gap| gap + 1))
}

fn exited(report: &EpitaphReport) -> Option<Wall> {
    Wall::parse_rfc3339(&report.times.exited)
}

/// The earliest time of the deletion request, or without one the exit: by the clock of the node.
fn asked(report: &EpitaphReport) -> Option<Wall> {
    let requested = report.times.requested.as_deref().and_then(Wall::parse_rfc3339);
    requested.or_else(|| exited(report))
}

fn counted<'a>(reports: impl Iterator<Item = &'a EpitaphReport>) -> RevisionCost {
    let mut cost = RevisionCost::default();
    let mut took = Vec::new();
    let mut sums = [0_u64; 4];
    for report in reports {
        cost.pods += 1;
        cost.unclean += u64::from(report.unclean);
        cost.unknown += u64::from(report.verdict == "unknown");
        *cost.verdicts.entry(report.verdict.clone()).or_default() += 1;
        took.extend(seconds(report));
        let lost = report.connections.as_ref().and_then(|of| of.lost);
        let at_least = report.connections.as_ref().and_then(|of| of.at_least) == Some(true);
        let is_part = lost.is_none() || at_least;
        cost.unobserved += u64::from(is_part);
        if let Some(of) = &report.connections {
            let own = [of.refused, of.reset, of.cut, of.undecided];
            // Whoever may write an object may write any number in it.
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum = sum.saturating_add(own));
            if !is_part {
                let lost = own[..3].iter().fold(0, |sum: u64, own| sum.saturating_add(*own));
                cost.lost_of_observed = cost.lost_of_observed.saturating_add(lost);
            }
        }
        if report.unclean || lost.is_some_and(|lost| lost > 0) {
            cost.worst.push(PodCost {
                pod: report.pod.name.clone(),
                node: report.node.clone(),
                verdict: report.verdict.clone(),
                lost,
                at_least,
                sentence: report.sentence.clone(),
                remedy: report.remedy.clone(),
            });
        }
    }
    if cost.observed() > 0 || sums != [0; 4] {
        [cost.refused, cost.reset, cost.cut, cost.undecided] = sums.map(Some);
    }
    cost.worst.sort_by(|a, b| b.lost.cmp(&a.lost).then_with(|| a.pod.cmp(&b.pod)));
    cost.worst_left_out = cost.worst.len().saturating_sub(WORST) as u64;
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
    let exited = exited(report)?;
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
mod tests;
