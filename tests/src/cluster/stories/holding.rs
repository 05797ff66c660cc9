//! Pods that stay `Terminating` after their containers have exited: one story for each layer that holds them. What a story breaks on the node
//! is undone by the node itself, so that a story that fails leaves a node that works.

use std::time::Duration;

use serde_json::{Value, json};

use super::manifest::{merge, victim, victim_with};
use super::{Act, CLEAN, Expected, From, Story};

/// A pod that is deleted, held with these words, and goes once the node has undone what `acts` broke.
const fn held(name: &'static str, what: &'static str, manifest: fn(&str) -> Vec<Value>, acts: &'static [Act]) -> Story {
    Story {
        name,
        what,
        manifest,
        from: From::Ready,
        acts,
        alone: true,
        kubelet: None,
        expected: CLEAN,
    }
}

/// The kubelet reports the exit only once the layer lets go of the pod, which is after its report.
const UNREPORTED: Expected = Expected { whole: false, ..CLEAN };

/// The node of a volume of its own.
const NODE: &str = "node-1";

pub const STORIES: &[Story] = &[
    Story {
        name: "held-by-a-finalizer",
        what: "a finalizer keeps the pod in the API for a minute after its last container has exited",
        manifest: |name| {
            let mut pod = victim(name, 8, &["handle", "0"]);
            pod["metadata"]["finalizers"] = json!(["epitaph.dev/story"]);
            vec![pod]
        },
        from: From::Ready,
        acts: &[Act::Delete(None), Act::UntilHeld("epitaph.dev/story")],
        alone: false,
        kubelet: None,
        expected: CLEAN,
    },
    Story {
        expected: Expected {
            lasts: &[("SIGTERM → exit", Duration::from_secs(19))],
            ..UNREPORTED
        },
        ..held(
            "held-by-runtime",
            "the shim is stopped between the stop signal and the exit: the exit reaches nobody but the kernel",
            // The runtime must not ask a shim that does not answer for a kill.
            |name| vec![victim(name, 240, &["handle-for", "20", "0"])],
            &[
                Act::Delete(None),
                // The stop signal has arrived by then.
                Act::Wait(Duration::from_secs(8)),
                Act::OnNode(
                    "set -e
                    shim=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PID/status)
                    grep -q shim /proc/$shim/comm
                    systemd-run --quiet --collect sh -c \"sleep 120; kill -CONT $shim\"
                    kill -STOP $shim",
                ),
                Act::UntilHeld("its status still shows `app` as running"),
            ],
        )
    },
    Story {
        expected: UNREPORTED,
        ..held(
            "held-by-sandbox",
            "the CNI plugin takes 90 s to remove the pod's network: the runtime's stop of the sandbox is not done meanwhile",
            |name| vec![victim(name, 8, &["handle", "0"])],
            &[
                Act::OnNode(
                    "set -e
                    cp /usr/lib/cni/bridge /usr/local/sbin/story-bridge
                    cat >/usr/local/sbin/story-cni <<'END'
#!/bin/sh
if [ \"$CNI_COMMAND\" = DEL ]; then sleep 90; fi
exec /usr/local/sbin/story-bridge
END
                    chmod 755 /usr/local/sbin/story-cni
                    systemd-run --quiet --collect sh -c 'sleep 100; umount -l /usr/lib/cni/bridge'
                    mount --bind /usr/local/sbin/story-cni /usr/lib/cni/bridge",
                ),
                Act::Delete(None),
                Act::UntilHeld("its sandbox is not stopped yet"),
            ],
        )
    },
    Story {
        expected: UNREPORTED,
        ..held(
            "held-by-network",
            "the CNI plugin fails to remove the pod's network",
            |name| vec![victim(name, 8, &["handle", "0"])],
            &[
                Act::OnNode(
                    "set -e
                cat >/usr/local/sbin/story-cni <<'END'
#!/bin/sh
echo '{\"cniVersion\": \"1.0.0\", \"code\": 100, \"msg\": \"the plugin of the story fails\"}'
exit 1
END
                chmod 755 /usr/local/sbin/story-cni
                systemd-run --quiet --collect sh -c 'sleep 110; umount -l /usr/lib/cni/bridge'
                mount --bind /usr/local/sbin/story-cni /usr/lib/cni/bridge",
                ),
                Act::Delete(None),
                Act::UntilHeld("the network of its sandbox could not be torn down"),
            ],
        )
    },
    held(
        "held-by-volume",
        "a process of the node is in the directory of the pod's volume, so the kubelet cannot unmount the volume of its claim",
        of_a_claim,
        &[
            Act::OnNode(
                "set -e
                cd /var/lib/kubelet/pods/$POD/volumes/kubernetes.io~local-volume/held-by-volume
                mountpoint -q \"$PWD\"
                setsid sleep 110 </dev/null >/dev/null 2>&1 &",
            ),
            Act::Delete(None),
            Act::UntilHeld("either its volumes (held-by-volume) are not unmounted yet, or an admission webhook"),
        ],
    ),
    held(
        "held-by-kubelet",
        "the same with a volume that has no claim: a directory in memory",
        |name| {
            let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
            let mut pod = victim_with(name, 8, &["handle", "0"], mounts);
            pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {"medium": "Memory"}}]);
            vec![pod]
        },
        &[
            Act::OnNode(
                "set -e
                cd /var/lib/kubelet/pods/$POD/volumes/kubernetes.io~empty-dir/data
                mountpoint -q \"$PWD\"
                setsid sleep 110 </dev/null >/dev/null 2>&1 &",
            ),
            Act::Delete(None),
            Act::UntilHeld("its sandbox is gone; the kubelet has not finished its work for the pod"),
        ],
    ),
    held(
        "held-by-admission",
        "a policy of the API server refuses the kubelet's deletion of the pod: nothing in the pod shows it, and the report names it as possible",
        |name| {
            let mut all = refusing(name);
            all.push(victim(name, 8, &["handle", "0"]));
            all
        },
        &[
            Act::Delete(None),
            Act::UntilHeld("or an admission webhook or policy refuses the kubelet's deletion"),
            Act::Remove(refusing),
        ],
    ),
];

/// A pod with a claim, and a directory of the node for it.
fn of_a_claim(name: &str) -> Vec<Value> {
    let labels = json!({"story": name});
    let on_the_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]});
    let volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/srv"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_the_node]}]}},
        },
    });
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": super::NAMESPACE, "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            "storageClassName": "",
            "volumeName": name,
        },
    });
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let mut pod = victim_with(name, 8, &["handle", "0"], mounts);
    merge(
        &mut pod["spec"],
        json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}),
    );
    vec![volume, claim, pod]
}

/// Refuses that a kubelet deletes the pod of that name.
fn refusing(name: &str) -> Vec<Value> {
    let metadata = json!({"name": name, "labels": {"story": name}});
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "of-the-story", "expression": format!("request.name == '{name}'")}],
            "validations": [{
                "expression": "!request.userInfo.groups.exists(group, group == 'system:nodes')",
                "message": "the story's policy refuses the kubelet",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    vec![policy, binding]
}
