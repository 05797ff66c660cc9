//! Candidates over one simulated Lease, with steps of 100 ms of their own clocks.

use std::time::Duration;

use crate::observe::election::{Answer, Ask, Election, Record, Timing, Version};
use crate::time::{Boot, Wall};

const STEP: Duration = Duration::from_millis(100);

/// The API server's side: one Lease, changed only at the version that was read.
#[derive(Default)]
struct Api {
    lease: Option<Version>,
    writes: u64,
}

impl Api {
    fn asked(&mut self, ask: Ask) -> Answer {
        match (ask, &self.lease) {
            (Ask::Read, Some(lease)) => Answer::Is(lease.clone()),
            (Ask::Read, None) => Answer::Missing,
            (Ask::Create(_), Some(_)) => Answer::Conflict,
            (Ask::Create(record), None) => self.write(record),
            (Ask::Replace(new), Some(old)) if new.version == old.version => self.write(new.record),
            (Ask::Replace(_), _) => Answer::Conflict,
        }
    }

    fn write(&mut self, record: Record) -> Answer {
        self.writes += 1;
        let version = Version {
            record,
            version: self.writes.to_string(),
        };
        self.lease = Some(version.clone());
        Answer::Is(version)
    }
}

struct Candidate {
    election: Election,
    clock: Boot,
    wall: Wall,
    /// It reaches the API server.
    online: bool,
}

impl Candidate {
    fn new(name: &str) -> Candidate {
        Candidate {
            election: Election::new(name.to_owned(), Timing::default()),
            // Every machine has been up for a time of its own.
            clock: Boot(name.len() as u64 * 1_000_000_000_000),
            wall: Wall(1_000_000_000_000_000_000),
            online: true,
        }
    }

    fn leads(&self) -> bool {
        self.election.leads(self.clock)
    }

    fn step(&mut self, api: &mut Api) {
        self.clock = self.clock.plus(STEP);
        self.wall = Wall(self.wall.0 + STEP.as_nanos() as u64);
        while let Some(ask) = self.election.ask(self.clock, self.wall) {
            let answer = if self.online { api.asked(ask) } else { Answer::Failed };
            self.election.answer(self.clock, self.wall, answer);
        }
    }
}

/// All go on for so long; never do two lead. Seconds until `until` holds.
fn run(api: &mut Api, all: &mut [Candidate], seconds: u64, until: impl Fn(&[Candidate]) -> bool) -> Option<f64> {
    for step in 0..seconds * 10 {
        if until(all) {
            return Some(step as f64 / 10.0);
        }
        for candidate in &mut *all {
            candidate.step(api);
        }
        let leading = all.iter().filter(|candidate| candidate.leads()).count();
        assert!(leading <= 1, "{leading} lead");
    }
    None
}

#[test]
fn one_of_two_leads_and_goes_on() {
    let mut api = Api::default();
    let mut all = [Candidate::new("a"), Candidate::new("bb")];
    assert!(run(&mut api, &mut all, 3, |all| all[0].leads()).is_some());
    assert_eq!(run(&mut api, &mut all, 120, |all| !all[0].leads()), None);
    let lease = api.lease.unwrap().record;
    assert_eq!(
        (lease.holder.as_deref(), lease.transitions, lease.seconds),
        (Some("a"), 0, 15)
    );
    assert!(api.writes > 50, "renewed every two seconds: {}", api.writes);
    assert_eq!(all[1].election.holder(), Some("a"));
}

#[test]
fn a_dead_holders_lease_expires_by_our_own_watch() {
    let mut api = Api::default();
    let mut all = vec![Candidate::new("a"), Candidate::new("bb")];
    run(&mut api, &mut all, 20, |_| false);
    all.remove(0);
    let waited = run(&mut api, &mut all, 60, |all| all[0].leads()).expect("taken over");
    assert!((13.0..=17.5).contains(&waited), "{waited}");
    assert_eq!(api.lease.unwrap().record.transitions, 1);
}

#[test]
fn a_holder_without_api_gives_up_before_another_takes_over() {
    let mut api = Api::default();
    let mut all = [Candidate::new("a"), Candidate::new("bb")];
    run(&mut api, &mut all, 20, |_| false);
    all[0].online = false;
    let gave_up = run(&mut api, &mut all, 60, |all| !all[0].leads()).expect("it gives up");
    assert!((8.0..=10.1).contains(&gave_up), "{gave_up}");
    let taken = run(&mut api, &mut all, 60, |all| all[1].leads()).expect("taken over");
    assert!(taken >= 2.0, "{taken}");
    assert!(!all[0].election.is_lost(), "it cannot know yet");
    // Back again, it waits as any other.
    all[0].online = true;
    assert_eq!(run(&mut api, &mut all, 60, |all| !all[1].leads()), None);
    assert!(all[0].election.is_lost());
}

#[test]
fn without_the_api_no_candidate_leads_and_the_holder_leads_again_at_once() {
    let mut api = Api::default();
    let mut all = [Candidate::new("a")];
    run(&mut api, &mut all, 20, |_| false);
    all[0].online = false;
    assert!(run(&mut api, &mut all, 60, |all| !all[0].leads()).is_some());
    assert_eq!(run(&mut api, &mut all, 60, |all| all[0].leads()), None);
    assert!(!all[0].election.is_lost(), "it is still in its name");
    all[0].online = true;
    assert!(
        run(&mut api, &mut all, 3, |all| all[0].leads()).is_some(),
        "nobody else took it"
    );
    assert_eq!(api.lease.unwrap().record.transitions, 0);
}

#[test]
fn a_released_lease_is_taken_at_the_next_attempt() {
    let mut api = Api::default();
    let mut all = vec![Candidate::new("a"), Candidate::new("bb")];
    run(&mut api, &mut all, 20, |_| false);
    let mut ended = all.remove(0);
    let release = ended.election.release(ended.wall).expect("it holds the lease");
    assert!(!ended.leads(), "nothing is to be done as its holder any more");
    assert!(matches!(api.asked(release), Answer::Is(_)));
    let waited = run(&mut api, &mut all, 60, |all| all[0].leads()).expect("taken over");
    assert!(waited <= 2.1, "{waited}");
    assert_eq!(ended.election.release(ended.wall), None);
}

#[test]
fn wall_clocks_may_jump_as_they_like() {
    let mut api = Api::default();
    let mut all = [Candidate::new("a"), Candidate::new("bb")];
    run(&mut api, &mut all, 20, |_| false);
    all[0].wall = Wall(0);
    all[1].wall = Wall(2_000_000_000_000_000_000);
    assert_eq!(run(&mut api, &mut all, 60, |all| !all[0].leads()), None);
}

/// A holder that did nothing for 30 s by the clock of the other candidate, which leads by then.
fn overtaken(api: &mut Api) -> [Candidate; 2] {
    let mut all = [Candidate::new("a"), Candidate::new("bb")];
    run(api, &mut all, 20, |_| false);
    for _ in 0..300 {
        all[1].step(api);
    }
    assert!(all[1].leads());
    all
}

#[test]
fn a_holder_that_was_suspended_does_not_believe_that_it_leads() {
    let mut api = Api::default();
    let mut all = overtaken(&mut api);
    let holder = &mut all[0];
    holder.clock = holder.clock.plus(Duration::from_secs(30));
    assert!(!holder.leads(), "its clock counts suspend");
    assert_eq!(run(&mut api, &mut all, 30, |all| all[0].leads()), None);
}

/// A virtual machine that is paused: its clocks stand still.
#[test]
fn a_holder_whose_clock_stood_still_has_nothing_confirmed() {
    let mut api = Api::default();
    let mut all = overtaken(&mut api);
    let [holder, other] = &mut all;
    assert!(holder.leads(), "it cannot know yet");
    let resumed = holder.clock;
    for _ in 0..100 {
        other.step(&mut api);
        let confirmed = holder.election.confirmed();
        assert!(confirmed.is_none_or(|confirmed| confirmed <= resumed), "{confirmed:?}");
        holder.step(&mut api);
    }
    assert!(!holder.leads() && holder.election.is_lost());
    // Of a holder that goes on, everything is confirmed soon.
    let made = all[1].clock;
    let confirms = |all: &[Candidate]| all[1].election.confirmed().is_some_and(|confirmed| confirmed >= made);
    let after = run(&mut api, &mut all, 10, confirms).expect("confirmed");
    assert!(after <= 2.2, "{after}");
}

#[test]
fn an_edit_of_the_lease_by_another_program_is_not_a_renewal() {
    let mut api = Api::default();
    let mut all = vec![Candidate::new("a"), Candidate::new("bb")];
    run(&mut api, &mut all, 20, |_| false);
    all.remove(0);
    for _ in 0..8 {
        run(&mut api, &mut all, 2, |_| false);
        let lease = api.lease.as_mut().unwrap();
        // As an annotation does.
        lease.version += "x";
    }
    assert!(run(&mut api, &mut all, 3, |all| all[0].leads()).is_some());
}

#[test]
fn a_lease_that_was_deleted_or_stolen_is_noticed() {
    let mut api = Api::default();
    let mut all = [Candidate::new("a")];
    run(&mut api, &mut all, 20, |_| false);
    api.lease = None;
    run(&mut api, &mut all, 5, |_| false);
    assert!(all[0].leads());
    assert!(api.lease.is_some(), "made again");
    api.write(Record {
        holder: Some("thief".to_owned()),
        seconds: 15,
        ..Record::default()
    });
    assert!(
        run(&mut api, &mut all, 3, |all| !all[0].leads()).is_some(),
        "at the next renewal"
    );
}
