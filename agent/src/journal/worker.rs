//! The thread that writes: it appends what the loop left in the buffer, and syncs for all of it together.
//!
//! A report is delivered (to the exporter) once it is synced. If the disk is slow, full, read-only or failing, the journal is memory
//! only: reports are delivered at once and held in memory, evidence is dropped and counted, and a new segment is tried regularly.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use epitaph_core::input::Input;
use epitaph_core::time::Boot;

use super::buffer::{Shared, Waiting};
use super::format::{ReportId, append, append_answered};
use super::held::{Held, Lost};
use super::reader::Place;
use super::stats::{JournalDropReason, Trouble, Troubled};
use super::store::{Part, Store};
use crate::clock;
use crate::recording::frames::{PREFIX, stamp};
use crate::recording::{TAG_INPUT, input_json};

/// Time from the first write to the sync, at most: while a termination is in progress, and else.
const SYNC_BUSY: Duration = Duration::from_millis(90);
const SYNC_IDLE: Duration = Duration::from_secs(1);
/// Between two attempts to write after an error.
const RETRY: Duration = Duration::from_secs(5);
/// A sync that takes longer is trouble; a report that waits longer is delivered without it.
pub(super) const SLOW: Duration = Duration::from_secs(2);

/// Starts the thread. `error`: why the directory could not be opened.
pub(super) fn start(shared: Arc<Shared>, store: Store, error: Option<&io::Error>) -> io::Result<JoinHandle<()>> {
    let mut worker = Worker::new(shared, store);
    if let Some(error) = error {
        worker.enter(Troubled::of(error));
    }
    let thread = std::thread::Builder::new().name("journal".to_owned());
    thread.spawn(move || worker.run())
}

/// Taken from the buffer.
struct Taken {
    /// Number of frames.
    count: u64,
    /// When the first of them came.
    first: Option<Boot>,
    hole: Option<Boot>,
    untold: VecDeque<ReportId>,
    lost: Lost,
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
    /// How many of them are evidence.
    unsynced_count: u64,
    /// Written as finished, and not synced.
    unsynced_untold: VecDeque<ReportId>,
    /// Finished reports that are not synced: written again after an error.
    held: Held,
    /// Where the written bytes are, by their running number; back to the first report that waits.
    parts: VecDeque<(u64, u64, u64)>,
}

impl Worker {
    fn new(shared: Arc<Shared>, store: Store) -> Worker {
        Worker {
            shared,
            store,
            trouble: None,
            sync_by: None,
            retry_at: Boot(0),
            written: 0,
            unsynced: None,
            unsynced_count: 0,
            unsynced_untold: VecDeque::new(),
            held: Held::default(),
            parts: VecDeque::new(),
        }
    }

    fn run(&mut self) {
        let mut frames = Vec::new();
        loop {
            frames.clear();
            let taken = self.take(&mut frames);
            let (closing, flush) = (taken.closing, taken.flush);
            self.write(&mut frames, taken);
            let now = clock::now();
            if closing || flush || self.sync_by.is_some_and(|by| by <= now) {
                self.sync(now);
            }
            if closing && self.shared.buffer().frames.is_empty() {
                if let Err(error) = self.store.seal() {
                    self.fail(&error);
                }
                let reports = self.held.count();
                if reports > 0 {
                    tracing::warn!(
                        reports,
                        "finished reports are lost when this agent ends: the journal is in memory only"
                    );
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
            lost: std::mem::take(&mut buffer.lost),
            flush: std::mem::take(&mut buffer.flush),
            closing: buffer.closing,
        }
    }

    fn write(&mut self, frames: &mut [u8], taken: Taken) {
        let (count, mut hole, mut untold) = (taken.count, taken.hole, taken.untold);
        let from = self.written;
        self.written += frames.len() as u64;
        self.unsynced = self.unsynced.or(taken.first);
        self.held.lose(&taken.lost);
        let was_down = self.is_down();
        if was_down {
            if !self.retry(taken.closing) {
                let reports = self.held.keep(frames);
                return self.refuse(count - reports);
            }
            let mut buffer = self.shared.buffer();
            (hole, untold) = (buffer.hole.take(), std::mem::take(&mut buffer.untold));
        }
        let mut now = clock::now();
        self.unsynced = self.unsynced.into_iter().chain(hole).min();
        // Time does not go back in a segment.
        let at = if was_down { taken.first.unwrap_or(now) } else { now };
        let mut missing = missing(at, hole, &untold);
        self.unsynced_untold.extend(untold);
        if was_down {
            self.held.append_to(&mut missing, at);
        }
        self.held.append_lost_to(&mut missing, at);
        if frames.is_empty() && missing.is_empty() {
            return;
        }
        let reports = self.held.keep(frames);
        // What was lost while the disk was in trouble was before the frames, what the buffer could not take was after them.
        let (mut before, mut after) = if was_down {
            (missing, Vec::new())
        } else {
            (Vec::new(), missing)
        };
        let written = (self.store.append(&mut before))
            .and_then(|_| self.store.append(frames))
            .and_then(|parts| self.store.append(&mut after).map(|_| parts));
        match written {
            Ok(parts) => {
                let stats = &self.shared.stats;
                stats.frames.fetch_add(count, Ordering::Relaxed);
                self.unsynced_count += count - reports;
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
                self.refuse(count - reports);
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
        self.unsynced_count = 0;
        self.unsynced_untold.clear();
        self.held.synced();
        self.shared.buffer().early.retain(|(end, _)| *end > synced);
        let place = |report: &Waiting| {
            let part = self.parts.iter().rev().find(|(from, ..)| *from <= report.at);
            part.filter(|_| report.length > 0).map(|(from, segment, offset)| Place {
                segment: *segment,
                offset: offset + (report.at - from),
                length: report.length - PREFIX,
                is_numbered: true,
            })
        };
        self.shared.deliver(|first| first.is_within(synced), place);
        self.parts.clear();
    }

    /// The journal does not hold the frames so far: their reports are delivered without a place. `count`: how many of the frames were
    /// evidence.
    fn refuse(&mut self, count: u64) {
        let lost = self.held.refused(self.trouble_kind());
        for (reason, count) in [(JournalDropReason::Disk, count), (JournalDropReason::Report, lost)] {
            if count > 0 {
                self.shared.stats.count_dropped(reason, count);
            }
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
        self.trouble_kind().is_some_and(Trouble::is_memory_only)
    }

    fn trouble_kind(&self) -> Option<Trouble> {
        self.trouble.as_ref().map(|trouble| trouble.kind)
    }

    /// Tries a new segment, at the end in any case: what is finished and not there, the next run would report again. True if the journal
    /// works again.
    fn retry(&mut self, at_once: bool) -> bool {
        let now = clock::now();
        if now < self.retry_at && !at_once {
            return false;
        }
        match self.store.begin_anew() {
            Ok(()) => {
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
        let unsynced = std::mem::take(&mut self.unsynced_count);
        self.sync_by = None;
        self.parts.clear();
        self.retry_at = clock::now().plus(RETRY);
        self.enter(Troubled::of(error));
        self.refuse(unsynced);
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
    for lost in hole.into_iter().flat_map(Input::part_missing) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::handle::Journal;
    use crate::journal::trouble::{Faulty, store};

    /// Both ends without the thread: the test is the thread, and waits for nothing.
    fn by_hand(disk: &Faulty) -> (Journal, Worker) {
        let shared = Arc::<Shared>::default();
        (Journal::of(shared.clone()), Worker::new(shared, store(disk)))
    }

    fn take_and_write(worker: &mut Worker) {
        let mut frames = Vec::new();
        let taken = worker.take(&mut frames);
        worker.write(&mut frames, taken);
    }

    /// The bound is what the thread waits for: a busy machine wakes it later.
    #[test]
    fn frames_are_synced_within_a_tenth_of_a_second_while_a_termination_is_in_progress_and_within_one_else() {
        assert!(SYNC_BUSY <= Duration::from_millis(100) && SYNC_IDLE <= Duration::from_secs(1));
        let (journal, mut worker) = by_hand(&Faulty::default());
        assert_eq!(worker.sync_by, None, "no frames, no sync");
        let mut due = |in_progress: bool| {
            journal.in_progress(in_progress);
            journal.record(Boot(1), &[1, 2, 3]);
            let begin = clock::now();
            take_and_write(&mut worker);
            (worker.sync_by.expect("frames"), begin, clock::now())
        };
        let (idle, begin, end) = due(false);
        assert!((begin.plus(SYNC_IDLE)..=end.plus(SYNC_IDLE)).contains(&idle));
        assert_eq!(due(false).0, idle, "a later frame delays no sync");
        let (busy, begin, end) = due(true);
        assert!((begin.plus(SYNC_BUSY).min(idle)..=end.plus(SYNC_BUSY).min(idle)).contains(&busy));
        assert_eq!(due(false).0, busy);
    }

    #[test]
    fn many_frames_have_one_sync_and_then_nothing_is_due() {
        let disk = Faulty::default();
        let (journal, mut worker) = by_hand(&disk);
        for n in 0..500 {
            journal.record(Boot(n), &[1, 2, 3]);
        }
        take_and_write(&mut worker);
        let stats = journal.stats();
        assert_eq!((stats.frames(), stats.syncs(), disk.is_synced()), (500, 0, false));
        for _ in 0..2 {
            worker.sync(clock::now());
            assert_eq!((stats.syncs(), worker.sync_by, disk.is_synced()), (1, None, true));
        }
    }
}
