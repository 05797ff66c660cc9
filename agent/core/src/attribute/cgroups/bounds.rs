//! What a store of cgroups holds at most, and what it drops first.

use std::sync::Arc;

use super::super::map::{slim, table};
use super::{Cgroup, Cgroups, NESTED};
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
        let nested = 2 * self.nested * size_of::<(u64, CgroupId)>();
        let parties = nested + self.parties.len() * (64 * size_of::<(u64, CgroupId)>() + ENTRY);
        self.bytes + table::<CgroupId, Cgroup>(self.entries.capacity()) + parties
    }

    /// Drops what is over a bound: of the party with the most nested cgroups the oldest; if no party has many, the removed cgroup that
    /// is gone the longest, and then the oldest live one, which is looked up again when needed.
    pub(super) fn bound(&mut self) {
        while let Some((least, path)) = self.most.last() {
            if *least <= NESTED + NESTED_WITHOUT {
                break;
            }
            let path = Arc::clone(path);
            self.drop_nested(&path);
        }
        while self.live > self.max_live || self.removed > self.max_removed || self.is_over_bytes() {
            let most = self
                .most
                .last()
                .filter(|(count, _)| *count > FEW)
                .map(|(_, path)| Arc::clone(path));
            let is_removed_over = self.live <= self.max_live;
            let dropped = match most {
                Some(path) => self.drop_nested(&path),
                None => is_removed_over && self.drop_removed() || self.drop_live(),
            };
            if !dropped {
                break;
            }
        }
        if self.removed_order.len() > 2 * self.removed + 64 {
            let entries = &self.entries;
            self.removed_order.retain(|(_, sequence, cgroup)| {
                entries
                    .get(cgroup)
                    .is_some_and(|entry| entry.sequence == *sequence && !entry.is_live())
            });
            self.removed_order.shrink_to(2 * self.removed + 64);
        }
        if self.live_order.len() > 2 * self.live + 64 {
            let entries = &self.entries;
            self.live_order.retain(|(sequence, cgroup)| {
                entries
                    .get(cgroup)
                    .is_some_and(|entry| entry.sequence == *sequence && entry.is_live())
            });
            self.live_order.shrink_to(2 * self.live + 64);
        }
    }

    fn is_over_bytes(&mut self) -> bool {
        if self.bytes() <= self.max_bytes {
            return false;
        }
        slim(&mut self.entries);
        self.bytes() > self.max_bytes
    }

    /// Drops the oldest nested cgroup of a party. False: there is none.
    fn drop_nested(&mut self, path: &Arc<str>) -> bool {
        while let Some(party) = self.parties.get_mut(path) {
            let Some((sequence, cgroup)) = party.order.pop_front() else {
                break;
            };
            if self.entries.get(&cgroup).is_some_and(|entry| entry.sequence == sequence) {
                self.forget(cgroup);
                self.drops += 1;
                return true;
            }
        }
        false
    }

    fn drop_removed(&mut self) -> bool {
        while let Some((_, sequence, cgroup)) = self.removed_order.pop_front() {
            if self.is_entry(cgroup, sequence, false) {
                self.forget(cgroup);
                self.drops += 1;
                return true;
            }
        }
        false
    }

    fn drop_live(&mut self) -> bool {
        while let Some((sequence, cgroup)) = self.live_order.pop_front() {
            if self.is_entry(cgroup, sequence, true) {
                self.forget(cgroup);
                self.drops += 1;
                return true;
            }
        }
        false
    }

    #[inline]
    pub fn expire(&mut self, now: Boot) {
        // For each kernel record.
        if now >= self.next_expiry {
            self.forget_old(now);
        }
    }

    fn forget_old(&mut self, now: Boot) {
        while let Some(&(removed_at, sequence, cgroup)) = self.removed_order.front() {
            if now.since(removed_at) < KEEP_REMOVED {
                break;
            }
            self.removed_order.pop_front();
            if self.is_entry(cgroup, sequence, false) {
                self.forget(cgroup);
            }
        }
        let oldest = self.removed_order.front();
        self.next_expiry = oldest.map_or(Boot(u64::MAX), |(removed_at, ..)| removed_at.plus(KEEP_REMOVED));
    }

    fn is_entry(&self, cgroup: CgroupId, sequence: u64, live: bool) -> bool {
        self.entries
            .get(&cgroup)
            .is_some_and(|entry| entry.sequence == sequence && entry.is_live() == live)
    }

    pub(super) fn forget(&mut self, cgroup: CgroupId) {
        match self.entries.get(&cgroup).map(Cgroup::is_live) {
            None => return,
            Some(false) => self.removed -= 1,
            Some(true) => {
                self.live -= 1;
                self.disown(cgroup);
            }
        }
        let Some(entry) = self.entries.remove(&cgroup) else { return };
        slim(&mut self.entries);
        self.bytes -= entry.bytes();
        if let Some(path) = entry.party {
            self.leave(path);
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

    /// A party has one nested cgroup less.
    fn leave(&mut self, path: Arc<str>) {
        let Some(party) = self.parties.get_mut(&path) else { return };
        self.most.remove(&(party.count, Arc::clone(&path)));
        party.count -= 1;
        self.nested -= 1;
        if party.count == 0 {
            self.parties.remove(&path);
            return slim(&mut self.parties);
        }
        if party.order.len() > 2 * party.count + 64 {
            let entries = &self.entries;
            let is_there =
                |(sequence, cgroup): &(u64, CgroupId)| entries.get(cgroup).is_some_and(|entry| entry.sequence == *sequence);
            party.order.retain(is_there);
            party.order.shrink_to(2 * party.count + 64);
        }
        self.most.insert((party.count, path));
    }
}

#[cfg(test)]
impl Cgroups {
    /// Counters and queues agree with the entries, and nothing grows beyond its bound.
    pub fn assert_bounded(&self) {
        let live = self.entries.values().filter(|entry| entry.is_live()).count();
        assert_eq!((self.live, self.removed), (live, self.entries.len() - live));
        assert!(live <= self.max_live && self.removed <= self.max_removed);
        assert!(self.live_order.len() <= 2 * self.max_live + 64 && self.removed_order.len() <= 2 * self.max_removed + 64);
        assert_eq!(self.bytes, self.entries.values().map(Cgroup::bytes).sum::<usize>());
        let nested = self.entries.values().filter(|entry| entry.party.is_some()).count();
        assert_eq!(self.parties.values().map(|party| party.count).sum::<usize>(), nested);
        assert_eq!(self.nested, nested);
        assert_eq!(self.most.len(), self.parties.len());
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
