//! Whoever may view one namespace reads the Epitaphs of its pods, and of no other: by client certificate, and by token.

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::Cluster;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::credentials::write_private;
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::timeout::{holds, until};
use serde_json::{Value, json};

const OWN: &str = "readers";
const OTHER: &str = "readers-other";
const USER: &str = "alice";
const ACCOUNT: &str = "reader";
/// An emulated node takes a minute for a pod.
const LONG: &str = "--timeout=240s";

/// Two namespaces; user and ServiceAccount are bound to Kubernetes' own role `view` in one of them.
fn namespaces() -> String {
    let named = |name: &str, namespace: &str| json!({"name": name, "namespace": namespace});
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let mut items = Vec::from([OWN, OTHER].map(namespace));
    items.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named(ACCOUNT, OWN)}));
    items.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": named("readers", OWN),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": OWN},
        ],
    }));
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn pod(namespace: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talker", "namespace": namespace},
        "spec": {"automountServiceAccountToken": false, "containers": [{
            "name": "app", "image": "localhost/busybox:test", "imagePullPolicy": "Never",
            "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done"],
        }]},
    })
    .to_string()
}

pub fn who_may_view_a_namespace_reads_its_epitaphs_and_no_others() -> anyhow::Result<()> {
    let plane = Cluster::named()?.control_plane()?;
    let kubectl = plane.kubectl();
    let delete = |more: &[&str]| kubectl.run(&[&["delete", "namespace", OWN, OTHER, LONG], more].concat());
    delete(&["--ignore-not-found"])?;
    kubectl.apply(&namespaces())?;
    for namespace in [OWN, OTHER] {
        // A controller makes it; without it no pod is admitted.
        kubectl.run(&["-n", namespace, "wait", "--for=create", "serviceaccount/default", LONG])?;
        kubectl.apply(&pod(namespace))?;
    }
    let mut uids = Vec::new();
    for namespace in [OWN, OTHER] {
        let of = |args: &[&str]| kubectl.run(&[&["-n", namespace], args].concat());
        of(&["wait", "--for=condition=Ready", "pod/talker", LONG])?;
        uids.push(of(&["get", "pod", "talker", "-o", "jsonpath={.metadata.uid}"])?);
        of(&["delete", "pod", "talker", LONG])?;
    }
    // Both are written: what the readers do not see is there.
    for (namespace, uid) in [OWN, OTHER].into_iter().zip(&uids) {
        until(&format!("the Epitaph of the pod in {namespace}"), || {
            let all = epitaphs(&kubectl, namespace)?;
            Ok(holds(all.iter().any(|of| of["report"]["pod"]["uid"] == **uid), || {
                format!("{all:?}")
            }))
        })?;
    }
    let [certificate, token] = readers(&plane)?;
    reads(&certificate, &uids[0]).context("by certificate")?;
    reads(&token, &uids[0]).context("by token")?;
    delete(&[]).map(drop)
}

fn readers(plane: &ControlPlane) -> anyhow::Result<[Kubectl; 2]> {
    let token = plane.kubeconfig_of_service_account(OWN, ACCOUNT)?;
    let certificate = token.with_file_name(format!("{USER}.kubeconfig"));
    write_private(&certificate, plane.kubeconfig_for(USER, None, &plane.url())?.as_bytes())?;
    Ok([certificate, token].map(|file| plane.kubectl_as(&file)))
}

fn reads(reader: &Kubectl, uid: &str) -> anyhow::Result<()> {
    let own = epitaphs(reader, OWN)?;
    ensure!(
        own.len() == 1 && own[0]["report"]["pod"]["uid"] == uid && own[0]["report"]["pod"]["name"] == "talker",
        "{own:?}"
    );
    let name = own[0]["metadata"]["name"].as_str().context("a name")?;
    let described = reader.run(&["-n", OWN, "describe", "epitaph", name])?;
    ensure!(described.contains("Sentence:"), "{described}");
    for refused in [
        &["-n", OTHER, "get", "epitaphs"][..],
        &["get", "epitaphs", "--all-namespaces"],
        &["get", "nodeepitaphs"],
        &["-n", OWN, "delete", "epitaph", name],
        &["-n", OWN, "label", "epitaph", name, "mine=true"],
    ] {
        let error = reader.run(refused).expect_err("not allowed").to_string();
        ensure!(error.contains("forbidden"), "{refused:?}: {error}");
    }
    Ok(())
}

fn epitaphs(kubectl: &Kubectl, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let list = kubectl.json(&["-n", namespace, "get", "epitaphs", "-o", "json"])?;
    list["items"].as_array().cloned().context("no list of Epitaphs")
}
