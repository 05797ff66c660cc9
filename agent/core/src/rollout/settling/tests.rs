use super::*;
use crate::rollout::tests::{lossy, pod};
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
        is_resumed: false,
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
        assert!(rollouts.sight(at(0), set).is_kept);
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
    rollouts.sight(at(0), set(2, 1, 1, 0));
    assert_eq!(asked(&mut rollouts, at(2)), "nothing", "the new pod is not available");
    rollouts.sight(at(0), set(2, 2, 2, 2));
    assert_eq!(asked(&mut rollouts, at(3)), "nothing", "old ones are wanted");
    rollouts.sight(at(0), set(1, 0, 0, 0));
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
    assert_eq!((settled.revision, cost.pods, cost.lost()), (2, 2, Some(3)));
    assert_eq!(asked(&mut rollouts, at(1_000)), "nothing", "once");
}

#[test]
fn a_rollback_and_a_rollout_in_the_middle_of_another_are_rollouts() {
    let mut rollouts = listed([set(1, 0, 0, 0), set(2, 2, 2, 2)]);
    assert_eq!(asked(&mut rollouts, at(1)), "nothing");
    // The old ReplicaSet gets the next number.
    let mut back = set(3, 2, 2, 2);
    (back.uid, back.hash) = ("set-1".to_owned(), "hash3".to_owned());
    rollouts.sight(at(0), back);
    let mut old = set(2, 0, 0, 0);
    old.hash = "hash1".to_owned();
    rollouts.sight(at(0), old);
    assert_eq!(asked(&mut rollouts, at(2)), "old pods");
    rollouts.old_pods(at(2), &web(), Some(0));
    // Another rollout begins: the thirty seconds begin anew.
    rollouts.sight(at(0), set(4, 1, 1, 0));
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
    rollouts.sight(at(0), set(2, 2, 2, 2));
    assert!(rollouts.list_ends(NOW).is_empty(), "the workload has a ReplicaSet");
    assert_eq!(rollouts.len(), 1);
    assert_eq!(rollouts.gone("set-2").map(|of| of.uid), Some("web".to_owned()));
    assert!(rollouts.is_empty());
    let mut small = Rollouts::new(4, SETTLE);
    assert!(small.sight(at(0), set(1, 1, 1, 1)).is_kept && small.sight(at(0), set(1, 2, 2, 2)).is_kept);
    assert!(!small.sight(at(0), set(2, 1, 1, 1)).is_kept, "the share of a namespace");
    let mut elsewhere = set(2, 1, 1, 1);
    elsewhere.workload.namespace = "bank".to_owned();
    assert!(small.sight(at(0), elsewhere).is_kept);
}

/// Whoever may change a ReplicaSet chooses its owner, again and again: what it left is forgotten.
#[test]
fn a_replica_set_is_of_one_workload_at_a_time() {
    let mut rollouts = Rollouts::new(4, SETTLE);
    for (owner, left) in [("web", None), ("api", Some("web")), ("web", Some("api"))] {
        let mut taken = set(1, 1, 1, 1);
        taken.workload.uid = owner.to_owned();
        let gone = rollouts.sight(at(0), taken).gone.map(|of| of.uid);
        assert_eq!((gone.as_deref(), rollouts.len()), (left, 1), "{owner}");
    }
}

/// Whoever creates a ReplicaSet chooses the UID of its owner.
#[test]
fn a_replica_set_of_another_namespace_is_not_the_workloads() {
    let mut forged = set(9, 1, 1, 0);
    forged.uid = "forged".to_owned();
    forged.workload.namespace = "mallory".to_owned();
    let mut rollouts = listed([set(1, 2, 2, 2), forged]);
    rollouts.sight(at(0), set(2, 2, 2, 2));
    rollouts.sight(at(0), set(1, 0, 0, 0));
    assert_eq!(asked(&mut rollouts, at(4)), "old pods");
}

/// The new ReplicaSet is available, and no old pod is there: the settled rollout, if it is news.
fn settles(rollouts: &mut Rollouts, second: u64, reports: &[EpitaphReport]) -> Option<SettledRollout> {
    for second in [second, second + 30] {
        assert_eq!(rollouts.questions(at(second)).len(), 1);
        rollouts.old_pods(at(second), &web(), Some(0));
    }
    assert_eq!(asked(rollouts, at(second + 35)), "reports");
    rollouts.reports(at(second + 35), &web(), Some(&reports.iter().collect::<Vec<_>>()))
}

fn unreported(settled: Option<SettledRollout>) -> Option<u64> {
    settled.expect("news").cost.and_then(|cost| cost.unreported)
}

/// An agent may be behind, or down.
#[test]
fn pods_without_a_report_are_counted_and_their_reports_are_read_again() {
    let mut rollouts = listed([set(1, 2, 2, 2)]);
    rollouts.sight(at(0), set(1, 3, 3, 3));
    rollouts.sight(at(0), set(2, 1, 1, 0));
    for (old, new) in [(2, 2), (1, 3), (0, 3)] {
        rollouts.sight(at(0), set(2, new, new, new));
        rollouts.sight(at(0), set(1, old, old, old));
    }
    let mut reports = vec![pod("a", "hash1", 150, 1)];
    assert_eq!(unreported(settles(&mut rollouts, 100, &reports)), Some(2));
    assert_eq!(asked(&mut rollouts, at(164)), "nothing");
    assert_eq!(asked(&mut rollouts, at(165)), "reports");
    let read = |rollouts: &mut Rollouts, second, reports: &[EpitaphReport]| {
        rollouts.reports(at(second), &web(), Some(&reports.iter().collect::<Vec<_>>()))
    };
    assert_eq!(read(&mut rollouts, 165, &reports), None, "nothing new");
    assert_eq!(asked(&mut rollouts, at(195)), "reports");
    assert_eq!(rollouts.reports(at(195), &web(), None), None, "no answer");
    reports.push(lossy(pod("b", "hash1", 151, 1), 4));
    assert_eq!(asked(&mut rollouts, at(225)), "reports");
    let settled = read(&mut rollouts, 225, &reports).expect("news");
    let cost = settled.cost.expect("two pods");
    assert_eq!((cost.unreported, cost.lost()), (Some(1), Some(4)));
    reports.push(pod("c", "hash1", 152, 1));
    assert_eq!(asked(&mut rollouts, at(255)), "reports");
    assert_eq!(unreported(read(&mut rollouts, 255, &reports)), Some(0));
    assert_eq!(asked(&mut rollouts, at(1_000)), "nothing", "all are there");
}

#[test]
fn reports_that_never_come_are_read_for_a_while_only() {
    let mut rollouts = listed([set(1, 1, 1, 1)]);
    rollouts.sight(at(0), set(2, 1, 1, 1));
    rollouts.sight(at(0), set(1, 0, 0, 0));
    assert_eq!(unreported(settles(&mut rollouts, 100, &[])), Some(1));
    let late = 135 + ROLLOUT_LATE.as_secs();
    assert_eq!(asked(&mut rollouts, at(late)), "reports");
    assert_eq!(rollouts.reports(at(late), &web(), Some(&[])), None);
    assert_eq!(asked(&mut rollouts, at(late + 1_000)), "nothing");
    // Another rollout.
    rollouts.sight(at(0), set(3, 1, 1, 0));
    assert_eq!(asked(&mut rollouts, at(late + 1_001)), "nothing");
}

#[test]
fn the_strategy_recreate_replaces_what_was_scaled_to_zero_first() {
    let mut rollouts = listed([set(1, 3, 3, 3)]);
    rollouts.sight(at(0), set(1, 0, 3, 3));
    rollouts.sight(at(0), set(1, 0, 0, 0));
    rollouts.sight(at(0), set(2, 3, 3, 3));
    assert_eq!(unreported(settles(&mut rollouts, 100, &[])), Some(3));
    // The same, with its losses: the ReplicaSet is younger than the requests.
    let recreated = |old: u64| {
        let mut rollouts = listed([set(1, 3, 3, 3)]);
        rollouts.sight(at(0), set(1, old, old, old));
        let mut new = set(2, 3, 3, 3);
        new.created = Some(Wall(160 * 1_000_000_000));
        rollouts.sight(at(0), new);
        rollouts.sight(at(0), set(1, 0, 0, 0));
        let settled = settles(&mut rollouts, 100, &[lossy(pod("a", "hash1", 150, 1), 40)]);
        settled.and_then(|settled| settled.cost?.lost())
    };
    assert_eq!(recreated(0), Some(40));
    // A rolling update just after a scale-down: what that lost is not the rollout's.
    assert_eq!(recreated(2), None);
    // Scaled to zero by somebody, and rolled out without a pod.
    let mut rollouts = listed([set(1, 3, 3, 3)]);
    rollouts.sight(at(0), set(1, 0, 0, 0));
    rollouts.sight(at(0), set(2, 0, 0, 0));
    rollouts.sight(at(0), set(2, 3, 3, 3));
    assert_eq!(settles(&mut rollouts, 100, &[]).expect("settled").cost, None);
    // It began while nobody looked: how many pods there were is not known.
    let mut begun = listed([set(1, 1, 1, 1), set(2, 3, 3, 3)]);
    begun.sight(at(0), set(1, 0, 0, 0));
    let settled = settles(&mut begun, 100, &[pod("a", "hash1", 150, 1)]);
    assert_eq!(unreported(settled), None);
}

/// At night, and rolled out with pods in the morning.
#[test]
fn a_workload_that_was_at_zero_for_long_has_no_known_number_of_replaced_pods() {
    let morning = |second: u64| {
        let mut rollouts = listed([set(1, 3, 3, 3)]);
        rollouts.sight(at(100), set(1, 0, 3, 3));
        rollouts.sight(at(110), set(1, 0, 0, 0));
        rollouts.sight(at(second), set(2, 3, 3, 0));
        rollouts.sight(at(second), set(2, 3, 3, 3));
        settles(&mut rollouts, second, &[]).expect("settled").cost
    };
    assert_eq!(morning(250).and_then(|cost| cost.unreported), Some(3));
    assert_eq!(morning(40_000), None);
}

/// Revision 2 never becomes available beside the pods of revision 1, and revision 3 replaces both.
#[test]
fn pods_of_all_revisions_that_a_rollout_replaces_are_wanted() {
    let mut rollouts = listed([set(0, 3, 3, 3)]);
    rollouts.sight(at(0), set(1, 3, 3, 3));
    rollouts.sight(at(0), set(0, 0, 0, 0));
    assert_eq!(unreported(settles(&mut rollouts, 10, &[])), Some(3));
    rollouts.sight(at(100), set(2, 1, 1, 0));
    rollouts.sight(at(200), set(3, 1, 1, 1));
    rollouts.sight(at(200), set(2, 0, 0, 0));
    for (old, new) in [(2, 2), (1, 3), (0, 3)] {
        rollouts.sight(at(200), set(3, new, new, new));
        rollouts.sight(at(200), set(1, old, old, old));
    }
    let reports = [pod("a", "hash2", 201, 1), lossy(pod("b", "hash1", 202, 1), 4)];
    let cost = settles(&mut rollouts, 300, &reports).and_then(|settled| settled.cost);
    let cost = cost.expect("two reports");
    assert_eq!((cost.pods, cost.lost(), cost.unreported), (2, Some(4), Some(2)));
    assert_eq!((cost.revision, cost.also_of), (Some(2), vec![1]));
}
