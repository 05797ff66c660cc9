//! Pods by their workload's name. The owner of a ReplicaSet or Job is looked up in a separate task, so that a late answer does not
//! delay the watch. Without an answer, the pod's labels and references give the name.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epitaph_core::ids::PodUid;
use epitaph_core::pod::PodIdentity;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use super::convert;
use crate::cache::Cache;
use crate::source::pods::convert::{identity, uid};
use crate::source::pods::owners::{self, Owners};

/// Most pods that wait for their lookup. A pod that does not fit is looked up at its next change.
const QUEUE: usize = 256;

/// Most lookups at the same time.
const AT_ONCE: usize = 8;

/// Most pods with a name that is kept until their spans are exported.
const CAPACITY: usize = 4096;

type Known = Arc<Mutex<Cache<PodUid, Arc<PodIdentity>>>>;

#[derive(Clone, Debug)]
pub(super) struct Names {
    known: Known,
    wanted: mpsc::Sender<Pod>,
}

impl Names {
    /// Returns also the lookup task, which the caller runs.
    pub(super) fn new(owners: Owners) -> (Names, impl Future<Output = ()>) {
        let (wanted, queue) = mpsc::channel(QUEUE);
        let known: Known = Arc::new(Mutex::new(Cache::new(CAPACITY)));
        let names = Names {
            known: known.clone(),
            wanted,
        };
        (names, look_up(owners, queue, known))
    }

    /// Never waits.
    pub(super) fn want(&self, pod: Pod) {
        let is_known = uid(&pod).is_some_and(|uid| locked(&self.known).get(&uid).is_some());
        if !is_known && owners::needs_lookup(&pod) {
            let _ = self.wanted.try_send(pod);
        }
    }

    pub(super) fn of(&self, pod: &PodUid) -> Option<Arc<PodIdentity>> {
        locked(&self.known).get(pod).cloned()
    }
}

async fn look_up(owners: Owners, queue: mpsc::Receiver<Pod>, known: Known) {
    let queue = stream::unfold(queue, |mut queue| async move { Some((queue.recv().await?, queue)) });
    let (owners, known) = (&owners, &known);
    let look_up = |pod: Pod| async move {
        if uid(&pod).is_some_and(|uid| locked(known).get(&uid).is_some()) {
            return;
        }
        let (workload, is_final) = owners.workload(&pod).await;
        if is_final && let Some(named) = identity(&pod, &convert::node(&pod), workload) {
            locked(known).insert(named.uid.clone(), Arc::new(named));
        }
    };
    queue.for_each_concurrent(AT_ONCE, look_up).await;
}

fn locked(known: &Known) -> MutexGuard<'_, Cache<PodUid, Arc<PodIdentity>>> {
    // No code that holds the lock panics.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
