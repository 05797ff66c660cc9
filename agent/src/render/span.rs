//! Terminations to spans: plain records, with ids and times of our choosing, exported explicitly.
//!
//! *Architecture invariant*: pure. A trace depends on the termination, the machine's observation (host, boot, wall clock)
//! and the options, on nothing else: rendering again gives the same spans, and a retry the same bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{ResourceDetector as _, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::attribute::{Attribution, Runtime, Subject};
use crate::event::{Boot, Disposition, ExitStatus, Observation, SignalResult, TargetState, WallOffset};
use crate::render::attributes::key;
use crate::render::id;
use crate::termination::{Actor, Count, Gaps, RefusedSource, Role, Stop, Termination, Traffic};

/// The semantic conventions that our keys follow.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.42.0";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// In place of `epitaph`.
    pub service_name: Option<String>,
    /// Of the resource, under those that this room knows better.
    pub resource_attributes: BTreeMap<String, String>,
    /// Only unclean deaths become traces: ask [`Options::wants`].
    pub unclean_only: bool,
}

impl Options {
    pub fn wants(&self, termination: &Termination) -> bool {
        termination.verdict.unclean || !self.unclean_only
    }
}

/// The spans of one trace that have one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub resource: Resource,
    /// Parents before children.
    pub spans: Vec<SpanData>,
}

/// All spans of a death: `container.stop` (or `unit.stop`) and, below it, the stop signal's way to the exit and what
/// clients saw.
pub fn trace(termination: &Termination, observation: &Observation, options: &Options) -> Trace {
    let at = Frame {
        trace: id::of(termination),
        offset: observation.wall_offset,
    };
    // The root of a trace without Kubernetes; a pod's `pod.termination` will be its parent.
    let stop = stop_span(termination, &at, SpanId::INVALID);
    let parent = stop.span_context.span_id();
    let mut spans = vec![stop];
    spans.extend(
        termination
            .stop
            .as_ref()
            .map(|stop| signal_span(stop, termination, &at, parent)),
    );
    spans.extend(traffic_spans(&termination.traffic, &at, parent));
    // The kernel closes the sockets after the process's end was recorded: a parent that ends before its children would be
    // taken for a skewed clock. `SIGTERM → exit` keeps the exact end.
    spans[0].end_time = spans.iter().map(|span| span.end_time).max().unwrap_or(spans[0].end_time);
    Trace {
        resource: resource(termination, observation, options),
        spans,
    }
}

fn resource(termination: &Termination, observation: &Observation, options: &Options) -> Resource {
    let instance = match &termination.subject {
        Subject::Container { id, .. } => id.0.clone(),
        Subject::Unit { name } => name.clone(),
    };
    let configured = options.resource_attributes.iter();
    let configured = configured.map(|(k, v)| KeyValue::new(k.clone(), v.clone()));
    let ours = [
        KeyValue::new(
            key::SERVICE_NAME,
            options.service_name.clone().unwrap_or_else(|| "epitaph".into()),
        ),
        KeyValue::new(key::SERVICE_INSTANCE_ID, instance),
        KeyValue::new(key::HOST_NAME, observation.host.clone()),
        KeyValue::new(key::OS_TYPE, "linux"),
        KeyValue::new(key::BOOT_ID, termination.key.boot_id.clone()),
    ];
    let sdk = TelemetryResourceDetector.detect();
    let sdk = sdk.iter().map(|(k, v)| KeyValue::new(k.clone(), v.clone()));
    // Of two with the same key the last one stays.
    Resource::builder_empty()
        .with_schema_url(configured.chain(ours).chain(sdk), SCHEMA_URL)
        .build()
}

fn stop_span(t: &Termination, at: &Frame, parent: SpanId) -> SpanData {
    let name = match t.subject {
        Subject::Container { .. } => "container.stop",
        Subject::Unit { .. } => "unit.stop",
    };
    let mut a = Attributes::default();
    subject(t, &mut a);
    main_process(t, at, &mut a);
    verdict(t, &mut a);
    if let Some(stop) = &t.stop {
        stop_signal(stop, &mut a);
    }
    if let Some(kill) = &t.kill {
        kill_sender(&kill.sender, &mut a);
        a.bool(key::KILL_BY_CGROUP, kill.cgroup_kill);
    }
    if !t.oom.is_empty() {
        a.count(key::OOM_KILLED, t.oom.len() as u64);
    }
    a.count(key::OTHER_EXITS, t.other_exits);
    connections(&t.traffic, &mut a);
    gaps(&t.gaps, &mut a);

    let mut span = at.span(name, parent, t.begin, t.end, a);
    span.events.events = events(t, at);
    if t.verdict.unclean {
        span.status = Status::error(t.verdict.sentence.clone());
    }
    span
}

/// From the stop signal to the end of the main process.
fn signal_span(stop: &Stop, t: &Termination, at: &Frame, parent: SpanId) -> SpanData {
    let mut a = Attributes::default();
    stop_signal(stop, &mut a);
    at.span(
        format!("{} → exit", stop.signal),
        parent,
        stop.at,
        t.exit.map_or(t.end, |exit| exit.at),
        a,
    )
}

fn traffic_spans(traffic: &Traffic, at: &Frame, parent: SpanId) -> impl Iterator<Item = SpanData> {
    let spans = [
        ("refused connections", key::CONNECTIONS_REFUSED, traffic.refused),
        ("reset connections", key::CONNECTIONS_RESET, traffic.reset),
        ("cut connections", key::CONNECTIONS_CUT, traffic.cut),
    ];
    let unanswered = traffic.cut_unanswered;
    let source = refused_source(traffic.refused_source);
    spans
        .into_iter()
        .filter(|(.., count)| count.count > 0)
        .map(move |(name, key, Count { count, first, last })| {
            let mut a = Attributes::default();
            a.count(key, count);
            match key {
                key::CONNECTIONS_CUT => a.count(key::CONNECTIONS_CUT_UNANSWERED, unanswered),
                key::CONNECTIONS_REFUSED => a.maybe(key::CONNECTIONS_REFUSED_SOURCE, source),
                _ => {}
            }
            a.text(key::NETWORK_TRANSPORT, "tcp");
            at.span(name, parent, first, last, a)
        })
}

/// Moments, in order of time; those of one moment in the order in which one leads to the next.
fn events(t: &Termination, at: &Frame) -> Vec<Event> {
    let mut events: Vec<(Boot, &'static str, Attributes)> = Vec::new();
    if let Some(stop) = &t.stop {
        if stop.result == SignalResult::Ignored {
            let mut a = Attributes::default();
            a.text(key::STOP_SIGNAL, stop.signal.to_string());
            a.text(key::STOP_DISPOSITION, disposition(stop.disposition));
            events.push((stop.at, "stop-signal-ignored", a));
        }
        if let Some(entered) = stop.handler_entered {
            let mut a = Attributes::default();
            a.text(key::STOP_SIGNAL, stop.signal.to_string());
            events.push((entered, "handler.entered", a));
        }
    }
    for listener in &t.traffic.listeners {
        let mut a = Attributes::default();
        a.text(key::SERVER_ADDRESS, listener.local.ip().to_string());
        a.count(key::SERVER_PORT, listener.local.port().into());
        a.text(key::NETWORK_TRANSPORT, "tcp");
        a.bool(key::LISTENER_BY_EXIT, listener.by_exit);
        events.push((listener.at, "listener.closed", a));
    }
    for oom in &t.oom {
        let mut a = Attributes::default();
        a.count(key::PROCESS_PID, oom.tgid.0.into());
        a.text(key::PROCESS_EXECUTABLE_NAME, oom.comm.to_string());
        a.bool(key::OOM_MAIN, oom.is_main);
        events.push((oom.at, "oom", a));
    }
    if let Some(kill) = &t.kill {
        let mut a = Attributes::default();
        kill_sender(&kill.sender, &mut a);
        events.push((kill.at, "SIGKILL", a));
    }
    events.sort_by_key(|(when, ..)| *when);
    events
        .into_iter()
        .map(|(when, name, a)| Event::new(name, at.wall(when), a.0, 0))
        .collect()
}

fn subject(t: &Termination, a: &mut Attributes) {
    match &t.subject {
        Subject::Container { id, runtime, .. } => {
            a.text(key::CONTAINER_ID, id.0.clone());
            a.maybe(key::CONTAINER_RUNTIME_NAME, runtime_name(*runtime));
        }
        Subject::Unit { name } => a.text(key::UNIT_NAME, name.clone()),
    }
    a.maybe(key::CGROUP_PATH, t.cgroup_path.clone());
}

fn main_process(t: &Termination, at: &Frame, a: &mut Attributes) {
    if let Some(main) = &t.main {
        a.count(key::PROCESS_PID, main.tgid.0.into());
        a.count(key::PROCESS_VPID, main.ns_pid.into());
        a.text(key::PROCESS_EXECUTABLE_NAME, main.comm.to_string());
        if main.start != Boot(0) {
            a.text(
                key::PROCESS_CREATION_TIME,
                humantime::format_rfc3339_nanos(at.wall(main.start)).to_string(),
            );
        }
    }
    match t.exit.map(|exit| exit.status) {
        Some(ExitStatus::Exited(code)) => a.count(key::PROCESS_EXIT_CODE, code.into()),
        Some(ExitStatus::Signaled { signal, core_dumped }) => {
            a.text(key::STATUS_SIGNAL, signal.to_string());
            a.bool(key::STATUS_CORE_DUMPED, core_dumped);
        }
        None => {}
    }
}

fn verdict(t: &Termination, a: &mut Attributes) {
    let v = &t.verdict;
    a.text(key::VERDICT, v.headline);
    a.text(key::CAUSE, kebab(&v.cause));
    a.text(key::EXIT, kebab(&v.exit));
    a.text(key::TRAFFIC, kebab(&v.traffic));
    a.bool(key::UNCLEAN, v.unclean);
    a.text(key::SEVERITY, kebab(&v.severity));
    a.text(key::SENTENCE, v.sentence.clone());
    a.maybe(key::REMEDY, v.remedy.clone());
    a.texts(
        key::EVIDENCE,
        v.evidence
            .iter()
            .map(|e| format!("{} {}: {}", after(e.at, t.begin), e.source.name(), e.text)),
    );
}

/// `+30000.123 ms`, to the microsecond; negative for what came before the begin (a probe's exec, a late record).
fn after(at: Boot, begin: Boot) -> String {
    let (sign, distance) = if at < begin {
        ('-', begin.since(at))
    } else {
        ('+', at.since(begin))
    };
    format!("{sign}{}.{:03} ms", distance.as_millis(), distance.subsec_micros() % 1000)
}

fn stop_signal(stop: &Stop, a: &mut Attributes) {
    a.text(key::STOP_SIGNAL, stop.signal.to_string());
    a.text(
        key::STOP_RESULT,
        match stop.result {
            SignalResult::Delivered => "delivered",
            SignalResult::Ignored => "ignored",
            SignalResult::AlreadyPending => "already-pending",
            SignalResult::OverflowFail => "overflow-fail",
            SignalResult::LoseInfo => "lose-info",
        },
    );
    a.text(key::STOP_DISPOSITION, disposition(stop.disposition));
    a.texts(key::STOP_STATE, states(stop.state));
    if stop.repeated > 0 {
        a.count(key::STOP_REPEATED, stop.repeated.into());
    }
    let s = &stop.sender;
    a.count(key::STOP_SENDER_PID, s.tgid.0.into());
    a.text(key::STOP_SENDER_COMM, s.comm.to_string());
    a.count(key::STOP_SENDER_PARENT_PID, s.parent.0.into());
    a.text(key::STOP_SENDER_PARENT_COMM, s.parent_comm.to_string());
    a.text(key::STOP_SENDER_ROLE, role(s.role));
    a.text(key::STOP_SENDER_PLACE, place(&s.place));
}

fn kill_sender(s: &Actor, a: &mut Attributes) {
    a.count(key::KILL_SENDER_PID, s.tgid.0.into());
    a.text(key::KILL_SENDER_COMM, s.comm.to_string());
    a.count(key::KILL_SENDER_PARENT_PID, s.parent.0.into());
    a.text(key::KILL_SENDER_PARENT_COMM, s.parent_comm.to_string());
    a.text(key::KILL_SENDER_ROLE, role(s.role));
    a.text(key::KILL_SENDER_PLACE, place(&s.place));
}

fn connections(traffic: &Traffic, a: &mut Attributes) {
    a.bool(key::CONNECTIONS_OBSERVED, traffic.observed);
    if !traffic.observed {
        return;
    }
    a.count(key::CONNECTIONS_ACCEPTED, traffic.accepted.count);
    a.count(key::CONNECTIONS_REFUSED, traffic.refused.count);
    a.maybe(key::CONNECTIONS_REFUSED_SOURCE, refused_source(traffic.refused_source));
    a.count(key::CONNECTIONS_RESET, traffic.reset.count);
    a.count(key::CONNECTIONS_CUT, traffic.cut.count);
    a.count(key::CONNECTIONS_CUT_UNANSWERED, traffic.cut_unanswered);
    a.count(key::CONNECTIONS_IDLE_CLOSED, traffic.idle_closed.count);
}

fn gaps(gaps: &Gaps, a: &mut Attributes) {
    a.texts(key::LOST, gaps.lost.iter().map(|(kind, count)| format!("{kind}={count}")));
    if gaps.over_cap > 0 {
        a.count(key::OVER_CAP, gaps.over_cap);
    }
    a.bool(key::LATE_START, gaps.late_start);
    a.texts(key::INACTIVE_PROBES, gaps.inactive_probes.iter().cloned());
}

/// The trace that spans belong to, and the clock that their times are on.
struct Frame {
    trace: TraceId,
    offset: WallOffset,
}

impl Frame {
    fn wall(&self, at: Boot) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.offset.wall(at).0)
    }

    fn span(&self, name: impl Into<Cow<'static, str>>, parent: SpanId, begin: Boot, end: Boot, a: Attributes) -> SpanData {
        let name = name.into();
        SpanData {
            span_context: SpanContext::new(
                self.trace,
                id::span_id(self.trace, &name, 0),
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
            attributes: a.0,
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

/// Attributes in the order in which they were added.
#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn text(&mut self, key: &'static str, value: impl Into<StringValue>) {
        self.0.push(KeyValue::new(key, value.into()));
    }
    fn maybe(&mut self, key: &'static str, value: Option<impl Into<StringValue>>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }
    fn bool(&mut self, key: &'static str, value: bool) {
        self.0.push(KeyValue::new(key, value));
    }
    fn count(&mut self, key: &'static str, value: u64) {
        self.0.push(KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX)));
    }
    /// Nothing where there is nothing to list.
    fn texts(&mut self, key: &'static str, values: impl IntoIterator<Item = String>) {
        let values: Vec<StringValue> = values.into_iter().map(Into::into).collect();
        if !values.is_empty() {
            self.0.push(KeyValue::new(key, Value::Array(Array::String(values))));
        }
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Runtime => "runtime",
        Role::Itself => "itself",
        Role::Inside => "inside",
        Role::Other => "other",
        Role::Kernel => "kernel",
    }
}

fn place(place: &Attribution) -> String {
    match place {
        Attribution::Subject(subject, _) => subject.to_string(),
        Attribution::Host => "host".into(),
        Attribution::Unknown(_) => "unknown".into(),
    }
}

fn disposition(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Unknown => "unknown",
        Disposition::Default => "default",
        Disposition::Ignore => "ignore",
        Disposition::Handler => "handler",
    }
}

fn states(s: TargetState) -> impl Iterator<Item = String> {
    let all = [
        (s.blocked, "blocked"),
        (s.stopped, "stopped"),
        (s.frozen, "frozen"),
        (s.exiting, "exiting"),
        (s.traced, "traced"),
    ];
    all.into_iter().filter(|(is, _)| *is).map(|(_, name)| name.to_string())
}

fn refused_source(source: RefusedSource) -> Option<&'static str> {
    match source {
        RefusedSource::ServerReset => Some("server-reset"),
        RefusedSource::ClientError => Some("client-error"),
        RefusedSource::None => None,
    }
}

fn runtime_name(runtime: Runtime) -> Option<&'static str> {
    match runtime {
        Runtime::Containerd => Some("containerd"),
        Runtime::CriO => Some("cri-o"),
        Runtime::Docker => Some("docker"),
        Runtime::Podman => Some("podman"),
        Runtime::Unnamed => None,
    }
}

/// An axis's name, as every other output has it.
fn kebab(axis: &impl serde::Serialize) -> String {
    match serde_json::to_value(axis) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("axes of a verdict are fieldless: {other:?}"),
    }
}

#[cfg(test)]
#[path = "span_tests.rs"]
mod tests;
