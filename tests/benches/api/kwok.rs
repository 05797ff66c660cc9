//! kwok, and the objects that it plays with.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use epitaph_tests::cluster::process::{Lifetime, Process};
use kube::Client;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::Value;
use tokio::task::JoinSet;

/// Requests of this program at the same time.
const AT_ONCE: usize = 16;

/// One kwok of that name with these stages, until it is dropped.
pub fn start(
    kwok: &Path,
    name: &str,
    directory: &Path,
    admin: &Path,
    stages: &Path,
    flags: &[&str],
) -> anyhow::Result<Process> {
    let mut command = Command::new(kwok);
    command
        .arg(format!("--kubeconfig={}", admin.display()))
        .arg(format!("--config={}", stages.display()))
        .args(flags)
        // kwok serves nothing: no port is open beyond the loopback.
        .args(["--server-address=", "--node-port=0"]);
    let (log, records) = (directory.join(format!("{name}.log")), directory.join(name));
    std::fs::create_dir_all(&records)?;
    Process::start(name, command, &log, &records, Lifetime::Caller)
}

/// Creates one object; as the API server shows it then.
pub async fn post(client: &Client, path: &str, body: &Value) -> anyhow::Result<Value> {
    let request = Request::new(path).create(&PostParams::default(), body.to_string().into_bytes())?;
    let answer = client
        .request_text(request)
        .await
        .with_context(|| format!("POST {path}: {body}"))?;
    Ok(serde_json::from_str(&answer)?)
}

/// Creates them, several at a time.
pub async fn post_all(client: &Client, objects: impl Iterator<Item = (String, Value)>) -> anyhow::Result<()> {
    let mut running: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for (path, body) in objects {
        while running.len() >= AT_ONCE {
            if let Some(done) = running.join_next().await {
                done??;
            }
        }
        let client = client.clone();
        running.spawn(async move { post(&client, &path, &body).await.map(drop) });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(())
}
