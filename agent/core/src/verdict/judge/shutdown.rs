//! A node's shutdown, joined to the kernel's evidence: did the shutdown take time from the process that the process had?

use super::ask::NO_EXIT_NOR_REMOVAL;
use super::cause::unknown;
use super::context::{by_systemd_shutdown, may_be_ended_by_deletion, own_grace};
use super::finding::{Finding, InnerEnd, Missing, Why, finding};
use crate::termination::Open;
use crate::tolerances::RESOLUTION;
use crate::verdict::case::Case;
use crate::verdict::{Cause, Exit};

/// Only of a process that the shutdown stopped, and that was shutting down: its own fault goes first.
pub(super) fn cut(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let was_stopping = matches!(
        found.why,
        Why::AfterGrace | Why::Inside(InnerEnd::AfterGrace, _) | Why::Forced
    );
    (case.shutdown.is_some() && was_stopping && was_cut(case)).then(|| match is_unexplained(case) {
        // The shutdown may not have stopped the container: its own grace period, or less of it.
        true => unknown(case, Missing::Request),
        false if may_be_by_deletion(case) => unknown(case, Missing::RequestTime),
        false => finding(Exit::TruncatedByShutdown, found.cause, Why::CutByShutdown, found.rests),
    })
}

/// Its end was not seen, because there was none before the node's.
pub(super) fn ran_on(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let is_open = matches!(
        found.why,
        Why::Unknown(Missing::NoExit(Open::NodeDown { agent_ended: false }))
    );
    let is_it = is_open && case.shutdown.as_ref()?.ran_at.is_some() && case.stop().is_some();
    let (exit, rests) = (Exit::TruncatedByShutdown, NO_EXIT_NOR_REMOVAL);
    is_it.then(|| finding(exit, found.cause, Why::RanAtShutdown, rests))
}

/// Why Kubernetes stopped the container is unknown, and the shutdown itself did not kill it.
fn is_unexplained(case: &Case<'_>) -> bool {
    let reason = case.kubernetes.and_then(|context| context.stop_reason.as_ref());
    reason.is_some_and(|reason| reason.cause == Cause::Unknown) && !case.kill().is_some_and(by_systemd_shutdown)
}

/// A deletion during the shutdown gave less, and that may have ended first.
fn may_be_by_deletion(case: &Case<'_>) -> bool {
    let killed = case.kubernetes.zip(case.kill().filter(|kill| !by_systemd_shutdown(kill)));
    killed.is_some_and(|(context, kill)| may_be_ended_by_deletion(context, kill))
}

/// The SIGKILL came from the shutdown itself, or before the process's own grace period was over.
fn was_cut(case: &Case<'_>) -> bool {
    let Some(kill) = case.runtime_kill() else {
        return false;
    };
    by_systemd_shutdown(kill) || own_grace(case).is_some_and(|(had, own)| had + RESOLUTION < own)
}
