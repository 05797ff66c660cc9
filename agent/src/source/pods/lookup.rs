//! Single requests in addition to the watch, several at a time where the caller wants. Each request has a timeout and is counted. After a failure no request is sent for a
//! while, so that an API server that is slow or refuses causes no delay.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::GetParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// End of the time without requests, and the failure.
    pause: Option<(Instant, NoAnswer)>,
    /// Errors that are already logged: each is logged once, not for every pod.
    logged: HashSet<String>,
}

/// An object's metadata from the API server's watch cache, which costs etcd nothing. The cache may be behind the pod that names the
/// object: what is not there is read from etcd.
pub(super) async fn cached_metadata<K>(api: &Api<K>, name: &str) -> kube::Result<ObjectMeta>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let found = match api.get_metadata_with(name, &GetParams::any()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => api.get_metadata(name).await?,
        found => found?,
    };
    Ok(found.metadata)
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
            state: Mutex::default(),
        }
    }

    /// `instead`: the consequence of a missing answer, for the log.
    pub async fn get<T>(
        &self,
        action: Action,
        instead: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, NoAnswer> {
        if let Some(none) = self.pausing() {
            self.counters.request(action, Outcome::Skipped);
            return Err(none);
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
        self.counters.failure(action, error.reason());
        let mut state = self.state();
        let problem = line(&error);
        if state.logged.len() < LOGGED && state.logged.insert(problem.clone()) {
            tracing::warn!("{problem}; {instead}");
        }
        let none = match outcome {
            Outcome::Forbidden => NoAnswer::Refused(error),
            _ => NoAnswer::Failed(error),
        };
        state.pause = Some((Instant::now() + self.limits.pause, none.clone()));
        Err(none)
    }

    /// The failure because of which no request is sent now.
    fn pausing(&self) -> Option<NoAnswer> {
        let state = self.state();
        let (_, none) = state.pause.as_ref().filter(|(until, _)| Instant::now() < *until)?;
        Some(none.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
