//! When enough is known of a container's end, or of a pod's, to judge and report it; and what is reported where the wait was in vain.

use std::sync::Arc;
use std::time::Duration;

use crate::event::ExitStatus;
use crate::ids::CgroupId;
use crate::ids::ContainerId;
use crate::kubernetes::{PodTerminationFacts, Reported, Request};
use crate::pod::{ContainerKind, ContainerState, PodEventsState};
use crate::report::{PodTermination, Termination};
use crate::termination::{Actor, Role, TerminationFacts};
use crate::time::Boot;
use crate::verdict;

use super::context::{Api, Life};
use super::pod::{Container, Held, Pod, kind};
use super::{HOLD, Limits, REPORTED_IDS};

/// An end waits this long for an API that is away: it may be restarting, and the agent has just begun as well.
const HOLD_AWAY: Duration = Duration::from_secs(60);
/// An Event that names the cause comes by another watch than the status that shows the restart.
const EVENTS: Duration = Duration::from_secs(1);
/// The kubelet gives a pod its terminal phase only when all of it is gone, which a busy node takes its time for.
const OVER: Duration = Duration::from_secs(60);
/// After a terminal phase, for reasons and conditions that are written with it or just behind.
const TERMINAL: Duration = Duration::from_secs(2);
/// A container that still runs after the API forgot its pod: a force delete kills within about 3 s of the request, and a grace
/// that is longer is added.
const ALIVE: Duration = Duration::from_secs(60);
/// The record of an end that only the pod's status shows is lost for good by then.
const LOST: Duration = Duration::from_secs(10);
/// A watch that works shows a deletion within this, on a busy node too.
const HEARD: Duration = Duration::from_secs(1);
/// The verdict calls a container stuck 12 s after its grace; this leaves room for a grace of 0, of which the kubelet makes a
/// second, and for a kubelet that was late.
const OVERDUE: Duration = Duration::from_secs(15);
/// The kubelet's own default, where the spec is not known.
const GRACE: Duration = Duration::from_secs(30);
/// A pod that ended is kept for its late events this long.
const KEEP: Duration = Duration::from_secs(150);

/// What is to be done with a pod now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing before that time; None: nothing before it changes.
    Wait(Option<Boot>),
    /// Report one of the held by itself, and why it may be incomplete.
    Release(usize, Option<String>),
    /// Report that a container still runs.
    Overdue(CgroupId),
    /// Report the pod's end.
    Finish,
    /// Nothing about it is needed any more.
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
        if !self.is_ending() || self.reported.is_some() {
            for (i, held) in self.held.iter().enumerate() {
                let (until, missing) = self.release_at(held, api);
                if next.is_due(self.answered_for(held, until)) {
                    return Step::Release(i, missing);
                }
            }
        } else {
            // That was no end of the pod's, whatever was asked after it.
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
        let is_over = match &self.fact {
            Some(_) => self.gone.is_some() && (self.reported.is_some() || self.is_static()),
            None => true,
        };
        let is_idle = self.held.is_empty() && !self.containers.iter().any(|of| of.is_alive(limits, now));
        if is_over && is_idle && next.is_due(self.touched.plus(KEEP)) {
            return Step::Forget;
        }
        Step::Wait(next.at)
    }

    /// When to report that a container still runs which was asked to stop with its pod. From its stop signal on: before
    /// Kubernetes 1.28 the kubelet gives it the whole grace after its hook, too.
    fn overdue_at(&self, of: &Container) -> Option<Boot> {
        let (deletion, seen) = self.deletion?;
        // Not every kubelet follows a later delete: the longest grace that any of them gave.
        let graces = self.shortened.iter().copied().chain([(seen, deletion.grace)]);
        // Where its status shows that it ended, the record of its end was lost.
        let is_over = self.gone.is_some() || self.names.get(&of.id).is_some_and(|named| named.reported.is_some());
        let runs = of.ended.is_none() && of.removed.is_none() && !of.is_sandbox && !of.was_overdue && !is_over;
        let stopped = of.stopped.filter(|_| runs)?;
        let until = graces.map(|(seen, grace)| stopped.max(seen).plus(grace)).max()?;
        Some(until.plus(OVERDUE))
    }

    /// As late as the question for its Events allows, while that is open: they name what nothing else does.
    fn answered(&self, until: Boot) -> Boot {
        match &self.events_state {
            Some((asked, PodEventsState::Asked)) => until.max(asked.plus(HOLD)),
            _ => until,
        }
    }

    /// The same for one end: what ended well by itself leaves nothing to explain.
    fn answered_for(&self, held: &Held, until: Boot) -> Boot {
        let exit = held.facts.exit.as_ref().map(|exit| exit.status);
        match (&held.facts.stop, exit) {
            (None, Some(ExitStatus::Exited(0))) => until,
            _ => self.answered(until),
        }
    }

    /// When a held end of a pod that goes on is reported by itself, whatever is missing then.
    fn release_at(&self, held: &Held, api: &Api) -> (Boot, Option<String>) {
        let hold = if api.away_since.is_some() { HOLD_AWAY } else { HOLD };
        if self.fact.is_none() {
            return (held.since.plus(hold), None);
        }
        let Some(named) = self.names.get(&held.id) else {
            return (held.since.plus(hold), None);
        };
        if self.reported.is_some() {
            return (held.since.plus(EVENTS), None);
        }
        if let Some(at) = named.succeeded_at {
            return (at.max(held.since).plus(EVENTS), None);
        }
        let Some(reported) = &named.reported else {
            // What is never restarted ends with its pod, mostly: reported alone it would lack the pod's side for good.
            let never = self.restarts_after(1) == Some(false);
            let hold = if never { HOLD_AWAY } else { hold };
            let missing = format!("the pod's status did not report the exit within {} s", hold.as_secs());
            return (held.since.plus(hold), Some(missing));
        };
        let shown = named.reported_at.map_or(held.since, |at| at.max(held.since));
        match self.kind(&held.id) {
            Some(ContainerKind::Init | ContainerKind::Ephemeral) if reported.exit_code == 0 => (shown.plus(EVENTS), None),
            // It would be started again, or would not have been stopped: the pod is being stopped as a whole (the kubelet's own
            // evictions show it only when all of it has ended), which takes up to its grace.
            _ if self.restarts_after(reported.exit_code) == Some(true) || was_stopped(&held.facts) => {
                let grace = self.fact.as_ref().and_then(|fact| fact.spec.grace).unwrap_or(GRACE);
                (shown.plus(grace).plus(hold), None)
            }
            // Nothing of it runs or will: the phase follows once the kubelet has taken the pod down.
            _ if self.all_reported() && self.restarts_after(reported.exit_code) == Some(false) => (shown.plus(OVER), None),
            _ => (shown.plus(hold), None),
        }
    }

    /// When the pod's end is reported; None while its containers run and nothing says that they should not.
    fn finish_at(&self, api: &Api, limits: &Limits) -> Option<Boot> {
        let last_held = self.held.iter().map(|held| held.since).max();
        let mut alive_until = None;
        for of in self.containers.iter().filter(|of| !of.is_sandbox && of.ended.is_none()) {
            let by_removal = of.over_at(limits);
            let named = self.names.get(&of.id);
            let by_report = named.and_then(|named| named.reported_at).map(|at| at.plus(LOST));
            let by_absence = self.gone.as_ref().map(|gone| {
                let grace = self.deletion.map_or(Duration::ZERO, |(deletion, _)| deletion.grace);
                gone.seen.plus(grace).plus(ALIVE)
            });
            let first = || [by_removal, by_report, by_absence].into_iter().flatten().min();
            // One that still counts is known to have ended, and will be reported.
            let until = of.counted_until.map(|until| until.plus(limits.reorder)).or_else(first)?;
            alive_until = alive_until.max(Some(until));
        }
        let seen = self.fact.as_ref().map(|fact| fact.seen);
        let hold = if api.away_since.is_some() { HOLD_AWAY } else { HOLD };
        let settled = if let Some(gone) = &self.gone {
            gone.seen.max(last_held.unwrap_or(Boot(0))).plus(limits.reorder)
        } else if self.is_terminal() && self.all_reported() {
            seen.max(last_held)?.plus(TERMINAL)
        } else if self.runs_unseen() {
            // Only the API can say when it ends, which takes up to its grace.
            let grace = self.deletion.map_or(GRACE, |(deletion, _)| deletion.grace);
            seen.max(last_held)?.plus(grace).plus(hold)
        } else {
            seen.max(last_held)?.plus(hold)
        };
        Some(alive_until.map_or(settled, |alive| alive.max(settled)))
    }

    /// By its status one of its containers runs, of which the kernel has shown nothing.
    fn runs_unseen(&self) -> bool {
        let Some(fact) = &self.fact else { return false };
        fact.containers.iter().any(|status| {
            let is_its = |id: &ContainerId| status.id.as_ref() == Some(id);
            let is_known =
                self.containers.iter().any(|of| is_its(&of.id)) || self.reported_ids.iter().any(|(id, _)| is_its(id));
            status.state == ContainerState::Running && !is_known
        })
    }

    /// One container's end, with the pod's side.
    pub fn release(&mut self, held: Held, api: &Api, missing: Option<String>, now: Boot) -> Termination {
        let cgroup = held.facts.key.cgroup;
        self.note_reported(held.id.clone(), cgroup);
        let termination = self.joined(held, api, missing, now);
        // What came later is placed by those that still run.
        self.containers.retain(|of| of.cgroup != cgroup);
        termination
    }

    /// The pod's end, with those that waited for it; None where nothing ended with it.
    pub fn finish(&mut self, mut held: Vec<Held>, api: &Api, boot_id: &str, now: Boot) -> Option<PodTermination> {
        self.reported = Some(now);
        let fact = self.fact.clone()?;
        let missing = self.gone.is_none() && !(self.is_terminal() && self.all_reported());
        let missing = missing.then(|| "the API server had not reported the pod as finished".to_owned());
        let unseen = self.unseen(&held);
        held.sort_by_key(|held| (held.facts.end, held.facts.key.cgroup));
        for of in &held {
            self.note_reported(of.id.clone(), of.facts.key.cgroup);
        }
        let containers: Vec<Termination> = held
            .into_iter()
            .map(|held| self.joined(held, api, missing.clone(), now))
            .collect();
        if containers.is_empty() && unseen.is_empty() {
            self.containers.retain(|of| of.ended.is_none());
            return None;
        }
        let gone = self.gone.as_ref().map(|gone| (gone.seen, gone.watched));
        let stop_reason = self.stop_reason();
        let last = containers.iter().map(|of| of.end).max();
        let request = self.request(api).map(|(request, _)| request.until(last));
        self.containers.retain(|of| of.ended.is_none());
        let of_hook = |of: &Termination| of.kubernetes.as_ref()?.pre_stop.as_ref()?.begin;
        let evidence = containers.iter().flat_map(|of| [Some(of.begin), of_hook(of)]).flatten();
        // A pod without any other trace here: its status is all there is.
        let last_update = gone.map_or(fact.seen, |(seen, _)| seen);
        // A force delete is seen by nothing else.
        let watched = gone
            .filter(|(_, watched)| *watched && !fact.pod.is_static)
            .map(|(seen, _)| seen);
        // At its earliest: what the observer saw of the same request must not begin before the root that it hangs below.
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
            gone,
        };
        Some(PodTermination::judged(facts, containers))
    }

    /// The one judgement of an end that waited, with the pod's side.
    fn joined(&self, held: Held, api: &Api, missing: Option<String>, now: Boot) -> Termination {
        let Held {
            facts, of_ending_pod, ..
        } = held;
        let missing = missing.or_else(|| {
            facts
                .is_still_ending()
                .then(|| format!("{} container was still shutting down", verdict::OBSERVATION_ENDED))
        });
        let life = Life::of(&facts, &held.id);
        let mut context = self.context(api, &life, missing, now);
        let request = context.as_ref().and_then(|context| context.request.as_ref());
        let unseen = request.and_then(|request| unseen_since(request, &life, facts.traffic.since, api));
        let facts = match (unseen, &mut context) {
            (Some(unseen), Some(context)) => {
                let context = Arc::make_mut(context);
                context.incomplete = Some(match context.incomplete.take() {
                    Some(known) => format!("{known}; {unseen}"),
                    None => unseen,
                });
                facts.with_traffic_unobserved()
            }
            _ => facts,
        };
        Termination {
            of_ending_pod,
            ..Termination::judged(facts, context)
        }
    }

    fn note_reported(&mut self, id: ContainerId, cgroup: CgroupId) {
        if self.reported_ids.len() >= REPORTED_IDS {
            self.reported_ids.pop_front();
        }
        self.reported_ids.push_back((id, cgroup));
    }

    /// Containers that ended with the pod by its status alone.
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
                ContainerState::Running if self.gone.is_some() && !self.containers.iter().any(still_runs) => None,
                ContainerState::Running | ContainerState::Waiting { .. } => return None,
            };
            let was_reported = self.reported_ids.iter().any(|(id, _)| status.id.as_ref() == Some(id));
            let is_earlier = self
                .over_before
                .iter()
                .any(|(name, id)| *name == status.name && *id == status.id)
                || matches!(kind(fact, &status.name), Some(ContainerKind::Init | ContainerKind::Ephemeral))
                    && reported.as_ref().is_some_and(|of| of.exit_code == 0);
            // A name under which another end is reported, or whose container was never made.
            let never = status.id.is_none() && status.restarts == 0 && reported.as_ref().is_none_or(|of| !of.never_started());
            let known = was_reported || is_earlier || never || is_held(&status.name);
            (!known).then(|| (status.name.clone(), reported))
        });
        over.collect()
    }
}

/// Why what its clients met between the request and `since`, from where on they count, is not known; None where it is.
fn unseen_since(request: &Request, life: &Life, since: Boot, api: &Api) -> Option<String> {
    // A restart of ours in the middle: what the stop signal met is not known either.
    if request.earliest < api.since && life.start < api.since {
        let begun = verdict::seconds(api.since.since(request.earliest));
        return Some(format!("epitaph started {begun} after the deletion request"));
    }
    // The request itself has its sockets watched, but only once it is heard of; those of a later container are from its begin on.
    let requested = request.latest.max(life.start);
    (requested.plus(HEARD) < since).then(|| {
        let late = verdict::seconds(since.since(requested));
        format!("connections were observed only from {late} after the deletion request")
    })
}

fn was_stopped(facts: &TerminationFacts) -> bool {
    let by_runtime = |actor: &Actor| actor.role == Role::Runtime;
    facts.stop.as_ref().is_some_and(|stop| by_runtime(&stop.sender))
        || facts.kill.as_ref().is_some_and(|kill| by_runtime(&kill.sender))
}

/// The earliest of several times, of which none has come.
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
