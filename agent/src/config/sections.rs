//! The sections of the configuration, their defaults, and their conversion for sources and sinks.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use epitaph_core::correlate;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};

use super::{Problem, as_text};
use crate::source::{kernel, kubelet, pods, runtimes};

/// Address of a listener: `/metrics`, `/healthz` and `/readyz`, or the latter two only.
///
/// 9464 is OpenTelemetry's port for Prometheus exporters. Loopback, because an address that is reachable from outside must be
/// configured: a DaemonSet sets its pod's address.
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

impl Listen {
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Listen::Off => None,
            Listen::At(address) => Some(address),
        }
    }
}

impl FromStr for Listen {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text == "off" {
            return Ok(Listen::Off);
        }
        text.parse().map(Listen::At).map_err(|_| {
            Problem::new("not an address").with_remedy("write ADDRESS:PORT such as 127.0.0.1:9464 or [::]:9464, or \"off\"")
        })
    }
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExportSettings {
    /// Traces of unclean terminations only; metrics count all.
    pub unclean_only: bool,
    /// `service.name` of the traces of all terminations; None: the pod's application, else `epitaph`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// `k8s.cluster.name` of the traces of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// `service.name` of the agent's own spans and metrics.
    pub agent_service_name: String,
    /// On the resource of all exported data; the agent's own attributes take precedence.
    #[serde(deserialize_with = "texts")]
    pub resource_attributes: BTreeMap<String, String>,
}

impl Default for ExportSettings {
    fn default() -> Self {
        ExportSettings {
            unclean_only: false,
            service_name: None,
            cluster_name: None,
            agent_service_name: "epitaph-agent".to_owned(),
            resource_attributes: BTreeMap::new(),
        }
    }
}

/// Without quotes, `deployment.environment.name` is three tables in TOML, a common mistake: [`super::settings`] has the remedy.
fn texts<'de, D: serde::Deserializer<'de>>(d: D) -> Result<BTreeMap<String, String>, D::Error> {
    let not_text = |name: String| serde::de::Error::custom(format!("attribute `{name}` is not text"));
    BTreeMap::<String, toml::Value>::deserialize(d)?
        .into_iter()
        .map(|(name, value)| match value {
            toml::Value::String(value) => Ok((name, value)),
            _ => Err(not_text(name)),
        })
        .collect()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelSettings {
    /// BTF of the kernel, where `/sys/kernel/btf/vmlinux` does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub btf: Option<PathBuf>,
    /// Ring buffer for ordinary records between the probes and the agent, bytes; rounded up to a power of two. None: by the
    /// machine's CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring_bytes: Option<u32>,
}

impl KernelSettings {
    pub fn options(&self) -> kernel::Options {
        let defaults = kernel::Options::default();
        kernel::Options {
            btf: self.btf.clone(),
            ring_bytes: self.ring_bytes.unwrap_or(defaults.ring_bytes),
            ..defaults
        }
    }
}

/// Where the machine's own `/proc` and `/sys` are mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostSettings {
    pub proc: PathBuf,
    /// Only `fs/cgroup` in this directory is read.
    pub sys: PathBuf,
}

impl Default for HostSettings {
    fn default() -> Self {
        HostSettings {
            proc: "/proc".into(),
            sys: "/sys".into(),
        }
    }
}

/// Names of containers, from the files of their runtimes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerSettings {
    pub directories: Vec<PathBuf>,
    /// The arguments of the first process, too.
    pub command: bool,
}

impl Default for ContainerSettings {
    fn default() -> Self {
        ContainerSettings {
            directories: runtimes::DIRECTORIES.iter().map(PathBuf::from).collect(),
            command: false,
        }
    }
}

/// The kubelet's files, where they are not where the kubelet has them: in a pod, mounted one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubeletSettings {
    /// Where the kubelet answers. It is asked before its file is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<kubelet::Address>,
    /// The file of `--config`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// The directory of `--config-dir`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_directory: Option<PathBuf>,
    /// `graceful_node_shutdown_state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
}

impl KubeletSettings {
    pub fn paths(&self) -> kubelet::Paths {
        kubelet::Paths {
            config: self.config.clone(),
            config_directory: self.config_directory.clone(),
            state: self.state.clone(),
        }
    }
}

impl From<kubelet::NotAnAddress> for Problem {
    fn from(error: kubelet::NotAnAddress) -> Self {
        Problem::new(error.to_string()).with_remedy("write an address such as 10.0.0.1, [fd00::1]:10250 or 10.0.0.1:10250")
    }
}

/// The Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesSettings {
    pub mode: KubernetesMode,
    /// None: the pod's ServiceAccount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// `spec.nodeName` of the pods of this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Warning Events for unclean terminations, on the pods and on their workloads.
    pub events: bool,
    /// The custom resource `Epitaph` for each terminated pod.
    pub epitaphs: bool,
    /// systemd units with the kubelet's connections: its probes and hooks.
    pub kubelet_units: Vec<String>,
    /// Namespaces in which `epitaph.dev/ignore` counts; `*`: all.
    pub allow_ignore: Vec<String>,
    /// Namespaces in which `epitaph.dev/expected-exit-codes` counts; `*`: all.
    pub allow_expected_exit_codes: Vec<String>,
    /// The nodes of this machine are containers.
    pub nodes_in_containers: bool,
}

impl Default for KubernetesSettings {
    fn default() -> Self {
        let pods::Allowed {
            ignore,
            expected_exit_codes,
        } = pods::Allowed::default();
        KubernetesSettings {
            allow_ignore: ignore,
            allow_expected_exit_codes: expected_exit_codes,
            nodes_in_containers: false,
            mode: KubernetesMode::default(),
            kubeconfig: None,
            node_name: None,
            events: true,
            epitaphs: true,
            kubelet_units: correlate::KUBELET_UNITS.iter().map(|&unit| unit.to_owned()).collect(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KubernetesMode {
    /// In a pod with a ServiceAccount, or with a kubeconfig.
    #[default]
    Auto,
    On,
    Off,
}

impl KubernetesSettings {
    pub fn allowed(&self) -> pods::Allowed {
        pods::Allowed {
            ignore: self.allow_ignore.clone(),
            expected_exit_codes: self.allow_expected_exit_codes.clone(),
        }
    }

    /// Access to the API server; None without Kubernetes. `in_pod`: a ServiceAccount's token is mounted here.
    pub fn access(&self, in_pod: bool) -> Option<pods::Access> {
        match (self.mode, &self.kubeconfig) {
            (KubernetesMode::Off, _) => None,
            (_, Some(file)) => Some(pods::Access::Kubeconfig(file.clone())),
            _ if in_pod => Some(pods::Access::InCluster),
            (KubernetesMode::On, None) => Some(pods::Access::Kubectl),
            (KubernetesMode::Auto, None) => None,
        }
    }
}

/// Limits of memory and of waits. Dropped items are counted (`epitaph_dropped_total`).
// Without `deny_unknown_fields`, which `flatten` does not allow: `settings::first_unknown` names unknown keys before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitSettings {
    #[serde(flatten)]
    pub core: correlate::Limits,
    /// Most traces that wait for the collector.
    pub export_queue: usize,
    /// Most workloads with their own series on /metrics.
    pub workloads: usize,
}

impl Default for LimitSettings {
    fn default() -> Self {
        LimitSettings {
            core: correlate::Limits::default(),
            // As long as OpenTelemetry's own queue of spans (`OTEL_BSP_MAX_QUEUE_SIZE`).
            export_queue: 2_048,
            // A node runs 110 pods by default, and a workload's series outlive its last pod by an hour.
            workloads: 400,
        }
    }
}

/// The journal of `epitaph agent`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JournalSettings {
    /// None: nothing is kept on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Bytes of all segments.
    pub max_bytes: u64,
    /// Id of the group that may read the journal, besides the agent's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

impl JournalSettings {
    /// Of sixteen segments the smallest is still larger than most reports.
    pub const LEAST_BYTES: u64 = 1 << 20;
}

impl Default for JournalSettings {
    fn default() -> Self {
        JournalSettings {
            directory: None,
            max_bytes: 64 << 20,
            group: None,
        }
    }
}

/// The agent's own end at a shutdown of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownSettings {
    /// The agent's own grace period, as its pod or unit has it.
    #[serde(with = "epitaph_core::duration")]
    pub grace: Duration,
}

impl Default for ShutdownSettings {
    fn default() -> Self {
        ShutdownSettings {
            grace: Duration::from_secs(30),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// A level, and levels of targets: `info,epitaph::source=debug`.
    pub filter: String,
    pub format: LogFormat,
}

/// [`LogSettings::filter`], read.
#[derive(Debug)]
pub struct LogFilter {
    pub targets: Targets,
    /// Directives of tracing-subscriber's `EnvFilter` that select spans or fields. `RUST_LOG` may be meant for other programs, too.
    pub without_effect: Vec<String>,
}

impl LogSettings {
    /// The filter, with `first` for the targets that it does not name.
    ///
    /// Directives with commas between them: `LEVEL`, `TARGET=LEVEL`, and `TARGET` for all of its levels. The longest target that a message's own
    /// target begins with decides, wherever it stands. A level is `off`, `error`, `warn`, `info`, `debug`, `trace`, or 0 to 5.
    ///
    /// By target and level only: `EnvFilter` also selects by spans and their fields, with regular expressions that would be a twentieth of the
    /// program.
    ///
    /// # Errors
    /// The directive that is none of these.
    pub fn read(&self, first: &str) -> Result<LogFilter, Problem> {
        let (of_spans, mut usable): (Vec<_>, Vec<_>) = directives(&self.filter).partition(|of| of.contains(['[', '{']));
        // As EnvFilter does: what is no name would be a target that nothing has, and the log silent.
        let is_name = |of: &&&str| of.starts_with(|c: char| c.is_ascii_alphanumeric() || "-:_".contains(c));
        if let Some(wrong) = usable.iter().find(|of| !is_name(of)) {
            return Err(Problem::new(format!("`{wrong}` is neither a level nor a target")));
        }
        usable.iter().try_for_each(|of| has_level(of))?;
        // The warning about what has no effect must be seen.
        let default = LogSettings::default().filter;
        if !of_spans.is_empty() && !usable.iter().any(|of| of.parse::<LevelFilter>().is_ok()) {
            usable.push(&default);
        }
        let all: Vec<&str> = first.split(',').chain(usable).filter(|of| !of.is_empty()).collect();
        let targets = all.join(",").parse();
        Ok(LogFilter {
            targets: targets.map_err(|error: ParseError| Problem::new(error.to_string()))?,
            without_effect: of_spans.into_iter().map(str::to_owned).collect(),
        })
    }
}

/// A directive with `=` has one, and a level behind it; nothing there is `error`, as for EnvFilter.
fn has_level(directive: &str) -> Result<(), Problem> {
    let Some((_, level)) = directive.split_once('=') else {
        return Ok(());
    };
    if level.contains('=') {
        return Err(Problem::new(format!("`{directive}` has more than one `=`")));
    }
    let is_not = |_| {
        Problem::new(format!(
            "`{level}` in `{directive}` is not a level: off, error, warn, info, debug or trace"
        ))
    };
    level.parse::<LevelFilter>().map(drop).map_err(is_not)
}

/// At the commas outside of brackets: `[request{path=/a, user=b}]=debug` is one directive.
fn directives(filter: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let split = filter.split(move |c| {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    split.map(str::trim).filter(|directive| !directive.is_empty())
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
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
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(Problem::new("not a log format").with_remedy("write text or json")),
        }
    }
}

as_text!(Listen);
