//! The alerts about what cannot report itself: an agent whose pod is gone, an observer that nobody elected; and their runbooks.

use super::pages::Page;
use super::{BUILD, LASTING, Rule, Rules, SCRAPED, duration, rule, unanswered};
use crate::sink::metrics::observer::{ACTIVE, KNOWN};
use crate::sink::metrics::table::KUBERNETES_STATE;

/// The chart allows a number of nodes without an agent in place of the 0.
pub(super) fn agents(of: &Rules) -> Rule {
    let nodes = format!("max by (cluster) ({}{{object=\"nodes\"}})", KNOWN.prometheus());
    let agents = format!("count by (cluster) ({}{{state=\"synced\"}})", KUBERNETES_STATE.prometheus());
    // Without any agent the count has no series, and the difference would have none.
    Rule {
        expr: format!("{nodes}\n- on (cluster) ({agents} or 0 * {nodes})\n> 0"),
        lasting: of.seconds(LASTING),
        ..rule(
            "EpitaphAgentsMissing",
            "{{ $value | printf \"%.0f\" }} nodes have no agent that Prometheus scrapes".into(),
            "What terminates on these nodes is not observed. Where the pod alone is gone, no other alert sees it: there is no target. A node \
             that is down counts, too: EpitaphAgentDown and EpitaphNodeLost are about it. Find the nodes: \
             kubectl get pods --all-namespaces -l app.kubernetes.io/component=agent -o wide, against kubectl get nodes. Nodes without \
             an agent on purpose are the chart value prometheusRule.nodesWithoutAgent."
                .into(),
        )
    }
}

/// No target is left, as after a ServiceMonitor that went: neither `up` nor the number of nodes has a series. While a target is known to
/// be down, EpitaphAgentDown fires.
pub(super) fn all(of: &Rules) -> Rule {
    let (build, scraped) = (BUILD.prometheus(), of.seconds(SCRAPED));
    Rule {
        expr: format!(
            "count by (cluster) (last_over_time({build}[{}]))\nunless on (cluster) {build}\nunless on (cluster) ({})",
            duration(scraped),
            unanswered(scraped, "")
        ),
        lasting: of.seconds(LASTING),
        severity: "critical",
        ..rule(
            "EpitaphAgentsMissing",
            "Prometheus scrapes no agent and no observer any more".into(),
            "Prometheus had metrics of Epitaph within the last six hours and has no target of Epitaph now: either no termination of the \
             cluster is observed, or no alert sees it. Six hours after the last scrape the alert resolves without a repair: its resolution is no \
             proof that targets are back. Look whether the pods run: kubectl get pods --all-namespaces -l \
             app.kubernetes.io/name=epitaph. If they run, look at the ServiceMonitor or the job of Prometheus."
                .into(),
        )
    }
}

/// Only where agents use the API of Kubernetes: a machine without a cluster has no observer. By cluster: the observer of another one does
/// not make up for it.
pub(super) fn observer(of: &Rules) -> Rule {
    let active = ACTIVE.prometheus();
    let agents = KUBERNETES_STATE.prometheus();
    Rule {
        expr: format!("sum by (cluster) ({active}) != 1\nor\ncount by (cluster) ({agents}) unless on (cluster) {active}"),
        lasting: of.seconds(LASTING),
        ..rule(
            "EpitaphObserverMissing",
            "No observer, or more than one, is active".into(),
            "Without an active observer no lost node is reported, and traces lack the removal from endpoints and the replacement; two \
             active ones report twice. Look at the pods with app.kubernetes.io/component=observer, at their log, and at the Lease: \
             kubectl get lease --all-namespaces | grep epitaph."
                .into(),
        )
    }
}

pub(super) const PAGES: [Page; 2] = [
    Page {
        alert: "EpitaphAgentsMissing",
        means: "The cluster has more nodes than agents that Prometheus scrapes. On the other nodes nothing is observed. Severity \
                critical: Prometheus scrapes no agent and no observer any more.",
        proves: "`epitaph_observer_known{object=\"nodes\"}` of the active observer against the number of series \
                 `epitaph_kubernetes_state{state=\"synced\"}`: each agent has one. Severity critical: `epitaph_build_info` has no series and had one \
                 within six hours; after that the alert resolves, whether targets are back or not. Without an observer of lost nodes \
                 (`observer.enabled=false`, `config.observer.lost_nodes=false`) nobody counts the nodes, and only the critical alert can fire.",
        to_do: &[
            "Severity critical: `kubectl -n epitaph get pods`. If the pods run, Prometheus has lost its targets: look at the ServiceMonitor \
             (`serviceMonitor.enabled`, and the labels that the Prometheus selects), or at the job in its configuration.",
            "`kubectl -n epitaph get daemonset epitaph-agent`: fewer pods desired than nodes is a `nodeSelector`, a taint without \
             toleration, or nodes of Windows, on purpose or not. On purpose: `prometheusRule.nodesWithoutAgent`.",
            "Fewer pods ready than desired, and `kubectl get nodes` shows a node that is not ready: EpitaphNodeLost of the node has the steps, and \
             this alert ends with it.",
            "Fewer pods ready than desired on nodes that are ready: `kubectl -n epitaph get pods -o wide`, and `kubectl describe` of the pod that is not ready. \
             `CreateContainerError` and `ContainerCreating` have the reason in the Events, a restarting pod in its log.",
            "As many agents as nodes: Prometheus does not scrape all of them. Look at the ServiceMonitor, and at NetworkPolicies for port 9464.",
        ],
        silence: "While nodes are being added or repaired in large number.",
    },
    Page {
        alert: "EpitaphObserverMissing",
        means: "The sum of `epitaph_observer_active` is not 1: no observer has the Lease, or two think that they have it.",
        proves: "`epitaph_observer_active` by pod, and the holder in `kubectl -n epitaph get lease epitaph-observer -o yaml`.",
        to_do: &[
            "No pod: `kubectl -n epitaph describe deployment epitaph-observer`: image, quota, or nodes without room.",
            "Pods, and none is active: their log names what is missing: the Lease, the right to it, or the API server.",
            "Two are active for longer than the Lease lasts: give each the same `observer.namespace` and `observer.lease`. If they have it, \
             compare the clocks of their nodes: where a clock runs too slowly, the observer keeps the Lease too long.",
            "On purpose without an observer: `observer.enabled=false` of the chart leaves the alert out.",
        ],
        silence: "While the control plane is being repaired: without the API server nobody can hold the Lease.",
    },
];
