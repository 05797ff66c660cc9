//! Durations and wrapped paragraphs.

use std::time::Duration;

use epitaph_core::time::Wall;
use textwrap::{Options, WordSplitter, WrapAlgorithm};

/// In seven columns at most: `0 s`, `2.3 ms`, `120 ms`, `32.3 s`, `12m30s`, `3h05m`, `12d03h`.
pub fn short(d: Duration) -> String {
    // To the nearest second, as sentences have it.
    let seconds = d.saturating_add(Duration::from_millis(500)).as_secs();
    match d.as_micros() {
        0 => "0 s".to_owned(),
        us @ 1..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..999_500 => format!("{} ms", (d.as_micros() + 500) / 1_000),
        999_500..99_950_000 => format!("{:.1} s", d.as_secs_f64()),
        _ if seconds < 6_000 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ if seconds < 100 * 3_600 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ if seconds < 1_000 * 86_400 => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
        _ => "> 999d".to_owned(),
    }
}

/// A setting: `30 s`, without digits where it is whole.
pub fn setting(millis: f64) -> String {
    let d = duration(millis);
    if d.subsec_nanos() == 0 {
        format!("{} s", d.as_secs())
    } else {
        short(d)
    }
}

/// Zero where the number is not one.
pub fn duration(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1e3).unwrap_or_default()
}

pub fn between(from: Wall, to: Wall) -> Duration {
    Duration::from_nanos(to.0.saturating_sub(from.0))
}

/// `2026-11-22 03:12:09`, UTC.
pub fn moment(at: Wall) -> String {
    let text = at.rfc3339_millis();
    format!("{} {}", &text[..10], &text[11..19])
}

/// `2026-11-22 05:12:09 +02:00`. `ahead`: of UTC, seconds.
pub fn local_moment(at: Wall, ahead: i64) -> String {
    let there = at.0.saturating_add_signed(ahead.saturating_mul(1_000_000_000));
    let sign = if ahead < 0 { '-' } else { '+' };
    let minutes = ahead.unsigned_abs() / 60;
    format!("{} {sign}{:02}:{:02}", moment(Wall(there)), minutes / 60, minutes % 60)
}

/// `3 connections`.
pub fn many(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Lines of at most `width` columns. A longer word is broken; a hyphen is not a place to break, nor the space before a unit.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    hanging(text, width, "")
}

/// As [`wrapped`], with `indent` before each line but the first.
pub fn hanging(text: &str, width: usize, indent: &str) -> Vec<String> {
    const UNITS: [&str; 2] = [" s", " ms"];
    let options = Options::new(width.max(1))
        .subsequent_indent(indent)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    // For the time of the wrapping no space.
    let mut joined = text.to_owned();
    for unit in UNITS {
        for after in [",", ":", ";", ".", ")", " "] {
            for digit in '0'..='9' {
                let whole = format!("{digit}{unit}{after}");
                joined = joined.replace(&whole, &whole.replacen(' ', "\u{a0}", 1));
            }
        }
    }
    let lines = textwrap::wrap(&joined, options).into_iter();
    lines.map(|line| line.trim_end().replace('\u{a0}', " ")).collect()
}

/// A paragraph, each line after `indent`.
pub fn paragraph(text: &str, width: usize, indent: &str) -> String {
    let lines = wrapped(text, width.saturating_sub(columns(indent)));
    lines.into_iter().map(|line| format!("{indent}{line}\n")).collect()
}

pub fn columns(text: &str) -> usize {
    textwrap::core::display_width(text)
}

/// Cut to `width` columns, with `…` at the end of a text that was cut.
pub fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = columns(c.encode_utf8(&mut [0; 4]));
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        out.push(c);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Cut to `width` columns in the middle, with `…` there: two pods of a workload differ at the end of their names.
pub fn cut_middle(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else {
        return String::new();
    };
    let last = room * 2 / 3;
    let begin: String = fitting(text.chars(), room - last).collect();
    let mut end: Vec<char> = fitting(text.chars().rev(), last).collect();
    end.reverse();
    format!("{begin}…{}", end.into_iter().collect::<String>())
}

fn fitting(chars: impl Iterator<Item = char>, width: usize) -> impl Iterator<Item = char> {
    chars.scan(0, move |used, c| {
        *used += columns(c.encode_utf8(&mut [0; 4]));
        (*used <= width).then_some(c)
    })
}

/// Cut to `width` columns and filled up with spaces.
pub fn cell(text: &str, width: usize) -> String {
    let text = cut(text, width);
    let fill = width.saturating_sub(columns(&text));
    format!("{text}{}", " ".repeat(fill))
}
