//! `terminationGracePeriodSeconds` against what was measured.

use std::time::Duration;

use super::{Advice, AdviceKind};
use crate::termination::Role;
use crate::verdict::judge::Case;
use crate::verdict::seconds;
use crate::verdict::spent::{KUBELET_MINIMUM, Spent};

/// Kubernetes' default: nobody chose it, and it is not long.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// How many times too long a grace is before it is worth a word.
const FAR_TOO_LONG: u32 = 10;

pub(super) fn advice(case: &Case<'_>) -> Option<Advice> {
    let context = case.kubernetes?;
    let grace = context.grace.filter(|grace| !grace.is_zero())?;
    let spent = Spent::of(case)?;
    if case.kill.is_some_and(|kill| kill.sender.role == Role::Runtime) || !spent.asked {
        return None;
    }
    let exit = case.exit?;
    let needed = exit.at.since(spent.begin);
    let advised = with_reserve(needed);
    // A probe's own grace or a shortened one says nothing of the pod's.
    let whole = context.request.as_ref().is_some_and(|request| request.shortened.is_empty());
    let name = context.name();
    let how = match spent.hook {
        Some(hook) if !hook.is_zero() => format!(
            "{} of preStop and {} to stop",
            seconds(hook),
            seconds(exit.at.since(spent.stop.unwrap_or(exit.at)))
        ),
        _ => "to stop".to_owned(),
    };
    if needed + needed / 4 > grace || spent.hook.is_some_and(|hook| hook + KUBELET_MINIMUM > grace) {
        let left = match spent.hook {
            Some(hook) if hook + KUBELET_MINIMUM > grace => {
                ": the preStop left it only the kubelet's minimum of two seconds".to_owned()
            }
            _ => String::new(),
        };
        return Some(Advice {
            kind: AdviceKind::GraceLonger,
            seconds: Some(advised),
            text: format!(
                "{name} needed {} ({how}) of a grace of {}{left}; set terminationGracePeriodSeconds to at least {advised}",
                seconds(needed),
                whole_seconds(grace)
            ),
        });
    }
    (whole && grace > DEFAULT_GRACE && grace > Duration::from_secs(advised) * FAR_TOO_LONG).then(|| Advice {
        kind: AdviceKind::GraceShorter,
        seconds: Some(advised),
        text: format!(
            "{name} needed {} of a grace of {}: one that hangs would hold up a rollout or a drain for all of it; \
             terminationGracePeriodSeconds could be {advised}",
            seconds(needed),
            whole_seconds(grace)
        ),
    })
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
