//! A termination as a log record, for those who have a store of logs and none of traces.
//!
//! The record is made of the encoded trace, which the journal keeps: after a restart it has the same bytes.

use bytes::Bytes;
use opentelemetry::trace::TraceFlags;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;

use crate::render::attributes::key;

/// The request for logs that belongs to a request for traces, with a record for each trace whose first span has a verdict. None: there is
/// no such trace, as of a node's time without power. The bytes are the same in every process.
///
/// # Errors
/// These are not the bytes of a request for traces.
pub fn of_spans(request: &[u8]) -> Result<Option<Bytes>, prost::DecodeError> {
    let request = ExportTraceServiceRequest::decode(request)?;
    let resource_logs: Vec<ResourceLogs> = request.resource_spans.into_iter().filter_map(of_resource).collect();
    let request = ExportLogsServiceRequest { resource_logs };
    Ok((!request.resource_logs.is_empty()).then(|| request.encode_to_vec().into()))
}

fn of_resource(spans: ResourceSpans) -> Option<ResourceLogs> {
    let first = spans.scope_spans.into_iter().next()?;
    Some(ResourceLogs {
        scope_logs: vec![of_scope(first)?],
        resource: spans.resource,
        schema_url: spans.schema_url,
    })
}

fn of_scope(spans: ScopeSpans) -> Option<ScopeLogs> {
    // Parents come first.
    let record = record(spans.spans.into_iter().next()?)?;
    Some(ScopeLogs {
        scope: spans.scope,
        log_records: vec![record],
        schema_url: spans.schema_url,
    })
}

fn record(span: Span) -> Option<LogRecord> {
    text(&span, key::VERDICT)?;
    let severity = text(&span, key::SEVERITY).unwrap_or_default().to_owned();
    let body = text(&span, key::SENTENCE).map(string);
    let kind = span.name.split(' ').next().unwrap_or_default();
    Some(LogRecord {
        time_unix_nano: span.end_time_unix_nano,
        // Not the time of the export: an attempt after a restart has the same bytes.
        observed_time_unix_nano: span.end_time_unix_nano,
        severity_number: match severity.as_str() {
            "critical" => SeverityNumber::Error,
            "warning" => SeverityNumber::Warn,
            _ => SeverityNumber::Info,
        }
        .into(),
        severity_text: severity,
        body,
        event_name: format!("epitaph.{kind}"),
        attributes: span.attributes,
        dropped_attributes_count: 0,
        flags: TraceFlags::SAMPLED.to_u8().into(),
        trace_id: span.trace_id,
        span_id: span.span_id,
    })
}

fn string(text: &str) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(text.to_owned())),
    }
}

fn text<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use epitaph_core::fixtures::terminations::{clean, ignored, observation};

    use super::super::encode;
    use super::*;
    use crate::render::span::{Options, Trace, trace};

    fn records(trace: &Trace) -> Vec<LogRecord> {
        let logs = of_spans(&encode(trace)).expect("a request for traces").unwrap_or_default();
        let request = ExportLogsServiceRequest::decode(logs).expect("a request for logs");
        let scopes = request.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
        scopes.flat_map(|scope| scope.log_records).collect()
    }

    #[test]
    fn a_record_has_the_sentence_the_severity_and_the_place_in_the_trace() {
        let unclean = trace(&ignored(1), &observation(), &Options::default());
        let [record] = records(&unclean).try_into().expect("one record");
        let root = &unclean.spans[0];
        assert_eq!(record.event_name, "epitaph.container.stop");
        assert_eq!(record.trace_id, root.span_context.trace_id().to_bytes());
        assert_eq!(record.span_id, root.span_context.span_id().to_bytes());
        assert_eq!(
            (record.severity_number(), record.severity_text.as_str()),
            (SeverityNumber::Error, "critical")
        );
        assert_eq!(record.body, Some(string(&ignored(1).verdict.sentence)));
        let mut keys: Vec<&str> = record.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
        keys.sort_unstable();
        let mut of_span: Vec<&str> = root.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
        of_span.sort_unstable();
        assert_eq!(keys, of_span);

        let clean = trace(&clean(2), &observation(), &Options::default());
        let [record] = records(&clean).try_into().expect("one record");
        assert_eq!(record.severity_number(), SeverityNumber::Info);
    }

    #[test]
    fn the_bytes_are_the_same_each_time_and_a_trace_without_a_verdict_has_none() {
        let mut trace = trace(&ignored(1), &observation(), &Options::default());
        let request = encode(&trace);
        assert_eq!(of_spans(&request), of_spans(&request));
        // As `node.down`.
        trace.spans[0]
            .attributes
            .retain(|attribute| attribute.key.as_str() != key::VERDICT);
        assert_eq!(of_spans(&encode(&trace)), Ok(None));
        assert!(of_spans(b"no request").is_err());
    }
}
