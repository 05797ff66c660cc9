//! Pods of workloads behind a Service: what replaces them, and when their endpoint goes.

use serde_json::{Value, json};

use super::manifest::{merge, victim_with};
use super::{CLEAN, Expected, NAMESPACE, Story, deleted};

const REPLACED: Expected = Expected {
    spans: &["SIGTERM → exit", "endpoint.removal", "replacement"],
    ..CLEAN
};

pub const STORIES: &[Story] = &[
    deleted(
        "replaced-in-a-deployment",
        "a ReplicaSet makes the next pod as soon as this one is deleted",
        |name| served(name, "Deployment", json!({"replicas": 1})),
        REPLACED,
    ),
    deleted(
        "replaced-in-a-statefulset",
        "a StatefulSet makes the next pod, of the same name, once this one is gone",
        |name| served(name, "StatefulSet", json!({"replicas": 1, "serviceName": name})),
        REPLACED,
    ),
    deleted(
        "replaced-in-a-daemonset",
        "a DaemonSet makes the next pod on the same node",
        |name| served(name, "DaemonSet", json!({})),
        REPLACED,
    ),
];

/// A workload of one server, ready as soon as it accepts connections, and its Service.
pub fn served(name: &str, kind: &str, more: Value) -> Vec<Value> {
    let server = json!({
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    });
    let pod = victim_with(name, 12, &["serve", "drain", "0.0.0.0:8080"], server);
    let labels = json!({"story": name});
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": labels});
    let mut spec = json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
    });
    merge(&mut spec, more);
    vec![
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        }),
    ]
}
