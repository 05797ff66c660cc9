//! The meaning of a collector's answer: taken, refused, or no answer of a collector; with the remedy.
//!
//! <https://opentelemetry.io/docs/specs/otlp/#failures>

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use serde::Deserialize;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::error::chain;

/// The collector accepted the request, but refused so many of its spans for good.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::sink) struct Taken {
    pub refused_spans: u64,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sink) enum Failure {
    /// A later attempt may work; not before `after` if the collector asks for a delay.
    Later { reason: Reason, after: Option<Duration> },
    /// No later attempt will work.
    Never { reason: Reason, of: Refused },
}

/// Why no later attempt will work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sink) enum Refused {
    /// The content.
    Data,
    /// The destination has no such service or path: a server that takes traces only answers so to metrics.
    Signal,
    /// The sender or the destination.
    Destination,
}

/// Why the collector did not take a request, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub why: String,
    pub remedy: &'static str,
}

/// No answer at all.
const UNREACHABLE: &str = "start the collector, or correct `otlp.endpoint` (OTEL_EXPORTER_OTLP_ENDPOINT); in a cluster, check the name, \
                           the port and the network policies";
/// Of a server without TLS.
const PLAIN_TEXT: &str = "write http:// instead of https:// in `otlp.endpoint` (OTEL_EXPORTER_OTLP_ENDPOINT, --otlp), or give the port at which \
                          the collector expects TLS";
const BUSY: &str = "wait, or give the collector more resources or a longer queue; behind a proxy, start the collector";
const CREDENTIALS: &str = "set the credentials that the collector asks for: `otlp.headers` (OTEL_EXPORTER_OTLP_HEADERS), or \
                           `otlp.client_certificate` and `otlp.client_key`";
const OTHER_SERVER: &str = "correct host, port and path of `otlp.endpoint` (OTEL_EXPORTER_OTLP_ENDPOINT), or `otlp.protocol`: another server, such \
                            as a proxy, a login page or a user interface, answers there";
/// A collector without a pipeline for logs.
pub(super) const NO_LOGS: &str = "give the collector a pipeline for logs, name another server in `otlp.logs_endpoint` \
                                  (OTEL_EXPORTER_OTLP_LOGS_ENDPOINT), or set `otlp.logs = false`";
/// The collector has it, and does not want it.
pub(super) const CONTENT: &str =
    "read the collector's log: it does not accept the content, because of a limit, a processor or its storage";

/// A collector by HTTP that took the request. A login page with the status 200 did not.
pub(super) fn of_success(headers: &HeaderMap, body: Bytes) -> Result<Taken, Failure> {
    // Nothing was refused.
    if body.is_empty() {
        return Ok(Taken::default());
    }
    let kind = content_type(headers);
    match kind.as_deref() {
        None | Some("application/x-protobuf" | "application/protobuf" | "application/octet-stream") => {
            let answer = ExportTraceServiceResponse::decode(body);
            answer
                .map(taken)
                .map_err(|_| no_collector("its answer is not one of a collector"))
        }
        // Against the specification, but known of some.
        Some("application/json") => serde_json::from_slice::<serde_json::Map<_, _>>(&body)
            .and_then(|answer| serde_json::from_value::<JsonAnswer>(answer.into()))
            .map(JsonAnswer::taken)
            .map_err(|_| no_collector("its answer is not one of a collector")),
        Some(kind) => Err(no_collector(&format!("its answer is {}", kind.escape_debug()))),
    }
}

fn content_type(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// Nothing else: any server may answer with an object, such as `{"error":"login required"}`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct JsonAnswer {
    #[serde(alias = "partial_success")]
    partial_success: Option<JsonPartial>,
}

/// As JSON has a 64-bit number: as text or as a number.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct JsonPartial {
    #[serde(
        alias = "rejected_spans",
        alias = "rejectedDataPoints",
        alias = "rejected_data_points",
        alias = "rejectedLogRecords",
        alias = "rejected_log_records"
    )]
    rejected_spans: serde_json::Value,
    #[serde(alias = "error_message")]
    error_message: String,
}

impl JsonAnswer {
    fn taken(self) -> Taken {
        self.partial_success.map_or_else(Taken::default, |partial| Taken {
            refused_spans: match &partial.rejected_spans {
                serde_json::Value::String(text) => text.parse().unwrap_or(0),
                number => number.as_u64().unwrap_or(0),
            },
            message: partial.error_message,
        })
    }
}

pub(super) fn taken(response: ExportTraceServiceResponse) -> Taken {
    response.partial_success.map_or_else(Taken::default, |partial| Taken {
        refused_spans: u64::try_from(partial.rejected_spans).unwrap_or(0),
        message: partial.error_message,
    })
}

/// The answer of something else: as for HTTP 404, another destination may take the same request.
pub(super) fn no_collector(how: &str) -> Failure {
    Failure::Never {
        reason: Reason {
            why: format!("HTTP 200 OK, but {how}"),
            remedy: OTHER_SERVER,
        },
        of: Refused::Destination,
    }
}

pub(super) fn later(why: String) -> Failure {
    Failure::Later {
        reason: Reason {
            why,
            remedy: UNREACHABLE,
        },
        after: None,
    }
}

/// No connection, a reset, a failed handshake.
pub(super) fn unconnected(error: &(dyn Error + 'static)) -> Failure {
    if !is_plain_text(error) {
        return later(chain(error));
    }
    Failure::Later {
        reason: Reason {
            why: "the server does not speak TLS: its answer to the handshake is plain text".to_owned(),
            remedy: PLAIN_TEXT,
        },
        after: None,
    }
}

/// Whether a TLS handshake failed because what came is not a record of TLS.
fn is_plain_text(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source()).any(is_of_tls)
}

fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    if let Some(io) = error.downcast_ref::<std::io::Error>() {
        // Its source is that of the error that it wraps, and not that error.
        return io.get_ref().is_some_and(|wrapped| is_of_tls(wrapped));
    }
    matches!(
        error.downcast_ref(),
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))
    )
}

pub(super) fn of_status(status: &Status) -> Failure {
    // A local error.
    if let Some(source) = status.source() {
        return unconnected(source);
    }
    let why = format!("{:?}: {}", status.code(), status.message().escape_debug());
    let reason = |remedy| Reason { why, remedy };
    let after = status.get_details_retry_info().and_then(|info| info.retry_delay);
    match status.code() {
        Code::Cancelled | Code::DeadlineExceeded | Code::Aborted | Code::OutOfRange | Code::Unavailable | Code::DataLoss => {
            Failure::Later {
                reason: reason(BUSY),
                after,
            }
        }
        Code::ResourceExhausted if after.is_some() => Failure::Later {
            reason: reason(BUSY),
            after,
        },
        code => {
            let of = match code {
                Code::InvalidArgument | Code::ResourceExhausted => Refused::Data,
                Code::Internal if is_of_server(status) => Refused::Data,
                Code::Unimplemented => Refused::Signal,
                _ => Refused::Destination,
            };
            let remedy = match code {
                Code::Unauthenticated | Code::PermissionDenied => CREDENTIALS,
                _ if of == Refused::Data => CONTENT,
                _ => OTHER_SERVER,
            };
            Failure::Never {
                reason: reason(remedy),
                of,
            }
        }
    }
}

/// The client makes such statuses, too: of what is not gRPC, such as a proxy's page.
fn is_of_server(status: &Status) -> bool {
    let kind = content_type(&status.metadata().clone().into_headers());
    kind.is_some_and(|kind| kind.starts_with("application/grpc")) && !status.message().starts_with("protocol error: ")
}

/// `is_empty`: the answer has no body.
pub(super) fn of_http(status: StatusCode, headers: &HeaderMap, is_empty: bool) -> Failure {
    let kind = content_type(headers);
    let is_of_collector = is_empty || matches!(kind.as_deref(), Some("application/x-protobuf" | "application/json"));
    let reason = |remedy| Reason {
        why: format!("HTTP {status}"),
        remedy,
    };
    match status.as_u16() {
        429 | 502 | 503 | 504 => Failure::Later {
            reason: reason(BUSY),
            after: retry_after(headers),
        },
        401 | 403 | 407 => Failure::Never {
            reason: reason(CREDENTIALS),
            of: Refused::Destination,
        },
        400 | 413 | 422 | 500 if is_of_collector => Failure::Never {
            reason: reason(CONTENT),
            of: Refused::Data,
        },
        400 | 413 | 422 | 500 => Failure::Never {
            reason: Reason {
                why: format!(
                    "HTTP {status}, but something else than a collector answers: {}",
                    kind.as_deref().unwrap_or("text of no type").escape_debug()
                ),
                remedy: OTHER_SERVER,
            },
            of: Refused::Destination,
        },
        code => Failure::Never {
            reason: reason(OTHER_SERVER),
            of: match code {
                404 => Refused::Signal,
                _ => Refused::Destination,
            },
        },
    }
}

/// Seconds, or a date, which is compared with the answer's own: both are by the server's clock. What is past is now.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let after = text(header::RETRY_AFTER)?;
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text| httpdate::parse_http_date(text).ok();
    let (at, now) = (date(after)?, date(text(header::DATE)?)?);
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_asks_for_a_pause_in_seconds_or_until_a_date() {
        let after = |text: &str| {
            let date = "Wed, 25 Nov 2026 12:00:00 GMT";
            let named = [(header::RETRY_AFTER, text), (header::DATE, date)];
            retry_after(
                &named
                    .map(|(name, text)| (name, text.parse().expect("a value")))
                    .into_iter()
                    .collect(),
            )
        };
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        assert_eq!(after("Wed, 25 Nov 2026 12:01:00 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(after("Wed, 25 Nov 2026 11:59:59 GMT"), Some(Duration::ZERO));
        for text in ["", "-1", "soon", "Wed, 99 Nov 2026 00:00:00 GMT"] {
            assert_eq!(after(text), None, "{text}");
        }
    }

    fn answered(kind: Option<&str>, body: &'static [u8]) -> Result<Taken, Failure> {
        let kind = kind.map(|kind| (header::CONTENT_TYPE, kind.parse().expect("a value")));
        of_success(&kind.into_iter().collect(), Bytes::from_static(body))
    }

    const PROTOBUF: Option<&str> = Some("application/x-protobuf");

    #[test]
    fn only_the_answer_of_a_collector_is_a_delivery() {
        let refused = |refused_spans, message: &str| {
            Ok(Taken {
                refused_spans,
                message: message.to_owned(),
            })
        };
        for (kind, body, expected) in [
            (None, b"".as_slice(), refused(0, "")),
            (PROTOBUF, b"", refused(0, "")),
            (Some("text/html"), b"", refused(0, "")),
            (None, b"\x0a\x06\x08\x02\x12\x02no", refused(2, "no")),
            (PROTOBUF, b"\x0a\x06\x08\x02\x12\x02no", refused(2, "no")),
            // An unknown field: a newer collector.
            (PROTOBUF, b"\x10\x01", refused(0, "")),
            (Some("application/json; charset=utf-8"), b"{}", refused(0, "")),
            (
                Some("application/json"),
                br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#,
                refused(3, "no"),
            ),
            (
                Some("application/json"),
                br#"{"partialSuccess":{"rejectedSpans":3}}"#,
                refused(3, ""),
            ),
            (
                Some("application/json"),
                br#"{"partial_success":{"rejected_spans":3,"error_message":"no"}}"#,
                refused(3, "no"),
            ),
            (
                Some("application/json"),
                br#"{"partialSuccess":{"rejectedDataPoints":"3"}}"#,
                refused(3, ""),
            ),
            (Some("application/json"), br#"{"partialSuccess":null}"#, refused(0, "")),
        ] {
            assert_eq!(answered(kind, body), expected, "{kind:?} {body:?}");
        }
        for (kind, body) in [
            (PROTOBUF, b"<html>hello</html>".as_slice()),
            (None, b"<html>hello</html>"),
            (Some("text/html; charset=utf-8"), b"<html>hello</html>"),
            (Some("text/plain"), b"ok"),
            (Some("application/json"), b"<html>"),
            (Some("application/json"), b"[]1"),
            (Some("application/json"), b"[]"),
            (Some("application/json"), br#"{"error":"login required"}"#),
            (Some("application/json"), br#"{"partialSuccess":{},"status":"ok"}"#),
            (Some("application/json"), br#"{"partialSuccess":{"code":401}}"#),
        ] {
            let Err(Failure::Never {
                reason,
                of: Refused::Destination,
            }) = answered(kind, body)
            else {
                panic!("{kind:?} {body:?}")
            };
            assert!(reason.why.starts_with("HTTP 200 OK, but "), "{reason:?}");
            assert_eq!(reason.remedy, OTHER_SERVER);
        }
    }

    #[test]
    fn the_remedy_fits_the_answer() {
        let remedy = |failure| match failure {
            Failure::Later { reason, .. } | Failure::Never { reason, .. } => reason.remedy,
        };
        for (code, expected) in [
            (400, CONTENT),
            (401, CREDENTIALS),
            (403, CREDENTIALS),
            (404, OTHER_SERVER),
            (302, OTHER_SERVER),
            (429, BUSY),
            (500, CONTENT),
            (503, BUSY),
        ] {
            let status = StatusCode::from_u16(code).expect("a status");
            assert_eq!(remedy(of_http(status, &HeaderMap::new(), true)), expected, "{code}");
        }
        for (code, expected) in [
            (Code::Unauthenticated, CREDENTIALS),
            (Code::InvalidArgument, CONTENT),
            (Code::Unimplemented, OTHER_SERVER),
            (Code::Unavailable, BUSY),
        ] {
            assert_eq!(remedy(of_status(&Status::new(code, "x"))), expected, "{code:?}");
        }
        assert_eq!(remedy(later("connection refused".to_owned())), UNREACHABLE);
    }

    /// Data that is refused for good is given up: only a collector decides that.
    #[test]
    fn only_a_collector_refuses_the_content() {
        let of_http = |code, kind: Option<&str>, is_empty| {
            let kind = kind.map(|kind| (header::CONTENT_TYPE, kind.parse().unwrap()));
            let status = StatusCode::from_u16(code).unwrap();
            of_http(status, &kind.into_iter().collect(), is_empty)
        };
        let is_data = |failure| matches!(failure, Failure::Never { of: Refused::Data, .. });
        for code in [400, 413, 422, 500] {
            assert!(is_data(of_http(code, PROTOBUF, false)), "{code}");
            assert!(
                is_data(of_http(code, Some("application/json; charset=utf-8"), false)),
                "{code}"
            );
            assert!(is_data(of_http(code, Some("text/html"), true)), "{code}");
            for kind in [None, Some("text/html"), Some("text/plain; charset=utf-8")] {
                let Failure::Never {
                    reason,
                    of: Refused::Destination,
                } = of_http(code, kind, false)
                else {
                    panic!("{code} {kind:?}")
                };
                assert!(reason.why.contains("something else than a collector answers"), "{reason:?}");
                assert_eq!(reason.remedy, OTHER_SERVER);
            }
        }
        let of_grpc = |message: &str, kind: Option<&'static str>| {
            let mut status = Status::internal(message);
            if let Some(kind) = kind {
                status.metadata_mut().insert("content-type", kind.parse().unwrap());
            }
            of_status(&status)
        };
        assert!(is_data(of_grpc("storage", Some("application/grpc"))));
        for (message, kind) in [
            (
                "protocol error: received message with invalid compression flag: 60",
                Some("text/html"),
            ),
            (
                "protocol error: received message with invalid compression flag: 60",
                Some("application/grpc"),
            ),
            (
                "grpc-status header missing, mapped from HTTP status code 400",
                Some("text/html"),
            ),
            ("Missing response message.", None),
        ] {
            assert!(!is_data(of_grpc(message, kind)), "{message}");
        }
    }
}
