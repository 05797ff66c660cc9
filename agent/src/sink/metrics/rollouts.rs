//! What the last rollout of each workload cost: of the active observer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use epitaph_core::rollout::{RevisionCost, RolledWorkload, SettledRollout, WorkloadKey};
use epitaph_core::time::Wall;
use opentelemetry::KeyValue;

use super::table::NAMESPACE;
use super::{Metrics, Row, Shape};

/// Most workloads with series of their own; beyond them the rollout that settled the longest time ago has none.
const WORKLOADS: usize = 500;

const WORKLOAD_NAME: (&str, &str) = ("epitaph.workload.name", "name of the workload");

const KIND: (&str, &str) = ("epitaph.workload.kind", "Deployment, or Rollout of Argo Rollouts");

pub const ROLLOUT_SETTLED: Row = Row {
    name: "epitaph.rollout.settled.timestamp",
    shape: Shape::Gauge,
    unit: "s",
    labels: &[
        NAMESPACE,
        KIND,
        WORKLOAD_NAME,
        ("revision", "the revision that was rolled out"),
    ],
    about: "Unix time at which the last rollout of the workload had settled: the new ReplicaSet was available, and no old pod had existed \
            for 30 s. Only the active observer has this series. The series of rollouts exist for the 500 workloads with the latest \
            rollouts. When another observer becomes active, it checks the rollouts of the last hour again, and the value is then the time \
            of this check. A pipeline should therefore find its rollout by the revision, or accept only a time after the start of the \
            rollout",
};
pub const ROLLOUT_PODS: Row = Row {
    name: "epitaph.rollout.pods",
    shape: Shape::Gauge,
    unit: "{pod}",
    labels: &[
        NAMESPACE,
        KIND,
        WORKLOAD_NAME,
        (
            "state",
            "all: replaced pods with a report; unclean: pods of `all` with an unclean termination; unknown: pods of `all` without enough \
             evidence for a verdict; unobserved: pods of `all` whose connections are not known, or known only in part; missing: replaced \
             pods without a report, no series if their number is not known",
        ),
    ],
    about: "Pods that the last rollout of the workload replaced, counted from their Epitaphs; no series if nothing is known of these pods",
};
pub const ROLLOUT_CONNECTIONS: Row = Row {
    name: "epitaph.rollout.connections",
    shape: Shape::Gauge,
    unit: "{connection}",
    labels: &[
        NAMESPACE,
        KIND,
        WORKLOAD_NAME,
        (
            "kind",
            "refused, reset, cut: lost connections; undecided: it is not known whether a request was under way",
        ),
    ],
    about: "Connections that clients lost at the pods that the last rollout replaced. The series exists also with the value 0; it is \
            absent if the connections of no replaced pod are known",
};

struct Last {
    settled: Wall,
    rollout: SettledRollout,
}

type Rollouts = HashMap<WorkloadKey, Last>;

/// Read at every collection: a series ends with its workload, and with the observer's Lease.
#[derive(Clone, Default)]
pub struct RolloutMetrics(Arc<Mutex<Rollouts>>);

impl RolloutMetrics {
    pub fn new(metrics: &Metrics) -> RolloutMetrics {
        let ours = RolloutMetrics::default();
        let follow = |row: &Row, points: fn(&Last) -> Points| {
            let rollouts = ours.0.clone();
            metrics
                .meter
                .u64_observable_gauge(row.name)
                .with_unit(row.unit)
                .with_description(row.about)
                .with_callback(move |observer| {
                    let rollouts = rollouts.lock().unwrap_or_else(PoisonError::into_inner);
                    for last in rollouts.values() {
                        let workload = labels(&last.rollout.workload);
                        for (value, own) in points(last) {
                            let labels: Vec<KeyValue> = workload.iter().cloned().chain([own]).collect();
                            observer.observe(value, &labels);
                        }
                    }
                })
                .build();
        };
        follow(&ROLLOUT_SETTLED, |last| {
            let revision = KeyValue::new("revision", last.rollout.revision.to_string());
            vec![(last.settled.0 / 1_000_000_000, revision)]
        });
        follow(&ROLLOUT_PODS, |last| of_cost(last, "state", pods));
        follow(&ROLLOUT_CONNECTIONS, |last| of_cost(last, "kind", connections));
        ours
    }

    pub fn settled(&self, rollout: SettledRollout, at: Wall) {
        let mut rollouts = self.rollouts();
        // Late reports: it has settled before.
        let last = rollouts.get(&rollout.workload.key());
        let settled = last
            .filter(|last| last.rollout.revision == rollout.revision)
            .map_or(at, |last| last.settled);
        rollouts.insert(rollout.workload.key(), Last { settled, rollout });
        if rollouts.len() > WORKLOADS
            && let Some(oldest) = rollouts
                .iter()
                .min_by_key(|(_, last)| last.settled)
                .map(|(key, _)| key.clone())
        {
            rollouts.remove(&oldest);
        }
    }

    pub fn gone(&self, workload: &RolledWorkload) {
        self.rollouts().remove(&workload.key());
    }

    /// Not the active observer any longer.
    pub fn clear(&self) {
        self.rollouts().clear();
    }

    fn rollouts(&self) -> std::sync::MutexGuard<'_, Rollouts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn labels(of: &RolledWorkload) -> [KeyValue; 3] {
    [
        KeyValue::new(NAMESPACE.0, of.namespace.clone()),
        KeyValue::new(KIND.0, of.kind.clone()),
        KeyValue::new(WORKLOAD_NAME.0, of.name.clone()),
    ]
}

/// Values, each with the label that only its row has.
type Points = Vec<(u64, KeyValue)>;

/// None: not known.
type Counts<const N: usize> = [(&'static str, Option<u64>); N];

fn of_cost<const N: usize>(last: &Last, label: &'static str, counts: fn(&RevisionCost) -> Counts<N>) -> Points {
    let counts = last.rollout.cost.iter().flat_map(counts);
    counts
        .filter_map(|(name, count)| Some((count?, KeyValue::new(label, name))))
        .collect()
}

fn pods(of: &RevisionCost) -> Counts<5> {
    [
        ("all", Some(of.pods)),
        ("unclean", Some(of.unclean)),
        ("unknown", Some(of.unknown)),
        ("unobserved", Some(of.unobserved)),
        ("missing", of.unreported),
    ]
}

fn connections(of: &RevisionCost) -> Counts<4> {
    [
        ("refused", of.refused),
        ("reset", of.reset),
        ("cut", of.cut),
        ("undecided", of.undecided),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use opentelemetry_sdk::Resource;

    use super::*;
    use crate::sink::metrics::push::Push;

    fn rollout(name: &str, revision: u64, refused: u64) -> SettledRollout {
        SettledRollout {
            workload: RolledWorkload {
                kind: "Deployment".to_owned(),
                api_version: "apps/v1".to_owned(),
                namespace: "shop".to_owned(),
                name: name.to_owned(),
                uid: name.to_owned(),
            },
            revision,
            cost: Some(RevisionCost {
                pods: 3,
                unclean: 1,
                refused: Some(refused),
                unreported: Some(2),
                ..RevisionCost::default()
            }),
        }
    }

    #[test]
    fn the_templates_of_pipelines_use_these_metrics_and_labels() {
        let rows = [ROLLOUT_SETTLED, ROLLOUT_PODS, ROLLOUT_CONNECTIONS];
        for template in [
            include_str!("../../../../deploy/pipelines/argo-rollouts.yaml"),
            include_str!("../../../../deploy/pipelines/flagger.yaml"),
        ] {
            let mut used = 0;
            for (at, _) in template.match_indices("epitaph_rollout_") {
                let (name, rest) = template[at..].split_once('{').expect("a selector");
                let row = rows.iter().find(|row| row.prometheus() == name).expect(name);
                // A placeholder's braces are within the quotes.
                let (selector, _) = rest.split_once("\"}").expect("its end");
                for label in selector.split("\",").filter_map(|part| part.split('=').next()) {
                    let is_known = row.labels.iter().any(|(known, _)| known.replace('.', "_") == label);
                    assert!(is_known, "{name}: {label}");
                }
                used += 1;
            }
            assert!(used > 0, "{template}");
        }
    }

    #[test]
    fn a_workload_has_the_series_of_its_last_rollout() {
        let metrics = Metrics::empty(Resource::builder_empty().build(), None::<(Push, Duration)>, 10).unwrap();
        let ours = RolloutMetrics::new(&metrics);
        let at = |seconds: u64| Wall(seconds * 1_000_000_000);
        ours.settled(rollout("web", 6, 14), at(100));
        ours.settled(rollout("web", 7, 0), at(200));
        let text = metrics.text().unwrap();
        let workload = r#"epitaph_workload_kind="Deployment",epitaph_workload_name="web",k8s_namespace_name="shop""#;
        for line in [
            format!(r#"epitaph_rollout_settled_timestamp_seconds{{{workload},revision="7"}} 200"#),
            format!(r#"epitaph_rollout_pods{{{workload},state="unclean"}} 1"#),
            format!(r#"epitaph_rollout_pods{{{workload},state="missing"}} 2"#),
            format!(r#"epitaph_rollout_connections{{{workload},kind="refused"}} 0"#),
        ] {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        assert!(!text.contains("revision=\"6\""), "{text}");
        // No pod has a report: nothing is known, not zero.
        let mut missing = rollout("web", 7, 0);
        missing.cost = Some(RevisionCost {
            unreported: Some(3),
            ..RevisionCost::default()
        });
        ours.settled(missing, at(250));
        let text = metrics.text().unwrap();
        assert!(!text.contains("epitaph_rollout_connections{"), "{text}");
        for line in [
            format!(r#"epitaph_rollout_pods{{{workload},state="missing"}} 3"#),
            // Late reports do not change when it has settled.
            format!(r#"epitaph_rollout_settled_timestamp_seconds{{{workload},revision="7"}} 200"#),
        ] {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        let mut unknown = rollout("web", 8, 0);
        unknown.cost = None;
        ours.settled(unknown, at(300));
        let text = metrics.text().unwrap();
        assert!(
            text.contains("revision=\"8\"") && !text.contains("epitaph_rollout_pods{"),
            "{text}"
        );
        let mut forged = rollout("web", 9, 0).workload;
        forged.namespace = "mallory".to_owned();
        ours.gone(&forged);
        assert!(
            metrics.text().unwrap().contains("revision=\"8\""),
            "a namespace ends only its own series"
        );
        ours.gone(&rollout("web", 8, 0).workload);
        for n in 0..WORKLOADS as u64 + 5 {
            ours.settled(rollout(&format!("w{n}"), 2, 0), at(n));
        }
        let text = metrics.text().unwrap();
        assert_eq!(text.matches("epitaph_rollout_settled_timestamp_seconds{").count(), WORKLOADS);
        assert!(!text.contains("\"w4\"") && text.contains("\"w5\""), "{text}");
        ours.clear();
        assert!(!metrics.text().unwrap().contains("epitaph_rollout_"));
    }
}
