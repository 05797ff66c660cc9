//! Images of a disk that was cut from its power, as the disks of a machine that boots afterwards: an emulated Debian, whose agent goes on
//! with the journal of another boot. `cargo xtask test journal` builds the machine.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::node::{Node, NodeConfig};
use epitaph_tests::cluster::process::Lifetime;
use epitaph_tests::cluster::{HOST_FOR_GUESTS, MOST_NODES, Tools};
use epitaph_tests::http::free_port;
use epitaph_tests::timeout::{holds, until_within};
use serde_json::Value;

use crate::power_cuts::{Received, Truth, delivered, none_falsely_clean};
use crate::stage::{Collector, Report};

/// Not one of the machines of other tests.
const INDEX: u8 = MOST_NODES - 3;
const PROGRAM: &str = "/root/epitaph";
const READY: &str = "busybox wget -q -O - http://127.0.0.1:9464/readyz";
/// The kernel verifies the probes at load: an emulated processor takes its time.
const LIMIT: Duration = Duration::from_secs(300);

/// An image, and what a reader finds in it.
pub struct Cut {
    pub image: PathBuf,
    pub context: String,
    pub kept: Vec<Report>,
    /// This container got its stop signal before the cut, and had not terminated.
    pub open: Option<String>,
}

/// The agent's program without its symbols; None: no machine was asked for.
pub fn program() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test's own setting: no configuration file holds it")]
    let program = std::env::var_os("EPITAPH_TO_BOOT");
    program.map(PathBuf::from)
}

/// Each report of the images is there after the boot and is delivered, what was open is closed, and nothing is clean that was not.
pub fn boot(program: &Path, cuts: &[Cut], received: &[Received], truth: &Truth) -> anyhow::Result<()> {
    let tools = Tools::named()?.context("no EPITAPH_CLUSTER_TOOLS: run `cargo xtask test journal`")?;
    let dir = tempfile::tempdir()?;
    let node = Node::start(&tools, &NodeConfig::machine(INDEX)?, dir.path(), Lifetime::Caller)?;
    node.run("systemctl stop kubelet kube-proxy containerd")?;
    node.shell().put(program, PROGRAM, 0o755)?;
    for (number, cut) in cuts.iter().enumerate() {
        let closed = resumed(&node, number, cut, received, truth).with_context(|| cut.context.clone())?;
        println!(
            "booted with {}: {} reports in it, {closed} more after the boot",
            cut.context,
            cut.kept.len()
        );
    }
    Ok(())
}

/// Returns how many terminations the agent closed that were open in the image.
fn resumed(node: &Node, number: usize, cut: &Cut, received: &[Received], truth: &Truth) -> anyhow::Result<usize> {
    let port = free_port()?;
    let collector = Collector::start(port)?;
    let name = format!("cut-{number}");
    let disk = node.plug(&cut.image, &name)?;
    let journal = format!("/mnt/{name}/journal");
    node.run(&format!("mkdir /mnt/{name} && mount -t ext4 -o noatime {disk} /mnt/{name}"))?;
    node.run(&format!(
        "systemd-run --quiet --unit={name} {PROGRAM} agent --kubernetes off --listen 127.0.0.1:9464 --set journal.directory={journal} \
         --otlp http://{HOST_FOR_GUESTS}:{port} --otlp-protocol http/protobuf --set otlp.metrics=false"
    ))?;
    let log = || {
        node.run(&format!("journalctl --no-pager --unit {name}"))
            .unwrap_or_else(|error| format!("{error:#}"))
    };
    until("ready", || Ok(node.run(READY).is_ok())).with_context(log)?;
    until("delivered", || Ok(delivered(&cut.kept, &collector, received))).with_context(log)?;
    let listed = || -> anyhow::Result<Vec<Value>> {
        let text = node.run(&format!("{PROGRAM} list --output json --journal {journal}"))?;
        Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    };
    // What the agent closes itself comes right after the start: before the report of a unit that fails now.
    let marker = format!("marker-{name}");
    node.run(&format!("systemd-run --quiet --collect --unit={marker} sh -c 'exit 3'"))?;
    until("the marker's report", || {
        let of_it = |report: &Value| report["subject"].to_string().contains(&marker);
        Ok(listed()?.iter().any(of_it))
    })
    .with_context(log)?;
    let after = listed()?;
    for report in &cut.kept {
        ensure!(after.contains(&report.json), "lost with the boot: {}", report.json);
    }
    none_falsely_clean(after.iter(), truth)?;
    if let Some(open) = &cut.open {
        let closed = after.iter().find(|report| report["subject"]["id"] == open.as_str());
        let closed = closed.with_context(|| format!("{open} is not closed: {after:?}"))?;
        let says = closed["sentence"].as_str().unwrap_or_default();
        // Of an image from after the agent's end, or before.
        let dates = ["epitaph's last evidence is", "the node went down"]
            .iter()
            .any(|it| says.contains(it));
        ensure!(
            closed["verdict"] == "unknown" && dates && says.contains("SIGTERM"),
            "{closed}"
        );
        println!("closed after the boot: {says}");
    }
    let of_plays: Vec<&str> = after
        .iter()
        .filter_map(|report| report["subject"]["id"].as_str())
        .filter(|subject| truth.contains_key(*subject))
        .collect();
    let distinct: HashSet<&str> = of_plays.iter().copied().collect();
    ensure!(distinct.len() == of_plays.len(), "two roots of one termination: {of_plays:?}");
    node.run(&format!("systemctl stop {name}"))?;
    ensure!(
        node.run(&format!("systemctl is-failed {name} || true"))?.trim() != "failed",
        "the agent failed: {}",
        log()
    );
    // The machine's own units may have ended meanwhile.
    let at_end = listed()?;
    for report in &after {
        ensure!(at_end.contains(report), "gone at the agent's end: {report}");
    }
    node.run(&format!("umount /mnt/{name}"))?;
    let known = cut.kept.iter().filter(|report| truth.contains_key(report.subject())).count();
    Ok(of_plays.len() - known)
}

fn until(what: &str, mut done: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    until_within(LIMIT, what, || Ok(holds(done()?, || "not yet".to_owned())))
}
