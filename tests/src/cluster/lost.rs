//! A node that dies on a real cluster, and comes back: paused and resumed, or switched off and on. A StatefulSet moves to the other node
//! once its node has the taint `out-of-service`.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::play::Stage;
use super::stories::NAMESPACE;
use super::stories::manifest::{merge, victim};
use super::{Cluster, node_name};

/// The controller's grace period, the garbage collection's interval, and an emulated machine that boots.
const SOON: Duration = Duration::from_secs(300);
const STEP: Duration = Duration::from_secs(1);
const TAINT: &str = "node.kubernetes.io/out-of-service";

/// How the node dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// And is resumed: the same boot.
    Paused,
    /// And is switched on: another boot.
    SwitchedOff,
}

/// The cluster has a second node, which can be lost.
pub fn is_possible() -> bool {
    Cluster::named().and_then(|cluster| cluster.node(&node_name(2))).is_ok()
}

/// What the traces do not show, a line each.
///
/// # Errors
/// The story could not be played.
pub fn play(stage: &Stage, death: Death) -> anyhow::Result<Vec<String>> {
    let name = match death {
        Death::Paused => "lost-paused",
        Death::SwitchedOff => "lost-switched-off",
    };
    let lost = node_name(2);
    stage.kubectl.apply(&stateful_set(name, &lost).to_string())?;
    let played = play_here(stage, death, (name, &lost));
    // Whatever happened, the node is whole for the next story.
    let mut node = stage.cluster.node(&lost)?;
    let restored = match death {
        Death::Paused => node.resume(),
        Death::SwitchedOff if !node.runs() => node.power_on().and_then(|()| node.until_up(None)),
        Death::SwitchedOff => Ok(()),
    };
    let _ = stage.kubectl.run(&["taint", "nodes", &lost, &format!("{TAINT}-")]);
    let removed = stage.kubectl.run(&["-n", NAMESPACE, "delete", "statefulset", name]);
    let found = played?;
    restored?;
    removed?;
    Ok(found)
}

fn play_here(stage: &Stage, death: Death, (name, lost): (&str, &str)) -> anyhow::Result<Vec<String>> {
    let pod = format!("{name}-0");
    let old = until("the pod runs", || running(stage, &pod, None))?;
    let mut node = stage.cluster.node(lost)?;
    match death {
        Death::Paused => node.pause()?,
        Death::SwitchedOff => node.power_off()?,
    }
    until("the pod hangs", || {
        let events = stage
            .kubectl
            .json(&["-n", NAMESPACE, "get", "events.events.k8s.io", "-o", "json"])?;
        let mut events = events["items"].as_array().into_iter().flatten();
        let is_ours = |event: &Value| event["reason"] == "PodStuckOnLostNode" && event["regarding"]["name"] == name;
        Ok(events.any(is_ours).then_some(()))
    })?;
    let transition = transition(stage, lost)?;
    stage
        .kubectl
        .run(&["taint", "nodes", lost, &format!("{TAINT}=nodeshutdown:NoExecute")])?;
    until("the replacement runs", || running(stage, &pod, Some(&old)))?;
    match death {
        Death::Paused => node.resume()?,
        Death::SwitchedOff => node.power_on().and_then(|()| node.until_up(None))?,
    }
    until("the node is ready", || {
        let node = stage.kubectl.json(&["get", "node", lost, "-o", "json"])?;
        Ok((ready(&node)?["status"] == "True").then_some(()))
    })?;
    stage.kubectl.run(&["taint", "nodes", lost, &format!("{TAINT}-")])?;

    let mut problems = Vec::new();
    let mut expected = vec!["pod.lost fenced-by-taint", "stuck", "replacement"];
    if death == Death::Paused {
        expected.push("duplicate.run");
    }
    let spans = shown(stage, "k8s.pod.uid", &old, "pod.lost")?;
    problems.extend(missing(&spans, &expected).map(|name| format!("the pod's trace has no span {name}: {spans:?}")));
    let spans = shown(stage, "epitaph.node.transition", &transition, "node.lost")?;
    let expected = ["node.lost fenced-by-taint", "node.down", "node.out_of_service"];
    problems.extend(missing(&spans, &expected).map(|name| format!("the node's trace has no span {name}: {spans:?}")));
    Ok(problems)
}

/// One replica, on that node while it is ready, and evicted 5 s after the loss.
fn stateful_set(name: &str, node: &str) -> Value {
    let mut pod = victim(name, 2, &["idle"]);
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
    let prefers = json!({"weight": 100, "preference": {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}],
    }});
    merge(
        &mut pod["spec"],
        json!({
            "tolerations": [toleration("node.kubernetes.io/unreachable"), toleration("node.kubernetes.io/not-ready")],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefers]}},
        }),
    );
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1, "serviceName": name, "selector": {"matchLabels": {"story": name}},
            "template": {"metadata": {"labels": {"story": name}}, "spec": pod["spec"]},
        },
    })
}

/// UID of the pod, once it is ready and not `old`.
fn running(stage: &Stage, pod: &str, old: Option<&str>) -> anyhow::Result<Option<String>> {
    let pod = stage.kubectl.json(&["-n", NAMESPACE, "get", "pod", pod, "-o", "json"])?;
    let uid = pod["metadata"]["uid"].as_str().context("no UID")?;
    Ok((ready(&pod)?["status"] == "True" && old != Some(uid)).then(|| uid.to_owned()))
}

/// As the attribute has it.
fn transition(stage: &Stage, node: &str) -> anyhow::Result<String> {
    let node = stage.kubectl.json(&["get", "node", node, "-o", "json"])?;
    let time = ready(&node)?["lastTransitionTime"].as_str().context("no time")?;
    Ok(time.replace('Z', ".000000000Z"))
}

fn ready(object: &Value) -> anyhow::Result<&Value> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == "Ready")
        .context("no condition Ready")
}

/// Names of all spans of the trace with that attribute, once it has a root of that kind and nothing is added for a while.
fn shown(stage: &Stage, key: &str, value: &str, root: &str) -> anyhow::Result<Vec<String>> {
    let mut last = Vec::new();
    until(&format!("a trace with {root} and {key}={value}"), || {
        let traces = stage.jaeger.traces_with(key, value)?;
        let names = |trace: &Value| -> Vec<String> {
            let spans = trace["spans"].as_array().into_iter().flatten();
            spans
                .filter_map(|span| Some(span["operationName"].as_str()?.to_owned()))
                .collect()
        };
        let mut found: Vec<Vec<String>> = traces.iter().map(names).collect();
        found.retain(|names| names.iter().any(|name| name.starts_with(root)));
        let Some(names) = found.pop() else { return Ok(None) };
        let is_settled = names == last;
        last = names;
        sleep(Duration::from_secs(10));
        Ok(is_settled.then(|| last.clone()))
    })
}

fn missing<'a>(spans: &[String], expected: &'a [&str]) -> impl Iterator<Item = &'a str> {
    expected.iter().copied().filter(|name| !spans.iter().any(|span| span == name))
}

fn until<T>(what: &str, mut found: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let mut waited = Duration::ZERO;
    let mut last = None;
    while waited < SOON {
        match found() {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            // The API server, or an object that is not there yet.
            Err(error) => last = Some(error),
        }
        sleep(STEP);
        waited += STEP;
    }
    bail!("not so after {SOON:?}: {what}; {last:?}")
}
