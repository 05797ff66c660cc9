//! Pods of several containers, and of unusual namespaces.

use serde_json::{Value, json};

use super::manifest::{container, merge, pod, victim};
use super::{Act, CLEAN, Expected, From, Story, deleted};

/// An init container that stays.
fn sidecar(args: &[&str]) -> Value {
    let mut sidecar = container("sidecar", args);
    sidecar["restartPolicy"] = json!("Always");
    sidecar
}

fn in_namespaces(name: &str, args: &[&str], more: Value) -> Vec<Value> {
    let mut pod = victim(name, 4, args);
    merge(&mut pod["spec"], more);
    vec![pod]
}

pub const STORIES: &[Story] = &[
    deleted(
        "sidecar-starved",
        "the main container uses up the grace period, and the sidecar, stopped after it, is killed too",
        |name| {
            let spec = json!({
                // Long, for the two seconds that the sidecar gets can be five on a machine that is slow to kill.
                "terminationGracePeriodSeconds": 14,
                "initContainers": [sidecar(&["handle-for", "60", "0"])],
                "containers": [container("app", &["handle-slowly"])],
            });
            vec![pod(name, spec)]
        },
        Expected {
            verdict: "killed-after-grace",
            containers: &[("app", "killed-after-grace"), ("sidecar", "sidecar-starved")],
            sentence: &["app", "SIGKILL"],
            ..CLEAN
        },
    ),
    deleted(
        "sidecar-ends-well",
        "the sidecar is stopped after the main container has exited",
        |name| {
            let spec = json!({
                "terminationGracePeriodSeconds": 12,
                "initContainers": [sidecar(&["handle", "0"])],
                "containers": [container("app", &["handle-for", "1", "0"])],
            });
            vec![pod(name, spec)]
        },
        Expected {
            containers: &[("app", "clean"), ("sidecar", "clean")],
            ..CLEAN
        },
    ),
    deleted(
        "one-of-three",
        "three containers; the stop signal of one is discarded",
        |name| {
            let containers = [
                container("first", &["handle", "0"]),
                container("deaf", &["idle"]),
                container("third", &["handle", "0"]),
            ];
            vec![pod(
                name,
                json!({"terminationGracePeriodSeconds": 4, "containers": containers}),
            )]
        },
        Expected {
            verdict: "ignored-stop-signal",
            containers: &[("first", "clean"), ("deaf", "ignored-stop-signal"), ("third", "clean")],
            sentence: &["deaf", "discarded the signal"],
            ..CLEAN
        },
    ),
    deleted(
        "after-an-init-container",
        "an init container had exited before",
        |name| {
            let spec = json!({
                "terminationGracePeriodSeconds": 8,
                "initContainers": [container("first", &["exit", "0"])],
                "containers": [container("app", &["handle", "0"])],
            });
            vec![pod(name, spec)]
        },
        Expected {
            earlier: &["first"],
            ..CLEAN
        },
    ),
    deleted(
        "host-network",
        "a pod in the node's network namespace",
        |name| in_namespaces(name, &["handle", "0"], json!({"hostNetwork": true})),
        CLEAN,
    ),
    deleted(
        "host-pid",
        "a pod in the node's pid namespace: an unhandled SIGTERM terminates the process",
        |name| in_namespaces(name, &["idle"], json!({"hostPID": true})),
        Expected {
            verdict: "default-action",
            containers: &[("app", "default-action")],
            sentence: &["no SIGTERM handler"],
            ..CLEAN
        },
    ),
    deleted(
        "shared-pid-namespace",
        "shareProcessNamespace: the pause container is PID 1, and an unhandled SIGTERM terminates the main process",
        |name| in_namespaces(name, &["idle"], json!({"shareProcessNamespace": true})),
        Expected {
            verdict: "default-action",
            containers: &[("app", "default-action")],
            sentence: &["no SIGTERM handler"],
            ..CLEAN
        },
    ),
    Story {
        name: "ephemeral-container",
        what: "an ephemeral container of kubectl debug terminates with the pod",
        manifest: |name| vec![victim(name, 8, &["handle", "0"])],
        from: From::Ready,
        acts: &[Act::Debug, Act::Delete(None)],
        alone: false,
        kubelet: None,
        expected: Expected {
            containers: &[("app", "clean"), ("debugger", "clean")],
            ..CLEAN
        },
    },
    Story {
        name: "opted-out",
        what: "an annotation suppresses the termination: nothing is exported",
        manifest: |name| {
            let mut pod = victim(name, 4, &["idle"]);
            pod["metadata"]["annotations"] = json!({"epitaph.dev/ignore": "true"});
            vec![pod]
        },
        from: From::Ready,
        acts: &[Act::Delete(None)],
        alone: false,
        kubelet: None,
        expected: Expected { root: "", ..CLEAN },
    },
];
