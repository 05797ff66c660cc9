//! Services' endpoints over all their slices, and the removal of each endpoint that is a pod.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::contact::Seen;
use super::pods::ClusterPods;
use super::{Conditions, EndpointRemoval, Moment, ObserverDropReason, Output, SliceFact, SliceKey};
use crate::ids::PodUid;
use crate::pod::PodIdentity;
use crate::time::Boot;
use crate::tolerances::{BACK_WITHIN, ENDPOINT_LAG, ENDPOINT_MOVES, ENDPOINT_NEAR};

#[derive(Debug, Default)]
pub(super) struct Endpoints {
    most: usize,
    count: usize,
    slices: HashMap<SliceKey, Slice>,
    services: HashMap<ServiceKey, Service>,
    /// Endpoints that are in no slice any more.
    departed: BTreeSet<(ServiceKey, PodUid)>,
    /// Already reported: one span per Service and pod.
    reported: HashSet<(ServiceKey, PodUid)>,
    /// Slices in the list in progress.
    listed: Option<HashSet<SliceKey>>,
    /// Of the last input.
    changes: Vec<ReadyChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ServiceKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// An endpoint became ready, or stopped being ready.
#[derive(Debug)]
pub(super) struct ReadyChange {
    pub service: ServiceKey,
    pub pod: PodUid,
    pub is_ready: bool,
    pub at: Moment,
}

#[derive(Debug)]
struct Slice {
    service: ServiceKey,
    pods: HashSet<PodUid>,
}

#[derive(Debug, Default)]
struct Service {
    endpoints: HashMap<PodUid, Endpoint>,
    ready: usize,
    serving_terminating: usize,
    /// Since when no endpoint is ready and kube-proxy uses serving, terminating endpoints.
    all_terminating: Option<Moment>,
}

#[derive(Debug, Default)]
struct Endpoint {
    places: Vec<Place>,
    ports: Arc<[String]>,
    address_types: Vec<Arc<str>>,
    conditions: Conditions,
    /// Terminating when first observed.
    terminating_at_start: bool,
    /// Not ready when first observed, and never ready since.
    unready_at_start: bool,
    terminating: Option<Moment>,
    not_ready: Option<Moment>,
    not_serving: Option<Moment>,
    all_terminating: Option<Moment>,
    publish_not_ready: bool,
    departed: Option<Moment>,
}

#[derive(Debug)]
struct Place {
    slice: Arc<str>,
    conditions: Conditions,
}

impl Endpoints {
    pub(super) fn new(most: usize) -> Endpoints {
        Endpoints {
            most,
            ..Endpoints::default()
        }
    }

    pub(super) fn take_changes(&mut self) -> Vec<ReadyChange> {
        std::mem::take(&mut self.changes)
    }

    /// The endpoints that are ready.
    pub(super) fn ready(&self) -> impl Iterator<Item = (&ServiceKey, &PodUid)> {
        self.services.iter().flat_map(|(key, service)| {
            let ready = service.endpoints.iter().filter(|(_, endpoint)| endpoint.conditions.ready);
            ready.map(move |(uid, _)| (key, uid))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn slice(&mut self, fact: SliceFact, seen: Seen, out: &mut Vec<Output>) {
        if let Some(listed) = &mut self.listed {
            listed.insert(fact.key.clone());
        }
        let service = ServiceKey {
            namespace: fact.key.namespace.clone(),
            name: fact.service.clone(),
        };
        if self.slices.get(&fact.key).is_some_and(|slice| slice.service != service) {
            self.slice_gone(&fact.key, seen);
        }
        // One pod may be in a slice more than once.
        let mut now_in: HashMap<&PodUid, Conditions> = HashMap::new();
        for endpoint in &fact.endpoints {
            let conditions = now_in.entry(&endpoint.pod).or_default();
            *conditions = conditions.or(endpoint.conditions);
        }
        let mut dropped = 0;
        for (uid, conditions) in &now_in {
            dropped += u64::from(!self.place(&service, uid, *conditions, &fact, seen));
        }
        if dropped > 0 {
            out.push(Output::Dropped {
                reason: ObserverDropReason::EndpointCap,
                count: dropped,
            });
        }
        let pods: HashSet<PodUid> = now_in.into_keys().cloned().collect();
        let before = self.slices.insert(
            fact.key.clone(),
            Slice {
                service: service.clone(),
                pods,
            },
        );
        let now = &self.slices[&fact.key].pods;
        let left: Vec<PodUid> = before.map_or_else(Vec::new, |before| before.pods.difference(now).cloned().collect());
        for uid in left {
            self.leave(&service, &uid, &fact.key.name, seen);
        }
        self.update_all_terminating(&service, seen);
    }

    pub(super) fn slice_gone(&mut self, key: &SliceKey, seen: Seen) {
        let Some(slice) = self.slices.remove(key) else { return };
        for uid in &slice.pods {
            self.leave(&slice.service, uid, &key.name, seen);
        }
        self.update_all_terminating(&slice.service, seen);
    }

    pub(super) fn list_begin(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// Slices that are not in the list are gone.
    pub(super) fn list_end(&mut self, seen: Seen) {
        let listed = self.listed.take().unwrap_or_default();
        let lacking: Vec<SliceKey> = self.slices.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        for key in lacking {
            self.slice_gone(&key, seen);
        }
    }

    /// Reports completed removals. `pods_in_gap`: the pods' watch may not have reported the terminations yet.
    pub(super) fn finish(&mut self, now: Boot, pods: &ClusterPods, pods_in_gap: bool, out: &mut Vec<Output>) {
        let mut over = Vec::new();
        for key in &self.departed {
            let endpoint = self.services.get(&key.0).and_then(|service| service.endpoints.get(&key.1));
            let Some((endpoint, departed)) = endpoint.and_then(|endpoint| Some((endpoint, endpoint.departed?))) else {
                over.push(key.clone());
                continue;
            };
            let waited = now.since(departed.at);
            if waited < ENDPOINT_MOVES {
                continue;
            }
            let record = pods.get(&key.1);
            match record.map(|record| (record, record.ended)) {
                Some((_, Some(_))) if endpoint.is_begin_unseen() => out.push(Output::dropped(ObserverDropReason::BeginUnseen)),
                Some((record, Some(ended))) if pods.has_trace(record) => {
                    let continued = endpoint.terminating.is_none() && ended.earliest() > departed.at.plus(ENDPOINT_LAG);
                    if continued {
                        out.push(Output::dropped(ObserverDropReason::PodGoesOn));
                    } else if self.reported.insert(key.clone()) {
                        let pod = (record.identity.clone(), ended);
                        out.push(Output::Removal(Box::new(removal(endpoint, departed, pod, &key.0))));
                    }
                }
                Some((_, Some(_))) => {}
                _ if pods_in_gap || waited < BACK_WITHIN => continue,
                // The Service dropped the endpoint, or the pod's termination was missed.
                Some((record, None)) if pods.has_trace(record) => out.push(Output::dropped(ObserverDropReason::PodGoesOn)),
                Some((_, None)) => {}
                None => out.push(Output::dropped(ObserverDropReason::PodUnknown)),
            }
            over.push(key.clone());
        }
        for (service, uid) in over {
            self.forget(&service, &uid);
        }
        self.reported.retain(|(_, uid)| pods.get(uid).is_some());
    }

    /// The pod is in this slice; false if there is no room for the endpoint.
    fn place(&mut self, key: &ServiceKey, uid: &PodUid, conditions: Conditions, fact: &SliceFact, seen: Seen) -> bool {
        let service = self.services.entry(key.clone()).or_default();
        let endpoint = match service.endpoints.get_mut(uid) {
            Some(endpoint) => endpoint,
            None if self.count >= self.most => return false,
            None => {
                self.count += 1;
                let endpoint = Endpoint::new(conditions, seen);
                service.endpoints.entry(uid.clone()).or_insert(endpoint)
            }
        };
        if endpoint.departed.take().is_some() {
            self.departed.remove(&(key.clone(), uid.clone()));
        }
        match endpoint.places.iter_mut().find(|place| place.slice == fact.key.name) {
            Some(place) => place.conditions = conditions,
            None => endpoint.places.push(Place {
                slice: fact.key.name.clone(),
                conditions,
            }),
        }
        // Within one slice: two slices are not written together.
        endpoint.publish_not_ready |= conditions.ready && conditions.terminating;
        endpoint.ports = fact.ports.clone();
        if !endpoint.address_types.contains(&fact.address_type) {
            endpoint.address_types.push(fact.address_type.clone());
            endpoint.address_types.sort();
        }
        let change = service.change(key, uid, seen);
        self.changes.extend(change);
        true
    }

    fn leave(&mut self, key: &ServiceKey, uid: &PodUid, slice: &str, seen: Seen) {
        let Some(service) = self.services.get_mut(key) else { return };
        let Some(endpoint) = service.endpoints.get_mut(uid) else {
            return;
        };
        endpoint.places.retain(|place| &*place.slice != slice);
        if endpoint.places.is_empty() {
            endpoint.departed = Some(seen.moment());
            self.departed.insert((key.clone(), uid.clone()));
        }
        let change = service.change(key, uid, seen);
        self.changes.extend(change);
    }

    /// Whether all of the Service's endpoints are terminating, once all of a slice is known.
    fn update_all_terminating(&mut self, key: &ServiceKey, seen: Seen) {
        let Some(service) = self.services.get_mut(key) else { return };
        let all_terminating = service.ready == 0 && service.serving_terminating > 0;
        match (all_terminating, service.all_terminating) {
            (true, None) => service.all_terminating = Some(seen.moment()),
            (false, Some(_)) => service.all_terminating = None,
            _ => {}
        }
        let Some(since) = service.all_terminating else { return };
        for endpoint in service.endpoints.values_mut() {
            let Some(terminating) = endpoint.terminating else { continue };
            if endpoint.departed.is_none() {
                let within = if since.at < terminating.at { terminating } else { since };
                endpoint.all_terminating.get_or_insert(within);
            }
        }
    }

    fn forget(&mut self, key: &ServiceKey, uid: &PodUid) {
        self.departed.remove(&(key.clone(), uid.clone()));
        let Some(service) = self.services.get_mut(key) else { return };
        if service.endpoints.remove(uid).is_some() {
            self.count -= 1;
        }
        if service.endpoints.is_empty() {
            self.services.remove(key);
        }
    }
}

impl Service {
    /// An endpoint's places changed. `key`: of this Service.
    fn change(&mut self, key: &ServiceKey, uid: &PodUid, seen: Seen) -> Option<ReadyChange> {
        let endpoint = self.endpoints.get_mut(uid)?;
        let before = endpoint.conditions;
        let places = endpoint.places.iter().map(|place| place.conditions);
        let after = places.reduce(Conditions::or).unwrap_or_default();
        // An endpoint in no slice keeps its last conditions.
        if !endpoint.places.is_empty() {
            endpoint.follow(after, seen.moment());
        }
        endpoint.conditions = after;
        let moved = |count: &mut usize, of: fn(Conditions) -> bool| {
            *count = *count + usize::from(of(after)) - usize::from(of(before));
        };
        moved(&mut self.ready, |c| c.ready);
        moved(&mut self.serving_terminating, |c| c.serving && c.terminating);
        (before.ready != after.ready).then(|| ReadyChange {
            service: key.clone(),
            pod: uid.clone(),
            is_ready: after.ready,
            at: seen.moment(),
        })
    }
}

impl Endpoint {
    fn new(conditions: Conditions, seen: Seen) -> Endpoint {
        // The conditions are counted when it gets a place.
        Endpoint {
            terminating_at_start: seen.is_at_start() && conditions.terminating,
            unready_at_start: seen.is_at_start() && !conditions.ready,
            ..Endpoint::default()
        }
    }

    fn follow(&mut self, now: Conditions, at: Moment) {
        let since = |was: &mut Option<Moment>, is: bool| {
            if is {
                was.get_or_insert(at);
            } else {
                *was = None;
            }
        };
        since(&mut self.not_ready, !now.ready);
        since(&mut self.not_serving, !now.serving);
        since(&mut self.terminating, now.terminating);
        self.unready_at_start &= !now.ready;
    }

    fn is_begin_unseen(&self) -> bool {
        self.terminating_at_start || (self.terminating.is_none() && self.unready_at_start)
    }
}

fn removal(
    endpoint: &Endpoint,
    departed: Moment,
    (pod, ended): (Arc<PodIdentity>, Moment),
    service: &ServiceKey,
) -> EndpointRemoval {
    // A pod may be not ready for hours before an unrelated termination.
    let of_the_termination = |not_ready: &Moment| not_ready.at.plus(ENDPOINT_NEAR) >= ended.at;
    EndpointRemoval {
        pod,
        service: service.name.clone(),
        ports: endpoint.ports.clone(),
        address_types: endpoint.address_types.clone(),
        ended,
        begin: endpoint
            .terminating
            .or(endpoint.not_ready.filter(of_the_termination))
            .unwrap_or(departed),
        end: departed,
        terminating: endpoint.terminating,
        not_ready: endpoint.not_ready,
        not_serving: endpoint.not_serving,
        all_terminating: endpoint.all_terminating,
        publish_not_ready: endpoint.publish_not_ready,
        api_clock: None,
        is_of_lost_node: false,
    }
}
