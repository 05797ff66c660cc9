//! Output that never blocks the loop: a stopped pager must not lose evidence.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most blocks that wait for a slow reader; further ones are dropped and counted.
const QUEUE: usize = 1024;

/// A [`Write`] that queues each `write` as one block for a separate thread. Once the reader is gone, the next `write` returns
/// `BrokenPipe`.
pub struct Background {
    queue: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
    /// How long the end waits for a reader that does not read; None: forever, and no block is dropped before.
    patience: Option<Duration>,
    written: Arc<AtomicU64>,
    /// Disconnected once the thread has ended.
    ended: mpsc::Receiver<()>,
    failed: Arc<AtomicBool>,
    error: Arc<Mutex<Option<io::Error>>>,
    dropped: AtomicU64,
}

impl Background {
    /// For a live observation: a full queue drops and counts the block, and a reader that does not read for `patience` does not
    /// delay the end.
    pub fn live(out: impl Write + Send + 'static, patience: Duration) -> io::Result<Background> {
        Background::start(out, Some(patience))
    }

    /// For a replay: nothing is dropped, and a full queue blocks.
    pub fn whole(out: impl Write + Send + 'static) -> io::Result<Background> {
        Background::start(out, None)
    }

    fn start(mut out: impl Write + Send + 'static, patience: Option<Duration>) -> io::Result<Background> {
        let (queue, blocks) = mpsc::sync_channel::<Vec<u8>>(QUEUE);
        let (ends, ended) = mpsc::channel::<()>();
        let written = Arc::new(AtomicU64::new(0));
        let count = written.clone();
        let failed = Arc::new(AtomicBool::new(false));
        let error = Arc::new(Mutex::new(None));
        let (flag, slot) = (failed.clone(), error.clone());
        let thread = std::thread::Builder::new().name("output".into()).spawn(move || {
            let _ends = ends;
            for block in blocks {
                if let Err(e) = out.write_all(&block).and_then(|()| out.flush()) {
                    *slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(e);
                    flag.store(true, Ordering::Release);
                    return;
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        Ok(Background {
            queue: Some(queue),
            thread: Some(thread),
            patience,
            written,
            ended,
            failed,
            error,
            dropped: AtomicU64::new(0),
        })
    }

    /// Blocks not shown since the last call, because the reader was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Ends the output, and waits until the queue is written: a live observation not for a reader that stopped reading, because a stopped
    /// process must exit. The thread then lives until the process exits.
    ///
    /// # Errors
    /// The queue, or an earlier block, could not be written.
    pub fn finish(&mut self) -> io::Result<()> {
        drop(self.queue.take());
        if let Some(patience) = self.patience {
            let mut before = self.written.load(Ordering::Relaxed);
            while let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(patience) {
                let now = self.written.load(Ordering::Relaxed);
                if now == before {
                    tracing::warn!("the last part of the output is lost: the reader of the output does not read");
                    self.thread = None;
                    return Ok(());
                }
                before = now;
            }
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.failure().map_or(Ok(()), Err)
    }

    /// The error after which nothing more can be written.
    pub fn failure(&self) -> Option<io::Error> {
        self.failed.load(Ordering::Acquire).then(|| self.error())
    }

    fn error(&self) -> io::Error {
        let taken = self.error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        taken.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Background {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        if self.failed.load(Ordering::Acquire) {
            return Err(self.error());
        }
        let Some(queue) = &self.queue else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        if self.patience.is_none() {
            return match queue.send(block.to_vec()) {
                Ok(()) => Ok(block.len()),
                Err(_) => Err(self.error()),
            };
        }
        match queue.try_send(block.to_vec()) {
            Ok(()) => Ok(block.len()),
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                Ok(block.len())
            }
            Err(TrySendError::Disconnected(_)) => Err(self.error()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The output is complete also where a command ends early: with an error of its own.
impl Drop for Background {
    fn drop(&mut self) {
        if self.queue.is_some() {
            let _ = self.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    /// Blocks each write until the other side asks for it.
    struct Gate {
        open: mpsc::Receiver<()>,
        seen: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, block: &[u8]) -> io::Result<usize> {
            self.open.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            let _ = self.seen.send(block.to_vec());
            Ok(block.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stopped_reader_does_not_block_and_every_block_is_shown_or_counted() {
        let (open, gate) = mpsc::channel();
        let (seen, shown) = mpsc::channel();
        let mut out = Background::live(Gate { open: gate, seen }, LONG).unwrap();
        let blocks = QUEUE * 3;
        for n in 0..blocks {
            out.write_all(&n.to_le_bytes()).unwrap();
        }
        for _ in 0..blocks {
            open.send(()).unwrap();
        }
        let dropped = out.dropped();
        assert_eq!(out.dropped(), 0, "taken");
        drop(out);
        let shown = shown.iter().count();
        assert!(dropped > 0);
        assert_eq!(shown as u64 + dropped, blocks as u64);
    }

    #[test]
    fn a_reader_that_has_gone_is_a_broken_pipe() {
        let (open, gate) = mpsc::channel();
        let (seen, _shown) = mpsc::channel();
        let mut out = Background::live(Gate { open: gate, seen }, LONG).unwrap();
        drop(open);
        let error = loop {
            if let Err(e) = out.write_all(b"x") {
                break e;
            }
            std::thread::yield_now();
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_stopped_reader_does_not_delay_the_end() {
        let (_open, gate) = mpsc::channel();
        let (seen, shown) = mpsc::channel();
        let mut out = Background::live(Gate { open: gate, seen }, Duration::from_millis(10)).unwrap();
        out.write_all(b"x").unwrap();
        // The gate stays shut: without the limit, this would wait forever.
        drop(out);
        assert!(shown.try_recv().is_err());
    }

    #[test]
    fn a_replay_waits_for_its_reader_and_drops_nothing() {
        let (open, gate) = mpsc::channel();
        let (seen, shown) = mpsc::channel();
        let mut out = Background::whole(Gate { open: gate, seen }).unwrap();
        let blocks = QUEUE * 3;
        let writer = std::thread::spawn(move || {
            for n in 0..blocks {
                out.write_all(&n.to_le_bytes()).unwrap();
            }
            out.dropped()
        });
        for _ in 0..blocks {
            open.send(()).unwrap();
        }
        assert_eq!(writer.join().unwrap(), 0);
        assert_eq!(shown.iter().count(), blocks);
    }

    #[test]
    fn the_end_waits_for_the_last_block_and_returns_its_error() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                // Later than the last write of the caller.
                std::thread::yield_now();
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for mut out in [Background::whole(Full).unwrap(), Background::live(Full, LONG).unwrap()] {
            out.write_all(b"x").unwrap();
            assert_eq!(out.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
    }
}
