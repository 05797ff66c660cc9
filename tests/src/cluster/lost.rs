//! A node that is lost on a real cluster, and comes back: paused and resumed, switched off and on, cut off from the network, without its
//! kubelet, without its container runtime; and cut off while the API server is away for a minute, or the active observer is killed. Eight
//! pods of a StatefulSet on two nodes, a Deployment and a DaemonSet beside it. Where the machine is silent, the taint `out-of-service` moves its pods to the other
//! node; and a paused one's pods move back the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::deploy::{self, RELEASE};
use super::play::{self, Stage};
use super::stories::NAMESPACE;
use super::stories::manifest::{merge, victim};
use super::{Cluster, node_name};
use crate::cluster::node::Node;
use crate::sys::wall_seconds;
use crate::traces::{seconds, tag};

/// The controller's grace period, the garbage collection's interval, and an emulated machine that boots, or starts ten pods at once.
const SOON: Duration = Duration::from_secs(600);
const TAINT: &str = "node.kubernetes.io/out-of-service";
const REPLICAS: usize = 8;
const APART: f64 = 2.0;
/// The API's own times are whole seconds, rounded down.
const RESOLUTION: f64 = 1.0;
/// How late the runtime of an emulated machine that starts many pods sees an exit.
const LATE: f64 = 10.0;
/// The grace period of a silent node's pods does not count; its agent is asked three times.
const AT_ONCE: f64 = 30.0;
/// An emulated machine's clock drifts between two settings.
const DRIFT: f64 = 30.0;
/// Longer than a Lease of the observer, and than a node may be silent.
const API_AWAY: Duration = Duration::from_secs(60);

/// How the node is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    Paused,
    /// The same, and nobody sets the taint: its pods are evicted after Kubernetes' default time, and hang until it resumes.
    PausedUnfenced,
    SwitchedOff,
    /// Neither the API server nor another node reaches it.
    CutOff,
    /// The same, and once its pods hang, the API server is away.
    CutOffApiAway,
    /// The same, and once its pods hang, the active observer is killed.
    CutOffObserverKilled,
    WithoutKubelet,
    WithoutRuntime,
}

impl Death {
    pub const ALL: [Death; 8] = [
        Death::Paused,
        Death::PausedUnfenced,
        Death::SwitchedOff,
        Death::CutOff,
        Death::CutOffApiAway,
        Death::CutOffObserverKilled,
        Death::WithoutKubelet,
        Death::WithoutRuntime,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Death::Paused => "paused",
            Death::PausedUnfenced => "unfenced",
            Death::SwitchedOff => "switched-off",
            Death::CutOff => "cut-off",
            Death::CutOffApiAway => "api-away",
            Death::CutOffObserverKilled => "without-observer",
            Death::WithoutKubelet => "without-kubelet",
            Death::WithoutRuntime => "without-runtime",
        }
    }

    fn strike(self, node: &mut Node) -> anyhow::Result<()> {
        match self {
            Death::Paused | Death::PausedUnfenced => node.pause(),
            Death::SwitchedOff => node.power_off(),
            Death::CutOff | Death::CutOffApiAway | Death::CutOffObserverKilled => node.connect(false),
            Death::WithoutKubelet => node.run("systemctl stop kubelet").map(drop),
            Death::WithoutRuntime => node.run("systemctl stop containerd").map(drop),
        }
    }

    /// May be called again.
    fn heal(self, node: &mut Node) -> anyhow::Result<()> {
        match self {
            Death::Paused | Death::PausedUnfenced => node.resume(),
            Death::SwitchedOff if node.runs() => Ok(()),
            Death::SwitchedOff => node.power_on(),
            Death::CutOff | Death::CutOffApiAway | Death::CutOffObserverKilled => {
                node.connect(true).and_then(|()| node.set_clock().map(drop))
            }
            Death::WithoutKubelet => node.run("systemctl start kubelet").map(drop),
            Death::WithoutRuntime => node.run("systemctl start containerd").map(drop),
        }
    }

    const fn is_paused(self) -> bool {
        matches!(self, Death::Paused | Death::PausedUnfenced)
    }

    /// Nobody can tell whether the machine runs.
    const fn is_silent(self) -> bool {
        !matches!(self, Death::WithoutKubelet | Death::WithoutRuntime)
    }

    /// The taint moves its pods. Where its agent answers, nobody sets it.
    const fn is_fenced(self) -> bool {
        self.is_silent() && !matches!(self, Death::PausedUnfenced)
    }

    const fn verdict(self) -> &'static str {
        match (self.is_silent(), self.is_fenced()) {
            (true, true) => "fenced-by-taint",
            (true, false) => "lost",
            (false, _) => "unreachable",
        }
    }

    /// How long its pods tolerate the loss; None: what the API server gives every pod.
    const fn tolerated(self) -> Option<u32> {
        match self {
            Death::PausedUnfenced => None,
            _ => Some(5),
        }
    }

    /// Another observer may take over.
    const fn changes_observer(self) -> bool {
        matches!(self, Death::CutOffApiAway | Death::CutOffObserverKilled)
    }

    /// The old containers run on beside their replacements.
    const fn runs_twice(self) -> bool {
        self.is_fenced() && !self.is_rebooted()
    }

    const fn is_rebooted(self) -> bool {
        matches!(self, Death::SwitchedOff)
    }
}

/// The cluster has a second node, which can be lost.
pub fn is_possible() -> bool {
    Cluster::named().and_then(|cluster| cluster.node(&node_name(2))).is_ok()
}

/// What the traces do not show, a line each.
///
/// # Errors
/// The story could not be played.
pub fn play(stage: &Stage, death: Death) -> anyhow::Result<Vec<String>> {
    let name = format!("lost-{}", death.name());
    if death.is_rebooted() {
        // Without it no agent reports shutdowns.
        deploy::deploy(&stage.cluster)?;
    }
    for workload in workloads(&name, death.tolerated()) {
        stage.kubectl.apply(&workload.to_string())?;
    }
    let played = play_here(stage, death, &name);
    if played.is_err() {
        eprintln!("{name}: {}", state(stage));
    }
    for kind in ["statefulset", "deployment", "daemonset"] {
        stage.kubectl.run(&["-n", NAMESPACE, "delete", kind, &name])?;
    }
    // An emulated machine has no time for the pods of two stories.
    let left = format!("story in ({name}, {name}-deployment, {name}-daemonset)");
    let gone = until("the story's pods are gone", || {
        let pods = stage
            .kubectl
            .json(&["-n", NAMESPACE, "get", "pods", "-l", &left, "-o", "json"])?;
        Ok(pods["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    });
    // Why the story failed says more than what it left.
    let problems = played?;
    gone?;
    Ok(problems)
}

/// For a person: what the API has of the nodes and pods.
fn state(stage: &Stage) -> String {
    let of = |kind: &str| stage.kubectl.run(&["get", kind, "-A", "-o", "wide"]);
    ["nodes", "pods"]
        .iter()
        .map(|kind| of(kind).unwrap_or_else(|error| format!("{error:#}\n")))
        .collect()
}

fn play_here(stage: &Stage, death: Death, name: &str) -> anyhow::Result<Vec<String>> {
    let rounds: &[u8] = if death == Death::Paused { &[2, 1] } else { &[2] };
    let mut problems = Vec::new();
    let mut moved = BTreeMap::<String, u32>::new();
    for round in rounds {
        let lost = node_name(*round);
        let played = lose(stage, death, name, &lost);
        // Whatever happened, the node is whole for what follows.
        let restored = death.heal(&mut stage.cluster.node(&lost)?);
        let untainted = stage.kubectl.run(&["taint", "nodes", &lost, &format!("{TAINT}-")]);
        let (pods, found) = played?;
        restored?;
        // The story has removed it already.
        drop(untainted);
        problems.extend(found);
        for pod in pods {
            *moved.entry(pod).or_default() += 1;
        }
    }
    if rounds.len() > 1 && !moved.values().any(|times| *times > 1) {
        problems.push(format!("no pod moved twice: {moved:?}"));
    }
    Ok(problems)
}

/// Names of the StatefulSet's pods that moved, and what their traces do not show.
fn lose(stage: &Stage, death: Death, name: &str, lost: &str) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    spread_observers(stage)?;
    // Times of the observer are those of its node, whose clock drifts under emulation.
    for index in 1..=2 {
        stage.cluster.node(&node_name(index))?.set_clock()?;
    }
    let before = until(
        "all pods run",
        || Ok(pods(stage, name)?.filter(|pods| pods.len() == REPLICAS)),
    )?;
    let beside = Beside::of(stage, name)?;
    let gone: Vec<&Pod> = before.values().filter(|pod| pod.node == lost).collect();
    anyhow::ensure!(!gone.is_empty(), "no pod of {name} is on {lost}: {before:?}");
    let mut node = stage.cluster.node(lost)?;
    eprintln!("{name}: {lost} is lost with {} of the pods", gone.len());
    let struck = wall_seconds();
    death.strike(&mut node)?;
    // With the next command in whole.
    let command = format!("kubectl taint nodes {lost} {TAINT}=nodeshutdown:NoExecute");
    let alarmed = until("the StatefulSet's Event", || {
        let events = stage
            .kubectl
            .json(&["-n", NAMESPACE, "get", "events.events.k8s.io", "-o", "json"])?;
        let events = events["items"].as_array().into_iter().flatten();
        let time = |event: &Value| event["eventTime"].as_str().and_then(|time| seconds(time).ok());
        let is_ours = |event: &&Value| {
            event["reason"] == "PodStuckOnLostNode"
                && event["regarding"]["kind"] == "StatefulSet"
                && event["regarding"]["name"] == name
                && event["note"]
                    .as_str()
                    .is_some_and(|note| note.contains(lost) && (!death.is_silent() || note.contains(&command)))
        };
        // Not one of an earlier story of that name.
        Ok(events.filter(is_ours).filter_map(time).find(|time| *time >= struck))
    })?;
    let transition = transition(stage, lost)?;
    let mut api = ApiTimes {
        evicting: until("the taint by which it evicts", || evicting(stage, lost))?,
        deleted: until("the deletions", || {
            Ok(Some(deleted(stage, name, &gone)?).filter(|deleted| deleted.len() == gone.len()))
        })?,
        ..ApiTimes::default()
    };
    eprintln!("{name}: its pods hang, not ready since {transition}");
    if death == Death::CutOffApiAway {
        stage.api_away(API_AWAY)?;
        eprintln!("{name}: the API server is back");
    }
    if death == Death::CutOffObserverKilled {
        stage.kill_observer()?;
        eprintln!("{name}: another observer is active");
    }
    if death.is_fenced() {
        api.tainted = Some(wall_seconds());
        stage
            .kubectl
            .run(&["taint", "nodes", lost, &format!("{TAINT}=nodeshutdown:NoExecute")])?;
        until("the replacements run", || {
            // A scheduler that finds a StatefulSet's pod on another node, because its watch was interrupted, ends itself to be
            // started again.
            if death == Death::CutOffApiAway {
                stage.cluster.control_plane()?.start_controllers()?;
            }
            replaced(stage, name, &gone)
        })?;
    }
    api.paused = death.is_paused().then(|| wall_seconds() - struck);
    death.heal(&mut node)?;
    until("the replacements run", || replaced(stage, name, &gone))?;
    let back = until("the node is ready", || {
        let node = stage.kubectl.json(&["get", "node", lost, "-o", "json"])?;
        let ready = ready(&node)?;
        let since = match death.is_paused() {
            // By its kubelet's clock, which stood still.
            true => wall_seconds(),
            false => seconds(ready["lastTransitionTime"].as_str().context("no time")?)?,
        };
        Ok((ready["status"] == "True").then_some(since))
    })?;
    api.back = (!death.is_paused()).then_some(back);
    if death.is_fenced() {
        api.untainted = Some(wall_seconds());
        stage.kubectl.run(&["taint", "nodes", lost, &format!("{TAINT}-")])?;
    }
    eprintln!("{name}: {lost} is back");
    let after = until("all pods run again", || {
        Ok(pods(stage, name)?.filter(|pods| pods.len() == REPLICAS))
    })?;

    let of_loss = shown(stage, "epitaph.node.transition", &transition, "node.lost")?;
    let mut problems = of_node(&of_loss, death, &transition);
    // Written when the loss was reported, and never changed: another observer's has what that one saw.
    if !death.changes_observer() {
        problems.extend(stage.node_epitaph("Loss", death.verdict(), &of_loss)?);
    }
    problems.extend(api.of_node(&of_loss));
    problems.extend(api.of_evictions(death, alarmed));
    // Another observer took over: what began under the first is not reported twice, and the root says so.
    let is_whole = of_loss.iter().all(|span| tag(span, "epitaph.node.unwatched").is_null());
    if !is_whole && !death.changes_observer() {
        problems.push(format!("its observer changed: {:?}", names(&of_loss)));
    }
    if is_whole && death == Death::CutOffObserverKilled {
        problems.push(format!("does not say that its observer changed: {of_loss:?}"));
    }
    if death.is_rebooted() {
        completed(stage, lost, struck)?;
    }
    let mut problems: Vec<String> = problems.iter().map(|problem| format!("{lost}: {problem}")).collect();
    let traces: Vec<_> = gone
        .iter()
        .map(|pod| Ok((*pod, shown(stage, "k8s.pod.uid", &pod.uid, "pod.lost")?)))
        .collect::<anyhow::Result<_>>()?;
    // The machine's runtime has them by now.
    let exits = exits(&node)?;
    for (pod, spans) in traces {
        let new = after.get(&pod.name).context("a pod of that name")?;
        let mut found = of_pod(&spans, death, &[new], is_whole);
        found.extend(api.of_pod(&spans, pod, new));
        found.extend(of_agent(&spans, death, &exits, api.paused));
        problems.extend(found.into_iter().map(|problem| format!("{} on {lost}: {problem}", pod.name)));
    }
    eprintln!("{name}: {} pods asked back, by one observer: {is_whole}", gone.len());
    problems.extend(beside.problems(stage, death, (name, lost), (back, is_whole))?);
    Ok((gone.iter().map(|pod| pod.name.clone()).collect(), problems))
}

/// What runs beside the StatefulSet, before the loss.
struct Beside {
    deployment: BTreeMap<String, Pod>,
    daemonset: BTreeMap<String, Pod>,
}

impl Beside {
    fn of(stage: &Stage, name: &str) -> anyhow::Result<Beside> {
        let all = |kind: &str| {
            until(&format!("the {kind}'s pods run"), || {
                Ok(pods(stage, &format!("{name}-{kind}"))?.filter(|pods| pods.len() == 2))
            })
        };
        Ok(Beside {
            deployment: all("deployment")?,
            daemonset: all("daemonset")?,
        })
    }

    /// Once all is back: a Deployment's pod is replaced while the node is away, so its end is the same, and nothing calls for help; a
    /// DaemonSet's pod only ends by the taint, and its replacement waits for the node.
    fn problems(
        &self,
        stage: &Stage,
        death: Death,
        (name, lost): (&str, &str),
        (back, is_whole): (f64, bool),
    ) -> anyhow::Result<Vec<String>> {
        let now = Beside::of(stage, name)?;
        let new_of = |of: &BTreeMap<String, Pod>, before: &BTreeMap<String, Pod>| -> Vec<Pod> {
            let is_new = |pod: &&Pod| before.values().all(|old| old.uid != pod.uid);
            of.values().filter(is_new).cloned().collect()
        };
        let mut problems = Vec::new();
        let new = new_of(&now.deployment, &self.deployment);
        let gone: Vec<&Pod> = self.deployment.values().filter(|pod| pod.node == lost).collect();
        if new.len() != gone.len() || new.iter().any(|pod| pod.created > back) {
            problems.push(format!(
                "the Deployment's {gone:?} are replaced by {new:?}, the node is back at {back}"
            ));
        }
        let new: Vec<&Pod> = new.iter().collect();
        for pod in &gone {
            let spans = shown(stage, "k8s.pod.uid", &pod.uid, "pod.lost")?;
            problems.extend(of_pod(&spans, death, &new, is_whole));
        }
        let events = stage
            .kubectl
            .json(&["-n", NAMESPACE, "get", "events.events.k8s.io", "-o", "json"])?;
        let mut events = events["items"].as_array().into_iter().flatten();
        let is_of_another = |event: &&Value| {
            event["reason"] == "PodStuckOnLostNode"
                && ["Deployment", "ReplicaSet", "DaemonSet"]
                    .iter()
                    .any(|kind| event["regarding"]["kind"] == *kind)
        };
        problems.extend(events.find(is_of_another).map(|event| format!("an Event: {event}")));

        let of_node = self.daemonset.values().find(|pod| pod.node == lost);
        let old = of_node.context("the DaemonSet has no pod on the node")?;
        let new = new_of(&now.daemonset, &self.daemonset);
        if !death.is_fenced() {
            let of_old = stage.jaeger.traces_with("k8s.pod.uid", &old.uid)?;
            if !new.is_empty() || !of_old.is_empty() {
                problems.push(format!("the DaemonSet's {old:?} is replaced by {new:?}, with {of_old:?}"));
            }
        } else {
            let spans = shown(stage, "k8s.pod.uid", &old.uid, "pod.lost")?;
            let expected: &[&str] = match is_whole {
                true => &["pod.lost fenced-by-taint", "replacement"],
                false => &["pod.lost fenced-by-taint"],
            };
            problems.extend(missing(&spans, expected));
            let replacement = spans.iter().find(|span| span["operationName"] == "replacement");
            // Where the taint is still there, the first one is evicted at once, too, before it is ready.
            let is_by = |pod: &Pod| {
                replacement.is_none_or(|span| {
                    tag(span, "epitaph.replacement.pod.uid") == pod.uid.as_str()
                        || !span["logs"].to_string().contains("pod.ready")
                })
            };
            if new.len() != 1 || !new.iter().all(is_by) {
                problems.push(format!(
                    "the DaemonSet's {old:?} is replaced by {new:?}, not by {replacement:?}"
                ));
            }
        }
        Ok(problems)
    }
}

/// After an earlier loss both may run on the node that is lost next. New ones elsewhere would begin with the pods that already hang.
fn spread_observers(stage: &Stage) -> anyhow::Result<()> {
    let observer = format!("deployment/{RELEASE}-observer");
    stage
        .kubectl
        .run(&["-n", deploy::NAMESPACE, "rollout", "restart", &observer])?;
    let args = ["-n", deploy::NAMESPACE, "rollout", "status", &observer, "--timeout=600s"];
    stage.kubectl.run(&args).map(drop)
}

/// When the API server has each step, in seconds since the epoch; where its objects have no time of it, when the story asked for it.
#[derive(Debug, Default)]
struct ApiTimes {
    /// The taint by which the controller evicts.
    evicting: f64,
    /// The request of each pod's deletion, by UID.
    deleted: BTreeMap<String, f64>,
    tainted: Option<f64>,
    /// By the kubelet's clock, which stood still while its machine was paused: None then.
    back: Option<f64>,
    untainted: Option<f64>,
    /// How long the machine, with its clocks, stood still.
    paused: Option<f64>,
}

impl ApiTimes {
    fn of_node(&self, spans: &[Value]) -> Vec<String> {
        let step = |name, at: fn((f64, f64)) -> f64, expected| (name, at, expected);
        let steps = [
            step("node.not_ready", |(_, end)| end, Some(self.evicting)),
            step("node.out_of_service", |(begin, _)| begin, self.tainted),
            step("node.out_of_service", |(_, end)| end, self.untainted),
            step("node.down", |(_, end)| end, self.back),
        ];
        let mut problems = Vec::new();
        for (name, at, expected) in steps {
            let Some((span, expected)) = spans.iter().find(|span| span["operationName"] == name).zip(expected) else {
                continue;
            };
            let shown = at(times(span));
            if !is_near(span, shown, (expected, expected)) {
                problems.push(format!("{name} has {shown}, the API {expected}: {span}"));
            }
        }
        problems
    }

    /// Pods are evicted as long after the taint as they tolerate it, and the StatefulSet's Event follows at once.
    fn of_evictions(&self, death: Death, alarmed: f64) -> Vec<String> {
        let tolerated = f64::from(death.tolerated().unwrap_or(300));
        let late = self.deleted.values().map(|deleted| deleted - self.evicting - tolerated);
        let mut problems: Vec<String> = late
            .filter(|late| !(-RESOLUTION..=LATE).contains(late))
            .map(|late| format!("a pod is evicted {late} s late: {self:?}"))
            .collect();
        let first = self.deleted.values().copied().fold(f64::MAX, f64::min);
        if alarmed - first > AT_ONCE {
            problems.push(format!("the Event comes {} s after the first deletion", alarmed - first));
        }
        problems
    }

    /// Of a pod that was deleted and is gone when its replacement is created.
    fn of_pod(&self, spans: &[Value], old: &Pod, new: &Pod) -> Vec<String> {
        let stuck = spans.iter().filter(|span| span["operationName"] == "stuck");
        let begins = stuck.min_by(|one, other| times(one).0.total_cmp(&times(other).0));
        let root = spans.iter().find(|span| name_of(span).starts_with("pod.lost "));
        let mut problems = Vec::new();
        if let Some((span, deleted)) = begins.zip(self.deleted.get(&old.uid))
            && !is_near(span, times(span).0, (*deleted, *deleted))
        {
            problems.push(format!("is deleted at {deleted}, not at {}", times(span).0));
        }
        if let Some(span) = root
            && !is_near(span, times(span).1, (new.created, new.created))
        {
            problems.push(format!("is gone by {}, not at {}", new.created, times(span).1));
        }
        problems
    }
}

fn is_near(span: &Value, shown: f64, (first, last): (f64, f64)) -> bool {
    let gap = tag(span, "epitaph.watch.gap").as_f64().unwrap_or_default();
    shown >= first - APART && shown <= last + RESOLUTION + APART + gap
}

/// When the controller set the taint by which it evicts.
fn evicting(stage: &Stage, node: &str) -> anyhow::Result<Option<f64>> {
    let node = stage.kubectl.json(&["get", "node", node, "-o", "json"])?;
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let taint = taints.find(|taint| {
        taint["effect"] == "NoExecute"
            && ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"]
                .iter()
                .any(|key| taint["key"] == *key)
    });
    let added = taint.map(|taint| seconds(taint["timeAdded"].as_str().context("no time")?));
    added.transpose()
}

/// When the deletion of each of these pods was requested, by UID; only of those that are being deleted.
fn deleted(stage: &Stage, name: &str, gone: &[&Pod]) -> anyhow::Result<BTreeMap<String, f64>> {
    let selector = format!("story={name}");
    let list = stage
        .kubectl
        .json(&["-n", NAMESPACE, "get", "pods", "-l", &selector, "-o", "json"])?;
    let mut found = BTreeMap::new();
    for pod in list["items"].as_array().context("no items")? {
        let metadata = &pod["metadata"];
        let (Some(uid), Some(deletion)) = (metadata["uid"].as_str(), metadata["deletionTimestamp"].as_str()) else {
            continue;
        };
        if gone.iter().any(|pod| pod.uid == uid) {
            let grace = metadata["deletionGracePeriodSeconds"].as_f64().unwrap_or_default();
            found.insert(uid.to_owned(), seconds(deletion)? - grace);
        }
    }
    Ok(found)
}

/// What the trace of a lost pod, which one of `new` replaces, does not show. `is_whole`: one observer watched all of it.
fn of_pod(spans: &[Value], death: Death, new: &[&Pod], is_whole: bool) -> Vec<String> {
    let root = format!("pod.lost {}", death.verdict());
    let mut expected = vec![root.as_str(), "stuck"];
    if is_whole {
        expected.push("replacement");
    }
    if is_whole && death.runs_twice() {
        expected.push("duplicate.run");
    }
    let mut problems = missing(spans, &expected);
    // The agent of a node that is back with its containers reports their end, beside the observer's root.
    let of_agent: Vec<&str> = names(spans)
        .into_iter()
        .filter(|name| name.starts_with("pod.termination "))
        .collect();
    if death.runs_twice() && of_agent.len() != 1 {
        problems.push(format!("the agent's roots are {of_agent:?} in {:?}", names(spans)));
    }
    let ids: BTreeSet<&str> = spans.iter().filter_map(|span| span["spanID"].as_str()).collect();
    if ids.len() != spans.len() {
        problems.push(format!("two spans have one id: {:?}", names(spans)));
    }
    let replacement = spans.iter().find(|span| span["operationName"] == "replacement");
    let by = replacement.map(|span| tag(span, "epitaph.replacement.pod.uid"));
    let Some(new) = new.iter().find(|new| by.as_ref().is_none_or(|by| *by == new.uid.as_str())) else {
        problems.push(format!("is not replaced by one of {new:?}: {replacement:?}"));
        return problems;
    };
    if let Some(twice) = spans.iter().find(|span| span["operationName"] == "duplicate.run") {
        let (begin, end) = times(twice);
        if !is_near(twice, begin, (new.created, new.ready)) || end <= begin {
            problems.push(format!(
                "ran twice from {begin} to {end}, its replacement from {} to {}",
                new.created, new.ready
            ));
        }
    }
    if let Some(replacement) = replacement {
        let (begin, end) = times(replacement);
        // An observer sees what the API server has.
        let ready = (new.ready, new.posted.max(new.ready));
        for (what, shown, (first, last)) in [("created", begin, (new.created, new.created)), ("ready", end, ready)] {
            if !is_near(replacement, shown, (first, last)) {
                problems.push(format!("its replacement is {what} at {shown}, not from {first} to {last}"));
            }
        }
    }
    problems
}

/// The agent of the next boot finds in its journal that the boot before ended without a shutdown.
fn completed(stage: &Stage, lost: &str, struck: f64) -> anyhow::Result<()> {
    until("the next boot's report of the power loss", || {
        let traces = stage.jaeger.traces_with("k8s.node.name", lost)?;
        let spans = |trace: &Value| trace["spans"].as_array().cloned().unwrap_or_default();
        // The root ends with the last evidence, and the node is down from there.
        let is_down =
            |span: &Value| span["operationName"] == "down" && times(span).0 <= struck + APART && times(span).1 >= struck;
        let mut found: Vec<Vec<Value>> = traces.iter().map(spans).collect();
        found.retain(|spans| spans.iter().any(is_down));
        let [of_loss] = &found[..] else {
            anyhow::ensure!(found.is_empty(), "{} reports of one power loss", found.len());
            return Ok(None);
        };
        let is_told = names(of_loss).contains(&"node.shutdown unannounced");
        anyhow::ensure!(is_told, "reported as {:?}", names(of_loss));
        Ok(Some(()))
    })
}

/// When the machine's runtime saw each container exit, by the machine's clock; by container id.
fn exits(node: &Node) -> anyhow::Result<BTreeMap<String, f64>> {
    let text = node.run("journalctl --no-pager --output cat --unit containerd --grep 'received container exit event'")?;
    let word = |line: &str, before: &str, after: char| -> Option<String> {
        let (_, rest) = line.split_once(before)?;
        Some(rest.split(after).next()?.trim_matches(['\\', '"']).to_owned())
    };
    let exit = |line: &str| {
        let time = word(line, "exited_at:{", '}')?;
        let seconds: f64 = word(&time, "seconds:", ' ')?.parse().ok()?;
        let nanos: f64 = word(&time, "nanos:", ' ').map_or(Some(0.0), |nanos| nanos.parse().ok())?;
        Some((word(line, "container_id:", ' ')?, seconds + nanos / 1e9))
    };
    text.lines()
        .map(|line| exit(line).with_context(|| format!("no exit in `{line}`")))
        .collect()
}

/// What the machine's agent reports, once it is back, by the clock that the machine has then; and that it stood still.
fn of_agent(spans: &[Value], death: Death, exits: &BTreeMap<String, f64>, paused: Option<f64>) -> Vec<String> {
    let stops = || spans.iter().filter(|span| name_of(span).starts_with("container.stop "));
    if death.runs_twice() && stops().next().is_none() {
        return vec![format!("its agent shows no container's end: {:?}", names(spans))];
    }
    let problem = |span: &Value| {
        let shown = times(span).1;
        let exit = tag(span, "container.id").as_str().and_then(|id| exits.get(id).copied());
        let step = tag(span, "epitaph.clock.step").as_f64();
        // The runtime sees an exit after the kernel, and on a starved machine late; right after a pause by the clock that stood still.
        let near = |exit: f64| (exit - LATE..=exit + APART).contains(&shown);
        let is_right = exit.is_some_and(|exit| near(exit) || step.is_some_and(|step| near(exit + step)));
        if !is_right {
            return Some(format!("its container exits at {shown}, by its machine at {exit:?}"));
        }
        let is_stated = match (paused, step) {
            (Some(paused), Some(step)) => (step - paused).abs() <= DRIFT,
            (paused, _) => paused.is_none(),
        };
        (!is_stated).then(|| format!("its machine was paused for {paused:?} s, by its agent for {step:?}: {span}"))
    };
    stops().filter_map(problem).collect()
}

fn of_node(spans: &[Value], death: Death, transition: &str) -> Vec<String> {
    let root = format!("node.lost {}", death.verdict());
    let mut expected = vec![root.as_str(), "node.not_ready", "node.down"];
    if death.is_fenced() {
        expected.push("node.out_of_service");
    }
    let mut problems = missing(spans, &expected);
    let how = if death.is_rebooted() { "rebooted" } else { "same-boot" };
    for span in spans {
        if span["operationName"] == "node.down" && tag(span, "epitaph.node.return") != how {
            problems.push(format!("did not come back as {how}: {span}"));
        }
        let begins = seconds(transition).is_ok_and(|api| (times(span).0 - api).abs() <= APART);
        if span["operationName"] == root.as_str() && !begins {
            problems.push(format!("does not begin at {transition}: {span}"));
        }
    }
    problems
}

/// Spread over the nodes while both are ready.
fn workloads(name: &str, tolerated: Option<u32>) -> [Value; 3] {
    let of = |label: &str| {
        let mut pod = victim(label, 2, &["handle", "0"]);
        let toleration = |seconds: u32, key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let tolerations = tolerated.map(|seconds| {
            ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"].map(|key| toleration(seconds, key))
        });
        merge(
            &mut pod["spec"],
            json!({
                "tolerations": tolerations.as_ref().map_or(&[][..], |both| both),
                "topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"story": label}},
                }],
            }),
        );
        json!({
            "selector": {"matchLabels": {"story": label}},
            "template": {"metadata": {"labels": {"story": label}}, "spec": pod["spec"]},
        })
    };
    let workload = |kind: &str, label: &str, more: Value| {
        let mut workload = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": of(label)});
        merge(&mut workload["spec"], more);
        workload
    };
    [
        workload(
            "StatefulSet",
            name,
            json!({"replicas": REPLICAS, "serviceName": name, "podManagementPolicy": "Parallel"}),
        ),
        workload("Deployment", &format!("{name}-deployment"), json!({"replicas": 2})),
        workload("DaemonSet", &format!("{name}-daemonset"), json!({})),
    ]
}

#[derive(Clone, Debug)]
struct Pod {
    name: String,
    uid: String,
    node: String,
    /// Seconds since the epoch, by the API.
    created: f64,
    /// By the kubelet, whose status may be late.
    ready: f64,
    /// When the API server took the kubelet's last status.
    posted: f64,
}

/// The StatefulSet's pods by name; none while one of them is not ready.
fn pods(stage: &Stage, name: &str) -> anyhow::Result<Option<BTreeMap<String, Pod>>> {
    let selector = format!("story={name}");
    let list = stage.kubectl.json(&[
        "-n",
        NAMESPACE,
        "get",
        "pods",
        "-l",
        &selector,
        "--show-managed-fields",
        "-o",
        "json",
    ])?;
    let mut found = BTreeMap::new();
    for pod in list["items"].as_array().context("no items")? {
        let metadata = &pod["metadata"];
        let Ok(condition) = ready(pod) else { return Ok(None) };
        if condition["status"] != "True" || !metadata["deletionTimestamp"].is_null() {
            return Ok(None);
        }
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
        let pod = Pod {
            name: text(&metadata["name"])?,
            uid: text(&metadata["uid"])?,
            node: text(&pod["spec"]["nodeName"])?,
            created: seconds(&text(&metadata["creationTimestamp"])?)?,
            ready: seconds(&text(&condition["lastTransitionTime"])?)?,
            posted: posted(metadata)?,
        };
        found.insert(pod.name.clone(), pod);
    }
    Ok(Some(found))
}

fn posted(metadata: &Value) -> anyhow::Result<f64> {
    let mut managers = metadata["managedFields"].as_array().into_iter().flatten();
    let kubelet = managers.find(|manager| manager["manager"] == "kubelet" && manager["subresource"] == "status");
    seconds(
        kubelet.context("no status by a kubelet")?["time"]
            .as_str()
            .context("no time")?,
    )
}

/// Whether each of those pods has a successor that is ready.
fn replaced(stage: &Stage, name: &str, gone: &[&Pod]) -> anyhow::Result<Option<()>> {
    let Some(pods) = pods(stage, name)? else { return Ok(None) };
    let is_new = |old: &&Pod| pods.get(&old.name).is_some_and(|new| new.uid != old.uid);
    Ok(gone.iter().all(is_new).then_some(()))
}

/// As the attribute has it.
fn transition(stage: &Stage, node: &str) -> anyhow::Result<String> {
    let node = stage.kubectl.json(&["get", "node", node, "-o", "json"])?;
    let time = ready(&node)?["lastTransitionTime"].as_str().context("no time")?;
    Ok(time.replace('Z', ".000000000Z"))
}

fn ready(object: &Value) -> anyhow::Result<&Value> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == "Ready")
        .context("no condition Ready")
}

/// All spans of the only trace with that attribute and a root of that kind, once nothing is added for a while.
fn shown(stage: &Stage, key: &str, value: &str, root: &str) -> anyhow::Result<Vec<Value>> {
    let mut last = BTreeSet::new();
    until(&format!("a trace with {root} and {key}={value}"), || {
        let traces = stage.jaeger.traces_with(key, value)?;
        // A pod's trace is the only one of its UID, whoever sent its spans.
        anyhow::ensure!(
            key != "k8s.pod.uid" || traces.len() <= 1,
            "{} traces with {key}={value}",
            traces.len()
        );
        let found = traces.into_iter().filter_map(|trace| trace["spans"].as_array().cloned());
        let is_it = |spans: &Vec<Value>| spans.iter().any(|span| name_of(span).starts_with(root));
        let mut found = found.filter(is_it);
        let Some(mut spans) = found.next() else { return Ok(None) };
        // Delivery is at least once: of a request that was sent again, the same spans are there twice.
        let mut seen = Vec::new();
        spans.retain(|span| {
            !seen.contains(span) && {
                seen.push(span.clone());
                true
            }
        });
        anyhow::ensure!(found.next().is_none(), "two traces with {root} and {key}={value}");
        let ids: BTreeSet<String> = spans.iter().map(|span| span["spanID"].to_string()).collect();
        if ids == last {
            return Ok(Some(spans));
        }
        last = ids;
        // The subject is time: nothing is added for so long.
        sleep(Duration::from_secs(10));
        Ok(None)
    })
}

fn name_of(span: &Value) -> &str {
    span["operationName"].as_str().unwrap_or_default()
}

/// Begin and end, in seconds since the epoch.
fn times(span: &Value) -> (f64, f64) {
    let seconds = |value: &Value| value.as_f64().unwrap_or_default() / 1e6;
    let begin = seconds(&span["startTime"]);
    (begin, begin + seconds(&span["duration"]))
}

fn names(spans: &[Value]) -> Vec<&str> {
    spans.iter().map(name_of).collect()
}

/// A line for each span that is not there, or there twice; `stuck` may be, by another holder.
fn missing(spans: &[Value], expected: &[&str]) -> Vec<String> {
    let count = |name: &str| spans.iter().filter(|span| name_of(span) == name).count();
    let is_wrong = |name: &&&str| count(name) != 1 && !(**name == "stuck" && count(name) == 2);
    let names = names(spans);
    let wrong = expected.iter().filter(is_wrong);
    wrong
        .map(|name| format!("{} spans {name} in the trace {names:?}", count(name)))
        .collect()
}

fn until<T>(what: &str, found: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    // An error: the API server, or an object that is not there yet.
    play::until(SOON, what, found)
}
