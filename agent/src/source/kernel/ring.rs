//! The reader of the ring buffers.

mod buffer;

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

pub use buffer::Buffer;
use buffer::Record;
use epitaph_ebpf::Header;
use tokio::io::{Interest, unix::AsyncFd};
use tokio::time::{Instant, sleep_until};

/// Both ring buffers, read as one: their records come in the order of their times.
pub struct Rings {
    rare: Ring,
    events: Ring,
    /// A wake-up by an ordinary record is not followed by another before that time.
    quiet_until: Option<Instant>,
    /// The last drain stopped at its batch's end.
    more: bool,
    /// A record that the last drain read and did not pass on: its bytes, and whether it is a rare one.
    held: Option<(Vec<u8>, bool)>,
}

/// Most records of one drain: if records arrive faster than they are read, the caller's loop still proceeds, and reads what was lost
/// while a record of the batch is young, also where the agent has a small part of a processor.
const BATCH: usize = 1024;

/// In a storm of ordinary records the reader wakes up so often at most, and takes what has gathered; a rare record wakes it at
/// once, and takes the ordinary ones with it. Far below the core's reorder window. The kernel wakes nobody for a record behind
/// one that is not read yet, so the sender of the storm pays for no more wake-ups either.
const QUIET: Duration = Duration::from_millis(10);

impl Rings {
    pub fn new(rare: Buffer, events: Buffer) -> Rings {
        Rings {
            rare: Ring::new(rare),
            events: Ring::new(events),
            quiet_until: None,
            more: false,
            held: None,
        }
    }

    /// Waits until there may be records. Cancel-safe. Call [`Rings::drain`] afterwards: each wake-up is reported once.
    ///
    /// # Errors
    /// If the runtime cannot register a descriptor (no I/O driver, descriptor limit).
    pub async fn readable(&mut self) -> io::Result<()> {
        let Rings {
            rare,
            events,
            quiet_until,
            more,
            ..
        } = self;
        if *more {
            return Ok(());
        }
        let until = *quiet_until;
        let ordinary = async {
            if let Some(until) = until {
                sleep_until(until).await;
            }
            events.readable().await
        };
        tokio::select! {
            ready = rare.readable() => ready,
            ready = ordinary => {
                *quiet_until = Some(Instant::now() + QUIET);
                ready
            }
        }
    }

    /// Passes the present records of both rings to `each`, at most a batch. Returns their number. With records left, the next
    /// `readable` returns at once.
    ///
    /// Of the two next records the earlier goes first, so a rare record does not overtake the ordinary ones of its own past, and
    /// terminations are not judged before these are read. Each ring is in the order of reservation, not strictly of time.
    pub fn drain(&mut self, mut each: impl FnMut(&[u8])) -> usize {
        let Rings {
            rare,
            events,
            more,
            held,
            ..
        } = self;
        let mut count = 0;
        let (held_rare, held_ordinary) = match held.take() {
            Some((bytes, true)) => (Some(Head::Held(bytes)), None),
            Some((bytes, false)) => (None, Some(Head::Held(bytes))),
            None => (None, None),
        };
        let mut rares = held_rare.or_else(|| rare.next());
        let mut ordinary = held_ordinary.or_else(|| events.next());
        // The core judges by the time of a record what is due by then: an earlier one in the other ring must not follow, however long
        // this process waits for the CPU in between. So the other ring, where it was empty, is looked at after each record.
        if rares.is_none() {
            drop(rares);
            rares = rare.next();
        }
        loop {
            let rare_is_next = match (&rares, &ordinary) {
                (Some(rare), Some(ordinary)) => time(rare) <= time(ordinary),
                (rare, None) => rare.is_some(),
                (None, Some(_)) => false,
            };
            let record = if rare_is_next { &rares } else { &ordinary };
            let Some(record) = record else {
                *more = false;
                return count;
            };
            each(record);
            count += 1;
            if count >= BATCH {
                // A record that was taken is gone once it is dropped.
                let other = if rare_is_next { &ordinary } else { &rares };
                *held = other.as_ref().map(|record| (record.to_vec(), !rare_is_next));
                *more = true;
                return count;
            }
            if rare_is_next {
                drop(rares);
                rares = rare.next();
                if rares.is_some() && ordinary.is_none() {
                    drop(ordinary);
                    ordinary = events.next();
                }
            } else {
                drop(ordinary);
                ordinary = events.next();
                if rares.is_none() {
                    drop(rares);
                    rares = rare.next();
                }
            }
        }
    }
}

/// The next record of a ring.
enum Head<'a> {
    Held(Vec<u8>),
    New(Record<'a>),
}

impl Deref for Head<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Head::Held(bytes) => bytes,
            Head::New(item) => item,
        }
    }
}

fn time(record: &[u8]) -> u64 {
    let at = size_of::<Header>() - size_of::<u64>();
    let bytes = record.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

struct Ring(Buffer, Wake);

/// Made at the first wait, because it needs the waiting runtime. A second descriptor of the same ring buffer.
type Wake = Option<AsyncFd<OwnedFd>>;

impl Ring {
    fn new(ring: Buffer) -> Ring {
        Ring(ring, None)
    }

    fn next(&mut self) -> Option<Head<'_>> {
        self.0.next().map(Head::New)
    }

    async fn readable(&mut self) -> io::Result<()> {
        let Ring(ring, wake) = self;
        let wake = match wake {
            Some(wake) => wake,
            None => wake.insert(register(ring.as_fd().try_clone_to_owned()?)?),
        };
        // Cleared before the records are read: later records wake the reader again, so that none is missed, at the price of a
        // wake-up that may find no record.
        wake.readable().await?.clear_ready();
        Ok(())
    }
}

#[expect(
    unsafe_code,
    reason = "tokio's safe constructor is deprecated; this is the only descriptor registered by hand"
)]
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the AsyncFd, which deregisters it before it is closed.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}
