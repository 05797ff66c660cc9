//! Of nodes.

use super::{DELETED, LOST, SHUTDOWNS, Word};

pub(super) const NODES: &[Word] = &[
    Word {
        names: &[
            "NodeStatusUnknown",
            "NodeNotReady",
            "NotReady",
            "node gone",
            "TaintManagerEviction",
            "DeletionByTaintManager",
        ],
        meaning: "The kubelet stopped posting the node's status. So the control plane set `Ready` to Unknown, and after five minutes it \
                  requested the deletion of the pods because of a taint. It is not known whether the machine runs, and nothing has stopped \
                  the containers.",
        verdicts: LOST,
    },
    Word {
        names: &["PodStuckOnLostNode", "node.lost", "pod.lost"],
        meaning: "A node is not ready, and pods on it cannot be terminated. `PodStuckOnLostNode` is the Event of `epitaph observer` on a \
                  StatefulSet or pod that waits for the node. `node.lost` and `pod.lost` are the root spans of the node and of each pod; \
                  they end when the pods are gone. The Event and the spans have the verdict and the next command. The observer's log has \
                  them for the node, too.",
        verdicts: LOST,
    },
    Word {
        names: &["out-of-service", "node.kubernetes.io/out-of-service"],
        meaning: "The taint by which a person declares that a machine is off: Kubernetes then deletes the node's pods without their kubelet and \
                  detaches their volumes. On a machine that runs, two pods may write the same volume. When the node is repaired, remove the taint.",
        verdicts: &["fenced-by-taint", "taint-left-behind", "duplicate-run"],
    },
    Word {
        names: &["FailedAttachVolume", "Multi-Attach"],
        meaning: "A pod waits for a volume that is still attached to another node, for example to one that is not ready.",
        verdicts: &["stuck-by-volume"],
    },
    Word {
        names: &["NodeLost"],
        meaning: "The reason in a pod's status while its node does not answer. It is not known whether the containers still run, and \
                  nothing has stopped them. `epitaph observer` reports lost nodes.",
        verdicts: LOST,
    },
    Word {
        names: &["NodeShutdown", "Shutdown"],
        meaning: "The kubelet stopped the pod because the node was shutting down, or did not start the pod for this reason. The cause is \
                  node-shutdown. Newer kubelets give the reason Terminated.",
        verdicts: &[
            "truncated-by-shutdown",
            "killed-after-grace",
            "ignored-stop-signal",
            "blocked-stop-signal",
            "prestop-overran",
            "default-action",
            "clean",
            "clean-exit",
        ],
    },
    Word {
        names: &["Rebooted", "reboot", "node reboot"],
        meaning: "The node booted again. The shutdown before the boot has its own verdict. A container that the shutdown ended has the \
                  cause node-shutdown. If nothing announced the shutdown, it is not known how the container ended.",
        verdicts: SHUTDOWNS,
    },
    Word {
        names: &["down", "node down", "node.down"],
        meaning: "Not a verdict: the time from the last evidence before a shutdown of the node until the next boot, as `epitaph list` \
                  shows it. The shutdown before this time has a verdict.",
        verdicts: SHUTDOWNS,
    },
    Word {
        names: &[
            "lock",
            "inhibitor",
            "inhibitor lock",
            "delay lock",
            "block lock",
            "systemd-inhibit",
        ],
        meaning: "A program asks logind to wait before a shutdown (a delay lock, at most InhibitDelayMaxSec), or to refuse the shutdown (a block \
                  lock). Pods get their grace period in a shutdown only while the kubelet holds a delay lock. `systemd-inhibit --list` \
                  shows all locks. `epitaph doctor --only shutdown` shows the kubelet's lock and how long logind waits.",
        verdicts: &["unprotected", "truncated", "blocked", "bypassed", "graceful"],
    },
    Word {
        names: &["drain", "drained", "kubectl drain", "cordon", "cordoned"],
        meaning: "Before a node goes, `kubectl drain` evicts its pods through the Eviction API (the cause evicted-api), as an autoscaler \
                  does. Each pod gets its own grace period, or the grace period of `--grace-period`. The endpoints of an evicted pod stop \
                  being ready at once. At a shutdown of the node without a drain, the endpoints of a pod that the kubelet stops can stay \
                  ready. `kubectl cordon` keeps new pods away, and stops no pod.",
        verdicts: DELETED,
    },
];
