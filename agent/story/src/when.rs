//! Moments as people write them: `--since`, `--until`.

use std::time::Duration;

use epitaph_core::duration;
use epitaph_core::time::Wall;

/// A moment, as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Ago(Duration),
    At(Wall),
    /// The last time that clocks in UTC showed this, since midnight.
    Clock(Duration),
    /// The begin of the day, in UTC, so many days before today.
    Day(u64),
}

const DAY: u64 = 86_400_000_000_000;

impl When {
    /// As the begin of a period.
    pub fn before(self, now: Wall) -> Wall {
        match self {
            When::Ago(d) => Wall(now.0.saturating_sub(nanos(d))),
            When::At(at) => at,
            When::Clock(d) => {
                let today = now.0 - now.0 % DAY + nanos(d);
                Wall(if today <= now.0 { today } else { today.saturating_sub(DAY) })
            }
            When::Day(ago) => Wall((now.0 - now.0 % DAY).saturating_sub(ago.saturating_mul(DAY))),
        }
    }

    /// As the end of a period: a time that lists print is cut to the second, and what they show of that second is within.
    pub fn until(self, now: Wall) -> Wall {
        const SECOND: u64 = 1_000_000_000;
        let at = self.before(now);
        match self {
            When::Ago(_) | When::Day(_) => at,
            When::At(_) | When::Clock(_) if !at.0.is_multiple_of(SECOND) => at,
            When::At(_) | When::Clock(_) => Wall(at.0.saturating_add(SECOND - 1)),
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration before now, or a date or time in UTC or with an offset.
///
/// # Errors
/// Neither of these; the text names the forms.
pub fn parse(text: &str) -> Result<When, String> {
    // Elsewhere a number alone is milliseconds; nobody looks back so far.
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("a number without a unit; write 90s, 15m, 1h or 2d".to_owned());
    }
    match text.trim().to_ascii_lowercase().as_str() {
        "now" => return Ok(When::Ago(Duration::ZERO)),
        "today" => return Ok(When::Day(0)),
        "yesterday" => return Ok(When::Day(1)),
        _ => {}
    }
    if let Some(clock) = clock(text) {
        return Ok(When::Clock(clock));
    }
    if let Some(at) = moment(text) {
        return Ok(When::At(at));
    }
    duration::parse(text).map(When::Ago).map_err(|_| {
        "neither a duration such as 15m, 1h or 2d, nor today or yesterday, nor a date or time in UTC such as 2026-01-02, \"2026-01-02 03:04:05\" \
         or 03:04:05, nor one with an offset such as 03:04+02:00"
            .to_owned()
    })
}

/// RFC 3339, and what is left of it in lists, summaries and by hand: with a space, without the zone, the seconds, or the time.
fn moment(text: &str) -> Option<Wall> {
    let (text, offset) = zone(text)?;
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00:00"));
    let time = time.trim_start();
    let seconds = if time.len() == 5 { ":00" } else { "" };
    let at = Wall::parse_rfc3339(&format!("{date}T{time}{seconds}Z"))?;
    at.0.checked_add_signed(-offset).map(Wall)
}

/// `03:04:05` or `03:04`, as a list in a terminal has it below the date.
fn clock(text: &str) -> Option<Duration> {
    let (text, offset) = zone(text)?;
    let is_clock = text.as_bytes().get(2) == Some(&b':');
    let at = is_clock.then(|| moment(&format!("1970-01-01 {text}")))??;
    let day = i64::try_from(DAY).ok()?;
    let at = i64::try_from(at.0).ok()? - offset;
    u64::try_from(at.rem_euclid(day)).ok().map(Duration::from_nanos)
}

/// The text without its zone, and the nanoseconds by which clocks there are ahead of UTC. None for a zone that is not one.
fn zone(text: &str) -> Option<(&str, i64)> {
    const MINUTE: i64 = 60_000_000_000;
    let text = text.trim();
    if let Some(rest) = ["UTC", "Z", "z"].into_iter().find_map(|zone| text.strip_suffix(zone)) {
        return Some((rest.trim_end(), 0));
    }
    // The sign is after the time: dates have the same one.
    let after_time = text.find(':').unwrap_or(text.len());
    let Some(sign) = text[after_time..].find(['+', '-']).map(|at| after_time + at) else {
        return Some((text, 0));
    };
    let (rest, offset) = text.split_at(sign);
    let (sign, digits) = offset.split_at(1);
    let (hours, minutes) = match digits.len() {
        2 => (digits, "0"),
        4 => digits.split_at_checked(2)?,
        _ => digits
            .split_once(':')
            .filter(|(hours, minutes)| (hours.len(), minutes.len()) == (2, 2))?,
    };
    let number = |text: &str, most: i64| text.parse().ok().filter(|n| (0..=most).contains(n) && !text.starts_with('+'));
    let ahead = (number(hours, 18)? * 60 + number(minutes, 59)?) * MINUTE;
    Some((rest.trim_end(), if sign == "-" { -ahead } else { ahead }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_as_people_write_them() {
        let hours = |hours: u64| Ok(When::Ago(Duration::from_secs(hours * 3_600)));
        assert_eq!(
            (parse("1h"), parse("2d"), parse("1h 30m").is_ok()),
            (hours(1), hours(48), true)
        );
        assert_eq!(parse("1970-01-01T00:00:01Z"), Ok(When::At(Wall(1_000_000_000))));
        assert_eq!(parse("1970-01-02"), Ok(When::At(Wall(86_400_000_000_000))));
        for wrong in [
            "",
            "90",
            "tomorrow",
            "1970-13-01",
            "1970-01",
            "-1h",
            "25:00",
            "1:00",
            "12:60:00",
            "1970-01-01 1:2",
            "1970-01-01T00:00:01+01:00",
            "2026-01-02T03:04:05+1:00",
            "2026-01-02T03:04:05+25:00",
            "2026-01-02T03:04:05+01:60",
            "2026-01-02T03:04:05+",
            "2026-01-02T03:04:05+é00",
            "2026-01-02T03:04:05+-1",
            "Z",
            ":",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(When::Ago(Duration::MAX).before(Wall(5)), Wall(0));
        assert_eq!(When::Ago(Duration::from_nanos(2)).before(Wall(5)), Wall(3));
    }

    #[test]
    fn moments_as_lists_and_stories_print_them() {
        let at = Wall(1_795_261_450_000_000_000);
        let printed = crate::story::moment(at);
        for text in [
            printed.clone(),
            format!("{printed} UTC"),
            at.rfc3339(),
            at.rfc3339_millis(),
            printed.replace(' ', "T"),
            format!(" {printed}"),
        ] {
            assert_eq!(parse(&text), Ok(When::At(at)), "{text}");
        }
        assert_eq!(parse("2026-11-21 UTC"), parse("2026-11-21"));
        assert_eq!(parse("2026-11-21 11:44"), Ok(When::At(Wall(at.0 - 10_000_000_000))));
    }

    #[test]
    fn offsets_and_days_by_name() {
        let now = Wall::parse_rfc3339("2026-11-21T11:44:10.5Z").unwrap();
        for (text, expected) in [
            ("2026-11-21T11:44:10+02:00", "2026-11-21T09:44:10.000Z"),
            ("2026-11-21 11:44 +0200", "2026-11-21T09:44:00.000Z"),
            ("2026-11-21T11:44:10.25-05:30", "2026-11-21T17:14:10.250Z"),
            ("2026-11-21 00:30+01", "2026-11-20T23:30:00.000Z"),
            ("03:04+02:00", "2026-11-21T01:04:00.000Z"),
            // Midnight and noon there are times of the last 24 hours here, too.
            ("00:30+02:00", "2026-11-20T22:30:00.000Z"),
            ("23:30-02:00", "2026-11-21T01:30:00.000Z"),
            ("yesterday", "2026-11-20T00:00:00.000Z"),
            ("Today", "2026-11-21T00:00:00.000Z"),
            ("now", "2026-11-21T11:44:10.500Z"),
        ] {
            assert_eq!(parse(text).unwrap().before(now).rfc3339_millis(), expected, "{text}");
        }
        assert_eq!(
            parse("yesterday").unwrap().until(now).rfc3339_millis(),
            "2026-11-20T00:00:00.000Z"
        );
        assert_eq!(When::Day(1).before(Wall(5)), Wall(0));
    }

    /// In a terminal the date is a line of its own.
    #[test]
    fn a_clock_is_of_the_last_day() {
        let now = Wall(1_795_261_450_500_000_000);
        for (text, expected) in [
            ("11:44:10", "2026-11-21T11:44:10.000Z"),
            ("11:44", "2026-11-21T11:44:00.000Z"),
            ("11:44:11", "2026-11-20T11:44:11.000Z"),
            ("23:59:59.999 UTC", "2026-11-20T23:59:59.999Z"),
            ("00:00:00", "2026-11-21T00:00:00.000Z"),
        ] {
            assert_eq!(parse(text).unwrap().before(now).rfc3339_millis(), expected, "{text}");
        }
        assert_eq!(parse("11:44").unwrap().before(Wall(5)), Wall(0));
        let until = |text: &str| parse(text).unwrap().until(now).rfc3339();
        assert_eq!(
            until("11:44:10"),
            "2026-11-21T11:44:10.999999999Z",
            "as a list shows 11:44:10.5"
        );
        assert_eq!(until("2026-11-21T11:44:10.25Z"), "2026-11-21T11:44:10.250000000Z");
        assert_eq!(until("0s"), now.rfc3339());
    }
}
