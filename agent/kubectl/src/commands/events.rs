//! What is left without the custom resource: the Events of Epitaph.

use epitaph_core::time::Wall;
use kube::api::DynamicObject;

use crate::cli::SelectArgs;
use crate::cluster::{Cluster, EVENTS, Place, Selection, now};
use crate::failure::Failure;
use crate::output::{age_of, table};

/// `reportingComponent` of agents and observer: `agent/src/sink/kubernetes_events.rs`.
pub const AGENTS: &str = "epitaph.dev/agent";
const COMPONENTS: [&str; 2] = [AGENTS, "epitaph.dev/observer"];

/// The Events of Epitaph, the latest first, after the reason why there is nothing better.
pub async fn instead(
    cluster: &Cluster,
    place: Place<'_>,
    select: &SelectArgs,
    failure: Failure,
) -> Result<Vec<DynamicObject>, Failure> {
    warn(select, failure)?;
    all(cluster, place, None).await
}

/// Events have no labels of Epitaph: those that a selector would leave out cannot be told apart from the others.
pub fn warn(select: &SelectArgs, failure: Failure) -> Result<(), Failure> {
    if select.selector.is_some() {
        let remedy = failure.remedy.unwrap_or_default();
        return Err(Failure::new(format!(
            "{}; the Events of Epitaph, which are left, have no labels for -l to select by",
            failure.problem
        ))
        .with_remedy(format!("{remedy}; without -l the Events are shown")));
    }
    eprintln!("warning: {}", failure.problem);
    eprintln!(
        "warning: this cluster has no kind Epitaph; shown are the Events of Epitaph instead: of unclean terminations only, which Kubernetes \
         keeps for an hour by default"
    );
    if let Some(remedy) = &failure.remedy {
        eprintln!("remedy: {remedy}");
    }
    Ok(())
}

/// Those of one component.
pub fn of(component: &str) -> Selection {
    Selection::fields(format!("reportingComponent={component}"))
}

/// `about`: a further field selector.
pub async fn all(cluster: &Cluster, place: Place<'_>, about: Option<&str>) -> Result<Vec<DynamicObject>, Failure> {
    let mut all = Vec::new();
    for component in COMPONENTS {
        let further = about.map_or(String::new(), |about| format!(",{about}"));
        let selection = of(&format!("{component}{further}"));
        all.extend(cluster.list(EVENTS, place, &selection).await?.0);
    }
    all.sort_by_key(|event| std::cmp::Reverse(last(event)));
    Ok(all)
}

/// Of the pod, the workload or the node.
pub fn object(event: &DynamicObject) -> (&str, &str) {
    let field = |name: &str| event.data["involvedObject"][name].as_str().unwrap_or_default();
    (field("kind"), field("name"))
}

/// When it happened for the last time.
pub fn last(event: &DynamicObject) -> Option<Wall> {
    let series = event.data["series"]["lastObservedTime"].as_str();
    let at = series
        .or(event.data["lastTimestamp"].as_str())
        .or(event.data["eventTime"].as_str())?;
    Wall::parse_rfc3339(at)
}

pub fn text<'a>(events: impl IntoIterator<Item = &'a DynamicObject>, has_namespaces: bool, has_titles: bool) -> String {
    let now = now();
    let rows: Vec<Vec<String>> = events
        .into_iter()
        .map(|event| {
            let (kind, name) = object(event);
            let field = |name: &str| event.data[name].as_str().unwrap_or_default().to_owned();
            let mut row = vec![
                age_of(last(event), now),
                field("reason"),
                format!("{}/{name}", kind.to_lowercase()),
                field("message"),
            ];
            if has_namespaces {
                row.insert(0, event.metadata.namespace.clone().unwrap_or_default());
            }
            row
        })
        .collect();
    let titles = ["NAMESPACE", "LAST SEEN", "REASON", "OBJECT", "MESSAGE"];
    let titles = &titles[usize::from(!has_namespaces)..];
    table(has_titles.then_some(titles), &rows)
}
