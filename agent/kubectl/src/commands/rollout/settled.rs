//! `--wait`: until a rollout has settled. A request that fails for a while is made again.

use std::cell::Cell;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{HASHES, Rollout, existing, has_terminated, is_owned, selector};
use crate::cli::{Limit, RolloutArgs};
use crate::cluster::{Cluster, DAEMON_SETS, DEPLOYMENTS, Kind, PODS, Place, REPLICA_SETS, Selection};
use crate::failure::{Failure, Trouble, shown};

/// Between two looks. Each is two or three requests.
const EVERY: Duration = Duration::from_secs(2);

enum Look<T> {
    Waits(String),
    Settled(T),
}

/// What the rollout cost, once it has settled; None: not within `--timeout`.
pub async fn read(cluster: &Cluster, kind: Kind, name: &str, args: &RolloutArgs) -> Result<Option<Rollout>, Failure> {
    let workload = format!("{}/{}", kind.name().to_lowercase(), shown(name));
    let quiet_since = Cell::new(None::<Instant>);
    let has_stalled = Cell::new(false);
    let look = async || -> Result<Look<Rollout>, Failure> {
        let state = unsettled(cluster, kind, name, &has_stalled).await?;
        quiet_since.set(state.is_none().then(|| quiet_since.get().unwrap_or_else(Instant::now)));
        if quiet_since.get().is_none_or(|since| since.elapsed() < args.settle) {
            let state = state.unwrap_or_else(|| "settled; waiting for the last reports".to_owned());
            return Ok(Look::Waits(state));
        }
        match super::read(cluster, kind, name, args).await {
            // The API server has just answered.
            Err(failure) if failure.trouble.is_some() => Ok(Look::Waits(failure.problem)),
            read => read.map(Look::Settled),
        }
    };
    until(&workload, args.timeout, look).await
}

/// Looks again and again until the rollout has settled; None: not within the limit, which also ends a request that has no answer.
async fn until<T>(
    workload: &str,
    limit: Limit,
    look: impl AsyncFn() -> Result<Look<T>, Failure>,
) -> Result<Option<T>, Failure> {
    let end = limit.0.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?)));
    let mut was_answered = false;
    let mut said = String::new();
    loop {
        let look = match end {
            None => look().await,
            Some((limit, end)) => match timeout_at(end, look()).await {
                Ok(look) => look,
                Err(_) => {
                    eprintln!("error: {workload} has not settled within {} s", limit.as_secs());
                    return Ok(None);
                }
            },
        };
        let state = match look {
            Ok(Look::Settled(of)) => return Ok(Some(of)),
            Ok(Look::Waits(state)) => {
                was_answered = true;
                state
            }
            Err(failure) if may_pass(&failure, was_answered) => failure.problem,
            Err(failure) => return Err(failure),
        };
        if state != said {
            eprintln!("{workload}: {state}");
            said = state;
        }
        let next = Instant::now() + EVERY;
        sleep_until(end.map_or(next, |(_, end)| next.min(end))).await;
    }
}

/// An API server that has never answered is rather a wrong address.
fn may_pass(failure: &Failure, was_answered: bool) -> bool {
    failure
        .trouble
        .is_some_and(|trouble| was_answered || trouble == Trouble::Server)
}

/// What is still to happen.
async fn unsettled(cluster: &Cluster, kind: Kind, name: &str, had_stalled: &Cell<bool>) -> Result<Option<String>, Failure> {
    let workload = existing(cluster, kind, name).await?;
    // Behind a change the controller first counts the new generation, and then takes the condition back: the second look tells.
    if had_stalled.replace(has_stalled(&workload)) && had_stalled.get() {
        let workload = format!("{} `{}`", kind.name(), shown(name));
        let problem =
            format!("{workload} exceeded its progress deadline (`progressDeadlineSeconds`): the rollout may never settle");
        return Err(Failure::new(problem).with_remedy(
            "`kubectl describe` of the workload and of its new pods shows why; ask without --wait for the cost until now",
        ));
    }
    let state = match unfinished(kind, &workload) {
        Some(state) => Some(state),
        None => old_pods(cluster, kind, &workload).await?,
    };
    if state.is_some() && workload.data["spec"]["updateStrategy"]["type"] == "OnDelete" {
        let workload = format!("{} `{}`", kind.name(), shown(name));
        let problem = format!("{workload} has the update strategy OnDelete: Kubernetes replaces no pod that nobody deletes");
        return Err(Failure::new(problem).with_remedy("delete the old pods, and ask without --wait"));
    }
    Ok(state)
}

/// Of a Deployment, as `kubectl rollout status` fails.
fn has_stalled(workload: &DynamicObject) -> bool {
    let status = &workload.data["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let is_current = status["observedGeneration"].as_i64() >= workload.metadata.generation;
    is_current
        && conditions
            .filter(|of| of["type"] == "Progressing")
            .any(|of| of["reason"] == "ProgressDeadlineExceeded")
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
    let new = wanted.saturating_sub(partition(workload));
    if updated < new {
        return Some(format!("{updated} of {new} pods are new"));
    }
    let all = number(&status["replicas"]);
    if kind.name() == DEPLOYMENTS.name() && all > updated {
        return Some(format!("{} old pods are left", all - updated));
    }
    (available < wanted).then(|| format!("{available} of {wanted} pods are available"))
}

/// How many pods of a StatefulSet its rollout leaves as they are: those with the lowest ordinals.
fn partition(workload: &DynamicObject) -> u64 {
    let partition = &workload.data["spec"]["updateStrategy"]["rollingUpdate"]["partition"];
    partition.as_u64().unwrap_or(0)
}

/// Pods of another revision that exist, also those that are terminating: the status of a Deployment no longer counts these.
async fn old_pods(cluster: &Cluster, kind: Kind, workload: &DynamicObject) -> Result<Option<String>, Failure> {
    let Some(newest) = newest(cluster, kind, workload).await? else {
        return Ok(None);
    };
    let selection = Selection::labels(selector(&workload.data["spec"]["selector"]));
    let (pods, _) = cluster.list(PODS, Place::Namespace(&cluster.namespace), &selection).await?;
    let old = old(&pods, &newest, first_replaced(workload));
    Ok((old > 0).then(|| format!("{old} old pods are left")))
}

/// The ordinal from which on a StatefulSet with a partition replaces its pods; none: all are replaced.
fn first_replaced(workload: &DynamicObject) -> Option<u64> {
    let start = workload.data["spec"]["ordinals"]["start"].as_u64().unwrap_or(0);
    Some(partition(workload))
        .filter(|partition| *partition > 0)
        .map(|partition| start + partition)
}

/// Pods of another revision; not those below the ordinal `first`, which stay. The status does not tell: after a rollback above a partition
/// those that stay are of the newest revision.
fn old(pods: &[DynamicObject], newest: &str, first: Option<u64>) -> usize {
    let is_new = |pod: &DynamicObject| {
        HASHES
            .iter()
            .any(|label| pod.labels().get(*label).is_some_and(|hash| hash == newest))
    };
    let ordinal = |pod: &DynamicObject| pod.metadata.name.as_ref()?.rsplit_once('-')?.1.parse::<u64>().ok();
    let stays = |pod: &DynamicObject| first.zip(ordinal(pod)).is_some_and(|(first, ordinal)| ordinal < first);
    let goes = |pod: &DynamicObject| pod.metadata.deletion_timestamp.is_some() || !stays(pod);
    pods.iter()
        .filter(|pod| !is_new(pod) && !has_terminated(pod) && goes(pod))
        .count()
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
    use crate::cluster::STATEFUL_SETS;

    fn of(kind: Kind, spec: Value, status: Value) -> Option<String> {
        let object = json!({
            "apiVersion": "apps/v1", "kind": kind.name(), "metadata": {"name": "web", "generation": 3}, "spec": spec, "status": status,
        });
        unfinished(kind, &serde_json::from_value(object).expect("an object"))
    }

    const QUARTER: Limit = Limit(Some(Duration::from_secs(900)));

    fn silent() -> Failure {
        Failure {
            trouble: Some(Trouble::Silent),
            ..Failure::new("no answer")
        }
    }

    /// `--request-timeout 0`, and an API server that accepts connections and is silent.
    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends_with_the_time_of_the_wait() {
        let begin = Instant::now();
        let look = async || std::future::pending::<Result<Look<()>, Failure>>().await;
        assert!(until("deployment/web", QUARTER, look).await.expect("no failure").is_none());
        assert_eq!(begin.elapsed(), Duration::from_secs(900));
        // At first it answers.
        let looks = Cell::new(0);
        let look = async || {
            looks.set(looks.get() + 1);
            match looks.get() {
                1 => Ok(Look::<()>::Waits("1 of 2 pods are new".to_owned())),
                2 => Err(silent()),
                _ => std::future::pending().await,
            }
        };
        let begin = Instant::now();
        assert!(until("deployment/web", QUARTER, look).await.expect("no failure").is_none());
        assert_eq!((begin.elapsed(), looks.get()), (Duration::from_secs(900), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_request_that_fails_ends_the_wait() {
        let failed = until("deployment/web", QUARTER, async || Err::<Look<()>, _>(silent())).await;
        assert_eq!(failed.err().map(|failure| failure.problem).as_deref(), Some("no answer"));
        // No limit, and no failure.
        let looks = Cell::new(0);
        let look = async || {
            looks.set(looks.get() + 1);
            Ok(match looks.get() {
                1000 => Look::Settled(7),
                _ => Look::Waits("1 old pods still terminate".to_owned()),
            })
        };
        assert_eq!(until("deployment/web", Limit(None), look).await.ok().flatten(), Some(7));
    }

    #[test]
    fn a_deployment_without_progress_is_not_waited_for() {
        let of = |observed: i64, reason: &str| {
            let object = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "generation": 3}, "spec": {}, "status": {
                    "observedGeneration": observed, "conditions": [{"type": "Available", "reason": "MinimumReplicasAvailable"},
                        {"type": "Progressing", "status": "False", "reason": reason}]},
            });
            has_stalled(&serde_json::from_value(object).expect("an object"))
        };
        assert!(of(3, "ProgressDeadlineExceeded"));
        assert!(!of(2, "ProgressDeadlineExceeded"), "of the rollout before");
        assert!(!of(3, "ReplicaSetUpdated"));
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
        // The two lowest ordinals stay, and all three are to be available.
        let canary = || json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
        assert_eq!(of(STATEFUL_SETS, canary(), status(1, 3, 3)), None);
        let waits = |updated: u64, available: u64| of(STATEFUL_SETS, canary(), status(updated, 3, available));
        assert_eq!(waits(0, 3).as_deref(), Some("0 of 1 pods are new"));
        assert_eq!(waits(1, 2).as_deref(), Some("2 of 3 pods are available"));
        let all = json!({"replicas": 1, "updateStrategy": {"rollingUpdate": {"partition": 4}}});
        assert_eq!(of(STATEFUL_SETS, all, status(0, 1, 1)), None);
    }

    /// An evicted pod stays as an object until somebody removes it.
    #[test]
    fn an_evicted_pod_of_an_old_revision_is_not_waited_for() {
        let pod = |hash: &str, phase: &str| -> DynamicObject {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "labels": {"pod-template-hash": hash}},
                "status": {"phase": phase},
            });
            serde_json::from_value(pod).expect("a pod")
        };
        let mut pods = vec![pod("old", "Failed"), pod("old", "Succeeded"), pod("new", "Running")];
        assert_eq!(old(&pods, "new", None), 0);
        pods.push(pod("old", "Running"));
        assert_eq!(old(&pods, "new", None), 1);
        // Of a partition: the one with the ordinal 1 stays.
        assert_eq!(old(&pods, "new", Some(2)), 0);
        assert_eq!(old(&pods, "new", Some(1)), 1);
        let deleted = json!({"name": "web-0", "deletionTimestamp": "2026-01-02T03:04:05Z"});
        let deleted = json!({"apiVersion": "v1", "kind": "Pod", "metadata": deleted, "status": {"phase": "Running"}});
        pods.push(serde_json::from_value(deleted).expect("a pod"));
        assert_eq!(old(&pods, "new", Some(2)), 1);
    }

    /// The pods below the partition have the revision to which the others go back: by the status all is done.
    #[test]
    fn a_rollback_above_a_partition_is_waited_for() {
        let pod = |(ordinal, hash): (u64, &str)| -> DynamicObject {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"},
                "metadata": {"name": format!("db-{ordinal}"), "labels": {"controller-revision-hash": hash}},
            });
            serde_json::from_value(pod).expect("a pod")
        };
        let pods: Vec<_> = [(5, "a"), (6, "a"), (7, "b"), (8, "b")].map(pod).into();
        let of: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
            "spec": {"ordinals": {"start": 5}, "updateStrategy": {"rollingUpdate": {"partition": 2}}},
        }))
        .expect("a workload");
        assert_eq!(old(&pods, "a", first_replaced(&of)), 2);
    }
}
