//! The posting loop, against an API server that answers by a script.

use std::sync::Mutex;
use std::time::Duration;

use kube::Client;
use serde_json::Value;

use super::{observation, unclean_in};
use crate::clock;
use crate::mock_api::{self, Answer, Received, Request};
use crate::sink::kubernetes_events::{Outcome, Rate, Settings, Sink, start};

const SECOND: Duration = Duration::from_secs(1);

async fn api(script: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> (Client, Received) {
    mock_api::start(move |request| std::future::ready(script(&request))).await
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

/// A guard against a hang, not a measure.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out waiting for {what}");
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
        })
        .await;
        // Longer than any wait in this test.
        let (sink, worker) = start(client, settings(120 * SECOND), clock::now);
        for n in 0..5 {
            offer(&sink, "bad", &format!("bad-{n}"));
        }
        for n in 0..5 {
            offer(&sink, "shop", &format!("cart-{n}"));
        }
        until("the other namespace's Events", || sink.stats().get(Outcome::Posted) == 10).await;
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
    })
    .await;
    let settings = Settings {
        timeout: SECOND,
        ..settings(Duration::from_millis(10))
    };
    let (sink, worker) = start(client, settings, clock::now);
    for n in 0..60 {
        offer(&sink, "shop", &format!("cart-{n}"));
    }
    until("the workload's Events", || sink.stats().get(Outcome::Known) == 60).await;
    until("the pods' Events", || sink.stats().get(Outcome::Posted) == 60).await;
    worker.shutdown(SECOND).await;
    let patches = received
        .lock()
        .unwrap()
        .iter()
        .filter(|request| request.method == "PATCH")
        .count();
    assert_eq!(patches, 0);
}
