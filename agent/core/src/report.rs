//! The results of the core: reports for the sinks, commands for the sources.
//!
//! Facts and judgement are apart. The subjects complete the facts of a termination, the pods add the Kubernetes context, and only then
//! [`Termination::judged`] has them judged, once; a report holds both. A container that runs long after its grace period is judged by its
//! facts so far ([`Stuck`]).

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::attribute::Subject;
use crate::container::ContainerFact;
use crate::event::Disposition;
use crate::ids::{CgroupId, Signal};
use crate::kubernetes::{HeldFacts, PodContext, PodTerminationFacts};
use crate::pod::{PodIdentity, Workload};
use crate::shutdown::{NodeDown, NodeShutdownFacts, PodInShutdown};
use crate::termination::{Actor, MainProcess, OomKill, TerminationFacts, TerminationKey};
use crate::time::Boot;
use crate::verdict::held::HeldVerdict;
use crate::verdict::{self, Case, Judged, ShutdownVerdict, Verdict};

/// The core's answers to one input, each kind in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    pub reports: Vec<Report>,
    pub commands: Vec<Command>,
    /// Of a kernel record: the own cgroup of the subject that it may be evidence of.
    pub about: Option<CgroupId>,
}

impl Answers {
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.commands.is_empty()
    }
}

/// A command for the kernel about a cgroup's sockets, or a question to the Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The pod's deletion was requested, or a stop began before they were let go: watch them.
    Watch(CgroupId),
    /// The subject is finished, or nothing is stopping it: stop watching them.
    Forget(CgroupId),
    /// Only the pod's Kubernetes Events can complete a termination: list them, and announce that at once by
    /// [`PodEventsState::Asked`](crate::pod::PodEventsState::Asked), which makes the termination wait for the answer.
    ListEvents(Arc<PodIdentity>),
}

/// A report for the sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Reported at once, before the kill.
    StopSignalIgnored(Box<StopSignalIgnored>),
    /// An OOM kill of a process other than the main process; the subject continues.
    ChildOomKilled {
        subject: Subject,
        /// As in [`TerminationFacts`].
        container: Option<Arc<ContainerFact>>,
        oom: OomKill,
    },
    /// A container or unit terminated. A container of a pod that continues (a restart), or of an unknown pod, has its own trace.
    Terminated(Box<Termination>),
    /// A container of a pod that is being deleted still runs long after the grace period: reported once. A later termination is
    /// reported like any other.
    Stuck(Box<Stuck>),
    /// A pod is still `Terminating` although nothing of it runs: reported after a minute, and again as another layer holds it.
    PodHeld(Box<PodHeld>),
    /// A pod terminated, with all containers that terminated with it; these are not reported as [`Report::Terminated`].
    PodTerminated(Box<PodTermination>),
    /// The first pod of a workload runs here.
    Workload(Workload),
    /// The last pod of a reported workload is gone from here: once for each [`Report::Workload`].
    WorkloadGone(Workload),
    /// A shutdown of the node is over, or was cancelled, spoofed or blocked.
    NodeShutdown(Box<NodeShutdown>),
    /// The node is back: how long it was down, for the trace of its last shutdown.
    NodeDown(Box<NodeDown>),
    /// Terminations that were not reported because of `epitaph.dev/ignore` or `units.include` and `units.exclude`.
    OptedOut { count: u64 },
    /// Dropped evidence, by reason.
    Dropped { reason: DropReason, count: u64 },
}

/// A judged termination: its facts, its Kubernetes context, and the verdict on both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    pub facts: TerminationFacts,
    /// None for a unit, for a container without a pod, or without the API.
    pub kubernetes: Option<Arc<PodContext>>,
    /// The observation ended, so this termination is reported separately, but it belongs to its pod's termination, which the next
    /// observation reports: the spans belong to the pod's trace.
    pub of_ending_pod: bool,
    pub verdict: Verdict,
}

impl Termination {
    /// Judges the facts: once, when they are complete.
    pub fn judged(facts: TerminationFacts, kubernetes: Option<Arc<PodContext>>) -> Termination {
        let case = Case::new(&facts, kubernetes.as_deref());
        let verdict = verdict::tell(&case, &verdict::judge(&case));
        Termination {
            facts,
            kubernetes,
            of_ending_pod: false,
            verdict,
        }
    }

    pub fn as_judged(&self) -> Judged<'_> {
        Judged {
            case: Case::new(&self.facts, self.kubernetes.as_deref()),
            verdict: &self.verdict,
        }
    }
}

/// The facts are read as its own.
impl Deref for Termination {
    type Target = TerminationFacts;

    fn deref(&self) -> &TerminationFacts {
        &self.facts
    }
}

/// A judged shutdown of the node: its facts, and the verdict on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShutdown {
    pub facts: NodeShutdownFacts,
    pub verdict: ShutdownVerdict,
}

impl NodeShutdown {
    pub fn judged(facts: NodeShutdownFacts) -> NodeShutdown {
        let verdict = verdict::judge_shutdown(&facts);
        NodeShutdown { facts, verdict }
    }

    /// Whether a trace of the pod follows, under the pod's own id: the kubelet stopped the pod and it has ended, so that its status comes. The
    /// containers of other pods have traces of their own, and the agent does not see its own end.
    pub fn has_trace(&self, pod: &PodInShutdown) -> bool {
        use crate::axes::ShutdownOutcome::{Bypassed, Unannounced, Unprotected};
        let is_kubelets = !matches!(self.verdict.outcome, Unprotected | Bypassed | Unannounced) && !self.signs.only_swept();
        is_kubelets && !pod.is_own && !pod.pod.is_static && pod.stopped.is_some() && pod.ended.is_some()
    }
}

/// The facts are read as its own.
impl Deref for NodeShutdown {
    type Target = NodeShutdownFacts;

    fn deref(&self) -> &NodeShutdownFacts {
        &self.facts
    }
}

/// A container that still runs long after its grace period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The facts so far, without an exit.
    pub facts: TerminationFacts,
    pub kubernetes: Arc<PodContext>,
    pub verdict: Verdict,
}

/// A pod that is held, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodHeld {
    pub facts: HeldFacts,
    pub verdict: HeldVerdict,
}

/// A terminated pod: its own facts, its containers, and the verdict on all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTermination {
    pub facts: PodTerminationFacts,
    /// Each with its [`PodContext`]; sandboxes are left out. In the order of their exits.
    pub containers: Vec<Termination>,
    /// The verdict of the container with the highest precedence; the sentence names this container.
    pub verdict: Verdict,
}

impl PodTermination {
    pub fn judged(facts: PodTerminationFacts, containers: Vec<Termination>) -> PodTermination {
        let members: Vec<Judged<'_>> = containers.iter().map(Termination::as_judged).collect();
        let verdict = verdict::judge_pod(&facts, &members);
        PodTermination {
            facts,
            containers,
            verdict,
        }
    }
}

/// The facts are read as its own.
impl Deref for PodTermination {
    type Target = PodTerminationFacts;

    fn deref(&self) -> &PodTerminationFacts {
        &self.facts
    }
}

/// The kernel discarded a stop signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopSignalIgnored {
    pub key: TerminationKey,
    pub subject: Subject,
    /// As in [`TerminationFacts`].
    pub container: Option<Arc<ContainerFact>>,
    pub main: Option<MainProcess>,
    pub at: Boot,
    pub signal: Signal,
    pub sender: Actor,
    pub disposition: Disposition,
    /// Time until the SIGKILL, if the grace period is known.
    pub grace_left: Option<Duration>,
    pub kubernetes: Option<Arc<PodContext>>,
    pub sentence: String,
}

/// Why the core dropped evidence. Names on metrics: `DropReason::name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// More live timelines than the cap: the longest idle timeline was closed as unknown.
    TimelineCap,
    /// More facts in one timeline than the cap.
    FactCap,
    /// More facts, or containers and units, than fit into the memory of the core.
    Memory,
    /// More dead or live cgroups than the index holds.
    IndexCap,
    /// An event whose process could not be attributed.
    Unattributed,
    /// More pods than the cap, or more held terminations than the cap: reported without the missing context.
    PodCap,
}

names! {
    DropReason:
    TimelineCap => "timeline_cap",
    FactCap => "fact_cap",
    Memory => "memory",
    IndexCap => "index_cap",
    Unattributed => "unattributed",
    PodCap => "pod_cap",
}
