//! Starts a whole cluster, reports its state, and stops it. All state that must survive is in its directory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::thread::{available_parallelism, scope};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cluster::control_plane::{ControlPlane, Parts};
use crate::cluster::credentials::write_private;
use crate::cluster::images::{self, Image};
use crate::cluster::node::{Node, NodeConfig};
use crate::cluster::process::{Lifetime, Process};
use crate::cluster::{Cluster, FEATURE_GATES, IMAGES, Known, MOST_NODES, NODES, NotInTime, Tools, deploy, node_name};
use crate::http::free_port;
use crate::jaeger::{self, Jaeger};
use crate::sys::boot_now;
use crate::timeout::until;

const JAEGER: &str = "jaeger";
/// Room for a hundred pods.
const MEMORY_MIB: u32 = 3072;
/// Multicast on the loopback alone; the port separates clusters.
const LAN_GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 77, 1);
const TO_END: Duration = Duration::from_secs(5);

/// Makes a cluster of `tools` with at least `nodes` nodes and Epitaph run in `directory`, and returns when all is ready. A running
/// part is kept; a stopped part is started again; a part of other tools, or one that has lost its store, is made anew. Each step
/// is passed to `report`. `players` is the directory of the programs that go into images: those of this package, and `epitaph`. With
/// `pod_within` a node that takes longer for one small pod is too slow.
///
/// # Errors
/// A part does not come up; [`NotInTime`]: a node is too slow.
pub fn up(
    tools: &Tools,
    directory: &Path,
    nodes: u8,
    players: &Path,
    pod_within: Option<Duration>,
    report: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<Cluster> {
    ensure!(nodes <= MOST_NODES, "{nodes} nodes: at most {MOST_NODES} are possible");
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    }
    let _alone = alone(directory)?;
    stop_outdated_parts(tools, directory, report)?;
    timed(report, "control plane", || control_plane(tools, directory, report))?;
    timed(report, "Jaeger", || start_jaeger(tools, directory))?;
    let cluster = Cluster::open(directory)?.context("the cluster that was just recorded is gone")?;
    if nodes > 0 {
        // All get the newest images: pods of a node that was left out would run the programs of before.
        let known = u8::try_from(self::nodes(directory)?.len()).unwrap_or(MOST_NODES);
        let nodes = nodes.max(known);
        let images = directory.join("images");
        let images = timed(report, "images", || images::all(tools, players, &images))?;
        scope(|threads| {
            let start = |index| {
                threads.spawn({
                    let (cluster, images) = (&cluster, &images);
                    move || start_node(cluster, index, images, report)
                })
            };
            let threads: Vec<_> = (1..=nodes).map(start).collect();
            let mut ended = threads.into_iter().map(|thread| thread.join());
            ended.try_for_each(|ended| ended.unwrap_or_else(|_| bail!("a thread that starts a node panicked")))
        })?;
        // First: a chart that is late after it is a fault.
        if let Some(limit) = pod_within {
            starts_a_pod_within(&cluster, limit, report)?;
        }
        timed(report, "Epitaph, by its chart", || deploy::deploy(&cluster))?;
    }
    Ok(cluster)
}

/// Starts one small pod, and removes it. The grace periods and waits of the stories are those of a real node: one that takes a
/// minute for a pod has other terminations.
///
/// # Errors
/// [`NotInTime`]: the pod was not ready within `limit`; or the API server refuses it.
fn starts_a_pod_within(cluster: &Cluster, limit: Duration, report: &(dyn Fn(&str) + Sync)) -> anyhow::Result<()> {
    const POD: &str = "pace";
    let kubectl = cluster.control_plane()?.kubectl();
    let container = json!({"name": "app", "image": images::PAUSE, "imagePullPolicy": "Never"});
    let spec = json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1, "containers": [container]});
    let remove = || {
        let removed = kubectl.run(&["delete", "pod", POD, "--ignore-not-found", "--timeout=120s"]);
        removed.map_err(not_in_time)
    };
    remove()?;
    let late = format!("--timeout={}s", limit.as_secs());
    let waited = timed(report, "one pod", || {
        kubectl.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": spec}).to_string())?;
        kubectl.run(&["wait", "--for=condition=Ready", &format!("pod/{POD}"), &late])
    });
    remove()?;
    waited.map(drop).map_err(not_in_time)
}

/// Stops every process that is recorded in `directory`, and removes the directory.
///
/// # Errors
/// A process cannot be stopped.
pub fn down(directory: &Path, report: &dyn Fn(&str)) -> anyhow::Result<()> {
    if !directory.exists() {
        report("there is no cluster");
        return Ok(());
    }
    let _alone = alone(directory)?;
    end_all(directory, report)
}

/// The recorded parts and their state, as text; whether all of them run.
///
/// # Errors
/// The records cannot be read.
pub fn status(directory: &Path) -> anyhow::Result<(String, bool)> {
    let Some(cluster) = Cluster::open(directory)? else {
        return Ok((
            "there is no cluster: `cargo xtask cluster up` creates one\n".to_owned(),
            false,
        ));
    };
    let mut text = String::new();
    let mut all = true;
    let mut parts = Vec::new();
    let records = directory.join("processes");
    for name in Process::names(&records)? {
        let pid = Process::find(&name, &records)?.map(|process| process.pid());
        parts.push((name, pid));
    }
    for name in nodes(directory)? {
        let records = cluster.node_directory(&name).join("processes");
        for machine in Process::names(&records)? {
            let pid = Process::find(&machine, &records)?.map(|process| process.pid());
            parts.push((name.clone(), pid));
        }
    }
    for (name, pid) in parts {
        match pid {
            Some(pid) => writeln!(text, "{name:24} runs, pid {pid}")?,
            None => {
                all = false;
                writeln!(text, "{name:24} is gone: `cargo xtask cluster up` starts it again")?;
            }
        }
    }
    let plane = cluster.control_plane()?;
    writeln!(text, "\nKUBECONFIG={}", plane.admin().display())?;
    if let Some(jaeger) = cluster.jaeger()? {
        let ports = jaeger.ports();
        writeln!(
            text,
            "Jaeger: http://127.0.0.1:{}/api/services, OTLP on ports {} (gRPC) and {} (HTTP)",
            ports.query, ports.otlp_grpc, ports.otlp_http
        )?;
    }
    for what in [
        &["get", "nodes", "-o", "wide"][..],
        &["get", "pods", "--all-namespaces", "-o", "wide"],
    ] {
        let answer = plane.kubectl().run(&[what, &["--request-timeout=10s"]].concat());
        all &= answer.is_ok();
        let answer = answer.unwrap_or_else(|error| format!("{error:#}\n"));
        let answer = if answer.is_empty() { "none\n" } else { &answer };
        writeln!(text, "\n{}\n{}", what.join(" "), answer.trim_end())?;
    }
    Ok((text, all))
}

/// A lock, held until dropped. Refuses a directory with other content: `down` would remove it.
fn alone(directory: &Path) -> anyhow::Result<File> {
    let marks = ["cluster.json", "processes", NODES, "credentials"];
    let ours = marks.iter().any(|mark| directory.join(mark).exists());
    let empty = fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none());
    ensure!(
        ours || empty,
        "{} is not a cluster directory: left untouched",
        directory.display()
    );
    let path = directory.with_extension("lock");
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    file.lock().with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

fn stop_outdated_parts(tools: &Tools, directory: &Path, report: &dyn Fn(&str)) -> anyhow::Result<()> {
    let records = directory.join("processes");
    let why = match Known::read(directory) {
        Ok(None) if Process::names(&records)?.is_empty() => return Ok(()),
        Ok(None) => "the record of the cluster here is incomplete",
        Err(_) => "the record of the cluster here cannot be read",
        Ok(Some(known)) if known.tools != tools.directory() => "the cluster here uses other program versions",
        Ok(Some(_)) if Process::find("etcd", &records)?.is_none() => "etcd of the cluster here does not run",
        Ok(Some(_)) => return Ok(()),
    };
    report(&format!("{why}: the cluster is stopped and created again"));
    end_all(directory, report)
}

fn control_plane(tools: &Tools, directory: &Path, report: &dyn Fn(&str)) -> anyhow::Result<()> {
    let before: Vec<String> = Process::names(&directory.join("processes"))?;
    for name in &before {
        if Process::find(name, &directory.join("processes"))?.is_none() {
            report(&format!("{name} had stopped: starting it again"));
        }
    }
    ControlPlane::start(tools, directory, Parts::Full, Lifetime::Detached)?;
    let file = directory.join("cluster.json");
    if file.exists() {
        return Ok(());
    }
    let known = Known {
        tools: tools.directory().to_owned(),
        lan_port: free_port()?,
    };
    write_private(&file, &serde_json::to_vec(&known)?)
}

fn start_jaeger(tools: &Tools, directory: &Path) -> anyhow::Result<()> {
    let records = directory.join("processes");
    if Process::find(JAEGER, &records)?.is_some() {
        return Ok(());
    }
    let (command, ports) = jaeger::command(&tools.program(JAEGER), &directory.join("jaeger"))?;
    let log = directory.join("logs/jaeger.log");
    let mut process = Process::start(JAEGER, command, &log, &records, Lifetime::Detached)?;
    let jaeger = Jaeger::at(ports);
    until(&format!("Jaeger to answer; see {}", log.display()), || {
        process.expect_running(&log)?;
        Ok(jaeger.answers())
    })?;
    write_private(&directory.join("jaeger.json"), &serde_json::to_vec(&ports)?)
}

/// Starts the node if it does not run, and waits until the API server reports it ready and it has every image.
fn start_node(cluster: &Cluster, index: u8, images: &[Image], report: &dyn Fn(&str)) -> anyhow::Result<()> {
    let name = node_name(index);
    let directory = cluster.node_directory(&name);
    let begin = boot_now();
    let since = || (boot_now() - begin) as f64 / 1e9;
    let kubectl = cluster.control_plane()?.kubectl();
    let known = Node::open(&directory, Lifetime::Detached).ok();
    let ended = known.is_some();
    let node = match known.and_then(|mut node| node.runs().then_some(node)) {
        Some(node) => node,
        None => {
            if ended {
                report(&format!("{name} had stopped: creating it again"));
            }
            // Otherwise the API server's status of an earlier node would be taken for this node's status.
            kubectl.run(&["delete", "node", &name, "--ignore-not-found"])?;
            clear(&directory)?;
            let node = Node::start(cluster.tools(), &node_config(cluster, index)?, &directory, Lifetime::Detached);
            let node = node.with_context(|| format!("start {name}"))?;
            report(&format!("{name}: booted after {:.1} s", since()));
            node
        }
    };
    let object = format!("node/{name}");
    for state in ["--for=create", "--for=condition=Ready"] {
        kubectl
            .run(&["wait", state, &object, "--timeout=600s"])
            .map_err(not_in_time)?;
    }
    report(&format!("{name}: Ready after {:.1} s", since()));
    let imported = import(&node, images, &directory)?;
    report(&format!(
        "{name}: {imported} of {} images imported, after {:.1} s",
        images.len(),
        since()
    ));
    Ok(())
}

/// The error of `kubectl wait`.
fn not_in_time(error: anyhow::Error) -> anyhow::Error {
    match format!("{error:#}") {
        late if late.contains("timed out waiting") => NotInTime(late).into(),
        _ => error,
    }
}

fn node_config(cluster: &Cluster, index: u8) -> anyhow::Result<NodeConfig> {
    let plane = cluster.control_plane()?;
    let name = node_name(index);
    let server = plane.url_for_guests();
    let mut config = NodeConfig {
        ca_pem: plane.authority()?,
        kubelet_kubeconfig: plane.kubeconfig_for(&format!("system:node:{name}"), Some("system:nodes"), &server)?,
        kube_proxy_kubeconfig: plane.kubeconfig_for("system:kube-proxy", None, &server)?,
        kubelet_certificate: None,
        lan: SocketAddrV4::new(LAN_GROUP, cluster.known.lan_port),
        memory_mib: MEMORY_MIB,
        // A node that starts many pods gets what the others leave.
        processors: available_parallelism().map_or(1, |host| host.get().min(2)),
        feature_gates: FEATURE_GATES.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect(),
        apparmor: true,
        kubelet: Value::Null,
        name,
        index,
    };
    config.kubelet_certificate = Some(plane.certificate_of_kubelet(&config.name, &config.addresses())?);
    Ok(config)
}

/// Imports the images that the node's containerd lacks; their number.
fn import(node: &Node, images: &[Image], directory: &Path) -> anyhow::Result<usize> {
    let file = directory.join(IMAGES);
    let mut known: BTreeMap<String, String> = match fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("read {}", file.display()))?,
        Err(_) => BTreeMap::new(),
    };
    let mut count = 0;
    for image in images {
        let mut hash = Sha256::new();
        let archive = File::open(&image.archive).and_then(|mut archive| io::copy(&mut archive, &mut hash));
        archive.with_context(|| format!("read {}", image.archive.display()))?;
        let digest = format!("{:x}", hash.finalize());
        if known.get(&image.name) == Some(&digest) {
            continue;
        }
        node.import(image)?;
        known.insert(image.name.clone(), digest);
        write_private(&file, &serde_json::to_vec(&known)?)?;
        count += 1;
    }
    Ok(count)
}

fn end_all(directory: &Path, report: &dyn Fn(&str)) -> anyhow::Result<()> {
    // Nodes first, then their servers, the store last.
    for name in nodes(directory)? {
        let directory = directory.join(NODES).join(&name);
        if let Ok(node) = Node::open(&directory, Lifetime::Detached) {
            node.shell().forget();
        }
        if end_recorded(&directory.join("processes"))? > 0 {
            report(&format!("{name} stopped"));
        }
    }
    let count = end_recorded(&directory.join("processes"))?;
    report(&format!("{count} programs stopped"));
    clear(directory)
}

/// How many processes were still running.
fn end_recorded(records: &Path) -> anyhow::Result<usize> {
    let mut names = Process::names(records)?;
    names.sort_by_key(|name| (name == "etcd", name == "kube-apiserver"));
    let mut count = 0;
    for name in names {
        if let Some(mut process) = Process::find(&name, records)? {
            process.end(TO_END)?;
            count += 1;
        }
    }
    Ok(count)
}

fn nodes(directory: &Path) -> anyhow::Result<Vec<String>> {
    let directory = directory.join(NODES);
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let entries = entries.with_context(|| format!("list {}", directory.display()))?;
    let mut names: Vec<String> = entries
        .iter()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

fn clear(directory: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

fn timed<T>(report: &dyn Fn(&str), what: &str, step: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let begin = boot_now();
    let done = step().with_context(|| format!("bring up: {what}"))?;
    report(&format!("{what}: ready after {:.1} s", (boot_now() - begin) as f64 / 1e9));
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_something_else_is_left_untouched() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("precious");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("letter"), "dear").unwrap();
        let error = down(&directory, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("left untouched"), "{error}");
        assert!(directory.join("letter").exists());
    }

    #[test]
    fn recorded_processes_are_stopped_even_if_other_state_is_unreadable() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("state");
        fs::create_dir_all(directory.join("processes")).unwrap();
        fs::write(directory.join("cluster.json"), "{").unwrap();
        let mut command = std::process::Command::new("sleep");
        command.arg("1000");
        let records = directory.join("processes");
        let mut etcd = Process::start("etcd", command, &parent.path().join("log"), &records, Lifetime::Caller).unwrap();
        down(&directory, &|_| {}).unwrap();
        assert!(!etcd.runs());
        assert!(!directory.exists());
    }
}
