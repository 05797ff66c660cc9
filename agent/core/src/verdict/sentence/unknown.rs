//! Why a termination is unknown.

use std::time::Duration;

use crate::ids::{Comm, Signal};
use crate::termination::{Open, Role, Unobserved};
use crate::verdict::case::Case;
use crate::verdict::judge::Missing;
use crate::verdict::words::{how, records, seconds, subject};

/// In the sentence of every termination that was still in progress when epitaph stopped; the subject's word follows.
pub const OBSERVATION_ENDED: &str = "epitaph stopped while this";

pub(super) fn unknown(case: &Case<'_>, missing: &Missing, who: &str) -> String {
    let unseen = || format!("how {who} terminated is unknown: ");
    let status = case.exit.map_or_else(unseen, |exit| {
        format!("{who} {}, but the reason is unknown: ", how(exit.status))
    });
    let reason = match missing {
        Missing::LateStart => format!("{}, so a stop signal may have been missed", late_start(case)),
        Missing::Gap => match unobserved(case, |_| true) {
            Some(unobserved) => format!("{unobserved} around that time"),
            None => "epitaph was not observing for part of that time".to_owned(),
        },
        Missing::OverCap => "epitaph did not keep all evidence: there was too much evidence, or epitaph's memory for evidence was \
                             full".to_owned(),
        Missing::Lost(kinds) => format!("kernel records of {} were lost during the termination", records(kinds)),
        Missing::StopLost => "kernel records of sent signals were lost before, and one of these signals may have been a stop \
                              signal".to_owned(),
        Missing::NotRecorded => "the recording begins too late, and evidence from before its begin may be missing".to_owned(),
        Missing::Damaged => {
            "a part of the journal or of the recording is damaged or was not written, and the evidence may have been in that part"
                .to_owned()
        }
        Missing::Inactive(kinds) => format!("the probe for {} was not active", records(kinds)),
        Missing::NoExit(open) => return no_exit(case, *open, who),
        Missing::SenderNotSeen(signal) => format!("the sender of {signal} was not seen"),
        Missing::Timer(signal) => {
            format!("a timer of the process sends {signal}, and so can another process; the sender of {signal} is not recorded")
        }
        Missing::Inside => format!(
            "the signals between the processes of the {} are not recorded here, so it is unknown whether the exit code comes from a process below PID 1 that the signal terminated",
            subject(case)
        ),
        Missing::Sockets => sockets(case),
        Missing::EndBelow(comm, signal) if signal.is_fault() => {
            format!("`{comm}`, a process below the main process that served clients, ended by {signal}, and it was not recorded whether \
                     another process sent {signal}")
        }
        Missing::EndBelow(comm, signal) => format!(
            "`{comm}`, a process below the main process that served clients, was terminated by {signal}; the sender of {signal}, and any \
             earlier stop \
             signal to `{comm}`, were not recorded"
        ),
        Missing::Job(comm) => job(case, *comm),
        Missing::Program => "systemd stopped other processes of the unit, too, and nothing shows whether one of them was the program: the sockets \
             were not observed"
            .to_owned(),
        Missing::Main => "the process began while epitaph did not observe, so it may have been a command that systemd runs before or after the unit's \
             main process (`ExecStartPre=`, `ExecStopPost=`)"
            .to_owned(),
        Missing::EndOfChild(signal) => end_of_child(case, *signal),
        Missing::Victim => "the OOM killer killed a process below the main process, and nothing shows who had started that process: the program, or a process \
             from outside (an exec probe, `kubectl exec`)"
            .to_owned(),
        Missing::KernelKill => "the kernel sent SIGKILL, and neither an OOM kill nor a resource limit was seen".to_owned(),
        Missing::RequestTime => "the node was shutting down, and a deletion of the pod gave less time than the pod's spec; nothing shows whether the \
             shutdown or the deletion led to the SIGKILL"
            .to_owned(),
        Missing::Request => {
            "the watch of the pods was interrupted, so a deletion request or a shorter grace period may not have been seen"
                .to_owned()
        }
        Missing::LateStop => {
            "nothing shows what used up the grace period before the stop signal: the pod's main containers, or the container's own preStop hook"
                .to_owned()
        }
        Missing::Name => {
            "no status of the pod named the container, so it is unknown whether the container is the sandbox, and which preStop hook it \
             has".to_owned()
        }
    };
    format!("{status}{reason}")
}

fn sockets(case: &Case<'_>) -> String {
    let helpers = match case.inside.killed.is_empty() {
        true => "another process".to_owned(),
        false => super::inside::names_of_killed(case),
    };
    format!(
        "SIGKILL ended {helpers} below the main process, and nothing shows whether a program with connections was killed: its sockets \
         were not observed"
    )
}

fn job(case: &Case<'_>, comm: Comm) -> String {
    match case.stop().is_some_and(|stop| stop.sender.role == Role::Inside) {
        true => format!(
            "a process with the name of its parent, `{comm}`, was terminated by a signal; signals that follow a stop from inside the {} are not \
             recorded, and nothing shows whether that process had work in hand",
            subject(case)
        ),
        false => format!(
            "the stop signal reached a process with the name of its parent, `{comm}`, the default action ended that process, and nothing shows whether \
             it had work in hand"
        ),
    }
}

fn end_of_child(case: &Case<'_>, signal: Signal) -> String {
    let child = case.failed_child.map_or(String::new(), |child| {
        format!("`{}`, which had clients, ", child.process.comm)
    });
    format!("{child}ended by {signal} before, and the sender of {signal} was not seen")
}

fn no_exit(case: &Case<'_>, open: Open, who: &str) -> String {
    let open = match open {
        Open::CgroupRemoved => "the cgroup was removed, and no exit of the main process was seen".to_owned(),
        Open::ObservationEnded => format!("{OBSERVATION_ENDED} {} was still shutting down", subject(case)),
        Open::InGap { since: gap, .. } => {
            format!(
                "the process exited within {} in which epitaph did not observe",
                seconds(case.end.since(gap))
            )
        }
        Open::NodeDown { agent_ended } => match case.stop() {
            Some(stop) => {
                let after = seconds(case.end.since(stop.at));
                let last = match agent_ended {
                    true => "epitaph's last evidence is",
                    false => "the node went down",
                };
                return format!(
                    "how {who} terminated is unknown: {last} {after} after {}, and no exit was seen until then",
                    stop.signal
                );
            }
            None if agent_ended => "epitaph stopped before the node went down, and no exit was seen until then".to_owned(),
            None => "the node went down, and no exit was seen until then".to_owned(),
        },
        Open::TimelineCap => {
            "more terminations were in progress than epitaph keeps, and this termination had been idle the longest".to_owned()
        }
    };
    let stop = case
        .stop()
        .map_or(String::new(), |stop| format!("; {} had been sent before", stop.signal));
    format!("how {who} terminated is unknown: {open}{stop}")
}

/// Why the first stop signal may have come before the observation.
pub(super) fn late_start(case: &Case<'_>) -> String {
    match unobserved_before(case) {
        _ if case.missing.begins_late(case.end) => "the recording begins too late".to_owned(),
        Some(unobserved) => format!("{unobserved} before"),
        None => "the process started before the observation began".to_owned(),
    }
}

/// None if the process started before the first observation.
pub(super) fn unobserved_before(case: &Case<'_>) -> Option<String> {
    unobserved(case, |gap| gap.until <= case.end).filter(|_| !case.gaps.late_start)
}

/// How long epitaph did not observe, in all these gaps.
pub(super) fn unobserved(case: &Case<'_>, counts: impl Fn(&Unobserved) -> bool) -> Option<String> {
    let gaps = case.gaps.unobserved.iter().filter(|gap| counts(gap));
    let all: Duration = gaps.map(Unobserved::length).sum();
    (!all.is_zero()).then(|| format!("epitaph did not observe for {}", seconds(all)))
}
