//! What to change, with the measured number in it.

use super::settings::{
    Managed, after_grace, blocked, grace, had_no_time, or_declare, reloads, stop_signal, too_young, without_a_core,
};
use super::{inside, kubernetes, unknown};
use crate::attribute::{Attribution, Subject};
use crate::event::{Disposition, ExitStatus};
use crate::ids::Signal;
use crate::termination::Traffic;
use crate::verdict::advice::NeededSleep;
use crate::verdict::case::Case;
use crate::verdict::judge::{self, Blocked, Crash, Finding, Why};
use crate::verdict::table::{Row, row};
use crate::verdict::words::{actor, clients_were, lower, manager, many, seconds, target};
use crate::verdict::{Exit, TrafficAxis};

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

/// Added for a process without a handler that had just started.
fn early(case: &Case<'_>) -> Option<String> {
    let (main, stop) = case.main().zip(case.stop())?;
    too_young("the process", main.start, (stop.at, stop.signal), stop.disposition)
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
