//! Times: on the kernel's own clock and on the wall, as different types. No clock is read here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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
