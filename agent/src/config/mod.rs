//! One typed configuration: a TOML file, then the environment over it, then flags over both.
//!
//! [`settings::ALL`] is the one list of settings, used for the environment, `--set`, the check for unknown keys and
//! `docs/config.md`. The environment is an argument ([`Env`]), so that tests need none.

mod logind;
mod observer;
mod otlp;
mod problem;
mod secret;
mod sections;
pub mod settings;

use std::fmt::Write as _;
use std::path::Path;

use epitaph_core::correlate::ReportedUnits;
use serde::{Deserialize, Serialize};

pub use logind::LogindSettings;
pub use observer::ObserverSettings;
pub use otlp::{Destinations, OtlpSettings};
pub use problem::{ConfigError, Problem};
pub use secret::{Endpoint, Secret};
pub use sections::{
    ContainerSettings, ExportSettings, HostSettings, JournalSettings, KernelSettings, KubeletSettings, KubernetesMode,
    KubernetesSettings, LimitSettings, Listen, LogFilter, LogFormat, LogSettings, ShutdownSettings,
};

use settings::nearest;

/// The effective configuration. As TOML it contains no secret: [`Secret`] and [`Endpoint`] are redacted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub listen: Listen,
    /// None: `/healthz` and `/readyz` are served by `listen` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_listen: Option<Listen>,
    pub otlp: OtlpSettings,
    pub export: ExportSettings,
    pub kernel: KernelSettings,
    pub host: HostSettings,
    pub containers: ContainerSettings,
    pub units: ReportedUnits,
    pub kubernetes: KubernetesSettings,
    pub kubelet: KubeletSettings,
    pub observer: ObserverSettings,
    pub journal: JournalSettings,
    pub shutdown: ShutdownSettings,
    pub logind: LogindSettings,
    pub limits: LimitSettings,
    pub log: LogSettings,
}

/// Source of environment variables.
pub trait Env {
    /// None if the variable is not set or not UTF-8.
    fn get(&self, name: &str) -> Option<String>;

    /// Names of all set variables.
    fn names(&self) -> Vec<String>;
}

/// The environment of the process.
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

    /// For interactive commands: as [`Config::load`] without a file, but traces and metrics leave the machine only with a flag, and
    /// not because `OTEL_EXPORTER_OTLP_ENDPOINT` is set in a shell.
    pub fn for_person(env: &dyn Env, flags: &Overrides) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        config.apply_env(env)?;
        config.otlp.endpoint = None;
        config.otlp.traces_endpoint = None;
        config.otlp.metrics_endpoint = None;
        config.otlp.logs_endpoint = None;
        config.listen = Listen::Off;
        config.health_listen = None;
        // A variable of the user's shell does not connect to a cluster either.
        config.kubernetes.mode = KubernetesMode::Off;
        config.kubernetes.kubeconfig = None;
        // The journal is the agent's.
        config.journal.directory = None;
        config.apply_flags(flags)?;
        config.validate()?;
        Ok(config)
    }

    /// The effective configuration as an equivalent file, secrets redacted. Keys without a value are comments at the end: text in a
    /// value cannot be mistaken for a section.
    pub fn to_toml(&self) -> String {
        let mut text = toml::to_string_pretty(self).expect("every setting has a form in TOML");
        text += "\n# Without a value:\n";
        for key in settings::unset(self) {
            let _ = writeln!(text, "# {key}");
        }
        text
    }

    fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
        let parse = |error: toml::de::Error, key: Option<(&'static str, Option<Problem>)>| {
            // For a value in a flattened section, the error points at the section.
            let of_value = key.as_ref().and_then(|(key, _)| settings::offset(text, key));
            let offset = of_value.or_else(|| Some(error.span()?.start));
            let before = offset.and_then(|offset| text.get(..offset)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            ConfigError::Parse {
                file: file.to_owned(),
                line,
                key: key.as_ref().map(|(key, _)| *key),
                problem: key
                    .and_then(|(_, problem)| problem)
                    .unwrap_or_else(|| Problem::new(error.message().to_owned())),
            }
        };
        let table: toml::Table = toml::from_str(text).map_err(|error| parse(error, None))?;
        if let Some(key) = settings::first_unknown(&table) {
            let nearest = nearest(&key);
            return Err(ConfigError::UnknownKey {
                source_name: file.display().to_string(),
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
                return Err(ConfigError::UnknownKey {
                    source_name: flag.clone(),
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
        // `--otlp` is for all signals: a signal's own endpoint in the environment or the file must not win over the flag.
        let is_given = |key: &str| flags.0.iter().any(|given| given.key == key);
        if is_given("otlp.endpoint") {
            if !is_given("otlp.traces_endpoint") {
                self.otlp.traces_endpoint = None;
            }
            if !is_given("otlp.metrics_endpoint") {
                self.otlp.metrics_endpoint = None;
            }
            if !is_given("otlp.logs_endpoint") {
                self.otlp.logs_endpoint = None;
            }
        }
        // A given kubeconfig is used.
        if is_given("kubernetes.kubeconfig") && !is_given("kubernetes.mode") {
            self.kubernetes.mode = KubernetesMode::On;
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let invalid = |key, problem| Err(ConfigError::Invalid { key, problem });
        let wrong = |key, what: &'static str| invalid(key, Problem::new(what));
        // The kernel accepts at most a signed 32-bit size.
        let may_be = |bytes: u32| (64 << 10..=1 << 30).contains(&bytes);
        if !self.kernel.ring_bytes.is_none_or(may_be) {
            return wrong("kernel.ring_bytes", "must be between 65536 and 1073741824");
        }
        for (key, value) in [
            ("limits.subjects", self.limits.core.subjects),
            ("limits.timelines", self.limits.core.timelines),
            ("limits.facts", self.limits.core.facts),
            ("limits.connections", self.limits.core.connections),
            ("limits.pending", self.limits.core.pending),
            ("limits.pods", self.limits.core.pods),
            ("limits.held", self.limits.core.held),
            ("limits.index_live", self.limits.core.index_live),
            ("limits.index_dead", self.limits.core.index_dead),
            ("limits.export_queue", self.limits.export_queue),
        ] {
            if value == 0 {
                return wrong(key, "must be 1 or more");
            }
        }
        if self
            .journal
            .directory
            .as_ref()
            .is_some_and(|directory| directory.as_os_str().is_empty())
        {
            return wrong("journal.directory", "must name a directory; without a journal, leave it out");
        }
        if self.journal.max_bytes < JournalSettings::LEAST_BYTES {
            return wrong("journal.max_bytes", "must be 1048576 or more");
        }
        // A socket's address is shorter than a path.
        let is_address = |path: &Path| path.is_absolute() && path.as_os_str().len() < 108;
        if !self.logind.socket.as_deref().is_none_or(is_address) {
            return wrong("logind.socket", "must be an absolute path of at most 107 bytes");
        }
        if !is_address(&self.logind.bus) {
            return wrong("logind.bus", "must be an absolute path of at most 107 bytes");
        }
        if self.limits.core.memory < 1 << 20 {
            return wrong("limits.memory", "must be 1048576 or more");
        }
        if self.limits.core.linger < self.limits.core.reorder {
            return wrong("limits.linger", "must not be shorter than limits.reorder");
        }
        for (key, namespaces) in [
            ("kubernetes.allow_ignore", &self.kubernetes.allow_ignore),
            (
                "kubernetes.allow_expected_exit_codes",
                &self.kubernetes.allow_expected_exit_codes,
            ),
        ] {
            if let Some(problem) = settings::not_a_namespace(namespaces) {
                return invalid(key, problem);
            }
        }
        for (key, path) in [
            ("kubelet.config", &self.kubelet.config),
            ("kubelet.config_directory", &self.kubelet.config_directory),
            ("kubelet.state", &self.kubelet.state),
        ] {
            if path.as_ref().is_some_and(|path| !path.is_absolute()) {
                return wrong(key, "must be an absolute path");
            }
        }
        if let Some(problem) = settings::not_a_runtime(&self.containers.directories) {
            return invalid("containers.directories", problem);
        }
        for (key, patterns) in [("units.include", &self.units.include), ("units.exclude", &self.units.exclude)] {
            if patterns.iter().any(|pattern| pattern.trim().is_empty()) {
                return wrong(key, "no unit has an empty name");
            }
        }
        if let Some((key, problem)) = self.observer.problem() {
            return wrong(key, problem);
        }
        if self.export.agent_service_name.is_empty() {
            return wrong("export.agent_service_name", "must not be empty");
        }
        if self.export.resource_attributes.contains_key("") {
            return wrong("export.resource_attributes", "an attribute must have a name");
        }
        self.otlp.destinations()?;
        if let Err(problem) = self.log.read("") {
            return invalid("log.filter", problem.with_remedy("write for example info,epitaph=debug"));
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

#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod fuzz;
#[cfg(test)]
mod tests;
