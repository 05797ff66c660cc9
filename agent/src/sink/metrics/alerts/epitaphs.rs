//! The alert about custom resources that are not written, and its runbook.

use super::pages::Page;
use super::{Rule, Rules, rule};
use crate::sink::metrics::table::KUBERNETES_EPITAPHS;

/// What whoever installs can mend. An API server that was away, or a namespace that refuses objects, is not of this kind.
const MENDED: &str = "kind_absent|forbidden|refused|foreign";

pub(super) fn not_written(of: &Rules) -> Rule {
    let counter = format!("{}{{outcome=~\"{MENDED}\"}}", KUBERNETES_EPITAPHS.prometheus());
    Rule {
        expr: of.increase(&["cluster", "instance", "outcome"], &counter),
        severity: "warning",
        ..rule(
            "EpitaphResourcesNotWritten",
            "{{ $labels.instance }} could not write {{ $value | printf \"%.0f\" }} Epitaphs: {{ $labels.outcome }}".into(),
            "`kubectl get epitaphs` and `kubectl epitaph` do not show these terminations. Traces, metrics and Kubernetes Events are \
             complete. \
             kind_absent: the CustomResourceDefinition is not installed. forbidden: RBAC lacks the rule. refused: the admission policy \
             checks the node that the agent's token names, and this token names no node. foreign: another writer has already used the name \
             of the Epitaph: the agent of another node, or somebody before the policy was in force (Kubernetes 1.30 or later)."
                .into(),
        )
    }
}

pub(super) const PAGE: Page = Page {
    alert: "EpitaphResourcesNotWritten",
    means: "An agent or the observer could not write the custom resources Epitaph or NodeEpitaph, so kubectl does not show these \
            terminations.",
    proves: "`epitaph_kubernetes_epitaphs_total` by `outcome`, and one line in the log of the agent, with the remedy; `kubectl epitaph doctor`.",
    to_do: &[
        "kind_absent: run `helm upgrade` or apply the manifests again, because both install the CustomResourceDefinitions. If you do not \
         want them, set `kubernetes.epitaphs = false`.",
        "forbidden: install again, which restores the RBAC rules; `docs/privileges.md` has each rule.",
        "refused: give the agent the token of its own pod, as the chart does. A ServiceAccount's long-lived token names no node.",
        "foreign: the agent's log has the name. `kubectl get epitaph NAME -o yaml` shows in `report.node` which node's agent wrote the \
         Epitaph, and in `metadata.creationTimestamp` when; `kubectl get validatingadmissionpolicies -o yaml` shows since when the policy \
         is in force. If the writer is another node, and the Epitaph is younger than the policy, treat that node as compromised until you \
         know the reason. An Epitaph that is older, or is from the same node, or was written before Kubernetes 1.30, does not prove this: \
         anybody who could create Epitaphs can be the writer, and a report that this version cannot read counts as one of another writer. \
         Then delete the Epitaph.",
    ],
    silence: "While the CustomResourceDefinitions are being replaced.",
};
