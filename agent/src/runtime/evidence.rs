//! The evidence of terminations in progress, to the journal.

use std::time::Duration;

use epitaph_core::correlate::{Concern, Correlator, Keeper};
use epitaph_core::input::Input;
use epitaph_core::time::Boot;

use crate::journal::Journal;

/// While a termination is in progress, the journal shows at least so often that the agent still ran: what is later is a gap.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// Otherwise this often, if the node's shutdowns are observed: an unannounced one has no other last evidence.
const IDLE_HEARTBEAT: Duration = Duration::from_secs(30);

pub struct Evidence {
    journal: Journal,
    keeper: Keeper,
    /// Removed segments, as last seen: what they introduced is introduced again.
    removed: u64,
    /// Time of the last frame.
    last: Boot,
}

/// What is known of an input before the core takes it.
pub struct Noted(Concern);

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
            last: Boot(0),
        }
    }

    pub fn before(&mut self, core: &Correlator, input: &Input) -> Noted {
        self.keeper.note(input);
        Noted(self.keeper.concern(core, input))
    }

    /// `itself`: writes the input.
    pub fn after(&mut self, core: &Correlator, now: Boot, noted: Noted, answered: bool, itself: impl FnOnce(&Journal)) {
        let kept = self.keeper.keep(core, now, noted.0, answered);
        for input in &kept.before {
            self.journal.input(now, input);
        }
        if kept.itself {
            itself(&self.journal);
        }
        if kept.itself || !kept.before.is_empty() {
            self.last = now;
        }
    }

    pub fn tick(&mut self, core: &Correlator, now: Boot) {
        let removed = self.journal.stats().removed_segments();
        if removed > std::mem::replace(&mut self.removed, removed) {
            self.keeper.forget();
        }
        let is_in_progress = self.keeper.is_in_progress(core);
        self.journal.in_progress(is_in_progress);
        let every = match is_in_progress {
            true => HEARTBEAT,
            false if core.observes_node() => IDLE_HEARTBEAT,
            false => return,
        };
        if now.since(self.last) >= every {
            self.last = now;
            self.journal.input(now, &Input::Tick);
        }
    }
}
