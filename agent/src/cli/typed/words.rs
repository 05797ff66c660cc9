//! The table of what other tools show.

mod codes;
mod nodes;
mod pods;
mod units;

/// Something that another tool shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The first one is the title.
    pub names: &'static [&'static str],
    pub meaning: &'static str,
    /// Verdicts of terminations for which the word is shown; the likelier ones first.
    pub verdicts: &'static [&'static str],
}

/// Signals that a process causes itself.
const FAULT: &[&str] = &["crashed", "killed-by-other", "nonzero-exit"];

/// Ways to a SIGKILL.
const KILLED: &[&str] = &[
    "oom-killed",
    "ignored-stop-signal",
    "killed-after-grace",
    "blocked-stop-signal",
    "prestop-overran",
    "sidecar-starved",
    "force-killed",
    "truncated-by-shutdown",
    "killed-by-other",
];

/// Ends at a deletion, an eviction or a shutdown of the node.
const DELETED: &[&str] = &[
    "killed-after-grace",
    "ignored-stop-signal",
    "prestop-overran",
    "default-action",
    "force-killed",
    "clean",
    "clean-exit",
];

/// The observer's verdicts on a node that is not ready.
const LOST: &[&str] = &["lost", "unreachable", "fenced-by-taint"];

/// Verdicts on a shutdown of the node after which the node was down.
const SHUTDOWNS: &[&str] = &["graceful", "truncated", "unprotected", "bypassed", "unannounced"];

/// The program of a unit did not start.
const NOT_STARTED: &[&str] = &["nonzero-exit"];

/// What holds a pod whose containers have exited.
const HELD: &[&str] = &[
    "held-by-runtime",
    "held-by-sandbox",
    "held-by-network",
    "held-by-volume",
    "held-by-kubelet",
    "held-by-finalizer",
    "held-by-api",
];

/// Without names of verdicts, causes and traffic values.
pub fn words() -> impl Iterator<Item = &'static Word> {
    [codes::CODES, pods::PODS, nodes::NODES, units::UNITS].into_iter().flatten()
}
