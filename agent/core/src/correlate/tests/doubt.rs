//! Missing evidence gives `unknown`; positive proof stands.

use std::time::Duration;

use expect_test::expect;

use super::{check, container, unit};
use crate::correlate::{Correlator, Limits};
use crate::event::Event;
use crate::fixtures::recorded::Recorded;
use crate::fixtures::script::{self, ZERO};
use crate::input::Input;
use crate::report::Report;
use crate::time::Boot;
use crate::verdict::TrafficAxis;

#[test]
fn a_lost_signal_makes_a_clean_exit_unknown() {
    check(
        &container(
            "
        +5 exit main 0
        +5.5 lost signal_generate +4.5 3
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: kernel records of sent signals were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

/// What a neighbour's processes made too much of says nothing about this container, nor do signals to and exits of other processes
/// than the first.
#[test]
fn a_loss_of_another_container_or_of_other_processes_does_not_matter() {
    check(
        &container(
            "
        +0.1 mkdir noisy
        +5 exit main 0
        +5.5 lost signal_generate +4.5 50000 within noisy
        +5.5 lost sched_process_exit +4.5 50000 within noisy
        +5.5 lost tcp +4.5 50000 within noisy
        ",
        ),
        expect![[r#"
            clean: Completed/Clean/Quiet
              PID 1 `app` exited by itself with code 0
        "#]],
    );
}

/// One could be of the SIGKILL to a program that the exit left behind.
#[test]
fn a_lost_signal_to_another_process_at_the_end_matters() {
    check(
        &container(
            "
        +5 exit main 0
        +5.5 lost signal_generate +4.5 50000 others app
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: kernel records of sent signals were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

#[test]
fn a_loss_of_the_containers_own_matters_as_does_one_of_an_unknown_cgroup() {
    for of in ["app", "never-seen"] {
        let lost = format!(
            "
        +5 exit main 0
        +5.5 lost signal_generate +4.5 3 within {of}
        "
        );
        check(
            &container(&lost),
            expect![[r#"
                unknown: Unknown/Unknown/Unknown
                  PID 1 `app` exited with code 0, but the reason is unknown: kernel records of sent signals were lost during the termination
                  fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
            "#]],
        );
    }
}

#[test]
fn a_lost_signal_makes_a_handled_stop_unknown() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        +2 lost signal_generate +1 3
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: kernel records of sent signals were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

#[test]
fn a_loss_long_before_the_stop_that_was_seen_matters_for_the_traffic_alone() {
    check(
        &container(
            "
        +0.9 lost signal_generate +0.1 3
        +12 TERM runc -> main handler
        +12.001 enter main TERM
        +12.5 exit main 0
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the sockets of the container were not observed
        "#]],
    );
}

/// A program below the main process that was killed some seconds before the stop counts.
#[test]
fn a_loss_shortly_before_the_stop_may_hide_the_end_of_a_program() {
    check(
        &container(
            "
        +0.9 lost signal_generate +0.1 3
        +2 TERM runc -> main handler
        +2.001 enter main TERM
        +2.5 exit main 0
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: kernel records of sent signals were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

/// As long as a stop signal that was seen.
#[test]
fn a_loss_of_up_to_an_hour_before_may_be_that_of_the_stop_signal() {
    let exits = |at: u32| container(&format!("+1 lost signal_generate +0.5 3\n+{at} exit main 0"));
    check(
        &exits(3_000),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: kernel records of sent signals were lost before, and one of these signals may have been a stop signal
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
    check(
        &exits(3_700),
        expect![[r#"
        clean: Completed/Clean/Quiet
          PID 1 `app` exited by itself with code 0
    "#]],
    );
}

#[test]
fn a_loss_after_the_end_does_not_matter() {
    check(
        &container(
            "
        +5 exit main 0
        +9.5 lost signal_generate +8.5 3
        ",
        ),
        expect![[r#"
            clean: Completed/Clean/Quiet
              PID 1 `app` exited by itself with code 0
        "#]],
    );
}

#[test]
fn a_lost_handler_entry_does_not_matter_where_it_was_ignored() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored default
        +5 lost signal_deliver +4 3
        +5 lost signal_generate +4 3
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Unknown
              `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn a_lost_handler_entry_makes_never_entered_unknown() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +5 lost signal_deliver +4 3
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` was terminated by SIGKILL, but the reason is unknown: kernel records of started signal handlers were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

#[test]
fn a_lost_signal_leaves_an_oom_kill_proven() {
    check(
        &container(
            "
        +1 KILL main -> main kernel
        +1.0001 oom main
        +1.001 exit main KILL
        +1.5 lost signal_generate +0.5 9
        ",
        ),
        expect![[r#"
            oom-killed: Oom/OomKilled/Unknown
              The OOM killer killed PID 1 `app` because memory ran out
              fix: raise the memory limit, or reduce the memory that the process needs (heap size, caches, concurrency)
        "#]],
    );
}

#[test]
fn a_lost_stop_makes_force_killed_unknown() {
    check(
        &container(
            "
        +10.5 lost signal_generate +9.5 1
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` was terminated by SIGKILL, but the reason is unknown: kernel records of sent signals were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

#[test]
fn a_lost_signal_makes_nonzero_and_default_action_unknown() {
    check(
        &unit(
            "
        +1 TERM systemd -> main default
        +1.001 exit main TERM
        +1.5 lost signal_generate +0.5 1
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              `web` (pid 200) was terminated by SIGTERM, but the reason is unknown: kernel records of sent signals were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the unit itself send signals, exit or connect thousands of times per second: each unit has a budget of records
        "#]],
    );
}

#[test]
fn lost_tcp_records_make_quiet_unknown() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        +2 lost tcp +1 3
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the sockets of the container were not observed
        "#]],
    );
}

/// The kernel records sockets from the first stop signal whose record is kept, and clients count from then on.
#[test]
fn where_the_first_stop_signal_may_be_lost_the_traffic_is_unknown() {
    let traffic = |rest: &str| {
        let out = script::run(&container(&format!("+0.1 mkdir noisy\n{rest}")));
        let terminated = out.iter().find_map(|report| match report {
            Report::Terminated(termination) => Some(termination.verdict.traffic),
            _ => None,
        });
        terminated.expect("a termination")
    };
    let soon = "+5 TERM runc -> main handler\n+5.01 enter main TERM\n+5.5 exit main 0";
    let late = "+700 TERM runc -> main handler\n+700.01 enter main TERM\n+700.5 exit main 0";
    for (lost, stop, expected) in [
        ("+1.1 lost signal_generate +0.9 1 within app", soon, TrafficAxis::Unknown),
        (
            "+1.1 lost signal_generate +0.9 1 within never-seen",
            soon,
            TrafficAxis::Unknown,
        ),
        ("+1.1 lost signal_generate +0.9 1 within noisy", soon, TrafficAxis::Quiet),
        ("+1.1 lost signal_generate +0.9 1 others app", soon, TrafficAxis::Quiet),
        ("+6.1 lost signal_generate +5.9 1 within app", soon, TrafficAxis::Quiet),
        // That long ago it would be another request.
        ("+1.1 lost signal_generate +0.9 1 within app", late, TrafficAxis::Quiet),
    ] {
        assert_eq!(traffic(&format!("{lost}\n{stop}")), expected, "{lost}, {stop}");
    }
}

#[test]
fn a_kill_that_was_not_seen() {
    check(
        &container(
            "
        +1 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Quiet
              PID 1 `app` was terminated by SIGKILL, but the reason is unknown: the sender of SIGKILL was not seen
              fix: search the kernel log and the audit log for the sender of SIGKILL: epitaph has no record of the sender
        "#]],
    );
}

#[test]
fn a_term_that_was_not_seen() {
    check(
        &unit(
            "
        +1 exit main TERM
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Quiet
              `web` (pid 200) was terminated by SIGTERM, but the reason is unknown: the sender of SIGTERM was not seen
              fix: search the kernel log and the audit log for the sender of SIGTERM: epitaph has no record of the sender
        "#]],
    );
}

#[test]
fn late_start_and_no_stop_seen_is_unknown() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +60 exit main 0
        ",
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: the process started before the observation began, so a stop signal may have been missed
              fix: nothing to fix: the process started before the observation began
        "#]],
    );
}

/// No stop signal explains the code, whenever it came: only the cause is in doubt.
#[test]
fn late_start_and_an_error_is_an_error_of_unknown_cause() {
    check(
        &found_and_exits("3"),
        expect![[r#"
        nonzero-exit: Unknown/NonzeroExit/Unknown
          PID 1 `app` exited with code 3; the process started before the observation began, so a stop signal may have come before
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
    // A shell's code for a child that was killed: SIGKILL is not a stop signal.
    check(
        &found_and_exits("137"),
        expect![[r#"
        nonzero-exit: Unknown/NonzeroExit/Unknown
          PID 1 `app` exited with code 137; the process started before the observation began, so a stop signal may have come before
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
}

#[test]
fn late_start_and_the_code_of_a_stop_signal_is_unknown() {
    check(
        &found_and_exits("143"),
        expect![[r#"
        unknown: Unknown/Unknown/Unknown
          PID 1 `app` exited with code 143, but the reason is unknown: the process started before the observation began, so a stop signal may have been missed
          fix: nothing to fix: the process started before the observation began
    "#]],
    );
    // The code of SIGRTMIN+3.
    check(
        &found_and_exits("165"),
        expect![[r#"
        unknown: Unknown/Unknown/Unknown
          PID 1 `app` exited with code 165, but the reason is unknown: the process started before the observation began, so a stop signal may have been missed
          fix: nothing to fix: the process started before the observation began
    "#]],
    );
}

fn found_and_exits(status: &str) -> String {
    format!(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +60 exit main {status}
        "
    )
}

/// As a shell that sends the stop signal on in a trap and exits with 0: the same with a stop is clean.
#[test]
fn late_start_and_an_error_below_a_main_process_that_exited_with_0_is_unknown() {
    let exits = |start: &str, found: &str| {
        format!(
            "
        {start}
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=sh
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        {found}
        +8 exit server 1 listening looked by-own
        +8.1 exit main 0 armed
        "
        )
    };
    let stop = "
        +0.001 exec main
        +0.1 exec server
        +4 TERM runc -> main handler armed
        +4.001 enter main TERM
        +4.002 TERM main -> server handler already-armed
        +4.003 enter server TERM
        ";
    check(
        &exits("-100 start", stop),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to PID 1 `sh`, the handler ran and sent the signal on to `server`, and the process exited with code 0, 4.1 s later; `server` exited with code 1
    "#]],
    );
    check(
        &exits("-100 start", "+0.001 exec main\n+0.1 exec server"),
        expect![[r#"
        nonzero-exit: Crash/NonzeroExit/Quiet
          `server` exited with code 1, and PID 1 `sh` exited with code 0
          fix: look for the reason in the last lines of the log of `server`; let PID 1 `sh` exit with the code of `server` (in a shell: `exit $?`, or start it with `exec`), so that the container runtime and systemd see the failure
    "#]],
    );
    check(
        &exits("+5 start", "+5.001 found main\n+5.001 found server\n+5.002 scanned"),
        expect![[r#"
        unknown: Unknown/Unknown/Unknown
          PID 1 `sh` exited with code 0, but the reason is unknown: the process started before the observation began, so a stop signal may have been missed
          fix: nothing to fix: the process started before the observation began
    "#]],
    );
}

#[test]
fn late_start_long_ago_does_not_matter() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +3700 exit main 0
        ",
        expect![[r#"
            clean: Completed/Clean/Quiet
              PID 1 `app` exited by itself with code 0
        "#]],
    );
}

#[test]
fn late_start_and_the_stop_was_seen_is_complete() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +60 TERM runc -> main handler
        +60.001 enter main TERM
        +61 exit main 0
        ",
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; the sockets of the container were not observed
        "#]],
    );
}

#[test]
fn late_start_and_a_runtimes_kill_may_have_had_a_stop_before() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +6 KILL runc -> main
        +6.001 exit main KILL
        ",
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` was terminated by SIGKILL, but the reason is unknown: the process started before the observation began, so a stop signal may have been missed
              fix: nothing to fix: the process started before the observation began
        "#]],
    );
}

#[test]
fn late_start_and_a_hosts_kill_may_end_a_manual_stop() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +6 KILL bash -> main
        +6.001 exit main KILL
        ",
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` was terminated by SIGKILL, but the reason is unknown: the process started before the observation began, so a stop signal may have been missed
              fix: nothing to fix: the process started before the observation began
        "#]],
    );
}

#[test]
fn late_start_and_a_fault_is_proven() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +6 SEGV main -> main fault
        +6.001 exit main SEGV
        ",
        expect![[r#"
            crashed: Unknown/Crashed/Unknown
              PID 1 `app` crashed with SIGSEGV
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
}

#[test]
fn a_gap_in_the_middle() {
    check(
        "
        -100 start
        -100 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        -99 exec main
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +5 start
        +6 exit main 0
        ",
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: epitaph did not observe for 4.0 s around that time
              fix: keep epitaph running without interruption: no evidence exists for the time in which it did not observe
        "#]],
    );
}

#[test]
fn signal_deliver_not_active_makes_143_unknown() {
    check(
        &container(
            "
        +0.5 probe signal_deliver
        +1 TERM runc -> main handler
        +1.5 exit main 143
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 143, but the reason is unknown: the probe for started signal handlers was not active
              fix: run `epitaph doctor`: the report names each probe that is not active on this kernel, and the reason
        "#]],
    );
}

#[test]
fn signal_deliver_not_active_leaves_exit_0_clean() {
    check(
        &container(
            "
        +0.5 probe signal_deliver
        +1 TERM runc -> main handler
        +1.5 exit main 0
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, and the process exited with code 0, 0.5 s later; the sockets of the container were not observed
        "#]],
    );
}

#[test]
fn tcp_not_active_leaves_a_clean_exit() {
    check(
        &container(
            "
        +0.5 probe tcp_send_reset
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the sockets of the container were not observed
        "#]],
    );
}

#[test]
fn a_probe_that_another_stands_in_for_leaves_no_doubt() {
    check(
        &container(
            "
        +0.5 probe tcp_send_reset by=inet_sock_set_state
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
}

#[test]
fn the_cgroup_goes_and_no_end_was_seen() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +2 rmdir app
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              How PID 1 `app` terminated is unknown: the cgroup was removed, and no exit of the main process was seen; SIGTERM had been sent before
              fix: look up the exit code in the log of the container runtime or systemd: epitaph did not see the main process exit
        "#]],
    );
}

#[test]
fn a_cgroup_that_nothing_happened_in() {
    check(
        "
        +0 mkdir app
        +1 rmdir app
        ",
        expect![[""]],
    );
}

#[test]
fn the_observation_ends_during_a_stop() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 end
        ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              How PID 1 `app` terminated is unknown: epitaph stopped while this container was still shutting down; SIGTERM had been sent before
              fix: keep epitaph running until the process has exited
        "#]],
    );
}

#[test]
fn the_observation_ends_and_nobody_was_asked() {
    check(
        &container(
            "
        +2 end
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn the_observation_ends_just_after_the_end() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        +1.6 end
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the sockets of the container were not observed
        "#]],
    );
}

#[test]
fn an_event_of_a_cgroup_that_nobody_names_is_counted() {
    check(
        "
        proc main in=app pid=100 ns=1 start=+0 parent=shim
        +1 TERM runc -> main
        +3 tick
        ",
        expect![[r#"
            dropped unattributed: 1
        "#]],
    );
}

/// The loop was held up: the counters of losses are read just after what had waited.
#[test]
fn an_end_that_was_told_late_waits_for_what_was_lost() {
    let mut inputs = script::parse(&container("+1 exit main 0\n+4.3 lost signal_generate +0.5 3")).inputs;
    for (at, input) in &mut inputs {
        if matches!(
            input,
            Input::Kernel {
                event: Event::ProcessExit(_),
                ..
            }
        ) {
            *at = at.plus(Duration::from_millis(3_200));
        }
    }
    let mut correlator = Recorded::default();
    let mut out = Vec::new();
    for (now, input) in inputs {
        out.extend(correlator.handle(now, input).reports);
    }
    out.extend(correlator.handle(ZERO.plus(Duration::from_secs(6)), Input::Tick).reports);
    expect![[r#"
        unknown: Unknown/Unknown/Unknown
          PID 1 `app` exited with code 0, but the reason is unknown: kernel records of sent signals were lost during the termination
          fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
    "#]]
    .assert_eq(&script::show(&out, false));
}

/// A recording has no ticks: what comes long after an end does not join it.
#[test]
fn an_input_long_after_an_end_does_not_join_it() {
    check(
        &unit(
            "
        proc second in=web.service pid=300 start=+60 parent=systemd comm=web
        +1 exit main 0
        +60.001 exec second
        ",
        ),
        expect![[r#"
            clean-exit: Completed/Clean/Unknown
              `web` (pid 200) exited by itself with code 0
        "#]],
    );
}

/// A caller that is behind takes records, losses and the API's inputs without the time in between.
#[test]
fn what_a_busy_caller_takes_late_is_known_before_a_termination_is_assembled() {
    const STOP: &str = "
        +0.1 mkdir noisy
        +1 TERM runc -> main handler
        +1.01 enter main TERM
        +1.5 exit main 0
        +1.6 rmdir app";
    for (late, expected) in [
        (
            "+9 lost signal_generate +1 9 within noisy\n+9 lost tcp +1.2 1 within app",
            TrafficAxis::Unknown,
        ),
        (
            "+9 lost tcp +1.2 1 within app\n+9 lost tcp +1.2 1 within noisy",
            TrafficAxis::Unknown,
        ),
        ("+9 lost tcp +1.2 1 within noisy", TrafficAxis::Quiet),
        // The record waited behind the API's answer.
        (
            "+9 api synced\n+1.5 tcp app closed 80\n+1.5001 tcp app cut 80 5000 sent=0 received=50 last-sent=0 last-received=20",
            TrafficAxis::Cut,
        ),
    ] {
        let mut correlator = Correlator::new(Limits::default());
        let (mut now, mut reports) = (Boot(0), Vec::new());
        for (at, input) in script::parse(&container(&format!("{STOP}\n{late}"))).inputs {
            now = now.max(at);
            reports.extend(correlator.handle(now, input).reports);
        }
        reports.extend(correlator.handle(now.plus(Duration::from_secs(1)), Input::Tick).reports);
        let traffic = reports.iter().find_map(|report| match report {
            Report::Terminated(termination) => Some(termination.verdict.traffic),
            _ => None,
        });
        assert_eq!(traffic, Some(expected), "{late}");
    }
}
