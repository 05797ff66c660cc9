//! The revisions of a workload by the API: ReplicaSets or ControllerRevisions, their pods, and how many of these were replaced.

use std::collections::{BTreeMap, BTreeSet};

use epitaph_core::rollout::{KnownRevision, ReplacedPods};
use epitaph_core::time::Wall;
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use super::{HASHES, REVISION, has_terminated, is_owned, selector};
use crate::cluster::{
    CONTROLLER_REVISIONS, Cluster, DAEMON_SETS, DEPLOYMENTS, EVENTS, Kind, PODS, Place, REPLICA_SETS, Selection,
};
use crate::failure::Failure;

/// Of a ReplicaSet that a rollback took up again: the numbers that it had before.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Pods that the Deployment wanted when it last scaled the ReplicaSet.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";

/// Revisions with the names of their pods.
pub(super) async fn revisions(cluster: &Cluster, kind: Kind, workload: &DynamicObject) -> Result<Vec<KnownRevision>, Failure> {
    let place = Place::Namespace(&cluster.namespace);
    let selection = Selection::labels(selector(&workload.data["spec"]["selector"]));
    let of = if is_deployment(kind) {
        REPLICA_SETS
    } else {
        CONTROLLER_REVISIONS
    };
    let (mut owned, _) = cluster.list(of, place, &selection).await?;
    owned.retain(|object| is_owned(object, workload));
    let (mut pods, _) = cluster.list(PODS, place, &selection).await?;
    pods.retain(|pod| !has_terminated(pod));
    let events = match is_deployment(kind) {
        true => {
            let selection = Selection::fields("reason=SuccessfulDelete,involvedObject.kind=ReplicaSet");
            cluster.list(EVENTS, place, &selection).await?.0
        }
        false => Vec::new(),
    };
    let of = Workload {
        is_deployment: is_deployment(kind),
        wanted: wanted(kind, workload),
        is_recreated: is_recreated(workload),
    };
    Ok(known(of, &owned, &pods, &deleted(&events)))
}

fn is_deployment(kind: Kind) -> bool {
    kind.name() == DEPLOYMENTS.name()
}

/// The strategy of a Deployment.
fn is_recreated(workload: &DynamicObject) -> bool {
    workload.data["spec"]["strategy"]["type"].as_str() == Some("Recreate")
}

#[derive(Clone, Copy)]
struct Workload {
    is_deployment: bool,
    /// Of a StatefulSet or DaemonSet.
    wanted: Option<u64>,
    is_recreated: bool,
}

/// Events never count the replaced pods: Kubernetes combines some, drops others, and keeps them for as long as the API server is configured to.
fn known(
    workload: Workload,
    owned: &[DynamicObject],
    pods: &[DynamicObject],
    deleted: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<KnownRevision> {
    let Workload { is_deployment, .. } = workload;
    let revision = |object: &DynamicObject| {
        let hash = HASHES
            .iter()
            .find_map(|label| object.labels().get(*label).cloned())
            .unwrap_or_else(|| object.name_any());
        let annotation = |name: &str| object.annotations().get(name);
        let is_own = |pod: &&DynamicObject| HASHES.iter().any(|label| pod.labels().get(*label) == Some(&hash));
        let at_most = match is_deployment {
            true => annotation(DESIRED).and_then(|text| text.parse().ok()),
            false => workload.wanted,
        };
        Some(KnownRevision {
            number: match is_deployment {
                true => annotation(REVISION)?.parse().ok()?,
                false => object.data["revision"].as_u64()?,
            },
            begun: match is_deployment {
                true => created(object),
                false => written(object),
            },
            is_resumed: annotation(REVISION_HISTORY).is_some_and(|history| !history.is_empty()),
            pods: pods.iter().filter(is_own).map(kube::ResourceExt::name_any).collect(),
            deleted: deleted.get(&object.name_any()).cloned().unwrap_or_default(),
            replaced: at_most.map_or(ReplacedPods::Unknown, ReplacedPods::AtMost),
            is_recreated: is_deployment && workload.is_recreated,
            hash,
        })
    };
    let mut all: Vec<KnownRevision> = owned.iter().filter_map(revision).collect();
    all.sort_by_key(|revision| revision.number);
    all
}

/// Pods that a StatefulSet or DaemonSet wants now.
fn wanted(kind: Kind, workload: &DynamicObject) -> Option<u64> {
    match kind.name() == DAEMON_SETS.name() {
        true => workload.data["status"]["desiredNumberScheduled"].as_u64(),
        false => Some(workload.data["spec"]["replicas"].as_u64().unwrap_or(1)),
    }
}

fn created(object: &DynamicObject) -> Option<Wall> {
    let text = serde_json::to_value(&object.metadata.creation_timestamp).ok()?;
    Wall::parse_rfc3339(text.as_str()?)
}

/// A controller writes a ControllerRevision when its rollout begins: it creates it, or after a rollback gives it the next number.
fn written(object: &DynamicObject) -> Option<Wall> {
    let fields = serde_json::to_value(&object.metadata.managed_fields).ok()?;
    let times = fields.as_array().into_iter().flatten();
    let last = times.filter_map(|of| Wall::parse_rfc3339(of["time"].as_str()?)).max();
    last.max(created(object))
}

/// The pods of each ReplicaSet that its controller deleted, by its Events `Deleted pod: NAME`.
fn deleted(events: &[DynamicObject]) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for event in events {
        let set = event.data["involvedObject"]["name"].as_str();
        let Some((set, message)) = set.zip(event.data["message"].as_str()) else {
            continue;
        };
        // From the tenth Event of a ReplicaSet within ten minutes on, all are one Event, which names the last pod.
        let message = message.strip_prefix("(combined from similar events): ").unwrap_or(message);
        if let Some(pod) = message.strip_prefix("Deleted pod: ") {
            all.entry(set.to_owned()).or_default().insert(pod.to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use epitaph_core::render::resource::EpitaphReport;
    use epitaph_core::rollout::costs;
    use serde_json::{Value, json};

    use super::*;

    const DEPLOYMENT: Workload = Workload {
        is_deployment: true,
        wanted: None,
        is_recreated: false,
    };

    fn object(of: Value) -> DynamicObject {
        serde_json::from_value(of).expect("an object")
    }

    fn at(time: &str) -> Wall {
        Wall::parse_rfc3339(time).expect("a time")
    }

    /// A ReplicaSet of a Deployment with so many pods.
    fn set(number: u64, created: &str, pods: usize) -> DynamicObject {
        object(json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": format!("web-{number}"), "creationTimestamp": created, "labels": {"pod-template-hash": format!("hash{number}")},
                "annotations": {REVISION: number.to_string(), DESIRED: pods.to_string()},
            },
        }))
    }

    fn event(message: &str) -> DynamicObject {
        object(json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web-1.1"},
            "involvedObject": {"kind": "ReplicaSet", "name": "web-1"}, "reason": "SuccessfulDelete", "message": message,
        }))
    }

    /// As kube-controller-manager posts them (client-go's `EventCorrelator`): Events are combined from the tenth one on, and then each takes one
    /// of 25 tokens of its ReplicaSet, of which five minutes make one again; without a token an Event is dropped.
    fn events(pods: usize, tokens: usize) -> Vec<DynamicObject> {
        let posted = (0..pods).take(tokens);
        let event_of = |n: usize| match n {
            ..9 => event(&format!("Deleted pod: web-1-{n}")),
            _ => event(&format!("(combined from similar events): Deleted pod: web-1-{n}")),
        };
        let (plain, combined): (Vec<_>, Vec<_>) = posted.partition(|n| *n < 9);
        plain.into_iter().chain(combined.last().copied()).map(event_of).collect()
    }

    fn report(pod: usize) -> EpitaphReport {
        let report = json!({
            "terminated": "Pod", "pod": {"name": format!("web-1-{pod}"), "uid": "u"}, "owner": {"name": "web", "revision": "hash1"},
            "verdict": "clean", "connections": {"lost": 0}, "times": {"exited": "2026-01-02T03:05:00Z"},
        });
        serde_json::from_value(report).expect("a report")
    }

    const SETS: [&str; 2] = ["2026-01-01T00:00:00Z", "2026-01-02T03:04:05Z"];

    /// Pods of the old ReplicaSet, these with a report, and tokens → how many have none, and the names of these.
    fn missing(pods: usize, reported: usize, tokens: usize) -> (Option<u64>, usize) {
        let sets = [set(1, SETS[0], pods), set(2, SETS[1], pods)];
        let known = known(DEPLOYMENT, &sets, &[], &deleted(&events(pods, tokens)));
        let reports: Vec<EpitaphReport> = (0..reported).map(report).collect();
        let cost = costs(&reports.iter().collect::<Vec<_>>(), &known).remove(0);
        (cost.unreported, cost.missing.len())
    }

    #[test]
    fn events_name_pods_and_do_not_count_them() {
        assert_eq!(missing(9, 7, 25), (Some(2), 2));
        assert_eq!(missing(12, 7, 25), (None, 3), "two of nine, and the last one");
        assert_eq!(missing(12, 12, 25), (Some(0), 0), "all have a report");
        // No Event is left, or none was kept.
        assert_eq!(missing(12, 11, 0), (None, 0));
        assert_eq!(missing(12, 12, 0), (Some(0), 0));
        // A second rollout of 25 pods, half an hour after the first: six tokens, no combined Event, and a report of each named pod.
        assert_eq!(missing(25, 6, 6), (None, 0));
        assert_eq!(missing(25, 4, 6), (None, 2));
        // Fewer tokens than pods even where no Event is combined.
        assert_eq!(missing(8, 3, 3), (None, 0));
    }

    /// No Event, and one drained pod of the day before: nothing is known of the rollout.
    #[test]
    fn a_pod_of_the_day_before_does_not_make_the_cost_of_a_rollout_known() {
        let known = known(DEPLOYMENT, &[set(1, SETS[0], 3), set(2, SETS[1], 3)], &[], &BTreeMap::new());
        let before = EpitaphReport {
            times: serde_json::from_value(json!({"exited": "2026-01-01T12:00:00Z"})).expect("times"),
            ..report(0)
        };
        let cost = costs(&[&before], &known).remove(0);
        assert_eq!(
            (cost.pods, cost.before, cost.unreported, cost.replaced_at_most),
            (0, 1, None, Some(3))
        );
    }

    #[test]
    fn the_strategy_of_a_deployment_decides_which_pods_a_rollout_ended() {
        let deployment = |strategy: &str| {
            let spec = json!({"strategy": {"type": strategy}});
            object(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}))
        };
        assert!(is_recreated(&deployment("Recreate")) && !is_recreated(&deployment("RollingUpdate")));
        let lost = |is_recreated: bool| {
            let workload = Workload {
                is_recreated,
                ..DEPLOYMENT
            };
            let known = known(workload, &[set(1, SETS[0], 3), set(2, SETS[1], 3)], &[], &BTreeMap::new());
            let before = EpitaphReport {
                times: serde_json::from_value(json!({"exited": "2026-01-02T03:04:00Z"})).expect("times"),
                ..report(0)
            };
            costs(&[&before], &known).remove(0).lost()
        };
        assert_eq!((lost(true), lost(false)), (Some(0), None));
    }

    #[test]
    fn of_a_statefulset_as_many_pods_as_it_has_should_have_a_report() {
        let revision = |number: u64, written: &str| {
            object(json!({
                "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number,
                "metadata": {
                    "name": format!("web-{number}"), "creationTimestamp": SETS[0],
                    "labels": {"controller-revision-hash": format!("hash{number}")},
                    "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "time": written}],
                },
            }))
        };
        // A rollback: the older object has the higher number.
        let revisions = [revision(1, SETS[0]), revision(2, SETS[1])];
        let cost = |reports: &[EpitaphReport]| {
            let workload = Workload {
                is_deployment: false,
                wanted: Some(2),
                ..DEPLOYMENT
            };
            let known = known(workload, &revisions, &[], &BTreeMap::new());
            assert_eq!(known[1].begun, Some(at(SETS[1])));
            costs(&reports.iter().collect::<Vec<_>>(), &known).remove(0)
        };
        let one = cost(&[report(0)]);
        assert_eq!((one.unreported, one.replaced_at_most), (None, Some(2)));
        assert_eq!(cost(&[report(0), report(1)]).unreported, Some(0));
        // It was scaled down since.
        assert_eq!(cost(&[report(0), report(1), report(2)]).unreported, None);
        let earlier = EpitaphReport {
            times: serde_json::from_value(json!({"exited": "2026-01-01T12:00:00Z"})).expect("times"),
            ..report(1)
        };
        let with_earlier = cost(&[report(0), earlier]);
        assert_eq!((with_earlier.pods, with_earlier.before), (1, 1));
    }
}
