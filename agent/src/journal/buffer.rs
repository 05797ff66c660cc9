//! What the loop leaves for the journal's thread: frames, and the reports that wait for their sync.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use epitaph_core::input::Observation;
use epitaph_core::time::Boot;

use super::format::ReportId;
use super::held::Lost;
use super::reader::Place;
use super::stats::JournalStats;

/// Called once: when the report is synced, with its place, or without a place if the journal does not hold it.
pub(crate) type Deliver = Box<dyn FnOnce(Option<Place>) + Send>;

pub(super) struct Waiting {
    /// Running number of the report's first byte in all that was ever buffered, and the length of its frame. 0: the journal could not
    /// take the report, which waits for those before it.
    pub at: u64,
    pub length: usize,
    pub id: ReportId,
    pub since: Boot,
    pub deliver: Deliver,
}

#[derive(Default)]
pub(super) struct Buffer {
    pub frames: Vec<u8>,
    pub count: u64,
    /// Number of all bytes that were ever buffered.
    pub total: u64,
    pub waiting: VecDeque<Waiting>,
    /// When the first of the frames came.
    pub first: Option<Boot>,
    /// Delivered before they were synced: the end of each report, as `total` counts, and its id.
    pub early: VecDeque<(u64, ReportId)>,
    /// Since when frames were dropped that the journal does not know of.
    pub hole: Option<Boot>,
    /// Finished reports that no frame has.
    pub lost: Lost,
    /// Finished reports that are not in the journal: a later run must not report them again.
    pub untold: VecDeque<ReportId>,
    pub observation: Option<Observation>,
    pub flush: bool,
    pub closing: bool,
}

/// Most finished reports that are remembered for the journal while it cannot be written, and most that wait for a sync.
pub(super) const UNTOLD: usize = 4096;

impl Buffer {
    pub fn note(&mut self, id: ReportId) {
        if self.untold.len() >= UNTOLD {
            self.untold.pop_front();
        }
        self.untold.push_back(id);
    }

    pub fn lost_since(&mut self, since: Boot) {
        self.hole = Some(self.hole.map_or(since, |known| known.min(since)));
    }
}

#[derive(Default)]
pub(super) struct Shared {
    buffer: Mutex<Buffer>,
    pub wake: Condvar,
    /// Held by the thread that delivers: another one does not overtake it.
    delivering: Mutex<()>,
    pub in_progress: AtomicBool,
    pub stats: Arc<JournalStats>,
}

impl Shared {
    pub fn buffer(&self) -> MutexGuard<'_, Buffer> {
        // No code that holds the lock panics during a change.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no report waits, and none is being delivered.
    pub fn is_delivered(&self) -> bool {
        // A thread that delivers has the lock before it takes a report out.
        self.buffer().waiting.is_empty() && !matches!(self.delivering.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Delivers the first reports for which `is_it` holds, although their frames are not synced; returns how many.
    pub fn deliver_early(&self, is_it: impl Fn(&Waiting) -> bool) -> usize {
        self.deliver_noted(is_it, |_| None, true)
    }

    /// Delivers the first reports for which `is_it` holds.
    pub fn deliver(&self, is_it: impl Fn(&Waiting) -> bool, place: impl Fn(&Waiting) -> Option<Place>) {
        self.deliver_noted(is_it, place, false);
    }

    fn deliver_noted(&self, is_it: impl Fn(&Waiting) -> bool, place: impl Fn(&Waiting) -> Option<Place>, early: bool) -> usize {
        let _delivering = self.delivering.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = Vec::new();
        {
            let mut buffer = self.buffer();
            while let Some(first) = pop_if(&mut buffer.waiting, &is_it) {
                // Without a frame it is noted already.
                if early && first.length > 0 {
                    buffer.early.push_back((first.at + first.length as u64, first.id));
                }
                done.push(first);
            }
        }
        let count = done.len();
        for report in done {
            let place = place(&report);
            (report.deliver)(place);
        }
        count
    }
}

impl Waiting {
    /// Whether all bytes before `taken` include the report.
    pub fn is_within(&self, taken: u64) -> bool {
        self.at + self.length as u64 <= taken
    }
}

fn pop_if(waiting: &mut VecDeque<Waiting>, is_it: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
    if waiting.front().is_some_and(is_it) {
        waiting.pop_front()
    } else {
        None
    }
}
