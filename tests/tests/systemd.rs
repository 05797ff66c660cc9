//! Shutdowns of an emulated Debian with systemd and logind, by the commands that people use: what the agent of the package reports,
//! at once or after the next boot. `cargo xtask test systemd` builds the package and the machine; arguments choose cases.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph_tests::cluster::credentials::{Proof, kubeconfig};
use epitaph_tests::cluster::node::{Node, NodeConfig};
use epitaph_tests::cluster::process::Lifetime;
use epitaph_tests::cluster::{HOST_FOR_GUESTS, MOST_NODES, Tools, node_name};
use epitaph_tests::http::free_port;
use serde_json::{Value, json};

/// Not the one of the package's test.
const INDEX: u8 = MOST_NODES - 2;
/// The kernel verifies the probes at load: an emulated processor takes its time.
const STEPS: u32 = 480;
const STEP: Duration = Duration::from_millis(500);
/// Every report about the node that the journal has.
const REPORTS: &str = "cat /var/lib/epitaph/journal/*.journal | grep -a -o '{\"type\":\"node-shutdown\".*}' || true";

/// What happens to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// It runs on.
    Stays,
    /// It boots again by itself.
    Boots,
    /// It is off, and is switched on again.
    Off,
}

struct Case {
    name: &'static str,
    command: Command,
    then: Then,
    verdict: &'static str,
    /// The fact that proves the way, as a JSON pointer, and its value. None: only the verdict.
    shows: Option<(&'static str, Value)>,
}

enum Command {
    Shell(&'static str),
    /// The reset button.
    Reset,
    /// The power plug.
    Plug,
}

fn cases() -> Vec<Case> {
    let case = |name, command, then, verdict, shows| Case {
        name,
        command,
        then,
        verdict,
        shows,
    };
    let announced = |by: &str| Some(("/signs/announcement", json!(by)));
    vec![
        case(
            "spoofed",
            Command::Shell(
                "busctl emit /org/freedesktop/login1 org.freedesktop.login1.Manager PrepareForShutdown b true; sleep 2; \
                 busctl emit /org/freedesktop/login1 org.freedesktop.login1.Manager PrepareForShutdown b false",
            ),
            Then::Stays,
            "spoofed",
            None,
        ),
        case(
            "cancelled",
            Command::Shell("shutdown -r +10; sleep 15; shutdown -c"),
            Then::Stays,
            "cancelled",
            None,
        ),
        case(
            "systemctl-reboot",
            Command::Shell("systemctl reboot"),
            Then::Boots,
            "graceful",
            announced("PrepareForShutdown"),
        ),
        case(
            "shutdown-reboot-now",
            Command::Shell("shutdown -r now"),
            Then::Boots,
            "graceful",
            announced("PrepareForShutdown"),
        ),
        case(
            "systemctl-poweroff",
            Command::Shell("systemctl poweroff"),
            Then::Off,
            "graceful",
            announced("PrepareForShutdown"),
        ),
        case(
            "force-reboot",
            Command::Shell("systemctl --force reboot"),
            Then::Boots,
            "bypassed",
            None,
        ),
        case(
            "reboot-f",
            Command::Shell("sync; reboot -f"),
            Then::Boots,
            "unannounced",
            None,
        ),
        case(
            "sysrq-b",
            Command::Shell("echo b >/proc/sysrq-trigger"),
            Then::Boots,
            "unannounced",
            None,
        ),
        case("reset-button", Command::Reset, Then::Boots, "unannounced", None),
        case("power-plug", Command::Plug, Then::Off, "unannounced", None),
    ]
}

#[test]
fn shutdowns_are_reported_as_they_were() -> anyhow::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's own settings: no configuration file holds them"
    )]
    let (package, only) = (
        std::env::var_os("EPITAPH_DEB").map(PathBuf::from),
        std::env::var("EPITAPH_SHUTDOWNS").unwrap_or_default(),
    );
    let package = package.context("no EPITAPH_DEB: run `cargo xtask test systemd`")?;
    let tools = Tools::named()?.context("no EPITAPH_CLUSTER_TOOLS: run `cargo xtask test systemd`")?;
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let cases = cases();
    for name in &only {
        let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
        ensure!(names.contains(name), "no case `{name}`; the cases are {}", names.join(", "));
    }
    let dir = tempfile::tempdir()?;
    let mut node = machine(&tools, dir.path())?;
    node.run("systemctl disable --now kubelet kube-proxy containerd")?;
    node.shell().put(&package, "/root/epitaph.deb", 0o644)?;
    node.run("dpkg --install /root/epitaph.deb")?;
    println!("systemd: {}", node.run("systemctl --version | head -n 1")?.trim());
    let mut wrong = Vec::new();
    for case in cases.iter().filter(|case| only.is_empty() || only.contains(&case.name)) {
        let found = play(&mut node, case).with_context(|| format!("{}: the machine", case.name))?;
        let verdict = found["verdict"].as_str().unwrap_or("none");
        println!(
            "shutdown {}: {verdict}: {}",
            case.name,
            found["sentence"].as_str().unwrap_or_default()
        );
        if verdict != case.verdict {
            wrong.push(format!("{}: {verdict}, expected {}: {found}", case.name, case.verdict));
        }
        if let Some((pointer, expected)) = &case.shows
            && found.pointer(pointer) != Some(expected)
        {
            wrong.push(format!("{}: {pointer} is {:?}", case.name, found.pointer(pointer)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn machine(tools: &Tools, dir: &std::path::Path) -> anyhow::Result<Node> {
    // Nothing listens there: the machine is a Debian, not a node of a cluster.
    let unreachable = kubeconfig(&format!("https://{HOST_FOR_GUESTS}:1"), "", &Proof::Token("none"));
    let config = NodeConfig {
        name: node_name(INDEX),
        index: INDEX,
        ca_pem: String::new(),
        kubelet_kubeconfig: unreachable.clone(),
        kube_proxy_kubeconfig: unreachable,
        lan: SocketAddrV4::new([239, 255, 77, 3].into(), free_port()?),
        memory_mib: 1024,
        feature_gates: BTreeMap::new(),
        kubelet: json!({}),
    };
    Node::start(tools, &config, dir, Lifetime::Caller)
}

/// Plays the case; returns the one new report about the node.
fn play(node: &mut Node, case: &Case) -> anyhow::Result<Value> {
    until_observing(node)?;
    let known = reports(node)?.len();
    let boot = node.boot_id()?;
    match case.command {
        // The shell's connection ends with the machine: the command runs on its own.
        Command::Shell(command) if case.then == Then::Stays => {
            node.run(command)?;
        }
        Command::Shell(command) => {
            node.run(&format!(
                "systemd-run --quiet --collect sh -c {}",
                epitaph_tests::cluster::node::quoted(&format!("sleep 2; {command}"))
            ))?;
        }
        Command::Reset => node.reset()?,
        Command::Plug => node.power_off()?,
    }
    match case.then {
        Then::Stays => {}
        Then::Boots => node.until_up(Some(&boot))?,
        Then::Off => {
            for _ in 0..STEPS {
                if !node.runs() {
                    break;
                }
                sleep(STEP);
            }
            ensure!(!node.runs(), "the machine is not off");
            node.power_on()?;
            node.until_up(Some(&boot))?;
        }
    }
    for _ in 0..STEPS {
        let found = reports(node)?;
        if found.len() > known {
            ensure!(found.len() == known + 1, "more than one report: {found:?}");
            return found.into_iter().next_back().context("a report");
        }
        sleep(STEP);
    }
    bail!("no report; {}", log(node))
}

fn reports(node: &Node) -> anyhow::Result<Vec<Value>> {
    let text = node.run(REPORTS)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The agent observes, and knows logind.
fn until_observing(node: &Node) -> anyhow::Result<()> {
    const METRICS: &str = "busybox wget -q -O - http://127.0.0.1:9464/metrics | grep epitaph_logind_state || true";
    for _ in 0..STEPS {
        let state = node.run(METRICS)?;
        if state
            .lines()
            .any(|line| line.contains("state=\"connected\"") && line.ends_with(" 1"))
        {
            return Ok(());
        }
        sleep(STEP);
    }
    bail!("the agent does not observe logind; {}", log(node))
}

fn log(node: &Node) -> String {
    node.run("systemctl status --no-pager --full epitaph epitaph-logind; journalctl --no-pager --boot --unit epitaph --unit epitaph-logind")
        .unwrap_or_else(|error| format!("{error:#}"))
}
