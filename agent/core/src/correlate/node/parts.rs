//! What the machine keeps of the bus, and its reports.

use std::collections::VecDeque;
use std::time::Duration;

use crate::node::{Inhibitor, OwnLock, ScheduledShutdown, ShutdownKind};
use crate::report::{NodeShutdown, Report};
use crate::shutdown::{NodeShutdownFacts, ShutdownKey};
use crate::termination::TerminationFacts;
use crate::text::bounded;
use crate::time::Boot;
use crate::tolerances::{BUS_REACH, OOMD};

/// Most locks that are kept, of a list and of a shutdown: a machine has some.
pub(super) const LOCKS: usize = 64;
/// Most kills by systemd-oomd that are kept: it pauses for seconds after each.
const OOM_KILLS: usize = 16;
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

/// What logind and systemd-oomd show on the bus, and whether messages may be missing.
#[derive(Debug, Default)]
pub(super) struct Bus {
    pub connected: Option<Boot>,
    /// Why it is not.
    pub reason: Option<String>,
    /// Last time at which a message may be missing, and why.
    pub gap: Option<(Boot, String)>,
    /// Of logind's delay.
    pub limit: Option<Duration>,
    /// For shutdowns; None before the first list.
    pub locks: Option<Vec<Inhibitor>>,
    pub own_lock: Option<OwnLock>,
    pub plan: Option<Plan>,
    /// Cgroups that systemd-oomd has killed, the latest last: when, which, and why.
    oom_kills: VecDeque<(Boot, String, String)>,
}

impl Bus {
    pub fn begin(&mut self, since: Boot) {
        if self.connected.take().is_some() {
            self.gap = Some((since, "epitaph was not observing".to_owned()));
        }
        // What is held may have changed.
        self.locks = None;
    }

    pub fn lose(&mut self, reason: &str) {
        self.connected = None;
        self.locks = None;
        self.reason = Some(bounded(reason, TEXT).into_owned());
    }

    /// Whether the kubelet has a lock; None not known.
    pub fn kubelet_holds(&self) -> Option<bool> {
        Some(self.locks.as_ref()?.iter().any(Inhibitor::is_kubelets))
    }

    pub fn oom_killed(&mut self, now: Boot, cgroup: String, reason: String) {
        if self.oom_kills.len() >= OOM_KILLS {
            self.oom_kills.pop_front();
        }
        self.oom_kills.push_back((now, cgroup, reason));
    }

    /// What the bus says of the kill; the kernel shows who killed.
    pub fn oomd_reason(&self, facts: &TerminationFacts) -> Option<String> {
        let (kill, path) = facts.kill.as_ref().zip(facts.cgroup_path.as_deref())?;
        let is_of = |cgroup: &str| {
            let below = path.strip_prefix(cgroup.trim_end_matches('/'));
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        let is_then = |at: Boot| at.plus(OOMD) >= kill.at && at <= kill.at.plus(OOMD);
        let found = self
            .oom_kills
            .iter()
            .rev()
            .find(|(at, cgroup, _)| is_then(*at) && is_of(cgroup));
        found.map(|(.., reason)| reason.clone())
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
