//! For a termination whose evidence is not sufficient: only some of the reasons are faults.

use std::time::Duration;

use super::asked::{Asked, Remedy};
use crate::attribute::Subject;
use crate::event::Kind;
use crate::ids::Comm;
use crate::termination::{Open, Role};
use crate::verdict::case::Case;
use crate::verdict::judge::{Missing, Why};
use crate::verdict::sentence::settings::stop_signal;
use crate::verdict::sentence::unknown::unobserved_before;
use crate::verdict::words::{records, seconds, subject};

pub const REMEDIES: &[Remedy] = &[
    Remedy {
        name: "nothing-to-fix",
        helps_if: "The process started before the observation began.",
        holds: |of| missing(of) == Some(&Missing::LateStart) && unobserved_before(of.case).is_none(),
        words: |_| said("nothing to fix: the process started before the observation began"),
    },
    Remedy {
        name: "keep-epitaph-running",
        helps_if: "Epitaph did not observe during a part of the termination.",
        holds: |of| matches!(missing(of), Some(Missing::LateStart | Missing::Gap)),
        words: |_| {
            said("keep epitaph running without interruption: no evidence exists for the time in which it did not observe")
        },
    },
    Remedy {
        name: "keep-epitaph-running-to-the-exit",
        helps_if: "Epitaph stopped while the process was still shutting down.",
        holds: |of| is_open(of, |open| *open == Open::ObservationEnded),
        words: |_| said("keep epitaph running until the process has exited"),
    },
    Remedy {
        name: "look-in-systemds-log",
        helps_if: "A process of a systemd unit began while Epitaph did not observe, so this process may not have been the unit's main \
                   process.",
        holds: |of| missing(of) == Some(&Missing::Main),
        words: |_| {
            said(
                "look up the exit of the main process in the log of systemd (`journalctl -u`): epitaph was not observing when the process began",
            )
        },
    },
    Remedy {
        name: "look-in-the-runtimes-log",
        helps_if: "No record shows how the process exited, or when the pod's main containers exited. The log of the container runtime or \
                   of systemd may show this.",
        holds: |of| {
            is_open(of, |open| matches!(open, Open::CgroupRemoved | Open::InGap { .. }))
                || missing(of) == Some(&Missing::LateStop)
        },
        words: |of| {
            let why = match missing(of) {
                Some(Missing::LateStop) => {
                    return said("look up in the log of the container runtime when the main containers and the hook ended");
                }
                Some(Missing::NoExit(Open::InGap { .. })) => "epitaph was not running when the process exited",
                _ => "epitaph did not see the main process exit",
            };
            Some(format!(
                "look up the exit code in the log of the container runtime or systemd: {why}"
            ))
        },
    },
    Remedy {
        name: "look-in-the-log-of-the-previous-boot",
        helps_if: "The node went down before the process exited.",
        holds: |of| is_open(of, |open| matches!(open, Open::NodeDown { .. })),
        words: |_| said("look for the reason of the shutdown or crash in the log of the previous boot (`journalctl -b -1`)"),
    },
    Remedy {
        name: "stop-fewer-at-once",
        helps_if: "More terminations were in progress at the same time than Epitaph can keep.",
        holds: |of| is_open(of, |open| *open == Open::TimelineCap),
        words: |_| said("stop fewer containers at the same time: epitaph keeps a limited number of terminations in progress"),
    },
    Remedy {
        name: "raise-limits-memory",
        helps_if: "Epitaph dropped evidence, because its own memory was full or because one termination had too much evidence.",
        holds: |of| missing(of) == Some(&Missing::OverCap),
        words: |_| {
            said(
                "raise `limits.memory`, if epitaph dropped evidence because of this limit (`epitaph_dropped_total`); otherwise find the \
                 process that sends many signals to this container or unit: epitaph keeps a limited number of signals for one termination",
            )
        },
    },
    Remedy {
        name: "find-the-noisy-process",
        helps_if: "The processes of the container or unit itself caused far more kernel records than the budget of one container or unit.",
        holds: |of| lost_kinds(of).is_some() && noise(of.case).is_some(),
        words: |of| {
            let (count, time) = noise(of.case)?;
            Some(format!(
                "find the process of the {0} that makes so many records of {1}: {count} more than the budget of one {0} in {2}; a larger \
                 `kernel.ring_bytes` does not change the budget",
                subject(of.case),
                records(&lost_kinds(of)?),
                seconds(time)
            ))
        },
    },
    Remedy {
        name: "raise-ring-bytes",
        helps_if: "Kernel records were lost because a ring buffer was full.",
        holds: |of| lost_kinds(of).is_some(),
        words: |of| {
            Some(format!(
                "raise `kernel.ring_bytes`, unless processes of the {0} itself send signals, exit or connect thousands of times per second: each \
                 {0} has a budget of records",
                subject(of.case)
            ))
        },
    },
    Remedy {
        name: "export-more",
        helps_if: "The recording begins too late: the verdict needs evidence from before the beginning of the recording.",
        holds: |of| missing(of) == Some(&Missing::NotRecorded),
        words: |_| {
            said(
                "read the agent's own verdict (`epitaph why`, `epitaph list`), or export more: `epitaph export` with an earlier `--since`",
            )
        },
    },
    Remedy {
        name: "export-again",
        helps_if: "A part of the recording or of the journal is damaged or missing.",
        holds: |of| missing(of) == Some(&Missing::Damaged),
        words: |_| {
            said(
                "if a copy or an export is damaged, make it again; if the journal itself is damaged, the agent's log of that time has the \
                 reason: a disk that was full, read-only or slow, or a damaged file",
            )
        },
    },
    Remedy {
        name: "run-the-doctor",
        helps_if: "An eBPF probe that the verdict needs was not active on this kernel.",
        holds: |of| matches!(missing(of), Some(Missing::Inactive(_))),
        words: |_| said("run `epitaph doctor`: the report names each probe that is not active on this kernel, and the reason"),
    },
    Remedy {
        name: "handle-the-timer-or-find-the-sender",
        helps_if: "SIGALRM, SIGVTALRM or SIGPROF ended the process: its own timer expired, or another process sent the signal.",
        holds: |of| matches!(missing(of), Some(Missing::Timer(_))),
        words: |of| {
            let Some(Missing::Timer(signal)) = missing(of) else {
                return None;
            };
            Some(format!(
                "if the program starts a timer (alarm, setitimer; profilers use one): install a {signal} handler before, or do not start \
                 the timer; otherwise search the audit log for the sender of {signal}"
            ))
        },
    },
    Remedy {
        name: "search-for-the-sender",
        helps_if: "The sender of the signal that ended the process was not recorded.",
        holds: |of| matches!(missing(of), Some(Missing::SenderNotSeen(_) | Missing::EndOfChild(_))),
        words: |of| {
            let (Missing::SenderNotSeen(signal) | Missing::EndOfChild(signal)) = missing(of)? else {
                return None;
            };
            Some(format!(
                "search the kernel log and the audit log for the sender of {signal}: epitaph has no record of the sender"
            ))
        },
    },
    Remedy {
        name: "use-cgroup-v2",
        helps_if: "The containers use cgroup v1. There, Epitaph records neither the signals between the processes of a container nor their \
                   sockets.",
        holds: |of| {
            let needs_sockets = matches!(missing(of), Some(Missing::Sockets | Missing::Program));
            missing(of) == Some(&Missing::Inside) || needs_sockets && of.case.traffic().unseen.cgroup_v1
        },
        words: |of| match missing(of)? {
            Missing::Inside => {
                said("use cgroup v2 for containers: signals between the processes of a container are recorded there only")
            }
            _ => said("use cgroup v2: the sockets of processes are observed there only"),
        },
    },
    Remedy {
        name: "run-the-doctor-for-sockets",
        helps_if: "The sockets of processes that were killed below the first process were not observed.",
        holds: |of| matches!(missing(of), Some(Missing::Sockets | Missing::Program)),
        words: |_| {
            said(
                "run `epitaph doctor`: the report names each probe that is not active on this kernel; records that were lost need a larger \
                 `kernel.ring_bytes`",
            )
        },
    },
    Remedy {
        name: "kill-mode-mixed",
        helps_if: "systemd sent the stop signal to all processes of a unit, and the default action of the signal ended a worker process of \
                   the program.",
        // At SIGTERM PHP-FPM ends its workers at once.
        holds: |of| job(of).is_some() && of.case.inside.pool.is_some() && is_by_systemd(of),
        words: |of| {
            let comm = job(of)?;
            Some(format!(
                "set `KillMode=mixed` in the unit, with `{comm}` as its main process, and set `KillSignal=` to a signal at which `{comm}` \
                 finishes the work of its processes (PHP-FPM: SIGQUIT): systemd then sends this signal to `{comm}` alone"
            ))
        },
    },
    Remedy {
        name: "signal-the-main-process-alone",
        helps_if: "The sender of the stop signal also sent it to a worker process of the program, and the default action of the signal \
                   ended this worker.",
        holds: |of| job(of).is_some(),
        words: |of| {
            let comm = job(of)?;
            let is_by = |role: Role| of.case.stop().is_some_and(|stop| stop.sender.role == role);
            let how = match of.case.inside.pool {
                // The main process alone: an init below it had the whole group signalled.
                Some(pool) if is_by(Role::Inside) && of.case.main().is_some_and(|main| main.comm != pool.comm) => {
                    SINGLE_CHILD.to_owned()
                }
                // A key's signal is for all processes in the foreground.
                Some(_) if is_by(Role::Kernel) => {
                    format!("stop `{comm}` by a signal to that process alone (`kill`), not by the terminal")
                }
                Some(_) => format!("send {} to the main process alone", stop_signal(of.case)),
                None => SINGLE_CHILD.to_owned(),
            };
            Some(format!("{how}, so that `{comm}` stops its own processes"))
        },
    },
    Remedy {
        name: "wait-for-what-served-clients",
        helps_if: "A process below the first process served clients, and a signal ended this process. The sender of the signal was not \
                   recorded.",
        holds: |of| matches!(missing(of), Some(Missing::EndBelow(..))),
        words: |of| {
            let Some(Missing::EndBelow(comm, _)) = missing(of) else {
                return None;
            };
            Some(format!(
                "let the first process wait until `{comm}` has ended, or start `{comm}` as the first process (with `exec` in a shell script)"
            ))
        },
    },
    Remedy {
        name: "check-the-connection-to-the-api",
        helps_if: "The watch of the pods was interrupted, so that a change of the pod may not have been seen.",
        holds: |of| matches!(missing(of), Some(Missing::Request | Missing::Name)),
        words: |_| said("check the connection of epitaph's agent to the Kubernetes API: the pod's changes did not all arrive"),
    },
    Remedy {
        name: "raise-memory-or-find-the-exec",
        helps_if: "The OOM killer killed a process below the first process, and nothing shows whether the program or a process from \
                   outside had started it.",
        holds: |of| missing(of) == Some(&Missing::Victim),
        words: |_| {
            said(
                "raise the memory limit if the named process belongs to the program; if a probe, a hook or an exec session starts the process, \
                 let it use less: its memory counts for the container",
            )
        },
    },
    Remedy {
        name: "search-the-kernels-log",
        helps_if: "The kernel sent SIGKILL, and neither an OOM kill nor a resource limit was seen.",
        holds: |of| missing(of) == Some(&Missing::KernelKill),
        words: |_| said("search the kernel log (`dmesg`) for the reason of the SIGKILL"),
    },
];

fn said(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn missing<'a>(of: &Asked<'a>) -> Option<&'a Missing> {
    match of.why() {
        Why::Unknown(missing) => Some(missing),
        _ => None,
    }
}

fn is_open(of: &Asked<'_>, is: impl Fn(&Open) -> bool) -> bool {
    matches!(missing(of), Some(Missing::NoExit(open)) if is(open))
}

fn lost_kinds(of: &Asked<'_>) -> Option<Vec<Kind>> {
    match missing(of)? {
        Missing::Lost(kinds) => Some(kinds.clone()),
        Missing::StopLost => Some(vec![Kind::SignalGenerate]),
        _ => None,
    }
}

/// For an init that signals a group.
const SINGLE_CHILD: &str = "let the init signal its child alone (dumb-init `--single-child`, tini without `-g`)";

fn job(of: &Asked<'_>) -> Option<Comm> {
    match missing(of)? {
        Missing::Job(comm) => Some(*comm),
        _ => None,
    }
}

fn is_by_systemd(of: &Asked<'_>) -> bool {
    let is_unit = matches!(of.case.subject, Subject::Unit { .. });
    is_unit && of.case.runtime_stop().is_some()
}

/// Lost records of one container or unit per second: as many as the smallest budget of a kind that a program can exceed by signals alone.
const NOISE: u64 = 1024;

/// Lost records that the subject's own processes made, far more of them than a ring that is too small explains.
fn noise(case: &Case<'_>) -> Option<(u64, Duration)> {
    let (count, time) = case.gaps.own_lost?;
    (count >= NOISE * time.as_secs().max(1)).then_some((count, time))
}
