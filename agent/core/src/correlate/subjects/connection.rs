//! One connection of a subject, and how it was closed.

use std::net::SocketAddr;
use std::time::Duration;

use crate::event::TcpCounts;
use crate::termination::{Count, RefusedSource, Traffic};
use crate::time::Boot;

/// A SYN without an answer is sent again after a second (TCP_TIMEOUT_INIT), and later ones later.
const SENT_AGAIN: Duration = Duration::from_millis(900);
/// Both ends of a connection, as its server sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    pub remote: SocketAddr,
    pub local: SocketAddr,
}

/// The first time of each event of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connection {
    pub accepted: Option<Boot>,
    pub refused_by_server: Option<Refused>,
    pub refused_by_client: Option<Boot>,
    pub reset: Option<Boot>,
    pub queued: Option<Boot>,
    /// An RST without a socket, not for a SYN.
    pub late: Option<Boot>,
    pub cut: Option<(Boot, Use)>,
    /// Established before, and closed without a loss.
    pub closed: Option<Boot>,
    pub by_kubelet: bool,
    pub last: Boot,
}

/// SYNs from one port that met no listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub first: Boot,
    pub last: Boot,
    pub times: u32,
}

impl Refused {
    pub fn add(known: &mut Option<Refused>, at: Boot) {
        let Some(known) = known else {
            *known = Some(Refused {
                first: at,
                last: at,
                times: 1,
            });
            return;
        };
        let (first, last) = (known.first.min(at), known.last.max(at));
        if last.since(first) < SENT_AGAIN {
            let times = known.times + 1;
            *known = Refused { first, last, times };
        } else {
            known.first = first;
        }
    }
}

impl Connection {
    /// Time of the earliest event.
    pub fn since(&self) -> Boot {
        let refused = self.refused_by_server.map(|refused| refused.first);
        let cut = self.cut.map(|(at, _)| at);
        let times = [
            self.accepted,
            refused,
            self.refused_by_client,
            self.reset,
            self.queued,
            self.late,
            cut,
        ];
        times.into_iter().flatten().min().unwrap_or(self.last)
    }

    pub fn is_only_accepted(&self) -> bool {
        let is_refused = self.refused_by_server.is_some() || self.refused_by_client.is_some();
        !is_refused && !self.is_end_of_one()
    }

    /// Known by its close alone: a later connect from the same port is another.
    pub fn is_only_closed(&self) -> bool {
        self.closed.is_some() && self.accepted.is_none() && self.is_only_accepted()
    }

    /// The client had a connection, also one that began before the observation. An RST without a socket does not prove this:
    /// anyone can send a packet that is no SYN.
    pub fn was_established(&self) -> bool {
        let ended = self.reset.is_some() || self.queued.is_some() || self.cut.is_some();
        ended || self.accepted.is_some() || self.closed.is_some()
    }

    /// A connection that was established, and closed.
    pub fn is_end_of_one(&self) -> bool {
        self.reset.is_some() || self.queued.is_some() || self.late.is_some() || self.cut.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Idle,
    Unanswered,
    /// Nothing was sent, or unknown.
    Other,
}

pub(super) enum Fact {
    Accepted,
    RefusedByServer,
    RefusedByClient,
    Reset,
    Queued,
    Late,
    Cut(Use),
    Closed,
}

/// How a client's connection was closed.
pub(super) enum End {
    Refused(RefusedSource),
    Reset { queued: bool },
    Cut(Use),
    Idle,
}

impl End {
    /// `known`: the peer had connected before.
    pub fn count(self, traffic: &mut Traffic, port: u16, at: Boot, known: bool) {
        let to = match self {
            End::Refused(source) => {
                // The server's own record goes before a client's, in any order of arrival.
                if traffic.refused_source != RefusedSource::ServerReset {
                    traffic.refused_source = source;
                }
                count(traffic.refused_by_port.entry(port).or_default(), Some(at));
                if known {
                    count(traffic.refused_known_by_port.entry(port).or_default(), Some(at));
                    count(&mut traffic.refused_known, Some(at));
                }
                &mut traffic.refused
            }
            End::Reset { queued } => {
                traffic.reset_queued += u64::from(queued);
                &mut traffic.reset
            }
            End::Cut(used) => {
                traffic.cut_unanswered += u64::from(used == Use::Unanswered);
                &mut traffic.cut
            }
            End::Idle => &mut traffic.idle_closed,
        };
        count(to, Some(at));
    }
}

pub(super) fn in_use(counts: Option<TcpCounts>) -> Use {
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

/// Jiffies wrap: `a` is after `b` if the shorter distance from `b` is forward.
pub(super) fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

pub(super) fn first(slot: &mut Option<Boot>, at: Boot) {
    *slot = Some(slot.map_or(at, |known| known.min(at)));
}

pub(super) fn earlier(a: Option<Boot>, b: Option<Boot>) -> Option<Boot> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

pub(super) fn count(count: &mut Count, at: Option<Boot>) {
    let Some(at) = at else { return };
    if count.count == 0 {
        (count.first, count.last) = (at, at);
    }
    count.count += 1;
    count.first = count.first.min(at);
    count.last = count.last.max(at);
}
