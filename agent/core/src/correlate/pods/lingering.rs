//! Pods that are still `Terminating` although no container of them runs: what holds them, by what the kernel and the API show.

use super::api::Api;
use super::event::FAILED;
use super::parts::Container;
use super::pod::Pod;
use crate::kubernetes::{FailedKill, HeldFacts, Sandbox};
use crate::pod::{ContainerState, PodEventsState};
use crate::report::PodHeld;
use crate::time::Boot;
use crate::tolerances::{FRESH_EVENT, LINGERS, LISTED_BEFORE, RESOLUTION};
use crate::verdict::held::{HeldBy, judge_held};

/// What is reported of one pod, at most: each layer once, as it goes on.
const REPORTS: u8 = HeldBy::ALL.len() as u8;

impl Pod {
    /// When to list the pod's Events for this; None: never, or already done.
    pub(super) fn held_asks_at(&self) -> Option<Boot> {
        let since = self.lingers_since().filter(|_| self.object.lingering.asked.is_none())?;
        Some(since.plus(LINGERS - LISTED_BEFORE))
    }

    /// When to look what holds it.
    pub(super) fn held_at(&self) -> Option<Boot> {
        let since = self.lingers_since()?;
        match self.object.lingering.reported {
            None => Some(since.plus(LINGERS)),
            // At the end of time there is no later look.
            Some((_, at)) if self.object.lingering.count < REPORTS => Some(at.plus(LINGERS)).filter(|next| *next > at),
            Some(_) => None,
        }
    }

    pub(super) fn held_asked(&mut self, now: Boot) {
        self.object.lingering.asked = Some(now);
    }

    /// What holds it now; None if that was reported before.
    pub(super) fn held_now(&mut self, now: Boot, api: &Api) -> Option<PodHeld> {
        let facts = self.held_facts(now, api)?;
        let verdict = judge_held(&facts);
        let by = verdict.row.by;
        let is_new = self.object.lingering.reported.is_none_or(|(known, _)| known != by);
        self.object.lingering.reported = Some((by, now));
        self.object.lingering.count += u8::from(is_new);
        is_new.then_some(PodHeld { facts, verdict })
    }

    /// Since when nothing of the pod runs, and its object is still there; None while something runs, or may run.
    fn lingers_since(&self) -> Option<Boot> {
        let fact = self.fact.as_ref().filter(|fact| fact.deletion.is_some())?;
        let requested = self.object.lingering.requested?;
        let may_run = self.containers.iter().any(|of| !of.is_sandbox && of.runs()) || self.runs_unseen();
        if fact.pod.is_static || self.object.gone.is_some() || may_run || !self.held.is_empty() {
            return None;
        }
        Some(self.object.lingering.last_exit.map_or(requested, |exit| exit.max(requested)))
    }

    fn held_facts(&self, now: Boot, api: &Api) -> Option<HeldFacts> {
        let (fact, requested) = (self.fact.as_ref()?, self.object.lingering.requested?);
        self.lingers_since()?;
        // The status, the exit of the sandbox or an Event that says otherwise may be in the missing part.
        let is_whole = !api.is_part_missing(requested, now);
        // By the kernel none does: see `lingers_since`.
        let unreported = fact
            .containers
            .iter()
            .filter(|status| status.state == ContainerState::Running && is_whole);
        let sandboxes = || self.containers.iter().filter(|of| of.is_sandbox);
        let sandbox = match (sandboxes().any(Container::runs), fact.has_sandbox) {
            // The record of its exit may be lost.
            (_, Some(false)) => Sandbox::Gone,
            _ if !is_whole => Sandbox::Unknown,
            (true, _) => Sandbox::Runs,
            (false, _) if self.object.lingering.had_sandbox => Sandbox::Gone,
            (false, _) => Sandbox::Unknown,
        };
        let is_later = |seen: &Boot| self.object.lingering.last_exit.is_none_or(|exit| *seen >= exit);
        let listed = match &self.events.state {
            Some((seen, PodEventsState::Known)) if is_whole => Some(*seen).filter(is_later),
            _ => None,
        };
        // Before the deletion the kubelet stops a pod for other reasons.
        let of_deletion = |at: Boot| at.plus(RESOLUTION) >= requested;
        let failed = self
            .events
            .list
            .iter()
            .filter(|(at, event)| is_whole && event.reason == FAILED && of_deletion(*at));
        let failed = failed.max_by_key(|(at, _)| *at).map(|(at, event)| FailedKill {
            at: *at,
            message: event.message.clone(),
            is_fresh: at.plus(FRESH_EVENT) >= event.seen,
        });
        Some(HeldFacts {
            pod: fact.pod.clone(),
            at: now,
            requested,
            last_exit: self.object.lingering.last_exit,
            unreported: unreported.map(|status| status.name.clone()).collect(),
            sandbox,
            failed,
            are_events_known: listed.is_some(),
            claims: fact.spec.claims.clone(),
            finalizers: fact.finalizers.clone(),
            is_released: fact.deletion.is_some_and(|deletion| deletion.grace.is_zero()),
        })
    }
}
