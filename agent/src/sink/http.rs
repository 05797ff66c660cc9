//! `/metrics`, `/healthz` and `/readyz`: the only listener of epitaph.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::routing::get;
use epitaph_core::input::{ESSENTIAL, ProbeState};
use epitaph_core::pod::PodsState;
use epitaph_core::render::json::{ProbeObject, probes_object};
use epitaph_core::time::Boot;
use nix::libc::EAFNOSUPPORT;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::error::{HasRemedy, Remedy};
use crate::sink::metrics::Metrics;

/// The loop ticks several times a second: a loop without a tick for so long is stuck, and a restart is the remedy.
pub const STUCK_AFTER: Duration = Duration::from_secs(10);

/// State that the loop reports and the handlers serve.
#[derive(Debug, Default)]
pub struct Health {
    /// 0 before the first tick.
    alive_at: AtomicU64,
    probes: Mutex<Vec<(String, ProbeState)>>,
    /// None without Kubernetes.
    pods: Mutex<Option<PodsState>>,
    /// Set by an observer, which has no probes.
    observer: Mutex<Option<ObserverState>>,
}

/// State of an observer, for `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObserverState {
    /// The observer knows whether it is the leader; as the leader, all its watches are synced.
    pub ready: bool,
    /// `active`, `standby`, or `starting` before the first answer of the API server.
    pub role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_holder: Option<String>,
}

impl Health {
    /// One iteration of the loop is done.
    pub fn alive(&self, now: Boot) {
        self.alive_at.store(now.0, Ordering::Relaxed);
    }

    /// A probe's state, new or changed.
    pub fn probe(&self, name: &str, state: ProbeState) {
        let mut probes = self.probes();
        match probes.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = state,
            None => probes.push((name.to_owned(), state)),
        }
    }

    /// State of the connection to the Kubernetes API: reported, but not a condition of readiness, because the kernel is observed
    /// regardless.
    pub fn pods(&self, state: PodsState) {
        *self.pods.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(state);
    }

    /// State of an observer.
    pub fn observer(&self, state: ObserverState) {
        *self.observer.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(state);
    }

    fn observer_state(&self) -> Option<ObserverState> {
        self.observer.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn since_alive(&self, now: Boot) -> Option<Duration> {
        match self.alive_at.load(Ordering::Relaxed) {
            0 => None,
            at => Some(now.since(Boot(at))),
        }
    }

    /// The loop has ticked, and the essential probes are active.
    fn is_ready(&self) -> bool {
        if self.alive_at.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let probes = self.probes();
        ESSENTIAL
            .iter()
            .all(|name| probes.iter().any(|(n, state)| n == name && *state == ProbeState::Active))
    }

    fn probes(&self) -> MutexGuard<'_, Vec<(String, ProbeState)>> {
        self.probes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot listen on {address}: another process uses this port")]
    InUse { address: SocketAddr },
    #[error("cannot listen on {address}: this machine has no such address")]
    NoSuchAddress { address: SocketAddr },
    #[error("cannot listen on {address}: {error}")]
    Bind { address: SocketAddr, error: io::Error },
}

impl HasRemedy for HttpError {
    fn remedy(&self) -> Option<Remedy> {
        let remedy = match self {
            HttpError::InUse { .. } => "stop it (`ss -ltnp` shows it), or set another address with --listen, or --listen off",
            HttpError::NoSuchAddress { .. } => "set an address of this machine with --listen, or --listen off",
            HttpError::Bind { .. } => "set another address with --listen, or --listen off",
        };
        Some(remedy.into())
    }
}

/// A bound address that is not served yet: a port in use is an error before the probes are attached.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
}

impl Server {
    pub async fn bind(address: SocketAddr) -> Result<Server, HttpError> {
        let bound = match TcpListener::bind(address).await {
            // `[::]` is every address, IPv4 too; a kernel without IPv6 still has the IPv4 addresses.
            Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.raw_os_error() == Some(EAFNOSUPPORT) => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        };
        let listener = bound.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => HttpError::InUse { address },
            io::ErrorKind::AddrNotAvailable => HttpError::NoSuchAddress { address },
            _ => HttpError::Bind { address, error },
        })?;
        Ok(Server { listener })
    }

    /// The given address; for port 0 with the port that the kernel chose.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is ready, then finishes the open requests. `now`: the clock.
    pub async fn serve(
        self,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        now: fn() -> Boot,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let router = Router::new()
            .route("/metrics", get(serve_metrics))
            .route("/healthz", get(serve_health))
            .route("/readyz", get(serve_ready))
            .with_state(Shared { metrics, health, now });
        axum::serve(self.listener, router).with_graceful_shutdown(stop).await
    }
}

#[derive(Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    now: fn() -> Boot,
}

type Answer = (StatusCode, [(HeaderName, &'static str); 1], String);

const TEXT: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
const JSON: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
const PROMETHEUS: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)];

async fn serve_metrics(State(shared): State<Shared>) -> Answer {
    match shared.metrics.text() {
        Ok(text) => (StatusCode::OK, PROMETHEUS, text),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            TEXT,
            format!("cannot encode the metrics: {error}\n"),
        ),
    }
}

async fn serve_health(State(shared): State<Shared>) -> Answer {
    match shared.health.since_alive((shared.now)()) {
        Some(since) if since < STUCK_AFTER => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        Some(since) => (
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT,
            format!(
                "the last event loop iteration was {:.1} s ago; restart the agent\n",
                since.as_secs_f64()
            ),
        ),
        None => (
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT,
            "the event loop has not started yet\n".to_owned(),
        ),
    }
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    probes: Vec<ProbeObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<KubernetesObject>,
}

#[derive(Serialize)]
struct KubernetesObject {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

fn kubernetes_object(state: &PodsState) -> KubernetesObject {
    match state {
        PodsState::Synced => KubernetesObject {
            state: "synced",
            reason: None,
        },
        PodsState::Away { reason } => KubernetesObject {
            state: "away",
            reason: reason.clone(),
        },
    }
}

async fn serve_ready(State(shared): State<Shared>) -> Answer {
    if let Some(state) = shared.health.observer_state() {
        return ready_answer(state.ready, &state);
    }
    let ready = shared.health.is_ready();
    let body = Ready {
        ready,
        probes: probes_object(&shared.health.probes()),
        kubernetes: {
            let pods = shared.health.pods.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            pods.as_ref().map(kubernetes_object)
        },
    };
    ready_answer(ready, &body)
}

fn ready_answer(ready: bool, body: &impl Serialize) -> Answer {
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, JSON, epitaph_core::render::json::line(body))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use opentelemetry_sdk::Resource;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    use super::*;
    use crate::error::lines;

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

    async fn start(health: Arc<Health>) -> (SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<io::Result<()>>) {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = server.address().unwrap();
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
        health.alive(NOW.minus(STUCK_AFTER));
        let (status, _, body) = ask(address, "GET", "/healthz").await;
        assert_eq!(status, 503);
        expect!["the last event loop iteration was 10.0 s ago; restart the agent"].assert_eq(body.trim_end());
        stop.send(()).unwrap();
        task.await.unwrap().unwrap();
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
        expect![[r#"{"ready":false,"probes":[{"name":"signal_generate","state":"active"},{"name":"sched_process_exit","state":"failed","reason":"it was \\u{1b}refused"},{"name":"tcp_send_reset","state":"unsupported","reason":"no such tracepoint"}]}"#]]
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
        let error = lines(&Server::bind(address).await.unwrap_err()).replace(&address.to_string(), "ADDRESS");
        expect![[r#"
            cannot listen on ADDRESS: another process uses this port
            remedy: stop it (`ss -ltnp` shows it), or set another address with --listen, or --listen off"#]]
        .assert_eq(&error);
        // TEST-NET-1: no machine has this address.
        let error = Server::bind("192.0.2.1:0".parse().unwrap()).await.unwrap_err();
        assert!(matches!(error, HttpError::NoSuchAddress { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_shutdown_releases_the_port() {
        let (address, stop, task) = start(Arc::default()).await;
        assert_eq!(ask(address, "GET", "/metrics").await.0, 200);
        stop.send(()).unwrap();
        task.await.unwrap().unwrap();
        Server::bind(address).await.expect("the port is free again");
    }
}
