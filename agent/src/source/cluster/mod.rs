//! What the observer watches of the whole cluster: EndpointSlices, pods, and which namespaces opted out; how far the API server's
//! clock is from ours; and the Lease that makes one observer the active one.
//!
//! *Architecture invariant*: nothing here decides anything. Objects become small facts at once; a full queue makes a watch wait.

mod convert;
mod error;
mod lease;
mod names;
mod stats;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::clock;
use crate::ids::PodUid;
use crate::observe::{BACK_WITHIN, Input, PodSight, Watch};
use crate::pod::PodIdentity;
use crate::source::pods::owners::Owners;
use crate::source::pods::{self, Access, PodsError};
use crate::time::Boot;

pub use lease::Lease;
pub use stats::Stats;

use names::Names;

/// The server ends a watch after this, seconds, and it goes on where it was. A connection that died without a word is noticed
/// five seconds later at the latest, and nothing says that what comes then is late: hence no longer.
const WATCH_SECONDS: u32 = 60;

/// Beginning of an answer, connection and all: a request that hangs looks like a watch that is quiet.
const ANSWER: Duration = Duration::from_secs(30);

/// kube's longest pause after a failure, 30 s, and as much chance.
const PAUSE: Duration = Duration::from_secs(60);

const _: () = assert!(
    ANSWER.as_secs() + PAUSE.as_secs() < BACK_WITHIN.as_secs()
        && ANSWER.as_secs() + WATCH_SECONDS as u64 + 5 < BACK_WITHIN.as_secs()
);

/// Inputs that wait for the loop.
const QUEUE: usize = 256;

/// A client of the API server, for the observer's watches and its Lease.
///
/// # Errors
/// Settings with which nobody could be asked.
pub async fn client(access: &Access) -> Result<Client, PodsError> {
    let client = pods::connect(access).await?;
    Ok(with_limit(&client, ANSWER))
}

/// Of the answer's beginning only: a watch's goes on.
fn with_limit(client: &Client, limit: Duration) -> Client {
    let inner = client.clone();
    let answered = tower::service_fn(move |request| {
        let inner = inner.clone();
        async move {
            let answer = tokio::time::timeout(limit, inner.send(request)).await;
            answer.unwrap_or_else(|_| Err(kube::Error::Service(format!("no answer within {limit:?}").into())))
        }
    });
    Client::new(answered, client.default_namespace())
}

/// All three watches, and the clock. Dropping it ends them.
#[derive(Debug)]
pub struct Cluster {
    inputs: mpsc::Receiver<(Boot, Input)>,
    names: Names,
    _tasks: JoinSet<()>,
}

impl Cluster {
    /// Starts asking, on the current Tokio runtime; an API server that does not answer is no error.
    pub fn start(client: &Client, stats: &Arc<Stats>) -> Cluster {
        let (inputs, receiver) = mpsc::channel(QUEUE);
        let teller = |watch| Teller {
            watch,
            inputs: inputs.clone(),
            stats: stats.clone(),
            troubled: None,
        };
        let config = Config::default().timeout(WATCH_SECONDS);
        let slices = watcher(Api::<EndpointSlice>::all(client.clone()), config.clone());
        let pods = watcher(Api::<Pod>::all(client.clone()), config.clone());
        let namespaces = watcher(Api::<PartialObjectMeta<Namespace>>::all(client.clone()), config);
        let (names, asking) = Names::new(Owners::new(client.clone(), Arc::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(slices_told(teller(Watch::EndpointSlices), slices.default_backoff()));
        tasks.spawn(pods_told(teller(Watch::Pods), names.clone(), pods.default_backoff()));
        tasks.spawn(asking);
        tasks.spawn(namespaces_told(teller(Watch::Namespaces), namespaces.default_backoff()));
        let measured = |is| (clock::now(), Input::ApiClock(is));
        tasks.spawn(pods::clock::run(client.clone(), Arc::default(), inputs, measured));
        Cluster {
            inputs: receiver,
            names,
            _tasks: tasks,
        }
    }

    /// The next word, and when it arrived. None where all watches ended, which none does by itself.
    pub async fn next(&mut self) -> Option<(Boot, Input)> {
        self.inputs.recv().await
    }

    /// A pod that ended, by its workload's name, where that had to be asked for and there is an answer by now.
    pub fn named(&self, pod: &PodUid) -> Option<Arc<PodIdentity>> {
        self.names.of(pod)
    }
}

type Told<K> = watcher::Result<Event<K>>;

async fn slices_told(mut teller: Teller, events: impl Stream<Item = Told<EndpointSlice>>) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let seen = clock::now();
        let told = match event {
            Ok(Event::Apply(slice) | Event::InitApply(slice)) => match convert::slice(&slice) {
                // One that was a Service's and is not any more is gone from it.
                Some(fact) => teller.tell(seen, Input::Slice(fact)).await,
                None => teller.tell_some(seen, convert::slice_key(&slice).map(Input::SliceGone)).await,
            },
            Ok(Event::Delete(slice)) => teller.tell_some(seen, convert::slice_key(&slice).map(Input::SliceGone)).await,
            Ok(Event::Init) => teller.list_begins(seen).await,
            Ok(Event::InitDone) => teller.list_ends(seen).await,
            Err(error) => teller.broken(seen, &error).await,
        };
        if told.is_err() {
            return;
        }
    }
}

async fn pods_told(mut teller: Teller, names: Names, events: impl Stream<Item = Told<Pod>>) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let seen = clock::now();
        let told = match event {
            // A list has every pod that ended in the last days: nobody is asked for the owners of them all.
            Ok(Event::InitApply(pod)) => teller.tell_some(seen, convert::pod(&pod).map(Input::Pod)).await,
            Ok(Event::Apply(pod)) => {
                let sight = convert::pod(&pod);
                if sight.as_ref().is_some_and(PodSight::ends) {
                    names.want(pod);
                }
                teller.tell_some(seen, sight.map(Input::Pod)).await
            }
            Ok(Event::Delete(pod)) => {
                // Its last state: a forced deletion is told by nothing else.
                let sight = convert::pod(&pod);
                names.want(pod);
                let uid = sight.as_ref().map(|sight| sight.identity.uid.clone());
                match teller.tell_some(seen, sight.map(Input::Pod)).await {
                    Ok(()) => teller.tell_some(seen, uid.map(Input::PodGone)).await,
                    closed => closed,
                }
            }
            Ok(Event::Init) => teller.list_begins(seen).await,
            Ok(Event::InitDone) => teller.list_ends(seen).await,
            Err(error) => teller.broken(seen, &error).await,
        };
        if told.is_err() {
            return;
        }
    }
}

async fn namespaces_told(mut teller: Teller, events: impl Stream<Item = Told<PartialObjectMeta<Namespace>>>) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let seen = clock::now();
        let told = match event {
            Ok(Event::Apply(namespace) | Event::InitApply(namespace)) => {
                teller.tell_some(seen, convert::namespace(&namespace.metadata)).await
            }
            Ok(Event::Delete(namespace)) => {
                let gone = namespace.metadata.name.map(Input::NamespaceGone);
                teller.tell_some(seen, gone).await
            }
            Ok(Event::Init) => teller.list_begins(seen).await,
            Ok(Event::InitDone) => teller.list_ends(seen).await,
            Err(error) => teller.broken(seen, &error).await,
        };
        if told.is_err() {
            return;
        }
    }
}

/// Nobody listens any more.
struct Closed;

struct Teller {
    watch: Watch,
    inputs: mpsc::Sender<(Boot, Input)>,
    stats: Arc<Stats>,
    /// What the log was told last; the same trouble again is not worth a line.
    troubled: Option<String>,
}

impl Teller {
    async fn tell(&self, seen: Boot, input: Input) -> Result<(), Closed> {
        self.inputs.send((seen, input)).await.map_err(|_| Closed)
    }

    /// None: an object that lacks what every object has.
    async fn tell_some(&self, seen: Boot, input: Option<Input>) -> Result<(), Closed> {
        match input {
            Some(input) => self.tell(seen, input).await,
            None => {
                self.stats.unreadable();
                Ok(())
            }
        }
    }

    async fn list_begins(&self, seen: Boot) -> Result<(), Closed> {
        self.tell(seen, Input::ListBegin(self.watch)).await
    }

    async fn list_ends(&mut self, seen: Boot) -> Result<(), Closed> {
        if self.troubled.take().is_some() {
            tracing::info!(watch = self.watch.name(), "the watch is complete again");
        }
        self.tell(seen, Input::ListEnd(self.watch)).await
    }

    async fn broken(&mut self, seen: Boot, error: &watcher::Error) -> Result<(), Closed> {
        self.stats.broken(self.watch);
        let why = error::explain_watch(self.watch, error);
        if self.troubled.as_ref() != Some(&why) {
            tracing::warn!("{why}; trying again, and what is missed meanwhile is told as such");
            self.troubled = Some(why);
        }
        self.tell(seen, Input::Broken(self.watch)).await
    }
}
