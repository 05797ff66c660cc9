//! A log message that a busy or hostile node can cause without end: at most one per interval, with the number of the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use epitaph_core::time::Boot;

/// Between two of the same messages.
const INTERVAL: Duration = Duration::from_secs(10);

/// One per message, as a `static` beside it.
pub struct Throttle {
    /// When the next message is logged.
    due: AtomicU64,
    suppressed: AtomicU64,
}

impl Throttle {
    pub const fn new() -> Throttle {
        Throttle {
            due: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// None if the message must not be logged now; otherwise how many were not logged since the last one.
    pub fn admit(&self, now: Boot) -> Option<u64> {
        let due = self.due.load(Ordering::Relaxed);
        let next = now.plus(INTERVAL).0;
        let is_due = now.0 >= due
            && self
                .due
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_due {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_per_interval_with_the_number_of_the_others() {
        let throttle = Throttle::new();
        let at = |seconds: u64| throttle.admit(Boot(seconds * 1_000_000_000));
        let admitted = [100, 100, 101, 109, 110, 111, 200].map(at);
        assert_eq!(admitted, [Some(0), None, None, None, Some(3), None, Some(1)]);
    }
}
