//! The core's bounds of memory and of time that a user can set (`limits.*` in docs/config.md), declared here alone.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Steps of the wall clock that are kept.
pub(super) const STEPS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Bytes of all that the core keeps. Every other bound holds within this one.
    pub memory: usize,
    /// Containers and units known at once.
    pub subjects: usize,
    /// Containers and units with facts of a coming termination at once.
    pub timelines: usize,
    /// Facts of each sort (signals, handler entries, OOM victims, exits) per timeline.
    pub facts: usize,
    /// Connections per timeline.
    pub connections: usize,
    /// Events that wait for their cgroup's name.
    pub pending: usize,
    /// Pods of this node known at once.
    pub pods: usize,
    /// Terminations of pods' containers that wait for the pod's status.
    pub held: usize,
    /// Live cgroups in the index, and as many live processes.
    pub index_live: usize,
    /// Removed cgroups still in the index.
    pub index_dead: usize,
    /// How late an event may arrive behind a later one.
    #[serde(with = "crate::duration")]
    pub reorder: Duration,
    /// How long after its exit a termination still gathers evidence. Not shorter than `reorder`.
    #[serde(with = "crate::duration")]
    pub linger: Duration,
    /// Age at which facts that no termination followed are forgotten.
    #[serde(with = "crate::duration")]
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // A busy node needs a tenth. With all else the agent stays far below the DaemonSet's limit.
            memory: 16 << 20,
            // Far more than a node runs at once (110 pods by default, some hundred units). That memory has room for 7,168.
            subjects: 65_536,
            index_live: 65_536,
            timelines: 4_096,
            pods: 4_096,
            held: 4_096,
            // A termination has a few of each, and a server some hundred connections; the rest is counted.
            facts: 256,
            connections: 4_096,
            // The name is looked up at once: the waiting events are a burst.
            pending: 1_024,
            // Events of a removed cgroup arrive for two minutes at most (`KEEP_REMOVED`).
            index_dead: 8_192,
            // The ring buffer is drained by wakeups and at least with each tick of 200 ms.
            reorder: Duration::from_millis(200),
            // Sockets are closed and cgroups removed after the exit: far more than a busy node needs.
            linger: Duration::from_secs(2),
            // As long as a stop signal can be the reason of an exit (`tolerances::STOP_REACH`).
            idle: Duration::from_secs(3_600),
        }
    }
}

/// The parts of [`Limits::memory`]; a sixteenth is for what is small and bounded by number.
impl Limits {
    /// The index of cgroups and processes.
    pub(super) const fn index_bytes(&self) -> usize {
        self.memory / 16 * 4
    }

    /// Containers and units with their facts, and clients' connects.
    pub(super) const fn subjects_bytes(&self) -> usize {
        self.memory / 16 * 7
    }

    /// Descriptions of containers: half of the rest.
    pub(super) const fn containers_bytes(&self) -> usize {
        self.memory / 32
    }

    /// The pods of the boot before: half of the rest.
    pub(super) const fn of_previous_pods(self) -> Limits {
        Limits {
            memory: self.memory / 8,
            ..self
        }
    }

    /// Pods, with the terminations that wait for them.
    pub(super) const fn pods_bytes(&self) -> usize {
        self.memory / 16 * 4
    }
}
