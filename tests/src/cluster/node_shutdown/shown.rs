//! What the traces show of a shutdown, as Jaeger gives them back.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::super::node_name;
use super::super::play::{Stage, nothing_more_within, text, until};
use super::asked::Pod;
use super::{NODE, Off, SOON};
use crate::traces::tag;

/// Time within which a late span would arrive.
const SETTLED: Duration = Duration::from_secs(15);

/// The spans of the shutdown with that verdict, once the time in which the node was down is among them; and what is wrong with the root.
/// A spoofed one has no such time.
pub fn root(stage: &Stage, off: &Off, verdict: &str) -> anyhow::Result<(Vec<Value>, Vec<String>)> {
    let announcement = match verdict {
        "spoofed" => "spoofed PrepareForShutdown",
        _ => "PrepareForShutdown",
    };
    root_by(stage, off, verdict, announcement)
}

/// The same of a shutdown whose first sign is this.
fn root_by(stage: &Stage, off: &Off, verdict: &str, announcement: &str) -> anyhow::Result<(Vec<Value>, Vec<String>)> {
    let is_down = verdict != "spoofed";
    let traces = || -> anyhow::Result<Vec<Value>> {
        let mut found = stage.jaeger.traces_with("epitaph.shutdown.announcement", announcement)?;
        found.retain(|trace| is_of(trace, &off.boot));
        Ok(found)
    };
    let mut last = "no trace".to_owned();
    let whole = || {
        let trace = traces()?.into_iter().next();
        let Some(trace) = trace else { return Ok(None) };
        let spans = trace["spans"].as_array().cloned().unwrap_or_default();
        last = format!("{:?}", names(&spans));
        let is_whole = !is_down || names(&spans).contains(&"down");
        Ok(is_whole.then_some(spans))
    };
    until(SOON, "the trace of the shutdown", whole).with_context(|| last.clone())?;
    // The subject is time: a second trace would come within it.
    nothing_more_within(SETTLED);
    let again = traces()?;
    let mut problems = Vec::new();
    if again.len() != 1 {
        problems.push(format!("{} traces of one shutdown", again.len()));
    }
    let spans = again.first().context("the trace is gone again")?["spans"].as_array();
    let spans = spans.cloned().unwrap_or_default();
    for span in &spans {
        eprintln!("{}", line(span));
    }
    problems.extend(stage.node_epitaph("Shutdown", verdict, &spans)?);
    let expected = format!("node.shutdown {verdict}");
    if count(&spans, &expected) != 1 {
        problems.push(format!("no {expected}: {:?}", names(&spans)));
    }
    if is_down && count(&spans, "down") != 1 {
        problems.push(format!("{} spans down", count(&spans, "down")));
    }
    Ok((spans, problems))
}

/// The kubelet's lock delayed it.
pub fn kubelets_lock(spans: &[Value]) -> Vec<String> {
    let is_kubelets = |span: &&Value| name(span) == "inhibitor" && tag(span, "epitaph.lock.who") == "kubelet";
    let mut problems = Vec::new();
    let locks = spans.iter().filter(is_kubelets).count();
    if locks != 1 || count(spans, "logind.delay") != 1 {
        problems.push(format!("{locks} locks of the kubelet in {:?}", names(spans)));
    }
    problems.extend(differs(
        spans,
        "node.shutdown",
        "epitaph.shutdown.kubelet_lock",
        &json!("held"),
    ));
    problems
}

/// All of it: lock, phases with their pods, links both ways, replacements, the node's condition and its reason.
pub fn graceful(stage: &Stage, off: &Off, gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    let (spans, mut problems) = root(stage, off, "graceful")?;
    problems.extend(kubelets_lock(&spans));
    // logind announces the kind from systemd 255 on. Before, systemd's job shows it, which may come after the agent's end.
    let node = stage.kubectl.json(&["get", "node", &node_name(NODE), "-o", "json"])?;
    let announces = !text(&node["status"]["nodeInfo"]["osImage"]).contains("GNU/Linux 12");
    let is_known = spans
        .iter()
        .any(|span| name(span) == "node.shutdown" && !tag(span, "epitaph.shutdown.kind").is_null());
    if announces || is_known {
        problems.extend(differs(&spans, "node.shutdown", "epitaph.shutdown.kind", &json!("power-off")));
    }
    let phases: Vec<&Value> = spans.iter().filter(|span| name(span) == "kubelet.phase").collect();
    let [first, critical] = phases_in_order(&phases)[..] else {
        problems.push(format!("{} phases", phases.len()));
        return Ok(problems);
    };
    if times(critical).0 + 0.001 < times(first).1 {
        problems.push("the critical phase begins before the end of the first".to_owned());
    }
    for pod in gone {
        let phase = if pod.is_of_deployment { first } else { critical };
        problems.extend(of_pod(stage, pod, &spans, phase)?);
    }
    if !off.node.is_shutting_down() {
        problems.push(format!("the API did not show the shutdown: {:?}", off.node));
    }
    let Some(not_ready) = spans.iter().find(|span| name(span) == "node.not_ready") else {
        problems.push(format!("no node.not_ready in {:?}", names(&spans)));
        return Ok(problems);
    };
    for (key, value) in [
        ("epitaph.node.reason", &off.node.reason),
        ("epitaph.node.message", &off.node.message),
        ("epitaph.node.transition", &off.node.transition),
    ] {
        if tag(not_ready, key) != value.as_str() {
            problems.push(format!("{key} is {}, not {value}", tag(not_ready, key)));
        }
    }
    Ok(problems)
}

/// The pod's trace, and the links between it and the node's.
fn of_pod(stage: &Stage, pod: &Pod, spans: &[Value], phase: &Value) -> anyhow::Result<Vec<String>> {
    let mut problems = Vec::new();
    let expected = ["pod.termination", "replacement"];
    let expected = if pod.is_of_deployment { &expected[..] } else { &expected[..1] };
    let found = until(Duration::from_secs(60), &format!("the trace of {}", pod.name), || {
        let traces = stage.jaeger.traces_with("k8s.pod.uid", &pod.uid)?;
        let has_all = |trace: &&Value| {
            let spans = trace["spans"].as_array().map_or(&[][..], Vec::as_slice);
            expected.iter().all(|kind| spans.iter().any(|span| kind_of(span) == *kind))
        };
        Ok(traces.iter().find(has_all).cloned())
    });
    let trace = match found {
        Ok(trace) => trace,
        Err(error) => return Ok(vec![format!("{}: {error:#}", pod.name)]),
    };
    let its = trace["spans"].as_array().context("no spans")?;
    let Some(root) = its.iter().find(|span| kind_of(span) == "pod.termination") else {
        return Ok(vec![format!("{}: no root", pod.name)]);
    };
    eprintln!("{}: {}", pod.name, line(root));
    for (key, value) in [("epitaph.cause", "node-shutdown"), ("epitaph.verdict", "clean")] {
        if tag(root, key) != value {
            problems.push(format!(
                "{}: {key} is {}: {}",
                pod.name,
                tag(root, key),
                tag(root, "epitaph.sentence")
            ));
        }
    }
    if !links(phase).any(|link| link == &root["traceID"]) {
        problems.push(format!("{}: its phase does not link to it", pod.name));
    }
    let node = spans.iter().find(|span| name(span).starts_with("node.shutdown"));
    if !node.is_some_and(|node| links(root).any(|link| link == &node["traceID"])) {
        problems.push(format!("{}: does not link to the shutdown", pod.name));
    }
    Ok(problems)
}

/// No lock, for this reason.
pub fn without_lock(
    stage: &Stage,
    off: &Off,
    (verdict, announcement): (&str, &str),
    reason: &str,
) -> anyhow::Result<(Vec<Value>, Vec<String>)> {
    let (spans, mut problems) = root_by(stage, off, verdict, announcement)?;
    problems.extend(differs(
        &spans,
        "node.shutdown",
        "epitaph.shutdown.kubelet_lock",
        &json!("missing"),
    ));
    problems.extend(lacks(&spans, "epitaph.sentence", reason));
    Ok((spans, problems))
}

/// The node controller had made the pods not Ready before the node was back.
pub fn none_stayed_ready(spans: &[Value]) -> Option<String> {
    let root = spans.iter().find(|span| name(span).starts_with("node.shutdown"))?;
    let count = tag(root, "epitaph.shutdown.pods_ready");
    count
        .as_u64()
        .is_some_and(|count| count > 0)
        .then(|| format!("{count} pods stayed Ready"))
}

/// Their containers ended with the machine: each has a trace of its own, with the shutdown as its cause.
pub fn of_pods_cut(stage: &Stage, off: &Off, gone: &[Pod]) -> anyhow::Result<Vec<String>> {
    let mut problems = Vec::new();
    for pod in gone {
        let found = until(Duration::from_secs(60), "the container's trace", || {
            let traces = stage.jaeger.traces_with("k8s.pod.uid", &pod.uid)?;
            let spans = traces.iter().filter(|trace| is_of(trace, &off.boot));
            let mut spans = spans.flat_map(|trace| trace["spans"].as_array().into_iter().flatten());
            Ok(spans.find(|span| kind_of(span) == "container.stop").cloned())
        });
        match found {
            Ok(stop) if tag(&stop, "epitaph.cause") == "node-shutdown" => eprintln!("{}: {}", pod.name, line(&stop)),
            Ok(stop) => problems.push(format!("{}: {}", pod.name, line(&stop))),
            Err(error) => problems.push(format!("{}: {error:#}", pod.name)),
        }
    }
    Ok(problems)
}

/// That pod was cut by its phase, one of three.
pub fn truncated(stage: &Stage, off: &Off, slow: &Pod) -> anyhow::Result<Vec<String>> {
    let (spans, mut problems) = root(stage, off, "truncated")?;
    problems.extend(kubelets_lock(&spans));
    for part in ["cut 1 of", &slow.name, "priority 1000 took 2"] {
        problems.extend(lacks(&spans, "epitaph.sentence", part));
    }
    let phases: Vec<&Value> = spans.iter().filter(|span| name(span) == "kubelet.phase").collect();
    let cut = |span: &&&Value| tag(span, "epitaph.shutdown.pods_cut") == 1;
    let priority = |span: &&Value| tag(span, "epitaph.phase.priority");
    let of_cut: Vec<Value> = phases.iter().filter(cut).map(priority).collect();
    if phases.len() != 3 || of_cut != [json!(super::PRIORITY)] {
        problems.push(format!("{} phases, cut in {of_cut:?}", phases.len()));
    }
    Ok(problems)
}

/// That pod was ending when the power went.
pub fn cut_in_phase(stage: &Stage, off: &Off, slow: &Pod) -> anyhow::Result<Vec<String>> {
    let (spans, mut problems) = root(stage, off, "truncated")?;
    problems.extend(kubelets_lock(&spans));
    problems.extend(lacks(&spans, "epitaph.sentence", &slow.name));
    problems.extend(of_pods_cut(stage, off, std::slice::from_ref(slow))?);
    Ok(problems)
}

fn phases_in_order<'a>(phases: &[&'a Value]) -> Vec<&'a Value> {
    let mut phases = phases.to_vec();
    phases.sort_by_key(|span| tag(span, "epitaph.phase.priority").as_i64());
    phases
}

fn differs(spans: &[Value], kind: &str, key: &str, value: &Value) -> Option<String> {
    let span = spans.iter().find(|span| name(span).starts_with(kind))?;
    let found = tag(span, key);
    (found != *value).then(|| format!("{key} is {found}, not {value}"))
}

/// The root's text does not have these words.
fn lacks(spans: &[Value], key: &str, words: &str) -> Option<String> {
    let root = spans.iter().find(|span| name(span).starts_with("node.shutdown"))?;
    let found = tag(root, key);
    (!found.as_str().is_some_and(|text| text.contains(words))).then(|| format!("{key} has no `{words}`: {found}"))
}

fn is_of(trace: &Value, boot: &str) -> bool {
    let spans = trace["spans"].as_array().into_iter().flatten();
    let mut processes = spans.filter_map(|span| span["processID"].as_str());
    processes.any(|process| tag(&trace["processes"][process], "epitaph.boot_id") == boot)
}

/// Trace ids of its links.
fn links(span: &Value) -> impl Iterator<Item = &Value> {
    let references = span["references"].as_array().into_iter().flatten();
    references
        .filter(|reference| reference["refType"] == "FOLLOWS_FROM")
        .map(|reference| &reference["traceID"])
}

fn name(span: &Value) -> &str {
    span["operationName"].as_str().unwrap_or_default()
}

/// The name without its verdict.
fn kind_of(span: &Value) -> &str {
    crate::traces::kind_of(span)
}

fn names(spans: &[Value]) -> Vec<&str> {
    spans.iter().map(name).collect()
}

fn count(spans: &[Value], of: &str) -> usize {
    spans.iter().filter(|span| name(span) == of).count()
}

/// Begin and end, in seconds since the epoch.
fn times(span: &Value) -> (f64, f64) {
    let seconds = |value: &Value| value.as_f64().unwrap_or_default() / 1e6;
    let begin = seconds(&span["startTime"]);
    (begin, begin + seconds(&span["duration"]))
}

/// For a person who reads the story's output.
fn line(span: &Value) -> String {
    let (begin, end) = times(span);
    let sentence = tag(span, "epitaph.sentence");
    let who = tag(span, "epitaph.lock.who");
    let said: Vec<String> = [sentence, who]
        .iter()
        .filter_map(|said| said.as_str().map(str::to_owned))
        .collect();
    format!("  {} {begin:.1} for {:.1} s {}", name(span), end - begin, said.join(" "))
}
