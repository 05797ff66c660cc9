//! The only module that reads clocks.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use epitaph_core::time::{Boot, TickRate, Wall, WallOffset};
use nix::libc;
use nix::time::{ClockId, clock_getres, clock_gettime};

/// Number of brackets; the tightest counts, so that a preemption within one has no effect.
const BRACKETS: usize = 8;

/// Nanoseconds that [`now`] is ahead of `CLOCK_BOOTTIME`.
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// For a process that reads no kernel records: from now on its times reach 36 years behind the machine's boot, as the API's times do.
pub fn reach_behind_boot() {
    AHEAD.store(1 << 60, Ordering::Relaxed);
}

/// `CLOCK_BOOTTIME`, the clock of the kernel records.
pub fn now() -> Boot {
    Boot(read(ClockId::CLOCK_BOOTTIME) + AHEAD.load(Ordering::Relaxed))
}

/// `CLOCK_REALTIME` minus `CLOCK_BOOTTIME`, exact to about a microsecond. Changes with NTP steps: measure again regularly.
pub fn wall_offset() -> WallOffset {
    let brackets = (0..BRACKETS).map(|_| {
        let before = now();
        let wall = read(ClockId::CLOCK_REALTIME);
        (before, Wall(wall), now())
    });
    tightest(brackets)
}

/// Jiffies of the running kernel in a second: a coarse clock advances with each of them (`KTIME_LOW_RES` is `TICK_NSEC`). None if the clock
/// is not one of Linux.
pub fn ticks_per_second() -> Option<u32> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    rate_of(u64::try_from(tick.tv_nsec()).ok().filter(|_| tick.tv_sec() == 0)?)
}

fn rate_of(tick_ns: u64) -> Option<u32> {
    const SECOND: u64 = 1_000_000_000;
    let rate = SECOND.checked_add(tick_ns / 2)?.checked_div(tick_ns)?;
    u32::try_from(rate).ok().filter(|rate| TickRate::per_second(*rate).is_some())
}

/// Seconds by which this machine's local time (`TZ`, else /etc/localtime) is ahead of UTC at that time; 0 where it is not known.
#[expect(unsafe_code, reason = "no safe crate of ours reads the time zone")]
pub fn ahead_of_utc(at: Wall) -> i64 {
    let Ok(seconds) = libc::time_t::try_from(at.0 / 1_000_000_000) else {
        return 0;
    };
    let mut there = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid for the call, which keeps neither, and no thread of ours changes the environment. The call has
    // written the result if it does not return null.
    let there = unsafe {
        match libc::localtime_r(&raw const seconds, there.as_mut_ptr()).is_null() {
            true => return 0,
            false => there.assume_init(),
        }
    };
    there.tm_gmtoff
}

/// The offset of the bracket with the closest two boot times, with the wall time in its middle.
fn tightest(brackets: impl Iterator<Item = (Boot, Wall, Boot)>) -> WallOffset {
    let best = brackets.min_by_key(|(before, _, after)| after.since(*before));
    best.map_or(WallOffset(0), |(before, wall, after)| {
        let middle = before.0 + (after.0.saturating_sub(before.0)) / 2;
        WallOffset(i64::try_from(i128::from(wall.0) - i128::from(middle)).unwrap_or(0))
    })
}

fn read(clock: ClockId) -> u64 {
    // Both clocks exist on every kernel that has BPF; the call has no other way to fail.
    let time = clock_gettime(clock).expect("CLOCK_BOOTTIME and CLOCK_REALTIME are readable");
    // A wall clock before 1970 counts as 1970.
    u64::try_from(i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_goes_forward() {
        let before = now();
        assert!(before.0 > 0 && now() >= before);
    }

    #[test]
    fn offset_maps_boot_to_wall() {
        let (offset, boot) = (wall_offset(), now());
        let wall = read(ClockId::CLOCK_REALTIME);
        // Checks only that the two clocks are not swapped: boot times are days, wall times are decades.
        let away = wall.abs_diff(offset.wall(boot).0);
        assert!(away < 3_600_000_000_000, "{away} ns");
    }

    #[test]
    fn the_kernels_hz_is_known() {
        // CONFIG_HZ of 100, 250, 300 and 1000; a clock in nanoseconds is not one of Linux.
        assert_eq!(
            [10_000_000, 4_000_000, 3_333_333, 1_000_000, 1, 0].map(rate_of),
            [Some(100), Some(250), Some(300), Some(1000), None, None]
        );
        let rate = ticks_per_second().expect("this is Linux");
        assert!([100, 250, 300, 1000].contains(&rate), "{rate}");
    }

    #[test]
    fn tightest_bracket_counts() {
        let preempted = (Boot(100), Wall(1_000_000), Boot(900_100));
        let tight = (Boot(900_200), Wall(1_900_250), Boot(900_300));
        assert_eq!(tightest([preempted, tight].into_iter()), WallOffset(1_000_000));
        // The machine booted with its clock in the past: the offset is negative.
        assert_eq!(tightest([(Boot(500), Wall(100), Boot(500))].into_iter()), WallOffset(-400));
        assert_eq!(tightest(std::iter::empty()), WallOffset(0));
    }
}
