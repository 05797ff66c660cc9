//! What Kubernetes wanted of a container that ended: the API's timeline joined to the kernel's. Made by `correlate`, read by
//! `verdict`, `render` and the sinks.

use std::sync::Arc;
use std::time::Duration;

use crate::axes::Cause;
use crate::event::ExitStatus;
use crate::pod::{ContainerKind, PodIdentity, PodOptions, PreStop};
use crate::time::Boot;

/// The pod's side of one container's termination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodContext {
    pub pod: Arc<PodIdentity>,
    /// The container's name; None where no status named its id (yet).
    pub container: Option<String>,
    pub kind: Option<ContainerKind>,
    pub image: Option<String>,
    /// Restarts before this termination.
    pub restarts: u32,
    pub options: PodOptions,
    /// Why it had to end, where Kubernetes says so.
    pub asked: Option<Asked>,
    /// The pod's deletion request, where there was one.
    pub request: Option<Request>,
    /// The grace that counted for this termination, with all that shortened it; None unknown.
    pub grace: Option<Duration>,
    pub pre_stop: Option<PreStopRun>,
    /// When the last of the pod's main containers ended, for a sidecar's termination: sidecars wait for them.
    pub mains_ended: Option<Boot>,
    /// hostPID or shareProcessNamespace: no pid namespace of its own, so its main process is no init.
    pub shares_pid_namespace: bool,
    /// What the API says of its end, once it does.
    pub reported: Option<Reported>,
    /// The API was away while it ended, or a relist hid what happened: this may be incomplete, and why.
    pub incomplete: Option<String>,
}

/// Why it had to end, by evidence of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub cause: Cause,
    /// What says so: `deletionTimestamp`, `DisruptionTarget=EvictionByEvictionAPI`, `status.reason=Evicted`,
    /// `Event Killing: …`.
    pub evidence: String,
    pub detail: Option<Detail>,
}

/// What the evidence says beyond the cause. Messages are bounded to 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Of [`Cause::Restart`].
    DefinitionChanged,
    ResizeRequiresRestart,
    /// Of [`Cause::Deleted`]: pod garbage collection did it.
    PodGc {
        message: String,
    },
    /// Of [`Cause::EvictedNodePressure`]: which resource, and who used it.
    OutOfResource {
        message: String,
    },
}

/// When the deletion was asked for, on this node's clock: at no earlier and no later than.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub earliest: Boot,
    pub latest: Boot,
    /// `deletionGracePeriodSeconds` of the first request.
    pub grace: Duration,
    /// Later requests that shortened it: when seen, and to what.
    pub shortened: Vec<(Boot, Duration)>,
    /// The API server's clock minus ours, nanoseconds, at least and at most; None not measured.
    pub skew: Option<(i64, i64)>,
}

/// How long after the grace a busy kubelet and runtime may still be about to kill.
const SLOW_KILL: Duration = Duration::from_secs(10);

impl Request {
    /// The last of the later ones, where it can have counted for what ended then: kubelets were seen to wait for the first grace
    /// all the same.
    pub fn shortened_for(&self, end: Boot) -> Option<(Boot, Duration)> {
        let first = self.earliest.plus(self.grace);
        let counted = |(seen, grace): &(Boot, Duration)| end < first && end < seen.plus(*grace).plus(SLOW_KILL);
        self.shortened.last().copied().filter(counted)
    }
}

/// What became of the preStop hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreStopRun {
    pub hook: PreStop,
    /// From its exec (an `exec` hook), or from the request to the stop signal (the others, which no process here shows).
    pub begin: Option<Boot>,
    /// Its process's end, or the stop signal before which the kubelet waited for it.
    pub end: Option<Boot>,
    /// Of an `exec` hook, where its process was known for certain.
    pub status: Option<ExitStatus>,
    /// The process was known by its place between request and stop signal, its name and its ancestry; else the times are
    /// those of the wait.
    pub seen: bool,
    /// `FailedPreStopHook`, where such an Event came.
    pub failed: Option<String>,
    /// Why there may be such an Event although none came.
    pub events_unknown: Option<String>,
}

/// `state.terminated`, as a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    pub exit_code: i32,
    pub reason: Option<String>,
}

/// What is known of a pod's end besides its containers' own terminations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTerminationFacts {
    pub pod: Arc<PodIdentity>,
    pub boot_id: String,
    pub asked: Option<Asked>,
    pub request: Option<Request>,
    /// The request at its earliest, or the first evidence where that is earlier or there was no request.
    pub begin: Boot,
    /// End of the last container.
    pub end: Boot,
    /// Named by the API and ended, but never seen by the probes: name and what the API says.
    pub unseen: Vec<(String, Option<Reported>)>,
    /// When the API did not show it any more, and whether a watch showed that.
    pub gone: Option<(Boot, bool)>,
}

impl PodContext {
    /// "container `app`", for sentences.
    pub fn name(&self) -> String {
        match &self.container {
            Some(name) => format!("container `{name}`"),
            None => "a container of unknown name".to_owned(),
        }
    }
}

impl Reported {
    /// The runtime or the kubelet says that its program was never run.
    pub fn never_started(&self) -> bool {
        const REASONS: [&str; 7] = [
            "StartError",
            "ContainerCannotRun",
            "CreateContainerConfigError",
            "CreateContainerError",
            "RunContainerError",
            "PreCreateHookError",
            "PreStartHookError",
        ];
        self.reason.as_deref().is_some_and(|reason| REASONS.contains(&reason))
    }
}
