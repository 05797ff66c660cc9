//! The end of the agent: what the role still has to say, how long the agent observes on in a shutdown of the node, and its last word.

use std::time::Duration;

use epitaph_core::input::Input;
use epitaph_core::node::NodeEvent;
use tokio::time::{Instant, timeout_at};

use super::{LAST, Live};
use crate::clock;
use crate::runtime::RuntimeError;
use crate::source::logind::LinkState;

/// The role ends within this time, or does not end yet.
const HEAR_OUT: Duration = Duration::from_millis(500);

impl Live {
    /// A shutdown that nothing delays is announced at the moment of the stop signal. systemd ends the role before the agent, the kubelet
    /// both at once: the role has sent what it knows when it is gone.
    pub(super) async fn hear_role_out(&mut self) -> Result<(), RuntimeError> {
        let until = Instant::now() + HEAR_OUT;
        while let Some(logind) = &mut self.logind
            && logind.counters.state() != LinkState::Off
            && !self.pipeline.core().is_shutting_down()
            && let Ok(Some(input)) = timeout_at(until, logind.inputs.recv()).await
        {
            self.take_node(input)?;
        }
        // What waits already.
        while let Some(input) = self.logind.as_mut().and_then(|logind| logind.inputs.try_recv().ok()) {
            self.take_node(input)?;
        }
        Ok(())
    }

    /// How long the agent observes on after its stop signal: at a shutdown of the node until its own grace period ends, which the
    /// kubelet's phase of critical pods may cut. None: it ends at once.
    pub(super) fn stays(&self) -> Option<Duration> {
        let core = self.pipeline.core();
        let grace = self.grace.filter(|_| core.is_shutting_down())?;
        let grace = core.last_phase().map_or(grace, |phase| phase.min(grace));
        tracing::info!(
            ?grace,
            "the node is shutting down: observing until no pod terminates any more"
        );
        Some(grace.saturating_sub(LAST))
    }

    /// What the next boot must know: that no more evidence follows.
    pub(super) fn agent_ends(&mut self) -> Result<(), RuntimeError> {
        if !self.pipeline.core().observes_node() {
            return Ok(());
        }
        let ends = NodeEvent::AgentEnds {
            pod: self.pipeline.core().pod_of(self.procfs.own_pid()),
        };
        let commands = self.pipeline.feed(clock::now(), Input::Node(ends))?;
        self.obey(commands)
    }
}
