//! What the observer of a large cluster costs, and how soon it reports a tenth of the nodes, or a whole zone, that is lost in one
//! moment: `cargo xtask bench observer`.
//!
//! The control plane is real. Two kwoks play the nodes with their Leases, and the pods; one of them is killed. Nodes have 50 images and
//! pods the fields of an ordinary container, each with its managed fields. The pods are StatefulSets': each that hangs is an alarm, and each
//! StatefulSet has its Event.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use epitaph::source::pods::{Access, connect};
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::credentials::{Proof, kubeconfig};
use epitaph_tests::cluster::deploy::as_observer;
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::cluster::process::Process;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::service::Service;
use epitaph_tests::sys::wall_seconds;
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Request;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::audit::audited;
use crate::kwok::{self, post, post_all};
use crate::proxy::Proxy;

const ROUNDS: [Round; 5] = [
    Round::tenth(50),
    Round::tenth(150),
    Round::tenth(500),
    Round::zone_of_three(150),
    Round::zone_of_three(500),
];
const PODS_PER_NODE: usize = 30;
/// Of one StatefulSet.
const REPLICAS: usize = 10;
const IMAGES: usize = 50;
/// A kubelet posts its node's status every five minutes.
const MEASURED: Duration = Duration::from_secs(300);
const AFTER: Duration = Duration::from_secs(60);
const MOST: Duration = Duration::from_secs(900);
const STEP: Duration = Duration::from_millis(200);
const USER: &str = "system:serviceaccount:epitaph:epitaph-observer";
const STAGES: &str = include_str!("observer-stages.yaml");
/// Nodes of one zone are evicted one after the other, by default one in 10 s: as fast as the observer is to be measured. Nothing replaces
/// the pods.
const CONTROLLERS: &[&str] = &[
    "--controllers=*,-statefulset-controller",
    "--node-eviction-rate=100",
    "--node-monitor-period=2s",
    "--kube-api-qps=300",
    "--kube-api-burst=600",
];

pub async fn measure(tools: &Tools, kwok: &Path, epitaph: &Path, only: Option<usize>) -> anyhow::Result<()> {
    println!(
        "| Nodes | Pods | Resident after the start | Bytes of the start | CPU at rest | Requests/min at rest | Bytes/s at rest | Lost | Pods \
         evicted | Resident at most | CPU of the loss | Requests | Bytes | Reported after | All pods stuck after | First Event after the first lost node | \
         Bytes of a node | Bytes of a pod |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for round in ROUNDS {
        if only.is_none_or(|only| only == round.nodes) {
            measure_round(tools, kwok, epitaph, round).await?;
        }
    }
    Ok(())
}

/// A cluster, and how many of its nodes are lost: the first ones, which with several zones are one of these.
#[derive(Clone, Copy)]
struct Round {
    nodes: usize,
    zones: usize,
    lost: usize,
}

impl Round {
    const fn tenth(nodes: usize) -> Round {
        Round {
            nodes,
            zones: 1,
            lost: nodes / 10,
        }
    }

    const fn zone_of_three(nodes: usize) -> Round {
        Round {
            nodes,
            zones: 3,
            lost: nodes.div_ceil(3),
        }
    }

    const fn zone(self, node: usize) -> usize {
        node * self.zones / self.nodes
    }
}

async fn measure_round(tools: &Tools, kwok: &Path, epitaph: &Path, round: Round) -> anyhow::Result<()> {
    let Round { nodes, zones, lost } = round;
    let directory = tempfile::tempdir()?;
    let (plane, audit) = audited(tools, directory.path(), rules(), CONTROLLERS)?;
    let kubectl = plane.kubectl();
    let client = connect(&Access::Kubeconfig(plane.admin())).await?;
    for namespace in ["epitaph", "shop"] {
        post(&client, "/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
    }
    as_observer(&plane)?;
    kubectl.run(&["-n", "epitaph", "delete", "deployment", "epitaph-observer"])?;

    let mut cluster = Cluster::start(kwok, directory.path(), &plane.admin(), &client, round).await?;
    eprintln!("{nodes} nodes: {} pods run", cluster.pods);

    let proxy = Proxy::start(plane.port())?;
    let token = plane.token("epitaph", "epitaph-observer")?;
    let file = directory.path().join("observer.kubeconfig");
    std::fs::write(&file, kubeconfig(&proxy.url(), &plane.authority()?, &Proof::Token(&token)))?;
    let file = file.to_str().context("a path of ours is text")?.to_owned();
    let program = Epitaph::copied(epitaph, directory.path())?;
    let args = [
        "--kubeconfig",
        &file,
        "--set",
        "observer.namespace=epitaph",
        "--set",
        "observer.stuck_after=1s",
    ];
    let observer = Service::of("observer", &program, directory.path(), &args)?;
    let (all, pods) = (nodes as f64, cluster.pods as f64);
    until("the observer knows the cluster", || {
        let known = |object: &str| observer.count("epitaph_observer_known", &[&format!("object=\"{object}\"")]);
        Ok(known("nodes")? >= all && known("pods")? >= pods)
    })
    .await?;
    sleep(Duration::from_secs(5)).await;
    let at_start = Usage::of(&observer, &proxy, &audit)?;
    sleep(MEASURED).await;
    let at_rest = Usage::of(&observer, &proxy, &audit)?.since(&at_start);

    let before = Usage::of(&observer, &proxy, &audit)?;
    let sizes = Sizes::of(&client).await?;
    cluster.lose()?;
    // By the API's own times, whose whole seconds are the beginning of the second.
    let mut not_ready = BTreeMap::new();
    let (mut reported, mut stuck, mut told) = (None, None, None);
    let begun = Instant::now();
    let mut evicted = 0.0;
    while stuck.is_none() || told.is_none() {
        if begun.elapsed() > MOST {
            bail!(
                "of {lost} lost nodes {} are reported, of {} pods {evicted} as stuck: {}",
                observer.count("epitaph_node_lost", &[])?,
                lost * PODS_PER_NODE,
                observer.log()
            );
        }
        let now = wall_seconds();
        if not_ready.len() < lost {
            not_ready = not_ready_since(&kubectl)?;
        }
        if reported.is_none() && observer.count("epitaph_node_lost", &[])? >= lost as f64 {
            reported = Some(now);
        }
        evicted = observer.count("epitaph_node_pods_stuck", &[])?;
        if reported.is_some() && stuck.is_none() && evicted >= (lost * PODS_PER_NODE) as f64 {
            stuck = Some(now);
        }
        let posted = observer.count("epitaph_kubernetes_events_total", &["outcome=\"posted\""])?;
        if posted > 0.0 {
            told.get_or_insert(now);
        }
        sleep(STEP).await;
    }
    // The Events follow, one in a second.
    sleep(AFTER).await;
    let of_loss = Usage::of(&observer, &proxy, &audit)?;
    let change = of_loss.since(&before);
    let last = not_ready.values().copied().fold(0.0, f64::max);
    let first = not_ready.values().copied().fold(f64::INFINITY, f64::min);
    let after = |time: Option<f64>, since: f64| time.map_or_else(String::new, |time| format!("{:.1} s", time - since));
    let of_zone = if zones > 1 { ", a whole zone" } else { "" };
    println!(
        "| {nodes} | {} | {:.1} MiB | {:.1} MB | {:.2} % | {:.1} | {:.0} | {lost}{of_zone} | {evicted} | {:.1} MiB | {:.2} s | {} | {:.2} MB | {} | {} | {} | {} | {} |",
        cluster.pods,
        mib(at_start.resident),
        at_start.bytes / 1e6,
        100.0 * at_rest.cpu / MEASURED.as_secs_f64(),
        at_rest.requests as f64 * 60.0 / MEASURED.as_secs_f64(),
        at_rest.bytes / MEASURED.as_secs_f64(),
        mib(of_loss.most),
        change.cpu,
        change.requests,
        change.bytes / 1e6,
        after(reported, last),
        after(stuck, last),
        after(told, first),
        sizes.node,
        sizes.pod,
    );
    Ok(())
}

/// The observer's requests, for the log.
pub fn rules() -> Vec<Value> {
    // Of a watch the beginning counts, of every other request the end.
    let rule =
        |verbs: &[&str], omitted: &str| json!({"level": "Metadata", "users": [USER], "verbs": verbs, "omitStages": [omitted]});
    vec![
        rule(&["watch"], "ResponseComplete"),
        rule(
            &["get", "list", "create", "update", "patch", "delete", "deletecollection"],
            "ResponseStarted",
        ),
    ]
}

/// Bytes of an object in the API server's lists, which are JSON.
struct Sizes {
    node: usize,
    pod: usize,
}

impl Sizes {
    async fn of(client: &Client) -> anyhow::Result<Sizes> {
        const SOME: u32 = 50;
        let of = async |path: &str| -> anyhow::Result<usize> {
            let request = Request::new(path).list(&ListParams::default().limit(SOME))?;
            Ok(client.request_text(request).await?.len() / SOME as usize)
        };
        Ok(Sizes {
            node: of("/api/v1/nodes").await?,
            pod: of("/api/v1/namespaces/shop/pods").await?,
        })
    }
}

struct Cluster {
    keeper: Process,
    /// The kubelets of the nodes that are to be lost.
    doomed: Process,
    pods: usize,
}

impl Cluster {
    async fn start(kwok: &Path, directory: &Path, admin: &Path, client: &Client, round: Round) -> anyhow::Result<Cluster> {
        let Round { nodes, lost, .. } = round;
        let name = |node: usize| format!("node-{node}");
        let of_nodes = (0..nodes).map(|node| {
            let doomed = (node < lost).to_string();
            let zone = format!("zone-{}", round.zone(node));
            let labels = json!({"doomed": doomed, "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r"});
            (
                "/api/v1/nodes".to_owned(),
                json!({"metadata": {"name": name(node), "labels": labels}}),
            )
        });
        post_all(client, of_nodes).await?;
        let mut patches: JoinSet<anyhow::Result<()>> = JoinSet::new();
        let status = json!({"status": {"images": images(), "allocatable": allocatable(), "capacity": allocatable()}});
        for node in 0..nodes {
            let patch = Patch::Merge(&status);
            let request =
                Request::new("/api/v1/nodes").patch_subresource("status", &name(node), &PatchParams::default(), &patch)?;
            let client = client.clone();
            patches.spawn(async move { Ok(client.request_text(request).await.map(drop)?) });
            while patches.len() > 16 {
                patches.join_next().await.context("a patch")???;
            }
        }
        while let Some(done) = patches.join_next().await {
            done??;
        }
        let stages = directory.join("observer-stages.yaml");
        std::fs::write(&stages, STAGES)?;
        let start = |of: &str, doomed: bool| {
            let selector = format!("--manage-nodes-with-label-selector=doomed={doomed}");
            let flags = [
                selector.as_str(),
                "--manage-all-nodes=false",
                "--node-lease-duration-seconds=40",
            ];
            kwok::start(kwok, of, directory, admin, &stages, &flags)
        };
        let cluster = Cluster {
            keeper: start("keeper", false)?,
            doomed: start("doomed", true)?,
            pods: nodes * PODS_PER_NODE,
        };
        let sets = statefulsets(client, cluster.pods.div_ceil(REPLICAS)).await?;
        let of_pods = (0..cluster.pods).map(|pod| {
            let owner = &sets[pod / REPLICAS];
            (
                "/api/v1/namespaces/shop/pods".to_owned(),
                a_pod(pod, owner, &name(pod % nodes)),
            )
        });
        post_all(client, of_pods).await?;
        let admin = Access::Kubeconfig(admin.to_owned());
        let client = connect(&admin).await?;
        let begun = Instant::now();
        loop {
            let others = ListParams::default().fields("status.phase!=Running").limit(1);
            let request = Request::new("/api/v1/namespaces/shop/pods").list(&others)?;
            let answer: Value = serde_json::from_str(&client.request_text(request).await?)?;
            if answer["items"].as_array().is_some_and(Vec::is_empty) {
                return Ok(cluster);
            }
            anyhow::ensure!(begun.elapsed() < MOST, "pods do not run: {answer}");
            sleep(Duration::from_secs(2)).await;
        }
    }

    fn lose(&mut self) -> anyhow::Result<()> {
        self.doomed.signal(nix::libc::SIGKILL)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for kwok in [&mut self.keeper, &mut self.doomed] {
            let _ = kwok.end(Duration::from_secs(5));
        }
    }
}

fn images() -> Vec<Value> {
    let image = |n: usize| {
        let name = format!("registry.example/team-{}/service-{n}", n % 7);
        json!({"names": [format!("{name}@sha256:{n:064x}"), format!("{name}:1.{n}.0")], "sizeBytes": 100_000_000 + n})
    };
    (0..IMAGES).map(image).collect()
}

fn allocatable() -> Value {
    json!({"cpu": "64", "memory": "256Gi", "pods": "250"})
}

/// Owner references to each.
async fn statefulsets(client: &Client, count: usize) -> anyhow::Result<Vec<Value>> {
    const PATH: &str = "/apis/apps/v1/namespaces/shop/statefulsets";
    let labels = json!({"app.kubernetes.io/name": "cart"});
    let set = |number: usize| {
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "cart"}]}});
        let spec =
            json!({"replicas": REPLICAS, "selector": {"matchLabels": labels}, "serviceName": "cart", "template": template});
        json!({"metadata": {"name": format!("cart-{number}")}, "spec": spec})
    };
    post_all(client, (0..count).map(|number| (PATH.to_owned(), set(number)))).await?;
    let request = Request::new(PATH).list(&ListParams::default())?;
    let list: Value = serde_json::from_str(&client.request_text(request).await?)?;
    let items = list["items"].as_array().context("no items")?;
    let reference = |set: &Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "controller": true, "blockOwnerDeletion": true,
            "name": set["metadata"]["name"], "uid": set["metadata"]["uid"],
        })
    };
    Ok(items.iter().map(reference).collect())
}

/// As a chart makes it; evicted 3 s after the loss.
fn a_pod(number: usize, owner: &Value, node: &str) -> Value {
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3});
    let env: Vec<Value> = (0..12)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value-{n}-of-an-ordinary-length")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    json!({
        "metadata": {
            "name": format!("cart-{number}"),
            "ownerReferences": [owner],
            "labels": {"app.kubernetes.io/name": "cart", "app.kubernetes.io/instance": "cart", "app.kubernetes.io/version": "1.4.2"},
            "annotations": {"checksum/config": format!("{number:064x}"), "prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
        },
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1,
            "tolerations": [toleration("node.kubernetes.io/unreachable"), toleration("node.kubernetes.io/not-ready")],
            "containers": [{
                "name": "app", "image": "registry.example/shop/cart:1.4.2", "env": env, "readinessProbe": probe, "livenessProbe": probe,
                "ports": [{"name": "http", "containerPort": 8080}],
                "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/cart"}],
            }],
            "volumes": [{"name": "config", "emptyDir": {}}],
        },
    })
}

/// When each lost node became not ready, in seconds since the epoch.
fn not_ready_since(kubectl: &Kubectl) -> anyhow::Result<BTreeMap<String, f64>> {
    let nodes = kubectl.json(&["get", "nodes", "-l", "doomed=true", "-o", "json"])?;
    let mut found = BTreeMap::new();
    for node in nodes["items"].as_array().into_iter().flatten() {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions
            .clone()
            .find(|condition| condition["type"] == "Ready" && condition["status"] != "True");
        let time = ready.and_then(|ready| ready["lastTransitionTime"].as_str());
        if let Some(time) = time.and_then(epitaph_core::time::Wall::parse_rfc3339) {
            found.insert(node["metadata"]["name"].to_string(), time.seconds());
        }
    }
    Ok(found)
}

/// Of the observer's process, and of its requests.
pub struct Usage {
    /// Bytes.
    pub resident: u64,
    pub most: u64,
    /// Seconds.
    pub cpu: f64,
    /// Both ways, those of TLS.
    pub bytes: f64,
    pub requests: usize,
}

impl Usage {
    pub fn of(observer: &Service, proxy: &Proxy, audit: &Path) -> anyhow::Result<Usage> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", observer.pid()))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib: Option<u64> = line.and_then(|value| value.trim().strip_suffix(" kB")?.parse().ok());
            kib.map(|kib| kib * 1024).with_context(|| format!("no {name} in the status"))
        };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", observer.pid()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |field: usize| fields.get(field).and_then(|ticks| ticks.parse::<f64>().ok());
        let ticks = ticks(11)
            .zip(ticks(12))
            .map(|(user, kernel)| user + kernel)
            .context("no times in the stat")?;
        let (to_server, to_observer) = proxy.bytes()?;
        Ok(Usage {
            resident: field("VmRSS")?,
            most: field("VmHWM")?,
            // USER_HZ.
            cpu: ticks / 100.0,
            bytes: (to_server + to_observer) as f64,
            // Before the first request there is no file.
            requests: std::fs::read_to_string(audit).unwrap_or_default().lines().count(),
        })
    }

    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            resident: self.resident,
            most: self.most,
            cpu: self.cpu - before.cpu,
            bytes: self.bytes - before.bytes,
            requests: self.requests - before.requests,
        }
    }
}

pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

async fn until(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        anyhow::ensure!(begun.elapsed() < MOST, "not so after minutes: {what}");
        sleep(STEP).await;
    }
    Ok(())
}
