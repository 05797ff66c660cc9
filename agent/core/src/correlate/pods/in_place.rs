//! A pod that restarts in place (KEP-5532): one container exits with a code of its restart rules, and the kubelet ends and removes all
//! others and starts all again, in the same pod and sandbox. The removed containers have no status any more: `lastState` has 137
//! and the reason `RestartingAllContainers` for each, without an id. The container that began it keeps its id until it starts again.

use crate::ids::ContainerId;
use crate::kubernetes::{Detail, StopReason};
use crate::pod::{ContainerState, ContainerStatus, Ended, PodFact, RESTARTING, RestartAction, RestartRule};
use crate::time::Boot;
use crate::tolerances::HOLD;
use crate::verdict::Cause;

use super::api::Api;
use super::event;
use super::life::{Life, was_stopped};
use super::open::may_have_missed_a_stop;
use super::parts::{Held, Named, Trigger};
use super::pod::Pod;

/// Most triggers that are kept: of one restart, seldom two.
const TRIGGERS: usize = 4;
/// Evidence of an unknown reason.
const STOPPED_BEFORE: &str =
    "no record shows that the stop signal came after the exit that began the restart of the pod in place";

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
            .max_by_key(|(_, named)| named.order())
            // Lives in between, which no version showed, may have ended otherwise.
            .filter(|(_, named)| status.restarts <= named.restarts + 1);
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
    pub(super) fn note_trigger(&mut self, id: &ContainerId, name: &str, code: i32, at: Boot) {
        if self.action(name, code) != Some(RestartAction::RestartAllContainers) {
            return;
        }
        self.keep_trigger(Trigger {
            at,
            by_kernel: false,
            id: id.clone(),
            name: name.to_owned(),
            code,
        });
    }

    /// One of each life, by the kernel's record if there is one.
    pub(super) fn keep_trigger(&mut self, trigger: Trigger) {
        if let Some(known) = self.triggers.iter_mut().find(|of| of.id == trigger.id) {
            if trigger.by_kernel {
                *known = trigger;
            }
            return;
        }
        if self.triggers.len() >= TRIGGERS {
            self.triggers.pop_front();
        }
        self.triggers.push_back(trigger);
    }

    /// What the rules of a container say of an exit code.
    pub(super) fn action(&self, name: &str, code: i32) -> Option<RestartAction> {
        self.spec(name)?.rule(code).map(|rule| rule.action)
    }

    /// Why the kubelet ended this life of a container, if it was to restart the pod in place; also of the one that began it. Unknown where
    /// the stop may have been for another reason: the kubelet removes also what it has stopped before.
    pub(super) fn stop_reason_in_place(&self, life: &Life, api: &Api) -> Option<StopReason> {
        let named = self.names.get(&life.id).filter(|named| named.in_place)?;
        let is_trigger = self.is_trigger(life);
        // Its stop signal may be hidden.
        let may_be_trigger = !life.stop_requested && self.has_code_of_trigger(life);
        // Another exit of its own, at the same time: nobody ended that one.
        if !life.stop_requested && !may_be_trigger {
            return None;
        }
        let began = Began::of(self, life);
        let is_certain = match began.order {
            _ if may_be_trigger => is_trigger,
            Order::Before => true,
            Order::Open => self.knows_events(life, api),
            Order::After | Order::OwnOrOpen => false,
        };
        Some(match is_certain {
            true => StopReason {
                cause: Cause::RestartInPlace,
                evidence: format!("lastState.reason={RESTARTING}"),
                detail: began.detail(named),
            },
            false => event::reason(Cause::Unknown, STOPPED_BEFORE.to_owned()),
        })
    }

    /// Its own exit began the restart.
    fn is_trigger(&self, life: &Life) -> bool {
        !life.stop_requested && life.hidden_stops.is_empty() && self.has_code_of_trigger(life)
    }

    fn has_code_of_trigger(&self, life: &Life) -> bool {
        let name = self.names.get(&life.id).map(|named| named.name.as_str());
        let action = life.code.zip(name).and_then(|(code, name)| self.action(name, code));
        action == Some(RestartAction::RestartAllContainers)
    }

    /// The same, and where its exit is not known.
    fn may_have_code_of_trigger(&self, life: &Life) -> bool {
        let spec = || self.spec(&self.names.get(&life.id)?.name);
        let is_trigger = |rule: &RestartRule| rule.action == RestartAction::RestartAllContainers;
        let may_be = || spec().is_some_and(|spec| spec.restart_rules.iter().any(is_trigger));
        self.has_code_of_trigger(life) || life.code.is_none() && may_be()
    }

    /// Which container began the restart that ended this life, and with which code.
    pub(super) fn trigger(&self, life: &Life) -> Option<Detail> {
        Began::of(self, life).detail(self.names.get(&life.id)?)
    }

    /// Whether the kernel shows that the exit which began the restart came before the stop.
    pub(super) fn is_stopped_in_place(&self, life: &Life) -> bool {
        let is_ended = life.stop_requested || self.is_trigger(life);
        let is_in_place = self.names.get(&life.id).is_some_and(|named| named.in_place);
        is_in_place && is_ended && Began::of(self, life).order == Order::Before
    }

    /// By the kernel's record, which is there before any status.
    pub(super) fn trigger_of(&self, held: &Held) -> Option<Trigger> {
        let named = self.names.get(&held.id)?;
        let may_be_stopped = was_stopped(&held.facts) || may_have_missed_a_stop(&held.facts.missing);
        let exit = held.facts.exit.filter(|_| !may_be_stopped)?;
        let code = exit.status.reported_code();
        let is_trigger = self.action(&named.name, code) == Some(RestartAction::RestartAllContainers);
        is_trigger.then(|| Trigger {
            at: exit.at,
            by_kernel: true,
            id: held.id.clone(),
            name: named.name.clone(),
            code,
        })
    }

    /// A container whose exit began a restart, unless the pod's deletion was requested before: what the next start led to only the status shows.
    pub(super) fn restart_due(&self, held: &[Held]) -> Option<String> {
        let is_asked = |end: Boot| self.object.deletion.is_some_and(|(_, seen)| seen <= end);
        let mut due = held.iter().filter(|of| !is_asked(of.facts.end));
        due.find_map(|of| self.trigger_of(of)).map(|trigger| trigger.name)
    }

    /// The kubelet removed the container to restart the pod, and did not start it again: what its status says is about the life that ended.
    pub(super) fn is_still_removed(&self, status: &ContainerStatus) -> bool {
        let lives = self.names.values().filter(|named| named.name == status.name);
        status.id.is_none() && lives.max_by_key(|named| named.order()).is_some_and(|last| last.in_place)
    }
}

/// What began the restart that ended one life.
struct Began {
    by: Option<Trigger>,
    order: Order,
}

/// When it began, compared with the stop signal of that life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// By the kernel's records.
    Before,
    After,
    /// Only a status shows it, or nothing.
    Open,
    /// The same where its own exit may have begun it, which came after its stop.
    OwnOrOpen,
}

impl Began {
    fn of(pod: &Pod, life: &Life) -> Began {
        let held: Vec<Trigger> = pod.held.iter().filter_map(|held| pod.trigger_of(held)).collect();
        let is_other = |of: &&Trigger| held.iter().all(|known| known.id != of.id);
        let end = life.end.unwrap_or(Boot(u64::MAX));
        let is_in_time = |of: &&Trigger| {
            let until = if of.by_kernel { end } else { end.plus(HOLD) };
            Some(of.at) >= life.start && of.at <= until
        };
        // The exit of what was stopped is not why it was stopped.
        let is_possible = |of: &&Trigger| is_in_time(of) && !(life.stop_requested && of.id == life.id);
        let known: Vec<&Trigger> = pod
            .triggers
            .iter()
            .filter(is_other)
            .chain(&held)
            .filter(is_possible)
            .collect();
        let latest = |of: &dyn Fn(&Trigger) -> bool| known.iter().copied().filter(|trigger| of(trigger)).max_by_key(|of| of.at);
        let Some(stop) = life.stop else {
            // The record of a stop may be lost: only its own exit shows that there was none.
            let order = match pod.may_have_code_of_trigger(life) {
                true if life.stop_requested => Order::OwnOrOpen,
                true => Order::Before,
                false => Order::Open,
            };
            let by = latest(&|of| of.id == life.id).or_else(|| latest(&|_| true));
            return Began { by: by.cloned(), order };
        };
        let before = latest(&|of| of.by_kernel && of.at <= stop);
        let after = latest(&|of| of.by_kernel && of.at > stop);
        // Of several nothing shows which came first.
        let mut statuses = known.iter().copied().filter(|of| !of.by_kernel);
        let open = statuses.next().filter(|_| statuses.next().is_none());
        let (by, order) = match (before, after, open) {
            (Some(before), _, _) => (Some(before), Order::Before),
            (None, Some(_), _) => (None, Order::After),
            (None, None, open) if pod.may_have_code_of_trigger(life) => (open, Order::OwnOrOpen),
            (None, None, open) => (open, Order::Open),
        };
        Began { by: by.cloned(), order }
    }

    fn detail(self, own: &Named) -> Option<Detail> {
        let by = self.by?;
        Some(Detail::Trigger {
            is_itself: own.name == by.name,
            container: by.name,
            code: by.code,
        })
    }
}

/// The kubelet removed the container, and has not started the next.
fn is_removed(state: &ContainerState) -> bool {
    matches!(state, ContainerState::Waiting { reason } if reason.as_deref() == Some(RESTARTING))
}
