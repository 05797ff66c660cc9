//! `NodeEpitaph`, the custom resource of a node: a shutdown, written by the node's agent, or a loss, written by the observer.
//!
//! `deploy/helm/epitaph/files/crds/nodeepitaphs.yaml` is the schema, written from these types.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fit::{GAPS, bytes, cut, word};
use super::label::{self, hex};
use super::make::{GAP, NAME, SHORT_NAME, strip, time, took};
use super::{API_VERSION, LABEL_NODE, LABEL_UNCLEAN, LABEL_VERDICT, MOST_BYTES};
use crate::observe::NodeLost;
use crate::render::id;
use crate::report::NodeShutdown;
use crate::text::escape;
use crate::time::WallOffset;

pub const NODE_KIND: &str = "NodeEpitaph";
pub const NODE_PLURAL: &str = "nodeepitaphs";

/// What happened to a node: its shutdown.
pub const SHUTDOWN: &str = "Shutdown";
/// What happened to a node: it was lost.
pub const LOSS: &str = "Loss";

/// Longest sentence and remedy, bytes as JSON.
const SENTENCE: usize = 1024;
const REMEDY: usize = 1024;

/// What happened to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NodeEpitaphReport {
    /// What happened: `Shutdown` or `Loss`.
    pub event: String,
    /// Name of the node.
    pub node: String,
    /// UID of the Node object; absent in a report of the node's own agent.
    pub node_uid: Option<String>,
    /// The id of the boot that ended.
    pub boot_id: Option<String>,
    /// For a shutdown: its kind, such as `power-off` or `reboot`, if known.
    pub kind: Option<String>,
    /// The verdict in one word, such as `graceful` or `truncated`. `epitaph explain VERDICT` explains it.
    pub verdict: String,
    /// Whether pods may have been harmed.
    pub unclean: bool,
    /// What happened, in one sentence.
    pub sentence: String,
    /// What to do now, or to change so that it does not happen again.
    pub remedy: Option<String>,
    /// The time of the first evidence, RFC 3339.
    pub began: String,
    /// The time of the last evidence, RFC 3339.
    pub ended: String,
    /// Duration from the first to the last evidence.
    pub took: String,
    /// For a shutdown: number of pods that ran on the node during the shutdown. For a loss: number of pods whose termination the node could not complete.
    pub pods: Option<u64>,
    /// For a shutdown: connections that clients lost. Absent if no lost connection was observed but some may have been missed.
    pub lost_connections: Option<u64>,
    /// For a shutdown: more connections may have been lost than `lostConnections` says. Absent if that number is exact.
    pub lost_connections_at_least: Option<bool>,
    /// For a shutdown: number of pods that were started on the node during the shutdown. Absent if none was seen.
    pub pods_started: Option<u64>,
    /// The id of the trace.
    pub trace_id: String,
    /// Which evidence is missing or was lost.
    pub gaps: Vec<String>,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEpitaph {
    pub report: NodeEpitaphReport,
}

impl NodeEpitaph {
    /// `node`: the name of the Node, which the host's own name need not be.
    pub fn of_shutdown(shutdown: &NodeShutdown, node: &str) -> NodeEpitaph {
        let (verdict, clock) = (&shutdown.verdict, shutdown.clock);
        let of = &shutdown.gaps;
        let gaps = [
            of.bus.clone(),
            of.exits.then(|| "exits of processes were not observed".to_owned()),
            of.observation.then(|| "epitaph did not run for part of this time".to_owned()),
            of.pods.then(|| "the pods of the node were not known".to_owned()),
        ];
        NodeEpitaph::fitted(NodeEpitaphReport {
            event: SHUTDOWN.to_owned(),
            node: word(node, NAME),
            node_uid: None,
            boot_id: Some(word(&shutdown.key.boot_id, SHORT_NAME)),
            kind: shutdown.kind.map(|kind| kind.name().to_owned()),
            verdict: verdict.headline.to_owned(),
            unclean: verdict.unclean,
            sentence: verdict.sentence.clone(),
            remedy: verdict.remedy.clone(),
            began: time(clock, shutdown.begin),
            ended: time(clock, shutdown.end),
            took: took(shutdown.end, shutdown.begin),
            pods: (!of.pods).then(|| shutdown.pods.len() as u64 + shutdown.unlisted.more),
            lost_connections: shutdown.loss().known(),
            lost_connections_at_least: shutdown.loss().is_least.then_some(true),
            pods_started: Some(shutdown.started().count() as u64).filter(|count| *count > 0),
            trace_id: id::node_trace_id(&shutdown.key).to_string(),
            gaps: gaps.into_iter().flatten().collect(),
        })
    }

    /// `clock`: of the observer's machine.
    pub fn of_loss(lost: &NodeLost, clock: WallOffset) -> NodeEpitaph {
        let (verdict, node) = (&lost.verdict, &lost.key.node);
        let partial = lost
            .pods
            .has_dropped
            .then(|| "there was no room for further pods of the node".to_owned());
        let unwatched = lost
            .unwatched
            .map(|before| format!("the loss had begun {:.0} s before it was observed", before.as_secs_f64()));
        NodeEpitaph::fitted(NodeEpitaphReport {
            event: LOSS.to_owned(),
            node: word(&node.name, NAME),
            node_uid: Some(word(&node.uid, SHORT_NAME)),
            boot_id: (!node.boot_id.is_empty()).then(|| word(&node.boot_id, SHORT_NAME)),
            kind: None,
            verdict: verdict.row.headline.to_owned(),
            unclean: verdict.row.unclean,
            sentence: verdict.sentence.clone(),
            remedy: Some(verdict.remedy.clone()).filter(|remedy| !remedy.is_empty()),
            began: time(clock, lost.begin.at),
            ended: time(clock, lost.end.at),
            took: took(lost.end.at, lost.begin.at),
            pods: Some(lost.pods.stuck as u64),
            lost_connections: None,
            lost_connections_at_least: None,
            pods_started: None,
            trace_id: id::node_loss_trace_id(&node.uid, lost.key.transition).to_string(),
            gaps: [partial, unwatched].into_iter().flatten().collect(),
        })
    }

    fn fitted(mut report: NodeEpitaphReport) -> NodeEpitaph {
        report.sentence = cut(&escape(&report.sentence), SENTENCE);
        report.remedy = report.remedy.map(|remedy| cut(&escape(&remedy), REMEDY));
        report.gaps = report.gaps.iter().take(GAPS).map(|gap| word(gap, GAP)).collect();
        let mut epitaph = NodeEpitaph { report };
        while bytes(&epitaph.with_nulls()) > MOST_BYTES && epitaph.report.gaps.pop().is_some() {}
        epitaph
    }

    /// The same for every writer of this event: the trace's id is made of the boot and the ordinal, or of the Node's UID and the moment.
    pub fn name(&self) -> String {
        let NodeEpitaphReport {
            node, trace_id, event, ..
        } = &self.report;
        let short: String = node.chars().take(200).collect();
        let short = short.trim_end_matches(['.', '-']);
        format!("{short}.{}", hex(&format!("{event}\n{node}\n{trace_id}"), 8))
    }

    /// The object to create. A value that is not known is absent.
    pub fn object(&self) -> Value {
        let mut object = self.with_nulls();
        strip(&mut object);
        object
    }

    fn with_nulls(&self) -> Value {
        let report = &self.report;
        json!({
            "apiVersion": API_VERSION,
            "kind": NODE_KIND,
            "metadata": {"name": self.name(), "labels": {
                LABEL_NODE: label::value(&report.node),
                LABEL_UNCLEAN: if report.unclean { "true" } else { "false" },
                LABEL_VERDICT: label::value(&report.verdict),
            }},
            "report": report,
        })
    }
}
