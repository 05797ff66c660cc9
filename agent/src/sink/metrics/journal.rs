//! The journal's counters, read at every collection.

use std::sync::Arc;

use opentelemetry::KeyValue;

use super::Metrics;
use super::table::{JOURNAL_BYTES, JOURNAL_DROPPED, JOURNAL_REMOVED, JOURNAL_STATE, JOURNAL_SYNCS, JOURNAL_WRITTEN, Row};
use crate::journal::{JournalDropReason, JournalStats, Trouble};

/// Name of the state without trouble.
const WRITTEN: &str = "written";

/// Name of the state without a directory, also on `/readyz`.
pub const NOT_CONFIGURED: &str = "not_configured";

impl Metrics {
    pub fn follow_journal(&self, stats: &Arc<JournalStats>) {
        let state = stats.clone();
        self.journal_state(move || state.trouble().map_or(WRITTEN, Trouble::name));
        let size = stats.clone();
        self.meter
            .u64_observable_gauge(JOURNAL_BYTES.name)
            .with_unit(JOURNAL_BYTES.unit)
            .with_description(JOURNAL_BYTES.about)
            .with_callback(move |observer| observer.observe(size.size(), &[]))
            .build();
        self.count(JOURNAL_WRITTEN, stats, JournalStats::bytes);
        self.count(JOURNAL_SYNCS, stats, JournalStats::syncs);
        self.count(JOURNAL_REMOVED, stats, JournalStats::removed_segments);
        let dropped = stats.clone();
        self.meter
            .u64_observable_counter(JOURNAL_DROPPED.name)
            .with_unit(JOURNAL_DROPPED.unit)
            .with_description(JOURNAL_DROPPED.about)
            .with_callback(move |observer| {
                for reason in JournalDropReason::ALL {
                    observer.observe(dropped.dropped(reason), &[KeyValue::new("reason", reason.name())]);
                }
            })
            .build();
    }

    /// An agent without a directory for its journal.
    pub fn no_journal(&self) {
        self.journal_state(|| NOT_CONFIGURED);
    }

    fn journal_state(&self, state: impl Fn() -> &'static str + Send + Sync + 'static) {
        self.meter
            .u64_observable_gauge(JOURNAL_STATE.name)
            .with_unit(JOURNAL_STATE.unit)
            .with_description(JOURNAL_STATE.about)
            .with_callback(move |observer| {
                let now = state();
                let all = [WRITTEN, NOT_CONFIGURED].into_iter().chain(Trouble::ALL.map(Trouble::name));
                for name in all {
                    observer.observe(u64::from(name == now), &[KeyValue::new("state", name)]);
                }
            })
            .build();
    }

    fn count(&self, row: Row, stats: &Arc<JournalStats>, read: fn(&JournalStats) -> u64) {
        let stats = stats.clone();
        self.meter
            .u64_observable_counter(row.name)
            .with_unit(row.unit)
            .with_description(row.about)
            .with_callback(move |observer| observer.observe(read(&stats), &[]))
            .build();
    }
}
