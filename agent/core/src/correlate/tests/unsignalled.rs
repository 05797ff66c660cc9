//! Processes that got no signal: those that a shutdown may have waited for, and those that it does not concern.

use std::fmt::Write;

use expect_test::expect;

use super::{check, container};

/// An init with a shell that waits for its program.
const SHELL: &str = "
    +0 mkdir app
    proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tini
    proc sh in=app pid=107 ns=7 start=+0.1 parent=main comm=sh
    +0.001 exec main
    +1 TERM runc -> main default sigwait armed
    +1.0001 TERM main -> sh handler already-armed
    +1.0002 enter sh TERM
    +11 KILL runc -> main waiting=none already-armed
    +11.001 exit main KILL
    +11.0011 KILL main -> sh kernel waiting=none already-armed
    +11.002 exit sh KILL
";

/// A probe of the kubelet, or `kubectl exec`: the kernel kills it with the pid namespace.
#[test]
fn a_process_that_came_in_from_outside_is_not_waited_for() {
    check(
        &container(
            "
        proc exec in=app pid=120 ns=20 start=+0.5 parent=shim comm=sh
        proc probe in=app pid=121 ns=21 start=+0.6 parent=exec comm=curl
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> exec kernel waiting=none already-armed
        +11.0012 KILL main -> probe kernel waiting=none already-armed
        +11.002 exit exec KILL
        +11.0021 exit probe KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_process_that_came_in_from_outside_is_not_what_the_default_action_leaves() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tini
        proc python in=app pid=107 ns=7 start=+0.1 parent=main comm=python3
        proc exec in=app pid=120 ns=20 start=+0.5 parent=shim comm=bash
        +0.001 exec main
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python default exiting already-armed
        +1.0005 exit python TERM
        +1.001 exit main 143
        +1.0011 KILL main -> exec kernel waiting=none already-armed
        +1.002 exit exec KILL
        ",
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `python3`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `python3` that finishes the work in flight and then exits with 0; `python3` was 0.9 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

#[test]
fn a_process_that_came_in_from_outside_is_not_left_running() {
    check(
        &container(
            "
        proc exec in=app pid=120 ns=20 start=+0.5 parent=shim comm=bash
        +2 exit main 0
        +2.0011 KILL main -> exec kernel waiting=none armed
        +2.002 exit exec KILL
        ",
        ),
        expect![[r#"
            clean: Completed/Clean/Quiet
              PID 1 `app` exited by itself with code 0
        "#]],
    );
}

/// Clients lose what PID 1 had open, not what the shell of `kubectl exec` had.
#[test]
fn connections_are_not_lost_with_a_process_that_came_in_from_outside() {
    check(
        &container(
            "
        proc exec in=app pid=120 ns=20 start=+0.5 parent=shim comm=bash
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.1 tcp app accepted 80 5001
        +2 exit main 0
        +2.0011 KILL main -> exec kernel waiting=none already-armed
        +2.002 exit exec KILL
        +2.003 tcp app cut 80 5001 sent=0 received=5 last-sent=0 last-received=3
        ",
        ),
        expect![[r#"
            cut-connections: Stopped/Clean/Cut
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 open connection was dropped at exit, with an unanswered request
              fix: finish the requests in flight before the exit (graceful shutdown of the server), and allow enough time for them
        "#]],
    );
}

/// `trap 'sleep 30; kill …' TERM`
#[test]
fn the_traps_own_sleep_needs_no_signal() {
    check(
        &container(
            "
        proc sleep in=app pid=120 ns=20 start=+1.001 parent=main comm=sleep
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> sleep kernel waiting=none already-armed
        +11.002 exit sleep KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
    check(
        &format!(
            "{SHELL}
        proc sleep in=app pid=108 ns=8 start=+1.001 parent=sh comm=sleep
        +11.0012 KILL main -> sleep kernel waiting=none already-armed
        +11.0021 exit sleep KILL
        "
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `tini` forwarded SIGTERM to `sh`, whose handler ran, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

/// The list of names is short; daemons that PID 1 has adopted come before the program.
#[test]
fn the_program_that_the_shell_waits_for_is_named_before_others() {
    let mut script = format!(
        "{SHELL}
        proc server in=app pid=108 ns=8 start=+0.2 parent=sh comm=server
        +11.0012 KILL main -> server kernel waiting=none already-armed
        +11.0021 exit server KILL
        "
    );
    for i in 0..4 {
        write!(
            script,
            "
        proc daemon{i} in=app pid={} ns={} start=+0.1 parent=main comm=daemon{i}
        +11.00101 KILL main -> daemon{i} kernel waiting=none already-armed
        +11.003 exit daemon{i} KILL
        ",
            102 + i,
            12 + i
        )
        .expect("a string");
    }
    check(
        &script,
        expect![[r#"
        killed-after-grace: Stopped/KilledAfterGrace/Quiet
          `tini` forwarded SIGTERM to `sh`, whose handler ran and sent no signal to `server`, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
          fix: send SIGTERM on from `sh` to `server`: start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`, or let the init signal the whole process group (`tini -g`)
    "#]],
    );
}

/// The program's parent at its SIGKILL is PID 1, which has adopted it.
#[test]
fn a_supervisor_kills_a_shell_that_waits_for_its_program() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=supervisord
        proc sh in=app pid=107 ns=7 start=+0.1 parent=main comm=sh
        proc server in=app pid=108 ns=8 start=+0.2 parent=main comm=server
        +0.001 exec main
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> sh handler already-armed
        +1.0003 enter sh TERM
        +6 KILL main -> sh waiting=none already-armed
        +6.001 exit sh KILL
        +6.1 exit main 0
        +6.1001 KILL main -> server kernel waiting=none already-armed
        +6.11 exit server KILL
        ",
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `supervisord` forwarded SIGTERM to `sh`, whose handler ran, but the shutdown did not finish: `supervisord` sent SIGKILL 5.0 s later
              fix: the shutdown of `sh` needs more than the 5.0 s that `supervisord` gave it: raise the stop timeout of `supervisord`, or shorten the shutdown; if `sh` waited for `server`, which got no signal: send SIGTERM on from `sh` to `server`: start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`, or let the init signal the whole process group (`tini -g`)
        "#]],
    );
}

/// Its own processes may have another way to end, if they had no sockets.
#[test]
fn workers_of_the_program_itself_need_no_signal() {
    check(
        &container(
            "
        proc worker in=app pid=107 ns=7 start=+0.1 parent=main comm=app
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.001 exit main 0
        +1.0011 KILL main -> worker kernel waiting=none already-armed
        +1.002 exit worker KILL
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later
        "#]],
    );
}

/// An init in front of the shell would not help: it signals the shell alone.
#[test]
fn pid_1_ignores_the_signal_and_its_program_never_got_it() {
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 TERM runc -> main ignored default armed
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> server kernel waiting=none already-armed
        +11.002 exit server KILL
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              fix: send SIGTERM on from PID 1 `app` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit; this avoids the wait of 10.0 s
        "#]],
    );
}

/// The signals that its stop leads to are not recorded: a process of its own had sent it.
#[test]
fn a_program_that_ends_by_a_signal_after_a_stop_from_inside() {
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        proc other in=app pid=108 ns=8 start=+0.2 parent=server comm=other
        +1 TERM other -> main handler
        +1.0001 enter main TERM
        +1.001 exit server TERM listening serving already-armed
        +1.002 exit main 143 already-armed
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 143, but the reason is unknown: `server`, which had clients, ended by SIGTERM before, and the sender of SIGTERM was not seen
              fix: search the kernel log and the audit log for the sender of SIGTERM: epitaph has no record of the sender
        "#]],
    );
}
