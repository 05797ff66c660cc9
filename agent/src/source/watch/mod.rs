//! A Kubernetes watch: list, watch, list again, forever. Used for the agent's pods and the observer's kinds.
//!
//! As client-go's reflector, and unlike kube's `watcher`: the first list is served by the API server's watch cache (a list without
//! a version makes older API servers read all objects from etcd), a list after an interruption is not older than what was seen
//! (else a young object would be taken for deleted), a resumed watch without changes is recognised as synced, and an answer is
//! decoded object by object, so that memory does not grow with the list.
//!
//! *Architecture invariant*: [`machine`] decides, this file only sends requests. An API server that is away, slow or refuses never
//! ends a watch: the interruption is an event, and missed changes are requested again.

mod counters;
mod decode;
pub(in crate::source) mod machine;
mod objects;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::time::Boot;
use futures::{AsyncRead, AsyncReadExt as _};
use kube::Client;
use kube::api::{ListParams, VersionMatch, WatchParams};
use kube::core::Request;
use kube::core::watch::Bookmark;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::api_error::{ApiError, FailureReason, Purpose};
use crate::clock;

pub use counters::WatchCounters;
pub(in crate::source) use objects::{LeanAttachment, LeanEpitaph, LeanNamespace, LeanNode, LeanPod, LeanReplicaSet, LeanSlice};

use decode::{DecodeError, Lines, ListSplitter};
use machine::{Ask, Machine, Patience, Reply};

/// Limit for the beginning of an answer, and for each further piece of a list.
pub(in crate::source) const ANSWER: Duration = Duration::from_secs(30);

/// Objects of one page of a list from etcd. A list with a limit is never served from the watch cache, which sends all at once.
const PAGE: u32 = 500;

/// Bytes that are read at once.
const CHUNK: usize = 16 << 10;

/// A watched kind: an implementation discards unneeded fields during decoding.
pub(in crate::source) trait Watched: DeserializeOwned + Send + 'static {
    type Kind: kube::Resource<DynamicType = ()>;
    /// Request metadata only.
    const METADATA_ONLY: bool = false;

    /// `metadata.resourceVersion`.
    fn version(&self) -> Option<&str>;
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::source) enum WatchEvent<T> {
    /// All objects follow. An object that is known and does not follow was deleted at an unknown time.
    ListStarted,
    Changed(Change<T>),
    /// The list is complete.
    ListFinished,
    /// A request failed. Changes from `since` on may be reported late, or only by a list.
    Interrupted {
        since: Boot,
        error: ApiError,
    },
    /// All changes up to now are reported, and further ones follow as they happen. `gap`: None for the first time.
    Synced {
        gap: Option<Gap>,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::source) enum Change<T> {
    /// `listed`: by a list, which shows an object whether it changed or not.
    Applied { object: T, listed: bool },
    /// A deletion that was watched, with the object's last version.
    Deleted(T),
}

/// Time in which changes were not reported as they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::source) struct Gap {
    pub since: Boot,
    pub until: Boot,
    /// Cause of the gap.
    pub why: ApiError,
}

/// Selection and limits of a watch.
#[derive(Clone, Debug)]
pub(in crate::source) struct WatchOptions {
    pub purpose: Purpose,
    /// None: objects of all namespaces, or of none.
    pub namespace: Option<String>,
    pub field_selector: Option<String>,
    /// The API server ends a watch after this time; the next watch resumes at its version.
    pub timeout: Duration,
    /// Without event or bookmark for so long, the connection may be dead: the watch is opened again.
    pub silence: Duration,
    /// Limit for the beginning of an answer, and for each further piece of a list.
    pub answer: Duration,
}

pub(in crate::source) struct Watch<T> {
    client: Client,
    options: WatchOptions,
    machine: Machine,
    counters: Arc<WatchCounters>,
    connection: Option<Connection>,
    /// Replies that are read but not handled, with the time of their arrival.
    replies: VecDeque<(Boot, Reply<T>)>,
    events: VecDeque<(Boot, WatchEvent<T>)>,
    kind: PhantomData<fn() -> T>,
}

/// An answer that is being read.
struct Connection {
    body: Pin<Box<dyn AsyncRead + Send>>,
    decoder: Decoder,
}

enum Decoder {
    List(ListSplitter),
    Watch(Lines),
}

impl<T: Watched> Watch<T> {
    pub fn new(client: Client, options: WatchOptions, counters: Arc<WatchCounters>) -> Watch<T> {
        let patience = Patience {
            watch: options.timeout,
            silence: options.silence,
        };
        let error = |reason, problem: &str| ApiError::new(&options.purpose, reason, problem);
        Watch {
            machine: Machine::new(clock::now(), patience, error),
            client,
            options,
            counters,
            connection: None,
            replies: VecDeque::new(),
            events: VecDeque::new(),
            kind: PhantomData,
        }
    }

    /// Every event with its time, until the receiver is gone. Beside anything else a watch runs in a task of its own: a call of
    /// [`Watch::next`] that is dropped loses no event, and begins its request or its pause anew.
    pub async fn send_to(mut self, events: mpsc::Sender<(Boot, WatchEvent<T>)>) {
        loop {
            let event = tokio::select! {
                event = self.next() => event,
                () = events.closed() => return,
            };
            if events.send(event).await.is_err() {
                return;
            }
        }
    }

    /// The next event, and when it arrived. Nothing is read ahead of the consumer but one chunk: a slow consumer makes the API
    /// server wait.
    pub async fn next(&mut self) -> (Boot, WatchEvent<T>) {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let (at, reply) = match self.replies.pop_front() {
                Some(reply) => reply,
                None => {
                    let reply = self.perform().await;
                    (clock::now(), reply)
                }
            };
            // A list that failed half way is requested again; its connection is not needed.
            if matches!(reply, Reply::Failed(_) | Reply::Ended) {
                self.connection = None;
                self.replies.clear();
            }
            self.counters.reply(&reply);
            for event in self.machine.step(at, reply) {
                self.counters.event(&event);
                self.events.push_back((at, event));
            }
        }
    }

    async fn perform(&mut self) -> Reply<T> {
        let done = match self.machine.ask(clock::now()) {
            Ask::Rest(pause) => {
                sleep(with_jitter(pause)).await;
                return Reply::Rested;
            }
            Ask::List {
                not_older_than,
                continue_token,
            } => self.list(not_older_than, continue_token).await,
            Ask::Open { version } => self.open(&version).await,
            Ask::Event { within } => self.event(within).await,
        };
        done.unwrap_or_else(Reply::Failed)
    }

    async fn list(&mut self, not_older_than: Option<String>, continue_token: Option<String>) -> Result<Reply<T>, ApiError> {
        if !matches!(
            &self.connection,
            Some(Connection {
                decoder: Decoder::List(_),
                ..
            })
        ) {
            let params = ListParams {
                field_selector: self.options.field_selector.clone(),
                limit: not_older_than.is_none().then_some(PAGE),
                version_match: not_older_than.as_ref().map(|_| VersionMatch::NotOlderThan),
                resource_version: not_older_than,
                continue_token,
                ..ListParams::default()
            };
            let request = match T::METADATA_ONLY {
                true => self.resource().list_metadata(&params),
                false => self.resource().list(&params),
            };
            self.connect(request, Decoder::List(ListSplitter::default())).await?;
        }
        loop {
            match self.read(self.options.answer).await? {
                Read::Silence => return Err(ApiError::timeout(&self.options.purpose, self.options.answer)),
                Read::Chunk => {
                    if let Some((_, reply)) = self.replies.pop_front() {
                        return Ok(reply);
                    }
                }
                Read::End => {
                    let Some(Connection {
                        decoder: Decoder::List(splitter),
                        ..
                    }) = self.connection.take()
                    else {
                        return Err(self.undecodable(&DecodeError::TooLong));
                    };
                    let metadata = splitter.finish().map_err(|error| self.undecodable(&error))?.metadata;
                    return Ok(Reply::Page {
                        version: metadata.resource_version.filter(|version| !version.is_empty()),
                        continue_token: metadata.continue_token.filter(|token| !token.is_empty()),
                    });
                }
            }
        }
    }

    async fn open(&mut self, version: &str) -> Result<Reply<T>, ApiError> {
        let params = WatchParams {
            field_selector: self.options.field_selector.clone(),
            timeout: u32::try_from(self.options.timeout.as_secs()).ok(),
            ..WatchParams::default()
        };
        let request = match T::METADATA_ONLY {
            true => self.resource().watch_metadata(&params, version),
            false => self.resource().watch(&params, version),
        };
        self.connection = None;
        self.connect(request, Decoder::Watch(Lines::default())).await?;
        Ok(Reply::Opened)
    }

    async fn event(&mut self, within: Duration) -> Result<Reply<T>, ApiError> {
        loop {
            match self.read(within).await? {
                Read::Silence => return Ok(Reply::Silence),
                Read::End => return Ok(Reply::Ended),
                Read::Chunk => {
                    if let Some((_, reply)) = self.replies.pop_front() {
                        return Ok(reply);
                    }
                }
            }
        }
    }

    async fn connect(
        &mut self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        decoder: Decoder,
    ) -> Result<(), ApiError> {
        let request = request.map_err(|error| self.error(&kube::Error::BuildRequest(error)))?;
        let answer = timeout(self.options.answer, self.client.request_stream(request)).await;
        let body = match answer {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => return Err(self.error(&error)),
            Err(_) => return Err(ApiError::timeout(&self.options.purpose, self.options.answer)),
        };
        self.connection = Some(Connection {
            body: Box::pin(body),
            decoder,
        });
        Ok(())
    }

    /// A piece of the answer, decoded into `replies`.
    async fn read(&mut self, within: Duration) -> Result<Read, ApiError> {
        let Some(Connection { body, decoder }) = &mut self.connection else {
            return Ok(Read::End);
        };
        let mut chunk = vec![0; CHUNK];
        let length = match timeout(within, body.read(&mut chunk)).await {
            Err(_) => return Ok(Read::Silence),
            Ok(Ok(0)) => return Ok(Read::End),
            Ok(Ok(length)) => length,
            // Proxies end long answers this way.
            Ok(Err(error)) if matches!(decoder, Decoder::Watch(_)) && is_end(&error) => return Ok(Read::End),
            Ok(Err(error)) => {
                let error = kube::Error::ReadEvents(error);
                return Err(self.error(&error));
            }
        };
        let at = clock::now();
        let Self { replies, options, .. } = self;
        let mut take = |reply: Result<Reply<T>, kube::Error>| {
            let reply = reply.unwrap_or_else(|error| Reply::Failed(ApiError::of(&options.purpose, &error)));
            replies.push_back((at, reply));
        };
        let chunk = &chunk[..length];
        let split = match decoder {
            Decoder::List(splitter) => splitter.feed(chunk, |item| {
                take(serde_json::from_slice(item).map(Reply::Item).map_err(kube::Error::SerdeError));
            }),
            Decoder::Watch(lines) => lines.feed(chunk, |line| take(event(line))),
        };
        if let Err(error) = split {
            let error = self.undecodable(&error);
            self.replies.push_back((at, Reply::Failed(error)));
        }
        Ok(Read::Chunk)
    }

    fn resource(&self) -> Request {
        Request::new(<T::Kind as kube::Resource>::url_path(&(), self.options.namespace.as_deref()))
    }

    fn error(&self, error: &kube::Error) -> ApiError {
        ApiError::of(&self.options.purpose, error)
    }

    fn undecodable(&self, error: &DecodeError) -> ApiError {
        ApiError::new(&self.options.purpose, FailureReason::Undecodable, &error.to_string())
    }
}

enum Read {
    Chunk,
    End,
    Silence,
}

/// One line of a watch. kube's own type decodes an object twice over, from the text and from a copy of its parts, in case `type` is
/// not the first field: twice the code for every type in a pod.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

fn event<T: Watched>(line: &[u8]) -> Result<Reply<T>, kube::Error> {
    match decoded(line) {
        Ok(reply) => reply,
        // Some API servers answer with a bare Status.
        Err(error) => match serde_json::from_slice::<kube::core::Status>(line) {
            Ok(status) if status.code != 0 => Err(kube::Error::Api(status.boxed())),
            _ => Err(kube::Error::SerdeError(error)),
        },
    }
}

fn decoded<T: Watched>(line: &[u8]) -> serde_json::Result<Result<Reply<T>, kube::Error>> {
    let Line { kind, object } = serde_json::from_slice(line)?;
    // As the items of a list, by the same code.
    let object = object.get().as_bytes();
    Ok(match kind {
        Kind::Added | Kind::Modified => {
            let object: T = serde_json::from_slice(object)?;
            let version = object.version().map(str::to_owned);
            Ok(Reply::Change(Change::Applied { object, listed: false }, version))
        }
        Kind::Deleted => {
            let object: T = serde_json::from_slice(object)?;
            let version = object.version().map(str::to_owned);
            Ok(Reply::Change(Change::Deleted(object), version))
        }
        Kind::Bookmark => Ok(Reply::Bookmark {
            version: serde_json::from_slice::<Bookmark>(object)?.metadata.resource_version,
        }),
        Kind::Error => Err(kube::Error::Api(serde_json::from_slice(object)?)),
    })
}

fn is_end(error: &std::io::Error) -> bool {
    let text = crate::error::chain(error);
    error.kind() == std::io::ErrorKind::UnexpectedEof
        || [
            "unexpected EOF",
            "UnexpectedEof",
            "connection closed before message completed",
        ]
        .iter()
        .any(|words| text.contains(words))
}

/// A random time between half and all of `pause`: watches that failed together do not retry together.
fn with_jitter(pause: Duration) -> Duration {
    // The standard library's only source of randomness.
    let chance = RandomState::new().hash_one(()) as u32;
    pause / 2 + (pause / 2).mul_f64(f64::from(chance) / f64::from(u32::MAX))
}
