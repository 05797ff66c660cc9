//! Objects of the API → facts. None for an object without name, namespace or UID, which no API server sends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::ids::PodUid;
use epitaph_core::observe::{
    Conditions, DeletionSight, EndpointFact, Input, Owner, PodDetails, PodRun, PodSight, SliceFact, SliceKey,
};
use epitaph_core::time::{Wall, WallOffset};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::nodes::{Agents, UNREACHABLE, api_time};
use crate::source::bounded;
use crate::source::pods::Allowed;
use crate::source::pods::convert::{claims, deletion, disruption, identity};
use crate::source::pods::options::Annotated;
use crate::source::pods::owners::{by_labels, controller};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Longest name in Kubernetes.
const MAX_NAME: usize = 253;
pub(super) const MAX_NAME_BYTES: usize = MAX_NAME;
const MAX_PORTS: usize = 32;
/// Most kept finalizers, and most kept claims, of one pod.
const MAX_KEPT: usize = 32;
/// `reason` of the condition `DisruptionTarget`.
const BY_TAINT: &str = "DeletionByTaintManager";

pub(super) fn slice_key(slice: &EndpointSlice) -> Option<SliceKey> {
    Some(SliceKey {
        namespace: bounded(slice.metadata.namespace.as_deref()?, MAX_NAME).into(),
        name: bounded(slice.metadata.name.as_deref()?, MAX_NAME).into(),
    })
}

/// None also for a slice without a Service.
pub(super) fn slice(slice: &EndpointSlice) -> Option<SliceFact> {
    let key = slice_key(slice)?;
    let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    let ports = slice.ports.iter().flatten().take(MAX_PORTS).map(port);
    Some(SliceFact {
        service: bounded(service, MAX_NAME).into(),
        address_type: bounded(&slice.address_type, MAX_NAME).into(),
        ports: ports.collect(),
        endpoints: slice.endpoints.iter().filter_map(|e| endpoint(e, &key.namespace)).collect(),
        key,
    })
}

fn port(port: &EndpointPort) -> String {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    // A missing number means all ports.
    let number = port.port.map_or("*".to_owned(), |number| number.to_string());
    let text = match port.name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => format!("{name}/{protocol}:{number}"),
        None => format!("{protocol}:{number}"),
    };
    bounded(&text, MAX_NAME)
}

/// The endpoint's pod, in the slice's namespace: endpoints without such a reference are not pods.
fn endpoint(endpoint: &Endpoint, namespace: &str) -> Option<EndpointFact> {
    let target = endpoint.target_ref.as_ref()?;
    let is_pod = target.kind.as_deref() == Some("Pod");
    let is_here = target.namespace.as_deref().is_none_or(|n| n == namespace);
    let uid = target.uid.as_deref().filter(|uid| is_pod && is_here && !uid.is_empty())?;
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    // Unset means true, but for an old controller without `serving`, `ready` means the same.
    let ready = conditions.ready.unwrap_or(true);
    Some(EndpointFact {
        pod: PodUid(bounded(uid, MAX_NAME).into()),
        conditions: Conditions {
            ready,
            serving: conditions.serving.unwrap_or(ready),
            terminating: conditions.terminating.unwrap_or(false),
        },
    })
}

/// The workload is the one that the pod's labels and references prove. `offset`: of this machine's clock, for the API's times.
pub(super) fn pod(pod: &Pod, allowed: &Allowed, agents: &Agents, offset: WallOffset) -> Option<PodSight> {
    let meta = &pod.metadata;
    let status = pod.status.as_ref();
    let phase = status.and_then(|s| s.phase.as_deref()).unwrap_or_default();
    let node = node(pod);
    let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let annotations = meta.annotations.as_ref();
    let index = annotations.and_then(|all| all.get(COMPLETION_INDEX));
    let owner = controller(meta.owner_references.as_deref().unwrap_or_default());
    Some(PodSight {
        identity: Arc::new(identity(pod, &node, by_labels(pod))?),
        owner: owner.map(|owner| Owner {
            kind: bounded(&owner.kind, MAX_NAME).into(),
            uid: bounded(&owner.uid, MAX_NAME).into(),
        }),
        completion_index: index.map(|index| bounded(index, MAX_NAME).into()),
        scheduled: !node.is_empty(),
        ready: conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
        run: PodRun {
            failed: phase == "Failed",
            succeeded: phase == "Succeeded",
            started: status.is_some_and(has_started),
            has_run: status.is_some_and(has_run),
            terminated: status.is_some_and(has_terminated),
        },
        ignored: ignored(annotations, meta.namespace.as_deref()?, allowed),
        outlasts: pod.spec.as_ref().is_some_and(outlasts),
        details: PodDetails {
            deletion: deletion(pod).map(|deletion| DeletionSight {
                requested: api_time(Wall(deletion.timestamp.0.saturating_sub(nanos(deletion.grace))), offset),
                grace: deletion.grace,
                by_taint: status
                    .and_then(disruption)
                    .is_some_and(|disruption| disruption.reason == BY_TAINT),
            }),
            finalizers: kept(meta.finalizers.iter().flatten().map(String::as_str)),
            claims: pod
                .spec
                .as_ref()
                .map_or(Vec::new(), |spec| claims(spec, meta.name.as_deref().unwrap_or_default()))
                .into_iter()
                .map(String::into_boxed_str)
                .collect(),
            agent: agents.address(pod),
        },
    })
}

fn nanos(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}

fn kept<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Box<str>> {
    names.take(MAX_KEPT).map(|name| bounded(name, MAX_NAME).into()).collect()
}

/// The taint of an unreachable node is tolerated without a limit.
fn outlasts(spec: &PodSpec) -> bool {
    let mut tolerations = spec.tolerations.iter().flatten();
    tolerations.any(|toleration| {
        let is_of_effect = toleration
            .effect
            .as_deref()
            .is_none_or(|effect| effect.is_empty() || effect == "NoExecute");
        let exists = toleration.operator.as_deref() == Some("Exists");
        let is_of_key = match toleration.key.as_deref().unwrap_or_default() {
            "" => exists,
            // The taint has no value.
            key => key == UNREACHABLE && (exists || toleration.value.as_deref().unwrap_or_default().is_empty()),
        };
        is_of_effect && is_of_key && toleration.toleration_seconds.is_none()
    })
}

/// Empty before the pod is scheduled.
pub(super) fn node(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    bounded(node.unwrap_or_default(), MAX_NAME)
}

/// A container that waits for its restart terminated before, and that termination was reported alone. A failed init container's
/// termination belongs to the pod's.
fn has_started(status: &k8s_openapi::api::core::v1::PodStatus) -> bool {
    let runs = |of: &ContainerStatus| of.state.as_ref().is_some_and(|state| state.running.is_some());
    let exit_code = |of: &ContainerStatus| Some(of.state.as_ref()?.terminated.as_ref()?.exit_code);
    let mut init = status.init_container_statuses.iter().flatten();
    let mut main = status.container_statuses.iter().flatten();
    init.any(|of| runs(of) || exit_code(of).is_some_and(|code| code != 0)) || main.any(|of| runs(of) || exit_code(of).is_some())
}

/// A status that only a kubelet writes; a container that waits for its restart has its last termination there.
fn has_run(status: &k8s_openapi::api::core::v1::PodStatus) -> bool {
    let has_run = |state: &ContainerState| state.running.is_some() || state.terminated.is_some();
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    all.any(|of| [&of.state, &of.last_state].into_iter().flatten().any(has_run))
}

fn has_terminated(status: &k8s_openapi::api::core::v1::PodStatus) -> bool {
    let mut main = status.container_statuses.iter().flatten().peekable();
    main.peek().is_some() && main.all(|of| of.state.as_ref().is_some_and(|state| state.terminated.is_some()))
}

pub(super) fn namespace(meta: &ObjectMeta, allowed: &Allowed) -> Option<Input> {
    let name = meta.name.as_deref()?;
    Some(Input::Namespace {
        name: bounded(name, MAX_NAME),
        ignored: ignored(meta.annotations.as_ref(), name, allowed) == Some(true),
    })
}

/// The node's agent logs a bad annotation.
fn ignored(annotations: Option<&BTreeMap<String, String>>, namespace: &str, allowed: &Allowed) -> Option<bool> {
    let annotated = Annotated::parse(annotations, |_| {});
    annotated.allowed(allowed, namespace, |_| {}).ignore()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(value: Value) -> Option<SliceFact> {
        slice(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_slice_of_a_service() {
        let fact = of(json!({
            "metadata": {"name": "web-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}, {"name": ""}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "a", "namespace": "shop", "uid": "u-a"}},
                {"addresses": ["10.0.0.2"], "targetRef": {"kind": "Pod", "name": "b", "uid": "u-b"},
                    "conditions": {"ready": false, "serving": true, "terminating": true}},
                {"addresses": ["10.0.0.3"], "targetRef": {"kind": "Pod", "name": "c", "namespace": "other", "uid": "u-c"}},
                {"addresses": ["10.0.0.4"], "targetRef": {"kind": "Node", "name": "d", "uid": "u-d"}},
                {"addresses": ["10.0.0.5"]},
                {"addresses": ["10.0.0.6"], "targetRef": {"kind": "Pod", "name": "e", "uid": "u-e"}, "conditions": {"ready": false}},
            ],
        }))
        .unwrap();
        assert_eq!(fact.ports[..], ["http/TCP:8080", "UDP:53", "TCP:*"]);
        let seen: Vec<_> = fact
            .endpoints
            .iter()
            .map(|e| (&*e.pod.0, e.conditions.ready, e.conditions.serving, e.conditions.terminating))
            .collect();
        assert_eq!(
            seen,
            [
                ("u-a", true, true, false),
                ("u-b", false, true, true),
                ("u-e", false, false, false)
            ]
        );
    }

    #[test]
    fn a_slice_without_a_service_gives_no_fact() {
        let bare = json!({"metadata": {"name": "x", "namespace": "shop"}, "addressType": "IPv4", "endpoints": []});
        assert_eq!(of(bare.clone()), None);
        let key = slice_key(&serde_json::from_value(bare).unwrap()).unwrap();
        assert_eq!((&*key.namespace, &*key.name), ("shop", "x"));
    }

    #[test]
    fn a_pod_is_reduced_to_the_needed_fields() {
        let agents = Agents::of("epitaph");
        let sight = |value: Value| {
            pod(
                &serde_json::from_value(value).unwrap(),
                &Allowed::default(),
                &agents,
                WallOffset(0),
            )
        };
        let mut object = json!({
            "metadata": {
                "name": "web-7d9-x", "namespace": "shop", "uid": "u-a", "labels": {"pod-template-hash": "7d9"},
                "annotations": {"batch.kubernetes.io/job-completion-index": "3", "epitaph.dev/ignore": "false"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "o0"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9", "uid": "o1", "controller": true},
                ],
            },
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let seen = sight(object.clone()).unwrap();
        assert_eq!(seen.owner.map(|o| o.uid).as_deref(), Some("o1"));
        assert_eq!(
            (seen.identity.workload.kind.as_str(), seen.identity.node.as_str()),
            ("Deployment", "n1")
        );
        assert_eq!((seen.completion_index.as_deref(), seen.ignored), (Some("3"), Some(false)));
        assert!(seen.ready && seen.scheduled && seen.details.deletion.is_none() && !seen.run.failed && !seen.run.started);

        object["metadata"]["deletionTimestamp"] = json!("2026-11-21T11:44:10Z");
        let status = |state: Value| {
            json!([{"name": "app", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "containerID": "containerd://0",
                "state": state}])
        };
        let ended = |code: i32| status(json!({"terminated": {"exitCode": code}}));
        object["status"] = json!({"phase": "Failed", "containerStatuses": ended(0)});
        let seen = sight(object.clone()).unwrap();
        assert!(seen.details.deletion.is_some() && seen.run.failed && seen.run.started && !seen.ready);
        let waiting = |reason: &str| status(json!({"waiting": {"reason": reason}}));
        let mut crashed = waiting("CrashLoopBackOff");
        crashed[0]["lastState"] = json!({"terminated": {"exitCode": 1}});
        for (init, main, started, has_run) in [
            (json!([]), waiting("ImagePullBackOff"), false, false),
            (json!([]), crashed, false, true),
            (ended(0), waiting("PodInitializing"), false, true),
            (ended(0), status(json!({"running": {}})), true, true),
            (status(json!({"running": {}})), status(json!({"waiting": {}})), true, true),
            (ended(1), status(json!({"waiting": {}})), true, true),
        ] {
            object["status"] = json!({"initContainerStatuses": init, "containerStatuses": main});
            let seen = sight(object.clone()).unwrap();
            assert_eq!((seen.run.started, seen.run.has_run), (started, has_run), "{object}");
        }
        assert_eq!(sight(json!({"metadata": {"name": "x"}})), None);
    }

    #[test]
    fn a_pod_shows_what_holds_it_and_what_evicts_it() {
        let agents = Agents::of("epitaph");
        let sight = |value: Value| {
            pod(
                &serde_json::from_value(value).unwrap(),
                &Allowed::default(),
                &agents,
                WallOffset(0),
            )
            .unwrap()
        };
        let mut object = json!({
            "metadata": {
                "name": "db-0", "namespace": "shop", "uid": "u", "finalizers": ["example.com/hold"],
                "deletionTimestamp": "1970-01-01T00:01:40Z", "deletionGracePeriodSeconds": 40,
            },
            "spec": {"nodeName": "n1", "containers": [], "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                {"name": "config", "configMap": {"name": "c"}},
            ]},
            "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]},
        });
        let seen = sight(object.clone());
        let deletion = seen.details.deletion.unwrap();
        assert_eq!(
            (deletion.requested.wall, deletion.grace),
            (Wall(60_000_000_000), Duration::from_secs(40))
        );
        assert!(deletion.by_taint && !seen.outlasts);
        assert_eq!(seen.details.finalizers, ["example.com/hold".into()]);
        assert_eq!(seen.details.claims, ["data-db-0".into(), "db-0-scratch".into()]);
        for (toleration, outlasts) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}), true),
            (
                json!({"key": UNREACHABLE, "operator": "Exists", "effect": "NoSchedule"}),
                false,
            ),
            (
                json!({"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
                false,
            ),
            (
                json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
        ] {
            object["spec"]["tolerations"] = json!([toleration]);
            assert_eq!(sight(object.clone()).outlasts, outlasts, "{toleration}");
        }
    }

    #[test]
    fn an_agent_is_known_in_its_namespace_and_of_a_daemon_set_only() {
        let agents = Agents::of("epitaph");
        let mut object = json!({
            "metadata": {
                "name": "agent-x", "namespace": "epitaph", "uid": "u",
                "labels": {"app.kubernetes.io/name": "epitaph", "app.kubernetes.io/component": "agent"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "o", "controller": true}],
            },
            "spec": {"containers": [{"name": "agent", "ports": [{"name": "metrics", "containerPort": 9464}]}]},
            "status": {"podIP": "fd00::7"},
        });
        let address = |object: &Value| agents.address(&serde_json::from_value(object.clone()).unwrap());
        assert_eq!(address(&object), Some("[fd00::7]:9464".parse().unwrap()));
        for (place, value) in [("/metadata/ownerReferences/0/kind", "Job"), ("/status/podIP", "")] {
            let mut other = object.clone();
            *other.pointer_mut(place).unwrap() = json!(value);
            assert_eq!(address(&other), None, "{place}");
        }
        for phase in ["Failed", "Succeeded"] {
            let mut ended = object.clone();
            ended["status"]["phase"] = json!(phase);
            assert_eq!(address(&ended), None, "{phase}");
        }
        object["metadata"]["namespace"] = json!("other");
        assert_eq!(address(&object), None);
        object["metadata"]["namespace"] = json!("epitaph");
        object["metadata"]["labels"]["app.kubernetes.io/component"] = json!("observer");
        assert_eq!(address(&object), None);
    }
}
