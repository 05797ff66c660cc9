//! Events of the pods' watch → inputs of the core: a pod's workload, each version once, deleted pods.

use std::collections::HashSet;
use std::sync::Arc;

use epitaph_core::ids::PodUid;
use epitaph_core::input::Input;
use epitaph_core::pod::{PodEventsState, PodEventsUpdate, PodFact, PodGone, PodIdentity, PodsState};
use epitaph_core::time::Boot;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc::{self, Sender};

use super::convert::{self, Mirror, fact, identity};
use super::counters::{PodsCounters, PodsDropReason};
use super::known::Known;
use super::namespaces::Namespaces;
use super::options::{Allowed, Annotated, BadAnnotation};
use super::owners::Owners;
use crate::clock;
use crate::error::line;
use crate::source::watch::{Change, LeanPod, WatchEvent};

/// Most bad annotations that are remembered as logged.
const LOGGED: usize = 1024;

/// The receiver of the inputs is gone.
#[derive(Debug)]
pub(super) struct Closed;

pub(super) struct Publisher {
    pub inputs: Sender<Input>,
    /// Queue of pods for the lookup of Events.
    pub event_lookups: Sender<Arc<PodIdentity>>,
    pub owners: Owners,
    pub namespaces: Namespaces,
    pub allowed: Allowed,
    pub node: String,
    pub counters: Arc<PodsCounters>,
    pub known: Known,
    pub state: Option<PodsState>,
    pub logged: HashSet<(String, BadAnnotation)>,
    /// Pods whose cgroups another pod has, as logged.
    pub refused: HashSet<PodUid>,
}

impl Publisher {
    /// Before the first answer.
    pub async fn connecting(&mut self) -> Result<(), Closed> {
        self.state(PodsState::Away { reason: None }).await
    }

    /// `seen`: when the event arrived.
    pub async fn take(&mut self, seen: Boot, event: WatchEvent<LeanPod>) -> Result<(), Closed> {
        match event {
            WatchEvent::ListStarted => {
                self.known.begin();
                Ok(())
            }
            WatchEvent::Changed(Change::Applied { object, listed }) => {
                if listed && let Some(uid) = convert::uid(&object.0) {
                    self.known.listed(&uid);
                }
                self.changed(seen, object.0).await
            }
            WatchEvent::Changed(Change::Deleted(object)) => self.deleted(seen, object.0).await,
            WatchEvent::ListFinished => {
                for gone in self.known.end(seen) {
                    self.send(Input::PodGone(gone)).await?;
                }
                Ok(())
            }
            WatchEvent::Interrupted { error, .. } => {
                let reason = Some(line(&error));
                self.state(PodsState::Away { reason }).await
            }
            WatchEvent::Synced { gap } => {
                if let Some(gap) = gap {
                    let missed = gap.until.since(gap.since);
                    tracing::debug!(?missed, why = %gap.why, "the watch of this node's pods was interrupted");
                }
                self.state(PodsState::Synced).await
            }
        }
    }

    /// Sends and logs the state if it differs: retries with the same failure are not repeated.
    async fn state(&mut self, state: PodsState) -> Result<(), Closed> {
        if self.state.as_ref() == Some(&state) {
            return Ok(());
        }
        match &state {
            PodsState::Away { reason: Some(reason) } => {
                tracing::warn!("{reason}; kernel events are observed meanwhile, and missed changes are listed later");
            }
            PodsState::Away { reason: None } => {}
            PodsState::Synced => tracing::info!(node = %self.node, "the pods of this node are known"),
        }
        self.state = Some(state.clone());
        self.send(Input::Pods(state)).await
    }

    pub async fn closed(&self) {
        self.inputs.closed().await;
    }

    fn unreadable(&self) {
        self.counters.count_drop(PodsDropReason::Unreadable);
    }

    async fn changed(&mut self, seen: Boot, pod: Pod) -> Result<(), Closed> {
        let Some(uid) = convert::uid(&pod) else {
            self.unreadable();
            return Ok(());
        };
        let version = pod.metadata.resource_version.clone();
        if self.known.has(&uid, version.as_deref()) {
            return Ok(());
        }
        let Some((fact, is_resolved)) = self.fact(&pod, seen).await else {
            self.unreadable();
            return Ok(());
        };
        let fact = Arc::new(fact);
        if let Some(holder) = self.known.holder(&fact.pod) {
            self.refuse(&fact.pod, &holder);
            return Ok(());
        }
        match self.known.keep(fact.clone(), version, is_resolved) {
            Ok(wants_events) => {
                let pod = fact.pod.clone();
                self.send(Input::Pod(fact)).await?;
                if wants_events {
                    self.look_up_events(pod).await?;
                }
            }
            Err(_) => self.counters.count_drop(PodsDropReason::PodCap),
        }
        Ok(())
    }

    /// Two objects never share cgroups: what terminates there is one pod's.
    fn refuse(&mut self, pod: &PodIdentity, holder: &PodIdentity) {
        self.counters.count_drop(PodsDropReason::KeyTaken);
        if self.refused.len() >= LOGGED {
            self.refused.clear();
        }
        if self.refused.insert(pod.uid.clone()) {
            tracing::warn!(
                "pod {}/{} names the cgroups of pod {}/{} (hash {}) and is left out",
                pod.namespace,
                pod.name,
                holder.namespace,
                holder.name,
                pod.cgroup_uid.0
            );
        }
    }

    /// The object of a deletion is the pod's last version, with its final statuses: it is sent first.
    async fn deleted(&mut self, seen: Boot, pod: Pod) -> Result<(), Closed> {
        let uid = convert::uid(&pod);
        self.changed(seen, pod).await?;
        let Some(uid) = uid.filter(|uid| self.known.forget(uid)) else {
            return Ok(());
        };
        let gone = PodGone {
            uid,
            seen,
            watched: true,
        };
        self.send(Input::PodGone(gone)).await
    }

    async fn fact(&mut self, pod: &Pod, seen: Boot) -> Option<(PodFact, bool)> {
        let (identity, is_resolved) = match self.known.identity(&convert::uid(pod)?) {
            Some(known) => (known, true),
            None => {
                let (workload, is_resolved) = self.owners.workload(pod).await;
                (Arc::new(identity(pod, &self.node, workload)?), is_resolved)
            }
        };
        let Publisher {
            namespaces,
            logged,
            counters,
            allowed,
            node,
            ..
        } = self;
        let of_namespace = format!("namespace {}", identity.namespace);
        let namespace = namespaces
            .annotated(&identity.namespace, |bad| warn(logged, counters, &of_namespace, bad))
            .await
            .allowed(allowed, &identity.namespace, |bad| warn(logged, counters, &of_namespace, bad));
        let of_pod = format!("pod {}/{}", identity.namespace, identity.name);
        let own = Annotated::parse(pod.metadata.annotations.as_ref(), |bad| warn(logged, counters, &of_pod, bad)).allowed(
            allowed,
            &identity.namespace,
            |bad| warn(logged, counters, &of_pod, bad),
        );
        if convert::mirror(pod, node) == Mirror::Claimed {
            warn(logged, counters, &of_pod, BadAnnotation::Mirror);
        }
        Some((fact(pod, identity, own.over(&namespace), seen), is_resolved))
    }

    /// The request is announced before the next fact of the pod: a termination that follows waits for the answer.
    async fn look_up_events(&self, pod: Arc<PodIdentity>) -> Result<(), Closed> {
        let asked = PodEventsUpdate {
            uid: pod.uid.clone(),
            seen: clock::now(),
            state: PodEventsState::Asked,
        };
        self.send(Input::PodEvents(asked.clone())).await?;
        if let Err(mpsc::error::TrySendError::Full(_)) = self.event_lookups.try_send(pod) {
            self.counters.count_drop(PodsDropReason::EventQueueFull);
            let why = "more pods terminated at once than Events are listed for".to_owned();
            let state = PodEventsState::Unknown { why };
            self.send(Input::PodEvents(PodEventsUpdate { state, ..asked })).await?;
        }
        Ok(())
    }

    /// Waits for room, so that a busy loop loses no pod.
    async fn send(&self, input: Input) -> Result<(), Closed> {
        self.inputs.send(input).await.map_err(|_| Closed)
    }
}

/// Every version of a pod has its annotations: logged and counted once.
fn warn(logged: &mut HashSet<(String, BadAnnotation)>, counters: &PodsCounters, object: &str, bad: BadAnnotation) {
    let key = (object.to_owned(), bad);
    if logged.contains(&key) {
        return;
    }
    tracing::warn!("{}: {}", key.0, key.1);
    counters.count_drop(PodsDropReason::BadAnnotation);
    if logged.len() >= LOGGED {
        logged.clear();
    }
    logged.insert(key);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::pods::owners;

    #[tokio::test]
    async fn a_lookup_that_does_not_fit_the_queue_has_no_answer() {
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().expect("a URL"));
        let client = kube::Client::try_from(nowhere).expect("a client");
        let counters = Arc::new(PodsCounters::default());
        let (inputs, mut sent) = mpsc::channel(8);
        let (event_lookups, _queue) = mpsc::channel(1);
        let publisher = Publisher {
            inputs,
            event_lookups,
            owners: Owners::new(client.clone(), counters.clone()),
            namespaces: Namespaces::new(client, counters.clone()),
            allowed: Allowed::default(),
            node: "node-1".to_owned(),
            counters: counters.clone(),
            known: Known::default(),
            state: None,
            logged: HashSet::new(),
            refused: HashSet::new(),
        };
        let pod = serde_json::json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u"}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let pod = Arc::new(identity(&pod, "node-1", owners::by_labels(&pod)).expect("an identity"));
        for _ in 0..2 {
            publisher.look_up_events(pod.clone()).await.expect("a reader");
        }
        let mut states = Vec::new();
        while let Ok(Input::PodEvents(update)) = sent.try_recv() {
            states.push(update.state);
        }
        let why = "more pods terminated at once than Events are listed for".to_owned();
        assert_eq!(
            states,
            [PodEventsState::Asked, PodEventsState::Asked, PodEventsState::Unknown { why }]
        );
        assert_eq!(counters.dropped(PodsDropReason::EventQueueFull), 1);
    }
}
