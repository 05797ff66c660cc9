//! Durations as Go writes them: `1m30s`, `1.5h`, `300ms`, `0`. Pure.

use std::time::Duration;

/// Nanoseconds by unit; the longer of two that fit comes first.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Go's longest duration, nanoseconds: 292 years.
const MOST: u64 = i64::MAX as u64;

/// None for what Go's `time.ParseDuration` refuses, and for negative durations, which no setting of the kubelet accepts.
pub fn parse(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if let Some(zero) = text.strip_prefix('-') {
        return parse(zero).filter(|value| value.is_zero() && !zero.starts_with(['+', '-']));
    }
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, None);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let (unit, nanos) = UNITS.iter().find(|(unit, _)| is_unit(after, unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut part = whole.checked_mul(*nanos)?;
        let mut place = *nanos;
        for digit in fraction.bytes() {
            place /= 10;
            part = part.checked_add(u64::from(digit - b'0') * place)?;
        }
        total = Some(total.unwrap_or(0_u64).checked_add(part).filter(|total| *total <= MOST)?);
        rest = &after[unit.len()..];
    }
    total.map(Duration::from_nanos)
}

/// `m` is not the unit of `1ms`.
fn is_unit(text: &str, unit: &str) -> bool {
    let after = text.strip_prefix(unit);
    after.is_some_and(|after| after.is_empty() || after.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_reads() {
        let millis = |millis| Some(Duration::from_millis(millis));
        for (text, expected) in [
            ("30s", millis(30_000)),
            ("1m30s", millis(90_000)),
            ("1.5h", millis(5_400_000)),
            (".5s", millis(500)),
            ("1.s", millis(1_000)),
            ("300ms", millis(300)),
            ("+2m", millis(120_000)),
            ("0", millis(0)),
            ("-0", millis(0)),
            ("0s", millis(0)),
            ("1us", Some(Duration::from_micros(1))),
            ("", None),
            ("-5s", None),
            ("--0", None),
            ("30", None),
            ("30 s", None),
            ("s", None),
            (".s", None),
            ("1..5s", None),
            ("1d", None),
            ("10000000h", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
