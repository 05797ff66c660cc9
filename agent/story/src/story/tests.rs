use epitaph_core::fixtures::{pods, sample, terminations};
use epitaph_core::pod::PreStop;
use epitaph_core::render::json as core_json;
use epitaph_core::render::text::Style;
use epitaph_core::time::Wall;
use expect_test::{Expect, expect};

use super::*;
use crate::history::{Counts, Found, Search, Wanted};

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
        ahead: 0,
        program: "epitaph",
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
        assert!(columns(line) <= width, "{} columns: {line}", columns(line));
    }
}

#[test]
fn a_container_without_kubernetes() {
    check(
        &story("3f1c", &[container()]),
        expect![[r#"
            container 3f1c0d4e5a6b
            ignored-stop-signal  UNCLEAN  warning

            `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal;
            the container runtime sent SIGKILL 10.0 s later

              2026-01-02 UTC  after |0                10.0 s|
              03:05:05.000      0 s |*......................| SIGTERM from the runtime to
                                    |                       |   PID 1 `sh`: discarded, no
                                    |                       |   handler
              03:05:05.100   100 ms |++++++++++++++         | 3 new connections accepted
              03:05:10.000    5.0 s |           #           | OOM killer kills a child
                                    |                       |   process `worker`
              03:05:11.800    6.8 s |               *       | listener 10.0.0.7:8080 closed
              03:05:11.801    6.8 s |               xxxxxxxx| 14 connections refused
              03:05:15.002   10.0 s |                      #| SIGKILL from the runtime
              03:05:15.003   10.0 s |                      *| killed by SIGKILL

            Remedy
              handle SIGTERM in PID 1 `sh`, use `exec` in the shell that starts the program,
              or run a small init such as tini

            axes      cause stopped, exit ignored-stop-signal, traffic refused
            ended     2026-01-02 03:05:15 UTC
            ran       69.5 s, since 2026-01-02 03:04:05 UTC
            before    no earlier termination of container 3f1c0d4e5a6b is known
            cgroup    /system.slice/cri-containerd-3f1c.scope
            trace     07f649481c0ee186cbdc87c2d986434c
            meaning   `epitaph explain ignored-stop-signal`
        "#]],
    );
}

#[test]
fn a_unit_of_which_little_is_known() {
    check(
        &story("nginx", &[unit()]),
        expect![[r#"
            unit nginx.service
            unknown  warning

            How the main process terminated is unknown: the process started before the
            observation began, so a stop signal may have been missed

              2026-01-02 UTC  after |0                   0 s|
              03:04:06.500      0 s |*                      | end; the exit was not observed

            Incomplete evidence: the process started before the observation began; 3
            signal_generate records were lost; probes were not active: tcp_send_reset; the
            wall clock stepped by +12.5 s, or the machine was paused: earlier times are
            wrong by as much

            axes      cause unknown, exit unknown, traffic unknown
            ended     2026-01-02 03:04:06 UTC
            before    no earlier termination of unit nginx.service is known
            cgroup    /system.slice/nginx.service
            trace     f7582820cde9788e2004f0464ebb4158
            meaning   `epitaph explain unknown`
        "#]],
    );
}

#[test]
fn a_pod_with_an_earlier_restart() {
    check(
        &story("cart", &[restarted(), pod()]),
        expect![[r#"
            pod shop/cart-7d9f8b6c5-x2x4z
            image registry.example:5000/shop/app:1.4.2
            ignored-stop-signal  UNCLEAN  critical

            container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel
            discarded the signal; the container runtime sent SIGKILL 30.0 s later

              2023-11-14 UTC  after |0                34.4 s|
              23:36:37.600      0 s |*                      | deletion requested, grace
                                    |                       |   period 30 s
              23:36:38.000   400 ms |===                    | preStop exec /bin/drain,
                                    |                       |   2.0 s: exit code 7
              23:36:40.000    2.4 s |  *................... | SIGTERM from the runtime to
                                    |                       |   PID 1 `sh`: discarded, no
                                    |                       |   handler, sent 1 more time
              23:36:40.003    2.4 s |  +                    | 2 new connections accepted
              23:36:40.040    2.4 s |  *                    | listener 10.0.0.7:8080 closed
              23:36:40.041    2.4 s |  xxx                  | 14 connections refused
              23:36:40.100    2.5 s |  *                    | grace period shortened to 20 s
              23:36:40.500    2.9 s |  x                    | 2 connections rejected by the
                                    |                       |   network
              23:37:00.100   22.5 s |              *        | grace period of 20 s over
              23:37:10.000   32.4 s |                     # | SIGKILL from the runtime
              23:37:10.001   32.4 s |                     x | 1 connection reset
              23:37:10.001   32.4 s |                     x | 3 open connections cut, 3
                                    |                       |   unanswered
              23:37:10.002   32.4 s |                     * | killed by SIGKILL
              the rest of the pod
              23:37:10.010   32.4 s |                     = | container proxy: clean, exit
                                    |                       |   code 0
              23:37:12.000   34.4 s |                      *| pod removed from the API

            Incomplete evidence: the Kubernetes API did not answer for 4.0 s; the exit of
            container init was not observed; its status reports exit code 0 (Completed)

            Remedy
              - use `exec` in the shell that starts the server, so that the server is PID 1
              - 14 connections were refused in the 3.2 s after the listener closed

            axes      cause deleted, exit ignored-stop-signal, traffic cut
            ended     2023-11-14 23:37:10 UTC
            ran       17m10s, since 2023-11-14 23:20:00 UTC
            kubectl   shows exit code 137 (Error)
            before    1 of 1 earlier termination of Deployment shop/cart had the same
                      verdict, the last at 2023-11-14 23:37:10 UTC; the records begin at
                      2023-11-14 23:37:10 UTC
            workload  Deployment shop/cart
            node      node-7
            trace     f413a7a4e46d1258ed4927cd46f8b039
            meaning   `epitaph explain ignored-stop-signal`

            Earlier, of the same workload (`epitaph why ID`)
            2023-11-14 UTC
            ! 23:37:10 36d2adfa shop/cart/app                    ignored-stop-signal: `sh` …
        "#]],
    );
}

#[test]
fn one_container_of_a_pod() {
    check(
        &story("shop/cart-7d9f8b6c5-x2x4z/proxy", &[pod()]),
        expect![[r#"
            pod shop/cart-7d9f8b6c5-x2x4z, container proxy
            image proxy@sha256:0123
            clean  info

            container `proxy`: The container runtime sent SIGTERM to PID 1 `sh`, the handler
            ran, and the process exited with code 0, 250 ms later

              2023-11-14 UTC  after |0                32.7 s|
              23:36:37.600      0 s |*                      | deletion requested, grace
                                    |                       |   period 30 s
              23:36:40.100    2.5 s |  *                    | grace period shortened to 20 s
              23:37:00.100   22.5 s |               *       | grace period of 20 s over
              23:37:10.002   32.4 s |                      *| last main container exited
              23:37:10.010   32.4 s |                      *| SIGTERM from the runtime to
                                    |                       |   PID 1 `sh`
              23:37:10.011   32.4 s |                      =| SIGTERM handler entered
              23:37:10.260   32.7 s |                      *| exit code 0

            Incomplete evidence: the Kubernetes API did not answer for 4.0 s

            axes      cause deleted, exit clean, traffic quiet
            ended     2023-11-14 23:37:10 UTC
            ran       17m10s, since 2023-11-14 23:20:00 UTC
            before    no earlier termination of Deployment shop/cart is known
            workload  Deployment shop/cart
            node      node-7
            trace     f413a7a4e46d1258ed4927cd46f8b039
            meaning   `epitaph explain clean`
        "#]],
    );
}

#[test]
fn the_evidence_is_shown_on_demand() {
    let text = text(&story("3f1c", &[container()]), Columns(100), Style::Plain, true);
    assert_fits(&text, 100);
    expect![[r#"
        Evidence
          03:05:05.000 signal_generate: SIGTERM from `containerd-shim` (pid 812, unit containerd.service),
          the container runtime, to PID 1 `sh`: discarded by the kernel, no handler
          03:05:15.002 signal_generate: SIGKILL from `containerd-shim` (pid 812, unit containerd.service),
          the container runtime, to PID 1 `sh`
          03:05:15.003 sched_process_exit: PID 1 `sh` was terminated by SIGKILL
    "#]]
    .assert_eq(&text[text.find("Evidence").unwrap()..]);
}

#[test]
fn an_incident_page() {
    expect![[r#"
        # pod shop/cart-7d9f8b6c5-x2x4z: ignored-stop-signal

        container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later

        ## Timeline

        ```text
          2023-11-14 UTC  after |0                34.4 s|
          23:36:37.600      0 s |*                      | deletion requested, grace
                                |                       |   period 30 s
          23:36:38.000   400 ms |===                    | preStop exec /bin/drain,
                                |                       |   2.0 s: exit code 7
          23:36:40.000    2.4 s |  *................... | SIGTERM from the runtime to
                                |                       |   PID 1 `sh`: discarded, no
                                |                       |   handler, sent 1 more time
          23:36:40.003    2.4 s |  +                    | 2 new connections accepted
          23:36:40.040    2.4 s |  *                    | listener 10.0.0.7:8080 closed
          23:36:40.041    2.4 s |  xxx                  | 14 connections refused
          23:36:40.100    2.5 s |  *                    | grace period shortened to 20 s
          23:36:40.500    2.9 s |  x                    | 2 connections rejected by the
                                |                       |   network
          23:37:00.100   22.5 s |              *        | grace period of 20 s over
          23:37:10.000   32.4 s |                     # | SIGKILL from the runtime
          23:37:10.001   32.4 s |                     x | 1 connection reset
          23:37:10.001   32.4 s |                     x | 3 open connections cut, 3
                                |                       |   unanswered
          23:37:10.002   32.4 s |                     * | killed by SIGKILL
          the rest of the pod
          23:37:10.010   32.4 s |                     = | container proxy: clean, exit
                                |                       |   code 0
          23:37:12.000   34.4 s |                      *| pod removed from the API
        ```

        Incomplete evidence: the Kubernetes API did not answer for 4.0 s; the exit of container init was not observed; its status reports exit code 0 (Completed)

        ## Remedy

        use `exec` in the shell that starts the server, so that the server is PID 1

        14 connections were refused in the 3.2 s after the listener closed

        ## Facts

        | | |
        |---|---|
        | image | registry.example:5000/shop/app:1.4.2 |
        | axes | cause deleted, exit ignored-stop-signal, traffic cut |
        | ended | 2023-11-14 23:37:10 UTC |
        | ran | 17m10s, since 2023-11-14 23:20:00 UTC |
        | kubectl | shows exit code 137 (Error) |
        | before | 1 of 1 earlier termination of Deployment shop/cart had the same verdict, the last at 2023-11-14 23:37:10 UTC; the records begin at 2023-11-14 23:37:10 UTC |
        | workload | Deployment shop/cart |
        | node | node-7 |
        | trace | f413a7a4e46d1258ed4927cd46f8b039 |
        | meaning | `epitaph explain ignored-stop-signal` |

        ## Evidence

        - 23:36:40.000 signal_generate: SIGTERM from `containerd-shim` (pid 900, on the host), the container runtime, to PID 1 `sh`: discarded by the kernel, no handler
        - 23:37:10.000 signal_generate: SIGKILL from `containerd-shim` (pid 900, on the host), the container runtime, to PID 1 `sh`

        ## Earlier, of the same workload

        | time | trace | name | verdict |
        |---|---|---|---|
        | 2023-11-14T23:37:10.002000000Z | `36d2adfad73cb358a221eb2b3ece3942` | shop/cart/app | ignored-stop-signal |
    "#]].assert_eq(&markdown(&story("cart", &[restarted(), pod()])));
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
    let doc = include_str!("../../../../docs/json.md");
    for object in [why_object(&story), summary_json(&counts)] {
        let mut all = Vec::new();
        keys(&serde_json::from_str(&object).unwrap(), &mut all);
        for key in all {
            assert!(doc.contains(&format!("`{key}`")), "docs/json.md does not describe `{key}`");
        }
    }
}

/// The picture of README, and of a container whose name has the characters of markup.
#[test]
fn a_picture_is_the_text_of_a_terminal() {
    let shown = story("cart", &[pod()]);
    let picture = picture(&shown);
    expect_test::expect_file!["../../../../docs/images/why.svg"].assert_eq(&picture);
    let plain = text(&shown, Columns(80), Style::Plain, false);
    // The text is in the picture, and nothing else but markup and the title.
    let content: String = picture
        .split('<')
        .filter_map(|tag| Some(tag.split_once('>')?.1))
        .collect::<String>()
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(squeezed(&content), format!("epitaphwhy{}", squeezed(&plain)));
    assert!(
        !picture.contains('\u{1b}') && picture.contains("#ff7b72"),
        "colours are not escape sequences"
    );
    let named = pod().replace("cart-7d9f8b6c5-x2x4z", "a<script>&b");
    let picture = super::picture(&story("a<script>&b", &[named]));
    assert!(
        picture.contains("a&lt;script&gt;&amp;b") && !picture.contains("<script"),
        "{picture}"
    );
}

#[test]
fn lines_of_a_list() {
    let lines = [container(), unit(), restarted(), pod()];
    let briefs: Vec<Brief> = lines
        .iter()
        .map(|line| Brief::of(&serde_json::from_str(line).unwrap()))
        .collect();
    let list = |width| {
        let mut list = List::new(width, Style::Plain).with_header();
        briefs.iter().map(|brief| list.line(brief)).collect::<String>()
    };
    assert_fits(&list(Some(80)), 80);
    assert_fits(&list(Some(40)), 40);
    expect![[r#"
          time     trace    name                             verdict: sentence
        2026-01-02 UTC
        ! 03:05:15 07f64948 3f1c0d4e5a6b sh                  ignored-stop-signal: `sh` …
          03:04:06 f7582820 nginx.service                    unknown: How the main proc…
        2023-11-14 UTC
        ! 23:37:10 36d2adfa shop/cart/app                    ignored-stop-signal: `sh` …
        ! 23:37:10 f413a7a4 shop/cart                        ignored-stop-signal: conta…
    "#]]
    .assert_eq(&list(Some(80)));
    // A reader in another zone has its own time beside each date.
    let mut local = List::new(Some(80), Style::Plain).with_local_time(|_| 2 * 3_600);
    let dates: Vec<String> = briefs.iter().map(|brief| local.line(brief)).collect();
    let dates: Vec<&str> = dates
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.contains("UTC"))
        .collect();
    assert_eq!(
        dates,
        [
            "2026-01-02 UTC (03:05:15 is 05:05:15 +02:00 here)",
            "2023-11-14 UTC (23:37:10 is 2023-11-15 01:37:10 +02:00 here)",
        ]
    );
    // Summer time of London ends within this day, at 03:05 by this reader's rules.
    let ahead: fn(Wall) -> i64 = |at| {
        if at < Wall::parse_rfc3339("2026-01-02T03:05:00Z").unwrap() {
            3_600
        } else {
            0
        }
    };
    let mut changing = List::new(Some(80), Style::Plain).with_local_time(ahead);
    let dates = [&briefs[1], &briefs[1], &briefs[0]].map(|brief| changing.line(brief));
    let dates: Vec<&str> = dates
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.contains("UTC"))
        .collect();
    assert_eq!(
        dates,
        [
            "2026-01-02 UTC (03:04:06 is 04:04:06 +01:00 here)",
            "2026-01-02 UTC (03:05:15 is 03:05:15 +00:00 here)",
        ]
    );
    let mut narrow = List::new(Some(40), Style::Plain).with_local_time(|_| 2 * 3_600);
    assert_fits(&narrow.line(&briefs[0]), 40);
    // For programs, such as grep and awk: every line is a termination.
    expect![[r#"
        ! 2026-01-02 03:05:15Z 07f64948 3f1c0d4e5a6b sh                  ignored-stop-signal: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
          2026-01-02 03:04:06Z f7582820 nginx.service                    unknown: How the main process terminated is unknown: the process started before the observation began, so a stop signal may have been missed
        ! 2023-11-14 23:37:10Z 36d2adfa shop/cart/app                    ignored-stop-signal: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later
        ! 2023-11-14 23:37:10Z f413a7a4 shop/cart                        ignored-stop-signal: container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later
    "#]].assert_eq(&list(None));
}

/// As `kubectl epitaph watch` shows them: names that are long, and alike at their beginning. A verdict is never cut.
#[test]
fn pods_of_a_workload_differ_in_a_narrow_list() {
    let line = |name: &str| {
        let mut brief = Brief::of(&serde_json::from_str(&pod()).unwrap());
        brief.name = name.to_owned();
        brief.verdict = "truncated-by-shutdown".to_owned();
        let line = List::new(Some(80), Style::Plain).line(&brief);
        line.lines().last().unwrap().to_owned()
    };
    let (one, other) = (
        line("payments/checkout-service-7d9f8b6c5-x2x4z"),
        line("payments/checkout-service-7d9f8b6c5-9k7qp"),
    );
    expect![[r#"! 23:37:10 f413a7a4 payments/ch…vice-7d9f8b6c5-x2x4z truncated-by-shutdown: con…"#]].assert_eq(&one);
    assert_ne!(one, other);
    assert!(line("shop/cart-7d9f8b6c5-x2x4z").contains(" shop/cart-7d9f8b6c5-x2x4z "));
    for width in 0..9 {
        assert!(columns(&words::cut_middle("長い名前-x2x4z", width)) <= width, "{width}");
    }
}

fn summary_json(counts: &Counts) -> String {
    let mut out = Vec::new();
    summary_object(counts, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn counts_of_a_list() {
    let mut counts = Counts::default();
    for line in [container(), unit(), restarted(), pod(), pod()] {
        counts.add(&serde_json::from_str(&line).unwrap());
    }
    let text = summary(&counts, Some(80), Style::Plain);
    assert_fits(&text, 80);
    expect![[r#"
        5 terminations, 4 unclean, 1 unknown, 2023-11-14 23:37:10 to 2026-01-02 03:05:15
        UTC

            count  workload                verdict              last, UTC
        !       3  Deployment shop/cart    ignored-stop-signal  2023-11-14 23:37:10
        !       1  container 3f1c0d4e5a6b  ignored-stop-signal  2026-01-02 03:05:15
                1  unit nginx.service      unknown              2026-01-02 03:04:06
    "#]]
    .assert_eq(&text);
    expect![[r#"
        {"type":"summary","terminations":5,"unclean":4,"unknown":1,"first":"2023-11-14T23:37:10.002000000Z","last":"2026-01-02T03:05:15.003000000Z","workloads":[{"workload":"Deployment shop/cart","verdict":"ignored-stop-signal","unclean":true,"severity":"critical","count":3,"first":"2023-11-14T23:37:10.002000000Z","last":"2023-11-14T23:37:10.260000000Z"},{"workload":"container 3f1c0d4e5a6b","verdict":"ignored-stop-signal","unclean":true,"severity":"warning","count":1,"first":"2026-01-02T03:05:15.003000000Z","last":"2026-01-02T03:05:15.003000000Z"},{"workload":"unit nginx.service","verdict":"unknown","unclean":false,"severity":"warning","count":1,"first":"2026-01-02T03:04:06.500000000Z","last":"2026-01-02T03:04:06.500000000Z"}],"ungrouped":0,"ungrouped_unclean":0}
    "#]].assert_eq(&summary_json(&counts));
}

/// The process exited while epitaph was restarted: nobody knows when.
#[test]
fn an_end_in_a_gap_is_between_two_times() {
    use std::time::Duration;

    use epitaph_core::termination::Unobserved;

    let mut t = sample::unknown_unit();
    t.facts.exit = None;
    t.facts.gaps.unobserved = vec![Unobserved {
        since: t.end.minus(Duration::from_secs(118)),
        until: t.end,
    }];
    let line = core_json::line(&core_json::termination(&t, &sample::observation()));
    let shown = text(&story("nginx.service", &[line]), Columns(80), Style::Plain, false);
    let ended = shown
        .lines()
        .filter(|line| line.contains("ended") || line.contains("not observed"));
    expect![[r#"
          03:04:05.000      0 s |***********************| not observed, 1.5 s
          03:04:06.500    1.5 s |                      *| end; the exit was not observed
        ended     between 2026-01-02 03:04:05 and 2026-01-02 03:04:06 UTC"#]]
    .assert_eq(&ended.collect::<Vec<_>>().join("\n"));
}

/// The journal does not keep the connects of clients: nothing proves that records were lost.
#[test]
fn connects_before_a_restart_are_not_called_lost() {
    let mut report: Report = serde_json::from_str(&container()).unwrap();
    report.gaps.lost = [("tcp".into(), 2), ("process_exit".into(), 1)].into();
    let missing = text::missing(&report).unwrap();
    assert!(
        missing.contains("records of TCP connections were lost, or not kept over a restart of epitaph"),
        "{missing}"
    );
    assert!(missing.contains("1 process_exit record was lost"), "{missing}");
}

/// No text of a report reaches the output as a control sequence, breaks a line, or makes a line too long.
#[test]
fn hostile_names_stay_names() {
    let long = "長い名前-".repeat(40);
    for name in [
        "\u{1b}[2J\u{7}\r\nx",
        "\u{202e}gpj.exe",
        "`|<b>[a](//b)",
        "http://evil.example",
        "WWW.evil.example",
        "a@evil.example",
        long.as_str(),
        "",
        "\u{9b}31m",
    ] {
        let pod = core_json::pod_termination(&pods::hostile(name), &terminations::observation());
        let own = core_json::termination(&sample::hostile(name), &sample::observation());
        for line in [core_json::line(&pod), core_json::line(&own)] {
            let report: Report = serde_json::from_str(&line).unwrap();
            let found = Found {
                line: line.clone(),
                by: crate::history::Match::Name,
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
                ahead: 0,
                program: "epitaph",
                report,
                found,
            };
            let shown = text(&story, Columns(80), Style::Plain, true);
            assert_fits(&shown, 80);
            let page = markdown(&story);
            for text in [
                &shown,
                &page,
                &why_object(&story),
                &List::new(Some(80), Style::Plain).line(&story.others[0]),
            ] {
                let bad = text
                    .chars()
                    .find(|c| (c.is_control() && *c != '\n') || "\u{202e}\u{9b}".contains(*c));
                assert_eq!(bad, None, "{text:?}");
            }
            // Not within blocks of code.
            let prose: String = page.split("```").step_by(2).collect();
            for link in ["<b>", "[a](//b)", "://", "WWW.", "@"] {
                assert!(!prose.contains(link), "{link}: {page}");
            }
        }
    }
}

#[test]
fn json_is_safe_to_print_and_unchanged() {
    let hostile = "{\"a\":\"x\u{9b}y\u{202e}\u{e0041}ä長\"}";
    let safe = safe(hostile);
    assert!(
        safe.contains("\\u009b") && safe.contains("\\udb40\\udc41") && safe.contains("ä長"),
        "{safe}"
    );
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
    // Of a restart for another reason than a probe, which has a grace period of its own.
    let advice = |kind: &str, seconds: Option<u64>| {
        let advice = serde_json::json!([{"kind": kind, "seconds": seconds, "text": "x"}]);
        serde_json::json!({"advice": advice, "cause": "restart", "kubernetes": {"asked": {"cause": "restart"}}})
    };
    check_snippets(
        &restarted(),
        advice("grace-longer", Some(45)),
        expect![[r#"
        # Deployment shop/cart
        spec:
          template:
            spec:
              terminationGracePeriodSeconds: 45
    "#]],
    );
    check_snippets(
        &restarted(),
        advice("grace-longer", None),
        expect![[r#"
            # Deployment shop/cart; terminationGracePeriodSeconds: 60 s is twice the present value, because how long the shutdown needs is unknown
            spec:
              template:
                spec:
                  terminationGracePeriodSeconds: 60
        "#]],
    );
    // The shutdown took 30 s: with the sleep it does not fit in 30 s.
    check_snippets(
        &restarted(),
        advice("pre-stop-sleep-longer", Some(5)),
        expect![[r##"
            # Deployment shop/cart; lifecycle.preStop of `app`: sleep needs Kubernetes 1.30, before that write exec: {command: ["sleep", "5"]}
            spec:
              template:
                spec:
                  terminationGracePeriodSeconds: 40
                  containers:
                  - name: app
                    lifecycle:
                      preStop:
                        sleep:
                          seconds: 5
        "##]],
    );
    check_snippets(&restarted(), advice("accept-while-draining", None), expect![[""]]);
    // The deletion asked for 5 s, and the spec has 60: a snippet for the spec never lowers it.
    let cut_short = |kind: &str, seconds: Option<u64>| {
        let mut change = advice(kind, seconds);
        change["kubernetes"] =
            serde_json::json!({"grace_ms": 5000.0, "request": {"grace_ms": 5000.0, "spec_grace_ms": 60000.0}});
        change
    };
    // What the spec has is not known.
    let mut of_older = cut_short("grace-longer", Some(10));
    of_older["kubernetes"]["request"]["spec_grace_ms"] = serde_json::Value::Null;
    check_snippets(&restarted(), of_older, expect![[""]]);
    // A probe has a grace period of its own.
    let mut of_probe = advice("grace-longer", None);
    (of_probe["cause"], of_probe["kubernetes"]) = ("liveness".into(), serde_json::json!({"asked": {"cause": "liveness"}}));
    check_snippets(&restarted(), of_probe, expect![[""]]);
    check_snippets(&restarted(), cut_short("grace-longer", Some(10)), expect![[""]]);
    check_snippets(
        &restarted(),
        cut_short("grace-longer", None),
        expect![[r#"
            # Deployment shop/cart; terminationGracePeriodSeconds: 120 s is twice the present value, because how long the shutdown needs is unknown
            spec:
              template:
                spec:
                  terminationGracePeriodSeconds: 120
        "#]],
    );
    check_snippets(
        &restarted(),
        cut_short("pre-stop-sleep-longer", Some(5)),
        expect![[r##"
            # Deployment shop/cart; lifecycle.preStop of `app`: sleep needs Kubernetes 1.30, before that write exec: {command: ["sleep", "5"]}
            spec:
              template:
                spec:
                  containers:
                  - name: app
                    lifecycle:
                      preStop:
                        sleep:
                          seconds: 5
        "##]],
    );
    let liveness = serde_json::json!({"cause": "liveness", "exit": "killed-after-grace"});
    check_snippets(
        &restarted(),
        liveness,
        expect![[r#"
            # Deployment shop/cart; livenessProbe.terminationGracePeriodSeconds of `app`: 60 s is twice the present value, because how long the shutdown needs is unknown
            spec:
              template:
                spec:
                  containers:
                  - name: app
                    livenessProbe:
                      terminationGracePeriodSeconds: 60
        "#]],
    );
    // A sleep of before Kubernetes 1.30.
    let mut own = advice("pre-stop-sleep-longer", Some(5));
    let asked = serde_json::json!({"cause": "restart"});
    own["kubernetes"] =
        serde_json::json!({"asked": asked, "pre_stop": {"hook": "exec", "program": "/bin/sleep"}, "grace_ms": 60000.0});
    check_snippets(
        &restarted(),
        own,
        expect![[r##"
            # Deployment shop/cart; lifecycle.preStop of `app`: only if the present value is smaller
            spec:
              template:
                spec:
                  containers:
                  - name: app
                    lifecycle:
                      preStop:
                        exec:
                          command: ["/bin/sleep", "5"]
        "##]],
    );
    // A container has one hook.
    let mut own = advice("pre-stop-sleep-longer", Some(5));
    own["kubernetes"] = serde_json::json!({"pre_stop": {"hook": "exec", "program": "/bin/drain"}});
    check_snippets(&restarted(), own.clone(), expect![[""]]);
    // Next to another setting.
    own["advice"] = serde_json::json!([
        {"kind": "pre-stop-sleep-longer", "seconds": 5, "text": "x"},
        {"kind": "grace-longer", "seconds": 45, "text": "x"},
    ]);
    own["kubernetes"]["asked"] = serde_json::json!({"cause": "restart"});
    check_snippets(
        &restarted(),
        own,
        expect![[r#"
        # Deployment shop/cart; lifecycle.preStop of `app`: the container has a hook of another kind already: change how long that hook takes
        spec:
          template:
            spec:
              terminationGracePeriodSeconds: 45
    "#]],
    );
    // The shutdown of 30 s and the sleep need more than twice the present value.
    let both = serde_json::json!([
        {"kind": "pre-stop-sleep-longer", "seconds": 50, "text": "x"},
        {"kind": "grace-longer", "seconds": null, "text": "x"},
    ]);
    let mut own = advice("grace-longer", None);
    own["advice"] = both;
    check_snippets(
        &restarted(),
        own,
        expect![[r##"
        # Deployment shop/cart; lifecycle.preStop of `app`: sleep needs Kubernetes 1.30, before that write exec: {command: ["sleep", "50"]}
        spec:
          template:
            spec:
              terminationGracePeriodSeconds: 95
              containers:
              - name: app
                lifecycle:
                  preStop:
                    sleep:
                      seconds: 50
    "##]],
    );
    // A deletion may have cut a longer one.
    let mut own = advice("pre-stop-sleep-longer", Some(8));
    own["kubernetes"]["pre_stop"] = serde_json::json!({"hook": "sleep", "sleep_s": 30});
    check_snippets(&restarted(), own, expect![[""]]);
}

#[test]
fn settings_stand_where_the_workload_has_them() {
    for (kind, expected) in [
        (
            "CronJob",
            expect![[r#"
            # CronJob shop/cart
            spec:
              jobTemplate:
                spec:
                  template:
                    spec:
                      terminationGracePeriodSeconds: 45
        "#]],
        ),
        (
            "Pod",
            expect![[r#"
            # Pod shop/cart; a running pod cannot be changed, create it anew
            spec:
              terminationGracePeriodSeconds: 45
        "#]],
        ),
        // A name that would need quoting is not of Kubernetes.
        (
            "a: b",
            expect![[r#"
            # the spec of the pod
            spec:
              terminationGracePeriodSeconds: 45
        "#]],
        ),
    ] {
        let change = serde_json::json!({
            "advice": [{"kind": "grace-longer", "seconds": 45, "text": "x"}],
            "cause": "restart",
            "kubernetes": {"asked": {"cause": "restart"}, "pod": {"workload": {"kind": kind}}},
        });
        check_snippets(&restarted(), change, expected);
    }
}

#[test]
fn settings_of_a_unit_and_of_docker() {
    let stop = serde_json::json!({"time": "2026-01-02T03:05:05Z"});
    let kill = serde_json::json!({"time": "2026-01-02T03:05:15.1Z"});
    let slow = serde_json::json!({"exit": "killed-after-grace", "stop": stop, "kill": kill});
    // Somebody killed it before: a unit has 90 s where nobody set less.
    check_snippets(&unit(), slow.clone(), expect![[""]]);
    let mut slower = slow.clone();
    slower["kill"] = serde_json::json!({"time": "2026-01-02T03:06:35.1Z"});
    check_snippets(
        &unit(),
        slower,
        expect![[r#"
            # /etc/systemd/system/nginx.service.d/50-stop.conf, by `systemctl edit nginx.service`; TimeoutStopSec: 180 s is twice the 90.1 s that the shutdown got, because how long the shutdown needs is unknown; TimeoutStopSec: only if the present value is smaller; `systemctl show -P TimeoutStopUSec nginx.service` prints the present value
            [Service]
            TimeoutStopSec=180
        "#]],
    );
    let code = serde_json::json!({"exit": "nonzero-exit", "stop": stop, "status": {"code": 3}});
    check_snippets(
        &unit(),
        code,
        expect![[r#"
            # /etc/systemd/system/nginx.service.d/50-stop.conf, by `systemctl edit nginx.service`; SuccessExitStatus: only if the program means success by exit code 3 after a stop signal
            [Service]
            SuccessExitStatus=3
        "#]],
    );
    let mut docker = slow.clone();
    docker["subject"] = serde_json::json!({"runtime": "docker"});
    check_snippets(
        &container(),
        docker,
        expect![[r#"
            # the service in compose.yaml, or `docker stop --timeout 20`; stop_grace_period: 20 s is twice the 10.1 s that the shutdown got, because how long the shutdown needs is unknown; stop_grace_period: only if the present value is smaller
            stop_grace_period: 20s
        "#]],
    );
    // `docker stop --timeout 2`, of one that has 10 s.
    let mut hasty = slow.clone();
    hasty["subject"] = serde_json::json!({"runtime": "docker"});
    hasty["kill"] = serde_json::json!({"time": "2026-01-02T03:05:07.1Z"});
    check_snippets(&container(), hasty, expect![[""]]);
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
    check(
        &story("cart", &[line]),
        expect![[r#"
            pod shop/cart-7d9f8b6c5-x2x4z
            image app
            clean  info

            The container runtime sent SIGTERM to PID 1 `sh`, the handler ran, and the
            process exited with code 0, 250 ms later

              2023-11-14 UTC  after |0                550 ms|
              23:36:39.700      0 s |=                      | preStop sleep 5 s, end not
                                    |                       |   observed
              23:36:40.000   300 ms |            *          | SIGTERM from the runtime to
                                    |                       |   PID 1 `sh`
              23:36:40.001   301 ms |            ===========| SIGTERM handler entered
              23:36:40.250   550 ms |                      *| exit code 0

            axes      cause evicted-node-pressure, exit clean, traffic quiet
            ended     2023-11-14 23:36:40 UTC
            ran       16m40s, since 2023-11-14 23:20:00 UTC
            before    no earlier termination of Deployment shop/cart is known
            workload  Deployment shop/cart
            node      node-7
            trace     4d2503eb27f836e6df9e112412726403
            meaning   `epitaph explain clean`
        "#]],
    );
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

/// Clocks of the reader may be on another day.
#[test]
fn the_local_time_stands_beside_utc() {
    let mut story = story("3f1c", &[container()]);
    let ended = |story: &Story| {
        let shown = text(story, Columns(80), Style::Plain, false);
        shown
            .lines()
            .find(|line| line.starts_with("ended "))
            .expect("a row")
            .to_owned()
    };
    let utc = ended(&story);
    assert!(utc.ends_with(" UTC"), "{utc}");
    story.ahead = 20 * 3_600 + 45 * 60;
    let east = ended(&story);
    assert!(east.starts_with(&utc) && east.ends_with(" +20:45)"), "{east}");
    story.ahead = -3_600;
    assert!(ended(&story).ends_with(" -01:00)"), "{}", ended(&story));
}
