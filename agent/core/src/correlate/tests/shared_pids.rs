//! Containers in the pid namespace of others (`shareProcessNamespace`, `hostPID`): the first process is not PID 1, so a signal has its
//! default action there, and after its exit the container runtime kills the other processes, whose parent is the shim by then. The
//! sequences are those of `tests/src/programs/shared_pids.rs`, as recorded.

use expect_test::expect;

use super::check;

/// The first process, and a program below a shell.
fn shell(rest: &str) -> String {
    format!(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=20 start=+0 parent=shim comm=tini
        proc sh in=app pid=107 ns=27 start=+0.1 parent=main comm=sh
        proc server in=app pid=108 ns=28 start=+0.2 parent=sh comm=server
        proc orphan in=app pid=108 ns=28 start=+0.2 parent=shim comm=server
        +0.001 exec main
        +0.1 exec sh
        +0.2 exec server
        {rest}"
    )
}

/// A shell as the first process, and a program below.
pub(super) fn first(rest: &str) -> String {
    format!(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=20 start=+0 parent=shim comm=sh
        proc server in=app pid=108 ns=28 start=+0.2 parent=main comm=server
        proc orphan in=app pid=108 ns=28 start=+0.2 parent=shim comm=server
        +0.001 exec main
        +0.2 exec server
        {rest}"
    )
}

/// Its trap does.
pub(super) const FORWARDS_WITHOUT_WAITING: &str = "
    +1 TERM runc -> main handler armed
    +1.0001 enter main TERM
    +1.0003 TERM main -> server handler already-armed
    +1.0004 exit main 0
    +1.004 enter server TERM
    +1.01 KILL runc -> orphan waiting=none already-armed
    +1.011 exit orphan KILL
";
pub(super) const DEFAULT_ACTION: &str = "
    +1 TERM runc -> main default exiting armed
    +1.0005 exit main TERM
    +1.01 KILL runc -> orphan waiting=none already-armed
    +1.011 exit orphan KILL
";

#[test]
fn a_shell_below_an_init_ends_and_the_runtime_kills_its_program() {
    check(
        &shell(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> sh default exiting already-armed
        +1.0005 exit sh TERM
        +1.001 exit main 143
        +1.01 KILL runc -> orphan waiting=none already-armed
        +1.011 exit orphan KILL
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `sh`, which has no SIGTERM handler and was terminated by the default action; `tini` then exited, and the container runtime killed `server`, which never got the signal: any work in flight was lost
              fix: start the program with `exec` in `sh`, so that `tini` forwards SIGTERM to the program itself and waits for it; an init that signals the whole process group (`tini -g`, dumb-init) reaches the program, but does not wait for it
        "#]],
    );
}

#[test]
fn an_init_signals_the_group_and_the_runtime_kills_the_program_in_its_shutdown() {
    check(
        &shell(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> server handler already-armed
        +1.0001 TERM main -> sh default exiting already-armed
        +1.0003 enter server TERM
        +1.0005 exit sh TERM
        +1.001 exit main 143
        +1.01 KILL runc -> orphan waiting=none already-armed
        +1.011 exit orphan KILL
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `sh`, which has no SIGTERM handler and was terminated by the default action; `tini` then exited, and the container runtime killed `server`, whose shutdown had not finished: any work in flight was lost
              fix: start the program with `exec` in `sh`, so that `tini` forwards SIGTERM to the program itself and waits for it; an init that signals the whole process group (`tini -g`, dumb-init) reaches the program, but does not wait for it
        "#]],
    );
}

#[test]
fn a_shell_forwards_without_waiting_and_the_runtime_kills_the_program() {
    check(
        &first(FORWARDS_WITHOUT_WAITING),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `sh` forwarded SIGTERM to `server`, whose handler ran; `sh` (pid 100) then exited with code 0, and the container runtime killed `server`, whose shutdown had not finished
              fix: let `sh` (pid 100) wait until `server` has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must wait for its children before its own exit
        "#]],
    );
}

/// The runtime's SIGKILL to a process that ends in time changes nothing.
#[test]
fn a_program_that_exits_before_its_sigkill_is_not_abandoned() {
    check(
        &first(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0003 TERM main -> server handler already-armed
        +1.0004 exit main 0
        +1.004 enter server TERM
        +1.009 exit orphan 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to `sh` (pid 100), the handler ran and sent the signal on to `server`, and the process exited with code 0, less than 1 ms later
        "#]],
    );
}

#[test]
fn the_default_action_ends_a_shell_and_its_program_gets_no_signal() {
    check(
        &first(DEFAULT_ACTION),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              SIGTERM terminated `sh` (pid 100): the process has no SIGTERM handler, so any work in flight was lost; the container runtime then killed `server`, which never got the signal
              fix: send SIGTERM on from `sh` (pid 100) to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
}

/// Its own workers need no signal, and no `exec`.
#[test]
fn the_default_action_ends_a_master_of_workers() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=20 start=+0 parent=shim comm=app
        proc worker in=app pid=108 ns=28 start=+0.2 parent=main comm=app
        proc orphan in=app pid=108 ns=28 start=+0.2 parent=shim comm=app
        +0.001 exec main
        +1 TERM runc -> main default exiting armed
        +1.0005 exit main TERM
        +1.01 KILL runc -> orphan waiting=none already-armed
        +1.011 exit orphan KILL
        ",
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              SIGTERM terminated `app` (pid 100): the process has no SIGTERM handler, so any work in flight was lost; the container runtime then killed `app` (pid 108), which never got the signal
              fix: install a handler that finishes the work in flight and then exits with 0
        "#]],
    );
}

#[test]
fn a_first_process_that_forwards_to_nobody() {
    check(
        &first(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.01 KILL runc -> orphan waiting=none already-armed
        +11.011 exit orphan KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to `sh` (pid 100), the handler started and sent no signal to `server`, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: send SIGTERM on from `sh` (pid 100) to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
}

/// `timeout` raises the signal again that its program ended by.
#[test]
fn a_wrapper_as_the_first_process_ends_as_its_program_does() {
    check(
        &first(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> server default exiting already-armed
        +1.001 exit server TERM
        +1.002 TERM main -> main default exiting already-armed
        +1.0021 exit main TERM
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `sh` forwarded SIGTERM to `server`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0; `server` was 0.8 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

#[test]
fn a_wrapper_as_the_first_process_and_a_program_that_handles_the_signal() {
    check(
        &first(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> server handler already-armed
        +1.0003 enter server TERM
        +1.5 exit server 0
        +1.502 TERM main -> main default exiting already-armed
        +1.5021 exit main TERM
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to `sh` (pid 100), the handler ran and sent the signal on to `server`, and the process then terminated itself with the same signal, 0.5 s later
        "#]],
    );
}
