//! The way of the stop signal inside a container: inits, supervisors, shells, and runtimes that raise the signal again. The sequences are
//! those of the programs named in the tests, as recorded from them.

use expect_test::expect;

use super::{check, check_evidence, container};

/// An init, PID 1, with a program below.
const INIT: &str = "
    +0 mkdir app
    proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tini
    proc python in=app pid=107 ns=7 start=+0.1 parent=main comm=python3
    +0.001 exec main
    +0.1 exec python
";

/// An init with a shell that does not execute the program but starts it.
const SHELL: &str = "
    +0 mkdir app
    proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tini
    proc sh in=app pid=107 ns=7 start=+0.1 parent=main comm=sh
    proc server in=app pid=108 ns=8 start=+0.2 parent=sh comm=server
    +0.001 exec main
    +0.1 exec sh
    +0.2 exec server
";

fn init(rest: &str) -> String {
    format!("{INIT}{rest}")
}

fn shell(rest: &str) -> String {
    format!("{SHELL}{rest}")
}

#[test]
fn tini_and_a_program_that_the_default_action_terminates() {
    check_evidence(
        &init(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python default exiting already-armed
        +1.0005 exit python TERM
        +1.001 exit main 143
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `python3`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `python3` that finishes the work in flight and then exits with 0; `python3` was 0.9 s old at SIGTERM: a handler that is installed later than that comes too late
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `tini`: delivered, no handler; waiting for the signal without a handler
              +1.000 signal_generate: SIGTERM from `tini` (pid 100) to `python3` (pid 107): delivered, no handler
              +1.000 sched_process_exit: `python3` (pid 107) was terminated by SIGTERM
              +1.001 sched_process_exit: PID 1 `tini` exited with code 143
        "#]],
    );
}

#[test]
fn tini_and_a_program_that_handles_it_and_exits_with_143() {
    check(
        &init(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python handler already-armed
        +1.0002 enter python TERM
        +1.5 exit python 143
        +1.501 exit main 143
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `python3`, and the process exited with code 143, 0.5 s later (128 + SIGTERM: the usual code of many language runtimes after a shutdown)
        "#]],
    );
}

#[test]
fn tini_and_a_program_that_ignores_it() {
    check_evidence(
        &init(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python ignored ignore already-armed
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> python kernel waiting=none already-armed
        +11.002 exit python KILL
        ",
        ),
        expect![[r#"
            early: `tini` forwarded SIGTERM to `python3`, which ignores SIGTERM (SIG_IGN)
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `tini` forwarded SIGTERM to `python3`, which ignores SIGTERM (SIG_IGN); the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in `python3`; this avoids the wait of 10.0 s
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `tini`: delivered, no handler; waiting for the signal without a handler
              +1.000 signal_generate: SIGTERM from `tini` (pid 100) to `python3` (pid 107): discarded by the kernel, SIG_IGN
              +11.000 signal_generate: SIGKILL from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `tini`
              +11.001 sched_process_exit: PID 1 `tini` was terminated by SIGKILL
              +11.002 sched_process_exit: `python3` (pid 107) was terminated by SIGKILL
        "#]],
    );
}

#[test]
fn tini_and_a_program_that_is_slow() {
    check(
        &init(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python handler already-armed
        +1.0002 enter python TERM
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> python kernel waiting=none already-armed
        +11.002 exit python KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `tini` forwarded SIGTERM to `python3`, whose handler ran, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn tini_and_a_program_that_blocks_it() {
    check(
        &init(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python default blocked already-armed
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> python kernel waiting=TERM already-armed
        +11.002 exit python KILL
        ",
        ),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              `tini` forwarded SIGTERM to `python3`, which blocks SIGTERM in its signal mask and never read the signal; the container runtime sent SIGKILL 10.0 s later
              fix: unblock the signal (a signal mask is inherited across fork and exec), or read it with sigwait or signalfd
        "#]],
    );
}

#[test]
fn a_blocked_signal_that_was_read_is_not_blocked() {
    check(
        &init(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python default blocked already-armed
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> python kernel waiting=none already-armed
        +11.002 exit python KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Unknown
              `tini` forwarded SIGTERM to `python3`, which reads the signal without a handler (signalfd or sigwait), but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_reader_without_a_handler_that_was_read_is_killed_after_grace() {
    check(
        &container(
            "
        +1 TERM runc -> main blocked default armed
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, which reads the signal without a handler (signalfd or sigwait), but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_blocked_signal_that_still_waits_is_blocked() {
    check(
        &container(
            "
        +1 TERM runc -> main blocked default armed
        +11 KILL runc -> main waiting=TERM already-armed
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, which blocks SIGTERM in its signal mask and never read the signal; the container runtime sent SIGKILL 10.0 s later
              fix: unblock the signal (a signal mask is inherited across fork and exec), or declare the signal that the program reads as its stop signal
        "#]],
    );
}

#[test]
fn tini_and_a_shell_that_does_not_exec() {
    check(
        &shell(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> sh default exiting already-armed
        +1.0005 exit sh TERM
        +1.001 exit main 143
        +1.0011 KILL main -> server kernel waiting=none already-armed
        +1.002 exit server KILL
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `sh`, which has no SIGTERM handler and was terminated by the default action; PID 1 then exited, and the kernel killed `server`, which never got the signal: any work in flight was lost
              fix: start the program with `exec` in `sh`, so that `tini` forwards SIGTERM to the program itself and waits for it; an init that signals the whole process group (`tini -g`, dumb-init) reaches the program, but does not wait for it
        "#]],
    );
}

/// vsftpd, with a process for each client: it is what `exec` would start.
#[test]
fn tini_and_a_program_that_leaves_its_own_processes() {
    check(
        &shell(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> sh default exiting already-armed
        +1.0005 exit sh TERM
        +1.001 exit main 143
        +1.0011 KILL main -> server kernel waiting=none already-armed
        +1.002 exit server KILL
        ",
        )
        .replace("comm=sh", "comm=vsftpd")
        .replace("comm=server", "comm=vsftpd"),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `vsftpd` (pid 107), which has no SIGTERM handler and was terminated by the default action; PID 1 then exited, and the kernel killed `vsftpd` (pid 108), which never got the signal: any work in flight was lost
              fix: install a SIGTERM handler in `vsftpd` (pid 107) that finishes the work in flight, also the work in its other processes, and then exits with 0
        "#]],
    );
}

#[test]
fn dumb_init_signals_the_group_and_exits_with_the_shell() {
    check(
        &shell(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> server handler already-armed
        +1.0001 TERM main -> sh default exiting already-armed
        +1.0003 enter server TERM
        +1.0005 exit sh TERM
        +1.001 exit main 143
        +1.0011 KILL main -> server kernel waiting=none already-armed
        +1.002 exit server KILL
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `sh`, which has no SIGTERM handler and was terminated by the default action; PID 1 then exited, and the kernel killed `server`, whose shutdown had not finished: any work in flight was lost
              fix: start the program with `exec` in `sh`, so that `tini` forwards SIGTERM to the program itself and waits for it; an init that signals the whole process group (`tini -g`, dumb-init) reaches the program, but does not wait for it
        "#]],
    );
}

/// As `tini -g`: the shell is terminated at once, its program finishes, and the init exits with the shell's code.
#[test]
fn a_group_whose_shell_is_terminated_and_whose_program_finishes() {
    let group = |code: u8| {
        shell(&format!(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> sh default exiting already-armed
        +1.0001 TERM main -> server handler already-armed
        +1.0002 enter server TERM
        +1.0005 exit sh TERM
        +1.2 exit server {code}
        +1.201 exit main 143
        "
        ))
    };
    check(
        &group(0),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to 2 processes, and the process exited with code 143, 0.2 s later (128 + SIGTERM: the usual code of many language runtimes after a shutdown)
    "#]],
    );
    // It failed, which the init's code does not tell.
    check(
        &group(3),
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Quiet
              `tini` forwarded SIGTERM to `server`, whose handler ran, and which exited with code 3, 0.2 s later
              fix: read the log of `server`; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
    // Its own code of a signal, at another one.
    check(
        &group(143).replace("TERM", "QUIT").replace("exit main 143", "exit main 131"),
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Quiet
              `tini` forwarded SIGQUIT to `server`, whose handler ran, and which exited with code 143, 0.2 s later
              fix: read the log of `server`; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
    check(
        &group(0).replace("+1.2 exit server 0", "+1.3 exit server KILL"),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `sh`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `sh` that finishes the work in flight and then exits with 0; `sh` was 0.9 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

/// As dumb-init above a worker with a pool: nothing shows what those of the pool had in hand.
#[test]
fn a_group_whose_program_finishes_without_its_pool() {
    let pool = |comm: &str, sender: &str| {
        init(&format!(
            "
        proc child in=app pid=108 ns=8 start=+0.2 parent=python comm={comm}
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python handler already-armed
        +1.0001 TERM {sender} -> child default exiting already-armed
        +1.0002 enter python TERM
        +1.0005 exit child TERM
        +1.5 exit python 0
        +1.501 exit main 0
        "
        ))
    };
    check(
        &pool("python3", "main"),
        expect![[r#"
        unknown: Stopped/Unknown/Quiet
          PID 1 `tini` exited with code 0, but the reason is unknown: the stop signal reached a process with the name of its parent, `python3`, the default action ended that process, and nothing shows whether it had work in hand
          fix: let the init signal its child alone (dumb-init `--single-child`, tini without `-g`), so that `python3` stops its own processes
    "#]],
    );
    // The program's own decision, and a helper that it has executed.
    for clean in [pool("python3", "python"), pool("sleep", "main")] {
        let shown = super::script::show(&super::script::run(&clean), false);
        assert!(shown.starts_with("clean: Stopped/Clean/Quiet"), "{shown}");
    }
}

/// As `kill 1` inside a container whose supervisor has such a worker: what the supervisor sends on is not recorded, only how the processes end.
#[test]
fn a_stop_from_inside_above_a_worker_with_a_pool() {
    let pool = |comm: &str, end: &str| {
        init(&format!(
            "
        proc tool in=app pid=120 ns=20 start=+0.9 parent=main comm=kill
        proc child in=app pid=108 ns=8 start=+0.2 parent=python comm={comm}
        +1 TERM tool -> main default sigwait
        +1.0005 exit child {end}
        +1.5 exit python 0
        +1.501 exit main 0
        "
        ))
    };
    check(
        &pool("python3", "TERM"),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `tini` exited with code 0, but the reason is unknown: a process with the name of its parent, `python3`, was terminated by a signal; signals that follow a stop from inside the container are not recorded, and nothing shows whether that process had work in hand
              fix: let the init signal its child alone (dumb-init `--single-child`, tini without `-g`), so that `python3` stops its own processes
        "#]],
    );
    // Its own decision, a fault, which is another matter, and a helper that it has executed.
    for clean in [pool("python3", "0"), pool("python3", "SEGV"), pool("sleep", "TERM")] {
        let shown = super::script::show(&super::script::run(&clean), false);
        assert!(shown.starts_with("clean-exit: "), "{shown}");
    }
}

#[test]
fn a_shell_that_traps_forwards_and_waits() {
    check(
        &shell(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> sh handler already-armed
        +1.0002 enter sh TERM
        +1.0004 TERM sh -> server ignored ignore already-armed
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> sh kernel waiting=none already-armed
        +11.0012 KILL main -> server kernel waiting=none already-armed
        +11.002 exit sh KILL
        +11.0021 exit server KILL
        ",
        ),
        expect![[r#"
            early: `tini` forwarded SIGTERM to `sh`, which forwarded SIGTERM to `server`, which ignores SIGTERM (SIG_IGN)
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `tini` forwarded SIGTERM to `sh`, which forwarded SIGTERM to `server`, which ignores SIGTERM (SIG_IGN); the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in `server`; this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn a_shell_whose_trap_waits_for_a_program_in_the_foreground() {
    check(
        &shell(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> sh handler already-armed
        +1.0002 enter sh TERM
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> sh kernel waiting=none already-armed
        +11.0012 KILL main -> server kernel waiting=none already-armed
        +11.002 exit sh KILL
        +11.0021 exit server KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `tini` forwarded SIGTERM to `sh`, whose handler ran and sent no signal to `server`, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: send SIGTERM on from `sh` to `server`: start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`, or let the init signal the whole process group (`tini -g`)
        "#]],
    );
}

#[test]
fn pid_1_reads_the_signal_and_forwards_it_to_nobody() {
    check(
        &init(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> python kernel waiting=none already-armed
        +11.002 exit python KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `tini`, the handler started and sent no signal to `python3`, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: send SIGTERM on from PID 1 `tini` to `python3`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
}

/// supervisord reopens its logs at SIGUSR2.
#[test]
fn a_signal_that_pid_1_takes_for_a_reload_reaches_nobody() {
    check(
        &init(
            "
        +1 USR2 runc -> main handler armed
        +1.0001 enter main USR2
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> python kernel waiting=none already-armed
        +11.002 exit python KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGUSR2 to PID 1 `tini`, the handler started and sent no signal to `python3`, but the process did not exit: the container runtime sent SIGKILL 10.0 s later
              fix: SIGUSR2 may not stop this program (some reload at SIGUSR2): declare the signal that does (`STOPSIGNAL` in the image); if the program does shut down at SIGUSR2: send SIGUSR2 on from PID 1 `tini` to `python3`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
}

/// gunicorn at SIGHUP: it stops a worker and starts another one, which needs no signal.
#[test]
fn a_program_whose_worker_is_slow_while_a_new_one_runs() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=gunicorn
        proc old in=app pid=107 ns=7 start=+0.1 parent=main comm=old
        proc new in=app pid=108 ns=8 start=+1.1 parent=main comm=new
        +0.001 exec main
        +1 HUP runc -> main handler armed
        +1.0001 enter main HUP
        +1.2 TERM main -> old handler already-armed
        +1.2001 enter old TERM
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> old kernel waiting=none already-armed
        +11.0012 KILL main -> new kernel waiting=none already-armed
        +11.002 exit old KILL
        +11.0021 exit new KILL
        ",
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `gunicorn` forwarded SIGTERM to `old`, whose handler ran, but the process did not exit: the container runtime sent SIGKILL 10.0 s later
              fix: SIGHUP may not stop this program (some reload at SIGHUP): declare the signal that does (`STOPSIGNAL` in the image); if the program does shut down at SIGHUP: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_supervisor_that_kills_its_child_after_a_grace_period_of_its_own() {
    check(
        &init(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> python ignored ignore already-armed
        +11 KILL main -> python waiting=none already-armed
        +11.001 exit python KILL
        +11.1 exit main 0
        ",
        ),
        expect![[r#"
            early: `tini` forwarded SIGTERM to `python3`, which ignores SIGTERM (SIG_IGN)
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `tini` forwarded SIGTERM to `python3`, which ignores SIGTERM (SIG_IGN); `tini` sent SIGKILL 10.0 s later
              fix: handle SIGTERM in `python3`; this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn a_supervisor_whose_only_child_the_default_action_terminates() {
    check(
        &init(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> python default exiting already-armed
        +1.001 exit python TERM
        +1.1 exit main 0
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `python3`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `python3` that finishes the work in flight and then exits with 0; `python3` was 0.9 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

#[test]
fn an_application_that_stops_a_helper_is_judged_by_itself() {
    check(
        &format!(
            "{INIT}
        proc worker in=app pid=108 ns=8 start=+0.2 parent=main comm=tini
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> worker default exiting already-armed
        +1.001 exit worker TERM
        +1.1 exit main 0
        "
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `tini`, the handler ran and sent the signal on to `tini` (pid 108), and the process exited with code 0, 0.1 s later
        "#]],
    );
}

#[test]
fn which_child_of_a_supervisor_held_up_the_stop() {
    check(
        &format!(
            "{INIT}
        proc nginx in=app pid=108 ns=8 start=+0.2 parent=main comm=nginx
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> nginx handler already-armed
        +1.0003 enter nginx TERM
        +1.0002 TERM main -> python ignored ignore already-armed
        +1.2 exit nginx 0
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> python kernel waiting=none already-armed
        +11.002 exit python KILL
        "
        ),
        expect![[r#"
            early: `tini` forwarded SIGTERM to `python3`, which ignores SIGTERM (SIG_IGN)
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `tini` forwarded SIGTERM to `python3`, which ignores SIGTERM (SIG_IGN); the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in `python3`; this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn tini_that_is_not_pid_1() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=20 start=+0 parent=shim comm=tini
        proc python in=app pid=107 ns=27 start=+0.1 parent=main comm=python3
        +0.001 exec main
        +0.1 exec python
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python ignored ignore already-armed
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL runc -> python cgroup.kill waiting=none already-armed
        +11.002 exit python KILL
        ",
        expect![[r#"
            early: `tini` forwarded SIGTERM to `python3`, which ignores SIGTERM (SIG_IGN)
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `tini` forwarded SIGTERM to `python3`, which ignores SIGTERM (SIG_IGN); the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in `python3`; this avoids the wait of 10.0 s
        "#]],
    );
}

/// Twisted: the shutdown has begun, and raises the signal for what its caller may have had as a handler.
#[test]
fn a_discarded_second_signal_after_a_listener_was_closed_is_no_early_warning() {
    check(
        &container(
            "
        +1 TERM runc -> main handler armed
        +1.0003 enter main TERM
        +1.0009 tcp app closed 80
        +1.0013 TERM main -> main default blocked waiting=TERM already-armed
        +1.0014 discard main TERM
        +2.2 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.2 s later
        "#]],
    );
}

#[test]
fn node_as_pid_1_raises_the_signal_again_in_vain() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.00015 TERM main -> main default blocked thread waiting=TERM already-armed
        +1.0002 discard main TERM
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: PID 1 `app` entered its SIGTERM handler, which raised SIGTERM again for the default action; PID 1 has none, so the kernel discarded the second signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              PID 1 `app` entered its SIGTERM handler, which raised SIGTERM again for the default action; PID 1 has none, so the kernel discarded the second signal; the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in the application that runs in PID 1 `app`: the handler of a language runtime only raises the signal again; or run a small init such as tini; this avoids the wait of 10.0 s
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.000 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.000 signal_generate: PID 1 `app` sent itself SIGTERM again, with the default action: discarded by the kernel
              +11.000 signal_generate: SIGKILL from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`
              +11.001 sched_process_exit: PID 1 `app` was terminated by SIGKILL
        "#]],
    );
}

#[test]
fn a_second_stop_signal_that_is_discarded_is_not_raised_again() {
    check(
        &container(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +3 TERM runc -> main ignored default already-armed
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_runtime_that_raises_it_again_unblocked_in_vain() {
    check(
        &container(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.00015 TERM main -> main ignored default thread already-armed
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: PID 1 `app` entered its SIGTERM handler, which raised SIGTERM again for the default action; PID 1 has none, so the kernel discarded the second signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              PID 1 `app` entered its SIGTERM handler, which raised SIGTERM again for the default action; PID 1 has none, so the kernel discarded the second signal; the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in the application that runs in PID 1 `app`: the handler of a language runtime only raises the signal again; or run a small init such as tini; this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn go_as_pid_1_raises_it_again_and_exits_with_2() {
    check(
        &container(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.00015 TERM main -> main ignored default thread already-armed
        +1.001 exit main 2
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              PID 1 `app` entered its SIGTERM handler, raised SIGTERM again at once, and exited with code 2: any work that the handler had not finished was lost
              fix: handle SIGTERM in the application that runs in PID 1 `app`: finish the work in flight, then exit with 0; the handler of a language runtime only raises the signal again
        "#]],
    );
}

#[test]
fn a_handler_that_has_finished_raises_it_again() {
    check(
        &container(
            "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.2 TERM main -> main ignored default thread already-armed
        +1.201 exit main 143
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 143, 0.2 s later (128 + SIGTERM: the usual code of many language runtimes after a shutdown)
        "#]],
    );
}

#[test]
fn node_below_tini_is_terminated_by_its_second_signal() {
    check(
        &init(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python handler already-armed
        +1.0002 enter python TERM
        +1.0003 TERM python -> python default blocked thread already-armed
        +1.0005 exit python TERM
        +1.001 exit main 143
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `python3`, whose handler raised SIGTERM again at once, so the default action terminated it: any work that the handler had not finished was lost
              fix: install a SIGTERM handler in `python3` that finishes the work in flight and then exits with 0
        "#]],
    );
}

#[test]
fn without_a_record_of_what_happened_inside_143_is_unknown() {
    check(
        &container(
            "
        +1 TERM runc -> main default sigwait unarmed
        +1.2 exit main 143 unarmed
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 143, but the reason is unknown: the signals between the processes of the container are not recorded here, so it is unknown whether the exit code comes from a process below PID 1 that the signal terminated
              fix: use cgroup v2 for containers: signals between the processes of a container are recorded there only
        "#]],
    );
}

#[test]
fn a_forward_by_another_process_changes_no_exit_of_the_default_action() {
    check(
        &format!(
            "{INIT}
        proc forger in=app pid=120 ns=20 start=+0.2 parent=python comm=forger
        proc forged in=app pid=121 ns=21 start=+0.2 parent=forger comm=forged
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> python default exiting already-armed
        +1.0002 TERM forger -> forged handler already-armed
        +1.0003 enter forged TERM
        +1.0005 exit python TERM
        +1.001 exit main 143
        "
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `python3`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `python3` that finishes the work in flight and then exits with 0; `python3` was 0.9 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

/// As of dumb-init, which has a handler of every signal.
#[test]
fn an_init_sends_on_a_signal_whose_default_action_is_to_do_nothing() {
    check(
        &init(
            "
        +1 WINCH runc -> main handler armed
        +1.0001 WINCH main -> python ignored default already-armed
        +3 KILL runc -> main already-armed
        +3.001 exit main KILL
        +3.0011 KILL main -> python kernel waiting=none already-armed
        +3.002 exit python KILL
        ",
        ),
        expect![[r#"
            early: `tini` forwarded SIGWINCH to `python3`, which has no SIGWINCH handler, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `tini` forwarded SIGWINCH to `python3`, which has no SIGWINCH handler, so the kernel discarded the signal; the container runtime sent SIGKILL 2.0 s later
              fix: handle SIGWINCH in `python3`, or declare the signal that stops the program (`STOPSIGNAL` in the image); this avoids the wait of 2.0 s; `python3` was 0.9 s old at SIGWINCH: a handler that is installed later than that comes too late
        "#]],
    );
}

#[test]
fn a_program_below_an_init_that_reopens_its_logs_needs_another_signal() {
    check(
        &init(
            "
        +1 USR1 runc -> main default sigwait armed
        +1.0001 USR1 main -> python handler already-armed
        +1.0002 enter python USR1
        +3 KILL runc -> main waiting=none already-armed
        +3.001 exit main KILL
        +3.0011 KILL main -> python kernel waiting=none already-armed
        +3.002 exit python KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `tini` forwarded SIGUSR1 to `python3`, whose handler ran, but the process did not exit: the container runtime sent SIGKILL 2.0 s later
              fix: SIGUSR1 may not stop this program (some reload at SIGUSR1): declare the signal that does (`STOPSIGNAL` in the image); if the program does shut down at SIGUSR1: the shutdown needs more than the 2.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_program_below_an_init_that_keeps_its_listener_may_need_another_signal() {
    check(
        &init(
            "
        +1 QUIT runc -> main default sigwait armed
        +1.0001 QUIT main -> python handler already-armed
        +1.0002 enter python QUIT
        +3 KILL runc -> main waiting=none already-armed
        +3.001 exit main KILL
        +3.0011 KILL main -> python kernel waiting=none already-armed
        +3.002 exit python KILL
        +3.0021 tcp app closed 80 by-exit
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `tini` forwarded SIGQUIT to `python3`, whose handler ran, but the process did not exit: the container runtime sent SIGKILL 2.0 s later
              fix: the shutdown needs more than the 2.0 s that it got: raise the grace period, or shorten the shutdown; the listener stayed open, so SIGQUIT may not stop this program (some reload at SIGQUIT): then declare the signal that does (`STOPSIGNAL` in the image)
        "#]],
    );
}

/// An init with a wrapper that forwards and waits, as `timeout` and `make` do.
fn wrapper(rest: &str) -> String {
    format!(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tini
        proc make in=app pid=107 ns=7 start=+0.1 parent=main comm=make
        proc server in=app pid=108 ns=8 start=+0.2 parent=make comm=server
        +0.001 exec main
        +0.1 exec make
        +0.2 exec server
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> make handler already-armed
        +1.0002 enter make TERM
        {rest}"
    )
}

const RAISES: &str = "
    +1.1 TERM make -> make default blocked thread already-armed
    +1.1001 exit make TERM
    +1.101 exit main 143
";

#[test]
fn a_wrapper_below_an_init_and_a_program_that_the_default_action_terminates() {
    check(
        &wrapper(&format!(
            "
        +1.0003 TERM make -> server default exiting already-armed
        +1.001 exit server TERM
        {RAISES}"
        )),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `make`, which forwarded SIGTERM to `server`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0; `server` was 0.8 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

#[test]
fn a_wrapper_below_an_init_and_a_program_that_handles_it() {
    check(
        &wrapper(&format!(
            "
        +1.0003 TERM make -> server handler already-armed
        +1.0004 enter server TERM
        +1.09 exit server 0
        {RAISES}"
        )),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `make`, and the process exited with code 143, 0.1 s later (128 + SIGTERM: the usual code of many language runtimes after a shutdown)
        "#]],
    );
}

/// The application's own work shows in the listener that it closed.
#[test]
fn an_application_below_an_init_that_stops_a_helper_is_judged_by_itself() {
    check(
        &wrapper(
            "
        +1.0003 tcp app closed 80
        +1.0004 TERM make -> server default exiting already-armed
        +1.001 exit server TERM
        +2 exit make 0
        +2.001 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `make`, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

/// Its own work shows in the time after the helper's end. A client that it served shows nothing: no listener was closed.
#[test]
fn a_worker_below_an_init_that_stops_a_helper_and_goes_on_is_judged_by_itself() {
    check(
        &wrapper(
            "
        +1.0004 TERM make -> server default exiting already-armed
        +1.001 exit server TERM
        +6 exit make 0
        +6.001 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `make`, and the process exited with code 0, 5.0 s later
        "#]],
    );
}

/// `npm start` starts a shell, which starts the program without `exec`.
#[test]
fn a_wrapper_below_an_init_whose_shell_does_not_exec() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tini
        proc npm in=app pid=107 ns=7 start=+0.1 parent=main comm=npm
        proc sh in=app pid=108 ns=8 start=+0.2 parent=npm comm=sh
        proc node in=app pid=109 ns=9 start=+0.3 parent=sh comm=node
        proc orphan in=app pid=109 ns=9 start=+0.3 parent=main comm=node
        +0.001 exec main
        +0.1 exec npm
        +0.2 exec sh
        +0.3 exec node
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> npm handler already-armed
        +1.0002 enter npm TERM
        +1.0003 TERM npm -> sh default exiting already-armed
        +1.001 exit sh TERM
        +1.01 TERM npm -> npm default exiting already-armed
        +1.011 exit npm TERM
        +1.012 exit main 143
        +1.0121 KILL main -> orphan kernel waiting=none already-armed
        +1.013 exit orphan KILL
        ",
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `npm`, which forwarded SIGTERM to `sh`, which has no SIGTERM handler and was terminated by the default action; PID 1 then exited, and the kernel killed `node`, which never got the signal: any work in flight was lost
              fix: start the program with `exec` in `sh`, so that `npm` forwards SIGTERM to the program itself and waits for it; an init that signals the whole process group (`tini -g`, dumb-init) reaches the program, but does not wait for it
        "#]],
    );
}

/// foreman waits for all, then kills all that still run.
#[test]
fn of_two_children_that_a_supervisor_kills_the_one_that_ignores_the_signal_held_it_up() {
    check(
        &format!(
            "{INIT}
        proc worker in=app pid=108 ns=8 start=+0.2 parent=main comm=worker
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> python handler already-armed
        +1.0003 enter python TERM
        +1.0004 TERM main -> worker ignored ignore already-armed
        +3 KILL main -> python waiting=none already-armed
        +3.0001 KILL main -> worker waiting=none already-armed
        +3.001 exit python KILL
        +3.002 exit worker KILL
        +3.1 exit main 0
        "
        ),
        expect![[r#"
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `tini` forwarded SIGTERM to `worker`, which ignores SIGTERM (SIG_IGN); `tini` sent SIGKILL 2.0 s later
              fix: handle SIGTERM in `worker`; this avoids the wait of 2.0 s
        "#]],
    );
}
