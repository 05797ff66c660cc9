//! A token bucket; time is an argument.

use std::time::Duration;

use epitaph_core::time::Boot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens available at once after a quiet time.
    pub burst: u32,
    pub per_second: u32,
}

#[derive(Debug)]
pub struct Bucket {
    rate: Rate,
    /// Time at which the bucket is full again: each taken token delays this time by one share.
    full_at: Boot,
}

impl Bucket {
    pub fn new(rate: Rate) -> Bucket {
        Bucket { rate, full_at: Boot(0) }
    }

    /// Takes a token, or returns the time until one is available.
    pub fn take(&mut self, now: Boot) -> Result<(), Duration> {
        let share = 1_000_000_000 / u64::from(self.rate.per_second.max(1));
        let full_at = self.full_at.max(now).0 + share;
        let room = share * u64::from(self.rate.burst.max(1));
        let wait = full_at.saturating_sub(now.0.saturating_add(room));
        if wait > 0 {
            return Err(Duration::from_nanos(wait));
        }
        self.full_at = Boot(full_at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut bucket = Bucket::new(Rate { burst: 3, per_second: 2 });
        let now = Boot(100 * SECOND);
        for _ in 0..3 {
            assert_eq!(bucket.take(now), Ok(()));
        }
        assert_eq!(bucket.take(now), Err(Duration::from_millis(500)));
        assert_eq!(bucket.take(Boot(now.0 + SECOND / 2)), Ok(()));
        assert!(bucket.take(Boot(now.0 + SECOND / 2)).is_err());
        // A long quiet time fills the bucket, but not more.
        let later = Boot(1_000 * SECOND);
        assert_eq!((0..10).filter(|_| bucket.take(later).is_ok()).count(), 3);
    }

    #[test]
    fn a_clock_that_stops_or_goes_back_gives_no_tokens() {
        let mut bucket = Bucket::new(Rate { burst: 1, per_second: 1 });
        assert!(bucket.take(Boot(10 * SECOND)).is_ok());
        assert!(bucket.take(Boot(9 * SECOND)).is_err());
    }
}
