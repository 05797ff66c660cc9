use std::sync::Arc;
use std::time::Duration;

use epitaph_core::fixtures::builder::termination;
use epitaph_core::fixtures::pods;
use epitaph_core::kubernetes::PodContext;
use epitaph_core::pod::Workload;
use epitaph_core::report::{PodTermination, Report};
use epitaph_core::verdict::{Advice, Cause};
use expect_test::expect;
use opentelemetry_sdk::Resource;

use super::*;
use crate::sink::metrics::{Metrics, push};

/// 2026-11-21T11:44:10Z.
const NOW: Wall = Wall(1_795_261_450_000_000_000);

fn metrics(workloads: usize) -> Metrics {
    Metrics::new::<push::Push>(Resource::builder_empty().build(), None, workloads).unwrap()
}

/// The series of workloads, with distinguishing labels only.
fn series(metrics: &Metrics) -> String {
    let text = metrics.text().unwrap();
    let mut lines: Vec<String> = text
        .lines()
        .filter(|l| l.starts_with("epitaph_workload_"))
        .map(|l| l.replace("epitaph_workload_", "").replace("k8s_namespace_", "ns_"))
        .collect();
    lines.sort();
    lines.join("\n") + "\n"
}

fn of(kind: &str, name: &str) -> PodTermination {
    let mut p = pods::pod(1);
    let mut pod = Arc::unwrap_or_clone(p.facts.pod.clone());
    (pod.workload.kind, pod.workload.name) = (kind.into(), name.into());
    p.facts.pod = Arc::new(pod);
    p
}

fn workload(name: &str) -> Workload {
    of("Deployment", name).pod.workload.clone()
}

fn ended(p: PodTermination) -> Report {
    Report::PodTerminated(Box::new(p))
}

fn at(seconds: u64) -> Boot {
    Boot(seconds * 1_000_000_000)
}

#[test]
fn a_workloads_terminations_start_at_zero_as_soon_as_it_runs() {
    let metrics = metrics(10);
    assert_eq!(series(&metrics), "\n");
    metrics.report(NOW, &Report::Workload(workload("cart")));
    expect![[r#"
        grace_cut_short_total{kind="Deployment",name="cart",ns_name="shop"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="OOMKilled",was="exit-0"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="OOMKilled",was="exit-code"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="OOMKilled",was="signal"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="exit-code",was="exit-0"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="exit-code",was="exit-code"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="exit-code",was="oom-kill"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="exit-code",was="signal"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="placeholder",was="exit-0"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="placeholder",was="exit-code"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="placeholder",was="oom-kill"} 0
        status_disagrees_total{kind="Deployment",name="cart",ns_name="shop",said="placeholder",was="signal"} 0
        terminations_total{kind="Deployment",name="cart",ns_name="shop",unclean="false",what="container"} 0
        terminations_total{kind="Deployment",name="cart",ns_name="shop",unclean="false",what="pod"} 0
        terminations_total{kind="Deployment",name="cart",ns_name="shop",unclean="true",what="container"} 0
        terminations_total{kind="Deployment",name="cart",ns_name="shop",unclean="true",what="pod"} 0
    "#]]
    .assert_eq(&series(&metrics));
}

#[test]
fn pods_and_restarts_are_counted_separately() {
    let metrics = metrics(10);
    metrics.report(NOW, &Report::Workload(workload("cart")));
    let restarted = pods::restarted(3);
    metrics.report(NOW, &Report::StopSignalIgnored(Box::new(pods::early(&restarted))));
    metrics.report(NOW, &Report::Stuck(Box::new(pods::stuck(restarted.clone()))));
    metrics.report(NOW, &Report::Terminated(Box::new(restarted)));
    metrics.report(NOW, &ended(of("Deployment", "cart")));
    let after = series(&metrics);
    let counted: Vec<&str> = after.lines().filter(|l| !l.ends_with(" 0")).collect();
    expect![[r#"
        connections_total{kind="Deployment",name="cart",ns_name="shop",outcome="cut"} 6
        connections_total{kind="Deployment",name="cart",ns_name="shop",outcome="refused"} 28
        connections_total{kind="Deployment",name="cart",ns_name="shop",outcome="rejected"} 2
        connections_total{kind="Deployment",name="cart",ns_name="shop",outcome="reset"} 2
        incident_timestamp_seconds{kind="Deployment",name="cart",incident="connections-cut",ns_name="shop"} 1795261450
        incident_timestamp_seconds{kind="Deployment",name="cart",incident="connections-refused",ns_name="shop"} 1795261450
        incident_timestamp_seconds{kind="Deployment",name="cart",incident="connections-rejected",ns_name="shop"} 1795261450
        incident_timestamp_seconds{kind="Deployment",name="cart",incident="connections-reset",ns_name="shop"} 1795261450
        incident_timestamp_seconds{kind="Deployment",name="cart",incident="stop-signal-ignored",ns_name="shop"} 1795261450
        incident_timestamp_seconds{kind="Deployment",name="cart",incident="stuck",ns_name="shop"} 1795261450
        stop_signals_ignored_total{kind="Deployment",name="cart",ns_name="shop"} 1
        stuck_total{kind="Deployment",name="cart",ns_name="shop"} 1
        terminations_total{kind="Deployment",name="cart",ns_name="shop",unclean="true",what="container"} 1
        terminations_total{kind="Deployment",name="cart",ns_name="shop",unclean="true",what="pod"} 1
        unclean_timestamp_seconds{kind="Deployment",name="cart",ns_name="shop",verdict="ignored-stop-signal"} 1795261450
        verdicts_total{kind="Deployment",name="cart",ns_name="shop",verdict="ignored-stop-signal"} 2
    "#]]
    .assert_eq(&(counted.join("\n") + "\n"));
}

/// What the kernel cannot tell apart is counted, and has none of the series that the alerts read.
#[test]
fn undecided_connections_are_not_unclean_and_not_an_incident() {
    let metrics = metrics(10);
    let mut undecided = termination().term(0.3).exit(0.5, 0);
    undecided.t.traffic.undecided.all.count = 2;
    metrics.report(NOW, &Report::Terminated(Box::new(undecided.judged())));
    let after = series(&metrics);
    let counted: Vec<&str> = after.lines().filter(|l| !l.ends_with(" 0")).collect();
    expect![[r#"
        terminations_total{kind="Deployment",name="cart",ns_name="shop",unclean="false",what="container"} 1
        verdicts_total{kind="Deployment",name="cart",ns_name="shop",verdict="undecided-connections"} 1
    "#]]
    .assert_eq(&(counted.join("\n") + "\n"));
    let text = metrics.text().unwrap();
    assert!(text.contains("epitaph_connections_total{outcome=\"undecided\"} 2"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("epitaph_host_unclean")), "{text}");
}

/// No series of the workload was there before; a clean termination does not move the time.
#[test]
fn the_time_of_the_latest_unclean_termination_is_known_from_the_first_on() {
    let metrics = metrics(10);
    metrics.alive(at(1_000));
    let mut clean = of("Deployment", "cart");
    (clean.verdict.headline, clean.verdict.unclean) = ("clean", false);
    clean.containers.clear();
    let times = || {
        let text = series(&metrics);
        text.lines()
            .filter(|l| l.contains("timestamp"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    metrics.report(NOW, &ended(clean.clone()));
    assert!(times().is_empty());
    metrics.report(NOW, &ended(of("Deployment", "cart")));
    metrics.report(Wall(NOW.0 + 60_500_000_000), &ended(of("Deployment", "cart")));
    metrics.report(Wall(NOW.0 + 90_000_000_000), &ended(clean));
    expect![[r#"
        incident_timestamp_seconds{kind="Deployment",name="cart",incident="connections-cut",ns_name="shop"} 1795261510.5
        incident_timestamp_seconds{kind="Deployment",name="cart",incident="connections-refused",ns_name="shop"} 1795261510.5
        incident_timestamp_seconds{kind="Deployment",name="cart",incident="connections-rejected",ns_name="shop"} 1795261510.5
        incident_timestamp_seconds{kind="Deployment",name="cart",incident="connections-reset",ns_name="shop"} 1795261510.5
        unclean_timestamp_seconds{kind="Deployment",name="cart",ns_name="shop",verdict="ignored-stop-signal"} 1795261510.5
    "#]]
    .assert_eq(&(times().join("\n") + "\n"));
    metrics.alive(at(9_000));
    assert!(times().is_empty(), "forgotten with the workload");
}

#[test]
fn jobs_and_bare_pods_have_no_names_here() {
    let metrics = metrics(10);
    for run in 0..50 {
        metrics.report(NOW, &ended(of("Job", &format!("job-{run}"))));
        metrics.report(NOW, &ended(of("Pod", &format!("pod-{run}"))));
    }
    let text = series(&metrics);
    assert!(!text.contains("job-") && !text.contains("pod-"), "{text}");
    assert_eq!(
        text.lines()
            .filter(|l| l.starts_with("verdicts") && l.ends_with(" 50"))
            .count(),
        2
    );
}

#[test]
fn workloads_beyond_the_limit_are_counted_together() {
    let metrics = metrics(2);
    for name in ["a", "b", "c", "d"] {
        metrics.report(NOW, &Report::Workload(workload(name)));
        metrics.report(NOW, &ended(of("Deployment", name)));
    }
    let text = series(&metrics);
    assert!(!text.contains("\"c\"") && !text.contains("\"d\""), "{text}");
    let other = text
        .lines()
        .find(|l| l.starts_with("verdicts") && l.contains("name=\"other\""));
    assert!(other.is_some_and(|l| l.ends_with(" 2")), "{text}");
    assert!(
        metrics
            .text()
            .unwrap()
            .contains("epitaph_dropped_total{reason=\"workload_cap\"} 2")
    );

    // There is room again once a workload has no pod here.
    metrics.report(NOW, &Report::WorkloadGone(workload("a")));
    metrics.report(NOW, &Report::Workload(workload("c")));
    let text = series(&metrics);
    assert!(text.contains("\"c\"") && !text.contains("\"a\""), "{text}");
}

#[test]
fn workloads_that_come_and_go_push_none_of_another_namespace_out() {
    let metrics = metrics(4);
    let mut of_evil = of("Deployment", "cart");
    metrics.report(NOW, &ended(of("Deployment", "cart")));
    for number in 0..20 {
        metrics.alive(at(10 + number));
        let pod = Arc::make_mut(&mut of_evil.facts.pod);
        (pod.workload.namespace, pod.workload.name) = ("evil".into(), format!("evil-{number}"));
        metrics.report(NOW, &Report::Workload(pod.workload.clone()));
        metrics.report(NOW, &Report::WorkloadGone(pod.workload.clone()));
    }
    let of_cart = series(&metrics);
    assert!(of_cart.contains(r#"name="cart",ns_name="shop",unclean="true""#), "{of_cart}");
    assert!(of_cart.contains(r#"name="evil-19""#), "{of_cart}");
    assert!(!of_cart.contains(r#"name="evil-16""#), "{of_cart}");
}

#[test]
fn workloads_without_pods_are_kept_for_an_hour() {
    let metrics = metrics(10);
    metrics.alive(at(1_000));
    for name in ["gone", "back", "here"] {
        metrics.report(NOW, &Report::Workload(workload(name)));
    }
    metrics.report(NOW, &Report::WorkloadGone(workload("gone")));
    metrics.report(NOW, &Report::WorkloadGone(workload("back")));
    metrics.report(NOW, &Report::Workload(workload("back")));
    metrics.alive(at(4_500));
    assert!(series(&metrics).contains("\"gone\""));
    metrics.alive(at(4_700));
    let text = series(&metrics);
    assert!(!text.contains("\"gone\""), "{text}");
    assert!(text.contains("\"back\"") && text.contains("\"here\""), "{text}");
}

/// A rollout: the Deployment's old ReplicaSet goes, its new one stays.
#[test]
fn a_workload_is_gone_with_the_last_owner_of_its_name() {
    let metrics = metrics(10);
    metrics.alive(at(1_000));
    let [old, new] = ["old", "new"].map(|set| Workload {
        through: Some(("ReplicaSet".into(), set.into(), None)),
        ..workload("cart")
    });
    metrics.report(NOW, &Report::Workload(old.clone()));
    metrics.report(NOW, &Report::Workload(new.clone()));
    metrics.report(NOW, &Report::WorkloadGone(old));
    metrics.alive(at(9_000));
    assert!(series(&metrics).contains("\"cart\""));
    metrics.report(NOW, &Report::WorkloadGone(new));
    metrics.alive(at(19_000));
    assert!(!series(&metrics).contains("\"cart\""));
    // A workload without announced pods is forgotten as well.
    metrics.report(NOW, &ended(of("Deployment", "stray")));
    assert!(series(&metrics).contains("\"stray\""));
    metrics.alive(at(29_000));
    assert!(!series(&metrics).contains("\"stray\""));
}

/// Counts a pod's termination with one recommendation; returns the recommendations afterwards.
fn advise(metrics: &Metrics, kind: AdviceKind, seconds: Option<u64>) -> String {
    let mut p = of("Deployment", "cart");
    p.containers.clear();
    p.facts.unseen.clear();
    p.verdict.advice = vec![Advice {
        kind,
        seconds,
        text: "measured".into(),
    }];
    metrics.report(NOW, &ended(p));
    advised(metrics)
}

fn advised(metrics: &Metrics) -> String {
    let text = series(metrics);
    let advice = text.lines().filter(|l| l.starts_with("advice"));
    let short = |l: &str| {
        l.replace("advice_seconds{advice=", "")
            .replace(",kind=\"Deployment\",name=\"cart\",ns_name=\"shop\"}", "")
    };
    advice.map(short).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_largest_recommendation_of_the_last_hour_is_exported() {
    let metrics = metrics(10);
    let advise = |kind, seconds| advise(&metrics, kind, seconds);
    metrics.report(NOW, &Report::Workload(workload("cart")));
    metrics.alive(at(1_000));
    assert_eq!(advise(AdviceKind::AcceptWhileDraining, None), "");
    assert_eq!(advise(AdviceKind::GraceShorter, Some(5)), "\"grace-shorter\" 5");
    // A sleep of 4 s and a grace of 5 s would leave one second.
    assert_eq!(advise(AdviceKind::PreStopSleepLonger, Some(4)), "\"pre-stop-sleep-longer\" 4");
    assert_eq!(
        advise(AdviceKind::GraceLonger, Some(40)),
        "\"grace-longer\" 40; \"pre-stop-sleep-longer\" 4"
    );
    metrics.alive(at(3_000));
    assert_eq!(
        advise(AdviceKind::GraceLonger, Some(35)),
        "\"grace-longer\" 40; \"pre-stop-sleep-longer\" 4"
    );
    metrics.alive(at(5_000));
    assert_eq!(advised(&metrics), "\"grace-longer\" 35");
    metrics.alive(at(6_590));
    assert_eq!(advised(&metrics), "\"grace-longer\" 35");
    metrics.alive(at(6_700));
    assert_eq!(advised(&metrics), "");
}

#[test]
fn a_bounded_number_of_recommendations_is_kept() {
    let metrics = metrics(10);
    metrics.report(NOW, &Report::Workload(workload("cart")));
    for i in 0..100 {
        metrics.alive(at(1_000 + i));
        assert_eq!(
            advise(&metrics, AdviceKind::GraceLonger, Some(500 - i)),
            "\"grace-longer\" 500"
        );
    }
    // The first ones and the last one.
    metrics.alive(at(4_603));
    assert_eq!(advised(&metrics), "\"grace-longer\" 496");
    metrics.alive(at(4_690));
    assert_eq!(advised(&metrics), "\"grace-longer\" 401");
}

/// An idle pod needs less than a busy one.
#[test]
fn less_is_recommended_only_if_no_termination_of_the_last_hour_needed_more() {
    let metrics = metrics(10);
    let shorter = |seconds| advise(&metrics, AdviceKind::GraceShorter, Some(seconds));
    metrics.report(NOW, &Report::Workload(workload("cart")));
    metrics.alive(at(1_000));
    assert_eq!(shorter(5), "\"grace-shorter\" 5");
    assert_eq!(shorter(10), "\"grace-shorter\" 10");
    // A clean termination 32.7 s after the request.
    let mut busy = of("Deployment", "cart");
    busy.containers.remove(0);
    busy.facts.unseen.clear();
    busy.verdict.advice.clear();
    metrics.report(NOW, &ended(busy));
    assert_eq!(advised(&metrics), "");
    assert_eq!(shorter(35), "");
    assert_eq!(shorter(40), "\"grace-shorter\" 40");
    // A container that was stopped without enough time; its pod continued.
    metrics.alive(at(2_000));
    metrics.report(NOW, &Report::Terminated(Box::new(pods::restarted(3))));
    assert_eq!(shorter(40), "");
    metrics.alive(at(5_590));
    assert_eq!(shorter(5), "");
    metrics.alive(at(5_660));
    assert_eq!(advised(&metrics), "\"grace-shorter\" 5");
}

/// As many workloads as allowed, each with every verdict: the SDK's own limit is not reached.
#[test]
fn the_sdk_has_room_for_all_allowed_series() {
    let metrics = metrics(120);
    for n in 0..120 {
        for row in &verdict::table::TABLE {
            let mut p = of("Deployment", &format!("w-{n}"));
            p.verdict.headline = row.headline;
            metrics.report(NOW, &ended(p));
        }
    }
    let text = series(&metrics);
    assert!(!text.contains("overflow"), "an overflow");
    let verdicts = text.lines().filter(|l| l.starts_with("verdicts")).count();
    assert_eq!(verdicts, 120 * verdict::table::TABLE.len());
}

/// By the first request, by a later one, and by an eviction of the kubelet; each only if the termination had less because of it.
#[test]
fn terminations_with_less_than_the_pods_own_grace_are_counted() {
    let pod = |change: &dyn Fn(&mut PodTermination, &mut PodContext)| {
        let mut pod = of("Deployment", "cart");
        let context = pod.containers[0].kubernetes.take().expect("a container of a pod");
        let mut context = Arc::unwrap_or_clone(context);
        change(&mut pod, &mut context);
        pod.containers[0].kubernetes = Some(Arc::new(context));
        pod
    };
    let counted = |pod: PodTermination| {
        let metrics = metrics(10);
        metrics.report(NOW, &ended(pod));
        series(&metrics).contains("grace_cut_short_total{kind=\"Deployment\",name=\"cart\",ns_name=\"shop\"} 1")
    };
    let killed = |pod: &mut PodTermination, seconds: u64| {
        let facts = &mut pod.containers[0].facts;
        facts.kill.as_mut().expect("a kill").at = facts.begin.plus(Duration::from_secs(seconds));
    };
    // The second request of the fixture asks for 20 s of 30, and SIGKILL came after 30.
    assert!(!counted(pod(&|_, _| {})), "a later request that no kubelet followed");
    assert!(counted(pod(&|pod, _| killed(pod, 20))), "a later request that was followed");
    let own = |context: &mut PodContext, seconds: u64| {
        let request = context.request.as_mut().expect("a request");
        request.spec_grace = Some(Duration::from_secs(seconds));
    };
    let is_own = pod(&|pod, context| {
        killed(pod, 20);
        own(context, 20);
    });
    assert!(!counted(is_own), "back to the pod's own");
    let first = pod(&|pod, _| pod.facts.request.as_mut().expect("a request").spec_grace = Some(Duration::from_secs(60)));
    assert!(counted(first), "the first request");
    let evicted = |grace: u64| {
        pod(&|pod, context| {
            pod.facts.request = None;
            context.request = None;
            context.own_grace = Some(Duration::from_secs(grace));
            let reason = context.stop_reason.as_mut().expect("a reason");
            reason.cause = Cause::EvictedNodePressure;
        })
    };
    assert!(counted(evicted(60)), "an eviction that did not wait");
    assert!(!counted(evicted(10)), "an eviction after the pod's own grace period");
}
