use std::time::Duration;

use epitaph_core::ids::ContainerId;
use epitaph_core::pod::{ContainerSpec, ContainerStatus, Deletion, Ended, Phase, PodSpec, PreStop, Service, Workload};
use epitaph_core::time::Wall;

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
        containers,
    }
}

fn id(text: &str) -> Option<ContainerId> {
    Some(ContainerId(text.into()))
}

fn ended(container: &str, exit_code: i32) -> Ended {
    Ended {
        id: id(container),
        exit_code,
        reason: None,
    }
}

fn status(restarts: u32, state: ContainerState, last: Option<Ended>) -> ContainerStatus {
    ContainerStatus {
        name: "app".into(),
        id: id("1"),
        restarts,
        state,
        last,
    }
}

fn spec(kind: ContainerKind, pre_stop: Option<PreStop>) -> Arc<PodSpec> {
    Arc::new(PodSpec {
        containers: vec![ContainerSpec {
            name: "app".into(),
            kind,
            image: String::new(),
            pre_stop,
            stop_signal: None,
            liveness: None,
            startup: None,
            readiness: None,
            ports: Vec::new(),
        }],
        ..PodSpec::default()
    })
}

#[test]
fn pods_missing_from_a_complete_list_are_gone() {
    let mut known = Known::default();
    for pod in ["a", "b", "c"] {
        assert_eq!(known.keep(Arc::new(fact(pod, vec![])), Some("1".into()), true), Ok(false));
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
    assert_eq!(known.keep(Arc::new(fact("7", vec![])), None, true), Ok(false));
}

#[test]
fn events_are_requested_for_unexplained_changes() {
    use ContainerState::{Running, Terminated};
    let deletion = Some(Deletion {
        timestamp: Wall(0),
        grace: Duration::from_secs(30),
    });
    let main = spec(ContainerKind::Main, None);
    let hooked = spec(ContainerKind::Main, Some(PreStop::Sleep { seconds: 5 }));
    let init = spec(ContainerKind::Init, None);
    let running = status(0, Running, None);
    let restarted = status(1, Running, Some(ended("0", 137)));
    let over = |code| status(0, Terminated(ended("1", code)), None);
    for (what, spec, deletion, before, now, wanted) in [
        ("nothing new", &main, None, running.clone(), running.clone(), false),
        ("a restart", &main, None, running.clone(), restarted.clone(), true),
        (
            "the same restart again",
            &main,
            None,
            restarted.clone(),
            restarted.clone(),
            false,
        ),
        ("the end of a Job", &main, None, running.clone(), over(0), true),
        ("an init container that is done", &init, None, running.clone(), over(0), false),
        ("an init container that failed", &init, None, running.clone(), over(1), true),
        (
            "a clean end of a deleted pod",
            &main,
            deletion,
            running.clone(),
            over(0),
            false,
        ),
        ("the same with a hook", &hooked, deletion, running.clone(), over(0), true),
        ("an unclean one", &main, deletion, running, over(137), true),
        ("known to be over", &main, None, over(1), over(1), false),
        (
            "terminated, then restarted: requested at the termination",
            &main,
            None,
            over(1),
            restarted,
            true,
        ),
    ] {
        let version = |status: ContainerStatus| PodFact {
            spec: spec.clone(),
            deletion,
            ..fact("a", vec![status])
        };
        assert_eq!(wants_events(&version(before), &version(now)), wanted, "{what}");
    }
}
