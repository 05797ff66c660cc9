//! The sections of the configuration, their defaults, and what the rooms are given of them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Endpoint, Secret, as_text, human_duration};
use crate::correlate;
use crate::sink::otlp::{self, Compression, Headers, Protocol};
use crate::source::{kernel, pods};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Export {
    /// Traces of unclean terminations only; metrics count all.
    pub unclean_only: bool,
    /// `service.name` of the traces of all terminations; without it a pod's are its application's, the others `epitaph`'s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// `k8s.cluster.name` of the traces of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// `service.name` of the agent's own spans and metrics.
    pub agent_service_name: String,
    /// Of the resource of all that is sent; what the agent says of itself and of the dead wins over these.
    #[serde(deserialize_with = "texts")]
    pub resource_attributes: BTreeMap<String, String>,
}

impl Default for Export {
    fn default() -> Self {
        Export {
            unclean_only: false,
            service_name: None,
            cluster_name: None,
            agent_service_name: "epitaph-agent".to_owned(),
            resource_attributes: BTreeMap::new(),
        }
    }
}

/// Without quotes `deployment.environment.name` is three tables to TOML, which nobody means.
fn texts<'de, D: serde::Deserializer<'de>>(d: D) -> Result<BTreeMap<String, String>, D::Error> {
    let wrong = |name: String, remedy| serde::de::Error::custom(format!("attribute `{name}` is not text: {remedy}"));
    BTreeMap::<String, toml::Value>::deserialize(d)?
        .into_iter()
        .map(|(name, value)| match value {
            toml::Value::String(value) => Ok((name, value)),
            toml::Value::Table(_) => Err(wrong(name, "put the whole name in quotes, as in \"a.b\" = \"value\"")),
            _ => Err(wrong(name, "put the value in quotes")),
        })
        .collect()
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
        let kernel::Options { btf, ring_bytes, .. } = kernel::Options::default();
        Kernel { btf, ring_bytes }
    }
}

impl Kernel {
    pub fn options(&self) -> kernel::Options {
        kernel::Options {
            btf: self.btf.clone(),
            ring_bytes: self.ring_bytes,
            ..kernel::Options::default()
        }
    }
}

/// Where the machine's own `/proc` and `/sys` are mounted, as seen from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    pub proc: PathBuf,
    /// Only `fs/cgroup` below it is read.
    pub sys: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Host {
            proc: "/proc".into(),
            sys: "/sys".into(),
        }
    }
}

/// The Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    pub mode: KubernetesMode,
    /// Without one the pod's ServiceAccount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// `spec.nodeName` of the pods that are ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Warning Events on pods that ended badly and on their workloads.
    pub events: bool,
    /// systemd units whose connections are the kubelet's own probes and hooks.
    pub kubelet_units: Vec<String>,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Kubernetes {
            mode: KubernetesMode::default(),
            kubeconfig: None,
            node_name: None,
            events: true,
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

impl Kubernetes {
    /// How the API server is found; None where nobody wants one. `in_pod`: a ServiceAccount's token is mounted here.
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

/// Bounds of memory and of waiting; see [`correlate::Limits`]. What does not fit is counted (`epitaph_dropped_total`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub subjects: usize,
    pub timelines: usize,
    pub facts: usize,
    pub connections: usize,
    pub pending: usize,
    pub pods: usize,
    pub held: usize,
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
    /// Workloads with series of their own on /metrics.
    pub workloads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let correlate::Limits {
            subjects,
            timelines,
            facts,
            connections,
            pending,
            pods,
            held,
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
            pods,
            held,
            index_live,
            index_dead,
            reorder,
            linger,
            idle,
            export_queue: 2_048,
            workloads: 400,
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
            pods: self.pods,
            held: self.held,
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

as_text!(Listen);
