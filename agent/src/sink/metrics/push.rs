//! Metrics to the collector, over the same transport as traces.
//!
//! The SDK's reader blocks in its own thread; the connection lives in a task on the agent's runtime. Nothing is retried: metrics
//! are cumulative, so that the next export includes the values of a failed one.

use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};

use crate::sink::otlp::transport::{METRICS, Transport};
use crate::sink::otlp::{BuildError, Destination, Failure, Refused};

/// For a server that takes traces only.
const UNWANTED: &str = "set `otlp.metrics = false` (OTEL_METRICS_EXPORTER=none), or name another server in `otlp.metrics_endpoint`; `/metrics` of \
                        an agent has all of them";

type Export = (Bytes, oneshot::Sender<OTelSdkResult>);

/// Passes each export to the task that owns the connection.
#[derive(Debug)]
pub struct Push {
    exports: mpsc::Sender<Export>,
}

/// Starts the task on the current Tokio runtime; it ends with the exporter.
///
/// # Errors
/// A certificate or key that cannot be read or used.
///
/// # Panics
/// Outside a Tokio runtime.
pub fn push(to: Destination) -> Result<Push, BuildError> {
    let mut transport = Transport::new(to, METRICS)?;
    let (exports, mut waiting) = mpsc::channel::<Export>(1);
    tokio::spawn(async move {
        // A repeated failure is logged once.
        let mut failing = false;
        let mut unwanted = false;
        while let Some((request, done)) = waiting.recv().await {
            let result = match transport.send(&request).await {
                Ok(taken) => {
                    if !taken.message.is_empty() {
                        tracing::warn!(message = %taken.message.escape_debug(), "the collector refused some metrics");
                    }
                    failing = false;
                    Ok(())
                }
                // A server for traces only, such as Jaeger: nothing failed.
                Err(Failure::Never {
                    reason,
                    of: Refused::Signal,
                }) => {
                    if !std::mem::replace(&mut unwanted, true) {
                        tracing::info!(
                            collector = %transport.url(),
                            answer = reason.why,
                            remedy = UNWANTED,
                            "the collector takes no metrics"
                        );
                    }
                    failing = false;
                    Ok(())
                }
                Err(Failure::Later { reason, .. } | Failure::Never { reason, .. }) => {
                    if !failing {
                        tracing::warn!(
                            collector = %transport.url(),
                            reason = reason.why,
                            remedy = reason.remedy,
                            "metrics did not reach the collector; each export has the totals, so that a later one includes them"
                        );
                    }
                    failing = true;
                    Err(OTelSdkError::InternalFailure(reason.why))
                }
            };
            let _ = done.send(result);
        }
    });
    Ok(Push { exports })
}

impl PushMetricExporter for Push {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let request = Bytes::from(ExportMetricsServiceRequest::from(metrics).encode_to_vec());
        let (done, result) = oneshot::channel();
        self.exports
            .send((request, done))
            .await
            .map_err(|_| OTelSdkError::AlreadyShutdown)?;
        result.await.map_err(|_| OTelSdkError::AlreadyShutdown)?
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
    use opentelemetry_sdk::Resource;

    use super::super::Metrics;
    use super::*;
    use crate::config::OtlpSettings;
    use crate::sink::otlp::Protocol;
    use crate::sink::otlp::collector::{Collector, Reply, free_port};
    use epitaph_core::event::Kind;

    #[tokio::test]
    async fn a_shutdown_sends_the_counts_by_both_protocols() {
        for (protocol, path) in [
            (Protocol::HttpProtobuf, "/v1/metrics"),
            (
                Protocol::Grpc,
                "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            ),
        ] {
            let collector = Collector::start(|_, _| Reply::Take).await;
            let endpoint = Some(format!("http://{}", collector.address).parse().unwrap());
            let otlp = OtlpSettings {
                endpoint,
                protocol: Some(protocol),
                ..OtlpSettings::default()
            };
            let push = push(otlp.destinations().unwrap().metrics.unwrap()).unwrap();
            let interval = Duration::from_secs(3600);
            let metrics = Arc::new(Metrics::new(Resource::builder_empty().build(), Some((push, interval)), 10).unwrap());
            metrics.lost(Kind::Tcp, 5);
            metrics.shutdown(Duration::from_secs(30)).await.unwrap();

            let received = collector.received();
            assert_eq!((received.len(), received[0].path.as_str()), (1, path));
            let request = ExportMetricsServiceRequest::decode(received[0].body.clone()).unwrap();
            let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
            let lost = metrics.iter().find(|m| m.name == "epitaph.records.lost").unwrap();
            let Some(Data::Sum(sum)) = &lost.data else {
                panic!("not a sum: {lost:?}")
            };
            assert_eq!(sum.data_points.len(), Kind::ALL.len());
            assert!(sum.data_points.iter().any(|p| p.value == Some(Value::AsInt(5))), "{sum:?}");
            assert!(sum.is_monotonic);
        }
    }

    /// Jaeger answers so.
    #[tokio::test]
    async fn a_server_that_takes_no_metrics_is_not_a_failure() {
        for (protocol, code) in [
            (Protocol::Grpc, tonic::Code::Unimplemented),
            (Protocol::HttpProtobuf, tonic::Code::NotFound),
        ] {
            let collector = Collector::start(move |_, _| Reply::Refuse(code)).await;
            let endpoint = Some(format!("http://{}", collector.address).parse().unwrap());
            let otlp = OtlpSettings {
                endpoint,
                protocol: Some(protocol),
                ..OtlpSettings::default()
            };
            let push = push(otlp.destinations().unwrap().metrics.unwrap()).unwrap();
            let interval = Duration::from_secs(3600);
            let metrics = Arc::new(Metrics::new(Resource::builder_empty().build(), Some((push, interval)), 10).unwrap());
            let ended = metrics.shutdown(Duration::from_secs(30)).await;
            assert!(ended.is_ok() && collector.received().len() == 1, "{protocol:?}: {ended:?}");
        }
    }

    #[tokio::test]
    async fn a_missing_collector_is_an_error_and_not_a_hang() {
        let gone = format!("127.0.0.1:{}", free_port());
        for protocol in [Protocol::Grpc, Protocol::HttpProtobuf] {
            let endpoint = Some(format!("http://{gone}").parse().unwrap());
            let otlp = OtlpSettings {
                endpoint,
                protocol: Some(protocol),
                ..OtlpSettings::default()
            };
            let push = push(otlp.destinations().unwrap().metrics.unwrap()).unwrap();
            let metrics =
                Arc::new(Metrics::new(Resource::builder_empty().build(), Some((push, Duration::from_secs(3600))), 10).unwrap());
            assert!(metrics.shutdown(Duration::from_secs(30)).await.is_err());
        }
    }
}
