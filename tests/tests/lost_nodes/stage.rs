//! The control plane with its nodes and workloads, the observers, and what the test reads from the API server, `/metrics` and Jaeger.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_core::ids::PodUid;
use epitaph_core::render::id;
use epitaph_core::time::Wall;
use epitaph_tests::agent::program;
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::deploy::as_observer;
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::http::get;
use epitaph_tests::jaeger::{self, Jaeger};
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::timeout::{holds, until_within};
use serde_json::{Value, json};

use crate::kubelets::Kubelets;

/// Garbage collection runs every 20 s; the rest is for a loaded machine.
const LIMIT: Duration = Duration::from_secs(600);
/// The real controllers, with shorter waits; long enough for a loaded machine. With an eviction rate of exactly 1 a zone that once had
/// no ready node is never evicted: the limiter that lets nothing pass says that its rate is 1, and stays.
const CONTROLLERS: &[&str] = &[
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=30s",
    "--node-eviction-rate=2",
];
pub const NODES: [&str; 2] = ["node-a", "node-b"];
pub const REPLICAS: usize = 8;

pub struct Stage {
    pub kubelets: Kubelets,
    pub kubectl: Kubectl,
    pub jaeger: Jaeger,
    epitaph: Epitaph,
    kubeconfig: String,
    directory: tempfile::TempDir,
    _plane: ControlPlane,
}

impl Stage {
    /// None, logged as a skip, where the test of that name cannot run.
    pub fn set(test: &str) -> anyhow::Result<Option<Stage>> {
        let Some(tools) = Tools::named()? else {
            skip(
                test,
                "EPITAPH_CLUSTER_TOOLS names no kube-apiserver; `cargo xtask test` builds one",
            );
            return Ok(None);
        };
        let Some(jaeger) = jaeger::named(test) else { return Ok(None) };
        let directory = tempfile::tempdir()?;
        let jaeger = Jaeger::start(&jaeger, &directory.path().join("jaeger.log"))?;
        let plane = ControlPlane::without_nodes(&tools, &directory.path().join("plane"), &[], CONTROLLERS)?;
        let kubectl = plane.kubectl();
        for namespace in ["epitaph", "shop"] {
            kubectl.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}).to_string())?;
        }
        let kubeconfig = as_observer(&plane)?.to_str().context("a path of ours is text")?.to_owned();
        // The real Deployment of the manifest has no image here, and must not take the Lease.
        kubectl.run(&["-n", "epitaph", "delete", "deployment", "epitaph-observer"])?;
        let kubelets = Kubelets::start(&kubectl);
        for node in NODES {
            kubelets.boot(node, "boot-1", None)?;
        }
        let binaries = Path::new(env!("CARGO_BIN_EXE_victim")).parent().context("no directory")?;
        let copy = directory.path().join("bin");
        std::fs::create_dir(&copy)?;
        Ok(Some(Stage {
            kubelets,
            kubectl,
            jaeger,
            epitaph: Epitaph::copied(&program(binaries), &copy)?,
            kubeconfig,
            directory,
            _plane: plane,
        }))
    }

    pub fn observer(&self) -> anyhow::Result<Service> {
        let otlp = format!("http://127.0.0.1:{}", self.jaeger.ports().otlp_grpc);
        let args = [
            "--kubeconfig",
            &self.kubeconfig,
            "--otlp",
            &otlp,
            "--otlp-protocol",
            "grpc",
            "--set",
            "observer.namespace=epitaph",
            "--set",
            "observer.stuck_after=2s",
            "--log",
            "info,epitaph=debug",
        ];
        Service::of("observer", &self.epitaph, self.directory.path(), &args)
    }

    /// Beside a StatefulSet of eight over both nodes whose volumes are attached: one whose driver attaches none, as NFS, and two without a
    /// volume. The other StatefulSets' pods are on the node of the first pod.
    pub fn workloads(&self) -> anyhow::Result<()> {
        for (driver, attaches) in [("csi.test", true), ("nfs.test", false)] {
            let object = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": driver},
                "spec": {"attachRequired": attaches},
            });
            self.kubectl.apply(&object.to_string())?;
        }
        let of_db = (0..REPLICAS).map(|index| ("csi.test", format!("data-db-{index}")));
        for (driver, claim) in of_db.chain([("nfs.test", "data-files-0".to_owned())]) {
            let volume = json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("pv-{claim}")},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                    "csi": {"driver": driver, "volumeHandle": claim},
                    "claimRef": {"namespace": "shop", "name": claim},
                },
            });
            self.kubectl.apply(&volume.to_string())?;
        }
        let claim = json!({
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}},
        });
        let set = |name: &str, mounts: Value, claims: Value| {
            let mut template = template(name, mounts);
            let is_db = name == "db";
            if is_db {
                template["spec"]["topologySpreadConstraints"] = json!([{
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": "db"}},
                }]);
            } else {
                let first = json!({"matchLabels": {"statefulset.kubernetes.io/pod-name": "db-0"}});
                template["spec"]["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": first},
                ]}});
            }
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": "shop"},
                "spec": {
                    "replicas": if is_db { REPLICAS } else { 1 }, "podManagementPolicy": "Parallel", "serviceName": name,
                    "selector": {"matchLabels": {"app": name}},
                    "template": template, "volumeClaimTemplates": claims,
                },
            })
        };
        let mount = json!([{"name": "data", "mountPath": "/data"}]);
        self.kubectl.apply(&set("db", mount.clone(), json!([claim])).to_string())?;
        self.kubectl.apply(&set("files", mount, json!([claim])).to_string())?;
        for name in ["cache", "queue"] {
            self.kubectl.apply(&set(name, json!([]), json!([])).to_string())?;
        }
        Ok(())
    }

    /// A Deployment `web` of one pod, which prefers this node: its UID.
    pub fn deployment(&self, node: &str) -> anyhow::Result<String> {
        let mut template = template("web", json!([]));
        template["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]},
        }]}});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        });
        self.kubectl.apply(&deployment.to_string())?;
        let (uid, on) = self.running("web", &[])?;
        ensure!(on == node, "the pod of `web` is on {on}");
        Ok(uid)
    }

    pub fn pods(&self) -> anyhow::Result<Vec<Value>> {
        let found = self.kubectl.json(&["-n", "shop", "get", "pods", "-o", "json"])?;
        Ok(found["items"].as_array().context("no items")?.clone())
    }

    /// UID and node of a running pod of that name, or of the Deployment of that name, that is none of `known`.
    pub fn running(&self, name: &str, known: &[&str]) -> anyhow::Result<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let prefix = format!("{name}-");
        self.until(&format!("pod {name} runs"), || {
            let pods = self.pods()?;
            let of_name = pods.iter().filter(|pod| {
                let found = text(&pod["metadata"]["name"]);
                found == name || found.starts_with(&prefix)
            });
            let ready =
                of_name.filter(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null());
            let mut ready = ready.map(|pod| (text(&pod["metadata"]["uid"]), text(&pod["spec"]["nodeName"])));
            Ok(ready.find(|(uid, _)| !known.contains(&uid.as_str())))
        })
    }

    /// Events about pods that hang on a lost node.
    pub fn events(&self) -> anyhow::Result<Vec<Value>> {
        let events = self
            .kubectl
            .json(&["-n", "shop", "get", "events.events.k8s.io", "-o", "json"])?;
        let events = events["items"].as_array().context("no items")?.iter();
        Ok(events
            .filter(|event| event["reason"] == "PodStuckOnLostNode")
            .cloned()
            .collect())
    }

    pub fn until<T>(&self, what: &str, mut found: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
        let waited = until_within(LIMIT, what, || {
            Ok(match found() {
                Ok(found) => found.ok_or_else(|| "nothing".to_owned()),
                Err(error) => Err(format!("{error:#}")),
            })
        });
        waited.with_context(|| {
            let state = self
                .kubectl
                .run(&["get", "nodes,pods,pvc,volumeattachments", "-A", "-o", "wide"]);
            state.unwrap_or_default()
        })
    }

    /// The spans of a trace, once the last of these names is there.
    pub fn spans(&self, trace: &str, last: &str) -> anyhow::Result<Vec<Value>> {
        self.until(&format!("the span {last} is in trace {trace}"), || {
            let Some(trace) = self.jaeger.trace(trace)? else {
                return Ok(None);
            };
            let spans = trace["spans"].as_array().context("no spans")?.clone();
            let is_there = spans
                .iter()
                .any(|span| span["operationName"].as_str().is_some_and(|name| name.starts_with(last)));
            Ok(is_there.then_some(spans))
        })
    }

    /// The trace of the node's loss, and when the API says that it became not ready.
    pub fn loss(&self, node: &str) -> anyhow::Result<(String, Wall)> {
        let node = self.kubectl.json(&["get", "node", node, "-o", "json"])?;
        let conditions = node["status"]["conditions"].as_array().context("no conditions")?;
        let ready = conditions
            .iter()
            .find(|condition| condition["type"] == "Ready")
            .context("not Ready")?;
        ensure!(ready["status"] == "Unknown", "{ready}");
        let transition = time(&ready["lastTransitionTime"])?;
        let uid = node["metadata"]["uid"].as_str().context("no UID")?;
        Ok((id::node_loss_trace_id(uid, transition).to_string(), transition))
    }
}

/// All pods are evicted after 3 s.
pub fn template(name: &str, mounts: Value) -> Value {
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3});
    json!({
        "metadata": {"labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "app", "image": "app", "volumeMounts": mounts}],
            "tolerations": [toleration("node.kubernetes.io/unreachable"), toleration("node.kubernetes.io/not-ready")],
        },
    })
}

/// A time of the API.
pub fn time(value: &Value) -> anyhow::Result<Wall> {
    let parsed = value.as_str().and_then(Wall::parse_rfc3339);
    parsed.with_context(|| format!("not a time: {value}"))
}

pub fn of_node(node: &str) -> String {
    format!("k8s_node_name=\"{node}\"")
}

pub fn pod_trace(uid: &str) -> String {
    id::pod_trace_id(&PodUid(uid.into()), None).to_string()
}

pub fn tag<'a>(span: &'a Value, key: &str) -> &'a Value {
    let mut tags = span["tags"].as_array().into_iter().flatten();
    tags.find(|tag| tag["key"] == key).map_or(&Value::Null, |tag| &tag["value"])
}

pub fn named<'a>(spans: &'a [Value], name: &str) -> anyhow::Result<&'a Value> {
    let found: Vec<_> = spans.iter().filter(|span| span["operationName"] == name).collect();
    ensure!(found.len() == 1, "{} spans {name} in {spans:#?}", found.len());
    Ok(found[0])
}

pub fn until_active(observer: &Service) -> anyhow::Result<()> {
    until_within(LIMIT, "the observer to be active", || {
        let (status, body) = get(observer.port, "/readyz")?;
        let known = observer.count("epitaph_observer_known", &["object=\"nodes\""])?;
        let is_so = status == 200 && body.contains("\"active\"") && known >= 2.0;
        Ok(holds(is_so, || {
            format!("{status} {body}, {known} nodes; its log: {}", observer.log())
        }))
    })
}

pub fn until_metric(observer: &Service, name: &str, labels: &[&str], value: f64) -> anyhow::Result<()> {
    until_within(LIMIT, &format!("{name} with {labels:?} of {value}"), || {
        let found = observer.count(name, labels)?;
        Ok(holds(found == value, || found.to_string()))
    })
}
