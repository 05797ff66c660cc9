//! Listeners that a subject closed, and the refused connections that they would have accepted.

use std::net::SocketAddr;

use super::lists::push_one;
use crate::event::Tcp;
use crate::termination::ListenerClosed;
use crate::time::Boot;
use crate::tolerances::UNHASHED;

const LISTENERS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Listeners {
    closed: Vec<Closed>,
    /// Ports of listeners that closed so long ago that they are forgotten: accepted connections may still be open.
    ports: Vec<Forgotten>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forgotten {
    port: u16,
    /// All clients of its listeners are of this machine.
    is_loopback: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Closed {
    listener: ListenerClosed,
    /// Recorded for the subject's own doing only: the refusals of its port go to an earlier subject that closed the port.
    by_own: bool,
}

impl Listeners {
    /// False: over the cap.
    pub fn add(&mut self, at: Boot, tcp: &Tcp) -> bool {
        let closed = Closed {
            listener: ListenerClosed {
                at,
                local: tcp.local,
                by_exit: tcp.close.by_exit,
            },
            by_own: tcp.close.by_own,
        };
        if self.closed.contains(&closed) {
            return true;
        }
        let has_room = self.closed.len() < LISTENERS;
        if has_room {
            push_one(&mut self.closed, closed);
        }
        has_room
    }

    /// The closes within the time that counts, in order.
    pub fn closed(&self, counts: impl Fn(Boot) -> bool) -> Vec<ListenerClosed> {
        let mut closed: Vec<_> = self.all().filter(|listener| counts(listener.at)).copied().collect();
        closed.sort_by_key(|listener| (listener.at, listener.local));
        closed
    }

    /// Whether clients of other machines could be refused by then, also where the listener closed long before. On a loopback address, all
    /// clients are of this machine.
    pub fn has_closed_to_others(&self, until: Boot) -> bool {
        let mut closed = self.all().filter(|listener| listener.at <= until);
        closed.any(|listener| !listener.local.ip().is_loopback()) || self.ports.iter().any(|forgotten| !forgotten.is_loopback)
    }

    fn all(&self) -> impl Iterator<Item = &ListenerClosed> {
        self.closed.iter().map(|closed| &closed.listener)
    }

    pub fn had_port(&self, port: u16) -> bool {
        self.ports.iter().any(|forgotten| forgotten.port == port) || self.all().any(|listener| listener.local.port() == port)
    }

    pub fn took(&self, to: SocketAddr) -> bool {
        self.all().any(|listener| takes(listener.local, to))
    }

    /// Whether another subject's listener, closed on that address at that time, gets the refusals of one of these listeners: the probes
    /// keep the last closed listener of a port.
    pub fn is_succeeded_by(&self, local: SocketAddr, at: Boot) -> bool {
        self.all().any(|listener| takes(listener.local, local) && listener.at <= at)
    }

    /// Whether one of these listeners gets the refusals of another subject's listener: the record of the earlier close arrived later.
    pub fn succeeds(&self, local: SocketAddr, at: Boot) -> bool {
        let mut takers = self
            .closed
            .iter()
            .filter(|closed| !closed.by_own)
            .map(|closed| &closed.listener);
        takers.any(|listener| takes(local, listener.local) && listener.at >= at)
    }

    /// Whether a SYN at that time may have met a closed port: not while a known listener was still open.
    pub fn may_refuse(&self, to: SocketAddr, at: Boot) -> bool {
        let mut closes = self.all().filter(|listener| takes(listener.local, to));
        !self.took(to) || closes.any(|listener| listener.at <= at.plus(UNHASHED))
    }

    /// A port without a known close accepts any address.
    pub fn could_take(&self, to: SocketAddr) -> bool {
        !self.all().any(|listener| listener.local.port() == to.port()) || self.took(to)
    }

    /// Keeps only the ports of listeners closed until `before`, as many as there is room for.
    pub fn forget(&mut self, before: Boot) {
        let old = self.closed.iter().filter(|closed| closed.listener.at <= before);
        for local in old.map(|closed| closed.listener.local) {
            let (port, is_loopback) = (local.port(), local.ip().is_loopback());
            match self.ports.iter_mut().find(|forgotten| forgotten.port == port) {
                Some(known) => known.is_loopback &= is_loopback,
                None => self.ports.push(Forgotten { port, is_loopback }),
            }
        }
        let over = self.ports.len().saturating_sub(LISTENERS);
        self.ports.drain(..over);
        self.expire(before);
    }

    /// Keeps only listeners closed after `before`.
    pub fn expire(&mut self, before: Boot) {
        self.closed.retain(|closed| closed.listener.at > before);
    }

    pub fn bytes(&self) -> usize {
        self.closed.capacity() * size_of::<Closed>() + self.ports.capacity() * size_of::<Forgotten>()
    }

    /// Time of the earliest close.
    pub fn since(&self) -> Option<Boot> {
        self.all().map(|listener| listener.at).min()
    }

    pub fn len(&self) -> usize {
        self.closed.len()
    }

    pub fn is_empty(&self) -> bool {
        self.closed.is_empty()
    }
}

/// A listener on `::` accepts IPv4 as well, unless IPV6_V6ONLY is set, which no record shows.
fn takes(listener: SocketAddr, to: SocketAddr) -> bool {
    let any = listener.ip().is_unspecified() && (listener.is_ipv6() || to.is_ipv4());
    listener.port() == to.port() && (any || listener.ip() == to.ip())
}
