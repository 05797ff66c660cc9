//! A kernel's row in the table, a line per cell, for the host to read: `row KIND WORD…`, free text last.
//!
//! A row is the same each time that the same kernel does the same: a result that depends on timing is printed as both values.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::report::{Case, Report};

/// Records that the agents could not hand over, by kind.
#[derive(Debug, Default)]
pub(super) struct Lost(BTreeMap<String, u64>);

impl Lost {
    pub fn take_line(&mut self, line: &Value) {
        if line["type"] == "lost" {
            let kind = line["kind"].as_str().unwrap_or("unknown").to_owned();
            *self.0.entry(kind).or_default() += line["count"].as_u64().unwrap_or(0);
        }
    }

    /// Terminations that were played again because of lost records.
    pub fn again(&mut self, terminations: u64) {
        *self.0.entry("played-again".to_owned()).or_default() += terminations;
    }

    /// Also the row's end: what was lost is known when all is played.
    pub fn print(&self) {
        for (kind, count) in &self.0 {
            println!("row lost {kind} {count}");
        }
        println!("row complete");
    }
}

pub(super) fn print(report: &Report) {
    println!("row kernel {}", report.observing["kernel"].as_str().unwrap_or("unknown"));
    for probe in report.observing["probes"].as_array().into_iter().flatten() {
        let field = |key: &str| probe[key].as_str().unwrap_or_default();
        let text = if field("by").is_empty() {
            field("reason")
        } else {
            field("by")
        };
        println!(
            "{}",
            format!("row probe {} {} {text}", field("name"), field("state")).trim_end()
        );
    }
    for case in &report.cases {
        println!("row story {} {}", case.role.story.name, verdict(case));
    }
    for (story, why) in &report.unplayable {
        println!("row unplayable {story} {why}");
    }
}

/// Headline and axes, and how refused clients were known.
fn verdict(case: &Case) -> String {
    let Some(judged) = case.judged() else {
        return "nothing was reported".to_owned();
    };
    let expected = &case.role.story.expected;
    let under_load = case
        .played
        .as_ref()
        .is_some_and(|played| played.as_ref().is_ok_and(|p| p.load.is_some()));
    if under_load && expected.traffic == "refused" && case.differs().is_empty() {
        let (cause, exit) = (expected.cause, expected.exit);
        return format!("refused-connections or reset-connections ({cause}, {exit}, refused or reset)");
    }
    let axis = |name: &str| judged[name].as_str().unwrap_or("?");
    let (cause, exit, traffic) = (axis("cause"), axis("exit"), axis("traffic"));
    let known_by = match judged["connections"]["refused_known_by"].as_str() {
        Some(source) if traffic == "refused" => format!(" known by {source}"),
        _ => String::new(),
    };
    format!("{} ({cause}, {exit}, {traffic}{known_by})", axis("verdict"))
}
