use std::net::Ipv4Addr;
use std::time::Duration;

use epitaph_core::input::ProbeState;
use expect_test::expect;
use opentelemetry_sdk::Resource;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::*;
use crate::error::lines;
use crate::sink::otlp::collector::free_port;

fn metrics() -> Arc<Metrics> {
    let push = None::<(crate::sink::metrics::push::Push, Duration)>;
    Arc::new(Metrics::new(Resource::builder_empty().build(), push, 10).unwrap())
}

/// Status code, content type, body.
async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let of_type = head
        .lines()
        .find_map(|l| l.strip_prefix("content-type: "))
        .unwrap_or_default();
    (status, of_type.to_owned(), body.to_owned())
}

const NOW: Boot = Boot(100_000_000_000);

async fn start(health: Arc<Health>) -> (SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    start_at(0, health).await
}

async fn start_at(port: u16, health: Arc<Health>) -> (SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let server = Server::bind(Some((Ipv4Addr::LOCALHOST, port).into()), None).unwrap();
    let address = server.address(Offer::Metrics).unwrap();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.serve(metrics(), health, || NOW, async { drop(stopped.await) }));
    (address, stop, task)
}

#[tokio::test]
async fn health_depends_on_the_loops_last_iteration() {
    let health = Arc::new(Health::default());
    let (address, stop, task) = start(health.clone()).await;
    assert_eq!(ask(address, "GET", "/healthz").await.0, 503);
    health.alive(NOW.minus(Duration::from_secs(1)));
    let (status, _, body) = ask(address, "GET", "/healthz").await;
    assert_eq!((status, body.as_str()), (200, "ok\n"));
    health.shutdown(Some(2));
    let (status, _, body) = ask(address, "GET", "/healthz").await;
    assert_eq!((status, body.as_str()), (200, "ok\nshutdown 2\n"));
    health.shutdown(None);
    assert_eq!(ask(address, "GET", "/healthz").await.2, "ok\n");
    health.alive(NOW.minus(STUCK_AFTER));
    let (status, _, body) = ask(address, "GET", "/healthz").await;
    assert_eq!(status, 503);
    expect!["the last event loop iteration was 10.0 s ago; restart the agent"].assert_eq(body.trim_end());
    stop.send(()).unwrap();
    task.await.unwrap();
}

#[tokio::test]
async fn readiness_needs_the_essential_probes_and_lists_every_probe() {
    let health = Arc::new(Health::default());
    let (address, _stop, _task) = start(health.clone()).await;
    let (status, _, body) = ask(address, "GET", "/readyz").await;
    assert_eq!((status, body.trim_end()), (503, r#"{"ready":false,"probes":[]}"#));
    health.probe("signal_generate", ProbeState::Active);
    health.probe("sched_process_exit", ProbeState::Failed("it was \u{1b}refused".into()));
    health.probe("tcp_send_reset", ProbeState::Unsupported("no such tracepoint".into()));
    let (status, of_type, body) = ask(address, "GET", "/readyz").await;
    assert_eq!((status, of_type.as_str()), (503, "application/json"));
    expect![[r#"{"ready":false,"probes":[{"name":"signal_generate","state":"active"},{"name":"sched_process_exit","state":"failed","reason":"it was \\u{1b}refused"},{"name":"tcp_send_reset","state":"unsupported","reason":"no such tracepoint","remedy":"run kernel 6.10 or newer, or one that accepts BPF programs at tcp_v4_send_reset and tcp_v6_send_reset (arm64: 6.4 or newer): docs/limits/kernels.md"}]}"#]]
        .assert_eq(body.trim_end());
    health.probe("sched_process_exit", ProbeState::Active);
    assert_eq!(ask(address, "GET", "/readyz").await.0, 503, "the first scan is still running");
    health.alive(NOW);
    assert_eq!(ask(address, "GET", "/readyz").await.0, 200);
    let reason = Some("connection refused".to_owned());
    for (state, word) in [
        (
            PodsState::Away { reason },
            r#""kubernetes":{"state":"away","reason":"connection refused"}"#,
        ),
        (PodsState::Synced, r#""kubernetes":{"state":"synced"}"#),
    ] {
        health.pods(state);
        let (status, _, body) = ask(address, "GET", "/readyz").await;
        assert_eq!(status, 200, "the kernel is observed regardless");
        assert!(body.contains(word), "{body}");
    }
}

#[tokio::test]
async fn an_observers_readiness_is_its_reported_state() {
    let health = Arc::new(Health::default());
    let (address, _stop, _task) = start(health.clone()).await;
    let mut state = ObserverState {
        ready: false,
        role: "starting",
        lease_holder: None,
    };
    health.observer(state.clone());
    let (status, _, body) = ask(address, "GET", "/readyz").await;
    assert_eq!((status, body.trim_end()), (503, r#"{"ready":false,"role":"starting"}"#));
    state.ready = true;
    state.role = "standby";
    state.lease_holder = Some("observer-1".to_owned());
    health.observer(state);
    let (status, _, body) = ask(address, "GET", "/readyz").await;
    let standby = r#"{"ready":true,"role":"standby","lease_holder":"observer-1"}"#;
    assert_eq!((status, body.trim_end()), (200, standby));
}

#[tokio::test]
async fn metrics_are_served_and_other_paths_are_not() {
    let (address, _stop, _task) = start(Arc::default()).await;
    let (status, of_type, body) = ask(address, "GET", "/metrics").await;
    assert_eq!((status, of_type.as_str()), (200, "text/plain; version=0.0.4"));
    assert!(body.contains("# TYPE epitaph_connections_total counter"), "{body}");
    for path in ["/", "/debug/pprof", "/metrics/", "//metrics"] {
        assert_eq!(ask(address, "GET", path).await.0, 404, "{path}");
    }
    assert_eq!(ask(address, "POST", "/metrics").await.0, 405);
}

#[tokio::test]
async fn a_port_in_use_is_named_with_the_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = lines(&Server::bind(Some(address), None).unwrap_err()).replace(&address.to_string(), "ADDRESS");
    expect![[r#"
        cannot listen on ADDRESS: another process uses this port
        remedy: stop it (`ss -ltnp` shows it), or set another address with --listen, or --listen off"#]]
    .assert_eq(&error);
    // TEST-NET-1: no machine has this address.
    let error = Server::bind(None, Some("192.0.2.1:0".parse().unwrap())).unwrap_err();
    expect![[r#"
        cannot listen on 192.0.2.1:0: this machine has no such address
        remedy: set an address of this machine with --set health_listen=ADDRESS, or --set health_listen=off"#]]
    .assert_eq(&lines(&error));
}

#[tokio::test]
async fn a_shutdown_releases_the_port() {
    // Of nobody else, who could have it after the shutdown.
    let (address, stop, task) = start_at(free_port(), Arc::default()).await;
    assert_eq!(ask(address, "GET", "/metrics").await.0, 200);
    assert!(Server::bind(Some(address), None).is_err(), "two listen");
    stop.send(()).unwrap();
    task.await.unwrap();
    Server::bind(Some(address), None).expect("the port is free again");
}

#[tokio::test]
async fn a_listener_for_health_serves_no_metrics() {
    let any = Some("127.0.0.1:0".parse().unwrap());
    let server = Server::bind(any, any).unwrap();
    let address = |offer| server.address(offer).unwrap();
    let (all, health) = (address(Offer::Metrics), address(Offer::Health));
    tokio::spawn(server.serve(metrics(), Arc::default(), || NOW, std::future::pending()));
    for (address, path, status) in [
        (all, "/metrics", 200),
        (all, "/healthz", 503),
        (health, "/metrics", 404),
        (health, "/healthz", 503),
        (health, "/readyz", 503),
    ] {
        assert_eq!(ask(address, "GET", path).await.0, status, "{path} at {address}");
    }
}

fn closed(of: &ClosedConnections, reason: &str) -> u64 {
    of.totals().filter(|(_, r, _)| *r == reason).map(|(_, _, count)| count).sum()
}

#[tokio::test]
async fn closed_connections_are_counted_by_reason() {
    let server = Server::bind(Some("127.0.0.1:0".parse().unwrap()), None).unwrap();
    let (address, counts) = (server.address(Offer::Metrics).unwrap(), server.closed());
    tokio::spawn(server.serve(metrics(), Arc::default(), || NOW, std::future::pending()));
    let send = async |bytes: Vec<u8>| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may close before it has read everything.
        let _ = stream.write_all(&bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    };
    let large = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Large: {}\r\n", "a".repeat(40_000));
    send(large.into_bytes()).await;
    send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec()).await;
    let answered = send(b"GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n".to_vec()).await;
    assert_eq!(answered, "HTTP/1.1 503 Service Unavailable", "a body is never waited for");
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(
        ask(address, "GET", "/metrics").await.0,
        200,
        "more idle connections than a peer may have"
    );
    assert_eq!(closed(&counts, "head_too_large"), 1);
    assert_eq!(closed(&counts, "bad_request"), 1);
    assert_eq!(closed(&counts, "displaced"), 5);
    assert_eq!(closed(&counts, "timeout"), 0);
}
