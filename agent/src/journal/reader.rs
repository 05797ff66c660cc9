//! Reads a journal: also while an agent writes it, without its lock, and in bounded memory (about 2 MiB, whatever the journal's size).

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use epitaph_core::time::{Boot, Wall};

use super::beginning::{Beginning, read_beginning};
use super::directory::Directory;
use super::format::{FileKind, Finished, ReportId, SegmentHeader, TAG_REPORT, kind_of, newer_name, segment_name};
use super::hole::{Hole, Holes};
use crate::error::{HasRemedy, Remedy};
use crate::recording::frames::{Frames, Next, Numbers, stamped};
use crate::recording::{ReadError, TAG_INPUT, TAG_KERNEL};

/// Who may read a journal.
pub const READERS: &str = "run as root, or as a member of the group that `journal.group` names";

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot open the journal {}: {error}", path.display())]
    Open { path: PathBuf, error: io::Error },
}

impl HasRemedy for OpenError {
    fn remedy(&self) -> Option<Remedy> {
        let OpenError::Open { error, .. } = self;
        Some(match error.kind() {
            io::ErrorKind::NotFound => {
                "start the agent with `journal.directory`, or pass the agent's directory with `--journal`".into()
            }
            io::ErrorKind::PermissionDenied => READERS.into(),
            _ => "`--journal` needs a directory".into(),
        })
    }
}

/// What was not returned; complete at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Segments that end within a frame, and the bytes of it: the agent was stopped in the middle of a write. The end of the newest
    /// segment is not counted: it may be written right now.
    pub torn: u64,
    pub torn_bytes: u64,
    /// Frames that no damaged place explains: they were cut out.
    pub missing: u64,
    /// Damaged places, and their bytes.
    pub damaged: u64,
    pub damaged_bytes: u64,
    /// Names of segments that a newer epitaph wrote.
    pub newer: Vec<String>,
    /// Segments that cannot be read, and the first one's error.
    pub unreadable: u64,
    pub error: Option<String>,
    /// Segments that this user may not read.
    pub denied: u64,
    /// Segments that the agent removed while the journal was read.
    pub removed: u64,
    /// Reports that this version does not understand.
    pub unknown: u64,
}

impl Skipped {
    pub fn is_nothing(&self) -> bool {
        *self == Skipped::default()
    }

    /// A place with so many damaged bytes, if there are any.
    pub(super) fn damaged(&mut self, bytes: u64) {
        self.damaged += u64::from(bytes > 0);
        self.damaged_bytes += bytes;
    }

    /// What was skipped before a frame. Damage explains missing frames; returns how many it does not explain.
    pub(super) fn before(&mut self, damaged: u64, missing: u64) -> u64 {
        self.damaged(damaged);
        let unexplained = if damaged == 0 { missing } else { 0 };
        self.missing += unexplained;
        unexplained
    }

    pub(super) fn unreadable(&mut self, error: &dyn std::fmt::Display) {
        self.unreadable += 1;
        self.error.get_or_insert_with(|| error.to_string());
    }
}

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub segment: u64,
    /// Of the frame's first byte.
    pub offset: u64,
    /// Of the payload, with the number.
    pub length: usize,
    pub is_numbered: bool,
}

/// Reads the frames of a journal, the oldest first.
#[derive(Debug)]
pub struct Reader {
    directory: Directory,
    segments: VecDeque<u64>,
    has_segments: bool,
    open: Option<Segment>,
    /// The segment before.
    last: Option<Ended>,
    /// The open segment was begun, and that is not returned yet.
    owes_begin: bool,
    skipped: Skipped,
    holes: Holes,
    recent: Recent,
}

/// The last reports. A report is in the journal twice if the disk failed between its write and its sync.
#[derive(Debug, Default)]
struct Recent {
    order: VecDeque<(ReportId, Wall)>,
    known: HashSet<(ReportId, Wall)>,
}

/// More than an agent holds in memory while its disk fails.
const RECENT: usize = 4096;

impl Recent {
    /// False: not for the first time. An id may be that of two terminations of one static pod, which end at different times.
    fn add(&mut self, report: (ReportId, Wall)) -> bool {
        if !self.known.insert(report) {
            return false;
        }
        self.order.push_back(report);
        if self.order.len() > RECENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

#[derive(Debug)]
struct Segment {
    number: u64,
    /// None: damaged. Reports need none.
    header: Option<SegmentHeader>,
    frames: Frames<File>,
    /// Something of it was read.
    is_segment: bool,
}

/// A segment that was read to its end.
#[derive(Debug)]
struct Ended {
    header: SegmentHeader,
    numbers: Numbers,
}

impl Ended {
    /// Frames of the same run that are missing before the next segment.
    fn missing_before(&self, next: &SegmentHeader) -> u64 {
        let is_same = next.is_of(&self.header.observation);
        self.numbers.missing_before(next.number).filter(|_| is_same).unwrap_or(0)
    }
}

/// What comes next in a journal.
enum Step {
    /// A segment begins.
    Began,
    /// The payload of a frame, in the buffer of the open segment. `damaged`: after a damaged place, or after missing frames.
    Frame { damaged: bool, at: usize, length: usize },
    /// Something that cannot be read: a segment, or the end of one.
    Missing,
}

/// A piece of evidence, or what is known of where it is.
pub(crate) enum Evidence<'a> {
    Began {
        number: u64,
        header: &'a SegmentHeader,
    },
    /// The frame, as a recording has it. `damaged`: evidence before it is missing.
    Frame {
        damaged: bool,
        now: Boot,
        tag: u8,
        body: &'a [u8],
    },
    Missing,
}

/// Whether a file of that name is one of a journal.
pub fn is_file(name: &str) -> bool {
    kind_of(name).is_some()
}

impl Reader {
    /// The journal as it is now: segments that are begun later are not read.
    ///
    /// # Errors
    /// There is no such directory, or this user may not read it.
    pub fn open(path: &Path) -> Result<Reader, OpenError> {
        let error = |error| OpenError::Open {
            path: path.to_owned(),
            error,
        };
        let directory = Directory::open(path).map_err(error)?;
        Reader::of(directory).map_err(error)
    }

    pub(crate) fn of(directory: Directory) -> io::Result<Reader> {
        let mut skipped = Skipped::default();
        let mut segments = VecDeque::new();
        for file in directory.files()? {
            match file {
                FileKind::Segment(number) => segments.push_back(number),
                FileKind::Newer(number) => skipped.newer.push(newer_name(number)),
            }
        }
        Ok(Reader {
            directory,
            has_segments: !segments.is_empty(),
            segments,
            open: None,
            last: None,
            owes_begin: false,
            skipped,
            holes: Holes::default(),
            recent: Recent::default(),
        })
    }

    /// The next finished report, the oldest first.
    pub fn next_report(&mut self) -> Option<Finished<'_>> {
        loop {
            let Step::Frame { at, length, .. } = self.step()? else {
                continue;
            };
            let segment = self.open.as_ref()?;
            let (_, tag, body) = stamped(segment.frames.payload(at, length));
            if tag != TAG_REPORT {
                continue;
            }
            match Finished::read(body) {
                Some(report) if self.recent.add((report.id, report.wall)) => {}
                Some(_) => continue,
                None => {
                    self.skipped.unknown += 1;
                    continue;
                }
            }
            let segment = self.open.as_ref()?;
            return Finished::read(stamped(segment.frames.payload(at, length)).2);
        }
    }

    /// The next piece of evidence, the oldest first; frames that only the journal has are left out.
    pub(crate) fn next_evidence(&mut self) -> Option<Evidence<'_>> {
        loop {
            match self.step()? {
                Step::Began => {
                    let Segment { number, header, .. } = self.open.as_ref()?;
                    let (number, header) = (*number, header.as_ref());
                    return Some(header.map_or(Evidence::Missing, |header| Evidence::Began { number, header }));
                }
                Step::Missing => return Some(Evidence::Missing),
                Step::Frame { damaged, at, length } => {
                    let segment = self.open.as_ref()?;
                    if segment.header.is_none() {
                        // Of which run, is not known.
                        continue;
                    }
                    let (_, tag, _) = stamped(segment.frames.payload(at, length));
                    match (matches!(tag, TAG_KERNEL | TAG_INPUT), damaged) {
                        (true, _) => {}
                        (false, true) => return Some(Evidence::Missing),
                        (false, false) => continue,
                    }
                    let (now, tag, body) = stamped(self.open.as_ref()?.frames.payload(at, length));
                    return Some(Evidence::Frame { damaged, now, tag, body });
                }
            }
        }
    }

    /// Of what was read so far, the times of which terminations are missing; also the time from the last frame to `now`.
    pub fn holes(&self, now: Wall) -> Vec<Hole> {
        self.holes.until(now)
    }

    /// Whether an agent has begun to write.
    pub fn has_segments(&self) -> bool {
        self.has_segments
    }

    /// What was not returned so far.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Bytes that are held.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        let ids = size_of::<(ReportId, Wall)>() * (self.recent.order.capacity() + 2 * self.recent.known.capacity());
        self.open.as_ref().map_or(0, |segment| segment.frames.memory()) + ids
    }

    fn step(&mut self) -> Option<Step> {
        let Some(segment) = &mut self.open else {
            let number = self.segments.pop_front()?;
            self.open = self.begin(number);
            let last = self.last.take();
            match &self.open {
                Some(segment) => {
                    self.holes.segment(segment.header.as_ref());
                    let missing = segment
                        .header
                        .as_ref()
                        .zip(last)
                        .map_or(0, |(header, last)| last.missing_before(header));
                    if missing > 0 {
                        self.holes.cut(self.skipped.before(0, missing));
                        self.owes_begin = true;
                        return Some(Step::Missing);
                    }
                }
                // Empty: begun just now, or by a disk that took no more.
                None if self.segments.is_empty() => {}
                None => self.holes.missing(),
            }
            return Some(if self.open.is_some() { Step::Began } else { Step::Missing });
        };
        if std::mem::take(&mut self.owes_begin) {
            return Some(Step::Began);
        }
        match segment.frames.next() {
            Next::Frame {
                skipped,
                missing,
                at,
                length,
            } => {
                self.holes.cut(self.skipped.before(skipped, missing));
                segment.is_segment = true;
                let (now, tag, body) = stamped(segment.frames.payload(at, length));
                self.holes.frame(now, tag, body);
                Some(Step::Frame {
                    damaged: skipped > 0 || missing > 0,
                    at,
                    length,
                })
            }
            Next::End { tail, error } => {
                let is_segment = segment.is_segment;
                let (header, numbers) = (segment.header.take(), segment.frames.numbers());
                self.open = None;
                // An end that is torn explains what is missing.
                let is_whole = tail == 0 && error.is_none();
                self.last = header.filter(|_| is_whole).map(|header| Ended { header, numbers });
                match &error {
                    Some(error) => self.skipped.unreadable(error),
                    None if !is_segment => self.skipped.unreadable(&ReadError::NotARecording),
                    None => {}
                }
                if tail > 0 && is_segment && !self.segments.is_empty() {
                    self.skipped.torn += 1;
                    self.skipped.torn_bytes += tail;
                }
                match tail > 0 || error.is_some() {
                    true => Some(Step::Missing),
                    false => self.step(),
                }
            }
        }
    }

    fn begin(&mut self, number: u64) -> Option<Segment> {
        let name = segment_name(number);
        let file = match self.directory.read(&name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.skipped.removed += 1;
                return None;
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.skipped.denied += 1;
                return None;
            }
            Err(error) => {
                self.skipped.unreadable(&error);
                return None;
            }
        };
        let mut frames = Frames::new(file);
        match read_beginning(&mut frames) {
            Ok(Beginning { header, damaged }) => {
                self.skipped.damaged(damaged);
                Some(Segment {
                    number,
                    is_segment: header.is_some(),
                    header,
                    frames,
                })
            }
            Err(ReadError::Newer { .. }) => {
                self.skipped.newer.push(name);
                None
            }
            // The newest one may have been begun just now.
            Err(_) if self.segments.is_empty() && frames.offset() == 0 && frames.is_empty() => None,
            Err(error) => {
                self.skipped.unreadable(&error);
                None
            }
        }
    }
}
