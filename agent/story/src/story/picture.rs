//! A story as a picture: the text of a terminal, in its colours, as SVG.

use std::fmt::Write as _;

use epitaph_core::render::text::Style;

use super::Story;
use super::text::{Columns, text};
use super::words::columns;

/// Columns: a picture of this width is readable in a page.
const WIDTH: usize = 80;
/// Of a character, and of a line, in units of the picture.
const ADVANCE: f64 = 8.0;
const LINE: usize = 18;
const MARGIN: usize = 16;

/// As GitHub's dark pages: readable on a light page, too.
const BACKGROUND: &str = "#0d1117";
const TEXT: &str = "#e6edf3";

/// Escape sequence and its end.
const BEGIN: &str = "\u{1b}[";

pub fn picture(story: &Story) -> String {
    let text = text(story, Columns(WIDTH), Style::Color, false);
    let lines: Vec<&str> = text.lines().collect();
    let widest = lines
        .iter()
        .map(|line| runs(line).iter().map(|run| columns(run.1)).sum::<usize>());
    let width = widest.max().unwrap_or_default() * ADVANCE as usize + 2 * MARGIN;
    let height = lines.len() * LINE + 2 * MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>epitaph why</title>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n<g fill=\"{TEXT}\" font-size=\"13\" \
         font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" xml:space=\"preserve\">\n"
    );
    for (at, line) in lines.iter().enumerate() {
        let y = MARGIN + LINE * at + LINE * 3 / 4;
        let mut column = 0;
        for (code, part) in runs(line) {
            let size = columns(part);
            // Each run has its own place and length: a reader's font has another advance.
            if !part.trim().is_empty() {
                let (x, length) = (MARGIN as f64 + column as f64 * ADVANCE, size as f64 * ADVANCE);
                let _ = writeln!(
                    out,
                    "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\"{}>{}</text>",
                    paint(code),
                    escaped(part)
                );
            }
            column += size;
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

/// The parts of a line with the code that is in force in each: `epitaph_core::render::text::Paint` makes no nested ones.
fn runs(line: &str) -> Vec<(&str, &str)> {
    let mut parts = line.split(BEGIN);
    let first = parts.next().unwrap_or_default();
    let mut runs = vec![("0", first)];
    runs.extend(parts.map(|part| part.split_once('m').unwrap_or(("0", part))));
    runs.retain(|(_, text)| !text.is_empty());
    runs
}

fn paint(code: &str) -> &'static str {
    match code {
        "1" => " font-weight=\"bold\"",
        "2" => " fill=\"#8b949e\"",
        "31" => " fill=\"#ff7b72\"",
        "32" => " fill=\"#7ee787\"",
        "33" => " fill=\"#e3b341\"",
        _ => "",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
