//! A log message that a busy or hostile node can cause without end: a limited number per interval, with the number of the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use epitaph_core::time::Boot;

/// Between two of the same messages.
const INTERVAL: Duration = Duration::from_secs(10);

/// One per message, as a `static` beside it.
pub struct Throttle {
    /// Messages in one interval.
    most: u64,
    interval: Duration,
    /// When the next interval begins.
    due: AtomicU64,
    /// Of the present interval.
    admitted: AtomicU64,
    suppressed: AtomicU64,
}

impl Throttle {
    pub const fn new() -> Throttle {
        Throttle::burst(1, INTERVAL)
    }

    /// `most` messages, one at least, in each interval; the first message begins it.
    pub const fn burst(most: u64, interval: Duration) -> Throttle {
        Throttle {
            most,
            interval,
            due: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// None if the message must not be logged now; otherwise how many were not logged since the last one.
    pub fn admit(&self, now: Boot) -> Option<u64> {
        let due = self.due.load(Ordering::Relaxed);
        let next = now.plus(self.interval).0;
        let is_due = now.0 >= due
            && self
                .due
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_due {
            self.admitted.store(1, Ordering::Relaxed);
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        if self.admitted.fetch_add(1, Ordering::Relaxed) < self.most {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// How many messages were not logged in an interval that has ended; None if there are none. The number is returned once.
    pub fn overdue(&self, now: Boot) -> Option<u64> {
        let has_ended = now.0 >= self.due.load(Ordering::Relaxed);
        let suppressed = if has_ended {
            self.suppressed.swap(0, Ordering::Relaxed)
        } else {
            0
        };
        (suppressed > 0).then_some(suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Boot {
        Boot(seconds * 1_000_000_000)
    }

    #[test]
    fn one_message_per_interval_with_the_number_of_the_others() {
        let throttle = Throttle::new();
        let admitted = [100, 100, 101, 109, 110, 111, 200].map(|seconds| throttle.admit(at(seconds)));
        assert_eq!(admitted, [Some(0), None, None, None, Some(3), None, Some(1)]);
    }

    #[test]
    fn some_messages_per_interval() {
        let throttle = Throttle::burst(2, Duration::from_secs(10));
        let admitted = [100, 101, 102, 109, 110, 111, 112].map(|seconds| throttle.admit(at(seconds)));
        assert_eq!(admitted, [Some(0), Some(0), None, None, Some(2), Some(0), None]);
        assert_eq!(
            [119, 120, 121].map(|seconds| throttle.overdue(at(seconds))),
            [None, Some(1), None]
        );
    }
}
