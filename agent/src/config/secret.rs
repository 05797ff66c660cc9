//! Values that must not show up in a log or in `--print-config`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::as_text;

const REDACTED: &str = "(redacted)";

/// A header's value. Shown, logged or written as TOML it is `(redacted)`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(REDACTED)
    }
}

/// A collector's URL, http or https; OpenTelemetry allows none of both with grpc, and means https. Shown, logged or written it has no user and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(String);

impl Endpoint {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        if !["", "http", "https"].contains(&scheme) {
            return Err("neither http nor https: write http://HOST:PORT, or https://HOST:PORT for TLS".to_owned());
        }
        if rest.is_empty() || rest.starts_with(['/', ':']) {
            return Err("a URL without a host: write http://HOST:PORT".to_owned());
        }
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("a URL with white space in it".to_owned());
        }
        Ok(Endpoint(text.to_owned()))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        match authority.rsplit_once('@') {
            Some((_, host)) if scheme.is_empty() => write!(f, "{REDACTED}@{host}{path}"),
            Some((_, host)) => write!(f, "{scheme}://{REDACTED}@{host}{path}"),
            None => f.write_str(&self.0),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

as_text!(Endpoint);
