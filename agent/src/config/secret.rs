//! Values that must not appear in a log or in `--print-config`.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use serde::{Deserialize, Serialize};

use super::{Problem, as_text};

const REDACTED: &str = "(redacted)";

/// A header's value. Shown, logged or written as TOML, the value is `(redacted)`.
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

/// A collector's URL, http or https; with grpc and `otlp.insecure`, OpenTelemetry's variables may have no scheme. Shown, logged or
/// written as TOML, the URL has no user and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The given text.
    text: String,
    /// The URL, with http as the scheme if none was given.
    uri: Uri,
}

impl Endpoint {
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    pub fn has_scheme(&self) -> bool {
        self.text.contains("://")
    }
}

impl FromStr for Endpoint {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        if !["", "http", "https"].contains(&scheme) {
            return Err(
                Problem::new("neither http nor https").with_remedy("write http://HOST:PORT, or https://HOST:PORT for TLS")
            );
        }
        if rest.is_empty() || rest.starts_with(['/', ':']) {
            return Err(Problem::new("a URL without a host").with_remedy("write http://HOST:PORT"));
        }
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(Problem::new("a URL with white space in it").with_remedy("write http://HOST:PORT"));
        }
        let whole = if scheme.is_empty() {
            format!("http://{text}")
        } else {
            text.to_owned()
        };
        let uri = whole
            .parse::<Uri>()
            .map_err(|error| Problem::new(format!("not a URL: {error}")).with_remedy("write http://HOST:PORT"))?;
        Ok(Endpoint {
            text: text.to_owned(),
            uri,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.text.split_once("://").unwrap_or(("", &self.text));
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        match authority.rsplit_once('@') {
            Some((_, host)) if scheme.is_empty() => write!(f, "{REDACTED}@{host}{path}"),
            Some((_, host)) => write!(f, "{scheme}://{REDACTED}@{host}{path}"),
            None => f.write_str(&self.text),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

as_text!(Endpoint);
