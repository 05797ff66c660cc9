//! What is printed: tables as kubectl's, objects as JSON and YAML, colours.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use epitaph_core::render::text::Style;
use epitaph_core::text::bounded;
use epitaph_core::time::Wall;
use epitaph_story::color::Color;
use epitaph_story::story::columns;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cluster::Kind;
use crate::failure::Failure;

/// Columns of a page where there is no terminal, and most of them.
const PAGE: usize = 80;
const WIDEST: usize = 100;

/// To standard output. A closed pipe (`| head`) is not a failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// What was to be printed is, or its reader is gone.
pub fn printed(done: io::Result<()>) -> Result<(), Failure> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Columns of the terminal; None where standard output is none.
pub fn terminal() -> Option<usize> {
    io::stdout()
        .is_terminal()
        .then(|| terminal_size::terminal_size().map_or(PAGE, |(width, _)| width.0.into()))
}

pub fn page() -> usize {
    terminal().map_or(PAGE, |columns| columns.clamp(40, WIDEST))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the conventions of terminals, read where colours are decided"
)]
pub fn style(color: Color) -> Style {
    color.style(io::stdout().is_terminal(), |name| std::env::var(name).ok())
}

/// As kubectl prints tables: the widest cell of each column and three spaces.
pub fn table(titles: Option<&[&str]>, rows: &[Vec<String>]) -> String {
    let titles = titles.map(|titles| titles.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>());
    // Whoever may write an object may write any text in it.
    let safe = |row: &Vec<String>| row.iter().map(|cell| bounded(cell, 2048).into_owned()).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = titles.iter().chain(rows).map(safe).collect();
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|at| {
            lines
                .iter()
                .filter_map(|line| line.get(at))
                .map(|cell| columns(cell))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for line in &lines {
        let mut text = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(cell);
            text.push_str(&" ".repeat(width - columns(cell) + 3));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// As kubectl prints ages: `12s`, `5m10s`, `3h`, `2d3h`.
pub fn age(since: Duration) -> String {
    let seconds = since.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |first: u64, unit: &str, second: u64, small: &str| match second {
        0 => format!("{first}{unit}"),
        second => format!("{first}{unit}{second}{small}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

pub fn age_of(at: Option<Wall>, now: Wall) -> String {
    at.map_or_else(
        || "<unknown>".to_owned(),
        |at| age(Duration::from_nanos(now.0.saturating_sub(at.0))),
    )
}

/// The objects as one list, as `kubectl get -o json` prints them.
pub fn list(kind: Kind, objects: impl IntoIterator<Item = DynamicObject>) -> Value {
    let items: Vec<Value> = objects.into_iter().map(|of| object(kind, of)).collect();
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

/// Without who managed which field, as kubectl. Objects of a list have no kind of their own.
pub fn object(kind: Kind, mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    let mut value = serde_json::to_value(&object).unwrap_or_default();
    let types = kind.types();
    value["apiVersion"] = types.0.into();
    value["kind"] = types.1.into();
    value
}

pub fn names(kind: Kind, objects: impl IntoIterator<Item = DynamicObject>) -> String {
    let names = objects.into_iter().filter_map(|object| object.metadata.name);
    names.map(|name| named(kind, &name)).collect()
}

/// As kubectl's `-o name`.
pub fn named(kind: Kind, name: &str) -> String {
    format!("{}/{}\n", kind.full_name(), bounded(name, 253))
}

/// Indented, with an end of the line; what a terminal obeys only as JSON's own escapes.
pub fn json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    Ok(epitaph_story::story::safe(&text) + "\n")
}

/// As JSON, which is YAML too, where there is a character that a terminal obeys: YAML has other escapes.
pub fn yaml(value: &impl Serialize) -> Result<String, Failure> {
    let mut text = serde_saphyr::to_string(value).map_err(|error| Failure::new(format!("cannot write YAML: {error}")))?;
    if epitaph_story::story::safe(&text) != text {
        return json(value);
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_kubectl_s() {
        let ages = [
            0, 119, 120, 310, 599, 600, 10_799, 10_800, 12_000, 28_800, 172_799, 180_000, 691_200,
        ];
        let shown = ages.map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(
            shown,
            [
                "0s", "119s", "2m", "5m10s", "9m59s", "10m", "179m", "3h", "3h20m", "8h", "47h", "2d2h", "8d"
            ]
        );
    }

    #[test]
    fn objects_have_no_control_character_and_the_same_value() {
        for text in [
            "\u{1b}[31mred",
            "\u{9b}31mred",
            "a\u{202e}b",
            "a\rb",
            "a\tb",
            "a\u{7f}b",
            "plain: 'yes'",
            "two\nlines",
            "日本",
        ] {
            let value = json!({"sentence": text, "list": [text]});
            for out in [json(&value), yaml(&value)] {
                let out = out.expect("written");
                let obeyed = out
                    .chars()
                    .find(|c| c.is_control() && *c != '\n' || ('\u{202a}'..='\u{202e}').contains(c));
                assert_eq!(obeyed, None, "{out:?}");
            }
            let written = json(&value).expect("written");
            assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), value);
        }
        assert_eq!(yaml(&json!({"a": "b"})).expect("written"), "a: b\n");
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells_and_shows_no_control_character() {
        let rows = [
            vec!["a".to_owned(), "\u{1b}[31mred".to_owned()],
            vec!["longer".to_owned(), String::new()],
        ];
        let text = table(Some(&["NAME", "VERDICT"]), &rows);
        assert_eq!(text, "NAME     VERDICT\na        \\u{1b}[31mred\nlonger\n");
    }
}
