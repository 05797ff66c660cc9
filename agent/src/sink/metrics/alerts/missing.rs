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
            "Terminations on these nodes are not observed. If only the agent's pod is gone, no other alert fires, because Prometheus has \
             no target. A node that is down counts, too; EpitaphAgentDown and EpitaphNodeLost are about such a node. To find the nodes, \
             compare kubectl get pods --all-namespaces -l app.kubernetes.io/component=agent -o wide with kubectl get nodes. If some nodes \
             have no agent on purpose, set their number in the chart value prometheusRule.nodesWithoutAgent."
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
            "Prometheus had metrics of Epitaph within the last six hours and has no target of Epitaph now. Either terminations in the \
             cluster are not observed, or no alert sees them. Six hours after the last scrape this alert resolves also without a repair: \
             this does not prove that the targets are back. Check whether the pods run: kubectl get pods --all-namespaces -l \
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
            "Without an active observer no lost node is reported, and traces have neither the removal from endpoints nor the replacement. \
             Two active observers report everything twice. Look at the pods with app.kubernetes.io/component=observer, at their log, and \
             at the Lease: \
             kubectl get lease --all-namespaces | grep epitaph."
                .into(),
        )
    }
}

pub(super) const PAGES: [Page; 2] = [
    Page {
        alert: "EpitaphAgentsMissing",
        means: "The cluster has more nodes than agents that Prometheus scrapes. On the nodes without such an agent nothing is observed. \
                With severity critical, Prometheus scrapes no agent and no observer any more.",
        proves: "`epitaph_observer_known{object=\"nodes\"}` of the active observer is higher than the number of series \
                 `epitaph_kubernetes_state{state=\"synced\"}`, of which each agent has one. Severity critical: `epitaph_build_info` has no \
                 series, but had one within the last six hours. After these six hours the alert resolves, whether targets are back or not. \
                 Without an observer of lost nodes \
                 (`observer.enabled=false`, `config.observer.lost_nodes=false`) the nodes are not counted, and only the critical alert can \
                 fire.",
        to_do: &[
            "Severity critical: `kubectl -n epitaph get pods`. If the pods run, Prometheus has lost its targets: look at the ServiceMonitor \
             (`serviceMonitor.enabled`, and the labels that the Prometheus selects), or at the job in its configuration.",
            "`kubectl -n epitaph get daemonset epitaph-agent`: if fewer pods are desired than there are nodes, the reason is a \
             `nodeSelector`, a taint without toleration, or Windows nodes. If this is on purpose, set `prometheusRule.nodesWithoutAgent`.",
            "If fewer pods are ready than desired, and `kubectl get nodes` shows a node that is not ready: the runbook of EpitaphNodeLost \
             has the steps. This alert ends when the node is ready again or gone.",
            "If fewer pods are ready than desired on nodes that are ready: run `kubectl -n epitaph get pods -o wide`, and `kubectl \
             describe` for the pod that is not ready. For `CreateContainerError` and `ContainerCreating` the Events have the reason; for a \
             restarting pod its log has the reason.",
            "If there are as many agents as nodes, Prometheus does not scrape all agents. Look at the ServiceMonitor, and at \
             NetworkPolicies for port 9464.",
        ],
        silence: "While nodes are being added or repaired in large number.",
    },
    Page {
        alert: "EpitaphObserverMissing",
        means: "The sum of `epitaph_observer_active` is not 1: no observer has the Lease, or two observers believe that they have it.",
        proves: "`epitaph_observer_active` by pod, and the holder in `kubectl -n epitaph get lease epitaph-observer -o yaml`.",
        to_do: &[
            "If there is no observer pod: `kubectl -n epitaph describe deployment epitaph-observer` shows the reason: the image, a quota, \
             or nodes without room.",
            "If there are observer pods, but none is active: the log of the pods names what is missing: the Lease, the right to write the \
             Lease, or the API server.",
            "If two observers are active for longer than the Lease lasts: give both the same `observer.namespace` and `observer.lease`. If \
             both already have the same values, compare the clocks of their nodes: an observer whose clock runs too slowly keeps the Lease \
             too long.",
            "If the cluster has no observer on purpose: `observer.enabled=false` of the chart leaves this alert out.",
        ],
        silence: "While the control plane is being repaired: without the API server nobody can hold the Lease.",
    },
];
