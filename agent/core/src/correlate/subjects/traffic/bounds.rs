//! What is kept of a subject's events, how much memory that takes, and what goes first.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::attribute::table;
use crate::termination::Count;
use crate::time::Boot;

use super::{Connection, Pair, Sockets, count, is_decided};

impl Sockets {
    /// Drops the events until `before`: what counts from an earlier time on is not known any more.
    pub fn forget(&mut self, before: Boot) {
        if self.since().is_some_and(|since| since <= before) {
            self.forgotten = Some(before);
        }
        self.expire(before);
        self.known.lose();
    }

    /// Time of the earliest event.
    pub fn since(&self) -> Option<Boot> {
        let connections = self.connections.values().map(|connection| connection.since());
        let merged = [self.accepted_over, self.kubelet_accepted].into_iter();
        let merged = merged.filter(|merged| merged.count > 0).map(|merged| merged.first);
        let others = self.accepted.iter().copied().chain(self.foreign.map(|(first, _)| first));
        connections.chain(merged).chain(others).chain(self.listeners.since()).min()
    }

    /// Number of events, in pieces of bounded size.
    pub fn len(&self) -> usize {
        let lists = self.listeners.len() + self.connections.len() + self.accepted.len() + self.known.len();
        lists + usize::from(self.foreign.is_some())
    }

    /// Keeps only events after `before`, which belong to the subject's next life.
    pub fn expire(&mut self, before: Boot) {
        self.listeners.expire(before);
        self.connections.retain(|_, connection| connection.last > before);
        self.accepted.retain(|at| *at > before);
        self.accepted_over = Count::default();
        self.kubelet_accepted = Count::default();
        self.known.clear();
        self.foreign = self.foreign.filter(|&(_, last)| last > before);
        if let Some((first, _)) = &mut self.foreign {
            *first = (*first).max(before);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.connections.is_empty() && self.accepted.is_empty() && self.foreign.is_none()
    }

    /// Keeps only the times of connections that were just accepted; of too many, only their number.
    pub(super) fn make_room(&mut self, cap: usize) {
        let served = self.served(Boot(u64::MAX));
        let Sockets {
            accepted,
            accepted_over,
            kubelet_accepted,
            connections,
            known,
            listeners,
            ..
        } = self;
        connections.retain(|pair, connection| {
            let is_open = connection.closing.is_some_and(|(_, closing)| !is_decided(&closing, served));
            let only = connection.is_only_accepted() && !is_open;
            let at = connection.accepted.filter(|_| only);
            if connection.by_kubelet {
                count(kubelet_accepted, at);
                return !only;
            }
            accepted.extend(at);
            match connection.accepted.is_some() || listeners.had_port(pair.local.port()) {
                _ if !only || !connection.was_established() => {}
                true => known.keep(pair.remote.ip()),
                // The listener may close later.
                false => known.lose(),
            }
            !only
        });
        if accepted.len() > cap {
            accepted.drain(..).for_each(|at| count(accepted_over, Some(at)));
        }
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.len()
    }

    /// Bytes beyond its own size.
    pub fn bytes(&self) -> usize {
        let lists = self.accepted.capacity() * size_of::<Boot>() + self.served.capacity() * size_of::<SocketAddr>();
        table::<Pair, Connection>(self.connections.capacity()) + lists + self.listeners.bytes() + self.known.bytes()
    }

    /// Whether [`Sockets::squeeze`] frees anything.
    pub fn is_squeezable(&self) -> bool {
        self.connections.capacity() > 0 || self.accepted.capacity() > 0
    }

    /// Frees memory: first only what makes no difference, and if that is too little, all connections, which then count as not kept.
    /// Returns their number.
    pub fn squeeze(&mut self) -> u64 {
        let before = self.bytes();
        self.make_room(0);
        self.accepted = Vec::new();
        self.connections.shrink_to_fit();
        if self.bytes() <= before / 2 {
            return 0;
        }
        let dropped = self.connections.len() as u64;
        self.connections = HashMap::new();
        self.known.lose();
        self.over_cap += dropped;
        dropped
    }
}
