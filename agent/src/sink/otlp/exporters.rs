//! The sinks of all signals that are on.

use std::sync::Arc;

use bytes::Bytes;

use super::parcel::{Parcel, encode};
use super::{Signal, Sink, logs};
use crate::render::span::Trace;

/// None, one or two sinks: traces, logs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Exporters(Vec<Sink>);

impl Exporters {
    /// At most one sink of each signal.
    pub fn new(sinks: impl IntoIterator<Item = Sink>) -> Exporters {
        Exporters(sinks.into_iter().collect())
    }

    /// Nothing leaves the machine.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Sink> {
        self.0.iter()
    }

    pub fn of(&self, signal: Signal) -> Option<&Sink> {
        self.0.iter().find(|sink| sink.signal() == signal)
    }

    /// As [`Sink::offer`], to each sink.
    pub fn offer(&self, trace: &Trace, verdict: &str) {
        if self.is_empty() {
            return;
        }
        for (sink, parcel) in self.parcels(&encode(trace), trace.spans.len() as u64, verdict) {
            sink.push(parcel);
        }
    }

    /// What each sink sends of a trace. `request`: as [`encode`] returns it; `spans`: their number.
    pub fn parcels(&self, request: &Bytes, spans: u64, verdict: &str) -> Vec<(Sink, Parcel)> {
        let verdict: Arc<str> = verdict.into();
        let parcel = |sink: &Sink| {
            let (items, request) = match sink.signal() {
                Signal::Traces => (spans, request.clone()),
                // Our own bytes.
                Signal::Logs => (1, logs::of_spans(request).ok()??),
            };
            Some(Parcel {
                items,
                verdict: verdict.clone(),
                request: Some(request),
                kept: None,
            })
        };
        let parcels = self.0.iter().map(|sink| Some((sink.clone(), parcel(sink)?)));
        parcels.flatten().collect()
    }

    /// As [`Sink::remove_lost`], of each sink.
    pub fn remove_lost(&self) {
        self.0.iter().for_each(Sink::remove_lost);
    }

    /// Number of traces and log records that wait for the collector.
    pub fn queued(&self) -> usize {
        self.0.iter().map(Sink::queued).sum()
    }
}
