//! A pod that restarts in place (KEP-5532): one container exits with a code of its restart rules, and the kubelet ends and removes all
//! others and starts all again, in the same pod and sandbox. The removed containers have no status any more: `lastState` has 137
//! and the reason `RestartingAllContainers` for each, without an id. The container that began it keeps its id until it starts again.

use crate::ids::ContainerId;
use crate::kubernetes::{Detail, StopReason};
use crate::pod::{ContainerState, ContainerStatus, Ended, PodFact, RESTARTING, RestartAction};
use crate::time::Boot;
use crate::tolerances::HOLD;
use crate::verdict::Cause;

use super::life::{Life, was_stopped};
use super::parts::{Held, Named, Trigger};
use super::pod::Pod;

/// Most triggers that are kept: of one restart, seldom two.
const TRIGGERS: usize = 4;

impl Pod {
    /// A status without the exit of the container that it replaces: of which life, and that the kubelet ended that to restart the pod.
    pub(super) fn restarted_in_place(&mut self, status: &ContainerStatus, fact: &PodFact) {
        if !self.is_new_restart(status, fact) {
            return;
        }
        let of_name = |named: &Named| named.name == status.name && !named.in_place;
        // The container that began it keeps its id until it is started again.
        let is_of_next = |id: &ContainerId| status.id.as_ref() == Some(id) && !is_removed(&status.state);
        let earlier = self
            .names
            .iter_mut()
            .filter(|(id, named)| of_name(named) && !is_of_next(id))
            .max_by_key(|(_, named)| named.order());
        let (Some((_, named)), Some(last)) = (earlier, &status.last) else {
            return;
        };
        named.in_place = true;
        named.report(last, fact.seen);
        named.succeeded_at.get_or_insert(fact.seen);
    }

    /// The kubelet keeps the last state until another exit replaces it: also over a later restart for another reason.
    fn is_new_restart(&self, status: &ContainerStatus, fact: &PodFact) -> bool {
        if !status.last.as_ref().is_some_and(Ended::is_placeholder) {
            return false;
        }
        let known = self.fact.as_ref().filter(|known| known.pod.uid == fact.pod.uid);
        let before = known.and_then(|known| known.containers.iter().find(|of| of.name == status.name));
        let Some(before) = before else { return false };
        let is_announced = fact.restarting || known.is_some_and(|known| known.restarting);
        let had_other = !before.last.as_ref().is_some_and(Ended::is_placeholder);
        had_other || before.restarts < status.restarts && (is_removed(&status.state) || is_announced)
    }

    /// A status with the exit of its container, before the kubelet writes its placeholder over it.
    pub(super) fn note_trigger(&mut self, name: &str, code: i32, at: Boot) {
        if self.action(name, code) != Some(RestartAction::RestartAllContainers) {
            return;
        }
        self.keep_trigger(Trigger {
            at,
            name: name.to_owned(),
            code,
        });
    }

    /// One of each container, the latest.
    pub(super) fn keep_trigger(&mut self, trigger: Trigger) {
        self.triggers.retain(|of| of.name != trigger.name);
        if self.triggers.len() >= TRIGGERS {
            self.triggers.pop_front();
        }
        self.triggers.push_back(trigger);
    }

    /// What the rules of a container say of an exit code.
    pub(super) fn action(&self, name: &str, code: i32) -> Option<RestartAction> {
        self.spec(name)?.rule(code).map(|rule| rule.action)
    }

    /// Why the kubelet ended this life of a container, if it was to restart the pod in place; also of the one that began it.
    pub(super) fn stop_reason_in_place(&self, life: &Life) -> Option<StopReason> {
        let named = self.names.get(&life.id).filter(|named| named.in_place)?;
        let own = life.code.filter(|_| !life.stop_requested);
        let is_trigger = own.is_some_and(|code| self.action(&named.name, code) == Some(RestartAction::RestartAllContainers));
        // Another exit of its own, at the same time: nobody ended that one.
        (life.stop_requested || is_trigger).then(|| StopReason {
            cause: Cause::RestartInPlace,
            evidence: format!("lastState.reason={RESTARTING}"),
            detail: self.trigger(life),
        })
    }

    /// Which container began the restart that ended this life, and with which code.
    pub(super) fn trigger(&self, life: &Life) -> Option<Detail> {
        let of_kernel = self.held.iter().filter_map(|held| self.trigger_of(held));
        let until = life.end.unwrap_or(Boot(u64::MAX)).plus(HOLD);
        let latest = of_kernel
            .chain(self.triggers.iter().cloned())
            .filter(|of| of.at <= until && Some(of.at) >= life.start)
            .max_by_key(|of| of.at)?;
        let own = self.names.get(&life.id).map(|named| named.name.as_str());
        Some(Detail::Trigger {
            is_itself: own == Some(latest.name.as_str()),
            container: latest.name,
            code: latest.code,
        })
    }

    /// By the kernel's record, which is there before any status.
    pub(super) fn trigger_of(&self, held: &Held) -> Option<Trigger> {
        let named = self.names.get(&held.id)?;
        let exit = held.facts.exit.filter(|_| !was_stopped(&held.facts))?;
        let code = exit.status.reported_code();
        let is_trigger = self.action(&named.name, code) == Some(RestartAction::RestartAllContainers);
        is_trigger.then(|| Trigger {
            at: exit.at,
            name: named.name.clone(),
            code,
        })
    }

    /// The kubelet removed the container to restart the pod, and did not start it again: what its status says is about the life that ended.
    pub(super) fn is_still_removed(&self, status: &ContainerStatus) -> bool {
        let lives = self.names.values().filter(|named| named.name == status.name);
        status.id.is_none() && lives.max_by_key(|named| named.order()).is_some_and(|last| last.in_place)
    }

    /// Whether an earlier life of the id was ended that way.
    pub(super) fn is_in_place(&self, id: &ContainerId) -> bool {
        self.names.get(id).is_some_and(|named| named.in_place)
    }
}

/// The kubelet removed the container, and has not started the next.
fn is_removed(state: &ContainerState) -> bool {
    matches!(state, ContainerState::Waiting { reason } if reason.as_deref() == Some(RESTARTING))
}
