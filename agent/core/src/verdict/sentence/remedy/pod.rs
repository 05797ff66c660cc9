//! For containers of pods: the probe that asked for the stop, the hook, the grace period.

use super::asked::{Asked, Remedy};
use crate::kubernetes::PodContext;
use crate::pod::PreStop;
use crate::verdict::case::Case;
use crate::verdict::cut::by_eviction;
use crate::verdict::judge::{Finding, Hook, HookEnd, Why};
use crate::verdict::own_time::{self, Longer, ask_for_more, of_eviction};
use crate::verdict::sentence::kubernetes::waited;
use crate::verdict::spent::Spent;
use crate::verdict::words::{seconds, whole_seconds};
use crate::verdict::{Cause, Exit};

/// A container that stopped cleanly may still have been stopped because of a failed probe.
pub const PROBE: &[Remedy] = &[Remedy {
    name: "mend-the-probe",
    helps_if: "The kubelet stopped the container because its liveness or startup probe failed.",
    holds: |of| probe(of.finding).is_some(),
    words: |of| {
        Some(format!(
            "find out why the {} failed (`kubectl describe pod` shows the answers), or give the probe more time (timeoutSeconds, \
             failureThreshold)",
            probe(of.finding)?
        ))
    },
}];

fn probe(finding: &Finding) -> Option<&'static str> {
    match finding.cause {
        Cause::Liveness => Some("livenessProbe"),
        Cause::Startup => Some("startupProbe"),
        _ => None,
    }
}

/// Added to the remedy for the main process, or alone.
pub const HOOK: &[Remedy] = &[
    Remedy {
        name: "shorten-the-hook-and-ask-for-more",
        helps_if: "The preStop hook used up the grace period, and a deletion, an eviction or a second delete had made this grace period shorter than the pod's own.",
        holds: |of| takes_too_long(of) && own_time::not_given(of.case).is_some(),
        words: |of| {
            Some(format!(
                "shorten the {}: the hook and the shutdown need more than {}; {}",
                Hook::of(of.case)?.name(),
                seconds(needed_with_hook(of.case)?),
                own_time::not_given(of.case)?
            ))
        },
    },
    Remedy {
        name: "shorten-the-hook",
        helps_if: "The preStop hook used up the grace period, and the pod had got its full grace period.",
        holds: takes_too_long,
        words: |of| {
            let (name, needed) = (Hook::of(of.case)?.name(), needed_with_hook(of.case)?);
            let set = of.case.kubernetes.and_then(|context| Longer::than_given(context, needed));
            Some(match set {
                Some(set) => format!(
                    "shorten the {name}, or set terminationGracePeriodSeconds to at least {} (the hook and the shutdown need more than {})",
                    set.seconds(),
                    seconds(needed)
                ),
                None => format!(
                    "shorten the {name}: the hook and the shutdown need more than {}",
                    seconds(needed)
                ),
            })
        },
    },
    Remedy {
        name: "run-the-hook-by-hand",
        helps_if: "The command of the preStop hook failed.",
        holds: |of| failed_hook(of).is_some_and(|hook| matches!(hook.run.hook, PreStop::Exec { .. })),
        words: |of| {
            let hook = failed_hook(of)?;
            let why = match hook.run.status {
                Some(_) => format!("the hook {}", hook.failure()),
                None => "the program may be missing from the image".to_owned(),
            };
            Some(format!("run the {} by hand in the container: {why}", hook.name()))
        },
    },
    Remedy {
        name: "find-why-the-hook-fails",
        helps_if: "The request of the preStop hook (httpGet, tcpSocket) failed.",
        holds: |of| failed_hook(of).is_some(),
        words: |of| {
            let name = failed_hook(of)?.name();
            Some(format!(
                "find out why the {name} fails: the port may be closed, or the path wrong"
            ))
        },
    },
];

fn failed_hook<'a>(of: &Asked<'a>) -> Option<Hook<'a>> {
    Spent::of(of.case)?;
    Hook::of(of.case).filter(|hook| hook.end == HookEnd::Failed)
}

fn takes_too_long(of: &Asked<'_>) -> bool {
    let Some(hook) = Hook::of(of.case).filter(|_| Spent::of(of.case).is_some()) else {
        return false;
    };
    match &hook.end {
        HookEnd::Cut => true,
        HookEnd::Late | HookEnd::Done | HookEnd::Unknown(_) => of.exit() == Exit::PrestopOverran,
        HookEnd::Failed | HookEnd::WithMain => false,
    }
}

fn needed_with_hook(case: &Case<'_>) -> Option<std::time::Duration> {
    let took = Hook::of(case)?.took.unwrap_or_default();
    Some(took + Spent::of(case)?.left.unwrap_or_default())
}

/// What the container's status or Events have, and no record of the kernel.
pub const OF_ROW: &[Remedy] = &[
    Remedy {
        name: "find-what-holds-the-process",
        helps_if: "The process still runs long after the end of its grace period.",
        holds: |of| *of.why() == Why::Stuck,
        words: |of| Some(of.row()),
    },
    Remedy {
        name: "read-the-containers-message",
        helps_if: "The container runtime did not start the program, or lost the container.",
        holds: |of| *of.why() == Why::NeverStarted,
        words: |of| Some(of.row()),
    },
    Remedy {
        name: "look-for-the-event-of-the-hook",
        helps_if: "The exit of the main process is known, but the result of the preStop hook is not known.",
        holds: |of| of.exit() == Exit::Unknown,
        words: |_| {
            Some(
                "look for an Event FailedPreStopHook of the pod with `kubectl get events` (the API server keeps Events for an hour)"
                    .to_owned(),
            )
        },
    },
];

/// What a shutdown needs that was cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// No grace period counts.
    InPlace,
    NoSecondDelete,
    /// What was asked for, and not what the spec has.
    Ask,
    Eviction,
    Longer,
}

impl Needed {
    pub fn of(case: &Case<'_>, context: &PodContext, cause: Cause) -> Needed {
        let end = case.kill().map_or(case.end, |kill| kill.at);
        let shortened = context.request.as_ref().and_then(|request| request.shortened_for(end));
        match cause {
            Cause::RestartInPlace => Needed::InPlace,
            _ if shortened.is_some() => Needed::NoSecondDelete,
            _ if ask_for_more(case).is_some() => Needed::Ask,
            _ if by_eviction(case).is_some() => Needed::Eviction,
            _ => Needed::Longer,
        }
    }
}

/// For a process that was killed while it was shutting down: the least that the shutdown needs.
pub fn longer_grace(case: &Case<'_>, finding: &Finding) -> Option<String> {
    let context = case.kubernetes?;
    let left = Spent::of(case)?.left?;
    let needs = format!("the shutdown needs more than the {} that it got", seconds(left));
    Some(match Needed::of(case, context, finding.cause) {
        Needed::InPlace => format!(
            "{needs}, and no grace period counts when the pod restarts in place: shorten the shutdown, or take `RestartAllContainers` out of \
             the restart rules"
        ),
        Needed::NoSecondDelete => format!("{needs}: do not shorten the grace period with a second delete"),
        Needed::Ask => format!("{needs}, and {}", ask_for_more(case)?),
        Needed::Eviction => format!("{needs}, and {}", of_eviction(context)),
        Needed::Longer => {
            let field = match finding.cause {
                Cause::Liveness => "livenessProbe.terminationGracePeriodSeconds",
                Cause::Startup => "startupProbe.terminationGracePeriodSeconds",
                _ => "terminationGracePeriodSeconds",
            };
            let above = context
                .grace
                .map_or(String::new(), |grace| format!(" above {}", whole_seconds(grace)));
            format!("{needs}: raise {field}{above}, or shorten the shutdown")
        }
    })
}

pub fn for_a_sidecar(case: &Case<'_>) -> Option<String> {
    let context = case.kubernetes?;
    let needed = waited(case, context)? + Spent::of(case)?.left?;
    let more = own_time::not_given(case).unwrap_or_else(|| {
        let longer = Longer::than_given(context, needed);
        let longer = longer.map_or("raise terminationGracePeriodSeconds".to_owned(), |longer| {
            format!("set terminationGracePeriodSeconds to at least {}", longer.seconds())
        });
        format!("shorten the main containers' shutdown, or {longer}")
    });
    Some(format!("the pod needs more than {}: {more}", seconds(needed)))
}
