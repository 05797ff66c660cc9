//! Times: on the kernel's own clock and on the wall, as different types. No clock is read here.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::tolerances::CLOCK_STEP;

/// A clock tick of `/proc/PID/stat`, nanoseconds: USER_HZ is 100 on every architecture of Linux that has BPF, for any HZ
/// of the kernel.
pub const TICK_NS: u64 = 10_000_000;

/// So many jiffies a second: the kernel's own HZ (`CONFIG_HZ`), of the times that it keeps in its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRate(u32);

impl TickRate {
    /// Where it is not known, as in older recordings.
    pub const USUAL: TickRate = TickRate(250);

    /// None: no kernel has such a rate.
    pub const fn per_second(ticks: u32) -> Option<TickRate> {
        match ticks {
            10..=10_000 => Some(TickRate(ticks)),
            _ => None,
        }
    }

    /// The number of ticks in that time, rounded up.
    pub fn ticks(self, time: Duration) -> i32 {
        let ticks = time.as_nanos().saturating_mul(self.0.into()).div_ceil(1_000_000_000);
        i32::try_from(ticks).unwrap_or(i32::MAX)
    }
}

/// A moment on `CLOCK_BOOTTIME`, nanoseconds since boot: monotonic, counts suspend, the same for kernel and user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Boot(pub u64);

impl Boot {
    pub const fn from_nanos(nanos: u64) -> Self {
        Boot(nanos)
    }
    /// Time from `earlier` to `self`; zero where `earlier` is later.
    pub const fn since(self, earlier: Boot) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
    /// Time between both, in either order.
    pub const fn apart(self, other: Boot) -> Duration {
        Duration::from_nanos(self.0.abs_diff(other.0))
    }
    pub fn plus(self, d: Duration) -> Boot {
        Boot(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
    pub fn minus(self, d: Duration) -> Boot {
        Boot(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Wall-clock time, nanoseconds since the Unix epoch. Never compared with [`Boot`] but through a [`WallOffset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(pub u64);

impl Wall {
    pub fn system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.0)
    }

    /// Seconds since the Unix epoch, as Prometheus has times; exact to a microsecond.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Of RFC 3339 in UTC, as [`Wall::rfc3339`] writes it, or with fewer digits; None for other text and times before 1970.
    pub fn parse_rfc3339(text: &str) -> Option<Wall> {
        let time = humantime::parse_rfc3339(text).ok()?;
        let nanos = time.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        u64::try_from(nanos).ok().map(Wall)
    }

    /// RFC 3339, UTC: `2026-11-21T11:44:10.123456789Z`.
    pub fn rfc3339(self) -> String {
        humantime::format_rfc3339_nanos(self.system_time()).to_string()
    }

    /// As [`Wall::rfc3339`] to the millisecond, for people.
    pub fn rfc3339_millis(self) -> String {
        humantime::format_rfc3339_millis(self.system_time()).to_string()
    }
}

/// `CLOCK_REALTIME` minus `CLOCK_BOOTTIME`, nanoseconds, as the clock room measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallOffset(pub i64);

impl WallOffset {
    pub const fn wall(self, at: Boot) -> Wall {
        Wall(at.0.saturating_add_signed(self.0))
    }

    pub const fn boot(self, at: Wall) -> Boot {
        Boot(at.0.saturating_add_signed(self.0.saturating_neg()))
    }
}

/// The wall clock of one boot, and its steps: of somebody who sets it, or of a pause in which the machine's clocks stood still. At most `KEPT`
/// steps; older ones are forgotten.
#[derive(Debug, Default)]
pub struct WallClock<const KEPT: usize> {
    offset: Option<WallOffset>,
    /// When it stepped, and by how many nanoseconds.
    steps: VecDeque<(Boot, i64)>,
}

impl<const KEPT: usize> WallClock<KEPT> {
    pub fn at(offset: WallOffset) -> Self {
        WallClock {
            offset: Some(offset),
            steps: VecDeque::new(),
        }
    }

    /// The offset as it is now: by how many nanoseconds the clock stepped since the last time, if it did.
    pub fn set(&mut self, now: Boot, offset: WallOffset) -> Option<i64> {
        let before = self.offset.replace(offset)?;
        let step = offset.0.saturating_sub(before.0);
        if Duration::from_nanos(step.unsigned_abs()) < CLOCK_STEP {
            return None;
        }
        self.steps.push_back((now, step));
        if self.steps.len() > KEPT {
            self.steps.pop_front();
        }
        Some(step)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_a_time() {
        let ticks = |rate: u32, millis| {
            TickRate::per_second(rate)
                .expect("a rate")
                .ticks(Duration::from_millis(millis))
        };
        assert_eq!([100, 250, 300, 1000].map(|rate| ticks(rate, 100)), [10, 25, 30, 100]);
        assert_eq!((ticks(250, 1000), ticks(300, 1)), (250, 1));
        assert_eq!([0, 9, 10_001].map(TickRate::per_second), [None; 3]);
    }

    #[test]
    fn rfc3339_has_nanoseconds() {
        assert_eq!(Wall(0).rfc3339(), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(Wall(1_795_261_450_123_456_789).rfc3339(), "2026-11-21T11:44:10.123456789Z");
        assert_eq!(Wall(u64::MAX).rfc3339(), "2554-07-21T23:34:33.709551615Z");
        assert_eq!(Wall(1_795_261_450_123_456_789).rfc3339_millis(), "2026-11-21T11:44:10.123Z");
    }

    #[test]
    fn rfc3339_is_read_as_written() {
        for at in [0, 1, 1_795_261_450_123_456_789, u64::MAX].map(Wall) {
            assert_eq!(Wall::parse_rfc3339(&at.rfc3339()), Some(at));
        }
        assert_eq!(Wall::parse_rfc3339("1970-01-01T00:00:01Z"), Some(Wall(1_000_000_000)));
        for wrong in [
            "",
            "now",
            "1969-12-31T23:59:59Z",
            "2554-07-21T23:34:33.709551616Z",
            "9999-12-31T00:00:00Z",
        ] {
            assert_eq!(Wall::parse_rfc3339(wrong), None, "{wrong}");
        }
    }

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_clock_that_slews_does_not_step() {
        let mut clock = WallClock::<8>::at(WallOffset(0));
        for tick in 1..10_000 {
            assert_eq!(clock.set(Boot(tick), WallOffset(tick as i64 * SECOND / 2)), None);
        }
        assert_eq!(clock.step_after(Boot(0)), None);
    }

    #[test]
    fn what_began_before_steps_is_wrong_by_all_of_them() {
        let mut clock = WallClock::<8>::at(WallOffset(0));
        assert_eq!(clock.set(Boot(10), WallOffset(60 * SECOND)), Some(60 * SECOND));
        assert_eq!(clock.set(Boot(20), WallOffset(58 * SECOND)), Some(-2 * SECOND));
        assert_eq!(clock.step_after(Boot(5)), Some(58 * SECOND));
        assert_eq!(clock.step_after(Boot(15)), Some(-2 * SECOND));
        assert_eq!(clock.step_after(Boot(20)), None);
    }

    #[test]
    fn steps_are_bounded() {
        let mut clock = WallClock::<8>::at(WallOffset(0));
        for step in 1..20 {
            clock.set(Boot(step), WallOffset(step as i64 * SECOND));
        }
        assert_eq!(clock.step_after(Boot(0)), Some(8 * SECOND));
    }
}
