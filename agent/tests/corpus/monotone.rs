//! Doubt is monotone, on every recording: see [`epitaph_core::fixtures::monotone`].
//!
//! `EPITAPH_MONOTONE=SEEDS` checks that many seeds of each recording instead of the everyday ones.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use epitaph::recording::Reader;
use epitaph_core::decode::decode;
use epitaph_core::fixtures::monotone::{History, Rule, Seed};

use super::{ROOMS, corpus, in_parallel, stems, switch};

/// Everyday seeds of each recording.
const SEEDS: u64 = 40;
/// A long recording is a whole machine's: its changes rarely meet the termination, and each run takes long.
const LONGEST: usize = 4_000;

/// Not mended.
///
/// A signal that asks PID 1 for a reboot, which nothing follows: without logind's locks a job that takes its time is not seen, and a stop of
/// a pod within half an hour counts as the shutdown's.
///
/// The kernel's count of lost records is itself in the part that is missing, and covers a time from before it.
const OPEN: [&str; 2] = [
    "node.signs.a_signal_to_pid_1_that_nothing_follows_is_over",
    "pods.oom_roles.a_lost_record_of_an_exec_leaves_the_role_open.2",
];

/// Seeds that broke the rule once, by recording.
const REGRESSIONS: [(&str, u64); 0] = [];

#[test]
fn no_verdict_is_cleaner_or_blames_another_for_less_evidence() {
    let seeds = switch("EPITAPH_MONOTONE").map(|seeds| {
        seeds
            .into_string()
            .ok()
            .and_then(|seeds| seeds.parse().ok())
            .expect("a number")
    });
    let mut breaches = Vec::new();
    for room in ROOMS {
        let room = corpus().join(room);
        breaches.extend(in_parallel(stems(&room, "epitaph"), |name| {
            let history = history(&room.join(format!("{name}.epitaph")));
            if OPEN.contains(&name) || seeds.is_none() && history.len() > LONGEST {
                return None;
            }
            let again = REGRESSIONS.iter().filter(|(of, _)| *of == name).map(|(_, seed)| *seed);
            let mut all = (0..seeds.unwrap_or(SEEDS)).chain(again);
            let rule = Rule::of(&history);
            all.find_map(|seed| rule.check(Seed(seed)).err())
                .map(|breach| format!("{name}: {breach}"))
        }));
    }
    assert!(
        breaches.is_empty(),
        "{} breaches\n\n{}",
        breaches.len(),
        breaches.join("\n\n")
    );
}

fn history(recording: &Path) -> History {
    let file = File::open(recording).unwrap_or_else(|error| panic!("{}: {error}", recording.display()));
    let reader = Reader::new(BufReader::new(file), decode).unwrap_or_else(|error| panic!("{}: {error}", recording.display()));
    reader.collect()
}
