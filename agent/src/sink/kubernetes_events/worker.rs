//! The loop that posts: rate, retries, counts.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::time::Boot;
use kube::Client;

use super::Settings;
use super::api::{Done, Events, Failure};
use super::bucket::Bucket;
use super::notice::Key;
use super::queue::{Pending, Queue};
use super::series;
use super::stats::{Outcome, Stats};
use crate::error;

pub(super) struct Worker {
    events: Events,
    bucket: Bucket,
    settings: Settings,
    queue: Arc<Queue>,
    stats: Arc<Stats>,
    clock: fn() -> Boot,
    /// Of the API server as a whole.
    pause: Duration,
    /// It is away: said once in a row.
    away: bool,
    /// What else went wrong, by namespace: said once in a row, too.
    said: HashSet<(String, Outcome)>,
}

/// Namespaces whose troubles are said.
const SAID: usize = 64;

impl Worker {
    pub fn new(client: Client, settings: Settings, queue: Arc<Queue>, stats: Arc<Stats>, clock: fn() -> Boot) -> Worker {
        Worker {
            events: Events::new(client, settings.node.clone(), settings.timeout),
            bucket: Bucket::new(settings.rate),
            pause: settings.pause,
            settings,
            queue,
            stats,
            clock,
            away: false,
            said: HashSet::new(),
        }
    }

    /// Until the queue is closed and empty.
    pub async fn run(mut self) {
        while self.queue.waits(self.clock).await {
            self.token().await;
            // Taken only now: what came while we waited is in its count.
            let Some((key, mut pending)) = self.queue.take((self.clock)()) else {
                continue;
            };
            let outcome = match self.events.post(&key, &mut pending).await {
                Ok(done) => {
                    self.recovered(&key);
                    match done {
                        Done::Posted => Outcome::Posted,
                        Done::Known => Outcome::Known,
                    }
                }
                Err(failure) => match self.failed(&failure, &key, pending.since) {
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

    /// At the end there is no time to be polite.
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
            Failure::Forbidden(_) => Outcome::Forbidden,
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
        // A namespace that goes away with its pods is no trouble of ours, and a first 403 may be none.
        let is_trouble = match outcome {
            Outcome::NamespaceGone => false,
            Outcome::Forbidden => !again,
            _ => true,
        };
        if is_trouble {
            self.say(failure, outcome, series::namespace(&key.object));
        }
        (!again).then_some(outcome)
    }

    fn say(&mut self, failure: &Failure, outcome: Outcome, namespace: &str) {
        let is_news = match failure {
            Failure::Away(_) => !std::mem::replace(&mut self.away, true),
            _ => {
                // Said again now and then, rather than never: namespaces come and go.
                if self.said.len() >= SAID {
                    self.said.clear();
                }
                self.said.insert((namespace.to_owned(), outcome))
            }
        };
        if is_news {
            tracing::warn!(outcome = outcome.name(), namespace, "{}", error::line(failure));
        }
    }

    fn recovered(&mut self, key: &Key) {
        self.pause = self.settings.pause;
        let namespace = series::namespace(&key.object);
        self.queue.is_well(namespace);
        let troubles = [Outcome::Unavailable, Outcome::Forbidden].map(|outcome| (namespace.to_owned(), outcome));
        let was_said = troubles.iter().filter(|trouble| self.said.remove(*trouble)).count() > 0;
        if std::mem::take(&mut self.away) || was_said {
            tracing::info!(namespace, "the API server accepts Events again");
        }
    }

    /// One Event's trouble makes only its namespace wait; where all would fail alike, all rest.
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
