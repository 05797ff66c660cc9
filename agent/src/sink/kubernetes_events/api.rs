//! Requests to the API server for one Event.

use std::time::Duration;

use epitaph_core::text::bounded;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};

use super::notice::Key;
use super::queue::Pending;
use super::series::{self, Posted, REMEMBERED};
use crate::cache::Cache;
use crate::error::{HasRemedy, Remedy};
use crate::rights::AGENT_POST_EVENTS;

/// Longest text of an error that leaves this module, bytes.
const MAX_TEXT: usize = 512;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("cannot post an Event: RBAC forbids it ({0})")]
    Forbidden(String),
    #[error("cannot post an Event: the namespace is deleted or being deleted ({0})")]
    NamespaceGone(String),
    #[error("cannot post an Event: the API server refused it ({0})")]
    Rejected(String),
    /// A problem of this Event only: a failing webhook, a race.
    #[error("cannot post an Event: {0}")]
    Later(String),
    /// A problem of the API server or of the way to it: no Event can be posted.
    #[error("cannot post an Event: {0}")]
    Away(String),
    /// No answer, from the API server or from a webhook for this Event.
    #[error("cannot post an Event: the API server did not answer within {} s", .0.as_secs())]
    Silent(Duration),
}

impl HasRemedy for Failure {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            Failure::Forbidden(_) => Some(AGENT_POST_EVENTS.remedy().into()),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Posted,
    Known,
}

pub(super) struct Events {
    client: Client,
    node: String,
    timeout: Duration,
    /// Events that we posted, by subject.
    posted: Cache<Key, Posted>,
}

impl Events {
    pub fn new(client: Client, node: String, timeout: Duration) -> Events {
        Events {
            client,
            node,
            timeout,
            posted: Cache::new(REMEMBERED),
        }
    }

    pub async fn post(&mut self, key: &Key, pending: &mut Pending) -> Result<Done, Failure> {
        let limit = self.timeout;
        let posted = tokio::time::timeout(limit, self.posted(key, pending)).await;
        posted.unwrap_or(Err(Failure::Silent(limit)))
    }

    async fn posted(&mut self, key: &Key, pending: &mut Pending) -> Result<Done, Failure> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), series::namespace(&key.object));
        let name = key.event_name(&self.node);
        if let Some(known) = self.posted.get(key).cloned() {
            match self.raise(&api, &name, key, &known, pending).await {
                // The API server deletes an Event after an hour or so: the next Event starts from zero.
                Err(error) if is(&error, 404) => self.posted.remove(key),
                result => return result.map_err(|error| failure(&error)),
            }
        }
        let event = series::event(key, pending, &self.node);
        pending.remember_sent(Posted::read(&event));
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => {
                self.posted.insert(key.clone(), Posted::read(&event));
                Ok(Done::Posted)
            }
            Err(error) if is(&error, 409) => {
                let existing = api.get(&name).await.map_err(|error| failure(&error))?;
                let known = Posted::read(&existing);
                self.raise(&api, &name, key, &known, pending)
                    .await
                    .map_err(|error| failure(&error))
            }
            Err(error) => Err(failure(&error)),
        }
    }

    async fn raise(
        &mut self,
        api: &Api<Event>,
        name: &str,
        key: &Key,
        known: &Posted,
        pending: &mut Pending,
    ) -> kube::Result<Done> {
        let Some(posted) = known.with(pending) else {
            self.posted.insert(key.clone(), known.clone());
            return Ok(Done::Known);
        };
        pending.remember_sent(posted.clone());
        let patch = Patch::Merge(posted.patch(pending.last));
        api.patch(name, &PatchParams::default(), &patch).await?;
        self.posted.insert(key.clone(), posted);
        Ok(Done::Posted)
    }
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

pub(super) fn failure(error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else {
        return Failure::Away(shown(&crate::error::chain(error)));
    };
    let message = shown(&status.message);
    match status.code {
        // A namespace that is being deleted accepts no new objects and answers 403.
        403 if message.contains("being terminated") => Failure::NamespaceGone(message),
        // An exceeded quota and a denying webhook are 403s, too.
        403 if status.message.contains("is forbidden: User \"") => Failure::Forbidden(message),
        404 => Failure::NamespaceGone(message),
        // Our token may be renewed before the next attempt.
        401 | 429 => Failure::Away(format!("{} {message}", status.code)),
        // 409 is a race with a deletion; 500 may be a webhook of one namespace.
        408 | 409 | 500.. => Failure::Later(format!("{} {message}", status.code)),
        code => Failure::Rejected(format!("{code} {message}")),
    }
}

fn shown(text: &str) -> String {
    bounded(text, MAX_TEXT).into_owned()
}
