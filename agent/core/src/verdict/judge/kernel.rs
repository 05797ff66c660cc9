//! Rules of a main process that exited, or that another signal than SIGKILL ended. The kernel's evidence decides how the process terminated:
//! no other source changes this.

use super::ask::*;
use super::cause::{cause, unknown};
use super::finding::{Crash, Finding, Found, Missing, Why, finding};
use super::inside::{self, is_reflex};
use crate::attribute::Subject;
use crate::event::{Disposition, ExitStatus, Kind, SignalResult};
use crate::ids::Signal;
use crate::ledger::Claim;
use crate::termination::{Fatal, Killed, OomKill, Role, Stop};
use crate::time::Boot;
use crate::tolerances::OOM_CHILD_REACH;
use crate::verdict::case::Case;
use crate::verdict::{Cause, Exit};

/// systemd's stop signal ended a unit's first process, and another process may be the program.
pub(super) fn program_unsure(case: &Case<'_>, _: &Finding) -> Found {
    (case.exit.is_some() && case.inside.program_unsure).then(|| unknown(case, Missing::Program))
}

fn status(case: &Case<'_>) -> Option<ExitStatus> {
    case.exit.map(|exit| exit.status)
}

/// The signal that ended the main process, if it was another one.
fn ended_by(case: &Case<'_>) -> Option<Signal> {
    status(case)?.signal().filter(|signal| *signal != Signal::KILL)
}

fn code(case: &Case<'_>) -> Option<u8> {
    status(case)?.code()
}

/// The stop signal, if the same one ended the main process.
fn fatal_stop<'a>(case: &Case<'a>) -> Option<&'a Stop> {
    let signal = ended_by(case)?;
    case.stop().filter(|stop| stop.signal == signal)
}

pub(super) fn raised_again(case: &Case<'_>, _: &Finding) -> Found {
    let stop = fatal_stop(case)?;
    is_reflex(case, stop.began(), stop.raised_again)
        .then(|| finding(Exit::DefaultAction, cause(case, Cause::Unknown), Why::RaisedAgain, REFLEX))
}

/// A wrapper raises the signal again, too, once its child has ended by it.
pub(super) fn raised_after_child(case: &Case<'_>, _: &Finding) -> Found {
    fatal_stop(case)?.began()?;
    inside::raised_after_child(case, cause(case, Cause::Unknown))
}

pub(super) fn reraised(case: &Case<'_>, _: &Finding) -> Found {
    fatal_stop(case)?.began()?;
    Some(finding(
        Exit::Clean,
        cause(case, Cause::Unknown),
        Why::Reraised,
        rests_of_clean(case),
    ))
}

/// The stop signal was fatal, unless the process later raised the same signal itself.
pub(super) fn default_action(case: &Case<'_>, _: &Finding) -> Found {
    let stop = fatal_stop(case).filter(|_| !case.fatal().is_some_and(is_by_itself))?;
    let is_unit = matches!(case.subject, Subject::Unit { .. });
    let rests = match (stop.disposition == Disposition::Default, is_unit) {
        (true, true) => NO_SIGNAL_TO_ANY,
        (true, false) => NO_SIGNAL,
        (false, true) => NO_SIGNAL_NOR_HANDLER_OF_ANY,
        (false, false) => NO_SIGNAL_NOR_HANDLER,
    };
    Some(finding(
        Exit::DefaultAction,
        cause(case, Cause::Unknown),
        Why::DefaultAction,
        rests,
    ))
}

/// The daemon begins with the signal that most programs have no handler for, and does not come to SIGKILL.
pub(super) fn ended_by_oom_daemon(case: &Case<'_>, before: &Finding) -> Found {
    let by_default = default_action(case, before)?;
    fatal_stop(case)?
        .sender
        .is_oom_daemon()
        .then(|| finding(Exit::OomKilled, Cause::Oom, Why::OomByDaemon, by_default.rests))
}

fn is_by_itself(fatal: &Fatal) -> bool {
    matches!(fatal.sender.role, Role::Itself) || fatal.is_fault()
}

pub(super) fn crashed(case: &Case<'_>, _: &Finding) -> Found {
    let signal = ended_by(case)?;
    let is_own = signal.is_fault() || signal.is_self_inflicted();
    // A handler that raises the stop signal again handled the stop.
    let may_be_raised_again = fatal_stop(case).is_some_and(|stop| stop.disposition == Disposition::Handler);
    let (crash, rests) = match case.fatal() {
        Some(fatal) if is_by_itself(fatal) => {
            let rests = match () {
                () if may_be_raised_again => NO_HANDLER,
                () if is_own => PROVEN,
                // It may be the stop signal again, raised at the end of its handler, and the stop signal may be the one that was lost.
                () if case.stop().is_none() => NO_SIGNAL_NOR_STOP,
                () => NO_SIGNAL,
            };
            (how_crashed(signal), rests)
        }
        Some(fatal) if fatal.sender.role == Role::Kernel => (Crash::Limit, PROVEN),
        // Only a fault or a limit of the process raises these, unless the sender's record was lost.
        None if is_own && !signal.is_timer() => (how_crashed(signal), NO_SIGNAL_NOR_STOP),
        _ => return None,
    };
    Some(finding(Exit::Crashed, cause(case, Cause::Crash), Why::Crashed(crash), rests))
}

pub(super) fn signalled_by_runtime(case: &Case<'_>, _: &Finding) -> Found {
    let is_runtimes = ended_by(case).and(case.fatal())?.sender.role == Role::Runtime;
    is_runtimes.then(|| {
        finding(
            Exit::DefaultAction,
            cause(case, Cause::Stopped),
            Why::DefaultAction,
            NO_SIGNAL_NOR_HANDLER,
        )
    })
}

pub(super) fn signalled_by_other(case: &Case<'_>, _: &Finding) -> Found {
    let is_others = matches!(ended_by(case).and(case.fatal())?.sender.role, Role::Inside | Role::Other);
    is_others.then(|| {
        finding(
            Exit::KilledByOther,
            cause(case, Cause::External),
            Why::KilledByOther,
            NO_SIGNAL,
        )
    })
}

pub(super) fn signalled(case: &Case<'_>, _: &Finding) -> Found {
    let signal = ended_by(case)?;
    let is_timer = case.fatal().is_none() && signal.is_timer();
    let missing = if is_timer {
        Missing::Timer(signal)
    } else {
        Missing::SenderNotSeen(signal)
    };
    Some(unknown(case, missing))
}

/// Of an exit with an error: the child's end is the reason.
pub(super) fn failed_by_oom(case: &Case<'_>, _: &Finding) -> Found {
    code(case).filter(|code| *code != 0)?;
    oom_child_or_open(case)
}

pub(super) fn ended_inside(case: &Case<'_>, _: &Finding) -> Found {
    let otherwise = if code(case)? == 0 { Cause::Completed } else { Cause::Crash };
    inside::exited(case, cause(case, otherwise)).map(|found| unless_by_oom(case, found))
}

/// Of an exit with an error an OOM kill of another process would be the reason.
fn unless_by_oom(case: &Case<'_>, found: Finding) -> Finding {
    let rests = match code(case) {
        Some(1..) => nor_oom(found.rests),
        _ => found.rests,
    };
    Finding { rests, ..found }
}

/// Of a stop that a process of the subject's own sent, what it led to inside is not recorded.
pub(super) fn child_failed(case: &Case<'_>, _: &Finding) -> Found {
    let is_good = code(case)? == 0 && !case.inside.observed;
    let found = (case.stop().is_none() || is_good).then(|| failed_below(case))??;
    Some(unless_by_oom(case, found))
}

/// A stop that was not seen may have ended otherwise below it, or in its preStop hook.
pub(super) fn completed(case: &Case<'_>, _: &Finding) -> Found {
    let is_by_itself = code(case)? == 0 && case.stop().is_none();
    is_by_itself.then(|| finding(Exit::Clean, cause(case, Cause::Completed), Why::Completed, COMPLETED))
}

/// It may have sent the signal on, unseen.
pub(super) fn stopped(case: &Case<'_>, _: &Finding) -> Found {
    let stop = case.stop().filter(|_| code(case) == Some(0))?;
    let why = match stop.result {
        SignalResult::Ignored => Why::StoppedAfterDiscard,
        _ => Why::Stopped,
    };
    Some(finding(Exit::Clean, cause(case, Cause::Completed), why, rests_of_clean(case)))
}

/// 128 + n can be the code of a handled stop signal. Any other code is an error with a stop signal, too: only the cause may be in doubt, also
/// if the OOM killer may have killed a child unseen.
pub(super) fn failed(case: &Case<'_>, _: &Finding) -> Found {
    let (code, at) = code(case).filter(|_| case.stop().is_none()).zip(Some(case.exit?.at))?;
    let oom_unseen = |since: Boot| at.since(since) < OOM_CHILD_REACH;
    let may_be_oom = case.missing.late_start().is_some_and(oom_unseen) || case.missing.lacks(Claim::Main, Kind::OomVictim);
    // The signal that ended a process below may be the reason: a fault, or a stranger's.
    let may_be_childs = signal_of(code).is_some_and(|signal| !signal.is_job_control());
    let may_be_hidden = may_be_childs && case.missing.has_gap(Claim::Others);
    // Kubernetes did not ask before: whether another party did, the API does not show.
    let otherwise = match case.missing.late_start().is_some() || may_be_oom || may_be_hidden {
        true => Cause::Unknown,
        false => Cause::Crash,
    };
    let rests = match (may_be_childs, may_be_signal_code(code)) {
        (true, true) => COMPLETED,
        (true, false) => CLEAN,
        (false, _) => NO_SIGNAL_NOR_OOM,
    };
    Some(finding(Exit::NonzeroExit, cause(case, otherwise), Why::Nonzero, rests))
}

/// Of PID 1, which has no default action: a language runtime exits by itself after its second signal.
pub(super) fn failed_after_discard(case: &Case<'_>, _: &Finding) -> Found {
    let stop = code(case).and(case.stop())?;
    let is_discarded = stop.raised_again.is_some_and(|raised| raised.discarded);
    let found = || finding(Exit::DefaultAction, cause(case, Cause::Crash), Why::RaisedAgain, REFLEX);
    (is_discarded && is_reflex(case, stop.began(), stop.raised_again)).then(|| unless_by_oom(case, found()))
}

/// 128 + the number of the stop signal.
fn is_code_of(code: u8, stop: &Stop) -> bool {
    u32::from(code) == 128 + u32::from(stop.signal.number())
}

pub(super) fn raised_then_failed(case: &Case<'_>, _: &Finding) -> Found {
    let (code, stop) = code(case).zip(case.stop())?;
    (!is_code_of(code, stop) && inside::raised_then_failed(case, stop, case.exit?.at))
        .then(|| clean(case, Why::RaisedThenFailed))
}

/// A reader of a blocked signal (signalfd, sigwait) handles it without a handler.
fn reads(stop: &Stop) -> bool {
    (stop.state.blocked || stop.state.sigwait) && !stop.is_discarded()
}

/// Another process may have had the worse end, also one to which the main process sent the signal on, unseen.
pub(super) fn failed_after_stop(case: &Case<'_>, _: &Finding) -> Found {
    let (code, stop) = code(case).zip(case.stop())?;
    (!is_code_of(code, stop) || stop.handler_entered.is_none() && !reads(stop))
        .then(|| finding(Exit::NonzeroExit, cause(case, Cause::Crash), Why::Nonzero, CLEAN_INSIDE))
}

/// The code of a stop signal: it may be an init that has the code from a child, which the default action terminated.
pub(super) fn code_from_inside(case: &Case<'_>, _: &Finding) -> Found {
    let stop = code(case).and(case.stop()).filter(|_| !case.inside.observed)?;
    match stop.handler_entered {
        None => Some(unknown(case, Missing::Inside)),
        Some(_) => failed_below(case).map(|found| unless_by_oom(case, found)),
    }
}

pub(super) fn stopped_with_code(case: &Case<'_>, _: &Finding) -> Found {
    let stop = code(case).and(case.stop())?;
    Some(clean(case, Why::StoppedWithSignalCode(stop.signal)))
}

/// A program with clients ended by a signal, and the main process exited with 0 all the same. One that was killed has its sender:
/// [`inside::killed_below`].
fn failed_below(case: &Case<'_>) -> Option<Finding> {
    let child = case.failed_child?;
    let Some(signal) = child.exit.status.signal() else {
        let cause = cause(case, Cause::Crash);
        // With a stop signal before, an exit of the main process with 0 is clean.
        let rests = match case.stop() {
            None => NO_SIGNAL_NOR_STOP,
            Some(_) => NO_SIGNAL,
        };
        return Some(finding(Exit::NonzeroExit, cause, Why::ChildFailed, rests));
    };
    let is_known = |killed: &Killed| killed.process.is(&child.process) && killed.kill.role != Role::Unknown;
    // Of an OOM kill only the choice of the victim has a record.
    let is_victim =
        |oom: &OomKill| signal == Signal::KILL && (child.process.tgid, child.process.start) == (oom.tgid, oom.start);
    if case.inside.killed_programs().any(is_known) || ooms_below(case).any(is_victim) {
        return None;
    }
    Some(match signal.is_fault() {
        // Another process may have sent it.
        true => finding(Exit::Crashed, cause(case, Cause::Crash), Why::ChildCrashed, NO_SIGNAL_TO_ANY),
        false => unknown(case, Missing::EndOfChild(signal)),
    })
}

/// The OOM killer killed another process during the stop, or so shortly before the exit that the exit follows from it.
fn oom_child(case: &Case<'_>) -> Option<Finding> {
    let mut victims = ooms_below(case).filter(|oom| oom.role.is_programs());
    let first = victims.next()?;
    // A child of the main process is its own. Any other may have come from outside, by an exec whose record is lost.
    let rests = match first.of_main || victims.any(|oom| oom.of_main) {
        true => PROVEN,
        false => NO_EXEC,
    };
    Some(finding(Exit::OomChild, Cause::Oom, Why::OomChild, rests))
}

/// The victims that are the program's, or may be.
fn ooms_below<'a>(case: &Case<'a>) -> impl Iterator<Item = &'a OomKill> {
    let end = case.exit.map(|exit| exit.at);
    let from = end.map(|end| case.stop().map_or(end, |stop| stop.at).min(end.minus(OOM_CHILD_REACH)));
    let is_in_time = move |at: Boot| from <= Some(at) && Some(at) <= end;
    let ooms = case.oom().iter();
    ooms.filter(move |oom| !oom.is_main() && !oom.role.is_from_outside() && is_in_time(oom.at))
}

/// The only victims are some of which nothing shows whether they were the program's.
fn is_oom_child_open(case: &Case<'_>) -> bool {
    ooms_below(case).next().is_some() && ooms_below(case).all(|oom| !oom.role.is_programs())
}

pub(super) fn oom_child_of_clean(case: &Case<'_>, found: &Finding) -> Found {
    if found.exit != Exit::Clean {
        return None;
    }
    oom_child_or_open(case)
}

fn oom_child_or_open(case: &Case<'_>) -> Option<Finding> {
    let is_open = is_oom_child_open(case);
    oom_child(case).or_else(|| is_open.then(|| unknown(case, Missing::Victim)))
}

fn clean(case: &Case<'_>, why: Why) -> Finding {
    finding(
        Exit::Clean,
        cause(case, Cause::Completed),
        why,
        unless_helpers_ended(case, CLEAN_INSIDE),
    )
}

fn rests_of_clean(case: &Case<'_>) -> &'static [Ask] {
    let otherwise = if case.inside.forwards.is_empty() {
        CLEAN
    } else {
        CLEAN_INSIDE
    };
    unless_helpers_ended(case, otherwise)
}

fn unless_helpers_ended(case: &Case<'_>, otherwise: &'static [Ask]) -> &'static [Ask] {
    match case.inside.ended_by_default {
        true => CLEAN_OF_HELPERS,
        false => otherwise,
    }
}

/// 128 + n of a signal that can stop a container: any but SIGKILL and the ones that pause a process.
fn may_be_signal_code(code: u8) -> bool {
    signal_of(code).is_some_and(|signal| signal != Signal::KILL && !signal.is_job_control())
}

fn signal_of(code: u8) -> Option<Signal> {
    code.checked_sub(128).and_then(|number| Signal::new(number.into()))
}

fn how_crashed(signal: Signal) -> Crash {
    if signal.is_fault() {
        Crash::Fault
    } else if signal.is_resource_limit() {
        Crash::Limit
    } else {
        Crash::Itself
    }
}
