//! Pods by their workload's name. The owner of a ReplicaSet or Job is looked up in a separate task, so that a late answer does not
//! delay the watch. Without an answer, the pod's labels and references give the name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epitaph_core::ids::PodUid;
use epitaph_core::pod::PodIdentity;
use epitaph_core::text::head;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::mpsc;

use super::convert;
use crate::cache::Cache;
use crate::source::pods::convert::{identity, uid};
use crate::source::pods::owners::{self, Owners, REVISION_HASH, TEMPLATE_HASH};
use crate::source::pods::service::{ANNOTATIONS, LABELS};

/// Most pods that wait for their lookup. A pod that does not fit is looked up at its next change.
const QUEUE: usize = 256;

/// Most lookups at the same time.
const AT_ONCE: usize = 8;

/// Most pods with a name that is kept until their spans are exported.
const CAPACITY: usize = 4096;

/// Longest text of a waiting pod, bytes: longer than every text in a [`PodIdentity`].
const LONGEST: usize = 1024;

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
    pub(super) fn want(&self, pod: &Pod) {
        let is_known = uid(pod).is_some_and(|uid| locked(&self.known).get(&uid).is_some());
        if !is_known && owners::needs_lookup(pod) {
            let _ = self.wanted.try_send(reduced(pod));
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

/// The pod with the fields that the lookup and [`identity`] read: a whole pod may have more than a megabyte. A pod of a ReplicaSet or
/// Job is not a mirror pod, whose annotations are not needed.
fn reduced(pod: &Pod) -> Pod {
    let meta = &pod.metadata;
    let kept = |all: Option<&BTreeMap<String, String>>, names: &[&str]| {
        let value = |name: &str| Some(head(all?.get(name)?, LONGEST).to_owned());
        let found = names.iter().filter_map(|&name| Some((name.to_owned(), value(name)?)));
        Some(found.collect())
    };
    let owner = owners::controller(meta.owner_references.as_deref().unwrap_or_default());
    let first = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let image = first.and_then(|container| container.image.as_ref());
    let [instance, name, version] = LABELS;
    Pod {
        metadata: ObjectMeta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            creation_timestamp: meta.creation_timestamp.clone(),
            labels: kept(meta.labels.as_ref(), &[TEMPLATE_HASH, REVISION_HASH, instance, name, version]),
            annotations: kept(meta.annotations.as_ref(), &ANNOTATIONS),
            owner_references: owner.map(|owner| vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(convert::node(pod)),
            containers: vec![Container {
                image: image.filter(|image| image.len() <= LONGEST).cloned(),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn locked(known: &Known) -> MutexGuard<'_, Cache<PodUid, Arc<PodIdentity>>> {
    // No code that holds the lock panics.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// As large as the API server allows, with these labels and annotations.
    fn whole(labels: &Value, annotations: &Value) -> Pod {
        let large = "x".repeat(100_000);
        let mut pod = json!({
            "metadata": {
                "name": "cart-7d9-x", "namespace": "shop", "uid": "u1", "creationTimestamp": "2026-11-21T11:44:10Z",
                "labels": labels, "annotations": annotations, "finalizers": [large],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": large, "uid": "o0"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-7d9", "uid": "o1", "controller": true},
                ],
            },
            "spec": {"nodeName": "n1", "containers": [
                {"name": "app", "image": "registry:5000/cart:v2", "command": [large]}, {"name": "other", "image": "x:v3"},
            ]},
            "status": {"phase": "Running", "message": large},
        });
        pod["metadata"]["labels"]["example.com/other"] = json!("x");
        pod["metadata"]["annotations"]["example.com/other"] = json!(large);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_waiting_pod_is_small_and_has_the_same_name() {
        let long = "é".repeat(100_000);
        let of_service = |value: &str| json!({"resource.opentelemetry.io/service.name": value});
        for (labels, annotations) in [
            (json!({"pod-template-hash": "7d9"}), json!({})),
            (json!({"app.kubernetes.io/instance": "i"}), json!({})),
            (
                json!({"app.kubernetes.io/name": "n", "app.kubernetes.io/version": "v1"}),
                json!({}),
            ),
            (json!({}), json!({"resource.opentelemetry.io/service.namespace": "a"})),
            (json!({}), json!({"resource.opentelemetry.io/service.version": "v3"})),
            (json!({}), of_service("cart")),
            (json!({}), of_service(&long)),
            // A claim to be a mirror pod.
            (
                json!({}),
                json!({"kubernetes.io/config.mirror": "h", "kubernetes.io/config.hash": "h"}),
            ),
        ] {
            let whole = whole(&labels, &annotations);
            let small = reduced(&whole);
            let named = |pod: &Pod| identity(pod, &convert::node(pod), owners::by_labels(pod));
            assert_eq!(named(&small), named(&whole), "{labels} {annotations}");
            assert!(owners::needs_lookup(&small));
            let length = serde_json::to_string(&small).unwrap().len();
            assert!(length < 2 * LONGEST, "{length}");
        }
    }
}
