//! A fleet: nodes and pods that kwok plays, and the agents of the nodes.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use epitaph::source::pods::{Access, connect};
use epitaph_core::report::Report;
use epitaph_tests::cluster::process::Process;
use kube::Client;
use kube::api::DeleteParams;
use kube::core::Request;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::agent::{Agent, Counts};
use crate::kwok::{self, post, post_all};

pub const NAMESPACE: &str = "shop";
const STAGES: &str = include_str!("stages.yaml");
pub const GRACE: u64 = 2;

/// How pods of a fleet end, in a hundred: see `docs/kubernetes.md`.
pub const MIX: [(u32, &str, &str, u8); 5] = [
    (70, "clean", "", 0),
    (15, "handled", "", 143),
    (8, "clean", r#"{"preStop": {"sleep": {"seconds": 1}}}"#, 0),
    (2, "clean", r#"{"preStop": {"httpGet": {"port": 8080, "path": "/drain"}}}"#, 0),
    (5, "ignored", "", 137),
];

pub struct Fleet {
    client: Client,
    nodes: usize,
    /// Names of the running pods, the oldest first, with their nodes.
    pods: VecDeque<(String, usize)>,
    made: u32,
    owner: String,
    kwok: Process,
}

impl Fleet {
    /// Nodes and a namespace with so many old Events.
    pub async fn start(kwok: &Path, directory: &Path, admin: &Path, nodes: usize, events: usize) -> anyhow::Result<Fleet> {
        let client = connect(&Access::Kubeconfig(admin.to_owned())).await?;
        post(&client, "/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}})).await?;
        let template =
            json!({"metadata": {"labels": {"app": "cart"}}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
        let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "cart"}}, "template": template});
        let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/replicasets");
        let set = post(&client, &path, &json!({"metadata": {"name": "cart"}, "spec": spec})).await?;
        let owner = set["metadata"]["uid"]
            .as_str()
            .context("a ReplicaSet without a UID")?
            .to_owned();
        let of_nodes = (0..nodes).map(|node| ("/api/v1/nodes".to_owned(), json!({"metadata": {"name": name(node)}})));
        post_all(&client, of_nodes).await?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/events");
        let old = (0..events).map(|n| {
            let about = json!({"kind": "Pod", "namespace": NAMESPACE, "name": format!("old-{n}"), "uid": format!("old-{n}")});
            let event = json!({"metadata": {"name": format!("old-{n}")}, "involvedObject": about, "reason": "Pulled", "type": "Normal",
                "message": "Container image \"registry.example/shop/cart:1.4.2\" already present on machine", "source": {"component": "kubelet"}});
            (path.clone(), event)
        });
        post_all(&client, old).await?;
        let stages = directory.join("stages.yaml");
        std::fs::write(&stages, STAGES)?;
        let kwok = kwok::start(
            kwok,
            "kwok",
            directory,
            admin,
            &stages,
            &["--manage-all-nodes=true", "--node-lease-duration-seconds=0"],
        )?;
        Ok(Fleet {
            client,
            nodes,
            pods: VecDeque::new(),
            made: 0,
            owner,
            kwok,
        })
    }

    /// Creates so many pods, on one node after the other.
    pub async fn create(&mut self, count: usize) -> anyhow::Result<()> {
        let mut new = Vec::new();
        for _ in 0..count {
            let node = self.made as usize % self.nodes;
            new.push((format!("/api/v1/namespaces/{NAMESPACE}/pods"), self.pod(node)));
        }
        post_all(&self.client, new.into_iter()).await
    }

    /// Deletes the oldest pods, and creates as many.
    pub async fn replace(&mut self, count: usize) -> anyhow::Result<()> {
        let old: Vec<String> = self.pods.drain(..count.min(self.pods.len())).map(|(name, _)| name).collect();
        let mut deletions = JoinSet::new();
        for name in old {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
            let request = Request::new(path).delete(&name, &DeleteParams::default())?;
            let client = self.client.clone();
            deletions.spawn(async move { client.request_text(request).await.map(drop) });
        }
        while let Some(done) = deletions.join_next().await {
            done??;
        }
        self.create(count).await
    }

    fn pod(&mut self, node: usize) -> Value {
        self.made += 1;
        // Every hundred pods have the mix, each kind spread over the hundred.
        let mut place = self.made * 37 % 100;
        let kind = MIX.iter().find(|(share, ..)| {
            let is_this = place < *share;
            place = place.saturating_sub(*share);
            is_this
        });
        let (_, image, lifecycle, code) = kind.copied().unwrap_or(MIX[0]);
        let name_of_pod = format!("cart-{}", self.made);
        self.pods.push_back((name_of_pod.clone(), node));
        let lifecycle: Value = serde_json::from_str(lifecycle).unwrap_or(Value::Null);
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart", "uid": self.owner, "controller": true});
        // The first half is unlike for each container: the agent takes it for the cgroup's number.
        let id = format!("{:012x}{:052x}", self.made, self.made);
        json!({
            "metadata": {"name": name_of_pod, "labels": {"app": "cart"}, "ownerReferences": [owner],
                "annotations": {"id": id, "code": code.to_string()}},
            "spec": {"nodeName": name(node), "terminationGracePeriodSeconds": GRACE,
                "containers": [{"name": "app", "image": image, "lifecycle": lifecycle}]},
        })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.kwok.end(Duration::from_secs(5));
    }
}

pub fn name(node: usize) -> String {
    format!("node-{node}")
}

/// The agents of all nodes, until the receiver is dropped.
pub async fn agents(
    kubeconfigs: &[PathBuf],
    nodes: usize,
) -> anyhow::Result<(Vec<Counts>, mpsc::UnboundedReceiver<Report>, JoinSet<()>)> {
    let (reports, received) = mpsc::unbounded_channel();
    let mut counts = Vec::new();
    let mut running = JoinSet::new();
    for (node, kubeconfig) in (0..nodes).zip(kubeconfigs.iter().cycle()) {
        let access = Access::Kubeconfig(kubeconfig.clone());
        let (agent, of) = Agent::start(&name(node), &access, reports.clone()).await?;
        counts.push(of);
        running.spawn(agent.run());
        // As a DaemonSet that rolls out, not all in one moment.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok((counts, received, running))
}
