//! One connection of a subject, and how it was closed.

use std::net::SocketAddr;

use crate::event::{Tcp, TcpCounts, TcpOp, TcpState};
use crate::termination::{Count, RefusedSource, Traffic};
use crate::time::{Boot, TickRate};
use crate::tolerances::{ANSWERS, PAUSE, SAME_MOMENT, SENT_AGAIN};

/// Both ends of a connection, as its server sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    pub remote: SocketAddr,
    pub local: SocketAddr,
}

impl Pair {
    /// As the client's own socket has it.
    pub fn mirrored(self) -> Pair {
        Pair {
            remote: self.local,
            local: self.remote,
        }
    }

    /// Both ends are at one address, or at loopback addresses.
    pub fn is_of_one_host(&self) -> bool {
        self.remote.ip().is_loopback() || self.remote.ip() == self.local.ip()
    }
}

/// The first time of each event of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connection {
    pub accepted: Option<Boot>,
    pub refused: Refusals,
    pub reset: Option<Boot>,
    /// An RST from a socket whose client had acknowledged all, also a FIN.
    pub reset_acknowledged: Option<Boot>,
    pub queued: Option<Boot>,
    /// An RST by the listener, for a packet that is no SYN.
    pub by_listener: Option<Boot>,
    /// An RST without a socket, not for a SYN.
    pub late: Option<Boot>,
    /// Closed from this side while established, with what was under way.
    pub ended: Option<(Boot, Use)>,
    /// With `ended`: an abort threw away bytes that were written and never sent.
    pub unsent: bool,
    pub fin: Fin,
    /// Established before, and closed without a loss.
    pub closed: Option<Boot>,
    /// With `closed`: by close(2), which was the program's decision or a part of its exit.
    pub closing: Option<(Boot, Closing)>,
    /// Jiffies of the last data of the server's.
    pub served: Option<u32>,
    pub by_kubelet: bool,
    pub last: Boot,
}

/// How connects with these ends were refused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refusals {
    pub by_server: Option<Refused>,
    pub by_client: Option<Boot>,
    /// Records of the latter.
    pub of_clients: Records,
    /// Connects of the subject to itself among the refused ones, by its own sockets.
    pub own: Records,
    pub last: Option<Boot>,
}

/// The end of what the server sends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fin {
    /// This side ended sending, or closed after the client had.
    pub first: Option<Boot>,
    /// The last FIN, and the last proof that its client got it: an acknowledgement, or an RST of the client's. Not the first ones: another
    /// client can have the port later.
    pub sent: Option<Boot>,
    pub arrived: Option<Boot>,
}

/// SYNs from one port that met no listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub first: Boot,
    pub last: Boot,
    pub times: u32,
    /// All of them, also those sent again.
    packets: u32,
    /// Of the last one.
    sequence: Option<u32>,
}

impl Refused {
    pub fn add(known: &mut Option<Refused>, at: Boot, sequence: Option<u32>) {
        let Some(known) = known else {
            *known = Some(Refused {
                first: at,
                last: at,
                times: 1,
                packets: 1,
                sequence,
            });
            return;
        };
        // The same record, from a journal and from the kernel.
        if at == known.first || at == known.last {
            return;
        }
        known.packets += 1;
        let (first, last) = (known.first.min(at), known.last.max(at));
        let is_new = match (known.sequence, sequence) {
            (Some(known), Some(sequence)) => known != sequence,
            // A client that is refused again and again reuses its ports.
            _ => last.since(first) < SENT_AGAIN,
        };
        known.sequence = sequence;
        if is_new {
            (known.first, known.last) = (first, last);
            known.times += 1;
        } else {
            known.first = first;
        }
    }

    /// Without the subject's own: these are answered at once, and never sent again.
    pub fn of_others(self, own: u32) -> Option<Refused> {
        let others = self.packets.saturating_sub(own);
        let times = self.times.min(others);
        (others > 0).then_some(Refused { times, ..self })
    }
}

/// Records of one kind. A record that comes twice in a row, from a journal and from the kernel, counts once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Records {
    pub count: u32,
    last: Option<Boot>,
}

impl Records {
    pub fn add(&mut self, at: Boot) {
        if self.last != Some(at) {
            self.count += 1;
            self.last = Some(at);
        }
    }
}

impl Connection {
    pub fn end(&mut self, at: Boot, used: Use) {
        if self.ended.is_none_or(|(known, _)| known > at) {
            self.ended = Some((at, used));
        }
    }

    /// Time of the earliest event.
    pub fn since(&self) -> Boot {
        let refused = self.refused.by_server.map(|refused| refused.first);
        let ended = self.ended.map(|(at, _)| at);
        let times = [
            self.accepted,
            refused,
            self.refused.by_client,
            self.reset,
            self.reset_acknowledged,
            self.queued,
            self.by_listener,
            self.late,
            ended,
        ];
        times.into_iter().flatten().min().unwrap_or(self.last)
    }

    /// Records of the subject's own socket at the other end are of the same moment: its port may belong to another client later.
    pub fn has_event_near(&self, at: Boot) -> bool {
        let ended = self.ended.map(|(at, _)| at);
        let times = [
            self.closed,
            ended,
            self.reset,
            self.reset_acknowledged,
            self.queued,
            Some(self.last),
        ];
        let is_near = |of: Boot| of.max(at).since(of.min(at)) <= SAME_MOMENT;
        self.was_established() && times.into_iter().flatten().any(is_near)
    }

    pub fn is_only_accepted(&self) -> bool {
        let is_refused = self.refused.by_server.is_some() || self.refused.by_client.is_some();
        !is_refused && !self.is_end_of_one()
    }

    /// Not only connects of the subject to itself were refused.
    pub fn is_refused_to_others(&self) -> bool {
        let by_server = self
            .refused
            .by_server
            .and_then(|refused| refused.of_others(self.refused.own.count));
        by_server.is_some() || self.refused.of_clients.count > self.refused.own.count
    }

    /// Known by its close alone: a later connect from the same port is another.
    pub fn is_only_closed(&self) -> bool {
        self.closed.is_some() && self.accepted.is_none() && self.is_only_accepted()
    }

    /// The client had a connection, also one that began before the observation. An RST without a socket does not prove this:
    /// anyone can send a packet that is no SYN.
    pub fn was_established(&self) -> bool {
        let reset = self.reset.is_some() || self.reset_acknowledged.is_some() || self.queued.is_some();
        reset || self.ended.is_some() || self.accepted.is_some() || self.closed.is_some()
    }

    /// A connection that was established, and closed.
    pub fn is_end_of_one(&self) -> bool {
        let reset = self.reset.is_some() || self.reset_acknowledged.is_some() || self.queued.is_some();
        reset || self.reset_by_listener().is_some() || self.late.is_some() || self.ended.is_some()
    }

    /// The last FIN, if nothing proves that its client got it.
    pub fn unheard(&self) -> Option<Boot> {
        self.fin.sent.filter(|sent| self.fin.arrived.is_none_or(|at| at < *sent))
    }

    /// The client acknowledged a FIN of which the record has not arrived yet.
    pub fn is_fin_late(&self) -> bool {
        let is_end_known = self.fin.sent.is_some() || self.closed.is_some() || self.ended.is_some();
        self.fin.arrived.is_some() && !is_end_known
    }

    /// An RST by the listener for a client whose connection is not known to have ended before.
    pub fn reset_by_listener(&self) -> Option<Boot> {
        let end = earlier(self.closed, self.ended.map(|(at, _)| at));
        self.by_listener.filter(|&at| end.is_none_or(|end| end > at))
    }

    /// An RST for bytes that the client may have sent when it knew of the close.
    pub fn reset_after_fin(&self) -> Option<Boot> {
        let at = earlier(self.late, self.reset_acknowledged)?;
        self.fin.first.is_some_and(|fin| fin <= at).then_some(at)
    }
}

/// What was under way on a connection when this side closed it, as far as the kernel's counts prove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Neither side had sent a byte: no request, no answer.
    Idle,
    /// The client's last bytes have no answer.
    Unanswered,
    /// An idle connection, a stream that waits and an answer under way look the same.
    Undecided {
        /// The client had not acknowledged all that the server had written.
        unacknowledged: bool,
    },
}

impl Use {
    pub fn of(tcp: &Tcp, rate: TickRate) -> Use {
        let undecided = Use::Undecided {
            unacknowledged: unacknowledged(tcp) > 0,
        };
        match tcp.counts {
            Some(counts) if is_unused(tcp) && is_young(tcp, &counts, rate) => undecided,
            Some(_) if is_unused(tcp) => Use::Idle,
            Some(counts) if wrote_nothing(tcp, &counts) => Use::Unanswered,
            Some(counts) if received(tcp, &counts) > 0 && ahead(&counts) > REACTS => Use::Unanswered,
            _ => undecided,
        }
    }

    /// The client had closed its side before: with all of the connection, as almost every client does, or with its own half only.
    /// Then the answer can still be under way.
    pub fn half_closed(tcp: &Tcp, rate: TickRate) -> Option<Use> {
        let is_answered = tcp.counts.is_some_and(|counts| ahead(&counts) <= 0);
        match Use::of(tcp, rate) {
            Use::Idle => None,
            _ if is_unused(tcp) => None,
            Use::Undecided { unacknowledged: false } if is_answered => None,
            Use::Undecided { unacknowledged } => Some(Use::Undecided { unacknowledged }),
            Use::Unanswered => Some(Use::Undecided { unacknowledged: false }),
        }
    }
}

/// A close by close(2) after the server had sent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closing {
    /// Jiffies at the close; None if not recorded.
    pub jiffies: Option<u32>,
    pub unacknowledged: bool,
    /// The answer may not have been written to its end: what others get proves nothing of this client.
    pub is_under_way: bool,
}

impl Closing {
    /// The server went on sending after the close: until then, in jiffies.
    pub fn is_decided(&self, served: Option<u32>) -> bool {
        let after = self.jiffies.zip(served).map(|(closed, served)| distance(served, closed));
        !self.is_under_way && after.is_some_and(|after| after > 0)
    }
}

/// A close by the program itself, while established.
pub(super) enum Close {
    Ended(Use),
    /// By decision of the program.
    Decided,
    Open(Closing),
}

impl Close {
    pub fn of(tcp: &Tcp, rate: TickRate) -> Close {
        let unacknowledged = match Use::of(tcp, rate) {
            Use::Idle => return Close::Decided,
            Use::Unanswered => return Close::Ended(Use::Unanswered),
            Use::Undecided { unacknowledged } => unacknowledged,
        };
        // They may be a request.
        if tcp.counts.is_some_and(|counts| ahead(&counts) > 0) {
            return Close::Ended(Use::Undecided { unacknowledged });
        }
        // A client that waits for its greeting, or whose request is on its way.
        if is_unused(tcp) {
            return Close::Ended(Use::Undecided { unacknowledged });
        }
        let is_sending = is_stream(tcp, rate) && (!tcp.close.by_shutdown || unacknowledged);
        let is_under_way = has_queue(tcp) || is_sending;
        let just_sent = tcp
            .counts
            .zip(tcp.progress)
            .is_some_and(|(counts, progress)| counts.bytes_sent > 0 && distance(progress.jiffies, counts.last_sent) <= TICK);
        match !is_under_way && (tcp.close.by_shutdown || just_sent) {
            true => Close::Decided,
            false => Close::Open(Closing {
                jiffies: tcp.progress.map(|progress| progress.jiffies),
                unacknowledged,
                is_under_way,
            }),
        }
    }
}

/// Jiffies, of any rate: the resolution of these times. Bytes of the client so soon after the server's can be a reaction of its protocol:
/// HTTP/2 acknowledges settings and large answers. A client that is kept from running reacts later; nothing bounds that.
const REACTS: i32 = 3;
const TICK: i32 = 1;
/// More than the last part of an answer: the answer itself may have been under way.
const LARGE: u32 = 64 << 10;

/// The client has not acknowledged more than [`LARGE`].
pub(super) fn has_queue(tcp: &Tcp) -> bool {
    tcp.progress.is_some_and(|progress| progress.unacknowledged > LARGE)
}

/// Bytes. A longer answer is mostly written in parts.
const ANSWER: u64 = 16 << 10;

/// The server had been sending for some time since the client's last byte, more than an answer that is written at once, and until a moment
/// ago: it may have been in the middle of that.
fn is_stream(tcp: &Tcp, rate: TickRate) -> bool {
    let Some((counts, progress)) = tcp.counts.zip(tcp.progress) else {
        return false;
    };
    let went_on = counts.bytes_received == 0 || distance(counts.last_sent, counts.last_received) > rate.ticks(ANSWERS);
    let requests = u64::from(progress.data_segments_received.max(1));
    let is_recent = progress.unacknowledged > 0 || distance(progress.jiffies, counts.last_sent) <= rate.ticks(PAUSE);
    went_on && counts.bytes_sent > ANSWER * requests && is_recent
}

/// Bytes that the server has written and the client not acknowledged; 0 where the record has none.
fn unacknowledged(tcp: &Tcp) -> u32 {
    tcp.progress.map_or(0, |progress| progress.unacknowledged)
}

/// The server.
fn wrote_nothing(tcp: &Tcp, counts: &TcpCounts) -> bool {
    counts.bytes_sent == 0 && unacknowledged(tcp) == 0
}

/// Neither side had sent a byte.
pub(super) fn is_unused(tcp: &Tcp) -> bool {
    tcp.counts
        .is_some_and(|counts| wrote_nothing(tcp, &counts) && received(tcp, &counts) == 0)
}

/// Established so recently that a client whose server speaks first (FTP, SMTP, IMAP, MySQL, SSH) may still wait for the greeting, and any
/// other may have sent its request. Before its first data, the kernel takes the establishment as the time of the last sent ones
/// (`tcp_rcv_state_process`).
fn is_young(tcp: &Tcp, counts: &TcpCounts, rate: TickRate) -> bool {
    let age = tcp.progress.map(|progress| distance(progress.jiffies, counts.last_sent));
    age.is_some_and(|age| (0..=rate.ticks(PAUSE)).contains(&age))
}

/// How a client's connection was closed.
pub(super) enum End {
    Refused(RefusedSource),
    Reset {
        queued: bool,
    },
    Ended(Use),
    /// The client never acknowledged the FIN.
    Unheard,
}

impl End {
    /// `known`: the peer had connected before.
    pub fn count(self, traffic: &mut Traffic, port: u16, at: Boot, known: bool) {
        let to = match self {
            End::Refused(source) => {
                // The server's own record goes before a client's, in any order of arrival.
                let refused = &mut traffic.refused;
                if refused.source != RefusedSource::ServerReset {
                    refused.source = source;
                }
                let of_port = refused.by_port.entry(port).or_default();
                count(&mut of_port.all, Some(at));
                if known {
                    count(&mut of_port.known, Some(at));
                    count(&mut refused.known, Some(at));
                }
                &mut refused.all
            }
            End::Reset { queued } => {
                traffic.reset_queued += u64::from(queued);
                &mut traffic.reset
            }
            End::Ended(Use::Unanswered) => &mut traffic.cut,
            End::Ended(Use::Idle) => &mut traffic.idle_closed,
            End::Ended(Use::Undecided { unacknowledged }) => {
                traffic.undecided.unacknowledged += u64::from(unacknowledged);
                &mut traffic.undecided.all
            }
            End::Unheard => {
                traffic.undecided.unheard += 1;
                &mut traffic.undecided.all
            }
        };
        count(to, Some(at));
    }
}

/// Bytes of the client's. The kernel counts the client's FIN as one, where a segment with data is none.
fn received(tcp: &Tcp, counts: &TcpCounts) -> u64 {
    let no_data = tcp.progress.is_some_and(|progress| progress.data_segments_received == 0);
    let has_fin = matches!(
        tcp.op,
        TcpOp::State {
            old: TcpState::CloseWait,
            ..
        }
    );
    match counts.bytes_received {
        1 if no_data => 0,
        bytes => bytes.saturating_sub(u64::from(has_fin)),
    }
}

/// By how many jiffies the client's last data came later than the server's.
fn ahead(counts: &TcpCounts) -> i32 {
    distance(counts.last_received, counts.last_sent)
}

/// The later time, in jiffies.
pub(super) fn later(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if distance(a, b) > 0 { a } else { b }),
        (a, b) => a.or(b),
    }
}

/// Jiffies wrap: the shorter distance from `b` to `a`.
pub(super) fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
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
