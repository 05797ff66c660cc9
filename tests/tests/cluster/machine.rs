//! What a node's machine can be made to do, on one of its own that no cluster knows.

use std::fs;

use anyhow::ensure;
use epitaph_tests::cluster::node::{Node, NodeConfig};
use epitaph_tests::cluster::process::Lifetime;
use epitaph_tests::cluster::{Cluster, MOST_NODES};
use serde_json::json;

pub fn a_machine_is_commanded_paused_reset_and_unplugged() -> anyhow::Result<()> {
    let cluster = Cluster::named()?;
    let dir = tempfile::tempdir()?;
    let config = NodeConfig {
        ca_pem: cluster.control_plane()?.authority()?,
        kubelet: json!({ "maxPods": 7 }),
        ..NodeConfig::machine(MOST_NODES)?
    };
    let mut node = Node::start(cluster.tools(), &config, dir.path(), Lifetime::Caller)?;
    play(&mut node, dir.path())?;
    node.power_off()?;
    assert!(!node.runs());
    Ok(())
}

fn play(node: &mut Node, dir: &std::path::Path) -> anyhow::Result<()> {
    assert_eq!(node.run("hostname; id -u")?, format!("{}\n0\n", node.name()));
    assert_eq!(
        node.run("grep -o '\"maxPods\": 7' /etc/kubernetes/kubelet.json")?,
        "\"maxPods\": 7\n"
    );
    let failed = node
        .shell()
        .exec("echo out; echo err >&2; exit 3", std::process::Stdio::null())?;
    assert_eq!(
        (failed.status.code(), &*failed.stdout, &*failed.stderr),
        (Some(3), "out\n", "err\n")
    );

    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    fs::write(dir.join("there"), &bytes)?;
    node.shell().put(&dir.join("there"), "/root/it's here", 0o640)?;
    assert_eq!(node.run("stat -c %a \"/root/it's here\"; sync")?, "640\n");
    node.shell().get("/root/it's here", &dir.join("back"))?;
    ensure!(fs::read(dir.join("back"))? == bytes, "a file came back another");

    node.run("systemctl stop kubelet containerd; date --set 'now -90 sec'")?;
    let ahead = node.clock_ahead()?;
    ensure!((-91.0..-89.0).contains(&ahead), "a clock set 90 s back is {ahead} s ahead");
    node.pause()?;
    node.resume()?;
    let ahead = node.clock_ahead()?;
    ensure!(ahead.abs() < 1.0, "after a pause the clock is {ahead} s ahead");

    let before = node.boot_id()?;
    node.reset()?;
    node.until_up(Some(&before))?;
    ensure!(node.boot_id()? != before, "a reset is another boot");
    // What was synced is on the disk.
    assert_eq!(node.run("stat -c %s \"/root/it's here\"")?, "70000\n");
    Ok(())
}
