//! Facts → axes. Pure: the same facts give the same verdict, in any order of arrival.
//!
//! A finding that rests on the absence of an event names the kinds of evidence that would have shown the event; if one of these
//! kinds was lost or not active, the exit is `unknown`. Positive proof (an OOM victim, a result, a handler entered) stands.

mod hook;
mod inside;
mod kernel;
mod kubernetes;
mod shutdown;

use std::collections::BTreeSet;
use std::ops::Deref;

use super::{Cause, Evidence, Exit, Severity, TrafficAxis, Verdict, advice, disagreement, evidence, sentence, table};
use crate::attribute::Subject;
use crate::event::Kind;
use crate::ids::{Comm, Signal};
use crate::kubernetes::PodContext;
use crate::ledger::{self, Hole, MainUnsure, not_kept};
use crate::termination::{Fatal, Kill, MainProcess, OomKill, Open, Role, Stop, TerminationFacts, Traffic};

pub use inside::is_at_once;

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
    /// A lost record of these kinds could have changed the finding.
    absent: &'static [Kind],
    /// These records count until the last process of the subject is gone, not only until the exit.
    inside: bool,
    /// The finding depends on the absence of an earlier stop signal.
    no_stop_seen: bool,
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
    let found = kubernetes::refine(case, kernel::unless_worse_below(case, kernel::find(case)));
    let finding = doubt(case, shutdown::refine(case, found));
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

/// The stop may have begun with a signal before the one that was observed, in a gap or with a lost record: what is measured from that one on
/// is only the least.
pub(super) fn may_have_begun_before(case: &Case<'_>) -> bool {
    case.stop().is_some() && (case.missing.earlier_stop || gap_may_hide_stop(case))
}

fn gap_may_hide_stop(case: &Case<'_>) -> bool {
    let until = case.missing.gap_before_stop;
    until.is_some_and(|until| !kubernetes::was_not_asked_before(case, until))
}

/// The observation began after the process, so recently that a stop signal may have come before, and nothing rules that out. Not
/// proven by a handler that did not run: a signal that was handled leaves no trace.
pub(super) fn may_have_been_stopped_before(case: &Case<'_>) -> bool {
    case.missing
        .late_start
        .is_some_and(|since| !kubernetes::was_not_asked_before(case, since))
}

/// A systemd unit is the only one of its kind, so its clients are refused at every restart, which takes a moment. No setting of the
/// unit avoids that, except for a socket unit.
fn is_usual(row: &table::Row, facts: &TerminationFacts) -> bool {
    let is_refused = matches!(row.traffic, [TrafficAxis::Refused | TrafficAxis::RefusedNewPeers]);
    row.exit == Exit::Clean && is_refused && matches!(facts.subject, Subject::Unit { .. })
}

/// What became of the stop signal, or the time since, would be different with an earlier one.
fn rests_on_first_stop(exit: Exit) -> bool {
    let by_answer = matches!(exit, Exit::IgnoredStopSignal | Exit::BlockedStopSignal);
    by_answer || matches!(exit, Exit::SidecarStarved | Exit::PrestopOverran | Exit::TruncatedByShutdown)
}

/// Another party's signal than the runtime's counts as the stop only where the runtime's own was not before it; and what became of a stop
/// signal is different for a second one.
fn may_be_later(case: &Case<'_>, exit: Exit) -> bool {
    case.stop()
        .is_some_and(|stop| stop.sender.role != Role::Runtime || rests_on_first_stop(exit))
}

/// Turns a finding that missing evidence could have changed into `unknown`, with the reason.
fn doubt(case: &Case<'_>, finding: Finding) -> Finding {
    let holes = &case.missing;
    let is_absent = |hole: &&Hole| finding.absent.iter().any(|kind| hole.is_of(*kind));
    let inside = holes.lost_inside.iter().filter(|_| finding.inside);
    let lost: Vec<Hole> = holes.lost.iter().chain(inside).filter(is_absent).copied().collect();
    let inactive = holes.inactive.iter().filter(|kind| finding.absent.contains(kind));
    let inactive: Vec<Kind> = inactive.copied().collect();
    // An error is as unclean with the end of another process as without.
    let of_others = |kind: &Kind| matches!(kind, Kind::OomVictim | Kind::ProcessExec);
    let rests_on_others = finding.exit != Exit::NonzeroExit && finding.absent.iter().any(of_others);
    let missing = if let Some(unsure) = &holes.main_unsure {
        match unsure {
            MainUnsure::Inactive(kind) => Missing::Inactive(vec![*kind]),
            MainUnsure::Lost(lost) => Missing::records(lost),
            MainUnsure::MayBeCommand => Missing::Main,
        }
    } else if holes.earlier_stop && rests_on_first_stop(finding.exit) {
        Missing::Lost(vec![Kind::SignalGenerate])
    } else if gap_may_hide_stop(case) && rests_on_first_stop(finding.exit) {
        Missing::Gap
    } else if may_be_later(case, finding.exit) && may_have_been_stopped_before(case) {
        Missing::late_start(case)
    } else if finding.absent.is_empty() {
        return finding;
    } else if finding.no_stop_seen && may_have_been_stopped_before(case) {
        Missing::late_start(case)
    } else if !inactive.is_empty() {
        Missing::Inactive(inactive)
    } else if !lost.is_empty() {
        Missing::records(&lost)
    } else if holes.gap || rests_on_others && holes.gap_below {
        Missing::Gap
    } else if holes.over_cap || finding.inside && holes.over_cap_inside {
        Missing::OverCap
    } else {
        return finding;
    };
    kernel::unknown(case, missing)
}

impl Missing {
    fn late_start(case: &Case<'_>) -> Missing {
        if case.missing.begins_late {
            Missing::NotRecorded
        } else {
            Missing::LateStart
        }
    }

    /// Of records that may be missing.
    fn records(holes: &[Hole]) -> Missing {
        match not_kept(holes) {
            Some(ledger::Why::NotRecorded) => Missing::NotRecorded,
            Some(_) => Missing::Damaged,
            None => {
                let kinds: BTreeSet<Kind> = holes.iter().filter_map(|hole| hole.kind).collect();
                Missing::Lost(kinds.into_iter().collect())
            }
        }
    }
}
