//! A real Jaeger receives deaths through the real sink, and is asked what it has.

#[path = "../../agent/src/render/fixtures.rs"]
mod fixtures;

use std::time::Duration;

use anyhow::Context as _;
use epitaph::event::Boot;
use epitaph::render::id;
use epitaph::render::span::{Options, trace};
use epitaph::sink::otlp::{self, DropReason, OtlpConfig, Protocol};
use epitaph::termination::Termination;
use epitaph_tests::jaeger::Jaeger;
use epitaph_tests::skip::skip;
use serde_json::{Value, json};

use fixtures::{clean, ignored, ms, observation, oom};

#[tokio::test]
async fn jaeger_shows_each_death_as_one_trace() -> anyhow::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a test's own switch")]
    let Some(binary) = std::env::var_os("EPITAPH_JAEGER") else {
        skip(
            "jaeger_shows_each_death_as_one_trace",
            "EPITAPH_JAEGER names no Jaeger all-in-one binary; `cargo xtask jaeger --print-path` builds one",
        );
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let jaeger = Jaeger::start(binary.as_ref(), &directory.path().join("jaeger.log"))?;

    let mut saved = 0;
    for (protocol, port, base) in [
        (Protocol::Grpc, jaeger.ports().otlp_grpc, 100),
        (Protocol::HttpProtobuf, jaeger.ports().otlp_http, 200),
    ] {
        let deaths = [clean(base + 1), ignored(base + 2), oom(base + 3)];
        send(protocol, port, &deaths).await?;
        saved += spans(&deaths);
        until_saved(&jaeger, saved).await?;
        for death in &deaths {
            let found = found(&jaeger, death)?;
            // Jaeger says what it thinks of a trace: a skewed clock, a parent it does not know.
            assert!(spans_of(&found).iter().all(|s| s["warnings"].is_null()), "{found:#}");
            check(death, &found);
        }
        // What a restart that lost track of what it had sent would do.
        send(protocol, port, &deaths).await?;
        saved += spans(&deaths);
        until_saved(&jaeger, saved).await?;
        for death in &deaths {
            check(death, &folded(found(&jaeger, death)?));
        }
    }

    let all = jaeger.traces_of("epitaph")?;
    assert_eq!(all.len(), 6, "one trace per death");
    Ok(())
}

/// Sends them as an agent does that starts, sees these deaths, and ends.
async fn send(protocol: Protocol, port: u16, deaths: &[Termination]) -> anyhow::Result<()> {
    let endpoint = Some(format!("http://127.0.0.1:{port}"));
    let config = OtlpConfig {
        endpoint,
        protocol: Some(protocol),
        ..OtlpConfig::default()
    };
    let (sink, worker) = otlp::start(config.settings()?.expect("an endpoint"))?;
    for death in deaths {
        sink.offer(trace(death, &observation(), &Options::default()));
    }
    worker.shutdown(Duration::from_secs(60)).await;
    assert_eq!(sink.stats().exported(), spans(deaths), "{protocol:?}");
    assert_eq!(DropReason::ALL.map(|r| sink.stats().dropped(r)), [0; 3], "{protocol:?}");
    Ok(())
}

fn spans(deaths: &[Termination]) -> u64 {
    deaths
        .iter()
        .map(|d| trace(d, &observation(), &Options::default()).spans.len() as u64)
        .sum()
}

/// Jaeger takes a request before it has stored it, and counts what it has stored.
async fn until_saved(jaeger: &Jaeger, spans: u64) -> anyhow::Result<()> {
    let mut saved = 0;
    for _ in 0..600 {
        saved = jaeger.spans_saved("epitaph")?;
        if saved >= spans {
            anyhow::ensure!(saved == spans, "Jaeger stored {saved} spans of {spans}");
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("Jaeger stored {saved} spans of {spans}")
}

fn found(jaeger: &Jaeger, death: &Termination) -> anyhow::Result<Value> {
    jaeger
        .trace(&id::of(death).to_string())?
        .with_context(|| format!("Jaeger has no trace of {}", death.subject))
}

/// Storage in memory keeps both copies of a span that came twice, and the query folds those that are identical. Jaeger
/// 1.62 does not manage to: it writes a warning about the same id into one of them first (jaegertracing/jaeger#6116,
/// mended in 1.63). All that we sent must be the same in both.
fn folded(mut trace: Value) -> Value {
    let mut spans: Vec<Value> = Vec::new();
    for mut span in spans_of(&trace).to_vec() {
        span["warnings"] = Value::Null;
        if !spans.contains(&span) {
            spans.push(span);
        }
    }
    trace["spans"] = spans.into();
    trace
}

fn spans_of(trace: &Value) -> &[Value] {
    trace["spans"].as_array().expect("spans")
}

fn check(death: &Termination, found: &Value) {
    let expected = trace(death, &observation(), &Options::default()).spans;
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
    times(root, death.begin, death.end);
    for child in spans.iter().filter(|s| s["spanID"] != root["spanID"]) {
        let parent = json!([{"refType": "CHILD_OF", "traceID": root["traceID"], "spanID": root["spanID"]}]);
        assert_eq!(child["references"], parent, "{}", child["operationName"]);
    }
    assert_eq!(tag(root, "epitaph.verdict"), json!(death.verdict.headline));
    assert_eq!(tag(root, "epitaph.sentence"), json!(death.verdict.sentence));
    assert_eq!(tag(root, "process.pid"), json!(4242));
    if death.verdict.unclean {
        assert_eq!(tag(root, "otel.status_code"), json!("ERROR"));
        assert_eq!(tag(root, "otel.status_description"), json!(death.verdict.sentence));
        assert_eq!(tag(root, "error"), json!(true));
    } else {
        assert_eq!(tag(root, "otel.status_code"), Value::Null);
        assert_eq!(tag(root, "error"), Value::Null);
    }
    let process = &found["processes"][root["processID"].as_str().expect("a process")];
    assert_eq!(process["serviceName"], "epitaph");
    assert_eq!(tag(process, "host.name"), json!("node-7"));
    assert_eq!(tag(process, "epitaph.boot_id"), json!(death.key.boot_id));

    match death.verdict.headline {
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
            assert_eq!(tag(span("cut connections"), "epitaph.connections.cut_unanswered"), json!(2));
            assert_eq!(tag(root, "epitaph.stop.result"), json!("ignored"));
            let evidence: Vec<String> = serde_json::from_str(tag(root, "epitaph.evidence").as_str().expect("text"))
                .expect("Jaeger has arrays as JSON text");
            assert_eq!(evidence[1], "+30000.000 ms signal_generate: SIGKILL from containerd-shim");
            let expected = [
                ("stop-signal-ignored", ms(0)),
                ("listener.closed", ms(40)),
                ("SIGKILL", ms(30_000)),
            ];
            assert_eq!(events(root), expected.map(|(name, at)| (name.to_string(), micros(at))));
        }
        "oom-killed" => {
            assert_eq!(root["operationName"], "unit.stop");
            assert_eq!(tag(root, "epitaph.unit.name"), json!("hungry.service"));
            assert_eq!(tag(root, "epitaph.late_start"), json!(true));
            assert_eq!(events(root), [("oom".into(), micros(ms(0)))]);
        }
        other => panic!("no expectations for {other}"),
    }
}

fn times(span: &Value, begin: Boot, end: Boot) {
    let name = &span["operationName"];
    assert_eq!(span["startTime"], json!(micros(begin)), "start of {name}");
    assert_eq!(span["duration"], json!(micros(end) - micros(begin)), "duration of {name}");
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
