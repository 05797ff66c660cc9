//! Kernels that do not show the refused clients of other machines.

use expect_test::expect;

use super::{check, check_evidence, container};
use crate::fixtures::script;
use crate::report::Report;
use crate::verdict::TrafficAxis;

/// As before 6.10 without a program at tcp_v4_send_reset.
const OF_THIS_MACHINE: &str = "+0.5 probe tcp_send_reset by=inet_sock_set_state of-this-machine\n";

fn stop(events: &str) -> String {
    container(&format!(
        "{OF_THIS_MACHINE}
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        {events}
        +2 exit main 0
        "
    ))
}

#[test]
fn a_listener_that_closes_leaves_the_traffic_unknown() {
    check(
        &stop("+1.1 tcp app accepted 80 5001\n+1.2 tcp app closed 80"),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; the listener closed, and this kernel does not show whether clients of other machines and of Services were refused
        "#]],
    );
}

/// Also by the exit: another process of the pod could still have a client connect.
#[test]
fn a_listener_that_the_exit_closes_leaves_the_traffic_unknown() {
    check(
        &stop("+1.9999 tcp app closed 80 by-exit"),
        expect![[r#"
        clean-exit: Stopped/Clean/Unknown
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; the listener closed, and this kernel does not show whether clients of other machines and of Services were refused
    "#]],
    );
}

#[test]
fn what_is_seen_counts_all_the_same() {
    check_evidence(
        &stop("+1.1 tcp app accepted 80 5001\n+1.2 tcp app closed 80\n+1.5 tcp other connect-reset 80 5002"),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; at least 1 connection was refused in the 0.3 s after the listener closed (counted only for clients on this machine that did not use a Service) (10.0.0.2)
              fix: at least 1 connection was refused in the 0.3 s after the listener closed: keep accepting for at least 1 s after the stop signal, or send clients elsewhere before the stop
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.100 tcp: 1 connection accepted after the stop signal
              +1.200 tcp: listener 10.0.0.1:80 closed by close()
              +1.500 tcp: 1 connection refused, counted only for clients on this machine that did not use a Service: no reset by the server was seen
              +2.000 sched_process_exit: PID 1 `app` exited with code 0
        "#]],
    );
    check(
        &stop("+1.1 tcp app accepted 80 5001\n+1.2 tcp app closed 80\n+1.5 tcp app reset 80 5001"),
        expect![[r#"
            reset-connections: Stopped/Clean/Reset
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; at least 1 connection was reset
              fix: finish the requests in flight, and read all data before closing a connection
        "#]],
    );
}

#[test]
fn nothing_is_unknown_that_only_this_machine_could_see() {
    check(
        &stop("+1.2 tcp app closed 80 server=127.0.0.1"),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
    "#]],
    );
    check(
        &stop("+1.2 tcp app closed 80 server=::1 client=::1"),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
    "#]],
    );
    check(
        &stop("+1.1 tcp app accepted 80 5001"),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
    "#]],
    );
}

/// The port may have refused clients ever since: nothing shows another listener.
#[test]
fn a_listener_that_closed_long_before_the_stop_leaves_the_traffic_unknown() {
    check(
        &container(&format!(
            "{OF_THIS_MACHINE}
        +1 HUP runc -> main handler
        +1.001 enter main HUP
        +1.2 tcp app closed 80
        +60 TERM runc -> main handler already-armed
        +60.001 enter main TERM
        +61 exit main 0
        "
        )),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; the listener closed, and this kernel does not show whether clients of other machines and of Services were refused
        "#]],
    );
}

/// The program closed it, nothing terminated, and what was recorded of it is dropped.
#[test]
fn a_listener_that_was_forgotten_before_the_stop_leaves_the_traffic_unknown() {
    let traffic = |server: &str| {
        let script = container(&format!(
            "{OF_THIS_MACHINE}
        +10 tcp app closed 80 by-own server={server} client={server}
        +13 tick
        +30 tick
        +130 tick
        +200 tick
        +300 TERM runc -> main handler armed
        +300.001 enter main TERM
        +301 exit main 0
        "
        ));
        let terminated = |report: &Report| match report {
            Report::Terminated(termination) => Some(termination.verdict.traffic),
            _ => None,
        };
        script::run(&script).iter().find_map(terminated).expect("a termination")
    };
    assert_eq!(traffic("10.0.0.1"), TrafficAxis::Unknown);
    assert_eq!(traffic("127.0.0.1"), TrafficAxis::Quiet);
}

/// A job that ends by itself has no stop signal, and its reader asks why the traffic is unknown all the same.
#[test]
fn without_a_stop_the_reason_is_named_too() {
    check(
        &container(&format!(
            "{OF_THIS_MACHINE}
        +1.9999 tcp app closed 80 by-exit
        +2 exit main 0 armed
        "
        )),
        expect![[r#"
            clean-exit: Completed/Clean/Unknown
              PID 1 `app` exited by itself with code 0; the listener closed, and this kernel does not show whether clients of other machines and of Services were refused
        "#]],
    );
}

#[test]
fn a_substitute_that_sees_all_clients_leaves_no_doubt() {
    check(
        &container(
            "
        +0.5 probe tcp_send_reset by=tcp_v4_send_reset
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.2 tcp app closed 80
        +2 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

/// A server of a Unix socket, or of datagrams: which of its clients lost a request is not recorded.
#[test]
fn clients_of_other_sockets_are_not_quiet() {
    let server = |of_main: &str, before: &str| {
        container(&format!(
            "
            proc worker in=app pid=107 ns=7 start=+0.1 parent=main comm=worker
            {before}
            +1 TERM runc -> main handler armed
            +1.001 enter main TERM
            +2 exit main 0 {of_main}
            "
        ))
    };
    check(
        &server("other-sockets armed", ""),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; a process served clients by a Unix or UDP socket, and what those lost is not observed
        "#]],
    );
    check(
        &server("", "+1.5 exit worker 0 other-sockets armed"),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; a process served clients by a Unix or UDP socket, and what those lost is not observed
        "#]],
    );
    // Its clients had all closed, or had not come: no kernel tells.
    assert!(is_unknown(&server("on-a-path armed", "")));
    assert!(!is_unknown(&server("on-a-path armed", "+1.2 tcp app accepted 80 5001")));
    assert!(!is_unknown(&server("on-a-path armed", "+1.5 tcp app closed 80")));
    // The handler closed it long before the exit.
    assert!(is_unknown(&handler("on-a-path")));
    assert!(is_unknown(&handler("udp")));
    assert!(!is_unknown(&handler("")));
    // The next cases to it: none, and of a worker that left before.
    let left = ["other-sockets", "looked holding-more"].map(|held| format!("+0.5 exit worker 0 {held} armed"));
    for (of_main, before) in [("", ""), ("", &left[0]), ("", &left[1])] {
        let shown = script::show(&script::run(&server(of_main, before)), false);
        assert!(shown.starts_with("clean: Stopped/Clean/Quiet"), "{shown}");
    }
}

/// A Unix or UDP socket may be behind the descriptors that the probes look at. What was seen by TCP is observed wherever it is.
#[test]
fn a_process_with_more_open_files_than_are_looked_at_is_not_quiet() {
    let server = |of_main: &str, before: &str| {
        handler("")
            .replace("exit main 0 looked", &format!("exit main 0 {of_main}"))
            .replace("+2 ", &format!("{before}\n+2 "))
    };
    check(
        &server("holding-more", ""),
        expect![[r#"
        clean-exit: Stopped/Clean/Unknown
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; whether clients used a Unix or UDP socket is not known: a process had more open files than the probes look at
    "#]],
    );
    assert!(is_unknown(&handler("holding-more")));
    assert!(!is_unknown(&server("holding-more", "+1.2 tcp app accepted 80 5001")));
    assert!(!is_unknown(
        &handler("holding-more").replace("+2 ", "+1.5 tcp app closed 80\n+2 ")
    ));
    let worker = "proc worker in=app pid=107 ns=7 start=+0.1 parent=main comm=worker\n+1.5 exit worker 0 looked holding-more already-armed";
    assert!(is_unknown(&server("looked", worker)));
    // An exec probe in the meantime. Without a namespace of its own the same may be the main process.
    let probe = worker.replace("looked holding-more", "holding-more from-outside");
    assert!(!is_unknown(&server("looked", &probe)));
    assert!(is_unknown(&server("holding-more from-outside", "")));
}

fn handler(open: &str) -> String {
    container(&format!(
        "
        +1 TERM runc -> main handler armed
        +1.001 enter main TERM {open}
        +2 exit main 0 looked already-armed
        "
    ))
}

fn is_unknown(script: &str) -> bool {
    let shown = script::show(&script::run(script), false);
    shown.starts_with("clean-exit: Stopped/Clean/Unknown")
}

/// systemd has the listener of a socket unit, and the next start serves its clients.
#[test]
fn a_unit_whose_unix_listener_lives_on_is_quiet() {
    let unit = |held: &str| {
        format!(
            "
            +0 mkdir web.service
            proc main in=web.service pid=400 start=+0.001 parent=systemd comm=app
            +0.001 exec main
            +1 TERM systemd -> main handler armed
            +1.001 enter main TERM
            +2 exit main 0 {held} already-armed
            +2.03 rmdir web.service
            "
        )
    };
    assert!(is_unknown(&unit("last-on-a-path")));
    assert!(!is_unknown(&unit("on-a-path")));
}

/// Nobody stopped it.
#[test]
fn clients_of_other_sockets_below_a_wrapper_are_not_quiet() {
    check(
        &container(
            "
            proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
            +60 exit server 0 other-sockets armed
            +60.02 exit main 0 already-armed
            ",
        ),
        expect![[r#"
            clean-exit: Completed/Clean/Unknown
              PID 1 `app` exited by itself with code 0; a process served clients by a Unix or UDP socket, and what those lost is not observed
        "#]],
    );
}

/// A Unix listener that a process below the first one closed at a signal before its exit: nothing looked at its open files in time.
#[test]
fn a_process_below_that_a_signal_from_outside_stopped_is_not_quiet() {
    const SERVER: &str = "proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server\n+0.1 exec server\n";
    // A shell in the background, and all processes of the container are signalled.
    let to_all = |of_server: &str| {
        container(&format!(
            "
            {SERVER}
            +1 QUIT runc -> main handler armed
            +1.001 enter main QUIT looked
            +1.0001 QUIT runc -> server {of_server} already-armed
            +1.05 exit server 0 looked already-armed
            +2 exit main 0 looked already-armed
            "
        ))
    };
    check(
        &to_all("default blocked"),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGQUIT to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; whether clients used a Unix or UDP socket is not known: the process reads its stop signal without a handler (signalfd or sigwait)
        "#]],
    );
    assert!(is_unknown(&to_all("default sigwait")));
    assert!(!is_unknown(&to_all("default")));
    assert!(!is_unknown(&to_all("handler")));
    // A stranger before the stop.
    let before = |signal: &str, exit: &str| {
        container(&format!(
            "
            {SERVER}
            {signal}
            +1 TERM runc -> main handler armed
            +1.001 enter main TERM looked
            {exit}
            +2 exit main 0 looked already-armed
            "
        ))
    };
    const EXIT: &str = "+1.05 exit server 143 looked already-armed";
    check(
        &before("+0.6 TERM bash -> server handler unarmed", EXIT),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; whether clients used a Unix or UDP socket is not known: a process below handled a signal before its open files were looked at
        "#]],
    );
    assert!(!is_unknown(&before("", EXIT)));
    assert!(!is_unknown(&before("+0.6 TERM bash -> server ignored ignore unarmed", EXIT)));
    // It ended before clients count, it served by TCP until the end, or it was looked at.
    assert!(!is_unknown(&before(
        "+0.6 TERM bash -> server handler unarmed",
        "+0.8 exit server 143 looked unarmed"
    )));
    assert!(!is_unknown(&before(
        "+0.6 TERM bash -> server handler unarmed",
        "+1.04 tcp app closed 80\n+1.05 exit server 143 looked already-armed"
    )));
    assert!(!is_unknown(&before(
        "+1.01 TERM bash -> server handler already-armed\n+1.02 enter server TERM looked",
        EXIT
    )));
    // Nobody stops the container.
    let alone = |by: &str| {
        container(&format!(
            "
            {SERVER}
            +60 INT bash -> server {by} unarmed
            +60.1 exit server 3 looked unarmed
            +60.11 exit main 3 looked armed
            "
        ))
    };
    check(
        &alone("handler"),
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Unknown
              PID 1 `app` exited by itself with code 3
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
    check(
        &alone("default"),
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Quiet
              PID 1 `app` exited by itself with code 3
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}
