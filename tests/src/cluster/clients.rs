//! Clients in a pod of the cluster, which call a Service until they are ended, and their own log: the truth about lost connections.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::play::Stage;
use super::stories::NAMESPACE;
use super::stories::manifest::{container, merge, pod};
use crate::victim::load::Totals;

/// A pod of clients.
pub(super) struct Clients<'a> {
    stage: &'a Stage,
    name: String,
}

impl<'a> Clients<'a> {
    /// The pod of the clients that call this Service.
    pub(super) fn of(stage: &'a Stage, service: &str) -> Clients<'a> {
        Clients {
            stage,
            name: format!("{service}-clients"),
        }
    }

    /// Has them call `service`, with more fields of the pod's spec; returns when the pod is ready.
    pub(super) fn call(&self, service: &str, options: &[&str], more: Value) -> anyhow::Result<()> {
        let address = self.here(&["get", "service", service, "-o", "jsonpath={.spec.clusterIP}"])? + ":80";
        let load = [&["load", address.as_str()][..], options].concat();
        let mut clients = pod(
            &self.name,
            json!({"restartPolicy": "Never", "containers": [container("app", &load)]}),
        );
        merge(&mut clients["spec"], more);
        self.stage.apply(&[clients])?;
        self.here(&["wait", "--for=condition=Ready", &self.pod(), "--timeout=600s"])
            .map(drop)
    }

    /// Ends them: what all of them saw.
    pub(super) fn end(&self) -> anyhow::Result<Totals> {
        self.here(&["exec", &self.name, "--", "sh", "-c", "kill -TERM 1"])?;
        self.here(&[
            "wait",
            "--for=jsonpath={.status.phase}=Succeeded",
            &self.pod(),
            "--timeout=600s",
        ])?;
        let log = self.here(&["logs", &self.name])?;
        let log = log
            .lines()
            .rfind(|line| line.starts_with('{'))
            .context("the clients logged nothing")?;
        serde_json::from_str(log).with_context(|| format!("read the clients' log {log}"))
    }

    pub(super) fn remove(&self) -> anyhow::Result<()> {
        let how = ["--ignore-not-found", "--wait=false", "--grace-period=1"];
        self.here(&[&["delete", &self.pod()][..], &how].concat()).map(drop)
    }

    fn pod(&self) -> String {
        format!("pod/{}", self.name)
    }

    fn here(&self, args: &[&str]) -> anyhow::Result<String> {
        self.stage.kubectl.run(&[&["-n", NAMESPACE], args].concat())
    }
}
