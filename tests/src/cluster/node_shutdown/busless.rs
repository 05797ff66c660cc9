//! A node without a system bus when the agent starts, as k3d has it: the agent is ready, names what is missing, and
//! reports terminations. Once there is a bus, shutdowns are observed.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::super::agent::{Agent, logind_is};
use super::super::node_name;
use super::super::play::{Stage, text, until};
use super::super::stories::NAMESPACE;
use super::super::stories::manifest::{merge, victim};
use super::{NODE, SOON, asked, until_ready};
use crate::cluster::node::Node;
use crate::traces::{kind_of, tag};

/// The kubelet makes the directory for the container with the bus.
const MASK: &str = "systemctl mask dbus.socket dbus.service && sync";
/// Also after a story that was cut.
pub const UNMASK: &str = "systemctl unmask dbus.socket dbus.service";
/// What the role logs, once, and the doctor names.
const MISSING: &str = "no system bus at /run/dbus/system_bus_socket";
/// From the end of a pod to its trace.
const TO_REPORT: Duration = Duration::from_secs(150);

/// Boots the node without a bus, plays a pod, and starts the bus; what is wrong, a line each.
pub fn play(stage: &Stage, name: &str) -> anyhow::Result<Vec<String>> {
    let mut machine = stage.cluster.node(&node_name(NODE))?;
    let before = machine.boot_id()?;
    machine.run(MASK)?;
    machine.reset()?;
    machine.shell().forget();
    machine.until_up(Some(&before))?;
    until_ready(stage, &machine)?;
    let bus = machine.run("ls /run/dbus 2>/dev/null; systemctl is-active dbus.socket dbus.service systemd-logind || true")?;
    eprintln!(
        "{name}: {} has no bus: {}",
        machine.name(),
        bus.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    let mut problems = Vec::new();

    until(SOON, "an agent that is ready, without a bus", || {
        let agent = Agent::of(stage, &machine)?;
        agent.is_ready()?;
        Ok(logind_is(&agent.metrics()?, "unavailable").then_some(()))
    })?;
    asked::until_schedulable(stage, machine.name())?;
    problems.extend(reports(stage, &machine, &format!("{name}-pod"))?);
    // By now the role has tried several times.
    let log = Agent::of(stage, &machine)?.log("logind")?;
    eprintln!("{name}: container logind: {}", log.trim_end());
    let lines = log.lines().filter(|line| line.contains(MISSING)).count();
    if lines != 1 {
        problems.push(format!("{lines} lines with `{MISSING}`: {log}"));
    }
    let report = asked::doctor(stage, &machine)?;
    let mut findings = report["findings"].as_array().into_iter().flatten();
    let logind = findings.find(|finding| finding["check"] == "logind");
    let is_unknown = |finding: &Value| finding["status"] == "unknown" && text(&finding["message"]).contains(MISSING);
    eprintln!("{name}: the doctor: {logind:?}");
    if !logind.is_some_and(is_unknown) {
        problems.push(format!("the doctor does not name the missing bus: {report}"));
    }

    // In the directory that the kubelet made, which the container has had since its start.
    machine.run(&format!(
        "{UNMASK} && systemctl start dbus.socket && (systemctl reset-failed systemd-logind || true) && systemctl restart systemd-logind"
    ))?;
    until(SOON, "the source of shutdowns is active", || {
        Ok(logind_is(&Agent::of(stage, &machine)?.metrics()?, "connected").then_some(()))
    })?;
    Ok(problems)
}

/// A pod of the node ends, and has its trace.
fn reports(stage: &Stage, node: &Node, own: &str) -> anyhow::Result<Vec<String>> {
    let mut pod = victim(own, 20, &["handle-for", "1", "0"]);
    merge(
        &mut pod["spec"],
        json!({"nodeSelector": {"kubernetes.io/hostname": node.name()}}),
    );
    let here = |args: &[&str]| stage.kubectl.run(&[&["-n", NAMESPACE], args].concat());
    here(&["delete", "pod", own, "--ignore-not-found", "--grace-period=1"])?;
    stage.apply(&[pod])?;
    here(&["wait", "--for=condition=Ready", &format!("pod/{own}"), "--timeout=300s"])?;
    let uid = here(&["get", "pod", own, "-o", "jsonpath={.metadata.uid}"])?;
    here(&["delete", "pod", own, "--timeout=120s"])?;
    let root = until(TO_REPORT, &format!("the trace of {own}"), || {
        let traces = stage.jaeger.traces_with("k8s.pod.uid", &uid)?;
        let mut spans = traces
            .iter()
            .flat_map(|trace| trace["spans"].as_array().into_iter().flatten());
        Ok(spans.find(|span| kind_of(span) == "pod.termination").cloned())
    })
    .context("a node without a bus reports terminations")?;
    eprintln!("{own}: {}", text(&tag(&root, "epitaph.sentence")));
    let verdict = tag(&root, "epitaph.verdict");
    Ok((verdict != "clean")
        .then(|| format!("{own}: {verdict}"))
        .into_iter()
        .collect())
}
