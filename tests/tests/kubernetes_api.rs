//! A real kube-apiserver on a real etcd, without any node.

use std::path::Path;

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::skip::skip;

const POD: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: cart, namespace: shop}
spec:
  nodeName: node-1
  containers: [{name: app, image: app}]
";

const READER: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: shop}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: shop}]
";

#[test]
fn a_real_api_server_keeps_its_objects_over_a_restart_and_stops_on_drop() -> anyhow::Result<()> {
    let Some(tools) = Tools::named()? else {
        skip(
            "a_real_api_server_keeps_its_objects_over_a_restart_and_stops_on_drop",
            "EPITAPH_CLUSTER_TOOLS names no kube-apiserver; `cargo xtask test` builds one",
        );
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let mut plane = ControlPlane::api_only(&tools, directory.path())?;
    let kubectl = plane.kubectl();
    kubectl.apply(POD)?;
    let pod = |of: &str| kubectl.json(&["-n", "shop", "get", "pod", of, "-o", "json"]);
    let cart = pod("cart")?;
    assert_eq!(cart["spec"]["nodeName"], "node-1");
    assert_eq!(cart["status"]["phase"], "Pending");

    kubectl.apply(READER)?;
    let reader = plane.kubectl_as(&plane.kubeconfig_of_service_account("shop", "reader")?);
    assert_eq!(
        reader.json(&["-n", "shop", "get", "pod", "cart", "-o", "json"])?["metadata"]["uid"],
        cart["metadata"]["uid"]
    );
    let refused = reader
        .run(&["-n", "shop", "get", "pods"])
        .expect_err("its role has no list")
        .to_string();
    assert!(refused.contains("cannot list resource \"pods\""), "{refused}");

    let compacted = plane.compact()?;
    let old: u64 = cart["metadata"]["resourceVersion"].as_str().context("no version")?.parse()?;
    assert!(compacted > old, "{compacted} {old}");
    plane.stop_api_server()?;
    pod("cart").expect_err("the API server is stopped");
    plane.start_api_server()?;
    assert_eq!(pod("cart")?["metadata"]["uid"], cart["metadata"]["uid"]);
    let watch = format!("/api/v1/namespaces/shop/pods?watch=1&timeoutSeconds=1&resourceVersion={old}");
    let gone = kubectl.run(&["get", "--raw", &watch])?;
    assert!(gone.contains("\"code\":410"), "{gone}");

    let running = plane.running();
    assert_eq!(running.len(), 2, "{running:?}");
    drop(plane);
    for (name, pid) in running {
        ensure!(
            !Path::new(&format!("/proc/{pid}")).exists(),
            "{name} outlived the value that started it"
        );
    }
    Ok(())
}
