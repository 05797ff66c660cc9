//! What a namespace's annotations say for its pods: one GET, kept for minutes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::time::Instant;

use super::asking::{Asker, NoAnswer};
use super::cache::Cache;
use super::error::Action;
use super::options::{Annotated, BadAnnotation};
use super::stats::Stats;

const ROOM: usize = 1024;

/// How old an answer may be: a new annotation counts after that at the latest.
const FRESH: Duration = Duration::from_secs(300);

pub(super) struct Namespaces {
    api: Api<Namespace>,
    asker: Asker,
    known: Cache<String, (Instant, Annotated)>,
}

impl Namespaces {
    pub fn new(client: Client, stats: Arc<Stats>) -> Self {
        Namespaces {
            api: Api::all(client),
            asker: Asker::new(stats),
            known: Cache::new(ROOM),
        }
    }

    /// What is known of `name`, however old where nobody answers; nothing where nobody ever did.
    pub async fn annotated(&mut self, name: &str, bad: impl FnMut(BadAnnotation)) -> Annotated {
        let known = self.known.get(&name.to_owned());
        if let Some((at, annotated)) = known
            && at.elapsed() < FRESH
        {
            return annotated.clone();
        }
        let before = known.map(|(_, annotated)| annotated.clone()).unwrap_or_default();
        let instead = "only the pods' own annotations count";
        let annotated = match self.asker.ask(Action::Namespace, instead, self.api.get_metadata(name)).await {
            Ok(found) => Annotated::parse(found.metadata.annotations.as_ref(), bad),
            // Deleted, and its pods not yet.
            Err(NoAnswer::NotFound) => before,
            Err(NoAnswer::Refused(_) | NoAnswer::Failed(_)) => return before,
        };
        self.known.insert(name.to_owned(), (Instant::now(), annotated.clone()));
        annotated
    }
}
