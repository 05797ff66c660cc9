//! The Debian package under a real systemd: installed, run, removed with its configuration kept, installed again, purged.
//! `cargo xtask test deb` builds the package and the emulated machine.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail};
use epitaph_tests::cluster::credentials::{Proof, kubeconfig};
use epitaph_tests::cluster::node::{Node, NodeConfig};
use epitaph_tests::cluster::process::Lifetime;
use epitaph_tests::cluster::{HOST_FOR_GUESTS, MOST_NODES, Tools, node_name};
use epitaph_tests::http::free_port;
use serde_json::json;

/// The cluster's own tests use the last.
const INDEX: u8 = MOST_NODES - 1;
/// The kernel verifies the probes at load: an emulated processor takes its time.
const STEPS: u32 = 240;
const HEALTH: &str = "busybox wget -q -O - http://127.0.0.1:9464/healthz";
/// What packages leave by Debian's rules or systemd's: caches, logs, dpkg's own records.
const SNAPSHOT: &str = "find / -xdev \\( -path /root -o -path /tmp -o -path /run -o -path /var/log -o -path /var/cache -o -path \
                        /var/tmp -o -path '/var/lib/dpkg/*' -o -path '/var/lib/systemd/*' \\) -prune -o -print | sort";

#[test]
fn a_package_is_installed_run_removed_and_purged() -> anyhow::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a test's own setting: no configuration file holds it")]
    let package = std::env::var_os("EPITAPH_DEB").map(PathBuf::from);
    let package = package.context("no EPITAPH_DEB: run `cargo xtask test deb`")?;
    let tools = Tools::named()?.context("no EPITAPH_CLUSTER_TOOLS: run `cargo xtask test deb`")?;
    let dir = tempfile::tempdir()?;
    // Nothing listens there: the machine is a Debian, not a node.
    let unreachable = kubeconfig(&format!("https://{HOST_FOR_GUESTS}:1"), "", &Proof::Token("none"));
    let config = NodeConfig {
        name: node_name(INDEX),
        index: INDEX,
        ca_pem: String::new(),
        kubelet_kubeconfig: unreachable.clone(),
        kube_proxy_kubeconfig: unreachable,
        lan: SocketAddrV4::new([239, 255, 77, 2].into(), free_port()?),
        memory_mib: 1024,
        feature_gates: BTreeMap::new(),
        kubelet: json!({}),
    };
    let node = Node::start(&tools, &config, dir.path(), Lifetime::Caller)?;
    node.run("systemctl stop kubelet kube-proxy containerd")?;
    node.shell().put(&package, "/root/epitaph.deb", 0o644)?;
    let before = node.run(SNAPSHOT)?;

    node.run("dpkg --install /root/epitaph.deb")?;
    until_healthy(&node)?;
    assert_eq!(node.run("systemctl is-enabled epitaph")?, "enabled\n");
    // Of root's own user, which reads the files of container runtimes, without a capability once the probes run.
    let pid = node.run("systemctl show --property MainPID --value epitaph")?;
    let status = node.run(&format!("cat /proc/{}/status", pid.trim()))?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    assert_eq!(field("Uid:"), "0\t0\t0\t0");
    assert_eq!(field("CapEff:"), "0000000000000000");
    assert_eq!(node.run("test -d /var/lib/epitaph && echo there")?, "there\n");
    // The role that has the bus is another user.
    assert_eq!(node.run("systemctl is-active epitaph-logind")?, "active\n");
    assert_eq!(node.run("ps -o user:32= -C epitaph | sort")?, "epitaph-logind\nroot\n");

    node.run("echo '# of an administrator' >>/etc/epitaph/epitaph.toml; dpkg --remove epitaph")?;
    let stopped = node.run("systemctl is-active epitaph || true; grep -c administrator /etc/epitaph/epitaph.toml")?;
    assert_eq!(stopped, "inactive\n1\n");
    node.run("dpkg --install --force-confold /root/epitaph.deb")?;
    until_healthy(&node)?;
    assert_eq!(node.run("grep -c administrator /etc/epitaph/epitaph.toml")?, "1\n");

    node.run("dpkg --purge epitaph")?;
    let after = node.run(SNAPSHOT)?;
    let left: Vec<&str> = after
        .lines()
        .filter(|line| !before.lines().any(|known| known == *line))
        .collect();
    assert!(left.is_empty(), "left after the purge: {left:?}");
    let gone: Vec<&str> = before
        .lines()
        .filter(|line| !after.lines().any(|known| known == *line))
        .collect();
    assert!(gone.is_empty(), "removed with the package: {gone:?}");
    Ok(())
}

fn until_healthy(node: &Node) -> anyhow::Result<()> {
    for _ in 0..STEPS {
        if node.run(HEALTH).is_ok_and(|answer| answer == "ok\n") {
            return Ok(());
        }
        sleep(Duration::from_millis(500));
    }
    bail!(
        "the agent did not answer /healthz: {}",
        node.run("systemctl status --no-pager --full epitaph; journalctl --no-pager --unit epitaph")
            .unwrap_or_else(|error| format!("{error:#}"))
    )
}
