//! Lost nodes: the rules, and the cases that must not be confused with them.

use std::fmt::Write as _;
use std::time::Duration;

use expect_test::expect;

use super::{LIMITS, check, moment, play_on};
use crate::observe::loss_verdict::LossVerdict;
use crate::observe::tests::script::ZERO;
use crate::observe::{Holder, Observer, Output};
use crate::time::Boot;

/// The outputs of a loss.
pub(super) fn show(output: &Output) -> String {
    match output {
        Output::NodeLost(lost) => {
            let mut text = format!(
                "node {} lost at {}: {} → {} by {}, agent {}, stuck {}, gone {}{}",
                lost.key.node.name,
                seconds(Boot(lost.key.transition.0)),
                moment(lost.begin),
                moment(lost.end),
                lost.ended_by.name(),
                lost.agent.name(),
                lost.pods.stuck,
                lost.pods.gone,
                show_unwatched(lost.unwatched),
            );
            text += if lost.pods.has_dropped { ", without some pods" } else { "" };
            let pods: Vec<&str> = lost.pods.links.iter().map(|pod| pod.name.as_str()).collect();
            let _ = write!(text, "; pods {}", pods.join(" "));
            for (step, at) in &lost.steps {
                let _ = write!(text, "\n      {} {}", step.name(), moment(*at));
            }
            text + &verdict(&lost.verdict)
        }
        Output::NodePhase(phase) => {
            let boot = phase.boot.as_ref().map_or("", |boot| boot.how.name());
            let (begin, end) = (moment(phase.begin), moment(phase.end));
            let of = seconds(Boot(phase.key.transition.0));
            format!(
                "{} of {} lost at {of}: {begin} → {end} {boot}",
                phase.kind.name(),
                phase.key.node.name
            )
            .trim_end()
            .to_owned()
        }
        Output::ShuttingDown(down) => {
            let mut text = format!(
                "shutdown {} of {}, boot {}, of {}: {} → {}, {}: {}",
                down.key.ordinal,
                down.node.name,
                down.key.boot_id,
                seconds(Boot(down.transition.0)),
                moment(down.begin),
                moment(down.end),
                down.reason,
                down.message
            );
            for of in &down.services {
                let until = of.until.map_or(String::new(), |until| format!(", until {}", moment(until)));
                let _ = write!(text, "\n      ready: {of}{until}");
            }
            text += if down.has_dropped { "\n      and more" } else { "" };
            text + &show_unwatched(down.unwatched)
        }
        Output::PodLost(lost) => {
            let end = if lost.is_gone { "" } else { ", still terminating" };
            let mut text = format!(
                "pod {} lost: {} → {}{end}",
                lost.pod.name,
                moment(lost.begin),
                moment(lost.end)
            );
            if let Some(requested) = lost.requested {
                let _ = write!(text, ", requested {}", moment(requested));
            }
            text += &show_unwatched(lost.unwatched);
            for stuck in &lost.stuck {
                let by = [stuck.by.name(), &stuck.names.join(",")].join(" ");
                let _ = write!(
                    text,
                    "\n      stuck by {}: {} → {}",
                    by.trim(),
                    moment(stuck.begin),
                    moment(stuck.end)
                );
            }
            text + &verdict(&lost.verdict)
        }
        Output::VolumeDetach(detach) => {
            let requested = detach
                .requested
                .map_or(String::new(), |at| format!(", requested {}", moment(at)));
            let text = format!(
                "volume {} of {} ({}): {} → {}{requested}",
                detach.volume,
                detach.pod.name,
                detach.claim.name,
                moment(detach.begin),
                moment(detach.end)
            );
            text + &detach.verdict.as_ref().map_or(String::new(), verdict)
        }
        Output::DuplicateRun(duplicate) => {
            let (begin, end) = (moment(duplicate.begin), moment(duplicate.end));
            format!("{} twice: {begin} → {end}", duplicate.pod.name) + &verdict(&duplicate.verdict)
        }
        Output::LossAlarm(alarm) => {
            let about = alarm.pod.as_ref().map_or("the node", |pod| pod.name.as_str());
            format!("alarm about {about} of {}", alarm.node.name) + &verdict(&alarm.verdict)
        }
        other => panic!("no output of a loss: {other:?}"),
    }
}

fn show_unwatched(unwatched: Option<Duration>) -> String {
    unwatched.map_or(String::new(), |unwatched| {
        format!(", unwatched {:.1}", unwatched.as_secs_f64())
    })
}

fn verdict(verdict: &LossVerdict) -> String {
    format!(
        "\n      {}: {}\n      remedy: {}",
        verdict.row.headline, verdict.sentence, verdict.remedy
    )
}

fn seconds(at: Boot) -> String {
    format!("{:+.0}", (at.0 as f64 - ZERO.0 as f64) / 1e9)
}

/// The same script in two: a second observer takes over in between, with a list of what is there then.
pub(super) fn check_takeover(before: &str, after: &str, expected: expect_test::Expect) {
    let mut text = "first observer\n".to_owned();
    play_on(&mut Observer::new(LIMITS), before, &mut text);
    text += "second observer\n";
    play_on(&mut Observer::new(LIMITS), after, &mut text);
    expected.assert_eq(&text);
}

/// The script, and what the observer reports when it stops in order at that time.
pub(super) fn check_stop(script: &str, at: u64, expected: expect_test::Expect) {
    let mut observer = Observer::new(LIMITS);
    play_on(&mut observer, script, &mut String::new());
    let mut text = String::new();
    for output in observer.stop(ZERO.plus(Duration::from_secs(at))) {
        let _ = writeln!(text, "{}", super::show(&output));
    }
    expected.assert_eq(&text);
}

pub(super) fn state(script: &str, at: u64) -> String {
    let mut observer = Observer::new(LIMITS);
    play_on(&mut observer, script, &mut String::new());
    let state = observer.losses(ZERO.plus(Duration::from_secs(at)));
    let mut text = String::new();
    for node in state.nodes {
        let _ = writeln!(
            text,
            "{} {} {}: stuck {}, taint {}, volumes {}{}",
            node.name,
            if node.is_ready { "ready" } else { "not ready" },
            node.verdict,
            node.stuck,
            node.out_of_service,
            node.volumes,
            match (node.evictions_held, node.run_twice) {
                (true, _) => ", evictions held".to_owned(),
                (false, 0) => String::new(),
                (false, pods) => format!(", {pods} may run twice"),
            }
        );
    }
    for (holder, count) in Holder::ALL.into_iter().zip(state.stuck) {
        let _ = write!(text, "{} {count} ", holder.name());
    }
    text.trim_end().to_owned() + "\n"
}

/// A StatefulSet over two nodes, with a volume each, up to the taint's eviction.
pub(super) const LOST: &str = "
    +0 version 1.36
    +0 node n1 true
    +0 node n2 true
    +0 pod db-0 StatefulSet/db node=n1 ready claim=data-db-0
    +0 pod db-1 StatefulSet/db node=n2 ready claim=data-db-1
    +0 pod log-a DaemonSet/log node=n1 ready outlasts
    +0 pod agent-a DaemonSet/agent node=n1 ready outlasts agent
    +0 attachment va-0 pv-0 n1 attached
    +0 attachment va-1 pv-1 n2 attached
    +10 node n1 unknown reason=NodeStatusUnknown
    +11 tick
    +11.1 renewal n1 +-31
    +11.2 claim pv-0 data-db-0
    +13 agent n1 silent
    +16 tick
    +18 agent n1 silent
    +21 tick
    +23 agent n1 silent
    +25 node n1 unknown since=+10 reason=NodeStatusUnknown evicting
    +30 pod db-0 StatefulSet/db node=n1 ready claim=data-db-0 deleting grace=5 by-taint
    +40 tick
    +41 tick
";

/// The rest: taint, force deletion, replacement, and the volume.
pub(super) const FENCED: &str = "
    +100 node n1 unknown since=+10 reason=NodeStatusUnknown evicting out-of-service
    +110 gone db-0
    +110.1 pod db-0 StatefulSet/db pending claim=data-db-0 again=1
    +110.2 pod db-0 StatefulSet/db pending claim=data-db-0 node=n2 again=1
    +111 attachment va-0 pv-0 n1 attached detaching
    +112 no-attachment va-0
    +113 attachment va-2 pv-0 n2 attached
    +118 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1
    +119 tick
";

#[test]
fn the_whole_story_of_a_node_that_is_fenced_and_comes_back() {
    let back = "
        +300 node n1 true boot=boot-2 out-of-service
        +301 tick
        +320 node n1 true since=+300 boot=boot-2
        +330 tick
    ";
    check(
        &[LOST, FENCED, back].concat(),
        expect![[r#"
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
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 rebooted
            +320.0 node.out_of_service of n1 lost at +10: +100.0 → +320.0
        "#]],
    );
}

#[test]
fn a_pause_is_a_duplicate_run() {
    let back = "
        +300 node n1 true out-of-service
        +320 node n1 true since=+300
    ";
    check(
        &[LOST, FENCED, back].concat().replace("+112 no-attachment va-0\n", ""),
        expect![[r#"
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
            +118.0 db-0 replaces db-0 (name-in-stateful-set): created +110.1, scheduled +110.2, attached +113.0, ready +118.0, of a lost node
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 same-boot
            +300.0 db-0 twice: +118.0 → +300.0
                  duplicate-run: node `n1` came back with the same boot: the node had been paused or cut off. The old pod `db-0` may have run there until the node was ready again, and longer, until its kubelet stopped it; its replacement `db-0` on `n2` ran from 182 s before the node was ready again: both pods may have run for at least 182 s
                  remedy: check what both pods wrote in that time (at least 182 s); in future, power a lost node off before its pods are replaced
            +320.0 node.out_of_service of n1 lost at +10: +100.0 → +320.0
        "#]],
    );
}

#[test]
fn without_the_taint_the_pod_hangs_until_the_node_returns() {
    let back = "
        +300 node n1 true boot=boot-2
        +301 pod db-0 StatefulSet/db node=n1 ready claim=data-db-0 deleted=+30 grace=5 by-taint
        +303 gone db-0
        +303.1 pod db-0 StatefulSet/db pending claim=data-db-0 node=n1 again=1
        +310 pod db-0 StatefulSet/db ready claim=data-db-0 node=n1 again=1
        +320 tick
    ";
    check(
        &[LOST, back].concat(),
        expect![[r#"
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
            +300.0 node n1 lost at +10: +10.0 → +300.0 by back, agent silent, stuck 1, gone 0; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +40.0
                  node.ready +300.0
                  lost: node `n1` was not ready for 290 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent did not answer; 1 pod on it could not be terminated
                  remedy: find out why `n1` stopped: journalctl -b -1 -u kubelet, its console, and its provider's events. No taint is needed any more
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 rebooted
            +303.0 pod db-0 lost: +10.0 → +303.0, requested +30.0
                  stuck by node: +30.0 → +300.0
                  stuck by runtime: +300.0 → +303.0
                  lost: the pod's node `n1` was not ready for 290 s, and the pod was terminated only after the node's return, 273 s after the deletion request
                  remedy: find out why `n1` stopped: journalctl -b -1 -u kubelet, its console, and its provider's events. No taint is needed any more
            +310.0 db-0 replaces db-0 (name-in-stateful-set): created +303.1, scheduled +303.1, ready +310.0, of a lost node
        "#]],
    );
}

/// Its containers have terminated: the kubelet hangs in an unmount.
#[test]
fn a_kubelet_that_does_not_finish_unmounting_holds_the_pod_by_its_volumes() {
    let back = "
        +300 node n1 true boot=boot-2
        +301 pod db-0 StatefulSet/db node=n1 ready claim=data-db-0 deleted=+30 grace=5 by-taint
        +302 pod db-0 StatefulSet/db node=n1 claim=data-db-0 deleted=+30 grace=5 by-taint terminated
        +362 gone db-0
    ";
    check(
        &[LOST, back].concat(),
        expect![[r#"
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
        +300.0 node n1 lost at +10: +10.0 → +300.0 by back, agent silent, stuck 1, gone 0; pods db-0
              node.not_ready +10.0
              node.unknown +10.0
              node.evicting +25.0
              pods.first_stuck +40.0
              node.ready +300.0
              lost: node `n1` was not ready for 290 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent did not answer; 1 pod on it could not be terminated
              remedy: find out why `n1` stopped: journalctl -b -1 -u kubelet, its console, and its provider's events. No taint is needed any more
        +300.0 node.down of n1 lost at +10: +10.0 → +300.0 rebooted
        +362.0 pod db-0 lost: +10.0 → +362.0, requested +30.0
              stuck by node: +30.0 → +300.0
              stuck by runtime: +300.0 → +302.0
              stuck by volume data-db-0: +302.0 → +362.0
              lost: the pod's node `n1` was not ready for 290 s, and the pod was terminated only after the node's return, 332 s after the deletion request
              remedy: find out why `n1` stopped: journalctl -b -1 -u kubelet, its console, and its provider's events. No taint is needed any more
    "#]],
    );
}

#[test]
fn an_unmount_that_hangs_on_a_ready_node_is_counted_as_its_volumes() {
    let script = "
        +0 node n1 true
        +0 pod a StatefulSet/a node=n1 ready claim=data-a
        +0 pod b StatefulSet/b node=n1 ready claim=data-b
        +10 pod a StatefulSet/a node=n1 claim=data-a deleting grace=5 terminated
        +10 pod b StatefulSet/b node=n1 ready claim=data-b deleting grace=5
        +100 tick
    ";
    expect!["node 0 finalizer 0 volume 1 runtime 1\n"].assert_eq(&state(script, 100));
}

#[test]
fn a_node_whose_agent_answers_is_unreachable() {
    let script = LOST.replace("+18 agent n1 silent", "+18 agent n1 answers");
    let more = "
        +60 tick
        +81 tick
        +82 agent n1 answers
        +90 node n1 true since=+90
        +91 pod db-0 StatefulSet/db node=n1 ready deleted=+30 grace=5
        +92 gone db-0
    ";
    check(
        &[&script, more].concat(),
        expect![[r#"
            +10.0 ask renewal n1
            +10.0 ask agent n1
            +10.0 ask claim pv-0
            +16.0 ask agent n1
            +21.0 ask agent n1
            +25.0 node.not_ready of n1 lost at +10: +10.0 → +25.0
            +40.0 alarm about the node of n1
                  unreachable: node `n1` has not been ready for 30.0 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs; 1 pod on it could not be terminated
                  remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +40.0 alarm about db-0 of n1
                  unreachable: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 30.0 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs
                  remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +81.0 ask agent n1
            +90.0 node n1 lost at +10: +10.0 → +90.0 by back, agent answered, stuck 1, gone 0; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +40.0
                  node.ready +90.0
                  unreachable: node `n1` was not ready for 80 s (NodeStatusUnknown); its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent answered: the machine ran; 1 pod on it could not be terminated
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +90.0 node.down of n1 lost at +10: +10.0 → +90.0 same-boot
            +92.0 pod db-0 lost: +10.0 → +92.0, requested +30.0
                  stuck by node: +30.0 → +90.0
                  stuck by runtime: +90.0 → +92.0
                  unreachable: the pod's node `n1` was not ready for 80 s, and the pod was terminated only after the node's return, 62 s after the deletion request
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
        "#]],
    );
}

#[test]
fn the_next_command_depends_on_the_version_and_on_the_power() {
    for (version, words, expected) in [
        (
            "1.23",
            "",
            expect![[r#"
                check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl delete pods --all-namespaces --field-selector spec.nodeName=n1 --force --grace-period=0
            "#]],
        ),
        (
            "1.25",
            "",
            expect![[r#"
                check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (alpha in Kubernetes 1.25: without the feature gate NodeOutOfServiceVolumeDetach it only evicts, and the pods stay Terminating; then: kubectl delete pods --all-namespaces --field-selector spec.nodeName=n1 --force --grace-period=0)
            "#]],
        ),
        (
            "1.28",
            "",
            expect![[r#"
                check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            "#]],
        ),
        (
            "1.28",
            " off",
            expect![[r#"
            the provider reported that `n1` is off, and that report stays until the node is ready, also if the machine runs again: ask the provider whether the machine still is off. If so, release its pods and volumes: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
        "#]],
        ),
    ] {
        let script = LOST
            .replace("version 1.36", &format!("version {version}"))
            .replace("evicting", &format!("evicting{words}"));
        let mut text = String::new();
        play_on(&mut Observer::new(LIMITS), &script, &mut text);
        let (_, alarm) = text.split_once("alarm about db-0").expect("an alarm");
        expected.assert_eq(alarm.split_once("remedy: ").expect("a remedy").1);
    }
}

#[test]
fn a_finalizer_keeps_a_pod_that_was_released() {
    let more = "
        +100 node n1 unknown since=+10 evicting out-of-service
        +110 pod db-0 StatefulSet/db node=n1 ready deleted=+30 grace=0 failed finalizer=example.com/hold
        +170 gone db-0
        +180 tick
    ";
    let script = [LOST, more].concat().replace("claim=data-db-0", "finalizer=example.com/hold");
    check(
        &script,
        expect![[r#"
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
            +170.0 pod db-0 lost: +10.0 → +170.0, requested +30.0
                  stuck by node: +30.0 → +110.0
                  stuck by finalizer example.com/hold: +110.0 → +170.0
                  stuck-by-finalizer: the pod's node `n1` was lost; then the finalizer `example.com/hold` kept the pod's object, which was gone 140 s after the deletion request
                  remedy: Find the controller that owns the finalizer, and find out why the controller does not remove the finalizer. Remove the finalizer by hand only if that controller does not exist any more.
            +170.0 node n1 lost at +10: +10.0 → +170.0 by pods-gone, agent silent, stuck 1, gone 1; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +40.0
                  taint.out_of_service +100.0
                  pods.last_gone +170.0
                  fenced-by-taint: node `n1` has not been ready for 160 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent does not answer; 1 pod on it could not be terminated; the taint out-of-service is set, and the objects of all of these pods are gone
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        "#]],
    );
}

#[test]
fn a_replacement_that_waits_for_its_volume_is_stuck_by_it() {
    let waits = FENCED
        .replace("+112 no-attachment va-0\n", "")
        .replace("+113 attachment va-2 pv-0 n2 attached\n", "");
    let waits = waits.replace(
        "    +118 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1\n    +119 tick\n",
        "",
    );
    let more = "
        +400 attachment va-0 pv-0 n1 attached detaching error=timeout
        +470 no-attachment va-0
        +480 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1
    ";
    check(
        &[LOST, &waits, more].concat(),
        expect![[r#"
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
            +400.0 ask agent n1
            +400.0 alarm about db-0 of n1
                  stuck-by-volume: the replacement of pod `db-0` has waited 290 s for volume `pv-0`, which is attached to the pod's node `n1`; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent does not answer; the driver reported: timeout
                  remedy: kubectl describe volumeattachment va-0; then the log of the external-attacher of csi.example.com
            +470.0 volume pv-0 of db-0 (data-db-0): +110.0 → +470.0, requested +111.0
                  stuck-by-volume: the replacement waited 360 s for volume `pv-0`, which was attached to the lost node `n1`; the driver reported: timeout
                  remedy: the volume is detached now; to find the cause, search the log of the external-attacher of csi.example.com for the VolumeAttachment va-0
            +480.0 db-0 replaces db-0 (name-in-stateful-set): created +110.1, scheduled +110.2, ready +480.0, of a lost node
        "#]],
    );
    expect![[r#"
        n1 not ready fenced-by-taint: stuck 0, taint true, volumes 1
        node 0 finalizer 0 volume 1 runtime 0
    "#]]
    .assert_eq(&state(&[LOST, &waits].concat(), 200));
}

/// A name that moves twice: the node that takes the replacement was lost itself, and is back.
#[test]
fn a_replacement_on_a_node_that_is_back_waits_for_its_volume_too() {
    let moves = "
        +42 node n2 unknown reason=NodeStatusUnknown
        +43 tick
        +80 node n2 true since=+80
        +90 tick
    ";
    let waits = FENCED
        .replace("+112 no-attachment va-0\n", "")
        .replace("+113 attachment va-2 pv-0 n2 attached\n", "")
        .replace(
            "    +118 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1\n    +119 tick\n",
            "",
        );
    let mut text = String::new();
    let more = "+400 attachment va-0 pv-0 n1 attached detaching error=timeout\n+470 no-attachment va-0\n";
    play_on(&mut Observer::new(LIMITS), &[LOST, moves, &waits, more].concat(), &mut text);
    let (_, said) = text.split_once("volume pv-0 ").expect("a volume");
    expect![[r#"
        of db-0 (data-db-0): +110.0 → +470.0, requested +111.0
              stuck-by-volume: the replacement waited 360 s for volume `pv-0`, which was attached to the lost node `n1`; the driver reported: timeout
              remedy: the volume is detached now; to find the cause, search the log of the external-attacher of csi.example.com for the VolumeAttachment va-0
    "#]].assert_eq(said);
    expect![[r#"
        n1 not ready fenced-by-taint: stuck 0, taint true, volumes 1
        node 0 finalizer 0 volume 1 runtime 0
    "#]]
    .assert_eq(&state(&[LOST, moves, &waits].concat(), 200));
}

#[test]
fn the_state_counts_what_is_held_for_long() {
    expect![[r#"
        n1 not ready lost: stuck 0, taint false, volumes 0
        node 0 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(LOST, 60));
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 0
        node 1 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(LOST, 120));
    let left = "+300 node n1 true since=+300 out-of-service";
    expect![[r#"
        n1 ready taint-left-behind: stuck 0, taint true, volumes 0
        node 0 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&[LOST, FENCED, left].concat(), 400));
    // A healthy node, a finalizer, and a runtime that does not finish.
    let ready = "
        +0 node n1 true
        +1 pod a - node=n1 ready deleting grace=0 finalizer=x
        +1 pod b - node=n1 ready deleting
        +1 pod c - node=n1 ready deleting ignored
    ";
    expect![[r#"
        node 0 finalizer 1 volume 0 runtime 1
    "#]]
    .assert_eq(&state(ready, 300));
}

#[test]
fn a_taint_that_is_left_behind_is_said_once() {
    let more = "
        +300 node n1 true since=+300 boot=boot-2 out-of-service
        +340 node n1 true since=+300 boot=boot-2 out-of-service
        +361 tick
        +430 tick
        +500 node n1 true since=+300 boot=boot-2
        +501 tick
    ";
    let mut text = String::new();
    play_on(&mut Observer::new(LIMITS), &[LOST, FENCED, more].concat(), &mut text);
    let (_, said) = text
        .split_once("alarm about the node of n1\n      taint-left-behind")
        .expect("an alarm");
    expect![[r#"
        : node `n1` has been ready again for 61 s and still has the taint out-of-service: with the effect NoExecute the taint evicts pods and keeps new pods away, with NoSchedule the taint keeps new pods away
              remedy: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
        +500.0 node.out_of_service of n1 lost at +10: +100.0 → +500.0
    "#]].assert_eq(said);
}

#[test]
fn a_moment_of_a_busy_kubelet_is_no_loss() {
    check(
        "
        +0 node n1 true
        +0 pod a ReplicaSet/web node=n1 ready
        +10 node n1 false reason=KubeletNotReady
        +11 tick
        +20 node n1 true
        +21 tick
        ",
        expect![""],
    );
}

#[test]
fn a_kubelet_that_reports_its_own_trouble_still_terminates_pods() {
    check(
        "
        +0 node n1 true
        +0 pod a ReplicaSet/web node=n1 ready
        +10 node n1 false reason=KubeletNotReady
        +11 tick
        +310 node n1 false since=+10 reason=KubeletNotReady evicting
        +311 pod a ReplicaSet/web node=n1 ready deleting by-taint
        +320 gone a
        +400 tick
        +500 node n1 true
        ",
        expect![""],
    );
}

/// The next case to it: as without its container runtime, the kubelet cannot.
#[test]
fn a_kubelet_that_cannot_terminate_pods_has_lost_them() {
    check(
        "
        +0 node n1 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +10 node n1 false since=+10 reason=KubeletNotReady
        +11 tick
        +15 node n1 false since=+10 reason=KubeletNotReady evicting
        +20 pod db-0 StatefulSet/db node=n1 deleting grace=2 by-taint
        +25 tick
        +90 node n1 true since=+90
        +91 gone db-0
        +92 pod db-0 StatefulSet/db node=n2 pending again=1
        +95 pod db-0 StatefulSet/db node=n2 ready again=1
        +100 tick
        ",
        expect![[r#"
            +25.0 alarm about the node of n1
                  unreachable: node `n1` has not been ready for 15.0 s (KubeletNotReady); its kubelet itself reports this, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +25.0 alarm about db-0 of n1
                  unreachable: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 15.0 s; its kubelet itself reports this, and no agent on it could be asked
                  remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (for Kubernetes 1.26 or later; the version of this cluster is not known)
            +90.0 node n1 lost at +10: +10.0 → +90.0 by back, agent unknown, stuck 1, gone 0; pods db-0
                  node.not_ready +10.0
                  node.evicting +15.0
                  pods.first_stuck +25.0
                  node.ready +90.0
                  unreachable: node `n1` was not ready for 80 s (KubeletNotReady); its kubelet itself reported this, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +90.0 node.not_ready of n1 lost at +10: +10.0 → +15.0
            +90.0 node.down of n1 lost at +10: +10.0 → +90.0 same-boot
            +91.0 pod db-0 lost: +10.0 → +91.0, requested +20.0
                  stuck by node: +20.0 → +90.0
                  stuck by runtime: +90.0 → +91.0
                  unreachable: the pod's node `n1` was not ready for 80 s, and the pod was terminated only after the node's return, 71 s after the deletion request
                  remedy: find out why `n1` was not ready: journalctl -u kubelet, and its network to the API server. No taint is needed any more
            +95.0 db-0 replaces db-0 (name-in-stateful-set): created +92.0, scheduled +92.0, ready +95.0, of a lost node
        "#]],
    );
}

#[test]
fn a_graceful_shutdown_and_a_scaled_down_node_are_no_loss() {
    check(
        "
        +0 node n1 true
        +0 node n2 true
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod log DaemonSet/log node=n2 ready outlasts
        +10 node n1 false shutting-down
        +15 pod a ReplicaSet/web node=n1 succeeded
        +16 tick
        +80 node n1 unknown
        +90 tick
        +200 node n1 true boot=boot-2
        # Drained, switched off, removed.
        +300 node n2 true since=+0 cordoned
        +340 node n2 unknown cordoned
        +341 tick
        +350 no-node n2
        +360 gone log
        +420 tick
        ",
        expect![[r#"
            +80.0 ask renewal n1
            +340.0 ask renewal n2
        "#]],
    );
}

/// In the shutdown's own trace, whose number the node's agent knows.
#[test]
fn what_the_kubelet_says_of_its_shutdown_is_reported_once_it_is_silent() {
    check(
        "
        +0 node n1 true boot=b1
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod agent-a DaemonSet/agent node=n1 ready outlasts agent
        +10 node n1 false since=+10 boot=b1 reason=KubeletNotReady shutting-down
        +10.5 tick
        # The agent has not heard of it yet.
        +10.6 agent n1 answers
        +11 tick
        +16 tick
        +16.1 agent n1 answers shutdown=2
        +17 tick
        +20 pod a ReplicaSet/web node=n1 succeeded
        +22 tick
        # Another kubelet's word for the same.
        +30 node n1 false since=+10 boot=b1 reason=KubeletNotReady shutting-down
        +82 node n1 unknown since=+82 boot=b1
        +90 tick
        +200 node n1 true boot=b2
        ",
        expect![[r#"
            +10.0 ask agent n1
            +16.0 ask agent n1
            +22.0 ask agent n1
            +82.0 shutdown 2 of n1, boot b1, of +10: +10.0 → +82.0, KubeletNotReady: node is shutting down
            +82.0 ask renewal n1
        "#]],
    );
}

/// The next case to it: the machine continues, as after a spoofed signal.
#[test]
fn a_shutdown_that_the_node_survives_ends_when_it_is_ready() {
    check(
        "
        +0 node n1 true boot=b1
        +0 pod agent-a DaemonSet/agent node=n1 ready outlasts agent
        +10 node n1 false since=+10 boot=b1 reason=KubeletNotReady shutting-down
        +11 tick
        +11.1 agent n1 answers shutdown=1
        +40 node n1 true since=+40 boot=b1
        +60 node n1 false since=+60 boot=b1 reason=KubeletNotReady shutting-down
        +61 tick
        +61.1 agent n1 answers shutdown=2
        +140 node n1 unknown since=+140 boot=b1
        ",
        expect![[r#"
            +10.0 ask agent n1
            +40.0 shutdown 1 of n1, boot b1, of +10: +10.0 → +40.0, KubeletNotReady: node is shutting down
            +60.0 ask agent n1
            +140.0 shutdown 2 of n1, boot b1, of +60: +60.0 → +140.0, KubeletNotReady: node is shutting down
            +140.0 ask renewal n1
            +140.0 ask agent n1
        "#]],
    );
}

/// The next case to it: nobody on the node says which shutdown it is, or the kubelet has another trouble.
#[test]
fn a_shutdown_without_a_number_is_not_reported() {
    check(
        "
        +0 node n1 true boot=b1
        +0 node n2 true boot=b2
        +0 pod agent-a DaemonSet/agent node=n1 ready outlasts agent
        +0 pod agent-b DaemonSet/agent node=n2 ready outlasts agent
        +10 node n1 false since=+10 boot=b1 reason=KubeletNotReady shutting-down
        +10 node n2 false since=+10 boot=b2 reason=KubeletNotReady
        +11 tick
        +11.1 agent n1 answers
        +11.1 agent n2 answers shutdown=1
        +20 tick
        +20.1 agent n1 answers
        +69 tick
        +69.1 agent n1 answers
        +75 tick
        +80 node n1 unknown since=+80 boot=b1
        +80 node n2 unknown since=+80 boot=b2
        ",
        expect![[r#"
            +10.0 ask agent n1
            +11.0 ask agent n2
            +20.0 ask agent n2
            +20.0 ask agent n1
            +69.0 ask agent n1
            +75.0 ask agent n1
            +80.0 ask renewal n1
        "#]],
    );
}

#[test]
fn a_node_that_is_removed_with_its_pods_is_lost() {
    check(
        "
        +0 node n1 true
        +0 pod a ReplicaSet/web node=n1 ready
        +40 node n1 unknown
        +42 tick
        +60 no-node n1
        +100 gone a
        +100.1 pod b ReplicaSet/web node=n2 pending
        +103 pod b ReplicaSet/web node=n2 ready
        +200 tick
        ",
        expect![[r#"
            +40.0 ask renewal n1
            +60.0 node n1 lost at +40: +40.0 → +60.0 by node-deleted, agent unknown, stuck 0, gone 0; pods a
                  node.not_ready +40.0
                  node.unknown +40.0
                  node.deleted +60.0
                  lost: node `n1` was not ready for 20.0 s; its kubelet was silent, and no agent on it could be asked
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
            +100.0 pod a lost: +40.0 → +100.0
                  lost: the pod's node `n1` was lost, and the pod's object was deleted, without the kubelet and without the taint out-of-service; whether the pod's containers still ran is not known
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
            +103.0 b replaces a (next-of-replica-set): created +100.1, scheduled +100.1, ready +103.0, of a lost node
        "#]],
    );
}

#[test]
fn a_pod_name_that_moves_twice_is_two_traces() {
    let again = "
        +300 node n1 true boot=boot-2 out-of-service
        +310 node n1 true since=+300 boot=boot-2
        +400 node n2 unknown since=+400
        +401 tick
        +420 node n2 unknown since=+400 evicting
        +425 pod db-0 StatefulSet/db ready claim=data-db-0 node=n2 again=1 deleting grace=5
        +440 node n2 unknown since=+400 evicting out-of-service
        +450 gone db-0 again=1
        +450.1 pod db-0 StatefulSet/db pending claim=data-db-0 node=n1 again=2
        +455 pod db-0 StatefulSet/db ready claim=data-db-0 node=n1 again=2
        +470 tick
    ";
    let mut observer = Observer::new(LIMITS);
    let mut traces = Vec::new();
    for (at, input) in super::parse(&[LOST, FENCED, again].concat()) {
        for output in observer.handle(at, input) {
            if let Output::PodLost(lost) = output {
                traces.push((lost.pod.name.clone(), lost.pod.uid.0.to_string(), lost.pod.node.clone()));
            }
        }
    }
    let expected = [("db-0", "uid-db-0-0", "n1"), ("db-0", "uid-db-0-1", "n2")];
    assert_eq!(
        traces,
        expected.map(|(name, uid, node)| (name.into(), uid.into(), node.into()))
    );
}

/// What the next observer finds: everything is listed at +60.
const FOUND: &str = "
    +0 list namespaces
    +60 version 1.36
    +60 list pods
    +60 pod db-0 StatefulSet/db node=n1 ready claim=data-db-0 deleted=+30 grace=5 by-taint
    +60 pod db-1 StatefulSet/db node=n2 ready claim=data-db-1
    +60 pod log-a DaemonSet/log node=n1 ready outlasts
    +60 listed pods
    +60 list endpointslices
    +60 listed endpointslices
    +60 listed namespaces
    +60 list nodes
    +60 node n1 unknown since=+10 reason=NodeStatusUnknown evicting
    +60 node n2 true
    +60 listed nodes
    +60 list volumeattachments
    +60 attachment va-0 pv-0 n1 attached
    +60 listed volumeattachments
    +61 tick
    +62 claim pv-0 data-db-0
";

#[test]
fn an_observer_that_takes_over_says_nothing_twice_and_what_it_missed() {
    let back = "
        +300 node n1 true boot=boot-2 out-of-service
        +320 node n1 true since=+300 boot=boot-2
    ";
    check_takeover(
        LOST,
        &[FOUND, FENCED, back].concat(),
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
            second observer
            +60.0 ask renewal n1
            +60.0 alarm about the node of n1
                  lost: node `n1` has not been ready for 50.0 s (NodeStatusUnknown); its kubelet is silent, and no agent on it could be asked; 1 pod on it could not be terminated
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +60.0 alarm about db-0 of n1
                  lost: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 50.0 s; its kubelet is silent, and no agent on it could be asked
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +61.0 ask claim pv-0
            +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0, unwatched 50.0
                  stuck by node: +30.0 → +110.0
                  fenced-by-taint: the pod's node `n1` was lost, and the pod's object was deleted 80 s after the deletion request, while the taint out-of-service was set, without the kubelet; whether the pod's containers still ran is not known
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +110.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent unknown, stuck 1, gone 1, unwatched 50.0; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  pods.first_stuck +60.0
                  taint.out_of_service +100.0
                  pods.last_gone +110.0
                  fenced-by-taint: node `n1` has not been ready for 100 s (NodeStatusUnknown); its kubelet is silent, and no agent on it could be asked; 1 pod on it could not be terminated; the taint out-of-service is set, and the objects of all of these pods are gone
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +112.0 volume pv-0 of db-0 (data-db-0): +110.0 → +112.0, requested +111.0
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 rebooted
            +320.0 node.out_of_service of n1 lost at +10: +100.0 → +320.0
        "#]],
    );
}

#[test]
fn an_observer_that_stops_reports_the_pods_that_a_returned_kubelet_still_terminates() {
    // No successor finds a loss then.
    let back = "
        +100 node n1 true boot=n1
    ";
    check_stop(
        &[LOST, back].concat(),
        105,
        expect![[r#"
            pod db-0 lost: +10.0 → +105.0, still terminating, requested +30.0
                  stuck by node: +30.0 → +100.0
                  stuck by runtime: +100.0 → +105.0
                  lost: the pod's node `n1` was not ready for 90 s; when this observer stopped after the node's return, its kubelet had not completed the termination, 75 s after the deletion request
                  remedy: find out why `n1` stopped: journalctl -b -1 -u kubelet, its console, and its provider's events. No taint is needed any more
        "#]],
    );
    // The successor goes on with the loss, and with what is over, nothing is left.
    check_stop(LOST, 105, expect![]);
    let gone = "
        +100 node n1 true boot=n1
        +101 gone db-0
    ";
    check_stop(&[LOST, gone].concat(), 105, expect![]);
    let held = "
        +90 pod db-0 StatefulSet/db node=n1 ready claim=data-db-0 deleting grace=0 by-taint finalizer=x/y
        +100 node n1 true boot=n1
    ";
    check_stop(
        &[LOST, held].concat(),
        105,
        expect![[r#"
            pod db-0 lost: +10.0 → +105.0, still terminating, requested +30.0
                  stuck by node: +30.0 → +90.0
                  stuck by finalizer x/y: +90.0 → +105.0
                  stuck-by-finalizer: the pod's node `n1` was not ready for 90 s; when this observer stopped after the node's return, the finalizer `x/y` kept the object, 75 s after the deletion request
                  remedy: Find the controller that owns the finalizer, and find out why the controller does not remove the finalizer. Remove the finalizer by hand only if that controller does not exist any more.
        "#]],
    );
}

#[test]
fn an_observer_that_takes_over_after_the_last_pod_leaves_the_root_to_the_first() {
    let found = FOUND
        .replace("+60 pod db-0", "#")
        .replace("+60 attachment va-0", "#")
        .replace("evicting", "evicting out-of-service")
        .replace("+60 ", "+130 ")
        .replace("+61 ", "+131 ")
        .replace("+62 ", "+132 ");
    let back = "
        +300 node n1 true out-of-service
        +320 node n1 true since=+300
    ";
    check_takeover(
        &[LOST, FENCED].concat(),
        &[&found, back].concat(),
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
            +130.0 ask renewal n1
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 same-boot
            +320.0 node.out_of_service of n1 lost at +10: +130.0 (gap 120.0) → +320.0
        "#]],
    );
}

#[test]
fn an_api_server_that_was_away_gives_the_apis_times_or_a_gap() {
    let away = "
        +50 broken nodes
        +50 broken pods
        +115 node n1 unknown since=+10 evicting out-of-service
        +115 gone db-0
        +115.1 pod db-0 StatefulSet/db ready node=n2 again=1
        +120 tick
        +300 node n1 true since=+300 boot=boot-2
    ";
    check(
        &[LOST, away].concat(),
        expect![[r#"
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
            +115.1 db-0 replaces db-0 (name-in-stateful-set): created +115.1 (gap 65.1), scheduled +115.1 (gap 65.1), ready +115.1 (gap 65.1), of a lost node
            +120.0 pod db-0 lost: +10.0 → +115.0 (gap 65.0), requested +30.0
                  stuck by node: +30.0 → +115.0 (gap 65.0)
                  fenced-by-taint: the pod's node `n1` was lost, and the pod's object was deleted 85 s after the deletion request, while the taint out-of-service was set, without the kubelet; whether the pod's containers still ran is not known
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +120.0 node n1 lost at +10: +10.0 → +115.0 (gap 65.0) by pods-gone, agent silent, stuck 1, gone 1; pods db-0
                  node.not_ready +10.0
                  node.unknown +10.0
                  node.evicting +25.0
                  pods.first_stuck +40.0
                  taint.out_of_service +115.0 (gap 65.0)
                  pods.last_gone +115.0 (gap 65.0)
                  fenced-by-taint: node `n1` has not been ready for 105 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent does not answer; 1 pod on it could not be terminated; the taint out-of-service is set, and the objects of all of these pods are gone
                  remedy: nothing confirms that `n1` is powered off: check its console or its provider. Later, when the machine is repaired, remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
            +300.0 node.down of n1 lost at +10: +10.0 → +300.0 rebooted
            +300.0 node.out_of_service of n1 lost at +10: +115.0 (gap 65.0) → +300.0
        "#]],
    );
}

#[test]
fn a_namespace_that_opted_out_has_no_alarm_and_no_trace() {
    let script = [LOST, FENCED].concat().replace("claim=data-db-0", "ignored claim=data-db-0");
    let mut text = String::new();
    play_on(&mut Observer::new(LIMITS), &script, &mut text);
    assert!(!text.contains("pod db-0 lost") && !text.contains("alarm"), "{text}");
}

#[test]
fn memory_is_bounded_and_what_does_not_fit_is_counted() {
    let mut script = String::new();
    for node in 0..6 {
        let _ = writeln!(script, "+0 node n{node} true");
    }
    for pod in 0..12 {
        let _ = writeln!(script, "+0 pod p{pod} StatefulSet/db node=n1 ready");
    }
    script += "+10 node n1 unknown\n+11 tick\n+12 tick\n";
    check(
        &script,
        expect![[r#"
        +0.0 dropped 1 node_cap
        +0.0 dropped 1 node_cap
        +10.0 dropped 1 lost_pod_cap
        +10.0 dropped 1 lost_pod_cap
        +10.0 ask renewal n1
    "#]],
    );
}

/// The last remedy, or sentence, of an alarm about the pod.
fn last_alarm(script: &str) -> String {
    let mut text = String::new();
    play_on(&mut Observer::new(LIMITS), script, &mut text);
    let (_, alarm) = text.rsplit_once("alarm about db-0").expect("an alarm");
    alarm
        .lines()
        .skip(1)
        .take(2)
        .map(|line| format!("{}\n", line.trim()))
        .collect()
}

#[test]
fn what_the_machine_itself_says_counts_more_than_its_provider() {
    let script = LOST
        .replace("evicting", "evicting off")
        .replace("+18 agent n1 silent", "+18 agent n1 answers");
    expect![[r#"
        unreachable: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 30.0 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs
        remedy: `n1` runs: repair its kubelet or its network to the API server (on the node: systemctl status kubelet). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
    "#]]
    .assert_eq(&last_alarm(&script));
}

/// Its taint stays until the node is ready: a machine that was switched on again and is cut off has it, too.
#[test]
fn a_providers_report_is_of_the_past() {
    let script = [LOST, FENCED].concat().replace("evicting", "evicting off");
    let mut text = String::new();
    play_on(&mut Observer::new(LIMITS), &script, &mut text);
    let (_, pod) = text.split_once("pod db-0 lost").expect("a pod");
    let sentence = pod.lines().find(|line| line.contains("fenced-by-taint")).expect("a sentence");
    assert!(
        sentence.ends_with("; its provider had reported that the machine was off"),
        "{sentence}"
    );
    for now in ["the machine is off", "reports that"] {
        assert!(!text.contains(now), "{now}: {text}");
    }
}

#[test]
fn a_kubelet_that_reports_its_trouble_for_long_is_not_lost() {
    let script = LOST.replace("unknown", "false").replace("+18 agent", "+17 agent");
    expect![[r#"
        unreachable: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 30.0 s; its kubelet itself reports this, and its agent does not answer
        remedy: `n1` runs: repair what its condition Ready names (kubectl describe node n1). Only if that is not possible, power it off, make sure that it is off, and then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
    "#]]
    .assert_eq(&last_alarm(&script));
}

#[test]
fn the_taint_on_a_machine_that_runs_is_the_first_thing_to_end() {
    let script = LOST
        .replace("evicting", "evicting out-of-service")
        .replace("+18 agent n1 silent", "+18 agent n1 answers");
    expect![[r#"
        fenced-by-taint: pod `db-0` cannot be terminated, and is not replaced: its node `n1` has not been ready for 30.0 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent still answers: the machine runs
        remedy: `n1` runs in spite of the taint: two pods may write the same volume. Power it off at once, or remove the taint: kubectl taint nodes n1 node.kubernetes.io/out-of-service-
    "#]]
    .assert_eq(&last_alarm(&script));
}

#[test]
fn a_node_that_registers_again_terminates_its_pods_again() {
    check(
        "
        +0 node n1 true
        +0 pod a ReplicaSet/web node=n1 ready
        +40 node n1 unknown
        +42 tick
        +60 no-node n1
        +62 node n1 true since=+62
        +180 pod a ReplicaSet/web node=n1 ready deleted=+180 grace=5
        +182 gone a
        +300 tick
        ",
        expect![[r#"
            +40.0 ask renewal n1
            +60.0 node n1 lost at +40: +40.0 → +60.0 by node-deleted, agent unknown, stuck 0, gone 0; pods a
                  node.not_ready +40.0
                  node.unknown +40.0
                  node.deleted +60.0
                  lost: node `n1` was not ready for 20.0 s; its kubelet was silent, and no agent on it could be asked
                  remedy: the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `n1` is powered off: on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to `n1`: kubectl get volumeattachments
            +62.0 node.down of n1 lost at +40: +40.0 → +62.0 same-boot
        "#]],
    );
}

#[test]
fn a_volume_of_several_nodes_stays_attached_to_the_lost_one() {
    let more = "
        +50 attachment va-9 pv-0 n2 attached
        +60 gone db-0
        +61 no-attachment va-9
        +62 no-attachment va-0
    ";
    check(
        &[LOST, more].concat(),
        expect![[r#"
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
            +60.0 pod db-0 lost: +10.0 → +60.0, requested +30.0
                  stuck by node: +30.0 → +60.0
                  lost: the pod's node `n1` was lost, and the pod's object was deleted 30.0 s after the deletion request, without the kubelet and without the taint out-of-service; whether the pod's containers still ran is not known
                  remedy: check the console or the provider of `n1`. If it runs, repair its network or kubelet: a taint would let two pods write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is still not ready then: kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
            +62.0 volume pv-0 of db-0 (data-db-0): +60.0 → +62.0
        "#]],
    );
}

#[test]
fn a_claim_that_cannot_be_read_is_asked_for_less_and_less() {
    let script = LOST.replace("+11.2 claim", "# claim");
    let ticks: String = (42..140).map(|at| format!("+{at} tick\n")).collect();
    let mut text = String::new();
    play_on(&mut Observer::new(LIMITS), &[&script, "\n", &ticks].concat(), &mut text);
    let asked: Vec<&str> = text.lines().filter(|line| line.contains("ask claim")).collect();
    expect![[r#"
        [
            "+10.0 ask claim pv-0",
            "+18.0 ask claim pv-0",
            "+40.0 ask claim pv-0",
            "+72.0 ask claim pv-0",
            "+136.0 ask claim pv-0",
        ]
    "#]]
    .assert_debug_eq(&asked);
}
