//! The alerts about lost nodes, and their runbooks. An observer publishes the states; each lasts until somebody acts.

use super::pages::Page;
use super::{LASTING, Rule, Rules, rule};
use crate::sink::metrics::observer::{
    EVICTIONS_HELD, HELD_PODS, LOST_NODE, LOST_NODE_PODS, LOST_NODE_VOLUMES, OUT_OF_SERVICE, RUN_TWICE,
};

/// Minutes: the controller evicts from one node in ten seconds.
const EVICTED_WITHIN: u64 = 2;

/// `cluster` is a label of a Prometheus of several clusters.
const BY_NODE: &str = "cluster, k8s_node_name";

pub(super) fn rules(of: &Rules) -> Vec<Rule> {
    vec![
        lost(),
        run_twice(),
        evictions_held(of),
        taint_left(of),
        volumes_left(of),
        pods_stuck(of),
    ]
}

fn lost() -> Rule {
    Rule {
        expr: format!(
            "max by ({BY_NODE}, verdict) ({})\nand on ({BY_NODE}) max by ({BY_NODE}) ({}) > 0",
            LOST_NODE.prometheus(),
            LOST_NODE_PODS.prometheus()
        ),
        severity: "critical",
        ..rule(
            "EpitaphNodeLost",
            "Node {{ $labels.k8s_node_name }} is not ready ({{ $labels.verdict }}), and its pods hang in Terminating".into(),
            "No kubelet terminates the pods of the node: StatefulSets do not replace their pods, and volumes stay attached. Verdict lost: \
             make sure that the machine is powered off, then kubectl taint nodes {{ $labels.k8s_node_name }} \
             node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (Kubernetes 1.26 or later). Verdict unreachable: the machine runs. \
             Repair its kubelet or its network. Do not set the taint, because two pods could then write the same volume. Verdict \
             fenced-by-taint: the taint is set, and the pod garbage collection has not deleted the pods. Make sure that the machine is \
             off. Before Kubernetes 1.26, enable NodeOutOfServiceVolumeDetach. The observer's log has the command for this cluster's \
             version."
                .into(),
        )
    }
}

fn run_twice() -> Rule {
    Rule {
        expr: format!("max by ({BY_NODE}) ({}) > 0", RUN_TWICE.prometheus()),
        severity: "critical",
        ..rule(
            "EpitaphPodsRunTwice",
            "{{ $value | printf \"%.0f\" }} pods of {{ $labels.k8s_node_name }} were deleted, and the machine runs".into(),
            "The pods were deleted without the kubelet, by the taint out-of-service or by a forced deletion, and something on the machine \
             answers. The containers of these pods may run at the same time as their replacements, and write the same volumes. Power the \
             machine off at once. Removing the taint does not stop the containers."
                .into(),
        )
    }
}

fn evictions_held(of: &Rules) -> Rule {
    Rule {
        expr: format!("sum by (cluster) (max by ({BY_NODE}) ({})) > 0", EVICTIONS_HELD.prometheus()),
        severity: "critical",
        lasting: of.seconds(EVICTED_WITHIN),
        ..rule(
            "EpitaphEvictionsHeld",
            "{{ $value | printf \"%.0f\" }} nodes are silent, and their pods are not evicted".into(),
            "The pods of these nodes are not deleted, so neither Deployments nor StatefulSets replace them. The node lifecycle \
             controller limits or stops evictions while many nodes of a zone are not ready. Check the network to the API server and the \
             control plane first: the machines may still run. Set no taint before a machine is certainly powered off. \
             Find what the nodes have in common: kubectl get nodes -L topology.kubernetes.io/zone"
                .into(),
        )
    }
}

fn taint_left(of: &Rules) -> Rule {
    Rule {
        expr: format!("max by ({BY_NODE}) ({}{{ready=\"true\"}}) == 1", OUT_OF_SERVICE.prometheus()),
        lasting: of.seconds(LASTING),
        ..rule(
            "EpitaphTaintLeftBehind",
            "Node {{ $labels.k8s_node_name }} is ready and has the taint out-of-service".into(),
            "With the effect NoExecute the taint evicts pods and keeps new pods away; with NoSchedule the taint only keeps new pods away. \
             Check that the node is repaired, then run: kubectl taint nodes {{ $labels.k8s_node_name }} \
             node.kubernetes.io/out-of-service-"
                .into(),
        )
    }
}

fn volumes_left(of: &Rules) -> Rule {
    Rule {
        expr: format!("max by ({BY_NODE}) ({}) > 0", LOST_NODE_VOLUMES.prometheus()),
        lasting: of.seconds(LASTING),
        ..rule(
            "EpitaphVolumeOnLostNode",
            "{{ $value | printf \"%.0f\" }} volumes are still attached to the lost node {{ $labels.k8s_node_name }}".into(),
            "Replacements cannot use the volumes: kubectl get volumeattachments -o wide | grep {{ $labels.k8s_node_name }}. First find out \
             at its console or at its provider whether the machine runs. If it runs, repair its kubelet or its network, or power the \
             machine off: a detach while the machine runs lets two pods write the same volume. If it is off and has no taint \
             out-of-service, the controller detaches the volume six minutes after the old pod's object is gone, and never while the old \
             pod is still Terminating (Multi-Attach). To detach sooner: kubectl taint nodes {{ $labels.k8s_node_name }} \
             node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (Kubernetes 1.26 or later). If the taint is set, the \
             external-attacher of the volume's CSI driver reports the error: see kubectl describe volumeattachment NAME, and the attribute \
             epitaph.volume.error of the span volume.detach."
                .into(),
        )
    }
}

fn pods_stuck(of: &Rules) -> Rule {
    Rule {
        expr: format!(
            "max by (cluster, k8s_namespace_name, holder) ({}) > 0",
            HELD_PODS.prometheus()
        ),
        lasting: of.seconds(LASTING),
        ..rule(
            "EpitaphPodsHeld",
            "{{ $value | printf \"%.0f\" }} pods in {{ $labels.k8s_namespace_name }} are held for long: {{ $labels.holder }}"
                .into(),
            "finalizer: Kubernetes no longer waits for a kubelet (grace period 0), but finalizers keep the pod's object (kubectl get pods \
             --namespace {{ $labels.k8s_namespace_name }} -o json, metadata.finalizers). \
             runtime: the node is ready, but its kubelet or container runtime does not finish its work. If a process still runs, the \
             agent's alert EpitaphStuckTerminating names the workload; if no process runs, the Event TerminationHeld on the pod names the \
             layer. volume: the kubelet of a ready node does not finish unmounting a terminated \
             pod's volumes, or a replacement waits for a volume that is attached to a lost node."
                .into(),
        )
    }
}

pub(super) const PAGES: [Page; 6] = [
    Page {
        alert: "EpitaphNodeLost",
        means: "A node is not ready, and pods that are being deleted on it still exist long after their grace period. No kubelet can \
                confirm their termination: a StatefulSet does not create the replacement, and volumes stay attached.",
        proves: "After the loss, the trace `node.lost` (service `epitaph`, tag `k8s.node.name`); until then the observer's log, \
                 and the metrics `epitaph_node_lost` and `epitaph_node_pods_stuck`. The observer's log has the command for every \
                 node whose pods hang; an Event `PodStuckOnLostNode` exists only if a StatefulSet's pod hangs or is not evicted, \
                 or if a replacement waits for a volume.",
        to_do: &[
            "Read the verdict. `unreachable`: the agent on the node answers, or the kubelet itself reports `Ready=False`, so the \
             machine runs. Repair the kubelet, the container runtime or the network to the API server. Do not set the taint, and do \
             not use `kubectl delete pod --force` or `kubectl delete node`: these commands, too, let two pods write the same volume. If \
             the repair takes too long, power the machine off, make sure that it is off, and continue with step 3.",
            "`lost`: nothing answered; a crashed agent or a blocked port 9464 looks the same. Look at the machine's console, or ask its \
             provider: if the machine runs, do the same as for `unreachable` (step 1). Otherwise make sure that it is off. On a machine \
             that still runs, the taint lets two pods write the same volume. If several nodes are lost at once, check the network and the \
             control plane first (EpitaphEvictionsHeld).",
            "Then `kubectl taint nodes NODE node.kubernetes.io/out-of-service=nodeshutdown:NoExecute` (Kubernetes 1.26 or later; \
             for an older cluster use the command in the observer's log).",
            "`fenced-by-taint`: the taint is set, and pods still hang. Make sure that the machine is off. Then look at the log of \
             kube-controller-manager: its pod garbage collection deletes such pods; before Kubernetes 1.26 it does this only with the \
             feature gate NodeOutOfServiceVolumeDetach. Pods that a finalizer keeps do not count for this alert: see EpitaphPodsHeld.",
            "Remove the taint when the node is repaired: `kubectl taint nodes NODE node.kubernetes.io/out-of-service-`.",
        ],
        silence: "By `k8s_node_name` while the node is being repaired and no workload waits for its pods.",
    },
    Page {
        alert: "EpitaphPodsRunTwice",
        means: "Pods of a node that is not ready were deleted without its kubelet, by the taint `node.kubernetes.io/out-of-service` or by \
                `kubectl delete --force`, but the machine runs. The containers of these pods were not stopped, and may write the same \
                volumes as their replacements.",
        proves: "`epitaph_node_pods_run_twice` by node: no status of the pod showed that its containers had terminated, and the \
                 node's agent answers, or its kubelet reports `Ready=False` in the same boot. After the node's return, the span \
                 `duplicate.run` in the pod's trace has the time in which both may have run.",
        to_do: &[
            "Power the machine off at once, at its console or through its provider, and make sure that it is off. Do not remove the taint \
             first: this does not stop an old container. If the machine cannot be powered off, stop the replacement, for example by \
             scaling its workload to 0.",
            "Then check what both pods wrote since the deletion.",
            "If the taint is set, remove it when the machine is repaired: `kubectl taint nodes NODE node.kubernetes.io/out-of-service-`.",
        ],
        silence: "Never while the machine runs. The alert also ends when nothing on the machine answers any more; this does not prove that \
                  the machine is off.",
    },
    Page {
        alert: "EpitaphEvictionsHeld",
        means: "Nodes have been silent for more than a minute, and the node lifecycle controller does not evict their pods. No pod is \
                deleted, so no pod hangs and no pod is replaced, although the containers may be gone. In a zone of at most 50 nodes, the \
                controller stops evictions while 55 % or more of the nodes (`--unhealthy-zone-threshold`) are not ready, if these are at \
                least three nodes but not all of them. In a larger zone, the controller evicts more slowly. While no zone has a ready \
                node, the controller evicts nothing.",
        proves: "`epitaph_node_evictions_held` by node: `Ready` is `Unknown`, and the node lacks the taint \
                 `node.kubernetes.io/unreachable:NoExecute`. The observer's log has a line for each node.",
        to_do: &[
            "Find what the nodes have in common: a zone, a switch, a route to the API server, a load balancer in front of it, an expired \
             certificate. `kubectl get nodes -L topology.kubernetes.io/zone`",
            "Look at one of the machines at its console or at its provider. While the machines run, their pods run, too: repair the \
             network.",
            "Only a machine that is certainly powered off may be given the taint `node.kubernetes.io/out-of-service`, one by one.",
        ],
        silence: "While the outage of the zone is being worked on.",
    },
    Page {
        alert: "EpitaphTaintLeftBehind",
        means: "A node is ready and has the taint `node.kubernetes.io/out-of-service`, set while the node was lost, or set on the \
                wrong node by mistake. With the effect `NoExecute` the taint evicts pods and keeps new pods away; with `NoSchedule` the \
                taint only keeps new pods away.",
        proves: "`epitaph_node_out_of_service{ready=\"true\"}`, and `kubectl get node NODE -o jsonpath={.spec.taints}`.",
        to_do: &[
            "Check that the node is really repaired: a machine that was only paused may run old containers for some seconds; the verdict \
             `duplicate-run` in the pods' traces shows that.",
            "`kubectl taint nodes NODE node.kubernetes.io/out-of-service-`",
        ],
        silence: "While the node is kept empty on purpose; `kubectl cordon` is the better tool for that.",
    },
    Page {
        alert: "EpitaphVolumeOnLostNode",
        means: "Volumes are still attached to a node that is not ready. The pods of these volumes are gone, or a Deployment's replacement \
                waits for a volume while the old pod still exists (Multi-Attach).",
        proves: "`epitaph_node_volumes_left`, and `kubectl get volumeattachments -o wide | grep NODE`.",
        to_do: &[
            "Read the verdict of the node first (EpitaphNodeLost). If the machine runs (`unreachable`), repair its kubelet or its \
             network. If the volume is needed sooner, power the machine off before the volume is detached: a detach while the \
             machine runs lets two pods write the same volume.",
            "If the node does not have the taint out-of-service, the attach-detach controller detaches the volume six minutes after the \
             old pod's object is gone, and never while the old pod is still `Terminating`. Set the taint only if the machine is certainly \
             off: `kubectl taint \
             nodes NODE node.kubernetes.io/out-of-service=nodeshutdown:NoExecute` (Kubernetes 1.26 or later). The observer's log has the \
             command for this cluster's version. The Event `PodStuckOnLostNode` on a workload whose replacement waits has this command, \
             too.",
            "If the node has the taint, look at `kubectl describe volumeattachment NAME` and at the log of the external-attacher of the \
             volume's CSI driver.",
        ],
        silence: "By `k8s_node_name` while the storage system is being repaired.",
    },
    Page {
        alert: "EpitaphPodsHeld",
        means: "Pods that are being deleted still exist long after their grace period, because a finalizer, the container runtime or their \
                volumes hold them; or replacement pods wait for a volume of a lost node. The label `k8s_namespace_name` has the namespace, \
                and the label `holder` shows what holds the pods.",
        proves: "The metric `epitaph_pods_held` by namespace and holder. For pods of a lost node also the spans `stuck` and \
                 `volume.detach` in the pods' traces.",
        to_do: &[
            "`finalizer`: find the controller that owns the finalizer. Remove the finalizer by hand only if that controller does not exist \
             any more.",
            "`runtime`: if a process of the pod still runs, see EpitaphStuckTerminating. If no process runs, the Event `TerminationHeld` \
             on the pod \
             (`kubectl get events --field-selector reason=TerminationHeld -A`) names the layer: runtime, sandbox, network, volume, kubelet, \
             finalizer or API server. `epitaph explain held-by-network` has the next step for the network, and so on for the other layers.",
            "`volume`, if the pod still exists and its node is ready (`kubectl get pods --namespace NAMESPACE --output wide`, `kubectl get \
             nodes`): the pod's containers have terminated, and the kubelet does not finish unmounting. The attribute \
             `epitaph.stuck.claims` names the volumes. Read the kubelet's log, and look for processes in state D on that node. Do \
             not power the node off for this alert alone.",
            "`volume`, if a replacement waits for a volume of a node that is not ready: see EpitaphVolumeOnLostNode.",
        ],
        silence: "If a finalizer takes long by design: silence by `k8s_namespace_name` and `holder`.",
    },
];
