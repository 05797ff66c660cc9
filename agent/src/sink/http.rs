//! `/metrics`, `/healthz` and `/readyz`: the only listeners of epitaph.
//!
//! In a cluster every pod can connect. [`connections`] limits what the connections cost, [`scrape`] what `/metrics` costs. A second
//! listener, for health only, has limits of its own: the kubelet's probes do not compete with clients of `/metrics`.

mod connections;
mod health;
mod scrape;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::routing::get;
use bytes::Bytes;
use epitaph_core::pod::PodsState;
use epitaph_core::render::json::{ProbeObject, probes_object};
use epitaph_core::time::Boot;
use nix::libc::EAFNOSUPPORT;
use serde::Serialize;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use crate::error::{HasRemedy, Remedy};
use crate::sink::metrics::Metrics;

pub use connections::{ClosedConnections, Offer};
use connections::{ConnectionLimits, serve_connections};
pub use health::{Health, JournalState, ObserverState, STUCK_AFTER};
use scrape::Scrapes;

/// Connections that the kernel completes before they are accepted: as many as the standard library asks for.
const BACKLOG: u32 = 1024;

/// Bytes of a connection that the kernel keeps for an agent that does not read, and for a client that does not read. Without these
/// limits the kernel grants several megabytes each, and charges them to the agent.
const RECEIVE_BUFFER: u32 = 32 << 10;
const SEND_BUFFER: u32 = 128 << 10;

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot listen on {address}: another process uses this port")]
    InUse { address: SocketAddr, offer: Offer },
    #[error("cannot listen on {address}: this machine has no such address")]
    NoSuchAddress { address: SocketAddr, offer: Offer },
    #[error("cannot listen on {address}: {error}")]
    Bind {
        address: SocketAddr,
        offer: Offer,
        error: io::Error,
    },
}

impl HasRemedy for HttpError {
    fn remedy(&self) -> Option<Remedy> {
        let (advice, offer) = match self {
            HttpError::InUse { offer, .. } => ("stop it (`ss -ltnp` shows it), or set another address", offer),
            HttpError::NoSuchAddress { offer, .. } => ("set an address of this machine", offer),
            HttpError::Bind { offer, .. } => ("set another address", offer),
        };
        let with = match offer {
            Offer::Metrics => "with --listen, or --listen off",
            Offer::Health => "with --set health_listen=ADDRESS, or --set health_listen=off",
        };
        Some(format!("{advice} {with}").into())
    }
}

/// Bound addresses that are not served yet: a port in use is an error before the probes are attached.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<(Offer, TcpListener)>,
    closed: Arc<ClosedConnections>,
}

impl Server {
    /// `metrics`: serves all paths; `health`: serves `/healthz` and `/readyz` only.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind(metrics: Option<SocketAddr>, health: Option<SocketAddr>) -> Result<Server, HttpError> {
        let mut listeners = Vec::new();
        for (offer, address) in [(Offer::Metrics, metrics), (Offer::Health, health)] {
            if let Some(address) = address {
                listeners.push((offer, bind(offer, address)?));
            }
        }
        Ok(Server {
            listeners,
            closed: Arc::default(),
        })
    }

    /// The given address; for port 0 with the port that the kernel chose. None without such a listener.
    pub fn address(&self, offer: Offer) -> Option<SocketAddr> {
        let (_, listener) = self.listeners.iter().find(|(of, _)| *of == offer)?;
        listener.local_addr().ok()
    }

    /// Connections that were closed without an answer, by listener and reason.
    pub fn closed(&self) -> Arc<ClosedConnections> {
        self.closed.clone()
    }

    /// Serves until `stop` is ready, then finishes the open requests. `now`: the clock.
    pub async fn serve(
        self,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        now: Clock,
        stop: impl Future<Output = ()> + Send + 'static,
    ) {
        let healthy = Router::new()
            .route("/healthz", get(serve_health))
            .route("/readyz", get(serve_ready))
            .with_state((health, now));
        let all = Router::new()
            .route("/metrics", get(serve_metrics))
            .with_state((Arc::new(Scrapes::new(metrics)), now))
            .merge(healthy.clone());
        let (stopping, stopped) = watch::channel(());
        let serving: Vec<_> = self
            .listeners
            .into_iter()
            .map(|(offer, listener)| {
                let (router, limits) = match offer {
                    Offer::Metrics => (all.clone(), ConnectionLimits::METRICS),
                    Offer::Health => (healthy.clone(), ConnectionLimits::HEALTH),
                };
                let closed = self.closed.clone();
                serve_connections(offer, listener, router, limits, closed, stopped.clone())
            })
            .collect();
        let stop = async {
            stop.await;
            drop(stopping);
        };
        tokio::join!(stop, futures::future::join_all(serving));
    }
}

fn bind(offer: Offer, address: SocketAddr) -> Result<TcpListener, HttpError> {
    let bound = match listen(address) {
        // `[::]` is every address, IPv4 too; a kernel without IPv6 still has the IPv4 addresses.
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.raw_os_error() == Some(EAFNOSUPPORT) => {
            listen((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        bound => bound,
    };
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => HttpError::InUse { address, offer },
        io::ErrorKind::AddrNotAvailable => HttpError::NoSuchAddress { address, offer },
        _ => HttpError::Bind { address, offer, error },
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit both.
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

type Clock = fn() -> Boot;
type Answer = (StatusCode, [(HeaderName, &'static str); 1], Bytes);

const TEXT: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
const JSON: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
const PROMETHEUS: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)];

async fn serve_metrics(State((scrapes, now)): State<(Arc<Scrapes>, Clock)>) -> Answer {
    match scrapes.text(now()).await {
        Ok(text) => (StatusCode::OK, PROMETHEUS, text),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            TEXT,
            format!("cannot encode the metrics: {error}\n").into(),
        ),
    }
}

async fn serve_health(State((health, now)): State<(Arc<Health>, Clock)>) -> Answer {
    match health.since_alive(now()) {
        Some(since) if since < STUCK_AFTER => match health.shutdown_in_progress() {
            None => (StatusCode::OK, TEXT, Bytes::from_static(b"ok\n")),
            // Read by the observer: `source/cluster/answers.rs`.
            Some(ordinal) => (StatusCode::OK, TEXT, format!("ok\nshutdown {ordinal}\n").into()),
        },
        Some(since) => {
            let text = format!(
                "the last event loop iteration was {:.1} s ago; restart the agent\n",
                since.as_secs_f64()
            );
            (StatusCode::SERVICE_UNAVAILABLE, TEXT, text.into())
        }
        None => (
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT,
            Bytes::from_static(b"the event loop has not started yet\n"),
        ),
    }
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    probes: Vec<ProbeObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<KubernetesObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<JournalState>,
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

async fn serve_ready(State((health, _)): State<(Arc<Health>, Clock)>) -> Answer {
    if let Some(state) = health.observer_state() {
        return ready_answer(state.ready, &state);
    }
    let ready = health.is_ready();
    let body = Ready {
        ready,
        probes: probes_object(&health.probes()),
        kubernetes: health.pods_state().as_ref().map(kubernetes_object),
        journal: health.journal_state(),
    };
    ready_answer(ready, &body)
}

fn ready_answer(ready: bool, body: &impl Serialize) -> Answer {
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, JSON, epitaph_core::render::json::line(body).into())
}

#[cfg(test)]
mod tests;
