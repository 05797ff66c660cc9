//! Time spans as systemd writes them (systemd.time(7)): `30`, `1min 30s`, `1.5h`, `infinity`. Pure.

use std::time::Duration;

/// A time span; systemd counts microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeSpan {
    Finite(Duration),
    Infinity,
}

const SECOND: u64 = 1_000_000;

/// Microseconds that systemd takes for `infinity`; it refuses a number of so many.
const INFINITY: u64 = u64::MAX;

/// Microseconds by suffix. The first that fits counts: `min` and `msec` come before `m`.
const UNITS: [(&str, u64); 30] = [
    ("seconds", SECOND),
    ("second", SECOND),
    ("sec", SECOND),
    ("s", SECOND),
    ("minutes", 60 * SECOND),
    ("minute", 60 * SECOND),
    ("min", 60 * SECOND),
    ("months", 2_629_800 * SECOND),
    ("month", 2_629_800 * SECOND),
    ("M", 2_629_800 * SECOND),
    ("msec", 1_000),
    ("ms", 1_000),
    ("m", 60 * SECOND),
    ("hours", 3_600 * SECOND),
    ("hour", 3_600 * SECOND),
    ("hr", 3_600 * SECOND),
    ("h", 3_600 * SECOND),
    ("days", 86_400 * SECOND),
    ("day", 86_400 * SECOND),
    ("d", 86_400 * SECOND),
    ("weeks", 604_800 * SECOND),
    ("week", 604_800 * SECOND),
    ("w", 604_800 * SECOND),
    ("years", 31_557_600 * SECOND),
    ("year", 31_557_600 * SECOND),
    ("y", 31_557_600 * SECOND),
    ("usec", 1),
    ("us", 1),
    // The micro sign, and the Greek letter.
    ("\u{b5}s", 1),
    ("\u{3bc}s", 1),
];

pub(super) const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

impl TimeSpan {
    /// A number without a unit is seconds. None for what systemd refuses, empty text included.
    pub fn parse(text: &str) -> Option<TimeSpan> {
        let mut rest = text.trim_start_matches(BLANKS);
        if let Some(after) = rest.strip_prefix("infinity") {
            return after.trim_matches(BLANKS).is_empty().then_some(TimeSpan::Infinity);
        }
        let mut total: Option<u64> = None;
        loop {
            rest = rest.trim_start_matches(BLANKS);
            if rest.is_empty() {
                return total.map(|micros| TimeSpan::Finite(Duration::from_micros(micros)));
            }
            let (micros, after) = part(rest)?;
            total = Some(sum(total.unwrap_or(0), micros)?);
            rest = after;
        }
    }
}

/// One number with its unit, in microseconds, and the text after it.
fn part(text: &str) -> Option<(u64, &str)> {
    let (whole, after) = digits(text.strip_prefix('+').unwrap_or(text));
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => {
            let (fraction, after) = digits(after);
            (Some(fraction).filter(|fraction| !fraction.is_empty())?, after)
        }
        None if whole.is_empty() => return None,
        None => ("", after),
    };
    let unit_at = after.trim_start_matches(BLANKS);
    let unit = UNITS.iter().find(|(suffix, _)| unit_at.starts_with(suffix));
    let (unit, rest) = match unit {
        Some((suffix, micros)) => (*micros, &unit_at[suffix.len()..]),
        // `12.34.56` is not two numbers, `12.34 .56` is.
        None if unit_at.len() == after.len() && !after.is_empty() => return None,
        None => (SECOND, unit_at),
    };
    // systemd reads the number as signed.
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse::<i64>().ok()?.unsigned_abs()
    };
    let mut micros = Some(whole).filter(|whole| *whole < INFINITY / unit)? * unit;
    let mut place = unit;
    for digit in fraction.bytes() {
        place /= 10;
        micros = sum(micros, u64::from(digit - b'0').checked_mul(place)?)?;
    }
    Some((micros, rest))
}

/// None from systemd's `infinity` on.
fn sum(one: u64, other: u64) -> Option<u64> {
    one.checked_add(other).filter(|sum| *sum < INFINITY)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemd_reads() {
        let millis = |millis| Some(TimeSpan::Finite(Duration::from_millis(millis)));
        for (text, expected) in [
            ("30", millis(30_000)),
            ("30s", millis(30_000)),
            (" 1min 30s ", millis(90_000)),
            ("1min30", millis(90_000)),
            ("1.5h", millis(5_400_000)),
            (".5", millis(500)),
            ("5 10", millis(15_000)),
            ("12.34 .56", millis(12_900)),
            ("1m 250ms", millis(60_250)),
            ("1M", millis(2_629_800_000)),
            ("2 weeks", millis(1_209_600_000)),
            ("0", millis(0)),
            ("infinity", Some(TimeSpan::Infinity)),
            ("1µs", Some(TimeSpan::Finite(Duration::from_micros(1)))),
            ("", None),
            ("-1", None),
            ("5x", None),
            ("12.34.56", None),
            ("1.", None),
            ("1.s", None),
            ("s", None),
            ("99999999999999999999", None),
            ("18446744073709551615y", None),
            ("18446744073709551615us", None),
            ("9223372036854775807us 9223372036854775807us 1us", None),
            ("584542y", None),
            (
                "9223372036854775807us",
                Some(TimeSpan::Finite(Duration::from_micros(i64::MAX as u64))),
            ),
            ("infinity 5", None),
        ] {
            assert_eq!(TimeSpan::parse(text), expected, "{text:?}");
        }
    }
}
