//! The reader of the ring buffer.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{MapData, RingBuf};
use tokio::io::{Interest, unix::AsyncFd};

pub struct Ring {
    events: RingBuf<MapData>,
    /// Made at the first wait, because it needs the waiting runtime. A second descriptor of the same ring buffer.
    wake: Option<AsyncFd<OwnedFd>>,
    /// The last drain stopped at its batch's end.
    more: bool,
}

/// Most records of one drain: if records arrive faster than they are read, the caller's loop still proceeds.
const BATCH: usize = 8192;

impl Ring {
    pub fn new(events: RingBuf<MapData>) -> Ring {
        Ring {
            events,
            wake: None,
            more: false,
        }
    }

    /// Waits until there may be records. Cancel-safe. Call [`Ring::drain`] afterwards: each wake-up is reported once.
    ///
    /// # Errors
    /// If the runtime cannot register the descriptor (no I/O driver, descriptor limit).
    pub async fn readable(&mut self) -> io::Result<()> {
        if self.more {
            return Ok(());
        }
        let wake = match &mut self.wake {
            Some(wake) => wake,
            None => self.wake.insert(register(self.events.as_fd().try_clone_to_owned()?)?),
        };
        // Cleared before the records are read: later records wake the reader again, so that none is missed, at the price of a
        // wake-up that may find no record.
        wake.readable().await?.clear_ready();
        Ok(())
    }

    /// Passes the present records to `each`, at most a batch, in the order of their reservation. Returns their number. With
    /// records left, the next `readable` returns at once.
    pub fn drain(&mut self, mut each: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        self.more = true;
        while count < BATCH {
            let Some(record) = self.events.next() else {
                self.more = false;
                break;
            };
            each(&record);
            count += 1;
        }
        count
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
