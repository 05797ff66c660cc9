//! One sentence with the measured times, and one remedy.

use std::time::Duration;

use super::evidence::{lock_text, sender_text};
use super::{Missing, NoLock, Why, blockers, clients, outcome, table};
use crate::node::{CRITICAL_PRIORITY, KubeletShutdown, ShutdownKind, SignalSender};
use crate::shutdown::{Cut, Ending, NodeShutdownFacts, PodInShutdown};
use crate::tolerances::BUS_APART;
use crate::verdict::words::{lower, many, seconds, were};

/// Pods that a sentence names.
const NAMED: usize = 3;
/// Of a shutdown that cut pods, where no better number is known.
const RAISE: &str = "raise shutdownGracePeriod (and logind's InhibitDelayMaxSec with it) to what the named pods need, or shorten their shutdown";

pub(super) fn sentence(facts: &NodeShutdownFacts, why: &Why) -> String {
    of_verdict(facts, why) + &clients::lost(facts) + &clients::started(facts) + &stayed_ready(facts)
}

fn of_verdict(facts: &NodeShutdownFacts, why: &Why) -> String {
    let what = what(facts);
    match why {
        Why::Graceful => graceful(facts, what),
        Why::Truncated => truncated(facts, what),
        Why::CutOff => {
            let pods = facts.others().filter(|pod| pod.ended.is_none());
            let pods = match names(pods, |_| String::new()) {
                (0, _) => String::new(),
                (count, names) => format!("; {} ran then: {names}", many(count, "pod")),
            };
            format!(
                "the machine lost power or was reset during the {what} that logind had announced: the last evidence is {} after the announcement, {}{}{pods}",
                seconds(facts.end.since(facts.begin)),
                match facts.signs.services() {
                    None => "within logind's delay",
                    Some(_) => "while systemd stopped the services",
                },
                back(facts).replacen(", and", "; the node", 1)
            )
        }
        Why::StateIsOpen => {
            let open = facts.others().filter(|pod| pod.ended.is_none());
            let (count, names) = names(open, |_| String::new());
            format!(
                "the kubelet began to stop the pods for the {what} and did not finish; {} not seen to end: {names}",
                were(count, "pod")
            )
        }
        Why::Unprotected(why) => format!(
            "the kubelet held no delay lock at the {what}{}: {}",
            pods_ran(facts, ", and ", " still ran when systemd stopped all services"),
            match why {
                NoLock::ZeroPeriods => "the kubelet's shutdownGracePeriod is 0 (the default)".to_owned(),
                NoLock::Dropped =>
                    "the kubelet released its lock at a spoofed PrepareForShutdown, and takes no new lock until it restarts"
                        .to_owned(),
                NoLock::Limit(limit, needed) => format!(
                    "the kubelet needs {}, and logind allows {} (InhibitDelayMaxSec)",
                    setting(*needed),
                    setting(*limit)
                ),
                NoLock::NotKnown => "the reason is unknown: the kubelet's configuration was not read".to_owned(),
            }
        ),
        Why::Bypassed => {
            let lock = match facts.kubelet.held {
                Some(true) => "; the kubelet held its lock, but got no announcement",
                Some(false) if facts.kubelet.is_there => "; the kubelet held no lock",
                _ => "",
            };
            format!(
                "the {what} bypassed logind: {}, and logind sent no PrepareForShutdown{lock}{}",
                how_begun(facts),
                pods_ran(facts, "; ", " ran at that time")
            )
        }
        Why::Unannounced => format!(
            "the node went down without any announcement{}{}",
            back(facts),
            pods_ran(facts, "; ", " ran at the last evidence")
        ),
        Why::Spoofed => spoofed(facts),
        Why::Cancelled => {
            let after = facts
                .signs
                .cancelled
                .map(|at| format!(" {} after its announcement", seconds(at.since(facts.begin))));
            let pods = match ended(facts) {
                0 if facts.kubelet.is_there => "; no pod was terminated by then".to_owned(),
                0 => String::new(),
                count => format!("; {} terminated by then", were(count, "pod")),
            };
            format!("the {what} was cancelled{}{pods}", after.unwrap_or_default())
        }
        Why::PlanCancelled => {
            let plan = facts.signs.scheduled.as_ref().zip(facts.signs.cancelled);
            let before = plan.map(|((plan, _), at)| {
                let due = facts.clock.boot(plan.at);
                match due > at {
                    true => format!(", {} before its time", seconds(due.since(at))),
                    false => format!(", {} after its time", seconds(at.since(due))),
                }
            });
            format!("the scheduled {what} was cancelled{}", before.unwrap_or_default())
        }
        Why::Blocked => {
            let at = facts.signs.scheduled.as_ref().map(|(plan, _)| plan.at.rfc3339_millis());
            let by: Vec<String> = blockers(facts).take(NAMED).map(lock_text).collect();
            format!(
                "the {what} scheduled for {} did not begin: it is blocked by the {}",
                at.unwrap_or_default(),
                by.join(" and the ")
            )
        }
        Why::Unknown(missing) => unknown(facts, missing, what),
    }
}

fn graceful(facts: &NodeShutdownFacts, what: &str) -> String {
    let Some(delay) = facts.delay else {
        return format!("the {what} was announced by logind");
    };
    let lasted = delay.end.map(|end| seconds(end.since(delay.begin)));
    let limit = delay.limit.map(|limit| format!("at most {}", setting(limit)));
    if !facts.kubelet.is_there {
        let of = limit.map_or(String::new(), |limit| format!(" of {limit}"));
        let locks = lasted.map(|lasted| format!("; locks delayed it for {lasted}{of}"));
        return format!("the {what} was announced by logind{}", locks.unwrap_or_default());
    }
    let count = facts.others().count() as u64;
    let needed = facts.others().filter_map(|pod| pod.ended).max();
    let needed = needed.map(|last| format!(" within {}", seconds(last.since(delay.begin))));
    let pods = match count {
        0 if facts.pods.is_empty() => "no pod ran".to_owned(),
        0 => "no pod ran besides epitaph's own".to_owned(),
        1 => format!("1 pod terminated{}", needed.unwrap_or_default()),
        count => format!("all pods ({count}) terminated{}", needed.unwrap_or_default()),
    };
    let held = match (lasted, limit) {
        (Some(lasted), Some(limit)) => format!("; logind waited {lasted} of {limit}"),
        (Some(lasted), None) => format!("; logind waited {lasted}"),
        (None, Some(limit)) if facts.ending == Ending::AgentEnded => {
            let seen = seconds(facts.end.since(delay.begin));
            format!("; logind still waited when epitaph ended, {seen} after the announcement, and waits {limit}")
        }
        (None, Some(limit)) => format!("; logind waits {limit}"),
        (None, None) => String::new(),
    };
    let late = late(facts);
    let late = match late.is_empty() || !delay.expired {
        true => String::new(),
        false => format!(", and `{}` still held a lock at the end of the delay", late.join("`, `")),
    };
    format!("the {what} was announced by logind, and {pods}{}{held}{late}", phases(facts))
}

fn truncated(facts: &NodeShutdownFacts, what: &str) -> String {
    let total = facts.others().count();
    let (count, names) = names(facts.others().filter(|pod| pod.cut.is_some()), had);
    let expired = match facts.delay {
        Some(delay) if delay.expired => {
            let limit = delay.limit.map(setting).unwrap_or_default();
            let late = late(facts);
            match facts.kubelet_outlasted() {
                true => format!("; logind's delay of {limit} expired before the kubelet released its lock"),
                false => format!(
                    "; `{}` held a lock until logind's delay of {limit} expired",
                    late.join("`, `")
                ),
            }
        }
        _ => String::new(),
    };
    format!(
        "the {what} did not wait for the shutdown of {count} of {}: {names}{}{expired}",
        many(total as u64, "pod"),
        phases(facts)
    )
}

/// Who still held a lock when logind's delay was over.
fn late(facts: &NodeShutdownFacts) -> Vec<&str> {
    let late = facts.locks.iter().filter(|lock| lock.outlasted);
    late.map(|lock| lock.lock.who.as_str()).collect()
}

fn spoofed(facts: &NodeShutdownFacts) -> String {
    let by = facts.signs.spoofed.as_ref().map(|(_, sender)| sender_text(sender));
    let again = match facts.signs.spoofs {
        0 | 1 => String::new(),
        count => format!(" {count} times"),
    };
    let pods = match ended(facts) {
        0 if facts.kubelet.is_there => "; no pod terminated".to_owned(),
        0 => String::new(),
        _ if facts.kubelet.held == Some(false) => {
            "; the kubelet held no lock, and without a lock the kubelet ignores the signal".to_owned()
        }
        count => format!(
            "; the kubelet acted on it: {count} of {} terminated",
            many(facts.others().count() as u64, "pod")
        ),
    };
    let dropped = facts.kubelet_let_go().filter(|_| facts.kubelet.held == Some(true));
    let dropped = dropped.map(|at| {
        let after = seconds(at.since(facts.begin));
        format!("; the kubelet released its lock {after} later, and takes no new lock until it restarts")
    });
    let pods = pods + &dropped.unwrap_or_default();
    format!(
        "{} sent PrepareForShutdown{again}, which only logind may send; the node stayed up{pods}",
        by.unwrap_or_else(|| "an unknown sender".to_owned())
    )
}

fn unknown(facts: &NodeShutdownFacts, missing: &Missing, what: &str) -> String {
    let reason = match missing {
        Missing::Bus(reason) => reason.clone(),
        Missing::Gap => "epitaph was not observing for a part of the shutdown".to_owned(),
        Missing::NothingFollowed => format!("{}, nothing followed, and the node stayed up", how_begun(facts)),
        Missing::AgentEnded => "the agent stopped before the node went down".to_owned(),
        Missing::ObservationEnded => format!(
            "epitaph stopped observing {} after the shutdown began",
            seconds(facts.end.since(facts.begin))
        ),
        Missing::Exits => "exits of processes were not observed, or their records were lost".to_owned(),
        Missing::Pods => "the pods of the node were not known".to_owned(),
        Missing::TooManyPods => "more pods ran than epitaph follows".to_owned(),
        Missing::Lock => "whether the kubelet held a lock was not observed".to_owned(),
        Missing::KubeletAtWork => match facts.kubelet_outlasted() {
            true => "the kubelet still held its lock when logind's delay expired, although all observed pods had terminated"
                .to_owned(),
            false => {
                "the kubelet's state file records no end of the shutdown, although all observed pods had terminated".to_owned()
            }
        },
        Missing::Open => {
            let (count, names) = names(facts.others().filter(|pod| pod.ended.is_none()), |_| String::new());
            format!("the end of {} was not seen: {names}", many(count, "pod"))
        }
    };
    let who = match facts.signs.is_real() {
        true => format!("how the {what} went is unknown"),
        false => "why the node went down is unknown".to_owned(),
    };
    format!("{who}: {reason}{}", back(facts).replacen(", and", "; the node", 1))
}

pub(super) fn remedy(facts: &NodeShutdownFacts, why: &Why) -> Option<String> {
    let row = table::row(outcome(why));
    let from_table = || Some(lower(row.remedy));
    match why {
        Why::Graceful => clients::remedy(facts),
        Why::PlanCancelled => None,
        Why::Cancelled if ended(facts) == 0 => None,
        Why::Cancelled => Some(
            "delete the pods that are Failed with the reason Terminated, where no controller replaces them: the kubelet does not start \
             them again"
                .to_owned(),
        ),
        Why::CutOff => Some(format!(
            "look at the log of the power supply, the hypervisor or the cloud provider at that time; if the provider switches machines off \
             after a time limit, the limit must exceed logind's delay{} and the stop of the services",
            facts
                .delay
                .and_then(|delay| delay.limit)
                .map(|limit| format!(" ({})", setting(limit)))
                .unwrap_or_default()
        )),
        Why::Truncated => {
            let short = |pod: &PodInShutdown, cut: Cut| Some(pod.grace?.saturating_sub(cut.had.unwrap_or_default()));
            let needed = facts.cut().filter_map(|(pod, cut)| Some((pod, short(pod, cut)?, pod.grace?)));
            let Some((pod, short, grace)) = needed.max_by_key(|(_, short, _)| *short) else {
                return Some(RAISE.to_owned());
            };
            let was_killed = pod.cut.is_some_and(|cut| cut.killed);
            let instead = if was_killed { None } else { time_was_cut(facts) };
            instead.or_else(|| {
                let raise = raise(facts, pod, Duration::from_secs(short.as_secs().max(1)))?;
                Some(format!(
                    "{raise}, or shorten the shutdown of {}/{}, which may take {}",
                    pod.pod.namespace,
                    pod.pod.name,
                    setting(grace)
                ))
            })
            .or_else(|| Some(RAISE.to_owned()))
        }
        Why::Spoofed => Some(of_spoofed(facts)),
        Why::Unprotected(NoLock::Dropped) => Some("restart the kubelet after each spoofed signal: the kubelet takes the lock only at its start".to_owned()),
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
        Why::Unknown(Missing::Exits) => {
            Some("run `epitaph doctor`: the report names each probe that is not active on this kernel, and the reason".to_owned())
        }
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

fn of_spoofed(facts: &NodeShutdownFacts) -> String {
    let is_known = |sender: &SignalSender| match sender {
        SignalSender::Logind => true,
        SignalSender::Other { pid, comm, unit, .. } => pid.is_some() || comm.is_some() || unit.is_some(),
    };
    let find = match facts.signs.spoofed.as_ref().is_some_and(|(_, sender)| is_known(sender)) {
        true => "find the process that is named in the sentence, and who may use the system bus",
        false => {
            "the sender had left the bus before its process could be looked up: find out who may use the system bus, and who did at that time \
             (the audit log has each process that was started)"
        }
    };
    // The kubelet has its lock, or took a new one after a `false`.
    let has_lock = facts.kubelet_holds() && facts.gaps.bus.is_none();
    let restart = if has_lock {
        ""
    } else {
        "; restart the kubelet: it takes the lock only at its start"
    };
    format!("{find}{restart}")
}

/// The kubelet had less time than its periods: why.
fn time_was_cut(facts: &NodeShutdownFacts) -> Option<String> {
    let delay = facts.delay?;
    let config = facts.kubelet.config.as_ref()?.as_ref().ok()?;
    if let Some(limit) = delay.limit.filter(|limit| delay.expired && *limit < config.needed()) {
        return Some(format!(
            "raise logind's InhibitDelayMaxSec from {} to {}, which the kubelet's periods need",
            setting(limit),
            setting(config.needed())
        ));
    }
    let released = facts.kubelet_lock()?.released?;
    (released.since(delay.begin) + BUS_APART < config.needed()).then(|| {
        format!(
            "look at the log of the kubelet's service in that boot: the kubelet released its lock after {}, before its periods \
             ({}) and its pods were over",
            seconds(released.since(delay.begin)),
            setting(config.needed())
        )
    })
}

/// The settings that give the pod so much more time. The critical pods' period is a part of the total.
fn raise(facts: &NodeShutdownFacts, pod: &PodInShutdown, by: Duration) -> Option<String> {
    let config = facts.kubelet.config.as_ref()?.as_ref().ok()?;
    let total = setting(config.needed() + by);
    let limit = format!("logind's InhibitDelayMaxSec to at least {total}");
    let priority = pod.priority?;
    if is_legacy(facts) {
        let all = format!("shutdownGracePeriod to {}", setting(config.total + by));
        return Some(match priority >= CRITICAL_PRIORITY {
            true => format!(
                "raise shutdownGracePeriodCriticalPods to {}, {all}, and {limit}",
                setting(config.critical + by)
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
        setting(phase.period + by)
    ))
}

/// `reboot`, `power-off`, `shutdown`.
fn what(facts: &NodeShutdownFacts) -> &'static str {
    facts.kind.map_or("shutdown", ShutdownKind::name)
}

fn how_begun(facts: &NodeShutdownFacts) -> String {
    let signs = &facts.signs;
    match (&signs.signal, &signs.job) {
        (Some(signal), _) => format!("`{}` (pid {}) sent PID 1 {}", signal.comm, signal.pid, signal.signal),
        (None, Some((_, unit))) => format!("systemd began a job for {unit}"),
        (None, None) if signs.stopping.is_some() => "systemd's state was `stopping`".to_owned(),
        (None, None) if signs.only_swept() => "systemd sent stop signals to pods and services alike".to_owned(),
        (None, None) => "systemd-shutdown stopped all processes".to_owned(),
    }
}

fn back(facts: &NodeShutdownFacts) -> String {
    match facts.ending {
        // After the end of an agent, the machine may have run for weeks without one.
        Ending::Down { .. } if facts.gaps.agent_ended && !facts.signs.is_real() => String::new(),
        Ending::Down { back } => format!(", and was back {} after the last evidence", seconds(back.since(facts.end))),
        _ => String::new(),
    }
}

/// Pods that had not ended when systemd stopped everything, or at the last evidence.
fn pods_ran(facts: &NodeShutdownFacts, before: &str, after: &str) -> String {
    let over = facts.signs.stopped_since().unwrap_or(facts.end);
    match facts.others().filter(|pod| pod.ran_at(over)).count() as u64 {
        0 => String::new(),
        count => format!("{before}{}{after}", many(count, "pod")),
    }
}

fn stayed_ready(facts: &NodeShutdownFacts) -> String {
    match facts.pods_ready {
        None | Some(0) => String::new(),
        Some(count) => format!(
            "; at least {} stayed Ready in the API until the node was back, and a Service sends clients to Ready pods",
            many(count, "pod")
        ),
    }
}

fn ended(facts: &NodeShutdownFacts) -> u64 {
    facts.others().filter(|pod| pod.ended.is_some()).count() as u64
}

/// `; 9.1 s of 30 s, critical 3.0 s of 30 s`.
fn phases(facts: &NodeShutdownFacts) -> String {
    let is_legacy = is_legacy(facts);
    let one = |(number, phase): (usize, &crate::shutdown::Phase)| {
        facts
            .pods
            .iter()
            .any(|pod| pod.phase == Some(number) && !pod.is_own)
            .then(|| {
                let name = match (phase.priority >= CRITICAL_PRIORITY, is_legacy) {
                    (true, true) => "critical phase",
                    (false, true) => "normal phase",
                    (_, false) => {
                        return format!(
                            "priority {} took {}{} of {}",
                            phase.priority,
                            if phase.at_least { "at least " } else { "" },
                            seconds(phase.end.since(phase.begin)),
                            setting(phase.period)
                        );
                    }
                };
                format!(
                    "{name} took {}{} of {}",
                    if phase.at_least { "at least " } else { "" },
                    seconds(phase.end.since(phase.begin)),
                    setting(phase.period)
                )
            })
    };
    let phases: Vec<String> = facts.phases.iter().enumerate().filter_map(one).collect();
    match phases.is_empty() {
        true => String::new(),
        false => format!(" ({})", phases.join(", ")),
    }
}

/// By two periods, not by the pods' priorities.
fn is_legacy(facts: &NodeShutdownFacts) -> bool {
    let config = facts.kubelet.config.as_ref();
    config.is_some_and(|config| {
        config
            .as_ref()
            .is_ok_and(|config: &KubeletShutdown| config.by_priority.is_empty())
    })
}

fn had(pod: &PodInShutdown) -> String {
    let Some(Cut { had, killed, .. }) = pod.cut else {
        return String::new();
    };
    let of = pod.grace.map_or(String::new(), |grace| format!(" of its {}", setting(grace)));
    match (had, killed) {
        (Some(had), _) => format!(" (had {}{of})", seconds(had)),
        (None, true) => " (SIGKILL without a stop signal)".to_owned(),
        (None, false) => " (got no stop signal)".to_owned(),
    }
}

pub(super) fn names<'a>(
    pods: impl Iterator<Item = &'a PodInShutdown>,
    more: impl Fn(&PodInShutdown) -> String,
) -> (u64, String) {
    let all: Vec<String> = pods
        .map(|pod| format!("{}/{}{}", pod.pod.namespace, pod.pod.name, more(pod)))
        .collect();
    let count = all.len();
    let mut text = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if count > NAMED {
        text.push_str(&format!(" and {} more", count - NAMED));
    }
    (count as u64, text)
}

/// A setting, in whole seconds where it is.
pub(super) fn setting(d: Duration) -> String {
    match d.subsec_nanos() {
        0 => format!("{} s", d.as_secs()),
        _ => seconds(d),
    }
}
