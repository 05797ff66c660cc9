//! Nodes without machines: a thread renews their Leases, starts and ends their pods, and attaches their volumes, as kubelets and a CSI
//! attacher do. A node that it forgets is lost for the real controllers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::sys::locked;
use serde_json::{Value, json};

/// Name and boot id of the nodes that live.
type Alive = Arc<Mutex<BTreeMap<String, String>>>;

pub struct Kubelets {
    alive: Alive,
    holds_volumes: Arc<AtomicBool>,
    /// Dropped to stop the threads.
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    kubectl: Kubectl,
}

const STEP: Duration = Duration::from_millis(700);
const ATTACHER: &str = "epitaph.test/attacher";

impl Kubelets {
    pub fn start(kubectl: &Kubectl) -> Kubelets {
        let alive = Alive::default();
        let holds_volumes = Arc::new(AtomicBool::new(false));
        let (mut stop, mut threads) = (Vec::new(), Vec::new());
        // Leases and volumes on their own: on a loaded machine a round of everything else takes longer than a node may be silent.
        for round in [leases as fn(&Kubectl, &[String], bool), start_and_end, attach_and_detach] {
            let (sender, stopped) = channel();
            let (alive, holds_volumes, kubectl) = (alive.clone(), holds_volumes.clone(), kubectl.clone());
            stop.push(sender);
            threads.push(spawn(move || run(&kubectl, (&alive, &holds_volumes), &stopped, round)));
        }
        Kubelets {
            alive,
            holds_volumes,
            stop,
            threads,
            kubectl: kubectl.clone(),
        }
    }

    /// The node registers, or is back, with this boot. `zone`: its zone; such a node takes no pods from the scheduler.
    pub fn boot(&self, node: &str, boot: &str, zone: Option<&str>) -> anyhow::Result<()> {
        self.register(node, boot, zone)?;
        locked(&self.alive).insert(node.to_owned(), boot.to_owned());
        Ok(())
    }

    /// The same, and nothing of the node is heard of after that.
    pub fn register(&self, node: &str, boot: &str, zone: Option<&str>) -> anyhow::Result<()> {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": node, "labels": {"kubernetes.io/hostname": node},
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            },
        });
        if let Some(zone) = zone {
            object["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone);
            object["spec"] = json!({"unschedulable": true});
        }
        self.kubectl.apply(&object.to_string())?;
        renew(&self.kubectl, &[node.to_owned()])?;
        let now = humantime::format_rfc3339_seconds(now()).to_string();
        let capacity = json!({"cpu": "8", "memory": "8Gi", "pods": "50"});
        let status = json!({"status": {
            "capacity": capacity, "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
                "lastHeartbeatTime": now, "lastTransitionTime": now}],
            "nodeInfo": {
                "bootID": boot, "kubeletVersion": "v1.36.3", "machineID": "", "systemUUID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
        }});
        let args = ["patch", "node", node, "--subresource=status", "--type=strategic", "-p"];
        self.kubectl.run(&[&args[..], &[&status.to_string()]].concat()).map(drop)
    }

    /// From now on nothing of the node is heard of.
    pub fn lose(&self, node: &str) {
        locked(&self.alive).remove(node);
    }

    /// Whether the CSI driver does nothing for now.
    pub fn hold_volumes(&self, hold: bool) {
        self.holds_volumes.store(hold, Ordering::Relaxed);
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.stop.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn run(
    kubectl: &Kubectl,
    (alive, holds_volumes): (&Alive, &AtomicBool),
    stopped: &Receiver<()>,
    round: fn(&Kubectl, &[String], bool),
) {
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(STEP) {
        let nodes: Vec<String> = locked(alive).keys().cloned().collect();
        round(kubectl, &nodes, holds_volumes.load(Ordering::Relaxed));
    }
}

// A request that fails, because the object has changed or the API server is away, is repeated with the next round.
fn leases(kubectl: &Kubectl, nodes: &[String], _: bool) {
    let _ = renew(kubectl, nodes);
}

fn start_and_end(kubectl: &Kubectl, nodes: &[String], _: bool) {
    let _ = pods(kubectl, nodes);
}

fn attach_and_detach(kubectl: &Kubectl, _: &[String], holds: bool) {
    if !holds {
        let _ = attachments(kubectl);
    }
}

/// By one kubectl for all nodes: each costs a loaded machine a part of the time that a node may be silent.
fn renew(kubectl: &Kubectl, nodes: &[String]) -> anyhow::Result<()> {
    let now = humantime::format_rfc3339_micros(now()).to_string();
    let lease = |node: &String| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now},
        })
    };
    let leases: Vec<Value> = nodes.iter().map(lease).collect();
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "List", "items": leases}).to_string())
}

fn pods(kubectl: &Kubectl, nodes: &[String]) -> anyhow::Result<()> {
    let pods = kubectl.json(&["get", "pods", "-A", "-o", "json"])?;
    for pod in pods["items"].as_array().context("no items")? {
        let is_here = pod["spec"]["nodeName"]
            .as_str()
            .is_some_and(|node| nodes.iter().any(|one| one == node));
        if !is_here {
            continue;
        }
        let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            let args = [
                "-n",
                namespace,
                "delete",
                "pod",
                name,
                "--grace-period=0",
                "--force",
                "--wait=false",
            ];
            kubectl.run(&args)?;
        } else if pod["status"]["phase"] == "Pending" && volumes_are_attached(kubectl, pod)? {
            start(kubectl, namespace, name)?;
        }
    }
    Ok(())
}

fn start(kubectl: &Kubectl, namespace: &str, name: &str) -> anyhow::Result<()> {
    let now = humantime::format_rfc3339_seconds(now()).to_string();
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
        "containerStatuses": [{
            "name": "app", "image": "app", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": format!("containerd://{:064x}", 7), "state": {"running": {"startedAt": now}},
        }],
    }});
    let args = [
        "-n",
        namespace,
        "patch",
        "pod",
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
    ];
    kubectl.run(&[&args[..], &[&status.to_string()]].concat()).map(drop)
}

/// Each of the pod's claims is bound to a volume that is attached to the pod's node, or whose driver attaches none.
fn volumes_are_attached(kubectl: &Kubectl, pod: &Value) -> anyhow::Result<bool> {
    let volumes = pod["spec"]["volumes"].as_array();
    let claims: Vec<&str> = volumes
        .into_iter()
        .flatten()
        .filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
        .collect();
    if claims.is_empty() {
        return Ok(true);
    }
    let attachments = kubectl.json(&["get", "volumeattachments", "-o", "json"])?;
    let attachments = attachments["items"].as_array().context("no items")?;
    for claim in claims {
        let namespace = text(&pod["metadata"]["namespace"]);
        let claim = kubectl.json(&["-n", namespace, "get", "pvc", claim, "-o", "json"])?;
        let volume = kubectl.json(&["get", "pv", text(&claim["spec"]["volumeName"]), "-o", "json"])?;
        let driver = kubectl.json(&["get", "csidriver", text(&volume["spec"]["csi"]["driver"]), "-o", "json"])?;
        if driver["spec"]["attachRequired"] == false {
            continue;
        }
        let is_attached = attachments.iter().any(|attachment| {
            attachment["spec"]["source"]["persistentVolumeName"] == claim["spec"]["volumeName"]
                && attachment["spec"]["nodeName"] == pod["spec"]["nodeName"]
                && attachment["status"]["attached"] == true
        });
        if !is_attached {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The external-attacher: its finalizer keeps an attachment until the volume is detached.
fn attachments(kubectl: &Kubectl) -> anyhow::Result<()> {
    let attachments = kubectl.json(&["get", "volumeattachments", "-o", "json"])?;
    for attachment in attachments["items"].as_array().context("no items")? {
        let name = text(&attachment["metadata"]["name"]);
        let patch = |subresource: &[&str], patch: Value| {
            let args = ["patch", "volumeattachment", name, "--type=merge", "-p", &patch.to_string()];
            kubectl.run(&[&args[..], subresource].concat()).map(drop)
        };
        if !attachment["metadata"]["deletionTimestamp"].is_null() {
            patch(&[], json!({"metadata": {"finalizers": null}}))?;
        } else if attachment["status"]["attached"] != true {
            patch(&[], json!({"metadata": {"finalizers": [ATTACHER]}}))?;
            patch(&["--subresource=status"], json!({"status": {"attached": true}}))?;
        }
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "a kubelet that a test plays has a clock")]
fn now() -> SystemTime {
    SystemTime::now()
}
