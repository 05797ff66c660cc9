//! Connects to what is ending here, as the clients' own sockets showed them: the kubelet's, and those that failed.
//!
//! A client's socket is recorded while any cgroup is watched, and of the server that it meant only the address is known: which
//! subject that is, is found by both ends of the connection, when a termination's facts are put together.

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
    /// An RST answered it: somebody at that address, and no ICMP message.
    pub reset: bool,
    pub errno: u32,
}

impl Clients {
    /// False: an older one was given up for it.
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

    /// `since`: where a connect is long before that, the ports have been given to another one since.
    pub fn is_kubelets(&self, pair: &Pair, since: Boot) -> bool {
        let by_kubelet = |recent: &Recent| {
            let connect = recent.by_pair.get(pair);
            connect.is_some_and(|connect| connect.by == Client::Kubelet && connect.at.plus(PORTS_LAST) >= since)
        };
        by_kubelet(&self.connected) || by_kubelet(&self.failed)
    }

    /// Those that failed from `since` on.
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
    /// One for each, the oldest first.
    order: VecDeque<Pair>,
}

impl Recent {
    fn add(&mut self, pair: Pair, connect: Connect, cap: usize) -> bool {
        if let Some(known) = self.by_pair.get_mut(&pair) {
            // The same ports again are the same connect, but for a client that lives long.
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
