//! Traces, and log records of terminations, to a collector, by OTLP.
//!
//! [`Sink::offer`] never waits: traces go to a bounded queue, and dropped ones are counted by reason. One worker for each signal sends;
//! while the collector is down, slow or refuses, the worker tries again with growing waits.
//!
//! *Architecture invariant*: nothing here can block the agent, and no span or log record is lost without a count in [`SpanStats`].

mod answer;
mod destination;
mod exporters;
pub mod logs;
mod parcel;
mod queue;
mod signal;
pub(in crate::sink) mod transport;
mod worker;

#[cfg(test)]
#[path = "otlp/collector_tests.rs"]
pub(crate) mod collector;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

pub use answer::Reason;
pub(in crate::sink) use answer::{Failure, Refused};
pub use destination::{Backoff, Compression, Delivery, Destination, Identity, Protocol};
pub use exporters::Exporters;
pub use parcel::{Kept, Parcel, encode};
pub use queue::Offer;
pub use signal::Signal;
pub use transport::BuildError;

use crate::render::span::Trace;
use queue::Queue;

/// Starts a worker on the current Tokio runtime.
///
/// # Errors
/// A certificate or key that cannot be read or used. A collector that does not answer is not an error: it may start later.
///
/// # Panics
/// Outside a Tokio runtime.
pub fn start(signal: Signal, to: Destination, delivery: Delivery) -> Result<(Sink, ExportWorker), BuildError> {
    let queue = Arc::new(Queue::new(delivery.queue.max(1)));
    let stats = Arc::new(SpanStats::default());
    let sender = worker::Sender::new(signal, to, delivery, queue.clone(), stats.clone())?;
    let task = tokio::spawn(sender.run());
    let sink = Sink {
        signal,
        queue: queue.clone(),
        stats: stats.clone(),
    };
    Ok((
        sink,
        ExportWorker {
            signal,
            task,
            queue,
            stats,
        },
    ))
}

/// Takes traces, or what another signal sends of them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sink {
    signal: Signal,
    queue: Arc<Queue>,
    stats: Arc<SpanStats>,
}

impl Sink {
    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// Queues a trace without waiting. A full queue drops and counts its oldest trace; after a shutdown `trace` is dropped.
    pub fn offer(&self, trace: &Trace, verdict: &str) -> Offer {
        self.push(Parcel::of(trace, verdict))
    }

    /// As [`Sink::offer`]. A trace that is kept elsewhere, too, is not dropped by a full queue: it stays without its bytes.
    pub fn push(&self, parcel: Parcel) -> Offer {
        let (offer, dropped) = self.queue.push(parcel);
        match offer {
            Offer::Closed => {
                self.stats.shut_down(dropped.into_iter().collect());
            }
            Offer::Queued | Offer::OldestDropped { .. } => self.stats.give_up(SpanDropReason::QueueFull, &dropped),
        }
        offer
    }

    /// Drops and counts the traces that were only kept elsewhere, and are not any more.
    pub fn remove_lost(&self) {
        self.stats.give_up(SpanDropReason::JournalFull, &self.queue.remove_lost());
    }

    pub fn stats(&self) -> &SpanStats {
        &self.stats
    }

    /// Number of queued traces, without those being sent.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// How many of the queued traces are in memory with their bytes.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.queue.held()
    }

    /// Number of traces being sent.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.queue.unsettled()
    }
}

/// The sending side. Dropped without [`ExportWorker::shutdown`], it continues to send.
#[derive(Debug)]
pub struct ExportWorker {
    signal: Signal,
    task: JoinHandle<()>,
    queue: Arc<Queue>,
    stats: Arc<SpanStats>,
}

impl ExportWorker {
    /// Closes the queue, sends its traces for `deadline` at most, and counts the rest as dropped.
    pub async fn shutdown(mut self, deadline: Duration) {
        self.queue.close();
        match tokio::time::timeout(deadline, &mut self.task).await {
            Ok(Ok(())) => return,
            Ok(Err(panicked)) => tracing::error!(error = %panicked, "the OTLP worker failed"),
            Err(_) => {
                self.task.abort();
                // The counts are final only after the end of the task.
                let _ = (&mut self.task).await;
            }
        }
        let left = self.queue.drain();
        let all = left.len();
        let lost = self.stats.shut_down(left);
        let kept = all - lost.len();
        let lost = lost.iter().map(|parcel| parcel.items).sum::<u64>();
        let items = self.signal.items();
        if kept > 0 {
            tracing::warn!(
                lost,
                kept,
                "shut down before the collector accepted all {items}; those that are kept are sent after the next start"
            );
        } else {
            tracing::warn!(lost, "shut down before the collector accepted all {items}");
        }
    }
}

/// Why a span did not reach the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanDropReason {
    /// The queue was full, and the span's trace was the oldest.
    QueueFull,
    /// The collector refused the span for good, alone or as a part of a request (partial success).
    Rejected,
    /// The span came after the shutdown, or the shutdown's deadline passed first.
    Shutdown,
    /// The journal was full, and removed the trace before the collector accepted it.
    JournalFull,
    /// The trace was only in the journal, and its bytes there are damaged.
    JournalUnreadable,
}

impl SpanDropReason {
    pub const ALL: [SpanDropReason; 5] = [
        SpanDropReason::QueueFull,
        SpanDropReason::Rejected,
        SpanDropReason::Shutdown,
        SpanDropReason::JournalFull,
        SpanDropReason::JournalUnreadable,
    ];

    /// Name on metrics.
    pub const fn name(self) -> &'static str {
        match self {
            SpanDropReason::QueueFull => "queue_full",
            SpanDropReason::Rejected => "rejected",
            SpanDropReason::Shutdown => "shutdown",
            SpanDropReason::JournalFull => "journal_full",
            SpanDropReason::JournalUnreadable => "journal_unreadable",
        }
    }
}

/// Counters since the start: of spans or log records, except retries.
#[derive(Debug, Default)]
pub struct SpanStats {
    exported: AtomicU64,
    retries: AtomicU64,
    dropped: [AtomicU64; SpanDropReason::ALL.len()],
    /// Whole traces, or log records, by reason and verdict.
    given_up: Mutex<BTreeMap<(&'static str, Arc<str>), u64>>,
    last_failure: Mutex<Option<Reason>>,
}

impl SpanStats {
    /// Spans, or log records, that the collector accepted.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }
    /// Failed attempts that were, or will be, repeated.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }
    pub fn dropped(&self, reason: SpanDropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }

    /// Why the collector did not take a request, or a part of one, when that happened last.
    pub fn last_failure(&self) -> Option<Reason> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn failed(&self, reason: Reason) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// Traces that the collector never gets, by reason and the verdict's headline.
    pub fn given_up(&self) -> Vec<(&'static str, Arc<str>, u64)> {
        let counts = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|((reason, verdict), count)| (*reason, verdict.clone(), *count))
            .collect()
    }

    fn give_up<'a>(&self, reason: SpanDropReason, parcels: impl IntoIterator<Item = &'a Parcel>) {
        let mut counts = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        for parcel in parcels {
            self.count_dropped(reason, parcel.items);
            *counts.entry((reason.name(), parcel.verdict.clone())).or_default() += 1;
        }
    }

    /// Counts, and returns, what is lost with the process: what is kept elsewhere is sent after the next start.
    fn shut_down(&self, mut left: Vec<Parcel>) -> Vec<Parcel> {
        left.retain(|parcel| parcel.kept.as_ref().is_none_or(|kept| !kept.is_there()));
        for parcel in &left {
            let reason = match parcel.kept {
                Some(_) => SpanDropReason::JournalFull,
                None => SpanDropReason::Shutdown,
            };
            self.give_up(reason, [parcel]);
        }
        left
    }

    fn count_dropped(&self, reason: SpanDropReason, spans: u64) {
        self.dropped[reason as usize].fetch_add(spans, Ordering::Relaxed);
    }
}
