//! The dashboard for Grafana, made from the tables of verdicts and metrics: `deploy/alerts/epitaph.dashboard.json`.
//!
//! A counter that appears with its first event has no increase at that event. Where the first one matters, a panel shows the time of the
//! latest event or the plain count, and not a rate.

mod json;
mod nodes;

use std::collections::BTreeSet;

use epitaph_core::verdict::table::TABLE as VERDICTS;

use super::alerts::{RATE, UNCLEAN_RATIO, alert_of, duration, unanswered, workload_labels};
use super::observer::{ACTIVE, KNOWN};
use super::table::{
    BUILD, CHILD_OOM, CONNECTIONS, DROPPED, EXPORT_RETRIES, EXPORT_SPANS, HOST_UNCLEAN, KUBERNETES_STATE, LOST, NODE_READY,
    NODE_SHUTDOWN_LAST, PROBE, REFUSAL_DURATION, Row, STOP_DURATION, WORKLOAD_ADVICE, WORKLOAD_DISAGREES, WORKLOAD_HELD,
    WORKLOAD_IGNORED, WORKLOAD_INCIDENT, WORKLOAD_STUCK, WORKLOAD_TERMINATIONS, WORKLOAD_UNCLEAN, WORKLOAD_VERDICTS,
};

pub use json::json;

/// The window that Grafana computes from the step of the graph and the interval of the scrapes.
const STEP: &str = "$__rate_interval";
/// The time range of the dashboard.
const RANGE: &str = "$__range";
/// What the reader selected: workloads, and nodes by the name that their agents have in Prometheus.
const SELECTED: &str = "cluster=~\"$cluster\",k8s_namespace_name=~\"$namespace\",epitaph_workload_name=~\"$workload\"";
const ON_NODE: &str = "cluster=~\"$cluster\",instance=~\"$node\"";
const OF_CLUSTER: &str = "cluster=~\"$cluster\"";
/// Why any panel can be empty.
const UNSCRAPED: &str = "Prometheus does not scrape Epitaph (chart value serviceMonitor.enabled)";
/// Where nothing else can be the reason.
const NONE: &str = "None";
/// A workload in a legend.
const WORKLOAD: &str = "{{epitaph_workload_kind}} {{k8s_namespace_name}}/{{epitaph_workload_name}}";

/// Panels under a common heading.
#[derive(Clone, Debug)]
pub struct Section {
    pub title: &'static str,
    pub panels: Vec<Panel>,
}

#[derive(Clone, Debug)]
pub struct Panel {
    pub title: &'static str,
    pub about: &'static str,
    pub view: View,
    /// Grafana's name of the unit.
    pub unit: &'static str,
    /// Of [`json::WIDTH`] columns.
    pub width: u64,
    pub queries: Vec<Query>,
    /// What an empty panel means, beside [`UNSCRAPED`]: an empty panel without a reason looks as if all were well.
    pub empty: &'static str,
    /// Alerts about the same, which have a runbook.
    pub alerts: Vec<&'static str>,
}

#[derive(Clone, Debug)]
pub enum View {
    Lines,
    Stacked,
    /// Lines, and a red line at the value where the alert fires.
    Limit(f64),
    /// The labels that are columns, and the heading of the value, if the value is shown.
    Table(Vec<String>, Option<&'static str>),
}

#[derive(Clone, Debug)]
pub struct Query {
    pub expr: String,
    /// Of a line.
    pub legend: String,
}

pub fn sections() -> Vec<Section> {
    vec![
        Section {
            title: "Workloads",
            panels: vec![
                latest(),
                latest_on_hosts(),
                by_verdict(),
                unclean_ratio(),
                out_of_memory(),
                no_reaction(),
                advice(),
                disagreements(),
            ],
        },
        Section {
            title: "Connections",
            panels: vec![connections(), stop_duration(), refusal_duration()],
        },
        Section {
            title: "Agents",
            panels: vec![agents(), probes(), lost(), spans(), not_ready(), shutdowns()],
        },
        Section {
            title: "Lost nodes",
            panels: nodes::panels(),
        },
    ]
}

fn latest() -> Panel {
    let labels = with(&workload_labels(), &["verdict", "incident"]);
    let recent = |row: Row| format!("max_over_time({}{{{SELECTED}}}[{RANGE}])", row.prometheus());
    let expr = format!(
        "1000 * max by ({}) (\n  {}\n  or {}\n)",
        labels.join(", "),
        recent(WORKLOAD_UNCLEAN),
        recent(WORKLOAD_INCIDENT)
    );
    let alerts: BTreeSet<&str> = VERDICTS
        .iter()
        .filter_map(|row| alert_of(row).map(|(alert, _)| alert))
        .collect();
    Panel {
        title: "Latest unclean terminations and incidents",
        about: "The time of each workload's last unclean termination, by verdict; and the last time when clients lost connections, the \
                kernel discarded a stop signal, or a container was stuck. The first termination of a workload is included. `epitaph \
                explain VERDICT` has the \
                meaning and the remedy; the trace of the termination has the evidence. A verdict links to the traces of the last two days \
                whose service has the workload's name. If there are no such traces, select the application's service in Jaeger: its name \
                can come from the label app.kubernetes.io/instance, or from an annotation.",
        view: View::Table(labels, Some("latest")),
        unit: "dateTimeAsIso",
        width: 14,
        queries: vec![query(expr, "")],
        empty: NONE,
        alerts: alerts.into_iter().collect(),
    }
}

fn latest_on_hosts() -> Panel {
    let labels = with(&["cluster".to_owned()], &["instance", "subject", "runtime", "verdict"]);
    let metric = HOST_UNCLEAN.prometheus();
    let expr = format!(
        "1000 * max by ({}) (max_over_time({metric}{{{ON_NODE}}}[{RANGE}]))",
        labels.join(", ")
    );
    Panel {
        title: "Latest unclean terminations without a pod",
        about: "The time of the last unclean termination of a systemd unit, or of a container of an unknown pod, on each node. The \
                selected namespaces and workloads have no effect on this table. The trace of service `epitaph` has the name of the unit or \
                container.",
        view: View::Table(labels, Some("latest")),
        unit: "dateTimeAsIso",
        width: 10,
        queries: vec![query(expr, "")],
        empty: NONE,
        alerts: vec!["EpitaphHostUncleanTermination"],
    }
}

fn by_verdict() -> Panel {
    let metric = WORKLOAD_VERDICTS.prometheus();
    Panel {
        title: "Terminations by verdict",
        about: "Terminations of pods and containers per hour, by verdict. The first termination of a workload with a verdict is missing, \
                because the series begins with that termination. The table above has the latest unclean terminations, including the first \
                one.",
        view: View::Stacked,
        unit: "suffix:/h",
        width: 12,
        queries: vec![query(
            format!("3600 * sum by (verdict) (rate({metric}{{{SELECTED}}}[{STEP}]))"),
            "{{verdict}}",
        )],
        empty: NONE,
        alerts: vec!["EpitaphUncleanRate"],
    }
}

fn unclean_ratio() -> Panel {
    let labels = workload_labels().join(", ");
    let metric = WORKLOAD_TERMINATIONS.prometheus();
    let window = duration(RATE * 60);
    let terminations = |more: &str| format!("sum by ({labels}) (increase({metric}{{{SELECTED}{more}}}[{window}]))");
    Panel {
        title: "Unclean ratio by workload",
        about: "The share of the terminations of the last hour that were unclean. A workload has a line only while it has terminations. \
                Above the red line the alert fires, if the workload had at least five terminations.",
        view: View::Limit(UNCLEAN_RATIO),
        unit: "percentunit",
        width: 12,
        queries: vec![query(
            format!("{}\n/ ({} > 0)", terminations(",unclean=\"true\""), terminations("")),
            WORKLOAD,
        )],
        empty: NONE,
        alerts: vec!["EpitaphUncleanRatio"],
    }
}

fn out_of_memory() -> Panel {
    let of_alert = VERDICTS
        .iter()
        .filter(|row| alert_of(row).is_some_and(|(alert, _)| alert == "EpitaphOutOfMemory"));
    let verdicts: Vec<&str> = of_alert.map(|row| row.headline).collect();
    let selector = format!("{{{SELECTED},verdict=~\"{}\"}}", verdicts.join("|"));
    let labels = with(&workload_labels(), &["verdict"]).join(", ");
    Panel {
        title: "Out of memory",
        about: "Terminations because of missing memory by workload, and OOM kills on each node that the container or unit survived. Both \
                are counted since the agents started: a step up is a kill, a step down is the restart of an agent.",
        view: View::Lines,
        unit: "short",
        width: 8,
        queries: vec![
            query(
                format!("sum by ({labels}) ({}{selector})", WORKLOAD_VERDICTS.prometheus()),
                &format!("{WORKLOAD}: {{{{verdict}}}}"),
            ),
            query(
                format!(
                    "sum by (cluster, instance, subject) ({}{{{ON_NODE}}}) > 0",
                    CHILD_OOM.prometheus()
                ),
                "survived by a {{subject}} on {{instance}}",
            ),
        ],
        empty: NONE,
        alerts: vec!["EpitaphOutOfMemory"],
    }
}

fn disagreements() -> Panel {
    let labels = with(&workload_labels(), &["said", "was"]).join(", ");
    Panel {
        title: "kubectl shows another exit",
        about: "Exits for which the pod's status (which kubectl shows) has another result than the kernel recorded. They are counted since \
                the agents started: a step up is an exit, a step down is the restart of an agent.",
        view: View::Lines,
        unit: "short",
        width: 24,
        queries: vec![query(
            format!("sum by ({labels}) ({}{{{SELECTED}}}) > 0", WORKLOAD_DISAGREES.prometheus()),
            &format!("{WORKLOAD}: {{{{said}}}}, was {{{{was}}}}"),
        )],
        empty: NONE,
        alerts: vec!["EpitaphStatusDisagrees"],
    }
}

fn no_reaction() -> Panel {
    let labels = workload_labels().join(", ");
    let sum = |row: Row| format!("sum by ({labels}) ({}{{{SELECTED}}})", row.prometheus());
    Panel {
        title: "Stop signals ignored, containers stuck, pods held",
        about: "Stop signals that the kernel discarded because the process had no handler, and containers that were still running long \
                after the grace period. Both are counted before the container exits, and since the agents started: a step up is an \
                incident, a step down is the restart of an agent. Held pods are pods that were still Terminating a minute after their last \
                container had exited.",
        view: View::Lines,
        unit: "short",
        width: 8,
        queries: vec![
            query(sum(WORKLOAD_IGNORED), &format!("ignored: {WORKLOAD}")),
            query(sum(WORKLOAD_STUCK), &format!("stuck: {WORKLOAD}")),
            query(sum(WORKLOAD_HELD), &format!("held: {WORKLOAD}")),
        ],
        empty: NONE,
        alerts: vec!["EpitaphStopSignalIgnored", "EpitaphStuckTerminating"],
    }
}

fn advice() -> Panel {
    let labels = with(&workload_labels(), &["advice"]);
    let expr = format!(
        "max by ({}) ({}{{{SELECTED}}})",
        labels.join(", "),
        WORKLOAD_ADVICE.prometheus()
    );
    Panel {
        title: "Advised preStop sleep and grace period",
        about: "The preStop sleep and terminationGracePeriodSeconds that the terminations of the last hour of the time range needed. A \
                workload without a row has nothing to change, or had no termination within that hour.",
        view: View::Table(labels, Some("advised value")),
        unit: "s",
        width: 8,
        queries: vec![query(expr, "")],
        empty: NONE,
        alerts: vec!["EpitaphGraceTooShort", "EpitaphPreStopOverran", "EpitaphConnectionsLost"],
    }
}

fn connections() -> Panel {
    let metric = CONNECTIONS.prometheus();
    let selector = format!("{ON_NODE},outcome=~\"refused|reset|cut|rejected\"");
    Panel {
        title: "Connections lost at terminations",
        about: "Client connections per hour that a terminating container or unit refused, reset or cut, or that were rejected before they \
                reached the container or unit. The graph is for the selected nodes; the selected namespaces have no effect. The first \
                table has the workloads.",
        view: View::Stacked,
        unit: "suffix:/h",
        width: 8,
        queries: vec![query(
            format!("3600 * sum by (outcome) (rate({metric}{{{selector}}}[{STEP}]))"),
            "{{outcome}}",
        )],
        empty: NONE,
        alerts: vec!["EpitaphConnectionsLost"],
    }
}

fn stop_duration() -> Panel {
    Panel {
        title: "From the stop signal to the exit",
        about: "How long main processes took to exit after the stop signal, over the last hour, on the selected nodes. If a line is near \
                the grace period, processes are killed, or soon will be.",
        alerts: vec!["EpitaphGraceTooShort"],
        ..quantiles(STOP_DURATION)
    }
}

fn refusal_duration() -> Panel {
    Panel {
        title: "Refusal window",
        about: "How long clients were refused after a listener had closed, over the last hour, on the selected nodes. A preStop sleep of \
                this length was missing.",
        alerts: vec!["EpitaphConnectionsLost"],
        ..quantiles(REFUSAL_DURATION)
    }
}

fn quantiles(of: Row) -> Panel {
    let window = duration(RATE * 60);
    let buckets = format!(
        "sum by (subject, le) (increase({}_bucket{{{ON_NODE}}}[{window}]))",
        of.prometheus()
    );
    let quantile = |of: &str| {
        query(
            format!("histogram_quantile({of}, {buckets})"),
            &format!("{{{{subject}}}}, quantile {of}"),
        )
    };
    Panel {
        title: "",
        about: "",
        view: View::Lines,
        unit: "s",
        width: 8,
        queries: ["0.5", "0.9", "0.99"].map(quantile).into(),
        empty: NONE,
        alerts: Vec::new(),
    }
}

fn agents() -> Panel {
    let away = format!("count({}{{{OF_CLUSTER},state=\"away\"}} == 1)", KUBERNETES_STATE.prometheus());
    let unanswered = unanswered(6 * 3600, &format!("{{{OF_CLUSTER}}}"));
    Panel {
        title: "Agents and observers",
        about: "Five numbers: agents and observers by version; agents and observers that had metrics within the last six hours and do not \
                answer Prometheus now; agents without a connection to the Kubernetes API; nodes that the observer knows, each of which \
                should have an agent; and active observers, of which each selected cluster should have one. Terminations on a node without \
                an agent are not observed.",
        view: View::Lines,
        unit: "short",
        width: 12,
        queries: vec![
            query(
                format!("count by (version) ({}{{{OF_CLUSTER}}})", BUILD.prometheus()),
                "version {{version}}",
            ),
            query(format!("count(\n  {}\n)", unanswered.replace('\n', "\n  ")), "do not answer"),
            query(away, "away from the Kubernetes API"),
            query(
                format!(
                    "sum(max by (cluster) ({}{{{OF_CLUSTER},object=\"nodes\"}}))",
                    KNOWN.prometheus()
                ),
                "nodes of the clusters",
            ),
            query(
                format!("sum({}{{{OF_CLUSTER}}})", ACTIVE.prometheus()),
                "active observers: 1 for each cluster",
            ),
        ],
        empty: NONE,
        alerts: vec![
            "EpitaphAgentDown",
            "EpitaphAgentsMissing",
            "EpitaphKubernetesAway",
            "EpitaphResourcesNotWritten",
            "EpitaphObserverMissing",
        ],
    }
}

fn probes() -> Panel {
    let labels = with(&["cluster".to_owned()], &["instance", "probe", "state"]);
    let metric = PROBE.prometheus();
    Panel {
        title: "Probes that are not active",
        about: "eBPF probes that are not active: another probe replaces the probe completely (substituted) or in part (partial), the \
                kernel does not support the probe, or the probe failed. What a failed or unsupported probe would show is not known. If a \
                probe is partial, the traffic of a container that closes a listener is `unknown`, and a clean exit has the verdict \
                `clean-exit`. Without rows, every probe of the agents that Prometheus scrapes is active. /readyz of the agent has the \
                reason.",
        view: View::Table(labels.clone(), None),
        unit: "none",
        width: 12,
        queries: vec![query(
            format!(
                "max by ({}) ({metric}{{{ON_NODE},state!=\"active\"}}) == 1",
                labels.join(", ")
            ),
            "",
        )],
        empty: NONE,
        alerts: vec!["EpitaphProbeNotActive", "EpitaphRefusedClientsUnseen"],
    }
}

fn not_ready() -> Panel {
    let labels = with(&["cluster".to_owned()], &["instance", "check", "state"]);
    let metric = NODE_READY.prometheus();
    Panel {
        title: "Nodes that would not shut down gracefully",
        about: "Checks that failed (not_ready) or could not be made (unknown). If lock or periods is not_ready, a shutdown does not wait \
                for the pods. If periods and delay are unknown, the kubelet does not answer the agent: set agent.kubelet.config of the \
                chart to the kubelet's file. If lock is unknown, the agent has no system bus (logind.enabled of the chart). `epitaph \
                doctor --only shutdown` on the node has the remedy.",
        view: View::Table(labels.clone(), None),
        unit: "none",
        width: 24,
        queries: vec![query(
            format!("max by ({}) ({metric}{{{ON_NODE},state!=\"ready\"}}) == 1", labels.join(", ")),
            "",
        )],
        empty: "None: each check holds",
        alerts: vec!["EpitaphNodeNotReadyForShutdown"],
    }
}

fn shutdowns() -> Panel {
    let labels = with(&["cluster".to_owned()], &["instance", "verdict"]);
    let last = NODE_SHUTDOWN_LAST.prometheus();
    Panel {
        title: "Last shutdowns of nodes",
        about: "The time of each node's last shutdown with each verdict, as far as the node's agent has reported it since the agent \
                started. A shutdown is reported after the next boot. `epitaph why NODE` on the node has the details.",
        view: View::Table(labels.clone(), None),
        unit: "dateTimeAsIso",
        width: 24,
        queries: vec![query(
            format!("max by ({}) ({last}{{{ON_NODE}}}) * 1000", labels.join(", ")),
            "",
        )],
        empty: "None, or the agents have no system bus (chart value logind.enabled)",
        alerts: vec!["EpitaphNodeShutdownUnclean"],
    }
}

fn lost() -> Panel {
    Panel {
        title: "Records lost, items dropped",
        about: "Kernel records that were lost (full ring buffer, a container's budget, a skipped probe), and items that agents dropped, by \
                reason. They are counted since the agents started: a step up is a loss, a step down is the restart of an agent. The \
                terminations that are affected report the loss.",
        view: View::Lines,
        unit: "short",
        width: 12,
        queries: vec![
            query(
                format!("sum by (cluster, instance, kind) ({}{{{ON_NODE}}}) > 0", LOST.prometheus()),
                "lost: {{kind}} on {{instance}}",
            ),
            query(
                format!(
                    "sum by (cluster, instance, reason) ({}{{{ON_NODE}}}) > 0",
                    DROPPED.prometheus()
                ),
                "dropped: {{reason}} on {{instance}}",
            ),
        ],
        empty: NONE,
        alerts: vec!["EpitaphRecordsLost"],
    }
}

fn spans() -> Panel {
    Panel {
        title: "Exported spans and failures",
        about: "Spans per second that the collector accepted, spans that never reached the collector, by reason, and export requests that \
                failed and were sent again.",
        view: View::Lines,
        unit: "cps",
        width: 12,
        queries: vec![
            query(
                format!(
                    "sum by (outcome) (rate({}{{{OF_CLUSTER}}}[{STEP}]))",
                    EXPORT_SPANS.prometheus()
                ),
                "spans: {{outcome}}",
            ),
            query(
                format!(
                    "sum by (signal) (rate({}{{{OF_CLUSTER}}}[{STEP}]))",
                    EXPORT_RETRIES.prometheus()
                ),
                "requests sent again: {{signal}}",
            ),
        ],
        empty: "Nothing: config.otlp.endpoint is empty",
        alerts: vec!["EpitaphNotExporting"],
    }
}

fn query(expr: String, legend: &str) -> Query {
    Query {
        expr,
        legend: legend.to_owned(),
    }
}

fn with(labels: &[String], more: &[&str]) -> Vec<String> {
    let more = more.iter().map(|&label| label.to_owned());
    labels.iter().cloned().chain(more).collect()
}

#[cfg(test)]
mod tests;
