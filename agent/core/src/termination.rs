//! A termination: all that is known of one death, in the order it happened. What `correlate` makes and `render` reads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::attribute::{Attribution, Subject};
use crate::event::{Boot, CgroupId, Comm, Disposition, ExitStatus, Pid, Signal, SignalResult, TargetState};
use crate::kubernetes::{PodContext, PodTermination};
use crate::pod::{PodIdentity, Workload};
use crate::verdict::Verdict;
use crate::verdict::judge::{Case, Fatal, Holes, Open};

/// Names a death for good, on any machine and after any restart of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TerminationKey {
    pub boot_id: String,
    pub cgroup: CgroupId,
    /// Start of the main process: a unit's cgroup can see several deaths. 0 where the main process was never known.
    pub main_start: Boot,
}

/// A process that acted: sent a signal, or died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub tgid: Pid,
    pub comm: Comm,
    pub parent: Pid,
    pub parent_comm: Comm,
    pub place: Attribution,
    /// Whose container that is, where a status of its pod names it.
    pub pod: Option<Arc<PodContainer>>,
    pub role: Role,
}

/// A container by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodContainer {
    pub pod: Arc<PodIdentity>,
    pub container: String,
}

/// What the sender of a signal is to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The runtime that made the container, systemd for a unit: known by ancestry and cgroup, not by name.
    Runtime,
    /// The target itself.
    Itself,
    /// Another process of the same subject.
    Inside,
    /// Anything else on the machine, another container too.
    Other,
    /// The kernel, of its own accord (OOM, end of the pid namespace, resource limit).
    Kernel,
}

/// The main process: init of the container's pid namespace, or the first that came in from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainProcess {
    pub tgid: Pid,
    /// The pid that the process itself sees.
    pub ns_pid: u32,
    pub is_ns_init: bool,
    pub comm: Comm,
    pub start: Boot,
}

/// The first stop signal, and what the kernel did with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub at: Boot,
    pub signal: Signal,
    pub sender: Actor,
    pub result: SignalResult,
    pub disposition: Disposition,
    pub state: TargetState,
    /// The process entered its handler for it.
    pub handler_entered: Option<Boot>,
    /// Later stop signals to the main process (a second `docker stop`, an impatient operator).
    pub repeated: u32,
}

/// The SIGKILL that the main process got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    pub at: Boot,
    pub sender: Actor,
    /// By `cgroup.kill`.
    pub cgroup_kill: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainExit {
    pub at: Boot,
    pub status: ExitStatus,
}

/// A process of the subject that the OOM killer took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomKill {
    pub at: Boot,
    pub tgid: Pid,
    pub comm: Comm,
    pub is_main: bool,
}

/// Events of one kind: how many, from when to when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub count: u64,
    /// Meaningless where `count` is 0.
    pub first: Boot,
    pub last: Boot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerClosed {
    pub at: Boot,
    pub local: SocketAddr,
    /// Closed by the end of the process rather than by close(2).
    pub by_exit: bool,
}

/// What happened on the subject's sockets from the pod's request, else the stop signal (or, without one, its end) on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The TCP probes were active over the whole of it.
    pub observed: bool,
    /// Never observed: the kernel knows a socket by its cgroup v2, and the subject has none to itself, beside v1.
    pub cgroup_v1: bool,
    /// From when on the counts below are counted.
    pub since: Boot,
    /// Clients were still refused when counting had to end.
    pub refusing_on: bool,
    /// How a refused SYN was known: the server's RST, or the client's own error (on kernels before 6.12).
    pub refused_source: RefusedSource,
    pub listeners: Vec<ListenerClosed>,
    /// New connections accepted; the last one says until when clients still came.
    pub accepted: Count,
    /// SYNs answered by RST because nobody listened any more.
    pub refused: Count,
    /// The same by the port that they came to.
    pub refused_by_port: BTreeMap<u16, Count>,
    /// Established connections that the server's side reset.
    pub reset: Count,
    /// Of `reset`: those that no accept(2) had taken yet when their listener closed.
    pub reset_queued: u64,
    /// Connections open at the death and closed by it with a FIN, and not provably idle.
    pub cut: Count,
    /// Of `cut`: those where the client's last bytes had got no answer.
    pub cut_unanswered: u64,
    /// Connections closed by the death where the server had spoken last: idle keep-alive.
    pub idle_closed: Count,
    /// Connects from this node to the subject's own address and port that an ICMP error ended, and not the subject: a proxy's or
    /// a policy's REJECT, a route that was gone.
    pub rejected: Count,
    /// The kubelet's own probes and hooks: in none of the counts above.
    pub kubelet: KubeletTraffic,
}

/// Clients were refused on a port from its listener's close on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalWindow {
    pub closed: Boot,
    pub last: Boot,
}

/// See [`Traffic::kubelet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KubeletTraffic {
    /// False: the kubelet's cgroup is not known, so whatever it did counts as clients'.
    pub known: bool,
    pub accepted: Count,
    pub refused: Count,
    /// Reset or cut.
    pub broken: Count,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefusedSource {
    ServerReset,
    ClientError,
    /// Nothing was refused.
    #[default]
    None,
}

impl RefusalWindow {
    pub fn length(&self) -> Duration {
        self.last.since(self.closed)
    }
}

impl Traffic {
    /// One for each port: a server closes its admin's listener first, and drains behind the other.
    pub fn refusal_windows(&self) -> Vec<RefusalWindow> {
        if self.refused_by_port.is_empty() {
            return self.window(self.refused, |_| true).into_iter().collect();
        }
        let of_port = |(&port, &refused)| self.window(refused, |listener| listener.local.port() == port);
        self.refused_by_port.iter().filter_map(of_port).collect()
    }

    /// The longest of them; None where nobody was refused, or on a port of which no close was seen.
    pub fn refusal_window(&self) -> Option<Duration> {
        self.refusal_windows().iter().map(RefusalWindow::length).max()
    }

    fn window(&self, refused: Count, is_its: impl Fn(&ListenerClosed) -> bool) -> Option<RefusalWindow> {
        let closes = || self.listeners.iter().filter(|l| is_its(l)).map(|l| l.at);
        if refused.count == 0 || closes().next().is_none() {
            return None;
        }
        // The kernel unhashes a listener before it says so: a SYN can meet the closed port a moment before its close is told.
        let closed = closes().filter(|at| *at <= refused.first).max().unwrap_or(refused.first);
        Some(RefusalWindow {
            closed,
            last: refused.last,
        })
    }
}

/// How far the evidence goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Records lost while this was going on, by kind's name.
    pub lost: Vec<(&'static str, u64)>,
    /// Facts over the cap of one timeline: counted, not kept.
    pub over_cap: u64,
    /// It was already running when observation began, so a stop signal may have come before.
    pub late_start: bool,
    /// Probes that were not active, by name.
    pub inactive_probes: Vec<String>,
}

/// A finished death.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    pub key: TerminationKey,
    pub subject: Subject,
    /// Path of the subject's cgroup, where known.
    pub cgroup_path: Option<String>,
    pub main: Option<MainProcess>,
    /// First evidence: the stop signal, else the kill, else the end.
    pub begin: Boot,
    /// End of the main process, else of the cgroup.
    pub end: Boot,
    pub stop: Option<Stop>,
    pub kill: Option<Kill>,
    pub exit: Option<MainExit>,
    pub oom: Vec<OomKill>,
    /// Other processes of the subject that ended between `begin` and `end`.
    pub other_exits: u64,
    pub traffic: Traffic,
    pub gaps: Gaps,
    /// What else the verdict rests on: a pod's context may come later, and the death is then judged again.
    pub basis: Basis,
    /// What Kubernetes wanted of it; None where it is no pod's, or nobody asked the API.
    pub kubernetes: Option<Arc<PodContext>>,
    /// It is told by itself, for the observation ended, but it ended with its pod, whose own end whoever observes next tells: its
    /// spans belong into the pod's trace.
    pub of_ending_pod: bool,
    pub verdict: Verdict,
}

/// See [`Termination::basis`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    pub fatal: Option<Fatal>,
    pub holes: Holes,
    pub open: Open,
}

impl Termination {
    /// The observation ended before it did: whoever observes next tells its end.
    pub fn is_still_ending(&self) -> bool {
        self.basis.open == Open::ObservationEnded && self.exit.is_none()
    }

    /// The facts, for the judge.
    pub fn case(&self) -> Case<'_> {
        Case {
            subject: &self.subject,
            main: self.main.as_ref(),
            begin: self.begin,
            end: self.end,
            stop: self.stop.as_ref(),
            kill: self.kill.as_ref(),
            fatal: self.basis.fatal.as_ref(),
            exit: self.exit,
            oom: &self.oom,
            traffic: &self.traffic,
            holes: &self.basis.holes,
            open: self.basis.open,
            kubernetes: self.kubernetes.as_deref(),
        }
    }
}

/// The kernel dropped a stop signal: said at once, before the kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopSignalIgnored {
    pub key: TerminationKey,
    pub subject: Subject,
    pub main: Option<MainProcess>,
    pub at: Boot,
    pub signal: Signal,
    pub sender: Actor,
    pub disposition: Disposition,
    /// Time until the SIGKILL, where the grace is known.
    pub grace_left: Option<Duration>,
    pub kubernetes: Option<Arc<PodContext>>,
    pub sentence: String,
}

/// What the core says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Early(Box<StopSignalIgnored>),
    /// An OOM kill of a process that was not the main one, and the subject goes on.
    ChildOomKilled {
        subject: Subject,
        oom: OomKill,
    },
    /// A container or unit ended. One of a pod that goes on (a restart), or of a pod nobody can name, has its own trace.
    Terminated(Box<Termination>),
    /// A container of a pod that is being deleted still runs long after its grace: said once, with what is known by then. Its end
    /// is told as any other's, if it comes.
    Stuck(Box<Termination>),
    /// A pod is over, with all its containers that ended with it; they are not told as [`Output::Terminated`].
    PodTerminated(Box<PodTermination>),
    /// The first pod of a workload runs here.
    Workload(Workload),
    /// The last pod of one that was said so is gone from here: once for each [`Output::Workload`].
    WorkloadGone(Workload),
    /// A pod's deletion was asked for: its containers' sockets are to be watched from now on.
    Watch(CgroupId),
    /// The subject is over: its sockets need no watching any more.
    Forget(CgroupId),
    /// Ends that were not told, for their pods' owners want it so (`epitaph.dev/ignore`).
    OptedOut {
        count: u64,
    },
    /// Something was not kept, by reason.
    Dropped {
        reason: DropReason,
        count: u64,
    },
}

/// Why the core did not keep something. Names on metrics: `DropReason::name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// More live timelines than the cap: the longest idle was closed as unknown.
    TimelineCap,
    /// More facts in one timeline than the cap.
    FactCap,
    /// More dead or live cgroups than the index holds.
    IndexCap,
    /// An event whose process could not be attributed.
    Unattributed,
    /// More pods than the cap, or a pod's ends held for the API longer than the cap allows: told without what was missing.
    PodCap,
}

impl DropReason {
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::TimelineCap => "timeline_cap",
            DropReason::FactCap => "fact_cap",
            DropReason::IndexCap => "index_cap",
            DropReason::Unattributed => "unattributed",
            DropReason::PodCap => "pod_cap",
        }
    }
}
