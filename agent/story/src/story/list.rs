//! A line for each termination, and counts by workload.

use std::fmt::Write as _;

use epitaph_core::render::text::{Paint, Style};
use epitaph_core::time::Wall;
use epitaph_core::verdict::Severity;

use super::json::Brief;
use super::text::severity;
use super::words::{cell, columns, cut, cut_middle, local_moment, many, moment, paragraph};
use crate::history::{Counts, Group};

/// Beginning of the trace's id: enough for `epitaph why`.
const ID: usize = 8;
const NAME: usize = 32;
/// The longest verdict, and the beginning of a sentence.
const VERDICT: usize = 24;
/// Of what kubectl shows: its longest reason without a code.
const KUBECTL: usize = 22;

/// Lines of a list, in a terminal with the date where it changes: the sentence needs the room.
#[derive(Debug)]
pub struct List {
    /// Columns of the terminal.
    width: Option<usize>,
    style: Style,
    /// Of the last line with a date: the date, and how far the reader's clocks were ahead.
    day: (String, i64),
    /// Of the columns, in a terminal, before the first line.
    has_header: bool,
    /// With the column of what kubectl shows.
    is_wide: bool,
    /// Seconds by which the reader's clocks are ahead of UTC at a time.
    ahead: fn(Wall) -> i64,
}

impl List {
    pub fn new(width: Option<usize>, style: Style) -> List {
        List {
            width,
            style,
            day: (String::new(), 0),
            has_header: false,
            is_wide: false,
            ahead: |_| 0,
        }
    }

    /// With the reader's own time beside each date.
    #[must_use]
    pub fn with_local_time(self, ahead: fn(Wall) -> i64) -> List {
        List { ahead, ..self }
    }

    /// With a column of what kubectl shows of an exit, where the kernel recorded something else.
    #[must_use]
    pub fn wide(self, is_wide: bool) -> List {
        List { is_wide, ..self }
    }

    /// With a line above that names the columns, where people read.
    #[must_use]
    pub fn with_header(self) -> List {
        List {
            has_header: self.width.is_some(),
            ..self
        }
    }

    /// `! 03:12:40 07f64948 shop/cart  ignored-stop-signal: …`, cut to the terminal. Elsewhere whole, and with the date.
    pub fn line(&mut self, brief: &Brief) -> String {
        let paint = Paint(self.style);
        let mut out = String::new();
        let end = brief.time.as_deref().and_then(Wall::parse_rfc3339);
        let at = end.map_or_else(String::new, moment);
        let (day, clock) = at.split_at_checked(10).unwrap_or(("", ""));
        let mark = if brief.unclean { "!" } else { " " };
        let id = brief.trace_id.get(..ID).unwrap_or(&brief.trace_id);
        let kubectl = match self.is_wide {
            true => cell(brief.kubectl.as_deref().unwrap_or("-"), KUBECTL) + " ",
            false => String::new(),
        };
        let (time, name, rest) = match self.width {
            Some(width) => {
                let fixed = 2 + 9 + ID + 1 + columns(&kubectl);
                // Name and verdict distinguish; the sentence has what is left.
                let name = width.saturating_sub(fixed + 1 + VERDICT).clamp(8, NAME);
                if std::mem::take(&mut self.has_header) {
                    let shows = match self.is_wide {
                        true => cell("kubectl shows", KUBECTL) + " ",
                        false => String::new(),
                    };
                    let header = format!(
                        "  {:8} {:ID$} {} {shows}verdict: sentence",
                        "time",
                        "trace",
                        cell("name", name)
                    );
                    let _ = writeln!(out, "{}", paint.dim(&cut(&header, width)));
                }
                let ahead = end.map_or(0, self.ahead);
                // The reader's clocks may be set within a day: at the begin and the end of summer time.
                let is_same_day = self.day.0 == day;
                if !is_same_day || self.day.1 != ahead {
                    self.day = (day.to_owned(), ahead);
                    // For readers in UTC there is nothing to say, but at the end of their summer time.
                    let has_other = ahead != 0 || is_same_day;
                    let here = end
                        .filter(|_| has_other)
                        .map_or_else(String::new, |end| here(end, ahead, (day, clock.trim_start())));
                    let _ = writeln!(out, "{}", paint.dim(&cut(&format!("{day} UTC{here}"), width)));
                }
                let rest = width.saturating_sub(fixed + name + 1).max(8);
                (
                    format!("{:8}", clock.trim_start()),
                    cell(&cut_middle(&brief.name, name), name),
                    rest,
                )
            }
            None => {
                let zone = if at.is_empty() { "" } else { "Z" };
                (format!("{:20}", at + zone), format!("{:NAME$}", brief.name), usize::MAX)
            }
        };
        let tone = severity(&brief.severity);
        let verdict = cut(&brief.verdict, rest);
        let sentence = cut(&format!(": {}", brief.sentence), rest.saturating_sub(columns(&verdict)));
        let _ = writeln!(
            out,
            "{} {} {} {name} {kubectl}{}{sentence}",
            paint.severity(tone, mark),
            paint.dim(&time),
            paint.dim(&format!("{id:ID$}")),
            paint.severity(tone, &verdict),
        );
        out
    }
}

/// ` (23:30:15 is 2026-01-03 01:30:15 +02:00 here)`, without a date that is the same.
fn here(at: Wall, ahead: i64, (day, clock): (&str, &str)) -> String {
    let here = local_moment(at, ahead);
    let here = here.strip_prefix(day).unwrap_or(&here).trim_start();
    format!(" ({clock} is {here} here)")
}

/// Rows of workload and verdict, the worst first.
pub fn summary(counts: &Counts, width: Option<usize>, style: Style) -> String {
    let paint = Paint(style);
    let period = match (counts.first, counts.last) {
        (Some(first), Some(last)) => format!(", {} to {} UTC", moment(first), moment(last)),
        _ => String::new(),
    };
    let unknown = match counts.unknown {
        0 => String::new(),
        some => format!(", {some} unknown"),
    };
    let head = format!(
        "{}, {} unclean{unknown}{period}",
        many(counts.total, "termination"),
        counts.unclean
    );
    let mut out = match width {
        Some(width) => paragraph(&head, width, ""),
        None => format!("{head}\n"),
    };
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
    let titles = format!(
        "  {:>7}  {}  {}  {}",
        "count",
        cell("workload", name),
        cell("verdict", verdict),
        "last, UTC"
    );
    let _ = writeln!(out, "\n{}", paint.dim(&titles));
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
                &format!(
                    "not in the rows, and not worse: {} ({} unclean) of other workloads or of none",
                    many(counts.ungrouped, "termination"),
                    counts.ungrouped_unclean
                )
            )
        );
    }
    out
}

/// What a list of unclean terminations leaves out, of what may have harmed clients all the same.
#[derive(Debug, Default)]
pub struct Hidden {
    unknown: u64,
    undecided: u64,
    unobserved: u64,
}

impl Hidden {
    /// The verdicts that are counted.
    pub const VERDICTS: [&str; 3] = [UNKNOWN, UNDECIDED, UNOBSERVED];

    pub fn add(&mut self, verdict: &str) {
        self.unknown += u64::from(verdict == UNKNOWN);
        self.undecided += u64::from(verdict == UNDECIDED);
        self.unobserved += u64::from(verdict == UNOBSERVED);
    }

    /// None if it leaves out nothing of that kind. `filter`: before a verdict, the argument that shows its terminations.
    pub fn text(&self, filter: &str) -> Option<String> {
        let have = |count: u64, verdict: &str, may: &str| {
            let have = if count == 1 { "has" } else { "have" };
            let text = format!(
                "{} of this time {have} the verdict {verdict} and may {may}",
                many(count, "termination")
            );
            (count > 0).then_some((text, format!("`{filter}{verdict}`")))
        };
        let (texts, filters): (Vec<String>, Vec<String>) = [
            have(self.unknown, UNKNOWN, "have been unclean"),
            have(self.undecided, UNDECIDED, "have cut requests off"),
            have(self.unobserved, UNOBSERVED, "have lost requests: what clients saw is unknown"),
        ]
        .into_iter()
        .flatten()
        .unzip();
        (!texts.is_empty()).then(|| {
            format!(
                "not shown: {}; give {} instead of `--unclean`",
                texts.join("; "),
                filters.join(" or ")
            )
        })
    }
}

const UNKNOWN: &str = "unknown";
const UNDECIDED: &str = "undecided-connections";
/// A clean exit with unknown traffic.
const UNOBSERVED: &str = "clean-exit";

/// A line of JSON that is safe to print: what a terminal obeys, or what hides text, only as JSON's own escapes. The value is the same.
pub fn safe(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        let is_plain = c == '\n'
            || matches!(c, ' '..='~')
            || epitaph_core::text::bounded(c.encode_utf8(&mut [0; 4]), 4).len() == c.len_utf8();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_unclean_ones_names_what_it_leaves_out() {
        let text = |verdicts: &[&str]| {
            let mut hidden = Hidden::default();
            for verdict in verdicts {
                hidden.add(verdict);
            }
            hidden.text("--verdict ")
        };
        assert_eq!(
            text(&["clean", "clean-exit", "clean-exit"]).as_deref(),
            Some(
                "not shown: 2 terminations of this time have the verdict clean-exit and may have lost requests: what clients saw is \
                 unknown; give `--verdict clean-exit` instead of `--unclean`"
            )
        );
        assert_eq!(text(&["clean"]), None);
    }
}
