//! A story as a page for an incident.

use std::fmt::Write as _;

use epitaph_core::render::text::Style;

use super::Story;
use super::draw::draw;
use super::snippet::{Snippet, snippets};
use super::text::{ambiguous, image, missing, proof, remedies, table, title};
use super::timeline::timeline;

/// Columns of the timeline: a code block of this width fits a page.
const WIDTH: usize = 80;

pub fn markdown(story: &Story) -> String {
    let shown = story.shown();
    let mut out = format!(
        "# {}: {}\n\n{}\n",
        plain(&title(shown)),
        plain(&shown.verdict),
        plain(&shown.sentence)
    );
    if let Some(ambiguous) = ambiguous(story) {
        let _ = writeln!(out, "\n{}", plain(&ambiguous));
    }
    let _ = write!(
        out,
        "\n## Timeline\n\n```text\n{}```\n",
        draw(&timeline(shown), WIDTH, Style::Plain)
    );
    if let Some(missing) = missing(shown) {
        let _ = writeln!(out, "\n{}", plain(&missing));
    }
    let remedies = remedies(shown);
    let snippets = snippets(shown);
    if !remedies.is_empty() || !snippets.is_empty() {
        out.push_str("\n## Remedy\n");
        for remedy in remedies {
            let _ = writeln!(out, "\n{}", plain(&remedy));
        }
        for Snippet { about, language, text } in snippets {
            let _ = write!(out, "\n{}:\n\n```{language}\n{text}```\n", plain(&about));
        }
    }
    out.push_str("\n## Facts\n\n| | |\n|---|---|\n");
    if let Some(image) = image(shown) {
        let _ = writeln!(out, "| image | {} |", in_table(image));
    }
    for (name, value) in table(story) {
        let _ = writeln!(out, "| {name} | {} |", in_table(&value));
    }
    out.push_str("\n## Evidence\n\n");
    for piece in proof(shown) {
        let _ = writeln!(out, "- {}", plain(&piece));
    }
    if !story.others.is_empty() {
        let _ = write!(
            out,
            "\n## Earlier, {}\n\n| time | trace | name | verdict |\n|---|---|---|---|\n",
            story.found.by.in_common()
        );
        for other in &story.others {
            let _ = writeln!(
                out,
                "| {} | `{}` | {} | {} |",
                in_table(other.time.as_deref().unwrap_or_default()),
                in_table(&other.trace_id),
                in_table(&other.name),
                in_table(&other.verdict)
            );
        }
    }
    out
}

/// Names of processes are in the text: neither a tag nor a link nor an image comes out of them, also where an address alone is a link.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '[' => out.push_str("&#91;"),
            '@' => out.push_str("&#64;"),
            '.' if ends_with_www(&out) => out.push_str("&#46;"),
            '/' if out.ends_with(':') => {
                out.pop();
                out.push_str("&#58;/");
            }
            c => out.push(c),
        }
    }
    out
}

fn ends_with_www(text: &str) -> bool {
    let last = text.len().checked_sub(3).and_then(|at| text.get(at..));
    last.is_some_and(|last| last.eq_ignore_ascii_case("www"))
}

fn in_table(text: &str) -> String {
    plain(text).replace('|', "&#124;")
}
