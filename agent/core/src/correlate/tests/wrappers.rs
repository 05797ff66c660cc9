//! A program below a wrapper that exits by itself: what its clients lost.

use expect_test::expect;

use super::check;
use crate::fixtures::script;
use crate::ids::CgroupId;
use crate::report::{Command, Report};
use crate::verdict::TrafficAxis;

const SERVER: &str = "
    +0 mkdir app
    proc main in=app pid=100 ns=1 start=+0 parent=shim comm=sh
    proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
    proc worker in=app pid=108 ns=8 start=+0.2 parent=server comm=server
    +0.001 exec main
    ";

fn traffic(lines: &str) -> TrafficAxis {
    let terminated = |report: &Report| match report {
        Report::Terminated(termination) => Some(termination.verdict.traffic),
        _ => None,
    };
    let reports = script::run(&format!("{SERVER}{lines}"));
    reports.iter().find_map(terminated).expect("a termination")
}

#[test]
fn what_the_programs_exit_cut_belongs_to_the_termination() {
    check(
        &format!(
            "{SERVER}
        +20 exit server SEGV by-own listening serving
        +20.0001 tcp app closed 80 by-exit by-own
        +20.0002 tcp app cut 80 5001 received=10 sent=0
        +20.0003 tcp app queued 80 5002
        +20.2 tcp app refused 80 5003
        +20.4 exit main 139 armed
        "
        ),
        expect![[r#"
            crashed: Crash/Crashed/Cut
              `server` was terminated by SIGSEGV, and PID 1 `sh` exited with code 139; 1 open connection was dropped at exit, with an unanswered request; 1 connection was reset (in the accept queue when the listener closed); 1 connection was refused in the 0.2 s after the listener closed (10.0.0.2)
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
}

/// The wrapper cleans up.
#[test]
fn an_exit_some_seconds_before_belongs_to_the_termination_and_one_long_before_does_not() {
    let at = |end: &str| {
        traffic(&format!(
            "
        +20 exit worker 1 by-own serving
        +20.0002 tcp app cut 80 5001 received=10 sent=0
        +20.0003 tcp app accepted 80 5002
        +{end} exit server 0 by-own listening
        +{end}001 tcp app closed 80 by-exit by-own
        +{end}002 exit main 0 armed
        "
        ))
    };
    assert_eq!(at("21.5"), TrafficAxis::Cut);
    assert_eq!(at("31.5"), TrafficAxis::Quiet);
}

/// What clients meet in the meantime counts: the sockets are observed for as long, unless something happens on them, as with the next server.
/// Clients that were refused after the sockets were let go are not known.
#[test]
fn a_wrapper_that_follows_its_program_some_seconds_later() {
    let at = |lines: &str, end: &str, armed: &str| {
        traffic(&format!(
            "
        +20 exit server 0 by-own listening
        +20.0001 tcp app closed 80 by-exit by-own
        {lines}
        +{end} exit main 0 {armed}
        "
        ))
    };
    assert_eq!(at("", "25", "already-armed"), TrafficAxis::Quiet);
    assert_eq!(at("+24 tcp app refused 80 5001", "25", "already-armed"), TrafficAxis::Refused);
    assert_eq!(at("+21.5 tcp app accepted 80 5001", "25", "armed"), TrafficAxis::Unknown);
    assert_eq!(
        at("+21.5 tcp app accepted 80 5001", "21.9", "already-armed"),
        TrafficAxis::Quiet
    );
    // An exit counts for ten seconds.
    assert_eq!(at("", "29.9", "already-armed"), TrafficAxis::Quiet);
    assert_eq!(at("", "31", "armed"), TrafficAxis::Quiet);
    // The listener is still open: the workers go on.
    let worker = "
        +20 exit worker 0 by-own listening serving
        +25 exit main 0 armed
        ";
    assert_eq!(traffic(worker), TrafficAxis::Unknown);
}

/// The container runtime ends what nothing else does.
#[test]
fn a_wrapper_that_is_killed_some_seconds_after_its_programs_end() {
    let killed = |lines: &str| {
        traffic(&format!(
            "
        +20 exit server 0 by-own listening
        +20.0001 tcp app closed 80 by-exit by-own
        {lines}
        +22.5 KILL runc -> main already-armed
        +22.501 exit main KILL already-armed
        "
        ))
    };
    assert_eq!(killed(""), TrafficAxis::Quiet);
    assert_eq!(killed("+22.4 tcp app refused 80 5001"), TrafficAxis::Refused);
}

#[test]
fn a_process_that_may_have_held_a_clients_socket_and_exited_unobserved_makes_the_traffic_unknown() {
    let traffic = |held: &str, at: &str| {
        traffic(&format!(
            "
        +{at} exit server 0 unarmed {held}
        +30 exit main 0 armed
        "
        ))
    };
    for held in ["listening", "serving", "holding-more"] {
        assert_eq!(traffic(held, "29"), TrafficAxis::Unknown, "{held}");
        assert_eq!(traffic(held, "19"), TrafficAxis::Quiet, "{held} long before");
    }
    assert_eq!(traffic("looked", "29"), TrafficAxis::Quiet);
    // An exec probe's, however many files it has.
    assert_eq!(traffic("holding-more from-outside", "29"), TrafficAxis::Quiet);
    assert_eq!(traffic("listening from-outside", "29"), TrafficAxis::Unknown);
    assert_eq!(
        traffic("", "29"),
        TrafficAxis::Quiet,
        "a process from outside, or an older probe"
    );
}

#[test]
fn a_lost_exit_may_be_that_of_the_program() {
    let lost = |at: &str| {
        traffic(&format!(
            "
        +{at} lost sched_process_exit +{at} 1 others app
        +30 exit main 0 armed
        "
        ))
    };
    assert_eq!(lost("29"), TrafficAxis::Unknown);
    assert_eq!(lost("19"), TrafficAxis::Quiet);
}

/// With a stop signal, what came before it is not of this termination.
#[test]
fn what_a_worker_lost_before_the_stop_signal_does_not_count() {
    let lines = "
        +20 exit worker 1 by-own serving
        +20.0002 tcp app cut 80 5001 received=10 sent=0
        +21 TERM runc -> main handler armed
        +21.1 enter main TERM
        +21.2 exit server 0 by-own listening
        +21.3 tcp app closed 80 by-exit
        +21.4 exit main 0 already-armed
        ";
    assert_eq!(traffic(lines), TrafficAxis::Quiet);
}

#[test]
fn the_sockets_of_a_subject_that_goes_on_are_let_go_after_some_seconds() {
    let forgotten = |lines: &str| -> Vec<u64> {
        let played = script::play_all(&format!("{SERVER}{lines}"));
        let app = Command::Forget(CgroupId::v2(103));
        let of_app = played.commands.iter().filter(|(_, command)| *command == app);
        of_app.map(|(at, _)| at.since(script::ZERO).as_secs()).collect()
    };
    assert_eq!(forgotten("+20 exit worker 0 by-own serving"), [22]);
    // Without a listener a wrapper may follow.
    assert_eq!(forgotten("+20 tcp app closed 80 by-own"), [30]);
    assert_eq!(
        forgotten("+20 tcp app closed 80 by-own\n+21.5 tcp app accepted 81 5001"),
        [22]
    );
    assert_eq!(forgotten("+20 tcp app closed 80 by-own\n+25 tcp app accepted 81 5001"), [26]);
    let again = "
        +20 exit worker 0 by-own serving
        +21.5 exit server 0 by-own serving
        ";
    assert_eq!(forgotten(again), [23]);
    let stopping = "
        +20 exit worker 0 by-own serving
        +21 TERM runc -> main handler armed
        +28 exit main 0 already-armed
        ";
    assert!(forgotten(stopping)[0] > 28);
}

/// A signal that asks for no stop (SIGUSR1, of a stranger) has armed the sockets: the close is the program's own doing all the same.
#[test]
fn what_was_refused_since_the_program_closed_its_listener_belongs_to_the_termination() {
    let drains = |closed: &str, end: &str| {
        format!(
            "{SERVER}
        +20 USR1 bash -> main handler armed
        +20.0001 enter main USR1
        +{closed} tcp app closed 80
        +{closed}1 tcp app refused 80 5001
        +{closed}2 tcp app refused 80 5002
        +{end} tcp app refused 80 5003
        +{end}1 KILL runc -> main already-armed
        +{end}2 exit main KILL already-armed
        +{end}3 tcp app refused 80 5004
        "
        )
    };
    check(
        &drains("20.01", "22.4"),
        expect![[r#"
        force-killed: Stopped/ForceKilled/Refused
          The container runtime sent SIGKILL to PID 1 `sh` without a stop signal first; 4 connections were refused in the 2.4 s after the listener closed (10.0.0.2)
          fix: stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0)
    "#]],
    );
    // Longer before than what counts of a termination without a request: the count is the least.
    check(
        &drains("20.01", "32.4"),
        expect![[r#"
        force-killed: Stopped/ForceKilled/Refused
          The container runtime sent SIGKILL to PID 1 `sh` without a stop signal first; at least 1 connection was refused (10.0.0.2)
          fix: stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0)
    "#]],
    );
}

/// A program that drains: its listener closed long ago, and a request is under way when the program is killed.
#[test]
fn a_connection_outlives_its_listener() {
    let lines = "
        +20 tcp app closed 80 by-own
        +50 tcp app closed 81 by-own
        +60 KILL runc -> main armed
        +60.001 exit main KILL
        +60.002 tcp app cut 80 5001 received=10 sent=0
        ";
    assert_eq!(traffic(lines), TrafficAxis::Cut);
}
