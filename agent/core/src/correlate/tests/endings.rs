//! How the processes behind PID 1 ended in a stop: abandoned, crashed, killed by a stranger or by their supervisor; and what rules a reflex
//! out. The sequences are those of real programs, as recorded from them.

use expect_test::{Expect, expect};

use super::{check_evidence, container};
use crate::fixtures::monotone::{Rule, Seed};
use crate::fixtures::script;

/// Seeds of each history: less evidence must make no verdict cleaner and blame no other.
const SEEDS: u64 = 60;

/// A shell, PID 1, with a program below.
const SHELL: &str = "
    +0 mkdir app
    proc main in=app pid=100 ns=1 start=+0 parent=shim comm=bash
    proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
    +0.001 exec main
    +0.1 exec server
";

/// An init, PID 1, with a program below.
const INIT: &str = "
    +0 mkdir app
    proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tini
    proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
    proc child in=app pid=108 ns=8 start=+0.2 parent=server comm=child
    +0.001 exec main
    +0.1 exec server
";

/// The stop signal to PID 1, which enters its handler.
const STOP: &str = "
    +1 TERM runc -> main handler armed
    +1.0001 enter main TERM
";

fn check(script: &str, expect: Expect) {
    super::check(script, expect);
    let history = script::parse(script).inputs;
    let rule = Rule::of(&history);
    let broken = (0..SEEDS).find_map(|seed| rule.check(Seed(seed)).err());
    assert_eq!(broken, None);
}

fn shell(rest: &str) -> String {
    format!("{SHELL}{STOP}{rest}")
}

fn init(rest: &str) -> String {
    format!(
        "{INIT}
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> server handler already-armed
        +1.0002 enter server TERM
        {rest}"
    )
}

/// One process, PID 1, that enters its handler.
fn alone(rest: &str) -> String {
    container(&format!("{STOP}{rest}"))
}

#[test]
fn a_trap_that_does_not_wait_again_abandons_the_program() {
    check_evidence(
        &shell(
            "
        +1.0002 TERM main -> server handler already-armed
        +1.0003 enter server TERM
        +1.0004 exit main 143
        +1.0005 KILL main -> server kernel waiting=none already-armed
        +1.002 exit server KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `bash` forwarded SIGTERM to `server`, whose handler ran; PID 1 `bash` then exited with code 143, and the kernel killed `server`, whose shutdown had not finished
              fix: let PID 1 `bash` wait until `server` has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must wait for its children before its own exit
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `bash`: delivered, handler installed
              +1.000 signal_deliver: PID 1 `bash` entered the SIGTERM handler
              +1.000 signal_generate: SIGTERM from `bash` (pid 100) to `server` (pid 107): delivered, handler installed
              +1.000 signal_deliver: `server` (pid 107) entered the SIGTERM handler
              +1.000 sched_process_exit: PID 1 `bash` exited with code 143
              +1.002 sched_process_exit: `server` (pid 107) was terminated by SIGKILL
        "#]],
    );
}

#[test]
fn a_program_that_was_killed_before_its_handler_could_run_is_abandoned() {
    check(
        &shell(
            "
        +1.0002 TERM main -> server handler already-armed
        +1.0003 exit main 0
        +1.0004 KILL main -> server kernel waiting=TERM already-armed
        +1.002 exit server KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `bash` forwarded SIGTERM to `server`; PID 1 `bash` then exited with code 0, and the kernel killed `server`, whose shutdown had not finished
              fix: let PID 1 `bash` wait until `server` has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must wait for its children before its own exit
        "#]],
    );
}

#[test]
fn a_daemon_in_the_background_ends_with_pid_1() {
    let killed = "
        +2 exit main 0 armed
        +2.0001 KILL main -> server kernel waiting=none already-armed
        +2.001 exit server KILL
    ";
    check_evidence(
        &format!("{SHELL}{killed} +2.0011 tcp app closed 8080 0 by-exit by=server"),
        expect![[r#"
            force-killed: Completed/ForceKilled/Quiet
              PID 1 `bash` exited by itself with code 0; the kernel then killed `server`, which still ran, with its listener open
              fix: if `server` is the service, start it in the foreground (with `exec` in a shell): a container ends with its first process
              +2.000 sched_process_exit: PID 1 `bash` exited with code 0
              +2.000 signal_generate: SIGKILL from the kernel to `server` (pid 107)
              +2.001 tcp: the exit of `server` (pid 107) closed a listener
              +2.001 tcp: listener 10.0.0.1:8080 closed by process exit
        "#]],
    );
    // A helper has no sockets.
    check(
        &format!("{SHELL}{killed}"),
        expect![[r#"
        clean: Completed/Clean/Quiet
          PID 1 `bash` exited by itself with code 0
    "#]],
    );
    // Its own clean-up is not one.
    check(
        &format!("{SHELL} +1.9 KILL main -> server waiting=none unarmed\n +1.91 exit server KILL\n +2 exit main 0 armed"),
        expect![[r#"
            clean: Completed/Clean/Quiet
              PID 1 `bash` exited by itself with code 0
        "#]],
    );
}

#[test]
fn a_crash_below_an_init_is_a_crash() {
    check_evidence(
        &format!("{INIT} +5 exit server SEGV\n +5.001 exit main 139"),
        expect![[r#"
            crashed: Crash/Crashed/Quiet
              `server` was terminated by SIGSEGV, and PID 1 `tini` exited with code 139
              fix: look at the core dump or the last lines of the log: the fault is in the program
              +5.000 sched_process_exit: `server` (pid 107) was terminated by SIGSEGV
              +5.001 sched_process_exit: PID 1 `tini` exited with code 139
        "#]],
    );
}

#[test]
fn a_code_that_no_crash_explains_is_the_programs_own() {
    let check = |rest: &str, expect| check(&format!("{INIT}{rest}"), expect);
    // A shell between.
    check(
        "+5 exit child SEGV\n +5.001 exit server 139\n +5.002 exit main 139",
        expect![[r#"
        crashed: Crash/Crashed/Quiet
          `child` was terminated by SIGSEGV, and PID 1 `tini` exited with code 139
          fix: look at the core dump or the last lines of the log: the fault is in the program
    "#]],
    );
    check(
        "+5 exit child SEGV\n +7 exit main 139",
        expect![[r#"
        nonzero-exit: Crash/NonzeroExit/Quiet
          PID 1 `tini` exited by itself with code 139
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
    check(
        "+5 exit server ABRT\n +5.001 exit main 139",
        expect![[r#"
        nonzero-exit: Crash/NonzeroExit/Quiet
          PID 1 `tini` exited by itself with code 139
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
    check(
        "+5 exit child SEGV\n +5.001 exit main 1",
        expect![[r#"
        nonzero-exit: Crash/NonzeroExit/Quiet
          PID 1 `tini` exited by itself with code 1
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
}

#[test]
fn a_program_that_had_exited_before_pid_1_is_not_abandoned() {
    check(
        &shell(
            "
        +1.0002 TERM main -> server handler already-armed
        +1.0003 enter server TERM
        +1.5 exit server 0
        +1.501 exit main 143
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `bash`, the handler ran and sent the signal on to `server`, and the process exited with code 143, 0.5 s later (128 + SIGTERM: the usual code of many language runtimes after a shutdown)
        "#]],
    );
}

#[test]
fn a_helper_without_a_handler_is_not_abandoned() {
    check(
        &shell(
            "
        +1.0002 exit main 0
        +1.0003 KILL main -> server kernel waiting=none already-armed
        +1.002 exit server KILL
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `bash`, the handler ran, and the process exited with code 0, less than 1 ms later
        "#]],
    );
}

#[test]
fn connections_that_are_lost_with_a_program_that_got_no_signal() {
    check(
        &shell(
            "
        +1.0002 exit main 0
        +1.0003 KILL main -> server kernel waiting=none already-armed
        +1.001 exit server KILL
        +1.0011 tcp app closed 8080 0 by-exit by=server
        +1.0011 tcp app cut 8080 40001 sent=0 received=90 last-sent=0 last-received=20 by=server
        ",
        ),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Cut
              The container runtime sent SIGTERM to PID 1 `bash`, the handler ran, and the process exited with code 0, less than 1 ms later; the kernel then killed `server`, which never got the signal, with its listener and connections open; 1 open connection was dropped at exit, with an unanswered request
              fix: send SIGTERM on from PID 1 `bash` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
}

#[test]
fn connections_of_pid_1_are_not_lost_with_a_helper() {
    check(
        &shell(
            "
        +1.0002 exit main 0
        +1.0003 tcp app closed 8080 0 by-exit by=main
        +1.0003 tcp app cut 8080 40001 sent=0 received=90 last-sent=0 last-received=20 by=main
        +1.0004 KILL main -> server kernel waiting=none already-armed
        +1.001 exit server KILL
        ",
        ),
        expect![[r#"
            cut-connections: Stopped/Clean/Cut
              The container runtime sent SIGTERM to PID 1 `bash`, the handler ran, and the process exited with code 0, less than 1 ms later; 1 open connection was dropped at exit, with an unanswered request
              fix: finish the requests in flight before the exit (graceful shutdown of the server), and allow enough time for them
        "#]],
    );
}

#[test]
fn a_listener_that_was_closed_rules_out_the_reflex() {
    check(
        &alone(
            "
        +1.0006 tcp app closed 8080
        +1.0035 TERM main -> main default ignored already-armed
        +1.0039 exit main 1
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              PID 1 `app` entered its SIGTERM handler, which raised SIGTERM again for the default action; PID 1 has none, so the kernel discarded the second signal; the process then exited with code 1, 3 ms after SIGTERM
              fix: exit with 0 in PID 1 `app` after the shutdown, instead of raising the signal again (PID 1 has no default action, so an error code follows); or run a small init such as tini
        "#]],
    );
}

#[test]
fn without_a_closed_listener_the_same_is_a_reflex() {
    check(
        &alone(
            "
        +1.0035 TERM main -> main default ignored already-armed
        +1.0039 exit main 1
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              PID 1 `app` entered its SIGTERM handler, raised SIGTERM again at once, and exited with code 1: any work that the handler had not finished was lost
              fix: handle SIGTERM in the application that runs in PID 1 `app`: finish the work in flight, then exit with 0; the handler of a language runtime only raises the signal again
        "#]],
    );
}

#[test]
fn a_reflex_is_unknown_where_a_closed_listener_may_be_lost() {
    check(
        &alone(
            "
        +1.0035 TERM main -> main default ignored already-armed
        +1.0039 exit main 1
        +1.004 lost tcp +1.0001 1 within app
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 1, but the reason is unknown: kernel records of TCP connections were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

#[test]
fn a_listener_that_was_closed_rules_out_the_reflex_below_an_init() {
    check(
        &init(
            "
        +1.0006 tcp app closed 8080
        +1.0032 TERM server -> server default exiting already-armed
        +1.0033 exit server TERM
        +1.02 exit main 143
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `server`, and the process exited with code 143, 20 ms later (128 + SIGTERM: the usual code of many language runtimes after a shutdown)
        "#]],
    );
}

#[test]
fn a_signal_that_was_sent_rules_out_the_reflex() {
    check(
        &init(
            "
        +1.0006 TERM server -> child handler already-armed
        +1.0007 enter child TERM
        +1.002 exit child 0
        +1.0032 TERM server -> server default exiting already-armed
        +1.0033 exit server TERM
        +1.02 exit main 143
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `server`, and the process exited with code 143, 20 ms later (128 + SIGTERM: the usual code of many language runtimes after a shutdown)
        "#]],
    );
}

#[test]
fn a_child_that_ended_rules_out_the_reflex() {
    check(
        &init(
            "
        +1.002 exit child 0
        +1.0032 TERM server -> server default exiting already-armed
        +1.0033 exit server TERM
        +1.02 exit main 143
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `server`, and the process exited with code 143, 20 ms later (128 + SIGTERM: the usual code of many language runtimes after a shutdown)
        "#]],
    );
}

#[test]
fn a_child_that_the_init_signalled_does_not_rule_it_out() {
    check(
        &init(
            "
        +1.0003 TERM main -> child default exiting already-armed
        +1.002 exit child TERM
        +1.0032 TERM server -> server default exiting already-armed
        +1.0033 exit server TERM
        +1.02 exit main 143
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `server`, whose handler raised SIGTERM again at once, so the default action terminated it: any work that the handler had not finished was lost
              fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0
        "#]],
    );
}

#[test]
fn a_reflex_of_pid_1_that_exits_with_128_plus_the_signal() {
    check(
        &alone(
            "
        +1.0055 TERM main -> main default ignored already-armed
        +1.0056 exit main 143
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              PID 1 `app` entered its SIGTERM handler, raised SIGTERM again at once, and exited with code 143: any work that the handler had not finished was lost
              fix: handle SIGTERM in the application that runs in PID 1 `app`: finish the work in flight, then exit with 0; the handler of a language runtime only raises the signal again
        "#]],
    );
}

#[test]
fn an_error_code_right_after_a_discarded_signal_is_not_the_applications() {
    check(
        &alone(
            "
        +1.0006 tcp app closed 8080
        +2.9 TERM main -> main default ignored already-armed
        +2.9007 exit main 1
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              PID 1 `app` entered its SIGTERM handler, which raised SIGTERM again for the default action; PID 1 has none, so the kernel discarded the second signal; the process then exited with code 1, 1.9 s after SIGTERM
              fix: exit with 0 in PID 1 `app` after the shutdown, instead of raising the signal again (PID 1 has no default action, so an error code follows); or run a small init such as tini
        "#]],
    );
}

#[test]
fn an_error_code_long_after_a_discarded_signal_is_the_applications() {
    check(
        &alone(
            "
        +1.0006 tcp app closed 8080
        +2.9 TERM main -> main default ignored already-armed
        +4 exit main 1
        ",
        ),
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 1, 3.0 s later
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn a_supervisor_that_kills_its_worker_at_once() {
    check(
        &shell(
            "
        +1.00011 TERM main -> server handler already-armed
        +1.0002 KILL main -> server waiting=TERM already-armed
        +1.00022 exit server KILL
        +1.005 exit main 0
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `bash` forwarded SIGTERM to `server`, which had no time for its shutdown: `bash` sent SIGKILL less than 1 ms later
              fix: `bash` gave `server` no time: raise the stop timeout of `bash`, or send `bash` the stop signal at which it waits for its processes (see its documentation; `STOPSIGNAL` in the image)
        "#]],
    );
}

#[test]
fn a_supervisor_that_kills_and_does_not_wait_for_the_end() {
    check(
        &shell(
            "
        +1.0009 TERM main -> server handler already-armed
        +1.011 enter server TERM
        +3.0125 KILL main -> server waiting=none already-armed
        +3.0126 TERM main -> main default ignored already-armed
        +3.0127 exit main 143
        +3.0139 exit server KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `bash` forwarded SIGTERM to `server`, whose handler ran, but the shutdown did not finish: `bash` sent SIGKILL 2.0 s later
              fix: the shutdown of `server` needs more than the 2.0 s that `bash` gave it: raise the stop timeout of `bash`, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_worker_that_never_ran_its_handler_in_the_supervisors_grace_period() {
    check(
        &shell(
            "
        +1.00011 TERM main -> server handler already-armed
        +6 KILL main -> server waiting=TERM already-armed
        +6.001 exit server KILL
        +6.005 exit main 0
        ",
        ),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              `bash` forwarded SIGTERM to `server`, whose handler never ran; `bash` sent SIGKILL 5.0 s later
              fix: find what kept the process from running: a disk or network mount that hangs, or no CPU time
        "#]],
    );
}

#[test]
fn a_program_below_an_init_that_crashes_in_its_shutdown() {
    check(
        &init(
            "
        +1.0008 exit server SEGV
        +1.13 exit main 139
        ",
        ),
        expect![[r#"
            crashed: Stopped/Crashed/Quiet
              `tini` forwarded SIGTERM to `server`, whose handler ran, and which crashed with SIGSEGV, less than 1 ms later; PID 1 `tini` then exited with code 139
              fix: look at the core dump or the last lines of the log of `server`: the fault is in its shutdown
        "#]],
    );
}

#[test]
fn a_crash_that_pid_1_hides() {
    check(
        &shell(
            "
        +1.0002 TERM main -> server handler already-armed
        +1.0003 enter server TERM
        +1.01 exit server ABRT
        +1.02 exit main 0
        ",
        ),
        expect![[r#"
            crashed: Stopped/Crashed/Quiet
              `bash` forwarded SIGTERM to `server`, whose handler ran, and which crashed with SIGABRT, 9 ms later; PID 1 `bash` then exited with code 0
              fix: look at the core dump or the last lines of the log of `server`: the fault is in its shutdown
        "#]],
    );
}

#[test]
fn a_fault_that_a_stranger_sent_is_not_a_crash() {
    check(
        &shell(
            "
        +1.0002 TERM main -> server handler already-armed
        +1.0003 enter server TERM
        +1.5 SEGV bash -> server default already-armed
        +1.501 exit server SEGV
        +1.52 exit main 0
        ",
        ),
        expect![[r#"
            killed-by-other: Stopped/KilledByOther/Quiet
              `bash` forwarded SIGTERM to `server`; `bash` (pid 70) sent SIGSEGV to `server`, 0.5 s after SIGTERM, during the grace period; the sender is neither the runtime nor a process of the container
              fix: find out why `bash` (pid 70) sent SIGSEGV, and use the stop command of the container runtime instead
        "#]],
    );
}

#[test]
fn a_stranger_kills_the_program_below_an_init_within_the_grace_period() {
    check(
        &init(
            "
        +2 KILL bash -> server waiting=none already-armed
        +2.001 exit server KILL
        +2.01 exit main 137
        ",
        ),
        expect![[r#"
            killed-by-other: Stopped/KilledByOther/Quiet
              `tini` forwarded SIGTERM to `server`; `bash` (pid 70) sent SIGKILL to `server`, 1.0 s after SIGTERM, during the grace period; the sender is neither the runtime nor a process of the container
              fix: find out why `bash` (pid 70) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
}

#[test]
fn a_child_that_fails_in_the_shutdown_is_named() {
    check(
        &shell(
            "
        +1.0002 TERM main -> server handler already-armed
        +1.0003 enter server TERM
        +1.01 exit server 3
        +1.02 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `bash`, the handler ran and sent the signal on to `server`, and the process exited with code 0, 20 ms later; `server` exited with code 3
        "#]],
    );
}

#[test]
fn a_stranger_stops_an_init() {
    check(
        &format!(
            "{INIT}
        +1 TERM bash -> main default sigwait armed
        +1.0001 TERM main -> server default exiting already-armed
        +1.0005 exit server TERM
        +1.001 exit main 143
        "
        ),
        expect![[r#"
            default-action: External/DefaultAction/Quiet
              `bash` (pid 70, on the host) sent SIGTERM to PID 1 `tini`, which forwarded SIGTERM to `server`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0; `server` was 0.9 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

#[test]
fn a_program_that_serves_on_needs_another_signal() {
    check(
        &alone(
            "
        +2 tcp app accepted 8080 40001
        +10.5 tcp app accepted 8080 40002
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.002 tcp app closed 8080 by-exit
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler started, but the process did not exit: the container runtime sent SIGKILL 10.0 s later
              fix: PID 1 `app` still accepted connections 9.5 s after SIGTERM and never closed its listener, so SIGTERM may not stop this program (some reload at SIGTERM): declare the signal that stops it (`STOPSIGNAL` in the image); if the program does shut down at SIGTERM, close the listener first, and raise the grace period above 10.0 s
        "#]],
    );
}

#[test]
fn a_program_that_closed_its_listener_needs_more_time() {
    check(
        &alone(
            "
        +2 tcp app accepted 8080 40001
        +10.5 tcp app accepted 8080 40002
        +10.6 tcp app closed 8080
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
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
fn abort_as_pid_1_is_named() {
    check_evidence(
        &container(
            "
        +1 ABRT main -> main default ignored thread
        +1.0001 exit main SEGV
        ",
        ),
        expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` called abort(): the kernel discarded SIGABRT for PID 1, and the process ended by SIGSEGV
              fix: look at the core dump or the last lines of the log: the fault is in the program
              +1.000 signal_generate: SIGABRT from `app` (pid 100, container 670000000000, child of `shim`), the process itself, to PID 1 `app`
              +1.000 sched_process_exit: PID 1 `app` was terminated by SIGSEGV
        "#]],
    );
}

#[test]
fn a_fault_long_after_an_abort_is_a_fault() {
    check(
        &container(
            "
        +1 ABRT main -> main default ignored thread
        +3 exit main SEGV
        ",
        ),
        expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` crashed with SIGSEGV
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
}

#[test]
fn cut_connections_are_as_critical_with_an_error_code() {
    check(
        &alone(
            "
        +1.5 exit main 1
        +1.5001 tcp app closed 8080 0 by-exit
        +1.5001 tcp app cut 8080 40001 sent=0 received=90 last-sent=0 last-received=20
        ",
        ),
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Cut
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 1, 0.5 s later; 1 open connection was dropped at exit, with an unanswered request
              fix: finish the requests in flight before the exit (graceful shutdown of the server), and allow enough time for them; read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn processes_of_the_program_itself_need_no_signal() {
    check(
        "
    +0 mkdir app
    proc main in=app pid=100 ns=1 start=+0 parent=shim comm=python3
    proc worker in=app pid=107 ns=7 start=+0.1 parent=main comm=python3
    +0.001 exec main
    +1 TERM runc -> main handler armed
    +1.0001 enter main TERM
    +3 KILL runc -> main waiting=none already-armed
    +3.001 exit main KILL
    +3.0011 KILL main -> worker kernel waiting=none already-armed
    +3.002 exit worker KILL
    ",
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `python3`, the handler started and sent no signal to `python3` (pid 107), but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later
              fix: the shutdown needs more than the 2.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}
