//! For a process that was killed while it was shutting down, or whose signal began no shutdown.

use super::asked::{Asked, Remedy};
use super::pod::{self, Needed};
use super::signal;
use crate::ids::Comm;
use crate::verdict::judge::{InnerEnd, Why};
use crate::verdict::sentence::inside::{self, PARALLEL, SentOn};
use crate::verdict::sentence::settings::{Managed, declared, grace, is_reload, may_not_stop, serves_on, stop_signal};
use crate::verdict::words::seconds;

/// The signal that was sent may not stop the program at all.
pub const OTHER_SIGNAL: &[Remedy] = &[
    Remedy {
        name: "declare-the-signal-that-stops-a-server",
        helps_if: "The server accepted connections in the second half of its grace period and never closed its listener. The signal that was sent is probably not the one that stops this server.",
        holds: |of| ran_out(of) && SentOn::of(of).is_none() && serves_on(of.case).is_some(),
        words: |of| serves_on(of.case),
    },
    Remedy {
        name: "declare-the-signal-that-stops-the-program",
        helps_if: "Three things are true. The stop signal is not SIGTERM, SIGINT, SIGQUIT or a real-time signal, so the program may only reload at it (this remedy is not given for SIGHUP to GNU parallel). The program closed no listener between the stop signal and SIGKILL. The pod's spec does not declare the signal.",
        holds: |of| ran_out(of) && is_reload(of.case) && !signal::is_hangup_of_parallel(of),
        words: |of| {
            let otherwise = match SentOn::of(of) {
                Some(_) => signal::sent_on_text(of),
                None => more_time(of),
            }?;
            let signal = stop_signal(of.case);
            Some(format!(
                "{signal} may not stop this program (some reload at {signal}): declare the signal that does ({}); if the program does shut down \
                 at {signal}: {otherwise}",
                declared(of.case)
            ))
        },
    },
];

/// The main process, or the one to which it forwarded the signal, had not finished when the runtime killed it.
fn ran_out(of: &Asked<'_>) -> bool {
    match of.inner() {
        Some((InnerEnd::AfterGrace, forward)) => !inside::is_killed_inside(forward) && SentOn::of(of).is_none(),
        Some(_) => false,
        None => *of.why() == Why::AfterGrace,
    }
}

/// Without what else may be wrong.
fn more_time(of: &Asked<'_>) -> Option<String> {
    if of.case.kubernetes.is_some() {
        return pod::longer_grace(of.case, of.finding);
    }
    let setting = match Managed::of(of.case) {
        Managed::Unit => "`TimeoutStopSec=` of the unit",
        Managed::Pod | Managed::Container => "the grace period",
    };
    Some(format!(
        "the shutdown needs more than the {} that it got: raise {setting}, or shorten the shutdown",
        seconds(grace(of.case).unwrap_or_default())
    ))
}

fn longer(of: &Asked<'_>) -> Option<String> {
    more_time(of).map(|text| text + &may_not_stop(of.case).unwrap_or_default())
}

pub const MORE_TIME: &[Remedy] = &[
    Remedy {
        name: "more-time-for-the-jobs-of-parallel",
        helps_if: "GNU parallel sent its jobs the stop signal and killed them before they had finished.",
        holds: |of| killed_inside(of).is_some_and(|by| by == Comm::new(PARALLEL)),
        words: |of| {
            inside::killed_by_its_supervisor(of, |by| {
                format!(
                    "give its jobs more time (`--termseq TERM,10000,KILL,25`: 10 s), or declare SIGHUP as the stop signal ({}), at which {by} \
                     starts no further job and waits for its jobs",
                    declared(of.case)
                )
            })
        },
    },
    Remedy {
        name: "raise-the-timeout-of-the-supervisor",
        helps_if: "A supervisor forwarded the stop signal and killed the process before the process had finished its shutdown.",
        holds: |of| killed_inside(of).is_some(),
        words: |of| {
            inside::killed_by_its_supervisor(of, |by| format!("raise the stop timeout of {by}, or shorten the shutdown"))
        },
    },
    Remedy {
        name: "more-time-for-a-sidecar",
        helps_if: "A sidecar got the stop signal only when the main containers had used up the grace period.",
        holds: |of| *of.why() == Why::Starved && of.case.kubernetes.is_some(),
        words: |of| pod::for_a_sidecar(of.case),
    },
    Remedy {
        name: "no-grace-period-at-a-restart-in-place",
        helps_if: "All containers of the pod restart in place; Kubernetes waits for no grace period then.",
        holds: |of| needs(of, Needed::InPlace),
        words: longer,
    },
    Remedy {
        name: "no-second-delete",
        helps_if: "A later deletion request shortened the grace period, and SIGKILL came at the end of the shorter grace period.",
        holds: |of| needs(of, Needed::NoSecondDelete),
        words: longer,
    },
    Remedy {
        name: "leave-the-grace-period-to-the-pod",
        helps_if: "The deletion or eviction asked for less than the pod's own grace period.",
        holds: |of| needs(of, Needed::Ask),
        words: longer,
    },
    Remedy {
        name: "keep-the-kubelet-from-evicting",
        helps_if: "The kubelet evicted the pod without waiting for the end of its grace period.",
        holds: |of| needs(of, Needed::Eviction),
        words: longer,
    },
    Remedy {
        name: "raise-the-grace-period-of-the-pod",
        helps_if: "A container of a pod got the full grace period, and its shutdown needs more time.",
        holds: |of| needs(of, Needed::Longer),
        words: longer,
    },
    Remedy {
        name: "raise-timeout-stop-sec",
        helps_if: "The shutdown of a systemd unit needs more time than systemd waits (`TimeoutStopSec=`).",
        holds: |of| is_late(of) && Managed::of(of.case) == Managed::Unit,
        words: longer,
    },
    Remedy {
        name: "raise-the-grace-period",
        helps_if: "The shutdown of a container needs more time than the stop command gave it.",
        holds: is_late,
        words: longer,
    },
];

/// The supervisor that killed the process.
fn killed_inside(of: &Asked<'_>) -> Option<Comm> {
    let (_, forward) = of.inner().filter(|(end, _)| *end == InnerEnd::AfterGrace)?;
    inside::is_killed_inside(forward).then_some(forward.sender.comm)
}

fn is_late(of: &Asked<'_>) -> bool {
    matches!(of.why(), Why::AfterGrace | Why::Inside(InnerEnd::AfterGrace, _))
}

fn needs(of: &Asked<'_>, needed: Needed) -> bool {
    is_late(of)
        && of
            .case
            .kubernetes
            .is_some_and(|context| Needed::of(of.case, context, of.finding.cause) == needed)
}
