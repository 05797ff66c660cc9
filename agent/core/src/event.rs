//! Domain events: what a source can say, parsed. Made by `decode` (kernel records) and the `source` rooms, nowhere else.
//!
//! *Architecture invariant*: no clock, no environment, no files here, and no text that was not bounded and escaped.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::pod::{ApiClock, PodEvent, PodEventsUpdate, PodFact, PodGone, PodsState};

/// A moment on `CLOCK_BOOTTIME`, nanoseconds since boot: monotonic, counts suspend, the same for kernel and user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Boot(pub u64);

impl Boot {
    pub const fn from_nanos(nanos: u64) -> Self {
        Boot(nanos)
    }
    /// Time from `earlier` to `self`; zero where `earlier` is later.
    pub const fn since(self, earlier: Boot) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
    pub fn plus(self, d: Duration) -> Boot {
        Boot(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
    pub fn minus(self, d: Duration) -> Boot {
        Boot(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Wall-clock time, nanoseconds since the Unix epoch. Never compared with [`Boot`] but through a [`WallOffset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(pub u64);

impl Wall {
    pub fn system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.0)
    }

    /// RFC 3339, UTC: `2026-11-21T11:44:10.123456789Z`.
    pub fn rfc3339(self) -> String {
        humantime::format_rfc3339_nanos(self.system_time()).to_string()
    }

    /// As [`Wall::rfc3339`] to the millisecond, for people.
    pub fn rfc3339_millis(self) -> String {
        humantime::format_rfc3339_millis(self.system_time()).to_string()
    }
}

/// `CLOCK_REALTIME` minus `CLOCK_BOOTTIME`, nanoseconds, as the clock room measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallOffset(pub i64);

impl WallOffset {
    pub const fn wall(self, at: Boot) -> Wall {
        Wall(at.0.saturating_add_signed(self.0))
    }

    pub const fn boot(self, at: Wall) -> Boot {
        Boot(at.0.saturating_add_signed(self.0.saturating_neg()))
    }
}

/// Process id in the initial pid namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A cgroup: its hierarchy (0 is cgroup v2) and the inode number of its directory there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CgroupId {
    pub hierarchy: u32,
    pub id: u64,
}

impl CgroupId {
    pub const fn v2(id: u64) -> Self {
        CgroupId { hierarchy: 0, id }
    }
    /// The kernel never gives a directory inode 0: an id of 0 was not read.
    pub const fn is_known(self) -> bool {
        self.id != 0
    }
}

/// Signal number, 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signal(u8);

impl Signal {
    pub const ABRT: Signal = Signal(6);
    pub const KILL: Signal = Signal(9);
    pub const TERM: Signal = Signal(15);
    pub const CONT: Signal = Signal(18);
    pub const STOP: Signal = Signal(19);

    pub const fn new(number: u32) -> Option<Signal> {
        if number >= 1 && number <= 64 {
            Some(Signal(number as u8))
        } else {
            None
        }
    }
    pub const fn number(self) -> u8 {
        self.0
    }
    /// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: what a program's own fault raises.
    pub const fn is_fault(self) -> bool {
        matches!(self.0, 4 | 5 | 6 | 7 | 8 | 11 | 31)
    }
    /// SIGXCPU, SIGXFSZ: a resource limit was exceeded.
    pub const fn is_resource_limit(self) -> bool {
        matches!(self.0, 24 | 25)
    }
    /// SIGPIPE, SIGALRM, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF: what a process does to itself; mostly not even recorded.
    pub const fn is_self_inflicted(self) -> bool {
        matches!(self.0, 13 | 14 | 26 | 27) || self.is_resource_limit()
    }
    /// SIGHUP, SIGINT, SIGQUIT, SIGTERM: what a person sends to end a process.
    pub const fn is_request(self) -> bool {
        self.is_from_terminal() || self.0 == Signal::TERM.0
    }
    /// SIGHUP, SIGINT, SIGQUIT: what a terminal sends to end its processes.
    pub const fn is_from_terminal(self) -> bool {
        matches!(self.0, 1..=3)
    }
    /// A signal that means "stop" everywhere: SIGTERM, SIGINT, SIGQUIT, the real-time ones; not SIGHUP, SIGUSR1, SIGUSR2,
    /// SIGWINCH, which mostly mean "reload".
    pub const fn is_conventional_stop(self) -> bool {
        matches!(self.0, 2 | 3 | 15) || self.is_real_time()
    }
    /// From glibc's SIGRTMIN on.
    pub const fn is_real_time(self) -> bool {
        self.0 >= SIGRTMIN
    }
    /// SIGCONT, SIGSTOP, and the terminal's stops SIGTSTP, SIGTTIN, SIGTTOU: a process goes on or stands still, and does not end.
    pub const fn is_job_control(self) -> bool {
        matches!(self.0, 18..=22)
    }
    /// SIGCHLD, SIGURG, SIGWINCH: ignored by default, so that a process without a handler never notices them.
    pub const fn is_ignored_by_default(self) -> bool {
        matches!(self.0, 17 | 23 | 28)
    }
    /// Ends a process that has no handler.
    pub const fn is_deadly(self) -> bool {
        !self.is_job_control() && !self.is_ignored_by_default()
    }
}

/// glibc's: it keeps 32 and 33 to itself.
const SIGRTMIN: u8 = 34;

/// `SIGTERM`, `SIGRTMIN+3`.
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 31] = [
            "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
            "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
            "PWR", "SYS",
        ];
        match self.0 {
            n @ 1..=31 => write!(f, "SIG{}", NAMES[usize::from(n) - 1]),
            SIGRTMIN => f.write_str("SIGRTMIN"),
            n @ SIGRTMIN..=64 => write!(f, "SIGRTMIN+{}", n - SIGRTMIN),
            n => write!(f, "SIG{n}"),
        }
    }
}

/// A process's `comm`: bytes chosen by the process. `Display` escapes all that is not printable ASCII or valid UTF-8 text,
/// so it never carries an escape sequence to a terminal or a log.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Comm(pub [u8; 16]);

impl Comm {
    pub fn new(name: &str) -> Comm {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().take(15).zip(name.bytes()) {
            *to = from;
        }
        Comm(bytes)
    }
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() || c == '\\' {
                    write!(f, "{}", c.escape_default())?
                } else {
                    fmt::Write::write_char(f, c)?
                }
            }
            for b in chunk.invalid() {
                write!(f, "\\x{b:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

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
    /// Its cgroup of v1, where that tells tasks apart alongside v2.
    pub v1_cgroup: Option<CgroupId>,
    /// The cgroup of the outermost container around it, as the kernel side knows it: see [`epitaph_ebpf::Task::container`].
    /// None: not known there.
    pub container: Option<CgroupId>,
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

/// What the target's signal table said.
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
    /// The target thread waited for the signal in sigwait(3) or its kin.
    pub sigwait: bool,
}

/// Signals as a set: bit `number - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalSet(pub u64);

impl SignalSet {
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 >> (signal.number() - 1) & 1 != 0
    }
}

/// Whether the kernel records the TCP events of the sockets of a cgroup from an event on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    No,
    /// Because of an earlier one, or because user space said so.
    Already,
    /// This event is a reason to, the first or one more.
    ByThis,
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
    /// What waited to be read once this one was made; None unknown.
    pub pending: Option<SignalSet>,
    /// Of the target's cgroup. None: a record of an older epitaph, which does not say.
    pub armed: Option<Armed>,
}

/// An agent, this one or a peer, announces that it observes this machine: a [`SignalGenerate`] that stops nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAnnouncement {
    pub task: Task,
    /// Drawn by chance at its start.
    pub nonce: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalDeliver {
    pub task: Task,
    pub signal: Signal,
}

/// A namespace's init read a signal for which it has no handler, and the kernel discarded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalDiscarded {
    pub task: Task,
    pub signal: Signal,
}

/// How a process ended, exactly.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    pub task: Task,
    pub status: ExitStatus,
    /// As [`SignalGenerate::armed`], of the task's cgroup.
    pub armed: Option<Armed>,
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
    /// The container that it inherits, as [`Task::container`].
    pub container: Option<CgroupId>,
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

/// How far both sides were at the event; wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpProgress {
    /// Jiffies, low 32 bits, as the times in [`TcpCounts`].
    pub jiffies: u32,
    /// Bytes written that the other side has not acknowledged.
    pub unacknowledged: u32,
    /// Bytes received that the process has not read.
    pub unread: u32,
    pub data_segments_sent: u32,
    pub data_segments_received: u32,
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
    /// Of `cgroup`, as [`Task::container`].
    pub container: Option<CgroupId>,
    pub netns: u32,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// False where the packet met no socket (a refused SYN).
    pub has_socket: bool,
    /// No process holds the socket: not accepted yet, or closed before.
    pub unheld: bool,
    /// Without a socket: the packet was no SYN, so the client believed in a connection.
    pub not_syn: bool,
    /// It is the end of a connect, and tells of the remote end: then `cgroup` is the client's own.
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
    /// None: not read, as by the probes of older epitaphs.
    pub progress: Option<TcpProgress>,
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

/// A cgroup that exists: from the scan at the start, or asked for when an event named an id nobody knew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupFact {
    pub cgroup: CgroupId,
    /// From the hierarchy's root; None where it is gone or was not readable, with the reason.
    pub path: Result<String, String>,
}

impl CgroupFact {
    /// The reason in `path` where the cgroup is gone from the file system; any other text says why it was not readable.
    pub const GONE: &str = "gone";
    /// The reason where nobody looked: asked again, there may be an answer.
    pub const BUSY: &str = "too many unknown cgroups at once to look for each";
}

/// A process as `/proc` shows it: the processes of a subject at the start, and those whose cgroup the kernel could not tell
/// (cgroup v1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFact {
    pub tgid: Pid,
    pub ppid: Pid,
    /// `/proc/PID/stat` starttime on CLOCK_BOOTTIME; resolution one clock tick (10 ms): less exact than a kernel record's.
    pub start: Boot,
    pub ns_level: u32,
    pub ns_pid: u32,
    pub comm: String,
    /// One entry per hierarchy: the cgroup (id 0 where its directory was not found) and its path. Ordered by how well the
    /// hierarchy tells containers and units apart: those of kernel records ([`CgroupMode::hierarchy`], v1 alongside it), `name=systemd`,
    /// memory, then the others.
    /// Empty where the process was gone or not readable: then only `tgid` means anything.
    pub cgroups: Vec<(CgroupId, String)>,
}

impl ProcessFact {
    /// The answer for a process that is gone, or that `/proc` does not show.
    pub fn gone(tgid: Pid) -> ProcessFact {
        let zero = Pid::default();
        ProcessFact {
            tgid,
            ppid: zero,
            start: Boot(0),
            ns_level: 0,
            ns_pid: 0,
            comm: String::new(),
            cgroups: Vec::new(),
        }
    }
    pub fn is_gone(&self) -> bool {
        self.cgroups.is_empty()
    }
}

/// State of one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeState {
    Active,
    /// On this kernel it tells less or nothing, and another probe tells that: its tracepoint, and in brackets what it tells.
    Substituted {
        by: String,
    },
    /// This kernel cannot have it.
    Unsupported(String),
    /// It should have worked.
    Failed(String),
}

/// Without these probes no death is seen at all; without any other one verdicts only know less, and say so.
pub const ESSENTIAL: [&str; 2] = ["signal_generate", "sched_process_exit"];

impl ProbeState {
    /// Whether what the probe is there for is told, by itself or by another.
    pub fn is_told(&self) -> bool {
        matches!(self, ProbeState::Active | ProbeState::Substituted { .. })
    }
}

/// Who is observing, since when, on which machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    pub host: String,
    pub kernel: String,
    pub wall_offset: WallOffset,
    /// From here on the probes see everything; what ended or was signalled before is not known.
    pub since: Boot,
    #[serde(alias = "hybrid", deserialize_with = "cgroups")]
    pub cgroups: CgroupMode,
}

/// Which cgroup hierarchies a machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupMode {
    #[default]
    V2,
    /// v1 alongside v2: a process's v2 cgroup then need not be its container's, and the v2 root says nothing about it.
    Hybrid,
    /// No v2. Tasks are told apart in this hierarchy, the number in `/proc/PID/cgroup`; what sockets are whose nobody knows.
    V1(u32),
}

/// A hierarchy of cgroup v1 by which the probes can tell tasks apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V1 {
    /// There is no v2.
    pub is_alone: bool,
    /// As in `/proc/PID/cgroup`; never 0.
    pub hierarchy: u16,
    /// One of its controllers, as `/proc/cgroups` names it.
    pub controller: String,
}

impl CgroupMode {
    /// Of the cgroups that a kernel record gives for a task.
    pub const fn hierarchy(self) -> u32 {
        match self {
            CgroupMode::V2 | CgroupMode::Hybrid => 0,
            CgroupMode::V1(hierarchy) => hierarchy,
        }
    }

    /// Whether `/proc/PID/cgroup` may know better than a kernel record.
    pub const fn has_v1(self) -> bool {
        !matches!(self, CgroupMode::V2)
    }
}

/// Recordings made before there was [`CgroupMode::V1`] say whether it was hybrid.
fn cgroups<'de, D: serde::Deserializer<'de>>(from: D) -> Result<CgroupMode, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Hybrid(bool),
        CgroupMode(CgroupMode),
    }
    Ok(match Either::deserialize(from)? {
        Either::Hybrid(false) => CgroupMode::V2,
        Either::Hybrid(true) => CgroupMode::Hybrid,
        Either::CgroupMode(cgroups) => cgroups,
    })
}

/// All that any source can say. Closed: the core handles every kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// First input of every run, and again after a gap.
    Start(Observation),
    Probe {
        name: String,
        state: ProbeState,
    },
    /// A kernel record and its own time, which may be earlier than that of an input before it (per-CPU order).
    Kernel {
        at: Boot,
        event: Event,
    },
    Cgroup(CgroupFact),
    Process(ProcessFact),
    /// How far the Kubernetes API is with us; before the first of these nobody expects pods.
    Pods(PodsState),
    /// A pod of this node is new, or has changed.
    Pod(std::sync::Arc<PodFact>),
    PodGone(PodGone),
    PodEvent(PodEvent),
    PodEvents(PodEventsUpdate),
    ApiClock(ApiClock),
    /// `count` records of `kind` were lost between the last report and now (user space reads the counters at least each
    /// second, and after every exit before it is judged).
    Lost {
        kind: Kind,
        since: Boot,
        count: u64,
    },
    /// Wall-clock offset changed (NTP step, suspend).
    Clock(WallOffset),
    /// Nothing but time (the caller's `now`): lets the core finish what is due.
    Tick,
    /// No more input will come (end of a recording, shutdown): finish what can be finished now.
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_has_nanoseconds() {
        assert_eq!(Wall(0).rfc3339(), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(Wall(1_795_261_450_123_456_789).rfc3339(), "2026-11-21T11:44:10.123456789Z");
        assert_eq!(Wall(u64::MAX).rfc3339(), "2554-07-21T23:34:33.709551615Z");
        assert_eq!(Wall(1_795_261_450_123_456_789).rfc3339_millis(), "2026-11-21T11:44:10.123Z");
    }

    #[test]
    fn a_signal_is_in_the_sets_of_its_meaning() {
        let of = |is: fn(Signal) -> bool| {
            let all = (1..=64).filter_map(Signal::new).filter(|&signal| is(signal));
            all.map(Signal::number).collect::<Vec<_>>()
        };
        assert_eq!(of(Signal::is_request), [1, 2, 3, 15]);
        assert_eq!(of(Signal::is_self_inflicted), [13, 14, 24, 25, 26, 27]);
        assert_eq!(of(Signal::is_conventional_stop)[..4], [2, 3, 15, 34]);
        assert_eq!(of(|signal| !signal.is_deadly()), [17, 18, 19, 20, 21, 22, 23, 28]);
    }
}
