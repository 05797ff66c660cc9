//! Facts → axes. Pure: the same facts give the same verdict, in any order of arrival.
//!
//! A finding that rests on the absence of an event asks for the evidence that would have shown the event (`doubt`); where some of this
//! may be missing, the exit is `unknown`. Positive proof (an OOM victim, a result, a handler entered) stands.

mod doubt;
mod hook;
mod inside;
mod kernel;
mod killed;
mod kubernetes;
pub mod rules;
mod shutdown;

use std::ops::Deref;

use super::{Cause, Evidence, Exit, Severity, TrafficAxis, Verdict, advice, disagreement, evidence, sentence, table};
use crate::attribute::Subject;
use crate::event::Kind;
use crate::ids::{Comm, Signal};
use crate::kubernetes::PodContext;
use crate::termination::{Fatal, Kill, MainProcess, OomKill, Open, Stop, TerminationFacts, Traffic};

pub use inside::is_at_once;

use doubt::{Ask, doubt};

pub(super) use doubt::{may_have_been_stopped_before, may_have_begun_before};
pub(super) use hook::{Hook, HookEnd, quoted};
pub(super) use inside::{outlived_main, worst};
pub(super) use shutdown::{by_systemd_shutdown, own_grace};

/// One termination's facts, with their Kubernetes context.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    facts: &'a TerminationFacts,
    /// None for a unit, for a container without a pod, or without the API.
    pub kubernetes: Option<&'a PodContext>,
}

impl<'a> Case<'a> {
    pub fn new(facts: &'a TerminationFacts, kubernetes: Option<&'a PodContext>) -> Case<'a> {
        Case { facts, kubernetes }
    }

    pub fn main(&self) -> Option<&'a MainProcess> {
        self.facts.main.as_ref()
    }

    pub fn stop(&self) -> Option<&'a Stop> {
        self.facts.stop.as_ref()
    }

    pub fn kill(&self) -> Option<&'a Kill> {
        self.facts.kill.as_ref()
    }

    pub fn fatal(&self) -> Option<&'a Fatal> {
        self.facts.fatal.as_ref()
    }

    pub fn oom(&self) -> &'a [OomKill] {
        &self.facts.oom
    }

    pub fn traffic(&self) -> &'a Traffic {
        &self.facts.traffic
    }
}

impl Deref for Case<'_> {
    type Target = TerminationFacts;

    fn deref(&self) -> &TerminationFacts {
        self.facts
    }
}

/// A case with its verdict: what a pod's verdict is made of.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    pub case: Case<'a>,
    pub verdict: &'a Verdict,
}

/// The result of the facts, and the evidence that the result depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub exit: Exit,
    pub cause: Cause,
    pub why: Why,
    /// Which absences it rests on.
    rests: &'static [Ask],
}

impl Finding {
    pub fn with_why(&self, why: &Why) -> Finding {
        Finding {
            why: why.clone(),
            ..self.clone()
        }
    }
}

/// The finer reason, for the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Completed,
    Stopped,
    /// Exit 0 although the kernel had discarded the stop signal.
    StoppedAfterDiscard,
    /// 128 + n.
    StoppedWithSignalCode(Signal),
    Reraised,
    /// The same of PID 1, which has no default action: the kernel discarded the second signal, and an exit with an error followed at once.
    RaisedThenFailed,
    DefaultAction,
    Nonzero,
    /// A handler that only sent the process the same signal again.
    RaisedAgain,
    Ignored,
    /// The handler sent the process the same signal again, and the kernel discarded this one.
    RaisedInVain,
    Blocked(Blocked),
    AfterGrace,
    /// A process that got the signal from another process of the subject; its number in `inside.forwards`.
    Inside(InnerEnd, usize),
    /// The main process ended well, as the first says, and programs below it were killed.
    Below(Box<Why>),
    Forced,
    Oom,
    /// By a daemon that kills before memory has run out.
    OomByDaemon,
    OomChild,
    KilledByOther,
    /// Killed with the pid namespace, when the namespace's init exited.
    NamespaceEnded,
    Crashed(Crash),
    /// See `failed_child`.
    ChildCrashed,
    /// It exited with another code than 0, and the main process with 0.
    ChildFailed,
    /// An exit code that an annotation declares as clean.
    Expected,
    /// An exit code that the container's restart rules list.
    Listed,
    /// Killed at once: the pod was deleted with a grace period of 0.
    ForceDeleted,
    /// Got the stop signal only when the main containers had used up the grace period.
    Starved,
    /// Killed after the hook had left only the kubelet's minimum.
    HookTookGrace,
    /// Still runs long after the grace period.
    Stuck,
    NeverStarted,
    /// SIGKILL because of a node's shutdown.
    CutByShutdown,
    /// Still ran when the node's shutdown stopped everything.
    RanAtShutdown,
    Unknown(Missing),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    Frozen,
    Stopped,
    Traced,
    Masked,
    HandlerNeverEntered,
    NothingEntered,
}

/// As the variants of [`Why`] of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InnerEnd {
    Ignored,
    Blocked(Blocked),
    AfterGrace,
    DefaultAction,
    Nonzero,
    /// Its supervisor killed it before it could run.
    AtOnce,
    /// By a fault of its own.
    Crashed,
    /// By a process from outside, within the grace period.
    KilledByOther,
    /// The main process exited before it had finished, and the kernel or the container runtime killed it.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    Fault,
    Itself,
    Limit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    LateStart,
    Gap,
    OverCap,
    Lost(Vec<Kind>),
    /// The record of a signal, long before, that may have been the stop signal.
    StopLost,
    /// The recording begins after it.
    NotRecorded,
    /// A part of the recording or of the journal is damaged or missing.
    Damaged,
    Inactive(Vec<Kind>),
    NoExit(Open),
    /// Terminated by this signal, and the sender was not observed.
    SenderNotSeen(Signal),
    /// By a timer of its own, or by another process.
    Timer(Signal),
    /// The same of a program with clients below the main process, which then exited with 0.
    EndOfChild(Signal),
    /// The signals between the processes of the subject are not recorded here.
    Inside,
    /// A process below the main one was killed, and nothing shows whether it had sockets.
    Sockets,
    /// The default action ended such a process of the program's pool, and nothing shows whether it had a job.
    Job(Comm),
    /// See `ended_unseen`.
    EndBelow(Comm, Signal),
    /// Nothing shows whether the main process of a unit was only the wrapper of another process.
    Program,
    /// Of a unit's process that began unobserved, nothing shows whether it was the main process or a command before or after that.
    Main,
    /// The kernel sent a SIGKILL, and no evidence shows why.
    KernelKill,
    /// A deletion request, or one with a shorter grace period.
    Request,
    /// No status named the container: its hook, or that it is the sandbox.
    Name,
}

/// Judges one termination. `kubernetes` is the Kubernetes context of a pod's container.
pub fn judge(facts: &TerminationFacts, kubernetes: Option<&PodContext>) -> Verdict {
    let case = &Case::new(facts, kubernetes);
    let finding = doubt(case, rules::find(case));
    let traffic = match traffic(case.traffic()) {
        // Nothing counted what clients lost after a stop signal that came before the observation.
        TrafficAxis::Quiet if may_have_been_stopped_before(case) => TrafficAxis::Unknown,
        traffic => traffic,
    };
    let row = table::row(finding.exit, traffic);
    let mut evidence: Vec<Evidence> = evidence::list(case);
    evidence.sort_by_key(|line| (line.at, line.source));
    Verdict {
        headline: row.headline,
        cause: finding.cause,
        exit: finding.exit,
        traffic,
        unclean: row.unclean && !is_usual(row, facts),
        severity: severity(row, traffic, facts),
        sentence: sentence::sentence(case, &finding, traffic),
        remedy: sentence::remedy(case, &finding, traffic),
        advice: advice::list(case, finding.exit),
        disagreement: disagreement::find(case, finding.exit),
        evidence,
    }
}

/// Cut before reset before refused: see [`table::TABLE`]. Quiet only if sockets were observed, all of them, and no connection is undecided.
pub fn traffic(traffic: &Traffic) -> TrafficAxis {
    if traffic.cut.count > 0 {
        TrafficAxis::Cut
    } else if traffic.reset.count > 0 {
        TrafficAxis::Reset
    } else if traffic.refused.count > 0 && !traffic.only_new_peers_refused() {
        TrafficAxis::Refused
    } else if traffic.rejected.count > 0 {
        TrafficAxis::ProxyRejected
    } else if traffic.refused.count > 0 {
        TrafficAxis::RefusedNewPeers
    } else if !traffic.observed {
        TrafficAxis::Unknown
    } else if traffic.undecided.count > 0 {
        TrafficAxis::Undecided
    } else if traffic.other_sockets || traffic.unlooked {
        TrafficAxis::Unknown
    } else {
        TrafficAxis::Quiet
    }
}

/// Of a clean exit with unknown traffic, a loss of TCP records is worth a look: clients may have been harmed, and whoever made the
/// loss may have wanted to hide that. Probes that this machine cannot have are not.
fn severity(row: &table::Row, traffic: TrafficAxis, facts: &TerminationFacts) -> Severity {
    let is_lost = facts.gaps.lost.iter().any(|&(kind, _)| kind == Kind::Tcp.name());
    match row.severity {
        _ if is_usual(row, facts) => Severity::Info,
        Severity::Info if traffic == TrafficAxis::Unknown && is_lost => Severity::Warning,
        // As critical as with a clean exit.
        Severity::Warning if traffic == TrafficAxis::Cut && row.unclean => Severity::Critical,
        severity => severity,
    }
}

/// A systemd unit is the only one of its kind, so its clients are refused at every restart, which takes a moment. No setting of the
/// unit avoids that, except for a socket unit.
fn is_usual(row: &table::Row, facts: &TerminationFacts) -> bool {
    let is_refused = matches!(row.traffic, [TrafficAxis::Refused | TrafficAxis::RefusedNewPeers]);
    row.exit == Exit::Clean && is_refused && matches!(facts.subject, Subject::Unit { .. })
}
