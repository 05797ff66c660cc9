//! The agent's own spans: a tracing layer with its own provider, service name and sink, separate from the traces of
//! terminations.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use super::otlp::{BuildError, Delivery, Destination, ExportWorker, Signal, Sink, SpanStats, start as start_sink};
use crate::render::span::Trace;

/// A layer that sends the agent's spans under `resource`, and the guard that flushes them.
///
/// # Errors
/// As for [`super::otlp::start`].
///
/// # Panics
/// Outside a Tokio runtime.
pub fn start<S>(to: Destination, delivery: Delivery, resource: Resource) -> Result<(impl Layer<S> + use<S>, Guard), BuildError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let (sink, worker) = start_sink(Signal::Traces, to, delivery)?;
    let to_sink = ToSink {
        sink: sink.clone(),
        resource: resource.clone(),
    };
    let provider = SdkTracerProvider::builder()
        .with_span_processor(to_sink)
        .with_resource(resource)
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("epitaph"))
        .with_filter(own_targets());
    Ok((layer, Guard { provider, sink, worker }))
}

/// Spans of epitaph except the sending code: a span of h2, hyper or the sink would cause the next request, in an endless loop.
fn own_targets() -> Targets {
    Targets::new()
        .with_target("epitaph", LevelFilter::INFO)
        .with_target("epitaph::sink::otlp", LevelFilter::OFF)
}

/// Dropped without [`Guard::shutdown`], queued spans may be lost.
#[derive(Debug)]
pub struct Guard {
    provider: SdkTracerProvider,
    sink: Sink,
    worker: ExportWorker,
}

impl Guard {
    /// Ends the provider and sends the queued spans, for `deadline` at most.
    pub async fn shutdown(self, deadline: Duration) {
        // Our processor has no queue, so that this call does not wait.
        if let Err(error) = self.provider.shutdown() {
            tracing::warn!(%error, "cannot shut down the provider of the agent's own spans");
        }
        self.worker.shutdown(deadline).await;
    }

    pub fn stats(&self) -> &SpanStats {
        self.sink.stats()
    }
}

/// In place of the SDK's batch processor, which has its own thread, drops spans without a readable count, and deadlocks with a
/// current-thread runtime at shutdown. The sink's worker makes the batches.
#[derive(Debug)]
struct ToSink {
    sink: Sink,
    resource: Resource,
}

impl SpanProcessor for ToSink {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            let trace = Trace {
                resource: self.resource.clone(),
                spans: vec![span],
            };
            self.sink.offer(&trace, "own-span");
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::config::OtlpSettings;
    use crate::sink::otlp::collector::{Collector, Reply};

    #[tokio::test]
    async fn own_spans_are_exported_except_those_of_the_export() {
        let collector = Collector::start(|_, _| Reply::Take).await;
        let settings = OtlpSettings {
            endpoint: Some(format!("http://{}", collector.address).parse().expect("an endpoint")),
            ..OtlpSettings::default()
        };
        let to = settings.destinations().expect("valid settings").traces.expect("an endpoint");
        let resource = Resource::builder_empty().with_service_name("epitaph-agent").build();
        let (layer, guard) = start(to, Delivery::with_queue(2_048), resource).expect("a layer");

        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let outer = tracing::info_span!(target: "epitaph::runtime", "load probes").entered();
            for target_is_foreign in [
                tracing::info_span!(target: "h2::client", "send"),
                tracing::info_span!(target: "hyper_util::client", "connect"),
                tracing::info_span!(target: "tonic::transport", "call"),
                tracing::info_span!(target: "opentelemetry_sdk", "export"),
                tracing::info_span!(target: "epitaph::sink::otlp::worker", "deliver"),
            ] {
                drop(target_is_foreign.entered());
            }
            drop(tracing::info_span!(target: "epitaph::source", "scan").entered());
            drop(outer);
        });
        let exported = guard.sink.clone();
        guard.shutdown(Duration::from_secs(60)).await;

        assert_eq!(exported.stats().exported(), 2);
        let received = collector.received();
        let spans: Vec<_> = received.iter().flat_map(|r| r.spans()).collect();
        let mut names: Vec<_> = spans.iter().map(|s| s.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["load probes", "scan"]);
        assert_eq!(spans[0].trace_id, spans[1].trace_id);
        let resources = received.iter().flat_map(|r| r.request().resource_spans);
        for resource in resources.map(|r| r.resource.expect("a resource")) {
            let service = resource
                .attributes
                .iter()
                .find(|a| a.key == "service.name")
                .expect("a service");
            let value = service.value.as_ref().and_then(|v| v.value.as_ref());
            assert_eq!(format!("{value:?}"), r#"Some(StringValue("epitaph-agent"))"#);
        }
    }
}
