//! Epitaph on a cluster: by the chart where pods run, else by the manifests, which are the chart's default rendering.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::control_plane::ControlPlane;
use super::helm::chart;
use super::images::EPITAPH;
use super::kubectl::Kubectl;
use super::stories::manifest::merge;
use super::{Cluster, HOST_FOR_GUESTS};

/// Of the manifests.
pub const NAMESPACE: &str = "epitaph";
pub const RELEASE: &str = "epitaph";
pub const AGENT: &str = include_str!("../../../deploy/kubernetes/agent.yaml");
pub const OBSERVER: &str = include_str!("../../../deploy/kubernetes/observer.yaml");

/// Kinds that the chart creates without the Prometheus operator and that an uninstall removes, and the Secrets in which helm keeps releases. The
/// CustomResourceDefinitions are [`KEPT`], the policies [`policies`].
const KINDS: &str = "clusterroles,clusterrolebindings,configmaps,daemonsets,deployments,leases,networkpolicies,poddisruptionbudgets,\
                         pods,resourcequotas,rolebindings,roles,secrets,serviceaccounts,services";

/// What an uninstall leaves: the removal of a definition would remove every Epitaph of the cluster.
pub const KEPT: [&str; 2] = ["epitaphs.epitaph.dev", "nodeepitaphs.epitaph.dev"];

const POLICIES: [&str; 2] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];

/// The kinds of the policies, for `kubectl get`; None where the API server has none: their API is of Kubernetes 1.30.
///
/// # Errors
/// The API server does not answer.
pub fn policies(kubectl: &Kubectl) -> anyhow::Result<Option<String>> {
    let group = ["api-resources", "--api-group=admissionregistration.k8s.io", "-o", "name"];
    let served = kubectl.run(&group)?;
    let has = |kind: &&str| served.lines().any(|line| line.split('.').next() == Some(*kind));
    Ok(POLICIES.iter().all(has).then(|| POLICIES.join(",")))
}

/// Every kind that an uninstall removes, for `kubectl get`.
///
/// # Errors
/// The API server does not answer.
pub fn kinds(kubectl: &Kubectl) -> anyhow::Result<String> {
    let policies = policies(kubectl)?.map_or_else(String::new, |policies| format!(",{policies}"));
    Ok(format!("{KINDS}{policies}"))
}

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

/// Installs or upgrades the chart, and waits until all of it is ready; then the newest binary runs.
///
/// # Errors
/// helm or the API server refuses it, or the pods do not become ready.
pub fn deploy(cluster: &Cluster) -> anyhow::Result<()> {
    deploy_with(cluster, json!({}))
}

/// The same with further values.
///
/// # Errors
/// As [`deploy`].
pub fn deploy_with(cluster: &Cluster, more: Value) -> anyhow::Result<()> {
    let plane = cluster.control_plane()?;
    plane.kubectl().apply(&namespace())?;
    let how = ["--namespace", NAMESPACE, "--wait", "--timeout=300s"];
    let args = [&["upgrade", "--install", RELEASE, chart()][..], &how].concat();
    let mut values = values(cluster)?;
    merge(&mut values, more);
    plane.helm().run_values(&args, &values).map(drop)
}

/// The namespace with the label that admits the agent's pods.
pub fn namespace() -> String {
    let admits = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": admits}}).to_string()
}

/// Only the image, and the target of the traces, are the test's.
///
/// # Errors
/// The cluster has no Jaeger, or no node has the image.
pub fn values(cluster: &Cluster) -> anyhow::Result<Value> {
    let jaeger = cluster.jaeger()?.context("the cluster has no Jaeger")?.ports();
    let (repository, tag) = EPITAPH.rsplit_once(':').context("an image without a tag")?;
    // Another binary under the same name is a rollout.
    let annotations = json!({"epitaph.test/image": cluster.imported(EPITAPH)?});
    Ok(json!({
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        // Jaeger accepts traces only, and refuses the metrics that are on by default, as for a newcomer.
        "config": {"otlp": {"endpoint": format!("http://{HOST_FOR_GUESTS}:{}", jaeger.otlp_http)}},
        "agent": {"podAnnotations": annotations},
        "observer": {"podAnnotations": annotations},
    }))
}
