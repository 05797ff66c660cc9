//! What became of the Events, counted for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Posted,
    /// The API server had it already, by a retry or from before a restart.
    Known,
    QueueFull,
    /// By RBAC.
    Forbidden,
    /// The namespace is gone, or going.
    NamespaceGone,
    /// The API server did not take it as it is.
    Rejected,
    /// The API server was away for too long.
    Unavailable,
    Shutdown,
}

pub const OUTCOMES: [Outcome; 8] = [
    Outcome::Posted,
    Outcome::Known,
    Outcome::QueueFull,
    Outcome::Forbidden,
    Outcome::NamespaceGone,
    Outcome::Rejected,
    Outcome::Unavailable,
    Outcome::Shutdown,
];

impl Outcome {
    /// As on `/metrics`.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Posted => "posted",
            Outcome::Known => "known",
            Outcome::QueueFull => "queue_full",
            Outcome::Forbidden => "forbidden",
            Outcome::NamespaceGone => "namespace_gone",
            Outcome::Rejected => "rejected",
            Outcome::Unavailable => "unavailable",
            Outcome::Shutdown => "shutdown",
        }
    }
}

/// Deaths told or not told, one count each.
#[derive(Debug, Default)]
pub struct Stats([AtomicU64; OUTCOMES.len()]);

impl Stats {
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, outcome: Outcome, deaths: u64) {
        self.0[outcome as usize].fetch_add(deaths, Ordering::Relaxed);
    }
}
