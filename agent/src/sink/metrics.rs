//! What is counted: OpenTelemetry instruments, read at `/metrics` and, where a collector is configured, pushed to it.
//!
//! [`TABLE`] is the one list; `docs/metrics.md` is made from it. Labels have few values and never an id, a pid or a name that a
//! process chose. Every value that an alert waits for stands at 0 from the start: a series that begins at 1 has no increase.

pub mod push;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, MeterProvider as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use prometheus::{Encoder as _, TextEncoder};

use crate::attribute::{Runtime, Subject};
use crate::event::{Kind, ProbeState};
use crate::pod::PodsState;
use crate::render::json::runtime_name;
use crate::sink::otlp;
use crate::termination::{DropReason, Output, Termination};
use crate::verdict;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Counter,
    Gauge,
    Histogram,
}

/// An instrument.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// OpenTelemetry's name; [`Row::prometheus`] gives the one at `/metrics`.
    pub name: &'static str,
    pub shape: Shape,
    /// UCUM.
    pub unit: &'static str,
    /// Each label and its values, for people.
    pub labels: &'static [(&'static str, &'static str)],
    pub about: &'static str,
}

const SUBJECT: (&str, &str) = ("subject", "container, unit");

pub const TERMINATIONS: Row = Row {
    name: "epitaph.terminations",
    shape: Shape::Counter,
    unit: "{termination}",
    labels: &[
        ("verdict", "the headlines of docs/verdicts.md"),
        ("unclean", "true, false"),
        SUBJECT,
        ("runtime", "containerd, cri-o, docker, podman, unnamed; systemd for units"),
    ],
    about: "Deaths by verdict. All at 0 from the start: alert on this one",
};
pub const BY_CAUSE: Row = Row {
    name: "epitaph.terminations.by_cause",
    shape: Shape::Counter,
    unit: "{termination}",
    labels: &[
        ("cause", "see docs/verdicts.md"),
        ("exit", "see docs/verdicts.md"),
        ("traffic", "quiet, refused, reset, cut, unknown"),
    ],
    about: "The same deaths by the three axes; a combination appears with its first death",
};
pub const STOP_DURATION: Row = Row {
    name: "epitaph.stop.duration",
    shape: Shape::Histogram,
    unit: "s",
    labels: &[SUBJECT],
    about: "From the stop signal to the end of the main process",
};
pub const REFUSAL_DURATION: Row = Row {
    name: "epitaph.refusal.duration",
    shape: Shape::Histogram,
    unit: "s",
    labels: &[SUBJECT],
    about: "From the close of the listener to the last refused connection: the preStop sleep that was missing",
};
pub const CONNECTIONS: Row = Row {
    name: "epitaph.connections",
    shape: Shape::Counter,
    unit: "{connection}",
    labels: &[("outcome", "accepted, refused, reset, cut, idle_closed")],
    about: "Connections of dying subjects, from the stop signal on",
};
pub const IGNORED: Row = Row {
    name: "epitaph.stop_signals.ignored",
    shape: Shape::Counter,
    unit: "{signal}",
    labels: &[SUBJECT],
    about: "Stop signals that the kernel dropped, counted at once, before the kill",
};
pub const CHILD_OOM: Row = Row {
    name: "epitaph.oom.child_kills",
    shape: Shape::Counter,
    unit: "{process}",
    labels: &[SUBJECT],
    about: "OOM kills of processes that were not the main one, while the subject went on",
};
pub const LOST: Row = Row {
    name: "epitaph.records.lost",
    shape: Shape::Counter,
    unit: "{record}",
    labels: &[("kind", "the kinds of kernel records")],
    about: "Records that found no room in the ring buffer; the deaths that they may have touched say so",
};
pub const DROPPED: Row = Row {
    name: "epitaph.dropped",
    shape: Shape::Counter,
    unit: "{item}",
    labels: &[(
        "reason",
        "timeline_cap, fact_cap, index_cap, unattributed, undecodable, probe_map, terminal_queue_full; with Kubernetes \
         pod_unreadable, pod_cap, hint_queue_full, bad_annotation",
    )],
    about: "What the agent itself did not keep",
};
pub const PROBE: Row = Row {
    name: "epitaph.probe.state",
    shape: Shape::Gauge,
    unit: "",
    labels: &[("probe", "its tracepoint"), ("state", "active, unsupported, failed")],
    about: "1 for the state that the probe is in, 0 for the others; /readyz has the reason",
};
pub const EXPORT_SPANS: Row = Row {
    name: "epitaph.export.spans",
    shape: Shape::Counter,
    unit: "{span}",
    labels: &[("outcome", "exported, queue_full, rejected, shutdown")],
    about: "Spans that the collector took, and those that it never got, by reason",
};
pub const EXPORT_RETRIES: Row = Row {
    name: "epitaph.export.retries",
    shape: Shape::Counter,
    unit: "{request}",
    labels: &[],
    about: "Export requests that failed and were made again",
};
pub const KUBERNETES_SYNCED: Row = Row {
    name: "epitaph.kubernetes.synced",
    shape: Shape::Gauge,
    unit: "",
    labels: &[],
    about: "1 while the pods of this node are known and watched, 0 while the API server is away or refuses; /readyz has the \
            reason. Not there without Kubernetes",
};
pub const KUBERNETES_REQUESTS: Row = Row {
    name: "epitaph.kubernetes.requests",
    shape: Shape::Counter,
    unit: "{request}",
    labels: &[
        ("resource", "pods, replicaset, job, namespace, events, clock"),
        ("outcome", "ok, forbidden, failed"),
    ],
    about: "What the API server was asked for; a watch counts once, when it begins. Not there without Kubernetes",
};
pub const BUILD: Row = Row {
    name: "epitaph.build.info",
    shape: Shape::Gauge,
    unit: "",
    labels: &[("version", "of the agent"), ("records", "version of the probes' records")],
    about: "Always 1",
};

pub const TABLE: &[Row] = &[
    TERMINATIONS,
    BY_CAUSE,
    STOP_DURATION,
    REFUSAL_DURATION,
    CONNECTIONS,
    IGNORED,
    CHILD_OOM,
    LOST,
    DROPPED,
    PROBE,
    EXPORT_SPANS,
    EXPORT_RETRIES,
    KUBERNETES_SYNCED,
    KUBERNETES_REQUESTS,
    BUILD,
];

/// Seconds; the usual graces (10 s, 30 s) are bounds of their own.
const BUCKETS: [f64; 15] = [
    0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
];

impl Row {
    /// Name at `/metrics`.
    pub fn prometheus(&self) -> String {
        let mut name = self.name.replace('.', "_");
        if self.unit == "s" {
            name += "_seconds";
        }
        if self.shape == Shape::Counter {
            name += "_total";
        }
        name
    }

    fn counter(&self, meter: &Meter) -> Counter<u64> {
        meter
            .u64_counter(self.name)
            .with_unit(self.unit)
            .with_description(self.about)
            .build()
    }
    fn gauge(&self, meter: &Meter) -> Gauge<u64> {
        meter
            .u64_gauge(self.name)
            .with_unit(self.unit)
            .with_description(self.about)
            .build()
    }
    fn histogram(&self, meter: &Meter) -> Histogram<f64> {
        let builder = meter
            .f64_histogram(self.name)
            .with_unit(self.unit)
            .with_description(self.about);
        builder.with_boundaries(BUCKETS.to_vec()).build()
    }
}

/// The table of `docs/metrics.md`.
pub fn markdown() -> String {
    let mut out = String::from("| at /metrics | OTLP | kind | labels | meaning |\n|---|---|---|---|---|\n");
    for row in TABLE {
        let kind = match row.shape {
            Shape::Counter => "counter",
            Shape::Gauge => "gauge",
            Shape::Histogram => "histogram",
        };
        let labels: Vec<String> = row
            .labels
            .iter()
            .map(|(name, values)| format!("`{name}` ({values})"))
            .collect();
        let _ = writeln!(
            out,
            "| `{}` | `{}` | {kind} | {} | {} |",
            row.prometheus(),
            row.name,
            labels.join("; "),
            row.about
        );
    }
    out
}

/// The instruments, and where they are read.
pub struct Metrics {
    provider: SdkMeterProvider,
    registry: prometheus::Registry,
    meter: Meter,
    terminations: Counter<u64>,
    by_cause: Counter<u64>,
    stop_duration: Histogram<f64>,
    refusal_duration: Histogram<f64>,
    connections: Counter<u64>,
    ignored: Counter<u64>,
    child_oom: Counter<u64>,
    lost: Counter<u64>,
    dropped: Counter<u64>,
    probe: Gauge<u64>,
    synced: Gauge<u64>,
}

impl Metrics {
    /// `push`: an exporter and its interval, which runs in a thread of its own.
    ///
    /// # Errors
    /// The SDK's own, which no input of ours causes.
    pub fn new<E: PushMetricExporter>(resource: Resource, push: Option<(E, Duration)>) -> Result<Metrics, OTelSdkError> {
        let registry = prometheus::Registry::new();
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()?;
        let mut builder = SdkMeterProvider::builder().with_resource(resource).with_reader(reader);
        if let Some((exporter, interval)) = push {
            builder = builder.with_reader(PeriodicReader::builder(exporter).with_interval(interval).build());
        }
        let provider = builder.build();
        let meter = provider.meter("epitaph");
        let metrics = Metrics {
            terminations: TERMINATIONS.counter(&meter),
            by_cause: BY_CAUSE.counter(&meter),
            stop_duration: STOP_DURATION.histogram(&meter),
            refusal_duration: REFUSAL_DURATION.histogram(&meter),
            connections: CONNECTIONS.counter(&meter),
            ignored: IGNORED.counter(&meter),
            child_oom: CHILD_OOM.counter(&meter),
            lost: LOST.counter(&meter),
            dropped: DROPPED.counter(&meter),
            probe: PROBE.gauge(&meter),
            synced: KUBERNETES_SYNCED.gauge(&meter),
            provider,
            registry,
            meter,
        };
        metrics.start_at_zero();
        let build = [
            KeyValue::new("version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("records", i64::from(epitaph_ebpf::VERSION)),
        ];
        BUILD.gauge(&metrics.meter).record(1, &build);
        Ok(metrics)
    }

    fn start_at_zero(&self) {
        const RUNTIMES: [Runtime; 5] = [
            Runtime::Containerd,
            Runtime::CriO,
            Runtime::Docker,
            Runtime::Podman,
            Runtime::Unnamed,
        ];
        for row in &verdict::table::TABLE {
            let headline = (row.headline, row.unclean);
            for runtime in RUNTIMES {
                self.terminations
                    .add(0, &termination_labels(headline, "container", runtime_name(runtime)));
            }
            self.terminations.add(0, &termination_labels(headline, "unit", "systemd"));
        }
        for subject in ["container", "unit"] {
            self.ignored.add(0, &[KeyValue::new("subject", subject)]);
            self.child_oom.add(0, &[KeyValue::new("subject", subject)]);
        }
        for outcome in ["accepted", "refused", "reset", "cut", "idle_closed"] {
            self.connections.add(0, &[KeyValue::new("outcome", outcome)]);
        }
        for kind in Kind::ALL {
            self.lost(kind, 0);
        }
        for reason in [
            DropReason::TimelineCap,
            DropReason::FactCap,
            DropReason::IndexCap,
            DropReason::Unattributed,
        ] {
            self.dropped(reason.name(), 0);
        }
        for reason in ["undecodable", "probe_map", "terminal_queue_full"] {
            self.dropped(reason, 0);
        }
    }

    /// Counts what the core said.
    pub fn output(&self, output: &Output) {
        match output {
            Output::Terminated(t) => self.termination(t),
            Output::Early(e) => self.ignored.add(1, &[KeyValue::new("subject", subject(&e.subject).0)]),
            Output::ChildOomKilled { subject: of, .. } => {
                self.child_oom.add(1, &[KeyValue::new("subject", subject(of).0)]);
            }
            Output::Dropped { reason, count } => self.dropped(reason.name(), *count),
            Output::PodTerminated(pod) => pod.containers.iter().for_each(|t| self.termination(t)),
            Output::Forget(_) | Output::Watch(_) | Output::Workload(_) => {}
        }
    }

    /// Records lost since the last call.
    pub fn lost(&self, kind: Kind, count: u64) {
        self.lost.add(count, &[KeyValue::new("kind", kind.name())]);
    }

    /// Anything else that was not kept. Call it once with 0 for a reason that can occur.
    pub fn dropped(&self, reason: &'static str, count: u64) {
        self.dropped.add(count, &[KeyValue::new("reason", reason)]);
    }

    pub fn probe(&self, name: &str, state: &ProbeState) {
        let state = match state {
            ProbeState::Active => "active",
            ProbeState::Unsupported(_) => "unsupported",
            ProbeState::Failed(_) => "failed",
        };
        for each in ["active", "unsupported", "failed"] {
            let labels = [KeyValue::new("probe", name.to_owned()), KeyValue::new("state", each)];
            self.probe.record(u64::from(each == state), &labels);
        }
    }

    pub fn pods(&self, state: &PodsState) {
        self.synced.record(u64::from(*state == PodsState::Synced), &[]);
    }

    /// Reads the totals of requests to the API server at every collection: resource, outcome, count.
    pub fn follow_requests(&self, totals: impl Fn() -> Vec<(&'static str, &'static str, u64)> + Send + Sync + 'static) {
        self.meter
            .u64_observable_counter(KUBERNETES_REQUESTS.name)
            .with_unit(KUBERNETES_REQUESTS.unit)
            .with_description(KUBERNETES_REQUESTS.about)
            .with_callback(move |observer| {
                for (resource, outcome, count) in totals() {
                    observer.observe(
                        count,
                        &[KeyValue::new("resource", resource), KeyValue::new("outcome", outcome)],
                    );
                }
            })
            .build();
    }

    /// Reads the trace sink's own counters at every collection.
    pub fn follow_export(&self, sink: otlp::Sink) {
        let retries = sink.clone();
        self.meter
            .u64_observable_counter(EXPORT_SPANS.name)
            .with_unit(EXPORT_SPANS.unit)
            .with_description(EXPORT_SPANS.about)
            .with_callback(move |observer| {
                observer.observe(sink.stats().exported(), &[KeyValue::new("outcome", "exported")]);
                for reason in otlp::DropReason::ALL {
                    observer.observe(sink.stats().dropped(reason), &[KeyValue::new("outcome", reason.name())]);
                }
            })
            .build();
        self.meter
            .u64_observable_counter(EXPORT_RETRIES.name)
            .with_unit(EXPORT_RETRIES.unit)
            .with_description(EXPORT_RETRIES.about)
            .with_callback(move |observer| observer.observe(retries.stats().retries(), &[]))
            .build();
    }

    /// The body of `/metrics`, Prometheus' text format.
    ///
    /// # Errors
    /// The encoder's own, which no value of ours causes.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut out = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// Sends what is not sent yet, for `limit` at most. Not on this thread: the SDK blocks until its reader has exported, and
    /// that export needs our runtime.
    pub async fn shutdown(self: Arc<Self>, limit: Duration) -> Result<(), OTelSdkError> {
        let over = |e: tokio::task::JoinError| OTelSdkError::InternalFailure(e.to_string());
        let ended = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(limit));
        // The SDK's reader waits for its exporter whatever the limit says.
        match tokio::time::timeout(limit, ended).await {
            Ok(ended) => ended.map_err(over)?,
            Err(_) => Err(OTelSdkError::Timeout(limit)),
        }
    }

    fn termination(&self, t: &Termination) {
        let v = &t.verdict;
        let (kind, runtime) = subject(&t.subject);
        self.terminations
            .add(1, &termination_labels((v.headline, v.unclean), kind, runtime));
        let axes = [
            ("cause", kebab(v.cause)),
            ("exit", kebab(v.exit)),
            ("traffic", kebab(v.traffic)),
        ];
        self.by_cause.add(1, &axes.map(|(name, value)| KeyValue::new(name, value)));
        let kind = [KeyValue::new("subject", kind)];
        if let (Some(stop), Some(exit)) = (&t.stop, &t.exit) {
            self.stop_duration.record(exit.at.since(stop.at).as_secs_f64(), &kind);
        }
        let traffic = &t.traffic;
        if !traffic.observed {
            return;
        }
        for (outcome, count) in [
            ("accepted", traffic.accepted),
            ("refused", traffic.refused),
            ("reset", traffic.reset),
            ("cut", traffic.cut),
            ("idle_closed", traffic.idle_closed),
        ] {
            self.connections.add(count.count, &[KeyValue::new("outcome", outcome)]);
        }
        if traffic.refused.count > 0 {
            // A listener that closed after the first refusal is not the one that was missed.
            let closed = traffic
                .listeners
                .iter()
                .map(|l| l.at)
                .filter(|at| *at <= traffic.refused.first)
                .min();
            let window = traffic.refused.last.since(closed.unwrap_or(traffic.refused.first));
            self.refusal_duration.record(window.as_secs_f64(), &kind);
        }
    }
}

fn termination_labels((verdict, unclean): (&'static str, bool), subject: &'static str, runtime: &'static str) -> [KeyValue; 4] {
    [
        KeyValue::new("verdict", verdict),
        KeyValue::new("unclean", unclean),
        KeyValue::new("subject", subject),
        KeyValue::new("runtime", runtime),
    ]
}

fn subject(subject: &Subject) -> (&'static str, &'static str) {
    match subject {
        Subject::Container { runtime, .. } => ("container", runtime_name(*runtime)),
        Subject::Unit { .. } => ("unit", "systemd"),
    }
}

/// The name that JSON and spans use too.
fn kebab(axis: impl serde::Serialize) -> String {
    match serde_json::to_value(axis) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("an axis is a unit variant, not {other:?}"),
    }
}

#[cfg(test)]
mod tests;
