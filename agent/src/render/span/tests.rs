mod evidence;
mod listeners;
mod lost;
mod node;
mod observer;
mod pods;
mod timelines;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use epitaph_core::container::ContainerFact;
use epitaph_core::event::ExitStatus;
use epitaph_core::fixtures::pods as fixtures;
use epitaph_core::fixtures::sample;
use epitaph_core::fixtures::terminations::{clean, ignored, ms, observation, oom};
use epitaph_core::ids::Signal;
use epitaph_core::kubernetes::Asker;
use epitaph_core::pod::PreStop;
use epitaph_core::termination::{ClientPeer, ClientPeers, Count, PeerPlace};
use epitaph_core::verdict::{Cause, Disagreement, Said, Was};
use expect_test::{Expect, expect};
use opentelemetry::{Array, Value};

use super::resource::SCHEMA_URL;
use super::*;
use crate::render::attributes::{ATTRIBUTES, On, Type, key};

/// The whole trace as text: times in ms after the begin.
fn check(termination: &Termination, expected: Expect) {
    let trace = trace(termination, &observation(), &Options::default());
    expected.assert_eq(&text_of(&trace, termination.begin, true));
}

fn text_of(trace: &Trace, begin: Boot, attributes: bool) -> String {
    let zero = UNIX_EPOCH + Duration::from_nanos(observation().wall_offset.wall(begin).0);
    let after = |at: SystemTime| match at.duration_since(zero) {
        Ok(later) => format!("{}", later.as_millis()),
        Err(earlier) => format!("-{}", earlier.duration().as_millis()),
    };
    let mut text = String::new();
    let mut resource: Vec<_> = trace.resource.iter().map(|(k, v)| format!("{k}={v}")).collect();
    resource.sort();
    resource.retain(|line| !line.starts_with("telemetry."));
    let _ = writeln!(text, "resource {}", resource.join(" "));
    for span in &trace.spans {
        let parent = trace.spans.iter().find(|p| p.span_context.span_id() == span.parent_span_id);
        let parent = parent.map_or("-", |p| p.name.as_ref());
        let _ = writeln!(
            text,
            "{} < {parent}: {}..{} {:?}",
            span.name,
            after(span.start_time),
            after(span.end_time),
            span.status
        );
        for a in span.attributes.iter().filter(|_| attributes) {
            let _ = writeln!(text, "  {}={}", a.key, a.value);
        }
        for event in &span.events.events {
            let attributes: Vec<_> = event.attributes.iter().map(|a| format!("{}={}", a.key, a.value)).collect();
            let _ = writeln!(text, "  @{} {} {}", after(event.timestamp), event.name, attributes.join(" "));
        }
    }
    text
}

#[test]
fn a_clean_stop() {
    check(
        &clean(7),
        expect![[r#"
            resource epitaph.boot_id=5ad5ae73-41a8-4a0c-8b5c-3a1c2b0e0f11 host.name=node-7 os.type=linux service.instance.id=0000000000000000000000000000000000000000000000000000000000000007 service.name=epitaph
            container.stop clean < -: 0..250 Unset
              epitaph.sentence=The container runtime sent SIGTERM to PID 1 `sh`, the handler ran, and the process exited with code 0, 250 ms later
              epitaph.verdict=clean
              epitaph.cause=stopped
              epitaph.exit=clean
              epitaph.traffic=quiet
              epitaph.severity=info
              container.id=0000000000000000000000000000000000000000000000000000000000000007
              container.runtime.name=containerd
              epitaph.cgroup.path=/system.slice/cg-7
              process.pid=4242
              process.vpid=1
              process.executable.name=sh
              process.creation.time=2023-11-14T23:20:00.000000000Z
              process.exit.code=0
              epitaph.stop.signal=SIGTERM
              epitaph.stop.result=delivered
              epitaph.stop.disposition=handler
              epitaph.stop.sender.pid=900
              epitaph.stop.sender.comm=containerd-shim
              epitaph.stop.sender.role=runtime
              epitaph.connections.observed=true
              @1 handler.entered 
            SIGTERM → exit < container.stop clean: 0..250 Unset
        "#]],
    );
}

#[test]
fn an_ignored_stop_signal_with_every_kind_of_traffic() {
    check(
        &ignored(8),
        expect![[r#"
            resource epitaph.boot_id=5ad5ae73-41a8-4a0c-8b5c-3a1c2b0e0f11 host.name=node-7 os.type=linux service.instance.id=0000000000000000000000000000000000000000000000000000000000000008 service.name=epitaph
            container.stop ignored-stop-signal < -: 0..30002 Error { description: "`sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later" }
              epitaph.sentence=`sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later
              epitaph.remedy=use `exec` in the shell that starts the server, so that the server is PID 1
              epitaph.verdict=ignored-stop-signal
              epitaph.cause=stopped
              epitaph.exit=ignored-stop-signal
              epitaph.traffic=cut
              epitaph.unclean=true
              epitaph.severity=critical
              container.id=0000000000000000000000000000000000000000000000000000000000000008
              container.runtime.name=containerd
              epitaph.cgroup.path=/system.slice/cg-8
              process.pid=4242
              process.vpid=1
              process.executable.name=sh
              process.creation.time=2023-11-14T23:20:00.000000000Z
              epitaph.status.signal=SIGKILL
              epitaph.stop.signal=SIGTERM
              epitaph.stop.result=ignored
              epitaph.stop.disposition=default
              epitaph.stop.repeated=1
              epitaph.stop.sender.pid=900
              epitaph.stop.sender.comm=containerd-shim
              epitaph.stop.sender.role=runtime
              epitaph.kill.sender.pid=900
              epitaph.kill.sender.comm=containerd-shim
              epitaph.kill.sender.role=runtime
              epitaph.other_exits=1
              epitaph.connections.observed=true
              epitaph.connections.accepted=2
              epitaph.connections.refused=14
              epitaph.connections.refused_source=server-reset
              epitaph.connections.reset=1
              epitaph.connections.cut=3
              epitaph.connections.cut_unanswered=3
              epitaph.connections.undecided=4
              epitaph.connections.idle_closed=5
              epitaph.accepted.first_at=2023-11-14T23:36:40.003000000Z
              epitaph.accepted.last_at=2023-11-14T23:36:40.009000000Z
              @0 stop-signal-ignored 
              @40 listener.closed server.address=10.0.0.7 server.port=8080 network.transport=tcp
              @30000 SIGKILL 
            SIGTERM → exit < container.stop ignored-stop-signal: 0..30002 Unset
            refused connections < container.stop ignored-stop-signal: 41..3241 Unset
              epitaph.connections.refused=14
              epitaph.connections.refused_source=server-reset
              network.transport=tcp
            reset connections < container.stop ignored-stop-signal: 30001..30001 Unset
              epitaph.connections.reset=1
              network.transport=tcp
            cut connections < container.stop ignored-stop-signal: 30001..30002 Unset
              epitaph.connections.cut=3
              epitaph.connections.cut_unanswered=3
              network.transport=tcp
            listener closed → exit < container.stop ignored-stop-signal: 40..30002 Unset
              server.port=8080
              network.transport=tcp
        "#]],
    );
}

#[test]
fn an_oom_kill_of_a_unit_with_gaps() {
    check(
        &oom(9),
        expect![[r#"
            resource epitaph.boot_id=5ad5ae73-41a8-4a0c-8b5c-3a1c2b0e0f11 host.name=node-7 os.type=linux service.instance.id=hungry.service service.name=epitaph
            unit.stop oom-killed < -: 0..250 Error { description: "The OOM killer killed `sh` (pid 4242) because memory ran out" }
              epitaph.sentence=The OOM killer killed `sh` (pid 4242) because memory ran out
              epitaph.verdict=oom-killed
              epitaph.cause=oom
              epitaph.exit=oom-killed
              epitaph.traffic=unknown
              epitaph.unclean=true
              epitaph.severity=critical
              epitaph.unit.name=hungry.service
              epitaph.cgroup.path=/system.slice/cg-9
              process.pid=4242
              process.vpid=4242
              process.executable.name=sh
              process.creation.time=2023-11-14T23:20:00.000000000Z
              epitaph.status.signal=SIGKILL
              epitaph.oom.killed=1
              epitaph.lost=["tcp=3"]
              epitaph.late_start=true
              epitaph.clock.step=12.5
              epitaph.inactive_probes=["tcp_send_reset"]
              @0 oom process.pid=4242 process.executable.name=sh\u{1b}[2J epitaph.oom.main=true epitaph.oom.role=main
              @100 unobserved epitaph.unobserved.duration=0.1
        "#]],
    );
}

fn is_of(value: &Value, expected: Type) -> bool {
    matches!(
        (value, expected),
        (Value::String(_), Type::String)
            | (Value::Array(Array::String(_)), Type::Strings)
            | (Value::I64(_), Type::Int)
            | (Value::F64(_), Type::Double)
            | (Value::Bool(_), Type::Bool)
    )
}

#[test]
fn every_attribute_is_in_the_table_and_of_its_type() {
    let mut seen = std::collections::BTreeSet::new();
    let mut frozen = clean(4);
    frozen.facts.stop.as_mut().expect("a stop").state.frozen = true;
    frozen.facts.gaps.over_cap = 1;
    let mut pod_with_rare_facts = fixtures::pod(8);
    pod_with_rare_facts.containers[0] = with_rare_facts(pod_with_rare_facts.containers.remove(0));
    let request = pod_with_rare_facts.facts.request.as_mut().expect("a request");
    (request.spec_grace, request.asker) = (Some(Duration::from_secs(60)), Some(Asker::Karpenter));
    pod_with_rare_facts.containers[0].verdict.disagreement = Some(Disagreement {
        said: Said::OomKilled,
        was: Was::Exit0,
        status: "OOMKilled".into(),
        kernel: "exited with 0 at SIGTERM".into(),
    });
    let mut backwards = clean(5);
    backwards.facts.end = backwards.begin.minus(Duration::from_millis(5));
    let cluster = Options {
        cluster_name: Some("staging".into()),
        ..Options::default()
    };
    let own = [
        clean(1),
        ignored(2),
        oom(3),
        frozen,
        backwards,
        fixtures::restarted(4),
        fixtures::killed_by_a_pod(5),
    ];
    let mut traces: Vec<Trace> = own.iter().map(|t| trace(t, &observation(), &cluster)).collect();
    let mut whole = vec![
        fixtures::pod(5),
        pod_with_rare_facts,
        fixtures::evicted(6, PreStop::Sleep { seconds: 5 }),
        fixtures::evicted(7, PreStop::HttpGet { port: Some(8080) }),
    ];
    for (kind, through) in [
        ("StatefulSet", None),
        ("DaemonSet", None),
        ("CronJob", Some("Job")),
        ("Pod", None),
    ] {
        let mut pod = fixtures::pod(8);
        pod.facts.pod = fixtures::identity_of(kind, through);
        whole.push(pod);
    }
    traces.extend(whole.iter().map(|p| pod_trace(p, &observation(), &cluster)));
    traces.extend(lost::traces(&cluster));
    traces.extend(observer::traces(&cluster));
    traces.extend(node::traces());
    for trace in traces {
        let on_spans = trace.spans.iter().flat_map(|s| {
            let events = s.events.iter().flat_map(|e| &e.attributes);
            let links = s.links.iter().flat_map(|link| &link.attributes);
            s.attributes.iter().chain(events).chain(links)
        });
        let mut all: Vec<(On, String, Value)> = on_spans.map(|a| (On::Span, a.key.to_string(), a.value.clone())).collect();
        all.extend(trace.resource.iter().map(|(k, v)| (On::Resource, k.to_string(), v.clone())));
        for (on, key, value) in all {
            let row = ATTRIBUTES
                .iter()
                .find(|a| a.key == key && a.on == on)
                .unwrap_or_else(|| panic!("{key} on {on:?} is in no row"));
            assert!(is_of(&value, row.value), "{key} is not a {}", row.value.name());
            seen.insert(key);
        }
    }
    // Every row of the table is used by some termination.
    let idle: Vec<_> = ATTRIBUTES.iter().map(|a| a.key).filter(|k| !seen.contains(*k)).collect();
    assert_eq!(idle, Vec::<&str>::new(), "rows that these terminations do not reach");
}

/// Adds facts that are 0 or false in the other fixtures.
fn with_rare_facts(mut t: Termination) -> Termination {
    let one = Count {
        count: 1,
        first: ms(20),
        last: ms(20),
    };
    t.facts.traffic.kubelet.accepted = one;
    t.facts.traffic.kubelet.broken = one;
    t.facts.traffic.refused.known = one;
    t.facts.traffic.peers = peers();
    t.facts.traffic.unseen.other_sockets = true;
    t.facts.traffic.since = Some(ms(10));
    t.facts.traffic.listeners[0].by_exit = true;
    t.facts.kill.as_mut().expect("a kill").cgroup_kill = true;
    t.facts.exit.as_mut().expect("an exit").status = ExitStatus::Signaled {
        signal: Signal::ABRT,
        core_dumped: true,
    };
    t.facts.container = Some(Arc::new(ContainerFact {
        command: vec!["shop".into(), "--port=80".into()],
        sandbox: true,
        ..sample::described()
    }));
    t.verdict.cause = Cause::Crash;
    t.verdict.evidence = vec![evidence::fault(ms(29_000))];
    let context = Arc::make_mut(t.kubernetes.as_mut().expect("a pod's"));
    context.stop_reason.as_mut().expect("a cause").evidence = "Event Killing".into();
    // A hook with an unknown begin.
    context.pre_stop.as_mut().expect("a hook").begin = None;
    t
}

/// A client, a scanner in a pod of this node, and one more.
fn peers() -> ClientPeers {
    let peer = |address: &str, place, had_connected, refused| ClientPeer {
        address: address.parse().expect("an address"),
        place,
        had_connected,
        refused,
        reset: u64::from(had_connected),
        cut: 0,
    };
    ClientPeers {
        top: vec![
            peer("10.0.0.9", PeerPlace::Elsewhere, true, 1),
            peer("10.0.0.10", PeerPlace::Pod(fixtures::identity()), false, 12),
        ],
        more: 1,
        known: 2,
        known_once: 0,
        connections: 30,
        new: 2,
        is_complete: true,
    }
}

#[test]
fn a_client_has_a_line_with_its_place_and_its_losses() {
    let mut t = ignored(2);
    t.facts.traffic.refused.known.count = 1;
    t.facts.traffic.peers = peers();
    let spans = trace(&t, &observation(), &Options::default()).spans;
    let of = |name: &str| {
        let found = spans[0].attributes.iter().find(|a| a.key.as_str() == name);
        found.map(|a| a.value.to_string()).unwrap_or_default()
    };
    expect_test::expect![[r#"
        ["10.0.0.9 elsewhere: 1 refused, 1 reset","10.0.0.10 pod shop/cart-7d9f8b6c5-x2x4z: 12 refused, new"]
        more 1, refused of new peers 13"#]]
    .assert_eq(&format!(
        "{}\nmore {}, refused of new peers {}",
        of(key::CONNECTIONS_PEERS),
        of(key::CONNECTIONS_PEERS_MORE),
        of(key::CONNECTIONS_REFUSED_NEW_PEERS)
    ));
}

/// A missing count means 0 only if the sockets were observed.
#[test]
fn an_unobserved_count_differs_from_a_count_of_0() {
    let counts = |t: &Termination| -> Vec<String> {
        let spans = trace(t, &observation(), &Options::default()).spans;
        let keys = spans[0].attributes.iter().map(|a| a.key.to_string());
        keys.filter(|key| key.starts_with("epitaph.connections.")).collect()
    };
    let mut t = clean(7);
    assert_eq!(counts(&t), [key::CONNECTIONS_OBSERVED]);
    t.facts.traffic.since = Some(ms(0));
    assert_eq!(counts(&t), [key::CONNECTIONS_OBSERVED], "from the stop signal on");
    t.facts.traffic.since = Some(ms(5));
    assert_eq!(counts(&t), [key::CONNECTIONS_OBSERVED, key::CONNECTIONS_SINCE]);
    t.facts.traffic.observed = false;
    assert_eq!(counts(&t), [""; 0]);
}

#[test]
fn the_verdict_in_a_name_changes_no_id() {
    let pod = fixtures::pod(8);
    let spans = pod_trace(&pod, &observation(), &Options::default()).spans;
    let trace = spans[0].span_context.trace_id();
    let root = (spans[0].name.as_ref(), spans[0].span_context.span_id());
    assert_eq!(root, ("pod.termination ignored-stop-signal", id::pod_root(trace)));
    let app = container(&pod.containers[0]).expect("a container's");
    let app = id::container_span_id(trace, "container.stop", app);
    let stop = (spans[1].name.as_ref(), spans[1].span_context.span_id());
    assert_eq!(stop, ("container.stop ignored-stop-signal", app));
    let alone = super::trace(&oom(9), &observation(), &Options::default()).spans;
    let of_unit = id::span_id(id::of(&oom(9)), "unit.stop", 0);
    let unit = (alone[0].name.as_ref(), alone[0].span_context.span_id());
    assert_eq!(unit, ("unit.stop oom-killed", of_unit));
}

#[test]
fn spans_are_sampled_distinct_and_in_the_terminations_trace() {
    let t = ignored(8);
    let spans = trace(&t, &observation(), &Options::default()).spans;
    assert_eq!(spans.len(), 6);
    let ids: std::collections::HashSet<_> = spans.iter().map(|s| s.span_context.span_id()).collect();
    assert_eq!(ids.len(), spans.len());
    assert!(
        spans
            .iter()
            .all(|s| s.span_context.is_sampled() && s.span_context.trace_id() == id::of(&t))
    );
}

#[test]
fn rendering_again_gives_the_same() {
    let (options, o) = (Options::default(), observation());
    assert_eq!(trace(&ignored(8), &o, &options), trace(&ignored(8), &o, &options));
}

#[test]
fn configured_attributes_do_not_replace_ours() {
    let configured = [
        ("deployment.environment.name", "prod"),
        ("service.name", "shop"),
        ("service.instance.id", "1"),
        ("host.name", "elsewhere"),
    ];
    let options = Options {
        resource_attributes: configured.map(|(k, v)| (k.into(), v.into())).into(),
        ..Options::default()
    };
    let resource = trace(&clean(7), &observation(), &options).resource;
    let of = |key: &'static str| resource.get(&key.into()).map(|v| v.to_string());
    assert_eq!(of("deployment.environment.name").as_deref(), Some("prod"));
    let plain = trace(&clean(7), &observation(), &Options::default()).resource;
    assert_eq!(resource.len(), plain.len() + 1);
    assert!(plain.iter().all(|(k, v)| resource.get_ref(k) == Some(v)));
    assert_eq!(resource.schema_url(), Some(SCHEMA_URL));
}

#[test]
fn a_span_never_ends_before_it_begins() {
    let mut t = clean(7);
    t.facts.end = t.begin.minus(Duration::from_millis(5));
    let spans = trace(&t, &observation(), &Options::default()).spans;
    assert!(spans.iter().all(|s| s.end_time >= s.start_time));
    let apart = |s: &SpanData| s.attributes.iter().any(|a| a.key.as_str() == key::ENDED_BEFORE_BEGIN);
    assert!(apart(&spans[0]), "{:?}", spans[0]);
    let whole = trace(&clean(7), &observation(), &Options::default()).spans;
    assert!(!whole.iter().any(apart));
}

#[test]
fn options_set_the_service_and_omit_clean_terminations() {
    let options = Options {
        service_name: Some("graveyard".into()),
        unclean_only: true,
        ..Options::default()
    };
    assert!(options.wants(&ignored(1).verdict) && !options.wants(&clean(1).verdict));
    assert!(Options::default().wants(&clean(1).verdict));
    let name = trace(&ignored(1), &observation(), &options)
        .resource
        .get(&key::SERVICE_NAME.into());
    assert_eq!(name, Some("graveyard".into()));
}

#[test]
fn the_root_covers_spans_that_end_after_the_process() {
    let mut t = ignored(8);
    t.facts.traffic.cut.last = ms(30_250);
    let trace = trace(&t, &observation(), &Options::default());
    let end = |name: &str| trace.spans.iter().find(|s| s.name == name).map(|s| s.end_time);
    let stop = "container.stop ignored-stop-signal";
    assert!(end(stop).is_some());
    assert_eq!(end(stop), end("cut connections"));
    assert!(end("SIGTERM → exit") < end(stop));
}
