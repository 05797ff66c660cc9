use expect_test::expect_file;
use proptest::prelude::*;

use super::*;
use crate::render::sample;

#[test]
fn the_documented_examples_are_what_the_code_makes() {
    fn pretty(object: &impl Serialize) -> String {
        serde_json::to_string_pretty(object).unwrap()
    }
    let observation = sample::observation();
    let (subject, oom) = sample::child_oom();
    // Only the examples are made; the words around them are written by hand.
    let mut doc = include_str!("../../../../docs/json.md").to_owned();
    for (name, example) in [
        ("observing", pretty(&observing(&observation, &sample::probes()))),
        (
            "termination",
            pretty(&termination(&sample::ignored(), &observation, sample::TRACE_ID)),
        ),
        (
            "stop-signal-ignored",
            pretty(&early(&sample::early(), &observation, sample::TRACE_ID)),
        ),
        ("child-oom-killed", pretty(&child_oom(&subject, &oom, &observation))),
    ] {
        let start = format!("<!-- example: {name} -->\n```json\n");
        let from = doc
            .find(&start)
            .unwrap_or_else(|| panic!("docs/json.md has no example of {name}"))
            + start.len();
        let to = from + doc[from..].find("```").unwrap();
        doc.replace_range(from..to, &format!("{example}\n"));
    }
    expect_file!["../../../../docs/json.md"].assert_eq(&doc);
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
    let observation = sample::observation();
    let (subject, oom) = sample::child_oom();
    let mut all = Vec::new();
    keys(
        &serde_json::to_value(observing(&observation, &sample::probes())).unwrap(),
        &mut all,
    );
    keys(
        &serde_json::to_value(termination(&sample::ignored(), &observation, "")).unwrap(),
        &mut all,
    );
    keys(
        &serde_json::to_value(early(&sample::early(), &observation, "")).unwrap(),
        &mut all,
    );
    keys(
        &serde_json::to_value(child_oom(&subject, &oom, &observation)).unwrap(),
        &mut all,
    );
    let doc = include_str!("../../../../docs/json.md");
    for key in all {
        assert!(doc.contains(&format!("`{key}`")), "docs/json.md does not describe `{key}`");
    }
}

#[test]
fn a_line_is_one_object_and_one_line() {
    let line = line(&termination(
        &sample::hostile("a\nb\u{1b}[2J\u{202e}\"\\"),
        &sample::observation(),
        sample::TRACE_ID,
    ));
    assert_eq!(line.matches('\n').count(), 1);
    assert!(line.ends_with("}\n"));
    let back: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(back["sentence"], "a\\nb\\u{1b}[2J\\u{202e}\"\\");
}

#[test]
fn evidence_before_the_begin_is_negative() {
    assert_eq!(after_ms(Boot(1_000_000), Boot(2_500_000)), -1.5);
    assert_eq!(after_ms(Boot(2_500_999), Boot(1_000_000)), 1.5);
}

proptest! {
    #[test]
    fn no_text_of_a_process_leaves_a_control_character(text in any::<String>()) {
        let line = line(&termination(&sample::hostile(&text), &sample::observation(), sample::TRACE_ID));
        let back: serde_json::Value = serde_json::from_str(&line).unwrap();
        for text in [&back["sentence"], &back["remedy"], &back["cgroup"], &back["subject"]["name"], &back["main"]["comm"]] {
            prop_assert!(!text.as_str().unwrap().contains(char::is_control));
        }
    }
}
