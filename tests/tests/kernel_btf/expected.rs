//! What a kernel has, by the release from which on it has it; and offsets that were measured on booted kernels.

use epitaph_ebpf::Field::{self, *};

/// `[6, 12, 117]`; a release candidate counts as the release it leads to.
pub type Release = [u32; 3];

/// Packages that were found to match this file. Only `cargo xtask test kernels` checks Debian's next upload against it.
pub const KNOWN: [&str; 12] = [
    "5.10.218-1",
    "5.10.262-1",
    "6.1.192-2",
    "6.12.117-1~deb12u1",
    "6.16.12-1~bpo13+1",
    "6.17.13-1~bpo13+1",
    "6.18.15-1~bpo13+1",
    "6.19.14-1~bpo13+1",
    "7.0.13-1~bpo13+1",
    "7.1.13-1~bpo13+1",
    "7.2.13-1",
    "7.3.4-1~bpo13+1",
];

const ALWAYS: Release = [0, 0, 0];
const NEVER: Release = [u32::MAX; 3];

/// Fields that only some kernels have, from the first release on and before the second. All other fields are in every kernel.
const PARTLY: [(Field, Release, Release); 6] = [
    // "sched: Change task_struct::state", 5.14.
    (TaskOldState, ALWAYS, [5, 14, 0]),
    (TaskState, [5, 14, 0], NEVER),
    // "fs: port files to file_ref", 6.13.
    (FileCount, ALWAYS, [6, 13, 0]),
    (FileRef, [6, 13, 0], NEVER),
    (SockCgroupTagged, ALWAYS, PORTED_BACK),
    (SockCgroup, PORTED_BACK, NEVER),
];

/// "bpf, cgroups: Fix cgroup v2 fallback on v1/v2 mixed mode" of 5.15 and the task among `mark_victim`'s arguments of 6.9 reached
/// 5.10 after its 223 and before its 251; Debian has no package of those between.
const PORTED_BACK: Release = [5, 10, 251];

pub fn has_field(kernel: Release, field: Field) -> bool {
    PARTLY
        .iter()
        .all(|(partly, from, before)| *partly != field || (*from..*before).contains(&kernel))
}

/// Whether `field` is one that some kernels do not have.
pub fn is_partly(field: Field) -> bool {
    PARTLY.iter().any(|(partly, ..)| *partly == field)
}

/// From a release on: the program that is taken, and the one that [`oldest`](epitaph::source::kernel::Options::oldest) takes.
type Since = (Release, &'static str, &'static str);

/// Of each tracepoint, oldest first; a kernel before the first has no such tracepoint.
pub const PROGRAMS: [(&str, &[Since]); 11] = [
    ("cgroup_mkdir", &[(ALWAYS, "cgroup_mkdir", "cgroup_mkdir")]),
    ("cgroup_rmdir", &[(ALWAYS, "cgroup_rmdir", "cgroup_rmdir")]),
    (
        "sched_process_exit",
        &[
            (ALWAYS, "process_exit_live", "process_exit_live"),
            // Its argument `group_dead`.
            ([6, 16, 0], "process_exit_group_dead", "process_exit_live"),
        ],
    ),
    ("sched_process_exec", &[(ALWAYS, "process_exec", "process_exec")]),
    (
        "mark_victim",
        &[
            (ALWAYS, "mark_victim_pid", "mark_victim_pid"),
            (PORTED_BACK, "mark_victim_task", "mark_victim_task"),
        ],
    ),
    ("signal_deliver", &[(ALWAYS, "signal_deliver", "signal_deliver")]),
    ("signal_generate", &[(ALWAYS, "signal_generate", "signal_generate")]),
    (
        "inet_sock_set_state",
        &[(ALWAYS, "inet_sock_set_state", "inet_sock_set_state")],
    ),
    (
        "tcp_send_reset",
        &[
            (ALWAYS, "tcp_send_reset", "tcp_send_reset"),
            (SEND_RESET_REASON, "tcp_send_reset_reason", "tcp_send_reset"),
        ],
    ),
    ("tcp_receive_reset", &[(ALWAYS, "tcp_receive_reset", "tcp_receive_reset")]),
    (
        "inet_sk_error_report",
        &[([5, 14, 0], "inet_sk_error_report", "inet_sk_error_report")],
    ),
];

/// Its argument `reason`, and its report of resets without a full socket.
pub const SEND_RESET_REASON: Release = [6, 10, 0];
/// "pid: Replace struct pid 1-element array with flex-array".
pub const OPEN_NUMBERS: Release = [6, 5, 0];
/// `bpf_get_current_task_btf`.
pub const CURRENT_TASK_BTF: Release = [5, 11, 0];

pub fn programs(kernel: Release, since: &[Since]) -> Option<(&'static str, &'static str)> {
    let fitting = since.iter().rev().find(|(from, ..)| *from <= kernel)?;
    Some((fitting.1, fitting.2))
}

/// In bytes, as C programs found them in the type information of booted kernels and then read right values there: the cgroup's
/// inode, process ids inside and outside a pid namespace, exit codes. By package: a rebuild may move them.
pub const MEASURED: [(&str, [u32; 8]); 6] = [
    ("5.10.262-1", [2232, 3328, 248, 104, 96, 136, 116, 96]),
    ("6.1.176-1", [2416, 3600, 248, 104, 96, 128, 116, 96]),
    ("6.12.107-1", [2432, 3584, 256, 96, 112, 128, 116, 96]),
    ("6.18.15-1~bpo13+1", [2704, 3880, 256, 96, 144, 136, 116, 96]),
    ("7.0.13-1~bpo13+1", [2736, 3920, 256, 96, 128, 344, 116, 96]),
    ("7.3~rc7-1~exp1", [2872, 4072, 296, 96, 128, 344, 116, 96]),
];

/// The fields measured, in that order.
pub const MEASURED_FIELDS: [Field; 8] = [
    TaskPid,
    TaskCgroups,
    CgroupKn,
    KernfsNodeId,
    PidNumbers,
    PidNamespaceInum,
    SignalFlags,
    SignalGroupExitCode,
];
