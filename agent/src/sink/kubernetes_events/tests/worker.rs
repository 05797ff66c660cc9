//! The loop that posts, against an API server that answers by a script.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use kube::Client;
use serde_json::{Value, json};

use super::{observation, unclean_in};
use crate::clock;
use crate::sink::kubernetes_events::{Outcome, Rate, Settings, Sink, start};

const SECOND: Duration = Duration::from_secs(1);

/// Method, path and body of each request.
type Received = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// `script` is asked with method, path and body; None is no answer at all.
async fn api(script: impl Fn(&Method, &str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static) -> (Client, Received) {
    let (received, script) = (Received::default(), Arc::new(script));
    let log = received.clone();
    let answer = move |method: Method, uri: Uri, body: Bytes| {
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let answer = script(&method, uri.path(), &body);
        log.lock().unwrap().push((method, uri.path().to_owned(), body));
        answered(answer)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    (Client::try_from(config).unwrap(), received)
}

async fn answered(answer: Option<(u16, Value)>) -> Response {
    let Some((code, body)) = answer else {
        return std::future::pending().await;
    };
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::from_u16(code).unwrap(), headers, body.to_string()).into_response()
}

fn status(code: u16, message: &str) -> Option<(u16, Value)> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message});
    Some((code, status))
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
    panic!("in vain: {what}");
}

#[tokio::test]
async fn a_namespace_that_takes_no_events_holds_up_no_other() {
    for (code, message) in [
        (500, "Internal error occurred: failed calling webhook \"x\""),
        (
            403,
            "events.events.k8s.io is forbidden: User \"x\" cannot create resource \"events\"",
        ),
    ] {
        let (client, received) = api(move |_, path, body| match path.contains("/bad/") {
            true => status(code, message),
            false => Some((201, body.clone())),
        })
        .await;
        // Longer than this test waits for anything.
        let (sink, worker) = start(client, settings(120 * SECOND), clock::now);
        for n in 0..5 {
            offer(&sink, "bad", &format!("bad-{n}"));
        }
        for n in 0..5 {
            offer(&sink, "shop", &format!("cart-{n}"));
        }
        until("those of the other namespace", || sink.stats().get(Outcome::Posted) == 10).await;
        let tried = |received: &Received| {
            let all = received.lock().unwrap();
            all.iter().filter(|(_, path, _)| path.contains("/bad/")).count()
        };
        assert_eq!(tried(&received), 1, "its namespace rests");
        worker.shutdown(SECOND).await;
    }
}

#[tokio::test]
async fn a_create_without_an_answer_counts_each_death_once() {
    let stored: Mutex<Option<Value>> = Mutex::default();
    let (client, received) = api(move |method, _, body| {
        if body["regarding"]["kind"] == "Pod" {
            return Some((201, body.clone()));
        }
        let mut stored = stored.lock().unwrap();
        match (method.as_str(), &*stored) {
            ("POST", None) => {
                *stored = Some(body.clone());
                None
            }
            ("POST", Some(_)) => status(409, "exists already"),
            (_, stored) => Some((200, stored.clone().unwrap())),
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
    until("all of the workload's", || sink.stats().get(Outcome::Known) == 60).await;
    until("all of the pods'", || sink.stats().get(Outcome::Posted) == 60).await;
    worker.shutdown(SECOND).await;
    let patches = received
        .lock()
        .unwrap()
        .iter()
        .filter(|(method, ..)| method == Method::PATCH)
        .count();
    assert_eq!(patches, 0);
}
