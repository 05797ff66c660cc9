//! One typed configuration: a TOML file, then the environment over it, then flags over both.
//!
//! [`settings::ALL`] is the one list of settings: environment, `--set`, the check for unknown keys and `docs/config.md` come
//! from it. The environment is an argument ([`Env`]), so that tests need none.

mod secret;
pub mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use secret::{Endpoint, Secret};

use crate::correlate;
use crate::sink::otlp::{self, Compression, Headers, Protocol};
use crate::source::kernel;
use settings::nearest;

/// The effective configuration. Written as TOML it shows no secret: [`Secret`] and [`Endpoint`] redact themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub listen: Listen,
    pub otlp: Otlp,
    pub export: Export,
    pub kernel: Kernel,
    pub limits: Limits,
    pub log: Log,
}

/// Where `/metrics`, `/healthz` and `/readyz` are served.
///
/// 9464 is the port that OpenTelemetry gives Prometheus exporters, and loopback because nothing should be reachable from
/// outside before somebody asked for it: a DaemonSet sets its pod's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    Off,
    At(SocketAddr),
}

impl Default for Listen {
    fn default() -> Self {
        Listen::At(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9464))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Off => f.write_str("off"),
            Listen::At(address) => address.fmt(f),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Listen::Off);
        }
        text.parse()
            .map(Listen::At)
            .map_err(|_| "not an address: write ADDRESS:PORT such as 127.0.0.1:9464 or [::]:9464, or \"off\"".to_owned())
    }
}

/// The collector. Nothing is sent where no endpoint is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// For every signal; with http/protobuf `/v1/traces` and `/v1/metrics` are appended to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Used as it stands, instead of `endpoint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traces_endpoint: Option<Endpoint>,
    /// Used as it stands, instead of `endpoint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_endpoint: Option<Endpoint>,
    /// None: grpc where the endpoint's port is 4317, else http/protobuf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// With grpc: an endpoint without a scheme means http, not https.
    pub insecure: bool,
    pub compression: Compression,
    pub traces: bool,
    pub metrics: bool,
    #[serde(with = "human_duration")]
    pub metrics_interval: Duration,
    /// Of one export request.
    #[serde(with = "human_duration")]
    pub timeout: Duration,
    /// PEM file of the CA that signed the collector's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
    pub headers: BTreeMap<String, Secret>,
}

impl Default for Otlp {
    fn default() -> Self {
        Otlp {
            endpoint: None,
            traces_endpoint: None,
            metrics_endpoint: None,
            protocol: None,
            insecure: false,
            compression: Compression::None,
            traces: true,
            metrics: true,
            metrics_interval: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
            certificate: None,
            client_certificate: None,
            client_key: None,
            headers: BTreeMap::new(),
        }
    }
}

impl Otlp {
    /// For the sink of traces; None where they are not sent. `queue`: traces that wait for the collector.
    pub fn traces(&self, queue: usize) -> Result<Option<otlp::Settings>, otlp::ConfigError> {
        if !self.traces {
            return Ok(None);
        }
        self.settings(self.traces_endpoint.as_ref(), queue)
    }

    /// For [`crate::sink::metrics::push`]; None where metrics are not pushed.
    pub fn metrics(&self) -> Result<Option<otlp::Settings>, otlp::ConfigError> {
        if !self.metrics {
            return Ok(None);
        }
        let mut settings = self.settings(self.metrics_endpoint.as_ref(), 1)?;
        if let Some(settings) = &mut settings
            && self.metrics_endpoint.is_none()
            && let Some(base) = settings.url.to_string().strip_suffix("/v1/traces")
            && let Ok(url) = format!("{base}/v1/metrics").parse()
        {
            settings.url = url;
        }
        Ok(settings)
    }

    /// `own` is the signal's own endpoint, used as it stands.
    fn settings(&self, own: Option<&Endpoint>, queue: usize) -> Result<Option<otlp::Settings>, otlp::ConfigError> {
        let text = |endpoint: &Endpoint| endpoint.expose().to_owned();
        otlp::OtlpConfig {
            endpoint: self.endpoint.as_ref().map(text),
            traces_endpoint: own.map(text),
            protocol: self.protocol,
            headers: Headers(
                self.headers
                    .iter()
                    .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                    .collect(),
            ),
            timeout_ms: Some(u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX)),
            compression: Some(self.compression),
            certificate: self.certificate.clone(),
            client_certificate: self.client_certificate.clone(),
            client_key: self.client_key.clone(),
            insecure: Some(self.insecure),
            queue: Some(queue),
        }
        .settings()
    }
}

/// What is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Export {
    /// Traces of unclean terminations only; metrics count all.
    pub unclean_only: bool,
    /// One `service.name` for all terminations instead of each subject's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kernel {
    /// The kernel's BTF where it has no `/sys/kernel/btf/vmlinux`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub btf: Option<PathBuf>,
    /// Ring buffer between the probes and us, bytes; rounded up to a power of two.
    pub ring_bytes: u32,
}

impl Default for Kernel {
    fn default() -> Self {
        let kernel::Options { btf, ring_bytes } = kernel::Options::default();
        Kernel { btf, ring_bytes }
    }
}

impl Kernel {
    pub fn options(&self) -> kernel::Options {
        kernel::Options {
            btf: self.btf.clone(),
            ring_bytes: self.ring_bytes,
        }
    }
}

/// Bounds of memory and of waiting; see [`correlate::Limits`]. What does not fit is counted (`epitaph_dropped_total`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub subjects: usize,
    pub timelines: usize,
    pub facts: usize,
    pub connections: usize,
    pub pending: usize,
    pub index_live: usize,
    pub index_dead: usize,
    #[serde(with = "human_duration")]
    pub reorder: Duration,
    #[serde(with = "human_duration")]
    pub linger: Duration,
    #[serde(with = "human_duration")]
    pub idle: Duration,
    /// Finished terminations waiting for the collector.
    pub export_queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let correlate::Limits {
            subjects,
            timelines,
            facts,
            connections,
            pending,
            index_live,
            index_dead,
            reorder,
            linger,
            idle,
        } = correlate::Limits::default();
        Limits {
            subjects,
            timelines,
            facts,
            connections,
            pending,
            index_live,
            index_dead,
            reorder,
            linger,
            idle,
            export_queue: 2_048,
        }
    }
}

impl Limits {
    /// The core's part.
    pub fn core(&self) -> correlate::Limits {
        correlate::Limits {
            subjects: self.subjects,
            timelines: self.timelines,
            facts: self.facts,
            connections: self.connections,
            pending: self.pending,
            index_live: self.index_live,
            index_dead: self.index_dead,
            reorder: self.reorder,
            linger: self.linger,
            idle: self.idle,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// tracing-subscriber's directives: `info,epitaph::correlate=debug`.
    pub filter: String,
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Log {
            filter: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("not a log format: write text or json".to_owned()),
        }
    }
}

/// Where variables are read from.
pub trait Env {
    /// None where it is not set or not UTF-8.
    fn get(&self, name: &str) -> Option<String>;
}

/// The process's own environment.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnv;

impl Env for ProcessEnv {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// Values given on the command line: the flag as written, the setting's key, the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides(pub Vec<Override>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    pub flag: String,
    pub key: String,
    pub value: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {}: {error}; name another one with --config FILE", file.display())]
    Read { file: PathBuf, error: std::io::Error },
    // Not the whole of toml's error: that quotes the line, which may hold a secret.
    #[error("cannot parse the configuration {}, line {line}: {problem}", file.display())]
    Parse { file: PathBuf, line: usize, problem: String },
    #[error("unknown key `{key}` in {}{}", file.display(), did_you_mean(*nearest))]
    UnknownKey {
        file: PathBuf,
        key: String,
        nearest: Option<&'static str>,
    },
    #[error("unknown key `{key}` in {flag}{}", did_you_mean(*nearest))]
    UnknownFlagKey {
        flag: String,
        key: String,
        nearest: Option<&'static str>,
    },
    #[error("bad value of {source_name} (setting `{key}`): {problem}")]
    Value {
        source_name: String,
        key: String,
        problem: String,
    },
    #[error("bad setting `{key}`: {problem}")]
    Invalid { key: &'static str, problem: String },
}

fn did_you_mean(nearest: Option<&'static str>) -> String {
    match nearest {
        Some(key) => format!("; did you mean `{key}`?"),
        None => "; `epitaph agent --print-config` lists the known ones".to_owned(),
    }
}

impl Config {
    /// File, then environment, then flags.
    pub fn load(file: Option<&Path>, env: &dyn Env, flags: &Overrides) -> Result<Config, ConfigError> {
        let mut config = match file {
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| ConfigError::Read {
                    file: file.to_owned(),
                    error,
                })?;
                Config::parse(&text, file)?
            }
            None => Config::default(),
        };
        config.apply_env(env)?;
        config.apply_flags(flags)?;
        config.validate()?;
        Ok(config)
    }

    /// For the commands that a person runs: as [`Config::load`] without a file, but traces and metrics leave the machine only
    /// where a flag said so, not because a shell happened to have `OTEL_EXPORTER_OTLP_ENDPOINT` set.
    pub fn for_person(env: &dyn Env, flags: &Overrides) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        config.apply_env(env)?;
        config.otlp.endpoint = None;
        config.otlp.traces_endpoint = None;
        config.otlp.metrics_endpoint = None;
        config.listen = Listen::Off;
        config.apply_flags(flags)?;
        config.validate()?;
        Ok(config)
    }

    /// The effective configuration as a file that would give it, secrets redacted.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("every setting has a form in TOML")
    }

    fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
        let parse = |error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            ConfigError::Parse {
                file: file.to_owned(),
                line,
                problem: error.message().to_owned(),
            }
        };
        let table: toml::Table = toml::from_str(text).map_err(parse)?;
        if let Some(key) = settings::first_unknown(&table) {
            let nearest = nearest(&key);
            return Err(ConfigError::UnknownKey {
                file: file.to_owned(),
                key,
                nearest,
            });
        }
        toml::from_str(text).map_err(parse)
    }

    fn apply_env(&mut self, env: &dyn Env) -> Result<(), ConfigError> {
        for setting in settings::ALL {
            // An empty variable counts as unset, as OpenTelemetry has it.
            let found = setting
                .env
                .iter()
                .find_map(|&name| Some((name, env.get(name).filter(|v| !v.is_empty())?)));
            if let Some((name, value)) = found {
                (setting.set)(self, &value).map_err(|problem| ConfigError::Value {
                    source_name: format!("environment variable {name}"),
                    key: setting.key.to_owned(),
                    problem,
                })?;
            }
        }
        Ok(())
    }

    fn apply_flags(&mut self, flags: &Overrides) -> Result<(), ConfigError> {
        for Override { flag, key, value } in &flags.0 {
            let Some(setting) = settings::ALL.iter().find(|s| s.key == key) else {
                return Err(ConfigError::UnknownFlagKey {
                    flag: flag.clone(),
                    key: key.clone(),
                    nearest: nearest(key),
                });
            };
            (setting.set)(self, value).map_err(|problem| ConfigError::Value {
                source_name: flag.clone(),
                key: key.clone(),
                problem,
            })?;
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let invalid = |key, problem: &str| {
            Err(ConfigError::Invalid {
                key,
                problem: problem.to_owned(),
            })
        };
        // The kernel takes no more than a signed 32-bit size.
        if !(64 << 10..=1 << 30).contains(&self.kernel.ring_bytes) {
            return invalid("kernel.ring_bytes", "must be between 65536 and 1073741824");
        }
        let limits = &self.limits;
        for (key, value) in [
            ("limits.subjects", limits.subjects),
            ("limits.timelines", limits.timelines),
            ("limits.facts", limits.facts),
            ("limits.connections", limits.connections),
            ("limits.pending", limits.pending),
            ("limits.index_live", limits.index_live),
            ("limits.index_dead", limits.index_dead),
            ("limits.export_queue", limits.export_queue),
        ] {
            if value == 0 {
                return invalid(key, "must be 1 or more");
            }
        }
        if limits.linger < limits.reorder {
            return invalid("limits.linger", "must not be shorter than limits.reorder");
        }
        for (key, value) in [
            ("otlp.timeout", self.otlp.timeout),
            ("otlp.metrics_interval", self.otlp.metrics_interval),
        ] {
            if value.is_zero() {
                return invalid(key, "must be more than zero");
            }
        }
        if self.otlp.client_certificate.is_some() != self.otlp.client_key.is_some() {
            return invalid("otlp.client_certificate", "needs otlp.client_key, and the other way round");
        }
        // Their errors quote the endpoint, which may hold a password.
        for (key, result) in [
            ("otlp.endpoint", self.otlp.traces(limits.export_queue)),
            ("otlp.metrics_endpoint", self.otlp.metrics()),
        ] {
            match result {
                Ok(_) => {}
                Err(otlp::ConfigError::Endpoint { why, .. }) => return invalid(key, &why),
                Err(other) => return invalid(key, &other.to_string()),
            }
        }
        if let Err(problem) = tracing_subscriber::EnvFilter::try_new(&self.log.filter) {
            return invalid("log.filter", &format!("{problem}; write for example info,epitaph=debug"));
        }
        Ok(())
    }
}

macro_rules! as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
as_text!(Listen);
use as_text;

/// `30s`, `1m 30s`; a bare number is milliseconds, as OpenTelemetry's variables have it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if let Ok(millis) = text.parse() {
        return Ok(Duration::from_millis(millis));
    }
    humantime::parse_duration(text).map_err(|e| format!("{e}: write for example 10s, 500ms, or a number of milliseconds"))
}

mod human_duration {
    use super::*;

    pub fn serialize<S: serde::Serializer>(value: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&humantime::format_duration(*value))
    }
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
