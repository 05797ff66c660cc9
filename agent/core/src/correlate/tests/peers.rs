//! Whose connections were lost: clients that had connected before, and others, who can forge a refusal with a SYN.

use std::fmt::Write as _;

use expect_test::expect;

use super::{check, check_evidence, container};
use crate::fixtures::script::{ZERO, play};
use crate::report::Report;
use crate::termination::Traffic;

/// `count` connections of each client, accepted in the second after the stop signal.
fn accepted(clients: &[&str], count: u32) -> String {
    let mut lines = String::new();
    for (i, client) in clients.iter().enumerate() {
        for n in 0..count {
            let port = 1_000 * (i as u32 + 1) + n;
            writeln!(lines, "+1.{:03} tcp app accepted 80 {port} client={client}", n + 10).expect("a string");
        }
    }
    lines
}

/// SYNs of each client from 2.1 s on, three per second.
fn refused(clients: &[&str], seconds: u32) -> String {
    let mut lines = String::new();
    for (i, client) in clients.iter().enumerate() {
        for n in 0..3 * seconds {
            let (second, tenth) = (2 + n / 3, 1 + 3 * (n % 3));
            let port = 40_000 + 1_000 * i as u32 + n;
            writeln!(lines, "+{second}.{tenth} tcp app refused 80 {port} client={client}").expect("a string");
        }
    }
    lines
}

/// A server that closes its listener a second after the stop signal, and exits two seconds later.
fn server(traffic: &str) -> String {
    let mut lines: Vec<String> = container(
        "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 tcp app closed 80
        +4 exit main 0",
    )
    .lines()
    .chain(traffic.lines())
    .map(str::trim)
    .map(str::to_owned)
    .collect();
    let time = |line: &String| {
        line.split_whitespace()
            .next()
            .and_then(|word| word.strip_prefix('+')?.parse().ok())
    };
    lines.sort_by(|a, b| time(a).unwrap_or(-1.0_f64).total_cmp(&time(b).unwrap_or(-1.0)));
    lines.join("\n")
}

const CLIENTS: &[&str] = &["10.0.0.2", "10.0.0.3"];
const SCANNER: &[&str] = &["10.6.6.6"];

/// A scan, and nobody else: not proof of damage, and not clean.
#[test]
fn a_scanner_alone_is_told_apart_from_clients() {
    check_evidence(
        &server(&(accepted(CLIENTS, 12) + &refused(SCANNER, 2))),
        expect![[r#"
            refused-new-peers: Stopped/Clean/RefusedNewPeers
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 3.0 s later; 6 connections of 1 peer that had not connected before were refused (10.6.6.6)
              fix: look at the addresses of the refused peers: if they are clients, keep listening until clients stop connecting
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.010 tcp: 24 connections accepted after the stop signal
              +2.000 tcp: listener 10.0.0.1:80 closed by close()
              +2.100 tcp: 6 connections refused, 6 of them by 1 peer that had not connected before
              +4.000 sched_process_exit: PID 1 `app` exited with code 0
        "#]],
    );
}

/// The number of the remedy is that of the clients, whatever a scanner does.
#[test]
fn a_scanner_does_not_change_what_clients_need() {
    let clients = accepted(CLIENTS, 12) + &refused(CLIENTS, 1);
    check(
        &server(&clients),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 3.0 s later; 6 connections were refused in the 0.7 s after the listener closed (10.0.0.2: 3, 10.0.0.3: 3)
              fix: 6 connections were refused in the 0.7 s after the listener closed: keep accepting for 1 s after the stop signal, or send clients elsewhere before the stop
        "#]],
    );
    check(
        &server(&(clients + &refused(SCANNER, 3))),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 3.0 s later; 6 connections were refused in the 0.7 s after the listener closed (10.0.0.2: 3, 10.0.0.3: 3); 9 connections of 1 peer that had not connected before were refused (10.6.6.6)
              fix: 6 connections were refused in the 0.7 s after the listener closed: keep accepting for 1 s after the stop signal, or send clients elsewhere before the stop
        "#]],
    );
}

/// A client whose earlier connection was open when the sockets began to be observed is known by its close.
#[test]
fn an_open_connection_shows_a_client_too() {
    let clients = "
        +1.5 tcp app closed-by-itself 80 5000 sent=1 received=1 last-sent=2 last-received=1 client=10.0.0.2
        +1.6 tcp app cut 80 5001 sent=1 received=1 last-sent=2 last-received=1 client=10.0.0.3
        ";
    let traffic = traffic(&server(&(clients.to_owned() + &refused(CLIENTS, 1) + &refused(SCANNER, 1))));
    assert_eq!((traffic.refused.all.count, traffic.refused.known.count), (9, 6));
    assert_eq!((traffic.peers.known, traffic.peers.new), (2, 1));
}

/// A connection that the subject itself opened shows no client.
#[test]
fn a_database_is_not_a_client() {
    let own = "+1.5 tcp app closed-by-itself 41000 5432 client=10.6.6.6 sent=1 received=1 last-sent=2 last-received=1\n";
    let traffic = traffic(&server(&(own.to_owned() + &accepted(CLIENTS, 12) + &refused(SCANNER, 1))));
    assert_eq!((traffic.refused.known.count, traffic.peers.new), (0, 1));
}

/// In doubt, refusals count: too few earlier connections, each peer new (clients of the internet), more peers than are known,
/// or records that were lost.
#[test]
fn in_doubt_a_new_peer_is_a_client() {
    let internet: Vec<String> = (1..=40).map(|i| format!("192.0.2.{i}")).collect();
    let internet: Vec<&str> = internet.iter().map(String::as_str).collect();
    let scan = refused(SCANNER, 1);
    let scans = refused(&["10.6.6.6", "10.6.6.7", "10.6.6.8"], 1);
    let lost = "+3 lost tcp +2.9 3\n";
    for (doubt, traffic) in [
        ("nothing before", scan.clone()),
        ("few before", accepted(CLIENTS, 9) + &scan),
        ("each new", accepted(&internet, 1) + &scan),
        ("more than known", accepted(CLIENTS, 30) + &scans),
        ("lost", accepted(CLIENTS, 30) + &scan + lost),
    ] {
        assert_eq!(headline(&server(&traffic)), "refused-connections", "{doubt}");
    }
    assert_eq!(headline(&server(&(accepted(CLIENTS, 10) + &scan))), "refused-new-peers");
}

/// One connection is enough to be a client.
#[test]
fn a_client_among_the_refused_decides() {
    let both =
        accepted(CLIENTS, 12) + &accepted(&["10.0.0.4"], 1).replace("1000", "9000") + &refused(&["10.0.0.4", "10.6.6.6"], 1);
    assert_eq!(headline(&server(&both)), "refused-connections");
}

/// More clients than are kept by name: those that are known are kept, and nothing is claimed about the others.
#[test]
fn a_flood_of_addresses_is_bounded_and_makes_nothing_cleaner() {
    let flood: Vec<String> = (0..9_000_u32).map(|i| format!("10.9.{}.{}", i / 250, i % 250)).collect();
    let mut lines = accepted(CLIENTS, 12);
    for (i, client) in flood.iter().enumerate() {
        writeln!(lines, "+1.5 tcp app accepted 80 {} client={client}", 2_000 + i % 60_000).expect("a string");
    }
    let script = server(&(lines + &refused(SCANNER, 1)));
    let traffic = traffic(&script);
    assert!(!traffic.peers.is_complete, "{:?}", traffic.peers);
    assert_eq!(headline(&script), "refused-connections");
}

/// The most refused first, the rest as a number.
#[test]
fn the_sentence_names_a_few_peers() {
    let many: Vec<String> = (1..=8).map(|i| format!("10.0.1.{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let script = server(&(accepted(&many, 3) + &refused(&many, 1) + &refused(&many[..1], 2).replace("400", "490")));
    check(
        &script,
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 3.0 s later; 30 connections were refused in the 1.7 s after the listener closed (10.0.1.1: 9, 10.0.1.2: 3, 10.0.1.3: 3, others: 15)
              fix: 30 connections were refused in the 1.7 s after the listener closed: keep accepting for 2 s after the stop signal, or send clients elsewhere before the stop
        "#]],
    );
    let peers = traffic(&script).peers;
    assert_eq!((peers.top.len(), peers.more), (5, 3));
}

/// A client in a pod of this node has a name; an address of the host's network is the node's.
#[test]
fn a_peer_is_named_where_the_api_knows_it() {
    use crate::input::Input;
    let script = server(&(accepted(CLIENTS, 2) + &refused(CLIENTS, 1)));
    let script =
        format!("-60 api synced\npod front app\npod agent app\n-50 pod front app=running\n-50 pod agent app=running\n{script}");
    let mut correlator = crate::fixtures::recorded::Recorded::default();
    let mut sentences = Vec::new();
    let mut inputs = crate::fixtures::script::parse(&script).inputs;
    inputs.push((ZERO.plus(std::time::Duration::from_secs(60)), Input::Tick));
    for (at, mut input) in inputs {
        if let Input::Pod(fact) = &mut input {
            let fact = std::sync::Arc::make_mut(fact);
            let spec = std::sync::Arc::make_mut(&mut fact.spec);
            let is_agent = fact.pod.name == "agent";
            spec.host_network = is_agent;
            spec.ips = vec![if is_agent { "10.0.0.3" } else { "10.0.0.2" }.parse().expect("an address")];
        }
        for report in correlator.handle(at, input).reports {
            if let Report::Terminated(t) = report {
                sentences.push(t.verdict.sentence.clone());
            }
        }
    }
    expect!["The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 3.0 s later; 6 connections were refused in the 0.7 s after the listener closed (pod shop/front: 3, this node: 3)"].assert_eq(&sentences.join("\n"));
}

fn headline(script: &str) -> &'static str {
    let mut headlines = terminations(script).map(|t| t.verdict.headline);
    let headline = headlines.next().expect("a termination");
    assert!(headlines.next().is_none());
    headline
}

fn traffic(script: &str) -> Traffic {
    terminations(script).next().expect("a termination").traffic.clone()
}

fn terminations(script: &str) -> impl Iterator<Item = Box<crate::report::Termination>> {
    play(script).into_iter().filter_map(|(_, report)| match report {
        Report::Terminated(t) => Some(t),
        _ => None,
    })
}
