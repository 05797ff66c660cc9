//! Objects, notes and counts of Events; the requests to a real API server are tested in `tests/tests/kubernetes_events.rs`.

mod worker;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::event::Disposition;
use epitaph_core::fixtures::builder::{Builder, at, termination};
use epitaph_core::fixtures::{self, sample, shutdowns};
use epitaph_core::ids::{Pid, Signal};
use epitaph_core::input::Observation;
use epitaph_core::kubernetes::PodTerminationFacts;
use epitaph_core::observe::loss_verdict::{self, LossVerdict};
use epitaph_core::observe::{Advice, LossAlarm, Moment, NodeIdentity};
use epitaph_core::pod::PodIdentity;
use epitaph_core::report::{PodTermination, Report, StopSignalIgnored, Termination};
use epitaph_core::termination::{Actor, Role, Traffic};
use epitaph_core::time::{Boot, Wall};
use epitaph_core::verdict;
use expect_test::expect;

use super::AGENT;
use super::notice::{self, Notice};
use super::queue::{Pending, Queue};
use super::series::{self, Posted};
use super::stats::{EventStats, Outcome};
use crate::error::line;
use crate::rights::AGENT_POST_EVENTS;
use crate::sink::queue::Attempts;

const NODE: &str = "node-1";

fn observation() -> Observation {
    sample::observation()
}

/// A pod with one container that terminated like `of`.
fn pod(of: Builder, name: &str) -> Report {
    let mut container = of.judged();
    let context = Arc::make_mut(container.kubernetes.as_mut().expect("a context"));
    let mut identity = (*context.pod).clone();
    identity.name = name.to_owned();
    identity.uid = epitaph_core::ids::PodUid(format!("uid-of-{name}").into());
    context.pod = Arc::new(identity);
    let context = context.clone();
    let facts = PodTerminationFacts {
        pod: context.pod,
        boot_id: "boot".into(),
        stop_reason: context.stop_reason.clone(),
        request: context.request,
        begin: at(0.0),
        end: container.end,
        earlier: Vec::new(),
        unseen: Vec::new(),
        gone: None,
        shutdown: None,
    };
    Report::PodTerminated(Box::new(PodTermination::judged(facts, vec![container])))
}

fn unclean(name: &str) -> Report {
    pod(termination().dropped_term(0.3).kill(10.3), name)
}

fn unclean_in(namespace: &str, name: &str) -> Report {
    let mut report = unclean(name);
    if let Report::PodTerminated(pod) = &mut report {
        let mut identity = (*pod.pod).clone();
        namespace.clone_into(&mut identity.namespace);
        namespace.clone_into(&mut identity.workload.namespace);
        pod.facts.pod = Arc::new(identity);
    }
    report
}

fn text(notices: &[Notice]) -> String {
    let lines = notices.iter().map(|notice| {
        let object = &notice.key.object;
        format!(
            "{} {} {}: {} [{}]\n",
            notice.key.reason.name(),
            object.kind,
            object.name,
            notice.note,
            notice.key.event_name(NODE)
        )
    });
    lines.collect()
}

#[test]
fn on_the_pod_and_its_workload() {
    let notices = notice::of(&unclean("cart-1"), &observation());
    expect![[r#"
        UncleanTermination Deployment cart: pod `cart-1`: container `app`: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later [cart.89f44d79152e4ed3]
        UncleanTermination Pod cart-1: container `app`: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later [cart-1.0bd46bc8386a9972]
    "#]]
    .assert_eq(&text(&notices));
}

fn alarm(node: &str, pod: Arc<PodIdentity>) -> LossAlarm {
    LossAlarm {
        node: Arc::new(NodeIdentity {
            name: node.into(),
            uid: "uid".into(),
            boot_id: "boot".into(),
            system_uuid: "".into(),
            kubelet_version: "v1.36.3".into(),
            provider: "".into(),
            unschedulable: false,
        }),
        pod: Some(pod),
        at: Moment { at: at(1.0), gap: None },
        advice: Advice::MakeSure,
        verdict: LossVerdict {
            row: &loss_verdict::TABLE[0],
            sentence: format!("its node `{node}` is lost"),
            remedy: format!("kubectl taint nodes {node}"),
        },
    }
}

/// A raised Event keeps its note, and the note has the command for one node: that of another would taint a healthy one.
#[test]
fn each_lost_node_and_each_advice_has_an_event_of_its_own() {
    let Report::PodTerminated(of) = unclean("cart-1") else {
        panic!("a pod")
    };
    let of_node = |node: &str, advice: Advice| {
        let alarm = LossAlarm {
            advice,
            ..alarm(node, of.facts.pod.clone())
        };
        notice::of_loss(&alarm, Wall(1))
    };
    let names: HashSet<String> = [
        of_node("n1", Advice::MakeSure),
        of_node("n2", Advice::MakeSure),
        of_node("n1", Advice::MakeSure),
        // A machine that runs is not to be tainted any more.
        of_node("n1", Advice::Repair),
    ]
    .iter()
    .flatten()
    .filter(|notice| notice.key.is_shared())
    .map(|notice| notice.key.event_name(NODE))
    .collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

/// A pod of a workload on the lost node `n1`.
fn lost(namespace: &str, workload: &str, pod: &str) -> Vec<Notice> {
    let Report::PodTerminated(of) = unclean_in(namespace, pod) else {
        panic!("a pod")
    };
    let mut identity = (*of.facts.pod).clone();
    workload.clone_into(&mut identity.workload.name);
    identity.workload.uid = Some(workload.to_owned());
    notice::of_loss(&alarm("n1", Arc::new(identity)), Wall(1))
}

/// Two StatefulSets with hundreds of pods on a lost node.
#[test]
fn of_a_lost_node_the_workloads_have_their_events_before_the_pods() {
    let (queue, stats) = (Queue::new(64), EventStats::default());
    for workload in ["db", "cart"] {
        for n in 0..200 {
            for notice in lost("shop", workload, &format!("{workload}-{n}")) {
                queue.push(notice, at(1.0), &stats);
            }
        }
    }
    let next: Vec<(String, u64)> = std::iter::from_fn(|| queue.take(at(2.0)))
        .map(|(key, pending)| (key.object.kind, pending.count))
        .collect();
    assert_eq!(next[..2], [("Deployment".to_owned(), 200), ("Deployment".to_owned(), 200)]);
    assert_eq!(next.len(), 2 + 2 * 16);
    assert_eq!(stats.get(Outcome::Crowded), 2 * (200 - 16));
    assert_eq!(stats.get(Outcome::QueueFull), 0);
}

/// In a lost zone: who has most workloads neither delays nor displaces the Events of the others.
#[test]
fn namespaces_take_turns_and_the_one_with_the_most_events_loses_the_surplus() {
    let victim = || lost("shop", "db", "db-0").remove(0);
    let tenants = |n: usize| lost("tenant", &format!("s{n}"), &format!("s{n}-0")).remove(0);
    let taken = |most: usize, notices: Vec<Notice>| {
        let (queue, stats) = (Queue::new(most), EventStats::default());
        notices.into_iter().for_each(|notice| queue.push(notice, at(1.0), &stats));
        let names: Vec<String> = std::iter::from_fn(|| queue.take(at(2.0)))
            .map(|(key, _)| key.object.name)
            .collect();
        (names.join(" "), stats.get(Outcome::QueueFull))
    };
    let first = |most| taken(most, std::iter::once(victim()).chain((0..4).map(tenants)).collect());
    let last = |most| taken(most, (0..4).map(tenants).chain([victim()]).collect());
    assert_eq!(first(8), ("db s0 s1 s2 s3".to_owned(), 0));
    assert_eq!(last(8), ("s0 db s1 s2 s3".to_owned(), 0));
    // Of a full queue, the newest of the tenant's.
    assert_eq!(first(4), ("db s0 s1 s3".to_owned(), 1));
    assert_eq!(last(4), ("s0 db s1 s2".to_owned(), 1));
    // Even if the victim's could not be posted at the first attempt.
    let (queue, stats) = (Queue::new(2), EventStats::default());
    queue.push(victim(), at(0.0), &stats);
    let (key, pending) = queue.take(at(0.0)).expect("the victim's");
    queue.put_off(key, pending, at(0.0), |_| Duration::ZERO);
    (0..4).for_each(|n| queue.push(tenants(n), at(0.0), &stats));
    assert_eq!(all(&queue), [("s3".to_owned(), 1), ("db".to_owned(), 1)]);
}

/// A namespace that gets its next Event as soon as one is posted does not come before one that waits.
#[test]
fn an_empty_namespace_keeps_its_turn() {
    let (queue, stats) = (Queue::new(8), EventStats::default());
    let push = |namespace: &str, workload: &str| queue.push(lost(namespace, workload, "pod-0").remove(0), at(1.0), &stats);
    push("tenant", "s0");
    push("shop", "db");
    push("shop", "web");
    let mut taken = Vec::new();
    for n in 1..4 {
        let (key, _) = queue.take(at(2.0)).expect("an Event");
        if key.object.name.starts_with('s') {
            push("tenant", &format!("s{n}"));
        }
        taken.push(key.object.name);
    }
    assert_eq!(taken, ["s0", "db", "s1"]);
    assert_eq!(queue.take(at(2.0)).map(|(key, _)| key.object.name).as_deref(), Some("web"));
}

#[test]
fn clean_ignored_and_unattributed_terminations_give_no_event() {
    assert_eq!(
        notice::of(&pod(termination().term(0.3).exit(0.5, 0), "cart-1"), &observation()),
        []
    );
    let ignored = termination().with(|k| k.options.ignore = true).dropped_term(0.3).kill(10.3);
    assert_eq!(notice::of(&pod(ignored, "cart-1"), &observation()), []);
    let mut unattributed: Termination = termination().dropped_term(0.3).kill(10.3).judged();
    unattributed.kubernetes = None;
    assert_eq!(notice::of(&Report::Terminated(Box::new(unattributed)), &observation()), []);
}

/// What the kernel cannot tell apart is not an alarm.
#[test]
fn undecided_connections_give_no_event() {
    let with = |change: fn(&mut Traffic)| {
        let mut of = termination().term(0.3).exit(0.5, 0);
        change(&mut of.t.traffic);
        let report = pod(of, "cart-1");
        let Report::PodTerminated(pod) = &report else {
            panic!("a pod")
        };
        (pod.verdict.headline, notice::of(&report, &observation()).len())
    };
    assert_eq!(with(|traffic| traffic.undecided.all.count = 2), ("undecided-connections", 0));
    assert_eq!(with(|traffic| traffic.cut.count = 2), ("cut-connections", 2));
}

#[test]
fn a_discarded_stop_signal_gives_an_event_before_the_kill() {
    let stopped = termination().dropped_term(0.3).kill(10.3).judged();
    let context = stopped.kubernetes.clone().expect("a context");
    let early = StopSignalIgnored {
        key: stopped.key.clone(),
        subject: stopped.subject.clone(),
        container: None,
        main: stopped.main,
        at: at(0.3),
        signal: Signal::TERM,
        sender: Actor {
            tgid: Pid(1),
            role: Role::Runtime,
            ..stopped.facts.stop.clone().expect("a stop").sender
        },
        disposition: Disposition::Default,
        grace_left: None,
        sentence: verdict::in_container(
            &context,
            &verdict::ignored(stopped.main.as_ref(), Signal::TERM, Disposition::Default),
        ),
        kubernetes: Some(context),
    };
    let notices = notice::of(&Report::StopSignalIgnored(Box::new(early)), &observation());
    expect![[r#"
        StopSignalIgnored Deployment cart: pod `cart-7d9c-x2x1z`: container `app`: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal [cart.8a175a546175740e]
        StopSignalIgnored Pod cart-7d9c-x2x1z: container `app`: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal [cart-7d9c-x2x1z.a67020e5ed52ab00]
    "#]].assert_eq(&text(&notices));
}

#[test]
fn a_stuck_termination_gives_an_event_before_its_end() {
    let stuck = || termination().term(0.3).open(60.0).judged();
    let notices = notice::of(&Report::Stuck(Box::new(fixtures::pods::stuck(stuck()))), &observation());
    expect![[r#"
        TerminationStuck Deployment cart: pod `cart-7d9c-x2x1z`: container `app`: PID 1 `app` is still running 60 s after deletion was requested (grace period 10 s) [cart.2e051d20882ebd5c]
        TerminationStuck Pod cart-7d9c-x2x1z: container `app`: PID 1 `app` is still running 60 s after deletion was requested (grace period 10 s) [cart-7d9c-x2x1z.99bb1ce295e9df1e]
    "#]].assert_eq(&text(&notices));
    // The end is another Event.
    let ended = notice::of(&Report::Terminated(Box::new(stuck())), &observation());
    assert!(notices.iter().zip(&ended).all(|(stuck, ended)| stuck.key != ended.key));
}

#[test]
fn a_workload_that_is_a_node_or_the_pod_itself() {
    let of = |kind: &str| {
        let mut report = unclean("cart-1");
        let Report::PodTerminated(pod) = &mut report else {
            unreachable!("a pod's end")
        };
        let mut identity = (*pod.pod).clone();
        kind.clone_into(&mut identity.workload.kind);
        pod.facts.pod = Arc::new(identity);
        notice::of(&report, &observation())
    };
    assert_eq!(of("Pod").len(), 1);
    let node = of("Node").remove(0);
    assert_eq!(series::namespace(&node.key.object), "default");
    assert_eq!(
        (node.key.object.namespace, node.key.object.uid),
        (None, Some("cart".to_owned()))
    );
}

#[test]
fn a_note_is_bounded_and_shows_no_control_characters() {
    let mut report = unclean("cart-1");
    let Report::PodTerminated(pod) = &mut report else {
        unreachable!("a pod's end")
    };
    pod.verdict.sentence = format!("\u{1b}[2J{}", "ü".repeat(2_000));
    for notice in notice::of(&report, &observation()) {
        assert!(
            notice.note.len() <= 1024 && notice.note.len() > 1_000,
            "{}",
            notice.note.len()
        );
        assert!(!notice.note.contains('\u{1b}') && notice.note.ends_with('…'));
    }
}

fn filled(most: usize, reports: &[Report]) -> (Queue, EventStats) {
    let (queue, stats) = (Queue::new(most), EventStats::default());
    for report in reports {
        for notice in notice::of(report, &observation()) {
            queue.push(notice, at(0.0), &stats);
        }
    }
    (queue, stats)
}

fn all(queue: &Queue) -> Vec<(String, u64)> {
    std::iter::from_fn(|| queue.take(at(0.0)))
        .map(|(key, pending)| (key.object.name, pending.count))
        .collect()
}

#[test]
fn a_rollout_is_one_event_of_its_workload_and_a_repeated_termination_counts_once() {
    let reports: Vec<Report> = (0..100).map(|n| unclean(&format!("cart-{n}"))).collect();
    let again: Vec<Report> = reports.iter().chain(&reports).cloned().collect();
    for reports in [&reports, &again[100..]] {
        let (queue, _) = filled(512, reports);
        let waiting = all(&queue);
        assert_eq!(waiting.len(), 101);
        assert_eq!(waiting[0], ("cart".to_owned(), 100));
        assert!(waiting[1..].iter().all(|(_, count)| *count == 1));
    }
}

#[test]
fn a_full_queue_drops_and_counts_the_oldest_event_of_a_pod() {
    let reports: Vec<Report> = (0..5).map(|n| unclean(&format!("cart-{n}"))).collect();
    let (queue, stats) = filled(2, &reports);
    assert_eq!(all(&queue), [("cart".to_owned(), 5), ("cart-4".to_owned(), 1)]);
    assert_eq!(stats.get(Outcome::QueueFull), 4);
    queue.close();
    let notice = notice::of(&reports[0], &observation()).remove(0);
    queue.push(notice, at(0.0), &stats);
    assert_eq!(stats.get(Outcome::Shutdown), 1);
}

#[test]
fn an_event_that_is_put_back_merges_with_newer_terminations() {
    let (queue, stats) = filled(8, &[unclean("cart-1")]);
    let (key, pending) = queue.take(at(0.0)).expect("the workload's");
    for notice in notice::of(&unclean("cart-2"), &observation()) {
        queue.push(notice, at(1.0), &stats);
    }
    queue.put_back(key, pending.clone());
    let again: Vec<_> = std::iter::from_fn(|| queue.take(at(1.0))).collect();
    let workload: Vec<&Pending> = again
        .iter()
        .filter(|(key, _)| key.object.kind == "Deployment")
        .map(|(_, pending)| pending)
        .collect();
    assert_eq!(workload.len(), 1);
    assert_eq!(
        (workload[0].count, &workload[0].note, workload[0].attempts.since),
        (2, &pending.note, pending.attempts.since)
    );
}

#[test]
fn a_failed_event_delays_only_its_namespace() {
    let pause = |failed| Duration::from_secs(1_u64 << failed);
    let waiting = |queue: &Queue, now: Boot| {
        let taken: Vec<_> = std::iter::from_fn(|| queue.take(now)).collect();
        let mut names: Vec<String> = taken.iter().map(|(key, _)| key.object.name.clone()).collect();
        names.sort();
        taken.into_iter().for_each(|(key, pending)| queue.put_back(key, pending));
        names
    };
    let of_bad = |queue: &Queue, now: Boot| loop {
        let (key, pending) = queue.take(now).expect("one of `bad`");
        if series::namespace(&key.object) == "bad" {
            break (key, pending);
        }
        queue.put_back(key, pending);
    };
    let reports = ["bad", "shop", "bad"].iter().zip(["a", "b", "c"]);
    let reports: Vec<Report> = reports.map(|(namespace, name)| unclean_in(namespace, name)).collect();
    let (queue, stats) = filled(8, &reports);
    for (failed, at_once, later) in [(1.0, 1.5, 2.1), (3.0, 4.9, 5.1)] {
        let (key, pending) = of_bad(&queue, at(failed));
        queue.put_off(key, pending, at(failed), pause);
        // Events of other namespaces are due at once.
        assert_eq!(waiting(&queue, at(at_once)), ["b", "cart"]);
        // The rest of the namespace is due later.
        let all = waiting(&queue, at(later));
        assert_eq!(all.len(), 5, "{all:?}");
    }
    // A full queue drops an Event that could not be posted first.
    let (queue, stats_of_full) = filled(2, &reports[..1]);
    let (key, pending) = queue.take(at(0.0)).expect("the workload's");
    queue.put_off(key, pending, at(0.0), pause);
    let notice = notice::of(&reports[1], &observation()).remove(0);
    queue.push(notice, at(0.1), &stats_of_full);
    assert_eq!(stats_of_full.get(Outcome::QueueFull), 1);
    assert_eq!(waiting(&queue, at(60.0)), ["a", "cart"]);
    assert_eq!(stats.get(Outcome::QueueFull), 0);
}

/// An Event with waiting terminations.
fn pending(terminations: &[&str]) -> Pending {
    Pending {
        attempts: Attempts::from(Boot(0), Boot(0)),
        first: Wall(0),
        last: Wall(0),
        count: terminations.len() as u64,
        note: String::new(),
        workload: None,
        terminations: terminations.iter().map(|&id| id.to_owned()).collect(),
        sent: Vec::new(),
    }
}

#[test]
fn terminations_in_an_unanswered_request_are_not_counted_again() {
    let key = notice::of(&unclean("cart-1"), &observation()).remove(0).key;
    let mut waiting = Pending {
        count: 60,
        ..pending(&["y", "z"])
    };
    let created = Posted::read(&series::event(&key, &waiting, (AGENT, NODE)));
    waiting.remember_sent(created.clone());
    assert_eq!(created.with(&waiting), None);
    // Two more before the next attempt, which is not answered either.
    waiting.count += 2;
    waiting.terminations = vec!["z".into(), "za".into(), "zb".into()];
    waiting.remember_sent(Posted::read(&series::event(&key, &waiting, (AGENT, NODE))));
    let raised = created.with(&waiting).expect("two are new");
    assert_eq!(raised.count, 62);
    waiting.remember_sent(raised.clone());
    assert_eq!(raised.with(&waiting), None);
    // The API has an older Event: none of our requests arrived.
    let older = Posted {
        count: 10,
        terminations: vec!["b".into()],
    };
    assert_eq!(older.with(&waiting).expect("all are new").count, 72);
}

#[test]
fn a_termination_that_the_event_counts_already_is_not_counted_again() {
    let key = notice::of(&unclean("cart-1"), &observation()).remove(0).key;
    let event = series::event(&key, &pending(&["a", "b"]), (AGENT, NODE));
    let posted = Posted::read(&event);
    assert_eq!(posted.count, 2);
    assert_eq!(posted.with(&pending(&["b", "a"])), None);
    assert_eq!(posted.with(&pending(&["b", "c"])).expect("one is new").count, 3);
    assert_eq!(
        posted
            .with(&pending(&["b", "c"]))
            .expect("one is new")
            .patch(Wall(1_500_000_000), None)
            .to_string(),
        r#"{"metadata":{"annotations":{"epitaph.dev/deaths":"a,b,c"}},"series":{"count":3,"lastObservedTime":"1970-01-01T00:00:01.500000Z"}}"#
    );
    // A single termination is not a series: Kubernetes would refuse the series.
    assert_eq!(series::event(&key, &pending(&["a"]), (AGENT, NODE)).series, None);
}

/// Whoever may create Events in a namespace can write the annotation.
#[test]
fn of_a_forged_annotation_only_what_can_be_an_id_is_kept() {
    let key = notice::of(&unclean("cart-1"), &observation()).remove(0).key;
    let mut event = series::event(&key, &pending(&["a"]), (AGENT, NODE));
    let mut read = |text: &str| {
        let annotations = event.metadata.annotations.as_mut().expect("the annotation");
        annotations.values_mut().for_each(|value| text.clone_into(value));
        Posted::read(&event).terminations
    };
    let ids: Vec<String> = (0..1000).map(|n| format!("{n:010}")).collect();
    assert_eq!(read(&ids.join(",")), ids[1000 - 32..]);
    assert_eq!(read(",a,,b,"), ["a", "b"]);
    assert_eq!(read(""), [""; 0]);
    assert_eq!(read(&format!("0123456789{}", ",".repeat(256 * 1024))), [""; 0]);
    assert_eq!(read(&"ü".repeat(128 * 1024)), [""; 0]);
    assert_eq!(read("0123456789a,b"), ["b"]);
}

#[test]
fn a_403_names_the_rule() {
    let refused = kube::core::Status::failure("events is forbidden: User \"x\" cannot create", "Forbidden").with_code(403);
    let failure = super::api::failure(&kube::Error::Api(refused.boxed()), &AGENT_POST_EVENTS);
    assert!(line(&failure).contains(AGENT_POST_EVENTS.rule), "{failure}");
    // Other causes of a 403.
    for message in [
        "events.events.k8s.io \"x\" is forbidden: exceeded quota: few, requested: count/events=1\u{1b}[2J",
        "admission webhook \"no.example\" denied the request: not here",
    ] {
        let refused = kube::core::Status::failure(message, "Forbidden").with_code(403);
        let text = super::api::failure(&kube::Error::Api(refused.boxed()), &AGENT_POST_EVENTS).to_string();
        assert!(
            !text.contains("RBAC") && text.contains("403") && text.contains(&message[30..40]),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    let going = "unable to create new content in namespace shop because it is being terminated";
    let going = kube::core::Status::failure(going, "Forbidden").with_code(403);
    let failure = super::api::failure(&kube::Error::Api(going.boxed()), &AGENT_POST_EVENTS);
    assert!(!failure.to_string().contains("RBAC"), "{failure}");
}

#[test]
fn an_unclean_shutdown_is_an_event_on_the_node() {
    let notices = notice::of(&Report::NodeShutdown(Box::new(shutdowns::truncated())), &observation());
    let [notice] = notices.as_slice() else { panic!("{notices:?}") };
    let object = &notice.key.object;
    // `kubectl describe node` looks for Events with the name as the uid.
    assert_eq!((object.kind.as_str(), object.name.as_str()), ("Node", "node-7"));
    assert_eq!((object.uid.as_deref(), &object.namespace), (Some("node-7"), &None));
    assert_eq!(series::namespace(object), "default");
    expect!["UncleanShutdown truncated: the reboot did not wait for the shutdown of 1 of 2 pods: shop/cart-7d9f8b6c5-x2x4z (had 40.0 s of its 120 s) (normal phase took 40.0 s of 40 s, critical phase took 2.0 s of 20 s); logind's delay of 60 s expired before the kubelet released its lock; at least 2 pods stayed Ready in the API until the node was back, and a Service sends clients to Ready pods. Remedy: raise shutdownGracePeriod to 140 s, and logind's InhibitDelayMaxSec to at least 140 s, or shorten the shutdown of shop/cart-7d9f8b6c5-x2x4z, which may take 120 s"].assert_eq(&format!(
        "{} {}: {}",
        notice.key.reason.name(),
        notice.key.headline,
        notice.note
    ));

    let mut calm = shutdowns::truncated();
    calm.verdict.unclean = false;
    assert!(notice::of(&Report::NodeShutdown(Box::new(calm)), &observation()).is_empty());
}
