//! Advice: settings that measurements show to be wrong or tight. Separate from the verdict, because a clean
//! termination can have advice too.

mod clients;
mod grace;

use serde::Serialize;

use super::Exit;
use super::case::{Case, Judged};
use crate::kubernetes::Reported;

pub(super) use clients::NeededSleep;
pub(super) use grace::whole_seconds;
pub use grace::with_reserve;

/// One setting that was measured to be wrong or tight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    pub kind: AdviceKind,
    /// The advised value in whole seconds; None where the measurement gives no number.
    pub seconds: Option<u64>,
    /// A clause with the measured numbers.
    pub text: String,
}

/// Which setting to change, and in which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceKind {
    /// `terminationGracePeriodSeconds` was used up, or almost.
    GraceLonger,
    /// `terminationGracePeriodSeconds` is many times what the whole pod needed.
    GraceShorter,
    /// The preStop sleep ended while clients were still trying to connect.
    PreStopSleepLonger,
    /// The preStop sleep is far longer than clients needed.
    PreStopSleepShorter,
    /// The server must keep accepting while it drains: no sleep helps.
    AcceptWhileDraining,
}

impl AdviceKind {
    /// Kinds that exclude this advice: following both would leave too little time.
    pub const fn excluded_by(self) -> &'static [AdviceKind] {
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

/// The least value of a setting that one termination needed. Advice of a smaller value from another termination is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The termination did not use the setting.
    Nothing,
    Seconds(u64),
    /// More than was measured.
    NotKnown,
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
