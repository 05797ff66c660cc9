//! A bounded queue in which the same waits once, with its count.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epitaph_core::time::{Boot, Wall};
use tokio::sync::watch;

use super::notice::{Key, Notice};
use super::series::{Sent, namespace};
use super::stats::{Outcome, Stats};

/// Deaths that one Event names; of more only the count is kept.
pub(super) const NAMED: usize = 32;

/// Deaths that wait to be told in one Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// When the oldest of them was offered.
    pub since: Boot,
    pub first: Wall,
    pub last: Wall,
    pub count: u64,
    /// Of the first.
    pub note: String,
    /// The last [`NAMED`].
    pub deaths: Vec<String>,
    /// Times in a row that it could not be posted, for a reason of its own.
    pub failed: u32,
    /// It is not tried again before.
    pub not_before: Boot,
    /// What requests without an answer may have told already.
    pub sent: Vec<Sent>,
}

#[derive(Debug)]
pub(super) struct Queue {
    most: usize,
    state: Mutex<State>,
    /// Grows with every change, so that none is missed.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    order: VecDeque<Key>,
    pending: HashMap<Key, Pending>,
    /// By namespace: what fails in one (a webhook, RBAC) fails its other Events, too.
    troubles: HashMap<String, Trouble>,
    closed: bool,
}

#[derive(Debug)]
struct Trouble {
    /// In a row.
    failed: u32,
    until: Boot,
}

/// Namespaces whose troubles are kept.
const TROUBLES: usize = 1024;

impl Queue {
    pub fn new(most: usize) -> Queue {
        Queue {
            most: most.max(1),
            state: Mutex::default(),
            changed: watch::channel(0).0,
        }
    }

    /// A full queue loses one that could not be posted, else its oldest.
    pub fn push(&self, notice: Notice, now: Boot, stats: &Stats) {
        let pending = Pending {
            since: now,
            first: notice.at,
            last: notice.at,
            count: 1,
            note: notice.note,
            deaths: vec![notice.death],
            failed: 0,
            not_before: now,
            sent: Vec::new(),
        };
        let mut state = self.state();
        if state.closed {
            stats.count(Outcome::Shutdown, 1);
            return;
        }
        if !state.pending.contains_key(&notice.key)
            && state.order.len() >= self.most
            && let Some((_, lost)) = state.remove_least()
        {
            stats.count(Outcome::QueueFull, lost.count);
        }
        state.add(notice.key, pending);
        drop(state);
        self.changed.send_modify(|n| *n += 1);
    }

    /// What could not be posted goes last.
    pub fn put_back(&self, key: Key, pending: Pending) {
        self.state().add_again(key, pending);
        self.changed.send_modify(|n| *n += 1);
    }

    /// It could not be posted, for a reason of its own or of its namespace; `pause` is after so many times before.
    pub fn put_off(&self, key: Key, mut pending: Pending, now: Boot, pause: impl Fn(u32) -> Duration) {
        let mut state = self.state();
        if state.troubles.len() >= TROUBLES {
            state.troubles.retain(|_, trouble| trouble.until > now);
        }
        let trouble = state.troubles.entry(namespace(&key.object).to_owned());
        let trouble = trouble.or_insert(Trouble { failed: 0, until: now });
        trouble.until = now.plus(pause(trouble.failed));
        trouble.failed = trouble.failed.saturating_add(1);
        pending.not_before = now.plus(pause(pending.failed));
        pending.failed = pending.failed.saturating_add(1);
        state.add_again(key, pending);
        drop(state);
        self.changed.send_modify(|n| *n += 1);
    }

    /// One of its Events could be posted.
    pub fn is_well(&self, namespace: &str) {
        self.state().troubles.remove(namespace);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Until something may be posted; false once it is closed and empty.
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
                let times = state.pending.iter().map(|(key, pending)| state.due(key, pending).since(now));
                times.min().unwrap_or(Duration::MAX)
            };
            // The sender lives as long as we do.
            let _ = tokio::time::timeout(rest, changed.changed()).await;
        }
    }

    /// What may be posted now: first what was not tried yet, so that one that cannot be posted holds no other one up.
    pub fn take(&self, now: Boot) -> Option<(Key, Pending)> {
        let mut state = self.state();
        let next = state.next(now)?;
        state.remove(next)
    }

    pub fn close(&self) {
        self.state().closed = true;
        self.changed.send_modify(|n| *n += 1);
    }

    /// Until it is closed.
    pub async fn closed(&self) {
        let mut changed = self.changed.subscribe();
        let _ = changed.wait_for(|_| self.state().closed).await;
    }

    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Empties it: how many deaths were left.
    pub fn drain(&self) -> u64 {
        let mut state = self.state();
        state.order.clear();
        state.pending.drain().map(|(_, pending)| pending.count).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, key: Key, pending: Pending) {
        match self.pending.get_mut(&key) {
            Some(waiting) => waiting.merge(pending),
            None => self.append(key, pending),
        }
    }

    fn add_again(&mut self, key: Key, mut pending: Pending) {
        let newer = self.order.iter().position(|waiting| *waiting == key);
        if let Some((_, newer)) = newer.and_then(|at| self.remove(at)) {
            pending.merge(newer);
        }
        self.append(key, pending);
    }

    fn append(&mut self, key: Key, pending: Pending) {
        self.order.push_back(key.clone());
        self.pending.insert(key, pending);
    }

    fn remove(&mut self, at: usize) -> Option<(Key, Pending)> {
        let key = self.order.remove(at)?;
        let pending = self.pending.remove(&key)?;
        Some((key, pending))
    }

    /// At the end nothing waits for its time any more.
    fn next(&self, now: Boot) -> Option<usize> {
        let is_due = |key: &Key, new: bool| {
            let pending = self.pending.get(key).filter(|pending| !new || pending.failed == 0);
            pending.is_some_and(|pending| self.closed || self.due(key, pending) <= now)
        };
        let of = |new: bool| self.order.iter().position(|key| is_due(key, new));
        of(true).or_else(|| of(false))
    }

    fn due(&self, key: &Key, pending: &Pending) -> Boot {
        let trouble = self.troubles.get(namespace(&key.object));
        trouble.map_or(pending.not_before, |trouble| trouble.until.max(pending.not_before))
    }

    fn remove_least(&mut self) -> Option<(Key, Pending)> {
        let failed = |key| self.pending.get(key).is_some_and(|pending: &Pending| pending.failed > 0);
        self.remove(self.order.iter().position(failed).unwrap_or(0))
    }
}

impl Pending {
    /// The same death again is no other one.
    fn merge(&mut self, newer: Pending) {
        let known = newer.deaths.iter().filter(|death| self.deaths.contains(death)).count();
        self.count += newer.count.saturating_sub(known as u64);
        self.last = self.last.max(newer.last);
        let new: Vec<String> = newer
            .deaths
            .into_iter()
            .filter(|death| !self.deaths.contains(death))
            .collect();
        self.deaths.extend(new);
        let surplus = self.deaths.len().saturating_sub(NAMED);
        self.deaths.drain(..surplus);
    }
}
