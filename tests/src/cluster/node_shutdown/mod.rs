//! Shutdowns of a node of a real cluster, with logind and the real kubelet: what the node's trace shows, and the traces of its pods. The
//! commands that bypass logind are played without a kubelet: `tests/tests/systemd`.

mod asked;
mod busless;
mod lossy;
mod shown;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::apparmor;
use super::deploy::{self, RELEASE};
use super::play::{Stage, text, until};
use super::stories::NAMESPACE;
use super::stories::manifest::{merge, victim};
use super::{Cluster, node_name};
use crate::cluster::node::{KUBELET_CONFIG, Node};
use crate::sys::boot_now;
use crate::timeout::{holds, until_within};
use asked::{NodeSight, Pod};

/// An emulated machine that boots, or starts many pods.
const SOON: Duration = Duration::from_secs(300);
/// The node that is shut down; the other one takes its pods.
const NODE: u8 = 2;
const OTHER: u8 = 1;
const REPLICAS: usize = 6;
/// Below `/usr/lib`, as the package unattended-upgrades ships it: sorts behind the kubelet's own `99-kubelet.conf`.
const DROP_IN: &str = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";
const MASK: &str = "/etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";

/// More than the node has processors, until its end.
const BUSY: &str =
    "systemd-run --quiet --collect --unit=busy sh -c 'for i in 1 2 3 4 5 6; do (while :; do :; done) & done; wait'";
/// logind's message.
const ANNOUNCED: &str = "PrepareForShutdown";
const POWER_OFF: &str = "systemctl poweroff";

/// What makes a node go down without the kubelet's periods, and what is said of it.
struct Down {
    command: &'static str,
    verdict: &'static str,
    announcement: &'static str,
    sentence: &'static str,
}

/// By logind, which announces it.
const BY_LOGIND: Down = Down {
    command: POWER_OFF,
    verdict: "unprotected",
    announcement: ANNOUNCED,
    sentence: "shutdownGracePeriod is 0 (the default)",
};
/// By systemd alone: logind announces nothing.
const BY_SYSTEMD: Down = Down {
    command: "systemctl start --no-block poweroff.target",
    verdict: "bypassed",
    announcement: "JobNew",
    sentence: "the power-off bypassed logind: systemd began a job for poweroff.target",
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Both periods, six replicas over two nodes, and a critical pod.
    Graceful,
    /// A logind drop-in of another package keeps the kubelet from its lock, until the doctor's remedy is followed.
    DropIn,
    /// Periods by pod priority; a pod outlives its phase.
    OutlivesItsPhase,
    /// The kubelet's default: no periods.
    ZeroPeriods,
    /// The same on a busy node whose shutdown logind does not announce, as somebody started systemd's target.
    Unannounced,
    /// A forged signal, which the kubelet believes; then a real shutdown in the same boot.
    Spoofed,
    /// The plug is pulled in the kubelet's first phase, while a pod is ending.
    CutInPhase,
    /// A server that drains behind a closed listener, while its Service sends clients to it.
    LosesRequests,
    /// The node boots without a system bus, and gets it later; then as the first.
    WithoutABus,
}

impl Case {
    pub const ALL: [Case; 9] = [
        Case::Graceful,
        Case::DropIn,
        Case::OutlivesItsPhase,
        Case::ZeroPeriods,
        Case::Unannounced,
        Case::Spoofed,
        Case::CutInPhase,
        Case::LosesRequests,
        Case::WithoutABus,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Case::Graceful => "graceful",
            Case::DropIn => "drop-in",
            Case::OutlivesItsPhase => "outlives-its-phase",
            Case::ZeroPeriods => "zero-periods",
            Case::Unannounced => "unannounced",
            Case::Spoofed => "spoofed",
            Case::CutInPhase => "cut-in-phase",
            Case::LosesRequests => "loses-requests",
            Case::WithoutABus => "without-a-bus",
        }
    }

    /// The kubelet's configuration. A boot undoes it.
    fn kubelet(self) -> Value {
        match self {
            Case::Graceful | Case::DropIn | Case::Spoofed | Case::CutInPhase | Case::LosesRequests | Case::WithoutABus => {
                json!({"shutdownGracePeriod": "60s", "shutdownGracePeriodCriticalPods": "30s"})
            }
            Case::OutlivesItsPhase => json!({"shutdownGracePeriodByPodPriority": [
                {"priority": 0, "shutdownGracePeriodSeconds": 20},
                {"priority": PRIORITY, "shutdownGracePeriodSeconds": 20},
                {"priority": 2_000_000_000, "shutdownGracePeriodSeconds": 20},
            ]}),
            Case::ZeroPeriods | Case::Unannounced => {
                json!({"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"})
            }
        }
    }
}

/// Of the PriorityClass `story-important`.
const PRIORITY: i32 = 1000;

/// What the traces do not show, a line each.
///
/// # Errors
/// The story could not be played.
pub fn play(stage: &Stage, case: Case) -> anyhow::Result<Vec<String>> {
    let name = format!("shutdown-{}", case.name());
    install(&stage.cluster, case)?;
    let played = play_here(stage, case, &name);
    // Whatever happened, the node is whole for what follows; its boot brings the kubelet's configuration back.
    let restored = restore(stage);
    for kind in ["deployment", "pods"] {
        let selector = format!("shutdown={name}");
        let args = ["-n", NAMESPACE, "delete", kind, "-l", &selector, "--wait=false"];
        stage.kubectl.run(&args)?;
    }
    let problems = played?;
    restored?;
    Ok(problems)
}

fn play_here(stage: &Stage, case: Case, name: &str) -> anyhow::Result<Vec<String>> {
    let node = stage.cluster.node(&node_name(NODE))?;
    // Times of agents and observer are those of their nodes, whose clocks drift under emulation.
    for index in [NODE, OTHER] {
        stage.cluster.node(&node_name(index))?.set_clock()?;
    }
    asked::observer_on(stage, &node_name(OTHER))?;
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "story-important"}, "value": PRIORITY,
    });
    stage.kubectl.apply(&class.to_string())?;
    let mut problems = match case {
        Case::WithoutABus => busless::play(stage, name)?,
        _ => Vec::new(),
    };
    if case == Case::DropIn {
        node.run(&format!(
            "mkdir -p $(dirname {DROP_IN}) && printf '[Login]\\nInhibitDelayMaxSec=30\\n' >{DROP_IN} && rm -f {MASK} && \
             systemctl kill -s HUP systemd-logind"
        ))?;
    }
    node.configure_kubelet(&case.kubelet())?;
    let is_ready: &[(&str, &str)] = match case {
        Case::DropIn => &[("delay", "not_ready"), ("lock", "not_ready")],
        // Without periods the kubelet takes no lock, which `periods` reports.
        Case::ZeroPeriods | Case::Unannounced => &[("periods", "not_ready"), ("lock", "unknown")],
        _ => &[("periods", "ready"), ("delay", "ready"), ("lock", "ready")],
    };
    asked::until_agent_knows(stage, &node, is_ready)?;
    problems.extend(apparmor::confinement(stage, &node)?);
    asked::until_schedulable(stage, node.name())?;
    stage.apply(&workloads(case, name))?;
    let before = asked::until_all_run(stage, name, REPLICAS)?;
    let here = |pods: &BTreeMap<String, Pod>| -> Vec<Pod> {
        let its = pods.values().filter(|pod| pod.node == node.name());
        its.cloned().collect()
    };
    eprintln!("{name}: {} of {} pods on {}", here(&before).len(), before.len(), node.name());
    ensure!(!here(&before).is_empty(), "no pod runs on {}", node.name());
    problems.extend(match case {
        Case::Graceful => graceful(stage, name, &here(&before)),
        Case::WithoutABus => graceful_again(stage, name),
        Case::DropIn => drop_in(stage, name, &here(&before)),
        Case::OutlivesItsPhase => outlives(stage, name, &here(&before)),
        Case::ZeroPeriods => zero_periods(stage, name, &here(&before), &BY_LOGIND),
        Case::Unannounced => {
            node.run(BUSY)?;
            zero_periods(stage, name, &here(&before), &BY_SYSTEMD)
        }
        Case::Spoofed => spoofed(stage, name, &here(&before)),
        Case::CutInPhase => cut_in_phase(stage, name, &here(&before)),
        Case::LosesRequests => lossy::play(stage, name, &here(&before)),
    }?);
    Ok(problems)
}

/// The node's trace alone.
fn graceful_again(stage: &Stage, name: &str) -> anyhow::Result<Vec<String>> {
    let off = power_off(stage, name)?;
    power_on(stage, name)?;
    let (spans, mut problems) = shown::root(stage, &off, "graceful")?;
    problems.extend(shown::kubelets_lock(&spans));
    Ok(problems)
}

fn graceful(stage: &Stage, name: &str, gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    let off = power_off(stage, name)?;
    let replacements = asked::until_replaced(stage, name, &node_name(OTHER), REPLICAS, gone)?;
    power_on(stage, name)?;
    let mut problems = shown::graceful(stage, &off, gone)?;
    let lost = gone.iter().filter(|pod| pod.is_of_deployment).count();
    if replacements != lost {
        problems.push(format!("{replacements} replacements of {lost} pods"));
    }
    Ok(problems)
}

fn drop_in(stage: &Stage, name: &str, gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    let off = power_off(stage, name)?;
    power_on(stage, name)?;
    let (_, mut problems) = shown::without_lock(
        stage,
        &off,
        ("unprotected", ANNOUNCED),
        "the kubelet needs 60 s, and logind allows 30 s (InhibitDelayMaxSec)",
    )?;
    problems.extend(shown::of_pods_cut(stage, &off, gone)?);

    let node = stage.cluster.node(&node_name(NODE))?;
    // The boot has undone it.
    node.configure_kubelet(&Case::DropIn.kubelet())?;
    let remedy = asked::doctors_remedy(stage, &node, "inhibitor delay", DROP_IN)?;
    eprintln!("{name}: the doctor's remedy: {remedy}");
    node.run(&remedy)?;
    let is_ready = [("delay", "ready"), ("lock", "ready")];
    asked::until_agent_knows(stage, &node, &is_ready)?;
    node.set_clock()?;
    asked::observer_on(stage, &node_name(OTHER))?;
    asked::until_all_run(stage, name, REPLICAS)?;
    let off = power_off(stage, name)?;
    power_on(stage, name)?;
    let (spans, found) = shown::root(stage, &off, "graceful")?;
    problems.extend(found);
    problems.extend(shown::kubelets_lock(&spans));
    Ok(problems)
}

fn outlives(stage: &Stage, name: &str, gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    let off = power_off(stage, name)?;
    power_on(stage, name)?;
    shown::truncated(stage, &off, slow(gone)?)
}

fn cut_in_phase(stage: &Stage, name: &str, gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    let slow = slow(gone)?;
    let mut machine = stage.cluster.node(&node_name(NODE))?;
    let boot = ask_to_power_off(&machine, name, POWER_OFF)?;
    let others: Vec<&Pod> = gone.iter().filter(|pod| pod.is_of_deployment).collect();
    let node = until(SOON, "the other pods are over", || {
        ensure!(machine.runs(), "{} is off before the plug is pulled", machine.name());
        let node = asked::node(stage, machine.name())?;
        let is_now = node.is_shutting_down() && asked::are_over(stage, &others)?;
        Ok(is_now.then_some(node))
    })?;
    machine.power_off()?;
    machine.shell().forget();
    eprintln!("{name}: the plug is pulled; {node:?}");
    power_on(stage, name)?;
    shown::cut_in_phase(stage, &Off { boot, node }, slow)
}

fn slow(pods: &[Pod]) -> anyhow::Result<&Pod> {
    let slow = pods.iter().find(|pod| pod.name.ends_with("-slow"));
    slow.context("the slow pod is elsewhere")
}

/// Pods stay as they are, and their containers are started again after the boot.
fn zero_periods(stage: &Stage, name: &str, gone: &[Pod], down: &Down) -> anyhow::Result<Vec<String>> {
    let off = power_off_by(stage, name, down.command)?;
    let mut problems = Vec::new();
    if off.node.status != "True" {
        problems.push(format!("the node is not ready while it goes down: {:?}", off.node));
    }
    let unknown = until(SOON, "the node is unknown", || {
        Ok(Some(asked::node(stage, &node_name(NODE))?).filter(|node| node.status == "Unknown"))
    })?;
    eprintln!("{name}: {} since {}", unknown.reason, unknown.transition);
    power_on(stage, name)?;
    let after = asked::until_all_run(stage, name, REPLICAS)?;
    for pod in gone {
        match after.get(&pod.name) {
            Some(now) if now.uid == pod.uid && now.restarts > pod.restarts => {}
            now => problems.push(format!("{} was not started again with its UID: {now:?}", pod.name)),
        }
    }
    let (spans, found) = shown::without_lock(stage, &off, (down.verdict, down.announcement), down.sentence)?;
    problems.extend(found);
    problems.extend(shown::none_stayed_ready(&spans));
    problems.extend(shown::of_pods_cut(stage, &off, gone)?);
    Ok(problems)
}

fn spoofed(stage: &Stage, name: &str, gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    const FORGED: &str = "busctl emit /org/freedesktop/login1 org.freedesktop.login1.Manager PrepareForShutdown b true";
    let node = stage.cluster.node(&node_name(NODE))?;
    let boot = node.boot_id()?;
    node.run(FORGED)?;
    let seen = until(SOON, "the kubelet believes the forged signal", || {
        Ok(Some(asked::node(stage, node.name())?).filter(NodeSight::is_shutting_down))
    })?;
    asked::until_replaced(stage, name, &node_name(OTHER), REPLICAS, gone)?;
    // Without a `false` the kubelet stays so, and its lock is gone: the remedy is a restart.
    // The subject is time: a kubelet that recovered would by then.
    sleep(Duration::from_secs(60));
    node.configure_kubelet(&Case::Spoofed.kubelet())?;
    let is_ready = [("periods", "ready"), ("delay", "ready"), ("lock", "ready")];
    asked::until_agent_knows(stage, &node, &is_ready)?;
    let forged = Off { boot, node: seen };
    let (_, mut problems) = shown::root(stage, &forged, "spoofed")?;
    let off = power_off(stage, name)?;
    if off.boot != forged.boot {
        problems.push("the machine has booted in between".to_owned());
    }
    power_on(stage, name)?;
    let (spans, found) = shown::root(stage, &off, "graceful")?;
    problems.extend(found);
    problems.extend(shown::kubelets_lock(&spans));
    Ok(problems)
}

/// A shutdown of the node.
struct Off {
    boot: String,
    /// The API's condition while the machine went down.
    node: NodeSight,
}

/// By logind; returns when the machine is off.
fn power_off(stage: &Stage, name: &str) -> anyhow::Result<Off> {
    power_off_by(stage, name, POWER_OFF)
}

fn power_off_by(stage: &Stage, name: &str, command: &str) -> anyhow::Result<Off> {
    let machine = stage.cluster.node(&node_name(NODE))?;
    let boot = ask_to_power_off(&machine, name, command)?;
    until_off(stage, name, boot)
}

/// Of a machine that was asked to power off.
fn until_off(stage: &Stage, name: &str, boot: String) -> anyhow::Result<Off> {
    let mut machine = stage.cluster.node(&node_name(NODE))?;
    let mut node = asked::node(stage, machine.name())?;
    let begin = boot_now();
    until_within(SOON, &format!("{} to be off", machine.name()), || {
        // The first that the kubelet reports; without it what was last known.
        if !node.is_shutting_down() {
            node = asked::node(stage, machine.name())?;
        }
        Ok(holds(!machine.runs(), || format!("{node:?}")))
    })?;
    machine.shell().forget();
    eprintln!("{name}: off after {} s; {node:?}", (boot_now() - begin) / 1_000_000_000);
    Ok(Off { boot, node })
}

/// With the id of the boot that ends.
fn ask_to_power_off(machine: &Node, name: &str, command: &str) -> anyhow::Result<String> {
    let boot = machine.boot_id()?;
    eprintln!("{name}: {} is shut down", machine.name());
    // The shell's connection may end with the machine.
    machine.run(&format!("systemd-run --quiet --collect sh -c 'sleep 1; {command}'"))?;
    Ok(boot)
}

fn power_on(stage: &Stage, name: &str) -> anyhow::Result<()> {
    let mut machine = stage.cluster.node(&node_name(NODE))?;
    machine.power_on()?;
    until_ready(stage, &machine)?;
    eprintln!("{name}: {} is back", machine.name());
    Ok(())
}

fn until_ready(stage: &Stage, machine: &Node) -> anyhow::Result<()> {
    let boot = machine.boot_id()?;
    until(SOON, "the node is ready", || {
        let node = asked::node(stage, machine.name())?;
        // The condition of the boot before holds until the kubelet writes a new one.
        Ok((node.status == "True" && node.boot == boot).then_some(()))
    })
}

fn restore(stage: &Stage) -> anyhow::Result<()> {
    let mut machine = stage.cluster.node(&node_name(NODE))?;
    if !machine.runs() {
        machine.power_on()?;
    }
    // As after a boot.
    let reset = json!({
        "shutdownGracePeriod": null, "shutdownGracePeriodCriticalPods": null, "shutdownGracePeriodByPodPriority": null,
    });
    machine.run(&format!(
        "rm -f {DROP_IN} {MASK} /etc/systemd/logind.conf.d/99-kubelet.conf && {} && systemctl start dbus.socket && \
         systemctl kill -s HUP systemd-logind",
        busless::UNMASK
    ))?;
    machine.configure_kubelet(&reset)?;
    until_ready(stage, &machine)
}

/// The default installation, whose agent asks the kubelet itself; for one case with the kubelet's file, as where a kubelet cannot be asked.
fn install(cluster: &Cluster, case: Case) -> anyhow::Result<()> {
    match case {
        Case::OutlivesItsPhase => {
            let file = json!({"agent": {"kubelet": {"configz": false, "config": KUBELET_CONFIG}}});
            deploy::deploy_with(cluster, file)
        }
        _ => deploy::deploy(cluster),
    }
}

/// A Deployment, spread over the nodes, and what the case needs beside it. All tolerate a node that is away for longer than the story.
fn workloads(case: Case, name: &str) -> Vec<Value> {
    let labelled = |mut pod: Value, own: &str| {
        pod["metadata"]["name"] = json!(own);
        pod["metadata"]["labels"] = json!({"story": name, "shutdown": name});
        // A pod that tolerates everything is scheduled on a node that is not ready.
        pod["spec"]["tolerations"] = json!([]);
        pod
    };
    let on_the_node = |mut pod: Value, more: Value| {
        merge(
            &mut pod["spec"],
            json!({"nodeSelector": {"kubernetes.io/hostname": node_name(NODE)}}),
        );
        merge(&mut pod["spec"], more);
        pod
    };
    let args: &[&str] = match case {
        Case::LosesRequests => &lossy::SERVER[..],
        _ => &["handle-for", "3", "0"],
    };
    let replica = labelled(victim(name, 20, args), name);
    let mut spec = replica["spec"].clone();
    merge(
        &mut spec,
        json!({"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"replica-of": name}},
        }]}),
    );
    let labels = json!({"story": name, "shutdown": name, "replica-of": name});
    let mut all = vec![json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"shutdown": name}},
        "spec": {
            "replicas": REPLICAS, "selector": {"matchLabels": {"replica-of": name}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    })];
    match case {
        Case::Graceful => {
            let own = format!("{name}-critical");
            let pod = labelled(victim(&own, 20, &["handle-for", "2", "0"]), &own);
            all.push(on_the_node(pod, json!({"priorityClassName": "system-cluster-critical"})));
        }
        Case::OutlivesItsPhase | Case::CutInPhase => {
            let own = format!("{name}-slow");
            let pod = labelled(victim(&own, 120, &["handle-slowly"]), &own);
            let class = match case {
                Case::OutlivesItsPhase => json!({"priorityClassName": "story-important"}),
                _ => json!({}),
            };
            all.push(on_the_node(pod, class));
        }
        Case::LosesRequests => all.push(lossy::service(name)),
        Case::DropIn | Case::ZeroPeriods | Case::Unannounced | Case::Spoofed | Case::WithoutABus => {}
    }
    all
}

/// As an attribute has a time of the API.
fn attribute(text_of_time: &Value) -> String {
    text(text_of_time).replace('Z', ".000000000Z")
}

/// The release's observers.
fn observers() -> String {
    format!("deployment/{RELEASE}-observer")
}
