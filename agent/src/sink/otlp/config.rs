//! Where traces go, as [`crate::config`] has it, and what follows from that.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    #[serde(rename = "grpc")]
    Grpc,
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    #[default]
    None,
    Gzip,
}

/// Request headers. Values are secrets (tokens): `Debug` does not show them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.0.iter().map(|(name, _)| (name, "(not shown)")))
            .finish()
    }
}

/// What was configured; a field that is absent is not configured. [`OtlpConfig::settings`] fills in the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpConfig {
    /// Base URL for every signal: by http/protobuf traces go to `<endpoint>/v1/traces`.
    pub endpoint: Option<String>,
    /// URL for traces, used as it is; wins over `endpoint`.
    pub traces_endpoint: Option<String>,
    /// Default: grpc where the endpoint's port is 4317, else http/protobuf.
    pub protocol: Option<Protocol>,
    pub headers: Headers,
    /// For one attempt, milliseconds. Default 10 000.
    pub timeout_ms: Option<u64>,
    pub compression: Option<Compression>,
    /// PEM file: the authorities to trust in place of the system's.
    pub certificate: Option<PathBuf>,
    /// PEM files: our own certificate and its key, for mutual TLS.
    pub client_certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    /// grpc only: an endpoint without a scheme means http, not https.
    pub insecure: Option<bool>,
    /// Traces that wait while the collector does not take them; the oldest is counted out beyond. Default 2048.
    pub queue: Option<usize>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// Does not show the value, which may be a secret.
    #[error("`{name}` is not the name of a header, or its value has a character that no header may have")]
    Header { name: String },
    #[error("parse OTLP endpoint `{value}`: {why}")]
    Endpoint { value: String, why: String },
    #[error("client certificate and client key go together: {missing} is missing")]
    HalfIdentity { missing: &'static str },
}

impl OtlpConfig {
    /// What to start a sink with; `None` where no endpoint is configured: nobody asked for traces.
    pub fn settings(&self) -> Result<Option<Settings>, ConfigError> {
        let Some(value) = self.traces_endpoint.as_ref().or(self.endpoint.as_ref()) else {
            return Ok(None);
        };
        let (url, protocol) = self.url(value)?;
        let identity = match (&self.client_certificate, &self.client_key) {
            (Some(certificate), Some(key)) => Some(Identity {
                certificate: certificate.clone(),
                key: key.clone(),
            }),
            (None, None) => None,
            (Some(_), None) => return Err(ConfigError::HalfIdentity { missing: "the key" }),
            (None, Some(_)) => {
                return Err(ConfigError::HalfIdentity {
                    missing: "the certificate",
                });
            }
        };
        Ok(Some(Settings {
            url,
            protocol,
            headers: header_map(&self.headers)?,
            timeout: Duration::from_millis(self.timeout_ms.unwrap_or(10_000)),
            compression: self.compression.unwrap_or_default(),
            authorities: self.certificate.clone(),
            identity,
            queue: self.queue.unwrap_or(2048).max(1),
            batch: 64,
            backoff: Backoff {
                first: Duration::from_secs(1),
                most: Duration::from_secs(30),
            },
        }))
    }

    fn url(&self, value: &str) -> Result<(Uri, Protocol), ConfigError> {
        let bad = |why: String| ConfigError::Endpoint {
            // What stands before an @ is a secret.
            value: value.rsplit('@').next().unwrap_or_default().into(),
            why,
        };
        if value.contains('@') {
            return Err(bad(
                "a name and a password in the URL would not be sent; put them into a header (authorization)".into(),
            ));
        }
        let with_scheme = |scheme: &str| format!("{scheme}://{value}");
        let parse = |text: &str| text.parse::<Uri>().map_err(|e| bad(e.to_string()));
        let has_scheme = value.contains("://");
        let port = parse(&if has_scheme { value.to_string() } else { with_scheme("http") })?.port_u16();
        let protocol = self.protocol.unwrap_or(if port == Some(4317) {
            Protocol::Grpc
        } else {
            Protocol::HttpProtobuf
        });
        let url = match protocol {
            _ if has_scheme => parse(value)?,
            Protocol::Grpc if self.insecure == Some(true) => parse(&with_scheme("http"))?,
            Protocol::Grpc => parse(&with_scheme("https"))?,
            Protocol::HttpProtobuf => return Err(bad("no scheme; write http:// or https:// before it".into())),
        };
        if !url.scheme().is_some_and(|s| *s == Scheme::HTTP || *s == Scheme::HTTPS) {
            return Err(bad("the scheme is neither http nor https".into()));
        }
        if url.host().is_none_or(str::is_empty) {
            return Err(bad("no host".into()));
        }
        if protocol == Protocol::Grpc || self.traces_endpoint.is_some() {
            return Ok((url, protocol));
        }
        let mut parts = url.into_parts();
        let base = parts
            .path_and_query
            .as_ref()
            .map_or("", |p| p.path())
            .trim_end_matches('/')
            .to_string();
        parts.path_and_query = Some(PathAndQuery::try_from(format!("{base}/v1/traces")).map_err(|e| bad(e.to_string()))?);
        Ok((Uri::from_parts(parts).map_err(|e| bad(e.to_string()))?, protocol))
    }
}

/// Everything decided.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    pub url: Uri,
    pub protocol: Protocol,
    /// Values are marked sensitive.
    pub headers: HeaderMap,
    /// For one attempt.
    pub timeout: Duration,
    pub compression: Compression,
    pub authorities: Option<PathBuf>,
    pub identity: Option<Identity>,
    /// Traces.
    pub queue: usize,
    /// Most traces in one request.
    pub batch: usize,
    pub backoff: Backoff,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Waits between attempts double from `first` to `most`; each is cut at random to between half and all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
}

fn header_map(headers: &Headers) -> Result<HeaderMap, ConfigError> {
    let mut map = HeaderMap::new();
    for (name, value) in &headers.0 {
        let bad = || ConfigError::Header { name: name.clone() };
        let name = HeaderName::try_from(name.as_str()).map_err(|_| bad())?;
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| bad())?;
        value.set_sensitive(true);
        map.append(name, value);
    }
    Ok(map)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
