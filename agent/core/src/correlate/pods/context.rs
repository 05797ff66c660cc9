//! The Kubernetes context of one container's termination.

use std::sync::Arc;

use crate::ids::{ContainerId, Signal};
use crate::kubernetes::{Mains, PodContext, Request, StopReason, StopSignal, Unshown};
use crate::pod::{ContainerKind, ContainerSpec, PodEvent, PodEventsState, PodFact, RestartAction};
use crate::time::Boot;
use crate::tolerances::{EVENT_SLACK, LATE_REACH, RUN_GAP, WATCH_DELAY};
use crate::verdict::{self, Cause};

use super::api::{Api, PART_MISSING};
use super::life::Life;
use super::pod::Pod;
use super::runs::Runs;
use super::{event, stop_reason};

impl Pod {
    /// None if nothing of the pod itself is known. `missing` is why the caller did not wait any longer.
    pub fn context(&self, api: &Api, life: &Life, missing: Option<String>, now: Boot) -> Option<Arc<PodContext>> {
        let fact = self.fact.as_ref()?;
        let named = self.names.get(&life.id);
        let name = named.map(|named| named.name.as_str());
        let spec = name.and_then(|name| self.spec(name));
        let (request, apart) = self.request_of(life, api).unzip();
        let away = self.away_during(request.as_ref(), life, api, now);
        let request_unshown = self.hides_request(away.as_deref(), life).then_some(Unshown::Request);
        let grace_unshown = request.as_ref().filter(|request| self.hides_first_grace(request, api));
        let grace_unshown = grace_unshown.map(|_| Unshown::FirstGrace);
        let has_hook = fact.spec.containers.iter().any(|of| of.pre_stop.is_some());
        let hook_unshown = (name.is_none() && has_hook).then_some(Unshown::Hook);
        let stop_reason = self.stop_reason_of(name, request.as_ref(), life, request_unshown.is_some(), api);
        let grace = self.grace(name, stop_reason.as_ref(), request.as_ref(), life);
        let grace = grace.filter(|_| grace_unshown.is_none());
        let has_own_time = |reason: &StopReason| {
            matches!(reason.cause, Cause::EvictedNodePressure | Cause::RestartInPlace)
                || stop_reason::may_be_by_shutdown(reason, life.shutdown.as_ref())
        };
        let is_removed_at_once = request.is_none() && grace.is_some_and(|grace| grace.is_zero());
        let has_own_time = stop_reason.as_ref().is_some_and(has_own_time) || is_removed_at_once;
        let none = Runs::default();
        let container = self.containers.iter().find(|of| of.cgroup == life.cgroup);
        let runs = container.map_or(&none, |of| &of.runs);
        // A request after the stop did not cause the hook.
        let its_request = request
            .as_ref()
            .filter(|request| life.stop.is_none_or(|at| at >= request.earliest));
        let pre_stop = name.and_then(|name| self.pre_stop(name, runs, its_request, (life, api), missing.as_deref()));
        // Without a grace period the kubelet (1.36) runs no hook.
        let is_in_place = stop_reason
            .as_ref()
            .is_some_and(|reason| reason.cause == Cause::RestartInPlace);
        let pre_stop = pre_stop.filter(|run| run.seen || !is_in_place);
        let listed = life.code.filter(|_| !life.stop_requested);
        let rule = spec.zip(listed).and_then(|(spec, code)| spec.rule(code));
        let kind = spec.map(|spec| spec.kind);
        let mut doubts: Vec<String> = missing.into_iter().collect();
        doubts.extend(away);
        doubts.extend(apart.flatten());
        let events_unknown = self.events_unknown(life, api);
        doubts.extend(events_unknown.map(|why| format!("the Kubernetes Events of the pod are unknown: {why}")));
        if name.is_none() {
            doubts.push("the pod's status did not name this container".to_owned());
        }
        let path_uid = container.and_then(|of| of.path_uid.as_ref());
        if let Some(path_uid) = path_uid.filter(|uid| **uid != self.key) {
            doubts.push(format!("the cgroup path names another pod, {}", path_uid.0));
        }
        if self.object.gone.as_ref().is_some_and(|gone| !gone.watched) {
            doubts.push("the watch of the pods was interrupted, so the time of the deletion is unknown".to_owned());
        }
        Some(Arc::new(PodContext {
            pod: fact.pod.clone(),
            container: named.map(|named| named.name.clone()),
            kind,
            image: spec.map(|spec| spec.image.clone()),
            restarts: named.map_or(0, |named| named.restarts),
            options: fact.spec.options.clone(),
            stop_reason,
            request,
            grace,
            own_grace: fact.spec.grace.filter(|_| has_own_time),
            is_listed: rule.is_some_and(|rule| rule.is_in && rule.action != RestartAction::Other),
            stop_signal: self.stop_signal(&life.id, spec),
            pre_stop,
            mains: self.mains(fact).filter(|_| kind == Some(ContainerKind::Sidecar)),
            shares_pid_namespace: fact.spec.host_pid || fact.spec.share_process_namespace,
            reported: named.and_then(|named| named.reported.clone()),
            last_oom: container.and_then(|of| of.last_oom),
            killing: name.and_then(|name| self.was_announced(name, life, api)),
            unshown: [request_unshown, grace_unshown, hook_unshown].into_iter().flatten().collect(),
            incomplete: (!doubts.is_empty()).then(|| doubts.join("; ")),
        }))
    }

    /// By the status of this life of the container, otherwise by the spec, which a kubelet may not follow.
    fn stop_signal(&self, id: &ContainerId, spec: Option<&ContainerSpec>) -> Option<StopSignal> {
        let of_spec = spec.and_then(|spec| Signal::named(spec.stop_signal.as_deref()?));
        let effective = self.names.get(id).and_then(|named| named.stop_signal).or(of_spec)?;
        Some(StopSignal {
            signal: effective,
            in_spec: of_spec == Some(effective),
        })
    }

    /// Why Events that would explain this termination may be missing.
    pub fn events_unknown(&self, life: &Life, api: &Api) -> Option<String> {
        if api.missing.iter().any(|(_, until)| Some(*until) >= life.start) {
            return Some("a part of the evidence is missing".to_owned());
        }
        let name = self.names.get(&life.id).map(|named| named.name.as_str());
        let dropped = self.events.dropped.iter();
        let mut dropped = dropped.filter(|(of, at)| of.is_none() || of.as_deref() == name && Some(**at) >= life.start);
        if dropped.next().is_some() {
            return Some("the pod has more Events than epitaph keeps".to_owned());
        }
        let (seen, state) = self.events.state.as_ref()?;
        let is_own = life.end_earliest.is_some_and(|end| *seen >= end);
        match state {
            PodEventsState::Asked if is_own => Some("the API server had not answered yet".to_owned()),
            PodEventsState::Unknown { why } if is_own => Some(why.clone()),
            _ => None,
        }
    }

    /// All Events about the end of this life were seen: asked for, answered, and none may be missing.
    pub fn knows_events(&self, life: &Life, api: &Api) -> bool {
        let is_own = |seen: &Boot| life.end_earliest.is_some_and(|end| *seen >= end);
        let known = matches!(&self.events.state, Some((seen, PodEventsState::Known)) if is_own(seen));
        known && self.events_unknown(life, api).is_none()
    }

    /// Whether the kubelet announced by an Event that it stops this life of the container; None if the Events are not known.
    fn was_announced(&self, name: &str, life: &Life, api: &Api) -> Option<bool> {
        let announced = self
            .events
            .killings
            .get(name)
            .is_some_and(|at| Some(at.plus(EVENT_SLACK)) >= life.start);
        let (seen, state) = self.events.state.as_ref()?;
        let is_known = *state == PodEventsState::Known && life.end.is_some_and(|end| *seen >= end);
        // An Event of the stop that was observed, or of one before.
        let stops_from = life.hidden_stops.iter().map(|hole| hole.from).chain(life.stop).min();
        let from = stops_from.map(|from| from.minus(RUN_GAP)).max(life.start).unwrap_or_default();
        let may_lack = api.may_lack_events(from, *seen, *seen) || self.events_unknown(life, api).is_some();
        match announced {
            true => Some(true),
            false => (is_known && !may_lack).then_some(false),
        }
    }

    /// See [`PodContext::mains`].
    fn mains(&self, fact: &PodFact) -> Option<Mains> {
        let (mut earliest, mut latest) = (None, None);
        // One that no status has named may be a main container.
        let mut is_unknown = self
            .containers
            .iter()
            .any(|of| !of.is_sandbox && self.name_of(&of.id).is_none());
        for main in fact.spec.containers.iter().filter(|of| of.kind == ContainerKind::Main) {
            let lives = self.names.iter().filter(|(_, named)| named.name == main.name);
            let Some((id, named)) = lives.max_by_key(|(_, named)| named.order()) else {
                continue;
            };
            let container = self.containers.iter().find(|of| of.id == *id);
            let ended = match container {
                Some(of) if of.ended.is_none() => return Some(Mains::Run),
                Some(of) => of.ended,
                None => named.reported_at,
            };
            is_unknown |= ended.is_none();
            earliest = earliest.max(container.and_then(|of| of.ended_earliest));
            latest = latest.max(ended);
        }
        match latest {
            _ if is_unknown => Some(Mains::Unknown),
            latest => latest.map(|latest| Mains::Ended { earliest, latest }),
        }
    }

    /// The request that can concern this life of a container, as [`Pod::request`].
    fn request_of(&self, life: &Life, api: &Api) -> Option<(Request, Option<String>)> {
        // Not one after the successor's start, or after a restart was due.
        let request = self.request(api, life.shutdown.is_some());
        let (request, apart) = request.filter(|_| !self.was_succeeded(&life.id))?;
        // A request after the exit is the kubelet's own last delete, or cannot change this termination.
        Some((request.until(life.end), apart))
    }

    /// The watch of the pods was away: a deletion request, or one with a shorter grace period, may be missing.
    pub fn is_request_unshown(&self, life: &Life, api: &Api, now: Boot) -> bool {
        let request = self.request_of(life, api).map(|(request, _)| request);
        self.hides_request(self.away_during(request.as_ref(), life, api, now).as_deref(), life)
    }

    /// Why the API's facts of the termination may be incomplete.
    fn away_during(&self, request: Option<&Request>, life: &Life, api: &Api, now: Boot) -> Option<String> {
        let stopped = life.stop.or(life.end).unwrap_or(now);
        let from = request.map_or(stopped, |request| request.earliest.min(stopped));
        let hides = || request.is_none() && api.is_part_missing(self.asked_from(stopped, life), stopped);
        api.was_away(from, now).or_else(|| hides().then(|| PART_MISSING.to_owned()))
    }

    /// Since when a part that is missing may have had the request of a stop: requests come before by a hook's time, and a version without one
    /// shows that there was none.
    pub(super) fn asked_from(&self, stopped: Boot, life: &Life) -> Boot {
        let without = self.fact.as_ref().filter(|_| self.object.deletion.is_none());
        let from = stopped.minus(LATE_REACH).max(life.start.unwrap_or_default());
        without.map_or(from, |fact| from.max(fact.seen))
    }

    fn hides_request(&self, away: Option<&str>, life: &Life) -> bool {
        // The next container of that name proves that the pod went on.
        (away.is_some() || self.object.gone.as_ref().is_some_and(|gone| !gone.watched)) && !self.was_succeeded(&life.id)
    }

    /// The first version with a request has 0, and no watch shows whether that was the first request's grace period.
    fn hides_first_grace(&self, request: &Request, api: &Api) -> bool {
        let seen = self.object.deletion.map_or(request.latest, |(_, seen)| seen);
        request.grace.is_zero() && (request.earliest < api.since || api.was_away(request.earliest, seen).is_some())
    }

    /// The deletion request on this node's clock; and by how much the clocks contradict each other, if they do. In a node's shutdown a
    /// stop signal need not be the request's.
    pub fn request(&self, api: &Api, is_shutdown: bool) -> Option<(Request, Option<String>)> {
        let (deletion, seen) = self.object.deletion?;
        if self.is_static() {
            return None;
        }
        let skew = api.skew();
        let (earliest, latest) = api.requested(deletion);
        // Clocks that were not compared do not show which came first; a watch that worked does.
        let not_before = seen.minus(WATCH_DELAY);
        let by_watch = is_shutdown && skew.is_none() && api.was_away(not_before, seen).is_none();
        // At the latest: a watch can be slower than that.
        let latest = if by_watch { latest.max(not_before) } else { latest };
        // A request is not after its effects. Clocks that were not compared do not show this; a stop signal does.
        let is_effect = |stop: &Boot| skew.is_none() && !(by_watch && *stop < not_before);
        let caused = self.first_stop(seen).filter(is_effect);
        let bound = caused.map_or(seen, |stop| stop.min(seen));
        let contradiction = if earliest > seen {
            let apart = verdict::seconds(earliest.since(seen));
            Some(format!(
                "the API server's clock is at least {apart} further ahead than measured"
            ))
        } else if earliest > bound {
            let apart = verdict::seconds(earliest.since(bound));
            Some(format!(
                "the API server's clock was not compared, and by that clock the deletion request came {apart} after the stop signal"
            ))
        } else {
            None
        };
        let latest = latest.min(bound);
        let request = Request {
            earliest: earliest.min(latest),
            latest,
            grace: deletion.grace,
            spec_grace: self.fact.as_ref().and_then(|fact| fact.spec.grace),
            asker: self.asker(deletion.grace, earliest.min(latest), latest),
            shortened: self.object.shortened.clone(),
            skew,
        };
        Some((request, contradiction))
    }

    /// The runtime's first stop signal that no Event explains.
    fn first_stop(&self, before: Boot) -> Option<Boot> {
        let explained = |id: &ContainerId| {
            let name = self.names.get(id).map(|named| named.name.as_str());
            let is_why =
                |event: &PodEvent| name.is_some() && event.container.as_deref() == name && event::killing(event).is_some();
            self.events.list.iter().any(|(at, event)| *at <= before && is_why(event))
        };
        // The stop of a container that a restart followed was not the pod's, also where its exit was not observed.
        let stops = self
            .containers
            .iter()
            .filter(|of| !explained(&of.id) && !self.was_succeeded(&of.id));
        stops.filter_map(|of| of.stopped).min()
    }
}

impl Request {
    /// The request without later shortenings of the grace period.
    pub(super) fn until(mut self, end: Option<Boot>) -> Request {
        self.shortened.retain(|(seen, _)| end.is_none_or(|end| *seen <= end));
        self
    }
}
