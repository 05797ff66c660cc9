//! A namespace's annotations, which apply to its pods: one GET, cached for minutes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::time::Instant;

use super::counters::PodsCounters;
use super::error::Action;
use super::lookup::{Lookup, NoAnswer};
use super::options::{Annotated, BadAnnotation};
use crate::cache::Cache;

const CAPACITY: usize = 1024;

/// A new annotation applies after this time at the latest.
const FRESH: Duration = Duration::from_secs(300);

pub(super) struct Namespaces {
    api: Api<Namespace>,
    lookup: Lookup,
    known: Cache<String, (Instant, Annotated)>,
}

impl Namespaces {
    pub fn new(client: Client, counters: Arc<PodsCounters>) -> Self {
        Namespaces {
            api: Api::all(client),
            lookup: Lookup::new(counters),
            known: Cache::new(CAPACITY),
        }
    }

    /// The annotations of `name`: cached ones of any age if the API server does not answer; none if it never did.
    pub async fn annotated(&mut self, name: &str, bad: impl FnMut(BadAnnotation)) -> Annotated {
        let known = self.known.get(&name.to_owned());
        if let Some((at, annotated)) = known
            && at.elapsed() < FRESH
        {
            return annotated.clone();
        }
        let before = known.map(|(_, annotated)| annotated.clone()).unwrap_or_default();
        let instead = "only the pods' own annotations count";
        let annotated = match self.lookup.get(Action::Namespace, instead, self.api.get_metadata(name)).await {
            Ok(found) => Annotated::parse(found.metadata.annotations.as_ref(), bad),
            // Deleted before its pods.
            Err(NoAnswer::NotFound) => before,
            Err(NoAnswer::Refused(_) | NoAnswer::Failed(_)) => return before,
        };
        self.known.insert(name.to_owned(), (Instant::now(), annotated.clone()));
        annotated
    }
}
