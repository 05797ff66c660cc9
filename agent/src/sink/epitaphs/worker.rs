//! The writing loop: rate, retries, counts.

use std::sync::Arc;
use std::time::Duration;

use epitaph_core::time::Boot;
use kube::Client;

use super::Settings;
use super::api::{Done, Epitaphs, Failure};
use super::queue::{Key, Queue, Waiting};
use super::stats::{EpitaphOutcome, EpitaphStats};
use crate::error;
use crate::sink::pace::{Logged, Pace};

pub(super) struct EpitaphWriter {
    epitaphs: Epitaphs,
    pace: Pace,
    settings: Settings,
    queue: Arc<Queue>,
    stats: Arc<EpitaphStats>,
    /// What fails for all objects, which is logged once until the next success.
    trouble: Option<EpitaphOutcome>,
    /// Other failures by namespace, each logged once until the next success.
    logged: Logged<EpitaphOutcome>,
}

impl EpitaphWriter {
    pub fn new(
        client: Client,
        settings: Settings,
        queue: Arc<Queue>,
        stats: Arc<EpitaphStats>,
        clock: fn() -> Boot,
    ) -> EpitaphWriter {
        EpitaphWriter {
            epitaphs: Epitaphs::new(client, settings.timeout, settings.rights),
            pace: Pace::new(settings.rate, (settings.pause, settings.longest_pause), clock),
            settings,
            queue,
            stats,
            trouble: None,
            logged: Logged::default(),
        }
    }

    /// Runs until the queue is closed and empty.
    pub async fn run(mut self) {
        while self.queue.waits(self.pace.clock()).await {
            self.pace.token(&self.queue).await;
            // Taken only now: container terminations that came during the wait are in the list.
            let Some((key, waiting)) = self.queue.take(self.pace.now()) else {
                continue;
            };
            let written = self.epitaphs.write(&key, &waiting.object).await;
            self.queue.answered();
            let outcome = match written {
                Ok(done) => {
                    self.recovered(&key, &waiting);
                    match done {
                        Done::Written => EpitaphOutcome::Written,
                        Done::Known => EpitaphOutcome::Known,
                        Done::Foreign => self.foreign(&key),
                        Done::Absent => EpitaphOutcome::Absent,
                    }
                }
                Err(failure) => match self.failed(&failure, &key, waiting.attempts.since) {
                    Some(outcome) => outcome,
                    None => {
                        self.again(&failure, key, waiting).await;
                        continue;
                    }
                },
            };
            self.stats.count(outcome, waiting.count);
            if outcome.is_final() {
                waiting.done.call();
            }
        }
    }

    /// None: try again later.
    fn failed(&mut self, failure: &Failure, key: &Key, since: Boot) -> Option<EpitaphOutcome> {
        let outcome = outcome(failure);
        let patience = match failure {
            Failure::Away(_) => self.settings.give_up_away,
            Failure::Later(_) | Failure::Silent(_) => self.settings.give_up,
            Failure::Forbidden(..) | Failure::KindAbsent(_) => self.settings.give_up_refused,
            Failure::Refused(_) | Failure::NamespaceGone(_) | Failure::Rejected(_) => Duration::ZERO,
        };
        let now = self.pace.now();
        let again = now.since(since) < patience;
        // A namespace that is deleted with its pods is not a problem, and a first 403 or 404 can be temporary.
        let is_trouble = match outcome {
            EpitaphOutcome::NamespaceGone => false,
            EpitaphOutcome::Forbidden | EpitaphOutcome::KindAbsent => !again,
            _ => true,
        };
        if is_trouble {
            self.log_once(failure, outcome, &key.namespace);
        }
        if !again && is_of_all(failure) {
            // The others would fail the same way, one a minute.
            self.stats.count(outcome, self.queue.expire(now, patience));
        }
        (!again).then_some(outcome)
    }

    fn log_once(&mut self, failure: &Failure, outcome: EpitaphOutcome, namespace: &str) {
        let is_news = match is_of_all(failure) {
            true => self.trouble.replace(outcome) != Some(outcome),
            false => self.logged.is_news(outcome, namespace),
        };
        if is_news {
            tracing::warn!(outcome = outcome.name(), namespace, "{}", error::line(failure));
        }
    }

    /// Logged once for a namespace: whoever may create Epitaphs there can create any number.
    fn foreign(&mut self, key: &Key) -> EpitaphOutcome {
        let (outcome, Key { namespace, name }) = (EpitaphOutcome::Foreign, key);
        if self.logged.is_news(outcome, namespace) {
            tracing::warn!(
                outcome = outcome.name(),
                namespace,
                "cannot write an Epitaph: its name {name} is taken by an Epitaph of another pod or node; find out who created that one, \
                 and delete it"
            );
        }
        outcome
    }

    fn recovered(&mut self, key: &Key, waiting: &Waiting) {
        self.pace.recovered();
        let lives_on = waiting.object.lives_on();
        self.queue.is_written(key, lives_on, self.pace.now());
        let troubles = [EpitaphOutcome::Unavailable, EpitaphOutcome::Forbidden];
        let was_logged = self.logged.forget(&key.namespace, troubles);
        if self.trouble.take().is_some() || was_logged {
            tracing::info!(namespace = key.namespace, "the API server accepts Epitaphs again");
        }
    }

    /// The failure of one object delays only its namespace; a failure of the API server, or of all objects, delays all.
    async fn again(&mut self, failure: &Failure, key: Key, waiting: Waiting) {
        let is_of_all = is_of_all(failure);
        if is_of_all {
            self.queue.put_back(key, waiting);
        } else {
            let pause = self.pace.of_object();
            self.queue.put_off(key, waiting, self.pace.now(), pause);
        }
        if self.queue.is_closed() || is_of_all {
            self.pace.rest(&self.queue).await;
        }
    }
}

/// No object can be written.
fn is_of_all(failure: &Failure) -> bool {
    matches!(failure, Failure::Away(_) | Failure::KindAbsent(_))
}

fn outcome(failure: &Failure) -> EpitaphOutcome {
    match failure {
        Failure::Forbidden(..) => EpitaphOutcome::Forbidden,
        Failure::Refused(_) => EpitaphOutcome::Refused,
        Failure::KindAbsent(_) => EpitaphOutcome::KindAbsent,
        Failure::NamespaceGone(_) => EpitaphOutcome::NamespaceGone,
        Failure::Rejected(_) => EpitaphOutcome::Rejected,
        Failure::Later(_) | Failure::Away(_) | Failure::Silent(_) => EpitaphOutcome::Unavailable,
    }
}
