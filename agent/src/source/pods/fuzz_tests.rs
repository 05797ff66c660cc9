//! Objects of the Kubernetes API: names, annotations, messages and statuses in them are chosen by tenants.

use std::sync::Arc;

use epitaph_core::time::Boot;
use k8s_openapi::api::core::v1::{Event, Pod};

use super::convert::{fact, identity};
use super::events::pod_event;
use super::options::Annotated;
use super::owners;
use crate::fuzz::{outcome, run, shape};

const POD: &str = r#"{
    "metadata": {
        "namespace": "shop", "name": "web-0", "uid": "1c07ff2d-8b1b-4b3c-9f65-0f3a3c0f6a11", "resourceVersion": "7",
        "creationTimestamp": "2026-11-22T09:00:00Z", "deletionTimestamp": "2026-11-22T10:00:00Z", "deletionGracePeriodSeconds": 30,
        "labels": {"app.kubernetes.io/name": "web", "pod-template-hash": "5d4f8c7b9"},
        "annotations": {
            "epitaph.dev/ignore": "false", "epitaph.dev/expected-exit-codes": "0,3",
            "kubernetes.io/config.mirror": "a", "kubernetes.io/config.hash": "b"
        },
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8c7b9", "uid": "r", "controller": true
        }]
    },
    "spec": {
        "terminationGracePeriodSeconds": 30, "restartPolicy": "Always", "nodeName": "node-1",
        "containers": [{
            "name": "app", "image": "registry.example:5000/web:v2@sha256:ab",
            "ports": [{"containerPort": 8080}],
            "lifecycle": {"preStop": {"httpGet": {"path": "/drain", "port": "http"}}},
            "livenessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 10}
        }],
        "initContainers": [{"name": "init", "restartPolicy": "Always"}]
    },
    "status": {
        "phase": "Running", "reason": "Evicted", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}],
        "startTime": "2026-11-22T09:00:00Z",
        "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-22T10:00:01Z"}
        ],
        "containerStatuses": [{
            "name": "app", "ready": false, "restartCount": 3, "image": "x", "imageID": "y", "containerID": "containerd://3f1c",
            "state": {"terminated": {
                "exitCode": 137, "signal": 9, "reason": "OOMKilled", "startedAt": "2026-11-22T09:00:00Z",
                "finishedAt": "2026-11-22T10:00:01Z", "containerID": "containerd://3f1c", "message": "m"
            }}
        }]
    }
}"#;

const EVENT: &str = r#"{
    "metadata": {"name": "e", "namespace": "shop", "uid": "e"},
    "involvedObject": {
        "kind": "Pod", "name": "web-0", "uid": "1c07ff2d-8b1b-4b3c-9f65-0f3a3c0f6a11", "fieldPath": "spec.containers{app}"
    },
    "reason": "Killing", "message": "Stopping container app", "count": 2, "type": "Normal",
    "firstTimestamp": "2026-11-22T10:00:00Z", "lastTimestamp": "2026-11-22T10:00:01Z",
    "eventTime": "2026-11-22T10:00:00.123456Z", "series": {"count": 3, "lastObservedTime": "2026-11-22T10:00:01.000001Z"}
}"#;

#[test]
fn kubernetes_object() {
    let known: Pod = serde_json::from_str(POD).expect("a pod");
    let known = Arc::new(identity(&known, "node-1", owners::by_labels(&known)).expect("an identity"));
    let seeds = [POD, EVENT].map(|object| object.as_bytes().to_vec());
    run("kubernetes_object", seeds.into(), |bytes| {
        if let Ok(event) = serde_json::from_slice::<Event>(bytes)
            && let Some(event) = pod_event(&event, &known, Boot(5))
        {
            assert!(event.reason.len() <= 1_024 && event.message.len() <= 2_048, "{event:?}");
        }
        let Ok(pod) = serde_json::from_slice::<Pod>(bytes) else {
            return 0;
        };
        let workload = owners::by_labels(&pod);
        let kind = workload.kind.clone();
        let Some(identity) = identity(&pod, "node-1", workload) else {
            return 1;
        };
        let mut bad = 0;
        let options = Annotated::parse(pod.metadata.annotations.as_ref(), |_| bad += 1).over(&Annotated::default());
        let fact = fact(&pod, Arc::new(identity), options, Boot(5));
        let states: Vec<_> = fact
            .containers
            .iter()
            .take(4)
            .map(|container| shape(&container.state))
            .collect();
        outcome((
            kind.len().min(12),
            bad,
            shape(&fact.phase),
            fact.deletion.is_some(),
            fact.disruption.is_some(),
            fact.ready.map(|ready| (ready.is_ready, ready.last_start.is_some())),
            states,
        ))
    });
}
