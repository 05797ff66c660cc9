//! What Kubernetes' side adds to the sentence: the hook, the grace and who used it, and why it had to end.

use std::time::Duration;

use super::{Finding, Why, seconds};
use crate::kubernetes::{Asked, Detail, PodContext};
use crate::pod::PreStop;
use crate::verdict::advice::{whole_seconds, with_reserve};
use crate::verdict::judge::{Case, Hook, HookEnd, quoted};
use crate::verdict::spent::Spent;
use crate::verdict::{Cause, Exit};

pub(super) fn clauses(case: &Case<'_>, finding: &Finding) -> Vec<String> {
    let Some(context) = case.kubernetes else {
        return Vec::new();
    };
    let clauses = [
        hook(case, context),
        starved(case, context, finding),
        shortened(case, context),
        no_init(case, context, finding),
        why(context, finding.cause),
        incomplete(context, finding),
    ];
    clauses.into_iter().flatten().collect()
}

pub(super) fn stuck(case: &Case<'_>, who: &str) -> String {
    let request = case.kubernetes.and_then(|context| context.request.as_ref());
    let begin = request.map(|request| request.latest);
    let begin = begin.or(Spent::of(case).map(|spent| spent.begin)).unwrap_or(case.begin);
    let grace = case.kubernetes.and_then(|context| context.grace);
    let killed = case.kill().map_or(String::new(), |kill| {
        format!(", {} after SIGKILL", seconds(case.end.since(kill.at)))
    });
    format!(
        "{who} still runs {} after it was to end{}{killed}",
        seconds(case.end.since(begin)),
        grace.map_or(String::new(), |grace| format!(" (grace {})", whole_seconds(grace))),
    )
}

pub(super) fn never_started(case: &Case<'_>) -> String {
    let reported = case.kubernetes.and_then(|context| context.reported.as_ref());
    let reason = reported.and_then(|reported| reported.reason.as_deref()).unwrap_or("unknown");
    let code = reported.map_or(String::new(), |reported| format!(", exit code {}", reported.exit_code));
    format!("the runtime did not start its program ({reason}{code})")
}

/// A hook that neither failed nor took much of the grace is not worth a word.
fn hook(case: &Case<'_>, context: &PodContext) -> Option<String> {
    let hook = Hook::of(case)?;
    let name = hook.name();
    let took = hook.took.map(seconds);
    let grace = context
        .grace
        .map(|grace| format!(" of {}", whole_seconds(grace)))
        .unwrap_or_default();
    let left = Spent::of(case).and_then(|spent| spent.left);
    let left_it = left.map_or(String::new(), |left| format!(" and left it {}", seconds(left)));
    Some(match &hook.end {
        HookEnd::Cut => format!("its {name} was not done when the grace{grace} was over{left_it}"),
        HookEnd::Failed(how) => format!("its {name} failed, so its work may not be done ({how})"),
        HookEnd::Late => format!("its {name} took all of the grace{grace}{left_it}"),
        HookEnd::WithMain => match took {
            Some(took) => format!("it ended while its {name} ran, {took} after that began"),
            None => format!("it ended while its {name} ran"),
        },
        HookEnd::Unknown(why) => {
            let took = took.map_or(String::new(), |took| {
                format!(", which took {took}{}{left_it},", of_the(&grace))
            });
            format!("whether its {name}{took} failed is not known: {}", why.escape_debug())
        }
        HookEnd::Done => {
            let much = hook.took.zip(context.grace).is_some_and(|(took, grace)| took * 2 >= grace);
            if !much && left.is_none() {
                return None;
            }
            format!("its {name} took {}{}{left_it}", took?, of_the(&grace))
        }
    })
}

fn of_the(grace: &str) -> String {
    if grace.is_empty() {
        String::new()
    } else {
        format!(" of the grace{grace}")
    }
}

fn starved(case: &Case<'_>, context: &PodContext, finding: &Finding) -> Option<String> {
    let waited = waited(case, context)?;
    (finding.why == Why::Starved).then(|| {
        format!(
            "as a sidecar it was asked only {} after the deletion, when the main containers had used up the grace{}",
            seconds(waited),
            context
                .grace
                .map_or(String::new(), |grace| format!(" of {}", whole_seconds(grace)))
        )
    })
}

fn waited(case: &Case<'_>, context: &PodContext) -> Option<Duration> {
    let stop = Spent::of(case)?.stop?;
    Some(match &context.request {
        Some(request) => stop.since(request.latest),
        None => context.grace?,
    })
}

fn shortened(case: &Case<'_>, context: &PodContext) -> Option<String> {
    let kill = case.kill()?;
    if context.grace.is_some_and(|grace| grace.is_zero()) || context.request.as_ref().is_some_and(|of| of.grace.is_zero()) {
        return Some("its pod was deleted by force, with a grace of 0".to_owned());
    }
    let request = context.request.as_ref()?;
    let (at, grace) = request.shortened.last()?;
    let followed = request.shortened_for(kill.at).is_some();
    Some(format!(
        "a later delete, {} after the first, shortened the grace of {} to {}{}",
        seconds(at.since(request.latest)),
        whole_seconds(request.grace),
        whole_seconds(*grace),
        if followed { "" } else { ", and the kill came no sooner" }
    ))
}

/// People expect PID 1's protection from a container's first process.
fn no_init(case: &Case<'_>, context: &PodContext, finding: &Finding) -> Option<String> {
    let shared = context.shares_pid_namespace && case.main().is_some_and(|main| !main.is_ns_init);
    (shared && finding.why == Why::DefaultAction)
        .then(|| "its pod shares a pid namespace, so it is no PID 1 and the signal's default holds".to_owned())
}

fn why(context: &PodContext, cause: Cause) -> Option<String> {
    let asked = context.asked.as_ref().filter(|asked| asked.cause == cause);
    let why = match cause {
        Cause::EvictedApi => "its pod was evicted by the Eviction API",
        Cause::EvictedNodePressure => "the kubelet evicted its pod: the node or the pod ran out of a resource",
        Cause::EvictedTaint => "its pod was evicted because of a taint",
        Cause::EvictedPreempted => "its pod was preempted by one of higher priority",
        Cause::Deadline => "the activeDeadlineSeconds of its pod were over",
        Cause::Liveness => "the kubelet stopped it because its liveness probe failed",
        Cause::Startup => "the kubelet stopped it because its startup probe failed",
        Cause::Restart if asked.is_none() => "the kubelet stopped it, and no evidence names why",
        Cause::Restart => "the kubelet stopped it to restart it",
        Cause::NodeShutdown => "its node was shutting down",
        Cause::Deleted if asked.is_some_and(is_collected) => "pod garbage collection removed its pod",
        Cause::Stopped | Cause::Completed | Cause::Deleted | Cause::Oom | Cause::Crash | Cause::External | Cause::Unknown => {
            return None;
        }
    };
    let more = match asked.and_then(|asked| asked.detail.as_ref()) {
        None => String::new(),
        Some(Detail::DefinitionChanged) => ": its definition changed".to_owned(),
        Some(Detail::ResizeRequiresRestart) => ": a resize of its resources requires that".to_owned(),
        Some(Detail::PodGc { message } | Detail::OutOfResource { message }) if message.is_empty() => String::new(),
        Some(Detail::PodGc { message }) => format!(": {}", quoted(message)),
        Some(Detail::OutOfResource { message }) => format!(" ({})", quoted(message)),
    };
    Some(format!("{why}{more}"))
}

fn is_collected(asked: &Asked) -> bool {
    matches!(asked.detail, Some(Detail::PodGc { .. }))
}

fn incomplete(context: &PodContext, finding: &Finding) -> Option<String> {
    let reason = context.incomplete.as_ref().filter(|_| finding.cause == Cause::Unknown)?;
    Some(format!("why it had to end is not known: {}", reason.escape_debug()))
}

/// Of a process that was killed on its way: what it needs at least.
pub(super) fn grace_remedy(case: &Case<'_>, finding: &Finding) -> Option<String> {
    let context = case.kubernetes?;
    let left = Spent::of(case)?.left?;
    if finding.why == Why::Starved {
        let needed = waited(case, context)? + left;
        return Some(format!(
            "the pod needs more than {}: shorten the main containers' shutdown, or set terminationGracePeriodSeconds to at least {}",
            seconds(needed),
            with_reserve(needed)
        ));
    }
    let field = match finding.cause {
        Cause::Liveness => "livenessProbe.terminationGracePeriodSeconds",
        Cause::Startup => "startupProbe.terminationGracePeriodSeconds",
        _ => "terminationGracePeriodSeconds",
    };
    let end = case.kill().map_or(case.end, |kill| kill.at);
    let shortened = context
        .request
        .as_ref()
        .and_then(|request| request.shortened_for(end))
        .is_some();
    Some(if shortened {
        format!(
            "it needs more than the {} it was left: do not shorten the grace by a second delete",
            seconds(left)
        )
    } else {
        format!(
            "it needs more than the {} it was given: raise {field}{}, or finish the shutdown sooner",
            seconds(left),
            context
                .grace
                .map_or(String::new(), |grace| format!(" above {}", whole_seconds(grace)))
        )
    })
}

/// However well it stopped, it had to because of a probe.
pub(super) fn probe_remedy(finding: &Finding) -> Option<String> {
    let probe = match finding.cause {
        Cause::Liveness => "livenessProbe",
        Cause::Startup => "startupProbe",
        _ => return None,
    };
    Some(format!(
        "find out why its {probe} failed (`kubectl describe pod` has its answers), or give the probe more time: timeoutSeconds, \
         failureThreshold"
    ))
}

/// Beside the main process's own fault, or alone.
pub(super) fn hook_remedy(case: &Case<'_>, finding: &Finding) -> Option<String> {
    let hook = Hook::of(case)?;
    let name = hook.name();
    let spent = Spent::of(case)?;
    let needed = hook.took.unwrap_or_default() + spent.left.unwrap_or_default();
    let grace = case.kubernetes.and_then(|context| context.grace);
    let longer = || {
        format!(
            "make the {name} shorter, or set terminationGracePeriodSeconds to at least {} (the hook and the stop took more than {})",
            // A hook that was slow to start shows less of its time than it took of the grace.
            with_reserve(needed).max(grace.map_or(0, |grace| grace.as_secs() + 5)),
            seconds(needed)
        )
    };
    match &hook.end {
        HookEnd::Cut => Some(longer()),
        HookEnd::Late | HookEnd::Done | HookEnd::Unknown(_) if finding.exit == Exit::PrestopOverran => Some(longer()),
        HookEnd::Failed(how) => Some(match (&hook.run.hook, hook.run.status) {
            (PreStop::Exec { .. }, Some(_)) => format!("run the {name} by hand in the container: it {how}"),
            (PreStop::Exec { .. }, None) => {
                format!("run the {name} by hand in the container: its program may be missing from the image")
            }
            _ => format!("find out why the {name} fails: its port may be closed, or its path wrong"),
        }),
        HookEnd::Late | HookEnd::Done | HookEnd::Unknown(_) | HookEnd::WithMain => None,
    }
}
