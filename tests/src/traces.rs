//! What Jaeger shows of a termination, compared with the agent's JSON of the same termination.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use serde_json::{Value, json};

/// A span's name without the verdict that the names of roots and stops end with: `container.stop` for `container.stop clean`.
pub fn kind(name: &str) -> &str {
    match name.split_once(' ') {
        Some((kind @ ("pod.termination" | "container.stop" | "unit.stop"), _)) => kind,
        _ => name,
    }
}

/// [`kind`] of one of Jaeger's spans.
pub fn kind_of(span: &Value) -> &str {
    kind(span["operationName"].as_str().unwrap_or_default())
}

/// The name of a root or a stop must end with the verdict of its own attribute. None where it does, or where the span is another.
pub(crate) fn misnamed(span: &Value) -> Option<String> {
    let verdict = tag(span, "epitaph.verdict");
    let name = span["operationName"].as_str().unwrap_or_default();
    let is_named = match verdict.as_str() {
        Some(verdict) => name == format!("{} {verdict}", kind(name)) && name != kind(name),
        None => name == kind(name) && !matches!(name, "pod.termination" | "container.stop" | "unit.stop"),
    };
    (!is_named).then(|| format!("{name} has the verdict {verdict}"))
}

/// A span for a process to which the stop signal was sent on: the JSON does not list these.
pub fn is_forwarded(span: &Value) -> bool {
    kind_of(span).starts_with("forwarded ")
}

/// Spans that the trace of a termination must have; [`is_forwarded`] ones come on top.
pub fn expected_spans(termination: &Value) -> Vec<String> {
    let root = match termination["subject"]["kind"].as_str() {
        Some("unit") => "unit.stop",
        _ => "container.stop",
    };
    let verdict = termination["verdict"].as_str().unwrap_or_default();
    let mut names = vec![format!("{root} {verdict}")];
    if let Some(signal) = termination["stop"]["signal"].as_str() {
        names.push(format!("{signal} → exit"));
    }
    names.extend((0..closed_ports(termination)).map(|_| "listener closed → exit".to_owned()));
    for what in ["refused", "reset", "cut", "rejected"] {
        if termination["connections"][what].as_u64().unwrap_or(0) > 0 {
            names.push(format!("{what} connections"));
        }
    }
    names
}

/// Nanoseconds from the first loss of a client to the begin: a program below the main process can exit before that process.
fn earlier(termination: &Value) -> u64 {
    let connections = &termination["connections"];
    let first = |what: &str| nanos(&connections[format!("{what}_first")]).ok();
    let losses = ["refused", "reset", "cut", "rejected"].into_iter().filter_map(first).min();
    nanos(&termination["begin"])
        .unwrap_or(0)
        .saturating_sub(losses.unwrap_or(u64::MAX))
}

/// Ports that stopped accepting between the begin of the root and the exit, and not by the kill.
fn closed_ports(termination: &Value) -> usize {
    let nanos = |of: &Value| of["boot_ns"].as_u64();
    let Some(exit) = nanos(&termination["status"]) else { return 0 };
    let begin = termination["begin_boot_ns"]
        .as_u64()
        .unwrap_or(0)
        .saturating_sub(earlier(termination));
    let kill = nanos(&termination["kill"]).unwrap_or(u64::MAX);
    let mut ports: BTreeMap<&str, Vec<(u64, bool)>> = BTreeMap::new();
    for listener in termination["connections"]["listeners_closed"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let port = listener["local"].as_str().and_then(|local| local.rsplit(':').next());
        let closed = (nanos(listener).unwrap_or(0), listener["by_exit"] == true);
        ports.entry(port.unwrap_or_default()).or_default().push(closed);
    }
    let is_closed = |closes: &&Vec<(u64, bool)>| {
        let before = |(at, by_exit): &(u64, bool)| *at < exit && !(*by_exit && *at >= kill);
        closes.iter().all(before) && closes.iter().map(|(at, _)| *at).max() >= Some(begin)
    };
    ports.values().filter(is_closed).count().min(8)
}

/// Each thing in which the trace (Jaeger's `data[n]`) is not the termination's, in a line.
///
/// # Errors
/// The JSON of either has not the form that it must have.
pub fn differs(termination: &Value, trace: &Value) -> anyhow::Result<Vec<String>> {
    let mut differs = Differs(Vec::new());
    let spans = trace["spans"].as_array().context("a trace without spans")?;
    let mut expected = expected_spans(termination);
    let root_name = expected[0].clone();
    let named = spans.iter().filter(|span| !is_forwarded(span));
    let mut names: Vec<_> = named.filter_map(|s| s["operationName"].as_str()).collect();
    names.sort_unstable();
    expected.sort_unstable();
    differs.same("spans", &json!(names), &json!(expected));

    let roots: Vec<_> = spans.iter().filter(|s| s["references"] == json!([])).collect();
    let [root] = roots[..] else {
        differs.0.push(format!("{} roots", roots.len()));
        return Ok(differs.0);
    };
    differs.same("the root", &root["operationName"], &json!(root_name));
    let parent = json!([{"refType": "CHILD_OF", "traceID": termination["trace_id"], "spanID": root["spanID"]}]);
    for span in spans {
        let name = span["operationName"].as_str().unwrap_or_default();
        differs.same(&format!("trace of {name}"), &span["traceID"], &termination["trace_id"]);
        // A skewed clock, a parent that is not there, an id given twice, an end before the begin.
        differs.same(&format!("Jaeger's warnings on {name}"), &span["warnings"], &Value::Null);
        if span["spanID"] != root["spanID"] {
            differs.same(&format!("parent of {name}"), &span["references"], &parent);
        }
    }

    // What clients saw may end after the process did; the root holds all of it.
    let ends = spans.iter().filter(|s| s["spanID"] != root["spanID"]).map(end);
    let last = ends.max().unwrap_or(0).max(nanos(&termination["end"])? / 1000);
    if end(root).abs_diff(last) > 1 {
        differs
            .0
            .push(format!("the root ends at {} µs, what is in it at {last} µs", end(root)));
    }
    differs.start(root, nanos(&termination["begin"])? - earlier(termination));
    let signal = format!("{} → exit", termination["stop"]["signal"].as_str().unwrap_or_default());
    if let Some(signal) = spans.iter().find(|s| s["operationName"] == signal) {
        let end = termination.pointer("/status/time").unwrap_or(&termination["end"]);
        differs.times(signal, &termination["stop"]["time"], end)?;
    }
    if let Some(refused) = spans.iter().find(|s| s["operationName"] == "refused connections") {
        let connections = &termination["connections"];
        differs.times(refused, &connections["refused_first"], &connections["refused_last"])?;
    }

    for axis in ["verdict", "cause", "exit", "traffic", "severity", "sentence"] {
        differs.same(axis, &tag(root, &format!("epitaph.{axis}")), &termination[axis]);
    }
    let unclean = termination["unclean"] == true;
    // A flag that is false is left out.
    let flag = if unclean { json!(true) } else { Value::Null };
    differs.same("unclean", &tag(root, "epitaph.unclean"), &flag);
    let status = if unclean {
        [json!("ERROR"), termination["sentence"].clone(), json!(true)]
    } else {
        [Value::Null, Value::Null, Value::Null]
    };
    for (key, value) in ["otel.status_code", "otel.status_description", "error"].iter().zip(status) {
        differs.same(key, &tag(root, key), &value);
    }
    let process = &trace["processes"][root["processID"].as_str().context("a span without a process")?];
    let name = ["id", "name"].iter().find_map(|k| termination["subject"][k].as_str());
    differs.same("service", &process["serviceName"], &json!("epitaph"));
    differs.same("subject", &tag(process, "service.instance.id"), &json!(name));
    differs.same("boot", &tag(process, "epitaph.boot_id"), &termination["boot_id"]);
    Ok(differs.0)
}

struct Differs(Vec<String>);

impl Differs {
    fn same(&mut self, what: &str, found: &Value, expected: &Value) {
        if found != expected {
            self.0
                .push(format!("{what}: Jaeger has {found}, the agent reported {expected}"));
        }
    }

    fn start(&mut self, span: &Value, begin: u64) {
        self.same("start", &span["startTime"], &json!(begin / 1000));
    }

    /// Jaeger rounds each of start and duration down to microseconds.
    fn times(&mut self, span: &Value, begin: &Value, end: &Value) -> anyhow::Result<()> {
        let name = span["operationName"].as_str().unwrap_or_default();
        let (begin, end) = (nanos(begin)?, nanos(end)?);
        let start = span["startTime"].as_u64().context("a span without a start")?;
        let duration = span["duration"].as_u64().context("a span without a duration")?;
        if start != begin / 1000 || duration.abs_diff((end - begin) / 1000) > 1 {
            self.0.push(format!(
                "times of {name}: Jaeger has {start} µs for {duration} µs, the agent reported {begin} to {end} ns"
            ));
        }
        Ok(())
    }
}

pub(crate) fn end(span: &Value) -> u64 {
    span["startTime"].as_u64().unwrap_or(0) + span["duration"].as_u64().unwrap_or(0)
}

fn nanos(time: &Value) -> anyhow::Result<u64> {
    let text = time.as_str().with_context(|| format!("{time} is no time"))?;
    Ok(u64::try_from(since_epoch(text)?.as_nanos())?)
}

/// Seconds since the epoch.
pub(crate) fn seconds(time: &str) -> anyhow::Result<f64> {
    Ok(since_epoch(time)?.as_secs_f64())
}

fn since_epoch(time: &str) -> anyhow::Result<Duration> {
    let time = humantime::parse_rfc3339(time).with_context(|| format!("{time} is no time"))?;
    Ok(time.duration_since(UNIX_EPOCH)?)
}

pub(crate) fn tag(of: &Value, key: &str) -> Value {
    let mut tags = of["tags"].as_array().into_iter().flatten();
    tags.find(|t| t["key"] == key).map_or(Value::Null, |t| t["value"].clone())
}
