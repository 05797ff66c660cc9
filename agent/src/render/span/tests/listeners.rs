//! `listener closed → exit`.

use epitaph_core::fixtures::terminations::{clean, ignored, ms, observation};
use epitaph_core::report::Termination;
use epitaph_core::termination::ListenerClosed;
use epitaph_core::time::Boot;

use crate::render::attributes::key;
use crate::render::span::{Options, trace};

fn closed(millis: u64, local: &str, by_exit: bool) -> ListenerClosed {
    ListenerClosed {
        at: ms(millis),
        local: local.parse().expect("an address"),
        by_exit,
    }
}

/// Ports, and how many milliseconds before the exit each was closed.
fn found(t: &Termination, listeners: Vec<ListenerClosed>) -> Vec<(i64, u128)> {
    let mut t = t.clone();
    t.facts.traffic.listeners = listeners;
    let spans = trace(&t, &observation(), &Options::default()).spans;
    let ids: std::collections::HashSet<_> = spans.iter().map(|s| s.span_context.span_id()).collect();
    assert_eq!(ids.len(), spans.len(), "a span id twice");
    let of_listeners = spans.iter().filter(|s| s.name == "listener closed → exit");
    let of_listeners = of_listeners.map(|s| {
        assert_eq!(s.parent_span_id, spans[0].span_context.span_id());
        assert!(s.start_time >= spans[0].start_time && s.end_time <= spans[0].end_time);
        let port = s.attributes.iter().find(|a| a.key.as_str() == key::SERVER_PORT);
        let port = port.and_then(|a| match a.value {
            opentelemetry::Value::I64(port) => Some(port),
            _ => None,
        });
        let length = s.end_time.duration_since(s.start_time).expect("a length");
        (port.expect("a port"), length.as_millis())
    });
    of_listeners.collect()
}

#[test]
fn each_port_that_closed_before_the_exit_has_a_span() {
    // Exits 250 ms after the stop signal.
    let t = clean(7);
    assert_eq!(found(&t, vec![]), []);
    assert_eq!(found(&t, vec![closed(50, "10.0.0.7:8080", false)]), [(8080, 200)]);
    let both = vec![closed(50, "10.0.0.7:8080", false), closed(60, "[::]:8080", false)];
    assert_eq!(found(&t, both), [(8080, 190)], "the port's last listener");
    let two = vec![closed(90, "10.0.0.7:9090", false), closed(50, "10.0.0.7:8080", true)];
    assert_eq!(found(&t, two), [(8080, 200), (9090, 160)]);
}

#[test]
fn a_port_that_accepted_until_the_end_has_no_span() {
    let t = clean(7);
    assert_eq!(found(&t, vec![closed(250, "10.0.0.7:8080", true)]), []);
    let one_stays = vec![closed(50, "10.0.0.7:8080", false), closed(251, "10.0.0.7:8080", true)];
    assert_eq!(found(&t, one_stays), []);
    // All processes are killed after 30000 ms; the first of them exits 2 ms later.
    let killed = ignored(8);
    assert_eq!(found(&killed, vec![closed(30_001, "10.0.0.7:8080", true)]), []);
    assert_eq!(
        found(&killed, vec![closed(29_000, "10.0.0.7:8080", true)]),
        [(8080, 1_002)],
        "a worker that exited by itself"
    );
}

#[test]
fn without_an_exit_and_before_the_stop_there_is_no_span() {
    let mut t = clean(7);
    t.facts.exit = None;
    assert_eq!(found(&t, vec![closed(50, "10.0.0.7:8080", false)]), []);
    let mut early = closed(0, "10.0.0.7:8080", false);
    early.at = Boot(early.at.0 - 1_000_000);
    assert_eq!(found(&clean(7), vec![early]), []);
}

#[test]
fn at_most_eight_ports_have_a_span() {
    let many = (1..=20)
        .map(|port| closed(port, &format!("10.0.0.7:{port}"), false))
        .collect();
    let ports: Vec<_> = found(&clean(7), many).into_iter().map(|(port, _)| port).collect();
    assert_eq!(ports, [1, 2, 3, 4, 5, 6, 7, 8], "the first that closed");
}
