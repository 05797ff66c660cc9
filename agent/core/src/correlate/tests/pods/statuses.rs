//! What the pod's status shows of an exit, and what the kernel recorded.

use expect_test::expect;

use super::{check_sentences, web};

/// A stop that the process handles, with 0 after half a second; the rest is the status.
fn handled(rest: &str) -> String {
    web(&format!(
        "
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.8 exit main 0
        {rest}
        +3 gone web
        "
    ))
}

/// With singleProcessOOMKill, or of a worker: the runtime keeps the flag for the life of the container.
#[test]
fn an_oom_kill_of_another_process_stays_in_the_status() {
    let worker = "
        proc worker in=web:app pid=107 ns=7 start=-50 parent=main comm=worker
        -40 oom worker
        -39.9 exit worker KILL";
    check_sentences(
        &handled("+2 pod web app=0:OOMKilled").replace("+1.05 pod", &format!("{worker}\n +1.05 pod")),
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; kubectl shows OOMKilled; the kernel: exited with 0 at SIGTERM
        "#]],
    );
    // Killed at the end of the grace period all the same.
    check_sentences(
        &web(&format!(
            "{worker}
        +1.05 pod web deleted=+1:5
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +6.4 KILL runc -> main
        +6.41 exit main KILL
        +7 pod web app=137:OOMKilled
        +8 gone web"
        )),
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later; the pod's grace period is 30 s in its spec, 5 s asked for by the deletion; kubectl shows OOMKilled; the kernel: terminated by SIGKILL of the container runtime
        "#]],
    );
}

#[test]
fn an_exit_that_nobody_read_is_137_in_the_status() {
    check_sentences(
        &handled("+2 pod web app=137:ContainerStatusUnknown"),
        expect![[r#"
        container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; kubectl shows ContainerStatusUnknown, exit code 137; the kernel: exited with 0 at SIGTERM
    "#]],
    );
    check_sentences(
        &handled("+2 pod web app=255:Unknown"),
        expect![[r#"
        container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; kubectl shows Unknown, exit code 255; the kernel: exited with 0 at SIGTERM
    "#]],
    );
}

#[test]
fn an_oom_kill_that_the_status_lacks_is_named() {
    check_sentences(
        &web("
        +1 oom main
        +1.01 exit main KILL
        +2 pod web app=waiting app.restarts=1 app.last=web:app:137:Error"),
        expect![[r#"
            container `app`: the OOM killer killed PID 1 `app` because memory ran out; kubectl shows exit code 137; the kernel: killed by the OOM killer
        "#]],
    );
}

#[test]
fn a_status_that_is_right_adds_nothing() {
    check_sentences(
        &handled("+2 pod web app=0:Completed"),
        expect![[r#"
        container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later
    "#]],
    );
    check_sentences(
        &web("
        +1 oom main
        +1.01 exit main KILL
        +2 pod web app=waiting app.restarts=1 app.last=web:app:137:OOMKilled"),
        expect![[r#"
            container `app`: the OOM killer killed PID 1 `app` because memory ran out
        "#]],
    );
}

/// An OOM kill may be among the lost records: the reason is not contradicted after a SIGKILL, and an exit with 0 still contradicts it.
#[test]
fn lost_records_of_oom_kills_contradict_only_what_they_cannot_hide() {
    let killed = |lost: &str| {
        web(&format!(
            "
        +1.05 pod web deleted=+1:5
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        {lost}
        +6.4 KILL runc -> main
        +6.41 exit main KILL
        +7 pod web app=137:OOMKilled
        +8 gone web"
        ))
    };
    check_sentences(
        &killed("+6.3 lost mark_victim +6.2 1"),
        expect![[r#"
        container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later; the pod's grace period is 30 s in its spec, 5 s asked for by the deletion
    "#]],
    );
    check_sentences(
        &handled("+2 pod web app=0:OOMKilled").replace("+1.8 exit", "+1.7 lost mark_victim +1.6 1\n        +1.8 exit"),
        expect![[r#"
            container `app`: PID 1 `app` exited with code 0, but the reason is unknown: kernel records of OOM kills were lost during the termination; kubectl shows OOMKilled; the kernel: exited with 0 at SIGTERM
        "#]],
    );
}

/// Next to a status that is wrong: the exit is not observed, or what came before it, so nothing is contradicted.
#[test]
fn nothing_is_contradicted_across_a_gap() {
    let after = |rest: &str| {
        let script = web(&format!(
            "
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.4 tick
        {rest}
        +9 pod web app=137:ContainerStatusUnknown
        +10 gone web"
        ));
        format!("-100 start{script}")
    };
    // Before the exit, and the exit in it.
    check_sentences(
        &after("+4 start\n+4 found main\n+4.1 scanned\n+6 exit main 0"),
        expect![[r#"
        container `app`: PID 1 `app` exited with code 0, but the reason is unknown: epitaph did not observe for 0.2 s around that time
    "#]],
    );
    check_sentences(
        &after("+4 start\n+4.1 scanned\n+4.1 rmdir web:app"),
        expect![[r#"
        container `app`: how PID 1 `app` terminated is unknown: the process exited within 0.2 s in which epitaph did not observe; SIGTERM had been sent before
    "#]],
    );
}

/// `lifecycle.stopSignal`: what the runtime sends first is not the container's own.
#[test]
fn another_signal_than_the_containers_own() {
    let sent = |signal: &str, status: &str| {
        let script = handled(&format!("+2 pod web app=0:Completed {status}")).replace("TERM", signal);
        script.replace("pod web app\n", "pod web app app.stop=SIGHUP\n")
    };
    check_sentences(
        &sent("TERM", ""),
        expect![[r#"
        container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the container's own stop signal is SIGHUP by `lifecycle.stopSignal`, and SIGTERM was sent
    "#]],
    );
    check_sentences(
        &sent("HUP", ""),
        expect![[r#"
        container `app`: the container runtime sent SIGHUP to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later
    "#]],
    );
    // The status alone has it.
    let by_status = handled("+1.9 pod web app.stop=SIGHUP\n        +2 pod web app=0:Completed");
    check_sentences(
        &by_status,
        expect![[r#"
        container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the container's own stop signal is SIGHUP by the container's status, and SIGTERM was sent
    "#]],
    );
}
