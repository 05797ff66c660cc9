//! The writing loop, against an API server that keeps objects as Kubernetes does; the requests to a real one are tested in
//! `tests/tests/epitaphs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epitaph_core::attribute::Subject;
use epitaph_core::fixtures::pods;
use epitaph_core::fixtures::terminations::observation;
use epitaph_core::ids::{ContainerId, PodUid};
use epitaph_core::observe::kept::{KeepLimits, RemovalReason};
use epitaph_core::render::resource::{CONTAINER, POD};
use epitaph_core::report::Report;
use epitaph_core::time::Wall;
use kube::Client;
use serde_json::{Map, Value, json};

use super::queue::Queue;
use super::*;
use crate::clock;
use crate::mock_api::{self, Answer, Received, Request};
use crate::rights;
use crate::waiting::until_task;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Objects by their path.
type Stored = Arc<Mutex<BTreeMap<String, Value>>>;

/// As Kubernetes keeps custom resources.
fn api() -> (Client, Received, Stored) {
    let stored = Stored::default();
    let kept = stored.clone();
    let (client, received) = mock_api::start(move |request| std::future::ready(answer(&mut kept.lock().unwrap(), &request)));
    (client, received, stored)
}

fn answer(stored: &mut BTreeMap<String, Value>, Request { method, path, body, .. }: &Request) -> Answer {
    if method.as_str() == "POST" {
        let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
        if stored.contains_key(&path) {
            return mock_api::failure(409, "epitaphs.epitaph.dev \"x\" already exists");
        }
        let mut object = body.clone();
        object["metadata"]["resourceVersion"] = json!("1");
        stored.insert(path, object.clone());
        return Answer::Json(201, object);
    }
    let Some(object) = stored.get_mut(path) else {
        return mock_api::failure(404, "epitaphs.epitaph.dev \"x\" not found");
    };
    let version = &body["metadata"]["resourceVersion"];
    if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
        return mock_api::failure(409, "the object has been modified");
    }
    let before = object.clone();
    merge(object, body);
    if *object != before {
        let next: u64 = before["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        object["metadata"]["resourceVersion"] = (next + 1).to_string().into();
    }
    Answer::Json(200, object.clone())
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().unwrap();
    for (name, value) in patch {
        match value {
            Value::Null => drop(target.remove(name)),
            value => merge(target.entry(name.clone()).or_insert(Value::Null), value),
        }
    }
}

fn settings() -> Settings {
    Settings {
        rate: Rate {
            burst: 1000,
            per_second: 1000,
        },
        pause: Duration::from_millis(10),
        longest_pause: Duration::from_millis(10),
        between: HOUR,
        ..Settings::default()
    }
}

fn pod_in(namespace: &str, name: &str) -> Report {
    let mut pod = pods::pod(1);
    let mut identity = (*pod.facts.pod).clone();
    identity.uid = PodUid(format!("uid-of-{name}").into());
    namespace.clone_into(&mut identity.namespace);
    name.clone_into(&mut identity.name);
    pod.facts.pod = Arc::new(identity);
    Report::PodTerminated(Box::new(pod))
}

/// The n-th restart of a container of a pod that lives on.
fn restart(n: u64) -> Report {
    let mut t = pods::restarted(n);
    if let Subject::Container { id, .. } = &mut t.facts.subject {
        *id = ContainerId(format!("{n:012x}").as_str().into());
    }
    t.facts.end.0 += n * 1_000_000_000;
    Report::Terminated(Box::new(t))
}

fn offer(sink: &Sink, report: &Report) {
    sink.offer(report, &observation(), None, clock::now());
}

async fn counted(sink: &Sink, outcome: EpitaphOutcome, count: u64) {
    until_task(outcome.name(), || sink.stats().get(outcome) >= count).await;
    assert_eq!(sink.stats().get(outcome), count, "{:?}", sink.stats());
}

fn requests(received: &Received) -> Vec<String> {
    let all = received.lock().unwrap();
    let shown = all.iter().map(|request| match &request.body {
        Value::Object(body) if body.is_empty() => format!("{} {{}}", request.method),
        _ => request.method.to_string(),
    });
    shown.collect()
}

fn only(stored: &Stored) -> Value {
    let stored = stored.lock().unwrap();
    assert_eq!(stored.len(), 1, "{:?}", stored.keys());
    stored.values().next().unwrap().clone()
}

fn listed(object: &Value) -> Vec<String> {
    let containers = object["report"]["containers"].as_array().unwrap().iter();
    containers.map(|of| of["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_pod_is_written_once_also_by_an_agent_that_was_started_again() {
    let (client, received, stored) = api();
    let report = pod_in("shop", "cart-1");
    let (sink, worker) = start(client.clone(), settings(), clock::now);
    offer(&sink, &report);
    counted(&sink, EpitaphOutcome::Written, 1).await;
    worker.shutdown(SECOND).await;
    let first = only(&stored);
    assert_eq!(requests(&received), ["POST"]);

    let (sink, worker) = start(client, settings(), clock::now);
    offer(&sink, &report);
    counted(&sink, EpitaphOutcome::Known, 1).await;
    worker.shutdown(SECOND).await;
    assert_eq!(only(&stored), first);
    assert_eq!(requests(&received), ["POST", "POST", "PATCH {}"]);
}

#[tokio::test]
async fn a_pod_that_lives_on_is_written_at_most_once_a_while_with_all_its_container_terminations() {
    let (client, received, stored) = api();
    let (sink, worker) = start(client.clone(), settings(), clock::now);
    offer(&sink, &restart(1));
    counted(&sink, EpitaphOutcome::Written, 1).await;
    for n in 2..=4 {
        offer(&sink, &restart(n));
    }
    // The marker behind them: another pod is written at once.
    offer(&sink, &pod_in("shop", "other"));
    counted(&sink, EpitaphOutcome::Written, 2).await;
    assert_eq!(requests(&received), ["POST", "POST"]);
    // At the end nothing waits.
    worker.shutdown(SECOND).await;
    assert_eq!(sink.stats().get(EpitaphOutcome::Written), 5);
    assert_eq!(requests(&received), ["POST", "POST", "PATCH"]);
    let path = |stored: &Stored| {
        let stored = stored.lock().unwrap();
        let found = stored.iter().find(|(path, _)| !path.contains("other")).unwrap();
        found.1.clone()
    };
    assert_eq!(listed(&path(&stored)).len(), 4);
    assert_eq!(path(&stored)["report"]["terminated"], CONTAINER);

    // The next run goes on with the list, which it reads by a patch that changes nothing.
    let (sink, worker) = start(client, settings(), clock::now);
    offer(&sink, &restart(5));
    counted(&sink, EpitaphOutcome::Written, 1).await;
    // The pod's own termination does not wait.
    let mut pod = pods::pod(6);
    pod.facts.end.0 += 60_000_000_000;
    offer(&sink, &Report::PodTerminated(Box::new(pod)));
    counted(&sink, EpitaphOutcome::Written, 2).await;
    worker.shutdown(SECOND).await;
    assert_eq!(
        requests(&received)[3..],
        ["POST", "PATCH {}", "PATCH", "PATCH"],
        "the last is known"
    );
    let last = path(&stored);
    assert_eq!(last["report"]["terminated"], POD);
    let all = listed(&last);
    assert!((1..=5).all(|n| all.contains(&format!("{n:012x}"))), "{all:?}");
}

#[tokio::test]
async fn without_the_kind_everything_is_counted_and_with_it_everything_is_written() {
    let absent = || mock_api::failure(404, "the server could not find the requested resource");
    let (client, _) = mock_api::start(move |_| std::future::ready(absent()));
    let refused = |give_up_refused| Settings {
        give_up_refused,
        ..settings()
    };
    let (sink, worker) = start(client, refused(Duration::ZERO), clock::now);
    for n in 0..20 {
        offer(&sink, &pod_in("shop", &format!("cart-{n}")));
    }
    counted(&sink, EpitaphOutcome::KindAbsent, 20).await;
    worker.shutdown(SECOND).await;

    // Installed a moment later than the agent.
    let (stored, answers) = (Stored::default(), Mutex::new(0));
    let (client, _) = mock_api::start(move |request| {
        let mut answers = answers.lock().unwrap();
        *answers += 1;
        std::future::ready(match *answers {
            ..4 => absent(),
            _ => answer(&mut stored.lock().unwrap(), &request),
        })
    });
    let (sink, worker) = start(client, refused(HOUR), clock::now);
    for n in 0..20 {
        offer(&sink, &pod_in("shop", &format!("cart-{n}")));
    }
    counted(&sink, EpitaphOutcome::Written, 20).await;
    worker.shutdown(SECOND).await;
}

/// Whoever may create Epitaphs in a namespace can take the name of one of ours first.
#[tokio::test]
async fn an_object_of_another_pod_or_node_is_not_written_over() {
    for (field, value) in [
        ("node", json!("node-8")),
        ("pod", json!({"name": "x", "uid": "other"})),
        ("pod", json!(7)),
    ] {
        let (client, received, stored) = api();
        let (sink, worker) = start(client.clone(), settings(), clock::now);
        offer(&sink, &pod_in("shop", "cart-1"));
        counted(&sink, EpitaphOutcome::Written, 1).await;
        worker.shutdown(SECOND).await;
        let taken = {
            let mut stored = stored.lock().unwrap();
            let object = stored.values_mut().next().unwrap();
            object["report"][field] = value;
            object.clone()
        };
        let (sink, worker) = start(client, settings(), clock::now);
        offer(&sink, &pod_in("shop", "cart-1"));
        counted(&sink, EpitaphOutcome::Foreign, 1).await;
        worker.shutdown(SECOND).await;
        assert_eq!(only(&stored), taken);
        assert_eq!(requests(&received), ["POST", "POST", "PATCH {}"]);
    }
}

#[tokio::test]
async fn a_namespace_that_refuses_objects_does_not_delay_others() {
    for (code, message, outcome) in [
        (500, "Internal error occurred: failed calling webhook \"x\"", None),
        (
            403,
            "epitaphs.epitaph.dev is forbidden: User \"x\" cannot create resource \"epitaphs\"",
            None,
        ),
        (
            403,
            "epitaphs.epitaph.dev \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no",
            Some(EpitaphOutcome::Refused),
        ),
        (404, "namespaces \"bad\" not found", Some(EpitaphOutcome::NamespaceGone)),
        (
            403,
            "epitaphs.epitaph.dev \"x\" is forbidden: exceeded quota: q",
            Some(EpitaphOutcome::Rejected),
        ),
    ] {
        let stored = Stored::default();
        let (client, received) = mock_api::start(move |request| {
            std::future::ready(match request.path.contains("/bad/") {
                true => mock_api::failure(code, message),
                false => answer(&mut stored.lock().unwrap(), &request),
            })
        });
        let settings = Settings {
            pause: HOUR,
            longest_pause: HOUR,
            ..settings()
        };
        let (sink, worker) = start(client, settings, clock::now);
        for namespace in ["bad", "shop"] {
            for n in 0..5 {
                offer(&sink, &pod_in(namespace, &format!("cart-{n}")));
            }
        }
        counted(&sink, EpitaphOutcome::Written, 5).await;
        match outcome {
            Some(outcome) => counted(&sink, outcome, 5).await,
            None => {
                let all = received.lock().unwrap();
                let tried = all.iter().filter(|request| request.path.contains("/bad/")).count();
                assert_eq!(tried, 1, "its namespace rests");
            }
        }
        worker.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_create_without_an_answer_is_one_object() {
    let (stored, first) = (Stored::default(), Mutex::new(true));
    let kept = stored.clone();
    let (client, _) = mock_api::start(move |request| {
        let answer = answer(&mut kept.lock().unwrap(), &request);
        let is_first = std::mem::take(&mut *first.lock().unwrap());
        std::future::ready(if is_first { Answer::Never } else { answer })
    });
    let settings = Settings {
        timeout: Duration::from_millis(200),
        ..settings()
    };
    let (sink, worker) = start(client, settings, clock::now);
    offer(&sink, &pod_in("shop", "cart-1"));
    counted(&sink, EpitaphOutcome::Known, 1).await;
    worker.shutdown(SECOND).await;
    only(&stored);
}

#[test]
fn a_full_queue_loses_a_clean_object_of_the_namespace_with_the_most() {
    let (queue, stats) = (Queue::new(4, HOUR), EpitaphStats::default());
    let push = |report: &Report| {
        let epitaph = resource::of(report, &observation()).unwrap();
        queue.push(Object::Pod(Box::new(epitaph)), clock::now(), &stats);
    };
    let mut clean = pod_in("shop", "clean");
    if let Report::PodTerminated(pod) = &mut clean {
        pod.verdict.unclean = false;
    }
    for report in [
        pod_in("shop", "a"),
        clean,
        pod_in("shop", "b"),
        pod_in("bank", "c"),
        pod_in("bank", "d"),
    ] {
        push(&report);
    }
    assert_eq!(stats.get(EpitaphOutcome::QueueFull), 1);
    let left = std::iter::from_fn(|| queue.take(clock::now()));
    let name_of = |object: Object| match object {
        Object::Pod(epitaph) => epitaph.report.pod.name,
        other => panic!("not of a pod: {other:?}"),
    };
    let left: Vec<String> = left.map(|(_, waiting)| name_of(waiting.object)).collect();
    assert_eq!(left, ["a", "c", "b", "d"], "and namespaces take turns");
}

/// Of a list of metadata, the n-th object: every second is unclean.
fn listed_object(n: u64) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {
            "name": format!("cart-{n}"), "namespace": "shop", "uid": format!("uid-{n}"), "resourceVersion": format!("{n}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"epitaph.dev/unclean": (n % 2 == 1).to_string()},
            // The last write, a second apart.
            "managedFields": [{"time": format!("2026-01-01T01:00:{n:02}Z")}],
        },
    })
}

fn listed_page(objects: std::ops::Range<u64>, next: &str) -> Answer {
    let items: Vec<Value> = objects.map(listed_object).collect();
    let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"continue": next}, "items": items});
    Answer::Json(200, list)
}

/// Half an hour after the last of [`listed_object`]s was written.
fn later() -> Wall {
    Wall::parse_rfc3339("2026-01-01T01:30:00Z").unwrap()
}

fn keeping(limits: KeepLimits) -> KeepSettings {
    KeepSettings {
        limits,
        every: Duration::from_millis(10),
        pause: Duration::ZERO,
        ..KeepSettings::default()
    }
}

#[tokio::test]
async fn the_observer_removes_what_is_over_the_bounds_and_only_as_it_was_listed() {
    let (client, received) = mock_api::start(|request| {
        std::future::ready(match (request.method.as_str(), request.query.contains("continue=more")) {
            ("GET", false) => listed_page(0..5, "more"),
            ("GET", true) => listed_page(5..10, ""),
            // Written again since.
            _ if request.path.ends_with("/cart-2") => {
                mock_api::failure(409, "the UID or version in the precondition does not match")
            }
            _ => mock_api::failure(200, ""),
        })
    });
    let stats = Arc::new(KeepStats::default());
    let limits = KeepLimits {
        per_namespace: 6,
        ..KeepLimits::default()
    };
    let keeper = keep(client, keeping(limits), stats.clone(), later, &rights::OBSERVER_EPITAPHS);
    until_task("a sweep", || stats.kept() > 0).await;
    assert_eq!(stats.kept(), 7, "one was written again");
    drop(keeper);
    assert_eq!(stats.kept(), 0, "not active any more");
    let received = received.lock().unwrap();
    let deletes = received.iter().filter(|request| request.method == "DELETE").take(4);
    let deletes: Vec<(&str, &Value)> = deletes
        .map(|request| (request.path.rsplit('/').next().unwrap(), &request.body["preconditions"]))
        .collect();
    let only = |n: u64| json!({"uid": format!("uid-{n}"), "resourceVersion": format!("{n}")});
    // Five unclean ones and the latest clean one stay.
    let expected = [6, 4, 2, 0].map(|n| (format!("cart-{n}"), only(n)));
    assert_eq!(deletes, expected.each_ref().map(|(name, only)| (name.as_str(), only)));
    assert!(stats.removed(RemovalReason::Namespace) >= 3 && stats.removed(RemovalReason::Age) == 0);
}

/// Of a revision: the n-th of three, which is due as the third last.
fn of_revision(n: u64, full: bool, terminated: &str) -> Value {
    let mut object = listed_object(n);
    let hash = ["old", "three", "two", "new"][n as usize / 3];
    object["metadata"]["labels"] = json!({
        "epitaph.dev/unclean": "false", "epitaph.dev/workload-kind": "Deployment", "epitaph.dev/workload": "web",
        "epitaph.dev/revision": hash,
    });
    if full {
        object["apiVersion"] = "epitaph.dev/v1alpha1".into();
        object["kind"] = "Epitaph".into();
        object["report"] = json!({"terminated": terminated});
    }
    object
}

#[tokio::test]
async fn the_clean_ones_of_a_revision_go_by_one_request_where_none_of_them_is_written_again() {
    let together = "/apis/epitaph.dev/v1alpha1/namespaces/shop/epitaphs";
    for (what, terminated, changed, forbidden, is_together) in [
        ("all of them go", "Pod", None, false, true),
        ("their pods live on", "Container", None, false, false),
        ("one was written since", "Pod", Some(1), false, false),
        ("another one came", "Pod", Some(3), false, false),
        ("a role without the right", "Pod", None, true, false),
    ] {
        let list = move |objects: Vec<Value>| {
            Answer::Json(
                200,
                json!({"apiVersion": "epitaph.dev/v1alpha1", "kind": "EpitaphList", "metadata": {"resourceVersion": "99"}, "items": objects}),
            )
        };
        let (client, received) = mock_api::start(move |request| {
            std::future::ready(match (request.method.as_str(), request.path == together) {
                ("GET", true) => {
                    let mut objects: Vec<Value> = (0..3).map(|n| of_revision(n, true, terminated)).collect();
                    match changed {
                        Some(3) => objects.push(of_revision(3, true, terminated)),
                        Some(n) => objects[n]["metadata"]["resourceVersion"] = "50".into(),
                        None => {}
                    }
                    list(objects)
                }
                ("GET", false) if request.path.ends_with("/nodeepitaphs") => list(Vec::new()),
                ("GET", false) => list((0..12).map(|n| of_revision(n, false, "")).collect()),
                ("DELETE", true) if forbidden => {
                    mock_api::failure(403, "epitaphs.epitaph.dev is forbidden: User \"x\" cannot deletecollection")
                }
                _ => mock_api::failure(200, ""),
            })
        });
        let stats = Arc::new(KeepStats::default());
        let limits = KeepLimits {
            clean: Duration::ZERO,
            ..KeepLimits::default()
        };
        let keeper = keep(client, keeping(limits), stats.clone(), later, &rights::OBSERVER_EPITAPHS);
        // The first sweep is complete when the second has begun.
        let lists = |received: &Received| {
            let all = received.lock().unwrap();
            all.iter().filter(|request| request.path.ends_with("/nodeepitaphs")).count()
        };
        until_task("a second sweep", || lists(&received) > 1).await;
        drop(keeper);
        let received = received.lock().unwrap();
        let second = received.iter().rposition(|request| request.path.ends_with("/nodeepitaphs"));
        let of_first = received[..second.unwrap()]
            .iter()
            .filter(|request| request.method == "DELETE");
        let deletes: Vec<(&str, &str)> = of_first
            .map(|request| (request.path.rsplit('/').next().unwrap(), request.query.as_str()))
            .collect();
        let query = "&labelSelector=epitaph.dev%2Fworkload-kind%3DDeployment%2Cepitaph.dev%2Fworkload%3Dweb%2Cepitaph.dev%2Frevision%3Dold\
                     %2Cepitaph.dev%2Funclean%3Dfalse&resourceVersion=99&resourceVersionMatch=Exact";
        let mut expected = Vec::new();
        if is_together || forbidden {
            expected.push(("epitaphs", query));
        }
        if !is_together {
            expected.extend(["cart-0", "cart-1", "cart-2"].map(|name| (name, "")));
        }
        assert_eq!(deletes, expected, "{what}");
        assert_eq!(stats.failed(), 0, "{what}");
        assert!(stats.removed(RemovalReason::Age) >= 3, "{what}");
    }
}

#[tokio::test]
async fn an_observer_without_the_right_counts_and_goes_on() {
    let (client, _) = mock_api::start(|_| {
        std::future::ready(mock_api::failure(
            403,
            "epitaphs.epitaph.dev is forbidden: User \"x\" cannot list",
        ))
    });
    let stats = Arc::new(KeepStats::default());
    let _keeper = keep(
        client,
        keeping(KeepLimits::default()),
        stats.clone(),
        later,
        &rights::OBSERVER_EPITAPHS,
    );
    until_task("a second attempt", || stats.failed() >= 2).await;
}
