//! Small questions beside the watch: each has a time limit, is counted, and after a failure rests, so that an API server that
//! is slow or says no holds nothing up.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::error::{Action, explain};
use super::stats::{Outcome, Stats};

#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub limit: Duration,
    /// After a failure nobody is asked for so long.
    pub rest: Duration,
}

/// A pod's fact waits for these answers.
const SHORT: Patience = Patience {
    limit: Duration::from_secs(2),
    rest: Duration::from_secs(30),
};

pub(super) struct Asker {
    stats: Arc<Stats>,
    patience: Patience,
    /// Until when, and why.
    rest: Option<(Instant, NoAnswer)>,
    /// Said once each: a log line per pod would say no more.
    said: HashSet<String>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// 404.
    NotFound,
    /// Not before somebody grants it. With why: one line, bounded.
    Refused(String),
    /// Not now: a later question may have one. With why, as above.
    Failed(String),
}

impl Asker {
    pub fn new(stats: Arc<Stats>) -> Self {
        Asker::with(SHORT, stats)
    }

    pub fn with(patience: Patience, stats: Arc<Stats>) -> Self {
        Asker {
            stats,
            patience,
            rest: None,
            said: HashSet::new(),
        }
    }

    /// `instead`: what is done without the answer, for the log.
    pub async fn ask<T>(
        &mut self,
        action: Action,
        instead: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, NoAnswer> {
        let Patience { limit, rest } = self.patience;
        if let Some((_, none)) = self.rest.as_ref().filter(|(until, _)| Instant::now() < *until) {
            self.stats.request(action, Outcome::Skipped);
            return Err(none.clone());
        }
        let none = match timeout(limit, request).await {
            Ok(Ok(answer)) => {
                self.stats.request(action, Outcome::Ok);
                return Ok(answer);
            }
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => {
                self.stats.request(action, Outcome::Ok);
                return Err(NoAnswer::NotFound);
            }
            Ok(Err(error)) => {
                let outcome = outcome(&error);
                self.stats.request(action, outcome);
                match outcome {
                    Outcome::Forbidden => NoAnswer::Refused(explain(action, &error)),
                    _ => NoAnswer::Failed(explain(action, &error)),
                }
            }
            Err(_) => {
                self.stats.request(action, Outcome::Failed);
                NoAnswer::Failed(format!("the API server did not answer within {limit:?}"))
            }
        };
        self.rest = Some((Instant::now() + rest, none.clone()));
        if let NoAnswer::Refused(why) | NoAnswer::Failed(why) = &none
            && self.said.len() < 64
            && self.said.insert(why.clone())
        {
            tracing::warn!("{why}; {instead}");
        }
        Err(none)
    }
}

pub(super) fn outcome(error: &kube::Error) -> Outcome {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => Outcome::Forbidden,
        _ => Outcome::Failed,
    }
}
