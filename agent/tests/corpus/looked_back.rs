//! Every judgement of the corpus as `epitaph why` and `list` show it: each one is read, no line is too long, and no text is lost.
//! `epitaph list` reads each from the recording itself, too.

use std::path::Path;
use std::process::{Command, Stdio};

use epitaph_core::render::text::Style;
use epitaph_story::history::{Counts, Found, Match, Report, Search, Subject, Wanted};
use epitaph_story::story::{self, Brief, Columns, List, Story};
use serde_json::Value;

/// What is wrong with one of the objects of the recording's replay.
pub fn check(recording: &Path, objects: &[Value]) -> Result<(), String> {
    let of = |kinds: &[&str]| -> Vec<&Value> {
        let is_one = |object: &&Value| kinds.iter().any(|kind| object["type"] == *kind);
        objects.iter().filter(is_one).collect()
    };
    let listed_kinds = ["termination", "pod-termination", "node-shutdown", "node-down"];
    if listed(recording)?.iter().ne(of(&listed_kinds)) {
        return Err("`epitaph list --from` differs from `epitaph replay`".to_owned());
    }
    let terminations = of(&["termination", "pod-termination"]);
    for object in terminations {
        let line = object.to_string();
        let report: Report = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
        found_by_its_trace(object, &report, &line)?;
        words_of_its_subject(&report)?;
        // A container of a pod is shown alone, too.
        for container in std::iter::once(None).chain((0..report.containers.len()).map(Some)) {
            shown(&line, container)?;
        }
    }
    Ok(())
}

fn listed(recording: &Path) -> Result<Vec<Value>, String> {
    let list = Command::new(env!("CARGO_BIN_EXE_epitaph"))
        .args(["list", "--output", "json", "--from"])
        .arg(recording)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("epitaph list: {error}"))?;
    let objects = String::from_utf8_lossy(&list.stdout);
    match list.status.success() {
        true => objects
            .lines()
            .map(|line| serde_json::from_str(line).map_err(|error| format!("{error}: {line}")))
            .collect(),
        false => Err(format!("epitaph list: {}", String::from_utf8_lossy(&list.stderr))),
    }
}

fn found_by_its_trace(object: &Value, report: &Report, line: &str) -> Result<(), String> {
    let trace = object["trace_id"].as_str().ok_or("no trace_id")?;
    let mut search = Search::new(Wanted::new(&trace[..12]));
    search.look(report, line, &Counts::default(), Brief::of);
    search.finish().map(drop).ok_or_else(|| format!("not found by {trace}"))
}

/// What is advised can be followed: a container outside of Kubernetes has no pod's settings, a unit is not one container of several.
fn words_of_its_subject(report: &Report) -> Result<(), String> {
    let foreign: &[&str] = match &report.subject {
        Some(Subject::Unit { .. }) => &[POD_WORDS, &["each container"]].concat(),
        _ if report.pod().is_none() && !report.is_in_pod() => POD_WORDS,
        _ => return Ok(()),
    };
    let advice = report.advice.iter().map(|advice| &advice.text);
    let texts = std::iter::once(&report.sentence).chain(&report.remedy).chain(advice);
    for text in texts {
        if let Some(word) = foreign.iter().find(|word| text.contains(**word)) {
            return Err(format!(
                "`{word}` of a subject that is not of a pod, or of a unit: {}",
                &**text
            ));
        }
    }
    Ok(())
}

const POD_WORDS: &[&str] = &["preStop", "of the pod", "terminationGrace", "kubectl"];

fn shown(line: &str, container: Option<usize>) -> Result<(), String> {
    let report: Report = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let mut counts = Counts::default();
    counts.add(&report);
    let brief = Brief::of(&report);
    let story = Story {
        ahead: 0,
        program: "epitaph",
        others: vec![brief.clone()],
        more: 1,
        found: Found {
            line: line.to_owned(),
            by: Match::Name,
            end: report.end.map(|at| at.0),
            container,
            same: 1,
            all: 3,
            last_same: report.end.map(|at| at.0),
            since: report.end.map(|at| at.0),
        },
        report,
    };
    let shown = story.shown();
    let text = story::text(&story, Columns(80), Style::Plain, true);
    let page = [
        text.clone(),
        story::summary(&counts, Some(80), Style::Plain),
        List::new(Some(80), Style::Plain).line(&brief),
    ]
    .concat();
    if let Some(long) = page.lines().find(|line| line.chars().count() > 80) {
        return Err(format!("more than 80 columns: {long}"));
    }
    // Wrapped, and long words broken.
    let words = |text: &str| text.split_whitespace().collect::<String>();
    if !words(&text).contains(&words(&shown.sentence)) {
        return Err(format!("not the whole sentence `{}` in\n{text}", &*shown.sentence));
    }
    if !story::markdown(&story).contains("## Timeline") {
        return Err("no timeline".to_owned());
    }
    let object: Value = serde_json::from_str(&story::why_object(&story)).map_err(|error| error.to_string())?;
    match object["report"]["type"].is_string() {
        true => Ok(()),
        false => Err(format!("no report in {object}")),
    }
}
