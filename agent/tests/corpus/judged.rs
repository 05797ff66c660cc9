//! What a recording's replay gives, as text: a block per output, a line per field.
//!
//! From the objects of `epitaph replay --output json` (docs/json.md), without what is written for people: sentence, remedy,
//! evidence, an advice's text. A time is its `*_boot_ns` where there is one. What is null, false or empty is left out, and zero
//! among the connections. After them, what no such object has: the spans' ids and times, stuck containers, workloads, counts.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use epitaph::config::Config;
use epitaph::recording::Reader;
use epitaph::render::span::{self, Options, Trace};
use epitaph_core::correlate::Correlator;
use epitaph_core::decode::decode;
use epitaph_core::input::{Input, Observation};
use epitaph_core::render::json;
use epitaph_core::report::{Report, Termination};
use serde_json::{Map, Value};

/// Empty where nothing is judged. `objects`: of [`replayed`].
pub fn judged(recording: &Path, objects: &[Value]) -> Result<String, String> {
    let mut text = String::new();
    for object in objects {
        block(&mut text, object);
    }
    reports(recording, &mut text)?;
    Ok(text)
}

/// The objects that `epitaph replay` prints, but for the first, which is about the machine.
pub fn replayed(recording: &Path) -> Result<Vec<Value>, String> {
    let replay = Command::new(env!("CARGO_BIN_EXE_epitaph"))
        .arg("replay")
        .arg(recording)
        .args(["--output", "json"])
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("epitaph replay: {error}"))?;
    let log = String::from_utf8_lossy(&replay.stderr);
    if !replay.status.success() || log.contains("is not whole") {
        return Err(format!("epitaph replay: {}: {log}", replay.status));
    }
    let lines = String::from_utf8_lossy(&replay.stdout);
    let objects = lines
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{error}: {line}")));
    let objects: Vec<Value> = objects.collect::<Result<_, _>>()?;
    match objects.split_first() {
        Some((first, rest)) if first["type"] == "observing" => Ok(rest.to_vec()),
        _ => Err("epitaph replay does not begin with an object of type observing".to_owned()),
    }
}

fn block(text: &mut String, object: &Value) {
    let r#type = object["type"].as_str().unwrap_or("object without type");
    let names = ["/subject/id", "/subject/name", "/pod/name"];
    let name = names.iter().find_map(|name| object.pointer(name)?.as_str());
    writeln!(text, "{type} {}", name.unwrap_or("")).expect("a string");
    fields(text, "", object);
}

/// Written for people: their words change, what they say does not.
const WORDS: [&str; 4] = ["sentence", "remedy", "evidence", "text"];

fn fields(text: &mut String, path: &str, value: &Value) {
    match value {
        Value::Null | Value::Bool(false) => {}
        Value::Number(count) if path.contains("connections.") && count.as_f64() == Some(0.0) => {}
        Value::Object(object) => {
            for (key, value) in object {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                match key.as_str() {
                    "type" => {}
                    key if WORDS.contains(&key) || is_told_twice(object, key) => {}
                    // Addresses of the machine that recorded.
                    "peers" if path.ends_with("connections.peers") => {}
                    // Why it may not be all: that it may not be is what counts.
                    "incomplete" if value.is_string() => writeln!(text, "  {path}").expect("a string"),
                    _ => fields(text, &path, value),
                }
            }
        }
        Value::Array(values) => {
            for (i, value) in values.iter().enumerate() {
                fields(text, &format!("{path}[{i}]"), value);
            }
        }
        Value::Bool(true) => writeln!(text, "  {path}").expect("a string"),
        Value::String(value) => writeln!(text, "  {path} = {value}").expect("a string"),
        Value::Number(value) => writeln!(text, "  {path} = {value}").expect("a string"),
    }
}

/// A time of day that stands there as nanoseconds since boot too.
fn is_told_twice(object: &Map<String, Value>, key: &str) -> bool {
    let has = |key: &str| object.contains_key(key);
    has(&format!("{key}_boot_ns")) || key == "time" && (has("boot_ns") || has("end_boot_ns"))
}

/// Of the core, asked as `epitaph replay` does, what its JSON does not show.
fn reports(recording: &Path, text: &mut String) -> Result<(), String> {
    each_report(recording, |report, observation| show(text, report, observation))
}

/// Each report of the core, with the observation that it belongs to.
pub fn each_report(recording: &Path, mut take: impl FnMut(&Report, &Observation)) -> Result<(), String> {
    let config = Config::default();
    let mut core = Correlator::new(config.limits.core).with_kubelet_units(config.kubernetes.kubelet_units.clone());
    let file = File::open(recording).map_err(|error| error.to_string())?;
    let mut reader = Reader::new(BufReader::new(file), decode).map_err(|error| error.to_string())?;
    let mut observation = reader.header().observation.clone();
    for (now, input) in reader.by_ref() {
        match &input {
            Input::Start(of) => observation = of.clone(),
            Input::Clock(offset) => observation.wall_offset = *offset,
            _ => {}
        }
        for report in core.handle(now, input).reports {
            take(&report, &observation);
        }
    }
    Ok(())
}

/// The spans of a report.
pub fn trace(report: &Report, observation: &Observation) -> Option<Trace> {
    let options = Options::default();
    Some(match report {
        Report::Terminated(of) if of.is_still_ending() => return None,
        Report::Terminated(of) => span::trace(of, observation, &options),
        Report::PodTerminated(of) => span::pod_trace(of, observation, &options),
        Report::NodeShutdown(of) => span::node_trace(of, &options),
        Report::NodeDown(of) => span::node_down(of, &options),
        _ => return None,
    })
}

fn show(text: &mut String, report: &Report, observation: &Observation) {
    let spans = |text: &mut String| trace(report, observation).map_or(Ok(()), |trace| spans(text, &trace));
    match report {
        Report::Terminated(_) | Report::PodTerminated(_) | Report::NodeDown(_) => spans(text),
        Report::Stuck(of) => {
            let so_far = Termination {
                facts: of.facts.clone(),
                kubernetes: Some(of.kubernetes.clone()),
                of_ending_pod: false,
                verdict: of.verdict.clone(),
            };
            let object = serde_json::to_value(json::termination(&so_far, observation)).expect("keys are text");
            writeln!(text, "stuck").map(|()| fields(text, "", &object))
        }
        Report::PodHeld(of) => writeln!(text, "held {}\n  {}", of.verdict.row.headline, of.verdict.sentence),
        Report::NodeShutdown(of) => {
            let object = serde_json::to_value(json::node_shutdown(of)).expect("keys are text");
            writeln!(text, "node {} {}", of.key.ordinal, object["verdict"]).expect("a string");
            spans(text)
        }
        Report::Workload(of) => writeln!(text, "workload {} {}", of.kind, of.name),
        Report::WorkloadGone(of) => writeln!(text, "workload gone {} {}", of.kind, of.name),
        Report::OptedOut { count } => writeln!(text, "opted out: {count}"),
        Report::Dropped { reason, count } => writeln!(text, "dropped {}: {count}", reason.name()),
        // In the JSON.
        Report::StopSignalIgnored(_) | Report::ChildOomKilled { .. } => Ok(()),
    }
    .expect("a string");
}

fn spans(text: &mut String, trace: &Trace) -> std::fmt::Result {
    for span in &trace.spans {
        let nanos = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
        let (of, begin, end) = (&span.span_context, nanos(span.start_time), nanos(span.end_time));
        let (trace, id, parent) = (of.trace_id(), of.span_id(), span.parent_span_id);
        writeln!(text, "span {trace} {id} below {parent} {begin}…{end}")?;
    }
    Ok(())
}
