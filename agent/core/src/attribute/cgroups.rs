//! The bounded store of cgroups: id → path and place, for live cgroups and, for a while, removed ones.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::map::{Map, slim, table};
use super::path::{self, Nodes, Place};
use super::{Attribution, UnknownCgroup};
use crate::ids::CgroupId;
use crate::input::CgroupFact;
use crate::time::Boot;

/// How long a removed cgroup answers: longer than any reorder window and any lag of the reader.
pub(super) const KEEP_REMOVED: Duration = Duration::from_secs(120);

/// Cgroups nested in one container or unit with a path of their own, and without.
const NESTED: usize = 1_024;
const NESTED_WITHOUT: usize = 3 * NESTED;
/// A party with so few nested cgroups loses none for others.
const FEW: usize = 16;
/// Bytes of an entry beyond its slot and its texts: its places in the queues, and a subject's owner entry.
const ENTRY: usize = 192;

pub(super) struct Cgroups {
    max_bytes: usize,
    nodes: Nodes,
    max_live: usize,
    max_removed: usize,
    entries: Map<CgroupId, Cgroup>,
    live: usize,
    live_order: VecDeque<(u64, CgroupId)>,
    removed: usize,
    removed_order: VecDeque<(Boot, u64, CgroupId)>,
    /// Own cgroups of live subjects.
    owners: HashMap<OwnerKey, CgroupId>,
    /// Live cgroups below a subject whose own cgroup has not been seen yet.
    orphans: HashMap<OwnerKey, Vec<CgroupId>>,
    /// How many cgroups of other containers or of pods each of these containers encloses, by the container's path.
    enclosed: HashMap<Arc<str>, usize>,
    /// The nested cgroups of each party, by the party's path: see [`path::party`].
    parties: HashMap<Arc<str>, Party>,
    /// The numbers of them, the most last.
    most: BTreeSet<(usize, Arc<str>)>,
    /// Their sum.
    nested: usize,
    /// Of all entries together, without the slots.
    bytes: usize,
    sequence: u64,
    drops: u64,
}

/// Hierarchy and path of a subject's own cgroup.
type OwnerKey = (u32, Arc<str>);

#[derive(Default)]
struct Party {
    count: usize,
    /// The oldest first.
    order: VecDeque<(u64, CgroupId)>,
}

pub(super) struct Cgroup {
    /// Separates this entry from an earlier one of the same id, in the queues.
    sequence: u64,
    removed_at: Option<Boot>,
    /// As in the file system: the key of the parent's paths.
    path: Arc<str>,
    /// Safe to print; differs from `path` only for odd names. Empty if no path is known.
    pub shown: Arc<str>,
    pub place: Attribution,
    within: Within,
    /// The container around a cgroup of another: its key in `enclosed`.
    enclosing: Option<Arc<str>>,
    /// The party that the cgroup is nested in.
    party: Option<Arc<str>>,
}

/// The container that a cgroup without a path counts for, as the records of its tasks show it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    NotSeen,
    Container(CgroupId),
    /// Not of one container: a task in it is in a pid namespace deeper than a container's own, or the records disagree.
    Doubtful,
}

impl Cgroup {
    /// Bytes beyond the slot.
    fn bytes(&self) -> usize {
        let shown = if Arc::ptr_eq(&self.path, &self.shown) {
            0
        } else {
            self.shown.len()
        };
        ENTRY + self.path.len() + shown
    }

    /// The look-up was answered, without a path; or the path was not kept.
    fn is_lost(&self) -> bool {
        self.path.is_empty()
    }

    /// Whether the container in a record can be the subject.
    pub fn may_count_for_container(&self) -> bool {
        self.is_lost() && self.within != Within::Doubtful
    }

    pub fn path(&self) -> &Arc<str> {
        &self.path
    }

    pub fn is_live(&self) -> bool {
        self.removed_at.is_none()
    }
}

impl Cgroups {
    pub fn new(max_live: usize, max_removed: usize, max_bytes: usize) -> Cgroups {
        Cgroups {
            max_bytes,
            nodes: Nodes::default(),
            max_live: max_live.max(1),
            max_removed: max_removed.max(1),
            entries: Map::default(),
            live: 0,
            live_order: VecDeque::new(),
            removed: 0,
            removed_order: VecDeque::new(),
            owners: HashMap::new(),
            orphans: HashMap::new(),
            enclosed: HashMap::new(),
            parties: HashMap::new(),
            most: BTreeSet::new(),
            nested: 0,
            bytes: 0,
            sequence: 0,
            drops: 0,
        }
    }

    /// Where nodes are decides what a path means: with another answer, nothing that is known stands.
    pub fn nodes_are(&mut self, nodes: Nodes) {
        if self.nodes != nodes {
            let drops = self.drops;
            *self = Cgroups {
                nodes,
                drops,
                ..Cgroups::new(self.max_live, self.max_removed, self.max_bytes)
            };
        }
    }

    pub fn get(&self, cgroup: CgroupId) -> Option<&Cgroup> {
        self.entries.get(&cgroup)
    }

    /// The cgroup of the outermost container around a cgroup, possibly the cgroup itself; None if not known or not live.
    pub fn outermost_container(&self, cgroup: CgroupId) -> Option<CgroupId> {
        let outermost = path::outermost_container(&self.get(cgroup)?.path)?;
        self.owners.get(&(cgroup.hierarchy, Arc::from(outermost))).copied()
    }

    pub fn insert(&mut self, now: Boot, cgroup: CgroupId, path: &str) {
        self.expire(now);
        if self
            .entries
            .get(&cgroup)
            .is_some_and(|known| known.is_live() && &*known.path == path)
        {
            return;
        }
        self.forget(cgroup);
        let party = path::party(path).map(|party| self.party(party));
        let nested = party
            .as_ref()
            .and_then(|party| self.parties.get(party))
            .map_or(0, |party| party.count);
        if nested >= NESTED {
            return self.insert_one_of_too_many(now, cgroup, path, party);
        }
        let path: Arc<str> = Arc::from(path);
        let shown = match path::shown(&path) {
            Cow::Borrowed(_) => Arc::clone(&path),
            Cow::Owned(shown) => Arc::from(shown),
        };
        let place = match path::parse(&path, self.nodes) {
            Ok(Place::Host) => Attribution::Host,
            Ok(Place::Subject(subject, own)) => {
                let own = self.own(cgroup, &path, (cgroup.hierarchy, Arc::from(own)));
                // Several cgroups of one subject share its texts.
                match self.entries.get(&own).map(|entry| &entry.place) {
                    Some(Attribution::Subject(known, _)) if *known == subject => Attribution::Subject(known.clone(), own),
                    _ => Attribution::Subject(subject, own),
                }
            }
            Err(_) => Attribution::Unknown(UnknownCgroup::PathUnreadable),
        };
        let enclosing = self.enclose(&path);
        self.put(
            cgroup,
            Cgroup {
                sequence: 0,
                removed_at: None,
                path,
                shown,
                place,
                within: Within::NotSeen,
                enclosing,
                party,
            },
        );
        self.live += 1;
        self.live_order.push_back((self.sequence, cgroup));
        self.bound();
    }

    /// A party has so many nested cgroups that this one's path is not kept: it is unknown, unless records show the container. The
    /// look-up is not repeated for a while.
    fn insert_one_of_too_many(&mut self, now: Boot, cgroup: CgroupId, path: &str, party: Option<Arc<str>>) {
        let enclosing = self.enclose(path);
        let place = Attribution::Unknown(UnknownCgroup::TooMany);
        self.put(
            cgroup,
            Cgroup {
                enclosing,
                party,
                ..Cgroup::lost(now, place)
            },
        );
        self.drops += 1;
        self.keep_removed(now, self.sequence, cgroup);
    }

    /// Counts a cgroup of another container or pod inside a container.
    fn enclose(&mut self, path: &str) -> Option<Arc<str>> {
        let outermost = path::enclosing_container(path, self.nodes)?;
        let key = match self.enclosed.get_key_value(outermost) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(outermost),
        };
        *self.enclosed.entry(Arc::clone(&key)).or_default() += 1;
        Some(key)
    }

    fn party(&self, path: &str) -> Arc<str> {
        match self.parties.get_key_value(path) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(path),
        }
    }

    fn put(&mut self, cgroup: CgroupId, mut entry: Cgroup) {
        self.sequence += 1;
        entry.sequence = self.sequence;
        self.bytes += entry.bytes();
        if let Some(path) = &entry.party {
            let party = self.parties.entry(Arc::clone(path)).or_default();
            self.most.remove(&(party.count, Arc::clone(path)));
            party.count += 1;
            self.nested += 1;
            party.order.push_back((self.sequence, cgroup));
            self.most.insert((party.count, Arc::clone(path)));
        }
        self.entries.insert(cgroup, entry);
    }

    /// Remembers that the look-up found nothing, so that it is not repeated for a while.
    pub fn insert_unknown(&mut self, now: Boot, cgroup: CgroupId, reason: &str) {
        self.expire(now);
        // The path from an event or a scan is better than a file system that no longer has the cgroup.
        if self.entries.contains_key(&cgroup) {
            return;
        }
        let why = if reason == CgroupFact::GONE {
            UnknownCgroup::NeverSeen
        } else {
            UnknownCgroup::PathUnreadable
        };
        self.put(cgroup, Cgroup::lost(now, Attribution::Unknown(why)));
        self.keep_removed(now, self.sequence, cgroup);
    }

    pub fn remove(&mut self, now: Boot, cgroup: CgroupId) {
        self.expire(now);
        let Some(entry) = self.entries.get_mut(&cgroup).filter(|entry| entry.is_live()) else {
            return;
        };
        entry.removed_at = Some(now);
        let sequence = entry.sequence;
        self.live -= 1;
        self.disown(cgroup);
        self.keep_removed(now, sequence, cgroup);
    }

    /// A task in a cgroup without a path counts for this container. True if the cgroup's container is known only now.
    pub fn count_for(&mut self, cgroup: CgroupId, container: CgroupId) -> bool {
        let Some(entry) = self.entries.get_mut(&cgroup).filter(|entry| entry.is_lost()) else {
            return false;
        };
        match entry.within {
            Within::NotSeen => {
                entry.within = Within::Container(container);
                true
            }
            Within::Container(known) if known == container => false,
            Within::Container(_) | Within::Doubtful => {
                entry.within = Within::Doubtful;
                false
            }
        }
    }

    /// A cgroup without a path may be of a container inside the known container.
    pub fn doubt(&mut self, cgroup: CgroupId) {
        if let Some(entry) = self.entries.get_mut(&cgroup) {
            entry.within = Within::Doubtful;
        }
    }

    /// The container that the tasks of a cgroup without a path count for.
    pub fn counts_for(&self, cgroup: CgroupId) -> Option<CgroupId> {
        match self.get(cgroup)?.within {
            Within::Container(container) => Some(container),
            Within::NotSeen | Within::Doubtful => None,
        }
    }

    /// Whether the container encloses other containers or pods, which have their own terminations.
    pub fn encloses_others(&self, container: CgroupId) -> bool {
        self.get(container)
            .is_some_and(|entry| self.enclosed.contains_key(&entry.path))
    }

    /// Entries given up because the store was full, since the last call.
    pub fn drops(&mut self) -> u64 {
        std::mem::take(&mut self.drops)
    }

    /// The subject's own cgroup if it is known; until then the first of its cgroups stands in.
    fn own(&mut self, cgroup: CgroupId, path: &str, owner: OwnerKey) -> CgroupId {
        if *owner.1 != *path {
            if let Some(own) = self.owners.get(&owner) {
                return *own;
            }
            let orphans = self.orphans.entry(owner).or_default();
            orphans.push(cgroup);
            let first = orphans[0];
            // The stand-in may have got its place before: siblings have one key.
            return match self.entries.get(&first) {
                Some(Cgroup {
                    place: Attribution::Subject(_, own),
                    ..
                }) => *own,
                _ => first,
            };
        }
        for orphan in self.orphans.remove(&owner).unwrap_or_default() {
            if let Some(Cgroup {
                place: Attribution::Subject(_, own),
                ..
            }) = self.entries.get_mut(&orphan)
            {
                *own = cgroup;
            }
        }
        self.owners.insert(owner, cgroup);
        cgroup
    }

    /// A removed cgroup no longer stands for a path: the next cgroup at that path is another life.
    fn disown(&mut self, cgroup: CgroupId) {
        let Some(entry) = self.entries.get(&cgroup) else { return };
        let Ok(Place::Subject(_, own)) = path::parse(&entry.path, self.nodes) else {
            return;
        };
        let owner = (cgroup.hierarchy, Arc::from(own));
        if self.owners.get(&owner) == Some(&cgroup) {
            self.owners.remove(&owner);
        }
        if let Some(orphans) = self.orphans.get_mut(&owner) {
            orphans.retain(|orphan| *orphan != cgroup);
            if orphans.is_empty() {
                self.orphans.remove(&owner);
            }
        }
    }

    fn keep_removed(&mut self, now: Boot, sequence: u64, cgroup: CgroupId) {
        self.removed += 1;
        self.removed_order.push_back((now, sequence, cgroup));
        self.bound();
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        // A queue has at most twice the room that it needs, and room for 64.
        let nested = 2 * self.nested * size_of::<(u64, CgroupId)>();
        let parties = nested + self.parties.len() * (64 * size_of::<(u64, CgroupId)>() + ENTRY);
        self.bytes + table::<CgroupId, Cgroup>(self.entries.capacity()) + parties
    }

    /// Drops what is over a bound: of the party with the most nested cgroups the oldest; if no party has many, the removed cgroup that
    /// is gone the longest, and then the oldest live one, which is looked up again when needed.
    fn bound(&mut self) {
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

    pub fn expire(&mut self, now: Boot) {
        while let Some(&(removed_at, sequence, cgroup)) = self.removed_order.front() {
            if now.since(removed_at) < KEEP_REMOVED {
                break;
            }
            self.removed_order.pop_front();
            if self.is_entry(cgroup, sequence, false) {
                self.forget(cgroup);
            }
        }
    }

    fn is_entry(&self, cgroup: CgroupId, sequence: u64, live: bool) -> bool {
        self.entries
            .get(&cgroup)
            .is_some_and(|entry| entry.sequence == sequence && entry.is_live() == live)
    }

    fn forget(&mut self, cgroup: CgroupId) {
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

impl Cgroup {
    /// Without a path.
    fn lost(now: Boot, place: Attribution) -> Cgroup {
        let none: Arc<str> = Arc::default();
        Cgroup {
            sequence: 0,
            removed_at: Some(now),
            path: Arc::clone(&none),
            shown: none,
            place,
            within: Within::NotSeen,
            enclosing: None,
            party: None,
        }
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
