use std::collections::HashSet;

use super::*;

const EXITS: [Exit; 18] = [
    Exit::Clean,
    Exit::DefaultAction,
    Exit::NonzeroExit,
    Exit::IgnoredStopSignal,
    Exit::BlockedStopSignal,
    Exit::KilledAfterGrace,
    Exit::PrestopOverran,
    Exit::PrestopFailed,
    Exit::SidecarStarved,
    Exit::Stuck,
    Exit::RuntimeFailed,
    Exit::ForceKilled,
    Exit::OomKilled,
    Exit::OomChild,
    Exit::KilledByOther,
    Exit::Crashed,
    Exit::TruncatedByShutdown,
    Exit::Unknown,
];

#[test]
fn every_pair_of_axes_has_exactly_one_row() {
    for exit in EXITS {
        for (traffic, _) in TRAFFIC {
            let rows = TABLE
                .iter()
                .filter(|row| row.exit == exit && (row.traffic.is_empty() || row.traffic.contains(&traffic)));
            assert_eq!(rows.count(), 1, "{exit:?} {traffic:?}");
            assert_eq!(row(exit, traffic).exit, exit);
        }
    }
}

#[test]
fn an_exit_that_is_not_clean_names_its_own_headline() {
    for exit in EXITS.into_iter().filter(|&exit| exit != Exit::Clean) {
        let name = serde_json::to_value(exit).unwrap();
        assert_eq!(row(exit, TrafficAxis::Quiet).headline, name.as_str().unwrap());
    }
}

#[test]
fn headlines_and_precedences_are_unique_and_unclean_outranks_clean() {
    let headlines: HashSet<_> = TABLE.iter().map(|row| row.headline).collect();
    let precedences: HashSet<_> = TABLE.iter().map(|row| row.precedence).collect();
    assert_eq!((headlines.len(), precedences.len()), (TABLE.len(), TABLE.len()));
    let lowest_unclean = TABLE.iter().filter(|row| row.unclean).map(|row| row.precedence).min();
    let highest_other = TABLE.iter().filter(|row| !row.unclean).map(|row| row.precedence).max();
    assert!(lowest_unclean > highest_other);
    assert!(TABLE.iter().all(|row| by_headline(row.headline) == Some(row)));
}
