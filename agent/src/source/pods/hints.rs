//! Kubernetes Events on pods that just ended or restarted.
//!
//! No field of an Event selects one node's (there are `involvedObject.*`, `reason`, `source`, `reportingComponent`, `type`; not
//! `source.host`), so a watch would bring the whole cluster's. Instead they are listed per pod, when there is something to
//! explain: the cost follows the deaths on this node, not the size of the cluster.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep_until};

use super::asking::Asker;
use super::cache::Cache;
use super::convert::{MAX_MESSAGE, bounded};
use super::error::Action;
use super::stats::Stats;
use crate::attribute::PodUid;
use crate::clock;
use crate::event::{Boot, Input};
use crate::pod::{PodHint, PodIdentity};

/// Pods that wait for their turn.
pub(super) const QUEUE: usize = 256;

/// The kubelet hands its Events to a queue of its own: asked once at the end, and once more a little later.
const AGAIN: Duration = Duration::from_secs(2);

/// Newer ones are not worth more: Events of one pod are folded by reason.
const MAX_EVENTS: u32 = 100;

/// Events that were told already.
const TOLD: usize = 4096;

pub(super) struct Hints {
    client: Client,
    asker: Asker,
    inputs: Sender<Input>,
    /// UID of the Event and how often it had happened.
    told: Cache<(String, i32), ()>,
}

impl Hints {
    pub fn new(client: Client, stats: Arc<Stats>, inputs: Sender<Input>) -> Self {
        Hints {
            client,
            asker: Asker::new(stats),
            inputs,
            told: Cache::new(TOLD),
        }
    }

    /// Asks about each pod that comes, until nobody listens.
    pub async fn run(mut self, mut pods: Receiver<Arc<PodIdentity>>) {
        let mut later: VecDeque<(Instant, Arc<PodIdentity>)> = VecDeque::new();
        loop {
            let due = later.front().map(|(at, _)| *at);
            let pod = tokio::select! {
                pod = pods.recv() => {
                    let Some(pod) = pod else { return };
                    if later.len() < QUEUE {
                        later.push_back((Instant::now() + AGAIN, pod.clone()));
                    }
                    pod
                }
                () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {
                    let Some((_, pod)) = later.pop_front() else { continue };
                    pod
                }
            };
            if !self.tell(&pod).await {
                return;
            }
        }
    }

    /// False where nobody listens any more.
    async fn tell(&mut self, pod: &PodIdentity) -> bool {
        // By name: the kubelet's Events on a static pod have the UID of its file, not of its mirror.
        let of_pod = format!("involvedObject.kind=Pod,involvedObject.name={}", pod.name);
        let params = ListParams::default().fields(&of_pod).limit(MAX_EVENTS);
        let api: Api<Event> = Api::namespaced(self.client.clone(), &pod.namespace);
        let instead = "causes are then known by the API's other words alone";
        let Ok(events) = self.asker.ask(Action::Events, instead, api.list(&params)).await else {
            return true;
        };
        let seen = clock::now();
        for event in events.items {
            let Some(hint) = hint(&event, pod, seen) else { continue };
            let id = (event.metadata.uid.clone().unwrap_or_default(), happened(&event));
            if self.told.get(&id).is_some() {
                continue;
            }
            self.told.insert(id, ());
            if self.inputs.send(Input::PodHint(hint)).await.is_err() {
                return false;
            }
        }
        true
    }
}

fn happened(event: &Event) -> i32 {
    event.series.as_ref().and_then(|s| s.count).or(event.count).unwrap_or(1)
}

/// None where it is about another pod that had the name before.
fn hint(event: &Event, pod: &PodIdentity, seen: Boot) -> Option<PodHint> {
    let about = &event.involved_object;
    let uid = about.uid.as_deref()?;
    let is = |of: &PodUid| *of.0 == *uid;
    if !is(&pod.uid) && !is(&pod.cgroup_uid) {
        return None;
    }
    Some(PodHint {
        uid: pod.uid.clone(),
        seen,
        container: about.field_path.as_deref().and_then(container),
        reason: bounded(event.reason.as_deref()?, 128),
        message: bounded(event.message.as_deref().unwrap_or_default(), MAX_MESSAGE),
    })
}

/// `spec.containers{app}`, `spec.initContainers{init}`, `spec.ephemeralContainers{debugger}`.
fn container(path: &str) -> Option<String> {
    let (list, name) = path.strip_suffix('}')?.split_once('{')?;
    let is_list = matches!(list, "spec.containers" | "spec.initContainers" | "spec.ephemeralContainers");
    is_list.then(|| bounded(name, 253))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_named_by_its_field() {
        assert_eq!(container("spec.containers{app}").as_deref(), Some("app"));
        assert_eq!(container("spec.initContainers{proxy}").as_deref(), Some("proxy"));
        for path in ["", "spec.containers", "spec.containers{app", "status{app}"] {
            assert_eq!(container(path), None, "{path}");
        }
    }
}
