use std::io::{BufRead, BufReader, Cursor};

use epitaph_core::fixtures::{pods, sample, terminations};
use epitaph_core::render::json;
use epitaph_core::time::Wall;

use super::*;

fn lines() -> Vec<String> {
    let sample = sample::observation();
    let observation = terminations::observation();
    vec![
        json::line(&json::observing(&sample, &sample::probes())),
        json::line(&json::termination(&sample::ignored(), &sample)),
        json::line(&json::termination(&sample::unknown_unit(), &sample)),
        json::line(&json::early(&sample::early(), &sample)),
        json::line(&json::termination(&pods::restarted(1), &observation)),
        json::line(&json::pod_termination(&pods::pod(1), &observation)),
    ]
}

fn read(input: impl BufRead) -> (Vec<Report>, usize, Skipped) {
    let mut lines = Lines::new(input);
    let (mut reports, mut others) = (Vec::new(), 0);
    while let Some((line, text)) = lines.next_line().unwrap() {
        assert!(serde_json::from_str::<serde_json::Value>(text).is_ok());
        match line {
            Line::Report(report) => reports.push(*report),
            Line::Other(_) => others += 1,
        }
    }
    (reports, others, lines.skipped())
}

#[test]
fn what_the_core_writes_is_read_whole() {
    let (reports, others, skipped) = read(Cursor::new(lines().concat()));
    assert_eq!((reports.len(), others, skipped), (4, 2, Skipped::default()));
    let [container, unit, restarted, pod] = &reports[..] else {
        panic!()
    };
    assert_eq!(&*container.verdict, "ignored-stop-signal");
    assert_eq!(container.end.unwrap().0.rfc3339(), "2026-01-02T03:05:15.003000000Z");
    assert_eq!(container.connections.refused, 14);
    assert!(matches!(&unit.subject, Some(Subject::Unit { name }) if **name == *"nginx.service"));
    assert_eq!(&*restarted.kubernetes.as_ref().unwrap().pod.namespace, "shop");
    assert_eq!((pod.containers.len(), pod.unseen.len()), (2, 1));
    let hook = pod.containers[0].kubernetes.as_ref().unwrap().pre_stop.as_ref();
    assert!(hook.is_none_or(|hook| hook.begin.is_some()));
}

/// Each optional field away, or null, or unknown ones more: never an error.
#[test]
fn fields_may_be_absent_null_or_new() {
    fn variants(value: &serde_json::Value) -> Vec<serde_json::Value> {
        let serde_json::Value::Object(fields) = value else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for (key, inner) in fields {
            let mut away = fields.clone();
            away.remove(key);
            all.push(serde_json::Value::Object(away));
            for changed in variants(inner) {
                let mut with = fields.clone();
                with.insert(key.clone(), changed);
                all.push(serde_json::Value::Object(with));
            }
        }
        let mut more = fields.clone();
        more.insert("a_new_field".into(), serde_json::json!({"deep": [1, {"er": null}]}));
        all.push(serde_json::Value::Object(more));
        all
    }
    for line in lines() {
        let whole: serde_json::Value = serde_json::from_str(&line).unwrap();
        let kind = |value: &serde_json::Value| value["subject"]["kind"].is_string() || value["subject"].is_null();
        for variant in variants(&whole)
            .into_iter()
            .filter(|value| value["type"].is_string() && kind(value))
        {
            // Its keys are kinds of records.
            if !variant["gaps"]["lost"]["a_new_field"].is_null() {
                continue;
            }
            assert!(parse(variant.to_string().as_bytes()).is_some(), "{variant}");
        }
    }
}

#[test]
fn damaged_lines_are_counted_and_skipped() {
    let good = json::line(&json::termination(&sample::ignored(), &sample::observation()));
    let cut = &good[..good.len() / 2];
    let wrong_type = r#"{"type":"termination","verdict":{"a":1}}"#;
    let wrong_time = r#"{"type":"termination","end":"yesterday"}"#;
    let not_utf8 = b"{\"type\":\"termination\",\"verdict\":\"\xff\"}";
    let other_type = r#"{"type":"new","verdict":{"a":1},"stop":7}"#;
    let deep = "[".repeat(100_000);
    let mut input = Vec::new();
    for line in [cut, "", "  ", "hello", "[]", "7", wrong_type, wrong_time, &deep, other_type] {
        input.extend_from_slice(line.as_bytes());
        input.push(b'\n');
    }
    input.extend_from_slice(not_utf8);
    input.push(b'\n');
    // The last line has no end.
    input.extend_from_slice(good.trim_end().as_bytes());
    let (reports, others, skipped) = read(Cursor::new(input));
    assert_eq!((reports.len(), others), (1, 1));
    assert_eq!(skipped, Skipped { damaged: 8, too_long: 0 });
}

#[test]
fn a_line_that_is_too_long_is_skipped_in_bounded_memory() {
    let good = json::line(&json::termination(&sample::ignored(), &sample::observation()));
    let mut input = vec![b'x'; 3 * MAX_LINE];
    input.push(b'\n');
    input.extend_from_slice(good.as_bytes());
    // Exactly as long as a line may be.
    let padded = format!("{}{}\n", good.trim_end(), " ".repeat(MAX_LINE - good.trim_end().len()));
    input.extend_from_slice(padded.as_bytes());
    input.extend_from_slice(padded.trim_end_matches('\n').as_bytes());
    input.extend_from_slice(b" \n");
    let mut lines = Lines::new(BufReader::with_capacity(7_001, Cursor::new(input)));
    let mut count = 0;
    while let Some((line, _)) = lines.next_line().unwrap() {
        assert!(matches!(line, Line::Report(_)));
        count += 1;
    }
    assert_eq!((count, lines.skipped()), (2, Skipped { damaged: 0, too_long: 2 }));
    assert!(lines.capacity() <= 2 * MAX_LINE, "{}", lines.capacity());
}

#[test]
fn text_is_escaped_and_bounded_when_it_is_read() {
    let line =
        serde_json::json!({"type": "termination", "sentence": "\u{1b}[2J\u{202e}x", "verdict": "y".repeat(10_000)}).to_string();
    let Some(Line::Report(report)) = parse(line.as_bytes()) else {
        panic!()
    };
    assert_eq!(&*report.sentence, "\\u{1b}[2J\\u{202e}x");
    assert!(report.verdict.len() < 5_000);
}

/// What is found by a name: verdict and index of the container, and the number of others.
fn found(what: &str) -> Option<(String, Option<usize>, u64)> {
    let mut search = Search::new(Wanted::new(what));
    let mut counts = Counts::default();
    for line in lines() {
        let Some(Line::Report(report)) = parse(line.as_bytes()) else {
            continue;
        };
        search.look(&report, &line, &counts, |_| ());
        counts.add(&report);
    }
    let (found, others, more) = search.finish()?;
    assert_eq!(others.len() as u64, more);
    let report: Report = serde_json::from_str(&found.line).unwrap();
    Some((report.r#type.to_string(), found.container, more))
}

#[test]
fn a_termination_is_found_by_any_of_its_names() {
    let pod = |container, more| Some((Report::POD_TERMINATION.to_owned(), container, more));
    let own = |more| Some((Report::TERMINATION.to_owned(), None, more));
    // The pod ended after its container had been restarted.
    for what in [
        "cart-7d9f8b6c5-x2x4z",
        "shop/cart-7d9f8b6c5-x2x4z",
        "pod/cart-7d9f8b6c5-x2x4z",
        "cart",
        "shop/cart",
        "deployment/cart",
        "shop/Deployment/cart",
        "0f9c2c1e",
        "cart-7d9f",
        "shop/cart-7d",
    ] {
        assert_eq!(found(what), pod(None, 1), "{what}");
    }
    assert_eq!(found("shop/cart-7d9f8b6c5-x2x4z/proxy"), pod(Some(1), 0));
    let second = format!("{:064x}", 2);
    assert_eq!(found(&second), pod(Some(1), 0));
    assert_eq!(found("3f1c0d4e"), own(0));
    assert_eq!(
        found("containerd://3f1c0d4e5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f"),
        own(0)
    );
    assert_eq!(found("07F64948"), own(0), "a trace");
    assert_eq!(
        (found("ngin"), found("nginx"), found("nginx.service")),
        (own(0), own(0), own(0))
    );
    for what in ["", "3f1", "bank/cart", "shop/", "/", "ginx", "job/cart", "f1c0d4e5"] {
        assert_eq!(found(what), None, "{what}");
    }
}

/// Containers outside of Kubernetes, as the files of their runtime describe them: each has another id.
fn bare(name: Option<&str>, image: Option<&str>, n: u8) -> (Report, String) {
    let line = serde_json::json!({
        "type": "termination", "verdict": "crashed", "unclean": true, "severity": "critical",
        "end": Wall(u64::from(n) * 1_000_000_000).rfc3339(), "trace_id": format!("{n:032x}"),
        "subject": {"kind": "container", "id": format!("{n:064x}"), "runtime": "docker"},
        "container": {"name": name, "image": image},
    })
    .to_string();
    (serde_json::from_str(&line).unwrap(), line)
}

#[test]
fn a_container_outside_of_kubernetes_has_a_name_and_an_image() {
    let found = |what: &str| {
        let mut search = Search::new(Wanted::new(what));
        let mut counts = Counts::default();
        for (name, image, n) in [
            (Some("checkout"), Some("shop:1.4"), 1),
            (Some("checkout"), Some("shop:1.5"), 2),
            (None, Some("job:2"), 3),
            (None, Some("job:2"), 4),
            (None, None, 5),
        ] {
            let (report, line) = bare(name, image, n);
            search.look(&report, &line, &counts, Report::short_name);
            counts.add(&report);
        }
        let (found, others, _) = search.finish()?;
        let report: Report = serde_json::from_str(&found.line).unwrap();
        Some((
            report.short_name(),
            Group::of(&report).unwrap().name(),
            found.same,
            others.len(),
        ))
    };
    let named = |same, others| Some(("checkout".to_owned(), "container checkout".to_owned(), same, others));
    assert_eq!(found("checkout"), named(1, 1));
    assert_eq!(found("check"), named(1, 1), "the beginning of the name");
    assert_eq!(found("shop:1.5"), named(1, 0));
    let image = ("000000000000".to_owned(), "image job:2".to_owned(), 1, 1);
    assert_eq!(found("job:2"), Some(image));
    assert_eq!(found(&format!("{:064x}", 5)).unwrap().1, "container 000000000000");
    // A name is not the end of a name, and an image is not found by its beginning.
    assert_eq!((found("out"), found("shop"), found("")), (None, None, None));
}

#[test]
fn in_a_pod_without_the_api_the_image_tells_workloads_apart() {
    let (mut report, _) = bare(Some("app"), Some("shop:1.4"), 1);
    let Some(Subject::Container { pod_uid, .. }) = &mut report.subject else {
        panic!()
    };
    *pod_uid = Some("0f9c2c1e".into());
    assert_eq!(Group::of(&report), Some(Group::Image("shop:1.4".into())));
    assert_eq!(report.short_name(), "app");
}

#[test]
fn what_was_matched_by_a_beginning_only_is_known() {
    let matched = |what: &str| {
        let mut search = Search::new(Wanted::new(what));
        let counts = Counts::default();
        for line in lines() {
            let Some(Line::Report(report)) = parse(line.as_bytes()) else {
                continue;
            };
            search.look(&report, &line, &counts, |_| ());
        }
        search.finish().map(|(found, ..)| (found.by, found.by.is_prefix()))
    };
    assert_eq!(matched("cart-7d9f8b6c5-x2x4z"), Some((Match::Name, false)));
    assert_eq!(matched("cart"), Some((Match::Workload, false)));
    assert_eq!(matched("cart-7d9f"), Some((Match::Prefix, true)));
    assert_eq!(matched("3f1c0d4e"), Some((Match::IdPrefix, true)));
    assert_eq!(matched("ngin"), Some((Match::Prefix, true)));
    assert_eq!(matched("07f649481c0ee186cbdc87c2d986434c"), Some((Match::Id, false)));
    let short = |what: &str| Wanted::new(what).is_short_id();
    assert!(short("a16") && !short("a16f") && !short("xyz") && !short(""));
}

fn ended(verdict: &str, second: u64) -> (Report, String) {
    let line = serde_json::json!({
        "type": "termination", "verdict": verdict, "unclean": verdict != "clean",
        "severity": if verdict == "clean" { "info" } else { "critical" },
        "end": Wall(second * 1_000_000_000).rfc3339(), "subject": {"kind": "unit", "name": "a.service"},
    })
    .to_string();
    (serde_json::from_str(&line).unwrap(), line)
}

#[test]
fn the_newest_is_found_with_what_came_before_it() {
    let mut search = Search::new(Wanted::new("a"));
    let mut counts = Counts::default();
    // One came late.
    for (verdict, second) in [("crashed", 10), ("clean", 20), ("crashed", 30), ("crashed", 25)] {
        let (report, line) = ended(verdict, second);
        search.look(&report, &line, &counts, |report| report.end.unwrap().0.0 / 1_000_000_000);
        counts.add(&report);
    }
    let (found, others, more) = search.finish().unwrap();
    assert_eq!((found.end, found.same, found.all), (Some(Wall(30_000_000_000)), 1, 2));
    assert_eq!(
        (found.last_same, found.since),
        (Some(Wall(10_000_000_000)), Some(Wall(10_000_000_000)))
    );
    assert_eq!((others, more), (vec![25, 20, 10], 3));
}

#[test]
fn others_are_bounded_and_counted() {
    let mut search = Search::new(Wanted::new("a"));
    let counts = Counts::default();
    for second in 0..1_000 {
        let (report, line) = ended("crashed", second);
        search.look(&report, &line, &counts, |_| second);
    }
    let (_, others, more) = search.finish().unwrap();
    assert_eq!((others, more), ((989..999).rev().collect(), 999));
}

#[test]
fn counts_are_bounded_and_the_worst_is_first() {
    let mut counts = Counts::default();
    for (verdict, times) in [("clean", 5), ("crashed", 2)] {
        for second in 0..times {
            counts.add(&ended(verdict, second).0);
        }
    }
    for n in 0..10_000 {
        let (mut report, _) = ended("clean", 7);
        report.subject = Some(Subject::Unit {
            name: Text::from(format!("{n}.service").as_str()),
        });
        counts.add(&report);
    }
    let rows = counts.worst_first();
    let (group, verdict, counted) = rows[0];
    assert_eq!(
        (group.name().as_str(), &**verdict, counted.count),
        ("unit a.service", "crashed", 2)
    );
    assert_eq!((rows[1].2.count, counts.total, counts.unclean), (5, 10_007, 2));
    let rest: u64 = rows.iter().map(|(.., counted)| counted.count).sum();
    assert_eq!(rest + counts.ungrouped, counts.total);
    assert!(counts.ungrouped > 5_000 && rows.len() < 5_000);
}

/// A node that has had many containers: the one that matters came last.
#[test]
fn many_clean_containers_do_not_hide_an_unclean_one() {
    let clean = |n: u64, name: Option<&str>| {
        let (mut report, _) = bare(name, None, 1);
        report.subject = Some(Subject::Container {
            id: format!("{n:064x}").as_str().into(),
            runtime: Text::default(),
            pod_uid: None,
        });
        (report.verdict, report.unclean, report.severity) = ("clean".into(), false, "info".into());
        report
    };
    let late = |counts: &mut Counts| {
        for n in 0..10 {
            let (mut report, _) = bare(Some("late"), None, 2);
            if n > 0 {
                report.severity = "warning".into();
                report.container.as_mut().unwrap().name = Some(format!("late-{n}").as_str().into());
            }
            counts.add(&report);
        }
    };
    // Named ones: each is a group, and the oldest clean ones make room.
    let mut counts = Counts::folded();
    (0..10_000).for_each(|n| counts.add(&clean(n, Some(&format!("job-{n}")))));
    late(&mut counts);
    let rows = counts.worst_first();
    assert_eq!((rows[0].0.name().as_str(), rows.len()), ("container late", 4096));
    assert!(rows[..10].iter().all(|(.., counted)| counted.unclean) && !rows[10].2.unclean);
    assert_eq!(
        (counts.total, counts.ungrouped, counts.ungrouped_unclean),
        (10_010, 10_010 - 4096, 0)
    );
    // A worse one makes room among unclean ones, too; what is left out is counted.
    for n in 0..10_000 {
        counts.add(&{
            let mut report = clean(n, Some(&format!("crash-{n}")));
            (report.unclean, report.severity) = (true, "warning".into());
            report
        });
    }
    let (mut worst, _) = bare(Some("worst"), None, 3);
    worst.container.as_mut().unwrap().name = Some("worst".into());
    counts.add(&worst);
    let names: Vec<String> = counts.worst_first().iter().map(|(group, ..)| group.name()).collect();
    assert_eq!(
        (&names[..2], names.len()),
        (&["container worst".to_owned(), "container late".to_owned()][..], 4096)
    );
    assert_eq!(counts.ungrouped + 4096, counts.total);
    assert_eq!(counts.ungrouped_unclean + 4096, counts.unclean);
    // Only an id: one row.
    let mut counts = Counts::folded();
    (0..10_000).for_each(|n| counts.add(&clean(n, None)));
    counts.add(&bare(None, None, 7).0);
    let rows: Vec<(String, u64)> = counts
        .worst_first()
        .iter()
        .map(|(group, _, counted)| (group.name(), counted.count))
        .collect();
    assert_eq!(
        rows,
        [
            ("container 000000000000".to_owned(), 1),
            ("containers without a name".to_owned(), 10_000)
        ]
    );
}

/// As deep as the parser goes: on a stack as the main thread has it.
#[test]
fn nested_containers_do_not_exhaust_the_stack() {
    let line = [r#"{"type":"termination","containers":["#.repeat(60), "]}".repeat(60)].concat();
    let read = std::thread::Builder::new()
        .stack_size(8 << 20)
        .spawn(move || parse(line.as_bytes()).is_some());
    assert!(read.unwrap().join().unwrap());
}

/// A line of 1 MiB has room for hundreds of thousands of empty objects, each of which is large in memory.
#[test]
fn the_lists_of_a_line_are_bounded_and_what_is_left_out_is_counted() {
    let objects = |count: usize, one: &str| vec![one; count].join(",");
    let parsed = |rest: &str| match parse(format!(r#"{{"type":"pod-termination",{rest}}}"#).as_bytes()) {
        Some(Line::Report(report)) => report,
        _ => panic!("no report"),
    };
    let flat = parsed(&format!(
        r#""containers":[{}],"evidence":[{}]"#,
        objects(5_000, "{}"),
        objects(1_025, "{}")
    ));
    assert_eq!(
        (flat.containers.len(), flat.evidence.len(), flat.left_out),
        (512, 1_024, 4_488 + 1)
    );
    // Containers of containers, and all lists together.
    let inner = format!(
        r#"{{"containers":[{}],"evidence":[{}]}}"#,
        objects(100, "{}"),
        objects(100, "{}")
    );
    let nested = parsed(&format!(r#""containers":[{}]"#, objects(300, &inner)));
    let kept = |of: &[Report]| of.iter().map(|of| 1 + of.evidence.len() + of.containers.len()).sum::<usize>();
    assert!(nested.containers.iter().all(|of| of.containers.is_empty()));
    assert!(kept(&nested.containers) <= 8_192, "{}", kept(&nested.containers));
    assert!(nested.left_out > 8_000, "{}", nested.left_out);
    // The bound is that of one line.
    assert_eq!(parsed(r#""containers":[{"evidence":[{}]}]"#).left_out, 0);
    let names = (0..9_000).map(|n| format!(r#""{n}":1"#)).collect::<Vec<_>>().join(",");
    let lost = parsed(&format!(r#""gaps":{{"lost":{{{names}}}}}"#));
    assert!(lost.gaps.lost.len() <= 8_192 && lost.left_out > 0);
}

#[test]
fn names_of_groups_are_short() {
    let long = "n".repeat(4_000);
    let line = format!(
        r#"{{"type":"termination","subject":{{"kind":"unit","name":"{long}"}},"verdict":"{long}","severity":"{long}"}}"#
    );
    let Some(Line::Report(report)) = parse(line.as_bytes()) else {
        panic!()
    };
    let mut counts = Counts::default();
    counts.add(&report);
    counts.add(&report);
    let rows = counts.worst_first();
    let [(Group::Unit(name), verdict, counted)] = rows.as_slice() else {
        panic!("{rows:?}")
    };
    assert_eq!(counted.count, 2);
    assert!(
        [name, *verdict, &counted.severity].iter().all(|text| text.len() < 300),
        "{rows:?}"
    );
    assert_eq!(counts.of(&Group::of(&report).unwrap()).len(), 1);
}
