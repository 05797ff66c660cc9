//! Inhibitor locks as logind keeps them in `/run/systemd/inhibit`: for a machine whose bus is not asked. Pure.
//!
//! logind does not promise the form of these files (from 219 to 257 it is the same): what does not fit is "not known", never "no lock".

use epitaph_core::ids::Pid;
use epitaph_core::node::{InhibitMode, Inhibitor};

use crate::source::bounded;

/// Most bytes kept of a text that whoever took the lock chose.
const TEXT: usize = 128;

/// One file; None if it is not a whole description of a lock.
pub fn parse(bytes: &[u8]) -> Option<Inhibitor> {
    let text = std::str::from_utf8(bytes).ok()?;
    let field = |name: &str| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        values.next().map(unescape)
    };
    let shown = |name: &str| field(name).map(|text| bounded(&text, TEXT));
    Some(Inhibitor {
        what: shown("WHAT")?,
        who: shown("WHO")?,
        why: shown("WHY").unwrap_or_default(),
        mode: match field("MODE")?.as_str() {
            "delay" => InhibitMode::Delay,
            "block" => InhibitMode::Block,
            "block-weak" => InhibitMode::BlockWeak,
            _ => InhibitMode::Other,
        },
        uid: field("UID")?.parse().ok()?,
        pid: Pid(field("PID")?.parse().ok()?),
    })
}

/// C escapes: `\x20`, `\n`, octal `\040`. An escape of another form stays as it is.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, used) = match (first, after) {
            (b'\\', [b'x', high, low, ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, 4),
                _ => (b'\\', 1),
            },
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                ((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), 4)
            }
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [quoted @ (b'\\' | b'"' | b'\''), ..]) => (*quoted, 2),
            _ => (*first, 1),
        };
        out.push(byte);
        rest = &rest[used..];
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBELET: &str = "# This is private data. Do not parse.\nWHAT=shutdown\nMODE=delay\nUID=0\nPID=812\nWHO=kubelet\n\
                           WHY=Kubelet needs time to handle node shutdown\nFIFO=/run/systemd/inhibit/3.ref\n";

    #[test]
    fn the_kubelets_lock() {
        let lock = parse(KUBELET.as_bytes()).unwrap();
        assert!(lock.is_kubelets(), "{lock:?}");
        assert_eq!(lock.why, "Kubelet needs time to handle node shutdown");
    }

    #[test]
    fn a_text_is_unescaped_bounded_and_safe() {
        let text = KUBELET
            .replace("WHO=kubelet", r"WHO=a\x20b\040\033[31m\\\q")
            .replace("delay", "block");
        let lock = parse(text.as_bytes()).unwrap();
        assert_eq!((lock.who.as_str(), lock.mode), (r"a b \u{1b}[31m\\q", InhibitMode::Block));
        let long = KUBELET.replace("Kubelet needs", &"x".repeat(9_000));
        assert!(parse(long.as_bytes()).unwrap().why.len() < 200);
    }

    #[test]
    fn a_file_without_a_field_is_not_a_lock() {
        for field in ["WHAT", "MODE", "UID", "PID", "WHO"] {
            let without: String = KUBELET
                .lines()
                .filter(|line| !line.starts_with(field))
                .map(|line| format!("{line}\n"))
                .collect();
            assert_eq!(parse(without.as_bytes()), None, "{field}");
        }
        assert_eq!(parse(b"\xff"), None);
    }
}
