//! What was reported about a loss so far.

use super::report::{Advice, PhaseKind};
use crate::time::Boot;

/// What is exported.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// The root is, or was by an earlier observer.
    pub root: bool,
    pub phases: Vec<PhaseKind>,
}

impl Reported {
    /// Whether it was not in it.
    pub fn add(&mut self, phase: PhaseKind) -> bool {
        let is_new = !self.phases.contains(&phase);
        if is_new {
            self.phases.push(phase);
        }
        is_new
    }
}

/// The alarms so far.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    /// As the last alarm about the node or a pod of it had it.
    pub advised: Option<Advice>,
    /// How often that changed, and when last.
    pub changes: u8,
    pub changed: Option<Boot>,
    /// The last alarm that the machine runs and must not.
    pub endangered: Option<(Advice, Boot)>,
    /// There was an alarm about the node with pods that hang.
    pub is_hang_alarmed: bool,
    /// There was an alarm that the controller holds the evictions back.
    pub is_held_back_alarmed: bool,
}
