//! Attributes of spans and resources, and the format of their values.

use std::time::Duration;

use epitaph_core::attribute::{Attribution, Runtime};
use epitaph_core::termination::{RaisedAgain, RefusedSource};
use epitaph_core::text::escape;
use epitaph_core::time::Boot;
use opentelemetry::{Array, KeyValue, StringValue, Value};

use crate::render::attributes::key;

/// Attributes in the order of adding.
#[derive(Default)]
pub(super) struct Attributes(Vec<KeyValue>);

impl Attributes {
    pub(super) fn text(&mut self, key: &'static str, value: impl Into<StringValue>) {
        self.0.push(KeyValue::new(key, value.into()));
    }
    pub(super) fn maybe(&mut self, key: &'static str, value: Option<impl Into<StringValue>>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }
    /// Text from outside epitaph: bounded, and without control characters.
    pub(super) fn data(&mut self, key: &'static str, value: &str) {
        self.text(key, data(value));
    }
    /// Left out if false.
    pub(super) fn flag(&mut self, key: &'static str, value: bool) {
        if value {
            self.0.push(KeyValue::new(key, value));
        }
    }
    /// Left out if 0.
    pub(super) fn some(&mut self, key: &'static str, value: u64) {
        if value > 0 {
            self.count(key, value);
        }
    }
    /// Added even if 0.
    pub(super) fn count(&mut self, key: &'static str, value: u64) {
        self.0.push(KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX)));
    }
    pub(super) fn signed(&mut self, key: &'static str, value: i64) {
        self.0.push(KeyValue::new(key, value));
    }
    /// In seconds.
    pub(super) fn nanos(&mut self, key: &'static str, nanos: i64) {
        self.0.push(KeyValue::new(key, nanos as f64 / 1e9));
    }
    /// Bounds of how far the API server's clock is ahead, in nanoseconds.
    pub(super) fn api_clock(&mut self, least: i64, most: i64) {
        self.nanos(key::API_CLOCK_AHEAD_LEAST, least);
        self.nanos(key::API_CLOCK_AHEAD_MOST, most);
    }
    pub(super) fn seconds(&mut self, key: &'static str, value: Duration) {
        self.0.push(KeyValue::new(key, value.as_secs_f64()));
    }
    /// Left out if the list is empty.
    pub(super) fn texts(&mut self, key: &'static str, values: impl IntoIterator<Item = String>) {
        let values: Vec<StringValue> = values.into_iter().map(Into::into).collect();
        if !values.is_empty() {
            self.0.push(KeyValue::new(key, Value::Array(Array::String(values))));
        }
    }
}

impl From<Attributes> for Vec<KeyValue> {
    fn from(a: Attributes) -> Vec<KeyValue> {
        a.0
    }
}

/// Longest kept text from outside epitaph, characters.
const DATA_LIMIT: usize = 256;

pub(super) fn data(text: &str) -> String {
    let mut out = escape(text);
    if let Some((end, _)) = out.char_indices().nth(DATA_LIMIT) {
        out.truncate(end);
    }
    out
}

/// `+30000.123 ms`, to the microsecond; negative for events before the begin (a probe's exec, a late record).
pub(super) fn after(at: Boot, begin: Boot) -> String {
    let (sign, distance) = if at < begin {
        ('-', begin.since(at))
    } else {
        ('+', at.since(begin))
    };
    format!("{sign}{}.{:03} ms", distance.as_millis(), distance.subsec_micros() % 1000)
}

pub(super) fn place(place: &Attribution) -> String {
    match place {
        Attribution::Subject(subject, _) => subject.to_string(),
        Attribution::Host => "host".into(),
        Attribution::Unknown(_) => "unknown".into(),
    }
}

/// The name of the span event.
pub(super) fn raised_again(raised: RaisedAgain) -> &'static str {
    match raised.discarded {
        true => "raised-again.discarded",
        false => "raised-again",
    }
}

pub(super) fn refused_source(source: RefusedSource) -> Option<&'static str> {
    match source {
        RefusedSource::ServerReset => Some("server-reset"),
        RefusedSource::ClientError => Some("client-error"),
        RefusedSource::None => None,
    }
}

pub(super) fn runtime_name(runtime: Runtime) -> Option<&'static str> {
    match runtime {
        Runtime::Containerd => Some("containerd"),
        Runtime::CriO => Some("cri-o"),
        Runtime::Docker => Some("docker"),
        Runtime::Podman => Some("podman"),
        Runtime::Unnamed => None,
    }
}
