//! What to do about a node's shutdown.

use std::time::Duration;

use super::sentence::*;
use super::why::*;
use super::{clients, table};
use crate::node::{CRITICAL_PRIORITY, ShutdownKind, SignalSender};
use crate::shutdown::{Cut, NodeShutdownFacts, PodInShutdown};
use crate::tolerances::BUS_APART;
use crate::verdict::words::*;

/// Of a shutdown that cut pods, where no better number is known.
const RAISE: &str = "raise shutdownGracePeriod (and logind's InhibitDelayMaxSec with it) to the time that the named pods need, or shorten \
                     the shutdown of these pods";

pub(super) fn remedy(facts: &NodeShutdownFacts, why: &Why) -> Option<String> {
    let row = table::row(why.outcome());
    let from_table = || Some(lower(row.remedy));
    match why {
        Why::Graceful => clients::remedy(facts),
        Why::PlanCancelled => None,
        Why::Cancelled if !facts.may_have_ended_pods() => None,
        Why::Cancelled => Some(
            "delete the pods that are Failed with the reason Terminated, if no controller replaces them: the kubelet does not start them \
             again"
                .to_owned(),
        ),
        Why::CutOff => Some(format!(
            "look at the log of the power supply, the hypervisor or the cloud provider at that time; if the provider switches machines off \
             after a time limit, the limit must exceed logind's delay{} and the stop of the services",
            facts
                .logind
                .delay
                .and_then(|delay| delay.limit)
                .map(|limit| format!(" ({})", whole_seconds(limit)))
                .unwrap_or_default()
        )),
        Why::Truncated => of_truncated(facts),
        Why::Spoofed => Some(of_spoofed(facts)),
        Why::Unprotected(NoLock::Dropped) => Some("restart the kubelet after each spoofed signal, because the kubelet takes its lock only \
                                                   when it starts".to_owned()),
        Why::Unprotected(NoLock::ZeroPeriods) => Some(
            "set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and restart the kubelet"
                .to_owned(),
        ),
        Why::Unprotected(NoLock::Limit(_, needed)) => Some(format!(
            "set InhibitDelayMaxSec={} in a drop-in of logind.conf that sorts last, and restart systemd-logind and the kubelet; \
             `epitaph doctor` names the file that decides now",
            needed.as_secs()
        )),
        Why::Unknown(Missing::Bus(_)) => Some(
            "run `epitaph logind` (chart: `logind.enabled`), and keep it connected: without it a shutdown and a power loss look the same".to_owned(),
        ),
        Why::Unknown(Missing::KubeletAtWork) => {
            Some("look at the log of the kubelet's service in that boot".to_owned())
        }
        Why::Unknown(Missing::Kill) => Some("read the report of that container: it names the evidence that is missing".to_owned()),
        Why::Unknown(Missing::Exits) => {
            Some("run `epitaph doctor`: the report names each probe that is not active on this kernel, and the reason".to_owned())
        }
        Why::Unknown(Missing::Signals) => Some(
            "look at the end of the log of that boot (`journalctl -b -1 -e`): systemd writes there which target it reached; raise \
             `kernel.ring_bytes`, unless a container or unit sends signals thousands of times per second: each has a budget of records"
                .to_owned(),
        ),
        Why::Unknown(Missing::NothingFollowed) => {
            Some("read systemd's log of that time (`journalctl _PID=1`); systemd refuses a masked target, for example".to_owned())
        }
        Why::Unknown(Missing::AgentEnded | Missing::ObservationEnded | Missing::Gap | Missing::Open) => {
            Some("keep epitaph running until the pods have terminated: give it the highest priority and a long grace period".to_owned())
        }
        Why::StateIsOpen => Some(RAISE.to_owned()),
        Why::Unprotected(NoLock::NotKnown)
        | Why::Bypassed
        | Why::Unannounced
        | Why::Unknown(_) => from_table(),
        Why::Blocked => facts.kind.map_or_else(from_table, |kind| {
            let verb = match kind {
                ShutdownKind::PowerOff => "poweroff",
                other => other.name(),
            };
            Some(format!(
                "terminate the process that holds the lock, or wait until the process exits; `systemctl {verb} -i` ignores the lock and still goes \
                 through logind"
            ))
        }),
    }
}

fn of_truncated(facts: &NodeShutdownFacts) -> Option<String> {
    let short = |pod: &PodInShutdown, cut: Cut| Some(pod.grace?.saturating_sub(cut.had.unwrap_or_default()));
    let needed = facts.cut().filter_map(|(pod, cut)| Some((pod, short(pod, cut)?, pod.grace?)));
    let Some((pod, short, grace)) = needed.max_by_key(|(_, short, _)| *short) else {
        return Some(RAISE.to_owned());
    };
    let was_killed = pod.cut.is_some_and(|cut| cut.killed);
    let instead = if was_killed { None } else { time_was_cut(facts) };
    instead
        .or_else(|| {
            let raise = raise(facts, pod, Duration::from_secs(short.as_secs().max(1)))?;
            Some(format!(
                "{raise}, or shorten the shutdown of {}/{}, which may take {}",
                pod.pod.namespace,
                pod.pod.name,
                whole_seconds(grace)
            ))
        })
        .or_else(|| Some(RAISE.to_owned()))
}

fn of_spoofed(facts: &NodeShutdownFacts) -> String {
    let is_known = |sender: &SignalSender| match sender {
        SignalSender::Logind => true,
        SignalSender::Other { pid, comm, unit, .. } => pid.is_some() || comm.is_some() || unit.is_some(),
    };
    let find = match facts.signs.spoofed.as_ref().is_some_and(|(_, sender)| is_known(sender)) {
        true => "find the process that the sentence names, and find out who may use the system bus",
        false => {
            "the sender had left the bus before its process could be looked up: find out who may use the system bus, and who used it at \
             that time (the audit log has each process that was started)"
        }
    };
    // The kubelet has its lock, or took a new one after a `false`.
    let has_lock = facts.logind.kubelet_holds() && facts.gaps.bus.is_none();
    let restart = if has_lock {
        ""
    } else {
        "; restart the kubelet, because the kubelet takes its lock only when it starts"
    };
    format!("{find}{restart}")
}

/// The kubelet had less time than its periods: why.
fn time_was_cut(facts: &NodeShutdownFacts) -> Option<String> {
    let delay = facts.logind.delay?;
    let config = facts.kubelet.configured()?;
    if let Some(limit) = delay.limit.filter(|limit| delay.expired && *limit < config.needed()) {
        return Some(format!(
            "raise logind's InhibitDelayMaxSec from {} to {}, which the kubelet's periods need",
            whole_seconds(limit),
            whole_seconds(config.needed())
        ));
    }
    let released = facts.logind.kubelet_lock()?.released?;
    (released.since(delay.begin) + BUS_APART < config.needed()).then(|| {
        format!(
            "look at the log of the kubelet's service in that boot: the kubelet released its lock after {}, before its periods ({}) had \
             passed and its pods had ended",
            seconds(released.since(delay.begin)),
            whole_seconds(config.needed())
        )
    })
}

/// The settings that give the pod so much more time. The critical pods' period is a part of the total.
fn raise(facts: &NodeShutdownFacts, pod: &PodInShutdown, by: Duration) -> Option<String> {
    let config = facts.kubelet.configured()?;
    let total = whole_seconds(config.needed() + by);
    let limit = format!("logind's InhibitDelayMaxSec to at least {total}");
    let priority = pod.priority?;
    if is_legacy(facts) {
        let all = format!("shutdownGracePeriod to {}", whole_seconds(config.total + by));
        return Some(match priority >= CRITICAL_PRIORITY {
            true => format!(
                "raise shutdownGracePeriodCriticalPods to {}, {all}, and {limit}",
                whole_seconds(config.critical + by)
            ),
            false => format!("raise {all}, and {limit}"),
        });
    }
    let phases = config.phases();
    let phase = phases
        .iter()
        .rev()
        .find(|phase| phase.priority <= priority)
        .or(phases.first())?;
    Some(format!(
        "raise shutdownGracePeriodSeconds of priority {} in shutdownGracePeriodByPodPriority to {}, and {limit}",
        phase.priority,
        whole_seconds(phase.period + by)
    ))
}
