//! The pod's own grace period: who gave less of it, and a longer one to set. What is set is compared with the spec, never with what a
//! deletion or an eviction gave.

use std::time::Duration;

use super::Cause;
use super::case::Case;
use super::cut::by_eviction;
use super::spent::Spent;
use super::words::whole_seconds;
use crate::kubernetes::{Asker, Detail, PodContext, Request};
use crate::pod::PreStop;
use crate::time::Boot;
use crate::tolerances::RESOLUTION;

/// An eighth more, rounded up to five seconds: a grace period needs a reserve.
pub fn with_reserve(needed: Duration) -> u64 {
    let millis = needed.as_millis() * 9 / 8;
    u64::try_from(millis.div_ceil(5_000).max(1) * 5).unwrap_or(u64::MAX)
}

/// A value for `terminationGracePeriodSeconds` in words: more than the pod has.
pub(super) struct Longer(u64);

impl Longer {
    /// None if the pod has enough, or what it has is not known.
    pub fn than(context: &PodContext, needed: Duration) -> Option<Longer> {
        let seconds = with_reserve(needed);
        (Duration::from_secs(seconds) > context.spec_grace()?).then_some(Longer(seconds))
    }

    /// Of a grace period that was not enough.
    pub fn than_given(context: &PodContext, needed: Duration) -> Option<Longer> {
        let given = context.spec_grace()?.max(context.grace.unwrap_or_default());
        // The kubelet may have begun later than is known.
        Some(Longer(with_reserve(needed).max(given.as_secs() + 5)))
    }

    pub fn seconds(&self) -> u64 {
        self.0
    }
}

/// Behind a grace period in words: " in the pod's spec (the deletion asked for 5 s)". Empty if the deletion asked for that one.
pub(super) fn in_spec(context: &PodContext, grace: Duration) -> String {
    let other = context.overridden().filter(|(own, _)| *own == grace);
    other.map_or(String::new(), |(_, asked)| {
        format!(
            " in the pod's spec (the {} asked for {})",
            asked_by(context),
            whole_seconds(asked)
        )
    })
}

/// Who asked for the grace period.
pub(super) fn asked_by(context: &PodContext) -> &'static str {
    match asker(context) {
        // Somebody else may have evicted the pod since.
        Some(Asker::ClusterAutoscaler) => "eviction after the cluster autoscaler's announcement",
        Some(Asker::Karpenter) => "deletion of Karpenter",
        None if is_evicted_by_api(context) => "eviction",
        None => "deletion",
    }
}

/// Somebody who deletes with 0 and is not known to be a controller means it: `kubectl delete --force`.
pub(super) fn is_force_delete(context: &PodContext) -> bool {
    let asked = context.request.as_ref().map(|request| request.grace).or(context.grace);
    asked.is_some_and(|asked| asked.is_zero()) && asker(context).is_none() && !is_evicted_by_api(context)
}

fn asker(context: &PodContext) -> Option<Asker> {
    context.request.as_ref().and_then(|request| request.asker)
}

fn is_evicted_by_api(context: &PodContext) -> bool {
    context
        .stop_reason
        .as_ref()
        .is_some_and(|reason| reason.cause == Cause::EvictedApi)
}

/// The setting by which the deletion got a shorter grace period than the pod's own; None if it did not.
pub(super) fn ask_for_more(case: &Case<'_>) -> Option<String> {
    let context = case.kubernetes.filter(|context| !context.is_by_probe())?;
    // A request after the SIGKILL did not cause it.
    let killed = case.kill().map_or(case.end, |kill| kill.at);
    let is_later = context.request.as_ref().is_some_and(|request| request.earliest > killed);
    let (own, asked) = context.overridden().filter(|(own, asked)| own > asked && !is_later)?;
    let own = whole_seconds(own);
    let how = match asker(context) {
        Some(Asker::ClusterAutoscaler) => {
            format!(
                "raise `--max-graceful-termination-sec` of the cluster autoscaler to at least {own}; if `kubectl drain` evicted the pod \
                 after the autoscaler's announcement, run `kubectl drain` without `--grace-period`"
            )
        }
        Some(Asker::Karpenter) => "raise `terminationGracePeriod` of Karpenter's NodePool, which ended before the pod's".to_owned(),
        None if is_evicted_by_api(context) => "leave the grace period of evictions to the pod; what sets another one is `--grace-period` of `kubectl drain`, \
                       `--max-graceful-termination-sec` of the cluster autoscaler, `podTerminationGracePeriod` of the node termination \
                       handler, or `deleteOptions.gracePeriodSeconds` in the request of any other program that evicts the pod"
            .to_owned(),
        None => {
            let flags = match asked.is_zero() {
                true => "`--force` or `--grace-period`",
                false => "`--grace-period`",
            };
            format!(
                "do not pass {flags} to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the \
                 API server's audit log names this controller): then the pod's {own} apply"
            )
        }
    };
    Some(format!("the pod's own grace period of {own} was not given: {how}"))
}

/// The same of a deletion that gave no time at all.
pub(super) fn for_time(case: &Case<'_>) -> String {
    ask_for_more(case).unwrap_or_else(|| "delete without `--force` and without a grace period of 0".to_owned())
}

/// What gives the termination the rest of the pod's own grace period; None if it had all of it.
pub(super) fn not_given(case: &Case<'_>) -> Option<String> {
    let context = case.kubernetes?;
    let end = case.kill().map_or(case.end, |kill| kill.at);
    let request = context.request.as_ref().filter(|_| !context.is_by_probe());
    if request.is_some_and(|request| request.shortened_for(end).is_some()) {
        return Some("do not shorten the grace period with a second delete".to_owned());
    }
    ask_for_more(case).or_else(|| by_eviction(case).map(|_| of_eviction(context).to_owned()))
}

/// The kubelet's own grace period for an eviction depends on the threshold: a hard one gives none, a soft one at most
/// `evictionMaxPodGracePeriod`. Its message names the resource alone; a pod's own limit is always a hard one.
pub(super) fn of_eviction(context: &PodContext) -> &'static str {
    let detail = context.stop_reason.as_ref().and_then(|reason| reason.detail.as_ref());
    let message = match detail {
        Some(Detail::OutOfResource { message }) => message.as_str(),
        _ => "",
    };
    let has_requests = ["resource: memory", "resource: ephemeral-storage"]
        .iter()
        .any(|of| message.contains(of));
    match () {
        () if has_requests => {
            "a hard eviction of the kubelet waits for no grace period, a soft one at most for its `evictionMaxPodGracePeriod`: give the \
             pod requests that cover its use, so that the kubelet evicts other pods first, or give the kubelet an `evictionSoft` threshold \
             with a longer `evictionMaxPodGracePeriod`"
        }
        () if message.contains("low on resource") => {
            "a hard eviction of the kubelet waits for no grace period, a soft one at most for its `evictionMaxPodGracePeriod`: give the \
             kubelet an `evictionSoft` threshold with a longer `evictionMaxPodGracePeriod`, or find which pods use up the resource"
        }
        () if message.contains("exceed") => {
            "an eviction for a pod's own limit waits for no grace period: keep the pod's use of ephemeral storage within its limits"
        }
        () => {
            "the threshold of the eviction is not known (the kubelet's log names it): a hard eviction waits for no grace period, a soft \
             eviction waits at most for the kubelet's `evictionMaxPodGracePeriod`"
        }
    }
}

/// A preStop sleep that was still running when the grace period ended: how long it had.
pub(super) fn cut_sleep(case: &Case<'_>) -> Option<Duration> {
    let spent = Spent::of(case)?;
    let (context, stop, had) = (case.kubernetes?, spent.stop?, spent.hook?);
    // Who stops a container by hand cuts a sleep before that.
    let is_over = grace_of_hook(context, Some(stop)).is_some_and(|grace| had + RESOLUTION >= grace);
    // It may have begun as early as the request.
    let begin = context
        .request
        .as_ref()
        .map_or(spent.begin, |request| request.earliest.min(spent.begin));
    let is_too_short = stop.since(begin) + RESOLUTION < sleep(case)?;
    (is_over && is_too_short).then_some(had)
}

/// The grace period while the hook ran: what shortened it may have come later.
pub(super) fn grace_of_hook(context: &PodContext, end: Option<Boot>) -> Option<Duration> {
    let shortened = |request: &&Request| context.grace.is_some_and(|grace| grace < request.grace);
    let Some(request) = context.request.as_ref().filter(shortened) else {
        return context.grace;
    };
    let by_then = |(seen, _): &&(Boot, Duration)| end.is_none_or(|end| *seen <= end);
    let last = request.shortened.iter().rfind(by_then);
    Some(last.map_or(request.grace, |(_, grace)| *grace))
}

/// What it would have slept on.
pub(super) fn rest_of_sleep(case: &Case<'_>) -> Duration {
    let rest = cut_sleep(case).and_then(|had| Some(sleep(case)?.saturating_sub(had)));
    rest.unwrap_or_default()
}

fn sleep(case: &Case<'_>) -> Option<Duration> {
    match case.kubernetes?.pre_stop.as_ref()?.hook {
        PreStop::Sleep { seconds } => Some(Duration::from_secs(seconds)),
        _ => None,
    }
}

/// "a preStop sleep of 8 s would have avoided this", or where it would have: no sleep is longer than the grace period that was given,
/// and sleep and shutdown are no longer than the pod's own.
pub(super) fn sleep_avoids(case: &Case<'_>, least: &str, sleep: u64, what: &str) -> String {
    let context = case.kubernetes.filter(|context| !context.is_by_probe());
    let given = context.and_then(|context| Some((context.grace?, context.spec_grace()?)));
    match given.filter(|(given, own)| given < own && *given < Duration::from_secs(sleep)) {
        None => format!("a preStop sleep of {least}{sleep} s would have avoided {what}"),
        Some((given, own)) if Duration::from_secs(sleep) + stopping(case) > own => format!(
            "a preStop sleep of {least}{sleep} s avoids {what} only if terminationGracePeriodSeconds ({}) is raised too, and the deletion \
             gives it all, of which {} were given",
            whole_seconds(own),
            whole_seconds(given)
        ),
        Some((given, own)) => format!(
            "a preStop sleep of {least}{sleep} s avoids {what} in the pod's own grace period of {}, of which {} were given",
            whole_seconds(own),
            whole_seconds(given)
        ),
    }
}

/// From the stop signal to the exit; zero if one of them is not known.
fn stopping(case: &Case<'_>) -> Duration {
    let times = case.exit.zip(case.stop());
    times.map_or(Duration::ZERO, |(exit, stop)| exit.at.since(stop.at))
}

/// What lets a preStop sleep end that was cut.
pub(super) fn for_the_sleep(case: &Case<'_>) -> Option<String> {
    cut_sleep(case)?;
    let (context, sleep) = (case.kubernetes?, sleep(case)?);
    let longer = || Longer::than(context, sleep + stopping(case));
    not_given(case).or_else(|| {
        Some(format!(
            "set terminationGracePeriodSeconds to at least {}, into which the preStop sleep of {} and the shutdown fit",
            longer()?.seconds(),
            whole_seconds(sleep)
        ))
    })
}
