//! Exit and cause: one rule or one pair of rules each.

use expect_test::expect;

use super::{check, check_evidence, container, unit};

#[test]
fn exit_0_after_a_handled_stop_is_clean() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 0, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, its cgroup not known, child of `shim`) (its runtime) to PID 1 `app`: delivered, it has a handler
              +1.001 signal_deliver: PID 1 `app` entered its handler for SIGTERM
              +1.500 sched_process_exit: PID 1 `app` exited with code 0
        "#]],
    );
}

#[test]
fn exit_143_after_a_handled_stop_is_clean() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 143
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 143, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn exit_143_without_a_handler_is_a_nonzero_exit() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored default
        +1.5 exit main 143
        ",
        ),
        expect![[r#"
            early: SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 143, but why is not known: a probe that would show it was not active (signal_generate, signal_deliver); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn exit_143_without_a_stop_is_a_crash() {
    check(
        &container(
            "
        +1.5 exit main 143
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 143, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn ended_by_15_is_not_exit_143() {
    check(
        &unit(
            "
        +1 TERM systemd -> main default
        +1.001 exit main TERM
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              `web` (pid 200) was ended by SIGTERM, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn reraised_after_the_handler_is_clean() {
    check(
        &unit(
            "
        +1 TERM systemd -> main handler
        +1.001 enter main TERM
        +1.2 TERM main -> main default thread
        +1.201 exit main TERM
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              `web` (pid 200) was ended by SIGTERM, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn a_signalfd_reader_that_ends_with_0_is_clean() {
    check(
        &container(
            "
        +1 TERM runc -> main blocked default
        +1.2 exit main 0
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 0, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn a_sigwait_reader_that_ends_with_143_is_clean() {
    check(
        &container(
            "
        +1 TERM runc -> main blocked default
        +1.2 exit main 143
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 143, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn masked_and_never_read() {
    check(
        &container(
            "
        +1 TERM runc -> main blocked default
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_deliver); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn frozen_is_not_masked() {
    check(
        &container(
            "
        +1 TERM runc -> main frozen handler
        +11 KILL runc -> main frozen
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_deliver); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn stopped_is_not_masked() {
    check(
        &container(
            "
        +1 TERM runc -> main stopped handler
        +11 KILL runc -> main stopped
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_deliver); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn a_handler_that_is_never_entered() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_deliver); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn a_handler_entered_late_is_killed_after_grace() {
    check(
        &container(
            "
        +1 TERM runc -> main frozen handler
        +8 enter main TERM
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Unknown
              SIGTERM reached PID 1 `app`, its handler was entered 7.0 s later, but it was not done: the runtime sent SIGKILL 10.0 s later; its sockets were not observed
              fix: it needs more than the 10.0 s it was given: raise the grace, or finish the shutdown sooner
        "#]],
    );
}

#[test]
fn pid_1_without_a_handler() {
    check_evidence(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=sh
        +0.001 exec main
        +1 TERM runc -> main ignored default
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        expect![[r#"
            early: SIGTERM reached PID 1 `sh`, which has no handler, so the kernel dropped it
            ignored-stop-signal: Stopped/IgnoredStopSignal/Unknown
              SIGTERM reached PID 1 `sh`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 10.0 s later; its sockets were not observed
              fix: handle SIGTERM in PID 1 `sh`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 10.0 s of waiting
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, its cgroup not known, child of `shim`) (its runtime) to PID 1 `sh`: ignored, it has no handler
              +11.000 signal_generate: SIGKILL from `runc` (pid 60, its cgroup not known, child of `shim`) (its runtime) to PID 1 `sh`
              +11.001 sched_process_exit: PID 1 `sh` was ended by SIGKILL
        "#]],
    );
}

#[test]
fn pid_1_with_sig_ign() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored ignore
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: SIGTERM reached PID 1 `app`, which has it set to SIG_IGN, so the kernel dropped it
            ignored-stop-signal: Stopped/IgnoredStopSignal/Unknown
              SIGTERM reached PID 1 `app`, which has it set to SIG_IGN, so the kernel dropped it; the runtime sent SIGKILL 10.0 s later; its sockets were not observed
              fix: handle SIGTERM in PID 1 `app`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 10.0 s of waiting
        "#]],
    );
}

#[test]
fn ignored_and_the_kernel_does_not_say_why() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: SIGTERM reached PID 1 `app`, which has no handler or ignores it, so the kernel dropped it
            ignored-stop-signal: Stopped/IgnoredStopSignal/Unknown
              SIGTERM reached PID 1 `app`, which has no handler or ignores it, so the kernel dropped it; the runtime sent SIGKILL 10.0 s later; its sockets were not observed
              fix: handle SIGTERM in PID 1 `app`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 10.0 s of waiting
        "#]],
    );
}

#[test]
fn a_unit_that_ignores_it() {
    check(
        &unit(
            "
        +1 TERM systemd -> main ignored ignore
        +91 KILL systemd -> main
        +91.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: SIGTERM reached `web` (pid 200), which has it set to SIG_IGN, so the kernel dropped it
            ignored-stop-signal: Stopped/IgnoredStopSignal/Unknown
              SIGTERM reached `web` (pid 200), which has it set to SIG_IGN, so the kernel dropped it; the runtime sent SIGKILL 90 s later; its sockets were not observed
              fix: handle SIGTERM in `web` (pid 200), `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 90 s of waiting
        "#]],
    );
}

#[test]
fn ignored_but_it_ended_with_0() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored default
        +3 exit main 0
        ",
        ),
        expect![[r#"
            early: SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 0, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn the_early_warning_comes_once_per_stop() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored default
        +2 TERM runc -> main ignored default
        +3 INT runc -> main ignored default
        ",
        ),
        expect![[r#"
            early: SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it
        "#]],
    );
}

#[test]
fn killed_after_grace() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Unknown
              SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 10.0 s later; its sockets were not observed
              fix: it needs more than the 10.0 s it was given: raise the grace, or finish the shutdown sooner
        "#]],
    );
}

#[test]
fn a_custom_stop_signal() {
    check(
        &container(
            "
        +1 RTMIN+3 runc -> main handler
        +1.001 enter main RTMIN+3
        +11 KILL runc -> main cgroup.kill
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Unknown
              SIGRTMIN+3 reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL by cgroup.kill 10.0 s later; its sockets were not observed
              fix: it needs more than the 10.0 s it was given: raise the grace, or finish the shutdown sooner
        "#]],
    );
}

#[test]
fn a_reload_is_no_stop() {
    check(
        &unit(
            "
        +1 HUP systemd -> main handler
        +1.001 enter main HUP
        +60 TERM systemd -> main handler
        +60.001 enter main TERM
        +61 exit main 0
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              `web` (pid 200) exited with code 0, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn a_stop_signal_of_hup_alone_is_one() {
    check(
        &container(
            "
        +1 HUP runc -> main handler
        +1.001 enter main HUP
        +2 exit main 0
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 0, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn an_old_reload_did_not_end_it() {
    check(
        &unit(
            "
        +1 HUP systemd -> main handler
        +1.001 enter main HUP
        +2000 exit main 1
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) exited with code 1, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn a_second_stop_is_counted_not_judged() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +3 TERM runc -> main handler
        +4 INT runc -> main handler
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Unknown
              SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 10.0 s later; its sockets were not observed
              fix: it needs more than the 10.0 s it was given: raise the grace, or finish the shutdown sooner
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, its cgroup not known, child of `shim`) (its runtime) to PID 1 `app`: delivered, it has a handler
              +1.000 signal_generate: 2 more stop signals after it
              +1.001 signal_deliver: PID 1 `app` entered its handler for SIGTERM
              +11.000 signal_generate: SIGKILL from `runc` (pid 60, its cgroup not known, child of `shim`) (its runtime) to PID 1 `app`
              +11.001 sched_process_exit: PID 1 `app` was ended by SIGKILL
        "#]],
    );
}

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
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
              +11.000 signal_generate: SIGKILL from `runc` (pid 60, its cgroup not known, child of `shim`) (its runtime), by cgroup.kill to PID 1 `app`
              +11.001 sched_process_exit: PID 1 `app` was ended by SIGKILL
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
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, its cgroup not known, child of `shim`) (its runtime) to PID 1 `app`: delivered, it has a handler
              +1.001 signal_deliver: PID 1 `app` entered its handler for SIGTERM
              +3.000 signal_generate: SIGKILL from `bash` (pid 70, its cgroup not known) (neither its runtime nor itself) to PID 1 `app`
              +3.001 sched_process_exit: PID 1 `app` was ended by SIGKILL
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
            early: SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: External/Unknown/Unknown
              `web` (pid 200) exited with code 0, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: External/Unknown/Unknown
              `web` (pid 200) was ended by SIGTERM, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) was ended by SIGUSR1, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: External/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            oom-killed: Oom/OomKilled/Unknown
              The kernel killed PID 1 `app` because memory ran out
              fix: raise the memory limit, or make the process stay below it (heap size, caches, concurrency)
              +1.000 signal_generate: SIGKILL from `app` (pid 100, container 000000000000, child of `shim`) (sent by the kernel) to PID 1 `app`
              +1.000 mark_victim: the OOM killer chose `app` (pid 100), the main process
              +1.001 sched_process_exit: PID 1 `app` was ended by SIGKILL
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
            oom-killed: Oom/OomKilled/Unknown
              The kernel killed PID 1 `app` because memory ran out, 1.0 s after SIGTERM; its sockets were not observed
              fix: raise the memory limit, or make the process stay below it (heap size, caches, concurrency)
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
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            child oom in container 000000000000: worker pid 101
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
            oom-child: Oom/OomChild/Unknown
              The kernel killed `worker` (pid 101), a child of PID 1 `app`, because memory ran out, and PID 1 `app` ended with code 137 49 ms later
              fix: raise the memory limit or run fewer workers; make the main process survive the loss of one
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
            child oom in container 000000000000: worker pid 101
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 1, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            oom-killed: Oom/OomKilled/Unknown
              The kernel killed PID 1 `app` because memory ran out
              fix: raise the memory limit, or make the process stay below it (heap size, caches, concurrency)
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
            oom-killed: Oom/OomKilled/Unknown
              The kernel killed PID 1 `app` because memory ran out
              fix: raise the memory limit, or make the process stay below it (heap size, caches, concurrency)
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
            crashed: Crash/Crashed/Unknown
              `web` (pid 200) ran into a limit of its own and was ended by SIGKILL
              fix: look at the core dump or the last lines of its log; it is a fault of the program
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
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) was ended by SIGKILL, but why is not known: the kernel sent SIGKILL, and no OOM kill or limit was seen
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            crashed: Crash/Crashed/Unknown
              PID 1 `app` crashed with SIGSEGV and dumped core
              fix: look at the core dump or the last lines of its log; it is a fault of the program
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
            crashed: Crash/Crashed/Unknown
              PID 1 `app` crashed with SIGABRT
              fix: look at the core dump or the last lines of its log; it is a fault of the program
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
            crashed: Stopped/Crashed/Unknown
              PID 1 `app` crashed with SIGSEGV and dumped core, 1.0 s after SIGTERM; its sockets were not observed
              fix: look at the core dump or the last lines of its log; it is a fault of the program
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
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) was ended by SIGSEGV, core dumped, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: Stopped/Unknown/Unknown
              `web` (pid 200) was ended by SIGABRT, core dumped, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            crashed: Crash/Crashed/Unknown
              `web` (pid 200) ended itself by SIGKILL
              fix: look at the core dump or the last lines of its log; it is a fault of the program
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
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) was ended by SIGKILL, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 0, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 3, but why is not known: a probe that would show it was not active (signal_generate)
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 2, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 2, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
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
            unknown: External/Unknown/Unknown
              `web` (pid 200) was ended by SIGINT, but why is not known: a probe that would show it was not active (signal_generate); its sockets were not observed
              fix: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}
