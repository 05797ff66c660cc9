//! Events on a subject's sockets during its stop.
//!
//! Rules, one connection (remote address, local address) counting once:
//! - *refused*: an RST for a SYN that met no socket. Server and client sides report it, retransmissions repeat it: one. A client of
//!   many threads can reuse a port at once, also the port of a connection: a SYN earlier than the shortest retransmission time
//!   is another client's. A SYN that no closed listener would have accepted does not count: it would have been refused before,
//!   too.
//! - *reset*: an RST from an existing socket; or an RST without a socket for a handshake during the close. A connection that was cut
//!   and then reset counts as reset. An RST by a listener that is open is no loss of a client whose connection had ended (its last
//!   acknowledgement, for a FIN that was sent again), and otherwise undecided: anyone can send a packet that is no SYN. An RST for data that came after the close of another connection proves a loss only if the client
//!   had not yet acknowledged the FIN: clients of TLS and of HTTP/2 say goodbye (close_notify, GOAWAY). Otherwise it is undecided.
//! - *queued*, of these: closed with the listener, before any process held the connection. A client that had closed first, even its own
//!   half only, is not among them: without a byte of its own it lost nothing, with bytes it is undecided.
//! - An RST by an abort (SO_LINGER 0) proves a loss only where bytes were unread, the client's last bytes have no answer, or bytes that were
//!   written were never sent to a client that had not closed. Otherwise the connection is undecided: the RST drops what the client has not received, and a request within a stream.
//! - *cut*: ESTABLISHED → FIN_WAIT1, by the exit of a process or by close(2), if the client's last bytes have no answer: nothing was
//!   ever sent, or the client's last bytes came more than three ticks after the server's. Sooner they can be a reaction of the client's
//!   protocol (an acknowledgement of HTTP/2's settings).
//! - *idle*: the same, if neither side had ever sent a byte.
//! - *undecided*: the same by the exit, if neither is proven: the server had sent last, and an idle keep-alive connection, a stream that
//!   waits (HTTP/2 answers the client's settings before its request), and an answer under way look the same. Also a connection that
//!   the client had half closed.
//! - A close by close(2) after the server had sent last is a program's decision, and harms no client, but also what runtimes do
//!   with open connections when a program returns from main. The decision is proven by shutdown(2); by data sent within a tick before
//!   the close (a last answer, GOAWAY, close_notify), unless much of it was on its way; by data of the server on any client's connection
//!   after the close; or by a process that exits much later. Otherwise the connection is undecided.
//! - Only clients' connections count as reset, cut or undecided: accepted ones, or on the port of a closed listener. Connections that
//!   the subject had opened (to a database) close with the exit, too, and harm no client.
//! - A connection of the subject to itself is none of these, nor refused: its own sockets are at both ends, at one address. The record of
//!   the other end at the same moment shows that. The address alone does not: sidecars share it.
//! - A connection on a socket that was handed over (of another cgroup) is none of these: the close at the exit shows that such
//!   sockets exist, and nothing else of them is recorded. The traffic then counts as not observed.
//! - CLOSE_WAIT → LAST_ACK is none of these if the server had answered, or by close(2): the client had closed first.
//! - A close whose FIN the client has not acknowledged when counting stops is *undecided*, whatever the close was: the way to the client may
//!   be gone, and the client waits.
//! - *rejected*: a connect from this node to an address and port of the subject that failed with an error and without an RST.
//! - Where refused clients of other machines and of Services are not recorded (some kernels before 6.10), the close of a listener that they
//!   could reach makes the traffic count as not observed: what is counted is the least.
//! - The kubelet's connections are separate from all of these, if its sockets are known.
//! - A peer (remote address) *had connected before* if a connection of it was accepted, or was open and closed later. Refused
//!   connections of such peers are counted apart: anyone can send a SYN to a closed port.

mod bounds;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::event::{Client, Tcp, TcpOp, TcpState};
use crate::ids::Pid;
use crate::termination::{Count, Held, RefusedSource, Traffic};
use crate::time::{Boot, TickRate};
use crate::tolerances::EXIT_TAKES;

use super::clients::{Clients, Connect};
use super::connection::{
    Close, Closing, Connection, End, Fact, Pair, Refused, Use, count, distance, earlier, first, has_heard, has_queue,
};
use super::listeners::Listeners;
use super::peers::{Known, Lost};

/// The time that counts for a termination, and other facts of that time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window<'a> {
    /// Both included: from the pod's deletion request, otherwise the stop signal, otherwise the exit; until clients' errors no longer count.
    pub since: Boot,
    pub until: Boot,
    /// Clients that were refused after this were still trying to connect when counting stopped.
    pub refusing_from: Boot,
    /// Exit of the main process, or the end of the observation.
    pub end: Boot,
    /// The probes were active for the whole time.
    pub observed: bool,
    /// Refused clients of other machines and of Services are recorded, too.
    pub sees_all: bool,
    pub clients: &'a Clients,
    pub kubelet_known: bool,
}

#[derive(Debug, Default)]
pub(super) struct Sockets {
    listeners: Listeners,
    connections: HashMap<Pair, Connection>,
    /// Accepted connections without other facts, merged: a server that reloads and continues accepts any
    /// number of them.
    accepted: Vec<Boot>,
    accepted_over: Count,
    /// The same for the kubelet's connections.
    kubelet_accepted: Count,
    /// The addresses and ports of accepted connections.
    served: Vec<SocketAddr>,
    /// There were more.
    served_over: bool,
    /// The peers of the merged connections.
    known: Known,
    /// What processes closed.
    held: Vec<(Pid, Holder)>,
    /// The last close of a socket by a process that is not among these.
    held_over: Option<Boot>,
    /// First and last close of a connection on a socket of another cgroup.
    foreign: Option<(Boot, Boot)>,
    /// Connections over the cap that had other facts.
    over_cap: u64,
    /// The last time that one was dropped.
    over_cap_at: Option<Boot>,
    /// The last time a client was refused.
    refused: Option<Boot>,
    /// Events before that time were dropped.
    forgotten: Option<Boot>,
    room: bounds::Room,
}

/// A process that closed sockets.
#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    at_exit: Held,
    /// The last close, also by close(2).
    last: Boot,
}

impl Sockets {
    /// False: over the cap.
    pub fn add(&mut self, now: Boot, (at, tcp): (Boot, &Tcp), rate: TickRate, clients: &mut Clients, cap: usize) -> bool {
        self.hold(at, tcp);
        if tcp.foreign {
            let (first, last) = self.foreign.unwrap_or((at, at));
            self.foreign = Some((first.min(at), last.max(at)));
            return true;
        }
        if tcp.closes_listener() {
            let is_kept = self.listeners.add(at, tcp);
            self.room.may_be_more |= is_kept;
            if !is_kept {
                self.drop_one(at);
            }
            return is_kept;
        }
        let set = match (tcp.op, tcp.has_socket) {
            _ if has_heard(tcp) => Fact::Heard,
            (
                TcpOp::State {
                    old: TcpState::SynRecv | TcpState::NewSynRecv,
                    new: TcpState::Established,
                },
                _,
            ) => Fact::Accepted,
            (
                TcpOp::State {
                    old: TcpState::Established,
                    new: TcpState::FinWait1,
                },
                _,
            ) => match Close::of(tcp, rate) {
                _ if tcp.by_exit => Fact::Ended(Use::of(tcp, rate)),
                Close::Ended(used) => Fact::Ended(used),
                Close::Decided => Fact::Closed,
                Close::Open(closing) => Fact::Closing(closing),
            },
            (
                TcpOp::State {
                    old: TcpState::CloseWait,
                    new: TcpState::LastAck,
                },
                true,
            ) if tcp.by_exit => Use::half_closed(tcp, rate).map_or(Fact::Closed, Fact::Ended),
            // With an error the client gave up; and it had closed first, perhaps its own half only.
            (
                TcpOp::State {
                    old: old @ (TcpState::Established | TcpState::CloseWait),
                    new: TcpState::Close,
                },
                true,
            ) if tcp.unheld && tcp.sk_err == 0 => match old {
                TcpState::CloseWait => Use::half_closed(tcp, rate).map_or(Fact::Closed, Fact::Ended),
                _ => Fact::Queued,
            },
            (
                TcpOp::State {
                    old: TcpState::Established | TcpState::CloseWait,
                    ..
                },
                true,
            ) => Fact::Closed,
            // A second SYN is refused for its own sake. Records before had neither the client nor its flags.
            (
                TcpOp::ResetSent {
                    state: Some(TcpState::Listen),
                    ..
                },
                true,
            ) if !tcp.not_syn && tcp.remote.port() != 0 => return true,
            (TcpOp::ResetSent { state, .. }, true) => Fact::of_reset(tcp, state, rate),
            (TcpOp::ResetSent { .. }, false) if tcp.not_syn => Fact::Late,
            (TcpOp::ResetSent { .. }, false) => Fact::RefusedByServer,
            // With a socket of the subject's own cgroup, the subject is the client.
            (TcpOp::ResetReceived | TcpOp::Error { errno: ECONNREFUSED }, false) => Fact::RefusedByClient,
            (
                TcpOp::State {
                    old: TcpState::SynSent,
                    new: TcpState::Close,
                },
                false,
            ) if tcp.sk_err == ECONNREFUSED => Fact::RefusedByClient,
            (
                TcpOp::State {
                    old: TcpState::SynSent,
                    new: TcpState::Close,
                },
                true,
            ) if tcp.sk_err == ECONNREFUSED => Fact::RefusedItself,
            _ => return true,
        };
        let mut pair = Pair {
            remote: tcp.remote,
            local: tcp.local,
        };
        if matches!(set, Fact::RefusedItself) {
            pair = pair.mirrored();
            if !pair.is_of_one_host() {
                return true;
            }
        }
        if self.connections.len() >= self.room.of(cap) && !self.connections.contains_key(&pair) && !self.find_room(cap) {
            self.drop_one(at);
            return false;
        }
        let connection = self.connections.entry(pair).or_default();
        connection.last = connection.last.max(at);
        connection.by_kubelet |= clients.is_kubelets(&pair, at);
        let sent = last_written(tcp);
        connection.served = later(connection.served, sent);
        self.room.sent(sent);
        // Unread bytes of a client that had closed first are answered by an RST, too: they can be its goodbye.
        if let TcpOp::State {
            new: TcpState::FinWait1 | TcpState::LastAck,
            ..
        }
        | TcpOp::State {
            old: TcpState::CloseWait,
            new: TcpState::Close,
        } = tcp.op
        {
            first(&mut connection.fin, at);
        }
        let is_refusal = matches!(set, Fact::RefusedByServer | Fact::RefusedByClient);
        if is_refusal && !connection.by_kubelet && self.listeners.could_take(pair.local) {
            self.refused = self.refused.max(Some(at));
            connection.last_refused = connection.last_refused.max(Some(at));
        }
        if tcp.op == FIN {
            connection.fin_sent = connection.fin_sent.max(Some(at));
        }
        match set {
            Fact::Heard => connection.fin_arrived = connection.fin_arrived.max(Some(at)),
            Fact::Accepted => {
                first(&mut connection.accepted, at);
                clients.serves(now, tcp.local.ip());
                if !self.served.contains(&tcp.local) {
                    if self.served.len() < SERVED {
                        self.served.push(tcp.local);
                        self.room.may_be_more = true;
                    } else {
                        self.served_over = true;
                    }
                }
            }
            Fact::RefusedByServer => Refused::add(&mut connection.refused_by_server, at, tcp.sequence),
            Fact::RefusedByClient => {
                first(&mut connection.refused_by_client, at);
                connection.client_refusals.add(at);
            }
            Fact::RefusedItself => connection.own_refusals.add(at),
            Fact::Reset => first(&mut connection.reset, at),
            Fact::ResetAcknowledged => first(&mut connection.reset_acknowledged, at),
            Fact::Queued => first(&mut connection.queued, at),
            Fact::Late => first(&mut connection.late, at),
            Fact::ByListener => first(&mut connection.by_listener, at),
            Fact::Closed => first(&mut connection.closed, at),
            Fact::Ended(used) | Fact::Aborted { used, .. } => {
                if let Fact::Aborted { unsent, .. } = set {
                    connection.unsent |= unsent;
                }
                if connection.ended.is_none_or(|(known, _)| known > at) {
                    connection.ended = Some((at, used));
                }
            }
            Fact::Closing(closing) => {
                first(&mut connection.closed, at);
                if connection.closing.is_none_or(|(known, _)| known > at) {
                    connection.closing = Some((at, closing));
                }
            }
        }
        true
    }

    fn hold(&mut self, at: Boot, tcp: &Tcp) {
        let TcpOp::State { old, new } = tcp.op else { return };
        // What the other side does is handled in the context of any process.
        let is_closed = matches!(new, TcpState::FinWait1 | TcpState::LastAck | TcpState::Close) && tcp.sk_err == 0;
        let is_listener = match old {
            TcpState::Listen => true,
            TcpState::Established | TcpState::CloseWait if is_closed && !tcp.unheld => false,
            _ => return,
        };
        let known = self.held.iter().position(|(tgid, _)| *tgid == tcp.tgid);
        let place = known.unwrap_or(self.held.len());
        if place >= HOLDERS {
            self.held_over = Some(at).max(self.held_over);
            return;
        }
        if known.is_none() {
            self.held.push((tcp.tgid, Holder::default()));
        }
        let holder = &mut self.held[place].1;
        holder.last = holder.last.max(at);
        let by_exit = match is_listener {
            true => &mut holder.at_exit.listener,
            false => &mut holder.at_exit.connection,
        };
        *by_exit = Some(at).filter(|_| tcp.by_exit).max(*by_exit);
    }

    /// What the exit of the process closed after that time.
    pub fn held(&self, by: Pid, from: Boot) -> Held {
        let Held {
            listener, connection, ..
        } = self.holder(by).map(|holder| holder.at_exit).unwrap_or_default();
        Held {
            listener: listener.filter(|at| *at >= from),
            connection: connection.filter(|at| *at >= from),
            other: None,
        }
    }

    /// The process closed a listener or a connection after that time, by its exit or itself.
    pub fn has_closed(&self, by: Pid, from: Boot) -> bool {
        self.holder(by).is_some_and(|holder| holder.last >= from)
    }

    fn holder(&self, by: Pid) -> Option<&Holder> {
        self.held.iter().find(|(tgid, _)| *tgid == by).map(|(_, holder)| holder)
    }

    /// Of each process that exited after that time it is known what its exit closed, as far as that was recorded.
    pub fn knows_holders(&self, from: Boot) -> bool {
        self.held_over.is_none_or(|over| over < from) && self.forgotten.is_none_or(|before| before < from)
    }

    fn drop_one(&mut self, at: Boot) {
        self.over_cap += 1;
        self.over_cap_at = self.over_cap_at.max(Some(at));
    }

    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// The last time a client was refused.
    pub fn last_refused(&self) -> Option<Boot> {
        self.refused
    }

    /// No event on a connection since then.
    pub fn is_idle_since(&self, at: Boot) -> bool {
        let merged = [self.accepted_over.last, self.kubelet_accepted.last];
        let of_each = self.connections.values().map(|connection| connection.last);
        of_each
            .chain(self.accepted.iter().copied())
            .chain(merged)
            .all(|last| last < at)
    }

    /// Clients were refused before that time, the kubelet apart.
    pub fn has_refused_before(&self, before: Boot) -> bool {
        self.connections.iter().any(|(pair, of)| {
            let by_server = of.refused_by_server.map(|refused| refused.first);
            let first = earlier(by_server, of.refused_by_client).filter(|_| !of.by_kubelet && of.is_refused_to_others());
            first.is_some_and(|at| at < before) && self.listeners.had_port(pair.local.port())
        })
    }

    /// The program itself closed a listener in this time.
    pub fn has_closed_listener(&self, from: Boot, to: Boot) -> bool {
        let closed = self.listeners.closed(|at| from <= at && at <= to);
        closed.iter().any(|listener| !listener.by_exit)
    }

    /// The traffic of a termination.
    pub fn within(&self, window: &Window<'_>) -> Traffic {
        let within = |at: Option<Boot>| at.filter(|&at| window.since <= at && at <= window.until);
        let foreign = self
            .foreign
            .is_some_and(|(first, last)| first <= window.until && window.since <= last);
        let mut traffic = nothing(window, window.observed && !foreign);
        traffic.kubelet.known = window.kubelet_known;
        traffic.listeners = self.listeners.closed(|at| within(Some(at)).is_some());
        traffic.unseen_clients = !window.sees_all && self.listeners.has_closed_to_others(window.until);
        for &at in &self.accepted {
            count(&mut traffic.accepted, within(Some(at)));
        }
        window.add(&mut traffic.accepted, self.accepted_over);
        window.add(&mut traffic.kubelet.accepted, self.kubelet_accepted);
        let known = self.known(window);
        let served = self.served(window.end);
        let mut lost = Lost::default();
        let mut last_refused = None;
        for (pair, connection) in &self.connections {
            let by_kubelet = connection.by_kubelet || window.clients.is_kubelets(pair, window.since);
            // A connect from another node or namespace, which the kernel cannot relate to the closed port.
            traffic.kubelet.known |= by_kubelet;
            let to = if by_kubelet {
                &mut traffic.kubelet.accepted
            } else {
                &mut traffic.accepted
            };
            count(to, within(connection.accepted));
            let refused = connection
                .refused_by_server
                .and_then(|refused| refused.of_others(connection.own_refusals.count))
                .filter(|refused| within(Some(refused.first)).is_some() && self.listeners.could_take(pair.local));
            let refused = refused.into_iter().flat_map(|refused| {
                let again = std::iter::repeat_n(refused.last, refused.times as usize - 1);
                let all = std::iter::once(refused.first).chain(again);
                all.map(|at| (End::Refused(RefusedSource::ServerReset), at))
            });
            let end = self.end(pair, connection, window.observed, within).or_else(|| {
                let (at, closing) = connection.closing.filter(|&(at, _)| within(Some(at)).is_some())?;
                let is_open = (closing.is_under_way || at.plus(EXIT_TAKES) > window.end)
                    && self.is_clients(pair, connection)
                    && !is_decided(&closing, served);
                let undecided = Use::Undecided {
                    unacknowledged: closing.unacknowledged,
                };
                is_open.then_some((End::Ended(undecided), at))
            });
            let unheard = connection.unheard().filter(|&at| within(Some(at)).is_some());
            let end = match (end, unheard) {
                (None | Some((End::Ended(Use::Idle | Use::Undecided { .. }), _)), Some(at))
                    if self.is_clients(pair, connection) =>
                {
                    Some((End::Unheard, at))
                }
                (end, _) => end,
            };
            let end = end.filter(|&(_, at)| !self.is_to_itself(pair, at));
            if connection.is_refused_to_others() {
                last_refused = last_refused.max(connection.last_refused);
            }
            for (end, at) in refused.chain(end) {
                match (end, by_kubelet) {
                    (End::Refused(_), true) => count(&mut traffic.kubelet.refused, Some(at)),
                    (End::Reset { .. } | End::Ended(Use::Unanswered), true) => count(&mut traffic.kubelet.broken, Some(at)),
                    (end, false) => {
                        let had_connected = known.has(pair.remote.ip());
                        lost.add(pair, &end, had_connected);
                        end.count(&mut traffic, pair.local.port(), at, had_connected);
                    }
                    (End::Unheard | End::Ended(Use::Idle | Use::Undecided { .. }), true) => {}
                }
            }
        }
        // Failed connects of all clients of the node: none concerns a subject that served on no address.
        let failed = (!self.served.is_empty()).then(|| window.clients.failed(window.since));
        for (pair, connect) in failed.into_iter().flatten() {
            if let Some(end) = self.connect_failed(pair, connect, within(Some(connect.at)), &mut traffic) {
                let had_connected = known.has(pair.remote.ip());
                lost.add(pair, &end, had_connected);
                end.count(&mut traffic, pair.local.port(), connect.at, had_connected);
            }
        }
        let forgot = |served: &SocketAddr| window.clients.forgot_one_of(served.ip(), window.since, window.until);
        traffic.observed &= !self.served.iter().any(forgot)
            && self.forgotten.is_none_or(|before| before < window.since)
            && !traffic.unseen_clients;
        // A connection of the kubelet's may count as a client's. A listener of all addresses has none: its connections do.
        let listeners = traffic.listeners.iter().map(|listener| listener.local);
        let connections = self.connections.keys().map(|pair| pair.local);
        let servers = self.served.iter().copied().chain(listeners).chain(connections);
        let servers = servers.map(|server| server.ip());
        traffic.kubelet.known &= !window.clients.forgot_kubelets(servers, window.since, window.until);
        traffic.peers = lost.peers(&known, traffic.observed);
        let clients = traffic.refused_clients();
        let last_refused = match clients.count < traffic.refused.count {
            true => (clients.count > 0).then_some(clients.last),
            false => last_refused,
        };
        traffic.refusing_on = last_refused.is_some_and(|last| last > window.refusing_from);
        traffic
    }

    /// The clients that had connected before, the kubelet apart.
    fn known(&self, window: &Window<'_>) -> Known {
        let mut known = self.known.clone();
        for (pair, connection) in &self.connections {
            let is_kubelets = connection.by_kubelet || window.clients.is_kubelets(pair, window.since);
            if connection.was_established() && self.is_clients(pair, connection) && !is_kubelets {
                known.add(pair.remote.ip());
            }
        }
        known
    }

    /// Not a connection that the subject itself had opened.
    fn is_clients(&self, pair: &Pair, connection: &Connection) -> bool {
        // The accepted connection itself may have been merged with others. An outgoing one has a port of its own.
        let is_accepted = connection.accepted.is_some() || self.served.contains(&pair.local);
        is_accepted || self.listeners.had_port(pair.local.port())
    }

    /// Something of the subject's own is at the other end: known by the record of its own socket, for a sidecar's address is the same.
    fn is_to_itself(&self, pair: &Pair, at: Boot) -> bool {
        let other = self.connections.get(&pair.mirrored()).filter(|_| pair.is_of_one_host());
        other.is_some_and(|other| other.has_event_near(at))
    }

    /// Jiffies of the last data sent to a client, by connections that have closed. After `end` another process accepts.
    fn served(&self, end: Boot) -> Option<u32> {
        let connections = self.connections.iter();
        let clients = connections.filter(|(pair, of)| self.is_clients(pair, of) && of.accepted.is_none_or(|at| at <= end));
        clients.map(|(_, of)| of.served).fold(None, later)
    }

    /// The result of a connection within the time that counts.
    fn end(
        &self,
        pair: &Pair,
        connection: &Connection,
        observed: bool,
        within: impl Fn(Option<Boot>) -> Option<Boot>,
    ) -> Option<(End, Boot)> {
        let existed = connection.accepted.is_some() || connection.is_end_of_one();
        if !self.is_clients(pair, connection) && connection.is_end_of_one() {
            return None;
        }
        let queued = within(connection.queued);
        let mut reset = earlier(within(connection.reset), queued);
        let unproven = earlier(within(connection.late), within(connection.reset_acknowledged));
        let is_unanswered = connection.ended.is_some_and(|(_, used)| used == Use::Unanswered);
        // Without all of the records, the close before may be lost.
        let is_first = connection.reset_after_fin().is_none() && (observed || connection.closed.is_some());
        if is_first || is_unanswered {
            reset = earlier(reset, unproven);
        }
        if let Some(at) = reset {
            return Some((
                End::Reset {
                    queued: queued.is_some(),
                },
                at,
            ));
        }
        if let Some((at, used)) = connection.ended.filter(|&(at, _)| within(Some(at)).is_some()) {
            // A client that had closed first may not have wanted the rest. Without all of the records, that close may be lost.
            if connection.unsent && observed && connection.fin.is_none() {
                return Some((End::Reset { queued: false }, at));
            }
            let used = match used {
                // The first bytes of its client, too late.
                Use::Idle if unproven.is_some() => Use::Undecided { unacknowledged: false },
                used => used,
            };
            return Some((End::Ended(used), at));
        }
        if let Some(at) = earlier(unproven, within(connection.reset_by_listener())) {
            return Some((End::Ended(Use::Undecided { unacknowledged: false }), at));
        }
        // The kernel knows a closed port by number and network namespace: the client there may have meant another machine's port.
        let (to, from) = (pair.local.ip(), pair.remote.ip());
        let is_here = (to.is_loopback() || to == from || self.serves_at(to)) && self.listeners.could_take(pair.local);
        let is_known = existed || connection.refused_by_server.is_some();
        let is_others = connection.client_refusals.count > connection.own_refusals.count;
        let by_client = within(connection.refused_by_client).filter(|_| is_here && !is_known && is_others)?;
        Some((End::Refused(RefusedSource::ClientError), by_client))
    }

    /// A failed connect from this node: to this subject, if the subject was reached at that address.
    fn connect_failed(&self, pair: &Pair, connect: &Connect, at: Option<Boot>, traffic: &mut Traffic) -> Option<End> {
        let to = pair.local.ip();
        let is_port = self.listeners.took(pair.local) || self.served.contains(&pair.local);
        // The server's side already recorded it.
        let is_recorded = self
            .connections
            .get(pair)
            .is_some_and(|connection| !connection.is_only_closed());
        if at.is_none() || is_recorded || to.is_loopback() {
            return None;
        }
        if !is_port || !self.serves_at(to) {
            // Of too many addresses and ports, this one may not have been kept.
            traffic.observed &= !self.served_over;
            return None;
        }
        match (connect.by, connect.reset) {
            (Client::Kubelet, _) => count(&mut traffic.kubelet.refused, at),
            (Client::Other, true) if self.listeners.may_refuse(pair.local, connect.at) => {
                return Some(End::Refused(RefusedSource::ClientError));
            }
            (Client::Other, true) => {}
            (Client::Other, false) if connect.errno != ETIMEDOUT => count(&mut traffic.rejected, at),
            (Client::Other, false) => {}
        }
        None
    }

    fn serves_at(&self, address: IpAddr) -> bool {
        self.served.iter().any(|served| served.ip() == address)
    }

    /// Connections that were not kept.
    pub fn over_cap(&self) -> u64 {
        self.over_cap
    }
}

/// The server went on sending after the close.
fn is_decided(closing: &Closing, served: Option<u32>) -> bool {
    let after = closing.jiffies.zip(served).map(|(closed, served)| distance(served, closed));
    !closing.is_under_way && after.is_some_and(|after| after > 0)
}

/// When the server last sent what it had just written, in jiffies. What waits in a queue the kernel sends by itself, also after the close and
/// after the exit.
fn last_written(tcp: &Tcp) -> Option<u32> {
    let TcpOp::State {
        old: TcpState::Established | TcpState::CloseWait,
        ..
    } = tcp.op
    else {
        return None;
    };
    let counts = tcp.counts.filter(|counts| counts.bytes_sent > 0 && !has_queue(tcp))?;
    Some(counts.last_sent)
}

/// The later time, in jiffies.
fn later(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if distance(a, b) > 0 { a } else { b }),
        (a, b) => a.or(b),
    }
}

impl Window<'_> {
    /// Merged connections may be outside the time that counts: they count, but never at a time outside.
    fn add(&self, to: &mut Count, more: Count) {
        if more.count == 0 || more.last < self.since || more.first > self.until {
            return;
        }
        let (first, last) = (more.first.max(self.since), more.last.min(self.until));
        if to.count == 0 {
            (to.first, to.last) = (first, last);
        }
        to.count += more.count;
        to.first = to.first.min(first);
        to.last = to.last.max(last);
    }
}

/// No event.
fn nothing(window: &Window<'_>, observed: bool) -> Traffic {
    Traffic {
        observed,
        since: window.since,
        ..Traffic::default()
    }
}

const FIN: TcpOp = TcpOp::State {
    old: TcpState::Established,
    new: TcpState::FinWait1,
};
const ECONNREFUSED: u32 = 111;
const ETIMEDOUT: u32 = 110;
/// Processes of a server with a worker for each connection.
const HOLDERS: usize = 256;
/// Addresses with ports.
const SERVED: usize = 64;
