//! The custom resource `Epitaph`, one per pod: what `kubectl get epitaphs` shows.
//!
//! The agent of the pod's node is the only writer. The name is made of the pod, so writing twice gives one object. The agent has no
//! right to read: what an earlier run wrote is known from the answer to a patch that changes nothing. Only the worker waits for
//! the API server.

mod api;
mod facts;
mod keep;
mod object;
mod queue;
mod stats;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use epitaph_core::input::Observation;
use epitaph_core::observe::Output;
use epitaph_core::render::resource::{self, NodeEpitaph, Observed};
use epitaph_core::report::Report;
use epitaph_core::time::{Boot, WallOffset};
use kube::Client;
use tokio::task::JoinHandle;

pub use crate::bucket::Rate;
pub use api::Rights;
pub use keep::{KeepSettings, KeepStats, Keeper, keep};
pub use stats::{EpitaphOutcome, EpitaphStats, OUTCOMES};

use facts::{Completion, FactLimits, Facts, Unwritten};
use object::Object;
use queue::{Key, Queue};

use crate::rights;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Most objects that wait to be written. Beyond them the namespace with the most loses one, a clean one first.
    pub queue: usize,
    pub rate: Rate,
    /// Least time between two writes for a pod that lives on.
    pub between: Duration,
    /// First pause after a failure: of the namespace, or of all if the API server is away. The pause doubles up to `longest_pause`.
    pub pause: Duration,
    pub longest_pause: Duration,
    /// Longest time of attempts for one object that the API server answers with an error.
    pub give_up: Duration,
    /// The same where the API server does not answer at all.
    pub give_up_away: Duration,
    /// The same for an object that RBAC forbids, and where the API server does not know the kind: both are so for a moment when the API
    /// server starts, or while the chart is installed.
    pub give_up_refused: Duration,
    /// Limit of one request.
    pub timeout: Duration,
    pub rights: Rights,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            // Each has 4 KiB at most.
            queue: 512,
            // As Events: all agents together write to one etcd. A node has 110 pods by default, so a drained one is written within two
            // minutes.
            rate: Rate {
                burst: 50,
                per_second: 1,
            },
            between: Duration::from_secs(60),
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            give_up: Duration::from_secs(15 * 60),
            give_up_away: Duration::from_secs(6 * 60 * 60),
            give_up_refused: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
            rights: Rights {
                pods: &rights::AGENT_EPITAPHS,
                nodes: &rights::AGENT_NODE_EPITAPHS,
            },
        }
    }
}

impl Settings {
    /// Of the observer, which completes Epitaphs that agents write.
    pub fn of_observer() -> Settings {
        Settings {
            // Of an unclean rollout of thousands of pods, a kilobyte each.
            queue: 4096,
            // One for the cluster, where each agent writes one a second.
            rate: Rate {
                burst: 50,
                per_second: 10,
            },
            // From the first fact of a pod: a replacement is mostly ready by then, so that all is one write.
            between: Duration::from_secs(2 * 60),
            rights: Rights {
                pods: &rights::OBSERVER_EPITAPHS,
                nodes: &rights::OBSERVER_NODE_EPITAPHS,
            },
            ..Settings::default()
        }
    }
}

/// Called once the API server has an object, or will never have it.
pub type Done = Arc<dyn Fn() + Send + Sync>;

/// The object of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared(Object);

impl Prepared {
    /// None: the report has none. `node`: the name of the Node.
    pub fn of(report: &Report, observation: &Observation, node: Option<&str>) -> Option<Prepared> {
        let object = match (report, node) {
            (Report::NodeShutdown(shutdown), Some(node)) => Some(Object::Node(NodeEpitaph::of_shutdown(shutdown, node))),
            _ => resource::of(report, observation).map(|epitaph| Object::Pod(Box::new(epitaph))),
        };
        object.map(Prepared)
    }

    /// For the journal.
    pub fn stored(&self) -> Vec<u8> {
        self.0.stored()
    }

    /// None: not what [`Prepared::stored`] wrote.
    pub fn read(stored: &[u8]) -> Option<Prepared> {
        Object::read(stored).map(Prepared)
    }
}

/// Takes the core's reports from the loop.
#[derive(Clone, Debug)]
pub struct Sink {
    queue: Arc<Queue>,
    stats: Arc<EpitaphStats>,
}

impl Sink {
    /// Queues the object of a report, if it has one; never waits. `node`: the name of the Node.
    pub fn offer(&self, report: &Report, observation: &Observation, node: Option<&str>, now: Boot) {
        if let Some(prepared) = Prepared::of(report, observation, node) {
            self.push(prepared, None, now);
        }
    }

    /// The same of an object that is kept elsewhere, too, until `done` is called.
    pub fn push(&self, prepared: Prepared, done: Option<Done>, now: Boot) {
        self.queue.push_kept(prepared.0, done, now, &self.stats);
    }

    /// Objects of earlier runs for which there is no room.
    pub fn lost(&self, count: u64) {
        self.stats.count(EpitaphOutcome::QueueFull, count);
    }

    pub fn stats(&self) -> &Arc<EpitaphStats> {
        &self.stats
    }
}

/// Of the observer: the objects of lost nodes, and what agents cannot see of a pod's termination, for the pod's Epitaph.
#[derive(Debug)]
pub struct Completer {
    sink: Sink,
    facts: Facts,
    /// Since when RBAC forbids to know what is written.
    forbidden: Option<Boot>,
    /// For how long that may be so while an installation is upgraded.
    patience: Duration,
}

impl Completer {
    pub fn new(sink: Sink) -> Completer {
        Completer {
            facts: Facts::new(FactLimits::new(sink.queue.between())),
            sink,
            forbidden: None,
            patience: Settings::of_observer().give_up_refused,
        }
    }

    /// Never waits. `clock`: of this machine.
    pub fn offer(&mut self, output: &Output, clock: WallOffset, now: Boot) {
        if let Output::NodeLost(lost) = output {
            let object = Object::Node(NodeEpitaph::of_loss(lost, clock));
            return self.sink.queue.push(object, now, &self.sink.stats);
        }
        let Some(observed) = Observed::of(output, clock) else {
            return;
        };
        if self.forbidden.is_some_and(|since| now.since(since) >= self.patience) {
            return self.sink.stats.count(EpitaphOutcome::Forbidden, 1);
        }
        let completion = self.facts.seen(&Key::of(&observed), observed, now);
        self.complete(completion, now);
        self.expire(now);
    }

    /// RBAC forbids the watch of Epitaphs, again or still.
    pub fn forbidden(&mut self, now: Boot) {
        self.forbidden.get_or_insert(now);
    }

    pub fn watched(&mut self) {
        self.forbidden = None;
    }

    /// All Epitaphs follow.
    pub fn listed(&mut self) {
        self.facts.listed();
    }

    /// An agent has written this Epitaph, perhaps again.
    pub fn written(&mut self, (namespace, name): (String, String), unclean: bool, now: Boot) {
        self.expire(now);
        let completion = self.facts.written(&Key { namespace, name }, unclean);
        self.complete(completion, now);
    }

    pub fn gone(&mut self, (namespace, name): (String, String)) {
        self.facts.gone(&Key { namespace, name });
    }

    fn expire(&mut self, now: Boot) {
        let expired = self.facts.expired(now);
        self.count(expired);
    }

    fn complete(&self, completion: Option<Completion>, now: Boot) {
        if let Some(completion) = completion {
            self.sink.queue.push_observed(completion, now, &self.sink.stats);
        }
    }

    fn count(&self, Unwritten { unneeded, absent }: Unwritten) {
        self.sink.stats.count(EpitaphOutcome::Unneeded, unneeded);
        self.sink.stats.count(EpitaphOutcome::Absent, absent);
    }
}

/// What no Epitaph was found for is in a count also at the end.
impl Drop for Completer {
    fn drop(&mut self) {
        let left = self.facts.drain();
        self.count(left);
    }
}

/// The task that talks to the API server.
#[derive(Debug)]
pub struct EpitaphsWorker {
    queue: Arc<Queue>,
    stats: Arc<EpitaphStats>,
    task: JoinHandle<()>,
}

/// Starts the worker on the current Tokio runtime. `clock`: the clock of the loop.
pub fn start(client: Client, settings: Settings, clock: fn() -> Boot) -> (Sink, EpitaphsWorker) {
    let queue = Arc::new(Queue::new(settings.queue, settings.between));
    let stats = Arc::new(EpitaphStats::default());
    let worker = worker::EpitaphWriter::new(client, settings, queue.clone(), stats.clone(), clock);
    let task = tokio::spawn(worker.run());
    let sink = Sink {
        queue: queue.clone(),
        stats: stats.clone(),
    };
    (sink, EpitaphsWorker { queue, stats, task })
}

impl EpitaphsWorker {
    /// Writes what waits, for `limit` at most; the rest is counted.
    pub async fn shutdown(mut self, limit: Duration) {
        self.queue.close();
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            self.task.abort();
            let _ = self.task.await;
        }
        self.stats.count(EpitaphOutcome::Shutdown, self.queue.drain());
    }
}
