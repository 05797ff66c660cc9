//! Verdict: three axes, one constant table from axes to headline, a sentence and a remedy.

pub mod advice;
mod evidence;
pub mod judge;
mod pod;
mod sentence;
mod spent;
pub mod table;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::event::{Boot, Kind};

pub use advice::{Advice, AdviceKind};
pub use judge::judge;
pub use pod::pod;
pub use sentence::{OBSERVATION_ENDED, ignored, in_container, seconds};

/// Why it had to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Its runtime (or systemd) asked it to stop; without Kubernetes nobody says why.
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
    /// The pod's own `activeDeadlineSeconds` was over; over its Job's it is [`Cause::Deleted`].
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Info,
    Warning,
    Critical,
}

/// One piece of proof: which probe saw what, when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub at: Boot,
    #[serde(serialize_with = "source_name")]
    pub source: Source,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    Probe(Kind),
    /// The Kubernetes API: its times are when we were told, or whole seconds.
    Kubernetes,
}

impl Source {
    /// The probe's tracepoint (`signal_generate`), or `kubernetes`.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Probe(kind) => kind.name(),
            Source::Kubernetes => "kubernetes",
        }
    }
}

impl From<Kind> for Source {
    fn from(kind: Kind) -> Source {
        Source::Probe(kind)
    }
}

fn source_name<S: serde::Serializer>(source: &Source, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(source.name())
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// From the table: `clean`, `ignored-stop-signal`, `refused-connections`, …
    pub headline: &'static str,
    pub cause: Cause,
    pub exit: Exit,
    pub traffic: TrafficAxis,
    pub unclean: bool,
    pub severity: Severity,
    /// One plain sentence with the measured times.
    pub sentence: String,
    /// What to change, with a number where one was measured.
    pub remedy: Option<String>,
    /// What could be set better, by measurement; also of a clean end.
    pub advice: Vec<Advice>,
    /// In order of time.
    pub evidence: Vec<Evidence>,
}

impl Verdict {
    /// Before the judge has spoken.
    pub const fn pending() -> Verdict {
        Verdict {
            headline: "unknown",
            cause: Cause::Unknown,
            exit: Exit::Unknown,
            traffic: TrafficAxis::Unknown,
            unclean: false,
            severity: Severity::Warning,
            sentence: String::new(),
            remedy: None,
            advice: Vec::new(),
            evidence: Vec::new(),
        }
    }
}
