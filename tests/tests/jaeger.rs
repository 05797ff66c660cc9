//! A real Jaeger receives terminations through the real sink, and returns them.

use std::fmt::Display;
use std::time::Duration;

use anyhow::Context as _;
use epitaph::config::OtlpSettings;
use epitaph::render::span::{Options, Trace, pod_trace, trace};
use epitaph::sink::otlp::{self, Delivery, Protocol, Signal, SpanDropReason};
use epitaph_core::event::Kind;
use epitaph_core::fixtures::pods;
use epitaph_core::fixtures::terminations::{clean, ignored, ms, observation, oom};
use epitaph_core::render::id;
use epitaph_core::report::PodTermination;
use epitaph_core::report::Termination;
use epitaph_core::time::Boot;
use epitaph_core::verdict::{Evidence, Source};
use epitaph_tests::jaeger::{self, Jaeger};
use epitaph_tests::timeout::{holds, until};
use epitaph_tests::traces::{kind, kind_of};
use serde_json::{Value, json};

#[tokio::test]
async fn jaeger_shows_each_termination_as_one_trace() -> anyhow::Result<()> {
    let Some((jaeger, _directory)) = jaeger("jaeger_shows_each_termination_as_one_trace")? else {
        return Ok(());
    };
    let mut saved = 0;
    for (protocol, port, base) in [
        (Protocol::Grpc, jaeger.ports().otlp_grpc, 100),
        (Protocol::HttpProtobuf, jaeger.ports().otlp_http, 200),
    ] {
        let mut killed = ignored(base + 2);
        killed.verdict.evidence.push(Evidence {
            at: ms(29_000),
            source: Source::Probe(Kind::SignalGenerate),
            text: "SIGHUP from containerd-shim".into(),
        });
        let terminations = [clean(base + 1), killed, oom(base + 3)];
        let traces = terminations
            .each_ref()
            .map(|of| trace(of, &observation(), &Options::default()));
        send(protocol, port, &traces).await?;
        saved += spans(&traces);
        until_saved(&jaeger, saved)?;
        for termination in &terminations {
            let found = found(&jaeger, id::of(termination))?;
            no_warnings(&found);
            check(termination, &found);
        }
        // What a restart that lost track of what it had sent would do.
        send(protocol, port, &traces).await?;
        saved += spans(&traces);
        until_saved(&jaeger, saved)?;
        for termination in &terminations {
            check(termination, &found(&jaeger, id::of(termination))?);
        }
    }

    let all = jaeger.traces_of("epitaph")?;
    assert_eq!(all.len(), 6, "one trace per termination");
    let of_judged = |name: &String| kind(name) != name;
    let mut operations: Vec<String> = jaeger.operations("epitaph")?.into_iter().filter(of_judged).collect();
    operations.sort_unstable();
    assert_eq!(
        operations,
        [
            "container.stop clean",
            "container.stop ignored-stop-signal",
            "unit.stop oom-killed"
        ],
        "a search by operation is a search by verdict"
    );
    Ok(())
}

/// A rollout's pod, one of its containers unclean, and a container of another that was restarted: exported twice, as by an agent
/// that lost track in between.
#[tokio::test]
async fn jaeger_shows_a_pod_as_one_trace() -> anyhow::Result<()> {
    let Some((jaeger, _directory)) = jaeger("jaeger_shows_a_pod_as_one_trace")? else {
        return Ok(());
    };
    let options = Options {
        cluster_name: Some("staging".into()),
        ..Options::default()
    };
    let (pod, restarted) = (pods::pod(301), pods::restarted(303));
    let traces = [
        pod_trace(&pod, &observation(), &options),
        trace(&restarted, &observation(), &options),
    ];
    let whole = id::of_pod(&pod.pod, &pod.boot_id);
    for (times, protocol, port) in [
        (1, Protocol::Grpc, jaeger.ports().otlp_grpc),
        (2, Protocol::HttpProtobuf, jaeger.ports().otlp_http),
    ] {
        send(protocol, port, &traces).await?;
        until_saved(&jaeger, times * spans(&traces))?;
        let found = [found(&jaeger, whole)?, found(&jaeger, id::of(&restarted))?];
        if times == 1 {
            found.iter().for_each(no_warnings);
        }
        let [whole, own] = found;
        check_pod(&pod, &whole);
        let roots: Vec<_> = spans_of(&own).iter().filter(|s| s["references"] == json!([])).collect();
        assert_eq!(roots.len(), 1, "{own:#}");
        assert_eq!(roots[0]["operationName"], "container.stop ignored-stop-signal");
        assert_eq!(tag(roots[0], "k8s.container.restart_count"), json!(2));
        let process = &own["processes"][roots[0]["processID"].as_str().expect("a process")];
        assert_eq!(tag(process, "service.instance.id"), json!("shop.cart-7d9f8b6c5-x2x4z.app"));
    }
    assert_eq!(jaeger.traces_of("cart")?.len(), 2, "the pod's and the restart's");
    assert!(
        jaeger.traces_of("epitaph")?.is_empty(),
        "beside its application's, and nowhere else"
    );
    Ok(())
}

fn check_pod(pod: &PodTermination, found: &Value) {
    let spans = spans_of(found);
    let mut names: Vec<_> = spans.iter().map(|s| s["operationName"].as_str().expect("a name")).collect();
    names.sort_unstable();
    let expected = [
        "SIGTERM → exit",
        "SIGTERM → exit",
        "container.stop clean",
        "container.stop ignored-stop-signal",
        "cut connections",
        "listener closed → exit",
        "pod.termination ignored-stop-signal",
        "preStop",
        "refused connections",
        "rejected connections",
        "reset connections",
    ];
    assert_eq!(names, expected, "each span once");

    let (mut roots, mut orphans) = (vec![], vec![]);
    for span in spans {
        let Some(parent) = span["references"].get(0) else {
            roots.push(span);
            continue;
        };
        let Some(parent) = spans.iter().find(|s| s["spanID"] == parent["spanID"]) else {
            orphans.push(&span["operationName"]);
            continue;
        };
        let (from, to) = interval(span);
        let (begin, end) = interval(parent);
        assert!(begin <= from && to <= end, "{} outside of its parent", span["operationName"]);
        let under = match kind_of(span) {
            "container.stop" => "pod.termination",
            _ => "container.stop",
        };
        assert_eq!(kind_of(parent), under, "above {}", span["operationName"]);
    }
    assert_eq!((roots.len(), orphans.len()), (1, 0), "one root, no orphan: {orphans:?}");
    let root = roots[0];
    assert_eq!(
        root["spanID"],
        json!(id::pod_root(id::of_pod(&pod.pod, &pod.boot_id)).to_string())
    );
    times(root, pod.begin, pod.end);
    assert_eq!(tag(root, "epitaph.sentence"), json!(pod.verdict.sentence));
    assert_eq!(tag(root, "otel.status_code"), json!("ERROR"));
    assert_eq!(tag(root, "epitaph.connections.refused"), json!(14));
    assert_eq!(tag(root, "epitaph.request.grace"), json!(30));
    let moments = [("grace.shortened", ms(100)), ("container.unseen", pod.end)];
    assert_eq!(events(root), moments.map(|(name, at)| (name.to_string(), micros(at))));

    let stops = spans.iter().filter(|s| kind_of(s) == "container.stop");
    let mut ends: Vec<_> = stops
        .map(|s| (tag(s, "k8s.container.name"), tag(s, "otel.status_code")))
        .collect();
    ends.sort_by_key(|(name, _)| name.to_string());
    assert_eq!(ends, [(json!("app"), json!("ERROR")), (json!("proxy"), Value::Null)]);

    let process = &found["processes"][root["processID"].as_str().expect("a process")];
    assert_eq!(process["serviceName"], "cart");
    for (key, value) in [
        ("service.namespace", "shop"),
        ("service.version", "1.4.2"),
        ("k8s.cluster.name", "staging"),
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", "cart-7d9f8b6c5-x2x4z"),
        ("k8s.node.name", "node-7"),
        ("k8s.deployment.name", "cart"),
        ("k8s.replicaset.name", "cart-7d9f8b6c5"),
    ] {
        assert_eq!(tag(process, key), json!(value), "{key}");
    }
}

/// None where no Jaeger is configured: the test is reported as skipped.
fn jaeger(test: &str) -> anyhow::Result<Option<(Jaeger, tempfile::TempDir)>> {
    let Some(binary) = jaeger::named(test) else { return Ok(None) };
    let directory = tempfile::tempdir()?;
    let jaeger = Jaeger::start(&binary, &directory.path().join("jaeger.log"))?;
    Ok(Some((jaeger, directory)))
}

/// Jaeger warns about a trace: a skewed clock, an unknown parent.
fn no_warnings(found: &Value) {
    assert!(spans_of(found).iter().all(|s| s["warnings"].is_null()), "{found:#}");
}

/// Exports them as an agent does that starts, observes these terminations, and exits.
async fn send(protocol: Protocol, port: u16, traces: &[Trace]) -> anyhow::Result<()> {
    let settings = OtlpSettings {
        endpoint: Some(format!("http://127.0.0.1:{port}").parse().expect("an endpoint")),
        protocol: Some(protocol),
        ..OtlpSettings::default()
    };
    let to = settings.destinations()?.traces.expect("an endpoint");
    let (sink, worker) = otlp::start(Signal::Traces, to, Delivery::with_queue(2_048))?;
    for trace in traces {
        sink.offer(trace, "clean");
    }
    worker.shutdown(Duration::from_secs(60)).await;
    assert_eq!(sink.stats().exported(), spans(traces), "{protocol:?}");
    for reason in SpanDropReason::ALL {
        assert_eq!(sink.stats().dropped(reason), 0, "{protocol:?}, {reason:?}");
    }
    Ok(())
}

fn spans(traces: &[Trace]) -> u64 {
    traces.iter().map(|trace| trace.spans.len() as u64).sum()
}

/// Jaeger takes a request before it has stored it, and counts what it has stored.
fn until_saved(jaeger: &Jaeger, spans: u64) -> anyhow::Result<()> {
    // Everything was sent before.
    until("Jaeger to store the spans", || {
        let saved = jaeger.spans_saved()?;
        anyhow::ensure!(saved <= spans, "Jaeger stored {saved} spans of {spans}");
        Ok(holds(saved == spans, || format!("{saved} of {spans}")))
    })
}

fn found(jaeger: &Jaeger, trace: impl Display) -> anyhow::Result<Value> {
    jaeger
        .trace(&trace.to_string())?
        .with_context(|| format!("Jaeger has no trace {trace}"))
}

fn spans_of(trace: &Value) -> &[Value] {
    trace["spans"].as_array().expect("spans")
}

fn check(termination: &Termination, found: &Value) {
    let expected = trace(termination, &observation(), &Options::default()).spans;
    let spans = spans_of(found);
    let mut names: Vec<_> = spans.iter().map(|s| s["operationName"].as_str().expect("a name")).collect();
    let mut expected_names: Vec<_> = expected.iter().map(|s| s.name.as_ref()).collect();
    names.sort_unstable();
    expected_names.sort_unstable();
    assert_eq!(names, expected_names, "each span once");

    let span = |name: &str| {
        spans
            .iter()
            .find(|s| s["operationName"] == name)
            .unwrap_or_else(|| panic!("no {name}"))
    };
    let root = span(&expected[0].name);
    assert_eq!(root["references"], json!([]), "a root");
    times(root, termination.begin, termination.end);
    for child in spans.iter().filter(|s| s["spanID"] != root["spanID"]) {
        let parent = json!([{"refType": "CHILD_OF", "traceID": root["traceID"], "spanID": root["spanID"]}]);
        assert_eq!(child["references"], parent, "{}", child["operationName"]);
    }
    assert_eq!(tag(root, "epitaph.verdict"), json!(termination.verdict.headline));
    assert_eq!(tag(root, "epitaph.sentence"), json!(termination.verdict.sentence));
    assert_eq!(tag(root, "process.pid"), json!(4242));
    if termination.verdict.unclean {
        assert_eq!(tag(root, "otel.status_code"), json!("ERROR"));
        assert_eq!(tag(root, "otel.status_description"), json!(termination.verdict.sentence));
        assert_eq!(tag(root, "error"), json!(true));
    } else {
        assert_eq!(tag(root, "otel.status_code"), Value::Null);
        assert_eq!(tag(root, "error"), Value::Null);
    }
    let process = &found["processes"][root["processID"].as_str().expect("a process")];
    assert_eq!(process["serviceName"], "epitaph");
    assert_eq!(tag(process, "host.name"), json!("node-7"));
    assert_eq!(tag(process, "epitaph.boot_id"), json!(termination.key.boot_id));

    match termination.verdict.headline {
        "clean" => {
            assert_eq!(tag(root, "process.exit.code"), json!(0));
            times(span("SIGTERM → exit"), ms(0), ms(250));
            assert_eq!(events(root), [("handler.entered".into(), micros(ms(1)))]);
        }
        "ignored-stop-signal" => {
            times(span("SIGTERM → exit"), ms(0), ms(30_002));
            let refused = span("refused connections");
            times(refused, ms(41), ms(3_241));
            assert_eq!(tag(refused, "epitaph.connections.refused"), json!(14));
            times(span("reset connections"), ms(30_001), ms(30_001));
            times(span("cut connections"), ms(30_001), ms(30_002));
            assert_eq!(tag(span("cut connections"), "epitaph.connections.cut_unanswered"), json!(3));
            assert_eq!(tag(root, "epitaph.stop.result"), json!("ignored"));
            let evidence: Vec<String> = serde_json::from_str(tag(root, "epitaph.evidence").as_str().expect("text"))
                .expect("Jaeger has arrays as JSON text");
            assert_eq!(
                evidence,
                ["+29000.000 ms signal_generate: SIGHUP from containerd-shim"],
                "what attributes show is not repeated"
            );
            times(span("listener closed → exit"), ms(40), ms(30_002));
            assert_eq!(tag(span("listener closed → exit"), "server.port"), json!(8080));
            let expected = [
                ("stop-signal-ignored", ms(0)),
                ("listener.closed", ms(40)),
                ("SIGKILL", ms(30_000)),
            ];
            assert_eq!(events(root), expected.map(|(name, at)| (name.to_string(), micros(at))));
        }
        "oom-killed" => {
            assert_eq!(root["operationName"], "unit.stop oom-killed");
            assert_eq!(tag(root, "epitaph.unit.name"), json!("hungry.service"));
            assert_eq!(tag(root, "epitaph.late_start"), json!(true));
            let expected = [("oom", ms(0)), ("unobserved", ms(100))];
            assert_eq!(events(root), expected.map(|(name, at)| (name.to_string(), micros(at))));
        }
        other => panic!("no expectations for {other}"),
    }
}

fn times(span: &Value, begin: Boot, end: Boot) {
    let name = &span["operationName"];
    assert_eq!(span["startTime"], json!(micros(begin)), "start of {name}");
    assert_eq!(span["duration"], json!(micros(end) - micros(begin)), "duration of {name}");
}

fn interval(span: &Value) -> (u64, u64) {
    let start = span["startTime"].as_u64().expect("a time");
    (start, start + span["duration"].as_u64().expect("a duration"))
}

/// Jaeger's resolution.
fn micros(at: Boot) -> u64 {
    observation().wall_offset.wall(at).0 / 1000
}

fn tag(of: &Value, key: &str) -> Value {
    let tags = of["tags"].as_array().expect("tags");
    tags.iter()
        .find(|t| t["key"] == key)
        .map_or(Value::Null, |t| t["value"].clone())
}

/// Name and time of each of a span's logs.
fn events(span: &Value) -> Vec<(String, u64)> {
    let logs = span["logs"].as_array().expect("logs");
    let name = |log: &Value| {
        let fields = log["fields"].as_array().expect("fields");
        fields.iter().find(|f| f["key"] == "event").expect("an event's name")["value"]
            .as_str()
            .expect("text")
            .to_string()
    };
    logs.iter()
        .map(|log| (name(log), log["timestamp"].as_u64().expect("a time")))
        .collect()
}
