//! Kills, crashes, OOM and ends without a stop: one rule or one pair of rules each.

use expect_test::expect;

use super::{check, check_evidence, container, unit};

#[test]
fn force_killed() {
    check(
        &container(
            "
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGKILL to PID 1 `app` without a stop signal first
              fix: stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0)
        "#]],
    );
}

#[test]
fn force_killed_by_cgroup_kill() {
    check_evidence(
        &container(
            "
        +11 KILL runc -> main cgroup.kill
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGKILL through cgroup.kill to PID 1 `app` without a stop signal first
              fix: stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0)
              +11.000 signal_generate: SIGKILL from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app` through cgroup.kill
              +11.001 sched_process_exit: PID 1 `app` was terminated by SIGKILL
        "#]],
    );
}

#[test]
fn killed_by_a_stranger() {
    check(
        &container(
            "
        +11 KILL bash -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70, on the host) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
}

#[test]
fn killed_by_a_stranger_inside_the_grace() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +3 KILL bash -> main
        +3.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-by-other: Stopped/KilledByOther/Quiet
              `bash` (pid 70, on the host) sent SIGKILL to PID 1 `app`, 2.0 s after SIGTERM, during the grace period; the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGKILL, and use the stop command of the container runtime instead
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +3.000 signal_generate: SIGKILL from `bash` (pid 70, on the host), neither the runtime nor the process itself, to PID 1 `app`
              +3.001 sched_process_exit: PID 1 `app` was terminated by SIGKILL
        "#]],
    );
}

#[test]
fn killed_by_a_stranger_after_it_was_ignored() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored default
        +3 KILL bash -> main
        +3.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            killed-by-other: Stopped/KilledByOther/Quiet
              `bash` (pid 70, on the host) sent SIGKILL to PID 1 `app`, 2.0 s after SIGTERM, during the grace period; the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
}

#[test]
fn an_operators_term_is_not_the_runtimes() {
    check(
        &unit(
            "
        +1 TERM bash -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        ",
        ),
        expect![[r#"
            clean: External/Clean/Quiet
              `bash` (pid 70, on the host) sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

#[test]
fn an_operators_term_by_default_action() {
    check(
        &unit(
            "
        +1 TERM bash -> main default
        +1.001 exit main TERM
        ",
        ),
        expect![[r#"
            default-action: External/DefaultAction/Quiet
              SIGTERM from `bash` (pid 70, on the host) terminated `web` (pid 200): the process has no SIGTERM handler, so any work in flight was lost
              fix: install a handler that finishes the work in flight and then exits with 0
        "#]],
    );
}

#[test]
fn an_operators_usr1_kills() {
    check(
        &unit(
            "
        +1 USR1 bash -> main default
        +1.001 exit main USR1
        ",
        ),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70, on the host) sent SIGUSR1 to `web` (pid 200); the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGUSR1, and use the stop command of the service manager instead
        "#]],
    );
}

#[test]
fn the_runtime_kills_what_an_operator_had_asked() {
    check(
        &container(
            "
        +1 TERM bash -> main handler
        +1.001 enter main TERM
        +3 KILL runc -> main
        +3.001 exit main KILL
        ",
        ),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGKILL to PID 1 `app` without a stop signal of its own, 2.0 s after `bash` (pid 70, on the host) had sent SIGTERM
              fix: stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0)
        "#]],
    );
}

#[test]
fn oom_of_the_main_process() {
    check_evidence(
        &container(
            "
        +1 KILL main -> main kernel
        +1.0001 oom main
        +1.001 exit main KILL
        ",
        ),
        expect![[r#"
            oom-killed: Oom/OomKilled/Quiet
              The OOM killer killed PID 1 `app` because memory ran out
              fix: raise the memory limit, or reduce the memory that the process needs (heap size, caches, concurrency)
              +1.000 signal_generate: SIGKILL from `app` (pid 100, container 670000000000, child of `shim`), sent by the kernel, to PID 1 `app`
              +1.000 mark_victim: the OOM killer killed `app` (pid 100), the main process
              +1.001 sched_process_exit: PID 1 `app` was terminated by SIGKILL
        "#]],
    );
}

/// rt_sigqueueinfo(2) lets a process give its own signals any code: only the record's flag is the kernel's.
#[test]
fn a_forged_kernel_code_is_the_processs_own_signal() {
    let killed = |kill: &str| {
        container(&format!(
            "+1 KILL main -> main {kill} unarmed\n+1.001 exit main KILL unarmed\n"
        ))
    };
    check(
        &killed("kernel"),
        expect![[r#"
            crashed: Crash/Crashed/Unknown
              PID 1 `app` reached one of its resource limits and was terminated by SIGKILL
              fix: find out what takes the processor time of PID 1 `app`, or raise the limit: RLIMIT_CPU, `ulimit -t` in what starts the program, or the ulimits of the container runtime; `/proc/PID/limits` of a running process has its value
        "#]],
    );
    check(
        &killed("kernel-code"),
        expect![[r#"
            crashed: Crash/Crashed/Unknown
              PID 1 `app` terminated itself with SIGKILL
              fix: look for the reason in the last lines of the log of PID 1 `app`, which sent SIGKILL to itself
        "#]],
    );
}

#[test]
fn oom_inside_the_grace() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 KILL main -> main kernel
        +2.0001 oom main
        +2.001 exit main KILL
        ",
        ),
        expect![[r#"
            oom-killed: Oom/OomKilled/Quiet
              The OOM killer killed PID 1 `app` because memory ran out, 1.0 s after SIGTERM
              fix: raise the memory limit, or reduce the memory that the process needs (heap size, caches, concurrency)
        "#]],
    );
}

#[test]
fn marked_while_dying_of_a_kill_is_no_oom() {
    check(
        &container(
            "
        +1 KILL bash -> main
        +1.0001 oom main
        +1.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70, on the host) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
}

#[test]
fn oom_of_a_child_and_the_main_process_lives() {
    check(
        &container(
            "
        proc worker in=app pid=101 ns=7 start=+0.5 parent=main comm=worker
        +1 KILL worker -> worker kernel
        +1.0001 oom worker
        +1.001 exit worker KILL
        +2 tick
        ",
        ),
        expect![[r#"
            child oom in container 670000000000: worker pid 101
        "#]],
    );
}

#[test]
fn oom_of_a_child_and_the_main_process_ends_by_it() {
    check(
        &container(
            "
        proc worker in=app pid=101 ns=7 start=+0.5 parent=main comm=worker
        +1 KILL worker -> worker kernel
        +1.0001 oom worker
        +1.001 exit worker KILL
        +1.05 exit main 137
        ",
        ),
        expect![[r#"
            oom-child: Oom/OomChild/Quiet
              The OOM killer killed `worker` (pid 101) because memory ran out, and the main process, PID 1 `app`, exited with code 137, 49 ms later
              fix: raise the memory limit or run fewer workers; make the main process survive the loss of a worker
        "#]],
    );
}

#[test]
fn oom_of_a_child_long_before_is_not_the_reason() {
    check(
        &container(
            "
        proc worker in=app pid=101 ns=7 start=+0.5 parent=main comm=worker
        +1 KILL worker -> worker kernel
        +1.0001 oom worker
        +1.001 exit worker KILL
        +2 tick
        +30 exit main 1
        ",
        ),
        expect![[r#"
            child oom in container 670000000000: worker pid 101
            nonzero-exit: Crash/NonzeroExit/Quiet
              PID 1 `app` exited by itself with code 1
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

/// `job || true`: the code of the main process does not show it.
#[test]
fn oom_of_a_child_and_the_main_process_exits_with_0() {
    let oom = "
        proc job in=app pid=101 ns=2 start=+0.5 parent=main comm=job
        +1 KILL job -> job kernel unarmed
        +1.0001 oom job
        +1.001 exit job KILL
    ";
    check(
        &container(&format!("{oom} +1.05 exit main 0")),
        expect![[r#"
        oom-child: Oom/OomChild/Quiet
          The OOM killer killed `job` (pid 101) because memory ran out, and the main process, PID 1 `app`, exited with code 0, 49 ms later
          fix: raise the memory limit, or reduce the memory that is needed; let PID 1 `app` exit with an error if such a process fails
    "#]],
    );
    // So long before that another reason is as likely.
    check(
        &container(&format!("{oom} +30 exit main 0")),
        expect![[r#"
        child oom in container 670000000000: job pid 101
        clean: Completed/Clean/Quiet
          PID 1 `app` exited by itself with code 0
    "#]],
    );
    check(
        &container(&format!(
            "{oom} +4 TERM runc -> main handler armed\n+4.0001 enter main TERM\n+4.5 exit main 0"
        )),
        expect![[r#"
            child oom in container 670000000000: job pid 101
            oom-child: Oom/OomChild/Quiet
              The OOM killer killed `job` (pid 101) because memory ran out, and the main process, PID 1 `app`, exited with code 0, 3.5 s later, and 0.5 s after SIGTERM
              fix: raise the memory limit, or reduce the memory that is needed; let PID 1 `app` exit with an error if such a process fails
        "#]],
    );
    // Before the stop, and long before the exit: a word about it.
    check(
        &container(&format!(
            "{oom} +4 TERM runc -> main handler armed\n+4.0001 enter main TERM\n+14 exit main 0"
        )),
        expect![[r#"
            child oom in container 670000000000: job pid 101
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 10.0 s later; the OOM killer had killed `job` (pid 101) because memory ran out, 3.0 s before SIGTERM
        "#]],
    );
    check(
        &container(&format!(
            "{oom} +4 TERM runc -> main ignored default armed\n+14 KILL runc -> main\n+14.001 exit main KILL"
        )),
        expect![[r#"
            child oom in container 670000000000: job pid 101
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later; the OOM killer had killed `job` (pid 101) because memory ran out, 3.0 s before SIGTERM
              fix: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s
        "#]],
    );
    // Without its record another one is not known to be clean.
    let lost = "+1.5 lost mark_victim +0.9 1";
    check(
        &container(&format!(
            "{lost}\n+4 TERM runc -> main handler armed\n+4.0001 enter main TERM\n+4.5 exit main 0"
        )),
        expect![[r#"
            unknown: Stopped/Unknown/Quiet
              PID 1 `app` exited with code 0, but the reason is unknown: kernel records of OOM kills were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
    check(
        &container(&format!("{lost}\n+1.05 exit main 0")),
        expect![[r#"
        unknown: Unknown/Unknown/Quiet
          PID 1 `app` exited with code 0, but the reason is unknown: kernel records of OOM kills were lost during the termination
          fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
    "#]],
    );
}

#[test]
fn oom_of_a_child_during_the_stop() {
    check(
        &container(
            "
        proc job in=app pid=101 ns=2 start=+0.5 parent=main comm=job
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +2 KILL job -> job kernel already-armed
        +2.0001 oom job
        +2.001 exit job KILL
        +20 exit main 0
        ",
        ),
        expect![[r#"
            child oom in container 670000000000: job pid 101
            oom-child: Oom/OomChild/Quiet
              The OOM killer killed `job` (pid 101) because memory ran out, and the main process, PID 1 `app`, exited with code 0, 18.0 s later, and 19.0 s after SIGTERM
              fix: raise the memory limit, or reduce the memory that is needed; let PID 1 `app` exit with an error if such a process fails
        "#]],
    );
}

#[test]
fn oom_of_a_whole_cgroup_is_the_main_processes() {
    check(
        &container(
            "
        proc worker in=app pid=101 ns=7 start=+0.5 parent=main comm=worker
        +1 KILL worker -> worker kernel
        +1.0001 oom worker
        +1.0002 KILL worker -> main kernel
        +1.0003 oom main
        +1.001 exit worker KILL
        +1.002 exit main KILL
        ",
        ),
        expect![[r#"
            oom-killed: Oom/OomKilled/Quiet
              The OOM killer killed PID 1 `app` because memory ran out
              fix: raise the memory limit, or reduce the memory that the process needs (heap size, caches, concurrency)
        "#]],
    );
}

#[test]
fn an_oom_victim_of_which_only_the_pid_is_told() {
    check(
        &container(
            "
        +1 KILL main -> main kernel
        +1.0001 oom main pid-only
        +1.001 exit main KILL
        ",
        ),
        expect![[r#"
            oom-killed: Oom/OomKilled/Quiet
              The OOM killer killed PID 1 `app` because memory ran out
              fix: raise the memory limit, or reduce the memory that the process needs (heap size, caches, concurrency)
        "#]],
    );
}

#[test]
fn a_limit_is_no_oom() {
    check(
        &unit(
            "
        +1 KILL main -> main kernel
        +1.001 exit main KILL
        ",
        ),
        expect![[r#"
            crashed: Crash/Crashed/Quiet
              `web` (pid 200) reached one of its resource limits and was terminated by SIGKILL
              fix: find out what takes the processor time of `web` (pid 200), or raise the limit: RLIMIT_CPU, `LimitCPU=` of the unit; `/proc/PID/limits` of a running process has its value
        "#]],
    );
}

#[test]
fn a_kernel_kill_that_nothing_explains() {
    check(
        &unit(
            "
        +1 KILL bash -> main kernel
        +1.001 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Quiet
              `web` (pid 200) was terminated by SIGKILL, but the reason is unknown: the kernel sent SIGKILL, and neither an OOM kill nor a resource limit was seen
              fix: search the kernel log (`dmesg`) for the reason of the SIGKILL
        "#]],
    );
}

#[test]
fn a_fault() {
    check(
        &container(
            "
        +1 SEGV main -> main fault
        +1.001 exit main SEGV core
        ",
        ),
        expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` crashed with SIGSEGV (core dumped)
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
}

#[test]
fn an_abort() {
    check(
        &container(
            "
        +1 ABRT main -> main thread
        +1.001 exit main ABRT
        ",
        ),
        expect![[r#"
            crashed: Crash/Crashed/Quiet
              PID 1 `app` crashed with SIGABRT
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
}

#[test]
fn a_fault_during_the_shutdown() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 SEGV main -> main fault
        +2.001 exit main SEGV core
        ",
        ),
        expect![[r#"
            crashed: Stopped/Crashed/Quiet
              PID 1 `app` crashed with SIGSEGV (core dumped), 1.0 s after SIGTERM
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
}

#[test]
fn a_fault_signal_from_outside_is_no_fault() {
    check(
        &unit(
            "
        +1 SEGV bash -> main default
        +1.001 exit main SEGV core
        ",
        ),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70, on the host) sent SIGSEGV to `web` (pid 200), which dumped core; the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGSEGV, and use the stop command of the service manager instead
        "#]],
    );
}

#[test]
fn systemds_watchdog_is_a_stop_signal() {
    check(
        &unit(
            "
        +1 ABRT systemd -> main default
        +1.001 exit main ABRT core
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              SIGABRT terminated `web` (pid 200), which dumped core: the process has no SIGABRT handler, so any work in flight was lost
              fix: find out why the service manager sent SIGABRT, which does not ask a program to shut down: a watchdog that the service did not reset (`WatchdogSec=`), `KillSignal=`, or `systemctl kill`
        "#]],
    );
}

#[test]
fn kill_9_by_itself() {
    check(
        &unit(
            "
        +1 KILL main -> main
        +1.001 exit main KILL
        ",
        ),
        expect![[r#"
            crashed: Crash/Crashed/Quiet
              `web` (pid 200) terminated itself with SIGKILL
              fix: look for the reason in the last lines of the log of `web` (pid 200), which sent SIGKILL to itself
        "#]],
    );
}

#[test]
fn killed_by_its_own_child() {
    check(
        &unit(
            "
        proc child in=web.service pid=201 start=+0.5 parent=main comm=child
        +1 KILL child -> main
        +1.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-by-other: External/KilledByOther/Unknown
              `child` (pid 201, unit web.service, child of `web`) sent SIGKILL to `web` (pid 200); the sender is another process of the same unit
              fix: find out why `child` (pid 201, unit web.service, child of `web`) sent SIGKILL, and use the stop command of the service manager instead
        "#]],
    );
}

#[test]
fn completed() {
    check(
        &container(
            "
        +5 exit main 0
        ",
        ),
        expect![[r#"
            clean: Completed/Clean/Quiet
              PID 1 `app` exited by itself with code 0
        "#]],
    );
}

#[test]
fn nonzero_exit_by_itself() {
    check(
        &container(
            "
        +5 exit main 3
        ",
        ),
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Quiet
              PID 1 `app` exited by itself with code 3
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn nonzero_exit_after_a_stop() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 2
        ",
        ),
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 2, 1.0 s later
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn a_go_program_as_pid_1_exits_2() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.01 exit main 2
        ",
        ),
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 2, 10 ms later
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn a_terminals_interrupt() {
    check(
        &unit(
            "
        +1 INT bash -> main kernel default
        +1.001 exit main INT
        ",
        ),
        expect![[r#"
            default-action: External/DefaultAction/Quiet
              SIGINT from the terminal terminated `web` (pid 200): the process has no SIGINT handler, so any work in flight was lost
              fix: install a handler that finishes the work in flight and then exits with 0
        "#]],
    );
}
