//! The two ends of the journal that others hold: of the loop, which waits for nothing, and of the thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use epitaph_core::input::{Input, Observation};
use epitaph_core::time::Boot;

use super::buffer::{Buffer, Deliver, Shared, UNTOLD, Waiting};
use super::format::{Finished, RESOURCE, ReportId, append, append_answered, append_answered_in_part, append_resource};
use super::stats::{JournalDropReason, JournalStats, Troubled};
use super::store::Store;
use super::worker::{self, SLOW};
use crate::recording::frames::stamp;
use crate::recording::{TAG_INPUT, TAG_KERNEL, WriteError, input_json};

/// Most bytes that wait for the thread. A storm of records for as long as a slow disk's sync takes.
const BUFFER: usize = 4 << 20;

/// The loop's end of the journal. Nothing here waits for the disk. Cheap to clone.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

/// The writing side.
pub struct JournalThread {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl JournalThread {
    /// Has all frames synced, and the reports delivered, within `limit`.
    pub fn flush(&self, limit: Duration) {
        self.shared.buffer().flush = true;
        self.shared.wake.notify_one();
        let mut waited = Duration::ZERO;
        while waited < limit && !self.shared.is_delivered() {
            std::thread::sleep(POLL);
            waited += POLL;
        }
    }

    /// Writes and syncs what is left, for `limit` at most.
    pub fn close(self, limit: Duration) {
        self.shared.buffer().closing = true;
        self.shared.wake.notify_one();
        let mut waited = Duration::ZERO;
        while !self.thread.is_finished() && waited < limit {
            std::thread::sleep(POLL);
            waited += POLL;
        }
        if self.thread.is_finished() {
            let _ = self.thread.join();
        } else {
            tracing::warn!("shut down before the journal was written: the disk does not answer");
        }
    }
}

impl Journal {
    pub(super) fn start(store: Store, error: Option<&io::Error>) -> io::Result<(Journal, JournalThread)> {
        let shared = Arc::<Shared>::default();
        shared.stats.oldest.store(store.oldest(), Ordering::Relaxed);
        let thread = worker::start(shared.clone(), store, error)?;
        Ok((Journal::of(shared.clone()), JournalThread { shared, thread }))
    }

    pub(super) fn of(shared: Arc<Shared>) -> Journal {
        Journal { shared }
    }

    pub fn stats(&self) -> Arc<JournalStats> {
        self.shared.stats.clone()
    }

    /// A kernel record, as the ring buffer gave it.
    pub fn record(&self, now: Boot, record: &[u8]) {
        self.add(now, |out| append(out, &stamp(now, TAG_KERNEL), &[record]));
    }

    /// Any other input.
    pub fn input(&self, now: Boot, input: &Input) {
        let json = input_json(input);
        self.add(now, |out| append(out, &stamp(now, TAG_INPUT), &[&json?]));
    }

    /// A finished report. `deliver` is called from the journal's thread once the report is synced; without a place if the journal
    /// cannot take the report. The reports are delivered in their order.
    pub(crate) fn report(&self, now: Boot, report: &Finished<'_>, deliver: Deliver) {
        let mut buffer = self.shared.buffer();
        let mut waiting = Waiting {
            at: buffer.total,
            length: 0,
            id: report.id,
            since: now,
            deliver,
        };
        let begin = buffer.frames.len();
        if self.fits(&mut buffer, now) {
            match report.append(&mut buffer.frames, now) {
                Ok(()) => {
                    waiting.length = buffer.frames.len() - begin;
                    buffer.first.get_or_insert(now);
                    buffer.count += 1;
                    buffer.total += waiting.length as u64;
                }
                Err(_) => self.shared.stats.count_dropped(JournalDropReason::TooLong, 1),
            }
        }
        if waiting.length == 0 {
            buffer.note(report.id);
            buffer.lost.add(report.wall);
        }
        buffer.waiting.push_back(waiting);
        // Nothing to wait for, or too much.
        let at_once = buffer.waiting.front().is_none_or(|first| first.length == 0) || buffer.waiting.len() > UNTOLD;
        drop(buffer);
        self.shared.wake.notify_one();
        if at_once {
            self.shared.deliver_early(|_| true);
        }
    }

    /// The collector accepted or refused these.
    pub fn answered(&self, now: Boot, ids: &[ReportId]) {
        self.add(now, |out| append_answered(out, now, ids));
    }

    /// As [`Journal::answered`], for some of the signals that these are sent as.
    pub fn answered_in_part(&self, now: Boot, signals: u8, ids: &[ReportId]) {
        self.add(now, |out| append_answered_in_part(out, now, signals, ids));
    }

    /// A custom resource that the API server has to get: kept until [`Journal::resource_answered`].
    pub fn resource(&self, now: Boot, id: ReportId, resource: &[u8]) {
        self.add(now, |out| append_resource(out, now, id, resource));
    }

    /// The API server has it, or will never have it.
    pub fn resource_answered(&self, now: Boot, id: ReportId) {
        self.answered_in_part(now, RESOURCE, &[id]);
    }

    /// Whether that segment was not removed.
    pub(super) fn has(&self, segment: u64) -> bool {
        self.shared.stats.has(segment)
    }

    /// Whether a termination is in progress: then syncs are soon.
    pub fn in_progress(&self, is: bool) {
        self.shared.in_progress.store(is, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn is_in_progress(&self) -> bool {
        self.shared.in_progress.load(Ordering::Relaxed)
    }

    /// Has what is written so far synced soon.
    pub fn sync(&self) {
        self.shared.buffer().flush = true;
        self.shared.wake.notify_one();
    }

    /// Of the segments to come.
    pub fn observation(&self, observation: &Observation) {
        self.shared.buffer().observation = Some(observation.clone());
    }

    /// Whether the thread keeps up.
    pub fn has_room(&self) -> bool {
        self.shared.buffer().frames.len() < BUFFER / 2
    }

    /// Time passed: delivers the reports that wait for a disk that does not answer.
    pub fn tick(&self, now: Boot) {
        // Their frames are still written, if the disk answers again.
        let late = self.shared.deliver_early(|first| now.since(first.since) > SLOW);
        // Nobody takes them.
        let is_stuck = self.shared.buffer().first.is_some_and(|first| now.since(first) > SLOW);
        if late > 0 || is_stuck {
            // The thread is within a call of the disk: it reports the recovery when it is back.
            let slow = || Troubled::slow(format!("the disk did not answer for {} s", SLOW.as_secs()));
            self.shared.stats.trouble_lock().get_or_insert_with(slow);
        }
    }

    fn add(&self, now: Boot, frame: impl FnOnce(&mut Vec<u8>) -> Result<(), WriteError>) {
        let mut buffer = self.shared.buffer();
        if !self.fits(&mut buffer, now) {
            return;
        }
        let begin = buffer.frames.len();
        if frame(&mut buffer.frames).is_ok() {
            buffer.count += 1;
            buffer.first.get_or_insert(now);
            buffer.total += (buffer.frames.len() - begin) as u64;
        } else {
            self.shared.stats.count_dropped(JournalDropReason::TooLong, 1);
            buffer.hole.get_or_insert(now);
        }
        drop(buffer);
        self.shared.wake.notify_one();
    }

    fn fits(&self, buffer: &mut Buffer, now: Boot) -> bool {
        let fits = buffer.frames.len() < BUFFER;
        if !fits {
            buffer.hole.get_or_insert(now);
            self.shared.stats.count_dropped(JournalDropReason::QueueFull, 1);
        }
        fits
    }
}

/// How often [`JournalThread::close`] looks.
const POLL: Duration = Duration::from_millis(5);
