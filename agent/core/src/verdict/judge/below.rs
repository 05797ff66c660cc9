//! Rules of what is below a main process that exited cleanly.

use super::finding::Finding;
use super::rule::{Rule, first, rule};
use super::{inside, kernel};
use crate::verdict::Exit::*;
use crate::verdict::case::Case;

#[rustfmt::skip]
pub(super) const BELOW: &[Rule] = &[
    rule("The OOM killer chose another process of the container or unit", &[OomChild], kernel::oom_child_of_clean),
    rule("A program with clients was killed, or the default action of a signal ended the program", &[OomChild, KilledByOther, DefaultAction, KilledAfterGrace, ForceKilled], inside::killed_below),
    rule("The sender of the stop signal also sent it to a worker process, whose name is the name of its parent, and the default action of the signal ended the worker", &[], inside::pool_below),
];

/// What is clean, if nothing below the main process was worse.
pub(super) fn unless_worse_below(case: &Case<'_>, found: Finding) -> Finding {
    first(BELOW, case, found)
}
