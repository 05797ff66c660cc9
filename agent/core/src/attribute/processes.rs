//! The bounded store of process facts, for what cgroup v2 ids do not show. The key is a process, not its id: the kernel
//! reuses ids.

use std::collections::VecDeque;

use super::map::{Map, table};
use super::{Attribution, UnknownCgroup};
use crate::event::Task;
use crate::ids::Pid;
use crate::input::ProcessFact;
use crate::time::Boot;
use crate::tolerances::KEEP_REMOVED;

/// `/proc/PID/stat` counts in clock ticks.
const TICK: u64 = crate::time::TICK_NS;

#[derive(Default)]
pub(super) struct Processes {
    max: usize,
    facts: Map<Key, Fact>,
    order: VecDeque<(u64, Key)>,
    /// Latest known start, in ticks, of a process id's holder.
    latest: Map<u32, u64>,
    sequence: u64,
    drops: u64,
}

/// Process id and start in ticks; `GONE` for a process that `/proc` did not have.
type Key = (u32, u64);
const GONE: u64 = u64::MAX;

struct Fact {
    sequence: u64,
    known_since: Boot,
    /// Depth of its pid namespace.
    level: u32,
    place: Attribution,
}

impl Processes {
    pub fn new(max: usize) -> Processes {
        Processes {
            max: max.max(1),
            ..Processes::default()
        }
    }

    /// Bytes of a process at most: three times in a map or queue of up to twice the size.
    pub const BYTES: usize =
        3 * (size_of::<(Key, Fact)>() + 1) + 4 * size_of::<(u64, Key)>() + 3 * (size_of::<(u32, u64)>() + 1);

    pub fn bytes(&self) -> usize {
        let order = self.order.capacity() * size_of::<(u64, Key)>();
        table::<Key, Fact>(self.facts.capacity()) + table::<u32, u64>(self.latest.capacity()) + order
    }

    pub fn of(&self, task: &Task) -> Option<&Attribution> {
        self.facts.get(&key(task)).map(|fact| &fact.place)
    }

    /// The latest known holder of the id.
    pub fn latest(&self, tgid: Pid) -> Option<&Attribution> {
        let tick = self.latest.get(&tgid.0)?;
        self.facts.get(&(tgid.0, *tick)).map(|fact| &fact.place)
    }

    /// The place of the process's parent, if both are in pid namespaces of the same depth; an ancestor is never younger.
    pub fn parent(&self, task: &Task) -> Option<&Attribution> {
        let tick = *self.latest.get(&task.ppid.0)?;
        let fact = self.facts.get(&(task.ppid.0, tick))?;
        (fact.level == task.ns_level && tick <= key(task).1).then_some(&fact.place)
    }

    /// `/proc` cannot show the process any more: it was gone at the look-up, or its id belongs to another process.
    pub fn has_exited(&self, task: &Task) -> bool {
        self.facts
            .get(&(task.tgid.0, GONE))
            .is_some_and(|gone| task.start <= gone.known_since)
            || self.latest.get(&task.tgid.0).is_some_and(|&latest| latest > key(task).1)
    }

    pub fn insert(&mut self, now: Boot, fact: &ProcessFact, place: Attribution) {
        let tick = fact.start.0 / TICK;
        let latest = self.latest.entry(fact.tgid.0).or_insert(tick);
        *latest = (*latest).max(tick);
        self.put((fact.tgid.0, tick), now, fact.ns_level, place);
    }

    pub fn insert_gone(&mut self, now: Boot, tgid: Pid) {
        // The latest holder of the id is not known any more.
        self.latest.remove(&tgid.0);
        self.put((tgid.0, GONE), now, 0, Attribution::Unknown(UnknownCgroup::ProcessGone));
    }

    pub fn drops(&mut self) -> u64 {
        std::mem::take(&mut self.drops)
    }

    fn put(&mut self, key: Key, now: Boot, level: u32, place: Attribution) {
        self.sequence += 1;
        self.facts.insert(
            key,
            Fact {
                sequence: self.sequence,
                known_since: now,
                level,
                place,
            },
        );
        self.order.push_back((self.sequence, key));
        while self.facts.len() > self.max || self.order.len() > 2 * self.max {
            let Some((sequence, key)) = self.order.pop_front() else {
                break;
            };
            if self.facts.get(&key).is_none_or(|fact| fact.sequence != sequence) {
                continue;
            }
            // An old fact is of an exited process, or is looked up again: only a fresh one is missed.
            let fresh = self
                .facts
                .remove(&key)
                .is_some_and(|fact| now.since(fact.known_since) < KEEP_REMOVED);
            self.drops += u64::from(fresh);
            if self.latest.get(&key.0) == Some(&key.1) {
                self.latest.remove(&key.0);
            }
        }
    }
}

fn key(task: &Task) -> Key {
    (task.tgid.0, task.start.0 / TICK)
}

#[cfg(test)]
impl Processes {
    pub fn assert_bounded(&self) {
        assert!(self.facts.len() <= self.max && self.order.len() <= 2 * self.max && self.latest.len() <= self.facts.len());
    }
}
