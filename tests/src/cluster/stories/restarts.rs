//! Exits of a container without a deletion of its pod.

use std::time::Duration;

use serde_json::{Value, json};

use super::manifest::{container, exec, merge, pre_stop, victim, victim_with};
use super::{Act, Beside, CLEAN, Expected, From, NAMESPACE, SINGLE_KILL, Story, one};

/// The pod goes on: the container's exit has a trace of its own.
pub(super) const RESTARTED: Expected = Expected {
    root: "container.stop",
    containers: &[],
    ..CLEAN
};

const fn by_itself(
    name: &'static str,
    what: &'static str,
    manifest: fn(&str) -> Vec<Value>,
    until: &'static [Act],
    expected: Expected,
) -> Story {
    Story {
        name,
        what,
        manifest,
        from: From::Applied,
        acts: until,
        alone: false,
        kubelet: None,
        expected,
    }
}

fn never_restarted(mut pod: Value) -> Vec<Value> {
    pod["spec"]["restartPolicy"] = json!("Never");
    vec![pod]
}

/// 32 MiB of memory.
pub(super) fn limits() -> Value {
    json!({"resources": {"limits": {"memory": "32Mi"}}})
}

fn limited(name: &str, role: &str) -> Value {
    victim_with(name, 8, &[role], limits())
}

fn failing_probe(kind: &str) -> Value {
    let mut probe = exec(&["hook", "0", "1"]);
    merge(
        &mut probe,
        json!({"initialDelaySeconds": 3, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5}),
    );
    json!({kind: probe})
}

/// A pod whose containers restart in place, once: its container `app` exits with 88 after `first`, a line of shell, and goes on in its next
/// life. Beside it an init container, `setup`, and `neighbour`.
fn in_place(name: &str, first: &str, neighbour: Value) -> Vec<Value> {
    let script = format!("if [ -e /lives/one ]; then exec /victim handle 0; fi; {first}; touch /lives/one; exit 88");
    let source = json!({
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "lives", "mountPath": "/lives"}],
        "restartPolicy": "Never",
        "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}],
    });
    let mut pod = victim_with(name, 8, &[], source);
    let mut second = container("neighbour", &["handle", "0"]);
    merge(&mut second, neighbour);
    pod["spec"]["containers"].as_array_mut().expect("containers").push(second);
    // A volume outlives the restart.
    pod["spec"]["volumes"] = json!([{"name": "lives", "emptyDir": {}}]);
    pod["spec"]["initContainers"] = json!([container("setup", &["exit", "0"])]);
    vec![pod]
}

/// Longer than the report of the init container's first life takes.
const A_WHILE: &str = "sleep 15";

/// Of one life of it.
const SETUP: Beside = Beside {
    container: "setup",
    verdict: "clean",
    cause: "completed",
    sentence: &["by itself", "code 0"],
};

const NEIGHBOUR: Beside = Beside {
    container: "neighbour",
    verdict: "clean",
    cause: "restart-in-place",
    sentence: &[
        "because container `app` exited with code 88",
        "kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0",
    ],
};

const IN_PLACE: Expected = Expected {
    cause: "restart-in-place",
    spans: &[],
    sentence: &[
        "code 88",
        "all containers of the pod restarted in place",
        "kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88",
    ],
    beside: &[SETUP, SETUP, NEIGHBOUR],
    ..RESTARTED
};

pub const STORIES: &[Story] = &[
    by_itself(
        "liveness-kill",
        "the liveness probe fails",
        |name| vec![victim_with(name, 8, &["handle", "0"], failing_probe("livenessProbe"))],
        &[Act::UntilRestarted],
        Expected {
            cause: "liveness",
            sentence: &["SIGTERM", "liveness probe failed"],
            remedy: &["livenessProbe"],
            ..RESTARTED
        },
    ),
    by_itself(
        "startup-kill",
        "the startup probe fails, and the process ignores the stop signal",
        |name| vec![victim_with(name, 4, &["idle"], failing_probe("startupProbe"))],
        &[Act::UntilRestarted],
        Expected {
            cause: "startup",
            verdict: "ignored-stop-signal",
            sentence: &["SIGTERM", "SIGKILL", "startup probe failed"],
            ..RESTARTED
        },
    ),
    by_itself(
        "oom-main",
        "the main process exceeds the memory limit",
        |name| never_restarted(limited(name, "allocate")),
        &[Act::UntilOver],
        Expected {
            cause: "oom",
            spans: &[],
            sentence: &["memory"],
            ..one("oom-killed", &[("app", "oom-killed")])
        },
    ),
    by_itself(
        "oom-with-its-child",
        "a child exceeds the memory limit, and the kernel kills the whole cgroup",
        |name| never_restarted(limited(name, "child-allocates")),
        &[Act::UntilOver],
        Expected {
            cause: "oom",
            spans: &[],
            sentence: &["memory"],
            ..one("oom-killed", &[("app", "oom-killed")])
        },
    ),
    Story {
        kubelet: Some(SINGLE_KILL),
        alone: true,
        ..by_itself(
            "oom-of-a-child-alone",
            "a child exceeds the memory limit, and only the child is killed; the main process then exits with 137",
            |name| never_restarted(limited(name, "child-allocates")),
            &[Act::UntilOver],
            Expected {
                cause: "oom",
                spans: &[],
                sentence: &["memory", "137"],
                ..one("oom-child", &[("app", "oom-child")])
            },
        )
    },
    Story {
        kubelet: Some(SINGLE_KILL),
        alone: true,
        from: From::Ready,
        ..by_itself(
            "oom-of-a-child-long-before",
            "a child is killed by the OOM killer; the main process goes on, and exits with 0 at its stop signal: the status still has OOMKilled",
            |name| vec![victim_with(name, 8, &["outlives-a-child", "0"], limits())],
            // Longer than an OOM kill counts as the reason of an exit.
            &[Act::Wait(Duration::from_secs(12)), Act::Delete(None)],
            Expected {
                sentence: &["kubectl shows OOMKilled; the kernel: exited with 0 at SIGTERM"],
                ..CLEAN
            },
        )
    },
    Story {
        kubelet: Some(SINGLE_KILL),
        alone: true,
        from: From::Ready,
        ..by_itself(
            "oom-of-a-child-and-143",
            "the same, and the main process exits with 143 at its stop signal",
            |name| vec![victim_with(name, 8, &["outlives-a-child", "143"], limits())],
            &[Act::Wait(Duration::from_secs(12)), Act::Delete(None)],
            Expected {
                sentence: &["kubectl shows OOMKilled; the kernel: exited with 143 at SIGTERM"],
                ..CLEAN
            },
        )
    },
    by_itself(
        "restarted-in-place",
        "a container exits with 88, for which the pod's containers restart in place (Kubernetes 1.36)",
        |name| in_place(name, A_WHILE, json!({})),
        &[Act::UntilRestarted],
        IN_PLACE,
    ),
    by_itself(
        "restarted-in-place-with-a-hook",
        "the same beside a container with a preStop hook, which no kubelet runs then",
        |name| in_place(name, A_WHILE, pre_stop(exec(&["hook", "1", "0"]))),
        &[Act::UntilRestarted],
        IN_PLACE,
    ),
    Story {
        alone: true,
        from: From::Ready,
        ..by_itself(
            "restarted-in-place-with-clients",
            "the same beside a server that clients call by a Service: the restart refuses them until the server's next life",
            |name| {
                let server = json!({"args": ["http", "close-and-drain", "[::]:8080", "--work-ms=300"]});
                let mut all = in_place(name, "until [ -e /lives/go ]; do sleep 0.2; done", server);
                // Of addresses that are not ready too: who is refused is refused by the pod, and not by a kube-proxy.
                all.push(json!({
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"story": name}},
                    "spec": {
                        "selector": {"story": name},
                        "ports": [{"port": 80, "targetPort": 8080}],
                        "publishNotReadyAddresses": true,
                    },
                }));
                all
            },
            &[
                Act::Clients(&["--clients=8", "--pause-ms=200"]),
                Act::OnNode("touch /var/lib/kubelet/pods/$POD/volumes/kubernetes.io~empty-dir/lives/go"),
                Act::UntilRestarted,
            ],
            Expected {
                beside: &[
                    SETUP,
                    SETUP,
                    Beside {
                        verdict: "refused-connections",
                        ..NEIGHBOUR
                    },
                ],
                clients: Some("neighbour"),
                ..IN_PLACE
            },
        )
    },
    Story {
        alone: true,
        from: From::Ready,
        ..by_itself(
            "restarted-in-place-beside-its-kubelet",
            "the same while the kubelet restarts: the report waits for the status",
            |name| in_place(name, "sleep 30", json!({})),
            &[
                Act::OnNode(
                    "systemctl stop kubelet; while kill -0 $PID 2>/dev/null; do sleep 0.2; done; sleep 10; systemctl start kubelet",
                ),
                Act::UntilRestarted,
            ],
            Expected {
                beside: &[SETUP, SETUP, NEIGHBOUR],
                ..IN_PLACE
            },
        )
    },
    by_itself(
        "restarted-by-a-rule",
        "a container of a pod that never restarts exits with 42, which its restart rules list",
        |name| {
            let rules = json!({
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
            });
            never_restarted(victim_with(name, 8, &["exit", "42"], rules))
        },
        &[Act::UntilRestarted],
        Expected {
            cause: "completed",
            spans: &[],
            sentence: &["code 42", "restart rules list"],
            ..RESTARTED
        },
    ),
    by_itself(
        "crash",
        "the process exits by itself with 3",
        |name| never_restarted(victim(name, 8, &["exit", "3"])),
        &[Act::UntilOver],
        Expected {
            cause: "crash",
            spans: &[],
            sentence: &["code 3"],
            ..one("nonzero-exit", &[("app", "nonzero-exit")])
        },
    ),
    by_itself(
        "crash-loop",
        "the process exits within the first second, and the container is restarted",
        |name| vec![victim(name, 8, &["exit", "3"])],
        &[Act::UntilRestarted],
        Expected {
            cause: "crash",
            verdict: "nonzero-exit",
            sentence: &["code 3"],
            spans: &[],
            ..RESTARTED
        },
    ),
    by_itself(
        "segfault",
        "the process crashes",
        |name| never_restarted(victim(name, 8, &["fault"])),
        &[Act::UntilOver],
        Expected {
            cause: "crash",
            spans: &[],
            sentence: &["SIGSEGV"],
            ..one("crashed", &[("app", "crashed")])
        },
    ),
    by_itself(
        "job-completes",
        "a Job whose pod exits with 0",
        |name| {
            let mut pod = victim(name, 8, &["exit", "0"]);
            pod["spec"]["restartPolicy"] = json!("Never");
            vec![json!({
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "backoffLimit": 0,
                    "template": {"metadata": {"labels": {"story": name}}, "spec": pod["spec"]},
                },
            })]
        },
        &[Act::UntilOver],
        Expected {
            cause: "completed",
            spans: &[],
            sentence: &["by itself", "code 0"],
            ..CLEAN
        },
    ),
];
