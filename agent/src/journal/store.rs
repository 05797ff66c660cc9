//! Appends frames to segments, and removes the oldest segment when the directory is full.

use std::collections::VecDeque;
use std::io;

use super::beginning::append_beginning;
use super::files::{Files, SegmentFile};
use super::format::SegmentHeader;
use crate::recording::frames::PREFIX;

/// Bounds of a journal, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub total: u64,
    pub segment: u64,
}

impl Bounds {
    /// Sixteen segments, so that a removal of the oldest takes little of the history; of 4 MiB at most.
    pub fn of(total: u64) -> Bounds {
        Bounds {
            total,
            segment: (total / 16).min(4 << 20),
        }
    }
}

/// A segment of that length takes whole blocks: agents that are killed again and again leave many short ones.
pub(super) const fn on_disk(length: u64) -> u64 {
    const BLOCK: u64 = 4096;
    length.next_multiple_of(BLOCK)
}

/// Where a part of an appended batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Of the part's first byte in the batch.
    pub from: usize,
    pub segment: u64,
    /// Of the same byte in the segment.
    pub offset: u64,
}

pub(crate) struct Store {
    files: Box<dyn Files>,
    bounds: Bounds,
    header: SegmentHeader,
    /// Number and bytes of each segment but the current one, the oldest first.
    sealed: VecDeque<(u64, u64)>,
    current: Option<Current>,
    next: u64,
    /// Removed segments so far.
    pub removed: u64,
}

struct Current {
    file: Box<dyn SegmentFile>,
    number: u64,
    length: u64,
}

impl Store {
    /// `existing`: number and bytes of each segment. `next`: number of the first segment that is begun.
    pub fn new(files: Box<dyn Files>, bounds: Bounds, header: SegmentHeader, existing: Vec<(u64, u64)>, next: u64) -> Store {
        Store {
            files,
            bounds,
            header,
            sealed: existing.into(),
            current: None,
            next,
            removed: 0,
        }
    }

    /// Later segments begin with this header.
    pub fn header(&mut self) -> &mut SegmentHeader {
        &mut self.header
    }

    /// The oldest segment that exists.
    pub fn oldest(&self) -> u64 {
        let current = self.current.as_ref().map_or(self.next, |current| current.number);
        self.sealed.front().map_or(current, |(number, _)| *number)
    }

    /// Bytes of all segments; the current one counts with all that is reserved.
    pub fn bytes(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|(_, bytes)| on_disk(*bytes)).sum();
        let current = self
            .current
            .as_ref()
            .map_or(0, |current| current.length.max(self.bounds.segment));
        sealed + current
    }

    /// Appends whole frames. After an error the current segment may end with a part of them, and is given up.
    pub fn append(&mut self, batch: &[u8]) -> io::Result<Vec<Part>> {
        let mut parts = Vec::new();
        let mut from = 0;
        while from < batch.len() {
            let room = match &self.current {
                Some(current) => self.bounds.segment.saturating_sub(current.length),
                None => 0,
            };
            let mut count = fitting(&batch[from..], usize::try_from(room).unwrap_or(usize::MAX));
            if count == 0 {
                let length = self.begin()?;
                let room = usize::try_from(self.bounds.segment.saturating_sub(length)).unwrap_or(usize::MAX);
                // A frame that is longer than a segment has a segment of its own.
                count = fitting(&batch[from..], room).max(frame_length(&batch[from..]));
            }
            let Some(current) = &mut self.current else { break };
            if let Err(error) = current.file.append(&batch[from..from + count]) {
                self.give_up();
                return Err(error);
            }
            parts.push(Part {
                from,
                segment: current.number,
                offset: current.length,
            });
            current.length += count as u64;
            from += count;
        }
        Ok(parts)
    }

    /// After an error the segment is given up: what the kernel could not write is not written by a second attempt.
    pub fn sync(&mut self) -> io::Result<()> {
        let synced = match &mut self.current {
            Some(current) => current.file.sync(),
            None => Ok(()),
        };
        if synced.is_err() {
            self.give_up();
        }
        synced
    }

    /// Nothing more is appended.
    pub fn seal(&mut self) -> io::Result<()> {
        self.sync()?;
        match self.current.take() {
            Some(mut current) => {
                self.sealed.push_back((current.number, current.length));
                current.file.seal()
            }
            None => Ok(()),
        }
    }

    /// Begins a new segment; returns the length of its beginning.
    pub fn begin(&mut self) -> io::Result<u64> {
        self.seal()?;
        if let Some(earlier) = self.files.earlier()? {
            self.sealed = earlier.segments.into();
            self.next = earlier.next;
        }
        while !self.sealed.is_empty() && self.bytes() + self.bounds.segment > self.bounds.total {
            let Some((oldest, _)) = self.sealed.pop_front() else { break };
            self.removed += 1;
            match self.files.remove(oldest) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let number = self.next;
        let mut file = self.files.create(number, self.bounds.segment)?;
        self.next += 1;
        let mut begin = Vec::new();
        append_beginning(&mut begin, &self.header).map_err(io::Error::other)?;
        self.header.first = false;
        let length = begin.len() as u64;
        let written = file.append(&begin);
        self.current = Some(Current { file, number, length });
        if let Err(error) = written {
            self.give_up();
            return Err(error);
        }
        Ok(length)
    }

    fn give_up(&mut self) {
        if let Some(mut current) = self.current.take() {
            // The length is an upper bound, and what was reserved is needed elsewhere.
            let _ = current.file.seal();
            self.sealed.push_back((current.number, current.length));
        }
    }
}

/// Bytes of the whole frames at the beginning of `batch` that fit into `room`.
fn fitting(batch: &[u8], room: usize) -> usize {
    if batch.len() <= room {
        return batch.len();
    }
    let mut count = 0;
    while count < batch.len() {
        let next = frame_length(&batch[count..]);
        if count + next > room {
            break;
        }
        count += next;
    }
    count
}

/// Of the frame at the beginning, with its prefix.
fn frame_length(batch: &[u8]) -> usize {
    let length = batch.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    (PREFIX + length).min(batch.len())
}
