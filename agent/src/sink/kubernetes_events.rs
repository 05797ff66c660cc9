//! Warning Events on the pod and its workload, as `kubectl describe` shows them.
//!
//! One Event per object, reason, verdict and container; its name is made of these, and of a pod's Event also of the node. Posting
//! twice therefore gives one Event, and a repetition only raises the Event's count. Only the worker waits for the API server.
//!
//! The agents of all nodes share a workload's Event. Of a rollout on thousands of nodes the first terminations are posted, then the
//! count is raised now and then: the Event says what happens, traces and metrics say how often.

mod api;
mod notice;
mod queue;
mod series;
mod stats;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use epitaph_core::input::Observation;
use epitaph_core::observe::LossAlarm;
use epitaph_core::report::Report;
use epitaph_core::rollout::SettledRollout;
use epitaph_core::time::{Boot, Wall};
use kube::Client;
use tokio::task::JoinHandle;

pub use crate::bucket::Rate;
pub use stats::{EventStats, OUTCOMES, Outcome};

use queue::Queue;

use crate::rights::{self, Right};

/// `reportingController` of an agent's Events.
pub const AGENT: &str = "epitaph.dev/agent";
/// The same of an observer's.
pub const OBSERVER: &str = "epitaph.dev/observer";

#[derive(Clone, Debug)]
pub struct Settings {
    pub controller: &'static str,
    /// The rule that allows the Events.
    pub right: &'static Right,
    /// `reportingInstance`: this node's name; the same for all observers, because the next one continues the Events of the last.
    pub node: String,
    /// Most Events that wait to be posted. Beyond them a new Event replaces one of the namespace with the most.
    pub queue: usize,
    pub rate: Rate,
    /// First pause after a failure: of the Event, or of all Events if the API server is away. The pause doubles up to
    /// `longest_pause`.
    pub pause: Duration,
    pub longest_pause: Duration,
    /// Longest time of attempts for one Event.
    pub give_up: Duration,
    /// The same for an Event that RBAC forbids: a starting API server forbids everything until it has read its roles.
    pub give_up_forbidden: Duration,
    /// Limit of one request.
    pub timeout: Duration,
}

impl Settings {
    pub fn of_node(node: &str) -> Settings {
        Settings {
            controller: AGENT,
            right: &rights::AGENT_POST_EVENTS,
            node: node.to_owned(),
            queue: 512,
            // All agents together write to one etcd. A bad rollout does not add up, because its agents share the workload's Event;
            // what is left is a cluster with another unclean workload on each node each second. Terminations that wait are counted
            // in the waiting Event of their workload, so a slower rate costs detail, not terminations.
            rate: Rate {
                burst: 50,
                per_second: 1,
            },
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            give_up: Duration::from_secs(15 * 60),
            give_up_forbidden: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
        }
    }

    pub fn of_observer() -> Settings {
        Settings {
            controller: OBSERVER,
            right: &rights::OBSERVER_POST_EVENTS,
            ..Settings::of_node("observer")
        }
    }
}

/// Takes the core's reports from the loop.
#[derive(Clone, Debug)]
pub struct Sink {
    queue: Arc<Queue>,
    stats: Arc<EventStats>,
}

impl Sink {
    /// Queues the Events of a report, if it has any; never waits.
    pub fn offer(&self, report: &Report, observation: &Observation, now: Boot) {
        for notice in notice::of(report, observation) {
            self.queue.push(notice, now, &self.stats);
        }
    }

    /// Queues the Events about a StatefulSet's pod that hangs on a lost node; never waits. `at`: the wall clock.
    pub fn offer_loss(&self, alarm: &LossAlarm, at: Wall, now: Boot) {
        for notice in notice::of_loss(alarm, at) {
            self.queue.push(notice, now, &self.stats);
        }
    }

    /// Queues the Event about a rollout that lost connections; never waits. `at`: the wall clock.
    pub fn offer_rollout(&self, settled: &SettledRollout, at: Wall, now: Boot) {
        if let Some(notice) = notice::of_rollout(settled, at) {
            self.queue.push(notice, now, &self.stats);
        }
    }

    pub fn stats(&self) -> &Arc<EventStats> {
        &self.stats
    }
}

/// The task that talks to the API server.
#[derive(Debug)]
pub struct EventsWorker {
    queue: Arc<Queue>,
    stats: Arc<EventStats>,
    task: JoinHandle<()>,
}

/// Starts the worker on the current Tokio runtime. `clock`: the clock of the loop.
pub fn start(client: Client, settings: Settings, clock: fn() -> Boot) -> (Sink, EventsWorker) {
    let queue = Arc::new(Queue::new(settings.queue));
    let stats = Arc::new(EventStats::default());
    let worker = worker::EventPoster::new(client, settings, queue.clone(), stats.clone(), clock);
    let task = tokio::spawn(worker.run());
    let sink = Sink {
        queue: queue.clone(),
        stats: stats.clone(),
    };
    (sink, EventsWorker { queue, stats, task })
}

impl EventsWorker {
    /// Posts the waiting Events, for `limit` at most; the rest is counted.
    pub async fn shutdown(mut self, limit: Duration) {
        self.queue.close();
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            self.task.abort();
            let _ = self.task.await;
        }
        self.stats.count(Outcome::Shutdown, self.queue.drain());
    }
}
