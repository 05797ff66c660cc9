use std::sync::Arc;

use epitaph_core::fixtures::shutdowns;
use epitaph_core::fixtures::{pods, sample};
use epitaph_core::render::id;
use epitaph_core::report::NodeShutdown;
use epitaph_core::shutdown::{EndedByShutdown, Ending};
use expect_test::expect;
use opentelemetry_sdk::trace::SpanData;

use super::text_of;
use crate::render::span::{Options, Trace, node_down, node_trace, pod_trace, trace};

/// Traces with every attribute of the node.
pub(super) fn traces() -> Vec<Trace> {
    let options = Options {
        cluster_name: Some("prod".into()),
        ..Options::default()
    };
    vec![
        node_trace(&shutdowns::truncated(), &options),
        node_trace(&shutdowns::lossy(), &options),
        node_trace(&shutdowns::spoofed(), &options),
        node_trace(&shutdowns::hostile("x\u{1b}[2J"), &options),
        node_trace(&left(), &options),
        node_trace(&with_a_static_pod(), &options),
        node_down(
            &epitaph_core::shutdown::NodeDown {
                is_soft: true,
                at_most: true,
                ..shutdowns::down()
            },
            &options,
        ),
    ]
}

/// The agent ended in order, with the pods of the last phase.
fn left() -> NodeShutdown {
    let mut of = shutdowns::truncated();
    of.facts.ending = Ending::AgentEnded;
    of.facts.signs.job = None;
    of.facts.signs.stopping = None;
    of.facts.logind.delay.as_mut().expect("a delay").end = None;
    of.facts.phases[1].at_least = true;
    of
}

/// Of its two pods, the first is static.
fn with_a_static_pod() -> NodeShutdown {
    let mut of = shutdowns::truncated();
    Arc::make_mut(&mut of.facts.pods[0].pod).is_static = true;
    of
}

#[test]
fn a_shutdown_links_only_to_traces_that_follow() {
    let links = |of: &NodeShutdown, unclean_only: bool| -> (Vec<String>, Vec<String>) {
        let options = Options {
            unclean_only,
            ..Options::default()
        };
        let spans = node_trace(of, &options).spans;
        let linked = spans.iter().flat_map(|span| &span.links.links);
        let linked = linked.map(|link| link.attributes[0].value.to_string()).collect();
        let attributes = spans.iter().flat_map(|span| &span.attributes);
        let unlinked = attributes.filter(|a| a.key.as_str() == "epitaph.shutdown.pods_unlinked");
        (linked, unlinked.map(|a| a.value.to_string()).collect())
    };
    let (dns, cart) = ("kube-system/dns-x2x1z".to_owned(), "shop/cart-7d9f8b6c5-x2x4z".to_owned());
    let named = |pod: &String| format!("[\"{pod}\"]");
    let mut both = links(&shutdowns::truncated(), false);
    both.0.sort();
    assert_eq!(both, (vec![dns.clone(), cart.clone()], vec![]));
    assert_eq!(links(&with_a_static_pod(), false), (vec![cart.clone()], vec![named(&dns)]));
    // The shutdown killed the other one.
    assert_eq!(links(&shutdowns::truncated(), true), (vec![cart], vec![named(&dns)]));
}

#[test]
fn spans_that_outlast_the_agent_are_marked() {
    let marked = |of: &NodeShutdown| -> Vec<String> {
        let spans = node_trace(of, &Options::default()).spans.into_iter();
        let is_marked = |span: &SpanData| span.attributes.iter().any(|a| a.key.as_str() == "epitaph.at_least");
        spans.filter(is_marked).map(|span| span.name.into_owned()).collect()
    };
    assert_eq!(marked(&shutdowns::truncated()), <[&str; 0]>::default());
    let of = marked(&left());
    assert!(
        of.contains(&"logind.delay".to_owned()) && of.contains(&"kubelet.phase".to_owned()),
        "{of:?}"
    );
    // systemd has just begun to stop the services, and stops the agent with them.
    let mut stopped = shutdowns::truncated();
    stopped.facts.ending = Ending::AgentEnded;
    stopped.facts.signs.terminated = None;
    assert_eq!(marked(&stopped), ["services.stop"]);
    // The next cases to it: a power cut ended them, and the machine continued.
    stopped.facts.ending = shutdowns::truncated().ending;
    assert!(stopped.was_cut_off());
    assert_eq!(marked(&stopped), <[&str; 0]>::default());
    stopped.facts.gaps.agent_ended = true;
    assert_eq!(marked(&stopped), ["services.stop"]);
    stopped.facts.ending = Ending::Continued;
    assert_eq!(marked(&stopped), <[&str; 0]>::default());
}

#[test]
fn a_shutdown_with_its_delay_locks_and_phases() {
    let of = shutdowns::truncated();
    let trace = node_trace(&of, &Options::default());
    expect![[r#"
        resource epitaph.boot_id=5ad5ae73-41a8-4a0c-8b5c-3a1c2b0e0f11 host.name=node-7 os.type=linux service.instance.id=node-7 service.name=epitaph
        node.shutdown truncated < -: 0..64000 Error { description: "the reboot did not wait for the shutdown of 1 of 2 pods: shop/cart-7d9f8b6c5-x2x4z (had 40.0 s of its 120 s) (normal phase took 40.0 s of 40 s, critical phase took 2.0 s of 20 s); logind's delay of 60 s expired before the kubelet released its lock; at least 2 pods stayed Ready in the API until the node was back, and a Service sends clients to Ready pods" }
          epitaph.verdict=truncated
          epitaph.unclean=true
          epitaph.severity=critical
          epitaph.sentence=the reboot did not wait for the shutdown of 1 of 2 pods: shop/cart-7d9f8b6c5-x2x4z (had 40.0 s of its 120 s) (normal phase took 40.0 s of 40 s, critical phase took 2.0 s of 20 s); logind's delay of 60 s expired before the kubelet released its lock; at least 2 pods stayed Ready in the API until the node was back, and a Service sends clients to Ready pods
          epitaph.remedy=raise shutdownGracePeriod to 140 s, and logind's InhibitDelayMaxSec to at least 140 s, or shorten the shutdown of shop/cart-7d9f8b6c5-x2x4z, which may take 120 s
          epitaph.shutdown.ordinal=1
          epitaph.shutdown.kind=reboot
          epitaph.shutdown.announcement=PrepareForShutdown
          epitaph.shutdown.ending=down
          epitaph.shutdown.scheduled_for=2023-11-14T23:36:40.000000000Z
          epitaph.shutdown.own_lock=released
          epitaph.shutdown.kubelet_lock=held
          epitaph.shutdown.kubelet_period=60
          epitaph.shutdown.kubelet_start=2023-11-14T23:36:40.010000000Z
          epitaph.shutdown.pods=2
          epitaph.shutdown.pods_ended=2
          epitaph.shutdown.pods_cut=1
          epitaph.shutdown.pods_ready=2
          @0 prepare-for-shutdown 
          @60000 job epitaph.unit.name=reboot.target
          @60050 stopping 
          @63000 SIGTERM to all 
        logind.delay < node.shutdown truncated: 0..60000 Error { description: "the delay expired while a lock was held" }
          epitaph.delay.expired=true
          epitaph.delay.limit=60
        inhibitor < node.shutdown truncated: 0..60000 Unset
          epitaph.lock.who=kubelet
          epitaph.lock.why=kubelet needs time to handle node shutdown
          epitaph.lock.what=shutdown
          epitaph.lock.mode=delay
          process.pid=812
          epitaph.lock.uid=0
          epitaph.lock.outlasted=true
        inhibitor < node.shutdown truncated: 0..58000 Unset
          epitaph.lock.who=epitaph
          epitaph.lock.why=epitaph needs time to handle node shutdown
          epitaph.lock.what=shutdown
          epitaph.lock.mode=delay
          process.pid=900
          epitaph.lock.uid=0
        kubelet.phase < node.shutdown truncated: 0..40000 Error { description: "pods still ran when the period of the phase was over" }
          epitaph.phase.priority=0
          epitaph.phase.period=40
          epitaph.shutdown.pods=1
          epitaph.shutdown.pods_cut=1
        kubelet.phase < node.shutdown truncated: 40000..42000 Unset
          epitaph.phase.priority=2000000000
          epitaph.phase.period=20
          epitaph.shutdown.pods=1
        services.stop < node.shutdown truncated: 60000..64000 Unset
    "#]].assert_eq(&text_of(&trace, of.begin, true));
}

#[test]
fn what_clients_lost_is_on_the_root() {
    let trace = node_trace(&shutdowns::lossy(), &Options::default());
    let text = text_of(&trace, shutdowns::lossy().begin, true);
    for line in [
        "epitaph.shutdown.pods_started=[\"shop/cart-7d9f8b6c5-x2x4z\"]",
        "epitaph.shutdown.clients.lost=12",
        // The other pod's sockets were not observed.
        "epitaph.shutdown.clients.at_least=true",
        "epitaph.shutdown.clients.undecided=1",
        "epitaph.shutdown.clients.workloads=[\"Deployment shop/cart: 10 refused, 0 reset, 2 cut\"]",
        "epitaph.shutdown.still_ready=40.3",
    ] {
        assert!(text.contains(line), "no {line} in {text}");
    }
}

#[test]
fn a_spoofed_signal_has_its_sender() {
    let of = shutdowns::spoofed();
    let trace = node_trace(&of, &Options::default());
    expect![[r#"
        resource epitaph.boot_id=5ad5ae73-41a8-4a0c-8b5c-3a1c2b0e0f11 host.name=node-7 os.type=linux service.instance.id=node-7 service.name=epitaph
        node.shutdown spoofed < -: 0..64000 Error { description: ":1.42 (pid 4711, `gdbus`, session-3.scope) sent PrepareForShutdown 2 times, which only logind may send; the node stayed up; the kubelet acted on it: 2 of 2 pods terminated" }
          @0 spoofed epitaph.spoof.bus_name=:1.42 process.pid=4711 process.executable.name=gdbus epitaph.unit.name=session-3.scope
        inhibitor < node.shutdown spoofed: 0..64000 Unset
        inhibitor < node.shutdown spoofed: 0..58000 Unset
        kubelet.phase < node.shutdown spoofed: 0..40000 Error { description: "pods still ran when the period of the phase was over" }
        kubelet.phase < node.shutdown spoofed: 40000..42000 Unset
    "#]].assert_eq(&text_of(&trace, of.begin, false));
}

/// A child of a root that was exported before the node went down.
#[test]
fn the_time_down_is_a_later_child() {
    let of = shutdowns::truncated();
    let root = node_trace(&of, &Options::default());
    let down = node_down(&shutdowns::down(), &Options::default());
    assert_eq!(down.spans.len(), 1);
    assert_eq!(down.spans[0].parent_span_id, root.spans[0].span_context.span_id());
    assert_eq!(down.spans[0].span_context.trace_id(), root.spans[0].span_context.trace_id());
}

#[test]
fn the_shutdown_and_its_pods_link_to_each_other() {
    let of = shutdowns::truncated();
    let node = node_trace(&of, &Options::default());
    let root = node.spans[0].span_context.clone();
    let by = Some(EndedByShutdown {
        key: shutdowns::key(),
        begin: of.begin,
        evidence: "PrepareForShutdown",
        ran_at: None,
    });
    let mut pod = pods::pod(1);
    pod.facts.shutdown = by.clone();
    let observation = epitaph_core::fixtures::terminations::observation();
    let pod = pod_trace(&pod, &observation, &Options::default());
    let back = &pod.spans[0].links.links[0].span_context;
    assert_eq!((back.trace_id(), back.span_id()), (root.trace_id(), root.span_id()));
    let links: Vec<_> = node
        .spans
        .iter()
        .flat_map(|span| &span.links.links)
        .map(|link| &link.span_context)
        .collect();
    let to = pod.spans[0].span_context.trace_id();
    assert!(
        links
            .iter()
            .any(|link| link.trace_id() == to && link.span_id() == id::pod_root(to))
    );

    let mut alone = sample::ignored();
    alone.facts.shutdown = by;
    let alone = trace(&alone, &observation, &Options::default());
    assert_eq!(alone.spans[0].links.links[0].span_context.trace_id(), root.trace_id());
}

/// Spans of one kind have different ids.
#[test]
fn every_span_has_an_id_of_its_own() {
    for trace in traces() {
        let ids: std::collections::HashSet<_> = trace.spans.iter().map(|span| span.span_context.span_id()).collect();
        assert_eq!(ids.len(), trace.spans.len());
    }
}

#[test]
fn the_trace_names_the_kubernetes_node_where_the_machine_is_one() {
    let name = |node: Option<&str>| {
        let options = Options {
            node_name: node.map(str::to_owned),
            ..Options::default()
        };
        let trace = node_trace(&shutdowns::truncated(), &options);
        let key = opentelemetry::Key::from_static_str("k8s.node.name");
        trace.resource.get(&key).map(|value| value.to_string())
    };
    assert_eq!(name(Some("node-7")).as_deref(), Some("node-7"));
    // The report is of a boot in which the agent did not know of Kubernetes.
    assert_eq!((name(Some("another")), name(None)), (None, None));
}
