//! Pods by their workload's name: who owns a ReplicaSet or Job is asked beside the watch, so that no late answer makes its words
//! late. Until there is one, and without one, a pod's name is what it says itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use super::convert;
use crate::ids::PodUid;
use crate::pod::PodIdentity;
use crate::source::pods::cache::Cache;
use crate::source::pods::convert::{identity, uid};
use crate::source::pods::owners::{self, Owners};

/// Pods that wait to be asked about. A pod that does not fit is asked about at its next word.
const QUEUE: usize = 256;

/// Pods whose names are kept until their spans are told.
const ROOM: usize = 4096;

type Known = Arc<Mutex<Cache<PodUid, Arc<PodIdentity>>>>;

#[derive(Clone, Debug)]
pub(super) struct Names {
    known: Known,
    wanted: mpsc::Sender<Pod>,
}

impl Names {
    /// With what asks, to be run.
    pub(super) fn new(owners: Owners) -> (Names, impl Future<Output = ()>) {
        let (wanted, queue) = mpsc::channel(QUEUE);
        let known: Known = Arc::new(Mutex::new(Cache::new(ROOM)));
        let names = Names {
            known: known.clone(),
            wanted,
        };
        (names, asking(owners, queue, known))
    }

    /// Never waits.
    pub(super) fn want(&self, pod: Pod) {
        let is_known = uid(&pod).is_some_and(|uid| locked(&self.known).get(&uid).is_some());
        if !is_known && owners::is_to_be_asked(&pod) {
            let _ = self.wanted.try_send(pod);
        }
    }

    pub(super) fn of(&self, pod: &PodUid) -> Option<Arc<PodIdentity>> {
        locked(&self.known).get(pod).cloned()
    }
}

async fn asking(mut owners: Owners, mut queue: mpsc::Receiver<Pod>, known: Known) {
    while let Some(pod) = queue.recv().await {
        if uid(&pod).is_some_and(|uid| locked(&known).get(&uid).is_some()) {
            continue;
        }
        let (workload, is_final) = owners.workload(&pod).await;
        if is_final && let Some(named) = identity(&pod, &convert::node(&pod), workload) {
            locked(&known).insert(named.uid.clone(), Arc::new(named));
        }
    }
}

fn locked(known: &Known) -> MutexGuard<'_, Cache<PodUid, Arc<PodIdentity>>> {
    // Nothing in here panics half way through a change.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
