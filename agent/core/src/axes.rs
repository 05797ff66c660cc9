//! The three axes of a verdict: why it ended, how it ended, what its clients saw.

use serde::Serialize;

/// Why it had to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Its runtime (or systemd) asked it to stop; without Kubernetes it is not known why.
    Stopped,
    /// It ended of its own accord with exit code 0.
    Completed,
    /// Its pod was deleted.
    Deleted,
    /// The Eviction API, as `kubectl drain` and the cluster autoscaler use it.
    EvictedApi,
    /// The kubelet: the node ran out of memory, disk or process ids, or the pod over its own ephemeral storage.
    EvictedNodePressure,
    /// A NoExecute taint that the pod does not tolerate.
    EvictedTaint,
    /// The scheduler, or the kubelet for a critical pod, made room for a pod of higher priority.
    EvictedPreempted,
    /// The pod exceeded its own `activeDeadlineSeconds`; where its Job exceeds the Job's, it is [`Cause::Deleted`].
    Deadline,
    Liveness,
    Startup,
    /// The kubelet restarted or ended the container alone: its definition changed, a resize wants it, or no evidence names why.
    Restart,
    NodeShutdown,
    Oom,
    /// It ended by its own fault: a signal of its own or a non-zero exit code.
    Crash,
    /// Someone who is neither its runtime nor itself signalled it.
    External,
    Unknown,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    Clean,
    DefaultAction,
    NonzeroExit,
    IgnoredStopSignal,
    BlockedStopSignal,
    KilledAfterGrace,
    /// The preStop hook took the grace: what was left was too short.
    PrestopOverran,
    PrestopFailed,
    /// A sidecar was killed because the main containers had used up the grace.
    SidecarStarved,
    /// The grace is long over, and it still runs.
    Stuck,
    /// The container was never started, or the runtime lost it.
    RuntimeFailed,
    ForceKilled,
    OomKilled,
    OomChild,
    KilledByOther,
    Crashed,
    Unknown,
}

/// What its clients saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficAxis {
    Quiet,
    Refused,
    /// Clients on this node were turned away on the way to it (ICMP: a proxy's or a policy's REJECT, no route).
    ProxyRejected,
    Reset,
    Cut,
    /// Sockets were not observed.
    Unknown,
}
