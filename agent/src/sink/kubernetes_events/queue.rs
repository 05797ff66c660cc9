//! A bounded queue in which the same waits once, with its count.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::report::{Key, Report};
use super::stats::{Outcome, Stats};
use crate::event::{Boot, Wall};

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
    closed: bool,
}

impl Queue {
    pub fn new(most: usize) -> Queue {
        Queue {
            most: most.max(1),
            state: Mutex::default(),
            changed: watch::channel(0).0,
        }
    }

    /// A full queue loses its oldest.
    pub fn push(&self, report: Report, now: Boot, stats: &Stats) {
        let pending = Pending {
            since: now,
            first: report.at,
            last: report.at,
            count: 1,
            note: report.note,
            deaths: vec![report.death],
        };
        let mut state = self.state();
        if state.closed {
            stats.count(Outcome::Shutdown, 1);
            return;
        }
        if !state.pending.contains_key(&report.key)
            && state.order.len() >= self.most
            && let Some(oldest) = state.order.pop_front()
        {
            let lost = state.pending.remove(&oldest).map_or(0, |lost| lost.count);
            stats.count(Outcome::QueueFull, lost);
        }
        state.add(report.key, pending, false);
        drop(state);
        self.changed.send_modify(|n| *n += 1);
    }

    /// What could not be posted goes first the next time.
    pub fn put_back(&self, key: Key, pending: Pending) {
        self.state().add(key, pending, true);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Until something waits; false once it is closed and empty.
    pub async fn waits(&self) -> bool {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            {
                let state = self.state();
                if !state.order.is_empty() {
                    return true;
                }
                if state.closed {
                    return false;
                }
            }
            // The sender lives as long as we do.
            let _ = changed.changed().await;
        }
    }

    pub fn take(&self) -> Option<(Key, Pending)> {
        let mut state = self.state();
        let key = state.order.pop_front()?;
        let pending = state.pending.remove(&key)?;
        Some((key, pending))
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
    fn add(&mut self, key: Key, pending: Pending, first: bool) {
        let Some(waiting) = self.pending.get_mut(&key) else {
            if first {
                self.order.push_front(key.clone());
            } else {
                self.order.push_back(key.clone());
            }
            self.pending.insert(key, pending);
            return;
        };
        if first {
            let newer = std::mem::replace(waiting, pending);
            waiting.merge(newer);
        } else {
            waiting.merge(pending);
        }
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
