use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use epitaph_core::event::ExitStatus;
use epitaph_core::fixtures::pods;
use epitaph_core::fixtures::terminations::{clean, ms, observation};
use epitaph_core::pod::PreStop;
use epitaph_core::render::{id, json};
use epitaph_core::termination::{MainExit, Role};
use expect_test::expect;
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::SpanData;

use super::text_of;
use crate::render::attributes::key;
use crate::render::span::{Options, pod_trace, trace};

#[test]
fn a_pod_with_an_unclean_main_container() {
    let pod = pods::pod(8);
    let text = text_of(&pod_trace(&pod, &observation(), &Options::default()), pod.begin, false);
    expect![[r#"
        resource epitaph.boot_id=5ad5ae73-41a8-4a0c-8b5c-3a1c2b0e0f11 epitaph.workload.kind=Deployment epitaph.workload.name=cart k8s.deployment.name=cart k8s.deployment.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000001 k8s.namespace.name=shop k8s.node.name=node-7 k8s.pod.name=cart-7d9f8b6c5-x2x4z k8s.pod.uid=0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6e k8s.replicaset.name=cart-7d9f8b6c5 k8s.replicaset.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000002 os.type=linux service.instance.id=shop.cart-7d9f8b6c5-x2x4z service.name=cart service.namespace=shop service.version=1.4.2
        pod.termination ignored-stop-signal < -: 0..32360 Error { description: "container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later" }
          @2200 grace.shortened epitaph.grace=20
          @32360 container.unseen k8s.container.name=init epitaph.reported.exit_code=0 k8s.container.status.reason=Completed
        container.stop ignored-stop-signal < pod.termination ignored-stop-signal: 100..32102 Error { description: "container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later" }
          @2100 stop-signal-ignored 
          @2140 listener.closed server.address=10.0.0.7 server.port=8080 network.transport=tcp
          @32100 SIGKILL 
        preStop < container.stop ignored-stop-signal: 100..2090 Error { description: "the hook exited with code 7" }
        SIGTERM → exit < container.stop ignored-stop-signal: 2100..32102 Unset
        refused connections < container.stop ignored-stop-signal: 2141..5341 Unset
        reset connections < container.stop ignored-stop-signal: 32101..32101 Unset
        cut connections < container.stop ignored-stop-signal: 32101..32102 Unset
        rejected connections < container.stop ignored-stop-signal: 2600..3000 Unset
        listener closed → exit < container.stop ignored-stop-signal: 2140..32102 Unset
        container.stop clean < pod.termination ignored-stop-signal: 32110..32360 Unset
          @32111 handler.entered 
        SIGTERM → exit < container.stop clean: 32110..32360 Unset
    "#]].assert_eq(&text);
}

#[test]
fn api_facts_of_pod_container_and_hook() {
    let pod = pods::pod(8);
    let spans = pod_trace(&pod, &observation(), &Options::default()).spans;
    let mut text = String::new();
    for span in &spans[..3] {
        let _ = writeln!(text, "{}", span.name);
        for a in span.attributes.iter().filter(|a| !a.key.as_str().contains(".stop.")) {
            let _ = writeln!(text, "  {}={}", a.key, a.value);
        }
    }
    expect![[r#"
        pod.termination ignored-stop-signal
          epitaph.sentence=container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later
          epitaph.remedy=use `exec` in the shell that starts the server, so that the server is PID 1
          epitaph.verdict=ignored-stop-signal
          epitaph.cause=deleted
          epitaph.exit=ignored-stop-signal
          epitaph.traffic=cut
          epitaph.unclean=true
          epitaph.severity=critical
          epitaph.advice=["accept-while-draining: 14 connections were refused in the 3.2 s after the listener closed"]
          epitaph.asked.evidence=deletionTimestamp
          epitaph.request.earliest=2023-11-14T23:36:37.600000000Z
          epitaph.request.latest=2023-11-14T23:36:37.900000000Z
          epitaph.request.grace=30
          epitaph.api_clock.ahead.least=-0.25
          epitaph.api_clock.ahead.most=0.05
          epitaph.containers=2
          epitaph.containers_unseen=1
          epitaph.connections.observed=true
          epitaph.connections.accepted=2
          epitaph.connections.refused=14
          epitaph.connections.refused_source=server-reset
          epitaph.connections.reset=1
          epitaph.connections.reset_queued=1
          epitaph.connections.cut=3
          epitaph.connections.cut_unanswered=3
          epitaph.connections.undecided=4
          epitaph.connections.idle_closed=5
          epitaph.connections.rejected=2
          epitaph.kubelet.known=true
          epitaph.kubelet.refused=3
          epitaph.gone.at=2023-11-14T23:37:12.000000000Z
          epitaph.gone.watched=true
          epitaph.incomplete=["the Kubernetes API did not answer for 4.0 s"]
        container.stop ignored-stop-signal
          epitaph.sentence=container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later
          epitaph.remedy=use `exec` in the shell that starts the server, so that the server is PID 1
          epitaph.verdict=ignored-stop-signal
          epitaph.cause=deleted
          epitaph.exit=ignored-stop-signal
          epitaph.traffic=cut
          epitaph.unclean=true
          epitaph.severity=critical
          epitaph.advice=["accept-while-draining: 14 connections were refused in the 3.2 s after the listener closed"]
          container.id=0000000000000000000000000000000000000000000000000000000000000008
          container.runtime.name=containerd
          epitaph.cgroup.path=/system.slice/cg-8
          k8s.container.name=app
          epitaph.container.kind=main
          container.image.name=registry.example:5000/shop/app
          container.image.tags=["1.4.2"]
          epitaph.grace=30
          epitaph.grace_left=0
          k8s.container.status.reason=Error
          process.pid=4242
          process.vpid=1
          process.executable.name=sh
          process.creation.time=2023-11-14T23:20:00.000000000Z
          epitaph.status.signal=SIGKILL
          epitaph.kill.sender.pid=900
          epitaph.kill.sender.comm=containerd-shim
          epitaph.kill.sender.role=runtime
          epitaph.other_exits=1
          epitaph.connections.observed=true
          epitaph.connections.accepted=2
          epitaph.connections.refused=14
          epitaph.connections.refused_source=server-reset
          epitaph.connections.reset=1
          epitaph.connections.reset_queued=1
          epitaph.connections.cut=3
          epitaph.connections.cut_unanswered=3
          epitaph.connections.undecided=4
          epitaph.connections.idle_closed=5
          epitaph.connections.rejected=2
          epitaph.kubelet.known=true
          epitaph.kubelet.refused=3
          epitaph.accepted.first_at=2023-11-14T23:36:40.003000000Z
          epitaph.accepted.last_at=2023-11-14T23:36:40.009000000Z
        preStop
          epitaph.prestop.hook=exec
          epitaph.prestop.program=/bin/drain
          epitaph.prestop.seen=true
          process.exit.code=7
          epitaph.prestop.failed=command '/bin/drain' exited with 7
    "#]].assert_eq(&text);
}

#[test]
fn parents_hold_their_children_in_every_pod() {
    let mut wide = pods::pod(8);
    wide.facts.begin = ms(29_000);
    wide.facts.end = ms(10);
    wide.containers[0].facts.traffic.cut.last = ms(30_900);
    for pod in [pods::pod(8), pods::evicted(9, PreStop::TcpSocket { port: None }), wide] {
        let spans = pod_trace(&pod, &observation(), &Options::default()).spans;
        for child in &spans[1..] {
            let parent = spans.iter().find(|s| s.span_context.span_id() == child.parent_span_id);
            let parent = parent.unwrap_or_else(|| panic!("{} is an orphan", child.name));
            assert!(parent.start_time <= child.start_time, "{} in {}", child.name, parent.name);
            assert!(parent.end_time >= child.end_time, "{} in {}", child.name, parent.name);
        }
        let ids: std::collections::HashSet<_> = spans.iter().map(|s| s.span_context.span_id()).collect();
        assert_eq!(ids.len(), spans.len(), "a span id twice");
        assert!(spans.iter().all(|s| s.span_context.is_sampled()));
    }
}

#[test]
fn the_roots_id_follows_from_the_pods_uid() {
    let pod = pods::pod(8);
    let root = &pod_trace(&pod, &observation(), &Options::default()).spans[0];
    let trace = id::pod_trace_id(&pod.pod.uid, None);
    assert_eq!(root.span_context.trace_id(), trace);
    assert_eq!(root.span_context.span_id(), id::pod_root(trace));
    let evicted = pods::evicted(9, PreStop::Sleep { seconds: 1 });
    let root = &pod_trace(&evicted, &observation(), &Options::default()).spans[0];
    let trace = id::pod_trace_id(&evicted.pod.cgroup_uid, Some(&observation().boot_id));
    assert_eq!(root.span_context.trace_id(), trace, "the boot is part of a static pod's id");
}

/// With and without the API's status, before and after a restart of the agent.
#[test]
fn a_restart_has_the_same_trace_with_and_without_the_api() {
    let known = pods::restarted(8);
    let mut unknown = known.clone();
    unknown.kubernetes = None;
    assert_eq!(id::of(&known), id::of(&unknown));
    let trace = trace(&known, &observation(), &Options::default());
    assert_eq!(trace.spans[0].name, "container.stop ignored-stop-signal");
    assert_eq!(trace.spans[0].parent_span_id, SpanId::INVALID);
    let instance = trace.resource.get(&key::SERVICE_INSTANCE_ID.into());
    assert_eq!(instance, Some("shop.cart-7d9f8b6c5-x2x4z.app".into()));
}

/// As by an agent that observes the end of the pod.
#[test]
fn a_container_reported_before_the_pods_end_is_in_the_pods_trace() {
    let pod = pods::pod(8);
    let ids = |spans: &[SpanData]| -> Vec<_> {
        let ids = spans.iter().map(|span| (span.span_context.clone(), span.parent_span_id));
        ids.collect()
    };
    let whole = pod_trace(&pod, &observation(), &Options::default()).spans;
    let mut left = pod.containers[0].clone();
    left.of_ending_pod = true;
    let alone = trace(&left, &observation(), &Options::default()).spans;
    assert_eq!(ids(&alone), ids(&whole[1..=alone.len()]));
    // The pod's span may never come.
    assert!(alone[0].attributes.iter().any(|a| a.key.as_str() == key::REQUEST_EARLIEST));
    let line = serde_json::to_value(json::termination(&left, &observation())).expect("an object");
    assert_eq!(line["trace_id"], whole[0].span_context.trace_id().to_string());
}

#[test]
fn a_configured_service_applies_to_all() {
    let options = Options {
        service_name: Some("epitaph".into()),
        ..Options::default()
    };
    let resource = pod_trace(&pods::pod(8), &observation(), &options).resource;
    let of = |key: &'static str| resource.get(&key.into()).map(|v| v.to_string());
    assert_eq!(of(key::SERVICE_NAME).as_deref(), Some("epitaph"));
    assert_eq!(of(key::SERVICE_VERSION), None);
    assert_eq!(of(key::K8S_POD_NAME).as_deref(), Some("cart-7d9f8b6c5-x2x4z"));
}

#[test]
fn images_as_specs_name_them() {
    let rendered = |image: &str| {
        let mut context = pods::context("app", epitaph_core::pod::ContainerKind::Main);
        context.image = Some(image.into());
        let trace = trace(&pods::in_pod(clean(1), context), &observation(), &Options::default());
        let image = trace.spans[0]
            .attributes
            .iter()
            .filter(|a| a.key.as_str().starts_with("container.image."));
        image.map(|a| a.value.to_string()).collect::<Vec<_>>().join(" ")
    };
    expect![[r#"
        app
        app ["1"]
        r:5000/app
        r:5000/a/app ["1"] ["r:5000/a/app@sha256:00"]
    "#]]
    .assert_eq(
        &["app", "app:1", "r:5000/app", "r:5000/a/app:1@sha256:00", ""]
            .map(rendered)
            .join("\n"),
    );
}

#[test]
fn texts_from_outside_are_bounded_and_escaped() {
    let mut pod = pods::pod(8);
    let mut context = (**pod.containers[0].kubernetes.as_ref().expect("a pod's")).clone();
    context.incomplete = Some(format!("\u{1b}[2J{}", "x".repeat(9_000)));
    pod.containers[0].kubernetes = Some(context.into());
    let root = pod_trace(&pod, &observation(), &Options::default()).spans.remove(0);
    let value = |key| {
        root.attributes
            .iter()
            .find(|a| a.key.as_str() == key)
            .map(|a| a.value.to_string())
    };
    let incomplete = value(key::INCOMPLETE).expect("the attribute");
    assert!(incomplete.len() < 600 && !incomplete.contains('\u{1b}'), "{incomplete}");
}

/// The root's attributes of the request are not on the containers' spans; a code that differs from the kernel's is.
#[test]
fn a_container_repeats_nothing_of_its_pod() {
    let mut pod = pods::pod(8);
    let context = Arc::make_mut(pod.containers[0].kubernetes.as_mut().expect("a pod's"));
    context.reported.as_mut().expect("a status").exit_code = 1;
    let of = |spans: &[SpanData], place: usize| {
        let keys = [
            key::ASKED_EVIDENCE,
            key::REQUEST_GRACE,
            key::REPORTED_EXIT_CODE,
            key::PRESTOP_HOOK,
        ];
        let attributes = &spans[place].attributes;
        keys.map(|key| attributes.iter().any(|a| a.key.as_str() == key))
    };
    let spans = pod_trace(&pod, &observation(), &Options::default()).spans;
    assert_eq!(of(&spans, 0), [true, true, false, false]);
    assert_eq!(of(&spans, 1), [false, false, true, false]);
    pod.facts.stop_reason.as_mut().expect("a cause").evidence = "status.reason".into();
    let spans = pod_trace(&pod, &observation(), &Options::default()).spans;
    assert_eq!(of(&spans, 1), [true, false, true, false], "another cause than the pod's");
}

#[test]
fn grace_left_at_the_exit() {
    let left = |exit: Option<u64>, grace: Option<u64>| {
        let mut t = pods::pod(8).containers.remove(0);
        t.facts.exit = exit.map(|millis| MainExit {
            at: ms(millis),
            status: ExitStatus::Exited(0),
        });
        Arc::make_mut(t.kubernetes.as_mut().expect("a pod's")).grace = grace.map(Duration::from_secs);
        let spans = trace(&t, &observation(), &Options::default()).spans;
        let found = spans[0].attributes.iter().find(|a| a.key.as_str() == key::GRACE_LEFT);
        found.map(|a| a.value.to_string())
    };
    // The request came 2.1 s before the stop signal.
    assert_eq!(left(Some(10_000), Some(30)).as_deref(), Some("17.9"));
    assert_eq!(left(Some(30_002), Some(30)).as_deref(), Some("0"), "all used");
    assert_eq!(left(Some(10_000), None), None);
    assert_eq!(left(None, Some(30)), None, "the exit was not seen");
}

#[test]
fn the_pod_of_a_killer_is_named() {
    let killed = trace(&pods::killed_by_a_pod(8), &observation(), &Options::default());
    let of = |key: &str| {
        let found = killed.spans[0].attributes.iter().find(|a| a.key.as_str() == key);
        found.map(|a| a.value.to_string()).unwrap_or_default()
    };
    for [pod, container] in [
        [key::STOP_SENDER_POD, key::STOP_SENDER_CONTAINER],
        [key::KILL_SENDER_POD, key::KILL_SENDER_CONTAINER],
    ] {
        assert_eq!([of(pod), of(container)], ["shop/killer", "cron"]);
    }
    let line = serde_json::to_value(json::termination(&pods::killed_by_a_pod(8), &observation())).expect("an object");
    let expected = serde_json::json!({"namespace": "shop", "name": "killer", "container": "cron"});
    assert_eq!(
        (&line["stop"]["sender"]["pod"], &line["kill"]["sender"]["pod"]),
        (&expected, &expected)
    );
}

/// A stop signal that another sender sent before is not related to the hook.
#[test]
fn a_hook_does_not_end_with_another_senders_stop_signal() {
    let mut pod = pods::pod(8);
    let before = pod.begin.minus(Duration::from_secs(1));
    let app = &mut pod.containers[0];
    let stop = app.facts.stop.as_mut().expect("a stop");
    stop.sender.role = Role::Other;
    stop.at = before;
    let context = Arc::make_mut(app.kubernetes.as_mut().expect("a pod's"));
    context.pre_stop.as_mut().expect("a hook").end = None;
    let end = app.end;
    let spans = pod_trace(&pod, &observation(), &Options::default()).spans;
    let hook = spans.iter().find(|span| span.name == "preStop").expect("a hook");
    let end = UNIX_EPOCH + Duration::from_nanos(observation().wall_offset.wall(end).0);
    assert_eq!(hook.end_time, end);
    assert!(hook.start_time < end);
}
