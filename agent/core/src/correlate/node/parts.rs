//! What the machine keeps of the bus, and its reports.

use std::time::Duration;

use crate::node::{ScheduledShutdown, ShutdownKind};
use crate::report::{NodeShutdown, Report};
use crate::shutdown::{NodeShutdownFacts, ShutdownKey};
use crate::time::Boot;
use crate::tolerances::BUS_REACH;

/// Most locks that are kept, of a list and of a shutdown: a machine has some.
pub(super) const LOCKS: usize = 64;
/// Bytes of a text from the bus.
pub(super) const TEXT: usize = 256;

/// The effects of an input outside the node.
#[derive(Debug, Default)]
pub(in crate::correlate) struct FromNode {
    pub reports: Vec<Report>,
}

/// What an agent that ended within a shutdown has left to its successor.
#[derive(Clone, Debug)]
pub(super) struct Left {
    pub key: ShutdownKey,
    pub kind: Option<ShutdownKind>,
    pub end: Boot,
    /// The successor began in the same boot: a soft reboot, or the shutdown did not come to its end.
    pub back: Option<Boot>,
}

/// A shutdown that logind has scheduled.
#[derive(Debug)]
pub(super) struct Plan {
    pub plan: ScheduledShutdown,
    pub seen: Boot,
    pub dropped: Option<Boot>,
    pub was_blocked: bool,
}

impl Plan {
    pub fn into_parts(self) -> (ScheduledShutdown, Boot) {
        (self.plan, self.seen)
    }
}

/// Whether messages may be missing.
#[derive(Debug, Default)]
pub(super) struct Bus {
    pub connected: Option<Boot>,
    /// Why it is not.
    pub reason: Option<String>,
    /// Last time at which a message may be missing, and why.
    pub gap: Option<(Boot, String)>,
}

impl Bus {
    pub fn begin(&mut self, since: Boot) {
        if self.connected.take().is_some() {
            self.gap = Some((since, "epitaph was not observing".to_owned()));
        }
    }

    /// Why the begin of a shutdown at `at` may have been missed; None if it was observed.
    pub fn doubt(&self, at: Boot, limit: Option<Duration>) -> Option<String> {
        let reach = limit.unwrap_or_default().max(BUS_REACH);
        let gap = self.gap.as_ref().filter(|(when, _)| when.plus(reach) >= at);
        match self.connected {
            Some(since) if since <= at => gap.map(|(_, reason)| reason.clone()),
            _ => Some(self.reason.clone().unwrap_or_else(|| "logind was not observed".to_owned())),
        }
    }
}

pub(super) fn report(facts: NodeShutdownFacts) -> Report {
    Report::NodeShutdown(Box::new(NodeShutdown::judged(facts)))
}
