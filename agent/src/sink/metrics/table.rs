//! Every instrument, once.

use std::fmt::Write as _;

use epitaph_core::verdict::table::{TRAFFIC, name};
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Counter,
    Gauge,
    Histogram,
}

/// An instrument.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// OpenTelemetry's name; [`Row::prometheus`] gives the one at `/metrics`.
    pub name: &'static str,
    pub shape: Shape,
    /// UCUM.
    pub unit: &'static str,
    /// Each label and its values, for people.
    pub labels: &'static [(&'static str, &'static str)],
    pub about: &'static str,
}

/// Values of the label `incident`: lost connections, in the order of the outcomes, then the others.
pub const INCIDENTS: [&str; 6] = [
    "connections-refused",
    "connections-reset",
    "connections-cut",
    "connections-rejected",
    "stop-signal-ignored",
    "stuck",
];

/// Placeholder for [`INCIDENTS`].
const OF_INCIDENTS: &str = "{incidents}";

/// Placeholder for the values of the traffic axis.
const OF_TRAFFIC: &str = "{traffic}";

const SUBJECT: (&str, &str) = ("subject", "container, unit");

pub const TERMINATIONS: Row = Row {
    name: "epitaph.terminations",
    shape: Shape::Counter,
    unit: "{termination}",
    labels: &[
        ("verdict", "see docs/verdicts.md"),
        ("unclean", "true, false"),
        SUBJECT,
        (
            "runtime",
            "containerd, cri-o, docker, podman; unnamed: the cgroup path does not show the runtime; systemd: for units",
        ),
    ],
    about: "Terminations by verdict. A series appears with the first termination, so an increase misses this first termination: alert on \
            epitaph_host_unclean_timestamp_seconds and epitaph_workload_unclean_timestamp_seconds",
};
pub const BY_CAUSE: Row = Row {
    name: "epitaph.terminations.by_cause",
    shape: Shape::Counter,
    unit: "{termination}",
    labels: &[
        ("cause", "see docs/verdicts.md"),
        ("exit", "see docs/verdicts.md"),
        ("traffic", OF_TRAFFIC),
    ],
    about: "Terminations by the three axes of the verdict. A series appears with the first termination that has this combination of values",
};
pub const STOP_DURATION: Row = Row {
    name: "epitaph.stop.duration",
    shape: Shape::Histogram,
    unit: "s",
    labels: &[SUBJECT],
    about: "Time from the stop signal to the exit of the main process",
};
pub const REFUSAL_DURATION: Row = Row {
    name: "epitaph.refusal.duration",
    shape: Shape::Histogram,
    unit: "s",
    labels: &[SUBJECT],
    about: "Time from the close of the listener to the last connection that was refused on its port: a preStop sleep of this length was \
            missing",
};
pub const CONNECTIONS: Row = Row {
    name: "epitaph.connections",
    shape: Shape::Counter,
    unit: "{connection}",
    labels: &[("outcome", "accepted, refused, reset, cut, undecided, idle_closed, rejected")],
    about: "Connections of terminating containers and units, counted from the pod's deletion request, or from the stop signal if there was \
            no request. cut: open connections with an unanswered request that were dropped at exit. undecided: connections that were still \
            open at the exit, idle or with a request under way. idle_closed: connections that neither side had used and that were closed \
            at exit. rejected: connections of clients on this node that ended with an ICMP error before they reached the container or unit",
};
pub const IGNORED: Row = Row {
    name: "epitaph.stop_signals.ignored",
    shape: Shape::Counter,
    unit: "{signal}",
    labels: &[SUBJECT],
    about: "Stop signals that the kernel discarded; each is counted at once, before SIGKILL",
};
pub const CHILD_OOM: Row = Row {
    name: "epitaph.oom.child_kills",
    shape: Shape::Counter,
    unit: "{process}",
    labels: &[
        SUBJECT,
        (
            "role",
            "worker (another process of the program, with sockets of clients), helper (another process of the program, without such \
             sockets), process (whether it had such sockets is not known), unattributed (nothing shows whether the program or a process \
             from outside started it); not a part of the program: exec-probe, pre-stop, exec-session, from-outside (one of these three), \
             runtime (the container runtime's own process)",
        ),
    ],
    about: "OOM kills of processes other than the main process, after which the container or unit kept running",
};
pub const LOST: Row = Row {
    name: "epitaph.records.lost",
    shape: Shape::Counter,
    unit: "{record}",
    labels: &[("kind", "kind of kernel record")],
    about: "Kernel records lost because the ring buffer was full, a container exceeded its budget, or the kernel skipped an eBPF probe. \
            The terminations that are affected report the loss",
};
pub const DROPPED: Row = Row {
    name: "epitaph.dropped",
    shape: Shape::Counter,
    unit: "{item}",
    labels: &[(
        "reason",
        "timeline_cap, fact_cap, memory, index_cap, unattributed, workload_cap, undecodable, probe_map, terminal_queue_full, \
         container_file (a file or directory of a container runtime is not readable: containers have no name), container_queue_full, \
         log_rate (lines of unclean and unknown terminations in the agent's log); with the logind role logind_strangers (too many forged \
         signals: the senders of these were not looked up), logind_signal_queue, \
         logind_garbage (signals with another content), logind_locks, logind_role_queue, logind_peer (refused connections to the role's socket), logind_oversize, logind_undecodable; with Kubernetes \
         pod_unreadable, pod_cap, event_queue_full, event_rate (too many pods terminated at once, or in one namespace within a minute: \
         their Kubernetes Events were not listed), bad_annotation, pod_key_taken (a pod whose cgroups already belong to another pod)",
    )],
    about: "Items that the agent dropped, by reason",
};
pub const NODE_READY: Row = Row {
    name: "epitaph.node.shutdown.ready",
    shape: Shape::Gauge,
    unit: "",
    labels: &[
        (
            "check",
            "periods: the kubelet's configuration protects pods; delay: logind waits as long as the kubelet needs; lock: the kubelet holds its lock",
        ),
        ("state", "ready, not_ready, unknown"),
    ],
    about: "1 for the state of the check, 0 for the other states. The checks show whether this node would shut its pods down gracefully. \
            The checks lock and delay need the system bus (logind.enabled of the chart). The checks periods and delay need the kubelet's \
            answer or its file (agent.kubelet.configz, agent.kubelet.config). Without these, the state is unknown. On a machine that is \
            not a node, the metric exists only if there is a kubelet's file",
};
pub const PROBE: Row = Row {
    name: "epitaph.probe.state",
    shape: Shape::Gauge,
    unit: "",
    labels: &[
        ("probe", "name of the tracepoint"),
        (
            "state",
            "active; substituted: another probe shows everything that this probe would show; partial: another probe shows only the clients \
             of this machine; unsupported; failed",
        ),
    ],
    about: "1 for the state of the eBPF probe, 0 for its former states; /readyz shows the reason",
};
pub const REFUSED_CLIENTS: Row = Row {
    name: "epitaph.refused_clients.seen",
    shape: Shape::Gauge,
    unit: "",
    labels: &[(
        "clients",
        "all: every refused client is seen; of_this_machine: refused clients of other machines and of Services are not seen, so the \
         traffic of a container that closes a listener is unknown; none: no refused client is seen",
    )],
    about: "Which refused clients this kernel shows: 1 for the value of the label that applies, 0 for the others. /readyz has the reason \
            and the remedy",
};
pub const NEIGHBOURS: Row = Row {
    name: "epitaph.agent.neighbours",
    shape: Shape::Gauge,
    unit: "{process}",
    labels: &[],
    about: "Other epitaph processes that observe this machine (`agent`, `watch`, `record`); 16 stands for 16 or more. With two agents \
            every termination is exported twice. The number is not a proof: any process on the machine can forge the announcement of such \
            a process, and 16 forged ones hide the real ones. Absent if other processes cannot be detected",
};
pub const MEMORY: Row = Row {
    name: "epitaph.memory",
    shape: Shape::Gauge,
    unit: "By",
    labels: &[(
        "part",
        "evidence: bounded by `limits.memory`; probes: the BPF maps and programs in the kernel, constant from the start",
    )],
    about: "Bytes of memory that the observation uses, in the agent's own memory and in the kernel",
};
pub const EXPORT_SPANS: Row = Row {
    name: "epitaph.export.spans",
    shape: Shape::Counter,
    unit: "{span}",
    labels: &[(
        "outcome",
        "exported, queue_full, rejected, shutdown, journal_full, journal_unreadable",
    )],
    about: "Spans that the collector accepted, and spans that never reached it, by reason",
};
pub const EXPORT_LOGS: Row = Row {
    name: "epitaph.export.logs",
    shape: Shape::Counter,
    unit: "{record}",
    labels: &[(
        "outcome",
        "exported, queue_full, rejected, shutdown, journal_full, journal_unreadable",
    )],
    about: "Log records of terminations that the collector accepted, and log records that never reached it, by reason; absent unless \
            `otlp.logs` is set",
};
pub const EXPORT_RETRIES: Row = Row {
    name: "epitaph.export.retries",
    shape: Shape::Counter,
    unit: "{request}",
    labels: &[("signal", "traces; logs, where `otlp.logs` is set")],
    about: "Export requests that failed and were sent again",
};
pub const EXPORT_GIVEN_UP: Row = Row {
    name: "epitaph.export.given_up",
    shape: Shape::Counter,
    unit: "{trace}",
    labels: &[
        ("reason", "queue_full, rejected, shutdown, journal_full, journal_unreadable"),
        ("verdict", "see docs/verdicts.md"),
    ],
    about: "Traces that the agent stopped trying to send, by reason and verdict. A series appears with the first such trace. If the \
            collector refuses a trace of the journal for a reason other than its content, for example with HTTP 401, the agent sends it \
            again until the collector accepts it, also after the agent's next start",
};
pub const JOURNAL_STATE: Row = Row {
    name: "epitaph.journal.state",
    shape: Shape::Gauge,
    unit: "",
    labels: &[(
        "state",
        "written, slow, full, read_only, missing, refused, failing, not_configured",
    )],
    about: "1 for the state of the journal, 0 for the other states. written: everything is on disk. slow: writes are late, so a crash \
            loses what the disk has not confirmed. not_configured: `journal.directory` is not set. In all states other than written and \
            slow, evidence is in memory only, so a crash loses what is not delivered",
};
pub const JOURNAL_BYTES: Row = Row {
    name: "epitaph.journal.size",
    shape: Shape::Gauge,
    unit: "By",
    labels: &[],
    about: "Bytes of the journal on disk, including reserved space; absent without a journal",
};
pub const JOURNAL_WRITTEN: Row = Row {
    name: "epitaph.journal.written",
    shape: Shape::Counter,
    unit: "By",
    labels: &[],
    about: "Bytes written to the journal",
};
pub const JOURNAL_SYNCS: Row = Row {
    name: "epitaph.journal.syncs",
    shape: Shape::Counter,
    unit: "{sync}",
    labels: &[],
    about: "Syncs of the journal to the disk: each sync makes everything that was written before it safe from a power cut",
};
pub const JOURNAL_DROPPED: Row = Row {
    name: "epitaph.journal.dropped",
    shape: Shape::Counter,
    unit: "{frame}",
    labels: &[(
        "reason",
        "queue_full, disk, too_long, report (finished reports that were not written, because the disk failed or was slow for too long)",
    )],
    about: "Entries that could not be written to the journal, by reason. After a restart, the agent then knows less about terminations \
            that were in progress. Of entries with the reason `report`, `epitaph list` and `why` know only the number and the time",
};
pub const JOURNAL_REMOVED: Row = Row {
    name: "epitaph.journal.removed",
    shape: Shape::Counter,
    unit: "{segment}",
    labels: &[],
    about: "Segments (files) of the journal that were removed because the journal had reached `journal.max_bytes`; the oldest are removed \
            first",
};
pub const LOGIND_STATE: Row = Row {
    name: "epitaph.logind.state",
    shape: Shape::Gauge,
    unit: "",
    labels: &[("state", "off, unavailable, connected")],
    about: "1 for the state of the connection to logind, which announces shutdowns of the node, 0 for the other states. off: no `epitaph \
            logind` is connected to the agent. unavailable: `epitaph logind` reaches no system bus, or no logind on the bus. Absent if the \
            agent has no socket for `epitaph logind` (`logind.socket`)",
};
pub const KUBERNETES_STATE: Row = Row {
    name: "epitaph.kubernetes.state",
    shape: Shape::Gauge,
    unit: "",
    labels: &[("state", "synced, away")],
    about: "1 for the state of the connection to the Kubernetes API, 0 for the other state; absent without Kubernetes. In the state away, \
            terminations of pods are reported late or incomplete, and the reports say so",
};
pub const KUBERNETES_CLOCK: Row = Row {
    name: "epitaph.kubernetes.clock.ahead",
    shape: Shape::Gauge,
    unit: "s",
    labels: &[("bound", "least, most")],
    about: "The difference between two clocks, as a lower and an upper bound: the API server's clock minus this node's clock. The times of \
            deletion requests are only as exact as these bounds",
};
pub const KUBERNETES_REQUESTS: Row = Row {
    name: "epitaph.kubernetes.requests",
    shape: Shape::Counter,
    unit: "{request}",
    labels: &[
        ("resource", "pods, replicaset, job, namespace, events, clock"),
        ("outcome", "ok, forbidden, failed, skipped"),
    ],
    about: "Requests to the API server; a watch counts once, when it starts. skipped: the request was not sent, because a similar request \
            had failed shortly before. Absent without Kubernetes",
};
pub const KUBERNETES_FAILURES: Row = Row {
    name: "epitaph.kubernetes.failures",
    shape: Shape::Counter,
    unit: "{request}",
    labels: &[
        (
            "resource",
            "agent: pods, replicaset, job, namespace, events, clock; observer: endpointslices, pods, namespaces",
        ),
        (
            "reason",
            "expired: the API server no longer has the changes; too_new: the API server does not have the requested version yet; \
             forbidden; unauthorized; status: another error of the API server; connection; timeout; undecodable; closed: a watch ended at \
             once; stalled: a watch was silent",
        ),
    ],
    about: "Requests to the API server that failed, and watches that were interrupted, by reason; a reason appears with its first failure",
};
pub const KUBERNETES_EVENTS: Row = Row {
    name: "epitaph.kubernetes.events",
    shape: Shape::Counter,
    unit: "{termination}",
    labels: &[(
        "outcome",
        "posted, known (the agent had posted the Event before its restart), crowded (too many Events of one workload), foreign (an Event \
         of another writer has the same name), queue_full, forbidden, namespace_gone, rejected, unavailable, shutdown",
    )],
    about: "Kubernetes Events for terminations and discarded stop signals (one on the pod, one on the workload), by outcome: posted, or the reason why not. Absent without Kubernetes",
};
pub const KUBERNETES_EPITAPHS: Row = Row {
    name: "epitaph.kubernetes.epitaphs",
    shape: Shape::Counter,
    unit: "{termination}",
    labels: &[(
        "outcome",
        "written, known (the agent had written the Epitaph before its restart), foreign (an Epitaph of another pod or node has the same \
         name), absent (observer only: no agent has written the Epitaph that the observer wants to complete), unneeded (observer only: \
         what the observer saw explains nothing about this termination, or came after two writes; counted when the observer forgets it), \
         queue_full, kind_absent (the CustomResourceDefinition is not installed), forbidden (RBAC), refused (by the admission policy: the \
         agent's token does not name the node), namespace_gone, rejected, unavailable, shutdown",
    )],
    about: "Terminations for the custom resource Epitaph, by outcome: written, or the reason why not. Absent without Kubernetes",
};
pub const HTTP_CLOSED: Row = Row {
    name: "epitaph.http.connections.closed",
    shape: Shape::Counter,
    unit: "{connection}",
    labels: &[
        ("listener", "metrics, health"),
        (
            "reason",
            "displaced: closed in favour of a newer connection, because the limit of connections was reached; head_timeout, \
             head_too_large, bad_request: the client sent no valid request; timeout: the client did not read the answer; not_accepted: the \
             agent had no file descriptor or memory",
        ),
    ],
    about: "Connections to the agent's own port that were closed without a complete answer. If the number grows, a client is broken or \
            hostile",
};
pub const OPTED_OUT: Row = Row {
    name: "epitaph.opted_out",
    shape: Shape::Counter,
    unit: "{termination}",
    labels: &[],
    about: "Terminations that were not reported, because an annotation suppresses the report (`epitaph.dev/ignore`), or because \
            `units.include` and `units.exclude` leave the systemd unit out",
};
pub const NODE_SHUTDOWNS: Row = Row {
    name: "epitaph.node.shutdowns",
    shape: Shape::Counter,
    unit: "{shutdown}",
    labels: &[(
        "verdict",
        "graceful, truncated, unprotected, bypassed, unannounced, spoofed, cancelled, blocked, unknown",
    )],
    about: "Shutdowns of the node by verdict (docs/verdicts.md). A series appears with the first shutdown that has the verdict. The agent \
            counts a shutdown after the next boot",
};
pub const NODE_SHUTDOWN_LAST: Row = Row {
    name: "epitaph.node.shutdown.timestamp",
    shape: Shape::Gauge,
    unit: "s",
    labels: &[
        (
            "verdict",
            "graceful, truncated, unprotected, bypassed, unannounced, spoofed, cancelled, blocked, unknown",
        ),
        ("unclean", "true, false: a shutdown of a drained node is not unclean"),
    ],
    about: "Unix time of the last shutdown of the node with this verdict: the time of the last evidence of that shutdown. Absent until \
            this agent has reported a shutdown with this verdict",
};

pub(super) const NAMESPACE: (&str, &str) = ("k8s.namespace.name", "namespace of the workload");
const WORKLOAD_KIND: (&str, &str) = (
    "epitaph.workload.kind",
    "Deployment, StatefulSet, DaemonSet, CronJob, Job, ...",
);
const WORKLOAD_NAME: (&str, &str) = (
    "epitaph.workload.name",
    "name of the workload; `*` stands for all Jobs and all pods without a \
                                      controller of a namespace",
);

pub const WORKLOAD_TERMINATIONS: Row = Row {
    name: "epitaph.workload.terminations",
    shape: Shape::Counter,
    unit: "{termination}",
    labels: &[
        NAMESPACE,
        WORKLOAD_KIND,
        WORKLOAD_NAME,
        (
            "what",
            "`pod`: a whole pod terminated; `container`: one container terminated, and its pod kept running, had been reported before, or \
             was still terminating when the agent stopped",
        ),
        ("unclean", "true, false"),
    ],
    about: "Terminations of a workload's pods on this node. All series start at 0 as soon as a pod of the workload runs on this node, so \
            rates and ratios are right. If a container crashes before the first scrape, the first value is 1: alert on \
            epitaph_workload_unclean_timestamp_seconds",
};
pub const WORKLOAD_VERDICTS: Row = Row {
    name: "epitaph.workload.verdicts",
    shape: Shape::Counter,
    unit: "{termination}",
    labels: &[NAMESPACE, WORKLOAD_KIND, WORKLOAD_NAME, ("verdict", "see docs/verdicts.md")],
    about: "Terminations of a workload's pods by verdict. A series appears with the first termination that has the verdict",
};
pub const WORKLOAD_CONNECTIONS: Row = Row {
    name: "epitaph.workload.connections",
    shape: Shape::Counter,
    unit: "{connection}",
    labels: &[
        NAMESPACE,
        WORKLOAD_KIND,
        WORKLOAD_NAME,
        ("outcome", "refused, reset, cut, rejected"),
    ],
    about: "Client connections lost when the workload's pods terminated. A series appears with the first lost connection: alert on \
            epitaph_workload_incident_timestamp_seconds",
};
pub const WORKLOAD_IGNORED: Row = Row {
    name: "epitaph.workload.stop_signals.ignored",
    shape: Shape::Counter,
    unit: "{signal}",
    labels: &[NAMESPACE, WORKLOAD_KIND, WORKLOAD_NAME],
    about: "Stop signals to the workload's pods that the kernel discarded; each is counted before SIGKILL. The series appears with the \
            first such signal",
};
pub const WORKLOAD_GRACE_CUT: Row = Row {
    name: "epitaph.workload.grace.cut_short",
    shape: Shape::Counter,
    unit: "{termination}",
    labels: &[NAMESPACE, WORKLOAD_KIND, WORKLOAD_NAME],
    about: "Terminations of the workload's pods that got a shorter grace period than the pod's terminationGracePeriodSeconds. The reason \
            is one of these: the deletion asked for a shorter grace period or was a force delete (`kubectl drain --grace-period`, the \
            cluster autoscaler, Karpenter, a person); or SIGKILL followed a later request with a shorter grace period, or an eviction by \
            the kubelet. The series starts at 0 as soon as a pod of the workload runs on this node",
};
pub const WORKLOAD_STUCK: Row = Row {
    name: "epitaph.workload.stuck",
    shape: Shape::Counter,
    unit: "{container}",
    labels: &[NAMESPACE, WORKLOAD_KIND, WORKLOAD_NAME],
    about: "Containers that were still running 15 s after the end of the grace period; each is counted before it exits. The grace period \
            begins with the deletion request, or with the stop signal if this signal came later. The series appears with the first such \
            container",
};
pub const WORKLOAD_HELD: Row = Row {
    name: "epitaph.workload.held",
    shape: Shape::Counter,
    unit: "{pod}",
    labels: &[
        NAMESPACE,
        WORKLOAD_KIND,
        WORKLOAD_NAME,
        (
            "holder",
            "runtime, sandbox, network, volume, kubelet, finalizer, api: docs/verdicts.md, *Pods that are held*",
        ),
    ],
    about: "Pods that were still Terminating a minute after their last container had exited, by the layer that held the pod. A pod is \
            counted again when another layer holds it. The series appears with the first such pod",
};
pub const WORKLOAD_DISAGREES: Row = Row {
    name: "epitaph.workload.status.disagrees",
    shape: Shape::Counter,
    unit: "{container}",
    labels: &[
        NAMESPACE,
        WORKLOAD_KIND,
        WORKLOAD_NAME,
        (
            "said",
            "what the pod's status has, and kubectl shows: OOMKilled; placeholder (ContainerStatusUnknown, RestartingAllContainers or \
             Unknown: Kubernetes had not observed the exit); exit-code",
        ),
        (
            "was",
            "what the exit was, by the kernel's record: exit-0, exit-code (another exit code than in the pod's status), signal, oom-kill",
        ),
    ],
    about: "Exits of containers for which the pod's status (label said) contradicts the kernel's record (label was). Example: \
            said=OOMKilled and was=exit-0 means that a container exited with 0, but kubectl shows OOMKilled (docs/exit-codes.md). The \
            series starts at 0 as soon as a pod of the workload runs on this node",
};
pub const WORKLOAD_UNCLEAN: Row = Row {
    name: "epitaph.workload.unclean.timestamp",
    shape: Shape::Gauge,
    unit: "s",
    labels: &[
        NAMESPACE,
        WORKLOAD_KIND,
        WORKLOAD_NAME,
        ("verdict", "each unclean verdict of docs/verdicts.md"),
    ],
    about: "Unix time at which the agent reported the workload's latest unclean termination with this verdict on this node. The series \
            appears with the first such termination, and its value is right also if there was no scrape before: alert on this metric",
};
pub const WORKLOAD_INCIDENT: Row = Row {
    name: "epitaph.workload.incident.timestamp",
    shape: Shape::Gauge,
    unit: "s",
    labels: &[NAMESPACE, WORKLOAD_KIND, WORKLOAD_NAME, ("incident", OF_INCIDENTS)],
    about: "Unix time at which the agent reported the workload's latest incident of this kind on this node. Incidents are: connections \
            that were lost by a termination, whatever its verdict; a stop signal that the kernel discarded; a container that still runs \
            long after the grace period. The series appears with the first incident: alert on this metric",
};
pub const HOST_UNCLEAN: Row = Row {
    name: "epitaph.host.unclean.timestamp",
    shape: Shape::Gauge,
    unit: "s",
    labels: &[
        ("verdict", "each unclean verdict of docs/verdicts.md"),
        SUBJECT,
        ("runtime", "containerd, cri-o, docker, podman, unnamed, systemd"),
    ],
    about: "Unix time at which the agent reported the latest unclean termination of a unit, or of a container whose pod is not known. The \
            series appears with the first such termination: alert on this metric",
};
pub const WORKLOAD_ADVICE: Row = Row {
    name: "epitaph.workload.advice",
    shape: Shape::Gauge,
    unit: "s",
    labels: &[
        NAMESPACE,
        WORKLOAD_KIND,
        WORKLOAD_NAME,
        (
            "advice",
            "grace-longer, grace-shorter, pre-stop-sleep-longer, pre-stop-sleep-shorter",
        ),
    ],
    about: "Advised values for terminationGracePeriodSeconds and the preStop sleep: the largest value that a termination of the last hour \
            needed. A value that is smaller than the configured one is advised only if no termination of that hour needed more",
};
pub const BUILD: Row = Row {
    name: "epitaph.build.info",
    shape: Shape::Gauge,
    unit: "",
    labels: &[
        ("version", "version of the agent"),
        ("records", "version of the kernel records"),
    ],
    about: "Always 1",
};

pub const TABLE: &[Row] = &[
    TERMINATIONS,
    BY_CAUSE,
    STOP_DURATION,
    REFUSAL_DURATION,
    CONNECTIONS,
    IGNORED,
    CHILD_OOM,
    LOST,
    DROPPED,
    NODE_READY,
    PROBE,
    REFUSED_CLIENTS,
    NEIGHBOURS,
    MEMORY,
    EXPORT_SPANS,
    EXPORT_LOGS,
    EXPORT_RETRIES,
    EXPORT_GIVEN_UP,
    JOURNAL_STATE,
    JOURNAL_BYTES,
    JOURNAL_WRITTEN,
    JOURNAL_SYNCS,
    JOURNAL_DROPPED,
    JOURNAL_REMOVED,
    WORKLOAD_TERMINATIONS,
    WORKLOAD_VERDICTS,
    WORKLOAD_CONNECTIONS,
    WORKLOAD_IGNORED,
    WORKLOAD_GRACE_CUT,
    WORKLOAD_STUCK,
    WORKLOAD_HELD,
    WORKLOAD_DISAGREES,
    WORKLOAD_UNCLEAN,
    WORKLOAD_INCIDENT,
    WORKLOAD_ADVICE,
    HOST_UNCLEAN,
    LOGIND_STATE,
    KUBERNETES_STATE,
    KUBERNETES_CLOCK,
    KUBERNETES_REQUESTS,
    KUBERNETES_FAILURES,
    KUBERNETES_EVENTS,
    KUBERNETES_EPITAPHS,
    HTTP_CLOSED,
    OPTED_OUT,
    NODE_SHUTDOWNS,
    NODE_SHUTDOWN_LAST,
    BUILD,
];

/// Seconds; the usual graces (10 s, 30 s) are bounds of their own.
pub(super) const BUCKETS: [f64; 15] = [
    0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
];

impl Row {
    /// Name at `/metrics`.
    pub fn prometheus(&self) -> String {
        let mut name = self.name.replace('.', "_");
        match self.unit {
            "s" => name += "_seconds",
            "By" => name += "_bytes",
            _ => {}
        }
        if self.shape == Shape::Counter {
            name += "_total";
        }
        name
    }

    pub(super) fn counter(&self, meter: &Meter) -> Counter<u64> {
        meter
            .u64_counter(self.name)
            .with_unit(self.unit)
            .with_description(self.about)
            .build()
    }
    pub(super) fn gauge(&self, meter: &Meter) -> Gauge<u64> {
        meter
            .u64_gauge(self.name)
            .with_unit(self.unit)
            .with_description(self.about)
            .build()
    }
    pub(super) fn gauge_f64(&self, meter: &Meter) -> Gauge<f64> {
        meter
            .f64_gauge(self.name)
            .with_unit(self.unit)
            .with_description(self.about)
            .build()
    }
    pub(super) fn histogram(&self, meter: &Meter) -> Histogram<f64> {
        let builder = meter
            .f64_histogram(self.name)
            .with_unit(self.unit)
            .with_description(self.about);
        builder.with_boundaries(BUCKETS.to_vec()).build()
    }
}

/// The table of `docs/metrics.md`.
pub fn markdown() -> String {
    let observer = [
        EXPORT_SPANS,
        EXPORT_RETRIES,
        EXPORT_GIVEN_UP,
        KUBERNETES_CLOCK,
        KUBERNETES_EVENTS,
        HTTP_CLOSED,
        BUILD,
    ];
    let observer = observer.iter().chain(super::observer::TABLE);
    format!("{}\n## `epitaph observer`\n\n{}", rows(TABLE), rows(observer))
}

fn rows<'a>(rows: impl IntoIterator<Item = &'a Row>) -> String {
    let traffic = TRAFFIC.map(|(value, _)| name(value)).join(", ");
    let mut out = String::from("| at /metrics | OTLP | kind | labels | meaning |\n|---|---|---|---|---|\n");
    for row in rows {
        let kind = match row.shape {
            Shape::Counter => "counter",
            Shape::Gauge => "gauge",
            Shape::Histogram => "histogram",
        };
        let labels: Vec<String> = row
            .labels
            .iter()
            .map(|(name, values)| {
                let values = values.replace(OF_TRAFFIC, &traffic);
                let values = values.replace(OF_INCIDENTS, &INCIDENTS.join(", "));
                format!("`{}` ({values})", name.replace('.', "_"))
            })
            .collect();
        let _ = writeln!(
            out,
            "| `{}` | `{}` | {kind} | {} | {} |",
            row.prometheus(),
            row.name,
            labels.join("; "),
            row.about
        );
    }
    out
}
