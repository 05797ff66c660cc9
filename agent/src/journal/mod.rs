//! The journal: what the agent keeps on disk, so that neither a kill nor a power cut loses a termination.
//!
//! A directory of segments. A segment is a file of a recording's frames ([`crate::recording`]), with numbers from its version 2 on: it begins
//! with a header, which has the number of its first frame, for the numbers of a run go on from segment to segment; it has the evidence of
//! terminations in progress as a recording has it, and more kinds of frames:
//!
//! ```text
//! finished report = now, u64 | 2, u8 | wall time of the end, ns, u64 | trace id, 16 bytes | root span id, 8 bytes | spans, u32
//!                   | length of the JSON, u32 | JSON object of docs/json.md | encoded OTLP request, the rest; empty: nothing to send
//! answered        = now, u64 | 3, u8 | (trace id, 16 bytes | root span id, 8 bytes)*: the collector accepted or refused these
//! header again    = now, u64 | 4, u8 | JSON of the header: the first frame after it, without a number
//! lost reports    = now, u64 | 5, u8 | JSON: how many finished reports are not in the journal, and when the first and the last ended
//! answered, part  = now, u64 | 6, u8 | signals, u8 | (trace id | root span id)*: as answered, for these signals of several (a bit each);
//!                   an older reader sends all of them again
//! resource        = now, u64 | 7, u8 | id, 24 bytes | JSON: a custom resource for the API server; answered as the fourth bit above
//! ```
//!
//! A damaged header costs nothing but itself: its copy has the same, and reports need neither. What a segment's first bytes say of the
//! format's version is believed only if the header, which has a checksum, says the same (`version`; not there: 1).
//!
//! Segments are only appended to. The agent begins a new one at every start, and removes the oldest when the directory is full. An
//! older reader counts the frames that it does not know. A segment of a newer format is kept aside, under another name.
//!
//! *Architecture invariant*: nothing here runs on the event loop but the copy of a frame into a bounded buffer.

mod beginning;
mod buffer;
mod directory;
pub mod export;
mod files;
mod format;
mod handle;
mod held;
mod hole;
mod opening;
mod past;
pub mod reader;
mod stats;
mod store;
mod worker;

#[cfg(test)]
mod foreign_tests;
#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod fuzz;
#[cfg(test)]
mod tests;
#[cfg(test)]
#[path = "trouble_tests.rs"]
mod trouble;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use epitaph_core::input::Observation;

use crate::clock;
use directory::Directory;
use files::{Disk, Earlier, Files, SegmentFile};
use format::SegmentHeader;
use format::VERSION;
use opening::{Opening, PATIENCE, no_answer};
use reader::Place;
use store::Store;

pub use files::RefusedError;
pub use format::{Finished, ReportId};
pub use handle::{Journal, JournalThread};
pub use hole::{Hole, Why};
pub use past::{Past, Pending, Resources};
pub use stats::{JournalDropReason, JournalStats, Trouble, Troubled};
pub use store::Bounds;

/// Where the journal is, and how large it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub directory: PathBuf,
    /// Group id of those who may read it.
    pub group: Option<u32>,
    /// Bytes of all segments.
    pub max_bytes: u64,
    /// The agent's, as the machine counts it: for who finds the directory in use.
    pub pid: u32,
}

/// The journal of a run, and what earlier runs left in it.
pub struct Opened {
    pub journal: Journal,
    pub thread: JournalThread,
    pub past: Past,
    directory: OnceDirectory,
}

/// Empty while the directory cannot be opened.
type OnceDirectory = Arc<OnceLock<Arc<Directory>>>;

impl Opened {
    /// For the requests of the journal's reports.
    pub fn requests(&self) -> Requests {
        Requests {
            directory: self.directory.clone(),
            journal: self.journal.clone(),
        }
    }
}

/// Opens the journal and starts its thread. A disk in trouble, or that does not answer, is not an error: the journal is in memory only, and
/// tries again.
///
/// `stops`: whether to wait no longer for an agent that has the directory.
///
/// # Errors
/// Another agent has the directory; it is a link, or another user's.
pub fn open(options: &Options, observation: &Observation, stops: &dyn Fn() -> bool) -> Result<Opened, RefusedError> {
    let opening = Opening::of(options).map_err(|error| RefusedError::Disk {
        path: options.directory.clone(),
        error,
    })?;
    open_by(options, observation, (opening, PATIENCE), stops)
}

fn open_by(
    options: &Options,
    observation: &Observation,
    (opening, patience): (Opening, Duration),
    stops: &dyn Fn() -> bool,
) -> Result<Opened, RefusedError> {
    let header = SegmentHeader {
        version: VERSION,
        epitaph: env!("CARGO_PKG_VERSION").to_owned(),
        observation: observation.clone(),
        first: true,
        number: 0,
    };
    let bounds = Bounds::of(options.max_bytes);
    let directory = OnceDirectory::default();
    let later = |opening| {
        Box::new(Later {
            options: options.clone(),
            opening,
            disk: None,
            directory: directory.clone(),
        })
    };
    let (files, past, error): (Box<dyn Files>, _, _) = match opening.within(patience, stops) {
        Some(Ok((disk, past))) => {
            directory.get_or_init(|| disk.directory.clone());
            (Box::new(disk), past, None)
        }
        Some(Err(RefusedError::Disk { error, .. })) => (later(None), Past::default(), Some(error)),
        Some(Err(refused)) => return Err(refused),
        None => (later(Some(opening)), Past::default(), Some(no_answer(patience))),
    };
    let store = Store::new(files, bounds, header, past.segments.clone(), past.next);
    let (journal, thread) = Journal::start(store, error.as_ref()).map_err(|error| RefusedError::Disk {
        path: options.directory.clone(),
        error,
    })?;
    Ok(Opened {
        journal,
        thread,
        past,
        directory,
    })
}

/// A directory that could not be opened at the start: tried again for every new segment.
struct Later {
    options: Options,
    /// The first attempt, while the disk does not answer.
    opening: Option<Opening>,
    disk: Option<Disk>,
    directory: OnceDirectory,
}

impl Later {
    fn open(&mut self) -> Result<Disk, RefusedError> {
        let Some(opening) = &self.opening else {
            return Disk::open_within(&self.options, Duration::ZERO, &|| true);
        };
        let Some(found) = opening.found() else {
            return Err(RefusedError::Disk {
                path: self.options.directory.clone(),
                error: no_answer(PATIENCE),
            });
        };
        self.opening = None;
        Ok(found?.0)
    }
}

impl Files for Later {
    fn earlier(&mut self) -> io::Result<Option<Earlier>> {
        if self.disk.is_some() {
            return Ok(None);
        }
        let disk = self.open().map_err(|refused| match refused {
            RefusedError::Disk { error, .. } => error,
            refused => io::Error::other(refused),
        })?;
        let mut earlier = Earlier::default();
        for file in disk.directory.files()? {
            let number = file.number();
            let opened = disk.directory.read(&file.name());
            earlier.next = earlier.next.max(number + 1);
            if Directory::is_foreign(&opened) {
                continue;
            }
            let length = opened.and_then(|file| Ok(file.metadata()?.len()));
            // One that cannot be read counts with its blocks only, and goes like any other.
            earlier.segments.push((number, length.unwrap_or(0)));
        }
        earlier.segments.sort_unstable();
        self.directory.get_or_init(|| disk.directory.clone());
        self.disk = Some(disk);
        Ok(Some(earlier))
    }

    fn create(&mut self, number: u64, reserve: u64) -> io::Result<Box<dyn SegmentFile>> {
        match &mut self.disk {
            Some(disk) => disk.create(number, reserve),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove(&mut self, number: u64) -> io::Result<()> {
        match &mut self.disk {
            Some(disk) => disk.remove(number),
            None => Ok(()),
        }
    }

    fn is_there(&self) -> io::Result<()> {
        self.disk.as_ref().map_or(Ok(()), Disk::is_there)
    }
}

/// Reads the requests of finished reports, and notes the collector's answers.
#[derive(Clone)]
pub struct Requests {
    directory: OnceDirectory,
    journal: Journal,
}

/// The request of one finished report.
pub struct KeptRequest {
    directory: Arc<Directory>,
    journal: Journal,
    place: Place,
    id: ReportId,
}

impl Requests {
    pub fn pending(&self, pending: &Pending) -> Option<KeptRequest> {
        self.at(pending.place, pending.id)
    }

    /// None: the directory was never opened, and nothing has a place.
    pub(crate) fn at(&self, place: Place, id: ReportId) -> Option<KeptRequest> {
        let directory = self.directory.get()?.clone();
        Some(KeptRequest {
            directory,
            journal: self.journal.clone(),
            place,
            id,
        })
    }
}

impl KeptRequest {
    /// The bytes as they were first sent. Blocks.
    ///
    /// # Errors
    /// The segment was removed, the disk fails, or the bytes are damaged.
    pub fn read(&self) -> io::Result<Bytes> {
        past::read_request(&self.directory, self.place)
    }

    /// False if the journal was full, and the report was removed.
    pub fn is_there(&self) -> bool {
        self.journal.has(self.place.segment)
    }

    /// The collector answered: the request is not sent again.
    pub fn answered(&self) {
        self.journal.answered(clock::now(), &[self.id]);
    }

    /// The collector answered for these signals, and not yet for others that the request is sent as.
    pub fn answered_in_part(&self, signals: u8) {
        self.journal.answered_in_part(clock::now(), signals, &[self.id]);
    }
}
