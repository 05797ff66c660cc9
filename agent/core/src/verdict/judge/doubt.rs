//! Doubt: what a finding rests on besides what it shows, and which missing evidence could have changed it.

use std::collections::BTreeSet;

use super::{Case, Finding, Missing, kernel, kubernetes};
use crate::event::Kind;
use crate::ledger::{self, Claim, Hole, not_kept};
use crate::termination::Role;
use crate::time::Boot;
use crate::verdict::Exit;

/// An absence that a finding rests on: somebody must have looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// No such record of the main process.
    Main(Kind),
    /// Nor of the others, until the last of them is gone.
    Each(Kind),
    /// No stop signal before the observation.
    NoStop,
}

/// Proven by what was seen.
pub(super) const PROVEN: &[Ask] = &[];
pub(super) const NO_SIGNAL: &[Ask] = &[Ask::Main(Kind::SignalGenerate)];
pub(super) const NO_SIGNAL_NOR_STOP: &[Ask] = &[Ask::NoStop, Ask::Main(Kind::SignalGenerate)];
pub(super) const NO_HANDLER: &[Ask] = &[Ask::Main(Kind::SignalDeliver)];
pub(super) const NO_SIGNAL_NOR_HANDLER: &[Ask] = &[Ask::Main(Kind::SignalGenerate), Ask::Main(Kind::SignalDeliver)];
pub(super) const NO_OOM: &[Ask] = &[Ask::Main(Kind::OomVictim)];
pub(super) const NO_OOM_NOR_STOP: &[Ask] = &[Ask::NoStop, Ask::Main(Kind::OomVictim)];
pub(super) const NO_SIGNAL_NOR_OOM: &[Ask] = &[Ask::Main(Kind::SignalGenerate), Ask::Main(Kind::OomVictim)];
pub(super) const NO_SIGNAL_NOR_OOM_NOR_STOP: &[Ask] =
    &[Ask::NoStop, Ask::Main(Kind::SignalGenerate), Ask::Main(Kind::OomVictim)];
pub(super) const NO_EXEC: &[Ask] = &[Ask::Main(Kind::ProcessExec)];
pub(super) const NO_EXIT: &[Ask] = &[Ask::Main(Kind::ProcessExit)];
pub(super) const NO_EXIT_NOR_REMOVAL: &[Ask] = &[Ask::Main(Kind::ProcessExit), Ask::Main(Kind::CgroupRmdir)];
/// Systemd signals each process of a unit: another one may be the program.
pub(super) const NO_SIGNAL_TO_ANY: &[Ask] = &[Ask::Each(Kind::SignalGenerate)];
pub(super) const NO_SIGNAL_NOR_HANDLER_OF_ANY: &[Ask] = &[Ask::Each(Kind::SignalGenerate), Ask::Each(Kind::SignalDeliver)];
/// What could show that an exit was not clean: a signal, an OOM kill of another process, or the exit of a program below the main process.
pub(super) const CLEAN: &[Ask] = &[
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::OomVictim),
    Ask::Each(Kind::ProcessExit),
];
/// The same where nobody asked.
pub(super) const COMPLETED: &[Ask] = &[
    Ask::NoStop,
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::OomVictim),
    Ask::Each(Kind::ProcessExit),
];
/// The same of a main process that sent its stop signal on.
pub(super) const CLEAN_INSIDE: &[Ask] = &[
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::SignalDeliver),
    Ask::Each(Kind::ProcessExit),
    Ask::Each(Kind::OomVictim),
];
/// What the way of a stop signal inside rests on.
pub(super) const INSIDE: &[Ask] = &[
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::SignalDeliver),
    Ask::Each(Kind::ProcessExit),
];
pub(super) const INSIDE_NOR_STOP: &[Ask] = &[
    Ask::NoStop,
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::SignalDeliver),
    Ask::Each(Kind::ProcessExit),
    Ask::Each(Kind::OomVictim),
];
/// What could show that a reflex was none.
pub(super) const REFLEX: &[Ask] = &[
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::SignalDeliver),
    Ask::Each(Kind::ProcessExit),
    Ask::Each(Kind::Tcp),
];

impl Ask {
    fn kind(self) -> Option<Kind> {
        match self {
            Ask::Main(kind) | Ask::Each(kind) => Some(kind),
            Ask::NoStop => None,
        }
    }

    fn is_of(self, hole: &Hole) -> bool {
        self.kind().is_some_and(|kind| hole.is_of(kind))
    }
}

/// The stop may have begun with a signal before the one that was observed, in a gap or with a lost record: what is measured from that one on
/// is only the least.
pub(in crate::verdict) fn may_have_begun_before(case: &Case<'_>) -> bool {
    !earlier_stops(case).is_empty()
}

/// Where the first stop signal may be hidden.
fn earlier_stops(case: &Case<'_>) -> Vec<Hole> {
    let is_excused = |until: Boot| kubernetes::was_not_asked_before(case, until);
    let hides = |hole: &&Hole| hole.why != ledger::Origin::Gap || !hole.to.is_some_and(is_excused);
    case.missing.of(Claim::FirstStop).filter(hides).copied().collect()
}

/// The observation began after the process, so recently that a stop signal may have come before, and nothing rules that out. Not
/// proven by a handler that did not run: a signal that was handled leaves no trace.
pub(in crate::verdict) fn may_have_been_stopped_before(case: &Case<'_>) -> bool {
    case.missing
        .late_start()
        .is_some_and(|since| !kubernetes::was_not_asked_before(case, since))
}

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
    kernel::unknown(
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
        let began_in = |gap: &Hole| gap.why == ledger::Origin::Gap && case.main().is_some_and(|main| gap.from <= main.start);
        return Some(match unsure.iter().any(began_in) {
            true => Missing::Main,
            false => Missing::records(&unsure),
        });
    }
    let hidden = earlier_stops(case);
    if rests_on_first_stop(finding.exit) && !hidden.is_empty() {
        return Some(Missing::records(&hidden));
    }
    if (may_be_later(case, finding.exit) || rests.contains(&Ask::NoStop)) && may_have_been_stopped_before(case) {
        return Some(Missing::late_start(case));
    }
    // With the code of a stop signal, an earlier signal of any party is likely, and the API shows only what Kubernetes asked for.
    let is_signal_code = finding.exit == Exit::NonzeroExit && rests.contains(&Ask::NoStop);
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
    // An error is as unclean with the end of another process as without.
    let of_others = |ask: &Ask| matches!(ask.kind(), Some(Kind::OomVictim | Kind::ProcessExec));
    let rests_on_others = finding.exit != Exit::NonzeroExit && rests.iter().any(of_others);
    (!rests.is_empty() && holes.has_gap(Claim::Main) || rests_on_others && holes.has_gap(Claim::Others)).then_some(Missing::Gap)
}

impl Missing {
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
