//! "By itself" needs that the process handled no signal shortly before its exit.

use expect_test::expect;

use super::{check, check_evidence, container};

/// The main process has a handler of `signal` and exits `after` later.
fn handled(signal: &str, by: &str, after: f64, exit: &str) -> String {
    container(&format!(
        "
        proc tool in=app pid=120 ns=20 start=+0.5 parent=main comm=kill
        +1 {signal} {by} -> main handler
        +1.0001 enter main {signal}
        +{} exit main {exit} armed
        ",
        1.0 + after
    ))
}

#[test]
fn any_signal_that_was_handled_just_before() {
    check_evidence(
        &handled("USR2", "bash", 0.05, "0"),
        expect![[r#"
        clean: External/Clean/Quiet
          `bash` (pid 70, on the host) sent SIGUSR2 to PID 1 `app`, the handler ran, and the process exited with code 0, 50 ms later
          +1.000 signal_generate: SIGUSR2 from `bash` (pid 70, on the host), neither the runtime nor the process itself, to PID 1 `app`: delivered, handler installed
          +1.000 signal_deliver: PID 1 `app` entered the SIGUSR2 handler
          +1.050 sched_process_exit: PID 1 `app` exited with code 0
    "#]],
    );
    check(
        &handled("RTMIN+3", "bash", 0.05, "0"),
        expect![[r#"
        clean: External/Clean/Quiet
          `bash` (pid 70, on the host) sent SIGRTMIN+3 to PID 1 `app`, the handler ran, and the process exited with code 0, 50 ms later
    "#]],
    );
    check(
        &handled("QUIT", "bash", 0.05, "0"),
        expect![[r#"
        clean: External/Clean/Quiet
          `bash` (pid 70, on the host) sent SIGQUIT to PID 1 `app`, the handler ran, and the process exited with code 0, 50 ms later
    "#]],
    );
    // Read by signalfd(2), as systemd does it.
    check(
        &container("+1 RTMIN+3 bash -> main blocked default\n+1.05 exit main 0 armed"),
        expect![[r#"
            clean: External/Clean/Quiet
              `bash` (pid 70, on the host) sent SIGRTMIN+3 to PID 1 `app`, which reads the signal without a handler (signalfd or sigwait), and the process exited with code 0, 50 ms later
        "#]],
    );
}

#[test]
fn long_before_it_was_a_reload() {
    check(
        &handled("USR2", "bash", 11.0, "0"),
        expect![[r#"
        clean: Completed/Clean/Quiet
          PID 1 `app` exited by itself with code 0
    "#]],
    );
    check(
        &handled("HUP", "bash", 11.0, "0"),
        expect![[r#"
        clean: Completed/Clean/Quiet
          PID 1 `app` exited by itself with code 0
    "#]],
    );
    check(
        &handled("HUP", "bash", 0.05, "0"),
        expect![[r#"
        clean: External/Clean/Quiet
          `bash` (pid 70, on the host) sent SIGHUP to PID 1 `app`, the handler ran, and the process exited with code 0, 50 ms later
    "#]],
    );
    // A shutdown takes its time.
    check(
        &handled("TERM", "bash", 11.0, "0"),
        expect![[r#"
        clean: External/Clean/Quiet
          `bash` (pid 70, on the host) sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 11.0 s later
    "#]],
    );
}

/// `kill 1`, also by `kubectl exec`.
#[test]
fn from_inside() {
    check(
        &handled("TERM", "tool", 0.05, "0"),
        expect![[r#"
        clean-exit: Unknown/Clean/Unknown
          `kill` (pid 120, container 670000000000, child of `app`) sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 50 ms later; the sockets of the container were not observed
    "#]],
    );
    check(
        &handled("USR2", "tool", 0.05, "0"),
        expect![[r#"
        clean-exit: Unknown/Clean/Unknown
          `kill` (pid 120, container 670000000000, child of `app`) sent SIGUSR2 to PID 1 `app`, the handler ran, and the process exited with code 0, 50 ms later; the sockets of the container were not observed
    "#]],
    );
    // A worker's note to its parent explains no error.
    check(
        &handled("USR1", "tool", 0.05, "1"),
        expect![[r#"
        nonzero-exit: Crash/NonzeroExit/Unknown
          `kill` (pid 120, container 670000000000, child of `app`) sent SIGUSR1 to PID 1 `app`, the handler ran, and the process exited with code 1, 50 ms later
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
    check(
        &handled("TERM", "tool", 0.05, "1"),
        expect![[r#"
        nonzero-exit: Unknown/NonzeroExit/Unknown
          `kill` (pid 120, container 670000000000, child of `app`) sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 1, 50 ms later
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
    check(
        &handled("USR2", "main", 0.05, "0"),
        expect![[r#"
        clean: Completed/Clean/Quiet
          PID 1 `app` exited by itself with code 0
    "#]],
    );
}

/// A new size of the terminal ends httpd.
#[test]
fn from_the_terminal() {
    check(
        &container("+1 WINCH bash -> main handler kernel\n+1.0001 enter main WINCH\n+1.05 exit main 0 armed"),
        expect![[r#"
            clean: External/Clean/Quiet
              The terminal sent SIGWINCH to PID 1 `app`, the handler ran, and the process exited with code 0, 50 ms later
        "#]],
    );
    check(
        &container("+1 WINCH bash -> main ignored default kernel\n+1.05 exit main 0 armed"),
        expect![[r#"
            clean: Completed/Clean/Quiet
              PID 1 `app` exited by itself with code 0
        "#]],
    );
}

/// The runtime's stop signal goes before what was handled later.
#[test]
fn after_the_stop_signal() {
    check(
        &container(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +5 USR1 bash -> main handler already-armed
        +5.0001 enter main USR1
        +5.05 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 4.0 s later
        "#]],
    );
}
