//! inet_sock_set_state, tcp_send_reset (and the functions that call it), tcp_receive_reset, inet_sk_error_report.
//!
//! While no cgroup is armed, each program only notes the event, and its second program only compares the event with the note. A socket
//! belongs to its own cgroup, the one of the process that made it, not the current task: the kernel handles packets in the context of any
//! task.

use core::mem::offset_of;
use core::ptr::addr_of_mut;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_jiffies64, bpf_skc_to_tcp_sock};
use aya_ebpf::macros::{btf_tracepoint, fentry};
use aya_ebpf::maps::ring_buf::RingBufEntry;
use aya_ebpf::programs::{BtfTracePointContext, FEntryContext};
use epitaph_ebpf::nested::{ERROR_REPORT, RECEIVE_RESET, SEND_RESET, SET_STATE};
use epitaph_ebpf::{
    Class, Field, Header, Kind, Netns, Tcp, address, at_functions, closed_port, connects, tcp_flags, tcp_op, watch,
};

use super::kernel::{Direct, Nullable, Probed, Ptr, Read, cgroup_id, distance, has, task_cgroup, with_current};
use super::maps::{self, Charge};

const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const FIN_WAIT1: u8 = 4;
const TIME_WAIT: u8 = 6;
const CLOSE: u8 = 7;
const LISTEN: u8 = 10;
const NEW_SYN_RECV: u8 = 12;
const AF_INET6: u16 = 10;
const ETIMEDOUT: u32 = 110;
const SEND_SHUTDOWN: u8 = 2;
const ECONNREFUSED: u32 = 111;

#[btf_tracepoint(function = "inet_sock_set_state")]
pub fn inet_sock_set_state(ctx: BtfTracePointContext) -> i32 {
    maps::take(&ctx, state_event(&ctx));
    if maps::any_armed() || closes_listener(ctx.arg::<i32>(1) as u8, ctx.arg::<i32>(2) as u8) {
        // SAFETY: the tracepoint gives a full socket, never NULL.
        unsafe { state_changed(ctx.arg(0), ctx.arg::<i32>(1) as u8, ctx.arg::<i32>(2) as u8) }
    }
    0
}

/// Runs after the program above, as each `…_nested` program after the program of that name. The kernel skips a program on a CPU that
/// already runs this program: packets that interrupt a close would be missed, hundreds of times a second on a busy network.
#[btf_tracepoint(function = "inet_sock_set_state")]
pub fn inet_sock_set_state_nested(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: as above.
    let report = || unsafe { state_changed(ctx.arg(0), ctx.arg::<i32>(1) as u8, ctx.arg::<i32>(2) as u8) };
    maps::if_skipped(SET_STATE, &ctx, state_event(&ctx), report);
    0
}

/// Socket, ports and states in one number.
#[inline(always)]
fn state_event(ctx: &BtfTracePointContext) -> u64 {
    let (old, new): (u64, u64) = (ctx.arg(1), ctx.arg(2));
    socket((old & 0xf) << 4 | new & 0xf, ctx)
}

/// The same for the tracepoints without states. No state is 15.
#[inline(always)]
fn event(tracepoint: u32, ctx: &BtfTracePointContext) -> u64 {
    socket(0xf0 | u64::from(tracepoint), ctx)
}

/// The tracepoint's first argument, a socket, with its ports and with `of`: the kernel reuses the memory of a freed socket within
/// microseconds. `skc_num` would be the same for all clients of a server that close: 0.
#[inline(always)]
fn socket(of: u64, ctx: &BtfTracePointContext) -> u64 {
    // SAFETY: the argument is a full socket.
    unsafe {
        let sk: Ptr = ctx.arg(0);
        let (local, remote): (u16, u16) = match as_tcp(sk) {
            Some(tcp) => (local_port(tcp), Direct::get(sk, Field::SockDport)),
            // The remote port of other protocols can change between the two programs.
            None => (u16::from_be(Probed::get(sk, Field::InetSport)), 0),
        };
        // Both programs have the same context.
        (distance(sk, ctx.as_ptr().cast()) << 8 | of) ^ u64::from(local) << 48 ^ u64::from(remote) << 32
    }
}

/// The packet, with its ports and its sequence number, distinguishes resets without a socket.
#[inline(always)]
fn sent_event([sk, skb]: [Nullable; 2]) -> u64 {
    let header: u64 = match skb.get() {
        None => 0,
        // SAFETY: a packet.
        Some(packet) => unsafe { Probed::read(header(packet, Field::SkbTransportHeader)) },
    };
    sk.number() ^ skb.number() << 8 ^ header
}

/// The socket and the packet of tcp_send_reset: no listener, and a reset of our own accord, have none.
#[inline(always)]
fn sent(ctx: &BtfTracePointContext) -> [Nullable; 2] {
    Nullable::two(ctx.as_ptr(), [ctx.arg(0), ctx.arg(1)])
}

#[inline(always)]
unsafe fn state_changed(sk: Ptr, old: u8, new: u8) {
    unsafe {
        let Some(tcp) = as_tcp(sk) else { return };
        let netns = netns(sk);
        let cgroup = socket_cgroup(sk);
        if closes_listener(old, new) {
            return listener_closed(sk, tcp, cgroup, netns);
        }
        if maps::is_armed(cgroup) {
            record(sk, tcp, cgroup, tcp_op::STATE, (old, new), 0);
        }
        if old == SYN_SENT {
            connect_ended(sk, tcp, cgroup, new);
        }
        // With an error, the other side closed the connection; its packet was handled in the context of the exiting task.
        if old == ESTABLISHED && (new == FIN_WAIT1 || new == CLOSE && Direct::get::<u32>(sk, Field::SockErr) == 0) {
            foreign(sk, tcp, cgroup, tcp_op::STATE, (old, new), 0);
        }
        if old == SYN_SENT
            && new == CLOSE
            && Direct::get::<u32>(sk, Field::SockErr) == ECONNREFUSED
            && maps::refused_by_client()
        {
            refused_client(sk, tcp, netns);
        }
    }
}

#[inline(always)]
fn closes_listener(old: u8, new: u8) -> bool {
    old == LISTEN && new == CLOSE
}

/// A listener of a watched cgroup that closes without a stop request arms the cgroup: below a wrapper, the program may have exited, or may
/// do so soon.
#[inline(always)]
unsafe fn listener_closed(sk: Ptr, tcp: Ptr, cgroup: u64, netns: Netns) {
    unsafe {
        let known = maps::watched(cgroup);
        let is_by_own = !maps::is_armed_by_others(cgroup);
        if is_by_own && known[watch::BITS] & watch::SELF == 0 {
            return;
        }
        let owner = maps::owner(cgroup, known);
        let Some(mut entry) = blank(Class::Tcp, tcp_op::STATE, cgroup, netns) else {
            return;
        };
        let mut flags = 0;
        if is_by_own {
            if maps::arm_for_own(entry.as_mut_ptr(), cgroup, owner) == 0 {
                return entry.discard(0);
            }
            flags = tcp_flags::BY_OWN;
        }
        let (local, _) = ends(sk);
        maps::close_port(closed_port(netns, local_port(tcp), local), cgroup, owner, is_by_own);
        fill(&mut entry, sk, tcp, cgroup, (LISTEN, CLOSE), 0, flags);
        entry.submit(0);
    }
}

/// Reports a client that could not reach a terminating pod, or could: successes are reported for the kubelet only. A client that got
/// no answer proves nothing.
#[inline(always)]
unsafe fn connect_ended(sk: Ptr, tcp: Ptr, cgroup: u64, new: u8) {
    unsafe {
        let by_kubelet = maps::is_kubelet(cgroup);
        let error: u32 = Direct::get(sk, Field::SockErr);
        if by_kubelet || new == CLOSE && error != 0 && error != ETIMEDOUT {
            client(sk, tcp, cgroup, tcp_op::STATE, (SYN_SENT, new), by_kubelet);
        }
    }
}

#[inline(always)]
unsafe fn client(sk: Ptr, tcp: Ptr, cgroup: u64, op: u8, (old, new): (u8, u8), by_kubelet: bool) {
    unsafe {
        let (local, remote) = ends(sk);
        // A loopback address identifies no server: every network namespace has it. Only the connects of the kubelet need none.
        if !by_kubelet && address::is_loopback(remote) {
            return;
        }
        let Some(mut entry) = blank(Class::Client, op, cgroup, netns(sk)) else {
            return maps::lost_connect(connects::bucket(remote));
        };
        let record = entry.as_mut_ptr();
        write_ends(record, local, remote);
        (*record).old_state = old;
        (*record).new_state = new;
        (*record).local_port = local_port(tcp);
        (*record).remote_port = u16::from_be(Direct::get(sk, Field::SockDport));
        (*record).error = Direct::get(sk, Field::SockErr);
        let kubelet = if by_kubelet { tcp_flags::KUBELET } else { 0 };
        (*record).flags = tcp_flags::FULL_SOCKET | tcp_flags::CLIENT | kubelet;
        entry.submit(0);
    }
}

/// The client's socket reports the closed port: its remote end is our local one. Only a client of the same network namespace:
/// elsewhere, the same number is another port.
#[inline(always)]
unsafe fn refused_client(sk: Ptr, tcp: Ptr, netns: Netns) {
    unsafe {
        let port = u16::from_be(Direct::get(sk, Field::SockDport));
        let (client, server) = ends(sk);
        let Some(cgroup) = maps::closed_by(netns, port, server) else {
            return;
        };
        let Some(mut entry) = blank(Class::Tcp, tcp_op::ERROR, cgroup, netns) else {
            return;
        };
        let record = entry.as_mut_ptr();
        write_ends(record, server, client);
        (*record).local_port = port;
        (*record).remote_port = local_port(tcp);
        (*record).flags = tcp_flags::NO_SOCKET;
        (*record).error = ECONNREFUSED;
        entry.submit(0);
    }
}

/// 6.10 and later.
#[btf_tracepoint(function = "tcp_send_reset")]
pub fn tcp_send_reset_reason(ctx: BtfTracePointContext) -> i32 {
    let sent = sent(&ctx);
    maps::take(&ctx, sent_event(sent));
    if maps::any_armed() {
        unsafe { reset_sent(sent, ctx.arg::<i32>(2) as u32) }
    }
    0
}

#[btf_tracepoint(function = "tcp_send_reset")]
pub fn tcp_send_reset_reason_nested(ctx: BtfTracePointContext) -> i32 {
    let sent = sent(&ctx);
    let report = || unsafe { reset_sent(sent, ctx.arg::<i32>(2) as u32) };
    maps::if_skipped(SEND_RESET, &ctx, sent_event(sent), report);
    0
}

#[btf_tracepoint(function = "tcp_send_reset")]
pub fn tcp_send_reset(ctx: BtfTracePointContext) -> i32 {
    let sent = sent(&ctx);
    maps::take(&ctx, sent_event(sent));
    if maps::any_armed() {
        unsafe { reset_sent(sent, 0) }
    }
    0
}

#[btf_tracepoint(function = "tcp_send_reset")]
pub fn tcp_send_reset_nested(ctx: BtfTracePointContext) -> i32 {
    let sent = sent(&ctx);
    let report = || unsafe { reset_sent(sent, 0) };
    maps::if_skipped(SEND_RESET, &ctx, sent_event(sent), report);
    0
}

/// `sk` may be NULL (no listener), the listener, or a mini socket whose memory ends after `sock_common`; `skb` may be NULL (a reset of
/// our own accord).
#[inline(always)]
unsafe fn reset_sent([sk, skb]: [Nullable; 2], reason: u32) {
    unsafe {
        match full(sk) {
            Ok((sk, LISTEN)) => {
                if let Some(packet) = skb.get()
                    && let Some(of) = without_connection(packet, netns(sk))
                {
                    reset_by_listener(sk, &of, reason);
                }
            }
            // A reset that answers a packet is sent in the context of any task.
            Ok((sk, state)) => reset_by_full(sk, skb.number() == 0, state, reason),
            Err(mini) => reset_without_socket(mini, skb, reason),
        }
    }
}

/// Before 6.10, tcp_send_reset reports the resets of full sockets only: this program runs at the entry of the function that sends any.
/// Where the function sends none (it answers no RST), there is no record either.
#[fentry]
pub fn tcp_v4_send_reset(ctx: FEntryContext) -> i32 {
    at_function(&ctx, at_functions::IPV4);
    0
}

#[fentry]
pub fn tcp_v6_send_reset(ctx: FEntryContext) -> i32 {
    at_function(&ctx, at_functions::IPV6);
    0
}

#[inline(always)]
fn at_function(ctx: &FEntryContext, slot: u32) {
    if maps::any_armed() {
        let [sk, skb] = Nullable::two(ctx.as_ptr(), [ctx.arg(0), ctx.arg(1)]);
        // That of a full socket does not show that the program sees a closed port: it is sent from other places, too.
        if sk.number() == 0 {
            maps::passed_function(slot);
        }
        // SAFETY: the function's socket, NULL or of any kind, and its packet.
        unsafe {
            if let Err(mini) = full(sk) {
                reset_without_socket(mini, skb, 0);
            }
        }
    }
}

/// A full socket with its state, as sk_fullsock() of the kernel; otherwise the mini socket with its state, if there is one.
#[inline(always)]
unsafe fn full(sk: Nullable) -> Result<(Ptr, u8), Option<(Ptr, u8)>> {
    let Some(sk) = sk.get() else { return Err(None) };
    match unsafe { Direct::get(sk, Field::SockState) } {
        state @ (TIME_WAIT | NEW_SYN_RECV) => Err(Some((sk, state))),
        state => Ok((sk, state)),
    }
}

#[inline(always)]
unsafe fn reset_without_socket(mini: Option<(Ptr, u8)>, skb: Nullable, reason: u32) {
    unsafe {
        let unconnected = match (mini, skb.get()) {
            (Some((sk, state)), _) => Some(by_mini(sk, state)),
            (None, Some(packet)) => without_connection(packet, netns_of_packet(packet)),
            (None, None) => None,
        };
        let Some(of) = unconnected else { return };
        if let Some(cgroup) = maps::closed_by(of.netns, of.local_port, of.local) {
            reset_of_packet(cgroup, &of, of.state, of.flags, reason);
        }
    }
}

/// The listener has no remote end: the packet does.
#[inline(always)]
unsafe fn reset_by_listener(sk: Ptr, of: &Unconnected, reason: u32) {
    unsafe {
        let cgroup = socket_cgroup(sk);
        if maps::is_armed(cgroup) {
            let flags = tcp_flags::FULL_SOCKET | of.flags & tcp_flags::NOT_SYN;
            reset_of_packet(cgroup, of, LISTEN, flags, reason);
        }
    }
}

#[inline(always)]
unsafe fn reset_by_full(sk: Ptr, is_of_task: bool, state: u8, reason: u32) {
    unsafe {
        let Some(tcp) = as_tcp(sk) else { return };
        let cgroup = socket_cgroup(sk);
        if maps::is_armed(cgroup) {
            record(sk, tcp, cgroup, tcp_op::RESET_SENT, (0, state), reason);
        }
        if is_of_task {
            foreign(sk, tcp, cgroup, tcp_op::RESET_SENT, (0, state), reason);
        }
    }
}

/// Both ends of a reset that no connected socket sent. Only the port says to whom its client wanted to talk.
struct Unconnected {
    netns: Netns,
    local: [u64; 2],
    remote: [u64; 2],
    local_port: u16,
    remote_port: u16,
    state: u8,
    flags: u32,
    /// With `tcp_flags::SEQUENCE`, in host byte order.
    sequence: u32,
}

/// Of the device that received it; 0 unknown. Only a packet that met a socket has lost its device (tcp_v4_rcv, tcp_v6_rcv).
#[inline(always)]
unsafe fn netns_of_packet(skb: Ptr) -> Netns {
    unsafe {
        let device: Ptr = Direct::get(skb, Field::SkbDev);
        if device.is_null() {
            return 0;
        }
        netns_of(Direct::get(device, Field::NetDeviceNet))
    }
}

#[inline(always)]
unsafe fn header(skb: Ptr, offset: Field) -> Ptr {
    unsafe {
        let head: Ptr = Direct::get(skb, Field::SkbHead);
        head.add(Direct::get::<u16>(skb, offset) as usize)
    }
}

/// A packet that met no socket, or a listener only. A SYN is a refused connection. Any other packet belongs to a closed connection, or
/// to a connection whose handshake was under way when the listener closed: its client believes in it. A FIN requests nothing any more, and
/// an RST is not answered.
#[inline(always)]
unsafe fn without_connection(skb: Ptr, netns: Netns) -> Option<Unconnected> {
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    const FIN: u8 = 0x01;
    const RST: u8 = 0x04;
    unsafe {
        let (ip, tcp) = (header(skb, Field::SkbNetworkHeader), header(skb, Field::SkbTransportHeader));
        let bits = Probed::read::<u8>(tcp.add(13));
        if bits & (FIN | RST) != 0 {
            return None;
        }
        let of_syn = if bits & (SYN | ACK) == SYN {
            tcp_flags::SEQUENCE
        } else {
            tcp_flags::NOT_SYN
        };
        let (mut remote, mut local) = ([0_u64; 2], [0_u64; 2]);
        if Probed::read::<u8>(ip) >> 4 == 6 {
            [remote, local] = Probed::read(ip.add(8));
        } else {
            let [source, destination]: [u32; 2] = Probed::read(ip.add(12));
            copy_v4((&raw mut remote).cast(), source);
            copy_v4((&raw mut local).cast(), destination);
        }
        let [source, destination]: [u16; 2] = Probed::read(tcp);
        let sequence: u32 = Probed::read(tcp.add(4));
        Some(Unconnected {
            netns,
            local,
            remote,
            local_port: u16::from_be(destination),
            remote_port: u16::from_be(source),
            state: 0,
            flags: tcp_flags::NO_SOCKET | of_syn,
            sequence: u32::from_be(sequence),
        })
    }
}

/// A mini socket is the remainder of a connection: it has both addresses, but neither cgroup nor counts.
#[inline(always)]
unsafe fn by_mini(sk: Ptr, state: u8) -> Unconnected {
    unsafe {
        let (local, remote) = ends(sk);
        Unconnected {
            netns: netns(sk),
            local,
            remote,
            local_port: Direct::get(sk, Field::SockNum),
            remote_port: u16::from_be(Direct::get(sk, Field::SockDport)),
            state,
            flags: 0,
            sequence: 0,
        }
    }
}

#[inline(always)]
unsafe fn reset_of_packet(cgroup: u64, of: &Unconnected, state: u8, flags: u32, reason: u32) {
    unsafe {
        let Some(mut entry) = blank(Class::Tcp, tcp_op::RESET_SENT, cgroup, of.netns) else {
            return;
        };
        let record = entry.as_mut_ptr();
        write_ends(record, of.local, of.remote);
        (*record).local_port = of.local_port;
        (*record).remote_port = of.remote_port;
        (*record).new_state = state;
        (*record).flags = flags;
        (*record).reason = reason;
        (*record).last_sent = of.sequence;
        entry.submit(0);
    }
}

#[btf_tracepoint(function = "tcp_receive_reset")]
pub fn tcp_receive_reset(ctx: BtfTracePointContext) -> i32 {
    maps::take(&ctx, event(RECEIVE_RESET, &ctx));
    if maps::any_armed() {
        unsafe { of_armed(ctx.arg(0), tcp_op::RESET_RECEIVED) }
    }
    0
}

#[btf_tracepoint(function = "tcp_receive_reset")]
pub fn tcp_receive_reset_nested(ctx: BtfTracePointContext) -> i32 {
    let report = || unsafe { of_armed(ctx.arg(0), tcp_op::RESET_RECEIVED) };
    maps::if_skipped(RECEIVE_RESET, &ctx, event(RECEIVE_RESET, &ctx), report);
    0
}

#[btf_tracepoint(function = "inet_sk_error_report")]
pub fn inet_sk_error_report(ctx: BtfTracePointContext) -> i32 {
    maps::take(&ctx, event(ERROR_REPORT, &ctx));
    if maps::any_armed() {
        unsafe { of_armed(ctx.arg(0), tcp_op::ERROR) }
    }
    0
}

#[btf_tracepoint(function = "inet_sk_error_report")]
pub fn inet_sk_error_report_nested(ctx: BtfTracePointContext) -> i32 {
    let report = || unsafe { of_armed(ctx.arg(0), tcp_op::ERROR) };
    maps::if_skipped(ERROR_REPORT, &ctx, event(ERROR_REPORT, &ctx), report);
    0
}

#[inline(always)]
unsafe fn of_armed(sk: Ptr, op: u8) {
    unsafe {
        let Some(tcp) = as_tcp(sk) else { return };
        // A soft error (an ICMP message while connect() holds the socket) reports 0 and decides nothing.
        if op == tcp_op::ERROR && Direct::get::<u32>(sk, Field::SockErr) == 0 {
            return;
        }
        let cgroup = socket_cgroup(sk);
        let state = Direct::get(sk, Field::SockState);
        if maps::is_armed(cgroup) {
            record(sk, tcp, cgroup, op, (0, state), 0);
        }
        // An RST, not an ICMP message, ends this connect.
        if op == tcp_op::RESET_RECEIVED && state == SYN_SENT {
            client(sk, tcp, cgroup, op, (0, state), maps::is_kubelet(cgroup));
        }
    }
}

/// Reads what [`tcp_flags::PROGRESS`] announces.
const PROGRESS: [Field; 6] = [
    Field::TcpWriteSeq,
    Field::TcpSndUna,
    Field::TcpRcvNxt,
    Field::TcpCopiedSeq,
    Field::TcpDataSegsOut,
    Field::TcpDataSegsIn,
];

/// A record of a full socket.
#[inline(always)]
unsafe fn record(sk: Ptr, tcp: Ptr, cgroup: u64, op: u8, states: (u8, u8), reason: u32) {
    unsafe {
        let Some(mut entry) = blank(Class::Tcp, op, cgroup, netns(sk)) else {
            return;
        };
        fill(&mut entry, sk, tcp, cgroup, states, reason, 0);
        entry.submit(0);
    }
}

#[inline(always)]
unsafe fn fill(entry: &mut RingBufEntry<Tcp>, sk: Ptr, tcp: Ptr, cgroup: u64, (old, new): (u8, u8), reason: u32, flags: u32) {
    unsafe {
        let record = entry.as_mut_ptr();
        let mut flags = flags | tcp_flags::FULL_SOCKET;
        (*record).old_state = old;
        (*record).new_state = new;
        copy_ends(sk, addr_of_mut!((*record).local), addr_of_mut!((*record).remote));
        (*record).local_port = local_port(tcp);
        (*record).remote_port = u16::from_be(Direct::get(sk, Field::SockDport));
        (*record).error = Direct::get(sk, Field::SockErr);
        (*record).reason = reason;
        if with_current!(ends_in(cgroup)) {
            flags |= tcp_flags::CURRENT_EXITING;
        }
        if has(Field::TcpBytesSent) && has(Field::TcpBytesReceived) && has(Field::TcpLastSent) && has(Field::TcpLastReceived) {
            flags |= tcp_flags::COUNTS;
            (*record).bytes_sent = Direct::get(tcp, Field::TcpBytesSent);
            (*record).bytes_received = Direct::get(tcp, Field::TcpBytesReceived);
            (*record).last_sent = Direct::get(tcp, Field::TcpLastSent);
            (*record).last_received = Direct::get(tcp, Field::TcpLastReceived);
        }
        if PROGRESS.iter().all(|&field| has(field)) {
            flags |= tcp_flags::PROGRESS;
            (*record).jiffies = bpf_jiffies64() as u32;
            let difference = |of, less| Direct::get::<u32>(tcp, of).wrapping_sub(Direct::get(tcp, less));
            (*record).unacknowledged = difference(Field::TcpWriteSeq, Field::TcpSndUna);
            if has(Field::TcpSndNxt) && difference(Field::TcpWriteSeq, Field::TcpSndNxt) != 0 {
                flags |= tcp_flags::UNSENT;
            }
            (*record).unread = difference(Field::TcpRcvNxt, Field::TcpCopiedSeq);
            (*record).data_segments_sent = Direct::get(tcp, Field::TcpDataSegsOut);
            (*record).data_segments_received = Direct::get(tcp, Field::TcpDataSegsIn);
        }
        if has(Field::SockSocket) && Probed::get::<u64>(sk, Field::SockSocket) == 0 {
            flags |= tcp_flags::UNHELD;
        }
        // close(2) ends both directions, before the state changes.
        if has(Field::SockShutdown) && Probed::get::<u8>(sk, Field::SockShutdown) == SEND_SHUTDOWN {
            flags |= tcp_flags::SHUTDOWN;
        }
        (*record).flags = flags;
    }
}

/// A connection that the exit of the current task closes, of an armed cgroup other than the socket's own: an inherited listener
/// leaves its connections to the cgroup that made it. Their later fate is not seen, so this record reports only that they exist.
#[inline(always)]
unsafe fn foreign(sk: Ptr, tcp: Ptr, own: u64, op: u8, (old, new): (u8, u8), reason: u32) {
    unsafe {
        let cgroup = with_current!(exiting_in());
        if cgroup == 0 || cgroup == own || !maps::is_armed(cgroup) {
            return;
        }
        let Some(mut entry) = blank(Class::Tcp, op, cgroup, netns(sk)) else {
            return;
        };
        let record = entry.as_mut_ptr();
        copy_ends(sk, addr_of_mut!((*record).local), addr_of_mut!((*record).remote));
        (*record).old_state = old;
        (*record).new_state = new;
        (*record).local_port = local_port(tcp);
        (*record).remote_port = u16::from_be(Direct::get(sk, Field::SockDport));
        (*record).error = Direct::get(sk, Field::SockErr);
        (*record).reason = reason;
        (*record).flags = tcp_flags::FULL_SOCKET | tcp_flags::CURRENT_EXITING | tcp_flags::FOREIGN_SOCKET;
        entry.submit(0);
    }
}

/// Whether the current task is one of this cgroup and is exiting. A task of another cgroup (a client that exits on the same
/// machine, its packets handled in its own context) is not the reason why this socket closes.
#[inline(always)]
unsafe fn ends_in<R: Read>(current: Ptr, cgroup: u64) -> bool {
    unsafe { cgroup != 0 && exiting_in::<R>(current) == cgroup }
}

/// cgroup of the current task if the task is exiting, else 0.
#[inline(always)]
unsafe fn exiting_in<R: Read>(current: Ptr) -> u64 {
    const PF_EXITING: u32 = 4;
    unsafe {
        if R::get::<u32>(current, Field::TaskFlags) & PF_EXITING != 0 {
            task_cgroup::<R>(current)
        } else {
            0
        }
    }
}

/// A record in which only these, their container, the header and `tgid` are not 0.
#[inline(always)]
unsafe fn blank(class: Class, op: u8, cgroup: u64, netns: Netns) -> Option<RingBufEntry<Tcp>> {
    let known = maps::watched(cgroup);
    let container = known[watch::CONTAINER];
    let charge = Charge {
        class,
        owner: maps::owner(cgroup, known),
        is_rare: false,
    };
    let mut entry = maps::reserve::<Tcp>(Kind::Tcp, charge)?;
    let record = entry.as_mut_ptr();
    unsafe {
        let words = record.cast::<u64>();
        (size_of::<Header>() / 8..size_of::<Tcp>() / 8).for_each(|i| words.add(i).write_volatile(0));
        (*record).cgroup = cgroup;
        (*record).container = container;
        (*record).netns = netns as u32;
        (*record).op = op;
        (*record).tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    }
    Some(entry)
}

/// The socket as a `tcp_sock`; None for a mini socket and for other protocols. The verifier accepts no other cast.
#[inline(always)]
unsafe fn as_tcp(sk: Ptr) -> Option<Ptr> {
    let tcp = unsafe { bpf_skc_to_tcp_sock(sk.cast_mut().cast()) } as Ptr;
    (!tcp.is_null()).then_some(tcp)
}

/// `skc_num` reads 0 once the port is released, which happens before the event of the close.
#[inline(always)]
unsafe fn local_port(tcp: Ptr) -> u16 {
    unsafe { u16::from_be(Direct::get(tcp, Field::InetSport)) }
}

/// cgroup v2 id of a full socket; 0 unknown.
#[inline(always)]
unsafe fn socket_cgroup(sk: Ptr) -> u64 {
    unsafe {
        if !has(Field::SockCgroup) {
            return tagged_cgroup(sk);
        }
        let cgroup: Ptr = Direct::get(sk, Field::SockCgroup);
        if cgroup.is_null() { 0 } else { cgroup_id::<Direct>(cgroup) }
    }
}

/// Early 5.10 keeps what v1's net_cls and net_prio want of a socket in the pointer's place, and marks that (`sock_cgroup_ptr` in
/// v5.10's include/linux/cgroup.h). The record of such a socket cannot be attributed: it is lost.
#[inline(always)]
unsafe fn tagged_cgroup(sk: Ptr) -> u64 {
    const TAGS: u64 = 3;
    unsafe {
        let tagged: u64 = Probed::get(sk, Field::SockCgroupTagged);
        if tagged & TAGS != 0 {
            maps::lost(Class::Tcp);
            return 0;
        }
        if tagged == 0 { 0 } else { cgroup_id::<Probed>(tagged as Ptr) }
    }
}

#[inline(always)]
unsafe fn netns(sk: Ptr) -> Netns {
    unsafe { netns_of(Direct::get(sk, Field::SockNet)) }
}

#[inline(always)]
unsafe fn netns_of(net: Ptr) -> Netns {
    unsafe {
        let random = if has(Field::NetHashMix) {
            Direct::get(net, Field::NetHashMix)
        } else {
            0
        };
        epitaph_ebpf::netns(Direct::get(net, Field::NetInum), random)
    }
}

/// Both addresses, in words.
#[inline(always)]
unsafe fn ends(sk: Ptr) -> ([u64; 2], [u64; 2]) {
    let (mut local, mut remote) = ([0; 2], [0; 2]);
    unsafe { copy_ends(sk, (&raw mut local).cast(), (&raw mut remote).cast()) };
    (local, remote)
}

#[inline(always)]
unsafe fn write_ends(record: *mut Tcp, local: [u64; 2], remote: [u64; 2]) {
    const _: () = assert!(offset_of!(Tcp, local) % 8 == 0 && offset_of!(Tcp, remote) % 8 == 0);
    unsafe {
        addr_of_mut!((*record).local).cast::<[u64; 2]>().write(local);
        addr_of_mut!((*record).remote).cast::<[u64; 2]>().write(remote);
    }
}

/// The family decides: an IPv6 socket's v4 fields hold noise.
#[inline(always)]
unsafe fn copy_ends(sk: Ptr, local: *mut [u8; 16], remote: *mut [u8; 16]) {
    unsafe {
        if has(Field::SockV6Daddr) && Direct::get::<u16>(sk, Field::SockFamily) == AF_INET6 {
            copy_v6(local, sk.add(super::kernel::offset(Field::SockV6RcvSaddr)));
            copy_v6(remote, sk.add(super::kernel::offset(Field::SockV6Daddr)));
        } else {
            copy_v4(local, Direct::get(sk, Field::SockRcvSaddr));
            copy_v4(remote, Direct::get(sk, Field::SockDaddr));
        }
    }
}

#[inline(always)]
unsafe fn copy_v6(to: *mut [u8; 16], from: Ptr) {
    let to = to.cast::<u32>();
    // By fours: the verifier knows the address as four words, and refuses a load of two.
    unsafe { (0..4).for_each(|i| to.add(i).write_volatile(Direct::read(from.add(4 * i)))) }
}

/// `::ffff:a.b.c.d`; `from` in network byte order.
#[inline(always)]
unsafe fn copy_v4(to: *mut [u8; 16], from: u32) {
    let to = to.cast::<u32>();
    unsafe {
        to.add(2).write_volatile(0xffff_u32.to_be());
        to.add(3).write_volatile(from);
    }
}
