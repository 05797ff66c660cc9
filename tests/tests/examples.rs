//! `deploy/examples` with the real programs: the collector accepts its configuration and passes terminations on to Jaeger, where they are
//! found by the clicks that the README describes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use epitaph_tests::agent::program as agent_program;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::http::free_port;
use epitaph_tests::jaeger::Jaeger;
use epitaph_tests::machine::is_root;
use epitaph_tests::monitoring::{Daemon, literal, program};
use epitaph_tests::play::Players;
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::timeout::{holds, until};
use serde_json::Value;

#[test]
fn a_collector_passes_terminations_on_to_jaeger() -> anyhow::Result<()> {
    let test = "a_collector_passes_terminations_on_to_jaeger";
    let (Some(collector), Some(jaeger)) = (program("EPITAPH_OTELCOL"), program("EPITAPH_JAEGER")) else {
        skip(
            test,
            "cargo xtask test builds both and names them in EPITAPH_OTELCOL and EPITAPH_JAEGER",
        );
        return Ok(());
    };
    if !is_root() {
        skip(test, "observing needs root");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let config = directory.path().join("config.yaml");
    let manifest = fs::read_to_string(root().join("deploy/examples/collector.yaml"))?;
    fs::write(
        &config,
        literal(&manifest, "config.yaml").context("no config.yaml in the ConfigMap")?,
    )?;
    let config = format!("--config={}", config.display());

    // As it stands, and with a mistake: the validation is one that can fail.
    let valid = Command::new(&collector).args(["validate", &config]).output()?;
    ensure!(valid.status.success(), "{}", String::from_utf8_lossy(&valid.stderr));
    let mistaken = [
        "validate",
        &config,
        "--set=service::pipelines::traces::exporters=[otlp_grpc/zipkin]",
    ];
    ensure!(!Command::new(&collector).args(mistaken).output()?.status.success());

    let jaeger = Jaeger::start(&jaeger, &directory.path().join("jaeger.log"))?;
    let port = free_port()?;
    let mut command = Command::new(&collector);
    command
        .args([&config, "--set=service::telemetry::metrics::level=none"])
        .env("OTLP_GRPC", format!("127.0.0.1:{port}"))
        .env("OTLP_HTTP", format!("127.0.0.1:{}", free_port()?))
        .env("JAEGER", format!("127.0.0.1:{}", jaeger.ports().otlp_grpc));
    let listens = || std::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port)).is_ok();
    let collector = Daemon::start(&mut command, directory.path().join("collector.log"), listens)?;

    let epitaph = Epitaph::copied(&agent_program(&binaries()), directory.path())?;
    let url = format!("http://127.0.0.1:{port}");
    let mut to = vec!["--otlp", &url, "--otlp-protocol", "grpc"];
    // Metrics are on, as by default: neither the collector nor Jaeger takes them.
    to.extend(["--set", "otlp.logs=true"]);
    let agent = Service::start(&epitaph, directory.path(), &to)?;
    play("abort")?;
    agent.until("epitaph_export_spans_total", &[r#"outcome="exported""#], 1.0)?;
    agent.until("epitaph_export_logs_total", &[r#"outcome="exported""#], 1.0)?;

    // Click 1 is the service, click 2 the operation or the tag, click 3 the trace.
    let trace = found(&jaeger).with_context(|| collector.log())?;
    ensure!(
        jaeger
            .operations("epitaph")?
            .iter()
            .any(|name| name == "container.stop crashed")
    );
    let spans = trace["spans"].as_array().context("no spans")?;
    let root = spans
        .iter()
        .find(|span| span["operationName"] == "container.stop crashed")
        .context("no root")?;
    let tags = root["tags"].as_array().context("no tags")?;
    for wanted in ["epitaph.sentence", "epitaph.remedy", "epitaph.verdict", "error"] {
        ensure!(tags.iter().any(|tag| tag["key"] == wanted), "no {wanted} in {tags:?}");
    }

    // The same termination as a log record, as the collector's debug exporter prints it.
    let value = |key: &str| {
        tags.iter()
            .find(|tag| tag["key"] == key)
            .and_then(|tag| tag["value"].as_str())
    };
    let sentence = value("epitaph.sentence").context("no sentence")?;
    let printed = [
        "EventName: epitaph.container.stop".to_owned(),
        format!("Body: Str({sentence})"),
        format!("Trace ID: {}", root["traceID"].as_str().context("no trace id")?),
        format!("Span ID: {}", root["spanID"].as_str().context("no span id")?),
        format!("SeverityText: {}", value("epitaph.severity").context("no severity")?),
        "-> epitaph.verdict: Str(crashed)".to_owned(),
    ];
    until("a log record of the termination", || {
        let log = collector.log();
        let is_it = |record: &str| printed.iter().all(|line| record.contains(line));
        Ok(holds(log.split("LogRecord #").any(is_it), || {
            format!("not all of {printed:#?} in one record of\n{log}")
        }))
    })
}

/// The manifest names the Jaeger that the tests run. Version 2.N of the program is version 1.(N + 63) of the module: both are tagged together.
#[test]
fn the_examples_jaeger_is_the_tested_one() -> anyhow::Result<()> {
    let modules = fs::read_to_string(root().join("xtask/jaeger/go.mod"))?;
    let mut words = modules
        .split_whitespace()
        .skip_while(|word| *word != "github.com/jaegertracing/jaeger");
    let module = words
        .nth(1)
        .and_then(|version| version.strip_prefix("v1."))
        .context("no Jaeger")?;
    let (minor, patch) = module.split_once('.').context("no patch")?;
    let version = format!("2.{}.{patch}", minor.parse::<u32>()? - 63);
    let example = fs::read_to_string(root().join("deploy/examples/jaeger.yaml"))?;
    let image = format!("image: jaegertracing/jaeger:{version}\n");
    ensure!(example.contains(&image), "jaeger.yaml lacks `{}`", image.trim_end());
    // The pictures are of its pages.
    let picture = fs::read_to_string(root().join("xtask/src/picture.rs"))?;
    ensure!(picture.contains(&format!("(v{version})")), "picture.rs lacks v{version}");
    Ok(())
}

/// The trace of the story, once the collector has sent its batch.
fn found(jaeger: &Jaeger) -> anyhow::Result<Value> {
    until("a trace with epitaph.unclean=true and container.stop crashed", || {
        let of_crash = |trace: &Value| trace.to_string().contains("container.stop crashed");
        let traces = jaeger.traces_with("epitaph.unclean", "true")?;
        let count = traces.len();
        let found = traces.into_iter().find(of_crash);
        Ok(found.ok_or_else(|| format!("none of {count} traces")))
    })
}

fn play(name: &str) -> anyhow::Result<()> {
    let players = Players::new(&binaries())?;
    let role = players.cast(stories().find(|story| story.name == name).context("a story of that name")?)?;
    let differs = players.play(&role)?.differs(&role);
    ensure!(differs.is_empty(), "{name}: {}", differs.join("\n"));
    Ok(())
}

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}
