//! Terminations by others than a delete request.

use std::time::Duration;

use serde_json::{Value, json};

use super::manifest::{merge, victim, victim_with};
use super::{Act, CLEAN, Expected, From, Story, one};

pub const STORIES: &[Story] = &[
    Story {
        name: "evicted-by-api",
        what: "the Eviction API, as used by kubectl drain",
        manifest: |name| vec![victim(name, 8, &["handle", "0"])],
        from: From::Ready,
        acts: &[Act::Evict(None)],
        alone: false,
        kubelet: None,
        expected: Expected {
            cause: "evicted-api",
            sentence: &["SIGTERM", "Eviction API"],
            ..CLEAN
        },
    },
    Story {
        name: "evicted-with-a-shorter-grace",
        what: "the Eviction API with deleteOptions of 4 s, of a pod with 60 s in its spec",
        manifest: |name| vec![victim(name, 60, &["handle-slowly"])],
        from: From::Ready,
        acts: &[Act::Evict(Some(4))],
        alone: false,
        kubelet: None,
        expected: Expected {
            cause: "evicted-api",
            sentence: &["60 s in its spec, 4 s asked for by the eviction"],
            remedy: &["the pod's own grace period of 60 s was not given", "kubectl drain"],
            ..one("killed-after-grace", &[("app", "killed-after-grace")])
        },
    },
    Story {
        name: "drained-with-a-shorter-grace",
        what: "kubectl drain --grace-period=4 of a pod with 60 s in its spec",
        manifest: |name| vec![victim(name, 60, &["handle-slowly"])],
        from: From::Ready,
        acts: &[Act::Drain(4)],
        alone: true,
        kubelet: None,
        expected: Expected {
            cause: "evicted-api",
            sentence: &["60 s in its spec, 4 s asked for by the eviction"],
            remedy: &["the pod's own grace period of 60 s was not given", "--grace-period"],
            ..one("killed-after-grace", &[("app", "killed-after-grace")])
        },
    },
    Story {
        name: "evicted-without-a-grace",
        what: "the Eviction API with deleteOptions of 0 s: the pod leaves the API at once, as by a force delete",
        manifest: |name| vec![victim(name, 60, &["handle-slowly"])],
        from: From::Ready,
        acts: &[Act::Evict(Some(0))],
        alone: false,
        kubelet: None,
        expected: Expected {
            cause: "evicted-api",
            sentence: &["60 s in its spec, 0 s asked for by the eviction"],
            remedy: &["the pod's own grace period of 60 s was not given", "kubectl drain"],
            ..one("force-killed", &[("app", "force-killed")])
        },
    },
    Story {
        name: "drained-without-a-grace",
        what: "kubectl drain --grace-period=0 of a pod with 60 s in its spec",
        manifest: |name| vec![victim(name, 60, &["handle-slowly"])],
        from: From::Ready,
        acts: &[Act::Drain(0)],
        alone: true,
        kubelet: None,
        expected: Expected {
            cause: "evicted-api",
            sentence: &["60 s in its spec, 0 s asked for by the eviction"],
            remedy: &["the pod's own grace period of 60 s was not given", "--grace-period"],
            ..one("force-killed", &[("app", "force-killed")])
        },
    },
    Story {
        name: "evicted-by-taint",
        what: "a NoExecute taint that the pod does not tolerate",
        manifest: |name| {
            let mut pod = victim(name, 8, &["handle", "0"]);
            pod["spec"]["tolerations"] = json!([]);
            vec![pod]
        },
        from: From::Ready,
        acts: &[Act::Taint],
        alone: false,
        kubelet: None,
        expected: Expected {
            cause: "evicted-taint",
            sentence: &["SIGTERM", "taint"],
            ..CLEAN
        },
    },
    Story {
        name: "preempted",
        what: "a pod of higher priority preempts the pod",
        manifest: |name| vec![demanding(name, name)],
        from: From::Ready,
        acts: &[Act::Apply(more_important)],
        alone: true,
        kubelet: None,
        expected: Expected {
            cause: "evicted-preempted",
            sentence: &["SIGTERM", "higher priority"],
            ..CLEAN
        },
    },
    Story {
        name: "over-its-volume",
        what: "the pod writes more into an emptyDir than the limit: the kubelet evicts the pod",
        manifest: |name| {
            let mut pod = victim_with(
                name,
                8,
                &["fill", "/data/file", "24"],
                json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
            );
            pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {"sizeLimit": "8Mi"}}]);
            pod["spec"]["restartPolicy"] = json!("Never");
            vec![pod]
        },
        from: From::Ready,
        acts: &[Act::UntilOver],
        alone: false,
        kubelet: None,
        expected: Expected {
            cause: "evicted-node-pressure",
            sentence: &["SIGTERM", "ran out of a resource"],
            ..CLEAN
        },
    },
    Story {
        name: "evicted-by-memory",
        what: "the node lacks memory: the kubelet evicts the pod with a grace period of 1 s, whatever the pod's own is",
        // More than the node lacks, so that no other pod follows.
        manifest: |name| vec![victim(name, 60, &["hold", "500"])],
        from: From::Ready,
        acts: &[Act::LackMemory(150), Act::UntilOver],
        alone: true,
        // The kubelet's own default, until the act replaces the threshold.
        kubelet: Some(r#"{"evictionHard": {"memory.available": "100Mi"}, "evictionPressureTransitionPeriod": "5s"}"#),
        expected: Expected {
            cause: "evicted-node-pressure",
            sentence: &[
                "60 s in its spec, and the kubelet's eviction did not wait",
                "The node was low on resource: memory",
            ],
            remedy: &["evictionSoft"],
            ..one("killed-after-grace", &[("app", "killed-after-grace")])
        },
    },
    Story {
        name: "deadline",
        what: "the pod exceeds its activeDeadlineSeconds",
        manifest: |name| {
            let mut pod = victim(name, 8, &["handle", "0"]);
            merge(
                &mut pod["spec"],
                json!({"activeDeadlineSeconds": 40, "restartPolicy": "Never"}),
            );
            vec![pod]
        },
        from: From::Applied,
        acts: &[Act::UntilOver, Act::Wait(Duration::from_secs(1))],
        alone: false,
        kubelet: None,
        expected: Expected {
            cause: "deadline",
            sentence: &["SIGTERM", "activeDeadlineSeconds"],
            ..CLEAN
        },
    },
];

/// More than half of the allocatable CPU of a node with two processors.
fn demanding(name: &str, story: &str) -> Value {
    let mut pod = victim_with(
        name,
        8,
        &["handle", "0"],
        json!({"resources": {"requests": {"cpu": "1100m"}}}),
    );
    pod["metadata"]["labels"] = json!({"story": story});
    // Both on one node: a cluster may have several.
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "node-1"});
    pod
}

fn more_important(story: &str) -> Vec<Value> {
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "stories-important"},
        "value": 1000,
    });
    let mut pod = demanding(&format!("{story}-by"), &format!("{story}-by"));
    pod["spec"]["priorityClassName"] = json!("stories-important");
    vec![class, pod]
}
