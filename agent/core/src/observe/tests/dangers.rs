//! Lost nodes: advice that would do harm, and what an observer that takes over must not repeat.

use expect_test::expect;

use super::nodes::{FENCED, LOST, check_takeover, state};
use super::{headlines, play, ticks};

/// The remedies of the alarms, each with what the alarm is about.
fn advice(script: &str) -> String {
    let mut text = String::new();
    let play = play(script);
    let mut lines = play.lines();
    while let Some(line) = lines.next() {
        if line.contains(" alarm about ") {
            let remedy = lines.nth(1).expect("a remedy").trim();
            text += &format!("{line}\n  {remedy}\n");
        }
    }
    text
}

/// The agent answers all the time.
fn answers() -> String {
    LOST.replace("+18 agent n1 silent", "+18 agent n1 answers")
}

#[test]
fn the_taint_is_not_to_be_removed_once_a_pod_is_gone() {
    let script = [
        answers().as_str(),
        "
        +95 agent n1 answers
        +100 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service
        +101 tick
        +115 gone db-0
        +115.1 pod db-0 StatefulSet/db pending claim=data-db-0 node=n2 again=1
        +116 tick
        ",
        &ticks(120..300, 10),
    ]
    .concat();
    expect![[r#"
        +40.0 alarm about the node of n1
          remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +40.0 alarm about db-0 of n1
          remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +100.0 alarm about the node of n1
          remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once, or remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +100.0 alarm about db-0 of n1
          remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once, or remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +115.0 alarm about the node of n1
          remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +115.0 alarm about db-0 of n1
          remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +180.0 alarm about db-0 of n1
          remedy: `n1` runs, and its pod `shop/db-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
    "#]].assert_eq(&advice(&script));
}

#[test]
fn another_machine_under_the_nodes_name_ends_nothing() {
    let named = LOST
        .replace("+0 node n1 true", "+0 node n1 true machine=m1")
        .replace(" unknown ", " unknown machine=m1 ");
    let fenced = FENCED.replace(" unknown ", " unknown machine=m1 ");
    for machine in ["m1", "m2"] {
        let back = format!("+300 node n1 true boot=boot-2 machine={machine}\n+301 tick\n");
        let script = [named.as_str(), &fenced, &back].concat();
        let down = headlines(&script, &["node.down"]);
        let expected = if machine == "m1" { "rebooted" } else { "other-machine" };
        assert!(down.trim_end().ends_with(expected), "{down}");
    }
    // Not ready yet: whether the lost machine runs is as unknown as before.
    let registers = "
        +60 node n1 false since=+60 boot=boot-2 machine=m2 reason=KubeletNotReady evicting
        +61 tick
        +80 node n1 false since=+60 boot=boot-2 machine=m2 reason=KubeletNotReady evicting out-of-service
        +81 tick
        +100 gone db-0
        +101 tick
    ";
    let text = play(&[named.as_str(), registers].concat());
    for wrong in ["has booted again", "`n1` runs", "unreachable"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
}

/// A tenant deletes a pod of its own by force, on a node with others' pods.
#[test]
fn a_pod_that_can_do_no_harm_twice_is_no_reason_to_power_off() {
    for (words, expected) in [
        ("ReplicaSet/web", expect![[""]]),
        (
            "StatefulSet/web",
            expect![[r#"
            +100.0 alarm about the node of n1
              remedy: `n1` runs, and its pod `shop/web-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once
            +100.0 alarm about db-0 of n1
              remedy: `n1` runs, and its pod `shop/web-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once
        "#]],
        ),
        (
            "ReplicaSet/web claim=data-web",
            expect![[r#"
            +100.0 alarm about the node of n1
              remedy: `n1` runs, and its pod `shop/web-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once
            +100.0 alarm about db-0 of n1
              remedy: `n1` runs, and its pod `shop/web-0` was deleted without the kubelet: two pods may write the same volume. Power it off at once
        "#]],
        ),
    ] {
        let (owner, claim) = words.split_once(' ').unwrap_or((words, ""));
        let script = [
            answers()
                .replace(
                    "+0 pod db-1",
                    &format!("+0 pod web-0 {owner} node=n1 ready {claim}\n+0 pod db-1"),
                )
                .as_str(),
            "
            +95 agent n1 answers
            +100 gone web-0
            +101 tick
            ",
            &ticks(110..300, 10),
        ]
        .concat();
        let all = advice(&script);
        let after: String = all
            .lines()
            .skip_while(|line| !line.starts_with("+10"))
            .map(|line| format!("{line}\n"))
            .collect();
        expected.assert_eq(&after);
    }
}

#[test]
fn a_node_object_that_is_deleted_while_the_machine_runs_is_an_alarm() {
    let deleted = [
        answers().as_str(),
        "
        +60 no-node n1
        +61 tick
        +70 gone db-0
        +71 tick
        ",
    ]
    .concat();
    expect![[r#"
        +40.0 alarm about the node of n1
          remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +40.0 alarm about db-0 of n1
          remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +60.0 alarm about the node of n1
          remedy: `n1` ran when its Node object was deleted, so the controller deletes its pods without the kubelet: two pods may write the same volume. Power it off at once
        +60.0 alarm about db-0 of n1
          remedy: `n1` ran when its Node object was deleted, so the controller deletes its pods without the kubelet: two pods may write the same volume. Power it off at once
    "#]].assert_eq(&advice(&deleted));
    expect![[r#"
        n1 not ready unreachable: stuck 0, taint false, volumes 1, 1 may run twice
        node 0 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&deleted, 200));
    // Silent, and a machine that is being shut down: its provider deletes the object.
    let silent = [LOST, "+60 no-node n1\n+61 tick\n"].concat();
    assert!(!advice(&silent).contains("+60"), "{}", advice(&silent));
    let shut_down = "
        +0 version 1.36
        +0 node n1 true
        +0 pod db-0 StatefulSet/db node=n1 ready claim=data-db-0
        +10 node n1 false reason=KubeletNotReady shutting-down
        +11 tick
        +20 no-node n1
        +21 tick
    ";
    expect![[""]].assert_eq(&advice(shut_down));
}

#[test]
fn nodes_that_fall_silent_later_change_the_advice() {
    let more = [
        LOST.replace("+0 node n2 true", "+0 node n2 true\n+0 node n3 true").as_str(),
        "
        +90 node n2 unknown reason=NodeStatusUnknown
        +90 node n3 unknown reason=NodeStatusUnknown
        +91 tick
        ",
    ]
    .concat();
    expect![[r#"
        +40.0 alarm about the node of n1
          remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +40.0 alarm about db-0 of n1
          remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +91.0 alarm about the node of n1
          remedy: find out first why 3 of 3 nodes fell silent within minutes of each other: suspect the network and the control plane before the machines, which may run. Only for a machine that is certainly powered off: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +91.0 alarm about db-0 of n1
          remedy: find out first why 3 of 3 nodes fell silent within minutes of each other: suspect the network and the control plane before the machines, which may run. Only for a machine that is certainly powered off: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
    "#]].assert_eq(&advice(&more));
}

#[test]
fn where_the_taint_alone_releases_nothing_the_next_command_is_said() {
    let fenced = "
        +100 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service
        +101 tick
        +105 pod db-2 StatefulSet/db node=n1 ready deleting grace=5 by-taint
        +120 tick
    ";
    for version in ["1.25", "1.28"] {
        let script = [LOST, fenced]
            .concat()
            .replace("version 1.36", &format!("version {version}"))
            .replace("+0 pod db-1", "+0 pod db-2 StatefulSet/db node=n1 ready\n+0 pod db-1");
        let all = advice(&script);
        let (_, after) = all.split_once("alarm about db-2").expect("an alarm");
        let says = after
            .contains("the taint releases nothing: if the machine is off and the pods stay Terminating: kubectl delete pods");
        assert_eq!(says, version == "1.25", "{after}");
    }
}

/// A tenant's finalizer is its own matter.
#[test]
fn a_finalizer_does_not_hold_the_nodes_root_back() {
    let with_finalizer = LOST.replace("+0 pod db-1", "+0 pod x-0 - node=n1 ready finalizer=x/hold\n+0 pod db-1");
    let more = [
        "
        +30 pod x-0 - node=n1 ready finalizer=x/hold deleting grace=5 by-taint
        +100 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service
        +110 gone db-0
        +111 pod x-0 - node=n1 finalizer=x/hold deleted=+30 grace=0 failed
        ",
        &ticks(112..200, 10),
    ]
    .concat();
    expect![[r#"
        +111.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent silent, stuck 2, gone 1; pods db-0 x-0
    "#]]
    .assert_eq(&headlines(&[with_finalizer.as_str(), &more].concat(), &["node n1"]));
    // Nor does it keep a deleted node for ever.
    let deleted = [with_finalizer.as_str(), &more, "+300 no-node n1\n+301 tick\n"].concat();
    expect![[r#"
        n1 not ready lost: stuck 0, taint false, volumes 1
        node 0 finalizer 1 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&deleted, 400));
}

/// What the second observer sees of the loss.
const LISTED: &str = "
    +0 list namespaces
    +200 list pods
    +200 list endpointslices
    +200 listed namespaces
    +200 list nodes
    +200 list volumeattachments
    +200 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service
    +200 node n2 true
    +200 listed nodes
    +200 listed endpointslices
    +200 listed volumeattachments
";

#[test]
fn a_node_that_is_back_before_the_pods_are_listed_has_no_second_root() {
    let back = "
        +201 node n1 true since=+201 boot=boot-2
        +202 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1
        +202 listed pods
        +203 tick
        +204 tick
    ";
    let ticks = ticks(120..180, 10);
    check_takeover(
        &[LOST, FENCED, &ticks].concat(),
        &[LISTED, back].concat(),
        expect![[r#"
        first observer
        +10.0 ask renewal n1
        +10.0 ask agent n1
        +10.0 ask claim pv-0
        +16.0 ask agent n1
        +21.0 ask agent n1
        +25.0 node.not_ready of n1 lost at +10: +10.0 → +25.0
        +30.0 ask agent n1
        +40.0 alarm about the node of n1
              lost: node `n1` has not been ready for 30.0 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent does not answer; 1 pod on it could not be terminated
              remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +40.0 alarm about db-0 of n1
              lost: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 30.0 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent does not answer
              remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
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
        +112.0 volume pv-0 of db-0 (data-db-0): +110.0 → +112.0, requested +111.0
        +118.0 db-0 replaces db-0 (name-in-stateful-set): created +110.1, scheduled +110.2, attached +113.0, ready +118.0, of a lost node
        second observer
        +201.0 node.out_of_service of n1 lost at +10: +200.0 (gap 190.0) → +201.0
        +202.0 node.down of n1 lost at +10: +10.0 → +201.0 rebooted
    "#]],
    );
}

/// Ready=False becomes Unknown: another observer sees the second transition only.
#[test]
fn a_loss_lasts_from_the_transition_that_another_observer_sees() {
    let first = [
        "
        +0 version 1.36
        +0 node n1 true
        +0 pod log-a DaemonSet/log node=n1 ready outlasts
        +10 node n1 false reason=KubeletNotReady
        +15 node n1 false since=+10 reason=KubeletNotReady evicting
        +150 node n1 unknown since=+150 evicting
        ",
        &ticks(151..190, 1),
    ]
    .concat();
    let second = [
        &LISTED.replace(
            "unknown since=+10 reason=NodeStatusUnknown evicting out-of-service",
            "unknown since=+150 evicting",
        ),
        "
        +200 pod log-a DaemonSet/log node=n1 ready outlasts
        +200 listed pods
        ",
        ticks(201..260, 1).as_str(),
    ]
    .concat();
    check_takeover(
        &first,
        &second,
        expect![[r#"
        first observer
        +150.0 ask renewal n1
        second observer
        +200.0 ask renewal n1
        +210.0 node n1 lost at +150: +150.0 → +210.0 by no-pods, agent unknown, stuck 0, gone 0, unwatched 50.0; pods 
              node.not_ready +150.0
              node.unknown +150.0
              lost: node `n1` has not been ready for 60 s; its kubelet is silent, and no agent on it could be asked
              remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
    "#]],
    );
}

/// The replacement's span is below the root that the observer sends.
#[test]
fn a_pod_whose_replacement_is_shown_has_its_root() {
    let script = ["
        +0 version 1.36
        +0 node n1 true
        +0 node n2 true
        +0 pod web-0 ReplicaSet/web node=n1 ready
        +0 pod agent-a DaemonSet/agent node=n1 ready outlasts agent
        +10 node n1 unknown
        +11 tick
        +12 agent n1 answers
        +25 node n1 unknown since=+10 evicting
        +30 pod web-0 ReplicaSet/web node=n1 ready deleting grace=30 by-taint
        +31 pod web-1 ReplicaSet/web node=n2 pending
        +33 pod web-1 ReplicaSet/web node=n2 ready
        +34 tick
        +40 pod web-0 ReplicaSet/web node=n1 deleted=+30 grace=30 by-taint succeeded
        +40.2 gone web-0
        +41 node n1 true since=+41
        +42 tick
        "]
    .concat();
    expect![[r#"
        +33.0 web-1 replaces web-0 (next-of-replica-set): created +31.0, scheduled +31.0, ready +33.0, of a lost node
        +40.2 pod web-0 lost: +10.0 → +40.2, requested +30.0
        +41.0 node n1 lost at +10: +10.0 → +41.0 by back, agent answered, stuck 0, gone 0; pods web-0
    "#]]
    .assert_eq(&headlines(&script, &["web-1 replaces", "pod web-0", "node n1"]));
}

#[test]
fn of_a_pod_that_had_no_room_nothing_is_known() {
    // By its last status `db-9` has not run, and pods that anybody can make up have its room.
    let made_up: String = (0..4)
        .map(|n| format!("+0 pod x{n} ReplicaSet/x node=n2 pending\n"))
        .collect();
    let made_up =
        format!("+0 pod db-9 StatefulSet/dbx node=n1 pending claim=d\n{made_up}+5 node n2 unknown\n+6 tick\n+10 node n1");
    let lost = LOST.replace("+10 node n1", &made_up);
    let booted = format!("{lost}+60 node n1 false boot=boot-2 evicting\n+62 tick\n");
    expect![[r#"
        +40.0 alarm about the node of n1
          remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +40.0 alarm about db-0 of n1
          remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +60.0 alarm about the node of n1
          remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +60.0 alarm about db-0 of n1
          remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
    "#]].assert_eq(&advice(&booted));
    let fenced = "+100 node n1 unknown since=+10 evicting out-of-service\n+101 tick\n";
    let fenced = [&lost.replace("+18 agent n1 silent", "+18 agent n1 answers"), fenced].concat();
    expect![[r#"
        +40.0 alarm about the node of n1
          remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +40.0 alarm about db-0 of n1
          remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        +100.0 alarm about the node of n1
          remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +100.0 alarm about db-0 of n1
          remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +100.0 alarm about the node of n2
          remedy: check the console or the provider of `n2`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
    "#]].assert_eq(&advice(&fenced));
    expect![[r#"
        +10.0 dropped 1 lost_pod_cap
        +110.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent silent, stuck 1, gone 1, without some pods; pods db-0
        +110.2 dropped 1 lost_pod_cap
    "#]]
    .assert_eq(&headlines(&[lost.as_str(), FENCED].concat(), &["dropped", "node n1"]));
}
