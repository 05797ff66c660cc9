use std::sync::Arc;

use epitaph_core::fixtures::{pods, terminations};
use epitaph_core::render::json as core_json;
use epitaph_core::render::resource::{self, EpitaphAdvice, EpitaphReport};
use epitaph_core::render::text::Style;
use epitaph_core::report::{PodTermination, Report as CoreReport, Termination};
use epitaph_core::verdict::{Advice, AdviceKind};
use expect_test::{Expect, expect};

use super::Template;
use crate::history::{Counts, Report, Search, Wanted};
use crate::story::{Brief, Columns, Snippet, Story, snippets, text};

fn of_pod(p: &PodTermination) -> EpitaphReport {
    let report = CoreReport::PodTerminated(Box::new(p.clone()));
    resource::of(&report, &terminations::observation()).expect("a pod's").report
}

fn of_container(t: &Termination) -> EpitaphReport {
    let report = CoreReport::Terminated(Box::new(t.clone()));
    resource::of(&report, &terminations::observation()).expect("a pod's").report
}

fn read(line: &str) -> Report {
    serde_json::from_str(line).expect("an object of docs/json.md")
}

fn check(report: &EpitaphReport, expected: Expect) {
    let line = super::object("shop", report).to_string();
    let mut search = Search::new(Wanted::new(&report.pod.name));
    search.look(&read(&line), &line, &Counts::default(), Brief::of);
    let (found, others, more) = search.finish().expect("found by the pod's name");
    let story = Story {
        report: read(&line),
        found,
        others,
        more,
        ahead: 0,
        program: "kubectl epitaph",
    };
    expected.assert_eq(&text(&story, Columns(80), Style::Plain, false));
}

#[test]
fn a_pod_is_drawn_as_far_as_the_resource_has_it() {
    check(
        &of_pod(&pods::pod(1)),
        expect![[r#"
        pod shop/cart-7d9f8b6c5-x2x4z
        ignored-stop-signal  UNCLEAN  warning

        container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel
        discarded the signal; the container runtime sent SIGKILL 30.0 s later

          2023-11-14 UTC  after |0                32.7 s|
          23:36:37.600      0 s |*                      | deletion requested, grace
                                |                       |   period 30 s
          23:36:40.000    2.4 s |  *                    | SIGTERM to the main process
          23:37:07.600   30.0 s |                    *  | grace period of 30 s over
          23:37:10.000   32.4 s |                      #| SIGKILL
          23:37:10.002   32.4 s |                      *| killed by SIGKILL
          the rest of the pod
          23:37:10.010   32.4 s |                      =| container proxy: clean, exit
                                |                       |   code 0

        Incomplete evidence: the Kubernetes API did not answer for 4.0 s; the exit of
        container init was not observed

        Remedy
          - use `exec` in the shell that starts the server, so that the server is PID 1
          - accept new connections while the server drains

        axes      cause deleted, exit ignored-stop-signal, traffic cut
        ended     2023-11-14 23:37:10 UTC
        clients   at least 14 refused, 1 reset, 3 cut, 2 rejected by the network
        before    no earlier termination of Deployment shop/cart is known
        workload  Deployment shop/cart
        node      node-7
        trace     f413a7a4e46d1258ed4927cd46f8b039
        meaning   The kernel discarded the stop signal, so the process kept running
                  until the runtime killed it: PID 1 has no handler, its handler only
                  raised the signal again (Node.js), or the process below an init
                  ignores it.
    "#]],
    );
}

#[test]
fn a_container_of_a_pod_that_lives_on_is_drawn() {
    check(
        &of_container(&pods::restarted(1)),
        expect![[r#"
        pod shop/cart-7d9f8b6c5-x2x4z, container app
        ignored-stop-signal  UNCLEAN  warning

        `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal;
        the container runtime sent SIGKILL 30.0 s later

          2023-11-14 UTC  after |0                30.0 s|
          23:36:40.000      0 s |*                      | SIGTERM to the main process
          23:37:10.000   30.0 s |                      *| grace period of 30 s over
          23:37:10.000   30.0 s |                      #| SIGKILL
          23:37:10.002   30.0 s |                      *| killed by SIGKILL

        Remedy
          use `exec` in the shell that starts the server, so that the server is PID 1

        axes      cause liveness, exit ignored-stop-signal, traffic cut
        ended     2023-11-14 23:37:10 UTC
        clients   14 refused, 1 reset, 3 cut
        before    no earlier termination of Deployment shop/cart is known
        workload  Deployment shop/cart
        node      node-7
        trace     36d2adfad73cb358a221eb2b3ece3942
        meaning   The kernel discarded the stop signal, so the process kept running
                  until the runtime killed it: PID 1 has no handler, its handler only
                  raised the signal again (Node.js), or the process below an init
                  ignores it.
    "#]],
    );
}

/// Whose clients were refused, without a hook: a preStop sleep would have avoided it.
fn advised() -> PodTermination {
    let mut pod = pods::pod(1);
    let app = &mut pod.containers[0];
    app.verdict.advice = vec![Advice {
        kind: AdviceKind::PreStopSleepLonger,
        seconds: Some(4),
        text: "a preStop sleep of 4 s".to_owned(),
    }];
    let context = app.kubernetes.as_mut().map(Arc::make_mut).expect("a pod's");
    context.pre_stop = None;
    pod
}

/// The settings to paste are those that the journal gives.
#[test]
fn the_snippets_are_those_of_the_journal() {
    let pod = advised();
    let journal = core_json::line(&core_json::pod_termination(&pod, &terminations::observation()));
    let of_journal = snippets(&read(&journal));
    assert!(!of_journal.is_empty());
    let of_resource = snippets(&read(&super::object("shop", &of_pod(&pod)).to_string()));
    assert_eq!(of_resource, of_journal);
}

#[test]
fn restarts_before_the_last_one_are_listed() {
    let mut report = of_pod(&pods::pod(1));
    let mut restart = report.containers[0].clone();
    restart.id = "0123456789ab".to_owned();
    report.containers.insert(0, restart);
    let earlier: Vec<Report> = super::earlier("shop", &report)
        .iter()
        .map(|of| read(&of.to_string()))
        .collect();
    let shown: Vec<_> = earlier.iter().map(|of| (of.short_name(), of.sentence.to_string())).collect();
    assert_eq!(
        shown,
        [("shop/cart/app".to_owned(), "container app: terminated by SIGKILL".to_owned())]
    );
}

/// From a compromised agent, or an older or newer one.
#[test]
fn what_is_in_the_resource_obeys_the_page() {
    let hostile = EpitaphReport {
        sentence: "\u{1b}[31m\u{202e}".to_owned(),
        verdict: "a-new-verdict".to_owned(),
        ..EpitaphReport::default()
    };
    let report = read(&super::object("shop", &hostile).to_string());
    assert!(!report.sentence.contains(['\u{1b}', '\u{202e}']), "{:?}", report.sentence);
    assert_eq!(&*report.severity, "");
}

/// A Deployment of the pod of the fixtures.
fn workload(grace: u64) -> serde_json::Value {
    let containers = serde_json::json!([{"name": "app"}]);
    let inits = serde_json::json!([{"name": "proxy", "restartPolicy": "Always"}]);
    let spec = serde_json::json!({"terminationGracePeriodSeconds": grace, "containers": containers, "initContainers": inits});
    serde_json::json!({"spec": {"template": {"spec": spec}}})
}

fn settings(reports: &[&EpitaphReport], workload: &serde_json::Value) -> Vec<Snippet> {
    super::settings("shop", reports, Template::of(workload).expect("a template"))
}

/// Two pods of a rollout, one of which needed more than the other.
#[test]
fn settings_of_a_rollout_are_the_most_that_a_pod_needed() {
    let first = of_pod(&advised());
    let mut second = first.clone();
    let advised = first
        .advice
        .iter()
        .find_map(|advice| advice.seconds)
        .expect("an advice with a number");
    for advice in &mut second.advice {
        advice.seconds = advice.seconds.map(|seconds| seconds + 7);
    }
    let text = |reports: &[&EpitaphReport]| {
        let all = settings(reports, &workload(30));
        all.iter().map(|of| of.text.clone()).collect::<String>()
    };
    assert_eq!(text(&[&first, &second]), text(&[&second]));
    assert!(text(&[&first, &second]).contains(&format!("{}", advised + 7)));
    assert_ne!(text(&[&first, &second]), text(&[&first]));
    assert_eq!(settings(&[], &workload(30)), []);
}

#[test]
fn a_lower_setting_is_advised_only_where_every_pod_has_enough_with_it() {
    let lower = |seconds| {
        let mut report = of_pod(&pods::pod(1));
        report.advice = vec![EpitaphAdvice {
            kind: "grace-shorter".to_owned(),
            container: None,
            seconds,
        }];
        report
    };
    let mut without = lower(None);
    without.advice.clear();
    let (five, nine) = (lower(Some(5)), lower(Some(9)));
    let all = settings(&[&five, &nine], &workload(30));
    assert!(all[0].text.contains("terminationGracePeriodSeconds: 9"), "{all:?}");
    assert_eq!(settings(&[&five, &nine, &without], &workload(30)), []);
    // It has been lowered meanwhile.
    assert_eq!(settings(&[&five, &nine], &workload(9)), []);
}
