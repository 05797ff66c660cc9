//! `kubectl epitaph node`: what happened to a node, gone or not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use epitaph_core::render::resource::{LABEL_NODE, LOSS, NodeEpitaphReport, SHUTDOWN, label_value};
use epitaph_core::text::bounded;
use epitaph_core::time::Wall;
use epitaph_story::story::{many, paragraph};
use serde::Serialize;

use super::events;
use crate::cli::{NodeArgs, NodeOutput};
use crate::cluster::{Cluster, NODE_EPITAPHS, NODES, Place, Selection, now};
use crate::failure::{Exit, Failure};
use crate::output::{age_of, json, named, page, print, yaml};
use crate::read::epitaphs;

/// Most lines of Events.
const EVENTS: usize = 5;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeStory {
    node: String,
    /// None where the API does not have the node; absent where it may not be read.
    ready: Option<Ready>,
    is_gone: bool,
    last_shutdown: Option<NodeEpitaphReport>,
    last_loss: Option<NodeEpitaphReport>,
    /// Terminations on the node by verdict, in the namespaces that may be read.
    terminations: BTreeMap<String, u64>,
    /// What could not be read, and why.
    unknown: Vec<String>,
}

/// The Node's condition `Ready`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ready {
    status: String,
    since: Option<String>,
    reason: String,
    message: String,
}

pub async fn run(cluster: &Cluster, args: &NodeArgs) -> Result<Exit, Failure> {
    let mut story = NodeStory {
        node: args.node.clone(),
        ready: None,
        is_gone: false,
        last_shutdown: None,
        last_loss: None,
        terminations: BTreeMap::new(),
        unknown: Vec::new(),
    };
    let selection = Selection::labels(format!("{LABEL_NODE}={}", label_value(&args.node)));
    node(cluster, &mut story).await?;
    happened(cluster, &selection, &mut story).await?;
    terminations(cluster, &selection, &mut story).await?;
    let about = format!("involvedObject.kind=Node,involvedObject.name={}", args.node);
    let of_node = match events::all(cluster, Place::Cluster, Some(&about)).await {
        Ok(events) => events,
        Err(failure) => allowed(failure, &mut story)?.unwrap_or_default(),
    };
    if story.is_gone && story.last_loss.is_none() && story.last_shutdown.is_none() && story.terminations.is_empty() {
        return Err(
            Failure::new(format!("nothing is known of a node `{}`", bounded(&args.node, 253)))
                .with_remedy("`kubectl get nodes` shows the nodes that exist; what is kept of others is a week old at most"),
        );
    }
    print(&match args.output {
        NodeOutput::Text => {
            let mut text = text(&story, page(), now());
            if !of_node.is_empty() {
                let _ = write!(text, "\nEvents\n{}", events::text(of_node.iter().take(EVENTS), false, true));
            }
            text
        }
        NodeOutput::Json => json(&story)?,
        NodeOutput::Yaml => yaml(&story)?,
        NodeOutput::Name => named(NODES, &story.node),
    })?;
    Ok(Exit::Done)
}

/// What may not be read is unknown, and no reason to show nothing: nodes are not a namespace's.
fn allowed<T>(failure: Failure, story: &mut NodeStory) -> Result<Option<T>, Failure> {
    if !failure.is_forbidden && !failure.is_kind_absent {
        return Err(failure);
    }
    story.unknown.push(failure.problem);
    Ok(None)
}

async fn node(cluster: &Cluster, story: &mut NodeStory) -> Result<(), Failure> {
    let node = match cluster.get(NODES, Place::Cluster, &story.node).await {
        Ok(Some(node)) => node,
        Ok(None) => {
            story.is_gone = true;
            return Ok(());
        }
        Err(failure) => return allowed(failure, story).map(|_: Option<()>| ()),
    };
    let conditions = node.data["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    let field = |name: &str| ready.and_then(|ready| ready[name].as_str()).unwrap_or_default().to_owned();
    story.ready = Some(Ready {
        status: field("status"),
        since: ready
            .and_then(|ready| ready["lastTransitionTime"].as_str())
            .map(str::to_owned),
        reason: field("reason"),
        message: field("message"),
    });
    Ok(())
}

/// The last of each kind.
async fn happened(cluster: &Cluster, selection: &Selection, story: &mut NodeStory) -> Result<(), Failure> {
    let objects = match cluster.list(NODE_EPITAPHS, Place::Cluster, selection).await {
        Ok((objects, _)) => objects,
        Err(failure) => return allowed(failure, story).map(|_: Option<()>| ()),
    };
    let mut reports: Vec<NodeEpitaphReport> = objects
        .into_iter()
        .filter_map(|object| serde_json::from_value(object.data.get("report")?.clone()).ok())
        .filter(|report: &NodeEpitaphReport| report.node == story.node)
        .collect();
    reports.sort_by(|a, b| b.began.cmp(&a.began));
    let of = |event: &str| reports.iter().find(|report| report.event == event).cloned();
    (story.last_shutdown, story.last_loss) = (of(SHUTDOWN), of(LOSS));
    Ok(())
}

async fn terminations(cluster: &Cluster, selection: &Selection, story: &mut NodeStory) -> Result<(), Failure> {
    let all = match epitaphs(cluster, Place::Cluster, selection).await {
        Err(failure) if failure.is_forbidden => {
            story.unknown.push(failure.problem);
            // The user's own namespace.
            epitaphs(cluster, Place::Namespace(&cluster.namespace), selection).await
        }
        all => all,
    };
    let all = match all {
        Ok(all) => all,
        Err(failure) => return allowed(failure, story).map(|_: Option<()>| ()),
    };
    for epitaph in all.iter().filter(|epitaph| epitaph.report.node == story.node) {
        *story.terminations.entry(epitaph.report.verdict.clone()).or_default() += 1;
    }
    Ok(())
}

fn text(story: &NodeStory, width: usize, now: Wall) -> String {
    let mut out = format!("node {}\n", bounded(&story.node, 253));
    let ready = match &story.ready {
        Some(Ready {
            status,
            since,
            reason,
            message,
        }) => {
            let word = match status.as_str() {
                "True" => "ready",
                "False" => "not ready",
                _ => "readiness unknown: the kubelet does not report",
            };
            let since = since.as_deref().and_then(Wall::parse_rfc3339);
            let why = if status == "True" {
                String::new()
            } else {
                format!(" ({reason}: {message})")
            };
            format!("{word}, for {}{why}", age_of(since, now))
        }
        None if story.is_gone => "the API has no such node any more".to_owned(),
        None => "readiness not known".to_owned(),
    };
    out.push_str(&paragraph(&bounded(&ready, 1024), width, ""));
    for (title, report) in [("Last shutdown", &story.last_shutdown), ("Last loss", &story.last_loss)] {
        let Some(report) = report else {
            let _ = writeln!(out, "\n{title}: none is known");
            continue;
        };
        let kind = report.kind.as_deref().map_or_else(String::new, |kind| format!(" ({kind})"));
        let ago = age_of(Wall::parse_rfc3339(&report.began), now);
        let unclean = if report.unclean { "  UNCLEAN" } else { "" };
        let _ = writeln!(
            out,
            "\n{title}{}: {}{unclean}",
            bounded(&kind, 80),
            bounded(&report.verdict, 80)
        );
        let pods = report
            .pods
            .map_or_else(String::new, |pods| format!(", {}", many(pods, "pod")));
        let when = format!("{} ago, took {}{pods}, trace {}", ago, report.took, report.trace_id);
        out.push_str(&paragraph(&bounded(&when, 400), width, "  "));
        out.push_str(&paragraph(&bounded(&report.sentence, 2048), width, "  "));
        if let Some(remedy) = &report.remedy {
            out.push_str(&paragraph(&format!("Remedy: {}", bounded(remedy, 2048)), width, "  "));
        }
        for gap in &report.gaps {
            out.push_str(&paragraph(
                &format!("Incomplete evidence: {}", bounded(gap, 256)),
                width,
                "  ",
            ));
        }
    }
    let all: u64 = story.terminations.values().sum();
    let _ = writeln!(out, "\nTerminations on this node that are kept: {all}");
    for (verdict, count) in &story.terminations {
        let _ = writeln!(out, "  {count:>6}  {}", bounded(verdict, 80));
    }
    for problem in &story.unknown {
        out.push_str(&paragraph(&format!("Unknown: {problem}"), width, ""));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_s_story_has_what_may_be_read_and_names_the_rest() {
        let story = NodeStory {
            node: "node-7".to_owned(),
            ready: Some(Ready {
                status: "Unknown".to_owned(),
                since: Some("1970-01-01T00:00:10Z".to_owned()),
                reason: "NodeStatusUnknown".to_owned(),
                message: "Kubelet stopped posting node status.\u{1b}".to_owned(),
            }),
            is_gone: false,
            last_shutdown: Some(NodeEpitaphReport {
                event: SHUTDOWN.to_owned(),
                verdict: "truncated".to_owned(),
                unclean: true,
                sentence: "the node went down before its pods".to_owned(),
                began: "1970-01-01T00:00:05.000Z".to_owned(),
                took: "4.0s".to_owned(),
                pods: Some(2),
                trace_id: "07f64948".to_owned(),
                ..NodeEpitaphReport::default()
            }),
            last_loss: None,
            terminations: [("clean".to_owned(), 3)].into(),
            unknown: vec!["cannot list events in the cluster: forbidden".to_owned()],
        };
        let text = text(&story, 80, Wall(70_000_000_000));
        for part in [
            "readiness unknown: the kubelet does not report, for 60s",
            "Last shutdown: truncated  UNCLEAN",
            "65s ago, took 4.0s, 2 pods, trace 07f64948",
            "Last loss: none is known",
            "     3  clean",
            "Unknown: cannot list events",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
