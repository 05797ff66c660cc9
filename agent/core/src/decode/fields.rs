//! Fields that several kinds of records have.

use bytes::Buf;
use epitaph_ebpf as wire;
use epitaph_ebpf::armed_flags;

use crate::event::{Armed, ExitStatus, Task};
use crate::ids::{CgroupId, Comm, Pid, Signal};
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

pub(super) fn task(b: &mut &[u8], form: Form) -> Task {
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
pub(super) const WITHOUT_V1_CGROUP: u16 = 2;
/// The last version without all that [`wire::VERSION`] lists first.
pub(super) const WITHOUT_CONTAINER: u16 = 3;

/// The layout of a record.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub version: u16,
    pub hierarchy: u32,
}

impl Form {
    pub fn has_containers(self) -> bool {
        self.version > WITHOUT_CONTAINER
    }
}

pub(super) fn v1_cgroup(b: &mut &[u8], form: Form) -> Option<CgroupId> {
    let value = if form.version > WITHOUT_V1_CGROUP { b.get_u64_le() } else { 0 };
    of_v1(value)
}

pub(super) fn container(b: &mut &[u8], form: Form) -> Option<CgroupId> {
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

pub(super) fn armed_by(b: &mut &[u8], form: Form) -> Option<Armed> {
    let flags = b.get_u32_le();
    let armed = armed(flags & armed_flags::ARMED != 0, flags & armed_flags::ARMS != 0);
    form.has_containers().then_some(armed)
}

/// A reason alone arms nothing if the map is full.
pub(super) fn armed(is_armed: bool, arms: bool) -> Armed {
    match (is_armed, arms) {
        (false, _) => Armed::No,
        (true, false) => Armed::Already,
        (true, true) => Armed::ByThis,
    }
}

pub(super) fn cgroup(b: &mut &[u8], hierarchy: u32) -> CgroupId {
    CgroupId {
        hierarchy,
        id: b.get_u64_le(),
    }
}

pub(super) fn signal(number: u32) -> Result<Signal, DecodeError> {
    Signal::new(number).ok_or(DecodeError::Value {
        field: "sig",
        value: number.into(),
    })
}

/// As wait(2) has it.
pub(super) fn exit_status(status: u32) -> Result<ExitStatus, DecodeError> {
    match status & 0x7f {
        0 => Ok(ExitStatus::Exited((status >> 8) as u8)),
        number => Ok(ExitStatus::Signaled {
            signal: signal(number)?,
            core_dumped: status & 0x80 != 0,
        }),
    }
}

pub(super) fn comm(b: &mut &[u8]) -> Comm {
    Comm(array(b))
}

pub(super) fn array<const N: usize>(b: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    b.copy_to_slice(&mut bytes);
    bytes
}
