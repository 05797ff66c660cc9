//! What leaves the machine: traces and metrics to a collector, where one is configured.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{MetricExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::cli::SysExit;
use crate::config::{Config, Protocol};
use crate::sink::metrics::Metrics;
use crate::sink::otlp::{self, Headers, OtlpConfig, Settings};
use crate::verdict::table::TABLE;

use super::RuntimeError;

/// The exporters that run beside the loop.
pub struct Export {
    pub metrics: Arc<Metrics>,
    traces: Option<(otlp::Sink, otlp::Worker)>,
}

impl Export {
    /// Starts them on the current runtime. A collector that is not there yet is no error.
    pub fn start(config: &Config) -> Result<Export, RuntimeError> {
        let traces = match trace_settings(config)? {
            Some(settings) => Some(otlp::start(settings).map_err(wrong)?),
            None => None,
        };
        let resource = Resource::builder().with_attribute(KeyValue::new("service.name", "epitaph-agent")).build();
        let headlines = TABLE.iter().map(|row| (row.headline, row.unclean));
        let metrics = Metrics::new(resource, headlines, push(config)?).map_err(RuntimeError::os("start the metrics"))?;
        if let Some((sink, _)) = &traces {
            metrics.follow_export(sink.clone());
        }
        Ok(Export {
            metrics: Arc::new(metrics),
            traces,
        })
    }

    pub fn traces(&self) -> Option<otlp::Sink> {
        self.traces.as_ref().map(|(sink, _)| sink.clone())
    }

    /// Sends what waits, for `limit` at most each.
    pub async fn finish(self, limit: Duration) {
        if let Some((_, worker)) = self.traces {
            worker.shutdown(limit).await;
        }
        let metrics = self.metrics;
        // It waits for its own thread: not on the runtime's.
        let _ = tokio::task::spawn_blocking(move || {
            if let Err(error) = metrics.shutdown(limit) {
                tracing::debug!(%error, "the metrics ended with an error");
            }
        })
        .await;
    }
}

/// Where the traces go; None where nobody asked for them.
pub fn trace_settings(config: &Config) -> Result<Option<Settings>, RuntimeError> {
    let otlp = &config.otlp;
    let Some(url) = otlp.traces_url() else { return Ok(None) };
    OtlpConfig {
        traces_endpoint: Some(url),
        protocol: Some(match otlp.protocol {
            Protocol::Grpc => otlp::Protocol::Grpc,
            Protocol::HttpProtobuf => otlp::Protocol::HttpProtobuf,
        }),
        headers: Headers(
            otlp.headers
                .iter()
                .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                .collect(),
        ),
        timeout_ms: u64::try_from(otlp.timeout.as_millis()).ok(),
        certificate: otlp.certificate.clone(),
        client_certificate: otlp.client_certificate.clone(),
        client_key: otlp.client_key.clone(),
        queue: Some(config.limits.export_queue),
        ..OtlpConfig::default()
    }
    .settings()
    .map_err(wrong)
}

/// Metrics by OTLP. They are at `/metrics` whatever this says.
fn push(config: &Config) -> Result<Option<(MetricExporter, Duration)>, RuntimeError> {
    let otlp = &config.otlp;
    let Some(url) = otlp.metrics_url() else { return Ok(None) };
    if otlp.protocol != Protocol::Grpc {
        tracing::warn!("metrics go out by grpc only, and otlp.protocol is http/protobuf: read them at /metrics, or set otlp.metrics = false");
        return Ok(None);
    }
    let mut headers = tonic::metadata::MetadataMap::new();
    for (name, value) in &otlp.headers {
        let name: tonic::metadata::MetadataKey<_> = name.parse().map_err(wrong)?;
        headers.insert(name, value.expose().parse().map_err(wrong)?);
    }
    let mut builder = MetricExporter::builder().with_tonic().with_timeout(otlp.timeout).with_metadata(headers);
    if url.starts_with("https://") {
        let mut tls = ClientTlsConfig::new().with_native_roots();
        if let Some(authority) = &otlp.certificate {
            tls = tls.ca_certificate(Certificate::from_pem(read(authority)?));
        }
        if let (Some(certificate), Some(key)) = (&otlp.client_certificate, &otlp.client_key) {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        builder = builder.with_tls_config(tls);
    }
    let exporter = builder.with_endpoint(url).build().map_err(wrong)?;
    Ok(Some((exporter, otlp.metrics_interval)))
}

fn read(path: &Path) -> Result<Vec<u8>, RuntimeError> {
    std::fs::read(path).map_err(|error| wrong(format!("cannot read {}: {error}", path.display())))
}

fn wrong(error: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::new(SysExit::Config, error.to_string())
}
