//! What the Kubernetes context adds to the sentence: the hook, the use of the grace period, the reason for
//! the termination.

use std::time::Duration;

use crate::kubernetes::{Detail, PodContext, Request, StopReason, Unshown};
use crate::pod::PreStop;
use crate::verdict::Cause;
use crate::verdict::case::Case;
use crate::verdict::cut::by_eviction;
use crate::verdict::judge::{Finding, Hook, HookEnd, Why};
use crate::verdict::own_time::{self, asked_by, cut_sleep, grace_of_hook};
use crate::verdict::spent::Spent;
use crate::verdict::words::{escaped, how, quoted, seconds, whole_seconds};

pub(super) fn clauses(case: &Case<'_>, finding: &Finding) -> Vec<String> {
    let Some(context) = case.kubernetes else {
        return Vec::new();
    };
    let clauses = [
        hook(case, context),
        starved(case, context, finding),
        other_signal(case, context),
        overridden(case, context),
        shortened(case, context),
        no_init(case, context, finding),
        why(context, finding.cause),
        incomplete(context, finding),
    ];
    clauses.into_iter().flatten().collect()
}

pub(super) fn stuck(case: &Case<'_>, who: &str) -> String {
    let request = case.kubernetes.and_then(|context| context.request.as_ref());
    let since = if request.is_some() {
        "deletion was requested"
    } else {
        "the stop began"
    };
    let begin = request.map(|request| request.latest);
    let begin = begin.or(Spent::of(case).map(|spent| spent.begin)).unwrap_or(case.begin);
    let grace = case.kubernetes.and_then(|context| context.grace);
    let killed = case.kill().map_or(String::new(), |kill| {
        format!(", {} after SIGKILL", seconds(case.end.since(kill.at)))
    });
    format!(
        "{who} is still running {} after {since}{}{killed}",
        seconds(case.end.since(begin)),
        grace.map_or(String::new(), |grace| format!(" (grace period {})", whole_seconds(grace))),
    )
}

pub(super) fn never_started(case: &Case<'_>) -> String {
    let reported = case.kubernetes.and_then(|context| context.reported.as_ref());
    let reason = reported.and_then(|reported| reported.reason.as_deref()).unwrap_or("unknown");
    let code = reported.map_or(String::new(), |reported| format!(", exit code {}", reported.exit_code));
    format!("the container runtime did not start the program ({reason}{code})")
}

/// None for a hook that neither failed nor took much of the grace period.
fn hook(case: &Case<'_>, context: &PodContext) -> Option<String> {
    let hook = Hook::of(case)?;
    let name = hook.name();
    let took = hook.took.map(seconds);
    let had = grace_of_hook(context, hook.run.end);
    let grace = had.map(|grace| format!(" of {}", whole_seconds(grace))).unwrap_or_default();
    let left = Spent::of(case).and_then(|spent| spent.left);
    let left_it = left.map_or(String::new(), |left| {
        format!(", which left {} for the shutdown", seconds(left))
    });
    Some(match &hook.end {
        HookEnd::Cut => format!("the {name} was still running when the grace period{grace} ended{left_it}"),
        HookEnd::Failed => format!(
            "the {name} failed ({}), so the work of the hook may be incomplete",
            hook.failure()
        ),
        HookEnd::Late => format!("the {name} used all of the grace period{grace}{left_it}"),
        HookEnd::WithMain => match took {
            Some(took) => format!("the main process exited while the {name} was running, {took} after the hook started"),
            None => format!("the main process exited while the {name} was running"),
        },
        HookEnd::Unknown(why) => {
            let why = why.escape_debug();
            match took {
                Some(took) => format!(
                    "the {name} took {took}{}{left_it}, and its result is unknown: {why}",
                    of_the(context, had)
                ),
                None => format!("the result of the {name} is unknown: {why}"),
            }
        }
        HookEnd::Done if let Some(had) = cut_sleep(case) => {
            format!(
                "the {name} was cut after {}, when the grace period{grace} ended{left_it}",
                seconds(had)
            )
        }
        HookEnd::Done => {
            let much = hook.took.zip(had).is_some_and(|(took, grace)| took * 2 >= grace);
            if !much && left.is_none() {
                return None;
            }
            format!("the {name} took {}{}{left_it}", took?, of_the(context, had))
        }
    })
}

/// Of the grace period that was requested: one that was shortened while the hook ran may be shorter than what the hook took.
fn of_the(context: &PodContext, had: Option<Duration>) -> String {
    let Some(had) = had else { return String::new() };
    let requested = context.request.as_ref().map(|request| request.grace);
    match requested.filter(|requested| *requested > had) {
        Some(requested) => format!(
            " of the requested grace period of {}, which a later deletion shortened to {}",
            whole_seconds(requested),
            whole_seconds(had)
        ),
        None => format!(" of the grace period of {}", whole_seconds(had)),
    }
}

fn starved(case: &Case<'_>, context: &PodContext, finding: &Finding) -> Option<String> {
    let waited = waited(case, context)?;
    (finding.why == Why::Starved).then(|| {
        format!(
            "this sidecar got the stop signal only {} after the deletion request, when the main containers had used up the grace period{}",
            seconds(waited),
            context
                .grace
                .map_or(String::new(), |grace| format!(" of {}", whole_seconds(grace)))
        )
    })
}

pub(super) fn waited(case: &Case<'_>, context: &PodContext) -> Option<Duration> {
    let stop = Spent::of(case)?.stop?;
    Some(match &context.request {
        Some(request) => stop.since(request.latest),
        None => context.grace?,
    })
}

/// A runtime that was asked for another signal than the container's own: by hand (`ctr task kill`, `crictl`), or by a kubelet that does
/// not know `lifecycle.stopSignal`.
fn other_signal(case: &Case<'_>, context: &PodContext) -> Option<String> {
    let own = context.stop_signal?;
    // Which of several was the kubelet's, nothing shows.
    let stop = case.runtime_stop().filter(|stop| !stop.by_runtime.contains(own.signal))?;
    let sent = stop.signal;
    let where_from = match own.in_spec {
        true => "`lifecycle.stopSignal`",
        false => "the container's status",
    };
    (sent != own.signal).then(|| {
        format!(
            "the container's own stop signal is {} by {where_from}, and {sent} was sent",
            own.signal
        )
    })
}

/// Of a process that was killed, or whose preStop sleep was cut: whose grace period had ended.
fn overridden(case: &Case<'_>, context: &PodContext) -> Option<String> {
    let kill = case.runtime_kill();
    let cut = kill
        .map(|kill| kill.at)
        .or_else(|| cut_sleep(case).and(case.stop()).map(|stop| stop.at))?;
    if let Some(own) = by_eviction(case) {
        return Some(format!(
            "the pod's grace period is {} in its spec, and the kubelet's eviction did not wait for its end",
            whole_seconds(own)
        ));
    }
    // A probe's kill, or one before the request, has another grace period.
    if context.is_by_probe() || context.request.as_ref().is_some_and(|request| request.earliest > cut) {
        return None;
    }
    let (own, asked) = context.overridden().filter(|_| !own_time::is_force_delete(context))?;
    Some(format!(
        "the pod's grace period is {} in its spec, {} asked for by the {}",
        whole_seconds(own),
        whole_seconds(asked),
        asked_by(context)
    ))
}

fn shortened(case: &Case<'_>, context: &PodContext) -> Option<String> {
    let kill = case.kill()?;
    let request = context.request.as_ref();
    let is_before = |request: &&Request| request.earliest <= kill.at && !context.may_miss(Unshown::FirstGrace);
    if context.grace.is_some_and(|grace| grace.is_zero()) || request.filter(is_before).is_some_and(|of| of.grace.is_zero()) {
        let own = request.and_then(|request| request.spec_grace).or(context.own_grace);
        let is_zero_asked = context.overridden().is_some_and(|(_, asked)| asked.is_zero());
        return match own {
            Some(own) if own.is_zero() => Some("the pod's own grace period is 0 (terminationGracePeriodSeconds)".to_owned()),
            // Another clause has both.
            Some(_) if is_zero_asked && !own_time::is_force_delete(context) => None,
            Some(own) => Some(format!(
                "the pod was force-deleted (grace period 0, {} in its spec)",
                whole_seconds(own)
            )),
            None => Some("the pod was force-deleted (grace period 0)".to_owned()),
        };
    }
    let request = request?;
    let (at, grace) = request.shortened.last()?;
    let followed = request.shortened_for(kill.at).is_some();
    Some(format!(
        "a later delete request, {} after the first, shortened the grace period from {} to {}{}",
        seconds(at.since(request.latest)),
        whole_seconds(request.grace),
        whole_seconds(*grace),
        if followed { "" } else { ", but SIGKILL did not come earlier" }
    ))
}

/// People expect the main process of a container to be PID 1, which no default action terminates.
fn no_init(case: &Case<'_>, context: &PodContext, finding: &Finding) -> Option<String> {
    let shared = context.shares_pid_namespace && case.main().is_some_and(|main| !main.is_ns_init);
    (shared && matches!(finding.why, Why::DefaultAction | Why::RaisedAgain)).then(|| {
        "the pod shares a pid namespace, so the main process is not PID 1 and the default action of the signal applies"
            .to_owned()
    })
}

fn why(context: &PodContext, cause: Cause) -> Option<String> {
    let stop_reason = context.stop_reason.as_ref().filter(|stop_reason| stop_reason.cause == cause);
    let why = match cause {
        Cause::EvictedApi => "the pod was evicted through the Eviction API",
        Cause::EvictedNodePressure => "the kubelet evicted the pod: the node or the pod ran out of a resource",
        Cause::EvictedTaint => "the pod was evicted because of a taint",
        Cause::EvictedPreempted => "the pod was preempted by a pod of higher priority",
        Cause::Deadline => "the pod exceeded its activeDeadlineSeconds",
        Cause::Liveness => "the kubelet stopped the container because the liveness probe failed",
        Cause::Startup => "the kubelet stopped the container because the startup probe failed",
        Cause::Restart if stop_reason.is_none() => "the kubelet stopped the container, and no evidence shows why",
        Cause::Restart => "the kubelet stopped the container to restart it",
        Cause::RestartInPlace => "all containers of the pod restarted in place",
        Cause::NodeShutdown => "the node was shutting down",
        Cause::Deleted if stop_reason.is_some_and(is_collected) => "pod garbage collection removed the pod",
        Cause::Stopped | Cause::Completed | Cause::Deleted | Cause::Oom | Cause::Crash | Cause::External | Cause::Unknown => {
            return None;
        }
    };
    let more = match stop_reason.and_then(|stop_reason| stop_reason.detail.as_ref()) {
        None => String::new(),
        Some(Detail::Trigger {
            is_itself: true, code, ..
        }) => {
            format!(", as the restart rules of this container ask for at code {code}")
        }
        Some(Detail::Trigger { container, code, .. }) => {
            format!(", because container `{container}` exited with code {code}, and its restart rules ask for that")
        }
        Some(Detail::DefinitionChanged) => ": the container definition changed".to_owned(),
        Some(Detail::ResizeRequiresRestart) => ": the resize of a resource requires a restart".to_owned(),
        Some(Detail::PodGc { message } | Detail::OutOfResource { message }) if message.is_empty() => String::new(),
        Some(Detail::PodGc { message }) => format!(": {}", quoted(message)),
        Some(Detail::OutOfResource { message }) => format!(" ({})", quoted(message)),
    };
    Some(format!("{why}{more}"))
}

fn is_collected(stop_reason: &StopReason) -> bool {
    matches!(stop_reason.detail, Some(Detail::PodGc { .. }))
}

fn incomplete(context: &PodContext, finding: &Finding) -> Option<String> {
    let reason = context.incomplete.as_ref().filter(|_| finding.cause == Cause::Unknown)?;
    Some(format!(
        "the reason for the termination is unknown: {}",
        reason.escape_debug()
    ))
}

impl Hook<'_> {
    /// "preStop hook `drain.sh`".
    pub fn name(&self) -> String {
        match &self.run.hook {
            PreStop::Exec { program } => format!("preStop hook `{}`", escaped(program, 64)),
            PreStop::HttpGet { .. } => "preStop httpGet hook".to_owned(),
            PreStop::TcpSocket { .. } => "preStop tcpSocket hook".to_owned(),
            PreStop::Sleep { seconds } => format!("preStop sleep of {seconds} s"),
        }
    }

    /// Of one that failed: the evidence, bounded and escaped.
    pub fn failure(&self) -> String {
        match (self.run.status, &self.run.failed) {
            (Some(status), _) => how(status),
            (None, Some(failed)) => format!("FailedPreStopHook: {}", quoted(failed)),
            (None, None) => String::new(),
        }
    }
}
