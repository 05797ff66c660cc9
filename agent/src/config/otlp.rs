//! The collector: OpenTelemetry's settings, and the resulting destinations.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde::{Deserialize, Serialize};

use super::{ConfigError, Endpoint, Problem, Secret};
use crate::sink::otlp::{Compression, Destination, Identity, Protocol};

/// OpenTelemetry's port for OTLP by gRPC.
const GRPC_PORT: u16 = 4317;

/// Without an endpoint nothing is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpSettings {
    /// For every signal; with http/protobuf, `/v1/traces`, `/v1/metrics` and `/v1/logs` are appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Used as it stands, instead of `endpoint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traces_endpoint: Option<Endpoint>,
    /// Used as it stands, instead of `endpoint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_endpoint: Option<Endpoint>,
    /// Used as it stands, instead of `endpoint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs_endpoint: Option<Endpoint>,
    /// None: grpc where the endpoint's port is 4317, else http/protobuf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// With grpc: an endpoint may have no scheme, which means http.
    pub insecure: bool,
    pub compression: Compression,
    pub traces: bool,
    pub metrics: bool,
    /// Each termination as a log record, too.
    pub logs: bool,
    #[serde(with = "epitaph_core::duration")]
    pub metrics_interval: Duration,
    /// Limit of one export request.
    #[serde(with = "epitaph_core::duration")]
    pub timeout: Duration,
    /// PEM file of the CA that signed the collector's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
    pub headers: BTreeMap<String, Secret>,
}

impl Default for OtlpSettings {
    fn default() -> Self {
        OtlpSettings {
            endpoint: None,
            traces_endpoint: None,
            metrics_endpoint: None,
            logs_endpoint: None,
            protocol: None,
            insecure: false,
            compression: Compression::None,
            traces: true,
            metrics: true,
            // Many a collector has no pipeline for logs.
            logs: false,
            metrics_interval: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
            certificate: None,
            client_certificate: None,
            client_key: None,
            headers: BTreeMap::new(),
        }
    }
}

/// Destination of each signal; None if the signal is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destinations {
    pub traces: Option<Destination>,
    pub metrics: Option<Destination>,
    pub logs: Option<Destination>,
}

/// A signal's own endpoint, and the signal's path below the shared endpoint.
struct SignalEndpoint<'a> {
    own: Option<&'a Endpoint>,
    own_key: &'static str,
    path: &'static str,
}

impl OtlpSettings {
    /// The one conversion of these settings. [`super::Config::load`] checks it, so that later calls do not fail.
    pub fn destinations(&self) -> Result<Destinations, ConfigError> {
        for (key, value) in [
            ("otlp.timeout", self.timeout),
            ("otlp.metrics_interval", self.metrics_interval),
        ] {
            if value.is_zero() {
                return Err(invalid(key, Problem::new("must be more than zero")));
            }
        }
        let identity = self.identity()?;
        let to = |is_sent: bool, signal: SignalEndpoint<'_>| {
            // What is not sent needs no valid endpoint: the environment's variables are for many programs.
            if !is_sent {
                return Ok(None);
            }
            let Some((url, protocol)) = self.url(&signal)? else {
                return Ok(None);
            };
            Ok(Some(Destination {
                url,
                protocol,
                headers: header_map(&self.headers).map_err(|problem| invalid("otlp.headers", problem))?,
                timeout: self.timeout,
                compression: self.compression,
                authorities: self.certificate.clone(),
                identity: identity.clone(),
            }))
        };
        Ok(Destinations {
            traces: to(
                self.traces,
                SignalEndpoint {
                    own: self.traces_endpoint.as_ref(),
                    own_key: "otlp.traces_endpoint",
                    path: "/v1/traces",
                },
            )?,
            metrics: to(
                self.metrics,
                SignalEndpoint {
                    own: self.metrics_endpoint.as_ref(),
                    own_key: "otlp.metrics_endpoint",
                    path: "/v1/metrics",
                },
            )?,
            logs: to(
                self.logs,
                SignalEndpoint {
                    own: self.logs_endpoint.as_ref(),
                    own_key: "otlp.logs_endpoint",
                    path: "/v1/logs",
                },
            )?,
        })
    }

    fn identity(&self) -> Result<Option<Identity>, ConfigError> {
        let half = |key, other: &str| {
            invalid(
                key,
                Problem::new("is not set").with_remedy(format!("set both, or unset {other}")),
            )
        };
        match (&self.client_certificate, &self.client_key) {
            (Some(certificate), Some(key)) => Ok(Some(Identity {
                certificate: certificate.clone(),
                key: key.clone(),
            })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(half("otlp.client_key", "otlp.client_certificate")),
            (None, Some(_)) => Err(half("otlp.client_certificate", "otlp.client_key")),
        }
    }

    /// None if no endpoint is set.
    fn url(&self, signal: &SignalEndpoint<'_>) -> Result<Option<(Uri, Protocol)>, ConfigError> {
        let (endpoint, key, path) = match (signal.own, &self.endpoint) {
            (Some(own), _) => (own, signal.own_key, None),
            (None, Some(shared)) => (shared, "otlp.endpoint", Some(signal.path)),
            (None, None) => return Ok(None),
        };
        let problem = |problem| invalid(key, problem);
        let uri = endpoint.uri();
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(problem(
                Problem::new("a name and a password in the URL would not be sent")
                    .with_remedy("put them into a header (authorization, otlp.headers)"),
            ));
        }
        let protocol = self.protocol.unwrap_or(match uri.port_u16() {
            Some(GRPC_PORT) => Protocol::Grpc,
            _ => Protocol::HttpProtobuf,
        });
        let mut parts = uri.clone().into_parts();
        if !endpoint.has_scheme() {
            // OpenTelemetry's default is TLS, which few collectors in a cluster or on this machine expect: nothing is assumed.
            if protocol != Protocol::Grpc || !self.insecure {
                let remedy = format!("write http://{endpoint}, or https://{endpoint} for TLS");
                return Err(problem(Problem::new("a URL without a scheme").with_remedy(remedy)));
            }
            parts.scheme = Some(Scheme::HTTP);
        }
        if let (Protocol::HttpProtobuf, Some(path)) = (protocol, path) {
            let appended = format!("{}{path}", uri.path().trim_end_matches('/'));
            let appended = PathAndQuery::try_from(appended).map_err(|error| problem(Problem::new(error.to_string())))?;
            parts.path_and_query = Some(appended);
        }
        let url = Uri::from_parts(parts).map_err(|error| problem(Problem::new(error.to_string())))?;
        Ok(Some((url, protocol)))
    }
}

fn invalid(key: &'static str, problem: Problem) -> ConfigError {
    ConfigError::Invalid { key, problem }
}

fn header_map(headers: &BTreeMap<String, Secret>) -> Result<HeaderMap, Problem> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad_name = |_| Problem::new(format!("`{name}` is not the name of a header"));
        let bad_value = |_| Problem::new(format!("the value of `{name}` has a character that no header may have"));
        let mut value = HeaderValue::try_from(value.expose()).map_err(bad_value)?;
        value.set_sensitive(true);
        map.append(HeaderName::try_from(name.as_str()).map_err(bad_name)?, value);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::lines;

    fn endpoint(url: &str) -> OtlpSettings {
        OtlpSettings {
            endpoint: Some(url.parse().expect("an endpoint")),
            ..OtlpSettings::default()
        }
    }

    fn traces(settings: &OtlpSettings) -> Destination {
        let destinations = settings.destinations().expect("valid settings");
        destinations.traces.expect("an endpoint")
    }

    #[test]
    fn no_endpoint_gives_no_destination() {
        let nowhere = OtlpSettings::default().destinations().expect("valid settings");
        assert_eq!((nowhere.traces, nowhere.metrics), (None, None));
    }

    #[test]
    fn endpoints() {
        for (given, protocol, url, taken) in [
            ("http://c:4318", None, "http://c:4318/v1/traces", Protocol::HttpProtobuf),
            (
                "http://c:4318/base/",
                None,
                "http://c:4318/base/v1/traces",
                Protocol::HttpProtobuf,
            ),
            ("http://c:4317", None, "http://c:4317", Protocol::Grpc),
            (
                "http://c:4317",
                Some(Protocol::HttpProtobuf),
                "http://c:4317/v1/traces",
                Protocol::HttpProtobuf,
            ),
            ("https://c", Some(Protocol::Grpc), "https://c", Protocol::Grpc),
            ("http://[::1]:4317", None, "http://[::1]:4317", Protocol::Grpc),
        ] {
            let to = traces(&OtlpSettings {
                protocol,
                ..endpoint(given)
            });
            assert_eq!((to.url, to.protocol), (url.parse().expect("a URL"), taken), "{given}");
        }
        let to = traces(&OtlpSettings {
            insecure: true,
            ..endpoint("c:4317")
        });
        assert_eq!(to.url, "http://c:4317");
    }

    #[test]
    fn each_signal_has_its_own_url() {
        let urls = |otlp: &OtlpSettings| {
            let url = |to: Option<Destination>| to.map_or("none".to_owned(), |to| to.url.to_string());
            let to = otlp.destinations().unwrap();
            (url(to.traces), url(to.metrics))
        };
        let pair = |traces: &str, metrics: &str| (traces.to_owned(), metrics.to_owned());
        let mut otlp = endpoint("http://c:4317");
        assert_eq!(urls(&otlp), pair("http://c:4317/", "http://c:4317/"));
        otlp.protocol = Some(Protocol::HttpProtobuf);
        assert_eq!(urls(&otlp), pair("http://c:4317/v1/traces", "http://c:4317/v1/metrics"));
        otlp.endpoint = Some("http://c:4318/base/".parse().unwrap());
        assert_eq!(
            urls(&otlp),
            pair("http://c:4318/base/v1/traces", "http://c:4318/base/v1/metrics")
        );
        otlp.metrics_endpoint = Some("http://m:1/custom".parse().unwrap());
        assert_eq!(urls(&otlp), pair("http://c:4318/base/v1/traces", "http://m:1/custom"));
        otlp.traces = false;
        assert_eq!(urls(&otlp), pair("none", "http://m:1/custom"));
        let logs = |otlp: &OtlpSettings| otlp.destinations().unwrap().logs.map(|to| to.url.to_string());
        assert_eq!(logs(&otlp), None);
        otlp.logs = true;
        assert_eq!(logs(&otlp).as_deref(), Some("http://c:4318/base/v1/logs"));
        otlp.logs_endpoint = Some("http://l:1/custom".parse().unwrap());
        assert_eq!(logs(&otlp).as_deref(), Some("http://l:1/custom"));
    }

    #[test]
    fn the_endpoint_and_headers_of_signals_that_are_not_sent_are_not_checked() {
        let off = |settings: OtlpSettings| OtlpSettings {
            traces: false,
            metrics: false,
            ..settings
        };
        let headers: BTreeMap<_, _> = [("two words".to_owned(), Secret::new("x"))].into();
        let with_headers = |settings: OtlpSettings| OtlpSettings {
            headers: headers.clone(),
            ..settings
        };
        for settings in [
            off(endpoint("collector:4318")),
            off(endpoint("https://me:hunter2@c")),
            off(with_headers(endpoint("http://c:4318"))),
            with_headers(OtlpSettings::default()),
        ] {
            let nowhere = settings.destinations().expect("settings that are not used");
            assert_eq!((nowhere.traces, nowhere.metrics), (None, None));
        }
        let traces_only = OtlpSettings {
            metrics: false,
            metrics_endpoint: Some("m:1".parse().unwrap()),
            ..endpoint("http://c:4318")
        };
        assert_eq!(traces(&traces_only).url, "http://c:4318/v1/traces");
        let metrics_too = OtlpSettings {
            metrics: true,
            ..traces_only
        };
        assert!(metrics_too.destinations().is_err());
    }

    #[test]
    fn mistakes_are_named_with_the_remedy() {
        let error = |settings: OtlpSettings| lines(&settings.destinations().expect_err("a mistake"));
        for without in ["c:4318", "localhost:4317", "c"] {
            assert_eq!(
                error(endpoint(without)),
                format!(
                    "bad setting `otlp.endpoint`: a URL without a scheme\nremedy: write http://{without}, or https://{without} for TLS"
                )
            );
        }
        assert_eq!(
            error(endpoint("https://me:hunter2@c")),
            "bad setting `otlp.endpoint`: a name and a password in the URL would not be sent\n\
             remedy: put them into a header (authorization, otlp.headers)"
        );
        let half = OtlpSettings {
            client_key: Some("/k".into()),
            ..OtlpSettings::default()
        };
        assert_eq!(
            error(half),
            "bad setting `otlp.client_certificate`: is not set\nremedy: set both, or unset otlp.client_key"
        );
        for bad in ["ftp://c", "http://", "http://a b"] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn header_values_are_never_shown() {
        let with = |name: &str, value: &str| OtlpSettings {
            headers: [(name.to_owned(), Secret::new(value))].into(),
            ..endpoint("http://c")
        };
        let good = with("authorization", "hunter2");
        let shown = format!("{good:?} {:?}", traces(&good));
        assert!(!shown.contains("hunter2") && shown.contains("authorization"), "{shown}");
        for (name, value) in [("two words", "hunter2"), ("authorization", "hunter2\n")] {
            let shown = lines(&with(name, value).destinations().expect_err("a bad header"));
            assert!(shown.contains(name) && !shown.contains("hunter2"), "{shown}");
        }
    }
}
