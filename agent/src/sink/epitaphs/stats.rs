//! Outcomes of the objects, counted for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpitaphOutcome {
    Written,
    /// The API server already had the object, from a retry or from before a restart.
    Known,
    /// Another pod's or another node's object has the name.
    Foreign,
    /// Of the observer: the agent of the node has written no Epitaph that could be completed, or somebody removed it.
    Absent,
    /// Of the observer: the termination was not unclean, and nothing that was observed is out of the ordinary; or it came after two writes.
    Unneeded,
    QueueFull,
    /// The API server does not know the kind: the CustomResourceDefinition is not installed.
    KindAbsent,
    /// RBAC forbids the object.
    Forbidden,
    /// The policy of the chart refused the object: the agent's token does not name the node.
    Refused,
    /// The namespace is deleted or being deleted.
    NamespaceGone,
    /// The API server refused the object's content, or a quota or webhook did.
    Rejected,
    /// The API server was away for too long.
    Unavailable,
    Shutdown,
}

pub const OUTCOMES: [EpitaphOutcome; 13] = [
    EpitaphOutcome::Written,
    EpitaphOutcome::Known,
    EpitaphOutcome::Foreign,
    EpitaphOutcome::Absent,
    EpitaphOutcome::Unneeded,
    EpitaphOutcome::QueueFull,
    EpitaphOutcome::KindAbsent,
    EpitaphOutcome::Forbidden,
    EpitaphOutcome::Refused,
    EpitaphOutcome::NamespaceGone,
    EpitaphOutcome::Rejected,
    EpitaphOutcome::Unavailable,
    EpitaphOutcome::Shutdown,
];

impl EpitaphOutcome {
    /// Whether another attempt, also of the next agent, is of no use.
    pub(super) const fn is_final(self) -> bool {
        match self {
            EpitaphOutcome::Written
            | EpitaphOutcome::Known
            | EpitaphOutcome::Foreign
            | EpitaphOutcome::Absent
            | EpitaphOutcome::Unneeded
            | EpitaphOutcome::Refused
            | EpitaphOutcome::NamespaceGone
            | EpitaphOutcome::Rejected => true,
            EpitaphOutcome::QueueFull
            | EpitaphOutcome::KindAbsent
            | EpitaphOutcome::Forbidden
            | EpitaphOutcome::Unavailable
            | EpitaphOutcome::Shutdown => false,
        }
    }

    /// Value of the label on `/metrics`.
    pub const fn name(self) -> &'static str {
        match self {
            EpitaphOutcome::Written => "written",
            EpitaphOutcome::Known => "known",
            EpitaphOutcome::Foreign => "foreign",
            EpitaphOutcome::Absent => "absent",
            EpitaphOutcome::Unneeded => "unneeded",
            EpitaphOutcome::QueueFull => "queue_full",
            EpitaphOutcome::KindAbsent => "kind_absent",
            EpitaphOutcome::Forbidden => "forbidden",
            EpitaphOutcome::Refused => "refused",
            EpitaphOutcome::NamespaceGone => "namespace_gone",
            EpitaphOutcome::Rejected => "rejected",
            EpitaphOutcome::Unavailable => "unavailable",
            EpitaphOutcome::Shutdown => "shutdown",
        }
    }
}

/// Number of terminations by outcome.
#[derive(Debug, Default)]
pub struct EpitaphStats([AtomicU64; OUTCOMES.len()]);

impl EpitaphStats {
    pub fn get(&self, outcome: EpitaphOutcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, outcome: EpitaphOutcome, terminations: u64) {
        self.0[outcome as usize].fetch_add(terminations, Ordering::Relaxed);
    }
}
