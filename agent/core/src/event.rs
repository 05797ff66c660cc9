//! Kernel events: a probe's record, parsed. Made by `decode`, nowhere else.

use std::net::{IpAddr, SocketAddr};

use crate::ids::{CgroupId, Comm, Pid, Signal, SystemCall};
use crate::time::Boot;

/// A process at the time of the event; see [`epitaph_ebpf::Task`] for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub tgid: Pid,
    pub tid: Pid,
    pub ppid: Pid,
    pub ns_level: u32,
    pub ns_pid: u32,
    /// 0 unknown.
    pub pidns: u32,
    pub cgroup: CgroupId,
    /// The v1 cgroup, if v1 separates tasks alongside v2.
    pub v1_cgroup: Option<CgroupId>,
    /// The cgroup of the outermost container, known to the kernel side: see [`epitaph_ebpf::Task::container`]. None: not known
    /// there.
    pub container: Option<CgroupId>,
    pub start: Boot,
    pub comm: Comm,
}

impl Task {
    /// The first process of a pid namespace other than the initial one: the kernel discards unhandled signals to this process.
    pub const fn is_ns_init(&self) -> bool {
        self.ns_level > 0 && self.ns_pid == 1
    }
}

/// The tracepoint's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalResult {
    Delivered,
    Ignored,
    AlreadyPending,
    OverflowFail,
    LoseInfo,
}

names! {
    SignalResult:
    Delivered => "delivered",
    Ignored => "ignored",
    AlreadyPending => "already-pending",
    OverflowFail => "overflow-fail",
    LoseInfo => "lose-info",
}

/// The signal's entry in the target's signal table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    Unknown,
    Default,
    Ignore,
    Handler,
}

names! {
    Disposition:
    Unknown => "unknown",
    Default => "default",
    Ignore => "ignore",
    Handler => "handler",
}

/// State of the target when the signal was generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetState {
    pub blocked: bool,
    pub stopped: bool,
    pub frozen: bool,
    pub exiting: bool,
    pub traced: bool,
    /// The target thread waited for this signal, not only for another, in sigwait(3) or a similar call.
    pub sigwait: bool,
}

impl TargetState {
    /// The names of those that hold.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let TargetState {
            blocked,
            stopped,
            frozen,
            exiting,
            traced,
            sigwait,
        } = self;
        let all = [
            (blocked, "blocked"),
            (stopped, "stopped"),
            (frozen, "frozen"),
            (exiting, "exiting"),
            (traced, "traced"),
            (sigwait, "sigwait"),
        ];
        all.into_iter().filter_map(|(is, name)| is.then_some(name))
    }
}

/// Signals as a set: bit `number - 1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet(pub u64);

impl SignalSet {
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 >> (signal.number() - 1) & 1 != 0
    }

    pub const fn with(self, signal: Signal) -> SignalSet {
        SignalSet(self.0 | 1 << (signal.number() - 1))
    }
}

/// Whether the kernel records the TCP events of the sockets of a cgroup from an event on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    No,
    /// Because of an earlier event, or because user space armed them.
    Already,
    /// This event arms the sockets, as the first reason or as another.
    ByThis,
    /// The same, for a doing of the subject's own: disarmed soon if the subject goes on.
    ByOwn,
}

impl Armed {
    pub const fn is_armed(self) -> bool {
        !matches!(self, Armed::No)
    }
}

/// Kernel constants of `si_code`.
pub mod si_code {
    pub const USER: i32 = 0;
    pub const KERNEL: i32 = 128;
    /// Of SIGSYS.
    pub const SYS_SECCOMP: i32 = 1;
    pub const QUEUE: i32 = -1;
    pub const TIMER: i32 = -2;
    pub const SIGIO: i32 = -5;
    pub const TKILL: i32 = -6;
    pub const ASYNCNL: i32 = -60;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalGenerate {
    pub sender: Task,
    /// The sender's parent's comm; its pid is `sender.ppid`.
    pub sender_parent_comm: Comm,
    pub sender_grandparent: Pid,
    pub target: Task,
    pub signal: Signal,
    pub code: i32,
    /// The kernel made the signal. `code` does not prove this: a process may queue itself a signal with [`si_code::KERNEL`].
    pub from_kernel: bool,
    pub group: bool,
    pub result: SignalResult,
    pub disposition: Disposition,
    pub state: TargetState,
    /// Of SIGSYS, the system call for which the kernel raised it; None unknown, or it was sent.
    pub call: Option<SystemCall>,
    /// The pending signals after this signal; None unknown.
    pub pending: Option<SignalSet>,
    /// The state of the target's cgroup. None: a record of an older epitaph without this field.
    pub armed: Option<Armed>,
}

impl SignalGenerate {
    /// The kernel made the signal for a timer, a file or a queue: the current process has nothing to do with it, unless it is the target.
    /// The negative codes can be forged with rt_sigqueueinfo(2): then the sender is unknown, too.
    pub fn is_of_no_sender(&self) -> bool {
        let is_made = self.code > 0 || self.code == si_code::ASYNCNL || (si_code::SIGIO..=si_code::TIMER).contains(&self.code);
        is_made && !self.from_kernel && self.sender.tgid != self.target.tgid
    }
}

/// An agent, this one or a peer, announces that it observes this machine: a [`SignalGenerate`] that stops no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAnnouncement {
    pub task: Task,
    /// A random number, chosen at the agent's start.
    pub nonce: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalDeliver {
    pub task: Task,
    pub signal: Signal,
    /// Open while the subject stops, and perhaps closed before the process exits.
    pub open: UnseenSockets,
}

/// Sockets of clients that no probe observes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnseenSockets {
    /// A bound UDP socket that is not connected; of an exit also a connection that a Unix stream socket had accepted.
    pub udp: bool,
    /// A listener on a Unix stream socket.
    pub unix_listener: bool,
    /// The same, and nobody else held it: no client can connect once it is closed.
    pub last_unix_listener: bool,
    /// It may have had more: not all of its descriptors were looked at.
    pub more: bool,
}

/// A namespace's init read a signal for which it has no handler, and the kernel discarded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalDiscarded {
    pub task: Task,
    pub signal: Signal,
}

/// The exact exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Exited(u8),
    Signaled { signal: Signal, core_dumped: bool },
}

impl ExitStatus {
    /// The exit code that a runtime reports for it: 128 + n for a signal.
    pub fn reported_code(self) -> i32 {
        match self {
            ExitStatus::Exited(code) => code.into(),
            ExitStatus::Signaled { signal, .. } => 128 + i32::from(signal.number()),
        }
    }

    pub const fn code(self) -> Option<u8> {
        match self {
            ExitStatus::Exited(code) => Some(code),
            ExitStatus::Signaled { .. } => None,
        }
    }

    /// The signal that ended it.
    pub const fn signal(self) -> Option<Signal> {
        match self {
            ExitStatus::Exited(_) => None,
            ExitStatus::Signaled { signal, .. } => Some(signal),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    pub task: Task,
    pub status: ExitStatus,
    /// As [`SignalGenerate::armed`], of the task's cgroup.
    pub armed: Option<Armed>,
    /// None: not looked at, as by older probes. Of a process that came in from outside only what a server has.
    pub held: Option<HeldSockets>,
    /// The kernel shows that it did not come in from outside. An orphan of the host's pids looks as if it did.
    pub is_own: bool,
    /// It had a socket of clients that no probe observes: a connection that a Unix stream socket had accepted, or a UDP socket that serves.
    pub unobserved: bool,
    /// Other tasks remained in its cgroups.
    pub leaves_others: bool,
}

impl ProcessExit {
    /// What it had open of which no probe observes the clients.
    pub fn unseen(&self) -> UnseenSockets {
        let held = self.held.unwrap_or_default();
        UnseenSockets {
            udp: self.unobserved,
            unix_listener: held.unix_listener,
            last_unix_listener: held.last_unix_listener,
            more: held.more,
        }
    }

    /// As far as the kernel looked, it served clients.
    pub fn served(&self) -> bool {
        let is_program = |held: HeldSockets| held.listener || held.connection || held.unix_listener;
        self.unobserved || self.held.is_some_and(is_program)
    }
}

/// The sockets that a process had open at its exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldSockets {
    pub listener: bool,
    /// A TCP connection on a port that a process had bound: of a client, as far as the kernel shows that.
    pub connection: bool,
    /// It may have had more: not all of its descriptors were looked at.
    pub more: bool,
    /// A listener on a Unix stream socket.
    pub unix_listener: bool,
    /// The same, and nobody else held it: no client can connect any more.
    pub last_unix_listener: bool,
}

impl HeldSockets {
    /// The exit may have cost a client a connection that the kernel could record. One that came in from outside and has many files is a probe,
    /// or the main process, whose exit has the sockets recorded anyway.
    pub const fn is_of_clients(self, is_own: bool) -> bool {
        self.listener || self.connection || self.more && is_own
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExec {
    pub task: Task,
    pub parent_cgroup: CgroupId,
    /// As [`Task::v1_cgroup`].
    pub parent_v1_cgroup: Option<CgroupId>,
    /// As [`Task::container`].
    pub parent_container: Option<CgroupId>,
    pub parent_comm: Comm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomVictim {
    pub victim: Pid,
    /// None on kernels whose tracepoint gives only the pid.
    pub task: Option<Task>,
    pub trigger: Pid,
    /// As [`SignalGenerate::armed`], of the victim's cgroup.
    pub armed: Option<Armed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMkdir {
    pub cgroup: CgroupId,
    pub parent: CgroupId,
    /// The inherited container, as [`Task::container`].
    pub container: Option<CgroupId>,
    /// From the hierarchy's root; None if the kernel truncated the path (the source then reads the file system).
    pub path: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupRmdir {
    pub cgroup: CgroupId,
}

/// `include/net/tcp_states.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    Established,
    SynSent,
    SynRecv,
    FinWait1,
    FinWait2,
    TimeWait,
    Close,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    NewSynRecv,
    BoundInactive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOp {
    State {
        old: TcpState,
        new: TcpState,
    },
    /// `state`: of the sending socket. CLOSE: the program aborted the connection, or closed it with bytes unread; any other: the
    /// answer to a packet. None: no socket.
    ResetSent {
        reason: u32,
        state: Option<TcpState>,
    },
    ResetReceived,
    Error {
        errno: u32,
    },
}

/// Payload counts and the order of the last send and the last receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpCounts {
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Jiffies, low 32 bits.
    pub last_sent: u32,
    pub last_received: u32,
}

/// Progress of both sides at the event; wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpProgress {
    /// Jiffies, low 32 bits, as the times in [`TcpCounts`].
    pub jiffies: u32,
    /// Bytes written that the other side has not acknowledged.
    pub unacknowledged: u32,
    /// Bytes written were never sent; false also where that was not recorded.
    pub unsent: bool,
    /// Bytes received that the process has not read.
    pub unread: u32,
    pub data_segments_sent: u32,
    pub data_segments_received: u32,
}

/// Values of [`server_hash`].
pub const SERVER_HASHES: usize = epitaph_ebpf::connects::BUCKETS as usize;

/// By which the probes count lost connects to a server.
pub fn server_hash(address: IpAddr) -> u32 {
    let octets = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
    .octets();
    let half = |of: usize| u64::from_ne_bytes(std::array::from_fn(|i| octets[8 * of + i]));
    epitaph_ebpf::connects::bucket([half(0), half(1)])
}

/// The client of a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The kubelet's: a probe or a hook.
    Kubelet,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    pub op: TcpOp,
    /// The socket's own cgroup; if `foreign`, the exited process's; for an event without a socket, the closed listener's. None unknown.
    pub cgroup: Option<CgroupId>,
    /// The container of `cgroup`, as [`Task::container`].
    pub container: Option<CgroupId>,
    pub netns: u32,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// False if the packet reached no socket (a refused SYN).
    pub has_socket: bool,
    /// Without a socket: the packet was not a SYN, so the client had a connection.
    pub not_syn: bool,
    /// Of a SYN that met no socket: sent again it has the same, and a new connect has another. None: not recorded, as by older probes.
    pub sequence: Option<u32>,
    /// The event is the end of a connect, and evidence about the remote end: then `cgroup` is the client's own.
    pub client: Option<Client>,
    pub close: Close,
    /// `sk_err` at the event; 0 none.
    pub sk_err: u32,
    /// The current process.
    pub tgid: Pid,
    pub counts: Option<TcpCounts>,
    /// None: not read, as by older probes.
    pub progress: Option<TcpProgress>,
}

/// How a socket was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Close {
    /// No process holds the socket: not accepted yet, or closed before.
    pub unheld: bool,
    /// By the exit of its process, not by close(2).
    pub by_exit: bool,
    /// The process ended sending with shutdown(2).
    pub by_shutdown: bool,
    /// A process of `cgroup` exited and closed a connection on a handed-over socket that belongs to another cgroup.
    pub foreign: bool,
    /// A listener closed, and the sockets are recorded for the subject's own doing only, as [`Armed::ByOwn`].
    pub by_own: bool,
}

impl Tcp {
    /// A listener closes.
    pub fn closes_listener(&self) -> bool {
        let closes = TcpOp::State {
            old: TcpState::Listen,
            new: TcpState::Close,
        };
        self.op == closes
    }

    /// IPv4 for an IPv4-mapped address on the wire.
    pub fn address(bytes: [u8; 16], port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::from(bytes).to_canonical(), port)
    }
}

/// A kernel record, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    SignalGenerate(SignalGenerate),
    PeerAnnouncement(PeerAnnouncement),
    SignalDeliver(SignalDeliver),
    SignalDiscarded(SignalDiscarded),
    ProcessExit(ProcessExit),
    ProcessExec(ProcessExec),
    OomVictim(OomVictim),
    CgroupMkdir(CgroupMkdir),
    CgroupRmdir(CgroupRmdir),
    Tcp(Tcp),
}

/// Kinds of evidence that can be lost or unavailable, by probe.
pub use epitaph_ebpf::Kind;
