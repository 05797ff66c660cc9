//! Requests that a graceful shutdown loses: the server closes its listener at its stop signal and finishes the requests in hand, and its
//! endpoint stays ready meanwhile. Clients are pods of the other node, and call the Service. The truth is the clients' own log, and a watch
//! of the Service's EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::super::clients::Clients;
use super::super::node_name;
use super::super::play::{Stage, text, until};
use super::super::stories::NAMESPACE;
use super::super::stories::manifest::{merge, victim};
use super::asked::Pod;
use super::{NODE, OTHER, Off, POWER_OFF, SOON, ask_to_power_off, power_on, shown, until_off};
use crate::cluster::node::Node;
use crate::sys::{locked, wall_seconds};
use crate::traces::tag;

/// A request takes longer than the kubelet and the controllers need at their quickest.
pub const SERVER: [&str; 5] = ["http", "close-and-drain", "[::]:8080", "--work-ms=4000", "--drain-ms=8000"];
/// Clients at once: one is always waiting for its answer.
const LOAD: [&str; 2] = ["--clients=8", "--pause-ms=100"];
/// Clocks of emulated machines, and the arrival of an update at observer and test.
const APART: f64 = 5.0;
/// Tolerated difference of the agent's count: this, or a twentieth of the clients' own.
const SLACK: u64 = 2;

pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"replica-of": name}, "ports": [{"port": 80, "targetPort": 8080}]},
    })
}

/// The shutdown under load; what the traces do not show, a line each.
pub fn play(stage: &Stage, name: &str, gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    let clients = Clients::of(stage, name);
    let played = under_load(stage, name, &clients, gone);
    clients.remove()?;
    for object in [format!("pod/{}", late(name)), format!("service/{name}")] {
        let args = [
            "-n",
            NAMESPACE,
            "delete",
            &object,
            "--ignore-not-found",
            "--wait=false",
            "--grace-period=1",
        ];
        stage.kubectl.run(&args)?;
    }
    played
}

fn under_load(stage: &Stage, name: &str, clients: &Clients<'_>, gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    let elsewhere = json!({"nodeSelector": {"kubernetes.io/hostname": node_name(OTHER)}});
    clients.call(name, &LOAD, elsewhere)?;
    let slices = Slices::watch(stage, name)?;
    until(SOON, "ready endpoints of the node", || Ok(slices.are_ready().then_some(())))?;

    let machine = stage.cluster.node(&node_name(NODE))?;
    let boot = ask_to_power_off(&machine, name, POWER_OFF)?;
    start_late(stage, &machine, name)?;
    let off = until_off(stage, name, boot)?;
    let totals = clients.end()?;
    power_on(stage, name)?;
    let unready = slices.end().context("no endpoint of the node stopped being ready")?;

    let lost = totals.lost();
    eprintln!(
        "{name}: the clients lost {lost} of {} requests; unready at {unready}",
        totals.ok + lost
    );
    ensure!(lost > 0 && totals.ok > 0, "nothing was lost, or nothing answered: {totals:?}");
    let mut problems = shown(stage, name, &off, (lost, unready), gone)?;
    problems.extend(shown_late(stage, name, &off)?);
    Ok(problems)
}

fn late(name: &str) -> String {
    format!("{name}-late")
}

/// Has the node of the shutdown start a pod as soon as logind has announced the shutdown. No scheduler is asked: the kubelet alone refuses it.
fn start_late(stage: &Stage, machine: &Node, name: &str) -> anyhow::Result<()> {
    machine.until(
        "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager PreparingForShutdown | \
         grep -q true",
        "logind's announcement",
    )?;
    let mut pod = victim(&late(name), 2, &["handle", "0"]);
    merge(
        &mut pod["spec"],
        json!({"nodeName": machine.name(), "restartPolicy": "Never"}),
    );
    stage.apply(&[pod])
}

/// That pod is among those that were started during the shutdown if it ran, and not if the kubelet refused it.
fn shown_late(stage: &Stage, name: &str, off: &Off) -> anyhow::Result<Vec<String>> {
    let late = late(name);
    let status = until(SOON, &format!("{late} has run or was refused"), || {
        let pod = stage.kubectl.json(&["-n", NAMESPACE, "get", "pod", &late, "-o", "json"])?;
        let is_over = ["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"]).as_str());
        Ok(is_over.then(|| pod["status"].clone()))
    })?;
    let ran = has_run(&status);
    let (spans, _) = shown::root(stage, off, "graceful")?;
    let is_root = |span: &&Value| text(&span["operationName"]).starts_with("node.shutdown");
    let root = spans.iter().find(is_root).context("no root")?;
    let started = text(&tag(root, "epitaph.shutdown.pods_started"));
    eprintln!(
        "{late}: {}, {} {}; pods started during the shutdown: {started:?}",
        if ran { "ran" } else { "was refused" },
        status["reason"],
        status["message"]
    );
    let is_shown = started.contains(&format!("{NAMESPACE}/{late}"));
    Ok(match is_shown == ran {
        true => Vec::new(),
        false => vec![format!(
            "{late} {}, and pods_started is {started:?}; its status: {status}",
            if ran { "ran" } else { "did not run" }
        )],
    })
}

/// A container of the pod was started, whatever came of it.
fn has_run(status: &Value) -> bool {
    let containers = status["containerStatuses"].as_array().into_iter().flatten();
    let states = containers.flat_map(|of| [&of["state"], &of["lastState"]]);
    let mut begun = states.flat_map(|state| [&state["running"], &state["terminated"]]);
    begun.any(|state| !state["startedAt"].is_null())
}

fn shown(stage: &Stage, name: &str, off: &Off, (lost, unready): (u64, f64), gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    let (spans, mut problems) = shown::root(stage, off, "graceful")?;
    let of = |kind: &str| {
        let is_it = |span: &&Value| span["operationName"].as_str().is_some_and(|name| name.starts_with(kind));
        spans.iter().find(is_it)
    };
    let root = of("node.shutdown").context("no root")?;
    let sentence = text(&tag(root, "epitaph.sentence"));
    let counted = tag(root, "epitaph.shutdown.clients.lost").as_u64().unwrap_or(0);
    let is_least = tag(root, "epitaph.shutdown.clients.at_least") == true;
    let slack = SLACK.max(lost / 20);
    if counted > lost + slack || !is_least && counted + slack < lost {
        problems.push(format!("the clients lost {lost}, and {counted} are reported: {sentence}"));
    }
    // How long a pod was Ready is in the sentence only if a status of the pod still arrived at the agent of the node; the span
    // `endpoints.ready` of the observer has it always.
    for words in ["clients lost", &format!("Deployment {NAMESPACE}/{name}")] {
        if !sentence.contains(words) {
            problems.push(format!("not in the sentence: {words}: {sentence}"));
        }
    }
    if tag(root, "epitaph.severity") != "warning" {
        problems.push(format!("severity {}", tag(root, "epitaph.severity")));
    }
    let Some(ready) = of("endpoints.ready").filter(|span| tag(span, "k8s.service.name") == name) else {
        problems.push("no endpoints.ready of the Service".to_owned());
        return Ok(problems);
    };
    let of_node = gone.iter().filter(|pod| pod.is_of_deployment).count() as u64;
    if tag(ready, "epitaph.endpoints.ready") != of_node {
        problems.push(format!("{} endpoints, not {of_node}", tag(ready, "epitaph.endpoints.ready")));
    }
    let micros = |key: &str| ready[key].as_f64().unwrap_or_default();
    let end = (micros("startTime") + micros("duration")) / 1e6;
    if (end - unready).abs() > APART {
        problems.push(format!(
            "endpoints were ready until {end}, and by the test's own watch until {unready}"
        ));
    }
    Ok(problems)
}

/// When an update of a slice came, since the epoch, the slice, and the addresses of the node in it that were ready then.
type Update = (f64, String, BTreeSet<String>);

/// A watch of the Service's EndpointSlices.
struct Slices {
    kubectl: Child,
    reader: JoinHandle<()>,
    seen: Arc<Mutex<Vec<Update>>>,
}

impl Slices {
    fn watch(stage: &Stage, service: &str) -> anyhow::Result<Slices> {
        let selector = format!("kubernetes.io/service-name={service}");
        let args = [
            "-n",
            NAMESPACE,
            "get",
            "endpointslices",
            "-l",
            &selector,
            "--watch",
            "-o",
            "json",
        ];
        let mut command = stage.kubectl.command();
        let mut kubectl = command.args(args).stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
        let output = kubectl.stdout.take().context("no output")?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        let reader = spawn(move || {
            for slice in serde_json::Deserializer::from_reader(output).into_iter::<Value>() {
                let Ok(slice) = slice else { break };
                let ready = ready_on(&slice, &node_name(NODE));
                let name = text(&slice["metadata"]["name"]);
                locked(&kept).push((wall_seconds(), name, ready));
            }
        });
        Ok(Slices { kubectl, reader, seen })
    }

    fn are_ready(&self) -> bool {
        let seen = locked(&self.seen);
        seen.iter().any(|(_, _, ready)| !ready.is_empty())
    }

    /// When the last endpoint of the node stopped being ready for the first time; None: one was ready all the time.
    fn end(mut self) -> Option<f64> {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
        let _ = self.reader.join();
        let seen = locked(&self.seen);
        let mut ready: BTreeMap<&str, usize> = BTreeMap::new();
        let mut was_ready = false;
        for (at, slice, addresses) in seen.iter() {
            ready.insert(slice, addresses.len());
            let count: usize = ready.values().sum();
            if was_ready && count == 0 {
                return Some(*at);
            }
            was_ready |= count > 0;
        }
        None
    }
}

/// Without the condition an endpoint is ready.
fn ready_on(slice: &Value, node: &str) -> BTreeSet<String> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let is_ready = |of: &&Value| of["nodeName"] == node && of["conditions"]["ready"] != false;
    endpoints.filter(is_ready).map(|of| text(&of["addresses"][0])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_was_refused_has_not_run() {
        let refused = json!({"phase": "Failed", "reason": "NodeShutdown", "message": "Pod was rejected"});
        assert!(!has_run(&refused));
        let waiting = json!({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}}]});
        assert!(!has_run(&waiting));
        let ended =
            json!({"containerStatuses": [{"state": {"terminated": {"exitCode": 0, "startedAt": "2026-11-30T04:00:00Z"}}}]});
        assert!(has_run(&ended));
    }

    #[test]
    fn endpoints_of_the_node_that_are_ready() {
        let endpoint = |node: &str, address: &str, conditions: Value| json!({"nodeName": node, "addresses": [address], "conditions": conditions});
        let slice = json!({"endpoints": [
            endpoint("a", "10.0.0.1", json!({"ready": true})),
            endpoint("a", "10.0.0.2", json!({"ready": false, "serving": true})),
            endpoint("a", "10.0.0.3", json!({})),
            endpoint("b", "10.0.0.4", json!({"ready": true})),
        ]});
        let found: Vec<String> = ready_on(&slice, "a").into_iter().collect();
        assert_eq!(found, ["10.0.0.1", "10.0.0.3"]);
    }
}
