//! What the default installation needs of a node, and what nodes differ in: the bus, the kubelet, security modules.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Rendering, find, read, root};

/// The field is of 1.30; an older API server would drop it, and the bus would be refused.
#[test]
fn before_its_field_the_profile_of_apparmor_is_an_annotation() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("before_its_field_the_profile_of_apparmor_is_an_annotation")? else {
        return Ok(());
    };
    const KEY: &str = "container.apparmor.security.beta.kubernetes.io/logind";
    let template = |version: &str, values: &Value| -> anyhow::Result<Value> {
        let objects = read(&rendering.text(values, &["--kube-version", version])?)?;
        Ok(find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"].clone())
    };
    let local = json!({"logind": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "bus"}}});
    for (values, expected) in [
        (json!({}), json!("unconfined")),
        (local, json!("localhost/bus")),
        (
            json!({"logind": {"appArmorProfile": {"type": "RuntimeDefault"}}}),
            json!("runtime/default"),
        ),
        (json!({"logind": {"enabled": false}}), Value::Null),
    ] {
        let old = template("v1.29.4", &values)?;
        assert_eq!(old["metadata"]["annotations"][KEY], expected, "{values}");
        ensure!(!old.to_string().contains("appArmorProfile"), "{old}");
        let new = template("v1.30.0", &values)?;
        ensure!(new["metadata"]["annotations"].get(KEY).is_none(), "{new}");
        assert_eq!(new.to_string().contains("appArmorProfile"), !expected.is_null(), "{new}");
    }
    Ok(())
}

/// A hostPath that a node lacks leaves its pod in ContainerCreating.
#[test]
fn the_default_pod_starts_on_a_node_without_bus_and_journal() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_default_pod_starts_on_a_node_without_bus_and_journal")? else {
        return Ok(());
    };
    let paths = |flags: &[&str]| -> anyhow::Result<Vec<String>> {
        let objects = read(&rendering.text(&json!({}), flags)?)?;
        let pod = &find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().context("no volumes")?;
        let paths = volumes.iter().filter_map(|volume| {
            let host = volume.get("hostPath")?;
            Some(format!("{} {}", host["path"].as_str()?, host["type"].as_str()?))
        });
        Ok(paths.collect())
    };
    // What every Linux has, and what is made.
    let needed = ["/proc Directory", "/sys/fs/cgroup Directory"];
    let made = ["/run/dbus DirectoryOrCreate", "/var/lib/epitaph DirectoryOrCreate"];
    assert_eq!(paths(&[])?, [needed, made].concat());

    // The values files.
    let directory = root().join("deploy/helm/values");
    let mut files = 0;
    for file in fs::read_dir(&directory)? {
        let file = file?.path();
        files += 1;
        let flags = ["--values", file.to_str().context("a path in UTF-8")?];
        let expected = match file.file_name().and_then(|name| name.to_str()) {
            Some("no-host-path.yaml") => needed.to_vec(),
            _ => [needed, made].concat(),
        };
        assert_eq!(paths(&flags)?, expected, "{}", file.display());
    }
    ensure!(files > 1, "{files} files in {}", directory.display());
    Ok(())
}

/// A pod of the DaemonSet on such a node would stay Pending, and `helm install --wait` would never return.
#[test]
fn no_agent_waits_for_a_node_that_runs_no_daemonset() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("no_agent_waits_for_a_node_that_runs_no_daemonset")? else {
        return Ok(());
    };
    let objects = rendering.default()?;
    let pod = &find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"];
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    // One term, for a node of either kind is left out; and a node without the labels is not.
    let left_out = |key: &str, value: &str| json!({"key": key, "operator": "NotIn", "values": [value]});
    let (fargate, virtual_kubelet) = (
        left_out("eks.amazonaws.com/compute-type", "fargate"),
        left_out("type", "virtual-kubelet"),
    );
    assert_eq!(*terms, json!([{"matchExpressions": [fargate, virtual_kubelet]}]));
    Ok(())
}

/// SELinux' default domain of containers may neither use bpf(2) nor connect to the bus.
#[test]
fn the_values_for_selinux_are_of_every_container_of_the_agent() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_values_for_selinux_are_of_every_container_of_the_agent")? else {
        return Ok(());
    };
    for name in ["selinux.yaml", "openshift.yaml"] {
        let file = root().join("deploy/helm/values").join(name);
        let flags = ["--values", file.to_str().context("a path in UTF-8")?];
        let objects = read(&rendering.text(&json!({}), &flags)?)?;
        let pod = &find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"];
        for container in pod["containers"].as_array().context("no containers")? {
            let options = &container["securityContext"]["seLinuxOptions"];
            assert_eq!(*options, json!({"type": "spc_t"}), "{name}: {}", container["name"]);
        }
    }
    Ok(())
}

/// The right is there with the question only. A file is for kubelets that do not answer.
#[test]
fn the_kubelet_is_asked_also_where_its_file_is_given() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_kubelet_is_asked_also_where_its_file_is_given")? else {
        return Ok(());
    };
    let asked = |values: &Value| -> anyhow::Result<[bool; 2]> {
        let objects = rendering.objects(values)?;
        let rules = find(&objects, "ClusterRole", "epitaph-agent")?["rules"].to_string();
        ensure!(!rules.contains("nodes/proxy"), "{rules}");
        let pod = &find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"];
        let address = json!({"name": "EPITAPH_KUBELET_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}});
        let env = pod["containers"][0]["env"].as_array().context("no env")?;
        Ok([rules.contains("nodes/configz"), env.contains(&address)])
    };
    for (kubelet, expected) in [
        (json!({}), true),
        (json!({"config": "/var/lib/kubelet/config.yaml"}), true),
        (json!({"configDirectory": "/etc/kubernetes/kubelet.conf.d"}), true),
        (json!({"configz": false}), false),
        (json!({"configz": false, "config": "/var/lib/kubelet/config.yaml"}), false),
    ] {
        assert_eq!(
            asked(&json!({"agent": {"kubelet": kubelet}}))?,
            [expected, expected],
            "{kubelet}"
        );
    }
    Ok(())
}

/// What Argo CD and Flux are given are values of the chart, and its version.
#[test]
fn the_values_of_argo_cd_and_flux_are_the_charts() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_values_of_argo_cd_and_flux_are_the_charts")? else {
        return Ok(());
    };
    let example = |name: &str, kind: &str| -> anyhow::Result<Value> {
        let text = fs::read_to_string(root().join("deploy/examples").join(name))?;
        let found = read(&text)?.into_iter().find(|object| object["kind"] == kind);
        found.with_context(|| format!("no {kind} in {name}"))
    };
    let (argo, flux) = (example("argo-cd.yaml", "Application")?, example("flux.yaml", "HelmRelease")?);
    for values in [&argo["spec"]["source"]["helm"]["valuesObject"], &flux["spec"]["values"]] {
        // A repository's name has small letters, an address no placeholder.
        let values: Value = serde_json::from_str(&values.to_string().replace("HOST/PREFIX", "registry.example/team"))?;
        let objects = rendering.exact(&values, &[])?;
        ensure!(objects.contains("image: registry.example/team/epitaph:"), "{objects}");
    }
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(argo["spec"]["source"]["targetRevision"], version);
    assert_eq!(example("flux.yaml", "OCIRepository")?["spec"]["ref"]["tag"], version);
    Ok(())
}
