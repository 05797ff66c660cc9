//! Which process is the main one, and who is who.

use expect_test::expect;

use super::{check, check_evidence, container, unit};

#[test]
fn a_wrapper_shell_and_its_child_that_never_hears() {
    check_evidence(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=sh
        +0.001 exec main
        proc child in=app pid=101 ns=7 start=+0.1 parent=main comm=server
        +1 TERM runc -> main ignored default
        +11 KILL runc -> main
        +11.001 exit main KILL
        +11.002 KILL main -> child kernel
        +11.003 exit child KILL
        ",
        expect![[r#"
            early: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              fix: send SIGTERM on from PID 1 `sh` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit; this avoids the wait of 10.0 s
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `sh`: discarded by the kernel, no handler
              +11.000 signal_generate: SIGKILL from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `sh`
              +11.001 sched_process_exit: PID 1 `sh` was terminated by SIGKILL
        "#]],
    );
}

#[test]
fn a_childs_death_is_not_the_containers() {
    check(
        &container(
            "
        proc child in=app pid=101 ns=7 start=+0.1 parent=main comm=worker
        +1 TERM main -> child default
        +1.001 exit child TERM
        +2 SEGV child -> child fault
        +2.001 exit child SEGV
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_hook_that_comes_in_later_is_not_the_main_process() {
    check(
        &container(
            "
        proc hook in=app pid=150 ns=20 start=+1 parent=shim comm=sleep
        +1 exec hook
        +3 exit hook 7
        +3.1 TERM runc -> main handler
        +3.101 enter main TERM
        +4 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.9 s later
        "#]],
    );
}

#[test]
fn without_a_namespace_the_first_from_outside_is_main() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 start=+0 parent=shim comm=app
        proc child in=app pid=101 start=+0.1 parent=main comm=child
        +0.001 exec main
        +0.101 exec child
        +1 TERM runc -> main default
        +1.001 exit main TERM
        ",
        expect![[r#"
            default-action: Stopped/DefaultAction/Unknown
              SIGTERM terminated `app` (pid 100): the process has no SIGTERM handler, so any work in flight was lost
              fix: install a handler that finishes the work in flight and then exits with 0
        "#]],
    );
}

#[test]
fn the_outermost_namespace_is_the_containers() {
    check(
        &container(
            "
        proc inner in=app pid=120 ns=1 level=2 start=+0.2 parent=main comm=inner
        +0.2 exec inner
        +1 KILL main -> inner
        +1.001 exit inner KILL
        +2 TERM runc -> main handler
        +2.001 enter main TERM
        +3 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

#[test]
fn a_sandbox_inside_a_unit_is_not_its_main_process() {
    check(
        &unit(
            "
        proc sandbox in=web.service pid=220 ns=1 start=+0.2 parent=main comm=bwrap
        +0.2 exec sandbox
        +1 KILL main -> sandbox
        +1.001 exit sandbox KILL
        +2 TERM systemd -> main handler
        +2.001 enter main TERM
        +3 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

#[test]
fn a_process_id_used_again_is_another_process() {
    check(
        &unit(
            "
        proc later in=web.service pid=201 start=+0.5 parent=main comm=worker
        +0.6 exit later 0
        proc again in=web.service pid=200 start=+7 parent=systemd comm=web
        +1 TERM systemd -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        +7.001 exec again
        +8 KILL bash -> again
        +8.001 exit again KILL
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 0.5 s later; the sockets of the unit were not observed to their end: the cgroup still existed, and processes in it may close connections later
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70, on the host) sent SIGKILL to `web` (pid 200); the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGKILL, and use the stop command of the service manager instead
        "#]],
    );
}

#[test]
fn two_deaths_in_one_cgroup() {
    check(
        &unit(
            "
        proc second in=web.service pid=300 start=+2.1 parent=systemd comm=web
        +2 SEGV main -> main fault
        +2.001 exit main SEGV core
        +2.101 exec second
        +2.5 TERM systemd -> second handler
        +2.501 enter second TERM
        +3 exit second 0
        +3.1 rmdir web.service
        ",
        ),
        expect![[r#"
            crashed: Crash/Crashed/Quiet
              `web` (pid 200) crashed with SIGSEGV (core dumped)
              fix: look at the core dump or the last lines of the log: the fault is in the program
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `web` (pid 300), the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
}

#[test]
fn what_systemd_ends_after_the_main_process_is_no_death() {
    check(
        &unit(
            "
        proc child in=web.service pid=201 start=+0.1 parent=main comm=child
        +1 TERM systemd -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        +1.51 TERM systemd -> child default
        +1.511 exit child TERM
        +9 rmdir web.service
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 0.5 s later; the sockets of the unit were not observed to their end: the cgroup still existed, and processes in it may close connections later
        "#]],
    );
}

#[test]
fn a_unit_whose_main_process_is_not_known() {
    check(
        "
        +0 mkdir web.service
        proc main in=web.service pid=200 start=-5000 parent=systemd comm=web
        +1 TERM systemd -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        ",
        expect![[r#"
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

#[test]
fn two_reports_of_one_end() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        +1.5001 exit main 0
        +5 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
}

#[test]
fn a_sibling_container_of_the_same_shim_is_a_stranger() {
    check(
        &container(
            "
        +0 mkdir other
        proc sibling in=other pid=160 ns=1 start=+0 parent=shim comm=sidecar
        +1 KILL sibling -> main
        +1.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `sidecar` (pid 160, container 680000000000, child of `shim`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
              fix: find out why `sidecar` (pid 160, container 680000000000, child of `shim`) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
}

#[test]
fn a_runtime_by_ancestry_alone() {
    check(
        "
        proc player in=host pid=80 parent=bash comm=player
        proc stopper in=host pid=81 parent=player comm=kill
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=player comm=app
        +0.001 exec main
        +1 TERM stopper -> main ignored default
        +4 KILL player -> main
        +4.001 exit main KILL
        ",
        expect![[r#"
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 3.0 s later
              fix: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 3.0 s
        "#]],
    );
}

#[test]
fn an_orphan_shares_pid_1_with_half_of_the_machine() {
    check(
        &unit(
            "
        proc cron in=host pid=90 parent=systemd comm=cron
        +1 TERM cron -> main default
        +1.001 exit main TERM
        ",
        ),
        expect![[r#"
            default-action: External/DefaultAction/Quiet
              SIGTERM from `cron` (pid 90, on the host, child of `systemd`) terminated `web` (pid 200): the process has no SIGTERM handler, so any work in flight was lost
              fix: install a handler that finishes the work in flight and then exits with 0
        "#]],
    );
}

#[test]
fn names_are_data() {
    check_evidence(
        r"
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=\e[31mred
        proc killer in=host pid=99 parent=bash comm=\e]0;x
        +0.001 exec main
        +1 KILL killer -> main
        +1.001 exit main KILL
        ",
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `\u{1b}]0;x` (pid 99, on the host, child of `bash`) sent SIGKILL to PID 1 `\u{1b}[31mred`; the sender is neither the runtime nor the process itself
              fix: find out why `\u{1b}]0;x` (pid 99, on the host, child of `bash`) sent SIGKILL, and use the stop command of the container runtime instead
              +1.000 signal_generate: SIGKILL from `\u{1b}]0;x` (pid 99, on the host, child of `bash`), neither the runtime nor the process itself, to PID 1 `\u{1b}[31mred`
              +1.001 sched_process_exit: PID 1 `\u{1b}[31mred` was terminated by SIGKILL
        "#]],
    );
}

#[test]
fn killed_with_its_namespace() {
    check(
        "
        +0 mkdir pause
        +0 mkdir app
        proc pause in=pause pid=90 ns=1 start=+0 parent=shim comm=pause
        proc main in=app pid=100 ns=7 start=+0 parent=shim comm=app
        +0.001 exec main
        +1 KILL pause -> main kernel
        +1.001 exit main KILL
        ",
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              The kernel killed `app` (pid 100) because PID 1 of its pid namespace exited
              fix: find out why PID 1 of the pid namespace exited
        "#]],
    );
}

#[test]
fn the_name_after_an_exec_counts() {
    check(
        &container(
            "
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=java
        +0.5 exec main
        +1 exit main 1
        ",
        ),
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Quiet
              PID 1 `java` exited by itself with code 1
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn times_that_contradict_one_another_come_to_an_end() {
    check(
        &unit(
            "
        proc later in=web.service pid=201 start=+5 parent=systemd comm=web
        +1 exit main 1
        +1.1 exec later
        +1.2 exit later 1
        +2 end
        ",
        ),
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Unknown
              `web` (pid 200) exited by itself with code 1
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
            nonzero-exit: Crash/NonzeroExit/Unknown
              `web` (pid 201) exited by itself with code 1
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}
