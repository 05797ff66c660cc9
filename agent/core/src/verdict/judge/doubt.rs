//! Doubt: what a finding rests on besides what it shows, and which missing evidence could have changed it.

use std::collections::BTreeSet;

use super::ask::Ask;
use super::cause::unknown;
use super::context::{earlier_stops, may_have_been_stopped_before};
use super::finding::{Finding, Missing, Why};
use crate::event::Kind;
use crate::ledger::{self, Claim, Hole, not_kept};
use crate::termination::Role;
use crate::verdict::Exit;
use crate::verdict::case::Case;

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
pub(super) fn doubt(case: &Case<'_>, finding: Finding) -> Finding {
    unknown(
        case,
        match missing(case, &finding) {
            Some(missing) => missing,
            None => return finding,
        },
    )
}

fn missing(case: &Case<'_>, finding: &Finding) -> Option<Missing> {
    let (holes, rests) = (&case.missing, finding.rests);
    let unsure: Vec<Hole> = holes.of(Claim::WhichMain).copied().collect();
    if !unsure.is_empty() {
        return Some(match unsure.iter().any(|hole| began_in(case, hole)) {
            true => Missing::Main,
            false => Missing::records(&unsure),
        });
    }
    let hidden = earlier_stops(case);
    if rests_on_first_stop(finding.exit) && !hidden.is_empty() {
        return Some(match hidden.iter().all(|hole| began_in(case, hole)) {
            true => Missing::late_start(case),
            false => Missing::records(&hidden),
        });
    }
    if (may_be_later(case, finding.exit) || rests.contains(&Ask::NoStop)) && may_have_been_stopped_before(case) {
        return Some(Missing::late_start(case));
    }
    // With the code of a stop signal, an earlier signal of any party is likely, and the API shows only what Kubernetes asked for.
    let is_signal_code = finding.why == Why::Nonzero && rests.contains(&Ask::NoStop);
    if is_signal_code && case.missing.late_start().is_some() {
        return Some(Missing::late_start(case));
    }
    let of_main = holes.lost(Claim::Main).filter(|hole| rests.iter().any(|ask| ask.is_of(hole)));
    let each = |hole: &&Hole| rests.iter().any(|ask| matches!(ask, Ask::Each(kind) if hole.is_of(*kind)));
    let lost: Vec<Hole> = of_main.chain(holes.lost(Claim::Others).filter(each)).copied().collect();
    if !lost.is_empty() {
        return Some(Missing::records(&lost));
    }
    let lost: Vec<Hole> = holes.lost(Claim::NoStop).copied().collect();
    if rests.contains(&Ask::NoStop) && !lost.is_empty() {
        return Some(Missing::not_kept(&lost).unwrap_or(Missing::StopLost));
    }
    // What is clean rests on the others' ends. An error is as unclean with the end of another process as without.
    let of_others = |ask: &Ask| match finding.exit {
        Exit::NonzeroExit => false,
        Exit::Clean if matches!(ask, Ask::Each(_)) => true,
        _ => matches!(ask.kind(), Some(Kind::OomVictim | Kind::ProcessExec)),
    };
    let rests_on_others = rests.iter().any(of_others);
    (!rests.is_empty() && holes.has_gap(Claim::Main) || rests_on_others && holes.has_gap(Claim::Others)).then_some(Missing::Gap)
}

/// The main process began in that gap, or before the first observation.
pub(in crate::verdict) fn began_in(case: &Case<'_>, hole: &Hole) -> bool {
    hole.why == ledger::Origin::Gap && case.main().is_some_and(|main| hole.from <= main.start)
}

impl Missing {
    /// Exits of processes below the main one.
    pub(super) fn exits_below(case: &Case<'_>) -> Missing {
        let holes: Vec<Hole> = case
            .missing
            .of(Claim::Others)
            .filter(|hole| hole.is_of(Kind::ProcessExit))
            .copied()
            .collect();
        match holes.as_slice() {
            [] => Missing::Lost(vec![Kind::ProcessExit]),
            holes => Missing::records(holes),
        }
    }

    fn late_start(case: &Case<'_>) -> Missing {
        if case.missing.begins_late(case.end) {
            Missing::NotRecorded
        } else {
            Missing::LateStart
        }
    }

    /// Of records that may be missing.
    fn records(holes: &[Hole]) -> Missing {
        let kinds = |is: fn(&&Hole) -> bool| -> Vec<Kind> {
            let kinds: BTreeSet<Kind> = holes.iter().filter(is).filter_map(|hole| hole.kind).collect();
            kinds.into_iter().collect()
        };
        let are = |why: ledger::Origin| holes.iter().all(|hole| hole.why == why);
        match kinds(|hole| hole.why == ledger::Origin::Inactive) {
            inactive if !inactive.is_empty() => Missing::Inactive(inactive),
            _ if are(ledger::Origin::Gap) => Missing::Gap,
            _ if are(ledger::Origin::Dropped) => Missing::OverCap,
            _ => Missing::not_kept(holes).unwrap_or_else(|| Missing::Lost(kinds(|_| true))),
        }
    }

    /// Of records of which the kernel lost none.
    fn not_kept(holes: &[Hole]) -> Option<Missing> {
        Some(match not_kept(holes)? {
            ledger::Origin::NotRecorded => Missing::NotRecorded,
            _ => Missing::Damaged,
        })
    }
}
