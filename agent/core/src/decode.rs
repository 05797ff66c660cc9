//! Bytes to events: the only way to make a kernel event.
//!
//! *Architecture invariant*: any bytes give an event or an error, never a panic; a record of an older version stays readable.

use bytes::Buf;
use epitaph_ebpf as wire;
use epitaph_ebpf::{Kind, armed_flags, call_abi, deliver_flags, disposition, signal_flags, tcp_flags, tcp_op};

use crate::event::{
    Armed, CgroupMkdir, CgroupRmdir, Client, Disposition, Event, ExitStatus, HeldSockets, OomVictim, PeerAnnouncement,
    ProcessExec, ProcessExit, SignalDeliver, SignalDiscarded, SignalGenerate, SignalResult, SignalSet, TargetState, Task, Tcp,
    TcpCounts, TcpOp, TcpProgress, TcpState, UnseenSockets, si_code,
};
use crate::ids::{CallAbi, CgroupId, Comm, Pid, Signal, SystemCall};
use crate::text::escape;
use crate::time::Boot;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Also where there is not even a header.
    #[error("record is cut short: {have} bytes where {need} were to come")]
    Short { need: usize, have: usize },
    #[error("record is too long: {have} bytes where {need} were to come")]
    Long { need: usize, have: usize },
    #[error("record is of kind {0}, which this version does not know: it was made by a newer epitaph")]
    UnknownKind(u16),
    #[error("record is of format version {0}, newer than {newest}: read it with the epitaph that made it or a later one", newest = wire::VERSION)]
    NewerVersion(u16),
    #[error("record says {field} = {value}, which cannot be")]
    Value { field: &'static str, value: u64 },
}

/// One record, as the probes wrote it.
///
/// # Errors
/// Where the bytes are not a record of a known kind and version.
pub fn decode(mut bytes: &[u8]) -> Result<(Boot, Event), DecodeError> {
    let have = bytes.len();
    if have < size_of::<wire::Header>() {
        return Err(DecodeError::Short {
            need: size_of::<wire::Header>(),
            have,
        });
    }
    let b = &mut bytes;
    let kind = b.get_u16_le();
    let version = b.get_u16_le();
    if version > wire::VERSION {
        return Err(DecodeError::NewerVersion(version));
    }
    if version == 0 {
        return Err(DecodeError::Value {
            field: "version",
            value: 0,
        });
    }
    let kind = Kind::from_u16(kind).ok_or(DecodeError::UnknownKind(kind))?;
    let need = size(kind, version);
    match have {
        _ if have < need => return Err(DecodeError::Short { need, have }),
        _ if have > need => return Err(DecodeError::Long { need, have }),
        _ => {}
    }
    let _cpu = b.get_u16_le();
    let hierarchy = match (version, b.get_u16_le()) {
        (1, _) => 0,
        (_, hierarchy) => u32::from(hierarchy),
    };
    let form = Form { version, hierarchy };
    let at = Boot(b.get_u64_le());
    let event = match kind {
        Kind::SignalGenerate => {
            let signal = signal_generate(b, form)?;
            match announcement(&signal) {
                Some(announcement) => Event::PeerAnnouncement(announcement),
                None => Event::SignalGenerate(signal),
            }
        }
        Kind::SignalDeliver => {
            let (task, signal) = (task(b, form), signal(b.get_u32_le())?);
            let flags = if form.has_containers() { b.get_u32_le() } else { 0 };
            let has = |flag: u32| flags & flag != 0;
            match has(deliver_flags::DISCARDED) {
                true => Event::SignalDiscarded(SignalDiscarded { task, signal }),
                false => Event::SignalDeliver(SignalDeliver {
                    task,
                    signal,
                    open: UnseenSockets {
                        udp: has(deliver_flags::UDP),
                        unix_listener: has(deliver_flags::UNIX_LISTENER),
                        last_unix_listener: has(deliver_flags::UNIX_LAST),
                        more: has(deliver_flags::MORE),
                    },
                }),
            }
        }
        Kind::ProcessExit => Event::ProcessExit(process_exit(b, form)?),
        Kind::ProcessExec => Event::ProcessExec(ProcessExec {
            task: task(b, form),
            parent_cgroup: cgroup(b, hierarchy),
            parent_v1_cgroup: v1_cgroup(b, form),
            parent_container: container(b, form),
            parent_comm: comm(b),
        }),
        Kind::OomVictim => Event::OomVictim(oom_victim(b, form)),
        Kind::CgroupMkdir => Event::CgroupMkdir(cgroup_mkdir(b, form)?),
        Kind::CgroupRmdir => {
            let id = b.get_u64_le();
            Event::CgroupRmdir(CgroupRmdir {
                cgroup: CgroupId {
                    hierarchy: b.get_u32_le(),
                    id,
                },
            })
        }
        Kind::Tcp => Event::Tcp(tcp(b, form)?),
    };
    Ok((at, event))
}

/// Bytes of a record of this kind, header and all.
const fn size(kind: Kind, version: u16) -> usize {
    let tasks = match kind {
        Kind::SignalGenerate | Kind::ProcessExec => 2,
        Kind::SignalDeliver | Kind::ProcessExit | Kind::OomVictim => 1,
        Kind::CgroupMkdir | Kind::CgroupRmdir | Kind::Tcp => 0,
    };
    let mut missing = 0;
    if version <= WITHOUT_V1_CGROUP {
        missing += tasks;
    }
    if version <= WITHOUT_CONTAINER {
        missing += tasks
            + match kind {
                // `pending`, the container of the cgroup itself; the container and what `PROGRESS` stands for.
                Kind::SignalGenerate | Kind::CgroupMkdir => 1,
                Kind::Tcp => 3,
                _ => 0,
            };
    }
    let size = match kind {
        Kind::SignalGenerate => size_of::<wire::SignalGenerate>(),
        Kind::SignalDeliver => size_of::<wire::SignalDeliver>(),
        Kind::ProcessExit => size_of::<wire::ProcessExit>(),
        Kind::ProcessExec => size_of::<wire::ProcessExec>(),
        Kind::OomVictim => size_of::<wire::OomVictim>(),
        Kind::CgroupMkdir => size_of::<wire::CgroupMkdir>(),
        Kind::CgroupRmdir => size_of::<wire::CgroupRmdir>(),
        Kind::Tcp => size_of::<wire::Tcp>(),
    };
    size - missing * size_of::<u64>()
}

fn signal_generate(b: &mut &[u8], form: Form) -> Result<SignalGenerate, DecodeError> {
    let sender = task(b, form);
    let target = task(b, form);
    let sender_parent_comm = comm(b);
    let sender_grandparent = Pid(b.get_u32_le());
    let signal = signal(b.get_u32_le())?;
    let code = b.get_i32_le();
    let group = b.get_u8() != 0;
    let result = match b.get_u8() {
        0 => SignalResult::Delivered,
        1 => SignalResult::Ignored,
        2 => SignalResult::AlreadyPending,
        3 => SignalResult::OverflowFail,
        4 => SignalResult::LoseInfo,
        other => {
            return Err(DecodeError::Value {
                field: "result",
                value: other.into(),
            });
        }
    };
    let disposition = match b.get_u8() {
        disposition::UNKNOWN => Disposition::Unknown,
        disposition::DEFAULT => Disposition::Default,
        disposition::IGNORE => Disposition::Ignore,
        disposition::HANDLER => Disposition::Handler,
        other => {
            return Err(DecodeError::Value {
                field: "disposition",
                value: other.into(),
            });
        }
    };
    let abi = match b.get_u8() {
        call_abi::X86_64 => Some(CallAbi::X86_64),
        call_abi::X86 => Some(CallAbi::X86),
        call_abi::ARM64 => Some(CallAbi::Arm64),
        call_abi::ARM => Some(CallAbi::Arm),
        // Not of a system call, or of an architecture that a later epitaph knows.
        _ => None,
    };
    let flags = b.get_u32_le();
    let state = TargetState {
        blocked: flags & signal_flags::BLOCKED != 0,
        stopped: flags & signal_flags::STOPPED != 0,
        frozen: flags & signal_flags::FROZEN != 0,
        exiting: flags & signal_flags::EXITING != 0,
        traced: flags & signal_flags::TRACED != 0,
        sigwait: flags & signal_flags::SIGWAIT != 0,
    };
    let number = b.get_i32_le();
    let call = abi.map(|abi| SystemCall { abi, number });
    let from_kernel = match form.has_containers() {
        true => flags & signal_flags::KERNEL != 0,
        false => code == si_code::KERNEL,
    };
    let (pending, armed) = match form.has_containers() {
        true => (
            Some(SignalSet(b.get_u64_le())).filter(|_| flags & signal_flags::PENDING != 0),
            Some(armed(flags & signal_flags::ARMED != 0, flags & signal_flags::ARMS != 0)),
        ),
        false => (None, None),
    };
    Ok(SignalGenerate {
        sender,
        sender_parent_comm,
        sender_grandparent,
        target,
        signal,
        code,
        from_kernel,
        group,
        result,
        disposition,
        state,
        call,
        pending,
        armed,
    })
}

/// Any process can send itself any signal: an announcement does not prove that an agent sent it.
fn announcement(signal: &SignalGenerate) -> Option<PeerAnnouncement> {
    let own = u32::from(signal.signal.number()) == wire::announcement::SIGNAL && signal.sender.tgid == signal.target.tgid;
    let nonce = wire::announcement::nonce(signal.code).filter(|_| own)?;
    let task = signal.target;
    Some(PeerAnnouncement { task, nonce })
}

fn oom_victim(b: &mut &[u8], form: Form) -> OomVictim {
    let victim = task(b, form);
    // A kernel with only the pid leaves the rest 0, and no task starts at 0.
    let known = victim.start != Boot(0) || victim.tid != Pid(0);
    OomVictim {
        victim: victim.tgid,
        task: known.then_some(victim),
        trigger: Pid(b.get_u32_le()),
        armed: armed_by(b, form),
    }
}

fn cgroup_mkdir(b: &mut &[u8], form: Form) -> Result<CgroupMkdir, DecodeError> {
    let (id, parent, container) = (b.get_u64_le(), b.get_u64_le(), container(b, form));
    let (hierarchy, path_len) = (b.get_u32_le(), b.get_u32_le() as usize);
    let bytes: [u8; wire::PATH_LEN] = array(b);
    let path = match path_len {
        // Not readable, or truncated: the file system has the path.
        0 | wire::PATH_LEN => None,
        1..wire::PATH_LEN => Some(escaped(&bytes[..path_len])),
        _ => {
            return Err(DecodeError::Value {
                field: "path_len",
                value: path_len as u64,
            });
        }
    };
    Ok(CgroupMkdir {
        cgroup: CgroupId { hierarchy, id },
        parent: CgroupId { hierarchy, id: parent },
        container,
        path,
    })
}

/// A path as text: invalid UTF-8 and control characters are escaped. A backslash stays, because systemd's names contain backslashes.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&escape(chunk.valid()));
        text.extend(chunk.invalid().iter().flat_map(|byte| byte.escape_ascii().map(char::from)));
    }
    text
}

fn tcp(b: &mut &[u8], form: Form) -> Result<Tcp, DecodeError> {
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
        unheld: flags & tcp_flags::UNHELD != 0,
        not_syn: flags & tcp_flags::NOT_SYN != 0,
        sequence: (flags & tcp_flags::SEQUENCE != 0).then_some(last_sent),
        client: (flags & tcp_flags::CLIENT != 0).then_some(if flags & tcp_flags::KUBELET != 0 {
            Client::Kubelet
        } else {
            Client::Other
        }),
        by_exit: flags & tcp_flags::CURRENT_EXITING != 0,
        by_shutdown: flags & tcp_flags::SHUTDOWN != 0,
        foreign: flags & tcp_flags::FOREIGN_SOCKET != 0,
        by_own: flags & tcp_flags::BY_OWN != 0,
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

fn tcp_state(field: &'static str, state: u8) -> Result<TcpState, DecodeError> {
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

fn task(b: &mut &[u8], form: Form) -> Task {
    // Arrays, for one check of the length instead of one for each field: most records have one or two tasks.
    let ids: [u8; 32] = array(b);
    let (v1_cgroup, container) = (v1_cgroup(b, form), container(b, form));
    let rest: [u8; 24] = array(b);
    let (ids, rest) = (&mut &ids[..], &mut &rest[..]);
    Task {
        tgid: Pid(ids.get_u32_le()),
        tid: Pid(ids.get_u32_le()),
        ppid: Pid(ids.get_u32_le()),
        ns_level: ids.get_u32_le(),
        ns_pid: ids.get_u32_le(),
        pidns: ids.get_u32_le(),
        cgroup: cgroup(ids, form.hierarchy),
        v1_cgroup,
        container,
        start: Boot(rest.get_u64_le()),
        comm: comm(rest),
    }
}

/// The last version of records whose tasks have no `v1_cgroup`.
const WITHOUT_V1_CGROUP: u16 = 2;
/// The last version without all that [`wire::VERSION`] lists first.
const WITHOUT_CONTAINER: u16 = 3;

/// The layout of a record.
#[derive(Clone, Copy)]
struct Form {
    version: u16,
    hierarchy: u32,
}

impl Form {
    fn has_containers(self) -> bool {
        self.version > WITHOUT_CONTAINER
    }
}

fn v1_cgroup(b: &mut &[u8], form: Form) -> Option<CgroupId> {
    let value = if form.version > WITHOUT_V1_CGROUP { b.get_u64_le() } else { 0 };
    of_v1(value)
}

fn container(b: &mut &[u8], form: Form) -> Option<CgroupId> {
    let value = if form.has_containers() { b.get_u64_le() } else { 0 };
    let of_tasks = CgroupId {
        hierarchy: form.hierarchy,
        id: value,
    };
    of_v1(value).or(Some(of_tasks).filter(|cgroup| cgroup.is_known()))
}

fn of_v1(value: u64) -> Option<CgroupId> {
    let (hierarchy, id) = wire::split_v1_cgroup(value)?;
    Some(CgroupId {
        hierarchy: hierarchy.into(),
        id,
    })
}

fn process_exit(b: &mut &[u8], form: Form) -> Result<ProcessExit, DecodeError> {
    let (task, status) = (task(b, form), exit_status(b.get_u32_le())?);
    let mut rest: &[u8] = b;
    let flags = rest.get_u32_le();
    let has = |flag: u32| flags & flag != 0;
    let held = HeldSockets {
        listener: has(armed_flags::LISTENER),
        connection: has(armed_flags::CONNECTION),
        more: has(armed_flags::MORE),
        unix_listener: has(armed_flags::UNIX_LISTENER),
        last_unix_listener: has(armed_flags::UNIX_LAST),
    };
    let of_others = armed_flags::UNIX_LISTENER | armed_flags::LISTENER | armed_flags::CONNECTION | armed_flags::MORE;
    let shown = armed_flags::LOOKED | of_others;
    let is_by_own = |armed: &Armed| has(armed_flags::BY_OWN) && *armed == Armed::ByThis;
    Ok(ProcessExit {
        task,
        status,
        armed: armed_by(b, form).map(|armed| if is_by_own(&armed) { Armed::ByOwn } else { armed }),
        held: (form.has_containers() && has(shown)).then_some(held),
        is_own: form.has_containers() && has(armed_flags::LOOKED),
        unobserved: form.has_containers() && has(armed_flags::UNOBSERVED),
        leaves_others: form.has_containers() && has(armed_flags::OTHERS),
    })
}

fn armed_by(b: &mut &[u8], form: Form) -> Option<Armed> {
    let flags = b.get_u32_le();
    let armed = armed(flags & armed_flags::ARMED != 0, flags & armed_flags::ARMS != 0);
    form.has_containers().then_some(armed)
}

/// A reason alone arms nothing if the map is full.
fn armed(is_armed: bool, arms: bool) -> Armed {
    match (is_armed, arms) {
        (false, _) => Armed::No,
        (true, false) => Armed::Already,
        (true, true) => Armed::ByThis,
    }
}

fn cgroup(b: &mut &[u8], hierarchy: u32) -> CgroupId {
    CgroupId {
        hierarchy,
        id: b.get_u64_le(),
    }
}

fn signal(number: u32) -> Result<Signal, DecodeError> {
    Signal::new(number).ok_or(DecodeError::Value {
        field: "sig",
        value: number.into(),
    })
}

/// As wait(2) has it.
fn exit_status(status: u32) -> Result<ExitStatus, DecodeError> {
    match status & 0x7f {
        0 => Ok(ExitStatus::Exited((status >> 8) as u8)),
        number => Ok(ExitStatus::Signaled {
            signal: signal(number)?,
            core_dumped: status & 0x80 != 0,
        }),
    }
}

fn comm(b: &mut &[u8]) -> Comm {
    Comm(array(b))
}

fn array<const N: usize>(b: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    b.copy_to_slice(&mut bytes);
    bytes
}

#[cfg(any(test, feature = "fixtures"))]
pub mod encode;
#[cfg(test)]
mod tests;
