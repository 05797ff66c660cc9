//! What could be set better, by measurement. Pure, and apart from the verdict: a clean end can have advice, too.

mod clients;
mod grace;

use serde::Serialize;

use super::Exit;
use super::judge::{Case, Judged};
use crate::kubernetes::Reported;

pub(super) use clients::NeededSleep;
pub(super) use grace::{whole_seconds, with_reserve};

/// One setting that was measured to be wrong or tight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    pub kind: AdviceKind,
    /// The advised value in whole seconds; None where the measurement gives no number.
    pub seconds: Option<u64>,
    /// A clause with the measured numbers.
    pub text: String,
}

/// Which setting, and which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceKind {
    /// `terminationGracePeriodSeconds` was used up or nearly so.
    GraceLonger,
    /// `terminationGracePeriodSeconds` is many times what was needed, by a pod as a whole.
    GraceShorter,
    /// The preStop sleep did not cover the time in which clients still came.
    PreStopSleepLonger,
    /// The preStop sleep is far longer than clients needed.
    PreStopSleepShorter,
    /// The server must go on accepting while it drains: no sleep helps.
    AcceptWhileDraining,
}

impl AdviceKind {
    /// Those beside which it is not to be taken: who took both would have too little.
    pub const fn not_beside(self) -> &'static [AdviceKind] {
        use AdviceKind::{AcceptWhileDraining, GraceLonger, GraceShorter, PreStopSleepLonger, PreStopSleepShorter};
        match self {
            GraceShorter => &[GraceLonger, PreStopSleepLonger, AcceptWhileDraining],
            PreStopSleepShorter => &[PreStopSleepLonger],
            GraceLonger | PreStopSleepLonger | AcceptWhileDraining => &[],
        }
    }

    /// The `epitaph.advice.kind` of exports.
    pub const fn name(self) -> &'static str {
        match self {
            AdviceKind::GraceLonger => "grace-longer",
            AdviceKind::GraceShorter => "grace-shorter",
            AdviceKind::PreStopSleepLonger => "pre-stop-sleep-longer",
            AdviceKind::PreStopSleepShorter => "pre-stop-sleep-shorter",
            AdviceKind::AcceptWhileDraining => "accept-while-draining",
        }
    }
}

/// In order of kind, at most one of each.
pub(super) fn list(case: &Case<'_>, exit: Exit) -> Vec<Advice> {
    let mut list: Vec<Advice> = grace::advice(case, exit).into_iter().collect();
    list.extend(clients::advice(case));
    list.sort_by_key(|advice| advice.kind);
    list
}

/// What an end shows of the least that a setting may be. Another end's advice of less is not to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// It was not put to the test.
    Nothing,
    Seconds(u64),
    /// More than was measured.
    NotKnown,
}

/// Of the containers that ended by the API's word alone, those that may have run.
pub(super) fn that_ran(unseen: &[(String, Option<Reported>)]) -> impl Iterator<Item = &str> {
    let has_run = |(_, reported): &&(String, Option<Reported>)| !reported.as_ref().is_some_and(Reported::never_started);
    unseen.iter().filter(has_run).map(|(name, _)| name.as_str())
}

/// By the kind of advice that would take it away: the most that one of the containers needed.
pub fn needs(containers: &[Judged<'_>], unseen: &[(String, Option<Reported>)]) -> [(AdviceKind, Need); 2] {
    let unseen = that_ran(unseen).map(|_| Need::NotKnown);
    let grace = containers.iter().map(grace::need).chain(unseen).max();
    let sleep = containers.iter().map(|of| clients::sleep_need(&of.case)).max();
    [
        (AdviceKind::GraceShorter, grace.unwrap_or(Need::Nothing)),
        (AdviceKind::PreStopSleepShorter, sleep.unwrap_or(Need::Nothing)),
    ]
}

/// Of a pod: of each kind the largest number that one of its containers was given, and what only all together can say.
pub(super) fn of_pod(containers: &[Judged<'_>], unseen: &[(String, Option<Reported>)]) -> Vec<Advice> {
    let [(_, grace), _] = needs(containers, unseen);
    let own = containers.iter().flat_map(|of| &of.verdict.advice).cloned();
    let mut list: Vec<Advice> = own.chain(grace::shorter(containers, grace)).collect();
    list.sort_by(|a, b| a.kind.cmp(&b.kind).then(b.seconds.cmp(&a.seconds)));
    list.dedup_by_key(|advice| advice.kind);
    let kinds: Vec<AdviceKind> = list.iter().map(|advice| advice.kind).collect();
    list.retain(|advice| !advice.kind.not_beside().iter().any(|kind| kinds.contains(kind)));
    list
}
