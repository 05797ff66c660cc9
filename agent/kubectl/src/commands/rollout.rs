//! `kubectl epitaph rollout`: reads a workload, its revisions, pods and Epitaphs; what they cost is the core's to compute.

mod revisions;
mod settled;
mod show;

use epitaph_core::observe::kept::KeepLimits;
use epitaph_core::render::resource::{EpitaphReport, LABEL_WORKLOAD, LABEL_WORKLOAD_KIND, label_value};
use epitaph_core::rollout::{Forecast, KnownRevision, Outlook, RevisionCost, costs, replaced};
use epitaph_story::resource::{self, Template};
use epitaph_story::story::Snippet;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use super::events;
use crate::cli::{FailOn, RolloutArgs, RolloutOutput, SelectArgs};
use crate::cluster::{Cluster, DAEMON_SETS, DEPLOYMENTS, EPITAPHS, Kind, Place, STATEFUL_SETS, Selection};
use crate::failure::{Exit, Failure, shown};
use crate::output::print;
use crate::read::{Epitaph, epitaphs};
use revisions::revisions;

/// Labels of a pod that name its revision.
const HASHES: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];
const REVISION: &str = "deployment.kubernetes.io/revision";
/// Epitaphs that the observer keeps in a namespace, unless it is configured otherwise.
const MOST: usize = KeepLimits::DEFAULT.per_namespace;

/// What a rollout cost, and of the one before.
#[derive(Debug, Default, Serialize)]
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
    /// How many replaced pods have no report is known: of Deployments by Events of the last hour, otherwise where all have one.
    pub is_missing_known: bool,
    /// The namespace has as many Epitaphs as the observer keeps by default, and not all replaced pods are known to have one.
    pub is_at_bound: bool,
    /// The workload has advised settings by now that the replaced pods did not have.
    pub is_set_by_now: bool,
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
    let rollout = match args.wait {
        true => settled::read(cluster, kind, &name, args).await?,
        false => match read(cluster, kind, &name, args).await {
            Err(failure) if failure.is_kind_absent && may_show_events(args) => {
                return fallback(cluster, kind, &name, failure).await;
            }
            read => Some(read?),
        },
    };
    let Some(rollout) = rollout else { return Ok(Exit::TimedOut) };
    print(&show::text(kind, &rollout, args.output)?)?;
    Ok(match rollout.failed_on.as_slice() {
        [] => Exit::Done,
        conditions => {
            eprintln!("failed on: {}", conditions.join(", "));
            Exit::Condition
        }
    })
}

/// A person reads them: what a program reads is a rollout, and they are of no revision.
fn may_show_events(args: &RolloutArgs) -> bool {
    args.fail_on.is_empty() && args.revision.is_none() && matches!(args.output, RolloutOutput::Text)
}

/// What is left without Epitaphs: the Events on the workload. They are no cost: the question has no answer.
async fn fallback(cluster: &Cluster, kind: Kind, name: &str, failure: Failure) -> Result<Exit, Failure> {
    let about = format!("involvedObject.kind={},involvedObject.name={name}", kind.name());
    let all = events::all(cluster, Place::Namespace(&cluster.namespace), Some(&about)).await?;
    if all.is_empty() {
        return Err(failure);
    }
    events::warn(&SelectArgs::default(), failure)?;
    eprintln!("warning: what the rollout cost is unknown");
    print(&events::text(&all, false, true))?;
    Ok(Exit::Failed)
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
    let newest = known.iter().map(|revision| revision.number).max();
    if let Some(wanted) = args.revision.filter(|wanted| known.iter().all(|of| of.number != *wanted)) {
        let numbers: Vec<String> = known.iter().map(|of| of.number.to_string()).collect();
        return Err(
            Failure::new(format!("{} `{}` has no revision {wanted}", kind.name(), shown(name)))
                .with_remedy(format!("the API has these: {}", numbers.join(", "))),
        );
    }
    let rollout = Rollout {
        kind: kind.name(),
        namespace: cluster.namespace.clone(),
        name: name.to_owned(),
        revision: args.revision.or(newest),
        ..computed(&reports, &known, (&object, &cluster.namespace), args)
    };
    // Of the first revision there is none, because it replaced nothing.
    let is_whole = rollout.cost.as_ref().map_or(known.len() < 2, has_all) && rollout.before.as_ref().is_none_or(has_all);
    Ok(match is_whole {
        true => rollout,
        false if cluster.count(EPITAPHS, place).await? < MOST => rollout,
        false => at_bound(rollout),
    })
}

/// What is left to compute once everything is read, but for kind, namespace and name. `workload`: with its namespace.
fn computed(
    reports: &[&EpitaphReport],
    known: &[KnownRevision],
    (workload, namespace): (&DynamicObject, &str),
    args: &RolloutArgs,
) -> Rollout {
    let costs = costs(reports, known);
    let newest = known.iter().map(|revision| revision.number).max();
    let revision = args.revision.or(newest);
    let of = |revision: Option<u64>| {
        let cost = costs.iter().find(|cost| revision.is_some() && cost.replaced_by == revision);
        cost.cloned()
    };
    let mut cost = of(revision);
    let old = cost.as_ref().and_then(|cost| cost.revision);
    let replaced = old.map_or_else(Vec::new, |number| replaced(reports, known, number));
    let current = known.iter().find(|of| Some(of.number) == newest && newest == revision);
    let template = Template::of(&workload.data);
    let is_set = |report: &EpitaphReport, advice: &_| template.is_some_and(|template| template.has(report, advice));
    let settings = template.map_or_else(Vec::new, |present| resource::settings(namespace, &replaced, present));
    let forecast = cost.as_ref().zip(current).map(|(cost, current)| {
        let of = Forecast::of(cost, &replaced, current.pods.len() as u64, is_set);
        let with_settings = of.with_settings.filter(|_| !settings.is_empty());
        Forecast { with_settings, ..of }
    });
    // A remedy that is a setting, and is set by now.
    let is_cured = |report: &&&EpitaphReport| {
        let mut advice = report.advice.iter();
        !report.advice.is_empty() && advice.all(|advice| is_set(report, advice))
    };
    let cured = |pod: &str| replaced.iter().filter(is_cured).any(|report| report.pod.name == pod);
    for pod in cost.iter_mut().flat_map(|cost| &mut cost.worst) {
        pod.remedy = pod.remedy.take().filter(|_| !cured(&pod.pod));
    }
    // The first revision replaced nothing.
    let replaced_any = known.iter().any(|of| Some(of.number) < revision);
    let failed_on = args.fail_on.iter().filter(|condition| match &cost {
        Some(cost) => holds(**condition, cost),
        None => replaced_any && **condition == FailOn::Unknown,
    });
    let forgotten = costs.iter().filter(|cost| cost.revision.is_none());
    Rollout {
        revision,
        is_missing_known: cost.as_ref().is_some_and(|cost| cost.unreported.is_some()),
        is_set_by_now: replaced
            .iter()
            .any(|report| report.advice.iter().any(|advice| is_set(report, advice))),
        forgotten: forgotten.map(|cost| cost.hash.clone()).collect(),
        failed_on: failed_on.map(|condition| condition_name(*condition).to_owned()).collect(),
        before: of(old),
        forecast,
        settings,
        cost,
        ..Rollout::default()
    }
}

fn holds(condition: FailOn, cost: &RevisionCost) -> bool {
    match condition {
        FailOn::Lost => cost.lost().is_some_and(|lost| lost > 0),
        FailOn::Unclean => cost.unclean > 0,
        FailOn::Unknown => cost.unknown > 0 || cost.unobserved > 0 || !has_all(cost),
    }
}

/// Each pod that was replaced is known to have a report.
fn has_all(cost: &RevisionCost) -> bool {
    cost.unreported == Some(0) && cost.missing.is_empty()
}

/// The observer removes clean Epitaphs beyond its bound: what is left of a rollout is no measure of it.
fn at_bound(mut rollout: Rollout) -> Rollout {
    rollout.is_at_bound = true;
    let is_short = rollout.cost.as_ref().is_some_and(|cost| !has_all(cost));
    if let Some(forecast) = rollout.forecast.as_mut().filter(|_| is_short) {
        forecast.with_settings = None;
        forecast.today = Outlook::Unknown {
            reason: "the namespace is at the bound of its Epitaphs, and not all replaced pods have one".to_owned(),
        };
    }
    rollout
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

fn is_owned(object: &DynamicObject, by: &DynamicObject) -> bool {
    object
        .owner_references()
        .iter()
        .any(|owner| Some(&owner.uid) == by.metadata.uid.as_ref())
}

/// A pod that was evicted stays as an object until somebody removes it: for days.
fn has_terminated(pod: &DynamicObject) -> bool {
    let phase = pod.data["status"]["phase"].as_str();
    phase.is_some_and(|phase| matches!(phase, "Failed" | "Succeeded"))
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
    use clap::Parser as _;
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
        let lost = |lost: u64| RevisionCost {
            reset: Some(lost),
            refused: Some(0),
            cut: Some(0),
            unreported: Some(0),
            ..RevisionCost::default()
        };
        let of = |cost: &RevisionCost| [FailOn::Lost, FailOn::Unclean, FailOn::Unknown].map(|condition| holds(condition, cost));
        let mut cost = lost(1);
        cost.unobserved = 1;
        assert_eq!(of(&cost), [true, false, true]);
        let mut cost = lost(0);
        cost.unclean = 1;
        assert_eq!(of(&cost), [false, true, false]);
        cost.missing.push("web-1".to_owned());
        assert_eq!(of(&cost), [false, true, true]);
        // How many pods have no report is not known.
        let mut cost = lost(0);
        cost.unreported = None;
        assert_eq!(of(&cost), [false, false, true]);
        // No connection of any pod is known.
        assert_eq!(of(&RevisionCost::default()), [false, false, true]);
    }

    /// Of the workload `web` whose template has this preStop hook now: a rollout from `one` to `two`, each pod of which would have needed 4 s.
    fn rollout(hook: &Value) -> Rollout {
        let report = |pod: &str| {
            let report = json!({
                "terminated": "Pod", "pod": {"name": pod, "uid": pod}, "verdict": "refused-connections", "unclean": true,
                "owner": {"kind": "Deployment", "name": "web", "revision": "one"},
                "connections": {"lost": 10, "refused": 10}, "remedy": "sleep for 4 s",
                "times": {"requested": "2026-01-02T03:04:05Z", "exited": "2026-01-02T03:04:06Z"},
                "advice": [{"kind": "pre-stop-sleep-longer", "container": "app", "seconds": 4}],
                "containers": [{"name": "app", "kind": "main", "id": "c", "exited": "2026-01-02T03:04:06Z"}],
            });
            serde_json::from_value::<EpitaphReport>(report).expect("a report")
        };
        let reports = ["web-1", "web-2"].map(report);
        let known = [(1, "one"), (2, "two")].map(|(number, hash)| KnownRevision {
            number,
            hash: hash.to_owned(),
            pods: (number == 2).then(|| "web-3".to_owned()).into_iter().collect(),
            ..KnownRevision::default()
        });
        let workload = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"template": {"spec": {"containers": [{"name": "app", "lifecycle": {"preStop": hook}}]}}},
        });
        let workload: DynamicObject = serde_json::from_value(workload).expect("a workload");
        let args = crate::cli::Cli::try_parse_from(["kubectl-epitaph", "rollout", "deployment/web"]).expect("usage");
        let crate::cli::Command::Rollout(args) = args.command else {
            panic!("{args:?}")
        };
        computed(&reports.each_ref(), &known, (&workload, "shop"), &args)
    }

    /// The patch was pasted: the present pods have the settings, the replaced ones had not.
    #[test]
    fn a_forecast_is_about_the_settings_that_the_workload_has_now() {
        let before = rollout(&Value::Null);
        let forecast = before.forecast.expect("two pods");
        assert!(
            matches!(forecast.today, Outlook::Between { least, .. } if least > 0),
            "{forecast:?}"
        );
        assert!(forecast.with_settings.is_some() && before.settings.len() == 1 && !before.is_set_by_now);
        assert_eq!(
            before.cost.expect("two pods").worst[0].remedy.as_deref(),
            Some("sleep for 4 s")
        );
        let after = rollout(&json!({"sleep": {"seconds": 4}}));
        let forecast = after.forecast.expect("two pods");
        assert_eq!(
            (forecast.today, forecast.with_settings),
            (Outlook::Between { least: 0, most: 2 }, None)
        );
        assert!(after.settings.is_empty() && after.is_set_by_now);
        assert_eq!(after.cost.expect("two pods").worst[0].remedy, None);
    }

    #[test]
    fn at_the_bound_of_a_namespace_there_is_no_forecast_of_what_is_left() {
        let bound = at_bound(rollout(&Value::Null));
        assert!(bound.is_at_bound, "{bound:?}");
        let forecast = bound.forecast.expect("two pods");
        assert!(matches!(forecast.today, Outlook::Unknown { .. }), "{forecast:?}");
        assert_eq!(forecast.with_settings, None);
    }

    /// An evicted pod of an old revision stays for days.
    #[test]
    fn a_pod_that_has_terminated_is_not_one_of_the_workload() {
        let of = |status: Value| {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1"}, "status": status});
            has_terminated(&serde_json::from_value(pod).expect("a pod"))
        };
        assert!(of(json!({"phase": "Failed", "reason": "Evicted"})) && of(json!({"phase": "Succeeded"})));
        assert!(!of(json!({"phase": "Running"})) && !of(json!({})));
    }
}
