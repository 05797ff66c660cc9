//! The taint `out-of-service` of one node: set for a loss, with the node ready, or before the observation; removed, or left behind.

use std::sync::Arc;
use std::time::Duration;

use super::handling::TaintOf;
use super::report::{Advice, LossKey, NodePhase, PhaseKind};
use super::story::Story;
use super::{Step, alarms, sentence};
use crate::observe::contact::Seen;
use crate::observe::{Moment, NodeFact, NodeIdentity, ObserverDropReason, Output, Ready};
use crate::time::{Boot, Wall};

#[derive(Debug, Default)]
pub(super) struct Taint {
    /// Since when the node has it.
    set: Option<Moment>,
    of: TaintOf,
    /// Of [`TaintOf::Loss`]: whose trace has the span.
    loss: Option<LossKey>,
    /// Ready with it, since then.
    left_behind: Option<Moment>,
    is_alarmed: bool,
}

impl Taint {
    /// A version of the node. `story`: of its last loss.
    pub fn follow(&mut self, fact: &NodeFact, seen: Seen, story: Option<&mut Story>) -> Option<Output> {
        let at = seen.moment();
        let mut out = None;
        match (self.set, fact.out_of_service) {
            (None, true) => {
                // At the start: set at any time since the loss.
                let unseen = story.as_ref().filter(|_| seen.is_at_start());
                let set = Moment {
                    gap: unseen.map(|story| at.at.since(story.begin().at)).or(at.gap),
                    ..at
                };
                self.set = Some(set);
                self.of = match &story {
                    Some(story) if !story.is_over() => TaintOf::Loss,
                    _ if seen.is_at_start() => TaintOf::Unseen,
                    _ => TaintOf::Ready,
                };
                if let Some(story) = story {
                    self.loss = Some(story.key.clone()).filter(|_| self.of == TaintOf::Loss);
                    story.step(Step::OutOfService, set);
                }
            }
            (Some(begin), false) => {
                self.set = None;
                out = match (self.of, self.loss.take()) {
                    (TaintOf::Loss, Some(loss)) => {
                        if let Some(story) = story.filter(|story| story.key == loss) {
                            story.reported.add(PhaseKind::OutOfService);
                        }
                        Some(phase(loss, begin, at))
                    }
                    // Of no loss, and so of no trace.
                    (TaintOf::Ready, _) => None,
                    _ => Some(Output::dropped(ObserverDropReason::BeginUnseen)),
                };
            }
            _ => {}
        }
        if !(fact.out_of_service && fact.ready == Ready::True) {
            self.not_left();
        } else if self.left_behind.is_none() {
            self.left_behind = Some(at);
        }
        out
    }

    /// The node is lost, maybe with the taint.
    pub fn lost(&mut self, fact: &NodeFact, story: &mut Story) {
        if let Some(set) = self.set.filter(|_| fact.out_of_service) {
            story.fenced_before(set);
            // One that an earlier loss left behind is of that loss.
            if self.of != TaintOf::Loss {
                self.of = TaintOf::Loss;
                self.loss = Some(story.key.clone());
            }
        }
        self.not_left();
    }

    /// The taint goes with the node's object.
    pub fn deleted(self, at: Moment) -> Option<Output> {
        Some(phase(self.loss?, self.set?, at))
    }

    /// The loss is now known by another transition.
    pub fn moved(&mut self, from: Wall, to: &LossKey) {
        if let Some(loss) = self.loss.as_mut().filter(|loss| loss.transition == from) {
            *loss = to.clone();
        }
    }

    pub const fn is_set(&self) -> bool {
        self.set.is_some()
    }

    /// A ready node has it.
    pub const fn is_left_behind(&self) -> bool {
        self.left_behind.is_some()
    }

    /// An alarm about a taint that a ready node has had for that long, once.
    pub fn alarm(&mut self, node: &Arc<NodeIdentity>, now: Boot, stuck_after: Duration) -> Option<Output> {
        let waited = now.since(self.left_behind?.at);
        if waited < stuck_after || std::mem::replace(&mut self.is_alarmed, true) {
            return None;
        }
        let verdict = sentence::left_behind(node, self.of, waited);
        Some(alarms::alarm(node, None, now, (Advice::Unfence, verdict)))
    }

    const fn not_left(&mut self) {
        self.left_behind = None;
        self.is_alarmed = false;
    }
}

fn phase(key: LossKey, begin: Moment, end: Moment) -> Output {
    Output::NodePhase(Box::new(NodePhase {
        key,
        kind: PhaseKind::OutOfService,
        begin,
        end,
        boot: None,
        unwatched: None,
    }))
}
