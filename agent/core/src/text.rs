//! Text from outside (processes, pods, servers): escaped and bounded; and patterns for it. Pure.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Write as _;

/// Escapes control and invisible characters; systemd's own `\x2d` stays as it is. Cut after `max` bytes, with `…`.
pub fn bounded(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max && text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len().min(max) + 8);
    for (at, c) in text.char_indices() {
        if at + c.len_utf8() > max {
            out.push('…');
            break;
        }
        if is_plain(c) {
            out.push(c);
        } else {
            let _ = write!(out, "{}", c.escape_unicode());
        }
    }
    Cow::Owned(out)
}

/// Safe for a terminal, at any length: as [`bounded`], and a line break is `\n`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
    }
    out
}

/// An error and its causes, in one line, without repetitions.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&error| error.source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// The first characters of `text` that fit into `bytes`, unchanged.
pub fn head(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The last characters of `text` that fit into `bytes`, unchanged.
pub fn tail(text: &str, bytes: usize) -> &str {
    let begin = (text.len().saturating_sub(bytes)..=text.len()).find(|&begin| text.is_char_boundary(begin));
    &text[begin.unwrap_or(text.len())..]
}

/// Whether a pattern names a unit. As in systemctl: a name without a suffix means the service.
pub fn unit_matches(pattern: &str, name: &str) -> bool {
    glob(pattern.as_bytes(), name.as_bytes())
        || (!pattern.contains('.') && glob(format!("{pattern}.service").as_bytes(), name.as_bytes()))
}

/// `*` is any bytes, `?` one byte. Linear time for any pattern: only the last `*` is retried.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    (p, t) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

fn is_plain(c: char) -> bool {
    // Format characters reorder or hide the text around them (U+202E, zero-width ones, the byte order mark, tags).
    let formatting = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !formatting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_cut_and_escaped() {
        assert_eq!(bounded("a\u{1b}[2J\n", 64), "a\\u{1b}[2J\\u{a}");
        let long = bounded(&"é".repeat(300), 253).into_owned();
        assert!(long.ends_with('…') && long.chars().count() == 127, "{long}");
        assert_eq!(bounded("app.service", 11), "app.service");
    }

    #[test]
    fn a_head_has_whole_characters() {
        assert_eq!((head("aéb", 2), head("aéb", 3), head("aéb", 9)), ("a", "aé", "aéb"));
    }

    #[test]
    fn a_tail_has_whole_characters() {
        assert_eq!((tail("aéb", 2), tail("aéb", 3), tail("aéb", 9)), ("b", "éb", "aéb"));
    }
}
