//! The stories in Jaeger.

use std::collections::BTreeMap;

use epitaph_core::verdict;
use epitaph_tests::skip::skip;
use epitaph_tests::timeout::{holds, until};
use epitaph_tests::traces::{differs, expected_spans, is_forwarded};
use libtest_mimic::Failed;
use serde_json::Value;

use crate::Shared;

/// Every termination that the agent reported has one trace, and Jaeger has no other: no orphan, nothing twice.
pub fn jaeger_has_each_termination_once(shared: &Shared) -> Result<(), Failed> {
    let ran = shared.ran()?;
    let Some(jaeger) = &ran.jaeger else {
        let reason = "EPITAPH_JAEGER names no Jaeger; `cargo xtask jaeger --print-path` builds one";
        skip("jaeger-has-each-termination-once", reason);
        return Ok(());
    };
    let mut reported = terminations(&ran.report.lines)?;
    // A termination that is not of a story and was still going on when the agent stopped is the next agent's to export.
    let goes_on = |d: &Value| d["sentence"].as_str().is_some_and(|s| s.contains(verdict::OBSERVATION_ENDED));
    reported.retain(|d| !goes_on(d));
    if reported.len() < ran.report.cases.len() {
        return Err(format!("{} terminations of {} stories", reported.len(), ran.report.cases.len()).into());
    }
    let spans: u64 = reported.iter().map(|d| expected_spans(d).len() as u64).sum();
    // Jaeger takes a request before it has stored it.
    let _ = until("Jaeger to store the spans", || {
        let saved = jaeger.spans_saved()?;
        Ok(holds(saved >= spans, || format!("{saved} of {spans}")))
    });
    let saved = jaeger.spans_saved().map_err(text)?;
    let mut problems = Vec::new();
    let mut traces: BTreeMap<String, Value> = BTreeMap::new();
    for trace in jaeger.traces_of("epitaph").map_err(text)? {
        traces.insert(trace["traceID"].as_str().unwrap_or_default().to_owned(), trace);
    }
    // Jaeger counts the spans of all services: also the agent's own.
    let mut others = spans_where(traces.values(), is_forwarded);
    for service in jaeger.services().map_err(text)?.iter().filter(|name| *name != "epitaph") {
        others += spans_where(&jaeger.traces_of(service).map_err(text)?, |_| true);
    }
    if saved != spans + others {
        problems.push(format!(
            "Jaeger stored {saved} spans, the terminations have {spans}, and {others} are others"
        ));
    }
    for of in &reported {
        let id = of["trace_id"].as_str().unwrap_or_default();
        let found = match traces.remove(id) {
            Some(trace) => differs(of, &trace).map_err(text)?,
            None => vec!["Jaeger has no trace of it, or one for two terminations".into()],
        };
        problems.extend(found.iter().map(|line| format!("{} {id}: {line}", of["subject"])));
    }
    problems.extend(
        traces
            .keys()
            .map(|id| format!("trace {id} is not of a termination that the agent reported")),
    );
    if problems.is_empty() {
        return Ok(());
    }
    Err(problems.join("\n").into())
}

fn spans_where<'a>(traces: impl IntoIterator<Item = &'a Value>, is: impl Fn(&Value) -> bool) -> u64 {
    let spans = traces.into_iter().filter_map(|trace| trace["spans"].as_array()).flatten();
    spans.filter(|span| is(span)).count() as u64
}

/// Those of the stories, and of whatever else terminated on this machine.
pub fn terminations(lines: &[String]) -> Result<Vec<Value>, Failed> {
    let values = lines.iter().map(|l| serde_json::from_str::<Value>(l));
    let values: Vec<Value> = values.collect::<Result<_, _>>()?;
    Ok(values.into_iter().filter(|v| v["type"] == "termination").collect())
}

fn text(error: anyhow::Error) -> String {
    format!("{error:#}")
}
