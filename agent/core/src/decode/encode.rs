//! Events to bytes, for tests: as the probes write them, field by field after `epitaph_ebpf`'s structures, not after the decoder.

use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};

use bytes::BufMut as _;

use super::tcp::tcp_state;
use super::*;
use crate::event::{Client, ExitStatus, Task, Tcp, TcpCounts, TcpOp, TcpProgress, TcpState};
use crate::ids::Comm;

pub(super) fn header(at: u64, kind: Kind) -> Vec<u8> {
    let mut b = Vec::new();
    b.put_u16_le(kind as u16);
    b.put_u16_le(wire::VERSION);
    b.put_u32_le(1);
    b.put_u64_le(at);
    b
}

/// A record of `event` at `at`, `CLOCK_BOOTTIME` nanoseconds: of version 3 if the event does not have whether sockets were armed.
pub fn encode(at: u64, event: &Event) -> Vec<u8> {
    let mut known = event.clone();
    let armed = match &mut known {
        Event::SignalGenerate(signal) => &mut signal.armed,
        Event::ProcessExit(exit) => &mut exit.armed,
        Event::OomVictim(oom) => &mut oom.armed,
        _ => return newest(at, event),
    };
    if armed.is_some() {
        return newest(at, event);
    }
    *armed = Some(Armed::No);
    let mut record = newest(at, &known);
    let tasks = if matches!(known, Event::SignalGenerate(_)) { 2 } else { 1 };
    for task in (0..tasks).rev() {
        let container = size_of::<wire::Header>() + task * size_of::<wire::Task>() + offset_of!(wire::Task, container);
        record.drain(container..container + size_of::<u64>());
    }
    record[2..4].copy_from_slice(&WITHOUT_CONTAINER.to_le_bytes());
    // `pending`
    record.truncate(size(known_kind(&record), WITHOUT_CONTAINER));
    record
}

fn known_kind(record: &[u8]) -> Kind {
    Kind::from_u16(u16::from_le_bytes([record[0], record[1]])).expect("a kind")
}

fn newest(at: u64, event: &Event) -> Vec<u8> {
    match event {
        Event::SignalGenerate(s) => {
            let mut b = header(at, Kind::SignalGenerate);
            put_task(&mut b, &s.sender);
            put_task(&mut b, &s.target);
            b.extend_from_slice(&s.sender_parent_comm.0);
            b.put_u32_le(s.sender_grandparent.0);
            b.put_u32_le(s.signal.number().into());
            b.put_i32_le(s.code);
            b.put_u8(s.group.into());
            b.put_u8(match s.result {
                SignalResult::Delivered => 0,
                SignalResult::Ignored => 1,
                SignalResult::AlreadyPending => 2,
                SignalResult::OverflowFail => 3,
                SignalResult::LoseInfo => 4,
            });
            b.put_u8(match s.disposition {
                Disposition::Unknown => 0,
                Disposition::Default => 1,
                Disposition::Ignore => 2,
                Disposition::Handler => 3,
            });
            b.put_u8(match s.call.map(|call| call.abi) {
                None => call_abi::UNKNOWN,
                Some(CallAbi::X86_64) => call_abi::X86_64,
                Some(CallAbi::X86) => call_abi::X86,
                Some(CallAbi::Arm64) => call_abi::ARM64,
                Some(CallAbi::Arm) => call_abi::ARM,
            });
            let TargetState {
                blocked,
                stopped,
                frozen,
                exiting,
                traced,
                sigwait,
            } = s.state;
            let has_pending = s.pending.is_some();
            let [armed, arms] = armed_bits(s.armed);
            b.put_u32_le(
                [
                    blocked,
                    stopped,
                    frozen,
                    exiting,
                    traced,
                    sigwait,
                    has_pending,
                    armed,
                    arms,
                    s.from_kernel,
                ]
                .iter()
                .rev()
                .fold(0, |bits, &bit| bits << 1 | u32::from(bit)),
            );
            b.put_i32_le(s.call.map_or(0, |call| call.number));
            b.put_u64_le(s.pending.map_or(0, |set| set.0));
            b
        }
        Event::PeerAnnouncement(h) => {
            let signal = SignalGenerate {
                sender: h.task,
                sender_parent_comm: Comm::new("sh"),
                sender_grandparent: Pid(1),
                target: h.task,
                signal: signal(wire::announcement::SIGNAL).expect("a signal"),
                code: wire::announcement::code(h.nonce),
                from_kernel: false,
                group: true,
                result: SignalResult::Ignored,
                disposition: Disposition::Default,
                state: TargetState::default(),
                call: None,
                pending: None,
                armed: Some(Armed::No),
            };
            newest(at, &Event::SignalGenerate(signal))
        }
        Event::SignalDeliver(s) => {
            let mut b = header(at, Kind::SignalDeliver);
            put_task(&mut b, &s.task);
            b.put_u32_le(s.signal.number().into());
            let open = [
                (s.open.udp, deliver_flags::UDP),
                (s.open.unix_listener, deliver_flags::UNIX_LISTENER),
                (s.open.last_unix_listener, deliver_flags::UNIX_LAST),
                (s.open.more, deliver_flags::MORE),
            ];
            b.put_u32_le(open.into_iter().map(|(is_open, flag)| u32::from(is_open) * flag).sum());
            b
        }
        Event::SignalDiscarded(s) => {
            let mut b = header(at, Kind::SignalDeliver);
            put_task(&mut b, &s.task);
            b.put_u32_le(s.signal.number().into());
            b.put_u32_le(1);
            b
        }
        Event::ProcessExit(e) => {
            let mut b = header(at, Kind::ProcessExit);
            put_task(&mut b, &e.task);
            b.put_u32_le(match e.status {
                ExitStatus::Exited(code) => u32::from(code) << 8,
                ExitStatus::Signaled { signal, core_dumped } => u32::from(signal.number()) | u32::from(core_dumped) << 7,
            });
            let held = e.held.map_or(0, |held| {
                let bits = [
                    held.listener,
                    held.connection,
                    held.more,
                    held.unix_listener,
                    held.last_unix_listener,
                ];
                let [listener, connection, more, unix_listener, last] = bits.map(u32::from);
                (u32::from(e.is_own) * armed_flags::LOOKED)
                    | listener << 4
                    | connection << 5
                    | more << 6
                    | unix_listener << 9
                    | last << 10
            });
            b.put_u32_le(armed_flags(e.armed) | held | u32::from(e.unobserved) << 7 | u32::from(e.leaves_others) << 8);
            b
        }
        Event::ProcessExec(e) => {
            let mut b = header(at, Kind::ProcessExec);
            put_task(&mut b, &e.task);
            b.put_u64_le(e.parent_cgroup.id);
            put_v1_cgroup(&mut b, e.parent_v1_cgroup);
            put_container(&mut b, e.parent_container);
            b.extend_from_slice(&e.parent_comm.0);
            b
        }
        Event::OomVictim(o) => {
            let mut b = header(at, Kind::OomVictim);
            match &o.task {
                Some(task) => put_task(&mut b, task),
                // A kernel that gives only the pid.
                None => {
                    b.put_u32_le(o.victim.0);
                    b.put_bytes(0, size_of::<wire::Task>() - size_of::<u32>());
                }
            }
            b.put_u32_le(o.trigger.0);
            b.put_u32_le(armed_flags(o.armed));
            b
        }
        Event::CgroupMkdir(c) => {
            let mut b = header(at, Kind::CgroupMkdir);
            b.put_u64_le(c.cgroup.id);
            b.put_u64_le(c.parent.id);
            put_container(&mut b, c.container);
            b.put_u32_le(c.cgroup.hierarchy);
            let path = c.path.as_deref().unwrap_or_default();
            b.put_u32_le(path.len() as u32);
            b.extend_from_slice(path.as_bytes());
            b.resize(48 + wire::PATH_LEN, 0);
            b
        }
        Event::CgroupRmdir(c) => {
            let mut b = header(at, Kind::CgroupRmdir);
            b.put_u64_le(c.cgroup.id);
            b.put_u64_le(c.cgroup.hierarchy.into());
            b
        }
        Event::Tcp(t) => encode_tcp(at, t),
    }
}

fn encode_tcp(at: u64, t: &Tcp) -> Vec<u8> {
    let ip = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let (op, old, new, reason) = match t.op {
        TcpOp::State { old, new } => (1, number(old), number(new), 0),
        TcpOp::ResetSent { reason, state } => (2, 0, state.map_or(0, number), reason),
        TcpOp::ResetReceived => (3, 0, 0, 0),
        TcpOp::Error { .. } => (4, 0, 0, 0),
    };
    let flags = [
        false,
        !t.has_socket,
        t.close.by_exit,
        t.counts.is_some(),
        t.close.foreign,
        t.close.unheld,
        t.not_syn,
        t.client.is_some(),
        t.client == Some(Client::Kubelet),
        t.progress.is_some(),
        t.close.by_shutdown,
        t.close.by_own,
        t.progress.is_some_and(|progress| progress.unsent),
        t.sequence.is_some(),
    ];
    let progress = t.progress.unwrap_or(TcpProgress {
        jiffies: 0,
        unacknowledged: 0,
        unsent: false,
        unread: 0,
        data_segments_sent: 0,
        data_segments_received: 0,
    });
    let counts = t.counts.unwrap_or(TcpCounts {
        bytes_sent: 0,
        bytes_received: 0,
        last_sent: 0,
        last_received: 0,
    });
    let mut b = header(at, Kind::Tcp);
    b.put_u64_le(t.cgroup.map_or(0, |cgroup| cgroup.id));
    put_container(&mut b, t.container);
    b.put_u32_le(t.netns);
    b.put_slice(&[op, old, new, 0]);
    b.put_slice(&ip(t.local));
    b.put_slice(&ip(t.remote));
    b.put_u16_le(t.local.port());
    b.put_u16_le(t.remote.port());
    b.put_u32_le(flags.iter().rev().fold(0, |bits, &bit| bits << 1 | u32::from(bit)));
    b.put_u32_le(t.sk_err);
    b.put_u32_le(reason);
    b.put_u32_le(t.tgid.0);
    b.put_u32_le(t.sequence.unwrap_or(counts.last_sent));
    b.put_u32_le(counts.last_received);
    b.put_u32_le(progress.jiffies);
    b.put_u64_le(counts.bytes_sent);
    b.put_u64_le(counts.bytes_received);
    b.put_u32_le(progress.unacknowledged);
    b.put_u32_le(progress.unread);
    b.put_u32_le(progress.data_segments_sent);
    b.put_u32_le(progress.data_segments_received);
    b
}

fn number(state: TcpState) -> u8 {
    (1..=13)
        .find(|&n| tcp_state("", n) == Ok(state))
        .expect("a state of the kernel's")
}

fn put_task(b: &mut Vec<u8>, task: &Task) {
    for word in [task.tgid.0, task.tid.0, task.ppid.0, task.ns_level, task.ns_pid, task.pidns] {
        b.put_u32_le(word);
    }
    b.put_u64_le(task.cgroup.id);
    put_v1_cgroup(b, task.v1_cgroup);
    put_container(b, task.container);
    b.put_u64_le(task.start.0);
    b.extend_from_slice(&task.comm.0);
}

fn armed_bits(armed: Option<Armed>) -> [bool; 2] {
    match armed {
        None => panic!("a record of this version has the field"),
        Some(Armed::No) => [false, false],
        Some(Armed::Already) => [true, false],
        Some(Armed::ByThis | Armed::ByOwn) => [true, true],
    }
}

fn armed_flags(of: Option<Armed>) -> u32 {
    let [armed, arms] = armed_bits(of);
    u32::from(armed) | u32::from(arms) << 1 | u32::from(of == Some(Armed::ByOwn)) << 2
}

/// An id of v2 (the headers here are of a machine with v2), or an id of v1.
fn put_container(b: &mut Vec<u8>, container: Option<CgroupId>) {
    put_v1_cgroup(b, container);
}

fn put_v1_cgroup(b: &mut Vec<u8>, v1_cgroup: Option<CgroupId>) {
    let number = |v1_cgroup: CgroupId| v1_cgroup.id | u64::from(v1_cgroup.hierarchy) << 48;
    b.put_u64_le(v1_cgroup.map_or(0, number));
}
