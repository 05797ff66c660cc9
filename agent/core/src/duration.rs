//! Durations as people write them: `30s`, `1m 30s`; a bare number is milliseconds, as in OpenTelemetry's variables.
//!
//! Use with `#[serde(with = "crate::duration")]`.

use std::time::Duration;

pub use humantime::DurationError;
use serde::{Deserialize, Deserializer, Serializer};

pub fn parse(text: &str) -> Result<Duration, DurationError> {
    match text.parse() {
        Ok(millis) => Ok(Duration::from_millis(millis)),
        Err(_) => humantime::parse_duration(text),
    }
}

pub fn serialize<S: Serializer>(value: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&humantime::format_duration(*value))
}

pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    parse(&String::deserialize(d)?).map_err(serde::de::Error::custom)
}
