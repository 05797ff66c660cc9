//! Pods of workloads behind a Service: their replacement, and the removal of their endpoint.

use std::time::Duration;

use serde_json::{Value, json};

use super::manifest::{merge, victim, victim_with};
use super::{Act, CLEAN, Expected, NAMESPACE, Story, deleted, one};

const fn replaced(rule: &'static str) -> Expected {
    Expected {
        spans: &["SIGTERM → exit", "endpoint.removal", "replacement"],
        replaced: Some(rule),
        ..CLEAN
    }
}

pub const STORIES: &[Story] = &[
    deleted(
        "replaced-in-a-deployment",
        "a ReplicaSet creates the next pod as soon as this pod is deleted",
        |name| served(name, "Deployment", json!({"replicas": 1})),
        replaced("next-of-replica-set"),
    ),
    deleted(
        "replaced-in-a-statefulset",
        "a StatefulSet creates the next pod, with the same name, after this pod is gone",
        |name| served(name, "StatefulSet", json!({"replicas": 1, "serviceName": name})),
        replaced("name-in-stateful-set"),
    ),
    deleted(
        "replaced-in-a-daemonset",
        "a DaemonSet creates the next pod on the same node",
        |name| served(name, "DaemonSet", json!({})),
        replaced("node-of-daemon-set"),
    ),
    Story {
        acts: &[Act::Delete(None), Act::KillObserver],
        alone: true,
        ..deleted(
            "observer-killed",
            "the active observer is killed while the pod terminates: unfinished spans are not exported, and no span is exported twice",
            |name| served(name, "Deployment", json!({"replicas": 1})),
            CLEAN,
        )
    },
    deleted(
        "deaf-in-a-deployment",
        "PID 1 has no SIGTERM handler: the Deployment gets an Event too",
        |name| {
            let pod = victim(name, 4, &["idle"]);
            vec![workload(name, "Deployment", &pod, json!({"replicas": 1}))]
        },
        Expected {
            sentence: &["no SIGTERM handler", "discarded the signal", "SIGKILL"],
            remedy: &["SIGTERM"],
            lasts: &[("SIGTERM → exit", Duration::from_secs(3))],
            ..one("ignored-stop-signal", &[("app", "ignored-stop-signal")])
        },
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
    vec![
        workload(name, kind, &pod, more),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        }),
    ]
}

fn workload(name: &str, kind: &str, pod: &Value, more: Value) -> Value {
    let labels = json!({"story": name});
    let mut spec = json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
    });
    merge(&mut spec, more);
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": spec,
    })
}
