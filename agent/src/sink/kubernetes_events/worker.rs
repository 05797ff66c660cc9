//! The posting loop: rate, retries, counts.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::time::Boot;
use kube::Client;

use super::Settings;
use super::api::{Done, Events, Failure};
use super::notice::Key;
use super::queue::{Pending, Queue};
use super::series;
use super::stats::{EventStats, Outcome};
use crate::bucket::Bucket;
use crate::error;

pub(super) struct EventPoster {
    events: Events,
    bucket: Bucket,
    settings: Settings,
    queue: Arc<Queue>,
    stats: Arc<EventStats>,
    clock: fn() -> Boot,
    /// Next pause if the whole API server fails.
    pause: Duration,
    /// The API server is away, which is logged once until the next success.
    away: bool,
    /// Other failures by namespace, each logged once until the next success.
    logged: HashSet<(String, Outcome)>,
}

/// Most failures that are remembered as logged.
const LOGGED: usize = 64;

impl EventPoster {
    pub fn new(
        client: Client,
        settings: Settings,
        queue: Arc<Queue>,
        stats: Arc<EventStats>,
        clock: fn() -> Boot,
    ) -> EventPoster {
        EventPoster {
            events: Events::new(client, &settings),
            bucket: Bucket::new(settings.rate),
            pause: settings.pause,
            settings,
            queue,
            stats,
            clock,
            away: false,
            logged: HashSet::new(),
        }
    }

    /// Runs until the queue is closed and empty.
    pub async fn run(mut self) {
        while self.queue.waits(self.clock).await {
            self.token().await;
            // Taken only now: terminations that came during the wait are in the count.
            let Some((key, mut pending)) = self.queue.take((self.clock)()) else {
                continue;
            };
            let outcome = match self.events.post(&key, &mut pending).await {
                Ok(done) => {
                    self.recovered(&key);
                    match done {
                        Done::Posted => Outcome::Posted,
                        Done::Known => Outcome::Known,
                        Done::Crowded => Outcome::Crowded,
                        Done::Foreign => self.foreign(&key),
                    }
                }
                Err(failure) => match self.failed(&failure, &key, pending.attempts.since) {
                    Some(outcome) => outcome,
                    None => {
                        self.again(&failure, key, pending).await;
                        continue;
                    }
                },
            };
            self.stats.count(outcome, pending.count);
        }
    }

    /// Waits for a token; at shutdown the rate does not apply.
    async fn token(&mut self) {
        while !self.queue.is_closed() {
            let Err(wait) = self.bucket.take((self.clock)()) else { return };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.queue.closed() => return,
            }
        }
    }

    /// None: try again later.
    fn failed(&mut self, failure: &Failure, key: &Key, since: Boot) -> Option<Outcome> {
        let outcome = match failure {
            Failure::Forbidden(..) => Outcome::Forbidden,
            Failure::NamespaceGone(_) => Outcome::NamespaceGone,
            Failure::Rejected(_) => Outcome::Rejected,
            Failure::Later(_) | Failure::Away(_) | Failure::Silent(_) => Outcome::Unavailable,
        };
        let patience = match outcome {
            Outcome::Unavailable => self.settings.give_up,
            Outcome::Forbidden => self.settings.give_up_forbidden,
            _ => Duration::ZERO,
        };
        let again = (self.clock)().since(since) < patience;
        // A namespace that is deleted with its pods is not a problem, and a first 403 can be temporary.
        let is_trouble = match outcome {
            Outcome::NamespaceGone => false,
            Outcome::Forbidden => !again,
            _ => true,
        };
        if is_trouble {
            self.log_once(failure, outcome, series::namespace(&key.object));
        }
        (!again).then_some(outcome)
    }

    fn log_once(&mut self, failure: &Failure, outcome: Outcome, namespace: &str) {
        let is_news = match failure {
            Failure::Away(_) => !std::mem::replace(&mut self.away, true),
            _ => self.is_news(outcome, namespace),
        };
        if is_news {
            tracing::warn!(outcome = outcome.name(), namespace, "{}", error::line(failure));
        }
    }

    /// Logged once for a namespace: whoever may create Events there can create any number.
    fn foreign(&mut self, key: &Key) -> Outcome {
        let (outcome, namespace) = (Outcome::Foreign, series::namespace(&key.object));
        if self.is_news(outcome, namespace) {
            tracing::warn!(
                outcome = outcome.name(),
                namespace,
                "cannot post an Event: its name {} is taken by an Event with another controller, reason or object; find out who \
                 created that Event, and delete it",
                key.event_name(&self.settings.node)
            );
        }
        outcome
    }

    fn is_news(&mut self, outcome: Outcome, namespace: &str) -> bool {
        // Cleared rather than closed at the limit: namespaces come and go.
        if self.logged.len() >= LOGGED {
            self.logged.clear();
        }
        self.logged.insert((namespace.to_owned(), outcome))
    }

    fn recovered(&mut self, key: &Key) {
        self.pause = self.settings.pause;
        let namespace = series::namespace(&key.object);
        self.queue.is_well(namespace);
        let troubles = [Outcome::Unavailable, Outcome::Forbidden].map(|outcome| (namespace.to_owned(), outcome));
        let was_logged = troubles.iter().filter(|trouble| self.logged.remove(*trouble)).count() > 0;
        if std::mem::take(&mut self.away) || was_logged {
            tracing::info!(namespace, "the API server accepts Events again");
        }
    }

    /// The failure of one Event delays only its namespace; a failure of the API server delays all Events.
    async fn again(&mut self, failure: &Failure, key: Key, pending: Pending) {
        if let Failure::Away(_) = failure {
            self.queue.put_back(key, pending);
        } else {
            let Settings {
                pause, longest_pause, ..
            } = self.settings;
            let pause = |failed| pause.saturating_mul(2_u32.saturating_pow(failed)).min(longest_pause);
            self.queue.put_off(key, pending, (self.clock)(), pause);
        }
        if self.queue.is_closed() || matches!(failure, Failure::Away(_)) {
            self.rest().await;
        }
    }

    async fn rest(&mut self) {
        let pause = self.pause;
        self.pause = (self.pause * 2).min(self.settings.longest_pause);
        if self.queue.is_closed() {
            tokio::time::sleep(self.settings.pause.min(pause)).await;
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.queue.closed() => self.pause = self.settings.pause,
        }
    }
}
