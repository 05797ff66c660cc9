//! How the grace was spent, as measured: hook, stop signal, end.

use std::time::Duration;

use super::judge::Case;
use crate::kubernetes::PreStopRun;
use crate::pod::ContainerKind;
use crate::termination::Role;
use crate::time::Boot;

/// The kubelet gives the stop signal at least this, whatever the hook took.
pub(super) const KUBELET_MINIMUM: Duration = Duration::from_secs(2);

pub(super) struct Spent {
    /// Begin of the preStop hook, else of the wait for the main containers, else the stop signal.
    pub begin: Boot,
    /// The runtime's stop signal.
    pub stop: Option<Boot>,
    /// From the hook's begin to its end, where that is known.
    pub hook: Option<Duration>,
    /// Since when, and for how long, it was let be before its stop: by its hook; as a sidecar from the request on, by the main
    /// containers too. Where a preStop sleep would have to begin.
    pub let_be: Option<(Boot, Duration)>,
    /// From the stop signal to the runtime's kill.
    pub left: Option<Duration>,
    /// The runtime or Kubernetes asked it to stop.
    pub stop_requested: bool,
}

impl Spent {
    /// None where nobody asked it to stop.
    pub fn of(case: &Case<'_>) -> Option<Spent> {
        let context = case.kubernetes?;
        let stop = case
            .stop()
            .filter(|stop| stop.sender.role == Role::Runtime)
            .map(|stop| stop.at);
        let run = context.pre_stop.as_ref();
        let begin = run.and_then(|run| run.begin).or(stop)?;
        // Its hook ran at the request, and its stop signal came when the main containers had ended: the wait is theirs.
        let waits = context.kind == Some(ContainerKind::Sidecar);
        let kill = case.kill().filter(|kill| kill.sender.role == Role::Runtime);
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
            let_be: waited.or_else(|| Some((begin, hook?))),
            left: stop.zip(kill).map(|(stop, kill)| kill.at.since(stop)),
            stop_requested: context.stop_reason.is_some() || stop.is_some(),
        })
    }
}

/// The kubelet waits for the hook, so that it never lasts longer than until the stop signal.
fn took(run: &PreStopRun, until: Option<Boot>) -> Option<Duration> {
    let end = match (run.end, until) {
        (Some(end), Some(until)) => end.min(until),
        (end, until) => end.or(until)?,
    };
    Some(end.since(run.begin?))
}
