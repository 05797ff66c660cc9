//! What could be set better, by measurement. Pure, and apart from the verdict: a clean end can have advice, too.

mod clients;
mod grace;

use serde::Serialize;

use super::Exit;
use super::judge::Case;

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
    /// `terminationGracePeriodSeconds` is many times what was needed.
    GraceShorter,
    /// The preStop sleep did not cover the time in which clients still came.
    PreStopSleepLonger,
    /// The preStop sleep is far longer than clients needed.
    PreStopSleepShorter,
    /// The server must go on accepting while it drains: no sleep helps.
    AcceptWhileDraining,
}

impl AdviceKind {
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

/// Of several containers: of each kind the largest number, and no shorter grace where one needs a longer.
pub(super) fn join<'a>(of: impl Iterator<Item = &'a Advice>) -> Vec<Advice> {
    let mut list: Vec<Advice> = of.cloned().collect();
    list.sort_by(|a, b| a.kind.cmp(&b.kind).then(b.seconds.cmp(&a.seconds)));
    list.dedup_by_key(|advice| advice.kind);
    if list.iter().any(|advice| advice.kind == AdviceKind::GraceLonger) {
        list.retain(|advice| advice.kind != AdviceKind::GraceShorter);
    }
    list
}
