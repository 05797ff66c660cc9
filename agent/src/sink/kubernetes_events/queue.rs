//! The queue of Events: one entry per Event, with the Event's count.

use epitaph_core::time::{Boot, Wall};

use super::notice::{Key, Notice, Reason};
use super::series::{Sent, namespace};
use super::stats::{EventStats, Outcome};
use crate::sink::queue::{self, Attempts, Entry};

/// Most Events of pods on lost nodes that wait for one workload, whose own Event has the sentence and the command.
const PODS_OF_WORKLOAD: usize = 16;

/// Most terminations that one Event identifies; further ones are only counted.
pub(super) const NAMED: usize = 32;

pub(super) type Queue = queue::Queue<Pending>;

/// Terminations that wait to be posted in one Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub attempts: Attempts,
    pub first: Wall,
    pub last: Wall,
    pub count: u64,
    /// Note of the first termination.
    pub note: String,
    /// See [`Notice::workload`].
    pub workload: Option<Key>,
    /// The last [`NAMED`].
    pub terminations: Vec<String>,
    /// Requests without an answer, which may have arrived.
    pub sent: Vec<Sent>,
}

impl Queue {
    pub fn new(most: usize) -> Queue {
        Queue::with(most, ())
    }

    pub fn push(&self, notice: Notice, now: Boot, stats: &EventStats) {
        let pending = Pending {
            attempts: Attempts::from(now, now),
            first: notice.at,
            last: notice.at,
            count: 1,
            note: notice.note,
            workload: notice.workload,
            terminations: vec![notice.termination],
            sent: Vec::new(),
        };
        let state = self.state();
        if state.closed {
            stats.count(Outcome::Shutdown, 1);
            return;
        }
        if is_crowded(&state, &notice.key, pending.workload.as_ref()) {
            stats.count(Outcome::Crowded, 1);
            return;
        }
        stats.count(Outcome::QueueFull, self.add(state, notice.key, pending));
    }
}

/// A node with hundreds of pods of one StatefulSet: the others need the queue, too.
fn is_crowded(state: &queue::State<Pending>, key: &Key, workload: Option<&Key>) -> bool {
    if key.reason != Reason::PodStuckOnLostNode || workload.is_none() || state.waiting.contains_key(key) {
        return false;
    }
    let waiting = state.waiting.values().filter(|pending| pending.workload.as_ref() == workload);
    waiting.count() >= PODS_OF_WORKLOAD
}

impl Pending {
    /// The workload has an Event, too.
    fn is_of_pod(&self) -> bool {
        self.workload.is_some()
    }
}

impl Entry for Pending {
    type Key = Key;
    type Memory = ();

    fn namespace(key: &Key) -> &str {
        namespace(&key.object)
    }

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

    fn count(&self) -> u64 {
        self.count
    }

    fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    fn attempts_mut(&mut self) -> &mut Attempts {
        &mut self.attempts
    }

    /// A lost zone: each workload before the pods of any.
    fn is_urgent(&self, key: &Key) -> bool {
        key.reason == Reason::PodStuckOnLostNode && !self.is_of_pod()
    }

    /// One that could not be posted, else one of a pod with a workload's Event, else the newest.
    fn least(of_namespace: &[(&Key, &Pending)]) -> Option<usize> {
        let first = |is: &dyn Fn(&Pending) -> bool| of_namespace.iter().position(|(_, pending)| is(pending));
        first(&|pending| pending.attempts.failed > 0)
            .or_else(|| first(&Pending::is_of_pod))
            .or(of_namespace.len().checked_sub(1))
    }
}
