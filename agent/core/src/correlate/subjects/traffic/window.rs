//! What clients met in the time of a termination.

use std::net::{IpAddr, SocketAddr};

use super::Sockets;
use crate::correlate::subjects::clients::{Clients, Connect};
use crate::correlate::subjects::connection::{Connection, End, Pair, Use, count, earlier, later};
use crate::correlate::subjects::peers::{Known, Lost};
use crate::event::Client;
use crate::termination::{Count, RefusedSource, Traffic};
use crate::time::Boot;
use crate::tolerances::EXIT_TAKES;

/// The time that counts for a termination, and other facts of that time.
#[derive(Clone, Copy, Debug)]
pub(in crate::correlate::subjects) struct Window<'a> {
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

impl Sockets {
    /// The traffic of a termination.
    pub fn within(&self, window: &Window<'_>) -> Traffic {
        let within = |at: Option<Boot>| window.within(at);
        let foreign = self
            .foreign
            .is_some_and(|(first, last)| first <= window.until && window.since <= last);
        let mut traffic = nothing(window, window.observed && !foreign);
        traffic.kubelet.known = window.kubelet_known;
        traffic.listeners = self.listeners.closed(|at| within(Some(at)).is_some());
        traffic.unseen.clients = !window.sees_all && self.listeners.has_closed_to_others(window.until);
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
            let (refused, end) = self.ends(pair, connection, (window, served));
            if connection.is_refused_to_others() {
                last_refused = last_refused.max(connection.refused.last);
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
            && !traffic.unseen.clients;
        traffic.kubelet.known &= !self.forgot_kubelets(window, &traffic);
        traffic.peers = lost.peers(&known, traffic.observed);
        let clients = traffic.refused_clients();
        let last_refused = match clients.count < traffic.refused.all.count {
            true => (clients.count > 0).then_some(clients.last),
            false => last_refused,
        };
        traffic.refused.goes_on = last_refused.is_some_and(|last| last > window.refusing_from);
        traffic
    }

    /// How a connection was refused, each time, and how it ended.
    fn ends(
        &self,
        pair: &Pair,
        connection: &Connection,
        (window, served): (&Window<'_>, Option<u32>),
    ) -> (impl Iterator<Item = (End, Boot)> + use<>, Option<(End, Boot)>) {
        let within = |at: Option<Boot>| window.within(at);
        let refused = connection
            .refused
            .by_server
            .and_then(|refused| refused.of_others(connection.refused.own.count))
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
                && !closing.is_decided(served);
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
        (refused, end)
    }

    /// A connection of the kubelet's may count as a client's. A listener of all addresses has none: its connections do.
    fn forgot_kubelets(&self, window: &Window<'_>, traffic: &Traffic) -> bool {
        let listeners = traffic.listeners.iter().map(|listener| listener.local);
        let connections = self.connections.keys().map(|pair| pair.local);
        let servers = self.served.iter().copied().chain(listeners).chain(connections);
        let servers = servers.map(|server| server.ip());
        window.clients.forgot_kubelets(servers, window.since, window.until)
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
    pub(super) fn is_clients(&self, pair: &Pair, connection: &Connection) -> bool {
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
    pub(super) fn served(&self, end: Boot) -> Option<u32> {
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
            if connection.unsent && observed && connection.fin.first.is_none() {
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
        let is_known = existed || connection.refused.by_server.is_some();
        let is_others = connection.refused.of_clients.count > connection.refused.own.count;
        let by_client = within(connection.refused.by_client).filter(|_| is_here && !is_known && is_others)?;
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
}

impl Window<'_> {
    fn within(&self, at: Option<Boot>) -> Option<Boot> {
        at.filter(|&at| self.since <= at && at <= self.until)
    }

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
        since: Some(window.since),
        ..Traffic::default()
    }
}

const ETIMEDOUT: u32 = 110;
