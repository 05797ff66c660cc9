//! The next boot completes the story: the shutdown that was in progress, or that nothing had announced, and the time in which the node
//! was down.

use std::time::Duration;

use super::{FromNode, NodeMachine, RunningPod, report};
use crate::input::Observation;
use crate::node::KubeletState;
use crate::report::Report;
use crate::shutdown::{Ending, NodeDown, NodeShutdownFacts, ShutdownKey};
use crate::time::Boot;

/// The source of the kubelet's files begins with the agent.
const HOLD: Duration = Duration::from_secs(30);
/// The kubelet's clock is the node's; its times are of its own begin of the shutdown.
const SLACK: Duration = Duration::from_secs(10);

/// A shutdown of the boot before, which waits for the kubelet's state.
#[derive(Debug)]
pub(super) struct Previous {
    facts: NodeShutdownFacts,
    until: Boot,
}

impl Previous {
    pub fn report(mut self, state: Option<KubeletState>, out: &mut FromNode) {
        let clock = self.facts.clock;
        let begin = clock.wall(self.facts.begin.minus(SLACK));
        self.facts.kubelet.state = state.filter(|state| state.started.is_some_and(|started| started >= begin));
        out.reports.push(report(self.facts));
    }

    pub fn bytes(&self) -> usize {
        size_of::<Previous>() + self.facts.pods.len() * size_of::<crate::shutdown::PodInShutdown>()
    }
}

impl NodeMachine {
    /// Another boot: what is left of the old one is completed. `last`: its last evidence. `running`: pods of which no end was seen.
    pub fn next_boot(
        mut self,
        last: Boot,
        running: Option<Vec<RunningPod>>,
        new: &Observation,
        out: &mut FromNode,
    ) -> NodeMachine {
        if let Some(previous) = self.previous.take() {
            previous.report(None, out);
        }
        let next = NodeMachine::default();
        if !self.active && self.open.is_none() {
            return next;
        }
        // The begin of the new boot, by the old clock.
        let back = self.clock.boot(new.wall_offset.wall(Boot(0))).max(last);
        if let Some(left) = self.left.take().filter(|_| self.open.is_none()) {
            out.reports
                .push(Report::NodeDown(Box::new(self.down(left.key, last, back, new))));
            return self.followed_by(next);
        }
        if self.open.as_ref().is_none_or(|open| !open.facts.signs.is_real()) {
            self.close(last, Ending::Continued, out);
            // Nothing announced it.
            self.open = Some(self.begin(last));
        }
        let Some(mut open) = self.open.take() else { return next };
        // What started within it, too.
        open.runs.show(running.unwrap_or_default());
        let down = self.down(open.facts.key.clone(), last, back, new);
        let facts = open.complete(Ending::Down { back }, last, &self);
        // After the end of an agent, the machine may have run for weeks without one.
        if facts.signs.is_real() || !facts.gaps.agent_ended {
            out.reports.push(Report::NodeDown(Box::new(down)));
        }
        let next = self.followed_by(next);
        let previous = Previous {
            facts,
            until: new.since.plus(HOLD),
        };
        // Only a kubelet has a state.
        if !next.has_kubelet {
            previous.report(None, out);
            return next;
        }
        NodeMachine {
            previous: Some(Box::new(previous)),
            ..next
        }
    }

    pub(super) fn previous_due(&mut self, now: Boot, out: &mut FromNode) {
        if let Some(previous) = self.previous.take_if(|previous| previous.until <= now) {
            previous.report(None, out);
        }
    }

    /// Whatever boots, the machine is the same: its kubelet stays.
    fn followed_by(&self, next: NodeMachine) -> NodeMachine {
        NodeMachine {
            active: self.active,
            has_kubelet: self.has_kubelet,
            ..next
        }
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
        }
    }
}
