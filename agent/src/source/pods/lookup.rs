//! Single requests in addition to the watch. Each request has a timeout and is counted. After a failure no request is sent for a
//! while, so that an API server that is slow or refuses causes no delay.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::counters::{Outcome, PodsCounters};
use super::error::Action;
use crate::error::line;
use crate::source::api_error::ApiError;

#[derive(Clone, Copy)]
pub(super) struct LookupLimits {
    pub timeout: Duration,
    /// Time without requests after a failure.
    pub pause: Duration,
}

/// A pod's fact waits for these answers.
const SHORT: LookupLimits = LookupLimits {
    timeout: Duration::from_secs(2),
    pause: Duration::from_secs(30),
};

/// Most different errors that are logged.
const LOGGED: usize = 64;

pub(super) struct Lookup {
    counters: Arc<PodsCounters>,
    limits: LookupLimits,
    /// End of the time without requests, and the failure.
    pause: Option<(Instant, NoAnswer)>,
    /// Errors that are already logged: each is logged once, not for every pod.
    logged: HashSet<String>,
}

/// Why the answer is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// 404.
    NotFound,
    /// No request succeeds until RBAC is changed.
    Refused(ApiError),
    /// A later request may be answered.
    Failed(ApiError),
}

impl Lookup {
    pub fn new(counters: Arc<PodsCounters>) -> Self {
        Lookup::with(SHORT, counters)
    }

    pub fn with(limits: LookupLimits, counters: Arc<PodsCounters>) -> Self {
        Lookup {
            counters,
            limits,
            pause: None,
            logged: HashSet::new(),
        }
    }

    /// `instead`: the consequence of a missing answer, for the log.
    pub async fn get<T>(
        &mut self,
        action: Action,
        instead: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, NoAnswer> {
        if let Some((_, none)) = self.pause.as_ref().filter(|(until, _)| Instant::now() < *until) {
            self.counters.request(action, Outcome::Skipped);
            return Err(none.clone());
        }
        let error = match timeout(self.limits.timeout, request).await {
            Ok(Ok(answer)) => {
                self.counters.request(action, Outcome::Ok);
                return Ok(answer);
            }
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => {
                self.counters.request(action, Outcome::Ok);
                return Err(NoAnswer::NotFound);
            }
            Ok(Err(error)) => ApiError::of(&action.purpose(), &error),
            Err(_) => ApiError::timeout(&action.purpose(), self.limits.timeout),
        };
        let outcome = Outcome::of(error.reason());
        self.counters.request(action, outcome);
        let problem = line(&error);
        if self.logged.len() < LOGGED && self.logged.insert(problem.clone()) {
            tracing::warn!("{problem}; {instead}");
        }
        let none = match outcome {
            Outcome::Forbidden => NoAnswer::Refused(error),
            _ => NoAnswer::Failed(error),
        };
        self.pause = Some((Instant::now() + self.limits.pause, none.clone()));
        Err(none)
    }
}
