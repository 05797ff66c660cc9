//! The sending loop: batches, retries, counts.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::answer::{CONTENT, Failure, NO_LOGS, Reason, Refused, Taken};
use super::destination::{Backoff, Delivery, Destination};
use super::parcel::{Kept, Parcel};
use super::queue::Queue;
use super::transport::{BuildError, Transport};
use super::{Signal, SpanDropReason, SpanStats};

/// For one request from the disk.
const READ: Duration = Duration::from_secs(5);

/// Most of a pause that a collector asks for.
const ASKED: Duration = Duration::from_secs(600);

pub(super) struct Sender {
    signal: Signal,
    transport: Transport,
    queue: Arc<Queue>,
    stats: Arc<SpanStats>,
    batch: usize,
    backoff: Backoff,
    /// The last attempt failed, which is logged once until the next success.
    failing: bool,
    /// The last request was refused for good, which is logged once until the next success.
    refused: bool,
    /// A read of a request from a disk that did not answer in time.
    hanging: Option<JoinHandle<io::Result<Bytes>>>,
    /// A request could not be read from the disk, which is logged once until one could.
    unreadable: bool,
}

impl Sender {
    pub(super) fn new(
        signal: Signal,
        to: Destination,
        delivery: Delivery,
        queue: Arc<Queue>,
        stats: Arc<SpanStats>,
    ) -> Result<Sender, BuildError> {
        Ok(Sender {
            signal,
            transport: Transport::new(to, signal.method())?,
            queue,
            stats,
            batch: delivery.batch.max(1),
            backoff: delivery.backoff,
            failing: false,
            refused: false,
            hanging: None,
            unreadable: false,
        })
    }

    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        let queue = self.queue.clone();
        while let Some(batch) = queue.take(self.batch).await {
            self.deliver(batch).await;
        }
    }

    async fn deliver(&mut self, batch: Vec<Parcel>) {
        let (batch, postponed) = self.read(batch).await;
        if postponed && batch.is_empty() {
            // Nothing else is to be sent: the disk gets time.
            let mut closing = self.queue.closing();
            if !*closing.borrow() {
                let _ = timeout(self.backoff.most, closing.changed()).await;
            }
        }
        let mut groups = VecDeque::from([batch]);
        let (mut left, mut alone_refused) = (Vec::new(), false);
        while let Some(mut group) = groups.pop_front() {
            if group.is_empty() {
                continue;
            }
            let items = items(&group);
            match self.until_answered(&request(&group)).await {
                Ok(Taken { refused_spans, message }) => {
                    let refused = refused_spans.min(items);
                    let reason = Reason {
                        why: match message.as_str() {
                            "" => format!(
                                "the collector refused a part of the {}, without a reason",
                                self.signal.items()
                            ),
                            message => format!(
                                "the collector refused a part of the {}: {}",
                                self.signal.items(),
                                message.escape_debug()
                            ),
                        },
                        remedy: CONTENT,
                    };
                    self.report_refusal(refused, &reason);
                    self.stats.exported.fetch_add(items - refused, Ordering::Relaxed);
                    self.stats.count_dropped(SpanDropReason::Rejected, refused);
                    answered(&group);
                }
                // One bad trace must not affect the others: each is sent separately.
                Err((_, true)) if group.len() > 1 => {
                    groups.extend(group.into_iter().map(|parcel| vec![parcel]));
                    continue;
                }
                // The sender or the destination is refused, or something before the collector does not let this request through. What the
                // journal has is sent again: credentials and routes are mended while the agent runs.
                Err((_, false)) if is_kept(&group) && group.len() > 1 && !alone_refused => {
                    let rest = group.split_off(1);
                    groups.push_front(rest);
                    groups.push_front(group);
                    continue;
                }
                Err((reason, false)) if is_kept(&group) => {
                    alone_refused = true;
                    self.stats.retries.fetch_add(1, Ordering::Relaxed);
                    self.report_trouble(reason);
                    left.extend(group);
                    continue;
                }
                Err((reason, data)) => {
                    self.report_refusal(items, &reason);
                    self.stats.give_up(SpanDropReason::Rejected, &group);
                    if data {
                        answered(&group);
                    }
                }
            }
            self.queue.settle(group.len());
        }
        if !left.is_empty() {
            self.postpone(left).await;
        }
    }

    /// To be sent again after all others, read from the journal; at the end by the next agent.
    async fn postpone(&mut self, mut left: Vec<Parcel>) {
        left.iter_mut().for_each(|parcel| parcel.request = None);
        self.stats.shut_down(self.queue.sort(&[], left));
        let mut closing = self.queue.closing();
        if !*closing.borrow() {
            let _ = timeout(jittered(self.backoff.most), closing.changed()).await;
        }
    }

    /// Reads the requests that are only kept elsewhere. Those that a disk in trouble does not give stay in the queue; returns also whether
    /// there are any.
    async fn read(&mut self, batch: Vec<Parcel>) -> (Vec<Parcel>, bool) {
        let mut whole = Vec::with_capacity(batch.len());
        let (mut postponed, mut damaged, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for mut parcel in batch {
            let Some(kept) = parcel.kept.clone().filter(|_| parcel.request.is_none()) else {
                whole.push(parcel);
                continue;
            };
            let error = match self.read_one(kept.clone()).await {
                Ok(request) => {
                    self.unreadable = false;
                    parcel.request = Some(request);
                    whole.push(parcel);
                    continue;
                }
                Err(error) => error,
            };
            if !kept.is_there() {
                removed.push(parcel);
                continue;
            }
            if !self.unreadable {
                tracing::warn!(%error, "a report that is in the journal cannot be read back");
                self.unreadable = true;
            }
            match error.kind() {
                io::ErrorKind::InvalidData => damaged.push(parcel),
                _ => postponed.push(parcel),
            }
        }
        // Without a pause in between: a shutdown counts what is in flight.
        let is_postponed = !postponed.is_empty();
        self.stats.shut_down(self.queue.sort(&whole, postponed));
        self.stats.give_up(SpanDropReason::JournalFull, &removed);
        self.stats.give_up(SpanDropReason::JournalUnreadable, &damaged);
        (whole, is_postponed)
    }

    /// A disk that does not answer holds up no other trace for long, and one thread at most.
    async fn read_one(&mut self, kept: Arc<dyn Kept>) -> io::Result<Bytes> {
        let no_answer = || io::Error::from(io::ErrorKind::TimedOut);
        if self.hanging.as_ref().is_some_and(|read| !read.is_finished()) {
            return Err(no_answer());
        }
        let mut read = tokio::task::spawn_blocking(move || kept.read());
        match timeout(self.backoff.most.min(READ), &mut read).await {
            Ok(done) => done.map_err(io::Error::other)?,
            Err(_) => {
                self.hanging = Some(read);
                Err(no_answer())
            }
        }
    }

    /// Repeats the same bytes until the collector accepts or refuses them.
    async fn until_answered(&mut self, request: &Bytes) -> Result<Taken, (Reason, bool)> {
        let mut closing = self.queue.closing();
        let mut wait = self.backoff.first;
        loop {
            let (reason, after) = match self.transport.send(request).await {
                Ok(taken) => {
                    self.report_recovery();
                    return Ok(taken);
                }
                Err(Failure::Never { mut reason, of }) => {
                    if (self.signal, of) == (Signal::Logs, Refused::Signal) {
                        reason.remedy = NO_LOGS;
                    }
                    let data = of == Refused::Data;
                    if data {
                        self.report_recovery();
                    }
                    return Err((reason, data));
                }
                Err(Failure::Later { reason, after }) => (reason, after),
            };
            self.stats.retries.fetch_add(1, Ordering::Relaxed);
            self.report_trouble(reason);
            let pause = pause(after, jittered(wait));
            wait = (wait * 2).min(self.backoff.most);
            if after.is_some_and(|after| !after.is_zero()) {
                // The collector's own wish holds during a shutdown, too: what is not sent by then is in the journal, or is counted.
                tokio::time::sleep(pause).await;
            } else if *closing.borrow() {
                // During a shutdown the deadline is near: no long waits.
                tokio::time::sleep(self.backoff.first.min(pause)).await;
            } else {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = closing.changed() => wait = self.backoff.first,
                }
            }
        }
    }

    fn report_trouble(&mut self, reason: Reason) {
        if !self.failing {
            tracing::warn!(
                collector = %self.transport.url(),
                reason = reason.why,
                remedy = reason.remedy,
                "the collector does not accept {}; retrying, a full queue drops the oldest",
                self.signal.name()
            );
        }
        self.failing = true;
        self.stats.failed(reason);
    }

    fn report_recovery(&mut self) {
        if self.failing {
            tracing::info!(queued = self.queue.len(), "the collector answers again");
        }
        self.failing = false;
    }

    fn report_refusal(&mut self, count: u64, reason: &Reason) {
        if count > 0 && !self.refused {
            tracing::warn!(
                collector = %self.transport.url(),
                count,
                reason = reason.why,
                remedy = reason.remedy,
                "the collector refused {} for good",
                self.signal.items()
            );
        }
        if count > 0 {
            self.stats.failed(reason.clone());
        }
        self.refused = count > 0;
    }
}

fn items(parcels: &[Parcel]) -> u64 {
    parcels.iter().map(|parcel| parcel.items).sum()
}

/// One request with all traces: the fields of a request are repeated ones.
fn request(parcels: &[Parcel]) -> Bytes {
    match parcels {
        [one] => one.request.clone().unwrap_or_default(),
        several => {
            let requests: Vec<&[u8]> = several.iter().filter_map(|parcel| parcel.request.as_deref()).collect();
            requests.concat().into()
        }
    }
}

/// In the journal, all of them.
fn is_kept(parcels: &[Parcel]) -> bool {
    parcels
        .iter()
        .all(|parcel| parcel.kept.as_ref().is_some_and(|kept| kept.is_there()))
}

fn answered(parcels: &[Parcel]) {
    parcels
        .iter()
        .filter_map(|parcel| parcel.kept.as_ref())
        .for_each(|kept| kept.answered());
}

/// A collector may ask for a longer pause, up to ten minutes, but not for a shorter one: a pause of zero would cause a busy loop.
pub(super) fn pause(asked: Option<Duration>, own: Duration) -> Duration {
    own.max(asked.unwrap_or_default().min(ASKED))
}

/// A random wait between half and all of `wait`, so that the agents of a cluster do not retry at the same time.
fn jittered(wait: Duration) -> Duration {
    // The standard library's only source of randomness.
    let chance = RandomState::new().hash_one(()) % 1024;
    wait.mul_f64(0.5 + chance as f64 / 2048.0)
}
