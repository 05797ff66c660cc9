//! Lost nodes: what is said, what is not said, and when.

use expect_test::expect;

use super::nodes::{FENCED, LOST, check_takeover, state};
use super::script::ZERO;
use super::{LIMITS, check, headlines, play, play_on, ticks};
use crate::observe::Observer;

#[test]
fn a_grace_period_that_nobody_counts_delays_no_alarm() {
    // Operators of databases set half an hour.
    let script = LOST.replace("grace=5", "grace=1800");
    expect![[r#"
        +25.0 node.not_ready of n1 lost at +10: +10.0 → +25.0
        +40.0 alarm about the node of n1
        +40.0 alarm about db-0 of n1
    "#]]
    .assert_eq(&headlines(&script, &["alarm", "pod", "node"]));
    let script = [&script, FENCED].concat();
    expect![[r#"
        +25.0 node.not_ready of n1 lost at +10: +10.0 → +25.0
        +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0
        +110.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent silent, stuck 1, gone 1; pods db-0
    "#]]
    .assert_eq(&headlines(&script, &["pod", "node"]));
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 0
        node 1 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&LOST.replace("grace=5", "grace=1800"), 95));
}

#[test]
fn a_grace_period_that_the_kubelet_may_count_is_waited_for() {
    let script = LOST
        .replace("grace=5", "grace=300")
        .replace("+18 agent n1 silent", "+18 agent n1 answers");
    let text = headlines(&[&script, ticks(50..400, 10).as_str()].concat(), &["alarm"]);
    expect![[r#"
        +340.0 alarm about the node of n1
        +340.0 alarm about db-0 of n1
    "#]]
    .assert_eq(&text);
}

/// A zone of which every node falls silent.
const ZONE: &str = "
    +0 version 1.36
    +0 node n1 true
    +0 node n2 true
    +0 node n3 true
    +0 node n4 true
    +0 pod db-0 StatefulSet/db node=n1 ready
    +0 pod db-1 StatefulSet/db node=n2 ready
    +0 pod log-a DaemonSet/log node=n3 ready outlasts
    +10 node n1 unknown
    +12 node n2 unknown
    +14 node n3 unknown
";

#[test]
fn evictions_that_the_controller_holds_back_are_said_once() {
    check(
        &[ZONE, &ticks(11..300, 10)].concat(),
        expect![[r#"
            +10.0 ask renewal n1
            +12.0 ask renewal n2
            +14.0 ask renewal n3
            +71.0 alarm about the node of n1
                  lost: node `n1` has not been ready for 61 s; its kubelet is silent, and no agent on it could be asked; the controller does not evict its pods: it limits or stops evictions while many nodes of a zone are not ready; 3 of 4 nodes fell silent within minutes of each other
                  remedy: find out first why 3 of 4 nodes fell silent within minutes of each other: suspect the network and the control plane before the machines, which may run. Only for a machine that is certainly powered off: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +81.0 alarm about the node of n2
                  lost: node `n2` has not been ready for 69 s; its kubelet is silent, and no agent on it could be asked; the controller does not evict its pods: it limits or stops evictions while many nodes of a zone are not ready; 3 of 4 nodes fell silent within minutes of each other
                  remedy: find out first why 3 of 4 nodes fell silent within minutes of each other: suspect the network and the control plane before the machines, which may run. Only for a machine that is certainly powered off: kubectl taint nodes n2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +81.0 node n3 lost at +14: +14.0 → +81.0 by no-pods, agent unknown, stuck 0, gone 0; pods 
                  node.not_ready +14.0
                  node.unknown +14.0
                  lost: node `n3` has not been ready for 67 s; its kubelet is silent, and no agent on it could be asked; 3 of 4 nodes fell silent within minutes of each other
                  remedy: find out first why 3 of 4 nodes fell silent within minutes of each other: suspect the network and the control plane before the machines, which may run. Only for a machine that is certainly powered off: kubectl taint nodes n3 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        "#]],
    );
    expect![[r#"
        n1 not ready lost: stuck 0, taint false, volumes 0, evictions held
        n2 not ready lost: stuck 0, taint false, volumes 0, evictions held
        n3 not ready lost: stuck 0, taint false, volumes 0
        node 0 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&[ZONE, &ticks(11..80, 10)].concat(), 80));
}

/// A pod that was deleted by hand hangs first, with the same advice.
#[test]
fn evictions_that_are_held_back_are_said_after_another_alarm_too() {
    let script = [
        "
        +0 version 1.36
        +0 node n1 true
        +0 node n2 true
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n1 ready
        +10 node n1 unknown
        +10.5 pod a ReplicaSet/web node=n1 ready deleting grace=5
        ",
        &ticks(11..300, 10),
    ]
    .concat();
    let sentences = alarms(&script);
    assert_eq!(sentences.len(), 2, "{sentences:#?}");
    assert!(sentences[0].contains("1 pod on it could not be terminated"), "{sentences:#?}");
    assert!(
        sentences[1].contains("the controller does not evict its pods"),
        "{sentences:#?}"
    );
}

/// The StatefulSet's pod that stays has an alarm with the same advice, about itself.
#[test]
fn pods_that_hang_are_said_after_an_alarm_about_a_pod_that_stays() {
    let script = [
        "
        +0 version 1.36
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready outlasts
        +0 pod a ReplicaSet/web node=n1 ready
        +10 node n1 unknown
        +11 tick
        +25 node n1 unknown since=+10 evicting
        ",
        &ticks(30..310, 10),
        "+310 pod a ReplicaSet/web node=n1 ready deleting grace=5 by-taint\n",
        &ticks(312..400, 10),
    ]
    .concat();
    let sentences = alarms(&script);
    assert_eq!(sentences.len(), 2, "{sentences:#?}");
    assert!(sentences[0].contains("pod `db-0` is not evicted"), "{sentences:#?}");
    assert!(sentences[1].contains("1 pod on it could not be terminated"), "{sentences:#?}");
}

/// The sentences of all alarms.
fn alarms(script: &str) -> Vec<String> {
    let text = play(script);
    let alarms = text.split(" alarm about ").skip(1);
    alarms.filter_map(|alarm| alarm.lines().nth(1)).map(str::to_owned).collect()
}

#[test]
fn an_eviction_that_begins_in_time_is_not_held_back() {
    let script = [
        ZONE,
        &ticks(11..40, 10),
        "+40 node n1 unknown since=+10 evicting\n+41 node n2 unknown since=+12 evicting\n",
        &ticks(51..300, 10),
    ]
    .concat();
    assert_eq!(headlines(&script, &["alarm"]), "");
}

#[test]
fn a_pod_that_is_carried_into_the_second_of_two_losses_hangs_there() {
    let script = "
        +0 version 1.36
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 unknown
        +11 tick
        +25 node n1 unknown since=+10 evicting
        +30 pod db-0 StatefulSet/db node=n1 ready deleting grace=30 by-taint
        +31 node n1 true since=+31
        +80 node n1 unknown since=+80
        +81 tick
        +85 node n1 unknown since=+80 evicting
    ";
    let script = [script, &ticks(90..200, 10)].concat();
    check(
        &script,
        expect![[r#"
            +10.0 ask renewal n1
            +25.0 node.not_ready of n1 lost at +10: +10.0 → +25.0
            +31.0 node n1 lost at +10: +10.0 → +31.0 by back, agent unknown, stuck 0, gone 0; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  node.ready +31.0
                  lost: node `n1` was not ready for 21.0 s; its kubelet was silent, and no agent on it could be asked
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +31.0 node.down of n1 lost at +10: +10.0 → +31.0 same-boot
            +80.0 ask renewal n1
            +85.0 node.not_ready of n1 lost at +80: +80.0 → +85.0
            +85.0 alarm about the node of n1
                  lost: node `n1` has not been ready for 5.0 s; its kubelet is silent, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +85.0 alarm about db-0 of n1
                  lost: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 5.0 s; its kubelet is silent, and no agent on it could be asked
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        "#]],
    );
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 0
        node 1 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&script, 200));
}

#[test]
fn a_stateful_pod_that_tolerates_the_loss_is_missed_all_the_same() {
    let script = "
        +0 version 1.36
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready outlasts
        +0 pod log-a DaemonSet/log node=n1 ready outlasts
        +10 node n1 unknown
        +11 tick
        +25 node n1 unknown since=+10 evicting
    ";
    let back = "+900 node n1 true since=+900\n";
    check(
        &[script, &ticks(30..900, 10), back].concat(),
        expect![[r#"
            +10.0 ask renewal n1
            +25.0 node.not_ready of n1 lost at +10: +10.0 → +25.0
            +70.0 alarm about db-0 of n1
                  lost: pod `db-0` is not evicted, because it tolerates the loss of its node, and is not replaced: its node `n1` has not been ready for 60 s; its kubelet is silent, and no agent on it could be asked
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute; and, when the machine is off, if the pod still exists then: kubectl delete pod --namespace shop db-0
            +310.0 ask renewal n1
            +610.0 ask renewal n1
            +900.0 node n1 lost at +10: +10.0 → +900.0 by back, agent unknown, stuck 0, gone 0; pods 
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  node.ready +900.0
                  lost: node `n1` was not ready for 890 s; its kubelet was silent, and no agent on it could be asked
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +900.0 node.down of n1 lost at +10: +10.0 → +900.0 same-boot
        "#]],
    );
}

#[test]
fn a_pod_with_a_long_toleration_does_not_keep_the_root_back() {
    let script = [LOST, FENCED, &ticks(120..1000, 10)].concat();
    let script = script.replace("+0 pod log-a", "+0 pod x ReplicaSet/x node=n1 ready\n    +0 pod log-a");
    expect![[r#"
        +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0
        +630.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent silent, stuck 1, gone 1; pods db-0
    "#]]
    .assert_eq(&headlines(&script, &["pod", "node n1"]));
    // Pods with half of that time are waited for.
    let later = "
        +325 pod x ReplicaSet/x node=n1 ready deleting grace=5 by-taint
        +330 gone x
    ";
    let script = script.replace("+330 tick", later);
    expect![[r#"
        +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0
        +330.0 pod x lost: +10.0 → +330.0, requested +325.0
        +330.0 node n1 lost at +10: +10.0 → +330.0 by pods-gone, agent silent, stuck 2, gone 2; pods db-0 x
    "#]]
    .assert_eq(&headlines(&script, &["pod", "node n1"]));
}

#[test]
fn a_drained_node_that_is_switched_off_has_no_span_without_a_root() {
    check(
        "
        +0 node n2 true
        +0 pod log DaemonSet/log node=n2 ready outlasts
        +300 node n2 true since=+0 cordoned
        +340 node n2 unknown cordoned
        +341 tick
        +345 node n2 unknown since=+340 cordoned evicting
        +350 no-node n2
        +360 gone log
        +420 tick
        ",
        expect![[r#"
            +340.0 ask renewal n2
        "#]],
    );
    // A pod was left there: the same spans as of any loss, once it is one.
    let script = "
        +0 node n2 true cordoned
        +340 node n2 unknown cordoned
        +341 tick
        +345 node n2 unknown since=+340 cordoned evicting
        +350 tick
        +351 pod a Job/j node=n2 ready
        +400 tick
        +401 tick
        +650 no-node n2
    ";
    expect![[r#"
        +650.0 node n2 lost at +340: +340.0 → +650.0 by node-deleted, agent unknown, stuck 0, gone 0; pods a
        +650.0 node.not_ready of n2 lost at +340: +340.0 → +345.0
    "#]]
    .assert_eq(&headlines(script, &["node"]));
}

#[test]
fn the_last_renewal_is_asked_for_when_the_kubelet_is_silent() {
    check(
        "
        +0 node n1 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 false reason=KubeletNotReady
        +11 tick
        +200 node n1 unknown since=+200
        +201 tick
        +201.1 renewal n1 +158
        +215 node n1 unknown since=+200 evicting
        +500 pod db-0 StatefulSet/db node=n1 ready deleting grace=5 by-taint
        +510 tick
        ",
        expect![[r#"
            +200.0 ask renewal n1
            +215.0 node.not_ready of n1 lost at +200: +10.0 → +215.0
            +510.0 alarm about the node of n1
                  lost: node `n1` has not been ready for 500 s; its kubelet last renewed its Lease 42.0 s before it fell silent, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +510.0 alarm about db-0 of n1
                  lost: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 500 s; its kubelet last renewed its Lease 42.0 s before it fell silent, and no agent on it could be asked
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
        "#]],
    );
}

#[test]
fn a_lease_that_cannot_be_read_is_asked_for_again_but_not_for_ever() {
    let script = |second: &str| {
        let failed = "+11.1 renewal n1 none";
        let script = LOST.replace("+11.1 renewal n1 +-31", failed);
        let script = script.replace("+16 tick", &format!("+14 renewal n1 {second}\n    +16 tick"));
        script.replace("+21 tick", "+17 renewal n1 none\n    +21 tick")
    };
    expect![[r#"
        +10.0 ask renewal n1
        +13.0 ask renewal n1
        +14.0 ask renewal n1
    "#]]
    .assert_eq(&headlines(&[script("none"), ticks(42..400, 10)].concat(), &["ask renewal"]));
    let text = play(&script("+-31"));
    assert_eq!(text.matches("ask renewal").count(), 2, "{text}");
    assert!(text.contains("its kubelet last renewed its Lease 41.0 s before"), "{text}");
}

#[test]
fn a_taint_that_is_set_while_the_dead_node_is_still_ready_is_in_the_story() {
    check(
        "
        +0 version 1.36
        +0 node n1 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +5 node n1 true since=+0 out-of-service
        +5.5 pod db-0 StatefulSet/db node=n1 ready deleting grace=5 by-taint
        +10 node n1 unknown out-of-service
        +11 tick
        +15 node n1 unknown since=+10 evicting out-of-service
        +16 tick
        +30 gone db-0
        +80 tick
        ",
        expect![[r#"
            +10.0 ask renewal n1
            +15.0 node.not_ready of n1 lost at +10: +10.0 → +15.0
            +15.0 alarm about the node of n1
                  fenced-by-taint: node `n1` has not been ready for 5.0 s; its kubelet is silent, and no agent on it could be asked; 1 pod on it could not be terminated; the taint out-of-service is set, and has not released all of them yet
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +15.0 alarm about db-0 of n1
                  fenced-by-taint: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 5.0 s; its kubelet is silent, and no agent on it could be asked
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +30.0 pod db-0 lost: +5.5 → +30.0, requested +5.5
                  stuck by node: +10.0 → +30.0
                  fenced-by-taint: the pod's node `n1` was lost, and the pod's object was deleted 24.5 s after the deletion request, while the taint out-of-service was set, without the kubelet; whether the pod's containers still ran is not known
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +80.0 node n1 lost at +10: +10.0 → +30.0 by pods-gone, agent unknown, stuck 1, gone 1; pods db-0
                  taint.out_of_service +5.0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +15.0
                  pods.first_stuck +15.0
                  pods.last_gone +30.0
                  fenced-by-taint: node `n1` has not been ready for 20.0 s; its kubelet is silent, and no agent on it could be asked; 1 pod on it could not be terminated; the taint out-of-service is set, and the objects of all of these pods are gone
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        "#]],
    );
}

#[test]
fn a_pod_that_is_bound_while_the_node_is_lost_belongs_to_the_loss() {
    let script = "
        +0 version 1.36
        +0 node n1 true
        +9 pod db-2 StatefulSet/db pending
        +10 node n1 unknown
        +10.5 pod db-2 StatefulSet/db node=n1 pending
        +11 tick
        +25 node n1 unknown since=+10 evicting
        +30 pod db-2 StatefulSet/db node=n1 pending deleting grace=5 by-taint
        +40 tick
    ";
    expect![[r#"
        +40.0 alarm about the node of n1
        +40.0 alarm about db-2 of n1
    "#]]
    .assert_eq(&headlines(script, &["alarm"]));
}

/// A Deployment replaces at once; the volume can be attached to one node only.
const MULTI_ATTACH: &str = "
    +0 version 1.36
    +0 node n1 true
    +0 node n2 true
    +0 pod a ReplicaSet/web node=n1 ready claim=data
    +0 attachment va-0 pv-0 n1 attached
    +10 node n1 unknown
    +11 tick
    +11.2 claim pv-0 data
    +25 node n1 unknown since=+10 evicting
    +30 pod a ReplicaSet/web node=n1 ready claim=data deleting grace=5 by-taint
    +30.1 pod b ReplicaSet/web pending claim=data
    +30.2 pod b ReplicaSet/web node=n2 pending claim=data
";

#[test]
fn a_deployments_replacement_that_waits_for_its_volume_is_stuck_by_it() {
    let script = [MULTI_ATTACH, &ticks(40..400, 10)].concat();
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 1
        node 1 finalizer 0 volume 1 runtime 0
    "#]]
    .assert_eq(&state(&script, 400));
    let more = "
        +400 node n1 unknown since=+10 evicting out-of-service
        +410 gone a
        +411 no-attachment va-0
        +415 pod b ReplicaSet/web node=n2 ready claim=data
        +416 tick
    ";
    check(
        &[&script, more].concat(),
        expect![[r#"
            +10.0 ask renewal n1
            +10.0 ask claim pv-0
            +25.0 node.not_ready of n1 lost at +10: +10.0 → +25.0
            +40.0 alarm about the node of n1
                  lost: node `n1` has not been ready for 30.0 s; its kubelet is silent, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +100.0 alarm about a of n1
                  stuck-by-volume: the replacement of pod `a` has waited 70 s for volume `pv-0`, which is attached to the pod's node `n1`; its kubelet is silent, and no agent on it could be asked
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +310.0 ask renewal n1
            +410.0 pod a lost: +10.0 → +410.0, requested +30.0
                  stuck by node: +30.0 → +410.0
                  fenced-by-taint: the pod's node `n1` was lost, and the pod's object was deleted 380 s after the deletion request, while the taint out-of-service was set, without the kubelet; whether the pod's containers still ran is not known
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +410.0 node n1 lost at +10: +10.0 → +410.0 by pods-gone, agent unknown, stuck 1, gone 1; pods a
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +40.0
                  taint.out_of_service +400.0
                  pods.last_gone +410.0
                  fenced-by-taint: node `n1` has not been ready for 400 s; its kubelet is silent, and no agent on it could be asked; 1 pod on it could not be terminated; the taint out-of-service is set, and the objects of all of these pods are gone
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +411.0 volume pv-0 of a (data): +410.0 → +411.0
                  stuck-by-volume: the replacement waited 381 s for volume `pv-0`, which was attached to the lost node `n1`
                  remedy: the volume is detached now; to find the cause, search the log of the external-attacher of csi.example.com for the VolumeAttachment va-0
            +415.0 b replaces a (next-of-replica-set): created +30.1, scheduled +30.2, ready +415.0, of a lost node
        "#]],
    );
}

#[test]
fn a_replacement_with_a_volume_of_several_nodes_does_not_wait() {
    let more = "
        +40 pod b ReplicaSet/web node=n2 ready claim=data
        +300 tick
        +400 node n1 unknown since=+10 evicting out-of-service
        +410 gone a
        +411 no-attachment va-0
    ";
    let script = [MULTI_ATTACH, more].concat();
    expect![[r#"
        +40.0 alarm about the node of n1
        +411.0 volume pv-0 of a (data): +410.0 → +411.0
    "#]]
    .assert_eq(&headlines(&script, &["alarm", "volume"]));
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 0
        node 1 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(
        &[MULTI_ATTACH, "+40 pod b ReplicaSet/web node=n2 ready claim=data\n+41 tick\n"].concat(),
        400,
    ));
}

#[test]
fn a_volume_of_a_pod_that_its_returned_kubelet_ended_is_not_reported() {
    let more = "
        +60 node n1 true since=+60
        +61 no-attachment va-0
        +62 gone db-0
        +63 tick
    ";
    expect![[r#"
        +62.0 pod db-0 lost: +10.0 → +62.0, requested +30.0
    "#]]
    .assert_eq(&headlines(&[LOST, more].concat(), &["volume", "dropped", "pod"]));
}

#[test]
fn a_taint_on_a_node_that_was_never_lost_is_said_as_what_it_is() {
    check(
        "
        +0 node n1 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 true since=+0 out-of-service
        +80 tick
        # Not of a loss: no span, and nothing that was missed.
        +90 node n1 true since=+0
        # Lost, back and tainted by mistake: the taint is not the loss's.
        +100 node n1 unknown
        +101 tick
        +150 node n1 true
        +160 node n1 true since=+150 out-of-service
        +230 tick
        +240 node n1 true since=+150
        ",
        expect![[r#"
            +80.0 alarm about the node of n1
                  taint-left-behind: node `n1` was ready when the taint out-of-service was set 70 s ago, and has not been lost since: with the effect NoExecute the taint evicts pods and keeps new pods away, with NoSchedule the taint keeps new pods away
                  remedy: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +100.0 ask renewal n1
            +150.0 node n1 lost at +100: +100.0 → +150.0 by back, agent unknown, stuck 0, gone 0; pods 
                  node.not_ready +100.0
                  node.unknown +100.0
                  node.ready +150.0
                  lost: node `n1` was not ready for 50.0 s; its kubelet was silent, and no agent on it could be asked
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +150.0 node.down of n1 lost at +100: +100.0 → +150.0 same-boot
            +230.0 alarm about the node of n1
                  taint-left-behind: node `n1` was ready when the taint out-of-service was set 70 s ago, and has not been lost since: with the effect NoExecute the taint evicts pods and keeps new pods away, with NoSchedule the taint keeps new pods away
                  remedy: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        "#]],
    );
}

#[test]
fn a_taint_that_is_removed_and_set_again_is_two_times() {
    let more = "
        +100 node n1 unknown since=+10 evicting out-of-service
        +103 node n1 unknown since=+10 evicting
        +106 node n1 unknown since=+10 evicting out-of-service
        +110 gone db-0
        +300 node n1 true since=+300 boot=boot-2 out-of-service
        +320 node n1 true since=+300 boot=boot-2
    ";
    expect![[r#"
        +103.0 node.out_of_service of n1 lost at +10: +100.0 → +103.0
        +320.0 node.out_of_service of n1 lost at +10: +106.0 → +320.0
    "#]]
    .assert_eq(&headlines(&[LOST, more].concat(), &["node.out_of_service"]));
}

#[test]
fn a_finalizer_that_is_removed_at_once_did_not_hold_the_pod() {
    let script = |gone: u32| {
        format!(
            "
            +0 version 1.36
            +0 node n1 true
            +0 pod j-0 Job/batch node=n1 ready index=0 finalizer=batch.kubernetes.io/job-tracking
            +10 node n1 unknown
            +11 tick
            +25 node n1 unknown since=+10 evicting
            +30 pod j-0 Job/batch node=n1 ready index=0 finalizer=batch.kubernetes.io/job-tracking deleting grace=5 by-taint
            +40 tick
            +100 node n1 unknown since=+10 evicting out-of-service
            +110 pod j-0 Job/batch node=n1 index=0 finalizer=batch.kubernetes.io/job-tracking deleted=+30 grace=5 failed
            +110.1 pod j-0 Job/batch node=n1 index=0 finalizer=batch.kubernetes.io/job-tracking deleted=+30 grace=0 failed
            +{gone} gone j-0
            "
        )
    };
    let pod = |gone| {
        let text = play(&script(gone));
        let (_, pod) = text.split_once("pod j-0 lost").expect("a pod");
        pod.split_once("\n      remedy").expect("a remedy").0.to_owned()
    };
    expect![[r#"
        : +10.0 → +111.0, requested +30.0
              stuck by node: +30.0 → +110.1
              fenced-by-taint: the pod's node `n1` was lost, and the pod's object was deleted 81 s after the deletion request, while the taint out-of-service was set, without the kubelet; whether the pod's containers still ran is not known"#]].assert_eq(&pod(111));
    expect![[r#"
        : +10.0 → +113.0, requested +30.0
              stuck by node: +30.0 → +110.1
              stuck by finalizer batch.kubernetes.io/job-tracking: +110.1 → +113.0
              stuck-by-finalizer: the pod's node `n1` was lost; then the finalizer `batch.kubernetes.io/job-tracking` kept the pod's object, which was gone 83 s after the deletion request"#]].assert_eq(&pod(113));
}

/// Its finalizer's removal would not delete it: the kubelet, which is silent, has not sent the last deletion request.
#[test]
fn a_pod_that_ends_while_it_is_deleted_waits_for_its_kubelet() {
    let held = |grace: &str| {
        let script = format!(
            "
            +0 node n1 true
            +0 pod db-0 StatefulSet/db node=n1 ready finalizer=example.com/hold
            +5 pod db-0 StatefulSet/db node=n1 ready finalizer=example.com/hold deleting grace=30
            +8 pod db-0 StatefulSet/db node=n1 finalizer=example.com/hold deleted=+5 grace={grace} succeeded
            +10 node n1 unknown
            +11 tick
            "
        );
        state(&script, 200)
    };
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 0
        node 1 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&held("30"));
    expect![[r#"
        n1 not ready lost: stuck 0, taint false, volumes 0
        node 0 finalizer 1 volume 0 runtime 0
    "#]]
    .assert_eq(&held("0"));
}

#[test]
fn questions_without_an_answer_do_not_hold_the_alarm_back() {
    let unanswered: Vec<&str> = LOST
        .lines()
        .filter(|line| !line.contains(" agent n1 ") && !line.contains(" renewal "))
        .collect();
    let script = [&unanswered.join("\n"), "\n", &ticks(42..420, 3)].concat();
    // One question at a time; after five minutes it was dropped.
    expect![[r#"
        +10.0 ask renewal n1
        +10.0 ask agent n1
        +72.0 alarm about the node of n1
        +72.0 alarm about db-0 of n1
        +312.0 ask renewal n1
        +312.0 ask agent n1
    "#]]
    .assert_eq(&headlines(&script, &["alarm", "ask agent", "ask renewal"]));
    let text = play(&script);
    assert!(
        text.contains("its kubelet is silent, and no agent on it could be asked"),
        "{text}"
    );
}

#[test]
fn volumes_do_not_keep_other_nodes_from_being_asked() {
    let mut script = "+0 version 1.36\n".to_owned();
    for node in ["n1", "n2", "n3"] {
        script += &format!("+0 node {node} true\n+0 pod agent-{node} DaemonSet/agent node={node} ready outlasts agent\n");
        for volume in 0..60 {
            script += &format!("+0 attachment va-{node}-{volume} pv-{node}-{volume} {node} attached\n");
        }
    }
    script += "+10 node n1 unknown\n+10 node n2 unknown\n+10 node n3 unknown\n+11 tick\n+12 tick\n";
    expect![[r#"
        +10.0 ask agent n1
        +11.0 ask agent n2
        +11.0 ask agent n3
    "#]]
    .assert_eq(&headlines(&script, &["ask agent"]));
    let claims = headlines(&[&script, "+13 tick\n+14 tick\n"].concat(), &["ask claim"]);
    assert_eq!(claims.lines().count(), 180);
}

#[test]
fn pods_that_are_held_are_counted_by_namespace() {
    let mut observer = Observer::new(LIMITS);
    let script = [
        MULTI_ATTACH,
        "+31 pod x Deployment/x node=n2 ready finalizer=example.com/hold deleting grace=0\n",
        &ticks(40..400, 10),
    ]
    .concat();
    play_on(&mut observer, &script, &mut String::new());
    let state = observer.losses(ZERO.plus(std::time::Duration::from_secs(400)));
    let held: Vec<_> = state
        .held
        .iter()
        .map(|((by, namespace), count)| (by.name(), &**namespace, *count))
        .collect();
    assert_eq!(held, [("finalizer", "shop", 1), ("volume", "shop", 1)]);
}

#[test]
fn a_loss_without_evictable_pods_has_one_root_over_two_observers() {
    let before = "
        +0 node n1 true
        +0 node n2 true
        +0 pod log-a DaemonSet/log node=n1 ready outlasts
        +10 node n1 unknown
        +11 tick
    ";
    let after = |begin: u32| {
        format!(
            "
            +0 list namespaces
            +{begin} list pods
            +{begin} pod log-a DaemonSet/log node=n1 ready outlasts
            +{begin} listed pods
            +{begin} list endpointslices
            +{begin} listed endpointslices
            +{begin} listed namespaces
            +{begin} list nodes
            +{begin} node n1 unknown since=+10 evicting
            +{begin} node n2 true
            +{begin} listed nodes
            +{begin} list volumeattachments
            +{begin} listed volumeattachments
            +101 tick
            +200 tick
            +300 node n1 true since=+300
            +301 tick
            "
        )
    };
    // The first observer ended before the loss was one.
    check_takeover(
        &[before, "+40 tick\n"].concat(),
        &after(60),
        expect![[r#"
            first observer
            +10.0 ask renewal n1
            second observer
            +60.0 ask renewal n1
            +101.0 node n1 lost at +10: +10.0 → +101.0 by no-pods, agent unknown, stuck 0, gone 0, unwatched 50.0; pods 
                  node.not_ready +10.0
                  node.unknown +10.0
                  lost: node `n1` has not been ready for 91 s; its kubelet is silent, and no agent on it could be asked
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 same-boot
        "#]],
    );
    check_takeover(
        &[before, "+75 tick\n"].concat(),
        &after(90),
        expect![[r#"
            first observer
            +10.0 ask renewal n1
            +75.0 node n1 lost at +10: +10.0 → +75.0 by no-pods, agent unknown, stuck 0, gone 0; pods 
                  node.not_ready +10.0
                  node.unknown +10.0
                  lost: node `n1` has not been ready for 65 s; its kubelet is silent, and no agent on it could be asked
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            second observer
            +90.0 ask renewal n1
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 same-boot
        "#]],
    );
}

#[test]
fn a_kubelet_that_falls_silent_before_anything_was_exported_gives_the_loss_its_id() {
    let script = "
        +0 version 1.36
        +0 node n1 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 false reason=KubeletNotReady
        +11 tick
        +15 node n1 false since=+10 reason=KubeletNotReady evicting
        +82 node n1 unknown since=+82 evicting
        +315 pod db-0 StatefulSet/db node=n1 ready deleting grace=5 by-taint
        +330 tick
        +400 node n1 true since=+400 boot=boot-2
    ";
    expect![[r#"
        +330.0 alarm about the node of n1
        +330.0 alarm about db-0 of n1
        +400.0 node n1 lost at +82: +10.0 → +400.0 by back, agent unknown, stuck 1, gone 0; pods db-0
        +400.0 node.not_ready of n1 lost at +82: +10.0 → +15.0
        +400.0 node.down of n1 lost at +82: +10.0 → +400.0 rebooted
    "#]]
    .assert_eq(&headlines(script, &["node", "alarm", "pod"]));
}

#[test]
fn a_command_for_a_cluster_of_unknown_version_says_for_which_versions_it_is() {
    let text = play(&LOST.replace("+0 version 1.36\n", ""));
    let said = text.matches("nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)");
    assert_eq!(said.count(), 2, "{text}");
}

#[test]
fn a_pod_that_waits_for_its_restart_on_the_lost_node_has_its_trace() {
    // No agent reports the pod: its container does not run.
    let before = [LOST, FENCED].concat();
    let crashed = before.replace("node=n1 ready claim=data-db-0", "node=n1 crashed claim=data-db-0");
    let back = "+300 node n1 true since=+300\n";
    let words = ["alarm", "pod", "node n1", "volume", "db-0"];
    let of_running = headlines(&[&*before, back].concat(), &words);
    assert_eq!(headlines(&[&*crashed, back].concat(), &words), of_running);
    expect![[r#"
        +40.0 alarm about the node of n1
        +40.0 alarm about db-0 of n1
        +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0
        +110.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent silent, stuck 1, gone 1; pods db-0
        +112.0 volume pv-0 of db-0 (data-db-0): +110.0 → +112.0, requested +111.0
        +118.0 db-0 replaces db-0 (name-in-stateful-set): created +110.1, scheduled +110.2, attached +113.0, ready +118.0, of a lost node
        +300.0 db-0 twice: +118.0 → +300.0
    "#]]
    .assert_eq(&of_running);
}

#[test]
fn a_pod_that_never_ran_did_not_run_twice() {
    let script = [LOST, FENCED, "+300 node n1 true since=+300\n"].concat();
    let script = script.replace("node=n1 ready claim=data-db-0", "node=n1 pending claim=data-db-0");
    expect![[r#"
        +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0
        +110.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent silent, stuck 1, gone 1; pods db-0
        +112.0 volume pv-0 of db-0 (data-db-0): +110.0 → +112.0, requested +111.0
        +118.0 db-0 replaces db-0 (name-in-stateful-set): created +110.1, scheduled +110.2, attached +113.0, ready +118.0, of a lost node
    "#]]
    .assert_eq(&headlines(&script, &["pod", "node n1", "volume", "db-0"]));
}

#[test]
fn a_pod_that_opted_out_after_the_loss_has_no_trace() {
    let script = [LOST, FENCED].concat();
    let script = script.replace(
        "+110 gone db-0",
        "+109 pod db-0 StatefulSet/db node=n1 ready claim=data-db-0 deleted=+30 grace=5 by-taint ignored\n    +110 gone db-0",
    );
    expect![[r#"
        +110.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent silent, stuck 1, gone 1; pods 
    "#]]
    .assert_eq(&headlines(&script, &["pod", "node n1"]));
}

#[test]
fn a_loss_links_to_each_pod_that_it_holds() {
    // A container of `a` never ran: no agent reports it, but its end is waited for all the same, and its link is after those that ran.
    let script = LOST.replace(
        "+0 pod log-a DaemonSet/log node=n1 ready outlasts",
        "+0 pod a ReplicaSet/a node=n1 pending deleting grace=5",
    );
    expect![[r#"
        +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0
        +130.0 pod a lost: +0.0 → +130.0, requested +0.0
        +130.0 node n1 lost at +10: +10.0 → +130.0 by pods-gone, agent silent, stuck 2, gone 2; pods db-0 a
    "#]]
    .assert_eq(&headlines(
        &[&script, FENCED, "+130 gone a\n+131 tick\n"].concat(),
        &["pod", "node n1"],
    ));
}

#[test]
fn a_detach_that_is_seen_before_the_pods_end_is_counted() {
    // After a gap, the two watches are not in order.
    let script = [LOST, FENCED]
        .concat()
        .replace("+111 attachment va-0 pv-0 n1 attached detaching\n", "#\n")
        .replace("+112 no-attachment va-0\n", "#\n")
        .replace("+110 gone db-0\n", "+109.9 no-attachment va-0\n    +110 gone db-0\n");
    expect![[r#"
        +109.9 dropped 1 begin_unseen
        +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0
    "#]]
    .assert_eq(&headlines(&script, &["volume", "dropped", "pod"]));
}

#[test]
fn a_pod_that_a_finalizer_keeps_for_long_is_not_forgotten() {
    let script = LOST.replace("claim=data-db-0", "finalizer=example.com/hold");
    let kept = |over: &str| {
        format!(
            "
            {over}
            +100 pod db-0 StatefulSet/db node=n1 ready deleted=+30 grace=0 failed finalizer=example.com/hold
            +700 tick
            +800 gone db-0
            +801 tick
            "
        )
    };
    expect![[r#"
        +800.0 pod db-0 lost: +10.0 → +800.0, requested +30.0
    "#]]
    .assert_eq(&headlines(&[&script, &*kept("+60 no-node n1")].concat(), &["pod"]));
    expect![[r#"
        +800.0 pod db-0 lost: +10.0 → +800.0, requested +30.0
    "#]]
    .assert_eq(&headlines(
        &[&script, &*kept("+60 node n1 true since=+60")].concat(),
        &["pod"],
    ));
}

#[test]
fn pods_that_anybody_can_bind_to_a_lost_node_do_not_push_others_out() {
    // No scheduler is needed for that.
    let made_up = |at: &str| -> String {
        let pod = |n| format!("{at} pod x{n} ReplicaSet/x node=n1 pending\n");
        (0..10).map(pod).collect()
    };
    // Those that come with the scan, or later.
    let script = |scanned: &str, later: &str| {
        [
            "+0 node n1 true\n+0 node n2 true\n+0 pod db-0 StatefulSet/db node=n2 ready\n",
            scanned,
            "+10 node n1 unknown\n+11 tick\n",
            later,
            "+20 node n2 unknown\n+21 tick\n+30 pod db-0 StatefulSet/db node=n2 ready deleting grace=5\n",
            &ticks(31..100, 1),
            "+100 gone db-0\n",
        ]
        .concat()
    };
    for (script, at) in [(script(&made_up("+9"), ""), "+10.0"), (script("", &made_up("+12")), "+12.0")] {
        let expected = format!("{at} dropped 1 lost_pod_cap\n").repeat(5)
            + "+32.0 alarm about db-0 of n2\n+100.0 pod db-0 lost: +20.0 → +100.0, requested +30.0\n";
        assert_eq!(headlines(&script, &["dropped", "alarm about db-0", "pod"]), expected);
    }
}

#[test]
fn pods_that_finalizers_keep_do_not_push_those_of_a_lost_node_out() {
    let kept = |words: &str, at: u32| -> String {
        let pod = |n| format!("+{at} pod x{n} ReplicaSet/x node=n2 ready finalizer=a/b{words}\n");
        (0..10).map(pod).collect()
    };
    let script = [
        "+0 node n1 true\n+0 node n2 true\n+0 pod db-0 StatefulSet/db node=n1 ready\n",
        &kept("", 0),
        &kept(" deleting grace=0", 1),
        "+10 node n1 unknown\n+11 tick\n+30 pod db-0 StatefulSet/db node=n1 ready deleting grace=5\n",
        &ticks(31..200, 1),
    ];
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 0
        node 1 finalizer 5 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&script.concat(), 200));
    // Their node is lost, too.
    let script = script
        .concat()
        .replace("+10 node n1 unknown", "+9 node n2 unknown\n+9 tick\n+10 node n1 unknown");
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 0
        n2 not ready lost: stuck 0, taint false, volumes 0
        node 1 finalizer 5 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&script, 200));
    // The deletion was requested before the node was not ready.
    let script = [
        "+0 node n1 true\n+0 node n2 true\n+0 pod db-0 StatefulSet/db node=n1 ready\n",
        &kept("", 0),
        &kept(" deleting grace=0", 1),
        "+5 pod db-0 StatefulSet/db node=n1 ready deleting grace=5\n+10 node n1 unknown\n",
        &ticks(11..200, 1),
    ];
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 0
        node 1 finalizer 5 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&script.concat(), 200));
}

#[test]
fn made_up_owners_do_not_push_replacements_out() {
    let made_up = |at: &str, words: &str| -> String {
        let pod = |n| format!("{at} pod x{n} StatefulSet/f node=n2 ready {words}\n");
        (0..4).map(pod).collect()
    };
    let deleted = made_up("+0", "finalizer=a/b") + &made_up("+1", "finalizer=a/b deleting grace=0");
    let ended = made_up("+0", "finalizer=a/b")
        + &made_up("+1", "finalizer=a/b deleting grace=5")
        + &made_up("+2", "finalizer=a/b deleted=+1 grace=0 failed");
    let never_run = made_up("+0", "pending") + &made_up("+1", "pending deleting");
    let failed = made_up("+0", "") + &made_up("+1", "failed");
    for (made_up, at) in [(deleted, 1), (ended, 2), (never_run, 1), (failed, 1)] {
        let script = [
            &LOST.replace("+10 node n1", &format!("{made_up}+10 node n1")),
            FENCED,
            "+300 node n1 true since=+300\n",
        ];
        let expected = format!("+{at}.0 dropped 1 vacancy_cap\n").repeat(2)
            + "+118.0 db-0 replaces db-0 (name-in-stateful-set): created +110.1, scheduled +110.2, attached +113.0, ready +118.0, of a lost node\n"
            + "+300.0 db-0 twice: +118.0 → +300.0\n";
        assert_eq!(headlines(&script.concat(), &["dropped", "db-0"]), expected);
    }
}

#[test]
fn claims_that_are_made_up_do_not_push_others_out() {
    let claims: String = (0..12_000).map(|n| format!(" claim=c-{n}")).collect();
    let made_up = format!("+29 pod x - node=n1 pending deleting{claims}\n");
    let script = LOST.replace("+30 pod db-0", &format!("{made_up}+30 pod db-0"));
    expect![[r#"
        +112.0 volume pv-0 of db-0 (data-db-0): +110.0 → +112.0, requested +111.0
        +118.0 db-0 replaces db-0 (name-in-stateful-set): created +110.1, scheduled +110.2, attached +113.0, ready +118.0, of a lost node
    "#]]
    .assert_eq(&headlines(&[&script, FENCED].concat(), &["volume", "db-0"]));
}

#[test]
fn volumes_of_lost_nodes_are_bounded_and_what_does_not_fit_is_counted() {
    let mut script = "+0 version 1.36\n+0 node n1 true\n+0 attachment va pv n1 attached\n".to_owned();
    let claims = |pod: u32| (0..4_000).map(|n| format!(" claim=c-{pod}-{n}")).collect::<String>();
    for pod in 0..3 {
        script += &format!("+0 pod db-{pod} StatefulSet/db node=n1 ready{}\n", claims(pod));
    }
    script += "+10 node n1 unknown\n+11 tick\n";
    for pod in 0..3 {
        script += &format!("+30 pod db-{pod} StatefulSet/db node=n1 ready deleting{}\n", claims(pod));
    }
    // Again: counted once.
    script += &format!("+31 pod db-2 StatefulSet/db node=n1 ready deleted=+30 grace=1{}\n", claims(2));
    let dropped = headlines(&script, &["dropped 1 attachment_cap"]);
    assert_eq!(dropped.lines().count(), 2_000);
}

/// The watches of pods and nodes come back one after the other when the API server was away: the pods were gone before it was known here
/// that the node had the taint.
#[test]
fn a_pod_that_goes_while_the_nodes_are_not_watched_is_told_once_they_are() {
    let verdict = |fenced: &str| {
        let away =
            format!("+95 broken nodes since=+95\n+110 gone db-0\n+111 tick\n{fenced}\n+116 tick\n+119 tick\n+230 tick\n");
        let text = play(&[LOST, &away].concat());
        let (_, told) = text.split_once("pod db-0 lost").expect("told");
        assert!(!told.contains("pod db-0 lost"), "{text}");
        told.lines().nth(2).expect("a verdict").trim().to_owned()
    };
    let fenced = verdict("+112 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service");
    assert!(fenced.starts_with("fenced-by-taint"), "{fenced}");
    let quiet = verdict("");
    assert!(quiet.starts_with("lost"), "{quiet}");
}
