//! Two runs of one pod, and advice that changes: what is said must be right at that time.

use std::time::Duration;

use expect_test::expect;

use super::nodes::{LOST, check_stop, state};
use super::{LIMITS, headlines, play, play_from, ticks};
use crate::observe::Observer;
use crate::observe::tests::script::ZERO;

/// What is said from the time on at which the alarms of [`LOST`] are over.
fn check(script: &str, expected: expect_test::Expect) {
    let mut text = String::new();
    play_from(
        ZERO.plus(Duration::from_secs(42)),
        &mut Observer::new(LIMITS),
        script,
        &mut text,
    );
    expected.assert_eq(&text);
}

fn check_lost(more: &str, expected: expect_test::Expect) {
    check(&[LOST, more].concat(), expected);
}

#[test]
fn a_deleted_node_that_registers_again_with_its_boot_ran_twice() {
    check_lost(
        "
        +60 no-node n1
        +100 gone db-0
        +100.1 pod db-0 StatefulSet/db pending claim=data-db-0 again=1
        +100.2 pod db-0 StatefulSet/db pending claim=data-db-0 node=n2 again=1
        +118 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1
        +300 node n1 true uid=n1-again boot=boot-1
        +301 tick
    ",
        expect![[r#"
            +60.0 node n1 lost at +10: +10.0 → +60.0 by node-deleted, agent silent, stuck 1, gone 0; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +40.0
                  node.deleted +60.0
                  lost: node `n1` was not ready for 50.0 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent did not answer; 1 pod on it could not be terminated
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
            +100.0 pod db-0 lost: +10.0 → +100.0, requested +30.0
                  stuck by node: +30.0 → +100.0
                  lost: the pod's node `n1` was lost, and the pod's object was deleted 70 s after the deletion request, without the kubelet and without the taint out-of-service; whether the pod's containers still ran is not known
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
            +118.0 db-0 replaces db-0 (name-in-stateful-set): created +100.1, scheduled +100.2, ready +118.0, of a lost node
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 same-boot
            +300.0 db-0 twice: +118.0 → +300.0
                  duplicate-run: node `n1` came back with the same boot: the node had been paused or cut off. The old pod `db-0` may have run there until the node was ready again, and longer, until its kubelet stopped it; its replacement `db-0` on `n2` ran from 182 s before the node was ready again: both pods may have run for at least 182 s
                  remedy: check what both pods wrote in that time (at least 182 s); in future, power a lost node off before its pods are replaced
        "#]],
    );
}

#[test]
fn a_replacement_runs_before_it_is_ready() {
    check_lost(
        "
        +100 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service
        +110 gone db-0
        +110.1 pod db-0 StatefulSet/db pending claim=data-db-0 again=1
        +110.2 pod db-0 StatefulSet/db pending claim=data-db-0 node=n2 again=1
        +112 no-attachment va-0
        # A container runs, the pod is not ready.
        +115 pod db-0 StatefulSet/db claim=data-db-0 node=n2 again=1
        +150 node n1 true since=+150 out-of-service
        +200 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1
        +201 tick
    ",
        expect![[r#"
            +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0
                  stuck by node: +30.0 → +110.0
                  fenced-by-taint: the pod's node `n1` was lost, and the pod's object was deleted 80 s after the deletion request, while the taint out-of-service was set, without the kubelet; whether the pod's containers still ran is not known
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +110.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent silent, stuck 1, gone 1; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +40.0
                  taint.out_of_service +100.0
                  pods.last_gone +110.0
                  fenced-by-taint: node `n1` has not been ready for 100 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent does not answer; 1 pod on it could not be terminated; the taint out-of-service is set, and the objects of all of these pods are gone
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +112.0 volume pv-0 of db-0 (data-db-0): +110.0 → +112.0
            +150.0 node.down of n1 lost at +10: +10.0 → +150.0 same-boot
            +150.0 db-0 twice: +115.0 → +150.0
                  duplicate-run: node `n1` came back with the same boot: the node had been paused or cut off. The old pod `db-0` may have run there until the node was ready again, and longer, until its kubelet stopped it; its replacement `db-0` on `n2` ran from 35.0 s before the node was ready again: both pods may have run for at least 35.0 s
                  remedy: check what both pods wrote in that time (at least 35.0 s); in future, power a lost node off before its pods are replaced
            +200.0 db-0 replaces db-0 (name-in-stateful-set): created +110.1, scheduled +110.2, ready +200.0, of a lost node
        "#]],
    );
}

#[test]
fn a_second_run_ends_when_the_kubelet_reports_the_end_of_the_old_pod() {
    let script = "
        +0 node n1 true
        +0 node n2 true
        +0 pod a ReplicaSet/web node=n1 ready
        +10 node n1 unknown
        +11 tick
        +25 node n1 unknown since=+10 evicting
        +30 pod a ReplicaSet/web node=n1 ready deleting grace=5 by-taint
        +30.1 pod b ReplicaSet/web node=n2 pending
        +35 pod b ReplicaSet/web node=n2 ready
        +40 tick
        +296 pod a ReplicaSet/web node=n1 deleted=+30 grace=5 by-taint succeeded
        +296.1 gone a
        +300 node n1 true since=+300
    ";
    let text = play(script);
    let (_, twice) = text.split_once("+300.0 a twice").expect("a second run");
    expect![[r#"
        : +35.0 → +296.0
              duplicate-run: node `n1` came back with the same boot: the node had been paused or cut off. The old pod `a` may have run there until 4.0 s before the node was ready again, when its kubelet reported that its containers had terminated; its replacement `b` on `n2` ran from 265 s before the node was ready again: both pods may have run for 261 s
              remedy: check what both pods wrote in that time (261 s); in future, power a lost node off before its pods are replaced
    "#]]
    .assert_eq(twice);
}

#[test]
fn a_deployments_pod_ran_until_the_nodes_return() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod a ReplicaSet/web node=n1 ready
        +10 node n1 unknown
        +11 tick
        +25 node n1 unknown since=+10 evicting
        +30 pod a ReplicaSet/web node=n1 ready deleting grace=5 by-taint
        +30.1 pod b ReplicaSet/web node=n2 pending
        +35 pod b ReplicaSet/web node=n2 ready
        +40 tick
        +300 node n1 true since=+300
        +302 gone a
        +303 tick
        ",
        expect![[r#"
            +300.0 node n1 lost at +10: +10.0 → +300.0 by back, agent unknown, stuck 1, gone 0; pods a
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +35.0
                  node.ready +300.0
                  lost: node `n1` was not ready for 290 s; its kubelet was silent, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 same-boot
            +300.0 a twice: +35.0 → +300.0
                  duplicate-run: node `n1` came back with the same boot: the node had been paused or cut off. The old pod `a` may have run there until the node was ready again, and longer, until its kubelet stopped it; its replacement `b` on `n2` ran from 265 s before the node was ready again: both pods may have run for at least 265 s
                  remedy: check what both pods wrote in that time (at least 265 s); in future, power a lost node off before its pods are replaced
            +302.0 pod a lost: +10.0 → +302.0, requested +30.0
                  stuck by node: +30.0 → +300.0
                  stuck by runtime: +300.0 → +302.0
                  lost: the pod's node `n1` was not ready for 290 s, and the pod was terminated only after the node's return, 272 s after the deletion request
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
        "#]],
    );
}

#[test]
fn a_forced_deletion_on_a_cordoned_silent_node_is_a_loss() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +5 node n1 true since=+0 cordoned
        +10 node n1 unknown cordoned
        +11 tick
        +15 node n1 unknown since=+10 cordoned evicting
        +20 gone db-0
        +20.1 pod db-0 StatefulSet/db pending again=1
        +20.2 pod db-0 StatefulSet/db pending node=n2 again=1
        +30 pod db-0 StatefulSet/db ready node=n2 again=1
        +100 tick
        +200 node n1 true since=+200 cordoned
        +201 tick
        ",
        expect![[r#"
            +100.0 node n1 lost at +10: +10.0 → +20.0 by pods-gone, agent unknown, stuck 0, gone 0; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +15.0
                  pods.last_gone +20.0
                  lost: node `n1` has not been ready for 10.0 s; its kubelet is silent, and no agent on it could be asked; 1 pod was deleted without the kubelet
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +200.0 node.down of n1 lost at +10: +10.0 → +200.0 same-boot
            +200.0 db-0 twice: +30.0 → +200.0
                  duplicate-run: node `n1` came back with the same boot: the node had been paused or cut off. The old pod `db-0` may have run there until the node was ready again, and longer, until its kubelet stopped it; its replacement `db-0` on `n2` ran from 170 s before the node was ready again: both pods may have run for at least 170 s
                  remedy: check what both pods wrote in that time (at least 170 s); in future, power a lost node off before its pods are replaced
        "#]],
    );
}

#[test]
fn an_order_that_a_gap_hides_is_not_claimed() {
    check_lost(
        "
        +50 broken nodes
        +50 broken pods
        +115 list nodes
        +115 node n1 true since=+114 out-of-service
        +115 node n2 true since=+0
        +115 listed nodes
        +115.5 list pods
        +115.5 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1
        +115.5 pod db-1 StatefulSet/db node=n2 ready claim=data-db-1
        +115.5 pod log-a DaemonSet/log node=n1 ready outlasts
        +115.5 pod agent-a DaemonSet/agent node=n1 ready outlasts agent
        +115.5 listed pods
        +116 tick
    ",
        expect![[r#"
            +115.0 node n1 lost at +10: +10.0 → +114.0 by back, agent silent, stuck 1, gone 0; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +40.0
                  node.ready +114.0
                  lost: node `n1` was not ready for 104 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent did not answer; 1 pod on it could not be terminated
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +115.0 node.down of n1 lost at +10: +10.0 → +114.0 same-boot
            +115.5 db-0 replaces db-0 (name-in-stateful-set): created +115.5 (gap 65.5), scheduled +115.5 (gap 65.5), ready +115.5 (gap 65.5), of a lost node
            +115.5 pod db-0 lost: +10.0 → +115.5 (gap 65.5), requested +30.0
                  stuck by node: +30.0 → +114.0
                  stuck by runtime: +114.0 → +115.5 (gap 65.5)
                  lost: the pod's node `n1` was not ready for 104 s, and the pod was deleted while the watch was interrupted: either before the node's return, without the kubelet, or after the return, 86 s after the deletion request
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
        "#]],
    );
}

#[test]
fn a_pod_that_its_kubelet_terminated_did_not_run_twice() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 false reason=KubeletNotReady
        +11 tick
        +15 node n1 false since=+10 reason=KubeletNotReady evicting
        +311 pod a ReplicaSet/web node=n1 ready deleting grace=5 by-taint
        +311 pod db-0 StatefulSet/db node=n1 ready deleting grace=5 by-taint
        +311.5 pod b ReplicaSet/web node=n2 pending
        +314 gone a
        +316 pod b ReplicaSet/web node=n2 ready
        +320 tick
        +500 node n1 true since=+500
        +501 gone db-0
        ",
        expect![[r#"
            +316.0 b replaces a (next-of-replica-set): created +311.5, scheduled +311.5, ready +316.0
            +320.0 alarm about the node of n1
                  unreachable: node `n1` has not been ready for 310 s (KubeletNotReady); its kubelet itself reports this, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +320.0 alarm about db-0 of n1
                  unreachable: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 310 s; its kubelet itself reports this, and no agent on it could be asked
                  remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +500.0 node n1 lost at +10: +10.0 → +500.0 by back, agent unknown, stuck 1, gone 0; pods db-0
                  node.not_ready +10.0
                  node.evicting +15.0
                  pods.first_stuck +320.0
                  node.ready +500.0
                  unreachable: node `n1` was not ready for 490 s (KubeletNotReady); its kubelet itself reported this, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +500.0 node.not_ready of n1 lost at +10: +10.0 → +15.0
            +500.0 node.down of n1 lost at +10: +10.0 → +500.0 same-boot
            +501.0 pod db-0 lost: +10.0 → +501.0, requested +311.0
                  stuck by node: +311.0 → +500.0
                  stuck by runtime: +500.0 → +501.0
                  unreachable: the pod's node `n1` was not ready for 490 s, and the pod was terminated only after the node's return, 190 s after the deletion request
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
        "#]],
    );
}

#[test]
fn a_reboot_that_begins_the_loss_is_a_reboot() {
    check(
        "
        +0 node n1 true boot=boot-1
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +30 node n1 false since=+30 boot=boot-2 reason=KubeletNotReady
        +31 tick
        +35 node n1 false since=+30 boot=boot-2 reason=KubeletNotReady evicting
        +330 pod db-0 StatefulSet/db node=n1 deleting grace=5 by-taint
        +340 tick
        +400 node n1 false since=+30 boot=boot-2 reason=KubeletNotReady evicting out-of-service
        +410 gone db-0
        +410.1 pod db-0 StatefulSet/db pending node=n2 again=1
        +420 pod db-0 StatefulSet/db ready node=n2 again=1
        +600 node n1 true since=+600 boot=boot-2
        +601 tick
        ",
        expect![[r#"
            +340.0 alarm about the node of n1
                  unreachable: node `n1` has not been ready for 310 s (KubeletNotReady); its kubelet itself reports this, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +340.0 alarm about db-0 of n1
                  unreachable: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 310 s; its kubelet itself reports this, and no agent on it could be asked
                  remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +400.0 alarm about the node of n1
                  fenced-by-taint: node `n1` has not been ready for 370 s (KubeletNotReady); its kubelet itself reports this, and no agent on it could be asked; 1 pod on it could not be terminated; the taint out-of-service is set, and has not released all of them yet
                  remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once, or remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +400.0 alarm about db-0 of n1
                  fenced-by-taint: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 370 s; its kubelet itself reports this, and no agent on it could be asked
                  remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once, or remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +410.0 pod db-0 lost: +30.0 → +410.0, requested +330.0
                  stuck by node: +330.0 → +410.0
                  fenced-by-taint: the pod's node `n1` was lost, and the pod's object was deleted 80 s after the deletion request, while the taint out-of-service was set, without the kubelet; the machine still ran, and the pod's containers may have run, too
                  remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +410.0 alarm about the node of n1
                  fenced-by-taint: node `n1` has not been ready for 380 s (KubeletNotReady); its kubelet itself reports this, and no agent on it could be asked; 1 pod on it could not be terminated; the taint out-of-service is set, and the objects of all of these pods are gone
                  remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +410.0 alarm about db-0 of n1
                  fenced-by-taint: pod `db-0` was deleted without the kubelet, and may be replaced: its node `n1` has not been ready for 380 s; its kubelet itself reports this, and no agent on it could be asked
                  remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +410.0 node n1 lost at +30: +30.0 → +410.0 by pods-gone, agent unknown, stuck 1, gone 1; pods db-0
                  node.not_ready +30.0
                  node.evicting +35.0
                  pods.first_stuck +340.0
                  taint.out_of_service +400.0
                  pods.last_gone +410.0
                  fenced-by-taint: node `n1` has not been ready for 380 s (KubeletNotReady); its kubelet itself reports this, and no agent on it could be asked; 1 pod on it could not be terminated; the taint out-of-service is set, and the objects of all of these pods are gone
                  remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +410.0 node.not_ready of n1 lost at +30: +30.0 → +35.0
            +420.0 db-0 replaces db-0 (name-in-stateful-set): created +410.1, scheduled +410.1, ready +420.0, of a lost node
            +600.0 node.down of n1 lost at +30: +30.0 → +600.0 rebooted
            +600.0 node.out_of_service of n1 lost at +30: +400.0 → +600.0
        "#]],
    );
}

#[test]
fn an_agent_that_answers_after_the_alarm_changes_the_advice() {
    check_lost(
        "
        +84 tick
        +85 agent n1 answers
        +86 tick
        +90 tick
    ",
        expect![[r#"
            +85.0 alarm about the node of n1
                  unreachable: node `n1` has not been ready for 75 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs; 1 pod on it could not be terminated
                  remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +85.0 alarm about db-0 of n1
                  unreachable: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 75 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs
                  remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +90.0 ask agent n1
        "#]],
    );
}

#[test]
fn a_power_off_that_is_confirmed_after_the_alarm_changes_the_advice() {
    check_lost(
        "
        +60 node n1 unknown since=+10 reason=NodeStatusUnknown evicting off
        +61 tick
        +70 tick
    ",
        expect![[r#"
            +60.0 alarm about the node of n1
                  lost: node `n1` has not been ready for 50.0 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent does not answer; 1 pod on it could not be terminated
                  remedy: the provider reported that `n1` is off, and that report stays until the node is ready, also if the machine runs again: ask the provider whether the machine still is off. If so, release its pods and volumes: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +60.0 alarm about db-0 of n1
                  lost: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 50.0 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent does not answer
                  remedy: the provider reported that `n1` is off, and that report stays until the node is ready, also if the machine runs again: ask the provider whether the machine still is off. If so, release its pods and volumes: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        "#]],
    );
}

#[test]
fn a_deleted_node_object_is_no_proof_of_power_off() {
    check_lost(
        "
        +60 no-node n1
        +61 tick
        +100 gone db-0
        +100.1 pod db-0 StatefulSet/db pending claim=data-db-0 again=1
        +100.2 pod db-0 StatefulSet/db pending claim=data-db-0 node=n2 again=1
        +190 tick
    ",
        expect![[r#"
            +60.0 node n1 lost at +10: +10.0 → +60.0 by node-deleted, agent silent, stuck 1, gone 0; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +40.0
                  node.deleted +60.0
                  lost: node `n1` was not ready for 50.0 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent did not answer; 1 pod on it could not be terminated
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
            +100.0 pod db-0 lost: +10.0 → +100.0, requested +30.0
                  stuck by node: +30.0 → +100.0
                  lost: the pod's node `n1` was lost, and the pod's object was deleted 70 s after the deletion request, without the kubelet and without the taint out-of-service; whether the pod's containers still ran is not known
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
            +190.0 alarm about db-0 of n1
                  stuck-by-volume: the replacement of pod `db-0` has waited 90 s for volume `pv-0`, which is attached to the pod's node `n1`; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent did not answer
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
        "#]],
    );
    let left = [LOST, "+60 no-node n1\n +61 tick\n +190 tick"].concat();
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 0
        node 1 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&left, 200));
}

#[test]
fn a_fenced_node_that_boots_is_not_to_be_powered_off() {
    check_lost(
        "
        +100 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service
        +105 node n1 false since=+105 boot=boot-2 reason=KubeletNotReady evicting out-of-service
        +110 gone db-0
        +111 tick
    ",
        expect![[r#"
            +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0
                  stuck by node: +30.0 → +110.0
                  fenced-by-taint: the pod's node `n1` was lost, and the pod's object was deleted 80 s after the deletion request, while the taint out-of-service was set, without the kubelet; the machine has booted again, so its old containers are gone
                  remedy: when `n1` is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +110.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent silent, stuck 1, gone 1; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +40.0
                  taint.out_of_service +100.0
                  pods.last_gone +110.0
                  fenced-by-taint: node `n1` has not been ready for 100 s (KubeletNotReady); its kubelet itself reports this, and its agent does not answer; 1 pod on it could not be terminated; the taint out-of-service is set, and the objects of all of these pods are gone
                  remedy: when `n1` is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        "#]],
    );
}

#[test]
fn a_taint_on_a_machine_that_runs_is_said_at_once() {
    let script = LOST.replace("+18 agent n1 silent", "+18 agent n1 answers");
    check(
        &[
            &script,
            "
        +95 agent n1 answers
        +100 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service
        +101 tick
        +102 tick
    ",
        ]
        .concat(),
        expect![[r#"
            +95.0 ask agent n1
            +100.0 alarm about the node of n1
                  fenced-by-taint: node `n1` has not been ready for 90 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs; 1 pod on it could not be terminated; the taint out-of-service is set, and has not released all of them yet
                  remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once, or remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +100.0 alarm about db-0 of n1
                  fenced-by-taint: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 90 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs
                  remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once, or remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        "#]],
    );
}

#[test]
fn an_interrupted_watch_raises_no_alarm() {
    let script = LOST.replace("+40 tick", "#").replace("+41 tick", "#");
    let text = play(
        &[
            &script,
            "
        +31 broken pods
        +31 broken nodes
        +95 tick
        # The kubelet was back at +32.
        +95.5 node n1 true since=+32
        +95.6 gone db-0
        +96 tick
    ",
        ]
        .concat(),
    );
    assert!(!text.contains("alarm") && !text.contains("could not be terminated"), "{text}");
}

#[test]
fn a_clock_that_is_set_again_and_again_raises_the_alarm_late() {
    let steps = |at: u32| format!("+{at} paused 2\n") + &ticks(at..at + 90, 1);
    let before = LOST.split("    +40 tick").next().expect("the loss");
    let script = [before.to_owned(), steps(31), steps(121), steps(211)].concat();
    expect![[r#"
        +132.0 alarm about the node of n1
        +132.0 alarm about db-0 of n1
    "#]]
    .assert_eq(&headlines(&script, &["alarm"]));
}

#[test]
fn a_kubelet_that_speaks_again_counts_the_grace_period() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 unknown
        +11 tick
        +100 node n1 false since=+100 reason=KubeletNotReady
        +110 pod db-0 StatefulSet/db node=n1 ready deleting grace=30
        +113 tick
        +125 gone db-0
        +125.1 pod db-0 StatefulSet/db pending node=n2 again=1
        +130 pod db-0 StatefulSet/db ready node=n2 again=1
        +200 node n1 true since=+200
        ",
        expect![[r#"
            +130.0 db-0 replaces db-0 (name-in-stateful-set): created +125.1, scheduled +125.1, ready +130.0
        "#]],
    );
}

#[test]
fn a_pod_that_ended_before_the_silence_is_not_lost() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 false reason=KubeletNotReady
        +11 tick
        +20 pod db-0 StatefulSet/db node=n1 ready deleting grace=30
        +23 gone db-0
        +23.1 pod db-0 StatefulSet/db pending node=n2 again=1
        +30 pod db-0 StatefulSet/db ready node=n2 again=1
        +60 node n1 unknown since=+60
        +300 node n1 true since=+300
        ",
        expect![[r#"
            +60.0 ask renewal n1
            +300.0 node n1 lost at +10: +10.0 → +300.0 by back, agent unknown, stuck 0, gone 0; pods 
                  node.not_ready +10.0
                  node.unknown +60.0
                  node.ready +300.0
                  lost: node `n1` was not ready for 290 s; its kubelet was silent, and no agent on it could be asked
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 same-boot
        "#]],
    );
}

#[test]
fn a_run_beside_the_replacement_is_reported_once() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod a ReplicaSet/web node=n1 ready
        +10 node n1 unknown
        +11 tick
        +25 node n1 unknown since=+10 evicting
        +30 pod a ReplicaSet/web node=n1 ready deleting grace=5 by-taint
        +30.1 pod b ReplicaSet/web node=n2 pending
        +35 pod b ReplicaSet/web node=n2 ready
        +300 node n1 true since=+300 boot=boot-2
        +302 node n1 unknown since=+302 boot=boot-2
        +303 tick
        +400 node n1 true since=+400 boot=boot-2
        ",
        expect![[r#"
            +300.0 node n1 lost at +10: +10.0 → +300.0 by back, agent unknown, stuck 1, gone 0; pods a
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +35.0
                  node.ready +300.0
                  lost: node `n1` was not ready for 290 s; its kubelet was silent, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: find out why `n1` stopped: journalctl -b -1 -u kubelet, its console, and its provider's events. No taint is needed any more
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 rebooted
            +302.0 ask renewal n1
            +400.0 node n1 lost at +302: +302.0 → +400.0 by back, agent unknown, stuck 1, gone 0; pods a
                  node.not_ready +302.0
                  node.unknown +302.0
                  node.ready +400.0
                  lost: node `n1` was not ready for 98 s; its kubelet was silent, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +400.0 node.down of n1 lost at +302: +302.0 → +400.0 same-boot
        "#]],
    );
}

#[test]
fn a_daemonsets_next_pod_on_the_node_is_no_second_run() {
    check(
        "
        +0 node n1 true
        +0 pod log-a DaemonSet/log node=n1 ready outlasts
        +10 node n1 unknown
        +11 tick
        +100 gone log-a
        +100.1 pod log-b DaemonSet/log node=n1 pending outlasts
        +299 pod log-b DaemonSet/log node=n1 outlasts
        +300 node n1 true since=+300
        ",
        expect![[r#"
            +100.0 pod log-a lost: +10.0 → +100.0
                  lost: the pod's node `n1` was lost, and the pod's object was deleted, without the kubelet and without the taint out-of-service; whether the pod's containers still ran is not known
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +100.0 node n1 lost at +10: +10.0 → +100.0 by pods-gone, agent unknown, stuck 0, gone 0; pods 
                  node.not_ready +10.0
                  node.unknown +10.0
                  pods.last_gone +100.0
                  lost: node `n1` has not been ready for 90 s; its kubelet is silent, and no agent on it could be asked
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 same-boot
        "#]],
    );
}

#[test]
fn a_node_deleted_while_its_kubelet_spoke_may_run_its_pods_on() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 false reason=KubeletNotReady
        +11 tick
        +20 no-node n1
        +60 gone db-0
        +60.1 pod db-0 StatefulSet/db pending node=n2 again=1
        +62 pod db-0 StatefulSet/db ready node=n2 again=1
        +110 node n1 true since=+110
        ",
        expect![[r#"
            +60.0 pod db-0 lost: +10.0 → +60.0
                  unreachable: the pod's node `n1` was not ready, but ran; the pod's object was deleted, without the kubelet: the pod's containers may still have run
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
            +62.0 db-0 replaces db-0 (name-in-stateful-set): created +60.1, scheduled +60.1, ready +62.0, of a lost node
            +110.0 node.down of n1 lost at +10: +10.0 → +110.0 same-boot
            +110.0 db-0 twice: +62.0 → +110.0
                  duplicate-run: node `n1` came back with the same boot: the node had been paused or cut off. The old pod `db-0` may have run there until the node was ready again, and longer, until its kubelet stopped it; its replacement `db-0` on `n2` ran from 48.0 s before the node was ready again: both pods may have run for at least 48.0 s
                  remedy: check what both pods wrote in that time (at least 48.0 s); in future, power a lost node off before its pods are replaced
        "#]],
    );
}

#[test]
fn a_pod_that_the_garbage_collection_fails_may_run_on() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 unknown
        +11 tick
        +20 no-node n1
        +59 pod db-0 StatefulSet/db node=n1 failed
        +60 gone db-0
        +60.1 pod db-0 StatefulSet/db pending node=n2 again=1
        +62 pod db-0 StatefulSet/db ready node=n2 again=1
        +100 node n1 false since=+100
        +110 node n1 true since=+110
        ",
        expect![[r#"
            +60.0 pod db-0 lost: +10.0 → +60.0
                  lost: the pod's node `n1` was lost, and the pod's object was deleted, without the kubelet and without the taint out-of-service; whether the pod's containers still ran is not known
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
            +62.0 db-0 replaces db-0 (name-in-stateful-set): created +60.1, scheduled +60.1, ready +62.0, of a lost node
            +100.0 alarm about the node of n1
                  unreachable: node `n1` has not been ready for 90 s; its kubelet itself reports this, and no agent on it could be asked; 1 pod was deleted without the kubelet
                  remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once
            +110.0 node.down of n1 lost at +10: +10.0 → +110.0 same-boot
            +110.0 db-0 twice: +62.0 → +110.0
                  duplicate-run: node `n1` came back with the same boot: the node had been paused or cut off. The old pod `db-0` may have run there until the node was ready again, and longer, until its kubelet stopped it; its replacement `db-0` on `n2` ran from 48.0 s before the node was ready again: both pods may have run for at least 48.0 s
                  remedy: check what both pods wrote in that time (at least 48.0 s); in future, power a lost node off before its pods are replaced
        "#]],
    );
}

#[test]
fn a_root_waits_for_an_interrupted_watch() {
    check(
        "
        +0 node n1 true
        +0 pod log-a DaemonSet/log node=n1 ready outlasts
        +10 node n1 unknown
        +11 tick
        +31 broken nodes
        +71 tick
        +95.5 node n1 true since=+32
        ",
        expect![[r#"
            +95.5 node n1 lost at +10: +10.0 → +32.0 by back, agent unknown, stuck 0, gone 0; pods 
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.ready +32.0
                  lost: node `n1` was not ready for 22.0 s; its kubelet was silent, and no agent on it could be asked
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +95.5 node.down of n1 lost at +10: +10.0 → +32.0 same-boot
        "#]],
    );
}

#[test]
fn a_pod_that_is_gone_with_its_node_is_lost() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +9.5 tick
        +10 node n1 unknown
        +10.2 gone db-0
        +10.3 pod db-0 StatefulSet/db pending node=n2 again=1
        +15 pod db-0 StatefulSet/db ready node=n2 again=1
        +300 node n1 true since=+300
        ",
        expect![[r#"
            +300.0 node n1 lost at +10: +10.0 → +300.0 by back, agent unknown, stuck 0, gone 0; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.ready +300.0
                  lost: node `n1` was not ready for 290 s; its kubelet was silent, and no agent on it could be asked; 1 pod was deleted without the kubelet
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 same-boot
            +300.0 db-0 twice: +15.0 → +300.0
                  duplicate-run: node `n1` came back with the same boot: the node had been paused or cut off. The old pod `db-0` may have run there until the node was ready again, and longer, until its kubelet stopped it; its replacement `db-0` on `n2` ran from 285 s before the node was ready again: both pods may have run for at least 285 s
                  remedy: check what both pods wrote in that time (at least 285 s); in future, power a lost node off before its pods are replaced
        "#]],
    );
}

#[test]
fn a_taint_goes_with_the_node_object() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 unknown
        +11 tick
        +25 node n1 unknown since=+10 evicting
        +30 pod db-0 StatefulSet/db node=n1 ready deleting grace=5 by-taint
        +100 node n1 unknown since=+10 evicting out-of-service
        +101 no-node n1
        +102 tick
        ",
        expect![[r#"
            +100.0 alarm about the node of n1
                  fenced-by-taint: node `n1` has not been ready for 90 s; its kubelet is silent, and no agent on it could be asked; 1 pod on it could not be terminated; the taint out-of-service is set, and has not released all of them yet
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +100.0 alarm about db-0 of n1
                  fenced-by-taint: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 90 s; its kubelet is silent, and no agent on it could be asked
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +101.0 node.out_of_service of n1 lost at +10: +100.0 → +101.0
            +101.0 node n1 lost at +10: +10.0 → +101.0 by node-deleted, agent unknown, stuck 1, gone 0; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  taint.out_of_service +100.0
                  pods.first_stuck +100.0
                  node.deleted +101.0
                  lost: node `n1` was not ready for 91 s; its kubelet was silent, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
        "#]],
    );
}

#[test]
fn the_advice_to_power_off_is_withdrawn_when_the_machine_has_booted() {
    let script = LOST.replace("+18 agent n1 silent", "+18 agent n1 answers");
    check(
        &[
            &script,
            "
        +95 agent n1 answers
        +100 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service
        +101 tick
        +200 node n1 false since=+200 boot=boot-2 evicting out-of-service
        +201 tick
        ",
        ]
        .concat(),
        expect![[r#"
            +95.0 ask agent n1
            +100.0 alarm about the node of n1
                  fenced-by-taint: node `n1` has not been ready for 90 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs; 1 pod on it could not be terminated; the taint out-of-service is set, and has not released all of them yet
                  remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once, or remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +100.0 alarm about db-0 of n1
                  fenced-by-taint: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 90 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs
                  remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once, or remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +200.0 alarm about the node of n1
                  fenced-by-taint: node `n1` has not been ready for 190 s; its kubelet itself reports this, and its agent still answers: the machine runs; 1 pod on it could not be terminated; the taint out-of-service is set, and has not released all of them yet
                  remedy: when `n1` is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +200.0 alarm about db-0 of n1
                  fenced-by-taint: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 190 s; its kubelet itself reports this, and its agent still answers: the machine runs
                  remedy: when `n1` is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        "#]],
    );
}

/// The first changes of the advice are alarms at once, then one in ten minutes.
#[test]
fn an_agent_that_answers_now_and_then_raises_few_alarms() {
    let flaps = (0..40).map(|n| {
        let at = 84 + 75 * n;
        format!(
            "+{at} tick\n+{} agent n1 answers\n+{} tick\n+{} agent n1 silent\n+{} agent n1 silent\n+{} agent n1 silent\n",
            at + 1,
            at + 2,
            at + 10,
            at + 20,
            at + 30
        )
    });
    let text = play(&[LOST, &flaps.collect::<String>()].concat());
    let alarms = text.matches("alarm about the node").count();
    assert!((3..=9).contains(&alarms), "{alarms} alarms: {text}");
}

#[test]
fn pods_of_a_deleted_node_are_reported_when_the_observer_stops() {
    check_stop(
        &[LOST, "+60 no-node n1\n +61 tick"].concat(),
        70,
        expect![[r#"
            pod db-0 lost: +10.0 → +70.0, still terminating, requested +30.0
                  stuck by node: +30.0 → +70.0
                  lost: the pod's node `n1` was not ready for 60 s; when this observer stopped after the deletion of the Node object, the pod's object still existed, 40.0 s after the deletion request
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
        "#]],
    );
}
