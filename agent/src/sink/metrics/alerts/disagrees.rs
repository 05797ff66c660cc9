//! The alert about exits of which kubectl shows something else than the kernel recorded, and its runbook.

use super::pages::Page;
use super::{KEPT, Rule, Rules, WORKLOAD, rule, workload_labels};
use crate::sink::metrics::table::WORKLOAD_DISAGREES;

pub(super) fn status(of: &Rules) -> Rule {
    let labels = workload_labels();
    let labels: Vec<&str> = labels.iter().map(String::as_str).chain(["said", "was"]).collect();
    Rule {
        expr: of.increase(&labels, &WORKLOAD_DISAGREES.prometheus()),
        kept: of.seconds(KEPT),
        severity: "info",
        ..rule(
            "EpitaphStatusDisagrees",
            format!("{WORKLOAD}: kubectl shows {{{{ $labels.said }}}}, and the kernel recorded {{{{ $labels.was }}}}"),
            "The pod's status has another exit code or reason than the kernel recorded: do not act on the status alone. OOMKilled: the status \
             keeps an earlier OOM kill of any process of the container. placeholder: the kubelet or the container runtime wrote the \
             code, because the exit was not known. exit-code: the code is not that of the process. `kubectl get epitaphs -o wide` has the \
             kernel's record. For an unclean termination the Event UncleanTermination has it, too. docs/exit-codes.md lists what each code \
             proves."
                .into(),
        )
    }
}

pub(super) const PAGE: Page = Page {
    alert: "EpitaphStatusDisagrees",
    means: "A container of the workload terminated, and the pod's status, which kubectl and most dashboards show, contradicts the kernel's \
            record of the exit. The label `said` has the status, the label `was` the kernel's record. The workload is not at fault. The alert \
            prevents two errors: a search for an OOM kill that did not end the container, and a missed OOM kill.",
    proves: "`epitaph_workload_status_disagrees_total{said,was}`; the attribute `epitaph.reported.disagrees` and the sentence of the \
             termination name the status and the kernel's record in words. A disagreement is reported only if the kernel's record is \
             complete.",
    to_do: &[
        "`said=\"OOMKilled\"`: the OOM killer did not end the container this time. Find the earlier OOM kill (`epitaph list --verdict oom-killed`, \
         `oom-child`), and raise that container's memory limit. Do not restart or roll back because of this exit.",
        "`said=\"placeholder\"`: the kubelet or the container runtime wrote 137 or 255 itself. The column `KUBECTL` of `kubectl -n NAMESPACE \
         get epitaphs -o wide` has the reason that the status shows. Continue with step 3 or step 4, by that reason.",
        "`RestartingAllContainers`: the pod restarted in place, and the kubelet wrote 137 for every container of the pod. The node is not at fault. \
         `kubectl epitaph why POD` (or the column `SENTENCE` of the same list) names the container whose exit began the restart, and the exit code, if that exit was recorded. The spec of that container asks for the restart at this code (`restartPolicyRules`, action `RestartAllContainers`): if the program uses this code to ask for a restart, do nothing. Otherwise find the reason for the exit in the container's log. The kubelet has removed the \
         old containers, so that `kubectl logs --previous` may have nothing: look where the cluster collects its logs.",
        "`ContainerStatusUnknown` or `Unknown`: the kubelet did not find the container any more, or the container runtime had no record of the exit. \
         Look for a shutdown or restart of the node at that time (`kubectl epitaph node NODE`), a restart of the runtime, or node pressure.",
        "`said=\"exit-code\"`, `was=\"oom-kill\"`: the kernel recorded an OOM kill, and the status has none: see EpitaphOutOfMemory. A \
         kill by systemd-oomd, earlyoom or nohang is not reported in this way: after such a kill the status is normally right. It is wrong \
         only if it shows an earlier OOM kill or a placeholder.",
        "If you alert on `kube_pod_container_status_last_terminated_reason`, add the text of `docs/exit-codes.md`, *If you alert on the \
         reason*.",
    ],
    silence: "By `said`, if no alert, dashboard or person uses the reason in the status.",
};
