//! What a store of cgroups holds at most, and what it drops first.

use std::sync::Arc;

use super::super::map::{Map, slim, table};
use super::{Cgroup, Cgroups, NESTED, Parties, Queue};
use crate::ids::CgroupId;
use crate::time::Boot;
use crate::tolerances::KEEP_REMOVED;

/// Cgroups nested in one container or unit without a path.
const NESTED_WITHOUT: usize = 3 * NESTED;
/// A party with so few nested cgroups loses none for others.
const FEW: usize = 16;
/// Bytes of an entry beyond its slot and its texts: its places in the queues, and a subject's owner entry.
const ENTRY: usize = 192;

impl Cgroup {
    /// Bytes beyond the slot.
    pub(super) fn bytes(&self) -> usize {
        let shown = if Arc::ptr_eq(&self.path, &self.shown) {
            0
        } else {
            self.shown.len()
        };
        ENTRY + self.path.len() + shown
    }
}

impl Cgroups {
    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        // A queue has at most twice the room that it needs, and room for 64.
        let nested = 2 * self.parties.nested * size_of::<(u64, CgroupId)>();
        let parties = nested + self.parties.of.len() * (64 * size_of::<(u64, CgroupId)>() + ENTRY);
        self.bytes + table::<CgroupId, Cgroup>(self.entries.capacity()) + parties
    }

    /// Drops what is over a bound: of the party with the most nested cgroups the oldest; if no party has many, the removed cgroup that
    /// is gone the longest, and then the oldest live one, which is looked up again when needed.
    pub(super) fn bound(&mut self) {
        while let Some(path) = self.parties.with_most(NESTED + NESTED_WITHOUT) {
            let oldest = self.oldest_nested(&path);
            self.drop_one(oldest);
        }
        while self.live.count > self.max_live || self.removed.count > self.max_removed || self.is_over_bytes() {
            let is_removed_over = self.live.count <= self.max_live;
            let oldest = match self.parties.with_most(FEW) {
                Some(path) => self.oldest_nested(&path),
                None => {
                    let entries = &self.entries;
                    let removed = is_removed_over.then(|| self.removed.pop(|of| is_entry(entries, of, false)));
                    removed.flatten().or_else(|| self.live.pop(|of| is_entry(entries, of, true)))
                }
            };
            if !self.drop_one(oldest) {
                break;
            }
        }
        let entries = &self.entries;
        self.removed.slim(|of| is_entry(entries, of, false));
        self.live.slim(|of| is_entry(entries, of, true));
    }

    fn is_over_bytes(&mut self) -> bool {
        if self.bytes() <= self.max_bytes {
            return false;
        }
        slim(&mut self.entries);
        self.bytes() > self.max_bytes
    }

    fn oldest_nested(&mut self, path: &str) -> Option<CgroupId> {
        let entries = &self.entries;
        self.parties.of.get_mut(path)?.pop(|of| entry(entries, of).is_some())
    }

    /// False: there is none.
    fn drop_one(&mut self, oldest: Option<CgroupId>) -> bool {
        if let Some(cgroup) = oldest {
            self.forget(cgroup);
            self.drops += 1;
        }
        oldest.is_some()
    }

    #[inline]
    pub fn expire(&mut self, now: Boot) {
        // For each kernel record.
        if now >= self.next_expiry {
            self.forget_old(now);
        }
    }

    fn forget_old(&mut self, now: Boot) {
        self.next_expiry = Boot(u64::MAX);
        while let Some(&oldest) = self.removed.order.front() {
            let removed_at = entry(&self.entries, &oldest).and_then(|entry| entry.removed_at);
            match removed_at.map(|at| at.plus(KEEP_REMOVED)) {
                Some(expiry) if now < expiry => {
                    self.next_expiry = expiry;
                    break;
                }
                Some(_) => self.forget(oldest.1),
                None => {}
            }
            self.removed.order.pop_front();
        }
    }

    pub(super) fn forget(&mut self, cgroup: CgroupId) {
        match self.entries.get(&cgroup).map(Cgroup::is_live) {
            None => return,
            Some(false) => self.removed.count -= 1,
            Some(true) => {
                self.live.count -= 1;
                self.disown(cgroup);
            }
        }
        let Some(entry) = self.entries.remove(&cgroup) else { return };
        slim(&mut self.entries);
        self.bytes -= entry.bytes();
        if let Some(path) = entry.party {
            self.parties.leave(path, &self.entries);
        }
        if let Some(outermost) = entry.enclosing
            && let Some(count) = self.enclosed.get_mut(&outermost)
        {
            *count -= 1;
            if *count == 0 {
                self.enclosed.remove(&outermost);
            }
        }
    }
}

impl Parties {
    /// The party with the most nested cgroups, if these are more.
    fn with_most(&self, than: usize) -> Option<Arc<str>> {
        let (count, path) = self.most.last()?;
        (*count > than).then(|| Arc::clone(path))
    }

    pub(super) fn join(&mut self, path: &Arc<str>, sequence: u64, cgroup: CgroupId) {
        let party = self.of.entry(Arc::clone(path)).or_default();
        self.most.remove(&(party.count, Arc::clone(path)));
        party.push(sequence, cgroup);
        self.nested += 1;
        self.most.insert((party.count, Arc::clone(path)));
    }

    /// A party has one nested cgroup less.
    fn leave(&mut self, path: Arc<str>, entries: &Map<CgroupId, Cgroup>) {
        let Some(party) = self.of.get_mut(&path) else { return };
        self.most.remove(&(party.count, Arc::clone(&path)));
        party.count -= 1;
        self.nested -= 1;
        if party.count == 0 {
            self.of.remove(&path);
            return slim(&mut self.of);
        }
        party.slim(|of| entry(entries, of).is_some());
        self.most.insert((party.count, path));
    }
}

impl Queue {
    pub(super) fn push(&mut self, sequence: u64, cgroup: CgroupId) {
        self.count += 1;
        self.order.push_back((sequence, cgroup));
    }

    /// The oldest one.
    fn pop(&mut self, is_in: impl Fn(&(u64, CgroupId)) -> bool) -> Option<CgroupId> {
        let oldest = std::iter::from_fn(|| self.order.pop_front()).find(is_in)?;
        Some(oldest.1)
    }

    fn slim(&mut self, is_in: impl Fn(&(u64, CgroupId)) -> bool) {
        let most = 2 * self.count + 64;
        if self.order.len() > most {
            self.order.retain(is_in);
            self.order.shrink_to(most);
        }
    }
}

/// The entry that was put in a queue.
fn entry<'a>(entries: &'a Map<CgroupId, Cgroup>, (sequence, cgroup): &(u64, CgroupId)) -> Option<&'a Cgroup> {
    entries.get(cgroup).filter(|entry| entry.sequence == *sequence)
}

fn is_entry(entries: &Map<CgroupId, Cgroup>, of: &(u64, CgroupId), is_live: bool) -> bool {
    entry(entries, of).is_some_and(|entry| entry.is_live() == is_live)
}

#[cfg(test)]
impl Cgroups {
    /// Counters and queues agree with the entries, and nothing grows beyond its bound.
    pub fn assert_bounded(&self) {
        let live = self.entries.values().filter(|entry| entry.is_live()).count();
        assert_eq!((self.live.count, self.removed.count), (live, self.entries.len() - live));
        assert!(live <= self.max_live && self.removed.count <= self.max_removed);
        assert!(self.live.order.len() <= 2 * self.max_live + 64 && self.removed.order.len() <= 2 * self.max_removed + 64);
        assert_eq!(self.bytes, self.entries.values().map(Cgroup::bytes).sum::<usize>());
        let nested = self.entries.values().filter(|entry| entry.party.is_some()).count();
        assert_eq!(self.parties.of.values().map(|party| party.count).sum::<usize>(), nested);
        assert_eq!(self.parties.nested, nested);
        assert_eq!(self.parties.most.len(), self.parties.of.len());
        let orphans = self.orphans.values().map(Vec::len).sum::<usize>();
        assert!(
            orphans <= live && self.owners.len() <= live,
            "{orphans} orphans, {} owners of {live}",
            self.owners.len()
        );
        let enclosed = self.entries.values().filter(|entry| entry.enclosing.is_some());
        assert_eq!(self.enclosed.values().sum::<usize>(), enclosed.count());
        assert!(self.owners.values().all(|owner| self.entries[owner].is_live()));
    }
}
