//! What a remedy can set: the stop signal, the grace period, limits; and what shows that another value helps.

use std::time::Duration;

use super::kubernetes;
use crate::attribute::Subject;
use crate::event::{Disposition, si_code};
use crate::ids::{Signal, SystemCall};
use crate::termination::{Fatal, Role};
use crate::time::Boot;
use crate::tolerances::{NO_TIME, YOUNG};
use crate::verdict::case::Case;
use crate::verdict::judge::{Blocked, Finding};
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

/// For a signal by which a process ends that has no fault in its code, or none that a core dump shows.
pub(super) fn without_a_core(case: &Case<'_>, who: &str, signal: Signal, is_its_own: bool) -> Option<String> {
    let is_raised = is_its_own || case.fatal().is_some_and(|fatal| fatal.signal == signal && fatal.is_sent());
    let limit = |unit: &str, shell: &str| match Managed::of(case) {
        Managed::Unit => format!("`{unit}` of the unit"),
        Managed::Container | Managed::Pod => {
            format!("`{shell}` in what starts the program, or the ulimits of the container runtime")
        }
    };
    Some(match signal.number() {
        // SIGPIPE, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGXFSZ, SIGKILL and what has no meaning of its own.
        // The kernel's own signal at a limit looks like the process's own.
        _ if is_raised && !signal.is_fault() && !signal.is_resource_limit() => {
            format!("look for the reason in the last lines of the log of {who}, which sent {signal} to itself")
        }
        13 => format!("ignore SIGPIPE in {who} and handle the error EPIPE: the reader of a pipe or connection had closed it"),
        14 | 26 | 27 => format!(
            "install a {signal} handler in {who} before it starts its timer ({}), or do not start the timer: the timer expired, and without a \
             handler {signal} ends the process",
            if signal.number() == 14 {
                "alarm, setitimer"
            } else {
                "setitimer; profilers use one"
            }
        ),
        9 | 24 => format!(
            "find out what takes the processor time of {who}, or raise the limit: RLIMIT_CPU, {}; `/proc/PID/limits` of a running process has its value",
            limit("LimitCPU=", "ulimit -t")
        ),
        25 => format!(
            "keep the files that {who} writes smaller, or raise the limit: RLIMIT_FSIZE, {}; `/proc/PID/limits` of a running process has its value",
            limit("LimitFSIZE=", "ulimit -f")
        ),
        31 => {
            let filter = match Managed::of(case) {
                Managed::Unit => "`SystemCallFilter=` of the unit",
                Managed::Container => "the container runtime's profile (`--security-opt seccomp=`)",
                Managed::Pod => "`seccompProfile` of the pod",
            };
            let call = refused_call(case);
            let (named, number) = match call {
                Some(call) => (format!(" {call}"), ""),
                None => (
                    String::new(),
                    "; the kernel's log has its number (`type=1326 … syscall=`), and `ausyscall` its name",
                ),
            };
            format!(
                "if {who} needs the system call{named}, allow it in the seccomp filter: {filter}, or a filter of the program's own; otherwise change \
                 what makes {who} use it{number}"
            )
        }
        _ => return None,
    })
}

pub(super) fn stop_signal(case: &Case<'_>) -> Signal {
    case.stop().map_or(Signal::TERM, |stop| stop.signal)
}

pub(super) fn after_grace(case: &Case<'_>, finding: &Finding) -> Option<String> {
    serves_on(case).or_else(|| {
        let more_time = more_time(case, finding)?;
        let reloads = reloads(case, &more_time);
        Some(reloads.unwrap_or_else(|| more_time + &may_not_stop(case).unwrap_or_default()))
    })
}

/// Nothing shows that a shutdown has begun: the program may only have reloaded.
pub(super) fn may_serve_on(case: &Case<'_>) -> bool {
    serves_on(case).is_some() || is_reload(case) || may_not_stop(case).is_some()
}

/// A signal that mostly means "reload", and no listener that was closed after it.
fn is_reload(case: &Case<'_>) -> bool {
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

/// With the remedy of a program that does shut down at this signal.
pub(super) fn reloads(case: &Case<'_>, otherwise: &str) -> Option<String> {
    let signal = case.stop().filter(|_| is_reload(case))?.signal;
    Some(format!(
        "{signal} may not stop this program (some reload at {signal}): declare the signal that does ({}); if the program does shut down at \
         {signal}: {otherwise}",
        declared(case)
    ))
}

fn more_time(case: &Case<'_>, finding: &Finding) -> Option<String> {
    if case.kubernetes.is_some() {
        return kubernetes::grace_remedy(case, finding);
    }
    let grace = seconds(grace(case).unwrap_or_default());
    let setting = match Managed::of(case) {
        Managed::Unit => "`TimeoutStopSec=` of the unit",
        Managed::Pod | Managed::Container => "the grace period",
    };
    Some(format!(
        "the shutdown needs more than the {grace} that it got: raise {setting}, or shorten the shutdown"
    ))
}

/// Up to the SIGKILL the program had closed no listener: the signal may have begun no shutdown at all.
fn may_not_stop(case: &Case<'_>) -> Option<String> {
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
fn serves_on(case: &Case<'_>) -> Option<String> {
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
        format!(
            "{} still accepted connections {} after {signal} and never closed its listener, so {signal} may not stop this program (some reload at \
             {signal}): declare the signal that stops it ({}); if the program does shut down at {signal}, close the listener first, and raise the \
             grace period above {}",
            target(case.main()),
            seconds(accepted.last.since(stop.at)),
            declared(case),
            seconds(had)
        )
    })
}

/// Nothing kept the process from running: the runtime, which knows the grace period, killed it at once.
pub(super) fn had_no_time(case: &Case<'_>, how: Blocked) -> bool {
    let kill = case.kill().filter(|kill| kill.sender.role == Role::Runtime);
    let waited = case.stop().zip(kill).map(|(stop, kill)| kill.at.since(stop.at));
    matches!(how, Blocked::HandlerNeverEntered | Blocked::NothingEntered) && waited.is_some_and(|waited| waited <= NO_TIME)
}

pub(super) fn blocked(how: Blocked) -> Option<String> {
    let what = match how {
        Blocked::Frozen => "thaw the cgroup before the stop",
        Blocked::Stopped => "continue the process (SIGCONT) before the stop",
        Blocked::Traced => "detach the debugger before the stop",
        Blocked::Masked => {
            "unblock the signal (a signal mask is inherited across fork and exec), or read it with sigwait or signalfd"
        }
        Blocked::HandlerNeverEntered | Blocked::NothingEntered => {
            "find what kept the process from running: a disk or network mount that hangs, or no CPU time"
        }
    };
    Some(what.to_owned())
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
