//! The evidence of terminations in progress, to the journal.

use std::time::Duration;

use epitaph_core::correlate::{Concern, Correlator, Keeper};
use epitaph_core::decode::decode;
use epitaph_core::event::Event;
use epitaph_core::ids::CgroupId;
use epitaph_core::input::Input;
use epitaph_core::report::Answers;
use epitaph_core::time::Boot;

use crate::journal::{Journal, JournalDropReason, JournalStats};

/// While a termination is in progress, the journal shows at least so often that the agent still ran: what is later is a gap.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// Otherwise this often: how long nothing was observed after a kill, and when a node went down that nothing announced, is known no
/// better.
const IDLE_HEARTBEAT: Duration = Duration::from_secs(30);

pub struct Evidence {
    journal: Journal,
    keeper: Keeper,
    /// Removed segments, as last seen: what they introduced is introduced again.
    removed: u64,
    /// Frames that the journal did not take, as last seen: likewise, once it takes them again.
    dropped: u64,
    owes: bool,
    /// Time of the last frame.
    last: Boot,
    /// The subjects that the evidence of earlier runs has, until the scan that follows.
    earlier: Vec<CgroupId>,
}

/// What is known of an input before the core takes it.
pub struct Noted(Concern);

/// How the core took it.
#[derive(Clone, Copy)]
pub struct Taken {
    is_answered: bool,
    /// The subject of a kernel record.
    about: Option<CgroupId>,
}

impl Taken {
    pub fn of(answers: &Answers) -> Taken {
        Taken {
            is_answered: !answers.is_empty(),
            about: answers.about,
        }
    }
}

impl Noted {
    /// The input, if it may be kept.
    pub fn copy(&self, input: &Input) -> Option<Input> {
        (!matches!(self.0, Concern::Nothing)).then(|| input.clone())
    }
}

impl Evidence {
    pub fn new(journal: Journal) -> Evidence {
        Evidence {
            journal,
            keeper: Keeper::default(),
            removed: 0,
            dropped: 0,
            owes: false,
            last: Boot(0),
            earlier: Vec::new(),
        }
    }

    /// The core has the evidence of earlier runs.
    pub fn resumed(&mut self, core: &Correlator) {
        self.earlier = core.subjects();
    }

    /// After the scan that follows: which of these subjects go on, and so which have ended. A replay of the journal has no other scan.
    pub fn scanned(&mut self, core: &Correlator, now: Boot) {
        let earlier = std::mem::take(&mut self.earlier);
        if earlier.is_empty() {
            return;
        }
        for input in self.keeper.resumed(core, &earlier) {
            self.journal.input(now, &input);
        }
        self.journal.input(now, &Input::Scanned);
        self.last = now;
    }

    pub fn before(&mut self, core: &Correlator, input: &Input) -> Noted {
        self.keeper.note(input);
        Noted(self.keeper.concern(core, input))
    }

    /// An input that is not a kernel record: `copy`, if it may be kept.
    pub fn after(&mut self, core: &Correlator, now: Boot, noted: Noted, copy: Option<&Input>, taken: Taken) {
        let event = || match copy {
            Some(Input::Kernel { event, .. }) => Some(event.clone()),
            _ => None,
        };
        self.keep(core, now, (noted, taken), event, |journal| {
            if let Some(input) = copy {
                journal.input(now, input);
            }
        });
    }

    /// A kernel record.
    pub fn after_record(&mut self, core: &Correlator, now: Boot, noted: Noted, bytes: &[u8], taken: Taken) {
        // Few records are evidence: these are decoded once more.
        let event = || decode(bytes).ok().map(|(_, event)| event);
        self.keep(core, now, (noted, taken), event, |journal| journal.record(now, bytes));
    }

    fn keep(
        &mut self,
        core: &Correlator,
        now: Boot,
        (noted, taken): (Noted, Taken),
        event: impl FnOnce() -> Option<Event>,
        itself: impl FnOnce(&Journal),
    ) {
        let concern = noted.0.about(taken.about);
        let kept = self.keeper.keep(core, now, &concern, event, taken.is_answered);
        if !kept.itself && kept.before.is_empty() {
            return;
        }
        if concern.is_in_progress(core) {
            // Before the frames: the first evidence of a termination is synced as soon as the later ones.
            self.journal.in_progress(true);
        }
        for input in &kept.before {
            self.journal.input(now, input);
        }
        if kept.itself {
            itself(&self.journal);
        }
        self.last = now;
    }

    pub fn tick(&mut self, core: &Correlator, now: Boot) {
        let stats = self.journal.stats();
        let (removed, dropped) = (stats.removed_segments(), lost(&stats));
        let is_dropping = dropped > std::mem::replace(&mut self.dropped, dropped);
        self.owes |= is_dropping || removed > std::mem::replace(&mut self.removed, removed);
        if self.owes && !is_dropping && !stats.is_memory_only() && self.journal.has_room() {
            self.owes = false;
            for input in self.keeper.forget(core) {
                self.journal.input(now, &input);
            }
        }
        for state in self.keeper.owed(core) {
            self.journal.input(now, state);
        }
        let is_in_progress = self.keeper.is_in_progress(core);
        self.journal.in_progress(is_in_progress);
        let every = match is_in_progress {
            true => HEARTBEAT,
            false => IDLE_HEARTBEAT,
        };
        if now.since(self.last) >= every {
            self.beat(now);
        }
    }

    /// The agent observes until now: at its end, the gap begins here.
    pub fn beat(&mut self, now: Boot) {
        self.last = now;
        self.journal.input(now, &Input::Tick);
    }
}

/// Evidence that the journal did not take.
fn lost(stats: &JournalStats) -> u64 {
    let reasons = JournalDropReason::ALL
        .iter()
        .filter(|reason| **reason != JournalDropReason::Report);
    reasons.map(|reason| stats.dropped(*reason)).sum()
}

#[cfg(test)]
mod tests {
    use epitaph_core::correlate::Limits;
    use epitaph_core::event::Kind;
    use epitaph_core::fixtures::terminations::observation;
    use epitaph_core::input::ProbeState;

    use super::*;
    use crate::journal;

    fn options(directory: &tempfile::TempDir, pid: u32) -> journal::Options {
        journal::Options {
            directory: directory.path().join("journal"),
            group: None,
            max_bytes: 64 << 20,
            pid,
        }
    }

    /// Without logind, too: the next agent states the gap since the last frame.
    #[test]
    fn an_idle_agent_shows_that_it_runs_and_when_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(&directory, std::process::id());
        let opened = journal::open(&options, &observation(), &|| false).unwrap();
        let mut evidence = Evidence::new(opened.journal.clone());
        let core = Correlator::new(Limits::default());
        assert!(!core.observes_node() && !evidence.keeper.is_in_progress(&core));
        let at = |seconds: u64| Boot(observation().since.0 + seconds * 1_000_000_000);
        for seconds in 40..=100 {
            evidence.tick(&core, at(seconds));
        }
        evidence.beat(at(107));
        opened.thread.close(Duration::from_secs(30));
        let next = journal::open(&options, &observation(), &|| false).unwrap();
        let mut seen = Vec::new();
        let fed: Result<(), ()> = next.past.replay(|now, input| {
            if matches!(input, Input::Tick) {
                seen.push(now);
            }
            Ok(())
        });
        fed.unwrap();
        assert_eq!(seen, [40, 70, 100, 107].map(at));
        next.thread.close(Duration::from_secs(30));
    }

    /// In a storm not each loss is kept as it came, and none is forgotten.
    #[test]
    fn losses_over_the_bound_of_a_second_reach_the_next_agent() {
        const STORM: u64 = 100;
        let directory = tempfile::tempdir().unwrap();
        let options = options(&directory, 1);
        let opened = journal::open(&options, &observation(), &|| false).unwrap();
        let mut evidence = Evidence::new(opened.journal.clone());
        let core = Correlator::new(Limits::default());
        let now = observation().since;
        let lost = Input::lost_by_machine(Kind::SignalGenerate, now, 1);
        for input in std::iter::repeat_n(&lost, STORM as usize).chain([&Input::Tick]) {
            let noted = evidence.before(&core, input);
            let copy = noted.copy(input);
            evidence.after(&core, now, noted, copy.as_ref(), Taken::of(&Answers::default()));
        }
        opened.thread.close(Duration::from_secs(30));
        let next = journal::open(&options, &observation(), &|| false).unwrap();
        let (mut losses, mut kept) = (0, 0);
        let fed: Result<(), ()> = next.past.replay(|_, input| {
            if let Input::Lost {
                kind: Kind::SignalGenerate,
                count,
                ..
            } = input
            {
                losses += 1;
                kept += count;
            }
            Ok(())
        });
        fed.unwrap();
        assert_eq!(kept, STORM);
        assert!(losses < STORM, "{losses}");
        next.thread.close(Duration::from_secs(30));
    }

    /// What was dropped may have introduced what the next evidence needs.
    #[test]
    fn what_the_journal_did_not_take_is_kept_again_once_it_does() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(&directory, 1);
        let opened = journal::open(&options, &observation(), &|| false).unwrap();
        let mut evidence = Evidence::new(opened.journal.clone());
        let core = Correlator::new(Limits::default());
        let now = observation().since;
        let state = Input::Probe {
            name: "signal_generate".to_owned(),
            state: ProbeState::Active,
        };
        let _ = evidence.before(&core, &state);
        evidence.tick(&core, now);
        // Longer than a frame.
        opened.journal.record(now, &vec![0; 32 << 20]);
        for _ in 0..4 {
            evidence.tick(&core, now);
        }
        opened.thread.close(Duration::from_secs(30));
        let next = journal::open(&options, &observation(), &|| false).unwrap();
        let mut kept = 0;
        let fed: Result<(), ()> = next.past.replay(|_, input| {
            kept += u32::from(input == state);
            Ok(())
        });
        fed.unwrap();
        assert_eq!(kept, 1);
        next.thread.close(Duration::from_secs(30));
    }
}
