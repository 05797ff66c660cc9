//! What a sink sends of a finished report.

use super::transport::{LOGS, TRACES};

/// A signal of OpenTelemetry; each has a destination, a queue and counters of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// All spans of the trace.
    Traces,
    /// One log record for each trace that has a verdict.
    Logs,
}

impl Signal {
    /// As people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Logs => "logs",
        }
    }

    /// What is counted.
    pub const fn items(self) -> &'static str {
        match self {
            Signal::Traces => "spans",
            Signal::Logs => "log records",
        }
    }

    /// In a set of signals, also on disk: never changed.
    pub const fn bit(self) -> u8 {
        match self {
            Signal::Traces => 1,
            Signal::Logs => 2,
        }
    }

    pub(super) const fn method(self) -> &'static str {
        match self {
            Signal::Traces => TRACES,
            Signal::Logs => LOGS,
        }
    }
}
