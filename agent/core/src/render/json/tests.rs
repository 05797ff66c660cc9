use expect_test::expect_file;
use proptest::prelude::*;

use super::*;
use crate::fixtures::{self, sample};
use crate::pod::PreStop;

/// One of each object as text, by its name in the document; the fields in their order.
fn examples() -> [(&'static str, String); 9] {
    fn pretty(object: &impl Serialize) -> String {
        serde_json::to_string_pretty(object).unwrap()
    }
    let observation = sample::observation();
    let (subject, oom) = sample::child_oom();
    let pod = fixtures::pods::pod(1);
    let context = pod.containers[0].kubernetes.as_ref().unwrap();
    // Its containers are objects of another example.
    let mut whole = pod_termination(&pod, &fixtures::terminations::observation());
    whole.containers.clear();
    [
        ("observing", pretty(&observing(&observation, &sample::probes()))),
        ("termination", pretty(&termination(&sample::ignored(), &observation))),
        (
            "kubernetes",
            pretty(&context::context(context, fixtures::terminations::observation().wall_offset)),
        ),
        ("pod-termination", pretty(&whole)),
        ("stop-signal-ignored", pretty(&early(&sample::early(), &observation))),
        ("child-oom-killed", pretty(&child_oom(&subject, None, &oom, &observation))),
        ("lost", pretty(&lost(Kind::Tcp, 3))),
        ("node-shutdown", pretty(&node_shutdown(&fixtures::shutdowns::truncated()))),
        ("node-down", pretty(&node_down(&fixtures::shutdowns::down()))),
    ]
}

#[test]
fn the_documented_examples_are_what_the_code_makes() {
    // Only the examples are made; the words around them are written by hand.
    let mut doc = include_str!("../../../../../docs/json.md").to_owned();
    for (name, example) in examples() {
        let start = format!("<!-- example: {name} -->\n```json\n");
        let from = doc
            .find(&start)
            .unwrap_or_else(|| panic!("docs/json.md has no example of {name}"))
            + start.len();
        let to = from + doc[from..].find("```").unwrap();
        doc.replace_range(from..to, &format!("{example}\n"));
    }
    expect_file!["../../../../../docs/json.md"].assert_eq(&doc);
}

#[test]
fn every_field_is_described() {
    fn keys(value: &serde_json::Value, into: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => map.iter().for_each(|(k, v)| {
                into.push(k.clone());
                keys(v, into);
            }),
            serde_json::Value::Array(list) => list.iter().for_each(|v| keys(v, into)),
            _ => {}
        }
    }
    let mut all = Vec::new();
    for (_, example) in examples() {
        keys(&serde_json::from_str(&example).unwrap(), &mut all);
    }
    for hook in [PreStop::Sleep { seconds: 5 }, PreStop::HttpGet { port: Some(80) }] {
        let pod = fixtures::pods::evicted(1, hook);
        keys(
            &serde_json::to_value(pod_termination(&pod, &fixtures::terminations::observation())).unwrap(),
            &mut all,
        );
    }
    keys(
        &serde_json::to_value(node_shutdown(&fixtures::shutdowns::spoofed())).unwrap(),
        &mut all,
    );
    keys(
        &serde_json::to_value(termination(&stopped_by_shutdown(), &sample::observation())).unwrap(),
        &mut all,
    );
    let doc = include_str!("../../../../../docs/json.md");
    for key in all {
        assert!(doc.contains(&format!("`{key}`")), "docs/json.md does not describe `{key}`");
    }
}

/// A reader follows one id from the warning to the trace.
#[test]
fn containers_of_a_pod_have_the_pods_trace() {
    let pod = fixtures::pods::pod(1);
    let object = serde_json::to_value(pod_termination(&pod, &fixtures::terminations::observation())).unwrap();
    let trace = id::of_pod(&pod.pod, &pod.boot_id).to_string();
    assert_eq!(object["trace_id"], trace);
    assert_eq!(object["containers"][0]["trace_id"], trace);
    assert_eq!(object["containers"][1]["trace_id"], trace);
    let warning = early(
        &fixtures::pods::early(&pod.containers[0]),
        &fixtures::terminations::observation(),
    );
    assert_eq!(serde_json::to_value(warning).unwrap()["trace_id"], trace);

    let restarted = fixtures::pods::restarted(1);
    let own = serde_json::to_value(termination(&restarted, &fixtures::terminations::observation())).unwrap();
    assert_eq!(own["trace_id"], id::of(&restarted).to_string());
    let warning = early(&fixtures::pods::early(&restarted), &fixtures::terminations::observation());
    assert_eq!(serde_json::to_value(warning).unwrap()["trace_id"], own["trace_id"]);
}

#[test]
fn a_line_is_one_object_and_one_line() {
    let line = line(&termination(
        &sample::hostile("a\nb\u{1b}[2J\u{202e}\"\\"),
        &sample::observation(),
    ));
    assert_eq!(line.matches('\n').count(), 1);
    assert!(line.ends_with("}\n"));
    let back: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(back["sentence"], "a\\nb\\u{1b}[2J\\u{202e}\"\\");
}

/// Both ways: from what the shutdown stopped to the shutdown's trace, and back.
#[test]
fn a_termination_names_the_trace_of_the_shutdown() {
    let shutdown = serde_json::to_value(node_shutdown(&fixtures::shutdowns::truncated())).unwrap();
    let stopped = serde_json::to_value(termination(&stopped_by_shutdown(), &sample::observation())).unwrap();
    assert_eq!(stopped["node_shutdown"]["trace_id"], shutdown["trace_id"]);
    let pod = fixtures::pods::pod(1);
    assert_eq!(
        shutdown["pods"][1]["trace_id"],
        id::of_pod(&pod.pod, &pod.boot_id).to_string()
    );
}

fn stopped_by_shutdown() -> Termination {
    let mut t = sample::ignored();
    t.facts.shutdown = Some(crate::shutdown::EndedByShutdown {
        key: fixtures::shutdowns::key(),
        begin: Boot(0),
        evidence: "PrepareForShutdown",
        ran_at: None,
    });
    t
}

#[test]
fn evidence_before_the_begin_is_negative() {
    assert_eq!(after_ms(Boot(1_000_000), Boot(2_500_000)), -1.5);
    assert_eq!(after_ms(Boot(2_500_999), Boot(1_000_000)), 1.5);
}

fn harmless(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => !text.contains(char::is_control),
        serde_json::Value::Array(list) => list.iter().all(harmless),
        serde_json::Value::Object(map) => map.values().all(harmless),
        _ => true,
    }
}

proptest! {
    #[test]
    fn no_text_of_a_process_leaves_a_control_character(text in any::<String>()) {
        let line = line(&termination(&sample::hostile(&text), &sample::observation()));
        let back: serde_json::Value = serde_json::from_str(&line).unwrap();
        for text in [&back["sentence"], &back["remedy"], &back["cgroup"], &back["subject"]["name"], &back["main"]["comm"]] {
            prop_assert!(!text.as_str().unwrap().contains(char::is_control));
        }
        let pod = self::line(&pod_termination(&fixtures::pods::hostile(&text), &fixtures::terminations::observation()));
        prop_assert_eq!(pod.matches('\n').count(), 1);
        prop_assert!(harmless(&serde_json::from_str(&pod).unwrap()), "{}", pod);
        let node = self::line(&node_shutdown(&fixtures::shutdowns::hostile(&text)));
        prop_assert_eq!(node.matches('\n').count(), 1);
        prop_assert!(harmless(&serde_json::from_str(&node).unwrap()), "{}", node);
    }
}
