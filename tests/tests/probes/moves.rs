//! The scan of what exists, while a process moves. As in the agent, the probes are attached before.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use epitaph::source::procfs::{Procfs, ProcfsError};
use epitaph_core::input::{Input, ProcessFact};

use super::*;

/// So many scans at least, and more until the process was seen at both places.
const SCANS: usize = 100;
/// A scan of a busy machine takes half a second and more: it gets a tenth of a processor there.
const LONGEST: Duration = Duration::from_secs(600);

/// A runtime moves processes while the agent starts: this one moves between two containers, as fast as the kernel lets it.
#[test]
fn a_process_that_moves_during_scans_is_shown_once_in_each_and_at_last_where_it_is() {
    let mut probes = need!(Probes::load(), "not root");
    let parent = need!(Cgroup::v2(), "no cgroup v2");
    let container = |digit: &str| parent.child(&format!("docker-{}.scope", digit.repeat(64)));
    let (a, b) = (container("a"), container("b"));
    let player = Player::in_cgroup(&a, "ignore");
    let mut procfs = Procfs::new(Path::new("/proc"), Path::new("/sys")).expect("/proc and /sys");
    procfs.first_scan(|_| {}).expect("a scan");

    let (stop, begin) = (AtomicBool::new(false), clock::now());
    // Bounded, so that what holds it up is in the results.
    let is_over = || clock::now().since(begin) > LONGEST;
    let scans: Vec<Vec<ProcessFact>> = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) && !is_over() {
                for to in [&b, &a] {
                    let moved = fs::write(to.0.join("cgroup.procs"), player.pid().to_string());
                    moved.unwrap_or_else(|error| eprintln!("the process does not move: {error}"));
                }
            }
        });
        let mut scans = Vec::new();
        let mut seen = [false; 2];
        while (scans.len() < SCANS || seen.contains(&false)) && !is_over() {
            let shown = shown(player.pid(), |each| procfs.scan(each));
            let is_in = |cgroup: &Cgroup| shown.iter().any(|fact| v2_of(fact) == Some(cgroup.id()));
            (seen[0], seen[1]) = (seen[0] | is_in(&a), seen[1] | is_in(&b));
            scans.push(shown);
        }
        stop.store(true, Ordering::Relaxed);
        scans
    });
    let places: Vec<Option<CgroupId>> = scans.iter().flatten().map(v2_of).collect();
    assert!(scans.len() >= SCANS, "{} scans in {} s", scans.len(), LONGEST.as_secs());
    assert!(scans.iter().all(|shown| shown.len() == 1), "{scans:?}");
    for place in [a.id(), b.id()] {
        assert!(places.contains(&Some(place)), "it did not move: {places:?}");
    }
    assert!(places.iter().all(|place| *place == Some(a.id()) || *place == Some(b.id())));

    // At rest, not where the first scan has seen it; and its records agree.
    b.write("cgroup.procs", &player.pid().to_string());
    let last = shown(player.pid(), |each| procfs.scan_after_first(each));
    assert_eq!(last.iter().map(v2_of).collect::<Vec<_>>(), [Some(b.id())], "{last:?}");
    player.kill(signal::Signal::SIGTERM);
    let record = probes.signal_to(player.pid(), 15);
    assert_eq!(record.target.cgroup, b.id());
    assert!(
        record.target.start.since(last[0].start).as_millis() < 20,
        "{record:?}, {last:?}"
    );
}

/// What a scan shows of a process.
fn shown(
    pid: u32,
    scan: impl FnOnce(&mut dyn FnMut(Input) -> Result<(), ProcfsError>) -> Result<(), ProcfsError>,
) -> Vec<ProcessFact> {
    let mut facts = Vec::new();
    let scanned = scan(&mut |input| {
        if let Input::Process(fact) = input
            && fact.tgid == Pid(pid)
        {
            facts.push(fact);
        }
        Ok(())
    });
    scanned.expect("a scan");
    facts
}

fn v2_of(fact: &ProcessFact) -> Option<CgroupId> {
    let v2 = fact.cgroups.iter().find(|(cgroup, _)| cgroup.hierarchy == 0);
    v2.map(|(cgroup, _)| *cgroup)
}
