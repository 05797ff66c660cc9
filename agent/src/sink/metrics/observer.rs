//! Metrics of an observer, in addition to those of every epitaph process.

use epitaph_core::observe::{DropReason, Output, Watch};
use epitaph_core::pod::ApiClock;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge};

use super::table::KUBERNETES_CLOCK;
use super::{Metrics, Row, Shape, record_clock};

pub const ACTIVE: Row = Row {
    name: "epitaph.observer.active",
    shape: Shape::Gauge,
    unit: "",
    labels: &[],
    about: "1 on the observer that holds the Lease, 0 on the others; the sum over all observers should be 1",
};
pub const SPANS: Row = Row {
    name: "epitaph.observer.spans",
    shape: Shape::Counter,
    unit: "{span}",
    labels: &[("span", "endpoint.removal, replacement")],
    about: "Spans that the observer added to the traces of the agents",
};
pub const KNOWN: Row = Row {
    name: "epitaph.observer.known",
    shape: Shape::Gauge,
    unit: "{object}",
    labels: &[("object", "pods, endpoints")],
    about: "Objects that the observer keeps in memory",
};
pub const WATCH_BREAKS: Row = Row {
    name: "epitaph.observer.watch.breaks",
    shape: Shape::Counter,
    unit: "{break}",
    labels: &[("watch", "endpointslices, pods, namespaces")],
    about: "Lists and watches that failed; spans affected by the interruption carry the length of the gap",
};
pub const DROPPED: Row = Row {
    name: "epitaph.observer.dropped",
    shape: Shape::Counter,
    unit: "{item}",
    labels: &[(
        "reason",
        "pod_cap, endpoint_cap, vacancy_cap, begin_unseen, pod_unknown, pod_goes_on, unreadable",
    )],
    about: "Items that the observer did not keep, and spans that it did not export because it had not seen their begin or the end of the pod",
};

pub const TABLE: &[Row] = &[ACTIVE, SPANS, KNOWN, WATCH_BREAKS, DROPPED];

/// Registered with a [`Metrics`], and read with it.
pub struct ObserverMetrics {
    active: Gauge<u64>,
    spans: Counter<u64>,
    known: Gauge<u64>,
    watch_breaks: Counter<u64>,
    dropped: Counter<u64>,
    clock: Gauge<f64>,
}

impl ObserverMetrics {
    pub fn new(metrics: &Metrics) -> ObserverMetrics {
        let meter = &metrics.meter;
        let ours = ObserverMetrics {
            active: ACTIVE.gauge(meter),
            spans: SPANS.counter(meter),
            known: KNOWN.gauge(meter),
            watch_breaks: WATCH_BREAKS.counter(meter),
            dropped: DROPPED.counter(meter),
            clock: KUBERNETES_CLOCK.gauge_f64(meter),
        };
        ours.active(false);
        ours.known((0, 0));
        for span in ["endpoint.removal", "replacement"] {
            ours.spans.add(0, &[KeyValue::new("span", span)]);
        }
        for watch in Watch::ALL {
            ours.watch_breaks(watch, 0);
        }
        for reason in DropReason::ALL {
            ours.dropped(reason.name(), 0);
        }
        ours.dropped("unreadable", 0);
        ours
    }

    pub fn active(&self, active: bool) {
        self.active.record(active.into(), &[]);
    }

    /// Numbers of pods and endpoints in memory.
    pub fn known(&self, (pods, endpoints): (usize, usize)) {
        for (object, count) in [("pods", pods), ("endpoints", endpoints)] {
            self.known.record(count as u64, &[KeyValue::new("object", object)]);
        }
    }

    pub fn watch_breaks(&self, watch: Watch, count: u64) {
        self.watch_breaks.add(count, &[KeyValue::new("watch", watch.name())]);
    }

    pub fn dropped(&self, reason: &'static str, count: u64) {
        self.dropped.add(count, &[KeyValue::new("reason", reason)]);
    }

    pub fn api_clock(&self, clock: &ApiClock) {
        record_clock(&self.clock, clock);
    }

    pub fn output(&self, output: &Output) {
        match output {
            Output::Removal(_) => self.spans.add(1, &[KeyValue::new("span", "endpoint.removal")]),
            Output::Replacement(_) => self.spans.add(1, &[KeyValue::new("span", "replacement")]),
            Output::Dropped { reason, count } => self.dropped(reason.name(), *count),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use opentelemetry_sdk::Resource;

    use super::*;

    #[test]
    fn an_observer_has_only_its_own_rows_at_zero() {
        let push = None::<(crate::sink::metrics::push::Push, Duration)>;
        let metrics = Metrics::empty(Resource::builder_empty().build(), push, 10).unwrap();
        let ours = ObserverMetrics::new(&metrics);
        let families = |text: &str| -> BTreeSet<String> {
            let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
            types.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
        };
        let text = metrics.text().unwrap();
        let mut expected: BTreeSet<String> = TABLE.iter().chain([&super::super::BUILD]).map(Row::prometheus).collect();
        // The exporter's series for the resource.
        expected.insert("target_info".to_owned());
        let mut families = families(&text);
        families.insert("target_info".to_owned());
        assert_eq!(families, expected);
        ours.active(true);
        ours.output(&Output::Dropped {
            reason: DropReason::BeginUnseen,
            count: 3,
        });
        ours.api_clock(&ApiClock {
            earliest: -250_000_000,
            latest: 50_000_000,
        });
        let text = metrics.text().unwrap();
        assert!(
            text.contains("epitaph_kubernetes_clock_ahead_seconds{bound=\"least\"} -0.25"),
            "{text}"
        );
        assert!(text.contains("epitaph_observer_active 1"), "{text}");
        assert!(
            text.contains("epitaph_observer_dropped_total{reason=\"begin_unseen\"} 3"),
            "{text}"
        );
    }
}
