//! A bounded queue with one entry per pod.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epitaph_core::render::resource::{Epitaph, POD};
use epitaph_core::time::Boot;
use tokio::sync::watch;

use super::stats::{EpitaphOutcome, EpitaphStats};
use crate::cache::Cache;

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
    /// When the oldest of its terminations was offered.
    pub since: Boot,
    /// No attempt before this time.
    pub not_before: Boot,
    /// Consecutive failed attempts for a reason of this object.
    pub failed: u32,
    /// Reports in it.
    pub count: u64,
}

#[derive(Debug)]
pub(super) struct Queue {
    most: usize,
    between: Duration,
    state: Mutex<State>,
    /// Grows with every change, so that no change is missed.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    order: VecDeque<Key>,
    waiting: HashMap<Key, Waiting>,
    /// When the object of a pod that lives on was last written.
    written: Cache<Key, Boot>,
    /// By namespace, the last turn that took one of its objects: a namespace with hundreds does not delay another's.
    served: Cache<String, u64>,
    turn: u64,
    /// By namespace: the cause of a failure (a webhook, a quota) usually affects all objects of the namespace.
    troubles: HashMap<String, Trouble>,
    closed: bool,
}

#[derive(Debug)]
struct Trouble {
    failed: u32,
    until: Boot,
}

/// Most namespaces, and pods that live on, that are remembered.
const NAMESPACES: usize = 1024;
const PODS: usize = 1024;

impl Queue {
    pub fn new(most: usize, between: Duration) -> Queue {
        Queue {
            most: most.max(1),
            between,
            state: Mutex::new(State {
                order: VecDeque::new(),
                waiting: HashMap::new(),
                written: Cache::new(PODS),
                served: Cache::new(NAMESPACES),
                turn: 0,
                troubles: HashMap::new(),
                closed: false,
            }),
            changed: watch::channel(0).0,
        }
    }

    pub fn push(&self, epitaph: Epitaph, now: Boot, stats: &EpitaphStats) {
        let key = Key::of(&epitaph);
        let mut state = self.state();
        if state.closed {
            stats.count(EpitaphOutcome::Shutdown, 1);
            return;
        }
        // A pod's own termination is its last: there is nothing to wait for.
        let is_last = epitaph.report.terminated == POD;
        let last = state.written.get(&key).filter(|_| !is_last);
        let not_before = last.map_or(now, |last| last.plus(self.between).max(now));
        if !state.waiting.contains_key(&key)
            && state.order.len() >= self.most
            && let Some(lost) = state.remove_least(&key.namespace)
        {
            stats.count(EpitaphOutcome::QueueFull, lost.count);
        }
        let new = Waiting {
            epitaph,
            since: now,
            not_before,
            failed: 0,
            count: 1,
        };
        match state.waiting.get_mut(&key) {
            Some(waiting) => waiting.merge(new),
            None => state.append(key, new),
        }
        drop(state);
        self.changed();
    }

    /// Puts an object that could not be written at the end of the queue.
    pub fn put_back(&self, key: Key, waiting: Waiting) {
        self.state().add_again(key, waiting);
        self.changed();
    }

    /// For an object that could not be written because of the object or its namespace; `pause` by the number of earlier failures.
    pub fn put_off(&self, key: Key, mut waiting: Waiting, now: Boot, pause: impl Fn(u32) -> Duration) {
        let mut state = self.state();
        if state.troubles.len() >= NAMESPACES {
            state.troubles.retain(|_, trouble| trouble.until > now);
        }
        let trouble = state.troubles.entry(key.namespace.clone());
        let trouble = trouble.or_insert(Trouble { failed: 0, until: now });
        trouble.until = now.plus(pause(trouble.failed));
        trouble.failed = trouble.failed.saturating_add(1);
        waiting.not_before = now.plus(pause(waiting.failed));
        waiting.failed = waiting.failed.saturating_add(1);
        state.add_again(key, waiting);
        drop(state);
        self.changed();
    }

    /// An object was written: its namespace is well, and the next of a pod that lives on waits.
    pub fn is_written(&self, key: &Key, lives_on: bool, now: Boot) {
        let mut state = self.state();
        state.troubles.remove(&key.namespace);
        state.written.remove(key);
        if lives_on {
            let next = now.plus(self.between);
            // Reported while this one was being written.
            if let Some(waiting) = state.waiting.get_mut(key).filter(|of| of.epitaph.report.terminated != POD) {
                waiting.not_before = waiting.not_before.max(next);
            }
            state.written.insert(key.clone(), now);
        }
        drop(state);
        self.changed();
    }

    /// Takes away all that has waited for longer than this; returns the number of reports.
    pub fn expire(&self, now: Boot, longest: Duration) -> u64 {
        let mut state = self.state();
        let old = |waiting: &Waiting| now.since(waiting.since) >= longest;
        let count = state
            .waiting
            .values()
            .filter(|waiting| old(waiting))
            .map(|waiting| waiting.count);
        let count = count.sum();
        let State { order, waiting, .. } = &mut *state;
        waiting.retain(|_, waiting| !old(waiting));
        order.retain(|key| waiting.contains_key(key));
        count
    }

    /// Waits until an object may be written; false once the queue is closed and empty.
    pub async fn waits(&self, clock: fn() -> Boot) -> bool {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let rest = {
                let state = self.state();
                let now = clock();
                if state.next(now).is_some() {
                    return true;
                }
                if state.closed {
                    return false;
                }
                let times = state.waiting.iter().map(|(key, of)| state.due(key, of).since(now));
                times.min().unwrap_or(Duration::MAX)
            };
            // The sender lives as long as the queue.
            let _ = tokio::time::timeout(rest, changed.changed()).await;
        }
    }

    /// An object that may be written now: untried ones first, so that one that cannot be written does not delay others. Namespaces take
    /// turns.
    pub fn take(&self, now: Boot) -> Option<(Key, Waiting)> {
        let mut state = self.state();
        let next = state.next(now)?;
        let (key, waiting) = state.remove(next)?;
        state.turn += 1;
        let turn = state.turn;
        // Removed first, so that the cache drops the namespace that was served the longest time ago.
        state.served.remove(&key.namespace);
        state.served.insert(key.namespace.clone(), turn);
        Some((key, waiting))
    }

    pub fn close(&self) {
        self.state().closed = true;
        self.changed();
    }

    /// Waits until the queue is closed.
    pub async fn closed(&self) {
        let mut changed = self.changed.subscribe();
        let _ = changed.wait_for(|_| self.state().closed).await;
    }

    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Empties the queue; returns the number of reports in it.
    pub fn drain(&self) -> u64 {
        let mut state = self.state();
        state.order.clear();
        state.waiting.drain().map(|(_, waiting)| waiting.count).sum()
    }

    fn changed(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn append(&mut self, key: Key, waiting: Waiting) {
        self.order.push_back(key.clone());
        self.waiting.insert(key, waiting);
    }

    fn add_again(&mut self, key: Key, mut waiting: Waiting) {
        let newer = self.order.iter().position(|other| *other == key);
        if let Some((_, newer)) = newer.and_then(|at| self.remove(at)) {
            waiting.merge(newer);
        }
        self.append(key, waiting);
    }

    fn remove(&mut self, at: usize) -> Option<(Key, Waiting)> {
        let key = self.order.remove(at)?;
        let waiting = self.waiting.remove(&key)?;
        Some((key, waiting))
    }

    /// After the close, every object is due.
    fn next(&self, now: Boot) -> Option<usize> {
        let is_due = |key: &Key, new: bool| {
            let waiting = self.waiting.get(key).filter(|waiting| !new || waiting.failed == 0);
            waiting.is_some_and(|waiting| self.closed || self.due(key, waiting) <= now)
        };
        self.first(|key| is_due(key, true))
            .or_else(|| self.first(|key| is_due(key, false)))
    }

    /// The oldest of the namespace that was served the longest time ago.
    fn first(&self, is_wanted: impl Fn(&Key) -> bool) -> Option<usize> {
        let served = |key: &Key| self.served.get(&key.namespace).copied().unwrap_or(0);
        let wanted = self.order.iter().enumerate().filter(|(_, key)| is_wanted(key));
        wanted.min_by_key(|(at, key)| (served(key), *at)).map(|(at, _)| at)
    }

    fn due(&self, key: &Key, waiting: &Waiting) -> Boot {
        let trouble = self.troubles.get(&key.namespace);
        trouble.map_or(waiting.not_before, |trouble| trouble.until.max(waiting.not_before))
    }

    /// `newer`: the namespace of the object that needs the room.
    fn remove_least(&mut self, newer: &str) -> Option<Waiting> {
        let mut counts = HashMap::from([(newer, 1)]);
        for key in &self.order {
            *counts.entry(key.namespace.as_str()).or_default() += 1;
        }
        let namespaces = self.order.iter().map(|key| key.namespace.as_str());
        let most = namespaces.max_by_key(|namespace| counts[namespace])?;
        let is_of_most = |key: &Key| key.namespace == most;
        let is_clean = |key: &Key| self.waiting.get(key).is_some_and(|of| !of.epitaph.report.unclean);
        let clean = self.order.iter().position(|key| is_of_most(key) && is_clean(key));
        let least = clean.or_else(|| self.order.iter().position(is_of_most))?;
        self.remove(least).map(|(_, waiting)| waiting)
    }
}

impl Waiting {
    fn merge(&mut self, newer: Waiting) {
        let is_last = newer.epitaph.report.terminated == POD;
        self.epitaph = newer.epitaph.after(&self.epitaph.report);
        self.count += newer.count;
        if is_last {
            // A pod that has terminated waits no minute; a failure keeps its pause.
            self.not_before = if self.failed == 0 { newer.not_before } else { self.not_before };
        }
    }
}
