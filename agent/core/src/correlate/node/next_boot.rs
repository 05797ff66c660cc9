//! The next boot completes the story: the shutdown that was in progress, or that nothing had announced, the time in which the node was
//! down, and the pods that stayed Ready in the API meanwhile.

use super::parts::FromNode;
use super::previous::{Previous, StayedReady};
use super::{NodeMachine, RunningPod};
use crate::ids::{CgroupId, ContainerId, PodUid};
use crate::input::Observation;
use crate::node::KubeletState;
use crate::pod::{ApiClock, PodFact, PodsState};
use crate::shutdown::{Ending, KubeletFacts, NodeDown, NodeShutdownFacts, ShutdownKey, is_soon};
use crate::termination::TerminationFacts;
use crate::time::{Boot, WallOffset};
use crate::tolerances::NEXT_BOOT_NODE;

impl NodeMachine {
    /// Another boot begins: systemd's stop signals to pods and services alike were for the end of the machine. `held`: terminations that
    /// wait for the status of their pods, and may be from before that was known. `last`: the last evidence of this boot.
    pub fn next_boot_proves<'a>(
        &mut self,
        last: Boot,
        new: &Observation,
        held: impl Iterator<Item = (&'a PodUid, &'a mut TerminationFacts)>,
    ) {
        let (back, agent_ended) = (self.back(last, new), self.agent_ended);
        let Some(open) = self.open.as_mut().filter(|open| open.facts.signs.swept.is_some()) else {
            return;
        };
        let is_observed = !agent_ended && !open.facts.gaps.observation;
        open.went_down = is_observed || is_soon(last, back);
        // The signals may have been for units alone, and another reason may have ended the machine much later.
        if open.facts.signs.only_swept() && !open.went_down {
            return;
        }
        for (uid, facts) in held.filter(|(_, facts)| facts.shutdown.is_none()) {
            facts.shutdown = open.ended_by(facts);
            if facts.shutdown.is_some() {
                open.runs.was_by_it(uid, facts, open.facts.begin);
            }
        }
    }

    /// Another boot: what is left of the old one is completed. `last`: its last evidence. `running`: pods of which no end was seen.
    pub fn next_boot(
        mut self,
        last: Boot,
        running: Option<Vec<RunningPod>>,
        new: &Observation,
        out: &mut FromNode,
    ) -> NodeMachine {
        if let Some(previous) = self.previous.take() {
            previous.report(out);
        }
        let next = NodeMachine::default();
        if !self.active && self.open.is_none() {
            return next;
        }
        let back = self.back(last, new);
        if let Some(left) = self.left.take().filter(|_| self.open.is_none()) {
            let down = self.down(left.key, last, back, new);
            let ready = StayedReady::new(self.clock.wall(last), new.wall_offset, false);
            return self.followed_by(next).completing(None, Some(down), ready, new, out);
        }
        if self.open.as_ref().is_none_or(|open| !open.facts.signs.is_real()) {
            self.close(last, Ending::Continued, out);
            // Nothing announced it.
            self.open = Some(self.begin(last));
        }
        let Some(mut open) = self.open.take() else { return next };
        let ready = StayedReady::new(self.clock.wall(last), new.wall_offset, running.is_some());
        // What started within it, too.
        open.runs.show(running.unwrap_or_default());
        let down = self.down(open.facts.key.clone(), last, back, new);
        let facts = open.complete(Ending::Down { back }, last, &self);
        // After the end of an agent, the machine may have run for weeks without one.
        let was_up = facts.gaps.agent_ended && !facts.signs.is_real() || facts.signs.only_swept() && !facts.may_be_swept_down();
        let down = (!was_up).then_some(down);
        self.followed_by(next).completing(Some(facts), down, ready, new, out)
    }

    /// Only a kubelet has a state, and pods.
    fn completing(
        self,
        facts: Option<NodeShutdownFacts>,
        down: Option<NodeDown>,
        ready: StayedReady,
        new: &Observation,
        out: &mut FromNode,
    ) -> NodeMachine {
        let previous = Previous {
            facts,
            down,
            until: new.since.plus(NEXT_BOOT_NODE),
            state: None,
            ready,
        };
        if !self.kubelet.is_there {
            previous.report(out);
            return self;
        }
        NodeMachine {
            previous: Some(Box::new(previous)),
            ..self
        }
    }

    pub(super) fn previous_due(&mut self, now: Boot, out: &mut FromNode) {
        let is_over = |previous: &mut Box<Previous>| previous.until <= now || previous.is_complete();
        if let Some(previous) = self.previous.take_if(is_over) {
            previous.report(out);
        }
    }

    pub(super) fn state_of_previous(&mut self, state: Option<KubeletState>) {
        if let Some(previous) = &mut self.previous {
            previous.state.get_or_insert(state);
        }
    }

    /// The state of the watch of this node's pods.
    pub fn pods_state(&mut self, now: Boot, state: &PodsState) {
        self.api_is_away = *state != PodsState::Synced;
        if let Some(open) = self.open.as_mut().filter(|_| self.api_is_away) {
            open.runs.statuses_end(now);
        }
        if let Some(previous) = &mut self.previous {
            previous.ready.state(state);
        }
    }

    pub fn pod(&mut self, now: Boot, fact: &PodFact) {
        if let Some(open) = &mut self.open {
            open.runs.status(now, fact);
        }
        if let Some(previous) = &mut self.previous {
            previous.ready.pod(fact);
        }
    }

    pub fn api_clock(&mut self, clock: ApiClock) {
        if let Some(previous) = &mut self.previous {
            previous.ready.api_clock(clock);
        }
    }

    /// A process of a pod's container: only a kubelet makes the cgroups of pods.
    pub fn pod_seen(&mut self, container: &ContainerId) {
        self.kubelet.is_there = true;
        if let Some(previous) = &mut self.previous {
            previous.ready.seen(container);
        }
    }

    /// The cgroup of a pod's container, perhaps without a process that was seen.
    pub fn pods_cgroup_seen(&mut self, cgroup: CgroupId) {
        self.kubelet.is_there = true;
        self.pods_cgroup = Some(cgroup);
    }

    pub(super) fn clock_of_previous(&mut self, offset: WallOffset) {
        if let Some(previous) = &mut self.previous {
            previous.ready.clock(offset);
        }
    }

    /// Whatever boots, the machine is the same: its kubelet stays.
    fn followed_by(&self, next: NodeMachine) -> NodeMachine {
        NodeMachine {
            active: self.active,
            kubelet: KubeletFacts {
                is_there: self.kubelet.is_there,
                ..KubeletFacts::default()
            },
            ..next
        }
    }

    /// The begin of the new boot, by the old clock.
    fn back(&self, last: Boot, new: &Observation) -> Boot {
        self.clock.boot(new.wall_offset.wall(Boot(0))).max(last)
    }

    fn down(&self, key: ShutdownKey, last: Boot, back: Boot, new: &Observation) -> NodeDown {
        NodeDown {
            key,
            host: self.host.clone(),
            clock: self.clock,
            begin: last,
            end: back,
            next_boot_id: new.boot_id.clone(),
            is_soft: false,
            at_most: self.agent_ended,
        }
    }
}
