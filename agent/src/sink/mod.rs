//! Where terminations go.

pub mod epitaphs;
pub mod http;
pub mod kubernetes_events;
pub mod metrics;
pub mod otlp;
pub mod own_spans;
mod pace;
mod queue;
pub mod terminal;
