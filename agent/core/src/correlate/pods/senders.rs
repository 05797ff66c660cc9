//! The pod and container of a signal's sender.

use std::net::IpAddr;
use std::sync::Arc;

use super::Pods;
use super::parts::Held;
use super::pod::Pod;
use crate::attribute::{Attribution, Subject};
use crate::ids::CgroupId;
use crate::ids::ContainerId;
use crate::report::{Report, Termination};
use crate::termination::{PeerPlace, PodContainer, TerminationFacts};

impl Pods {
    /// A termination that does not wait, with the containers of its signals' senders.
    pub(super) fn at_once(&self, facts: TerminationFacts) -> Report {
        Report::Terminated(Box::new(Termination::judged(self.with_sender_pods(facts), None)))
    }

    /// The same for a termination that was held.
    pub(super) fn with_senders_of(&self, held: Held) -> Held {
        Held {
            facts: self.with_sender_pods(held.facts),
            ..held
        }
    }

    pub(super) fn with_sender_pods(&self, facts: TerminationFacts) -> TerminationFacts {
        facts
            .with_sender_pods(|place| self.container_at(place))
            .with_peer_places(|address| self.peer_at(address))
    }

    /// By the addresses in the pods' statuses; a pod in the host's network has the node's. An address that two pods have had is
    /// of none.
    fn peer_at(&self, address: IpAddr) -> PeerPlace {
        let has = |pod: &&Pod| pod.fact.as_ref().is_some_and(|fact| fact.spec.ips.contains(&address));
        let mut place = PeerPlace::Elsewhere;
        for pod in self.pods.values().filter(has) {
            let Some(fact) = &pod.fact else { continue };
            if fact.spec.host_network {
                return PeerPlace::Node;
            }
            match place {
                PeerPlace::Elsewhere if !pod.is_ignored() => place = PeerPlace::Pod(fact.pod.clone()),
                _ => return PeerPlace::Elsewhere,
            }
        }
        place
    }

    /// By a status that names the container's id: the cgroup's own name is not proof. None for a pod with `epitaph.dev/ignore`.
    pub(super) fn container_at(&self, place: &Attribution) -> Option<Arc<PodContainer>> {
        let Attribution::Subject(Subject::Container { id, .. }, own) = place else {
            return None;
        };
        let pod = self.pods.get(self.ids.get(id)?)?;
        let (fact, named) = (pod.fact.as_ref()?, pod.names.get(id)?);
        let is_own = pod.is_cgroup_of(id, *own) && !pod.is_ignored();
        is_own.then(|| {
            Arc::new(PodContainer {
                pod: fact.pod.clone(),
                container: named.name.clone(),
            })
        })
    }
}

impl Pod {
    /// False for a cgroup that another process created with the same id.
    fn is_cgroup_of(&self, id: &ContainerId, own: CgroupId) -> bool {
        let is_known = self.containers.iter().any(|of| of.cgroup == own && of.id == *id);
        let was_reported = self.reported_ids.iter().any(|(known, cgroup)| known == id && *cgroup == own);
        (is_known || was_reported) && !self.is_forged(own)
    }
}
