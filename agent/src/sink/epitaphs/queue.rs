//! The queue of Epitaphs: one entry per pod.

use std::fmt;
use std::time::Duration;

use epitaph_core::render::resource::Observed;
use epitaph_core::time::Boot;

use super::Done;
use super::facts::Completion;
use super::object::Object;
use super::stats::{EpitaphOutcome, EpitaphStats};
use crate::cache::Cache;
use crate::sink::queue::{self, Attempts, Entry};

pub(super) type Queue = queue::Queue<Waiting>;

/// An object's place: namespace, empty for a node's, and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// Of the Epitaph that it completes.
    pub fn of(observed: &Observed) -> Key {
        Key {
            namespace: observed.namespace.clone(),
            name: observed.name(),
        }
    }
}

/// An object that waits to be written.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub object: Object,
    pub attempts: Attempts,
    /// Reports in it.
    pub count: u64,
    pub done: OnDone,
}

/// Called once the API server has the object, or will never have it.
#[derive(Clone, Default)]
pub(super) struct OnDone(Vec<Done>);

impl OnDone {
    pub fn call(&self) {
        self.0.iter().for_each(|done| done());
    }
}

impl fmt::Debug for OnDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnDone").field(&self.0.len()).finish()
    }
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

    pub fn between(&self) -> Duration {
        self.state().memory.between
    }

    pub fn push(&self, object: Object, now: Boot, stats: &EpitaphStats) {
        self.push_kept(object, None, now, stats);
    }

    pub fn push_kept(&self, object: Object, done: Option<Done>, now: Boot, stats: &EpitaphStats) {
        let key = object.key();
        let state = self.state();
        if state.closed {
            stats.count(EpitaphOutcome::Shutdown, 1);
            return;
        }
        let Written { between, last } = &state.memory;
        // A pod's own termination is its last: there is nothing to wait for.
        let last = last.get(&key).filter(|_| object.lives_on());
        let not_before = last.map_or(now, |last| last.plus(*between).max(now));
        let waiting = Waiting {
            object,
            attempts: Attempts::from(now, not_before),
            count: 1,
            done: OnDone(done.into_iter().collect()),
        };
        stats.count(EpitaphOutcome::QueueFull, self.add(state, key, waiting));
    }

    /// What the observer saw of a pod: more may follow until it is due, and all of it is one write.
    pub fn push_observed(&self, completion: Completion, now: Boot, stats: &EpitaphStats) {
        let Completion { observed, due, count } = completion;
        let object = Object::Observed(observed);
        let key = object.key();
        let state = self.state();
        if state.closed {
            stats.count(EpitaphOutcome::Shutdown, count);
            return;
        }
        let waiting = Waiting {
            object,
            attempts: Attempts::from(now, due),
            count,
            done: OnDone::default(),
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
            if let Some(waiting) = state.waiting.get_mut(key).filter(|of| of.object.lives_on()) {
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
        let is_last = matches!(newer.object, Object::Pod(_) | Object::Node(_)) && !newer.object.lives_on();
        self.object = newer.object.after(&self.object);
        self.count += newer.count;
        self.done.0.extend(newer.done.0);
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
        let clean = of_namespace.iter().position(|(_, waiting)| !waiting.object.is_unclean());
        clean.or((!of_namespace.is_empty()).then_some(0))
    }
}
