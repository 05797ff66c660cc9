//! Which of two main processes of one cgroup is the next one, and that the last one's end stays.

use expect_test::expect;

use super::{check, unit};
use crate::fixtures::script;

#[test]
fn the_next_main_process_begins_within_a_tick_of_the_last_ones_end() {
    check(
        "
        +0 mkdir web.service
        proc first in=web.service pid=200 start=+0.001 parent=bash comm=sleep
        proc second in=web.service pid=210 start=+0.309 parent=bash comm=sh
        proc child in=web.service pid=211 start=+0.312 parent=second comm=sleep
        proc third in=web.service pid=212 start=+0.62 parent=second comm=sleep
        +0.002 found first
        +0.002 exec first
        +0.306 exit first 0
        +0.311 found second
        +0.311 exec second
        +0.313 found child
        +0.313 exec child
        +0.613 exit child 0
        +0.621 found third
        +0.621 exec third
        +0.92 exit third 0
        +0.922 exit second 7
        +0.922 stays web.service
        ",
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Unknown
              `sh` (pid 210) exited by itself with code 7
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn the_next_main_process_was_forked_before_the_last_ones_end() {
    check(
        &unit(
            "
        proc next in=web.service pid=190 start=-1 parent=bash comm=sh
        proc child in=web.service pid=300 start=+1.2 parent=next comm=sleep
        +1 KILL bash -> main
        +1.001 exit main KILL
        +1.1 exec next
        +1.201 exec child
        +4 exit child 0
        +4.1 exit next 7
        ",
        ),
        expect![[r#"
            killed-by-other: External/KilledByOther/Unknown
              `bash` (pid 70, on the host) sent SIGKILL to `web` (pid 200); the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGKILL, and use the stop command of the service manager instead
            nonzero-exit: Crash/NonzeroExit/Quiet
              `sh` (pid 190) exited by itself with code 7
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn an_orphan_of_the_last_life_is_no_main_process() {
    check(
        &unit(
            "
        proc orphan in=web.service pid=201 start=+0.999 parent=systemd comm=worker
        +1 exit main 1
        +3.5 tick
        +4 found orphan
        +4 exec orphan
        +4.1 exit orphan 0
        ",
        ),
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Unknown
              `web` (pid 200) exited by itself with code 1
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn an_init_that_comes_in_later_does_not_replace_the_dead() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 start=+0 parent=shim comm=server
        proc init in=app pid=150 ns=1 start=+1.101 parent=shim comm=sleep
        +0.001 exec main
        +1 KILL bash -> main
        +1.001 exit main KILL
        +1.102 found init
        +1.102 exec init
        +5 exit init 3
        ",
        expect![[r#"
            killed-by-other: External/KilledByOther/Unknown
              `bash` (pid 70, on the host) sent SIGKILL to `server` (pid 100); the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGKILL, and use the stop command of the container runtime instead
            nonzero-exit: Crash/NonzeroExit/Quiet
              PID 1 `sleep` exited by itself with code 3
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn an_end_that_is_told_late_is_still_the_earlier_one() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 start=+0 parent=shim comm=server
        proc init in=app pid=150 ns=1 start=+1.101 parent=shim comm=sleep
        +0.001 exec main
        +1 KILL bash -> main
        +1.102 exec init
        +1.001 exit main KILL
        +1.2 exit init 3
        ",
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70, on the host) sent SIGKILL to `server` (pid 100); the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGKILL, and use the stop command of the container runtime instead
            nonzero-exit: Crash/NonzeroExit/Quiet
              PID 1 `sleep` exited by itself with code 3
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn a_stage_that_ends_before_its_init_begins_is_no_death() {
    check(
        "
        +0 mkdir app
        proc stage in=app pid=100 start=+0 parent=shim comm=runc
        proc init in=app pid=150 ns=1 start=+0.101 parent=shim comm=app
        +0.001 exec stage
        +0.1 exit stage 0
        +0.102 exec init
        +0.5 exit init 3
        ",
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Quiet
              PID 1 `app` exited by itself with code 3
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

/// `Type=forking`: the launcher exits once its daemon serves.
fn daemon(then: &str) -> String {
    format!(
        "
        +0 mkdir nginx.service
        proc launcher in=nginx.service pid=200 start=+0 parent=systemd comm=nginx
        proc master in=nginx.service pid=201 start=+0.05 parent=systemd comm=nginx
        proc worker in=nginx.service pid=202 start=+0.06 parent=master comm=nginx
        +0.001 exec launcher
        +0.1 exit launcher 0 armed leaves-others
        {then}
        "
    )
}

#[test]
fn the_launcher_of_a_daemon_is_a_step() {
    check(
        &daemon(
            "
        +60 TERM systemd -> master handler armed
        +60.0001 enter master TERM
        +60.1 tcp nginx.service closed 80 0 by=master
        +60.2 exit worker 0 already-armed leaves-others
        +60.5 exit master 0 already-armed
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `nginx` (pid 201), the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
    check(
        &daemon(
            "+30 exit worker SEGV listening armed leaves-others\n+60 exit master SEGV armed leaves-others\n+60.1 exit worker 1 already-armed",
        ),
        expect![[r#"
            crashed: Crash/Crashed/Quiet
              `nginx` (pid 201) crashed with SIGSEGV
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
}

/// What a main process leaves behind, systemd stops at once.
#[test]
fn a_main_process_that_leaves_others_is_no_launcher() {
    check(
        &daemon(
            "
        +0.11 TERM systemd -> master handler already-armed
        +0.1101 enter master TERM
        +0.2 exit worker 0 already-armed leaves-others
        +0.3 exit master 0 already-armed
        ",
        ),
        expect![[r#"
            clean: Completed/Clean/Quiet
              `nginx` (pid 200) exited by itself with code 0
        "#]],
    );
}

/// The launcher and its exit may be of the time before the agent: then the oldest process that it finds is the daemon.
#[test]
fn an_agent_that_starts_later_judges_the_daemon_the_same() {
    let shown = |script: &str| script::show(&script::run(script), false);
    let begin = "
        +0 start
        -0.5 mkdir nginx.service
        proc master in=nginx.service pid=201 start=-0.7 parent=systemd comm=nginx
        proc worker in=nginx.service pid=202 start=-0.6 parent=master comm=nginx
    ";
    let after_the_launcher = format!("{begin}\n+0.001 found master\n+0.001 found worker");
    let while_it_runs = format!(
        "{begin}
        proc launcher in=nginx.service pid=200 start=-0.8 parent=systemd comm=nginx
        +0.001 found launcher
        +0.001 found master
        +0.001 found worker
        +0.1 exit launcher 0 armed leaves-others
        "
    );
    // Within its first minutes a signal before the agent may be missing, but for a signal that it saw.
    for then in [
        "
        +3660 TERM systemd -> master handler armed
        +3660.0001 enter master TERM
        +3660.1 tcp nginx.service closed 80 0 by=master
        +3660.2 exit worker 0 already-armed leaves-others
        +3660.5 exit master 0 already-armed
        ",
        "
        +3630 exit worker SEGV listening armed leaves-others
        +3660 exit master SEGV armed leaves-others
        +3660.1 exit worker 1 already-armed
        ",
        "
        +3660 exit worker 0 armed leaves-others
        +3660.1 exit master 3 already-armed
        ",
        "
        +3660 KILL bash -> master armed
        +3660.001 exit master KILL already-armed leaves-others
        +3660.1 exit worker 0 already-armed
        ",
    ] {
        let seen = shown(&daemon(then));
        assert!(seen.lines().count() >= 2, "{then}: {seen}");
        for late in [&after_the_launcher, &while_it_runs] {
            assert_eq!(shown(&format!("{late}\n{then}")), seen, "{late}{then}");
        }
    }
}

/// `/proc` has shown the worker of a daemon, and not the daemon.
#[test]
fn a_worker_that_was_found_alone_is_not_the_daemon() {
    let text = "
        +0 start
        -0.5 mkdir nginx.service
        proc master in=nginx.service pid=201 start=-0.7 parent=systemd comm=nginx
        proc worker in=nginx.service pid=202 start=-0.6 parent=master comm=nginx
        +0.001 found worker
        +3660 exit worker 0 armed leaves-others
        +3660.1 exit master 3 already-armed
        ";
    let shown = script::show(&script::run(text), false);
    assert!(shown.starts_with("nonzero-exit: Crash/NonzeroExit/"), "{shown}");
}
