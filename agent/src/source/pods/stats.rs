//! What this source asked for and did not keep, counted for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::error::Action;

/// Of requests; a watch counts once, when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// 401 or 403.
    Forbidden,
    /// Anything else, no answer in time included.
    Failed,
    /// Not sent: one like it had failed shortly before.
    Skipped,
}

/// Why something of the API did not reach the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// An object or an event of the watch that was no pod.
    Unreadable,
    /// More pods than any node has.
    PodCap,
    /// More pods ended at once than Events are asked for.
    HintQueueFull,
    /// More of one namespace ended within a minute than Events are asked for.
    HintRate,
    BadAnnotation,
}

impl DropReason {
    pub const ALL: [DropReason; 5] = [
        DropReason::Unreadable,
        DropReason::PodCap,
        DropReason::HintQueueFull,
        DropReason::HintRate,
        DropReason::BadAnnotation,
    ];

    /// Value of the label `reason`.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Unreadable => "pod_unreadable",
            DropReason::PodCap => "pod_cap",
            DropReason::HintQueueFull => "hint_queue_full",
            DropReason::HintRate => "hint_rate",
            DropReason::BadAnnotation => "bad_annotation",
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
pub struct Stats {
    requests: [[AtomicU64; OUTCOMES.len()]; ACTIONS.len()],
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl Stats {
    /// Each `(resource, outcome, count)`.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let all = self.requests.iter().zip(ACTIONS);
        all.flat_map(|(counts, (_, resource))| {
            let each = counts.iter().zip(OUTCOMES);
            each.map(move |(count, (_, outcome))| (resource, outcome, count.load(Ordering::Relaxed)))
        })
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count_drop(&self, reason: DropReason) {
        self.dropped[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn request(&self, action: Action, outcome: Outcome) {
        self.requests[action as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_under_its_own_name() {
        for (place, (action, _)) in ACTIONS.into_iter().enumerate() {
            assert_eq!(action as usize, place);
        }
        for (place, (outcome, _)) in OUTCOMES.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
        }
        let stats = Stats::default();
        stats.request(Action::Events, Outcome::Forbidden);
        for reason in DropReason::ALL {
            stats.count_drop(reason);
            assert_eq!(stats.dropped(reason), 1, "{}", reason.name());
        }
        let counted: Vec<_> = stats.requests().filter(|(.., count)| *count > 0).collect();
        assert_eq!(counted, [("events", "forbidden", 1)]);
    }
}
