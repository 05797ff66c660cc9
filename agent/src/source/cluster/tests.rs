//! The watch of pods while the API server is slow to return a ReplicaSet's owner.

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::mock_api::{self, Answer, Request};
use crate::waiting::until_task;

fn terminating(name: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-7d9", "uid": "o1", "controller": true});
    let meta = json!({
        "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "ownerReferences": [owner],
        "deletionTimestamp": "2026-11-21T11:44:10Z", "resourceVersion": "8",
    });
    json!({"metadata": meta, "spec": {"nodeName": "n1", "containers": []}})
}

/// An empty list, then a watch with two terminating pods. The owner's GET is answered after `may`.
async fn answer(request: Request, may: Arc<Notify>) -> Answer {
    if request.path.contains("replicasets") {
        may.notified().await;
        let owners = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart", "uid": "d1", "controller": true}]);
        let meta = json!({"name": "cart-7d9", "namespace": "shop", "uid": "o1", "ownerReferences": owners});
        return Answer::Json(
            200,
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": meta}),
        );
    }
    if !request.query.contains("watch=true") {
        return Answer::Json(200, json!({"metadata": {"resourceVersion": "7"}, "items": []}));
    }
    let (pieces, stream) = mpsc::unbounded_channel();
    for name in ["a", "b"] {
        let line = json!({"type": "MODIFIED", "object": terminating(name)});
        pieces.send(format!("{line}\n")).unwrap();
    }
    tokio::spawn(async move { pieces.closed().await });
    Answer::Stream(stream)
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_pod_does_not_wait_for_its_owner() {
    let may = Arc::new(Notify::new());
    let of_api = may.clone();
    let (client, _) = mock_api::start(move |request| answer(request, of_api.clone()));
    let (inputs, mut sent) = mpsc::channel(8);
    let (names, lookups) = Names::new(Owners::new(client.clone(), Arc::default()));
    let feed = Feed {
        watch: observe::Watch::Pods,
        inputs,
        counters: Arc::default(),
        failing: None,
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(lookups);
    let of_pods = names.clone();
    tasks.spawn(feed.run(&client, move |change| {
        pod_inputs(&of_pods, (&Allowed::default(), &Agents::of("epitaph")), change)
    }));
    for expected in [Input::ListBegin(observe::Watch::Pods), Input::ListEnd(observe::Watch::Pods)] {
        let (_, input) = sent.recv().await.expect("an input");
        assert_eq!(input, expected);
    }
    for name in ["a", "b"] {
        // A wait for the owner would take two seconds. Time is paused: a busy machine makes no such wait.
        let input = tokio::time::timeout(Duration::from_secs(1), sent.recv()).await;
        let Ok(Some((_, Input::Pod(sight)))) = input else {
            panic!("no change of {name}: {input:?}");
        };
        assert_eq!(
            (sight.identity.name.as_str(), sight.identity.workload.kind.as_str()),
            (name, "ReplicaSet")
        );
        assert_eq!(names.of(&sight.identity.uid), None);
    }
    may.notify_one();
    let of = |name: &str| names.of(&PodUid(format!("uid-{name}").into()));
    until_task("both names", || of("a").is_some() && of("b").is_some()).await;
    let named = of("b").expect("named");
    let workload = &named.workload;
    assert_eq!(
        (workload.kind.as_str(), workload.uid.as_deref(), named.service.name.as_str()),
        ("Deployment", Some("d1"), "cart")
    );
}
