//! Brings a whole cluster up, says how it is, and ends it. All that it must know again is in its directory.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::thread::{scope, sleep};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use crate::cluster::control_plane::{ControlPlane, Parts};
use crate::cluster::credentials::write_private;
use crate::cluster::process::{Lifetime, Process};
use crate::cluster::{Cluster, Known, MOST_NODES, Tools, kubelet_address, node_name};
use crate::http::free_port;
use crate::jaeger::{self, Jaeger};
use crate::sys::boot_now;

const JAEGER: &str = "jaeger";
const TO_END: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(100);

/// Makes it so that a cluster of `tools` with at least `nodes` nodes runs in `directory`, and returns when they are ready. What
/// runs already is kept; what has died is started again; what is of other tools, or has lost its store, is made anew. Each step
/// is told to `say`.
///
/// # Errors
/// A part does not come up.
pub fn up(tools: &Tools, directory: &Path, nodes: u8, say: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Cluster> {
    ensure!(nodes <= MOST_NODES, "{nodes} nodes: {MOST_NODES} are the most");
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    let _alone = alone(directory)?;
    end_what_cannot_stay(tools, directory, say)?;
    let file = directory.join("cluster.json");
    if !file.exists() {
        let known = Known {
            tools: tools.directory().to_owned(),
            lan_port: free_port()?,
        };
        write_private(&file, &serde_json::to_vec(&known)?)?;
    }
    timed(say, "control plane", || control_plane(tools, directory, say))?;
    timed(say, "Jaeger", || start_jaeger(tools, directory))?;
    let cluster = Cluster::open(directory)?.context("the cluster that was just written down is gone")?;
    scope(|threads| {
        let start = |node| {
            threads.spawn({
                let cluster = &cluster;
                move || start_node(cluster, node, say)
            })
        };
        let threads: Vec<_> = (1..=nodes).map(start).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread that starts a node panicked"));
        ended.collect::<anyhow::Result<Vec<()>>>()
    })?;
    Ok(cluster)
}

/// Ends every process that is written down in `directory`, and removes it.
///
/// # Errors
/// One cannot be ended.
pub fn down(directory: &Path, say: &dyn Fn(&str)) -> anyhow::Result<()> {
    if !directory.exists() {
        say("there is no cluster");
        return Ok(());
    }
    let _alone = alone(directory)?;
    end_all(directory, say)
}

/// What is written down and how it is, as text; whether all of it runs.
///
/// # Errors
/// The records cannot be read.
pub fn status(directory: &Path) -> anyhow::Result<(String, bool)> {
    let Some(cluster) = Cluster::open(directory)? else {
        return Ok(("there is no cluster: `cargo xtask cluster up` makes one\n".to_owned(), false));
    };
    let records = cluster.records();
    let mut text = String::new();
    let mut all = true;
    for name in Process::names(&records)? {
        match Process::find(&name, &records)? {
            Some(process) => writeln!(text, "{name:24} runs, pid {}", process.pid())?,
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

/// One at a time: held until it is dropped.
fn alone(directory: &Path) -> anyhow::Result<File> {
    let path = directory.with_extension("lock");
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    file.lock().with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

fn end_what_cannot_stay(tools: &Tools, directory: &Path, say: &dyn Fn(&str)) -> anyhow::Result<()> {
    let records = directory.join("processes");
    let why = match Known::read(directory) {
        Ok(None) if Process::names(&records)?.is_empty() => return Ok(()),
        Ok(None) => "the cluster here was not written down whole",
        Err(_) => "what is written down about the cluster here cannot be read",
        Ok(Some(known)) if known.tools != tools.directory() => "the cluster here is made of other programs",
        Ok(Some(_)) if Process::find("etcd", &records)?.is_none() => "the cluster here has lost its etcd",
        Ok(Some(_)) => return Ok(()),
    };
    say(&format!("{why}: it is ended, and made anew"));
    end_all(directory, say)?;
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))
}

fn control_plane(tools: &Tools, directory: &Path, say: &dyn Fn(&str)) -> anyhow::Result<()> {
    let before: Vec<String> = Process::names(&directory.join("processes"))?;
    for name in &before {
        if Process::find(name, &directory.join("processes"))?.is_none() {
            say(&format!("{name} had ended: it is started again"));
        }
    }
    ControlPlane::start(tools, directory, Parts::Full, Lifetime::Detached).map(drop)
}

fn start_jaeger(tools: &Tools, directory: &Path) -> anyhow::Result<()> {
    let records = directory.join("processes");
    if Process::find(JAEGER, &records)?.is_some() {
        return Ok(());
    }
    let (command, ports) = jaeger::command(&tools.program(JAEGER))?;
    let log = directory.join("logs/jaeger.log");
    let mut process = Process::start(JAEGER, command, &log, &records, Lifetime::Detached)?;
    let jaeger = Jaeger::at(ports);
    for _ in 0..600 {
        process.expect_running(&log)?;
        if jaeger.answers() {
            return write_private(&directory.join("jaeger.json"), &serde_json::to_vec(&ports)?);
        }
        sleep(STEP);
    }
    bail!("Jaeger did not come up; see {}", log.display())
}

fn start_node(_cluster: &Cluster, _node: u8, _say: &dyn Fn(&str)) -> anyhow::Result<()> {
    let _ = (json!({}), kubelet_address(1), node_name(1));
    bail!("nodes")
}

fn end_all(directory: &Path, say: &dyn Fn(&str)) -> anyhow::Result<()> {
    let records = directory.join("processes");
    let mut names = Process::names(&records)?;
    // What the others ask goes last.
    names.sort_by_key(|name| (name == "etcd", name == "kube-apiserver"));
    for name in names {
        if let Some(mut process) = Process::find(&name, &records)? {
            process.end(TO_END)?;
            say(&format!("{name} ended"));
        }
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

fn timed<T>(say: &dyn Fn(&str), what: &str, step: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let begin = boot_now();
    let done = step().with_context(|| format!("bring up: {what}"))?;
    say(&format!("{what}: ready after {:.1} s", (boot_now() - begin) as f64 / 1e9));
    Ok(done)
}
