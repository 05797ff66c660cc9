//! The node's shutdowns over restarts of the agent and the machine, with a journal on disk and without any termination.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::correlate::{Correlator, Limits};
use epitaph_core::fixtures::terminations::observation;
use epitaph_core::input::{Input, Observation};
use epitaph_core::node::{BusState, NodeEvent, SignalSender};
use epitaph_core::time::{Boot, WallOffset};

use super::export::Export;
use super::journaling::{self, Journaling};
use super::pipeline::Pipeline;
use super::sinks::Sinks;
use crate::config::Config;
use crate::journal::reader::Reader;

const TICK: Duration = Duration::from_millis(200);

fn boot(id: &str, since: u64, wall: i64) -> Observation {
    Observation {
        boot_id: id.to_owned(),
        since: Boot(since * 1_000_000_000),
        wall_offset: WallOffset(wall * 1_000_000_000),
        ..observation()
    }
}

/// One run of an agent with the journal in `directory`: `seconds` long, with these events at its begin.
async fn run(directory: &Path, observation: &Observation, events: Vec<NodeEvent>, seconds: u64, last: Vec<NodeEvent>) {
    let mut config = Config::default();
    config.journal.directory = Some(directory.to_owned());
    let export = Export::start(&config).unwrap();
    let opened = journaling::open(&config, observation, &export.metrics, &|| false)
        .unwrap()
        .unwrap();
    let mut sinks = Sinks::new(&config, &export, None, Arc::default());
    sinks.journal = Some(Journaling::new(&opened));
    let core = Correlator::new(Limits::default());
    let mut pipeline = Pipeline::new(core, observation.clone(), None, sinks);
    pipeline.resume(&opened.past, observation).unwrap();
    let mut now = observation.since;
    pipeline.feed(now, Input::Start(observation.clone())).unwrap();
    pipeline.feed(now, Input::Scanned).unwrap();
    pipeline.resumed();
    for event in events {
        pipeline.feed(now, Input::Node(event)).unwrap();
    }
    for _ in 0..seconds * 5 {
        now = now.plus(TICK);
        pipeline.tick(now).unwrap();
    }
    for event in last {
        pipeline.feed(now, Input::Node(event)).unwrap();
    }
    drop(pipeline);
    opened.thread.flush(Duration::from_secs(20));
    opened.thread.close(Duration::from_secs(20));
}

/// Type and verdict of each finished report.
fn reports(directory: &Path) -> Vec<String> {
    let mut reader = Reader::open(directory).unwrap();
    let mut found = Vec::new();
    while let Some(report) = reader.next_report() {
        let object: serde_json::Value = serde_json::from_slice(report.json).unwrap();
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        found.push(format!("{} {} {}", text("type"), object["ordinal"], text("verdict")));
    }
    found
}

fn connected() -> NodeEvent {
    NodeEvent::Bus {
        state: BusState::Connected {
            systemd: Some(252),
            preparing: false,
        },
    }
}

fn prepare() -> NodeEvent {
    NodeEvent::Prepare {
        start: true,
        kind: None,
        sender: SignalSender::Logind,
    }
}

#[tokio::test]
async fn an_unannounced_end_is_reported_once_after_the_boot_although_nothing_terminated() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("journal");
    run(&directory, &boot("first", 100, 1_000), vec![connected()], 95, vec![]).await;
    assert_eq!(reports(&directory), Vec::<String>::new());
    run(&directory, &boot("second", 10, 1_300), vec![connected()], 2, vec![]).await;
    let once = ["node-down 1 ", "node-shutdown 1 unannounced"];
    assert_eq!(reports(&directory), once);
    // The agent restarts in the same boot, and has the same evidence once more.
    run(&directory, &boot("second", 20, 1_300), vec![connected()], 2, vec![]).await;
    assert_eq!(reports(&directory), once);
}

#[tokio::test]
async fn an_agent_that_ended_in_order_does_not_know_how_the_node_went_down() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("journal");
    let ends = NodeEvent::AgentEnds { pod: None };
    run(&directory, &boot("first", 100, 1_000), vec![connected()], 5, vec![ends]).await;
    run(&directory, &boot("second", 10, 1_300), vec![connected()], 2, vec![]).await;
    assert_eq!(reports(&directory), ["node-shutdown 1 unknown"]);
}

#[tokio::test]
async fn an_announced_end_is_completed_by_the_next_boot() {
    let ends = NodeEvent::AgentEnds { pod: None };
    // Without its own end, the power was lost before the services were stopped.
    for (last, verdict) in [(vec![ends], "graceful"), (vec![], "truncated")] {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("journal");
        let job = NodeEvent::Job {
            unit: "reboot.target".into(),
            removed: false,
        };
        let events = [vec![prepare(), job], last].concat();
        run(&directory, &boot("first", 100, 1_000), vec![connected()], 5, events).await;
        run(&directory, &boot("second", 10, 1_300), vec![connected()], 2, vec![]).await;
        let reports = reports(&directory);
        assert!(
            reports.contains(&format!("node-shutdown 1 {verdict}")),
            "{verdict}: {reports:?}"
        );
        assert_eq!(reports.len(), 2, "{reports:?}");
    }
}
