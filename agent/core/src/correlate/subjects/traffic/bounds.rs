//! What is kept of a subject's events, how much memory that takes, and what goes first.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::attribute::table;
use crate::termination::Count;
use crate::time::Boot;

use super::{Known, Sockets};
use crate::correlate::subjects::connection::{Connection, Pair, count};

impl Sockets {
    /// Drops the events until `before`: what counts from an earlier time on is not known any more.
    pub fn forget(&mut self, before: Boot) {
        if self.since().is_some_and(|since| since <= before) {
            self.forgotten = Some(before);
        }
        if self.over_cap_at.is_some_and(|at| at <= before) {
            (self.over_cap, self.over_cap_at) = (0, None);
        }
        self.listeners.forget(before);
        self.expire(before);
        self.known.lose();
    }

    /// Makes room for a connection. False: there is none.
    pub(super) fn find_room(&mut self, cap: usize) -> bool {
        if self.room.is_full {
            return false;
        }
        self.make_room(cap);
        self.room.looked(self.connections.len(), cap)
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
        let lists = self.listeners.len() + self.connections.len() + self.accepted.len() + self.known.len() + self.holders.len();
        lists + usize::from(self.foreign.is_some())
    }

    /// Keeps only events after `before`, which belong to the subject's next life.
    pub fn expire(&mut self, before: Boot) {
        self.listeners.expire(before);
        self.connections.retain(|_, connection| connection.last > before);
        self.room.is_full = false;
        self.accepted.retain(|at| *at > before);
        self.accepted_over = Count::default();
        self.kubelet_accepted = Count::default();
        self.known.clear();
        self.holders.expire(before);
        self.foreign = self.foreign.filter(|&(_, last)| last > before);
        if let Some((first, _)) = &mut self.foreign {
            *first = (*first).max(before);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty()
            && self.connections.is_empty()
            && self.accepted.is_empty()
            && self.holders.is_empty()
            && self.foreign.is_none()
    }

    /// Keeps only the times of connections that were just accepted; of too many, only their number.
    fn make_room(&mut self, cap: usize) {
        #[cfg(test)]
        {
            self.room.looks += 1;
        }
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
            let is_open = connection.closing.is_some_and(|(_, closing)| !closing.is_decided(served));
            // Merged, the record of its FIN would be a connection of its own, which nobody acknowledged.
            let only = connection.is_only_accepted() && !is_open && !connection.is_fin_late();
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
        let lists = lists + self.holders.bytes() + self.listeners.bytes() + self.known.bytes();
        table::<Pair, Connection>(self.connections.capacity()) + lists
    }

    /// Bytes that [`Sockets::squeeze`] frees at last: the peers of merged connections may stay.
    pub fn freed(&self) -> usize {
        let capacity = self.connections.capacity();
        let accepted = self.accepted.capacity() * size_of::<Boot>();
        table::<Pair, Connection>(capacity) - Known::table(capacity) + accepted
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
        self.room.is_full = false;
        self.accepted = Vec::new();
        self.connections.shrink_to_fit();
        if self.bytes() <= before / 2 {
            return 0;
        }
        let dropped = self.connections.len() as u64;
        self.connections = HashMap::new();
        self.known.lose();
        self.over_cap += dropped;
        // Of any time.
        self.over_cap_at = Some(Boot(u64::MAX));
        dropped
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use crate::correlate::{Correlator, Limits};
    use crate::fixtures::script;
    use crate::ids::CgroupId;

    const CAP: usize = 64;

    /// The looks for room, and the connections that were not kept, of a container with these connections from a port of their own each.
    fn looks(what: impl Fn(usize) -> &'static str) -> (usize, u64) {
        let mut script = "
            +0 mkdir app
            proc main in=app pid=100 ns=1 start=+0 parent=shim comm=app
            +0.001 exec main
            +1 TERM runc -> main handler
            "
        .to_owned();
        for i in 0..1_000 {
            writeln!(script, "+1.{} tcp app {} 80 {}", 1_000 + i, what(i), 5_000 + i).expect("a string");
        }
        let mut core = Correlator::new(Limits {
            connections: CAP,
            ..Limits::default()
        });
        for (at, input) in script::parse(&script).inputs {
            core.handle(at, input);
        }
        let of = |own: &CgroupId| core.subjects.subjects[own].timeline.as_deref();
        let timeline = core.subjects.known().iter().find_map(of).expect("a timeline");
        (timeline.sockets.room.looks, timeline.sockets.over_cap())
    }

    #[test]
    fn clients_that_are_refused_cost_no_look_at_all_connections_each() {
        let (looks, over_cap) = looks(|_| "refused");
        assert!(looks < 5, "{looks} looks");
        assert_eq!(over_cap, 1_000 - CAP as u64);
    }

    /// Refused connections fill all places but one.
    #[test]
    fn a_look_for_room_finds_an_eighth_of_it() {
        let (looks, over_cap) = looks(|i| if i < CAP - 1 { "refused" } else { "accepted" });
        assert!(looks <= 1_000 / (CAP / 8) + 1, "{looks} looks");
        assert_eq!(over_cap, 0);
    }
}
