//! Kernel events: a probe's record, parsed. Made by `decode`, nowhere else.

use std::net::{IpAddr, SocketAddr};

use crate::ids::{CgroupId, Comm, Pid, Signal};
use crate::time::Boot;

/// A process as the kernel saw it at that moment; see [`epitaph_ebpf::Task`] for units.
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
    /// Its cgroup of v1, where that tells tasks apart beside v2.
    pub beside: Option<CgroupId>,
    pub start: Boot,
    pub comm: Comm,
}

impl Task {
    /// The first process of a pid namespace other than the initial one: unhandled signals do not reach it.
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

/// What the target's signal table has for the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    Unknown,
    Default,
    Ignore,
    Handler,
}

/// State of the target when the signal was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetState {
    pub blocked: bool,
    pub stopped: bool,
    pub frozen: bool,
    pub exiting: bool,
    pub traced: bool,
}

/// Kernel constants of `si_code`.
pub mod si_code {
    pub const USER: i32 = 0;
    pub const KERNEL: i32 = 128;
    pub const TKILL: i32 = -6;
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
    pub group: bool,
    pub result: SignalResult,
    pub disposition: Disposition,
    pub state: TargetState,
}

/// An agent, this one or another, says that it observes this machine: a [`SignalGenerate`] that stops nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub task: Task,
    /// Drawn by chance at its start.
    pub nonce: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalDeliver {
    pub task: Task,
    pub signal: Signal,
}

/// How a process ended, exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Exited(u8),
    Signaled { signal: Signal, core_dumped: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    pub task: Task,
    pub status: ExitStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExec {
    pub task: Task,
    pub parent_cgroup: CgroupId,
    /// As [`Task::beside`].
    pub parent_beside: Option<CgroupId>,
    pub parent_comm: Comm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomVictim {
    pub victim: Pid,
    /// None on kernels whose tracepoint gives only the pid.
    pub task: Option<Task>,
    pub trigger: Pid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMkdir {
    pub cgroup: CgroupId,
    pub parent: CgroupId,
    /// From the hierarchy's root; None where the kernel cut it (the source then asks the file system).
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
    State { old: TcpState, new: TcpState },
    ResetSent { reason: u32 },
    ResetReceived,
    Error { errno: u32 },
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

/// Whose connect it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The kubelet's: a probe or a hook.
    Kubelet,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    pub op: TcpOp,
    /// The socket's own cgroup (where `foreign`, that of the process that ended), or that of the closed listener where no socket stood behind the event; None unknown.
    pub cgroup: Option<CgroupId>,
    pub netns: u32,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// False where the packet met no socket (a refused SYN).
    pub has_socket: bool,
    /// No process holds the socket: not accepted yet, or closed before.
    pub unheld: bool,
    /// Without a socket: the packet was no SYN, so the client believed in a connection.
    pub not_syn: bool,
    /// It is the end of a connect, and evidence about the remote end: then `cgroup` is the client's own.
    pub client: Option<Client>,
    /// The socket was closed by the end of its process, not by a close(2) of its own.
    pub by_exit: bool,
    /// A process of `cgroup` ended and closed a connection whose socket belongs to another cgroup, one handed over.
    pub foreign: bool,
    /// `sk_err` at the event; 0 none.
    pub sk_err: u32,
    /// Process that was current.
    pub tgid: Pid,
    pub counts: Option<TcpCounts>,
}

impl Tcp {
    /// IPv4 where the wire carries an IPv4-mapped address.
    pub fn address(bytes: [u8; 16], port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::from(bytes).to_canonical(), port)
    }
}

/// A kernel record, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    SignalGenerate(SignalGenerate),
    Hello(Hello),
    SignalDeliver(SignalDeliver),
    ProcessExit(ProcessExit),
    ProcessExec(ProcessExec),
    OomVictim(OomVictim),
    CgroupMkdir(CgroupMkdir),
    CgroupRmdir(CgroupRmdir),
    Tcp(Tcp),
}

/// Kinds of evidence that can be lost or unavailable, by probe.
pub use epitaph_ebpf::Kind;
