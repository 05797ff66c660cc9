//! Warning Events on the pod and its workload: what `kubectl describe` shows to whoever looks.
//!
//! One Event per object, reason, verdict and container of this node, named by them: what is posted twice is one Event, and what
//! happens again only raises its count. Nothing here waits for the API server but the worker.

mod api;
mod bucket;
mod notice;
mod queue;
mod series;
mod stats;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinHandle;

use epitaph_core::input::Observation;
use epitaph_core::report::Report;
use epitaph_core::time::Boot;

pub use bucket::Rate;
pub use stats::{OUTCOMES, Outcome, Stats};

use queue::Queue;

/// `reportingController` of all of them.
pub const CONTROLLER: &str = "epitaph.dev/agent";

#[derive(Clone, Debug)]
pub struct Settings {
    /// `reportingInstance`: this node's name.
    pub node: String,
    /// Events that wait to be posted; when another comes, one that could not be posted goes, else the oldest.
    pub queue: usize,
    pub rate: Rate,
    /// First pause after a failure, of the Event or, where the API server is away, of all; it doubles up to `longest_pause`.
    pub pause: Duration,
    pub longest_pause: Duration,
    /// How long one Event is tried for.
    pub give_up: Duration,
    /// The same for one that RBAC forbids: an API server that starts says so until it has read its roles.
    pub give_up_forbidden: Duration,
    /// Of one request.
    pub timeout: Duration,
}

impl Settings {
    pub fn of_node(node: &str) -> Settings {
        Settings {
            node: node.to_owned(),
            queue: 512,
            rate: Rate {
                burst: 25,
                per_second: 5,
            },
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            give_up: Duration::from_secs(15 * 60),
            give_up_forbidden: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
        }
    }
}

/// Where the loop drops what the core says.
#[derive(Clone, Debug)]
pub struct Sink {
    queue: Arc<Queue>,
    stats: Arc<Stats>,
}

impl Sink {
    /// Takes what is worth an Event; never waits.
    pub fn offer(&self, report: &Report, observation: &Observation, now: Boot) {
        for notice in notice::of(report, observation) {
            self.queue.push(notice, now, &self.stats);
        }
    }

    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }
}

/// The task that talks to the API server.
#[derive(Debug)]
pub struct Worker {
    queue: Arc<Queue>,
    stats: Arc<Stats>,
    task: JoinHandle<()>,
}

/// Starts the worker on the current Tokio runtime. `clock`: the loop's own.
pub fn start(client: Client, settings: Settings, clock: fn() -> Boot) -> (Sink, Worker) {
    let queue = Arc::new(Queue::new(settings.queue));
    let stats = Arc::new(Stats::default());
    let worker = worker::Worker::new(client, settings, queue.clone(), stats.clone(), clock);
    let task = tokio::spawn(worker.run());
    let sink = Sink {
        queue: queue.clone(),
        stats: stats.clone(),
    };
    (sink, Worker { queue, stats, task })
}

impl Worker {
    /// Posts what waits, for `limit` at most; the rest is counted.
    pub async fn shutdown(mut self, limit: Duration) {
        self.queue.close();
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            self.task.abort();
            let _ = self.task.await;
        }
        self.stats.count(Outcome::Shutdown, self.queue.drain());
    }
}
