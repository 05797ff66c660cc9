//! Facts → axes. Pure: the same facts give the same verdict, whenever and in whatever order they came.
//!
//! A finding that rests on something *not* having been seen names the kinds of evidence that would have shown it; where one
//! of them was lost or not active the exit is `unknown`. Positive proof (an OOM victim, a result, a handler entered) stands.

mod hook;
mod kernel;
mod kubernetes;

use std::time::Duration;

use super::{Cause, Evidence, Exit, TrafficAxis, Verdict, advice, evidence, sentence, table};
use crate::attribute::Subject;
use crate::event::{Boot, Kind, Signal};
use crate::kubernetes::PodContext;
use crate::termination::{Actor, Kill, MainExit, MainProcess, OomKill, Stop, Traffic};

pub(super) use hook::{Hook, HookEnd, quoted};

/// The main process ends this soon after the OOM killer took a child: it ended because of it.
pub const OOM_CHILD_REACH: Duration = Duration::from_secs(10);

/// One death's facts.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub subject: &'a Subject,
    pub main: Option<&'a MainProcess>,
    pub begin: Boot,
    pub end: Boot,
    pub stop: Option<&'a Stop>,
    /// The SIGKILL that took effect.
    pub kill: Option<&'a Kill>,
    /// The signal that ended it, as it was sent; for a SIGKILL the same as `kill`.
    pub fatal: Option<&'a Fatal>,
    pub exit: Option<MainExit>,
    pub oom: &'a [OomKill],
    pub traffic: &'a Traffic,
    pub holes: &'a Holes,
    /// Why the end itself was not seen; meaningful where `exit` is None.
    pub open: Open,
    /// What Kubernetes wanted of it.
    pub kubernetes: Option<&'a PodContext>,
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
pub struct Holes {
    /// Records lost while it went on.
    pub lost: Vec<Kind>,
    /// Probes that were not active.
    pub inactive: Vec<Kind>,
    /// Nothing was observed for a while that reaches into this death.
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

/// What the facts say, and what that rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub exit: Exit,
    pub cause: Cause,
    pub why: Why,
    /// A lost record of these kinds could have changed it.
    absent: &'static [Kind],
    /// It rests on no stop signal having come before.
    unasked: bool,
}

/// The finer reason, which the sentence tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Completed,
    Stopped,
    /// Exit 0 although the kernel had dropped the stop signal.
    StoppedUnheard,
    /// 128 + n.
    StoppedWithSignalCode(Signal),
    Reraised,
    DefaultAction,
    Nonzero,
    Ignored,
    Blocked(Blocked),
    AfterGrace,
    Forced,
    Oom,
    OomChild,
    KilledByOther,
    /// It was killed with its pid namespace, whose init ended.
    NamespaceEnded,
    Crashed(Crash),
    /// A code that its owners declared to be a success.
    Expected,
    /// Asked, and killed at once: its pod was deleted with a grace of 0.
    ForceDeleted,
    /// Asked to stop only when the main containers had used up the grace.
    Starved,
    /// Killed after the hook had left it only the kubelet's minimum.
    HookTookGrace,
    /// Its grace is long over.
    Stuck,
    NeverStarted,
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
    Inactive(Vec<Kind>),
    NoExit(Open),
    /// It ended by this signal, and nobody was seen to send it.
    SenderNotSeen(Signal),
    /// The kernel sent a SIGKILL, and no evidence says why.
    KernelKill,
}

/// Judges one death.
pub fn judge(case: &Case<'_>) -> Verdict {
    let finding = doubt(case, kubernetes::refine(case, kernel::find(case)));
    let traffic = traffic(case.traffic);
    let row = table::row(finding.exit, traffic);
    let mut evidence: Vec<Evidence> = evidence::list(case);
    evidence.sort_by_key(|line| (line.at, line.source));
    Verdict {
        headline: row.headline,
        cause: finding.cause,
        exit: finding.exit,
        traffic,
        unclean: row.unclean,
        severity: row.severity,
        sentence: sentence::sentence(case, &finding, traffic),
        remedy: sentence::remedy(case, &finding, traffic),
        advice: advice::list(case, finding.exit),
        evidence,
    }
}

/// Cut before reset before refused: see [`table::TABLE`]. Quiet only where it was observed.
pub fn traffic(traffic: &Traffic) -> TrafficAxis {
    if traffic.cut.count > 0 {
        TrafficAxis::Cut
    } else if traffic.reset.count > 0 {
        TrafficAxis::Reset
    } else if traffic.refused.count > 0 {
        TrafficAxis::Refused
    } else if traffic.rejected.count > 0 {
        TrafficAxis::ProxyRejected
    } else if traffic.observed {
        TrafficAxis::Quiet
    } else {
        TrafficAxis::Unknown
    }
}

/// Turns a finding that missing evidence could have changed into `unknown`, with the reason.
fn doubt(case: &Case<'_>, finding: Finding) -> Finding {
    let holes = case.holes;
    let within = |kinds: &[Kind]| -> Vec<Kind> {
        let hit = |kind: &&Kind| finding.absent.contains(kind);
        kinds.iter().filter(hit).copied().collect()
    };
    let (lost, inactive) = (within(&holes.lost), within(&holes.inactive));
    // How it ended does not need the OOM probe; only its losses can hide a victim that was there.
    let inactive: Vec<Kind> = inactive.into_iter().filter(|&kind| kind != Kind::OomVictim).collect();
    let missing = if finding.absent.is_empty() {
        return finding;
    } else if holes.late_start && finding.unasked {
        Missing::LateStart
    } else if !inactive.is_empty() {
        Missing::Inactive(inactive)
    } else if !lost.is_empty() {
        Missing::Lost(lost)
    } else if holes.gap {
        Missing::Gap
    } else if holes.over_cap {
        Missing::OverCap
    } else {
        return finding;
    };
    kernel::unknown(case, missing)
}

impl Fatal {
    /// `si_code` above 0 and below 128: the kernel tells the process about its own fault.
    fn is_fault(&self) -> bool {
        self.code > 0 && self.code < crate::event::si_code::KERNEL
    }
}
