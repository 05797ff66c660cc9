//! A control plane that writes requests down.

use std::path::{Path, PathBuf};

use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use serde_json::{Value, json};

/// The requests of these rules, and no others. `controllers`: flags of kube-controller-manager. With the file of the log.
pub fn audited(
    tools: &Tools,
    directory: &Path,
    mut rules: Vec<Value>,
    controllers: &[&str],
) -> anyhow::Result<(ControlPlane, PathBuf)> {
    let (policy, log) = (directory.join("policy.yaml"), directory.join("audit.log"));
    rules.push(json!({"level": "None"}));
    let audited = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules});
    std::fs::write(&policy, audited.to_string())?;
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Ok((
        ControlPlane::without_nodes(tools, &directory.join("plane"), &flags, controllers)?,
        log,
    ))
}
