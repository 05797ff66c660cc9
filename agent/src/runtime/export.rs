//! Export from the machine: traces and metrics to a collector, if one is configured.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use tokio::time::Instant;

use crate::config::Config;
use crate::render::attributes::key;
use crate::sink::metrics::Metrics;
use crate::sink::metrics::push::{Push, push};
use crate::sink::otlp::{self, Delivery, ExportWorker, Exporters, Signal};

use super::{RuntimeError, privileges};

/// The exporters, which run concurrently with the loop.
pub struct Export {
    pub metrics: Arc<Metrics>,
    exporters: Exporters,
    workers: Vec<ExportWorker>,
}

impl Export {
    /// Starts the exporters on the current runtime. A collector that does not answer yet is not an error.
    pub fn start(config: &Config) -> Result<Export, RuntimeError> {
        Export::with(config, Metrics::new)
    }

    /// As [`Export::start`], without the export of metrics.
    pub fn of_recording(config: &Config) -> Result<Export, RuntimeError> {
        let mut config = config.clone();
        config.otlp.metrics = false;
        Export::start(&config)
    }

    /// As [`Export::start`], with an observer's metrics.
    pub fn of_observer(config: &Config) -> Result<Export, RuntimeError> {
        Export::with(config, Metrics::empty)
    }

    fn with(
        config: &Config,
        metrics: impl FnOnce(Resource, Option<(Push, Duration)>, usize) -> Result<Metrics, OTelSdkError> + Send,
    ) -> Result<Export, RuntimeError> {
        let to = config.otlp.destinations()?;
        let delivery = Delivery::with_queue(config.limits.export_queue);
        let (mut sinks, mut workers) = (Vec::new(), Vec::new());
        for (signal, to) in [(Signal::Traces, to.traces), (Signal::Logs, to.logs)] {
            let Some(to) = to else { continue };
            let (sink, worker) = otlp::start(signal, to, delivery)?;
            sinks.push(sink);
            workers.push(worker);
        }
        let exporters = Exporters::new(sinks);
        let push = to.metrics.map(push).transpose()?;
        let push = push.map(|push| (push, config.otlp.metrics_interval));
        // The SDK pushes metrics from its own thread.
        let metrics = privileges::without(|| metrics(own_resource(config), push, config.limits.workloads))
            .map_err(RuntimeError::os("start the metrics"))?;
        metrics.follow_export(&exporters);
        Ok(Export {
            metrics: Arc::new(metrics),
            exporters,
            workers,
        })
    }

    pub fn exporters(&self) -> Exporters {
        self.exporters.clone()
    }

    /// Destination of traces, for people. Logs that there is none: missing traces alone may go unnoticed. `has_journal`: finished
    /// terminations are kept on this machine, which is all that a host without a collector needs.
    pub fn destination(&self, has_journal: bool) -> &'static str {
        const REMEDY: &str = "set OTEL_EXPORTER_OTLP_ENDPOINT or `otlp.endpoint`";
        match (self.exporters.is_empty(), has_journal) {
            (false, _) => return "to the collector",
            (true, true) => tracing::info!(
                "no collector is set (`otlp.endpoint`): no trace leaves this machine; `epitaph list` and `epitaph why` read the journal"
            ),
            (true, false) => tracing::warn!(remedy = REMEDY, "no OTLP endpoint is set: no trace leaves this machine"),
        }
        "nowhere"
    }

    /// Sends the queues, for `limit` at most: first traces and logs, then the metrics with their final counts.
    pub async fn finish(self, limit: Duration) {
        let deadline = Instant::now() + limit;
        join_all(self.workers.into_iter().map(|worker| worker.shutdown(limit))).await;
        // The SDK ignores its limit.
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, self.metrics.shutdown(left)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the last push of metrics failed"),
            Err(_) => tracing::warn!("shut down before the collector accepted the last metrics"),
        }
    }
}

/// Resource of the agent's own spans and metrics. Not from `Resource::builder`, which reads the environment itself.
pub fn own_resource(config: &Config) -> Resource {
    let host = host();
    let configured = config.export.resource_attributes.iter();
    Resource::builder_empty()
        .with_attributes(configured.map(|(k, v)| KeyValue::new(k.clone(), v.clone())))
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes([
            KeyValue::new(key::SERVICE_NAME, config.export.agent_service_name.clone()),
            // One writer per series: without the instance, the collector would merge the counters of two machines.
            KeyValue::new(key::SERVICE_INSTANCE_ID, host.clone()),
            KeyValue::new(key::HOST_NAME, host),
            KeyValue::new(key::OS_TYPE, "linux"),
        ])
        .build()
}

/// The host name of this machine.
pub fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use prost::Message as _;

    use super::*;
    use crate::sink::otlp::collector::{Collector, Reply};

    #[tokio::test]
    async fn the_metrics_of_two_machines_differ_by_instance() {
        let collector = Collector::start(|_, _| Reply::Take).await;
        let mut config = Config::default();
        config.otlp.endpoint = Some(format!("http://{}", collector.address).parse().unwrap());
        let attributes = [("deployment.environment.name", "test"), ("host.name", "elsewhere")];
        config.export.resource_attributes = attributes.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let export = Export::start(&config).unwrap();
        export.finish(Duration::from_secs(60)).await;

        let received = collector.received();
        let pushed = received.iter().find(|r| r.path == "/v1/metrics").expect("a push of metrics");
        let request = ExportMetricsServiceRequest::decode(pushed.body.clone()).unwrap();
        let resource = request.resource_metrics[0].resource.as_ref().unwrap();
        let of = |key: &str| {
            let found = resource.attributes.iter().find(|a| a.key == key);
            format!("{:?}", found.and_then(|a| a.value.as_ref()?.value.as_ref()))
        };
        assert_eq!(of("service.name"), r#"Some(StringValue("epitaph-agent"))"#);
        assert_eq!(of("service.instance.id"), format!("Some(StringValue({:?}))", host()));
        assert_eq!(
            of("host.name"),
            of("service.instance.id"),
            "ours wins over what is configured"
        );
        assert_eq!(of("deployment.environment.name"), r#"Some(StringValue("test"))"#);
        assert_eq!(of("telemetry.sdk.name"), r#"Some(StringValue("opentelemetry"))"#);
    }

    /// A host without a collector is a supported set-up; without a journal too, nothing is kept.
    #[tokio::test]
    async fn no_collector_is_a_warning_only_where_nothing_is_kept() {
        use tracing_subscriber::layer::SubscriberExt as _;
        let export = Export::start(&Config::default()).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let layer = Levels(sender);
        let destinations = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            [true, false].map(|has_journal| export.destination(has_journal))
        });
        assert_eq!(destinations, ["nowhere", "nowhere"]);
        let levels: Vec<tracing::Level> = receiver.try_iter().collect();
        assert_eq!(levels, [tracing::Level::INFO, tracing::Level::WARN]);
    }

    struct Levels(std::sync::mpsc::Sender<tracing::Level>);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Levels {
        fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            if event.metadata().target().starts_with("epitaph") {
                let _ = self.0.send(*event.metadata().level());
            }
        }
    }

    #[test]
    fn the_agents_own_service_has_its_own_name() {
        let mut config = Config::default();
        config.export.service_name = Some("graveyard".to_owned());
        config.export.resource_attributes = [("service.name".to_owned(), "shop".to_owned())].into();
        let name = |config: &Config| own_resource(config).get(&key::SERVICE_NAME.into()).map(|v| v.to_string());
        assert_eq!(name(&config).as_deref(), Some("epitaph-agent"));
        config.export.agent_service_name = "sexton".to_owned();
        assert_eq!(name(&config).as_deref(), Some("sexton"));
    }
}
