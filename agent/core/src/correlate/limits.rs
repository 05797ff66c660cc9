//! Bounds of memory and of time, declared once.

use std::time::Duration;

/// Bounds of memory and of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Subjects known at once.
    pub subjects: usize,
    /// Subjects with facts of a coming termination at once.
    pub timelines: usize,
    /// Facts of each sort (signals, handler entries, OOM victims, exits) per timeline.
    pub facts: usize,
    /// Connections per timeline.
    pub connections: usize,
    /// Events that wait for their cgroup's name.
    pub pending: usize,
    /// Pods known at once, and ends of their containers that wait for the pod's status.
    pub pods: usize,
    pub held: usize,
    /// Living cgroups and processes in the index (each), and dead ones.
    pub index_live: usize,
    pub index_dead: usize,
    /// How late an event may arrive behind a later one.
    pub reorder: Duration,
    /// How long after its end a termination still gathers evidence. Not shorter than `reorder`.
    pub linger: Duration,
    /// Facts this old that no end followed are forgotten.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            subjects: 65_536,
            timelines: 4_096,
            facts: 256,
            connections: 4_096,
            pending: 1_024,
            pods: 4_096,
            held: 4_096,
            index_live: 65_536,
            index_dead: 8_192,
            reorder: Duration::from_millis(200),
            linger: Duration::from_secs(2),
            idle: Duration::from_secs(3_600),
        }
    }
}
