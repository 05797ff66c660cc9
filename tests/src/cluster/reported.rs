//! Compares Jaeger's traces and the API server's Events of a story's pod with the expected ones.

use std::time::Duration;

use serde_json::{Value, json};

use super::play::{Pod, text};
use super::stories::{Expected, NAMESPACE};
use crate::traces::{end, kind_of, misnamed, tag};

/// Traces of a terminated pod, besides its own: a line for each that reports more than a container that had exited before.
pub(super) fn reported_twice(expected: &Expected, others: &[Value]) -> Vec<String> {
    let mut earlier = expected.earlier.to_vec();
    let mut problems = Vec::new();
    for other in others {
        let place = match roots(other)[..] {
            [root] if kind_of(root) == "container.stop" => {
                let name = tag(root, "k8s.container.name");
                earlier.iter().position(|earlier| name == *earlier)
            }
            _ => None,
        };
        match place {
            Some(place) => drop(earlier.swap_remove(place)),
            None => problems.push(format!("another trace of the pod:\n{}", outline(other))),
        }
    }
    problems.extend(
        earlier
            .iter()
            .map(|name| format!("no trace of {name}, which had exited before")),
    );
    problems
}

/// The differences from the expected trace, a line each.
pub(super) fn differs(expected: &Expected, trace: &Value, pod: &Pod) -> Vec<String> {
    let mut problems = Vec::new();
    let spans: Vec<&Value> = trace["spans"].as_array().into_iter().flatten().collect();
    let roots = roots(trace);
    let [root] = roots[..] else {
        problems.push(format!("{} roots", roots.len()));
        return problems;
    };
    problems.extend(misplaced(expected, &spans));
    problems.extend(spans.iter().filter_map(|span| of_another(trace, span, pod)));
    let mut same = |what: &str, found: &Value, wanted: &str| {
        if !wanted.split('|').any(|wanted| *found == json!(wanted)) {
            problems.push(format!("{what}: {found}, not {wanted}"));
        }
    };
    same("verdict", &tag(root, "epitaph.verdict"), expected.verdict);
    same("cause", &tag(root, "epitaph.cause"), expected.cause);
    let stops: Vec<&&Value> = spans.iter().filter(|span| kind_of(span) == "container.stop").collect();
    for stop in &stops {
        same(
            &format!("cause of {}", name(stop)),
            &tag(stop, "epitaph.cause"),
            expected.cause,
        );
    }
    for (container, verdict) in expected.containers {
        let stop = stops.iter().find(|span| tag(span, "k8s.container.name") == *container);
        let found = stop.map_or(Value::Null, |stop| tag(stop, "epitaph.verdict"));
        same(&format!("container {container}"), &found, verdict);
    }
    if !expected.containers.is_empty() && stops.len() != expected.containers.len() {
        problems.push(format!("{} container.stop, not {}", stops.len(), expected.containers.len()));
    }
    for wanted in expected.spans {
        if !has_span(trace, wanted) {
            problems.push(format!("no span {wanted}"));
        }
    }
    for (wanted, least) in expected.lasts {
        let lasted = longest(&spans, wanted);
        if lasted < *least {
            problems.push(format!("{wanted} lasts {lasted:?}, less than {least:?}"));
        }
    }
    problems.extend(wrong_by_time(expected, root, &spans));
    let about = [
        ("sentence", expected.sentence),
        ("remedy", expected.remedy),
        ("advice", expected.advice),
    ];
    for (what, words) in about {
        let reported = text(&tag(root, &format!("epitaph.{what}")));
        for word in words {
            if !reported.contains(word) {
                problems.push(format!("the {what} lacks `{word}`: {reported}"));
            }
        }
    }
    if expected.whole {
        for gap in ["epitaph.incomplete", "epitaph.containers_unseen"] {
            if !tag(root, gap).is_null() {
                problems.push(format!("{gap}: {}", tag(root, gap)));
            }
        }
    }
    problems
}

/// Words that the sentence has only if a span lasts long, and has then.
fn wrong_by_time(expected: &Expected, root: &Value, spans: &[&Value]) -> Option<String> {
    let (of, least, words) = expected.sentence_if_lasts?;
    let lasted = longest(spans, of);
    let sentence = text(&tag(root, "epitaph.sentence"));
    let is_right = sentence.contains(words) == (lasted >= least);
    (!is_right).then(|| {
        let has = if sentence.contains(words) { "has" } else { "lacks" };
        format!("{of} lasts {lasted:?}, and the sentence {has} `{words}`: {sentence}")
    })
}

fn longest(spans: &[&Value], of: &str) -> Duration {
    let of_it = spans.iter().filter(|span| span["operationName"] == of);
    let longest = of_it.filter_map(|span| span["duration"].as_u64()).max().unwrap_or(0);
    Duration::from_micros(longest)
}

/// Spans that are in the wrong place, or lack what a span of a trace must have.
fn misplaced(expected: &Expected, spans: &[&Value]) -> Vec<String> {
    let mut problems = Vec::new();
    for (place, span) in spans.iter().enumerate() {
        let name = kind_of(span);
        problems.extend(misnamed(span));
        // Jaeger takes a span that ends after its parent for a skewed clock; the observer's spans may do so.
        let is_late = matches!(name, "endpoint.removal" | "replacement");
        let warnings = span["warnings"].as_array().into_iter().flatten();
        for warning in warnings.filter(|warning| !(is_late && text(warning).starts_with("clock skew adjustment disabled"))) {
            problems.push(format!("Jaeger warns about {name}: {warning}"));
        }
        if spans[..place].iter().any(|other| other["spanID"] == span["spanID"]) {
            problems.push(format!("{name} twice"));
        }
        // Both are left out where they are false.
        let unclean = tag(span, "epitaph.unclean");
        if !tag(span, "epitaph.verdict").is_null() && tag(span, "error") != unclean {
            problems.push(format!("{name}: unclean {unclean}, error {}", tag(span, "error")));
        }
        // Only the kubelet connects to the victims, unless a story asks for clients.
        if name.ends_with(" connections") && !expected.spans.contains(&name) {
            problems.push(format!("{name} without any client: {}", span["tags"]));
        }
        let Some(parent) = span["references"][0]["spanID"].as_str() else {
            if name != expected.root {
                problems.push(format!("{name} is a root"));
            }
            continue;
        };
        let Some(parent) = spans.iter().find(|other| other["spanID"] == parent) else {
            problems.push(format!("{name} is an orphan"));
            continue;
        };
        let (wanted, within) = match name {
            // The observer's attributes, which come later.
            "endpoint.removal" | "replacement" => ("pod.termination", false),
            "container.stop" => ("pod.termination", true),
            _ => ("container.stop", true),
        };
        if kind_of(parent) != wanted {
            problems.push(format!("{name} is below {}, not {wanted}", kind_of(parent)));
        }
        // Jaeger rounds start and duration down to microseconds, each.
        let is_within = span["startTime"].as_u64() >= parent["startTime"].as_u64() && end(span) <= end(parent) + 1;
        if within && !is_within {
            problems.push(format!("{name} is not within {wanted}"));
        }
    }
    problems
}

/// The difference of the span's resource from the pod, if any.
fn of_another(trace: &Value, span: &Value, pod: &Pod) -> Option<String> {
    let process = &trace["processes"][span["processID"].as_str().unwrap_or_default()];
    let is_its = tag(process, "k8s.pod.name") == pod.name
        && tag(process, "k8s.pod.uid") == pod.uid
        && tag(process, "k8s.namespace.name") == NAMESPACE
        && !tag(process, "k8s.node.name").is_null()
        && process["serviceName"] == pod.service;
    (!is_its).then(|| format!("{} belongs to {process}", name(span)))
}

/// Whether the observer's spans lack the pod's replacement, or the Service that it left. `now`: the story's pods.
pub(super) fn differs_in_place(rule: &str, trace: &Value, pod: &Pod, now: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    let find = |wanted: &str| {
        let mut spans = trace["spans"].as_array().into_iter().flatten();
        spans.find(|span| kind_of(span) == wanted).unwrap_or(&Value::Null)
    };
    let (root, replacement, removal) = (find("pod.termination"), find("replacement"), find("endpoint.removal"));
    let mut same = |what: &str, found: Value, wanted: Value| {
        if found != wanted {
            problems.push(format!("{what}: {found}, not {wanted}"));
        }
    };
    let next = now.iter().find(|next| next["metadata"]["uid"] != pod.uid.as_str());
    let next = next.map_or(Value::Null, |next| next["metadata"]["uid"].clone());
    same("the replacement", tag(replacement, "epitaph.replacement.pod.uid"), next);
    same(
        "rule of the replacement",
        tag(replacement, "epitaph.replacement.rule"),
        json!(rule),
    );
    same(
        "replacement ready",
        tag(replacement, "epitaph.replacement.ready"),
        json!(true),
    );
    same("the Service", tag(removal, "k8s.service.name"), json!(pod.service));
    let start = |span: &Value| span["startTime"].as_u64().unwrap_or(0);
    // Only a ReplicaSet makes the next pod at once, not after this pod is gone.
    let late = start(replacement) >= end(root);
    let soon = start(replacement) < start(root) + 30_000_000;
    let in_time = if rule == "next-of-replica-set" { soon } else { late };
    same("replacement created in time", json!(in_time), json!(true));
    let begun = removal["startTime"].as_u64() < Some(end(root));
    same("endpoint terminating before the end of the pod", json!(begun), json!(true));
    problems
}

/// The agent's own Events that are missing for this trace and those beside it, or unwanted. `all`: of `events.k8s.io`.
pub(super) fn differs_in_events(trace: &Value, beside: &[Value], pod: &Pod, all: &[Value]) -> Vec<String> {
    let [root] = roots(trace)[..] else {
        return vec!["no root".to_owned()];
    };
    let of = |kind: &str, name: &str, reason: &str| {
        all.iter().find(|event| {
            let regarding = &event["regarding"];
            let is_pods = kind != "Pod" || regarding["uid"] == pod.uid.as_str();
            event["reason"] == reason && regarding["kind"] == kind && regarding["name"] == name && is_pods
        })
    };
    let spans = || trace["spans"].as_array().into_iter().flatten();
    let is_unclean = |root: &Value| tag(root, "epitaph.unclean") == true;
    let has_ignored = |span: &Value| {
        let logs = span["logs"].as_array().into_iter().flatten();
        let mut fields = logs.flat_map(|log| log["fields"].as_array().into_iter().flatten());
        fields.any(|field| field["value"] == "stop-signal-ignored")
    };
    let wanted = [
        (
            "UncleanTermination",
            [root].into_iter().chain(beside.iter().flat_map(roots)).any(is_unclean),
        ),
        ("StopSignalIgnored", spans().any(has_ignored)),
    ];
    let process = &trace["processes"][root["processID"].as_str().unwrap_or_default()];
    let kind = text(&tag(process, "epitaph.workload.kind"));
    let mut regarded = vec![("Pod", pod.name.as_str())];
    if kind != "Pod" {
        regarded.push((&kind, &pod.service));
    }
    let mut problems = Vec::new();
    for (kind, name) in regarded {
        for (reason, wanted) in wanted {
            let event = of(kind, name, reason);
            if event.is_some() != wanted {
                problems.push(format!("Event {reason} of {kind} {name}: {event:?}"));
            }
        }
        let [unclean, early] = wanted.map(|(reason, _)| of(kind, name, reason));
        let sentence = text(&tag(root, "epitaph.sentence"));
        // A container that crashes again and again has the text of its last crash.
        let is_reported = |event: &Value| text(&event["note"]).contains(&sentence);
        if let Some(event) = unclean
            && kind_of(root) == "pod.termination"
            && !is_reported(event)
        {
            problems.push(format!("Event of {kind} {name}: {}, not {sentence}", event["note"]));
        }
        // Whole seconds of the API server's clock.
        let made = |event: Option<&Value>| event.map(|event| text(&event["metadata"]["creationTimestamp"]));
        if early.is_some() && unclean.is_some() && made(early) >= made(unclean) {
            problems.push(format!(
                "StopSignalIgnored of {kind} {name} was not created before the termination: {:?}",
                made(early)
            ));
        }
    }
    problems
}

fn name(span: &Value) -> &str {
    span["operationName"].as_str().unwrap_or_default()
}

pub(super) fn has_span(trace: &Value, name: &str) -> bool {
    let mut spans = trace["spans"].as_array().into_iter().flatten();
    spans.any(|span| span["operationName"] == name)
}

pub(super) fn roots(trace: &Value) -> Vec<&Value> {
    let spans = trace["spans"].as_array().into_iter().flatten();
    spans.filter(|span| span["references"] == json!([])).collect()
}

/// A trace as text, for a person who looks for the problem.
pub(super) fn outline(trace: &Value) -> String {
    let spans = trace["spans"].as_array().into_iter().flatten();
    let lines = spans.map(|span| {
        let words = [
            "k8s.container.name",
            "epitaph.verdict",
            "epitaph.cause",
            "epitaph.sentence",
            "epitaph.incomplete",
        ];
        let words = words.map(|key| tag(span, key)).into_iter().filter(|word| !word.is_null());
        let words: Vec<String> = words.map(|word| word.to_string()).collect();
        format!("  {} {} µs {}", span["operationName"], span["duration"], words.join(" "))
    });
    format!("{}\n{}", trace["traceID"], lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::stories::CLEAN;

    fn stop(container: &str, references: Value) -> Value {
        let tags = json!([{"key": "k8s.container.name", "value": container}]);
        json!({"spans": [{"operationName": "container.stop clean", "references": references, "tags": tags}]})
    }

    fn span(name: &str, id: &str, parent: Option<&str>, [start, end]: [u64; 2], tags: Value) -> Value {
        let references = parent.map_or(json!([]), |parent| json!([{"spanID": parent}]));
        let tags: Vec<Value> = tags
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| json!({"key": key, "value": value}))
            .collect();
        json!({
            "operationName": name,
            "spanID": id,
            "references": references,
            "startTime": start,
            "duration": end - start,
            "tags": tags,
        })
    }

    #[test]
    fn each_span_has_its_place() {
        let clean = || json!({"epitaph.verdict": "clean"});
        let root = || span("pod.termination clean", "1", None, [10, 90], clean());
        let stop = |parent, times, tags| span("container.stop clean", "2", Some(parent), times, tags);
        let wrong = |spans: &[Value]| misplaced(&CLEAN, &spans.iter().collect::<Vec<_>>());
        assert_eq!(wrong(&[root(), stop("1", [20, 90], clean())]), [""; 0]);
        assert_eq!(
            wrong(&[root(), stop("3", [20, 90], clean())]),
            ["container.stop is an orphan"]
        );
        assert_eq!(
            wrong(&[root(), stop("1", [20, 99], clean())]),
            ["container.stop is not within pod.termination"]
        );
        let unclean = json!({"epitaph.verdict": "clean", "epitaph.unclean": true});
        assert_eq!(
            wrong(&[root(), stop("1", [20, 90], unclean)]),
            ["container.stop: unclean true, error null"]
        );
        assert_eq!(
            wrong(&[root(), stop("1", [20, 90], json!({"epitaph.verdict": "crashed"}))]),
            [r#"container.stop clean has the verdict "crashed""#]
        );
        assert_eq!(
            wrong(&[root(), span("container.stop", "2", Some("1"), [20, 90], clean())]),
            [r#"container.stop has the verdict "clean""#]
        );
        assert_eq!(
            wrong(&[root(), span("preStop", "2", Some("1"), [20, 30], json!({}))]),
            ["preStop is below pod.termination, not container.stop"]
        );
        assert_eq!(wrong(&[root(), root()]), ["pod.termination twice"]);
        assert_eq!(wrong(&[stop("", [20, 90], clean())]), ["container.stop is an orphan"]);
    }

    #[test]
    fn a_missing_event_and_a_surplus_event_are_reported() {
        let pod = Pod {
            name: "web-1".to_owned(),
            uid: "u".to_owned(),
            service: "web".to_owned(),
        };
        let trace = |unclean: bool| {
            let mut tags = json!({"epitaph.sentence": "it died"});
            if unclean {
                tags["epitaph.unclean"] = json!(true);
            }
            let mut root = span("pod.termination clean", "1", None, [10, 90], tags);
            root["processID"] = json!("p");
            let kind = json!([{"key": "epitaph.workload.kind", "value": "Deployment"}]);
            json!({"spans": [root], "processes": {"p": {"tags": kind}}})
        };
        let event = |kind: &str, name: &str, uid: &str, note: &str| {
            json!({
                "reason": "UncleanTermination",
                "regarding": {"kind": kind, "name": name, "uid": uid},
                "note": note,
            })
        };
        let both = [
            event("Pod", "web-1", "u", "it died"),
            event("Deployment", "web", "d", "pod `web-1`: it died"),
        ];
        let wrong = |unclean, events: &[Value]| differs_in_events(&trace(unclean), &[], &pod, events).len();
        assert_eq!(wrong(true, &both), 0);
        assert_eq!(wrong(true, &both[..1]), 1, "no Event for the workload");
        assert_eq!(
            wrong(true, &[event("Pod", "web-1", "v", "it died")]),
            2,
            "another pod of the name"
        );
        assert_eq!(wrong(true, &[event("Pod", "web-1", "u", "it lives"), both[1].clone()]), 1);
        assert_eq!(wrong(false, &both), 2);
        assert_eq!(wrong(false, &[]), 0);
    }

    #[test]
    fn words_of_a_long_stop_alone_are_wrong_in_a_short_one() {
        let expected = Expected {
            sentence_if_lasts: Some(("SIGTERM → exit", Duration::from_secs(40), "did not come earlier")),
            ..CLEAN
        };
        let is_right = |seconds: u64, sentence: &str| {
            let root = span(
                "pod.termination clean",
                "1",
                None,
                [0, 1],
                json!({"epitaph.sentence": sentence}),
            );
            let stop = span("SIGTERM → exit", "2", Some("1"), [0, seconds * 1_000_000], json!({}));
            wrong_by_time(&expected, &root, &[&root, &stop]).is_none()
        };
        let late = "shortened to 20 s, but SIGKILL did not come earlier";
        assert!(is_right(60, late) && is_right(23, "shortened to 20 s"));
        assert!(!is_right(23, late) && !is_right(60, "shortened to 20 s"));
    }

    #[test]
    fn an_event_of_a_container_beside_is_wanted() {
        let pod = Pod {
            name: "web".to_owned(),
            uid: "u".to_owned(),
            service: "web".to_owned(),
        };
        let trace = |unclean: bool| {
            let mut root = span("container.stop clean", "1", None, [10, 90], json!({}));
            if unclean {
                root["tags"] = json!([{"key": "epitaph.unclean", "value": true}]);
            }
            root["processID"] = json!("p");
            let kind = json!([{"key": "epitaph.workload.kind", "value": "Pod"}]);
            json!({"spans": [root], "processes": {"p": {"tags": kind}}})
        };
        let regarding = json!({"kind": "Pod", "name": "web", "uid": "u"});
        let event = json!({"reason": "UncleanTermination", "regarding": regarding, "note": "refused"});
        let wrong = |beside: &[Value], events: &[Value]| differs_in_events(&trace(false), beside, &pod, events).len();
        assert_eq!(wrong(&[trace(true)], std::slice::from_ref(&event)), 0);
        assert_eq!(wrong(&[trace(true)], &[]), 1);
        assert_eq!(wrong(&[trace(false)], &[event]), 1);
    }

    #[test]
    fn only_an_earlier_exit_has_a_trace_besides_the_pods() {
        let expected = Expected {
            earlier: &["first"],
            ..CLEAN
        };
        let problems = |others: &[Value]| reported_twice(&expected, others).len();
        assert_eq!(problems(&[]), 1);
        assert_eq!(problems(&[stop("first", json!([]))]), 0);
        assert_eq!(problems(&[stop("first", json!([])), stop("first", json!([]))]), 1);
        assert_eq!(problems(&[stop("first", json!([])), stop("app", json!([]))]), 1);
        assert_eq!(problems(&[stop("first", json!([{"spanID": "1"}]))]), 2, "no root");
    }
}
