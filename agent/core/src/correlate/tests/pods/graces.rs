//! A deletion that asks for another grace period than the pod's own: who asked, and no remedy that changes nothing.

use std::fmt::Write;

use expect_test::{Expect, expect};

use super::run;
use crate::report::{Report, Termination};
use crate::verdict::is_grace_cut;

/// A pod with a grace period of 60 s, running since a minute; `more` continues its declaration.
pub(super) fn pod(more: &str, rest: &str) -> String {
    format!(
        "
        -60 api synced
        pod web grace=60 app {more}
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        -58 pod web app=running
        {rest}
        "
    )
}

/// A process that is still shutting down at the SIGKILL.
pub(super) fn killed(request: &str, after: u32) -> String {
    let kill = f64::from(after) + 1.4;
    let rest = format!(
        "{request}
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +{kill:.3} KILL runc -> main
        +{kill:.3}1 exit main KILL
        +{:.1} pod web app=137:Error
        +{:.1} gone web",
        kill + 0.3,
        kill + 1.0,
    );
    pod("", &rest)
}

/// Sentence, remedy and advice of the pod, and the line of evidence about its request.
pub(super) fn check(script: &str, expect: Expect) {
    let mut text = String::new();
    for (_, report) in run(script) {
        let Report::PodTerminated(pod) = report else { continue };
        let v = &pod.verdict;
        writeln!(text, "{}: {}", v.headline, v.sentence).expect("a string");
        if let Some(remedy) = &v.remedy {
            writeln!(text, "  fix: {remedy}").expect("a string");
        }
        for advice in &v.advice {
            writeln!(text, "  {} {:?}: {}", advice.kind.name(), advice.seconds, advice.text).expect("a string");
        }
        for line in pod.containers.iter().flat_map(|of| &of.verdict.evidence) {
            if line.text.starts_with("deletion requested") {
                writeln!(text, "  {}", line.text).expect("a string");
            }
        }
    }
    expect.assert_eq(&text);
}

#[test]
fn a_person_asks_for_less_than_the_spec() {
    check(
        &killed("+1.05 pod web deleted=+1:5", 5),
        expect![[r#"
            killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later; the pod's grace period is 60 s in its spec, 5 s asked for by the deletion
              fix: the shutdown needs more than the 5.1 s that it got, and the pod's own grace period of 60 s was not given: do not pass `--grace-period` to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the API server's audit log names this controller): then the pod's 60 s apply
              deletion requested with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
}

#[test]
fn an_eviction_asks_for_less_than_the_spec() {
    let request = "+1.05 pod web deleted=+1:5 disruption=EvictionByEvictionAPI:evicted";
    check(
        &killed(request, 5),
        expect![[r#"
            killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later; the pod's grace period is 60 s in its spec, 5 s asked for by the eviction; the pod was evicted through the Eviction API
              fix: the shutdown needs more than the 5.1 s that it got, and the pod's own grace period of 60 s was not given: leave the grace period of evictions to the pod; what sets another one is `--grace-period` of `kubectl drain`, `--max-graceful-termination-sec` of the cluster autoscaler, `podTerminationGracePeriod` of the node termination handler, or `deleteOptions.gracePeriodSeconds` in the request of any other program that evicts the pod
              deletion requested with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
}

#[test]
fn the_cluster_autoscaler_asks_for_less_than_the_spec() {
    let request = "+0.9 event web - ScaleDown deleting pod for node scale down
        +1.05 pod web deleted=+1:5 disruption=EvictionByEvictionAPI:evicted";
    check(
        &killed(request, 5),
        expect![[r#"
            killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later; the pod's grace period is 60 s in its spec, 5 s asked for by the eviction after the cluster autoscaler's announcement; the pod was evicted through the Eviction API
              fix: the shutdown needs more than the 5.1 s that it got, and the pod's own grace period of 60 s was not given: raise `--max-graceful-termination-sec` of the cluster autoscaler to at least 60 s; if `kubectl drain` evicted the pod after the autoscaler's announcement, run `kubectl drain` without `--grace-period`
              deletion requested after an announcement of cluster-autoscaler with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
}

/// The Event was written after the request, and is listed after the exit.
#[test]
fn karpenter_asks_for_less_than_the_spec() {
    let request = "+1.05 pod web deleted=+1:5
        +1.1 event web - Disrupted Deleting the pod to accommodate the terminationTime T of the node. The pod was granted 5 seconds of \
         grace-period of its 60 terminationGracePeriodSeconds. This bypasses the PDB of the pod.";
    check(
        &killed(request, 5),
        expect![[r#"
        killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later; the pod's grace period is 60 s in its spec, 5 s asked for by the deletion of Karpenter
          fix: the shutdown needs more than the 5.1 s that it got, and the pod's own grace period of 60 s was not given: raise `terminationGracePeriod` of Karpenter's NodePool, which ended before the pod's
          deletion requested by karpenter with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
    "#]],
    );
}

/// An eviction that was announced long before and did not take place, and one that another grace period belongs to.
#[test]
fn an_event_about_another_request_names_nobody() {
    let request = "-200 event web - ScaleDown deleting pod for node scale down
        -100 event web - Disrupted Deleting the pod to accommodate the terminationTime T of the node. The pod was granted 12 seconds of \
         grace-period of its 60 terminationGracePeriodSeconds.
        +1.05 pod web deleted=+1:5";
    check(
        &killed(request, 5),
        expect![[r#"
            killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later; the pod's grace period is 60 s in its spec, 5 s asked for by the deletion
              fix: the shutdown needs more than the 5.1 s that it got, and the pod's own grace period of 60 s was not given: do not pass `--grace-period` to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the API server's audit log names this controller): then the pod's 60 s apply
              deletion requested with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
    let request = "-200 event web - ScaleDown deleting pod for node scale down
        +1.05 pod web deleted=+1:5 disruption=EvictionByEvictionAPI:evicted";
    check(
        &killed(request, 5),
        expect![[r#"
            killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later; the pod's grace period is 60 s in its spec, 5 s asked for by the eviction; the pod was evicted through the Eviction API
              fix: the shutdown needs more than the 5.1 s that it got, and the pod's own grace period of 60 s was not given: leave the grace period of evictions to the pod; what sets another one is `--grace-period` of `kubectl drain`, `--max-graceful-termination-sec` of the cluster autoscaler, `podTerminationGracePeriod` of the node termination handler, or `deleteOptions.gracePeriodSeconds` in the request of any other program that evicts the pod
              deletion requested with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
}

#[test]
fn the_pods_own_grace_is_not_overridden() {
    check(
        &killed("+1.05 pod web deleted=+1:60", 60),
        expect![[r#"
        killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 60 s later
          fix: the shutdown needs more than the 60 s that it got: raise terminationGracePeriodSeconds above 60 s, or shorten the shutdown
          grace-longer None: container `app` needed more than the grace period of 60 s; how much more is unknown, because SIGKILL ended the shutdown
          deletion requested with a grace period of 60 s (time known to within 50 ms, the clock of the API server was not compared)
    "#]],
    );
}

/// Not kubectl's: the spec itself has 0.
#[test]
fn a_grace_of_0_in_the_spec_is_no_force_delete() {
    let script = killed("+1.05 pod web deleted=+1:0", 1).replace("grace=60", "grace=0");
    check(
        &script,
        expect![[r#"
        force-killed: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 1.1 s later; the pod's own grace period is 0 (terminationGracePeriodSeconds)
          fix: stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0)
          deletion requested with a grace period of 0 s (time known to within 50 ms, the clock of the API server was not compared)
    "#]],
    );
    check(
        &killed("+1.05 pod web deleted=+1:0", 1),
        expect![[r#"
            force-killed: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 1.1 s later; the pod was force-deleted (grace period 0, 60 s in its spec)
              fix: the pod's own grace period of 60 s was not given: do not pass `--force` or `--grace-period` to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the API server's audit log names this controller): then the pod's 60 s apply
              deletion requested with a grace period of 0 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
}

/// Each shorter than the one before.
#[test]
fn a_second_request_shortens_what_the_first_had_asked_for() {
    let request = "+1.05 pod web deleted=+1:20
        +3.1 pod web deleted=+3:4";
    check(
        &killed(request, 6),
        expect![[r#"
        killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 6.1 s later; the pod's grace period is 60 s in its spec, 20 s asked for by the deletion; a later delete request, 2.0 s after the first, shortened the grace period from 20 s to 4 s
          fix: the shutdown needs more than the 6.1 s that it got: do not shorten the grace period with a second delete
          deletion requested with a grace period of 20 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
    "#]],
    );
}

/// The pod's own 60 s are long enough.
#[test]
fn a_clean_exit_in_a_shortened_grace_needs_no_longer_setting() {
    let request = |grace: u32| {
        format!(
            "+1.05 pod web deleted=+1:{grace}
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +5.8 exit main 0
        +6.1 pod web app=0:Completed
        +7 gone web"
        )
    };
    check(
        &pod("", &request(5)),
        expect![[r#"
        clean: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 4.5 s later
          deletion requested with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
    "#]],
    );
    // Also where a second request shortened the first.
    let second = request(60).replace("+1.3 TERM", "+1.2 pod web deleted=+1:5\n        +1.3 TERM");
    check(
        &pod("", &second),
        expect![[r#"
        clean: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 4.5 s later
          deletion requested with a grace period of 60 s (time known to within 50 ms, the clock of the API server was not compared)
    "#]],
    );
}

/// A longer one hid that the setting is too short.
#[test]
fn a_longer_grace_than_the_setting_shows_that_the_setting_is_too_short() {
    let rest = "+1.05 pod web deleted=+1:600
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +46.3 exit main 0
        +46.6 pod web app=0:Completed
        +47.6 gone web";
    let script = pod("", rest).replace("grace=60", "grace=30");
    check(
        &script,
        expect![[r#"
        clean: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 45.0 s later
          grace-longer Some(55): container `app` needed 45.0 s of a grace period of 30 s in the pod's spec (the deletion asked for 600 s); set terminationGracePeriodSeconds to at least 55
          deletion requested with a grace period of 600 s (30 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
    "#]],
    );
    let script = killed("+1.05 pod web deleted=+1:600", 600).replace("grace=60", "grace=30");
    check(
        &script,
        expect![[r#"
        killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 600 s later; the pod's grace period is 30 s in its spec, 600 s asked for by the deletion
          fix: the shutdown needs more than the 600 s that it got: raise terminationGracePeriodSeconds above 600 s, or shorten the shutdown
          grace-longer None: container `app` needed more than the grace period of 600 s; how much more is unknown, because SIGKILL ended the shutdown
          deletion requested with a grace period of 600 s (30 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
    "#]],
    );
    // And no setting is far too long that was never made.
    let short = pod("", &rest.replace("+46", "+2").replace("+47", "+3")).replace("grace=60", "grace=30");
    check(
        &short,
        expect![[r#"
        clean: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
          deletion requested with a grace period of 600 s (30 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
    "#]],
    );
}

#[test]
fn a_hook_and_a_sidecar_that_a_shortened_grace_left_too_little() {
    let rest = "
        +1.05 pod web deleted=+1:5
        proc hook in=web:app pid=110 ns=7 start=+1.1 parent=shim comm=sh
        +1.1 exec hook
        +6.05 KILL runc -> hook
        +6.06 exit hook KILL
        +6.1 TERM runc -> main handler
        +6.11 enter main TERM
        +8.1 KILL runc -> main
        +8.11 exit main KILL
        +8.4 pod web app=137:Error
        +9 gone web";
    check(
        &pod("app.prestop=exec:/bin/sh", rest),
        expect![[r#"
            prestop-overran: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later; the preStop hook `/bin/sh` was still running when the grace period of 5 s ended, which left 2.0 s for the shutdown; the pod's grace period is 60 s in its spec, 5 s asked for by the deletion
              fix: shorten the preStop hook `/bin/sh`: the hook and the shutdown need more than 7.0 s; the pod's own grace period of 60 s was not given: do not pass `--grace-period` to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the API server's audit log names this controller): then the pod's 60 s apply
              deletion requested with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
    let rest = "
        -59 mkdir web:proxy
        proc proxy in=web:proxy pid=120 ns=1 start=-59 parent=shim comm=proxy
        -59 exec proxy
        -58 pod web proxy=running
        +1.05 pod web deleted=+1:5
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +6.2 KILL runc -> main
        +6.21 exit main KILL
        +6.3 TERM runc -> proxy handler
        +6.31 enter proxy TERM
        +8.3 KILL runc -> proxy
        +8.31 exit proxy KILL
        +8.6 pod web app=137:Error proxy=137:Error
        +9 gone web";
    check(
        &pod("proxy:sidecar", rest),
        expect![[r#"
            killed-after-grace: container `app` (2 of 2 unclean): the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 4.9 s later; the pod's grace period is 60 s in its spec, 5 s asked for by the deletion; container `proxy`: sidecar-starved
              fix: the shutdown needs more than the 4.9 s that it got, and the pod's own grace period of 60 s was not given: do not pass `--grace-period` to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the API server's audit log names this controller): then the pod's 60 s apply
              deletion requested with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
              deletion requested with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
}

/// The kubelet's soft eviction gives the whole grace period, and the preStop hook uses up a part of it.
#[test]
fn an_eviction_that_waited_for_the_hook_is_not_cut() {
    let judged = |hook: &str, killed: &str| {
        let script = pod(
            "app.prestop=exec:/bin/hook",
            &format!(
                "{hook}
        +36.1 TERM runc -> main handler
        +36.11 enter main TERM
        +{killed} KILL runc -> main
        +{killed}1 exit main KILL
        +{killed}5 pod web app=137:Error phase=failed reason=Evicted"
            ),
        );
        let reports = run(&script);
        let pod = reports.iter().find_map(|(_, report)| match report {
            Report::PodTerminated(of) => Some(of.verdict.sentence.clone()),
            _ => None,
        });
        let sentence = pod.expect("a report of the pod");
        assert!(sentence.contains("evicted the pod"), "{sentence}");
        sentence.contains("did not wait for its end")
    };
    let hook = "proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
        +1.12 exec hook
        +36 exit hook 0";
    assert!(!judged(hook, "61.2"));
    // When the hook began is not known.
    assert!(!judged("", "61.2"));
}

/// The kubelet's eviction kills the process 2.1 s after its stop signal.
pub(super) fn evicted(disruption: &str) -> String {
    let rest = format!(
        "+1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +3.4 KILL runc -> main
        +3.41 exit main KILL
        +3.7 pod web app=137:Error phase=failed reason=Evicted {disruption}"
    );
    pod("", &rest)
}

/// By memory, and by the pod's own limit: neither waits for the pod's grace period, and one has no threshold to set.
#[test]
fn an_eviction_by_the_kubelet_does_not_wait() {
    let low = "disruption=TerminationByKubelet:The_node_was_low_on_resource:_memory._Container_app_was_using_9Gi";
    check(
        &evicted(low),
        expect![[r#"
            killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.1 s later; the pod's grace period is 60 s in its spec, and the kubelet's eviction did not wait for its end; the kubelet evicted the pod: the node or the pod ran out of a resource ("The node was low on resource: memory. Container app was using 9Gi")
              fix: the shutdown needs more than the 2.1 s that it got, and a hard eviction of the kubelet waits for no grace period, a soft one at most for its `evictionMaxPodGracePeriod`: give the pod requests that cover its use, so that the kubelet evicts other pods first, or give the kubelet an `evictionSoft` threshold with a longer `evictionMaxPodGracePeriod`
        "#]],
    );
    check(
        &evicted(""),
        expect![[r#"
            killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.1 s later; the pod's grace period is 60 s in its spec, and the kubelet's eviction did not wait for its end; the kubelet evicted the pod: the node or the pod ran out of a resource
              fix: the shutdown needs more than the 2.1 s that it got, and the threshold of the eviction is not known (the kubelet's log names it): a hard eviction waits for no grace period, a soft eviction waits at most for the kubelet's `evictionMaxPodGracePeriod`
        "#]],
    );
}

/// Whether each pod counts as one that got less than its own grace period.
fn cut(script: &str) -> Vec<bool> {
    let of = |(_, report): (_, Report)| match report {
        Report::PodTerminated(pod) => {
            let members: Vec<_> = pod.containers.iter().map(Termination::as_judged).collect();
            Some(is_grace_cut(pod.request.as_ref(), &members))
        }
        _ => None,
    };
    run(script).into_iter().filter_map(of).collect()
}

/// A termination counts only where the request came before its end.
#[test]
fn a_termination_before_the_request_was_not_cut() {
    let clean = |request: &str| {
        format!(
            "{request}
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.8 exit main 0"
        )
    };
    let over = "
        +6.1 pod web app=0:Completed
        +7 gone web";
    assert_eq!(cut(&pod("", &(clean("+1.05 pod web deleted=+1:5") + over))), [true]);
    // It crashes, and is deleted before its status has the exit.
    let crashed = "
        +1 exit main 3
        +3.05 pod web deleted=+3:5
        +3.5 pod web app=3:Error
        +4 gone web";
    assert_eq!(cut(&pod("", crashed)), [false]);
    // In the same second.
    let crashed = crashed.replace("+1 exit", "+3.01 exit");
    assert_eq!(cut(&pod("", &crashed)), [false]);
    // A container that crashes while its neighbour is stopped.
    let neighbour = "
        -59 mkdir web:proxy
        proc proxy in=web:proxy pid=120 ns=1 start=-59 parent=shim comm=proxy
        -59 exec proxy
        -58 pod web proxy=running";
    let both = format!(
        "{neighbour}\n        +0.2 exit proxy 3\n        {}{over}",
        clean("+1.05 pod web deleted=+1:5")
    );
    assert_eq!(cut(&pod("proxy", &both.replace("app=0", "proxy=3:Error app=0"))), [true]);
}

/// The kubelet's own delete with 0, once all containers have exited, has the time of the first request.
#[test]
fn the_kubelets_own_delete_asks_for_nothing() {
    let ended = "
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.8 exit main 0";
    let first_shown = "
        +9 pod web deleted=+1:0 app=0:Completed finalizer=example.com/hold
        +9.1 api synced
        +20 pod web finalizer=-
        +21 gone web";
    let outage = pod("", &format!("-61 skew 0 0\n        +0.5 api away gone{ended}{first_shown}"));
    assert_eq!(cut(&outage), [false]);
    // Nor is it why a process was killed after all of its grace period.
    let killed = outage
        .replace("+1.8 exit main 0", "+61.4 KILL runc -> main\n        +61.41 exit main KILL")
        .replace("app=0:Completed", "app=137:Error");
    let killed = killed.replace("+9", "+69").replace("+20", "+80").replace("+21", "+81");
    assert_eq!(cut(&killed), [false]);
    check(
        &killed,
        expect![[r#"
            unknown: container `app`: PID 1 `app` was terminated by SIGKILL, but the reason is unknown: the watch of the pods was interrupted, so a deletion request or a shorter grace period may not have been seen
              fix: check the connection of epitaph's agent to the Kubernetes API: the pod's changes did not all arrive
              deletion requested (the grace period of the request was not shown; 60 s in the pod's spec; time known to within 1.0 s)
        "#]],
    );
    // Next to it: the watch shows that somebody asked for 0.
    let forced = format!("+1.05 pod web deleted=+1:0 finalizer=example.com/hold{ended}{first_shown}");
    assert_eq!(cut(&pod("", &forced)), [true]);
}
