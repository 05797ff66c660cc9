//! What an advice is.

use serde::Serialize;

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

names! {
    /// The `epitaph.advice.kind` of exports.
    AdviceKind:
    GraceLonger => "grace-longer",
    GraceShorter => "grace-shorter",
    PreStopSleepLonger => "pre-stop-sleep-longer",
    PreStopSleepShorter => "pre-stop-sleep-shorter",
    AcceptWhileDraining => "accept-while-draining",
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
