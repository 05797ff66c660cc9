//! The bounded store of cgroups: id → path and place, for live cgroups and, for a while, removed ones.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::map::Map;
use super::path::{self, Nodes, Place};
use super::{Attribution, UnknownCgroup};
use crate::ids::CgroupId;
use crate::input::CgroupFact;
use crate::time::Boot;

/// How long a removed cgroup answers: longer than any reorder window and any lag of the reader.
pub(super) const KEEP_REMOVED: Duration = Duration::from_secs(120);

pub(super) struct Cgroups {
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
    sequence: u64,
    drops: u64,
}

/// Hierarchy and path of a subject's own cgroup.
type OwnerKey = (u32, Arc<str>);

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
    /// The look-up was answered, without a path.
    fn is_lost(&self) -> bool {
        self.path.is_empty()
    }

    /// Whether the container in a record can be the subject.
    pub fn may_count_for_container(&self) -> bool {
        self.is_lost() && self.within != Within::Doubtful
    }

    pub fn is_live(&self) -> bool {
        self.removed_at.is_none()
    }
}

impl Cgroups {
    pub fn new(max_live: usize, max_removed: usize) -> Cgroups {
        Cgroups {
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
                ..Cgroups::new(self.max_live, self.max_removed)
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
        if let Some(outermost) = path::enclosing_container(&path, self.nodes) {
            *self.enclosed.entry(Arc::from(outermost)).or_default() += 1;
        }
        self.sequence += 1;
        self.entries.insert(
            cgroup,
            Cgroup {
                sequence: self.sequence,
                removed_at: None,
                path,
                shown,
                place,
                within: Within::NotSeen,
            },
        );
        self.live += 1;
        self.live_order.push_back((self.sequence, cgroup));
        self.bound_live();
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
        let none: Arc<str> = Arc::from("");
        self.sequence += 1;
        let (sequence, place) = (self.sequence, Attribution::Unknown(why));
        self.entries.insert(
            cgroup,
            Cgroup {
                sequence,
                removed_at: Some(now),
                path: Arc::clone(&none),
                shown: none,
                place,
                within: Within::NotSeen,
            },
        );
        self.keep_removed(now, sequence, cgroup);
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
        while self.removed > self.max_removed || self.removed_order.len() > 2 * self.max_removed + 64 {
            let Some((_, sequence, cgroup)) = self.removed_order.pop_front() else {
                break;
            };
            if self.is_entry(cgroup, sequence, false) {
                self.forget(cgroup);
                self.drops += 1;
            }
        }
    }

    fn bound_live(&mut self) {
        while self.live > self.max_live {
            let Some((sequence, cgroup)) = self.live_order.pop_front() else {
                break;
            };
            if self.is_entry(cgroup, sequence, true) {
                self.forget(cgroup);
                self.drops += 1;
            }
        }
        if self.live_order.len() > 2 * self.live + 64 {
            let entries = &self.entries;
            self.live_order.retain(|(sequence, cgroup)| {
                entries
                    .get(cgroup)
                    .is_some_and(|entry| entry.sequence == *sequence && entry.is_live())
            });
        }
    }

    fn expire(&mut self, now: Boot) {
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
        let enclosing = self.entries.remove(&cgroup).and_then(|entry| {
            let outermost = path::enclosing_container(&entry.path, self.nodes)?;
            Some(Arc::<str>::from(outermost))
        });
        if let Some(outermost) = enclosing
            && let Some(count) = self.enclosed.get_mut(&outermost)
        {
            *count -= 1;
            if *count == 0 {
                self.enclosed.remove(&outermost);
            }
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
        let orphans = self.orphans.values().map(Vec::len).sum::<usize>();
        assert!(
            orphans <= live && self.owners.len() <= live,
            "{orphans} orphans, {} owners of {live}",
            self.owners.len()
        );
        let enclosed = self
            .entries
            .values()
            .filter(|entry| path::enclosing_container(&entry.path, self.nodes).is_some());
        assert_eq!(self.enclosed.values().sum::<usize>(), enclosed.count());
        assert!(self.owners.values().all(|owner| self.entries[owner].is_live()));
    }
}
