//! Events of the pods' watch → inputs of the core: a pod's workload, each version once, deleted pods.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use epitaph_core::ids::PodUid;
use epitaph_core::input::Input;
use epitaph_core::pod::{PodFact, PodGone, PodIdentity, PodsState};
use epitaph_core::time::Boot;
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc::Sender;

use super::convert::{self, Mirror, fact, identity};
use super::counters::{PodsCounters, PodsDropReason};
use super::known::Known;
use super::namespaces::Namespaces;
use super::options::{Allowed, Annotated, BadAnnotation};
use super::owners::Owners;
use crate::error::line;
use crate::source::watch::{Change, LeanPod, WatchEvent};

/// Most bad annotations that are remembered as logged.
const LOGGED: usize = 1024;

/// Most look-ups of owners and namespaces at the same time.
const AT_ONCE: usize = 8;

/// The receiver of the inputs is gone.
#[derive(Debug)]
pub(super) struct Closed;

pub(super) struct Publisher {
    pub inputs: Sender<Input>,
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

    /// Looks up at the same time what the pods of these events need: a new node has dozens of owners and namespaces.
    pub async fn prepare(&self, events: &[(Boot, WatchEvent<LeanPod>)]) {
        let pods = events.iter().filter_map(|(_, event)| match event {
            WatchEvent::Changed(Change::Applied { object, .. } | Change::Deleted(object)) => Some(&object.0),
            _ => None,
        });
        let is_new = |pod: &&Pod| convert::uid(pod).is_some_and(|uid| self.known.identity(&uid).is_none());
        let names = pods.clone().filter_map(|pod| pod.metadata.namespace.as_deref());
        let names: BTreeSet<&str> = names.filter(|name| !self.namespaces.is_fresh(name)).collect();
        let owners = pods
            .filter(is_new)
            .map(|pod| self.owners.workload(pod).map(drop).left_future());
        let namespaces = names
            .into_iter()
            .map(|name| self.namespaces.annotated(name).map(drop).right_future());
        let lookups: Vec<_> = owners.chain(namespaces).collect();
        stream::iter(lookups).buffer_unordered(AT_ONCE).collect::<()>().await;
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
            PodsState::Synced => {
                tracing::info!(node = %self.node, "connected to the Kubernetes API: the pods of this node are listed and watched")
            }
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
        for _ in 0..self.known.keep(fact.clone(), version, is_resolved) {
            self.counters.count_drop(PodsDropReason::PodCap);
        }
        self.send(Input::Pod(fact)).await
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
        let (namespace, bad) = namespaces.annotated(&identity.namespace).await;
        bad.into_iter().for_each(|bad| warn(logged, counters, &of_namespace, bad));
        let namespace = namespace.allowed(allowed, &identity.namespace, |bad| warn(logged, counters, &of_namespace, bad));
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
