//! Signals from another pod's container.

use expect_test::expect;

use super::{check_sentences, run, web};
use crate::report::Report;

/// A second pod, which the API may have shown.
fn beside(told: &str, rest: &str) -> String {
    web(&format!(
        "
        pod killer cron
        -50 mkdir killer:cron
        proc cron in=killer:cron pid=300 ns=1 start=-50 parent=shim comm=sh
        -50 exec cron
        {told}
        {rest}
        "
    ))
}

const TOLD: &str = "-49 pod killer cron=running";
const KILLED: &str = "
        +1 KILL cron -> main
        +1.01 exit main KILL
        +2 pod web app=waiting app.last=web:app:137:Error app.restarts=1
";

#[test]
fn a_killer_in_a_known_pod() {
    check_sentences(
        &beside(TOLD, KILLED),
        expect![[r#"
            container `app`: `sh` (pid 300, container `cron` of pod shop/killer, child of `shim`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
        "#]],
    );
}

/// The status arrives long after the kill, but before the report.
#[test]
fn a_killer_whose_pod_becomes_known() {
    check_sentences(
        &beside("", &format!("{KILLED} +2.1 pod killer cron=running")),
        expect![[r#"
            container `app`: `sh` (pid 300, container `cron` of pod shop/killer, child of `shim`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
        "#]],
    );
}

/// A cgroup that names a pod is not proof that it belongs to the pod.
#[test]
fn a_killer_in_an_unknown_pod() {
    check_sentences(
        &beside("", KILLED),
        expect![[r#"
            container `app`: `sh` (pid 300, container 000000000000, child of `shim`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
        "#]],
    );
    check_sentences(
        &beside("-49 pod killer cron=waiting", KILLED),
        expect![[r#"
            container `app`: `sh` (pid 300, container 000000000000, child of `shim`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
        "#]],
    );
}

#[test]
fn a_killer_in_a_cgroup_that_bears_anothers_id() {
    check_sentences(
        &beside(
            TOLD,
            "
        +0 mkdir killer:fake as=killer:cron
        proc fake in=killer:fake pid=310 start=+0 parent=main comm=fake
        +0 exec fake
        +1 KILL fake -> main
        +1.01 exit main KILL
        +2 pod web app=waiting app.last=web:app:137:Error app.restarts=1
        ",
        ),
        expect![[r#"
            container `app`: `fake` (pid 310, container 000000000000, child of `app`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
        "#]],
    );
}

/// Nor is the container reported as a killer.
#[test]
fn a_killer_whose_pod_is_not_to_be_told_of() {
    check_sentences(
        &beside(&format!("pod killer ignore cron\n{TOLD}"), KILLED),
        expect![[r#"
            container `app`: `sh` (pid 300, container 000000000000, child of `shim`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
        "#]],
    );
}

#[test]
fn a_killer_in_the_pod_itself() {
    check_sentences(
        &web("
        pod web app side
        -50 mkdir web:side
        proc side in=web:side pid=300 ns=1 start=-50 parent=shim comm=sh
        -50 exec side
        -49 pod web app=running side=running
        +1 KILL side -> main
        +1.01 exit main KILL
        +2 pod web app=waiting app.last=web:app:137:Error app.restarts=1
        "),
        expect![[r#"
            container `app`: `sh` (pid 300, container `side` of pod shop/web, child of `shim`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
        "#]],
    );
}

/// A termination without a pod does not wait.
#[test]
fn a_unit_that_a_pod_kills() {
    check_sentences(
        &beside(
            TOLD,
            "
        +0 mkdir db.service
        proc db in=db.service pid=200 start=+0 parent=systemd comm=db
        +0.001 exec db
        +1 KILL cron -> db
        +1.01 exit db KILL
        ",
        ),
        expect![[r#"
            `sh` (pid 300, container `cron` of pod shop/killer, child of `shim`) sent SIGKILL to `db` (pid 200); the sender is neither the runtime nor the process itself
        "#]],
    );
}

#[test]
fn a_stop_signal_from_another_pod() {
    check_sentences(
        &beside(
            TOLD,
            "
        +1 TERM cron -> main handler
        +1.01 enter main TERM
        +1.5 exit main 0
        +2 pod web app=waiting app.last=web:app:0:Completed app.restarts=1
        ",
        ),
        expect![[r#"
            container `app`: `sh` (pid 300, container `cron` of pod shop/killer, child of `shim`) sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
}

#[test]
fn an_early_warning_of_a_stop_signal_from_another_pod() {
    let early = run(&beside(TOLD, "+1 TERM cron -> main ignored default"))
        .into_iter()
        .find_map(|(_, output)| match output {
            Report::StopSignalIgnored(early) => Some(early),
            _ => None,
        });
    let of = early.expect("a warning").sender.pod.expect("a pod");
    assert_eq!((of.pod.name.as_str(), of.container.as_str()), ("killer", "cron"));
}
