//! Connects to a terminating subject, as recorded on the clients' own sockets: the kubelet's, and failed ones.
//!
//! A client's socket is recorded while any cgroup is watched, and only the server's address is known. Both ends of the connection
//! identify the subject when a termination's facts are assembled.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::event::{Client, Tcp, TcpOp, TcpState};
use crate::time::Boot;

use super::connection::Pair;

/// The kernel gives a client the same port for the same server again, but not before this.
const PORTS_LAST: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Clients {
    connected: Recent,
    failed: Recent,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Connect {
    pub at: Boot,
    pub by: Client,
    /// The answer was an RST from a host at that address, not an ICMP message.
    pub reset: bool,
    pub errno: u32,
}

impl Clients {
    /// False: an older connect was dropped for it.
    pub fn add(&mut self, at: Boot, tcp: &Tcp, by: Client, cap: usize) -> bool {
        let pair = Pair {
            remote: tcp.local,
            local: tcp.remote,
        };
        let connect = Connect {
            at,
            by,
            reset: tcp.op == TcpOp::ResetReceived,
            errno: tcp.sk_err,
        };
        match tcp.op {
            TcpOp::State {
                new: TcpState::Established,
                ..
            } => self.connected.add(pair, connect, cap),
            TcpOp::State { .. } | TcpOp::ResetReceived => self.failed.add(pair, connect, cap),
            TcpOp::ResetSent { .. } | TcpOp::Error { .. } => true,
        }
    }

    /// `since`: the ports of a connect long before that belong to another connection by now.
    pub fn is_kubelets(&self, pair: &Pair, since: Boot) -> bool {
        let by_kubelet = |recent: &Recent| {
            let connect = recent.by_pair.get(pair);
            connect.is_some_and(|connect| connect.by == Client::Kubelet && connect.at.plus(PORTS_LAST) >= since)
        };
        by_kubelet(&self.connected) || by_kubelet(&self.failed)
    }

    /// Failed connects from `since` on.
    pub fn failed(&self, since: Boot) -> impl Iterator<Item = (&Pair, &Connect)> {
        self.failed.by_pair.iter().filter(move |(_, connect)| connect.at >= since)
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.connected.order.len() + self.failed.order.len()
    }
}

/// The newest connects, by both ends.
#[derive(Debug, Default)]
struct Recent {
    by_pair: HashMap<Pair, Connect>,
    /// One entry per connect, the oldest first.
    order: VecDeque<Pair>,
}

impl Recent {
    fn add(&mut self, pair: Pair, connect: Connect, cap: usize) -> bool {
        if let Some(known) = self.by_pair.get_mut(&pair) {
            // The same ports again are the same connect, except for a long-lived client.
            *known = Connect {
                at: known.at.max(connect.at),
                by: if connect.by == Client::Kubelet { connect.by } else { known.by },
                reset: known.reset || connect.reset,
                errno: known.errno.max(connect.errno),
            };
            return true;
        }
        let room = self.order.len() < cap;
        if !room && let Some(oldest) = self.order.pop_front() {
            self.by_pair.remove(&oldest);
        }
        if cap > 0 {
            self.by_pair.insert(pair, connect);
            self.order.push_back(pair);
        }
        room
    }
}
