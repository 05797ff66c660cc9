//! What a node's machine can be made to do, on one of its own that no cluster knows.

use std::collections::BTreeMap;
use std::fs;

use anyhow::ensure;
use epitaph_tests::cluster::credentials::{Proof, kubeconfig};
use epitaph_tests::cluster::node::{Node, NodeConfig};
use epitaph_tests::cluster::process::Lifetime;
use epitaph_tests::cluster::{Cluster, HOST_FOR_GUESTS, MOST_NODES, node_name};
use epitaph_tests::http::free_port;
use serde_json::json;

pub fn a_machine_is_commanded_paused_reset_and_unplugged() -> anyhow::Result<()> {
    let cluster = Cluster::named()?;
    let dir = tempfile::tempdir()?;
    // Nothing listens there: the kubelet of this node waits.
    let unreachable = kubeconfig(&format!("https://{HOST_FOR_GUESTS}:1"), "", &Proof::Token("none"));
    let config = NodeConfig {
        name: node_name(MOST_NODES),
        index: MOST_NODES,
        ca_pem: cluster.control_plane()?.authority()?,
        kubelet_kubeconfig: unreachable.clone(),
        kube_proxy_kubeconfig: unreachable,
        lan: std::net::SocketAddrV4::new([239, 255, 77, 1].into(), free_port()?),
        memory_mib: 1024,
        feature_gates: BTreeMap::new(),
        kubelet: json!({ "maxPods": 7 }),
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
