//! Bytes to events: the only way to make a kernel event.
//!
//! *Architecture invariant*: any bytes give an event or an error, never a panic; a record of an older version stays readable.

mod fields;
mod tcp;

use bytes::Buf;
use epitaph_ebpf as wire;
use epitaph_ebpf::{Kind, armed_flags, call_abi, deliver_flags, disposition, signal_flags};

use crate::event::{
    Armed, CgroupMkdir, CgroupRmdir, Disposition, Event, HeldSockets, OomVictim, PeerAnnouncement, ProcessExec, ProcessExit,
    SignalDeliver, SignalDiscarded, SignalGenerate, SignalResult, SignalSet, TargetState, UnseenSockets, si_code,
};
use crate::ids::{CallAbi, CgroupId, Pid, SystemCall};
use crate::text::escape;
use crate::time::Boot;

pub use fields::DecodeError;
use fields::{
    Form, WITHOUT_CONTAINER, WITHOUT_V1_CGROUP, armed, armed_by, array, cgroup, comm, container, exit_status, signal, task,
    v1_cgroup,
};
use tcp::tcp;

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
            let (id, hierarchy) = (b.get_u64_le(), b.get_u32_le());
            let cgroup = CgroupId { hierarchy, id };
            Event::CgroupRmdir(CgroupRmdir { cgroup })
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

#[cfg(any(test, feature = "fixtures"))]
pub mod encode;
#[cfg(test)]
mod tests;
