//! What one record says about a connection.

use super::connection::{Close, Closing, Connection, Refused, Use, first, is_unused};
use crate::event::{Tcp, TcpOp, TcpState};
use crate::time::{Boot, TickRate};

pub(super) enum Fact {
    Accepted,
    RefusedByServer,
    RefusedByClient,
    /// On the subject's own socket.
    RefusedItself,
    Reset,
    ResetAcknowledged,
    Queued,
    ByListener,
    Late,
    Ended(Use),
    /// By an RST, with all of the client's bytes read.
    Aborted {
        used: Use,
        unsent: bool,
    },
    Closed,
    Closing(Closing),
    /// The client got the FIN.
    Heard,
}

impl Fact {
    /// None: the record says nothing about a client's connection.
    pub fn of(tcp: &Tcp, rate: TickRate) -> Option<Fact> {
        Some(match (tcp.op, tcp.has_socket) {
            _ if has_heard(tcp) => Fact::Heard,
            (
                TcpOp::State {
                    old: TcpState::SynRecv | TcpState::NewSynRecv,
                    new: TcpState::Established,
                },
                _,
            ) => Fact::Accepted,
            (
                TcpOp::State {
                    old: TcpState::Established,
                    new: TcpState::FinWait1,
                },
                _,
            ) => match Close::of(tcp, rate) {
                _ if tcp.close.by_exit => Fact::Ended(Use::of(tcp, rate)),
                Close::Ended(used) => Fact::Ended(used),
                Close::Decided => Fact::Closed,
                Close::Open(closing) => Fact::Closing(closing),
            },
            (
                TcpOp::State {
                    old: TcpState::CloseWait,
                    new: TcpState::LastAck,
                },
                true,
            ) if tcp.close.by_exit => Use::half_closed(tcp, rate).map_or(Fact::Closed, Fact::Ended),
            // With an error the client gave up; and it had closed first, perhaps its own half only.
            (
                TcpOp::State {
                    old: old @ (TcpState::Established | TcpState::CloseWait),
                    new: TcpState::Close,
                },
                true,
            ) if tcp.close.unheld && tcp.sk_err == 0 => match old {
                TcpState::CloseWait => Use::half_closed(tcp, rate).map_or(Fact::Closed, Fact::Ended),
                _ => Fact::Queued,
            },
            (
                TcpOp::State {
                    old: TcpState::Established | TcpState::CloseWait,
                    ..
                },
                true,
            ) => Fact::Closed,
            // A second SYN is refused for its own sake. Records before had neither the client nor its flags.
            (
                TcpOp::ResetSent {
                    state: Some(TcpState::Listen),
                    ..
                },
                true,
            ) if !tcp.not_syn && tcp.remote.port() != 0 => return None,
            (TcpOp::ResetSent { state, .. }, true) => Fact::of_reset(tcp, state, rate),
            (TcpOp::ResetSent { .. }, false) if tcp.not_syn => Fact::Late,
            (TcpOp::ResetSent { .. }, false) => Fact::RefusedByServer,
            // With a socket of the subject's own cgroup, the subject is the client.
            (TcpOp::ResetReceived | TcpOp::Error { errno: ECONNREFUSED }, false) => Fact::RefusedByClient,
            (
                TcpOp::State {
                    old: TcpState::SynSent,
                    new: TcpState::Close,
                },
                false,
            ) if tcp.sk_err == ECONNREFUSED => Fact::RefusedByClient,
            (
                TcpOp::State {
                    old: TcpState::SynSent,
                    new: TcpState::Close,
                },
                true,
            ) if tcp.sk_err == ECONNREFUSED => Fact::RefusedItself,
            _ => return None,
        })
    }

    /// An RST from a socket in `state`.
    pub fn of_reset(tcp: &Tcp, state: Option<TcpState>, rate: TickRate) -> Fact {
        if state == Some(TcpState::Listen) {
            return Fact::ByListener;
        }
        // A mini socket, which has no counts, is what remains when the client has acknowledged the FIN.
        let Some(progress) = tcp.progress else {
            return Fact::ResetAcknowledged;
        };
        match (state, Use::of(tcp, rate)) {
            // The client had closed without a byte: what it sent is its FIN.
            (Some(TcpState::Close), _) if is_unused(tcp) && tcp.counts.is_some_and(|counts| counts.bytes_received > 0) => {
                Fact::Closed
            }
            // An abort by SO_LINGER 0. No request is lost where an answer was the last data, unless another request was under way.
            (Some(TcpState::Close), Use::Idle | Use::Undecided { .. }) if tcp.counts.is_some() && progress.unread == 0 => {
                Fact::Aborted {
                    used: Use::Undecided {
                        unacknowledged: progress.unacknowledged > 0,
                    },
                    unsent: progress.unsent,
                }
            }
            _ if progress.unacknowledged > 0 => Fact::Reset,
            _ => Fact::ResetAcknowledged,
        }
    }

    /// Of each the first time.
    pub fn note(self, connection: &mut Connection, at: Boot, sequence: Option<u32>) {
        match self {
            Fact::Heard => connection.fin.arrived = connection.fin.arrived.max(Some(at)),
            Fact::Accepted => first(&mut connection.accepted, at),
            Fact::RefusedByServer => Refused::add(&mut connection.refused.by_server, at, sequence),
            Fact::RefusedByClient => {
                first(&mut connection.refused.by_client, at);
                connection.refused.of_clients.add(at);
            }
            Fact::RefusedItself => connection.refused.own.add(at),
            Fact::Reset => first(&mut connection.reset, at),
            Fact::ResetAcknowledged => first(&mut connection.reset_acknowledged, at),
            Fact::Queued => first(&mut connection.queued, at),
            Fact::Late => first(&mut connection.late, at),
            Fact::ByListener => first(&mut connection.by_listener, at),
            Fact::Closed => first(&mut connection.closed, at),
            Fact::Ended(used) => connection.end(at, used),
            Fact::Aborted { used, unsent } => {
                connection.unsent |= unsent;
                connection.end(at, used);
            }
            Fact::Closing(closing) => {
                first(&mut connection.closed, at);
                if connection.closing.is_none_or(|(known, _)| known > at) {
                    connection.closing = Some((at, closing));
                }
            }
        }
    }
}

/// The record shows that the client got the FIN of its server. It comes after the one of the FIN, which itself is not among the bytes that
/// the latter shows.
pub(super) fn has_heard(tcp: &Tcp) -> bool {
    if !tcp.has_socket {
        return false;
    }
    match tcp.op {
        TcpOp::ResetReceived => true,
        TcpOp::State {
            old: TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck,
            new,
        } => match tcp.progress {
            // With an error that is no RST, the kernel gave up.
            _ if tcp.sk_err != 0 => matches!(tcp.sk_err, ECONNRESET | EPIPE),
            Some(progress) => progress.unacknowledged == 0,
            None => new != TcpState::Closing,
        },
        _ => false,
    }
}

const ECONNRESET: u32 = 104;

const EPIPE: u32 = 32;

const ECONNREFUSED: u32 = 111;
