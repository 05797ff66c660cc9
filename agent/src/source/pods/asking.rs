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
    rest_until: Option<Instant>,
    /// Said once each: a log line per pod would say no more.
    said: HashSet<String>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// 404.
    NotFound,
    /// Not now: a later question may have one.
    Failed,
}

impl Asker {
    pub fn new(stats: Arc<Stats>) -> Self {
        Asker {
            stats,
            rest_until: None,
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
        if self.rest_until.is_some_and(|until| Instant::now() < until) {
            return Err(NoAnswer::Failed);
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
        self.rest_until = Some(Instant::now() + REST);
        if self.said.len() < 64 && self.said.insert(why.clone()) {
            tracing::warn!("{why}; {instead}");
        }
        Err(NoAnswer::Failed)
    }
}

pub(super) fn outcome(error: &kube::Error) -> Outcome {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => Outcome::Forbidden,
        _ => Outcome::Failed,
    }
}
