use epitaph_core::pod::{ContainerStatus, Phase, Service, Workload};

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
    };
    PodFact {
        pod: Arc::new(identity),
        seen: Boot(1),
        spec: Arc::default(),
        deletion: None,
        phase: Phase::Running,
        reason: None,
        disruption: None,
        ready: None,
        containers,
    }
}

#[test]
fn pods_missing_from_a_complete_list_are_gone() {
    let mut known = Known::default();
    for pod in ["a", "b", "c"] {
        assert_eq!(known.keep(Arc::new(fact(pod, vec![])), Some("1".into()), true), Ok(()));
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
        known.keep(Arc::new(fact(pod, vec![])), None, true).unwrap();
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
    known.keep(Arc::new(fact("a", vec![])), None, false).unwrap();
    assert!(known.identity(&uid("a")).is_none());
    known.keep(Arc::new(fact("a", vec![])), None, true).unwrap();
    assert!(known.identity(&uid("a")).is_some());
}

#[test]
fn memory_is_bounded_and_known_pods_are_updated() {
    let mut known = Known::default();
    for n in 0..CAPACITY {
        known.keep(Arc::new(fact(&n.to_string(), vec![])), None, true).unwrap();
    }
    assert_eq!(known.keep(Arc::new(fact("one more", vec![])), None, true), Err(Full));
    assert_eq!(known.keep(Arc::new(fact("7", vec![])), None, true), Ok(()));
}
