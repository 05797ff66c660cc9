//! Failures of the observer's watches, counted for `/metrics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use epitaph_core::observe::Watch;

use crate::source::api_error::FailureReason;
use crate::source::watch::WatchCounters;

/// Totals since the start.
#[derive(Debug, Default)]
pub struct ClusterCounters {
    watches: [Arc<WatchCounters>; Watch::ALL.len()],
    incomplete: AtomicU64,
    unasked: AtomicU64,
}

impl ClusterCounters {
    /// Lists and watches that failed.
    pub fn breaks(&self, watch: Watch) -> u64 {
        self.watches[watch as usize].failures()
    }

    /// Each `(watch, reason, count)` of lists and watches that failed, without those that never failed.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        Watch::ALL
            .into_iter()
            .flat_map(|watch| self.watches[watch as usize].by_reason(watch.name()))
    }

    /// Objects that cannot be decoded, or have no name, namespace or UID.
    pub fn unreadable(&self) -> u64 {
        let undecodable = |watch: &Arc<WatchCounters>| watch.failed(FailureReason::Undecodable);
        self.incomplete.load(Ordering::Relaxed) + self.watches.iter().map(undecodable).sum::<u64>()
    }

    /// Questions about lost nodes that were dropped, because too many waited.
    pub fn questions_dropped(&self) -> u64 {
        self.unasked.load(Ordering::Relaxed)
    }

    pub(super) fn unasked(&self) {
        self.unasked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn watch(&self, watch: Watch) -> Arc<WatchCounters> {
        self.watches[watch as usize].clone()
    }

    pub(super) fn incomplete(&self) {
        self.incomplete.fetch_add(1, Ordering::Relaxed);
    }
}
