//! The kernel's evidence decides how the process terminated. No other source changes this.

use super::doubt::*;
use super::inside::{self, Answer, inside, is_reflex, reflex};
use super::{Case, Crash, Fatal, Finding, Missing, Why, kubernetes, may_have_been_stopped_before};
use crate::attribute::{Attribution, Subject};
use crate::event::{Disposition, ExitStatus, Kind, SignalResult};
use crate::ids::Signal;
use crate::termination::{Actor, Kill, Open, Role, Stop};
use crate::time::Boot;
use crate::tolerances::OOM_CHILD_REACH;
use crate::verdict::{Cause, Exit};

pub(super) fn find(case: &Case<'_>) -> Finding {
    if let Some(finding) = oom_killed(case) {
        return finding;
    }
    let Some(exit) = case.exit else {
        return unknown(case, Missing::NoExit(case.open));
    };
    if case.inside.program_unsure {
        return unknown(case, Missing::Program);
    }
    match exit.status {
        ExitStatus::Signaled {
            signal: Signal::KILL, ..
        } => killed(case),
        ExitStatus::Signaled { signal, .. } => signaled(case, signal),
        ExitStatus::Exited(0) => exited_with_0(case),
        ExitStatus::Exited(code) => exited_with(case, exit.at, code),
    }
}

/// The victim is the main process, and no other sender's SIGKILL came first (an exiting process can be marked, too).
fn oom_killed(case: &Case<'_>) -> Option<Finding> {
    let victim = case.oom().iter().find(|oom| oom.is_main())?;
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
        .kill()
        .is_some_and(|kill| kill.sender.role != Role::Kernel && kill.at < victim.at);
    // The kernel's own SIGKILL took effect, so no other came first.
    let by_kernel = case.kill().is_some_and(|kill| kill.sender.role == Role::Kernel);
    let rests = if by_kernel { PROVEN } else { NO_SIGNAL };
    (by_kill && !killed_before).then(|| finding(Exit::OomKilled, Cause::Oom, Why::Oom, rests))
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

fn is_oom_daemon(sender: &Actor) -> bool {
    let unit = match &sender.place {
        Attribution::Subject(Subject::Unit { name }, _) => name,
        _ => return false,
    };
    sender.role == Role::Other && OOM_DAEMONS.iter().any(|daemon| **daemon == **unit)
}

fn killed(case: &Case<'_>) -> Finding {
    let Some(kill) = case.kill() else {
        return unknown(case, Missing::SenderNotSeen(Signal::KILL));
    };
    match kill.sender.role {
        // Also after a stop signal of its own: earlyoom begins with SIGTERM.
        Role::Other if is_oom_daemon(&kill.sender) => finding(Exit::OomKilled, Cause::Oom, Why::OomByDaemon, NO_SIGNAL),
        Role::Runtime => match case.stop().filter(|stop| stop.sender.role == Role::Runtime) {
            Some(stop) => killed_after(case, stop),
            None => {
                let cause = kubernetes::stopped(case);
                finding(Exit::ForceKilled, cause, Why::Forced, NO_SIGNAL_NOR_STOP)
            }
        },
        Role::Other | Role::Inside => match case.stop().filter(|stop| is_manual_stop(case, stop, kill)) {
            Some(stop) => killed_after(case, stop),
            None => {
                // It may be a manual stop whose signal a gap has hidden. What was long before the observation is not of it.
                let rests = match case.stop().is_none() && may_stop(case, kill) && !case.gaps.late_start {
                    true => NO_SIGNAL_NOR_STOP,
                    false => NO_SIGNAL,
                };
                finding(Exit::KilledByOther, cause(case, Cause::External), Why::KilledByOther, rests)
            }
        },
        Role::Itself => finding(Exit::Crashed, cause(case, Cause::Crash), Why::Crashed(Crash::Itself), PROVEN),
        Role::Kernel => kernel_killed(case, kill),
        Role::Unknown => unknown(case, Missing::SenderNotSeen(Signal::KILL)),
    }
}

/// A runtime without a daemon (podman) stops a container from any shell: the same party on the host sent the stop signal, and
/// later the SIGKILL.
fn is_manual_stop(case: &Case<'_>, stop: &Stop, kill: &Kill) -> bool {
    let (stopper, killer) = (&stop.sender, &kill.sender);
    let same = stopper.tgid == killer.tgid || stopper.parent == killer.parent && stopper.parent.0 > 1;
    is_of_host(stopper) && may_stop(case, kill) && same
}

fn may_stop(case: &Case<'_>, kill: &Kill) -> bool {
    matches!(case.subject, Subject::Container { .. }) && is_of_host(&kill.sender)
}

fn is_of_host(sender: &Actor) -> bool {
    sender.role == Role::Other && !matches!(sender.place, Attribution::Subject(Subject::Container { .. }, _))
}

/// The runtime sent the stop signal, waited, and sent SIGKILL.
fn killed_after(case: &Case<'_>, stop: &Stop) -> Finding {
    let cause = cause(case, kubernetes::stopped(case));
    let answer = Answer::of_main(case, stop);
    // Of a main process that read the signal, another process may have held up the exit.
    match answer {
        Answer::Discarded => finding(Exit::IgnoredStopSignal, cause, Why::Ignored, PROVEN),
        Answer::RaisedInVain => reflex(case, Exit::IgnoredStopSignal, cause, Why::RaisedInVain),
        // Unless it sent the signal on, unseen.
        Answer::Unread(how) => inside(Exit::BlockedStopSignal, cause, Why::Blocked(how)),
        Answer::Handled | Answer::Read => {
            let held = inside::killed_after(case, cause);
            held.unwrap_or_else(|| inside(Exit::KilledAfterGrace, cause, Why::AfterGrace))
        }
    }
}

/// OOM, the end of a pid namespace and a resource limit share `si_code`: `mark_victim` and the current process separate them.
fn kernel_killed(case: &Case<'_>, kill: &Kill) -> Finding {
    let is_main = case.main().is_some_and(|main| main.tgid == kill.sender.tgid);
    if is_main {
        return finding(Exit::Crashed, cause(case, Cause::Crash), Why::Crashed(Crash::Limit), NO_OOM);
    }
    if case.fatal().is_some_and(|fatal| fatal.namespace_ended) {
        // The init may have been the main process, and have ended by its stop.
        let cause = cause(case, Cause::External);
        return finding(Exit::KilledByOther, cause, Why::NamespaceEnded, NO_OOM_NOR_STOP);
    }
    unknown(case, Missing::KernelKill)
}

fn signaled(case: &Case<'_>, signal: Signal) -> Finding {
    let by_itself = |fatal: &&Fatal| matches!(fatal.sender.role, Role::Itself) || fatal.is_fault();
    // A handler that raises the stop signal again handled the stop.
    let may_be_raised_again = case
        .stop()
        .is_some_and(|stop| stop.signal == signal && stop.disposition == Disposition::Handler);
    if let Some(stop) = case.stop().filter(|stop| stop.signal == signal) {
        if is_reflex(case, stop.handler_entered, stop.raised_again) {
            return reflex(case, Exit::DefaultAction, cause(case, Cause::Unknown), Why::RaisedAgain);
        }
        if stop.handler_entered.is_some() {
            // A wrapper raises the signal again, too, once its child has ended by it.
            if let Some(finding) = inside::raised_after_child(case, cause(case, Cause::Unknown)) {
                return finding;
            }
            return finding(Exit::Clean, cause(case, Cause::Unknown), Why::Reraised, CLEAN);
        }
        // The stop signal was fatal, unless the process later raised the same signal itself.
        if case.fatal().filter(by_itself).is_none() {
            let is_unit = matches!(case.subject, Subject::Unit { .. });
            let rests = match (stop.disposition == Disposition::Default, is_unit) {
                (true, true) => NO_SIGNAL_TO_ANY,
                (true, false) => NO_SIGNAL,
                (false, true) => NO_SIGNAL_NOR_HANDLER_OF_ANY,
                (false, false) => NO_SIGNAL_NOR_HANDLER,
            };
            return finding(Exit::DefaultAction, cause(case, Cause::Unknown), Why::DefaultAction, rests);
        }
    }
    match case.fatal() {
        Some(fatal) if by_itself(&fatal) => {
            let rests = match () {
                () if may_be_raised_again => NO_HANDLER,
                () if signal.is_fault() || signal.is_self_inflicted() => PROVEN,
                // It may be the stop signal again, raised at the end of its handler, and the stop signal may be the one that was lost.
                () if case.stop().is_none() => NO_SIGNAL_NOR_STOP,
                () => NO_SIGNAL,
            };
            let why = Why::Crashed(how_crashed(signal));
            finding(Exit::Crashed, cause(case, Cause::Crash), why, rests)
        }
        Some(fatal) => match fatal.sender.role {
            Role::Kernel => finding(Exit::Crashed, cause(case, Cause::Crash), Why::Crashed(Crash::Limit), PROVEN),
            Role::Runtime => finding(
                Exit::DefaultAction,
                cause(case, Cause::Stopped),
                Why::DefaultAction,
                NO_SIGNAL_NOR_HANDLER,
            ),
            Role::Unknown => unknown(case, Missing::SenderNotSeen(signal)),
            Role::Itself | Role::Inside | Role::Other => finding(
                Exit::KilledByOther,
                cause(case, Cause::External),
                Why::KilledByOther,
                NO_SIGNAL,
            ),
        },
        None if signal.is_timer() => unknown(case, Missing::Timer(signal)),
        // Only a fault or a limit of the process raises these, unless the sender's record was lost.
        None if signal.is_fault() || signal.is_self_inflicted() => {
            let why = Why::Crashed(how_crashed(signal));
            finding(Exit::Crashed, cause(case, Cause::Crash), why, NO_SIGNAL_NOR_STOP)
        }
        None => unknown(case, Missing::SenderNotSeen(signal)),
    }
}

fn exited_with_0(case: &Case<'_>) -> Finding {
    if let Some(finding) = inside::exited(case, cause(case, Cause::Completed)) {
        return finding;
    }
    match case.stop() {
        None if let Some(finding) = failed_below(case) => finding,
        // A stop that was not seen may have ended otherwise below it, or in its preStop hook.
        None => finding(Exit::Clean, cause(case, Cause::Completed), Why::Completed, COMPLETED),
        Some(_) if let Some(finding) = unseen_below(case) => finding,
        // It may have sent the signal on, unseen.
        Some(stop) => {
            let why = match stop.result {
                SignalResult::Ignored => Why::StoppedAfterDiscard,
                _ => Why::Stopped,
            };
            let rests = if case.inside.forwards.is_empty() {
                CLEAN
            } else {
                CLEAN_INSIDE
            };
            finding(Exit::Clean, cause(case, Cause::Completed), why, rests)
        }
    }
}

/// A program with clients ended by a signal, and the main process exited with 0 all the same. One that was killed has its sender:
/// [`unless_worse_below`].
fn failed_below(case: &Case<'_>) -> Option<Finding> {
    let child = case.failed_child?;
    let ExitStatus::Signaled { signal, .. } = child.exit.status else {
        let cause = cause(case, Cause::Crash);
        return Some(finding(Exit::NonzeroExit, cause, Why::ChildFailed, NO_SIGNAL));
    };
    if case.inside.killed_programs().any(|killed| killed.process == child.process) {
        return None;
    }
    Some(match signal.is_fault() {
        true => finding(Exit::Crashed, cause(case, Cause::Crash), Why::ChildCrashed, NO_SIGNAL),
        false => unknown(case, Missing::EndOfChild(signal)),
    })
}

/// The OOM killer killed another process during the stop, or so shortly before the exit that the exit follows from it.
fn oom_child(case: &Case<'_>) -> Option<Finding> {
    let end = case.exit?.at;
    let stop = case.stop().map_or(end, |stop| stop.at).min(end.minus(OOM_CHILD_REACH));
    let mut victims = case
        .oom()
        .iter()
        .filter(|oom| !oom.is_main() && !oom.role.is_from_outside() && stop <= oom.at && oom.at <= end);
    let first = victims.next()?;
    // A child of the main process is its own. Any other may have come from outside, by an exec whose record is lost.
    let rests = match first.of_main || victims.any(|oom| oom.of_main) {
        true => PROVEN,
        false => NO_EXEC,
    };
    Some(finding(Exit::OomChild, Cause::Oom, Why::OomChild, rests))
}

/// What is clean, if nothing below the main process was worse.
pub(super) fn unless_worse_below(case: &Case<'_>, found: Finding) -> Finding {
    match found.exit {
        Exit::Clean => oom_child(case).unwrap_or_else(|| inside::unless_killed(case, found)),
        _ => found,
    }
}

fn exited_with(case: &Case<'_>, at: Boot, code: u8) -> Finding {
    if let Some(finding) = oom_child(case) {
        return finding;
    }
    let Some(stop) = case.stop() else {
        if let Some(finding) = failed_below(case) {
            return finding;
        }
        // 128 + n can be the code of a handled stop signal. Any other code is an error with a stop signal, too: only the cause may
        // be in doubt, also if the OOM killer may have killed a child unseen.
        let oom_unseen = |since: Boot| at.since(since) < OOM_CHILD_REACH;
        let may_be_oom = case.missing.late_start.is_some_and(oom_unseen) || case.missing.inactive.contains(&Kind::OomVictim);
        // Kubernetes did not ask before: whether another party did, the API does not show.
        let otherwise = match case.missing.late_start.is_some() || may_be_oom {
            true => Cause::Unknown,
            false => Cause::Crash,
        };
        // A child's fault may be the reason.
        let by_fault = signal_of(code).is_some_and(Signal::is_fault);
        let rests = match (by_fault, may_be_signal_code(code)) {
            (true, true) => COMPLETED,
            (true, false) => CLEAN,
            (false, true) => NO_SIGNAL_NOR_OOM_NOR_STOP,
            (false, false) => NO_SIGNAL_NOR_OOM,
        };
        return finding(Exit::NonzeroExit, cause(case, otherwise), Why::Nonzero, rests);
    };
    let cause = cause(case, Cause::Crash);
    if let Some(finding) = inside::exited(case, cause) {
        return finding;
    }
    let is_signal_code = u32::from(code) == 128 + u32::from(stop.signal.number());
    // PID 1 has no default action: a language runtime exits by itself after its second signal.
    let is_discarded = stop.raised_again.is_some_and(|raised| raised.discarded);
    if is_discarded && is_reflex(case, stop.handler_entered, stop.raised_again) {
        return reflex(case, Exit::DefaultAction, cause, Why::RaisedAgain);
    }
    if !is_signal_code && inside::raised_then_failed(case, stop, at) {
        return clean(case, Why::RaisedThenFailed);
    }
    // A reader of a blocked signal (signalfd, sigwait) handles it without a handler.
    let reads = (stop.state.blocked || stop.state.sigwait) && stop.result != SignalResult::Ignored;
    if !is_signal_code || stop.handler_entered.is_none() && !reads {
        // Another process may have had the worse end, also one to which the main process sent the signal on, unseen.
        return finding(Exit::NonzeroExit, cause, Why::Nonzero, CLEAN_INSIDE);
    }
    // It may be an init that has the code from a child, which the default action terminated.
    if stop.handler_entered.is_none() && !case.inside.observed {
        return unknown(case, Missing::Inside);
    }
    unseen_below(case).unwrap_or_else(|| clean(case, Why::StoppedWithSignalCode(stop.signal)))
}

/// As [`failed_below`], where a process of the subject's own had sent the stop signal.
fn unseen_below(case: &Case<'_>) -> Option<Finding> {
    (!case.inside.observed).then(|| failed_below(case)).flatten()
}

fn clean(case: &Case<'_>, why: Why) -> Finding {
    finding(Exit::Clean, cause(case, Cause::Completed), why, CLEAN_INSIDE)
}

/// 128 + n of a signal that can stop a container: any but SIGKILL and the ones that pause a process.
fn may_be_signal_code(code: u8) -> bool {
    signal_of(code).is_some_and(|signal| signal != Signal::KILL && !signal.is_job_control())
}

fn signal_of(code: u8) -> Option<Signal> {
    code.checked_sub(128).and_then(|number| Signal::new(number.into()))
}

pub(super) fn unknown(case: &Case<'_>, missing: Missing) -> Finding {
    // Which of two parties terminated the process: the one that sent the stop signal, or the one that sent SIGKILL?
    let senders = case
        .stop()
        .zip(case.kill())
        .map(|(stop, kill)| (stop.sender.role, kill.sender.role));
    let are_apart = senders.is_some_and(|(stop, kill)| stop != Role::Runtime && stop != kill);
    let cause = match are_apart {
        true => kubernetes::cause_before(case, case.end).unwrap_or(Cause::Unknown),
        false => cause(case, Cause::Unknown),
    };
    finding(Exit::Unknown, cause, Why::Unknown(missing), PROVEN)
}

pub(super) fn finding(exit: Exit, cause: Cause, why: Why, rests: &'static [Ask]) -> Finding {
    Finding { exit, cause, why, rests }
}

/// The first stop request decides the cause, for any kind of exit; `otherwise` if there was no request. The runtime's request goes
/// before any other: if its record may be missing, only Kubernetes knows the cause.
fn cause(case: &Case<'_>, otherwise: Cause) -> Cause {
    let is_runtimes = case.stop().is_some_and(|stop| stop.sender.role == Role::Runtime);
    let may_miss = case.missing.over_cap
        || case.missing.may_lack(Kind::SignalGenerate)
        || !case.missing.stops.is_empty()
        || !is_runtimes && (may_have_been_stopped_before(case) || case.missing.gap || matches!(case.open, Open::InGap { .. }));
    let by_kernel = |cause| if may_miss { Cause::Unknown } else { cause };
    match case.stop().map(|stop| (stop.sender.role, stop.at)) {
        Some((Role::Runtime, _)) => kubernetes::stopped(case),
        Some((Role::Other, _)) if case.stop().is_some_and(|stop| is_oom_daemon(&stop.sender)) => by_kernel(Cause::Oom),
        // The kernel's stop signal is a terminal's: a key or a hangup.
        Some((Role::Unknown, at)) => kubernetes::cause_before(case, at).unwrap_or(Cause::Unknown),
        Some((Role::Other | Role::Kernel, at)) => kubernetes::cause_before(case, at).unwrap_or(by_kernel(Cause::External)),
        Some((Role::Inside, _)) => {
            // Who asked is not known: a supervisor, an `ExecStop=` or `kubectl exec`. Workers signal their parent for many reasons, none of
            // an exit with an error.
            let is_request = otherwise != Cause::Crash || case.stop().is_some_and(|stop| stop.signal.is_request());
            let by = if is_request { Cause::Unknown } else { otherwise };
            kubernetes::cause_before(case, case.end).unwrap_or(by_kernel(by))
        }
        Some((Role::Itself, _)) | None => kubernetes::cause_before(case, case.end).unwrap_or(by_kernel(otherwise)),
    }
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
