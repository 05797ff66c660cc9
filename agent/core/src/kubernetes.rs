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

/// Least time between a stop signal and the SIGKILL, whatever is left of the grace.
const LEAST_WAIT: Duration = Duration::from_secs(2);

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

    /// When the runtime may send SIGKILL at the earliest. `stop` is the runtime's stop signal. None where the grace is not known, or
    /// when the kubelet began to count it.
    pub fn grace_end(&self, stop: Option<Boot>) -> Option<Boot> {
        let grace = self.grace?;
        // A request after the stop signal is not why it was sent.
        let request = self.request.as_ref();
        let request = request.filter(|request| stop.is_none_or(|stop| request.earliest <= stop));
        let begin = match request {
            Some(request) if grace < request.grace => request.shortened.last().map_or(request.latest, |(seen, _)| *seen),
            Some(request) => request.latest,
            // The kubelet runs the hook first, at a time that nothing shows.
            None => stop.filter(|_| self.pre_stop.is_none())?,
        };
        let least = stop.map(|stop| stop.plus(LEAST_WAIT));
        Some(begin.plus(grace)).max(least)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pods::context;

    fn at(seconds: u64) -> Boot {
        Boot(seconds * 1_000_000_000)
    }

    /// Requested between 9 and 10 s, with a grace of 30 s.
    fn requested() -> PodContext {
        PodContext {
            request: Some(Request {
                earliest: at(9),
                latest: at(10),
                grace: Duration::from_secs(30),
                shortened: vec![],
                skew: None,
            }),
            ..context("app", ContainerKind::Main)
        }
    }

    #[test]
    fn the_grace_begins_with_the_request_and_leaves_two_seconds_after_the_stop_signal() {
        assert_eq!(requested().grace_end(Some(at(12))), Some(at(40)));
        assert_eq!(requested().grace_end(None), Some(at(40)));
        assert_eq!(requested().grace_end(Some(at(39))), Some(at(41)), "a slow preStop hook");
        let mut unknown = requested();
        unknown.grace = None;
        assert_eq!(unknown.grace_end(Some(at(12))), None);
    }

    #[test]
    fn a_shortened_grace_begins_with_the_later_request() {
        let mut of = requested();
        let request = of.request.as_mut().expect("a request");
        request.shortened = vec![(at(20), Duration::from_secs(5))];
        assert_eq!(of.grace_end(Some(at(12))), Some(at(40)), "the kubelet kept to the first");
        of.grace = Some(Duration::from_secs(5));
        assert_eq!(of.grace_end(Some(at(12))), Some(at(25)));
    }

    #[test]
    fn without_a_request_the_grace_begins_with_the_stop_signal() {
        let mut of = requested();
        assert_eq!(of.grace_end(Some(at(8))), Some(at(38)), "the request came later");
        of.request = None;
        assert_eq!(of.grace_end(Some(at(12))), Some(at(42)));
        assert_eq!(of.grace_end(None), None);
        of.pre_stop = Some(PreStopRun {
            hook: PreStop::Sleep { seconds: 1 },
            begin: None,
            end: None,
            status: None,
            seen: false,
            failed: None,
            events_unknown: None,
        });
        assert_eq!(of.grace_end(Some(at(12))), None, "the begin of the hook is not known");
    }
}
