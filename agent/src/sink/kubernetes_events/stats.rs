//! Outcomes of the Events, counted for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Posted,
    /// The API server already had the Event, from a retry or from before a restart.
    Known,
    /// The workload has had enough Events for now: from agents of other nodes, or of its pods on lost nodes.
    Crowded,
    /// Another writer's Event has the name.
    Foreign,
    QueueFull,
    /// RBAC forbids the Event.
    Forbidden,
    /// The namespace is deleted or being deleted.
    NamespaceGone,
    /// The API server refused the Event's content.
    Rejected,
    /// The API server was away for too long.
    Unavailable,
    Shutdown,
}

pub const OUTCOMES: [Outcome; 10] = [
    Outcome::Posted,
    Outcome::Known,
    Outcome::Crowded,
    Outcome::Foreign,
    Outcome::QueueFull,
    Outcome::Forbidden,
    Outcome::NamespaceGone,
    Outcome::Rejected,
    Outcome::Unavailable,
    Outcome::Shutdown,
];

impl Outcome {
    /// Value of the label on `/metrics`.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Posted => "posted",
            Outcome::Known => "known",
            Outcome::Crowded => "crowded",
            Outcome::Foreign => "foreign",
            Outcome::QueueFull => "queue_full",
            Outcome::Forbidden => "forbidden",
            Outcome::NamespaceGone => "namespace_gone",
            Outcome::Rejected => "rejected",
            Outcome::Unavailable => "unavailable",
            Outcome::Shutdown => "shutdown",
        }
    }
}

/// Number of terminations by outcome.
#[derive(Debug, Default)]
pub struct EventStats([AtomicU64; OUTCOMES.len()]);

impl EventStats {
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, outcome: Outcome, terminations: u64) {
        self.0[outcome as usize].fetch_add(terminations, Ordering::Relaxed);
    }
}
