//! Traces to a collector.
