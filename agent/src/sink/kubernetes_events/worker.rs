//! The posting loop: rate, retries, counts.

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
use crate::error;
use crate::sink::pace::{Logged, Pace};

pub(super) struct EventPoster {
    events: Events,
    pace: Pace,
    settings: Settings,
    queue: Arc<Queue>,
    stats: Arc<EventStats>,
    /// The API server is away, which is logged once until the next success.
    away: bool,
    /// Other failures by namespace, each logged once until the next success.
    logged: Logged<Outcome>,
}

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
            pace: Pace::new(settings.rate, (settings.pause, settings.longest_pause), clock),
            settings,
            queue,
            stats,
            away: false,
            logged: Logged::default(),
        }
    }

    /// Runs until the queue is closed and empty.
    pub async fn run(mut self) {
        while self.queue.waits(self.pace.clock()).await {
            self.pace.token(&self.queue).await;
            // Taken only now: terminations that came during the wait are in the count.
            let Some((key, mut pending)) = self.queue.take(self.pace.now()) else {
                continue;
            };
            let posted = self.events.post(&key, &mut pending).await;
            self.queue.answered();
            let outcome = match posted {
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
        let again = self.pace.now().since(since) < patience;
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
            _ => self.logged.is_news(outcome, namespace),
        };
        if is_news {
            tracing::warn!(outcome = outcome.name(), namespace, "{}", error::line(failure));
        }
    }

    /// Logged once for a namespace: whoever may create Events there can create any number.
    fn foreign(&mut self, key: &Key) -> Outcome {
        let (outcome, namespace) = (Outcome::Foreign, series::namespace(&key.object));
        if self.logged.is_news(outcome, namespace) {
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

    fn recovered(&mut self, key: &Key) {
        self.pace.recovered();
        let namespace = series::namespace(&key.object);
        self.queue.is_well(namespace);
        let was_logged = self.logged.forget(namespace, [Outcome::Unavailable, Outcome::Forbidden]);
        if std::mem::take(&mut self.away) || was_logged {
            tracing::info!(namespace, "the API server accepts Events again");
        }
    }

    /// The failure of one Event delays only its namespace; a failure of the API server delays all Events.
    async fn again(&mut self, failure: &Failure, key: Key, pending: Pending) {
        if let Failure::Away(_) = failure {
            self.queue.put_back(key, pending);
        } else {
            let pause = self.pace.of_object();
            self.queue.put_off(key, pending, self.pace.now(), pause);
        }
        if self.queue.is_closed() || matches!(failure, Failure::Away(_)) {
            self.pace.rest(&self.queue).await;
        }
    }
}
