//! Terminations to spans: plain records, with ids and times of our choosing, exported explicitly.
//!
//! *Architecture invariant*: pure. A trace depends on the termination, the machine's observation (host, boot, wall clock)
//! and the options, on nothing else: rendering again gives the same spans, and a retry the same bytes.

mod attributes;
mod observer;
mod pod;
mod resource;
mod stop;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::attribute::Subject;
use crate::ids::ContainerId;
use crate::input::Observation;
use crate::render::attributes::key;
use crate::render::id;
use crate::report::PodTermination;
use crate::report::Termination;
use crate::time::{Boot, WallOffset};
use crate::verdict::Verdict;

use attributes::Attributes;
pub use observer::{removal, replacement};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// One service for all terminations. None: a pod's are its application's, the others `epitaph`'s.
    pub service_name: Option<String>,
    /// `k8s.cluster.name`: no API tells it.
    pub cluster_name: Option<String>,
    /// Of the resource, under those that this room knows better.
    pub resource_attributes: BTreeMap<String, String>,
    /// Only unclean deaths become traces: ask [`Options::wants`].
    pub unclean_only: bool,
}

impl Options {
    pub fn wants(&self, verdict: &Verdict) -> bool {
        verdict.unclean || !self.unclean_only
    }
}

/// The spans of one trace that have one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub resource: Resource,
    /// Parents before children.
    pub spans: Vec<SpanData>,
}

/// All spans of a death that is told by itself: `container.stop` (or `unit.stop`) and, below it, the preStop hook, the
/// stop signal's way to the exit and what clients saw. It is the root, unless whoever observes next tells the pod's.
pub fn trace(termination: &Termination, observation: &Observation, options: &Options) -> Trace {
    let trace = id::of(termination);
    let (container, parent) = match termination.of_ending_pod {
        true => (container(termination), id::pod_root(trace)),
        false => (None, SpanId::INVALID),
    };
    let at = Frame {
        trace,
        offset: observation.wall_offset,
        container,
    };
    Trace {
        resource: resource::of(termination, observation, options),
        spans: stop::spans(termination, &at, parent),
    }
}

/// All spans of a pod's end that are this node's to tell: `pod.termination` and, below it, each container's.
pub fn pod_trace(termination: &PodTermination, observation: &Observation, options: &Options) -> Trace {
    let mut at = Frame {
        trace: id::of_pod(&termination.pod, &termination.boot_id),
        offset: observation.wall_offset,
        container: None,
    };
    let root = pod::span(termination, &at);
    let parent = root.span_context.span_id();
    let mut spans = vec![root];
    for of in &termination.containers {
        at.container = container(of);
        spans.extend(stop::spans(of, &at, parent));
    }
    enclose(&mut spans);
    Trace {
        resource: resource::of_pod(termination, options),
        spans,
    }
}

fn container(termination: &Termination) -> Option<&ContainerId> {
    match &termination.subject {
        Subject::Container { id, .. } => Some(id),
        Subject::Unit { .. } => None,
    }
}

/// The first span holds all others: a parent that its children overlap would be taken for a skewed clock.
fn enclose(spans: &mut [SpanData]) {
    let begin = spans.iter().map(|span| span.start_time).min();
    let end = spans.iter().map(|span| span.end_time).max();
    if let ([first, ..], Some(begin), Some(end)) = (spans, begin, end) {
        first.start_time = begin;
        first.end_time = end;
    }
}

/// The trace that spans belong to, the clock that their times are on, and the container that they are about where the trace
/// has several.
struct Frame<'a> {
    trace: TraceId,
    offset: WallOffset,
    container: Option<&'a ContainerId>,
}

impl Frame<'_> {
    fn wall(&self, at: Boot) -> SystemTime {
        self.offset.wall(at).system_time()
    }

    fn rfc3339(&self, at: Boot) -> String {
        self.offset.wall(at).rfc3339()
    }

    fn span(&self, name: impl Into<Cow<'static, str>>, parent: SpanId, begin: Boot, end: Boot, mut a: Attributes) -> SpanData {
        // The request that a preStop's wait begins with is known within an interval, the stop signal that ends it exactly.
        if end < begin {
            a.seconds(key::ENDED_BEFORE_BEGIN, begin.since(end));
        }
        let name = name.into();
        let id = match self.container {
            Some(container) => id::container_span_id(self.trace, &name, container),
            None => id::span_id(self.trace, &name, 0),
        };
        SpanData {
            span_context: SpanContext::new(
                self.trace,
                id,
                // Without this flag the SDK drops the span and says nothing.
                TraceFlags::SAMPLED,
                false,
                TraceState::NONE,
            ),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name,
            start_time: self.wall(begin),
            end_time: self.wall(end.max(begin)),
            attributes: a.into(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("epitaph")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }
}

#[cfg(test)]
mod tests;
