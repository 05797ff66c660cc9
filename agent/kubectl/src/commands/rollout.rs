//! `kubectl epitaph rollout`: reads a workload, its revisions, pods and Epitaphs; what they cost is the core's to compute.

mod settled;
mod show;

use std::collections::BTreeMap;

use epitaph_core::render::resource::{EpitaphReport, LABEL_WORKLOAD, LABEL_WORKLOAD_KIND, label_value};
use epitaph_core::rollout::{Forecast, KnownRevision, RevisionCost, costs, replaced};
use epitaph_core::time::Wall;
use epitaph_story::resource;
use epitaph_story::story::Snippet;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use crate::cli::{FailOn, RolloutArgs};
use crate::cluster::{
    CONTROLLER_REVISIONS, Cluster, DAEMON_SETS, DEPLOYMENTS, EVENTS, Kind, PODS, Place, REPLICA_SETS, STATEFUL_SETS, Selection,
};
use crate::failure::{Exit, Failure, shown};
use crate::output::print;
use crate::read::{Epitaph, epitaphs};

/// Labels of a pod that name its revision.
const HASHES: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];
const REVISION: &str = "deployment.kubernetes.io/revision";

/// What a rollout cost, and of the one before.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    /// The revision that was rolled out.
    pub revision: Option<u64>,
    /// Of the revision that it replaced. Absent where no pod of it terminated.
    pub cost: Option<RevisionCost>,
    /// Of the rollout before.
    pub before: Option<RevisionCost>,
    /// Which pods should have a report is known: of Deployments, by Events of the last hour.
    pub is_missing_known: bool,
    /// Of the next rollout; absent where another revision than the newest is asked about, or nothing is known of the last one.
    pub forecast: Option<Forecast>,
    /// The settings that would have suited every pod.
    pub settings: Vec<Snippet>,
    /// Revisions that the API no longer has, and the Epitaphs of which are kept.
    pub forgotten: Vec<String>,
    /// Conditions of `--fail-on` that hold.
    pub failed_on: Vec<String>,
}

pub async fn run(cluster: &Cluster, args: &RolloutArgs) -> Result<Exit, Failure> {
    let (kind, name) = workload(&args.workload)?;
    if args.wait && !settled::wait(cluster, kind, &name, args).await? {
        return Ok(Exit::TimedOut);
    }
    let rollout = read(cluster, kind, &name, args).await?;
    print(&show::text(&rollout, args.output)?)?;
    Ok(match rollout.failed_on.as_slice() {
        [] => Exit::Done,
        conditions => {
            eprintln!("failed on: {}", conditions.join(", "));
            Exit::Condition
        }
    })
}

/// `deployment/web` or `deployment web`, with kubectl's short names.
fn workload(words: &[String]) -> Result<(Kind, String), Failure> {
    let text = words.join("/");
    let wrong = || {
        Failure::new(format!("`{}` is not a workload", shown(&text)))
            .with_remedy("give deployment/NAME, statefulset/NAME or daemonset/NAME")
    };
    let (kind, name) = text
        .split_once('/')
        .filter(|(_, name)| !name.is_empty() && !name.contains('/'))
        .ok_or_else(wrong)?;
    let kind = match kind.to_lowercase().trim_end_matches(".apps") {
        "deployment" | "deployments" | "deploy" => DEPLOYMENTS,
        "statefulset" | "statefulsets" | "sts" => STATEFUL_SETS,
        "daemonset" | "daemonsets" | "ds" => DAEMON_SETS,
        _ => return Err(wrong()),
    };
    Ok((kind, name.to_owned()))
}

async fn read(cluster: &Cluster, kind: Kind, name: &str, args: &RolloutArgs) -> Result<Rollout, Failure> {
    let place = Place::Namespace(&cluster.namespace);
    let object = existing(cluster, kind, name).await?;
    let known = revisions(cluster, kind, &object).await?;
    let labels = format!(
        "{LABEL_WORKLOAD}={},{LABEL_WORKLOAD_KIND}={}",
        label_value(name),
        label_value(kind.name())
    );
    let all = epitaphs(cluster, place, &Selection::labels(labels)).await?;
    // A longer name has a hash in its label; and a workload that was created again has another UID.
    let uid = object.uid();
    let is_own = |epitaph: &&Epitaph| {
        epitaph.report.owner.as_ref().is_some_and(|owner| {
            owner.name == name && owner.uid.as_ref().zip(uid.as_ref()).is_none_or(|(owner, own)| owner == own)
        })
    };
    let reports: Vec<&EpitaphReport> = all.iter().filter(is_own).map(|epitaph| &epitaph.report).collect();
    let costs = costs(&reports, &known);
    let newest = known.iter().map(|revision| revision.number).max();
    let revision = args.revision.or(newest);
    if let Some(wanted) = args.revision.filter(|wanted| known.iter().all(|of| of.number != *wanted)) {
        let numbers: Vec<String> = known.iter().map(|of| of.number.to_string()).collect();
        return Err(
            Failure::new(format!("{} `{}` has no revision {wanted}", kind.name(), shown(name)))
                .with_remedy(format!("the API has these: {}", numbers.join(", "))),
        );
    }
    let of = |revision: Option<u64>| {
        let cost = costs.iter().find(|cost| revision.is_some() && cost.replaced_by == revision);
        cost.cloned()
    };
    let cost = of(revision);
    let before = of(cost.as_ref().and_then(|cost| cost.revision));
    let old = cost.as_ref().and_then(|cost| cost.revision);
    let replaced = old.map_or_else(Vec::new, |number| replaced(&reports, &known, number));
    let current = known.iter().find(|of| Some(of.number) == newest && newest == revision);
    let forecast = cost
        .as_ref()
        .zip(current)
        .map(|(cost, current)| Forecast::of(cost, &replaced, current.pods.len() as u64));
    // The first revision replaced nothing.
    let replaced_any = known.iter().any(|of| Some(of.number) < revision);
    let failed_on = args.fail_on.iter().filter(|condition| match &cost {
        Some(cost) => holds(**condition, cost),
        None => replaced_any && **condition == FailOn::Unknown,
    });
    Ok(Rollout {
        kind: kind.name(),
        namespace: cluster.namespace.clone(),
        name: name.to_owned(),
        revision,
        forecast,
        settings: resource::settings(&cluster.namespace, &replaced),
        is_missing_known: kind.name() == DEPLOYMENTS.name(),
        forgotten: costs
            .iter()
            .filter(|cost| cost.revision.is_none())
            .map(|cost| cost.hash.clone())
            .collect(),
        failed_on: failed_on.map(|condition| condition_name(*condition).to_owned()).collect(),
        cost,
        before,
    })
}

fn holds(condition: FailOn, cost: &RevisionCost) -> bool {
    match condition {
        FailOn::Lost => cost.lost() > 0,
        FailOn::Unclean => cost.unclean > 0,
        FailOn::Unknown => cost.unknown > 0 || cost.unobserved > 0 || !cost.missing.is_empty(),
    }
}

const fn condition_name(condition: FailOn) -> &'static str {
    match condition {
        FailOn::Lost => "lost",
        FailOn::Unclean => "unclean",
        FailOn::Unknown => "unknown",
    }
}

async fn existing(cluster: &Cluster, kind: Kind, name: &str) -> Result<DynamicObject, Failure> {
    let found = cluster.get(kind, Place::Namespace(&cluster.namespace), name).await?;
    found.ok_or_else(|| {
        let what = format!(
            "{} `{}` does not exist in namespace `{}`",
            kind.name(),
            shown(name),
            cluster.namespace
        );
        Failure::new(what).with_remedy("`kubectl epitaph list` shows the terminations of workloads that are gone, too")
    })
}

/// Revisions with the names of their pods.
async fn revisions(cluster: &Cluster, kind: Kind, workload: &DynamicObject) -> Result<Vec<KnownRevision>, Failure> {
    let place = Place::Namespace(&cluster.namespace);
    let selection = Selection::labels(selector(&workload.data["spec"]["selector"]));
    let is_deployment = kind.name() == DEPLOYMENTS.name();
    let of = if is_deployment { REPLICA_SETS } else { CONTROLLER_REVISIONS };
    let (mut owned, _) = cluster.list(of, place, &selection).await?;
    owned.retain(|object| is_owned(object, workload));
    let (pods, _) = cluster.list(PODS, place, &selection).await?;
    let deleted = match is_deployment {
        true => deleted(cluster).await?,
        false => BTreeMap::new(),
    };
    let known = owned.into_iter().filter_map(|object| {
        let hash = HASHES
            .iter()
            .find_map(|label| object.labels().get(*label).cloned())
            .unwrap_or_else(|| object.name_any());
        let number = match is_deployment {
            true => object.annotations().get(REVISION)?.parse().ok()?,
            false => object.data["revision"].as_u64()?,
        };
        let is_own = |pod: &&DynamicObject| HASHES.iter().any(|label| pod.labels().get(*label) == Some(&hash));
        Some(KnownRevision {
            number,
            created: created(&object),
            pods: pods.iter().filter(is_own).map(kube::ResourceExt::name_any).collect(),
            deleted: deleted.get(&object.name_any()).into_iter().flatten().cloned().collect(),
            hash,
        })
    });
    Ok(known.collect())
}

fn is_owned(object: &DynamicObject, by: &DynamicObject) -> bool {
    object
        .owner_references()
        .iter()
        .any(|owner| Some(&owner.uid) == by.metadata.uid.as_ref())
}

fn created(object: &DynamicObject) -> Option<Wall> {
    let text = serde_json::to_value(&object.metadata.creation_timestamp).ok()?;
    Wall::parse_rfc3339(text.as_str()?)
}

/// By ReplicaSet: the pods that its controller deleted, by its Events `Deleted pod: NAME`.
async fn deleted(cluster: &Cluster) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let selection = Selection::fields("reason=SuccessfulDelete,involvedObject.kind=ReplicaSet");
    let (events, _) = cluster.list(EVENTS, Place::Namespace(&cluster.namespace), &selection).await?;
    let mut deleted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in &events {
        let set = event.data["involvedObject"]["name"].as_str();
        let pod = event.data["message"]
            .as_str()
            .and_then(|text| text.strip_prefix("Deleted pod: "));
        if let Some((set, pod)) = set.zip(pod) {
            deleted.entry(set.to_owned()).or_default().push(pod.to_owned());
        }
    }
    Ok(deleted)
}

/// A LabelSelector as the text of a request.
pub fn selector(of: &Value) -> String {
    let labels = of["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
    let expressions = of["matchExpressions"].as_array().into_iter().flatten().filter_map(|of| {
        let key = of["key"].as_str()?;
        let values: Vec<&str> = of["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        Some(match of["operator"].as_str()? {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        })
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn workloads_have_kubectl_s_names() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            workload(&words).map(|(kind, name)| format!("{} {name}", kind.name())).ok()
        };
        assert_eq!(of(&["deploy/web"]).as_deref(), Some("Deployment web"));
        assert_eq!(of(&["deployments.apps", "web"]).as_deref(), Some("Deployment web"));
        assert_eq!(of(&["sts/db"]).as_deref(), Some("StatefulSet db"));
        for wrong in [
            &["web"][..],
            &["pod/web"],
            &["deployment/"],
            &["deployment/a/b"],
            &["deployment/a", "b"],
        ] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_label_selector_is_a_text() {
        let of = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "canary", "operator": "DoesNotExist"},
                {"key": "team", "operator": "Exists"},
            ],
        });
        assert_eq!(selector(&of), "app=web,tier in (a,b),!canary,team");
        assert_eq!(selector(&Value::Null), "");
    }

    #[test]
    fn a_pipeline_fails_on_what_it_named_only() {
        let mut cost = RevisionCost {
            reset: 1,
            unobserved: 1,
            ..RevisionCost::default()
        };
        let of = |cost: &RevisionCost| [FailOn::Lost, FailOn::Unclean, FailOn::Unknown].map(|condition| holds(condition, cost));
        assert_eq!(of(&cost), [true, false, true]);
        (cost.reset, cost.unobserved, cost.unclean) = (0, 0, 1);
        assert_eq!(of(&cost), [false, true, false]);
        cost.missing.push("web-1".to_owned());
        assert_eq!(of(&cost), [false, true, true]);
    }
}
