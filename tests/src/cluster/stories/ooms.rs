//! What the victim of an OOM kill was for its container: only the first process and its own workers are the container's.

use std::time::Duration;

use serde_json::{Value, json};

use super::manifest::{container, exec, merge, pod, pre_stop, victim_with};
use super::restarts::{RESTARTED, limits};
use super::{Act, CLEAN, Expected, From, SINGLE_KILL, Story, one};

/// One process alone is killed, not the whole cgroup.
const fn alone(
    name: &'static str,
    what: &'static str,
    manifest: fn(&str) -> Vec<Value>,
    acts: &'static [Act],
    expected: Expected,
) -> Story {
    Story {
        name,
        what,
        manifest,
        from: From::Ready,
        acts,
        alone: true,
        kubelet: Some(SINGLE_KILL),
        expected,
    }
}

/// The server, and what else runs in its container, may use 32 MiB.
fn server(name: &str, more: Value) -> Vec<Value> {
    let mut limited = limits();
    merge(&mut limited, more);
    vec![victim_with(name, 12, &["handle", "0"], limited)]
}

pub const STORIES: &[Story] = &[
    alone(
        "oom-of-an-exec-probe",
        "the kubelet's exec probe exceeds the memory limit, again and again, and alone is killed",
        |name| {
            let mut probe = exec(&["allocate-at-once"]);
            merge(
                &mut probe,
                json!({"initialDelaySeconds": 2, "periodSeconds": 2, "failureThreshold": 1000, "timeoutSeconds": 20}),
            );
            server(name, json!({"livenessProbe": probe}))
        },
        // For some probes, the last of them shortly before the deletion.
        &[Act::Wait(Duration::from_secs(12)), Act::Delete(None)],
        Expected {
            sentence: &["the OOM killer had killed `victim`", "the kubelet's exec probe", "SIGTERM"],
            ..CLEAN
        },
    ),
    alone(
        "oom-of-a-prestop-hook",
        "the preStop hook exceeds the memory limit and alone is killed",
        |name| server(name, pre_stop(exec(&["allocate-at-once"]))),
        &[Act::Delete(None)],
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            sentence: &["the OOM killer had killed `victim`", "the preStop hook"],
            ..one("prestop-failed", &[("app", "prestop-failed")])
        },
    ),
    alone(
        "oom-of-an-exec-session",
        "a command that came in from outside exceeds the memory limit and alone is killed",
        |name| server(name, json!({})),
        &[
            Act::OnNode(
                "id=$(grep -o '[0-9a-f]\\{64\\}' /proc/$PID/cgroup | tail -n 1); \
                 ctr -n k8s.io tasks exec --exec-id session $id /victim allocate-at-once; true",
            ),
            Act::Delete(None),
        ],
        Expected {
            sentence: &[
                "the OOM killer had killed `victim`",
                "which came from outside, as by `kubectl exec`",
            ],
            ..CLEAN
        },
    ),
    Story {
        from: From::Applied,
        alone: false,
        kubelet: None,
        ..alone(
            "oom-of-an-init-container",
            "an init container exceeds its memory limit, so the containers behind it are not started",
            |name| {
                let mut setup = container("setup", &["allocate"]);
                merge(&mut setup, limits());
                let spec = json!({"initContainers": [setup], "containers": [container("app", &["handle", "0"])]});
                vec![pod(name, spec)]
            },
            &[Act::UntilRestarted],
            Expected {
                cause: "oom",
                verdict: "oom-killed",
                spans: &[],
                sentence: &["memory", "the init container did not finish"],
                ..RESTARTED
            },
        )
    },
];
