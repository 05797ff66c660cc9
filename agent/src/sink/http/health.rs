//! State that the loop reports, for `/healthz` and `/readyz`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use epitaph_core::input::{ESSENTIAL, ProbeState};
use epitaph_core::pod::PodsState;
use epitaph_core::time::Boot;
use serde::Serialize;

use crate::error::Remedy;

/// The loop ticks several times a second: a loop without a tick for so long is stuck, and a restart is the remedy.
pub const STUCK_AFTER: Duration = Duration::from_secs(10);

/// State that the loop reports and the handlers serve.
#[derive(Debug, Default)]
pub struct Health {
    /// 0 before the first tick.
    alive_at: AtomicU64,
    /// Number of the node's shutdown in progress; 0: none.
    shutdown: AtomicU32,
    probes: Mutex<Vec<(String, ProbeState)>>,
    /// None without Kubernetes.
    pods: Mutex<Option<PodsState>>,
    /// None until the agent knows, and for `epitaph watch` and an observer, which have none.
    journal: Mutex<Option<JournalState>>,
    /// Set by an observer, which has no probes.
    observer: Mutex<Option<ObserverState>>,
}

/// State of the journal, for `/readyz`: reported, but not a condition of readiness, because terminations are reported regardless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalState {
    /// `written`, `late` or `memory_only`.
    pub state: &'static str,
    /// Of `late`: `slow`. Of `memory_only`: `full`, `read_only`, `missing`, `refused`, `failing`, `not_configured`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// What failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
}

/// State of an observer, for `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObserverState {
    /// The observer knows whether it is the leader; as the leader, all its watches are synced.
    pub ready: bool,
    /// `active`, `standby`, or `starting` before the first answer of the API server.
    pub role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_holder: Option<String>,
}

impl Health {
    /// One iteration of the loop is done.
    pub fn alive(&self, now: Boot) {
        self.alive_at.store(now.0, Ordering::Relaxed);
    }

    /// The node's shutdown in progress, by its number within the boot: the observer asks for it.
    pub fn shutdown(&self, ordinal: Option<u32>) {
        self.shutdown.store(ordinal.unwrap_or(0), Ordering::Relaxed);
    }

    pub(super) fn shutdown_in_progress(&self) -> Option<u32> {
        Some(self.shutdown.load(Ordering::Relaxed)).filter(|ordinal| *ordinal > 0)
    }

    /// A probe's state, new or changed.
    pub fn probe(&self, name: &str, state: ProbeState) {
        let mut probes = self.probes();
        match probes.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = state,
            None => probes.push((name.to_owned(), state)),
        }
    }

    /// State of the connection to the Kubernetes API: reported, but not a condition of readiness, because the kernel is observed
    /// regardless.
    pub fn pods(&self, state: PodsState) {
        *self.pods.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(state);
    }

    /// State of the journal.
    pub fn journal(&self, state: JournalState) {
        *self.journal.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(state);
    }

    pub(crate) fn journal_state(&self) -> Option<JournalState> {
        self.journal.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// State of an observer.
    pub fn observer(&self, state: ObserverState) {
        *self.observer.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(state);
    }

    pub(super) fn observer_state(&self) -> Option<ObserverState> {
        self.observer.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(super) fn pods_state(&self) -> Option<PodsState> {
        self.pods.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(super) fn since_alive(&self, now: Boot) -> Option<Duration> {
        match self.alive_at.load(Ordering::Relaxed) {
            0 => None,
            at => Some(now.since(Boot(at))),
        }
    }

    /// The loop has ticked, and the essential probes are active; or this kernel cannot run any, and an agent has begun all the same, with
    /// its other sources.
    pub(super) fn is_ready(&self) -> bool {
        if self.alive_at.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let probes = self.probes();
        let is_unsupported = |(_, state): &(String, ProbeState)| matches!(state, ProbeState::Unsupported(_));
        if !probes.is_empty() && probes.iter().all(is_unsupported) {
            return true;
        }
        ESSENTIAL
            .iter()
            .all(|name| probes.iter().any(|(n, state)| n == name && *state == ProbeState::Active))
    }

    pub(super) fn probes(&self) -> MutexGuard<'_, Vec<(String, ProbeState)>> {
        self.probes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
