//! Advice: settings that measurements show to be wrong or tight. Separate from the verdict, because a clean
//! termination can have advice too.

mod clients;
mod grace;
mod kind;

use super::case::Case;
use super::{Exit, Judged};
use crate::kubernetes::Reported;

pub use super::own_time::with_reserve;
pub(super) use clients::NeededSleep;
pub use kind::{Advice, AdviceKind, Need};

/// In order of kind, at most one of each.
pub(super) fn list(case: &Case<'_>, exit: Exit) -> Vec<Advice> {
    let mut list: Vec<Advice> = grace::advice(case, exit).into_iter().collect();
    list.extend(clients::advice(case));
    list.sort_by_key(|advice| advice.kind);
    list
}

/// Of the containers whose exit only the pod's status reports, those that may have run.
pub(super) fn that_ran(unseen: &[(String, Option<Reported>)]) -> impl Iterator<Item = &str> {
    let has_run = |(_, reported): &&(String, Option<Reported>)| !reported.as_ref().is_some_and(Reported::never_started);
    unseen.iter().filter(has_run).map(|(name, _)| name.as_str())
}

/// For each kind of advice that would lower a setting: the most that one of the containers needed.
pub fn needs(containers: &[Judged<'_>], unseen: &[(String, Option<Reported>)]) -> [(AdviceKind, Need); 2] {
    let unseen = that_ran(unseen).map(|_| Need::NotKnown);
    let grace = containers.iter().map(grace::need).chain(unseen).max();
    let sleep = containers.iter().map(|of| clients::sleep_need(&of.case)).max();
    [
        (AdviceKind::GraceShorter, grace.unwrap_or(Need::Nothing)),
        (AdviceKind::PreStopSleepShorter, sleep.unwrap_or(Need::Nothing)),
    ]
}

/// Advice for a pod: for each kind the largest value of its containers, and the advice that needs all containers.
pub(super) fn of_pod(containers: &[Judged<'_>], unseen: &[(String, Option<Reported>)]) -> Vec<Advice> {
    let [(_, grace), _] = needs(containers, unseen);
    let own = containers.iter().flat_map(|of| &of.verdict.advice).cloned();
    let mut list: Vec<Advice> = own.chain(grace::shorter(containers, grace)).collect();
    list.sort_by(|a, b| a.kind.cmp(&b.kind).then(b.seconds.cmp(&a.seconds)));
    list.dedup_by_key(|advice| advice.kind);
    let kinds: Vec<AdviceKind> = list.iter().map(|advice| advice.kind).collect();
    list.retain(|advice| !advice.kind.excluded_by().iter().any(|kind| kinds.contains(kind)));
    list
}
