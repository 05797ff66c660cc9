//! A shutdown that logind has scheduled: cancelled before its time, or blocked at its time.

use super::NodeMachine;
use super::parts::{FromNode, Plan, TEXT};
use crate::node::{Inhibitor, ScheduledShutdown, ShutdownKind};
use crate::shutdown::Ending;
use crate::text::bounded;
use crate::time::Boot;
use crate::tolerances::{PLAN_BEGINS, PLAN_LATE};

/// In front of a type: nothing will happen.
const DRY: &str = "dry-";

impl NodeMachine {
    pub(super) fn scheduled(&mut self, now: Boot, shutdown: Option<ScheduledShutdown>) {
        let in_progress = self.is_shutting_down();
        match shutdown.filter(|plan| !plan.kind.starts_with(DRY)) {
            Some(plan) if !in_progress => {
                let plan = ScheduledShutdown {
                    kind: bounded(&plan.kind, TEXT).into_owned(),
                    ..plan
                };
                let is_same = self
                    .plan
                    .as_ref()
                    .is_some_and(|known| known.plan == plan && known.dropped.is_none());
                if !is_same {
                    self.plan = Some(Plan {
                        plan,
                        seen: now,
                        dropped: None,
                        was_blocked: false,
                    });
                }
            }
            Some(_) => {}
            None => {
                if let Some(plan) = &mut self.plan {
                    plan.dropped.get_or_insert(now);
                }
            }
        }
    }

    pub(super) fn plan_due(&mut self, now: Boot, out: &mut FromNode) {
        let Some(plan) = &self.plan else { return };
        let due = self.clock.boot(plan.plan.at);
        let blocked =
            due.plus(PLAN_LATE) <= now && self.locks.as_ref().is_some_and(|locks| locks.iter().any(Inhibitor::blocks));
        let dropped = plan.dropped.filter(|at| at.plus(PLAN_BEGINS) <= now);
        if self.open.is_some() || plan.was_blocked && dropped.is_none() {
            return;
        }
        if blocked && !plan.was_blocked {
            self.planned(due, None, now, out);
            if let Some(plan) = &mut self.plan {
                plan.was_blocked = true;
            }
        } else if let Some(dropped) = dropped {
            if !plan.was_blocked {
                self.planned(plan.seen, Some(dropped), dropped, out);
            }
            self.plan = None;
        }
    }

    /// A shutdown that did not begin.
    fn planned(&mut self, begin: Boot, cancelled: Option<Boot>, now: Boot, out: &mut FromNode) {
        let mut open = self.begin(begin);
        open.wants_pods = false;
        if let Some(plan) = &self.plan {
            open.facts.kind = ShutdownKind::parse(&plan.plan.kind);
            open.facts.signs.scheduled = Some((plan.plan.clone(), plan.seen));
        }
        open.facts.signs.cancelled = cancelled;
        self.open = Some(open);
        let last = self.last.take();
        self.close(now, Ending::Continued, out);
        self.last = last;
    }
}
