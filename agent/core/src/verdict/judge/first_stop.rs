//! Whether the first stop signal that was observed is the first one.

use super::context;
use crate::ledger::{self, Claim, Hole};
use crate::time::Boot;
use crate::verdict::case::Case;

/// The stop may have begun with a signal before the one that was observed, in a gap or with a lost record: what is measured from that one on
/// is only the least.
pub(in crate::verdict) fn may_have_begun_before(case: &Case<'_>) -> bool {
    !earlier_stops(case).is_empty()
}

/// Where the first stop signal may be hidden.
pub(super) fn earlier_stops(case: &Case<'_>) -> Vec<Hole> {
    let is_excused = |until: Boot| context::was_not_asked_before(case, until);
    let hides = |hole: &&Hole| hole.why != ledger::Origin::Gap || !hole.to.is_some_and(is_excused);
    case.missing.of(Claim::FirstStop).filter(hides).copied().collect()
}

/// The observation began after the process, so recently that a stop signal may have come before, and nothing rules that out. Not
/// proven by a handler that did not run: a signal that was handled leaves no trace.
pub(in crate::verdict) fn may_have_been_stopped_before(case: &Case<'_>) -> bool {
    case.missing
        .late_start()
        .is_some_and(|since| !context::was_not_asked_before(case, since))
}
