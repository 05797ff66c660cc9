//! How the main process takes its stop signal.

use std::time::Duration;

use serde_json::json;

use super::manifest::{container, pod, victim, victim_with};
use super::{Act, CLEAN, Expected, From, Story, deleted, one};
use crate::cluster::images::{GO_SERVER, VICTIM, VICTIM_STOPPED_BY_QUIT};

const IGNORED: Expected = Expected {
    sentence: &["SIGTERM", "discarded the signal", "SIGKILL"],
    remedy: &["SIGTERM"],
    lasts: &[("SIGTERM → exit", Duration::from_secs(3))],
    ..one("ignored-stop-signal", &[("app", "ignored-stop-signal")])
};

pub const STORIES: &[Story] = &[
    deleted(
        "clean",
        "the handler runs and the process exits with 0",
        |name| vec![victim(name, 8, &["handle", "0"])],
        CLEAN,
    ),
    deleted(
        "no-handler",
        "PID 1 has no SIGTERM handler",
        |name| vec![victim(name, 4, &["idle"])],
        Expected {
            sentence: &["no SIGTERM handler", "discarded the signal", "SIGKILL"],
            ..IGNORED
        },
    ),
    deleted(
        "sig-ign",
        "PID 1 has SIGTERM set to SIG_IGN",
        |name| vec![victim(name, 4, &["ignore"])],
        Expected {
            sentence: &["SIG_IGN", "SIGKILL"],
            ..IGNORED
        },
    ),
    deleted(
        "go-without-handler",
        "a Go server that handles no signal: the Go runtime exits with 2",
        |name| {
            let app = json!({"name": "app", "image": GO_SERVER, "imagePullPolicy": "Never"});
            vec![pod(name, json!({"terminationGracePeriodSeconds": 8, "containers": [app]}))]
        },
        Expected {
            sentence: &["SIGTERM", "exited with code 2"],
            ..one("default-action", &[("app", "default-action")])
        },
    ),
    deleted(
        "exit-143",
        "a language runtime that exits with 143 after its shutdown hooks",
        |name| vec![victim(name, 8, &["handle", "143"])],
        Expected {
            sentence: &["143"],
            ..CLEAN
        },
    ),
    deleted(
        "expected-exit-code",
        "the process exits with 3, which an annotation declares as expected",
        |name| {
            let mut pod = victim(name, 8, &["handle", "3"]);
            pod["metadata"]["annotations"] = json!({"epitaph.dev/expected-exit-codes": "3"});
            vec![pod]
        },
        Expected {
            sentence: &["code 3"],
            ..CLEAN
        },
    ),
    deleted(
        "slow-within-grace",
        "the handler takes 3 s of a grace period of 12 s",
        |name| vec![victim(name, 12, &["handle-for", "3", "0"])],
        Expected {
            lasts: &[("SIGTERM → exit", Duration::from_secs(3))],
            ..CLEAN
        },
    ),
    deleted(
        "slow-beyond-grace",
        "the handler takes longer than the grace period",
        |name| vec![victim(name, 4, &["handle-slowly"])],
        Expected {
            sentence: &["SIGTERM", "handler", "did not finish", "SIGKILL"],
            remedy: &["terminationGracePeriodSeconds"],
            ..one("killed-after-grace", &[("app", "killed-after-grace")])
        },
    ),
    deleted(
        "stop-signal-of-the-image",
        "the image's STOPSIGNAL is SIGQUIT",
        |name| {
            let mut app = container("app", &["handle", "0"]);
            app["image"] = json!(VICTIM_STOPPED_BY_QUIT);
            vec![pod(name, json!({"terminationGracePeriodSeconds": 8, "containers": [app]}))]
        },
        Expected {
            spans: &["SIGQUIT → exit"],
            sentence: &["SIGQUIT"],
            ..CLEAN
        },
    ),
    deleted(
        "stop-signal-by-spec",
        "lifecycle.stopSignal is SIGQUIT",
        |name| {
            let mut pod = victim_with(name, 8, &["handle", "0"], json!({"lifecycle": {"stopSignal": "SIGQUIT"}}));
            pod["spec"]["os"] = json!({"name": "linux"});
            vec![pod]
        },
        Expected {
            spans: &["SIGQUIT → exit"],
            sentence: &["SIGQUIT"],
            ..CLEAN
        },
    ),
    Story {
        name: "force-delete",
        what: "kubectl delete --force --grace-period=0: the pod leaves the API at once, the container keeps running for 2 s",
        manifest: |name| vec![victim(name, 30, &["handle-slowly"])],
        from: From::Ready,
        acts: &[Act::ForceDelete],
        alone: false,
        kubelet: None,
        expected: Expected {
            sentence: &["SIGTERM", "SIGKILL", "force-deleted"],
            ..one("force-killed", &[("app", "force-killed")])
        },
    },
    Story {
        name: "deleted-with-a-shorter-grace",
        what: "a delete with a grace period of 4 s, of a pod with 60 s in its spec",
        manifest: |name| vec![victim(name, 60, &["handle-slowly"])],
        from: From::Ready,
        acts: &[Act::Delete(Some(4))],
        alone: false,
        kubelet: None,
        expected: Expected {
            sentence: &["SIGTERM", "SIGKILL", "60 s in its spec, 4 s asked for by the deletion"],
            remedy: &["the pod's own grace period of 60 s was not given", "--grace-period"],
            ..one("killed-after-grace", &[("app", "killed-after-grace")])
        },
    },
    Story {
        name: "deleted-with-a-longer-grace",
        what: "a delete with a grace period of 600 s, of a pod whose spec has 4 s and whose shutdown takes 8 s",
        manifest: |name| vec![victim(name, 4, &["handle-for", "8", "0"])],
        from: From::Ready,
        acts: &[Act::Delete(Some(600))],
        alone: false,
        kubelet: None,
        expected: Expected {
            advice: &["grace period of 4 s in the pod's spec (the deletion asked for 600 s)"],
            lasts: &[("SIGTERM → exit", Duration::from_secs(7))],
            ..CLEAN
        },
    },
    Story {
        name: "second-delete-shorter",
        what: "a delete with a grace period of 60 s, and 3 s later a delete with 20 s, which not every kubelet applies",
        manifest: |name| vec![victim(name, 60, &["handle-slowly"])],
        from: From::Ready,
        acts: &[Act::Delete(None), Act::Wait(Duration::from_secs(3)), Act::Delete(Some(20))],
        alone: false,
        kubelet: None,
        expected: Expected {
            sentence: &["SIGTERM", "SIGKILL", "shortened the grace period from 60 s to 20 s"],
            // A kubelet that applies it kills after some 23 s, another after 60 s.
            sentence_if_lasts: Some(("SIGTERM → exit", Duration::from_secs(40), "but SIGKILL did not come earlier")),
            remedy: &["the shutdown needs more than"],
            lasts: &[("SIGTERM → exit", Duration::from_secs(15))],
            ..one("killed-after-grace", &[("app", "killed-after-grace")])
        },
    },
    Story {
        name: "killed-from-the-host",
        what: "a process on the node sends SIGKILL to the main process",
        manifest: |name| {
            let mut pod = victim(name, 8, &["handle", "0"]);
            pod["spec"]["restartPolicy"] = json!("Never");
            vec![pod]
        },
        from: From::Ready,
        acts: &[Act::OnNode("kill -9 $PID"), Act::UntilOver],
        alone: false,
        kubelet: None,
        expected: Expected {
            cause: "external",
            spans: &[],
            sentence: &["SIGKILL", "neither the runtime nor the process itself"],
            ..one("killed-by-other", &[("app", "killed-by-other")])
        },
    },
    Story {
        name: "killed-from-another-pod",
        what: "a pod with hostPID sends SIGKILL to the main process",
        manifest: |name| {
            let mut pod = victim(name, 8, &["named", "prey-of-a-pod", "handle", "0"]);
            pod["spec"]["restartPolicy"] = json!("Never");
            vec![pod]
        },
        from: From::Ready,
        acts: &[Act::Apply(|name| vec![killer(name)]), Act::UntilOver],
        alone: false,
        kubelet: None,
        expected: Expected {
            cause: "external",
            spans: &[],
            sentence: &[
                "SIGKILL",
                "killed-from-another-pod-killer",
                "neither the runtime nor the process itself",
            ],
            ..one("killed-by-other", &[("app", "killed-by-other")])
        },
    },
    agent_ends(
        "agent-restarted",
        "the agent is killed and started again between the stop signal and the exit",
        |name| vec![victim(name, 60, &["handle-for", "30", "0"])],
        &[Act::Delete(None), Act::Wait(Duration::from_secs(3)), Act::KillAgent],
    ),
    agent_ends(
        "agent-replaced",
        "the agent is rolled out between the stop signal and the exit: the old agent leaves the termination to the new agent",
        |name| vec![victim(name, 90, &["handle-for", "60", "0"])],
        &[Act::Delete(None), Act::Wait(Duration::from_secs(3)), Act::ReplaceAgent],
    ),
    Story {
        acts: &[Act::Delete(None), Act::Wait(Duration::from_secs(3)), Act::ReplaceAgent],
        alone: true,
        ..deleted(
            "agent-replaced-between-two-ends",
            "the agent is rolled out when one of two containers has exited: the old agent reports that exit, the new agent the pod",
            |name| {
                let containers = [
                    container("quick", &["handle", "0"]),
                    container("app", &["handle-for", "60", "0"]),
                ];
                vec![pod(
                    name,
                    json!({"terminationGracePeriodSeconds": 90, "containers": containers}),
                )]
            },
            Expected {
                verdict: "unknown",
                // Clients of a pod that goes on in the gap are not known.
                containers: &[("app", "unknown"), ("quick", "clean-exit")],
                spans: &[],
                sentence: &[],
                whole: false,
                ..CLEAN
            },
        )
    },
    Story {
        name: "api-server-stopped",
        what: "the API server is down from just after the deletion request until after the exit",
        manifest: |name| vec![victim(name, 20, &["handle-for", "8", "0"])],
        from: From::Ready,
        acts: &[
            Act::Delete(None),
            Act::Wait(Duration::from_secs(2)),
            Act::StopApiServer(Duration::from_secs(15)),
        ],
        alone: true,
        kubelet: None,
        expected: Expected {
            lasts: &[("SIGTERM → exit", Duration::from_secs(8))],
            // A relist can only report that the pod is gone.
            whole: false,
            ..CLEAN
        },
    },
];

/// The agent stops between the stop signal and the exit: the next agent cannot know what it missed, and reports the gap.
const fn agent_ends(
    name: &'static str,
    what: &'static str,
    manifest: fn(&str) -> Vec<serde_json::Value>,
    acts: &'static [Act],
) -> Story {
    Story {
        acts,
        alone: true,
        ..deleted(
            name,
            what,
            manifest,
            Expected {
                // The journal has the stop signal; what the process sent on in the gap is not known.
                verdict: "unknown",
                containers: &[("app", "unknown")],
                spans: &[],
                sentence: &["code 0", "epitaph did not observe for"],
                whole: false,
                ..CLEAN
            },
        )
    }
}

/// Finds its target by name, as a badly written "cleanup" DaemonSet does.
fn killer(name: &str) -> serde_json::Value {
    let script =
        "for p in /proc/[0-9]*; do if [ \"$(cat $p/comm 2>/dev/null)\" = prey-of-a-pod ]; then kill -9 ${p#/proc/}; fi; done";
    let app = json!({"name": "app", "image": VICTIM, "imagePullPolicy": "Never", "command": ["sh", "-c", script]});
    // On the node of its prey: a cluster may have several.
    let beside = json!({"labelSelector": {"matchLabels": {"story": name}}, "topologyKey": "kubernetes.io/hostname"});
    pod(
        &format!("{name}-killer"),
        json!({
            "hostPID": true,
            "restartPolicy": "Never",
            "containers": [app],
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}},
        }),
    )
}
