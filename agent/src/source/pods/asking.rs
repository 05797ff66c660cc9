//! Small questions beside the watch: each has a time limit, is counted, and after a failure rests, so that an API server that
//! is slow or says no holds nothing up.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::error::{Action, explain};
use super::stats::{Outcome, Stats};

/// A pod's fact waits for these answers.
const LIMIT: Duration = Duration::from_secs(2);

/// After a failure nobody is asked for so long.
const REST: Duration = Duration::from_secs(30);

pub(super) struct Asker {
    stats: Arc<Stats>,
    /// Until when, and why.
    rest: Option<(Instant, String)>,
    /// Said once each: a log line per pod would say no more.
    said: HashSet<String>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// 404.
    NotFound,
    /// Not now: a later question may have one. With why: one line, bounded.
    Failed(String),
}

impl Asker {
    pub fn new(stats: Arc<Stats>) -> Self {
        Asker {
            stats,
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
        if let Some((_, why)) = self.rest.as_ref().filter(|(until, _)| Instant::now() < *until) {
            self.stats.request(action, Outcome::Skipped);
            return Err(NoAnswer::Failed(format!("not asked within {REST:?} of a failure: {why}")));
        }
        let why = match timeout(LIMIT, request).await {
            Ok(Ok(answer)) => {
                self.stats.request(action, Outcome::Ok);
                return Ok(answer);
            }
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => {
                self.stats.request(action, Outcome::Ok);
                return Err(NoAnswer::NotFound);
            }
            Ok(Err(error)) => {
                self.stats.request(action, outcome(&error));
                explain(action, &error)
            }
            Err(_) => {
                self.stats.request(action, Outcome::Failed);
                format!("the API server did not answer within {LIMIT:?}")
            }
        };
        self.rest = Some((Instant::now() + REST, why.clone()));
        if self.said.len() < 64 && self.said.insert(why.clone()) {
            tracing::warn!("{why}; {instead}");
        }
        Err(NoAnswer::Failed(why))
    }
}

pub(super) fn outcome(error: &kube::Error) -> Outcome {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => Outcome::Forbidden,
        _ => Outcome::Failed,
    }
}
