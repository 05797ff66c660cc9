//! Advice from what clients saw.

use std::time::Duration;

use expect_test::expect;

use super::*;

fn count(count: u64, first: f64, last: f64) -> Count {
    Count {
        count,
        first: at(first),
        last: at(last),
    }
}

/// Stopped from `stop` to `end`, its listener closed at `closed`, and refused clients up to `last`.
pub fn refused(ended: Builder, stop: f64, closed: f64, last: f64, end: f64) -> Builder {
    let mut ended = ended.term(stop).exit(end, 0);
    ended.t.traffic.listeners.push(ListenerClosed {
        at: at(closed),
        local: ([10, 0, 0, 7], 8080).into(),
        by_exit: false,
    });
    ended.t.traffic.refused.all = count(14, closed, last);
    ended.t.traffic.kubelet.known = true;
    ended
}

#[test]
fn cut_connections_are_as_critical_with_an_error_code() {
    let severity = |code: u8, cut: u64| {
        let mut ended = termination().term(0.2).exit(0.5, code);
        ended.t.traffic.cut = count(cut, 0.5, 0.5);
        ended.judged().verdict.severity
    };
    assert_eq!([severity(0, 3), severity(1, 3)], [Severity::Critical; 2]);
    assert_eq!(severity(1, 0), Severity::Warning);
}

#[test]
fn a_sleep_that_fits() {
    check(
        refused(termination(), 0.2, 0.3, 2.4, 1.2),
        expect![[r#"
            refused-connections (Deleted, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 14 connections were refused in the 2.1 s after the listener closed
              remedy: 14 connections were refused in the 2.1 s after the listener closed: a preStop sleep of 3 s would have avoided the refusals
              pre-stop-sleep-longer Some(3): container `app`: 14 connections refused in the 2.1 s after the listener closed; a preStop sleep of 3 s would have avoided this; with the 1.0 s of the shutdown, this sleep fits in the grace period of 10 s
        "#]],
    );
}

#[test]
fn a_sleep_that_was_too_short() {
    let slept = termination().wait(PreStop::Sleep { seconds: 2 }, 2.1, None);
    check(
        refused(slept, 2.1, 2.2, 3.4, 3.0),
        expect![[r#"
            refused-connections (Deleted, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.9 s later; 14 connections were refused in the 1.2 s after the listener closed
              remedy: 14 connections were refused in the 1.2 s after the listener closed: a preStop sleep of 4 s would have avoided the refusals
              pre-stop-sleep-longer Some(4): container `app`: 14 connections refused in the 1.2 s after the listener closed; a preStop sleep of 4 s would have avoided this (including the 2.1 s of the present preStop hook); with the 0.9 s of the shutdown, this sleep fits in the grace period of 10 s
        "#]],
    );
}

#[test]
fn a_sleep_that_does_not_fit() {
    check(
        refused(termination(), 0.2, 0.3, 7.3, 6.2),
        expect![[r#"
            refused-connections (Deleted, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 6.0 s later; 14 connections were refused in the 7.0 s after the listener closed
              remedy: 14 connections were refused in the 7.0 s after the listener closed: a preStop sleep of 8 s would have avoided the refusals
              pre-stop-sleep-longer Some(8): container `app`: 14 connections refused in the 7.0 s after the listener closed; a preStop sleep of 8 s would have avoided this; with the 6.0 s of the shutdown, this sleep needs a grace period of at least 20 s, not 10 s
              accept-while-draining None: container `app` closed the listener while clients were still trying to connect (14 connections refused in the 7.0 s after the listener closed): keep accepting after the stop signal until clients stop connecting
        "#]],
    );
}

#[test]
fn clients_who_had_not_stopped_coming() {
    let mut ended = refused(termination(), 0.2, 0.3, 3.0, 1.2);
    ended.t.traffic.refused.goes_on = true;
    check(
        ended,
        expect![[r#"
            refused-connections (Deleted, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 14 connections were refused in the 2.7 s after the listener closed, and clients were still trying to connect when counting stopped
              remedy: 14 connections were refused, and clients were still trying to connect when counting stopped: keep accepting after the stop signal until clients stop connecting, or send clients elsewhere before the stop
              pre-stop-sleep-longer Some(4): container `app`: 14 connections refused in the 2.7 s after the listener closed; a preStop sleep of 4 s would have avoided this; with the 1.0 s of the shutdown, this sleep fits in the grace period of 10 s; clients were still trying to connect when counting stopped, so more may be needed
              accept-while-draining None: container `app` closed the listener while clients were still trying to connect (14 connections refused in the 2.7 s after the listener closed): keep accepting after the stop signal until clients stop connecting
        "#]],
    );
}

/// Records were lost, or the observation ended before all clients had stopped.
#[test]
fn counts_of_clients_who_were_not_all_seen_are_the_least() {
    let mut ended = refused(termination(), 0.2, 0.3, 2.4, 1.2);
    ended.t.traffic.observed = false;
    check(
        ended,
        expect![[r#"
            refused-connections (Deleted, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; at least 14 connections were refused in the 2.1 s after the listener closed
              remedy: at least 14 connections were refused in the 2.1 s after the listener closed: a preStop sleep of at least 3 s would have avoided the refusals
              pre-stop-sleep-longer Some(3): container `app`: at least 14 connections refused in the 2.1 s after the listener closed; a preStop sleep of at least 3 s would have avoided this; with the 1.0 s of the shutdown, this sleep fits in the grace period of 10 s
        "#]],
    );
}

#[test]
fn a_restart_is_not_saved_by_a_sleep() {
    check(
        refused(termination().unasked(), 0.2, 0.3, 2.4, 1.2),
        expect![[r#"
            refused-connections (Restart, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; the kubelet stopped the container, and no evidence shows why; 14 connections were refused in the 2.1 s after the listener closed
              remedy: 14 connections were refused while the container restarted, where a preStop sleep does not help: run another replica, and add a readiness probe that fails early
        "#]],
    );
}

/// Only a restart in place is one, and not every stop without a deletion request restarts anything.
#[test]
fn clients_of_a_pod_that_nobody_deleted() {
    let remedy = |cause| {
        let stopped = termination().unasked().with(|k| {
            k.stop_reason = Some(StopReason {
                cause,
                evidence: "evidence".to_owned(),
                detail: None,
            });
        });
        let ended = refused(stopped, 0.2, 0.3, 2.4, 1.2);
        ended.judged().verdict.remedy.expect("a remedy")
    };
    let of = |cause, words: &str| {
        let remedy = remedy(cause);
        assert!(remedy.contains(words), "{cause:?}: {remedy}");
        assert_eq!(
            remedy.contains("restarted in place"),
            cause == Cause::RestartInPlace,
            "{remedy}"
        );
    };
    of(Cause::RestartInPlace, "while the pod restarted in place");
    of(
        Cause::Liveness,
        "while the container restarted, where a preStop sleep does not help",
    );
    of(Cause::NodeShutdown, "drain the node first");
    of(Cause::EvictedNodePressure, "keep accepting after the stop signal");
    of(
        Cause::Deadline,
        "nobody had requested the pod's deletion, so proxies did not send the clients elsewhere",
    );
}

/// Nothing is claimed about a request that may not have been shown, and a deletion is one.
#[test]
fn clients_of_a_pod_whose_request_was_not_shown() {
    let remedy = |cause, change: fn(&mut PodContext)| {
        let stopped = termination().unasked().with(|k| {
            k.stop_reason = Some(StopReason {
                cause,
                evidence: "evidence".to_owned(),
                detail: None,
            });
            change(k);
        });
        refused(stopped, 0.2, 0.3, 2.4, 1.2)
            .judged()
            .verdict
            .remedy
            .expect("a remedy")
    };
    let at_once = |k: &mut PodContext| {
        k.grace = Some(Duration::ZERO);
        k.own_grace = Some(Duration::from_secs(60));
    };
    for cause in [Cause::Deleted, Cause::EvictedApi, Cause::EvictedTaint] {
        let remedy = remedy(cause, at_once);
        assert!(remedy.contains("while the deletion gave no time: "), "{cause:?}: {remedy}");
        assert!(remedy.contains("60 s"), "{remedy}");
    }
    let away = |k: &mut PodContext| k.unshown = vec![Unshown::Request];
    for remedy in [
        remedy(Cause::Deleted, away),
        remedy(Cause::Deadline, away),
        remedy(Cause::Unknown, |_| ()),
        remedy(Cause::EvictedNodePressure, away),
    ] {
        assert!(remedy.contains("whether a deletion was requested is unknown"), "{remedy}");
    }
}

fn of_port(port: u16, at_: f64) -> ListenerClosed {
    ListenerClosed {
        at: at(at_),
        local: ([10, 0, 0, 7], port).into(),
        by_exit: false,
    }
}

fn all(all: Count) -> PortRefused {
    PortRefused {
        all,
        ..PortRefused::default()
    }
}

/// The admin's listener closes at the stop signal, the other when it is drained.
#[test]
fn a_sleep_for_the_port_that_was_refused() {
    let mut ended = termination().grace(30).term(0.2).exit(21.0, 0);
    ended.t.traffic.listeners = vec![of_port(9090, 0.3), of_port(8080, 20.0)];
    ended.t.traffic.refused.all = count(3, 20.0, 21.0);
    ended.t.traffic.refused.by_port = [(8080, all(ended.t.traffic.refused.all))].into();
    check(
        ended,
        expect![[r#"
            refused-connections (Deleted, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 20.8 s later; 3 connections were refused in the 1.0 s after the listener closed
              remedy: 3 connections were refused in the 1.0 s after the listener closed: a preStop sleep of 2 s would have avoided the refusals
              pre-stop-sleep-longer Some(2): container `app`: 3 connections refused in the 1.0 s after the listener closed; a preStop sleep of 2 s would have avoided this; with the 20.8 s of the shutdown, this sleep fits in the grace period of 30 s
        "#]],
    );
}

#[test]
fn a_hook_that_closes_the_listener_covers_clients_until_then() {
    let drains = || termination().grace(60).hook(0.0, 10.0, ExitStatus::Exited(0));
    check(
        refused(drains(), 10.1, 1.0, 3.0, 10.3),
        expect![[r#"
            refused-connections (Deleted, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later; 14 connections were refused in the 2.0 s after the listener closed
              remedy: 14 connections were refused in the 2.0 s after the listener closed: a preStop sleep of 4 s would have avoided the refusals
              pre-stop-sleep-longer Some(4): container `app`: 14 connections refused in the 2.0 s after the listener closed; a preStop sleep of 4 s would have avoided this (including the 1.0 s of the present preStop hook); with the 0.2 s of the shutdown, this sleep fits in the grace period of 60 s
        "#]],
    );
    // Two ports: the sleep is for the one that needs more, although its clients were refused for less.
    let mut ended = refused(drains(), 10.1, 1.0, 4.0, 10.3);
    ended.t.traffic.listeners.push(of_port(9090, 10.2));
    ended.t.traffic.refused.by_port = [(8080, all(count(10, 1.0, 4.0))), (9090, all(count(4, 10.3, 12.2)))].into();
    check(
        ended,
        expect![[r#"
            refused-connections (Deleted, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later; 14 connections were refused in the 3.0 s after the listener closed
              remedy: 14 connections were refused in the 3.0 s after the listener closed: a preStop sleep of 14 s would have avoided the refusals
              pre-stop-sleep-longer Some(14): container `app`: 14 connections refused in the 3.0 s after the listener closed; a preStop sleep of 14 s would have avoided this (including the 10.0 s of the present preStop hook); with the 0.2 s of the shutdown, this sleep fits in the grace period of 60 s
        "#]],
    );
}

/// Its hook began at the request, but its stop came only when the main containers had ended.
#[test]
fn a_sidecars_sleep_counts_from_the_request() {
    let sidecar = |grace: u64, hook: fn(Builder) -> Builder| {
        let sidecar = hook(termination()).with(|k| {
            k.kind = Some(ContainerKind::Sidecar);
            k.grace = Some(Duration::from_secs(grace));
            k.request.as_mut().unwrap().spec_grace = k.grace;
            k.mains = Some(Mains::ended(at(20.0)));
        });
        refused(sidecar, 20.0, 20.1, 23.1, 21.0)
    };
    let sleep = |ended: Builder| ended.wait(PreStop::Sleep { seconds: 10 }, 20.0, None);
    check(
        sidecar(60, sleep),
        expect![[r#"
            refused-connections (Deleted, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 14 connections were refused in the 3.0 s after the listener closed
              remedy: 14 connections were refused in the 3.0 s after the listener closed: a preStop sleep of 26 s would have avoided the refusals
              pre-stop-sleep-longer Some(26): container `app`: 14 connections refused in the 3.0 s after the listener closed; a preStop sleep of 26 s would have avoided this (including the 20.0 s from the deletion request to the stop signal); with the 1.0 s of the shutdown, this sleep fits in the grace period of 60 s in the pod's spec (the deletion asked for 10 s)
        "#]],
    );
    // Seen or not, or none at all: the same.
    let advice = |ended: Builder| ended.judged().verdict.advice;
    let seen = |ended: Builder| ended.hook(0.1, 10.1, ExitStatus::Exited(0));
    assert_eq!(advice(sidecar(60, seen)), advice(sidecar(60, sleep)));
    assert_eq!(advice(sidecar(60, |ended| ended)), advice(sidecar(60, sleep)));
    check(
        sidecar(25, sleep),
        expect![[r#"
            refused-connections (Deleted, Refused): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 14 connections were refused in the 3.0 s after the listener closed
              remedy: 14 connections were refused in the 3.0 s after the listener closed: a preStop sleep of 26 s would have avoided the refusals
              pre-stop-sleep-longer Some(26): container `app`: 14 connections refused in the 3.0 s after the listener closed; a preStop sleep of 26 s would have avoided this (including the 20.0 s from the deletion request to the stop signal); with the 1.0 s of the shutdown, this sleep needs a grace period of at least 35 s, not 25 s in the pod's spec (the deletion asked for 10 s)
              accept-while-draining None: container `app` closed the listener while clients were still trying to connect (14 connections refused in the 3.0 s after the listener closed): keep accepting after the stop signal until clients stop connecting
        "#]],
    );
}

/// Slept 25 s, with that many new connections in the first 1.4 s.
fn slept(accepted: u64) -> Builder {
    let mut ended = termination()
        .wait(PreStop::Sleep { seconds: 25 }, 25.0, None)
        .grace(60)
        .term(25.0)
        .exit(25.2, 0);
    ended.t.traffic.since = Some(at(0.0));
    ended.t.traffic.accepted = count(accepted, 0.1, 1.4);
    ended
}

#[test]
fn a_sleep_far_longer_than_clients_came() {
    check(
        slept(31),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later
              pre-stop-sleep-shorter Some(2): the preStop hook of container `app` slept 25.0 s, and the last of 31 new connections came 1.4 s after the sleep began: 2 s would have been enough
        "#]],
    );
    check(
        slept(0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later
        "#]],
    );
}

#[test]
fn a_silence_counts_only_after_many_clients() {
    let advice = |ended: Builder| {
        let advice = ended.judged().verdict.advice;
        advice.iter().map(|a| (a.kind.name(), a.seconds)).collect::<Vec<_>>()
    };
    let shorter = [("pre-stop-sleep-shorter", Some(2))];
    assert_eq!(advice(slept(20)), shorter);
    assert!(advice(slept(19)).is_empty());
    let mut one = slept(1);
    one.t.traffic.accepted.last = at(0.1);
    assert!(advice(one).is_empty());
    let lost: [fn(&mut Traffic, Count); 4] = [
        |traffic, lost| traffic.refused.all = lost,
        |traffic, lost| traffic.reset = lost,
        |traffic, lost| traffic.cut = lost,
        |traffic, lost| traffic.rejected = lost,
    ];
    for lose in lost {
        let mut ended = slept(31);
        lose(&mut ended.t.traffic, count(1, 25.1, 25.1));
        assert!(advice(ended).is_empty());
    }
}

#[test]
fn evidence_names_its_source() {
    let mut ended = refused(termination(), 0.2, 0.3, 2.4, 1.2);
    ended.t.traffic.since = Some(at(-1.0));
    ended.t.traffic.accepted = count(5, -0.9, 0.25);
    ended.t.traffic.refused.source = RefusedSource::ClientError;
    ended.t.traffic.kubelet.known = false;
    evidence(
        ended,
        expect![[r#"
            -0.9 tcp: 5 connections accepted since the deletion request, the last one 1.2 s after the request
            +0.0 kubernetes: deletion requested with a grace period of 10 s (time known to within 0.9 s)
            +0.0 kubernetes: reason for the termination: deletionTimestamp
            +0.2 signal_generate: SIGTERM from `runc` (pid 812, on the host, child of `containerd-shim`), the container runtime, to PID 1 `app`: delivered, handler installed
            +0.2 signal_deliver: PID 1 `app` entered the SIGTERM handler
            +0.3 tcp: listener 10.0.0.7:8080 closed by close()
            +0.3 tcp: 14 connections refused, counted only for clients on this machine that did not use a Service: no reset by the server was seen; kubelet probes may be included: the cgroup of the kubelet is unknown, or records of its connections were lost
            +1.2 sched_process_exit: PID 1 `app` exited with code 0
        "#]],
    );
}
