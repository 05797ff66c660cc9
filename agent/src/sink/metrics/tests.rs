use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

use epitaph_core::fixtures::terminations::{ignored, observation};
use epitaph_core::fixtures::{pods, sample, shutdowns};
use epitaph_core::kubernetes::{HeldFacts, Sandbox};
use epitaph_core::pod::PodIdentity;
use epitaph_core::report::PodHeld;
use epitaph_core::termination::Traffic;
use epitaph_core::verdict::held::judge_held;
use epitaph_core::verdict::{Advice, AdviceKind};
use expect_test::{expect, expect_file};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;

use super::*;
use crate::config::OtlpSettings;
use crate::render::span;

/// Sends the names of the exported metrics.
struct Collector(mpsc::Sender<Vec<String>>);

impl PushMetricExporter for Collector {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let names = metrics
            .scope_metrics()
            .flat_map(|scope| scope.metrics())
            .map(|m| m.name().to_owned())
            .collect();
        let _ = self.0.send(names);
        Ok(())
    }
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

/// 2026-11-21T11:44:10Z.
const NOW: Wall = Wall(1_795_261_450_000_000_000);

fn metrics() -> Metrics {
    let resource = Resource::builder_empty()
        .with_attribute(KeyValue::new("service.name", "epitaph"))
        .build();
    Metrics::new::<Collector>(resource, None, 10).unwrap()
}

fn play(metrics: &Metrics) {
    let (subject, oom) = sample::child_oom();
    for output in [
        Report::StopSignalIgnored(Box::new(sample::early())),
        Report::ChildOomKilled {
            subject,
            container: None,
            oom,
        },
        Report::Terminated(Box::new(sample::ignored())),
        Report::Terminated(Box::new(sample::unknown_unit())),
        Report::NodeShutdown(Box::new(shutdowns::truncated())),
        Report::Dropped {
            reason: DropReason::FactCap,
            count: 2,
        },
    ] {
        metrics.report(NOW, &output);
    }
    metrics.pods(&PodsState::Synced);
    metrics.api_clock(&ApiClock {
        earliest: -250_000_000,
        latest: 50_000_000,
    });
    metrics.lost(Kind::Tcp, 5);
    metrics.neighbours(1);
    metrics.memory(65_536, 20 << 20);
    metrics.node_ready("lock", "not_ready", ["ready", "not_ready", "unknown"]);
    for (name, state) in sample::probes() {
        metrics.probe(&name, &state);
    }
}

/// A deletion, a warning and a restart of one workload.
fn play_pods(metrics: &Metrics) {
    let mut pod = pods::pod(1);
    pod.verdict.advice.push(Advice {
        kind: AdviceKind::GraceLonger,
        seconds: Some(45),
        text: "it needed 44.1 s".into(),
    });
    let restarted = pods::restarted(3);
    for output in [
        Report::Workload(pod.pod.workload.clone()),
        Report::StopSignalIgnored(Box::new(pods::early(&restarted))),
        Report::Stuck(Box::new(pods::stuck(restarted.clone()))),
        Report::PodHeld(Box::new(held(pod.pod.clone()))),
        Report::Terminated(Box::new(restarted)),
        Report::PodTerminated(Box::new(pod)),
    ] {
        metrics.report(NOW, &output);
    }
}

/// By a finalizer.
fn held(pod: Arc<PodIdentity>) -> PodHeld {
    let at = Boot(100_000_000_000);
    let facts = HeldFacts {
        pod,
        at,
        requested: at.minus(Duration::from_secs(62)),
        last_exit: Some(at.minus(Duration::from_secs(60))),
        unreported: Vec::new(),
        sandbox: Sandbox::Gone,
        failed: None,
        are_events_known: true,
        claims: Vec::new(),
        finalizers: vec!["example.com/hold".to_owned()],
        is_released: true,
    };
    let verdict = judge_held(&facts);
    PodHeld { facts, verdict }
}

/// Lines of the text with a value other than 0.
fn counted(metrics: &Metrics) -> String {
    let text = metrics.text().unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|l| !l.starts_with('#') && !l.ends_with(" 0") && !l.contains("_bucket"))
        .collect();
    lines.join("\n") + "\n"
}

/// 132 combinations of verdict, subject and runtime were series of every idle node.
#[test]
fn an_idle_agent_has_few_series() {
    let metrics = metrics();
    for (name, state) in sample::probes() {
        metrics.probe(&name, &state);
    }
    let text = metrics.text().unwrap();
    let series = |name: &str| text.lines().filter(|l| l.starts_with(name)).count();
    assert_eq!(
        (
            series("epitaph_terminations"),
            series("epitaph_host"),
            series("epitaph_workload")
        ),
        (0, 0, 0)
    );
    assert_eq!(series("epitaph_probe_state"), sample::probes().len());
    assert!(series("epitaph_") < 60, "{text}");
}

fn probe_states(metrics: &Metrics) -> Vec<String> {
    let text = metrics.text().unwrap();
    let states = text.lines().filter(|line| line.starts_with("epitaph_probe_state"));
    states.map(str::to_owned).collect()
}

/// An alert and a panel can tell a whole substitute from one that hides clients.
#[test]
fn a_substitute_that_shows_a_part_of_the_clients_is_partial() {
    let metrics = metrics();
    let substituted = |clients| ProbeState::Substituted {
        by: "inet_sock_set_state (a refused SYN)".into(),
        clients,
    };
    metrics.probe("tcp_send_reset", &substituted(SeenClients::All));
    metrics.probe("tcp_send_reset", &substituted(SeenClients::OfThisMachine));
    assert_eq!(
        probe_states(&metrics),
        [
            "epitaph_probe_state{probe=\"tcp_send_reset\",state=\"partial\"} 1",
            "epitaph_probe_state{probe=\"tcp_send_reset\",state=\"substituted\"} 0"
        ]
    );
}

#[test]
fn a_probe_that_changes_has_its_former_state_at_zero() {
    let metrics = metrics();
    metrics.probe("tcp_send_reset", &ProbeState::Active);
    metrics.probe("tcp_send_reset", &ProbeState::Active);
    metrics.probe("tcp_send_reset", &ProbeState::Failed("detached".into()));
    assert_eq!(
        probe_states(&metrics),
        [
            "epitaph_probe_state{probe=\"tcp_send_reset\",state=\"active\"} 0",
            "epitaph_probe_state{probe=\"tcp_send_reset\",state=\"failed\"} 1"
        ]
    );
}

#[test]
fn a_termination_is_counted_and_its_time_is_known() {
    let metrics = metrics();
    play(&metrics);
    expect![[r#"
        epitaph_agent_neighbours 1
        epitaph_build_info{records="4",version="0.1.0"} 1
        epitaph_connections_total{outcome="accepted"} 3
        epitaph_connections_total{outcome="refused"} 14
        epitaph_dropped_total{reason="fact_cap"} 2
        epitaph_host_unclean_timestamp_seconds{runtime="containerd",subject="container",verdict="ignored-stop-signal"} 1795261450
        epitaph_kubernetes_clock_ahead_seconds{bound="least"} -0.25
        epitaph_kubernetes_clock_ahead_seconds{bound="most"} 0.05
        epitaph_kubernetes_state{state="synced"} 1
        epitaph_memory_bytes{part="evidence"} 65536
        epitaph_memory_bytes{part="probes"} 20971520
        epitaph_node_shutdown_ready{check="lock",state="not_ready"} 1
        epitaph_node_shutdown_timestamp_seconds{unclean="true",verdict="truncated"} 1700005064
        epitaph_node_shutdowns_total{verdict="truncated"} 1
        epitaph_oom_child_kills_total{role="worker",subject="container"} 1
        epitaph_probe_state{probe="inet_sk_error_report",state="substituted"} 1
        epitaph_probe_state{probe="signal_generate",state="active"} 1
        epitaph_probe_state{probe="tcp_send_reset",state="unsupported"} 1
        epitaph_records_lost_total{kind="tcp"} 5
        epitaph_refusal_duration_seconds_sum{subject="container"} 3.2
        epitaph_refusal_duration_seconds_count{subject="container"} 1
        epitaph_refused_clients_seen{clients="none"} 1
        epitaph_stop_duration_seconds_sum{subject="container"} 10.003
        epitaph_stop_duration_seconds_count{subject="container"} 1
        epitaph_stop_signals_ignored_total{subject="container"} 1
        epitaph_terminations_by_cause_total{cause="stopped",exit="ignored-stop-signal",traffic="refused"} 1
        epitaph_terminations_by_cause_total{cause="unknown",exit="unknown",traffic="unknown"} 1
        epitaph_terminations_total{runtime="containerd",subject="container",unclean="true",verdict="ignored-stop-signal"} 1
        epitaph_terminations_total{runtime="systemd",subject="unit",unclean="false",verdict="unknown"} 1
        target_info{service_name="epitaph"} 1
    "#]]
    .assert_eq(&counted(&metrics));
}

#[test]
fn no_label_holds_an_id_or_a_name_that_a_process_chose() {
    let metrics = metrics();
    metrics.report(NOW, &Report::Terminated(Box::new(sample::ignored())));
    let before = metrics.text().unwrap().lines().count();
    let mut t = sample::hostile("evil\n\u{1b}name");
    t.verdict.cause = sample::ignored().verdict.cause;
    metrics.report(NOW, &Report::Terminated(Box::new(t)));
    let text = metrics.text().unwrap();
    assert!(
        !text.contains("evil") && !text.contains("3f1c") && !text.contains("4021"),
        "{text}"
    );
    // A unit's stop and refusal histograms, count and time of its verdict begin, and no other series.
    let new = 2 * (BUCKETS.len() + 1 + 2) + 2;
    assert_eq!(text.lines().count(), before + new);
}

/// Seven numbers: with zeros, or the same ones, an outcome could be counted as another.
#[test]
fn each_outcome_of_connections_has_a_label_of_its_own() {
    let metrics = metrics();
    let mut t = sample::ignored();
    let traffic = &mut t.facts.traffic;
    let counts = [
        &mut traffic.accepted,
        &mut traffic.refused.all,
        &mut traffic.reset,
        &mut traffic.cut,
        &mut traffic.undecided.all,
        &mut traffic.idle_closed,
        &mut traffic.rejected,
    ];
    for (number, count) in (1..).zip(counts) {
        count.count = number;
    }
    metrics.report(NOW, &Report::Terminated(Box::new(t)));
    let text = counted(&metrics);
    let connections = text.lines().filter(|line| line.starts_with("epitaph_connections"));
    expect![[r#"
        epitaph_connections_total{outcome="accepted"} 1
        epitaph_connections_total{outcome="cut"} 4
        epitaph_connections_total{outcome="idle_closed"} 6
        epitaph_connections_total{outcome="refused"} 2
        epitaph_connections_total{outcome="rejected"} 7
        epitaph_connections_total{outcome="reset"} 3
        epitaph_connections_total{outcome="undecided"} 5"#]]
    .assert_eq(&connections.collect::<Vec<_>>().join("\n"));
}

#[test]
fn of_connections_that_were_not_observed_those_that_were_seen_lost_count() {
    let of = |cut: u64| {
        let metrics = metrics();
        let mut t = sample::ignored();
        t.facts.traffic = Traffic::default();
        t.facts.traffic.accepted.count = 9;
        t.facts.traffic.cut.count = cut;
        metrics.report(NOW, &Report::Terminated(Box::new(t)));
        counted(&metrics)
    };
    let text = of(0);
    assert!(
        !text.contains("epitaph_connections") && !text.contains("epitaph_refusal"),
        "{text}"
    );
    let text = of(5);
    let connections: Vec<&str> = text.lines().filter(|line| line.starts_with("epitaph_connections")).collect();
    assert_eq!(connections, [r#"epitaph_connections_total{outcome="cut"} 5"#]);
}

#[tokio::test]
async fn the_table_matches_both_exports() {
    let (names, pushed) = mpsc::channel();
    let push = Some((Collector(names), Duration::from_secs(3600)));
    let metrics = Metrics::new(Resource::builder_empty().build(), push, 10).unwrap();
    let settings = OtlpSettings {
        endpoint: Some("http://127.0.0.1:9".parse().unwrap()),
        ..OtlpSettings::default()
    };
    let to = settings.destinations().unwrap().traces.unwrap();
    let start = |signal| otlp::start(signal, to.clone(), otlp::Delivery::with_queue(1)).unwrap();
    let ((sink, _traces), (logs, _logs)) = (start(Signal::Traces), start(Signal::Logs));
    let exporters = Exporters::new([sink, logs]);
    for n in 1..=2 {
        let trace = span::trace(&ignored(n), &observation(), &span::Options::default());
        exporters.offer(&trace, "ignored-stop-signal");
    }
    metrics.follow_export(&exporters);
    metrics.follow_journal(&Arc::default());
    metrics.follow_requests(|| vec![("pods", "ok", 1)]);
    metrics.follow_failures(|| vec![("pods", "timeout", 1)]);
    metrics.follow_http(|| vec![("health", "displaced", 1)]);
    metrics.follow_logind(["off", "unavailable", "connected"], || "off");
    metrics.follow_events(Arc::default());
    metrics.follow_epitaphs(Arc::default());
    play(&metrics);
    play_pods(&metrics);

    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for family in metrics.registry.gather() {
        let labels = seen.entry(family.name().to_owned()).or_default();
        for metric in family.get_metric() {
            labels.extend(metric.get_label().iter().map(|l| l.name().to_owned()));
        }
    }
    let table: BTreeMap<String, BTreeSet<String>> = TABLE
        .iter()
        .map(|row| {
            (
                row.prometheus(),
                row.labels.iter().map(|(name, _)| name.replace('.', "_")).collect(),
            )
        })
        .collect();
    assert_eq!(seen, table);

    tokio::task::spawn_blocking(move || metrics.provider.force_flush())
        .await
        .unwrap()
        .unwrap();
    let pushed: BTreeSet<String> = pushed.recv().unwrap().into_iter().collect();
    assert_eq!(pushed, TABLE.iter().map(|row| row.name.to_owned()).collect());
}

#[test]
fn the_documentation_lists_what_the_code_has() {
    let doc = format!(
        "# Metrics\n\n\
         This page answers: which metrics are there, with which labels, and what does each count?\n\n\
         <!-- Generated from the code by `UPDATE_EXPECT=1 cargo test -p epitaph --lib metrics`; do not edit. -->\n\n\
         The agent serves the metrics at `/metrics`, and also pushes them by OTLP if a collector is configured. A counter of terminations \
         appears\n\
         with the first termination. If this first termination comes before the first scrape, `increase` does not count it. An alert on a single\n\
         termination must therefore compare a metric `..._timestamp_seconds` with `time()`, as the rules in `deploy/alerts` do. Over OTLP the labels of a\n\
         workload are `k8s.namespace.name`, `epitaph.workload.kind` and\n\
         `epitaph.workload.name`.\n\n{}\n\
         Next: [the alerts and the dashboard](../deploy/alerts/README.md), which are made of these metrics.\n",
        markdown()
    );
    expect_file!["../../../../docs/metrics.md"].assert_eq(&doc);
}
