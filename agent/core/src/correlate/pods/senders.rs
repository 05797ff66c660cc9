//! Whose container the sender of a signal lives in.

use std::sync::Arc;

use super::Pods;
use super::pod::Pod;
use crate::attribute::{Attribution, ContainerId, PodUid, Subject};
use crate::event::CgroupId;
use crate::termination::{Output, PodContainer, Termination};
use crate::verdict::judge;

impl Pods {
    /// An end that waits for nothing, with those who signalled it.
    pub(super) fn at_once(&self, mut termination: Box<Termination>) -> Output {
        if self.name_senders(&mut termination) {
            termination.verdict = judge(&termination.case());
        }
        Output::Terminated(termination)
    }

    /// Of all ends of a pod that wait; each is judged again when it is told.
    pub(super) fn name_senders_of(&mut self, key: &PodUid) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let mut held = std::mem::take(&mut pod.held);
        for held in &mut held {
            self.name_senders(&mut held.termination);
        }
        if let Some(pod) = self.pods.get_mut(key) {
            pod.held = held;
        }
    }

    /// True where the pod of any is known.
    pub(super) fn name_senders(&self, termination: &mut Termination) -> bool {
        let senders = [
            termination.stop.as_mut().map(|stop| &mut stop.sender),
            termination.kill.as_mut().map(|kill| &mut kill.sender),
            termination.basis.fatal.as_mut().map(|fatal| &mut fatal.sender),
        ];
        let mut is_named = false;
        for sender in senders.into_iter().flatten() {
            sender.pod = self.container_at(&sender.place);
            is_named |= sender.pod.is_some();
        }
        is_named
    }

    /// By a status that names the container's id: the cgroup's own word is no proof. Nothing is told of a pod whose owners want that.
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
        let was_told = self.told_ids.iter().any(|(told, cgroup)| told == id && *cgroup == own);
        (is_known || was_told) && !self.is_forged(own)
    }
}
