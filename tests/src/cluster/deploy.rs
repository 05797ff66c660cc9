//! Epitaph on the cluster, as `deploy/kubernetes` installs it: only the image, and where traces go, are the test's.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

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
    let collector = format!("http://{HOST_FOR_GUESTS}:{}", jaeger.otlp_http);
    let digest = cluster.imported(EPITAPH)?;
    let workloads = [
        ("agent.yaml", "daemonset/epitaph-agent"),
        ("observer.yaml", "deployment/epitaph-observer"),
    ];
    for (file, _) in workloads {
        // Only to have them as JSON.
        let args = ["create", "--dry-run=client", "--output=json", "-f", "-"];
        let objects = kubectl.run_with(&args, &manifest(file)?)?;
        let objects = serde_json::Deserializer::from_str(&objects).into_iter::<Value>();
        let objects = objects.map(|object| object.map(|object| ours(object, &collector, &digest)));
        let objects = objects
            .collect::<Result<Vec<Value>, _>>()
            .with_context(|| format!("read {file}"))?;
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
        // Jaeger takes traces alone.
        env.push(json!({"name": "OTEL_METRICS_EXPORTER", "value": "none"}));
        object["spec"]["template"]["metadata"]["annotations"]["epitaph.test/image"] = json!(digest);
    }
    object
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
