//! `epitaph explain`: the verdict table for people, and as `docs/verdicts.md`.

mod markdown;
#[cfg(test)]
mod plays_tests;
mod probes;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod words_tests;

use std::fmt::Write as _;

use epitaph_core::observe::loss_verdict::{self, LossRow};
use epitaph_core::verdict::Severity;
use epitaph_core::verdict::held::{self, HeldRow};
use epitaph_core::verdict::judge::rules::RULES;
use epitaph_core::verdict::node::table as node;
use epitaph_core::verdict::table::{self, CAUSES, Row, TABLE, TRAFFIC, by_headline};

pub use markdown::markdown;

use super::typed::{self, Word};
use crate::config::settings::nearest_of;
use crate::error::{HasRemedy, Remedy};
use crate::sink::metrics::alerts;
use crate::source::kernel::probes::PROBES;
use epitaph_story::story::paragraph as wrap;

/// The name is not a verdict, cause or traffic value. Ends with [`super::SysExit::Usage`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{}`", name.escape_debug())]
pub struct UnknownWord {
    /// Kind of the expected name.
    pub what: &'static str,
    pub name: String,
    /// The names that may be meant.
    pub nearest: Vec<String>,
}

/// Most names in a question.
const MEANT: usize = 4;

impl UnknownWord {
    fn new<'a>(what: &'static str, name: &str, known: impl IntoIterator<Item = &'a str>) -> UnknownWord {
        // Typing mistakes are in case and separators as often as in letters.
        let normal = name.to_lowercase().replace(['_', ' '], "-");
        let known: Vec<&str> = known.into_iter().collect();
        // A part of a name is a part of several: `oom`.
        let is_part = |known: &&&str| known.split('-').any(|part| part == normal);
        let mut nearest: Vec<&str> = known.iter().filter(is_part).take(MEANT).copied().collect();
        if nearest.is_empty() {
            nearest.extend(nearest_of(&normal, known));
        }
        UnknownWord {
            what,
            name: name.to_owned(),
            nearest: nearest.into_iter().map(str::to_owned).collect(),
        }
    }
}

impl HasRemedy for UnknownWord {
    fn remedy(&self) -> Option<Remedy> {
        let did_you_mean = match self.nearest.join("` or `") {
            none if none.is_empty() => none,
            nearest => format!("did you mean `{nearest}`? "),
        };
        Some(format!("{did_you_mean}`epitaph explain` lists all of them").into())
    }
}

/// Everything with the name of these words in full (a verdict, a cause, a traffic value, what `kubectl` shows), or each word's; without
/// words, all names with one line each. `columns`: of the terminal.
pub fn explain(words: &[impl AsRef<str>], columns: Option<usize>) -> Result<String, UnknownWord> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    if words.is_empty() {
        return Ok(list(columns));
    }
    let one = |name: &str| one(name, Width(columns));
    // People paste `Exit Code: 137`, and name several verdicts.
    one(&words.join(" ")).or_else(|unknown| {
        let each: Result<Vec<String>, UnknownWord> = words.iter().map(|word| one(word)).collect();
        each.map(|each| each.join("\n")).map_err(|first| match words.len() {
            1 => unknown,
            _ if words.iter().any(|word| one(word).is_ok()) => first,
            _ => unknown,
        })
    })
}

/// Columns of the terminal; None: standard output is a file or a program.
#[derive(Clone, Copy)]
struct Width(Option<usize>);

impl Width {
    fn paragraph(self, text: &str, indent: &str) -> String {
        let width = self.0.map_or(PAGE, |columns| columns.clamp(NARROWEST + indent.len(), WIDEST));
        wrap(text, width, indent)
    }

    fn title(self, text: &str) -> String {
        entry("", text, self.0)
    }
}

fn one(name: &str, width: Width) -> Result<String, UnknownWord> {
    let row = by_headline(name)
        .map(|row| in_full(row, width))
        .or_else(|| loss_verdict::by_headline(name).map(|row| loss_in_full(row, width)))
        .or_else(|| held::by_headline(name).map(|row| held_in_full(row, width)));
    let values = axes()
        .filter(|(_, value, _)| value == name)
        .map(|(axis, _, words)| format!("{axis} {name}\n{}", width.paragraph(words, "  ")));
    let of_node = node::by_headline(name).map(|row| of_node(row, width));
    let alert = alerts::page(name).map(|page| of_alert(page, width));
    let probe = probes::in_full(name, width);
    let has_more = row.is_some() || of_node.is_some() || alert.is_some() || probe.is_some();
    let mut found: Vec<String> = row
        .into_iter()
        .chain(values)
        .chain(of_node)
        .chain(alert)
        .chain(probe)
        .collect();
    if !has_more {
        // `unknown` is a verdict, and `Unknown` a reason in a pod's status; `oom` is a cause without verdicts of its own, and `OOM` has some.
        found.extend(of_another_tool(name, width));
    }
    if found.is_empty() {
        let values: Vec<String> = axes().map(|(_, value, _)| value).collect();
        let words = typed::words().flat_map(|word| word.names).copied();
        let losses = loss_verdict::TABLE.iter().map(|row| row.headline);
        let shutdowns = node::TABLE.iter().map(|row| row.headline);
        let known = headlines()
            .chain(losses)
            .chain(held::TABLE.iter().map(|row| row.headline))
            .chain(shutdowns)
            .chain(values.iter().map(String::as_str))
            .chain(alerts::names())
            .chain(PROBES.iter().map(|probe| probe.tracepoint))
            .chain(words);
        return Err(UnknownWord::new(
            "verdict, cause, traffic value, alert, probe or reason",
            name,
            known,
        ));
    }
    Ok(found.join("\n"))
}

/// What `kubectl` or a shell shows, with the verdicts that fit.
fn of_another_tool(name: &str, page: Width) -> Option<String> {
    let (title, meaning, verdicts) = match typed::word(name) {
        Some(Word {
            names,
            meaning,
            verdicts,
        }) => (names.join(", "), (*meaning).to_owned(), *verdicts),
        None => {
            let (meaning, verdicts) = typed::other_code(name)?;
            (name.trim().to_owned(), meaning, verdicts)
        }
    };
    let width = verdicts.iter().map(|verdict| verdict.len()).max().unwrap_or(0);
    let mut out = format!(
        "{}{}\nVerdicts that fit\n",
        page.title(&title),
        page.paragraph(&meaning, "  ")
    );
    for verdict in verdicts {
        let meaning = first_sentence(meaning_of(verdict).unwrap_or_default());
        let meaning = page.paragraph(meaning, &" ".repeat(width + 4));
        let _ = write!(out, "  {verdict:width$}  {}", meaning.trim_start());
    }
    if verdicts.iter().any(|verdict| loss_verdict::by_headline(verdict).is_some()) {
        let _ = write!(
            out,
            "\nNext\n  \
             kubectl -n epitaph logs -l app.kubernetes.io/component=observer --prefix --tail=-1\n  \
             epitaph explain {}\n",
            verdicts[0]
        );
        return Some(out);
    }
    // Whoever holds a pod has an Event, and no termination.
    let (of_held, verdicts): (Vec<&str>, Vec<&str>) = verdicts.iter().partition(|verdict| held::by_headline(verdict).is_some());
    if !of_held.is_empty() {
        out.push_str("\nWhat holds a pod\n  kubectl get events -A --field-selector reason=TerminationHeld\n  epitaph explain held-by-HOLDER\n");
    }
    if verdicts.is_empty() {
        return Some(out);
    }
    // What is not unclean would be left out.
    let are_unclean = verdicts
        .iter()
        .all(|verdict| by_headline(verdict).is_some_and(|row| row.unclean));
    let filters = match verdicts.len() > 2 && are_unclean {
        true => " --unclean".to_owned(),
        false => verdicts.iter().map(|verdict| format!(" --verdict {verdict}")).collect(),
    };
    let _ = write!(
        out,
        "\nNext\n  \
         epitaph why {}    # which of them it was, with timeline and remedy\n  \
         epitaph list --since 1h{filters}\n  \
         epitaph explain {}\n",
        match verdicts.iter().all(|verdict| by_headline(verdict).is_none()) {
            true => "NODE",
            false => "POD",
        },
        verdicts[0]
    );
    Some(out)
}

/// Of a termination's verdict, of the observer's about lost nodes, or of a shutdown's.
pub(super) fn meaning_of(verdict: &str) -> Option<&'static str> {
    let of_loss = || loss_verdict::by_headline(verdict).map(|row| row.meaning);
    let of_node = || node::by_headline(verdict).map(|row| row.meaning);
    let of_held = || held::by_headline(verdict).map(|row| row.meaning);
    let of_termination = by_headline(verdict).map(|row| row.meaning);
    of_termination.or_else(of_loss).or_else(of_node).or_else(of_held)
}

/// What lists show beside verdicts: a time without the node is not judged.
const DOWN: &str = "down";

/// The verdict of a termination, or of a shutdown of the node, or `down`; not a cause or a traffic value.
pub fn verdict(name: &str) -> Result<(), UnknownWord> {
    let is_known = by_headline(name).is_some() || node::by_headline(name).is_some() || name == DOWN;
    let shutdowns = node::TABLE
        .iter()
        .map(|row| row.headline)
        .filter(|name| by_headline(name).is_none());
    let known = headlines().chain(shutdowns).chain([DOWN]);
    is_known.then_some(()).ok_or_else(|| UnknownWord::new("verdict", name, known))
}

fn headlines<'a>() -> impl Iterator<Item = &'a str> {
    TABLE.iter().map(|row| row.headline)
}

fn in_full(row: &Row, width: Width) -> String {
    let title = format!(
        "{} ({}, severity {})",
        row.headline,
        cleanliness(row.unclean),
        severity(row.severity)
    );
    paragraphs(&title, width, [&row.meaning_for_all(), row.proof, row.remedy])
}

fn loss_in_full(row: &LossRow, width: Width) -> String {
    let (unclean, severity) = (cleanliness(row.unclean), severity(row.severity));
    let title = format!(
        "{} (of lost nodes, by the observer; {unclean}, severity {severity})",
        row.headline
    );
    paragraphs(&title, width, [row.meaning, row.proof, row.remedy])
}

/// A pod that is `Terminating` although its containers have exited.
fn held_in_full(row: &HeldRow, width: Width) -> String {
    let title = format!(
        "{} (of a pod that is still Terminating although its containers have exited; severity {})",
        row.headline,
        severity(row.severity)
    );
    let mut out = paragraphs(&title, width, [row.meaning, row.proof, row.remedy]);
    let _ = write!(out, "\nWhat is not known\n{}", width.paragraph(row.unseen, "  "));
    out
}

/// As its runbook.
fn of_alert(page: &alerts::Page, width: Width) -> String {
    let title = format!("{} (an alert; docs/runbooks/{}.md)", page.alert, page.alert);
    let mut out = paragraphs(&title, width, [page.means, page.proves, ""]);
    out.push_str("\nWhat to do\n");
    for (n, step) in (1..).zip(page.to_do) {
        let text = width.paragraph(step, "     ");
        let _ = write!(out, "  {n}. {}", text.trim_start());
    }
    let _ = write!(out, "\nWhen to silence\n{}", width.paragraph(page.silence, "  "));
    // The steps send the reader to the verdict.
    let of_this = |row: &&Row| alerts::alert_of(row).is_some_and(|(alert, _)| alert == page.alert);
    for (at, row) in TABLE.iter().filter(of_this).enumerate() {
        if at == 0 {
            out.push('\n');
            out.push_str(&width.title("Its verdicts, and what to change (`epitaph explain VERDICT` has the rest)"));
        }
        let _ = write!(
            out,
            "  {} ({})\n{}",
            row.headline,
            severity(row.severity),
            width.paragraph(row.remedy, "    ")
        );
    }
    out
}

/// A verdict on a shutdown of the node.
fn of_node(row: &node::Row, width: Width) -> String {
    let title = format!(
        "shutdown of the node: {} ({}, severity {})",
        row.headline,
        cleanliness(row.unclean),
        severity(row.severity)
    );
    paragraphs(&title, width, [row.meaning, row.proof, row.remedy])
}

fn paragraphs(title: &str, width: Width, texts: [&str; 3]) -> String {
    let mut out = width.title(title);
    for (title, text) in ["What it means", "What proves it", "How to fix it"].into_iter().zip(texts) {
        if !text.is_empty() {
            let _ = write!(out, "\n{title}\n{}", width.paragraph(text, "  "));
        }
    }
    out
}

/// Axis, value, description.
fn axes() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    let causes = CAUSES.into_iter().map(|(value, words)| ("cause", table::name(value), words));
    causes.chain(
        TRAFFIC
            .into_iter()
            .map(|(value, words)| ("traffic", table::name(value), words)),
    )
}

/// Columns of a text that no terminal shows.
const PAGE: usize = 78;
/// Most columns of the list, as of other texts.
const WIDEST: usize = 100;
/// Fewest columns of a text beside its name.
const NARROWEST: usize = 24;

/// Names with their texts: whole lines for programs, such as grep; wrapped in a terminal of this many columns.
struct Names {
    width: Option<usize>,
    out: String,
}

impl Names {
    fn entry(&mut self, name: &str, text: &str) {
        self.out.push_str(&entry(name, text, self.width));
    }

    fn title(&mut self, text: &str) {
        self.out.push('\n');
        self.entry("", text);
        self.out.push('\n');
    }

    /// Each with its mark, in columns.
    fn verdicts(&mut self, rows: impl Iterator<Item = (bool, &'static str, &'static str)> + Clone) {
        let width = rows.clone().map(|(_, headline, _)| headline.len()).max().unwrap_or(0);
        for (unclean, headline, meaning) in rows {
            let mark = if unclean { '!' } else { ' ' };
            self.entry(&format!("{mark} {headline:width$}  "), first_sentence(meaning));
        }
    }
}

/// A name with its text: one line, or wrapped beside the name in a terminal of this many columns.
pub fn entry(name: &str, text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return format!("{name}{text}\n");
    };
    let indent = " ".repeat(name.len());
    let text = wrap(text, width.clamp((indent.len() + NARROWEST).min(WIDEST), WIDEST), &indent);
    format!("{name}{}", text.trim_start())
}

/// All names, a line each; in a terminal of this many columns, wrapped.
fn list(width: Option<usize>) -> String {
    let mut names = Names {
        width,
        out: String::new(),
    };
    names.verdicts(TABLE.iter().map(|row| (row.unclean, row.headline, row.meaning)));
    names.out.push('\n');
    names.entry(
        "",
        "! marks the unclean verdicts. `epitaph explain VERDICT` shows what proves a verdict and how to fix it.",
    );
    names.title("The observer's verdicts about lost nodes and their pods:");
    let losses = loss_verdict::TABLE.iter();
    names.verdicts(losses.map(|row| (row.unclean, row.headline, row.meaning)));
    names.title("What holds a pod that is still Terminating although its containers have exited:");
    names.verdicts(held::TABLE.iter().map(|row| (false, row.headline, row.meaning)));
    names.title(
        "Each verdict comes with a cause (why the container or unit terminated) and a traffic value (what clients saw):",
    );
    let width = axes().map(|(_, value, _)| value.len()).max().unwrap_or(0);
    for (axis, value, words) in axes() {
        names.entry(&format!("{axis:7}  {value:width$}  "), words);
    }
    names.title("A shutdown of the node has verdicts of its own:");
    names.verdicts(node::TABLE.iter().map(|row| (row.unclean, row.headline, row.meaning)));
    names.title("`epitaph explain` also explains what kubectl, docker, systemctl, shells, proxies and clients show:");
    typed_names(&mut names);
    names.out
}

/// What other tools show, by kind; wrapped for programs, too, because no name has a text.
fn typed_names(into: &mut Names) {
    let names = || typed::words().flat_map(|word| word.names).copied();
    let is_code = |name: &&str| name.parse::<u8>().is_ok();
    let mut codes: Vec<&str> = names().filter(is_code).collect();
    codes.sort_by_key(|code| code.parse::<u8>().ok());
    let signals: Vec<&str> = names().filter(|name| name.starts_with("SIG")).collect();
    let reasons: Vec<&str> = names()
        .filter(|name| !is_code(name) && !["SIG", "signal ", "signal:"].iter().any(|begin| name.starts_with(begin)))
        .collect();
    let probes: Vec<&str> = PROBES.iter().map(|probe| probe.tracepoint).collect();
    into.width = Some(into.width.unwrap_or(98).min(98));
    for (what, names) in [
        ("exit codes", codes),
        ("signals", signals),
        ("reasons", reasons),
        ("probes", probes),
    ] {
        into.entry(&format!("{what:12}"), &names.join(", "));
    }
}

fn cleanliness(unclean: bool) -> &'static str {
    if unclean { "unclean" } else { "not unclean" }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}
