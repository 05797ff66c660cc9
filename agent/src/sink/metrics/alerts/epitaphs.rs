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
            "`kubectl get epitaphs` and `kubectl epitaph` lack these terminations; traces, metrics and Kubernetes Events are complete. \
             kind_absent: the CustomResourceDefinition is not installed. forbidden: RBAC lacks the rule. refused: the policy compares the \
             node in the agent's token, and this token names none. foreign: another writer has taken the name: the agent of another \
             node, or somebody before the policy was in force (Kubernetes 1.30 or later)."
                .into(),
        )
    }
}

pub(super) const PAGE: Page = Page {
    alert: "EpitaphResourcesNotWritten",
    means: "An agent or the observer could not write the custom resources Epitaph or NodeEpitaph: whoever asks with kubectl does not find \
            these terminations.",
    proves: "`epitaph_kubernetes_epitaphs_total` by `outcome`, and one line in the log of the agent, with the remedy; `kubectl epitaph doctor`.",
    to_do: &[
        "kind_absent: run `helm upgrade` or apply the manifests again, which bring the CustomResourceDefinitions; or set \
         `kubernetes.epitaphs = false` where they are not wanted.",
        "forbidden: install again, which brings the rules back; `docs/privileges.md` has each.",
        "refused: give the agent the token of its own pod, as the chart does. A ServiceAccount's long-lived token names no node.",
        "foreign: the agent's log has the name. `kubectl get epitaph NAME -o yaml` shows in `report.node` which node's agent wrote it, and \
         in `metadata.creationTimestamp` when; `kubectl get validatingadmissionpolicies -o yaml` shows since when the policy is in force. If \
         it is another node, and the Epitaph is younger than the policy, take that node for compromised until that is explained. An older \
         Epitaph, one of the same node, and one before Kubernetes 1.30 prove nothing of the kind: whoever could create Epitaphs can be the \
         writer, and a report that this version cannot read counts as another writer's. Delete the Epitaph.",
    ],
    silence: "While the CustomResourceDefinitions are being replaced.",
};
