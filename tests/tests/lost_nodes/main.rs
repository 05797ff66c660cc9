//! Lost nodes on a real control plane: the controllers evict, collect garbage, attach and detach; nodes, kubelets and the CSI attacher
//! are written as API objects (`kubelets`). Beside the two nodes of most of the story there is a zone of others (`zone`). The story is read
//! back from a real Jaeger.

mod kubelets;
mod stage;
mod zone;

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use epitaph_core::ids::PodUid;
use epitaph_core::render::id;
use epitaph_tests::service::Service;
use serde_json::{Value, json};

use stage::{NODES, REPLICAS, Stage, named, of_node, pod_trace, tag, time, until_active, until_metric};

/// Pods whose end no volume's detach follows.
const DETACHLESS: [&str; 2] = ["files-0", "cache-0"];
const TAINT: &str = "node.kubernetes.io/out-of-service";
/// A pod that a finalizer of its own keeps.
const KEPT: &str = "queue-0";
const FINALIZER: &str = "example.com/hold";
/// Seconds from a pod's deletion request to its Event, at least.
/// A loaded machine needs longer; the taint is set after the Event.
const ALARMED: f64 = 2.0;

fn parent(span: &Value) -> &Value {
    &span["references"][0]["spanID"]
}

/// Its volume was detached from the lost node and attached to the other one before its replacement was ready.
fn moved(spans: &[Value], pod: &str, (old, new): (&str, &str)) -> anyhow::Result<()> {
    let root = named(spans, "pod.lost fenced-by-taint")?;
    let trace = id::pod_trace_id(&PodUid(old.into()), None);
    ensure!(root["spanID"] == id::pod_lost(trace).to_string());
    ensure!(tag(root, "epitaph.evicted_by_taint") == true);
    let stuck = named(spans, "stuck")?;
    ensure!(tag(stuck, "epitaph.stuck.by") == "node");
    let replacement = named(spans, "replacement")?;
    ensure!(tag(replacement, "epitaph.replacement.pod.uid") == new);
    let detach = named(spans, "volume.detach")?;
    ensure!(tag(detach, "epitaph.volume.name") == format!("pv-data-{pod}").as_str());
    ensure!(tag(detach, "epitaph.verdict") == "stuck-by-volume");
    ensure!(
        [stuck, replacement, detach]
            .iter()
            .all(|span| parent(span) == &root["spanID"])
    );
    let events = replacement["logs"].as_array().context("no events")?;
    let time = |event: &str| {
        let found = events.iter().find(|log| log["fields"][0]["value"] == event);
        found.and_then(|log| log["timestamp"].as_u64()).context(event.to_owned())
    };
    let (attached, ready) = (time("volume.attached")?, time("pod.ready")?);
    let detached = detach["startTime"].as_u64().zip(detach["duration"].as_u64());
    let detached = detached.map(|(begin, lasted)| begin + lasted).context("no time")?;
    ensure!(
        detached <= attached && attached <= ready,
        "detached at {detached}, attached at {attached}, ready at {ready}"
    );
    Ok(())
}

/// Seconds since the epoch.
fn begin(span: &Value) -> f64 {
    span["startTime"].as_f64().unwrap_or_default() / 1e6
}

/// Lost, taint, forced deletion, detach, replacement, reboot, taint removed; then the other way, cut off, with a killed observer.
/// Meanwhile most of another zone falls silent; its evictions go on with an observer that ends in order.
#[test]
fn a_lost_node_is_a_story_from_silence_to_its_return() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_lost_node_is_a_story_from_silence_to_its_return")? else {
        return Ok(());
    };
    stage.workloads()?;
    let single = zone::set(&stage)?;
    let first = stage.observer()?;
    until_active(&first)?;
    let all: Vec<String> = (0..REPLICAS).map(|index| format!("db-{index}")).collect();
    let all = all.iter().map(|pod| Ok((pod.as_str(), stage.running(pod, &[])?)));
    let all: Vec<(&str, (String, String))> = all.collect::<anyhow::Result<_>>()?;
    let (old, node) = all[0].1.clone();
    let others = DETACHLESS.into_iter().chain([KEPT]).map(|pod| {
        let (uid, on) = stage.running(pod, &[])?;
        ensure!(on == node, "{pod} is on {on}");
        Ok((pod, uid))
    });
    let mut detachless: Vec<(&str, String)> = others.collect::<anyhow::Result<_>>()?;
    let (_, kept) = detachless.pop().context("three pods")?;
    let other = NODES.into_iter().find(|name| *name != node).context("two nodes")?;
    let web = stage.deployment(&node)?;
    finalizers(&stage, &[FINALIZER])?;

    stage.kubelets.lose(&node);
    let of_node = of_node(&node);
    until_metric(&first, "epitaph_node_lost", &[&of_node, "verdict=\"lost\""], 1.0)?;
    first.until("epitaph_node_pods_stuck", &[&of_node], 1.0)?;
    let (loss, transition) = stage.loss(&node)?;
    let event = stage.until("an Event on the StatefulSet of one pod", || {
        let mut events = stage.events()?.into_iter();
        Ok(events.find(|event| event["regarding"]["kind"] == "StatefulSet" && event["regarding"]["name"] == "files"))
    })?;
    let note = event["note"].as_str().unwrap_or_default();
    let command = format!("kubectl taint nodes {node} {TAINT}=nodeshutdown:NoExecute");
    assert!(note.contains(&command) && note.contains("make sure that it is off"), "{note}");
    // A Deployment's pod is replaced while the old one hangs.
    let (next_web, on) = stage.running("web", &[&web])?;
    assert_eq!(on, other);
    let pods = stage.pods()?;
    let pod = |uid: &str| {
        let found = pods.iter().find(|pod| pod["metadata"]["uid"] == uid);
        found
            .map(|pod| &pod["metadata"])
            .with_context(|| format!("pod {uid} is gone"))
    };
    let alarmed = time(&event["metadata"]["creationTimestamp"])?.seconds() - requested(pod(&detachless[0].1)?)?;
    assert!(alarmed >= ALARMED, "after {alarmed} s: {event:#}");
    // The old one is still there: see `pod`.
    let replaced = time(&pod(&next_web)?["creationTimestamp"])?.seconds() - requested(pod(&web)?)?;
    assert!(replaced >= 0.0, "{replaced} s before the deletion request");

    let gone: Vec<(&str, &str)> = all
        .iter()
        .filter(|(_, (_, on))| *on == node)
        .map(|(pod, (uid, _))| (*pod, uid.as_str()))
        .collect();
    assert!((2..REPLICAS).contains(&gone.len()), "{all:?}");
    stage.kubelets.hold_volumes(true);
    let args: Vec<&str> = command.split_whitespace().skip(1).collect();
    stage.kubectl.run(&args)?;
    // Not earlier: until the taint is set, the remedy depends on how many nodes are silent.
    zone::falls_silent(&stage)?;
    // The pods are gone, and their volumes are attached to the lost node: the replacements wait.
    until_metric(&first, "epitaph_node_volumes_left", &[&of_node], gone.len() as f64)?;
    let held = |by: &str, count: usize| {
        let holder = format!("holder=\"{by}\"");
        until_metric(
            &first,
            "epitaph_pods_held",
            &[&holder, "k8s_namespace_name=\"shop\""],
            count as f64,
        )
    };
    held("volume", gone.len())?;
    held("finalizer", 1)?;
    stage.kubelets.hold_volumes(false);
    let (new, now_on) = stage.running("db-0", &[&old])?;
    assert_eq!(now_on, other);

    for (pod, old) in &gone {
        let (new, _) = stage.running(pod, &[old])?;
        let spans = stage.spans(&pod_trace(old), "replacement")?;
        moved(&spans, pod, (old, &new)).with_context(|| format!("{pod}: {spans:#?}"))?;
    }
    // By now every detach is over.
    for (pod, old) in &detachless {
        stage.running(pod, &[old])?;
        let spans = stage.spans(&pod_trace(old), "replacement")?;
        named(&spans, "pod.lost fenced-by-taint")?;
        let detaches = spans.iter().filter(|span| span["operationName"] == "volume.detach");
        assert_eq!(detaches.count(), 0, "{pod}: {spans:#?}");
    }
    // All of that took longer than a finalizer may take.
    finalizers(&stage, &[])?;
    held("finalizer", 0)?;
    kept_by_finalizer(&stage.spans(&pod_trace(&kept), "pod.lost")?)?;
    let mut events = stage.events()?.into_iter();
    let of_web = events.find(|event| {
        event["regarding"]["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("web"))
    });
    assert_eq!(of_web, None);

    let spans = stage.spans(&loss, "node.lost")?;
    let lost = named(&spans, "node.lost fenced-by-taint")?;
    assert_eq!(tag(lost, "epitaph.node.transition"), transition.rfc3339().as_str());
    assert!(tag(lost, "epitaph.node.unwatched").is_null(), "{lost:#}");
    assert!(!tag(lost, "epitaph.node.renewed_at").is_null(), "{lost:#}");
    // Of the API's own time, which has whole seconds.
    let apart = (begin(lost) - transition.seconds()).abs();
    assert!(apart <= 2.0, "{apart} s");

    // The node is back, rebooted; the taint is left behind until it is removed.
    stage.kubelets.boot(&node, "boot-2", None)?;
    until_metric(&first, "epitaph_node_out_of_service", &[&of_node, "ready=\"true\""], 1.0)?;
    stage.kubectl.run(&["taint", "nodes", &node, &format!("{TAINT}-")])?;
    let spans = stage.spans(&loss, "node.out_of_service")?;
    assert_eq!(tag(named(&spans, "node.down")?, "epitaph.node.return"), "rebooted");
    until_metric(&first, "epitaph_node_lost", &[&of_node], 0.0)?;

    let (second, cut_off) = cut_off(&stage, first, (&new, other))?;
    let recovered = zone::recovers(&stage, second, &single)?;
    let pods = [&old, &new, &kept, &web, &single].map(|pod| pod_trace(pod));
    nothing_is_twice(&stage, pods.iter().chain([&loss, &cut_off, &recovered]))
}

/// Of the pod that a finalizer keeps.
fn finalizers(stage: &Stage, names: &[&str]) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"finalizers": names}}).to_string();
    let args = ["-n", "shop", "patch", "pod", KEPT, "--type=merge", "-p", &patch];
    stage.kubectl.run(&args).map(drop)
}

/// First by the node, and after the forced deletion by its finalizer.
fn kept_by_finalizer(spans: &[Value]) -> anyhow::Result<()> {
    named(spans, "pod.lost stuck-by-finalizer")?;
    let mut stuck: Vec<&Value> = spans.iter().filter(|span| span["operationName"] == "stuck").collect();
    stuck.sort_by_key(|span| span["startTime"].as_u64());
    let by: Vec<&Value> = stuck.iter().map(|span| tag(span, "epitaph.stuck.by")).collect();
    ensure!(by == ["node", "finalizer"], "{spans:#?}");
    let names = tag(stuck[1], "epitaph.stuck.finalizers");
    ensure!(names.to_string().contains(FINALIZER), "{names}");
    Ok(())
}

/// When the deletion of a pod with this metadata was requested, in seconds since the epoch.
fn requested(metadata: &Value) -> anyhow::Result<f64> {
    let grace = metadata["deletionGracePeriodSeconds"].as_f64().context("not being deleted")?;
    Ok(time(&metadata["deletionTimestamp"])?.seconds() - grace)
}

/// The same pod name moves again: its node is cut off, the agent answers, nobody sets the taint, and it comes back with its boot. The
/// observer that is active then, and the trace of the loss.
fn cut_off(stage: &Stage, mut first: Service, (pod, node): (&str, &str)) -> anyhow::Result<(Service, String)> {
    // A standby, whose /healthz stands for the agent's.
    let second = stage.observer()?;
    let labels = json!({"app.kubernetes.io/name": "epitaph", "app.kubernetes.io/component": "agent"});
    let here = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
    ]}}});
    let agents = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "epitaph"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "affinity": here, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "app", "image": "app", "ports": [{"name": "metrics", "containerPort": second.port}]}],
            },
        }},
    });
    stage.kubectl.run_with(&["create", "-f", "-"], &agents.to_string())?;
    let agent = stage.until("the agent's pod runs", || {
        let selector = "--selector=app.kubernetes.io/component=agent";
        let pods = stage
            .kubectl
            .json(&["-n", "epitaph", "get", "pods", selector, "-o", "json"])?;
        let pod = &pods["items"][0];
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok((pod["status"]["phase"] == "Running").then_some(name))
    })?;
    let address = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}).to_string();
    let args = [
        "-n",
        "epitaph",
        "patch",
        "pod",
        &agent,
        "--subresource=status",
        "--type=merge",
        "-p",
        &address,
    ];
    stage.kubectl.run(&args)?;

    stage.kubelets.lose(node);
    let of_node = of_node(node);
    until_metric(&first, "epitaph_node_lost", &[&of_node, "verdict=\"unreachable\""], 1.0)?;
    first.until("epitaph_node_pods_stuck", &[&of_node], 1.0)?;
    let (loss, _) = stage.loss(node)?;
    zone::is_held(stage, &first)?;
    // The active observer is killed in the middle: the other one waits for the Lease, and continues.
    first.kill()?;
    until_active(&second)?;
    until_metric(&second, "epitaph_node_lost", &[&of_node, "verdict=\"unreachable\""], 1.0)?;
    stage.kubelets.boot(node, "boot-1", None)?;
    let (third, _) = stage.running("db-0", &[pod])?;
    assert_ne!(third, pod);
    let spans = stage.spans(&pod_trace(pod), "pod.lost")?;
    let root = named(&spans, "pod.lost unreachable")?;
    assert!(
        tag(root, "epitaph.sentence").as_str().is_some_and(|text| text.contains(node)),
        "{root:#}"
    );
    // Back again, its kubelet may be seen to end the pod: then a second one, by the runtime. Jaeger gives them in no order.
    let held = spans.iter().filter(|span| span["operationName"] == "stuck");
    let first_held = held.min_by_key(|span| span["startTime"].as_u64()).context("no stuck")?;
    assert_eq!(tag(first_held, "epitaph.stuck.by"), "node", "{spans:#?}");
    let spans = stage.spans(&loss, "node.down")?;
    let lost = named(&spans, "node.lost unreachable")?;
    assert!(tag(lost, "epitaph.node.unwatched").as_f64().is_some(), "{lost:#}");
    assert_eq!(tag(named(&spans, "node.down")?, "epitaph.node.return"), "same-boot");
    Ok((second, loss))
}

fn nothing_is_twice<'a>(stage: &Stage, traces: impl Iterator<Item = &'a String>) -> anyhow::Result<()> {
    for trace in traces {
        let trace = stage.jaeger.trace(trace)?.with_context(|| format!("no trace {trace}"))?;
        let spans = trace["spans"].as_array().context("no spans")?;
        let ids: BTreeSet<&str> = spans.iter().filter_map(|span| span["spanID"].as_str()).collect();
        assert_eq!(ids.len(), spans.len(), "{spans:#?}");
    }
    Ok(())
}
