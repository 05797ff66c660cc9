//! What rollouts cost: a watch of the cluster's ReplicaSets, and two requests for each rollout: for its old pods until none is left, then for
//! the Epitaphs of the workload. Of Deployments, and of the Rollouts of Argo Rollouts, whose own kind is not read.
//!
//! *Architecture invariant*: nothing here decides; [`Rollouts`] does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use epitaph_core::render::resource::{
    EpitaphReport, GROUP, KIND, LABEL_WORKLOAD, LABEL_WORKLOAD_KIND, PLURAL, VERSION, label_value,
};
use epitaph_core::rollout::{ReplicaSetSight, RolledWorkload, RolloutQuestion, Rollouts, SettledRollout, Sighted};
use epitaph_core::time::{Boot, Wall};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::api_error::{ApiError, FailureReason, Purpose};
use super::pods::owners::{ROLLOUT_HASH, TEMPLATE_HASH};
use super::watch::{ANSWER, Change, LeanReplicaSet, Watch, WatchCounters, WatchEvent, WatchOptions};
use crate::clock;
use crate::error::line;
use crate::rights;

/// ReplicaSets that are known at the same time, a few hundred bytes each: ten old ones of each of five thousand workloads.
const MOST: usize = 50_000;

/// The API server ends a watch after this time, and the next watch resumes.
const TIMEOUT: Duration = Duration::from_secs(240);
/// A watch of a live API server is never silent for so long.
const SILENCE: Duration = Duration::from_secs(260);

/// How often the machine is asked for questions.
const TICK: Duration = Duration::from_secs(1);
/// Requests at the same time.
const AT_ONCE: usize = 4;
/// Objects of one page.
const PAGE: u32 = 500;
/// News that wait for the loop.
const QUEUE: usize = 64;

/// For the loop.
#[derive(Clone, Debug, PartialEq)]
pub enum RolloutNews {
    Settled(Box<SettledRollout>),
    /// The workload does not exist any longer.
    Gone(RolledWorkload),
}

/// Totals since the start.
#[derive(Debug, Default)]
pub struct RolloutCounters {
    watch: Arc<WatchCounters>,
    requests: AtomicU64,
    over: AtomicU64,
    unreadable: AtomicU64,
}

impl RolloutCounters {
    /// Lists and watches that failed.
    pub fn breaks(&self) -> u64 {
        self.watch.failures()
    }

    /// As `ClusterCounters::failures`.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.watch.by_reason(WATCH)
    }

    /// Requests about one rollout that failed; they are repeated.
    pub fn requests_failed(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// ReplicaSets that are not followed, because too many are.
    pub fn over(&self) -> u64 {
        self.over.load(Ordering::Relaxed)
    }

    /// ReplicaSets that cannot be decoded, or have no UID or namespace; reports that cannot be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed) + self.watch.failed(FailureReason::Undecodable)
    }
}

/// Value of the label `watch`.
pub const WATCH: &str = "replicasets";

/// A drop ends it.
pub struct RolloutFeed {
    news: mpsc::Receiver<RolloutNews>,
    _tasks: JoinSet<()>,
}

impl RolloutFeed {
    /// Starts the requests on the current Tokio runtime. An API server that does not answer is not an error. `settle`: as of
    /// [`Rollouts::new`].
    pub fn start(client: &Client, settle: Duration, counters: &Arc<RolloutCounters>) -> RolloutFeed {
        let (sender, news) = mpsc::channel(QUEUE);
        let options = WatchOptions {
            purpose: Purpose {
                what: "list and watch replicasets of the cluster".into(),
                right: &rights::OBSERVER_ROLLOUTS,
            },
            namespace: None,
            field_selector: None,
            timeout: TIMEOUT,
            silence: SILENCE,
            answer: ANSWER,
        };
        let watch = Watch::new(client.clone(), options, counters.watch.clone());
        let (events, watched) = mpsc::channel(1);
        let follower = Follower {
            client: client.clone(),
            watched,
            rollouts: Rollouts::new(MOST, settle),
            counters: counters.clone(),
            waiting: VecDeque::new(),
            answers: JoinSet::new(),
            watch_failing: None,
            request_failing: None,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(watch.send_to(events));
        tasks.spawn(follower.run(sender));
        RolloutFeed { news, _tasks: tasks }
    }

    /// Pending while there is none; a call that is dropped loses none. None if the task ended, which it does not by itself.
    pub async fn next(&mut self) -> Option<RolloutNews> {
        self.news.recv().await
    }
}

struct Follower {
    client: Client,
    watched: mpsc::Receiver<(Boot, WatchEvent<LeanReplicaSet>)>,
    rollouts: Rollouts,
    counters: Arc<RolloutCounters>,
    /// Questions without a request.
    waiting: VecDeque<RolloutQuestion>,
    answers: JoinSet<(RolloutQuestion, Result<Answer, ApiError>)>,
    /// The last logged errors: a repetition is not logged.
    watch_failing: Option<ApiError>,
    request_failing: Option<ApiError>,
}

enum Answer {
    OldPods(usize),
    Reports { read: Vec<EpitaphReport>, unreadable: u64 },
}

impl Follower {
    async fn run(mut self, to: mpsc::Sender<RolloutNews>) {
        let mut ticks = interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let news = tokio::select! {
                event = self.watched.recv() => match event {
                    Some((_, event)) => self.take(event),
                    // The watch's task ended, which it does not by itself: the observer starts anew.
                    None => return,
                },
                Some(answer) = self.answers.join_next() => {
                    // None: the task panicked, and its question stays asked: no other is asked about that workload.
                    answer.ok().and_then(|(question, answer)| self.answered(&question, answer)).into_iter().collect()
                }
                _ = ticks.tick() => Vec::new(),
                () = to.closed() => return,
            };
            for news in news {
                if to.send(news).await.is_err() {
                    return;
                }
            }
            self.ask(clock::now());
        }
    }

    fn take(&mut self, event: WatchEvent<LeanReplicaSet>) -> Vec<RolloutNews> {
        match event {
            WatchEvent::ListStarted => self.rollouts.list_begins(),
            WatchEvent::ListFinished => {
                let gone = self.rollouts.list_ends(wall());
                return gone.into_iter().map(RolloutNews::Gone).collect();
            }
            WatchEvent::Changed(Change::Applied { object, .. }) => match sight(&object) {
                Ok(Some(sight)) => {
                    let Sighted { is_kept, gone } = self.rollouts.sight(clock::now(), sight);
                    if !is_kept {
                        self.counters.over.fetch_add(1, Ordering::Relaxed);
                    }
                    return gone.into_iter().map(RolloutNews::Gone).collect();
                }
                // Perhaps no longer: without an owner, a ReplicaSet is on its own.
                Ok(None) => return self.gone(object.metadata.uid),
                Err(Incomplete) => _ = self.counters.unreadable.fetch_add(1, Ordering::Relaxed),
            },
            WatchEvent::Changed(Change::Deleted(object)) => return self.gone(object.metadata.uid),
            WatchEvent::Interrupted { error, .. } => {
                if self.watch_failing.as_ref() != Some(&error) {
                    tracing::warn!("{}; rollouts are followed again later", line(&error));
                    self.watch_failing = Some(error);
                }
            }
            WatchEvent::Synced { .. } => {
                if self.watch_failing.take().is_some() {
                    tracing::info!(watch = WATCH, "the watch is complete again");
                }
            }
        }
        Vec::new()
    }

    fn gone(&mut self, uid: Option<String>) -> Vec<RolloutNews> {
        let gone = uid.and_then(|uid| self.rollouts.gone(&uid));
        gone.into_iter().map(RolloutNews::Gone).collect()
    }

    fn ask(&mut self, now: Boot) {
        self.waiting.extend(self.rollouts.questions(now));
        while self.answers.len() < AT_ONCE
            && let Some(question) = self.waiting.pop_front()
        {
            let client = self.client.clone();
            self.answers.spawn(async move {
                let answer = answer(client, &question).await;
                (question, answer)
            });
        }
    }

    fn answered(&mut self, question: &RolloutQuestion, answer: Result<Answer, ApiError>) -> Option<RolloutNews> {
        let (now, workload) = (clock::now(), question.workload());
        match answer {
            Ok(answer) => {
                if self.request_failing.take().is_some() {
                    tracing::info!("what rollouts cost is known again");
                }
                match answer {
                    Answer::OldPods(count) => {
                        self.rollouts.old_pods(now, workload, Some(count));
                        None
                    }
                    Answer::Reports { read, unreadable } => {
                        self.counters.unreadable.fetch_add(unreadable, Ordering::Relaxed);
                        let reports: Vec<&EpitaphReport> = read.iter().collect();
                        let settled = self.rollouts.reports(now, workload, Some(&reports))?;
                        Some(RolloutNews::Settled(Box::new(settled)))
                    }
                }
            }
            Err(error) => {
                self.counters.requests.fetch_add(1, Ordering::Relaxed);
                if self.request_failing.as_ref() != Some(&error) {
                    tracing::warn!("{}; what the rollout cost is asked again", line(&error));
                    self.request_failing = Some(error);
                }
                match question {
                    RolloutQuestion::OldPods { .. } => self.rollouts.old_pods(now, workload, None),
                    RolloutQuestion::Reports(_) => _ = self.rollouts.reports(now, workload, None),
                }
                None
            }
        }
    }
}

fn wall() -> Wall {
    clock::wall_offset().wall(clock::now())
}

async fn answer(client: Client, question: &RolloutQuestion) -> Result<Answer, ApiError> {
    let (purpose, request) = match question {
        RolloutQuestion::OldPods { .. } => ("list the old pods of a workload", &rights::OBSERVER_PODS),
        RolloutQuestion::Reports(_) => ("list the Epitaphs of a workload", &rights::OBSERVER_EPITAPHS),
    };
    let purpose = Purpose {
        what: purpose.into(),
        right: request,
    };
    let request = async {
        match question {
            RolloutQuestion::OldPods {
                workload,
                hash_label,
                hashes,
            } => old_pods(client, workload, hash_label, hashes).await,
            RolloutQuestion::Reports(workload) => reports(client, workload).await,
        }
    };
    match timeout(ANSWER, request).await {
        Ok(answered) => answered.map_err(|error| ApiError::of(&purpose, &error)),
        Err(_) => Err(ApiError::timeout(&purpose, ANSWER)),
    }
}

async fn old_pods(client: Client, workload: &RolledWorkload, label: &str, hashes: &[String]) -> kube::Result<Answer> {
    // The controller keeps none.
    if hashes.is_empty() {
        return Ok(Answer::OldPods(0));
    }
    let api: Api<Pod> = Api::namespaced(client, &workload.namespace);
    let selection = ListParams::default()
        .labels(&format!("{label} in ({})", hashes.join(",")))
        // An evicted pod stays as an object until somebody removes it.
        .fields("status.phase!=Failed,status.phase!=Succeeded")
        .match_any();
    Ok(Answer::OldPods(api.list_metadata(&selection).await?.items.len()))
}

async fn reports(client: Client, workload: &RolledWorkload) -> kube::Result<Answer> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL);
    let api: Api<DynamicObject> = Api::namespaced_with(client, &workload.namespace, &resource);
    let labels = format!(
        "{LABEL_WORKLOAD}={},{LABEL_WORKLOAD_KIND}={}",
        label_value(&workload.name),
        label_value(&workload.kind)
    );
    let mut page = ListParams::default().labels(&labels).limit(PAGE);
    let (mut read, mut unreadable) = (Vec::new(), 0);
    loop {
        let listed = match api.list(&page).await {
            // Without the kind there is nothing to read.
            Err(kube::Error::Api(status)) if status.code == 404 => break,
            listed => listed?,
        };
        for object in &listed.items {
            match serde_json::from_value::<EpitaphReport>(object.data["report"].clone()) {
                Ok(report) if is_of(&report, workload) => read.push(report),
                Ok(_) => {}
                Err(_) => unreadable += 1,
            }
        }
        match listed.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => break,
        }
    }
    Ok(Answer::Reports { read, unreadable })
}

/// A longer name has a hash in its label; and a workload that was created again has another UID.
fn is_of(report: &EpitaphReport, workload: &RolledWorkload) -> bool {
    report
        .owner
        .as_ref()
        .is_some_and(|owner| owner.name == workload.name && owner.uid.as_ref().is_none_or(|uid| *uid == workload.uid))
}

/// An object without a field that every object has.
struct Incomplete;

/// None: no ReplicaSet of a workload that numbers its revisions.
fn sight(of: &LeanReplicaSet) -> Result<Option<ReplicaSetSight>, Incomplete> {
    let meta = &of.metadata;
    let owner = meta
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true));
    let (Some(owner), Some(annotations), Some(labels)) = (owner, &meta.annotations, &meta.labels) else {
        return Ok(None);
    };
    let deployment = (TEMPLATE_HASH, &labels.template, &annotations.revision);
    let argo = (ROLLOUT_HASH, &labels.argo_template, &annotations.argo_revision);
    let mut history = [&annotations.history, &annotations.argo_history].into_iter().flatten();
    let found = [argo, deployment].into_iter().find_map(|(label, hash, number)| {
        let number: u64 = number.as_ref()?.parse().ok()?;
        Some((label, hash.clone()?, number))
    });
    let Some((hash_label, hash, number)) = found else {
        return Ok(None);
    };
    let created = meta.creation_timestamp.as_ref();
    Ok(Some(ReplicaSetSight {
        uid: meta.uid.clone().ok_or(Incomplete)?,
        workload: RolledWorkload {
            kind: owner.kind.clone(),
            api_version: owner.api_version.clone(),
            namespace: meta.namespace.clone().ok_or(Incomplete)?,
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        },
        number,
        hash_label,
        hash,
        created: created.and_then(|time| u64::try_from(time.0.as_nanosecond()).ok()).map(Wall),
        is_resumed: history.any(|numbers| !numbers.is_empty()),
        wanted: of.spec.replicas.unwrap_or(1),
        pods: of.status.replicas,
        available: of.status.available_replicas,
        is_current: of.status.observed_generation >= meta.generation,
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use serde_json::json;

    use super::*;
    use crate::mock_api::{self, Answer as Reply};
    use crate::waiting::until_task;

    /// Pauses after failures become longer than the time between two looks at what is to be asked.
    #[tokio::test]
    async fn an_api_server_that_was_away_is_listed_again() {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let (client, _) = mock_api::start(move |_| {
            std::future::ready(match count.fetch_add(1, Ordering::Relaxed) {
                0..3 => mock_api::failure(500, "etcdserver: leader changed"),
                3 => Reply::Json(200, json!({"metadata": {"resourceVersion": "7"}, "items": []})),
                _ => Reply::Never,
            })
        });
        let _feed = RolloutFeed::start(&client, Duration::ZERO, &Arc::default());
        until_task("the watch after a list", || requests.load(Ordering::Relaxed) > 4).await;
    }

    fn of(object: serde_json::Value) -> Option<ReplicaSetSight> {
        let object: LeanReplicaSet = serde_json::from_value(object).expect("a ReplicaSet");
        sight(&object).ok().expect("a whole one")
    }

    fn set(kind: &str, label: &str, annotation: &str) -> serde_json::Value {
        json!({
            "metadata": {
                "name": "web-7d9", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2026-11-28T12:00:00Z", "labels": {"app": "web", label: "7d9"}, "annotations": {annotation: "4"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "w", "controller": true}],
            },
            "spec": {"replicas": 2, "template": {"spec": {"containers": []}}},
            "status": {"replicas": 2, "availableReplicas": 1, "observedGeneration": 3},
        })
    }

    #[test]
    fn a_replica_set_of_a_deployment_and_one_of_argo_rollouts() {
        let sight = of(set("Deployment", "pod-template-hash", "deployment.kubernetes.io/revision")).expect("numbered");
        assert_eq!(
            (sight.number, sight.hash.as_str(), sight.wanted, sight.available),
            (4, "7d9", 2, 1)
        );
        assert!(sight.is_current && sight.created.is_some() && !sight.is_resumed);
        let mut back = set("Deployment", "pod-template-hash", "deployment.kubernetes.io/revision");
        back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] = "1".into();
        assert!(of(back).expect("numbered").is_resumed);
        assert_eq!(
            (sight.workload.kind.as_str(), sight.workload.namespace.as_str()),
            ("Deployment", "shop")
        );
        let sight = of(set("Rollout", "rollouts-pod-template-hash", "rollout.argoproj.io/revision")).expect("numbered");
        assert_eq!(
            (sight.workload.kind.as_str(), sight.hash_label),
            ("Rollout", "rollouts-pod-template-hash")
        );
    }

    #[test]
    fn a_replica_set_of_nobody_is_no_rollout() {
        let mut bare = set("Deployment", "pod-template-hash", "deployment.kubernetes.io/revision");
        bare["metadata"]["ownerReferences"] = json!([]);
        assert_eq!(of(bare), None);
        assert_eq!(of(set("Deployment", "pod-template-hash", "else")), None);
    }
}
