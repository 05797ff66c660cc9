//! The wall clock of this boot, and its steps.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::{Boot, WallOffset};

/// A smaller step is an adjustment.
const STEP: Duration = Duration::from_secs(1);
/// Most steps; older ones are forgotten.
const KEPT: usize = 256;

#[derive(Debug, Default)]
pub(super) struct WallClock {
    offset: Option<WallOffset>,
    /// When it stepped, and by how many nanoseconds.
    steps: VecDeque<(Boot, i64)>,
}

impl WallClock {
    pub fn set(&mut self, now: Boot, offset: WallOffset) {
        let Some(before) = self.offset.replace(offset) else { return };
        let step = offset.0.saturating_sub(before.0);
        if Duration::from_nanos(step.unsigned_abs()) < STEP {
            return;
        }
        self.steps.push_back((now, step));
        if self.steps.len() > KEPT {
            self.steps.pop_front();
        }
    }

    pub fn offset(&self) -> WallOffset {
        self.offset.unwrap_or_default()
    }

    /// By how many nanoseconds it stepped after that time.
    pub fn step_after(&self, time: Boot) -> Option<i64> {
        let after = self.steps.iter().filter(|(at, _)| *at > time);
        after.map(|(_, step)| *step).reduce(i64::saturating_add)
    }
}
