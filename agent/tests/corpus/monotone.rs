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

/// Not mended. Outages of a silent watch whose first hidden version waits 30 s and longer are not drawn: see `SILENT`
/// (docs/limits/verdicts.md).
///
/// A signal that asks PID 1 for a reboot, which nothing follows: without logind's locks a job that takes its time is not seen, and a stop of
/// a pod within half an hour counts as the shutdown's.
///
/// The kernel's count of lost records is itself in the part that is missing, and covers a time from before it.
///
/// `/proc` does not show PID 1 of a container, and its exit is lost: the process that is left is taken for the main one.
///
/// Without the bus a sweep that nothing followed may still have been for the next boot, and its units' end the shutdown's: see the first.
///
/// The runtime of a container inside a container, whose parent ended in a gap, looks like the container's own first process.
///
/// An Event that announces an eviction is in a missing part, forty seconds before the deletion: no version marks the pod.
///
/// Clients were refused, and the record of a preStop hook's exec is lost: known errors of clients go before an unknown hook.
///
/// A container got a stop signal before the agent, and another one after a deletion: only the second was seen.
///
/// That the API does not answer is itself in the part that is missing.
///
/// A deletion after a start within the stop: of the container nothing is known, and the pod's own cause stays the deletion
/// (docs/limits/verdicts.md).
const OPEN: [&str; 13] = [
    "node.signs.a_signal_to_pid_1_that_nothing_follows_is_over",
    "pods.oom_roles.a_lost_record_of_an_exec_leaves_the_role_open.2",
    "doubt.late_start_and_an_error_below_a_main_process_that_exited_with_0_is_unknown.3",
    "node.less_evidence.a_container_whose_exit_was_lost_long_before_does_not_run.2",
    "node.swept.a_pod_that_exited_in_a_sweep_long_before_is_not_the_shutdowns",
    "pods.oom_roles.the_runtime_behind_its_own_first_process.2",
    "pods.oom_roles.the_runtime_behind_its_own_first_process.3",
    "pods.outages.an_eviction_that_may_have_been_called_off_in_a_part_that_is_missing_is_in_doubt",
    "pods.outages.an_eviction_that_may_have_been_called_off_in_a_part_that_is_missing_is_in_doubt.2",
    "pods.own_time.a_deletion_after_the_stop_is_not_its_cause_where_an_outage_hides_the_kubelets_own_reason",
    "pods.own_time.a_sleep_that_the_deletion_cut_is_long_enough.2",
    "pods.statuses.the_declared_signal_is_the_stop_signal.2",
    "pods.statuses.the_declared_signal_is_the_stop_signal.3",
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
