//! Requests to the API server for one Event.

use std::time::Duration;

use epitaph_core::text::bounded;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

use super::Settings;
use super::notice::Key;
use super::queue::Pending;
use super::series::{self, Posted, REMEMBERED};
use crate::cache::Cache;
use crate::error::{HasRemedy, Remedy};
use crate::rights::Right;

/// Longest text of an error that leaves this module, bytes.
const MAX_TEXT: usize = 512;

/// Terminations in a workload's Event that every agent counts. Of further ones the Event counts a part.
const CROWD: u64 = 50;
/// Then agents raise the Event after this time at the earliest.
const RAISED: Duration = Duration::from_secs(10);
/// So long no Events on the workload's pods are posted, and the workload's Event is not read again for them.
const CROWD_LASTS: Duration = Duration::from_secs(60);
/// Most attempts to raise an Event that other agents raise at the same time.
const CONFLICTS: u32 = 5;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("cannot post an Event: RBAC forbids it ({0})")]
    Forbidden(String, &'static Right),
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
            Failure::Forbidden(_, right) => Some(right.remedy().into()),
            _ => None,
        }
    }
}

/// An Event as we last wrote or read it.
#[derive(Clone)]
struct Ours {
    posted: Posted,
    version: Option<String>,
}

impl Ours {
    fn new(posted: Posted, event: Event) -> Ours {
        let version = event.metadata.resource_version;
        Ours { posted, version }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Posted,
    Known,
    Crowded,
    /// Not ours, but of the same name.
    Foreign,
}

pub(super) struct Events {
    client: Client,
    controller: &'static str,
    right: &'static Right,
    node: String,
    timeout: Duration,
    /// Events that we posted, by subject, as we last wrote them.
    posted: Cache<Key, Ours>,
    /// Workloads' Events that have enough, and until when that is assumed.
    crowded: Cache<Key, Instant>,
}

impl Events {
    pub fn new(client: Client, settings: &Settings) -> Events {
        Events {
            client,
            controller: settings.controller,
            right: settings.right,
            node: settings.node.clone(),
            timeout: settings.timeout,
            posted: Cache::new(REMEMBERED),
            crowded: Cache::new(REMEMBERED),
        }
    }

    pub async fn post(&mut self, key: &Key, pending: &mut Pending) -> Result<Done, Failure> {
        let limit = self.timeout;
        let posted = tokio::time::timeout(limit, self.posted(key, pending)).await;
        posted.unwrap_or(Err(Failure::Silent(limit)))
    }

    async fn posted(&mut self, key: &Key, pending: &mut Pending) -> Result<Done, Failure> {
        if self.is_crowded(pending) {
            return Ok(Done::Crowded);
        }
        let api: Api<Event> = Api::namespaced(self.client.clone(), series::namespace(&key.object));
        let name = key.event_name(&self.node);
        if let Some(known) = self.posted.get(key).cloned() {
            match self.raise(&api, &name, key, known, pending).await {
                // The API server deletes an Event after an hour or so: the next Event starts from zero.
                Err(error) if is(&error, 404) => self.posted.remove(key),
                result => return result.map_err(|error| failure(&error, self.right)),
            }
        }
        let event = series::event(key, pending, (self.controller, &self.node));
        pending.remember_sent(Posted::read(&event));
        match api.create(&PostParams::default(), &event).await {
            Ok(created) => {
                self.posted.insert(key.clone(), Ours::new(Posted::read(&event), created));
                Ok(Done::Posted)
            }
            Err(error) if is(&error, 409) => self
                .join(&api, &name, key, pending)
                .await
                .map_err(|error| failure(&error, self.right)),
            Err(error) => Err(failure(&error, self.right)),
        }
    }

    /// Raises an Event that we, or other agents, last wrote.
    async fn raise(
        &mut self,
        api: &Api<Event>,
        name: &str,
        key: &Key,
        known: Ours,
        pending: &mut Pending,
    ) -> kube::Result<Done> {
        // An answer without a version: read first.
        if known.version.is_none() {
            return self.join(api, name, key, pending).await;
        }
        match self.patch(api, name, key, known, pending).await {
            Err(error) if is(&error, 409) => self.join(api, name, key, pending).await,
            result => result,
        }
    }

    /// Raises an Event as the API has it. Agents of other nodes raise a workload's Event at the same time: at first each of them,
    /// then, of a workload that terminates by the hundred, one of them now and then.
    async fn join(&mut self, api: &Api<Event>, name: &str, key: &Key, pending: &mut Pending) -> kube::Result<Done> {
        for _ in 0..CONFLICTS {
            let existing = api.get(name).await?;
            if !series::is_of(&existing, key, self.controller) {
                return Ok(Done::Foreign);
            }
            let known = Posted::read(&existing);
            let is_ours = self.posted.get(key).is_some_and(|ours| ours.posted == known);
            if known.with(pending).is_some() && !is_ours && is_enough(&existing, &known, pending) {
                break;
            }
            match self.patch(api, name, key, Ours::new(known, existing), pending).await {
                Err(error) if is(&error, 409) => {}
                result => return result,
            }
        }
        self.crowded.insert(key.clone(), Instant::now() + CROWD_LASTS);
        Ok(Done::Crowded)
    }

    async fn patch(
        &mut self,
        api: &Api<Event>,
        name: &str,
        key: &Key,
        known: Ours,
        pending: &mut Pending,
    ) -> kube::Result<Done> {
        let Some(posted) = known.posted.with(pending) else {
            self.posted.insert(key.clone(), known);
            return Ok(Done::Known);
        };
        pending.remember_sent(posted.clone());
        let patch = Patch::Merge(posted.patch(pending.last, known.version.as_deref()));
        let raised = api.patch(name, &PatchParams::default(), &patch).await?;
        self.posted.insert(key.clone(), Ours::new(posted, raised));
        Ok(Done::Posted)
    }

    /// Where a workload's Event has enough, its pods need no Events of their own.
    fn is_crowded(&self, pending: &Pending) -> bool {
        let until = pending.workload.as_ref().and_then(|workload| self.crowded.get(workload));
        until.is_some_and(|until| Instant::now() < *until)
    }
}

/// Other agents have raised the Event often, and just now.
fn is_enough(existing: &Event, known: &Posted, pending: &Pending) -> bool {
    let apart = series::last(existing).map(|last| Duration::from_nanos(last.0.abs_diff(pending.last.0)));
    known.count >= CROWD && apart.is_some_and(|apart| apart < RAISED)
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

pub(super) fn failure(error: &kube::Error, right: &'static Right) -> Failure {
    let kube::Error::Api(status) = error else {
        return Failure::Away(shown(&crate::error::chain(error)));
    };
    let message = shown(&status.message);
    match status.code {
        // A namespace that is being deleted accepts no new objects and answers 403.
        403 if message.contains("being terminated") => Failure::NamespaceGone(message),
        // An exceeded quota and a denying webhook are 403s, too.
        403 if status.message.contains("is forbidden: User \"") => Failure::Forbidden(message, right),
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
