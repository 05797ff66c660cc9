//! The measured use of the grace period: hook, stop signal, exit.

use std::time::Duration;

use super::case::Case;
use crate::kubernetes::PreStopRun;
use crate::pod::ContainerKind;
use crate::time::Boot;

pub(super) struct Spent {
    /// Begin of the preStop hook, otherwise of the wait for the main containers, otherwise the stop signal.
    pub begin: Boot,
    /// The runtime's stop signal.
    pub stop: Option<Boot>,
    /// Duration of the hook, if known.
    pub hook: Option<Duration>,
    /// Begin and duration of the time before the stop signal: the hook; for a sidecar, from the request on, also the main
    /// containers. A preStop sleep would begin there.
    pub before_stop: Option<(Boot, Duration)>,
    /// From the stop signal to the runtime's kill.
    pub left: Option<Duration>,
    /// The runtime or Kubernetes requested the stop.
    pub stop_requested: bool,
}

impl Spent {
    /// None if no stop was requested.
    pub fn of(case: &Case<'_>) -> Option<Spent> {
        let context = case.kubernetes?;
        let stop = case.runtime_stop().map(|stop| stop.at);
        let run = context.pre_stop.as_ref();
        let begin = run.and_then(|run| run.begin).or(stop)?;
        // A sidecar's hook runs at the request, but its stop signal waits for the exit of the main containers.
        let waits = context.kind == Some(ContainerKind::Sidecar);
        let kill = case.runtime_kill();
        let hook = run
            .filter(|run| run.seen || !waits)
            .and_then(|run| took(run, stop.or(case.exit.map(|exit| exit.at))));
        let request = context.request.as_ref().filter(|_| waits);
        let waited = request
            .zip(stop)
            .map(|(request, stop)| (request.latest, stop.since(request.latest)));
        Some(Spent {
            begin,
            stop,
            hook,
            before_stop: waited.or_else(|| Some((begin, hook?))),
            left: stop.zip(kill).map(|(stop, kill)| kill.at.since(stop)),
            stop_requested: context.stop_reason.is_some() || stop.is_some(),
        })
    }
}

/// The kubelet waits for the hook, so the hook's time ends with the stop signal at the latest.
fn took(run: &PreStopRun, until: Option<Boot>) -> Option<Duration> {
    let end = match (run.end, until) {
        (Some(end), Some(until)) => end.min(until),
        (end, until) => end.or(until)?,
    };
    Some(end.since(run.begin?))
}
