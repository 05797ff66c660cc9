//! Doubt is monotone: see [`crate::fixtures::monotone`]. The recorded histories are checked in `agent/tests/corpus/monotone.rs`.

use super::pods::properties::ends;
use super::properties::deaths;
use super::shared_pids::{DEFAULT_ACTION, FORWARDS_WITHOUT_WAITING, first};
use crate::fixtures::monotone::{Rule, Seed};
use crate::fixtures::script;

/// Everyday seeds of each history.
const SEEDS: u64 = 60;

#[test]
fn no_verdict_is_cleaner_or_blames_another_for_less_evidence() {
    let mut breaches = Vec::new();
    let shared = [FORWARDS_WITHOUT_WAITING, DEFAULT_ACTION].map(first);
    let scripts = deaths().into_iter().chain(ends()).chain(shared);
    for (which, text) in scripts.enumerate() {
        let history = script::parse(&text).inputs;
        let rule = Rule::of(&history);
        let broken = (0..SEEDS).find_map(|seed| rule.check(Seed(seed)).err());
        breaches.extend(broken.map(|breach| format!("{which}: {breach}\n{text}")));
    }
    assert!(breaches.is_empty(), "{} breaches\n{}", breaches.len(), breaches.join("\n\n"));
}
