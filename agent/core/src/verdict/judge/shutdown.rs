//! A node's shutdown, joined to the kernel's evidence: did the shutdown take time from the process that the process had?

use std::time::Duration;

use super::doubt::NO_EXIT_NOR_REMOVAL;
use super::kernel::{finding, unknown};
use super::{Case, Finding, InnerEnd, Missing, Open, Why};
use crate::ids::Pid;
use crate::kubernetes::StopReason;
use crate::termination::{Kill, Role};
use crate::tolerances::RESOLUTION;
use crate::verdict::spent::Spent;
use crate::verdict::{Cause, Exit};

const INIT: Pid = Pid(1);
/// `comm` of systemd-shutdown, which is PID 1 at the end.
const SHUTDOWN: &[u8] = b"systemd-shutdow";

/// Only of a process that the shutdown stopped, and that was shutting down: its own fault goes first.
pub(super) fn cut(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let was_stopping = matches!(
        found.why,
        Why::AfterGrace | Why::Inside(InnerEnd::AfterGrace, _) | Why::Forced
    );
    (case.shutdown.is_some() && was_stopping && was_cut(case)).then(|| match is_unexplained(case) {
        // The shutdown may not have stopped the container: its own grace period, or less of it.
        true => unknown(case, Missing::Request),
        false => finding(Exit::TruncatedByShutdown, found.cause, Why::CutByShutdown, found.rests),
    })
}

/// Its end was not seen, because there was none before the node's.
pub(super) fn ran_on(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let is_open = found.why == Why::Unknown(Missing::NoExit(Open::NodeDown));
    let is_it = is_open && case.shutdown.as_ref()?.ran_at.is_some() && case.stop().is_some();
    let (exit, rests) = (Exit::TruncatedByShutdown, NO_EXIT_NOR_REMOVAL);
    is_it.then(|| finding(exit, found.cause, Why::RanAtShutdown, rests))
}

/// Why Kubernetes stopped the container is unknown, and the shutdown itself did not kill it.
fn is_unexplained(case: &Case<'_>) -> bool {
    let reason = case.kubernetes.and_then(|context| context.stop_reason.as_ref());
    reason.is_some_and(|reason| reason.cause == Cause::Unknown) && !case.kill().is_some_and(by_systemd_shutdown)
}

/// The SIGKILL came from the shutdown itself, or before the process's own grace period was over.
fn was_cut(case: &Case<'_>) -> bool {
    let Some(kill) = case.kill().filter(|kill| kill.sender.role == Role::Runtime) else {
        return false;
    };
    by_systemd_shutdown(kill) || own_grace(case).is_some_and(|(had, own)| had + RESOLUTION < own)
}

pub(in crate::verdict) fn by_systemd_shutdown(kill: &Kill) -> bool {
    kill.sender.tgid == INIT && kill.sender.comm.as_bytes() == SHUTDOWN
}

/// How long the process had in the shutdown until its SIGKILL, and its own grace period; None if either is not known.
pub(in crate::verdict) fn own_grace(case: &Case<'_>) -> Option<(Duration, Duration)> {
    let context = case.kubernetes?;
    let is_other = |reason: &StopReason| matches!(reason.cause, Cause::EvictedNodePressure | Cause::RestartInPlace);
    let own = context
        .own_grace
        .filter(|_| !context.stop_reason.as_ref().is_some_and(is_other))?;
    let kill = case.kill()?;
    let begin = match (Spent::of(case), &context.pre_stop) {
        // When a hook began is part of what the process had.
        (_, Some(hook)) if hook.begin.is_none() => return None,
        (Some(spent), _) => spent.begin,
        // Without a stop signal it had nothing.
        (None, _) => kill.at,
    };
    Some((kill.at.since(begin), own))
}
