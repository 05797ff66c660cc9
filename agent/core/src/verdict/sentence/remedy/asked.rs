//! A remedy, and what it is asked for.

use crate::termination::Forward;
use crate::verdict::case::Case;
use crate::verdict::judge::{Finding, InnerEnd, Why};
use crate::verdict::table::row;
use crate::verdict::words::lower;
use crate::verdict::{Exit, TrafficAxis};

/// A change, and when it helps.
pub struct Remedy {
    /// Unique, kebab-case.
    pub name: &'static str,
    /// The condition, in words.
    pub helps_if: &'static str,
    pub(in crate::verdict::sentence) holds: fn(&Asked<'_>) -> bool,
    /// None where a number that they need is not known.
    pub(in crate::verdict::sentence) words: fn(&Asked<'_>) -> Option<String>,
}

/// What a remedy is asked for.
pub struct Asked<'a> {
    pub(in crate::verdict::sentence) case: &'a Case<'a>,
    pub(in crate::verdict::sentence) finding: &'a Finding,
    pub(in crate::verdict::sentence) axis: TrafficAxis,
}

impl<'a> Asked<'a> {
    pub(in crate::verdict::sentence) fn exit(&self) -> Exit {
        self.finding.exit
    }

    pub(in crate::verdict::sentence) fn why(&self) -> &'a Why {
        &self.finding.why
    }

    /// The process to which the stop signal was forwarded, and its end, where that is the verdict.
    pub(in crate::verdict::sentence) fn inner(&self) -> Option<(InnerEnd, &'a Forward)> {
        let Why::Inside(end, of) = self.why() else { return None };
        Some((*end, self.case.inside.forwards.get(*of)?))
    }

    /// What the table of the verdicts has for this one.
    pub(in crate::verdict::sentence) fn row(&self) -> String {
        lower(row(self.exit(), self.axis).remedy)
    }
}
