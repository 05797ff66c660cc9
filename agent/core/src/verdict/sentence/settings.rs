//! What a remedy can set: the stop signal, the grace period, limits; and what shows that another value helps.

use std::time::Duration;

use crate::attribute::Subject;
use crate::event::{Disposition, si_code};
use crate::ids::{Signal, SystemCall};
use crate::termination::Fatal;
use crate::time::Boot;
use crate::tolerances::{NO_TIME, YOUNG};
use crate::verdict::case::Case;
use crate::verdict::judge::Blocked;
use crate::verdict::own_time;
use crate::verdict::words::{seconds, target};

/// Whose settings a remedy can name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Managed {
    /// A container of a pod.
    Pod,
    /// A container without one.
    Container,
    Unit,
}

impl Managed {
    pub fn of(case: &Case<'_>) -> Managed {
        match &case.subject {
            Subject::Container { pod: None, .. } if case.kubernetes.is_none() => Managed::Container,
            Subject::Container { .. } => Managed::Pod,
            Subject::Unit { .. } => Managed::Unit,
        }
    }
}

/// From the stop signal to the SIGKILL.
pub(super) fn grace(case: &Case<'_>) -> Option<Duration> {
    case.stop().zip(case.kill()).map(|(stop, kill)| kill.at.since(stop.at))
}

/// Where a resource limit is set.
pub(super) fn limit(case: &Case<'_>, unit: &str, shell: &str) -> String {
    match Managed::of(case) {
        Managed::Unit => format!("`{unit}` of the unit"),
        Managed::Container | Managed::Pod => {
            format!("`{shell}` in what starts the program, or the ulimits of the container runtime")
        }
    }
}

pub(super) fn stop_signal(case: &Case<'_>) -> Signal {
    case.stop().map_or(Signal::TERM, |stop| stop.signal)
}

/// Nothing shows that a shutdown has begun: the program may only have reloaded.
pub(super) fn may_serve_on(case: &Case<'_>) -> bool {
    serves_on(case).is_some() || is_reload(case) || may_not_stop(case).is_some()
}

/// A signal that mostly means "reload", and no listener that was closed after it.
pub(super) fn is_reload(case: &Case<'_>) -> bool {
    let Some((stop, kill)) = case.stop().zip(case.kill()) else {
        return false;
    };
    let is_between = |at: Boot| stop.at <= at && at < kill.at;
    let traffic = case.traffic();
    let has_closed = traffic.listeners.iter().any(|listener| is_between(listener.at));
    traffic.observed && !stop.signal.is_conventional_stop() && !has_closed && !is_declared(case, stop.signal)
}

/// Somebody chose this signal for the program, in the pod's spec.
fn is_declared(case: &Case<'_>, signal: Signal) -> bool {
    let declared = case.kubernetes.and_then(|context| context.stop_signal);
    declared.is_some_and(|declared| declared.in_spec && declared.signal == signal)
}

/// Up to the SIGKILL the program had closed no listener: the signal may have begun no shutdown at all.
pub(super) fn may_not_stop(case: &Case<'_>) -> Option<String> {
    let (stop, kill) = case.stop().zip(case.kill())?;
    let (traffic, signal) = (case.traffic(), stop.signal);
    let is_known = traffic.observed && case.gaps.lost.is_empty() && case.gaps.over_cap == 0;
    let mut listeners = traffic.listeners.iter();
    let is_open = !traffic.listeners.is_empty() && listeners.all(|listener| listener.at >= kill.at);
    (is_known && is_open).then(|| {
        format!(
            "; the listener stayed open, so {signal} may not stop this program (some reload at {signal}): then declare the signal that does ({})",
            declared(case)
        )
    })
}

/// Another remedy, of a stop signal that may be declared: it is not the default one.
pub(super) fn or_declare(case: &Case<'_>, signal: Signal) -> String {
    match signal {
        Signal::TERM => String::new(),
        _ if is_declared(case, signal) => {
            ", or change `lifecycle.stopSignal` of the container to the signal that stops the program".to_owned()
        }
        _ => format!(", or declare the signal that stops the program ({})", declared(case)),
    }
}

/// Where a stop signal is declared.
pub(super) fn declared(case: &Case<'_>) -> &'static str {
    match Managed::of(case) {
        Managed::Unit => "`KillSignal=` of the unit",
        Managed::Container => "`STOPSIGNAL` in the image",
        Managed::Pod => "`STOPSIGNAL` in the image, `lifecycle.stopSignal` of the pod's container",
    }
}

/// The process accepted connections in the second half of its time, and never closed its listener: more time alone may change nothing.
pub(super) fn serves_on(case: &Case<'_>) -> Option<String> {
    let (stop, kill) = case.stop().zip(case.kill())?;
    let traffic = case.traffic();
    let (accepted, had) = (traffic.accepted, kill.at.since(stop.at));
    let is_closed = traffic
        .listeners
        .iter()
        .any(|listener| !listener.by_exit && listener.at >= stop.at);
    // The kernel completes a handshake into the accept queue without the process.
    let is_accepting = accepted.count > 0 && traffic.reset_queued == 0 && accepted.last <= kill.at;
    let is_late = accepted.last.since(stop.at) * 2 >= had;
    (traffic.observed && is_accepting && is_late && !is_closed).then(|| {
        let signal = stop.signal;
        let more = own_time::not_given(case).unwrap_or_else(|| format!("raise the grace period above {}", seconds(had)));
        format!(
            "{} still accepted connections {} after {signal} and never closed its listener, so {signal} may not stop this program (some reload at \
             {signal}): declare the signal that stops it ({}); if the program does shut down at {signal}, close the listener first, and {more}",
            target(case.main()),
            seconds(accepted.last.since(stop.at)),
            declared(case)
        )
    })
}

/// Nothing kept the process from running: the runtime, which knows the grace period, killed it at once.
pub(super) fn had_no_time(case: &Case<'_>, how: Blocked) -> bool {
    let kill = case.runtime_kill();
    let waited = case.stop().zip(kill).map(|(stop, kill)| kill.at.since(stop.at));
    matches!(how, Blocked::HandlerNeverEntered | Blocked::NothingEntered) && waited.is_some_and(|waited| waited <= NO_TIME)
}

/// The system call at which a seccomp filter ended the main process.
pub(super) fn refused_call(case: &Case<'_>) -> Option<SystemCall> {
    let is_refusal = |fatal: &&Fatal| fatal.signal == Signal::SYS && fatal.code == si_code::SYS_SECCOMP;
    case.fatal().filter(is_refusal)?.call
}

/// Added for a process without a handler that had just started.
pub(super) fn too_young(who: &str, start: Boot, (at, signal): (Boot, Signal), disposition: Disposition) -> Option<String> {
    let age = at.since(start);
    (age < YOUNG && disposition == Disposition::Default).then(|| {
        format!(
            "; {who} was {} old at {signal}: a handler that is installed later than that comes too late",
            seconds(age)
        )
    })
}
