//! Panels about lost nodes, by the observer's metrics.

use super::{OF_CLUSTER, Panel, View, query};
use crate::sink::metrics::observer::{LOST_NODE, LOST_NODE_PODS, LOST_NODE_VOLUMES, OUT_OF_SERVICE, RUN_TWICE, STUCK_PODS};

pub(super) fn panels() -> Vec<Panel> {
    vec![nodes(), held(), left()]
}

fn nodes() -> Panel {
    let labels = ["cluster", "k8s_node_name", "verdict"].map(str::to_owned);
    let expr = format!("max by ({}) ({}{{{OF_CLUSTER}}})", labels.join(", "), LOST_NODE.prometheus());
    Panel {
        title: "Nodes that are not ready, or have the taint out-of-service",
        about: "`lost`: nothing on the node answers. `unreachable`: the node's agent answers, or its kubelet reports `Ready=False`, so the \
                machine runs; do not set the taint. `fenced-by-taint`: the taint released the node's pods. `taint-left-behind`: the \
                node is ready and still has the taint. The trace `node.lost` has the details.",
        view: View::Table(labels.to_vec(), None),
        unit: "short",
        width: 10,
        queries: vec![query(expr, "")],
        empty: "None, or there is no observer of lost nodes (chart values observer.enabled, config.observer.lost_nodes)",
        alerts: vec!["EpitaphNodeLost", "EpitaphEvictionsHeld", "EpitaphTaintLeftBehind"],
    }
}

fn held() -> Panel {
    let by_node = format!(
        "max by (cluster, k8s_node_name) ({}{{{OF_CLUSTER}}})",
        LOST_NODE_PODS.prometheus()
    );
    let by_holder = format!("max by (cluster, holder) ({}{{{OF_CLUSTER}}})", STUCK_PODS.prometheus());
    Panel {
        title: "Pods that hang in Terminating",
        about: "Pods of the cluster that still exist long after their grace period: by what holds them, and for each lost node.",
        view: View::Lines,
        unit: "short",
        width: 7,
        queries: vec![query(by_holder, "held by {{holder}}"), query(by_node, "{{k8s_node_name}}")],
        empty: "None, or there is no observer of lost nodes (chart values observer.enabled, config.observer.lost_nodes)",
        alerts: vec!["EpitaphNodeLost", "EpitaphPodsHeld"],
    }
}

fn left() -> Panel {
    let volumes = format!(
        "max by (cluster, k8s_node_name) ({}{{{OF_CLUSTER}}})",
        LOST_NODE_VOLUMES.prometheus()
    );
    let taints = format!(
        "max by (cluster, k8s_node_name, ready) ({}{{{OF_CLUSTER}}})",
        OUT_OF_SERVICE.prometheus()
    );
    let twice = format!(
        "max by (cluster, k8s_node_name) ({}{{{OF_CLUSTER}}}) > 0",
        RUN_TWICE.prometheus()
    );
    Panel {
        title: "Volumes, taints and running pods left on nodes",
        about: "Volumes that are still attached to a lost node although their pods are gone; nodes with the taint out-of-service; and \
                deleted pods whose containers may run at the same time as their replacements.",
        view: View::Lines,
        unit: "short",
        width: 7,
        queries: vec![
            query(volumes, "volumes on {{k8s_node_name}}"),
            query(taints, "taint on {{k8s_node_name}}, ready: {{ready}}"),
            query(twice, "pods twice, on {{k8s_node_name}}"),
        ],
        empty: "None, or there is no observer of lost nodes (chart values observer.enabled, config.observer.lost_nodes)",
        alerts: vec!["EpitaphTaintLeftBehind", "EpitaphVolumeOnLostNode", "EpitaphPodsRunTwice"],
    }
}
