//! Opens the directory in a thread of its own: a disk that does not answer must not keep the agent from observing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::Options;
use super::files::{Disk, RefusedError};
use super::past::Past;

/// A disk that does nothing for so long does not answer. A large journal takes longer to read, segment by segment.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// For the thread to see that the agent was told to end.
const LAST: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);

/// The directory, locked, and what earlier runs left in it.
pub(super) type Found = Result<(Disk, Past), RefusedError>;

/// What the two threads know of each other.
#[derive(Default)]
pub(super) struct Pulse {
    beats: AtomicU64,
    stops: AtomicBool,
}

impl Pulse {
    /// The disk has answered, or is not asked: a predecessor has the directory.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether to wait no longer for a predecessor.
    pub fn stops(&self) -> bool {
        self.beat();
        self.stops.load(Ordering::Relaxed)
    }
}

/// The thread. It ends when the disk answers; its result is taken then, or given up with the lock.
pub(super) struct Opening {
    found: Receiver<Found>,
    pulse: Arc<Pulse>,
}

impl Opening {
    pub fn of(options: &Options) -> io::Result<Opening> {
        let options = options.clone();
        Opening::by(move |pulse| {
            let disk = Disk::open(&options, &|| pulse.stops())?;
            let path = options.directory;
            let past = Past::read(&disk, &|| pulse.beat()).map_err(|error| RefusedError::Disk { path, error })?;
            Ok((disk, past))
        })
    }

    pub fn by(open: impl FnOnce(&Pulse) -> Found + Send + 'static) -> io::Result<Opening> {
        let pulse = Arc::<Pulse>::default();
        let (sender, found) = sync_channel(1);
        let of_thread = pulse.clone();
        let thread = std::thread::Builder::new().name("journal-open".to_owned());
        thread.spawn(move || {
            // Nobody waits any more: the lock is given back.
            let _ = sender.send(open(&of_thread));
        })?;
        Ok(Opening { found, pulse })
    }

    /// None: the disk did nothing for `patience`, or the agent was told to end.
    pub fn within(&self, patience: Duration, stops: &dyn Fn() -> bool) -> Option<Found> {
        let (mut beats, mut waited, mut stopped) = (0, Duration::ZERO, Duration::ZERO);
        while waited < patience && stopped < LAST {
            match self.found.recv_timeout(POLL) {
                Ok(found) => return Some(found),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.pulse.beats.load(Ordering::Relaxed);
            waited = if now == beats { waited + POLL } else { Duration::ZERO };
            beats = now;
            if stops() {
                self.pulse.stops.store(true, Ordering::Relaxed);
                stopped += POLL;
            }
        }
        None
    }

    /// None: the disk still does not answer.
    pub fn found(&self) -> Option<Found> {
        self.found.try_recv().ok()
    }
}

pub(super) fn no_answer(patience: Duration) -> io::Error {
    let text = format!(
        "the disk did not answer for {} s when the directory was opened",
        patience.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, text)
}
