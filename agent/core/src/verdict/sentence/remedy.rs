//! What to change, with the measured number in it.

use std::time::Duration;

use super::{inside, kubernetes, unknown};
use crate::attribute::{Attribution, Subject};
use crate::event::{Disposition, ExitStatus};
use crate::ids::Signal;
use crate::termination::{Role, Traffic};
use crate::time::Boot;
use crate::tolerances::{NO_TIME, YOUNG};
use crate::verdict::advice::NeededSleep;
use crate::verdict::case::Case;
use crate::verdict::judge::{self, Blocked, Crash, Finding, Why};
use crate::verdict::table::{Row, row};
use crate::verdict::words::{actor, clients_were, lower, manager, many, seconds, target};
use crate::verdict::{Exit, TrafficAxis};

/// Whose settings a remedy can name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Managed {
    /// A container of a pod.
    Pod,
    /// A container without one.
    Container,
    Unit,
}

impl Managed {
    fn of(case: &Case<'_>) -> Managed {
        match &case.subject {
            Subject::Container { pod: None, .. } if case.kubernetes.is_none() => Managed::Container,
            Subject::Container { .. } => Managed::Pod,
            Subject::Unit { .. } => Managed::Unit,
        }
    }
}

pub fn remedy(case: &Case<'_>, finding: &Finding, axis: TrafficAxis) -> Option<String> {
    let own = own_remedy(case, finding, axis);
    let own = match (kubernetes::probe_remedy(finding), own) {
        (Some(probe), Some(own)) => Some(format!("{probe}; {own}")),
        (probe, own) => probe.or(own),
    };
    // Two faults, two remedies: with the first one mended the second would show.
    match kubernetes::hook_remedy(case, finding) {
        Some(hook) => Some(own.map_or(hook.clone(), |own| format!("{own}; {hook}"))),
        None => own,
    }
}

fn own_remedy(case: &Case<'_>, finding: &Finding, axis: TrafficAxis) -> Option<String> {
    match (&finding.why, finding.exit) {
        (Why::Ignored, _) => ignored(case),
        (Why::RaisedInVain, _) => raised_in_vain(case),
        (Why::RaisedAgain, _) => {
            let signal = stop_signal(case);
            Some(format!(
                "handle {signal} in the application that runs in {}: finish the work in flight, then exit with 0; the handler of a language \
                 runtime only raises the signal again",
                target(case.main())
            ))
        }
        // The second signal would have its default action below an init.
        (Why::RaisedThenFailed, Exit::Clean) if matches!(axis, TrafficAxis::Quiet | TrafficAxis::Unknown) => Some(format!(
            "exit with 0 in {} after the shutdown, instead of raising the signal again (PID 1 has no default action, so an error code follows); \
             or run a small init such as tini",
            target(case.main())
        )),
        (Why::CutByShutdown, _) => Some(cut_by_shutdown(case, finding, axis)),
        (Why::RanAtShutdown, _) => Some(before_the_shutdown(case, finding, axis)),
        (_, Exit::PrestopOverran | Exit::PrestopFailed) => None,
        (Why::Inside(end, of), _) => inside::remedy(case, finding, *end, *of),
        (Why::Starved, _) if case.kubernetes.is_some() => kubernetes::grace_remedy(case, finding),
        // Two faults: cut requests are lost with any exit code.
        (Why::Nonzero, _) if axis == TrafficAxis::Cut => Some(format!(
            "{}; {}",
            lower(row(Exit::Clean, axis).remedy),
            lower(row(finding.exit, axis).remedy)
        )),
        (Why::AfterGrace, _) => match inside::to_waited_for(case) {
            Some(to_others) if !inside::are_its_own(case) => Some(reloads(case, &to_others).unwrap_or(to_others)),
            _ => after_grace(case, finding),
        },
        (Why::Blocked(how), _) if had_no_time(case, *how) => Some(time_to_act(case)),
        (Why::Blocked(how), _) if *how != Blocked::Masked => blocked(*how),
        (Why::OomChild, _) if case.exit.is_some_and(|exit| exit.status == ExitStatus::Exited(0)) => Some(format!(
            "raise the memory limit, or reduce the memory that is needed; let {} exit with an error if such a process fails",
            target(case.main())
        )),
        (Why::Below(_), _) => inside::remedy_below(case),
        (_, Exit::Clean) => clients_remedy(case, axis),
        (Why::KilledByOther, _) => case.fatal().map(|fatal| {
            format!(
                "find out why {} sent {}, and use the stop command of the {} instead",
                actor(&fatal.sender),
                fatal.signal,
                manager(case)
            )
        }),
        // SIGABRT of a watchdog, or a signal that somebody chose.
        (Why::DefaultAction, _) if case.stop().is_some_and(|stop| stop.signal.is_fault()) => stopped_by_fault(case),
        (Why::DefaultAction, _) if inside::forwards_to_nobody(case).is_some() && !inside::are_its_own(case) => {
            Some(inside::to_unsignalled(case))
        }
        (Why::DefaultAction, exit) => Some(lower(row(exit, axis).remedy) + &early(case).unwrap_or_default()),
        (Why::OomByDaemon, exit) => by_oom_daemon(case, row(exit, axis)),
        (Why::ChildFailed, _) if axis == TrafficAxis::Cut => {
            Some(format!("{}; {}", lower(row(Exit::Clean, axis).remedy), child_failed(case)))
        }
        (Why::ChildFailed, _) => Some(child_failed(case)),
        (Why::Crashed(_) | Why::ChildCrashed, _) => Some(of_crash(case, finding, axis)),
        (Why::NamespaceEnded, _) => Some("find out why PID 1 of the pid namespace exited".to_owned()),
        (Why::Unknown(missing), _) => Some(unknown::remedy_of(case, missing)),
        // The exit is known, the result of the hook is not.
        (_, Exit::Unknown) => {
            Some("look for an Event FailedPreStopHook of the pod with `kubectl get events` (the API server keeps Events for an hour)".to_owned())
        }
        (_, exit) => Some(lower(row(exit, axis).remedy)),
    }
}

fn ignored(case: &Case<'_>) -> Option<String> {
    let signal = stop_signal(case);
    let lost = grace(case).map_or(String::new(), |grace| format!("; this avoids the wait of {}", seconds(grace)));
    let declare = or_declare(case, signal);
    // An init in front of it would send the signal to it alone, too. A supervisor may stop its programs at another signal.
    if signal == Signal::TERM && inside::forwards_to_nobody(case).is_some() && !inside::are_its_own(case) {
        return Some(format!("{}{lost}", inside::to_unsignalled(case)));
    }
    // An ignored signal stays ignored across fork and exec: neither helps.
    let is_ignored = case.stop().is_some_and(|stop| stop.disposition == Disposition::Ignore);
    let how = match is_ignored {
        true => ": SIG_IGN is its own setting, or inherited from what starts it (`trap ''`, nohup)",
        false => ", use `exec` in the shell that starts the program, or run a small init such as tini",
    };
    let early = early(case).unwrap_or_default();
    Some(format!(
        "handle {signal} in {}{how}{declare}{lost}{early}",
        target(case.main())
    ))
}

fn raised_in_vain(case: &Case<'_>) -> Option<String> {
    let signal = stop_signal(case);
    let lost = grace(case).map_or(String::new(), |grace| format!("; this avoids the wait of {}", seconds(grace)));
    Some(format!(
        "handle {signal} in the application that runs in {}: the handler of a language \
         runtime only raises the signal again; or run \
         a small init such as tini{lost}",
        target(case.main())
    ))
}

fn time_to_act(case: &Case<'_>) -> String {
    format!(
        "give {} time to act on {}, after which SIGKILL came within {}: raise {}",
        target(case.main()),
        stop_signal(case),
        seconds(grace(case).unwrap_or_default()),
        match Managed::of(case) {
            Managed::Unit => "`TimeoutStopSec=` of the unit",
            Managed::Container => "the time that the stop command waits (`docker stop --time`)",
            Managed::Pod => "the grace period (`terminationGracePeriodSeconds`, `kubectl delete --grace-period`)",
        }
    )
}

fn by_oom_daemon(case: &Case<'_>, row: &Row) -> Option<String> {
    let sender = case
        .kill()
        .map(|kill| &kill.sender)
        .or_else(|| case.stop().map(|stop| &stop.sender));
    sender.map(|sender| {
        format!(
            "{}; the log of `{}` has the memory that it saw (`journalctl -u {}`)",
            lower(row.remedy),
            sender.comm,
            match &sender.place {
                Attribution::Subject(Subject::Unit { name }, _) => name.to_string(),
                _ => sender.comm.to_string(),
            }
        )
    })
}

fn stopped_by_fault(case: &Case<'_>) -> Option<String> {
    case.stop().map(|stop| {
        let by = match case.subject {
            Subject::Unit { .. } => {
                "a watchdog that the service did not reset (`WatchdogSec=`), `KillSignal=`, or `systemctl kill`"
            }
            Subject::Container { .. } => "`STOPSIGNAL` in the image, or a command such as `docker kill --signal`",
        };
        format!(
            "find out why the {} sent {}, which is no request to shut down: {by}",
            manager(case),
            stop.signal
        )
    })
}

fn cut_by_shutdown(case: &Case<'_>, finding: &Finding, axis: TrafficAxis) -> String {
    match judge::own_grace(case) {
        Some((had, own)) => format!(
            "raise the kubelet's shutdown grace period by at least {} s, or lower terminationGracePeriodSeconds to what the shutdown \
             of the process needs",
            own.saturating_sub(had).as_secs().max(1)
        ),
        None => before_the_shutdown(case, finding, axis),
    }
}

/// From the stop signal to the SIGKILL.
fn grace(case: &Case<'_>) -> Option<Duration> {
    case.stop().zip(case.kill()).map(|(stop, kill)| kill.at.since(stop.at))
}

/// Added for a process without a handler that had just started.
fn early(case: &Case<'_>) -> Option<String> {
    let (main, stop) = case.main().zip(case.stop())?;
    too_young("the process", main.start, (stop.at, stop.signal), stop.disposition)
}

/// See [`early`].
pub(super) fn too_young(who: &str, start: Boot, (at, signal): (Boot, Signal), disposition: Disposition) -> Option<String> {
    let age = at.since(start);
    (age < YOUNG && disposition == Disposition::Default).then(|| {
        format!(
            "; {who} was {} old at {signal}: a handler that is installed later than that comes too late",
            seconds(age)
        )
    })
}

fn child_failed(case: &Case<'_>) -> String {
    let who = case
        .failed_child
        .map_or("the program".to_owned(), |child| format!("`{}`", child.process.comm));
    format!(
        "look for the reason in the last lines of the log of {who}; let {} exit with the code of {who} (in a shell: `exit $?`, or start it \
         with `exec`), so that the container runtime and systemd see the failure",
        target(case.main())
    )
}

fn of_crash(case: &Case<'_>, finding: &Finding, axis: TrafficAxis) -> String {
    let (who, exit) = match case.failed_child.filter(|_| finding.why == Why::ChildCrashed) {
        Some(child) => (format!("`{}`", child.process.comm), Some(child.exit)),
        None => (target(case.main()), case.exit),
    };
    let signal = exit.and_then(|exit| exit.status.signal());
    let is_its_own = matches!(finding.why, Why::Crashed(Crash::Itself)) && signal == Some(Signal::KILL);
    signal
        .and_then(|signal| without_a_core(case, &who, signal, is_its_own))
        .unwrap_or_else(|| lower(row(finding.exit, axis).remedy))
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
            let call = super::refused_call(case);
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

/// Of a process that a node's shutdown cut.
fn before_the_shutdown(case: &Case<'_>, finding: &Finding, axis: TrafficAxis) -> String {
    match Managed::of(case) {
        Managed::Pod => lower(row(finding.exit, axis).remedy),
        Managed::Container => "stop the container before the shutdown of the node stops everything: by a unit with a stop command (`ExecStop=`) and \
                               enough time for it (`TimeoutStopSec=`); or shorten the shutdown of the process"
            .to_owned(),
        Managed::Unit => "raise `TimeoutStopSec=` of the unit, or shorten the shutdown of the process".to_owned(),
    }
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
fn reloads(case: &Case<'_>, otherwise: &str) -> Option<String> {
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
    let grace = case.stop().zip(case.kill()).map(|(stop, kill)| kill.at.since(stop.at));
    let grace = seconds(grace.unwrap_or_default());
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

fn clients_remedy(case: &Case<'_>, axis: TrafficAxis) -> Option<String> {
    let traffic = case.traffic();
    let refused = || clients_were(traffic, traffic.refused_clients().count, "connection");
    match axis {
        TrafficAxis::Quiet | TrafficAxis::Unknown => None,
        TrafficAxis::Refused if matches!(case.subject, Subject::Unit { .. }) => Some(format!(
            "{} refused while the unit was down: a socket unit keeps the listener open over a restart",
            refused()
        )),
        TrafficAxis::RefusedNewPeers if matches!(case.subject, Subject::Unit { .. }) => Some(
            "look at the addresses of the refused peers: if they are clients, a socket unit keeps the listener open over a restart".to_owned(),
        ),
        // Proxies send clients elsewhere only if the pod is deleted.
        TrafficAxis::Refused if case.kubernetes.is_some_and(|context| context.request.is_none()) => Some(format!(
            "{} refused while the container restarted in place, where a preStop sleep does not help: run another replica, and \
             add a readiness probe that fails early",
            refused()
        )),
        TrafficAxis::Refused if traffic.refusing_on => Some(format!(
            "{} refused, and clients were still trying to connect when counting stopped: {}, or send clients elsewhere before the {}",
            refused(),
            accept_longer(case),
            ending(case)
        )),
        TrafficAxis::Refused => Some(match traffic.refusal_window().zip(NeededSleep::of(case)) {
            Some((window, sleep)) => {
                // Of clients that were not all seen, the last one may have come later.
                let (sleep, least) = (sleep.seconds, if traffic.observed { "" } else { "at least " });
                let instead = match Managed::of(case) {
                    Managed::Pod => format!("a preStop sleep of {least}{sleep} s would have avoided the refusals"),
                    Managed::Container | Managed::Unit => {
                        let from = since_when(case);
                        format!("keep accepting for {least}{sleep} s {from}, or send clients elsewhere before the {}", ending(case))
                    }
                };
                format!("{} refused in the {} after the listener closed: {instead}", refused(), seconds(window))
            }
            None if Managed::of(case) == Managed::Pod => lower(row(Exit::Clean, axis).remedy),
            None => accept_longer(case),
        }),
        // A pod has an advice for the refused connections.
        TrafficAxis::Reset | TrafficAxis::Cut if case.kubernetes.is_none() && traffic.refused_clients().count > 0 => {
            Some(format!(
                "{}; for the {}: {}",
                dropped_remedy(traffic, axis),
                many(traffic.refused_clients().count, "refused connection"),
                accept_longer(case)
            ))
        }
        TrafficAxis::Undecided if traffic.undecided_unheard == traffic.undecided.count => Some(
            "look for requests without an end in the logs of the clients, and for what took the way to them: a route or a policy that was \
             removed while the process still served, or a client's own machine"
                .to_owned(),
        ),
        TrafficAxis::Undecided
        | TrafficAxis::RefusedNewPeers
        | TrafficAxis::ProxyRejected
        | TrafficAxis::Reset
        | TrafficAxis::Cut => Some(dropped_remedy(traffic, axis)),
    }
}

fn accept_longer(case: &Case<'_>) -> String {
    format!("keep accepting {} until clients stop connecting", since_when(case))
}

fn since_when(case: &Case<'_>) -> &'static str {
    match case.stop() {
        Some(_) => "after the stop signal",
        None => "before the exit",
    }
}

fn ending(case: &Case<'_>) -> &'static str {
    match case.stop() {
        Some(_) => "stop",
        None => "exit",
    }
}

/// Of resets only what happened: in the accept queue, or later.
fn dropped_remedy(traffic: &Traffic, axis: TrafficAxis) -> String {
    match (axis, traffic.reset_queued) {
        (TrafficAxis::Reset, 0) => "finish the requests in flight, and read all data before closing a connection".to_owned(),
        (TrafficAxis::Reset, queued) if queued == traffic.reset.count => {
            "accept and serve the queued connections before closing the listener".to_owned()
        }
        _ => lower(row(Exit::Clean, axis).remedy),
    }
}
