//! AppArmor in force on a node: which profiles the agent's containers have, and whether the runtime's default profile reaches the system bus.
//!
//! dbus-daemon asks the kernel whether a sender's profile allows a message. Ubuntu's kernels mediate D-Bus, those of Debian 12 and 13 do not:
//! a parser then compiles profiles without rules of D-Bus, and the default profile denies nothing. So the expectation is measured: `busctl`
//! in the same profile.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::agent::{Agent, is_set, logind_is};
use super::deploy;
use super::node_name;
use super::play::{Stage, until};
use crate::cluster::node::Node;

/// containerd's.
const DEFAULT: &str = "cri-containerd.apparmor.d (enforce)";
const NONE: &str = "unconfined";
/// Whether that profile lets a program ask the bus.
const ASK: &str = "aa-exec --profile=cri-containerd.apparmor.d -- busctl call org.freedesktop.DBus /org/freedesktop/DBus \
                   org.freedesktop.DBus ListNames 2>&1 && echo allowed";
/// A rollout of the agents on emulated machines, and an attempt of the role, of which there is one every 30 s.
const SOON: Duration = Duration::from_secs(300);
/// What the role logs, with the value that mends it.
const REFUSED: &str = "a security module refuses";
const REMEDY: &str = "logind.appArmorProfile";

/// What is wrong with the profiles of the node's agent, as the chart installs it: only the container with the bus has none.
///
/// # Errors
/// AppArmor is not in force on the node, or no agent runs there.
pub fn confinement(stage: &Stage, node: &Node) -> anyhow::Result<Vec<String>> {
    let enabled = node.run("cat /sys/module/apparmor/parameters/enabled")?;
    ensure!(enabled.trim() == "Y", "{}: AppArmor is not in force", node.name());
    let profiles = Agent::of(stage, node)?.profiles()?;
    eprintln!("{}: {profiles:?}", node.name());
    let expected = [("agent", DEFAULT), ("logind", NONE)];
    let differs = expected
        .into_iter()
        .filter(|(name, profile)| profiles.get(*name).map(String::as_str) != Some(*profile));
    Ok(differs
        .map(|(name, profile)| format!("{}: container {name} is not {profile}: {profiles:?}", node.name()))
        .collect())
}

/// The default installation, then the container with the bus in the runtime's default profile; what is wrong, a line each.
///
/// # Errors
/// The chart is refused, or nothing answers in time.
pub fn play(stage: &Stage) -> anyhow::Result<Vec<String>> {
    let node = stage.cluster.node(&node_name(1))?;
    deploy::deploy(&stage.cluster)?;
    let played = play_on(stage, &node);
    // The other stories need the default installation.
    deploy::deploy(&stage.cluster)?;
    let mut problems = played?;
    until_logind_is(stage, &node, "connected")?;
    problems.extend(confinement(stage, &node)?);
    Ok(problems)
}

fn play_on(stage: &Stage, node: &Node) -> anyhow::Result<Vec<String>> {
    until_logind_is(stage, node, "connected")?;
    let mut problems = confinement(stage, node)?;
    let agent = Agent::of(stage, node)?;
    agent.is_ready()?;
    let metrics = agent.metrics()?;
    let probes: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("epitaph_probe_state{"))
        .collect();
    if !is_set(&metrics, "epitaph_probe_state", &["state=\"active\""])
        || is_set(&metrics, "epitaph_probe_state", &["state=\"failed\""])
    {
        problems.push(format!("probes of a confined agent: {probes:#?}"));
    }

    let by_default = json!({"logind": {"appArmorProfile": {"type": "RuntimeDefault"}}});
    deploy::deploy_with(&stage.cluster, by_default)?;
    let profiles = until(SOON, "the container with the bus in the default profile", || {
        let profiles = Agent::of(stage, node)?.profiles()?;
        Ok((profiles.get("logind").map(String::as_str) == Some(DEFAULT)).then_some(profiles))
    })?;
    let asked = node.run(&format!(
        "uname -r; ls -d /sys/kernel/security/apparmor/features/dbus 2>&1; {ASK} || true"
    ))?;
    eprintln!("{profiles:?}; busctl in the default profile: {}", asked.trim());
    if asked.trim().ends_with("allowed") {
        until_logind_is(stage, node, "connected").context("the default profile does not deny the bus here")?;
        return Ok(problems);
    }
    ensure!(
        asked.contains("denied") || asked.contains("AppArmor policy"),
        "busctl failed for another reason: {asked}"
    );
    until_logind_is(stage, node, "unavailable").context("the default profile denies the bus")?;
    let agent = Agent::of(stage, node)?;
    agent.is_ready().context("readiness does not depend on the bus")?;
    let log = agent.log("logind")?;
    eprintln!("container logind: {}", log.trim_end());
    for words in [REFUSED, REMEDY] {
        if !log.contains(words) {
            problems.push(format!("container logind did not log `{words}`: {log}"));
        }
    }
    Ok(problems)
}

fn until_logind_is(stage: &Stage, node: &Node, state: &str) -> anyhow::Result<()> {
    let mut last = String::new();
    let reached = until(SOON, &format!("logind is {state}"), || {
        last = Agent::of(stage, node)?.metrics()?;
        Ok(logind_is(&last, state).then_some(()))
    });
    let states = || {
        let lines = last.lines().filter(|line| line.starts_with("epitaph_logind_state"));
        lines.collect::<Vec<_>>().join("; ")
    };
    reached.with_context(states)
}
