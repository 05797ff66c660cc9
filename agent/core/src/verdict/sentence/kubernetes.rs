//! What the Kubernetes context adds to the sentence: the hook, the use of the grace period, the reason for
//! the termination.

use std::time::Duration;

use crate::kubernetes::{Asker, Detail, PodContext, Request, StopReason};
use crate::pod::PreStop;
use crate::termination::Role;
use crate::time::Boot;
use crate::verdict::advice::with_reserve;
use crate::verdict::case::Case;
use crate::verdict::cut::{by_eviction, is_evicted};
use crate::verdict::judge::{Finding, Hook, HookEnd, Why};
use crate::verdict::spent::Spent;
use crate::verdict::words::{escaped, how, quoted, seconds, whole_seconds};
use crate::verdict::{Cause, Exit};

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
    let left_it = left.map_or(String::new(), |left| format!(" and left {} for the shutdown", seconds(left)));
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
                    of_the(&grace)
                ),
                None => format!("the result of the {name} is unknown: {why}"),
            }
        }
        HookEnd::Done => {
            let much = hook.took.zip(had).is_some_and(|(took, grace)| took * 2 >= grace);
            if !much && left.is_none() {
                return None;
            }
            format!("the {name} took {}{}{left_it}", took?, of_the(&grace))
        }
    })
}

/// The grace period while the hook ran: what shortened it may have come later.
fn grace_of_hook(context: &PodContext, end: Option<Boot>) -> Option<Duration> {
    let shortened = |request: &&Request| context.grace.is_some_and(|grace| grace < request.grace);
    let Some(request) = context.request.as_ref().filter(shortened) else {
        return context.grace;
    };
    let by_then = |(seen, _): &&(Boot, Duration)| end.is_none_or(|end| *seen <= end);
    let last = request.shortened.iter().rfind(by_then);
    Some(last.map_or(request.grace, |(_, grace)| *grace))
}

fn of_the(grace: &str) -> String {
    if grace.is_empty() {
        String::new()
    } else {
        format!(" of the grace period{grace}")
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

fn waited(case: &Case<'_>, context: &PodContext) -> Option<Duration> {
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
    let sent = case.stop().filter(|stop| stop.sender.role == Role::Runtime)?.signal;
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

/// Of a process that was killed: whose grace period had ended.
fn overridden(case: &Case<'_>, context: &PodContext) -> Option<String> {
    let kill = case.kill().filter(|kill| kill.sender.role == Role::Runtime)?;
    if context.own_grace.is_some() && is_evicted(context) {
        return by_eviction(case).map(|own| {
            format!(
                "the pod's grace period is {} in its spec, and the kubelet's eviction did not wait for its end",
                whole_seconds(own)
            )
        });
    }
    let request = context.request.as_ref().filter(|request| !request.grace.is_zero())?;
    // A probe's kill, or one before the request, has another grace period.
    if context.is_by_probe() || request.earliest > kill.at {
        return None;
    }
    Some(format!(
        "the pod's grace period is {} in its spec, {} asked for by the {}",
        whole_seconds(request.overridden()?),
        whole_seconds(request.grace),
        asked_by(context, request)
    ))
}

fn asked_by(context: &PodContext, request: &Request) -> &'static str {
    match request.asker {
        Some(Asker::ClusterAutoscaler) => "cluster autoscaler",
        Some(Asker::Karpenter) => "deletion of Karpenter",
        None if is_evicted_by_api(context) => "eviction",
        None => "deletion",
    }
}

fn is_evicted_by_api(context: &PodContext) -> bool {
    context
        .stop_reason
        .as_ref()
        .is_some_and(|reason| reason.cause == Cause::EvictedApi)
}

/// The setting by which the deletion got a shorter grace period than the pod's own; None if it did not.
fn ask_for_more(context: &PodContext) -> Option<String> {
    let request = context.request.as_ref().filter(|_| !context.is_by_probe())?;
    let own = whole_seconds(request.cut_short()?);
    let how = match request.asker {
        Some(Asker::ClusterAutoscaler) => {
            format!("raise `--max-graceful-termination-sec` of the cluster autoscaler to at least {own}")
        }
        Some(Asker::Karpenter) => "raise `terminationGracePeriod` of Karpenter's NodePool, which ended before the pod's".to_owned(),
        None if is_evicted_by_api(context) => "leave the grace period of evictions to the pod: `--grace-period` of `kubectl drain`, \
                       `--max-graceful-termination-sec` of the cluster autoscaler, `podTerminationGracePeriod` of the node termination \
                       handler, or `deleteOptions.gracePeriodSeconds` of who evicts"
            .to_owned(),
        None => "delete without a grace period of its own: `kubectl delete` without `--grace-period`, or \
              `gracePeriodSeconds` of the controller that deletes (the API server's audit log names it)"
            .to_owned(),
    };
    Some(format!("the pod's own grace period of {own} was not given: {how}"))
}

fn shortened(case: &Case<'_>, context: &PodContext) -> Option<String> {
    let kill = case.kill()?;
    if context.grace.is_some_and(|grace| grace.is_zero()) || context.request.as_ref().is_some_and(|of| of.grace.is_zero()) {
        let own = context.request.as_ref().and_then(|request| request.spec_grace);
        return Some(if own.is_some_and(|own| own.is_zero()) {
            "the pod's own grace period is 0 (terminationGracePeriodSeconds)".to_owned()
        } else {
            "the pod was force-deleted (grace period 0)".to_owned()
        });
    }
    let request = context.request.as_ref()?;
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

/// For a process that was killed while it was shutting down: the least that the shutdown needs.
pub(super) fn grace_remedy(case: &Case<'_>, finding: &Finding) -> Option<String> {
    let context = case.kubernetes?;
    let left = Spent::of(case)?.left?;
    if finding.why == Why::Starved {
        let needed = waited(case, context)? + left;
        if let Some(ask) = ask_for_more(context) {
            return Some(format!("the pod needs more than {}: {ask}", seconds(needed)));
        }
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
    if finding.cause == Cause::RestartInPlace {
        return Some(format!(
            "the shutdown needs more than the {} that it got, and no grace period counts when the pod restarts in place: shorten the \
             shutdown, or take `RestartAllContainers` out of the restart rules",
            seconds(left)
        ));
    }
    Some(if shortened {
        format!(
            "the shutdown needs more than the {} that it got: do not shorten the grace period with a second delete",
            seconds(left)
        )
    } else if let Some(ask) = ask_for_more(context) {
        format!("the shutdown needs more than the {} that it got, and {ask}", seconds(left))
    } else if by_eviction(case).is_some() {
        format!(
            "the shutdown needs more than the {} that it got, and {}",
            seconds(left),
            of_eviction(context)
        )
    } else {
        format!(
            "the shutdown needs more than the {} that it got: raise {field}{}, or shorten the shutdown",
            seconds(left),
            context
                .grace
                .map_or(String::new(), |grace| format!(" above {}", whole_seconds(grace)))
        )
    })
}

/// An eviction by the kubelet takes the pod's own grace period only where a soft threshold was passed, and then at most
/// `evictionMaxPodGracePeriod`.
fn of_eviction(context: &PodContext) -> &'static str {
    let detail = context.stop_reason.as_ref().and_then(|reason| reason.detail.as_ref());
    match detail {
        Some(Detail::OutOfResource { message }) if message.contains("low on resource") => {
            "a hard eviction of the kubelet waits for no grace period: give the pod requests that cover its use, so that others are \
             evicted first, or the kubelet an `evictionSoft` threshold with a longer `evictionMaxPodGracePeriod`"
        }
        _ => {
            "an eviction by the kubelet waits for no grace period: keep the pod's use of memory and ephemeral storage within what it \
             requests and is limited to"
        }
    }
}

/// A container that stopped cleanly may still have been stopped because of a failed probe.
pub(super) fn probe_remedy(finding: &Finding) -> Option<String> {
    let probe = match finding.cause {
        Cause::Liveness => "livenessProbe",
        Cause::Startup => "startupProbe",
        _ => return None,
    };
    Some(format!(
        "find out why the {probe} failed (`kubectl describe pod` shows the answers), or give the probe more time (timeoutSeconds, \
         failureThreshold)"
    ))
}

/// Added to the remedy for the main process, or alone.
pub(super) fn hook_remedy(case: &Case<'_>, finding: &Finding) -> Option<String> {
    let hook = Hook::of(case)?;
    let name = hook.name();
    let spent = Spent::of(case)?;
    let needed = hook.took.unwrap_or_default() + spent.left.unwrap_or_default();
    let grace = case.kubernetes.and_then(|context| context.grace);
    let ask = case.kubernetes.and_then(ask_for_more);
    let longer = || match &ask {
        Some(ask) => format!(
            "shorten the {name}: the hook and the shutdown need more than {}; {ask}",
            seconds(needed)
        ),
        None => format!(
            "shorten the {name}, or set terminationGracePeriodSeconds to at least {} (the hook and the shutdown need more than {})",
            // A hook that was slow to start took more of the grace period than its own time.
            with_reserve(needed).max(grace.map_or(0, |grace| grace.as_secs() + 5)),
            seconds(needed)
        ),
    };
    match &hook.end {
        HookEnd::Cut => Some(longer()),
        HookEnd::Late | HookEnd::Done | HookEnd::Unknown(_) if finding.exit == Exit::PrestopOverran => Some(longer()),
        HookEnd::Failed => Some(match (&hook.run.hook, hook.run.status) {
            (PreStop::Exec { .. }, Some(_)) => format!("run the {name} by hand in the container: the hook {}", hook.failure()),
            (PreStop::Exec { .. }, None) => {
                format!("run the {name} by hand in the container: the program may be missing from the image")
            }
            _ => format!("find out why the {name} fails: the port may be closed, or the path wrong"),
        }),
        HookEnd::Late | HookEnd::Done | HookEnd::Unknown(_) | HookEnd::WithMain => None,
    }
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
