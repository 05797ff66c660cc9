//! The Debian package under a real systemd: installed, run, removed with its configuration kept, installed again, purged.
//! `cargo xtask test deb` builds the package and the emulated machine.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use epitaph_tests::cluster::node::{Node, NodeConfig};
use epitaph_tests::cluster::process::Lifetime;
use epitaph_tests::cluster::{MOST_NODES, Tools};
use epitaph_tests::timeout::{holds, until_within};
use serde_json::Value;

/// The cluster's own tests use the last.
const INDEX: u8 = MOST_NODES - 1;
/// The kernel verifies the probes at load: an emulated processor takes its time.
const LIMIT: Duration = Duration::from_secs(180);
const HEALTH: &str = "busybox wget -q -O - http://127.0.0.1:9464/healthz";
/// Of an unclean termination: docs/install.md.
const MESSAGE_ID: &str = "8f1d5a7c2b9e4d06a3c4e7f0b1925d38";
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
    let node = Node::start(&tools, &NodeConfig::machine(INDEX)?, dir.path(), Lifetime::Caller)?;
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

    a_failed_unit_is_found(&node)?;

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

/// As the documentation has it: the package's unit does not let the agent reach the socket of systemd's journal.
const FIELDS: &str = "mkdir -p /etc/systemd/system/epitaph.service.d && \
    printf '[Service]\\nRestrictAddressFamilies=AF_UNIX\\n' >/etc/systemd/system/epitaph.service.d/fields.conf && \
    systemctl daemon-reload && systemctl restart epitaph";
const NO_FIELDS: &str = "rm -r /etc/systemd/system/epitaph.service.d && systemctl daemon-reload && systemctl restart epitaph";

/// Where people look: the fields of systemd's journal, and the agent's own journal, which the commands find by the configuration.
fn a_failed_unit_is_found(node: &Node) -> anyhow::Result<()> {
    assert!(
        node.run("journalctl --unit epitaph --output cat")?.contains("AF_UNIX"),
        "the agent does not say that the fields are missing"
    );
    node.run(FIELDS)?;
    until_healthy(node)?;
    node.run("systemd-run --quiet --unit=fails sh -c 'sleep 5; exit 3'")?;
    let entry = logged(node, "EPITAPH_UNIT=fails.service")?;
    let field = |name: &str| entry[name].as_str().unwrap_or_default();
    assert_eq!(field("MESSAGE_ID"), MESSAGE_ID);
    assert_eq!(field("EPITAPH_VERDICT"), "nonzero-exit", "{entry}");
    assert_eq!(field("_SYSTEMD_UNIT"), "epitaph.service", "{entry}");
    // Warning, by syslog's numbers.
    assert_eq!(field("PRIORITY"), "4", "{entry}");
    assert!(field("MESSAGE").contains("exited by itself with code 3"), "{entry}");
    let trace = field("EPITAPH_TRACE_ID");
    assert_eq!(trace.len(), 32, "{entry}");
    for what in ["fails", "fails.service", &trace[..8]] {
        // Synced within a second.
        until_within(LIMIT, &format!("the story of {what}"), || {
            let why = node.run(&format!("epitaph why {what} 2>&1 || true"))?;
            Ok(holds(why.contains("nonzero-exit") && why.contains(trace), || why.clone()))
        })?;
    }
    let list = node.run("epitaph list --since 1h --unclean")?;
    assert!(list.contains("fails.service"), "{list}");
    assert!(
        !node
            .run("journalctl --unit epitaph --output cat")?
            .contains("epitaph::termination")
    );
    node.run(NO_FIELDS)?;
    until_healthy(node)
}

/// The agent's entry in systemd's journal.
fn logged(node: &Node, matching: &str) -> anyhow::Result<Value> {
    until_within(LIMIT, &format!("an entry with {matching}"), || {
        let found = node.run(&format!(
            "journalctl --no-pager --output json MESSAGE_ID={MESSAGE_ID} {matching}"
        ))?;
        match found.lines().next() {
            Some(line) => Ok(Ok(serde_json::from_str(line)?)),
            None => Ok(Err(node.run("journalctl --no-pager --unit epitaph")?)),
        }
    })
}

fn until_healthy(node: &Node) -> anyhow::Result<()> {
    let healthy = until_within(LIMIT, "the agent to answer /healthz", || {
        let answer = node.run(HEALTH);
        let is_so = answer.as_ref().is_ok_and(|answer| answer == "ok\n");
        Ok(holds(is_so, || format!("{answer:?}")))
    });
    healthy.with_context(|| {
        node.run("systemctl status --no-pager --full epitaph; journalctl --no-pager --unit epitaph")
            .unwrap_or_else(|error| format!("{error:#}"))
    })
}
