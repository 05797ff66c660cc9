//! One sentence with the measured times, and one remedy.

use super::clients;
use super::why::{Missing, NoLock, Why};
use super::words::{NAMED, blockers, lock_text, names, sender_text};
use crate::node::{CRITICAL_PRIORITY, ShutdownKind};
use crate::shutdown::{Cut, Ending, NodeShutdownFacts, PodInShutdown};
use crate::verdict::words::{many, seconds, were, whole_seconds};

pub(super) fn sentence(facts: &NodeShutdownFacts, why: &Why) -> String {
    of_verdict(facts, why) + &clients::lost(facts) + &clients::started(facts) + &stayed_ready(facts)
}

fn of_verdict(facts: &NodeShutdownFacts, why: &Why) -> String {
    let what = what(facts);
    match why {
        Why::Graceful => graceful(facts, what),
        Why::Truncated => truncated(facts, what),
        Why::CutOff => cut_off(facts, what),
        Why::StateIsOpen => {
            let open = facts.others().filter(|pod| pod.ended.is_none());
            let (count, names) = names(open, |_| String::new());
            format!(
                "the kubelet began to stop the pods for the {what} and did not finish; {} not seen to end: {names}",
                were(count, "pod")
            )
        }
        Why::Unprotected(why) => unprotected(facts, why, what),
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
                0 if facts.kubelet.is_there && facts.knows_pods() => format!("; {} was terminated by then", no_pod(facts)),
                0 => String::new(),
                count => format!("; {}{} terminated by then", at_least(facts), were(count, "pod")),
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

fn cut_off(facts: &NodeShutdownFacts, what: &str) -> String {
    let (sure, unsure): (Vec<_>, Vec<_>) = facts
        .others()
        .filter(|pod| pod.ended.is_none())
        .partition(|pod| !may_have_ended(facts, pod));
    let pods = match names(sure.into_iter(), |_| String::new()) {
        (0, _) => String::new(),
        (count, names) => format!("; {}{} ran then: {names}", least(unsure.len()), many(count, "pod")),
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

fn unprotected(facts: &NodeShutdownFacts, why: &NoLock, what: &str) -> String {
    format!(
        "the kubelet held no delay lock at the {what}{}: {}",
        pods_ran(facts, ", and ", " still ran when systemd stopped all services"),
        match why {
            NoLock::ZeroPeriods => "the kubelet's shutdownGracePeriod is 0 (the default)".to_owned(),
            NoLock::Dropped =>
                "the kubelet released its lock at a spoofed PrepareForShutdown, and takes no new lock until it restarts"
                    .to_owned(),
            NoLock::Limit(limit, needed) => format!(
                "the kubelet needs {}, and logind allows {} (InhibitDelayMaxSec)",
                whole_seconds(*needed),
                whole_seconds(*limit)
            ),
            NoLock::NotKnown => "the reason is unknown: the kubelet's configuration was not read".to_owned(),
        }
    )
}

fn graceful(facts: &NodeShutdownFacts, what: &str) -> String {
    let Some(delay) = facts.logind.delay else {
        return format!("the {what} was announced by logind");
    };
    let lasted = delay.end.map(|end| seconds(end.since(delay.begin)));
    let limit = delay.limit.map(|limit| format!("at most {}", whole_seconds(limit)));
    if !facts.kubelet.is_there {
        let of = limit.map_or(String::new(), |limit| format!(" of {limit}"));
        let locks = lasted.map(|lasted| format!("; locks delayed it for {lasted}{of}"));
        return format!("the {what} was announced by logind{}", locks.unwrap_or_default());
    }
    let count = facts.others().count() as u64;
    let needed = facts.others().filter_map(|pod| pod.ended).max();
    let needed = needed.map(|last| format!(" within {}", seconds(last.since(delay.begin))));
    let pods = match count {
        0 if !facts.unlisted.own_ran => format!("{} ran", no_pod(facts)),
        0 => format!("{} ran besides epitaph's own", no_pod(facts)),
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

/// Before a number of pods that have ended.
fn at_least(facts: &NodeShutdownFacts) -> &'static str {
    match facts.knows_pods() {
        true => "",
        false => "at least ",
    }
}

/// Pods whose owners want no reports are not in the list, and may have run.
fn no_pod(facts: &NodeShutdownFacts) -> &'static str {
    match facts.unlisted.ignored {
        0 => "no pod",
        _ => "no pod that is reported",
    }
}

fn truncated(facts: &NodeShutdownFacts, what: &str) -> String {
    let total = facts.others().count();
    let (count, names) = names(facts.others().filter(|pod| pod.cut.is_some()), had);
    let expired = match facts.logind.delay {
        Some(delay) if delay.expired => {
            let limit = delay.limit.map(whole_seconds).unwrap_or_default();
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
    let late = facts.logind.locks.iter().filter(|lock| lock.outlasted);
    late.map(|lock| lock.lock.who.as_str()).collect()
}

fn spoofed(facts: &NodeShutdownFacts) -> String {
    let by = facts.signs.spoofed.as_ref().map(|(_, sender)| sender_text(sender));
    let again = match facts.signs.spoofs {
        0 | 1 => String::new(),
        count => format!(" {count} times"),
    };
    let pods = match ended(facts) {
        0 if facts.kubelet.is_there && facts.knows_pods() => format!("; {} terminated", no_pod(facts)),
        0 => String::new(),
        _ if facts.kubelet.held == Some(false) => {
            "; the kubelet held no lock, and without a lock the kubelet ignores the signal".to_owned()
        }
        count => format!(
            "; the kubelet acted on it: {}{count} of {} terminated",
            at_least(facts),
            many(facts.others().count() as u64, "pod")
        ),
    };
    let dropped = facts.logind.kubelet_let_go().filter(|_| facts.kubelet.held == Some(true));
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
        Missing::Kill => {
            let (_, names) = names(facts.others().filter(|pod| pod.is_unexplained), |_| String::new());
            format!("a container was killed, and why it was stopped, or how long it had, is not known: {names}")
        }
        Missing::Signals => {
            "records of signals were lost, perhaps those of systemd-shutdown, which stops all processes at the end".to_owned()
        }
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
    let (sure, unsure): (Vec<_>, Vec<_>) = facts
        .others()
        .filter(|pod| pod.ran_at(over))
        .partition(|pod| !may_have_ended(facts, pod));
    match sure.len() as u64 {
        0 => String::new(),
        count => format!("{before}{}{}{after}", least(unsure.len()), many(count, "pod")),
    }
}

/// No exit was seen, and its record may be lost.
fn may_have_ended(facts: &NodeShutdownFacts, pod: &PodInShutdown) -> bool {
    pod.ended.is_none() && (pod.is_unsure || facts.gaps.exits)
}

/// Before a number, where so many more may count.
fn least(more: usize) -> &'static str {
    match more {
        0 => "",
        _ => "at least ",
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

pub(super) fn ended(facts: &NodeShutdownFacts) -> u64 {
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
                            whole_seconds(phase.period)
                        );
                    }
                };
                format!(
                    "{name} took {}{} of {}",
                    if phase.at_least { "at least " } else { "" },
                    seconds(phase.end.since(phase.begin)),
                    whole_seconds(phase.period)
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
pub(super) fn is_legacy(facts: &NodeShutdownFacts) -> bool {
    let config = facts.kubelet.configured();
    config.is_some_and(|config| config.by_priority.is_empty())
}

fn had(pod: &PodInShutdown) -> String {
    let Some(Cut { had, killed, .. }) = pod.cut else {
        return String::new();
    };
    let of = pod
        .grace
        .map_or(String::new(), |grace| format!(" of its {}", whole_seconds(grace)));
    match (had, killed) {
        (Some(had), _) => format!(" (had {}{of})", seconds(had)),
        (None, true) => " (SIGKILL without a stop signal)".to_owned(),
        (None, false) => " (got no stop signal)".to_owned(),
    }
}
