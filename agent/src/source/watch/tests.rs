//! The requests of a watch, at an API server that answers by a script.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;
use crate::error;
use crate::mock_api::{self, Answer, Received};
use crate::waiting::LIMIT;

const PURPOSE: Purpose = Purpose {
    what: std::borrow::Cow::Borrowed("watch pods"),
    right: &crate::rights::AGENT_PODS,
};

fn watch(client: Client, answer: Duration) -> (Watch<LeanPod>, Arc<WatchCounters>) {
    let counters = Arc::new(WatchCounters::default());
    let options = WatchOptions {
        purpose: PURPOSE,
        namespace: None,
        field_selector: Some("spec.nodeName=n1".into()),
        timeout: Duration::from_secs(60),
        silence: Duration::from_secs(65),
        answer,
    };
    (Watch::new(client, options, counters.clone()), counters)
}

fn pod(name: &str, version: u32) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string()}})
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

/// The next event, as text.
async fn next(watch: &mut Watch<LeanPod>) -> String {
    let next = timeout(LIMIT, watch.next()).await;
    let name = |pod: &LeanPod| pod.0.metadata.name.clone().unwrap_or_default();
    match next.expect("an event in time").1 {
        WatchEvent::ListStarted => "list started".into(),
        WatchEvent::ListFinished => "list finished".into(),
        WatchEvent::Changed(Change::Applied { object, listed: true }) => format!("{} listed", name(&object)),
        WatchEvent::Changed(Change::Applied { object, .. }) => format!("{} applied", name(&object)),
        WatchEvent::Changed(Change::Deleted(object)) => format!("{} deleted", name(&object)),
        WatchEvent::Interrupted { error, .. } => error::line(&error),
        WatchEvent::Synced { gap } => format!("synced{}", if gap.is_some() { " after a gap" } else { "" }),
    }
}

async fn events(watch: &mut Watch<LeanPod>, count: usize) -> Vec<String> {
    let mut events = Vec::new();
    for _ in 0..count {
        events.push(next(watch).await);
    }
    events
}

/// Queries so far.
fn queries(received: &Received) -> Vec<String> {
    let all = received.lock().unwrap();
    all.iter().map(|request| request.query.clone()).collect()
}

/// Answers the n-th request, from 0 on.
fn api(script: impl Fn(usize) -> Answer + Send + Sync + 'static) -> (Client, Received) {
    let count = AtomicUsize::new(0);
    mock_api::start(move |_| std::future::ready(script(count.fetch_add(1, Ordering::Relaxed))))
}

/// A stream that ends when the caller drops the sender.
fn stream(pieces: &[String]) -> (UnboundedSender<String>, Answer) {
    let (sender, stream) = unbounded_channel();
    for piece in pieces {
        sender.send(piece.clone()).unwrap();
    }
    (sender, Answer::Stream(stream))
}

fn list(items: &[Value], version: &str, token: &str) -> Answer {
    Answer::Json(
        200,
        json!({"metadata": {"resourceVersion": version, "continue": token}, "items": items}),
    )
}

#[tokio::test(start_paused = true)]
async fn lists_come_from_the_watch_cache_and_a_watch_resumes_at_its_version() {
    let (client, received) = api(|n| match n {
        0 => list(&[pod("a", 5)], "10", "more"),
        1 => list(&[pod("b", 6)], "10", ""),
        2 => {
            let bookmark = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "12"}});
            let lines = [
                line("MODIFIED", &pod("a", 11)),
                line("DELETED", &pod("b", 11)),
                line("BOOKMARK", &bookmark),
            ];
            // Dropped: the server ends it.
            stream(&lines).1
        }
        _ => mock_api::failure(410, "too old resource version"),
    });
    let (mut watch, counters) = watch(client, ANSWER);
    let expected = [
        "list started",
        "a listed",
        "b listed",
        "list finished",
        "synced",
        "a applied",
        "b deleted",
    ];
    assert_eq!(events(&mut watch, 7).await, expected);
    assert_eq!(
        next(&mut watch).await,
        "cannot watch pods: the API server answered 410 too old resource version"
    );
    let node = "fieldSelector=spec.nodeName%3Dn1";
    assert_eq!(
        queries(&received),
        [
            format!("&{node}&resourceVersion=0&resourceVersionMatch=NotOlderThan"),
            format!("&{node}&limit=500&continue=more"),
            format!("&watch=true&timeoutSeconds=60&{node}&allowWatchBookmarks=true&resourceVersion=10"),
            format!("&watch=true&timeoutSeconds=60&{node}&allowWatchBookmarks=true&resourceVersion=12"),
        ]
    );
    // Then a list that is not older than the last bookmark.
    let more = next(&mut watch).await;
    assert!(more.contains("410"), "{more}");
    assert!(
        queries(&received)[4].contains("resourceVersion=12&resourceVersionMatch=NotOlderThan"),
        "{:?}",
        queries(&received)
    );
    assert_eq!((counters.answered(), counters.failed(FailureReason::Expired)), (3, 2));
}

#[test]
fn a_line_of_a_watch_has_a_change_a_bookmark_or_a_failure() {
    let read = |line: &str| match event::<LeanPod>(line.as_bytes()) {
        Ok(Reply::Change(Change::Applied { listed: false, .. }, version)) => format!("applied {version:?}"),
        Ok(Reply::Change(Change::Deleted(_), version)) => format!("deleted {version:?}"),
        Ok(Reply::Bookmark { version }) => format!("bookmark {version}"),
        Ok(_) => "another reply".to_owned(),
        Err(kube::Error::Api(status)) => format!("status {}", status.code),
        Err(kube::Error::SerdeError(_)) => "undecodable".to_owned(),
        Err(error) => format!("{error:?}"),
    };
    let pod = r#"{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "resourceVersion": "5"}, "spec": {"containers": [{"name": "\u0061"}]}}"#;
    let status = r#"{"kind": "Status", "status": "Failure", "message": "too old", "reason": "Expired", "code": 410}"#;
    for (line, expected) in [
        (format!(r#"{{"type": "ADDED", "object": {pod}}}"#), r#"applied Some("5")"#),
        (format!(r#"{{"type": "MODIFIED", "object": {pod}}}"#), r#"applied Some("5")"#),
        (format!(r#"{{"object": {pod}, "type": "DELETED"}}"#), r#"deleted Some("5")"#),
        (format!(r#"{{"type": "BOOKMARK", "object": {pod}}}"#), "bookmark 5"),
        (format!(r#"{{"type": "ERROR", "object": {status}}}"#), "status 410"),
        (status.to_owned(), "status 410"),
        (format!(r#"{{"type": "RENAMED", "object": {pod}}}"#), "undecodable"),
        (r#"{"type": "ADDED", "object": {"metadata": 5}}"#.to_owned(), "undecodable"),
        (r#"{"type": "ADDED"}"#.to_owned(), "undecodable"),
        (pod.to_owned(), "undecodable"),
    ] {
        assert_eq!(read(&line), expected, "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_is_a_failure() {
    let (client, _) = api(|_| Answer::Never);
    let (mut watch, counters) = watch(client, Duration::from_millis(50));
    assert_eq!(
        next(&mut watch).await,
        "cannot watch pods: the API server did not answer within 50ms"
    );
    assert_eq!(counters.failed(FailureReason::Timeout), 1);
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_list_is_a_failure() {
    let (client, _) = api(|_| {
        let (sender, answer) = stream(&[format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{},"#, pod("a", 5))]);
        tokio::spawn(async move { sender.closed().await });
        answer
    });
    let (mut watch, _) = watch(client, Duration::from_secs(2));
    assert_eq!(
        events(&mut watch, 3).await,
        [
            "list started",
            "a listed",
            "cannot watch pods: the API server did not answer within 2s"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_decoded_is_a_failure_and_then_a_list() {
    let (client, received) = api(|n| match n {
        0 => list(&[], "10", ""),
        1 => stream(&[line("ADDED", &pod("a", 11)), line("ADDED", &json!([1]))]).1,
        2 => list(&[pod("a", 11), json!({"metadata": 5})], "12", ""),
        _ => Answer::Never,
    });
    let (mut watch, counters) = watch(client, ANSWER);
    assert_eq!(
        events(&mut watch, 4).await,
        ["list started", "list finished", "synced", "a applied"]
    );
    let undecodable = "cannot watch pods: the answer cannot be decoded";
    let why = next(&mut watch).await;
    assert!(why.starts_with(undecodable), "{why}");
    // A list with an undecodable object would make the object look deleted.
    assert_eq!(events(&mut watch, 2).await, ["list started", "a listed"]);
    let why = next(&mut watch).await;
    assert!(why.starts_with(undecodable), "{why}");
    assert!(
        queries(&received)[2].contains("resourceVersion=11"),
        "{:?}",
        queries(&received)
    );
    assert_eq!(counters.failed(FailureReason::Undecodable), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_resumes_is_synced_when_its_backlog_ends() {
    let (client, _) = api(|n| match n {
        0 => list(&[], "10", ""),
        1 => mock_api::failure(500, "etcdserver: leader changed"),
        _ => {
            let (sender, answer) = stream(&[line("ADDED", &pod("a", 11))]);
            tokio::spawn(async move { sender.closed().await });
            answer
        }
    });
    let (mut watch, counters) = watch(client, ANSWER);
    assert_eq!(
        events(&mut watch, 6).await,
        [
            "list started",
            "list finished",
            "synced",
            "cannot watch pods: the API server answered 500 etcdserver: leader changed",
            "a applied",
            "synced after a gap",
        ]
    );
    assert_eq!(counters.gaps(), 1);
}

/// Ten thousand pods in one answer, as a watch cache sends them.
#[tokio::test(start_paused = true)]
async fn a_long_list_is_decoded_while_it_arrives() {
    const PODS: u32 = 10_000;
    let (sender, answer) = stream(&[r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":["#.to_owned()]);
    let answer = std::sync::Mutex::new(Some(answer));
    let (client, _) = api(move |_| answer.lock().unwrap().take().unwrap_or(Answer::Never));
    let (mut watch, _) = watch(client, ANSWER);
    for n in 0..PODS {
        let comma = if n == 0 { "" } else { "," };
        sender.send(format!("{comma}{}", pod(&n.to_string(), n))).unwrap();
    }
    // The last one is complete when the next byte is there.
    assert_eq!(next(&mut watch).await, "list started");
    for n in 0..PODS - 1 {
        assert_eq!(next(&mut watch).await, format!("{n} listed"));
    }
    sender.send("]}".to_owned()).unwrap();
    drop(sender);
    assert_eq!(
        events(&mut watch, 3).await,
        [format!("{} listed", PODS - 1), "list finished".into(), "synced".into()]
    );
}
