//! What Jaeger shows of a death, held against the agent's JSON of it.

use anyhow::Context as _;
use serde_json::{Value, json};

/// Spans that the trace of a termination must have.
pub fn expected_spans(termination: &Value) -> Vec<String> {
    let root = match termination["subject"]["kind"].as_str() {
        Some("unit") => "unit.stop",
        _ => "container.stop",
    };
    let mut names = vec![root.to_owned()];
    if let Some(signal) = termination["stop"]["signal"].as_str() {
        names.push(format!("{signal} → exit"));
    }
    for what in ["refused", "reset", "cut", "rejected"] {
        if termination["connections"][what].as_u64().unwrap_or(0) > 0 {
            names.push(format!("{what} connections"));
        }
    }
    names
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
    let mut names: Vec<_> = spans.iter().filter_map(|s| s["operationName"].as_str()).collect();
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
        // A skewed clock, a parent that is not there, an id given twice.
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
    differs.start(root, &termination["begin"])?;
    if let Some(signal) = spans
        .iter()
        .find(|s| s["operationName"].as_str().is_some_and(|n| n.ends_with("→ exit")))
    {
        let end = termination.pointer("/status/time").unwrap_or(&termination["end"]);
        differs.times(signal, &termination["stop"]["time"], end)?;
    }
    if let Some(refused) = spans.iter().find(|s| s["operationName"] == "refused connections") {
        let connections = &termination["connections"];
        differs.times(refused, &connections["refused_first"], &connections["refused_last"])?;
    }

    for axis in ["verdict", "cause", "exit", "traffic", "unclean", "severity", "sentence"] {
        differs.same(axis, &tag(root, &format!("epitaph.{axis}")), &termination[axis]);
    }
    let unclean = termination["unclean"] == true;
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
            self.0.push(format!("{what}: Jaeger has {found}, the agent said {expected}"));
        }
    }

    fn start(&mut self, span: &Value, begin: &Value) -> anyhow::Result<()> {
        let micros = json!(nanos(begin)? / 1000);
        self.same("start", &span["startTime"], &micros);
        Ok(())
    }

    /// Jaeger rounds each of start and duration down to microseconds.
    fn times(&mut self, span: &Value, begin: &Value, end: &Value) -> anyhow::Result<()> {
        let name = span["operationName"].as_str().unwrap_or_default();
        let (begin, end) = (nanos(begin)?, nanos(end)?);
        let start = span["startTime"].as_u64().context("a span without a start")?;
        let duration = span["duration"].as_u64().context("a span without a duration")?;
        if start != begin / 1000 || duration.abs_diff((end - begin) / 1000) > 1 {
            self.0.push(format!(
                "times of {name}: Jaeger has {start} µs for {duration} µs, the agent said {begin} to {end} ns"
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
    let since = humantime::parse_rfc3339(text)?.duration_since(std::time::UNIX_EPOCH)?;
    Ok(u64::try_from(since.as_nanos())?)
}

pub(crate) fn tag(of: &Value, key: &str) -> Value {
    let mut tags = of["tags"].as_array().into_iter().flatten();
    tags.find(|t| t["key"] == key).map_or(Value::Null, |t| t["value"].clone())
}
