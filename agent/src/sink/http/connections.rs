//! What the connections of a listener may cost: their number in total and by peer, bytes, time.
//!
//! Every peer can be hostile. A new connection is always accepted; at a limit, an older connection is closed for it. An honest
//! request is answered within milliseconds, so an old connection is hardly ever an honest one; and a peer with many connections
//! loses its own. Each connection serves one request.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{sleep, timeout};

/// What a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// All paths.
    Metrics,
    /// `/healthz` and `/readyz`.
    Health,
}

impl Offer {
    const ALL: [Offer; 2] = [Offer::Metrics, Offer::Health];

    fn name(self) -> &'static str {
        match self {
            Offer::Metrics => "metrics",
            Offer::Health => "health",
        }
    }
}

/// Why a connection was closed without a complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// For a newer connection.
    Displaced,
    /// No complete head in time.
    HeadTimeout,
    HeadTooLarge,
    /// Not HTTP/1.
    BadRequest,
    /// The client did not read the answer in time.
    Timeout,
    /// The kernel could not hand over a connection: no file descriptor, no memory.
    NotAccepted,
}

impl CloseReason {
    const ALL: [CloseReason; 6] = [
        CloseReason::Displaced,
        CloseReason::HeadTimeout,
        CloseReason::HeadTooLarge,
        CloseReason::BadRequest,
        CloseReason::Timeout,
        CloseReason::NotAccepted,
    ];

    fn name(self) -> &'static str {
        match self {
            CloseReason::Displaced => "displaced",
            CloseReason::HeadTimeout => "head_timeout",
            CloseReason::HeadTooLarge => "head_too_large",
            CloseReason::BadRequest => "bad_request",
            CloseReason::Timeout => "timeout",
            CloseReason::NotAccepted => "not_accepted",
        }
    }
}

/// Connections closed without a complete answer.
#[derive(Debug, Default)]
pub struct ClosedConnections([[AtomicU64; CloseReason::ALL.len()]; Offer::ALL.len()]);

impl ClosedConnections {
    fn count(&self, offer: Offer, reason: CloseReason) {
        self.0[offer as usize][reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Listener, reason, count.
    pub fn totals(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        Offer::ALL.into_iter().flat_map(move |offer| {
            CloseReason::ALL.into_iter().map(move |reason| {
                let count = self.0[offer as usize][reason as usize].load(Ordering::Relaxed);
                (offer.name(), reason.name(), count)
            })
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    total: usize,
    per_peer: usize,
    /// Until the head of the request is complete.
    head: Duration,
    /// Until the client has read the answer.
    whole: Duration,
    /// Size of the head.
    head_bytes: usize,
}

impl ConnectionLimits {
    pub const METRICS: ConnectionLimits = ConnectionLimits {
        total: 64,
        per_peer: 16,
        head: Duration::from_secs(5),
        // Prometheus gives up after 10 s by default.
        whole: Duration::from_secs(15),
        head_bytes: 16 << 10,
    };
    pub const HEALTH: ConnectionLimits = ConnectionLimits {
        total: 32,
        per_peer: 8,
        // The manifests give the kubelet 5 s.
        head: Duration::from_secs(5),
        whole: Duration::from_secs(10),
        head_bytes: 16 << 10,
    };
}

/// Without a free file descriptor, the next attempt fails at once.
const RETRY_ACCEPT: Duration = Duration::from_millis(100);

/// Time of the open requests after the stop.
const FINISH: Duration = Duration::from_secs(1);

/// Serves until the sender of `stopped` is dropped.
pub async fn serve_connections(
    offer: Offer,
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    closed: Arc<ClosedConnections>,
    mut stopped: watch::Receiver<()>,
) {
    let mut tasks = JoinSet::new();
    let mut open = OpenConnections::default();
    let finish = |open: &mut OpenConnections, ended: Result<(Id, Option<CloseReason>), JoinError>| {
        let (id, reason) = ended.unwrap_or_else(|error| (error.id(), None));
        open.ended(id);
        if let Some(reason) = reason {
            closed.count(offer, reason);
        }
    };
    loop {
        tokio::select! {
            // The sender sends nothing: an error, when the sender is dropped.
            _ = stopped.changed() => break,
            Some(ended) = tasks.join_next_with_id() => finish(&mut open, ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let peer = peer.ip().to_canonical();
                    if let Some(displaced) = open.make_room(peer, &limits) {
                        displaced.abort();
                        closed.count(offer, CloseReason::Displaced);
                    }
                    let task = tasks.spawn(serve_one(stream, router.clone(), limits));
                    open.began(peer, task);
                }
                Err(_) => {
                    closed.count(offer, CloseReason::NotAccepted);
                    sleep(RETRY_ACCEPT).await;
                }
            },
        }
    }
    // New clients are refused by the kernel meanwhile.
    drop(listener);
    let open_requests = async {
        while let Some(ended) = tasks.join_next_with_id().await {
            finish(&mut open, ended);
        }
    };
    let _ = timeout(FINISH, open_requests).await;
}

/// One request. None if the request was answered, or if the client left.
async fn serve_one(stream: TcpStream, router: Router, limits: ConnectionLimits) -> Option<CloseReason> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match timeout(limits.whole, connection).await {
        Err(_) => Some(CloseReason::Timeout),
        Ok(Ok(())) => None,
        Ok(Err(error)) if error.is_timeout() => Some(CloseReason::HeadTimeout),
        Ok(Err(error)) if error.is_parse_too_large() => Some(CloseReason::HeadTooLarge),
        Ok(Err(error)) if error.is_parse() => Some(CloseReason::BadRequest),
        Ok(Err(_)) => None,
    }
}

/// The open connections, oldest first. There are few: a search is cheaper than an index.
#[derive(Default)]
struct OpenConnections(Vec<OpenConnection>);

struct OpenConnection {
    peer: IpAddr,
    task: AbortHandle,
}

impl OpenConnections {
    /// Removes the connection that a new one of `peer` displaces, if a limit is reached.
    fn make_room(&mut self, peer: IpAddr, limits: &ConnectionLimits) -> Option<AbortHandle> {
        // Ended, and the end not handled yet.
        self.0.retain(|open| !open.task.is_finished());
        let of_peer = |peer| self.0.iter().filter(|open| open.peer == peer).count();
        let loses = if of_peer(peer) >= limits.per_peer {
            peer
        } else if self.0.len() >= limits.total {
            // Of peers with the same number, the one with the oldest connection: `max_by_key` returns the last.
            self.0.iter().rev().map(|open| open.peer).max_by_key(|peer| of_peer(*peer))?
        } else {
            return None;
        };
        let oldest = self.0.iter().position(|open| open.peer == loses)?;
        Some(self.0.remove(oldest).task)
    }

    fn began(&mut self, peer: IpAddr, task: AbortHandle) {
        self.0.push(OpenConnection { peer, task });
    }

    /// A displaced connection is not listed any more.
    fn ended(&mut self, id: Id) {
        self.0.retain(|open| open.task.id() != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        total: 4,
        per_peer: 2,
        ..ConnectionLimits::METRICS
    };

    struct Peers {
        tasks: JoinSet<()>,
        open: OpenConnections,
        names: Vec<(Id, String)>,
    }

    impl Peers {
        /// A new connection; the name of the one that was displaced.
        fn connect(&mut self, name: &str, peer: &str) -> Option<String> {
            let peer: IpAddr = peer.parse().unwrap();
            let displaced = self.open.make_room(peer, &LIMITS).map(|task| {
                let of = self.names.iter().find(|(id, _)| *id == task.id());
                of.map(|(_, name)| name.clone()).unwrap()
            });
            let task = self.tasks.spawn(std::future::pending());
            self.names.push((task.id(), name.to_owned()));
            self.open.began(peer, task);
            displaced
        }
    }

    fn peers() -> Peers {
        Peers {
            tasks: JoinSet::new(),
            open: OpenConnections::default(),
            names: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_peer_at_its_limit_loses_its_own_oldest_connection() {
        let mut peers = peers();
        assert_eq!(peers.connect("kubelet", "10.0.0.1"), None);
        assert_eq!(peers.connect("a", "10.0.0.2"), None);
        assert_eq!(peers.connect("b", "10.0.0.2"), None);
        assert_eq!(peers.connect("c", "10.0.0.2").as_deref(), Some("a"));
        assert_eq!(peers.connect("d", "10.0.0.2").as_deref(), Some("b"));
    }

    #[tokio::test]
    async fn at_the_limit_in_total_the_peer_with_the_most_connections_loses_one() {
        let mut peers = peers();
        for (name, peer) in [
            ("kubelet", "10.0.0.1"),
            ("a", "10.0.0.2"),
            ("b", "10.0.0.2"),
            ("c", "10.0.0.3"),
        ] {
            assert_eq!(peers.connect(name, peer), None);
        }
        assert_eq!(peers.connect("prometheus", "fd00::4").as_deref(), Some("a"));
        // All peers have one: the oldest connection, which had the longest time for its request.
        assert_eq!(peers.connect("e", "10.0.0.5").as_deref(), Some("kubelet"));
    }

    #[tokio::test]
    async fn the_end_of_a_connection_makes_room() {
        let mut peers = peers();
        peers.connect("a", "10.0.0.2");
        peers.connect("b", "10.0.0.2");
        let (id, _) = peers.names[0];
        peers.open.ended(id);
        assert_eq!(peers.connect("c", "10.0.0.2"), None);
    }
}
