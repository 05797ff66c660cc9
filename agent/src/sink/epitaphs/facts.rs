//! What the observer saw of terminations, and the Epitaphs that there are to add it to. Both come in any order: an agent may write hours
//! after the observer saw the last of a pod, and most Epitaphs need no second write.
//!
//! Pure: time is an argument.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use epitaph_core::render::resource::Observed;
use epitaph_core::time::Boot;

use super::queue::Key;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FactLimits {
    /// Most pods of which something is kept; beyond them the oldest is forgotten.
    pub pods: usize,
    /// Most Epitaphs that are known.
    pub epitaphs: usize,
    /// How long facts wait for an Epitaph.
    pub keep: Duration,
    /// From the first fact of a pod to the write, and from a further one after that write.
    pub first: Duration,
    pub further: Duration,
}

/// Five waits after the first write: a replacement that starts slowly, and a node that is lost, are one further write.
const FURTHER: u32 = 5;

impl FactLimits {
    /// `first`: from the first fact of a pod to the write.
    pub fn new(first: Duration) -> FactLimits {
        FactLimits {
            // A kilobyte each, with a Service and a replacement; five at most. Five thousand nodes on which sixty pods an hour terminate have
            // so many in four minutes.
            pods: 20_000,
            // More than are kept in the cluster.
            epitaphs: 50_000,
            // As long as an agent tries to write to an API server that is away.
            keep: Duration::from_secs(6 * 60 * 60),
            first,
            further: first * FURTHER,
        }
    }
}

#[derive(Debug)]
pub(super) struct Facts {
    limits: FactLimits,
    held: HashMap<Key, Held>,
    /// By the time of the first fact.
    order: VecDeque<Key>,
    /// Whether the termination is unclean, of each known Epitaph.
    epitaphs: HashMap<Key, bool>,
}

#[derive(Debug)]
struct Held {
    since: Boot,
    whole: Observed,
    /// Facts that are in no write so far, for the count.
    unwritten: u64,
    /// They are in a write at this time.
    due: Boot,
    /// There is or was an Epitaph.
    is_known: bool,
    /// All of it is on its way to the Epitaph that there is. A write that fails is counted, and is not repeated from here.
    is_written: bool,
    /// The write that is due is the second one, and the last, unless the first fact that is notable, or the loss of the node, comes later.
    is_last: bool,
}

/// All that was seen of one pod, for its Epitaph.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub observed: Observed,
    /// When it is to be written.
    pub due: Boot,
    /// Facts that no earlier one had.
    pub count: u64,
}

/// Facts that wait no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unwritten {
    /// The termination was not unclean, and they explain nothing; or they came after the last write.
    pub unneeded: u64,
    /// The agent has not written an Epitaph.
    pub absent: u64,
}

impl Facts {
    pub fn new(limits: FactLimits) -> Facts {
        Facts {
            limits,
            held: HashMap::new(),
            order: VecDeque::new(),
            epitaphs: HashMap::new(),
        }
    }

    /// The observer saw something. [`Facts::expired`] follows.
    pub fn seen(&mut self, key: &Key, observed: Observed, now: Boot) -> Option<Completion> {
        match self.held.get_mut(key) {
            Some(held) => {
                let is_notable = held.whole.is_notable || observed.is_notable;
                let is_first_loss = observed.observed.loss.is_some() && held.whole.observed.loss.is_none();
                let is_first_notable = observed.is_notable && !held.whole.is_notable;
                held.whole = Observed {
                    is_notable,
                    ..observed.after(&held.whole.observed)
                };
                held.unwritten += 1;
                // What is written waits in the queue until it is due, with all that comes meanwhile.
                if held.is_written && now >= held.due {
                    if held.is_last && !is_first_notable && !is_first_loss {
                        return None;
                    }
                    held.is_last = true;
                    held.due = now.plus(self.limits.further);
                }
                held.is_written = false;
            }
            None => {
                let held = Held {
                    since: now,
                    whole: observed,
                    unwritten: 1,
                    due: now.plus(self.limits.first),
                    is_known: false,
                    is_written: false,
                    is_last: false,
                };
                self.held.insert(key.clone(), held);
                self.order.push_back(key.clone());
            }
        }
        let unclean = *self.epitaphs.get(key)?;
        self.completion(key, unclean)
    }

    /// There is this Epitaph.
    pub fn written(&mut self, key: &Key, unclean: bool) -> Option<Completion> {
        if self.epitaphs.len() < self.limits.epitaphs || self.epitaphs.contains_key(key) {
            self.epitaphs.insert(key.clone(), unclean);
        }
        self.completion(key, unclean)
    }

    /// An agent may write it anew.
    pub fn gone(&mut self, key: &Key) {
        self.epitaphs.remove(key);
        if let Some(held) = self.held.get_mut(key) {
            held.is_written = false;
            held.is_last = false;
        }
    }

    /// All Epitaphs follow anew.
    pub fn listed(&mut self) {
        self.epitaphs.clear();
    }

    /// What is too old, or too much.
    pub fn expired(&mut self, now: Boot) -> Unwritten {
        let mut expired = Unwritten::default();
        while let Some(key) = self.order.front() {
            let since = self.held.get(key).map(|held| held.since);
            let is_old = since.is_none_or(|since| now.since(since) >= self.limits.keep);
            if !is_old && self.order.len() <= self.limits.pods {
                break;
            }
            self.forget_first(&mut expired);
        }
        expired
    }

    /// All of them, at the end.
    pub fn drain(&mut self) -> Unwritten {
        let mut drained = Unwritten::default();
        while !self.order.is_empty() {
            self.forget_first(&mut drained);
        }
        drained
    }

    fn forget_first(&mut self, unwritten: &mut Unwritten) {
        let Some(key) = self.order.pop_front() else { return };
        let Some(held) = self.held.remove(&key) else { return };
        match held.is_known {
            true => unwritten.unneeded += held.unwritten,
            false => unwritten.absent += held.unwritten,
        }
    }

    /// Of an Epitaph that there is, where there are new facts that explain something.
    fn completion(&mut self, key: &Key, unclean: bool) -> Option<Completion> {
        let held = self.held.get_mut(key)?;
        held.is_known = true;
        if held.is_written || !(unclean || held.whole.is_notable) {
            return None;
        }
        held.is_written = true;
        Some(Completion {
            observed: held.whole.clone(),
            due: held.due,
            count: std::mem::take(&mut held.unwritten),
        })
    }
}

#[cfg(test)]
mod tests {
    use epitaph_core::render::resource::{EpitaphEndpoint, EpitaphObserved, EpitaphPod};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const BEGIN: Boot = Boot(0);

    fn facts(pods: usize) -> Facts {
        Facts::new(FactLimits {
            pods,
            epitaphs: 2,
            keep: HOUR,
            first: HOUR / 30,
            further: HOUR / 6,
        })
    }

    fn key(name: &str) -> Key {
        Key {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        }
    }

    fn left(service: &str, is_notable: bool) -> Observed {
        let endpoint = EpitaphEndpoint {
            service: service.to_owned(),
            ..EpitaphEndpoint::default()
        };
        Observed {
            namespace: "shop".to_owned(),
            pod: EpitaphPod::default(),
            observed: EpitaphObserved {
                endpoints: vec![endpoint],
                ..EpitaphObserved::default()
            },
            is_notable,
        }
    }

    /// Services, and number of facts.
    fn services(completion: Option<Completion>) -> Option<(Vec<String>, u64)> {
        let Completion { observed, count, .. } = completion?;
        let services = observed.observed.endpoints.into_iter().map(|of| of.service);
        Some((services.collect(), count))
    }

    fn all(services: &[&str], count: u64) -> Option<(Vec<String>, u64)> {
        Some((services.iter().map(|of| (*of).to_owned()).collect(), count))
    }

    #[test]
    fn an_unclean_termination_is_completed_whatever_comes_first() {
        let (mut facts, a, b) = (facts(9), key("a"), key("b"));
        assert_eq!(facts.seen(&a, left("web", false), BEGIN), None);
        assert_eq!(services(facts.written(&a, true)), all(&["web"], 1));
        // Our own write shows the Epitaph once more.
        assert_eq!(facts.written(&a, true), None);
        // What comes later is added.
        assert_eq!(
            services(facts.seen(&a, left("admin", false), BEGIN)),
            all(&["web", "admin"], 1)
        );
        assert_eq!(facts.written(&b, true), None);
        assert_eq!(services(facts.seen(&b, left("web", false), BEGIN)), all(&["web"], 1));
        // Removed, and written anew by the agent of a pod that lives on.
        facts.gone(&b);
        assert_eq!(services(facts.written(&b, true)), all(&["web"], 0));
    }

    /// A replacement that becomes ready late, and then its removal from Services: two writes at most, however many facts there are.
    #[test]
    fn what_comes_after_the_first_write_is_one_further_write_of_all() {
        let (mut facts, a) = (facts(9), key("a"));
        let due = |completion: Option<Completion>| completion.map(|of| of.due);
        let minute = |minutes: u32| BEGIN.plus(HOUR / 60 * minutes);
        facts.written(&a, true);
        assert_eq!(due(facts.seen(&a, left("web", false), minute(0))), Some(minute(2)));
        assert_eq!(due(facts.seen(&a, left("admin", false), minute(1))), Some(minute(2)));
        for minutes in [3, 4, 12] {
            assert_eq!(due(facts.seen(&a, left("late", false), minute(minutes))), Some(minute(13)));
        }
        // Two writes a termination, and no third.
        assert_eq!(due(facts.seen(&a, left("later", false), minute(20))), None);
        assert_eq!(facts.written(&a, true), None);
        // But where it was removed and is written anew: with all of it.
        facts.gone(&a);
        let all_of_it = ["web", "admin", "late", "later"];
        assert_eq!(services(facts.written(&a, true)), all(&all_of_it, 1));
        assert_eq!(due(facts.seen(&a, left("last", false), minute(21))), Some(minute(31)));
        assert_eq!(due(facts.seen(&a, left("lost", false), minute(40))), None);
        assert_eq!(facts.drain(), Unwritten { unneeded: 1, absent: 0 });
    }

    /// The node of an unclean termination is lost after two writes.
    #[test]
    fn the_first_notable_fact_is_written_however_late_it_comes() {
        let (mut facts, a) = (facts(9), key("a"));
        let due = |completion: Option<Completion>| completion.map(|of| of.due);
        let minute = |minutes: u32| BEGIN.plus(HOUR / 60 * minutes);
        facts.written(&a, true);
        assert_eq!(due(facts.seen(&a, left("web", false), minute(0))), Some(minute(2)));
        assert_eq!(due(facts.seen(&a, left("admin", false), minute(3))), Some(minute(13)));
        assert_eq!(due(facts.seen(&a, left("late", false), minute(14))), None);
        assert_eq!(due(facts.seen(&a, left("lost", true), minute(20))), Some(minute(30)));
        assert_eq!(due(facts.seen(&a, left("lost", true), minute(40))), None);
    }

    #[test]
    fn what_explained_nothing_at_first_is_part_of_what_explains_something_later() {
        let (mut facts, a, b) = (facts(9), key("a"), key("b"));
        assert_eq!(facts.written(&a, false), None);
        assert_eq!(facts.seen(&a, left("web", false), BEGIN), None);
        assert_eq!(
            services(facts.seen(&a, left("admin", true), BEGIN)),
            all(&["web", "admin"], 2)
        );
        // The Epitaph of a pod that lived on, and of its last termination.
        facts.seen(&b, left("web", false), BEGIN);
        assert_eq!(facts.written(&b, false), None);
        assert_eq!(services(facts.written(&b, true)), all(&["web"], 1));
    }

    #[test]
    fn what_nobody_needs_is_counted_when_it_is_forgotten() {
        let (mut facts, a, b) = (facts(9), key("a"), key("b"));
        facts.written(&a, false);
        facts.seen(&a, left("web", false), BEGIN);
        facts.seen(&a, left("admin", false), BEGIN);
        facts.seen(&b, left("web", true), BEGIN.plus(HOUR / 2));
        assert_eq!(facts.expired(BEGIN.plus(HOUR / 2)), Unwritten::default());
        // Removed before the facts are forgotten: an agent had written it.
        facts.gone(&a);
        let (unneeded, absent) = (2, 0);
        assert_eq!(facts.expired(BEGIN.plus(HOUR)), Unwritten { unneeded, absent });
        let (unneeded, absent) = (0, 1);
        assert_eq!(facts.expired(BEGIN.plus(HOUR * 2)), Unwritten { unneeded, absent });
        assert_eq!(facts.written(&b, true), None);
        // What was written is in no such count.
        facts.seen(&b, left("web", true), BEGIN);
        assert_eq!(facts.drain(), Unwritten::default());
    }

    #[test]
    fn pods_and_epitaphs_are_bounded() {
        let mut facts = facts(2);
        for name in ["a", "b", "c", "d"] {
            facts.seen(&key(name), left("web", false), BEGIN);
        }
        assert_eq!(facts.expired(BEGIN).absent, 2);
        for name in ["a", "b"] {
            facts.written(&key(name), false);
        }
        // One that is not remembered is completed all the same.
        assert_eq!(services(facts.written(&key("d"), true)), all(&["web"], 1));
        assert_eq!(facts.epitaphs.len(), 2);
        facts.gone(&key("a"));
        facts.written(&key("c"), false);
        assert_eq!(facts.epitaphs.len(), 2);
        facts.listed();
        assert!(facts.epitaphs.is_empty());
    }
}
