//! Which terminations the Kubernetes Events of their pod can change. A list of Events costs the API server what the namespace holds,
//! and a bad rollout terminates pods by the thousand: Events are requested only where kernel and status leave a question open.
//!
//! - Why did the runtime stop the container? Only the kubelet's Event names a probe, or a change of the definition. A deletion
//!   request before the stop signal is an answer, and so is the pod's own reason. A process that nothing stopped needs no answer.
//! - Who asked for a shorter grace period than the pod's own, at which the runtime killed a process? Only an Event names a controller.
//! - How did the preStop hook end? Only an Event reports a failure of a hook whose process was not observed.

use crate::event::{ExitStatus, Kind};
use crate::ids::PodUid;
use crate::kubernetes::{PodContext, Request};
use crate::ledger::{Claim, MissingEvidence};
use crate::pod::{PodEventsState, PreStop};
use crate::termination::{Actor, Role, TerminationFacts};
use crate::time::Boot;
use crate::tolerances::{ANNOUNCED, RESOLUTION};

use super::api::Api;
use super::life::Life;
use super::parts::Held;
use super::pod::Pod;
use super::{FromPods, Pods};

impl Pods {
    /// Requests a pod's Events, once for each termination that they can change.
    pub(super) fn request_events(&mut self, key: &PodUid, now: Boot, out: &mut FromPods) {
        let Some(pod) = self.pods.get(key).filter(|pod| !pod.is_ignored()) else {
            return;
        };
        let wanted: Vec<usize> = (0..pod.held.len())
            .filter(|&i| pod.held[i].asked.is_none() && pod.is_open(&pod.held[i], &self.api, now))
            .collect();
        let Some(fact) = pod.fact.as_ref().filter(|_| !wanted.is_empty()) else {
            return;
        };
        out.events.push(fact.pod.clone());
        if let Some(pod) = self.pods.get_mut(key) {
            for i in wanted {
                pod.held[i].asked = Some(now);
            }
        }
    }
}

impl Held {
    pub(super) fn announced_at(&self) -> Option<Boot> {
        self.asked.map(|at| at.plus(ANNOUNCED))
    }
}

impl Pod {
    /// For a termination that cannot wait even for the announcement: nobody has answered.
    pub(super) fn note_unanswered(&mut self, held: &Held, now: Boot) {
        let asked = held.asked.filter(|at| now < at.plus(ANNOUNCED));
        let is_newer = |at: &Boot| self.events.state.as_ref().is_none_or(|(seen, _)| seen < at);
        if let Some(at) = asked.filter(is_newer) {
            self.events.state = Some((at, PodEventsState::Asked));
        }
    }

    /// False until the status reports the exit: the Events follow the status.
    fn is_open(&self, held: &Held, api: &Api, now: Boot) -> bool {
        if !self.is_reported(&held.id) {
            return false;
        }
        let life = Life::of(&held.facts, &held.id);
        let Some(context) = self.context(api, &life, None, now) else {
            return false;
        };
        is_hook_open(&context, &life) || is_asker_open(&context, held) || self.is_cause_open(&context, held)
    }

    fn is_cause_open(&self, context: &PodContext, held: &Held) -> bool {
        let facts = &held.facts;
        let stopped = stopped_at(facts);
        let may_have_missed = may_have_missed_a_stop(&facts.missing) || self.may_be_stopped_before(held);
        let is_clean = facts.exit.is_some_and(|exit| exit.status == ExitStatus::Exited(0));
        match &context.request {
            Some(request) => {
                // Clocks that were not compared do not show which came first; the watch does.
                let seen = self.object.deletion.map_or(request.latest, |(_, seen)| seen);
                let latest = request.skew.map_or(seen, |_| request.latest);
                let known_from = if is_clean { request.earliest } else { latest };
                stopped.is_some_and(|at| at < known_from) || stopped.is_none() && may_have_missed && !is_clean
            }
            // It completed.
            None if is_clean && stopped.is_none() => false,
            None => {
                // A hook can end the main process, before any stop signal.
                let has_hook = context.container.as_deref().and_then(|name| self.spec(name));
                let has_hook = has_hook.is_some_and(|spec| spec.pre_stop.is_some());
                let has_reason = !self.was_succeeded(&held.id) && self.has_reason();
                // Also in place, which a status names, unless the stop may have come before that.
                let has_reason = has_reason || self.is_stopped_in_place(&Life::of(facts, &held.id));
                (stopped.is_some() || may_have_missed || has_hook) && !has_reason
            }
        }
    }
}

/// A force delete needs no name: nothing is set to 0 by mistake.
fn is_asker_open(context: &PodContext, held: &Held) -> bool {
    let is_short = |request: &Request| request.cut_short().is_some() && !request.grace.is_zero();
    let is_killed = held.facts.runtime_kill().is_some();
    is_killed && context.request.as_ref().is_some_and(is_short)
}

/// A hook with a known end, a sleep that was slept, and a hook that outlived the main process are judged without the Event.
fn is_hook_open(context: &PodContext, life: &Life) -> bool {
    let Some(run) = context
        .pre_stop
        .as_ref()
        .filter(|run| run.status.is_none() && life.stop.is_some())
    else {
        return false;
    };
    match run.hook {
        PreStop::Sleep { seconds } => {
            let slept = run.begin.zip(run.end).map(|(begin, end)| end.since(begin) + RESOLUTION / 2);
            slept.is_none_or(|slept| slept.as_secs() < seconds)
        }
        PreStop::Exec { .. } | PreStop::HttpGet { .. } | PreStop::TcpSocket { .. } => true,
    }
}

/// The first signal from outside that stopped or killed the container; None if nothing did.
fn stopped_at(facts: &TerminationFacts) -> Option<Boot> {
    let is_outside = |sender: &Actor| matches!(sender.role, Role::Runtime | Role::Other);
    // A repeated stop signal may be the runtime's.
    let stop = facts
        .stop
        .as_ref()
        .filter(|stop| is_outside(&stop.sender) || stop.repeated > 0);
    let kill = facts.kill.as_ref().filter(|kill| is_outside(&kill.sender));
    let fatal = facts.fatal.as_ref().filter(|fatal| is_outside(&fatal.sender));
    let times = [
        stop.map(|stop| stop.at),
        kill.map(|kill| kill.at),
        fatal.map(|fatal| fatal.at),
    ];
    times.into_iter().flatten().min()
}

/// But for [`Pod::may_be_stopped_before`].
pub(super) fn may_have_missed_a_stop(missing: &MissingEvidence) -> bool {
    missing.lacks(Claim::Main, Kind::SignalGenerate) || missing.has_any(Claim::WhichMain)
}
