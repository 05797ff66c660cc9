//! What a process from outside sends to a program below PID 1, while nobody stops the container.

use std::fmt::Write;

use expect_test::expect;

use super::{check, check_evidence, container};
use crate::fixtures::script;

/// `sh -c 'server; exit $?'`
fn below(lines: &str, code: &str) -> String {
    container(&format!(
        "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        {lines}
        +60.02 exit main {code} armed
        "
    ))
}

/// The verdict and its axes.
fn headline(lines: &str, code: &str) -> String {
    let shown = script::show(&script::run(&below(lines, code)), false);
    let mut lines = shown.lines().filter(|line| !line.starts_with("dropped"));
    lines.next().map(str::to_owned).unwrap_or_default()
}

const KILLED: &str = "+59.999 KILL bash -> server exiting waiting=none unarmed\n+60 exit server KILL listening by-own";

#[test]
fn the_wrapper_passes_the_status_on() {
    check_evidence(
        &below(KILLED, "137"),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70) killed `server`, which still ran, with its listener open; PID 1 `app` then exited with code 137
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
              +59.999 signal_generate: SIGKILL from `bash` (pid 70) to `server` (pid 107)
              +60.000 sched_process_exit: `server` (pid 107) was terminated by SIGKILL
              +60.000 tcp: the exit of `server` (pid 107) closed a listener
              +60.020 sched_process_exit: PID 1 `app` exited with code 137
        "#]],
    );
    check(
        &below(&KILLED.replace("KILL", "TERM").replace("exiting", "default exiting"), "143"),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70) sent SIGTERM to `server`, which its default action terminated with its listener open; PID 1 `app` then exited with code 143
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
        "#]],
    );
    // A core dump: the fault is not its own.
    check(
        &below(&KILLED.replace("KILL", "ABRT").replace("exiting", "default"), "134"),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70) sent SIGABRT to `server`, which its default action terminated with its listener open; PID 1 `app` then exited with code 134
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
        "#]],
    );
}

#[test]
fn the_wrapper_hides_the_status() {
    check(
        &below(KILLED, "0"),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70) killed `server`, which still ran, with its listener open; PID 1 `app` then exited with code 0
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
        "#]],
    );
    check(
        &below(KILLED, "3"),
        expect![[r#"
        nonzero-exit: Crash/NonzeroExit/Quiet
          PID 1 `app` exited by itself with code 3; `bash` (pid 70) killed `server`, which still ran, with its listener open
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
}

/// No record of a socket: nothing begins a timeline.
#[test]
fn the_program_serves_by_no_tcp() {
    let by_path = KILLED.replace("listening by-own", "other-sockets unarmed");
    assert_eq!(headline(&by_path, "137"), "killed-by-other: External/KilledByOther/Unknown");
    assert_eq!(headline(&by_path, "0"), "killed-by-other: External/KilledByOther/Unknown");
}

#[test]
fn a_signal_that_did_not_end_the_program_is_not_to_blame() {
    let ended = |by: &str, status: &str| {
        headline(
            &format!("+59.9 TERM bash -> server {by} unarmed\n+60 exit server {status} listening by-own"),
            "143",
        )
    };
    assert_eq!(ended("ignored ignore", "TERM"), "unknown: Unknown/Unknown/Quiet", "ignored");
    assert_eq!(
        ended("handler", "TERM"),
        "unknown: Unknown/Unknown/Quiet",
        "handled, and raised again: or another's"
    );
    assert_eq!(ended("handler", "143"), "nonzero-exit: Crash/NonzeroExit/Quiet", "handled");
    assert_eq!(
        ended("default sigwait", "TERM"),
        "unknown: Unknown/Unknown/Quiet",
        "read, and then another's"
    );
    assert_eq!(
        ended("default blocked", "TERM"),
        "unknown: Unknown/Unknown/Quiet",
        "left blocked, and another's after it"
    );
    assert_eq!(
        ended("default traced", "TERM"),
        "unknown: Unknown/Unknown/Quiet",
        "taken by a debugger, and then another's"
    );
    let to_zombie = |signal: &str, code: &str| {
        let lines =
            format!("+60 exit server {signal} listening by-own\n+60.01 {signal} bash -> server default exiting unarmed");
        headline(&lines, code)
    };
    assert_eq!(to_zombie("TERM", "143"), "unknown: Unknown/Unknown/Quiet");
    assert_eq!(to_zombie("TERM", "0"), "unknown: Unknown/Unknown/Quiet");
    assert_eq!(to_zombie("KILL", "137"), "unknown: Unknown/Unknown/Quiet");
    assert_eq!(to_zombie("KILL", "0"), "unknown: Unknown/Unknown/Quiet");
    assert_eq!(
        ended("default pending", "TERM"),
        "unknown: Unknown/Unknown/Quiet",
        "another's waits"
    );
    assert_eq!(
        ended("default exiting", "KILL"),
        "nonzero-exit: Crash/NonzeroExit/Quiet",
        "SIGKILL has no record"
    );
    // Another process that had the number before.
    let other = "proc other in=app pid=108 ns=8 start=+0.1 parent=main comm=server\n+59.9 TERM bash -> other default unarmed\n+60 exit server TERM listening by-own";
    assert_eq!(headline(other, "143"), "unknown: Unknown/Unknown/Quiet");
}

/// The first that takes effect ends it; the kernel discards what comes after.
#[test]
fn of_several_strangers_the_first_fatal_signal_counts() {
    let lines = "
        +50 TERM bash -> server ignored ignore unarmed
        +59.9 HUP janitor -> server handler unarmed
        +59.999 KILL janitor -> server exiting waiting=none unarmed
        +59.9991 KILL bash -> server ignored exiting waiting=none unarmed
        +60 exit server KILL listening by-own";
    let janitor = "+0.2 mkdir its.service\nproc janitor in=its.service pid=90 start=+0 parent=systemd comm=janitor";
    check(
        &below(&format!("{janitor}\n{lines}"), "137"),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `janitor` (pid 90) killed `server`, which still ran, with its listener open; PID 1 `app` then exited with code 137
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
        "#]],
    );
}

/// Its record is of no use while nobody stops the container, but it came first.
#[test]
fn what_is_killed_from_inside_or_by_the_runtime_has_no_culprit() {
    let killed = |by: &str| headline(&KILLED.replace("bash", by), "137");
    assert_eq!(killed("main"), "unknown: Unknown/Unknown/Quiet");
    assert_eq!(killed("runc"), "unknown: Unknown/Unknown/Quiet");
    let both = KILLED.replace("+60 exit", "+59.9991 KILL main -> server ignored exiting unarmed\n+60 exit");
    assert_eq!(headline(&both, "137"), "killed-by-other: External/KilledByOther/Quiet");
    let late = KILLED.replace(
        "+59.999 KILL bash -> server exiting",
        "+59.998 KILL main -> server exiting unarmed\n+59.999 KILL bash -> server ignored exiting",
    );
    assert_eq!(headline(&late, "137"), "unknown: Unknown/Unknown/Quiet");
    // As before 5.16: a second SIGKILL waits beside the first.
    let waits = late.replace("ignored exiting", "pending exiting");
    assert_eq!(headline(&waits, "137"), "unknown: Unknown/Unknown/Quiet");
    assert_eq!(headline(&waits, "0"), "unknown: Unknown/Unknown/Quiet");
}

/// A helper, and a worker of long before.
#[test]
fn what_ends_and_does_not_matter() {
    let helper = KILLED.replace("listening by-own", "looked unarmed");
    assert_eq!(headline(&helper, "0"), "clean: Completed/Clean/Quiet");
    assert_eq!(headline(&helper, "137"), "nonzero-exit: Crash/NonzeroExit/Quiet");
    let before = KILLED.replace("+59.999", "+39.999").replace("+60", "+40");
    assert_eq!(headline(&before, "0"), "clean: Completed/Clean/Quiet");
    assert_eq!(headline(&before, "137"), "nonzero-exit: Crash/NonzeroExit/Quiet");
}

/// The main process goes on for some seconds, and then exits by itself.
#[test]
fn a_worker_of_a_pool() {
    let pool = |held: &str| {
        KILLED
            .replace("+59.999", "+54.999")
            .replace("+60", "+55")
            .replace("listening by-own", held)
    };
    assert_eq!(
        headline(&pool("serving by-own"), "0"),
        "killed-by-other: External/KilledByOther/Unknown"
    );
    assert_eq!(
        headline(&pool("serving by-own"), "137"),
        "killed-by-other: External/KilledByOther/Unknown"
    );
    assert_eq!(headline(&pool("looked by-own"), "0"), "clean: Completed/Clean/Quiet");
}

/// A shell that got a signal before it executed the program.
#[test]
fn the_process_executes_another_program_meanwhile() {
    let lines = "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=sh
        +59.9 HUP bash -> server handler unarmed
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +59.95 exec server
        +59.999 KILL bash -> server exiting waiting=none unarmed
        +60 exit server KILL listening by-own";
    check(
        &below(lines, "137"),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70) killed `server`, which still ran, with its listener open; PID 1 `app` then exited with code 137
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
        "#]],
    );
}

/// The stop finds a wrapper alone.
#[test]
fn a_stop_follows() {
    let script = container(
        "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +57 KILL bash -> server exiting waiting=none unarmed
        +57.001 exit server KILL listening by-own
        +57.002 tcp app closed 8080 0 by-exit by=server by-own
        +60 TERM runc -> main handler armed
        +60.001 enter main TERM
        +60.02 exit main 0 already-armed
        ",
    );
    check(
        &script,
        expect![[r#"
        killed-by-other: Stopped/KilledByOther/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 20 ms later; `bash` (pid 70) killed `server`, which never got the signal, with its listener open
          fix: find out why `server` was killed, and use the stop command of the container runtime instead
    "#]],
    );
}

/// It is kept as long as a record may be late, and of many a timeline begins.
#[test]
fn signals_of_long_ago_are_forgotten_and_many_are_counted() {
    let other = "proc other in=app pid=109 ns=9 start=+0.1 parent=main comm=other\n+59.9 USR1 bash -> other ignored ignore unarmed\n+60 exit";
    let late = KILLED.replace("+59.999", "+50").replace("+60 exit", other);
    assert_eq!(headline(&late, "137"), "unknown: Unknown/Unknown/Quiet");
    let many = |at: &str| {
        let mut lines = String::new();
        for i in 1000..1300 {
            writeln!(lines, "proc w{i} in=app pid={i} ns={i} start=+0.1 parent=main comm=w").expect("a string");
            writeln!(lines, "+{at} HUP bash -> w{i} handler unarmed").expect("a string");
        }
        lines
    };
    let before = format!("{}{KILLED}", many("59.9"));
    assert_eq!(headline(&before, "137"), "unknown: Unknown/Unknown/Quiet");
    let after = format!("{KILLED}\n{}", many("60.01"));
    assert_eq!(headline(&after, "0"), "unknown: Unknown/Unknown/Quiet");
}
