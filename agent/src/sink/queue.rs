//! A bounded queue of objects that are to be written to the API server, one entry per object. Namespaces take turns, and the failure of an
//! object pauses only its namespace.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epitaph_core::time::Boot;
use tokio::sync::watch;

use crate::cache::Cache;

/// An object that waits.
pub(super) trait Entry: Debug + Sized {
    type Key: Clone + Debug + Eq + Hash;
    /// What the queue knows besides the objects.
    type Memory: Debug;

    fn namespace(key: &Self::Key) -> &str;

    /// A newer entry of the same object.
    fn merge(&mut self, newer: Self);

    /// Reports in it.
    fn count(&self) -> u64;

    fn attempts(&self) -> &Attempts;

    fn attempts_mut(&mut self) -> &mut Attempts;

    /// Untried, it goes before all others.
    fn is_urgent(&self, _key: &Self::Key) -> bool {
        false
    }

    /// Which of these, the oldest first, a full queue loses.
    fn least(of_namespace: &[(&Self::Key, &Self)]) -> Option<usize>;
}

/// The attempts to write an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempts {
    /// When the oldest of its reports was offered.
    pub since: Boot,
    /// Consecutive failed ones for a reason of this object.
    pub failed: u32,
    /// None before this time.
    pub not_before: Boot,
}

impl Attempts {
    pub fn from(since: Boot, not_before: Boot) -> Attempts {
        Attempts {
            since,
            failed: 0,
            not_before,
        }
    }
}

#[derive(Debug)]
pub(super) struct Queue<E: Entry> {
    most: usize,
    state: Mutex<State<E>>,
    /// Grows with every change, so that no change is missed.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct State<E: Entry> {
    order: VecDeque<E::Key>,
    pub waiting: HashMap<E::Key, E>,
    pub memory: E::Memory,
    /// By namespace, the last turn that took one of its objects: hundreds of one tenant's do not delay another's.
    served: Cache<String, u64>,
    turn: u64,
    /// By namespace: the cause of a failure (a webhook, RBAC, a quota) usually affects all objects of the namespace.
    troubles: HashMap<String, Trouble>,
    /// Reports of the object that is being written: the write may be aborted.
    in_flight: u64,
    pub closed: bool,
}

#[derive(Debug)]
struct Trouble {
    /// Consecutive failures.
    failed: u32,
    until: Boot,
}

/// Most namespaces with a remembered trouble, and with a remembered turn.
const NAMESPACES: usize = 1024;

impl<E: Entry> Queue<E> {
    pub fn with(most: usize, memory: E::Memory) -> Queue<E> {
        Queue {
            most: most.max(1),
            state: Mutex::new(State {
                order: VecDeque::new(),
                waiting: HashMap::new(),
                memory,
                served: Cache::new(NAMESPACES),
                turn: 0,
                troubles: HashMap::new(),
                in_flight: 0,
                closed: false,
            }),
            changed: watch::channel(0).0,
        }
    }

    /// Adds an object, for which a full queue loses another: the number of reports in that one.
    pub fn add(&self, mut state: MutexGuard<'_, State<E>>, key: E::Key, entry: E) -> u64 {
        let is_full = !state.waiting.contains_key(&key) && state.order.len() >= self.most;
        let lost = is_full.then(|| state.remove_least(E::namespace(&key))).flatten();
        match state.waiting.get_mut(&key) {
            Some(waiting) => waiting.merge(entry),
            None => state.append(key, entry),
        }
        drop(state);
        self.changed();
        lost.map_or(0, |lost| lost.count())
    }

    /// Puts an object that could not be written at the end of the queue.
    pub fn put_back(&self, key: E::Key, entry: E) {
        self.state().add_again(key, entry);
        self.changed();
    }

    /// For an object that could not be written because of the object or its namespace; `pause` by the number of earlier failures.
    pub fn put_off(&self, key: E::Key, mut entry: E, now: Boot, pause: impl Fn(u32) -> Duration) {
        let mut state = self.state();
        if state.troubles.len() >= NAMESPACES {
            state.troubles.retain(|_, trouble| trouble.until > now);
        }
        let trouble = state.troubles.entry(E::namespace(&key).to_owned());
        let trouble = trouble.or_insert(Trouble { failed: 0, until: now });
        trouble.until = now.plus(pause(trouble.failed));
        trouble.failed = trouble.failed.saturating_add(1);
        let attempts = entry.attempts_mut();
        attempts.not_before = now.plus(pause(attempts.failed));
        attempts.failed = attempts.failed.saturating_add(1);
        state.add_again(key, entry);
        drop(state);
        self.changed();
    }

    /// For a namespace with a written object.
    pub fn is_well(&self, namespace: &str) {
        self.state().troubles.remove(namespace);
        self.changed();
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
                let times = state.waiting.iter().map(|(key, entry)| state.due(key, entry).since(now));
                times.min().unwrap_or(Duration::MAX)
            };
            // The sender lives as long as the queue.
            let _ = tokio::time::timeout(rest, changed.changed()).await;
        }
    }

    /// An object that may be written now: untried ones first, so that one that cannot be written does not delay others. Namespaces take
    /// turns. [`Queue::answered`] follows.
    pub fn take(&self, now: Boot) -> Option<(E::Key, E)> {
        let mut state = self.state();
        let next = state.next(now)?;
        let (key, entry) = state.remove(next)?;
        state.serve(E::namespace(&key).to_owned());
        state.in_flight = entry.count();
        Some((key, entry))
    }

    /// The write of the object that was taken is over.
    pub fn answered(&self) {
        self.state().in_flight = 0;
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

    /// Removes all that has waited for longer than this; returns the number of reports.
    pub fn expire(&self, now: Boot, longest: Duration) -> u64 {
        let mut state = self.state();
        let is_old = |entry: &E| now.since(entry.attempts().since) >= longest;
        let old = state.waiting.values().filter(|entry| is_old(entry));
        let count = old.map(E::count).sum();
        let State { order, waiting, .. } = &mut *state;
        waiting.retain(|_, entry| !is_old(entry));
        order.retain(|key| waiting.contains_key(key));
        count
    }

    /// Empties the queue; returns the number of reports in it, and in an object whose write has no answer.
    pub fn drain(&self) -> u64 {
        let mut state = self.state();
        state.order.clear();
        let waited: u64 = state.waiting.drain().map(|(_, entry)| entry.count()).sum();
        waited + std::mem::take(&mut state.in_flight)
    }

    pub fn changed(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    pub fn state(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Entry> State<E> {
    fn append(&mut self, key: E::Key, entry: E) {
        self.order.push_back(key.clone());
        self.waiting.insert(key, entry);
    }

    fn add_again(&mut self, key: E::Key, mut entry: E) {
        let newer = self.order.iter().position(|other| *other == key);
        if let Some((_, newer)) = newer.and_then(|at| self.remove(at)) {
            entry.merge(newer);
        }
        self.append(key, entry);
    }

    fn remove(&mut self, at: usize) -> Option<(E::Key, E)> {
        let key = self.order.remove(at)?;
        let entry = self.waiting.remove(&key)?;
        Some((key, entry))
    }

    fn serve(&mut self, namespace: String) {
        self.turn += 1;
        // Removed first, so that the cache drops the namespace that was served the longest time ago.
        self.served.remove(&namespace);
        self.served.insert(namespace, self.turn);
    }

    /// After the close, every object is due.
    fn next(&self, now: Boot) -> Option<usize> {
        let is_due = |key: &E::Key, is_wanted: &dyn Fn(&E) -> bool| {
            let entry = self.waiting.get(key).filter(|entry| is_wanted(entry));
            entry.is_some_and(|entry| self.closed || self.due(key, entry) <= now)
        };
        let is_new = |entry: &E| entry.attempts().failed == 0;
        self.first(|key| is_due(key, &|entry| is_new(entry) && entry.is_urgent(key)))
            .or_else(|| self.first(|key| is_due(key, &is_new)))
            .or_else(|| self.first(|key| is_due(key, &|_| true)))
    }

    /// The oldest of the namespace that was served the longest time ago.
    fn first(&self, is_wanted: impl Fn(&E::Key) -> bool) -> Option<usize> {
        let served = |key: &E::Key| self.served.get(E::namespace(key)).copied().unwrap_or(0);
        let wanted = self.order.iter().enumerate().filter(|(_, key)| is_wanted(key));
        wanted.min_by_key(|(at, key)| (served(key), *at)).map(|(at, _)| at)
    }

    fn due(&self, key: &E::Key, entry: &E) -> Boot {
        let not_before = entry.attempts().not_before;
        let trouble = self.troubles.get(E::namespace(key));
        trouble.map_or(not_before, |trouble| trouble.until.max(not_before))
    }

    /// `newer`: the namespace of the object that needs the room.
    fn remove_least(&mut self, newer: &str) -> Option<E> {
        let mut counts = HashMap::from([(newer, 1)]);
        for key in &self.order {
            *counts.entry(E::namespace(key)).or_default() += 1;
        }
        let most = self
            .order
            .iter()
            .map(E::namespace)
            .max_by_key(|namespace| counts[namespace])?;
        let of_most = self.order.iter().enumerate().filter(|(_, key)| E::namespace(key) == most);
        let of_most = of_most.filter_map(|(at, key)| Some((at, (key, self.waiting.get(key)?))));
        let (places, entries): (Vec<usize>, Vec<(&E::Key, &E)>) = of_most.unzip();
        let least = places[E::least(&entries)?];
        self.remove(least).map(|(_, entry)| entry)
    }
}
