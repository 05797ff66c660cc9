//! One request to a collector: gRPC and http/protobuf over one HTTP client and one TLS stack.
//!
//! Not `opentelemetry-otlp`'s exporters: they return no partial success, no status code and no retry delay, read the
//! environment implicitly, and retry by themselves.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;

use super::answer::{Failure, Refused, Taken, later, no_collector, of_http, of_status, of_success, taken, unconnected};
use super::destination::{Compression, Destination, Identity, Protocol};
use crate::error::{HasRemedy, Remedy, chain};

pub(in crate::sink) const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The metrics' answer has the fields of the traces' answer, under the same numbers.
pub(in crate::sink) const METRICS: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
/// The same holds for the logs' answer.
pub(super) const LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
/// An answer is a few bytes, or a proxy's error page.
const ANSWER_LIMIT: usize = 256 * 1024;

const AUTHORITIES: &str = "certificate authorities";

#[derive(Debug, Error)]
pub enum BuildError {
    #[error("cannot read {what} {}: {why}", path.display())]
    Pem { what: &'static str, path: PathBuf, why: String },
    #[error("cannot read the system's certificate authorities: {0}")]
    NativeRoots(std::io::Error),
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl HasRemedy for BuildError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            BuildError::Pem { what, .. } => {
                let setting = what.replace(AUTHORITIES, "certificate").replace(' ', "_");
                Some(format!("name a PEM file that this user can read with otlp.{setting}; in a cluster, check that the pod mounts the file").into())
            }
            BuildError::NativeRoots(_) => Some("install ca-certificates, or name a PEM file with otlp.certificate".into()),
            BuildError::Tls(_) => None,
        }
    }
}

pub(in crate::sink) struct Transport {
    to: Destination,
    /// The gRPC method; http/protobuf has it in the URL.
    method: &'static str,
    connector: HttpsConnector<HttpConnector>,
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

impl Transport {
    pub(in crate::sink) fn new(to: Destination, method: &'static str) -> Result<Transport, BuildError> {
        let connector = connector(&to)?;
        let client = client(&to, &connector);
        Ok(Transport {
            to,
            method,
            connector,
            client,
        })
    }

    /// Without user and password: the configuration refuses them.
    pub(in crate::sink) fn url(&self) -> &http::Uri {
        &self.to.url
    }

    /// One attempt, with the configured timeout.
    pub(in crate::sink) async fn send(&mut self, request: &Bytes) -> Result<Taken, Failure> {
        let attempt = async {
            match self.to.protocol {
                Protocol::Grpc => self.send_grpc(request).await,
                Protocol::HttpProtobuf => self.send_http(request).await,
            }
        };
        let timeout = self.to.timeout;
        let result = tokio::time::timeout(timeout, attempt).await;
        let result = result.unwrap_or_else(|_| Err(later(format!("no answer within {timeout:?}"))));
        if matches!(
            result,
            Err(Failure::Later { .. }
                | Failure::Never {
                    of: Refused::Signal | Refused::Destination,
                    ..
                })
        ) {
            // A connection to a peer that went silent would swallow the next attempt, too; another one may lead to the collector.
            self.client = client(&self.to, &self.connector);
        }
        result
    }

    async fn send_grpc(&self, request: &Bytes) -> Result<Taken, Failure> {
        let mut grpc = tonic::client::Grpc::with_origin(self.client.clone(), self.to.url.clone());
        if self.to.compression == Compression::Gzip {
            grpc = grpc.send_compressed(CompressionEncoding::Gzip);
        }
        let mut call = tonic::Request::new(request.clone());
        *call.metadata_mut() = MetadataMap::from_headers(self.headers());
        match grpc.unary(call, PathAndQuery::from_static(self.method), Encoded).await {
            Ok(response) => Ok(taken(response.into_inner())),
            Err(status) => Err(of_status(&status)),
        }
    }

    async fn send_http(&self, request: &Bytes) -> Result<Taken, Failure> {
        let mut call = Request::post(self.to.url.clone());
        if let Some(headers) = call.headers_mut() {
            *headers = self.headers();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        }
        let body = match self.to.compression {
            Compression::None => request.clone(),
            Compression::Gzip => {
                call = call.header(header::CONTENT_ENCODING, "gzip");
                gzip(request)
            }
        };
        let call = call.body(Body::new(Full::new(body))).map_err(|e| later(chain(&e)))?;
        let response = self.client.request(call).await.map_err(|e| unconnected(&e))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_LIMIT).collect().await;
        if !head.status.is_success() {
            let is_empty = body.is_ok_and(|body| body.to_bytes().is_empty());
            return Err(of_http(head.status, &head.headers, is_empty));
        }
        // A collector's answer is shorter than the limit. One that broke off may have been a delivery: the same bytes again do no harm.
        let body = body
            .map(|body| body.to_bytes())
            .map_err(|error| match error.is::<LengthLimitError>() {
                true => no_collector("its answer is too long"),
                false => later(chain(&*error)),
            })?;
        of_success(&head.headers, body)
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = self.to.headers.clone();
        headers
            .entry(header::USER_AGENT)
            .or_insert(HeaderValue::from_static(concat!("epitaph/", env!("CARGO_PKG_VERSION"))));
        headers
    }
}

fn client(to: &Destination, connector: &HttpsConnector<HttpConnector>) -> Client<HttpsConnector<HttpConnector>, Body> {
    // gRPC is HTTP/2 from the first byte, also without TLS.
    Client::builder(TokioExecutor::new())
        .http2_only(to.protocol == Protocol::Grpc)
        .build(connector.clone())
}

fn connector(to: &Destination) -> Result<HttpsConnector<HttpConnector>, BuildError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = tls(to)?;
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    Ok(match to.protocol {
        Protocol::Grpc => builder.enable_http2().wrap_connector(tcp),
        Protocol::HttpProtobuf => builder.enable_http1().enable_http2().wrap_connector(tcp),
    })
}

fn tls(to: &Destination) -> Result<rustls::ClientConfig, BuildError> {
    // Named explicitly, so that a provider which another crate installs as the process's default does not matter.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match &to.authorities {
        Some(path) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in certificates(AUTHORITIES, path)? {
                roots.add(certificate)?;
            }
            builder.with_root_certificates(roots)
        }
        // The system's authorities are needed for TLS only, and an image may lack them.
        None if to.url.scheme() != Some(&Scheme::HTTPS) => builder.with_root_certificates(rustls::RootCertStore::empty()),
        None => builder.with_native_roots().map_err(BuildError::NativeRoots)?,
    };
    Ok(match &to.identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = certificates("client certificate", certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| pem_error("client key", key, &e))?;
            builder.with_client_auth_cert(chain, key)?
        }
    })
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, BuildError> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all {
        Ok(found) if found.is_empty() => Err(BuildError::Pem {
            what,
            path: path.into(),
            why: "no certificate in it".into(),
        }),
        Ok(found) => Ok(found),
        Err(e) => Err(pem_error(what, path, &e)),
    }
}

fn pem_error(what: &'static str, path: &Path, error: &rustls::pki_types::pem::Error) -> BuildError {
    BuildError::Pem {
        what,
        path: path.into(),
        why: error.to_string(),
    }
}

fn gzip(data: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    // Writing to a Vec does not fail.
    let _ = encoder.write_all(data);
    encoder.finish().unwrap_or_default().into()
}

/// A request that is already encoded: a retry sends the same bytes.
#[derive(Clone, Copy)]
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = ExportTraceServiceResponse;
    type Encoder = Encoded;
    type Decoder = Encoded;
    fn encoder(&mut self) -> Encoded {
        Encoded
    }
    fn decoder(&mut self) -> Encoded {
        Encoded
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, request: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(request);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = ExportTraceServiceResponse;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<ExportTraceServiceResponse>, Status> {
        let answer = from.copy_to_bytes(from.remaining());
        // The request was accepted: a broken answer is not a reason to send it again.
        Ok(Some(ExportTraceServiceResponse::decode(answer).unwrap_or_default()))
    }
}
