//! The bounded store of cgroups: id → path and place, for live cgroups and, for a while, removed ones.

mod bounds;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::map::Map;
use super::path::{self, Nodes, Place};
use super::{Attribution, UnknownCgroup};
use crate::ids::CgroupId;
use crate::input::CgroupFact;
use crate::time::Boot;
use crate::tolerances::KEEP_REMOVED;

/// Cgroups nested in one container or unit with a path of their own.
const NESTED: usize = 1_024;
/// In place of a party's path: of cgroups without a path, for which nothing shows where they are nested.
const NOWHERE: &str = "";

#[derive(Default)]
pub(super) struct Cgroups {
    max_bytes: usize,
    nodes: Nodes,
    max_live: usize,
    max_removed: usize,
    entries: Map<CgroupId, Cgroup>,
    live: Queue,
    removed: Queue,
    /// Before this none of them is forgotten for its age.
    next_expiry: Boot,
    /// Own cgroups of live subjects.
    owners: HashMap<OwnerKey, CgroupId>,
    /// Live cgroups below a subject whose own cgroup has not been seen yet.
    orphans: HashMap<OwnerKey, Vec<CgroupId>>,
    /// How many cgroups of other containers or of pods each of these containers encloses, by the container's path.
    enclosed: HashMap<Arc<str>, usize>,
    parties: Parties,
    /// Of all entries together, without the slots.
    bytes: usize,
    sequence: u64,
    drops: u64,
}

/// Hierarchy and path of a subject's own cgroup.
type OwnerKey = (u32, Arc<str>);

/// The nested cgroups of each party, by the party's path: see [`path::party`].
#[derive(Default)]
struct Parties {
    of: HashMap<Arc<str>, Queue>,
    /// The numbers of them, the most last.
    most: BTreeSet<(usize, Arc<str>)>,
    /// Their sum.
    nested: usize,
}

/// Some of the entries.
#[derive(Default)]
struct Queue {
    count: usize,
    /// The oldest first; also entries that are gone, until they are too many.
    order: VecDeque<(u64, CgroupId)>,
}

pub(super) struct Cgroup {
    /// Separates this entry from an earlier one of the same id, in the queues.
    sequence: u64,
    removed_at: Option<Boot>,
    /// By the kernel's record of its creation.
    created: Option<Boot>,
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

    pub fn created(&self) -> Option<Boot> {
        self.created
    }

    pub fn is_live(&self) -> bool {
        self.removed_at.is_none()
    }
}

impl Cgroups {
    pub fn new(max_live: usize, max_removed: usize, max_bytes: usize) -> Cgroups {
        Cgroups {
            max_bytes,
            max_live: max_live.max(1),
            max_removed: max_removed.max(1),
            next_expiry: Boot(u64::MAX),
            ..Cgroups::default()
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

    /// The own cgroup of the party that a cgroup is nested in; None if it is in none, or if the party's is not known or not live.
    pub fn party_of(&self, cgroup: CgroupId) -> Option<CgroupId> {
        let party = self.get(cgroup)?.party.as_ref()?;
        self.owners.get(&(cgroup.hierarchy, Arc::clone(party))).copied()
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
        let party = path::party(path, self.nodes).map(|party| self.party(party));
        let nested = party
            .as_ref()
            .and_then(|party| self.parties.of.get(party))
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
                created: None,
                path,
                shown,
                place,
                within: Within::NotSeen,
                enclosing,
                party,
            },
        );
        self.live.push(self.sequence, cgroup);
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
        match self.parties.of.get_key_value(path) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(path),
        }
    }

    fn put(&mut self, cgroup: CgroupId, mut entry: Cgroup) {
        self.sequence += 1;
        entry.sequence = self.sequence;
        self.bytes += entry.bytes();
        if let Some(path) = &entry.party {
            self.parties.join(path, self.sequence, cgroup);
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
        // A container that makes cgroups without pause has thousands of them: they push each other out, and no container's own cgroup.
        let party = Some(self.party(NOWHERE));
        let lost = Cgroup::lost(now, Attribution::Unknown(why));
        self.put(cgroup, Cgroup { party, ..lost });
        self.keep_removed(now, self.sequence, cgroup);
    }

    /// The earliest counts: what was lost after it may concern the cgroup.
    pub fn created(&mut self, cgroup: CgroupId, at: Boot) {
        if let Some(entry) = self.entries.get_mut(&cgroup) {
            entry.created = Some(entry.created.map_or(at, |known| known.min(at)));
        }
    }

    pub fn remove(&mut self, now: Boot, cgroup: CgroupId) {
        self.expire(now);
        let Some(entry) = self.entries.get_mut(&cgroup).filter(|entry| entry.is_live()) else {
            return;
        };
        entry.removed_at = Some(now);
        let sequence = entry.sequence;
        self.live.count -= 1;
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
        self.removed.push(sequence, cgroup);
        self.next_expiry = self.next_expiry.min(now.plus(KEEP_REMOVED));
        self.bound();
    }
}

impl Cgroup {
    /// Without a path.
    fn lost(now: Boot, place: Attribution) -> Cgroup {
        let none: Arc<str> = Arc::default();
        Cgroup {
            sequence: 0,
            removed_at: Some(now),
            created: None,
            path: Arc::clone(&none),
            shown: none,
            place,
            within: Within::NotSeen,
            enclosing: None,
            party: None,
        }
    }
}
