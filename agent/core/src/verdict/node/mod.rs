//! The verdict on a node's shutdown: one axis, one table, a sentence and a remedy.
//!
//! A verdict that rests on the absence of a sign needs the whole evidence of that time; otherwise it is `unknown`. A spoofed signal, a
//! cancellation, a block lock and a pod that was cut are proven by what was seen.

mod clients;
mod evidence;
mod remedy;
mod sentence;
pub mod table;
mod why;
mod words;

use serde::Serialize;

use super::{Evidence, Severity, ShutdownOutcome};
use crate::shutdown::{Ending, NodeShutdownFacts, PodInShutdown};
use crate::time::Boot;
use crate::tolerances::BUS_APART;
use why::{Missing, NoLock, Why};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShutdownVerdict {
    /// From the table: `graceful`, `truncated`, …
    pub headline: &'static str,
    #[serde(skip)]
    pub outcome: ShutdownOutcome,
    pub unclean: bool,
    pub severity: Severity,
    pub sentence: String,
    pub remedy: Option<String>,
    /// In order of time.
    pub evidence: Vec<Evidence>,
}

pub fn judge_shutdown(facts: &NodeShutdownFacts) -> ShutdownVerdict {
    let why = why(facts);
    let outcome = why.outcome();
    let row = table::row(outcome);
    let is_drained = had_nothing_to_lose(row, facts);
    let mut evidence = evidence::list(facts);
    evidence.sort_by_key(|line| line.at);
    ShutdownVerdict {
        headline: row.headline,
        outcome,
        unclean: row.unclean && !is_drained,
        severity: if is_drained { Severity::Info } else { severity(row, facts) },
        sentence: sentence::sentence(facts, &why),
        remedy: remedy::remedy(facts, &why),
        evidence,
    }
}

fn why(facts: &NodeShutdownFacts) -> Why {
    let (signs, gaps) = (&facts.signs, &facts.gaps);
    if !signs.is_real() {
        return match (&signs.spoofed, signs.cancelled, facts.ending) {
            (Some(_), ..) => Why::Spoofed,
            (None, Some(_), _) => Why::PlanCancelled,
            (None, None, Ending::Continued) => Why::Blocked,
            (None, None, _) if gaps.agent_ended => Why::Unknown(Missing::AgentEnded),
            (None, None, _) => match &gaps.bus {
                Some(reason) => Why::Unknown(Missing::Bus(reason.clone())),
                None => Why::Unannounced,
            },
        };
    }
    if signs.cancelled.is_some() {
        return Why::Cancelled;
    }
    if facts.ending == Ending::Continued {
        return Why::Unknown(match signs.only_signals().is_some() && !gaps.observation {
            true => Missing::NothingFollowed,
            false => Missing::Gap,
        });
    }
    if signs.only_swept() {
        return swept(facts);
    }
    let services = signs.services();
    let is_late = |prepared: Boot| services.is_some_and(|services| prepared > services.plus(BUS_APART));
    if signs.prepared.is_none_or(is_late) {
        return match &gaps.bus {
            Some(reason) => Why::Unknown(Missing::Bus(reason.clone())),
            None => Why::Bypassed,
        };
    }
    protected(facts)
}

/// systemd stopped epitaph, too, before the bus showed anything. Without a lock logind does not wait, announced or not; only the next boot
/// proves that it was for the end of the machine.
fn swept(facts: &NodeShutdownFacts) -> Why {
    let gaps = &facts.gaps;
    let went_down = facts.may_be_swept_down();
    match &gaps.bus {
        Some(reason) => Why::Unknown(Missing::Bus(reason.clone())),
        None if went_down && facts.kubelet.held == Some(false) => Why::Unprotected(no_lock(facts)),
        None if gaps.agent_ended => Why::Unknown(Missing::AgentEnded),
        None if gaps.observation => Why::Unknown(Missing::Gap),
        None => Why::Unknown(Missing::ObservationEnded),
    }
}

/// logind announced it: did the kubelet have the time that its pods needed?
fn protected(facts: &NodeShutdownFacts) -> Why {
    let gaps = &facts.gaps;
    let unknown = Why::Unknown;
    if facts.kubelet.is_there {
        match facts.kubelet.held {
            Some(true) => {}
            Some(false) if gaps.bus.is_none() => return Why::Unprotected(no_lock(facts)),
            Some(false) | None => return unknown(Missing::Lock),
        }
    }
    if !facts.kubelet.is_there && gaps.pods {
        return unknown(Missing::Pods);
    }
    // A pod that was killed early was cut; one that seems to run may have an exit that was lost.
    let is_proven = |pod: &PodInShutdown| pod.cut.is_some_and(|cut| cut.killed || !gaps.exits && !pod.is_unsure);
    if facts.others().any(is_proven) {
        return Why::Truncated;
    }
    let open = || facts.others().any(|pod| pod.ended.is_none());
    let state_is_open = facts
        .kubelet
        .state
        .is_some_and(|state| state.started.is_some() && state.ended.is_none());
    match () {
        () if facts.was_cut_off() && gaps.signals => unknown(Missing::Signals),
        () if facts.was_cut_off() => Why::CutOff,
        () if state_is_open && open() => Why::StateIsOpen,
        () if gaps.bus.is_some() => unknown(Missing::Bus(gaps.bus.clone().unwrap_or_default())),
        () if gaps.observation => unknown(Missing::Gap),
        () if gaps.pods => unknown(Missing::Pods),
        () if facts.unlisted.more > 0 => unknown(Missing::TooManyPods),
        () if facts.others().any(|pod| pod.is_unsure && !pod.is_unexplained) || gaps.exits => unknown(Missing::Exits),
        () if facts.others().any(|pod| pod.is_unexplained) => unknown(Missing::Kill),
        () if open() && facts.ending == Ending::ObservationEnded => unknown(Missing::ObservationEnded),
        () if open() && gaps.agent_ended => unknown(Missing::AgentEnded),
        () if open() => unknown(Missing::Open),
        () if !facts.kubelet.is_there && facts.ending == Ending::ObservationEnded => unknown(Missing::ObservationEnded),
        () if state_is_open || facts.kubelet_outlasted() => unknown(Missing::KubeletAtWork),
        () => Why::Graceful,
    }
}

fn no_lock(facts: &NodeShutdownFacts) -> NoLock {
    let Some(config) = facts.kubelet.configured() else {
        return match facts.kubelet.dropped {
            true => NoLock::Dropped,
            false => NoLock::NotKnown,
        };
    };
    let needed = config.needed();
    match facts.logind.delay.and_then(|delay| delay.limit) {
        _ if facts.kubelet.dropped => NoLock::Dropped,
        _ if needed.is_zero() => NoLock::ZeroPeriods,
        Some(limit) if limit < needed => NoLock::Limit(limit, needed),
        _ => NoLock::NotKnown,
    }
}

/// A cancelled shutdown is worth a look if the kubelet had terminated pods by then: it does not start them again.
fn severity(row: &table::Row, facts: &NodeShutdownFacts) -> Severity {
    match row.outcome {
        ShutdownOutcome::Cancelled if facts.may_have_ended_pods() => Severity::Warning,
        ShutdownOutcome::Graceful if facts.loss().lost() > 0 => Severity::Warning,
        // A host without a kubelet has no pods to lose, if no lost record hides them.
        ShutdownOutcome::Bypassed if !facts.kubelet.is_there && !facts.gaps.pods => Severity::Info,
        _ => row.severity,
    }
}

/// The node was drained before, as the remedy says: no pod ran but those that a drain leaves.
fn had_nothing_to_lose(row: &table::Row, facts: &NodeShutdownFacts) -> bool {
    let is_about_pods = matches!(row.outcome, ShutdownOutcome::Bypassed | ShutdownOutcome::Unprotected);
    let gaps = &facts.gaps;
    let are_known = facts.kubelet.is_there && !gaps.pods && !gaps.observation && facts.unlisted.more == 0;
    is_about_pods && are_known && facts.unlisted.ignored_losers == 0 && !facts.others().any(|pod| facts.may_lose(pod))
}
