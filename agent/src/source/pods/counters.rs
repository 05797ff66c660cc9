//! Requests and dropped items of this source, counted for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use std::sync::Arc;

use super::error::Action;
use crate::source::api_error::FailureReason;
use crate::source::watch::WatchCounters;

/// Outcome of a request. A watch is one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// 401 or 403.
    Forbidden,
    /// Any other failure, including a timeout.
    Failed,
    /// Not sent: a similar request failed shortly before.
    Skipped,
}

impl Outcome {
    pub(super) fn of(reason: FailureReason) -> Outcome {
        match reason {
            FailureReason::Forbidden | FailureReason::Unauthorized => Outcome::Forbidden,
            _ => Outcome::Failed,
        }
    }
}

/// Why an item of the API did not reach the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsDropReason {
    /// An object or an event of the watch that is not a pod.
    Unreadable,
    /// More pods than a node can run.
    PodCap,
    /// More pods terminated at once than Events are listed for.
    EventQueueFull,
    /// More pods of one namespace terminated within a minute than Events are listed for.
    EventRate,
    /// An annotation with a value that cannot be used, or that does not count for the pod.
    BadAnnotation,
    /// Another object already has the cgroups that the object names.
    KeyTaken,
}

impl PodsDropReason {
    pub const ALL: [PodsDropReason; 6] = [
        PodsDropReason::Unreadable,
        PodsDropReason::PodCap,
        PodsDropReason::EventQueueFull,
        PodsDropReason::EventRate,
        PodsDropReason::BadAnnotation,
        PodsDropReason::KeyTaken,
    ];

    /// Value of the label `reason`.
    pub const fn name(self) -> &'static str {
        match self {
            PodsDropReason::Unreadable => "pod_unreadable",
            PodsDropReason::PodCap => "pod_cap",
            PodsDropReason::EventQueueFull => "event_queue_full",
            PodsDropReason::EventRate => "event_rate",
            PodsDropReason::BadAnnotation => "bad_annotation",
            PodsDropReason::KeyTaken => "pod_key_taken",
        }
    }
}

const ACTIONS: [(Action, &str); 6] = [
    (Action::Pods, "pods"),
    (Action::ReplicaSet, "replicaset"),
    (Action::Job, "job"),
    (Action::Namespace, "namespace"),
    (Action::Events, "events"),
    (Action::Clock, "clock"),
];
const OUTCOMES: [(Outcome, &str); 4] = [
    (Outcome::Ok, "ok"),
    (Outcome::Forbidden, "forbidden"),
    (Outcome::Failed, "failed"),
    (Outcome::Skipped, "skipped"),
];

/// Totals since the start.
#[derive(Debug, Default)]
pub struct PodsCounters {
    requests: [[AtomicU64; OUTCOMES.len()]; ACTIONS.len()],
    failures: [[AtomicU64; FailureReason::ALL.len()]; ACTIONS.len()],
    dropped: [AtomicU64; PodsDropReason::ALL.len()],
    /// Counters of the requests for [`Action::Pods`].
    pub(super) watch: Arc<WatchCounters>,
}

impl PodsCounters {
    /// Each `(resource, outcome, count)`.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let all = self.requests.iter().zip(ACTIONS);
        all.flat_map(move |(counts, (action, resource))| {
            let each = counts.iter().zip(OUTCOMES);
            each.map(move |(count, (outcome, name))| {
                let of_watch = if action == Action::Pods { self.of_watch(outcome) } else { 0 };
                (resource, name, count.load(Ordering::Relaxed) + of_watch)
            })
        })
    }

    /// Each `(resource, reason, count)` of failed requests and interrupted watches, without those that never failed.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let all = self.failures.iter().zip(ACTIONS);
        all.flat_map(move |(counts, (action, resource))| {
            let each = counts.iter().zip(FailureReason::ALL);
            each.filter_map(move |(count, reason)| {
                let of_watch = if action == Action::Pods {
                    self.watch.failed(reason)
                } else {
                    0
                };
                let count = count.load(Ordering::Relaxed) + of_watch;
                (count > 0).then_some((resource, reason.name(), count))
            })
        })
    }

    fn of_watch(&self, outcome: Outcome) -> u64 {
        let failed = |reason: &FailureReason| Outcome::of(*reason) == outcome;
        match outcome {
            Outcome::Ok => self.watch.answered(),
            _ => {
                let reasons = FailureReason::ALL.into_iter().filter(failed);
                reasons.map(|reason| self.watch.failed(reason)).sum()
            }
        }
    }

    pub fn dropped(&self, reason: PodsDropReason) -> u64 {
        let of_watch = match reason {
            PodsDropReason::Unreadable => self.watch.failed(FailureReason::Undecodable),
            _ => 0,
        };
        self.dropped[reason as usize].load(Ordering::Relaxed) + of_watch
    }

    pub(super) fn count_drop(&self, reason: PodsDropReason) {
        self.dropped[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failure(&self, action: Action, reason: FailureReason) {
        self.request(action, Outcome::of(reason));
        self.failures[action as usize][reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn request(&self, action: Action, outcome: Outcome) {
        self.requests[action as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_counted_under_its_own_name() {
        for (place, (action, _)) in ACTIONS.into_iter().enumerate() {
            assert_eq!(action as usize, place);
        }
        for (place, (outcome, _)) in OUTCOMES.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
        }
        let counters = PodsCounters::default();
        counters.failure(Action::Events, FailureReason::Forbidden);
        for reason in PodsDropReason::ALL {
            counters.count_drop(reason);
            assert_eq!(counters.dropped(reason), 1, "{}", reason.name());
        }
        let counted: Vec<_> = counters.requests().filter(|(.., count)| *count > 0).collect();
        assert_eq!(counted, [("events", "forbidden", 1)]);
        counters.failure(Action::Job, FailureReason::Timeout);
        let failed: Vec<_> = counters.failures().collect();
        assert_eq!(failed, [("job", "timeout", 1), ("events", "forbidden", 1)]);
    }
}
