//! A namespace's annotations, which apply to its pods: one GET, cached for minutes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::time::Instant;

use super::counters::PodsCounters;
use super::error::Action;
use super::lookup::{Lookup, NoAnswer, cached_metadata};
use super::options::{Annotated, BadAnnotation};
use crate::cache::Cache;

const CAPACITY: usize = 1024;

/// A new annotation applies after this time at the latest.
const FRESH: Duration = Duration::from_secs(300);

pub(super) struct Namespaces {
    api: Api<Namespace>,
    lookup: Lookup,
    known: Mutex<Cache<String, Known>>,
}

#[derive(Clone, Default)]
struct Known {
    at: Option<Instant>,
    annotated: Annotated,
    bad: Vec<BadAnnotation>,
}

impl Known {
    fn is_fresh(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < FRESH)
    }
}

impl Namespaces {
    pub fn new(client: Client, counters: Arc<PodsCounters>) -> Self {
        Namespaces {
            api: Api::all(client),
            lookup: Lookup::new(counters),
            known: Mutex::new(Cache::new(CAPACITY)),
        }
    }

    pub fn is_fresh(&self, name: &str) -> bool {
        self.known().get(&name.to_owned()).is_some_and(Known::is_fresh)
    }

    /// The annotations of `name`, and those that cannot be used: cached ones of any age if the API server does not answer; none if it
    /// never did.
    pub async fn annotated(&self, name: &str) -> (Annotated, Vec<BadAnnotation>) {
        let known = self.known().get(&name.to_owned()).cloned().unwrap_or_default();
        if known.is_fresh() {
            return (known.annotated, known.bad);
        }
        let instead = "only the pods' own annotations count";
        let request = async {
            let found = cached_metadata(&self.api, name).await?;
            let mut bad = Vec::new();
            let annotated = Annotated::parse(found.annotations.as_ref(), |problem| bad.push(problem));
            Ok((annotated, bad))
        };
        let (annotated, bad) = match self.lookup.get(Action::Namespace, instead, request).await {
            Ok(found) => found,
            // Deleted before its pods.
            Err(NoAnswer::NotFound) => (known.annotated, known.bad),
            Err(NoAnswer::Refused(_) | NoAnswer::Failed(_)) => return (known.annotated, known.bad),
        };
        let found = Known {
            at: Some(Instant::now()),
            annotated: annotated.clone(),
            bad: bad.clone(),
        };
        self.known().insert(name.to_owned(), found);
        (annotated, bad)
    }

    fn known(&self) -> MutexGuard<'_, Cache<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
