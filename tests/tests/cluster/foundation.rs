//! That the cluster itself works.

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::{Cluster, HOST_FOR_GUESTS};

const POD: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: foundation}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: foundation}
---
apiVersion: v1
kind: Pod
metadata: {name: talker, namespace: foundation}
spec:
  containers:
  - name: app
    image: localhost/busybox:test
    imagePullPolicy: Never
    command: [sh, -c, \"trap 'exit 0' TERM; echo begun; while :; do sleep 0.2; done\"]
";

pub fn a_pod_runs_and_answers_and_is_deleted() -> anyhow::Result<()> {
    let kubectl = Cluster::named()?.control_plane()?.kubectl();
    let foundation = |args: &[&str]| kubectl.run(&[&["-n", "foundation"], args].concat());
    foundation(&["delete", "pod", "talker", "--ignore-not-found", "--timeout=120s"])?;
    kubectl.apply(POD)?;
    foundation(&["wait", "--for=condition=Ready", "pod/talker", "--timeout=120s"])?;
    // On a node that has just come up and runs other stories, the first connection to the kubelet can take longer than the
    // API server waits for its handshake.
    let logs = || foundation(&["logs", "talker"]);
    assert_eq!(logs().or_else(|_| logs()).or_else(|_| logs())?, "begun\n");
    assert_eq!(foundation(&["exec", "talker", "--", "cat", "/proc/1/comm"])?, "sh\n");
    foundation(&["delete", "pod", "talker", "--timeout=120s"])?;
    let gone = foundation(&["get", "pod", "talker"]).expect_err("it was deleted").to_string();
    assert!(gone.contains("NotFound"), "{gone}");
    kubectl
        .run(&["delete", "namespace", "foundation", "--timeout=120s"])
        .map(drop)
}

pub fn a_node_is_root_s_and_reaches_jaeger_on_the_host() -> anyhow::Result<()> {
    let cluster = Cluster::named()?;
    let node = cluster.node("node-1")?;
    assert_eq!(node.run("id -u")?, "0\n");
    let ahead = node.clock_ahead()?;
    ensure!(ahead.abs() < 1.0, "its clock is {ahead} s ahead");
    let jaeger = cluster.jaeger()?.context("the cluster has no Jaeger")?.ports();
    for port in [jaeger.otlp_grpc, jaeger.otlp_http] {
        node.run(&format!("timeout 20 bash -c ': < /dev/tcp/{HOST_FOR_GUESTS}/{port}'"))?;
    }
    Ok(())
}
