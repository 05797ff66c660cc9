//! The three axes of a verdict: why the subject terminated, how it exited, and what its clients observed. And the one axis of a node's
//! shutdown: how it treated the pods.

use serde::Serialize;

/// Why the subject terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The runtime (or systemd) stopped it; without Kubernetes the reason is not known.
    Stopped,
    /// Exited by itself with code 0.
    Completed,
    /// The pod was deleted.
    Deleted,
    /// The Eviction API, as `kubectl drain` and the cluster autoscaler use it.
    EvictedApi,
    /// The kubelet: the node ran out of memory, disk or process ids, or the pod over its own ephemeral storage.
    EvictedNodePressure,
    /// A NoExecute taint that the pod does not tolerate.
    EvictedTaint,
    /// The scheduler, or the kubelet for a critical pod, made room for a pod of higher priority.
    EvictedPreempted,
    /// The pod exceeded its own `activeDeadlineSeconds`; if the Job exceeds its own deadline, the cause is [`Cause::Deleted`].
    Deadline,
    Liveness,
    Startup,
    /// The kubelet restarted or ended the container alone: a changed definition, a resize, or no evidence of the reason.
    Restart,
    /// The kubelet restarted all containers of the pod in place, because one of them exited with a code of its restart rules.
    RestartInPlace,
    NodeShutdown,
    Oom,
    /// Its own fault: a signal raised by itself or a non-zero exit code.
    Crash,
    /// A signal from a process that is neither the runtime nor the subject.
    External,
    Unknown,
}

/// How the main process exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    Clean,
    DefaultAction,
    NonzeroExit,
    IgnoredStopSignal,
    BlockedStopSignal,
    KilledAfterGrace,
    /// The preStop hook used up the grace period: the rest was too short.
    PrestopOverran,
    PrestopFailed,
    /// A sidecar was killed because the main containers had used up the grace period.
    SidecarStarved,
    /// Still runs long after the grace period.
    Stuck,
    /// The container was never started, or the runtime lost it.
    RuntimeFailed,
    ForceKilled,
    OomKilled,
    OomChild,
    KilledByOther,
    Crashed,
    /// The node's shutdown ended the process before its own grace period was over.
    TruncatedByShutdown,
    Unknown,
}

/// What clients observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficAxis {
    /// No connection was lost, and none was undecided.
    Quiet,
    /// Connections were open at the exit, and whether a request or an answer was under way is not known.
    Undecided,
    Refused,
    /// Only peers that had not connected before were refused: new clients, or a scan.
    RefusedNewPeers,
    /// Clients on this node were rejected before they reached the subject (ICMP: a proxy's or a policy's REJECT, no route).
    ProxyRejected,
    Reset,
    Cut,
    /// Sockets were not observed.
    Unknown,
}

/// How a node's shutdown went, for the pods on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShutdownOutcome {
    Graceful,
    /// Pods still ran when their phase or logind's delay was over.
    Truncated,
    /// logind was asked, and the kubelet had no lock.
    Unprotected,
    /// The machine was stopped without logind.
    Bypassed,
    /// Nothing announced it: power loss, reset, `reboot -f`.
    Unannounced,
    /// The announcement did not come from logind.
    Spoofed,
    Cancelled,
    /// A scheduled shutdown did not begin because of a block lock.
    Blocked,
    Unknown,
}
