//! The facts of one termination: the kernel's evidence, before the judgement. Made by `correlate`, read by `verdict`, `render`
//! and the sinks.

mod forward;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::attribute::{Attribution, Subject};
use crate::container::ContainerFact;
use crate::event::{Disposition, ExitStatus, SignalResult, TargetState, si_code};
use crate::ids::{CgroupId, Comm, Pid, Signal, SystemCall};
use crate::ledger::{Claim, Hole, MissingEvidence};
use crate::pod::PodIdentity;
use crate::shutdown::EndedByShutdown;
use crate::time::Boot;
use crate::tolerances::LATE_REACH;

pub use forward::{Forward, Held, InnerKill, InnerProcess, Inside, Killed, RaisedAgain, Unsignalled};

/// Identifies a termination on any machine and after any restart of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TerminationKey {
    pub boot_id: String,
    pub cgroup: CgroupId,
    /// Start of the main process: a unit's cgroup can see several terminations. 0 if the main process was never known.
    pub main_start: Boot,
}

/// A process that sent a signal, or exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub tgid: Pid,
    pub comm: Comm,
    pub parent: Pid,
    pub parent_comm: Comm,
    pub place: Attribution,
    /// The process's pod and container, if a status of the pod names the container.
    pub pod: Option<Arc<PodContainer>>,
    pub role: Role,
}

/// Daemons that kill processes before memory has run out, each by the unit that its package runs it in: systemd makes the cgroup, and no
/// container can move into it. None has another reason to send a signal.
const OOM_DAEMONS: [&str; 5] = [
    "systemd-oomd.service",
    "earlyoom.service",
    "nohang.service",
    "nohang-desktop.service",
    "bustd.service",
];

impl Actor {
    pub fn is_oom_daemon(&self) -> bool {
        is_oom_daemon(self.role, &self.place)
    }
}

/// Of a sender with that role, in that place.
pub fn is_oom_daemon(role: Role, place: &Attribution) -> bool {
    let unit = match place {
        Attribution::Subject(Subject::Unit { name }, _) => name,
        _ => return false,
    };
    role == Role::Other && OOM_DAEMONS.iter().any(|daemon| **daemon == **unit)
}

/// A container by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodContainer {
    pub pod: Arc<PodIdentity>,
    pub container: String,
}

/// The relation of a signal's sender to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The runtime that created the container, systemd for a unit: by ancestry and cgroup, not by name.
    Runtime,
    /// The target itself.
    Itself,
    /// Another process of the same subject.
    Inside,
    /// Any other process on the machine, also in another container.
    Other,
    /// The kernel itself (OOM, end of the pid namespace, resource limit).
    Kernel,
    /// The kernel made the signal for a timer, a file or a queue that a process had set up: the record has the process that ran just then,
    /// which may be anybody's.
    Unknown,
}

impl Role {
    pub const fn name(self) -> &'static str {
        match self {
            Role::Runtime => "runtime",
            Role::Itself => "itself",
            Role::Inside => "inside",
            Role::Other => "other",
            Role::Kernel => "kernel",
            Role::Unknown => "unknown",
        }
    }
}

/// The main process: init of the container's pid namespace, or the first process from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainProcess {
    pub tgid: Pid,
    /// The pid in the process's own pid namespace.
    pub ns_pid: u32,
    pub is_ns_init: bool,
    pub comm: Comm,
    pub start: Boot,
    /// False: no record shows that it executed a program. Then it is what the container runtime forked, unless a record is missing.
    pub executed: bool,
}

/// The first stop signal, with the kernel's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub at: Boot,
    pub signal: Signal,
    pub sender: Actor,
    pub result: SignalResult,
    pub disposition: Disposition,
    pub state: TargetState,
    /// The process entered its handler for the signal.
    pub handler_entered: Option<Boot>,
    pub raised_again: Option<RaisedAgain>,
    /// The main process had not read the signal when its SIGKILL came. None: no SIGKILL, or its record does not have the pending
    /// signals.
    pub still_pending: Option<bool>,
    /// Later stop signals to the main process (a second `docker stop`, an impatient operator).
    pub repeated: u32,
}

/// The SIGKILL to the main process.
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

/// Without a stop signal: another process of the subject that a fault or an abort terminated, just before the main process exited with
/// 128 + that signal, as shells and inits do with the status of their child; or one with clients' sockets that any signal terminated,
/// before the main process exited with 0, as a shell does that goes on after its child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedChild {
    pub process: InnerProcess,
    pub exit: MainExit,
}

/// A process of the subject that the OOM killer terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomKill {
    pub at: Boot,
    pub tgid: Pid,
    pub start: Boot,
    pub parent: Pid,
    /// The parent is the main process.
    pub of_main: bool,
    pub comm: Comm,
    pub role: OomRole,
}

/// What the victim of an OOM kill was for its container or unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OomRole {
    /// The first process.
    Main,
    /// Another process of the program, which had a socket of clients or a connection.
    Worker,
    /// Another process of the container, without such a socket.
    Helper,
    /// Another process; its sockets are not known.
    Inside,
    /// The kubelet's exec probe: it came from outside, by the name of a probe of the spec; or a child of it.
    Probe,
    /// The process of the preStop hook, in the same way.
    PreStop,
    /// It came from outside otherwise: `kubectl exec`, for example; or a child of it.
    Session,
    /// The container runtime's own, which had not yet executed the program.
    Runtime,
}

impl OomRole {
    pub const ALL: [OomRole; 8] = [
        OomRole::Main,
        OomRole::Worker,
        OomRole::Helper,
        OomRole::Inside,
        OomRole::Probe,
        OomRole::PreStop,
        OomRole::Session,
        OomRole::Runtime,
    ];

    /// In JSON, attributes and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            OomRole::Main => "main",
            OomRole::Worker => "worker",
            OomRole::Helper => "helper",
            OomRole::Inside => "process",
            OomRole::Probe => "exec-probe",
            OomRole::PreStop => "pre-stop",
            OomRole::Session => "exec-session",
            OomRole::Runtime => "runtime",
        }
    }

    /// Not a part of the program: what it was for is lost, and none of the program's work.
    pub const fn is_from_outside(self) -> bool {
        matches!(self, OomRole::Probe | OomRole::PreStop | OomRole::Session | OomRole::Runtime)
    }
}

impl OomKill {
    pub fn is_main(&self) -> bool {
        self.role == OomRole::Main
    }
}

/// Events of one kind: number, first and last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub count: u64,
    /// Not valid if `count` is 0.
    pub first: Boot,
    pub last: Boot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerClosed {
    pub at: Boot,
    pub local: SocketAddr,
    /// Closed by the exit of the process, not by close(2).
    pub by_exit: bool,
}

/// Events on the subject's sockets from the pod's deletion request on; without a request from the stop signal, otherwise from the exit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The TCP probes were active for the whole time.
    pub observed: bool,
    /// Never observed: the kernel records a socket by its v2 cgroup, and the subject has no v2 cgroup of its own.
    pub cgroup_v1: bool,
    /// The cgroup still existed when counting stopped: sockets of the exited process may not have been closed yet.
    pub unclosed: bool,
    /// A process served clients by a Unix or UDP socket in the stop: what these lost is not observed.
    pub other_sockets: bool,
    /// Where nobody served by TCP: why a process may have had such sockets.
    pub unlooked: Option<Unlooked>,
    /// A listener closed, and this kernel does not show the refused clients of other machines and of Services.
    pub unseen_clients: bool,
    /// The pod may have been Ready in the API after its end, with no deletion request: a Service sends clients to its address, which goes with
    /// the sandbox, and then no reset shows them.
    pub sent_later: bool,
    /// Begin of the counts below.
    pub since: Boot,
    /// Clients were still trying to connect when counting stopped, and were refused.
    pub refusing_on: bool,
    /// How a refused SYN was recorded: the server's RST, or the client's own error (on some kernels before 6.10).
    pub refused_source: RefusedSource,
    pub listeners: Vec<ListenerClosed>,
    /// New connections accepted.
    pub accepted: Count,
    /// SYNs answered by RST because no socket was listening any more.
    pub refused: Count,
    /// The same by local port.
    pub refused_by_port: BTreeMap<u16, Count>,
    /// Of `refused`: by peers that had connected before, and the same by local port.
    pub refused_known: Count,
    pub refused_known_by_port: BTreeMap<u16, Count>,
    /// Who the clients were.
    pub peers: ClientPeers,
    /// Established connections that the server's side reset.
    pub reset: Count,
    /// Of `reset`: not yet accepted by accept(2) when the listener closed.
    pub reset_queued: u64,
    /// Connections that were closed with a FIN while the client's last bytes had no answer.
    pub cut: Count,
    /// The same number.
    pub cut_unanswered: u64,
    /// Connections closed by the exit on which neither side had ever sent a byte.
    pub idle_closed: Count,
    /// Connections closed with the exit, of which the kernel cannot show whether a request or an answer was under way.
    pub undecided: Count,
    /// Of `undecided`: the client had not acknowledged all that the server had written.
    pub undecided_unacknowledged: u64,
    /// Of `undecided`: the client had not acknowledged the server's close when counting stopped.
    pub undecided_unheard: u64,
    /// Connects from this node to the subject's own address and port that failed with an ICMP error, not by the subject: a proxy's
    /// or a policy's REJECT, a missing route.
    pub rejected: Count,
    /// The kubelet's own probes and hooks: not in the counts above.
    pub kubelet: KubeletTraffic,
}

/// Why not all open files of a process were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlooked {
    /// The process read the stop signal without a handler, so that no probe ran there, and may have closed them.
    NoHandler,
    /// The process had more than the probes look at.
    TooMany,
}

/// The clients, by address. A peer had connected before if one of its connections was accepted, or was open, while the sockets
/// were observed: that begins with the deletion request or the stop signal, so earlier and short connections are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientPeers {
    /// The peers with lost connections, those that had connected before first, and of these those with the most; at most
    /// [`ClientPeers::TOP`].
    pub top: Vec<ClientPeer>,
    /// The other peers with lost connections.
    pub more: u64,
    /// ClientPeers that had connected before, and how many of them once.
    pub known: u64,
    pub known_once: u64,
    /// The connections of these.
    pub connections: u64,
    /// ClientPeers that were refused and had not connected before.
    pub new: u64,
    /// Each peer that connected while the sockets were observed is among `known`.
    pub is_complete: bool,
}

/// A peer with lost connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPeer {
    pub address: IpAddr,
    pub place: PeerPlace,
    pub had_connected: bool,
    pub refused: u64,
    pub reset: u64,
    pub cut: u64,
}

/// What is known of a peer's address. An agent knows the pods of its own node only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerPlace {
    /// A loopback address, or the subject's own.
    Itself,
    /// An address of this node.
    Node,
    /// A pod of this node.
    Pod(Arc<PodIdentity>),
    /// Another node, a pod of another node, or outside of the cluster.
    #[default]
    Elsewhere,
}

impl PeerPlace {
    /// As exports name it.
    pub const fn name(&self) -> &'static str {
        match self {
            PeerPlace::Itself => "itself",
            PeerPlace::Node => "node",
            PeerPlace::Pod(_) => "pod",
            PeerPlace::Elsewhere => "elsewhere",
        }
    }
}

impl ClientPeers {
    pub const TOP: usize = 5;

    /// Whether peers that had connected before can be told from others.
    pub fn are_told_apart(&self) -> bool {
        self.is_complete && self.known > 0
    }
}

impl ClientPeer {
    pub fn lost(&self) -> u64 {
        self.refused + self.reset + self.cut
    }
}

/// Clients were refused on a port after its listener closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalWindow {
    pub closed: Boot,
    pub last: Boot,
}

/// See [`Traffic::kubelet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KubeletTraffic {
    /// False: the kubelet's cgroup is not known, so its connections count as clients'.
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
    /// A port had a listener, or clients came.
    pub(crate) fn serves(&self) -> bool {
        !self.listeners.is_empty() || self.accepted.count > 0 || self.refused.count > 0
    }

    /// Clients of a server that came after the pod's end, where no socket answered any more.
    pub(crate) fn miss_those_sent_later(&mut self) {
        if self.serves() {
            self.sent_later = true;
            self.observed = false;
        }
    }

    /// The refused connections of clients. Whoever can send a SYN can be refused: where some of the refused peers had connected
    /// before, only these; and none if new peers alone were refused. In doubt all.
    pub fn refused_clients(&self) -> Count {
        match self.new_peers_are_unusual() && (self.refused_known.count > 0 || self.only_new_peers_refused()) {
            true => self.refused_known,
            false => self.refused,
        }
    }

    /// The others: refused connections of peers that had not connected before.
    pub fn refused_new(&self) -> u64 {
        self.refused.count - self.refused_clients().count
    }

    /// None of the refused peers had connected before, although many connections show that the clients connect repeatedly, and
    /// the refused peers are no more than these clients: a client's loss is not proven.
    pub fn only_new_peers_refused(&self) -> bool {
        self.refused.count > 0
            && self.refused_known.count == 0
            && self.new_peers_are_unusual()
            && self.peers.connections >= ENOUGH
            && self.peers.new <= self.peers.known
    }

    /// Peers that had connected before are known, and nothing shows that each client has an address of its own.
    fn new_peers_are_unusual(&self) -> bool {
        let peers = &self.peers;
        let are_usual = peers.connections >= ENOUGH && peers.known_once * REPEATED > peers.connections;
        peers.are_told_apart() && !are_usual
    }

    /// One window for each port: a server may close an admin listener first, and drain behind the other. Of peers that had
    /// connected before, where others are unusual: a scanner must not decide how long clients needed.
    pub fn refusal_windows(&self) -> Vec<RefusalWindow> {
        let by_port = match self.new_peers_are_unusual() {
            true => &self.refused_known_by_port,
            false if self.refused_by_port.is_empty() => {
                return self.window(self.refused, |_| true).into_iter().collect();
            }
            false => &self.refused_by_port,
        };
        let of_port = |(&port, &refused)| self.window(refused, |listener| listener.local.port() == port);
        by_port.iter().filter_map(of_port).collect()
    }

    /// The longest window; None if no client was refused on a port with an observed close.
    pub fn refusal_window(&self) -> Option<Duration> {
        self.refusal_windows().iter().map(RefusalWindow::length).max()
    }

    fn window(&self, refused: Count, is_its: impl Fn(&ListenerClosed) -> bool) -> Option<RefusalWindow> {
        let closes = || self.listeners.iter().filter(|l| is_its(l)).map(|l| l.at);
        if refused.count == 0 || closes().next().is_none() {
            return None;
        }
        // The kernel unhashes a listener before it records the close: a SYN can reach the closed port just before the recorded close.
        let closed = closes().filter(|at| *at <= refused.first).max().unwrap_or(refused.first);
        Some(RefusalWindow {
            closed,
            last: refused.last,
        })
    }
}

/// With fewer earlier connections, a client that is missing among them may be missing by chance.
const ENOUGH: u64 = 20;
/// Clients connect again and again: at most one in so many connections was the only one of its peer. Otherwise new peers are usual,
/// as where each client of the internet has its own address.
const REPEATED: u64 = 10;

/// How far the evidence goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Records lost while this was going on, by kind's name.
    pub lost: Vec<(&'static str, u64)>,
    /// Facts over the cap of one timeline: counted, not kept.
    pub over_cap: u64,
    /// The process was already running when its observation began, so an earlier stop signal is possible.
    pub late_start: bool,
    /// Times without observation, of those that can matter; without one whose end is not known.
    pub unobserved: Vec<Unobserved>,
    /// Probes that were not active, by name.
    pub inactive_probes: Vec<String>,
    /// After the deletion request, or the begin, the wall clock stepped by so many nanoseconds, or a pause of the machine ended: wall
    /// times from before are wrong by as much.
    pub clock_step: Option<i64>,
}

impl Gaps {
    /// How long epitaph did not observe, in all.
    pub fn unobserved_length(&self) -> Duration {
        self.unobserved.iter().map(Unobserved::length).sum()
    }
}

/// A time in which epitaph did not observe, and the process ran or may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unobserved {
    pub since: Boot,
    pub until: Boot,
}

impl Unobserved {
    pub fn length(&self) -> Duration {
        self.until.since(self.since)
    }
}

/// The kernel's evidence of one termination of a container or a unit.
///
/// Complete when the subject's machine returns the value. Before the one judgement, the pods' machine adds facts that only the API
/// has: the senders' containers, and that clients were watched too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminationFacts {
    pub key: TerminationKey,
    pub subject: Subject,
    /// The container as the files of its runtime describe it, where they do.
    pub container: Option<Arc<ContainerFact>>,
    /// Path of the subject's cgroup, where known.
    pub cgroup_path: Option<String>,
    pub main: Option<MainProcess>,
    /// First evidence: the stop signal, otherwise the kill, otherwise the exit.
    pub begin: Boot,
    /// Exit of the main process, otherwise the removal of the cgroup.
    pub end: Boot,
    pub stop: Option<Stop>,
    /// The SIGKILL that took effect.
    pub kill: Option<Kill>,
    /// The fatal signal, as it was sent; for a SIGKILL the same as `kill`.
    pub fatal: Option<Fatal>,
    pub exit: Option<MainExit>,
    pub inside: Inside,
    pub failed_child: Option<FailedChild>,
    pub oom: Vec<OomKill>,
    /// Why systemd-oomd killed the subject, in its own words on the bus.
    pub oomd_reason: Option<String>,
    /// Number of other processes of the subject that exited between `begin` and `end`.
    pub other_exits: u64,
    pub traffic: Traffic,
    /// Lost evidence, for the reader.
    pub gaps: Gaps,
    /// Lost or unobserved evidence that could have changed the verdict.
    pub missing: MissingEvidence,
    /// Why the exit was not observed; valid if `exit` is None.
    pub open: Open,
    /// The node's shutdown that stopped it, if one did.
    pub shutdown: Option<EndedByShutdown>,
}

/// How the fatal signal was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    pub at: Boot,
    pub signal: Signal,
    /// `si_code`.
    pub code: i32,
    /// The sender was the exiting init of the target's pid namespace.
    pub namespace_ended: bool,
    /// Of SIGSYS, the system call for which the kernel raised it, where the record has it.
    pub call: Option<SystemCall>,
    pub sender: Actor,
}

/// Why the exit of the main process was not observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Open {
    #[default]
    CgroupRemoved,
    ObservationEnded,
    /// The cap on live timelines closed it.
    TimelineCap,
    /// The process exited in a gap of the observation, between these two.
    InGap {
        since: Boot,
        until: Boot,
    },
    /// The node went down: this is the last that is known.
    NodeDown,
}

impl TerminationFacts {
    /// The observation ended first: the next observation reports the termination.
    pub fn is_still_ending(&self) -> bool {
        self.open == Open::ObservationEnded && self.exit.is_none()
    }

    /// Without an observed stop signal: where the first one may be hidden.
    pub fn hidden_stops(&self) -> impl Iterator<Item = &Hole> {
        let hidden = self.stop.is_none().then(|| self.missing.hidden_stops());
        hidden.into_iter().flatten()
    }

    /// The pod's sandbox, by its runtime's annotation.
    pub fn is_sandbox(&self) -> bool {
        self.container.as_ref().is_some_and(|container| container.sandbox)
    }

    /// With the containers of the signals' senders, from `of`.
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

    /// With what is known of the clients' addresses, from `of`.
    #[must_use]
    pub fn with_peer_places(mut self, of: impl Fn(IpAddr) -> PeerPlace) -> TerminationFacts {
        let peers = self.traffic.peers.top.iter_mut();
        for peer in peers.filter(|peer| peer.place == PeerPlace::Elsewhere) {
            peer.place = of(peer.address);
        }
        self
    }

    /// Clients were not watched for the whole time that counts.
    #[must_use]
    pub fn with_traffic_unobserved(mut self) -> TerminationFacts {
        self.traffic.observed = false;
        self.traffic.peers.is_complete = false;
        self
    }

    /// Of a container with this grace period at most: a stop that began longer ago was over, so neither a gap nor a loss from before hides a
    /// stop signal of this termination.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> TerminationFacts {
        let reach = grace.max(LATE_REACH);
        // The exit of a process that is killed may be late.
        let deadline = self.kill.as_ref().map_or(self.begin, |kill| kill.at);
        let (begin, missing) = (self.begin, &mut self.missing);
        missing.retain(Claim::NoStop, |hole| hole.to.is_none_or(|to| to.plus(reach) > deadline));
        self.gaps.late_start &= missing.late_start().is_some();
        self.gaps
            .unobserved
            .retain(|gap| gap.until > begin || gap.until.plus(reach) > deadline);
        self
    }

    /// The container's remaining processes have exited, too.
    #[must_use]
    pub fn with_leftover(mut self) -> TerminationFacts {
        self.other_exits += 1;
        self
    }
}

impl Fatal {
    /// `si_code` above 0 and below 128: the kernel signals the process's own fault.
    pub fn is_fault(&self) -> bool {
        self.code > 0 && self.code < si_code::KERNEL
    }

    /// By kill(2), sigqueue(3) or tkill(2): neither a timer nor the kernel raised it.
    pub fn is_sent(&self) -> bool {
        [si_code::USER, si_code::QUEUE, si_code::TKILL].contains(&self.code)
    }
}
