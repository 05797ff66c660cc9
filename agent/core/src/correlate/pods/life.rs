//! A container's life as the kernel shows it.

use crate::ids::{CgroupId, ContainerId};
use crate::ledger::Hole;
use crate::pod::PodEvent;
use crate::shutdown::EndedByShutdown;
use crate::termination::TerminationFacts;
use crate::time::Boot;
use crate::tolerances::{EVENT_SLACK, HOLD};

/// A container's life as the kernel shows it, in short.
pub(super) struct Life {
    pub id: ContainerId,
    pub cgroup: CgroupId,
    /// Of the main process; None if not known.
    pub start: Option<Boot>,
    /// The runtime's stop signal.
    pub stop: Option<Boot>,
    /// Without any stop signal: where the first one may be hidden.
    pub hidden_stops: Vec<Hole>,
    /// The runtime sent a stop signal or SIGKILL.
    pub stop_requested: bool,
    /// None while it still runs.
    pub end: Option<Boot>,
    /// The earliest time of the exit: `end`, if the exit was observed.
    pub end_earliest: Option<Boot>,
    /// The exit code, as a runtime reports it.
    pub code: Option<i32>,
    /// The node's shutdown that stopped it.
    pub shutdown: Option<EndedByShutdown>,
}

impl Life {
    pub fn of(facts: &TerminationFacts, id: &ContainerId) -> Life {
        let stop = facts.runtime_stop();
        Life {
            stop_requested: was_stopped(facts),
            id: id.clone(),
            cgroup: facts.key.cgroup,
            start: facts.main.as_ref().map(|main| main.start),
            stop: stop.map(|stop| stop.at),
            hidden_stops: facts.hidden_stops().copied().collect(),
            end: Some(facts.end),
            end_earliest: Some(facts.exit.map_or(facts.begin, |exit| exit.at)),
            code: facts.exit.map(|exit| exit.status.reported_code()),
            shutdown: facts.shutdown.clone(),
        }
    }

    /// Whether an Event can be about this life of the container: the previous life had the same name, and Events arrive late.
    pub fn can_be_why(&self, at: Boot, event: &PodEvent) -> bool {
        // An Event without a time happened before it arrived; other times are converted from a clock that is corrected now and then.
        let slack = if event.at.is_some() { EVENT_SLACK } else { HOLD };
        Some(at) >= self.start && self.stop.or(self.end).is_none_or(|until| at <= until.plus(slack))
    }

    /// The stop signal came before, or may have.
    pub fn may_be_stopped_before(&self, at: Boot) -> bool {
        match self.stop {
            Some(stop) => stop < at,
            None => self.hidden_stops.iter().any(|hole| hole.hides_before(at)),
        }
    }

    pub fn lives_at(&self, at: Boot) -> bool {
        self.end.is_none_or(|end| at <= end)
    }
}

/// By the runtime.
pub(super) fn was_stopped(facts: &TerminationFacts) -> bool {
    facts.runtime_stop().is_some() || facts.runtime_kill().is_some()
}
