//! The cause: which party asked first.

use super::ask::PROVEN;
use super::context;
use super::finding::{Finding, Missing, Why, finding};
use crate::event::Kind;
use crate::ledger::Claim;
use crate::termination::{Open, Role};
use crate::verdict::case::Case;
use crate::verdict::{Cause, Exit};

pub(super) fn unknown(case: &Case<'_>, missing: Missing) -> Finding {
    // Which of two parties terminated the process: the one that sent the stop signal, or the one that sent SIGKILL?
    let senders = case
        .stop()
        .zip(case.kill())
        .map(|(stop, kill)| (stop.sender.role, kill.sender.role));
    let are_apart = senders.is_some_and(|(stop, kill)| stop != Role::Runtime && stop != kill);
    let cause = match (&missing, are_apart) {
        // Whose stop it was is what is not known.
        (Missing::Main, _) => Cause::Unknown,
        (_, true) => context::cause_before(case, case.end).unwrap_or(Cause::Unknown),
        (_, false) => cause(case, Cause::Unknown),
    };
    finding(Exit::Unknown, cause, Why::Unknown(missing), PROVEN)
}

/// The first stop request decides the cause, for any kind of exit; `otherwise` if there was no request. The runtime's request goes
/// before any other: if its record may be missing, only Kubernetes knows the cause.
pub(super) fn cause(case: &Case<'_>, otherwise: Cause) -> Cause {
    let is_runtimes = case.runtime_stop().is_some();
    let may_miss = case.missing.lacks(Claim::Main, Kind::SignalGenerate)
        || case.missing.lost(Claim::NoStop).next().is_some()
        || !is_runtimes && (context::may_have_been_stopped_before(case) || matches!(case.open, Open::InGap { .. }));
    let by_kernel = |cause| if may_miss { Cause::Unknown } else { cause };
    match case.stop().map(|stop| (stop.sender.role, stop.at)) {
        Some((Role::Runtime, _)) => context::stopped(case),
        Some((Role::Other, _)) if case.stop().is_some_and(|stop| stop.sender.is_oom_daemon()) => by_kernel(Cause::Oom),
        // The kernel's stop signal is a terminal's: a key or a hangup.
        Some((Role::Unknown, at)) => context::cause_before(case, at).unwrap_or(Cause::Unknown),
        Some((Role::Other | Role::Kernel, at)) => context::cause_before(case, at).unwrap_or(by_kernel(Cause::External)),
        Some((Role::Inside, _)) => {
            // Who asked is not known: a supervisor, an `ExecStop=` or `kubectl exec`. Workers signal their parent for many reasons, none of
            // an exit with an error.
            let is_request = otherwise != Cause::Crash || case.stop().is_some_and(|stop| stop.signal.is_request());
            let by = if is_request { Cause::Unknown } else { otherwise };
            context::cause_before(case, case.end).unwrap_or(by_kernel(by))
        }
        Some((Role::Itself, _)) | None => context::cause_before(case, case.end).unwrap_or(by_kernel(otherwise)),
    }
}
