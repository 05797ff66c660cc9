use epitaph_core::ids::ContainerId;
use epitaph_core::pod::{ContainerKind, ContainerSpec, ContainerState, ContainerStatus, Phase, PodSpec, Service, Workload};

use super::*;

fn uid(text: &str) -> PodUid {
    PodUid(text.into())
}

fn fact(pod: &str, containers: Vec<ContainerStatus>) -> PodFact {
    let identity = PodIdentity {
        uid: uid(pod),
        cgroup_uid: uid(pod),
        namespace: "shop".into(),
        name: pod.into(),
        node: "node-1".into(),
        workload: Workload {
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: pod.into(),
            uid: None,
            api_version: None,
            through: None,
        },
        is_static: false,
        service: Service::default(),
        created: None,
        revision: None,
    };
    PodFact {
        pod: Arc::new(identity),
        seen: Boot(1),
        spec: Arc::default(),
        deletion: None,
        phase: Phase::Running,
        reason: None,
        disruption: None,
        restarting: false,
        finalizers: Vec::new(),
        has_sandbox: None,
        ready: None,
        containers,
    }
}

#[test]
fn pods_missing_from_a_complete_list_are_gone() {
    let mut known = Known::default();
    for pod in ["a", "b", "c"] {
        assert_eq!(known.keep(Arc::new(fact(pod, vec![])), Some("1".into()), true), 0);
    }
    known.begin();
    known.listed(&uid("a"));
    // The list is interrupted here, and begins again.
    known.begin();
    known.listed(&uid("b"));
    known.listed(&uid("d"));
    let gone: Vec<_> = known.end(Boot(9)).into_iter().map(|g| (g.uid, g.watched, g.seen)).collect();
    assert_eq!(gone, [(uid("a"), false, Boot(9)), (uid("c"), false, Boot(9))]);
    assert!(known.has(&uid("b"), Some("1")) && !known.has(&uid("a"), Some("1")));
    assert!(!known.has(&uid("b"), Some("2")) && !known.has(&uid("b"), None));
    assert!(known.forget(&uid("b")) && !known.forget(&uid("b")));
}

#[test]
fn a_list_longer_than_the_bound_reports_no_listed_pod_as_gone() {
    let mut known = Known::default();
    for pod in ["kept", "gone"] {
        known.keep(Arc::new(fact(pod, vec![])), None, true);
    }
    known.begin();
    (0..=CAPACITY).for_each(|n| known.listed(&uid(&n.to_string())));
    known.listed(&uid("kept"));
    let gone: Vec<_> = known.end(Boot(9)).into_iter().map(|gone| gone.uid).collect();
    assert_eq!(gone, [uid("gone")]);
}

#[test]
fn an_unresolved_workload_is_looked_up_again() {
    let mut known = Known::default();
    known.keep(Arc::new(fact("a", vec![])), None, false);
    assert!(known.identity(&uid("a")).is_none());
    known.keep(Arc::new(fact("a", vec![])), None, true);
    assert!(known.identity(&uid("a")).is_some());
}

/// Of a namespace, and of so many containers; the kubelet has run them or not.
fn bound_to_the_node(namespace: &str, pod: &str, containers: usize, has_run: bool) -> Arc<PodFact> {
    let status = ContainerStatus {
        name: "app".into(),
        id: Some(ContainerId("c".into())),
        restarts: 0,
        state: ContainerState::Running,
        last: None,
        stop_signal: None,
    };
    let mut fact = fact(pod, Vec::from_iter(has_run.then_some(status)));
    let container = |n| ContainerSpec {
        name: format!("{n:063}"),
        kind: ContainerKind::Main,
        image: "i".repeat(512),
        pre_stop: None,
        stop_signal: None,
        liveness: None,
        startup: None,
        readiness: None,
        ports: vec![80; 64],
        restart_policy: None,
        restart_rules: Vec::new(),
    };
    fact.spec = Arc::new(PodSpec {
        containers: (0..containers).map(container).collect(),
        ..PodSpec::default()
    });
    Arc::make_mut(&mut fact.pod).namespace = namespace.into();
    Arc::new(fact)
}

#[test]
fn pods_that_anybody_can_bind_to_the_node_push_no_other_out() {
    // By number, without a status; by size, and the kubelet has run them.
    for (count, containers, has_run) in [(CAPACITY + 20, 0, false), (60, 256, true)] {
        let mut known = Known::default();
        for pod in ["a", "b"] {
            known.keep(bound_to_the_node("shop", pod, 2, true), Some("1".into()), true);
        }
        let mut forgotten = 0;
        for n in 0..count {
            forgotten += known.keep(
                bound_to_the_node("evil", &format!("evil-{n}"), containers, has_run),
                None,
                true,
            );
        }
        assert!(known.pods.len() <= CAPACITY && known.bytes <= BYTES, "{} bytes", known.bytes);
        assert!(forgotten > 0);
        assert_eq!(known.pods.len() as u64 + forgotten, 2 + count as u64);
        assert!(["a", "b"].iter().all(|pod| known.has(&uid(pod), Some("1"))));
        // One that is new becomes known, and a known one keeps its place.
        known.keep(bound_to_the_node("shop", "new", 2, false), Some("1".into()), true);
        assert!(known.has(&uid("new"), Some("1")));
        let kept = known.pods.len();
        assert_eq!(known.keep(bound_to_the_node("shop", "a", 2, true), Some("2".into()), true), 0);
        assert_eq!(known.pods.len(), kept);
    }
}
