//! Which Epitaphs there are: the observer's watch of their metadata, so that it adds what it saw to those that need it, whenever an agent writes
//! them.

use std::sync::Arc;
use std::time::Duration;

use epitaph_core::render::resource::{LABEL_UNCLEAN, PLURAL};
use epitaph_core::time::Boot;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::api_error::{ApiError, FailureReason, Purpose};
use super::watch::{ANSWER, Change, LeanEpitaph, Watch, WatchCounters, WatchEvent, WatchOptions};
use crate::error::line;
use crate::rights;

/// The API server ends a watch after this time, and the next watch resumes.
const TIMEOUT: Duration = Duration::from_secs(240);
/// A watch of a live API server is never silent for so long.
const SILENCE: Duration = Duration::from_secs(260);

/// Value of the label `watch`.
pub const WATCH: &str = PLURAL;

/// For the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EpitaphNews {
    /// All of them follow.
    Listed,
    /// It was written, perhaps again.
    Written {
        namespace: String,
        name: String,
        unclean: bool,
    },
    Gone {
        namespace: String,
        name: String,
    },
    /// RBAC forbids the watch: what is written is not known.
    Forbidden,
    /// What is written is known from here on.
    Watched,
}

/// A drop ends it.
pub struct EpitaphFeed {
    watched: mpsc::Receiver<(Boot, WatchEvent<LeanEpitaph>)>,
    /// The last logged error: a repetition is not logged.
    failing: Option<ApiError>,
    _task: JoinSet<()>,
}

impl EpitaphFeed {
    /// Starts the requests on the current Tokio runtime. An API server that does not answer, or does not know the kind, is not an error.
    pub fn start(client: &Client, counters: &Arc<WatchCounters>) -> EpitaphFeed {
        let options = WatchOptions {
            purpose: Purpose {
                what: "list and watch epitaphs of the cluster".into(),
                right: &rights::OBSERVER_EPITAPHS,
            },
            namespace: None,
            field_selector: None,
            timeout: TIMEOUT,
            silence: SILENCE,
            answer: ANSWER,
        };
        let watch = Watch::new(client.clone(), options, counters.clone());
        let (events, watched) = mpsc::channel(1);
        let mut task = JoinSet::new();
        task.spawn(watch.send_to(events));
        EpitaphFeed {
            watched,
            failing: None,
            _task: task,
        }
    }

    /// Pending while there is none; a call that is dropped loses none. None if the task ended, which it does not by itself.
    pub async fn next(&mut self) -> Option<EpitaphNews> {
        loop {
            let (_, event) = self.watched.recv().await?;
            let news = match event {
                WatchEvent::ListStarted => Some(EpitaphNews::Listed),
                WatchEvent::Changed(Change::Applied { object, .. }) => written(object.0),
                WatchEvent::Changed(Change::Deleted(object)) => gone(object.0),
                WatchEvent::Interrupted { error, .. } => {
                    let is_forbidden = error.reason() == FailureReason::Forbidden;
                    if self.failing.as_ref() != Some(&error) {
                        tracing::warn!("{}; Epitaphs are completed later", line(&error));
                        self.failing = Some(error);
                    }
                    is_forbidden.then_some(EpitaphNews::Forbidden)
                }
                WatchEvent::Synced { .. } => {
                    if self.failing.take().is_some() {
                        tracing::info!(watch = WATCH, "the watch is complete again");
                    }
                    Some(EpitaphNews::Watched)
                }
                WatchEvent::ListFinished => None,
            };
            if news.is_some() {
                return news;
            }
        }
    }
}

/// None for an object without the metadata that every API server sends.
fn written(meta: ObjectMeta) -> Option<EpitaphNews> {
    let label = meta.labels.as_ref().and_then(|labels| labels.get(LABEL_UNCLEAN));
    Some(EpitaphNews::Written {
        unclean: label.is_some_and(|unclean| unclean == "true"),
        namespace: meta.namespace?,
        name: meta.name?,
    })
}

fn gone(meta: ObjectMeta) -> Option<EpitaphNews> {
    Some(EpitaphNews::Gone {
        namespace: meta.namespace?,
        name: meta.name?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::mock_api::{self, Answer};

    fn object(name: &str, unclean: bool) -> Value {
        json!({"metadata": {
            "name": name, "namespace": "shop", "resourceVersion": "5", "labels": {LABEL_UNCLEAN: unclean.to_string()},
        }})
    }

    /// Beside that the watch is complete.
    async fn next(feed: &mut EpitaphFeed) -> Option<EpitaphNews> {
        loop {
            match feed.next().await {
                Some(EpitaphNews::Watched) => {}
                news => return news,
            }
        }
    }

    #[tokio::test]
    async fn epitaphs_are_known_by_a_list_and_by_what_follows() {
        let (pieces, stream) = unbounded_channel();
        for (kind, object) in [("ADDED", object("b", false)), ("DELETED", object("a", true))] {
            let line = json!({"type": kind, "object": object}).to_string();
            pieces.send(format!("{line}\n")).expect("a receiver");
        }
        let answers = vec![
            Answer::Stream(stream),
            Answer::Json(
                200,
                json!({"metadata": {"resourceVersion": "4"}, "items": [object("a", true)]}),
            ),
        ];
        let answers = std::sync::Mutex::new(answers);
        let (client, received) = mock_api::start(move |_| {
            let next = answers.lock().expect("no panic").pop();
            std::future::ready(next.unwrap_or(Answer::Never))
        });
        let mut feed = EpitaphFeed::start(&client, &Arc::default());
        let of = |name: &str| ("shop".to_owned(), name.to_owned());
        let written = |name: &str, unclean| {
            let (namespace, name) = of(name);
            Some(EpitaphNews::Written {
                namespace,
                name,
                unclean,
            })
        };
        assert_eq!(next(&mut feed).await, Some(EpitaphNews::Listed));
        assert_eq!(next(&mut feed).await, written("a", true));
        assert_eq!(next(&mut feed).await, written("b", false));
        let (namespace, name) = of("a");
        assert_eq!(next(&mut feed).await, Some(EpitaphNews::Gone { namespace, name }));
        let first = received.lock().expect("no panic")[0].clone();
        assert_eq!(first.path, "/apis/epitaph.dev/v1alpha1/epitaphs");
    }

    /// A ClusterRole of before: a list, and no watch.
    #[tokio::test]
    async fn a_watch_that_is_forbidden_is_news() {
        let (client, _) = mock_api::start(|request| {
            std::future::ready(match request.query.contains("watch=") {
                true => mock_api::failure(403, "epitaphs.epitaph.dev is forbidden: User \"x\" cannot watch"),
                false => Answer::Json(200, json!({"metadata": {"resourceVersion": "4"}, "items": []})),
            })
        });
        let mut feed = EpitaphFeed::start(&client, &Arc::default());
        assert_eq!(next(&mut feed).await, Some(EpitaphNews::Listed));
        assert_eq!(next(&mut feed).await, Some(EpitaphNews::Forbidden));
    }
}
