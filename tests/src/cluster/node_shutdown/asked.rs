//! What the API server, the node's agent and the doctor say before and during a shutdown.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::super::agent::{Agent, is_set, logind_is};
use super::super::deploy;
use super::super::play::{Stage, text, until};
use super::super::stories::NAMESPACE;
use super::{SOON, attribute, observers};
use crate::cluster::node::Node;

/// Where the story puts the agent's program on the node.
const DOCTOR: &str = "/root/epitaph";

#[derive(Clone, Debug)]
pub struct Pod {
    pub name: String,
    pub uid: String,
    pub node: String,
    pub restarts: u64,
    pub is_of_deployment: bool,
}

/// The node's condition `Ready`.
#[derive(Clone, Debug)]
pub struct NodeSight {
    pub status: String,
    pub reason: String,
    pub message: String,
    /// As the attribute has it.
    pub transition: String,
    pub boot: String,
}

impl NodeSight {
    pub fn is_shutting_down(&self) -> bool {
        self.status == "False" && self.message.contains("shutting down")
    }
}

pub fn node(stage: &Stage, name: &str) -> anyhow::Result<NodeSight> {
    let node = stage.kubectl.json(&["get", "node", name, "-o", "json"])?;
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions
        .find(|condition| condition["type"] == "Ready")
        .context("no Ready")?;
    Ok(NodeSight {
        status: text(&ready["status"]),
        reason: text(&ready["reason"]),
        message: text(&ready["message"]),
        transition: attribute(&ready["lastTransitionTime"]),
        boot: text(&node["status"]["nodeInfo"]["bootID"]),
    })
}

/// The story's pods that are ready, by name; pods that are over do not count. None while one of the others is not ready.
fn pods(stage: &Stage, story: &str) -> anyhow::Result<Option<BTreeMap<String, Pod>>> {
    let selector = format!("shutdown={story}");
    let list = stage
        .kubectl
        .json(&["-n", NAMESPACE, "get", "pods", "-l", &selector, "-o", "json"])?;
    let mut found = BTreeMap::new();
    for pod in list["items"].as_array().context("no items")? {
        let (metadata, status) = (&pod["metadata"], &pod["status"]);
        if is_over(pod) {
            continue;
        }
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        if !is_ready || !metadata["deletionTimestamp"].is_null() {
            return Ok(None);
        }
        let pod = Pod {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            node: text(&pod["spec"]["nodeName"]),
            restarts: status["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default(),
            is_of_deployment: !metadata["labels"]["replica-of"].is_null(),
        };
        found.insert(pod.name.clone(), pod);
    }
    Ok(Some(found))
}

/// All pods of the story, once that many of its Deployment are ready.
pub fn until_all_run(stage: &Stage, story: &str, replicas: usize) -> anyhow::Result<BTreeMap<String, Pod>> {
    until(SOON, &format!("{replicas} replicas of {story}"), || {
        Ok(pods(stage, story)?.filter(|pods| pods.values().filter(|pod| pod.is_of_deployment).count() == replicas))
    })
}

/// Pods are scheduled on the node: its kubelet has started again, and the API took the taint of a node that is not ready away.
pub fn until_schedulable(stage: &Stage, name: &str) -> anyhow::Result<()> {
    until(SOON, &format!("{name} takes pods"), || {
        let taints = stage.kubectl.json(&["get", "node", name, "-o", "json"])?["spec"]["taints"].take();
        Ok((taints.is_null() && node(stage, name)?.status == "True").then_some(()))
    })
}

/// By the API.
pub fn are_over(stage: &Stage, pods: &[&Pod]) -> anyhow::Result<bool> {
    for pod in pods {
        let args = ["-n", NAMESPACE, "get", "pod", &pod.name, "-o", "json"];
        if !is_over(&stage.kubectl.json(&args)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_over(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"]).as_str())
}

/// How many pods took the place of those that are gone, all on that node.
pub fn until_replaced(stage: &Stage, story: &str, node: &str, replicas: usize, gone: &[Pod]) -> anyhow::Result<usize> {
    let pods = until(SOON, &format!("replacements on {node}"), || {
        let pods = pods(stage, story)?;
        let is_there = |pods: &BTreeMap<String, Pod>| {
            let its = pods.values().filter(|pod| pod.is_of_deployment && pod.node == node);
            its.count() == replicas
        };
        Ok(pods.filter(is_there))
    })?;
    ensure!(
        gone.iter().all(|pod| !pods.contains_key(&pod.name)),
        "a pod of the node is still there: {pods:?}"
    );
    let was_gone = gone.iter().filter(|pod| pod.is_of_deployment).count();
    let stayed = replicas - was_gone;
    Ok(pods.values().filter(|pod| pod.is_of_deployment).count() - stayed)
}

/// The active observer runs on that node, so that the shutdown of the other is none of its own.
pub fn observer_on(stage: &Stage, node: &str) -> anyhow::Result<()> {
    let namespaced = |args: &[&str]| stage.kubectl.run(&[&["-n", deploy::NAMESPACE][..], args].concat());
    let holder = || -> anyhow::Result<(String, String)> {
        let path = "jsonpath={.spec.holderIdentity}";
        let identity = namespaced(&["get", "lease", "epitaph-observer", "-o", path])?;
        let (pod, _) = identity.split_once('_').context("no observer holds the Lease")?;
        let path = "jsonpath={.spec.nodeName}";
        Ok((pod.to_owned(), namespaced(&["get", "pod", pod, "-o", path])?))
    };
    until(SOON, &format!("the active observer is on {node}"), || {
        let (pod, on) = holder()?;
        if on == node {
            return Ok(Some(()));
        }
        // Released at its end: the other one takes over. If both are here, new ones are spread.
        namespaced(&["delete", "pod", &pod])?;
        namespaced(&["rollout", "status", &observers(), "--timeout=120s"])?;
        Ok(None)
    })
}

/// The agent of the node has this to say about its readiness for a shutdown.
pub fn until_agent_knows(stage: &Stage, node: &Node, expected: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut last = String::new();
    let known = until(SOON, "the agent knows logind and the kubelet", || {
        let metrics = Agent::of(stage, node)?.metrics()?;
        let of_shutdowns = ["epitaph_node_shutdown_ready", "epitaph_logind_state"];
        let lines = metrics
            .lines()
            .filter(|line| of_shutdowns.iter().any(|name| line.starts_with(name)));
        last = lines.collect::<Vec<_>>().join("\n");
        let is_ready = |(check, state): &(&str, &str)| {
            let labels = [format!("check=\"{check}\""), format!("state=\"{state}\"")];
            is_set(&last, "epitaph_node_shutdown_ready", &labels.each_ref().map(String::as_str))
        };
        Ok((logind_is(&last, "connected") && expected.iter().all(is_ready)).then_some(()))
    });
    known.with_context(|| format!("not {expected:?}: {last}"))
}

/// What the doctor reports, which a person runs on the node.
pub fn doctor(stage: &Stage, node: &Node) -> anyhow::Result<Value> {
    let program = stage.cluster.directory.join("images/stripped/epitaph");
    node.shell().put(&program, DOCTOR, 0o755)?;
    let answer = node.run(&format!("{DOCTOR} doctor --only shutdown --output json || true"))?;
    serde_json::from_str(answer.trim()).with_context(|| format!("read the doctor's answer {answer}"))
}

/// The command that the doctor gives for its problem with that check, which must name this file.
pub fn doctors_remedy(stage: &Stage, node: &Node, check: &str, file: &str) -> anyhow::Result<String> {
    // The kubelet refused its lock: it writes its drop-in at the start.
    let finding = until(SOON, &format!("a problem with {check}"), || {
        let report = doctor(stage, node)?;
        let mut findings = report["findings"].as_array().into_iter().flatten();
        let is_it = |finding: &&Value| finding["check"] == check && finding["status"] == "problem";
        let finding = findings.find(is_it);
        Ok(Some(
            finding.with_context(|| format!("no problem with {check}: {report}"))?.clone(),
        ))
    })?;
    ensure!(text(&finding["message"]).contains(file), "it does not name {file}: {finding}");
    Ok(text(&finding["remedy"]))
}
