//! The thread that writes: it appends what the loop left in the buffer, and syncs for all of it together.
//!
//! A report is delivered (to the exporter) once it is synced. If the disk is slow, full, read-only or failing, the journal is memory
//! only: reports are delivered at once, evidence is dropped and counted, and a new segment is tried regularly.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use epitaph_core::input::{Input, Observation};
use epitaph_core::time::Boot;

use super::format::{Finished, ReportId, append_answered};
use super::reader::Place;
use super::stats::{JournalDropReason, JournalStats, Trouble, Troubled};
use super::store::{Part, Store};
use crate::clock;
use crate::recording::frames::{PREFIX, append, stamp};
use crate::recording::{TAG_INPUT, TAG_KERNEL, WriteError, input_json};

/// Time from the first write to the sync, at most: while a termination is in progress, and else.
const SYNC_BUSY: Duration = Duration::from_millis(90);
const SYNC_IDLE: Duration = Duration::from_secs(1);
/// Between two attempts to write after an error.
const RETRY: Duration = Duration::from_secs(5);
/// A sync that takes longer is trouble; a report that waits longer is delivered without it.
const SLOW: Duration = Duration::from_secs(2);
/// Most bytes that wait for the thread. A storm of records for as long as a slow disk's sync takes.
const BUFFER: usize = 4 << 20;

/// Called once: when the report is synced, with its place, or without a place if the journal does not hold it.
pub(crate) type Deliver = Box<dyn FnOnce(Option<Place>) + Send>;

struct Waiting {
    /// Running number of the report's first byte in all that was ever buffered, and the length of its frame. 0: the journal could not
    /// take the report, which waits for those before it.
    at: u64,
    length: usize,
    id: ReportId,
    since: Boot,
    deliver: Deliver,
}

#[derive(Default)]
struct Buffer {
    frames: Vec<u8>,
    count: u64,
    /// Number of all bytes that were ever buffered.
    total: u64,
    waiting: VecDeque<Waiting>,
    /// When the first of the frames came.
    first: Option<Boot>,
    /// Delivered before they were synced: the end of each report, as `total` counts, and its id.
    early: VecDeque<(u64, ReportId)>,
    /// Since when frames were dropped that the journal does not know of.
    hole: Option<Boot>,
    /// Finished reports that are not in the journal: a later run must not report them again.
    untold: VecDeque<ReportId>,
    observation: Option<Observation>,
    flush: bool,
    closing: bool,
}

/// Most finished reports that are remembered for the journal while it cannot be written, and most that wait for a sync.
const UNTOLD: usize = 4096;

impl Buffer {
    fn note(&mut self, id: ReportId) {
        if self.untold.len() >= UNTOLD {
            self.untold.pop_front();
        }
        self.untold.push_back(id);
    }

    fn lost_since(&mut self, since: Boot) {
        self.hole = Some(self.hole.map_or(since, |known| known.min(since)));
    }
}

#[derive(Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    wake: Condvar,
    /// Held by the thread that delivers: another one does not overtake it.
    delivering: Mutex<()>,
    in_progress: AtomicBool,
    stats: Arc<JournalStats>,
}

impl Shared {
    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        // No code that holds the lock panics during a change.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the first reports for which `is_it` holds, although their frames are not synced; returns how many.
    fn deliver_early(&self, is_it: impl Fn(&Waiting) -> bool) -> usize {
        self.deliver_noted(is_it, |_| None, true)
    }

    /// Delivers the first reports for which `is_it` holds.
    fn deliver(&self, is_it: impl Fn(&Waiting) -> bool, place: impl Fn(&Waiting) -> Option<Place>) {
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
    fn is_within(&self, taken: u64) -> bool {
        self.at + self.length as u64 <= taken
    }
}

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
        while waited < limit && !self.shared.buffer().waiting.is_empty() {
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
        let mut worker = Worker {
            shared: shared.clone(),
            store,
            trouble: None,
            sync_by: None,
            retry_at: Boot(0),
            written: 0,
            unsynced: None,
            unsynced_untold: VecDeque::new(),
            parts: VecDeque::new(),
        };
        if let Some(error) = error {
            worker.enter(Troubled::of(error));
        }
        let thread = std::thread::Builder::new().name("journal".to_owned());
        let thread = thread.spawn(move || worker.run())?;
        let journal = Journal { shared: shared.clone() };
        Ok((journal, JournalThread { shared, thread }))
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

    /// Whether that segment was not removed.
    pub(super) fn has(&self, segment: u64) -> bool {
        self.shared.stats.has(segment)
    }

    /// Whether a termination is in progress: then syncs are soon.
    pub fn in_progress(&self, is: bool) {
        self.shared.in_progress.store(is, Ordering::Relaxed);
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

    /// Time passed: delivers the reports that wait for a disk that does not answer.
    pub fn tick(&self, now: Boot) {
        // Their frames are still written, if the disk answers again.
        let late = self.shared.deliver_early(|first| now.since(first.since) > SLOW);
        if late > 0 {
            // The thread is within a call of the disk: it reports the recovery when it is back.
            *self.shared.stats.trouble_lock() =
                Some(Troubled::slow(format!("the disk did not answer for {} s", SLOW.as_secs())));
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

/// Taken from the buffer.
struct Taken {
    /// Number of frames.
    count: u64,
    /// When the first of them came.
    first: Option<Boot>,
    hole: Option<Boot>,
    untold: VecDeque<ReportId>,
    flush: bool,
    closing: bool,
}

struct Worker {
    shared: Arc<Shared>,
    store: Store,
    trouble: Option<Troubled>,
    /// When the frames that are written must be synced.
    sync_by: Option<Boot>,
    retry_at: Boot,
    /// Number of all bytes that were taken from the buffer.
    written: u64,
    /// When the first of the frames came that are not synced.
    unsynced: Option<Boot>,
    /// Written as finished, and not synced.
    unsynced_untold: VecDeque<ReportId>,
    /// Where the written bytes are, by their running number; back to the first report that waits.
    parts: VecDeque<(u64, u64, u64)>,
}

impl Worker {
    fn run(&mut self) {
        let mut frames = Vec::new();
        loop {
            frames.clear();
            let taken = self.take(&mut frames);
            let (closing, flush) = (taken.closing, taken.flush);
            self.write(&frames, taken);
            let now = clock::now();
            if closing || flush || self.sync_by.is_some_and(|by| by <= now) {
                self.sync(now);
            }
            if closing && self.shared.buffer().frames.is_empty() {
                if let Err(error) = self.store.seal() {
                    self.fail(&error);
                }
                return;
            }
        }
    }

    /// Waits for frames, for the time of the next sync, or for the next attempt.
    fn take(&mut self, frames: &mut Vec<u8>) -> Taken {
        let shared = self.shared.clone();
        let mut buffer = shared.buffer();
        while buffer.frames.is_empty() && !buffer.closing && !buffer.flush {
            let now = clock::now();
            let until = if self.is_down() { Some(self.retry_at) } else { self.sync_by };
            buffer = match until {
                Some(until) if until <= now => break,
                Some(until) => {
                    let (buffer, _) =
                        (shared.wake.wait_timeout(buffer, until.since(now))).unwrap_or_else(PoisonError::into_inner);
                    buffer
                }
                None => shared.wake.wait(buffer).unwrap_or_else(PoisonError::into_inner),
            };
        }
        std::mem::swap(frames, &mut buffer.frames);
        if let Some(observation) = buffer.observation.take() {
            self.store.header().observation = observation;
        }
        // Kept until there is a segment to note it in.
        let (hole, untold) = match self.is_down() {
            true => (None, VecDeque::new()),
            false => (buffer.hole.take(), std::mem::take(&mut buffer.untold)),
        };
        Taken {
            count: std::mem::take(&mut buffer.count),
            first: buffer.first.take(),
            hole,
            untold,
            flush: std::mem::take(&mut buffer.flush),
            closing: buffer.closing,
        }
    }

    fn write(&mut self, frames: &[u8], taken: Taken) {
        let (count, mut hole, mut untold) = (taken.count, taken.hole, taken.untold);
        let from = self.written;
        self.written += frames.len() as u64;
        self.unsynced = self.unsynced.or(taken.first);
        let was_down = self.is_down();
        if was_down {
            if !self.retry() {
                return self.refuse(count);
            }
            let mut buffer = self.shared.buffer();
            (hole, untold) = (buffer.hole.take(), std::mem::take(&mut buffer.untold));
        }
        if frames.is_empty() && hole.is_none() && untold.is_empty() {
            return;
        }
        let mut now = clock::now();
        self.unsynced = self.unsynced.or(hole);
        let missing = match hole.is_some() || !untold.is_empty() {
            // Time does not go back in a segment.
            true if was_down => missing(taken.first.unwrap_or(now), hole, &untold),
            true => missing(now, hole, &untold),
            false => Vec::new(),
        };
        self.unsynced_untold.extend(untold);
        // What was lost while the disk was in trouble was before the frames, what the buffer could not take was after them.
        let (before, after) = if was_down {
            (missing, Vec::new())
        } else {
            (Vec::new(), missing)
        };
        let written = (self.store.append(&before))
            .and_then(|_| self.store.append(frames))
            .and_then(|parts| self.store.append(&after).map(|_| parts));
        match written {
            Ok(parts) => {
                let stats = &self.shared.stats;
                stats.frames.fetch_add(count, Ordering::Relaxed);
                stats.bytes.fetch_add(frames.len() as u64, Ordering::Relaxed);
                let place = |part: Part| (from + part.from as u64, part.segment, part.offset);
                self.parts.extend(parts.into_iter().map(place));
                self.publish();
                now = clock::now();
                let wait = match self.shared.in_progress.load(Ordering::Relaxed) {
                    true => SYNC_BUSY,
                    false => SYNC_IDLE,
                };
                let by = now.plus(wait);
                self.sync_by = Some(self.sync_by.map_or(by, |known| known.min(by)));
            }
            Err(error) => {
                self.fail(&error);
                self.refuse(count);
            }
        }
    }

    fn sync(&mut self, now: Boot) {
        if self.sync_by.take().is_none() {
            return;
        }
        if let Err(error) = self.store.sync() {
            return self.fail(&error);
        }
        self.shared.stats.syncs.fetch_add(1, Ordering::Relaxed);
        let took = clock::now().since(now);
        match (took > SLOW, self.trouble_kind()) {
            (true, None) => self.enter(Troubled::slow(format!("a sync took {:.1} s", took.as_secs_f64()))),
            (false, Some(Trouble::Slow)) => self.leave(),
            // Also where the loop has noted that the disk does not answer.
            (false, None) => self.publish_trouble(),
            _ => {}
        }
        let synced = self.written;
        self.unsynced = None;
        self.unsynced_untold.clear();
        self.shared.buffer().early.retain(|(end, _)| *end > synced);
        let place = |report: &Waiting| {
            let part = self.parts.iter().rev().find(|(from, ..)| *from <= report.at);
            part.filter(|_| report.length > 0).map(|(from, segment, offset)| Place {
                segment: *segment,
                offset: offset + (report.at - from),
                length: report.length - PREFIX,
            })
        };
        self.shared.deliver(|first| first.is_within(synced), place);
        self.parts.clear();
    }

    /// The journal does not hold these frames: their reports are delivered without a place.
    fn refuse(&mut self, count: u64) {
        if count > 0 {
            self.shared.stats.count_dropped(JournalDropReason::Disk, count);
        }
        let taken = self.written;
        {
            let mut buffer = self.shared.buffer();
            if let Some(since) = self.unsynced.take() {
                buffer.lost_since(since);
            }
            while buffer.early.front().is_some_and(|(end, _)| *end <= taken)
                && let Some((_, id)) = buffer.early.pop_front()
            {
                buffer.note(id);
            }
            self.unsynced_untold.drain(..).for_each(|id| buffer.note(id));
            let refused = buffer.waiting.iter().take_while(|first| first.is_within(taken));
            let refused: Vec<ReportId> = refused.map(|first| first.id).collect();
            refused.into_iter().for_each(|id| buffer.note(id));
        }
        self.shared.deliver(|first| first.is_within(taken), |_| None);
    }

    fn is_down(&self) -> bool {
        self.trouble_kind().is_some_and(|trouble| trouble != Trouble::Slow)
    }

    fn trouble_kind(&self) -> Option<Trouble> {
        self.trouble.as_ref().map(|trouble| trouble.kind)
    }

    /// Tries a new segment; true if the journal works again.
    fn retry(&mut self) -> bool {
        let now = clock::now();
        if now < self.retry_at {
            return false;
        }
        match self.store.begin() {
            Ok(_) => {
                self.leave();
                true
            }
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }

    /// What was written since the last sync may be lost: its reports are delivered without a place.
    fn fail(&mut self, error: &io::Error) {
        self.sync_by = None;
        self.parts.clear();
        self.retry_at = clock::now().plus(RETRY);
        self.enter(Troubled::of(error));
        self.refuse(0);
        self.publish();
    }

    fn enter(&mut self, trouble: Troubled) {
        if self.trouble_kind() != Some(trouble.kind) {
            let (what, loses) = match trouble.kind {
                Trouble::Slow => ("the disk of the journal is slow", "what the disk has not confirmed"),
                _ => ("the journal is in memory only", "what is not delivered"),
            };
            tracing::warn!(
                reason = trouble.kind.name(),
                remedy = &*trouble.remedy,
                "{what}: {}; a crash loses {loses}",
                trouble.error
            );
        }
        self.trouble = Some(trouble);
        self.publish_trouble();
    }

    fn leave(&mut self) {
        match self.trouble.take().map(|trouble| trouble.kind) {
            Some(Trouble::Slow) => tracing::info!("the disk of the journal is fast enough again"),
            Some(_) => tracing::info!("the journal is written again"),
            None => {}
        }
        self.publish_trouble();
    }

    fn publish_trouble(&self) {
        self.shared.stats.trouble_lock().clone_from(&self.trouble);
    }

    fn publish(&self) {
        let stats = &self.shared.stats;
        stats.oldest.store(self.store.oldest(), Ordering::Relaxed);
        stats.removed_segments.store(self.store.removed, Ordering::Relaxed);
        stats.size.store(self.store.bytes(), Ordering::Relaxed);
    }
}

/// Evidence since `hole` may be missing, of any kind, of any subject; and these reports are finished, and not in the journal.
fn missing(now: Boot, hole: Option<Boot>, untold: &VecDeque<ReportId>) -> Vec<u8> {
    let mut out = Vec::new();
    for lost in hole.into_iter().flat_map(Input::all_lost_by_machine) {
        if let Ok(json) = input_json(&lost) {
            // A few words: never longer than a frame.
            let _ = append(&mut out, &stamp(now, TAG_INPUT), &[&json]);
        }
    }
    if !untold.is_empty() {
        let _ = append_answered(&mut out, now, &Vec::from_iter(untold.iter().copied()));
    }
    out
}

fn pop_if(waiting: &mut VecDeque<Waiting>, is_it: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
    if waiting.front().is_some_and(is_it) {
        waiting.pop_front()
    } else {
        None
    }
}
