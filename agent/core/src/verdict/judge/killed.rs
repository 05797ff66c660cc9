//! Rules of a main process that SIGKILL ended.

use super::ask::{NO_OOM, NO_OOM_NOR_STOP, NO_SIGNAL, NO_SIGNAL_NOR_STOP, PROVEN, REFLEX};
use super::cause::{cause, unknown};
use super::context;
use super::finding::{Crash, Finding, Found, Missing, Why, finding};
use super::inside::{self, Answer, inside};
use crate::attribute::{Attribution, Subject};
use crate::ids::Signal;
use crate::termination::{Actor, Kill, Role, Stop};
use crate::verdict::case::Case;
use crate::verdict::{Cause, Exit};

/// The SIGKILL that ended the main process.
fn killer<'a>(case: &Case<'a>) -> Option<&'a Kill> {
    case.kill().filter(|_| case.was_killed())
}

/// The victim is the main process, and no other sender's SIGKILL came first.
pub(super) fn oom_killed(case: &Case<'_>, _: &Finding) -> Found {
    let victim = case.oom().iter().find(|oom| oom.is_main())?;
    let by_kill = case.exit.is_none() || case.was_killed();
    let killed_before = case
        .kill()
        .is_some_and(|kill| kill.sender.role != Role::Kernel && kill.at < victim.at);
    // The kernel's own SIGKILL took effect, so no other came first.
    let by_kernel = case.kill().is_some_and(|kill| kill.sender.role == Role::Kernel);
    // An exiting process can be marked, too: without the kernel's SIGKILL, another's may have come first, also before the observation.
    let rests = if by_kernel { PROVEN } else { NO_SIGNAL_NOR_STOP };
    (by_kill && !killed_before).then(|| finding(Exit::OomKilled, Cause::Oom, Why::Oom, rests))
}

/// Also after a stop signal of its own: earlyoom begins with SIGTERM.
pub(super) fn killed_by_oom_daemon(case: &Case<'_>, _: &Finding) -> Found {
    killer(case)?
        .sender
        .is_oom_daemon()
        .then(|| finding(Exit::OomKilled, Cause::Oom, Why::OomByDaemon, NO_SIGNAL))
}

/// The answer to a stop signal whose sender waited, and then sent SIGKILL; and the cause.
fn answer(case: &Case<'_>) -> Option<(Answer, Cause)> {
    let (kill, stop) = killer(case).zip(case.stop())?;
    let is_same = match kill.sender.role {
        Role::Runtime => stop.sender.role == Role::Runtime,
        Role::Other | Role::Inside => is_manual_stop(case, stop, kill),
        Role::Itself | Role::Kernel | Role::Unknown => false,
    };
    is_same.then(|| (Answer::of_main(case, stop), cause(case, context::stopped(case))))
}

pub(super) fn discarded(case: &Case<'_>, _: &Finding) -> Found {
    let (answer, cause) = answer(case)?;
    (answer == Answer::Discarded).then(|| finding(Exit::IgnoredStopSignal, cause, Why::Ignored, PROVEN))
}

pub(super) fn raised_in_vain(case: &Case<'_>, _: &Finding) -> Found {
    let (answer, cause) = answer(case)?;
    (answer == Answer::RaisedInVain).then(|| finding(Exit::IgnoredStopSignal, cause, Why::RaisedInVain, REFLEX))
}

/// Unless it sent the signal on, unseen.
pub(super) fn unread(case: &Case<'_>, _: &Finding) -> Found {
    match answer(case)? {
        (Answer::Unread(how), cause) => Some(inside(Exit::BlockedStopSignal, cause, Why::Blocked(how))),
        _ => None,
    }
}

/// Of a main process that read the signal, another process may have held up the exit.
pub(super) fn held_up(case: &Case<'_>, _: &Finding) -> Found {
    inside::killed_after(case, answer(case)?.1)
}

pub(super) fn after_grace(case: &Case<'_>, _: &Finding) -> Found {
    Some(inside(Exit::KilledAfterGrace, answer(case)?.1, Why::AfterGrace))
}

pub(super) fn forced(case: &Case<'_>, _: &Finding) -> Found {
    let is_runtimes = killer(case)?.sender.role == Role::Runtime;
    is_runtimes.then(|| finding(Exit::ForceKilled, context::stopped(case), Why::Forced, NO_SIGNAL_NOR_STOP))
}

pub(super) fn killed_by_other(case: &Case<'_>, _: &Finding) -> Found {
    let kill = killer(case).filter(|kill| matches!(kill.sender.role, Role::Other | Role::Inside))?;
    // It may be a manual stop whose signal came before the observation, or in a gap.
    let rests = match case.stop().is_none() && may_stop(case, kill) {
        true => NO_SIGNAL_NOR_STOP,
        false => NO_SIGNAL,
    };
    Some(finding(
        Exit::KilledByOther,
        cause(case, Cause::External),
        Why::KilledByOther,
        rests,
    ))
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

/// OOM, the end of a pid namespace and a resource limit share `si_code`: `mark_victim` and the current process separate them.
pub(super) fn killed_itself(case: &Case<'_>, _: &Finding) -> Found {
    let kill = killer(case)?;
    let is_limit = kill.sender.role == Role::Kernel && case.main().is_some_and(|main| main.tgid == kill.sender.tgid);
    let (crash, rests) = match kill.sender.role {
        Role::Itself => (Crash::Itself, PROVEN),
        _ if is_limit => (Crash::Limit, NO_OOM),
        _ => return None,
    };
    Some(finding(Exit::Crashed, cause(case, Cause::Crash), Why::Crashed(crash), rests))
}

pub(super) fn namespace_ended(case: &Case<'_>, _: &Finding) -> Found {
    let has_ended = killer(case)?.sender.role == Role::Kernel && case.fatal().is_some_and(|fatal| fatal.namespace_ended);
    // The init may have been the main process, and have ended by its stop.
    let cause = cause(case, Cause::External);
    has_ended.then(|| finding(Exit::KilledByOther, cause, Why::NamespaceEnded, NO_OOM_NOR_STOP))
}

pub(super) fn killed(case: &Case<'_>, _: &Finding) -> Found {
    let by_kernel = case.kill().is_some_and(|kill| kill.sender.role == Role::Kernel);
    let missing = if by_kernel {
        Missing::KernelKill
    } else {
        Missing::SenderNotSeen(Signal::KILL)
    };
    case.was_killed().then(|| unknown(case, missing))
}
