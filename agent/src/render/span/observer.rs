//! The observer's spans, children of the root that the agent of the pod's node exports; where the node was lost, of the observer's own
//! root (`lost`). Their times are the arrivals of the API
//! server's updates, on the observer's clock; an attribute has the distance to the API server's clock. A replacement that arrived late begins
//! with its pod's `creationTimestamp`.

use std::time::SystemTime;

use epitaph_core::observe::{EndpointRemoval, Moment, Replacement};
use epitaph_core::pod::{ApiClock, PodIdentity};
use epitaph_core::render::id;
use epitaph_core::time::{Wall, WallOffset};
use opentelemetry::KeyValue;
use opentelemetry::trace::{Event, SpanId};
use opentelemetry_sdk::trace::SpanData;

use super::attributes::Attributes;
use super::{Frame, Options, Trace, resource};
use crate::render::attributes::key;

const SECOND: u64 = 1_000_000_000;

/// `endpoint.removal`: one per pod and Service.
pub fn removal(r: &EndpointRemoval, offset: WallOffset, options: &Options) -> Trace {
    let at = frame(&r.pod, offset);
    let mut a = Attributes::default();
    a.data(key::K8S_SERVICE_NAME, &r.service);
    a.texts(key::SERVICE_PORTS, r.ports.iter().cloned());
    a.texts(key::ENDPOINT_ADDRESS_TYPES, r.address_types.iter().map(|t| t.to_string()));
    a.flag(key::ENDPOINT_PUBLISH_NOT_READY, r.publish_not_ready);
    a.flag(key::ENDPOINT_ALL_TERMINATING, r.all_terminating.is_some());
    clock(r.api_clock, &mut a);
    let root = root(&at, r.is_of_lost_node);
    let mut span = below(&at, "endpoint.removal", root, (r.begin, r.end), a);
    span.span_context = at.context(id::service_span_id(at.trace, "endpoint.removal", &r.service));
    span.events.events = events(
        &at,
        [
            ("endpoint.terminating", r.terminating),
            ("endpoint.not_ready", r.not_ready),
            ("service.all_terminating", r.all_terminating),
            ("endpoint.not_serving", r.not_serving),
            ("endpoint.gone", Some(r.end)),
        ],
        (r.begin, r.end),
    );
    Trace {
        resource: resource::of_far_pod(&r.pod, options),
        spans: vec![span],
    }
}

/// `replacement`: at most one per terminated pod.
pub fn replacement(r: &Replacement, offset: WallOffset, options: &Options) -> Trace {
    let at = frame(&r.pod, offset);
    let mut a = Attributes::default();
    a.text(key::REPLACEMENT_POD_NAME, r.by.name.clone());
    a.text(key::REPLACEMENT_POD_UID, r.by.uid.0.to_string());
    if !r.by.node.is_empty() {
        a.text(key::REPLACEMENT_NODE_NAME, r.by.node.clone());
    }
    a.text(key::REPLACEMENT_RULE, r.rule.name());
    a.flag(key::REPLACEMENT_READY, r.ready.is_some());
    clock(r.api_clock, &mut a);
    let root = root(&at, r.is_of_lost_node);
    let created = created(r, offset);
    let mut span = below(&at, "replacement", root, (created, r.end), a);
    span.events.events = events(
        &at,
        [
            ("pod.created", Some(created)),
            ("pod.scheduled", r.scheduled),
            ("volume.attached", r.attached),
            ("pod.ready", r.ready),
        ],
        (created, r.end),
    );
    Trace {
        resource: resource::of_far_pod(&r.pod, options),
        spans: vec![span],
    }
}

/// An update that arrives late shows a late creation: by the pod's `creationTimestamp`, which has whole seconds, the pod was there at the end
/// of that second. Only where the clocks are compared.
fn created(r: &Replacement, offset: WallOffset) -> Moment {
    let Some((Wall(second), clock)) = r.by.created.zip(r.api_clock) else {
        return r.created;
    };
    let latest = second
        .saturating_add(SECOND)
        .saturating_add_signed(clock.earliest.saturating_neg());
    let by_api = offset.boot(Wall(latest));
    match by_api < r.created.at {
        true => Moment { at: by_api, gap: None },
        false => r.created,
    }
}

/// `after`: by how many nanoseconds the observer's wall clock has stepped since that time.
pub fn add_clock_step(trace: &mut Trace, after: impl Fn(Wall) -> Option<i64>) {
    for span in &mut trace.spans {
        let begin = span.start_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let begin = Wall(u64::try_from(begin.as_nanos()).unwrap_or(u64::MAX));
        if let Some(step) = after(begin) {
            let mut a = Attributes::default();
            a.nanos(key::CLOCK_STEP, step);
            let added: Vec<KeyValue> = a.into();
            span.attributes.extend(added);
        }
    }
}

fn root(at: &Frame, is_of_lost_node: bool) -> SpanId {
    match is_of_lost_node {
        true => id::pod_lost(at.trace),
        false => id::pod_root(at.trace),
    }
}

pub(super) fn clock(clock: Option<ApiClock>, a: &mut Attributes) {
    if let Some(ApiClock { earliest, latest }) = clock {
        a.api_clock(earliest, latest);
    }
}

pub(super) fn frame(pod: &PodIdentity, offset: WallOffset) -> Frame<'static> {
    Frame {
        trace: id::pod_trace_id(&pod.uid, None),
        offset,
        container: None,
        pod: None,
    }
}

pub(super) fn below(
    at: &Frame,
    name: &'static str,
    parent: SpanId,
    (begin, end): (Moment, Moment),
    mut a: Attributes,
) -> SpanData {
    if let Some(gap) = begin.gap.max(end.gap) {
        a.seconds(key::WATCH_GAP, gap);
    }
    at.span(name, parent, begin.at, end.at, a)
}

/// The events within the span, in order of time; events of the same time in causal order.
pub(super) fn events(
    at: &Frame,
    all: impl IntoIterator<Item = (&'static str, Option<Moment>)>,
    (begin, end): (Moment, Moment),
) -> Vec<Event> {
    let mut events: Vec<(&'static str, Moment)> = all
        .into_iter()
        .filter_map(|(name, moment)| Some((name, moment?)))
        .filter(|(_, moment)| (begin.at..=end.at).contains(&moment.at))
        .collect();
    events.sort_by_key(|(_, moment)| moment.at);
    let event = |(name, moment): (&'static str, Moment)| {
        let mut a = Attributes::default();
        if let Some(gap) = moment.gap {
            a.seconds(key::WATCH_GAP, gap);
        }
        Event::new(name, at.wall(moment.at), a.into(), 0)
    };
    events.into_iter().map(event).collect()
}
