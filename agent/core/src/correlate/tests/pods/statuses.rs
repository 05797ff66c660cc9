//! What the pod's status shows of an exit, and what the kernel recorded.

use expect_test::expect;

use super::{check_sentences, run, web};
use crate::report::Report;

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

fn sentences(script: &str) -> String {
    let verdicts = run(script).into_iter().filter_map(|(_, report)| match report {
        Report::Terminated(of) => Some(of.verdict.sentence),
        Report::PodTerminated(pod) => Some(pod.verdict.sentence),
        _ => None,
    });
    verdicts.collect::<Vec<String>>().join("\n")
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
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; kubectl shows OOMKilled; the kernel: exited with 0 at SIGTERM, and the OOM killer had killed `worker` 41.8 s before
        "#]],
    );
    // The evidence does not deny it either.
    let script = handled("+2 pod web app=0:OOMKilled").replace("+1.05 pod", &format!("{worker}\n +1.05 pod"));
    let evidence = run(&script).into_iter().find_map(|(_, report)| match report {
        Report::PodTerminated(pod) => pod.containers[0]
            .verdict
            .evidence
            .iter()
            .find(|line| line.text.contains("status reports"))
            .map(|line| line.text.clone()),
        _ => None,
    });
    expect!["the pod's status reports OOMKilled, exit code 0; no OOM kill during this termination was observed, after that of `worker` 41.8 s before"].assert_eq(&evidence.expect("a line of the status"));
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
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later; the pod's grace period is 30 s in its spec, 5 s asked for by the deletion; kubectl shows OOMKilled; the kernel: terminated by SIGKILL of the container runtime, and the OOM killer had killed `worker` 46.4 s before
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

/// A daemon's kill is not the kernel's: no runtime has a mark for it, and a code of SIGKILL or SIGTERM is right.
#[test]
fn a_kill_by_a_daemon_is_no_oom_kill_of_the_kernels() {
    let by = |unit: &str, comm: &str, rest: &str| {
        web(&format!(
            "
        +0.1 mkdir {unit}
        proc daemon in={unit} pid=80 start=-100 parent=systemd comm={comm}
        {rest}"
        ))
    };
    let oomd = "+1 KILL daemon -> main
        +1.01 exit main KILL
        +2 pod web app=waiting app.restarts=1 app.last=web:app:137:Error";
    check_sentences(
        &by("systemd-oomd.service", "systemd-oomd", oomd),
        expect![[r#"
        container `app`: `systemd-oomd` (pid 80, unit systemd-oomd.service, child of `systemd`) killed PID 1 `app` because memory was running out
    "#]],
    );
    let earlyoom = "+1 TERM daemon -> main default
        +1.01 exit main TERM
        +2 pod web app=waiting app.restarts=1 app.last=web:app:143:Error";
    check_sentences(
        &by("earlyoom.service", "earlyoom", earlyoom),
        expect![[r#"
        container `app`: `earlyoom` (pid 80, unit earlyoom.service, child of `systemd`) ended PID 1 `app` because memory was running out, by SIGTERM, for which it had no handler
    "#]],
    );
    // Another code, or the mark of an earlier OOM kill, is not.
    let unknown = oomd.replace("137:Error", "255:Unknown");
    check_sentences(
        &by("systemd-oomd.service", "systemd-oomd", &unknown),
        expect![[r#"
        container `app`: `systemd-oomd` (pid 80, unit systemd-oomd.service, child of `systemd`) killed PID 1 `app` because memory was running out; kubectl shows Unknown, exit code 255; the kernel: terminated by SIGKILL of `systemd-oomd`
    "#]],
    );
    let sticky = oomd.replace("137:Error", "137:OOMKilled");
    check_sentences(
        &by("systemd-oomd.service", "systemd-oomd", &sticky),
        expect![[r#"
        container `app`: `systemd-oomd` (pid 80, unit systemd-oomd.service, child of `systemd`) killed PID 1 `app` because memory was running out; kubectl shows OOMKilled; the kernel: terminated by SIGKILL of `systemd-oomd`
    "#]],
    );
}

/// PID 1 ends with the code of a worker that the OOM killer killed: with the record of that lost, the status may be right.
#[test]
fn an_error_after_a_lost_oom_kill_contradicts_nothing() {
    let failed = |code: u8, lost: &str| {
        web(&format!(
            "
        {lost}
        +1 exit main {code}
        +2 pod web app=waiting app.restarts=1 app.last=web:app:{code}:OOMKilled"
        ))
    };
    for code in [1, 137] {
        let lost = failed(code, "+0.9 lost mark_victim +0.5 1");
        let in_doubt = sentences(&lost);
        assert!(in_doubt.contains(&format!("code {code}")), "{in_doubt}");
        assert!(!in_doubt.contains("kubectl shows"), "{in_doubt}");
        // Next to it: nothing was lost.
        assert!(sentences(&failed(code, "")).contains("kubectl shows OOMKilled; the kernel"));
    }
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

/// Somebody sends SIGTERM by way of the runtime, and the process goes on; later the kubelet sends the declared signal.
fn by_hand_before(declared: &str, status: &str, sent: &str) -> String {
    web(&format!(
        "
        -61 skew 0 0
        -40 TERM runc -> main handler
        -39.99 enter main TERM
        +1.05 pod web {status} deleted=+1:30
        +1.3 {sent} runc -> main handler
        +1.31 enter main {sent}
        +1.8 exit main 0
        +2 pod web app=0:Completed
        +3 gone web"
    ))
    .replace("pod web app\n", &format!("pod web app {declared}\n"))
}

#[test]
fn the_declared_signal_is_the_stop_signal() {
    check_sentences(
        &by_hand_before("app.stop=SIGUSR1", "app.stop=SIGUSR1", "USR1"),
        expect![[r#"
            container `app`: the container runtime sent SIGUSR1 to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
    // A kubelet that does not know the spec's: which of them was its own is not known, and both were sent.
    check_sentences(
        &by_hand_before("app.stop=SIGUSR1", "", "USR1"),
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 41.8 s later; the reason for the termination is unknown: no restart of the container was reported
        "#]],
    );
    // Next to it: the declared one was not sent.
    check_sentences(
        &by_hand_before("app.stop=SIGUSR1", "app.stop=SIGUSR1", "INT"),
        expect![[r#"
        container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 41.8 s later; the container's own stop signal is SIGUSR1 by `lifecycle.stopSignal`, and SIGTERM was sent; the reason for the termination is unknown: no restart of the container was reported
    "#]],
    );
    // Nor is a reload by hand the kubelet's stop, where it follows the spec for other containers alone.
    check_sentences(
        &by_hand_before("app.stop=SIGHUP", "", "TERM")
            .replace("-40 TERM", "-40 HUP")
            .replace("-39.99 enter main TERM", "-39.99 enter main HUP"),
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
}

/// The files of a runtime do not always have the signal of the container; each sight of it gives them again.
#[test]
fn the_status_names_the_stop_signal_before_the_files_of_the_runtime() {
    let script = by_hand_before("app.stop=SIGUSR1", "app.stop=SIGUSR1", "USR1");
    for described in ["-58 describe web:app stop=TERM", "+1.2 describe web:app stop=TERM"] {
        let before = if described.starts_with('-') { "-40 TERM" } else { "+1.3 USR1" };
        let sentences = sentences(&script.replace(before, &format!("{described}\n{before}")));
        assert!(sentences.contains("sent SIGUSR1"), "{described}: {sentences}");
    }
}

/// The kernel discarded the declared signal, for which there is no handler: not the one before, which was handled.
#[test]
fn the_declared_signal_decides_why_a_process_was_killed() {
    let script = by_hand_before("app.stop=SIGUSR1", "app.stop=SIGUSR1", "USR1")
        .replace("+1.3 USR1 runc -> main handler", "+1.3 USR1 runc -> main ignored")
        .replace("+1.31 enter main USR1", "+31.3 KILL runc -> main")
        .replace("+1.8 exit main 0", "+31.31 exit main KILL")
        .replace("+2 pod web app=0:Completed", "+32 pod web app=137:Error")
        .replace("+3 gone", "+33 gone");
    check_sentences(
        &script,
        expect![[r#"
            container `app`: `app` is PID 1 and either has no SIGUSR1 handler or ignores SIGUSR1, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later
        "#]],
    );
}
