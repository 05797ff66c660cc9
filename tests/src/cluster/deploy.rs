//! Epitaph on the cluster, as `deploy/kubernetes` installs it: only the image, and the target of the traces, are the test's.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::control_plane::ControlPlane;
use super::images::EPITAPH;
use super::{Cluster, HOST_FOR_GUESTS};

/// Of the manifests.
pub const NAMESPACE: &str = "epitaph";
pub const AGENT: &str = include_str!("../../../deploy/kubernetes/agent.yaml");
pub const OBSERVER: &str = include_str!("../../../deploy/kubernetes/observer.yaml");

/// A kubeconfig with no more rights than the agent's manifest gives, on a control plane without controllers that make its pods.
///
/// # Errors
/// The API server refuses the manifest.
pub fn as_agent(plane: &ControlPlane) -> anyhow::Result<PathBuf> {
    plane.kubectl().apply(AGENT)?;
    plane.kubeconfig_of_service_account(NAMESPACE, "epitaph-agent")
}

/// The same for the observer's manifest, whose namespace has to exist.
///
/// # Errors
/// The API server refuses the manifest.
pub fn as_observer(plane: &ControlPlane) -> anyhow::Result<PathBuf> {
    plane.kubectl().apply(OBSERVER)?;
    plane.kubeconfig_of_service_account(NAMESPACE, "epitaph-observer")
}

/// Applies the manifests and waits until all of it is ready; then the newest binary runs.
///
/// # Errors
/// The API server refuses them, or the pods do not become ready.
pub fn deploy(cluster: &Cluster) -> anyhow::Result<()> {
    let kubectl = cluster.control_plane()?.kubectl();
    let jaeger = cluster.jaeger()?.context("the cluster has no Jaeger")?.ports();
    let collector = format!("http://{HOST_FOR_GUESTS}:{}", jaeger.otlp_http);
    let digest = cluster.imported(EPITAPH)?;
    let workloads = [(AGENT, "daemonset/epitaph-agent"), (OBSERVER, "deployment/epitaph-observer")];
    for (manifest, workload) in workloads {
        // Only converts them to JSON.
        let args = ["create", "--dry-run=client", "--output=json", "-f", "-"];
        let objects = kubectl.run_with(&args, &of_ours(manifest)?)?;
        let objects = serde_json::Deserializer::from_str(&objects).into_iter::<Value>();
        let objects = objects.map(|object| object.map(|object| ours(object, &collector, &digest)));
        let objects = objects
            .collect::<Result<Vec<Value>, _>>()
            .with_context(|| format!("read the manifest of {workload}"))?;
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        kubectl.apply(&list.to_string())?;
    }
    for (_, workload) in workloads {
        let args = ["--namespace", NAMESPACE, "rollout", "status", workload, "--timeout=300s"];
        kubectl.run(&args).with_context(|| format!("deploy {workload}"))?;
    }
    Ok(())
}

/// In one step: each change of a template is a rollout.
fn ours(mut object: Value, collector: &str, digest: &str) -> Value {
    if let Some(Value::Array(env)) = object.pointer_mut("/spec/template/spec/containers/0/env") {
        env.push(json!({"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": collector}));
        // Jaeger accepts traces only.
        env.push(json!({"name": "OTEL_METRICS_EXPORTER", "value": "none"}));
        object["spec"]["template"]["metadata"]["annotations"]["epitaph.test/image"] = json!(digest);
    }
    object
}

fn of_ours(manifest: &str) -> anyhow::Result<String> {
    let (image, policy) = ("image: epitaph:dev\n", "imagePullPolicy: IfNotPresent\n");
    ensure!(
        manifest.contains(image) && manifest.contains(policy),
        "a manifest names another image"
    );
    Ok(manifest
        .replace(image, &format!("image: {EPITAPH}\n"))
        .replace(policy, "imagePullPolicy: Never\n"))
}
