//! Findings for people, and for scripts.

use epitaph_core::render::text::escape;
use serde::Serialize;

use super::{Finding, Status, code};

/// A line per finding, its remedy below it.
pub fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut out = String::new();
    for finding in findings {
        let line = format!("{:<7}  {:<width$}  ", finding.status.word(), finding.check);
        out.push_str(&format!("{line}{}\n", escape(&finding.message)));
        if let Some(remedy) = &finding.remedy {
            let indent = " ".repeat(line.len());
            out.push_str(&format!("{indent}remedy: {}\n", escape(remedy)));
        }
    }
    let problems = findings.iter().filter(|f| matches!(f.status, Status::Problem(_))).count();
    out.push_str(&match problems {
        0 => "this machine can be observed\n".to_owned(),
        1 => "1 problem: this machine cannot be observed as it is\n".to_owned(),
        many => format!("{many} problems: this machine cannot be observed as it is\n"),
    });
    out
}

/// One object on one line; docs/doctor.md describes it.
pub fn json(findings: &[Finding]) -> String {
    let object = Object {
        r#type: "doctor",
        exit_code: code(findings) as u8,
        findings: findings
            .iter()
            .map(|finding| Item {
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
    check: &'f str,
    status: &'static str,
    message: String,
    remedy: Option<String>,
}
