//! Terminations to spans: plain records with explicit ids and times, exported explicitly.
//!
//! *Architecture invariant*: pure. A trace depends on the termination, the machine's observation (host, boot, wall clock)
//! and the options only: rendering again gives the same spans, and a retry the same bytes.
//!
//! A count that is 0, a flag that is false, and what another attribute, event or span of the trace shows in detail are left out;
//! `render::attributes` defines what the absence of each means.

mod attributes;
mod evidence;
mod forward;
mod lost;
mod node;
mod observer;
mod pod;
mod resource;
mod stop;
mod traffic;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use epitaph_core::attribute::Subject;
use epitaph_core::ids::ContainerId;
use epitaph_core::input::Observation;
use epitaph_core::render::id;
use epitaph_core::report::{PodTermination, Termination};
use epitaph_core::text::escape;
use epitaph_core::time::{Boot, WallOffset};
use epitaph_core::verdict::Verdict;
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::render::attributes::key;

use attributes::Attributes;
pub use lost::{duplicate_run, node_lost, node_phase, pod_lost, shutting_down, volume_detach};
pub use node::{node_down, node_trace};
pub use observer::{add_clock_step, removal, replacement};

/// What a span is about, and the first word of its name. The name of these three ends with the verdict (`container.stop clean`), so
/// that a list of search results, or of operations, reads as a list of verdicts. The span's id is hashed from the kind alone.
const POD_TERMINATION: &str = "pod.termination";
const CONTAINER_STOP: &str = "container.stop";
const UNIT_STOP: &str = "unit.stop";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// One service for all terminations. None: a pod's service is the application's, the service of all others `epitaph`.
    pub service_name: Option<String>,
    /// `k8s.cluster.name`, which no API reports.
    pub cluster_name: Option<String>,
    /// The Kubernetes node that this machine is, if it is one.
    pub node_name: Option<String>,
    /// Attributes for the resource. An attribute of the same key that this module sets replaces them.
    pub resource_attributes: BTreeMap<String, String>,
    /// Only unclean terminations become traces: see [`Options::wants`].
    pub unclean_only: bool,
}

impl Options {
    pub fn wants(&self, verdict: &Verdict) -> bool {
        self.wants_unclean(verdict.unclean)
    }

    pub fn wants_unclean(&self, unclean: bool) -> bool {
        unclean || !self.unclean_only
    }
}

/// The spans of one trace with the same resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub resource: Resource,
    /// Parents before children.
    pub spans: Vec<SpanData>,
}

/// All spans of a termination that is reported alone: `container.stop` (or `unit.stop`) and its children. `container.stop`
/// is the root, unless the next agent reports the end of the pod.
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
        pod: None,
    };
    Trace {
        resource: resource::of(termination, observation, options),
        spans: stop::spans(termination, &at, parent),
    }
}

/// All spans of a pod's termination that the node's agent exports: `pod.termination` and its children.
pub fn pod_trace(termination: &PodTermination, observation: &Observation, options: &Options) -> Trace {
    let mut at = Frame {
        trace: id::of_pod(&termination.pod, &termination.boot_id),
        offset: observation.wall_offset,
        container: None,
        pod: Some(termination),
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

/// Extends the first span to cover all others: Jaeger takes a child outside of its parent for clock skew.
fn enclose(spans: &mut [SpanData]) {
    let begin = spans.iter().map(|span| span.start_time).min();
    let end = spans.iter().map(|span| span.end_time).max();
    if let ([first, ..], Some(begin), Some(end)) = (spans, begin, end) {
        first.start_time = begin;
        first.end_time = end;
    }
}

/// Jaeger 2 takes a span without a length for one that ends before its begin: it warns, and shows the span twice where it came twice.
const LEAST: Duration = Duration::from_nanos(1);

/// Context that all spans of one trace share.
struct Frame<'a> {
    trace: TraceId,
    /// The clock of the spans' times.
    offset: WallOffset,
    /// The container of the spans, if the trace has several.
    container: Option<&'a ContainerId>,
    /// The pod, if its root span is rendered with the same call: the root's attributes are not repeated below it.
    pod: Option<&'a PodTermination>,
}

impl Frame<'_> {
    fn wall(&self, at: Boot) -> SystemTime {
        self.offset.wall(at).system_time()
    }

    fn rfc3339(&self, at: Boot) -> String {
        self.offset.wall(at).rfc3339()
    }

    fn span(&self, name: impl Into<Cow<'static, str>>, parent: SpanId, begin: Boot, end: Boot, mut a: Attributes) -> SpanData {
        // The wait for a preStop hook begins with the deletion request, whose time is known as an interval, and ends with the
        // stop signal, whose time is exact.
        if end < begin {
            a.seconds(key::ENDED_BEFORE_BEGIN, begin.since(end));
        }
        let name = name.into();
        SpanData {
            span_context: self.context(self.span_id(&name)),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name,
            start_time: self.wall(begin),
            end_time: self.wall(end.max(begin.plus(LEAST))),
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

    /// A root or a stop: the name carries the verdict, the status is Error for an unclean verdict.
    fn judged(
        &self,
        kind: &'static str,
        parent: SpanId,
        (begin, end): (Boot, Boot),
        verdict: &Verdict,
        a: Attributes,
    ) -> SpanData {
        let mut span = self.span(kind, parent, begin, end, a);
        span.name = format!("{kind} {}", verdict.headline).into();
        if verdict.unclean {
            span.status = Status::error(escape(&verdict.sentence));
        }
        span
    }

    fn span_id(&self, name: &str) -> SpanId {
        match self.container {
            Some(container) => id::container_span_id(self.trace, name, container),
            None => id::span_id(self.trace, name, 0),
        }
    }

    fn context(&self, id: SpanId) -> SpanContext {
        // Without the flag the SDK drops the span silently.
        SpanContext::new(self.trace, id, TraceFlags::SAMPLED, false, TraceState::NONE)
    }
}

#[cfg(test)]
mod tests;
