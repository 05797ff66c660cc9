//! The table of what other tools show.

/// Something that another tool shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The first one is the title.
    pub names: &'static [&'static str],
    pub meaning: &'static str,
    /// Verdicts of terminations for which the word is shown; the likelier ones first.
    pub verdicts: &'static [&'static str],
}

/// Signals that a process causes itself.
const FAULT: &[&str] = &["crashed", "killed-by-other", "nonzero-exit"];

/// Ways to a SIGKILL.
const KILLED: &[&str] = &[
    "oom-killed",
    "ignored-stop-signal",
    "killed-after-grace",
    "blocked-stop-signal",
    "prestop-overran",
    "sidecar-starved",
    "force-killed",
    "truncated-by-shutdown",
    "killed-by-other",
];

/// Ends at a deletion, an eviction or a shutdown of the node.
const DELETED: &[&str] = &[
    "killed-after-grace",
    "ignored-stop-signal",
    "prestop-overran",
    "default-action",
    "force-killed",
    "clean",
    "clean-exit",
];

/// The observer's verdicts on a node that is not ready.
const LOST: &[&str] = &["lost", "unreachable", "fenced-by-taint"];

/// Verdicts on a shutdown of the node after which the node was down.
const SHUTDOWNS: &[&str] = &["graceful", "truncated", "unprotected", "bypassed", "unannounced"];

/// The program of a unit did not start.
const NOT_STARTED: &[&str] = &["nonzero-exit"];

/// Without names of verdicts, causes and traffic values.
pub const WORDS: [Word; 63] = [
    Word {
        names: &["137", "SIGKILL", "signal 9", "Killed", "signal: killed"],
        meaning: "Exit code 137 is 128 + 9: SIGKILL ended the process. The code alone shows neither the sender nor the reason: the OOM \
                  killer, the container runtime after the grace period, systemd at a shutdown of the node, or another process. In a pod's status the code can also be made up by the kubelet.",
        verdicts: KILLED,
    },
    Word {
        names: &["143", "SIGTERM", "signal 15", "signal: terminated"],
        meaning: "Exit code 143 is 128 + 15: SIGTERM. Either the process has no handler and SIGTERM ended it at once, or its handler ran and \
                  the program (Java, many others) then exited with this code, which is clean.",
        verdicts: &[
            "default-action",
            "clean",
            "clean-exit",
            "refused-connections",
            "cut-connections",
            "nonzero-exit",
            "truncated-by-shutdown",
        ],
    },
    Word {
        names: &["OOMKilled", "OOM", "oom-kill"],
        meaning: "The OOM killer killed a process of the container: perhaps not the main process, and perhaps long before the container \
                  exited: the reason stays in the status once any process was killed. A kill of the main process can also be missing there.",
        verdicts: &["oom-killed", "oom-child"],
    },
    Word {
        names: &["unclean"],
        meaning: "Not a verdict: a termination is unclean if its verdict says that work or requests of clients may have been lost. `epitaph \
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
        meaning: "The reason in a pod's status for every exit code other than 0, where no other reason is known; also for 143 of a clean shutdown. Look at the \
                  exit code, which `epitaph explain` knows too.",
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
        meaning: "Not a termination: the container terminated again and again, also with exit code 0, and the kubelet waits before the next \
                  start. `epitaph list` shows the terminations before the wait.",
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
        names: &[
            "502",
            "502 Bad Gateway",
            "503",
            "504",
            "503 Service Unavailable",
            "504 Gateway Timeout",
        ],
        meaning: "Status codes that a proxy or ingress makes itself. 502: the connection to the pod was refused or ended before the \
                  answer. 503: the proxy knows no pod to connect to, or gave up. 504: the pod did not answer in time. In a rollout, \
                  compare the time with terminations: `epitaph list --since 1h`. Epitaph does not read answers of the application.",
        verdicts: &[
            "refused-connections",
            "reset-connections",
            "cut-connections",
            "proxy-rejected",
            "undecided-connections",
        ],
    },
    Word {
        names: &["ECONNREFUSED", "connection refused", "connect: connection refused"],
        meaning: "No process listened at that address any more, or not yet; or kube-proxy or a firewall rejected the connection. \
                  Whether this node's kernel shows all refused clients: `epitaph doctor --only observation`, line `probe tcp_send_reset`.",
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
        meaning: "Deletion was requested, and the pod still exists: a preStop hook or the shutdown takes its time, the stop signal was ignored \
                  and the grace period runs, a process cannot be killed; or, after all containers have exited, the runtime, the sandbox, its network, \
                  a volume or a finalizer holds the pod: the Event `TerminationHeld` names which (`epitaph explain held-by-finalizer`).",
        verdicts: &[
            "ignored-stop-signal",
            "killed-after-grace",
            "prestop-overran",
            "blocked-stop-signal",
            "stuck",
        ],
    },
    Word {
        names: &["RestartingAllContainers", "AllContainersRestarting", "RestartAllContainers"],
        meaning: "The pod restarted in place (Kubernetes 1.36): one container exited with a code of its restart rules, and the kubelet ended and removed all others. The exit code 137 \
                  is the kubelet's own for each of them: it proves no SIGKILL.",
        verdicts: &["clean", "killed-after-grace", "refused-connections", "cut-connections"],
    },
    Word {
        names: &["stopSignal", "lifecycle.stopSignal", "ContainerStopSignals"],
        meaning: "The signal by which a container is asked to stop: `lifecycle.stopSignal` of the container (Kubernetes 1.33, feature gate ContainerStopSignals; \
                  needs `spec.os.name`), otherwise `STOPSIGNAL` of its image, otherwise SIGTERM. Where the runtime sent another one, the sentence names both.",
        verdicts: &["clean", "ignored-stop-signal", "default-action", "killed-after-grace"],
    },
    Word {
        names: &["ContainerStatusUnknown"],
        meaning: "The kubelet did not find the container any more and reports exit code 137 without having observed the exit: the code does not prove a SIGKILL. Often the node was \
                  restarted, or the container runtime lost its state.",
        verdicts: &["unknown", "runtime-failed"],
    },
    Word {
        names: &["1"],
        meaning: "The program reported an error of its own: read its log. After a stop signal it often means that the shutdown failed.",
        verdicts: &["nonzero-exit", "oom-child"],
    },
    Word {
        names: &["2"],
        meaning: "The program reported an error of its own. A shell exits with 2 for wrong usage, and so does a Go program as PID 1 that has no \
                  handler for SIGTERM.",
        verdicts: &["nonzero-exit", "oom-child"],
    },
    Word {
        names: &["124"],
        meaning: "By the convention of timeout(1): the command ran longer than its limit, and timeout ended it with SIGTERM. Otherwise the \
                  program's own code.",
        verdicts: &["nonzero-exit", "prestop-failed"],
    },
    Word {
        names: &["125"],
        meaning: "By the convention of `docker run`, timeout(1) and env(1): the tool itself failed, and the command was not started. Otherwise the \
                  program's own code.",
        verdicts: &["nonzero-exit", "runtime-failed", "prestop-failed"],
    },
    Word {
        names: &["126"],
        meaning: "By a shell's convention: the command was found and could not be executed (not executable, wrong architecture).",
        verdicts: &["nonzero-exit", "runtime-failed", "prestop-failed"],
    },
    Word {
        names: &["127"],
        meaning: "By a shell's convention: the command was not found in the image.",
        verdicts: &["nonzero-exit", "runtime-failed", "prestop-failed"],
    },
    Word {
        names: &[
            "128",
            "StartError",
            "RunContainerError",
            "ContainerCannotRun",
            "CreateContainerError",
        ],
        meaning: "The container runtime did not start the program: the command, a mount or the image is wrong. No process ran.",
        verdicts: &["runtime-failed"],
    },
    Word {
        names: &["130", "SIGINT", "signal 2", "signal: interrupt"],
        meaning: "Exit code 130 is 128 + 2: SIGINT, as by Ctrl-C or `STOPSIGNAL SIGINT`. Either no handler ran, or the handler exited with \
                  this code.",
        verdicts: &["default-action", "clean", "nonzero-exit", "killed-by-other"],
    },
    Word {
        names: &["131", "SIGQUIT", "signal 3", "signal: quit"],
        meaning: "Exit code 131 is 128 + 3: SIGQUIT, the stop signal of nginx, php-fpm and others. Either no handler ran, or the handler exited \
                  with this code.",
        verdicts: &["default-action", "clean", "nonzero-exit", "killed-by-other"],
    },
    Word {
        names: &["129", "SIGHUP", "signal 1", "signal: hangup"],
        meaning: "Exit code 129 is 128 + 1: SIGHUP. Many programs read their configuration anew at SIGHUP; without a handler it ends them.",
        verdicts: &["killed-by-other", "default-action", "nonzero-exit"],
    },
    Word {
        names: &["139", "SIGSEGV", "signal 11", "Segmentation fault"],
        meaning: "Exit code 139 is 128 + 11: a segmentation fault, an invalid access to memory in the program or one of its libraries.",
        verdicts: FAULT,
    },
    Word {
        names: &["134", "SIGABRT", "signal 6", "Aborted"],
        meaning: "Exit code 134 is 128 + 6: the program aborted itself: a failed assertion, a panic, an uncaught exception.",
        verdicts: FAULT,
    },
    Word {
        names: &["132", "SIGILL", "signal 4"],
        meaning: "Exit code 132 is 128 + 4: an instruction that this CPU does not have, or a trap of the compiler.",
        verdicts: FAULT,
    },
    Word {
        names: &["159", "SIGSYS", "signal 31", "Bad system call", "seccomp"],
        meaning: "Exit code 159 is 128 + 31: the kernel refused a system call of the program, because a seccomp filter does not allow it \
                  (`seccompProfile` of a pod, a profile of the container runtime, `SystemCallFilter=` of a unit, or a sandbox of the program's own). \
                  From Linux 5.16 on, the report of a main process that ends so names the system call.",
        verdicts: FAULT,
    },
    Word {
        names: &["135", "SIGBUS", "signal 7"],
        meaning: "Exit code 135 is 128 + 7: a bus error, often a file mapped into memory that was truncated, or a full disk below it.",
        verdicts: FAULT,
    },
    Word {
        names: &["136", "SIGFPE", "signal 8"],
        meaning: "Exit code 136 is 128 + 8: an arithmetic fault, such as a division by zero.",
        verdicts: FAULT,
    },
    Word {
        names: &["138", "SIGUSR1", "signal 10"],
        meaning: "Exit code 138 is 128 + 10: SIGUSR1. Many programs rotate their logs or print their state at SIGUSR1; without a handler it \
                  ends them.",
        verdicts: &["killed-by-other", "default-action", "nonzero-exit"],
    },
    Word {
        names: &["140", "SIGUSR2", "signal 12"],
        meaning: "Exit code 140 is 128 + 12: SIGUSR2. Many programs replace themselves with a new version at SIGUSR2; without a handler it \
                  ends them.",
        verdicts: &["killed-by-other", "default-action", "nonzero-exit"],
    },
    Word {
        names: &["141", "SIGPIPE", "signal 13"],
        meaning: "Exit code 141 is 128 + 13: the program wrote to a pipe or connection that its reader had closed.",
        verdicts: FAULT,
    },
    Word {
        names: &["SIGRTMIN+3", "165", "signal 37"],
        meaning: "Exit code 165 is 128 + 37: SIGRTMIN+3, the stop signal of containers in which systemd is PID 1 (`STOPSIGNAL SIGRTMIN+3`), \
                  where it means halt.",
        verdicts: &["default-action", "clean", "ignored-stop-signal", "killed-after-grace"],
    },
    Word {
        names: &["200", "200/CHDIR"],
        meaning: "For a systemd unit: systemd did not start the program, because its WorkingDirectory= does not exist or cannot be entered. \
                  Otherwise the program's own code.",
        verdicts: NOT_STARTED,
    },
    Word {
        names: &["203", "203/EXEC"],
        meaning: "For a systemd unit: systemd could not execute the program of ExecStart=: a wrong path, not executable, a missing interpreter, \
                  or the wrong architecture. Otherwise the program's own code.",
        verdicts: NOT_STARTED,
    },
    Word {
        names: &["217", "217/USER"],
        meaning: "For a systemd unit: systemd did not start the program, because the user of User= does not exist or cannot be assumed. \
                  Otherwise the program's own code.",
        verdicts: NOT_STARTED,
    },
    Word {
        names: &["226", "226/NAMESPACE"],
        meaning: "For a systemd unit: systemd did not start the program, because its mount namespace could not be set up: often a path of \
                  ReadWritePaths= or BindPaths= that does not exist. Otherwise the program's own code.",
        verdicts: NOT_STARTED,
    },
    Word {
        names: &["255", "Unknown"],
        meaning: "Exit code 255 with the reason Unknown: the container runtime lost the container, for example when the node was restarted. \
                  Without that reason: the program's own code (-1).",
        verdicts: &["unknown", "nonzero-exit", "runtime-failed"],
    },
    Word {
        names: &["Evicted"],
        meaning: "The kubelet evicted the pod because the node ran out of memory, disk or process ids; the causes evicted-node-pressure, \
                  evicted-api, evicted-taint and evicted-preempted are the other evictions.",
        verdicts: &["killed-after-grace", "ignored-stop-signal", "force-killed", "clean"],
    },
    Word {
        names: &["Terminated"],
        meaning: "The state that `kubectl describe pod` shows for every container that has exited: look at its reason and exit code. As the \
                  reason of a failed pod: the kubelet stopped the pod because the node was shutting down, the cause node-shutdown. A shell \
                  prints the word for SIGTERM.",
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
        names: &["Preempting", "Preempted"],
        meaning: "The pod gave way to a pod of higher priority: the cause evicted-preempted.",
        verdicts: DELETED,
    },
    Word {
        names: &["Unhealthy"],
        meaning: "An Event, not a termination: a probe failed. The kubelet restarts the container when the liveness or startup probe has failed often \
                  enough: the causes liveness and startup.",
        verdicts: DELETED,
    },
    Word {
        names: &["FailedPreStopHook"],
        meaning: "An Event: the preStop hook failed, or the kubelet cut it off at the end of the grace period. The stop signal follows all the same.",
        verdicts: &["prestop-failed", "prestop-overran"],
    },
    Word {
        names: &["preStop", "preStop hook", "lifecycle.preStop"],
        meaning: "The command or request that the kubelet runs before the stop signal, within the grace period of the pod: what the hook takes is \
                  missing for the shutdown.",
        verdicts: &["prestop-overran", "prestop-failed", "killed-after-grace"],
    },
    Word {
        names: &[
            "StopSignalIgnored",
            "SIGTERM ignored",
            "SIGTERM was ignored",
            "stop signal ignored",
        ],
        meaning: "The early warning, as an Event and a metric: the kernel discarded the stop signal, so the process runs on until the runtime kills \
                  it at the end of the grace period.",
        verdicts: &["ignored-stop-signal"],
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
        names: &["DeadlineExceeded"],
        meaning: "The pod exceeded `activeDeadlineSeconds`: the cause deadline.",
        verdicts: &["killed-after-grace", "ignored-stop-signal", "default-action", "clean"],
    },
    Word {
        names: &["ImagePullBackOff", "ErrImagePull"],
        meaning: "Not a termination: the image cannot be pulled, and no process has run. `kubectl describe pod` shows the error.",
        verdicts: &["runtime-failed"],
    },
    Word {
        names: &["core-dump", "dumped"],
        meaning: "systemd's result of a unit: a signal that dumps core ended the main process: a fault or an abort of its own, or SIGQUIT or SIGABRT \
                  from outside. `coredumpctl` shows the dump.",
        verdicts: &["crashed", "default-action", "killed-by-other"],
    },
    Word {
        names: &["watchdog"],
        meaning: "systemd's result of a unit: the service did not report in time (WatchdogSec=), and systemd sent SIGABRT, which is then the stop \
                  signal. The program hung, or does not call sd_notify(3).",
        verdicts: &["default-action", "killed-after-grace", "blocked-stop-signal"],
    },
    Word {
        names: &["timeout"],
        meaning: "systemd's result of a unit: the start took longer than TimeoutStartSec=, or the stop longer than TimeoutStopSec=, after which systemd \
                  sends SIGKILL.",
        verdicts: &[
            "killed-after-grace",
            "ignored-stop-signal",
            "blocked-stop-signal",
            "default-action",
        ],
    },
    Word {
        names: &["start-limit-hit"],
        meaning: "systemd's result of a unit, not a termination: the unit was started too often (StartLimitBurst=), and is not started again. \
                  `epitaph list` shows the terminations before that; `systemctl reset-failed UNIT` allows a start.",
        verdicts: &[
            "nonzero-exit",
            "crashed",
            "oom-killed",
            "oom-child",
            "killed-by-other",
            "clean",
        ],
    },
    Word {
        names: &["exit-code"],
        meaning: "systemd's result of a unit: the main process exited with a code other than 0, which `systemctl status` shows \
                  (`status=203/EXEC`) and `epitaph explain` knows.",
        verdicts: &["nonzero-exit", "oom-child"],
    },
    Word {
        names: &["signal"],
        meaning: "systemd's result of a unit: a signal ended the main process without a core dump; `systemctl status` shows which \
                  (`status=9/KILL`), and `epitaph explain` knows it.",
        verdicts: &[
            "oom-killed",
            "default-action",
            "ignored-stop-signal",
            "killed-after-grace",
            "killed-by-other",
            "crashed",
        ],
    },
];
