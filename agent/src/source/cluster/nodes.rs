//! Nodes and VolumeAttachments → facts; and which pods are agents of ours.

use std::net::SocketAddr;
use std::sync::Arc;

use epitaph_core::observe::{ApiTime, AttachmentFact, NodeFact, NodeIdentity, Ready};
use epitaph_core::time::{Wall, WallOffset};
use k8s_openapi::api::core::v1::{Pod, Taint};

use super::convert::MAX_NAME_BYTES;
use crate::source::bounded;
use crate::source::pods::convert::wall;
use crate::source::pods::owners::controller;
use crate::source::watch::{LeanAttachment, LeanNode};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Of the cloud's controller manager.
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

const MAX_MESSAGE: usize = 256;

/// The labels of the chart.
const NAME: (&str, &str) = ("app.kubernetes.io/name", "epitaph");
const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "agent");
/// The port with `/metrics` and `/healthz`.
const PORT: &str = "metrics";

/// How agents are known: anybody who creates pods chooses labels, so only in the observer's own namespace, and of a DaemonSet.
#[derive(Clone, Debug)]
pub(super) struct Agents {
    namespace: String,
}

impl Agents {
    pub fn of(namespace: &str) -> Agents {
        Agents {
            namespace: namespace.to_owned(),
        }
    }

    /// Where the agent's `/healthz` is, if the pod is one.
    pub fn address(&self, pod: &Pod) -> Option<SocketAddr> {
        let labels = pod.metadata.labels.as_ref()?;
        let is = |(key, value): (&str, &str)| labels.get(key).is_some_and(|label| label == value);
        if pod.metadata.namespace.as_ref() != Some(&self.namespace) || !is(NAME) || !is(COMPONENT) {
            return None;
        }
        let owner = controller(pod.metadata.owner_references.as_deref().unwrap_or_default())?;
        // A pod that was evicted has its address still, and another pod may have it, too.
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if owner.kind != "DaemonSet" || matches!(phase, Some("Failed" | "Succeeded")) {
            return None;
        }
        let ports = pod
            .spec
            .iter()
            .flat_map(|spec| &spec.containers)
            .flat_map(|c| c.ports.iter().flatten());
        let mut ports = ports.filter(|port| port.name.as_deref() == Some(PORT));
        let port = u16::try_from(ports.next()?.container_port).ok()?;
        let ip = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
        Some(SocketAddr::new(ip, port))
    }
}

pub(super) fn api_time(wall: Wall, offset: WallOffset) -> ApiTime {
    ApiTime {
        wall,
        at: offset.boot(wall),
    }
}

pub(super) fn node_name(node: &LeanNode) -> Option<Arc<str>> {
    Some(bounded(node.metadata.name.as_deref()?, MAX_NAME_BYTES).into())
}

/// A node that has just registered has no condition yet: it is not ready, without a time.
pub(super) fn node(node: &LeanNode, offset: WallOffset) -> Option<NodeFact> {
    let taints = node.spec.taints.as_deref().unwrap_or_default();
    let has = |key: &str| taints.iter().any(|taint| taint.key == key);
    let evicts = |taint: &Taint| taint.effect == "NoExecute" && [UNREACHABLE, NOT_READY].contains(&taint.key.as_str());
    let mut conditions = node.status.conditions.iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    let text = |text: Option<&String>| bounded(text.map_or("", String::as_str), MAX_MESSAGE).into();
    let name = |text: &str| bounded(text, MAX_NAME_BYTES).into();
    Some(NodeFact {
        identity: Arc::new(NodeIdentity {
            name: node_name(node)?,
            uid: name(node.metadata.uid.as_deref()?),
            boot_id: name(&node.status.node_info.boot_id),
            system_uuid: name(&node.status.node_info.system_uuid),
            kubelet_version: name(&node.status.node_info.kubelet_version),
            provider: name(node.spec.provider_id.as_deref().unwrap_or_default()),
            unschedulable: node.spec.unschedulable == Some(true),
        }),
        ready: match ready.map(|condition| condition.status.as_str()) {
            Some("True") => Ready::True,
            Some("Unknown") => Ready::Unknown,
            _ => Ready::False,
        },
        transition: ready
            .and_then(|condition| wall(condition.last_transition_time.as_ref()?))
            .map(|wall| api_time(wall, offset)),
        reason: text(ready.and_then(|condition| condition.reason.as_ref())),
        message: text(ready.and_then(|condition| condition.message.as_ref())),
        out_of_service: has(OUT_OF_SERVICE),
        evicting: taints.iter().any(evicts),
        powered_off: has(SHUTDOWN),
    })
}

pub(super) fn attachment_name(attachment: &LeanAttachment) -> Option<Arc<str>> {
    Some(bounded(attachment.metadata.name.as_deref()?, MAX_NAME_BYTES).into())
}

/// None also for an inline volume, which has no claim.
pub(super) fn attachment(attachment: &LeanAttachment) -> Option<AttachmentFact> {
    let name = |text: &str| bounded(text, MAX_NAME_BYTES);
    let error = attachment.status.detach_error.as_ref();
    Some(AttachmentFact {
        name: attachment_name(attachment)?,
        volume: name(attachment.spec.source.persistent_volume_name.as_deref()?).into(),
        node: name(&attachment.spec.node_name).into(),
        attacher: name(&attachment.spec.attacher).into(),
        attached: attachment.status.attached,
        detaching: attachment.metadata.deletion_timestamp.is_some(),
        error: error
            .and_then(|error| error.message.as_deref())
            .map(|message| bounded(message, MAX_MESSAGE).into()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(value: Value) -> NodeFact {
        node(&serde_json::from_value(value).unwrap(), WallOffset(0)).unwrap()
    }

    #[test]
    fn a_lost_node_with_its_taints() {
        let fact = of(json!({
            "metadata": {"name": "n1", "uid": "u1"},
            "spec": {"taints": [
                {"key": UNREACHABLE, "effect": "NoSchedule"},
                {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2026-11-21T11:44:15Z"},
                {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"},
                {"key": SHUTDOWN, "effect": "NoSchedule"},
            ]},
            "status": {
                "conditions": [
                    {"type": "MemoryPressure", "status": "Unknown"},
                    {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
                        "message": "Kubelet stopped posting node status.", "lastTransitionTime": "1970-01-01T00:00:10Z"},
                ],
                "nodeInfo": {"bootID": "b1", "kubeletVersion": "v1.36.3"},
            },
        }));
        assert_eq!(fact.ready, Ready::Unknown);
        assert_eq!(fact.transition.map(|at| at.wall), Some(Wall(10_000_000_000)));
        assert!(fact.out_of_service && fact.evicting && fact.powered_off && !fact.identity.unschedulable);
        assert_eq!((&*fact.reason, &*fact.identity.boot_id), ("NodeStatusUnknown", "b1"));
    }

    #[test]
    fn a_node_without_conditions_is_not_ready_and_has_no_time() {
        let fact = of(json!({"metadata": {"name": "n1", "uid": "u1"}, "spec": {"unschedulable": true}}));
        assert_eq!((fact.ready, fact.transition), (Ready::False, None));
        assert!(fact.identity.unschedulable && !fact.evicting);
        // The taint that only keeps new pods away does not evict.
        let fact = of(
            json!({"metadata": {"name": "n1", "uid": "u1"}, "spec": {"taints": [{"key": NOT_READY, "effect": "NoSchedule"}]}}),
        );
        assert!(!fact.evicting);
    }

    #[test]
    fn an_inline_volume_has_no_fact() {
        let of = |value: Value| attachment(&serde_json::from_value(value).unwrap());
        let fact = of(json!({
            "metadata": {"name": "csi-1", "deletionTimestamp": "2026-11-21T11:44:10Z"},
            "spec": {"attacher": "csi.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
            "status": {"attached": true, "detachError": {"message": "timeout"}},
        }))
        .unwrap();
        assert!(fact.attached && fact.detaching);
        assert_eq!((&*fact.volume, fact.error.as_deref()), ("pv-1", Some("timeout")));
        assert_eq!(
            of(json!({"metadata": {"name": "csi-2"}, "spec": {"source": {"inlineVolumeSpec": {}}}})),
            None
        );
    }
}
