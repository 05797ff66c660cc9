//! The Kubernetes context of one container's termination.

use std::sync::Arc;

use crate::correlate::limits::STEPS;
use crate::ids::{CgroupId, ContainerId, Signal};
use crate::kubernetes::{PodContext, Request, StopReason, StopSignal, Unshown};
use crate::ledger::Hole;
use crate::pod::{ApiClock, ContainerKind, ContainerSpec, Deletion, PodEvent, PodEventsState, RestartAction};
use crate::shutdown::EndedByShutdown;
use crate::termination::{Role, TerminationFacts};
use crate::time::{Boot, Wall, WallClock, WallOffset};
use crate::tolerances::{EVENT_RETRIED, EVENT_SLACK, EVENT_TRIED, HOLD, RESOLUTION, RUN_GAP};
use crate::verdict::{self, Cause};

use super::pod::Pod;
use super::prestop::Runs;
use super::stop_reason;

/// Most separate outages of the API that are kept.
const AWAY: usize = 16;

/// What is known of the API itself.
#[derive(Debug, Default)]
pub(super) struct Api {
    pub clock: Option<ApiClock>,
    pub wall: WallClock<STEPS>,
    /// From here on the probes record everything.
    pub since: Boot,
    /// Since when the API does not answer, or has not yet.
    pub away_since: Option<Boot>,
    /// Earlier outages, and the last reason.
    away: Vec<(Boot, Boot)>,
    reason: Option<String>,
    /// Times of which a part of the recording or the journal is missing.
    missing: Vec<(Boot, Boot)>,
}

/// Why, then.
const PART_MISSING: &str = "a part of the evidence is missing, perhaps also of what the Kubernetes API showed";

/// A container's life as the kernel shows it, in short.
pub(super) struct Life {
    pub id: ContainerId,
    pub cgroup: CgroupId,
    /// Of the main process; None if not known.
    pub start: Option<Boot>,
    /// The runtime's stop signal.
    pub stop: Option<Boot>,
    /// Without any stop signal: where the first one may be hidden.
    pub hidden_stops: Vec<Hole>,
    /// The runtime sent a stop signal or SIGKILL.
    pub stop_requested: bool,
    /// None while it still runs.
    pub end: Option<Boot>,
    /// The earliest time of the exit: `end`, if the exit was observed.
    pub end_earliest: Option<Boot>,
    /// The exit code, as a runtime reports it.
    pub code: Option<i32>,
    /// The node's shutdown that stopped it.
    pub shutdown: Option<EndedByShutdown>,
}

impl Api {
    pub fn away(&mut self, now: Boot, reason: Option<String>) {
        self.away_since.get_or_insert(now);
        self.reason = reason;
    }

    pub fn synced(&mut self, now: Boot) {
        if let Some(since) = self.away_since.take() {
            add(&mut self.away, (since, now));
        }
    }

    /// What the API showed in that time may be missing.
    pub fn part_missing(&mut self, since: Boot, now: Boot) {
        if self.missing.last() != Some(&(since, now)) {
            add(&mut self.missing, (since, now));
        }
    }

    fn is_part_missing(&self, from: Boot, to: Boot) -> bool {
        self.missing.iter().any(|&(since, until)| since <= to && until >= from)
    }

    /// It did not answer for so long that a kubelet gave an Event up.
    fn may_lack_events(&self, from: Boot, to: Boot) -> bool {
        if self.is_part_missing(from, to) {
            return true;
        }
        let away = self.away.iter().copied().chain(self.away_since.map(|since| (since, to)));
        let mut joined: Option<(Boot, Boot)> = None;
        for (since, until) in away {
            let first = joined
                .filter(|(_, last)| since <= last.plus(EVENT_RETRIED))
                .map_or(since, |(first, _)| first);
            joined = Some((first, until));
            if until.since(first) >= EVENT_TRIED && first <= to && until >= from {
                return true;
            }
        }
        false
    }

    /// By how much its clock is ahead of this node's, at least and at most, nanoseconds; None if the clocks were not compared.
    fn skew(&self) -> Option<(i64, i64)> {
        self.clock.map(|clock| (clock.earliest, clock.latest))
    }

    /// Why the API's facts of that time may be incomplete.
    pub fn was_away(&self, from: Boot, to: Boot) -> Option<String> {
        if self.is_part_missing(from, to) {
            return Some(PART_MISSING.to_owned());
        }
        let is_now = self.away_since.is_some_and(|since| since <= to);
        let was = self.away.iter().any(|&(since, until)| since <= to && until >= from);
        (is_now || was).then(|| match &self.reason {
            Some(reason) => format!("the Kubernetes API did not answer during the termination: {reason}"),
            None => "the Kubernetes API did not answer during the termination".to_owned(),
        })
    }
}

fn add(times: &mut Vec<(Boot, Boot)>, time: (Boot, Boot)) {
    times.push(time);
    if times.len() > AWAY {
        let first = times.remove(0);
        times[0].0 = first.0;
    }
}

impl Life {
    pub fn of(facts: &TerminationFacts, id: &ContainerId) -> Life {
        let stop = facts.stop.as_ref().filter(|stop| stop.sender.role == Role::Runtime);
        let killed = facts.kill.as_ref().is_some_and(|kill| kill.sender.role == Role::Runtime);
        Life {
            stop_requested: stop.is_some() || killed,
            id: id.clone(),
            cgroup: facts.key.cgroup,
            start: facts.main.as_ref().map(|main| main.start),
            stop: stop.map(|stop| stop.at),
            hidden_stops: facts.hidden_stops().copied().collect(),
            end: Some(facts.end),
            end_earliest: Some(facts.exit.map_or(facts.begin, |exit| exit.at)),
            code: facts.exit.map(|exit| exit.status.reported_code()),
            shutdown: facts.shutdown.clone(),
        }
    }

    /// Whether an Event can be about this life of the container: the previous life had the same name, and Events arrive late.
    pub fn can_be_why(&self, at: Boot, event: &PodEvent) -> bool {
        // An Event without a time happened before it arrived; other times are converted from a clock that is corrected now and then.
        let slack = if event.at.is_some() { EVENT_SLACK } else { HOLD };
        Some(at) >= self.start && self.stop.or(self.end).is_none_or(|until| at <= until.plus(slack))
    }

    /// The stop signal came before, or may have.
    pub fn may_be_stopped_before(&self, at: Boot) -> bool {
        match self.stop {
            Some(stop) => stop < at,
            None => self.hidden_stops.iter().any(|hole| hole.hides_before(at)),
        }
    }

    pub fn lives_at(&self, at: Boot) -> bool {
        self.end.is_none_or(|end| at <= end)
    }
}

impl Pod {
    /// None if nothing of the pod itself is known. `missing` is why the caller did not wait any longer.
    pub fn context(&self, api: &Api, life: &Life, missing: Option<String>, now: Boot) -> Option<Arc<PodContext>> {
        let fact = self.fact.as_ref()?;
        let named = self.names.get(&life.id);
        let name = named.map(|named| named.name.as_str());
        let spec = name.and_then(|name| self.spec(name));
        let (request, apart) = self.request_of(life, api).unzip();
        let away = away_during(request.as_ref(), life, api, now);
        let request_unshown = self.hides_request(away.as_deref(), life).then_some(Unshown::Request);
        let has_hook = fact.spec.containers.iter().any(|of| of.pre_stop.is_some());
        let hook_unshown = (name.is_none() && has_hook).then_some(Unshown::Hook);
        let stop_reason = self.stop_reason_of(name, request.as_ref(), life, request_unshown.is_some(), api);
        let grace = self.grace(name, stop_reason.as_ref(), request.as_ref(), life);
        let has_own_time = |reason: &StopReason| {
            matches!(reason.cause, Cause::EvictedNodePressure | Cause::RestartInPlace)
                || stop_reason::may_be_by_shutdown(reason, life.shutdown.as_ref())
        };
        let has_own_time = stop_reason.as_ref().is_some_and(has_own_time);
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
        if self.gone.as_ref().is_some_and(|gone| !gone.watched) {
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
            mains_ended: self.mains_ended().filter(|_| kind == Some(ContainerKind::Sidecar)),
            shares_pid_namespace: fact.spec.host_pid || fact.spec.share_process_namespace,
            reported: named.and_then(|named| named.reported.clone()),
            killing: name.and_then(|name| self.was_announced(name, life, api)),
            unshown: request_unshown.into_iter().chain(hook_unshown).collect(),
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
        let dropped = self.events_dropped.iter();
        let mut dropped = dropped.filter(|(of, at)| of.is_none() || of.as_deref() == name && Some(**at) >= life.start);
        if dropped.next().is_some() {
            return Some("the pod has more Events than epitaph keeps".to_owned());
        }
        let (seen, state) = self.events_state.as_ref()?;
        let is_own = life.end_earliest.is_some_and(|end| *seen >= end);
        match state {
            PodEventsState::Asked if is_own => Some("the API server had not answered yet".to_owned()),
            PodEventsState::Unknown { why } if is_own => Some(why.clone()),
            _ => None,
        }
    }

    /// Whether the kubelet announced by an Event that it stops this life of the container; None if the Events are not known.
    fn was_announced(&self, name: &str, life: &Life, api: &Api) -> Option<bool> {
        let announced = self
            .killings
            .get(name)
            .is_some_and(|at| Some(at.plus(EVENT_SLACK)) >= life.start);
        let (seen, state) = self.events_state.as_ref()?;
        let is_known = *state == PodEventsState::Known && life.end.is_some_and(|end| *seen >= end);
        // An Event of the stop that was observed, or of one before.
        let stops_from = life.hidden_stops.iter().map(|hole| hole.from).chain(life.stop).min();
        let from = stops_from.map(|from| from.minus(RUN_GAP)).max(life.start).unwrap_or_default();
        let may_lack = api.may_lack_events(from, *seen) || self.events_unknown(life, api).is_some();
        match announced {
            true => Some(true),
            false => (is_known && !may_lack).then_some(false),
        }
    }

    /// Exit of the last main container; None while a main container runs, or if none was observed.
    fn mains_ended(&self) -> Option<Boot> {
        let is_main = |id: &ContainerId| self.kind(id) == Some(ContainerKind::Main);
        let mains = || self.containers.iter().filter(|of| is_main(&of.id));
        if mains().any(|of| of.ended.is_none()) {
            return None;
        }
        mains().filter_map(|of| of.ended).max()
    }

    /// The request that can concern this life of a container, as [`Pod::request`].
    fn request_of(&self, life: &Life, api: &Api) -> Option<(Request, Option<String>)> {
        // Not one after the successor's start, or after a restart was due.
        let (request, apart) = self.request(api).filter(|_| !self.was_succeeded(&life.id))?;
        // A request after the exit is the kubelet's own last delete, or cannot change this termination.
        Some((request.until(life.end), apart))
    }

    /// The watch of the pods was away: a deletion request, or one with a shorter grace period, may be missing.
    pub fn is_request_unshown(&self, life: &Life, api: &Api, now: Boot) -> bool {
        let request = self.request_of(life, api).map(|(request, _)| request);
        self.hides_request(away_during(request.as_ref(), life, api, now).as_deref(), life)
    }

    fn hides_request(&self, away: Option<&str>, life: &Life) -> bool {
        // The next container of that name proves that the pod went on.
        (away.is_some() || self.gone.as_ref().is_some_and(|gone| !gone.watched)) && !self.was_succeeded(&life.id)
    }

    /// The deletion request on this node's clock; and by how much the clocks contradict each other, if they do.
    pub fn request(&self, api: &Api) -> Option<(Request, Option<String>)> {
        let (deletion, seen) = self.deletion?;
        if self.is_static() {
            return None;
        }
        let skew = api.skew();
        let (earliest, latest) = interval(deletion, skew.unwrap_or_default(), api.wall.offset());
        // A request is not after its effects. Clocks that were not compared do not show this; a stop signal does.
        let caused = self.first_stop(seen).filter(|_| skew.is_none());
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
            shortened: self.shortened.clone(),
            skew,
        };
        Some((request, contradiction))
    }

    /// The runtime's first stop signal that no Event explains.
    fn first_stop(&self, before: Boot) -> Option<Boot> {
        let explained = |id: &ContainerId| {
            let name = self.names.get(id).map(|named| named.name.as_str());
            let is_why = |event: &PodEvent| {
                name.is_some() && event.container.as_deref() == name && stop_reason::killing(event).is_some()
            };
            self.events.iter().any(|(at, event)| *at <= before && is_why(event))
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

/// Why the API's facts of the termination may be incomplete.
fn away_during(request: Option<&Request>, life: &Life, api: &Api, now: Boot) -> Option<String> {
    let stopped = life.stop.or(life.end).unwrap_or(now);
    api.was_away(request.map_or(stopped, |request| request.earliest.min(stopped)), now)
}

/// The latest time of the request, by the API server's clock. One that was not compared counts as this node's.
pub(super) fn requested_until(deletion: Deletion, api: &Api) -> Boot {
    interval(deletion, api.skew().unwrap_or_default(), api.wall.offset()).1
}

/// The earliest and latest time of the request, on this node's clock.
fn interval(deletion: Deletion, skew: (i64, i64), offset: WallOffset) -> (Boot, Boot) {
    let Wall(at) = deletion.timestamp;
    let request = i128::from(at) - deletion.grace.as_nanos().cast_signed();
    let boot = |wall: i128| Boot(u64::try_from((wall - i128::from(offset.0)).max(0)).unwrap_or(u64::MAX));
    let earliest = boot(request - i128::from(skew.1));
    let latest = boot(request + RESOLUTION.as_nanos().cast_signed() - i128::from(skew.0));
    (earliest, latest)
}
