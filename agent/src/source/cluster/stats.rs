//! What the watches could not do, counted for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::observe::Watch;

/// Totals since the start.
#[derive(Debug, Default)]
pub struct Stats {
    broken: [AtomicU64; Watch::ALL.len()],
    unreadable: AtomicU64,
}

impl Stats {
    /// Times that a watch, or its list, failed.
    pub fn breaks(&self, watch: Watch) -> u64 {
        self.broken[watch as usize].load(Ordering::Relaxed)
    }

    /// Objects without a name, a namespace or a UID.
    pub fn unreadables(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    pub(super) fn broken(&self, watch: Watch) {
        self.broken[watch as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unreadable(&self) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
    }
}
