//! A pod's workload, found by its owners: one GET of metadata for a ReplicaSet or a Job, cached; no watch. Pods of one owner that are
//! looked up at the same time share the request.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use epitaph_core::pod::Workload;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::counters::PodsCounters;
use super::error::Action;
use super::lookup::{Lookup, NoAnswer, cached_metadata};
use crate::cache::Cache;
use crate::source::bounded;

/// Most cached owners of this node's pods.
const CAPACITY: usize = 1024;
const MAX_NAME: usize = 253;

/// Label on the pods of a Deployment's ReplicaSet; the ReplicaSet's name ends with its value.
pub(in crate::source) const TEMPLATE_HASH: &str = "pod-template-hash";
/// The same for the pods of a Rollout of Argo Rollouts.
pub(in crate::source) const ROLLOUT_HASH: &str = "rollouts-pod-template-hash";
/// The same for the pods of StatefulSets and DaemonSets.
pub(in crate::source) const REVISION_HASH: &str = "controller-revision-hash";

pub(in crate::source) struct Owners {
    client: Client,
    /// One lookup per kind: a kind that RBAC forbids must not stop requests for the other.
    replica_sets: Lookup,
    jobs: Lookup,
    /// By UID of the ReplicaSet or Job; empty until the first answer.
    known: Mutex<Cache<String, Arc<OnceCell<Above>>>>,
}

/// The owner of a pod's direct owner.
#[derive(Clone, Debug)]
enum Above {
    /// The owner's controller, if it has one.
    Is(Option<OwnerReference>),
    /// Deleted before its pods: no later request finds it.
    Gone,
}

/// Knowledge from a pod's references and labels, without a request.
#[derive(Debug, PartialEq)]
enum Direct<'a> {
    Known(Workload),
    /// Its own controller, if it has one, is the workload.
    LookUp(Action, &'a OwnerReference),
}

impl Owners {
    pub fn new(client: Client, counters: Arc<PodsCounters>) -> Self {
        Owners {
            client,
            replica_sets: Lookup::new(counters.clone()),
            jobs: Lookup::new(counters),
            known: Mutex::new(Cache::new(CAPACITY)),
        }
    }

    /// The workload, and whether it is known for certain: false if the API server did not answer, and the nearest known owner is
    /// returned.
    pub async fn workload(&self, pod: &Pod) -> (Workload, bool) {
        let (action, owner) = match direct(pod) {
            Direct::Known(workload) => return (workload, true),
            Direct::LookUp(action, owner) => (action, owner),
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let known = self.known(&owner.uid);
        let above = known.get_or_try_init(|| async {
            match self.controller(action, namespace, owner).await {
                Ok(above) => Ok(Above::Is(above)),
                Err(NoAnswer::NotFound) => Ok(Above::Gone),
                Err(none) => Err(none),
            }
        });
        match above.await {
            Ok(Above::Is(above)) => (joined(pod, owner, above.as_ref()), true),
            Ok(Above::Gone) => (fallback(pod, owner), true),
            Err(_) => (fallback(pod, owner), false),
        }
    }

    fn known(&self, uid: &String) -> Arc<OnceCell<Above>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = known.get(uid) {
            return cell.clone();
        }
        let cell = Arc::new(OnceCell::new());
        known.insert(uid.clone(), cell.clone());
        cell
    }

    async fn controller(
        &self,
        action: Action,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Option<OwnerReference>, NoAnswer> {
        let instead = "a pod's workload is then known by its labels, else by its direct owner";
        let client = self.client.clone();
        let meta = match action {
            Action::ReplicaSet => {
                let request = metadata::<ReplicaSet>(client, namespace, &owner.name);
                self.replica_sets.get(action, instead, request).await?
            }
            _ => {
                let request = metadata::<Job>(client, namespace, &owner.name);
                self.jobs.get(action, instead, request).await?
            }
        };
        // Another object of the same name.
        if meta.uid.as_deref() != Some(&owner.uid) {
            return Err(NoAnswer::NotFound);
        }
        Ok(controller(meta.owner_references.as_deref().unwrap_or_default()).cloned())
    }
}

/// The workload that the pod itself proves, without a request.
pub(in crate::source) fn by_labels(pod: &Pod) -> Workload {
    match direct(pod) {
        Direct::Known(workload) => workload,
        Direct::LookUp(_, owner) => fallback(pod, owner),
    }
}

/// Whether the pod's reference names only an owner between the pod and its workload.
pub(in crate::source) fn needs_lookup(pod: &Pod) -> bool {
    matches!(direct(pod), Direct::LookUp(..))
}

type Meta = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

async fn metadata<K>(client: Client, namespace: &str, name: &str) -> kube::Result<Meta>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    cached_metadata(&Api::<K>::namespaced(client, namespace), name).await
}

fn direct(pod: &Pod) -> Direct<'_> {
    let meta = &pod.metadata;
    let owner = controller(meta.owner_references.as_deref().unwrap_or_default());
    let Some(owner) = owner else {
        return Direct::Known(Workload {
            kind: "Pod".to_owned(),
            namespace: namespace(pod),
            name: bounded(meta.name.as_deref().unwrap_or_default(), MAX_NAME),
            uid: meta.uid.clone(),
            api_version: Some("v1".to_owned()),
            through: None,
        });
    };
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    match (group, owner.kind.as_str()) {
        ("apps", "ReplicaSet") => Direct::LookUp(Action::ReplicaSet, owner),
        ("batch", "Job") => Direct::LookUp(Action::Job, owner),
        _ => Direct::Known(named(pod, owner, None)),
    }
}

/// A reference that is too long for any object is not one: the API server does not check the length, and references are kept.
pub(in crate::source) fn controller(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    let fits = |owner: &OwnerReference| {
        let texts = [&owner.api_version, &owner.kind, &owner.name, &owner.uid];
        texts.into_iter().all(|text| text.len() <= MAX_NAME)
    };
    owners
        .iter()
        .find(|owner| owner.controller == Some(true))
        .filter(|owner| fits(owner))
}

fn joined(pod: &Pod, owner: &OwnerReference, above: Option<&OwnerReference>) -> Workload {
    match above {
        Some(above) => named(pod, above, Some(owner)),
        None => named(pod, owner, None),
    }
}

fn named(pod: &Pod, owner: &OwnerReference, through: Option<&OwnerReference>) -> Workload {
    Workload {
        kind: bounded(&owner.kind, MAX_NAME),
        // A Node has no namespace.
        namespace: if owner.kind == "Node" { String::new() } else { namespace(pod) },
        name: bounded(&owner.name, MAX_NAME),
        uid: Some(bounded(&owner.uid, MAX_NAME)),
        api_version: Some(bounded(&owner.api_version, MAX_NAME)),
        through: through.map(|o| (bounded(&o.kind, MAX_NAME), bounded(&o.name, MAX_NAME), Some(o.uid.clone()))),
    }
}

/// A Deployment's ReplicaSets are named after the Deployment and the hash in their pods' label.
fn fallback(pod: &Pod, owner: &OwnerReference) -> Workload {
    let hash = pod.metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
    match deployment.filter(|name| owner.kind == "ReplicaSet" && !name.is_empty()) {
        Some(deployment) => Workload {
            kind: "Deployment".to_owned(),
            name: bounded(deployment, MAX_NAME),
            uid: None,
            ..named(pod, owner, Some(owner))
        },
        None => named(pod, owner, None),
    }
}

fn namespace(pod: &Pod) -> String {
    bounded(pod.metadata.namespace.as_deref().unwrap_or_default(), MAX_NAME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mock_api;

    fn pod(owner: serde_json::Value, hash: &str) -> Pod {
        let pod = json!({"metadata": {
            "name": "cart-7d9-x", "namespace": "shop", "uid": "u1",
            "labels": {"pod-template-hash": hash}, "ownerReferences": [owner],
        }});
        serde_json::from_value(pod).unwrap()
    }

    fn owner(api_version: &str, kind: &str, name: &str) -> serde_json::Value {
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": "o1", "controller": true})
    }

    #[test]
    fn only_kubernetes_own_kinds_are_looked_up() {
        for (api_version, kind, asked) in [
            ("apps/v1", "ReplicaSet", Some(Action::ReplicaSet)),
            ("batch/v1", "Job", Some(Action::Job)),
            ("batch.volcano.sh/v1alpha1", "Job", None),
            ("apps.kruise.io/v1alpha1", "ReplicaSet", None),
            ("apps/v1", "StatefulSet", None),
        ] {
            let pod = pod(owner(api_version, kind, "x"), "7d9");
            match (direct(&pod), asked) {
                (Direct::LookUp(action, _), Some(asked)) => assert_eq!(action, asked),
                (Direct::Known(workload), None) => assert_eq!((workload.kind.as_str(), workload.name.as_str()), (kind, "x")),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_owner_that_does_not_control_the_pod_does_not_count() {
        let mut pod = pod(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "o1"}), "");
        assert!(matches!(direct(&pod), Direct::Known(w) if w.kind == "Pod" && w.name == "cart-7d9-x"));
        pod.metadata.owner_references = None;
        assert!(matches!(direct(&pod), Direct::Known(w) if w.kind == "Pod" && w.uid.as_deref() == Some("u1")));
    }

    #[test]
    fn a_reference_that_no_object_can_have_does_not_count() {
        let long = pod(owner("apps/v1", "ReplicaSet", &"x".repeat(MAX_NAME + 1)), "7d9");
        assert!(matches!(direct(&long), Direct::Known(w) if w.kind == "Pod"));
        let longest = pod(owner("apps/v1", "ReplicaSet", &"x".repeat(MAX_NAME)), "7d9");
        assert!(matches!(direct(&longest), Direct::LookUp(..)));
    }

    #[test]
    fn without_an_answer_the_labels_prove_the_deployment() {
        let known = |pod: &Pod| match direct(pod) {
            Direct::LookUp(_, owner) => fallback(pod, owner),
            Direct::Known(workload) => workload,
        };
        let workload = known(&pod(owner("apps/v1", "ReplicaSet", "cart-7d9"), "7d9"));
        assert_eq!(
            (workload.kind.as_str(), workload.name.as_str(), workload.uid),
            ("Deployment", "cart", None)
        );
        assert_eq!(
            workload.through,
            Some(("ReplicaSet".into(), "cart-7d9".into(), Some("o1".into())))
        );
        // A ReplicaSet without a Deployment, and a Job with pods that happen to have the label.
        for (kind, api_version, name) in [("ReplicaSet", "apps/v1", "cart"), ("Job", "batch/v1", "cart-7d9")] {
            let workload = known(&pod(owner(api_version, kind, name), "7d9"));
            assert_eq!((workload.kind.as_str(), workload.name.as_str()), (kind, name));
        }
    }

    #[tokio::test]
    async fn an_owner_that_is_gone_is_looked_up_once() {
        let (client, received) = mock_api::start(async |_| mock_api::failure(404, "not found"));
        let owners = Owners::new(client, Arc::default());
        let pod = pod(owner("apps/v1", "ReplicaSet", "cart-7d9"), "7d9");
        for _ in 0..3 {
            let (workload, is_resolved) = owners.workload(&pod).await;
            assert_eq!((workload.kind.as_str(), is_resolved), ("Deployment", true));
        }
        let cached = |request: &mock_api::Request| request.query.contains("resourceVersion=0");
        let requests: Vec<_> = received.lock().unwrap().iter().map(cached).collect();
        assert_eq!(requests, [true, false], "the cache, then etcd");
    }

    #[tokio::test]
    async fn pods_of_one_owner_share_a_request_and_owners_do_not_wait_for_each_other() {
        let waiting = Arc::new(tokio::sync::Barrier::new(2));
        let (client, received) = mock_api::start(move |request| {
            let waiting = waiting.clone();
            async move {
                // Answered only when both owners are asked for.
                waiting.wait().await;
                let name = request.path.rsplit('/').next().unwrap_or_default().to_owned();
                let owner = owner("apps/v1", "Deployment", "cart");
                let meta = json!({"name": name, "namespace": "shop", "uid": name, "ownerReferences": [owner]});
                mock_api::Answer::Json(
                    200,
                    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}),
                )
            }
        });
        let owners = Owners::new(client, Arc::default());
        let of = |name: &str| {
            let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true});
            pod(owner, "7d9")
        };
        let pods = [of("a"), of("a"), of("b"), of("a")];
        let found = futures::future::join_all(pods.iter().map(|pod| owners.workload(pod))).await;
        assert!(
            found.iter().all(|(workload, is_known)| workload.name == "cart" && *is_known),
            "{found:?}"
        );
        assert_eq!(received.lock().unwrap().len(), 2);
    }
}
