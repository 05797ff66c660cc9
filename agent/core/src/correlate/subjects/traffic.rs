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
mod holders;
mod room;
mod window;

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::event::{Tcp, TcpOp, TcpState};
use crate::termination::Count;
use crate::time::{Boot, TickRate};

use super::clients::Clients;
use super::connection::{Connection, Pair, earlier, first, has_queue, later};
use super::fact::Fact;
use super::listeners::Listeners;
use super::peers::Known;
use holders::Holders;
use room::Room;

pub(super) use window::Window;

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
    pub holders: Holders,
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
    room: Room,
}

impl Sockets {
    /// False: over the cap.
    pub fn add(&mut self, now: Boot, (at, tcp): (Boot, &Tcp), rate: TickRate, clients: &mut Clients, cap: usize) -> bool {
        self.holders.add(at, tcp, rate);
        if tcp.close.foreign {
            let (first, last) = self.foreign.unwrap_or((at, at));
            self.foreign = Some((first.min(at), last.max(at)));
            return true;
        }
        if tcp.closes_listener() {
            let is_kept = self.listeners.add(at, tcp);
            self.room.is_full &= !is_kept;
            if !is_kept {
                self.drop_one(at);
            }
            return is_kept;
        }
        let Some(set) = Fact::of(tcp, rate) else { return true };
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
            first(&mut connection.fin.first, at);
        }
        let is_refusal = matches!(set, Fact::RefusedByServer | Fact::RefusedByClient);
        if is_refusal && !connection.by_kubelet && self.listeners.could_take(pair.local) {
            self.refused = self.refused.max(Some(at));
            connection.refused.last = connection.refused.last.max(Some(at));
        }
        if tcp.op == FIN {
            connection.fin.sent = connection.fin.sent.max(Some(at));
        }
        let is_accepted = matches!(set, Fact::Accepted);
        set.note(connection, at, tcp.sequence);
        if is_accepted {
            clients.serves(now, tcp.local.ip());
            self.serves(tcp.local);
        }
        true
    }

    fn serves(&mut self, at: SocketAddr) {
        if self.served.contains(&at) {
            return;
        }
        if self.served.len() < SERVED {
            self.served.push(at);
            self.room.is_full = false;
        } else {
            self.served_over = true;
        }
    }

    /// Of each process that exited after that time it is known what its exit closed, as far as that was recorded.
    pub fn knows_holders(&self, from: Boot) -> bool {
        self.holders.knows(from) && self.forgotten.is_none_or(|before| before < from)
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
            let by_server = of.refused.by_server.map(|refused| refused.first);
            let first = earlier(by_server, of.refused.by_client).filter(|_| !of.by_kubelet && of.is_refused_to_others());
            first.is_some_and(|at| at < before) && self.listeners.had_port(pair.local.port())
        })
    }

    /// The program itself closed a listener in this time.
    pub fn has_closed_listener(&self, from: Boot, to: Boot) -> bool {
        let closed = self.listeners.closed(|at| from <= at && at <= to);
        closed.iter().any(|listener| !listener.by_exit)
    }

    /// Connections that were not kept.
    pub fn over_cap(&self) -> u64 {
        self.over_cap
    }
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

const FIN: TcpOp = TcpOp::State {
    old: TcpState::Established,
    new: TcpState::FinWait1,
};
/// Addresses with ports.
const SERVED: usize = 64;
