//! What one agent asks of a real kube-apiserver, per termination: counted by the API server, so that it cannot grow unnoticed.

mod agent;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph::sink::kubernetes_events::Outcome;
use epitaph::source::pods::{Access, PodsDropReason};
use epitaph_core::report::Report;
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::deploy::as_agent;
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::skip::skip;
use epitaph_tests::timeout::{holds, until};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use agent::{Agent, GRACE};

const NODE: &str = "node-1";
/// Far more than any of it takes.
const TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agents_requests_per_termination() -> anyhow::Result<()> {
    let Some(tools) = Tools::named()? else {
        skip(
            "an_agents_requests_per_termination",
            "EPITAPH_CLUSTER_TOOLS names no kube-apiserver; `cargo xtask test` builds one",
        );
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let plane = ControlPlane::api_only(&tools, directory.path())?;
    let kubectl = plane.kubectl();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    kubectl.apply(&namespace.to_string())?;
    let access = Access::Kubeconfig(as_agent(&plane)?);
    let mut shop = Shop {
        kubectl,
        owners: BTreeMap::new(),
        pods: BTreeMap::new(),
        reports: None,
        before: BTreeMap::new(),
    };
    // Four pods of two ReplicaSets.
    for (name, image) in [
        ("first-a", "clean"),
        ("first-b", "clean"),
        ("second-a", "handled"),
        ("second-b", "handled"),
    ] {
        shop.pod(name, image, &json!({}))?;
    }
    shop.count_from_here()?;
    let (reports, received) = mpsc::unbounded_channel();
    let (agent, counts) = Agent::start(NODE, &access, reports).await?;
    let agent = tokio::spawn(agent.run());
    shop.reports = Some(received);
    for _ in 0..2 {
        shop.report(|report| matches!(report, Report::Workload(_))).await?;
    }
    shop.counted(
        "start: 4 pods of 2 ReplicaSets",
        &["1 GET namespaces", "2 GET replicasets", "1 LIST pods"],
    )?;

    for name in ["first-a", "first-b", "second-a", "second-b"] {
        shop.deletes(name, if name.starts_with("second") { 143 } else { 0 }).await?;
    }
    shop.counted("4 deletions, exit codes 0 and 143", &["4 POST epitaphs"])?;

    let sleep = json!({"preStop": {"sleep": {"seconds": 1}}});
    shop.pod("sleeper-a", "clean", &sleep)?;
    shop.deletes("sleeper-a", 0).await?;
    shop.counted("1 deletion, preStop sleep", &["1 GET replicasets", "1 POST epitaphs"])?;

    let http = json!({"preStop": {"httpGet": {"port": 8080, "path": "/drain"}}});
    shop.pod("drainer-a", "clean", &http)?;
    shop.deletes("drainer-a", 0).await?;
    shop.counted(
        "1 deletion, preStop httpGet",
        &["1 GET replicasets", "1 LIST events", "1 POST epitaphs"],
    )?;

    shop.pod("stubborn-a", "ignored", &json!({}))?;
    shop.deletes("stubborn-a", 137).await?;
    shop.counted(
        "1 deletion, stop signal ignored: the first of its workload",
        &["1 GET replicasets", "1 POST epitaphs", "4 POST events"],
    )?;
    shop.pod("stubborn-b", "ignored", &json!({}))?;
    shop.deletes("stubborn-b", 137).await?;
    shop.counted(
        "1 deletion, stop signal ignored: the second",
        &["2 PATCH events", "1 POST epitaphs", "2 POST events"],
    )?;

    shop.pod("crasher-a", "crash", &json!({}))?;
    shop.restarts("crasher-a", 3).await?;
    shop.counted("1 crash", &["1 GET replicasets", "1 POST epitaphs", "2 POST events"])?;
    shop.pod("restarter-a", "restarted", &json!({}))?;
    shop.restarts("restarter-a", 0).await?;
    shop.counted(
        "1 restart by the kubelet",
        &["1 GET replicasets", "1 LIST events", "1 POST epitaphs"],
    )?;

    // What the API server has counted, the agent counts a moment later.
    until("ten Epitaphs", || {
        Ok(holds(counts.written() == 10, || counts.written().to_string()))
    })?;
    drop(shop.reports.take());
    agent.await?;
    assert_eq!((counts.posted(Outcome::Posted), counts.requested("events")), (10, 2));
    for reason in PodsDropReason::ALL {
        assert_eq!(counts.requests.dropped(reason), 0, "{}", reason.name());
    }
    Ok(())
}

/// A namespace whose pods have no kubelet but this one.
struct Shop {
    kubectl: Kubectl,
    /// UIDs of the ReplicaSets.
    owners: BTreeMap<String, String>,
    /// The images and UIDs of the pods.
    pods: BTreeMap<String, (String, String)>,
    reports: Option<mpsc::UnboundedReceiver<Report>>,
    before: BTreeMap<String, u64>,
}

impl Shop {
    /// A running pod `WORKLOAD-LETTER` of the ReplicaSet `WORKLOAD`.
    fn pod(&mut self, name: &str, image: &str, lifecycle: &Value) -> anyhow::Result<()> {
        let workload = name.split_once('-').map_or(name, |(workload, _)| workload);
        if !self.owners.contains_key(workload) {
            let template =
                json!({"metadata": {"labels": {"app": workload}}, "spec": {"containers": [{"name": "app", "image": image}]}});
            let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": workload}}, "template": template});
            self.apply(&json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": spec,
                "metadata": {"name": workload, "namespace": "shop"}}))?;
            self.owners.insert(workload.to_owned(), self.uid("replicaset", workload)?);
        }
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "uid": self.owners[workload], "controller": true});
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": workload}, "ownerReferences": [owner]},
            "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": GRACE.as_secs(), "containers": [
                {"name": "app", "image": image, "lifecycle": lifecycle},
            ]},
        }))?;
        self.pods.insert(name.to_owned(), (image.to_owned(), self.uid("pod", name)?));
        self.status(name, 0, json!({"running": {}}), &json!({}), "Running")
    }

    /// A deletion as the kubelet carries it out.
    async fn deletes(&mut self, name: &str, code: u8) -> anyhow::Result<()> {
        self.kubectl.run(&["-n", "shop", "delete", "pod", name, "--wait=false"])?;
        // The subject is time: longer than any hook and grace period here.
        tokio::time::sleep(GRACE + Duration::from_secs(1)).await;
        self.killing(name, "Stopping container app")?;
        let ended = self.terminated(name, 0, code);
        self.status(name, 0, ended, &json!({}), "Running")?;
        // The subject is time: as the kubelet does.
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.kubectl.run(&[
            "-n",
            "shop",
            "delete",
            "pod",
            name,
            "--grace-period=0",
            "--force",
            "--wait=false",
        ])?;
        self.report(|report| matches!(report, Report::PodTerminated(_)))
            .await
            .map(drop)
    }

    async fn restarts(&mut self, name: &str, code: u8) -> anyhow::Result<()> {
        self.killing(name, "Container app failed liveness probe, will be restarted")?;
        let last = self.terminated(name, 0, code);
        self.status(name, 1, json!({"running": {}}), &last, "Running")?;
        self.report(|report| matches!(report, Report::Terminated(_))).await.map(drop)
    }

    fn killing(&self, name: &str, message: &str) -> anyhow::Result<()> {
        let (_, uid) = &self.pods[name];
        let about = json!({"kind": "Pod", "namespace": "shop", "name": name, "uid": uid, "fieldPath": "spec.containers{app}"});
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}.killing"), "namespace": "shop"},
            "involvedObject": about, "reason": "Killing", "message": message, "type": "Normal", "source": {"component": "kubelet"},
        }))
    }

    fn terminated(&self, name: &str, life: u32, code: u8) -> Value {
        let id = self.id(name, life);
        json!({"terminated": {"exitCode": code, "reason": "Error", "containerID": id, "startedAt": null, "finishedAt": null}})
    }

    fn status(&self, name: &str, life: u32, state: Value, last: &Value, phase: &str) -> anyhow::Result<()> {
        let patch = json!({"status": {"phase": phase, "containerStatuses": [{
            "name": "app", "image": "x", "imageID": "x", "ready": false, "restartCount": life, "containerID": self.id(name, life),
            "state": state, "lastState": last,
        }]}});
        let args = [
            "-n",
            "shop",
            "patch",
            "pod",
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
        ];
        self.kubectl.run(&[&args[..], &[&patch.to_string()]].concat()).map(drop)
    }

    /// A container's id, another for each life.
    fn id(&self, name: &str, life: u32) -> String {
        let (_, uid) = &self.pods[name];
        let hex = uid.replace('-', "");
        format!("containerd://{life:x}{}{hex}", &hex[..31])
    }

    fn apply(&self, object: &Value) -> anyhow::Result<()> {
        self.kubectl.apply(&object.to_string())
    }

    fn uid(&self, kind: &str, name: &str) -> anyhow::Result<String> {
        // A list: the agent alone gets objects by their names.
        let of_name = format!("--field-selector=metadata.name={name}");
        let list = self.kubectl.json(&["-n", "shop", "get", kind, &of_name, "-o", "json"])?;
        Ok(list["items"][0]["metadata"]["uid"].as_str().context("no uid")?.to_owned())
    }

    async fn report(&mut self, is: impl Fn(&Report) -> bool) -> anyhow::Result<Report> {
        let reports = self.reports.as_mut().context("no agent runs")?;
        let wait = async {
            loop {
                let report = reports.recv().await.context("the agent ended")?;
                if is(&report) {
                    return anyhow::Ok(report);
                }
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.context("no report in time")?
    }

    fn count_from_here(&mut self) -> anyhow::Result<()> {
        self.before = agents_requests(&self.kubectl.run(&["get", "--raw", "/metrics"])?)?;
        Ok(())
    }

    /// Waits until the API server has counted these requests since the last call, and nothing else. What comes too late is one too many
    /// for the next call.
    fn counted(&mut self, what: &str, expected: &[&str]) -> anyhow::Result<()> {
        let mut now = BTreeMap::new();
        until(what, || {
            now = agents_requests(&self.kubectl.run(&["get", "--raw", "/metrics"])?)?;
            let new = now.iter().filter_map(|(request, count)| {
                let count = count - self.before.get(request).copied().unwrap_or_default();
                (count > 0).then(|| format!("{count} {request}"))
            });
            let new: Vec<String> = new.collect();
            Ok(holds(new == expected, || format!("{new:?}, not {expected:?}")))
        })?;
        self.before = now;
        Ok(())
    }
}

/// The requests that only agents send, by the API server's own count. Watches that begin again after minutes are left out.
fn agents_requests(metrics: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\""))?;
            Some(rest.split_once('"')?.0)
        };
        let (group, verb) = (label("group").unwrap_or_default(), label("verb").unwrap_or_default());
        let (resource, scope) = (label("resource").unwrap_or_default(), label("scope").unwrap_or_default());
        let is_agents = match (group, resource, verb) {
            ("", "events", "LIST") | ("events.k8s.io", "events", _) | ("epitaph.dev", "epitaphs", _) => true,
            ("apps", "replicasets", "GET") | ("", "namespaces", "GET") => true,
            ("", "pods", "LIST" | "WATCH") => scope == "cluster",
            _ => false,
        };
        if !is_agents {
            continue;
        }
        let count = line.rsplit_once(' ').context("no number")?.1.parse::<f64>()?;
        ensure!(count >= 0.0 && count.fract() == 0.0, "{line}");
        let code = label("code").unwrap_or_default();
        let code = if code.starts_with('2') {
            String::new()
        } else {
            format!(" {code}")
        };
        *found.entry(format!("{verb} {resource}{code}")).or_default() += count as u64;
    }
    Ok(found)
}
