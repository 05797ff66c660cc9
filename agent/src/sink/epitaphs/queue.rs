//! The queue of Epitaphs: one entry per pod.

use std::time::Duration;

use epitaph_core::render::resource::{Epitaph, POD};
use epitaph_core::time::Boot;

use super::stats::{EpitaphOutcome, EpitaphStats};
use crate::cache::Cache;
use crate::sink::queue::{self, Attempts, Entry};

pub(super) type Queue = queue::Queue<Waiting>;

/// An object's place: namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn of(epitaph: &Epitaph) -> Key {
        Key {
            namespace: epitaph.namespace.clone(),
            name: epitaph.name(),
        }
    }
}

/// An object that waits to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub epitaph: Epitaph,
    pub attempts: Attempts,
    /// Reports in it.
    pub count: u64,
}

/// When the object of a pod that lives on was last written, and the time between two of these.
#[derive(Debug)]
pub(super) struct Written {
    between: Duration,
    last: Cache<Key, Boot>,
}

/// Most pods that live on that are remembered.
const PODS: usize = 1024;

impl Queue {
    pub fn new(most: usize, between: Duration) -> Queue {
        let last = Cache::new(PODS);
        Queue::with(most, Written { between, last })
    }

    pub fn push(&self, epitaph: Epitaph, now: Boot, stats: &EpitaphStats) {
        let key = Key::of(&epitaph);
        let state = self.state();
        if state.closed {
            stats.count(EpitaphOutcome::Shutdown, 1);
            return;
        }
        // A pod's own termination is its last: there is nothing to wait for.
        let is_last = epitaph.report.terminated == POD;
        let Written { between, last } = &state.memory;
        let last = last.get(&key).filter(|_| !is_last);
        let not_before = last.map_or(now, |last| last.plus(*between).max(now));
        let waiting = Waiting {
            epitaph,
            attempts: Attempts::from(now, not_before),
            count: 1,
        };
        stats.count(EpitaphOutcome::QueueFull, self.add(state, key, waiting));
    }

    /// An object was written: its namespace is well, and the next of a pod that lives on waits.
    pub fn is_written(&self, key: &Key, lives_on: bool, now: Boot) {
        let mut state = self.state();
        let next = now.plus(state.memory.between);
        state.memory.last.remove(key);
        if lives_on {
            // Reported while this one was being written.
            if let Some(waiting) = state.waiting.get_mut(key).filter(|of| of.epitaph.report.terminated != POD) {
                waiting.attempts.not_before = waiting.attempts.not_before.max(next);
            }
            state.memory.last.insert(key.clone(), now);
        }
        drop(state);
        self.is_well(&key.namespace);
    }
}

impl Entry for Waiting {
    type Key = Key;
    type Memory = Written;

    fn namespace(key: &Key) -> &str {
        &key.namespace
    }

    fn merge(&mut self, newer: Waiting) {
        let is_last = newer.epitaph.report.terminated == POD;
        self.epitaph = newer.epitaph.after(&self.epitaph.report);
        self.count += newer.count;
        // A pod that has terminated waits no minute; a failure keeps its pause.
        if is_last && self.attempts.failed == 0 {
            self.attempts.not_before = newer.attempts.not_before;
        }
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    fn attempts_mut(&mut self) -> &mut Attempts {
        &mut self.attempts
    }

    /// A clean one, else any: the oldest.
    fn least(of_namespace: &[(&Key, &Waiting)]) -> Option<usize> {
        let clean = of_namespace.iter().position(|(_, waiting)| !waiting.epitaph.report.unclean);
        clean.or((!of_namespace.is_empty()).then_some(0))
    }
}
