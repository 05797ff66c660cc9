//! `epitaph explain`: the verdict table as a person reads it, and as `docs/verdicts.md`.

use std::fmt::Write as _;

use crate::config::settings::nearest_of;
use crate::verdict::Severity;

/// A row of the verdict table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub headline: &'static str,
    pub unclean: bool,
    pub severity: Severity,
    pub meaning: &'static str,
    pub proof: &'static str,
    pub remedy: &'static str,
}

/// There is no such verdict. Ends with [`super::SysExit::Usage`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no verdict `{}`{} `epitaph explain` lists them all", name.escape_debug(), did_you_mean(*nearest))]
pub struct UnknownVerdict {
    pub name: String,
    pub nearest: Option<&'static str>,
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or(";".to_owned(), |n| format!("; did you mean `{n}`?"))
}

/// One verdict in full, or all with a line each.
pub fn explain(table: &[Entry], verdict: Option<&str>) -> Result<String, UnknownVerdict> {
    let Some(name) = verdict else { return Ok(list(table)) };
    let Some(entry) = table.iter().find(|e| e.headline == name) else {
        // What is typed differs in case and separators as often as in letters.
        let normal = name.to_lowercase().replace(['_', ' '], "-");
        return Err(UnknownVerdict {
            name: name.to_owned(),
            nearest: nearest_of(&normal, table.iter().map(|e| e.headline)),
        });
    };
    let Entry {
        headline,
        meaning,
        proof,
        remedy,
        ..
    } = entry;
    let mut out = format!("{headline} ({}, severity {})\n", cleanliness(entry), severity(entry.severity));
    for (title, text) in [
        ("What it means", meaning),
        ("What proves it", proof),
        ("How to fix it", remedy),
    ] {
        if !text.is_empty() {
            let _ = write!(out, "\n{title}\n{}", wrap(text, 78, "  "));
        }
    }
    Ok(out)
}

fn list(table: &[Entry]) -> String {
    let width = table.iter().map(|e| e.headline.len()).max().unwrap_or(0);
    let mut out = String::new();
    for entry in table {
        let mark = if entry.unclean { '!' } else { ' ' };
        let _ = writeln!(out, "{mark} {:width$}  {}", entry.headline, first_sentence(entry.meaning));
    }
    out.push_str("\n! marks the unclean ones. `epitaph explain VERDICT` says what proves one and how to fix it.\n");
    out
}

/// The body of `docs/verdicts.md`.
pub fn markdown(table: &[Entry]) -> String {
    let mut out = String::from("| verdict | unclean | severity | in short |\n|---|---|---|---|\n");
    for e in table {
        let unclean = if e.unclean { "yes" } else { "no" };
        let name = e.headline;
        let _ = writeln!(
            out,
            "| [`{name}`](#{name}) | {unclean} | {} | {} |",
            severity(e.severity),
            first_sentence(e.meaning)
        );
    }
    for e in table {
        let _ = write!(out, "\n## {}\n\n{}\n\n**Proof.** {}\n", e.headline, e.meaning, e.proof);
        if !e.remedy.is_empty() {
            let _ = write!(out, "\n**Remedy.** {}\n", e.remedy);
        }
    }
    out
}

fn cleanliness(entry: &Entry) -> &'static str {
    if entry.unclean { "unclean" } else { "not unclean" }
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

fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        }
        out.push_str(if column == 0 { indent } else { " " });
        column += length + if column == 0 { indent.len() } else { 1 };
        out.push_str(word);
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const SAMPLE: &[Entry] = &[
        Entry {
            headline: "clean",
            unclean: false,
            severity: Severity::Info,
            meaning: "It ended in time. Nobody noticed.",
            proof: "sched_process_exit gave exit code 0.",
            remedy: "",
        },
        Entry {
            headline: "ignored-stop-signal",
            unclean: true,
            severity: Severity::Critical,
            meaning: "The stop signal reached the main process, which had no handler for it, so the kernel dropped it. \
                      It was killed at the end of the grace.",
            proof: "signal_generate with result `ignored`.",
            remedy: "Install a handler, or run an init.",
        },
    ];

    fn check(verdict: Option<&str>, expected: Expect) {
        expected.assert_eq(&explain(SAMPLE, verdict).unwrap_or_else(|e| format!("error: {e}\n")));
    }

    #[test]
    fn all_with_a_line_each() {
        check(
            None,
            expect![[r#"
              clean                It ended in time.
            ! ignored-stop-signal  The stop signal reached the main process, which had no handler for it, so the kernel dropped it.

            ! marks the unclean ones. `epitaph explain VERDICT` says what proves one and how to fix it.
        "#]],
        );
    }

    #[test]
    fn one_in_full() {
        check(
            Some("ignored-stop-signal"),
            expect![[r#"
            ignored-stop-signal (unclean, severity critical)

            What it means
              The stop signal reached the main process, which had no handler for it, so
              the kernel dropped it. It was killed at the end of the grace.

            What proves it
              signal_generate with result `ignored`.

            How to fix it
              Install a handler, or run an init.
        "#]],
        );
        check(
            Some("clean"),
            expect![[r#"
            clean (not unclean, severity info)

            What it means
              It ended in time. Nobody noticed.

            What proves it
              sched_process_exit gave exit code 0.
        "#]],
        );
    }

    #[test]
    fn an_unknown_one_names_the_nearest() {
        check(
            Some("ignored-signal"),
            expect![[r#"
                error: there is no verdict `ignored-signal`; did you mean `ignored-stop-signal`? `epitaph explain` lists them all
            "#]],
        );
        check(
            Some("IGNORED_STOP_SIGNAL"),
            expect![[r#"
                error: there is no verdict `IGNORED_STOP_SIGNAL`; did you mean `ignored-stop-signal`? `epitaph explain` lists them all
            "#]],
        );
        check(
            Some("\u{1b}[2Jx"),
            expect![[r#"
            error: there is no verdict `\u{1b}[2Jx`; `epitaph explain` lists them all
        "#]],
        );
    }
}
