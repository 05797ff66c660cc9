//! Counters of a watch's requests and interruptions.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::api_error::FailureReason;
use super::WatchEvent;
use super::machine::Reply;

/// Totals since the start.
#[derive(Debug, Default)]
pub struct WatchCounters {
    answered: AtomicU64,
    failed: [AtomicU64; FailureReason::ALL.len()],
    gaps: AtomicU64,
}

impl WatchCounters {
    /// Requests that were answered: pages of lists, and watches that began.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Requests that failed for this reason, including interrupted watches.
    pub fn failed(&self, reason: FailureReason) -> u64 {
        self.failed[reason as usize].load(Ordering::Relaxed)
    }

    pub fn failures(&self) -> u64 {
        FailureReason::ALL.map(|reason| self.failed(reason)).iter().sum()
    }

    /// Each `(watch, reason, count)`, without those that never failed.
    pub fn by_reason(&self, watch: &'static str) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        FailureReason::ALL.into_iter().filter_map(move |reason| {
            let count = self.failed(reason);
            (count > 0).then_some((watch, reason.name(), count))
        })
    }

    /// Finished interruptions.
    pub fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }

    pub(super) fn reply<T>(&self, reply: &Reply<T>) {
        if matches!(reply, Reply::Page { .. } | Reply::Opened) {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn event<T>(&self, event: &WatchEvent<T>) {
        match event {
            WatchEvent::Interrupted { error, .. } => {
                self.failed[error.reason() as usize].fetch_add(1, Ordering::Relaxed);
            }
            WatchEvent::Synced { gap: Some(_) } => {
                self.gaps.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}
