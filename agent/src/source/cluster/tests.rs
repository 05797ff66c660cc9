//! The pods' watch beside an API server that is slow to say who owns a ReplicaSet.

use axum::Router;
use axum::http::header;
use kube::api::ListParams;
use serde_json::json;
use tokio::sync::Notify;

use super::*;

/// Answers once it may.
async fn slow_api() -> (Client, Arc<Notify>) {
    let may = Arc::new(Notify::new());
    let waits = may.clone();
    let answer = move || {
        let waits = waits.clone();
        async move {
            waits.notified().await;
            let owners =
                json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart", "uid": "d1", "controller": true}]);
            let meta = json!({"name": "cart-7d9", "namespace": "shop", "uid": "o1", "ownerReferences": owners});
            let found = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": meta});
            ([(header::CONTENT_TYPE, "application/json")], found.to_string())
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    (Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap(), may)
}

fn ending(name: &str) -> Pod {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-7d9", "uid": "o1", "controller": true});
    let meta = json!({
        "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "ownerReferences": [owner],
        "deletionTimestamp": "2026-11-21T11:44:10Z",
    });
    serde_json::from_value(json!({"metadata": meta, "spec": {"nodeName": "n1", "containers": []}})).unwrap()
}

#[tokio::test]
async fn a_pods_word_waits_for_no_answer_about_its_owner() {
    let (client, may) = slow_api().await;
    let (inputs, mut told) = mpsc::channel(8);
    let (names, asking) = Names::new(Owners::new(client, Arc::default()));
    let teller = Teller {
        watch: Watch::Pods,
        inputs,
        stats: Arc::default(),
        troubled: None,
    };
    let events = ["a", "b"].map(|name| Ok(Event::Apply(ending(name))));
    let mut tasks = JoinSet::new();
    tasks.spawn(asking);
    tasks.spawn(pods_told(teller, names.clone(), futures::stream::iter(events)));
    for name in ["a", "b"] {
        // An answer would be waited for for two seconds.
        let word = tokio::time::timeout(Duration::from_secs(1), told.recv()).await;
        let Ok(Some((_, Input::Pod(sight)))) = word else {
            panic!("no word of {name}: {word:?}");
        };
        assert_eq!(
            (sight.identity.name.as_str(), sight.identity.workload.kind.as_str()),
            (name, "ReplicaSet")
        );
        assert_eq!(names.of(&sight.identity.uid), None);
    }
    may.notify_one();
    let of = |name: &str| names.of(&PodUid(format!("uid-{name}").into()));
    for _ in 0..1000 {
        if let (Some(_), Some(named)) = (of("a"), of("b")) {
            let workload = &named.workload;
            assert_eq!(
                (workload.kind.as_str(), workload.uid.as_deref(), named.service.name.as_str()),
                ("Deployment", Some("d1"), "cart")
            );
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not named");
}

#[tokio::test]
async fn a_request_that_hangs_is_a_failure() {
    let (client, _never) = slow_api().await;
    let pods = Api::<Pod>::all(with_limit(&client, Duration::from_millis(50)));
    let answer = tokio::time::timeout(Duration::from_secs(20), pods.list(&ListParams::default())).await;
    let error = answer.expect("an end").expect_err("nobody answers");
    assert!(crate::error::chain(&error).contains("no answer within 50ms"), "{error:?}");
}
