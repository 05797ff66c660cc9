use expect_test::expect;

use super::*;

const KILLED: ExitStatus = ExitStatus::Signaled {
    signal: Signal::KILL,
    core_dumped: false,
};

#[test]
fn within_the_grace() {
    check(
        termination().hook(0.2, 2.2, ExitStatus::Exited(0)).term(2.4).exit(2.6, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later
        "#]],
    );
}

#[test]
fn overran_and_the_process_was_not_done_in_the_two_seconds() {
    check(
        termination().hook(0.2, 10.2, KILLED).term(10.3).kill(12.3),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later; the preStop hook `/drain.sh` was still running when the grace period of 10 s ended, which left 2.0 s for the shutdown
              remedy: shorten the preStop hook `/drain.sh`, or set terminationGracePeriodSeconds to at least 15 (the hook and the shutdown need more than 12.0 s)
              grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
        "#]],
    );
}

#[test]
fn overran_and_the_process_was_quick() {
    check(
        termination().hook(0.2, 10.2, KILLED).term(10.3).exit(10.4, 0),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later; the preStop hook `/drain.sh` was still running when the grace period of 10 s ended
              remedy: shorten the preStop hook `/drain.sh`, or set terminationGracePeriodSeconds to at least 15 (the hook and the shutdown need more than 10.0 s)
              grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
        "#]],
    );
}

#[test]
fn overran_without_a_handler() {
    check(
        termination().hook(0.2, 10.2, KILLED).dropped_term(10.3).kill(12.3),
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `app`: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 2.0 s later; the preStop hook `/drain.sh` was still running when the grace period of 10 s ended, which left 2.0 s for the shutdown
              remedy: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 2.0 s; shorten the preStop hook `/drain.sh`, or set terminationGracePeriodSeconds to at least 15 (the hook and the shutdown need more than 12.0 s)
        "#]],
    );
}

#[test]
fn overran_and_the_signal_itself_ended_it() {
    check(
        termination().hook(0.2, 10.2, KILLED).fatal_term(10.3),
        expect![[r#"
            default-action (Deleted, Quiet): container `app`: SIGTERM terminated PID 1 `app`: the process has no SIGTERM handler, so any work in flight was lost; the preStop hook `/drain.sh` was still running when the grace period of 10 s ended
              remedy: install a handler that finishes the work in flight and then exits with 0; shorten the preStop hook `/drain.sh`, or set terminationGracePeriodSeconds to at least 15 (the hook and the shutdown need more than 10.0 s)
        "#]],
    );
}

#[test]
fn done_so_late_that_two_seconds_remain() {
    let late = || termination().hook(0.2, 9.2, ExitStatus::Exited(0)).term(9.3);
    check(
        late().exit(10.3, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; the preStop hook `/drain.sh` took 9.0 s of the grace period of 10 s
              grace-longer Some(15): container `app` needed 10.1 s (preStop hook 9.0 s, shutdown 1.0 s) of a grace period of 10 s, and the preStop hook left only the kubelet's minimum of 2 s for the shutdown; set terminationGracePeriodSeconds to at least 15
        "#]],
    );
    check(
        late().kill(11.3),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later; the preStop hook `/drain.sh` took 9.0 s of the grace period of 10 s, which left 2.0 s for the shutdown
              remedy: shorten the preStop hook `/drain.sh`, or set terminationGracePeriodSeconds to at least 15 (the hook and the shutdown need more than 11.0 s)
              grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
        "#]],
    );
}

#[test]
fn an_old_kubelet_gave_the_full_grace_again() {
    check(
        termination().hook(0.2, 9.2, ExitStatus::Exited(0)).term(9.3).kill(19.3),
        expect![[r#"
            killed-after-grace (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later; the preStop hook `/drain.sh` took 9.0 s of the grace period of 10 s, which left 10.0 s for the shutdown
              remedy: the shutdown needs more than the 10.0 s that it got: raise terminationGracePeriodSeconds above 10 s, or shorten the shutdown
              grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
        "#]],
    );
}

#[test]
fn failed() {
    check(
        termination().hook(0.2, 0.3, ExitStatus::Exited(7)).term(0.5).exit(0.6, 0),
        expect![[r#"
            prestop-failed (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later; the preStop hook `/drain.sh` failed (exited with code 7), so the work of the hook may be incomplete
              remedy: run the preStop hook `/drain.sh` by hand in the container: the hook exited with code 7
        "#]],
    );
    check(
        termination()
            .hook(0.2, 0.3, ExitStatus::Exited(7))
            .dropped_term(0.5)
            .kill(10.5),
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `app`: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later; the preStop hook `/drain.sh` failed (exited with code 7), so the work of the hook may be incomplete
              remedy: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s; run the preStop hook `/drain.sh` by hand in the container: the hook exited with code 7
        "#]],
    );
}

#[test]
fn of_the_network_refused() {
    let hook = || PreStop::TcpSocket { port: Some(8080) };
    let message = "dial tcp 10.0.0.7:8080: connect: connection refused\u{1b}[2J";
    check(
        termination().wait(hook(), 0.3, Some(message)).term(0.3).exit(0.4, 0),
        expect![[r#"
            prestop-failed (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later; the preStop tcpSocket hook failed (FailedPreStopHook: "dial tcp 10.0.0.7:8080: connect: connection refused\u{1b}[2J"), so the work of the hook may be incomplete
              remedy: find out why the preStop tcpSocket hook fails: the port may be closed, or the path wrong
        "#]],
    );
}

#[test]
fn of_the_network_with_an_unknown_result() {
    let events_unknown = |k: &mut PodContext| {
        k.pre_stop.as_mut().expect("a hook").events_unknown = Some("the API server did not answer within 2s".into());
    };
    let hook = || PreStop::HttpGet { port: Some(8080) };
    check(
        termination()
            .wait(hook(), 0.3, None)
            .with(events_unknown)
            .term(0.3)
            .exit(0.4, 0),
        expect![[r#"
            unknown (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later; the preStop httpGet hook took 0.3 s of the grace period of 10 s, and its result is unknown: the API server did not answer within 2s
              remedy: look for an Event FailedPreStopHook of the pod with `kubectl get events` (the API server keeps Events for an hour)
        "#]],
    );
    let mut refused = termination()
        .wait(hook(), 0.3, None)
        .with(events_unknown)
        .term(0.3)
        .exit(0.4, 0);
    refused.t.traffic.refused.all.count = 7;
    assert_eq!(refused.judged().verdict.headline, "refused-connections");
    // At about the end of the grace it may have been cut, too.
    check(
        termination()
            .wait(hook(), 10.2, None)
            .with(events_unknown)
            .term(10.2)
            .exit(10.3, 0),
        expect![[r#"
            unknown (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later; the preStop httpGet hook took 10.2 s of the grace period of 10 s, and its result is unknown: the API server did not answer within 2s
              remedy: look for an Event FailedPreStopHook of the pod with `kubectl get events` (the API server keeps Events for an hour)
        "#]],
    );
    check(
        termination()
            .wait(hook(), 9.2, None)
            .with(events_unknown)
            .term(9.3)
            .kill(11.3),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later; the preStop httpGet hook took 9.2 s of the grace period of 10 s, which left 2.0 s for the shutdown, and its result is unknown: the API server did not answer within 2s
              remedy: shorten the preStop httpGet hook, or set terminationGracePeriodSeconds to at least 15 (the hook and the shutdown need more than 11.2 s)
              grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
        "#]],
    );
    // Its own fault stands.
    check(
        termination()
            .wait(hook(), 0.3, None)
            .with(events_unknown)
            .dropped_term(0.3)
            .kill(10.5),
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `app`: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.2 s later; the preStop httpGet hook took 0.3 s of the grace period of 10 s, which left 10.2 s for the shutdown, and its result is unknown: the API server did not answer within 2s
              remedy: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.2 s
        "#]],
    );
    check(
        termination()
            .wait(PreStop::Sleep { seconds: 5 }, 5.2, None)
            .with(events_unknown)
            .term(5.2)
            .exit(5.3, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later; the preStop sleep of 5 s took 5.2 s of the grace period of 10 s
        "#]],
    );
}

#[test]
fn of_the_network_hung() {
    let hook = || PreStop::HttpGet { port: Some(8080) };
    check(
        termination().wait(hook(), 10.2, None).term(10.2).exit(10.3, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later; the preStop httpGet hook used all of the grace period of 10 s
              grace-longer Some(15): container `app` needed 10.3 s (preStop hook 10.2 s, shutdown 0.1 s) of a grace period of 10 s, and the preStop hook left only the kubelet's minimum of 2 s for the shutdown; set terminationGracePeriodSeconds to at least 15
        "#]],
    );
    // No evidence shows whether the hook finished or was cut near the end of the grace period, so the verdict stays clean.
    check(
        termination().wait(hook(), 9.5, None).term(9.5).exit(9.6, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later; the preStop httpGet hook used all of the grace period of 10 s
              grace-longer Some(15): container `app` needed 9.6 s (preStop hook 9.5 s, shutdown 0.1 s) of a grace period of 10 s, and the preStop hook left only the kubelet's minimum of 2 s for the shutdown; set terminationGracePeriodSeconds to at least 15
        "#]],
    );
}

#[test]
fn a_sleep_as_long_as_the_grace_loses_nothing_itself() {
    let hook = || PreStop::Sleep { seconds: 10 };
    check(
        termination().wait(hook(), 10.2, None).term(10.2).exit(10.3, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later; the preStop sleep of 10 s took 10.2 s of the grace period of 10 s
              grace-longer Some(15): container `app` needed 10.3 s (preStop hook 10.2 s, shutdown 0.1 s) of a grace period of 10 s, and the preStop hook left only the kubelet's minimum of 2 s for the shutdown; set terminationGracePeriodSeconds to at least 15
        "#]],
    );
    check(
        termination().wait(hook(), 10.2, None).term(10.2).kill(12.2),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later; the preStop sleep of 10 s took 10.2 s of the grace period of 10 s, which left 2.0 s for the shutdown
              remedy: shorten the preStop sleep of 10 s, or set terminationGracePeriodSeconds to at least 15 (the hook and the shutdown need more than 12.2 s)
              grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
        "#]],
    );
}

#[test]
fn that_stops_the_server_itself() {
    check(
        termination().hook(0.2, 1.3, KILLED).exit(1.3, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: PID 1 `app` exited with code 0; no stop signal was seen; the main process exited while the preStop hook `/drain.sh` was running, 1.1 s after the hook started
        "#]],
    );
}

#[test]
fn what_the_verdict_rests_on() {
    evidence(
        termination().hook(0.2, 10.2, KILLED).term(10.3).kill(12.3),
        expect![[r#"
            +0.0 kubernetes: deletion requested with a grace period of 10 s (time known to within 0.9 s)
            +0.0 kubernetes: reason for the termination: deletionTimestamp
            +0.2 kubernetes: preStop hook `/drain.sh` started; the process of the hook was observed
            +10.2 kubernetes: preStop hook `/drain.sh` was still running when the grace period ended
            +10.3 signal_generate: SIGTERM from `runc` (pid 812, on the host, child of `containerd-shim`), the container runtime, to PID 1 `app`: delivered, handler installed
            +10.3 signal_deliver: PID 1 `app` entered the SIGTERM handler
            +12.3 signal_generate: SIGKILL from `runc` (pid 812, on the host, child of `containerd-shim`), the container runtime, to PID 1 `app`
            +12.3 sched_process_exit: PID 1 `app` was terminated by SIGKILL
        "#]],
    );
}

/// A pod that was deleted by force while its container shut down: its grace period is 0 then.
#[test]
fn the_grace_period_of_a_hook_is_the_one_that_it_had() {
    let forced = |seen: f64| {
        let ended = termination()
            .wait(PreStop::Sleep { seconds: 6 }, 6.1, None)
            .term(6.1)
            .exit(6.5, 0);
        let ended = ended.with(|k| {
            k.grace = Some(Duration::ZERO);
            k.request.as_mut().unwrap().shortened = vec![(at(seen), Duration::ZERO)];
        });
        ended.judged().verdict.sentence
    };
    let after = forced(6.3);
    assert!(
        after.contains("the preStop sleep of 6 s took 6.1 s of the grace period of 10 s"),
        "{after}"
    );
    let before = forced(1.0);
    assert!(
        before.contains("took 6.1 s of the requested grace period of 10 s, which a later deletion shortened to 0 s"),
        "{before}"
    );
}
