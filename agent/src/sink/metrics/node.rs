//! The node's shutdowns.

use epitaph_core::report::NodeShutdown;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Meter};

use super::table::{NODE_SHUTDOWN_LAST, NODE_SHUTDOWNS};

pub(super) struct Node {
    shutdowns: Counter<u64>,
    last: Gauge<f64>,
}

impl Node {
    pub fn new(meter: &Meter) -> Node {
        Node {
            shutdowns: NODE_SHUTDOWNS.counter(meter),
            last: NODE_SHUTDOWN_LAST.gauge_f64(meter),
        }
    }

    /// At its end, by its own clock: the report may come from the next boot.
    pub fn shutdown(&self, of: &NodeShutdown) {
        let verdict = KeyValue::new("verdict", of.verdict.headline);
        // Of a drained node the same verdict is not unclean.
        let unclean = KeyValue::new("unclean", of.verdict.unclean);
        self.shutdowns.add(1, std::slice::from_ref(&verdict));
        self.last.record(of.clock.wall(of.end).seconds(), &[verdict, unclean]);
    }
}
