//! The loop that posts: rate, retries, counts.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use super::Settings;
use super::api::{Done, Events, Failure};
use super::bucket::Bucket;
use super::queue::Queue;
use super::stats::{Outcome, Stats};
use crate::event::Boot;

pub(super) struct Worker {
    events: Events,
    bucket: Bucket,
    settings: Settings,
    queue: Arc<Queue>,
    stats: Arc<Stats>,
    clock: fn() -> Boot,
    pause: Duration,
    /// The last failure's kind: said once in a row.
    said: Option<Outcome>,
}

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
            said: None,
        }
    }

    /// Until the queue is closed and empty.
    pub async fn run(mut self) {
        while self.queue.waits().await {
            self.token().await;
            // Taken only now: what came while we waited is in its count.
            let Some((key, pending)) = self.queue.take() else { continue };
            let outcome = match self.events.post(&key, &pending).await {
                Ok(done) => {
                    self.recovered();
                    match done {
                        Done::Posted => Outcome::Posted,
                        Done::Known => Outcome::Known,
                    }
                }
                Err(failure) => match self.failed(&failure, pending.since) {
                    Some(outcome) => outcome,
                    None => {
                        self.queue.put_back(key, pending);
                        self.rest().await;
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
    fn failed(&mut self, failure: &Failure, since: Boot) -> Option<Outcome> {
        let outcome = match failure {
            Failure::Forbidden(_) => Outcome::Forbidden,
            Failure::NamespaceGone(_) => Outcome::NamespaceGone,
            Failure::Rejected(_) => Outcome::Rejected,
            Failure::Later(_) => Outcome::Unavailable,
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
        if is_trouble && self.said.replace(outcome) != Some(outcome) {
            tracing::warn!(outcome = outcome.name(), "{failure}");
        }
        (!again).then_some(outcome)
    }

    fn recovered(&mut self) {
        self.pause = self.settings.pause;
        if self.said.take().is_some() {
            tracing::info!("the API server takes Events again");
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
