//! `kubectl epitaph why`: the same search and the same drawing as `epitaph why`, over what the custom resource holds.

use std::time::Duration;

use epitaph_core::render::resource::{EpitaphEndpoint, EpitaphObserved};
use epitaph_core::text::bounded;
use epitaph_core::time::Wall;
use epitaph_core::verdict::seconds;
use epitaph_story::history::{Counts, Report, Search, Wanted};
use epitaph_story::resource;
use epitaph_story::story::{self, Brief, Columns, Story};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use super::events;
use super::list::within;
use crate::cli::{WhyArgs, WhyOutput};
use crate::cluster::{Cluster, EPITAPHS, Place};
use crate::failure::{Exit, Failure, shown};
use crate::output::{json, names, object, page, print, style, yaml};
use crate::read::{Epitaph, epitaphs, place, selection};

/// Most container terminations before the one that is shown.
const EARLIER: usize = 10;

pub async fn run(cluster: &Cluster, args: &WhyArgs) -> Result<Exit, Failure> {
    let what = asked(args);
    let what = what.as_deref();
    let named = what.and_then(|what| what.split_once('/'));
    let selection = selection(&args.select);
    let own = place(cluster, &args.select);
    // `NAMESPACE/POD`, as the node's own `epitaph why` has it, is of another namespace; `deployment/web` is not.
    let is_own = |namespace: &str| matches!(own, Place::Namespace(own) if own == namespace);
    let elsewhere = named.map(|(namespace, _)| namespace);
    let elsewhere = elsewhere.filter(|namespace| !args.select.all_namespaces && !is_own(namespace));
    let mut all = match epitaphs(cluster, own, &selection).await {
        Err(failure) if failure.is_kind_absent => {
            let other = elsewhere.filter(|first| !is_kind(first));
            return fallback(cluster, (own, other), args, failure).await;
        }
        all => all?,
    };
    let mut found = find(&all, what);
    let mut looked = vec![own];
    if let (None, Some(namespace)) = (&found, elsewhere) {
        let other = Place::Namespace(namespace);
        match epitaphs(cluster, other, &selection).await {
            Ok(others) => {
                all = others;
                found = find(&all, what);
                looked.extend((!is_kind(namespace)).then_some(other));
            }
            Err(_) if is_kind(namespace) => {}
            // What may not be read is not absent; but the word may be a kind that is not known here.
            Err(failure) => return Err(neither(args, &looked, failure)),
        }
    }
    let Some((epitaph, story)) = found else {
        return Err(not_found(args, &looked));
    };
    print(&match args.output {
        WhyOutput::Text => {
            let mut text = story::text(&story, Columns(page()), style(args.color), false);
            text.push_str(&observed(epitaph, page()));
            text
        }
        WhyOutput::Markdown => story::markdown(&story),
        WhyOutput::Json => json(&object(EPITAPHS, epitaph.object.clone()))?,
        WhyOutput::Yaml => yaml(&object(EPITAPHS, epitaph.object.clone()))?,
        WhyOutput::Name => names(EPITAPHS, [epitaph.object.clone()]),
    })?;
    Ok(Exit::Done)
}

/// `pod web-1` as `pod/web-1`.
fn asked(args: &WhyArgs) -> Option<String> {
    (!args.what.is_empty()).then(|| args.what.join("/"))
}

const PODS: [&str; 3] = ["pod", "pods", "po"];

/// Kinds of workloads that have pods, with kubectl's names for them.
const WORKLOADS: [(&str, &[&str]); 6] = [
    ("Deployment", &["deployment", "deployments", "deploy"]),
    ("StatefulSet", &["statefulset", "statefulsets", "sts"]),
    ("DaemonSet", &["daemonset", "daemonsets", "ds"]),
    ("ReplicaSet", &["replicaset", "replicasets", "rs"]),
    ("Job", &["job", "jobs"]),
    ("CronJob", &["cronjob", "cronjobs", "cj"]),
];

/// The first word of `KIND/NAME`. No namespace has a capital letter or a group: a kind of its own, such as `Rollout/web`, has.
fn is_kind(word: &str) -> bool {
    let names = WORKLOADS.iter().flat_map(|(_, names)| *names);
    let mut names = names.chain(&PODS).chain(&["epitaph", "epitaphs"]);
    word.contains(|c: char| c == '.' || c.is_ascii_uppercase()) || names.any(|name| *name == word)
}

/// What kubectl prints and people type for it, such as `po/web-1`, `deployment.apps/web` or the name of an Epitaph, in words of the search.
fn wanted(all: &[Epitaph], what: &str) -> String {
    let (kind, name) = what.split_once('/').unwrap_or(("epitaph", what));
    let kind = kind.to_lowercase();
    let kind = kind.split_once('.').map_or(kind.as_str(), |(kind, _group)| kind);
    match kind {
        // `kubectl get epitaphs` shows their names first.
        "epitaph" | "epitaphs" => all
            .iter()
            .find(|epitaph| epitaph.object.name_any() == name)
            .map_or_else(|| what.to_owned(), |epitaph| epitaph.report.pod.uid.clone()),
        _ if PODS.contains(&kind) => name.to_owned(),
        _ => WORKLOADS
            .iter()
            .find(|(_, names)| names.contains(&kind))
            .map_or_else(|| what.to_owned(), |(kind, _)| format!("{kind}/{name}")),
    }
}

/// `all`: the latest first. Without a name, the latest.
fn find<'a>(all: &'a [Epitaph], what: Option<&str>) -> Option<(&'a Epitaph, Story)> {
    let latest = all.first()?;
    let what = what.map_or_else(|| latest.report.pod.uid.clone(), |what| wanted(all, what));
    let mut search = Search::new(Wanted::new(&what));
    let mut counts = Counts::default();
    // In the order of time: what came before counts.
    for epitaph in all.iter().rev() {
        let line = resource::object(&epitaph.namespace, &epitaph.report).to_string();
        let Some(report) = read(&line) else { continue };
        search.look(&report, &line, &counts, Brief::of);
        counts.add(&report);
    }
    let (found, mut others, mut more) = search.finish()?;
    let report = read(&found.line)?;
    let uid = report.pod().map(|pod| pod.uid.to_string())?;
    let epitaph = all.iter().find(|epitaph| epitaph.report.pod.uid == uid)?;
    let earlier = resource::earlier(&epitaph.namespace, &epitaph.report);
    let earlier = earlier.iter().filter_map(|value: &Value| read(&value.to_string()));
    let earlier: Vec<Brief> = earlier.map(|report| Brief::of(&report)).collect();
    more += earlier.len() as u64;
    others.splice(..0, earlier);
    others.truncate(EARLIER);
    let story = Story {
        report,
        found,
        others,
        more,
        ahead: 0,
        program: "kubectl epitaph",
    };
    Some((epitaph, story))
}

/// What only the observer saw.
fn observed(epitaph: &Epitaph, width: usize) -> String {
    let observed = epitaph.object.data.get("observed").cloned().unwrap_or_default();
    let Ok(observed) = serde_json::from_value::<EpitaphObserved>(observed) else {
        return String::new();
    };
    let mut lines = Vec::new();
    for endpoint in &observed.endpoints {
        let ready = still_ready(endpoint, epitaph.report.times.stop_signal.as_deref());
        lines.push(format!(
            "removed from Service {} within {}{ready}",
            endpoint.service, endpoint.took
        ));
    }
    if let Some(by) = &observed.replacement {
        let ready = by
            .ready
            .as_ref()
            .map_or_else(|| "not ready".to_owned(), |at| format!("ready at {at}"));
        lines.push(format!("replaced by {} on {}, {ready}", by.pod, by.node));
    }
    if let Some(loss) = &observed.loss {
        lines.push(format!("the node was lost ({}): {}", loss.verdict, loss.sentence));
        lines.extend(loss.remedy.clone());
    }
    if lines.is_empty() {
        return String::new();
    }
    let lines = lines.iter().map(|line| story::paragraph(&bounded(line, 1024), width, "  "));
    format!("\nSeen by the observer\n{}", lines.collect::<String>())
}

/// The two times are of two clocks: the node's and the observer's.
fn still_ready(endpoint: &EpitaphEndpoint, stop_signal: Option<&str>) -> String {
    let at = |text: Option<&str>| text.and_then(Wall::parse_rfc3339);
    let Some((until, stop)) = at(endpoint.ready_until.as_deref()).zip(at(stop_signal)) else {
        return String::new();
    };
    match until.0.checked_sub(stop.0) {
        Some(nanos @ 1..) => format!(
            "; its endpoint was still ready {} after the stop signal, by the clocks of node and observer",
            seconds(Duration::from_nanos(nanos))
        ),
        _ => String::new(),
    }
}

fn read(line: &str) -> Option<Report> {
    serde_json::from_str(line).ok()
}

fn not_found(args: &WhyArgs, looked: &[Place<'_>]) -> Failure {
    let of = asked(args).as_deref().map_or_else(
        || "that the selector matches".to_owned(),
        |what| format!("of `{}`", shown(what)),
    );
    let elsewhere = match looked {
        [Place::Cluster, ..] => "",
        _ => ", `-A` looks in all namespaces",
    };
    let looked: Vec<String> = looked.iter().map(|place| within(*place)).collect();
    Failure::new(format!("no termination {of}{}", looked.join(" and"))).with_remedy(format!(
        "`kubectl epitaph list` shows what is known{elsewhere}; clean terminations are kept for a day, unclean ones for a week, and a pod \
         that still runs has none"
    ))
}

/// Not found in the own namespace, and the other one may not be read.
fn neither(args: &WhyArgs, looked: &[Place<'_>], failure: Failure) -> Failure {
    let Failure { problem, remedy, .. } = not_found(args, looked);
    Failure {
        problem: format!("{problem}; as a namespace: {}", failure.problem),
        remedy: failure.remedy.or(remedy),
        ..failure
    }
}

/// `other`: the first word of `KIND/NAME` as a namespace, where it is no kind that is known here. Events name the kind of their object.
async fn fallback(
    cluster: &Cluster,
    (own, other): (Place<'_>, Option<&str>),
    args: &WhyArgs,
    failure: Failure,
) -> Result<Exit, Failure> {
    let what = asked(args);
    let name = what.as_deref().map(|what| what.rsplit('/').next().unwrap_or(what));
    let is_asked = |event: &DynamicObject| name.is_none_or(|name| events::object(event).1.starts_with(name));
    let mut all = events::instead(cluster, own, &args.select, failure).await?;
    all.retain(|event| is_asked(event) && other.is_none_or(|word| events::object(event).0.eq_ignore_ascii_case(word)));
    let other = other.map(Place::Namespace);
    if let (true, Some(other)) = (all.is_empty(), other) {
        all = match events::all(cluster, other, None).await {
            Err(failure) => return Err(neither(args, &[own], failure)),
            Ok(events) => events,
        };
        all.retain(is_asked);
    }
    if all.is_empty() {
        let looked: Vec<Place<'_>> = [own].into_iter().chain(other).collect();
        return Err(not_found(args, &looked));
    }
    print(&match args.output {
        WhyOutput::Json => json(&crate::output::list(crate::cluster::EVENTS, all))?,
        WhyOutput::Yaml => yaml(&crate::output::list(crate::cluster::EVENTS, all))?,
        WhyOutput::Name => names(crate::cluster::EVENTS, all),
        WhyOutput::Text | WhyOutput::Markdown => events::text(&all, args.select.all_namespaces, true),
    })?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use epitaph_core::render::resource::{EpitaphPod, EpitaphReport};

    use super::*;

    #[test]
    fn what_kubectl_prints_and_people_type_is_found() {
        let epitaph = |pod: &str| Epitaph {
            namespace: "shop".to_owned(),
            report: EpitaphReport {
                pod: EpitaphPod {
                    name: pod.to_owned(),
                    uid: format!("uid-of-{pod}"),
                },
                ..EpitaphReport::default()
            },
            object: DynamicObject::new(&format!("{pod}.0123abcd"), &EPITAPHS.resource()),
        };
        let all = ["web-1", "web-2"].map(epitaph);
        for (asked, expected) in [
            ("web-2.0123abcd", "uid-of-web-2"),
            ("epitaph.epitaph.dev/web-1.0123abcd", "uid-of-web-1"),
            ("epitaphs/web-1.0123abcd", "uid-of-web-1"),
            ("epitaph/web-1", "epitaph/web-1"),
            ("web-1", "web-1"),
            ("po/web", "web"),
            ("Pods/web-1", "web-1"),
            ("deployment.apps/web", "Deployment/web"),
            ("sts/db", "StatefulSet/db"),
            ("cronjobs.batch/night", "CronJob/night"),
            ("shop/web-1", "shop/web-1"),
        ] {
            assert_eq!(wanted(&all, asked), expected, "{asked}");
        }
    }

    #[test]
    fn the_first_word_is_a_kind_or_a_namespace() {
        for kind in ["pod", "deploy", "epitaphs", "Deployment", "deployment.apps", "Rollout"] {
            assert!(is_kind(kind), "{kind}");
        }
        for namespace in ["shop", "jobs-of-the-night", "default"] {
            assert!(!is_kind(namespace), "{namespace}");
        }
    }

    #[test]
    fn an_endpoint_that_was_ready_after_the_stop_signal() {
        let endpoint = |until: Option<&str>| EpitaphEndpoint {
            ready_until: until.map(str::to_owned),
            ..EpitaphEndpoint::default()
        };
        let stop = Some("2026-11-21T11:44:10.500000000Z");
        let at = |until: &str| still_ready(&endpoint(Some(until)), stop);
        assert_eq!(
            at("2026-11-21T11:44:14.600000000Z"),
            "; its endpoint was still ready 4.1 s after the stop signal, by the clocks of node and observer"
        );
        // Not ready before it; of an older version; without a stop signal; not a time.
        assert_eq!(at("2026-11-21T11:44:10.500000000Z"), "");
        assert_eq!(at("2026-11-21T11:44:09.000000000Z"), "");
        assert_eq!(at("soon"), "");
        assert_eq!(still_ready(&endpoint(None), stop), "");
        assert_eq!(still_ready(&endpoint(Some("2026-11-21T11:44:14.600000000Z")), None), "");
    }
}
