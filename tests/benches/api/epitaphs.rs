//! What the observer pays for Epitaphs, and what an agent whose node is taken over can do with them: `cargo xtask bench epitaphs`.
//!
//! The control plane, the policies of the chart and the observer are real, with their default settings. The agent of one node creates as many
//! Epitaphs in one namespace as the API server takes; those of another node's pods in another namespace are true ones, and unclean.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph::source::pods::{Access, connect};
use epitaph_core::fixtures::{pods, sample};
use epitaph_core::ids::PodUid;
use epitaph_core::render::resource;
use epitaph_core::report::Report;
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::credentials::{Proof, kubeconfig};
use epitaph_tests::cluster::deploy::{as_agent, as_observer};
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::service::Service;
use epitaph_tests::timeout::{holds, until_within};
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::audit::audited;
use crate::kwok::{post, post_all};
use crate::observer::{Usage, mib, rules};
use crate::proxy::Proxy;

const EPITAPHS: usize = 20_000;
const POLICY: &str = include_str!("../../../deploy/kubernetes/policy.yaml");
/// Of the true ones.
const TRUE: usize = 400;
/// The observer keeps so many in a namespace.
const KEPT: usize = 500;
/// A sweep begins every five minutes, and removes 100 a second.
const MOST: Duration = Duration::from_secs(1_800);

pub async fn measure(tools: &Tools, epitaph: &Path, count: Option<usize>) -> anyhow::Result<()> {
    let count = count.unwrap_or(EPITAPHS);
    let directory = tempfile::tempdir()?;
    let (plane, audit) = audited(tools, directory.path(), rules(), &[])?;
    let kubectl = plane.kubectl();
    let client = connect(&Access::Kubeconfig(plane.admin())).await?;
    for namespace in ["epitaph", "shop", "bank"] {
        post(&client, "/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
    }
    as_agent(&plane)?;
    as_observer(&plane)?;
    let workloads = ["daemonset/epitaph-agent", "deployment/epitaph-observer"];
    kubectl.run(&[&["-n", "epitaph", "delete"], &workloads[..]].concat())?;
    for node in ["node-1", "node-2"] {
        post(&client, "/api/v1/nodes", &json!({"metadata": {"name": node}})).await?;
    }
    let (honest, taken) = (
        agent(&plane, &client, "node-1").await?,
        agent(&plane, &client, "node-2").await?,
    );
    kubectl.apply(POLICY)?;

    let proxy = Proxy::start(plane.port())?;
    let file = directory.path().join("observer.kubeconfig");
    let token = plane.token("epitaph", "epitaph-observer")?;
    std::fs::write(&file, kubeconfig(&proxy.url(), &plane.authority()?, &Proof::Token(&token)))?;
    let file = file.to_str().context("a path of ours is text")?;
    let program = Epitaph::copied(epitaph, directory.path())?;
    let args = ["--kubeconfig", file, "--set", "observer.namespace=epitaph"];
    let observer = Service::of("observer", &program, directory.path(), &args)?;
    observer.until("epitaph_observer_active", &[], 1.0)?;

    let honest = connect(&Access::Kubeconfig(honest)).await?;
    post_all(&honest, (0..TRUE).map(|n| object("bank", "node-1", n))).await?;
    // The policy takes effect a moment after it was made.
    let forged = object("bank", "node-1", TRUE);
    let taken = connect(&Access::Kubeconfig(taken)).await?;
    let begun = Instant::now();
    while let Ok(written) = post(&taken, &forged.0, &forged.1).await {
        ensure!(begun.elapsed() < Duration::from_secs(60), "the policy admits {written}");
        remove(&client, "bank", written["metadata"]["name"].as_str().unwrap_or_default()).await?;
    }

    let before = Usage::of(&observer, &proxy, &audit)?;
    let begun = Instant::now();
    post_all(&taken, (0..count).map(|n| object("shop", "node-2", n))).await?;
    let (created, at_most) = (begun.elapsed(), number(&client, "shop").await?);
    let after = Usage::of(&observer, &proxy, &audit)?;
    let begun = Instant::now();
    loop {
        let left = number(&client, "shop").await?;
        if left <= KEPT {
            break;
        }
        ensure!(begun.elapsed() < MOST, "{left} are left: {}", observer.log());
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let removed = begun.elapsed();
    let end = Usage::of(&observer, &proxy, &audit)?;
    let left = number(&client, "bank").await?;
    ensure!(left == TRUE, "of {TRUE} true Epitaphs of another namespace {left} are left");
    until_within(MOST, "the count of what was removed", || {
        let removed = observer.count("epitaph_observer_epitaphs_removed_total", &[])?;
        Ok(holds(removed >= (at_most - KEPT) as f64, || removed.to_string()))
    })?;

    let (arrival, removal) = (after.since(&before), end.since(&after));
    println!(
        "| Epitaphs | bytes each | created within | observer before | after | at most | CPU of their arrival | bytes | over the bound after | CPU of \
         the removal | bytes | requests |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    println!(
        "| {count} | {} | {:.0} s | {:.1} MiB | {:.1} MiB | {:.1} MiB | {:.1} s | {:.1} MB | {:.0} s | {:.1} s | {:.1} MB | {} |",
        object("shop", "node-2", 0).1.to_string().len(),
        created.as_secs_f64(),
        mib(before.resident),
        mib(after.resident),
        mib(end.most),
        arrival.cpu,
        arrival.bytes / 1e6,
        removed.as_secs_f64(),
        removal.cpu,
        removal.bytes / 1e6,
        removal.requests,
    );
    Ok(())
}

/// The kubeconfig of the node's agent, with the token of its pod.
async fn agent(plane: &ControlPlane, client: &Client, node: &str) -> anyhow::Result<PathBuf> {
    let name = format!("agent-{node}");
    let containers = json!([{"name": "agent", "image": "epitaph"}]);
    let pod = json!({
        "metadata": {"name": name}, "spec": {"nodeName": node, "serviceAccountName": "epitaph-agent", "containers": containers},
    });
    post(client, "/api/v1/namespaces/epitaph/pods", &pod).await?;
    let of_pod = [
        "--bound-object-kind=Pod",
        &format!("--bound-object-name={name}"),
        "--duration=24h",
    ];
    let args = [&["-n", "epitaph", "create", "token", "epitaph-agent"], &of_pod[..]].concat();
    let token = plane.kubectl().run(&args)?;
    let file = plane.admin().with_file_name(format!("{name}.kubeconfig"));
    std::fs::write(
        &file,
        kubeconfig(&plane.url(), &plane.authority()?, &Proof::Token(token.trim())),
    )?;
    Ok(file)
}

/// The request that creates the n-th of a namespace.
fn object(namespace: &str, node: &str, n: usize) -> (String, Value) {
    let mut pod = pods::pod(1);
    let mut identity = (*pod.facts.pod).clone();
    identity.uid = PodUid(format!("{n:08x}-6f0b-4a53-9a4e-1f2a3b4c5d6e").as_str().into());
    identity.namespace = namespace.into();
    identity.name = format!("cart-{n}");
    identity.node = node.into();
    pod.facts.pod = identity.into();
    let report = Report::PodTerminated(Box::new(pod));
    let epitaph = resource::of(&report, &sample::observation()).expect("a pod's");
    (path(namespace), epitaph.object())
}

fn path(namespace: &str) -> String {
    let (version, plural) = (resource::API_VERSION, resource::PLURAL);
    format!("/apis/{version}/namespaces/{namespace}/{plural}")
}

async fn remove(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let request = Request::new(path(namespace)).delete(name, &kube::api::DeleteParams::default())?;
    client
        .request_text(request)
        .await
        .map(drop)
        .context("remove a forged Epitaph")
}

/// How many there are.
async fn number(client: &Client, namespace: &str) -> anyhow::Result<usize> {
    let request = Request::new(path(namespace)).list(&ListParams::default().limit(1))?;
    let list: Value = serde_json::from_str(&client.request_text(request).await?)?;
    let first = list["items"].as_array().context("a list")?.len();
    let more = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
    Ok(first + usize::try_from(more)?)
}
