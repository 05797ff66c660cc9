//! A shutdown of the boot before, and the pods that stayed Ready in the API until the node was back.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::parts::{FromNode, report};
use crate::ids::{ContainerId, PodUid};
use crate::node::KubeletState;
use crate::pod::{ApiClock, PodFact, PodsState, Ready};
use crate::report::Report;
use crate::shutdown::{NodeDown, NodeShutdownFacts};
use crate::time::{Boot, Wall, WallOffset};
use crate::tolerances::{CLOCK_STEP, KUBELET_CLOCK, RESOLUTION};

/// A shutdown of the boot before, which waits for the kubelet's state, and for the pods of the API.
#[derive(Debug)]
pub(super) struct Previous {
    /// None: an agent that ended in order has reported it.
    pub facts: Option<NodeShutdownFacts>,
    /// None: the agent did not run when the node went down.
    pub down: Option<NodeDown>,
    pub until: Boot,
    /// Some(None): not known.
    pub state: Option<Option<KubeletState>>,
    pub ready: StayedReady,
}

impl Previous {
    pub fn report(mut self, out: &mut FromNode) {
        self.report_down(out);
        let Some(mut facts) = self.facts.take() else { return };
        let begin = facts.clock.wall(facts.begin.minus(KUBELET_CLOCK));
        let state = self.state.flatten();
        facts.kubelet.state = state.filter(|state| state.started.is_some_and(|started| started >= begin));
        facts.pods_ready = self.ready.count();
        out.reports.push(report(facts));
    }

    /// The node was up when the kubelet noted its end of the shutdown, which an agent that has ended before does not see.
    fn report_down(&mut self, out: &mut FromNode) {
        let Some(mut down) = self.down.take() else { return };
        let ended = self
            .state
            .flatten()
            .and_then(|state| state.ended)
            .map(|ended| down.clock.boot(ended));
        down.begin = ended.map_or(down.begin, |ended| ended.clamp(down.begin, down.end));
        out.reports.push(Report::NodeDown(Box::new(down)));
    }

    pub fn is_complete(&self) -> bool {
        self.state.is_some() && (self.facts.is_none() || self.ready.is_complete())
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.facts.as_ref().map_or(0, |facts| facts.pods.len()) + self.ready.kept()
    }

    pub fn bytes(&self) -> usize {
        let pods = self.facts.as_ref().map_or(0, |facts| facts.pods.len()) * size_of::<crate::shutdown::PodInShutdown>();
        size_of::<Previous>() + pods + self.ready.bytes()
    }
}

/// Most pods whose status is kept; a kubelet runs 110 by default.
const PODS: usize = 512;
/// Most containers of this boot that are kept.
const CONTAINERS: usize = 4_096;

#[derive(Debug)]
pub(super) struct StayedReady {
    /// The last evidence of the boot before, by its own clock, and the begin of this one.
    last: Wall,
    begin: Wall,
    clock: WallOffset,
    /// The wall clock of this boot was set: no time in a status can be compared with its begin.
    was_set: bool,
    api: Option<ApiClock>,
    /// Pods of this node are expected: there is a connection to the API.
    expected: bool,
    listed: bool,
    pods: HashMap<PodUid, Status>,
    /// Containers that were seen in this boot.
    seen: HashSet<ContainerId>,
    is_full: bool,
}

/// Of a pod, the first of this boot.
#[derive(Debug)]
struct Status {
    ready: Ready,
    containers: Vec<ContainerId>,
}

impl StayedReady {
    /// `clock`: of the new boot. `expected`: the boot before knew pods of the API.
    pub fn new(last: Wall, clock: WallOffset, expected: bool) -> StayedReady {
        StayedReady {
            last,
            begin: clock.wall(Boot(0)),
            clock,
            was_set: false,
            api: None,
            expected,
            listed: false,
            pods: HashMap::new(),
            seen: HashSet::new(),
            is_full: false,
        }
    }

    /// Nothing more is expected.
    pub fn is_complete(&self) -> bool {
        !self.expected || self.listed && self.api.is_some()
    }

    pub fn state(&mut self, state: &PodsState) {
        self.expected = true;
        self.listed |= *state == PodsState::Synced;
    }

    pub fn api_clock(&mut self, clock: ApiClock) {
        self.api = Some(clock);
    }

    pub fn clock(&mut self, clock: WallOffset) {
        self.was_set |= Duration::from_nanos(clock.0.abs_diff(self.clock.0)) >= CLOCK_STEP;
    }

    pub fn pod(&mut self, fact: &PodFact) {
        let Some(ready) = fact.ready else { return };
        // These get no clients for another reason, or have opted out of reports.
        if fact.phase.is_terminal() || fact.deletion.is_some() || fact.spec.options.ignore || self.pods.len() >= PODS {
            return;
        }
        self.pods.entry(fact.pod.uid.clone()).or_insert_with(|| Status {
            ready,
            containers: fact.containers.iter().filter_map(|of| of.id.clone()).collect(),
        });
    }

    pub fn seen(&mut self, id: &ContainerId) {
        self.is_full |= self.seen.len() >= CONTAINERS;
        if !self.is_full {
            self.seen.insert(id.clone());
        }
    }

    /// At least so many pods stayed Ready; None if it is not known of any pod whether it did.
    pub fn count(&self) -> Option<u64> {
        let known: Vec<bool> = self.pods.values().filter_map(|status| self.stayed(status)).collect();
        (!known.is_empty()).then(|| known.into_iter().filter(|stayed| *stayed).count() as u64)
    }

    fn stayed(&self, status: &Status) -> Option<bool> {
        let Ready {
            is_ready,
            since,
            last_start,
        } = status.ready;
        if self.was_set {
            return None;
        }
        let before = self.begin.min(self.last);
        if is_ready {
            // A status that names a container of this boot is of this boot, whatever its times are: the clock may have been set since.
            let is_new = self.is_full || status.containers.iter().any(|id| self.seen.contains(id));
            return (since < before && !is_new).then_some(true);
        }
        let api = self.api?;
        // By the node's clock, whoever wrote it.
        let resolution = i64::try_from(RESOLUTION.as_nanos()).unwrap_or(i64::MAX);
        let (earliest, latest) = (
            moved(since, -api.latest.max(0)),
            moved(since, resolution - api.earliest.min(0)),
        );
        // A clock that went back from one boot to the next orders nothing.
        let is_ordered = self.last <= self.begin;
        if is_ordered && earliest >= self.begin {
            return last_start.is_some_and(|start| start < before).then_some(true);
        }
        (latest < self.begin).then_some(false)
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.pods.len() + self.seen.len()
    }

    pub fn bytes(&self) -> usize {
        let id = size_of::<ContainerId>() + 64;
        let containers: usize = self.pods.values().map(|status| status.containers.len()).sum();
        self.pods.capacity() * size_of::<(PodUid, Status)>()
            + self.seen.capacity() * size_of::<ContainerId>()
            + (containers + self.seen.len()) * id
    }
}

fn moved(time: Wall, nanos: i64) -> Wall {
    Wall(time.0.saturating_add_signed(nanos))
}
