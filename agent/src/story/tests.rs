use epitaph_core::fixtures::{pods, sample, terminations};
use epitaph_core::pod::PreStop;
use epitaph_core::render::json as core_json;
use epitaph_core::render::text::Style;
use expect_test::{Expect, expect};

use super::*;
use crate::history::{Counts, Search, Wanted};

fn story(what: &str, lines: &[String]) -> Story {
    let mut search = Search::new(Wanted::new(what));
    let mut counts = Counts::default();
    for line in lines {
        let report: Report = serde_json::from_str(line).unwrap();
        search.look(&report, line, &counts, Brief::of);
        counts.add(&report);
    }
    let (found, others, more) = search.finish().expect("a match");
    Story {
        report: serde_json::from_str(&found.line).unwrap(),
        found,
        others,
        more,
    }
}

fn container() -> String {
    core_json::line(&core_json::termination(&sample::ignored(), &sample::observation()))
}

fn unit() -> String {
    core_json::line(&core_json::termination(&sample::unknown_unit(), &sample::observation()))
}

fn pod() -> String {
    core_json::line(&core_json::pod_termination(&pods::pod(1), &terminations::observation()))
}

fn restarted() -> String {
    core_json::line(&core_json::termination(&pods::restarted(1), &terminations::observation()))
}

fn check(story: &Story, expected: Expect) {
    let text = text(story, Columns(80), Style::Plain, false);
    assert_fits(&text, 80);
    expected.assert_eq(&text);
}

/// A trace's id and a line of configuration are pasted: neither is broken.
fn assert_fits(text: &str, width: usize) {
    for line in text.lines() {
        assert!(words::columns(line) <= width, "{} columns: {line}", words::columns(line));
    }
}

#[test]
fn a_container_without_kubernetes() {
    check(&story("3f1c", &[container()]), expect![[""]]);
}

#[test]
fn a_unit_of_which_little_is_known() {
    check(&story("nginx", &[unit()]), expect![[""]]);
}

#[test]
fn a_pod_with_an_earlier_restart() {
    check(&story("cart", &[restarted(), pod()]), expect![[""]]);
}

#[test]
fn one_container_of_a_pod() {
    check(&story("shop/cart-7d9f8b6c5-x2x4z/proxy", &[pod()]), expect![[""]]);
}

#[test]
fn the_evidence_is_shown_on_demand() {
    let text = text(&story("3f1c", &[container()]), Columns(100), Style::Plain, true);
    assert_fits(&text, 100);
    expect![[""]].assert_eq(&text[text.find("Evidence").unwrap()..]);
}

#[test]
fn an_incident_page() {
    expect![[""]].assert_eq(&markdown(&story("cart", &[restarted(), pod()])));
}

#[test]
fn colour_is_the_same_text_with_our_own_sequences() {
    let story = story("cart", &[restarted(), pod()]);
    let coloured = text(&story, Columns(80), Style::Color, true);
    let plain = text(&story, Columns(80), Style::Plain, true);
    assert!(coloured.contains("\u{1b}[31m"), "{coloured:?}");
    let without = ["0", "1", "2", "31", "32", "33"]
        .iter()
        .fold(coloured, |text, code| text.replace(&format!("\u{1b}[{code}m"), ""));
    assert_eq!(without, plain);
}

#[test]
fn json_has_the_report_as_the_source_has_it() {
    let mut line = pod();
    line.truncate(line.trim_end().len() - 1);
    line.push_str(r#","a_new_field":{"z":1,"a":2.50}}"#);
    let story = story("cart", &[restarted(), line.clone()]);
    let object = why_object(&story);
    assert!(object.contains(&line), "{object}");
    let value: serde_json::Value = serde_json::from_str(&object).unwrap();
    assert_eq!((&value["type"], &value["others_count"]), (&"why".into(), &1.into()));
    assert_eq!(value["before"]["same_verdict"], 1);
    assert_eq!(value["others"][0]["name"], "shop/cart/app");
}

#[test]
fn the_objects_are_described() {
    fn keys(value: &serde_json::Value, into: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| {
                into.push(key.clone());
                keys(value, into);
            }),
            serde_json::Value::Array(list) => list.iter().for_each(|value| keys(value, into)),
            _ => {}
        }
    }
    let mut counts = Counts::default();
    counts.add(&serde_json::from_str(&pod()).unwrap());
    let story = story("cart", &[restarted(), pod()]);
    let doc = include_str!("../../../docs/json.md");
    for object in [why_object(&story), summary_object(&counts)] {
        let mut all = Vec::new();
        keys(&serde_json::from_str(&object).unwrap(), &mut all);
        for key in all {
            assert!(doc.contains(&format!("`{key}`")), "docs/json.md does not describe `{key}`");
        }
    }
}

#[test]
fn lines_of_a_list() {
    let lines = [container(), unit(), restarted(), pod()];
    let briefs: Vec<Brief> = lines.iter().map(|line| Brief::of(&serde_json::from_str(line).unwrap())).collect();
    let list = |width| briefs.iter().map(|brief| line(brief, width, Style::Plain)).collect::<String>();
    assert_fits(&list(Some(80)), 80);
    expect![[""]].assert_eq(&list(Some(80)));
    expect![[""]].assert_eq(&list(None));
}

#[test]
fn counts_of_a_list() {
    let mut counts = Counts::default();
    for line in [container(), unit(), restarted(), pod(), pod()] {
        counts.add(&serde_json::from_str(&line).unwrap());
    }
    let text = summary(&counts, Some(80), Style::Plain);
    assert_fits(&text, 80);
    expect![[""]].assert_eq(&text);
    expect![[""]].assert_eq(&summary_object(&counts));
}

/// No text of a report reaches the output as a control sequence, breaks a line, or makes a line too long.
#[test]
fn hostile_names_stay_names() {
    let long = "長い名前-".repeat(40);
    for name in ["\u{1b}[2J\u{7}\r\nx", "\u{202e}gpj.exe", "`|<b>[a](//b)", long.as_str(), "", "\u{9b}31m"] {
        let pod = core_json::pod_termination(&pods::hostile(name), &terminations::observation());
        let own = core_json::termination(&sample::hostile(name), &sample::observation());
        for line in [core_json::line(&pod), core_json::line(&own)] {
            let report: Report = serde_json::from_str(&line).unwrap();
            let found = crate::history::Found {
                line: line.clone(),
                end: None,
                container: None,
                same: 1,
                all: 2,
                last_same: None,
                since: None,
            };
            let story = Story {
                others: vec![Brief::of(&report); 2],
                more: 2,
                report,
                found,
            };
            let shown = text(&story, Columns(80), Style::Plain, true);
            assert_fits(&shown, 80);
            let page = markdown(&story);
            for text in [&shown, &page, &why_object(&story), &super::line(&story.others[0], Some(80), Style::Plain)] {
                let bad = text.chars().find(|c| (c.is_control() && *c != '\n') || "\u{202e}\u{9b}".contains(*c));
                assert_eq!(bad, None, "{text:?}");
            }
            assert!(!page.contains("<b>") && !page.contains("[a](//b)"), "{page}");
        }
    }
}

#[test]
fn json_is_safe_to_print_and_unchanged() {
    let hostile = "{\"a\":\"x\u{9b}y\u{202e}\u{e0041}ä長\"}";
    let safe = safe(hostile);
    assert!(safe.contains("\\u009b") && safe.contains("\\udb40\\udc41") && safe.contains("ä長"), "{safe}");
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(&safe), value(hostile));
}

/// The snippets of one termination with this change.
fn snippets_of(line: &str, change: serde_json::Value) -> Vec<Snippet> {
    fn merge(into: &mut serde_json::Value, change: serde_json::Value) {
        match (into, change) {
            (serde_json::Value::Object(into), serde_json::Value::Object(change)) => {
                for (key, value) in change {
                    merge(into.entry(key).or_insert(serde_json::Value::Null), value);
                }
            }
            (into, change) => *into = change,
        }
    }
    let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
    merge(&mut value, change);
    snippets(&serde_json::from_value(value).unwrap())
}

fn check_snippets(line: &str, change: serde_json::Value, expected: Expect) {
    let all: Vec<String> = snippets_of(line, change)
        .into_iter()
        .map(|snippet| format!("# {}\n{}", snippet.about, snippet.text))
        .collect();
    expected.assert_eq(&all.concat());
}

#[test]
fn settings_of_a_container_in_a_pod() {
    let advice = |kind: &str, seconds: Option<u64>| serde_json::json!({"advice": [{"kind": kind, "seconds": seconds, "text": "x"}]});
    check_snippets(&restarted(), advice("grace-longer", Some(45)), expect![[""]]);
    check_snippets(&restarted(), advice("grace-longer", None), expect![[""]]);
    // The shutdown took 30 s: with the sleep it does not fit in 30 s.
    check_snippets(&restarted(), advice("pre-stop-sleep-longer", Some(5)), expect![[""]]);
    check_snippets(&restarted(), advice("accept-while-draining", None), expect![[""]]);
    let liveness = serde_json::json!({"cause": "liveness", "exit": "killed-after-grace"});
    check_snippets(&restarted(), liveness, expect![[""]]);
    // A container has one hook.
    let mut own = advice("pre-stop-sleep-longer", Some(5));
    own["kubernetes"] = serde_json::json!({"pre_stop": {"hook": "exec", "program": "/bin/drain"}});
    check_snippets(&restarted(), own, expect![[""]]);
}

#[test]
fn settings_stand_where_the_workload_has_them() {
    for (kind, expected) in [
        ("CronJob", expect![[""]]),
        ("Pod", expect![[""]]),
        // A name that would need quoting is not of Kubernetes.
        ("a: b", expect![[""]]),
    ] {
        let change = serde_json::json!({
            "advice": [{"kind": "grace-longer", "seconds": 45, "text": "x"}],
            "kubernetes": {"pod": {"workload": {"kind": kind}}},
        });
        check_snippets(&restarted(), change, expected);
    }
}

#[test]
fn settings_of_a_unit_and_of_docker() {
    let stop = serde_json::json!({"time": "2026-01-02T03:05:05Z"});
    let kill = serde_json::json!({"time": "2026-01-02T03:05:15.1Z"});
    let slow = serde_json::json!({"exit": "killed-after-grace", "stop": stop, "kill": kill});
    check_snippets(&unit(), slow.clone(), expect![[""]]);
    let code = serde_json::json!({"exit": "nonzero-exit", "stop": stop, "status": {"code": 3}});
    check_snippets(&unit(), code, expect![[""]]);
    let mut docker = slow.clone();
    docker["subject"] = serde_json::json!({"runtime": "docker"});
    check_snippets(&container(), docker, expect![[""]]);
    let mut hostile = slow;
    hostile["subject"] = serde_json::json!({"name": "x'; rm -rf $HOME.service"});
    check_snippets(&unit(), hostile, expect![[""]]);
}

#[test]
fn an_evicted_pod_has_its_hook_on_the_axis() {
    let line = core_json::line(&core_json::pod_termination(
        &pods::evicted(1, PreStop::Sleep { seconds: 5 }),
        &terminations::observation(),
    ));
    check(&story("cart", &[line]), expect![[""]]);
}

/// Pieces of a story at odd times: nothing panics, every line fits.
#[test]
fn odd_times_are_drawn() {
    let whole: serde_json::Value = serde_json::from_str(&pod()).unwrap();
    for time in ["1970-01-01T00:00:00Z", "2554-07-21T23:34:33Z"] {
        for path in [vec!["request", "latest"], vec!["gone", "time"], vec!["end"]] {
            let mut changed = whole.clone();
            let last = path.iter().fold(&mut changed, |value, key| &mut value[*key]);
            *last = time.into();
            let story = story("cart", &[changed.to_string()]);
            assert_fits(&text(&story, Columns(80), Style::Plain, true), 80);
            let _ = (markdown(&story), why_object(&story));
        }
    }
}
