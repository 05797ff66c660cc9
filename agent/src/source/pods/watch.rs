//! The pods of this node: listed, then watched, for ever.
//!
//! As client-go's reflector does it, and unlike kube's own `watcher`: the first list comes from the API server's cache (a list
//! without a version makes older servers read every pod of the cluster from etcd, for each node), a list after an interruption
//! is never older than what was seen (else a young pod would be taken for deleted), and it is seen when a broken watch works
//! again, though nothing happens.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, VersionMatch, WatchEvent, WatchParams};
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::DefaultBackoff;
use tokio::time::{Instant, sleep, timeout};

use super::asking::outcome;
use super::error::{Action, explain};
use super::stats::{Outcome, Stats};
use super::teller::{Closed, Teller};
use crate::pod::PodsState;

/// Answer to a list, and beginning of the answer to a watch.
const ANSWER: Duration = Duration::from_secs(30);

/// The server ends a watch after this; it goes on where it was.
const WATCH_SECONDS: u32 = 290;

/// The server's cache sends a bookmark each minute or so: where nothing came for so long, the connection may be dead. Asking
/// again costs one request where it was not.
const SILENCE: Duration = Duration::from_secs(100);

/// What happened while nobody could tell us comes at once when a watch resumes; a pause of this length ends it.
const BACKLOG: Duration = Duration::from_millis(500);

/// Longer than this it is no backlog, but a busy node.
const SETTLED: Duration = Duration::from_secs(5);

/// A watch that ended sooner, with nothing in it, is none.
const SHORTEST: Duration = Duration::from_secs(1);

const PAGE: u32 = 500;

/// What the API server's cache has, however old.
const ANY: &str = "0";

pub(super) struct Watch {
    pub api: Api<Pod>,
    pub node: String,
    pub teller: Teller,
    pub stats: Arc<Stats>,
}

/// Where to go on.
enum Next {
    /// From this version.
    Watch(String),
    /// List what there is, not older than this; None: as the store itself has it.
    List(Option<String>),
}

/// Why it stopped: nobody listens, or the API failed, with what to do next.
enum Stop {
    Closed,
    Failed { why: String, next: Next },
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Stop {
        Stop::Closed
    }
}

impl Watch {
    /// Until nobody listens.
    pub async fn run(mut self) {
        let mut backoff = DefaultBackoff::default();
        let mut next = Next::List(Some(ANY.to_owned()));
        if self.teller.state(PodsState::Away { reason: None }).await.is_err() {
            return;
        }
        loop {
            let was_watch = matches!(next, Next::Watch(_));
            let done = match next {
                Next::List(not_before) => self.list(not_before).await,
                Next::Watch(version) => self.watch(version).await,
            };
            next = match done {
                Ok(next) => {
                    backoff.reset();
                    next
                }
                Err(Stop::Closed) => return,
                Err(Stop::Failed { why, next }) => {
                    if self.teller.state(PodsState::Away { reason: Some(why) }).await.is_err() {
                        return;
                    }
                    // A server that says what to ask instead works, and pods are born and die meanwhile.
                    if was_watch && matches!(next, Next::List(_)) {
                        backoff.reset();
                    }
                    let pause = backoff.next().unwrap_or(BACKLOG) / 2;
                    tokio::select! {
                        () = sleep(pause) => next,
                        () = self.teller.closed() => return,
                    }
                }
            };
        }
    }

    async fn list(&mut self, not_before: Option<String>) -> Result<Next, Stop> {
        let mut params = ListParams::default().fields(&self.own()).limit(PAGE);
        params.version_match = not_before.as_ref().map(|_| VersionMatch::NotOlderThan);
        params.resource_version = not_before.clone();
        self.teller.begin_list();
        loop {
            let list = match timeout(ANSWER, self.api.list(&params)).await {
                Ok(Ok(list)) => list,
                failed => {
                    let next = match &failed {
                        // The version is not kept any more, or not there yet (an older copy of the store was put back).
                        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 410 | 504) => Next::List(None),
                        _ => Next::List(not_before),
                    };
                    return Err(self.failed(failed.map(Result::err), next));
                }
            };
            self.stats.request(Action::Pods, Outcome::Ok);
            for pod in list.items {
                self.teller.listed(pod).await?;
            }
            params.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                let version = list.metadata.resource_version.filter(|version| !version.is_empty());
                let Some(version) = version else {
                    let why = "cannot watch the pods of this node: the API server's list has no resourceVersion".to_owned();
                    return Err(Stop::Failed {
                        why,
                        next: Next::List(not_before),
                    });
                };
                self.teller.end_list().await?;
                self.teller.state(PodsState::Synced).await?;
                return Ok(Next::Watch(version));
            }
            // The token holds the version.
            params.version_match = None;
            params.resource_version = None;
        }
    }

    async fn watch(&mut self, mut version: String) -> Result<Next, Stop> {
        let params = WatchParams::default().fields(&self.own()).timeout(WATCH_SECONDS);
        let begun = {
            let request = self.api.watch(&params, &version);
            tokio::select! {
                begun = timeout(ANSWER, request) => begun,
                () = self.teller.closed() => return Err(Stop::Closed),
            }
        };
        let events = match begun {
            Ok(Ok(events)) => events,
            failed => {
                let next = match &failed {
                    Ok(Err(error)) if is_expired(error) => Next::List(Some(version)),
                    _ => Next::Watch(version),
                };
                return Err(self.failed(failed.map(Result::err), next));
            }
        };
        self.stats.request(Action::Pods, Outcome::Ok);
        let mut events = std::pin::pin!(events);
        let begun = Instant::now();
        let mut is_empty = true;
        loop {
            let event = match self.next(&mut events, begun).await? {
                Some(Ok(event)) => event,
                // The server is ending, or what stands before it.
                None if is_empty && begun.elapsed() < SHORTEST => {
                    return Err(Stop::Failed {
                        why: "cannot watch the pods of this node: the API server ended the watch at once".to_owned(),
                        next: Next::Watch(version),
                    });
                }
                // The server's own end of it, or silence.
                None => return Ok(Next::Watch(version)),
                Some(Err(error)) => {
                    let next = match &error {
                        // Read again, the same event would be as unreadable.
                        kube::Error::SerdeError(_) => {
                            self.teller.unreadable();
                            Next::List(Some(version))
                        }
                        error if is_expired(error) => Next::List(Some(version)),
                        _ => Next::Watch(version),
                    };
                    return Err(self.failed(Ok(Some(error)), next));
                }
            };
            is_empty = false;
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    version_of(&pod, &mut version);
                    self.teller.changed(pod).await?;
                }
                WatchEvent::Deleted(pod) => {
                    version_of(&pod, &mut version);
                    self.teller.deleted(pod).await?;
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => {
                    let error = kube::Error::Api(status);
                    let next = match is_expired(&error) {
                        true => Next::List(Some(version)),
                        false => Next::Watch(version),
                    };
                    return Err(self.failed(Ok(Some(error)), next));
                }
            }
        }
    }

    /// None at the end of the stream, and after a silence that no living one keeps.
    async fn next<S>(&mut self, events: &mut S, begun: Instant) -> Result<Option<kube::Result<WatchEvent<Pod>>>, Stop>
    where
        S: Stream<Item = kube::Result<WatchEvent<Pod>>> + Unpin,
    {
        loop {
            let is_synced = self.teller.is_synced();
            let patience = match is_synced {
                true => SILENCE,
                false => BACKLOG.min(SETTLED.saturating_sub(begun.elapsed())),
            };
            let next = tokio::select! {
                next = timeout(patience, events.next()) => next,
                () = self.teller.closed() => return Err(Stop::Closed),
            };
            match next {
                Ok(next) => return Ok(next),
                Err(_) if is_synced => return Ok(None),
                // Nothing waits: we are where the server is.
                Err(_) => self.teller.state(PodsState::Synced).await?,
            }
        }
    }

    /// `error`: none where no answer came in time.
    fn failed(&self, error: Result<Option<kube::Error>, tokio::time::error::Elapsed>, next: Next) -> Stop {
        let why = match error {
            Ok(Some(error)) => {
                self.stats.request(Action::Pods, outcome(&error));
                explain(Action::Pods, &error)
            }
            _ => {
                self.stats.request(Action::Pods, Outcome::Failed);
                format!("cannot list and watch the pods of this node: the API server did not answer within {ANSWER:?}")
            }
        };
        Stop::Failed { why, next }
    }

    fn own(&self) -> String {
        format!("spec.nodeName={}", self.node)
    }
}

/// 410 Gone: the store has forgotten what lies between that version and now.
fn is_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410 || status.reason == "Expired")
}

fn version_of(pod: &Pod, version: &mut String) {
    if let Some(newer) = pod.metadata.resource_version.as_ref().filter(|v| !v.is_empty()) {
        version.clone_from(newer);
    }
}
