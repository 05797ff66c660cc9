//! What Epitaph writes for a rollout, beside what Kubernetes itself writes for the same pods: `cargo xtask bench rollout`.
//!
//! etcd, kube-apiserver, kube-controller-manager, kube-scheduler and the observer are real, with their default settings; kwok plays the
//! kubelets. The agents are real but for their probes: see `agent.rs`. Not on either side: Leases, and what nodes write at rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph::source::pods::{Access, connect};
use epitaph_core::render::resource;
use epitaph_core::report::Report;
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::deploy::{as_agent, as_observer};
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::cluster::process::Process;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::service::Service;
use epitaph_tests::timeout::{holds, until_within};
use kube::Client;
use kube::api::{DeleteParams, Preconditions};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::REST;
use crate::audit::audited;
use crate::fleet::{self, GRACE, MIX, NAMESPACE};
use crate::kwok::{self, post, post_all};
use crate::metrics::{Writes, writes};

const STAGES: &str = include_str!("rollout-stages.yaml");
const PODS: usize = 1_000;
const PODS_PER_NODE: usize = 10;
/// Epitaphs of one namespace that the observer keeps.
const MOST_KEPT: usize = 10_000;
/// A row that is computed from what one termination costs: nodes, and terminations of each in an hour.
const COMPUTED: (f64, f64) = (5_000.0, 60.0);
/// Of a rollout on a busy machine.
const MOST: Duration = Duration::from_secs(1_800);
/// The observer writes two minutes after it first saw something of a pod, and ten minutes after a later fact; nothing was written for so long: nothing
/// more comes.
const QUIET: Duration = Duration::from_secs(630);
const AGENT: &str = "system:serviceaccount:epitaph:epitaph-agent";
const OBSERVER: &str = "system:serviceaccount:epitaph:epitaph-observer";

pub async fn measure(tools: &Tools, kwok: &Path, epitaph: &Path, pods: Option<usize>) -> anyhow::Result<()> {
    let pods = pods.unwrap_or(PODS);
    let nodes = pods.div_ceil(PODS_PER_NODE);
    let directory = tempfile::tempdir()?;
    // What Epitaph writes, with the bodies.
    let written = json!({
        "level": "Request", "users": [AGENT, OBSERVER], "verbs": ["create", "update", "patch", "delete", "deletecollection"], "omitStages": ["ResponseStarted"],
    });
    let (plane, audit) = audited(tools, directory.path(), vec![written], &[])?;
    let kubectl = plane.kubectl();
    let client = connect(&Access::Kubeconfig(plane.admin())).await?;
    for namespace in ["epitaph", NAMESPACE] {
        post(&client, "/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
    }
    as_agent(&plane)?;
    as_observer(&plane)?;
    kubectl.run(&[
        "-n",
        "epitaph",
        "delete",
        "daemonset/epitaph-agent",
        "deployment/epitaph-observer",
    ])?;
    let of_nodes = (0..nodes).map(|node| ("/api/v1/nodes".to_owned(), json!({"metadata": {"name": fleet::name(node)}})));
    post_all(&client, of_nodes).await?;
    let kubelets_log = directory.path().join("kwok.log");
    let stages = directory.path().join("rollout-stages.yaml");
    std::fs::write(&stages, STAGES)?;
    let flags = [
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
        "--cidr=10.0.0.0/16",
    ];
    let _kubelets = Kubelets(kwok::start(kwok, "kwok", directory.path(), &plane.admin(), &stages, &flags)?);

    let deployments = deployments(pods);
    for (name, deployment) in &deployments {
        create(&client, name, deployment).await?;
    }
    let begun = Instant::now();
    rolled_out(&kubectl, &deployments).with_context(|| format!("kwok's log ends with:\n{}", end(&kubelets_log)))?;
    eprintln!(
        "{pods} pods on {nodes} nodes run after {:.0} s",
        begun.elapsed().as_secs_f64()
    );

    let of_account = |name: &str| plane.kubeconfig_of_service_account("epitaph", name);
    let (_counts, mut reports, _running) = fleet::agents(&[of_account("epitaph-agent")?], nodes).await?;
    let observer = observer(epitaph, directory.path(), &of_account("epitaph-observer")?)?;
    observer.until("epitaph_observer_known", &["object=\"pods\""], pods as f64)?;
    sleep(REST).await;

    let (before, own_before) = (writes(&kubectl)?, own(&audit)?);
    let begun = Instant::now();
    for (name, deployment) in &deployments {
        let patch =
            json!({"spec": {"template": {"metadata": {"annotations": {"version": "2", "code": deployment.code.to_string()}}}}});
        kubectl.run(&["-n", NAMESPACE, "patch", "deployment", name, "-p", &patch.to_string()])?;
    }
    rolled_out(&kubectl, &deployments)?;
    let took = begun.elapsed();
    let after = quiet(&kubectl, &audit)?;
    let own = minus(own(&audit)?, &own_before);
    // Those by both APIs of Events, and by everybody. Nobody else writes Epitaph's kinds: what is left of them is the difference between a
    // body as it came and as the audit log has it.
    let mut others = minus(minus(after, &before), &own);
    others.retain(|what, _| !what.ends_with(resource::GROUP));
    let mut terminated = 0;
    while let Ok(report) = reports.try_recv() {
        terminated += usize::from(matches!(report, Report::PodTerminated(_)));
    }
    ensure!(
        terminated * 10 >= pods * 9,
        "only {terminated} of {pods} terminations were reported"
    );
    eprintln!(
        "the rollout took {:.0} s; {terminated} terminations were reported; the observer: {}",
        took.as_secs_f64(),
        outcomes(&observer)?
    );
    print(&own, &others, pods)
}

/// The last lines of a log.
fn end(log: &Path) -> String {
    const LINES: usize = 20;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// kwok, until the drop.
struct Kubelets(Process);

impl Drop for Kubelets {
    fn drop(&mut self) {
        let _ = self.0.end(Duration::from_secs(5));
    }
}

fn observer(epitaph: &Path, directory: &Path, kubeconfig: &Path) -> anyhow::Result<Service> {
    let program = Epitaph::copied(epitaph, directory)?;
    let file = kubeconfig.to_str().context("a path of ours is text")?;
    // Nothing is removed meanwhile: removals are days later, and in a row of their own.
    let kept = format!("observer.epitaphs_per_namespace={MOST_KEPT}");
    let args = ["--kubeconfig", file, "--set", "observer.namespace=epitaph", "--set", &kept];
    Service::of("observer", &program, directory, &args)
}

/// How the pods of one Deployment end, and how many it has.
struct Kind {
    replicas: usize,
    image: &'static str,
    lifecycle: &'static str,
    code: u8,
}

/// By their names: together they are one rollout, whose pods end as those of `bench api`.
fn deployments(pods: usize) -> BTreeMap<String, Kind> {
    let kinds = MIX.iter().enumerate().map(|(number, &(share, image, lifecycle, code))| {
        let replicas = (pods * share as usize / 100).max(1);
        let kind = Kind {
            replicas,
            image,
            lifecycle,
            code,
        };
        (format!("cart-{number}"), kind)
    });
    kinds.collect()
}

/// A Deployment as a chart makes it, with its Service.
async fn create(client: &Client, name: &str, kind: &Kind) -> anyhow::Result<()> {
    let labels = json!({"app.kubernetes.io/name": name});
    let lifecycle: Value = serde_json::from_str(kind.lifecycle).unwrap_or(Value::Null);
    let env: Vec<Value> = (0..12)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value-{n}-of-an-ordinary-length")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    let container = json!({
        "name": "app", "image": kind.image, "env": env, "readinessProbe": probe, "livenessProbe": probe, "lifecycle": lifecycle,
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    });
    let template = json!({
        "metadata": {"labels": labels, "annotations": {"code": kind.code.to_string(), "version": "1"}},
        "spec": {"terminationGracePeriodSeconds": GRACE, "containers": [container]},
    });
    let spec = json!({"replicas": kind.replicas, "selector": {"matchLabels": labels}, "template": template});
    let deployment = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
    post(
        client,
        &format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments"),
        &deployment,
    )
    .await?;
    let spec = json!({"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]});
    let service = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
    post(client, &format!("/api/v1/namespaces/{NAMESPACE}/services"), &service).await?;
    Ok(())
}

/// Waits until every Deployment has its pods, and no other pod is left.
fn rolled_out(kubectl: &Kubectl, deployments: &BTreeMap<String, Kind>) -> anyhow::Result<()> {
    let wanted: usize = deployments.values().map(|kind| kind.replicas).sum();
    until_within(MOST, "the rollout of each Deployment", || {
        let all = kubectl.json(&["-n", NAMESPACE, "get", "deployments", "-o", "json"])?;
        let is_done = |deployment: &Value| {
            let (spec, status) = (&deployment["spec"], &deployment["status"]);
            let is = |field: &str| status[field] == spec["replicas"];
            status["observedGeneration"] == deployment["metadata"]["generation"]
                && is("updatedReplicas")
                && is("availableReplicas")
                && is("replicas")
        };
        let items = all["items"].as_array().context("a list")?;
        let pods = kubectl.run(&["-n", NAMESPACE, "get", "pods", "-o", "name"])?.lines().count();
        let is_over = items.len() == deployments.len() && items.iter().all(is_done) && pods == wanted;
        Ok(holds(is_over, || {
            format!("{pods} pods, and Deployments that are not rolled out: {all}")
        }))
    })
}

/// All writes, once Epitaph has written nothing for a while.
fn quiet(kubectl: &Kubectl, audit: &Path) -> anyhow::Result<BTreeMap<String, Writes>> {
    let (mut last, mut since) = (0.0, Instant::now());
    until_within(MOST, "the last write of Epitaph", || {
        let count = own(audit)?.values().map(|of| of.count).sum();
        if count != last {
            (last, since) = (count, Instant::now());
        }
        Ok(holds(since.elapsed() > QUIET, || format!("{last} writes")))
    })?;
    writes(kubectl)
}

/// What Epitaph has written, by resource, but Leases.
fn own(audit: &Path) -> anyhow::Result<BTreeMap<String, Writes>> {
    let mut own: BTreeMap<String, Writes> = BTreeMap::new();
    // Before the first write there is no file.
    let text = std::fs::read_to_string(audit).unwrap_or_default();
    for line in text.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            // The last line, half written.
            continue;
        };
        let of = &event["objectRef"];
        let resource = of["resource"].as_str().unwrap_or_default();
        if resource == "leases" {
            continue;
        }
        let of = own
            .entry(crate::metrics::resource(
                of["apiGroup"].as_str().unwrap_or_default(),
                resource,
            ))
            .or_default();
        of.count += 1.0;
        of.bytes += event["requestObject"].to_string().len() as f64;
    }
    Ok(own)
}

fn minus(mut after: BTreeMap<String, Writes>, before: &BTreeMap<String, Writes>) -> BTreeMap<String, Writes> {
    for (what, of) in before {
        if let Some(after) = after.get_mut(what) {
            *after = after.since(*of);
        }
    }
    after.retain(|_, of| of.count > 0.0);
    after
}

fn outcomes(observer: &Service) -> anyhow::Result<String> {
    let mut all = Vec::new();
    for outcome in epitaph::sink::epitaphs::OUTCOMES {
        let label = format!("outcome=\"{}\"", outcome.name());
        let count = observer.count("epitaph_kubernetes_epitaphs_total", &[&label])?;
        if count > 0.0 {
            all.push(format!("{} {count}", outcome.name()));
        }
    }
    Ok(all.join(", "))
}

fn print(own: &BTreeMap<String, Writes>, others: &BTreeMap<String, Writes>, pods: usize) -> anyhow::Result<()> {
    println!("| Written for a rollout of {pods} pods | Requests | kB |");
    println!("|---|---|---|");
    for (of, by) in [(own, "Epitaph"), (others, "Kubernetes")] {
        for (what, writes) in of {
            println!("| {by}: {what} | {:.0} | {:.0} |", writes.count, writes.bytes / 1e3);
        }
    }
    println!();
    println!("| Terminations | Epitaph's writes | kB | Kubernetes' own | kB | Epitaph's share of requests | of bytes |");
    println!("|---|---|---|---|---|---|---|");
    let sum = |of: &BTreeMap<String, Writes>| {
        let all = of.values();
        all.fold((0.0, 0.0), |(count, bytes), of| (count + of.count, bytes + of.bytes))
    };
    let (own, others) = (sum(own), sum(others));
    let (nodes, hourly) = COMPUTED;
    let times = nodes * hourly / pods as f64;
    // The observer removes each Epitaph later, one request each.
    let (count, bytes) = (pods as f64, removal()?.len() as f64);
    let removed = (own.0 + count, own.1 + count * bytes);
    let rows = [
        (format!("a rollout of {pods} pods"), own, 1.0),
        ("and the removal of its Epitaphs (computed)".to_owned(), removed, 1.0),
        (
            format!("{hourly} an hour on each of {nodes} nodes, in an hour, with their removal (computed)"),
            removed,
            times,
        ),
    ];
    for (what, own, times) in rows {
        println!(
            "| {what} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} % | {:.1} % |",
            own.0 * times,
            own.1 * times / 1e3,
            others.0 * times,
            others.1 * times / 1e3,
            100.0 * own.0 / others.0,
            100.0 * own.1 / others.1,
        );
    }
    Ok(())
}

/// The body of a request that removes one Epitaph.
fn removal() -> anyhow::Result<String> {
    let only_this = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some("6f1cfb2f-0b8d-4b54-9d0d-2f0a6f3f4b7e".to_owned()),
            resource_version: Some("123456789".to_owned()),
        }),
        ..DeleteParams::default()
    };
    serde_json::to_string(&only_this).context("a request that removes an Epitaph")
}
