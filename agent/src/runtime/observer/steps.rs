//! Steps of the wall clock: of somebody who sets it, or of a pause in which this machine's clocks stood still.

use std::collections::VecDeque;
use std::time::Duration;

use epitaph_core::time::{Boot, WallOffset};

/// A smaller step is an adjustment.
const STEP: Duration = Duration::from_secs(1);

/// Most steps; older ones are forgotten.
const KEPT: usize = 8;

pub(super) struct Steps {
    offset: WallOffset,
    /// When the clock stepped, and by how many nanoseconds.
    kept: VecDeque<(Boot, i64)>,
}

impl Steps {
    pub(super) fn new(offset: WallOffset) -> Steps {
        Steps {
            offset,
            kept: VecDeque::new(),
        }
    }

    /// The offset as it is now: by how many nanoseconds the clock stepped since the last time, if it did.
    pub(super) fn compare(&mut self, now: Boot, offset: WallOffset) -> Option<i64> {
        let before = std::mem::replace(&mut self.offset, offset);
        let step = offset.0.saturating_sub(before.0);
        if Duration::from_nanos(step.unsigned_abs()) < STEP {
            return None;
        }
        self.kept.push_back((now, step));
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
        Some(step)
    }

    /// By how many nanoseconds the clock stepped after that time.
    pub(super) fn after(&self, time: Boot) -> Option<i64> {
        let after = self.kept.iter().filter(|(at, _)| *at > time);
        after.map(|(_, step)| *step).reduce(i64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_clock_that_slews_does_not_step() {
        let mut steps = Steps::new(WallOffset(0));
        for tick in 1..10_000 {
            assert_eq!(steps.compare(Boot(tick), WallOffset(tick as i64 * SECOND / 2)), None);
        }
        assert_eq!(steps.after(Boot(0)), None);
    }

    #[test]
    fn what_began_before_steps_is_wrong_by_all_of_them() {
        let mut steps = Steps::new(WallOffset(0));
        assert_eq!(steps.compare(Boot(10), WallOffset(60 * SECOND)), Some(60 * SECOND));
        assert_eq!(steps.compare(Boot(20), WallOffset(58 * SECOND)), Some(-2 * SECOND));
        assert_eq!(steps.after(Boot(5)), Some(58 * SECOND));
        assert_eq!(steps.after(Boot(15)), Some(-2 * SECOND));
        assert_eq!(steps.after(Boot(20)), None);
    }

    #[test]
    fn steps_are_bounded() {
        let mut steps = Steps::new(WallOffset(0));
        for step in 1..20 {
            steps.compare(Boot(step), WallOffset(step as i64 * SECOND));
        }
        assert_eq!(steps.after(Boot(0)), Some(KEPT as i64 * SECOND));
    }
}
