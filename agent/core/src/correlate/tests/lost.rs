//! Breaches that the rule of [`super::monotone`] found, each as the smallest timeline: a lost record must not blame another.

use expect_test::expect;

use super::evictions::limited;
use super::{check, container, unit};
use crate::correlate::Limits;
use crate::fixtures::monotone::Rule;
use crate::fixtures::script;
use crate::report::Report;

#[test]
fn without_the_first_stop_signal_the_handler_of_the_second_one_is_not_missing() {
    check(
        &container(
            "
        +1.01 enter main TERM
        +1.1 lost signal_generate +1 1 within app
        +5 TERM runc -> main handler
        +30 KILL runc -> main
        +30.01 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` was terminated by SIGKILL, but the reason is unknown: kernel records of sent signals were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

/// The same, and nothing was lost: an operator's signal before the runtime's explains the entry.
#[test]
fn an_earlier_signal_that_was_observed_leaves_the_second_one_blocked() {
    check(
        &container(
            "
        +1 TERM bash -> main handler
        +1.01 enter main TERM
        +5 TERM runc -> main handler
        +30 KILL runc -> main
        +30.01 exit main KILL
        ",
        ),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, whose handler never ran; the container runtime sent SIGKILL 25.0 s later
              fix: find what kept the process from running: a disk or network mount that hangs, or no CPU time
        "#]],
    );
}

#[test]
fn without_the_exit_an_operators_stop_signal_is_not_the_cause_of_the_runtimes_kill() {
    check(
        &container(
            "
        +1 TERM bash -> main handler
        +2 KILL runc -> main
        +2.1 lost sched_process_exit +2 1 within app
        +3 rmdir app
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              How PID 1 `app` terminated is unknown: the cgroup was removed, and no exit of the main process was seen; SIGTERM had been sent before
              fix: look up the exit code in the log of the container runtime or systemd: epitaph did not see the main process exit
        "#]],
    );
}

#[test]
fn without_the_removal_a_step_after_the_main_process_is_not_another_termination() {
    check(
        &unit(
            "
        +1 TERM systemd -> main handler
        +1.01 enter main TERM
        +1.1 exit main 0
        proc post in=web.service pid=201 start=+1.2 parent=systemd comm=post
        +1.2 exec post
        +1.3 exit post 0
        +1.4 lost cgroup_rmdir +1.4 1
        +1.4 stays web.service
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 0.1 s later; the sockets of the unit were not observed to their end: the cgroup still existed, and processes in it may close connections later
            unknown: Unknown/Unknown/Unknown
              `post` (pid 201) exited with code 0, but the reason is unknown: kernel records of removed cgroups were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the unit itself send signals, exit or connect thousands of times per second: each unit has a budget of records
        "#]],
    );
}

/// The process after it seems to be the main one, and to have exited by itself.
#[test]
fn without_the_stop_signal_a_main_process_is_not_a_step_before_another() {
    check(
        &unit(
            "
        +1 lost signal_generate +1 1 within web.service
        +1.1 exit main 0
        proc post in=web.service pid=201 start=+1.2 parent=systemd comm=post
        +1.2 exec post
        +5 exit post 0
        +5.1 rmdir web.service
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) exited with code 0, but the reason is unknown: kernel records of sent signals were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the unit itself send signals, exit or connect thousands of times per second: each unit has a budget of records
        "#]],
    );
}

/// A shell starts helpers by the dozen after its server has crashed.
#[test]
fn the_end_of_a_server_is_kept_before_those_of_helpers() {
    let mut script =
        "proc server in=app pid=200 ns=20 start=+0.5 parent=main comm=server\n+1 exit server SEGV serving unarmed\n".to_owned();
    for i in 0..40 {
        let (pid, at) = (300 + i, 1_010 + i);
        script += &format!(
            "proc h{i} in=app pid={pid} ns={pid} start=+1 parent=main comm=sleep\n+1.{} exit h{i} 0\n",
            at - 1_000
        );
    }
    check(
        &container(&format!("{script}+1.5 exit main 0")),
        expect![[r#"
            crashed: Crash/Crashed/Unknown
              `server` was terminated by SIGSEGV, and PID 1 `app` exited with code 0
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
}

/// The rule for the loss of the record of that time, in milliseconds.
fn lose(text: &str, at: u64) {
    let at = script::ZERO.plus(std::time::Duration::from_millis(at));
    assert_eq!(Rule::of(&script::parse(text).inputs).lose(&[at]), Ok(()), "{text}");
}

/// A wrapper passes on how its program ended: without the program's exit, or the stranger's signal, the wrapper did not crash.
#[test]
fn without_the_end_of_a_program_below_its_code_is_not_the_wrappers_own() {
    let below = |signal: &str, code: u8| {
        container(&format!(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +59.999 {signal} bash -> server default exiting unarmed
        +60 exit server {signal} listening by-own
        +60.02 exit main {code} armed
        "
        ))
    };
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("ABRT", 134)] {
        lose(&below(signal, code), 60_000);
        lose(&below(signal, code), 59_999);
    }
}

/// systemd signals the shell of a unit and the program below it.
#[test]
fn without_the_programs_exit_or_its_closed_listener_the_shell_is_not_the_program() {
    lose(
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc w in=app.service pid=107 start=+0.1 parent=main comm=gunicorn
        +0.001 exec main
        +0.1 exec w
        +1 TERM systemd -> main default exiting armed
        +1.0001 TERM systemd -> w handler already-armed
        +1.0002 enter w TERM
        +1.0005 exit main TERM looked already-armed leaves-others
        +1.5 exit w 0 last-on-a-path already-armed
        ",
        1_500,
    );
    lose(
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc manager in=app.service pid=106 start=+0.1 parent=main comm=manager
        proc exporter in=app.service pid=108 start=+0.2 parent=manager comm=exporter
        +0.001 exec main
        +1 TERM systemd -> main handler armed
        +1.0001 TERM systemd -> manager handler already-armed
        +1.0002 enter main TERM
        +1.0003 enter manager TERM
        +1.005 tcp app.service closed 8080 by=manager
        +1.01 TERM systemd -> exporter default exiting already-armed
        +1.011 exit exporter TERM listening already-armed
        +1.4 exit manager 0 looked already-armed
        +1.5 exit main 0 already-armed
        ",
        1_005,
    );
}

/// One of the processes that systemd signalled was started by systemd itself: its exit is known, too.
#[test]
fn without_the_removal_of_the_cgroup_a_program_beside_another_process_of_systemds_is_found() {
    lose(
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc agent in=app.service pid=106 start=+0.1 parent=systemd comm=ssh-agent
        proc web in=app.service pid=107 start=+0.2 parent=main comm=web
        +0.001 exec main
        +0.1 exec agent
        +0.2 exec web
        +1 TERM systemd -> main default exiting armed
        +1.0001 TERM systemd -> agent handler already-armed
        +1.0002 TERM systemd -> web handler already-armed
        +1.0003 enter agent TERM
        +1.0004 enter web TERM
        +1.0005 exit main TERM looked already-armed leaves-others
        +1.001 exit agent 2 last-on-a-path already-armed leaves-others
        +1.1 tcp app.service closed 80 0 by=web
        +1.5 exit web 0 looked already-armed
        +1.6 rmdir app.service
        ",
        1_600,
    );
}

#[test]
fn without_room_for_systemds_signal_to_the_pool_nothing_is_clean() {
    let text = "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=celery
        proc child in=app.service pid=107 start=+0.1 parent=main comm=celery
        +0.001 exec main
        +1 TERM systemd -> main handler armed
        +1.0001 TERM systemd -> child default exiting already-armed
        +1.0002 enter main TERM
        +1.001 exit child TERM looked already-armed
        +1.5 exit main 0 looked already-armed
        ";
    let limits = Limits {
        facts: 1,
        ..Limits::default()
    };
    assert_eq!(Rule::of(&script::parse(text).inputs).limit(limits), Ok(()));
}

/// What has another name than its parent is not of the program's pool: a job runner's helpers.
#[test]
fn without_room_for_systemds_signals_to_helpers_a_clean_exit_stands() {
    let headlines = |helper: &str, facts: usize| {
        let text = format!(
            "
            +0 mkdir app.service
            proc main in=app.service pid=100 start=+0 parent=systemd comm=app
            +0.001 exec main
            proc helper in=app.service pid=107 start=+0.1 parent=main comm={helper}
            +1 TERM systemd -> main handler armed
            +1.0001 TERM systemd -> helper default exiting already-armed
            +1.0002 enter main TERM
            +1.001 exit helper TERM looked already-armed
            +1.5 exit main 0 looked already-armed
            +20 tick
            "
        );
        let limits = Limits {
            facts,
            ..Limits::default()
        };
        let of = |report: &Report| match report {
            Report::Terminated(of) => Some(of.verdict.headline),
            _ => None,
        };
        limited(limits, &text).iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(headlines("sleep", 256), headlines("sleep", 1));
    assert_ne!(headlines("sleep", 1), ["unknown"]);
    assert_eq!(headlines("app", 1), ["unknown"]);
}

/// The description of a container arrived before anything was seen of its processes.
#[test]
fn without_the_exec_the_described_stop_signal_is_still_the_containers() {
    let text = container(
        "
        +0.1 describe app stop=TERM
        +1 HUP runc -> main handler
        +1.001 enter main HUP
        +61 KILL runc -> main
        +61.01 exit main KILL
        ",
    );
    lose(&text, 1);
}

/// A process below may have closed its sockets at it, before anybody looked.
#[test]
fn without_a_strangers_signal_to_a_process_below_nothing_is_quiet() {
    let text = container(
        "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +0.6 TERM bash -> server handler unarmed
        +1 TERM runc -> main handler armed
        +1.001 enter main TERM looked
        +1.05 exit server 143 looked already-armed
        +2 exit main 0 looked already-armed
        ",
    );
    lose(&text, 600);
}
