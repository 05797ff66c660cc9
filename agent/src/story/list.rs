//! A line for each termination, and counts by workload.

use std::fmt::Write as _;

use epitaph_core::render::text::{Paint, Style};
use epitaph_core::time::Wall;
use epitaph_core::verdict::Severity;

use super::json::Brief;
use super::text::severity;
use super::words::{cell, columns, cut, many, moment};
use crate::history::{Counts, Group};

/// Beginning of the trace's id: enough for `epitaph why`.
const ID: usize = 8;
const NAME: usize = 26;

/// `! 2026-11-22 03:12:40 07f64948 shop/cart  ignored-stop-signal: …`; the sentence is cut to `width`, if there is one.
pub fn line(brief: &Brief, width: Option<usize>, style: Style) -> String {
    let paint = Paint(style);
    let mark = if brief.unclean { "!" } else { " " };
    let time = brief.time.as_deref().and_then(Wall::parse_rfc3339).map_or_else(String::new, moment);
    let id = brief.trace_id.get(..ID).unwrap_or(&brief.trace_id);
    // A name is what is searched for: cut only where the line is.
    let name = match width {
        Some(_) => cell(&brief.name, NAME),
        None => format!("{:NAME$}", brief.name),
    };
    let before = format!("{mark} {time:19} {id:ID$} {name} ");
    let rest = width.map_or(usize::MAX, |width| width.saturating_sub(columns(&before)).max(8));
    let verdict = cut(&brief.verdict, rest);
    let left = rest.saturating_sub(columns(&verdict));
    let sentence = cut(&format!(": {}", brief.sentence), left);
    let tone = severity(&brief.severity);
    format!(
        "{} {} {} {name} {}{sentence}\n",
        paint.severity(tone, mark),
        paint.dim(&format!("{time:19}")),
        paint.dim(&format!("{id:ID$}")),
        paint.severity(tone, &verdict),
    )
}

/// Rows of workload and verdict, the worst first.
pub fn summary(counts: &Counts, width: Option<usize>, style: Style) -> String {
    let paint = Paint(style);
    let period = match (counts.first, counts.last) {
        (Some(first), Some(last)) => format!(", {} to {} UTC", moment(first), moment(last)),
        _ => String::new(),
    };
    let mut out = format!("{}, {} unclean{period}\n", many(counts.total, "termination"), counts.unclean);
    let rows = counts.worst_first();
    if rows.is_empty() {
        return out;
    }
    let names: Vec<String> = rows.iter().map(|(group, ..)| Group::name(group)).collect();
    let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let verdict = longest(&mut rows.iter().map(|(_, verdict, _)| columns(verdict))).max(7);
    // Mark, count, verdict and time.
    let fixed = 2 + 7 + 2 + 2 + verdict + 2 + 19;
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(fixed).max(12));
    let name = longest(&mut names.iter().map(|name| columns(name))).max(8).min(room);
    let head = format!("  {:>7}  {}  {}  {}", "count", cell("workload", name), cell("verdict", verdict), "last, UTC");
    let _ = writeln!(out, "\n{}", paint.dim(&head));
    for ((_, headline, counted), workload) in rows.iter().zip(&names) {
        let tone = severity(&counted.severity);
        let mark = if counted.unclean { "!" } else { " " };
        let last = counted.last.map_or_else(String::new, moment);
        let _ = writeln!(
            out,
            "{} {:>7}  {}  {}  {last}",
            paint.severity(tone, mark),
            counted.count,
            cell(workload, name),
            paint.severity(tone, &cell(headline, verdict)),
        );
    }
    if counts.ungrouped > 0 {
        let _ = writeln!(
            out,
            "{}",
            paint.severity(
                Severity::Warning,
                &format!("{} of too many different workloads are not in the rows", many(counts.ungrouped, "termination"))
            )
        );
    }
    out
}

/// A line of JSON that is safe to print: what a terminal obeys, or what hides text, only as JSON's own escapes. The value is the same.
pub fn safe(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        let is_plain = c == '\n' || matches!(c, ' '..='~') || epitaph_core::text::bounded(c.encode_utf8(&mut [0; 4]), 4).len() == c.len_utf8();
        if is_plain {
            out.push(c);
            continue;
        }
        // Outside of strings JSON has no such characters but tabs and carriage returns.
        if matches!(c, '\t' | '\r') {
            out.push(' ');
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}
