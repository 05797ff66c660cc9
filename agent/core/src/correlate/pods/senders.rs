//! The pod and container that the sender of a signal lives in.

use std::sync::Arc;

use super::Pods;
use super::pod::{Held, Pod};
use crate::attribute::{Attribution, Subject};
use crate::ids::CgroupId;
use crate::ids::ContainerId;
use crate::report::{Report, Termination};
use crate::termination::{PodContainer, TerminationFacts};

impl Pods {
    /// An end that waits for nothing, with those who signalled it.
    pub(super) fn at_once(&self, facts: TerminationFacts) -> Report {
        Report::Terminated(Box::new(Termination::judged(self.with_sender_pods(facts), None)))
    }

    /// One that waited, as it is reported.
    pub(super) fn with_senders_of(&self, held: Held) -> Held {
        Held {
            facts: self.with_sender_pods(held.facts),
            ..held
        }
    }

    pub(super) fn with_sender_pods(&self, facts: TerminationFacts) -> TerminationFacts {
        facts.with_sender_pods(|place| self.container_at(place))
    }

    /// By a status that names the container's id: the cgroup's own name is no proof. None for a pod whose owners opted out.
    pub(super) fn container_at(&self, place: &Attribution) -> Option<Arc<PodContainer>> {
        let Attribution::Subject(Subject::Container { id, .. }, own) = place else {
            return None;
        };
        let pod = self.pods.get(self.ids.get(id)?)?;
        let (fact, named) = (pod.fact.as_ref()?, pod.names.get(id)?);
        let is_its = pod.is_cgroup_of(id, *own) && !pod.is_ignored();
        is_its.then(|| {
            Arc::new(PodContainer {
                pod: fact.pod.clone(),
                container: named.name.clone(),
            })
        })
    }
}

impl Pod {
    /// Not one of somebody else's making that bears the id.
    fn is_cgroup_of(&self, id: &ContainerId, own: CgroupId) -> bool {
        let is_known = self.containers.iter().any(|of| of.cgroup == own && of.id == *id);
        let was_reported = self.reported_ids.iter().any(|(known, cgroup)| known == id && *cgroup == own);
        (is_known || was_reported) && !self.is_forged(own)
    }
}
