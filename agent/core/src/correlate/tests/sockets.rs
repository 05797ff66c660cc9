//! What the clients saw.

use expect_test::expect;

use super::{check, check_evidence, container, unit};
use crate::correlate::{Correlator, Limits};
use crate::fixtures::script::{self, ZERO};
use crate::input::Input;
use crate::report::{Command, Report, Termination};
use crate::verdict::TrafficAxis;

fn termination(script: &str) -> Box<Termination> {
    let terminated = |output| match output {
        Report::Terminated(termination) => Some(termination),
        _ => None,
    };
    script::run(&container(script))
        .into_iter()
        .find_map(terminated)
        .expect("a termination")
}

fn traffic(script: &str) -> TrafficAxis {
    termination(script).verdict.traffic
}
use crate::verdict::Severity;

#[test]
fn refused_after_the_listener_closed() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app closed 80
        +1.5 tcp app refused 80 5001
        +1.5001 tcp app client-refused 80 5001
        +1.5002 tcp app client-error 80 5001
        +2.5 tcp app refused 80 5002
        +3.5 tcp app refused 80 5002
        +2.7 exit main 0
        +4.3 tcp app refused 80 5003
        ",
        ),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.7 s later; 3 connections were refused in the 3.2 s after the listener closed (10.0.0.2), and clients were still trying to connect when counting stopped
              fix: 3 connections were refused, and clients were still trying to connect when counting stopped: keep accepting after the stop signal until clients stop connecting, or send clients elsewhere before the stop
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.100 tcp: listener 10.0.0.1:80 closed by close()
              +1.500 tcp: 3 connections refused
              +2.700 sched_process_exit: PID 1 `app` exited with code 0
        "#]],
    );
}

/// The way to the client is gone: neither the FIN nor the answer arrives, and the client waits for minutes.
#[test]
fn a_close_that_the_client_never_acknowledged_is_undecided() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.01 tcp app accepted 80 5001
        +1.02 tcp app closed-by-itself 80 5001 sent=10 received=10 last-sent=9 last-received=8 jiffies=9 unacknowledged=10 unheard
        +1.03 tcp app accepted 80 5002
        +1.04 tcp app closed-by-itself 80 5002 sent=10 received=10 last-sent=9 last-received=8 jiffies=9 unacknowledged=10
        +1.1 tcp app closed 80
        +2.7 exit main 0
        ",
        ),
        expect![[r#"
            undecided-connections: Stopped/Clean/Undecided
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.7 s later; the client of 1 connection never acknowledged the close, and may still wait
              fix: look for requests without an end in the logs of the clients, and find out why the network path to the clients was gone: a route or a policy that was removed while the process still served, or a client's own machine that failed
        "#]],
    );
    let of = |verb: &str| {
        traffic(&format!(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.01 tcp app accepted 80 5001
        +1.1 tcp app closed 80
        +1.2 tcp app {verb}
        +2.7 exit main 0
        "
        ))
    };
    assert_eq!(
        of("closed-by-itself 80 5001 shutdown sent=9 received=9 unheard"),
        TrafficAxis::Undecided
    );
    assert_eq!(of("closed-by-itself 80 5001 shutdown sent=9 received=9"), TrafficAxis::Quiet);
    assert_eq!(of("cut 80 5001 unheard jiffies=1 sent=0 received=0"), TrafficAxis::Undecided);
    assert_eq!(of("cut 80 5001 unheard sent=0 received=9"), TrafficAxis::Cut);
    // The client had closed first, and has its answer.
    assert_eq!(
        of("half-closed 80 5001 sent=9 received=10 last-sent=9 last-received=8"),
        TrafficAxis::Quiet
    );
    // A connection to a server.
    assert_eq!(of("cut 40001 5432 unheard sent=9 received=9"), TrafficAxis::Quiet);
}

/// The client's last acknowledgement, for a FIN that was sent again, comes when the server's socket is gone.
#[test]
fn the_listeners_reset_is_no_loss_of_a_client_whose_connection_had_ended() {
    let verdict = |client: &str, reset: &str| {
        traffic(&format!(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.01 tcp app half-closed-by-itself 80 5001 sent=10 received=10
        +{reset} tcp app reset-by-listener 80 {client}
        +2.0 tcp app closed 80
        +2.7 exit main 0
        "
        ))
    };
    assert_eq!(verdict("5001", "1.2"), TrafficAxis::Quiet);
    assert_eq!(verdict("5001", "1.005"), TrafficAxis::Undecided);
    assert_eq!(verdict("5002", "1.2"), TrafficAxis::Undecided);
}

/// The admin's closes at the stop signal, the other when it is drained.
#[test]
fn the_window_is_that_of_the_port_that_was_refused() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.01 tcp app closed 9090
        +21 tcp app closed 80
        +21.1 tcp app refused 80 5001
        +22 tcp app refused 80 5002
        +22.5 exit main 0
        ",
        ),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 21.5 s later; 2 connections were refused in the 1.0 s after the listener closed (10.0.0.2)
              fix: 2 connections were refused in the 1.0 s after the listener closed: keep accepting for 2 s after the stop signal, or send clients elsewhere before the stop
        "#]],
    );
    // Of several windows the longest; and a SYN can reach the closed port just before the recorded close.
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.01 tcp app closed 9090
        +2.5 tcp app refused 9090 5001
        +20.999999 tcp app refused 80 5002
        +21 tcp app closed 80
        +22 tcp app refused 80 5003
        +22.5 exit main 0
        ",
        ),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 21.5 s later; 3 connections were refused in the 1.5 s after the listener closed (10.0.0.2)
              fix: 3 connections were refused in the 1.5 s after the listener closed: keep accepting for 2 s after the stop signal, or send clients elsewhere before the stop
        "#]],
    );
}

/// A unit has no replica: its clients are refused at every restart.
#[test]
fn refusals_of_a_unit_are_usual_and_an_error_is_not() {
    let accepted: String = (10..40)
        .map(|n| format!("+1.0{n} tcp web.service accepted 80 10{n} client=10.0.0.2\n"))
        .collect();
    let refused = "+1.1 tcp web.service closed 80\n+1.5 tcp web.service refused 80 5001 client=10.6.6.6\n+1.6 exit main 0";
    let judged = |rest: &str| {
        let script = unit(&format!("+1 TERM systemd -> main handler\n+1.001 enter main TERM\n{rest}"));
        let verdicts = script::run(&script).into_iter().filter_map(|report| match report {
            Report::Terminated(of) => Some((of.verdict.headline, of.verdict.unclean, of.verdict.severity)),
            _ => None,
        });
        verdicts.collect::<Vec<_>>()
    };
    assert_eq!(judged(refused), [("refused-connections", false, Severity::Info)]);
    let scanned = format!("{accepted}{refused}");
    assert_eq!(judged(&scanned), [("refused-new-peers", false, Severity::Info)]);
    assert_eq!(judged("+1.6 exit main 3"), [("nonzero-exit", true, Severity::Warning)]);
}

#[test]
fn refused_as_only_the_client_shows_it() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app closed 80
        +1.5 tcp app client-refused 80 5001 client=10.0.0.1
        +1.5002 tcp app client-error 80 5001 client=10.0.0.1
        +1.6 tcp app client-error 80 5002 server=10.9.9.9
        +2 exit main 0
        ",
        ),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 connection was refused in the 0.4 s after the listener closed (counted only for clients on this machine that did not use a Service)
              fix: 1 connection was refused in the 0.4 s after the listener closed: keep accepting for 1 s after the stop signal, or send clients elsewhere before the stop
        "#]],
    );
}

#[test]
fn refused_after_the_linger_is_another_story() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app closed 80
        +2 exit main 0
        +5 tcp app refused 80 5001
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

#[test]
fn reset_of_the_accept_queue() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 tcp app accepted 80 5001
        +1.5 tcp app accepted 80 5002
        +2 tcp app closed 80
        +2 tcp app reset 80 5001
        +2 tcp app reset 80 5002
        +2 tcp app reset 80 5002
        +2.1 exit main 0
        ",
        ),
        expect![[r#"
            reset-connections: Stopped/Clean/Reset
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.1 s later; 2 connections were reset
              fix: finish the requests in flight, and read all data before closing a connection
        "#]],
    );
}

#[test]
fn cut_with_a_request_unanswered() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.001 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 80 5001 sent=100 received=50 last-sent=10 last-received=20
        +2.003 tcp app cut 80 5002 sent=0 received=50 last-sent=0 last-received=20
        ",
        ),
        expect![[r#"
            cut-connections: Stopped/Clean/Cut
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 2 open connections were dropped at exit, all with an unanswered request
              fix: finish the requests in flight before the exit (graceful shutdown of the server), and allow enough time for them
        "#]],
    );
}

/// An idle keep-alive connection, or an HTTP/2 request whose settings the server has acknowledged.
#[test]
fn open_at_the_exit_after_the_servers_last_bytes_is_undecided() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.0015 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 80 5001 sent=100 received=50 last-sent=30 last-received=20 jiffies=500
        +2.003 tcp app cut 80 5002 sent=100 received=50 last-sent=20 last-received=20 jiffies=500
        +2.003 tcp app cut 80 5003 sent=100 received=50 last-sent=20 last-received=21 jiffies=500
        ",
        ),
        expect![[r#"
            undecided-connections: Stopped/Clean/Undecided
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 3 connections may have had a request under way, which the kernel cannot tell
              fix: look for lost requests in the logs of the clients; a server that finishes its requests and ends each connection with shutdown(2) before the exit leaves no connection open
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +2.000 sched_process_exit: PID 1 `app` exited with code 0
              +2.002 tcp: listener 10.0.0.1:80 closed by process exit
              +2.002 tcp: 3 connections closed with the exit, idle or with a request under way
        "#]],
    );
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.0015 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 80 5001 sent=900000 received=50 last-sent=499 last-received=20 jiffies=500 unacknowledged=250000
        ",
        ),
        expect![[r#"
            undecided-connections: Stopped/Clean/Undecided
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 connection may have had a request under way, which the kernel cannot tell; the client had not received all of the last answer
              fix: look for lost requests in the logs of the clients; a server that finishes its requests and ends each connection with shutdown(2) before the exit leaves no connection open
        "#]],
    );
}

/// Nothing was lost on a connection that neither side had used; one that only the server had used may be a stream.
#[test]
fn a_connection_that_was_never_used_is_idle() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.0015 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 80 5001 sent=0 received=0 last-sent=10 last-received=10 jiffies=500
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +2.000 sched_process_exit: PID 1 `app` exited with code 0
              +2.002 tcp: listener 10.0.0.1:80 closed by process exit
              +2.002 tcp: 1 connection closed at exit that neither side had used
        "#]],
    );
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.0015 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 80 5001 sent=40 received=0 last-sent=30 last-received=10 jiffies=500
        ",
        ),
        expect![[r#"
            undecided-connections: Stopped/Clean/Undecided
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 connection may have had a request under way, which the kernel cannot tell
              fix: look for lost requests in the logs of the clients; a server that finishes its requests and ends each connection with shutdown(2) before the exit leaves no connection open
        "#]],
    );
}

#[test]
fn undecided_across_the_wrap_of_jiffies() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.0015 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 80 5001 sent=100 received=50 last-sent=5 last-received=4294967290
        ",
        ),
        expect![[r#"
            undecided-connections: Stopped/Clean/Undecided
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 connection may have had a request under way, which the kernel cannot tell
              fix: look for lost requests in the logs of the clients; a server that finishes its requests and ends each connection with shutdown(2) before the exit leaves no connection open
        "#]],
    );
}

/// The kernel closes the sockets after the record of the exit: after seconds where others use the processors.
#[test]
fn cut_seconds_after_the_exit() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +7.001 tcp app closed 80 0 by-exit
        +7.002 tcp app cut 80 5001 sent=100 received=50 last-sent=10 last-received=20
        +7.1 rmdir app
        ",
        ),
        expect![[r#"
            cut-connections: Stopped/Clean/Cut
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 open connection was dropped at exit, with an unanswered request
              fix: finish the requests in flight before the exit (graceful shutdown of the server), and allow enough time for them
        "#]],
    );
}

#[test]
fn refused_after_a_late_close() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +7.001 tcp app closed 80 0 by-exit
        +7.01 rmdir app
        +7.2 tcp app refused 80 5001
        +7.9 tcp app refused 80 5002
        ",
        ),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 2 connections were refused in the 0.9 s after the listener closed (10.0.0.2)
              fix: 2 connections were refused in the 0.9 s after the listener closed: keep accepting for 2 s after the stop signal, or send clients elsewhere before the stop
        "#]],
    );
}

/// systemd keeps the cgroup where a process stays in it, and starts the next main process there.
#[test]
fn what_the_next_process_loses_is_not_the_last_ones() {
    let losses = "
        +5 tcp web.service accepted 80 5001
        +6 tcp web.service reset 80 5001
        +20 tick
        ";
    let second = "
        proc second in=web.service pid=300 start=+4 parent=systemd comm=web
        ";
    check(
        &unit(&format!(
            "{second}
        +1 TERM systemd -> main handler
        +1.001 enter main TERM
        +1.1 exit main 0
        +4.001 exec second
        {losses}"
        )),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 0.1 s later; the sockets of the unit were not observed to their end: the cgroup still existed, and processes in it may close connections later
        "#]],
    );
    // By itself, too: its end is not lost behind the next one's begin.
    check(
        &unit(&format!(
            "{second}
        +1 exit main 0
        +4.001 exec second
        {losses}"
        )),
        expect![[r#"
            clean-exit: Completed/Clean/Unknown
              `web` (pid 200) exited by itself with code 0
        "#]],
    );
}

#[test]
fn what_is_not_closed_yet_is_not_quiet() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2 stays app
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; the sockets of the container were not observed to their end: the cgroup still existed, and processes in it may close connections later
        "#]],
    );
}

#[test]
fn cut_across_the_wrap_of_jiffies() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.0015 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 80 5001 sent=100 received=50 last-sent=4294967290 last-received=5
        ",
        ),
        expect![[r#"
            cut-connections: Stopped/Clean/Cut
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 open connection was dropped at exit, with an unanswered request
              fix: finish the requests in flight before the exit (graceful shutdown of the server), and allow enough time for them
        "#]],
    );
}

#[test]
fn undecided_where_nothing_is_known_of_its_use() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.0015 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 80 5001
        ",
        ),
        expect![[r#"
            undecided-connections: Stopped/Clean/Undecided
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 connection may have had a request under way, which the kernel cannot tell
              fix: look for lost requests in the logs of the clients; a server that finishes its requests and ends each connection with shutdown(2) before the exit leaves no connection open
        "#]],
    );
}

#[test]
fn a_port_used_again_at_once_is_another_connection() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app accepted 80 5001
        +1.2 tcp app closed 80
        +1.5 tcp app refused 80 5001
        +1.6 tcp app refused 80 5002
        +1.601 tcp app refused 80 5002
        +2.602 tcp app refused 80 5002
        +2.7 exit main 0
        ",
        ),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.7 s later; 3 connections were refused in the 0.4 s after the listener closed (10.0.0.2)
              fix: 3 connections were refused in the 0.4 s after the listener closed: keep accepting for 1 s after the stop signal, or send clients elsewhere before the stop
        "#]],
    );
}

#[test]
fn cut_and_then_reset_is_one_reset() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.0015 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 80 5001 sent=0 received=50 last-sent=0 last-received=20
        +2.5 tcp app refused-late 80 5001
        ",
        ),
        expect![[r#"
            reset-connections: Stopped/Clean/Reset
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 connection was reset
              fix: finish the requests in flight, and read all data before closing a connection
        "#]],
    );
}

#[test]
fn a_close_of_its_own_and_a_half_closed_connection_are_not_cut() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 tcp app closed 80
        +1.5 tcp app closed-by-itself 80 5001 sent=100 received=50 last-sent=449 last-received=20 jiffies=450
        +2 exit main 0
        +2.002 tcp app half-closed 80 5002 sent=100 received=50 last-sent=30 last-received=20 jiffies=500
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.500 tcp: listener 10.0.0.1:80 closed by close()
              +2.000 sched_process_exit: PID 1 `app` exited with code 0
        "#]],
    );
}

/// A client that is refused again and again reuses its ports; a SYN that is sent again has its sequence number.
#[test]
fn a_port_that_is_reused_is_another_refused_client() {
    let refused = |second: &str| {
        let script = format!(
            "+1 TERM runc -> main handler\n+1.1 tcp app closed 80\n+1.2 tcp app refused 80 5001 sequence=7\n\
             +2.5 tcp app refused 80 5001{second}\n+3 exit main 0"
        );
        termination(&script).facts.traffic.refused.all.count
    };
    assert_eq!(refused(" sequence=8"), 2);
    assert_eq!(refused(" sequence=7"), 1);
    // Records of older probes.
    assert_eq!(refused(""), 1);
}

/// Almost every client that closes first closes all of its connection, but one that closes its half only waits for the answer.
#[test]
fn half_closed_without_the_answer_is_undecided() {
    for counts in [
        "sent=0 received=50 last-sent=0 last-received=20",
        "sent=10 received=50 last-sent=30 last-received=40",
        "sent=10 received=50 last-sent=30 last-received=20 jiffies=500 unacknowledged=9",
        "",
    ] {
        let script = format!(
            "+1 TERM runc -> main handler\n+1.5 tcp app closed 80\n+2 exit main 0\n+2.1 tcp app half-closed 80 5001 {counts}"
        );
        assert_eq!(traffic(&script), TrafficAxis::Undecided, "{counts}");
        let closed = script.replace("half-closed 80 5001", "half-closed-by-itself 80 5001");
        assert_eq!(traffic(&closed), TrafficAxis::Quiet, "{counts}");
    }
}

/// Returning from main closes connections as a decision of the program does: what shows the decision makes the difference.
#[test]
fn a_close_just_before_the_exit_is_the_programs_decision_only_where_that_is_shown() {
    use TrafficAxis::{Cut, Quiet, Undecided};
    const IDLE: &str = "sent=100 received=50 last-sent=30 last-received=20";
    for (closed, expected) in [
        ("+1.9 tcp app closed-by-itself 80 5001 IDLE jiffies=450", Undecided),
        // Records up to version 3.
        ("+1.9 tcp app closed-by-itself 80 5001 IDLE", Undecided),
        ("+1.9 tcp app closed-by-itself 80 5001", Undecided),
        // The last answer, GOAWAY, or close_notify.
        (
            "+1.9 tcp app closed-by-itself 80 5001 sent=100 received=50 last-sent=449 last-received=448 jiffies=450",
            Quiet,
        ),
        (
            "+1.9 tcp app closed-by-itself 80 5001 sent=100 received=50 last-sent=448 last-received=447 jiffies=450",
            Undecided,
        ),
        // So much at once may be a part of the answer.
        (
            "+1.9 tcp app closed-by-itself 80 5001 sent=900000 received=50 last-sent=450 last-received=20 jiffies=450 unacknowledged=90000",
            Undecided,
        ),
        ("+1.9 tcp app closed-by-itself 80 5001 IDLE jiffies=450 shutdown", Quiet),
        // Another client was answered later.
        (
            "+1.9 tcp app closed-by-itself 80 5001 IDLE jiffies=450
             +1.95 tcp app closed-by-itself 80 5002 sent=9 received=9 last-sent=460 last-received=20 jiffies=461",
            Quiet,
        ),
        (
            "+1.9 tcp app closed-by-itself 80 5001 IDLE jiffies=450
             +1.95 tcp app closed-by-itself 80 5002 sent=9 received=9 last-sent=450 last-received=20 jiffies=451",
            Undecided,
        ),
        // The kernel goes on sending what waits in a queue: of this client's, and of another's.
        (
            "+1.9 tcp app closed-by-itself 80 5001 sent=900000 received=50 last-sent=449 last-received=20 jiffies=450 unacknowledged=90000
             +1.95 tcp app closed-by-itself 80 5002 sent=9 received=9 last-sent=460 last-received=20 jiffies=461",
            Undecided,
        ),
        (
            "+1.9 tcp app closed-by-itself 80 5001 sent=900000 received=50 last-sent=450 last-received=20 jiffies=450 unacknowledged=90000 shutdown",
            Undecided,
        ),
        (
            "+1.9 tcp app closed-by-itself 80 5001 IDLE jiffies=450
             +1.95 tcp app closed-by-itself 80 5002 sent=900000 received=9 last-sent=460 last-received=20 jiffies=461 unacknowledged=90000",
            Undecided,
        ),
        // Not by the next process of a unit, which serves on the same port.
        (
            "+1.9 tcp app closed-by-itself 80 5001 IDLE jiffies=450
             +2.1 tcp app accepted 80 5002
             +2.2 tcp app closed-by-itself 80 5002 sent=9 received=9 last-sent=560 last-received=20 jiffies=561",
            Undecided,
        ),
        // Nor by what it sends to its own database.
        (
            "+1.9 tcp app closed-by-itself 80 5001 IDLE jiffies=450
             +1.95 tcp app closed-by-itself 41000 5432 sent=9 received=9 last-sent=460 last-received=20 jiffies=461",
            Undecided,
        ),
        // Long before the exit.
        (
            "+0.9 TERM runc -> main handler\n+0.95 tcp app closed-by-itself 80 5001 IDLE jiffies=450",
            Quiet,
        ),
        // The client's bytes came last, more than three ticks later, or sooner: then they may be a request.
        (
            "+1.9 tcp app closed-by-itself 80 5001 sent=9 received=50 last-sent=20 last-received=24 jiffies=24 shutdown",
            Cut,
        ),
        (
            "+1.9 tcp app closed-by-itself 80 5001 sent=9 received=50 last-sent=20 last-received=23 jiffies=23 shutdown",
            Undecided,
        ),
        (
            "+1.9 tcp app closed-by-itself 80 5001 sent=0 received=0 last-sent=20 last-received=20 jiffies=450",
            Quiet,
        ),
    ] {
        let script = closed.replace("IDLE", IDLE);
        let script = format!("+1 TERM runc -> main handler\n+1.8 tcp app closed 80\n{script}\n+2 exit main 0");
        assert_eq!(traffic(&script), expected, "{closed}");
    }
}

/// A server below `sh -c` that ended by itself: no text speaks of a stop signal.
#[test]
fn without_a_stop_signal_no_text_has_one() {
    check_evidence(
        &container(
            "
        +1 tcp app closed 80
        +1.1 tcp app accepted 80 5001
        +1.2 exit main 0 armed
        +1.5 tcp app refused 80 5002
        +1.9 tcp app refused 80 5003
        +2.5 tcp app accepted 80 5004
        ",
        ),
        expect![[r#"
            refused-connections: Completed/Clean/Refused
              PID 1 `app` exited by itself with code 0; 2 connections were refused in the 0.9 s after the listener closed (10.0.0.2)
              fix: 2 connections were refused in the 0.9 s after the listener closed: keep accepting for 2 s before the exit, or send clients elsewhere before the exit
              +1.000 tcp: listener 10.0.0.1:80 closed by close()
              +1.100 tcp: 2 connections accepted while the sockets were observed
              +1.200 sched_process_exit: PID 1 `app` exited with code 0
              +1.500 tcp: 2 connections refused
        "#]],
    );
}

/// What a pause is, is a time: the kernel's own rate of ticks does not change the verdict.
#[test]
fn the_age_of_a_connection_is_a_time_and_no_number_of_ticks() {
    use TrafficAxis::{Quiet, Undecided};
    for (rate, millis, expected) in [
        (250, 900, Undecided),
        (250, 1_100, Quiet),
        (1000, 900, Undecided),
        (1000, 1_100, Quiet),
        (100, 900, Undecided),
        (100, 1_100, Quiet),
    ] {
        // A client that waits for its greeting, and a download whose server still answers others.
        let (began, closed) = (5_000, 5_000 + millis * rate / 1_000);
        let greeting =
            format!("+2.001 tcp app cut 80 5001 sent=0 received=0 last-sent={began} last-received={began} jiffies={closed}");
        let download = format!(
            "+1.9 tcp app closed-by-itself 80 5001 sent=900000 received=50 last-sent={began} last-received=20 jiffies={closed}
             +1.95 tcp app closed-by-itself 80 5002 sent=9 received=9 last-sent={} last-received=20 jiffies={}",
            closed + 9,
            closed + 10
        );
        for (what, close) in [("greeting", greeting), ("download", download)] {
            let script = format!("+0 hz {rate}\n+1 TERM runc -> main handler\n+1.8 tcp app closed 80\n{close}\n+2 exit main 0");
            assert_eq!(traffic(&script), expected, "{what} at {rate} a second, {millis} ms");
        }
    }
}

/// Clients of TLS and HTTP/2 say goodbye when the server has closed, and the kernel resets them: no request was lost by that. Bytes
/// that were on their way before the client knew may be one.
#[test]
fn bytes_after_the_close_are_a_loss_only_if_the_client_did_not_know_of_it() {
    use TrafficAxis::{Cut, Quiet, Reset, Undecided};
    const AFTER: &str = "+2.01 tcp app reset 80 5001 sent=100 received=50 last-sent=30 last-received=20 jiffies=501";
    for (closed, reset, expected) in [
        ("cut 80 5001 IDLE", AFTER, Undecided),
        ("cut 80 5001 IDLE", "+2.01 tcp app reset 80 5001", Undecided),
        ("cut 80 5001 IDLE", "+2.01 tcp app refused-late 80 5001", Undecided),
        ("cut 80 5001 IDLE", "AFTER unacknowledged=1", Reset),
        ("cut 80 5001 sent=0 received=0 jiffies=500", AFTER, Undecided),
        (
            "cut 80 5001 sent=9 received=9 last-sent=20 last-received=30 jiffies=500",
            AFTER,
            Reset,
        ),
        (
            "cut 80 5001 sent=9 received=9 last-sent=20 last-received=30 jiffies=500",
            "",
            Cut,
        ),
        // A last answer, and close_notify from both sides.
        (
            "closed-by-itself 80 5001 sent=9 received=9 last-sent=500 last-received=20 jiffies=500",
            "",
            Quiet,
        ),
        (
            "closed-by-itself 80 5001 sent=9 received=9 last-sent=500 last-received=20 jiffies=500",
            AFTER,
            Undecided,
        ),
        (
            "closed-by-itself 80 5001 sent=9 received=9 last-sent=500 last-received=20 jiffies=500",
            "AFTER unacknowledged=1",
            Reset,
        ),
        // Not closed by the server: bytes that it never read.
        ("accepted 80 5001", AFTER, Reset),
    ] {
        let closed = closed.replace("IDLE", "sent=100 received=50 last-sent=30 last-received=20 jiffies=500");
        let reset = reset.replace("AFTER", AFTER);
        let script =
            format!("+1 TERM runc -> main handler\n+1.8 tcp app closed 80\n+2 exit main 0\n+2 tcp app {closed}\n{reset}");
        assert_eq!(traffic(&script), expected, "{closed} {reset}");
    }
}

/// Doubt is monotone: without all of the records, nothing is decided.
#[test]
fn undecided_becomes_unknown_where_records_are_lost() {
    let script = "
        +1 TERM runc -> main handler
        +1.5 tcp app closed 80
        +2 exit main 0
        +2.002 tcp app cut 80 5001 sent=100 received=50 last-sent=30 last-received=20 jiffies=500";
    assert_eq!(traffic(script), TrafficAxis::Undecided);
    assert_eq!(traffic(&format!("{script}\n+2.003 lost tcp +1.9 1")), TrafficAxis::Unknown);
    // Nor is a goodbye of a client a loss, where the record of the close is lost.
    let goodbye = "
        +1 TERM runc -> main handler
        +1.5 tcp app closed 80
        +2 exit main 0
        +2.01 tcp app reset 80 5001 sent=9 received=9 last-sent=30 last-received=20 jiffies=501
        +2.02 lost tcp +1.9 1";
    assert_eq!(traffic(goodbye), TrafficAxis::Unknown);
}

#[test]
fn a_request_that_the_server_hung_up_on_is_cut_too() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.9 tcp app closed 80
        +1.9 tcp app closed-by-itself 80 5001 sent=0 received=50 last-sent=0 last-received=20
        +1.9 tcp app closed-by-itself 80 5002 sent=100 received=50 last-sent=30 last-received=20 jiffies=31
        +2 exit main 0
        ",
        ),
        expect![[r#"
            cut-connections: Stopped/Clean/Cut
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 open connection was dropped at exit, with an unanswered request
              fix: finish the requests in flight before the exit (graceful shutdown of the server), and allow enough time for them
        "#]],
    );
}

#[test]
fn what_it_had_opened_itself_is_no_clients() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.001 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 41000 5432 sent=100 received=50 last-sent=10 last-received=20
        +2.002 tcp app reset 41001 5432
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +2.000 sched_process_exit: PID 1 `app` exited with code 0
              +2.001 tcp: listener 10.0.0.1:80 closed by process exit
        "#]],
    );
}

#[test]
fn cut_goes_before_refused() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app closed 80
        +1.5 tcp app refused 80 5001
        +2 exit main 0
        +2.002 tcp app cut 80 5002 sent=0 received=50 last-sent=0 last-received=20
        ",
        ),
        expect![[r#"
            cut-connections: Stopped/Clean/Cut
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 open connection was dropped at exit, with an unanswered request; 1 connection was refused in the 0.4 s after the listener closed (10.0.0.2)
              fix: finish the requests in flight before the exit (graceful shutdown of the server), and allow enough time for them; for the 1 refused connection: keep accepting after the stop signal until clients stop connecting
        "#]],
    );
}

#[test]
fn the_exit_speaks_before_the_traffic() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +11 KILL runc -> main
        +11.001 exit main KILL
        +11.0015 tcp app closed 80 0 by-exit
        +11.002 tcp app cut 80 5002 sent=0 received=50 last-sent=0 last-received=20
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Cut
              The container runtime sent SIGTERM to PID 1 `app`, the handler started, but the process did not exit: the container runtime sent SIGKILL 10.0 s later; 1 open connection was dropped at exit, with an unanswered request
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown; the listener stayed open, so SIGTERM may not stop this program (some reload at SIGTERM): then declare the signal that does (`STOPSIGNAL` in the image)
        "#]],
    );
}

#[test]
fn a_socket_handed_over_is_not_quiet() {
    let end = "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.002 tcp app cut 80 5001 foreign
        +2.003 tcp app cut 80 5002 foreign
        ";
    check(
        &container(end),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; the sockets of the container were not observed
        "#]],
    );
    // What its own sockets show is worse, and known.
    check(
        &container(&format!(
            "{end}+2.001 tcp app closed 81 0 by-exit\n+2.004 tcp app reset 81 5003\n"
        )),
        expect![[r#"
            reset-connections: Stopped/Clean/Reset
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; at least 1 connection was reset
              fix: finish the requests in flight, and read all data before closing a connection
        "#]],
    );
    // A connection that closed with a worker before the stop does not count.
    check(
        &container(
            "
        +1 tcp app cut 80 5001 foreign
        +5 TERM runc -> main handler
        +5.001 enter main TERM
        +6 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

#[test]
fn the_accept_queue_at_the_close_is_told_apart() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 tcp app accepted 80 5001
        +1.6 tcp app accepted 80 5002
        +2 tcp app closed 80
        +2 tcp app queued 80 5001
        +2 tcp app reset 80 5001
        +2.01 tcp app reset 80 5002
        +2.02 tcp app refused-late 80 5003
        +2.05 exit main 0
        ",
        ),
        expect![[r#"
            reset-connections: Stopped/Clean/Reset
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.1 s later; 3 connections were reset (1 of them in the accept queue when the listener closed)
              fix: accept and serve the queued connections before closing the listener, and read all data before closing a connection
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.500 tcp: 2 connections accepted after the stop signal
              +2.000 tcp: listener 10.0.0.1:80 closed by close()
              +2.000 tcp: 3 connections reset, 1 of them in the accept queue when the listener closed
              +2.050 sched_process_exit: PID 1 `app` exited with code 0
        "#]],
    );
}

#[test]
fn a_client_that_gave_up_in_the_queue_was_not_reset() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 tcp app accepted 80 5001
        +1.9 tcp app queued 80 5001 errno=104
        +2 tcp app closed 80
        +2.05 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.1 s later
        "#]],
    );
}

const KUBELET: &str = "
    +0 mkdir kubelet.service
    ";

#[test]
fn the_kubelets_probes_are_no_clients() {
    check_evidence(
        &container(&format!(
            "{KUBELET}
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp kubelet.service connected 80 6001 kubelet
        +1.1 tcp app accepted 80 6001
        +1.2 tcp app closed 80
        +1.3 tcp app refused 80 6002
        +1.3 tcp kubelet.service connect-reset 80 6002 kubelet
        +1.3 tcp kubelet.service connect-failed 80 6002 kubelet errno=111
        +2 exit main 0
        +2.001 tcp app cut 80 6001 sent=0 received=50 last-sent=0 last-received=20
        "
        )),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.200 tcp: listener 10.0.0.1:80 closed by close()
              +1.300 tcp: 1 connection of kubelet probes refused, not counted as client connections
              +2.000 sched_process_exit: PID 1 `app` exited with code 0
              +2.001 tcp: 1 connection of kubelet probes reset or dropped, not counted as client connections
        "#]],
    );
}

/// The refusal by the server may be that of a probe of the kubelet, whose own record is lost.
#[test]
fn a_lost_connect_to_the_server_may_be_one_of_the_kubelet() {
    let known = |lost: &str| {
        let termination = termination(&format!(
            "{KUBELET}
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.2 tcp app closed 80 {lost}
        +1.3 tcp app refused 80 6002
        +2 exit main 0
        "
        ));
        assert_eq!(termination.verdict.traffic, TrafficAxis::Refused);
        termination.facts.traffic.kubelet.known
    };
    assert!(known(""));
    assert!(known("\n+1.5 lost tcp +1.1 1 connects-to 10.9.9.9"), "to another server");
    assert!(!known("\n+1.5 lost tcp +1.1 1 connects-to 10.0.0.1"));
    // A listener of all addresses.
    assert!(!known("server=0.0.0.0\n+1.5 lost tcp +1.1 1 connects-to 10.0.0.1"));
}

#[test]
fn a_port_that_the_kubelet_had_long_before_is_a_clients() {
    check(
        &container(
            "
        +1 tcp other connected 80 5001 kubelet
        +90 TERM runc -> main handler
        +90.001 enter main TERM
        +90.1 tcp app closed 80
        +90.2 tcp app refused 80 5001
        +91 exit main 0
        ",
        ),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 connection was refused in the 0.1 s after the listener closed (10.0.0.2)
              fix: 1 connection was refused in the 0.1 s after the listener closed: keep accepting for 1 s after the stop signal, or send clients elsewhere before the stop
        "#]],
    );
}

#[test]
fn what_icmp_rejects_was_not_refused_by_it() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app accepted 80 5001
        +1.2 tcp app closed 80
        +1.5 tcp other connect-failed 80 5002 errno=113
        +1.6 tcp other connect-failed 80 5003 errno=110
        +1.7 tcp other connect-failed 81 5004 errno=113
        +1.8 tcp other connect-failed 80 5005 errno=113 server=10.9.9.9
        +2 exit main 0
        ",
        ),
        expect![[r#"
            proxy-rejected: Stopped/Clean/ProxyRejected
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 connection was rejected by the network before reaching the container
              fix: find the network policy, proxy rule or missing route that rejected connections while the process was still running
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.100 tcp: 1 connection accepted after the stop signal
              +1.200 tcp: listener 10.0.0.1:80 closed by close()
              +1.500 tcp: 1 connection rejected by the network (ICMP) before reaching the process
              +2.000 sched_process_exit: PID 1 `app` exited with code 0
        "#]],
    );
}

#[test]
fn a_client_of_another_namespace_was_refused_where_only_it_can_say_so() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app accepted 80 5001
        +1.2 tcp app closed 80
        +1.5 tcp other connect-reset 80 5002
        +1.5 tcp other connect-failed 80 5002 errno=111
        +2 exit main 0
        ",
        ),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 1 connection was refused in the 0.3 s after the listener closed (counted only for clients on this machine that did not use a Service) (10.0.0.2)
              fix: 1 connection was refused in the 0.3 s after the listener closed: keep accepting for 1 s after the stop signal, or send clients elsewhere before the stop
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.100 tcp: 1 connection accepted after the stop signal
              +1.200 tcp: listener 10.0.0.1:80 closed by close()
              +1.500 tcp: 1 connection refused, counted only for clients on this machine that did not use a Service: no reset by the server was seen
              +2.000 sched_process_exit: PID 1 `app` exited with code 0
        "#]],
    );
}

/// More connections than the cap.
#[test]
fn the_first_of_many_accepted_has_its_time() {
    let accepted: String = (10..40)
        .map(|i| format!("+1.{i} tcp app accepted 80 {}\n", 5_000 + i))
        .collect();
    let script = container(&format!(
        "+1 TERM runc -> main handler\n+1.001 enter main TERM\n{accepted}+1.5 tcp app closed 80\n+2 exit main 0\n"
    ));
    let mut correlator = Correlator::new(Limits {
        connections: 4,
        ..Limits::default()
    });
    let mut out = Vec::new();
    for (at, input) in script::parse(&script).inputs {
        out.extend(correlator.handle(at, input).reports);
    }
    out.extend(
        correlator
            .handle(ZERO.plus(std::time::Duration::from_secs(6)), Input::Tick)
            .reports,
    );
    expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
          +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
          +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
          +1.100 tcp: 30 connections accepted after the stop signal
          +1.500 tcp: listener 10.0.0.1:80 closed by close()
          +2.000 sched_process_exit: PID 1 `app` exited with code 0
    "#]].assert_eq(&script::show(&out, true));
}

/// The probes of record versions up to 3 recorded no sockets after a signal with these results.
#[test]
fn sockets_that_no_probe_recorded_are_unknown_and_not_quiet() {
    for result in ["overflow", "info-lost"] {
        check(
            &container(&format!("+1 RTMIN+3 runc -> main handler {result}\n+2 exit main 0")),
            expect![[r#"
                clean-exit: Stopped/Clean/Unknown
                  The container runtime sent SIGRTMIN+3 to PID 1 `app`, and the process exited with code 0, 1.0 s later; the sockets of the container were not observed
            "#]],
        );
    }
}

/// The record has whether the kernel watched the sockets: sender and result of the signal do not matter then.
#[test]
fn sockets_are_quiet_only_where_the_record_says_that_they_were_recorded() {
    use TrafficAxis::{Quiet, Unknown};
    for (script, expected) in [
        ("+1 TERM runc -> main handler armed\n+2 exit main 0 armed", Quiet),
        ("+1 TERM runc -> main handler already-armed\n+2 exit main 0 armed", Quiet),
        ("+1 TERM runc -> main handler unarmed\n+2 exit main 0 armed", Unknown),
        ("+1 RTMIN+3 runc -> main handler info-lost armed\n+2 exit main 0 armed", Quiet),
        (
            "+1 RTMIN+3 runc -> main handler overflow unarmed\n+2 exit main 0 armed",
            Unknown,
        ),
        // Nobody asked: the exit itself armed, or the map was full.
        ("+2 exit main 3 armed", Quiet),
        ("+2 exit main 3 unarmed", Unknown),
        ("+2 exit main 3", Quiet),
        ("+1 KILL runc -> main unarmed\n+1.01 exit main KILL unarmed", Unknown),
        ("+1 KILL runc -> main armed\n+1.01 exit main KILL armed", Quiet),
    ] {
        assert_eq!(traffic(script), expected, "{script}");
    }
}

/// A cgroup that is armed already is armed at each event, too: that is no reason to keep it so.
#[test]
fn what_goes_on_in_a_healthy_container_does_not_keep_its_sockets_watched() {
    let chatter: String = (2..70)
        .map(|at| format!("+{at} HUP worker -> worker handler already-armed\n"))
        .collect();
    let script = format!(
        "
        proc check in=app pid=101 ns=2 start=+0.5 parent=shim comm=check
        proc worker in=app pid=102 ns=3 start=+0.5 parent=main comm=worker
        +1 exit check 1 armed
        {chatter}
        +70 tick"
    );
    let answers = script::run_all(&container(&script));
    let mut commands = answers.iter().flat_map(|answers| &answers.commands);
    assert!(commands.any(|command| matches!(command, Command::Forget(_))), "{answers:?}");
}
