//! Traces to a collector, by OTLP.
//!
//! [`Sink::offer`] never waits: a bounded queue stands between the agent and the collector, and what does not fit is
//! counted by reason. One worker sends; while the collector is down, slow or refusing it tries again with growing waits.
//!
//! *Architecture invariant*: nothing here can hold the agent up, and no span is lost without a count in [`Stats`].

mod config;
mod queue;
pub(in crate::sink) mod transport;
mod worker;

#[cfg(test)]
pub(crate) mod collector;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

pub use config::{Backoff, Compression, ConfigError, Headers, Identity, OtlpConfig, Protocol, Settings};
pub use queue::Offer;
pub use transport::BuildError;

use crate::render::span::Trace;
use queue::Queue;

/// Starts a worker on the current Tokio runtime.
///
/// # Errors
/// A certificate or key that cannot be read or used. A collector that is not there is no error: it may come.
///
/// # Panics
/// Outside a Tokio runtime.
pub fn start(settings: Settings) -> Result<(Sink, Worker), BuildError> {
    let queue = Arc::new(Queue::new(settings.queue));
    let stats = Arc::new(Stats::default());
    let worker = worker::Worker::new(settings, queue.clone(), stats.clone())?;
    let task = tokio::spawn(worker.run());
    let sink = Sink {
        queue: queue.clone(),
        stats: stats.clone(),
    };
    Ok((sink, Worker { task, queue, stats }))
}

/// Where to put traces. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sink {
    queue: Arc<Queue>,
    stats: Arc<Stats>,
}

impl Sink {
    /// Queues a trace, at once. Where the queue is full the oldest trace goes, counted; after a shutdown this one does.
    pub fn offer(&self, trace: Trace) -> Offer {
        let spans = trace.spans.len() as u64;
        let offer = self.queue.push(trace);
        match offer {
            Offer::Queued => {}
            Offer::OldestDropped { spans } => self.stats.count_dropped(DropReason::QueueFull, spans),
            Offer::Closed => self.stats.count_dropped(DropReason::Shutdown, spans),
        }
        offer
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Traces that wait; those being sent are not among them.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }
}

/// The sending side; dropped without [`Worker::shutdown`] it goes on sending.
#[derive(Debug)]
pub struct Worker {
    task: JoinHandle<()>,
    queue: Arc<Queue>,
    stats: Arc<Stats>,
}

impl Worker {
    /// Takes no more, sends what waits for `deadline` at most, and counts the rest as dropped.
    pub async fn shutdown(mut self, deadline: Duration) {
        self.queue.close();
        match tokio::time::timeout(deadline, &mut self.task).await {
            Ok(Ok(())) => return,
            Ok(Err(panicked)) => tracing::error!(error = %panicked, "the OTLP worker failed"),
            Err(_) => {
                self.task.abort();
                // Only once the task is gone do the counts stand still.
                let _ = (&mut self.task).await;
            }
        }
        let left = self.queue.drain() + self.stats.in_flight.swap(0, Ordering::Relaxed);
        self.stats.count_dropped(DropReason::Shutdown, left);
        tracing::warn!(spans = left, "shut down before the collector took all spans");
    }
}

/// Why a span did not reach the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The queue was full and it was the oldest.
    QueueFull,
    /// The collector refused it for good, alone or as a part of a request (partial success).
    Rejected,
    /// It came after the shutdown, or the shutdown's deadline passed first.
    Shutdown,
}

impl DropReason {
    pub const ALL: [DropReason; 3] = [DropReason::QueueFull, DropReason::Rejected, DropReason::Shutdown];

    /// Name on metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue_full",
            DropReason::Rejected => "rejected",
            DropReason::Shutdown => "shutdown",
        }
    }
}

/// Counters since the start; all of spans, but for retries.
#[derive(Debug, Default)]
pub struct Stats {
    exported: AtomicU64,
    retries: AtomicU64,
    in_flight: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl Stats {
    /// Spans that the collector took.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }
    /// Attempts that failed and were, or will be, made again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }

    fn count_dropped(&self, reason: DropReason, spans: u64) {
        self.dropped[reason as usize].fetch_add(spans, Ordering::Relaxed);
    }
}
