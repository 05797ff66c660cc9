//! The runbooks: one page for each alert. What a verdict means, what proves it and what to change are the table's words.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use epitaph_core::verdict::table::{Row as VerdictRow, TABLE as VERDICTS};

use super::{Group, alert_of, disagrees, epitaphs, groups, missing, nodes, refused, severity, shutdowns};

/// The text of one page that no table has.
pub struct Page {
    pub alert: &'static str,
    pub means: &'static str,
    pub proves: &'static str,
    /// Steps.
    pub to_do: &'static [&'static str],
    pub silence: &'static str,
}

/// Where the evidence of an alert about a workload is.
const IN_THE_TRACE: &str = "The trace of the termination. Its root span, `pod.termination VERDICT` or `container.stop VERDICT`, has the \
                            sentence, the remedy and the evidence. In Jaeger, select the workload's *Service*, enter \
                            `epitaph.unclean=true` in *Tags*, and press *Find Traces*. Without Jaeger, run `kubectl -n NAMESPACE get \
                            events --field-selector reason=UncleanTermination`.";

const PAGES: [Page; 16] = [
    Page {
        alert: "EpitaphUncleanTermination",
        means: "A pod or container of the workload terminated in a way that loses work, and no other alert covers its verdict.",
        proves: IN_THE_TRACE,
        to_do: &[
            "Read the sentence and the remedy in the trace: they name the signal, its sender, and the exit code.",
            "Find the verdict below and change what its remedy names.",
        ],
        silence: "While a known fault waits for its fix: silence the workload and the label `verdict`. For an exit code that means \
                  success, declare the code in the pod's annotation `epitaph.dev/expected-exit-codes` instead.",
    },
    Page {
        alert: "EpitaphOutOfMemory",
        means: "Memory ran out. If the alert has the label `verdict`, the container terminated. Without this label, the main process \
                survived the OOM kill of another process, and the alert names the node and the victim's role. With severity info, the \
                victim was not a part of the program: it was the kubelet's exec probe, the preStop hook, an exec session, one of these \
                three (`from-outside`), or the container runtime's own process. With `role=\"unattributed\"` (severity warning), the \
                victim may be a part of the program, or may have come from outside.",
        proves: IN_THE_TRACE,
        to_do: &[
            "Compare the memory limit in the span's attributes with the workload's usage before the kill.",
            "Raise the memory limit, or reduce the need: heap size, caches, number of workers.",
            "If the node ran out of memory although the container had not reached its limit, look for pods without memory requests on the \
             node.",
            "`role=\"exec-probe\"`: a probe counts against the container's limit. Make the probe's command smaller, use an HTTP or gRPC \
             probe, or raise the limit: a probe that fails because of memory restarts the container.",
        ],
        silence: "Never for long: every OOM kill drops the requests in flight.",
    },
    Page {
        alert: "EpitaphStopSignalIgnored",
        means: "The stop signal had no effect, so the container runs until the grace period ends, and is then killed. The alert fires when \
                the kernel discards the signal, before the kill.",
        proves: IN_THE_TRACE,
        to_do: &[
            "Find out which process is PID 1 of the container: the sentence names the process.",
            "If PID 1 is a shell, start the program with `exec`. If PID 1 is another program without a handler, run tini or dumb-init as \
             PID 1, or install a handler.",
            "If the image's STOPSIGNAL is not the signal that the program handles, set the right signal.",
        ],
        silence: "Only for a workload that holds no connections and no state: each of its terminations takes the whole grace period.",
    },
    Page {
        alert: "EpitaphGraceTooShort",
        means: "The process was shutting down when the grace period ended, and was killed.",
        proves: IN_THE_TRACE,
        to_do: &[
            "If `epitaph_workload_grace_cut_short_total` of the workload has increased, the pod's spec has a longer grace period than the \
             pod got. Change the setting of the program that deletes or evicts the pod (`--grace-period` of `kubectl drain`, \
             `--max-graceful-termination-sec` of the cluster \
             autoscaler, `terminationGracePeriod` of Karpenter's NodePool); the sentence names who asked for the shorter grace period, if \
             that is known. docs/faq.md, *Why \
             was a container killed before its terminationGracePeriodSeconds had ended?*, lists everything that can shorten a grace period.",
            "Otherwise set terminationGracePeriodSeconds to the advised value: the alert's description and the metric \
             `epitaph_workload_advice_seconds{advice=\"grace-longer\"}` have the value.",
            "A sidecar that was killed needs the main containers to finish earlier, or a longer grace period.",
            "If the shutdown has no upper bound (long polls, queues), bound the shutdown inside the program.",
        ],
        silence: "While the new grace period is being rolled out: the old pods still terminate with the old grace period.",
    },
    Page {
        alert: "EpitaphPreStopOverran",
        means: "The preStop hook used up the grace period, so the main process had only about two seconds.",
        proves: "The span `preStop` of the trace: the hook ran until the grace period had (nearly) ended. The sentence has the hook's time \
                 and the grace period.",
        to_do: &[
            "Shorten the hook: a `sleep` must be shorter than the grace period minus the time of the shutdown.",
            "Or raise terminationGracePeriodSeconds to more than the hook and the shutdown need together.",
            "A hook that hangs often waits for something that is already gone: give the hook's command a timeout.",
        ],
        silence: "While the corrected hook is being rolled out.",
    },
    Page {
        alert: "EpitaphStuckTerminating",
        means: "A container of a deleted pod still runs long after the grace period. The pod stays `Terminating`, its volumes stay \
                attached, and a StatefulSet cannot start the replacement.",
        proves: "The Event `TerminationStuck` on the pod, and the container's processes on the node. The trace follows when the container \
                 exits.",
        to_do: &[
            "If the pod has the Event `TerminationHeld`, its main processes have exited: the Event names the layer that holds the pod, and \
             `epitaph explain held-by-HOLDER` has the next step.",
            "`kubectl describe pod` shows the node. Check on the node whether the kubelet runs and whether the container runtime answers.",
            "A process in state D (`ps -eo pid,stat,wchan,cmd`) waits for a disk or a network mount: repair or unmount this disk or mount.",
            "Delete with `--force` only when the processes are gone: otherwise two instances may write the same volume.",
        ],
        silence: "While a node is being repaired: silence the workload for the time of the repair.",
    },
    Page {
        alert: "EpitaphConnectionsLost",
        means: "Clients lost connections while a pod of the workload terminated, whatever the verdict of the termination. The label \
                `verdict` shows how the connections were lost: cut, reset, refused or rejected.",
        proves: "The spans `cut connections`, `reset connections`, `refused connections` and `rejected connections` of the trace have the \
                 number of lost connections, and the time of the first and of the last one. The metric \
                 `epitaph_workload_connections_total` has the sums.",
        to_do: &[
            "Refused: clients still connected after the listener had closed. Add a preStop sleep of the advised length (the alert's \
             description, `epitaph_workload_advice_seconds{advice=\"pre-stop-sleep-longer\"}`).",
            "Reset: serve the accept queue and read all data before closing.",
            "Cut: finish the requests in flight before the exit, and give the shutdown enough time.",
            "Rejected: find the NetworkPolicy or proxy rule that acted before the process exited.",
        ],
        silence: "For workloads whose clients retry by themselves, such as message brokers: silence `verdict=\"refused-connections\"` \
                  for these workloads.",
    },
    Page {
        alert: "EpitaphUncleanRate",
        means: "The workload had more than five unclean terminations in an hour, on all nodes together.",
        proves: "`sum by (verdict) (increase(epitaph_workload_verdicts_total{k8s_namespace_name=\"NAMESPACE\",epitaph_workload_name=\"\
                 NAME\"}[1h]))` shows which verdict repeats.",
        to_do: &[
            "If a container is in a crash loop: read the runbook of the alert that has the verdict, and `kubectl logs --previous`.",
            "If the unclean terminations began with a rollout: roll back.",
        ],
        silence: "During load tests and chaos experiments on the workload.",
    },
    Page {
        alert: "EpitaphUncleanRatio",
        means: "The workload had five or more terminations in an hour, and more than a quarter of these were unclean.",
        proves: "The metric `epitaph_workload_terminations_total`, by the label `unclean`.",
        to_do: &[
            "Usually all terminations of a workload have the same fault in the shutdown: fix what the alert that has the verdict names.",
            "Check the change with one `kubectl rollout restart`: the new pods' terminations must be clean.",
        ],
        silence: "While the corrected version is being rolled out: the old pods still terminate unclean.",
    },
    Page {
        alert: "EpitaphHostUncleanTermination",
        means: "A systemd unit, or a container of an unknown pod, had an unclean termination.",
        proves: "The trace of service `epitaph` on that host. `epitaph watch` on the host shows new terminations live. For a unit, \
                 `journalctl -u UNIT` has its log.",
        to_do: &[
            "Read the sentence in the trace; find the verdict with `epitaph explain VERDICT`.",
            "If a container on a Kubernetes node is reported without its pod, the agent had no connection to the API at that time: see \
             EpitaphKubernetesAway.",
        ],
        silence: "If a unit fails by design (a oneshot unit that reports its result by exit code): silence the host's alert by `instance` \
                  and `verdict`.",
    },
    Page {
        alert: "EpitaphProbeNotActive",
        means: "One of the agent's eBPF probes is not attached, so the evidence of this probe is missing. A verdict that needs the probe \
                is `unknown`, not clean. With severity info, the kernel does not offer what the probe needs. With severity warning, the \
                probe failed.",
        proves: "`/readyz` of the agent names the probe and the reason.",
        to_do: &[
            "Run `epitaph doctor` in the agent's pod of that node (docs/kubernetes.md has the command), or on the host: the output has a \
             remedy for each finding.",
            "If the probe failed with a permission error, a capability is missing: see `docs/privileges.md`.",
            "If the probe is unsupported: `docs/kernels.md` lists what each kernel supports.",
        ],
        silence: "With severity info: permanently by `instance`, if the kernel of the node will not be upgraded.",
    },
    Page {
        alert: "EpitaphRecordsLost",
        means: "The kernel produced records faster than the agent read them, one container exceeded its budget of records, or the \
                kernel skipped a probe. The agent knows which kind of records was lost. It judges terminations of that time as `unknown` \
                if the lost records could have changed the verdict.",
        proves: "The metric `epitaph_records_lost_total`, by the label `kind`.",
        to_do: &[
            "If the terminations with the verdict `unknown` are all of one container, look at its processes: a container that \
             produces more records than its budget loses only its own records, and a larger buffer does not help.",
            "Otherwise raise `kernel.ring_bytes` (EPITAPH_RING_BYTES), by default 8 MiB.",
            "Give the agent's pod a higher CPU request: an agent that is not scheduled cannot read.",
        ],
        silence: "During load tests of the node.",
    },
    Page {
        alert: "EpitaphNotExporting",
        means: "Traces or log records do not reach the collector: either all requests for traces, or all requests for log records, fail \
                (the label `outcome` is `unreachable`); or spans or log records were dropped (the label `outcome` has the reason).",
        proves: "The metrics `epitaph_export_spans_total` and `epitaph_export_logs_total`, by the label `outcome`, and \
                 `epitaph_export_retries_total`; the agent's \
                 log has the error of the last request, and a remedy.",
        to_do: &[
            "`unreachable`: check address, scheme and port of the collector (`otlp.endpoint`): 4317 is gRPC, 4318 is HTTP.",
            "Check the collector itself: its own metrics, its memory limiter, its log.",
            "`queue_full`, `journal_full`: the collector was away for too long. The terminations of that time are in metrics and Events; \
             `epitaph list` shows those that are still in the journal.",
            "`journal_unreadable`: a trace on the agent's disk is damaged. `shutdown`: the agent ended before the collector answered.",
        ],
        silence: "During maintenance of the collector.",
    },
    Page {
        alert: "EpitaphAgentDown",
        means: "Prometheus cannot scrape an agent or observer that was there within the last six hours. Terminations on the node are not \
                observed while no agent runs.",
        proves: "*Status > Target health* in Prometheus has the error of the scrape.",
        to_do: &[
            "`kubectl -n epitaph get pods -o wide`, then `kubectl -n epitaph logs POD --previous`: an error at the start is logged with \
             its remedy.",
            "If the pod runs and is ready: a NetworkPolicy or a firewall blocks port 9464.",
            "If the pod's node is not ready (`kubectl get nodes`): see EpitaphNodeLost.",
        ],
        silence: "For nodes that are shut down on purpose but stay in Prometheus' configuration.",
    },
    Page {
        alert: "EpitaphKubernetesAway",
        means: "The agent runs without the Kubernetes API: terminations are reported late, or as containers without a pod.",
        proves: "`/readyz` of the agent, and the metric `epitaph_kubernetes_requests_total`, by the label `outcome`.",
        to_do: &[
            "`forbidden`: apply the agent's ClusterRole and ClusterRoleBinding again (`docs/privileges.md` has the reason for each rule).",
            "`failed`: check the network path from the node to the API server: DNS, NetworkPolicy, certificates.",
        ],
        silence: "During an upgrade of the control plane that makes the API unavailable for more than ten minutes.",
    },
    Page {
        alert: "EpitaphNodeNotReadyForShutdown",
        means: "Graceful node shutdown does not work on this node: a shutdown or reboot does not wait for its pods. By default, Kubernetes \
                has no graceful node shutdown.",
        proves: "The metric `epitaph_node_shutdown_ready{state=\"not_ready\"}`, by the label `check`. The check `periods` is made from the \
                 kubelet's configuration (the kubelet's own answer, or the file of `agent.kubelet.config`), the check `lock` from logind, \
                 and the check `delay` from both. `epitaph doctor --only shutdown` on the node shows the files and the values. A check \
                 that could not be \
                 made is `unknown` and causes no alert.",
        to_do: &[
            "Run `epitaph doctor --only shutdown` as root on the node itself, with the program from a release's archive, or the program \
             that `cargo xtask build` makes, if Epitaph is not installed on the node. The output has a remedy for each finding.",
            "`periods`: set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and restart the kubelet.",
            "`delay`: a file of logind.conf.d sorts after the kubelet's 99-kubelet.conf (on Debian and Ubuntu \
             unattended-upgrades-logind-maxdelay.conf): hide it with a link to /dev/null of the same name in /etc/systemd/logind.conf.d, \
             then reload logind and restart the kubelet.",
            "`lock`, if `periods` is unknown: most likely the kubelet has no grace periods, which is the default. Use the remedy for \
             `periods`. To be sure, set the chart value `agent.kubelet.config` to the kubelet's file.",
            "`lock`, if `periods` is ready: restart the kubelet, because the kubelet does not repeat a failed start of its shutdown \
             manager.",
            "Until then, drain the node before a shutdown.",
        ],
        silence: "While the node is drained for its repair.",
    },
];

pub(super) fn all() -> impl Iterator<Item = &'static Page> {
    PAGES
        .iter()
        .chain([&disagrees::PAGE, &refused::PAGE, &epitaphs::PAGE])
        .chain(&missing::PAGES)
        .chain(&nodes::PAGES)
        .chain(&shutdowns::PAGES)
}

/// Of the alert with this name.
pub fn page(alert: &str) -> Option<&'static Page> {
    all().find(|page| page.alert == alert)
}

/// Of every alert.
pub fn names<'a>() -> impl Iterator<Item = &'a str> {
    all().map(|page| page.alert)
}

/// Each alert's page as Markdown, by its name, and the list of all as `README`.
pub fn pages() -> Vec<(&'static str, String)> {
    let groups = groups(60);
    let mut out: Vec<_> = all().map(|page| (page.alert, markdown(page, &groups))).collect();
    out.push(("README", list(&groups)));
    out
}

fn markdown(page: &Page, groups: &[Group]) -> String {
    let rules = || {
        groups
            .iter()
            .flat_map(|group| &group.rules)
            .filter(|rule| rule.alert == page.alert)
    };
    let severities: BTreeSet<&str> = rules().map(|rule| rule.severity).collect();
    let severities: Vec<&str> = severities.into_iter().collect();
    let mut out = format!(
        "# {}\n\nThis page answers: what does this alert mean, what proves it, and what do I do?\n\n<!-- Generated from the code by \
         `UPDATE_EXPECT=1 cargo test -p epitaph --lib alerts`; do not edit. -->\n\nSeverity: {}.\n\n## What it means\n\n{}\n\n## What proves it\n\n{}\n\n## What to do\n\n",
        page.alert,
        severities.join(", "),
        page.means,
        page.proves
    );
    for (n, step) in page.to_do.iter().enumerate() {
        let _ = writeln!(out, "{}. {step}", n + 1);
    }
    let _ = write!(out, "\n## When to silence\n\n{}\n", page.silence);
    for row in VERDICTS
        .iter()
        .filter(|row| alert_of(row).is_some_and(|(alert, _)| alert == page.alert))
    {
        out += &section(row);
    }
    out.push_str("\nNext: [all alerts](README.md), or [what each verdict means](../verdicts.md).\n");
    out
}

fn section(row: &VerdictRow) -> String {
    format!(
        "\n## `{}` ({})\n\n{}\n\n**Proof.** {}\n\n**Remedy.** {}\n",
        row.headline,
        severity(row.severity),
        row.meaning,
        row.proof,
        row.remedy
    )
}

fn list(groups: &[Group]) -> String {
    let mut out = String::from(
        "# Runbooks\n\nThis page answers: which alert has which page? Each page has what the alert means, what proves it, what to do, \
         and when to silence it.\n\n<!-- Generated from the code by `UPDATE_EXPECT=1 cargo test -p epitaph --lib alerts`; do not edit. \
         -->\n\n| Alert | Group | Severity | Means |\n|---|---|---|---|\n",
    );
    for page in all() {
        let (mut of, mut severities) = (BTreeSet::new(), BTreeSet::new());
        for group in groups {
            for rule in group.rules.iter().filter(|rule| rule.alert == page.alert) {
                of.insert(group.name);
                severities.insert(rule.severity);
            }
        }
        let join = |set: BTreeSet<&str>| set.into_iter().collect::<Vec<_>>().join(", ");
        let means = page.means.split(". ").next().unwrap_or_default().trim_end_matches('.');
        let _ = writeln!(
            out,
            "| [{0}]({0}.md) | {1} | {2} | {means}. |",
            page.alert,
            join(of),
            join(severities)
        );
    }
    out += "\nNext: [how to install and change the alerts](../../deploy/alerts/README.md).\n";
    out
}
