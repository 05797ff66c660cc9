//! What to change, with the measured number in it.

use super::{actor, kubernetes, lower, seconds, target, were};
use crate::ids::Signal;
use crate::termination::Open;
use crate::verdict::advice::NeededSleep;
use crate::verdict::judge::{Blocked, Case, Finding, Missing, Why};
use crate::verdict::table::row;
use crate::verdict::{Exit, TrafficAxis};

pub fn remedy(case: &Case<'_>, finding: &Finding, axis: TrafficAxis) -> Option<String> {
    let own = own_remedy(case, finding, axis);
    let own = match (kubernetes::probe_remedy(finding), own) {
        (Some(probe), Some(own)) => Some(format!("{probe}; {own}")),
        (probe, own) => probe.or(own),
    };
    // Two faults, two remedies: with the first one gone the second would show.
    match kubernetes::hook_remedy(case, finding) {
        Some(hook) => Some(own.map_or(hook.clone(), |own| format!("{own}; {hook}"))),
        None => own,
    }
}

fn own_remedy(case: &Case<'_>, finding: &Finding, axis: TrafficAxis) -> Option<String> {
    let grace = case.stop().zip(case.kill()).map(|(stop, kill)| kill.at.since(stop.at));
    match (&finding.why, finding.exit) {
        (Why::Ignored, _) => {
            let signal = case.stop().map_or(Signal::TERM, |stop| stop.signal);
            let lost = grace.map_or(String::new(), |grace| {
                format!(": it would have saved the {} of waiting", seconds(grace))
            });
            Some(format!(
                "handle {signal} in {}, `exec` the program in place of a shell, or run it under a small init such as tini{lost}",
                target(case.main())
            ))
        }
        (_, Exit::PrestopOverran | Exit::PrestopFailed) => None,
        (Why::AfterGrace | Why::Starved, _) if case.kubernetes.is_some() => kubernetes::grace_remedy(case, finding),
        (Why::AfterGrace, _) => {
            let grace = seconds(grace.unwrap_or_default());
            Some(format!(
                "it needs more than the {grace} it was given: raise the grace, or finish the shutdown sooner"
            ))
        }
        (Why::Blocked(Blocked::Frozen), _) => Some("thaw the cgroup before stopping it".to_owned()),
        (Why::Blocked(Blocked::Stopped), _) => Some("continue the process (SIGCONT) before stopping it".to_owned()),
        (Why::Blocked(Blocked::Traced), _) => Some("detach the debugger before stopping it".to_owned()),
        (Why::Blocked(Blocked::HandlerNeverEntered | Blocked::NothingEntered), _) => {
            Some("look for what kept it from running: a disk or network mount that hangs, or no CPU time".to_owned())
        }
        (_, Exit::Clean) => clients_remedy(case, axis),
        (Why::KilledByOther, _) => case.fatal().map(|fatal| {
            format!(
                "find out why {} does that; stop it by the runtime's own command",
                actor(&fatal.sender)
            )
        }),
        // Its end is known, what became of its hook is not.
        (why, Exit::Unknown) if !matches!(why, Why::Unknown(_)) => {
            Some("see by `kubectl get events` whether its pod has a FailedPreStopHook; the API keeps it for an hour".to_owned())
        }
        // Nothing is missing.
        (Why::Unknown(Missing::NoExit(Open::ObservationEnded)), _) => {
            Some("let it observe until the process has ended".to_owned())
        }
        (_, exit) => Some(lower(row(exit, axis).remedy)),
    }
}

fn clients_remedy(case: &Case<'_>, axis: TrafficAxis) -> Option<String> {
    let traffic = case.traffic();
    match axis {
        TrafficAxis::Quiet | TrafficAxis::Unknown => None,
        // Proxies send clients elsewhere only where the pod goes.
        TrafficAxis::Refused if case.kubernetes.is_some_and(|context| context.request.is_none()) => Some(format!(
            "{} refused while it was restarted in place, where no preStop sleep helps: run another replica beside it, and a readiness \
             probe that fails soon",
            were(traffic.refused.count)
        )),
        TrafficAxis::Refused if traffic.refusing_on => Some(format!(
            "{} refused, and clients still came when counting ended: go on accepting after the stop signal until they stop, or send them \
             elsewhere before it",
            were(traffic.refused.count)
        )),
        TrafficAxis::Refused => Some(match traffic.refusal_window().zip(NeededSleep::of(case)) {
            Some((window, sleep)) => format!(
                "{} refused in the {} after the listener closed: a preStop sleep of {} s would have avoided them",
                were(traffic.refused.count),
                seconds(window),
                sleep.seconds
            ),
            None => lower(row(Exit::Clean, axis).remedy),
        }),
        // A pod's advice has the refused ones.
        TrafficAxis::Reset | TrafficAxis::Cut if case.kubernetes.is_none() && traffic.refused.count > 0 => Some(format!(
            "{}; for the {} refused: go on accepting after the stop signal until clients stop coming",
            lower(row(Exit::Clean, axis).remedy),
            traffic.refused.count
        )),
        TrafficAxis::ProxyRejected | TrafficAxis::Reset | TrafficAxis::Cut => Some(lower(row(Exit::Clean, axis).remedy)),
    }
}
