//! `terminationGracePeriodSeconds` against what was measured.

use std::time::Duration;

use super::{Advice, AdviceKind, Need};
use crate::kubernetes::{PodContext, Request};
use crate::termination::MainExit;
use crate::verdict::judge::{Case, Judged};
use crate::verdict::spent::{KUBELET_MINIMUM, Spent};
use crate::verdict::{Exit, seconds};

/// Kubernetes' default: nobody chose it, and it is not long.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// How many times too long a grace is before it is worth a word.
const FAR_TOO_LONG: u32 = 10;

pub(super) fn advice(case: &Case<'_>, exit: Exit) -> Option<Advice> {
    let context = case.kubernetes?;
    let grace = context.grace.filter(|grace| !grace.is_zero())?;
    let spent = Spent::of(case).filter(|spent| spent.asked)?;
    // A probe's own grace or a shortened one says nothing of the pod's.
    let whole = context.request.as_ref().is_some_and(|request| request.shortened.is_empty());
    match exit {
        Exit::Clean | Exit::PrestopFailed => in_time(case, context, grace, &spent),
        Exit::KilledAfterGrace | Exit::PrestopOverran | Exit::SidecarStarved if whole => Some(Advice {
            kind: AdviceKind::GraceLonger,
            seconds: None,
            text: format!(
                "{} needed more than the grace of {}: how much is not known, for it was not let finish",
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
    let advised = with_reserve(needed);
    let stopping = spent.stop.map_or(Duration::ZERO, |stop| exit.at.since(stop));
    let hook = spent.hook.unwrap_or_default();
    let only_the_minimum = !hook.is_zero() && hook + KUBELET_MINIMUM > grace;
    if needed + needed / 4 <= grace && !only_the_minimum {
        return None;
    }
    let how = if hook.is_zero() {
        String::new()
    } else {
        format!(" ({} of preStop, {} to stop)", seconds(hook), seconds(stopping))
    };
    let left = if only_the_minimum {
        ": the preStop left it only the kubelet's minimum of two seconds"
    } else {
        ""
    };
    Some(Advice {
        kind: AdviceKind::GraceLonger,
        seconds: Some(advised),
        text: format!(
            "{} needed {}{how} of a grace of {}{left}; set terminationGracePeriodSeconds to at least {advised}",
            context.name(),
            seconds(needed),
            whole_seconds(grace)
        ),
    })
}

/// The containers share it, and a sidecar's begins with the others' stop: only all of them together can say that it is too long.
pub(super) fn shorter(containers: &[Judged<'_>], need: Need) -> Option<Advice> {
    let Need::Seconds(advised) = need else { return None };
    let asked = || containers.iter().filter_map(asked_at_request);
    // A shortened one is not the pod's.
    if asked().any(|(_, request, _)| !request.shortened.is_empty()) {
        return None;
    }
    let (context, request, exit) = asked().max_by_key(|(.., exit)| exit.at)?;
    let last = if asked().count() > 1 {
        ", the last of its pod to end,"
    } else {
        ""
    };
    let grace = request.grace;
    (grace > DEFAULT_GRACE && grace > Duration::from_secs(advised) * FAR_TOO_LONG).then(|| Advice {
        kind: AdviceKind::GraceShorter,
        seconds: Some(advised),
        text: format!(
            "{}{last} needed {} at most of a grace of {}: one that hangs would hold up a rollout or a drain for all of it; \
             terminationGracePeriodSeconds could be {advised}",
            context.name(),
            seconds(exit.at.since(request.earliest)),
            whole_seconds(grace)
        ),
    })
}

/// The grace that one container needed, whatever it was.
pub(super) fn need(of: &Judged<'_>) -> Need {
    let case = &of.case;
    let spent = || Spent::of(case).filter(|spent| spent.asked).map(|spent| spent.begin);
    let request = case.kubernetes.and_then(|context| context.request.as_ref());
    // At its earliest: the kubelet cannot have begun to count before.
    let begin = request
        .map(|request| request.earliest)
        .filter(|at| *at <= case.end)
        .or_else(spent);
    match (begin, case.exit, of.verdict.exit) {
        (None, ..) => Need::Nothing,
        (Some(begin), Some(exit), Exit::Clean) => Need::Seconds(with_reserve(exit.at.since(begin))),
        (Some(_), ..) => Need::NotKnown,
    }
}

fn asked_at_request<'a>(of: &Judged<'a>) -> Option<(&'a PodContext, &'a Request, MainExit)> {
    let context = of.case.kubernetes?;
    let request = context.request.as_ref().filter(|request| request.earliest <= of.case.end)?;
    Some((context, request, of.case.exit?))
}

/// An eighth more, rounded up to five seconds: a grace is no place for a close fit.
pub fn with_reserve(needed: Duration) -> u64 {
    let millis = needed.as_millis() * 9 / 8;
    u64::try_from(millis.div_ceil(5_000).max(1) * 5).unwrap_or(u64::MAX)
}

/// A grace is whole seconds in the API.
pub fn whole_seconds(d: Duration) -> String {
    if d.subsec_nanos() == 0 {
        format!("{} s", d.as_secs())
    } else {
        seconds(d)
    }
}
