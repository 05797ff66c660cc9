//! Doubt is monotone: see [`crate::fixtures::monotone`]. The recorded histories are checked in `agent/tests/corpus/monotone.rs`.

use super::node::properties::shutdowns;
use super::node::swept;
use super::pods::properties::{ends, long_ends};
use super::properties::deaths;
use super::shared_pids::{DEFAULT_ACTION, FORWARDS_WITHOUT_WAITING, first};
use crate::fixtures::monotone::{Rule, Seed};
use crate::fixtures::script;

/// Everyday seeds of each history.
const SEEDS: u64 = 60;
/// Of a long history, in which few outages meet what counts: without the doubt of lost Events, seed 169 is the first that breaks the rule.
const LONG_SEEDS: u64 = 240;

#[test]
fn no_verdict_is_cleaner_or_blames_another_for_less_evidence() {
    let mut breaches = Vec::new();
    let shared = [FORWARDS_WITHOUT_WAITING, DEFAULT_ACTION].map(first);
    let scripts = deaths()
        .into_iter()
        .chain(ends())
        .chain(shared)
        .chain(shutdowns())
        .chain(swept::scripts())
        .map(|text| (text, SEEDS));
    let scripts = scripts.chain(long_ends().into_iter().map(|text| (text, LONG_SEEDS)));
    for (which, (text, seeds)) in scripts.enumerate() {
        let history = script::parse(&text).inputs;
        let rule = Rule::of(&history);
        let broken = (0..seeds).find_map(|seed| rule.check(Seed(seed)).err());
        breaches.extend(broken.map(|breach| format!("{which}: {breach}\n{text}")));
    }
    assert!(breaches.is_empty(), "{} breaches\n{}", breaches.len(), breaches.join("\n\n"));
}

/// Of every history, not only of those that a seed draws.
#[test]
fn no_verdict_is_cleaner_on_a_kernel_that_shows_the_clients_of_this_machine_only() {
    let refused = super::container(
        "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app accepted 80 5001
        +1.2 tcp app closed 80
        +1.5 tcp app refused 80 5002
        +2 exit main 0
        ",
    );
    for text in deaths().into_iter().chain(ends()).chain([refused]) {
        let history = script::parse(&text).inputs;
        if let Err(breach) = Rule::of(&history).see_this_machine() {
            panic!("{breach}\n{text}");
        }
    }
}
