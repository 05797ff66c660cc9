//! Ends of connections that look like losses, and where the difference lies.

use super::container;
use crate::fixtures::script;
use crate::report::Report;
use crate::termination::Traffic;

/// What was counted: refused, reset, cut and undecided connections.
fn counted(records: &str) -> [u64; 4] {
    let lines = records.trim();
    let out = script::run(&container(&format!(
        "+1 TERM runc -> main handler\n+1.001 enter main TERM\n{lines}\n"
    )));
    let traffic: Traffic = out
        .into_iter()
        .find_map(|report| match report {
            Report::Terminated(of) => Some(of.facts.traffic.clone()),
            _ => None,
        })
        .expect("a termination");
    [&traffic.refused.all, &traffic.reset, &traffic.cut, &traffic.undecided.all].map(|counted| counted.count)
}

/// A port check: connected, closed, and still held by the server. The kernel counts the FIN as a byte.
#[test]
fn a_fin_is_not_a_byte_of_the_clients() {
    const NOTHING: [u64; 4] = [0; 4];
    const UNDECIDED: [u64; 4] = [0, 0, 0, 1];
    for (counts, expected) in [
        (
            "sent=0 received=1 last-sent=10 last-received=10 jiffies=500 segments=0",
            NOTHING,
        ),
        ("sent=0 received=1 last-sent=10 last-received=10", NOTHING),
        (
            "sent=9 received=1 last-sent=20 last-received=10 jiffies=500 segments=0",
            NOTHING,
        ),
        (
            "sent=0 received=2 last-sent=10 last-received=20 jiffies=500 segments=1",
            UNDECIDED,
        ),
        ("sent=0 received=2 last-sent=10 last-received=20", UNDECIDED),
    ] {
        let records = format!("+2 exit main 0\n+2.1 tcp app closed 80 0 by-exit\n+2.1 tcp app half-closed 80 5001 {counts}");
        assert_eq!(counted(&records), expected, "{counts}");
    }
    // Without a FIN a byte is a byte.
    let cut = "+2 exit main 0\n+2.1 tcp app closed 80 0 by-exit\n+2.1 tcp app cut 80 5001 sent=0 received=1 last-received=20";
    assert_eq!(counted(cut), [0, 0, 1, 0]);
}

/// Of three clients in the accept queue, one waits, and two have gone: one with a request sent, which may wait for the answer still.
#[test]
fn who_has_left_the_accept_queue_was_not_reset() {
    let closed = "+1.5 tcp app closed 80 0 by-exit\n";
    let end = "+2 exit main 0";
    for (queued, expected) in [
        (
            "queued 80 5001 sent=0 received=0 jiffies=500\n+1.5 tcp app aborted 80 5001 sent=0 received=0 jiffies=500",
            [0, 1, 0, 0],
        ),
        (
            "queued-half-closed 80 5001 sent=0 received=1 jiffies=500 unread=1\n\
             +1.5 tcp app aborted 80 5001 sent=0 received=1 jiffies=500 unread=1",
            [0, 0, 0, 0],
        ),
        (
            "queued-half-closed 80 5001 sent=0 received=9 jiffies=500 unread=9 segments=1\n\
             +1.5 tcp app aborted 80 5001 sent=0 received=9 jiffies=500 unread=9 segments=1",
            [0, 0, 0, 1],
        ),
        // Without the counts.
        ("queued-half-closed 80 5001\n+1.5 tcp app reset 80 5001", [0, 0, 0, 1]),
    ] {
        assert_eq!(
            counted(&format!("{closed}+1.5 tcp app {queued}\n{end}")),
            expected,
            "{queued}"
        );
    }
}

/// SO_LINGER 0: an RST instead of a FIN, also where nothing was under way.
#[test]
fn an_abort_of_an_answered_connection_is_undecided() {
    const RESET: [u64; 4] = [0, 1, 0, 0];
    const UNDECIDED: [u64; 4] = [0, 0, 0, 1];
    for (how, counts, expected) in [
        ("aborted", "sent=90 received=50 last-sent=30 last-received=20", UNDECIDED),
        ("aborted", "sent=90 received=50 last-sent=20 last-received=23", UNDECIDED),
        (
            "aborted",
            "sent=90 received=50 last-sent=30 last-received=20 unacknowledged=40",
            UNDECIDED,
        ),
        // A part of the answer never left the machine.
        (
            "aborted",
            "sent=90 received=50 last-sent=30 last-received=20 unacknowledged=40 unsent",
            RESET,
        ),
        ("aborted", "sent=0 received=0 last-sent=10 last-received=10", UNDECIDED),
        // The last request has no answer, or is not even read.
        ("aborted", "sent=90 received=50 last-sent=20 last-received=40", RESET),
        ("aborted", "sent=0 received=50 last-sent=10 last-received=20", RESET),
        ("aborted", "sent=90 received=50 last-sent=30 last-received=20 unread=7", RESET),
        // The answer to a packet that came too late; or no one knows why.
        ("reset", "sent=90 received=50 last-sent=30 last-received=20", RESET),
    ] {
        let records = format!(
            "+1.4 tcp app accepted 80 5001\n+1.5 tcp app {how} 80 5001 {counts} jiffies=500 segments=1\n+1.6 tcp app closed 80\n\
             +2 exit main 0"
        );
        assert_eq!(counted(&records), expected, "{how} {counts}");
    }
    // The client had closed first, and may not have wanted the rest.
    let half_closed = "+1.4 tcp app accepted 80 5001\n+1.5 tcp app half-closed-and-aborted 80 5001\n\
         +1.5 tcp app aborted 80 5001 sent=90 received=50 last-sent=30 last-received=20 jiffies=500 unacknowledged=40 unsent\n\
         +1.6 tcp app closed 80\n+2 exit main 0";
    assert_eq!(counted(half_closed), UNDECIDED);
    let unknown = "+1.4 tcp app accepted 80 5001\n+1.5 tcp app aborted 80 5001\n+1.6 tcp app closed 80\n+2 exit main 0";
    assert_eq!(counted(unknown), RESET);
}

/// A gateway within the server is a client of its own listener. A sidecar has the same address, and its sockets are not recorded.
#[test]
fn connections_of_a_container_to_itself_are_not_clients() {
    const LOCAL: &str = "server=127.0.0.1 client=127.0.0.1";
    let closed = format!("+1.5 tcp app closed 80 0 {LOCAL}\n");
    let end = "+2 exit main 0";
    for (server, own, expected) in [
        ("refused 80 5001", "connect-failed 80 5001 errno=111", [1, 0, 0, 0]),
        (
            "client-error 80 5001 errno=111",
            "connect-failed 80 5001 errno=111",
            [1, 0, 0, 0],
        ),
        ("reset 80 5001", "queued 80 5001 errno=104", [0, 1, 0, 0]),
        ("cut 80 5001 sent=0 received=9", "cut 80 5001", [0, 0, 1, 0]),
        ("cut 80 5001", "closed-by-itself 80 5001", [0, 0, 0, 1]),
        (
            "closed-by-itself 80 5001 sent=9 received=9",
            "half-closed 80 5001",
            [0, 0, 0, 1],
        ),
    ] {
        let server = format!("+1.6 tcp app {server} {LOCAL}\n");
        assert_eq!(counted(&format!("{closed}{server}{end}")), expected, "{server}");
        let own = format!("+1.6001 tcp app {own} {LOCAL} itself\n");
        assert_eq!(counted(&format!("{closed}{server}{own}{end}")), [0; 4], "{server}{own}");
        assert_eq!(counted(&format!("{closed}{own}{server}{end}")), [0; 4], "{own}{server}");
        // From one port, now of a sidecar: one more refusal, or the end of a connection that is not the container's own any more.
        let sidecar = server.replace("+1.6", "+1.9");
        let server = if expected[0] == 1 { server } else { String::new() };
        assert_eq!(
            counted(&format!("{closed}{server}{own}{sidecar}{end}")),
            expected,
            "{own}{sidecar}"
        );
    }
}
