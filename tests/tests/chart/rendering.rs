//! What the chart renders, by default and by value.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use epitaph::config::{Config, Env, Overrides};
use expect_test::{ExpectFile, expect_file};
use serde_json::{Value, json};

use super::{Rendering, find, of_chart, read, root};

/// A chart cannot have its own namespace: helm keeps the release in it.
const NAMESPACE: &str = "\
# Epitaph without Helm: the chart's default rendering (deploy/helm/epitaph), made by
# UPDATE_EXPECT=1 cargo test -p epitaph-tests --test chart; do not edit. Image and installation: docs/kubernetes.md.
apiVersion: v1
kind: Namespace
metadata:
  name: epitaph
  labels:
    # `baseline` does not allow hostPath volumes (one is written to: the journal's) and the two capabilities.
    pod-security.kubernetes.io/enforce: privileged
";
const OBSERVER: &str = "\
# The observer of Epitaph; install after agent.yaml, which has the namespace and the settings. The chart's default rendering
# (deploy/helm/epitaph), made by UPDATE_EXPECT=1 cargo test -p epitaph-tests --test chart; do not edit.
";

const POLICY: &str = "\
# Only the agent of a node writes the Epitaphs of its node: Kubernetes 1.30 or later; install after agent.yaml. The chart's rendering
# (deploy/helm/epitaph), made by UPDATE_EXPECT=1 cargo test -p epitaph-tests --test chart; do not edit.
";

#[test]
fn the_plain_manifests_are_the_charts_default_rendering() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_plain_manifests_are_the_charts_default_rendering")? else {
        return Ok(());
    };
    let (mut agent, mut observer) = (NAMESPACE.to_owned(), OBSERVER.to_owned());
    // For every version: where a field is younger, what older API servers have in its place.
    let text = rendering.text(&json!({}), &["--skip-tests", "--kube-version", "v1.28.0"])?;
    // They are not a chart's.
    let is_of_helm = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("helm.sh/chart:") || line.starts_with("annotations: {helm.sh/")
    };
    let text: String = text
        .lines()
        .filter(|line| !is_of_helm(line))
        .map(|line| format!("{line}\n"))
        .collect();
    for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
        let (source, document) = document.split_once('\n').context("a document of one line")?;
        ensure!(source.starts_with("# Source: epitaph/templates/"), "{source}");
        if source.contains("/observer/") {
            let separator = if observer == OBSERVER { "" } else { "---\n" };
            observer += &format!("{separator}{}\n", document.trim_end());
        } else {
            agent += &format!("---\n{}\n", document.trim_end());
        }
    }
    // The API of the policy is of 1.30, and a manifest has no condition.
    let templates = [
        "policy.yaml",
        "policybinding.yaml",
        "policy-nodes.yaml",
        "policybinding-nodes.yaml",
    ];
    let templates = templates.map(|file| format!("--show-only=templates/epitaphs/{file}"));
    let templates: Vec<&str> = templates.iter().map(String::as_str).collect();
    let policy = rendering.text(&json!({}), &[&["--kube-version", "v1.30.0"], &templates[..]].concat())?;
    let policy: Vec<String> = policy
        .split("---\n")
        .filter(|document| !document.trim().is_empty())
        .map(|document| {
            let lines = document
                .lines()
                .filter(|line| !is_of_helm(line) && !line.starts_with("# Source: "));
            let text: String = lines.map(|line| format!("{line}\n")).collect();
            format!("{}\n", text.trim_end())
        })
        .collect();
    let policy = format!("{POLICY}{}", policy.join("---\n"));
    let check = |file: ExpectFile, text: &str| file.assert_eq(text);
    check(expect_file!["../../../deploy/kubernetes/policy.yaml"], &policy);
    check(expect_file!["../../../deploy/kubernetes/agent.yaml"], &agent);
    check(expect_file!["../../../deploy/kubernetes/observer.yaml"], &observer);
    Ok(())
}

/// Helm removes objects of the API, and nothing on the nodes.
#[test]
fn the_readme_names_what_an_uninstall_leaves_on_the_nodes() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_readme_names_what_an_uninstall_leaves_on_the_nodes")? else {
        return Ok(());
    };
    let readme = of_chart("README.md")?;
    let (_, removal) = readme
        .split_once("\n## Upgrade and removal\n")
        .context("no section about removal")?;
    let (removal, _) = removal.split_once("\n## ").context("the section has no end")?;
    let objects = rendering.objects(&json!({}))?;
    let pod = &find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let containers: Vec<Value> = [&pod["initContainers"], &pod["containers"]]
        .into_iter()
        .flat_map(list)
        .collect();
    let mut writable = 0;
    for volume in list(&pod["volumes"]) {
        let Some(path) = volume["hostPath"]["path"].as_str() else {
            continue;
        };
        let mounts = containers.iter().flat_map(|container| list(&container["volumeMounts"]));
        if mounts
            .into_iter()
            .any(|mount| mount["name"] == volume["name"] && mount["readOnly"] != json!(true))
        {
            writable += 1;
            ensure!(removal.contains(&format!("`{path}`")), "{path} is not named in: {removal}");
        }
    }
    ensure!(writable > 0, "the journal's directory is writable");
    Ok(())
}

#[test]
fn the_versions_are_the_programs() -> anyhow::Result<()> {
    let chart = of_chart("Chart.yaml")?;
    let version = env!("CARGO_PKG_VERSION");
    ensure!(
        chart.contains(&format!("\nversion: {version}\nappVersion: \"{version}\"\n")),
        "{chart}"
    );
    Ok(())
}

/// The chart cannot read files outside its directory.
#[test]
fn the_dashboard_is_a_copy() -> anyhow::Result<()> {
    let original = fs::read_to_string(root().join("deploy/alerts/epitaph.dashboard.json"))?;
    expect_file!["../../../deploy/helm/epitaph/files/epitaph.dashboard.json"].assert_eq(&original);
    Ok(())
}

#[test]
fn helm_finds_no_fault() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("helm_finds_no_fault")? else {
        return Ok(());
    };
    rendering.helm.run(&["lint", "--strict", super::chart()]).map(drop)
}

#[test]
fn the_agent_reads_the_rendered_settings() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_agent_reads_the_rendered_settings")? else {
        return Ok(());
    };
    let default = settings(&rendering.default()?)?;
    ensure!(
        default.otlp.endpoint.is_none() && default.kubernetes.events,
        "{}",
        default.to_toml()
    );
    let values = json!({"config": {
        "otlp": {
            "endpoint": "https://collector:4318", "compression": "gzip", "metrics_interval": "30s", "protocol": "grpc",
            "headers": {"x-scope-orgid": "a \"quoted\" <name>"},
        },
        "export": {"unclean_only": true, "resource_attributes": {"deployment.environment.name": "test"}},
        "kernel": {"ring_bytes": 16_777_216},
        "kubernetes": {"events": false, "kubelet_units": ["a.service", "b.service"]},
        "limits": {"timelines": 2000, "idle": "2h"},
        "observer": {"pods": 1_000_000},
    }, "collector": {"tlsSecret": "collector-tls", "tlsClient": true}});
    let objects = rendering.objects(&values)?;
    let read = settings(&objects)?;
    assert_eq!(read.otlp.headers["x-scope-orgid"].expose(), "a \"quoted\" <name>");
    assert_eq!(read.otlp.client_key.as_deref(), Some(Path::new("/etc/epitaph/tls/tls.key")));
    assert_eq!(read.export.resource_attributes["deployment.environment.name"], "test");
    assert_eq!(
        (read.kernel.ring_bytes, read.limits.core.timelines, read.observer.pods),
        (Some(16_777_216), 2000, 1_000_000)
    );
    assert_eq!(read.kubernetes.kubelet_units, ["a.service", "b.service"]);
    assert_eq!(read.host.proc, Path::new("/host/proc"));
    let agent = find(&objects, "DaemonSet", "epitaph-agent")?;
    let spec = &agent["spec"]["template"]["spec"];
    ensure!(spec["volumes"].to_string().contains("collector-tls"), "{spec}");
    // A changed setting restarts the pods.
    let sum = |objects: &[Value]| -> anyhow::Result<Value> {
        let template = &find(objects, "DaemonSet", "epitaph-agent")?["spec"]["template"];
        Ok(template["metadata"]["annotations"]["checksum/config"].clone())
    };
    ensure!(sum(&objects)? != sum(&rendering.default()?)?, "the same checksum");
    Ok(())
}

struct NoEnv;

impl Env for NoEnv {
    fn get(&self, _: &str) -> Option<String> {
        None
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

fn settings(objects: &[Value]) -> anyhow::Result<Config> {
    let map = find(objects, "ConfigMap", "epitaph")?;
    let text = map["data"]["epitaph.toml"].as_str().context("no epitaph.toml")?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("epitaph.toml");
    fs::write(&file, text)?;
    Config::load(Some(file.as_path()), &NoEnv, &Overrides::default()).with_context(|| text.to_owned())
}

#[test]
fn a_right_is_there_only_where_it_is_needed() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("a_right_is_there_only_where_it_is_needed")? else {
        return Ok(());
    };
    let rules = |objects: &[Value]| find(objects, "ClusterRole", "epitaph-agent").map(|role| role["rules"].to_string());
    ensure!(rules(&rendering.default()?)?.contains("events.k8s.io"));
    let quiet = rendering.objects(&json!({"config": {"kubernetes": {"events": false}}}))?;
    ensure!(!rules(&quiet)?.contains("events.k8s.io"));
    // Without an observer nothing would remove Epitaphs.
    ensure!(rules(&rendering.default()?)?.contains("epitaph.dev"));
    for values in [
        json!({"config": {"kubernetes": {"epitaphs": false}}}),
        json!({"observer": {"enabled": false}}),
        json!({"observer": {"enabled": false}, "config": {"kubernetes": {"epitaphs": true}}}),
    ] {
        let without = rendering.text(&values, &["--kube-version", "v1.33.0"])?;
        for kind in [
            "CustomResourceDefinition",
            "ValidatingAdmissionPolicy",
            "[epitaphs]",
            "[nodeepitaphs]",
        ] {
            ensure!(!without.contains(kind), "{values}: {kind}");
        }
        ensure!(!settings(&read(&without)?)?.kubernetes.epitaphs, "{values}");
    }
    let policies = |version: &str| rendering.text(&json!({}), &["--kube-version", version]);
    ensure!(policies("v1.30.0-eks-1")?.contains("ValidatingAdmissionPolicyBinding"));
    ensure!(!policies("v1.29.9")?.contains("ValidatingAdmissionPolicy"));
    let alone = rendering.text(&json!({"observer": {"enabled": false}}), &["--skip-tests"])?;
    ensure!(!alone.contains("epitaph-observer"), "{alone}");
    let bound = rendering.text(&json!({"rbac": {"create": false}}), &[])?;
    ensure!(!bound.contains("rbac.authorization.k8s.io"), "{bound}");
    // The right to the Lease is a right to the Lease that there is.
    let renamed = rendering.objects(&json!({"config": {"observer": {"lease": "other"}}}))?;
    let role = find(&renamed, "Role", "epitaph-observer")?;
    assert_eq!(role["rules"][0]["resourceNames"], json!(["other"]));
    find(&renamed, "Lease", "other").map(drop)
}

#[test]
fn optional_objects_are_off_by_default() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("optional_objects_are_off_by_default")? else {
        return Ok(());
    };
    let kinds = |objects: Vec<Value>| -> Vec<String> {
        let kinds = objects
            .into_iter()
            .map(|object| object["kind"].as_str().unwrap_or_default().to_owned());
        kinds.collect()
    };
    let default = kinds(rendering.default()?);
    let on = json!({"enabled": true});
    for (value, kind) in [
        ("serviceMonitor", "ServiceMonitor"),
        ("prometheusRule", "PrometheusRule"),
        ("resourceQuota", "ResourceQuota"),
    ] {
        ensure!(!default.iter().any(|known| known == kind), "{kind}");
        ensure!(
            kinds(rendering.objects(&json!({value: on}))?)
                .iter()
                .any(|known| known == kind),
            "{kind}"
        );
    }
    // GKE demands the quota, and is known by its version.
    let gke = rendering.text(&json!({}), &["--kube-version", "v1.33.4-gke.1200"])?;
    let quota = read(&gke)?;
    let quota = find(&quota, "ResourceQuota", "epitaph")?;
    assert_eq!(
        quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"],
        json!(["system-node-critical", "system-cluster-critical"])
    );
    Ok(())
}

/// The value's peers are not the only ones: the observer and `helm test` connect, too, and are admitted by the labels that they have.
#[test]
fn the_network_policy_admits_the_peers_of_the_value() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_network_policy_admits_the_peers_of_the_value")? else {
        return Ok(());
    };
    let ingress = |values: &Value| -> anyhow::Result<Value> {
        let objects = rendering.objects(values)?;
        Ok(find(&objects, "NetworkPolicy", "epitaph")?["spec"]["ingress"].clone())
    };
    // A rule without `from` admits everybody.
    let ports = json!([{"port": "metrics", "protocol": "TCP"}]);
    assert_eq!(ingress(&json!({}))?, json!([{"ports": ports}]));

    let peers = json!([
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}, "podSelector": {}},
        {"podSelector": {"matchExpressions": [{"key": "scraper", "operator": "Exists"}]}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
        {"ipBlock": {"cidr": "fd00::/8"}},
    ]);
    let values = json!({"networkPolicy": {"from": peers}});
    let rules = ingress(&values)?;
    assert_eq!((rules.as_array().map(Vec::len), &rules[0]["ports"]), (Some(1), &ports));
    let from = rules[0]["from"].as_array().context("no peers")?;
    let (own, others) = from.split_at_checked(2).context("two peers of the chart's own")?;
    assert_eq!(json!(others), peers);
    let objects = rendering.objects(&values)?;
    let test = find(&objects, "Pod", "epitaph-test")?;
    let observer = &find(&objects, "Deployment", "epitaph-observer")?["spec"]["template"];
    for (peer, pod) in own.iter().zip([test, observer]) {
        let labels = peer["podSelector"]["matchLabels"].as_object().context("no labels")?;
        ensure!(labels.len() == 2, "{peer}");
        for (name, value) in labels {
            assert_eq!(&pod["metadata"]["labels"][name], value, "{name} of {pod}");
        }
    }

    let off = rendering.text(&json!({"networkPolicy": {"enabled": false, "from": peers}}), &[])?;
    ensure!(!off.contains("NetworkPolicy"), "{off}");
    Ok(())
}

/// A pod that is removed on success takes its log along, and the Service of the metrics leads to one agent.
#[test]
fn the_test_keeps_its_log_and_asks_each_agent() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_test_keeps_its_log_and_asks_each_agent")? else {
        return Ok(());
    };
    let objects = rendering.default()?;
    let test = find(&objects, "Pod", "epitaph-test")?;
    let policy = &test["metadata"]["annotations"]["helm.sh/hook-delete-policy"];
    assert_eq!(policy, "before-hook-creation");
    let args = test["spec"]["containers"][0]["args"].as_array().context("no arguments")?;
    ensure!(args.contains(&json!("--each=epitaph-agents.epitaph.svc:9464")), "{args:?}");
    let each = &find(&objects, "Service", "epitaph-agents")?["spec"];
    let metrics = &find(&objects, "Service", "epitaph-agent")?["spec"];
    assert_eq!(each["clusterIP"], "None");
    // Otherwise an agent that crashes is not asked, and the test passes.
    assert_eq!(each["publishNotReadyAddresses"], true);
    assert_eq!(each["selector"], metrics["selector"]);
    assert_eq!(each["ports"][0]["port"], metrics["ports"][0]["port"]);
    // A ServiceMonitor selects the Services by their labels, and the port by its name.
    ensure!(each["ports"][0]["name"] != metrics["ports"][0]["name"], "{each}");
    Ok(())
}

/// By value only, at the runtime's own paths, and never created by the mount.
#[test]
fn directories_of_runtimes_are_mounted_by_value() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("directories_of_runtimes_are_mounted_by_value")? else {
        return Ok(());
    };
    let pod = |values: &Value| -> anyhow::Result<Value> {
        let objects = rendering.objects(values)?;
        Ok(find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"].clone())
    };
    ensure!(!pod(&json!({}))?.to_string().contains("runtime-0"), "none by default");
    let paths = ["/run/containerd/io.containerd.runtime.v2.task", "/data/docker/containers"];
    let pod = pod(&json!({"agent": {"runtimeDirectories": paths}}))?;
    for (i, path) in paths.into_iter().enumerate() {
        let name = format!("runtime-{i}");
        let volume = json!({"name": name, "hostPath": {"path": path, "type": "Directory"}});
        let mount = json!({"name": name, "mountPath": path, "readOnly": true, "mountPropagation": "HostToContainer"});
        let has = |list: &Value, entry: &Value| list.as_array().is_some_and(|all| all.contains(entry));
        ensure!(has(&pod["volumes"], &volume), "{}", pod["volumes"]);
        ensure!(has(&pod["containers"][0]["volumeMounts"], &mount), "{}", pod["containers"][0]);
    }
    let env = json!({"name": "EPITAPH_CONTAINERS_DIRECTORIES", "value": paths.join(",")});
    ensure!(
        pod["containers"][0]["env"].as_array().is_some_and(|all| all.contains(&env)),
        "{}",
        pod["containers"][0]
    );
    // With a socket of a runtime in it, or of the kubelet.
    for refused in [
        "/run/containerd",
        "/run",
        "/var/lib/kubelet",
        "/var/lib/docker",
        "/",
        "/run/containerd/../containers,x",
        "/var/lib/kubelet/pods/UID/containers/",
    ] {
        let values = json!({"agent": {"runtimeDirectories": [refused]}});
        ensure!(rendering.objects(&values).is_err(), "{refused} is accepted");
    }
    // The pods' secrets: the volume of one may be called `containers`.
    for refused in [
        "/var/lib/kubelet/containers",
        "/var/lib/kubelet/pods/UID/containers",
        "//var//lib/./kubelet//pods/UID/containers",
        "/var/lib/docker/../kubelet/pods/UID/containers",
        "/var/lib/k0s/kubelet/pods/UID/containers",
    ] {
        let values = json!({"agent": {"runtimeDirectories": [refused]}});
        let Err(error) = rendering.objects(&values) else {
            anyhow::bail!("{refused} is accepted")
        };
        ensure!(
            format!("{error:#}").contains("is a directory of the kubelet"),
            "{refused}: {error:#}"
        );
    }
    Ok(())
}

/// Whoever controls uid 0 with the bus is root on the node: the agent's container must not have it, and the role nothing else.
#[test]
fn only_the_logind_container_has_the_bus() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("only_the_logind_container_has_the_bus")? else {
        return Ok(());
    };
    let pod = |values: &Value| -> anyhow::Result<Value> {
        let objects = rendering.objects(values)?;
        Ok(find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"].clone())
    };
    let off = pod(&json!({"logind": {"enabled": false}}))?;
    ensure!(
        !off.to_string().contains("dbus") && !off.to_string().contains("LOGIND"),
        "{off}"
    );

    for (values, uid) in [
        (json!({}), 65_534),
        (
            json!({"lock": true, "appArmorProfile": {"type": "Localhost", "localhostProfile": "bus"}}),
            65_534,
        ),
        (json!({"runAsRoot": true}), 0),
    ] {
        let paths = ["/run/containerd/io.containerd.runtime.v2.task", "/data/docker/containers"];
        let pod = pod(&json!({"logind": values, "agent": {"runtimeDirectories": paths}}))?;
        let [agent, role] = pod["containers"].as_array().map(Vec::as_slice).unwrap_or_default() else {
            anyhow::bail!("not two containers: {pod}");
        };
        assert_eq!(
            (agent["name"].as_str(), role["name"].as_str()),
            (Some("agent"), Some("logind"))
        );
        let mounted = |container: &Value| -> Vec<String> {
            let mounts = container["volumeMounts"].as_array().into_iter().flatten();
            mounts.filter_map(|mount| Some(mount["name"].as_str()?.to_owned())).collect()
        };
        // No directory of the node that the agent sees has the bus in it, or is in the bus' directory.
        for volume in pod["volumes"].as_array().into_iter().flatten() {
            let (name, path) = (
                volume["name"].as_str().unwrap_or_default(),
                volume["hostPath"]["path"].as_str(),
            );
            let is_in_agent = mounted(agent).iter().any(|mount| mount == name);
            for bus in ["/run/dbus", "/var/run/dbus"].map(Path::new) {
                let has_bus = path.is_some_and(|path| bus.starts_with(path) || Path::new(path).starts_with(bus));
                ensure!(!(is_in_agent && has_bus), "the agent has {volume}");
            }
        }
        assert_eq!(mounted(role), ["dbus", "logind", "no-token"]);
        let volumes = pod["volumes"].as_array().context("no volumes")?;
        // The directory, which is made on a node without a bus; never /run.
        ensure!(volumes.contains(&json!({"name": "dbus", "hostPath": {"path": "/run/dbus", "type": "DirectoryOrCreate"}})));
        ensure!(volumes.contains(&json!({"name": "logind", "emptyDir": {"sizeLimit": "1Mi"}})));
        let mounts = role["volumeMounts"].as_array().context("no mounts")?;
        ensure!(mounts.iter().all(|mount| mount["readOnly"] == true), "{role}");
        // Kubernetes mounts the token where the container has nothing.
        let token = json!({"name": "no-token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true});
        ensure!(mounts.contains(&token), "{role}");
        let context = &role["securityContext"];
        assert_eq!((&context["runAsUser"], &context["runAsGroup"]), (&json!(uid), &json!(uid)));
        assert_eq!(context["runAsNonRoot"], json!(uid != 0));
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
        assert_eq!(
            (
                &context["privileged"],
                &context["allowPrivilegeEscalation"],
                &context["readOnlyRootFilesystem"]
            ),
            (&json!(false), &json!(false), &json!(true))
        );
        let profile = values.get("appArmorProfile").cloned();
        assert_eq!(
            context["appArmorProfile"],
            profile.unwrap_or_else(|| json!({"type": "Unconfined"}))
        );
        // Both sides of the socket know each other.
        let set = |container: &Value, name: &str| {
            let env = container["env"].as_array().into_iter().flatten();
            env.filter(|entry| entry["name"] == name)
                .find_map(|entry| entry["value"].as_str().map(str::to_owned))
        };
        for name in ["EPITAPH_LOGIND_SOCKET", "EPITAPH_LOGIND_UID"] {
            ensure!(set(agent, name).is_some() && set(agent, name) == set(role, name), "{name}");
        }
        assert_eq!(set(role, "EPITAPH_LOGIND_UID"), Some(uid.to_string()));
        let wants_lock = values["lock"] == true || values["runAsRoot"] == true;
        assert_eq!(set(role, "EPITAPH_LOGIND_LOCK"), Some(wants_lock.to_string()));
        assert_eq!(set(agent, "EPITAPH_LOGIND_LOCK"), None);
    }
    Ok(())
}

#[test]
fn pods_get_what_their_values_say() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("pods_get_what_their_values_say")? else {
        return Ok(());
    };
    let pod = json!({
        "priorityClassName": "p", "tolerations": [{"key": "k"}], "nodeSelector": {"n": "s"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": []}]}}},
        "podLabels": {"l": "1"}, "podAnnotations": {"a": "1"},
        "extraEnv": [{"name": "E", "value": "1"}], "extraVolumes": [{"name": "v", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}], "resources": {"limits": {"memory": "1Gi"}},
        "dnsPolicy": "Default", "dnsConfig": {"searches": ["s"]}, "hostAliases": [{"ip": "10.0.0.5", "hostnames": ["c"]}],
        "revisionHistoryLimit": 0, "annotations": {"o": "1"}, "podSecurityContext": {"fsGroup": 7}, "readinessProbe": {"periodSeconds": 3, "timeoutSeconds": 2},
        "serviceAccount": {"create": false, "name": "mine"},
    });
    let values = json!({
        "agent": pod, "observer": pod, "imagePullSecrets": [{"name": "registry"}], "commonLabels": {"team": "t"},
        "image": {"repository": "registry.example/e", "tag": "t", "digest": format!("sha256:{}", "0".repeat(64))},
        "collector": {"headersSecret": "h"},
    });
    let objects = rendering.objects(&values)?;
    for (kind, name) in [("DaemonSet", "epitaph-agent"), ("Deployment", "epitaph-observer")] {
        let object = find(&objects, kind, name)?;
        let (meta, spec) = (&object["spec"]["template"]["metadata"], &object["spec"]["template"]["spec"]);
        for (field, expected) in [
            ("priorityClassName", &pod["priorityClassName"]),
            ("tolerations", &pod["tolerations"]),
            ("affinity", &pod["affinity"]),
            ("dnsPolicy", &pod["dnsPolicy"]),
            ("dnsConfig", &pod["dnsConfig"]),
            ("hostAliases", &pod["hostAliases"]),
            ("serviceAccountName", &json!("mine")),
            ("imagePullSecrets", &values["imagePullSecrets"]),
        ] {
            assert_eq!(spec[field], *expected, "{name} {field}");
        }
        assert_eq!(spec["securityContext"]["fsGroup"], 7, "{name}");
        assert_eq!(
            (
                &object["metadata"]["annotations"]["o"],
                &object["spec"]["revisionHistoryLimit"]
            ),
            (&json!("1"), &json!(0)),
            "{name}"
        );
        let probe = &spec["containers"][0]["readinessProbe"];
        assert_eq!(
            (&probe["periodSeconds"], &probe["httpGet"]["path"]),
            (&json!(3), &json!("/readyz"))
        );
        // Maps are merged with the default.
        assert_eq!(spec["nodeSelector"]["n"], "s");
        assert_eq!(
            (&meta["labels"]["l"], &meta["labels"]["team"], &meta["annotations"]["a"]),
            (&json!("1"), &json!("t"), &json!("1"))
        );
        let container = &spec["containers"][0];
        assert_eq!(container["resources"]["limits"]["memory"], "1Gi");
        assert_eq!(container["image"], format!("registry.example/e@sha256:{}", "0".repeat(64)));
        for (list, name) in [("env", "E"), ("env", "OTEL_EXPORTER_OTLP_HEADERS"), ("volumeMounts", "v")] {
            let found = container[list]
                .as_array()
                .into_iter()
                .flatten()
                .any(|entry| entry["name"] == name);
            ensure!(found, "{name} is not in {}", container[list]);
        }
        ensure!(spec["volumes"].to_string().contains("emptyDir"));
        ensure!(
            objects.iter().all(|object| object["metadata"]["labels"]["team"] == "t"),
            "a label is missing"
        );
    }
    Ok(())
}

/// Without capabilities, only a member of the group gives the journal's files to it; and `kubectl exec` finds what the agent writes.
#[test]
fn the_journal_is_where_commands_look_and_its_group_is_the_pods() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_journal_is_where_commands_look_and_its_group_is_the_pods")? else {
        return Ok(());
    };
    let pod = |values: &Value| {
        let objects = rendering.objects(values)?;
        Ok::<_, anyhow::Error>(find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"].clone())
    };
    let by_default = pod(&json!({}))?;
    ensure!(by_default["securityContext"].is_null(), "{by_default}");
    // The first container is the one of `kubectl exec`; its environment is the command's.
    let container = &by_default["containers"][0];
    assert_eq!(container["name"], "agent");
    let variables = container["env"].as_array().context("no environment")?;
    let directory = variables
        .iter()
        .find(|variable| variable["name"] == "EPITAPH_JOURNAL_DIRECTORY");
    assert_eq!(directory.context("no directory")?["value"], "/var/lib/epitaph/journal");
    let mounts = container["volumeMounts"].as_array().context("no mounts")?;
    ensure!(
        mounts.iter().any(|mount| mount["mountPath"] == "/var/lib/epitaph"),
        "{container}"
    );
    for group in [0, 4_242, 3_000_000] {
        let shared = pod(&json!({"config": {"journal": {"group": group}}}))?;
        assert_eq!(shared["securityContext"], json!({"supplementalGroups": [group]}));
    }
    Ok(())
}

/// One by one, by value only, and never created by the mount: /var/lib/kubelet has the secrets of the pods.
#[test]
fn files_of_the_kubelet_are_mounted_by_value() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("files_of_the_kubelet_are_mounted_by_value")? else {
        return Ok(());
    };
    let pod = |values: &Value| -> anyhow::Result<Value> {
        let objects = rendering.objects(values)?;
        Ok(find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"].clone())
    };
    ensure!(!pod(&json!({}))?.to_string().contains("kubelet-"), "none by default");
    let files = [
        (
            "config",
            "/var/lib/kubelet/config.yaml",
            "File",
            "kubelet-config",
            "/host/kubelet/config",
            "CONFIG",
        ),
        (
            "configDirectory",
            "/etc/kubernetes/kubelet.conf.d",
            "Directory",
            "kubelet-config-directory",
            "/host/kubelet/config.d",
            "CONFIG_DIRECTORY",
        ),
        (
            "state",
            "/var/lib/kubelet/graceful_node_shutdown_state",
            "File",
            "kubelet-state",
            "/host/kubelet/graceful_node_shutdown_state",
            "STATE",
        ),
    ];
    for (value, path, kind, name, at, variable) in files {
        let pod = pod(&json!({"agent": {"kubelet": {value: path}}}))?;
        let has = |list: &Value, entry: &Value| list.as_array().is_some_and(|all| all.contains(entry));
        let volume = json!({"name": name, "hostPath": {"path": path, "type": kind}});
        let mount = json!({"name": name, "mountPath": at, "readOnly": true});
        let env = json!({"name": format!("EPITAPH_KUBELET_{variable}"), "value": at});
        ensure!(has(&pod["volumes"], &volume), "{}", pod["volumes"]);
        ensure!(has(&pod["containers"][0]["volumeMounts"], &mount), "{}", pod["containers"][0]);
        ensure!(has(&pod["containers"][0]["env"], &env), "{}", pod["containers"][0]);
        for refused in [
            "/var/lib/kubelet",
            "/var/lib/kubelet/pods",
            "/",
            "/var/lib/kubelet/pki/current.pem",
            "/etc/../x.d",
        ] {
            let values = json!({"agent": {"kubelet": {value: refused}}});
            ensure!(rendering.objects(&values).is_err(), "{value}: {refused} is accepted");
        }
    }
    Ok(())
}

/// A range of ids that the cluster chooses, as OpenShift does, and a spread of one's own.
#[test]
fn the_observers_security_context_and_spread_can_be_replaced() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_observers_security_context_and_spread_can_be_replaced")? else {
        return Ok(());
    };
    let spread = json!([{"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    let values = json!({"observer": {
        "podSecurityContext": {"runAsUser": null, "runAsGroup": null}, "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": spread, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    }});
    let objects = rendering.objects(&values)?;
    let deployment = &find(&objects, "Deployment", "epitaph-observer")?["spec"];
    assert_eq!(deployment["strategy"], values["observer"]["strategy"]);
    let test = &find(&objects, "Pod", "epitaph-test")?["spec"];
    for pod in [&deployment["template"]["spec"], test] {
        let context = pod["securityContext"].as_object().context("no context")?;
        assert_eq!(
            context.keys().collect::<Vec<_>>(),
            ["runAsNonRoot", "seccompProfile"],
            "{pod}"
        );
        // What is not named stays.
        let container = &pod["containers"][0]["securityContext"];
        assert_eq!(container["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(container["capabilities"]["drop"], json!(["ALL"]));
    }
    assert_eq!(deployment["template"]["spec"]["topologySpreadConstraints"], spread);
    let default = rendering.default()?;
    let default = &find(&default, "Deployment", "epitaph-observer")?["spec"]["template"]["spec"];
    assert_eq!(
        default["topologySpreadConstraints"][0]["topologyKey"],
        "kubernetes.io/hostname"
    );
    assert_eq!(default["priorityClassName"], "system-cluster-critical");
    Ok(())
}

#[test]
fn objects_have_the_labels_by_which_tools_find_a_release() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("objects_have_the_labels_by_which_tools_find_a_release")? else {
        return Ok(());
    };
    let chart = concat!("epitaph-", env!("CARGO_PKG_VERSION"));
    for object in rendering.default()? {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/instance"], "epitaph", "{object}");
        assert_eq!(labels["helm.sh/chart"], chart, "{object}");
        // An upgrade cannot change a selector, and a new chart alone is not a rollout.
        let pod = &object["spec"]["template"]["metadata"]["labels"];
        ensure!(pod.get("helm.sh/chart").is_none(), "{object}");
        let selector = &object["spec"]["selector"];
        ensure!(!selector.to_string().contains("instance"), "{selector}");
    }
    Ok(())
}

/// Neither helm nor the API server would refuse it: the nodes would look for it at Docker Hub.
#[test]
fn an_image_without_a_repository_is_refused_with_the_command_that_makes_one() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("an_image_without_a_repository_is_refused_with_the_command_that_makes_one")? else {
        return Ok(());
    };
    let error = rendering.exact(&json!({}), &[]).expect_err("no image").to_string();
    for part in [
        "image.repository",
        "docs/releases.md",
        "cargo xtask image --push",
        "docs/install.md",
    ] {
        ensure!(error.contains(part), "{part} in {error}");
    }
    Ok(())
}

#[test]
fn a_label_of_the_pods_wins_over_the_common_one() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("a_label_of_the_pods_wins_over_the_common_one")? else {
        return Ok(());
    };
    let labels = json!({"podLabels": {"team": "pods"}});
    // Read as the API server does, which refuses a key that is there twice.
    let objects = rendering.objects(&json!({"commonLabels": {"team": "all"}, "agent": labels, "observer": labels}))?;
    for (kind, name) in [("DaemonSet", "epitaph-agent"), ("Deployment", "epitaph-observer")] {
        let object = find(&objects, kind, name)?;
        assert_eq!(object["metadata"]["labels"]["team"], "all", "{name}");
        assert_eq!(object["spec"]["template"]["metadata"]["labels"]["team"], "pods", "{name}");
    }
    Ok(())
}

/// With less, the kubelet would kill an agent that still observes the other pods of a node that shuts down.
#[test]
fn the_pods_have_the_grace_of_the_setting() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_pods_have_the_grace_of_the_setting")? else {
        return Ok(());
    };
    for (grace, seconds) in [("30s", 30), ("90 s", 90)] {
        let objects = rendering.objects(&json!({"config": {"shutdown": {"grace": grace}}}))?;
        let spec = &find(&objects, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"];
        assert_eq!(spec["terminationGracePeriodSeconds"], seconds);
    }
    let default = find(&rendering.default()?, "DaemonSet", "epitaph-agent")?["spec"]["template"]["spec"].clone();
    let setting = Config::default().shutdown.grace.as_secs();
    assert_eq!(default["terminationGracePeriodSeconds"], setting);
    Ok(())
}
