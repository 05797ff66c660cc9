//! One ring buffer of the kernel, as its only reader.
//!
//! Not aya's `RingBuf`: it maps the records twice in a row, so that one that crosses the end lies in one piece, and the kernel counts each of
//! these pages twice as resident. Here they are mapped once, and the one record that crosses the end is copied.
//!
//! Layout and order of the accesses: <https://docs.kernel.org/bpf/ringbuf.html> and the kernel's kernel/bpf/ringbuf.c.
#![expect(unsafe_code, reason = "memory that the kernel writes at the same time")]

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use aya::maps::MapData;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// include/uapi/linux/bpf.h
const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
const HEADER: usize = 8;

pub struct Buffer {
    map: MapData,
    reader: Reader,
}

impl Buffer {
    /// # Errors
    /// If the kernel does not map the buffer.
    pub fn new(map: MapData, page: usize) -> io::Result<Buffer> {
        let size = map.info().map_err(io::Error::other)?.max_entries() as usize;
        let fd = map.fd().as_fd();
        let consumer = Mapping::new(fd, 0, page, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        let producer = Mapping::new(fd, page, page + size, ProtFlags::PROT_READ)?;
        let reader = Reader::new(consumer, producer, page);
        Ok(Buffer { map, reader })
    }

    /// The next record. It is given back to the kernel when it is dropped.
    pub fn next(&mut self) -> Option<Record<'_>> {
        self.reader.next()
    }
}

impl AsFd for Buffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.fd().as_fd()
    }
}

/// A record as a probe wrote it.
pub struct Record<'a> {
    bytes: &'a [u8],
    consumer: &'a mut Consumer,
}

impl Deref for Record<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.consumer.consume(self.bytes.len());
    }
}

struct Reader {
    consumer: Consumer,
    records: Records,
    /// A record that crosses the end of the buffer.
    in_one_piece: Vec<u8>,
}

/// How far this process has read.
struct Consumer {
    mapping: Mapping,
    position: usize,
    /// The position was moved, and the producer not looked at since: the kernel wakes nobody for a record behind the position that it saw.
    has_moved: bool,
}

/// What the kernel writes.
struct Records {
    /// The producer's position, and from `begin` on the records.
    mapping: Mapping,
    begin: usize,
    /// Of the position, which only grows.
    known: usize,
}

impl Reader {
    fn new(consumer: Mapping, producer: Mapping, page: usize) -> Reader {
        let position = consumer.position().load(Ordering::Acquire);
        Reader {
            consumer: Consumer {
                mapping: consumer,
                position,
                has_moved: false,
            },
            records: Records {
                mapping: producer,
                begin: page,
                known: position,
            },
            in_one_piece: Vec::new(),
        }
    }

    fn next(&mut self) -> Option<Record<'_>> {
        let Reader {
            consumer,
            records,
            in_one_piece,
        } = self;
        let (at, length) = loop {
            if !records.has_more(consumer) {
                return None;
            }
            let at = consumer.position & records.mask();
            let header = records.header(at).load(Ordering::Acquire);
            let length = (header & !(BUSY | DISCARD)) as usize;
            if header & BUSY != 0 {
                if !consumer.has_moved {
                    return None;
                }
                // Either the record is finished by the second look, or its writer sees the new position and wakes this process.
                fence(Ordering::SeqCst);
                consumer.has_moved = false;
            } else if header & DISCARD != 0 {
                consumer.consume(length);
            } else {
                break ((at + HEADER) & records.mask(), length);
            }
        };
        let before_end = length.min(records.size() - at);
        let bytes = if before_end == length {
            records.bytes(at, length)
        } else {
            in_one_piece.clear();
            in_one_piece.extend_from_slice(records.bytes(at, before_end));
            in_one_piece.extend_from_slice(records.bytes(0, length - before_end));
            in_one_piece.as_slice()
        };
        Some(Record { bytes, consumer })
    }
}

impl Consumer {
    /// Gives a record of `length` bytes back.
    fn consume(&mut self, length: usize) {
        self.position = self.position.wrapping_add((HEADER + length).next_multiple_of(8));
        // After the record was read: the kernel may write there from now on.
        self.mapping.position().store(self.position, Ordering::Release);
        self.has_moved = true;
    }
}

impl Records {
    /// A power of two.
    fn size(&self) -> usize {
        self.mapping.bytes - self.begin
    }

    fn mask(&self) -> usize {
        self.size() - 1
    }

    /// Whether a record lies behind the consumer's position, finished or not.
    fn has_more(&mut self, consumer: &mut Consumer) -> bool {
        if self.known == consumer.position {
            if std::mem::take(&mut consumer.has_moved) {
                // Either a new record is seen here, or its writer sees the new position and wakes this process.
                fence(Ordering::SeqCst);
            }
            self.known = self.mapping.position().load(Ordering::Acquire);
        }
        self.known != consumer.position
    }

    fn header(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(8) && at < self.size(), "no record begins at {at}");
        // SAFETY: within the mapping and aligned; the kernel changes it atomically.
        unsafe { self.mapping.start.byte_add(self.begin + at).cast().as_ref() }
    }

    /// Of a finished record: the kernel writes there again only after the position has passed it.
    fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(at + length <= self.size(), "{length} bytes at {at} are not in the buffer");
        // SAFETY: within the mapping, and nobody writes there while `self`, and with it the position, is borrowed.
        unsafe { slice::from_raw_parts(self.mapping.start.byte_add(self.begin + at).cast::<u8>().as_ptr(), length) }
    }
}

/// Memory that is shared with the kernel, from `start` on.
struct Mapping {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the memory is this process's, not a thread's.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, offset: usize, bytes: usize, access: ProtFlags) -> io::Result<Mapping> {
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let offset = offset.try_into().map_err(io::Error::other)?;
        // SAFETY: new memory at an address that the kernel chooses.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, fd, offset) }?;
        Ok(Mapping { start, bytes })
    }

    /// Of the consumer or the producer: at the beginning of both mappings.
    fn position(&self) -> &AtomicUsize {
        // SAFETY: a page begins there; both sides change it atomically.
        unsafe { self.start.cast().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

#[cfg(test)]
#[path = "buffer_tests.rs"]
mod tests;
