//! What the files of the container runtimes say about the containers that the kernel shows.
//!
//! Not evidence: a container without a description is reported with its id. The core asks once for each life of a container
//! ([`Containers::seen`]), and never waits for an answer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::attribute::{Subject, slim};
use crate::container::ContainerFact;
use crate::ids::ContainerId;
use crate::time::Boot;
use crate::tolerances::{KEEP_FINISHED, WANTED_FOR};

use super::subjects::SubjectEvent;

/// Bytes of all for each container that waits to be asked for: at most half of them. A container beyond is asked for when it is seen again.
const WANTED: usize = 512;
/// Of a container in the map and in the lists, each of which keeps up to four times the room that it needs; and the text of the id.
const ENTRY: usize = 4 * (size_of::<(ContainerId, Known)>() + 1) + 4 * 2 * size_of::<(Boot, ContainerId)>() + 96;

#[derive(Debug, Default)]
struct Known {
    fact: Option<Arc<ContainerFact>>,
    /// Terminated, and not seen since.
    ended: Option<Boot>,
    /// Its place in `asked`.
    number: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Containers {
    limit: usize,
    known: HashMap<ContainerId, Known>,
    /// In the order of the questions: the oldest is forgotten first. A number that is not the container's own is out of date.
    asked: VecDeque<(u64, ContainerId)>,
    ended: VecDeque<(Boot, ContainerId)>,
    wanted: VecDeque<(Boot, ContainerId)>,
    /// Before this nothing in the two is due.
    next_expiry: Boot,
    next: u64,
    /// Of the facts, beyond [`ENTRY`].
    texts: usize,
}

impl Containers {
    pub fn new(limit: usize) -> Containers {
        Containers {
            limit,
            next_expiry: Boot(u64::MAX),
            ..Containers::default()
        }
    }

    /// Adds what is known of a container to the facts that are reported, and asks for what is not known yet.
    pub fn describe(&mut self, now: Boot, event: &mut SubjectEvent) {
        match event {
            SubjectEvent::Seen {
                subject: Subject::Container { id, .. },
                ..
            } => self.seen(now, id),
            SubjectEvent::ChildOomKilled { subject, container, .. } => *container = self.description(subject),
            SubjectEvent::StopIgnored(early) => early.container = self.description(&early.subject),
            SubjectEvent::Ended(facts) => {
                facts.container = self.description(&facts.subject);
                if let Subject::Container { id, .. } = &facts.subject {
                    self.ended(now, id);
                }
            }
            _ => {}
        }
    }

    pub fn description(&self, subject: &Subject) -> Option<Arc<ContainerFact>> {
        match subject {
            Subject::Container { id, .. } => self.get(id),
            Subject::Unit { .. } => None,
        }
    }

    /// A process was seen in the container: asks for a description, once for each life.
    pub fn seen(&mut self, now: Boot, id: &ContainerId) {
        let is_new = self.known.get(id).is_none_or(|known| known.ended.is_some());
        if !is_new || self.wanted.len() >= self.limit / WANTED {
            return;
        }
        let known = self.enter(id);
        known.ended = None;
        self.wanted.push_back((now, id.clone()));
        self.next_expiry = self.next_expiry.min(now.plus(WANTED_FOR));
        self.fit();
    }

    pub fn learn(&mut self, fact: ContainerFact) {
        let id = fact.id.clone();
        let bytes = size_of::<ContainerFact>() + fact.bytes();
        let known = self.enter(&id);
        let old = known.fact.replace(Arc::new(fact));
        self.texts += bytes;
        self.texts -= old.map_or(0, |old| size_of::<ContainerFact>() + old.bytes());
        self.fit();
    }

    pub fn get(&self, id: &ContainerId) -> Option<Arc<ContainerFact>> {
        self.known.get(id)?.fact.clone()
    }

    /// The container terminated: its description is kept for late reports.
    pub fn ended(&mut self, now: Boot, id: &ContainerId) {
        if let Some(known) = self.known.get_mut(id) {
            known.ended = Some(now);
            self.ended.push_back((now, id.clone()));
            self.next_expiry = self.next_expiry.min(now.plus(KEEP_FINISHED));
        }
    }

    #[inline]
    pub fn expire(&mut self, now: Boot) {
        // For each kernel record.
        if now >= self.next_expiry {
            self.forget_old(now);
        }
    }

    fn forget_old(&mut self, now: Boot) {
        while self.ended.front().is_some_and(|(at, _)| at.plus(KEEP_FINISHED) <= now)
            && let Some((at, id)) = self.ended.pop_front()
        {
            if self.known.get(&id).is_some_and(|known| known.ended == Some(at)) {
                self.forget(&id);
            }
        }
        while self.wanted.front().is_some_and(|(at, _)| at.plus(WANTED_FOR) <= now) {
            self.wanted.pop_front();
        }
        let due = |list: &VecDeque<(Boot, ContainerId)>, after| list.front().map(|(at, _)| at.plus(after));
        let next = [due(&self.ended, KEEP_FINISHED), due(&self.wanted, WANTED_FOR)];
        self.next_expiry = next.into_iter().flatten().min().unwrap_or(Boot(u64::MAX));
        self.tidy();
    }

    /// Containers to ask for, since the last call.
    pub fn take_wanted(&mut self) -> impl Iterator<Item = ContainerId> + use<> {
        std::mem::take(&mut self.wanted).into_iter().map(|(_, id)| id)
    }

    pub fn bytes(&self) -> usize {
        let wanted = self.wanted.capacity() * size_of::<(Boot, ContainerId)>() + self.wanted.len() * 96;
        self.known.len() * ENTRY + wanted + self.texts
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.known.len() + self.asked.len() + self.ended.len() + self.wanted.len()
    }

    fn enter(&mut self, id: &ContainerId) -> &mut Known {
        if !self.known.contains_key(id) {
            self.next += 1;
            self.asked.push_back((self.next, id.clone()));
        }
        let number = self.next;
        self.known.entry(id.clone()).or_insert_with(|| Known {
            number,
            ..Known::default()
        })
    }

    fn fit(&mut self) {
        while self.bytes() > self.limit
            && let Some((number, id)) = self.asked.pop_front()
        {
            if self.known.get(&id).is_some_and(|known| known.number == number) {
                self.forget(&id);
            }
        }
        // Out-of-date places: about as many as there are containers.
        let known = &self.known;
        if self.asked.len() > 2 * known.len() + 16 {
            self.asked
                .retain(|(number, id)| known.get(id).is_some_and(|known| known.number == *number));
        }
        if self.ended.len() > 2 * known.len() + 16 {
            self.ended
                .retain(|(at, id)| known.get(id).is_some_and(|known| known.ended == Some(*at)));
        }
    }

    /// Gives back what a burst needed.
    fn tidy(&mut self) {
        fn slim_list<T>(list: &mut VecDeque<T>) {
            if list.capacity() > 64 && list.len() < list.capacity() / 4 {
                list.shrink_to(2 * list.len());
            }
        }
        slim(&mut self.known);
        slim_list(&mut self.asked);
        slim_list(&mut self.ended);
        slim_list(&mut self.wanted);
        if self.known.is_empty() {
            self.asked.clear();
        }
    }

    fn forget(&mut self, id: &ContainerId) {
        let fact = self.known.remove(id).and_then(|known| known.fact);
        self.texts -= fact.map_or(0, |fact| size_of::<ContainerFact>() + fact.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> ContainerId {
        ContainerId(format!("{number:064x}").as_str().into())
    }

    fn fact(number: usize, name: &str) -> ContainerFact {
        ContainerFact {
            name: Some(name.to_owned()),
            ..ContainerFact::unknown(id(number))
        }
    }

    fn seconds(seconds: u64) -> Boot {
        Boot(seconds * 1_000_000_000)
    }

    #[test]
    fn a_container_is_asked_for_once_in_each_life() {
        let mut containers = Containers::new(1 << 20);
        containers.seen(seconds(1), &id(1));
        containers.seen(seconds(1), &id(1));
        assert_eq!(containers.take_wanted().collect::<Vec<_>>(), [id(1)]);
        containers.learn(fact(1, "web"));
        containers.seen(seconds(1), &id(1));
        assert_eq!(containers.take_wanted().count(), 0);
        containers.ended(seconds(10), &id(1));
        assert_eq!(
            containers.get(&id(1)).unwrap().name.as_deref(),
            Some("web"),
            "for a late report"
        );
        // `docker restart`, perhaps after `docker rename`.
        containers.seen(seconds(1), &id(1));
        assert_eq!(containers.take_wanted().collect::<Vec<_>>(), [id(1)]);
        containers.learn(fact(1, "shop"));
        containers.expire(seconds(1_000));
        assert_eq!(
            containers.get(&id(1)).unwrap().name.as_deref(),
            Some("shop"),
            "it lives again"
        );
        containers.ended(seconds(1_000), &id(1));
        containers.expire(seconds(2_000));
        assert_eq!((containers.get(&id(1)), containers.texts), (None, 0));
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let limit = 64 << 10;
        let mut containers = Containers::new(limit);
        for number in 0..5_000 {
            containers.seen(seconds(number as u64), &id(number));
            containers.learn(fact(number, &"x".repeat(number % 200)));
            if number % 3 == 0 {
                containers.ended(seconds(number as u64), &id(number));
                containers.seen(seconds(number as u64), &id(number));
            }
            assert!(containers.bytes() <= limit, "{} at {number}", containers.bytes());
            if number % 2 == 0 {
                drop(containers.take_wanted());
            }
        }
        assert_eq!(containers.get(&id(0)), None);
        assert!(containers.get(&id(4_999)).is_some());
    }
}
