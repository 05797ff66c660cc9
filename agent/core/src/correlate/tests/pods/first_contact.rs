//! Containers that ran before the agent: doubt is limited to what could have happened before.

use expect_test::expect;

use super::{check, check_sentences};

/// The pod of the other tests, running since a minute; the agent starts now, and the API shows the pod a moment later.
fn before(rest: &str) -> String {
    format!(
        "
        +0 start
        +0.001 api synced
        pod web app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        +0.002 found pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        +0.003 found main
        +0.1 pod web app=running
        {rest}"
    )
}

/// The container restarts after this exit.
fn restarted(exit: u8, events: &str) -> String {
    restarted_at(20, exit, events)
}

fn restarted_at(at: u64, exit: u8, events: &str) -> String {
    before(&format!(
        "
        +{at} exit main {exit}
        +{at}.5 pod web app.last=web:app:{exit}:Error app.restarts=1 app.id=web:app:2 app=running
        +{at}.5 events web asked
        {events}"
    ))
}

/// Kubernetes asked for nothing; a signal of another party may have come before the agent.
#[test]
fn an_error_is_an_error_where_kubernetes_asked_for_no_exit() {
    let script = restarted(3, "+28 events web known");
    check(
        &script,
        expect![[r#"
        +28.000 web/app +20.000…+20.000 nonzero-exit: Unknown/NonzeroExit/Quiet
          reported 3 Error
    "#]],
    );
    check_sentences(
        &script,
        expect![[r#"
        container `app`: PID 1 `app` exited with code 3; the process started before the observation began, so a stop signal may have come before
    "#]],
    );
}

/// The OOM killer may have killed a child just before the agent started.
#[test]
fn an_error_just_after_the_start_has_no_known_cause() {
    check(
        &restarted_at(5, 3, "+8 events web known"),
        expect![[r#"
            +8.000 web/app +5.000…+5.000 nonzero-exit: Unknown/NonzeroExit/Unknown
              reported 3 Error
        "#]],
    );
}

/// Nothing of an hour's grace period is over after twenty minutes; of half a minute's all is.
#[test]
fn the_grace_period_bounds_the_doubt() {
    let killed = |grace: u32| {
        before("+1200 KILL runc -> main\n+1200.001 exit main KILL\n+1200.5 pod web app=137:Error\n+1300 tick\n+5000 tick")
            .replace("pod web app\n", &format!("pod web grace={grace} app\n"))
    };
    check(
        &killed(3600),
        expect![[r#"
        +4832.200 web/app +1200.000…+1200.001 unknown: Unknown/Unknown/Unknown
          reported 137 Error
          incomplete: no restart of the container was reported
    "#]],
    );
    check(
        &killed(30),
        expect![[r#"
            +1262.100 web/app +1200.000…+1200.001 force-killed: Unknown/ForceKilled/Quiet
              reported 137 Error
              incomplete: no restart of the container was reported
        "#]],
    );
    check(
        &restarted_at(1200, 143, "+1208 events web no answer within 2s"),
        expect![[r#"
            +1208.000 web/app +1200.000…+1200.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 143 Error
              incomplete: the Kubernetes Events of the pod are unknown: no answer within 2s
        "#]],
    );
}

#[test]
fn an_error_is_an_error_although_the_events_are_not_known() {
    let script = restarted(3, "+28 events web no answer within 2s");
    check(
        &script,
        expect![[r#"
        +28.000 web/app +20.000…+20.000 nonzero-exit: Unknown/NonzeroExit/Unknown
          reported 3 Error
          incomplete: the Kubernetes Events of the pod are unknown: no answer within 2s
    "#]],
    );
    check_sentences(
        &script,
        expect![[r#"
        container `app`: PID 1 `app` exited with code 3; the process started before the observation began, so a stop signal may have come before; the reason for the termination is unknown: the Kubernetes Events of the pod are unknown: no answer within 2s
    "#]],
    );
}

/// Such as of a person, or of a daemon: the signal was handled, and the exit was clean.
#[test]
fn the_code_of_a_stop_signal_is_unknown_also_where_kubernetes_did_not_ask() {
    check(
        &restarted(143, "+28 events web known"),
        expect![[r#"
        +28.000 web/app +20.000…+20.000 unknown: Unknown/Unknown/Quiet
          reported 143 Error
    "#]],
    );
}

#[test]
fn the_code_of_a_stop_signal_is_unknown_if_the_kubelet_announced_a_stop() {
    check(
        &restarted(
            143,
            "+28 event web app Killing at=-10 Stopping container app\n+28 events web known",
        ),
        expect![[r#"
            +28.000 web/app +20.000…+20.000 unknown: Unknown/Unknown/Unknown
              reported 143 Error
        "#]],
    );
}

/// The Event was about the container before.
#[test]
fn an_earlier_lifes_event_is_no_doubt() {
    check(
        &restarted(
            0,
            "+28 event web app Killing at=-100 Stopping container app\n+28 events web known",
        ),
        expect![[r#"
            +28.000 web/app +20.000…+20.000 clean: Completed/Clean/Quiet
              reported 0 Error
        "#]],
    );
}

#[test]
fn the_code_of_a_stop_signal_is_unknown_without_the_events() {
    check(
        &restarted(143, "+28 events web no answer within 2s"),
        expect![[r#"
        +28.000 web/app +20.000…+20.000 unknown: Unknown/Unknown/Unknown
          reported 143 Error
          incomplete: the Kubernetes Events of the pod are unknown: no answer within 2s
    "#]],
    );
}

#[test]
fn an_exit_with_0_is_clean_if_nobody_asked() {
    check(
        &restarted(0, "+28 events web known"),
        expect![[r#"
        +28.000 web/app +20.000…+20.000 clean: Completed/Clean/Quiet
          reported 0 Error
    "#]],
    );
}

/// A kubelet that cannot write an Event gives it up after a while.
#[test]
fn an_outage_of_the_api_hides_an_event() {
    let shown = |until: u64| {
        before(&format!(
            "
        +1 api away timeout
        +{until} api synced
        +200 exit main 0
        +200.5 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        +200.5 events web asked
        +208 events web known"
        ))
    };
    check(
        &shown(90),
        expect![[r#"
        +208.000 web/app +200.000…+200.000 clean: Completed/Clean/Quiet
          reported 0 Completed
    "#]],
    );
    check(
        &shown(110),
        expect![[r#"
        +208.000 web/app +200.000…+200.000 unknown: Unknown/Unknown/Unknown
          reported 0 Completed
    "#]],
    );
}

/// A second `crictl stop` is not possible; the first one's signal may have come before.
#[test]
fn a_kill_by_the_runtime_shows_that_somebody_asked() {
    check(
        &before(
            "
        +5 KILL runc -> main
        +5.001 exit main KILL
        +6 pod web app.last=web:app:137:Error app.restarts=1 app.id=web:app:2 app=running
        +6 events web asked
        +8 events web known
        ",
        ),
        expect![[r#"
            +8.200 web/app +5.000…+5.001 unknown: Unknown/Unknown/Unknown
              reported 137 Error
        "#]],
    );
}

#[test]
fn a_pod_that_was_being_deleted_before() {
    let deleted = |exit: u8| {
        before(&format!(
            "
        +0.1 pod web deleted=-3:30
        +5 exit main {exit}
        +5.1 KILL runc -> pause
        +5.11 exit pause KILL
        +6 pod web app={exit}:Error
        +7 gone web
        "
        ))
    };
    check(
        &deleted(143),
        expect![[r#"
            +7.400 pod web -3.000…+5.000 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request -3.000…-2.000 grace 30 s
              web/app +5.000…+5.000 unknown: Unknown/Unknown/Unknown
                reported 143 Error
                incomplete: epitaph started 3.0 s after the deletion request
              gone +7.000
        "#]],
    );
    check(
        &deleted(3),
        expect![[r#"
            +7.400 pod web -3.000…+5.000 nonzero-exit: Deleted/NonzeroExit/Unknown (deletionTimestamp)
              request -3.000…-2.000 grace 30 s
              web/app +5.000…+5.000 nonzero-exit: Unknown/NonzeroExit/Unknown
                reported 3 Error
                incomplete: epitaph started 3.0 s after the deletion request
              gone +7.000
        "#]],
    );
}

/// The preStop hook ended the process: the stop signal never came.
#[test]
fn a_pod_that_is_deleted_after_the_start_was_not_asked_before() {
    check(
        &before(
            "
        +2.1 pod web deleted=+2:30
        +5 exit main 3
        +5.1 KILL runc -> pause
        +5.11 exit pause KILL
        +6 pod web app=3:Error
        +7 gone web
        ",
        ),
        expect![[r#"
            +7.400 pod web +2.000…+5.000 nonzero-exit: Deleted/NonzeroExit/Quiet (deletionTimestamp)
              request +2.000…+2.100 grace 30 s
              web/app +5.000…+5.000 nonzero-exit: Unknown/NonzeroExit/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 3 Error
              gone +7.000
        "#]],
    );
}

/// A kernel that cannot run them: what the pod's status shows is all that is known.
#[test]
fn without_any_probe_a_termination_has_its_cause_and_nothing_of_the_kernel() {
    let probes: String = crate::event::Kind::ALL
        .iter()
        .map(|kind| format!("+0.2 probe {}\n", kind.name()))
        .collect();
    check(
        &before(&format!(
            "
            {probes}
            +20 pod web deleted=+20:30
            +22 pod web app=137:Error
            +23 gone web
            +60 tick
            "
        )),
        expect![[r#"
            +32.000 pod web +20.000…+23.000 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request +20.000…+20.000 grace 30 s
              unseen app Some(Reported { exit_code: 137, reason: Some("Error") })
              gone +23.000
        "#]],
    );
}
