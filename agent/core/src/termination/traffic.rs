//! What clients met.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::pod::PodIdentity;
use crate::time::Boot;

/// Events of one kind: number, first and last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub count: u64,
    /// Not valid if `count` is 0.
    pub first: Boot,
    pub last: Boot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerClosed {
    pub at: Boot,
    pub local: SocketAddr,
    /// Closed by the exit of the process, not by close(2).
    pub by_exit: bool,
}

/// Events on the subject's sockets from the pod's deletion request on; without a request from the stop signal, otherwise from the exit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The TCP probes were active for the whole time.
    pub observed: bool,
    pub unseen: UnseenTraffic,
    /// Begin of the counts below; None only before they are made.
    pub since: Option<Boot>,
    pub listeners: Vec<ListenerClosed>,
    /// New connections accepted.
    pub accepted: Count,
    pub refused: Refused,
    /// Who the clients were.
    pub peers: ClientPeers,
    /// Established connections that the server's side reset.
    pub reset: Count,
    /// Of `reset`: not yet accepted by accept(2) when the listener closed.
    pub reset_queued: u64,
    /// Connections that were closed with a FIN while the client's last bytes had no answer.
    pub cut: Count,
    /// Connections closed by the exit on which neither side had ever sent a byte.
    pub idle_closed: Count,
    pub undecided: Undecided,
    /// Connects from this node to the subject's own address and port that failed with an ICMP error, not by the subject: a proxy's
    /// or a policy's REJECT, a missing route.
    pub rejected: Count,
    /// The kubelet's own probes and hooks: not in the counts above.
    pub kubelet: KubeletTraffic,
}

/// What of the clients was not observed, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnseenTraffic {
    /// Never observed: the kernel records a socket by its v2 cgroup, and the subject has no v2 cgroup of its own.
    pub cgroup_v1: bool,
    /// The cgroup still existed when counting stopped: sockets of the exited process may not have been closed yet.
    pub unclosed: bool,
    /// Of a termination without a stop: clients were refused longer ago than what counts.
    pub refused_before: bool,
    /// A process served clients by a Unix or UDP socket in the stop: what these lost is not observed.
    pub other_sockets: bool,
    /// Where nobody served by TCP: why a process may have had such sockets.
    pub unlooked: Option<Unlooked>,
    /// A listener closed, and this kernel does not show the refused clients of other machines and of Services.
    pub clients: bool,
    /// The pod may have been Ready in the API after its end, with no deletion request: a Service sends clients to its address, which goes with
    /// the sandbox, and then no reset shows them.
    pub sent_later: bool,
}

/// SYNs answered by RST because no socket was listening any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    pub all: Count,
    /// Of these: by peers that had connected before.
    pub known: Count,
    pub by_port: BTreeMap<u16, PortRefused>,
    /// How a refused SYN was recorded: the server's RST, or the client's own error (on some kernels before 6.10).
    pub source: RefusedSource,
    /// Clients were still trying to connect when counting stopped, and were refused.
    pub goes_on: bool,
}

/// As in [`Refused`], of one local port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRefused {
    pub all: Count,
    pub known: Count,
}

/// Connections closed with the exit, of which the kernel cannot show whether a request or an answer was under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undecided {
    pub all: Count,
    /// Of these: the client had not acknowledged all that the server had written.
    pub unacknowledged: u64,
    /// Of these: the client had not acknowledged the server's close when counting stopped.
    pub unheard: u64,
}

/// Why not all open files of a process were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlooked {
    /// The process read the stop signal without a handler, so that no probe ran there, and may have closed them.
    NoHandler,
    /// The process handled a signal before the sockets were recorded, and may have closed them then.
    EarlyHandler,
    /// The process had more than the probes look at.
    TooMany,
}

/// The clients, by address. A peer had connected before if one of its connections was accepted, or was open, while the sockets
/// were observed: that begins with the deletion request or the stop signal, so earlier and short connections are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientPeers {
    /// The peers with lost connections, those that had connected before first, and of these those with the most; at most
    /// [`ClientPeers::TOP`].
    pub top: Vec<ClientPeer>,
    /// The other peers with lost connections.
    pub more: u64,
    /// ClientPeers that had connected before, and how many of them once.
    pub known: u64,
    pub known_once: u64,
    /// The connections of these.
    pub connections: u64,
    /// ClientPeers that were refused and had not connected before.
    pub new: u64,
    /// Each peer that connected while the sockets were observed is among `known`.
    pub is_complete: bool,
}

/// A peer with lost connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPeer {
    pub address: IpAddr,
    pub place: PeerPlace,
    pub had_connected: bool,
    pub refused: u64,
    pub reset: u64,
    pub cut: u64,
}

/// What is known of a peer's address. An agent knows the pods of its own node only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerPlace {
    /// A loopback address, or the subject's own.
    Itself,
    /// An address of this node.
    Node,
    /// A pod of this node.
    Pod(Arc<PodIdentity>),
    /// Another node, a pod of another node, or outside of the cluster.
    #[default]
    Elsewhere,
}

impl PeerPlace {
    /// As exports name it.
    pub const fn name(&self) -> &'static str {
        match self {
            PeerPlace::Itself => "itself",
            PeerPlace::Node => "node",
            PeerPlace::Pod(_) => "pod",
            PeerPlace::Elsewhere => "elsewhere",
        }
    }
}

impl ClientPeers {
    pub const TOP: usize = 5;

    /// Whether peers that had connected before can be told from others.
    pub fn are_told_apart(&self) -> bool {
        self.is_complete && self.known > 0
    }
}

impl ClientPeer {
    pub fn lost(&self) -> u64 {
        self.refused + self.reset + self.cut
    }
}

/// Clients were refused on a port after its listener closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalWindow {
    pub closed: Boot,
    pub last: Boot,
}

/// See [`Traffic::kubelet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KubeletTraffic {
    /// False: the kubelet's cgroup is not known, so its connections count as clients'.
    pub known: bool,
    pub accepted: Count,
    pub refused: Count,
    /// Reset or cut.
    pub broken: Count,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefusedSource {
    ServerReset,
    ClientError,
    /// Nothing was refused.
    #[default]
    None,
}

impl RefusalWindow {
    pub fn length(&self) -> Duration {
        self.last.since(self.closed)
    }
}

impl UnseenTraffic {
    /// Clients of a Unix or UDP socket are not observed, if there were any.
    pub fn may_have_others(&self) -> bool {
        self.other_sockets || self.unlooked.is_some()
    }
}

impl Traffic {
    /// Clients may have had connections that were not seen: the counts are the least.
    pub fn is_part(&self) -> bool {
        !self.observed || self.unseen.may_have_others() || self.unseen.unclosed || self.unseen.clients
    }

    /// As [`Self::is_part`], or clients were still refused when counting stopped.
    pub fn may_go_on(&self) -> bool {
        self.is_part() || self.refused.goes_on
    }

    /// A port had a listener, or clients came.
    pub(crate) fn serves(&self) -> bool {
        !self.listeners.is_empty() || self.accepted.count > 0 || self.refused.all.count > 0
    }

    /// Clients of a server that came after the pod's end, where no socket answered any more.
    pub(crate) fn miss_those_sent_later(&mut self) {
        if self.serves() {
            self.unseen.sent_later = true;
            self.observed = false;
        }
    }

    /// The refused connections of clients. Whoever can send a SYN can be refused: where some of the refused peers had connected
    /// before, only these; and none if new peers alone were refused. In doubt all.
    pub fn refused_clients(&self) -> Count {
        match self.new_peers_are_unusual() && (self.refused.known.count > 0 || self.only_new_peers_refused()) {
            true => self.refused.known,
            false => self.refused.all,
        }
    }

    /// The others: refused connections of peers that had not connected before.
    pub fn refused_new(&self) -> u64 {
        self.refused.all.count - self.refused_clients().count
    }

    /// None of the refused peers had connected before, although many connections show that the clients connect repeatedly, and
    /// the refused peers are no more than these clients: a client's loss is not proven.
    pub fn only_new_peers_refused(&self) -> bool {
        self.refused.all.count > 0
            && self.refused.known.count == 0
            && self.new_peers_are_unusual()
            && self.peers.connections >= ENOUGH
            && self.peers.new <= self.peers.known
    }

    /// Peers that had connected before are known, and nothing shows that each client has an address of its own.
    fn new_peers_are_unusual(&self) -> bool {
        let peers = &self.peers;
        let are_usual = peers.connections >= ENOUGH && peers.known_once * REPEATED > peers.connections;
        peers.are_told_apart() && !are_usual
    }

    /// One window for each port: a server may close an admin listener first, and drain behind the other. Of peers that had
    /// connected before, where others are unusual: a scanner must not decide how long clients needed.
    pub fn refusal_windows(&self) -> Vec<RefusalWindow> {
        let of_known = self.new_peers_are_unusual();
        let by_port = &self.refused.by_port;
        if !of_known && by_port.is_empty() {
            return self.window(self.refused.all, |_| true).into_iter().collect();
        }
        let of_port = |(&port, of): (&u16, &PortRefused)| {
            let refused = if of_known { of.known } else { of.all };
            self.window(refused, |listener| listener.local.port() == port)
        };
        by_port.iter().filter_map(of_port).collect()
    }

    /// The longest window; None if no client was refused on a port with an observed close.
    pub fn refusal_window(&self) -> Option<Duration> {
        self.refusal_windows().iter().map(RefusalWindow::length).max()
    }

    fn window(&self, refused: Count, is_its: impl Fn(&ListenerClosed) -> bool) -> Option<RefusalWindow> {
        let closes = || self.listeners.iter().filter(|l| is_its(l)).map(|l| l.at);
        if refused.count == 0 || closes().next().is_none() {
            return None;
        }
        // The kernel unhashes a listener before it records the close: a SYN can reach the closed port just before the recorded close.
        let closed = closes().filter(|at| *at <= refused.first).max().unwrap_or(refused.first);
        Some(RefusalWindow {
            closed,
            last: refused.last,
        })
    }
}

/// With fewer earlier connections, a client that is missing among them may be missing by chance.
const ENOUGH: u64 = 20;
/// Clients connect again and again: at most one in so many connections was the only one of its peer. Otherwise new peers are usual,
/// as where each client of the internet has its own address.
const REPEATED: u64 = 10;
