//! Breaches that the rule of [`super::monotone`] found, each as the smallest timeline: a lost record must not blame another.

use expect_test::expect;

use super::{check, container, unit};

#[test]
fn without_the_first_stop_signal_the_handler_of_the_second_one_is_not_missing() {
    check(
        &container(
            "
        +1.01 enter main TERM
        +1.1 lost signal_generate +1 1 within app
        +5 TERM runc -> main handler
        +30 KILL runc -> main
        +30.01 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` was terminated by SIGKILL, but the reason is unknown: kernel records of sent signals were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

/// The same, and nothing was lost: an operator's signal before the runtime's explains the entry.
#[test]
fn an_earlier_signal_that_was_observed_leaves_the_second_one_blocked() {
    check(
        &container(
            "
        +1 TERM bash -> main handler
        +1.01 enter main TERM
        +5 TERM runc -> main handler
        +30 KILL runc -> main
        +30.01 exit main KILL
        ",
        ),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, whose handler never ran; the container runtime sent SIGKILL 25.0 s later
              fix: find what kept the process from running: a disk or network mount that hangs, or no CPU time
        "#]],
    );
}

#[test]
fn without_the_exit_an_operators_stop_signal_is_not_the_cause_of_the_runtimes_kill() {
    check(
        &container(
            "
        +1 TERM bash -> main handler
        +2 KILL runc -> main
        +2.1 lost sched_process_exit +2 1 within app
        +3 rmdir app
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              How PID 1 `app` terminated is unknown: the cgroup was removed, and no exit of the main process was seen; SIGTERM had been sent before
              fix: look up the exit code in the log of the container runtime or systemd: epitaph did not see the main process exit
        "#]],
    );
}

#[test]
fn without_the_removal_a_step_after_the_main_process_is_not_another_termination() {
    check(
        &unit(
            "
        +1 TERM systemd -> main handler
        +1.01 enter main TERM
        +1.1 exit main 0
        proc post in=web.service pid=201 start=+1.2 parent=systemd comm=post
        +1.2 exec post
        +1.3 exit post 0
        +1.4 lost cgroup_rmdir +1.4 1
        +1.4 stays web.service
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 0.1 s later; the sockets of the unit were not observed to their end: the cgroup still existed, and processes in it may close connections later
            unknown: Unknown/Unknown/Unknown
              `post` (pid 201) exited with code 0, but the reason is unknown: kernel records of removed cgroups were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the unit itself send signals, exit or connect thousands of times per second: each unit has a budget of records
        "#]],
    );
}

/// The process after it seems to be the main one, and to have exited by itself.
#[test]
fn without_the_stop_signal_a_main_process_is_not_a_step_before_another() {
    check(
        &unit(
            "
        +1 lost signal_generate +1 1 within web.service
        +1.1 exit main 0
        proc post in=web.service pid=201 start=+1.2 parent=systemd comm=post
        +1.2 exec post
        +5 exit post 0
        +5.1 rmdir web.service
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) exited with code 0, but the reason is unknown: kernel records of sent signals were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the unit itself send signals, exit or connect thousands of times per second: each unit has a budget of records
        "#]],
    );
}

/// A shell starts helpers by the dozen after its server has crashed.
#[test]
fn the_end_of_a_server_is_kept_before_those_of_helpers() {
    let mut script =
        "proc server in=app pid=200 ns=20 start=+0.5 parent=main comm=server\n+1 exit server SEGV serving unarmed\n".to_owned();
    for i in 0..40 {
        let (pid, at) = (300 + i, 1_010 + i);
        script += &format!(
            "proc h{i} in=app pid={pid} ns={pid} start=+1 parent=main comm=sleep\n+1.{} exit h{i} 0\n",
            at - 1_000
        );
    }
    check(
        &container(&format!("{script}+1.5 exit main 0")),
        expect![[r#"
            crashed: Crash/Crashed/Unknown
              `server` was terminated by SIGSEGV, and PID 1 `app` exited with code 0
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
}
