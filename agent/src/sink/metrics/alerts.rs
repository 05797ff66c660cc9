//! Alert rules for Prometheus, made from the table of verdicts and the table of metrics: `deploy/alerts`, and a page for each alert in
//! `docs/runbooks`.
//!
//! A rule about terminations compares the time of the latest one with the present: the first termination of a workload fires, scraped
//! before or not; a restart of the agent, a gap in the scrapes or a rollout of the DaemonSet does not. Rates need counters.

mod disagrees;
mod epitaphs;
mod missing;
mod nodes;
mod pages;
mod refused;
mod shutdowns;
mod yaml;

use epitaph_core::termination::OomRole;
use epitaph_core::verdict::table::{Row as VerdictRow, TABLE as VERDICTS};
use epitaph_core::verdict::{Exit, Severity, TrafficAxis};

use super::observer::{
    ACTIVE, EVICTIONS_HELD, HELD_PODS, KNOWN, LOST_NODE, LOST_NODE_PODS, LOST_NODE_VOLUMES, OUT_OF_SERVICE, RUN_TWICE,
};
use super::table::{
    BUILD, CHILD_OOM, EXPORT_LOGS, EXPORT_RETRIES, EXPORT_SPANS, HOST_UNCLEAN, KUBERNETES_EPITAPHS, KUBERNETES_STATE, LOST,
    NODE_READY, PROBE, REFUSED_CLIENTS, Row, WORKLOAD_ADVICE, WORKLOAD_DISAGREES, WORKLOAD_INCIDENT, WORKLOAD_TERMINATIONS,
    WORKLOAD_UNCLEAN,
};

pub use pages::{Page, names, page, pages};
pub use yaml::{prometheus_rule, rule_file};

/// How long after a termination its alert fires, in minutes.
const RECENT: u64 = 15;
/// How much longer the alert is kept, so that a restart of the agent does not end it before it was sent.
const KEPT: u64 = 5;
/// How long a state must last, in minutes: longer than a rollout of the DaemonSet takes on one node.
const LASTING: u64 = 10;
/// How long a target that was scraped is expected, in minutes.
const SCRAPED: u64 = 6 * 60;
/// The window of rates, in minutes.
pub(super) const RATE: u64 = 60;
/// The share of unclean terminations from which the alert fires.
pub(super) const UNCLEAN_RATIO: f64 = 0.25;

/// Rules that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: &'static str,
    pub rules: Vec<Rule>,
}

/// One alert rule. Durations are in seconds; 0: none.
#[derive(Clone, Debug)]
pub struct Rule {
    pub alert: &'static str,
    pub expr: String,
    pub lasting: u64,
    pub kept: u64,
    pub severity: &'static str,
    /// The verdict, where the rule is about one.
    pub verdict: Option<&'static str>,
    /// The outcome of exports, where the expression has none: two rules of one alert and one severity need different labels.
    pub outcome: Option<&'static str>,
    pub summary: String,
    pub description: String,
}

/// All rules. `minute`: its length in seconds, 60 but in tests that cannot wait.
pub fn groups(minute: u64) -> Vec<Group> {
    let rules = Rules { minute };
    let workloads = VERDICTS.iter().filter_map(|row| rules.verdict(row)).collect();
    vec![
        Group {
            name: "epitaph-workloads",
            rules: workloads,
        },
        Group {
            name: "epitaph-rates",
            rules: vec![rules.rate(), rules.ratio(), disagrees::status(&rules)],
        },
        Group {
            name: "epitaph-hosts",
            rules: vec![
                rules.host(Severity::Critical),
                rules.host(Severity::Warning),
                rules.child_oom(),
                rules.outsider_oom(),
            ],
        },
        Group {
            name: "epitaph-agents",
            rules: vec![
                rules.probe("failed", "warning"),
                rules.probe("unsupported", "info"),
                refused::unseen(&rules),
                rules.records_lost(),
                rules.exports_dropped(),
                rules.export_failing(),
                rules.agent_down(),
                missing::agents(&rules),
                missing::all(&rules),
                missing::observer(&rules),
                rules.kubernetes_away(),
                epitaphs::not_written(&rules),
                rules.node_not_ready(),
            ]
            .into_iter()
            .chain(shutdowns::unclean(&rules))
            .collect(),
        },
        Group {
            name: "epitaph-nodes",
            rules: nodes::rules(&rules),
        },
    ]
}

/// The alert of an unclean verdict, and the incident that shows the same: before the termination, or beside another verdict.
pub fn alert_of(row: &VerdictRow) -> Option<(&'static str, Option<&'static str>)> {
    // No wildcard: a new verdict does not compile without its alert.
    Some(match row.exit {
        Exit::OomKilled | Exit::OomChild => ("EpitaphOutOfMemory", None),
        Exit::IgnoredStopSignal => ("EpitaphStopSignalIgnored", Some("stop-signal-ignored")),
        Exit::BlockedStopSignal => ("EpitaphStopSignalIgnored", None),
        Exit::KilledAfterGrace | Exit::SidecarStarved => ("EpitaphGraceTooShort", None),
        Exit::PrestopOverran => ("EpitaphPreStopOverran", None),
        Exit::Stuck => ("EpitaphStuckTerminating", Some("stuck")),
        Exit::Crashed
        | Exit::KilledByOther
        | Exit::RuntimeFailed
        | Exit::ForceKilled
        | Exit::DefaultAction
        | Exit::PrestopFailed
        | Exit::NonzeroExit
        | Exit::TruncatedByShutdown => ("EpitaphUncleanTermination", None),
        Exit::Clean => match row.traffic.first()? {
            TrafficAxis::Cut => ("EpitaphConnectionsLost", Some("connections-cut")),
            TrafficAxis::Reset => ("EpitaphConnectionsLost", Some("connections-reset")),
            TrafficAxis::Refused => ("EpitaphConnectionsLost", Some("connections-refused")),
            TrafficAxis::ProxyRejected => ("EpitaphConnectionsLost", Some("connections-rejected")),
            TrafficAxis::RefusedNewPeers => ("EpitaphConnectionsLost", None),
            TrafficAxis::Undecided | TrafficAxis::Quiet | TrafficAxis::Unknown => return None,
        },
        Exit::Unknown => return None,
    })
}

/// Where the sentence and the evidence are.
fn evidence(row: &VerdictRow) -> String {
    if row.headline == "stuck" {
        return "The Event TerminationStuck on the pod has the evidence: kubectl --namespace {{ $labels.k8s_namespace_name }} get events \
                --field-selector reason=TerminationStuck. A trace follows when the container exits, with the verdict of that exit."
            .into();
    }
    format!(
        "The trace of the termination has the sentence and the evidence: search the tags epitaph.verdict={} and \
         k8s.namespace.name={{{{ $labels.k8s_namespace_name }}}}.",
        row.headline
    )
}

/// `Deployment shop/cart`.
const WORKLOAD: &str =
    "{{ $labels.epitaph_workload_kind }} {{ $labels.k8s_namespace_name }}/{{ $labels.epitaph_workload_name }}";

/// OOM kills of other processes that hit a part of the program (`!~`), or none (`=~`).
fn child_oom(operator: &str) -> String {
    let outside = OomRole::ALL.into_iter().filter(|role| role.is_from_outside());
    let outside: Vec<&str> = outside.map(OomRole::name).collect();
    format!("{}{{role{operator}\"{}\"}}", CHILD_OOM.prometheus(), outside.join("|"))
}

struct Rules {
    minute: u64,
}

impl Rules {
    fn verdict(&self, row: &VerdictRow) -> Option<Rule> {
        let (alert, incident) = alert_of(row)?;
        let mut latest = format!("{}{{verdict=\"{}\"}}", WORKLOAD_UNCLEAN.prometheus(), row.headline);
        if let Some(incident) = incident {
            latest += &format!("\n  or {}{{incident=\"{incident}\"}}", WORKLOAD_INCIDENT.prometheus());
        }
        let advice = match alert {
            "EpitaphGraceTooShort" | "EpitaphPreStopOverran" => advised("grace-longer", "terminationGracePeriodSeconds"),
            "EpitaphConnectionsLost" => advised("pre-stop-sleep-longer", "preStop sleep"),
            _ => String::new(),
        };
        Some(Rule {
            expr: self.within(&workload_labels(), &latest),
            kept: self.seconds(KEPT),
            severity: severity(row.severity),
            verdict: Some(row.headline),
            ..rule(
                alert,
                format!("{WORKLOAD}: {}", row.headline),
                format!("{} {}{advice} {}", row.meaning, row.remedy, evidence(row)),
            )
        })
    }

    fn rate(&self) -> Rule {
        Rule {
            expr: format!("{} > 5", self.terminations("unclean=\"true\"")),
            severity: "critical",
            ..rule(
                "EpitaphUncleanRate",
                format!("{WORKLOAD}: {{{{ $value | printf \"%.0f\" }}}} unclean terminations within an hour"),
                "The workload had more than five unclean terminations within an hour, so this is not a single accident. The alerts by \
                 verdict, or the metric epitaph_workload_verdicts_total, show which verdict repeats."
                    .into(),
            )
        }
    }

    fn ratio(&self) -> Rule {
        let all = self.terminations("");
        let unclean = self.terminations("unclean=\"true\"");
        Rule {
            expr: format!("{unclean}\n/ {all} > {UNCLEAN_RATIO}\nand {all} > 4"),
            severity: "warning",
            ..rule(
                "EpitaphUncleanRatio",
                format!("{WORKLOAD}: {{{{ $value | humanizePercentage }}}} of the terminations of the last hour were unclean"),
                "More than a quarter of the workload's terminations of the last hour were unclean: most likely every rollout, \
                 scale-down and drain of the workload loses work. The alerts by verdict show what to change."
                    .into(),
            )
        }
    }

    fn host(&self, of: Severity) -> Rule {
        let rows = VERDICTS.iter().filter(|row| row.unclean && row.severity == of);
        let verdicts: Vec<&str> = rows.map(|row| row.headline).collect();
        let latest = format!("{}{{verdict=~\"{}\"}}", HOST_UNCLEAN.prometheus(), verdicts.join("|"));
        Rule {
            expr: self.within(&["cluster", "instance", "subject", "runtime", "verdict"].map(str::to_owned), &latest),
            kept: self.seconds(KEPT),
            severity: severity(of),
            ..rule(
                "EpitaphHostUncleanTermination",
                "A {{ $labels.subject }} ({{ $labels.runtime }}) on {{ $labels.instance }}: {{ $labels.verdict }}".into(),
                "A systemd unit, or a container of an unknown pod, had an unclean termination. `epitaph explain \
                 {{ $labels.verdict }}` has the meaning and the remedy; the trace of service `epitaph` on this host has the name, \
                 the sentence and the evidence: search the tag epitaph.verdict={{ $labels.verdict }}."
                    .into(),
            )
        }
    }

    fn child_oom(&self) -> Rule {
        Rule {
            expr: self.increase(
                &["cluster", "instance", "subject", "role"],
                &child_oom("!~"),
            ),
            kept: self.seconds(KEPT),
            severity: "warning",
            ..rule(
                "EpitaphOutOfMemory",
                "A process of a {{ $labels.subject }} on {{ $labels.instance }} was killed because of memory; the main process \
                 continues".into(),
                "The OOM killer killed a process other than the main process, and the container or unit kept running without this process. \
                 With the role `unattributed` the process may have come from outside, for example by an exec probe or `kubectl exec`. \
                 Raise the memory \
                 limit or run fewer workers. The agent's log and the kernel's log name the process."
                    .into(),
            )
        }
    }

    /// What was lost is a probe, a hook or a person's session, and no part of the program: not the alarm of the program's own.
    fn outsider_oom(&self) -> Rule {
        Rule {
            expr: self.increase(
                &["cluster", "instance", "subject", "role"],
                &child_oom("=~"),
            ),
            kept: self.seconds(KEPT),
            severity: "info",
            ..rule(
                "EpitaphOutOfMemory",
                "A process from outside of a {{ $labels.subject }} on {{ $labels.instance }} was killed because of memory: \
                 {{ $labels.role }}"
                    .into(),
                "The OOM killer killed a process that is not a part of the program: the kubelet's exec probe (exec-probe), the preStop hook \
                 (pre-stop), an exec session (exec-session), one of these three (from-outside), or the container runtime's own process \
                 (runtime). The memory of such a process counts against the container's memory limit. A probe that fails for this reason \
                 can restart the container: make the probe smaller, or use an \
                 HTTP or gRPC probe, or raise the memory limit. The kernel's log names the process."
                    .into(),
            )
        }
    }

    fn probe(&self, state: &str, severity: &'static str) -> Rule {
        Rule {
            expr: format!(
                "max by (cluster, instance, probe) ({}{{state=\"{state}\"}}) == 1",
                PROBE.prometheus()
            ),
            lasting: self.seconds(LASTING),
            severity,
            ..rule(
                "EpitaphProbeNotActive",
                format!("The agent {{{{ $labels.instance }}}} observes without the probe {{{{ $labels.probe }}}}: {state}"),
                "Verdicts on this node lack the evidence of this probe, and are `unknown` if they need it. /readyz of the agent has the \
                 reason; `epitaph doctor` in the agent's pod has the remedy."
                    .into(),
            )
        }
    }

    fn records_lost(&self) -> Rule {
        Rule {
            expr: self.increase(&["cluster", "instance", "kind"], &LOST.prometheus()),
            severity: "warning",
            ..rule(
                "EpitaphRecordsLost",
                "The agent {{ $labels.instance }} lost {{ $value | printf \"%.0f\" }} kernel records of kind {{ $labels.kind }}".into(),
                "The ring buffer was full, one container exceeded its budget of records, or the kernel skipped an eBPF probe. Verdicts \
                 that need these records are `unknown`. If all terminations with this verdict are from one container, look at its \
                 processes; otherwise raise kernel.ring_bytes (EPITAPH_RING_BYTES), or give the agent more CPU."
                    .into(),
            )
        }
    }

    /// Of spans, or of log records only.
    fn exports_dropped(&self) -> Rule {
        let dropped = [EXPORT_SPANS, EXPORT_LOGS].map(|row| {
            let dropped = format!("{}{{outcome!=\"exported\"}}", row.prometheus());
            self.increase(&["cluster", "instance", "outcome"], &dropped)
        });
        Rule {
            expr: dropped.join("\nor "),
            severity: "warning",
            ..rule(
                "EpitaphNotExporting",
                "The agent {{ $labels.instance }} dropped {{ $value | printf \"%.0f\" }} spans or log records: {{ $labels.outcome }}".into(),
                "Traces or log records of terminations are missing or incomplete at the collector; metrics and Kubernetes Events are \
                 complete. queue_full, journal_full: the collector was away for too long, and the queue or the journal was full. rejected: \
                 the agent's log has the collector's answer; the collector may have no pipeline for logs. shutdown: the agent ended before \
                 the \
                 collector answered. journal_unreadable: the trace on disk is damaged."
                    .into(),
            )
        }
    }

    fn export_failing(&self) -> Rule {
        let window = duration(self.seconds(LASTING));
        let retries = EXPORT_RETRIES.prometheus();
        // Each for itself: a collector can accept log records while its pipeline of traces is broken.
        let failing = [("traces", EXPORT_SPANS), ("logs", EXPORT_LOGS)].map(|(signal, row)| {
            let retried = format!("increase({retries}{{signal=\"{signal}\"}}[{window}])");
            let exported = format!("increase({}{{outcome=\"exported\"}}[{window}])", row.prometheus());
            format!("(sum by (cluster, instance) ({retried}) > 0\n  unless sum by (cluster, instance) ({exported}) > 0)")
        });
        Rule {
            expr: failing.join("\nor "),
            lasting: self.seconds(LASTING),
            severity: "warning",
            outcome: Some("unreachable"),
            ..rule(
                "EpitaphNotExporting",
                "The agent {{ $labels.instance }} cannot send traces or log records to the collector".into(),
                "In the last minutes every export request for traces, or every export request for log records, failed. Traces and log \
                 records wait on disk until journal.max_bytes is reached; without a journal, they wait in a queue that drops the oldest. \
                 If only one of the two fails, look at the collector's pipeline for it. The agent's log has the error and its remedy: \
                 address, scheme, certificate, or a NetworkPolicy."
                    .into(),
            )
        }
    }

    fn agent_down(&self) -> Rule {
        Rule {
            expr: unanswered(self.seconds(SCRAPED), ""),
            lasting: self.seconds(LASTING),
            severity: "critical",
            ..rule(
                "EpitaphAgentDown",
                "Epitaph on {{ $labels.instance }} does not answer Prometheus".into(),
                "The target had Epitaph's metrics within the last six hours and cannot be scraped now: terminations on this node are \
                 not observed. Look at the pod's or unit's state and log, and at NetworkPolicies for the port of the metrics."
                    .into(),
            )
        }
    }

    fn kubernetes_away(&self) -> Rule {
        Rule {
            expr: format!(
                "max by (cluster, instance) ({}{{state=\"away\"}}) == 1",
                KUBERNETES_STATE.prometheus()
            ),
            lasting: self.seconds(LASTING),
            severity: "warning",
            ..rule(
                "EpitaphKubernetesAway",
                "The agent {{ $labels.instance }} has no connection to the Kubernetes API".into(),
                "Terminations of pods on this node are reported late, or without workload, cause and grace period, and so without \
                 the alerts by workload. /readyz of the agent has the reason: RBAC, network, certificate."
                    .into(),
            )
        }
    }

    /// A check that could not be made is not an alert.
    fn node_not_ready(&self) -> Rule {
        Rule {
            expr: format!(
                "max by (cluster, instance, check) ({}{{state=\"not_ready\"}}) == 1",
                NODE_READY.prometheus()
            ),
            lasting: self.seconds(LASTING),
            severity: "warning",
            ..rule(
                "EpitaphNodeNotReadyForShutdown",
                "The node of {{ $labels.instance }} would not shut its pods down gracefully: {{ $labels.check }}".into(),
                "A shutdown or reboot of this node does not give its pods their full grace periods. periods: the kubelet has \
                 no shutdownGracePeriod. delay: logind's InhibitDelayMaxSec is shorter than shutdownGracePeriod. lock: the kubelet holds \
                 no delay lock, usually because of periods or delay; if the state of periods is unknown, set \
                 agent.kubelet.config. `epitaph doctor`, run as root on the node itself, names the file and the remedy."
                    .into(),
            )
        }
    }

    /// The latest of these times is recent.
    fn within(&self, labels: &[String], latest: &str) -> String {
        let seconds = self.seconds(RECENT);
        format!("time() - max by ({}) (\n  {latest}\n) < {seconds}", labels.join(", "))
    }

    fn increase(&self, labels: &[&str], counter: &str) -> String {
        let window = duration(self.seconds(RECENT));
        format!("sum by ({}) (increase({counter}[{window}])) > 0", labels.join(", "))
    }

    fn terminations(&self, selector: &str) -> String {
        let window = duration(self.seconds(RATE));
        let labels = workload_labels().join(", ");
        format!(
            "sum by ({labels}) (increase({}{{{selector}}}[{window}]))",
            WORKLOAD_TERMINATIONS.prometheus()
        )
    }

    const fn seconds(&self, minutes: u64) -> u64 {
        minutes * self.minute
    }
}

fn rule(alert: &'static str, summary: String, description: String) -> Rule {
    Rule {
        alert,
        expr: String::new(),
        lasting: 0,
        kept: 0,
        severity: "warning",
        verdict: None,
        outcome: None,
        summary,
        description,
    }
}

/// `cluster`, which a Prometheus of several clusters adds, and the labels of a workload. A node's Prometheus labels are left out: an
/// alert is about the workload.
pub(super) fn workload_labels() -> Vec<String> {
    let of_workload = WORKLOAD_UNCLEAN.labels.iter().map(|(name, _)| name.replace('.', "_"));
    let of_workload = of_workload.filter(|name| name != "verdict");
    std::iter::once("cluster".to_owned()).chain(of_workload).collect()
}

/// Agents that do not answer Prometheus, and had metrics within these seconds.
pub(super) fn unanswered(within: u64, selector: &str) -> String {
    format!(
        "up{selector} == 0\nand on (job, instance) last_over_time({}[{}])",
        BUILD.prometheus(),
        duration(within)
    )
}

/// The measured value of a setting, where the agents have one.
fn advised(kind: &str, setting: &str) -> String {
    let same = workload_labels().into_iter().skip(1);
    let selectors: Vec<String> = same.map(|label| format!("{label}=%q")).collect();
    let values: Vec<String> = workload_labels()
        .into_iter()
        .skip(1)
        .map(|label| format!("$labels.{label}"))
        .collect();
    format!(
        "{{{{ range query (printf `max({}{{advice=\"{kind}\",{}}})` {}) }}}} Advised by measurement: {setting} of {{{{ .Value }}}} \
         s.{{{{ end }}}}",
        WORKLOAD_ADVICE.prometheus(),
        selectors.join(","),
        values.join(" ")
    )
}

const fn severity(of: Severity) -> &'static str {
    match of {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

/// As Prometheus writes durations.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// The metrics that the rules use.
pub fn used() -> [Row; 26] {
    [
        ACTIVE,
        KNOWN,
        LOST_NODE,
        LOST_NODE_PODS,
        RUN_TWICE,
        LOST_NODE_VOLUMES,
        OUT_OF_SERVICE,
        HELD_PODS,
        EVICTIONS_HELD,
        BUILD,
        CHILD_OOM,
        EXPORT_LOGS,
        EXPORT_RETRIES,
        EXPORT_SPANS,
        HOST_UNCLEAN,
        KUBERNETES_EPITAPHS,
        KUBERNETES_STATE,
        LOST,
        NODE_READY,
        PROBE,
        REFUSED_CLIENTS,
        WORKLOAD_ADVICE,
        WORKLOAD_DISAGREES,
        WORKLOAD_INCIDENT,
        WORKLOAD_TERMINATIONS,
        WORKLOAD_UNCLEAN,
    ]
}

#[cfg(test)]
mod tests;
