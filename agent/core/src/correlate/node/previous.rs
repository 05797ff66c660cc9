//! A shutdown of the boot before.

use super::parts::{FromNode, report};
use super::stayed_ready::StayedReady;
use crate::node::KubeletState;
use crate::report::Report;
use crate::shutdown::{NodeDown, NodeShutdownFacts};
use crate::time::Boot;
use crate::tolerances::KUBELET_CLOCK;

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
