//! The watched kinds. Unneeded fields are discarded during decoding: `managedFields`, kubectl's copy of the whole object in the
//! annotations, all fields of a slice except endpoints and ports, of a node its images, addresses, labels and annotations, and of a
//! pod's spec all but what [`RawPodSpec`] names: a whole spec has hundreds of types, each with code that decodes it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use epitaph_core::render::resource;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerRestartRule, EphemeralContainer, EphemeralVolumeSource, Lifecycle, Namespace, Node,
    NodeCondition, PersistentVolumeClaimVolumeSource, Pod, PodSpec, PodStatus, Probe, Taint, Toleration, Volume,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::Watched;

/// kubectl's copy of the object, as large as the object itself.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Clone, Debug, Deserialize)]
#[serde(from = "RawPod")]
pub(in crate::source) struct LeanPod(pub Pod);

#[derive(Clone, Debug, Deserialize)]
#[serde(from = "RawSlice")]
pub(in crate::source) struct LeanSlice(pub EndpointSlice);

/// The metadata only.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "RawMeta")]
pub(in crate::source) struct LeanNamespace(pub ObjectMeta);

/// The metadata only.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "RawMeta")]
pub(in crate::source) struct LeanEpitaph(pub ObjectMeta);

/// The few fields of a node that are needed: a whole one has dozens of images.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::source) struct LeanNode {
    pub metadata: LeanMeta,
    pub spec: LeanNodeSpec,
    pub status: LeanNodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct LeanMeta {
    pub name: Option<String>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub deletion_timestamp: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct LeanNodeSpec {
    pub taints: Option<Vec<Taint>>,
    pub unschedulable: Option<bool>,
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct LeanNodeStatus {
    pub conditions: Option<Vec<NodeCondition>>,
    pub node_info: LeanNodeInfo,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct LeanNodeInfo {
    #[serde(rename = "bootID")]
    pub boot_id: String,
    #[serde(rename = "systemUUID")]
    pub system_uuid: String,
    pub kubelet_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::source) struct LeanAttachment {
    pub metadata: LeanMeta,
    pub spec: LeanAttachmentSpec,
    pub status: LeanAttachmentStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct LeanAttachmentSpec {
    pub attacher: String,
    pub node_name: String,
    pub source: LeanAttachmentSource,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct LeanAttachmentSource {
    pub persistent_volume_name: Option<String>,
}

/// Without the driver's metadata.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct LeanAttachmentStatus {
    pub attached: bool,
    pub detach_error: Option<LeanVolumeError>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::source) struct LeanVolumeError {
    pub message: Option<String>,
}

/// Of a ReplicaSet without its template, which is as large as a pod's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::source) struct LeanReplicaSet {
    pub metadata: LeanSetMeta,
    pub spec: LeanSetSpec,
    pub status: LeanSetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct LeanSetMeta {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub creation_timestamp: Option<Time>,
    pub generation: Option<i64>,
    pub labels: Option<LeanSetLabels>,
    pub annotations: Option<LeanSetAnnotations>,
    pub owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::source) struct LeanSetLabels {
    #[serde(rename = "pod-template-hash")]
    pub template: Option<String>,
    #[serde(rename = "rollouts-pod-template-hash")]
    pub argo_template: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::source) struct LeanSetAnnotations {
    #[serde(rename = "deployment.kubernetes.io/revision")]
    pub revision: Option<String>,
    #[serde(rename = "rollout.argoproj.io/revision")]
    pub argo_revision: Option<String>,
    /// The numbers that a ReplicaSet had before a rollback took it up again.
    #[serde(rename = "deployment.kubernetes.io/revision-history")]
    pub history: Option<String>,
    #[serde(rename = "rollout.argoproj.io/revision-history")]
    pub argo_history: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::source) struct LeanSetSpec {
    pub replicas: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct LeanSetStatus {
    pub replicas: u64,
    pub available_replicas: u64,
    pub observed_generation: Option<i64>,
}

impl Watched for LeanReplicaSet {
    type Kind = ReplicaSet;

    fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

impl Watched for LeanNode {
    type Kind = Node;

    fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

impl Watched for LeanAttachment {
    type Kind = VolumeAttachment;

    fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

impl Watched for LeanPod {
    type Kind = Pod;

    fn version(&self) -> Option<&str> {
        self.0.metadata.resource_version.as_deref()
    }
}

impl Watched for LeanSlice {
    type Kind = EndpointSlice;

    fn version(&self) -> Option<&str> {
        self.0.metadata.resource_version.as_deref()
    }
}

impl Watched for LeanNamespace {
    type Kind = Namespace;
    const METADATA_ONLY: bool = true;

    fn version(&self) -> Option<&str> {
        self.0.resource_version.as_deref()
    }
}

impl Watched for LeanEpitaph {
    type Kind = LeanEpitaph;
    const METADATA_ONLY: bool = true;

    fn version(&self) -> Option<&str> {
        self.0.resource_version.as_deref()
    }
}

impl kube::Resource for LeanEpitaph {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        resource::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        resource::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        resource::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        resource::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0
    }
}

#[derive(Deserialize)]
struct RawPod {
    #[serde(default)]
    metadata: Meta,
    spec: Option<RawPodSpec>,
    status: Option<PodStatus>,
}

impl From<RawPod> for LeanPod {
    fn from(raw: RawPod) -> LeanPod {
        LeanPod(Pod {
            metadata: raw.metadata.into(),
            spec: raw.spec.map(PodSpec::from),
            status: raw.status,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPodSpec {
    node_name: Option<String>,
    priority: Option<i32>,
    restart_policy: Option<String>,
    termination_grace_period_seconds: Option<i64>,
    host_network: Option<bool>,
    #[serde(rename = "hostPID")]
    host_pid: Option<bool>,
    share_process_namespace: Option<bool>,
    init_containers: Option<Vec<RawContainer>>,
    containers: Option<Vec<RawContainer>>,
    ephemeral_containers: Option<Vec<RawEphemeralContainer>>,
    tolerations: Option<Vec<Toleration>>,
    volumes: Option<Vec<RawVolume>>,
}

impl From<RawPodSpec> for PodSpec {
    fn from(raw: RawPodSpec) -> PodSpec {
        PodSpec {
            node_name: raw.node_name,
            priority: raw.priority,
            restart_policy: raw.restart_policy,
            termination_grace_period_seconds: raw.termination_grace_period_seconds,
            host_network: raw.host_network,
            host_pid: raw.host_pid,
            share_process_namespace: raw.share_process_namespace,
            init_containers: raw.init_containers.map(all),
            containers: raw.containers.map(all).unwrap_or_default(),
            ephemeral_containers: raw.ephemeral_containers.map(all),
            tolerations: raw.tolerations,
            volumes: raw.volumes.map(all),
            ..PodSpec::default()
        }
    }
}

fn all<T, U: From<T>>(raw: Vec<T>) -> Vec<U> {
    raw.into_iter().map(U::from).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainer {
    #[serde(default)]
    name: String,
    image: Option<String>,
    restart_policy: Option<String>,
    restart_policy_rules: Option<Vec<ContainerRestartRule>>,
    ports: Option<Vec<ContainerPort>>,
    lifecycle: Option<Lifecycle>,
    liveness_probe: Option<Probe>,
    startup_probe: Option<Probe>,
    readiness_probe: Option<Probe>,
}

impl From<RawContainer> for Container {
    fn from(raw: RawContainer) -> Container {
        Container {
            name: raw.name,
            image: raw.image,
            restart_policy: raw.restart_policy,
            restart_policy_rules: raw.restart_policy_rules,
            ports: raw.ports,
            lifecycle: raw.lifecycle,
            liveness_probe: raw.liveness_probe,
            startup_probe: raw.startup_probe,
            readiness_probe: raw.readiness_probe,
            ..Container::default()
        }
    }
}

#[derive(Deserialize)]
struct RawEphemeralContainer {
    #[serde(default)]
    name: String,
    image: Option<String>,
}

impl From<RawEphemeralContainer> for EphemeralContainer {
    fn from(raw: RawEphemeralContainer) -> EphemeralContainer {
        EphemeralContainer {
            name: raw.name,
            image: raw.image,
            ..EphemeralContainer::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawVolume {
    #[serde(default)]
    name: String,
    persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    /// Without its template.
    ephemeral: Option<IgnoredAny>,
}

impl From<RawVolume> for Volume {
    fn from(raw: RawVolume) -> Volume {
        Volume {
            name: raw.name,
            persistent_volume_claim: raw.persistent_volume_claim,
            ephemeral: raw.ephemeral.map(|_| EphemeralVolumeSource::default()),
            ..Volume::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSlice {
    #[serde(default)]
    metadata: Meta,
    #[serde(default)]
    address_type: String,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<EndpointPort>>,
}

impl From<RawSlice> for LeanSlice {
    fn from(raw: RawSlice) -> LeanSlice {
        LeanSlice(EndpointSlice {
            metadata: raw.metadata.into(),
            address_type: raw.address_type,
            endpoints: raw.endpoints.unwrap_or_default(),
            ports: raw.ports,
        })
    }
}

#[derive(Deserialize)]
struct RawMeta {
    #[serde(default)]
    metadata: Meta,
}

impl From<RawMeta> for LeanNamespace {
    fn from(raw: RawMeta) -> LeanNamespace {
        LeanNamespace(raw.metadata.into())
    }
}

impl From<RawMeta> for LeanEpitaph {
    fn from(raw: RawMeta) -> LeanEpitaph {
        LeanEpitaph(raw.metadata.into())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "annotations")]
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> ObjectMeta {
        ObjectMeta {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            creation_timestamp: meta.creation_timestamp,
            deletion_timestamp: meta.deletion_timestamp,
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: meta.owner_references,
            finalizers: meta.finalizers,
            ..ObjectMeta::default()
        }
    }
}

/// All but [`LAST_APPLIED`].
fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    struct Annotations;

    impl<'de> Visitor<'de> for Annotations {
        type Value = Option<BTreeMap<String, String>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut annotations = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                if name == LAST_APPLIED {
                    map.next_value::<IgnoredAny>()?;
                } else {
                    annotations.insert(name, map.next_value()?);
                }
            }
            Ok(Some(annotations))
        }
    }

    deserializer.deserialize_any(Annotations)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_keeps_needed_fields_and_drops_large_ones() {
        let needed = json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-11-21T11:44:10Z", "deletionTimestamp": "2026-11-21T11:45:10Z",
                "deletionGracePeriodSeconds": 30, "labels": {"app": "web"}, "annotations": {"epitaph.dev/ignore": "true"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "o"}],
                "finalizers": ["example.com/hold"],
            },
            "spec": {
                "nodeName": "n1", "priority": 5, "restartPolicy": "Never", "terminationGracePeriodSeconds": 30,
                "hostNetwork": true, "hostPID": true, "shareProcessNamespace": true,
                "initContainers": [{"name": "proxy", "restartPolicy": "Always"}],
                "containers": [{
                    "restartPolicy": "Never",
                    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}],
                    "name": "app", "image": "app:1", "ports": [{"name": "http", "containerPort": 80}],
                    "lifecycle": {"preStop": {"exec": {"command": ["/bin/drain"]}}, "stopSignal": "SIGUSR1"},
                    "livenessProbe": {"httpGet": {"port": "http"}, "terminationGracePeriodSeconds": 5},
                    "startupProbe": {"grpc": {"port": 90}}, "readinessProbe": {"tcpSocket": {"port": 80}},
                }],
                "ephemeralContainers": [{"name": "debug", "image": "busybox"}],
                "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 9}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "own", "ephemeral": {}}, {"name": "x"}],
            },
            "status": {"phase": "Running"},
        });
        let mut whole = needed.clone();
        whole["metadata"]["managedFields"] = json!([{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]);
        whole["metadata"]["annotations"][LAST_APPLIED] = json!("{}");
        whole["spec"]["affinity"] = json!({"podAntiAffinity": {}});
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            whole["spec"][list][0]["env"] = json!([{"name": "TOKEN", "value": "secret"}]);
        }
        whole["spec"]["volumes"][1]["ephemeral"] = json!({"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}});
        whole["spec"]["volumes"][2]["secret"] = json!({"secretName": "s"});
        let lean: LeanPod = serde_json::from_value(whole).unwrap();
        assert_eq!(lean.version(), Some("7"));
        let expected: Pod = serde_json::from_value(needed).unwrap();
        assert_eq!(lean.0, expected);
        // Lists that a server sends as null.
        let null = json!({"spec": {"containers": null, "volumes": null, "tolerations": null}});
        let lean: LeanPod = serde_json::from_value(null.clone()).unwrap();
        assert_eq!(lean.0, serde_json::from_value(null).unwrap());
    }

    #[test]
    fn a_slice_and_a_namespace_are_as_the_api_has_them() {
        let slice = json!({
            "metadata": {"name": "web-1", "resourceVersion": "8", "annotations": null}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}],
        });
        let expected: EndpointSlice = serde_json::from_value(slice.clone()).unwrap();
        let lean: LeanSlice = serde_json::from_value(slice).unwrap();
        assert_eq!((lean.version(), &lean.0), (Some("8"), &expected));
        // A slice without endpoints.
        let empty: LeanSlice =
            serde_json::from_value(json!({"addressType": "IPv4", "endpoints": null, "ports": null})).unwrap();
        assert!(empty.0.endpoints.is_empty());
        let namespace: LeanNamespace =
            serde_json::from_value(json!({"metadata": {"name": "shop", "resourceVersion": "9"}})).unwrap();
        assert_eq!((namespace.version(), namespace.0.name.as_deref()), (Some("9"), Some("shop")));
    }

    #[test]
    fn a_node_is_reduced_while_it_is_decoded() {
        let images: Vec<_> = (0..50)
            .map(|n| json!({"names": [format!("registry/image-{n}")], "sizeBytes": 1}))
            .collect();
        let node: LeanNode = serde_json::from_value(json!({
            "metadata": {
                "name": "n1", "uid": "u1", "resourceVersion": "9", "labels": {"a": "b"}, "annotations": {"c": "d"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
            },
            "spec": {
                "providerID": "aws:///i-1", "unschedulable": true,
                "taints": [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}],
            },
            "status": {
                "images": images, "addresses": [{"type": "Hostname", "address": "n1"}],
                "conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-21T11:44:10Z"}],
                "nodeInfo": {"bootID": "b1", "kubeletVersion": "v1.36.3", "kernelVersion": "6.12"},
            },
        }))
        .unwrap();
        assert_eq!((node.version(), node.metadata.uid.as_deref()), (Some("9"), Some("u1")));
        assert_eq!(node.spec.taints.as_ref().map(Vec::len), Some(1));
        assert_eq!(
            (node.spec.provider_id.as_deref(), node.spec.unschedulable),
            (Some("aws:///i-1"), Some(true))
        );
        assert_eq!(node.status.node_info.boot_id, "b1");
        // A node that has just registered.
        let young: LeanNode = serde_json::from_value(json!({"metadata": {"name": "n2"}, "spec": {}, "status": {}})).unwrap();
        assert!(young.status.conditions.is_none() && young.status.node_info.boot_id.is_empty());
    }

    #[test]
    fn an_attachment_has_volume_node_and_error() {
        let attachment: LeanAttachment = serde_json::from_value(json!({
            "metadata": {"name": "csi-1", "resourceVersion": "3", "deletionTimestamp": "2026-11-21T11:44:10Z"},
            "spec": {"attacher": "csi.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
            "status": {"attached": true, "attachmentMetadata": {"devicePath": "/dev/sdb"}, "detachError": {"message": "timeout"}},
        }))
        .unwrap();
        assert_eq!((attachment.version(), &*attachment.spec.node_name), (Some("3"), "n1"));
        assert_eq!(attachment.spec.source.persistent_volume_name.as_deref(), Some("pv-1"));
        assert!(attachment.status.attached && attachment.metadata.deletion_timestamp.is_some());
        assert_eq!(
            attachment.status.detach_error.and_then(|error| error.message).as_deref(),
            Some("timeout")
        );
    }
}
