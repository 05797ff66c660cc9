use expect_test::expect;

use super::*;

const KILLED: ExitStatus = ExitStatus::Signaled {
    signal: Signal::KILL,
    core_dumped: false,
};

#[test]
fn within_the_grace() {
    check(
        death().hook(0.2, 2.2, ExitStatus::Exited(0)).term(2.4).exit(2.6, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.2 s later
        "#]],
    );
}

#[test]
fn overran_and_the_process_was_not_done_in_the_two_seconds() {
    check(
        death().hook(0.2, 10.2, KILLED).term(10.3).kill(12.3),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 2.0 s later; its preStop `/drain.sh` was not done when the grace of 10 s was over and left it 2.0 s
              remedy: make the preStop `/drain.sh` shorter, or set terminationGracePeriodSeconds to at least 15 (the hook and the stop took more than 12.0 s)
              grace-longer None: container `app` needed more than the grace of 10 s: how much is not known, for it was not let finish
        "#]],
    );
}

#[test]
fn overran_and_the_process_was_quick() {
    check(
        death().hook(0.2, 10.2, KILLED).term(10.3).exit(10.4, 0),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.1 s later; its preStop `/drain.sh` was not done when the grace of 10 s was over
              remedy: make the preStop `/drain.sh` shorter, or set terminationGracePeriodSeconds to at least 15 (the hook and the stop took more than 10.0 s)
              grace-longer None: container `app` needed more than the grace of 10 s: how much is not known, for it was not let finish
        "#]],
    );
}

#[test]
fn overran_and_nobody_handles_the_signal() {
    check(
        death().hook(0.2, 10.2, KILLED).dropped_term(10.3).kill(12.3),
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 2.0 s later; its preStop `/drain.sh` was not done when the grace of 10 s was over and left it 2.0 s
              remedy: handle SIGTERM in PID 1 `app`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 2.0 s of waiting; make the preStop `/drain.sh` shorter, or set terminationGracePeriodSeconds to at least 15 (the hook and the stop took more than 12.0 s)
        "#]],
    );
}

#[test]
fn overran_and_the_signal_itself_ended_it() {
    check(
        death().hook(0.2, 10.2, KILLED).fatal_term(10.3),
        expect![[r#"
            default-action (Deleted, Quiet): container `app`: SIGTERM itself ended PID 1 `app`: it has no handler, so any work in flight was dropped; its preStop `/drain.sh` was not done when the grace of 10 s was over
              remedy: install a handler that finishes the work in flight and then exits with 0; make the preStop `/drain.sh` shorter, or set terminationGracePeriodSeconds to at least 15 (the hook and the stop took more than 10.0 s)
        "#]],
    );
}

#[test]
fn done_so_late_that_two_seconds_remain() {
    let late = || death().hook(0.2, 9.2, ExitStatus::Exited(0)).term(9.3);
    check(
        late().exit(10.3, 0),
        expect![[r#"
        clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 1.0 s later; its preStop `/drain.sh` took 9.0 s of the grace of 10 s
          grace-longer Some(15): container `app` needed 10.1 s (9.0 s of preStop, 1.0 s to stop) of a grace of 10 s: the preStop left it only the kubelet's minimum of two seconds; set terminationGracePeriodSeconds to at least 15
    "#]],
    );
    check(
        late().kill(11.3),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 2.0 s later; its preStop `/drain.sh` took 9.0 s of the grace of 10 s and left it 2.0 s
              remedy: make the preStop `/drain.sh` shorter, or set terminationGracePeriodSeconds to at least 15 (the hook and the stop took more than 11.0 s)
              grace-longer None: container `app` needed more than the grace of 10 s: how much is not known, for it was not let finish
        "#]],
    );
}

#[test]
fn an_old_kubelet_gave_the_full_grace_again() {
    check(
        death().hook(0.2, 9.2, ExitStatus::Exited(0)).term(9.3).kill(19.3),
        expect![[r#"
            killed-after-grace (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 10.0 s later; its preStop `/drain.sh` took 9.0 s of the grace of 10 s and left it 10.0 s
              remedy: it needs more than the 10.0 s it was given: raise terminationGracePeriodSeconds above 10 s, or finish the shutdown sooner
              grace-longer None: container `app` needed more than the grace of 10 s: how much is not known, for it was not let finish
        "#]],
    );
}

#[test]
fn failed() {
    check(
        death().hook(0.2, 0.3, ExitStatus::Exited(7)).term(0.5).exit(0.6, 0),
        expect![[r#"
            prestop-failed (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.1 s later; its preStop `/drain.sh` failed, so its work may not be done (exited with code 7)
              remedy: run the preStop `/drain.sh` by hand in the container: it exited with code 7
        "#]],
    );
    check(
        death().hook(0.2, 0.3, ExitStatus::Exited(7)).dropped_term(0.5).kill(10.5),
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 10.0 s later; its preStop `/drain.sh` failed, so its work may not be done (exited with code 7)
              remedy: handle SIGTERM in PID 1 `app`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 10.0 s of waiting; run the preStop `/drain.sh` by hand in the container: it exited with code 7
        "#]],
    );
}

#[test]
fn of_the_network_refused() {
    let hook = || PreStop::TcpSocket { port: Some(8080) };
    let message = "dial tcp 10.0.0.7:8080: connect: connection refused\u{1b}[2J";
    check(
        death().wait(hook(), 0.3, Some(message)).term(0.3).exit(0.4, 0),
        expect![[r#"
            prestop-failed (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.1 s later; its preStop tcpSocket failed, so its work may not be done (FailedPreStopHook: "dial tcp 10.0.0.7:8080: connect: connection refused\u{1b}[2J")
              remedy: find out why the preStop tcpSocket fails: its port may be closed, or its path wrong
        "#]],
    );
}

#[test]
fn of_the_network_and_nobody_knows_whether_it_failed() {
    let events_unknown = |k: &mut PodContext| {
        k.pre_stop.as_mut().expect("a hook").events_unknown = Some("the API server did not answer within 2s".into());
    };
    let hook = || PreStop::HttpGet { port: Some(8080) };
    check(
        death().wait(hook(), 0.3, None).with(events_unknown).term(0.3).exit(0.4, 0),
        expect![[r#"
            unknown (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.1 s later; whether its preStop httpGet, which took 0.3 s of the grace of 10 s, failed is not known: the API server did not answer within 2s
              remedy: see by `kubectl get events` whether its pod has a FailedPreStopHook; the API keeps it for an hour
        "#]],
    );
    let mut refused = death().wait(hook(), 0.3, None).with(events_unknown).term(0.3).exit(0.4, 0);
    refused.t.traffic.refused.count = 7;
    assert_eq!(refused.judged().verdict.headline, "refused-connections");
    // At about the end of the grace it may have been cut, too.
    check(
        death().wait(hook(), 10.2, None).with(events_unknown).term(10.2).exit(10.3, 0),
        expect![[r#"
            unknown (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.1 s later; whether its preStop httpGet, which took 10.2 s of the grace of 10 s, failed is not known: the API server did not answer within 2s
              remedy: see by `kubectl get events` whether its pod has a FailedPreStopHook; the API keeps it for an hour
        "#]],
    );
    check(
        death().wait(hook(), 9.2, None).with(events_unknown).term(9.3).kill(11.3),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 2.0 s later; whether its preStop httpGet, which took 9.2 s of the grace of 10 s and left it 2.0 s, failed is not known: the API server did not answer within 2s
              remedy: make the preStop httpGet shorter, or set terminationGracePeriodSeconds to at least 15 (the hook and the stop took more than 11.2 s)
              grace-longer None: container `app` needed more than the grace of 10 s: how much is not known, for it was not let finish
        "#]],
    );
    // Its own fault stands.
    check(
        death()
            .wait(hook(), 0.3, None)
            .with(events_unknown)
            .dropped_term(0.3)
            .kill(10.5),
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 10.2 s later; whether its preStop httpGet, which took 0.3 s of the grace of 10 s and left it 10.2 s, failed is not known: the API server did not answer within 2s
              remedy: handle SIGTERM in PID 1 `app`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 10.2 s of waiting
        "#]],
    );
    check(
        death()
            .wait(PreStop::Sleep { seconds: 5 }, 5.2, None)
            .with(events_unknown)
            .term(5.2)
            .exit(5.3, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.1 s later; its preStop sleep of 5 s took 5.2 s of the grace of 10 s
        "#]],
    );
}

#[test]
fn of_the_network_hung() {
    let hook = || PreStop::HttpGet { port: Some(8080) };
    check(
        death().wait(hook(), 10.2, None).term(10.2).exit(10.3, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.1 s later; its preStop httpGet took all of the grace of 10 s
              grace-longer Some(15): container `app` needed 10.3 s (10.2 s of preStop, 0.1 s to stop) of a grace of 10 s: the preStop left it only the kubelet's minimum of two seconds; set terminationGracePeriodSeconds to at least 15
        "#]],
    );
    // Whether it was done or cut at about the grace nobody can say, so it is not held against it.
    check(
        death().wait(hook(), 9.5, None).term(9.5).exit(9.6, 0),
        expect![[r#"
        clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.1 s later; its preStop httpGet took all of the grace of 10 s
          grace-longer Some(15): container `app` needed 9.6 s (9.5 s of preStop, 0.1 s to stop) of a grace of 10 s: the preStop left it only the kubelet's minimum of two seconds; set terminationGracePeriodSeconds to at least 15
    "#]],
    );
}

#[test]
fn a_sleep_as_long_as_the_grace_loses_nothing_itself() {
    let hook = || PreStop::Sleep { seconds: 10 };
    check(
        death().wait(hook(), 10.2, None).term(10.2).exit(10.3, 0),
        expect![[r#"
        clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.1 s later; its preStop sleep of 10 s took 10.2 s of the grace of 10 s
          grace-longer Some(15): container `app` needed 10.3 s (10.2 s of preStop, 0.1 s to stop) of a grace of 10 s: the preStop left it only the kubelet's minimum of two seconds; set terminationGracePeriodSeconds to at least 15
    "#]],
    );
    check(
        death().wait(hook(), 10.2, None).term(10.2).kill(12.2),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 2.0 s later; its preStop sleep of 10 s took 10.2 s of the grace of 10 s and left it 2.0 s
              remedy: make the preStop sleep of 10 s shorter, or set terminationGracePeriodSeconds to at least 15 (the hook and the stop took more than 12.2 s)
              grace-longer None: container `app` needed more than the grace of 10 s: how much is not known, for it was not let finish
        "#]],
    );
}

#[test]
fn that_stops_the_server_itself() {
    check(
        death().hook(0.2, 1.3, KILLED).exit(1.3, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: PID 1 `app` exited with code 0; no stop signal to it was seen; it ended while its preStop `/drain.sh` ran, 1.1 s after that began
        "#]],
    );
}

#[test]
fn what_the_verdict_rests_on() {
    evidence(
        death().hook(0.2, 10.2, KILLED).term(10.3).kill(12.3),
        expect![[r#"
            +0.0 kubernetes: deletion asked for, with a grace of 10 s (the time is known to 0.9 s)
            +0.0 kubernetes: why it had to end: deletionTimestamp
            +0.2 kubernetes: preStop `/drain.sh` began; its process was seen
            +10.2 kubernetes: preStop `/drain.sh` was cut
            +10.3 signal_generate: SIGTERM from `runc` (pid 812, on the host, child of `containerd-shim`) (its runtime) to PID 1 `app`: delivered, it has a handler
            +10.3 signal_deliver: PID 1 `app` entered its handler for SIGTERM
            +12.3 signal_generate: SIGKILL from `runc` (pid 812, on the host, child of `containerd-shim`) (its runtime) to PID 1 `app`
            +12.3 sched_process_exit: PID 1 `app` was ended by SIGKILL
        "#]],
    );
}
