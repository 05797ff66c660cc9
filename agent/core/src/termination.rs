//! The facts of one termination: what the kernel showed, before anybody judges it. Made by `correlate`, read by `verdict`, `render`
//! and the sinks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::attribute::{Attribution, Subject};
use crate::event::{Disposition, ExitStatus, Kind, SignalResult, TargetState, si_code};
use crate::ids::{CgroupId, Comm, Pid, Signal};
use crate::pod::PodIdentity;
use crate::time::Boot;

/// Names a termination for good, on any machine and after any restart of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TerminationKey {
    pub boot_id: String,
    pub cgroup: CgroupId,
    /// Start of the main process: a unit's cgroup can see several terminations. 0 where the main process was never known.
    pub main_start: Boot,
}

/// A process that acted: sent a signal, or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub tgid: Pid,
    pub comm: Comm,
    pub parent: Pid,
    pub parent_comm: Comm,
    pub place: Attribution,
    /// The pod and container it lives in, where a status of that pod names it.
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
    /// Clients were still trying to connect when counting stopped, and were refused.
    pub refusing_on: bool,
    /// How a refused SYN was known: the server's RST, or the client's own error (on kernels before 6.12).
    pub refused_source: RefusedSource,
    pub listeners: Vec<ListenerClosed>,
    /// New connections accepted.
    pub accepted: Count,
    /// SYNs answered by RST because no socket listened any more.
    pub refused: Count,
    /// The same by the port that they came to.
    pub refused_by_port: BTreeMap<u16, Count>,
    /// Established connections that the server's side reset.
    pub reset: Count,
    /// Of `reset`: those that no accept(2) had taken yet when their listener closed.
    pub reset_queued: u64,
    /// Connections open at the exit and closed by it with a FIN, and not provably idle.
    pub cut: Count,
    /// Of `cut`: those where the client's last bytes had got no answer.
    pub cut_unanswered: u64,
    /// Connections closed by the exit where the server had spoken last: idle keep-alive.
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
        // The kernel unhashes a listener before its record: a SYN can meet the closed port a moment before the close that is recorded.
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

/// All that the kernel showed of one termination of a container or a unit.
///
/// Complete when the subject's machine makes it. The pods' machine adds, by value and before the one judgement, what only the API
/// knows of the same facts: which containers the senders live in, and that clients were watched too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminationFacts {
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
    /// The SIGKILL that took effect.
    pub kill: Option<Kill>,
    /// The signal that ended it, as it was sent; for a SIGKILL the same as `kill`.
    pub fatal: Option<Fatal>,
    pub exit: Option<MainExit>,
    pub oom: Vec<OomKill>,
    /// Other processes of the subject that ended between `begin` and `end`.
    pub other_exits: u64,
    pub traffic: Traffic,
    /// What was lost, for the reader.
    pub gaps: Gaps,
    /// What was lost or not observed and could have changed the verdict.
    pub missing: MissingEvidence,
    /// Why the end itself was not seen; meaningful where `exit` is None.
    pub open: Open,
}

/// How a signal that ended the process was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    pub at: Boot,
    pub signal: Signal,
    /// `si_code`.
    pub code: i32,
    /// The sender was the init of the target's pid namespace, on its way out.
    pub namespace_ended: bool,
    pub sender: Actor,
}

/// Evidence that may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingEvidence {
    /// Records lost while it went on.
    pub lost: Vec<Kind>,
    /// Probes that were not active.
    pub inactive: Vec<Kind>,
    /// Nothing was observed for a while that reaches into this termination.
    pub gap: bool,
    /// It ran before the observation began, and that is so recent that a stop signal may have come before.
    pub late_start: bool,
    /// More facts than one timeline keeps.
    pub over_cap: bool,
}

/// Why the end of the main process was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Open {
    #[default]
    CgroupRemoved,
    ObservationEnded,
    /// The cap on live timelines closed it.
    TimelineCap,
}

impl TerminationFacts {
    /// The observation ended before it did: whoever observes next reports its end.
    pub fn is_still_ending(&self) -> bool {
        self.open == Open::ObservationEnded && self.exit.is_none()
    }

    /// With the containers that the senders of its signals live in, as `of` knows them.
    #[must_use]
    pub fn with_sender_pods(mut self, of: impl Fn(&Attribution) -> Option<Arc<PodContainer>>) -> TerminationFacts {
        let senders = [
            self.stop.as_mut().map(|stop| &mut stop.sender),
            self.kill.as_mut().map(|kill| &mut kill.sender),
            self.fatal.as_mut().map(|fatal| &mut fatal.sender),
        ];
        for sender in senders.into_iter().flatten() {
            sender.pod = of(&sender.place);
        }
        self
    }

    /// Its clients were not watched over all of the time that counts.
    #[must_use]
    pub fn with_traffic_unobserved(mut self) -> TerminationFacts {
        self.traffic.observed = false;
        self
    }

    /// What was left of the container after its end has ended, too.
    #[must_use]
    pub fn with_leftover(mut self) -> TerminationFacts {
        self.other_exits += 1;
        self
    }
}

impl Fatal {
    /// `si_code` above 0 and below 128: the kernel tells the process about its own fault.
    pub fn is_fault(&self) -> bool {
        self.code > 0 && self.code < si_code::KERNEL
    }
}
