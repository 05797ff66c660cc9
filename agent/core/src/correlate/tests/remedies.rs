//! Remedies that hold under a condition: each timeline has the condition, or lacks it.

use expect_test::expect;

use super::{check, container, unit};

/// A service in the background, and a first process that only keeps the container running.
const TAIL: &str = "
    +0 mkdir app
    proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tail
    proc nginx in=app pid=107 ns=7 start=+0.1 parent=main comm=nginx
    +0.001 exec main
";

#[test]
fn a_process_that_stands_in_for_the_service_cannot_send_a_signal_on() {
    check(
        &format!(
            "{TAIL}
        +5 TERM runc -> main default ignored armed
        +15 KILL runc -> main waiting=none already-armed
        +15.001 exit main KILL
        +15.0011 KILL main -> nginx kernel waiting=none already-armed
        +15.002 exit nginx KILL
        "
        ),
        expect![[r#"
            early: `tail` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `tail` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              fix: PID 1 `tail` only keeps the container running: start `nginx` in the foreground instead (with `exec` in a shell), so that SIGTERM reaches the service; this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn below_an_init_the_service_does_not_start_in_tail_either() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tini
        proc tail in=app pid=106 ns=6 start=+0.1 parent=main comm=tail
        proc nginx in=app pid=107 ns=7 start=+0.2 parent=main comm=nginx
        +0.001 exec main
        +5 TERM runc -> main default sigwait armed
        +5.0001 TERM main -> tail default already-armed
        +5.001 exit tail TERM
        +5.002 exit main 143
        +5.0021 KILL main -> nginx kernel waiting=none already-armed
        +5.003 exit nginx KILL
        ",
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `tini` forwarded SIGTERM to `tail`, which has no SIGTERM handler and was terminated by the default action; PID 1 then exited, and the kernel killed `nginx`, which never got the signal: any work in flight was lost
              fix: `tail` only keeps the container running: start `nginx` in the foreground instead (with `exec` in a shell), so that SIGTERM reaches the service
        "#]],
    );
}

/// At SIGTERM it exits with 0 at once; at SIGHUP with 111, when it has sent each runsv SIGTERM. It waits for nothing.
#[test]
fn runsvdir_does_not_wait_for_its_services() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=runsvdir
        proc runsv in=app pid=107 ns=7 start=+0.2 parent=main comm=runsv
        proc web in=app pid=108 ns=8 start=+0.3 parent=runsv comm=web
        +0.001 exec main
        +5 TERM runc -> main handler armed
        +5.0001 enter main TERM
        +5.0002 exit main 0 already-armed
        +5.0003 KILL main -> runsv kernel already-armed
        +5.0004 KILL main -> web kernel already-armed
        +5.001 exit runsv KILL
        +5.002 exit web KILL already-armed
        +5.0021 tcp app closed 8080 0 by-exit by=web
        ",
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGTERM to PID 1 `runsvdir`, the handler ran, and the process exited with code 0, less than 1 ms later; the kernel then killed `web`, which never got the signal, with its listener open
              fix: PID 1 `runsvdir` exits without waiting for `web`: let a shell stop the services first and wait for them (`trap 'kill $!; sv -w 8 shutdown DIR/*; exit 0' TERM; runsvdir DIR & wait`, with the directory of the services as DIR)
        "#]],
    );
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=runsvdir
        proc runsv in=app pid=107 ns=7 start=+0.2 parent=main comm=runsv
        +0.001 exec main
        +5 HUP runc -> main handler armed
        +5.0001 enter main HUP
        +5.0002 TERM main -> runsv handler already-armed
        +5.0003 exit main 111 already-armed
        +5.0004 KILL main -> runsv kernel already-armed
        +5.001 exit runsv KILL
        ",
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `runsvdir` forwarded SIGTERM to `runsv`; PID 1 `runsvdir` then exited with code 111, and the kernel killed `runsv`, whose shutdown had not finished
              fix: let PID 1 `runsvdir` wait until `runsv` has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must wait for its children before its own exit
        "#]],
    );
}

/// It signals a job's group, in which dash stays above the job.
#[test]
fn the_jobs_of_gnu_parallel_are_named_below_their_shells() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=parallel
        proc shell in=app pid=107 ns=7 start=+0.2 parent=main comm=sh
        proc backup in=app pid=108 ns=8 start=+0.21 parent=shell comm=backup
        +0.001 exec main
        +5 TERM runc -> main handler armed
        +5.0001 enter main TERM
        +5.01 TERM main -> shell default exiting already-armed
        +5.0101 TERM main -> backup handler already-armed
        +5.0102 enter backup TERM
        +5.0103 exit shell TERM
        +5.37 KILL main -> backup waiting=none already-armed
        +5.371 exit backup KILL
        +5.4 exit main 255
        ",
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `parallel` forwarded SIGTERM to `backup`, whose handler ran, but the shutdown did not finish: `parallel` sent SIGKILL 0.4 s later
              fix: the shutdown of `backup` needs more than the 0.4 s that `parallel` gave it: give its jobs more time (`--termseq TERM,10000,KILL,25`: 10 s), or declare SIGHUP as the stop signal (`STOPSIGNAL` in the image), at which `parallel` starts no further job and waits for its jobs
        "#]],
    );
}

/// At SIGTERM it stops its jobs by `--termseq`, within 0.4 s by default; at SIGHUP, and before 2019 at SIGTERM, it waits for them.
#[test]
fn the_jobs_of_gnu_parallel_are_named() {
    let jobs = "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=parallel
        proc backup in=app pid=107 ns=7 start=+0.2 parent=main comm=backup
        proc upload in=app pid=108 ns=8 start=+0.2 parent=main comm=upload
        +0.001 exec main
        +5 TERM runc -> main handler armed
        +5.0001 enter main TERM
        ";
    check(
        &format!(
            "{jobs}
        +5.01 TERM main -> backup handler already-armed
        +5.0101 enter backup TERM
        +5.0102 TERM main -> upload handler already-armed
        +5.0103 enter upload TERM
        +5.05 exit upload 0
        +5.37 KILL main -> backup waiting=none already-armed
        +5.371 exit backup KILL
        +5.4 exit main 255
        "
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `parallel` forwarded SIGTERM to `backup`, whose handler ran, but the shutdown did not finish: `parallel` sent SIGKILL 0.4 s later
              fix: the shutdown of `backup` needs more than the 0.4 s that `parallel` gave it: give its jobs more time (`--termseq TERM,10000,KILL,25`: 10 s), or declare SIGHUP as the stop signal (`STOPSIGNAL` in the image), at which `parallel` starts no further job and waits for its jobs
        "#]],
    );
    let killed = "
        +15 KILL runc -> main waiting=none already-armed
        +15.001 exit main KILL
        +15.0011 KILL main -> backup kernel waiting=none already-armed
        +15.0012 KILL main -> upload kernel waiting=none already-armed
        +15.002 exit backup KILL
        +15.003 exit upload KILL
        ";
    check(
        &format!("{jobs}{killed}"),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `parallel`, the handler started and sent no signal to `backup` and `upload`, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: raise the grace period above the length of a job: at SIGTERM PID 1 `parallel` waited for its jobs (`backup` and `upload`)
        "#]],
    );
    // Of any other program SIGHUP may mean "reload".
    check(
        &format!("{jobs}{killed}")
            .replace("TERM runc -> main", "HUP runc -> main")
            .replace("enter main TERM", "enter main HUP"),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGHUP to PID 1 `parallel`, the handler started and sent no signal to `backup` and `upload`, but the process did not exit: the container runtime sent SIGKILL 10.0 s later
              fix: raise the grace period above the length of a job: at SIGHUP PID 1 `parallel` waited for its jobs (`backup` and `upload`)
        "#]],
    );
}

#[test]
fn a_timer_a_limit_and_a_filter_leave_no_core_dump() {
    for (how, expected) in [
        (
            "+1 ALRM main -> main default timer\n+1.0001 exit main ALRM",
            expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` terminated itself with SIGALRM
              fix: install a SIGALRM handler in PID 1 `app` before it starts its timer (alarm, setitimer), or do not start the timer: the timer expired, and without a handler SIGALRM ends the process
        "#]],
        ),
        (
            "+1.0001 exit main ALRM",
            expect![[r#"
                unknown: Unknown/Unknown/Quiet
                  PID 1 `app` was terminated by SIGALRM, but the reason is unknown: a timer of the process sends SIGALRM, and so can another process; the sender of SIGALRM is not recorded
                  fix: if the program starts a timer (alarm, setitimer; profilers use one): install a SIGALRM handler before, or do not start the timer; otherwise search the audit log for the sender of SIGALRM
            "#]],
        ),
        // The program's own signal.
        (
            "+1 ALRM main -> main default thread\n+1.0001 exit main ALRM",
            expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` terminated itself with SIGALRM
              fix: look for the reason in the last lines of the log of PID 1 `app`, which sent SIGALRM to itself
        "#]],
        ),
        (
            "+1.0001 exit main PROF",
            expect![[r#"
                unknown: Unknown/Unknown/Quiet
                  PID 1 `app` was terminated by SIGPROF, but the reason is unknown: a timer of the process sends SIGPROF, and so can another process; the sender of SIGPROF is not recorded
                  fix: if the program starts a timer (alarm, setitimer; profilers use one): install a SIGPROF handler before, or do not start the timer; otherwise search the audit log for the sender of SIGPROF
            "#]],
        ),
        (
            "+1.0001 exit main PIPE",
            expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` terminated itself with SIGPIPE
              fix: ignore SIGPIPE in PID 1 `app` and handle the error EPIPE: the reader of a pipe or connection had closed it
        "#]],
        ),
        (
            "+1 XCPU main -> main kernel default\n+1.0001 exit main XCPU",
            expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` reached one of its resource limits and was terminated by SIGXCPU
              fix: find out what takes the processor time of PID 1 `app`, or raise the limit: RLIMIT_CPU, `ulimit -t` in what starts the program, or the ulimits of the container runtime; `/proc/PID/limits` of a running process has its value
        "#]],
        ),
        (
            "+1.0001 exit main XFSZ",
            expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` reached one of its resource limits and was terminated by SIGXFSZ
              fix: keep the files that PID 1 `app` writes smaller, or raise the limit: RLIMIT_FSIZE, `ulimit -f` in what starts the program, or the ulimits of the container runtime; `/proc/PID/limits` of a running process has its value
        "#]],
        ),
        (
            "+1 SYS main -> main fault default call=101\n+1.0001 exit main SYS",
            expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` crashed with SIGSYS: a seccomp filter refused the system call `ptrace` (number 101)
              fix: if PID 1 `app` needs the system call `ptrace` (number 101), allow it in the seccomp filter: the container runtime's profile (`--security-opt seccomp=`), or a filter of the program's own; otherwise change what makes PID 1 `app` use it
        "#]],
        ),
        // Newer than the table.
        (
            "+1 SYS main -> main fault default call=4000\n+1.0001 exit main SYS",
            expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` crashed with SIGSYS: a seccomp filter refused the system call number 4000
              fix: if PID 1 `app` needs the system call number 4000, allow it in the seccomp filter: the container runtime's profile (`--security-opt seccomp=`), or a filter of the program's own; otherwise change what makes PID 1 `app` use it
        "#]],
        ),
        // The record of an older epitaph has no number.
        (
            "+1 SYS main -> main fault default\n+1.0001 exit main SYS",
            expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` crashed with SIGSYS
              fix: if PID 1 `app` needs the system call, allow it in the seccomp filter: the container runtime's profile (`--security-opt seccomp=`), or a filter of the program's own; otherwise change what makes PID 1 `app` use it; the kernel's log has its number (`type=1326 … syscall=`), and `ausyscall` its name
        "#]],
        ),
        (
            "+1.0001 exit main SYS",
            expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` crashed with SIGSYS
              fix: if PID 1 `app` needs the system call, allow it in the seccomp filter: the container runtime's profile (`--security-opt seccomp=`), or a filter of the program's own; otherwise change what makes PID 1 `app` use it; the kernel's log has its number (`type=1326 … syscall=`), and `ausyscall` its name
        "#]],
        ),
        (
            "+1.0001 exit main SEGV core",
            expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` crashed with SIGSEGV (core dumped)
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
        ),
    ] {
        check(&container(how), expected);
    }
    check(
        &unit("+1.0001 exit main XCPU"),
        expect![[r#"
        crashed: Crash/Crashed/Quiet
          `web` (pid 200) reached one of its resource limits and was terminated by SIGXCPU
          fix: find out what takes the processor time of `web` (pid 200), or raise the limit: RLIMIT_CPU, `LimitCPU=` of the unit; `/proc/PID/limits` of a running process has its value
    "#]],
    );
    check(
        &unit("+1.0001 exit main SYS"),
        expect![[r#"
        crashed: Crash/Crashed/Quiet
          `web` (pid 200) crashed with SIGSYS
          fix: if `web` (pid 200) needs the system call, allow it in the seccomp filter: `SystemCallFilter=` of the unit, or a filter of the program's own; otherwise change what makes `web` (pid 200) use it; the kernel's log has its number (`type=1326 … syscall=`), and `ausyscall` its name
    "#]],
    );
}

/// A shell whose trap raises the signal again, and again.
#[test]
fn a_process_that_makes_more_records_than_its_budget_is_the_story() {
    let lost = |count: u64, scope: &str| {
        container(&format!(
            "
        +1 TERM runc -> main handler
        +1.01 enter main TERM
        +3 lost signal_generate +1 {count} {scope}
        +3.1 KILL runc -> main
        +3.2 exit main KILL
        "
        ))
    };
    check(
        &lost(120_000, "within app"),
        expect![[r#"
        unknown: Stopped/Unknown/Unknown
          PID 1 `app` was terminated by SIGKILL, but the reason is unknown: kernel records of sent signals were lost during the termination
          fix: find the process of the container that makes so many records of sent signals: 120000 more than the budget of one container in 2.0 s; a larger `kernel.ring_bytes` does not change the budget
    "#]],
    );
    // Too few, and of another.
    check(
        &lost(12, "within app"),
        expect![[r#"
        unknown: Stopped/Unknown/Unknown
          PID 1 `app` was terminated by SIGKILL, but the reason is unknown: kernel records of sent signals were lost during the termination
          fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
    "#]],
    );
    check(
        &lost(120_000, ""),
        expect![[r#"
        unknown: Stopped/Unknown/Unknown
          PID 1 `app` was terminated by SIGKILL, but the reason is unknown: kernel records of sent signals were lost during the termination
          fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
    "#]],
    );
}

#[test]
fn a_program_that_had_just_started_may_have_no_handler_yet() {
    let stopped = |start: &str, rest: &str| {
        format!(
            "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start={start} parent=shim comm=app
        +4.9 exec main
        {rest}
        "
        )
    };
    let ignored = "+5 TERM runc -> main default ignored\n+15 KILL runc -> main\n+15.01 exit main KILL";
    check(
        &stopped("+4.8", ignored),
        expect![[r#"
        early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
        ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
          `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
          fix: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s; the process was 0.2 s old at SIGTERM: a handler that is installed later than that comes too late
    "#]],
    );
    check(
        &stopped("+3", ignored),
        expect![[r#"
        early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
        ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
          `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
          fix: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s
    "#]],
    );
    // It has decided.
    let by_choice = "+5 TERM runc -> main ignore ignored\n+15 KILL runc -> main\n+15.01 exit main KILL";
    check(
        &stopped("+4.8", by_choice),
        expect![[r#"
        early: PID 1 `app` ignores SIGTERM (SIG_IGN), so the kernel discarded the signal
        ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
          PID 1 `app` ignores SIGTERM (SIG_IGN), so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
          fix: handle SIGTERM in PID 1 `app`: SIG_IGN is its own setting, or inherited from what starts it (`trap ''`, nohup); this avoids the wait of 10.0 s
    "#]],
    );
    check(
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+4.8 parent=systemd comm=app
        +4.9 exec main
        +5 TERM systemd -> main default
        +5.001 exit main TERM
        ",
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              SIGTERM terminated `app` (pid 100): the process has no SIGTERM handler, so any work in flight was lost
              fix: install a handler that finishes the work in flight and then exits with 0; the process was 0.2 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
    // Below an init, the age of the program counts.
    let below = |start: &str| {
        format!(
            "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tini
        proc app in=app pid=107 ns=7 start={start} parent=main comm=app
        +0.001 exec main
        {start} exec app
        +5 TERM runc -> main default sigwait
        +5.0001 TERM main -> app default
        +5.0005 exit app TERM
        +5.001 exit main 143
        "
        )
    };
    check(
        &below("+4.8"),
        expect![[r#"
        default-action: Stopped/DefaultAction/Quiet
          `tini` forwarded SIGTERM to `app`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
          fix: install a SIGTERM handler in `app` that finishes the work in flight and then exits with 0; `app` was 0.2 s old at SIGTERM: a handler that is installed later than that comes too late
    "#]],
    );
    check(
        &below("+3"),
        expect![[r#"
        default-action: Stopped/DefaultAction/Quiet
          `tini` forwarded SIGTERM to `app`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
          fix: install a SIGTERM handler in `app` that finishes the work in flight and then exits with 0
    "#]],
    );
}
