//! Lost nodes on a real control plane: the controllers evict, collect garbage, attach and detach; nodes, kubelets and the CSI attacher
//! are written as API objects (`kubelets`). The story is read back from a real Jaeger.

mod kubelets;

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
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
use serde_json::{Value, json};

use kubelets::Kubelets;

const STEP: Duration = Duration::from_millis(500);
/// Garbage collection runs every 20 s; the rest is for a loaded machine.
const STEPS: u32 = 1200;
const TO_END: Duration = Duration::from_secs(20);
/// The real controllers, with a shorter wait; long enough for a loaded machine.
const CONTROLLERS: &[&str] = &["--node-monitor-period=1s", "--node-monitor-grace-period=30s"];
const NODES: [&str; 2] = ["node-a", "node-b"];
const REPLICAS: usize = 8;
/// Pods whose end no volume's detach follows.
const DETACHLESS: [&str; 2] = ["files-0", "cache-0"];
const TAINT: &str = "node.kubernetes.io/out-of-service";

struct Stage {
    kubelets: Kubelets,
    kubectl: Kubectl,
    jaeger: Jaeger,
    epitaph: Epitaph,
    kubeconfig: String,
    directory: tempfile::TempDir,
    _plane: ControlPlane,
}

impl Stage {
    /// None, logged as a skip, where the test of that name cannot run.
    fn set(test: &str) -> anyhow::Result<Option<Stage>> {
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
        let plane = ControlPlane::full_with(&tools, &directory.path().join("plane"), &[], CONTROLLERS)?;
        let kubectl = plane.kubectl();
        for namespace in ["epitaph", "shop"] {
            kubectl.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}).to_string())?;
        }
        let kubeconfig = as_observer(&plane)?.to_str().context("a path of ours is text")?.to_owned();
        // The real Deployment of the manifest has no image here, and must not take the Lease.
        kubectl.run(&["-n", "epitaph", "delete", "deployment", "epitaph-observer"])?;
        let kubelets = Kubelets::start(&kubectl);
        for node in NODES {
            kubelets.boot(node, "boot-1")?;
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

    fn observer(&self) -> anyhow::Result<Service> {
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

    /// Beside a StatefulSet of eight over both nodes whose volumes are attached: one whose driver attaches none, as NFS, one without a
    /// volume, and a Deployment. The other StatefulSets' pods are on the node of the first pod; all pods are evicted after 3 s.
    fn workloads(&self) -> anyhow::Result<()> {
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
        let of = |name: &str, mounts: Value| {
            let toleration =
                |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3});
            json!({
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "app", "image": "app", "volumeMounts": mounts}],
                    "tolerations": [toleration("node.kubernetes.io/unreachable"), toleration("node.kubernetes.io/not-ready")],
                },
            })
        };
        let set = |name: &str, mounts: Value, claims: Value| {
            let mut template = of(name, mounts);
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
        self.kubectl.apply(&set("cache", json!([]), json!([])).to_string())?;
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": of("web", json!([]))},
        });
        self.kubectl.apply(&deployment.to_string())
    }

    /// UID and node of a running pod that is none of `known`.
    fn running(&self, pod: &str, known: &[&str]) -> anyhow::Result<(String, String)> {
        self.until(&format!("pod {pod} runs"), || {
            let found = self.kubectl.json(&["-n", "shop", "get", "pods", "-o", "json"])?;
            let pods = found["items"].as_array().context("no items")?;
            let of_name = pods.iter().filter(|found| found["metadata"]["name"] == pod);
            let ready =
                of_name.filter(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null());
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let mut ready = ready.map(|pod| (text(&pod["metadata"]["uid"]), text(&pod["spec"]["nodeName"])));
            Ok(ready.find(|(uid, _)| !known.contains(&uid.as_str())))
        })
    }

    fn until<T>(&self, what: &str, mut found: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
        for _ in 0..STEPS {
            if let Ok(Some(found)) = found() {
                return Ok(found);
            }
            sleep(STEP);
        }
        let state = self
            .kubectl
            .run(&["get", "nodes,pods,pvc,volumeattachments", "-A", "-o", "wide"]);
        bail!("not so after minutes: {what}; {}", state.unwrap_or_default())
    }

    /// The spans of a trace, once the last of these names is there.
    fn spans(&self, trace: &str, last: &str) -> anyhow::Result<Vec<Value>> {
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

    /// UID of the node, and when the API says that it became not ready.
    fn loss(&self, node: &str) -> anyhow::Result<(String, String)> {
        let node = self.kubectl.json(&["get", "node", node, "-o", "json"])?;
        let conditions = node["status"]["conditions"].as_array().context("no conditions")?;
        let ready = conditions
            .iter()
            .find(|condition| condition["type"] == "Ready")
            .context("not Ready")?;
        ensure!(ready["status"] == "Unknown", "{ready}");
        let text = |value: &Value| Ok::<_, anyhow::Error>(value.as_str().context("no text")?.to_owned());
        Ok((text(&node["metadata"]["uid"])?, text(&ready["lastTransitionTime"])?))
    }
}

fn pod_trace(uid: &str) -> String {
    id::pod_trace_id(&PodUid(uid.into()), None).to_string()
}

fn tag<'a>(span: &'a Value, key: &str) -> &'a Value {
    let mut tags = span["tags"].as_array().into_iter().flatten();
    tags.find(|tag| tag["key"] == key).map_or(&Value::Null, |tag| &tag["value"])
}

fn named<'a>(spans: &'a [Value], name: &str) -> anyhow::Result<&'a Value> {
    let found: Vec<_> = spans.iter().filter(|span| span["operationName"] == name).collect();
    ensure!(found.len() == 1, "{} spans {name} in {spans:#?}", found.len());
    Ok(found[0])
}

fn parent(span: &Value) -> &Value {
    &span["references"][0]["spanID"]
}

/// Its volume was detached from the lost node and attached to the other one before its replacement was ready.
fn moved(spans: &[Value], pod: &str, (old, new): (&str, &str)) -> anyhow::Result<()> {
    let root = named(spans, "pod.lost fenced-by-taint")?;
    let trace = id::pod_trace_id(&PodUid(old.into()), None);
    ensure!(root["spanID"] == id::pod_lost(trace).to_string());
    ensure!(tag(root, "epitaph.evicted_by_taint") == true);
    let stuck = named(spans, "stuck")?;
    ensure!(tag(stuck, "epitaph.stuck.by") == "node");
    let replacement = named(spans, "replacement")?;
    ensure!(tag(replacement, "epitaph.replacement.pod.uid") == new);
    let detach = named(spans, "volume.detach")?;
    ensure!(tag(detach, "epitaph.volume.name") == format!("pv-data-{pod}").as_str());
    ensure!(
        [stuck, replacement, detach]
            .iter()
            .all(|span| parent(span) == &root["spanID"])
    );
    let events = replacement["logs"].as_array().context("no events")?;
    let time = |event: &str| {
        let found = events.iter().find(|log| log["fields"][0]["value"] == event);
        found.and_then(|log| log["timestamp"].as_u64()).context(event.to_owned())
    };
    let (attached, ready) = (time("volume.attached")?, time("pod.ready")?);
    let detached = detach["startTime"].as_u64().zip(detach["duration"].as_u64());
    let detached = detached.map(|(begin, lasted)| begin + lasted).context("no time")?;
    ensure!(
        detached <= attached && attached <= ready,
        "detached at {detached}, attached at {attached}, ready at {ready}"
    );
    Ok(())
}

/// Seconds since the epoch.
fn begin(span: &Value) -> f64 {
    span["startTime"].as_f64().unwrap_or_default() / 1e6
}

fn until_active(observer: &Service) -> anyhow::Result<()> {
    for _ in 0..STEPS {
        let (status, body) = get(observer.port, "/readyz")?;
        if status == 200
            && body.contains("\"active\"")
            && observer.count("epitaph_observer_known", &["object=\"nodes\""])? >= 2.0
        {
            return Ok(());
        }
        sleep(STEP);
    }
    bail!("it did not become active: {}", observer.log())
}

fn until_metric(observer: &Service, name: &str, labels: &[&str], value: f64) -> anyhow::Result<()> {
    for _ in 0..STEPS {
        if observer.count(name, labels)? == value {
            return Ok(());
        }
        sleep(STEP);
    }
    bail!("{name} with {labels:?} is not {value}: {}", get(observer.port, "/metrics")?.1)
}

/// Lost, taint, forced deletion, detach, replacement, reboot, taint removed; and then the other way, cut off, with a killed observer.
#[test]
fn a_lost_node_is_a_story_from_silence_to_its_return() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_lost_node_is_a_story_from_silence_to_its_return")? else {
        return Ok(());
    };
    stage.workloads()?;
    let first = stage.observer()?;
    until_active(&first)?;
    let all: Vec<String> = (0..REPLICAS).map(|index| format!("db-{index}")).collect();
    let all = all.iter().map(|pod| Ok((pod.as_str(), stage.running(pod, &[])?)));
    let all: Vec<(&str, (String, String))> = all.collect::<anyhow::Result<_>>()?;
    let (old, node) = all[0].1.clone();
    let detachless = DETACHLESS.map(|pod| stage.running(pod, &[]));
    let other = NODES.into_iter().find(|name| *name != node).context("two nodes")?;

    stage.kubelets.lose(&node);
    let of_node = format!("k8s_node_name=\"{node}\"");
    until_metric(&first, "epitaph_node_lost", &[&of_node, "verdict=\"lost\""], 1.0)?;
    first.until("epitaph_node_pods_stuck", &[&of_node], 1.0)?;
    let (uid, transition) = stage.loss(&node)?;
    let note = stage.until("an Event on the StatefulSet", || {
        let events = stage
            .kubectl
            .json(&["-n", "shop", "get", "events.events.k8s.io", "-o", "json"])?;
        let mut events = events["items"].as_array().context("no items")?.iter();
        let event = events.find(|event| event["reason"] == "PodStuckOnLostNode" && event["regarding"]["kind"] == "StatefulSet");
        Ok(event.map(|event| event["note"].as_str().unwrap_or_default().to_owned()))
    })?;
    let command = format!("kubectl taint nodes {node} {TAINT}=nodeshutdown:NoExecute");
    assert!(note.contains(&command) && note.contains("make sure that it is off"), "{note}");

    let gone: Vec<(&str, &str)> = all
        .iter()
        .filter(|(_, (_, on))| *on == node)
        .map(|(pod, (uid, _))| (*pod, uid.as_str()))
        .collect();
    assert!((2..REPLICAS).contains(&gone.len()), "{all:?}");
    stage.kubelets.hold_volumes(true);
    let args: Vec<&str> = command.split_whitespace().skip(1).collect();
    stage.kubectl.run(&args)?;
    // The pods are gone, and their volumes are attached to the lost node: the replacements wait.
    until_metric(&first, "epitaph_node_volumes_left", &[&of_node], gone.len() as f64)?;
    stage.kubelets.hold_volumes(false);
    let (new, now_on) = stage.running("db-0", &[&old])?;
    assert_eq!(now_on, other);

    let trace = pod_trace(&old);
    for (pod, old) in &gone {
        let (new, _) = stage.running(pod, &[old])?;
        let spans = stage.spans(&pod_trace(old), "replacement")?;
        moved(&spans, pod, (old, &new)).with_context(|| format!("{pod}: {spans:#?}"))?;
    }
    // By now every detach is over.
    for (pod, old) in DETACHLESS.into_iter().zip(detachless) {
        let (old, on) = old?;
        assert_eq!(on, node, "{pod}");
        stage.running(pod, &[&old])?;
        let spans = stage.spans(&pod_trace(&old), "replacement")?;
        named(&spans, "pod.lost fenced-by-taint")?;
        let detaches = spans.iter().filter(|span| span["operationName"] == "volume.detach");
        assert_eq!(detaches.count(), 0, "{pod}: {spans:#?}");
    }

    let wall = Wall::parse_rfc3339(&transition).context("a time")?;
    let loss = id::node_loss_trace_id(&uid, wall);
    let spans = stage.spans(&loss.to_string(), "node.lost")?;
    let lost = named(&spans, "node.lost fenced-by-taint")?;
    assert_eq!(tag(lost, "epitaph.node.transition"), wall.rfc3339().as_str());
    assert!(tag(lost, "epitaph.node.unwatched").is_null(), "{lost:#}");
    assert!(!tag(lost, "epitaph.node.renewed_at").is_null(), "{lost:#}");
    // Of the API's own time, which has whole seconds.
    let apart = (begin(lost) - wall.seconds()).abs();
    assert!(apart <= 2.0, "{apart} s");

    // The node is back, rebooted; the taint is left behind until it is removed.
    stage.kubelets.boot(&node, "boot-2")?;
    until_metric(&first, "epitaph_node_out_of_service", &[&of_node, "ready=\"true\""], 1.0)?;
    stage.kubectl.run(&["taint", "nodes", &node, &format!("{TAINT}-")])?;
    let spans = stage.spans(&loss.to_string(), "node.out_of_service")?;
    assert_eq!(tag(named(&spans, "node.down")?, "epitaph.node.return"), "rebooted");
    until_metric(&first, "epitaph_node_lost", &[&of_node], 0.0)?;

    cut_off(&stage, first, (&new, other))?;
    nothing_is_twice(&stage, &[&trace, &pod_trace(&new), &loss.to_string()])
}

/// The same pod name moves again: its node is cut off, the agent answers, nobody sets the taint, and it comes back with its boot.
fn cut_off(stage: &Stage, mut first: Service, (pod, node): (&str, &str)) -> anyhow::Result<()> {
    // A standby, whose /healthz stands for the agent's.
    let mut second = stage.observer()?;
    let labels = json!({"app.kubernetes.io/name": "epitaph", "app.kubernetes.io/component": "agent"});
    let here = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
    ]}}});
    let agents = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "epitaph"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "affinity": here, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "app", "image": "app", "ports": [{"name": "metrics", "containerPort": second.port}]}],
            },
        }},
    });
    stage.kubectl.run_with(&["create", "-f", "-"], &agents.to_string())?;
    let agent = stage.until("the agent's pod runs", || {
        let selector = "--selector=app.kubernetes.io/component=agent";
        let pods = stage
            .kubectl
            .json(&["-n", "epitaph", "get", "pods", selector, "-o", "json"])?;
        let pod = &pods["items"][0];
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok((pod["status"]["phase"] == "Running").then_some(name))
    })?;
    let address = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}).to_string();
    let args = [
        "-n",
        "epitaph",
        "patch",
        "pod",
        &agent,
        "--subresource=status",
        "--type=merge",
        "-p",
        &address,
    ];
    stage.kubectl.run(&args)?;

    stage.kubelets.lose(node);
    let of_node = format!("k8s_node_name=\"{node}\"");
    until_metric(&first, "epitaph_node_lost", &[&of_node, "verdict=\"unreachable\""], 1.0)?;
    first.until("epitaph_node_pods_stuck", &[&of_node], 1.0)?;
    let (uid, transition) = stage.loss(node)?;
    // The active observer is killed in the middle: the other one waits for the Lease, and continues.
    first.kill()?;
    until_active(&second)?;
    until_metric(&second, "epitaph_node_lost", &[&of_node, "verdict=\"unreachable\""], 1.0)?;
    stage.kubelets.boot(node, "boot-1")?;
    let (third, _) = stage.running("db-0", &[pod])?;
    assert_ne!(third, pod);
    let spans = stage.spans(&pod_trace(pod), "pod.lost")?;
    let root = named(&spans, "pod.lost unreachable")?;
    assert!(
        tag(root, "epitaph.sentence").as_str().is_some_and(|text| text.contains(node)),
        "{root:#}"
    );
    // Back again, its kubelet may be seen to end the pod: then a second one, by the runtime. Jaeger gives them in no order.
    let held = spans.iter().filter(|span| span["operationName"] == "stuck");
    let first_held = held.min_by_key(|span| span["startTime"].as_u64()).context("no stuck")?;
    assert_eq!(tag(first_held, "epitaph.stuck.by"), "node", "{spans:#?}");
    let loss = id::node_loss_trace_id(&uid, Wall::parse_rfc3339(&transition).context("a time")?);
    let spans = stage.spans(&loss.to_string(), "node.down")?;
    let lost = named(&spans, "node.lost unreachable")?;
    assert!(tag(lost, "epitaph.node.unwatched").as_f64().is_some(), "{lost:#}");
    assert_eq!(tag(named(&spans, "node.down")?, "epitaph.node.return"), "same-boot");
    assert!(second.end(TO_END)?.success(), "{}", second.log());
    nothing_is_twice(stage, &[&loss.to_string()])
}

fn nothing_is_twice(stage: &Stage, traces: &[&str]) -> anyhow::Result<()> {
    for trace in traces {
        let trace = stage.jaeger.trace(trace)?.with_context(|| format!("no trace {trace}"))?;
        let spans = trace["spans"].as_array().context("no spans")?;
        let ids: BTreeSet<&str> = spans.iter().filter_map(|span| span["spanID"].as_str()).collect();
        assert_eq!(ids.len(), spans.len(), "{spans:#?}");
    }
    Ok(())
}
