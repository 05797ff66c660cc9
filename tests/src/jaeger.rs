//! A real Jaeger on ports of its own, with the configuration of `deploy/examples/jaeger.yaml`, and its query API.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::http::{free_port, get};
use crate::monitoring::literal;
use crate::skip::skip;
use crate::timeout::{Look, until};

const EXAMPLE: &str = include_str!("../../deploy/examples/jaeger.yaml");

/// All of it in one process, with storage in memory, on the loopback.
#[derive(Debug)]
pub struct Jaeger {
    /// Ends with this value; None if another keeps it.
    child: Option<Child>,
    ports: Ports,
}

/// What it listens on, all on 127.0.0.1.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ports {
    pub otlp_grpc: u16,
    pub otlp_http: u16,
    pub query: u16,
    metrics: u16,
}

/// The binary that `EPITAPH_JAEGER` names. None, and a skip of the test of that name, without one.
pub fn named(test: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test's own switch")]
    let binary = std::env::var_os("EPITAPH_JAEGER");
    if binary.is_none() {
        skip(
            test,
            "EPITAPH_JAEGER names no Jaeger; `cargo xtask jaeger --print-path` builds one",
        );
    }
    binary.map(PathBuf::from)
}

impl Jaeger {
    /// A new one, which ends with the value; returns when it answers.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start(binary: &Path, log: &Path) -> anyhow::Result<Jaeger> {
        // Jaeger watches this directory, and logs each change in it: its log is elsewhere.
        let (mut command, ports) = command(binary, &log.with_extension("config"))?;
        let log_file = std::fs::File::create(log).context("create Jaeger's log")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log_file.try_clone()?)
            .stderr(log_file)
            .spawn()
            .with_context(|| format!("start Jaeger {}", binary.display()))?;
        let mut jaeger = Jaeger {
            child: Some(child),
            ports,
        };
        until("Jaeger to answer", || {
            if let Some(child) = &mut jaeger.child
                && let Some(status) = child.try_wait()?
            {
                bail!("Jaeger ended with {status}: {}", std::fs::read_to_string(log)?);
            }
            Ok(jaeger.answers())
        })?;
        Ok(jaeger)
    }

    /// One that another keeps.
    pub fn at(ports: Ports) -> Jaeger {
        Jaeger { child: None, ports }
    }

    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Whether it takes spans and questions.
    pub fn answers(&self) -> Look<()> {
        self.get("/api/services").map_err(|error| format!("{error:#}"))?;
        for port in [self.ports.otlp_grpc, self.ports.otlp_http] {
            connect(port).map_err(|error| format!("port {port}: {error}"))?;
        }
        Ok(())
    }

    /// The trace as the UI gets it: `data[0]`, or None if there is none.
    pub fn trace(&self, id: &str) -> anyhow::Result<Option<Value>> {
        match self.get(&format!("/api/traces/{id}"))? {
            (200, body) => {
                let data = body["data"].as_array().context("no data")?;
                ensure!(data.len() == 1, "{} traces of one id", data.len());
                Ok(Some(data[0].clone()))
            }
            (404, _) => Ok(None),
            (status, body) => bail!("Jaeger answered {status}: {body}"),
        }
    }

    /// All traces of a service.
    pub fn traces_of(&self, service: &str) -> anyhow::Result<Vec<Value>> {
        // The range of time is that of the fixtures: Jaeger looks an hour back by default.
        let path = format!("/api/traces?service={service}&limit=1000&start=0&end=4000000000000000");
        let (status, body) = self.get(&path)?;
        ensure!(status == 200, "Jaeger answered {status}: {body}");
        Ok(body["data"].as_array().context("no data")?.clone())
    }

    /// Names of a service's spans: the list *Operation* of the search page.
    pub fn operations(&self, service: &str) -> anyhow::Result<Vec<String>> {
        let (status, body) = self.get(&format!("/api/services/{service}/operations"))?;
        ensure!(status == 200, "Jaeger answered {status}: {body}");
        let names = body["data"].as_array().context("no data")?.iter();
        Ok(names.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Services with spans.
    pub fn services(&self) -> anyhow::Result<Vec<String>> {
        let (status, body) = self.get("/api/services")?;
        ensure!(status == 200, "Jaeger answered {status}: {body}");
        let names = body["data"].as_array().into_iter().flatten();
        Ok(names.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// All traces with a span, or a resource, that has this attribute.
    pub fn traces_with(&self, key: &str, value: &str) -> anyhow::Result<Vec<Value>> {
        let tags = json!({ key: value }).to_string();
        let mut found = Vec::new();
        for service in self.services()? {
            let query = [
                ("service", &*service),
                ("tags", &tags),
                ("limit", "100"),
                ("start", "0"),
                ("end", "4000000000000000"),
            ];
            let query: Vec<String> = query.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
            let (status, body) = self.get(&format!("/api/traces?{}", query.join("&")))?;
            ensure!(status == 200, "Jaeger answered {status}: {body}");
            found.extend(body["data"].as_array().cloned().unwrap_or_default());
        }
        // One trace can have spans of several services.
        found.sort_by_key(|trace| trace["traceID"].to_string());
        found.dedup_by_key(|trace| trace["traceID"].to_string());
        Ok(found)
    }

    /// Spans of all services that Jaeger has stored so far, each copy counted.
    pub fn spans_saved(&self) -> anyhow::Result<u64> {
        let (status, metrics) = get(self.ports.metrics, "/metrics")?;
        ensure!(status == 200, "Jaeger's metrics: {status}");
        let counts = metrics
            .lines()
            .filter(|line| line.starts_with("otelcol_exporter_sent_spans") && line.contains("\"jaeger_storage_exporter\""));
        // The counter is there from the first span on.
        counts
            .map(|line| Ok(line.rsplit(' ').next().context("no value")?.parse::<u64>()?))
            .sum()
    }

    fn get(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        let (status, body) = get(self.ports.query, path)?;
        Ok((
            status,
            serde_json::from_str(&body).with_context(|| format!("parse {path}: {body}"))?,
        ))
    }
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How it is started, on free ports, with its configuration in `directory`.
///
/// # Errors
/// The directory cannot be written.
pub fn command(binary: &Path, directory: &Path) -> anyhow::Result<(Command, Ports)> {
    std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    for name in ["config.yaml", "ui.json"] {
        let text = literal(EXAMPLE, name).with_context(|| format!("no {name} in the example"))?;
        std::fs::write(directory.join(name), text).with_context(|| format!("write {name}"))?;
    }
    let ports = Ports {
        otlp_grpc: free_port()?,
        otlp_http: free_port()?,
        query: free_port()?,
        metrics: free_port()?,
    };
    let listener = |port: u16| format!("{}:{port}", Ipv4Addr::LOCALHOST);
    let prometheus = json!([{"pull": {"exporter": {"prometheus": {"host": Ipv4Addr::LOCALHOST, "port": ports.metrics}}}}]);
    let mut command = Command::new(binary);
    command
        .arg("--config")
        .arg(directory.join("config.yaml"))
        .arg(format!("--set=service.telemetry.metrics.readers={prometheus}"))
        .arg(format!(
            "--set=extensions.jaeger_query.grpc.endpoint={}",
            listener(free_port()?)
        ))
        .env("HEALTH", listener(free_port()?))
        .env("OTLP_GRPC", listener(ports.otlp_grpc))
        .env("OTLP_HTTP", listener(ports.otlp_http))
        .env("QUERY", listener(ports.query))
        .env("UI", directory.join("ui.json"));
    Ok((command, ports))
}

/// For a URL's query.
fn escaped(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let escape = |byte: u8| {
        if plain(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(escape).collect()
}

fn connect(port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
}
