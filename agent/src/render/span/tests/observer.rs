use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epitaph_core::fixtures::pods as fixtures;
use epitaph_core::fixtures::terminations::observation;
use epitaph_core::observe::{EndpointRemoval, Moment, Replacement, Rule};
use epitaph_core::pod::ApiClock;
use epitaph_core::render::id;
use epitaph_core::time::{Boot, WallOffset};
use expect_test::expect;

use super::text_of;
use crate::render::attributes::key;
use crate::render::span::{Options, Trace, add_clock_step, removal, replacement};

const BEGIN: Boot = Boot(3_600_000_000_000);
const MEASURED: Option<ApiClock> = Some(ApiClock {
    earliest: -250_000_000,
    latest: 50_000_000,
});

fn at(millis: u64) -> Moment {
    Moment {
        at: BEGIN.plus(Duration::from_millis(millis)),
        gap: None,
    }
}

fn left(service: &str) -> EndpointRemoval {
    EndpointRemoval {
        pod: fixtures::identity(),
        service: service.into(),
        ports: ["http/TCP:8080".to_owned()].into(),
        address_types: vec!["IPv4".into(), "IPv6".into()],
        ended: at(0),
        begin: at(0),
        end: at(2400),
        terminating: Some(at(0)),
        not_ready: Some(at(0)),
        not_serving: Some(at(1900)),
        all_terminating: None,
        publish_not_ready: false,
        api_clock: None,
        is_of_lost_node: false,
    }
}

/// An endpoint that was not ready long before its deletion, with a gap of the watch, in a Service that publishes unready ones.
fn left_late() -> EndpointRemoval {
    let late = Moment {
        gap: Some(Duration::from_secs(5)),
        ..at(2400)
    };
    EndpointRemoval {
        end: late,
        not_ready: Some(Moment {
            at: BEGIN.minus(Duration::from_secs(60)),
            gap: None,
        }),
        all_terminating: Some(at(100)),
        publish_not_ready: true,
        api_clock: MEASURED,
        ..left("admin")
    }
}

fn replaced() -> Replacement {
    let mut by = (*fixtures::identity()).clone();
    by.name = "cart-7d9f8b6c5-new".into();
    by.uid = epitaph_core::ids::PodUid("1a2b".into());
    by.node = "node-8".into();
    Replacement {
        pod: fixtures::identity(),
        by: by.into(),
        rule: Rule::NextOfReplicaSet,
        created: at(50),
        scheduled: Some(at(70)),
        attached: Some(at(900)),
        ready: Some(at(4000)),
        end: at(4000),
        api_clock: MEASURED,
        is_of_lost_node: false,
    }
}

pub(super) fn traces(options: &Options) -> Vec<Trace> {
    let offset = observation().wall_offset;
    vec![
        removal(&left_late(), offset, options),
        replacement(&replaced(), offset, options),
    ]
}

#[test]
fn a_removal_is_below_the_root_of_the_agents_trace() {
    let trace = removal(&left("cart"), observation().wall_offset, &Options::default());
    expect![[r#"
        resource epitaph.workload.kind=Deployment epitaph.workload.name=cart k8s.deployment.name=cart k8s.deployment.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000001 k8s.namespace.name=shop k8s.node.name=node-7 k8s.pod.name=cart-7d9f8b6c5-x2x4z k8s.pod.uid=0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6e k8s.replicaset.name=cart-7d9f8b6c5 k8s.replicaset.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000002 os.type=linux service.instance.id=shop.cart-7d9f8b6c5-x2x4z service.name=cart service.namespace=shop service.version=1.4.2
        endpoint.removal < -: 0..2400 Unset
          k8s.service.name=cart
          epitaph.service.ports=["http/TCP:8080"]
          epitaph.endpoint.address_types=["IPv4","IPv6"]
          @0 endpoint.terminating 
          @0 endpoint.not_ready 
          @1900 endpoint.not_serving 
          @2400 endpoint.gone 
    "#]].assert_eq(&text_of(&trace, BEGIN, true));
    let span = &trace.spans[0];
    let expected = id::of_pod(&fixtures::identity(), "whatever boot");
    assert_eq!(span.span_context.trace_id(), expected);
    assert_eq!(span.parent_span_id, id::pod_root(expected));
    assert!(span.span_context.is_sampled());
}

#[test]
fn a_span_that_began_before_a_step_of_the_clock_states_it() {
    let offset = observation().wall_offset;
    let step_of = |stepped: Boot| {
        let mut trace = removal(&left("web"), offset, &Options::default());
        add_clock_step(&mut trace, |begin| (offset.boot(begin) < stepped).then_some(60_000_000_000));
        let attributes = &trace.spans[0].attributes;
        let step = attributes.iter().find(|attribute| attribute.key.as_str() == key::CLOCK_STEP);
        step.map(|step| step.value.to_string())
    };
    assert_eq!(step_of(at(1).at).as_deref(), Some("60"));
    assert_eq!(step_of(BEGIN), None);
}

#[test]
fn a_gap_is_an_attribute_and_times_before_the_begin_are_not_events() {
    let trace = removal(&left_late(), observation().wall_offset, &Options::default());
    expect![[r#"
        resource epitaph.workload.kind=Deployment epitaph.workload.name=cart k8s.deployment.name=cart k8s.deployment.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000001 k8s.namespace.name=shop k8s.node.name=node-7 k8s.pod.name=cart-7d9f8b6c5-x2x4z k8s.pod.uid=0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6e k8s.replicaset.name=cart-7d9f8b6c5 k8s.replicaset.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000002 os.type=linux service.instance.id=shop.cart-7d9f8b6c5-x2x4z service.name=cart service.namespace=shop service.version=1.4.2
        endpoint.removal < -: 0..2400 Unset
          k8s.service.name=admin
          epitaph.service.ports=["http/TCP:8080"]
          epitaph.endpoint.address_types=["IPv4","IPv6"]
          epitaph.endpoint.publish_not_ready_addresses=true
          epitaph.endpoint.all_terminating=true
          epitaph.api_clock.ahead.least=-0.25
          epitaph.api_clock.ahead.most=0.05
          epitaph.watch.gap=5
          @0 endpoint.terminating 
          @100 service.all_terminating 
          @1900 endpoint.not_serving 
          @2400 endpoint.gone epitaph.watch.gap=5
    "#]].assert_eq(&text_of(&trace, BEGIN, true));
}

#[test]
fn a_replacement_names_the_pod_and_the_rule() {
    let trace = replacement(&replaced(), observation().wall_offset, &Options::default());
    expect![[r#"
        resource epitaph.workload.kind=Deployment epitaph.workload.name=cart k8s.deployment.name=cart k8s.deployment.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000001 k8s.namespace.name=shop k8s.node.name=node-7 k8s.pod.name=cart-7d9f8b6c5-x2x4z k8s.pod.uid=0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6e k8s.replicaset.name=cart-7d9f8b6c5 k8s.replicaset.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000002 os.type=linux service.instance.id=shop.cart-7d9f8b6c5-x2x4z service.name=cart service.namespace=shop service.version=1.4.2
        replacement < -: 50..4000 Unset
          epitaph.replacement.pod.name=cart-7d9f8b6c5-new
          epitaph.replacement.pod.uid=1a2b
          epitaph.replacement.node.name=node-8
          epitaph.replacement.rule=next-of-replica-set
          epitaph.replacement.ready=true
          epitaph.api_clock.ahead.least=-0.25
          epitaph.api_clock.ahead.most=0.05
          @50 pod.created 
          @70 pod.scheduled 
          @900 volume.attached 
          @4000 pod.ready 
    "#]].assert_eq(&text_of(&trace, BEGIN, true));
}

#[test]
fn each_service_has_its_own_span_and_a_retry_is_identical() {
    let (offset, options) = (observation().wall_offset, Options::default());
    let of = |service: &str| removal(&left(service), offset, &options).spans[0].span_context.span_id();
    assert_ne!(of("cart"), of("admin"));
    assert_eq!(of("cart").to_string(), "2f542c51cf92cf81");
    assert_eq!(
        removal(&left("cart"), offset, &options),
        removal(&left("cart"), offset, &options)
    );
}

#[test]
fn a_replacement_that_was_seen_late_begins_with_the_pods_creation() {
    let offset = observation().wall_offset;
    let begin = |seen: u64, api_clock| {
        let mut by = (*fixtures::identity()).clone();
        by.created = Some(offset.wall(BEGIN));
        let replaced = Replacement {
            by: by.into(),
            created: at(seen),
            api_clock,
            ..replaced()
        };
        let span = &replacement(&replaced, offset, &Options::default()).spans[0];
        let late = span.start_time.duration_since(span_time(offset, BEGIN)).unwrap();
        assert_eq!(span.events[0].timestamp, span.start_time);
        late
    };
    // The API's second, and the node's clock is ahead by a quarter of a second at most.
    assert_eq!(begin(3000, MEASURED), Duration::from_millis(1250));
    assert_eq!(begin(1100, MEASURED), Duration::from_millis(1100));
    assert_eq!(begin(3000, None), Duration::from_millis(3000));
}

fn span_time(offset: WallOffset, at: Boot) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(offset.wall(at).0)
}
