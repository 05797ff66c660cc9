use super::*;
use crate::render::resource::{EpitaphConnections, EpitaphOwner, EpitaphPod, EpitaphTimes};

/// A pod of a revision; its exit is `second` s after midnight, and its deletion was requested `took` s before.
pub(in crate::rollout) fn pod(name: &str, hash: &str, second: u64, took: u64) -> EpitaphReport {
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

pub(in crate::rollout) fn lossy(mut pod: EpitaphReport, refused: u64) -> EpitaphReport {
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
        begun: Some(Wall(created * 1_000_000_000)),
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
        &[revision(3, "three", 200), revision(1, "one", 10), revision(2, "two", 80)],
    );
    let shown: Vec<_> = costs
        .iter()
        .map(|cost| (cost.revision, cost.replaced_by, cost.pods, cost.unclean, cost.lost()))
        .collect();
    assert_eq!(shown, [(Some(2), Some(3), 2, 1, Some(0)), (Some(1), Some(2), 2, 1, Some(3))]);
    let took = costs[1].took.expect("requests");
    assert_eq!((took.median, took.worst), (16.0, 31.0));
    assert_eq!(costs[1].undecided, Some(1));
    assert_eq!(costs[1].verdicts["refused-connections"], 1);
    assert_eq!(costs[1].worst.iter().map(|of| of.pod.as_str()).collect::<Vec<_>>(), ["b"]);
}

/// A drain of the day before, and a scale-down.
#[test]
fn what_terminated_before_the_rollout_is_no_cost_of_the_rollout() {
    let reports = [lossy(pod("a", "one", 50, 1), 9), pod("b", "one", 150, 1)];
    let costs = of(&reports, &[revision(1, "one", 10), revision(2, "two", 100)]);
    assert_eq!((costs[0].pods, costs[0].lost(), costs[0].before), (1, Some(0), 1));
    // A rollback continues an old ReplicaSet, of which the creation says nothing.
    let costs = of(&reports, &[revision(3, "two", 5), revision(2, "one", 10)]);
    assert_eq!((costs[0].pods, costs[0].lost(), costs[0].before), (2, Some(9), 0));
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

/// The strategy `Recreate`: the new ReplicaSet is created when the old pods are gone.
#[test]
fn pods_that_were_deleted_together_just_before_the_new_replica_set_are_a_cost_of_the_rollout() {
    let mut revisions = [revision(1, "one", 10), revision(2, "two", 1_000)];
    revisions[0].is_recreated = true;
    // A drain of the day before, and a scale-down a minute before the rollout.
    let reports = || vec![lossy(pod("a", "one", 50, 1), 9), lossy(pod("b", "one", 900, 1), 5)];
    let recreated = [lossy(pod("c", "one", 992, 5), 3), lossy(pod("d", "one", 998, 10), 4)];
    let all = [reports(), recreated.to_vec()].concat();
    let costs = of(&all, &revisions);
    assert_eq!((costs[0].pods, costs[0].lost(), costs[0].before), (2, Some(7), 2));
    // The clock of a node may be ahead of the API server's.
    let mut ahead = all.clone();
    ahead[3].times.exited = Wall(1_001_000_000_000).rfc3339_millis();
    let costs = of(&ahead, &revisions);
    assert_eq!((costs[0].pods, costs[0].lost(), costs[0].before), (2, Some(7), 2));
    // A rolling update: what was deleted before is no part of it.
    let rolled = [all, vec![pod("e", "one", 1_010, 2)]].concat();
    let costs = of(&rolled, &revisions);
    assert_eq!((costs[0].pods, costs[0].lost(), costs[0].before), (1, Some(0), 4));
    // Long before: known are only pods that the rollout did not end.
    let costs = of(&reports()[..1], &revisions);
    assert_eq!((costs[0].pods, costs[0].lost(), costs[0].before), (0, None, 1));
    // Another strategy: a scale-down just before the rollout, whose own pods have no report yet.
    revisions[0].is_recreated = false;
    let costs = of(&recreated, &revisions);
    assert_eq!((costs[0].pods, costs[0].lost(), costs[0].before), (0, None, 2));
}

/// A, B, back to A, and back to B.
#[test]
fn a_rollout_back_again_does_not_count_the_pods_of_the_first_one() {
    let reports = [
        lossy(pod("a1", "a", 210, 1), 9),
        lossy(pod("b1", "b", 310, 1), 5),
        lossy(pod("a2", "a", 410, 1), 2),
        // After the rollout.
        pod("b2", "b", 500, 1),
    ];
    let mut known = [revision(3, "a", 100), revision(4, "b", 200)];
    (known[0].is_resumed, known[1].is_resumed) = (true, true);
    let cost = of(&reports, &known).remove(1);
    assert_eq!((cost.revision, cost.pods, cost.lost(), cost.before), (Some(3), 1, Some(2), 1));
    let names: Vec<_> = replaced(&reports.iter().collect::<Vec<_>>(), &known, 3);
    assert_eq!(names.iter().map(|of| of.pod.name.as_str()).collect::<Vec<_>>(), ["a2"]);
    // A new ReplicaSet whose pods terminate within the rollout has not been there before.
    (known[0].is_resumed, known[1].is_resumed) = (false, false);
    assert_eq!(of(&reports, &known)[1].pods, 2);
}

#[test]
fn pods_without_a_report_are_counted_where_their_number_is_known() {
    let reports = [pod("a", "one", 150, 1), pod("b", "one", 151, 1), pod("b", "one", 152, 1)];
    let counted = |replaced: ReplacedPods| {
        let mut one = revision(1, "one", 10);
        (one.replaced, one.deleted) = (replaced, ["b".to_owned(), "c".to_owned()].into());
        let cost = of(&reports, &[one, revision(2, "two", 100)]).remove(0);
        (cost.unreported, cost.replaced_at_most)
    };
    assert_eq!(counted(ReplacedPods::Unknown), (None, None));
    assert_eq!(counted(ReplacedPods::Exactly(3)), (Some(1), None));
    assert_eq!(counted(ReplacedPods::Exactly(12)), (Some(10), None));
    assert_eq!(counted(ReplacedPods::AtMost(12)), (None, Some(12)));
    assert_eq!(counted(ReplacedPods::AtMost(3)), (Some(1), None));
    // More than were replaced: one of them may stand in for another.
    assert_eq!(counted(ReplacedPods::Exactly(2)), (None, None));
    assert_eq!(counted(ReplacedPods::AtMost(2)), (None, None));
    // Not one report: still a cost.
    let mut one = revision(1, "one", 10);
    one.replaced = ReplacedPods::Exactly(3);
    let costs = of(&[], &[one, revision(2, "two", 100)]);
    assert_eq!((costs[0].unreported, costs[0].lost()), (Some(3), None));
}

/// A node is drained in the middle of a rollout: the ReplicaSet makes a fourth pod.
#[test]
fn a_pod_that_was_evicted_does_not_stand_in_for_one_without_a_report() {
    let mut reports = ["a", "b", "c"].map(|name| pod(name, "one", 150, 1));
    reports[0].cause = "evicted-api".to_owned();
    let counted = |reports: &[EpitaphReport], replaced: ReplacedPods| {
        let mut one = revision(1, "one", 10);
        one.replaced = replaced;
        let cost = of(reports, &[one, revision(2, "two", 100)]).remove(0);
        (cost.pods, cost.unreported, cost.replaced_at_most)
    };
    assert_eq!(counted(&reports, ReplacedPods::Exactly(3)), (3, None, Some(4)));
    assert_eq!(counted(&reports, ReplacedPods::AtMost(3)), (3, None, Some(4)));
    let all = [reports.to_vec(), vec![pod("d", "one", 150, 1)]].concat();
    assert_eq!(counted(&all, ReplacedPods::Exactly(3)), (4, Some(0), None));
    // Without a drain three of three have a report.
    assert_eq!(counted(&all[1..], ReplacedPods::Exactly(3)), (3, Some(0), None));
}

/// The image and the number of replicas change at once: the old ReplicaSet is scaled from twelve to three, then the new one is made.
#[test]
fn pods_that_were_scaled_down_before_do_not_stand_in_for_those_without_a_report() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let unreported = |second: u64| {
        let mut one = revision(1, "one", 10);
        one.replaced = ReplacedPods::AtMost(3);
        let reports = names.map(|name| pod(name, "one", second + 5, 5));
        let cost = of(&reports, &[one, revision(2, "two", 100)]).remove(0);
        (cost.before, cost.unreported, cost.replaced_at_most)
    };
    assert_eq!(
        unreported(97),
        (9, None, Some(3)),
        "the exits are later, the requests are not"
    );
    // The earliest time of a request is up to two seconds too early.
    assert_eq!(unreported(98), (0, None, None));
}

/// Revision 2 never becomes available beside the pods of revision 1, and revision 3 replaces both.
#[test]
fn a_rollout_costs_the_pods_of_all_revisions_that_it_replaced() {
    let mut known = [revision(1, "one", 10), revision(2, "two", 100), revision(3, "three", 200)];
    let mut reports = vec![
        // The rollout to revision 2 ended one pod, and exits are later than the next begin.
        lossy(pod("a", "one", 205, 90), 1),
        lossy(pod("b", "one", 231, 30), 3),
        lossy(pod("c", "one", 240, 30), 4),
        pod("d", "two", 203, 1),
    ];
    let shown = |reports: &[EpitaphReport], known: &[KnownRevision]| -> Vec<_> {
        let costs = of(reports, known).into_iter();
        costs
            .map(|cost| {
                (
                    cost.replaced_by,
                    cost.also_of.clone(),
                    cost.pods,
                    cost.lost(),
                    cost.unreported,
                )
            })
            .collect()
    };
    assert_eq!(
        shown(&reports, &known),
        [(Some(3), vec![1], 3, Some(7), None), (Some(2), vec![], 1, Some(1), None)]
    );
    let names = replaced(&reports.iter().collect::<Vec<_>>(), &known, 2);
    assert_eq!(names.len(), 3, "for the forecast and the settings, too");
    // As the observer saw them.
    (known[0].replaced, known[1].replaced) = (ReplacedPods::Exactly(2), ReplacedPods::Exactly(1));
    assert_eq!(shown(&reports, &known)[0].4, Some(0));
    reports.retain(|report| report.pod.name == "d");
    assert_eq!(shown(&reports, &known)[0], (Some(3), vec![1], 1, Some(0), Some(2)));
    // One that takes part with an unknown number of pods.
    known[1].replaced = ReplacedPods::Unknown;
    assert_eq!(shown(&reports, &known)[0].4, None);
}

/// A's pods drain for half a minute; B is rolled back meanwhile, and its pods exit at once.
#[test]
fn a_quick_rollback_counts_by_the_requests_and_not_by_the_exits() {
    let a = [50, 60, 70].map(|second| pod(&format!("a{second}"), "a", second, 30));
    let b = [51, 56, 61].map(|second| lossy(pod(&format!("b{second}"), "b", second, 1), 2));
    let reports = [a.to_vec(), b.to_vec()].concat();
    let mut known = [revision(2, "b", 15), revision(3, "a", 1)];
    known[1].is_resumed = true;
    let cost = of(&reports, &known).into_iter().find(|cost| cost.replaced_by == Some(3));
    let cost = cost.expect("a cost");
    assert_eq!((cost.pods, cost.lost(), cost.before), (3, Some(6), 0));
}

#[test]
fn a_fraction_of_the_pods_is_no_measure_of_a_rollout() {
    let of = |pods: u64, unobserved: u64, unreported: Option<u64>, replaced_at_most: Option<u64>| {
        let cost = RevisionCost {
            pods,
            unobserved,
            unreported,
            replaced_at_most,
            ..RevisionCost::default()
        };
        cost.unknown_of_half()
    };
    assert_eq!(of(1, 0, Some(11), None), Some(11));
    assert_eq!(of(2, 0, None, Some(30)), Some(28));
    assert_eq!(of(4, 2, Some(0), None), Some(2));
    assert_eq!((of(4, 1, Some(1), None), of(20, 0, None, Some(30))), (None, None));
    assert_eq!(of(3, 0, None, None), None);
}

/// Seen in part: the sum has them, and the mean of a pod has them not.
#[test]
fn pods_that_lost_at_least_so_many_count_as_unknown() {
    let mut part = lossy(pod("a", "one", 150, 1), 9);
    part.connections.as_mut().expect("lossy").at_least = Some(true);
    let whole = lossy(pod("b", "one", 150, 1), 2);
    let cost = counted([&part, &whole].into_iter());
    assert_eq!(
        (cost.lost(), cost.unobserved, cost.mean_lost(), cost.lost_at_least()),
        (Some(11), 1, Some(2.0), 9)
    );
    let worst: Vec<_> = cost.worst.iter().map(|of| (of.lost, of.at_least)).collect();
    assert_eq!(worst, [(Some(9), true), (Some(2), false)]);
    let pods: Vec<EpitaphReport> = (0..25).map(|n| lossy(pod(&format!("p{n}"), "one", 150, 1), n)).collect();
    let cost = counted(pods.iter());
    assert_eq!((cost.worst.len(), cost.worst_left_out), (WORST, 15));
}
