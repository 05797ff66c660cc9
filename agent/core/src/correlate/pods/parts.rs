//! What is kept of a pod: containers, their names, and held terminations.

use crate::correlate::Limits;
use crate::ids::{CgroupId, ContainerId, PodUid, Signal};
use crate::kubernetes::{EarlierOom, Reported};
use crate::pod::Ended;
use crate::termination::TerminationFacts;
use crate::time::Boot;
use crate::verdict::held::HeldBy;

use super::runs::Runs;

/// Bytes of a name, an id or a short text.
pub(super) const TEXT: usize = 64;

/// A container id that a status named.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub name: String,
    pub restarts: u32,
    pub reported: Option<Reported>,
    /// Of its status, which has it while the container runs.
    pub stop_signal: Option<Signal>,
    /// When a status first showed the exit.
    pub reported_at: Option<Boot>,
    /// When a status first showed the successor, or that a restart is due.
    pub succeeded_at: Option<Boot>,
    /// The kubelet ended and removed it, to restart the pod in place.
    pub in_place: bool,
    pub seen: Boot,
}

/// A container as the kernel shows it.
#[derive(Debug)]
pub(super) struct Container {
    pub id: ContainerId,
    pub cgroup: CgroupId,
    /// The pod UID in the cgroup's path.
    pub path_uid: Option<PodUid>,
    /// Start of the earliest observed process.
    pub start: Boot,
    /// Its exit, at the latest.
    pub ended: Option<Boot>,
    /// The same, at the earliest.
    pub ended_earliest: Option<Boot>,
    /// The cgroup was removed.
    pub removed: Option<Boot>,
    /// The container has exited, and clients' errors count until then.
    pub counted_until: Option<Boot>,
    /// The runtime's first stop signal.
    pub stopped: Option<Boot>,
    /// Its own stop signal, once the subjects have it.
    pub own_stop: Option<Signal>,
    /// The last OOM kill of another process than the first.
    pub last_oom: Option<EarlierOom>,
    /// Reported as still running long after its grace period.
    pub was_overdue: bool,
    /// The pod's sandbox; decided once.
    pub is_sandbox: bool,
    pub runs: Runs,
}

#[derive(Debug)]
pub(super) struct Held {
    pub facts: TerminationFacts,
    pub id: ContainerId,
    /// Begin of the wait.
    pub since: Boot,
    /// When the core asked for the pod's Events because of this termination.
    pub asked: Option<Boot>,
    /// The container terminated with its pod, but this observation does not cover the pod's own termination.
    pub of_ending_pod: bool,
}

/// A container that exited by itself with a code for which all containers restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trigger {
    /// Of its exit, by the kernel; otherwise when a status first showed that.
    pub at: Boot,
    pub by_kernel: bool,
    pub id: ContainerId,
    pub name: String,
    pub code: i32,
}

/// What was reported of a pod that is still there although nothing of it runs.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    /// When a version of the pod first showed its deletion, also of one that had terminated before.
    pub requested: Option<Boot>,
    /// Exit of the last container that was reported.
    pub last_exit: Option<Boot>,
    /// The kernel has shown its sandbox.
    pub had_sandbox: bool,
    /// When its Events were asked for.
    pub asked: Option<Boot>,
    pub reported: Option<(HeldBy, Boot)>,
    pub count: u8,
}

impl Named {
    /// Of the lives of one container.
    pub fn order(&self) -> (u32, Boot) {
        (self.restarts, self.seen)
    }

    pub fn report(&mut self, ended: &Ended, seen: Boot) {
        self.reported_at.get_or_insert(seen);
        self.reported = Some(Reported {
            exit_code: ended.exit_code,
            reason: ended.reason.clone(),
        });
    }
}

impl Container {
    pub fn runs(&self) -> bool {
        self.ended.is_none() && self.removed.is_none()
    }

    /// Order of creation: the sandbox is first.
    pub fn order(&self) -> (Boot, CgroupId) {
        (self.start, self.cgroup)
    }

    /// Nothing more is reported from then on, although the termination was not reported.
    pub fn over_at(&self, limits: &Limits) -> Option<Boot> {
        let removed = self.removed?.plus(limits.linger);
        Some(
            self.counted_until
                .map_or(removed, |until| until.max(removed))
                .plus(limits.reorder),
        )
    }

    pub fn is_alive(&self, limits: &Limits, now: Boot) -> bool {
        self.ended.is_none() && self.over_at(limits).is_none_or(|at| at > now)
    }
}
