//! The objects `why` and `summary` of docs/json.md.

use epitaph_core::time::Wall;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Story;
use super::snippet::{Snippet, snippets};
use crate::history::{Counts, Group, Report};

/// A termination that is only named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Brief {
    pub time: Option<String>,
    pub trace_id: String,
    pub name: String,
    pub verdict: String,
    pub unclean: bool,
    pub severity: String,
    pub sentence: String,
}

impl Brief {
    pub fn of(report: &Report) -> Brief {
        Brief {
            time: report.end.map(|at| at.0.rfc3339()),
            trace_id: report.trace_id.to_string(),
            name: report.short_name(),
            verdict: report.verdict.to_string(),
            unclean: report.unclean,
            severity: report.severity.to_string(),
            sentence: report.sentence.to_string(),
        }
    }
}

#[derive(Serialize)]
struct WhyObject<'a> {
    r#type: &'static str,
    container: Option<usize>,
    before: BeforeObject,
    snippets: Vec<Snippet>,
    others: &'a [Brief],
    others_count: u64,
    report: &'a RawValue,
}

#[derive(Serialize)]
struct BeforeObject {
    same_verdict: u64,
    terminations: u64,
    last: Option<String>,
    since: Option<String>,
}

#[derive(Serialize)]
struct SummaryObject {
    r#type: &'static str,
    terminations: u64,
    unclean: u64,
    first: Option<String>,
    last: Option<String>,
    workloads: Vec<SummaryRow>,
    ungrouped: u64,
}

#[derive(Serialize)]
struct SummaryRow {
    workload: String,
    verdict: String,
    unclean: bool,
    severity: String,
    count: u64,
    first: Option<String>,
    last: Option<String>,
}

/// One line. The report is in it as the source has it, with the fields that this version does not know.
///
/// # Panics
/// If the found line is not JSON; it was parsed.
pub fn why_object(story: &Story) -> String {
    let found = &story.found;
    let object = WhyObject {
        r#type: "why",
        container: found.container,
        before: BeforeObject {
            same_verdict: found.same,
            terminations: found.all,
            last: time(found.last_same),
            since: time(found.since),
        },
        snippets: snippets(story.shown()),
        others: &story.others,
        others_count: story.more,
        report: serde_json::from_str(&found.line).expect("the line was parsed"),
    };
    super::list::safe(&line(&object))
}

/// One line.
pub fn summary_object(counts: &Counts) -> String {
    let rows = counts.worst_first().into_iter().map(|(group, verdict, counted)| SummaryRow {
        workload: Group::name(group),
        verdict: verdict.to_string(),
        unclean: counted.unclean,
        severity: counted.severity.to_string(),
        count: counted.count,
        first: time(counted.first),
        last: time(counted.last),
    });
    line(&SummaryObject {
        r#type: "summary",
        terminations: counts.total,
        unclean: counts.unclean,
        first: time(counts.first),
        last: time(counts.last),
        workloads: rows.collect(),
        ungrouped: counts.ungrouped,
    })
}

fn line(object: &impl Serialize) -> String {
    let mut line = serde_json::to_string(object).expect("no map has keys that are not text");
    line.push('\n');
    line
}

fn time(at: Option<Wall>) -> Option<String> {
    at.map(Wall::rfc3339)
}
