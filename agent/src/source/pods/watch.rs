//! The pods of this node, by field selector: the API server sends no pods of other nodes.

use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;

use super::error::Action;
use super::publisher::Publisher;
use crate::source::watch::{ANSWER, LeanPod, Watch, WatchOptions};

/// Long: one request per node and five minutes.
const TIMEOUT: Duration = Duration::from_secs(290);

/// The API server's watch cache sends a bookmark each minute or so.
const SILENCE: Duration = Duration::from_secs(100);

/// Most events that are read before they are published: their owners are looked up at the same time. Few: a pod can be large.
const AHEAD: usize = 16;

/// Runs until the receiver of the inputs is gone.
pub(super) async fn run(client: Client, mut publisher: Publisher) {
    let options = WatchOptions {
        purpose: Action::Pods.purpose(),
        namespace: None,
        field_selector: Some(format!("spec.nodeName={}", publisher.node)),
        timeout: TIMEOUT,
        silence: SILENCE,
        answer: ANSWER,
    };
    let mut watch = Watch::<LeanPod>::new(client, options, publisher.counters.watch.clone());
    if publisher.connecting().await.is_err() {
        return;
    }
    let (sender, mut events) = mpsc::channel(AHEAD);
    let read = async move { while sender.send(watch.next().await).await.is_ok() {} };
    let publish = async move {
        let mut batch = Vec::with_capacity(AHEAD);
        loop {
            tokio::select! {
                _ = events.recv_many(&mut batch, AHEAD) => {}
                () = publisher.closed() => return,
            }
            publisher.prepare(&batch).await;
            for (seen, event) in batch.drain(..) {
                if publisher.take(seen, event).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = publish => {}
    }
}
