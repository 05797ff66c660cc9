//! The objects `why` and `summary` of docs/json.md.

use std::io::{self, Write};

use epitaph_core::time::Wall;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::Story;
use super::snippet::{Snippet, snippets};
use crate::history::{Counts, Group, Match, Report};

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
    /// What kubectl shows of the exit, where the kernel recorded something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubectl: Option<String>,
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
            kubectl: report.disagreement().map(|of| of.status.to_string()),
        }
    }
}

#[derive(Serialize)]
struct WhyObject<'a> {
    r#type: &'static str,
    matched: Match,
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
struct SummaryObject<'a> {
    r#type: &'static str,
    terminations: u64,
    unclean: u64,
    unknown: u64,
    first: Option<String>,
    last: Option<String>,
    workloads: Workloads<'a>,
    ungrouped: u64,
    ungrouped_unclean: u64,
}

/// Written one by one: the rows of a full journal are megabytes.
struct Workloads<'a>(&'a Counts);

impl Serialize for Workloads<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let rows = self.0.worst_first().into_iter();
        to.collect_seq(rows.map(|(group, verdict, counted)| SummaryRow {
            workload: Group::name(group),
            verdict,
            unclean: counted.unclean,
            severity: &counted.severity,
            count: counted.count,
            first: time(counted.first),
            last: time(counted.last),
        }))
    }
}

#[derive(Serialize)]
struct SummaryRow<'a> {
    workload: String,
    verdict: &'a str,
    unclean: bool,
    severity: &'a str,
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
        matched: found.by,
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
///
/// # Errors
/// Of `out`.
pub fn summary_object(counts: &Counts, mut out: impl Write) -> io::Result<()> {
    let object = SummaryObject {
        r#type: "summary",
        terminations: counts.total,
        unclean: counts.unclean,
        unknown: counts.unknown,
        first: time(counts.first),
        last: time(counts.last),
        workloads: Workloads(counts),
        ungrouped: counts.ungrouped,
        ungrouped_unclean: counts.ungrouped_unclean,
    };
    serde_json::to_writer(&mut out, &object)?;
    out.write_all(b"\n")
}

fn line(object: &impl Serialize) -> String {
    let mut line = serde_json::to_string(object).expect("no map has keys that are not text");
    line.push('\n');
    line
}

fn time(at: Option<Wall>) -> Option<String> {
    at.map(Wall::rfc3339)
}
