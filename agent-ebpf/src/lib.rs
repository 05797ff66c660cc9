//! The records that the probes write and user space reads: the wire format, shared by both sides.
//!
//! Every record starts with a [`Header`] (kind and version first), has one fixed size per kind and version, and holds
//! integers only. Times are `CLOCK_BOOTTIME` nanoseconds. Process ids are those of the initial pid namespace.
//! A change of a record's layout is a new [`VERSION`]: recordings keep the bytes as they were written.
#![no_std]
// For the BPF target the probes have dependencies that the library does not use.
#![cfg_attr(not(target_arch = "bpf"), warn(unused_crate_dependencies))]

mod budget;
mod fields;
mod part;

pub use budget::{Account, Class, SHARED, connects, limits};
pub use fields::{ABSENT, Field};
pub use part::Part;

use core::mem::{align_of, offset_of, size_of};

/// Version of every record below. Fields that earlier versions lack:
/// - up to 3: every `container`; [`SignalGenerate::pending`]; [`signal_flags::SIGWAIT`], [`signal_flags::PENDING`],
///   [`signal_flags::ARMED`], [`signal_flags::ARMS`] and [`signal_flags::KERNEL`]; the `flags` of [`SignalDeliver`] (always a handler's entry then),
///   [`ProcessExit`] and [`OomVictim`]; the meaning of [`tcp_flags::PROGRESS`].
/// - up to 2: [`Task::v1_cgroup`], [`ProcessExec::parent_v1_cgroup`].
/// - 1: [`Header::hierarchy`], the upper half of a 32-bit `cpu` then: all cgroups were of v2.
pub const VERSION: u16 = 4;

/// Longest cgroup path that a [`CgroupMkdir`] carries, in bytes.
pub const PATH_LEN: usize = 512;

/// The kernel's `TASK_COMM_LEN`.
pub const COMM_LEN: usize = 16;

/// Kind of a record.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    SignalGenerate = 1,
    SignalDeliver = 2,
    ProcessExit = 3,
    ProcessExec = 4,
    OomVictim = 5,
    CgroupMkdir = 6,
    CgroupRmdir = 7,
    Tcp = 8,
}

impl Kind {
    pub const ALL: [Kind; 8] = [
        Kind::SignalGenerate,
        Kind::SignalDeliver,
        Kind::ProcessExit,
        Kind::ProcessExec,
        Kind::OomVictim,
        Kind::CgroupMkdir,
        Kind::CgroupRmdir,
        Kind::Tcp,
    ];
    pub const fn from_u16(value: u16) -> Option<Kind> {
        match value {
            1 => Some(Kind::SignalGenerate),
            2 => Some(Kind::SignalDeliver),
            3 => Some(Kind::ProcessExit),
            4 => Some(Kind::ProcessExec),
            5 => Some(Kind::OomVictim),
            6 => Some(Kind::CgroupMkdir),
            7 => Some(Kind::CgroupRmdir),
            8 => Some(Kind::Tcp),
            _ => None,
        }
    }

    /// Name on metrics and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::SignalGenerate => "signal_generate",
            Kind::SignalDeliver => "signal_deliver",
            Kind::ProcessExit => "sched_process_exit",
            Kind::ProcessExec => "sched_process_exec",
            Kind::OomVictim => "mark_victim",
            Kind::CgroupMkdir => "cgroup_mkdir",
            Kind::CgroupRmdir => "cgroup_rmdir",
            Kind::Tcp => "tcp",
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// A [`Kind`].
    pub kind: u16,
    pub version: u16,
    /// CPU that wrote the record.
    pub cpu: u16,
    /// Hierarchy of all [`Task`]s' cgroups, as in `/proc/PID/cgroup`: 0 is cgroup v2, any other number a hierarchy of v1.
    pub hierarchy: u16,
    /// `CLOCK_BOOTTIME`, nanoseconds.
    pub boot_ns: u64,
}

/// A process (or one of its threads) as the kernel saw it at that moment.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Process id (thread group id), initial pid namespace.
    pub tgid: u32,
    /// Thread id, initial pid namespace.
    pub tid: u32,
    /// Process id of `real_parent`; 0 if there is none.
    pub ppid: u32,
    /// Depth of the task's pid namespace; 0 is the initial one.
    pub ns_level: u32,
    /// The process's pid in its own, innermost pid namespace: 1 at `ns_level` > 0 is init of a namespace.
    pub ns_pid: u32,
    /// Inode number of that namespace; 0 if it was not read (`ns_level` 0).
    pub pidns: u32,
    /// cgroup id (the directory's inode number) in the header's hierarchy.
    pub cgroup: u64,
    /// On a machine with cgroup v1 alongside v2, the [`v1_cgroup`] of its cgroup of v1; else 0.
    pub v1_cgroup: u64,
    /// The container that the task's cgroup counts for: the cgroup of the outermost container around it, the task's own if
    /// that is a container's. An id in the header's hierarchy, or the [`v1_cgroup`] of a container that only v1 knows. 0 if
    /// the kernel side knows no container: there is none, or user space has not named it yet (see [`Watched`]).
    pub container: u64,
    /// Start of the process (its thread group leader), `CLOCK_BOOTTIME` nanoseconds.
    pub start_ns: u64,
    /// The thread group leader's `comm`, NUL padded: bytes chosen by the process, not text.
    pub comm: [u8; COMM_LEN],
}

/// `signal_generate`: `sender` (current) made signal `sig` for `target`.
///
/// `sender` has no meaning with [`signal_flags::KERNEL`] if the signal came from an interrupt.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalGenerate {
    pub header: Header,
    pub sender: Task,
    pub target: Task,
    /// The sender's parent: its comm, and the pid of the parent's own parent.
    pub sender_parent_comm: [u8; COMM_LEN],
    pub sender_grandparent: u32,
    /// Signal number, 1 to 64.
    pub sig: u32,
    /// `si_code`: 0 user, -6 tkill, -1 sigqueue, 128 kernel, above 0 a fault.
    pub code: i32,
    /// 1 if the signal targets the whole process, 0 one thread (and `cgroup.kill`).
    pub group: u8,
    /// The tracepoint's own result: 0 delivered, 1 ignored, 2 already pending, 3 overflow, 4 lost info.
    pub result: u8,
    /// A [`disposition`].
    pub disposition: u8,
    /// A [`call_abi`]: of SIGSYS, where the kernel raised it for a system call. Early records of version 4 and all before have
    /// `UNKNOWN`.
    pub call_abi: u8,
    /// [`signal_flags`].
    pub flags: u32,
    /// The number of that system call, in its ABI.
    pub call: i32,
    /// Signals that waited to be read once this signal was made, itself included if it waits: bit `sig - 1`, of the whole
    /// process and of the target thread. With [`signal_flags::PENDING`], else 0. A stop signal among those of a SIGKILL
    /// was never read: no handler entered, no sigwait(3) or signalfd(2) took it.
    pub pending: u64,
}

/// The target's action for that signal, from its signal table.
pub mod disposition {
    pub const UNKNOWN: u8 = 0;
    pub const DEFAULT: u8 = 1;
    pub const IGNORE: u8 = 2;
    pub const HANDLER: u8 = 3;
}

/// Whose numbers a system call has: an architecture, and on 64-bit machines also that of 32-bit programs.
pub mod call_abi {
    /// No system call, or of another architecture.
    pub const UNKNOWN: u8 = 0;
    pub const X86_64: u8 = 1;
    pub const X86: u8 = 2;
    pub const ARM64: u8 = 3;
    pub const ARM: u8 = 4;

    /// Of an `AUDIT_ARCH_*`, as `si_arch` has it.
    #[inline(always)]
    pub const fn of_audit(arch: u32) -> u8 {
        match arch {
            0xc000_003e => X86_64,
            0x4000_0003 => X86,
            0xc000_00b7 => ARM64,
            0x4000_0028 => ARM,
            _ => UNKNOWN,
        }
    }
}

/// State of the target when the signal was made.
pub mod signal_flags {
    /// The target thread had the signal blocked.
    pub const BLOCKED: u32 = 1 << 0;
    /// The process was stopped (job control or SIGSTOP).
    pub const STOPPED: u32 = 1 << 1;
    /// The process was frozen (cgroup v2 freezer, or the v1 freezer if the kernel shows it).
    pub const FROZEN: u32 = 1 << 2;
    /// The process was already exiting (`SIGNAL_GROUP_EXIT`), because of this signal or an earlier one.
    pub const EXITING: u32 = 1 << 3;
    /// The target was traced by a debugger.
    pub const TRACED: u32 = 1 << 4;
    /// The target thread waited for this signal in sigwait(3) or a similar call, which needs no handler. During the wait,
    /// `real_blocked` has the whole mask of the thread, and `blocked` lacks the awaited signals alone.
    pub const SIGWAIT: u32 = 1 << 5;
    /// [`SignalGenerate::pending`](super::SignalGenerate::pending) was read.
    pub const PENDING: u32 = 1 << 6;
    /// The TCP events of the sockets of the target's cgroup are recorded from now on.
    pub const ARMED: u32 = 1 << 7;
    /// This signal is a reason to record them, even if they were recorded already: from another container or the host, or a
    /// SIGKILL of the kernel's own, to a first process. Probes of earlier releases also set it for a signal to another process,
    /// from another cgroup of the same container, or from a terminal.
    pub const ARMS: u32 = 1 << 8;
    /// The kernel made the signal, without a siginfo (`SEND_SIG_PRIV`): the OOM killer, the end of a pid namespace, a resource
    /// limit, a terminal. A `code` of `SI_KERNEL` alone is not a proof: rt_sigqueueinfo(2) lets a process give its own signals
    /// any code.
    pub const KERNEL: u32 = 1 << 9;
}

/// `signal_deliver`: `task` read `sig` from its queue and enters its handler, or [`deliver_flags::DISCARDED`]. Other default
/// actions are not recorded.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalDeliver {
    pub header: Header,
    pub task: Task,
    pub sig: u32,
    /// [`deliver_flags`].
    pub flags: u32,
}

pub mod deliver_flags {
    /// No handler, and the process is the init of a pid namespace: the kernel discarded the signal instead of taking its default
    /// action. Not set for SIGKILL and SIGSTOP, which are not discarded here, nor for SIGCONT and SIGWINCH, whose default
    /// action terminates no process.
    pub const DISCARDED: u32 = 1 << 0;
    /// While the sockets of the task's cgroup are recorded, a handler starts in a process that has these sockets open, of which no probe
    /// observes the clients: a bound UDP socket, a listener on a Unix stream socket, and one that nobody else holds. It may close them
    /// long before it exits.
    pub const UDP: u32 = super::armed_flags::UDP;
    pub const UNIX_LISTENER: u32 = super::armed_flags::UNIX_LISTENER;
    pub const UNIX_LAST: u32 = super::armed_flags::UNIX_LAST;
    /// It may have had more sockets: not all of its descriptors were looked at. Early records of version 4 lack the flag.
    pub const MORE: u32 = super::armed_flags::MORE;
}

/// The exit of a whole process, once, whichever thread was last.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    pub header: Header,
    pub task: Task,
    /// As wait(2) encodes it: signal in the low 7 bits, 0x80 core dumped, exit code in bits 8 to 15.
    pub status: u32,
    /// [`armed_flags`].
    pub flags: u32,
}

/// Flags of [`ProcessExit`] and [`OomVictim`].
pub mod armed_flags {
    /// The TCP events of the sockets of the task's cgroup are recorded from now on.
    pub const ARMED: u32 = 1 << 0;
    /// This event is a reason to record them, even if they were recorded already.
    pub const ARMS: u32 = 1 << 1;
    /// With `ARMS`: a process of the cgroup's own exited with sockets that clients may use, for a reason that is not known. User space
    /// disarms the cgroup soon if the subject goes on.
    pub const BY_OWN: u32 = 1 << 2;
    /// Of [`ProcessExit`]: the sockets among the process's files were looked at, and the flags below are known. Probes of earlier
    /// releases, and exits that are not the subject's own, lack it.
    pub const LOOKED: u32 = 1 << 3;
    /// The process had a TCP listener open.
    pub const LISTENER: u32 = 1 << 4;
    /// It had a TCP connection open on a port that a process had bound: of a client, as far as the kernel shows that.
    pub const CONNECTION: u32 = 1 << 5;
    /// It may have had more sockets: not all of its descriptors were looked at. Also of a process that came in from outside; early records of
    /// version 4 lack the flag there.
    pub const MORE: u32 = 1 << 6;
    /// It had a socket of clients that no probe observes: a connection that a Unix stream socket had accepted, or a UDP socket that is bound
    /// and not connected. Also of a process that came in from outside, as a first process does.
    pub const UNOBSERVED: u32 = 1 << 7;
    /// Of [`ProcessExit`]: other tasks remain in the same cgroups. Other threads of the process count, too, that exit at the same moment.
    pub const OTHERS: u32 = 1 << 8;
    /// It listened on a Unix stream socket. Also of a process that came in from outside.
    pub const UNIX_LISTENER: u32 = 1 << 9;
    /// With `UNIX_LISTENER`: nobody else held one of them, so that no client can connect to it any more. A unit's listener that systemd made
    /// lives on.
    pub const UNIX_LAST: u32 = 1 << 10;
    /// With `UNOBSERVED`: a UDP socket.
    pub const UDP: u32 = 1 << 11;
}

/// A process has executed a new program; `task.comm` is the new one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExec {
    pub header: Header,
    pub task: Task,
    /// cgroup of `real_parent`: differs from `task.cgroup` if the process came in from outside.
    pub parent_cgroup: u64,
    /// As [`Task::v1_cgroup`].
    pub parent_v1_cgroup: u64,
    /// As [`Task::container`].
    pub parent_container: u64,
    pub parent_comm: [u8; COMM_LEN],
}

/// The OOM killer chose `victim`; `trigger` was allocating (current).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomVictim {
    pub header: Header,
    /// If the kernel gives only a pid, all but `tgid` is 0.
    pub victim: Task,
    pub trigger_tgid: u32,
    /// [`armed_flags`].
    pub flags: u32,
}

/// A cgroup of any hierarchy was made.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupMkdir {
    pub header: Header,
    pub id: u64,
    /// Parent's id; 0 if it was not readable.
    pub parent: u64,
    /// The container that it inherits from its parent, as [`Task::container`].
    pub container: u64,
    /// Hierarchy number as in `/proc/PID/cgroup`: 0 is cgroup v2.
    pub hierarchy: u32,
    /// Bytes of `path` in use; `PATH_LEN` means that it was cut.
    pub path_len: u32,
    /// From the hierarchy's root, without NUL.
    pub path: [u8; PATH_LEN],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupRmdir {
    pub header: Header,
    pub id: u64,
    pub hierarchy: u32,
    pub pad: u32,
}

/// What a [`Tcp`] record reports.
pub mod tcp_op {
    /// `inet_sock_set_state`: `old_state` to `new_state`.
    pub const STATE: u8 = 1;
    /// `tcp_send_reset`: the local side sent an RST.
    pub const RESET_SENT: u8 = 2;
    /// `tcp_receive_reset`: the local side was sent an RST.
    pub const RESET_RECEIVED: u8 = 3;
    /// `inet_sk_error_report`: `error` was put to the socket.
    pub const ERROR: u8 = 4;
}

/// See [`Tcp::flags`].
pub mod tcp_flags {
    /// The event has a full socket: `cgroup`, `error` and the byte counts were read from it.
    pub const FULL_SOCKET: u32 = 1 << 0;
    /// No socket: the addresses are the packet's, and `cgroup` is that of the closed listener on this port.
    pub const NO_SOCKET: u32 = 1 << 1;
    /// Current was exiting: its exit closed the socket, not a close(2) of its own.
    pub const CURRENT_EXITING: u32 = 1 << 2;
    /// The byte counts and the last send and receive times were read.
    pub const COUNTS: u32 = 1 << 3;
    /// The exit of a process of `cgroup` closed a connection whose socket belongs to another cgroup (an inherited listener).
    pub const FOREIGN_SOCKET: u32 = 1 << 4;
    /// No process holds the socket: not accepted yet, or closed before.
    pub const UNHELD: u32 = 1 << 5;
    /// With `NO_SOCKET`: the packet was not a SYN, so the client believed in a connection.
    pub const NOT_SYN: u32 = 1 << 6;
    /// The socket of any client: its connect was answered by an RST, failed with `error`, or, for the kubelet's own, succeeded.
    pub const CLIENT: u32 = 1 << 7;
    /// With `CLIENT`: `cgroup` is one that user space has named as the kubelet's.
    pub const KUBELET: u32 = 1 << 8;
    /// `jiffies`, `unacknowledged`, `unread` and the data segments were read.
    pub const PROGRESS: u32 = 1 << 9;
    /// The process ended sending with shutdown(2): neither close(2) nor an exit ends sending alone. Early records of version 4
    /// lack the flag.
    pub const SHUTDOWN: u32 = 1 << 10;
    /// A listener closed, and its cgroup is observed for its own doing only: by this close, or by [`armed_flags::BY_OWN`]. A later
    /// listener on the port of one that is observed for another reason does not get its refused clients.
    pub const BY_OWN: u32 = 1 << 11;
    /// With `PROGRESS`: the last of the bytes that the process wrote were never sent. Early records of version 4 lack the flag.
    pub const UNSENT: u32 = 1 << 12;
    /// With `NO_SOCKET`: `last_sent` is the sequence number of the SYN. Early records of version 4 lack the flag.
    pub const SEQUENCE: u32 = 1 << 13;
}

/// A TCP event on a socket of a cgroup that is being stopped, or on the port of a listener that it has closed; with
/// `tcp_flags::CLIENT`, the result of any client's connect while any cgroup is being stopped.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    pub header: Header,
    /// The socket's own cgroup, always of v2 (the current task's only with `FOREIGN_SOCKET`); 0 unknown.
    pub cgroup: u64,
    /// Of `cgroup`, as [`Task::container`].
    pub container: u64,
    /// The socket's network namespace, inode number; 0 unknown.
    pub netns: u32,
    /// A [`tcp_op`].
    pub op: u8,
    /// Kernel TCP states: 1 established, 2 SYN_SENT, 3 SYN_RECV, 4 FIN_WAIT1, 7 close, 8 CLOSE_WAIT, 10 listen.
    pub old_state: u8,
    pub new_state: u8,
    pub pad: u8,
    /// Local address, IPv6; IPv4 as `::ffff:a.b.c.d`. Network byte order.
    pub local: [u8; 16],
    pub remote: [u8; 16],
    /// Host byte order. Local means the watched side: for a refused SYN, the closed port.
    pub local_port: u16,
    pub remote_port: u16,
    /// [`tcp_flags`].
    pub flags: u32,
    /// `sk_err`, an errno; 0 none or not read.
    pub error: u32,
    /// `enum sk_rst_reason` of `tcp_send_reset` if the kernel has it (6.12 and later), else 0.
    pub reason: u32,
    /// Current's process id: meaningful only with `CURRENT_EXITING` or if a process closed the socket.
    pub tgid: u32,
    /// Jiffies (low 32 bits) of the last data sent and the last data received, with `COUNTS`. See also `SEQUENCE`.
    pub last_sent: u32,
    pub last_received: u32,
    /// Jiffies (low 32 bits) at the event, with `PROGRESS`.
    pub jiffies: u32,
    /// Payload bytes, with `COUNTS`.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Bytes written that the other side has not acknowledged, and bytes received that the process has not read, with `PROGRESS`
    /// (a FIN counts as a byte).
    pub unacknowledged: u32,
    pub unread: u32,
    /// Segments with data, with `PROGRESS`.
    pub data_segments_sent: u32,
    pub data_segments_received: u32,
}

/// A cgroup of the v1 hierarchy of that number in one number: the id in the lower 48 bits.
pub const fn v1_cgroup(hierarchy: u16, id: u64) -> u64 {
    (hierarchy as u64) << 48 | (id & V1_ID)
}

/// Hierarchy and id of a [`v1_cgroup`]; None if there was none.
pub const fn split_v1_cgroup(v1_cgroup: u64) -> Option<(u16, u64)> {
    match (v1_cgroup >> 48) as u16 {
        0 => None,
        hierarchy => Some((hierarchy, v1_cgroup & V1_ID)),
    }
}

/// Inode numbers of cgroups are counted up from 1.
const V1_ID: u64 = (1 << 48) - 1;

/// A cgroup's entry in the `WATCHED` map (key: cgroup id in the hierarchy of tasks, [`v1_cgroup`] of that of v1 alongside it):
/// bits of [`watch`], its container as a key of the same map, 0 unknown, and its owner, also a key, 0 unknown.
///
/// User space knows by the path which cgroups are a container's, and writes the container into the entry of its cgroup and of
/// those below; what is made below later inherits it in the kernel, at `cgroup_mkdir`. Until user space has read a new
/// container's `cgroup_mkdir`, the container is 0 there and in what is made below.
///
/// The owner pays for what its processes make the probes record: see [`Class`]. It is the container, or the cgroup of the unit
/// outside any container, and is inherited alike: cgroups that a container nests share its budget.
pub type Watched = [u64; 3];

pub mod watch {
    /// Places in a [`Watched`](super::Watched).
    pub const BITS: usize = 0;
    pub const CONTAINER: usize = 1;
    pub const OWNER: usize = 2;

    /// Exits and execs of this cgroup's own processes are recorded.
    pub const SELF: u64 = 1 << 0;
    /// A cgroup made below it gets both bits, by the kernel, at `cgroup_mkdir`.
    pub const CHILDREN: u64 = 1 << 1;
}

const _: () = {
    assert!(size_of::<Header>() == 16 && offset_of!(Header, boot_ns) == 8);
    assert!(size_of::<Task>() == 72 && offset_of!(Task, cgroup) == 24 && offset_of!(Task, comm) == 56);
    assert!(size_of::<SignalGenerate>() == 208 && offset_of!(SignalGenerate, sender_parent_comm) == 160);
    assert!(offset_of!(SignalGenerate, sig) == 180 && offset_of!(SignalGenerate, flags) == 192);
    assert!(offset_of!(SignalGenerate, call_abi) == 191 && offset_of!(SignalGenerate, call) == 196);
    assert!(size_of::<SignalDeliver>() == 96);
    assert!(size_of::<ProcessExit>() == 96 && offset_of!(ProcessExit, status) == 88);
    assert!(size_of::<ProcessExec>() == 128);
    assert!(size_of::<OomVictim>() == 96);
    assert!(size_of::<CgroupMkdir>() == 48 + PATH_LEN);
    assert!(size_of::<CgroupRmdir>() == 32);
    assert!(size_of::<Tcp>() == 136 && offset_of!(Tcp, bytes_sent) == 104);
    assert!(align_of::<Tcp>() == 8 && align_of::<SignalGenerate>() == 8);
};

/// Which signals `signal_generate` and `signal_deliver` keep: bit `sig - 1`. Dropped: what runtimes, timers, terminals and
/// children generate all day (SIGALRM, SIGCHLD, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGVTALRM, SIGPROF, SIGIO, and glibc's own
/// 32 and 33). SIGWINCH is kept because it is httpd's stop signal: of those that the kernel made, the probes drop the ones without a handler.
pub const SIGNAL_MASK: u64 =
    !(bit(14) | bit(17) | bit(20) | bit(21) | bit(22) | bit(23) | bit(26) | bit(27) | bit(29) | bit(32) | bit(33));

const fn bit(sig: u32) -> u64 {
    1 << (sig - 1)
}

/// How the second program at a tracepoint knows the events that the first was skipped for.
pub mod nested {
    /// Words of the one value of the `TAKEN` map: events that the first program took and the second has not seen, each at the place of its
    /// stack frame. Other events come between the two, also on other CPUs: since 7.0 a task can be moved there between them.
    pub const PLACES: usize = 4_096;

    /// Places in the `RECOVERED` map: how many events the second program reported.
    pub const SET_STATE: u32 = 0;
    pub const SEND_RESET: u32 = 1;
    pub const RECEIVE_RESET: u32 = 2;
    pub const ERROR_REPORT: u32 = 3;
    /// By these places.
    pub const TRACEPOINTS: [&str; 4] = [
        "inet_sock_set_state",
        "tcp_send_reset",
        "tcp_receive_reset",
        "inet_sk_error_report",
    ];
}

/// How an agent announces itself to its peers, the other agents on the machine: a signal to itself that the kernel discards
/// (SIGWINCH), with an `si_code` of its own that every agent's `signal_generate` sees.
pub mod announcement {
    pub const SIGNAL: u32 = 28;
    /// Bits of the code that identify the announcement.
    pub const NONCE: u32 = 0x00ff_ffff;
    /// Negative, as a process's own codes must be, and far from the kernel's, which end at -60.
    const MARK: u32 = 0xe900_0000;

    pub const fn code(nonce: u32) -> i32 {
        (MARK | nonce & NONCE).cast_signed()
    }

    /// None if the code does not belong to an announcement.
    pub const fn nonce(code: i32) -> Option<u32> {
        let code = code.cast_unsigned();
        if code & !NONCE == MARK { Some(code & NONCE) } else { None }
    }
}

/// Most entries of the maps that hold a node's processes and cgroups.
pub mod capacity {
    pub const WATCHED: u32 = 65_536;
    pub const SIGNALLED: u32 = 16_384;
    pub const ENDED: u32 = 16_384;
    pub const ARMED: u32 = 16_384;
    pub const CLOSED_PORTS: u32 = 16_384;
    /// A node has some hundred containers and units.
    pub const ACCOUNTS: u32 = 4_096;
    pub const PORTS_HELD: u32 = 4_096;
    pub const LOST_CONNECTS: u32 = super::connects::BUCKETS;
    /// By the map's name: user space makes them smaller where the kernel grants less memory.
    pub const ALL: [(&str, u32); 8] = [
        ("WATCHED", WATCHED),
        ("SIGNALLED", SIGNALLED),
        ("ENDED", ENDED),
        ("ARMED", ARMED),
        ("CLOSED_PORTS", CLOSED_PORTS),
        ("ACCOUNTS", ACCOUNTS),
        ("PORTS_HELD", PORTS_HELD),
        ("LOST_CONNECTS", LOST_CONNECTS),
    ];
}

/// Values in the `ARMED` map: why the sockets of the cgroup are recorded.
pub mod armed_by {
    /// A reason that the cgroup's own processes cannot make, or user space.
    pub const OTHERS: u32 = 1;
    /// See [`armed_flags::BY_OWN`](super::armed_flags::BY_OWN).
    pub const OWN: u32 = 2;
}

/// Places of the map `AT_FUNCTIONS`: resets without a socket that passed the programs at functions.
pub mod at_functions {
    /// `tcp_v4_send_reset`.
    pub const IPV4: u32 = 0;
    /// `tcp_v6_send_reset`.
    pub const IPV6: u32 = 1;
    pub const SLOTS: u32 = 2;
}

/// Entries of the `ARMED_COUNT` array; their sum is the number of armed cgroups. While it is 0, TCP probes record nothing.
pub mod armed_count {
    /// Added to by the probes only.
    pub const KERNEL: u32 = 0;
    /// Written by user space only: what it has armed, minus what it has disarmed (two's complement).
    pub const USER: u32 = 1;
    pub const SLOTS: u32 = 2;
}

/// An entry of `CLOSED_PORTS`: the cgroup v2 id of the listener that was closed there, and its owner.
pub type ClosedPort = [u64; 2];

pub mod closed_by {
    /// Places in a [`ClosedPort`](super::ClosedPort).
    pub const CGROUP: usize = 0;
    pub const OWNER: usize = 1;
}

/// A network namespace in a [`ListenerKey`]: the inode number, and above it 16 bits of the kernel's random number for the namespace, where the
/// kernel's types have that. The number alone is not enough: the kernel gives the lowest free one, that of a terminated pod to the next pod.
/// 0 unknown.
pub type Netns = u64;

pub const fn netns(inode: u32, random: u32) -> Netns {
    inode as u64 | ((random ^ random >> 16) as u64 & 0xffff) << 48
}

/// Key of `CLOSED_PORTS`: network namespace, port (host byte order), and the listener's address as in [`Tcp::local`], in
/// words as they are in memory. Another process of the namespace can listen on the same port of another address.
pub type ListenerKey = [u64; 3];

pub const fn closed_port(netns: Netns, port: u16, address: [u64; 2]) -> ListenerKey {
    [netns | (port as u64) << 32, address[0], address[1]]
}

const _: () = {
    let (first, second) = (netns(4_026_532_000, 0x1234_5678), netns(4_026_532_000, 0x1234_5679));
    let address = address::ANY_V6;
    // The same inode number of another namespace is another key; the record has the inode number.
    assert!(closed_port(first, 8080, address)[0] != closed_port(second, 8080, address)[0]);
    assert!(first as u32 == 4_026_532_000 && second as u32 == first as u32);
    // No part covers another.
    assert!(closed_port(netns(u32::MAX, 0), 0, address)[0] == 0xffff_ffff);
    assert!(closed_port(0, u16::MAX, address)[0] == 0xffff << 32);
    assert!(closed_port(netns(0, 0xffff), 0, address)[0] == 0xffff << 48);
};

/// Addresses in words as they are in memory.
pub mod address {
    /// `0.0.0.0` and `::`.
    pub const ANY_V4: [u64; 2] = [0, 0x0000_ffff_0000_0000_u64.to_be()];
    pub const ANY_V6: [u64; 2] = [0, 0];
    const V4: u64 = 0xffff_ffff_0000_0000_u64.to_be();
    const LOOPBACK_V4: u64 = 0x0000_ffff_7f00_0000_u64.to_be();
    const LOOPBACK_V4_NET: u64 = 0xffff_ffff_ff00_0000_u64.to_be();
    const LOOPBACK_V6: u64 = 1_u64.to_be();

    pub const fn is_v4([first, last]: [u64; 2]) -> bool {
        first == 0 && last & V4 == ANY_V4[1]
    }

    pub const fn is_loopback([first, last]: [u64; 2]) -> bool {
        first == 0 && (last == LOOPBACK_V6 || last & LOOPBACK_V4_NET == LOOPBACK_V4)
    }
}
