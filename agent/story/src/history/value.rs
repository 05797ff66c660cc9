//! Values of fields.

use std::fmt;
use std::ops::Deref;

use epitaph_core::text::bounded;
use epitaph_core::time::Wall;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// Longest text, bytes; more than any field of a report has.
const LONGEST: usize = 4096;

/// Longest name that is kept for each of many groups, bytes: a name of Kubernetes has 253.
const NAME: usize = 256;

/// Text of a report, escaped and bounded: safe for any output. Null is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(String);

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(bounded(text, LONGEST).into_owned())
    }
}

impl Text {
    /// A name, as it is kept in large numbers.
    pub(super) fn name(&self) -> Text {
        Text(bounded(&self.0, NAME).into_owned())
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
        struct Visit;
        impl Visitor<'_> for Visit {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or null")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text::from(text))
            }
            fn visit_unit<E: Error>(self) -> Result<Text, E> {
                Ok(Text::default())
            }
        }
        from.deserialize_any(Visit)
    }
}

/// A moment, RFC 3339 in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(pub Wall);

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<At, D::Error> {
        struct Visit;
        impl Visitor<'_> for Visit {
            type Value = At;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as 2026-01-02T03:04:05.000000000Z")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<At, E> {
                Wall::parse_rfc3339(text)
                    .map(At)
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        from.deserialize_str(Visit)
    }
}
