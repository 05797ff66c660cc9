//! What is known of the observation itself.

use crate::correlate::limits::STEPS;
use crate::input::Observation;
use crate::ledger::Coverage;
use crate::time::{Boot, TickRate, WallClock};

/// Of the whole observation, as its last start has it.
#[derive(Debug)]
pub(super) struct Observing {
    pub coverage: Coverage,
    pub clock: WallClock<STEPS>,
    pub boot_id: String,
    pub tick_rate: TickRate,
    /// See [`Observation::observes_followed`].
    pub observes_followed: bool,
}

impl Default for Observing {
    fn default() -> Observing {
        Observing {
            coverage: Coverage::default(),
            clock: WallClock::default(),
            boot_id: String::new(),
            tick_rate: TickRate::USUAL,
            observes_followed: false,
        }
    }
}

impl Observing {
    /// The observation begins (again); the previous one ended at `ended`.
    pub fn start(&mut self, ended: Boot, observation: &Observation) {
        self.coverage.start(ended, observation.since);
        if self.boot_id != observation.boot_id {
            self.clock = WallClock::default();
        }
        self.clock.set(observation.since, observation.wall_offset);
        self.boot_id.clone_from(&observation.boot_id);
        self.tick_rate = observation.tick_rate();
        self.observes_followed = observation.observes_followed;
    }
}
