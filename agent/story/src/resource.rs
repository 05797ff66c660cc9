//! The custom resource `Epitaph`, read back: the objects of docs/json.md, as far as the resource has what is in them.
//!
//! What the resource does not hold is absent, never zero: who sent a signal, what the kernel did with it, when a connection was lost.

#[cfg(test)]
mod patch_tests;
mod template;

use std::collections::{BTreeMap, HashSet};

use epitaph_core::render::resource::{EpitaphAdvice, EpitaphContainer, EpitaphReport, EpitaphTimes, POD};
use epitaph_core::time::Wall;
use epitaph_core::verdict::{AdviceKind, table};
use serde_json::{Map, Value, json};

use crate::history::Report;
use crate::story::{Snippet, snippets};
pub use template::Template;

/// The report as one object of docs/json.md: a `pod-termination`, or of a pod that lives on the `termination` of its container.
pub fn object(namespace: &str, report: &EpitaphReport) -> Value {
    let mut containers = of_this(report).into_iter().map(|of| container(namespace, report, of));
    let begin = report.times.requested.as_deref().or(report.times.stop_signal.as_deref());
    let begin = begin.and_then(moment);
    let mut object = json!({
        "type": if report.terminated == POD { "pod-termination" } else { "termination" },
        "time": moment(&report.times.exited),
        "begin": begin,
        "end": moment(&report.times.exited),
        "trace_id": report.trace_id,
        "verdict": report.verdict,
        "cause": report.cause,
        "exit": report.exit,
        "traffic": report.traffic,
        "unclean": report.unclean,
        "severity": severity(&report.verdict),
        "sentence": report.sentence,
        "remedy": report.remedy,
        "connections": connections(report),
        "disagreement": report.kubectl_shows.as_ref().map(|status| json!({"status": status})),
    });
    let own = match report.terminated.as_str() {
        POD => json!({
            "pod": pod(namespace, report),
            "request": request(report),
            "kubernetes": {"pod": pod(namespace, report), "incomplete": incomplete(report)},
            "advice": advice(report, |_| true),
            "containers": containers.collect::<Vec<Value>>(),
        }),
        // The newest is the one that the report is about.
        _ => containers.next_back().unwrap_or_default(),
    };
    merge(&mut object, own);
    object
}

/// Container terminations of the pod before the one that the report is about, the latest first: each as an object of docs/json.md.
pub fn earlier(namespace: &str, report: &EpitaphReport) -> Vec<Value> {
    let of_this: HashSet<&str> = of_this(report).into_iter().map(|of| of.id.as_str()).collect();
    let others = report.containers.iter().rev().filter(|of| !of_this.contains(of.id.as_str()));
    others
        .map(|of| {
            let mut object = container(namespace, report, of);
            let how = match (&of.exit_signal, of.exit_code) {
                (Some(signal), _) => format!("terminated by {signal}"),
                (None, Some(code)) => format!("exit code {code}"),
                (None, None) => "the exit was not observed".to_owned(),
            };
            object["sentence"] = format!("container {}: {how}", of.name).into();
            object
        })
        .collect()
}

/// The settings that would have suited every one of these pods of one workload: of each, the most that one of the pods needed, and more
/// than the workload has now.
pub fn settings(namespace: &str, reports: &[&EpitaphReport], present: Template<'_>) -> Vec<Snippet> {
    let Some(first) = reports.first() else { return Vec::new() };
    // Of each container, the longest shutdown: a sleep and the shutdown have to fit into the grace period.
    let mut longest: BTreeMap<&str, &EpitaphContainer> = BTreeMap::new();
    for container in reports.iter().flat_map(|report| of_this(report)) {
        let known = longest.entry(&container.name).or_insert(container);
        if shutdown(container) > shutdown(known) {
            *known = container;
        }
    }
    // As of pods that were deleted: the grace period that counted is then not taken for that of the spec.
    let requested = reports.iter().find_map(|report| report.times.requested.clone());
    let requested = requested.or_else(|| Some(first.times.exited.clone()));
    let whole = EpitaphReport {
        containers: longest.into_values().cloned().collect(),
        advice: most(reports),
        grace_seconds: reports.iter().filter_map(|report| report.grace_seconds).max(),
        times: EpitaphTimes {
            requested,
            ..first.times.clone()
        },
        ..(*first).clone()
    };
    let whole = present.applied(whole);
    serde_json::from_value::<Report>(object(namespace, &whole)).map_or_else(|_| Vec::new(), |report| snippets(&report))
}

/// A lower value is advised only where every pod would have had enough with it.
fn most(reports: &[&EpitaphReport]) -> Vec<EpitaphAdvice> {
    /// Kind and container.
    type Setting<'a> = (&'a str, Option<&'a str>);
    /// Pods that it is advised for, and the highest value.
    type Advised = (usize, Option<u64>);
    let mut all: BTreeMap<Setting<'_>, Advised> = BTreeMap::new();
    for advice in reports.iter().flat_map(|report| &report.advice) {
        let (count, seconds) = all.entry((&advice.kind, advice.container.as_deref())).or_default();
        *count += 1;
        *seconds = (*seconds).max(advice.seconds);
    }
    let [lower_grace, lower_sleep] = [AdviceKind::GraceShorter, AdviceKind::PreStopSleepShorter].map(AdviceKind::name);
    let raises = all.keys().any(|(kind, _)| ![lower_grace, lower_sleep].contains(kind));
    let is_of_all =
        |kind: &str, count: usize| ![lower_grace, lower_sleep].contains(&kind) || (!raises && count == reports.len());
    all.into_iter()
        .filter(|((kind, _), (count, _))| is_of_all(kind, *count))
        .map(|((kind, container), (_, seconds))| EpitaphAdvice {
            kind: kind.to_owned(),
            container: container.map(str::to_owned),
            seconds,
        })
        .collect()
}

fn shutdown(of: &EpitaphContainer) -> u64 {
    let stop = of.stop_signal.as_deref().and_then(Wall::parse_rfc3339);
    let exit = Wall::parse_rfc3339(&of.exited);
    stop.zip(exit).map_or(0, |(stop, exit)| exit.0.saturating_sub(stop.0))
}

/// One for each container that terminated with the pod, in the order of their exits: the last of each name. Of a pod that lives on, the
/// one that was reported last.
fn of_this(report: &EpitaphReport) -> Vec<&EpitaphContainer> {
    let all = report.containers.iter().rev();
    if report.terminated != POD {
        return all.take(1).collect();
    }
    let mut names = HashSet::new();
    let mut last: Vec<&EpitaphContainer> = all.filter(|of| names.insert(of.name.as_str())).collect();
    last.reverse();
    last
}

fn container(namespace: &str, report: &EpitaphReport, of: &EpitaphContainer) -> Value {
    let is_speaker = report.container.as_deref() == Some(&of.name) && report.verdict == of.verdict;
    let mut object = json!({
        "type": "termination",
        "end": moment(&of.exited),
        "begin": of.stop_signal.as_deref().map(moment),
        "trace_id": report.trace_id,
        "subject": {"kind": "container", "id": of.id, "pod_uid": report.pod.uid},
        "kubernetes": {
            "pod": pod(namespace, report),
            "container": of.name,
            "kind": of.kind,
            "request": request(report),
            "grace_ms": grace(report, of).map(|seconds| seconds.saturating_mul(1000)),
            "pre_stop": of.pre_stop.as_deref().map(hook),
            "incomplete": incomplete(report),
        },
        "verdict": of.verdict,
        "cause": of.cause,
        "unclean": table::by_headline(&of.verdict).is_some_and(|row| row.unclean),
        "severity": severity(&of.verdict),
        // Absent where the exit was not observed: an exit that is there has a code or a signal.
        "status": (of.exit_code.is_some() || of.exit_signal.is_some())
            .then(|| json!({"time": moment(&of.exited), "code": of.exit_code, "signal": of.exit_signal})),
        "stop": of.stop_signal.as_ref().map(|at| json!({"time": moment(at), "signal": report.stop_signal})),
        "kill": of.killed.as_ref().map(|at| json!({"time": moment(at)})),
        "advice": advice(report, |container| container == Some(&of.name)),
    });
    if is_speaker {
        merge(
            &mut object,
            json!({"exit": report.exit, "traffic": report.traffic, "sentence": report.sentence, "remedy": report.remedy}),
        );
    }
    without_nulls(&mut object);
    object
}

fn pod(namespace: &str, report: &EpitaphReport) -> Value {
    let owner = report.owner.as_ref();
    json!({
        "namespace": namespace,
        "name": report.pod.name,
        "uid": report.pod.uid,
        "node": report.node,
        "workload": {
            "kind": owner.map_or("Pod", |owner| &owner.kind),
            "name": owner.map_or(&report.pod.name, |owner| &owner.name),
        },
    })
}

fn request(report: &EpitaphReport) -> Option<Value> {
    let at = moment(report.times.requested.as_deref()?);
    let millis = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_mul(1000));
    let (grace, spec) = (millis(report.grace_seconds), millis(spec_grace(report)));
    Some(json!({"earliest": at, "latest": at, "grace_ms": grace, "spec_grace_ms": spec}))
}

/// `terminationGracePeriodSeconds`; None if it is not known: in an object of an older agent the grace period that counted may be a
/// deletion's, or a probe's.
fn spec_grace(report: &EpitaphReport) -> Option<u64> {
    let is_own = report.times.requested.is_none() && !is_by_probe(&report.cause);
    report.spec_grace_seconds.or(report.grace_seconds.filter(|_| is_own))
}

/// The grace period that counted for one container. That of a pod's deletion is not that of a probe.
fn grace(report: &EpitaphReport, of: &EpitaphContainer) -> Option<u64> {
    let is_probes = report.terminated == POD && is_by_probe(&of.cause);
    report.grace_seconds.filter(|_| !is_probes)
}

fn is_by_probe(cause: &str) -> bool {
    matches!(cause, "liveness" | "startup")
}

/// Whoever may write an object may write any text in it.
fn moment(text: &str) -> Option<&str> {
    Wall::parse_rfc3339(text).map(|_| text)
}

/// The sum of the pod; times are not in the resource.
fn connections(report: &EpitaphReport) -> Value {
    report.connections.as_ref().map_or_else(
        || json!({"observed": false}),
        |of| {
            json!({
                "observed": of.at_least != Some(true) && of.lost.is_some(), "accepted": of.accepted, "refused": of.refused, "reset": of.reset, "cut": of.cut,
                "rejected": of.rejected,
            })
        },
    )
}

/// Texts of their own: in the object of docs/json.md gaps have numbers.
fn incomplete(report: &EpitaphReport) -> Option<String> {
    (!report.gaps.is_empty()).then(|| report.gaps.join("; "))
}

fn advice(report: &EpitaphReport, is_wanted: impl Fn(Option<&String>) -> bool) -> Vec<Value> {
    let wanted = report.advice.iter().filter(|advice| is_wanted(advice.container.as_ref()));
    wanted
        .map(|advice| json!({"kind": advice.kind, "seconds": advice.seconds, "text": text(&advice.kind, advice.seconds)}))
        .collect()
}

fn text(kind: &str, seconds: Option<u64>) -> String {
    let setting = match kind {
        "grace-longer" => "a longer terminationGracePeriodSeconds",
        "grace-shorter" => "a shorter terminationGracePeriodSeconds is enough",
        "pre-stop-sleep-longer" => "a longer preStop sleep",
        "pre-stop-sleep-shorter" => "a shorter preStop sleep is enough",
        "accept-while-draining" => "accept new connections while the server drains",
        other => other,
    };
    match seconds {
        Some(seconds) => format!("{setting}: {seconds} s"),
        None => setting.to_owned(),
    }
}

fn hook(text: &str) -> Value {
    let (hook, program) = text
        .split_once(' ')
        .map_or((text, None), |(hook, program)| (hook, Some(program)));
    match (hook, program) {
        ("sleep", seconds) => json!({"hook": hook, "sleep_s": seconds.and_then(|seconds| seconds.parse::<u64>().ok())}),
        _ => json!({"hook": hook, "program": program}),
    }
}

/// A verdict of a newer agent has none that is known here.
fn severity(verdict: &str) -> Option<Value> {
    let severity = table::by_headline(verdict)?.severity;
    serde_json::to_value(severity).ok()
}

fn merge(into: &mut Value, from: Value) {
    let (Value::Object(into), Value::Object(from)) = (into, from) else {
        return;
    };
    into.extend(from);
}

/// Absent and null are the same to a reader; absent is shorter.
fn without_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        let kept: Map<String, Value> = std::mem::take(fields).into_iter().filter(|(_, of)| !of.is_null()).collect();
        *fields = kept;
        fields.values_mut().for_each(without_nulls);
    }
}

#[cfg(test)]
#[path = "resource_tests.rs"]
mod tests;
