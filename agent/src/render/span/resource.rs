//! The resource of a trace: the application, or the machine.

use epitaph_core::attribute::Subject;
use epitaph_core::input::Observation;
use epitaph_core::observe::NodeIdentity;
use epitaph_core::pod::PodIdentity;
use epitaph_core::report::PodTermination;
use epitaph_core::report::Termination;
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{ResourceDetector as _, TelemetryResourceDetector};

use super::Options;
use super::attributes::Attributes;
use crate::render::attributes::key;

/// The semantic conventions that the keys follow.
pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.42.0";

/// Resource of a termination that is reported alone.
pub(super) fn of(termination: &Termination, observation: &Observation, options: &Options) -> Resource {
    let mut a = Attributes::default();
    match termination.kubernetes.as_deref() {
        Some(context) => pod(&context.pod, context.container.as_deref(), options, &mut a),
        None => {
            a.text(
                key::SERVICE_NAME,
                options.service_name.clone().unwrap_or_else(|| "epitaph".into()),
            );
            a.text(
                key::SERVICE_INSTANCE_ID,
                match &termination.subject {
                    Subject::Container { id, .. } => id.0.to_string(),
                    Subject::Unit { name } => name.to_string(),
                },
            );
            // Not for a pod: an agent in a pod sees the host name of its own pod.
            a.text(key::HOST_NAME, observation.host.clone());
        }
    }
    build(a, Some(&termination.key.boot_id), options)
}

pub(super) fn of_pod(termination: &PodTermination, options: &Options) -> Resource {
    let mut a = Attributes::default();
    pod(&termination.pod, None, options, &mut a);
    build(a, Some(&termination.boot_id), options)
}

/// Resource of the node itself.
pub(super) fn of_node(host: &str, boot_id: &str, options: &Options) -> Resource {
    let mut a = Attributes::default();
    a.text(
        key::SERVICE_NAME,
        options.service_name.clone().unwrap_or_else(|| "epitaph".into()),
    );
    a.data(key::SERVICE_INSTANCE_ID, host);
    a.maybe(key::K8S_CLUSTER_NAME, options.cluster_name.clone());
    // With Kubernetes, the machine is called by its node's name.
    a.maybe(key::K8S_NODE_NAME, options.node_name.clone().filter(|name| name == host));
    a.data(key::HOST_NAME, host);
    build(a, Some(boot_id), options)
}

/// Resource of a pod on any node: the observer does not know the node's boot.
pub(super) fn of_far_pod(identity: &PodIdentity, options: &Options) -> Resource {
    let mut a = Attributes::default();
    pod(identity, None, options, &mut a);
    build(a, None, options)
}

/// Resource of a lost node's trace.
pub(super) fn of_far_node(node: &NodeIdentity, options: &Options) -> Resource {
    let mut a = Attributes::default();
    a.text(
        key::SERVICE_NAME,
        options.service_name.clone().unwrap_or_else(|| "epitaph".into()),
    );
    a.text(key::SERVICE_INSTANCE_ID, node.name.to_string());
    a.maybe(key::K8S_CLUSTER_NAME, options.cluster_name.clone());
    a.text(key::K8S_NODE_NAME, node.name.to_string());
    a.text(key::K8S_NODE_UID, node.uid.to_string());
    build(a, None, options)
}

fn build(mut ours: Attributes, boot_id: Option<&str>, options: &Options) -> Resource {
    ours.text(key::OS_TYPE, "linux");
    ours.maybe(key::BOOT_ID, boot_id.map(str::to_owned));
    let configured = options.resource_attributes.iter();
    let configured = configured.map(|(k, v)| KeyValue::new(k.clone(), v.clone()));
    let sdk = TelemetryResourceDetector.detect();
    let sdk = sdk.iter().map(|(k, v)| KeyValue::new(k.clone(), v.clone()));
    // The last of several attributes with the same key wins.
    Resource::builder_empty()
        .with_schema_url(configured.chain(Vec::from(ours)).chain(sdk), SCHEMA_URL)
        .build()
}

/// <https://opentelemetry.io/docs/specs/semconv/non-normative/k8s-attributes/>: the instance is `namespace.pod.container`,
/// without the container if the trace is for the whole pod.
fn pod(pod: &PodIdentity, container: Option<&str>, options: &Options, a: &mut Attributes) {
    if let Some(name) = &options.service_name {
        a.text(key::SERVICE_NAME, name.clone());
    } else {
        a.text(key::SERVICE_NAME, pod.service.name.clone());
        a.maybe(key::SERVICE_NAMESPACE, pod.service.namespace.clone());
        a.maybe(key::SERVICE_VERSION, pod.service.version.clone());
    }
    let parts = [Some(pod.namespace.as_str()), Some(pod.name.as_str()), container];
    a.text(
        key::SERVICE_INSTANCE_ID,
        parts.into_iter().flatten().collect::<Vec<_>>().join("."),
    );
    a.maybe(key::K8S_CLUSTER_NAME, options.cluster_name.clone());
    a.text(key::K8S_NODE_NAME, pod.node.clone());
    a.text(key::K8S_NAMESPACE_NAME, pod.namespace.clone());
    a.text(key::K8S_POD_NAME, pod.name.clone());
    a.text(key::K8S_POD_UID, pod.uid.0.to_string());
    let w = &pod.workload;
    owner(&w.kind, &w.name, w.uid.as_deref(), a);
    if let Some((kind, name, uid)) = &w.through {
        owner(kind, name, uid.as_deref(), a);
    }
    a.text(key::WORKLOAD_KIND, w.kind.clone());
    a.text(key::WORKLOAD_NAME, w.name.clone());
}

/// Attributes of an owner of a kind for which the conventions have keys.
fn owner(kind: &str, name: &str, uid: Option<&str>, a: &mut Attributes) {
    let (name_key, uid_key) = match kind {
        "Deployment" => (key::K8S_DEPLOYMENT_NAME, key::K8S_DEPLOYMENT_UID),
        "ReplicaSet" => (key::K8S_REPLICASET_NAME, key::K8S_REPLICASET_UID),
        "StatefulSet" => (key::K8S_STATEFULSET_NAME, key::K8S_STATEFULSET_UID),
        "DaemonSet" => (key::K8S_DAEMONSET_NAME, key::K8S_DAEMONSET_UID),
        "Job" => (key::K8S_JOB_NAME, key::K8S_JOB_UID),
        "CronJob" => (key::K8S_CRONJOB_NAME, key::K8S_CRONJOB_UID),
        _ => return,
    };
    a.text(name_key, name.to_owned());
    a.maybe(uid_key, uid.map(str::to_owned));
}
