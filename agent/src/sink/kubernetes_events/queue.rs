//! A bounded queue with one entry per Event and the Event's count.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epitaph_core::time::{Boot, Wall};
use tokio::sync::watch;

use super::notice::{Key, Notice, Reason};
use super::series::{Sent, namespace};
use super::stats::{EventStats, Outcome};
use crate::cache::Cache;

/// Most Events of pods on lost nodes that wait for one workload, whose own Event has the sentence and the command.
const PODS_OF_WORKLOAD: usize = 16;

/// Most terminations that one Event identifies; further ones are only counted.
pub(super) const NAMED: usize = 32;

/// Terminations that wait to be posted in one Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// When the oldest of the terminations was offered.
    pub since: Boot,
    pub first: Wall,
    pub last: Wall,
    pub count: u64,
    /// Note of the first termination.
    pub note: String,
    /// See [`Notice::workload`].
    pub workload: Option<Key>,
    /// The last [`NAMED`].
    pub terminations: Vec<String>,
    /// Consecutive failed attempts for a reason of this Event.
    pub failed: u32,
    /// No attempt before this time.
    pub not_before: Boot,
    /// Requests without an answer, which may have arrived.
    pub sent: Vec<Sent>,
}

#[derive(Debug)]
pub(super) struct Queue {
    most: usize,
    state: Mutex<State>,
    /// Grows with every change, so that no change is missed.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    order: VecDeque<Key>,
    pending: HashMap<Key, Pending>,
    /// By namespace, the last turn that took one of its Events: hundreds of one tenant's workloads in a lost zone do not delay another's.
    served: Cache<String, u64>,
    turn: u64,
    /// By namespace: the cause of a failure (a webhook, RBAC) usually affects all Events of the namespace.
    troubles: HashMap<String, Trouble>,
    closed: bool,
}

#[derive(Debug)]
struct Trouble {
    /// Consecutive failures.
    failed: u32,
    until: Boot,
}

/// Most namespaces with a remembered trouble, and with a remembered turn.
const NAMESPACES: usize = 1024;

impl Queue {
    pub fn new(most: usize) -> Queue {
        Queue {
            most: most.max(1),
            state: Mutex::new(State {
                order: VecDeque::new(),
                pending: HashMap::new(),
                served: Cache::new(NAMESPACES),
                turn: 0,
                troubles: HashMap::new(),
                closed: false,
            }),
            changed: watch::channel(0).0,
        }
    }

    /// A full queue drops an Event of the namespace with the most: one that could not be posted, else one of a pod whose workload has an
    /// Event, too, else the newest.
    pub fn push(&self, notice: Notice, now: Boot, stats: &EventStats) {
        let pending = Pending {
            since: now,
            first: notice.at,
            last: notice.at,
            count: 1,
            note: notice.note,
            workload: notice.workload,
            terminations: vec![notice.termination],
            failed: 0,
            not_before: now,
            sent: Vec::new(),
        };
        let mut state = self.state();
        if state.closed {
            stats.count(Outcome::Shutdown, 1);
            return;
        }
        if state.is_crowded(&notice.key, pending.workload.as_ref()) {
            stats.count(Outcome::Crowded, 1);
            return;
        }
        if !state.pending.contains_key(&notice.key)
            && state.order.len() >= self.most
            && let Some((_, lost)) = state.remove_least(namespace(&notice.key.object))
        {
            stats.count(Outcome::QueueFull, lost.count);
        }
        state.add(notice.key, pending);
        drop(state);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Puts an Event that could not be posted at the end of the queue.
    pub fn put_back(&self, key: Key, pending: Pending) {
        self.state().add_again(key, pending);
        self.changed.send_modify(|n| *n += 1);
    }

    /// For an Event that could not be posted because of the Event or its namespace; `pause` by the number of earlier failures.
    pub fn put_off(&self, key: Key, mut pending: Pending, now: Boot, pause: impl Fn(u32) -> Duration) {
        let mut state = self.state();
        if state.troubles.len() >= NAMESPACES {
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

    /// For a namespace with a posted Event.
    pub fn is_well(&self, namespace: &str) {
        self.state().troubles.remove(namespace);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Waits until an Event may be posted; false once the queue is closed and empty.
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
            // The sender lives as long as the queue.
            let _ = tokio::time::timeout(rest, changed.changed()).await;
        }
    }

    /// An Event that may be posted now: untried Events first, so that one that cannot be posted does not delay others. Namespaces take
    /// turns.
    pub fn take(&self, now: Boot) -> Option<(Key, Pending)> {
        let mut state = self.state();
        let next = state.next(now)?;
        let (key, pending) = state.remove(next)?;
        state.serve(namespace(&key.object).to_owned());
        Some((key, pending))
    }

    pub fn close(&self) {
        self.state().closed = true;
        self.changed.send_modify(|n| *n += 1);
    }

    /// Waits until the queue is closed.
    pub async fn closed(&self) {
        let mut changed = self.changed.subscribe();
        let _ = changed.wait_for(|_| self.state().closed).await;
    }

    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Empties the queue; returns the number of terminations in it.
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

    /// A node with hundreds of pods of one StatefulSet: the others need the queue, too.
    fn is_crowded(&self, key: &Key, workload: Option<&Key>) -> bool {
        if key.reason != Reason::PodStuckOnLostNode || workload.is_none() || self.pending.contains_key(key) {
            return false;
        }
        let waiting = self.pending.values().filter(|pending| pending.workload.as_ref() == workload);
        waiting.count() >= PODS_OF_WORKLOAD
    }

    /// An Event of a pod whose workload has an Event, too.
    fn is_of_pod(&self, key: &Key) -> bool {
        self.pending.get(key).is_some_and(|pending| pending.workload.is_some())
    }

    fn serve(&mut self, namespace: String) {
        self.turn += 1;
        // Removed first, so that the cache drops the namespace that was served the longest time ago.
        self.served.remove(&namespace);
        self.served.insert(namespace, self.turn);
    }

    /// After the close, every Event is due.
    fn next(&self, now: Boot) -> Option<usize> {
        let is_due = |key: &Key, new: bool| {
            let pending = self.pending.get(key).filter(|pending| !new || pending.failed == 0);
            pending.is_some_and(|pending| self.closed || self.due(key, pending) <= now)
        };
        let of_lost = |key: &Key| key.reason == Reason::PodStuckOnLostNode && !self.is_of_pod(key) && is_due(key, true);
        // A lost zone: each workload before the pods of any.
        self.first(of_lost)
            .or_else(|| self.first(|key| is_due(key, true)))
            .or_else(|| self.first(|key| is_due(key, false)))
    }

    /// The oldest of the namespace that was served the longest time ago.
    fn first(&self, is_wanted: impl Fn(&Key) -> bool) -> Option<usize> {
        let served = |key: &Key| self.served.get(namespace(&key.object)).copied().unwrap_or(0);
        let wanted = self.order.iter().enumerate().filter(|(_, key)| is_wanted(key));
        wanted.min_by_key(|(at, key)| (served(key), *at)).map(|(at, _)| at)
    }

    fn due(&self, key: &Key, pending: &Pending) -> Boot {
        let trouble = self.troubles.get(namespace(&key.object));
        trouble.map_or(pending.not_before, |trouble| trouble.until.max(pending.not_before))
    }

    /// `newer`: the namespace of the Event that needs the room.
    fn remove_least(&mut self, newer: &str) -> Option<(Key, Pending)> {
        let mut waiting = HashMap::from([(newer, 1)]);
        for key in &self.order {
            *waiting.entry(namespace(&key.object)).or_default() += 1;
        }
        let namespaces = self.order.iter().map(|key| namespace(&key.object));
        let most = namespaces.max_by_key(|namespace| waiting[namespace])?;
        let is_of_most = |key: &Key| namespace(&key.object) == most;
        let is_failed = |key: &Key| self.pending.get(key).is_some_and(|pending| pending.failed > 0);
        let failed = self.order.iter().position(|key| is_of_most(key) && is_failed(key));
        let least = failed
            .or_else(|| self.order.iter().position(|key| is_of_most(key) && self.is_of_pod(key)))
            .or_else(|| self.order.iter().rposition(is_of_most))?;
        self.remove(least)
    }
}

impl Pending {
    /// A repeated termination is counted once.
    fn merge(&mut self, newer: Pending) {
        let known = newer.terminations.iter().filter(|id| self.terminations.contains(id)).count();
        self.count += newer.count.saturating_sub(known as u64);
        self.last = self.last.max(newer.last);
        let new: Vec<String> = newer
            .terminations
            .into_iter()
            .filter(|id| !self.terminations.contains(id))
            .collect();
        self.terminations.extend(new);
        let surplus = self.terminations.len().saturating_sub(NAMED);
        self.terminations.drain(..surplus);
    }
}
