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
    [&traffic.refused, &traffic.reset, &traffic.cut, &traffic.undecided].map(|counted| counted.count)
}

/// A port check: connected, closed, and still held by the server. The kernel counts the FIN as a byte.
#[test]
fn a_fin_is_not_a_byte_of_the_clients() {
    const NOTHING: [u64; 4] = [0; 4];
    const UNDECIDED: [u64; 4] = [0, 0, 0, 1];
    for (counts, expected) in [
        ("sent=0 received=1 last-sent=10 last-received=10 jiffies=500 segments=0", NOTHING),
        ("sent=0 received=1 last-sent=10 last-received=10", NOTHING),
        ("sent=9 received=1 last-sent=20 last-received=10 jiffies=500 segments=0", NOTHING),
        ("sent=0 received=2 last-sent=10 last-received=20 jiffies=500 segments=1", UNDECIDED),
        ("sent=0 received=2 last-sent=10 last-received=20", UNDECIDED),
    ] {
        let records = format!("+2 exit main 0\n+2.1 tcp app closed 80 0 by-exit\n+2.1 tcp app half-closed 80 5001 {counts}");
        assert_eq!(counted(&records), expected, "{counts}");
    }
    // Without a FIN a byte is a byte.
    let cut = "+2 exit main 0\n+2.1 tcp app closed 80 0 by-exit\n+2.1 tcp app cut 80 5001 sent=0 received=1 last-received=20";
    assert_eq!(counted(cut), [0, 0, 1, 0]);
}
