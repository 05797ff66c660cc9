//! What the watch saw, made into inputs: who it is, what it is, what is gone.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc::{self, Sender};

use super::convert::{self, fact, identity};
use super::known::Known;
use super::namespaces::Namespaces;
use super::options::{Annotated, BadAnnotation};
use super::owners::Owners;
use super::stats::{DropReason, Stats};
use crate::clock;
use crate::input::Input;
use crate::pod::{HintsState, PodFact, PodGone, PodHints, PodIdentity, PodsState};
use crate::time::Boot;

/// Bad annotations that were said once.
const SAID: usize = 1024;

/// Nobody listens any more.
#[derive(Debug)]
pub(super) struct Closed;

pub(super) struct Teller {
    pub inputs: Sender<Input>,
    pub hints: Sender<Arc<PodIdentity>>,
    pub owners: Owners,
    pub namespaces: Namespaces,
    pub node: String,
    pub stats: Arc<Stats>,
    pub known: Known,
    pub state: Option<PodsState>,
    pub said: HashSet<(String, BadAnnotation)>,
}

impl Teller {
    pub fn is_synced(&self) -> bool {
        self.state == Some(PodsState::Synced)
    }

    /// Told and logged where it is new: retries that fail alike say nothing more.
    pub async fn state(&mut self, state: PodsState) -> Result<(), Closed> {
        if self.state.as_ref() == Some(&state) {
            return Ok(());
        }
        match &state {
            PodsState::Away { reason: Some(reason) } => {
                tracing::warn!("{reason}; the kernel is observed all the same, and what was missed is asked for again");
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

    pub fn unreadable(&self) {
        self.stats.count_drop(DropReason::Unreadable);
    }

    pub fn begin_list(&mut self) {
        self.known.begin();
    }

    pub async fn listed(&mut self, pod: Pod) -> Result<(), Closed> {
        if let Some(uid) = convert::uid(&pod) {
            self.known.listed(uid);
        }
        self.changed(pod).await
    }

    pub async fn end_list(&mut self) -> Result<(), Closed> {
        for gone in self.known.end(clock::now()) {
            self.send(Input::PodGone(gone)).await?;
        }
        Ok(())
    }

    pub async fn changed(&mut self, pod: Pod) -> Result<(), Closed> {
        let seen = clock::now();
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
        match self.known.keep(fact.clone(), version, is_resolved) {
            Ok(explain) => {
                let pod = fact.pod.clone();
                self.send(Input::Pod(fact)).await?;
                if explain {
                    self.explain(pod).await?;
                }
            }
            Err(_) => self.stats.count_drop(DropReason::PodCap),
        }
        Ok(())
    }

    /// The object of a deletion is its last version, with the final statuses: it is told first.
    pub async fn deleted(&mut self, pod: Pod) -> Result<(), Closed> {
        let seen = clock::now();
        let uid = convert::uid(&pod);
        self.changed(pod).await?;
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
        let Teller {
            namespaces, said, stats, ..
        } = self;
        let of_namespace = format!("namespace {}", identity.namespace);
        let namespace = namespaces
            .annotated(&identity.namespace, |bad| warn(said, stats, &of_namespace, bad))
            .await;
        let of_pod = format!("pod {}/{}", identity.namespace, identity.name);
        let own = Annotated::parse(pod.metadata.annotations.as_ref(), |bad| warn(said, stats, &of_pod, bad));
        Some((fact(pod, identity, own.over(&namespace), seen), is_resolved))
    }

    /// That there is a question is told before the next fact of the pod: an end that follows waits for the answer.
    async fn explain(&self, pod: Arc<PodIdentity>) -> Result<(), Closed> {
        let asked = PodHints {
            uid: pod.uid.clone(),
            seen: clock::now(),
            state: HintsState::Asked,
        };
        self.send(Input::PodHints(asked.clone())).await?;
        if let Err(mpsc::error::TrySendError::Full(_)) = self.hints.try_send(pod) {
            self.stats.count_drop(DropReason::HintQueueFull);
            let why = "more pods ended at once than are asked for".to_owned();
            let state = HintsState::Unknown { why };
            self.send(Input::PodHints(PodHints { state, ..asked })).await?;
        }
        Ok(())
    }

    /// Waits for room: no pod is lost because the loop is busy.
    async fn send(&self, input: Input) -> Result<(), Closed> {
        self.inputs.send(input).await.map_err(|_| Closed)
    }
}

/// Every version of a pod has its annotations: said and counted once.
fn warn(said: &mut HashSet<(String, BadAnnotation)>, stats: &Stats, whose: &str, bad: BadAnnotation) {
    let key = (whose.to_owned(), bad);
    if said.contains(&key) {
        return;
    }
    tracing::warn!("{}: {}", key.0, key.1);
    stats.count_drop(DropReason::BadAnnotation);
    if said.len() >= SAID {
        said.clear();
    }
    said.insert(key);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::pods::owners;

    #[tokio::test]
    async fn a_question_that_finds_no_room_is_told_as_one_without_an_answer() {
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().expect("a URL"));
        let client = kube::Client::try_from(nowhere).expect("a client");
        let stats = Arc::new(Stats::default());
        let (inputs, mut told) = mpsc::channel(8);
        let (hints, _nobody_takes_them) = mpsc::channel(1);
        let teller = Teller {
            inputs,
            hints,
            owners: Owners::new(client.clone(), stats.clone()),
            namespaces: Namespaces::new(client, stats.clone()),
            node: "node-1".to_owned(),
            stats: stats.clone(),
            known: Known::default(),
            state: None,
            said: HashSet::new(),
        };
        let pod = serde_json::json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u"}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let pod = Arc::new(identity(&pod, "node-1", owners::unasked(&pod)).expect("an identity"));
        for _ in 0..2 {
            teller.explain(pod.clone()).await.expect("somebody listens");
        }
        let mut states = Vec::new();
        while let Ok(Input::PodHints(hints)) = told.try_recv() {
            states.push(hints.state);
        }
        let why = "more pods ended at once than are asked for".to_owned();
        assert_eq!(states, [HintsState::Asked, HintsState::Asked, HintsState::Unknown { why }]);
        assert_eq!(stats.dropped(DropReason::HintQueueFull), 1);
    }
}
