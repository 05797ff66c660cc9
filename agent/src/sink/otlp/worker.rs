//! The sending loop: batches, retries, counts.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use prost::Message as _;

use super::destination::{Backoff, Delivery, Destination};
use super::queue::Queue;
use super::transport::{BuildError, Failure, TRACES, Taken, Transport, UNREACHABLE};
use super::{SpanDropReason, SpanStats};
use crate::render::span::Trace;

pub(super) struct Sender {
    transport: Transport,
    queue: Arc<Queue>,
    stats: Arc<SpanStats>,
    batch: usize,
    backoff: Backoff,
    /// The last attempt failed, which is logged once until the next success.
    failing: bool,
    /// The last request was refused for good, which is logged once until the next success.
    refused: bool,
}

impl Sender {
    pub(super) fn new(
        to: Destination,
        delivery: Delivery,
        queue: Arc<Queue>,
        stats: Arc<SpanStats>,
    ) -> Result<Sender, BuildError> {
        Ok(Sender {
            transport: Transport::new(to, TRACES)?,
            queue,
            stats,
            batch: delivery.batch.max(1),
            backoff: delivery.backoff,
            failing: false,
            refused: false,
        })
    }

    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        let (queue, stats) = (self.queue.clone(), self.stats.clone());
        let taken = |batch: &[Trace]| stats.in_flight.store(spans(batch), Ordering::Relaxed);
        while let Some(batch) = queue.take(self.batch, taken).await {
            self.deliver(batch).await;
        }
    }

    async fn deliver(&mut self, batch: Vec<Trace>) {
        let mut groups = VecDeque::from([batch]);
        while let Some(group) = groups.pop_front() {
            let spans = spans(&group);
            match self.until_answered(&encode(&group)).await {
                Ok(Taken { refused_spans, message }) => {
                    let refused = refused_spans.min(spans);
                    self.report_refusal(refused, &message);
                    self.stats.exported.fetch_add(spans - refused, Ordering::Relaxed);
                    self.stats.count_dropped(SpanDropReason::Rejected, refused);
                }
                // One bad trace must not affect the others: each is sent separately.
                Err((_, true)) if group.len() > 1 => {
                    groups.extend(group.into_iter().map(|trace| vec![trace]));
                    continue;
                }
                Err((why, _)) => {
                    self.report_refusal(spans, &why);
                    self.stats.count_dropped(SpanDropReason::Rejected, spans);
                }
            }
            self.stats.in_flight.fetch_sub(spans, Ordering::Relaxed);
        }
    }

    /// Repeats the same bytes until the collector accepts or refuses them.
    async fn until_answered(&mut self, request: &Bytes) -> Result<Taken, (String, bool)> {
        let mut closing = self.queue.closing();
        let mut wait = self.backoff.first;
        loop {
            let (why, after) = match self.transport.send(request).await {
                Ok(taken) => {
                    self.report_recovery();
                    return Ok(taken);
                }
                Err(Failure::Never { why, data }) => {
                    self.report_recovery();
                    return Err((why, data));
                }
                Err(Failure::Later { why, after }) => (why, after),
            };
            self.stats.retries.fetch_add(1, Ordering::Relaxed);
            self.report_trouble(&why);
            let pause = pause(after, jittered(wait), self.backoff.most);
            wait = (wait * 2).min(self.backoff.most);
            if *closing.borrow() {
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

    fn report_trouble(&mut self, why: &str) {
        if !self.failing {
            tracing::warn!(
                collector = %self.transport.url(),
                reason = why,
                remedy = UNREACHABLE,
                "the collector does not accept traces; retrying, a full queue drops the oldest"
            );
        }
        self.failing = true;
    }

    fn report_recovery(&mut self) {
        if self.failing {
            tracing::info!(queued = self.queue.len(), "the collector answers again");
        }
        self.failing = false;
    }

    fn report_refusal(&mut self, spans: u64, why: &str) {
        if spans > 0 && !self.refused {
            tracing::warn!(spans, reason = why, "the collector refused spans for good");
        }
        self.refused = spans > 0;
    }
}

fn spans(traces: &[Trace]) -> u64 {
    traces.iter().map(|trace| trace.spans.len() as u64).sum()
}

/// The request's bytes, the same for the same traces in every process.
pub(super) fn encode(traces: &[Trace]) -> Bytes {
    let resource_spans = traces
        .iter()
        .flat_map(|trace| {
            let mut resource = ResourceAttributesWithSchema::from(&trace.resource);
            // A `Resource` is a hash map: the order differs between instances.
            resource.attributes.0.sort_by(|a, b| a.key.cmp(&b.key));
            group_spans_by_resource_and_scope(trace.spans.clone(), &resource)
        })
        .collect();
    ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
}

/// A collector may ask for a longer pause, up to `most`, but not for a shorter one: a pause of zero would cause a busy loop.
pub(super) fn pause(asked: Option<Duration>, own: Duration, most: Duration) -> Duration {
    own.max(asked.unwrap_or_default()).min(most)
}

/// A random wait between half and all of `wait`, so that the agents of a cluster do not retry at the same time.
fn jittered(wait: Duration) -> Duration {
    // The standard library's only source of randomness.
    let chance = RandomState::new().hash_one(()) % 1024;
    wait.mul_f64(0.5 + chance as f64 / 2048.0)
}
