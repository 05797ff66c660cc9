//! A trace on its way to the collector: encoded once, so that every attempt sends the same bytes.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use prost::Message as _;

use crate::render::span::Trace;

/// A request that is also kept elsewhere, on disk: the queue can give up its bytes, and a later process sends it again until it is
/// answered.
pub trait Kept: Send + Sync {
    /// The same bytes. Blocks.
    ///
    /// # Errors
    /// The request cannot be read (any more).
    fn read(&self) -> io::Result<Bytes>;
    /// False if the request was removed, so that [`Kept::read`] can only fail.
    fn is_there(&self) -> bool;
    /// The collector accepted the request, or refused it for its content: it is never sent again.
    fn answered(&self);
}

/// The encoded request of one trace, or of its log record.
#[derive(Clone)]
pub struct Parcel {
    /// Number of spans, or of log records, in the request.
    pub items: u64,
    /// The verdict's headline, for the count of what is given up.
    pub verdict: Arc<str>,
    /// None: only kept elsewhere.
    pub request: Option<Bytes>,
    pub kept: Option<Arc<dyn Kept>>,
}

impl Parcel {
    pub fn of(trace: &Trace, verdict: &str) -> Parcel {
        Parcel {
            items: trace.spans.len() as u64,
            verdict: verdict.into(),
            request: Some(encode(trace)),
            kept: None,
        }
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel")
            .field("items", &self.items)
            .field("verdict", &self.verdict)
            .field("held", &self.request.is_some())
            .field("kept", &self.kept.is_some())
            .finish()
    }
}

/// The request's bytes, the same for the same trace in every process. Requests one after the other are one request with all their
/// traces.
pub fn encode(trace: &Trace) -> Bytes {
    let mut resource = ResourceAttributesWithSchema::from(&trace.resource);
    // A `Resource` is a hash map: the order differs between instances.
    resource.attributes.0.sort_by(|a, b| a.key.cmp(&b.key));
    let resource_spans = group_spans_by_resource_and_scope(trace.spans.clone(), &resource);
    ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
}
