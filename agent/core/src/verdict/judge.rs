//! Facts → claims, without prose. Pure: the same facts give the same judgement, in any order of arrival.
//!
//! A finding that rests on the absence of an event asks for the evidence that would have shown the event (`doubt`); where some of this
//! may be missing, the exit is `unknown`. Positive proof (an OOM victim, a result, a handler entered) stands.

mod ask;
mod below;
mod cause;
mod context;
mod doubt;
mod finding;
mod hook;
mod inside;
mod kernel;
mod killed;
mod kubernetes;
mod rule;
pub mod rules;
mod shutdown;
mod traffic;

use super::case::Case;
use super::{Exit, TrafficAxis};

pub use inside::is_at_once;
pub use traffic::traffic;

pub(super) use context::{by_systemd_shutdown, own_grace};
pub(super) use context::{may_have_been_stopped_before, may_have_begun_before};
pub(super) use doubt::began_in;
pub(super) use finding::{Blocked, Crash, Finding, InnerEnd, Missing, Why};
pub(super) use hook::{Hook, HookEnd};
pub(super) use inside::{outlived_main, worst};

/// What is claimed of one termination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub(super) finding: Finding,
    pub(super) traffic: TrafficAxis,
}

impl Judgement {
    pub fn exit(&self) -> Exit {
        self.finding.exit
    }
}

/// Judges one termination.
pub fn judge(case: &Case<'_>) -> Judgement {
    let traffic = match traffic(case.traffic()) {
        // Nothing counted what clients lost after a stop signal that came before the observation.
        TrafficAxis::Quiet if may_have_been_stopped_before(case) => TrafficAxis::Unknown,
        traffic => traffic,
    };
    Judgement {
        finding: doubt::doubt(case, rules::find(case)),
        traffic,
    }
}
