use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

use epitaph_core::fixtures::{pods, sample};
use epitaph_core::verdict::{Advice, AdviceKind};
use expect_test::{expect, expect_file};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;

use super::*;
use crate::config::OtlpSettings;

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
        Report::ChildOomKilled { subject, oom },
        Report::Terminated(Box::new(sample::ignored())),
        Report::Terminated(Box::new(sample::unknown_unit())),
        Report::Dropped {
            reason: DropReason::FactCap,
            count: 2,
        },
    ] {
        metrics.report(&output);
    }
    metrics.pods(&PodsState::Synced);
    metrics.api_clock(&ApiClock {
        earliest: -250_000_000,
        latest: 50_000_000,
    });
    metrics.lost(Kind::Tcp, 5);
    metrics.neighbours(1);
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
        Report::Terminated(Box::new(restarted)),
        Report::PodTerminated(Box::new(pod)),
    ] {
        metrics.report(&output);
    }
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

#[test]
fn every_verdict_is_zero_before_the_first_termination() {
    let text = metrics().text().unwrap();
    for row in &verdict::table::TABLE {
        let verdict = row.headline;
        let series = text
            .lines()
            .filter(|l| l.starts_with("epitaph_terminations_total{") && l.contains(&format!("verdict=\"{verdict}\"")));
        let zero = series.inspect(|l| assert!(l.ends_with(" 0"), "{l}")).count();
        assert_eq!(zero, 6, "five runtimes and systemd, for {verdict}");
    }
}

#[test]
fn a_termination_is_counted_in_the_series_that_was_zero() {
    let metrics = metrics();
    let series = |text: &str| text.lines().filter(|l| l.starts_with("epitaph_terminations_total{")).count();
    let before = series(&metrics.text().unwrap());
    play(&metrics);
    assert_eq!(series(&metrics.text().unwrap()), before);
    expect![[r#"
        epitaph_agent_neighbours 1
        epitaph_build_info{records="4",version="0.1.0"} 1
        epitaph_connections_total{outcome="accepted"} 3
        epitaph_connections_total{outcome="refused"} 14
        epitaph_dropped_total{reason="fact_cap"} 2
        epitaph_kubernetes_clock_ahead_seconds{bound="least"} -0.25
        epitaph_kubernetes_clock_ahead_seconds{bound="most"} 0.05
        epitaph_kubernetes_state{state="synced"} 1
        epitaph_oom_child_kills_total{subject="container"} 1
        epitaph_probe_state{probe="inet_sk_error_report",state="substituted"} 1
        epitaph_probe_state{probe="signal_generate",state="active"} 1
        epitaph_probe_state{probe="tcp_send_reset",state="unsupported"} 1
        epitaph_records_lost_total{kind="tcp"} 5
        epitaph_refusal_duration_seconds_sum{subject="container"} 3.2
        epitaph_refusal_duration_seconds_count{subject="container"} 1
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
    metrics.report(&Report::Terminated(Box::new(sample::ignored())));
    let before = metrics.text().unwrap().lines().count();
    let mut t = sample::hostile("evil\n\u{1b}name");
    t.verdict.cause = sample::ignored().verdict.cause;
    metrics.report(&Report::Terminated(Box::new(t)));
    let text = metrics.text().unwrap();
    assert!(
        !text.contains("evil") && !text.contains("3f1c") && !text.contains("4021"),
        "{text}"
    );
    // A unit's stop and refusal histograms begin, and no other series.
    let new = 2 * (BUCKETS.len() + 1 + 2);
    assert_eq!(text.lines().count(), before + new);
}

#[test]
fn connections_that_were_not_observed_are_not_counted() {
    let metrics = metrics();
    let mut t = sample::ignored();
    t.facts.traffic.observed = false;
    metrics.report(&Report::Terminated(Box::new(t)));
    let text = counted(&metrics);
    assert!(
        !text.contains("epitaph_connections") && !text.contains("epitaph_refusal"),
        "{text}"
    );
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
    let (sink, _worker) = otlp::start(to, otlp::Delivery::with_queue(1)).unwrap();
    metrics.follow_export(sink);
    metrics.follow_requests(|| vec![("pods", "ok", 1)]);
    metrics.follow_http(|| vec![("health", "displaced", 1)]);
    metrics.follow_events(Arc::default());
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
         Generated from the code by `UPDATE_EXPECT=1 cargo test -p epitaph --lib metrics`; do not edit.\n\n\
         The metrics are served at `/metrics`, and pushed by OTLP if a collector is configured. All combinations of labels in\n\
         `epitaph_terminations_total` start at 0, so that the first termination is an increase; those of a workload start as soon as\n\
         one of its pods runs on the node. Over OTLP the labels of a workload are `k8s.namespace.name`, `epitaph.workload.kind` and\n\
         `epitaph.workload.name`.\n\n{}",
        markdown()
    );
    expect_file!["../../../../docs/metrics.md"].assert_eq(&doc);
}
