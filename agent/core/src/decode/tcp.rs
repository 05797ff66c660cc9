//! Records of sockets.

use bytes::Buf;
use epitaph_ebpf::{tcp_flags, tcp_op};

use super::fields::{DecodeError, Form, array, container};
use crate::event::{Client, Close, Tcp, TcpCounts, TcpOp, TcpProgress, TcpState};
use crate::ids::{CgroupId, Pid};

pub(super) fn tcp(b: &mut &[u8], form: Form) -> Result<Tcp, DecodeError> {
    let cgroup = Some(CgroupId::v2(b.get_u64_le())).filter(|cgroup| cgroup.is_known());
    let container = container(b, form);
    let netns = b.get_u32_le();
    let (op, old, new) = (b.get_u8(), b.get_u8(), b.get_u8());
    b.advance(1);
    let (local, remote): ([u8; 16], [u8; 16]) = (array(b), array(b));
    let (local_port, remote_port) = (b.get_u16_le(), b.get_u16_le());
    let flags = b.get_u32_le();
    let error = b.get_u32_le();
    let reason = b.get_u32_le();
    let tgid = Pid(b.get_u32_le());
    let (last_sent, last_received) = (b.get_u32_le(), b.get_u32_le());
    let jiffies = b.get_u32_le();
    let (bytes_sent, bytes_received) = (b.get_u64_le(), b.get_u64_le());
    let progress = match form.has_containers() {
        true => Some(TcpProgress {
            jiffies,
            unacknowledged: b.get_u32_le(),
            unsent: flags & tcp_flags::UNSENT != 0,
            unread: b.get_u32_le(),
            data_segments_sent: b.get_u32_le(),
            data_segments_received: b.get_u32_le(),
        })
        .filter(|_| flags & tcp_flags::PROGRESS != 0),
        false => None,
    };
    let op = match op {
        tcp_op::STATE => TcpOp::State {
            old: tcp_state("old_state", old)?,
            new: tcp_state("new_state", new)?,
        },
        tcp_op::RESET_SENT => TcpOp::ResetSent {
            reason,
            state: (new != 0).then(|| tcp_state("new_state", new)).transpose()?,
        },
        tcp_op::RESET_RECEIVED => TcpOp::ResetReceived,
        tcp_op::ERROR => TcpOp::Error { errno: error },
        other => {
            return Err(DecodeError::Value {
                field: "op",
                value: other.into(),
            });
        }
    };
    Ok(Tcp {
        op,
        cgroup,
        container,
        netns,
        local: Tcp::address(local, local_port),
        remote: Tcp::address(remote, remote_port),
        has_socket: flags & tcp_flags::NO_SOCKET == 0,
        not_syn: flags & tcp_flags::NOT_SYN != 0,
        sequence: (flags & tcp_flags::SEQUENCE != 0).then_some(last_sent),
        client: (flags & tcp_flags::CLIENT != 0).then_some(if flags & tcp_flags::KUBELET != 0 {
            Client::Kubelet
        } else {
            Client::Other
        }),
        close: Close {
            unheld: flags & tcp_flags::UNHELD != 0,
            by_exit: flags & tcp_flags::CURRENT_EXITING != 0,
            by_shutdown: flags & tcp_flags::SHUTDOWN != 0,
            foreign: flags & tcp_flags::FOREIGN_SOCKET != 0,
            by_own: flags & tcp_flags::BY_OWN != 0,
        },
        sk_err: error,
        tgid,
        counts: (flags & tcp_flags::COUNTS != 0).then_some(TcpCounts {
            bytes_sent,
            bytes_received,
            last_sent,
            last_received,
        }),
        progress,
    })
}

pub(super) fn tcp_state(field: &'static str, state: u8) -> Result<TcpState, DecodeError> {
    Ok(match state {
        1 => TcpState::Established,
        2 => TcpState::SynSent,
        3 => TcpState::SynRecv,
        4 => TcpState::FinWait1,
        5 => TcpState::FinWait2,
        6 => TcpState::TimeWait,
        7 => TcpState::Close,
        8 => TcpState::CloseWait,
        9 => TcpState::LastAck,
        10 => TcpState::Listen,
        11 => TcpState::Closing,
        12 => TcpState::NewSynRecv,
        13 => TcpState::BoundInactive,
        other => {
            return Err(DecodeError::Value {
                field,
                value: other.into(),
            });
        }
    })
}
