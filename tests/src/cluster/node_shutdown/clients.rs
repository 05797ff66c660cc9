//! Clients of a Service on a node that is shut down in order: what they lose, how long the endpoints are still ready after the stop signals by
//! a watch of the test's own, and what the node's trace says of both.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::super::node_name;
use super::super::play::{Stage, text, until};
use super::super::stories::NAMESPACE;
use super::super::stories::manifest::{container, merge, pod};
use super::asked::Pod;
use super::{NODE, OTHER, Off, REPLICAS, SOON, power_off, power_on, shown};
use crate::sys::wall_seconds;
use crate::traces::{kind_of, tag};
use crate::victim::load::Totals;

/// Tolerated difference of two counts: this, or 2 %.
const SLACK: u64 = 2;
/// Of two times: the observer's watch, the own watch and three clocks.
const APART: f64 = 3.0;

/// When each pod's endpoint was first not ready, or gone; seconds since the epoch.
type Left = BTreeMap<String, f64>;

/// The servers close their listener at the stop signal, as many do.
pub fn workloads(name: &str) -> Vec<Value> {
    let mut server = container("app", &["http", "close-and-drain", "[::]:8080", "--stay-ready"]);
    merge(
        &mut server,
        json!({"readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 5}}),
    );
    let labels = json!({"story": name, "shutdown": name, "replica-of": name});
    let template = pod(name, json!({"terminationGracePeriodSeconds": 20, "containers": [server]}));
    let mut spec = template["spec"].clone();
    merge(
        &mut spec,
        json!({"tolerations": [], "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"replica-of": name}},
        }]}),
    );
    vec![
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"shutdown": name}},
            "spec": {
                "replicas": REPLICAS, "selector": {"matchLabels": {"replica-of": name}},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"shutdown": name}},
            "spec": {"selector": {"replica-of": name}, "ports": [{"port": 80, "targetPort": 8080}]},
        }),
    ]
}

/// What the traces do not show, a line each.
pub fn play(stage: &Stage, name: &str, gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    let here = |args: &[&str]| stage.kubectl.run(&[&["--namespace", NAMESPACE], args].concat());
    let client = format!("{name}-client");
    let service = here(&["get", "service", name, "-o", "jsonpath={.spec.clusterIP}"])? + ":80";
    let load = container("app", &["load", &service, "--clients=4", "--pause-ms=60"]);
    let mut client_pod = pod(
        &client,
        json!({"restartPolicy": "Never", "containers": [load], "nodeName": node_name(OTHER)}),
    );
    // Removed with the rest; not one of the servers.
    client_pod["metadata"]["labels"] = json!({"story": client, "shutdown": name});
    stage.apply(&[client_pod])?;
    here(&["wait", "--for=condition=Ready", &format!("pod/{client}"), "--timeout=900s"])?;
    let over = AtomicBool::new(false);
    let (off, left) = scope(|threads| {
        let watch = threads.spawn(|| watched(stage, name, &over));
        let off = power_off(stage, name);
        over.store(true, Ordering::Relaxed);
        let left = watch.join().expect("the watch panicked");
        anyhow::Ok((off?, left?))
    })?;
    power_on(stage, name)?;
    here(&["exec", &client, "--", "sh", "-c", "kill -TERM 1"])?;
    let is_over = format!("pod/{client}");
    here(&["wait", "--for=jsonpath={.status.phase}=Succeeded", &is_over, "--timeout=900s"])?;
    let log = here(&["logs", &client])?;
    let log = log
        .lines()
        .rfind(|line| line.starts_with('{'))
        .context("the client logged nothing")?;
    let totals: Totals = serde_json::from_str(log).with_context(|| format!("read the client's log: {log}"))?;
    here(&["delete", &is_over, &format!("service/{name}"), "--grace-period=1"])?;
    ensure!(totals.ok > 0, "no client was answered: {log}");
    compare(
        stage,
        &off,
        &Seen {
            name,
            gone,
            left,
            totals,
        },
    )
}

struct Seen<'a> {
    name: &'a str,
    gone: &'a [Pod],
    left: Left,
    totals: Totals,
}

fn compare(stage: &Stage, off: &Off, seen: &Seen<'_>) -> anyhow::Result<Vec<String>> {
    let (spans, mut problems) = shown::root(stage, off, "graceful")?;
    let root = spans.iter().find(|span| kind_of(span).starts_with("node.shutdown"));
    let root = root.context("no root")?;
    let sentence = text(&tag(root, "epitaph.sentence"));
    let clients = seen.totals.refused + seen.totals.reset + seen.totals.cut;
    let agent = tag(root, "epitaph.shutdown.connections_lost").as_u64().unwrap_or_default();
    eprintln!(
        "{}: clients lost {clients}, the node's agent counts {agent}; left: {:?}",
        seen.name, seen.left
    );
    if clients == 0 {
        problems.push("the clients lost nothing: the story shows nothing".to_owned());
    }
    if clients.abs_diff(agent) > SLACK.max(clients / 50) {
        problems.push(format!(
            "{agent} connections lost by the agent, {clients} by the clients: {:?}",
            seen.totals
        ));
    }
    let workload = format!("Deployment {NAMESPACE}/{}", seen.name);
    if agent > 0 && !(sentence.contains("clients lost") && sentence.contains(&workload)) {
        problems.push(format!("no loss of {workload} in: {sentence}"));
    }
    let Some(not_ready) = spans.iter().find(|span| kind_of(span) == "node.not_ready") else {
        problems.push("no node.not_ready: the observer did not see the shutdown".to_owned());
        return Ok(problems);
    };
    let said = text(&tag(not_ready, "epitaph.sentence"));
    eprintln!("{}: the observer: {said}", seen.name);
    let service = format!("Service {NAMESPACE}/{}", seen.name);
    let expected = longest(stage, seen)?;
    match (expected, ready_after_stop(not_ready)) {
        (Some(expected), Some(found)) if (expected - found).abs() > APART => {
            problems.push(format!(
                "ready for {found:.1} s after the stop signal, {expected:.1} s by the own watch"
            ));
        }
        (Some(expected), None) if expected > APART => {
            problems.push(format!(
                "an endpoint was ready {expected:.1} s after the stop signal, and the observer has none"
            ));
        }
        (None, Some(found)) if found > APART => {
            problems.push(format!(
                "ready for {found:.1} s after the stop signal, and not by the own watch"
            ));
        }
        _ => {}
    }
    if agent > 0 && !said.contains(&service) {
        problems.push(format!("no {service} in: {said}"));
    }
    Ok(problems)
}

/// By the own watch and the agents' traces: the longest time from a stop signal until the endpoint left.
fn longest(stage: &Stage, seen: &Seen<'_>) -> anyhow::Result<Option<f64>> {
    let mut longest: Option<f64> = None;
    for pod in seen.gone.iter().filter(|pod| pod.is_of_deployment) {
        let traces = stage.jaeger.traces_with("k8s.pod.uid", &pod.uid)?;
        let spans = traces
            .iter()
            .flat_map(|trace| trace["spans"].as_array().into_iter().flatten());
        let stop = spans
            .filter(|span| span["operationName"] == "SIGTERM → exit")
            .filter_map(|span| Some(span["startTime"].as_f64()? / 1e6))
            .reduce(f64::min);
        if let Some((stop, left)) = stop.zip(seen.left.get(&pod.name))
            && *left > stop
        {
            longest = Some(longest.unwrap_or_default().max(left - stop));
        }
    }
    Ok(longest)
}

/// The largest value of the span's events.
fn ready_after_stop(span: &Value) -> Option<f64> {
    let logs = span["logs"].as_array().into_iter().flatten();
    let fields = logs.flat_map(|log| log["fields"].as_array().into_iter().flatten());
    fields
        .filter(|field| field["key"] == "epitaph.endpoint.ready_after_stop")
        .filter_map(|field| field["value"].as_f64())
        .reduce(f64::max)
}

/// The endpoints of the pods on the node, until `over`.
fn watched(stage: &Stage, name: &str, over: &AtomicBool) -> anyhow::Result<Left> {
    let selector = format!("kubernetes.io/service-name={name}");
    let (mut ready, mut left): (BTreeMap<String, ()>, Left) = (BTreeMap::new(), Left::new());
    until(2 * SOON, "the shutdown to be over", || {
        let args = ["-n", NAMESPACE, "get", "endpointslices", "-l", &selector, "-o", "json"];
        let slices = stage.kubectl.json(&args)?;
        let at = wall_seconds();
        let endpoints = slices["items"].as_array().into_iter().flatten();
        let endpoints = endpoints.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let is_its = |endpoint: &&Value| endpoint["nodeName"] == node_name(NODE).as_str();
        let now: BTreeMap<String, ()> = endpoints
            .filter(is_its)
            .filter(|endpoint| endpoint["conditions"]["ready"] != false)
            .map(|endpoint| (text(&endpoint["targetRef"]["name"]), ()))
            .collect();
        for pod in ready.keys().filter(|pod| !now.contains_key(*pod)) {
            left.entry(pod.clone()).or_insert(at);
        }
        ready.extend(now);
        Ok(over.load(Ordering::Relaxed).then_some(()))
    })?;
    Ok(left)
}
