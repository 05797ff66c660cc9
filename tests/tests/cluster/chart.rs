//! The chart on a cluster with nodes: installed, wrong in several ways, upgraded, tested and removed.

use std::time::Duration;

use anyhow::ensure;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::deploy::{self, NAMESPACE, RELEASE};
use epitaph_tests::cluster::helm::chart;
use epitaph_tests::cluster::{Cluster, HOST_FOR_GUESTS};
use epitaph_tests::timeout::{holds, until_within};

const AGENTS: [&str; 3] = ["--selector=app.kubernetes.io/component=agent", "--namespace", NAMESPACE];
/// A pod starts again and again with growing pauses.
const SOON: Duration = Duration::from_secs(360);

pub fn installed_upgraded_tested_and_removed() -> anyhow::Result<()> {
    let cluster = Cluster::named()?;
    deploy::deploy(&cluster)?;
    let mut plane = cluster.control_plane()?;
    upgraded(&plane)?;
    tested(&plane)?;
    wrong_settings(&plane)?;
    rights_taken_away(&mut plane)?;
    not_admitted(&plane)?;
    removed(&plane)
}

fn upgrade(plane: &ControlPlane, flags: &[&str]) -> anyhow::Result<String> {
    let args = ["upgrade", RELEASE, chart(), "--namespace", NAMESPACE, "--reuse-values"];
    plane.helm().run(&[&args[..], flags].concat())
}

const READY: [&str; 2] = ["--wait", "--timeout=300s"];

fn upgraded(plane: &ControlPlane) -> anyhow::Result<()> {
    upgrade(
        plane,
        &[&["--set", "config.export.cluster_name=changed"][..], &READY].concat(),
    )?;
    for (workload, command) in [
        ("daemonset/epitaph-agent", "agent"),
        ("deployment/epitaph-observer", "observer"),
    ] {
        let args = [
            "exec",
            "--namespace",
            NAMESPACE,
            workload,
            "--",
            "/epitaph",
            command,
            "--print-config",
        ];
        let shown = plane
            .kubectl()
            .run(&[&args[..], &["--config", "/etc/epitaph/config/epitaph.toml"]].concat())?;
        ensure!(shown.contains("cluster_name = \"changed\""), "{workload}: {shown}");
    }
    Ok(())
}

/// The pod stays with its log, which `--logs` shows: an agent that does not see all refused clients has a line more.
fn tested(plane: &ControlPlane) -> anyhow::Result<()> {
    let shown = plane
        .helm()
        .run(&["test", RELEASE, "--namespace", NAMESPACE, "--timeout=180s", "--logs"])?;
    ensure!(shown.contains(":9464 is ready"), "{shown}");
    // Nobody resolves names in this cluster.
    ensure!(
        shown.contains("epitaph-agents.epitaph.svc:9464 has no address here"),
        "{shown}"
    );
    let kubectl = plane.kubectl();
    let kept = kubectl.run(&["logs", "--namespace", NAMESPACE, "pod/epitaph-test"])?;
    ensure!(kept.contains(":9464 is ready"), "{kept}");
    let agent = kubectl.run(&[
        "get",
        "--namespace",
        NAMESPACE,
        "pods",
        AGENTS[0],
        "-o",
        "jsonpath={.items[0].metadata.name}",
    ])?;
    let ask = [
        "exec",
        "--namespace",
        NAMESPACE,
        agent.trim(),
        "-c",
        "agent",
        "--",
        "/epitaph",
        "ready",
    ];
    let of_agent = kubectl.run(&ask)?;
    let is_blind = of_agent.contains("; remedy: ");
    ensure!(kept.contains("; remedy: ") == is_blind, "{kept}\nbut {of_agent}");
    Ok(())
}

fn wrong_settings(plane: &ControlPlane) -> anyhow::Result<()> {
    let error = upgrade(plane, &["--set", "config.otlp.endpoint=collector:4317"])
        .expect_err("no scheme")
        .to_string();
    ensure!(error.contains("/config/otlp/endpoint"), "{error}");

    upgrade(plane, &["--set", "config.otlp.certificate=/etc/epitaph/none.pem"])?;
    logged(plane, "remedy: name a PEM file that this user can read with otlp.certificate")?;

    let nobody = format!("config.otlp.endpoint=http://{HOST_FOR_GUESTS}:1");
    upgrade(
        plane,
        &[&["--set", "config.otlp.certificate=", "--set", &nobody][..], &READY].concat(),
    )?;
    // Something to report: a pod that exits at once.
    let kubectl = plane.kubectl();
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "unreported", "namespace": "default"}, "spec": {
        "restartPolicy": "Never", "automountServiceAccountToken": false, "containers": [{"name": "app",
        "image": "localhost/busybox:test", "imagePullPolicy": "Never", "command": ["sh", "-c", "exit 3"]}]}}"#;
    kubectl.run(&["delete", "pod/unreported", "--ignore-not-found"])?;
    kubectl.apply(pod)?;
    let seen = logged(plane, "start the collector, or correct `otlp.endpoint`");
    kubectl.run(&["delete", "pod/unreported"])?;
    seen?;
    deploy::deploy(&Cluster::named()?)
}

fn rights_taken_away(plane: &mut ControlPlane) -> anyhow::Result<()> {
    let kubectl = plane.kubectl();
    kubectl.run(&["delete", "clusterrolebinding", "epitaph-agent"])?;
    // An open watch goes on without the right: the next one is refused.
    plane.stop_api_server()?;
    plane.start_api_server()?;
    logged(plane, "bind this ServiceAccount to ClusterRole epitaph-agent with the rule")?;
    upgrade(plane, &READY)?;
    kubectl.run(&["get", "clusterrolebinding", "epitaph-agent"]).map(drop)
}

fn not_admitted(plane: &ControlPlane) -> anyhow::Result<()> {
    let label = |level: &str| {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        plane.kubectl().run(&["label", "namespace", NAMESPACE, &label, "--overwrite"])
    };
    label("restricted")?;
    let error = upgrade(plane, &[]).expect_err("not admitted").to_string();
    label("privileged")?;
    ensure!(error.contains("kubectl label namespace epitaph"), "{error}");
    Ok(())
}

fn removed(plane: &ControlPlane) -> anyhow::Result<()> {
    // In the foreground, so that the pods of DaemonSet and Deployment are gone, too.
    let cascade = ["--wait", "--cascade=foreground", "--timeout=120s"];
    plane
        .helm()
        .run(&[&["uninstall", RELEASE, "--namespace", NAMESPACE][..], &cascade].concat())?;
    let kubectl = plane.kubectl();
    // Helm removes no pod of a test: the README names it.
    kubectl.run(&["delete", "pod/epitaph-test", "--namespace", NAMESPACE, "--ignore-not-found"])?;
    let kinds = deploy::kinds(&kubectl)?;
    let left = |selector: &str| kubectl.run(&["get", &kinds, "--all-namespaces", "-o", "name", "--selector", selector]);
    // Helm can return before the foreground deletion is over.
    until_within(SOON, "an uninstall to leave nothing", || {
        let all = left("app.kubernetes.io/name=epitaph")? + &left("owner=helm,name=epitaph")?;
        Ok(holds(all.is_empty(), || all.clone()))
    })
}

/// Waits until the log of an agent, or of its last failed start, has these words.
fn logged(plane: &ControlPlane, words: &str) -> anyhow::Result<()> {
    let kubectl = plane.kubectl();
    until_within(SOON, &format!("an agent to log `{words}`"), || {
        let log = kubectl.run(&[&["logs", "--tail=200"][..], &AGENTS].concat());
        let log = log.unwrap_or_else(|error| format!("{error:#}"));
        Ok(holds(log.contains(words), || log.clone()))
    })
}
