//! Why a termination is unknown.

use std::time::Duration;

use super::settings::stop_signal;
use crate::attribute::Subject;
use crate::event::Kind;
use crate::ids::Comm;
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
        Missing::OverCap => "epitaph did not keep all of its evidence: too much came, or its memory for evidence was full".to_owned(),
        Missing::Lost(kinds) => format!("kernel records of {} were lost during the termination", records(kinds)),
        Missing::StopLost => "kernel records of sent signals were lost before, and one of these may have been a stop signal".to_owned(),
        Missing::NotRecorded => "the recording begins too late, and evidence from before its begin may be missing".to_owned(),
        Missing::Damaged => {
            "a part of the journal or of the recording is damaged or was not written, and it may have had the evidence"
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
        Missing::Sockets => {
            let helpers = match case.inside.killed.is_empty() {
                true => "another process".to_owned(),
                false => super::inside::names_of_killed(case),
            };
            format!("{helpers} was killed below it, and nothing shows whether that was a program with connections: its sockets were not observed")
        }
        Missing::EndBelow(comm, signal) if signal.is_fault() => {
            format!("`{comm}`, a process below it that served clients, ended by {signal}, and whether another process sent that was not recorded")
        }
        Missing::EndBelow(comm, signal) => format!(
            "`{comm}`, a process below it that served clients, was terminated by {signal}; the sender of {signal}, and any earlier stop \
             signal to `{comm}`, were not recorded"
        ),
        Missing::Job(comm) => format!(
            "the stop signal reached a process with the name of its parent, `{comm}`, the default action ended that process, and nothing shows whether \
             it had work in hand"
        ),
        Missing::Program => "systemd stopped other processes of the unit, too, and nothing shows whether one of them was the program: the sockets \
             were not observed"
            .to_owned(),
        Missing::Main => "the process began while epitaph did not observe, so it may have been a command that systemd runs before or after the unit's \
             main process (`ExecStartPre=`, `ExecStopPost=`)"
            .to_owned(),
        Missing::EndOfChild(signal) => {
            let child = case
                .failed_child
                .map_or(String::new(), |child| format!("`{}`, which had clients, ", child.process.comm));
            format!("{child}ended by {signal} before, and the sender of {signal} was not seen")
        }
        Missing::KernelKill => "the kernel sent SIGKILL, and neither an OOM kill nor a resource limit was seen".to_owned(),
        Missing::Request => {
            "the watch of the pods was interrupted, so a deletion request or a shorter grace period may not have been seen"
                .to_owned()
        }
        Missing::Name => {
            "no status of the pod named the container, so its preStop hook, or whether it is the sandbox, is unknown".to_owned()
        }
    };
    format!("{status}{reason}")
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
        Open::NodeDown => match case.stop() {
            Some(stop) => {
                let after = seconds(case.end.since(stop.at));
                return format!(
                    "how {who} terminated is unknown: the node went down {after} after {}, and no exit was seen until then",
                    stop.signal
                );
            }
            None => "the node went down, and no exit was seen until then".to_owned(),
        },
        Open::TimelineCap => {
            "more terminations were in progress than epitaph keeps, and this one had been idle the longest".to_owned()
        }
    };
    let stop = case
        .stop()
        .map_or(String::new(), |stop| format!("; {} had been sent before", stop.signal));
    format!("how {who} terminated is unknown: {open}{stop}")
}

/// Why the first stop signal may have come before the observation.
pub(super) fn late_start(case: &Case<'_>) -> String {
    match (case.gaps.late_start, unobserved(case, |gap| gap.until <= case.end)) {
        _ if case.missing.begins_late(case.end) => "the recording begins too late".to_owned(),
        (false, Some(unobserved)) => format!("{unobserved} before"),
        _ => "the process started before the observation began".to_owned(),
    }
}

/// How long epitaph did not observe, in all these gaps.
pub(super) fn unobserved(case: &Case<'_>, counts: impl Fn(&Unobserved) -> bool) -> Option<String> {
    let gaps = case.gaps.unobserved.iter().filter(|gap| counts(gap));
    let all: Duration = gaps.map(Unobserved::length).sum();
    (!all.is_zero()).then(|| format!("epitaph did not observe for {}", seconds(all)))
}

/// Lost records of one container or unit per second: as many as the smallest budget of a kind that a program can exceed by signals alone.
const NOISE: u64 = 1024;

fn lost(case: &Case<'_>) -> String {
    format!(
        "raise `kernel.ring_bytes`, unless processes of the {0} itself send signals, exit or connect thousands of times per second: each {0} has a \
         budget of records",
        subject(case)
    )
}

/// Lost records that the subject's own processes made, far more of them than a ring that is too small explains.
fn noise(case: &Case<'_>) -> Option<(u64, Duration)> {
    let (count, time) = case.gaps.own_lost?;
    (count >= NOISE * time.as_secs().max(1)).then_some((count, time))
}

fn of_records(case: &Case<'_>, kinds: &[Kind]) -> String {
    let Some((count, time)) = noise(case) else {
        return lost(case);
    };
    format!(
        "find the process of the {0} that makes so many records of {1}: {count} more than the budget of one {0} in {2}; a larger `kernel.ring_bytes` \
         does not change the budget",
        subject(case),
        records(kinds),
        seconds(time)
    )
}

/// What lets a program stop the processes of its pool itself.
fn alone(case: &Case<'_>, comm: Comm) -> String {
    let signal = stop_signal(case);
    let by_systemd =
        matches!(case.subject, Subject::Unit { .. }) && case.stop().is_some_and(|stop| stop.sender.role == Role::Runtime);
    let by_terminal = case.stop().is_some_and(|stop| stop.sender.role == Role::Kernel);
    let how = match case.inside.pool {
        Some(_) if by_systemd => {
            // At SIGTERM PHP-FPM ends its workers at once.
            return format!(
                "set `KillMode=mixed` in the unit, with `{comm}` as its main process, and as `KillSignal=` one at which `{comm}` finishes the \
                 work of its processes (PHP-FPM: SIGQUIT): systemd then sends it to `{comm}` alone"
            );
        }
        // A key's signal is for all processes in the foreground.
        Some(_) if by_terminal => format!("stop `{comm}` by a signal to that process alone (`kill`), not by the terminal"),
        Some(_) => format!("send {signal} to the main process alone"),
        None => "let the init signal its child alone (dumb-init `--single-child`, tini without `-g`)".to_owned(),
    };
    format!("{how}, so that `{comm}` stops its own processes")
}

/// Names the missing evidence and the remedy: only some of the reasons are faults.
pub(super) fn remedy_of(case: &Case<'_>, missing: &Missing) -> String {
    match missing {
        Missing::Main => {
            "look up the exit of the main process in the log of systemd (`journalctl -u`): epitaph was not observing when the process began".to_owned()
        }
        Missing::LateStart if case.gaps.late_start => "nothing to fix: the process started before the observation began".to_owned(),
        Missing::LateStart | Missing::Gap => {
            "keep epitaph running without interruption: no evidence exists for the time in which it did not observe".to_owned()
        }
        Missing::OverCap => {
            "raise `limits.memory`, if epitaph dropped evidence to stay within it (`epitaph_dropped_total`); otherwise find the process that sends this container \
             or unit many signals: a limited number is kept for one termination"
                .to_owned()
        }
        Missing::Lost(kinds) => of_records(case, kinds),
        Missing::StopLost => of_records(case, &[Kind::SignalGenerate]),
        Missing::NotRecorded => {
            "read the agent's own verdict (`epitaph why`, `epitaph list`), or export more: `epitaph export` with an earlier `--since`".to_owned()
        }
        Missing::Damaged => {
            "make a copy or an export again if that is what is damaged; of the journal itself, the agent's log of that time has the reason: a disk \
             that was full, read-only or slow, or a damaged file"
                .to_owned()
        }
        Missing::Inactive(_) => {
            "run `epitaph doctor`: the report names each probe that is not active on this kernel, and the reason".to_owned()
        }
        Missing::NoExit(Open::CgroupRemoved) => {
            "look up the exit code in the log of the container runtime or systemd: epitaph did not see the main process exit"
                .to_owned()
        }
        Missing::NoExit(Open::ObservationEnded) => "keep epitaph running until the process has exited".to_owned(),
        Missing::NoExit(Open::InGap { .. }) => {
            "look up the exit code in the log of the container runtime or systemd: epitaph was not running when the process exited"
                .to_owned()
        }
        Missing::NoExit(Open::NodeDown) => {
            "look for the reason of the shutdown or crash in the log of the previous boot (`journalctl -b -1`)".to_owned()
        }
        Missing::NoExit(Open::TimelineCap) => {
            "stop fewer containers at the same time: epitaph keeps a limited number of terminations in progress".to_owned()
        }
        Missing::Timer(signal) => format!(
            "if the program starts a timer (alarm, setitimer; profilers use one): install a {signal} handler before, or do not start it; \
             otherwise search the audit log for who sent {signal}"
        ),
        Missing::SenderNotSeen(signal) | Missing::EndOfChild(signal) => {
            format!("search the kernel log and the audit log for the sender of {signal}: epitaph has no record of the sender")
        }
        Missing::Inside => {
            "use cgroup v2 for containers: what their processes signal each other is recorded there only".to_owned()
        }
        Missing::Job(comm) => alone(case, *comm),
        Missing::Request | Missing::Name => {
            "check the connection of epitaph's agent to the Kubernetes API: the pod's changes did not all arrive".to_owned()
        }
        Missing::Sockets | Missing::Program if case.traffic().cgroup_v1 => {
            "use cgroup v2: the sockets of processes are observed there only".to_owned()
        }
        Missing::Sockets | Missing::Program => {
            "run `epitaph doctor`: the report names each probe that is not active on this kernel; records that were lost need a larger `kernel.ring_bytes`"
                .to_owned()
        }
        Missing::EndBelow(comm, _) => format!(
            "let the first process wait until `{comm}` has ended, or start `{comm}` as the first process (with `exec` in a shell script)"
        ),
        Missing::KernelKill => "search the kernel log (`dmesg`) for the reason of the SIGKILL".to_owned(),
    }
}
