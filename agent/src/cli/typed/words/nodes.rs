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
        meaning: "The kubelet stopped posting the node's status, so that the control plane set `Ready` to Unknown, and after five minutes \
                  requested the deletion of the pods by a taint: whether the machine runs is not known, and nothing has stopped the containers.",
        verdicts: LOST,
    },
    Word {
        names: &["PodStuckOnLostNode", "node.lost", "pod.lost"],
        meaning: "A node is not ready, and pods on it cannot be terminated: the Event of `epitaph observer` on a StatefulSet or pod that waits for \
                  the node, and the root spans of the node and of each pod, which end when the pods are gone. They have the verdict and the next \
                  command; the observer's log has the same for the node.",
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
        meaning: "The reason in a pod's status while its node does not answer: whether the containers still run is not known, and nothing has \
                  stopped them. `epitaph observer` reports lost nodes.",
        verdicts: LOST,
    },
    Word {
        names: &["NodeShutdown", "Shutdown"],
        meaning: "The kubelet stopped the pod because the node was shutting down, or refused the pod meanwhile: the cause node-shutdown. Newer \
                  kubelets give the reason Terminated.",
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
        meaning: "The node booted again. The shutdown before has a verdict of its own, and a container that the shutdown ended has the cause \
                  node-shutdown, or, where nothing announced it, an unknown end.",
        verdicts: SHUTDOWNS,
    },
    Word {
        names: &["down", "node down", "node.down"],
        meaning: "Not a verdict: the time from the last evidence before a shutdown of the node until the next boot, as `epitaph list` shows it. The \
                  shutdown before it has a verdict.",
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
                  lock). Pods get their grace period in a shutdown only while the kubelet holds a delay lock. `systemd-inhibit --list` shows all \
                  locks, `epitaph doctor --only shutdown` the kubelet's lock and how long logind waits.",
        verdicts: &["unprotected", "truncated", "blocked", "bypassed", "graceful"],
    },
    Word {
        names: &["drain", "drained", "kubectl drain", "cordon", "cordoned"],
        meaning: "Before a node goes, `kubectl drain` evicts its pods through the Eviction API (the cause evicted-api), as an autoscaler does: each gets \
                  its own grace period, or that of `--grace-period`. The endpoints of an evicted pod stop being ready at once; at a shutdown of the node, the endpoints of a pod that the kubelet stops can stay ready. `kubectl cordon` keeps new pods away, and stops none.",
        verdicts: DELETED,
    },
];
