//! Appends frames to segments, and removes the oldest segment when the directory is full.

use std::collections::VecDeque;
use std::io;

use super::beginning::append_beginning;
use super::files::{Files, SegmentFile};
use super::format::SegmentHeader;
use crate::recording::frames::{frame_length, number};

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
    /// Number of the next frame.
    frame: u32,
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
            frame: 0,
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

    /// Appends whole frames, and numbers them. After an error the current segment may end with a part of them, and is given up.
    pub fn append(&mut self, batch: &mut [u8]) -> io::Result<Vec<Part>> {
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
            let part = &mut batch[from..from + count];
            let first = self.frame;
            number(part, &mut self.frame);
            if let Err(error) = current.file.append(part) {
                // The worker states what the disk refused: by the numbers, only what nobody stated is missing.
                self.frame = first;
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
            Some(current) => current.file.sync().and_then(|()| self.files.is_there()),
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
        while let Some((oldest, _)) = self.sealed.front()
            && self.bytes() + self.bounds.segment > self.bounds.total
        {
            match self.files.remove(*oldest) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.sealed.pop_front();
            self.removed += 1;
        }
        let number = self.next;
        let created = self.files.create(number, self.bounds.segment);
        // One that a failing disk has created all the same cannot be created again.
        let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        if created.as_ref().err().is_none_or(is_taken) {
            self.next += 1;
        }
        let mut file = created?;
        let mut begin = Vec::new();
        self.header.number = self.frame;
        append_beginning(&mut begin, &self.header).map_err(io::Error::other)?;
        let length = begin.len() as u64;
        let written = file.append(&begin);
        self.current = Some(Current { file, number, length });
        if let Err(error) = written {
            self.discard();
            return Err(error);
        }
        self.header.first = false;
        Ok(length)
    }

    /// Begins a new segment after trouble. Synced: a disk that goes on failing must not leave a segment for each attempt, because they
    /// would push out older ones.
    pub fn begin_anew(&mut self) -> io::Result<()> {
        let first = self.header.first;
        self.begin()?;
        let Some(current) = &mut self.current else { return Ok(()) };
        current.file.sync().inspect_err(|_| {
            self.discard();
            self.header.first = first;
        })
    }

    /// Removes the current segment, which has nothing but its beginning.
    fn discard(&mut self) {
        if let Some(current) = &self.current
            && self.files.remove(current.number).is_ok()
        {
            self.current = None;
        }
        self.give_up();
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, MutexGuard};

    use epitaph_core::fixtures::terminations::observation;

    use super::super::beginning::read_beginning;
    use super::super::format::VERSION;
    use super::*;
    use crate::recording::frames::Frames;

    /// What each file has, and what the disk refuses.
    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        files: BTreeMap<u64, Vec<u8>>,
        refuses_sync: bool,
        refuses_removal: bool,
    }

    impl Memory {
        fn state(&self) -> MutexGuard<'_, State> {
            self.0.lock().unwrap()
        }
        fn store(&self, existing: Vec<(u64, u64)>) -> Store {
            let header = SegmentHeader {
                version: VERSION,
                epitaph: "0".to_owned(),
                observation: observation(),
                first: true,
                number: 0,
            };
            let next = existing.len() as u64 + 1;
            Store::new(Box::new(self.clone()), Bounds::of(1 << 20), header, existing, next)
        }
    }

    fn unless(refuses: bool) -> io::Result<()> {
        if refuses { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    }

    impl Files for Memory {
        fn create(&mut self, number: u64, _: u64) -> io::Result<Box<dyn SegmentFile>> {
            let earlier = self.state().files.insert(number, Vec::new());
            assert!(earlier.is_none(), "{number} is there");
            Ok(Box::new(MemoryFile(self.clone(), number)))
        }
        fn remove(&mut self, number: u64) -> io::Result<()> {
            unless(self.state().refuses_removal)?;
            self.state().files.remove(&number);
            Ok(())
        }
    }

    struct MemoryFile(Memory, u64);

    impl SegmentFile for MemoryFile {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.state().files.entry(self.1).or_default().extend_from_slice(bytes);
            Ok(())
        }
        fn sync(&mut self) -> io::Result<()> {
            unless(self.0.state().refuses_sync)
        }
        fn seal(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_fails_for_long_leaves_no_segment_for_each_attempt() {
        let disk = Memory::default();
        let mut store = disk.store(Vec::new());
        disk.state().refuses_sync = true;
        for _ in 0..1_000 {
            assert!(store.begin_anew().is_err());
        }
        assert_eq!((disk.state().files.len(), store.bytes()), (0, 0));
        disk.state().refuses_sync = false;
        store.begin_anew().unwrap();
        let state = disk.state();
        let (_, only) = state.files.iter().next().unwrap();
        let header = read_beginning(&mut Frames::new(only.as_slice())).unwrap().header.unwrap();
        assert!(state.files.len() == 1 && header.first, "the first of its run");
    }

    #[test]
    fn a_segment_is_there_until_it_is_removed() {
        let disk = Memory::default();
        let full: Vec<(u64, u64)> = (1..=16).map(|number| (number, 64 << 10)).collect();
        let mut store = disk.store(full);
        disk.state().refuses_removal = true;
        assert!(store.begin_anew().is_err());
        assert_eq!((store.oldest(), store.removed, store.bytes()), (1, 0, 1 << 20));
        disk.state().refuses_removal = false;
        store.begin_anew().unwrap();
        assert_eq!((store.oldest(), store.removed), (2, 1));
    }
}
