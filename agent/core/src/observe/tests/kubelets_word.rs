//! Lost nodes: what a kubelet confirms before its node is ready again, machines that run after all, and controllers that stop evicting.

use expect_test::expect;

use super::nodes::{FENCED, LOST, state};
use super::{headlines, play, ticks};

#[test]
fn a_kubelet_that_terminates_before_its_node_is_ready_leaves_no_double() {
    // The node's status is posted every 10 s, a pod's at once.
    let cut_off = "
        +300 pod db-0 StatefulSet/db node=n1 claim=data-db-0 deleted=+30 grace=5 by-taint succeeded
        +300.2 gone db-0
        +300.3 pod db-0 StatefulSet/db pending claim=data-db-0 again=1
        +300.4 pod db-0 StatefulSet/db pending claim=data-db-0 node=n2 again=1
        +304 pod db-0 StatefulSet/db claim=data-db-0 node=n2 again=1
        +308 node n1 true since=+308
        +309 tick
    ";
    expect![[r#"
        +300.2 pod db-0 lost: +10.0 → +300.2, requested +30.0
    "#]]
    .assert_eq(&headlines(&[LOST, cut_off].concat(), &["pod", "db-0 twice"]));
    // The container runtime was stopped: Ready is False all the time.
    let without_runtime = "
        +0 version 1.36
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 false reason=KubeletNotReady
        +11 tick
        +15 node n1 false since=+10 reason=KubeletNotReady evicting
        +311 pod db-0 StatefulSet/db node=n1 ready deleting grace=30 by-taint
        +345 tick
        +400 pod db-0 StatefulSet/db node=n1 deleted=+311 grace=30 by-taint succeeded
        +400.2 gone db-0
        +400.3 pod db-0 StatefulSet/db pending node=n2 again=1
        +403 pod db-0 StatefulSet/db node=n2 again=1
        +408 node n1 true since=+408
        +409 tick
    ";
    expect![[r#"
        +400.2 pod db-0 lost: +10.0 → +400.2, requested +311.0
              stuck by node: +311.0 → +400.2
              unreachable: the pod's node `n1` was not ready when its kubelet completed the termination, 89 s after the deletion request
              remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server
        +403.0 node n1 lost at +10: +10.0 → +400.2 by pods-gone, agent unknown, stuck 1, gone 1; pods db-0
              node.not_ready +10.0
              node.evicting +15.0
              pods.first_stuck +345.0
              pods.last_gone +400.2
              unreachable: node `n1` has not been ready for 390 s (KubeletNotReady); its kubelet itself reports this, and no agent on it could be asked; 1 pod on it could not be terminated
              remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +403.0 node.not_ready of n1 lost at +10: +10.0 → +15.0
        +408.0 node.down of n1 lost at +10: +10.0 → +408.0 same-boot
    "#]].assert_eq(&from(without_runtime, "+400.2"));
}

#[test]
fn a_status_of_before_the_loss_confirms_nothing() {
    // Between two restarts; the pod garbage collection sets the phase Failed.
    let restarting = LOST.replace(
        "+0 pod db-0 StatefulSet/db node=n1 ready",
        "+0 pod db-0 StatefulSet/db node=n1 terminated",
    );
    let removed = "
        +305 pod db-0 StatefulSet/db node=n1 claim=data-db-0 deleted=+30 grace=0 by-taint terminated failed
        +305.2 gone db-0
        +305.3 pod db-0 StatefulSet/db pending claim=data-db-0 node=n2 again=1
        +308 pod db-0 StatefulSet/db claim=data-db-0 node=n2 again=1
        +320 node n1 true since=+320
        +321 tick
    ";
    expect![[r#"
        +305.2 pod db-0 lost: +10.0 → +305.2, requested +30.0
    "#]]
    .assert_eq(&headlines(&[&restarting, removed].concat(), &["pod", "db-0 twice"]));
}

#[test]
fn pods_that_are_listed_before_their_node_are_not_without_a_kubelet() {
    let relist = "
        +50 broken nodes
        +50 broken pods
        +115 list pods
        +115 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1
        +115 pod db-1 StatefulSet/db node=n2 ready claim=data-db-1
        +115 pod log-a DaemonSet/log node=n1 ready outlasts
        +115 pod agent-a DaemonSet/agent node=n1 ready outlasts agent
        +115 listed pods
        +115.5 list nodes
        +115.5 node n1 true since=+60
        +115.5 node n2 true since=+0
        +115.5 listed nodes
        +116 tick
    ";
    expect![[r#"
        +115.5 node n1 lost at +10: +10.0 → +60.0 by back, agent silent, stuck 1, gone 1; pods db-0
              node.not_ready +10.0
              node.unknown +10.0
              node.evicting +25.0
              pods.first_stuck +40.0
              node.ready +60.0
              lost: node `n1` was not ready for 50.0 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent did not answer; 1 pod on it could not be terminated
              remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
        +115.5 node.down of n1 lost at +10: +10.0 → +60.0 same-boot
        +116.0 pod db-0 lost: +10.0 → +115.0 (gap 65.0), requested +30.0
              stuck by node: +30.0 → +115.0 (gap 65.0)
              lost: the pod's node `n1` was not ready for 50.0 s, and the pod was deleted while the watch was interrupted: either before the node's return, without the kubelet, or after the return, 85 s after the deletion request
              remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
    "#]].assert_eq(&from(&[LOST, relist].concat(), "+115.5 node n1 lost"));
}

#[test]
fn the_taint_on_a_machine_that_runs_is_a_double_run() {
    // Garbage collection comes before the end of the grace period.
    let script = "
        +0 version 1.36
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 false reason=KubeletNotReady
        +11 tick
        +15 node n1 false since=+10 reason=KubeletNotReady evicting
        +100 node n1 false since=+10 reason=KubeletNotReady evicting out-of-service
        +100.2 pod db-0 StatefulSet/db node=n1 ready deleting grace=30 by-taint
        +101 tick
        +114.9 pod db-0 StatefulSet/db node=n1 deleted=+100 grace=0 by-taint failed
        +115 gone db-0
        +115.1 pod db-0 StatefulSet/db pending node=n2 again=1
        +120 pod db-0 StatefulSet/db ready node=n2 again=1
        +180 tick
        +700 node n1 true since=+700
        +701 tick
    ";
    expect![[r#"
        +100.0 alarm about the node of n1
              fenced-by-taint: node `n1` has not been ready for 90 s (KubeletNotReady); its kubelet itself reports this, and no agent on it could be asked; the taint out-of-service is set
              remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once, or remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +115.0 pod db-0 lost: +10.0 → +115.0, requested +100.2
              stuck by node: +100.2 → +115.0
              fenced-by-taint: the pod's node `n1` was lost, and the pod's object was deleted 14.8 s after the deletion request, while the taint out-of-service was set, without the kubelet; the machine still ran, and the pod's containers may have run, too
              remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +120.0 db-0 replaces db-0 (name-in-stateful-set): created +115.1, scheduled +115.1, ready +120.0, of a lost node
        +120.0 alarm about the node of n1
              fenced-by-taint: node `n1` has not been ready for 110 s (KubeletNotReady); its kubelet itself reports this, and no agent on it could be asked; the taint out-of-service is set; 1 pod was deleted without the kubelet
              remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +120.0 node n1 lost at +10: +10.0 → +115.0 by pods-gone, agent unknown, stuck 0, gone 0; pods db-0
              node.not_ready +10.0
              node.evicting +15.0
              taint.out_of_service +100.0
              pods.last_gone +115.0
              fenced-by-taint: node `n1` has not been ready for 105 s (KubeletNotReady); its kubelet itself reports this, and no agent on it could be asked; the taint out-of-service is set; 1 pod was deleted without the kubelet
              remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +120.0 node.not_ready of n1 lost at +10: +10.0 → +15.0
        +700.0 node.down of n1 lost at +10: +10.0 → +700.0 same-boot
        +700.0 db-0 twice: +120.0 → +700.0
              duplicate-run: node `n1` came back with the same boot: the node had been paused or cut off. The old pod `db-0` may have run there until the node was ready again, and longer, until its kubelet stopped it; its replacement `db-0` on `n2` ran from 580 s before the node was ready again: both pods may have run for at least 580 s
              remedy: check what both pods wrote in that time (at least 580 s); in future, power a lost node off before its pods are replaced
        +700.0 node.out_of_service of n1 lost at +10: +100.0 → +700.0
    "#]].assert_eq(&from(script, "+100.0 alarm"));
}

#[test]
fn the_advice_to_power_off_is_not_held_back() {
    let more = [
        "
        +85 agent n1 answers
        +86 tick
        +200 agent n1 silent
        +205 agent n1 silent
        +210 agent n1 silent
        +211 tick
        +300 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service
        +301 tick
        +310 gone db-0
        +310.1 pod db-0 StatefulSet/db pending claim=data-db-0 again=1
        +310.2 pod db-0 StatefulSet/db pending claim=data-db-0 node=n2 again=1
        +314 pod db-0 StatefulSet/db claim=data-db-0 node=n2 again=1
        +320 agent n1 answers
        ",
        &ticks(321..900, 10),
    ]
    .concat();
    expect![[r#"
        +320.0 alarm about the node of n1
              fenced-by-taint: node `n1` has not been ready for 310 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs; 1 pod on it could not be terminated; the taint out-of-service is set, and the objects of all of these pods are gone
              remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +320.0 alarm about db-0 of n1
              fenced-by-taint: pod `db-0` was deleted without the kubelet, and may be replaced: its node `n1` has not been ready for 310 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs
              remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +371.0 alarm about db-0 of n1
              stuck-by-volume: the replacement of pod `db-0` has waited 61 s for volume `pv-0`, which is attached to the pod's node `n1`; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs
              remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
    "#]].assert_eq(&from(&[LOST, &more].concat(), "+320.0 alarm"));
}

#[test]
fn a_forced_deletion_on_a_machine_that_runs_is_an_alarm() {
    let answers = LOST.replace("+18 agent n1 silent", "+18 agent n1 answers");
    let forced = [
        "
        +95 agent n1 answers
        +100 gone db-0
        +100.1 pod db-0 StatefulSet/db pending claim=data-db-0 again=1
        +100.2 pod db-0 StatefulSet/db pending claim=data-db-0 node=n2 again=1
        +101 tick
        +118 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1
        ",
        &ticks(120..600, 10),
    ]
    .concat();
    expect![[r#"
        +100.0 pod db-0 lost: +10.0 → +100.0, requested +30.0
              stuck by node: +30.0 → +100.0
              unreachable: the pod's node `n1` was not ready, but ran; the pod's object was deleted 70 s after the deletion request, without the kubelet: the pod's containers may still have run
              remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once
        +100.0 alarm about the node of n1
              unreachable: node `n1` has not been ready for 90 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs; 1 pod on it could not be terminated
              remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once
        +100.0 alarm about db-0 of n1
              unreachable: pod `db-0` was deleted without the kubelet, and may be replaced: its node `n1` has not been ready for 90 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs
              remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once
        +100.0 node n1 lost at +10: +10.0 → +100.0 by pods-gone, agent answered, stuck 1, gone 1; pods db-0
              node.not_ready +10.0
              node.unknown +10.0
              node.evicting +25.0
              pods.first_stuck +40.0
              pods.last_gone +100.0
              unreachable: node `n1` has not been ready for 90 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs; 1 pod on it could not be terminated
              remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once
        +118.0 db-0 replaces db-0 (name-in-stateful-set): created +100.1, scheduled +100.2, ready +118.0, of a lost node
    "#]].assert_eq(&from(&[&answers, forced.as_str()].concat(), "+100.0"));
    expect![[r#"
        n1 not ready unreachable: stuck 0, taint false, volumes 1, 1 may run twice
        node 0 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&[&answers, forced.as_str()].concat(), 600));
}

#[test]
fn a_node_whose_kubelet_speaks_again_is_not_lost() {
    let speaks = [
        "
        +100 node n1 false since=+100 reason=KubeletNotReady evicting
        +101 tick
    ",
        &ticks(110..400, 10),
    ]
    .concat();
    let script = [LOST, &speaks].concat();
    expect![[r#"
        +100.0 alarm about the node of n1
              unreachable: node `n1` has not been ready for 90 s (KubeletNotReady); its kubelet itself reports this, and its agent does not answer; 1 pod on it could not be terminated
              remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +100.0 alarm about db-0 of n1
              unreachable: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 90 s; its kubelet itself reports this, and its agent does not answer
              remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
    "#]].assert_eq(&from(&script, "+100.0 alarm"));
    expect![[r#"
        n1 not ready unreachable: stuck 1, taint false, volumes 0
        node 1 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&script, 400));
}

#[test]
fn a_taint_that_a_loss_left_behind_is_of_that_loss() {
    let again = "
        +290 node n1 false since=+290 boot=boot-2 reason=KubeletNotReady evicting out-of-service
        +300 node n1 true since=+300 boot=boot-2 out-of-service
        +301 tick
        +340 node n1 false since=+340 boot=boot-2 reason=KubeletNotReady out-of-service
        +341 tick
        +341.1 agent n1 answers
        +342 tick
        +350 node n1 true since=+350 boot=boot-2 out-of-service
        +351 tick
        +400 node n1 true since=+350 boot=boot-2
        +401 tick
    ";
    expect![[r#"
        +300.0 node.down of n1 lost at +10: +10.0 → +300.0 rebooted
        +350.0 node n1 lost at +340: +340.0 → +350.0 by back, agent answered, stuck 0, gone 0; pods 
              taint.out_of_service +100.0
              node.not_ready +340.0
              node.ready +350.0
              fenced-by-taint: node `n1` was not ready for 10.0 s (KubeletNotReady); its kubelet itself reported this, and its agent answered: the machine ran; the taint out-of-service was set
              remedy: when `n1` is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +350.0 node.down of n1 lost at +340: +340.0 → +350.0 same-boot
        +400.0 node.out_of_service of n1 lost at +10: +100.0 → +400.0
    "#]].assert_eq(&from(&[LOST, FENCED, again].concat(), "+300.0"));
}

#[test]
fn a_pod_that_its_runtime_held_before_is_not_held_by_the_node() {
    let script = "
        +0 version 1.36
        +0 node n1 true
        +0 node n2 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 pod db-0 StatefulSet/db node=n1 deleting grace=30
        +20 tick
        +7200 node n1 false since=+7200 reason=KubeletNotReady
        +7201 tick
        +7203 tick
        +7208 node n1 true since=+7208
        +7210 gone db-0
        +7211 tick
    ";
    expect![[""]].assert_eq(&headlines(script, &["alarm", "pod", "node"]));
}

#[test]
fn evictions_that_the_controller_stops_again_are_held_back() {
    let script = [
        "
        +0 version 1.36
        +0 node n1 true
        +0 node n2 true
        +0 node n3 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +0 pod db-1 StatefulSet/db node=n2 ready
        +10 node n1 unknown
        +11 tick
        +15 node n1 unknown since=+10 evicting
        +20 node n2 unknown
        +20 node n3 unknown
        +25 node n1 unknown since=+10
        ",
        &ticks(26..200, 10),
    ]
    .concat();
    expect![[r#"
        +86.0 alarm about the node of n1
        +86.0 alarm about the node of n2
    "#]]
    .assert_eq(&headlines(&script, &["alarm"]));
    expect![[r#"
        n1 not ready lost: stuck 0, taint false, volumes 0, evictions held
        n2 not ready lost: stuck 0, taint false, volumes 0, evictions held
        n3 not ready lost: stuck 0, taint false, volumes 0
        node 0 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&script, 200));
}

#[test]
fn a_wait_for_a_volume_outlasts_a_change_of_the_observer() {
    let script = [TAKEOVER, &ticks(155..800, 10)].concat();
    expect![[r#"
        +150.0 alarm about the node of n1
        +215.0 alarm about a of n1
    "#]]
    .assert_eq(&headlines(&script, &["alarm"]));
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 1
        node 1 finalizer 0 volume 1 runtime 0
    "#]]
    .assert_eq(&state(&script, 800));
}

#[test]
fn a_pod_for_which_there_is_no_room_keeps_the_loss_open() {
    let limits = crate::observe::ObserverLimits {
        lost_pods: 1,
        ..super::LIMITS
    };
    let mut text = String::new();
    let script = [
        LOST.replace("+0 pod log-a", "+0 pod web-0 StatefulSet/web node=n1 ready\n+0 pod log-a")
            .as_str(),
        FENCED,
        &ticks(120..200, 10),
    ]
    .concat();
    super::play_on(&mut crate::observe::Observer::new(limits), &script, &mut text);
    let roots: String = text
        .lines()
        .filter(|line| line.contains("node n1 lost") || line.contains("ropped"))
        .map(|line| format!("{line}\n"))
        .collect();
    expect![[r#"
        +10.0 dropped 1 lost_pod_cap
        +10.0 dropped 1 lost_pod_cap
        +10.0 dropped 1 lost_pod_cap
    "#]]
    .assert_eq(&roots);
}

/// An observer that begins while a Deployment's new pod waits for the volume of the old one.
const TAKEOVER: &str = "
    +0 list namespaces
    +150 list pods
    +150 pod a ReplicaSet/web node=n1 ready claim=data deleted=+30 grace=5 by-taint
    +150 pod b ReplicaSet/web node=n2 pending claim=data
    +150 listed pods
    +150 list endpointslices
    +150 listed endpointslices
    +150 listed namespaces
    +150 list nodes
    +150 node n1 unknown since=+10 evicting
    +150 node n2 true
    +150 listed nodes
    +150 list volumeattachments
    +150 attachment va-0 pv-0 n1 attached
    +150 listed volumeattachments
    +151 tick
    +151.2 claim pv-0 data
";

/// What is played from the first output on that begins so; questions apart.
fn from(script: &str, first: &str) -> String {
    let text: String = play(script)
        .lines()
        .filter(|line| !line.contains(" ask "))
        .map(|line| format!("{line}\n"))
        .collect();
    let at = text.find(first).unwrap_or_else(|| panic!("no {first} in {text}"));
    text[at..].to_owned()
}
