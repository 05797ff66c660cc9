//! What the core answers: reports for the sinks, commands for the kernel.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::attribute::Subject;
use crate::event::Disposition;
use crate::ids::{CgroupId, Signal};
use crate::kubernetes::{PodContext, PodTerminationFacts};
use crate::pod::Workload;
use crate::termination::{Actor, MainProcess, OomKill, TerminationFacts, TerminationKey};
use crate::time::Boot;
use crate::verdict::{self, Case, Judged, Verdict};

/// The core's answers to one input, each kind in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    pub reports: Vec<Report>,
    pub commands: Vec<Command>,
}

impl Answers {
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.commands.is_empty()
    }
}

/// What the kernel is to do with a cgroup's sockets from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The pod's deletion was requested: watch them.
    Watch(CgroupId),
    /// The subject is finished: they need no watching any more.
    Forget(CgroupId),
}

/// What the sinks are to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Reported at once, before the kill.
    StopSignalIgnored(Box<StopSignalIgnored>),
    /// An OOM kill of a process that was not the main one, and the subject goes on.
    ChildOomKilled { subject: Subject, oom: OomKill },
    /// A container or unit ended. One of a pod that goes on (a restart), or of a pod that is not known, has its own trace.
    Terminated(Box<Termination>),
    /// A container of a pod that is being deleted still runs long after its grace: reported once. Its end is reported as any other's,
    /// if it comes.
    Stuck(Box<Stuck>),
    /// A pod ended, with all its containers that ended with it; they are not reported as [`Report::Terminated`].
    PodTerminated(Box<PodTermination>),
    /// The first pod of a workload runs here.
    Workload(Workload),
    /// The last pod of a reported workload is gone from here: once for each [`Report::Workload`].
    WorkloadGone(Workload),
    /// Terminations that were not reported, for their pods' owners want it so (`epitaph.dev/ignore`).
    OptedOut { count: u64 },
    /// Something was not kept, by reason.
    Dropped { reason: DropReason, count: u64 },
}

/// A termination, judged: its facts, the pod's side of them, and the verdict on both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    pub facts: TerminationFacts,
    /// What Kubernetes wanted of it; None where it belongs to no pod, or without the API.
    pub kubernetes: Option<Arc<PodContext>>,
    /// It is reported by itself, for the observation ended, but it ended with its pod, whose own end whoever observes next reports:
    /// its spans belong into the pod's trace.
    pub of_ending_pod: bool,
    pub verdict: Verdict,
}

impl Termination {
    /// Judges it: once, when all is known that will be.
    pub fn judged(facts: TerminationFacts, kubernetes: Option<Arc<PodContext>>) -> Termination {
        let verdict = verdict::judge(&facts, kubernetes.as_deref());
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

/// A container that still runs long after its grace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// As far as they go: its end is open.
    pub facts: TerminationFacts,
    pub kubernetes: Arc<PodContext>,
    pub verdict: Verdict,
}

/// A pod that ended: its own facts, its containers, and the verdict on all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTermination {
    pub facts: PodTerminationFacts,
    /// Each with its [`PodContext`]; sandboxes are left out. In order of their ends.
    pub containers: Vec<Termination>,
    /// Of the containers the one with the highest precedence; the sentence names it.
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
    /// More pods than the cap, or a pod's ends held for the API longer than the cap allows: reported without what was missing.
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
