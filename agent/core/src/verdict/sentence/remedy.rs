//! What to change, with the measured number in it.
//!
//! One table: each remedy has the condition under which it helps beside its words. Of each stage the first remedy whose condition holds is
//! given: two faults have two remedies. docs/verdicts.md lists the table with the plays of each (`epitaph`, `cli/explain/plays_tests.rs`).

pub(super) mod asked;
mod clients;
mod crash;
mod grace;
mod kill;
mod pod;
mod shutdown;
mod signal;
mod unknown;

use super::inside;
use crate::verdict::case::Case;
use crate::verdict::judge::{Finding, Judgement};
use crate::verdict::{Exit, TrafficAxis};
use asked::Asked;
pub use asked::Remedy;

struct Stage {
    concerns: fn(&Asked<'_>) -> bool,
    remedies: &'static [&'static [Remedy]],
}

/// In the order of the text. With the first fault mended the next one would show.
static STAGES: [Stage; 4] = [
    Stage {
        concerns: |_| true,
        remedies: &[pod::PROBE],
    },
    Stage {
        concerns: |_| true,
        remedies: &[clients::BESIDE],
    },
    Stage {
        // The hook is the fault.
        concerns: |of| !matches!(of.exit(), Exit::PrestopOverran | Exit::PrestopFailed),
        remedies: &[
            grace::OTHER_SIGNAL,
            signal::SENT_ON,
            signal::MAIN,
            shutdown::CUT,
            inside::REMEDIES,
            grace::MORE_TIME,
            signal::BLOCKED,
            clients::OF_CLEAN,
            kill::REMEDIES,
            crash::REMEDIES,
            unknown::REMEDIES,
            pod::OF_ROW,
        ],
    },
    Stage {
        concerns: |_| true,
        remedies: &[pod::HOOK],
    },
];

pub fn remedy(case: &Case<'_>, finding: &Finding, axis: TrafficAxis) -> Option<String> {
    let (_, texts): (Vec<_>, Vec<_>) = given(&Asked { case, finding, axis }).into_iter().unzip();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// The remedies of one judgement with their words, in the order of its text.
pub fn remedies_of(case: &Case<'_>, judgement: &Judgement) -> Vec<(&'static Remedy, String)> {
    let (finding, axis) = (&judgement.finding, judgement.traffic);
    given(&Asked { case, finding, axis })
}

fn given(of: &Asked<'_>) -> Vec<(&'static Remedy, String)> {
    let stages = STAGES.iter().filter(|stage| (stage.concerns)(of));
    let first = |stage: &Stage| stage.remedies.iter().copied().flatten().find(|remedy| (remedy.holds)(of));
    let with_words = |remedy: &'static Remedy| Some((remedy, (remedy.words)(of)?));
    stages.filter_map(first).filter_map(with_words).collect()
}

/// The whole table.
pub fn remedies() -> impl Iterator<Item = &'static Remedy> {
    STAGES.iter().flat_map(|stage| stage.remedies).copied().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::remedies;

    #[test]
    fn each_remedy_has_a_name_of_its_own_and_a_condition() {
        let mut names = BTreeSet::new();
        for remedy in remedies() {
            assert!(names.insert(remedy.name), "{} is there twice", remedy.name);
            let is_kebab = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            assert!(is_kebab(remedy.name), "{}", remedy.name);
            assert!(
                remedy.helps_if.ends_with('.') && !remedy.helps_if.contains(['|', '\n']),
                "{}: {}",
                remedy.name,
                remedy.helps_if
            );
        }
    }
}
