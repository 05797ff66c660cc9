//! Epitaph on the cluster, as `deploy/kubernetes` installs it: only the image, and where traces go, are the test's.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::images::EPITAPH;
use super::{Cluster, HOST_FOR_GUESTS};

/// Of the manifests.
pub const NAMESPACE: &str = "epitaph";

/// Applies the manifests and waits until all of it is ready; the newest binary runs then.
///
/// # Errors
/// The API server refuses them, or the pods do not become ready.
pub fn deploy(cluster: &Cluster) -> anyhow::Result<()> {
    let kubectl = cluster.control_plane()?.kubectl();
    let jaeger = cluster.jaeger()?.context("the cluster has no Jaeger")?.ports();
    let collector = format!("OTEL_EXPORTER_OTLP_ENDPOINT=http://{HOST_FOR_GUESTS}:{}", jaeger.otlp_grpc);
    let version = json!({"spec": {"template": {"metadata": {"annotations": {
        "epitaph.test/image": cluster.imported(EPITAPH)?,
    }}}}});
    let workloads = [
        ("agent.yaml", "daemonset/epitaph-agent"),
        ("observer.yaml", "deployment/epitaph-observer"),
    ];
    for (file, workload) in workloads {
        kubectl.apply(&manifest(file)?)?;
        let here = |args: &[&str]| kubectl.run(&[&["--namespace", NAMESPACE], args].concat());
        here(&["set", "env", workload, &collector])?;
        here(&["patch", workload, "--patch", &version.to_string()])?;
    }
    for (_, workload) in workloads {
        let args = ["--namespace", NAMESPACE, "rollout", "status", workload, "--timeout=300s"];
        kubectl.run(&args).with_context(|| format!("deploy {workload}"))?;
    }
    Ok(())
}

fn manifest(file: &str) -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes").join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let (image, policy) = ("image: epitaph:dev\n", "imagePullPolicy: IfNotPresent\n");
    ensure!(text.contains(image) && text.contains(policy), "{file} names another image");
    Ok(text
        .replace(image, &format!("image: {EPITAPH}\n"))
        .replace(policy, "imagePullPolicy: Never\n"))
}
