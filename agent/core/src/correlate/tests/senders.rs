//! Who sent a signal to a unit: systemd is named only where systemd sent.

use expect_test::expect;

use super::{check, check_evidence, unit};

/// A scope, as `systemd-run --scope` makes it: the shell's child moves into it.
const SCOPE: &str = "
    +0 mkdir job.service
    proc shell in=host pid=300 start=-60 parent=systemd comm=bash
    proc main in=job.service pid=301 start=+0 parent=shell comm=job
    +0.001 exec main
";

#[test]
fn a_parent_that_is_not_systemd_is_named() {
    check_evidence(
        &format!("{SCOPE}+10 KILL shell -> main\n+10.001 exit main KILL\n+10.01 rmdir job.service"),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              `bash` (pid 300, on the host, child of `systemd`) sent SIGKILL to `job` (pid 301) without a stop signal first
              fix: stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0)
              +10.000 signal_generate: SIGKILL from `bash` (pid 300, on the host, child of `systemd`), the parent of the process, or in a unit around it, to `job` (pid 301)
              +10.001 sched_process_exit: `job` (pid 301) was terminated by SIGKILL
        "#]],
    );
    check(
        &format!("{SCOPE}+10 TERM shell -> main default\n+10.001 exit main TERM\n+10.01 rmdir job.service"),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              SIGTERM from `bash` (pid 300, on the host, child of `systemd`) terminated `job` (pid 301): the process has no SIGTERM handler, so any work in flight was lost
              fix: install a handler that finishes the work in flight and then exits with 0
        "#]],
    );
    check(
        &format!(
            "{SCOPE}+10 TERM shell -> main ignored ignore\n+11 KILL shell -> main\n+11.001 exit main KILL\n+11.01 rmdir job.service"
        ),
        expect![[r#"
            early: `job` (pid 301) ignores SIGTERM (SIG_IGN), so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `job` (pid 301) ignores SIGTERM (SIG_IGN), so the kernel discarded the signal from `bash` (pid 300, on the host, child of `systemd`); `bash` (pid 300, on the host, child of `systemd`) sent SIGKILL 1.0 s later
              fix: handle SIGTERM in `job` (pid 301): SIG_IGN is its own setting, or inherited from what starts it (`trap ''`, nohup); this avoids the wait of 1.0 s
        "#]],
    );
}

/// A command of the shell that started the unit's process is not the unit's manager.
#[test]
fn a_relative_of_the_process_is_not_its_manager() {
    check(
        &format!(
            "{SCOPE}proc kill in=host pid=310 start=+9.9 parent=shell comm=kill
            +10 KILL kill -> main\n+10.001 exit main KILL\n+10.01 rmdir job.service"
        ),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `kill` (pid 310, on the host, child of `bash`) sent SIGKILL to `job` (pid 301); the sender is neither the runtime nor the process itself
              fix: find out why `kill` (pid 310, on the host, child of `bash`) sent SIGKILL, and use the stop command of the service manager instead
        "#]],
    );
}

/// Neither is a container runtime, or a child of PID 1 in PID 1's own cgroup.
#[test]
fn a_runtime_of_containers_and_a_child_of_systemd_are_not_systemd() {
    check(
        &unit("+10 KILL shim -> main\n+10.001 exit main KILL\n+10.01 rmdir web.service"),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `shim` (pid 50, unit containerd.service, child of `systemd`) sent SIGKILL to `web` (pid 200); the sender is neither the runtime nor the process itself
              fix: find out why `shim` (pid 50, unit containerd.service, child of `systemd`) sent SIGKILL, and use the stop command of the service manager instead
        "#]],
    );
    check(
        &unit(
            "proc child in=init pid=2 start=-90 parent=systemd comm=rescue
            +10 KILL child -> main\n+10.001 exit main KILL\n+10.01 rmdir web.service",
        ),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `rescue` (pid 2, on the host, child of `systemd`) sent SIGKILL to `web` (pid 200); the sender is neither the runtime nor the process itself
              fix: find out why `rescue` (pid 2, on the host, child of `systemd`) sent SIGKILL, and use the stop command of the service manager instead
        "#]],
    );
}

#[test]
fn the_manager_of_a_user_is_systemd() {
    check(
        "
        +0 mkdir user@1000.service
        +0 mkdir user@1000.service+init.scope
        +0 mkdir user@1000.service+app.service
        proc manager in=user@1000.service+init.scope pid=400 start=-60 parent=systemd comm=systemd
        proc main in=user@1000.service+app.service pid=401 start=+0 parent=manager comm=app
        proc worker in=user@1000.service+app.service pid=402 start=+0.5 parent=main comm=worker
        +0.001 exec main
        +10 TERM manager -> main default
        +10.001 exit main TERM
        +10.01 rmdir user@1000.service+app.service
        ",
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              SIGTERM terminated `app` (pid 401): the process has no SIGTERM handler, so any work in flight was lost
              fix: install a handler that finishes the work in flight and then exits with 0
        "#]],
    );
}

#[test]
fn pid_1_of_another_name_is_named() {
    check(
        &unit(
            "proc other in=init pid=1 start=-90 parent=systemd comm=dumb-init
            +10 KILL other -> main\n+10.001 exit main KILL\n+10.01 rmdir web.service",
        ),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              `dumb-init` (pid 1, on the host, child of `dumb-init`) sent SIGKILL to `web` (pid 200) without a stop signal first
              fix: stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0)
        "#]],
    );
}
