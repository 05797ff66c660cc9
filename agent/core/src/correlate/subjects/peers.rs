//! The clients of a subject, by address: who had connected, and whose connections were lost.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::attribute::table;
use crate::termination::{ClientPeer, ClientPeers, PeerPlace};

use super::connection::{End, Pair, Use};

/// Most addresses that are kept of merged connections. More mean that peers cannot be told apart; none is replaced.
const KNOWN: usize = 256;

/// Connections by peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    connections: HashMap<IpAddr, u64>,
    /// A peer was not kept.
    is_over: bool,
}

impl Known {
    /// A connection of a client.
    pub fn add(&mut self, peer: IpAddr) {
        *self.connections.entry(peer).or_default() += 1;
    }

    /// The same, within the bound on what is kept between events.
    pub fn keep(&mut self, peer: IpAddr) {
        if self.has(peer) || self.connections.len() < KNOWN {
            self.add(peer);
        } else {
            self.is_over = true;
        }
    }

    /// A connection that may have been a client's is not kept.
    pub fn lose(&mut self) {
        self.is_over = true;
    }

    pub fn has(&self, peer: IpAddr) -> bool {
        self.connections.contains_key(&peer)
    }

    pub fn clear(&mut self) {
        *self = Known::default();
    }

    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Bytes beyond its own size.
    pub fn bytes(&self) -> usize {
        Known::table(self.connections.capacity())
    }

    /// Bytes of a table with that capacity.
    pub const fn table(capacity: usize) -> usize {
        table::<IpAddr, u64>(capacity)
    }
}

/// The lost connections of one termination, by peer. As many as connections are kept.
#[derive(Debug, Default)]
pub(super) struct Lost(HashMap<IpAddr, ClientPeer>);

impl Lost {
    pub fn add(&mut self, pair: &Pair, end: &End, had_connected: bool) {
        let address = pair.remote.ip();
        let peer = self.0.entry(address).or_insert_with(|| ClientPeer {
            address,
            place: match pair.is_of_one_host() {
                true => PeerPlace::Itself,
                false => PeerPlace::Elsewhere,
            },
            had_connected,
            refused: 0,
            reset: 0,
            cut: 0,
        });
        match end {
            End::Refused(_) => peer.refused += 1,
            End::Reset { .. } => peer.reset += 1,
            End::Ended(Use::Unanswered) => peer.cut += 1,
            End::Unheard | End::Ended(Use::Idle | Use::Undecided { .. }) => {}
        }
    }

    /// `observed`: the sockets were observed for the whole time that counts.
    pub fn peers(self, known: &Known, observed: bool) -> ClientPeers {
        let mut top: Vec<ClientPeer> = self.0.into_values().filter(|peer| peer.lost() > 0).collect();
        let is_new = |peer: &&ClientPeer| peer.refused > 0 && !peer.had_connected;
        let new = top.iter().filter(is_new).count() as u64;
        top.sort_by_key(|peer| (!peer.had_connected, std::cmp::Reverse(peer.lost()), peer.address));
        let more = top.len().saturating_sub(ClientPeers::TOP) as u64;
        top.truncate(ClientPeers::TOP);
        ClientPeers {
            top,
            more,
            known: known.connections.len() as u64,
            known_once: known.connections.values().filter(|&&connections| connections == 1).count() as u64,
            connections: known.connections.values().sum(),
            new,
            is_complete: observed && !known.is_over,
        }
    }
}
