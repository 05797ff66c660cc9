//! When the role holds a delay lock of its own. Pure: the descriptor is the session's.
//!
//! The lock gives the agent time to write down and send what terminates. It is held only for an agent that reads, and let go by the
//! agent, or by the role itself before logind would stop waiting for it.

use std::time::Duration;

use epitaph_core::time::Boot;

/// Of the delay that logind allows. The rest is for a slow machine: the shutdown must not wait for our lock to its end.
const SHARE: (u32, u32) = (3, 4);

#[derive(Debug, Default)]
pub(super) struct LockPlan {
    /// By setting.
    wanted: bool,
    /// An agent reads what the role writes.
    agent: bool,
    held: bool,
    refused: bool,
    /// Released in the shutdown that is under way.
    released: bool,
    limit: Option<Duration>,
    preparing: Option<Boot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Do {
    Take,
    Release,
}

impl LockPlan {
    pub fn new(wanted: bool) -> LockPlan {
        LockPlan {
            wanted,
            ..LockPlan::default()
        }
    }

    pub fn agent(&mut self, reads: bool) {
        self.agent = reads;
    }

    /// The agent's evidence is safe.
    pub fn release(&mut self) {
        self.released = true;
    }

    pub fn limit(&mut self, limit: Duration) {
        self.limit = Some(limit);
    }

    /// The state of logind: a shutdown is under way since `now`, or none is.
    pub fn preparing(&mut self, now: Boot, preparing: bool) {
        if preparing {
            self.preparing.get_or_insert(now);
        } else {
            self.preparing = None;
            self.released = false;
        }
    }

    /// Another logind: it has no lock of ours, and may answer otherwise.
    pub fn begin(&mut self) {
        self.held = false;
        self.refused = false;
        self.released = false;
        self.preparing = None;
    }

    pub fn taken(&mut self) {
        self.held = true;
    }

    pub fn refused(&mut self) {
        self.refused = true;
    }

    /// What is due. Once the lock is released, [`LockPlan::let_go`] follows.
    pub fn due(&self, now: Boot) -> Option<Do> {
        if self.held {
            let is_late = self.deadline().is_some_and(|deadline| now >= deadline);
            let is_over = !self.agent || self.preparing.is_some() && (self.released || is_late);
            return is_over.then_some(Do::Release);
        }
        // logind refuses new locks in a shutdown.
        let may_take = self.wanted && self.agent && !self.refused && self.preparing.is_none();
        may_take.then_some(Do::Take)
    }

    pub fn let_go(&mut self) {
        self.held = false;
    }

    fn deadline(&self) -> Option<Boot> {
        // Without the limit: systemd's default is 5 s.
        let limit = self.limit.unwrap_or(Duration::from_secs(5));
        Some(self.preparing?.plus(limit / SHARE.1 * SHARE.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Boot {
        Boot(seconds * SECOND)
    }

    fn held() -> LockPlan {
        let mut plan = LockPlan::new(true);
        plan.agent(true);
        plan.limit(Duration::from_secs(40));
        assert_eq!(plan.due(at(0)), Some(Do::Take));
        plan.taken();
        plan
    }

    #[test]
    fn the_agent_releases_the_lock_in_a_shutdown() {
        let mut plan = held();
        plan.preparing(at(100), true);
        assert_eq!(plan.due(at(101)), None);
        plan.release();
        assert_eq!(plan.due(at(102)), Some(Do::Release));
        plan.let_go();
        assert_eq!(plan.due(at(103)), None, "none is taken in a shutdown");
        plan.preparing(at(104), false);
        assert_eq!(plan.due(at(104)), Some(Do::Take), "after a cancelled shutdown again");
    }

    #[test]
    fn the_role_releases_the_lock_well_before_the_limit_and_without_an_agent() {
        let mut plan = held();
        plan.preparing(at(100), true);
        plan.preparing(at(120), true);
        assert_eq!((plan.due(at(129)), plan.due(at(130))), (None, Some(Do::Release)));
        let mut plan = held();
        plan.agent(false);
        assert_eq!(plan.due(at(1)), Some(Do::Release));
    }

    #[test]
    fn a_refusal_is_final_for_this_logind() {
        let mut plan = LockPlan::new(true);
        plan.agent(true);
        plan.refused();
        assert_eq!(plan.due(at(1)), None);
        plan.begin();
        assert_eq!(plan.due(at(1)), Some(Do::Take));
        assert_eq!(LockPlan::new(false).due(at(1)), None);
    }

    #[test]
    fn a_release_before_a_shutdown_has_no_effect_in_it() {
        let mut plan = held();
        plan.release();
        assert_eq!(plan.due(at(1)), None);
        plan.preparing(at(2), false);
        plan.preparing(at(3), true);
        assert_eq!(plan.due(at(4)), None);
    }
}
