//! `--wait`: until a rollout has settled.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;
use tokio::time::Instant;

use super::{HASHES, existing, is_owned, selector};
use crate::cli::RolloutArgs;
use crate::cluster::{Cluster, DAEMON_SETS, DEPLOYMENTS, Kind, PODS, Place, REPLICA_SETS, Selection};
use crate::failure::Failure;

/// Between two looks. Each is two or three requests.
const EVERY: Duration = Duration::from_secs(2);

/// False: not settled within `--timeout`.
pub async fn wait(cluster: &Cluster, kind: Kind, name: &str, args: &RolloutArgs) -> Result<bool, Failure> {
    let end = Instant::now() + args.timeout;
    let mut quiet_since: Option<Instant> = None;
    let mut said = String::new();
    loop {
        let workload = existing(cluster, kind, name).await?;
        let state = match unfinished(kind, &workload) {
            Some(state) => Some(state),
            None => old_pods(cluster, kind, &workload).await?,
        };
        let now = Instant::now();
        match &state {
            None => {
                let since = *quiet_since.get_or_insert(now);
                if now.duration_since(since) >= args.settle {
                    return Ok(true);
                }
            }
            Some(_) => quiet_since = None,
        }
        let state = state.unwrap_or_else(|| "settled; waiting for the last reports".to_owned());
        if state != said {
            eprintln!("{}/{name}: {state}", kind.name().to_lowercase());
            said = state;
        }
        if now >= end {
            eprintln!(
                "error: {}/{name} has not settled within {} s",
                kind.name().to_lowercase(),
                args.timeout.as_secs()
            );
            return Ok(false);
        }
        tokio::time::sleep_until((now + EVERY).min(end)).await;
    }
}

/// By the workload's own status, as `kubectl rollout status`.
fn unfinished(kind: Kind, workload: &DynamicObject) -> Option<String> {
    let (spec, status) = (&workload.data["spec"], &workload.data["status"]);
    let number = |of: &Value| of.as_u64().unwrap_or(0);
    if status["observedGeneration"].as_i64() < workload.metadata.generation {
        return Some("waiting for the controller to see the change".to_owned());
    }
    let (wanted, updated, available) = match kind.name() == DAEMON_SETS.name() {
        true => (
            number(&status["desiredNumberScheduled"]),
            number(&status["updatedNumberScheduled"]),
            number(&status["numberAvailable"]),
        ),
        false => (
            spec["replicas"].as_u64().unwrap_or(1),
            number(&status["updatedReplicas"]),
            number(&status["availableReplicas"]),
        ),
    };
    if updated < wanted {
        return Some(format!("{updated} of {wanted} pods are new"));
    }
    let all = number(&status["replicas"]);
    if kind.name() == DEPLOYMENTS.name() && all > updated {
        return Some(format!("{} old pods are left", all - updated));
    }
    (available < wanted).then(|| format!("{available} of {wanted} new pods are available"))
}

/// Pods of another revision that exist, also those that are terminating: the status of a Deployment no longer counts these.
async fn old_pods(cluster: &Cluster, kind: Kind, workload: &DynamicObject) -> Result<Option<String>, Failure> {
    let Some(newest) = newest(cluster, kind, workload).await? else {
        return Ok(None);
    };
    let selection = Selection::labels(selector(&workload.data["spec"]["selector"]));
    let (pods, _) = cluster.list(PODS, Place::Namespace(&cluster.namespace), &selection).await?;
    let is_new = |pod: &&DynamicObject| HASHES.iter().any(|label| pod.labels().get(*label) == Some(&newest));
    let old = pods.iter().filter(|pod| !is_new(pod)).count();
    Ok((old > 0).then(|| format!("{old} old pods still terminate")))
}

/// The hash of the pods that the workload makes.
async fn newest(cluster: &Cluster, kind: Kind, workload: &DynamicObject) -> Result<Option<String>, Failure> {
    if let Some(revision) = workload.data["status"]["updateRevision"].as_str() {
        return Ok(Some(revision.to_owned()));
    }
    let place = Place::Namespace(&cluster.namespace);
    let selection = Selection::labels(selector(&workload.data["spec"]["selector"]));
    let of = match kind.name() == DEPLOYMENTS.name() {
        true => REPLICA_SETS,
        false => crate::cluster::CONTROLLER_REVISIONS,
    };
    let (owned, _) = cluster.list(of, place, &selection).await?;
    let number = |object: &DynamicObject| match kind.name() == DEPLOYMENTS.name() {
        true => object.annotations().get(super::REVISION).and_then(|text| text.parse().ok()),
        false => object.data["revision"].as_u64(),
    };
    let newest = owned
        .iter()
        .filter(|object| is_owned(object, workload))
        .max_by_key(|object| number(object));
    Ok(newest.and_then(|object| HASHES.iter().find_map(|label| object.labels().get(*label).cloned())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: Kind, spec: Value, status: Value) -> Option<String> {
        let object = json!({
            "apiVersion": "apps/v1", "kind": kind.name(), "metadata": {"name": "web", "generation": 3}, "spec": spec, "status": status,
        });
        unfinished(kind, &serde_json::from_value(object).expect("an object"))
    }

    #[test]
    fn a_rollout_is_finished_as_kubectl_sees_it() {
        let status = |updated: u64, all: u64, available: u64| json!({"observedGeneration": 3, "replicas": all, "updatedReplicas": updated, "availableReplicas": available});
        let two = || json!({"replicas": 2});
        assert_eq!(of(DEPLOYMENTS, two(), status(2, 2, 2)), None);
        for (updated, all, available) in [(1, 2, 2), (2, 3, 2), (2, 2, 1)] {
            assert!(of(DEPLOYMENTS, two(), status(updated, all, available)).is_some());
        }
        assert!(
            of(DEPLOYMENTS, two(), json!({"observedGeneration": 2})).is_some(),
            "the controller has not seen it"
        );
        assert_eq!(
            of(DEPLOYMENTS, json!({"replicas": 0}), json!({"observedGeneration": 3})),
            None
        );
        let daemons = |updated: u64| json!({"observedGeneration": 3, "desiredNumberScheduled": 2, "updatedNumberScheduled": updated, "numberAvailable": 2});
        assert_eq!(of(DAEMON_SETS, json!({}), daemons(2)), None);
        assert!(of(DAEMON_SETS, json!({}), daemons(1)).is_some());
    }
}
