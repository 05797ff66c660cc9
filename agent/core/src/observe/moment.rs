//! When a change was observed.

use std::time::Duration;

use crate::time::Boot;

/// When a change was observed, on this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub at: Boot,
    /// The watch was interrupted before: the change may be earlier by up to this.
    pub gap: Option<Duration>,
}

impl Moment {
    pub(super) const fn exact(at: Boot) -> Moment {
        Moment { at, gap: None }
    }

    pub(super) fn earliest(self) -> Boot {
        self.at.minus(self.gap.unwrap_or_default())
    }
}
