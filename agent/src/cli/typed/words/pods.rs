//! Of pods and their clients: reasons, Events, settings and errors.

use super::{DELETED, HELD, Word};

pub(super) const PODS: &[Word] = &[
    Word {
        names: &["OOMKilled", "OOM", "oom-kill", "out of memory", "oom killer"],
        meaning: "The OOM killer killed a process of the container. This may not have been the main process, and it may have happened long \
                  before the container exited, because the reason stays in the pod's status once any process was killed. The reason can \
                  also be missing although the main process was killed.",
        verdicts: &["oom-killed", "oom-child"],
    },
    Word {
        names: &["unclean"],
        meaning: "This is not a verdict. A termination is unclean if its verdict says that work or requests of clients may have been lost. \
                  `epitaph \
                  explain` marks these verdicts with `!`.",
        verdicts: &[
            "oom-killed",
            "oom-child",
            "crashed",
            "killed-by-other",
            "stuck",
            "runtime-failed",
            "truncated-by-shutdown",
            "killed-after-grace",
            "prestop-overran",
            "sidecar-starved",
            "force-killed",
            "blocked-stop-signal",
            "ignored-stop-signal",
            "default-action",
            "prestop-failed",
            "nonzero-exit",
            "cut-connections",
            "reset-connections",
            "refused-connections",
            "proxy-rejected",
            "refused-new-peers",
        ],
    },
    Word {
        names: &["Error"],
        meaning: "The reason in a pod's status for every exit code other than 0, if no other reason is known. The code 143 of a clean \
                  shutdown has this reason, too. Look at the exit code: `epitaph explain CODE` explains it.",
        verdicts: &[
            "nonzero-exit",
            "ignored-stop-signal",
            "killed-after-grace",
            "default-action",
            "crashed",
            "oom-killed",
            "oom-child",
            "blocked-stop-signal",
            "prestop-overran",
            "sidecar-starved",
            "force-killed",
            "truncated-by-shutdown",
            "killed-by-other",
            "clean",
            "clean-exit",
        ],
    },
    Word {
        names: &["CrashLoopBackOff", "BackOff"],
        meaning: "This is not a termination. The container terminated again and again, perhaps also with exit code 0, and the kubelet \
                  waits before the next start. `epitaph list` shows the terminations before the wait.",
        verdicts: &[
            "nonzero-exit",
            "crashed",
            "oom-killed",
            "oom-child",
            "runtime-failed",
            "clean",
        ],
    },
    Word {
        names: &["Completed", "0"],
        meaning: "The main process exited with code 0, by itself or after a stop signal. Connections of clients may still have been \
                  refused, reset or cut.",
        verdicts: &[
            "clean",
            "clean-exit",
            "refused-connections",
            "refused-new-peers",
            "reset-connections",
            "cut-connections",
            "proxy-rejected",
            "undecided-connections",
            "prestop-failed",
        ],
    },
    Word {
        names: &["ECONNREFUSED", "connection refused", "connect: connection refused"],
        meaning: "No process listened at that address any more, or not yet; or kube-proxy or a firewall rejected the connection. \
                  The line `probe tcp_send_reset` of `epitaph doctor --only observation` shows whether this node's kernel shows all \
                  refused clients.",
        verdicts: &["refused-connections", "refused-new-peers", "proxy-rejected", "clean-exit"],
    },
    Word {
        names: &[
            "ECONNRESET",
            "connection reset by peer",
            "connection reset",
            "EPIPE",
            "broken pipe",
            "unexpected EOF",
            "socket hang up",
            "upstream prematurely closed connection",
        ],
        meaning: "The server closed the connection while the client still used it: at the exit of the process, or because requests \
                  arrived after the server had closed the connection.",
        verdicts: &["reset-connections", "cut-connections", "undecided-connections"],
    },
    Word {
        names: &["Terminating"],
        meaning: "Deletion was requested, and the pod still exists. While a container runs, the reason can be a preStop hook or a shutdown \
                  that takes long, a stop signal that was ignored, or a process that cannot be killed. After all containers have exited, \
                  the runtime, the sandbox, its network, a volume or a finalizer holds the pod: `kubectl get events -A --field-selector \
                  reason=TerminationHeld` shows which of them.",
        verdicts: &[
            "ignored-stop-signal",
            "killed-after-grace",
            "prestop-overran",
            "blocked-stop-signal",
            "stuck",
            "held-by-runtime",
            "held-by-sandbox",
            "held-by-network",
            "held-by-volume",
            "held-by-kubelet",
            "held-by-finalizer",
            "held-by-api",
        ],
    },
    Word {
        names: &[
            "RestartingAllContainers",
            "AllContainersRestarting",
            "RestartAllContainers",
            "restarts in place",
            "restartPolicyRules",
        ],
        meaning: "The pod restarted in place (Kubernetes 1.36): one container exited with a code of its restart rules, and the kubelet \
                  ended and removed all other containers. The kubelet gives each of these the exit code 137, which does not prove a \
                  SIGKILL.",
        verdicts: &[
            "clean",
            "killed-after-grace",
            "nonzero-exit",
            "default-action",
            "ignored-stop-signal",
            "refused-connections",
            "cut-connections",
        ],
    },
    Word {
        names: &["systemd-oomd", "earlyoom", "nohang", "oomd"],
        meaning: "A daemon that kills processes before memory has run out. systemd-oomd sends SIGKILL to a whole cgroup; earlyoom and \
                  nohang first send SIGTERM. The kernel's OOM killer did nothing, so the pod's status normally has `Error` and 137 or 143. \
                  If it has OOMKilled, this is from an earlier OOM kill. The sentence names the daemon, and for systemd-oomd also its \
                  reason.",
        verdicts: &["oom-killed", "oom-child"],
    },
    Word {
        names: &[
            "worker",
            "helper",
            "exec-probe",
            "pre-stop",
            "exec-session",
            "from-outside",
            "unattributed",
        ],
        meaning: "What the victim of an OOM kill was, in `role`. `main`: the first process. `worker`: another process of the program, with \
                  sockets of clients. `helper`: another process of the program, without such sockets. `process`: another process, and it \
                  is not known whether it had such sockets. `exec-probe`, `pre-stop`, `exec-session`: a process that came in from outside. \
                  `from-outside`: one of these three, but a shell hides which one. `unattributed`: nothing shows whether the program or a \
                  process from outside started it. `runtime`: the container runtime's own process. If the victim came from outside, the \
                  program itself lost nothing.",
        verdicts: &["oom-child", "oom-killed", "clean"],
    },
    Word {
        names: &["TerminationHeld", "FailedKillPod"],
        meaning: "Events of a pod that is still Terminating although its containers have exited. Epitaph writes TerminationHeld, which \
                  names the layer that holds the pod. The kubelet writes FailedKillPod if the runtime could not end a container or the \
                  sandbox; the message names the step that failed, such as the network plugin. `kubectl get events -A --field-selector \
                  reason=TerminationHeld` lists the pods.",
        verdicts: HELD,
    },
    Word {
        names: &["TerminationStuck"],
        meaning: "An Event of epitaph on a pod: a process of the pod still runs long after the grace period.",
        verdicts: &["stuck"],
    },
    Word {
        names: &["terminationGracePeriodSeconds", "gracePeriodSeconds", "grace period", "grace"],
        meaning: "The time from the deletion request to SIGKILL. `terminationGracePeriodSeconds` in the spec is the pod's own grace \
                  period. A deletion can ask for another grace period: `kubectl delete` and `kubectl drain` with `--grace-period`, or an \
                  eviction with `deleteOptions.gracePeriodSeconds`. `kubectl delete --force` asks for none. If the deletion asked for another grace \
                  period than the spec has, the sentence names both. A longer grace period in the spec then changes nothing.",
        verdicts: &["killed-after-grace", "force-killed", "prestop-overran", "sidecar-starved"],
    },
    Word {
        names: &[
            "ScaleDown",
            "Disrupted",
            "cluster autoscaler",
            "autoscaler",
            "Karpenter",
            "NodePool",
            "aws-node-termination-handler",
            "node-termination-handler",
        ],
        meaning: "Who removes the node of the pod, by an eviction or a deletion. ScaleDown is the Event of the cluster autoscaler, and \
                  Disrupted is the Event of Karpenter. Each of these programs can give less than the pod's own grace period: \
                  `--max-graceful-termination-sec`, `terminationGracePeriod` of a NodePool, \
                  `--pod-termination-grace-period` of node-termination-handler.",
        verdicts: DELETED,
    },
    Word {
        names: &["stopSignal", "lifecycle.stopSignal", "ContainerStopSignals"],
        meaning: "The signal by which a container is asked to stop: `lifecycle.stopSignal` of the container (the feature gate ContainerStopSignals of API server \
                  and kubelet; needs `spec.os.name`), otherwise `STOPSIGNAL` of its image, otherwise SIGTERM. If the runtime sent another \
                  signal, the sentence names both signals.",
        verdicts: &["clean", "ignored-stop-signal", "default-action", "killed-after-grace"],
    },
    Word {
        names: &["sidecar", "sidecars", "native sidecar"],
        meaning: "An init container with `restartPolicy: Always`. The kubelet stops a sidecar after all main containers have exited, within the rest of the pod's grace period. A sidecar that exits earlier while the \
                  pod terminates, and is started again, has a report of its own.",
        verdicts: &["sidecar-starved", "killed-after-grace", "nonzero-exit", "clean"],
    },
    Word {
        names: &["disagrees", "kubectl shows", "wrong status"],
        meaning: "The pod's status and the kernel's record of the exit differ. The sentence has both, in the part that begins with \
                  `kubectl shows`. The kernel's record is right: \
                  `OOMKilled` stays in a status after an OOM kill of any process of the container, and 137 and 255 can stand for an exit that the kubelet \
                  did not observe.",
        verdicts: &["clean", "clean-exit", "nonzero-exit", "oom-child", "default-action"],
    },
    Word {
        names: &["endpoint", "endpoints", "EndpointSlice"],
        meaning: "An address to which a Service sends clients. When a pod is deleted, its endpoints stop being ready at once, but proxies learn this later. At a \
                  graceful shutdown of the node, endpoints can stay ready after the stop signal. A client that connects after the pod has closed its \
                  listener is refused.",
        verdicts: &[
            "refused-connections",
            "refused-new-peers",
            "cut-connections",
            "reset-connections",
        ],
    },
    Word {
        names: &["ContainerStatusUnknown"],
        meaning: "The kubelet did not find the container any more and reports exit code 137 without having observed the exit: the code does not prove a SIGKILL. Often the node was \
                  restarted, or the container runtime lost its state. The kernel's record may show any exit; the verdict uses that record.",
        verdicts: &[
            "unknown",
            "runtime-failed",
            "clean",
            "clean-exit",
            "nonzero-exit",
            "killed-after-grace",
            "truncated-by-shutdown",
        ],
    },
    Word {
        names: &["Evicted", "Evict", "evictionHard", "evictionSoft", "eviction"],
        meaning: "The kubelet evicted the pod because the node ran out of memory, disk or process ids, or the pod exceeded its ephemeral \
                  storage limit. The cause is evicted-node-pressure. Other evictions have the causes evicted-api (`kubectl drain`, an \
                  autoscaler), evicted-taint and evicted-preempted.",
        verdicts: &["killed-after-grace", "ignored-stop-signal", "force-killed", "clean"],
    },
    Word {
        names: &["Terminated"],
        meaning: "The state that `kubectl describe pod` shows for every container that has exited: look at its reason and exit code. As \
                  the reason of a failed pod it means that the kubelet stopped the pod because the node was shutting down; the cause is \
                  node-shutdown. A shell prints this word when SIGTERM has ended a program.",
        verdicts: &[
            "clean",
            "clean-exit",
            "nonzero-exit",
            "default-action",
            "truncated-by-shutdown",
            "killed-after-grace",
            "ignored-stop-signal",
        ],
    },
    Word {
        names: &["Preempting", "Preempted"],
        meaning: "The pod gave way to a pod of higher priority. The cause is evicted-preempted.",
        verdicts: DELETED,
    },
    Word {
        names: &["Unhealthy"],
        meaning: "An Event, not a termination: a probe failed. The kubelet restarts the container when the liveness or startup probe has \
                  failed often enough. The cause is then liveness or startup.",
        verdicts: DELETED,
    },
    Word {
        names: &["FailedPreStopHook"],
        meaning: "An Event: the preStop hook failed, or the kubelet cut it off at the end of the grace period. The stop signal follows all the same.",
        verdicts: &["prestop-failed", "prestop-overran"],
    },
    Word {
        names: &["preStop", "preStop hook", "lifecycle.preStop"],
        meaning: "The command or request that the kubelet runs before the stop signal, within the grace period of the pod. The time that \
                  the hook takes is missing for the shutdown.",
        verdicts: &["prestop-overran", "prestop-failed", "killed-after-grace"],
    },
    Word {
        names: &["DeadlineExceeded"],
        meaning: "The pod exceeded `activeDeadlineSeconds`. The cause is deadline.",
        verdicts: &["killed-after-grace", "ignored-stop-signal", "default-action", "clean"],
    },
    Word {
        names: &["ImagePullBackOff", "ErrImagePull"],
        meaning: "Not a termination: the image cannot be pulled, and no process has run. `kubectl describe pod` shows the error.",
        verdicts: &["runtime-failed"],
    },
    Word {
        names: &["Killing"],
        meaning: "An Event of the kubelet: it is about to stop a container. The message may have the reason, such as a failed probe. The \
                  Event does not show how the container terminated.",
        verdicts: DELETED,
    },
    Word {
        names: &["finalizer", "finalizers"],
        meaning: "A name in `metadata.finalizers`. The object stays after the containers have exited, until the controller that owns the \
                  name removes it from the list.",
        verdicts: &["held-by-finalizer"],
    },
];
