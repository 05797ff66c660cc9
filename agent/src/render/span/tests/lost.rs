use std::sync::Arc;
use std::time::Duration;

use epitaph_core::fixtures::pods as fixtures;
use epitaph_core::fixtures::terminations::observation;
use epitaph_core::ids::PodUid;
use epitaph_core::observe::loss_verdict::{Loss, LossVerdict};
use epitaph_core::observe::{
    AgentAnswer, ClaimKey, DuplicateRun, Holder, LossEnd, LossKey, LostPods, Moment, NodeIdentity, NodeLost, NodePhase,
    PhaseKind, PodLost, ReadyService, Replacement, Return, Returned, Rule, ShuttingDown, Step, Stuck, VolumeDetach,
};
use epitaph_core::pod::ApiClock;
use epitaph_core::render::id;
use epitaph_core::shutdown::ShutdownKey;
use epitaph_core::time::{Boot, Wall, WallOffset};
use expect_test::expect;

use super::text_of;
use crate::render::span::{
    Options, Trace, duplicate_run, node_lost, node_phase, pod_lost, replacement, shutting_down, volume_detach,
};

const BEGIN: Boot = Boot(3_600_000_000_000);

fn at(seconds: u64) -> Moment {
    Moment {
        at: BEGIN.plus(Duration::from_secs(seconds)),
        gap: None,
    }
}

fn clocks() -> (WallOffset, Option<ApiClock>) {
    let clock = ApiClock {
        earliest: -250_000_000,
        latest: 50_000_000,
    };
    (observation().wall_offset, Some(clock))
}

fn key() -> LossKey {
    LossKey {
        node: Arc::new(NodeIdentity {
            name: "node-7".into(),
            uid: "5d1f0a86-1f0d-4a0b-8d6e-000000000007".into(),
            boot_id: "boot-1".into(),
            system_uuid: "".into(),
            kubelet_version: "v1.36.3".into(),
            provider: "cloud:///node-7".into(),
            unschedulable: false,
        }),
        transition: Wall(1_795_261_450_000_000_000),
    }
}

fn verdict(loss: Loss) -> LossVerdict {
    LossVerdict {
        row: loss.row(),
        sentence: "what happened".to_owned(),
        remedy: "what to do".to_owned(),
    }
}

fn node() -> NodeLost {
    NodeLost {
        key: key(),
        begin: at(0),
        end: at(100),
        ended_by: LossEnd::PodsGone,
        verdict: verdict(Loss::FencedByTaint),
        steps: vec![(Step::NotReady, at(0)), (Step::Unknown, at(0)), (Step::LastPodGone, at(100))],
        reason: "NodeStatusUnknown".into(),
        message: "Kubelet stopped posting node status.".into(),
        renewed: Some(Wall(1_795_261_410_000_000_000)),
        agent: AgentAnswer::Silent,
        powered_off: true,
        pods: LostPods {
            stuck: 1,
            gone: 1,
            has_dropped: true,
            links: vec![fixtures::identity()],
        },
        unwatched: Some(Duration::from_secs(50)),
    }
}

fn down() -> NodePhase {
    NodePhase {
        key: key(),
        kind: PhaseKind::Down,
        begin: at(0),
        end: at(300),
        boot: Some(Return {
            boot_id: "boot-2".into(),
            how: Returned::Rebooted,
        }),
        unwatched: None,
    }
}

fn announced() -> ShuttingDown {
    ShuttingDown {
        key: ShutdownKey {
            boot_id: "boot-1".to_owned(),
            ordinal: 2,
        },
        node: key().node,
        transition: key().transition,
        begin: at(0),
        end: at(72),
        reason: "KubeletNotReady".into(),
        message: "node is shutting down".into(),
        services: vec![
            ReadyService {
                namespace: "shop".into(),
                service: "cart".into(),
                pods: vec![PodUid("u-a".into()), PodUid("u-b".into())],
                still_ready: 0,
                until: Some(at(4)),
            },
            ReadyService {
                namespace: "shop".into(),
                service: "stock".into(),
                pods: ["u-c", "u-d", "u-e"].map(|uid| PodUid(uid.into())).to_vec(),
                still_ready: 1,
                until: Some(at(5)),
            },
        ],
        has_dropped: false,
        unwatched: None,
    }
}

fn pod() -> PodLost {
    let stuck = |by, names: &[&str], begin, end| Stuck {
        by,
        names: names.iter().map(|name| (*name).into()).collect(),
        begin,
        end,
    };
    PodLost {
        pod: fixtures::identity(),
        loss: key(),
        begin: at(0),
        end: at(100),
        is_gone: true,
        verdict: verdict(Loss::StuckByFinalizer),
        requested: Some(at(20)),
        by_taint: true,
        stuck: vec![
            stuck(Holder::Node, &[], at(20), at(70)),
            stuck(Holder::Volume, &["data-web-0"], at(70), at(80)),
            stuck(Holder::Finalizer, &["example.com/hold"], at(80), at(100)),
        ],
        unwatched: None,
    }
}

/// Another pod, or the two would have the same spans.
fn still_terminating() -> PodLost {
    let mut other = (*fixtures::identity()).clone();
    other.uid = PodUid("1a2b".into());
    PodLost {
        pod: other.into(),
        is_gone: false,
        unwatched: Some(Duration::from_secs(50)),
        ..pod()
    }
}

fn volume() -> VolumeDetach {
    VolumeDetach {
        pod: fixtures::identity(),
        claim: ClaimKey {
            namespace: "shop".into(),
            name: "data-db-0".into(),
        },
        volume: "pv-0".into(),
        attachment: "csi-0".into(),
        attacher: "csi.example.com".into(),
        begin: at(100),
        end: Moment {
            gap: Some(Duration::from_secs(5)),
            ..at(460)
        },
        requested: Some(at(101)),
        error: Some("timeout".into()),
        verdict: Some(verdict(Loss::StuckByVolume)),
    }
}

fn twice() -> DuplicateRun {
    let mut by = (*fixtures::identity()).clone();
    by.uid = PodUid("1a2b".into());
    by.node = "node-8".into();
    DuplicateRun {
        pod: fixtures::identity(),
        by: by.into(),
        loss: key(),
        begin: at(120),
        end: at(300),
        verdict: verdict(Loss::DuplicateRun),
    }
}

pub(super) fn traces(options: &Options) -> Vec<Trace> {
    vec![
        node_lost(&node(), clocks(), options),
        node_phase(&down(), clocks(), options),
        shutting_down(&announced(), clocks(), options),
        shutting_down(
            &ShuttingDown {
                has_dropped: true,
                ..announced()
            },
            clocks(),
            options,
        ),
        pod_lost(&pod(), clocks(), options),
        pod_lost(&still_terminating(), clocks(), options),
        volume_detach(&volume(), clocks(), options),
        duplicate_run(&twice(), clocks(), options),
    ]
}

#[test]
fn a_lost_node_is_a_trace_with_links_to_its_pods() {
    let trace = node_lost(&node(), clocks(), &Options::default());
    expect![[r#"
        resource k8s.node.name=node-7 k8s.node.uid=5d1f0a86-1f0d-4a0b-8d6e-000000000007 os.type=linux service.instance.id=node-7 service.name=epitaph
        node.lost fenced-by-taint < -: 0..100000 Error { description: "what happened" }
          epitaph.verdict=fenced-by-taint
          epitaph.unclean=true
          epitaph.severity=warning
          epitaph.sentence=what happened
          epitaph.remedy=what to do
          epitaph.node.transition=2026-11-21T11:44:10.000000000Z
          epitaph.node.boot_id=boot-1
          epitaph.node.kubelet_version=v1.36.3
          epitaph.node.provider_id=cloud:///node-7
          epitaph.node.reason=NodeStatusUnknown
          epitaph.node.message=Kubelet stopped posting node status.
          epitaph.node.renewed_at=2026-11-21T11:43:30.000000000Z
          epitaph.node.agent=silent
          epitaph.node.powered_off=true
          epitaph.node.pods.stuck=1
          epitaph.node.pods.gone=1
          epitaph.node.pods.partial=true
          epitaph.node.ended_by=pods-gone
          epitaph.node.unwatched=50
          epitaph.api_clock.ahead.least=-0.25
          epitaph.api_clock.ahead.most=0.05
          @0 node.not_ready 
          @0 node.unknown 
          @100000 pods.last_gone 
    "#]].assert_eq(&text_of(&trace, BEGIN, true));
    let root = &trace.spans[0];
    let links: Vec<_> = root.links.iter().map(|link| link.span_context.span_id()).collect();
    let of_pod = id::of_pod(&fixtures::identity(), "any boot");
    assert_eq!(links, [id::pod_lost(of_pod)]);
    assert_eq!(root.links[0].span_context.trace_id(), of_pod);
    // A later child, whatever ended the root.
    let down = node_phase(&down(), clocks(), &Options::default());
    assert_eq!(down.spans[0].parent_span_id, root.span_context.span_id());
    assert_eq!(down.spans[0].span_context.trace_id(), root.span_context.trace_id());
    expect![[r#"
        resource k8s.node.name=node-7 k8s.node.uid=5d1f0a86-1f0d-4a0b-8d6e-000000000007 os.type=linux service.instance.id=node-7 service.name=epitaph
        node.down < -: 0..300000 Unset
          epitaph.node.boot_id=boot-1
          epitaph.node.next_boot_id=boot-2
          epitaph.node.return=rebooted
          epitaph.api_clock.ahead.least=-0.25
          epitaph.api_clock.ahead.most=0.05
    "#]].assert_eq(&text_of(&down, BEGIN, true));
}

#[test]
fn a_taint_that_is_set_twice_is_two_spans() {
    let taint = |begin: u64, end: u64| NodePhase {
        kind: PhaseKind::OutOfService,
        begin: at(begin),
        end: at(end),
        boot: None,
        ..down()
    };
    let span = |phase: NodePhase| node_phase(&phase, clocks(), &Options::default()).spans.remove(0);
    let (first, again) = (span(taint(90, 93)), span(taint(96, 320)));
    assert_eq!(first.name, again.name);
    assert_ne!(first.span_context.span_id(), again.span_context.span_id());
    assert_eq!(first.parent_span_id, again.parent_span_id);
}

#[test]
fn what_the_api_shows_of_a_shutdown_is_below_the_agents_root() {
    let trace = shutting_down(&announced(), clocks(), &Options::default());
    expect![[r#"
        resource k8s.node.name=node-7 k8s.node.uid=5d1f0a86-1f0d-4a0b-8d6e-000000000007 os.type=linux service.instance.id=node-7 service.name=epitaph
        node.not_ready < -: 0..72000 Unset
          epitaph.node.transition=2026-11-21T11:44:10.000000000Z
          epitaph.node.reason=KubeletNotReady
          epitaph.node.message=node is shutting down
          epitaph.api_clock.ahead.least=-0.25
          epitaph.api_clock.ahead.most=0.05
        endpoints.ready < -: 0..4000 Unset
          k8s.service.name=cart
          epitaph.endpoints.namespace=shop
          epitaph.endpoints.ready=2
          epitaph.endpoints.pods=["u-a","u-b"]
        endpoints.ready < -: 0..72000 Unset
          k8s.service.name=stock
          epitaph.endpoints.namespace=shop
          epitaph.endpoints.ready=3
          epitaph.endpoints.pods=["u-c","u-d","u-e"]
          epitaph.endpoints.still_ready=1
    "#]].assert_eq(&text_of(&trace, BEGIN, true));
    let shutdown = id::node_trace_id(&announced().key);
    assert_eq!(trace.spans[0].span_context.trace_id(), shutdown);
    assert_eq!(trace.spans[0].parent_span_id, id::node_root(shutdown));
}

#[test]
fn what_was_missed_of_a_lost_pod_is_stated() {
    let trace = pod_lost(&still_terminating(), clocks(), &Options::default());
    assert!(text_of(&trace, BEGIN, true).contains("epitaph.node.unwatched=50\n"));
}

#[test]
fn a_lost_pod_has_a_root_beside_the_agents() {
    let trace = pod_lost(&pod(), clocks(), &Options::default());
    expect![[r#"
        resource epitaph.workload.kind=Deployment epitaph.workload.name=cart k8s.deployment.name=cart k8s.deployment.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000001 k8s.namespace.name=shop k8s.node.name=node-7 k8s.pod.name=cart-7d9f8b6c5-x2x4z k8s.pod.uid=0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6e k8s.replicaset.name=cart-7d9f8b6c5 k8s.replicaset.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000002 os.type=linux service.instance.id=shop.cart-7d9f8b6c5-x2x4z service.name=cart service.namespace=shop service.version=1.4.2
        pod.lost stuck-by-finalizer < -: 0..100000 Error { description: "what happened" }
          epitaph.verdict=stuck-by-finalizer
          epitaph.unclean=true
          epitaph.severity=warning
          epitaph.sentence=what happened
          epitaph.remedy=what to do
          epitaph.evicted_by_taint=true
          epitaph.api_clock.ahead.least=-0.25
          epitaph.api_clock.ahead.most=0.05
          @20000 deletion.requested 
          @100000 pod.gone 
        stuck < pod.lost stuck-by-finalizer: 20000..70000 Unset
          epitaph.stuck.by=node
        stuck < pod.lost stuck-by-finalizer: 70000..80000 Unset
          epitaph.stuck.by=volume
          epitaph.stuck.claims=["data-web-0"]
        stuck < pod.lost stuck-by-finalizer: 80000..100000 Unset
          epitaph.stuck.by=finalizer
          epitaph.stuck.finalizers=["example.com/hold"]
    "#]].assert_eq(&text_of(&trace, BEGIN, true));
    let root = &trace.spans[0];
    let of_pod = id::of_pod(&fixtures::identity(), "any boot");
    assert_eq!(root.span_context.trace_id(), of_pod);
    assert_ne!(root.span_context.span_id(), id::pod_root(of_pod));
    assert!(
        trace.spans[1..]
            .iter()
            .all(|span| span.parent_span_id == root.span_context.span_id())
    );
    assert_ne!(trace.spans[1].span_context.span_id(), trace.spans[2].span_context.span_id());
    let loss = id::node_loss_trace_id(&key().node.uid, key().transition);
    assert_eq!(root.links[0].span_context.trace_id(), loss);
}

#[test]
fn volumes_and_duplicate_runs_are_below_that_root() {
    let options = Options::default();
    let (volume, twice) = (
        volume_detach(&volume(), clocks(), &options),
        duplicate_run(&twice(), clocks(), &options),
    );
    expect![[r#"
        resource epitaph.workload.kind=Deployment epitaph.workload.name=cart k8s.deployment.name=cart k8s.deployment.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000001 k8s.namespace.name=shop k8s.node.name=node-7 k8s.pod.name=cart-7d9f8b6c5-x2x4z k8s.pod.uid=0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6e k8s.replicaset.name=cart-7d9f8b6c5 k8s.replicaset.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000002 os.type=linux service.instance.id=shop.cart-7d9f8b6c5-x2x4z service.name=cart service.namespace=shop service.version=1.4.2
        volume.detach < -: 100000..460000 Error { description: "what happened" }
          epitaph.verdict=stuck-by-volume
          epitaph.unclean=true
          epitaph.severity=warning
          epitaph.sentence=what happened
          epitaph.remedy=what to do
          epitaph.volume.name=pv-0
          epitaph.volume.claim=data-db-0
          epitaph.volume.attachment=csi-0
          epitaph.volume.attacher=csi.example.com
          epitaph.volume.error=timeout
          epitaph.api_clock.ahead.least=-0.25
          epitaph.api_clock.ahead.most=0.05
          epitaph.watch.gap=5
          @101000 detach.requested 
          @460000 volume.detached epitaph.watch.gap=5
    "#]].assert_eq(&text_of(&volume, BEGIN, true));
    expect![[r#"
        resource epitaph.workload.kind=Deployment epitaph.workload.name=cart k8s.deployment.name=cart k8s.deployment.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000001 k8s.namespace.name=shop k8s.node.name=node-7 k8s.pod.name=cart-7d9f8b6c5-x2x4z k8s.pod.uid=0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6e k8s.replicaset.name=cart-7d9f8b6c5 k8s.replicaset.uid=6a1d0a86-1f0d-4a0b-8d6e-000000000002 os.type=linux service.instance.id=shop.cart-7d9f8b6c5-x2x4z service.name=cart service.namespace=shop service.version=1.4.2
        duplicate.run < -: 120000..300000 Error { description: "what happened" }
          epitaph.verdict=duplicate-run
          epitaph.unclean=true
          epitaph.severity=critical
          epitaph.sentence=what happened
          epitaph.remedy=what to do
          epitaph.replacement.pod.name=cart-7d9f8b6c5-x2x4z
          epitaph.replacement.pod.uid=1a2b
          epitaph.replacement.node.name=node-8
          epitaph.api_clock.ahead.least=-0.25
          epitaph.api_clock.ahead.most=0.05
    "#]].assert_eq(&text_of(&twice, BEGIN, true));
    let root = id::pod_lost(id::of_pod(&fixtures::identity(), "any boot"));
    assert_eq!(volume.spans[0].parent_span_id, root);
    assert_eq!(twice.spans[0].parent_span_id, root);
}

#[test]
fn the_replacement_of_a_lost_pod_is_below_that_root() {
    let replaced = |is_of_lost_node| Replacement {
        pod: fixtures::identity(),
        by: fixtures::identity(),
        rule: Rule::NameInStatefulSet,
        created: at(100),
        scheduled: Some(at(100)),
        attached: None,
        ready: Some(at(120)),
        end: at(120),
        api_clock: None,
        is_of_lost_node,
    };
    let parent = |of: Replacement| replacement(&of, observation().wall_offset, &Options::default()).spans[0].parent_span_id;
    let of_pod = id::of_pod(&fixtures::identity(), "any boot");
    assert_eq!(parent(replaced(true)), id::pod_lost(of_pod));
    assert_eq!(parent(replaced(false)), id::pod_root(of_pod));
}
