//! The chart and a real API server, without nodes.

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::deploy::{AGENT, KEPT, NAMESPACE, OBSERVER, RELEASE, kinds, namespace, policies};
use epitaph_tests::cluster::helm::chart;
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::skip::skip;
use epitaph_tests::timeout::until;
use serde_json::{Value, json};

const JAEGER: &str = include_str!("../../../deploy/examples/jaeger.yaml");
const COLLECTOR: &str = include_str!("../../../deploy/examples/collector.yaml");

fn tools(test: &str) -> anyhow::Result<Option<Tools>> {
    let tools = Tools::named()?;
    if tools.is_none() {
        skip(
            test,
            "EPITAPH_CLUSTER_TOOLS names no kube-apiserver; `cargo xtask test` builds one",
        );
    }
    Ok(tools)
}

fn names(kubectl: &Kubectl) -> anyhow::Result<Vec<String>> {
    let list = kubectl.run(&["get", &kinds(kubectl)?, "--all-namespaces", "-o", "name"])?;
    // The API server has a Lease of its own, a moment after its start.
    let names = list.lines().filter(|name| !name.contains("/apiserver-"));
    Ok(names.map(str::to_owned).collect())
}

#[test]
fn an_api_server_takes_the_chart_and_gives_it_back() -> anyhow::Result<()> {
    let Some(tools) = tools("an_api_server_takes_the_chart_and_gives_it_back")? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let plane = ControlPlane::api_only(&tools, directory.path())?;
    let (kubectl, helm) = (plane.kubectl(), plane.helm());
    kubectl.apply(&namespace())?;
    let before = names(&kubectl)?;
    dry_run(&kubectl)?;

    // What a person does first, and with everything on.
    let peers = json!([
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}, "podSelector": {}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
    ]);
    let everything = json!({"image": {"repository": "epitaph"}, "dashboard": {"enabled": true}, "resourceQuota": {"enabled": true}, "networkPolicy": {"from": peers},
        "collector": {"headersSecret": "h", "tlsSecret": "t", "tlsClient": true},
        "config": {"otlp": {"endpoint": "https://collector:4317"}}});
    let install = ["install", RELEASE, chart(), "--namespace", NAMESPACE];
    let notes = helm.run_values(&install, &everything)?;
    ensure!(
        notes.contains("rollout status daemonset/epitaph-agent") && notes.contains("helm test -n epitaph epitaph"),
        "{notes}"
    );
    // What a node's shutdown leaves has a resource of its own.
    ensure!(
        notes.contains("kubectl get epitaphs -A\n") && notes.contains("kubectl get nodeepitaphs\n"),
        "{notes}"
    );
    let image = kubectl.json(&["-n", NAMESPACE, "get", "daemonset/epitaph-agent", "-o", "json"])?;
    let image = &image["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(*image, concat!("epitaph:", env!("CARGO_PKG_VERSION")));
    let get = |what: &str| kubectl.json(&["-n", NAMESPACE, "get", what, "-o", "json"]);
    let from = get("networkpolicy/epitaph")?["spec"]["ingress"][0]["from"].take();
    // After two of the chart's own.
    assert_eq!((&from[2], &from[3], &from[4]), (&peers[0], &peers[1], &Value::Null));

    // An observer has taken the Lease: an upgrade must not take it away.
    let held = r#"{"spec":{"holderIdentity":"o","leaseDurationSeconds":15}}"#;
    let lease = ["-n", NAMESPACE, "patch", "lease/epitaph-observer", "--type=merge", "-p", held];
    kubectl.run(&lease)?;
    let upgrade = ["upgrade", RELEASE, chart(), "--namespace", NAMESPACE, "--reset-values"];
    let notes = helm.run_values(
        &upgrade,
        &json!({"image": {"repository": "epitaph"}, "observer": {"replicas": 3}}),
    )?;
    ensure!(notes.contains("No collector is set"), "{notes}");
    assert_eq!(get("deployment/epitaph-observer")?["spec"]["replicas"], 3);
    assert_eq!(get("lease/epitaph-observer")?["spec"]["holderIdentity"], "o");
    // What the new values do not ask for is gone.
    let left = names(&kubectl)?;
    for gone in ["configmap/epitaph-dashboard", "resourcequota/epitaph"] {
        ensure!(!left.iter().any(|name| name == gone), "{gone} is left");
    }

    assert_eq!(get("networkpolicy/epitaph")?["spec"]["ingress"][0].get("from"), None);

    // A right that somebody took away comes back.
    kubectl.run(&["delete", "clusterrolebinding", "epitaph-agent"])?;
    helm.run(&["upgrade", RELEASE, chart(), "--namespace", NAMESPACE, "--reuse-values"])?;
    kubectl.run(&["get", "clusterrolebinding", "epitaph-agent"])?;

    helm.run(&["uninstall", RELEASE, "--namespace", NAMESPACE])?;
    let left: Vec<String> = names(&kubectl)?.into_iter().filter(|name| !before.contains(name)).collect();
    ensure!(left.is_empty(), "an uninstall left {left:?}");
    // But for the definitions, and with them what is known of the past.
    for kept in KEPT {
        kubectl.run(&["get", "customresourcedefinition", kept])?;
    }
    Ok(())
}

/// The plain manifests, with every field and every default checked by the API server.
fn dry_run(kubectl: &Kubectl) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tracing"}});
    kubectl.apply(&namespace.to_string())?;
    let policy = ("policy.yaml", include_str!("../../../deploy/kubernetes/policy.yaml"));
    // Before Kubernetes 1.30 it is left out.
    let policy = policies(kubectl)?.map(|_| policy);
    for (name, manifest) in policy.into_iter().chain([
        ("agent.yaml", AGENT),
        ("observer.yaml", OBSERVER),
        ("jaeger.yaml", JAEGER),
        ("collector.yaml", COLLECTOR),
    ]) {
        let args = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"];
        kubectl.run_with(&args, manifest).with_context(|| name.to_owned())?;
    }
    Ok(())
}

#[test]
fn a_second_release_is_refused() -> anyhow::Result<()> {
    let Some(tools) = tools("a_second_release_is_refused")? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let plane = ControlPlane::api_only(&tools, directory.path())?;
    let install = |name: &str, flags: &[&str]| {
        let args = [
            "install",
            name,
            chart(),
            "--create-namespace",
            "--namespace",
            name,
            "--set=image.repository=epitaph",
        ];
        plane.helm().run(&[&args[..], flags].concat())
    };
    install("epitaph", &[])?;
    let error = install("another", &[]).expect_err("its cluster roles exist").to_string();
    ensure!(error.contains("epitaph-agent") && error.contains("release-name"), "{error}");

    // Namespaces that admit no agent.
    let kubectl = plane.kubectl();
    for level in ["restricted", "baseline"] {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        kubectl.apply(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": level, "labels": labels}}).to_string(),
        )?;
        let error = install(level, &["--set", "fullnameOverride=other"])
            .expect_err("not admitted")
            .to_string();
        let remedy = format!("kubectl label namespace {level} pod-security.kubernetes.io/enforce=privileged --overwrite");
        ensure!(error.contains(&remedy), "{error}");
    }
    let remedy = [
        "label",
        "namespace",
        "restricted",
        "pod-security.kubernetes.io/enforce=privileged",
        "--overwrite",
    ];
    kubectl.run(&remedy)?;
    install("restricted", &["--set", "fullnameOverride=other"]).map(drop)
}

/// GKE's admission, as its documentation describes it: critical priority classes need a quota outside kube-system.
const LIMITED: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - {scopeName: PriorityClass, operator: In, values: [system-node-critical, system-cluster-critical]}
";

#[test]
fn the_quota_admits_the_agents_priority() -> anyhow::Result<()> {
    let Some(tools) = tools("the_quota_admits_the_agents_priority")? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("admission.yaml");
    std::fs::write(&file, LIMITED)?;
    let flag = format!("--admission-control-config-file={}", file.display());
    let plane = ControlPlane::api_only_with(&tools, &directory.path().join("plane"), &[&flag])?;
    let (kubectl, helm) = (plane.kubectl(), plane.helm());
    kubectl.apply(&namespace())?;
    let install = [
        "upgrade",
        "--install",
        RELEASE,
        chart(),
        "--namespace",
        NAMESPACE,
        "--set=image.repository=epitaph",
    ];
    helm.run(&[&install[..], &["--set", "resourceQuota.enabled=false"]].concat())?;
    let pod = of_daemon_set(&kubectl)?;
    let refused = kubectl.apply(&pod.to_string()).expect_err("no quota").to_string();
    ensure!(refused.contains("insufficient quota to match these scopes"), "{refused}");

    helm.run(&[&install[..], &["--set", "resourceQuota.enabled=true"]].concat())?;
    // The part of the controller, which does not run here.
    let hard = json!({"status": {"hard": {"pods": "15000"}, "used": {"pods": "0"}}}).to_string();
    let patch = [
        "-n",
        NAMESPACE,
        "patch",
        "resourcequota/epitaph",
        "--subresource=status",
        "--type=merge",
        "-p",
        &hard,
    ];
    kubectl.run(&patch)?;
    // The API server knows a new quota after a moment.
    until("the quota to be known", || {
        Ok(kubectl.apply(&pod.to_string()).map_err(|error| format!("{error:#}")))
    })
}

/// The pod that the DaemonSet's controller would make for a node.
fn of_daemon_set(kubectl: &Kubectl) -> anyhow::Result<Value> {
    let set = kubectl.json(&["-n", NAMESPACE, "get", "daemonset/epitaph-agent", "-o", "json"])?;
    let template = &set["spec"]["template"];
    let meta = json!({"name": "epitaph-agent-x", "namespace": NAMESPACE, "labels": template["metadata"]["labels"]});
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}))
}
