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
            "Whoever acts on the exit code or the reason in the pod's status acts on the wrong one. OOMKilled is kept from an earlier OOM \
             kill of any process of the container; placeholder is a code that the kubelet wrote itself, because nobody had read the exit; \
             exit-code is another code than the process had. `kubectl get epitaphs -o wide`, and the Event UncleanTermination of an unclean \
             one, have what the kernel recorded; docs/exit-codes.md says what each code proves."
                .into(),
        )
    }
}

pub(super) const PAGE: Page = Page {
    alert: "EpitaphStatusDisagrees",
    means: "A container of the workload ended, and the pod's status, which kubectl and most dashboards show, says something else of it than the \
            kernel recorded. The labels `said` and `was` have both. This is not a fault of the workload: it keeps people from looking for one \
            where there is none, or from missing an OOM kill.",
    proves: "`epitaph_workload_status_disagrees_total{said,was}`; the attribute `epitaph.reported.disagrees` and the sentence of the termination have \
             both in words. Nothing is claimed where the kernel's record is not beyond doubt.",
    to_do: &[
        "`said=\"OOMKilled\"`: the container was not ended by the OOM killer now. The sentence names the process that was, and when: raise the \
         memory limit for that one, and do not restart or roll back because of this exit.",
        "`said=\"placeholder\"`: the code 137 or 255 is the kubelet's own. Look at the node's shutdown, restart or pressure at that time.",
        "`said=\"exit-code\"`, `was=\"oom-kill\"`: memory ran out, and no status says so: see EpitaphOutOfMemory.",
        "Alerts of your own on `kube_pod_container_status_last_terminated_reason`: take the text in `docs/exit-codes.md`, *If you alert on the \
         reason*, over.",
    ],
    silence: "By `said` where nobody acts on the reason in the status.",
};
