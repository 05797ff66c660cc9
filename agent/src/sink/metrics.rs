//! Metrics: OpenTelemetry instruments, read at `/metrics` and, if a collector is configured, pushed to it.
//!
//! [`TABLE`] is the one list; `docs/metrics.md` is made from it, and [`alerts`] uses its rows. Labels have few values and never an id,
//! a pid or a name that a process chose. A series that starts at 1 has no increase, and no scrape need come between the start and the
//! crash of a container: alerts on terminations use the time of the latest, not a count.

pub mod alerts;
pub mod dashboard;
mod journal;
mod node;
pub mod observer;
pub mod push;
pub mod rollouts;
mod table;
mod workloads;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use epitaph_core::attribute::Subject;
use epitaph_core::event::Kind;
use epitaph_core::input::{ProbeState, SeenClients};
use epitaph_core::pod::{ApiClock, PodsState};
use epitaph_core::render::json::runtime_name;
use epitaph_core::report::{DropReason, Report, Termination};
use epitaph_core::termination::OomRole;
use epitaph_core::time::{Boot, Wall};
use epitaph_core::verdict::{self, Said, Was};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, MeterProvider as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{Instrument, PeriodicReader, SdkMeterProvider, Stream};
use prometheus::{Encoder as _, TextEncoder};

use crate::sink::otlp::{Exporters, Signal};
use crate::sink::{epitaphs, kubernetes_events, otlp};

pub use journal::NOT_CONFIGURED;
use table::*;
pub use table::{Row, Shape, TABLE, markdown};
use workloads::{Ended, What, Workloads};

/// The instruments, and the registry that reads them.
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
    refused_clients: Gauge<u64>,
    /// The state that each probe was last reported with.
    probes: Mutex<BTreeMap<String, &'static str>>,
    neighbours: Gauge<u64>,
    memory: Gauge<u64>,
    node_ready: Gauge<u64>,
    kubernetes: Gauge<u64>,
    clock: Gauge<f64>,
    opted_out: Counter<u64>,
    node: node::Node,
    workloads: Workloads,
}

impl Metrics {
    /// `push`: an exporter, which runs in its own thread, and its interval. `workloads`: most workloads with their own series.
    ///
    /// # Errors
    /// The SDK's errors, which no input of ours causes.
    pub fn new<E: PushMetricExporter>(
        resource: Resource,
        push: Option<(E, Duration)>,
        workloads: usize,
    ) -> Result<Metrics, OTelSdkError> {
        let metrics = Metrics::empty(resource, push, workloads)?;
        metrics.start_at_zero();
        Ok(metrics)
    }

    /// Without the agent's series at 0: for an observer, which has no probes and sees no process exit.
    ///
    /// # Errors
    /// As [`Metrics::new`].
    pub fn empty<E: PushMetricExporter>(
        resource: Resource,
        push: Option<(E, Duration)>,
        workloads: usize,
    ) -> Result<Metrics, OTelSdkError> {
        let registry = prometheus::Registry::new();
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()?;
        let mut builder = SdkMeterProvider::builder()
            .with_resource(resource)
            .with_reader(reader)
            .with_view(move |instrument: &Instrument| {
                let bounded = instrument.name().starts_with("epitaph.workload.");
                let stream = Stream::builder().with_cardinality_limit(workloads::series(workloads));
                bounded.then(|| stream.build().ok()).flatten()
            });
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
            refused_clients: REFUSED_CLIENTS.gauge(&meter),
            probes: Mutex::default(),
            neighbours: NEIGHBOURS.gauge(&meter),
            memory: MEMORY.gauge(&meter),
            node_ready: NODE_READY.gauge(&meter),
            kubernetes: KUBERNETES_STATE.gauge(&meter),
            opted_out: OPTED_OUT.counter(&meter),
            node: node::Node::new(&meter),
            clock: KUBERNETES_CLOCK.gauge_f64(&meter),
            workloads: Workloads::new(workloads, &meter),
            provider,
            registry,
            meter,
        };
        let build = [
            KeyValue::new("version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("records", i64::from(epitaph_ebpf::VERSION)),
        ];
        BUILD.gauge(&metrics.meter).record(1, &build);
        Ok(metrics)
    }

    fn start_at_zero(&self) {
        for subject in ["container", "unit"] {
            self.ignored.add(0, &[KeyValue::new("subject", subject)]);
            for role in OomRole::ALL.into_iter().filter(|role| *role != OomRole::Main) {
                self.child_oom
                    .add(0, &[KeyValue::new("subject", subject), KeyValue::new("role", role.name())]);
            }
        }
        for outcome in ["accepted", "refused", "reset", "cut", "undecided", "idle_closed", "rejected"] {
            self.connections.add(0, &[KeyValue::new("outcome", outcome)]);
        }
        for kind in Kind::ALL {
            self.lost(kind, 0);
        }
        self.opted_out.add(0, &[]);
        for reason in [
            DropReason::TimelineCap,
            DropReason::FactCap,
            DropReason::IndexCap,
            DropReason::Unattributed,
            DropReason::PodCap,
        ] {
            self.dropped(reason.name(), 0);
        }
        for reason in [
            "undecodable",
            "probe_map",
            "terminal_queue_full",
            "log_rate",
            workloads::OVER_CAP,
        ] {
            self.dropped(reason, 0);
        }
    }

    /// Counts a report of the core.
    pub fn report(&self, now: Wall, report: &Report) {
        match report {
            Report::Terminated(t) => {
                self.termination(t);
                if let Some(context) = &t.kubernetes {
                    let end = Ended {
                        what: What::Container,
                        verdict: &t.verdict,
                        needs: verdict::advice::needs(&[t.as_judged()], &[]),
                        // Counted with the pod.
                        is_cut_short: false,
                        disagreements: disagreements([t.as_ref()]),
                    };
                    let over = self.workloads.ended(now, &context.pod.workload, &end, [&t.traffic]);
                    self.dropped(workloads::OVER_CAP, over);
                } else if t.verdict.unclean {
                    let (kind, runtime) = subject(&t.subject);
                    self.workloads.host_unclean(now, [t.verdict.headline, kind, runtime]);
                }
            }
            Report::PodTerminated(pod) => {
                pod.containers.iter().for_each(|t| self.termination(t));
                let members: Vec<_> = pod.containers.iter().map(Termination::as_judged).collect();
                let traffic = pod.containers.iter().map(|t| &t.traffic);
                let end = Ended {
                    what: What::Pod,
                    verdict: &pod.verdict,
                    needs: verdict::advice::needs(&members, &pod.unseen),
                    disagreements: disagreements(&pod.containers),
                    is_cut_short: verdict::is_grace_cut(pod.request.as_ref(), &members),
                };
                let over = self.workloads.ended(now, &pod.pod.workload, &end, traffic);
                self.dropped(workloads::OVER_CAP, over);
            }
            Report::StopSignalIgnored(e) => {
                self.ignored.add(1, &[KeyValue::new("subject", subject(&e.subject).0)]);
                if let Some(context) = &e.kubernetes {
                    self.workloads.ignored(now, &context.pod.workload);
                }
            }
            Report::Stuck(stuck) => self.workloads.stuck(now, &stuck.kubernetes.pod.workload),
            Report::PodHeld(held) => self.workloads.held(&held.facts.pod.workload, held.verdict.row.by),
            Report::ChildOomKilled { subject: of, oom, .. } => {
                let role = KeyValue::new("role", oom.role.name());
                self.child_oom.add(1, &[KeyValue::new("subject", subject(of).0), role]);
            }
            Report::Dropped { reason, count } => self.dropped(reason.name(), *count),
            Report::Workload(workload) => self.workloads.runs(workload),
            Report::WorkloadGone(workload) => self.workloads.gone(workload),
            Report::NodeShutdown(s) => self.node.shutdown(s),
            Report::NodeDown(_) => {}
            Report::OptedOut { count } => self.opted_out.add(*count, &[]),
        }
    }

    /// Time passed.
    pub fn alive(&self, now: Boot) {
        self.workloads.alive(now);
    }

    pub fn pods(&self, state: &PodsState) {
        let synced = matches!(state, PodsState::Synced);
        for (name, is) in [("synced", synced), ("away", !synced)] {
            self.kubernetes.record(u64::from(is), &[KeyValue::new("state", name)]);
        }
    }

    pub fn api_clock(&self, clock: &ApiClock) {
        record_clock(&self.clock, clock);
    }

    /// Records lost since the last call.
    pub fn lost(&self, kind: Kind, count: u64) {
        self.lost.add(count, &[KeyValue::new("kind", kind.name())]);
    }

    /// Any other dropped item. To be called once with 0 for every possible reason.
    pub fn dropped(&self, reason: &'static str, count: u64) {
        self.dropped.add(count, &[KeyValue::new("reason", reason)]);
    }

    pub fn neighbours(&self, count: usize) {
        self.neighbours.record(count as u64, &[]);
    }

    /// Bytes of evidence, and of the probes in the kernel.
    pub fn memory(&self, evidence: u64, probes: u64) {
        for (part, bytes) in [("evidence", evidence), ("probes", probes)] {
            self.memory.record(bytes, &[KeyValue::new("part", part)]);
        }
    }

    /// A check of the node's readiness for a shutdown, with every state that it can have.
    pub fn node_ready(&self, check: &'static str, state: &'static str, states: impl IntoIterator<Item = &'static str>) {
        for each in states {
            let labels = [KeyValue::new("check", check), KeyValue::new("state", each)];
            self.node_ready.record(u64::from(each == state), &labels);
        }
    }

    pub fn probe(&self, name: &str, state: &ProbeState) {
        if name == ProbeState::REFUSALS {
            for clients in SeenClients::ALL {
                let labels = [KeyValue::new("clients", clients.name())];
                self.refused_clients.record(u64::from(clients == state.clients()), &labels);
            }
        }
        let state = match state {
            ProbeState::Active => "active",
            ProbeState::Substituted {
                clients: SeenClients::All,
                ..
            } => "substituted",
            ProbeState::Substituted { .. } => "partial",
            ProbeState::Unsupported(_) => "unsupported",
            ProbeState::Failed(_) => "failed",
        };
        let former = {
            let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
            probes.insert(name.to_owned(), state).filter(|former| *former != state)
        };
        for (each, is) in former.map(|former| (former, 0)).into_iter().chain([(state, 1)]) {
            let labels = [KeyValue::new("probe", name.to_owned()), KeyValue::new("state", each)];
            self.probe.record(is, &labels);
        }
    }

    /// Reads the totals of requests to the API server at every collection: resource, outcome, count.
    pub fn follow_requests(&self, totals: impl Fn() -> Vec<(&'static str, &'static str, u64)> + Send + Sync + 'static) {
        self.follow_pairs(KUBERNETES_REQUESTS, ["resource", "outcome"], totals);
    }

    /// The same for failures: resource, reason, count.
    pub fn follow_failures(&self, totals: impl Fn() -> Vec<(&'static str, &'static str, u64)> + Send + Sync + 'static) {
        self.follow_pairs(KUBERNETES_FAILURES, ["resource", "reason"], totals);
    }

    /// A counter with two labels, read at every collection.
    fn follow_pairs(
        &self,
        row: Row,
        [first, second]: [&'static str; 2],
        totals: impl Fn() -> Vec<(&'static str, &'static str, u64)> + Send + Sync + 'static,
    ) {
        self.meter
            .u64_observable_counter(row.name)
            .with_unit(row.unit)
            .with_description(row.about)
            .with_callback(move |observer| {
                for (a, b, count) in totals() {
                    observer.observe(count, &[KeyValue::new(first, a), KeyValue::new(second, b)]);
                }
            })
            .build();
    }

    /// Reads the state of the role that observes logind at every collection.
    pub fn follow_logind(&self, states: [&'static str; 3], state: impl Fn() -> &'static str + Send + Sync + 'static) {
        self.meter
            .u64_observable_gauge(LOGIND_STATE.name)
            .with_unit(LOGIND_STATE.unit)
            .with_description(LOGIND_STATE.about)
            .with_callback(move |observer| {
                let now = state();
                for name in states {
                    observer.observe(u64::from(name == now), &[KeyValue::new("state", name)]);
                }
            })
            .build();
    }

    /// Reads the totals of closed connections at every collection: listener, reason, count.
    pub fn follow_http(&self, totals: impl Fn() -> Vec<(&'static str, &'static str, u64)> + Send + Sync + 'static) {
        self.follow_pairs(HTTP_CLOSED, ["listener", "reason"], totals);
    }

    /// Reads the totals of Kubernetes Events at every collection.
    pub fn follow_events(&self, stats: Arc<kubernetes_events::EventStats>) {
        self.meter
            .u64_observable_counter(KUBERNETES_EVENTS.name)
            .with_unit(KUBERNETES_EVENTS.unit)
            .with_description(KUBERNETES_EVENTS.about)
            .with_callback(move |observer| {
                for outcome in kubernetes_events::OUTCOMES {
                    observer.observe(stats.get(outcome), &[KeyValue::new("outcome", outcome.name())]);
                }
            })
            .build();
    }

    /// Reads the totals of Epitaphs at every collection.
    pub fn follow_epitaphs(&self, stats: Arc<epitaphs::EpitaphStats>) {
        self.meter
            .u64_observable_counter(KUBERNETES_EPITAPHS.name)
            .with_unit(KUBERNETES_EPITAPHS.unit)
            .with_description(KUBERNETES_EPITAPHS.about)
            .with_callback(move |observer| {
                for outcome in epitaphs::OUTCOMES {
                    observer.observe(stats.get(outcome), &[KeyValue::new("outcome", outcome.name())]);
                }
            })
            .build();
    }

    /// Reads the exporters' counters at every collection.
    pub fn follow_export(&self, exporters: &Exporters) {
        if exporters.is_empty() {
            return;
        }
        for sink in exporters.iter() {
            let row = match sink.signal() {
                Signal::Traces => &EXPORT_SPANS,
                Signal::Logs => &EXPORT_LOGS,
            };
            self.follow_sink(sink.clone(), row);
        }
        let given_up = exporters.clone();
        self.meter
            .u64_observable_counter(EXPORT_GIVEN_UP.name)
            .with_unit(EXPORT_GIVEN_UP.unit)
            .with_description(EXPORT_GIVEN_UP.about)
            .with_callback(move |observer| {
                let traces = given_up.of(Signal::Traces);
                for (reason, verdict, count) in traces.into_iter().flat_map(|sink| sink.stats().given_up()) {
                    let labels = [KeyValue::new("reason", reason), KeyValue::new("verdict", verdict.to_string())];
                    observer.observe(count, &labels);
                }
            })
            .build();
        let retries = exporters.clone();
        self.meter
            .u64_observable_counter(EXPORT_RETRIES.name)
            .with_unit(EXPORT_RETRIES.unit)
            .with_description(EXPORT_RETRIES.about)
            .with_callback(move |observer| {
                for sink in retries.iter() {
                    observer.observe(sink.stats().retries(), &[KeyValue::new("signal", sink.signal().name())]);
                }
            })
            .build();
    }

    fn follow_sink(&self, sink: otlp::Sink, row: &Row) {
        self.meter
            .u64_observable_counter(row.name)
            .with_unit(row.unit)
            .with_description(row.about)
            .with_callback(move |observer| {
                observer.observe(sink.stats().exported(), &[KeyValue::new("outcome", "exported")]);
                for reason in otlp::SpanDropReason::ALL {
                    observer.observe(sink.stats().dropped(reason), &[KeyValue::new("outcome", reason.name())]);
                }
            })
            .build();
    }

    /// The body of `/metrics`, Prometheus' text format.
    ///
    /// # Errors
    /// The encoder's errors, which no value of ours causes.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut out = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// Sends the unsent values, for `limit` at most. On another thread: the SDK blocks until its reader has exported, and the
    /// export needs our runtime.
    pub async fn shutdown(self: Arc<Self>, limit: Duration) -> Result<(), OTelSdkError> {
        let over = |e: tokio::task::JoinError| OTelSdkError::InternalFailure(e.to_string());
        let ended = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(limit));
        // The SDK's reader waits for its exporter longer than any limit.
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
            ("cause", verdict::table::name(v.cause)),
            ("exit", verdict::table::name(v.exit)),
            ("traffic", verdict::table::name(v.traffic)),
        ];
        self.by_cause.add(1, &axes.map(|(name, value)| KeyValue::new(name, value)));
        let kind = [KeyValue::new("subject", kind)];
        if let (Some(stop), Some(exit)) = (&t.stop, &t.exit) {
            self.stop_duration.record(exit.at.since(stop.at).as_secs_f64(), &kind);
        }
        let traffic = &t.traffic;
        let lost = [
            ("refused", traffic.refused.all),
            ("reset", traffic.reset),
            ("cut", traffic.cut),
            ("rejected", traffic.rejected),
        ];
        // What was seen lost counts, also where more may have been missed.
        for (outcome, count) in lost.into_iter().filter(|(_, count)| traffic.observed || count.count > 0) {
            self.connections.add(count.count, &[KeyValue::new("outcome", outcome)]);
        }
        if !traffic.observed {
            return;
        }
        for (outcome, count) in [
            ("accepted", traffic.accepted),
            ("undecided", traffic.undecided.all),
            ("idle_closed", traffic.idle_closed),
        ] {
            self.connections.add(count.count, &[KeyValue::new("outcome", outcome)]);
        }
        if let Some(window) = traffic.refusal_window() {
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

fn disagreements<'a>(containers: impl IntoIterator<Item = &'a Termination>) -> Vec<(Said, Was)> {
    let of = |t: &Termination| t.verdict.disagreement.as_ref().map(|of| (of.said, of.was));
    containers.into_iter().filter_map(of).collect()
}

fn subject(subject: &Subject) -> (&'static str, &'static str) {
    match subject {
        Subject::Container { runtime, .. } => ("container", runtime_name(*runtime)),
        Subject::Unit { .. } => ("unit", "systemd"),
    }
}

fn record_clock(gauge: &Gauge<f64>, clock: &ApiClock) {
    for (name, nanos) in [("least", clock.earliest), ("most", clock.latest)] {
        gauge.record(nanos as f64 / 1e9, &[KeyValue::new("bound", name)]);
    }
}

#[cfg(test)]
mod tests;
