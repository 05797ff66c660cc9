//! The Kubernetes context of a container's termination: the API's timeline joined to the kernel's. Made by `correlate`, read by
//! `verdict`, `render` and the sinks.

mod held;

use std::sync::Arc;
use std::time::Duration;

pub use held::{FailedKill, HeldFacts, Sandbox};

use crate::axes::Cause;
use crate::event::ExitStatus;
use crate::ids::{Comm, Signal};
use crate::pod::{ContainerKind, PodIdentity, PodOptions, PreStop};
use crate::shutdown::EndedByShutdown;
use crate::time::Boot;
use crate::tolerances::{KUBELET_MINIMUM, SLOW_KILL};

/// The Kubernetes context of one container's termination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodContext {
    pub pod: Arc<PodIdentity>,
    /// The container's name; None if no status has named the id (yet).
    pub container: Option<String>,
    pub kind: Option<ContainerKind>,
    pub image: Option<String>,
    /// Restarts before this termination.
    pub restarts: u32,
    pub options: PodOptions,
    /// Why Kubernetes stopped the container, if the API shows a reason.
    pub stop_reason: Option<StopReason>,
    /// The pod's deletion request, if there was one.
    pub request: Option<Request>,
    /// The grace period that counted for this termination, shortened by later requests; None unknown.
    pub grace: Option<Duration>,
    /// `terminationGracePeriodSeconds`, if a node's shutdown, an eviction by the kubelet, a restart of the pod in place or a delete with 0
    /// stopped the container: these give a time of their own, which may be shorter.
    pub own_grace: Option<Duration>,
    /// The container's restart rules list its exit code, by name and not as one of all others.
    pub is_listed: bool,
    /// The container's stop signal, where the API has it; otherwise what the runtime sent first counts as that.
    pub stop_signal: Option<StopSignal>,
    pub pre_stop: Option<PreStopRun>,
    /// For a sidecar: the pod's main containers, after which the kubelet stops sidecars. None if no main container has run.
    pub mains: Option<Mains>,
    /// hostPID or shareProcessNamespace: no pid namespace of its own, so the main process is not an init.
    pub shares_pid_namespace: bool,
    /// `state.terminated`, once the API shows it.
    pub reported: Option<Reported>,
    /// The last OOM kill of another process of this container: the status keeps its mark until the container ends.
    pub last_oom: Option<EarlierOom>,
    /// Whether an Event `Killing` names this life of the container; None if the Events are not known.
    pub killing: Option<bool>,
    /// What the API may have, and has not shown.
    pub unshown: Vec<Unshown>,
    /// Why this context may be incomplete: the API was not reachable during the termination, or a relist hid changes.
    pub incomplete: Option<String>,
}

/// What is known of the end of a pod's main containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mains {
    /// One still runs.
    Run,
    /// The last one exited between the two. `earliest` is None where only a status shows that.
    Ended { earliest: Option<Boot>, latest: Boot },
    /// Of one that has run, neither the kernel nor a status shows the exit.
    Unknown,
}

/// See [`PodContext::unshown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unshown {
    /// A deletion request, or one with a shorter grace period: the watch of the pods was away.
    Request,
    /// The grace period of the first request: 0 is also that of the kubelet's own delete, once all containers have exited.
    FirstGrace,
    /// A preStop hook: no status has named the id, and a container of the pod has one.
    Hook,
}

/// Why Kubernetes stopped a container or pod, by evidence of the API. `asked` in JSON and attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReason {
    pub cause: Cause,
    /// The source: `deletionTimestamp`, `DisruptionTarget=EvictionByEvictionAPI`, `status.reason=Evicted`,
    /// `Event Killing: …`.
    pub evidence: String,
    pub detail: Option<Detail>,
}

/// Details of the evidence beyond the cause. Messages are bounded to 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Of [`Cause::Restart`].
    DefinitionChanged,
    ResizeRequiresRestart,
    /// Of [`Cause::Deleted`]: pod garbage collection deleted the pod.
    PodGc {
        message: String,
    },
    /// Of [`Cause::RestartInPlace`]: the container whose exit code began it.
    Trigger {
        container: String,
        code: i32,
        is_itself: bool,
    },
    /// Of [`Cause::EvictedNodePressure`]: which resource, and who used it.
    OutOfResource {
        message: String,
    },
}

/// The deletion request: the earliest and latest possible time, on this node's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub earliest: Boot,
    pub latest: Boot,
    /// `deletionGracePeriodSeconds` of the first request.
    pub grace: Duration,
    /// `terminationGracePeriodSeconds`: what a request gives that asks for no other grace period. None: not known.
    pub spec_grace: Option<Duration>,
    /// Who asked, where an Event on the pod names it.
    pub asker: Option<Asker>,
    /// Later requests that shortened the grace period: when observed, and the new grace period.
    pub shortened: Vec<(Boot, Duration)>,
    /// The API server's clock minus ours, nanoseconds, at least and at most; None not measured.
    pub skew: Option<(i64, i64)>,
}

/// A stop signal by the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSignal {
    pub signal: Signal,
    /// `lifecycle.stopSignal`: somebody chose it for this program. Otherwise it is the image's, or the runtime's default.
    pub in_spec: bool,
}

/// Controllers that delete pods with a grace period of their own and write an Event on the pod about that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    ClusterAutoscaler,
    Karpenter,
}

names! {
    /// `epitaph.request.asker`.
    Asker:
    ClusterAutoscaler => "cluster-autoscaler",
    Karpenter => "karpenter",
}

impl Request {
    /// `terminationGracePeriodSeconds`, if the request asked for another grace period than that.
    pub fn overridden(&self) -> Option<Duration> {
        self.spec_grace.filter(|own| *own != self.grace)
    }

    /// The same, if it asked for less.
    pub fn cut_short(&self) -> Option<Duration> {
        self.overridden().filter(|own| *own > self.grace)
    }

    /// The last shorter grace period, if it can have counted for a termination at `end`: kubelets were observed to keep the first
    /// grace period regardless.
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
    /// Exit of the hook's process, or the stop signal, before which the kubelet waited for the hook.
    pub end: Option<Boot>,
    /// Of an `exec` hook, if its process is certain.
    pub status: Option<ExitStatus>,
    /// The process was recognised by its time between request and stop signal, its name and its ancestry; otherwise the times
    /// are those of the wait.
    pub seen: bool,
    /// The message of the Event `FailedPreStopHook`, if there was one.
    pub failed: Option<String>,
    /// Why such an Event may exist although none arrived.
    pub events_unknown: Option<String>,
}

/// An OOM kill of another process than the main process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierOom {
    pub at: Boot,
    pub comm: Comm,
}

/// `state.terminated`, as a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    pub exit_code: i32,
    pub reason: Option<String>,
}

/// The facts of a pod's termination other than those of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTerminationFacts {
    pub pod: Arc<PodIdentity>,
    pub boot_id: String,
    pub stop_reason: Option<StopReason>,
    pub request: Option<Request>,
    /// The earliest time of the request; the first evidence if that is earlier or there was no request.
    pub begin: Boot,
    /// Exit of the last container.
    pub end: Boot,
    /// Containers with an exit that only the API shows: name and `state.terminated`.
    pub unseen: Vec<(String, Option<Reported>)>,
    /// Containers that had ended in this termination before, and were started again (KEP-4438): name and verdict of that end, reported by
    /// itself, where it was unclean.
    pub earlier: Vec<(String, &'static str)>,
    /// When the pod was gone from the API; true if a watch showed this.
    pub gone: Option<(Boot, bool)>,
    /// The node's shutdown that stopped it, if one did.
    pub shutdown: Option<EndedByShutdown>,
}

impl PodContext {
    pub fn may_miss(&self, of: Unshown) -> bool {
        self.unshown.contains(&of)
    }

    /// The kubelet stopped the container for a probe, which can have a grace period of its own.
    pub(crate) fn is_by_probe(&self) -> bool {
        let by = |reason: &StopReason| matches!(reason.cause, Cause::Liveness | Cause::Startup);
        self.stop_reason.as_ref().is_some_and(by)
    }

    /// `terminationGracePeriodSeconds`; None if it is not known.
    pub fn spec_grace(&self) -> Option<Duration> {
        let of_request = self.request.as_ref().and_then(|request| request.spec_grace);
        // Of a container that stops while its pod lives on, but for a probe's. A force delete shows nothing of the spec.
        let is_pods = self.request.is_none() && !self.is_by_probe();
        let of_stop = self.grace.filter(|grace| is_pods && !grace.is_zero());
        of_request.or(self.own_grace).or(of_stop)
    }

    /// `terminationGracePeriodSeconds`, and what the deletion asked for instead; None where that is the same, or one is not known.
    pub fn overridden(&self) -> Option<(Duration, Duration)> {
        match &self.request {
            Some(_) if self.may_miss(Unshown::FirstGrace) => None,
            Some(request) => Some((request.overridden()?, request.grace)),
            // A delete with 0 removes the object at once: no version shows the request.
            None => {
                let asked = self.grace.filter(Duration::is_zero)?;
                let own = self.own_grace.filter(|own| !own.is_zero())?;
                Some((own, asked))
            }
        }
    }

    /// For a sidecar: the exit of the last main container, at the latest. None if the kernel does not show it.
    pub fn mains_ended(&self) -> Option<Boot> {
        match self.mains? {
            Mains::Ended { earliest, latest } => earliest.and(Some(latest)),
            Mains::Run | Mains::Unknown => None,
        }
    }

    /// "container `app`", for sentences.
    pub fn name(&self) -> String {
        match &self.container {
            Some(name) => format!("container `{name}`"),
            None => "a container of unknown name".to_owned(),
        }
    }

    /// The earliest time at which the runtime may send SIGKILL. `stop` is the runtime's stop signal. None if the grace period or its
    /// begin is not known.
    pub fn grace_end(&self, stop: Option<Boot>) -> Option<Boot> {
        let grace = self.grace?;
        // A request after the stop signal did not cause the signal.
        let request = self.request.as_ref();
        let request = request.filter(|request| stop.is_none_or(|stop| request.earliest <= stop));
        let begin = match request {
            Some(request) if grace < request.grace => request.shortened.last().map_or(request.latest, |(seen, _)| *seen),
            Some(request) => request.latest,
            // The kubelet runs the hook first, and no evidence shows when.
            None => stop.filter(|_| self.pre_stop.is_none())?,
        };
        let least = stop.map(|stop| stop.plus(KUBELET_MINIMUM));
        Some(begin.plus(grace)).max(least)
    }
}

impl Mains {
    pub fn ended(at: Boot) -> Mains {
        Mains::Ended {
            earliest: Some(at),
            latest: at,
        }
    }

    /// Whether one of them still ran then; None if not known.
    pub fn ran_at(self, at: Boot) -> Option<bool> {
        match self {
            Mains::Run => Some(true),
            Mains::Ended { earliest, .. } if earliest >= Some(at) => Some(true),
            Mains::Ended { latest, .. } if latest < at => Some(false),
            Mains::Ended { .. } | Mains::Unknown => None,
        }
    }
}

impl Reported {
    /// The runtime or the kubelet reports that the program was never started.
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
                spec_grace: Some(Duration::from_secs(30)),
                asker: None,
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
