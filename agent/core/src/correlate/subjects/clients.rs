//! Connects to a terminating subject, as recorded on the clients' own sockets: the kubelet's, and failed ones.
//!
//! A client's socket is recorded while any cgroup is watched, and only the server's address is known. Both ends of the connection
//! identify the subject when a termination's facts are assembled.
//!
//! Failed connects are bounded together and shared fairly between clients: if there are too many, the client with the most loses
//! its oldest. A dropped connect is doubt about every subject that may have been its server, and about no other: see
//! [`Clients::forgot_one_of`].

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use crate::attribute::{slim, table};
use crate::event::{Client, SERVER_HASHES, Tcp, TcpOp, TcpState, server_hash};
use crate::ids::CgroupId;
use crate::ledger::Span;
use crate::time::Boot;
use crate::tolerances::PORTS_LAST;

use super::connection::Pair;

/// Most addresses of servers that are kept: a pod has one or two.
const SERVERS: usize = 1_024;
/// Dropped connects to other addresses are remembered by a hash of the address, and those that were lost in the kernel.
const BUCKETS: usize = SERVER_HASHES;
/// No answer: the client gave up.
const ETIMEDOUT: u32 = 110;

#[derive(Debug, Default)]
pub(super) struct Clients {
    kubelets: Recent,
    failed: Recent,
    /// Addresses at which watched subjects accepted connections.
    servers: HashMap<IpAddr, Server>,
    /// Dropped failed connects to addresses that were not a server's, by a hash of the address. Empty until the first.
    elsewhere: Vec<Option<Span>>,
    /// Connects lost in the kernel, in the same way.
    lost: Vec<Option<Span>>,
    /// Dropped connects of the kubelet.
    kubelets_forgotten: Option<Span>,
    /// When old ones were last dropped.
    pub swept: Boot,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Connect {
    pub at: Boot,
    pub by: Client,
    /// The answer was an RST from a host at that address, not an ICMP message.
    pub reset: bool,
    pub errno: u32,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    known_since: Boot,
    last: Boot,
    /// Dropped failed connects to the address since it is known.
    forgotten: Option<Span>,
}

impl Clients {
    /// A connect of the client `of`: a container or unit, or a cgroup outside both. False: an older connect was dropped for it.
    pub fn add(&mut self, at: Boot, tcp: &Tcp, by: Client, of: CgroupId, cap: usize) -> bool {
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
        let forgotten = match tcp.op {
            TcpOp::State {
                new: TcpState::Established,
                ..
            } => self.kubelets.add(pair, connect, of, cap),
            TcpOp::State { .. } | TcpOp::ResetReceived if counts(&pair, &connect) => self.failed.add(pair, connect, of, cap),
            TcpOp::State { .. } | TcpOp::ResetReceived | TcpOp::ResetSent { .. } | TcpOp::Error { .. } => None,
        };
        if let Some((pair, connect)) = forgotten {
            self.forget(&pair, &connect);
        }
        forgotten.is_none()
    }

    /// A watched subject accepted a connection at this address.
    pub fn serves(&mut self, now: Boot, address: IpAddr) {
        if let Some(server) = self.servers.get_mut(&address) {
            server.last = now;
            return;
        }
        if self.servers.len() >= SERVERS {
            let oldest = self.servers.iter().min_by_key(|(address, server)| (server.last, **address));
            let Some((oldest, server)) = oldest.map(|(address, server)| (*address, *server)) else {
                return;
            };
            self.servers.remove(&oldest);
            // Not a server's any more: the doubt stays with the address.
            if let Some(span) = server.forgotten {
                self.forget_elsewhere(oldest, span);
            }
        }
        let new = Server {
            known_since: now,
            last: now,
            forgotten: None,
        };
        self.servers.insert(address, new);
    }

    /// `since`: the ports of a connect long before that belong to another connection by now.
    pub fn is_kubelets(&self, pair: &Pair, since: Boot) -> bool {
        let by_kubelet = |recent: &Recent| {
            let connect = recent.by_pair.get(pair);
            connect.is_some_and(|connect| connect.by == Client::Kubelet && connect.at.plus(PORTS_LAST) >= since)
        };
        by_kubelet(&self.kubelets) || by_kubelet(&self.failed)
    }

    /// Failed connects from `since` on.
    pub fn failed(&self, since: Boot) -> impl Iterator<Item = (&Pair, &Connect)> {
        self.failed.by_pair.iter().filter(move |(_, connect)| connect.at >= since)
    }

    /// Records of connects to the servers of that hash were lost.
    pub fn lost(&mut self, hash: u32, span: Span) {
        around(&mut self.lost, hash as usize % BUCKETS, span);
    }

    /// Whether a failed connect to the address in that time may have been dropped or lost.
    pub fn forgot_one_of(&self, address: IpAddr, since: Boot, until: Boot) -> bool {
        let server = self.servers.get(&address);
        let here = server.and_then(|server| server.forgotten);
        // Connects that were dropped before the address was known as a server's.
        let known = server.map_or(until, |server| server.known_since.min(until));
        let before = self.elsewhere.get(bucket(address)).copied().flatten();
        let lost = self.lost.get(bucket(address)).copied().flatten();
        [here, lost].into_iter().flatten().any(|span| span.overlaps(since, until))
            || before.is_some_and(|span| span.overlaps(since, known))
    }

    /// Whether a connect of the kubelet to one of `servers` that may belong to a connection of that time was dropped, or lost in the
    /// kernel: it counts as a client's.
    pub fn forgot_kubelets(&self, servers: impl IntoIterator<Item = IpAddr>, since: Boot, until: Boot) -> bool {
        let is_of_then = |span: Option<Span>| span.is_some_and(|span| span.overlaps(since.minus(PORTS_LAST), until));
        let lost = |address| self.lost.get(bucket(address)).copied().flatten();
        is_of_then(self.kubelets_forgotten) || servers.into_iter().any(|address| is_of_then(lost(address)))
    }

    /// How many connects of each sort fit into that memory.
    pub fn most(bytes: usize) -> usize {
        let one = 3 * (size_of::<(Pair, Connect)>() + 1) + 2 * size_of::<Pair>() + size_of::<(CgroupId, VecDeque<Pair>)>();
        bytes / 2 / one
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        let servers = self.servers.len() * size_of::<(IpAddr, Server)>();
        let doubts = (self.elsewhere.capacity() + self.lost.capacity()) * size_of::<Option<Span>>();
        self.kubelets.bytes() + self.failed.bytes() + servers + doubts
    }

    /// Drops connects before that time. `concerns`: a subject may terminate for which they could count.
    pub fn expire(&mut self, before: Boot, concerns: bool) {
        let mut old = self.failed.expire(before);
        old.extend(self.kubelets.expire(before));
        if concerns {
            for (pair, connect) in &old {
                self.forget(pair, connect);
            }
            return;
        }
        self.servers.retain(|_, server| server.last >= before);
        slim(&mut self.servers);
        let is_old = |span: &Span| span.last < before;
        self.kubelets_forgotten = self.kubelets_forgotten.filter(|span| !is_old(span));
        for doubts in [&mut self.elsewhere, &mut self.lost] {
            if doubts.iter().flatten().all(is_old) {
                *doubts = Vec::new();
            }
        }
    }

    fn forget(&mut self, pair: &Pair, connect: &Connect) {
        if connect.by == Client::Kubelet {
            self.kubelets_forgotten = Some(Span::around(self.kubelets_forgotten, connect.at));
        }
        let address = pair.local.ip();
        match self.servers.get_mut(&address) {
            Some(server) => server.forgotten = Some(Span::around(server.forgotten, connect.at)),
            None => self.forget_elsewhere(address, Span::at(connect.at)),
        }
    }

    fn forget_elsewhere(&mut self, address: IpAddr, span: Span) {
        around(&mut self.elsewhere, bucket(address), span);
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.kubelets.by_pair.len() + self.failed.by_pair.len() + self.servers.len()
    }
}

/// Whether a failed connect can count for any subject. Nothing counts at a loopback address, which every network namespace has: see
/// [`super::traffic`]; nor a client without any answer. The kubelet's show which connections are its own.
fn counts(pair: &Pair, connect: &Connect) -> bool {
    let is_elsewhere = pair.local.ip().is_loopback() || !connect.reset && connect.errno == ETIMEDOUT;
    connect.by == Client::Kubelet || !is_elsewhere
}

fn bucket(address: IpAddr) -> usize {
    server_hash(address) as usize % BUCKETS
}

fn around(doubts: &mut Vec<Option<Span>>, bucket: usize, span: Span) {
    if doubts.is_empty() {
        *doubts = vec![None; BUCKETS];
    }
    let known = &mut doubts[bucket];
    *known = Some(known.map_or(span, |known| known.and(span)));
}

/// Connects by both ends, shared between clients.
#[derive(Debug, Default)]
struct Recent {
    by_pair: HashMap<Pair, Connect>,
    /// Each client's, the oldest first.
    by_client: HashMap<CgroupId, VecDeque<Pair>>,
    /// The numbers of them, the most last.
    most: BTreeSet<(usize, CgroupId)>,
}

impl Recent {
    /// Returns the connect that was dropped for this one.
    fn add(&mut self, pair: Pair, connect: Connect, of: CgroupId, cap: usize) -> Option<(Pair, Connect)> {
        if let Some(known) = self.by_pair.get_mut(&pair) {
            // The same ports again are the same connect, except for a long-lived client.
            *known = Connect {
                at: known.at.max(connect.at),
                by: if connect.by == Client::Kubelet { connect.by } else { known.by },
                reset: known.reset || connect.reset,
                errno: known.errno.max(connect.errno),
            };
            return None;
        }
        self.by_pair.insert(pair, connect);
        let own = self.by_client.entry(of).or_default();
        self.most.remove(&(own.len(), of));
        own.push_back(pair);
        self.most.insert((own.len(), of));
        if self.by_pair.len() <= cap {
            return None;
        }
        let &(_, most) = self.most.last()?;
        self.oldest_of(most)
    }

    /// Takes a client's oldest connect out.
    fn oldest_of(&mut self, of: CgroupId) -> Option<(Pair, Connect)> {
        let own = self.by_client.get_mut(&of)?;
        self.most.remove(&(own.len(), of));
        let pair = own.pop_front();
        if own.is_empty() {
            self.by_client.remove(&of);
        } else {
            self.most.insert((own.len(), of));
        }
        Some((pair?, self.by_pair.remove(&pair?)?))
    }

    /// Takes the connects before that time out.
    fn expire(&mut self, before: Boot) -> Vec<(Pair, Connect)> {
        let mut old = Vec::new();
        self.by_pair.retain(|pair, connect| {
            let keeps = connect.at >= before;
            if !keeps {
                old.push((*pair, *connect));
            }
            keeps
        });
        if old.is_empty() {
            return old;
        }
        let by_pair = &self.by_pair;
        self.by_client.retain(|_, own| {
            own.retain(|pair| by_pair.contains_key(pair));
            own.shrink_to_fit();
            !own.is_empty()
        });
        self.most = self.by_client.iter().map(|(of, own)| (own.len(), *of)).collect();
        slim(&mut self.by_pair);
        slim(&mut self.by_client);
        old
    }

    fn bytes(&self) -> usize {
        // A queue has at most twice the room that it needs, and room for four.
        let queues = (2 * self.by_pair.len() + 4 * self.by_client.len()) * size_of::<Pair>();
        let client = size_of::<(CgroupId, VecDeque<Pair>)>() + 2 * size_of::<(usize, CgroupId)>();
        table::<Pair, Connect>(self.by_pair.capacity()) + queues + self.by_client.len() * 2 * client
    }
}
