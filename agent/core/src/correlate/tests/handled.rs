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
            clean-exit: External/Clean/Unknown
              `bash` (pid 70, on the host) sent SIGRTMIN+3 to PID 1 `app`, which reads the signal without a handler (signalfd or sigwait), and the process exited with code 0, 50 ms later; whether clients used a Unix or UDP socket is not known: the process reads its stop signal without a handler (signalfd or sigwait)
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

/// On the host's pids: the handler of another process's signal raises it again, for the default action.
#[test]
fn and_raised_again() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 start=+0 parent=shim comm=app
        proc worker in=app pid=107 start=+0.1 parent=main comm=worker
        +0.001 exec main
        +5 USR1 worker -> main handler armed
        +5.0001 enter main USR1
        +5.1 USR1 main -> main default exiting already-armed
        +5.1001 exit main USR1 already-armed
        ",
        expect![[r#"
            clean-exit: Unknown/Clean/Unknown
              `worker` (pid 107, container 670000000000, child of `app`) sent SIGUSR1 to `app` (pid 100), the handler ran, and the process then terminated itself with the same signal, 0.1 s later; the sockets of the container were not observed to their end: the cgroup still existed, and processes in it may close connections later
        "#]],
    );
}

/// The daemon of a container on the host's pids has the shim as parent once the launcher has exited. The daemon is not an exec probe.
#[test]
fn a_daemon_that_the_shim_took_over_is_killed() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 start=+0 parent=shim comm=launcher
        proc server in=app pid=107 start=+0.1 parent=shim comm=server
        +0.001 exec main
        +0.2 exec server
        +5 exit main 0 armed leaves-others
        +5.0001 KILL shim -> server waiting=none already-armed
        +5.001 exit server KILL already-armed
        +5.0011 tcp app closed 8080 0 by-exit by=server
        ",
        expect![[r#"
            force-killed: Completed/ForceKilled/Quiet
              `launcher` (pid 100) exited by itself with code 0; the container runtime then killed `server`, which still ran, with its listener open
              fix: if `server` is the service, start it in the foreground (with `exec` in a shell): a container ends with its first process
        "#]],
    );
}
