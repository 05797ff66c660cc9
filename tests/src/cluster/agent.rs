//! The agent of a node: its pod, its metrics, what its containers log, and what confines them.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::Value;

use super::deploy::NAMESPACE;
use super::play::{Stage, text};
use crate::cluster::node::Node;

/// An agent's pod, as the API has it.
pub struct Agent<'a> {
    stage: &'a Stage,
    node: &'a Node,
    pod: Value,
}

impl<'a> Agent<'a> {
    /// The one that runs on `node`, ready or not.
    ///
    /// # Errors
    /// None does.
    pub fn of(stage: &'a Stage, node: &'a Node) -> anyhow::Result<Agent<'a>> {
        let field = format!("spec.nodeName={},status.phase=Running", node.name());
        let selector = "app.kubernetes.io/component=agent";
        let pods = stage.kubectl.json(&[
            "-n",
            NAMESPACE,
            "get",
            "pods",
            "-l",
            selector,
            "--field-selector",
            &field,
            "-o",
            "json",
        ])?;
        let mut pods = pods["items"].as_array().into_iter().flatten();
        // Beside its successor a pod that is being replaced still runs.
        let pod = pods.rfind(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let pod = pod.with_context(|| format!("no agent runs on {}", node.name()))?.clone();
        Ok(Agent { stage, node, pod })
    }

    fn name(&self) -> String {
        text(&self.pod["metadata"]["name"])
    }

    /// As the node reaches it.
    fn answer(&self, path: &str) -> anyhow::Result<String> {
        let address = text(&self.pod["status"]["podIP"]);
        self.node.run(&format!("busybox wget -q -O - http://{address}:{path}"))
    }

    /// # Errors
    /// The agent does not answer.
    pub fn metrics(&self) -> anyhow::Result<String> {
        self.answer("9464/metrics")
    }

    /// # Errors
    /// The agent does not answer, or is not ready.
    pub fn is_ready(&self) -> anyhow::Result<()> {
        self.answer("9465/readyz").map(drop)
    }

    /// What a container of the pod has logged since its start.
    ///
    /// # Errors
    /// The API server does not answer.
    pub fn log(&self, container: &str) -> anyhow::Result<String> {
        self.stage
            .kubectl
            .run(&["-n", NAMESPACE, "logs", &self.name(), "-c", container])
    }

    /// The AppArmor profile of each container's first process, as the kernel names it: `unconfined`, `PROFILE (enforce)`.
    ///
    /// # Errors
    /// A container does not run, or the node has no AppArmor in force.
    pub fn profiles(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let statuses = self.pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        statuses
            .map(|status| {
                let name = text(&status["name"]);
                let id = text(&status["containerID"]);
                let id = id.strip_prefix("containerd://").with_context(|| format!("{name} does not run"))?;
                let profile = self.node.run(&format!(
                    "pid=$(ctr --namespace k8s.io tasks ls | awk '$1 == \"{id}\" {{print $2}}') && cat /proc/$pid/attr/apparmor/current"
                ))?;
                Ok((name, profile.trim_matches(['\0', '\n']).to_owned()))
            })
            .collect()
    }
}

/// Whether a gauge is 1 in the text of /metrics, with all of `labels` (`state="connected"`).
pub fn is_set(metrics: &str, name: &str, labels: &[&str]) -> bool {
    let is_it = |line: &str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('{'))
            && labels.iter().all(|label| line.contains(label))
            && line.ends_with(" 1")
    };
    metrics.lines().any(is_it)
}

/// Whether the source of node shutdowns is in that state.
pub fn logind_is(metrics: &str, state: &str) -> bool {
    is_set(metrics, "epitaph_logind_state", &[&format!("state=\"{state}\"")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_set_where_its_own_series_is_1() {
        let metrics = "# HELP epitaph_logind_state x\nepitaph_logind_state{state=\"off\"} 0\nepitaph_logind_state{state=\"connected\"} 1\n\
                       epitaph_logind_state_more{state=\"off\"} 1\n";
        assert!(logind_is(metrics, "connected"));
        assert!(!logind_is(metrics, "off"));
        assert!(!logind_is(metrics, "unavailable"));
    }
}
