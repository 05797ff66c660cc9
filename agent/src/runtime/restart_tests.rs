//! An agent that is killed, its successor, and a replay of what they kept: the same terminations, judged alike.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::correlate::{Correlator, Limits};
use epitaph_core::decode::encode::encode;
use epitaph_core::fixtures::script;
use epitaph_core::input::{Input, Observation};
use epitaph_core::render::json;
use epitaph_core::report::Report;
use epitaph_core::time::Boot;
use serde_json::Value;

use super::export::Export;
use super::journaling::{self, Journaling};
use super::pipeline::Pipeline;
use super::replay::Recorded;
use super::sinks::Sinks;
use crate::config::Config;
use crate::journal::export::{Part, export};
use crate::journal::reader::Reader;

/// A guard against a hang, not a measure.
const LONG: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(200);

fn feed(pipeline: &mut Pipeline, now: Boot, at: Boot, input: Input) {
    match &input {
        Input::Kernel { event, .. } => pipeline.feed_record(now, &encode(at.0, event), input),
        _ => pipeline.feed(now, input),
    }
    .unwrap();
}

/// One run of an agent, killed after `inputs`, or after that time.
async fn run(directory: &Path, observation: &Observation, inputs: Vec<(Boot, Input)>, until: Boot) {
    let mut config = Config::default();
    config.journal.directory = Some(directory.to_owned());
    let exports = Export::start(&config).unwrap();
    let opened = journaling::open(&config, observation, &exports.metrics, &|| false)
        .unwrap()
        .unwrap();
    let mut sinks = Sinks::new(&config, &exports, None, Arc::default());
    sinks.journal = Some(Journaling::new(&opened));
    let core = Correlator::new(Limits::default());
    let mut pipeline = Pipeline::new(core, observation.clone(), None, sinks);
    pipeline.resume(&opened.past, observation).unwrap();
    let mut now = observation.since;
    for (at, input) in inputs {
        while now.plus(TICK) < at {
            now = now.plus(TICK);
            pipeline.tick(now).unwrap();
        }
        now = now.max(at);
        let is_scanned = matches!(input, Input::Scanned);
        feed(&mut pipeline, now, at, input);
        if is_scanned {
            pipeline.resumed();
        }
    }
    while now < until {
        now = now.plus(TICK);
        pipeline.tick(now).unwrap();
    }
    drop(pipeline);
    opened.thread.flush(LONG);
    opened.thread.close(LONG);
}

/// By trace id: each finished termination of the runs, as they reported it.
async fn played(directory: &Path, text: &str) -> BTreeMap<String, Value> {
    let mut runs: Vec<(Observation, Vec<(Boot, Input)>)> = Vec::new();
    for (at, input) in script::parse(text).inputs {
        if let Input::Start(observation) = &input {
            runs.push((observation.clone(), Vec::new()));
        }
        runs.last_mut().unwrap().1.push((at, input));
    }
    let last = runs.len() - 1;
    for (number, (observation, inputs)) in runs.into_iter().enumerate() {
        let until = match number == last {
            true => inputs.last().unwrap().0.plus(Duration::from_secs(60)),
            false => Boot(0),
        };
        run(directory, &observation, inputs, until).await;
    }
    let mut reader = Reader::open(directory).unwrap();
    let mut found = BTreeMap::new();
    while let Some(report) = reader.next_report() {
        add(&mut found, serde_json::from_slice(report.json).unwrap());
    }
    found
}

fn add(to: &mut BTreeMap<String, Value>, report: Value) {
    let id = report["trace_id"].as_str().unwrap().to_owned();
    assert!(to.insert(id, report).is_none(), "reported twice");
}

/// The same by a replay of the export; and how often it began to observe.
fn replayed(directory: &Path) -> BTreeMap<String, Value> {
    let mut file = Vec::new();
    export(&mut Reader::open(directory).unwrap(), Part::default(), &mut file).unwrap();
    let mut core = Correlator::new(Limits::default());
    let mut found = BTreeMap::new();
    let recorded = Recorded::new(file.as_slice(), &"export").unwrap();
    let mut observation = recorded.observation().clone();
    for (now, input) in recorded {
        if let Input::Start(of) = &input {
            observation = of.clone();
        }
        for report in core.handle(now, input).reports {
            if let Report::Terminated(of) = report
                && !of.is_still_ending()
            {
                add(
                    &mut found,
                    serde_json::to_value(json::termination(&of, &observation)).unwrap(),
                );
            }
        }
    }
    found
}

const CAST: &str = "
    -100 start
    -90 mkdir tools.service
    proc operator in=tools.service pid=900 start=-90 parent=systemd comm=operator
    -90 exec operator
    -80 mkdir app
    proc main in=app pid=100 ns=1 start=-80 parent=shim comm=app
    -79.999 exec main
    -80 mkdir other
    proc bystander in=other pid=110 ns=1 start=-80 parent=shim comm=other
    -79.999 exec bystander
";

#[tokio::test]
async fn a_replay_of_the_journal_agrees_with_the_agents_across_a_restart() {
    for (name, rest) in [
        (
            "exits in the gap",
            "+1 TERM runc -> main handler\n+1.001 enter main TERM\n+2 tick\n+6 start\n+6 found bystander\n+6 scanned\n+9 tick",
        ),
        (
            "goes on",
            "+1 TERM runc -> main handler\n+1.001 enter main TERM\n+2 tick\n+6 start\n+6 found main\n+6 found bystander\n+6 scanned
            +31 KILL runc -> main\n+31.001 exit main KILL\n+31.1 rmdir app",
        ),
        (
            "killed by another after the restart",
            "+1 TERM operator -> main handler\n+1.001 enter main TERM\n+2 tick\n+6 start\n+6 found main\n+6 found bystander\n+6 scanned
            +31 KILL operator -> main\n+31.001 exit main KILL\n+31.1 rmdir app",
        ),
        (
            "exits just before",
            "+1 TERM runc -> main handler\n+1.001 enter main TERM\n+1.5 exit main 0\n+6 start\n+6 found bystander\n+6 scanned\n+9 tick",
        ),
        (
            "two restarts",
            "+1 TERM operator -> main handler\n+1.001 enter main TERM\n+2 tick\n+6 start\n+6 found main\n+6 found bystander\n+6 scanned
            +7 TERM runc -> bystander handler\n+7.01 enter bystander TERM\n+8 tick\n+12 start\n+12 found main\n+12 scanned\n+20 KILL operator -> main
            +20.01 exit main KILL\n+20.1 rmdir app",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let live = played(&path, &format!("{CAST}{rest}")).await;
        assert!(!live.is_empty(), "{name}");
        let again = replayed(&path);
        for (id, live) in &live {
            let again = again.get(id).unwrap_or_else(|| panic!("{name}: {id} is not replayed"));
            assert_eq!(
                serde_json::to_string_pretty(again).unwrap(),
                serde_json::to_string_pretty(live).unwrap(),
                "{name}"
            );
        }
        assert_eq!(again.len(), live.len(), "{name}");
    }
}
