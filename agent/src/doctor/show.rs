//! Findings for people, and for scripts.

use epitaph_core::text::escape;
use serde::Serialize;

use super::{Finding, Status, Topic, code};
use crate::cli::explain::entry;

/// A line per finding, its remedy below it; wrapped in a terminal of this many columns.
pub fn text(findings: &[Finding], columns: Option<usize>) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut out = String::new();
    for finding in findings {
        let line = format!("{:<7}  {:<width$}  ", finding.status.word(), finding.check);
        out.push_str(&entry(&line, &escape(&finding.message), columns));
        if let Some(remedy) = &finding.remedy {
            let remedy = format!("remedy: {}", escape(remedy));
            out.push_str(&entry(&" ".repeat(line.len()), &remedy, columns));
        }
    }
    for conclude in [journal, shutdown, observation] {
        if let Some(line) = conclude(findings) {
            out.push_str(&entry("", &line, columns));
        }
    }
    out
}

/// Problems and checks that were not possible; None without a finding of that topic.
fn counts(findings: &[Finding], topic: Topic) -> Option<(usize, usize)> {
    let mut of_topic = findings.iter().filter(|finding| finding.topic == topic).peekable();
    of_topic.peek()?;
    Some(of_topic.fold((0, 0), |(problems, unknown), finding| match finding.status {
        Status::Problem(_) => (problems + 1, unknown),
        Status::Unknown => (problems, unknown + 1),
        Status::Ok | Status::Note => (problems, unknown),
    }))
}

fn several(count: usize, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

fn observation(findings: &[Finding]) -> Option<String> {
    let (problems, _) = counts(findings, Topic::Observation)?;
    Some(match problems {
        0 => "this machine can be observed".to_owned(),
        some => format!("{}: this machine cannot be observed as it is", several(some, "problem")),
    })
}

/// None without a problem.
fn journal(findings: &[Finding]) -> Option<String> {
    let (problems, _) = counts(findings, Topic::Journal)?;
    (problems > 0).then(|| {
        format!(
            "{}: the agent here would keep no journal, or none over a reboot",
            several(problems, "problem")
        )
    })
}

/// None where nothing is to be protected, or nothing was asked.
fn shutdown(findings: &[Finding]) -> Option<String> {
    let is_node =
        |finding: &Finding| finding.topic == Topic::Shutdown && finding.check == "kubelet" && finding.status != Status::Note;
    if !findings.iter().any(is_node) {
        return None;
    }
    let (problems, unknown) = counts(findings, Topic::Shutdown)?;
    Some(match (problems, unknown) {
        (0, 0) => "this node would shut its pods down gracefully".to_owned(),
        (0, unknown) => format!(
            "nothing wrong was found, and {}: whether this node would shut its pods down gracefully is not known",
            match unknown {
                1 => "1 check was not possible".to_owned(),
                many => format!("{many} checks were not possible"),
            }
        ),
        (some, _) => format!(
            "{}: this node would not shut its pods down gracefully",
            several(some, "problem")
        ),
    })
}

/// One object on one line; docs/doctor.md describes it.
pub fn json(findings: &[Finding]) -> String {
    let object = Object {
        r#type: "doctor",
        exit_code: code(findings) as u8,
        findings: findings
            .iter()
            .map(|finding| Item {
                topic: finding.topic.name(),
                check: &finding.check,
                status: finding.status.word(),
                message: escape(&finding.message),
                remedy: finding.remedy.as_deref().map(escape),
            })
            .collect(),
    };
    let mut line = serde_json::to_string(&object).expect("strings and numbers have a form in JSON");
    line.push('\n');
    line
}

#[derive(Serialize)]
struct Object<'f> {
    r#type: &'static str,
    exit_code: u8,
    findings: Vec<Item<'f>>,
}

#[derive(Serialize)]
struct Item<'f> {
    topic: &'static str,
    check: &'f str,
    status: &'static str,
    message: String,
    remedy: Option<String>,
}
