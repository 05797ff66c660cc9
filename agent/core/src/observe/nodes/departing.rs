//! The endpoints of a node that shuts down: its kubelet stops the pods, and Services may send clients to them for a while yet.
//!
//! When each pod got its stop signal only the node's agent knows, and when its endpoint left only the API server shows. The clocks of the two
//! machines are not compared: the agent answers how long ago the signal was.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::report::{SERVICES, ServiceInShutdown};
use crate::ids::PodUid;
use crate::observe::endpoints::Endpoints;
use crate::observe::pods::ClusterPods;
use crate::observe::{AgentStop, EndpointRemoval, Moment};
use crate::pod::PodIdentity;
use crate::time::Boot;

/// Most pods, as the agent follows them, and most of their endpoints.
const PODS: usize = 512;
const ENDPOINTS: usize = 4 * PODS;
/// Services that a sentence names.
const NAMED: usize = 3;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Departing {
    stops: BTreeMap<PodUid, Stop>,
    /// Endpoints that were removed since the kubelet announced the shutdown.
    removed: Vec<Removed>,
}

#[derive(Clone, Copy, Debug)]
struct Stop {
    at: Boot,
    lost: Option<u64>,
}

#[derive(Debug)]
struct Removed {
    pod: Arc<PodIdentity>,
    service: Arc<str>,
    left: Moment,
}

impl Departing {
    /// The agent's last answer has the most.
    pub fn heard(&mut self, stops: Vec<AgentStop>) {
        for AgentStop { pod, at, lost } in stops {
            let has_room = self.stops.len() < PODS;
            match self.stops.get_mut(&pod) {
                Some(known) => {
                    // Of two latest times the earlier is nearer to the true one.
                    known.at = known.at.min(at);
                    known.lost = lost.or(known.lost);
                }
                None if has_room => {
                    self.stops.insert(pod, Stop { at, lost });
                }
                None => {}
            }
        }
    }

    pub fn removed(&mut self, removal: &EndpointRemoval) {
        if self.removed.len() >= ENDPOINTS {
            return;
        }
        let all = [removal.not_ready, removal.terminating, Some(removal.end)];
        let left = all.into_iter().flatten().min_by_key(|moment| moment.at);
        self.removed.push(Removed {
            pod: removal.pod.clone(),
            service: removal.service.clone(),
            left: left.unwrap_or(removal.end),
        });
    }

    /// By Service, those whose clients lost most first. `end`: what is ready then was ready until then, at least.
    pub fn services(&self, endpoints: &Endpoints, pods: &ClusterPods, end: Moment) -> Vec<ServiceInShutdown> {
        let mut all: HashMap<(Arc<str>, Arc<str>), ServiceInShutdown> = HashMap::new();
        let mut add = |namespace: Arc<str>, service: &Arc<str>, pod: &Arc<PodIdentity>, left: Moment, stop: &Stop| {
            let key = (namespace, service.clone());
            let of = all.entry(key).or_insert_with_key(|(namespace, service)| ServiceInShutdown {
                namespace: namespace.clone(),
                service: service.clone(),
                pods: 0,
                lost: None,
                may_be_more: false,
                ready_after_stop: None,
            });
            of.pods += 1;
            of.may_be_more |= stop.lost.is_none();
            of.lost = match (of.lost, stop.lost) {
                (Some(known), Some(more)) => Some(known + more),
                (known, more) => known.or(more),
            };
            let left = left.earliest();
            let longest = of.ready_after_stop.as_ref().map_or(Duration::ZERO, |(_, longest)| *longest);
            if left > stop.at && left.since(stop.at) > longest {
                of.ready_after_stop = Some((pod.clone(), left.since(stop.at)));
            }
        };
        for Removed { pod, service, left } in &self.removed {
            if let Some(stop) = self.stops.get(&pod.uid) {
                add(pod.namespace.as_str().into(), service, pod, *left, stop);
            }
        }
        for (namespace, service, uid, left) in endpoints.of(|uid| self.stops.contains_key(uid)) {
            let (Some(stop), Some(record)) = (self.stops.get(uid), pods.get(uid)) else {
                continue;
            };
            let is_told = self
                .removed
                .iter()
                .any(|known| known.pod.uid == *uid && known.service == *service);
            if !is_told && !pods.is_ignored(record) {
                add(namespace.clone(), service, &record.identity, left.unwrap_or(end), stop);
            }
        }
        let mut all: Vec<ServiceInShutdown> = all.into_values().collect();
        all.sort_by(|a, b| {
            let by_lost = b.lost.unwrap_or(0).cmp(&a.lost.unwrap_or(0));
            by_lost.then_with(|| (&a.namespace, &a.service).cmp(&(&b.namespace, &b.service)))
        });
        all.truncate(SERVICES);
        all
    }
}

/// What happened to clients, by Service; None where nothing of it is known.
pub(in crate::observe) fn sentence(services: &[ServiceInShutdown]) -> Option<String> {
    let told: Vec<String> = services.iter().filter_map(of_service).collect();
    let more = match told.len().saturating_sub(NAMED) {
        0 => String::new(),
        1 => "; and 1 more Service".to_owned(),
        more => format!("; and {more} more Services"),
    };
    let named = told.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    (!told.is_empty()).then(|| format!("{named}{more}"))
}

fn of_service(of: &ServiceInShutdown) -> Option<String> {
    let least = if of.may_be_more { "at least " } else { "" };
    let pods = if of.pods == 1 { "pod" } else { "pods" };
    let lost = of.lost.filter(|lost| *lost > 0).map(|lost| {
        let connections = if lost == 1 { "connection" } else { "connections" };
        format!("clients lost {least}{lost} {connections} of its {} stopped {pods}", of.pods)
    });
    let ready = of.ready_after_stop.as_ref().map(|(pod, longest)| {
        format!(
            "the endpoint of pod {} was still ready {} after the stop signal",
            pod.name,
            crate::verdict::seconds(*longest)
        )
    });
    let parts: Vec<String> = lost.into_iter().chain(ready).collect();
    (!parts.is_empty()).then(|| format!("Service {}/{}: {}", of.namespace, of.service, parts.join(", and ")))
}
