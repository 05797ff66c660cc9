//! Whoever takes a part of the pod's own grace period is named, and no advice is measured by what was left of it.

use expect_test::expect;

use crate::report::Report;
use crate::verdict::Cause;

use super::graces::{check, evicted, killed, pod};
use super::run;

/// Clients are refused until two seconds after the stop signal, at which the listener closed.
fn refused(container: &str, request: &str, stop: f64) -> String {
    let rest = format!(
        "{request}
        +{:.2} tcp web:app accepted 80 5001
        +{stop:.2} TERM runc -> main handler
        +{stop:.2}1 enter main TERM
        +{:.2} tcp web:app closed 80
        +{:.2} tcp web:app refused 80 5001
        +{:.2} exit main 0
        +{:.1} pod web app=0:Completed
        +{:.1} gone web",
        stop - 0.1,
        stop + 0.1,
        stop + 1.9,
        stop + 1.95,
        stop + 2.2,
        stop + 3.0,
    );
    pod(container, &rest)
}

/// The spec has a sleep of 30 s, and the deletion gave 5 s: a sleep that is shorter than the one that is set helps nobody.
#[test]
fn a_sleep_that_the_deletion_cut_is_long_enough() {
    let asked = "+1.05 pod web deleted=+1:5";
    check(
        &refused("app.prestop=sleep:30", asked, 6.1),
        expect![[r#"
            refused-connections: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; the preStop sleep of 30 s was cut after 5.0 s, when the grace period of 5 s ended; the pod's grace period is 60 s in its spec, 5 s asked for by the deletion; 1 connection was refused in the 1.8 s after the listener closed (10.0.0.2)
              fix: 1 connection was refused, and the preStop sleep was cut: the pod's own grace period of 60 s was not given: do not pass `--grace-period` to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the API server's audit log names this controller): then the pod's 60 s apply
              deletion requested with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
    // With the program `sleep`, how long it would have slept is not known.
    let program = "+1.05 pod web deleted=+1:5
        proc hook in=web:app pid=110 ns=7 start=+1.1 parent=shim comm=sleep
        +1.1 exec hook
        +6.05 KILL runc -> hook
        +6.06 exit hook KILL";
    check(
        &refused("app.prestop=exec:/bin/sleep", program, 6.1),
        expect![[r#"
            prestop-overran: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; the preStop hook `/bin/sleep` was still running when the grace period of 5 s ended; 1 connection was refused in the 1.8 s after the listener closed (10.0.0.2)
              fix: shorten the preStop hook `/bin/sleep`: the hook and the shutdown need more than 5.0 s; the pod's own grace period of 60 s was not given: do not pass `--grace-period` to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the API server's audit log names this controller): then the pod's 60 s apply
              deletion requested with a grace period of 5 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
    // Next to it: the sleep was slept, and was too short.
    check(
        &refused("app.prestop=sleep:4", "+1.05 pod web deleted=+1:60", 5.1),
        expect![[r#"
            refused-connections: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; 1 connection was refused in the 1.8 s after the listener closed (10.0.0.2)
              fix: 1 connection was refused in the 1.8 s after the listener closed: a preStop sleep of 7 s would have avoided the refusals
              pre-stop-sleep-longer Some(7): container `app`: 1 connection refused in the 1.8 s after the listener closed; a preStop sleep of 7 s would have avoided this (including the 4.0 s of the present preStop hook); with the 1.9 s of the shutdown, this sleep fits in the grace period of 60 s
              deletion requested with a grace period of 60 s (time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
    // And one that the pod's own grace period cuts.
    let own = refused("app.prestop=sleep:30", "+1.05 pod web deleted=+1:10", 11.1);
    check(
        &own.replace("grace=60", "grace=10"),
        expect![[r#"
            refused-connections: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; the preStop sleep of 30 s was cut after 10.1 s, when the grace period of 10 s ended; 1 connection was refused in the 1.8 s after the listener closed (10.0.0.2)
              fix: 1 connection was refused, and the preStop sleep was cut: set terminationGracePeriodSeconds to at least 40, into which the preStop sleep of 30 s and the shutdown fit
              grace-longer Some(40): container `app` needed 12.0 s (preStop hook 10.1 s, shutdown 1.9 s) of a grace period of 10 s, and the preStop hook left only the kubelet's minimum of 2 s for the shutdown; set terminationGracePeriodSeconds to at least 40
              deletion requested with a grace period of 10 s (time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
}

/// The sleep fits into what the spec has, and would not have fitted into what the deletion gave.
#[test]
fn a_sleep_is_compared_with_the_grace_period_of_the_spec() {
    check(
        &refused("", "+1.05 pod web deleted=+1:2", 1.3),
        expect![[r#"
            refused-connections: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; 1 connection was refused in the 1.8 s after the listener closed (10.0.0.2)
              fix: 1 connection was refused in the 1.8 s after the listener closed: a preStop sleep of 3 s avoids the refusals in the pod's own grace period of 60 s, of which 2 s were given
              pre-stop-sleep-longer Some(3): container `app`: 1 connection refused in the 1.8 s after the listener closed; a preStop sleep of 3 s avoids this in the pod's own grace period of 60 s, of which 2 s were given; with the 1.9 s of the shutdown, this sleep fits in the grace period of 60 s in the pod's spec (the deletion asked for 2 s)
              deletion requested with a grace period of 2 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
    let second = "+1.05 pod web deleted=+1:60
        +1.2 pod web deleted=+1:2";
    check(
        &refused("", second, 1.3),
        expect![[r#"
            refused-connections: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; 1 connection was refused in the 1.8 s after the listener closed (10.0.0.2)
              fix: 1 connection was refused in the 1.8 s after the listener closed: a preStop sleep of 3 s avoids the refusals in the pod's own grace period of 60 s, of which 2 s were given
              pre-stop-sleep-longer Some(3): container `app`: 1 connection refused in the 1.8 s after the listener closed; a preStop sleep of 3 s avoids this in the pod's own grace period of 60 s, of which 2 s were given; with the 1.9 s of the shutdown, this sleep fits in the grace period of 60 s
              deletion requested with a grace period of 60 s (time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
}

/// `deleteOptions.gracePeriodSeconds: 0`: the object is gone at once. Or it stays for a finalizer, with the request.
#[test]
fn an_eviction_with_a_grace_period_of_0() {
    let evicted = "+1.02 pod web disruption=EvictionByEvictionAPI:evicted
        +1.05 gone web";
    let script = killed(evicted, 2)
        .replace("+3.7 pod web app=137:Error", "")
        .replace("+4.4 gone web", "");
    check(
        &script,
        expect![[r#"
            force-killed: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.1 s later; the pod's grace period is 60 s in its spec, 0 s asked for by the eviction; the pod was evicted through the Eviction API
              fix: the pod's own grace period of 60 s was not given: leave the grace period of evictions to the pod; what sets another one is `--grace-period` of `kubectl drain`, `--max-graceful-termination-sec` of the cluster autoscaler, `podTerminationGracePeriod` of the node termination handler, or `deleteOptions.gracePeriodSeconds` in the request of any other program that evicts the pod
        "#]],
    );
    let request = "+1.05 pod web deleted=+1:0 disruption=EvictionByEvictionAPI:evicted finalizer=example.com/x";
    check(
        &killed(request, 2),
        expect![[r#"
            force-killed: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.1 s later; the pod's grace period is 60 s in its spec, 0 s asked for by the eviction; the pod was evicted through the Eviction API
              fix: the pod's own grace period of 60 s was not given: leave the grace period of evictions to the pod; what sets another one is `--grace-period` of `kubectl drain`, `--max-graceful-termination-sec` of the cluster autoscaler, `podTerminationGracePeriod` of the node termination handler, or `deleteOptions.gracePeriodSeconds` in the request of any other program that evicts the pod
              deletion requested with a grace period of 0 s (60 s in the pod's spec; time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
    // A person's own `kubectl delete --force`.
    let script = script.replace("+1.02 pod web disruption=EvictionByEvictionAPI:evicted\n", "");
    check(
        &script,
        expect![[r#"
            force-killed: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.1 s later; the pod was force-deleted (grace period 0, 60 s in its spec)
              fix: the pod's own grace period of 60 s was not given: do not pass `--force` or `--grace-period` to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the API server's audit log names this controller): then the pod's 60 s apply
        "#]],
    );
}

/// A pod that is being evicted, and that somebody deletes by force before its grace period has ended.
#[test]
fn a_forced_deletion_of_an_evicted_pod_is_not_the_kubelets() {
    let evicted = |second: &str| {
        pod(
            "",
            &format!(
                "+1.3 TERM runc -> main handler
        +1.31 enter main TERM
        {second}
        +13.4 KILL runc -> main
        +13.41 exit main KILL
        +13.7 pod web app=137:Error phase=failed reason=Evicted"
            ),
        )
    };
    check(
        &evicted("+11.05 pod web deleted=+11:0"),
        expect![[r#"
            force-killed: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 12.1 s later; the pod was force-deleted (grace period 0, 60 s in its spec); the kubelet evicted the pod: the node or the pod ran out of a resource
              fix: the pod's own grace period of 60 s was not given: do not pass `--force` or `--grace-period` to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the API server's audit log names this controller): then the pod's 60 s apply
              deletion requested with a grace period of 0 s (60 s in the pod's spec; time known to within less than 1 ms, the clock of the API server was not compared)
        "#]],
    );
    // Next to it: nobody did.
    check(
        &evicted(""),
        expect![[r#"
            killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 12.1 s later; the pod's grace period is 60 s in its spec, and the kubelet's eviction did not wait for its end; the kubelet evicted the pod: the node or the pod ran out of a resource
              fix: the shutdown needs more than the 12.1 s that it got, and the threshold of the eviction is not known (the kubelet's log names it): a hard eviction waits for no grace period, a soft eviction waits at most for the kubelet's `evictionMaxPodGracePeriod`
        "#]],
    );
}

/// The status has no message of the eviction, or one about the pod's own limit, or about a resource that nobody can request.
#[test]
fn the_threshold_of_an_eviction() {
    let own = "disruption=TerminationByKubelet:Usage_of_EmptyDir_volume_cache_exceeds_the_limit_1Gi";
    check(
        &evicted(own),
        expect![[r#"
        killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.1 s later; the pod's grace period is 60 s in its spec, and the kubelet's eviction did not wait for its end; the kubelet evicted the pod: the node or the pod ran out of a resource ("Usage of EmptyDir volume cache exceeds the limit 1Gi")
          fix: the shutdown needs more than the 2.1 s that it got, and an eviction for a pod's own limit waits for no grace period: keep the pod's use of ephemeral storage within its limits
    "#]],
    );
    let pids = "disruption=TerminationByKubelet:The_node_was_low_on_resource:_pids";
    check(
        &evicted(pids),
        expect![[r#"
        killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.1 s later; the pod's grace period is 60 s in its spec, and the kubelet's eviction did not wait for its end; the kubelet evicted the pod: the node or the pod ran out of a resource ("The node was low on resource: pids")
          fix: the shutdown needs more than the 2.1 s that it got, and a hard eviction of the kubelet waits for no grace period, a soft one at most for its `evictionMaxPodGracePeriod`: give the kubelet an `evictionSoft` threshold with a longer `evictionMaxPodGracePeriod`, or find which pods use up the resource
    "#]],
    );
}

/// A liveness probe with a grace period of 5 s of its own, and the pod is deleted before the report.
#[test]
fn a_probes_grace_period_is_not_the_pods() {
    let rest = "+1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.4 event web app Killing at=+1 Container app failed liveness probe, will be restarted
        +6.4 KILL runc -> main
        +6.41 exit main KILL
        +6.5 pod web deleted=+6:60
        +6.8 pod web app=137:Error
        +7 gone web";
    check(
        &pod("app.liveness=exec:/bin/x app.liveness-grace=5", rest),
        expect![[r#"
        killed-after-grace: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later; the kubelet stopped the container because the liveness probe failed
          fix: find out why the livenessProbe failed (`kubectl describe pod` shows the answers), or give the probe more time (timeoutSeconds, failureThreshold); the shutdown needs more than the 5.1 s that it got: raise livenessProbe.terminationGracePeriodSeconds above 5 s, or shorten the shutdown
          deletion requested with a grace period of 60 s (time known to within 0.5 s, the clock of the API server was not compared)
    "#]],
    );
}

/// A hook and a sidecar that a second request left too little: a grace period of less than the spec has is no remedy.
#[test]
fn a_second_request_is_not_the_setting() {
    let rest = "
        +1.05 pod web deleted=+1:60
        proc hook in=web:app pid=110 ns=7 start=+1.1 parent=shim comm=sh
        +1.1 exec hook
        +2.1 pod web deleted=+2:4
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
            prestop-overran: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later; the preStop hook `/bin/sh` was still running when the grace period of 4 s ended, which left 2.0 s for the shutdown; a later delete request, 1.1 s after the first, shortened the grace period from 60 s to 4 s
              fix: shorten the preStop hook `/bin/sh`: the hook and the shutdown need more than 7.0 s; do not shorten the grace period with a second delete
              deletion requested with a grace period of 60 s (time known to within 50 ms, the clock of the API server was not compared)
        "#]],
    );
}

/// The watch showed the deletion 9.7 s after the stop, and then nothing until long after.
#[test]
fn a_deletion_after_the_stop_is_not_its_cause_where_an_outage_hides_the_kubelets_own_reason() {
    let script = pod(
        "",
        "+1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +11.05 pod web deleted=+11:0
        +13.4 KILL runc -> main
        +13.41 exit main KILL
        +13.6 api away",
    );
    let reports = run(&script).into_iter();
    let causes = reports.filter_map(|(_, report)| match report {
        Report::Terminated(of) => Some(of.verdict.cause),
        Report::PodTerminated(of) => Some(of.verdict.cause),
        _ => None,
    });
    assert_eq!(causes.collect::<Vec<_>>(), [Cause::Unknown], "{}", super::show(&run(&script)));
}

/// The runtime kills a hook at the end of the grace period, which nothing shows here.
#[test]
fn a_hook_that_was_killed_in_an_outage_need_not_have_failed() {
    let hook = "+1.05 api away
        proc hook in=web:app pid=110 ns=7 start=+1.1 parent=shim comm=sleep
        +1.1 exec hook
        +6.05 KILL runc -> hook
        +6.06 exit hook KILL";
    let script = refused("app.prestop=exec:/bin/sleep", hook, 6.1);
    let shown = super::sentences(&script);
    assert!(!shown.contains("failed"), "{shown}");
    // That a client was refused is proven, whatever the hook did.
    let headlines = |script: &str| {
        let of_pod = |(_, report)| match report {
            Report::PodTerminated(of) => Some((of.verdict.headline, of.verdict.unclean)),
            _ => None,
        };
        run(script).into_iter().filter_map(of_pod).collect::<Vec<_>>()
    };
    assert_eq!(headlines(&script), [("refused-connections", true)], "{shown}");
    // Next to it: nobody was refused.
    let quiet: Vec<&str> = script.lines().filter(|line| !line.contains(" refused ")).collect();
    assert_eq!(headlines(&quiet.join("\n")), [("unknown", false)]);
}
