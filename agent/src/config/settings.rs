//! Every setting, once: key, environment, flag, meaning, and the conversion of text to its value.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use epitaph_core::duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, Env, KubernetesMode, Problem, Secret};
use crate::sink::otlp::{Compression, Protocol};
use crate::source::runtimes;

/// Prefix of the variables that only epitaph reads.
const PREFIX: &str = "EPITAPH_";

/// Variable with the file's name (`--config`).
const FILE_VARIABLE: &str = "EPITAPH_CONFIG";

pub struct Setting {
    /// Dotted path in the file.
    pub key: &'static str,
    /// Variables, the strongest first.
    pub env: &'static [&'static str],
    /// The setting's own flag, in addition to `--set KEY=VALUE`.
    pub flag: Option<&'static str>,
    pub about: &'static str,
    pub set: fn(&mut Config, &str) -> Result<(), Problem>,
}

#[rustfmt::skip]
pub const ALL: &[Setting] = &[
    Setting { key: "listen", env: &["EPITAPH_LISTEN"], flag: Some("--listen"),
        about: "address of /metrics, /healthz and /readyz, or `off`; by default loopback, and the port that OpenTelemetry gives Prometheus exporters",
        set: |c, v| put(&mut c.listen, v) },
    Setting { key: "health_listen", env: &["EPITAPH_HEALTH_LISTEN"], flag: None,
        about: "address of a second listener, for /healthz and /readyz only, or `off`: a liveness probe of this listener does not compete with clients of /metrics",
        set: |c, v| put_some(&mut c.health_listen, v) },
    Setting { key: "otlp.endpoint", env: &["OTEL_EXPORTER_OTLP_ENDPOINT"], flag: Some("--otlp"),
        about: "collector for traces, metrics and logs (with http/protobuf, /v1/traces, /v1/metrics and /v1/logs are appended); without an endpoint nothing is sent",
        set: |c, v| put_some(&mut c.otlp.endpoint, v) },
    Setting { key: "otlp.traces_endpoint", env: &["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"], flag: None,
        about: "endpoint of traces instead of `otlp.endpoint`; nothing is appended",
        set: |c, v| put_some(&mut c.otlp.traces_endpoint, v) },
    Setting { key: "otlp.metrics_endpoint", env: &["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"], flag: None,
        about: "endpoint of metrics instead of `otlp.endpoint`; nothing is appended",
        set: |c, v| put_some(&mut c.otlp.metrics_endpoint, v) },
    Setting { key: "otlp.logs_endpoint", env: &["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"], flag: None,
        about: "endpoint of log records instead of `otlp.endpoint`; nothing is appended",
        set: |c, v| put_some(&mut c.otlp.logs_endpoint, v) },
    Setting { key: "otlp.protocol", env: &["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"], flag: Some("--otlp-protocol"),
        about: "`grpc` or `http/protobuf`; if not set: grpc if the port of the endpoint is 4317, otherwise http/protobuf",
        set: |c, v| { c.otlp.protocol = Some(word(v, &[("grpc", Protocol::Grpc), ("http/protobuf", Protocol::HttpProtobuf)])?); Ok(()) } },
    Setting { key: "otlp.insecure", env: &["OTEL_EXPORTER_OTLP_TRACES_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"], flag: None,
        about: "with grpc, an endpoint may be written without a scheme; `true` means that such an endpoint uses http",
        set: |c, v| put_bool(&mut c.otlp.insecure, v) },
    Setting { key: "otlp.compression", env: &["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"], flag: None,
        about: "`none` or `gzip`",
        set: |c, v| { c.otlp.compression = word(v, &[("none", Compression::None), ("gzip", Compression::Gzip)])?; Ok(()) } },
    Setting { key: "otlp.traces", env: &["OTEL_TRACES_EXPORTER"], flag: None,
        about: "send traces (the variable: `otlp` or `none`)",
        set: |c, v| put_exporter(&mut c.otlp.traces, v) },
    Setting { key: "otlp.metrics", env: &["OTEL_METRICS_EXPORTER"], flag: None,
        about: "send metrics (the variable: `otlp` or `none`); /metrics is served either way",
        set: |c, v| put_exporter(&mut c.otlp.metrics, v) },
    Setting { key: "otlp.logs", env: &["OTEL_LOGS_EXPORTER"], flag: None,
        about: "send each termination as a log record, too (the variable: `otlp` or `none`): sentence, severity, trace id, the attributes of the span",
        set: |c, v| put_exporter(&mut c.otlp.logs, v) },
    Setting { key: "otlp.metrics_interval", env: &["OTEL_METRIC_EXPORT_INTERVAL"], flag: None,
        about: "time between two exports of metrics",
        set: |c, v| put_duration(&mut c.otlp.metrics_interval, v) },
    Setting { key: "otlp.timeout", env: &["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"], flag: None,
        about: "longest time of one export request",
        set: |c, v| put_duration(&mut c.otlp.timeout, v) },
    Setting { key: "otlp.certificate", env: &["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"], flag: None,
        about: "PEM file of the CA that signed the collector's certificate",
        set: |c, v| put_some(&mut c.otlp.certificate, v) },
    Setting { key: "otlp.client_certificate", env: &["OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"], flag: None,
        about: "PEM file of the client certificate, for a collector that requires one",
        set: |c, v| put_some(&mut c.otlp.client_certificate, v) },
    Setting { key: "otlp.client_key", env: &["OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"], flag: None,
        about: "PEM file of the client certificate's private key",
        set: |c, v| put_some(&mut c.otlp.client_key, v) },
    Setting { key: "otlp.headers", env: &["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"], flag: None,
        about: "headers of every export request: `name=value,name=value` with percent-encoded values; in the file: a table of names and values",
        set: |c, v| { c.otlp.headers = headers(v)?; Ok(()) } },
    Setting { key: "export.unclean_only", env: &["EPITAPH_UNCLEAN_ONLY"], flag: Some("--unclean-only"),
        about: "send traces of unclean terminations only; metrics count all terminations",
        set: |c, v| put_bool(&mut c.export.unclean_only, v) },
    Setting { key: "export.service_name", env: &["EPITAPH_SERVICE_NAME"], flag: Some("--service-name"),
        about: "one service.name for the traces of all terminations, such as `epitaph`; if not set: traces of a pod have the name of its application, by the rules of OpenTelemetry's conventions for Kubernetes, and all other traces have `epitaph`",
        set: |c, v| put_some(&mut c.export.service_name, v) },
    Setting { key: "export.cluster_name", env: &["EPITAPH_CLUSTER_NAME"], flag: None,
        about: "value of k8s.cluster.name in the traces of pods; set it yourself: no Kubernetes API reports the name of a cluster",
        set: |c, v| put_some(&mut c.export.cluster_name, v) },
    Setting { key: "export.agent_service_name", env: &["OTEL_SERVICE_NAME"], flag: None,
        about: "service.name of the agent's own spans and metrics",
        set: |c, v| put(&mut c.export.agent_service_name, v) },
    Setting { key: "export.resource_attributes", env: &["OTEL_RESOURCE_ATTRIBUTES"], flag: None,
        about: "resource attributes of all traces and metrics. In the variable: `name=value,name=value`, percent-encoded; in the file: a table of names (in quotes) and values. If the agent sets the same attribute, such as service.name, the agent's value applies",
        set: |c, v| { c.export.resource_attributes = resource_attributes(v)?; Ok(()) } },
    Setting { key: "kernel.btf", env: &["EPITAPH_BTF"], flag: Some("--btf"),
        about: "file with the BTF (type information) of the running kernel; needed if /sys/kernel/btf/vmlinux does not exist",
        set: |c, v| put_some(&mut c.kernel.btf, v) },
    Setting { key: "kernel.ring_bytes", env: &["EPITAPH_RING_BYTES"], flag: Some("--ring-bytes"),
        about: "size in bytes of the ring buffer through which the eBPF probes send ordinary records to the agent; rounded up to a power of two. Default: 8 MiB; from 64 CPUs on 128 KiB for each CPU, at most 32 MiB. The ring buffer for rare records (signals from outside to first processes, exits of first processes, OOM victims, cgroups) has an eighth of this size",
        set: |c, v| { let mut bytes = 0; put_number(&mut bytes, v)?; c.kernel.ring_bytes = Some(bytes); Ok(()) } },
    Setting { key: "host.proc", env: &["EPITAPH_PROC"], flag: Some("--proc"),
        about: "where the host's /proc is mounted",
        set: |c, v| put(&mut c.host.proc, v) },
    Setting { key: "host.sys", env: &["EPITAPH_SYS"], flag: Some("--sys"),
        about: "where the host's /sys is mounted; only fs/cgroup in it is read",
        set: |c, v| put(&mut c.host.sys, v) },
    Setting { key: "containers.directories", env: &["EPITAPH_CONTAINERS_DIRECTORIES"], flag: None,
        about: "directories of container runtimes, `path,path`, whose files have names and images of containers: `io.containerd.runtime.v2.task` of containerd, `containers` of Docker, `overlay-containers` of Podman and CRI-O; they can also be at other places. A directory that does not exist is skipped. If empty, no directory is read. In the file: a list",
        set: |c, v| { c.containers.directories = directories(v)?; Ok(()) } },
    Setting { key: "containers.command", env: &["EPITAPH_CONTAINERS_COMMAND"], flag: None,
        about: "also read and export the arguments of a container's first process (container.command, container.command_args), which can have secrets",
        set: |c, v| put_bool(&mut c.containers.command, v) },
    Setting { key: "units.include", env: &["EPITAPH_UNITS_INCLUDE"], flag: None,
        about: "systemd units whose terminations are reported, `name,name`; `*` and `?` are wildcards, `.service` is added if a name has no suffix; in the file: a list",
        set: |c, v| { c.units.include = words(v).collect(); Ok(()) } },
    Setting { key: "units.exclude", env: &["EPITAPH_UNITS_EXCLUDE"], flag: None,
        about: "systemd units whose terminations are not reported, but only counted (epitaph_opted_out_total). This setting takes precedence over `units.include`. Default: the units of logins, which terminate at each logout, often with an error",
        set: |c, v| { c.units.exclude = words(v).collect(); Ok(()) } },
    Setting { key: "kubernetes.mode", env: &["EPITAPH_KUBERNETES"], flag: Some("--kubernetes"),
        about: "whether the agent watches the pods of this node at the API server. `auto`: in a pod with a ServiceAccount, or with a kubeconfig; `on`: always (without a ServiceAccount and without the setting `kubernetes.kubeconfig`, the kubeconfig that kubectl would use is used); `off`: never",
        set: |c, v| { c.kubernetes.mode = word(v, &[("auto", KubernetesMode::Auto), ("on", KubernetesMode::On), ("off", KubernetesMode::Off)])?; Ok(()) } },
    Setting { key: "kubernetes.kubeconfig", env: &["EPITAPH_KUBECONFIG"], flag: Some("--kubeconfig"),
        about: "kubeconfig file for access to the API server, instead of the pod's ServiceAccount; the program in the container image cannot use one",
        set: |c, v| put_some(&mut c.kubernetes.kubeconfig, v) },
    Setting { key: "kubernetes.node_name", env: &["EPITAPH_NODE_NAME", "NODE_NAME"], flag: Some("--node-name"),
        about: "name of this node in the API; in a pod set it by the downward API (spec.nodeName)",
        set: |c, v| put_some(&mut c.kubernetes.node_name, v) },
    Setting { key: "kubernetes.events", env: &["EPITAPH_KUBERNETES_EVENTS"], flag: None,
        about: "`epitaph agent` posts a Warning Event for each unclean termination of a pod, on the pod and on its workload",
        set: |c, v| put_bool(&mut c.kubernetes.events, v) },
    Setting { key: "kubernetes.epitaphs", env: &["EPITAPH_KUBERNETES_EPITAPHS"], flag: None,
        about: "`epitaph agent` writes the custom resource `Epitaph` for each pod that terminated, and for each pod whose containers restart: `kubectl get epitaphs`",
        set: |c, v| put_bool(&mut c.kubernetes.epitaphs, v) },
    Setting { key: "kubernetes.kubelet_units", env: &["EPITAPH_KUBELET_UNITS"], flag: None,
        about: "systemd units of the kubelet. Connections of these units are the kubelet's probes and hooks, and do not count as clients. Names with commas between them; in the file: a list",
        set: |c, v| { c.kubernetes.kubelet_units = units(v)?; Ok(()) } },
    Setting { key: "kubernetes.allow_ignore", env: &["EPITAPH_ALLOW_IGNORE"], flag: None,
        about: "namespaces in which the annotation `epitaph.dev/ignore` of a pod or namespace counts: names with commas between them; in the file: a list; `*` means all namespaces; empty means none. Agents and observers need the same value",
        set: |c, v| { c.kubernetes.allow_ignore = namespaces(v)?; Ok(()) } },
    Setting { key: "kubernetes.allow_expected_exit_codes", env: &["EPITAPH_ALLOW_EXPECTED_EXIT_CODES"], flag: None,
        about: "namespaces in which the annotation `epitaph.dev/expected-exit-codes` counts; same form as `kubernetes.allow_ignore`",
        set: |c, v| { c.kubernetes.allow_expected_exit_codes = namespaces(v)?; Ok(()) } },
    Setting { key: "kubernetes.nodes_in_containers", env: &["EPITAPH_NODES_IN_CONTAINERS"], flag: None,
        about: "set `true` if the nodes of this machine are containers (kind, minikube, k3d) or belong to a user (rootless Kubernetes): pods below a container's cgroup are then reported as pods. With `false` they count as a part of the container, because any container with a writable cgroup tree can create such cgroups",
        set: |c, v| put_bool(&mut c.kubernetes.nodes_in_containers, v) },
    Setting { key: "kubelet.address", env: &["EPITAPH_KUBELET_ADDRESS"], flag: None,
        about: "IP address of this node's kubelet, with the port if the port is not 10250. In a pod, the agent asks the kubelet for its grace periods (`/configz`, with the right nodes/configz). The agent reads `kubelet.config` and `kubelet.config_directory` only while the kubelet does not answer. The agent sends no token to a kubelet that has no certificate of the cluster's CA",
        set: |c, v| put_some(&mut c.kubelet.address, v) },
    Setting { key: "kubelet.config", env: &["EPITAPH_KUBELET_CONFIG"], flag: None,
        about: "path of the kubelet's configuration file, as mounted for the agent. The file is used if `kubelet.address` is not set or does not answer. Without the file and without an answer of the kubelet, the agent knows only from the system bus whether the node would shut its pods down gracefully. `epitaph doctor` then reads the path from the kubelet's flags",
        set: |c, v| put_some(&mut c.kubelet.config, v) },
    Setting { key: "kubelet.config_directory", env: &["EPITAPH_KUBELET_CONFIG_DIRECTORY"], flag: None,
        about: "path of the kubelet's drop-in directory (`--config-dir`), as mounted for the agent",
        set: |c, v| put_some(&mut c.kubelet.config_directory, v) },
    Setting { key: "kubelet.state", env: &["EPITAPH_KUBELET_STATE"], flag: None,
        about: "path of the kubelet's file graceful_node_shutdown_state, as mounted for the agent. The file has the times of the last shutdown that the kubelet managed",
        set: |c, v| put_some(&mut c.kubelet.state, v) },
    Setting { key: "observer.election", env: &["EPITAPH_OBSERVER_ELECTION"], flag: None,
        about: "an observer is active only while it holds the Lease; `false`: every observer is active, and two of them export every span twice",
        set: |c, v| put_bool(&mut c.observer.election, v) },
    Setting { key: "observer.lease", env: &["EPITAPH_OBSERVER_LEASE"], flag: None,
        about: "name of the Lease that the observers share",
        set: |c, v| put(&mut c.observer.lease, v) },
    Setting { key: "observer.namespace", env: &["EPITAPH_OBSERVER_NAMESPACE"], flag: None,
        about: "namespace of the Lease; if not set: the observer's own namespace, or the namespace of the kubeconfig's context",
        set: |c, v| put_some(&mut c.observer.namespace, v) },
    Setting { key: "observer.lease_duration", env: &["EPITAPH_OBSERVER_LEASE_DURATION"], flag: None,
        about: "how long the active observer keeps a Lease that is not renewed; after this time another observer takes over; whole seconds",
        set: |c, v| put_duration(&mut c.observer.lease_duration, v) },
    Setting { key: "observer.renew_deadline", env: &["EPITAPH_OBSERVER_RENEW_DEADLINE"], flag: None,
        about: "how long the active observer stays active without renewing the Lease",
        set: |c, v| put_duration(&mut c.observer.renew_deadline, v) },
    Setting { key: "observer.retry_period", env: &["EPITAPH_OBSERVER_RETRY_PERIOD"], flag: None,
        about: "time between two attempts to renew or to acquire the Lease",
        set: |c, v| put_duration(&mut c.observer.retry_period, v) },
    Setting { key: "observer.pods", env: &["EPITAPH_OBSERVER_PODS"], flag: None,
        about: "largest number of the cluster's pods that an observer keeps in memory at the same time; each takes a kilobyte",
        set: |c, v| put_number(&mut c.observer.pods, v) },
    Setting { key: "observer.endpoints", env: &["EPITAPH_OBSERVER_ENDPOINTS"], flag: None,
        about: "largest number of endpoints that an observer keeps in memory at the same time; a pod has one endpoint in each of its Services",
        set: |c, v| put_number(&mut c.observer.endpoints, v) },
    Setting { key: "observer.lost_nodes", env: &["EPITAPH_OBSERVER_LOST_NODES"], flag: None,
        about: "report lost nodes, their pods and their volumes; `false`: nodes and VolumeAttachments are not watched",
        set: |c, v| put_bool(&mut c.observer.lost_nodes, v) },
    Setting { key: "observer.stuck_after", env: &["EPITAPH_OBSERVER_STUCK_AFTER"], flag: None,
        about: "a pod that is being deleted counts as stuck (on /metrics, and so in alerts) when it still exists this long after the end of its grace period. A replacement that waits for a volume, and a ready node that still has the taint out-of-service, are reported after this time, too",
        set: |c, v| put_duration(&mut c.observer.stuck_after, v) },
    Setting { key: "observer.epitaphs_unclean", env: &["EPITAPH_OBSERVER_EPITAPHS_UNCLEAN"], flag: None,
        about: "how long the Epitaph of an unclean termination is kept after it was last written",
        set: |c, v| put_duration(&mut c.observer.epitaphs_unclean, v) },
    Setting { key: "observer.epitaphs_clean", env: &["EPITAPH_OBSERVER_EPITAPHS_CLEAN"], flag: None,
        about: "how long the Epitaph of a clean termination is kept after it was last written. For the three revisions of a workload whose pods terminated last, clean Epitaphs are kept as long as unclean ones",
        set: |c, v| put_duration(&mut c.observer.epitaphs_clean, v) },
    Setting { key: "observer.epitaphs_per_namespace", env: &["EPITAPH_OBSERVER_EPITAPHS_PER_NAMESPACE"], flag: None,
        about: "largest number of Epitaphs in a namespace; if there are more, the observer removes the oldest, and clean ones first",
        set: |c, v| put_number(&mut c.observer.epitaphs_per_namespace, v) },
    Setting { key: "observer.epitaphs", env: &["EPITAPH_OBSERVER_EPITAPHS"], flag: None,
        about: "largest number of Epitaphs in the cluster; each takes up to 4 KiB in etcd",
        set: |c, v| put_number(&mut c.observer.epitaphs, v) },
    Setting { key: "observer.rollout_settle", env: &["EPITAPH_OBSERVER_ROLLOUT_SETTLE"], flag: None,
        about: "how long the observer waits after the last pod of an older revision is gone. After this time the rollout has settled, and the observer counts what the rollout cost. The last reports are written during this time",
        set: |c, v| put_duration(&mut c.observer.rollout_settle, v) },
    Setting { key: "journal.directory", env: &["EPITAPH_JOURNAL_DIRECTORY"], flag: None,
        about: "directory in which `epitaph agent` keeps finished reports and evidence over a restart, a reboot, and an outage of the collector; the parent directory must exist; if not set, reports and evidence are kept in memory only",
        set: |c, v| put_some(&mut c.journal.directory, v) },
    Setting { key: "journal.max_bytes", env: &["EPITAPH_JOURNAL_MAX_BYTES"], flag: None,
        about: "largest size of the journal in bytes; the oldest part is deleted first",
        set: |c, v| put_number(&mut c.journal.max_bytes, v) },
    Setting { key: "journal.group", env: &["EPITAPH_JOURNAL_GROUP"], flag: None,
        about: "id of a group that may read the journal, besides the agent's own user; the agent must be a member of this group, or you must prepare the directory with `install -d -g GROUP -m 2750`",
        set: |c, v| { let mut group = 0; put_number(&mut group, v)?; c.journal.group = Some(group); Ok(()) } },
    Setting { key: "shutdown.grace", env: &["EPITAPH_SHUTDOWN_GRACE"], flag: None,
        about: "the agent's own grace period (terminationGracePeriodSeconds of its pod). After SIGTERM at a shutdown of the node, the agent continues until all pods have terminated. It stops at the latest 2 s before this grace period ends, or 2 s before the kubelet's last phase ends",
        set: |c, v| put_duration(&mut c.shutdown.grace, v) },
    Setting { key: "logind.socket", env: &["EPITAPH_LOGIND_SOCKET"], flag: None,
        about: "socket between `epitaph logind`, which observes the system bus, and the agent, which listens there; if not set, the agent learns nothing about shutdowns of the node from logind. A socket that systemd passes to the agent (LISTEN_FDS, FileDescriptorName=logind) needs no setting",
        set: |c, v| put_some(&mut c.logind.socket, v) },
    Setting { key: "logind.uid", env: &["EPITAPH_LOGIND_UID"], flag: None,
        about: "user id of `epitaph logind`: the agent accepts connections of this user only. If root starts `epitaph logind`, it switches to this user",
        set: |c, v| put_number(&mut c.logind.uid, v) },
    Setting { key: "logind.bus", env: &["EPITAPH_LOGIND_BUS"], flag: None,
        about: "socket of the system bus, for `epitaph logind`",
        set: |c, v| put(&mut c.logind.bus, v) },
    Setting { key: "logind.lock", env: &["EPITAPH_LOGIND_LOCK"], flag: None,
        about: "`true`: at a shutdown, `epitaph logind` holds a delay lock until the agent has stored what terminated, for at most three quarters of InhibitDelayMaxSec. polkit gives this lock only to root, unless polkit is configured otherwise",
        set: |c, v| put_bool(&mut c.logind.lock, v) },
    Setting { key: "limits.memory", env: &["EPITAPH_LIMITS_MEMORY"], flag: None,
        about: "largest number of bytes that the agent keeps as evidence; the other limits apply in addition, and never allow more than this",
        set: |c, v| put_number(&mut c.limits.core.memory, v) },
    Setting { key: "limits.subjects", env: &["EPITAPH_LIMITS_SUBJECTS"], flag: None,
        about: "largest number of containers and units that the agent keeps at the same time; each 16 MiB of `limits.memory` have room for 7168",
        set: |c, v| put_number(&mut c.limits.core.subjects, v) },
    Setting { key: "limits.timelines", env: &["EPITAPH_LIMITS_TIMELINES"], flag: None,
        about: "largest number of terminations that are in progress at the same time",
        set: |c, v| put_number(&mut c.limits.core.timelines, v) },
    Setting { key: "limits.facts", env: &["EPITAPH_LIMITS_FACTS"], flag: None,
        about: "largest number of signals that the agent keeps for one termination. The same number applies to handler entries, to OOM victims and to exits. Further ones are only counted",
        set: |c, v| put_number(&mut c.limits.core.facts, v) },
    Setting { key: "limits.connections", env: &["EPITAPH_LIMITS_CONNECTIONS"], flag: None,
        about: "largest number of connections that the agent keeps for one termination; further ones are only counted",
        set: |c, v| put_number(&mut c.limits.core.connections, v) },
    Setting { key: "limits.pending", env: &["EPITAPH_LIMITS_PENDING"], flag: None,
        about: "largest number of kernel events that wait at the same time because the name of their cgroup is not known yet",
        set: |c, v| put_number(&mut c.limits.core.pending, v) },
    Setting { key: "limits.pods", env: &["EPITAPH_LIMITS_PODS"], flag: None,
        about: "largest number of this node's pods that the agent keeps at the same time",
        set: |c, v| put_number(&mut c.limits.core.pods, v) },
    Setting { key: "limits.held", env: &["EPITAPH_LIMITS_HELD"], flag: None,
        about: "largest number of container terminations that wait at the same time for the pod's status",
        set: |c, v| put_number(&mut c.limits.core.held, v) },
    Setting { key: "limits.index_live", env: &["EPITAPH_LIMITS_INDEX_LIVE"], flag: None,
        about: "largest number of existing cgroups that the agent keeps at the same time; the same number applies to running processes",
        set: |c, v| put_number(&mut c.limits.core.index_live, v) },
    Setting { key: "limits.index_dead", env: &["EPITAPH_LIMITS_INDEX_DEAD"], flag: None,
        about: "largest number of removed cgroups that the agent keeps at the same time",
        set: |c, v| put_number(&mut c.limits.core.index_dead, v) },
    Setting { key: "limits.reorder", env: &["EPITAPH_LIMITS_REORDER"], flag: None,
        about: "how long the agent waits for kernel records that arrive out of order",
        set: |c, v| put_duration(&mut c.limits.core.reorder, v) },
    Setting { key: "limits.linger", env: &["EPITAPH_LIMITS_LINGER"], flag: None,
        about: "how long after an exit the agent still collects evidence of the termination; if a container's cgroup still exists then, the agent continues until the cgroup is removed, for at most 10 s more; must not be shorter than `limits.reorder`",
        set: |c, v| put_duration(&mut c.limits.core.linger, v) },
    Setting { key: "limits.idle", env: &["EPITAPH_LIMITS_IDLE"], flag: None,
        about: "the agent drops evidence after this time if no termination has followed",
        set: |c, v| put_duration(&mut c.limits.core.idle, v) },
    Setting { key: "limits.export_queue", env: &["EPITAPH_LIMITS_EXPORT_QUEUE"], flag: None,
        about: "largest number of traces that wait for the collector at the same time; if there are more, the agent drops the oldest and counts it",
        set: |c, v| put_number(&mut c.limits.export_queue, v) },
    Setting { key: "limits.workloads", env: &["EPITAPH_LIMITS_WORKLOADS"], flag: None,
        about: "largest number of workloads that have their own series on /metrics; further workloads are counted as `other`",
        set: |c, v| put_number(&mut c.limits.workloads, v) },
    Setting { key: "log.filter", env: &["EPITAPH_LOG", "RUST_LOG"], flag: Some("--log"),
        about: "which messages are logged: one or several parts with commas between them, such as `info,epitaph::source=debug`. A part is `LEVEL`, or `TARGET=LEVEL`, or `TARGET` for all levels of this target. A target is a part of the program. If several targets match the beginning of a message's target, the longest one decides. Levels are `off`, `error`, `warn`, `info`, `debug` and `trace`. Parts that select spans or fields (`[…]`) have no effect",
        set: |c, v| put(&mut c.log.filter, v) },
    Setting { key: "log.format", env: &["EPITAPH_LOG_FORMAT"], flag: Some("--log-format"),
        about: "`text` or `json`, on standard error",
        set: |c, v| put(&mut c.log.format, v) },
];

/// The known key that was probably meant by `key`.
pub fn nearest(key: &str) -> Option<&'static str> {
    nearest_of(key, ALL.iter().map(|s| s.key))
}

/// The name in `known` that is close enough to `name` to be meant.
pub fn nearest_of<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|k| (strsim::jaro_winkler(name, k), k))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| k)
}

/// Variables with epitaph's prefix that are not a setting, each with the setting that was probably meant.
pub fn unknown_variables(env: &dyn Env) -> Vec<(String, Option<&'static str>)> {
    let known = || ALL.iter().flat_map(|setting| setting.env).copied().chain([FILE_VARIABLE]);
    let mut unknown: Vec<String> = env.names();
    unknown.retain(|name| name.starts_with(PREFIX) && !is_service_link(name, env) && known().all(|known| known != name));
    unknown.sort_unstable();
    unknown
        .into_iter()
        .map(|name| {
            let meant = nearest_of(&name[PREFIX.len()..], known().filter_map(|known| known.strip_prefix(PREFIX)));
            let meant = meant.and_then(|meant| known().find(|known| known.strip_prefix(PREFIX) == Some(meant)));
            (name, meant)
        })
        .collect()
}

/// The kubelet sets such variables for each Service of the namespace (`enableServiceLinks`): they are not a mistake.
fn is_service_link(name: &str, env: &dyn Env) -> bool {
    let is_address = || env.get(name).is_some_and(|value| value.contains("://"));
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT") && is_address()
        || name.contains("_PORT_") && ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| name.contains(protocol))
}

/// The first key of a file that no setting has, as a dotted path.
pub(super) fn first_unknown(table: &toml::Table) -> Option<String> {
    fn walk(prefix: &str, table: &toml::Table) -> Option<String> {
        table.iter().find_map(|(name, value)| {
            let key = if prefix.is_empty() {
                name.clone()
            } else {
                format!("{prefix}.{name}")
            };
            if ALL.iter().any(|s| s.key == key) {
                return None;
            }
            let is_section = ALL
                .iter()
                .any(|s| s.key.strip_prefix(&key).is_some_and(|rest| rest.starts_with('.')));
            match value {
                toml::Value::Table(inner) if is_section => walk(&key, inner),
                // The typed parse reports the problem.
                _ if is_section => None,
                _ => Some(key),
            }
        })
    }
    walk("", table)
}

/// The value of a dotted path.
fn at(table: &toml::Table, key: &str) -> Option<toml::Value> {
    let table = toml::Value::Table(table.clone());
    key.split('.').try_fold(table, |value, part| value.get(part).cloned())
}

/// Offset of a dotted path's value in a file, bytes.
pub(super) fn offset(text: &str, key: &str) -> Option<usize> {
    fn find<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<&'t Spanned<DeValue<'i>>> {
        let mut entries = table.iter();
        entries.find(|(known, _)| *known.get_ref() == name).map(|(_, value)| value)
    }
    let root = DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let (sections, name) = key.rsplit_once('.').unwrap_or(("", key));
    for section in sections.split('.').filter(|section| !section.is_empty()) {
        table = find(table, section)?.get_ref().as_table()?;
    }
    Some(find(table, name)?.span().start)
}

/// The settings that have no value.
pub(super) fn unset(config: &Config) -> impl Iterator<Item = &'static str> {
    let table = toml::Table::try_from(config).expect("every setting has a form in TOML");
    ALL.iter().map(|s| s.key).filter(move |key| at(&table, key).is_none())
}

/// The first setting with an invalid value in a file, which the error of the typed parse does not name; and our own description of
/// the problem with the remedy, if there is one.
pub(super) fn first_wrong(table: &toml::Table) -> Option<(&'static str, Option<Problem>)> {
    ALL.iter().find_map(|setting| {
        let value = at(table, setting.key)?;
        let alone = setting.key.rsplit('.').fold(value.clone(), |value, part| {
            toml::Value::Table(toml::Table::from_iter([(part.to_owned(), value)]))
        });
        let error = alone.try_into::<Config>().err()?;
        let problem = match (setting.key, &value) {
            ("export.resource_attributes", _) => {
                let what = Problem::new(error.message().to_owned());
                Some(what.with_remedy("put names and values in quotes, as in \"a.b\" = \"value\""))
            }
            // Refused in the same way as for a flag or a variable.
            (_, toml::Value::String(text)) => (setting.set)(&mut Config::default(), text).err(),
            _ => None,
        };
        Some((setting.key, problem))
    })
}

/// The table of `docs/config.md`.
pub fn markdown() -> String {
    let defaults = toml::Table::try_from(Config::default()).expect("every setting has a form in TOML");
    let mut out = String::from("| key | default | environment | flag | meaning |\n|---|---|---|---|---|\n");
    for setting in ALL {
        let default = at(&defaults, setting.key)
            .filter(|value| value.as_table().is_none_or(|t| !t.is_empty()))
            .map_or("none".to_owned(), |value| format!("`{value}`"));
        let env = setting.env.iter().map(|e| format!("`{e}`")).collect::<Vec<_>>().join(", ");
        let flag = setting.flag.map_or(String::new(), |f| format!("`{f}`"));
        let _ = writeln!(out, "| `{}` | {default} | {env} | {flag} | {} |", setting.key, setting.about);
    }
    out
}

fn put<T: FromStr<Err: Into<Problem>>>(to: &mut T, text: &str) -> Result<(), Problem> {
    *to = text.parse().map_err(Into::into)?;
    Ok(())
}

fn put_some<T: FromStr<Err: Into<Problem>>>(to: &mut Option<T>, text: &str) -> Result<(), Problem> {
    *to = Some(text.parse().map_err(Into::into)?);
    Ok(())
}

fn put_number<T: FromStr<Err = ParseIntError>>(to: &mut T, text: &str) -> Result<(), Problem> {
    *to = text.parse().map_err(|e: ParseIntError| match e.kind() {
        IntErrorKind::PosOverflow => Problem::new("too large"),
        _ => Problem::new("not a whole number").with_remedy("write for example 2000"),
    })?;
    Ok(())
}

fn put_duration(to: &mut Duration, text: &str) -> Result<(), Problem> {
    *to = duration::parse(text).map_err(|error| {
        Problem::new(format!("not a duration: {error}"))
            .with_remedy("write for example 10s, 500ms, or a number of milliseconds")
    })?;
    Ok(())
}

fn put_bool(to: &mut bool, text: &str) -> Result<(), Problem> {
    *to = match text {
        "true" | "True" | "TRUE" | "1" => true,
        "false" | "False" | "FALSE" | "0" => false,
        _ => return Err(Problem::new("neither true nor false")),
    };
    Ok(())
}

fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, Problem> {
    match words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
        Some((_, value)) => Ok(*value),
        None => {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Err(Problem::new(format!("not one of {}", words.join(", "))))
        }
    }
}

/// `otlp` and `none` are OpenTelemetry's values.
fn put_exporter(to: &mut bool, text: &str) -> Result<(), Problem> {
    *to = match text {
        "otlp" | "true" => true,
        "none" | "false" => false,
        _ => return Err(Problem::new("not a supported exporter").with_remedy("write otlp or none")),
    };
    Ok(())
}

fn units(text: &str) -> Result<Vec<String>, Problem> {
    let units: Vec<String> = words(text).collect();
    match units
        .iter()
        .find(|unit| !unit.ends_with(".service") && !unit.ends_with(".scope"))
    {
        Some(unit) => Err(Problem::new(format!("`{unit}` is neither a .service nor a .scope"))),
        None => Ok(units),
    }
}

fn directories(text: &str) -> Result<Vec<PathBuf>, Problem> {
    let paths: Vec<PathBuf> = words(text).map(PathBuf::from).collect();
    not_a_runtime(&paths).map_or(Ok(paths), Err)
}

/// By its last component a directory shows which runtime's files it has.
pub(super) fn not_a_runtime(paths: &[PathBuf]) -> Option<Problem> {
    let wrong = paths.iter().find(|path| !runtimes::is_known(path))?;
    let remedy = "write absolute paths without `..` that end with io.containerd.runtime.v2.task, containers (Docker) or overlay-containers";
    let problem = match runtimes::is_of_kubelet(wrong) {
        true => "is a directory of the kubelet, which has the pods' secrets",
        false => "is not a directory of a known container runtime",
    };
    Some(Problem::new(format!("`{}` {problem}", wrong.display())).with_remedy(remedy))
}

fn namespaces(text: &str) -> Result<Vec<String>, Problem> {
    let names: Vec<String> = words(text).collect();
    not_a_namespace(&names).map_or(Ok(names), Err)
}

/// A namespace is a DNS label (RFC 1123); `*` is all. A pattern would match nothing, and allow less than its author believes.
pub(super) fn not_a_namespace(names: &[String]) -> Option<Problem> {
    let is_label = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_name = |name: &str| name == "*" || (1..=63).contains(&name.len()) && name.bytes().all(is_label);
    let wrong = names.iter().find(|name| !is_name(name))?;
    let remedy = "write names as `kubectl get namespaces` shows them, or `*` for all; patterns are not supported";
    Some(Problem::new(format!("`{wrong}` is not the name of a namespace")).with_remedy(remedy))
}

/// The parts of `name,name`.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
}

/// W3C baggage form: `name=value,name=value`, values percent-encoded.
fn headers(text: &str) -> Result<BTreeMap<String, Secret>, Problem> {
    let mut headers = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        // The value is a secret: it must not be in the message.
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| Problem::new("not `name=value,name=value`"))?;
        let name = name.trim();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            return Err(Problem::new(
                "the name of a header has a character other than letters, digits, `-`, `_` and `.`",
            ));
        }
        let value = percent_decode(value.trim())
            .filter(|value| !value.contains(char::is_control))
            .ok_or_else(|| Problem::new(format!("the value of `{name}` is badly percent-encoded")))?;
        headers.insert(name.to_ascii_lowercase(), Secret::new(value));
    }
    Ok(headers)
}

/// <https://opentelemetry.io/docs/specs/otel/resource/sdk/#specifying-resource-information-via-an-environment-variable>:
/// names and values are percent-encoded, one mistake invalidates the whole variable, values are strings.
fn resource_attributes(text: &str) -> Result<BTreeMap<String, String>, Problem> {
    let mut attributes = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            Problem::new(format!("`{pair}` is not `name=value`")).with_remedy("write a comma within a value as %2C")
        })?;
        let decode = |text: &str| {
            percent_decode(text.trim()).ok_or_else(|| {
                Problem::new(format!("`{pair}` is badly percent-encoded")).with_remedy("write a percent sign itself as %25")
            })
        };
        let name = decode(name)?;
        if name.is_empty() {
            return Err(Problem::new(format!("`{pair}` has no name before its `=`")));
        }
        attributes.insert(name, decode(value)?);
    }
    Ok(attributes)
}

/// None if a percent sign is not followed by two hex digits, or the bytes are not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let digit = |b: Option<u8>| char::from(b?).to_digit(16);
        out.push((digit(bytes.next())? * 16 + digit(bytes.next())?) as u8);
    }
    String::from_utf8(out).ok()
}
