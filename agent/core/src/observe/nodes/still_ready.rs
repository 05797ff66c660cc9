//! Endpoints that stay ready on a node whose kubelet has announced its shutdown: by then the kubelet stops the pods, and their Services
//! send clients to them all the same.

use std::collections::BTreeMap;

use super::report::ReadyService;
use crate::ids::PodUid;
use crate::observe::Moment;
use crate::observe::endpoints::{ReadyChange, ServiceKey};

/// Most endpoints that are followed on one node: a kubelet runs 110 pods by default.
const ENDPOINTS: usize = 1024;

/// Of one shutdown.
#[derive(Debug, Default)]
pub(super) struct StillReady {
    /// Those that were ready at the announcement are in it.
    pub is_begun: bool,
    /// When each stopped being ready; None: it is ready.
    services: BTreeMap<ServiceKey, BTreeMap<PodUid, Option<Moment>>>,
    count: usize,
    /// There was no room for some.
    pub has_dropped: bool,
}

impl StillReady {
    pub fn ready(&mut self, service: &ServiceKey, pod: &PodUid) {
        self.note(service, pod, None);
    }

    pub fn change(&mut self, change: ReadyChange) {
        let ReadyChange {
            service,
            pod,
            is_ready,
            at,
        } = change;
        let is_known = self.services.get(&service).is_some_and(|of| of.contains_key(&pod));
        // What was not ready at the announcement has nothing to lose.
        if is_ready || is_known {
            self.note(&service, &pod, (!is_ready).then_some(at));
        }
    }

    pub fn services(&self) -> Vec<ReadyService> {
        let of = |(key, all): (&ServiceKey, &BTreeMap<PodUid, Option<Moment>>)| ReadyService {
            namespace: key.namespace.clone(),
            service: key.name.clone(),
            pods: all.keys().cloned().collect(),
            still_ready: all.values().filter(|until| until.is_none()).count() as u64,
            until: all.values().flatten().copied().max_by_key(|until| until.at),
        };
        self.services.iter().map(of).collect()
    }

    fn note(&mut self, service: &ServiceKey, pod: &PodUid, until: Option<Moment>) {
        let known = self.services.get_mut(service).and_then(|of| of.get_mut(pod));
        match known {
            Some(known) => *known = until,
            None if self.count >= ENDPOINTS => self.has_dropped = true,
            None => {
                self.count += 1;
                self.services.entry(service.clone()).or_default().insert(pod.clone(), until);
            }
        }
    }
}
