//! What leaves the machine: traces and metrics to a collector, where one is configured.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use tokio::time::Instant;

use crate::cli::SysExit;
use crate::config::Config;
use crate::sink::metrics::Metrics;
use crate::sink::metrics::push::push;
use crate::sink::otlp;

use super::RuntimeError;

/// The exporters that run beside the loop.
pub struct Export {
    pub metrics: Arc<Metrics>,
    traces: Option<(otlp::Sink, otlp::Worker)>,
}

impl Export {
    /// Starts them on the current runtime. A collector that is not there yet is no error.
    pub fn start(config: &Config) -> Result<Export, RuntimeError> {
        let traces = match config.otlp.traces(config.limits.export_queue).map_err(wrong)? {
            Some(settings) => Some(otlp::start(settings).map_err(wrong)?),
            None => None,
        };
        let push = match config.otlp.metrics().map_err(wrong)? {
            Some(settings) => Some((push(settings).map_err(wrong)?, config.otlp.metrics_interval)),
            None => None,
        };
        let resource = Resource::builder()
            .with_attribute(KeyValue::new("service.name", "epitaph-agent"))
            .build();
        let metrics = Metrics::new(resource, push).map_err(RuntimeError::os("start the metrics"))?;
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

    /// Sends what waits, for `limit` at most: first traces, then the metrics with the final counts of them.
    pub async fn finish(self, limit: Duration) {
        let deadline = Instant::now() + limit;
        if let Some((_, worker)) = self.traces {
            worker.shutdown(limit).await;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if let Err(error) = self.metrics.shutdown(left).await {
            tracing::debug!(%error, "the metrics ended with an error");
        }
    }
}

/// A configuration that nothing can be started with.
pub fn wrong(error: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::new(SysExit::Config, error.to_string())
}
