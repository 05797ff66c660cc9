//! Metrics of an observer, in addition to those of every epitaph process.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, PoisonError};

use epitaph_core::observe::kept::RemovalReason;
use epitaph_core::observe::{Holder, LossState, LostNodeState, ObserverDropReason, Output, PhaseKind, Watch};
use epitaph_core::pod::ApiClock;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge};

use super::rollouts::{ROLLOUT_CONNECTIONS, ROLLOUT_PODS, ROLLOUT_SETTLED};
use super::table::KUBERNETES_CLOCK;
use super::{Metrics, Row, Shape, record_clock};
use crate::sink::epitaphs::KeepStats;

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
    labels: &[(
        "span",
        "endpoint.removal, replacement, node.lost, node.not_ready, node.out_of_service, node.down, pod.lost, volume.detach, duplicate.run",
    )],
    about: "Spans that the observer added to the traces of the agents, and spans about lost nodes. The spans `stuck` (below `pod.lost`) \
            and `endpoints.ready` (with `node.not_ready`) are not counted",
};
pub const KNOWN: Row = Row {
    name: "epitaph.observer.known",
    shape: Shape::Gauge,
    unit: "{object}",
    labels: &[("object", "pods, endpoints, nodes")],
    about: "Objects that the observer keeps in memory",
};
pub const WATCH_BREAKS: Row = Row {
    name: "epitaph.observer.watch.breaks",
    shape: Shape::Counter,
    unit: "{break}",
    labels: &[(
        "watch",
        "endpointslices, pods, namespaces, nodes, volumeattachments, replicasets, epitaphs",
    )],
    about: "Lists and watches that failed; spans affected by the interruption carry the length of the gap",
};
pub const STALLS: Row = Row {
    name: "epitaph.observer.stalls",
    shape: Shape::Counter,
    unit: "{stall}",
    labels: &[],
    about: "How often the observer had a gap: it processed no update for over 2 s (it had no CPU time, or was stopped); or its wall clock \
            stepped forward by a second or more (the clock was set, or the machine was paused); or it did not hold its Lease for a while. \
            Spans that are affected have the length of the gap",
};
pub const DROPPED: Row = Row {
    name: "epitaph.observer.dropped",
    shape: Shape::Counter,
    unit: "{item}",
    labels: &[(
        "reason",
        "pod_cap, endpoint_cap, vacancy_cap (replacement pods for which the observer waits), node_cap, lost_pod_cap, attachment_cap, \
         begin_unseen (the span began before the observer), pod_unknown, pod_goes_on, unreadable, \
         question, unconfirmed, rollout_cap (ReplicaSets beyond the first 50,000: their rollouts are not followed), rollout_unreadable",
    )],
    about: "Items that the observer did not keep, and spans that the observer did not export because it had not seen their start or the \
            end of the pod. `question`: requests about lost nodes that were not sent, because thousands of them were waiting. \
            `unconfirmed`: reports that were not sent, because no renewal of the Lease confirmed that this observer was still the active \
            one",
};

const NODE: (&str, &str) = (
    "k8s.node.name",
    "a node that is lost, or has the taint `out-of-service`; at most 200 nodes, the same for every metric. If there are more: first nodes \
     with an alert (up to 40 for each alert), then the nodes with the most stuck pods, pods that may run twice, and volumes that are still \
     attached",
);
/// Most nodes with series of their own: in a lost zone, the first of them show enough.
const NODES: usize = 200;
/// Values above 0 that an alert is about.
const ALERTED: [fn(&LostNodeState) -> usize; 5] = [
    |node| node.stuck,
    |node| node.run_twice,
    |node| node.volumes,
    |node| node.evictions_held.into(),
    |node| (node.is_ready && node.out_of_service).into(),
];
/// Most namespaces with series of their own, for each of those that hold pods.
const NAMESPACES: usize = 100;

pub const LOST_NODE: Row = Row {
    name: "epitaph.node.lost",
    shape: Shape::Gauge,
    unit: "",
    labels: &[NODE, ("verdict", "lost, unreachable, fenced-by-taint, taint-left-behind")],
    about: "1 for each node that is not ready, with its present verdict; also for a node that is ready and still has the taint \
            `out-of-service`",
};
pub const LOST_NODE_PODS: Row = Row {
    name: "epitaph.node.pods_stuck",
    shape: Shape::Gauge,
    unit: "{pod}",
    labels: &[NODE],
    about: "Pods of a node that is not ready that still exist although the time `observer.stuck_after` has passed since the end of their \
            grace period, or, while kubelet and agent are silent, since their deletion",
};
pub const LOST_NODE_VOLUMES: Row = Row {
    name: "epitaph.node.volumes_left",
    shape: Shape::Gauge,
    unit: "{volume}",
    labels: &[NODE],
    about: "Volumes that are still attached to a node that is not ready, although their pods are gone or a replacement pod waits for them",
};
pub const OUT_OF_SERVICE: Row = Row {
    name: "epitaph.node.out_of_service",
    shape: Shape::Gauge,
    unit: "",
    labels: &[NODE, ("ready", "true, false")],
    about: "1 for each node with the taint `node.kubernetes.io/out-of-service`",
};
pub const RUN_TWICE: Row = Row {
    name: "epitaph.node.pods_run_twice",
    shape: Shape::Gauge,
    unit: "{pod}",
    labels: &[NODE],
    about: "Pods that were deleted without the kubelet on a node that is not ready but whose machine runs: their containers may run at the \
            same time as their replacements. Only pods of a StatefulSet, or with a volume, are counted",
};
pub const EVICTIONS_HELD: Row = Row {
    name: "epitaph.node.evictions_held",
    shape: Shape::Gauge,
    unit: "",
    labels: &[NODE],
    about: "1 for each node whose kubelet has been silent for a minute and whose pods the node lifecycle controller does not evict, for \
            example because many nodes of the zone are not ready; 0 for the other nodes",
};
pub const STUCK_PODS: Row = Row {
    name: "epitaph.pods.stuck",
    shape: Shape::Gauge,
    unit: "{pod}",
    labels: &[("holder", "node, finalizer, volume, runtime")],
    about: "Pods of the cluster that were deleted and still exist although the time `observer.stuck_after` has passed since the end of \
            their grace period, by what holds them. `volume`: pods of a ready node whose volumes are not unmounted, and replacement pods \
            that have waited for this time for a volume of a lost node",
};

pub const HELD_PODS: Row = Row {
    name: "epitaph.pods.held",
    shape: Shape::Gauge,
    unit: "{pod}",
    labels: &[
        ("holder", "finalizer, volume, runtime"),
        (
            "k8s.namespace.name",
            "namespace of the pods; for each holder only the 100 namespaces with the most such pods",
        ),
    ],
    about: "Those pods of `epitaph_pods_stuck` that something other than a lost node holds, by namespace; no series while there are no \
            such pods",
};

pub const EPITAPHS: Row = Row {
    name: "epitaph.observer.epitaphs",
    shape: Shape::Gauge,
    unit: "{object}",
    labels: &[],
    about: "Number of Epitaphs in the cluster, counted by the active observer every five minutes; 0 on an observer that is not active",
};
pub const EPITAPHS_REMOVED: Row = Row {
    name: "epitaph.observer.epitaphs.removed",
    shape: Shape::Counter,
    unit: "{object}",
    labels: &[(
        "reason",
        "age, namespace (more than `observer.epitaphs_per_namespace`), cluster (more than `observer.epitaphs`)",
    )],
    about: "Epitaphs that the observer removed",
};
pub const EPITAPHS_FAILED: Row = Row {
    name: "epitaph.observer.epitaphs.failures",
    shape: Shape::Counter,
    unit: "{request}",
    labels: &[],
    about: "Lists and deletions of Epitaphs that failed; the log has the reason",
};

pub const ROLLOUT_FAILURES: Row = Row {
    name: "epitaph.observer.rollout.failures",
    shape: Shape::Counter,
    unit: "{request}",
    labels: &[],
    about: "Requests to the API, needed to report what a rollout cost, that failed and are repeated; the log has the reason",
};

pub const TABLE: &[Row] = &[
    ACTIVE,
    SPANS,
    KNOWN,
    WATCH_BREAKS,
    STALLS,
    DROPPED,
    LOST_NODE,
    LOST_NODE_PODS,
    LOST_NODE_VOLUMES,
    OUT_OF_SERVICE,
    RUN_TWICE,
    EVICTIONS_HELD,
    STUCK_PODS,
    HELD_PODS,
    EPITAPHS,
    EPITAPHS_REMOVED,
    EPITAPHS_FAILED,
    ROLLOUT_SETTLED,
    ROLLOUT_PODS,
    ROLLOUT_CONNECTIONS,
    ROLLOUT_FAILURES,
];

/// Of a trace with one root or span.
const SPAN_NAMES: [&str; 9] = [
    "endpoint.removal",
    "replacement",
    "node.lost",
    "node.not_ready",
    "node.out_of_service",
    "node.down",
    "pod.lost",
    "volume.detach",
    "duplicate.run",
];

/// Registered with a [`Metrics`], and read with it.
pub struct ObserverMetrics {
    active: Gauge<u64>,
    spans: Counter<u64>,
    known: Gauge<u64>,
    watch_breaks: Counter<u64>,
    stalls: Counter<u64>,
    dropped: Counter<u64>,
    rollout_failures: Counter<u64>,
    clock: Gauge<f64>,
    /// None: not the active observer, and no series.
    losses: Arc<Mutex<Option<LossState>>>,
}

impl ObserverMetrics {
    pub fn new(metrics: &Metrics) -> ObserverMetrics {
        let meter = &metrics.meter;
        let ours = ObserverMetrics {
            active: ACTIVE.gauge(meter),
            spans: SPANS.counter(meter),
            known: KNOWN.gauge(meter),
            watch_breaks: WATCH_BREAKS.counter(meter),
            stalls: STALLS.counter(meter),
            dropped: DROPPED.counter(meter),
            rollout_failures: ROLLOUT_FAILURES.counter(meter),
            clock: KUBERNETES_CLOCK.gauge_f64(meter),
            losses: Arc::default(),
        };
        ours.follow_losses(metrics);
        ours.active(false);
        ours.known([0; 3]);
        for span in SPAN_NAMES {
            ours.spans.add(0, &[KeyValue::new("span", span)]);
        }
        for watch in Watch::ALL {
            ours.watch_breaks(watch.name(), 0);
        }
        ours.watch_breaks("replicasets", 0);
        ours.watch_breaks("epitaphs", 0);
        ours.rollout_failures(0);
        ours.dropped("rollout_cap", 0);
        ours.dropped("rollout_unreadable", 0);
        ours.stalls.add(0, &[]);
        for reason in ObserverDropReason::ALL {
            ours.dropped(reason.name(), 0);
        }
        ours.dropped("unreadable", 0);
        ours.dropped("question", 0);
        ours.dropped("unconfirmed", 0);
        ours
    }

    /// The state of lost nodes, read at every collection: a series ends with its state.
    pub fn losses(&self, mut state: Option<LossState>) {
        if let Some(state) = &mut state {
            keep_most(&mut state.nodes);
        }
        *self.losses.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn follow_losses(&self, metrics: &Metrics) {
        let follow = |row: Row, points: fn(&LossState) -> Points| {
            let losses = self.losses.clone();
            metrics
                .meter
                .u64_observable_gauge(row.name)
                .with_unit(row.unit)
                .with_description(row.about)
                .with_callback(move |observer| {
                    let losses = losses.lock().unwrap_or_else(PoisonError::into_inner);
                    for (value, labels) in losses.iter().flat_map(points) {
                        observer.observe(value, &labels);
                    }
                })
                .build();
        };
        follow(LOST_NODE, |state| {
            let node = |node: &LostNodeState| (1, vec![name(node), KeyValue::new("verdict", node.verdict)]);
            state.nodes.iter().map(node).collect()
        });
        follow(LOST_NODE_PODS, |state| not_ready(state, |node| node.stuck as u64));
        follow(LOST_NODE_VOLUMES, |state| not_ready(state, |node| node.volumes as u64));
        follow(OUT_OF_SERVICE, |state| {
            let tainted = state.nodes.iter().filter(|node| node.out_of_service);
            tainted
                .map(|node| (1, vec![name(node), KeyValue::new("ready", node.is_ready.to_string())]))
                .collect()
        });
        follow(RUN_TWICE, |state| not_ready(state, |node| node.run_twice as u64));
        follow(EVICTIONS_HELD, |state| not_ready(state, |node| node.evictions_held.into()));
        follow(HELD_PODS, |state| {
            let most = |by: Holder| {
                let mut held: Vec<_> = state.held.iter().filter(|((holder, _), _)| *holder == by).collect();
                held.sort_by_key(|(_, count)| Reverse(**count));
                held.truncate(NAMESPACES);
                held
            };
            let held = Holder::ALL.into_iter().flat_map(most);
            held.map(|((by, namespace), count)| {
                let labels = [
                    ("holder", by.name().to_owned()),
                    ("k8s.namespace.name", namespace.to_string()),
                ];
                (*count as u64, labels.map(|(key, value)| KeyValue::new(key, value)).to_vec())
            })
            .collect()
        });
        follow(STUCK_PODS, |state| {
            let each = Holder::ALL.into_iter().zip(state.stuck);
            each.map(|(by, count)| (count as u64, vec![KeyValue::new("holder", by.name())]))
                .collect()
        });
    }

    /// Reads what was removed at every collection.
    pub fn follow_epitaphs(metrics: &Metrics, stats: Arc<KeepStats>) {
        let meter = &metrics.meter;
        let (removed, failed) = (stats.clone(), stats.clone());
        meter
            .u64_observable_gauge(EPITAPHS.name)
            .with_unit(EPITAPHS.unit)
            .with_description(EPITAPHS.about)
            .with_callback(move |observer| observer.observe(stats.kept(), &[]))
            .build();
        meter
            .u64_observable_counter(EPITAPHS_REMOVED.name)
            .with_unit(EPITAPHS_REMOVED.unit)
            .with_description(EPITAPHS_REMOVED.about)
            .with_callback(move |observer| {
                for reason in RemovalReason::ALL {
                    observer.observe(removed.removed(reason), &[KeyValue::new("reason", reason.name())]);
                }
            })
            .build();
        meter
            .u64_observable_counter(EPITAPHS_FAILED.name)
            .with_unit(EPITAPHS_FAILED.unit)
            .with_description(EPITAPHS_FAILED.about)
            .with_callback(move |observer| observer.observe(failed.failed(), &[]))
            .build();
    }

    pub fn active(&self, active: bool) {
        self.active.record(active.into(), &[]);
    }

    /// Numbers of pods, endpoints and nodes in memory.
    pub fn known(&self, known: [usize; 3]) {
        for (object, count) in ["pods", "endpoints", "nodes"].into_iter().zip(known) {
            self.known.record(count as u64, &[KeyValue::new("object", object)]);
        }
    }

    pub fn watch_breaks(&self, watch: &'static str, count: u64) {
        self.watch_breaks.add(count, &[KeyValue::new("watch", watch)]);
    }

    /// Requests about rollouts that failed.
    pub fn rollout_failures(&self, count: u64) {
        self.rollout_failures.add(count, &[]);
    }

    pub fn stalled(&self) {
        self.stalls.add(1, &[]);
    }

    pub fn dropped(&self, reason: &'static str, count: u64) {
        self.dropped.add(count, &[KeyValue::new("reason", reason)]);
    }

    pub fn api_clock(&self, clock: &ApiClock) {
        record_clock(&self.clock, clock);
    }

    pub fn output(&self, output: &Output) {
        let span = match output {
            Output::Removal(_) => "endpoint.removal",
            Output::Replacement(_) => "replacement",
            Output::NodeLost(_) => "node.lost",
            Output::NodePhase(phase) => phase.kind.name(),
            Output::ShuttingDown(_) => PhaseKind::NotReady.name(),
            Output::PodLost(_) => "pod.lost",
            Output::VolumeDetach(_) => "volume.detach",
            Output::DuplicateRun(_) => "duplicate.run",
            Output::LossAlarm(_) | Output::Ask(_) => return,
            Output::Dropped { reason, count } => return self.dropped(reason.name(), *count),
        };
        self.spans.add(1, &[KeyValue::new("span", span)]);
    }
}

/// A value and its labels each.
type Points = Vec<(u64, Vec<KeyValue>)>;

/// Cuts to the nodes with series, the same for every metric: an alert joins two metrics. Each alert has its share, so that a large loss
/// does not hide the few nodes of another alert.
fn keep_most(nodes: &mut Vec<LostNodeState>) {
    if nodes.len() <= NODES {
        return;
    }
    let mut rest = std::mem::take(nodes);
    for value in ALERTED {
        rest.sort_by(|a, b| value(b).cmp(&value(a)).then_with(|| a.name.cmp(&b.name)));
        let first = rest.iter().take(NODES / ALERTED.len());
        let share = first.take_while(|node| value(node) > 0).count();
        nodes.extend(rest.drain(..share));
    }
    let values = |node: &LostNodeState| (node.stuck, node.run_twice, node.volumes);
    rest.sort_by(|a, b| values(b).cmp(&values(a)).then_with(|| a.name.cmp(&b.name)));
    rest.truncate(NODES.saturating_sub(nodes.len()));
    nodes.append(&mut rest);
}

/// Nodes that are not ready.
fn not_ready(state: &LossState, value: fn(&LostNodeState) -> u64) -> Points {
    let lost = state.nodes.iter().filter(|node| !node.is_ready);
    lost.map(|node| (value(node), vec![name(node)])).collect()
}

fn name(node: &LostNodeState) -> KeyValue {
    KeyValue::new("k8s.node.name", node.name.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use epitaph_core::rollout::{RevisionCost, RolledWorkload, SettledRollout};
    use epitaph_core::time::Wall;
    use opentelemetry_sdk::Resource;

    use super::*;
    use crate::sink::metrics::rollouts::RolloutMetrics;

    #[test]
    fn an_observer_has_only_its_own_rows_at_zero() {
        let push = None::<(crate::sink::metrics::push::Push, Duration)>;
        let metrics = Metrics::empty(Resource::builder_empty().build(), push, 10).unwrap();
        let ours = ObserverMetrics::new(&metrics);
        ObserverMetrics::follow_epitaphs(&metrics, Arc::default());
        let rollout = SettledRollout {
            workload: RolledWorkload::default(),
            revision: 2,
            cost: Some(RevisionCost {
                refused: Some(0),
                ..RevisionCost::default()
            }),
        };
        RolloutMetrics::new(&metrics).settled(rollout, Wall(1));
        let families = |text: &str| -> BTreeSet<String> {
            let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
            types.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
        };
        // A standby has no series of lost nodes.
        assert!(!metrics.text().unwrap().contains("epitaph_pods_stuck{"));
        ours.losses(Some(LossState {
            nodes: vec![
                state("n1", false, "fenced-by-taint", 3),
                state("n2", true, "taint-left-behind", 0),
            ],
            stuck: [3, 0, 1, 0],
            held: [((Holder::Volume, "shop".into()), 1)].into(),
        }));
        let text = metrics.text().unwrap();
        for line in [
            "epitaph_node_lost{k8s_node_name=\"n1\",verdict=\"fenced-by-taint\"} 1",
            "epitaph_node_pods_stuck{k8s_node_name=\"n1\"} 3",
            "epitaph_node_volumes_left{k8s_node_name=\"n1\"} 2",
            "epitaph_node_evictions_held{k8s_node_name=\"n1\"} 1",
            "epitaph_node_pods_run_twice{k8s_node_name=\"n1\"} 1",
            "epitaph_node_out_of_service{k8s_node_name=\"n2\",ready=\"true\"} 1",
            "epitaph_pods_stuck{holder=\"node\"} 3",
            "epitaph_pods_stuck{holder=\"finalizer\"} 0",
            "epitaph_pods_held{holder=\"volume\",k8s_namespace_name=\"shop\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("epitaph_node_pods_stuck{k8s_node_name=\"n2\"}"), "{text}");
        let mut expected: BTreeSet<String> = TABLE.iter().chain([&super::super::BUILD]).map(Row::prometheus).collect();
        // The exporter's series for the resource.
        expected.insert("target_info".to_owned());
        let mut families = families(&text);
        families.insert("target_info".to_owned());
        assert_eq!(families, expected);
        // Of more nodes than the bound, the last by name is the one to act on.
        let mut nodes: Vec<LostNodeState> = (0..NODES)
            .map(|at| LostNodeState {
                run_twice: 0,
                volumes: 0,
                out_of_service: false,
                evictions_held: false,
                ..state(&format!("n{at:03}"), false, "lost", 0)
            })
            .collect();
        nodes.push(state("z", false, "fenced-by-taint", 3));
        nodes.push(state("z-ready", true, "taint-left-behind", 0));
        ours.losses(Some(LossState {
            nodes,
            ..LossState::default()
        }));
        let text = metrics.text().unwrap();
        for line in [
            "epitaph_node_pods_stuck{k8s_node_name=\"z\"} 3",
            "epitaph_node_volumes_left{k8s_node_name=\"z\"} 2",
            "epitaph_node_evictions_held{k8s_node_name=\"z\"} 1",
            "epitaph_node_pods_run_twice{k8s_node_name=\"z\"} 1",
            "epitaph_node_out_of_service{k8s_node_name=\"z-ready\",ready=\"true\"} 1",
        ] {
            assert!(text.contains(line), "{line}");
        }
        // One of the nodes is ready.
        for (family, count) in [("epitaph_node_lost{", NODES), ("epitaph_node_pods_run_twice{", NODES - 1)] {
            assert_eq!(text.matches(family).count(), count, "{family}");
        }
        // The state is over: so are its series.
        ours.losses(Some(LossState::default()));
        assert!(!metrics.text().unwrap().contains("k8s_node_name"));
        ours.active(true);
        ours.output(&Output::Dropped {
            reason: ObserverDropReason::BeginUnseen,
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

    #[test]
    fn of_a_large_loss_every_metric_shows_the_same_nodes_and_every_alert_has_some() {
        let plain = |name: &str, stuck| LostNodeState {
            out_of_service: false,
            run_twice: 0,
            volumes: 0,
            evictions_held: false,
            ..state(name, false, "lost", stuck)
        };
        // The last by name have the most stuck pods.
        let mut nodes: Vec<LostNodeState> = (0..2 * NODES).map(|at| plain(&format!("n{at:03}"), 1 + at / NODES)).collect();
        type Mark = fn(&mut LostNodeState);
        let special: [(&str, Mark); 5] = [
            ("z-held", |node| node.evictions_held = true),
            ("z-nothing", |_| {}),
            ("z-taint", |node| (node.is_ready, node.out_of_service) = (true, true)),
            ("z-twice", |node| node.run_twice = 1),
            ("z-volume", |node| node.volumes = 1),
        ];
        nodes.extend(special.map(|(name, change)| {
            let mut node = plain(name, 0);
            change(&mut node);
            node
        }));
        let push = None::<(crate::sink::metrics::push::Push, Duration)>;
        let metrics = Metrics::empty(Resource::builder_empty().build(), push, 10).unwrap();
        let ours = ObserverMetrics::new(&metrics);
        ours.losses(Some(LossState {
            nodes,
            ..LossState::default()
        }));
        let text = metrics.text().unwrap();
        let shown = |family: &str| -> BTreeSet<String> {
            let begin = format!("{family}{{k8s_node_name=\"");
            let lines = text.lines().filter_map(|line| line.strip_prefix(&begin));
            lines.filter_map(|line| Some(line.split_once('"')?.0.to_owned())).collect()
        };
        let lost = shown("epitaph_node_lost");
        let of_alerts = ["z-twice", "z-volume", "z-held", "z-taint"].map(str::to_owned);
        // Of equal values, the first by name.
        let most: Vec<String> = (NODES..2 * NODES - 4).map(|at| format!("n{at:03}")).collect();
        assert_eq!(lost, most.into_iter().chain(of_alerts).collect());
        let not_ready: BTreeSet<String> = lost.into_iter().filter(|name| name != "z-taint").collect();
        for family in [
            "epitaph_node_pods_stuck",
            "epitaph_node_volumes_left",
            "epitaph_node_pods_run_twice",
            "epitaph_node_evictions_held",
        ] {
            assert_eq!(shown(family), not_ready, "{family}");
        }
        assert_eq!(shown("epitaph_node_out_of_service"), ["z-taint".to_owned()].into());
    }

    fn state(name: &str, is_ready: bool, verdict: &'static str, stuck: usize) -> LostNodeState {
        LostNodeState {
            name: name.into(),
            is_ready,
            verdict,
            stuck,
            out_of_service: true,
            run_twice: 1,
            volumes: 2,
            evictions_held: true,
        }
    }
}
