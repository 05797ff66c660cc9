//! What happened on a subject's sockets while it was being stopped.
//!
//! Rules, one connection (remote address, local address) counting once:
//! - *refused*: an RST for a SYN that met no socket. Server and client sides report it, retransmissions repeat it: one.
//! - *reset*: an RST from an existing socket; or one without a socket for a connection that the end had closed before
//!   (data that came too late). A connection that was cut and then reset counts as reset.
//! - *cut*: ESTABLISHED → FIN_WAIT1 by the end of a process, or by close(2) where the client's last bytes had got no answer:
//!   the client sees the same FIN. Idle where the server had sent something and spoke last: keep-alive connections are that.
//! - Only clients' connections count as reset or cut: those seen accepted, or on the port of a listener that closed. What the
//!   subject itself had opened (to a database) ends with it too, and harms nobody who called it.
//! - A connection on a socket that was handed over (it belongs to another cgroup) is none of these: that the end closed it tells
//!   that there are such, of which nothing else is seen. The traffic is not observed then.
//! - CLOSE_WAIT → LAST_ACK is neither: the client had closed first.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::event::{Boot, Tcp, TcpCounts, TcpOp, TcpState};
use crate::termination::{Count, ListenerClosed, RefusedSource, Traffic};

#[derive(Debug, Default)]
pub(super) struct Sockets {
    listeners: Vec<ListenerClosed>,
    connections: HashMap<Pair, Connection>,
    /// Accepted ones of which nothing else is known, no longer told apart: a server that was told to reload and lives on
    /// accepts any number of them.
    accepted: Vec<Boot>,
    accepted_over: u64,
    /// First and last end of a connection on a socket that belongs to another cgroup.
    foreign: Option<(Boot, Boot)>,
    /// Connections over the cap of which something else was known.
    over_cap: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pair {
    remote: SocketAddr,
    local: SocketAddr,
}

/// When each thing happened to a connection, first time.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    accepted: Option<Boot>,
    refused_by_server: Option<Boot>,
    refused_by_client: Option<Boot>,
    reset: Option<Boot>,
    cut: Option<(Boot, Use)>,
    last: Boot,
}

impl Connection {
    fn is_only_accepted(&self) -> bool {
        let refused = self.refused_by_server.or(self.refused_by_client);
        refused.is_none() && !self.is_end_of_one()
    }

    /// A connection that stood, and ended.
    fn is_end_of_one(&self) -> bool {
        self.reset.is_some() || self.cut.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Idle,
    Unanswered,
    /// Nothing was said, or it is not known.
    Other,
}

impl Sockets {
    /// False: over the cap.
    pub fn add(&mut self, at: Boot, tcp: &Tcp, cap: usize) -> bool {
        if tcp.foreign {
            let (first, last) = self.foreign.unwrap_or((at, at));
            self.foreign = Some((first.min(at), last.max(at)));
            return true;
        }
        let set = match (tcp.op, tcp.has_socket) {
            (
                TcpOp::State {
                    old: TcpState::Listen,
                    new: TcpState::Close,
                },
                _,
            ) => return self.listener(at, tcp),
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
            ) => match in_use(tcp.counts) {
                Use::Unanswered => Fact::Cut(Use::Unanswered),
                other if tcp.by_exit => Fact::Cut(other),
                // It hung up in its own time, having answered.
                Use::Idle | Use::Other => return true,
            },
            (TcpOp::ResetSent { .. }, true) => Fact::Reset,
            (TcpOp::ResetSent { .. }, false) => Fact::RefusedByServer,
            // With a socket of its own cgroup these are the subject's doing as a client.
            (TcpOp::ResetReceived | TcpOp::Error { errno: ECONNREFUSED }, false) => Fact::RefusedByClient,
            (
                TcpOp::State {
                    old: TcpState::SynSent,
                    new: TcpState::Close,
                },
                false,
            ) if tcp.sk_err == ECONNREFUSED => Fact::RefusedByClient,
            _ => return true,
        };
        let pair = Pair {
            remote: tcp.remote,
            local: tcp.local,
        };
        if self.connections.len() >= cap && !self.connections.contains_key(&pair) {
            self.make_room(cap);
            if self.connections.len() >= cap {
                self.over_cap += 1;
                return false;
            }
        }
        let connection = self.connections.entry(pair).or_default();
        connection.last = connection.last.max(at);
        match set {
            Fact::Accepted => first(&mut connection.accepted, at),
            Fact::RefusedByServer => first(&mut connection.refused_by_server, at),
            Fact::RefusedByClient => first(&mut connection.refused_by_client, at),
            Fact::Reset => first(&mut connection.reset, at),
            Fact::Cut(used) => {
                if connection.cut.is_none_or(|(known, _)| known > at) {
                    connection.cut = Some((at, used));
                }
            }
        }
        true
    }

    /// What belongs to a death: from `begin` to `end`, both included. `observed` where the probes saw all of it.
    pub fn told(&self, begin: Boot, end: Boot, observed: bool) -> Traffic {
        let within = |at: Option<Boot>| at.filter(|&at| begin <= at && at <= end);
        let foreign = self.foreign.is_some_and(|(first, last)| first <= end && begin <= last);
        let mut traffic = nothing(observed && !foreign);
        traffic.listeners = self
            .listeners
            .iter()
            .filter(|l| within(Some(l.at)).is_some())
            .copied()
            .collect();
        traffic.listeners.sort_by_key(|l| (l.at, l.local));
        for &at in &self.accepted {
            count(&mut traffic.accepted, within(Some(at)));
        }
        traffic.accepted.count += self.accepted_over;
        for (pair, connection) in &self.connections {
            count(&mut traffic.accepted, within(connection.accepted));
            let cut = connection.cut.filter(|&(at, _)| within(Some(at)).is_some());
            let by_server = within(connection.refused_by_server);
            // A pair that was a connection cannot have been refused: its RST came for late data.
            let existed = connection.accepted.is_some() || connection.cut.is_some();
            let late = if existed { by_server } else { None };
            let is_clients = connection.accepted.is_some() || self.has_listened(pair.local.port());
            if !is_clients && connection.is_end_of_one() {
                continue;
            }
            if let Some(at) = earlier(within(connection.reset), late) {
                count(&mut traffic.reset, Some(at));
                continue;
            }
            match cut {
                Some((at, Use::Idle)) => count(&mut traffic.idle_closed, Some(at)),
                Some((at, used)) => {
                    count(&mut traffic.cut, Some(at));
                    traffic.cut_unanswered += u64::from(used == Use::Unanswered);
                }
                None if existed => {}
                None => {
                    let by_client = within(connection.refused_by_client);
                    count(&mut traffic.refused, earlier(by_server, by_client));
                    traffic.refused_source = match (by_server, by_client, traffic.refused_source) {
                        (Some(_), ..) | (_, _, RefusedSource::ServerReset) => RefusedSource::ServerReset,
                        (None, Some(_), _) => RefusedSource::ClientError,
                        (None, None, source) => source,
                    };
                }
            }
        }
        traffic
    }

    fn has_listened(&self, port: u16) -> bool {
        self.listeners.iter().any(|listener| listener.local.port() == port)
    }

    /// Keeps only what happened after `before`.
    pub fn expire(&mut self, before: Boot) {
        self.listeners.retain(|listener| listener.at > before);
        self.connections.retain(|_, connection| connection.last > before);
        self.accepted.retain(|at| *at > before);
        self.accepted_over = 0;
        self.foreign = self.foreign.filter(|&(_, last)| last > before);
        if let Some((first, _)) = &mut self.foreign {
            *first = (*first).max(before);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.connections.is_empty() && self.accepted.is_empty() && self.foreign.is_none()
    }

    /// Keeps of the connections that were only accepted no more than when; of too many of those, only how many.
    fn make_room(&mut self, cap: usize) {
        let accepted = &mut self.accepted;
        self.connections.retain(|_, connection| {
            let only = connection.is_only_accepted();
            accepted.extend(only.then_some(connection.accepted).flatten());
            !only
        });
        if self.accepted.len() > cap {
            self.accepted_over += self.accepted.len() as u64;
            self.accepted.clear();
        }
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.listeners.len() + self.connections.len() + self.accepted.len() + usize::from(self.foreign.is_some())
    }

    /// Connections that were not kept.
    pub fn over_cap(&self) -> u64 {
        self.over_cap
    }

    fn listener(&mut self, at: Boot, tcp: &Tcp) -> bool {
        let closed = ListenerClosed {
            at,
            local: tcp.local,
            by_exit: tcp.by_exit,
        };
        if self.listeners.contains(&closed) {
            return true;
        }
        if self.listeners.len() >= LISTENERS {
            self.over_cap += 1;
            return false;
        }
        self.listeners.push(closed);
        true
    }
}

/// Nothing happened.
pub(super) fn nothing(observed: bool) -> Traffic {
    Traffic {
        observed,
        ..Traffic::default()
    }
}

enum Fact {
    Accepted,
    RefusedByServer,
    RefusedByClient,
    Reset,
    Cut(Use),
}

const ECONNREFUSED: u32 = 111;
const LISTENERS: usize = 64;

fn in_use(counts: Option<TcpCounts>) -> Use {
    let Some(counts) = counts else { return Use::Other };
    let server_last = !is_after(counts.last_received, counts.last_sent);
    if counts.bytes_sent > 0 && server_last {
        Use::Idle
    } else if counts.bytes_received > 0 {
        Use::Unanswered
    } else {
        Use::Other
    }
}

/// Jiffies wrap: `a` is after `b` where the shorter way from `b` leads forward.
fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

fn first(slot: &mut Option<Boot>, at: Boot) {
    *slot = Some(slot.map_or(at, |known| known.min(at)));
}

fn earlier(a: Option<Boot>, b: Option<Boot>) -> Option<Boot> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn count(count: &mut Count, at: Option<Boot>) {
    let Some(at) = at else { return };
    if count.count == 0 {
        (count.first, count.last) = (at, at);
    }
    count.count += 1;
    count.first = count.first.min(at);
    count.last = count.last.max(at);
}
