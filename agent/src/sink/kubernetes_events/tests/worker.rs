//! The posting loop, against an API server that answers by a script.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use super::{observation, unclean_in};
use crate::clock;
use crate::mock_api::{self, Answer, Received, Request};
use crate::sink::kubernetes_events::{Outcome, Rate, Settings, Sink, start};
use crate::waiting::until_task;

const SECOND: Duration = Duration::from_secs(1);

fn api(script: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> (Client, Received) {
    mock_api::start(move |request| std::future::ready(script(&request)))
}

fn settings(pause: Duration) -> Settings {
    Settings {
        rate: Rate {
            burst: 1000,
            per_second: 1000,
        },
        pause,
        longest_pause: pause,
        ..Settings::of_node("node-1")
    }
}

fn offer(sink: &Sink, namespace: &str, name: &str) {
    sink.offer(&unclean_in(namespace, name), &observation(), clock::now());
}

#[tokio::test]
async fn a_namespace_that_refuses_events_does_not_delay_others() {
    for (code, message) in [
        (500, "Internal error occurred: failed calling webhook \"x\""),
        (
            403,
            "events.events.k8s.io is forbidden: User \"x\" cannot create resource \"events\"",
        ),
    ] {
        let (client, received) = api(move |request| match request.path.contains("/bad/") {
            true => mock_api::failure(code, message),
            false => Answer::Json(201, request.body.clone()),
        });
        // Longer than any wait in this test.
        let (sink, worker) = start(client, settings(120 * SECOND), clock::now);
        for n in 0..5 {
            offer(&sink, "bad", &format!("bad-{n}"));
        }
        for n in 0..5 {
            offer(&sink, "shop", &format!("cart-{n}"));
        }
        until_task("the other namespace's Events", || sink.stats().get(Outcome::Posted) == 10).await;
        let tried = |received: &Received| {
            let all = received.lock().unwrap();
            all.iter().filter(|request| request.path.contains("/bad/")).count()
        };
        assert_eq!(tried(&received), 1, "its namespace rests");
        worker.shutdown(SECOND).await;
    }
}

#[tokio::test]
async fn a_create_without_an_answer_counts_each_termination_once() {
    let stored: Mutex<Option<Value>> = Mutex::default();
    let (client, received) = api(move |Request { method, body, .. }| {
        if body["regarding"]["kind"] == "Pod" {
            return Answer::Json(201, body.clone());
        }
        let mut stored = stored.lock().unwrap();
        match (method.as_str(), &*stored) {
            ("POST", None) => {
                *stored = Some(body.clone());
                Answer::Never
            }
            ("POST", Some(_)) => mock_api::failure(409, "exists already"),
            (_, stored) => Answer::Json(200, stored.clone().unwrap()),
        }
    });
    let settings = Settings {
        timeout: SECOND,
        ..settings(Duration::from_millis(10))
    };
    let (sink, worker) = start(client, settings, clock::now);
    for n in 0..60 {
        offer(&sink, "shop", &format!("cart-{n}"));
    }
    until_task("the workload's Events", || sink.stats().get(Outcome::Known) == 60).await;
    until_task("the pods' Events", || sink.stats().get(Outcome::Posted) == 60).await;
    worker.shutdown(SECOND).await;
    let patches = received
        .lock()
        .unwrap()
        .iter()
        .filter(|request| request.method == "PATCH")
        .count();
    assert_eq!(patches, 0);
}

/// A workload with pods on many nodes: an API server that keeps Events as Kubernetes does, and one agent for each node.
#[tokio::test]
async fn agents_of_many_nodes_share_the_workloads_event_and_have_a_sense_of_proportion() {
    let stored: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
    let kept = stored.clone();
    let (client, received) = api(move |Request { method, path, body, .. }| {
        let mut kept = kept.lock().unwrap();
        let name = path.rsplit('/').next().unwrap_or_default();
        match method.as_str() {
            "POST" => {
                let name = body["metadata"]["name"].as_str().expect("a name");
                match kept.contains_key(name) {
                    true => mock_api::failure(409, "exists already"),
                    false => keep(&mut kept, name, body.clone()),
                }
            }
            "GET" => Answer::Json(200, kept[name].clone()),
            _ => {
                let mut event = kept[name].clone();
                if !body["metadata"]["resourceVersion"].is_null() && version(body) != version(&event) {
                    return mock_api::failure(409, "the object has been modified");
                }
                event["series"] = body["series"].clone();
                event["metadata"]["annotations"] = body["metadata"]["annotations"].clone();
                keep(&mut kept, name, event)
            }
        }
    });
    const NODES: u64 = 120;
    let (mut posted, mut crowded) = (0, 0);
    for node in 0..NODES {
        let settings = Settings {
            node: format!("node-{node}"),
            ..settings(SECOND)
        };
        let (sink, worker) = start(client.clone(), settings, clock::now);
        offer(&sink, "shop", &format!("cart-{node}"));
        let count = |outcome| sink.stats().get(outcome);
        until_task("both Events", || count(Outcome::Posted) + count(Outcome::Crowded) == 2).await;
        posted += count(Outcome::Posted);
        crowded += count(Outcome::Crowded);
        worker.shutdown(SECOND).await;
    }
    let stored = stored.lock().unwrap();
    let of_workload: Vec<_> = stored.values().filter(|event| event["regarding"]["kind"] != "Pod").collect();
    assert_eq!(of_workload.len(), 1, "one Event for all nodes");
    assert_eq!(of_workload[0]["series"]["count"], 50);
    assert_eq!(stored.len(), 51, "no Event on the pod of a crowded workload");
    assert_eq!((posted, crowded), (100, 2 * NODES - 100));
    // Two requests of each further agent: a create that is refused, and a read.
    let writes = received
        .lock()
        .unwrap()
        .iter()
        .filter(|request| request.method == "PATCH")
        .count();
    assert_eq!(writes, 49);
}

/// Whoever may create Events in a namespace can take the name of one of ours first.
#[tokio::test]
async fn an_event_of_another_writer_is_not_counted_up() {
    for (field, value) in [
        ("reportingController", json!("example.com/other")),
        ("reason", json!("Healthy")),
        ("regarding", json!({"kind": "ConfigMap", "namespace": "shop", "name": "cart"})),
    ] {
        let taken: Mutex<Option<Value>> = Mutex::default();
        let (client, received) = api(move |Request { method, body, .. }| match method.as_str() {
            "POST" if body["regarding"]["kind"] == "Pod" => Answer::Json(201, body.clone()),
            "POST" => {
                let mut event = body.clone();
                event[field] = value.clone();
                event["metadata"]["annotations"] = json!({});
                event["metadata"]["resourceVersion"] = json!("7");
                *taken.lock().unwrap() = Some(event);
                mock_api::failure(409, "exists already")
            }
            _ => Answer::Json(200, taken.lock().unwrap().clone().unwrap()),
        });
        let (sink, worker) = start(client, settings(SECOND), clock::now);
        offer(&sink, "shop", "cart-1");
        until_task("the workload's Event", || sink.stats().get(Outcome::Foreign) == 1).await;
        until_task("the pod's Event", || sink.stats().get(Outcome::Posted) == 1).await;
        worker.shutdown(SECOND).await;
        let is_patched = received.lock().unwrap().iter().any(|request| request.method == "PATCH");
        assert!(!is_patched, "{field}");
    }
}

fn keep(kept: &mut BTreeMap<String, Value>, name: &str, mut event: Value) -> Answer {
    let newest = kept.values().map(version).max().unwrap_or_default();
    event["metadata"]["resourceVersion"] = (newest + 1).to_string().into();
    kept.insert(name.to_owned(), event.clone());
    Answer::Json(200, event)
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}
