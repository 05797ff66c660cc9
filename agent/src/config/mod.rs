//! One typed configuration: a TOML file, then the environment over it, then flags over both.
//!
//! [`settings::ALL`] is the one list of settings: environment, `--set`, the check for unknown keys and `docs/config.md` come
//! from it. The environment is an argument ([`Env`]), so that tests need none.

mod observer;
mod secret;
mod sections;
pub mod settings;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use observer::Observer;
pub use secret::{Endpoint, Secret};
pub use sections::{Export, Host, Kernel, Kubernetes, KubernetesMode, Limits, Listen, Log, LogFormat, Otlp};

use crate::sink::otlp;
use settings::nearest;

/// The effective configuration. Written as TOML it shows no secret: [`Secret`] and [`Endpoint`] redact themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub listen: Listen,
    pub otlp: Otlp,
    pub export: Export,
    pub kernel: Kernel,
    pub host: Host,
    pub kubernetes: Kubernetes,
    pub observer: Observer,
    pub limits: Limits,
    pub log: Log,
}

/// Where variables are read from.
pub trait Env {
    /// None where it is not set or not UTF-8.
    fn get(&self, name: &str) -> Option<String>;

    /// Of all that are set.
    fn names(&self) -> Vec<String>;
}

/// The process's own environment.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnv;

impl Env for ProcessEnv {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn names(&self) -> Vec<String> {
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
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
    #[error("cannot parse the configuration {}, line {line}{}: {problem}", file.display(), of_setting(*key))]
    Parse {
        file: PathBuf,
        line: usize,
        /// None where it is no TOML, or no setting's own value is wrong.
        key: Option<&'static str>,
        problem: String,
    },
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

fn of_setting(key: Option<&str>) -> String {
    key.map_or(String::new(), |key| format!(" (setting `{key}`)"))
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
        // Neither does a person's shell connect to a cluster.
        config.kubernetes.mode = KubernetesMode::Off;
        config.kubernetes.kubeconfig = None;
        config.apply_flags(flags)?;
        config.validate()?;
        Ok(config)
    }

    /// The effective configuration as a file that would give it, secrets redacted. Keys without a value are comments at its
    /// end: no text in a value can be taken for the section that they belong to.
    pub fn to_toml(&self) -> String {
        let mut text = toml::to_string_pretty(self).expect("every setting has a form in TOML");
        text += "\n# Without a value:\n";
        for key in settings::unset(self) {
            let _ = writeln!(text, "# {key}");
        }
        text
    }

    fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
        let parse = |error: toml::de::Error, key| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            ConfigError::Parse {
                file: file.to_owned(),
                line,
                key,
                problem: error.message().to_owned(),
            }
        };
        let table: toml::Table = toml::from_str(text).map_err(|error| parse(error, None))?;
        if let Some(key) = settings::first_unknown(&table) {
            let nearest = nearest(&key);
            return Err(ConfigError::UnknownKey {
                file: file.to_owned(),
                key,
                nearest,
            });
        }
        toml::from_str(text).map_err(|error| parse(error, settings::first_wrong(&table)))
    }

    fn apply_env(&mut self, env: &dyn Env) -> Result<(), ConfigError> {
        for setting in settings::ALL {
            // An empty variable counts as unset, as OpenTelemetry has it.
            let found = setting
                .env
                .iter()
                .find_map(|&name| Some((name, env.get(name).filter(|v| !v.trim().is_empty())?)));
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
        // `--otlp` says where everything goes: a signal's own endpoint in the environment or the file must not outdo it.
        let is_given = |key: &str| flags.0.iter().any(|given| given.key == key);
        if is_given("otlp.endpoint") {
            if !is_given("otlp.traces_endpoint") {
                self.otlp.traces_endpoint = None;
            }
            if !is_given("otlp.metrics_endpoint") {
                self.otlp.metrics_endpoint = None;
            }
        }
        // Whoever names a kubeconfig wants it used.
        if is_given("kubernetes.kubeconfig") && !is_given("kubernetes.mode") {
            self.kubernetes.mode = KubernetesMode::On;
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
            ("limits.pods", limits.pods),
            ("limits.held", limits.held),
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
        if let Some((key, problem)) = self.observer.problem() {
            return invalid(key, problem);
        }
        if self.export.agent_service_name.is_empty() {
            return invalid("export.agent_service_name", "must not be empty");
        }
        if self.export.resource_attributes.contains_key("") {
            return invalid("export.resource_attributes", "an attribute must have a name");
        }
        // Their errors quote the endpoint, which may hold a password.
        for (key, result) in [
            ("otlp.endpoint", self.otlp.traces(limits.export_queue)),
            ("otlp.metrics_endpoint", self.otlp.metrics()),
        ] {
            match result {
                Ok(_) => {}
                Err(otlp::ConfigError::Endpoint { why, .. }) => return invalid(key, &why),
                Err(header @ otlp::ConfigError::Header { .. }) => return invalid("otlp.headers", &header.to_string()),
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
