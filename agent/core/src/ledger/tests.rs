//! Which losses concern whom.

use std::sync::Arc;

use super::coverage::{Coverage, KEPT_LOSSES};
use super::{Drops, Hole, Home, Ledger, LossPlace, Origin, Whose, merged};
use crate::event::Kind;
use crate::input::ProbeState;
use crate::time::Boot;

fn place(path: &str) -> LossPlace {
    let (hierarchy, path) = (0, Arc::from(path));
    LossPlace::Cgroup { hierarchy, path }
}

fn home(path: &str) -> Home<'_> {
    let (hierarchy, path) = (0, Some(path));
    Home { hierarchy, path }
}

fn lose(coverage: &mut Coverage, place: LossPlace, from: Boot, to: Boot, most: u64) {
    coverage.lost(Hole::of(Origin::Lost, Kind::ProcessExit, from, to, most), place);
}

/// How many records a subject there may lack.
fn losses(coverage: &Coverage, home: Home<'_>, from: Boot, to: Boot) -> u64 {
    let drops = Drops::NONE;
    let ledger = Ledger::new(coverage, home, &drops);
    ledger.of_all(from, to).filter_map(|hole| hole.most).sum()
}

#[test]
fn a_loss_concerns_the_subjects_around_its_cgroup_and_below_it() {
    let node = place("/kubepods.slice/pod1/a");
    let concerned = ["/kubepods.slice/pod1/a", "/kubepods.slice/pod1/a/b", "/kubepods.slice/pod1"];
    let others = [
        "/kubepods.slice/pod1/ab",
        "/kubepods.slice/pod1/b",
        "/kubepods.slice/pod10",
        "/system.slice",
    ];
    assert!(concerned.into_iter().all(|path| node.concerns(home(path))));
    assert!(!others.into_iter().any(|path| node.concerns(home(path))));
    let root = place("/");
    assert!(concerned.into_iter().chain(others).all(|path| root.concerns(home(path))));
    assert!(LossPlace::Anywhere.concerns(home("/system.slice")));
    let of_v1 = Home {
        hierarchy: 4,
        ..home("/system.slice")
    };
    assert!(node.concerns(of_v1), "paths of two hierarchies cannot be compared");
    assert!(node.concerns(Home {
        hierarchy: 0,
        path: None
    }));
}

/// Of one kind: one after the other does not take its place.
#[test]
fn what_was_dropped_of_others_does_not_hide_what_was_dropped_of_the_main_process() {
    let at = |seconds: u64| Boot(seconds * 1_000_000_000);
    let of = |whose, at| Hole {
        whose,
        ..Hole::of(Origin::Dropped, Kind::SignalGenerate, at, at, 1)
    };
    let mut drops = Drops::NONE;
    drops.add(of(Whose::Others, at(1)));
    drops.add(of(Whose::Any, at(2)));
    let coverage = Coverage::default();
    let ledger = Ledger::new(&coverage, home("/app"), &drops);
    assert_eq!(ledger.of_main(at(0), at(3)).count(), 1);
}

/// Nobody who asks has to add one of them.
#[test]
fn whatever_may_hide_a_record_is_a_hole_of_it() {
    let (from, to) = (Boot(10), Boot(20));
    let is_hidden =
        |coverage: &Coverage, drops: &Drops| Ledger::new(coverage, home("/app"), drops).may_lack(Kind::ProcessExit, from, to);
    let watching = || {
        let mut coverage = Coverage::default();
        coverage.probe(Kind::ProcessExit.name().to_owned(), ProbeState::Active);
        coverage
    };
    assert!(!is_hidden(&watching(), &Drops::NONE));
    assert!(is_hidden(&Coverage::default(), &Drops::NONE), "the probe is not active");
    let mut away = watching();
    away.cut(Boot(12));
    away.start(Boot(12), Boot(15));
    assert!(is_hidden(&away, &Drops::NONE), "a gap");
    let mut losing = watching();
    lose(&mut losing, place("/app"), Boot(15), Boot(15), 1);
    assert!(is_hidden(&losing, &Drops::NONE), "lost");
    let mut drops = Drops::NONE;
    drops.add(Hole::of(Origin::Dropped, Kind::ProcessExit, Boot(15), Boot(15), 1));
    assert!(is_hidden(&watching(), &drops), "dropped");
    let mut others = watching();
    lose(&mut others, place("/other"), Boot(15), Boot(15), 1);
    assert!(!is_hidden(&others, &Drops::NONE), "of another subject");
}

/// Also where each is short, and long before what is asked: they do not join.
#[test]
fn between_two_gaps_somebody_observed() {
    let gap = |from: u64, to: u64| Hole::gap(Boot(from), Some(Boot(to)));
    let holes = merged([gap(0, 1), gap(500, 501)].into_iter());
    assert!(!holes.iter().any(|hole| hole.overlaps(Boot(100), Boot(400))), "{holes:?}");
}

/// Only a timeline counts the exits that it could not keep, and those of the next life are not over.
#[test]
fn exits_that_no_timeline_had_are_not_counted() {
    let mut drops = Drops::NONE;
    drops.exit(Boot(1), false, true);
    assert_eq!((drops.exits(), drops.holes().count()), (None, 1));
    drops.exit(Boot(2), true, false);
    drops.exit(Boot(9), true, false);
    drops.expire(Boot(5));
    assert_eq!(drops.exits().and_then(|hole| hole.most), Some(2));
    drops.expire(Boot(9));
    assert_eq!(drops.exits(), None);
}

#[test]
fn noisy_containers_never_doubt_a_quiet_one_however_often_they_lose() {
    const NOISY: u64 = 100;
    const REPORTS: u64 = 50;
    let mut coverage = Coverage::default();
    for report in 0..REPORTS {
        for noisy in 0..NOISY {
            // With a pause in between, so that each is a loss of its own.
            let from = Boot(report * 1_000 + noisy);
            let place = place(&format!("/kubepods.slice/noisy{noisy}"));
            lose(&mut coverage, place, from, Boot(from.0 + 5), 2);
        }
    }
    assert!(coverage.kept() <= KEPT_LOSSES);
    let (from, to) = (Boot(0), Boot(REPORTS * 2_000));
    assert_eq!(losses(&coverage, home("/kubepods.slice/quiet"), from, to), 0);
    let own = losses(&coverage, home("/kubepods.slice/noisy7"), from, to);
    assert_eq!(own, 2 * REPORTS);
}

#[test]
fn losses_of_more_subjects_than_are_kept_concern_all() {
    let mut coverage = Coverage::default();
    for noisy in 0..=KEPT_LOSSES as u64 {
        let place = place(&format!("/kubepods.slice/noisy{noisy}"));
        lose(&mut coverage, place, Boot(noisy), Boot(noisy), 1);
    }
    let lost = losses(&coverage, home("/kubepods.slice/quiet"), Boot(0), Boot(5));
    assert_eq!(lost, 1);
    let later = losses(&coverage, home("/kubepods.slice/quiet"), Boot(6), Boot(u64::MAX));
    assert_eq!(later, 0, "only the loss that is not kept concerns all");
}

#[test]
fn losses_with_pauses_push_no_other_containers_out() {
    let mut coverage = Coverage::default();
    let lost = |coverage: &mut Coverage, path: &str, at: u64| {
        lose(coverage, place(path), Boot(at), Boot(at), 1);
    };
    lost(&mut coverage, "/kubepods.slice/once", 0);
    for at in 1..3 * KEPT_LOSSES as u64 {
        lost(&mut coverage, "/kubepods.slice/noisy", 10 * at);
    }
    assert!(coverage.kept() <= KEPT_LOSSES);
    assert_eq!(losses(&coverage, home("/kubepods.slice/quiet"), Boot(0), Boot(u64::MAX)), 0);
    let once = losses(&coverage, home("/kubepods.slice/once"), Boot(0), Boot(u64::MAX));
    assert_eq!(once, 1);
    // The latest are still separate.
    let between = Boot(10 * (3 * KEPT_LOSSES as u64 - 3) + 5);
    assert_eq!(losses(&coverage, home("/kubepods.slice/noisy"), between, between), 0);
}
