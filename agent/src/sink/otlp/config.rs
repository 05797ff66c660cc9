//! Where traces go: OpenTelemetry's standard variables, and fields of our own configuration that win over them.

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

/// Request headers. Values are secrets (tokens): neither `Debug` nor serialisation shows them.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "std::collections::BTreeMap<String, String>")]
pub struct Headers(pub Vec<(String, String)>);

impl From<std::collections::BTreeMap<String, String>> for Headers {
    fn from(map: std::collections::BTreeMap<String, String>) -> Self {
        Headers(map.into_iter().collect())
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.0.iter().map(|(name, _)| (name, "(not shown)")))
            .finish()
    }
}

impl Serialize for Headers {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(name, _)| (name, "(not shown)")))
    }
}

/// What was configured; a field that is absent is not configured. [`OtlpConfig::settings`] fills in the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpConfig {
    /// Base URL for every signal: by http/protobuf traces go to `<endpoint>/v1/traces`.
    pub endpoint: Option<String>,
    /// URL for traces, used as it is; wins over `endpoint` of the same origin.
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
    #[error("read {name}: `{value}` is not {expected}")]
    Value {
        name: String,
        value: String,
        expected: &'static str,
    },
    /// Does not show the value, which may be a secret.
    #[error("read {name}: entry {entry} is not `name=value` with a valid header name and value; separate entries by commas")]
    Header { name: String, entry: usize },
    #[error("parse OTLP endpoint `{value}`: {why}")]
    Endpoint { value: String, why: String },
    #[error("client certificate and client key go together: {missing} is missing")]
    HalfIdentity { missing: &'static str },
}

impl OtlpConfig {
    /// The standard variables: `OTEL_EXPORTER_OTLP_TRACES_*`, else `OTEL_EXPORTER_OTLP_*`. An empty one is an absent one.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<OtlpConfig, ConfigError> {
        let get = |name: &str| {
            [
                format!("OTEL_EXPORTER_OTLP_TRACES_{name}"),
                format!("OTEL_EXPORTER_OTLP_{name}"),
            ]
            .into_iter()
            .find_map(|full| Some((env(&full).map(|v| v.trim().to_string()).filter(|v| !v.is_empty())?, full)))
        };
        let path = |name| get(name).map(|(value, _)| PathBuf::from(value));
        let endpoint_of = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        Ok(OtlpConfig {
            endpoint: endpoint_of("OTEL_EXPORTER_OTLP_ENDPOINT"),
            traces_endpoint: endpoint_of("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
            protocol: get("PROTOCOL").map(|(value, name)| protocol(&name, value)).transpose()?,
            headers: get("HEADERS").map_or(Ok(Headers::default()), |(value, name)| headers(&name, &value))?,
            timeout_ms: get("TIMEOUT").map(|(value, name)| number(&name, value)).transpose()?,
            compression: get("COMPRESSION")
                .map(|(value, name)| compression(&name, value))
                .transpose()?,
            certificate: path("CERTIFICATE"),
            client_certificate: path("CLIENT_CERTIFICATE"),
            client_key: path("CLIENT_KEY"),
            insecure: get("INSECURE").map(|(value, _)| value.eq_ignore_ascii_case("true")),
            queue: None,
        })
    }

    /// These fields, and `other`'s where these are absent.
    pub fn or(self, other: OtlpConfig) -> OtlpConfig {
        let ours = self.endpoint.is_some() || self.traces_endpoint.is_some();
        let (endpoint, traces_endpoint) = if ours {
            (self.endpoint, self.traces_endpoint)
        } else {
            (other.endpoint, other.traces_endpoint)
        };
        OtlpConfig {
            endpoint,
            traces_endpoint,
            protocol: self.protocol.or(other.protocol),
            headers: if self.headers.0.is_empty() {
                other.headers
            } else {
                self.headers
            },
            timeout_ms: self.timeout_ms.or(other.timeout_ms),
            compression: self.compression.or(other.compression),
            certificate: self.certificate.or(other.certificate),
            client_certificate: self.client_certificate.or(other.client_certificate),
            client_key: self.client_key.or(other.client_key),
            insecure: self.insecure.or(other.insecure),
            queue: self.queue.or(other.queue),
        }
    }

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

fn protocol(name: &str, value: String) -> Result<Protocol, ConfigError> {
    match value.to_ascii_lowercase().as_str() {
        "grpc" => Ok(Protocol::Grpc),
        "http/protobuf" => Ok(Protocol::HttpProtobuf),
        _ => Err(ConfigError::Value {
            name: name.into(),
            value,
            expected: "`grpc` or `http/protobuf`",
        }),
    }
}

fn compression(name: &str, value: String) -> Result<Compression, ConfigError> {
    match value.to_ascii_lowercase().as_str() {
        "none" => Ok(Compression::None),
        "gzip" => Ok(Compression::Gzip),
        _ => Err(ConfigError::Value {
            name: name.into(),
            value,
            expected: "`gzip` or `none`",
        }),
    }
}

fn number(name: &str, value: String) -> Result<u64, ConfigError> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(ConfigError::Value {
            name: name.into(),
            value,
            expected: "a positive number of milliseconds",
        }),
    }
}

/// `k1=v1,k2=v2`, values percent-encoded as W3C baggage has them.
fn headers(name: &str, text: &str) -> Result<Headers, ConfigError> {
    let mut headers = Vec::new();
    for (i, entry) in text.split(',').enumerate().filter(|(_, entry)| !entry.trim().is_empty()) {
        let bad = || ConfigError::Header {
            name: name.into(),
            entry: i + 1,
        };
        let (key, value) = entry.split_once('=').ok_or_else(bad)?;
        let value = percent_decoded(value.trim()).ok_or_else(bad)?;
        headers.push((key.trim().to_ascii_lowercase(), value));
    }
    let headers = Headers(headers);
    header_map(&headers).map_err(|e| match e {
        ConfigError::Header { entry, .. } => ConfigError::Header {
            name: name.into(),
            entry,
        },
        other => other,
    })?;
    Ok(headers)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

fn header_map(headers: &Headers) -> Result<HeaderMap, ConfigError> {
    let mut map = HeaderMap::new();
    for (i, (name, value)) in headers.0.iter().enumerate() {
        let bad = || ConfigError::Header {
            name: "headers".into(),
            entry: i + 1,
        };
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
