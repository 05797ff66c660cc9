//! `terminationGracePeriodSeconds` compared with the measured need.

use std::time::Duration;

use super::kind::{Advice, AdviceKind, Need};
use crate::kubernetes::{PodContext, Request};
use crate::termination::MainExit;
use crate::tolerances::{DEFAULT_GRACE, KUBELET_MINIMUM};
use crate::verdict::case::Case;
use crate::verdict::judge::may_have_begun_before;
use crate::verdict::own_time::{Longer, in_spec, rest_of_sleep, with_reserve};
use crate::verdict::spent::Spent;
use crate::verdict::words::{seconds, whole_seconds};
use crate::verdict::{Exit, Judged};

/// A grace period gets advice if it is this many times too long.
const FAR_TOO_LONG: u32 = 10;

pub(super) fn advice(case: &Case<'_>, exit: Exit) -> Option<Advice> {
    let context = case.kubernetes?;
    let grace = context.grace.filter(|grace| !grace.is_zero())?;
    let spent = Spent::of(case).filter(|spent| spent.stop_requested)?;
    // The grace period of a probe, or a shortened one, shows nothing about that of the pod.
    let is_whole = |request: &Request| request.shortened.is_empty() && request.cut_short().is_none();
    let whole = context.request.as_ref().is_some_and(is_whole) && !context.is_by_probe();
    match exit {
        Exit::Clean | Exit::PrestopFailed => in_time(case, context, context.spec_grace()?, &spent),
        Exit::KilledAfterGrace | Exit::PrestopOverran | Exit::SidecarStarved if whole => Some(Advice {
            kind: AdviceKind::GraceLonger,
            seconds: None,
            text: format!(
                "{} needed more than the grace period of {}; how much more is unknown, because SIGKILL ended the shutdown",
                context.name(),
                whole_seconds(grace)
            ),
        }),
        _ => None,
    }
}

fn in_time(case: &Case<'_>, context: &PodContext, grace: Duration, spent: &Spent) -> Option<Advice> {
    let exit = case.exit?;
    let needed = exit.at.since(spent.begin);
    let stopping = spent.stop.map_or(Duration::ZERO, |stop| exit.at.since(stop));
    let hook = spent.hook.unwrap_or_default();
    let only_the_minimum = !hook.is_zero() && hook + KUBELET_MINIMUM > grace;
    if needed + needed / 4 <= grace && !only_the_minimum {
        return None;
    }
    // The reserve of the advice is smaller than that of the comparison: no advice for less than there is.
    let advised = Longer::than(context, needed + rest_of_sleep(case))?.seconds();
    let how = if hook.is_zero() {
        String::new()
    } else {
        format!(" (preStop hook {}, shutdown {})", seconds(hook), seconds(stopping))
    };
    let left = if only_the_minimum {
        ", and the preStop hook left only the kubelet's minimum of 2 s for the shutdown"
    } else {
        ""
    };
    let asked = in_spec(context, grace);
    Some(Advice {
        kind: AdviceKind::GraceLonger,
        seconds: Some(advised),
        text: format!(
            "{} needed {}{}{how} of a grace period of {}{asked}{left}; set terminationGracePeriodSeconds to at least {advised}",
            context.name(),
            if may_have_begun_before(case) { "at least " } else { "" },
            seconds(needed),
            whole_seconds(grace)
        ),
    })
}

/// The containers share the grace period, and a sidecar is stopped after the others: only all of them together show
/// that it is too long.
pub(super) fn shorter(containers: &[Judged<'_>], need: Need) -> Option<Advice> {
    let Need::Seconds(advised) = need else { return None };
    let stopped = || containers.iter().filter_map(stopped_at_request);
    // A shortened grace period is not that of the pod.
    if stopped().any(|(_, request, _)| !request.shortened.is_empty()) {
        return None;
    }
    let (context, request, exit) = stopped().max_by_key(|(.., exit)| exit.at)?;
    let last = if stopped().count() > 1 {
        ", the last container of the pod to exit,"
    } else {
        ""
    };
    let grace = request.spec_grace.unwrap_or(request.grace);
    // No owner chose the default, and the default is not long.
    (grace > DEFAULT_GRACE && grace > Duration::from_secs(advised) * FAR_TOO_LONG).then(|| Advice {
        kind: AdviceKind::GraceShorter,
        seconds: Some(advised),
        text: format!(
            "{}{last} needed at most {} of a grace period of {}: a container that hangs would delay a rollout or a drain for all of \
             that time; terminationGracePeriodSeconds could be {advised}",
            context.name(),
            seconds(exit.at.since(request.earliest)),
            whole_seconds(grace)
        ),
    })
}

/// The grace period that one container needed, independent of the configured one.
pub(super) fn need(of: &Judged<'_>) -> Need {
    let case = &of.case;
    let spent = || Spent::of(case).filter(|spent| spent.stop_requested).map(|spent| spent.begin);
    let request = case.kubernetes.and_then(|context| context.request.as_ref());
    // The earliest time: the kubelet cannot have started the grace period before.
    let begin = request
        .map(|request| request.earliest)
        .filter(|at| *at <= case.end)
        .or_else(spent);
    match (begin, case.exit, of.verdict.exit) {
        (None, ..) => Need::Nothing,
        _ if request.is_none() && may_have_begun_before(case) => Need::NotKnown,
        (Some(begin), Some(exit), Exit::Clean) => Need::Seconds(with_reserve(exit.at.since(begin))),
        (Some(_), ..) => Need::NotKnown,
    }
}

fn stopped_at_request<'a>(of: &Judged<'a>) -> Option<(&'a PodContext, &'a Request, MainExit)> {
    let context = of.case.kubernetes?;
    let request = context.request.as_ref().filter(|request| request.earliest <= of.case.end)?;
    Some((context, request, of.case.exit?))
}
