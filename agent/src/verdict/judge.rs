//! Facts → axes. Pure: the same facts give the same verdict, whenever and in whatever order they came.
//!
//! A finding that rests on something *not* having been seen names the kinds of evidence that would have shown it; where one
//! of them was lost or not active the exit is `unknown`. Positive proof (an OOM victim, a result, a handler entered) stands.

use std::time::Duration;

use super::{Cause, Evidence, Exit, TrafficAxis, Verdict, advice, evidence, sentence, table};
use crate::attribute::{Attribution, Subject};
use crate::event::{Boot, Disposition, ExitStatus, Kind, Signal, SignalResult};
use crate::kubernetes::PodContext;
use crate::termination::{Actor, Kill, MainExit, MainProcess, OomKill, Role, Stop, Traffic};

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
    let finding = doubt(case, find(case));
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
        advice: advice::list(case),
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
    unknown(case, missing)
}

fn find(case: &Case<'_>) -> Finding {
    if let Some(finding) = oom_killed(case) {
        return finding;
    }
    let Some(exit) = case.exit else {
        return unknown(case, Missing::NoExit(case.open));
    };
    match exit.status {
        ExitStatus::Signaled {
            signal: Signal::KILL, ..
        } => killed(case),
        ExitStatus::Signaled { signal, .. } => signaled(case, signal),
        ExitStatus::Exited(0) => ended_with_0(case),
        ExitStatus::Exited(code) => ended_with(case, exit.at, code),
    }
}

/// The victim is the main process, and nobody else's SIGKILL came first (a dying process can be marked, too).
fn oom_killed(case: &Case<'_>) -> Option<Finding> {
    let victim = case.oom.iter().find(|oom| oom.is_main)?;
    let by_kill = case.exit.is_none_or(|exit| {
        matches!(
            exit.status,
            ExitStatus::Signaled {
                signal: Signal::KILL,
                ..
            }
        )
    });
    let killed_before = case
        .kill
        .is_some_and(|kill| kill.sender.role != Role::Kernel && kill.at < victim.at);
    (by_kill && !killed_before).then(|| finding(Exit::OomKilled, Cause::Oom, Why::Oom, &[]))
}

fn killed(case: &Case<'_>) -> Finding {
    let Some(kill) = case.kill else {
        return unknown(case, Missing::SenderNotSeen(Signal::KILL));
    };
    match kill.sender.role {
        Role::Runtime => match case.stop.filter(|stop| stop.sender.role == Role::Runtime) {
            Some(stop) => killed_after(case, stop),
            None => Finding {
                unasked: true,
                ..finding(Exit::ForceKilled, Cause::Stopped, Why::Forced, &[Kind::SignalGenerate])
            },
        },
        Role::Other | Role::Inside => match case.stop.filter(|stop| asked_and_waited(case, stop, kill)) {
            Some(stop) => killed_after(case, stop),
            None => finding(
                Exit::KilledByOther,
                cause(case, Cause::External),
                Why::KilledByOther,
                &[Kind::SignalGenerate],
            ),
        },
        Role::Itself => finding(Exit::Crashed, cause(case, Cause::Crash), Why::Crashed(Crash::Itself), &[]),
        Role::Kernel => kernel_killed(case, kill),
    }
}

/// A runtime without a daemon (podman) stops a container from wherever its command was typed: the same party on the host asked,
/// and killed what did not end.
fn asked_and_waited(case: &Case<'_>, stop: &Stop, kill: &Kill) -> bool {
    let (asker, killer) = (&stop.sender, &kill.sender);
    let strangers = [asker, killer].iter().all(|sender| {
        sender.role == Role::Other && !matches!(sender.place, Attribution::Subject(Subject::Container { .. }, _))
    });
    let same = asker.tgid == killer.tgid || asker.parent == killer.parent && asker.parent.0 > 1;
    matches!(case.subject, Subject::Container { .. }) && strangers && same
}

/// The runtime asked, waited, and killed.
fn killed_after(case: &Case<'_>, stop: &Stop) -> Finding {
    let cause = cause(case, Cause::Stopped);
    if stop.result == SignalResult::Ignored {
        return finding(Exit::IgnoredStopSignal, cause, Why::Ignored, &[]);
    }
    if stop.handler_entered.is_some() {
        return finding(Exit::KilledAfterGrace, cause, Why::AfterGrace, &[]);
    }
    let how = match stop.state {
        state if state.frozen => Blocked::Frozen,
        state if state.stopped => Blocked::Stopped,
        state if state.traced => Blocked::Traced,
        state if state.blocked => Blocked::Masked,
        _ if stop.disposition == Disposition::Handler => Blocked::HandlerNeverEntered,
        _ => Blocked::NothingEntered,
    };
    finding(Exit::BlockedStopSignal, cause, Why::Blocked(how), &[Kind::SignalDeliver])
}

/// OOM, the end of a pid namespace and a limit share the code: told apart by `mark_victim` and by who was current.
fn kernel_killed(case: &Case<'_>, kill: &Kill) -> Finding {
    let is_main = case.main.is_some_and(|main| main.tgid == kill.sender.tgid);
    if is_main {
        return finding(
            Exit::Crashed,
            cause(case, Cause::Crash),
            Why::Crashed(Crash::Limit),
            &[Kind::OomVictim],
        );
    }
    if case.fatal.is_some_and(|fatal| fatal.namespace_ended) {
        return finding(
            Exit::KilledByOther,
            cause(case, Cause::External),
            Why::NamespaceEnded,
            &[Kind::OomVictim],
        );
    }
    unknown(case, Missing::KernelKill)
}

fn signaled(case: &Case<'_>, signal: Signal) -> Finding {
    let by_itself = |fatal: &&Fatal| matches!(fatal.sender.role, Role::Itself) || fatal.is_fault();
    if let Some(stop) = case.stop.filter(|stop| stop.signal == signal) {
        if stop.handler_entered.is_some() {
            return finding(
                Exit::Clean,
                cause(case, Cause::Unknown),
                Why::Reraised,
                &[Kind::SignalGenerate],
            );
        }
        // Of several it is the stop signal itself, unless a later one of its own making ended it.
        if case.fatal.filter(by_itself).is_none() {
            let absent: &[Kind] = if stop.disposition == Disposition::Default {
                &[Kind::SignalGenerate]
            } else {
                &[Kind::SignalGenerate, Kind::SignalDeliver]
            };
            return finding(Exit::DefaultAction, cause(case, Cause::Unknown), Why::DefaultAction, absent);
        }
    }
    match case.fatal {
        Some(fatal) if by_itself(&fatal) => finding(
            Exit::Crashed,
            cause(case, Cause::Crash),
            Why::Crashed(how_crashed(signal)),
            &[],
        ),
        Some(fatal) => match fatal.sender.role {
            Role::Kernel => finding(Exit::Crashed, cause(case, Cause::Crash), Why::Crashed(Crash::Limit), &[]),
            Role::Runtime => finding(
                Exit::DefaultAction,
                cause(case, Cause::Stopped),
                Why::DefaultAction,
                &[Kind::SignalGenerate, Kind::SignalDeliver],
            ),
            Role::Itself | Role::Inside | Role::Other => finding(
                Exit::KilledByOther,
                cause(case, Cause::External),
                Why::KilledByOther,
                &[Kind::SignalGenerate],
            ),
        },
        // Nobody sends these but a fault, a limit or a timer of its own, unless the sender's record was lost.
        None if signal.is_fault() || is_own(signal) => finding(
            Exit::Crashed,
            cause(case, Cause::Crash),
            Why::Crashed(how_crashed(signal)),
            &[Kind::SignalGenerate],
        ),
        None => unknown(case, Missing::SenderNotSeen(signal)),
    }
}

fn ended_with_0(case: &Case<'_>) -> Finding {
    match case.stop {
        None => Finding {
            unasked: true,
            ..finding(Exit::Clean, Cause::Completed, Why::Completed, &[Kind::SignalGenerate])
        },
        Some(stop) if stop.result == SignalResult::Ignored => finding(
            Exit::Clean,
            cause(case, Cause::Completed),
            Why::StoppedUnheard,
            &[Kind::SignalGenerate],
        ),
        Some(_) => finding(
            Exit::Clean,
            cause(case, Cause::Completed),
            Why::Stopped,
            &[Kind::SignalGenerate],
        ),
    }
}

fn ended_with(case: &Case<'_>, at: Boot, code: u8) -> Finding {
    let child = case
        .oom
        .iter()
        .any(|oom| !oom.is_main && oom.at <= at && at.since(oom.at) <= OOM_CHILD_REACH);
    if child {
        return finding(Exit::OomChild, Cause::Oom, Why::OomChild, &[]);
    }
    let Some(stop) = case.stop else {
        return Finding {
            unasked: true,
            ..finding(
                Exit::NonzeroExit,
                Cause::Crash,
                Why::Nonzero,
                &[Kind::SignalGenerate, Kind::OomVictim],
            )
        };
    };
    let cause = cause(case, Cause::Crash);
    let is_signal_code = u32::from(code) == 128 + u32::from(stop.signal.number());
    if !is_signal_code {
        return finding(
            Exit::NonzeroExit,
            cause,
            Why::Nonzero,
            &[Kind::SignalGenerate, Kind::OomVictim],
        );
    }
    // A reader of a blocked signal (signalfd, sigwait) handles it without a handler.
    let read = stop.state.blocked && stop.result != SignalResult::Ignored;
    if stop.handler_entered.is_some() || read {
        return finding(
            Exit::Clean,
            self::cause(case, Cause::Completed),
            Why::StoppedWithSignalCode(stop.signal),
            &[Kind::SignalGenerate],
        );
    }
    finding(
        Exit::NonzeroExit,
        cause,
        Why::Nonzero,
        &[Kind::SignalGenerate, Kind::SignalDeliver, Kind::OomVictim],
    )
}

fn unknown(case: &Case<'_>, missing: Missing) -> Finding {
    finding(Exit::Unknown, cause(case, Cause::Unknown), Why::Unknown(missing), &[])
}

fn finding(exit: Exit, cause: Cause, why: Why, absent: &'static [Kind]) -> Finding {
    Finding {
        exit,
        cause,
        why,
        absent,
        unasked: false,
    }
}

/// Who asked first decides why it had to end, whatever ended it; `unasked` where nobody did.
fn cause(case: &Case<'_>, unasked: Cause) -> Cause {
    match case.stop.map(|stop| stop.sender.role) {
        Some(Role::Runtime) => Cause::Stopped,
        // The kernel's stop signal is a terminal's: somebody pressed a key or hung up.
        Some(Role::Other | Role::Kernel) => Cause::External,
        Some(Role::Inside | Role::Itself) | None => unasked,
    }
}

fn how_crashed(signal: Signal) -> Crash {
    if signal.is_fault() {
        Crash::Fault
    } else if matches!(signal.number(), 24 | 25) {
        Crash::Limit
    } else {
        Crash::Itself
    }
}

/// SIGPIPE, SIGALRM, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF: what a process does to itself; mostly not even recorded.
fn is_own(signal: Signal) -> bool {
    matches!(signal.number(), 13 | 14 | 24 | 25 | 26 | 27)
}

impl Fatal {
    /// `si_code` above 0 and below 128: the kernel tells the process about its own fault.
    fn is_fault(&self) -> bool {
        self.code > 0 && self.code < crate::event::si_code::KERNEL
    }
}
