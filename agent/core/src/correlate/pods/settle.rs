//! When enough is known of a container's or pod's termination to judge and report it, and what is reported if the wait expires.

use std::sync::Arc;
use std::time::Duration;

use crate::event::ExitStatus;
use crate::ids::CgroupId;
use crate::ids::ContainerId;
use crate::kubernetes::{PodContext, PodTerminationFacts, Reported, Request, Unshown};
use crate::ledger::Claim;
use crate::pod::{ContainerKind, ContainerState, PodEventsState};
use crate::report::{PodTermination, Termination};
use crate::time::Boot;
use crate::tolerances::{
    ALIVE_AFTER_GONE, DEFAULT_GRACE, EVENTS_AFTER, EXIT_LOST, HOLD, HOLD_AWAY, KEEP_FINISHED, OVERDUE, PHASE_AFTER,
    TERMINAL_AFTER, WATCH_DELAY,
};
use crate::verdict::{self, Cause, Exit};

use super::Limits;
use super::api::{Api, PART_MISSING};
use super::life::{Life, was_stopped};
use super::parts::{Container, Held};
use super::pod::{EARLIER, Pod, kind};
use super::stop_reason::{INTERRUPTED, may_be_by_shutdown};

/// Most ids of reported containers that are kept per pod.
const REPORTED_IDS: usize = 64;

/// The next step for a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait until that time; None: until the pod changes.
    Wait(Option<Boot>),
    /// Report one held termination separately, with the reason why it may be incomplete.
    Release(usize, Option<String>),
    /// Report that a container still runs.
    Overdue(CgroupId),
    /// List the Events of a pod of which nothing runs any more.
    AskHeld,
    /// Report what holds it.
    Held,
    /// Report the pod's termination.
    Finish,
    /// Nothing about the pod is needed any more.
    Forget,
}

impl Pod {
    pub fn step(&self, api: &Api, limits: &Limits, now: Boot) -> Step {
        let mut next = Next { now, at: None };
        for of in &self.containers {
            if next.is_due_if(self.overdue_at(of)) {
                return Step::Overdue(of.cgroup);
            }
        }
        if !self.is_ending() || self.object.reported.is_some() {
            for (i, held) in self.held.iter().enumerate() {
                let (until, missing) = self.release_at(held, api);
                if next.is_due(self.answered_for(held, until)) {
                    return Step::Release(i, missing);
                }
            }
        } else {
            // That was not a termination of the pod, despite later requests.
            let earlier = self.held.iter().position(|held| self.was_succeeded(&held.id));
            let is_over = next.is_due_if(self.finish_at(api, limits).map(|at| self.answered(at)));
            if let Some(i) = earlier
                && (is_over || next.is_due(self.answered_for(&self.held[i], self.release_at(&self.held[i], api).0)))
            {
                return Step::Release(i, None);
            }
            if is_over {
                return Step::Finish;
            }
        }
        // What the API shows is of before.
        if api.away_since.is_none() {
            if next.is_due_if(self.held_asks_at()) {
                return Step::AskHeld;
            }
            if next.is_due_if(self.held_at()) {
                return Step::Held;
            }
        }
        let is_over = match &self.fact {
            Some(_) => self.object.gone.is_some() && (self.object.reported.is_some() || self.is_static()),
            None => true,
        };
        let is_idle = self.held.is_empty() && !self.containers.iter().any(|of| of.is_alive(limits, now));
        if is_over && is_idle && next.is_due(self.touched.plus(KEEP_FINISHED)) {
            return Step::Forget;
        }
        Step::Wait(next.at)
    }

    /// When to report that a container still runs although its pod was deleted. From the stop signal on: before Kubernetes 1.28 the
    /// kubelet gives the whole grace period again after the hook.
    fn overdue_at(&self, of: &Container) -> Option<Boot> {
        let (deletion, seen) = self.object.deletion?;
        // Not every kubelet follows a later delete: the longest grace period of all requests counts.
        let graces = self.object.shortened.iter().copied().chain([(seen, deletion.grace)]);
        // If the status shows an exit, the record of the exit was lost.
        let is_over = self.object.gone.is_some() || self.is_reported(&of.id);
        let runs = of.ended.is_none() && of.removed.is_none() && !of.is_sandbox && !of.was_overdue && !is_over;
        let stopped = of.stopped.filter(|_| runs)?;
        let until = graces.map(|(seen, grace)| stopped.max(seen).plus(grace)).max()?;
        Some(until.plus(OVERDUE))
    }

    /// While the request for Events is open, as late as the request allows: only Events name some causes.
    fn answered(&self, until: Boot) -> Boot {
        let announced = self.held.iter().filter_map(Held::announced_at).max();
        let until = announced.map_or(until, |at| until.max(at));
        match &self.events.state {
            Some((asked, PodEventsState::Asked)) => until.max(asked.plus(HOLD)),
            _ => until,
        }
    }

    /// The same for one termination: a clean exit without a stop needs no explanation, unless the stop may have been before the
    /// observation.
    fn answered_for(&self, held: &Held, until: Boot) -> Boot {
        let exit = held.facts.exit.as_ref().map(|exit| exit.status);
        match (&held.facts.stop, exit) {
            (None, Some(ExitStatus::Exited(0))) if !self.may_be_stopped_before(held) => until,
            _ => self.answered(until),
        }
    }

    /// The observation began so late that a stop signal may have come before.
    pub(super) fn may_be_stopped_before(&self, held: &Held) -> bool {
        let missing = &held.facts.missing;
        let mut stops = missing.of(Claim::NoStop).filter_map(|hole| hole.to);
        stops.any(|since| !self.is_long_before(since, held.facts.end))
    }

    /// When a held termination of a pod that continues is reported separately, even if incomplete.
    fn release_at(&self, held: &Held, api: &Api) -> (Boot, Option<String>) {
        let hold = if api.away_since.is_some() { HOLD_AWAY } else { HOLD };
        if self.fact.is_none() {
            return (held.since.plus(hold), None);
        }
        let Some(named) = self.names.get(&held.id) else {
            return (held.since.plus(hold), None);
        };
        if self.object.reported.is_some() {
            return (held.since.plus(EVENTS_AFTER), None);
        }
        if let Some(at) = named.succeeded_at {
            return (at.max(held.since).plus(EVENTS_AFTER), None);
        }
        let Some(reported) = &named.reported else {
            // A container that is never restarted mostly terminates with its pod: a separate report would never get the Kubernetes context.
            let never = self.restarts_after(Some(&named.name), 1) == Some(false);
            let hold = if never { HOLD_AWAY } else { hold };
            let missing = format!("the pod's status did not report the exit within {} s", hold.as_secs());
            return (held.since.plus(hold), Some(missing));
        };
        let shown = named.reported_at.map_or(held.since, |at| at.max(held.since));
        match self.kind(&held.id) {
            Some(ContainerKind::Init | ContainerKind::Ephemeral) if reported.exit_code == 0 => (shown.plus(EVENTS_AFTER), None),
            // A restart would follow, or there would be no stop: the whole pod is being stopped (the kubelet's own evictions show this
            // only when all of the pod has terminated), which takes up to the grace period.
            _ if self.restarts_after(Some(&named.name), reported.exit_code) == Some(true) || was_stopped(&held.facts) => {
                let grace = self.fact.as_ref().and_then(|fact| fact.spec.grace).unwrap_or(DEFAULT_GRACE);
                (shown.plus(grace).plus(hold), None)
            }
            // No container runs or will run: the phase follows once the kubelet has removed the pod.
            _ if self.all_reported() && self.restarts_after(Some(&named.name), reported.exit_code) == Some(false) => {
                (shown.plus(PHASE_AFTER), None)
            }
            _ => (shown.plus(hold), None),
        }
    }

    /// When the pod's termination is reported; None while containers run and no evidence shows a stop.
    fn finish_at(&self, api: &Api, limits: &Limits) -> Option<Boot> {
        let last_held = self.held.iter().map(|held| held.since).max();
        let mut alive_until = None;
        for of in self.containers.iter().filter(|of| !of.is_sandbox && of.ended.is_none()) {
            let by_removal = of.over_at(limits);
            let named = self.names.get(&of.id);
            let by_report = named.and_then(|named| named.reported_at).map(|at| at.plus(EXIT_LOST));
            let by_absence = self.object.gone.as_ref().map(|gone| {
                let grace = self.object.deletion.map_or(Duration::ZERO, |(deletion, _)| deletion.grace);
                gone.seen.plus(grace).plus(ALIVE_AFTER_GONE)
            });
            let first = || [by_removal, by_report, by_absence].into_iter().flatten().min();
            // A container that still counts refusals is known to have exited, and will be reported.
            let until = of.counted_until.map(|until| until.plus(limits.reorder)).or_else(first)?;
            alive_until = alive_until.max(Some(until));
        }
        let seen = self.fact.as_ref().map(|fact| fact.seen);
        let hold = if api.away_since.is_some() { HOLD_AWAY } else { HOLD };
        let settled = if let Some(gone) = &self.object.gone {
            last_held.map_or(gone.seen, |last| last.max(gone.seen)).plus(limits.reorder)
        } else if self.is_terminal() && self.all_reported() {
            seen.max(last_held)?.plus(TERMINAL_AFTER)
        } else if self.runs_unseen() {
            // Only the API can show the exit, which takes up to the grace period.
            let grace = self.object.deletion.map_or(DEFAULT_GRACE, |(deletion, _)| deletion.grace);
            seen.max(last_held)?.plus(grace).plus(hold)
        } else {
            seen.max(last_held)?.plus(hold)
        };
        Some(alive_until.map_or(settled, |alive| alive.max(settled)))
    }

    /// The status shows a running container that the kernel has not shown.
    pub(super) fn runs_unseen(&self) -> bool {
        let Some(fact) = &self.fact else { return false };
        fact.containers.iter().any(|status| {
            let is_own = |id: &ContainerId| status.id.as_ref() == Some(id);
            let is_known =
                self.containers.iter().any(|of| is_own(&of.id)) || self.reported_ids.iter().any(|(id, _)| is_own(id));
            status.state == ContainerState::Running && !is_known
        })
    }

    /// One container's termination, with its Kubernetes context.
    pub fn release(&mut self, mut held: Held, api: &Api, missing: Option<String>, now: Boot) -> Termination {
        let cgroup = held.facts.key.cgroup;
        self.note_unanswered(&held, now);
        self.note_reported(held.id.clone(), cgroup);
        self.object.lingering.last_exit = self.object.lingering.last_exit.max(Some(held.facts.end));
        // What it began ends the others, which may be released later.
        if let Some(trigger) = self.trigger_of(&held) {
            self.keep_trigger(trigger);
        }
        let was_succeeded = self.was_succeeded(&held.id);
        // The node's shutdown stops whole pods, also those that are reported before they are finished.
        if held.facts.shutdown.is_some() {
            let request = self.request(api, true).map(|(request, _)| request);
            self.miss_clients_sent_later(&mut held, request.as_ref(), api);
        }
        let termination = self.joined(held, api, missing, now);
        if was_succeeded {
            self.note_earlier(&termination, api);
        }
        // Later containers are placed by those that still run.
        self.containers.retain(|of| of.cgroup != cgroup);
        termination
    }

    /// The pod's termination, with the terminations that waited for it; None if no container terminated with the pod.
    pub fn finish(&mut self, mut held: Vec<Held>, api: &Api, boot_id: &str, now: Boot) -> Option<PodTermination> {
        self.object.reported = Some(now);
        let fact = self.fact.clone()?;
        let missing = self.object.gone.is_none() && !(self.is_terminal() && self.all_reported());
        let missing = missing.then(|| "the API server had not reported the pod as finished".to_owned());
        let mut unseen = self.unseen(&held);
        if unseen.is_empty() && !self.is_terminal() && api.was_away(fact.seen, now).is_some() {
            unseen.extend(self.restart_due(&held).map(|name| (name, None)));
        }
        held.sort_by_key(|held| (held.facts.end, held.facts.key.cgroup));
        let is_shutdown = held.iter().any(|of| of.facts.shutdown.is_some());
        let request = self.request(api, is_shutdown).map(|(request, _)| request);
        for of in &mut held {
            self.miss_clients_sent_later(of, request.as_ref(), api);
        }
        for of in &held {
            if let Some(trigger) = self.trigger_of(of) {
                self.keep_trigger(trigger);
            }
            self.note_unanswered(of, now);
            self.note_reported(of.id.clone(), of.facts.key.cgroup);
        }
        let may_be_over_before = |of: &Held| {
            let life = Life::of(&of.facts, &of.id);
            self.may_be_over_before_deletion(request.as_ref(), &life, api)
        };
        let may_be_over_before = !held.is_empty() && held.iter().all(may_be_over_before);
        let containers: Vec<Termination> = held
            .into_iter()
            .map(|held| self.joined(held, api, missing.clone(), now))
            .collect();
        if containers.is_empty() && unseen.is_empty() {
            self.containers.retain(|of| of.ended.is_none());
            return None;
        }
        let gone = self.object.gone.as_ref().map(|gone| (gone.seen, gone.watched));
        // Of a pod that a node's shutdown stopped, or may have stopped, the API may only show the later deletion.
        let reasons = containers.iter().filter_map(|of| {
            let reason = of.kubernetes.as_ref()?.stop_reason.as_ref()?;
            may_be_by_shutdown(reason, of.shutdown.as_ref()).then_some((&of.shutdown, reason))
        });
        let by_shutdown = reasons.min_by_key(|(_, reason)| reason.cause != Cause::NodeShutdown);
        let (shutdown, by_shutdown) = by_shutdown
            .map(|(shutdown, reason)| (shutdown.clone(), reason.clone()))
            .unzip();
        // What stopped the containers may have come before the deletion, in a version that is missing.
        let by_api = self.stop_reason();
        let stopped_by = |of: &Termination| Some(of.kubernetes.as_ref()?.stop_reason.as_ref()?.cause);
        let is_by_it = |of: &Termination| {
            // The verdict of a container that was OOM-killed during the stop has that cause.
            let causes = [Some(of.verdict.cause), stopped_by(of)];
            by_api.as_ref().is_some_and(|reason| causes.contains(&Some(reason.cause)))
        };
        let may_be_unshown = self.object.lacks_versions || containers.is_empty() && api.may_lack_pods();
        let is_unshown = may_be_unshown && by_api.is_some() && !containers.iter().any(is_by_it);
        // Nor where no container ended by the deletion, and an outage since then hides the kubelet's own reason.
        let is_unexplained = |of: &Termination| stopped_by(of).is_none_or(|cause| cause == Cause::Unknown);
        let was_away = self
            .object
            .deletion
            .is_some_and(|(_, seen)| api.was_away(seen, now).is_some());
        let is_hidden = was_away && !containers.is_empty() && containers.iter().all(is_unexplained);
        let stop_reason = by_shutdown.or_else(|| match (is_unshown, may_be_over_before || is_hidden) {
            (true, _) => Some(self.hidden_stop_reason(PART_MISSING)),
            (false, true) => Some(self.hidden_stop_reason(INTERRUPTED)),
            (false, false) => by_api,
        });
        let last = containers.iter().map(|of| of.end).max();
        self.object.lingering.last_exit = self.object.lingering.last_exit.max(last);
        let request = request.map(|request| request.until(last));
        self.containers.retain(|of| of.ended.is_none());
        let of_hook = |of: &Termination| of.kubernetes.as_ref()?.pre_stop.as_ref()?.begin;
        let evidence = containers.iter().flat_map(|of| [Some(of.begin), of_hook(of)]).flatten();
        // A pod without any other evidence here: only its status.
        let last_update = gone.map_or(fact.seen, |(seen, _)| seen);
        // Nothing else shows a force delete.
        let watched = gone
            .filter(|(_, watched)| *watched && !fact.pod.is_static)
            .map(|(seen, _)| seen);
        // The earliest time: the observer's spans of the same request must not begin before their root.
        let asked_at = request.as_ref().map(|request| request.earliest).or(watched);
        let first = evidence.chain(asked_at).min();
        let end = last.unwrap_or(last_update);
        let facts = PodTerminationFacts {
            pod: fact.pod.clone(),
            boot_id: boot_id.to_owned(),
            stop_reason,
            request,
            begin: first.unwrap_or(end).min(end),
            end,
            unseen,
            earlier: std::mem::take(&mut self.object.earlier),
            gone,
            shutdown: shutdown.flatten(),
        };
        Some(PodTermination::judged(facts, containers))
    }

    fn miss_clients_sent_later(&self, held: &mut Held, request: Option<&Request>, api: &Api) {
        if self.may_be_sent_clients(request, (held.facts.begin, held.facts.end), api) {
            held.facts.traffic.miss_those_sent_later();
        }
    }

    /// Whether Services may have sent clients to the pod after the end of a container that ran from … to. The endpoint of a pod that is
    /// being deleted terminates at once; a later request only removes the object.
    fn may_be_sent_clients(&self, request: Option<&Request>, (begin, end): (Boot, Boot), api: &Api) -> bool {
        // By clocks that were not compared, a request that an outage hid may have come after the end.
        let seen = self.object.deletion.map(|(_, seen)| seen).filter(|seen| *seen > end);
        let is_hidden = seen.is_some_and(|seen| api.was_away(end, seen).is_some());
        let is_asked = request.is_some_and(|request| request.earliest <= end && (request.skew.is_some() || !is_hidden));
        // A force delete.
        let is_removed = self.object.gone.as_ref().is_some_and(|gone| gone.watched && gone.seen <= end);
        if is_asked || is_removed {
            return false;
        }
        let unready = self
            .object
            .ready
            .last
            .map_or(Some(begin), |_| self.object.ready.unready)
            .filter(|at| *at <= end);
        // In an outage it may have become Ready, again or at last.
        unready.is_none_or(|at| api.was_away(at, end).is_some())
    }

    /// The one judgement of a held termination, with its Kubernetes context.
    fn joined(&self, held: Held, api: &Api, missing: Option<String>, now: Boot) -> Termination {
        let Held {
            mut facts,
            of_ending_pod,
            ..
        } = held;
        let missing = missing.or_else(|| {
            facts
                .is_still_ending()
                .then(|| format!("{} container was still shutting down", verdict::OBSERVATION_ENDED))
        });
        self.name_victims(&mut facts, &held.id);
        if self.fact.is_none() {
            facts = api.with_pod_hidden(facts);
        }
        // A request that was not shown can have asked for a longer grace period.
        let is_shown = !self.is_request_unshown(&Life::of(&facts, &held.id), api, now);
        if let Some(longest) = self.longest_stop().filter(|_| is_shown) {
            facts = facts.with_grace(longest);
        }
        let life = Life::of(&facts, &held.id);
        let is_unreported = missing.is_some();
        let mut context = self.context(api, &life, missing, now);
        // Only the next container of that name proves that the kubelet stopped this one to restart it.
        let may_be_restart = life.stop_requested && !self.was_succeeded(&held.id);
        if let Some(context) = context
            .as_mut()
            .filter(|of| may_be_restart && of.stop_reason.is_none() && of.incomplete.is_none())
        {
            Arc::make_mut(context).incomplete = Some("no restart of the container was reported".to_owned());
        }
        let request = context.as_ref().and_then(|context| context.request.as_ref());
        let has_no_reason = |of: &PodContext| of.stop_reason.as_ref().is_none_or(|reason| reason.cause == Cause::Unknown);
        let is_hidden = context
            .as_ref()
            .is_some_and(|of| of.may_miss(Unshown::Request) && has_no_reason(of));
        // Of a stop, the deletion request may not have been shown either.
        let may_be_stopped = life.stop_requested || !life.hidden_stops.is_empty();
        let is_unexplained = is_unreported && may_be_stopped && context.as_deref().is_some_and(has_no_reason);
        let unseen = match request {
            Some(request) => unseen_since(request, &life, facts.traffic.since, api),
            // Nothing was counted between the request and the stop signal.
            None => is_hidden.then(|| "when deletion was requested, if it was, is unknown".to_owned()),
        };
        if let Some(request) = request {
            // The machine may have been paused between the request and the stop.
            facts.gaps.clock_step = api.wall.step_after(request.earliest.min(facts.begin));
        }
        let facts = match (unseen, &mut context) {
            (Some(unseen), Some(context)) => {
                let context = Arc::make_mut(context);
                context.incomplete = Some(match context.incomplete.take() {
                    Some(known) => format!("{known}; {unseen}"),
                    None => unseen,
                });
                facts.with_traffic_unobserved()
            }
            _ if is_unexplained => facts.with_traffic_unobserved(),
            _ => facts,
        };
        Termination {
            of_ending_pod,
            ..Termination::judged(facts, context)
        }
    }

    /// A container that ended after the deletion request, and was started again.
    fn note_earlier(&mut self, of: &Termination, api: &Api) {
        let request = self.request(api, false).map(|(request, _)| request);
        let is_in_it = request.is_some_and(|request| request.earliest <= of.end);
        let is_good = !of.verdict.unclean && of.verdict.exit != Exit::Unknown;
        let name = of.kubernetes.as_ref().and_then(|context| context.container.as_ref());
        let Some(name) = name.filter(|_| is_in_it && !is_good && self.object.reported.is_none()) else {
            return;
        };
        if self.object.earlier.len() < EARLIER {
            self.object.earlier.push((name.clone(), of.verdict.headline));
        }
    }

    fn note_reported(&mut self, id: ContainerId, cgroup: CgroupId) {
        if self.reported_ids.len() >= REPORTED_IDS {
            self.reported_ids.pop_front();
        }
        self.reported_ids.push_back((id, cgroup));
    }

    /// Containers with an exit that only the pod's status shows.
    fn unseen(&self, held: &[Held]) -> Vec<(String, Option<Reported>)> {
        let Some(fact) = &self.fact else { return Vec::new() };
        let is_held = |name: &str| {
            let of = |held: &Held| self.names.get(&held.id).is_some_and(|named| named.name == name);
            held.iter().any(of)
        };
        let over = fact.containers.iter().filter_map(|status| {
            let still_runs = |of: &Container| of.ended.is_none() && status.id.as_ref() == Some(&of.id);
            let reported = match &status.state {
                ContainerState::Terminated(ended) => Some(Reported {
                    exit_code: ended.exit_code,
                    reason: ended.reason.clone(),
                }),
                // The last update before the pod was gone.
                ContainerState::Running if self.object.gone.is_some() && !self.containers.iter().any(still_runs) => None,
                // No update showed the exit, and no kernel record the container.
                ContainerState::Running if !self.containers.iter().any(|of| status.id.as_ref() == Some(&of.id)) => None,
                ContainerState::Running | ContainerState::Waiting { .. } => return None,
            };
            let was_reported = self.reported_ids.iter().any(|(id, _)| status.id.as_ref() == Some(id));
            let is_earlier = self
                .over_before
                .iter()
                .any(|(name, id)| *name == status.name && *id == status.id)
                || matches!(kind(fact, &status.name), Some(ContainerKind::Init | ContainerKind::Ephemeral))
                    && reported.as_ref().is_some_and(|of| of.exit_code == 0);
            // Not a name with another reported termination, and not a container that was never created.
            let never = status.id.is_none() && status.restarts == 0 && reported.as_ref().is_none_or(|of| !of.never_started());
            let known = was_reported || is_earlier || never || is_held(&status.name) || self.is_still_removed(status);
            (!known).then(|| (status.name.clone(), reported))
        });
        over.collect()
    }
}

/// Why clients' errors between the request and `since`, where counting began, are not known; None if they are known.
fn unseen_since(request: &Request, life: &Life, since: Option<Boot>, api: &Api) -> Option<String> {
    // Our own restart in between: the state at the stop signal is not known either.
    if request.earliest < api.since && life.start < Some(api.since) {
        let begun = verdict::seconds(api.since.since(request.earliest));
        return Some(format!("epitaph started {begun} after the deletion request"));
    }
    // Sockets are watched from the time the request is known; those of a later container from its begin.
    let requested = life.start.map_or(request.latest, |start| start.max(request.latest));
    let late = since.filter(|since| requested.plus(WATCH_DELAY) < *since);
    late.map(|since| {
        let late = verdict::seconds(since.since(requested));
        format!("connections were observed only from {late} after the deletion request")
    })
}

/// The earliest of several future times.
struct Next {
    now: Boot,
    at: Option<Boot>,
}

impl Next {
    fn is_due(&mut self, at: Boot) -> bool {
        if at <= self.now {
            return true;
        }
        self.at = Some(self.at.map_or(at, |known| known.min(at)));
        false
    }

    fn is_due_if(&mut self, at: Option<Boot>) -> bool {
        at.is_some_and(|at| self.is_due(at))
    }
}
