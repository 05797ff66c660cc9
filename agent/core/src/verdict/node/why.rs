//! Why a shutdown of the node has its outcome.

use std::time::Duration;

use crate::verdict::ShutdownOutcome;

/// The outcome with its finer reason, for the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verdict::node) enum Why {
    Graceful,
    Truncated,
    /// The node went down within it: power loss or a reset.
    CutOff,
    /// The kubelet did not finish, by its own state.
    StateIsOpen,
    Unprotected(NoLock),
    Bypassed,
    Unannounced,
    Spoofed,
    Cancelled,
    /// The plan was dropped before its time.
    PlanCancelled,
    Blocked,
    Unknown(Missing),
}

impl Why {
    pub fn outcome(&self) -> ShutdownOutcome {
        match self {
            Why::Graceful => ShutdownOutcome::Graceful,
            Why::Truncated | Why::CutOff | Why::StateIsOpen => ShutdownOutcome::Truncated,
            Why::Unprotected(_) => ShutdownOutcome::Unprotected,
            Why::Bypassed => ShutdownOutcome::Bypassed,
            Why::Unannounced => ShutdownOutcome::Unannounced,
            Why::Spoofed => ShutdownOutcome::Spoofed,
            Why::Cancelled | Why::PlanCancelled => ShutdownOutcome::Cancelled,
            Why::Blocked => ShutdownOutcome::Blocked,
            Why::Unknown(_) => ShutdownOutcome::Unknown,
        }
    }
}

/// Why the kubelet had no lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verdict::node) enum NoLock {
    ZeroPeriods,
    /// It let go at a spoofed signal.
    Dropped,
    /// The limit of logind, and what the kubelet needs.
    Limit(Duration, Duration),
    NotKnown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verdict::node) enum Missing {
    /// Of logind's messages.
    Bus(String),
    /// The agent did not observe for a part of it.
    Gap,
    /// What PID 1 did with the signal.
    NothingFollowed,
    /// The agent had ended before.
    AgentEnded,
    /// The observation ended during the shutdown.
    ObservationEnded,
    /// Exits of processes.
    Exits,
    /// Whether the shutdown was why a container was killed, or cut its time.
    Kill,
    /// Whether systemd-shutdown stopped all processes.
    Signals,
    Pods,
    TooManyPods,
    /// Whether the kubelet had a lock.
    Lock,
    /// Pods of which the end was not seen.
    Open,
    /// The kubelet was not done when logind's delay was over, or by its own state.
    KubeletAtWork,
}
